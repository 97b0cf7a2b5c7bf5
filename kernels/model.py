"""A trained model: a fitted estimator with its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from scipy import sparse

from .base import Value
from .column_encoding import EncodingReport, TableEncoding
from .column_encoding.quantities import POINT
from .column_encoding.reading import Column, read_columns
from .families.base import Rows, drawn_rows
from .files import Savable, load
from .hypothesis_tests.drift import Reference
from .validation import NAMED, listed, require_numbers

if TYPE_CHECKING:
    from .estimators import (
        Explanation,
        KernelLearningClassifier,
        KernelLearningRegressor,
    )

    Estimator: TypeAlias = KernelLearningClassifier | KernelLearningRegressor
else:
    Estimator = Any  # estimators import scikit-learn, which is slow

INTERVAL_BOUNDS = ("lower", "upper")
"""Columns with the bounds of prediction intervals."""

INTERVAL_ALPHA = 0.1
"""Expected share of numbers outside of their prediction interval."""

LEAST_BATCH_ROWS = 4096


@dataclass(frozen=True, eq=False, repr=False)
class Model(Savable, Value):
    """Fitted estimator with the names and scaling of its columns, and metadata.

    Attributes
    ----------
    estimator : KernelLearningClassifier or KernelLearningRegressor
        Fitted estimator; `keep_support` makes the file of an SVM smaller.
    features : tuple of str
        Names of the d columns, in order.
    low, spread : ndarray of shape (d,)
        Scaling of the columns: a feature is (raw - low) / spread.
    about : mapping of str to plain data
        Metadata: texts, numbers, Booleans, None, and lists and dictionaries of these.
    reference : Reference, optional
        Training rows to compare new rows with.

    Raises
    ------
    ValueError
        The estimator is not fitted, parts do not fit each other, a name is repeated, or
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
        """Return the model that `save` wrote to a file.

        Parameters
        ----------
        path : path
            File to read.

        Raises
        ------
        ValueError
            The file is damaged or holds another object.
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
        """Return the model of an estimator that was fitted on a table with named columns."""
        assert estimator.table_ is not None
        names = estimator.table_.names
        return cls(estimator, names, np.zeros(len(names)), np.ones(len(names)), about)

    def with_reference(
        self, X: Rows, low: np.ndarray, high: np.ndarray, seed: int
    ) -> Self:
        """Return a copy with a sample of training rows, for comparison with new rows.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (m, d), or rows in files
            Features of the training rows.
        low, high : ndarray of shape (d,)
            Smallest and largest value of each feature.
        seed : int
            Seed of the drawn rows.
        """
        reference = Reference.of(X, low, high, self._scores_of_features, seed)
        return replace(self, reference=reference)

    def _scores_of_features(self, X: Rows) -> np.ndarray:
        return self.scores_in(self.columns_of(X))

    @property
    def task(self) -> str:
        """Task of the estimator: "classification" or "regression"."""
        if hasattr(self.estimator, "classes_"):
            return "classification"
        return "regression"

    @property
    def batch_rows(self) -> int:
        """Rows per batch for predictions equal, bit for bit, to those of one call."""
        from .estimators import chunk_rows_for

        chunk_rows = chunk_rows_for(self.estimator.kernel_.X.shape[0])
        n_chunks = ceil(LEAST_BATCH_ROWS / chunk_rows)
        return n_chunks * chunk_rows

    @cached_property
    def column_types(self) -> dict[str, np.dtype[Any]]:
        """Dtype of each column of predictions, in order."""
        if self.task == "regression":
            return dict.fromkeys(self._regression_columns(), np.dtype(np.float64))
        score_names = self._score_columns_of_classes()
        types = dict.fromkeys(score_names, np.dtype(np.float64))
        return {"prediction": self.estimator.classes_.dtype, **types}

    def _regression_columns(self) -> list[str]:
        n_outputs = self.estimator.dual_coef_.shape[1]
        if n_outputs > 1:
            return [f"prediction {output}" for output in range(n_outputs)]
        if self._has_intervals:
            return ["prediction", *INTERVAL_BOUNDS]
        return ["prediction"]

    def _score_columns_of_classes(self) -> list[str]:
        classes = self.estimator.classes_
        names = ["score"]
        if len(classes) > 2:
            names = [f"score {label}" for label in classes]
        if hasattr(self.estimator, "calibration_"):
            names += [f"probability {label}" for label in classes]
        return names

    @property
    def _sign(self) -> int:
        """-1 if ``about["classes"]`` has the other order, else 1."""
        classes = list(map(str, getattr(self.estimator, "classes_", ())))
        if len(classes) == 2 and classes[::-1] == self.about.get("classes"):
            return -1
        return 1

    @property
    def score_names(self) -> list[str]:
        """Names of the prediction columns with predicted numbers or decision values."""
        prefix = "score"
        if self.task == "regression":
            prefix = "prediction"
        return [name for name in self.column_types if name.split(" ")[0] == prefix]

    @property
    def explained_names(self) -> list[str]:
        """Names of the prediction columns that `explain` explains."""
        names = [name for name in self.column_types if name.startswith("probability ")]
        return names[:: self._sign] or self.score_names

    def scores_in(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Stack the columns `score_names` of predictions in one array, shape (n, q)."""
        return np.column_stack([columns[name] for name in self.score_names])

    @cached_property
    def feature_columns(self) -> list[tuple[str, str]]:
        """Column name and view, such as "numbers", of each feature."""
        if self.table is None:
            return [(name, "numbers") for name in self.features]
        return [
            (column.name, view)
            for column in self.table.columns
            for _, view in column.features
        ]

    @property
    def missing_at_training(self) -> dict[str, float]:
        """Share of missing values in the training rows, by column."""
        if self.table is None or self.reference is None:
            return {}
        shares = {}
        for column, features in self.table.places:
            if column.gap_place is not None:
                indicator = features.start + column.gap_place
                shares[column.name] = float(self.reference.shares[indicator])
        return shares

    @property
    def _has_intervals(self) -> bool:
        if self.estimator.dual_coef_.shape[1] != 1:
            return False
        if not hasattr(self.estimator, "residuals_"):
            return False
        return self.estimator._residual_quantile(INTERVAL_ALPHA) is not None

    @property
    def table(self) -> TableEncoding | None:
        """Encoding of the training table; None for an array."""
        return getattr(self.estimator, "table_", None)

    def lacking(self, names: Sequence[str], others: Sequence[str] = ()) -> str:
        """Return a sentence on columns that a table lacks; empty if none.

        `names` are the columns of the table. The model ignores `others`, which may be
        missing columns under other names.
        """
        absent = [name for name in self.features if name not in names]
        if not absent:
            return ""
        most_named = 3
        absent_texts = [self._with_imputed_value(name) for name in absent[:most_named]]
        absent_columns = ", ".join(absent_texts)
        if len(absent) > most_named:
            absent_columns += f" and {len(absent) - most_named} more"
        unknown = ""
        if others:
            unknown = f"; the model does not read {listed(others)}"
        advice = ""
        if self.table is not None:
            advice = ", or add the column without values to have that assumed"
        return f"lacks columns that the model reads: {absent_columns}{unknown}; rename a column{advice}."

    def _with_imputed_value(self, name: str) -> str:
        if self.table is None:
            return repr(name)
        (column,) = [column for column in self.table.columns if column.name == name]
        return f"{name!r} (without values: {column.assumed})"

    def raw_rows(self, table: Any, first: int = 0) -> Any:
        """Return the rows of a table, as an array or as columns to encode.

        Parameters
        ----------
        table : DataFrame or Arrow table of n rows
            Rows with the columns of the model, in any order.
        first : int
            Number of the first row, for messages.

        Raises
        ------
        ValueError
            A column is missing or repeated, or a number is not finite.
        """
        columns = read_columns(table, self.features)
        if self.table is not None:
            return columns
        numbers = []
        for name in self.features:
            column = columns[name]
            values = column.read_numbers(POINT).values
            is_invalid = ~np.isfinite(values)
            if is_invalid.any():
                row = int(is_invalid.argmax())
                raise ValueError(
                    f"column {name!r} must hold finite numbers, got {_cell_text(column, row)} "
                    f"in row {first + row:,} (the first is row 0); correct it, impute it, or leave the row out."
                )
            numbers.append(values)
        return np.column_stack(numbers)

    def scaled(self, X_raw: Rows) -> Rows:
        """Return the features: raw values minus `low`, divided by `spread`.

        Parameters
        ----------
        X_raw : ndarray or CSR matrix of shape (n, d)
            Columns in the order of `features`; sparse only if `low` is zero.

        Returns
        -------
        X : ndarray or CSR matrix of shape (n, d)

        Raises
        ------
        ValueError
            The number of columns is wrong, or sparse rows would lose their zeros.
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
        """Return predictions for raw rows, as named columns.

        Parameters
        ----------
        X_raw : ndarray or CSR matrix of shape (n, d), or table of n rows
            Columns in the order of `features`, or a table if the model has a `table`.
        report : EncodingReport, optional
            Report of missing values and new levels.

        Returns
        -------
        columns : dict of str to ndarray of shape (n,)
            ``prediction``, then for regression ``lower`` and ``upper`` (coverage 0.9);
            for two classes ``score``, positive for the second of ``about["classes"]``,
            otherwise ``score <class>``; and ``probability <class>`` if calibrated. Several
            outputs have only ``prediction <position>``. See `column_types`.

        Raises
        ------
        ValueError
            The number of columns is wrong, or a value is not finite.
        """
        return self.columns_of(self.encoded(X_raw, report))

    def encoded(self, X_raw: Any, report: EncodingReport | None = None) -> Rows:
        """Return the features of raw rows or a table, shape (n, features)."""
        if self.table is not None:
            return self.table.encode(X_raw, report)
        X = self.scaled(X_raw)
        self._require_finite(X)
        return X

    def _require_finite(self, X: Rows) -> None:
        if sparse.issparse(X):
            invalid_columns = X.indices[~np.isfinite(X.data)]
        else:
            _, invalid_columns = np.nonzero(~np.isfinite(X))
        if not len(invalid_columns):
            return
        counts = np.bincount(invalid_columns)
        columns = [
            f"{self.features[j]!r} ({counts[j]})" for j in np.flatnonzero(counts)
        ]
        names = ", ".join(columns[:NAMED])
        if len(columns) > NAMED:
            names += f" and {len(columns) - NAMED} more"
        raise ValueError(
            f"X_raw must be finite, got NaN or infinity in column {names} of {X.shape[0]} rows; impute or drop them."
        )

    def columns_of(self, X: Rows) -> dict[str, np.ndarray]:
        """Return predictions for features of rows, as named columns."""
        types = self.column_types
        if not X.shape[0]:
            return {name: np.empty(0, dtype) for name, dtype in types.items()}
        if self.task == "regression":
            values = self._predicted_numbers(X)
        else:
            values = self._predicted_classes(X)
        named_values = zip(types.items(), values, strict=True)
        return {
            name: np.ascontiguousarray(column, dtype=dtype)
            for (name, dtype), column in named_values
        }

    def _predicted_numbers(self, X: Rows) -> list[np.ndarray]:
        predictions = self.estimator._predictions(X)
        columns = list(predictions.T)
        if self._has_intervals:
            half_widths = self.estimator._half_widths(X, INTERVAL_ALPHA)
            columns += [*(predictions - half_widths).T, *(predictions + half_widths).T]
        return columns

    def _predicted_classes(self, X: Rows) -> list[np.ndarray]:
        scores, probabilities = self.estimator._decisions_and_probabilities(X)
        codes = (scores > 0).astype(np.intp)
        if scores.ndim > 1:
            codes = scores.argmax(axis=1)
        scores = self._sign * np.atleast_2d(scores.T)
        columns = [self.estimator.classes_[codes], *scores]
        if probabilities is not None:
            columns += [*probabilities.T]
        return columns

    def explain(self, table: Any, background: int = 50) -> Explanation:
        """Return the contribution of each column to the predictions for a table.

        Parameters
        ----------
        table : DataFrame or Arrow table of n rows
            As in `raw_rows`; at least one row.
        background : int, default 50
            Number of rows drawn from `reference`, or without it from the rows of the
            kernel.

        Returns
        -------
        explanation : Explanation
            See `explain` of the estimator. Its outputs are `explained_names`, if there
            are several.
        """
        from .estimators.explanation import column_cells

        raw = self.raw_rows(table)
        cells = raw if self.table is None else column_cells(raw)
        names = self.explained_names
        contributions = self.estimator._contributions(
            np.asarray(self.encoded(raw), dtype=np.float64),
            self._background_rows(background),
            n_permutations=1,
        )
        if self._sign < 0:
            contributions = contributions.of_other_class()
        outputs = tuple(names) if len(names) > 1 else ()
        return contributions.explanation(cells, self.features, outputs)

    def _background_rows(self, n_rows: int) -> np.ndarray:
        if self.reference is None:
            return np.asarray(self.estimator._background_features(n_rows))
        rows = self.reference.rows
        drawn = drawn_rows(len(rows), n_rows, self.estimator._explanation_seed)
        return np.asarray(rows[drawn], dtype=np.float64)

    def _require_sound(self) -> None:
        self.estimator._require_sound()

    def _require_parts(self) -> None:
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
        names = self.features
        d = len(self.estimator._columns)
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
        has_names = hasattr(self.estimator, "feature_names_in_")
        if has_names and self.estimator._columns != list(names):
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
        n_rows = len(reference.rows)
        n_features = self.estimator.kernel_.X.shape[1]
        require_numbers("reference_rows", reference.rows, (n_rows, n_features))
        require_numbers(
            "reference_scores", reference.scores, (n_rows, len(self.score_names))
        )
        for name in ("low", "high", "shares"):
            require_numbers(
                f"reference_{name}", getattr(reference, name), (n_features,)
            )


def _cell_text(column: Column, row: int) -> str:
    if column.kind == "other":
        return "other"
    if column.gaps[row]:
        return "a missing value"
    return f"{str(column.values[row])!r:.40}"
