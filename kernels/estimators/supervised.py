"""A classifier and a regressor on a kernel that they learn from the same data."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..engine.workers import Workers, blas_threads_for
from ..families.base import Rows, drawn_rows
from ..learned_kernel import LearnedKernel, LinearScores
from ..learners import as_learner, learn_kernel
from ..parameters import explain_unknown_arguments, positive, require_numbers, require_one_of, warn_caller
from ..predictors import PREDICTORS, Predictor, TrainingSet, as_predictor
from ..predictors.calibration import (
    class_scores,
    fit_calibration,
    interval_half_width,
    probabilities,
)
from ..predictors.choice import MOST_ROWS, PredictionProblem, best_C, given
from ..solvers.conjugate_gradients import Progress
from ..targets import Target, Task
from ..weights import as_sample_weight, counting_rows, near_one, of_mean_one, relative_weights
from .base import (
    KernelLearner,
    Precision,
    default_family,
    learner_reason,
    require_precision,
    within_n_jobs,
)
from .sampling import FitSampling

WORK_OF_HELD_OUT = 0.5
"""Work of conjugate gradients that begin without some rows, in units of that of all at once, in addition to it."""

STEPS = 10
"""Steps of an iteration between two lines of `verbose`."""

FIRST_ROWS = 500
"""Rows of the first fit under a time limit."""

WORTH = 1.5
"""How many times as many rows make a further fit worth its time."""

MOST_RESIDUALS = 999
"""Residuals that are kept, of more those at even steps of rank: intervals are then right to a thousandth."""

FEW_ROWS = 100
"""Rows of the kernel of a constant target."""


@dataclass(eq=False, repr=False)
class SupervisedLearner(KernelLearner):
    """Base of classifier and regressor: a predictor that is linear in the learned kernel of new rows and training rows.

    A subclass has the parameters `predictor`, `precision`, `time_limit` and `verbose` as well. Its `fit` checks what it
    is given and calls `_fit`.
    """

    _: KW_ONLY
    predictor: str | Predictor = "auto"
    precision: Precision = "float64"
    time_limit: float | None = None
    verbose: bool = False

    predictor_: str = field(init=False)
    predictor_reason_: str = field(init=False)
    C_: float = field(init=False)
    n_samples_fit_: int = field(init=False)

    _saved = (
        *KernelLearner._saved,
        *("predictor_", "predictor_reason_", "C_", "n_samples_fit_", "dual_coef_", "intercept_"),
    )

    @property
    def dual_coef_(self) -> np.ndarray:
        """What the kernel between new rows and those of ``kernel_.X`` is multiplied by, shape (m, q)."""
        return self._linear.dual

    @property
    def intercept_(self) -> np.ndarray:
        """What is added, shape (q,)."""
        return self._linear.intercept

    @property
    def landmarks_(self) -> np.ndarray:
        """Positions of the landmarks among the training rows that have a weight, shape (M,), where there are some."""
        if not PREDICTORS[getattr(self, "predictor_", "auto")].on_landmarks:
            raise AttributeError("landmarks_ is only available after a fit with predictor='nystrom'.")
        return self.kernel_.rows

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        attributes = dict(fitted)
        scores = LinearScores(attributes["kernel_"], attributes.pop("dual_coef_"), attributes.pop("intercept_"))
        super()._restore(attributes)
        self._linear = scores

    @property
    @abstractmethod
    def _n_scores(self) -> int:
        """Number of scores of a row."""

    def _require_sound(self) -> None:
        super()._require_sound()
        require_one_of("predictor_", self.predictor_, PREDICTORS)
        require_numbers("dual_coef_", self.dual_coef_, (self.kernel_.X.shape[0], self._n_scores))
        require_numbers("intercept_", self.intercept_, (self._n_scores,))

    def _check_options(self, task: Task) -> None:
        """Raise ValueError for a precision or a predictor that is none, before any work."""
        require_precision(self.precision)
        as_predictor(self.predictor).check(task)

    @property
    @abstractmethod
    def _holds_out(self) -> bool:
        """Whether scores of rows that the predictor has not seen are requested."""

    @abstractmethod
    def _C(self) -> float | Literal["auto"]:
        """Return C as it is given, C or one over the ridge."""

    @abstractmethod
    def _encoded(self, y: np.ndarray) -> Target:
        """Return the target, and keep what turns scores into predictions of its kind."""

    @abstractmethod
    def _take_held_out(
        self, training: TrainingSet, target: Target, predictor: Predictor, rows: np.ndarray, scores: np.ndarray
    ) -> None:
        """Keep what follows from scores of rows that the predictor has not seen."""

    def _fit(self, X: Rows, y: np.ndarray, weights: np.ndarray | None, seed: int) -> Self:
        """Fit on all rows, or with a `time_limit` on growing samples of them while the next fit is expected to end.

        The seconds of a fit are taken to grow with the square of its rows, which is more than most do.
        """
        m, n, started = len(y), len(y), time.perf_counter()
        if self.time_limit is not None:
            limit, n = positive("time_limit", self.time_limit), min(m, FIRST_ROWS)
            order = nested_samples(self._encoded(y), seed)
        while n < m:
            rows, begun = np.sort(order[:n]), time.perf_counter()
            self._fit_rows(X[rows], y[rows], None if weights is None else weights[rows], m, seed)
            ended = time.perf_counter()
            following = min(m, int(n * np.sqrt(max(0.0, started + limit - ended) / (ended - begun))))
            if following < min(WORTH * n, m):
                kernel = replace(self.kernel_, rows=rows[self.kernel_.rows])
                set_coefficients(self, kernel, self.dual_coef_, self.intercept_)
                warn_caller(
                    f"time_limit={self.time_limit:g}: fitted on a sample of {n:,} of {m:,} rows; allow more seconds."
                )
                return self
            n = following
        return self._fit_rows(X, y, weights, m, seed)

    def _fit_rows(self, X: Rows, y: np.ndarray, weights: np.ndarray | None, n_all: int, seed: int) -> Self:
        """Learn the kernel, then the predictor, on all or some of the rows."""
        log = FitLog(type(self).__name__, self.verbose)
        log.write(f"{len(y):,} of {n_all:,} rows")
        target = self._encoded(y)
        C = self._C()
        if C == "auto":
            C = self._best_C_of_equal_weights(X, target, seed)
        kernel = self._learn(X, target, C, seed, weights)
        log.write(f"{kernel.learner} learned a kernel of {kernel.family.n_kernels} base kernels")
        self.n_samples_fit_ = len(y)
        progress = log.write_step if self.verbose else None
        self._fit_predictor(TrainingSet.of(kernel, X, np.arange(len(y)), None, progress), y, seed)
        log.write(f"{self.predictor_} is fitted; {self.sampling_}")
        return self

    def _best_C_of_equal_weights(self, X: Rows, target: Target, seed: int) -> float:
        """Return the C that a one-stage learner learns with, which suits equal weights; 1 for other learners."""
        predictor = self._checked_learner(X, target.task).predictor
        if predictor is None:
            return 1.0
        rows = drawn_rows(len(target), MOST_ROWS, seed)
        family = default_family(X[rows]) if self.family is None else self.family
        kernel = learn_kernel(
            "unif",
            family,
            X[rows],
            target.values[rows],
            task=target.task,
            normalize=self.normalize,
            centering=self.centering,
        )
        training = TrainingSet.of(kernel, None, np.arange(len(rows)))
        return best_C(training, target.take(rows), as_predictor(predictor), seed)

    def _fit_predictor(self, training: TrainingSet, y: np.ndarray, seed: int) -> Self:
        """Choose and fit the predictor on a learned kernel, and its C where that is left to the data."""
        target = self._encoded(y)
        kernel = training.kernel
        C = self._C()
        if C == "auto":
            self.sampling_ = replace(self.sampling_, C=min(len(y), MOST_ROWS))
            if kernel.C is not None:
                C = kernel.C
        if kernel.C is not None and not np.isclose(kernel.C, C, rtol=1e-9, atol=0):
            raise ValueError(
                f"the kernel was learned with C = {kernel.C:g}, and the estimator has {C:g} (C, "
                "or 1 / alpha); give it that of the kernel."
            )
        predictor = as_predictor(self.predictor)
        if getattr(predictor, "seed", 0) is None:
            predictor = as_predictor(predictor, seed=seed)
        learner = as_learner(kernel.learner)
        fits = 1.0 + WORK_OF_HELD_OUT * self._holds_out
        choice = predictor.choose(PredictionProblem.of(training, target, 1, learner.predictor, fits, learner.suited))
        predictor = choice.predictor
        self.predictor_ = predictor.name
        self.predictor_reason_ = choice.reason
        with blas_threads_for(len(target)):
            if C == "auto":
                with blas_threads_for(min(len(target), MOST_ROWS)):
                    C = best_C(training, target, predictor, seed)
            self.C_ = float(C)
            path = predictor.fit(training, target, [self.C_], fine=True)
            assert path.kernel is not None
            set_coefficients(self, path.kernel, *path.coefficients())
            for name in ("calibration_", "residuals_"):
                self.__dict__.pop(name, None)
            if self._holds_out:
                assert path.held_out is not None
                self._take_held_out(training, target, predictor, *path.held_out())
        return self


class FitLog:
    """The lines that `verbose` prints during one fit."""

    def __init__(self, estimator: str, is_printed: bool) -> None:
        self.estimator = estimator
        self.is_printed = is_printed
        self.started = time.perf_counter()

    def write(self, text: str) -> None:
        """Print a line with the seconds since the start, if lines are requested."""
        if self.is_printed:
            print(f"{self.estimator}, {time.perf_counter() - self.started:.1f} s: {text}", flush=True)  # noqa: T201

    def write_step(self, step: int, residual: float) -> None:
        """Print a line on some of the steps of an iteration."""
        if step % STEPS == 0:
            self.write(f"{step} steps to a relative residual of {residual:.1e}")


def _has_probabilities(estimator: KernelLearningClassifier) -> bool:
    if not estimator.probability:
        raise AttributeError("predict_proba is only available with probability=True, before fit.")
    return True


def _has_intervals(estimator: KernelLearningRegressor) -> bool:
    if not estimator.intervals:
        raise AttributeError("predict_interval is only available with intervals=True, before fit.")
    return True


@explain_unknown_arguments
@dataclass(eq=False, repr=False)
class KernelLearningClassifier(ClassifierMixin, SupervisedLearner):  # type: ignore[misc]
    """Classifier on a kernel that is learned from the training rows.

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
    C : float or "auto", default "auto"
        Inverse regularization strength, as in `sklearn.svm.SVC`, for a kernel of mean diagonal one; positive. "auto"
        minimizes the five-fold cross-validation error, smoothed along the grid, or, for ridge regression, the log
        loss of calibrated leave-one-out scores, on at most 1,500 rows. A one-stage learner also uses it to learn the
        weights; "auto" is then the value that suits equal weights.
    columns : mapping of str to str or sequence of str, or None, default None
        What columns of a table are, where it cannot be inferred: "number", "categorical", "date", "drop"; "code" for a
        category of which only a code becomes a feature; or the levels of an ordered category from the lowest to the
        highest. For tables alone.
    normalize : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before the learner sees them; kernels that `ca` and `cr` find are never
        scaled.
    centering : {"center", "target", "none"}, default "center"
        Whether base kernels are taken less the mean feature of the training rows, or as they are; with "none" there is
        no intercept, and a `ConstantFamily` among the base kernels takes its place, with "target" it is the mean of the
        targets. For learners of a predictor's own objective, such as l2-krr, nkrr and l1-svm, and for unif and align.
    sample : "auto", "all", int or None, default None
        Training rows, drawn at random, that the kernel is learned from: so many, or 8,192 of "auto" (5,000 for a
        learner that finds its own base kernels), or all of them. None takes all rows up to 20,000; beyond, it acts as
        "auto" and warns; rfm takes 5,000 of more rows. The predictor is fitted on all training rows. See `sampling_`.
    random_state : int, RandomState or None, default 0
        Draws samples and, for a predictor that is given by its name, landmarks.
    n_jobs : int or None, default None
        Largest number of threads; -1 and None for all cores that this process may use, or its share of them within
        joblib's workers.
    predictor : str or Predictor, default "auto"
        "krr" or "krr-cg", kernel ridge regression by a factorization or by conjugate gradients; "svm", a support vector
        machine; "nystrom", a linear classifier on landmarks, a few of the training rows; or one with its options,
        such as ``Nystrom(landmarks=2000)`` of `learnkernels.kernels.predictors`. "auto" is the predictor whose problem
        the learner solves, krr after rfm up to 5,000 rows, or else a support vector machine up to 20,000 rows, of which
        the matrix fits the memory, and for more krr-cg or what suits the memory.
    precision : {"float64", "float32"}, default "float64"
        Of the kernel's values where new rows are predicted, at once or after `set_params`; fits are of float64. Scores
        of float32 differ by about 1e-6 of the largest, by more where a large C or a small alpha makes coefficients that
        cancel, and take about half the time.
    time_limit : float or None, default None
        Seconds that `fit` may take, about: it fits samples of more and more of the rows while the next one is expected
        to end in time, keeps the last and warns. A fit in progress is not stopped; the first has 500 rows.
    verbose : bool, default False
        Whether to print what is fitted, and the seconds.
    class_weight : dict, "balanced" or None, default None
        What rows of each class count, times their sample weights: by label, or inversely to how frequent the class is.
        Only ratios count.
    probability : bool, default True
        Whether to fit probabilities: of krr in closed form, of krr-cg by half of its steps more, by five more fits of
        other predictors, or by one for more than 10,000 rows. The intercept of a ridge regression of two classes then
        moves to where both are as probable.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, ascending.
    learner_ : str
        What `auto` stood for.
    learner_reason_ : str
        Why it did; empty where the learner was named.
    kernel_ : LearnedKernel
        The kernel.
    weights_ : ndarray of shape (p,)
        Its weights, one per base kernel.
    alignment_ : float
        Its centered alignment with the target on the training rows.
    family_ : KernelFamily
        The base kernels.
    predictor_ : {"svm", "krr", "krr-cg", "nystrom"}
        What `auto` stood for.
    predictor_reason_ : str
        Why it did; empty where the predictor was named.
    C_ : float
        The C that was given or chosen.
    landmarks_ : ndarray of int of shape (M,)
        Positions of the landmarks among the training rows that have a weight; of nystrom alone. `kernel_` is then the
        learned kernel over these M rows, in place of all m.
    dual_coef_ : ndarray of shape (m, q)
        ``kernel_.cross_gram(X) @ dual_coef_ + intercept_`` are the scores: for two classes one, above zero for the
        second; for more, one a class, or one per pair of classes i < j, above zero for j (svm). Rows are those of
        ``kernel_.X``.
    intercept_ : ndarray of shape (q,)
        Their constant part.
    calibration_ : ndarray of shape (2,)
        Slope and offset of the sigmoid, with ``probability=True``; of more than two classes all share it.
    table_ : TableEncoding or None
        Inferred column types of a table, with the features that they became; None for rows of numbers.
    relevance_ : dict of str to float
        How much each column, or feature, counts, as shares of one, the largest first; of learned metrics alone.
    sampling_ : FitSampling
        Numbers of training rows that each step of the fit used; ``print(model.sampling_)`` shows them in one line.
    n_samples_fit_ : int
        Number of rows that the predictor was fitted on: all with a weight, or as many as `time_limit` allowed.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, where the training rows had names.

    Notes
    -----
    O(m^2 (d + p^2)) time for the weights of a two-stage learner, then O(m^2) memory and O(m^2) to O(m^3)
    time for an exact predictor. krr-cg takes some tens of passes over pairs of rows and O(m) memory; nystrom O(m M)
    time a pass, or O(m M^2) in all, and O(M^2) memory, with O(m M) for losses other than the squared one. New rows take
    O(s) time each, where s are the rows with a coefficient: support vectors, landmarks, or all; and memory, without
    that of the scores, that depends neither on their number nor on s.

    Only ratios of sample weights count: each is divided by the mean over the rows of positive weight, after it is
    multiplied by that of its class. A row then counts as so many copies of it, for the kernel, its centering and the
    predictor, so that the total weight is the number of rows. The fit is that of w copies of each row with C divided by
    the mean of w, but for probabilities, whose prior counts rows. Rows of at most 2.2e-16 of the total weight are left
    out, with a warning. Two-stage learners and rfm alone know weights.

    Probabilities are those of Platt's sigmoid, fitted on scores of rows that the predictor did not see; several classes
    share one, so that the most probable of them is the one that `predict` says. Class weights do not count there: a
    probability is the share of rows without weights. The kernel has seen these rows, and where it was fitted closely to
    the classes the probabilities are too sure of themselves: `sklearn.calibration.CalibratedClassifierCV` learns the
    kernel per fold instead, and takes five times as long. The only row of a class is scored by a predictor that has
    seen it.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828. Platt (1999), Advances in Large Margin Classifiers.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from learnkernels import GaussianFamily, KernelLearningClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> print(f"{cross_val_score(KernelLearningClassifier(), X, y).mean():.2f}")
    0.97
    >>> model = KernelLearningClassifier(GaussianFamily([0.01, 0.1, 1.0])).fit(X, y)
    >>> model.learner_, model.weights_.round(2)
    ('alignf', array([0.  , 0.57, 0.82]))
    """

    C: float | Literal["auto"] = "auto"
    _: KW_ONLY
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    probability: bool = True

    classes_: np.ndarray = field(init=False)

    _saved = (*SupervisedLearner._saved, "classes_", "calibration_")

    @property
    def _n_scores(self) -> int:
        n = len(self.classes_)
        if n == 2:
            return 1
        return n * (n - 1) // 2 if PREDICTORS[self.predictor_].one_vs_one else n

    def _require_sound(self) -> None:
        super()._require_sound()
        if len(set(self.classes_.tolist())) < max(2, len(self.classes_)):
            raise ValueError(f"classes_ must hold at least two different labels, got {self.classes_.tolist()!r:.60}.")
        require_numbers("calibration_", getattr(self, "calibration_", np.zeros(2)), (2,))

    calibration_: np.ndarray = field(init=False)

    @within_n_jobs
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the kernel, then the predictor.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (m, d)
            Training rows, finite; sparse where the base kernels allow it. A DataFrame of pandas or polars, or an Arrow
            table, may hold categories, dates and missing values: `TableEncoding` has the rules.
        y : array-like of shape (m,)
            Labels: text, integers or booleans, at least two different ones.
        sample_weight : array-like of shape (m,), optional
            Not negative. Only their ratios count; a row of weight zero is left out.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            A parameter is out of its range, there is one class, or the kernel cannot be learned from these rows.

        Warns
        -----
        UserWarning
            Weights are too small to count next to the others; or cells or columns of a table are not used.
        """
        given("C", self.C)
        seed = self._draw_seed()
        X, y = self._validated(X, y)
        check_classification_targets(y)
        X, y, weights = rows_that_count(X, y, sample_weight, self.class_weight)
        self._check_options(self._encoded(y).task)
        return self._fit(X, y, weights, seed)

    @property
    def _holds_out(self) -> bool:
        return bool(self.probability)

    def _C(self) -> float | Literal["auto"]:
        return given("C", self.C)

    def _encoded(self, y: np.ndarray) -> Target:
        classes, codes = np.unique(column_or_1d(y), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got 1 class: {classes.tolist()}.")
        self.classes_ = classes
        return Target("classification", codes, tuple(str(label) for label in classes))

    def _take_held_out(
        self, training: TrainingSet, target: Target, predictor: Predictor, rows: np.ndarray, scores: np.ndarray
    ) -> None:
        """Fit slope and offset of the sigmoid.

        The intercept of a squared loss moves to where two classes are as probable, by weights that count class weights.
        """
        scores = class_scores(scores, len(self.classes_), predictor.one_vs_one)
        weights, codes = training.sample_weight, target.values[rows]
        of_rows = None if weights is None else weights[rows]
        calibration = weighted = fit_calibration(scores, codes, of_rows)
        if self.class_weight is not None and weights is not None:
            weights = relative_weights(weights, 1.0 / near_one(self._weights_of_classes(target)))
            calibration = fit_calibration(scores, codes, weights[rows])
        if len(self.classes_) == 2 and predictor.loss == "squared" and min(calibration[0], weighted[0]) > 0:
            shift = weighted[1] / weighted[0]
            set_coefficients(self, self.kernel_, self.dual_coef_, self.intercept_ + shift)
            calibration = calibration - [0.0, calibration[0] * shift]
        self.calibration_ = calibration

    def _weights_of_classes(self, target: Target) -> np.ndarray:
        """Return the weight of the class of each training row; none of them has a class of weight zero."""
        class_weight, labels = self.class_weight, self.classes_[target.values]
        if isinstance(class_weight, Mapping):
            known = set(self.classes_.tolist())
            class_weight = {label: weight for label, weight in class_weight.items() if label in known}
        return np.asarray(compute_sample_weight(class_weight, labels))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of new rows.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, d)
            New rows.

        Returns
        -------
        scores : ndarray of shape (n,) or (n, n_classes)
            For two classes above zero for the second; for more, one a class, of which `predict` takes the largest: from
            kernel ridge regression the fitted indicators, from support vector machines the number of pairs that the
            class wins, plus less than a third for how clearly it does, from other losses the class against the rest, or
            logarithms of odds.
        """
        return class_scores(self._scores(X), len(self.classes_), PREDICTORS[self.predictor_].one_vs_one)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each new row.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, d)
            New rows.

        Returns
        -------
        labels : ndarray of shape (n,)
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, with ``probability=True``.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, d)
            New rows.

        Returns
        -------
        P : ndarray of shape (n, n_classes)
            Columns as `classes_`; rows of sum one.

        Notes
        -----
        The most probable class is what `predict` returns, but for two classes with class weights, or of a predictor
        with another loss than the squared one, whose sigmoid has an offset.
        """
        check_is_fitted(self, "calibration_")
        return probabilities(self.decision_function(X), self.calibration_)


