"""A regressor on a kernel that it learns from the same data."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from learnkernels.kernels.centering import as_sample_weight
from learnkernels.kernels.engine.threads import blas_threads_for
from learnkernels.kernels.estimators.base import Precision, within_n_jobs
from learnkernels.kernels.estimators.defaults import default_family
from learnkernels.kernels.estimators.regularisation import given
from learnkernels.kernels.estimators.supervised import SupervisedLearner, require_precision, without_zero_weights
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.families.base import Rows, drawn_rows
from learnkernels.kernels.learners import Learner
from learnkernels.kernels.learning import learn_kernel
from learnkernels.kernels.predictors import KernelOnRows, Predictor
from learnkernels.kernels.statistics.base import Normalisation
from learnkernels.kernels.tables.encoding import Said
from learnkernels.kernels.targets import Target, Task

MOST_RESIDUALS = 999
"""Residuals that are kept, of more those at even steps of rank: intervals are then right to a thousandth."""

FEW_ROWS = 100
"""Rows of the kernel of a constant target."""


class KernelLearningRegressor(RegressorMixin, SupervisedLearner):  # type: ignore[misc]
    """Kernel ridge regression on a kernel that is learned from the training rows.

    Parameters
    ----------
    family : KernelFamily or None, default None
        Base kernels; None for a learner that finds its own (`rfm`, `ca`, `cr`), and for others Gaussians of seven
        bandwidths around one over the median squared distance (`default_family`).
    learner : str or Learner, default "auto"
        How base kernels are combined. "auto" is `rfm`, which finds them in metrics that it learns and needs no scaled
        features, or alignf where `family` is given or rows are sparse. Or a name, see `learnkernels learners`, or a
        learner with its parameters, such as ``LpKRR(norm=1.5)`` of `learnkernels.kernels.learners`, which a search
        reaches as ``learner__norm``; "ensemble" learns no kernel and is not accepted.
    alpha : float or "auto", default "auto"
        The ridge, for a kernel of mean diagonal one; positive. One over the Lambda of comparisons. "auto" takes the one
        of the least squared leave-one-out residuals, in closed form, of at most 1,500 rows. A one-stage learner uses it
        for its weights, too; "auto" is then what suits its base kernels with equal weights.
    predictor : str or Predictor, default "auto"
        How the ridge regression is solved: "krr" by a factorisation, "krr-cg" by conjugate gradients, "nystrom" on
        landmarks, a few of the training rows; or one with its options, such as ``Nystrom(landmarks=2000)`` of
        `learnkernels.kernels.predictors`. "auto" is the first up to 5,000 rows, and for more what suits
        them and the memory.
    columns : mapping of str to str or sequence of str, or None, default None
        What columns of a table are, where it cannot be inferred: "number", "categorical", "date", "drop"; "code" for a
        category of which only a code becomes a feature; or the levels of an ordered category from the lowest to the
        highest. For tables alone.
    normalise : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before the learner sees them; kernels that `ca` and `cr` find are never
        scaled.
    centering : {"center", "target", "none"}, default "center"
        Whether base kernels are taken less the mean feature of the training rows, or as they are; with "none" there is
        no intercept, and a `ConstantFamily` among the base kernels takes its place, with "target" it is the mean of the
        targets. For learners of a predictor's own objective, such as l2-krr, nkrr and l1-svm, and for unif.
    sample : "auto", "all", int or None, default None
        Training rows, drawn at random, that the kernel is learned from: so many, or 8,192 of "auto" (5,000 for a
        learner that finds its own base kernels), or all of them. None takes
        all rows up to 20,000; beyond, it acts as "auto" and warns. The predictor is fitted on all training rows.
    intervals : bool, default True
        Whether to fit what `predict_interval` needs: of krr in closed form, of krr-cg by half of its steps more, of
        nystrom by five more fits, or by one for more than 10,000 rows.
    precision : {"float64", "float32"}, default "float64"
        Of the kernel's values where new rows are predicted, at once or after `set_params`; fits are of float64. Scores
        of float32 differ by some 1e-6 of the largest, by more where a large C or a small alpha makes coefficients that
        cancel, and take about half the time.
    time_limit : float or None, default None
        Seconds that `fit` may take, about: it fits samples of more and more of the rows while the next one is expected
        to end in time, keeps the last and warns. A fit in progress is not stopped; the first has 500 rows.
    verbose : bool, default False
        Whether to print what is fitted, and the seconds.
    random_state : int, RandomState or None, default 0
        Draws samples and, for a predictor that is given by its name, landmarks.
    n_jobs : int or None, default None
        Largest number of threads; -1 and None for all cores that this process may use, or its share of them within
        joblib's workers.

    Attributes
    ----------
    learner_ : str
        What `auto` stood for.
    learner_reason_ : str
        Why it did; empty where the learner was named.
    kernel_ : LearnedKernel
        The kernel.
    weights_ : ndarray of shape (p,)
        Its weights, one a base kernel.
    alignment_ : float
        Its centered alignment with the target on the training rows.
    family_ : KernelFamily
        The base kernels.
    predictor_ : {"krr", "krr-cg", "nystrom"}
        What `auto` stood for.
    predictor_reason_ : str
        Why it did; empty where the predictor was named.
    regularisation_ : float
        Lambda, one over the ridge that was given or chosen.
    landmarks_ : ndarray of int of shape (M,)
        Positions of the landmarks among the training rows that have a weight; of nystrom alone. `kernel_` is then the
        learned kernel over these M rows, in place of all m.
    dual_coef_ : ndarray of shape (m, q)
        ``kernel_.cross_gram(X) @ dual_coef_ + intercept_`` are the predictions, one column an output. Rows are those of
        ``kernel_.X``.
    intercept_ : ndarray of shape (q,)
        Their constant part: the mean of the training targets, but for landmarks, around which the kernel is centered.
    residuals_ : ndarray of shape (n, q)
        Absolute residuals of rows that the predictor had not seen, ascending for each output, with ``intervals=True``;
        of more than 999 those at even steps of rank.
    table_ : TableEncoding or None
        What the columns of a table were taken for, with the features that they became; None for rows of numbers.
    relevance_ : dict of str to float
        How much each column, or feature, counts, as shares of one, the largest first; of learned metrics alone.
    n_samples_fit_ : int
        Number of rows that the predictor was fitted on: all with a weight, or as many as `time_limit` allowed.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, where the training rows had names.

    Notes
    -----
    O(m^2 (d + p^2)) time for the weights of a two-stage learner, then O(m^2) memory and O(m^3) time for krr. krr-cg
    takes some tens of passes over pairs of rows and O(m) memory; nystrom O(m M) time a pass, or O(m M^2) in all, and
    O(M^2) memory. New rows take O(m) or O(M) time each, and memory beside the predictions that does not depend on their
    number.

    A sample weight of w counts a row as w copies of it, for the kernel, its centering and the ridge; two-stage learners
    and rfm alone know weights. Several outputs share one kernel, and weigh on it by their size: scale them to one unit.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828.

    Examples
    --------
    >>> import numpy as np
    >>> from learnkernels import KernelLearningRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(200, 2))
    >>> y = np.sin(X[:, 0]) + 0.1 * X[:, 1] ** 2
    >>> model = KernelLearningRegressor().fit(X[:150], y[:150])
    >>> model.score(X[150:], y[150:]) > 0.99
    True
    """

    _vector: bool

    def __init__(
        self,
        family: KernelFamily | None = None,
        learner: str | Learner = "auto",
        alpha: float | Literal["auto"] = "auto",
        *,
        predictor: str | Predictor = "auto",
        columns: Said | None = None,
        normalise: Normalisation = "trace",
        centering: str = "center",
        sample: Literal["auto", "all"] | int | None = None,
        intervals: bool = True,
        precision: Precision = "float64",
        time_limit: float | None = None,
        verbose: bool = False,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.family = family
        self.learner = learner
        self.alpha = alpha
        self.predictor = predictor
        self.columns = columns
        self.normalise = normalise
        self.centering = centering
        self.sample = sample
        self.intervals = intervals
        self.precision = precision
        self.time_limit = time_limit
        self.verbose = verbose
        self.random_state = random_state
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @within_n_jobs
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the kernel, then the ridge regression.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (m, d)
            Training rows, finite; sparse where the base kernels allow it. A DataFrame of pandas or polars, or an Arrow
            table, may hold categories, dates and gaps: `TableEncoding` has the rules.
        y : array-like of shape (m,) or (m, q)
            Numbers.
        sample_weight : array-like of shape (m,), optional
            Not negative; a row of weight zero is left out.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            A parameter is out of its range, or the kernel cannot be learned from these rows.

        Warns
        -----
        UserWarning
            The target is constant, so that it is predicted and no kernel is learned; or cells or columns of a table are
            not used.
        """
        self._regularisation()
        X, y = self._validated(X, y, multi_output=True, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        weights = as_sample_weight(sample_weight, len(y), zero=True)
        X, y, weights = without_zero_weights(X, y, weights)
        require_precision(self.precision)
        self._checked_predictor("regression")
        if (y == y[0]).all():
            return self._fit_constant(X, y)
        return self._fit_in_time(X, y, weights)

    def _problem(self, y: np.ndarray) -> tuple[np.ndarray, Task, float | Literal["auto"]]:
        return y, "regression", self._regularisation()

    def _fit_constant(self, X: Rows, y: np.ndarray) -> Self:
        """Predict the one value of the target, with base kernels of equal weights over some rows."""
        warnings.warn("y is constant, so no kernel is learned and this value is predicted.", UserWarning, stacklevel=4)
        some = drawn_rows(X.shape[0], FEW_ROWS, self._seed)
        family = default_family(X[some]) if self.family is None else self.family
        kernel = learn_kernel("unif", family, X[some], np.arange(len(some)) * 1.0, task="regression")
        first = np.atleast_1d(y[0])
        self.predictor_, self.predictor_reason_, self.regularisation_ = "krr", "", 1.0
        self.take_coefficients(kernel, np.zeros((len(some), len(first))), first)
        self.residuals_ = np.zeros((min(len(y), MOST_RESIDUALS), len(first)))
        self._vector, self.n_samples_fit_ = y.ndim == 1, len(y)
        return self

    def _fit_predictor(self, on: KernelOnRows, y: np.ndarray) -> Self:
        value, target = self._regularisation(), Target.of(y, "regression")
        with blas_threads_for(len(target)):
            predictor, fitted = self._solve(on, target, value)
            if self.intervals:
                rows, scores = self._left_out(on, predictor, fitted, target)
                residuals = np.sort(np.abs(target.Y[rows] - scores), axis=0)
                if (n := len(residuals)) > MOST_RESIDUALS:
                    ranks = np.arange(1, MOST_RESIDUALS + 1) * (n + 1) / (MOST_RESIDUALS + 1)
                    residuals = residuals[np.ceil(ranks).astype(np.intp) - 1]
                self.residuals_ = residuals
            elif hasattr(self, "residuals_"):
                del self.residuals_
        self._vector = y.ndim == 1
        return self

    @property
    def _leaves_out(self) -> bool:
        return bool(self.intervals)

    def _regularisation(self) -> float | Literal["auto"]:
        """Return Lambda, one over the ridge."""
        alpha = given("alpha", self.alpha)
        return "auto" if alpha == "auto" else 1.0 / alpha

    def predict(self, X: Any) -> np.ndarray:
        """Return the prediction for each new row.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, d)
            New rows.

        Returns
        -------
        values : ndarray of shape (n,) or (n, q)
            In units of `y`.
        """
        scores = self._scores(X)
        return scores[:, 0] if self._vector else scores

    @available_if(lambda self: self.intervals)  # type: ignore[untyped-decorator]
    def predict_interval(self, X: Any, alpha: float = 0.1) -> np.ndarray:
        r"""Return an interval for each new row that holds its target with probability ``1 - alpha``.

        .. math:: f(x) \pm r_{(\lceil (n + 1)(1 - \alpha) \rceil)}

        with r the absolute residuals of n training rows, each of a predictor that has not seen the row.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n_new, d)
            New rows.
        alpha : float, default 0.1
            Share of new targets that may be outside; at least 1 / (n + 1).

        Returns
        -------
        bounds : ndarray of shape (n_new, 2) or (n_new, 2, q)
            Lower and upper bound, in units of `y`.

        Raises
        ------
        ValueError
            alpha is not between 0 and 1, or too small for the number of training rows.

        Notes
        -----
        Of one width for all rows: right on average over rows such as the training rows, and not for each part of them.
        The kernel has seen all rows. Sample weights do not count.

        References
        ----------
        Barber, Candes, Ramdas, Tibshirani (2021), Annals of Statistics 49:486-507, section 1.2, for the jackknife.
        """
        check_is_fitted(self, "residuals_")
        width, n = self.half_width(alpha), len(self.residuals_)
        if width is None:
            raise ValueError(
                f"alpha must be between {1 / (n + 1):.3g}, as {n:,} residuals are known, and 1, got {alpha!r}."
            )
        scores = self._scores(X)
        bounds = np.stack([scores - width, scores + width], axis=1)
        return bounds[:, :, 0] if self._vector else bounds

    def half_width(self, alpha: float) -> np.ndarray | None:
        """Return half of the width of `predict_interval`, shape (q,); None where no residual is so large."""
        residuals = getattr(self, "residuals_", np.empty((0, 1)))
        place = int(np.ceil((len(residuals) + 1) * (1.0 - alpha))) if 0 < alpha < 1 else len(residuals) + 1
        return np.asarray(residuals[place - 1]) if place <= len(residuals) else None
