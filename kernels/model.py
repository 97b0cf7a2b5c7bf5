"""A trained model: a fitted estimator, the columns it reads, and how it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from scipy import sparse

from .base import Value
from .column_encoding import EncodingReport, TableEncoding
from .column_encoding.quantities import POINT
from .column_encoding.reading import read_columns
from .families.base import Rows
from .files import Savable, load
from .hypothesis_tests.drift import Reference
from .validation import NAMED, listed, require_numbers

if TYPE_CHECKING:
    from .estimators import KernelLearningClassifier, KernelLearningRegressor

    Estimator: TypeAlias = KernelLearningClassifier | KernelLearningRegressor
else:
    Estimator = Any  # the estimators bring scikit-learn along

BOUNDS, OUTSIDE = ("lower", "upper"), 0.1
"""Columns of the interval around a predicted number, and the probability that it does not hold the number."""

SHOWN = 3
"""Missing columns that a sentence names with what would be assumed."""

BATCH = 4096
"""Rows that a batch holds at least."""


@dataclass(frozen=True, eq=False, repr=False)
class Model(Savable, Value):
    """What is trained, kept, registered and served.

    Attributes
    ----------
    estimator : KernelLearningClassifier or KernelLearningRegressor
        Fitted on the features; `keep_support` makes a smaller file of a support vector
        machine.
    features : tuple of str
        Names of the d columns it reads, in order.
    low, spread : ndarray of shape (d,)
        A feature is (raw - low) / spread of its column; zero and one where nothing is
        scaled. In units of the column.
    about : mapping of str to plain data
        How the model was made: texts, numbers, Booleans, None, and lists and
        dictionaries of these.
    reference : Reference, optional
        What is kept of the training rows to compare new rows with.

    Raises
    ------
    ValueError
        The estimator is not fitted, parts do not fit each other, a name comes twice, or
        a spread is not positive.
    """

    estimator: Estimator
    features: tuple[str, ...]
    low: np.ndarray
    spread: np.ndarray
    about: Mapping[str, Any]
    reference: Reference | None = None

    def __post_init__(self) -> None:
        self._require_parts()

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return the model in a file that `save` wrote.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        ValueError
            The file is damaged, or holds something other than a model.
        OSError
            The file cannot be opened.
        """
        model = load(path)
        if not isinstance(model, cls):
            raise ValueError(
                f"{path}: holds a {type(model).__name__} and no Model; read it by learnkernels.load."
            )
        return model

    @classmethod
    def of_table(cls, estimator: Estimator, about: Mapping[str, Any]) -> Self:
        """Return the model of an estimator that was fitted on a table, which it reads as the table is."""
        assert estimator.table_ is not None
        names = estimator.table_.names
        return cls(estimator, names, np.zeros(len(names)), np.ones(len(names)), about)

    def with_reference(
        self, X: Rows, low: np.ndarray, high: np.ndarray, seed: int
    ) -> Self:
        """Return the model with what it keeps of its training rows.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (m, d), or rows in files
            Features of the training rows. Not modified.
        low, high : ndarray of shape (d,)
            Their extremes.
        seed : int
            Of the rows that are drawn.
        """

        def scores_of(rows: np.ndarray) -> np.ndarray:
            return self.scores_in(self.columns_of(rows))

        return replace(self, reference=Reference.of(X, low, high, scores_of, seed))

    @property
    def task(self) -> str:
        """Return "classification" or "regression"."""
        return "classification" if hasattr(self.estimator, "classes_") else "regression"

    @property
    def batch_rows(self) -> int:
        """Return how many rows a batch should hold: batches of that many rows give the bits of all rows at once."""
        from .estimators import chunk_rows_for

        chunk = chunk_rows_for(self.estimator.kernel_.X.shape[0])
        return chunk * -(-BATCH // chunk)

    @cached_property
    def column_types(self) -> dict[str, np.dtype[Any]]:
        """Return the columns of a prediction, in order, and the dtype of each."""
        number = np.dtype(np.float64)
        if self.task == "regression":
            q = self.estimator.dual_coef_.shape[1]
            names = ["prediction"] if q == 1 else [f"prediction {i}" for i in range(q)]
            return dict.fromkeys(
                [*names, *(BOUNDS if self._has_bounds else ())], number
            )
        classes = self.estimator.classes_
        scores = (
            ["score"] if len(classes) == 2 else [f"score {label}" for label in classes]
        )
        likely = (
            []
            if self._calibration is None
            else [f"probability {label}" for label in classes]
        )
        return {"prediction": classes.dtype} | dict.fromkeys([*scores, *likely], number)

    @property
    def score_names(self) -> list[str]:
        """Return the columns of a prediction that hold predicted numbers or decision values."""
        begins = "prediction" if self.task == "regression" else "score"
        return [name for name in self.column_types if name.split(" ")[0] == begins]

    def scores_in(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the scores in what `columns` gave, shape (n, q)."""
        return np.column_stack([columns[name] for name in self.score_names])

    @cached_property
    def feature_columns(self) -> list[tuple[str, str]]:
        """Return the column that each feature comes from, and its view, such as "numbers"."""
        if self.table is None:
            return [(name, "numbers") for name in self.features]
        return [
            (column.name, view)
            for column in self.table.columns
            for _, view in column.features
        ]

    @property
    def missing_at_training(self) -> dict[str, float]:
        """Return the share of the training rows that lack a value, of each column of which some do."""
        if self.table is None or self.reference is None:
            return {}
        shares = {}
        for column, features in self.table.places:
            if column.gap_place is not None:
                shares[column.name] = float(
                    self.reference.shares[features.start + column.gap_place]
                )
        return shares

    @property
    def _has_bounds(self) -> bool:
        """Return whether there is an interval around each number."""
        if self.estimator.dual_coef_.shape[1] != 1 or not hasattr(
            self.estimator, "residuals_"
        ):
            return False
        return self.estimator._residual_quantile(OUTSIDE) is not None

    @property
    def _calibration(self) -> np.ndarray | None:
        """Return slopes and offsets of the sigmoids, where there are probabilities."""
        return getattr(self.estimator, "calibration_", None)

    @property
    def table(self) -> TableEncoding | None:
        """Column types of a table; None for a model of rows of numbers."""
        return getattr(self.estimator, "table_", None)

    def lacking(self, names: Sequence[str], others: Sequence[str] = ()) -> str:
        """Return words on columns that the model reads and that a table of some names
        lacks; empty if it lacks none.

        `others` are its unknown names, of which one may be the column in question.
        """
        columns = () if self.table is None else self.table.columns
        assumed = {
            column.name: f" (without values: {column.assumed})" for column in columns
        }
        absent = [
            f"{name!r}{assumed.get(name, '')}"
            for name in self.features
            if name not in names
        ]
        if not absent:
            return ""
        # Not filled in: a lost column changes all predictions, and whoever wants that
        # can add it without values.
        lost_columns = ", ".join(absent[:SHOWN])
        if len(absent) > SHOWN:
            lost_columns += f" and {len(absent) - SHOWN} more"
        unknown = f"; the model does not read {listed(others)}" if others else ""
        add = (
            ", or add the column without values to have that assumed" if assumed else ""
        )
        return f"lacks columns that the model reads: {lost_columns}{unknown}; rename a column{add}."

    def raw_rows(self, table: Any, first: int = 0) -> Any:
        """Return the rows of a table as `columns` takes them: numbers, or columns.

        Parameters
        ----------
        table : DataFrame or Arrow table of n rows
            With the columns of the model in any order; others are not looked at. Not
            modified.
        first : int
            Number of the first row, for sentences.

        Raises
        ------
        ValueError
            A column is missing, comes twice, or holds something that is no finite
            number where all must be.
        """
        columns = read_columns(table, self.features)
        if self.table is not None:
            return columns
        numbers = [columns[name].read_numbers(POINT).values for name in self.features]
        for name, values in zip(self.features, numbers, strict=True):
            if (wrong := ~np.isfinite(values)).any():
                row, column = int(wrong.argmax()), columns[name]
                value = (
                    "a missing value"
                    if column.gaps[row]
                    else f"{str(column.values[row])!r:.40}"
                )
                raise ValueError(
                    f"column {name!r} must hold finite numbers, got {column.kind if column.kind == 'other' else value} "
                    f"in row {first + row:,} (the first is row 0); correct it, impute it, or leave the row out."
                )
        return np.column_stack(numbers)

    def scaled(self, X_raw: Rows) -> Rows:
        """Return the features of raw rows.

        Parameters
        ----------
        X_raw : ndarray or CSR matrix of shape (n, d)
            In the order of `features`; sparse only where `low` is zero. Not modified.

        Returns
        -------
        X : ndarray or CSR matrix of shape (n, d)

        Raises
        ------
        ValueError
            The number of columns is another one, or sparse rows would lose their zeros.
        """
        d = len(self.features)
        if len(X_raw.shape) != 2 or X_raw.shape[1] != d:
            raise ValueError(
                f"X_raw must have the {d} columns {listed(self.features)} of this model, got shape {X_raw.shape}; give "
                "them in that order."
            )
        if not self.low.any() and (self.spread == 1).all():
            return X_raw
        if not sparse.issparse(X_raw):
            return (X_raw - self.low) / self.spread
        if self.low.any():
            moved = [
                name for name, low in zip(self.features, self.low, strict=True) if low
            ]
            raise ValueError(
                f"X_raw must be dense for a model that moves columns ({listed(moved)}), got sparse rows, whose zeros "
                "would be lost; give X_raw.toarray()."
            )
        X = X_raw.tocsr().astype(np.float64)
        X.data /= self.spread[X.indices]
        return X

    def columns(
        self, X_raw: Any, report: EncodingReport | None = None
    ) -> dict[str, np.ndarray]:
        """Return what the model says about raw rows.

        Parameters
        ----------
        X_raw : ndarray or CSR matrix of shape (n, d), or table of n rows
            In the order of `features`; a table, with columns of these names in any
            order, where the model has a `table`. Not modified.
        report : EncodingReport, optional
            Counts the gaps and new levels of a table.

        Returns
        -------
        columns : dict of str to ndarray of shape (n,)
            In order: ``prediction``; of a classifier then ``score`` (binary; positive
            for the second class) or ``score <class>`` each, and where it is calibrated
            ``probability <class>`` each. Of a number ``lower`` and ``upper``, outside
            of which it is with probability `OUTSIDE`; of several outputs
            ``prediction <position>`` each. `column_types` gives the dtypes.

        Raises
        ------
        ValueError
            As `scaled`, or a value is not finite.

        Notes
        -----
        O(n m d) for m training rows, or landmarks; memory does not grow with n beyond
        the rows and the columns.
        """
        return self.columns_of(self.encoded(X_raw, report))

    def encoded(self, X_raw: Any, report: EncodingReport | None = None) -> Rows:
        """Return the features that the kernel sees, shape (n, d), of rows as `columns` takes them."""
        if self.table is not None:
            return self.table.encode(X_raw, report)
        X: Rows = self.scaled(X_raw)
        values, columns = (
            (X.data, X.indices) if sparse.issparse(X) else (X, np.arange(X.shape[1]))
        )
        bad = np.bincount(
            np.broadcast_to(columns, values.shape)[~np.isfinite(values)],
            minlength=X.shape[1],
        )
        if bad.any():
            bad_columns = [
                f"{self.features[int(j)]!r} ({bad[j]})" for j in np.flatnonzero(bad)
            ]
            more = (
                f" and {len(bad_columns) - NAMED} more"
                if len(bad_columns) > NAMED
                else ""
            )
            raise ValueError(
                f"X_raw must be finite, got NaN or infinity in column {', '.join(bad_columns[:NAMED])}{more} of "
                f"{X.shape[0]} rows; impute or drop them."
            )
        return X

    def columns_of(self, X: Rows) -> dict[str, np.ndarray]:
        """Return what `columns` does, of rows of features."""
        types = self.column_types
        if not X.shape[0]:
            return {name: np.empty(0, dtype) for name, dtype in types.items()}
        if self.task == "regression":
            values = [self.estimator._predictions(X)]
            if self._has_bounds:
                half_widths = self.estimator._half_widths(X, OUTSIDE)
                values += [values[0] - half_widths, values[0] + half_widths]
        else:
            decisions, class_probabilities = (
                self.estimator._decisions_and_probabilities(X)
            )
            binary = decisions.ndim == 1
            winners = (
                (decisions > 0).astype(np.intp) if binary else decisions.argmax(axis=1)
            )
            values = [self.estimator.classes_[winners], decisions]
            if class_probabilities is not None:
                values.append(class_probabilities)
        split = [
            column
            for value in values
            for column in ([value] if value.ndim == 1 else value.T)
        ]
        return {
            name: np.ascontiguousarray(column, dtype=dtype)
            for (name, dtype), column in zip(types.items(), split, strict=True)
        }

    def _require_sound(self) -> None:
        self.estimator._require_sound()

    def _require_parts(self) -> None:
        """Raise ValueError if the parts do not fit each other."""
        if getattr(self.estimator, "dual_coef_", None) is None:
            name = type(self.estimator).__name__
            raise ValueError(
                f"estimator must be fitted, got a {name} without coefficients; call fit first."
            )
        if getattr(self.estimator, "multilabel_", False):
            raise ValueError(
                "estimator must predict one class or numbers, got a classifier of several labels per row; save it by "
                "its own method save."
            )
        names, d = self.features, self.estimator.n_features_in_
        if not isinstance(names, tuple) or not all(
            isinstance(name, str) for name in names
        ):
            raise ValueError(
                f"features must be a tuple of texts, got {names!r:.60}; give the names of the columns."
            )
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if repeated:
            raise ValueError(
                f"features must have different names, got {listed(repeated)} more than once; rename the columns."
            )
        fitted_names = getattr(self.estimator, "feature_names_in_", None)
        if fitted_names is not None and fitted_names.tolist() != list(names):
            raise ValueError(
                f"features must be the names that the estimator was fitted with, got {listed(names)}."
            )
        if len(names) != d:
            raise ValueError(
                f"features must name the {d} columns that the estimator was fitted on, got {len(names)} names."
            )
        require_numbers("low", self.low, (d,))
        require_numbers("spread", self.spread, (d,))
        if not (self.spread > 0).all():
            raise ValueError(
                f"spread must be positive, got {self.spread.min()}; use one for columns that are constant."
            )
        if self.reference is not None:
            self._require_reference(self.reference)

    def _require_reference(self, reference: Reference) -> None:
        n_rows, n_features = len(reference.rows), self.estimator.kernel_.X.shape[1]
        require_numbers("reference_rows", reference.rows, (n_rows, n_features))
        require_numbers(
            "reference_scores", reference.scores, (n_rows, len(self.score_names))
        )
        for name in ("low", "high", "shares"):
            require_numbers(
                f"reference_{name}", getattr(reference, name), (n_features,)
            )
