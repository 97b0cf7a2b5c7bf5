"""Base class of the estimators, with validation and kernel learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, wraps
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, TypeVar, cast, get_args

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ..base import warn_caller
from ..centering import Centering
from ..column_encoding import EncodingReport, TableEncoding, is_table
from ..column_encoding.encoding import ColumnTypes
from ..column_encoding.reading import Column, read_columns
from ..engine.workers import at_most_threads
from ..families.base import (
    KernelFamily,
    Rows,
    as_rows,
    distinct_rows,
    squared_distances,
)
from ..families.distances import GaussianFamily
from ..files import Savable
from ..learned_kernel import LearnedKernel, LinearScores
from ..learners import (
    LEARNERS,
    KernelSearchLearner,
    Learner,
    as_learner,
    learn_from_rows,
    learn_from_statistics,
)
from ..predictors import as_predictor
from ..statistics.gram import Normalization, require_normalization
from ..statistics.sampled import sample_statistics
from ..targets import Target, Task
from ..validation import NAMED, listed, no_parameter, require_one_of, require_shape
from ..weights import as_sample_weight
from .explanation import column_slices
from .importance import Importance, ImportanceProblem, ImportanceRows
from .sampling import BANDWIDTH_ROWS, FitSampling, kernel_rows

Precision = Literal["float64", "float32"]

Method = TypeVar("Method", bound=Callable[..., Any])

CHUNK_BYTES = 1 << 26

MOST_CHUNK_ROWS = 1 << 13

MOST_SORTED = 1 << 14
"""Most rows that are sorted for default bandwidths."""

MEASURED_WHEN_READ: tuple[str, ...] = (
    "relevance_",
    "feature_importances_",
    "interactions_",
    "_importance",
    "_importance_problem",
)
"""Attributes that notebooks would measure to display an estimator."""


def within_n_jobs(method: Method) -> Method:
    """Limit the threads of a method to `n_jobs`."""

    @wraps(method)
    def limited(self: KernelLearner, *args: Any, **kwargs: Any) -> Any:
        with at_most_threads(self.n_jobs):
            return method(self, *args, **kwargs)

    return cast(Method, limited)


@dataclass(eq=False, repr=False, kw_only=True)
class KernelLearner(Savable, BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators, which learn a kernel and apply it to new rows."""

    learner: str | Learner = "auto"
    family: KernelFamily | None = None
    columns: ColumnTypes | None = None
    normalize: Normalization = "trace"
    centering: str = "center"
    sample: Literal["auto", "all"] | int | None = None
    random_state: Any = 0
    n_jobs: int | None = None

    learner_reason_: str = field(init=False)
    kernel_: LearnedKernel = field(init=False)
    weights_: np.ndarray = field(init=False)
    alignment_: float = field(init=False)
    family_: KernelFamily = field(init=False)
    sampling_: FitSampling = field(init=False)
    n_features_in_: int = field(init=False)
    table_: TableEncoding | None = field(init=False)
    _linear: LinearScores = field(init=False)
    _importance_rows: ImportanceRows | None = field(init=False)
    _stored_importance: Importance | None = field(init=False)

    _saved: ClassVar[tuple[str, ...]] = (
        "kernel_",
        "learner_reason_",
        "sampling_",
        "n_features_in_",
        "feature_names_in_",
        "table_",
        "_importance_rows",
        "_stored_importance",
    )
    """Saved attributes, from which the others are derived."""

    def __dir__(self) -> list[str]:
        is_stored = self.__dict__.get("_stored_importance") is not None
        hidden = MEASURED_WHEN_READ
        if is_stored or "_importance" in self.__dict__:
            hidden = ()
        return [
            name
            for name in object.__dir__(self)
            if name not in hidden and hasattr(self, name)
        ]

    @property
    def learner_(self) -> str:
        """Name of the learner that learned the kernel."""
        return self.kernel_.learner

    @property
    def relevance_(self) -> dict[str, float]:
        """Permutation importance of each column, in descending order."""
        relevance = self._importance.relevance
        names = self._columns
        return {
            names[j]: float(relevance[j]) for j in np.argsort(-relevance, kind="stable")
        }

    @property
    def feature_importances_(self) -> np.ndarray:
        """Permutation importance of each column, clipped at zero and scaled to a sum of one."""
        importances = np.maximum(self._importance.relevance, 0.0)
        shares = importances / (importances.sum() or 1.0)
        if self.table_ is None:
            return shares
        share_of = dict(zip(self.table_.names, shares, strict=True))
        return np.array([share_of.get(name, 0.0) for name in self.feature_names_in_])

    @property
    def interactions_(self) -> dict[tuple[str, str], float]:
        """Ten pairs of columns that interact most, in descending order."""
        names = self._columns
        importance = self._importance
        pairs = [
            (names[first], names[second]) for first, second in importance.pairs.tolist()
        ]
        return dict(zip(pairs, importance.interactions.tolist(), strict=True))

    @property
    def _columns(self) -> list[str]:
        if self.table_ is not None:
            return list(self.table_.names)
        default_names = [f"x{j}" for j in range(self.n_features_in_)]
        return [str(name) for name in getattr(self, "feature_names_in_", default_names)]

    @cached_property
    def _importance(self) -> Importance:
        check_is_fitted(self)
        stored: Importance | None = getattr(self, "_stored_importance", None)
        if stored is not None:
            return stored
        return self._measure_importance()

    @within_n_jobs
    def _measure_importance(self) -> Importance:
        return self._importance_problem.measure()

    @property
    def _importance_problem(self) -> ImportanceProblem:
        rows = getattr(self, "_importance_rows", None)
        if rows is None:
            raise AttributeError(
                "relevance_ and interactions_ need the targets of training rows, which this model does not have, as "
                "an earlier release saved it; fit it again."
            )
        columns = [
            np.arange(features.start, features.stop)
            for features in column_slices(self.table_, self.n_features_in_)
        ]
        learner = self._checked_learner(self.kernel_.X, rows.target.task)
        search_learner = None
        has_learned = learner.name == self.kernel_.learner
        if has_learned and isinstance(learner, KernelSearchLearner):
            search_learner = learner
        return ImportanceProblem(
            kernel=self.kernel_,
            target=rows.target,
            positions=rows.positions,
            predictor=getattr(self, "predictor_", "krr"),
            C=getattr(self, "C_", self.kernel_.C),
            columns=columns,
            table=self.table_,
            trees=getattr(self, "boost_", None),
            share=getattr(self, "boost_share_", 0.0),
            learner=search_learner,
        )

    def set_params(self, **params: Any) -> Self:
        """Set the parameters of this estimator.

        Nested parameters such as ``learner__norm`` also work for learners and
        predictors given by name. Objects are copied, not modified.

        Parameters
        ----------
        **params : dict
            Estimator parameters.

        Returns
        -------
        self : object
        """
        for name, make in (
            ("learner", as_learner),
            ("predictor", as_predictor),
            ("family", _copy_family),
        ):
            self._resolve_nested(params, name, make)
        valid_names = self.get_params(deep=False)
        for name in params:
            if name.partition("__")[0] not in valid_names:
                raise ValueError(no_parameter(type(self).__name__, name, valid_names))
        super().set_params(**params)
        return self

    def _resolve_nested(
        self, params: dict[str, Any], name: str, make: Callable[..., Any]
    ) -> None:
        """Replace nested parameters, such as ``learner__norm``, by an object."""
        prefix = f"{name}__"
        nested = {
            key.removeprefix(prefix): value
            for key, value in params.items()
            if key.startswith(prefix)
        }
        outer = params.get(name, getattr(self, name, None))
        if not nested or outer is None:
            return
        for key in nested:
            del params[prefix + key]
        params[name] = make(outer, **nested)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = bool(self._sparse_formats())
        tags.target_tags.required = True
        return tags

    def _validate_training(
        self, X: Any, y: Any, sample_weight: Any = None, **checks: Any
    ) -> tuple[Rows, np.ndarray]:
        """Return rows and targets; set the attributes of features."""
        table = None
        names: Sequence[str] = ()
        if is_table(X):
            columns = read_columns(X)
            names = list(columns)
            table, X = self._encode_training_table(columns, sample_weight)
        elif self.columns is not None:
            raise ValueError(
                f"columns says what columns of a table are, got rows as {type(X).__name__}; give a DataFrame, or leave "
                "it out."
            )
        formats = self._sparse_formats()
        if sparse.issparse(X) and not formats:
            raise TypeError(self._sentence_on_sparse_rows())
        try:
            X, y = validate_data(
                self,
                X,
                y,
                accept_sparse=formats,
                dtype=np.float64,
                ensure_min_samples=2,
                **checks,
            )
        except ValueError as error:
            missing = "Pass a DataFrame, whose missing values are imputed, or impute them first"
            raise error_of_rows(X, error, missing) from None
        set_table(self, table, names)
        return X, y

    def _encode_training_table(
        self, columns: Mapping[str, Column], sample_weight: Any
    ) -> tuple[TableEncoding, Rows]:
        n_rows = max((len(column.values) for column in columns.values()), default=0)
        weights = as_sample_weight(sample_weight, n_rows, zero=True)
        learned_from = columns
        if weights is not None and not weights.all() and weights.any():
            is_weighted = weights > 0
            learned_from = {
                name: column.take(is_weighted) for name, column in columns.items()
            }
        report = EncodingReport()
        has_only_numbers = self.columns is None and all(
            column.kind == "number" and not column.gaps.any()
            for column in columns.values()
        )
        column_types: ColumnTypes | None = self.columns
        if has_only_numbers and self.family is not None:
            # Columns that would be left out keep their places in the base kernels.
            column_types = cast(ColumnTypes, dict.fromkeys(columns, "number"))
        table = TableEncoding.of(
            learned_from,
            column_types,
            scale="none" if has_only_numbers else "standard",
        )
        features = table.encode(columns, report)
        warn_of_cells([*table.sentences(), *report.sentences()])
        return table, features

    def _sparse_formats(self) -> str | Literal[False]:
        takes_sparse = getattr(self.family, "takes_sparse", True)
        if isinstance(self.learner, Learner) or (
            isinstance(self.learner, str) and self.learner in LEARNERS
        ):
            takes_sparse = as_learner(self.learner).takes_sparse(self.family)
        if takes_sparse:
            return "csr"
        return False

    def _sentence_on_sparse_rows(self) -> str:
        if not getattr(self.family, "takes_sparse", True):
            return f"{type(self.family).__name__} needs dense rows, got sparse ones. Use X.toarray()."
        name = as_learner(self.learner).name
        return f"learner={name!r} needs dense rows, got sparse ones. Use X.toarray(), or learner='alignf'."

    def _draw_seed(self) -> int:
        """Return `random_state`, or an integer drawn from it."""
        state = check_random_state(self.random_state)
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(state.randint(2**31 - 1))

    def _learn(
        self,
        X: Rows,
        target: Target,
        C: float,
        seed: int,
        sample_weight: np.ndarray | None = None,
    ) -> LearnedKernel:
        """Return the learned kernel; set `sampling_` and `learner_reason_`."""
        learner = self._checked_learner(X, target.task)
        centering = Centering.of(self.centering)
        self.learner_reason_ = learner_reason(
            self.learner, self.family, X, learner.name
        )
        family = copy(self.family)  # learners may modify it
        if family is None and learner.takes_family:
            family = default_family(X)
        learner.check(family, sample_weight, centering)
        m = X.shape[0]
        n_kernel_rows = kernel_rows(
            self.sample, learner, self.family, m, sample_weight is not None
        )
        self.sampling_ = FitSampling.of(learner, self.family, m, n_kernel_rows)
        options: dict[str, Any] = {
            "C": C,
            "normalize": self.normalize,
            "centering": centering,
        }
        if n_kernel_rows == m:
            return learn_from_rows(learner, family, X, target, sample_weight, **options)
        if isinstance(learner, KernelSearchLearner):
            return learner.learn_from_rows(
                X, target, [C], target.sample(n_kernel_rows, seed)
            )[0]
        assert family is not None
        family.check_rows(X)
        keep_origin = not learner.centered or not centering.subtracts
        statistics = sample_statistics(
            family,
            X,
            target.Y,
            sample=n_kernel_rows,
            seed=seed,
            keep_origin=keep_origin,
        )
        return learn_from_statistics(
            learner, family, X, statistics, target=target, **options
        )

    def _checked_learner(self, X: Rows, task: Task) -> Learner:
        learner = as_learner(
            self.learner
            if self.learner != "auto"
            else default_learner(self.family, X)[0]
        )
        if self.table_ is not None:
            learner = learner.for_features(self.table_.features)
        suitable = sorted(
            name
            for name, cls in LEARNERS.items()
            if cls.learns_kernel and task in cls.tasks
        )
        if not learner.learns_kernel:
            raise ValueError(
                f"learner={learner.name!r} combines predictors and learns no kernel, so it is only available in "
                f"comparisons. Use one of {', '.join(suitable)}."
            )
        if task not in learner.tasks:
            raise ValueError(
                f"{learner.name} does not serve {task}; use one of {', '.join(suitable)}."
            )
        require_normalization(self.normalize)
        return learner

    def _parameters(self) -> dict[str, Any]:
        """Return the parameters, with third-party learners by name."""
        parameters: dict[str, Any] = self.get_params(deep=False)
        learner = self.learner
        if isinstance(learner, Learner) and type(learner) not in LEARNERS.values():
            parameters["learner"] = learner.name
        return parameters

    def _fitted(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in self._saved if hasattr(self, name)
        }

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        unknown = fitted.keys() - set(self._saved)
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no fitted attributes {', '.join(sorted(unknown))}"
            )
        self.__dict__.update(fitted)
        self._set_kernel(self.kernel_)

    def _require_sound(self) -> None:
        check_is_fitted(self)
        self.kernel_._require_sound()
        n_features = self.kernel_.X.shape[1]
        n_inputs = n_features
        n_columns = n_features
        if self.table_ is not None:
            n_inputs = len(self.feature_names_in_)
            n_columns = len(self.table_.names)
            require_shape(
                "features of table_", np.empty(len(self.table_.features)), (n_features,)
            )
            if not set(self.table_.names) <= set(self.feature_names_in_):
                raise ValueError("feature_names_in_ must have the columns of table_.")
        names = getattr(self, "feature_names_in_", np.empty(n_inputs))
        require_shape("feature_names_in_", names, (n_inputs,))
        if self.n_features_in_ != n_inputs:
            raise ValueError(
                f"n_features_in_ must be {n_inputs}, got {self.n_features_in_}."
            )
        rows = getattr(self, "_importance_rows", None)
        if rows is not None:
            rows.require_sound(self.kernel_.X.shape[0])
        stored = getattr(self, "_stored_importance", None)
        if stored is not None:
            stored.require_sound(n_columns)

    def _keep_importance_rows(self, rows: np.ndarray, target: Target) -> None:
        """Keep targets of the kernel's rows; `target` belongs to `rows`."""
        self._importance_rows = ImportanceRows.of(self.kernel_, rows, target)
        self._stored_importance = None

    def _set_kernel(self, kernel: LearnedKernel) -> None:
        self.__dict__.pop("_importance", None)
        self.kernel_ = kernel
        self.weights_ = kernel.weights
        self.family_ = kernel.family
        self.alignment_ = float(kernel.alignment)

    def _scores(self, features: Rows) -> np.ndarray:
        return self._scores_of(self._linear, features)

    @within_n_jobs
    def _scores_of(self, linear: LinearScores, features: Rows) -> np.ndarray:
        """Return linear scores of new rows, (n, q)."""
        dtype = np.dtype(require_precision(getattr(self, "precision", "float64")))
        strip = chunk_rows_for(self.kernel_.X.shape[0])
        with at_most_threads(4):  # each thread has a tile in memory
            return linear.of(features, dtype, strip)

    def _positions_of_columns(self) -> list[int]:
        all_names = list(self.feature_names_in_)
        return [all_names.index(name) for name in self._columns]

    def _validate_new(self, X: Any) -> Rows:
        """Return the checked features of new rows."""
        check_is_fitted(self)
        if self.table_ is not None:
            report = EncodingReport()
            if self.table_.of_numbers and not is_table(X):
                X = validate_data(
                    self,
                    X,
                    dtype=np.float64,
                    ensure_all_finite="allow-nan",
                    reset=False,
                )
                X = X[:, self._positions_of_columns()]
            features = self.table_.encode(X, report)
            warn_of_cells(report.sentences())
            return features
        formats = "csr" if self.kernel_.family.takes_sparse else False
        dtypes = (np.float64, np.float32)  # float32 is converted by strips
        try:
            return validate_data(
                self, X, accept_sparse=formats, dtype=dtypes, reset=False
            )
        except ValueError as error:
            missing = "Impute them, or fit the model on a DataFrame, whose missing values are imputed"
            raise error_of_rows(X, error, missing) from None


