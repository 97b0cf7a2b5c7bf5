"""A classifier on a kernel that it learns from the same data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from learnkernels.kernels.centering import as_sample_weight
from learnkernels.kernels.engine.threads import blas_threads_for
from learnkernels.kernels.estimators.base import Precision, within_n_jobs
from learnkernels.kernels.estimators.regularisation import given, is_squared
from learnkernels.kernels.estimators.supervised import SupervisedLearner, require_precision, without_zero_weights
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import Learner
from learnkernels.kernels.predictors import PREDICTORS, Fitted, KernelOnRows, Predictor
from learnkernels.kernels.predictors.calibration import class_scores, fit_calibration, probabilities
from learnkernels.kernels.statistics.base import Normalisation
from learnkernels.kernels.tables.encoding import Said
from learnkernels.kernels.targets import Target, Task


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
        How much errors count against the size of the hypothesis, for a kernel of mean diagonal one; positive. Called
        Lambda in configurations. "auto" takes the one with the fewest errors in five folds of one Gram matrix, or, for
        ridge regression, the least log loss of calibrated leave-one-out scores, of at most 1,500 rows. A one-stage
        learner uses it for its weights, too; "auto" is then what suits its base kernels with equal weights.
    predictor : str or Predictor, default "auto"
        "krr" or "krr-cg", kernel ridge regression by a factorisation or by conjugate gradients; "svm", a support vector
        machine; "nystrom", a linear classifier on landmarks, a few of the training rows; or one with its options,
        such as ``Nystrom(landmarks=2000)`` of `learnkernels.kernels.predictors`. "auto" is the predictor whose problem
        the learner solves, krr after rfm up to 5,000 rows, or else a support vector machine up to 20,000 rows, of which
        the matrix fits the memory, and for more krr-cg or what suits the memory.
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
    class_weight : dict, "balanced" or None, default None
        What rows of each class count, times their sample weights: by label, or inversely to how frequent the class is.
    probability : bool, default True
        Whether to fit probabilities: of krr in closed form, of krr-cg by half of its steps more, by five more fits of
        other predictors, or by one for more than 10,000 rows. The intercept of a ridge regression of two classes then
        moves to where both are as probable.
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
    classes_ : ndarray of shape (n_classes,)
        Labels, ascending.
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
    predictor_ : {"svm", "krr", "krr-cg", "nystrom"}
        What `auto` stood for.
    predictor_reason_ : str
        Why it did; empty where the predictor was named.
    regularisation_ : float
        The C that was given or chosen.
    landmarks_ : ndarray of int of shape (M,)
        Positions of the landmarks among the training rows that have a weight; of nystrom alone. `kernel_` is then the
        learned kernel over these M rows, in place of all m.
    dual_coef_ : ndarray of shape (m, q)
        ``kernel_.cross_gram(X) @ dual_coef_ + intercept_`` are the scores: for two classes one, above zero for the
        second; for more, one a class, or one a pair of classes i < j, above zero for j (svm). Rows are those of
        ``kernel_.X``.
    intercept_ : ndarray of shape (q,)
        Their constant part.
    calibration_ : ndarray of shape (2,)
        Slope and offset of the sigmoid, with ``probability=True``; of more than two classes all share it.
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
    O(m^2 (d + p^2)) time for the weights of a two-stage learner, then O(m^2) memory and O(m^2) to O(m^3) time for an
    exact predictor. krr-cg takes some tens of passes over pairs of rows and O(m) memory; nystrom O(m M) time a pass, or
    O(m M^2) in all, and O(M^2) memory, with O(m M) for losses other than the squared one. New rows take O(s) time
    each, where s are the rows with a coefficient: support vectors, landmarks, or all; and memory beside the scores that
    depends neither on their number nor on s.

    A sample weight of w counts a row as w copies of it, for the kernel, its centering and the predictor; two-stage
    learners and rfm alone know weights.

    Probabilities are those of Platt's sigmoid, fitted on scores of rows that the predictor did not see; several classes
    share one, so that the most probable of them is the one that `predict` says. Class weights do not count there: a
    probability is the share of rows as they come. The kernel has seen these rows, and where it was fitted closely to
    the classes the probabilities are too sure of themselves: `sklearn.calibration.CalibratedClassifierCV` learns the
    kernel anew a fold instead, and takes five times as long. The only row of a class is scored by a predictor that has
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

    classes_: np.ndarray
    calibration_: np.ndarray

    def __init__(
        self,
        family: KernelFamily | None = None,
        learner: str | Learner = "auto",
        C: float | Literal["auto"] = "auto",
        *,
        predictor: str | Predictor = "auto",
        columns: Said | None = None,
        normalise: Normalisation = "trace",
        centering: str = "center",
        sample: Literal["auto", "all"] | int | None = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        probability: bool = True,
        precision: Precision = "float64",
        time_limit: float | None = None,
        verbose: bool = False,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.family = family
        self.learner = learner
        self.C = C
        self.predictor = predictor
        self.columns = columns
        self.normalise = normalise
        self.centering = centering
        self.sample = sample
        self.class_weight = class_weight
        self.probability = probability
        self.precision = precision
        self.time_limit = time_limit
        self.verbose = verbose
        self.random_state = random_state
        self.n_jobs = n_jobs

    @within_n_jobs
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the kernel, then the predictor.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (m, d)
            Training rows, finite; sparse where the base kernels allow it. A DataFrame of pandas or polars, or an Arrow
            table, may hold categories, dates and gaps: `TableEncoding` has the rules.
        y : array-like of shape (m,)
            Labels: text, integers or booleans, at least two different ones.
        sample_weight : array-like of shape (m,), optional
            Not negative; a row of weight zero is left out.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            A parameter is out of its range, there is one class, or the kernel cannot be learned from these rows.
        """
        given("C", self.C)
        X, y = self._validated(X, y)
        check_classification_targets(y)
        X, y, weights = without_zero_weights(X, y, as_sample_weight(sample_weight, len(y), zero=True))
        if self.class_weight is not None:
            of_classes = compute_sample_weight(self.class_weight, y) * (1.0 if weights is None else weights)
            X, y, weights = without_zero_weights(X, y, as_sample_weight(of_classes, len(y), zero=True))
        require_classes(np.unique(y))
        require_precision(self.precision)
        self._checked_predictor("classification")
        return self._fit_in_time(X, y, weights)

    def _problem(self, y: np.ndarray) -> tuple[np.ndarray, Task, float | Literal["auto"]]:
        return np.unique(y, return_inverse=True)[1], "classification", given("C", self.C)

    def _fit_predictor(self, on: KernelOnRows, y: np.ndarray) -> Self:
        C = given("C", self.C)
        y = column_or_1d(y)
        classes, codes = np.unique(y, return_inverse=True)
        require_classes(classes)
        target = Target("classification", codes, tuple(str(label) for label in classes))
        with blas_threads_for(len(target)):
            predictor, fitted = self._solve(on, target, C)
            self.classes_ = classes
            if self.probability:
                self.calibration_ = self._calibrated(on, predictor, fitted, target)
            elif hasattr(self, "calibration_"):
                del self.calibration_
        return self

    @property
    def _leaves_out(self) -> bool:
        return bool(self.probability)

    def _calibrated(self, on: KernelOnRows, predictor: Predictor, fitted: Fitted, target: Target) -> np.ndarray:
        """Return slope and offset fitted on the scores of rows that the predictor did not see.

        The intercept of a squared loss moves to where two classes are as probable, by weights that count class weights.
        """
        rows, linear = self._left_out(on, predictor, fitted, target)
        scores = class_scores(linear, len(self.classes_), PREDICTORS[self.predictor_].one_vs_one)
        weights, codes = None if on.sample_weight is None else on.sample_weight[rows], target.values[rows]
        calibration = weighted = fit_calibration(scores, codes, weights)
        if self.class_weight is not None and weights is not None:
            weights = weights / compute_sample_weight(self.class_weight, self.classes_[target.values])[rows]
            calibration = fit_calibration(scores, codes, weights)
        if len(self.classes_) == 2 and is_squared(predictor) and min(calibration[0], weighted[0]) > 0:
            shift = weighted[1] / weighted[0]
            self.take_coefficients(self.kernel_, self.dual_coef_, self.intercept_ + shift)
            calibration = calibration - [0.0, calibration[0] * shift]
        return calibration

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

    @available_if(lambda self: self.probability)  # type: ignore[untyped-decorator]
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


def require_classes(classes: np.ndarray) -> None:
    """Raise ValueError if there are fewer than two classes."""
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got 1 class: {classes.tolist()}.")
