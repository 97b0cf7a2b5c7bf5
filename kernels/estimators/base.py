"""Base of the estimators: rows and tables, the learned kernel, and a predictor that is linear in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from functools import wraps
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, TypeVar, cast, get_args

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ..centering import Centering
from ..column_encoding import EncodingReport, TableEncoding, is_table, shares_by_column
from ..column_encoding.encoding import ColumnTypes
from ..column_encoding.reading import read_columns
from ..engine.workers import at_most_threads
from ..families.base import KernelFamily, Rows, as_rows, distinct_rows, drawn_rows, squared_distances
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
from ..parameters import (
    NAMED,
    listed,
    no_parameter,
    require_one_of,
    require_shape,
    warn_caller,
)
from ..predictors import as_predictor
from ..statistics.gram import Normalization, require_normalization
from ..statistics.sampled import sample_statistics
from ..targets import Target, Task
from .sampling import BANDWIDTH_ROWS, FitSampling, kernel_rows

AUTO = "auto"
"""The learner that is chosen by what is given: `default_learner`."""

MOST_THREADS = 4
"""Runs of new rows taken at the same time; each has a tile of its own in memory."""

Precision = Literal["float64", "float32"]

READ_AS = (np.float64, np.float32)
"""Types of new rows that are taken as they are, and made float64 strip by strip."""


Method = TypeVar("Method", bound=Callable[..., Any])

CHUNK_BYTES = 1 << 26
"""Most bytes of a matrix between new rows and training rows."""

MOST_CHUNK_ROWS = 1 << 13
"""Most new rows taken at once."""

MOST_SORTED = 1 << 14
"""Most rows that are sorted to find distinct ones for the default bandwidths."""

OCTAVES = 3
"""Default bandwidths go this many powers of two below and above the middle one."""


def within_n_jobs(method: Method) -> Method:
    """Return a method of an estimator whose passes use no more threads than its `n_jobs`."""

    @wraps(method)
    def limited(self: KernelLearner, *args: Any, **kwargs: Any) -> Any:
        with at_most_threads(self.n_jobs):
            return method(self, *args, **kwargs)

    return cast(Method, limited)


@dataclass(eq=False, repr=False)
class KernelLearner(Savable, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: learns a kernel, and applies it to new rows.

    A subclass has the parameters `family`, `learner`, `columns`, `normalize`, `centering`, `sample`, `random_state` and
    `n_jobs`.
    """

    family: KernelFamily | None = None
    learner: str | Learner = AUTO
    _: KW_ONLY
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

    _saved: ClassVar[tuple[str, ...]] = (
        "kernel_",
        "learner_reason_",
        "sampling_",
        "n_features_in_",
        "feature_names_in_",
        "table_",
    )
    """Fitted attributes in files, from which the others follow."""

    @property
    def learner_(self) -> str:
        """Name of the learner."""
        return self.kernel_.learner

    @property
    def relevance_(self) -> dict[str, float]:
        """Relevance of each column or feature, as shares of one in descending order; for learned metrics only."""
        counts = self.kernel_.relevance
        if counts is None:
            raise AttributeError(
                f"relevance_ is only available for a learner that weights features, such as rfm; {self.learner_} "
                "weights base kernels."
            )
        if self.table_ is not None:
            names: Sequence[str] = self.table_.features
        else:
            names = getattr(self, "feature_names_in_", [str(j) for j in range(len(counts))])
        return dict(sorted(shares_by_column(names, counts).items(), key=lambda one: -one[1]))

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also ``learner__norm`` or ``predictor__landmarks`` where learner or predictor is a name.

        Objects that were given are not changed: a copy with other parameters takes their place.

        Parameters
        ----------
        **params
            As scikit-learn's estimators have them.

        Returns
        -------
        self : object
        """
        for name, make in (
            ("learner", as_learner),
            ("predictor", as_predictor),
            ("family", lambda family, **inner: copy(family).set_params(**inner)),
        ):
            inner = {key: params.pop(key) for key in list(params) if key.startswith(f"{name}__")}
            value = params.get(name, getattr(self, name, None))
            if inner and value is not None:
                params[name] = make(value, **{key.removeprefix(f"{name}__"): one for key, one in inner.items()})
            else:
                params |= inner
        known = self.get_params(deep=False)
        for name in params:
            if name.partition("__")[0] not in known:
                raise ValueError(no_parameter(type(self).__name__, name, known))
        super().set_params(**params)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = bool(self._sparse_formats())
        tags.target_tags.required = True
        return tags

    def _validated(self, X: Any, y: Any, **checks: Any) -> tuple[Rows, np.ndarray]:
        """Return training rows, or the features of a table, as float64, and their targets; keep what features are."""
        table = None
        if is_table(X):
            columns, report = read_columns(X), EncodingReport()
            as_array = self.columns is None and all(
                column.kind == "number" and not column.gaps.any() for column in columns.values()
            )
            # Rows of numbers keep their units, and base kernels that are given their columns: as those of an array.
            said = dict.fromkeys(columns, "number") if as_array and self.family is not None else self.columns
            table = TableEncoding.of(columns, cast(Any, said), "none" if as_array else "standard")
            X = table.encode(columns, report)
            warn_of_cells([*table.sentences(), *report.sentences()])
        elif self.columns is not None:
            raise ValueError(
                f"columns says what columns of a table are, got rows as {type(X).__name__}; give a DataFrame, or leave "
                "it out."
            )
        formats = self._sparse_formats()
        if sparse.issparse(X) and not formats:
            raise TypeError(self._sentence_on_sparse_rows())
        try:
            X, y = validate_data(self, X, y, accept_sparse=formats, dtype=np.float64, ensure_min_samples=2, **checks)
        except ValueError as error:
            missing = "Pass a DataFrame, whose missing values are imputed, or impute them first"
            raise error_of_rows(X, error, missing) from None
        set_table(self, table)
        return X, y

    def _sparse_formats(self) -> str | Literal[False]:
        """Return the formats of sparse rows that are taken; nothing is imported for a learner's name."""
        known = isinstance(self.learner, Learner) or (isinstance(self.learner, str) and self.learner in LEARNERS)
        if known:
            return "csr" if as_learner(self.learner).takes_sparse(self.family) else False
        # A learner that is chosen is one that takes these rows.
        return "csr" if getattr(self.family, "takes_sparse", True) else False

    def _sentence_on_sparse_rows(self) -> str:
        if not getattr(self.family, "takes_sparse", True):
            return f"{type(self.family).__name__} needs dense rows, got sparse ones. Use X.toarray()."
        name = as_learner(self.learner).name
        return f"learner={name!r} needs dense rows, got sparse ones. Use X.toarray(), or learner='alignf'."

    def _draw_seed(self) -> int:
        """Return the seed of everything that one fit draws: `random_state`, or one number drawn from it."""
        state = check_random_state(self.random_state)
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(state.randint(2**31 - 1))

    def _learn(
        self, X: Rows, target: Target, C: float, seed: int, sample_weight: np.ndarray | None = None
    ) -> LearnedKernel:
        """Return the kernel learned from rows or a sample of them, and keep the numbers of rows."""
        learner = self._checked_learner(X, target.task)
        centering = Centering.of(self.centering)
        self.learner_reason_ = learner_reason(self.learner, self.family, X, learner.name)
        family = copy(self.family)  # which a search may change
        if family is None and learner.takes_family:
            family = default_family(X)
        learner.check(family, sample_weight, centering)
        m = X.shape[0]
        n_kernel_rows = kernel_rows(self.sample, learner, self.family, m, sample_weight is not None)
        self.sampling_ = FitSampling.of(learner, self.family, m, n_kernel_rows)
        options: dict[str, Any] = {"C": C, "normalize": self.normalize, "centering": centering}
        if n_kernel_rows == m:
            return learn_from_rows(learner, family, X, target, sample_weight, **options)
        if isinstance(learner, KernelSearchLearner):
            return learner.learn_from_rows(X, target, [C], drawn_rows(m, n_kernel_rows, seed))[0]
        assert family is not None  # checked
        family.check_rows(X)
        keep_origin = not learner.centered or not centering.subtracts
        statistics = sample_statistics(family, X, target.Y, sample=n_kernel_rows, seed=seed, keep_origin=keep_origin)
        return learn_from_statistics(learner, family, X, statistics, target=target, **options)

    def _checked_learner(self, X: Rows, task: Task) -> Learner:
        """Return the learner; ValueError for one that is unknown, learns no kernel, or does not support these rows."""
        learner = as_learner(default_learner(self.family, X)[0] if self.learner == AUTO else self.learner)
        if self.table_ is not None:
            learner = learner.for_features(self.table_.features)
        fitting = sorted(name for name, one in LEARNERS.items() if one.learns_kernel and task in one.tasks)
        if not learner.learns_kernel:
            raise ValueError(
                f"learner={learner.name!r} combines predictors and learns no kernel, so it is only available in "
                f"comparisons. Use one of {', '.join(fitting)}."
            )
        if task not in learner.tasks:
            raise ValueError(f"{learner.name} does not serve {task}; use one of {', '.join(fitting)}.")
        require_normalization(self.normalize)
        return learner

    def _parameters(self) -> dict[str, Any]:
        """Return the parameters for a file, which knows a learner of another package by its name alone."""
        parameters: dict[str, Any] = self.get_params(deep=False)
        learner = self.learner
        if isinstance(learner, Learner) and type(learner) not in LEARNERS.values():
            parameters["learner"] = learner.name
        return parameters

    def _fitted(self) -> dict[str, Any]:
        """Return the fitted attributes for a file."""
        return {name: getattr(self, name) for name in self._saved if hasattr(self, name)}

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        """Take the fitted attributes from a file."""
        unknown = fitted.keys() - set(self._saved)
        if unknown:
            raise ValueError(f"{type(self).__name__} has no fitted attributes {', '.join(sorted(unknown))}")
        self.__dict__.update(fitted)
        self._take_kernel(self.kernel_)

    def _require_sound(self) -> None:
        check_is_fitted(self)
        self.kernel_._require_sound()
        n_features = self.kernel_.X.shape[1]
        n_inputs = n_features
        if self.table_ is not None:
            n_inputs = len(self.table_.names)
            require_shape("features of table_", np.empty(len(self.table_.features)), (n_features,))
        names = getattr(self, "feature_names_in_", np.empty(n_inputs))
        require_shape("feature_names_in_", names, (n_inputs,))
        if self.n_features_in_ != n_inputs:
            raise ValueError(f"n_features_in_ must be {n_inputs}, got {self.n_features_in_}.")

    def _take_kernel(self, kernel: LearnedKernel) -> None:
        """Keep a learned kernel and what is shown of it."""
        self.kernel_, self.weights_, self.family_ = kernel, kernel.weights, kernel.family
        self.alignment_ = float(kernel.alignment)

    @within_n_jobs
    def _scores(self, X: Any) -> np.ndarray:
        """Return what is linear in the kernel between new rows and training rows, shape (n, q)."""
        check_is_fitted(self)
        dtype = np.dtype(require_precision(getattr(self, "precision", "float64")))
        strip = chunk_rows_for(self.kernel_.X.shape[0])
        with at_most_threads(MOST_THREADS):
            return self._linear.of(self._read_new(X), dtype, strip)

    def _read_new(self, X: Any) -> Rows:
        """Return new rows, checked, or the features of those of a table."""
        if self.table_ is not None:
            report = EncodingReport()
            if not is_table(X) and self.table_.of_numbers:
                X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
            features = self.table_.encode(X, report)
            warn_of_cells(report.sentences())
            return features
        formats = "csr" if self.kernel_.family.takes_sparse else False
        try:
            return validate_data(self, X, accept_sparse=formats, dtype=READ_AS, reset=False)
        except ValueError as error:
            missing = "Impute them, or fit the model on a DataFrame, whose missing values are imputed"
            raise error_of_rows(X, error, missing) from None