def _copy_family(family: KernelFamily, **params: Any) -> KernelFamily:
    return copy(family).set_params(**params)


def error_of_rows(X: Any, error: ValueError, missing: str) -> ValueError:
    """Return a clearer error for NaN, infinity or text in X."""
    if str(error).startswith("Input X contains"):
        return ValueError(sentence_on_values(X, missing))
    text = first_text(X)
    if text is None:
        return error
    return ValueError(
        f"X holds text, such as {text!r:.60}, and an array must hold numbers. Pass a DataFrame, whose columns of text "
        "become categories."
    )


def sentence_on_values(X: Any, missing: str) -> str:
    """Return a sentence on the rows and columns with NaN or infinity."""
    values = check_array(
        X, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False
    )
    cells = sparse.coo_array(values)
    is_missing = np.isnan(cells.data)
    is_invalid = is_missing if is_missing.any() else np.isinf(cells.data)
    n_rows = len(np.unique(cells.coords[0][is_invalid]))
    positions = np.unique(cells.coords[1][is_invalid]).tolist()
    columns = ", ".join(map(str, positions[:NAMED]))
    if len(positions) > NAMED:
        columns += ", ..."
    if hasattr(X, "columns"):
        columns = listed([X.columns[position] for position in positions])
    noun = "column" if len(positions) == 1 else "columns"
    where = f"{n_rows} of {values.shape[0]} rows ({noun} {columns})"
    if is_missing.any():
        return f"Input X contains NaN in {where}. {missing}."
    return f"Input X contains infinity in {where}. Replace these values."