@explain_unknown_arguments
@dataclass(eq=False, repr=False)
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
        The ridge, for a kernel of mean diagonal one; positive. One over the C of comparisons. "auto" takes the one
        of the least squared leave-one-out residuals, in closed form, of at most 1,500 rows. A one-stage learner uses it
        for its weights, too; "auto" is then what suits its base kernels with equal weights.
    columns : mapping of str to str or sequence of str, or None, default None
        What columns of a table are, where it cannot be inferred: "number", "categorical", "date", "drop"; "code" for a
        category of which only a code becomes a feature; or the levels of an ordered category from the lowest to the
        highest. For tables alone.
    normalize : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before the learner sees them; kernels that `ca` and `cr` find are never
        scaled.
    centering : {"center", "target", "none"}, default "center"
        Whether base kernels are taken less the mean feature of the training rows, or as they are; with "none" there is
        no intercept, and a `ConstantFamily` among the base kernels takes its place, with "target" it is the mean of the
        targets. For learners of a predictor's own objective, such as l2-krr, nkrr and l1-svm, and for unif and align.
    sample : "auto", "all", int or None, default None
        Training rows, drawn at random, that the kernel is learned from: so many, or 8,192 of "auto" (5,000 for a
        learner that finds its own base kernels), or all of them. None takes all rows up to 20,000; beyond, it acts as
        "auto" and warns; rfm takes 5,000 of more rows. The predictor is fitted on all training rows. See `sampling_`.
    random_state : int, RandomState or None, default 0
        Draws samples and, for a predictor that is given by its name, landmarks.
    n_jobs : int or None, default None
        Largest number of threads; -1 and None for all cores that this process may use, or its share of them within
        joblib's workers.
    predictor : str or Predictor, default "auto"
        How the ridge regression is solved: "krr" by a factorization, "krr-cg" by conjugate gradients, "nystrom" on
        landmarks, a few of the training rows; or one with its options, such as ``Nystrom(landmarks=2000)`` of
        `learnkernels.kernels.predictors`. "auto" is the first up to 5,000 rows, and for more what suits
        them and the memory.
    precision : {"float64", "float32"}, default "float64"
        Of the kernel's values where new rows are predicted, at once or after `set_params`; fits are of float64. Scores
        of float32 differ by about 1e-6 of the largest, by more where a large C or a small alpha makes coefficients that
        cancel, and take about half the time.
    time_limit : float or None, default None
        Seconds that `fit` may take, about: it fits samples of more and more of the rows while the next one is expected
        to end in time, keeps the last and warns. A fit in progress is not stopped; the first has 500 rows.
    verbose : bool, default False
        Whether to print what is fitted, and the seconds.
    intervals : bool, default True
        Whether to fit what `predict_interval` needs: of krr in closed form, of krr-cg by half of its steps more, of
        nystrom by five more fits, or by one for more than 10,000 rows.

    Attributes
    ----------
    learner_ : str
        What `auto` stood for.
    learner_reason_ : str
        Why it did; empty where the learner was named.
    kernel_ : LearnedKernel
        The kernel.
    weights_ : ndarray of shape (p,)
        Its weights, one per base kernel.
    alignment_ : float
        Its centered alignment with the target on the training rows.
    family_ : KernelFamily
        The base kernels.
    predictor_ : {"krr", "krr-cg", "nystrom"}
        What `auto` stood for.
    predictor_reason_ : str
        Why it did; empty where the predictor was named.
    C_ : float
        C, one over the ridge that was given or chosen.
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
        Inferred column types of a table, with the features that they became; None for rows of numbers.
    relevance_ : dict of str to float
        How much each column, or feature, counts, as shares of one, the largest first; of learned metrics alone.
    sampling_ : FitSampling
        Numbers of training rows that each step of the fit used; ``print(model.sampling_)`` shows them in one line.
    n_samples_fit_ : int
        Number of rows that the predictor was fitted on: all with a weight, or as many as `time_limit` allowed.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, where the training rows had names.

    Notes
    -----
    O(m^2 (d + p^2)) time for the weights of a two-stage learner, then O(m^2) memory and O(m^3) time for
    krr. krr-cg takes some tens of passes over pairs of rows and O(m) memory; nystrom O(m M) time a pass, or O(m M^2) in
    all, and O(M^2) memory. New rows take O(m) or O(M) time each, and memory, without that of the predictions, that does
    not depend on their number.

    Only ratios of sample weights count: each is divided by the mean over the rows of positive weight. A row then counts
    as so many copies of it, for the kernel, its centering and the ridge, so that the total weight is the number of
    rows. The fit is that of w copies of each row with alpha multiplied by the mean of w. Rows of at most 2.2e-16 of the
    total weight are left out, with a warning. Two-stage learners and rfm alone know weights. Several outputs share one
    kernel, and weigh on it by their size: scale them to one unit.

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

    alpha: float | Literal["auto"] = "auto"
    _: KW_ONLY
    intervals: bool = True

    _vector: bool = field(init=False)

    _saved = (*SupervisedLearner._saved, "_vector", "residuals_")

    @property
    def _n_scores(self) -> int:
        return 1 if self._vector else self.dual_coef_.shape[1]

    def _require_sound(self) -> None:
        super()._require_sound()
        residuals = getattr(self, "residuals_", np.zeros(1))
        require_numbers("residuals_", residuals, residuals.shape)

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
            table, may hold categories, dates and missing values: `TableEncoding` has the rules.
        y : array-like of shape (m,) or (m, q)
            Numbers.
        sample_weight : array-like of shape (m,), optional
            Not negative. Only their ratios count; a row of weight zero is left out.

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
            The target is constant, so that it is predicted and no kernel is learned; weights are too small to count
            next to the others; or cells or columns of a table are not used.
        """
        self._C()
        seed = self._draw_seed()
        X, y = self._validated(X, y, multi_output=True, y_numeric=True)
        X, y, weights = rows_that_count(X, np.asarray(y, dtype=np.float64), sample_weight)
        self._check_options("regression")
        if (y != y[0]).any():
            return self._fit(X, y, weights, seed)
        warn_caller("y is constant, so no kernel is learned and this value is predicted.")
        self.learner_reason_ = ""
        some = drawn_rows(X.shape[0], FEW_ROWS, seed)
        family = default_family(X[some]) if self.family is None else self.family
        kernel = learn_kernel("unif", family, X[some], np.arange(len(some)) * 1.0, task="regression")
        self.sampling_ = FitSampling(len(y), len(some))
        first = np.atleast_1d(y[0])
        self.predictor_, self.predictor_reason_, self.C_ = "krr", "", 1.0
        set_coefficients(self, kernel, np.zeros((len(some), len(first))), first)
        self.residuals_ = np.zeros((min(len(y), MOST_RESIDUALS), len(first)))
        self._vector, self.n_samples_fit_ = y.ndim == 1, len(y)
        return self

    @property
    def _holds_out(self) -> bool:
        return bool(self.intervals)

    def _C(self) -> float | Literal["auto"]:
        alpha = given("alpha", self.alpha)
        return "auto" if alpha == "auto" else 1.0 / alpha

    def _encoded(self, y: np.ndarray) -> Target:
        self._vector = y.ndim == 1
        return Target.of(y, "regression")

    def _take_held_out(
        self, training: TrainingSet, target: Target, predictor: Predictor, rows: np.ndarray, scores: np.ndarray
    ) -> None:
        residuals = np.sort(np.abs(target.Y[rows] - scores), axis=0)
        if (n := len(residuals)) > MOST_RESIDUALS:
            ranks = np.arange(1, MOST_RESIDUALS + 1) * (n + 1) / (MOST_RESIDUALS + 1)
            residuals = residuals[np.ceil(ranks).astype(np.intp) - 1]
        self.residuals_ = residuals

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

    @available_if(_has_intervals)  # type: ignore[untyped-decorator]
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
        width, n = interval_half_width(self.residuals_, alpha), len(self.residuals_)
        if width is None:
            raise ValueError(
                f"alpha must be between {1 / (n + 1):.3g}, as {n:,} residuals are known, and 1, got {alpha!r}."
            )
        scores = self._scores(X)
        bounds = np.stack([scores - width, scores + width], axis=1)
        return bounds[:, :, 0] if self._vector else bounds


def nested_samples(target: Target, seed: int) -> np.ndarray:
    """Return an order of the rows whose first n, for any n, are a random sample, with all classes in their shares."""
    m = len(target)
    codes = target.values if target.task == "classification" else np.zeros(m, dtype=np.intp)
    drawn = np.random.default_rng(seed).permutation(m)
    by_class, counts = drawn[np.argsort(codes[drawn], kind="stable")], np.bincount(codes)
    position, of_class = np.arange(m) - np.repeat(np.cumsum(counts) - counts, counts), np.repeat(counts, counts)
    return by_class[np.argsort(position / of_class, kind="stable")]


def rows_that_count(
    X: Rows, y: np.ndarray, sample_weight: Any, class_weight: Mapping[Any, float] | str | None = None
) -> tuple[Rows, np.ndarray, np.ndarray | None]:
    """Return the rows and targets that have a weight, and their weights of mean one; None where all are equal.

    Raises
    ------
    ValueError
        Weights are no numbers of at least zero, one a row, or fewer than two rows count.
    """
    factors: dict[str, np.ndarray] = {}
    weights = as_sample_weight(sample_weight, len(y), zero=True)
    if weights is not None:
        factors["sample_weight"] = weights
    if class_weight is not None:
        factors["class_weight"] = weights_of_classes(y, class_weight, weights)
    if not factors:
        return X, y, None
    rows, weights = counting_rows(*factors.values(), name=" times ".join(factors))
    if len(rows) < len(y):
        X, y = X[rows], y[rows]
    return X, y, weights


def weights_of_classes(
    y: np.ndarray, class_weight: Mapping[Any, float] | str, sample_weight: np.ndarray | None
) -> np.ndarray:
    """Return the weight of the class of each row; of "balanced" by the rows alone that have a positive weight."""
    if class_weight != "balanced" or sample_weight is None or not sample_weight.any():
        of_classes = compute_sample_weight(class_weight, y)
    else:
        counted = sample_weight > 0
        of_classes = np.zeros(len(y))
        of_classes[counted] = compute_sample_weight(class_weight, y[counted])
    return cast(np.ndarray, as_sample_weight(of_classes, len(y), zero=True, name="class_weight"))


# Functions on estimators ---------------------------------------------------------------------------------------------

Estimator = TypeVar("Estimator", bound=SupervisedLearner)


@within_n_jobs
def fit_on_kernel(
    estimator: Estimator,
    kernel: LearnedKernel,
    y: Any,
    X: Any = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> Estimator:
    """Fit the predictor of an estimator on a kernel that was learned before.

    Parameters
    ----------
    estimator : KernelLearningClassifier or KernelLearningRegressor
        Fitted in place.
    kernel : LearnedKernel
        Learned by the estimator's `learner`; the predictor has its sample weights, divided by their mean.
    y : array-like of shape (m,) or (m, q)
        Target of the training rows: those of `X`, or else of the kernel, in the order of ``kernel.X``.
    X : ndarray or CSR matrix of shape (m, d), optional
        The training rows, as they were given to what learned the kernel from all or some of them: ``kernel.rows``
        are positions in it. Finite; may be mapped from a file. Not modified.
    workers : Workers, optional
        Who does the passes over rows of a predictor that takes such; by default threads of this process.
    progress : callable, optional
        Told, by a predictor that iterates, its steps and the largest residual.

    Returns
    -------
    estimator : KernelLearningClassifier or KernelLearningRegressor
        The same object.

    Raises
    ------
    ValueError
        The kernel was learned for another regularization, `y` or `X` has another shape, or as `fit`.
    """
    y, d = np.asarray(y), kernel.X.shape[1]
    rows = kernel.rows if X is None else np.arange(X.shape[0])
    if len(y) != len(rows) or (X is not None and (X.shape[1:] != (d,) or len(rows) <= kernel.rows.max())):
        raise ValueError(
            f"X must have {d} features and more rows than {kernel.rows.max()}, the last that the kernel was "
            f"learned from, and y an entry for each of these {len(rows)}, got shapes {np.shape(X)} and {y.shape}; "
            "give all of them."
        )
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    estimator.n_features_in_ = d
    estimator.n_samples_fit_ = len(rows)
    estimator.table_ = None
    estimator.sampling_ = FitSampling(len(rows), len(kernel.rows))
    seed = estimator._draw_seed()
    estimator.learner_reason_ = learner_reason(estimator.learner, estimator.family, kernel.X, kernel.learner)
    if kernel.sample_weight is not None:
        kernel = replace(kernel, sample_weight=of_mean_one(kernel.sample_weight))
    return estimator._fit_predictor(TrainingSet.of(kernel, X, rows, workers, progress), y, seed)


def set_coefficients(
    estimator: SupervisedLearner, kernel: LearnedKernel, dual: np.ndarray, intercept: np.ndarray
) -> None:
    """Have an estimator predict by ``kernel.cross_gram(X) @ dual + intercept``."""
    estimator._take_kernel(kernel)
    estimator._linear = LinearScores(kernel, dual, intercept)


def keep_support(estimator: Estimator) -> Estimator:
    """Return an estimator whose kernel has only the training rows with a coefficient, such as support vectors.

    Parameters
    ----------
    estimator : KernelLearningClassifier or KernelLearningRegressor
        Fitted; not modified.

    Returns
    -------
    estimator : KernelLearningClassifier or KernelLearningRegressor
        Predicts the same but for rounding. The given object where all rows have a coefficient.
    """
    scores = estimator._linear.on_support()
    if scores is estimator._linear:
        return estimator
    smaller = copy(estimator)
    set_coefficients(smaller, scores.kernel, scores.dual, scores.intercept)
    return smaller