def error_of_rows(X: Any, error: ValueError, missing: str) -> ValueError:
    """Return an error that says which rows cannot be used; the given one if it is about something else.

    Parameters
    ----------
    X : array-like or sparse matrix
        Rows that scikit-learn refused.
    error : ValueError
        The reason that it gave.
    missing : str
        What to do about missing values.
    """
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
    """Return the sentence about NaN or infinity in rows: in how many of them, and in which columns."""
    values = check_array(X, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
    cells = sparse.coo_array(values)
    is_missing = np.isnan(cells.data)
    is_wrong = is_missing if is_missing.any() else np.isinf(cells.data)
    n_rows = len(np.unique(cells.coords[0][is_wrong]))
    positions = np.unique(cells.coords[1][is_wrong]).tolist()
    if hasattr(X, "columns"):
        columns = listed([X.columns[position] for position in positions])
    else:
        columns = ", ".join(map(str, positions[:NAMED])) + (", ..." if len(positions) > NAMED else "")
    where = f"{n_rows} of {values.shape[0]} rows ({'column' if len(positions) == 1 else 'columns'} {columns})"
    if is_missing.any():
        return f"Input X contains NaN in {where}. {missing}."
    return f"Input X contains infinity in {where}. Replace these values."


def first_text(X: Any) -> str | None:
    """Return the first text in rows that is no number; None where there is none."""
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


def set_table(estimator: KernelLearner, table: TableEncoding | None) -> None:
    """Have an estimator read new rows as a table, whose columns became its features; None for rows of numbers."""
    estimator.table_ = table
    if table is not None:
        estimator.feature_names_in_ = np.array(table.names, dtype=object)
        estimator.n_features_in_ = len(table.names)


def require_precision(precision: Any) -> Precision:
    """Return the precision of predictions; ValueError for one that is none."""
    require_one_of("precision", precision, get_args(Precision))
    return cast(Precision, precision)


def warn_of_cells(sentences: Sequence[str]) -> None:
    """Warn of columns that are left out, and of cells that are not what their column holds."""
    for sentence in sentences:
        warn_caller(f"{sentence}.")


def chunk_rows_for(m: int) -> int:
    """Return how many new rows are predicted at once by an estimator of m training rows.

    Parameters
    ----------
    m : int
        Number of training rows.

    Returns
    -------
    rows : int
        A power of two that depends on m alone. The matrix between so many new rows and the training rows takes at most
        `CHUNK_BYTES`.

    Notes
    -----
    The bits of a product depend on its shape. Chunks start at the first row, so rows that are given in batches of a
    multiple of this number are predicted with the bits of all rows at once.
    """
    return int(np.clip(1 << (max(CHUNK_BYTES // (8 * m), 1).bit_length() - 1), 1, MOST_CHUNK_ROWS))


def default_family(X: Rows) -> GaussianFamily:
    r"""Return Gaussian base kernels of seven bandwidths around one over the median squared distance of rows.

    .. math:: \gamma \in \{ 2^{e - 3}, \dots, 2^{e + 3} \}, \qquad
              e = \operatorname{round} \log_2 \bigl( 1 / \operatorname{median} \lVert x - x' \rVert^2 \bigr)

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (m, d)
        Rows; features that are not in one unit are best scaled before. Not modified.

    Returns
    -------
    family : GaussianFamily
        A grid of powers of two, which costs one exponential per pair of rows. It depends on the set of distinct rows:
        not on their order, and not on how often one is repeated.

    Raises
    ------
    ValueError
        All rows are equal, or so far apart or so near that no bandwidth suits them; X is not finite.

    Notes
    -----
    The median is that of all pairs among at most `BANDWIDTH_ROWS` distinct rows, drawn with a fixed seed. Of more than
    `MOST_SORTED` distinct rows that many are drawn beforehand, in the order of one random sum of the features of each.
    O(m d + m log m), of sparse rows as many flops as there are values.

    Examples
    --------
    >>> import numpy as np
    >>> from learnkernels.kernels.estimators import default_family
    >>> default_family(np.random.default_rng(0).normal(size=(200, 8)))
    GaussianFamily([2**-7, 2**-6, 2**-5, 2**-4, 2**-3, 2**-2, 0.5])
    """
    X = as_rows(X)
    m = X.shape[0]
    if m > MOST_SORTED:  # each distinct row at least once, or so many of more, whatever their order and repetitions
        d = X.shape[1]
        _, first = np.unique(X @ (np.random.default_rng(0).random(d) / d), return_index=True)
        if len(first) > MOST_SORTED:
            first = first[np.random.default_rng(0).choice(len(first), MOST_SORTED, replace=False)]
        X = X[first]
    first, _ = distinct_rows(X)
    if len(first) < 2:
        raise ValueError(
            f"X must hold at least two different rows to choose bandwidths by, got {m} equal ones; give "
            "features that vary, or a family."
        )
    if len(first) > BANDWIDTH_ROWS:
        first = first[np.sort(np.random.default_rng(0).choice(len(first), BANDWIDTH_ROWS, replace=False))]
    with np.errstate(over="ignore", invalid="ignore"):
        D = squared_distances(X[first], X[first])[np.triu_indices(len(first), 1)]
    D = D[D > 0]
    median = float(np.median(D)) if len(D) else 0.0
    lowest, highest = np.finfo(np.float64).minexp + 2 * OCTAVES, np.finfo(np.float64).maxexp - 2 * OCTAVES
    exponent = round(-np.log2(median)) if 0 < median < np.inf else highest + 1
    if not lowest < exponent < highest:
        raise ValueError(
            f"X must have rows at distances whose squares are ordinary numbers, got a median of {median:g}; scale the "
            "features, or give a family."
        )
    return GaussianFamily([2.0 ** (exponent + step) for step in range(-OCTAVES, OCTAVES + 1)])


def default_learner(family: KernelFamily | None, X: Rows) -> tuple[str, str]:
    """Return the name of the learner that suits what is given, and why it is that one.

    Parameters
    ----------
    family : KernelFamily or None
        Base kernels, if they are given.
    X : ndarray or CSR matrix of shape (m, d)
        Training rows. Not modified.

    Returns
    -------
    learner : str
        alignf, which weighs base kernels, or rfm, which finds them.
    why : str
    """
    if family is not None:
        return "alignf", "base kernels are given, and alignf weighs them"
    if sparse.issparse(X):
        return "alignf", "rows are sparse, and gradients, from which rfm learns metrics, are dense"
    return "rfm", "no base kernels are given, and rfm finds them in metrics that it learns"


def learner_reason(learner: str | Learner, family: KernelFamily | None, X: Rows, learned_by: str) -> str:
    """Return why a kernel was learned by that learner where the choice was automatic; nothing where it was named."""
    default, why = default_learner(family, X)
    return why if learner == AUTO and default == learned_by else ""