def first_text(X: Any) -> str | None:
    if sparse.issparse(X) or np.asarray(X).dtype.kind not in "OUS":
        return None
    for value in np.asarray(X, dtype=object).flat:
        try:
            float(value)
        except ValueError:
            return str(value)
        except TypeError:
            continue
    return None


def set_table(
    estimator: KernelLearner, table: TableEncoding | None, names: Sequence[str] = ()
) -> None:
    """Set the encoding, and the names of all columns."""
    estimator.table_ = table
    if table is not None:
        all_names = names or table.names
        estimator.feature_names_in_ = np.array(all_names, dtype=object)
        estimator.n_features_in_ = len(all_names)


def require_precision(precision: Any) -> Precision:
    require_one_of("precision", precision, get_args(Precision))
    return cast(Precision, precision)


def warn_of_cells(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        warn_caller(f"{sentence}.")


def chunk_rows_for(m: int) -> int:
    """Return the number of new rows to predict at once, for m training rows.

    Multiples of this number keep predictions bit-for-bit identical.
    """
    return int(
        np.clip(
            1 << (max(CHUNK_BYTES // (8 * m), 1).bit_length() - 1), 1, MOST_CHUNK_ROWS
        )
    )


def default_family(X: Rows) -> GaussianFamily:
    r"""Return Gaussian base kernels with seven bandwidths around the median distance.

    .. math:: \gamma \in \{ 2^{e - 3}, \dots, 2^{e + 3} \}, \qquad
              e = \operatorname{round} \log_2 \bigl( 1 / \operatorname{median} \lVert x - x' \rVert^2 \bigr)

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (m, d)
        Rows, standardized if units differ.

    Returns
    -------
    family : GaussianFamily
        Gaussian kernels, determined by the set of distinct rows.

    Raises
    ------
    ValueError
        All rows are equal, X is not finite, or distances are out of range.

    Notes
    -----
    The median is over all pairs of at most 1,024 distinct rows, drawn with a fixed
    seed.

    Examples
    --------
    >>> import numpy as np
    >>> from learnkernels.kernels.estimators import default_family
    >>> default_family(np.random.default_rng(0).normal(size=(200, 8)))
    GaussianFamily([2**-7, 2**-6, 2**-5, 2**-4, 2**-3, 2**-2, 0.5])
    """
    n_octaves = 3
    X = as_rows(X)
    median = _median_squared_distance(X)
    limits = np.finfo(np.float64)
    exponent = limits.maxexp
    if 0 < median < np.inf:
        exponent = round(-np.log2(median))
    if not limits.minexp + 2 * n_octaves < exponent < limits.maxexp - 2 * n_octaves:
        raise ValueError(
            f"X must have rows at distances whose squares are ordinary numbers, got a median of {median:g}; scale the "
            "features, or give a family."
        )
    return GaussianFamily(
        [2.0 ** (exponent + step) for step in range(-n_octaves, n_octaves + 1)]
    )


def _median_squared_distance(X: Rows) -> float:
    m = X.shape[0]
    if m > MOST_SORTED:
        X = X[_rows_with_distinct_sums(X)]
    first, _ = distinct_rows(X)
    if len(first) < 2:
        raise ValueError(
            f"X must hold at least two different rows to choose bandwidths by, got {m} equal ones; give "
            "features that vary, or a family."
        )
    if len(first) > BANDWIDTH_ROWS:
        first = first[
            np.sort(
                np.random.default_rng(0).choice(
                    len(first), BANDWIDTH_ROWS, replace=False
                )
            )
        ]
    with np.errstate(over="ignore", invalid="ignore"):
        D = squared_distances(X[first], X[first])[np.triu_indices(len(first), 1)]
    D = D[D > 0]
    if not len(D):
        return 0.0
    return float(np.median(D))


def _rows_with_distinct_sums(X: Rows) -> np.ndarray:
    d = X.shape[1]
    _, first = np.unique(
        X @ (np.random.default_rng(0).random(d) / d), return_index=True
    )
    if len(first) > MOST_SORTED:
        first = first[
            np.random.default_rng(0).choice(len(first), MOST_SORTED, replace=False)
        ]
    return first


def default_learner(family: KernelFamily | None, X: Rows) -> tuple[str, str]:
    """Return the learner that "auto" selects, and the reason."""
    if family is not None:
        return "alignf", "base kernels are given, and alignf weighs them"
    if sparse.issparse(X):
        return (
            "alignf",
            "rows are sparse, and gradients, from which rfm learns metrics, are dense",
        )
    return (
        "rfm",
        "no base kernels are given, and rfm finds them in metrics that it learns",
    )


def learner_reason(
    learner: str | Learner, family: KernelFamily | None, X: Rows, learned_by: str
) -> str:
    """Return the reason for an automatic choice of the learner, or ""."""
    default, reason = default_learner(family, X)
    if learner == "auto" and default == learned_by:
        return reason
    return ""
