"""A classifier and a regressor on a kernel that they learn from the same data."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from kernels.estimators.base import KernelLearner, checked_weights, positive
from kernels.estimators.calibration import assign_calibration_folds, fit_sigmoid, probabilities
from kernels.families import KernelFamily
from kernels.families.base import Rows
from kernels.learned import LearnedKernel
from kernels.learners import LEARNERS
from kernels.normalisation import Normalisation
from kernels.predictors import PREDICTORS, resolve_predictor
from kernels.protocol import usable_gram
from kernels.targets import Target
from kernels.threads import blas_threads_for


class SupervisedLearner(KernelLearner):
    """Base of both: a predictor on the learned kernel, linear in the kernel between new rows and training rows."""

    dual_coef_: np.ndarray
    intercept_: np.ndarray
    predictor_: str

    def fit_kernel(self, kernel: LearnedKernel, y: Any) -> Self:
        """Fit the predictor alone, on a kernel that was learned elsewhere.

        Parameters
        ----------
        kernel : LearnedKernel
            Learned by this estimator's `learner`; its sample weights are those of the predictor.
        y : array-like of shape (m,) or (m, q)
            Target of the kernel's training rows, in the order of ``kernel.X``.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            The kernel is of another learner or was learned for another regularisation, `y` has another length, or as
            `fit`.
        """
        y = np.asarray(y)
        if y.ndim not in (1, 2) or len(y) != kernel.X.shape[0]:
            raise ValueError(
                f"y must have one entry a training row of the kernel, {kernel.X.shape[0]}, got shape {y.shape}; take "
                "those of kernel.rows, in that order."
            )
        if kernel.learner != self.learner:
            raise ValueError(
                f"the kernel was learned by {kernel.learner}, and the estimator has learner={self.learner!r}; give it "
                "the learner of the kernel."
            )
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = int(kernel.X.shape[1])
        return self._fit_predictor(kernel, y)

    def _fit_predictor(self, kernel: LearnedKernel, y: np.ndarray) -> Self:
        raise NotImplementedError

    def _solve(self, kernel: LearnedKernel, target: Target, predictor: str, regularisation: float) -> np.ndarray:
        """Fit the predictor, and return the Gram matrix that it was fitted on."""
        if kernel.regularisation is not None and not np.isclose(
            kernel.regularisation, regularisation, rtol=1e-9, atol=0
        ):
            raise ValueError(
                f"the kernel was learned for a regularisation of {kernel.regularisation:g}, and the estimator has "
                f"{regularisation:g} (C, or 1 / alpha); give it that of the kernel."
            )
        self._take_kernel(kernel)
        K, new_rows = usable_gram(kernel)
        dual, intercept = fitted_coefficients(K, target, predictor, regularisation, kernel.sample_weight)
        self.dual_coef_ = new_rows @ dual if isinstance(new_rows, np.ndarray) else new_rows * dual
        self.intercept_, self.predictor_ = intercept, predictor
        return K

    def _scores(self, X: Any) -> np.ndarray:
        """Return ``cross_gram(X) @ dual_coef_ + intercept_``, shape (n, q), by chunks."""
        parts = [K_cross @ self.dual_coef_ + self.intercept_ for K_cross in self._cross_grams(X)]
        return np.concatenate(parts)


def fitted_coefficients(
    K: np.ndarray, target: Target, predictor: str, regularisation: float, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return dual and intercept of a predictor, fitted to all digits that are read."""
    row = PREDICTORS[predictor]
    weighted = {} if weights is None else {"sample_weight": weights}
    return row.fit(K, target, [regularisation], **weighted, **row.fine).coefficients()


class KernelLearningClassifier(ClassifierMixin, SupervisedLearner):  # type: ignore[misc]
    """Classifier on a kernel that is learned from the training rows.

    Parameters
    ----------
    family : KernelFamily or None, default None
        Base kernels; None for Gaussians of seven bandwidths around one over the median squared distance
        (`default_family`), and for a learner that finds its own (`ca`, `cr`).
    learner : str, default "alignf"
        How base kernels are combined, one of the table `LEARNERS`; `ensemble`, which learns no kernel, is none.
    C : float, default 1.0
        How much errors count against the size of the hypothesis, for a kernel of mean diagonal one; positive. The
        Lambda of comparisons. A one-stage learner uses it for its weights, too.
    predictor : {"auto", "svm", "krr"}, default "auto"
        Support vector machine or kernel ridge regression; auto is the predictor whose problem the learner solves, or a
        support vector machine.
    learner_params : dict or None, default None
        Parameters of the learner.
    normalise : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before the learner sees them; kernels that `ca` and `cr` find are never
        scaled.
    probability : bool, default False
        Whether to fit probabilities, which takes five more predictors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, ascending.
    kernel_ : LearnedKernel
        The kernel.
    weights_ : ndarray of shape (p,)
        Its weights, one a base kernel.
    alignment_ : float
        Its centered alignment with the target on the training rows.
    family_ : KernelFamily
        The base kernels.
    predictor_ : {"svm", "krr"}
        What `auto` stood for.
    dual_coef_ : ndarray of shape (m, q)
        ``kernel_.cross_gram(X) @ dual_coef_ + intercept_`` are the scores: for two classes one, above zero for the
        second; for more, one a class (krr) or one a pair of classes i < j, above zero for j (svm). Rows are those of
        ``kernel_.X``.
    intercept_ : ndarray of shape (q,)
        Their constant part.
    calibration_ : ndarray of shape (r, 2)
        Slopes and offsets of the sigmoids, with ``probability=True``: one for two classes, one a class for more.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, where the training rows had names.

    Notes
    -----
    O(m^2 (d + p^2)) time for the weights of a two-stage learner, then O(m^2) memory and O(m^2) to O(m^3) time for the
    predictor. Prediction takes chunks of a fixed number of rows, O(m) time and at most 64 MiB for its matrix.

    A sample weight of w counts a row as w copies of it, for the kernel, its centering and the predictor; two-stage
    learners alone know weights.

    Probabilities are those of Platt's sigmoids, fitted on scores of rows that the predictor did not see. The kernel has
    seen them, and where it was fitted closely to the classes the probabilities are too sure of themselves:
    `sklearn.calibration.CalibratedClassifierCV` learns the kernel anew a fold instead, and takes five times as long.
    The only row of a class is scored by a predictor that has seen it.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828. Platt (1999), Advances in Large Margin Classifiers.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from kernels import KernelLearningClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KernelLearningClassifier(C=10).fit(StandardScaler().fit_transform(X), y)
    >>> model.family_
    GaussianFamily([2**-6, 2**-5, 2**-4, 2**-3, 2**-2, 0.5, 1.0])
    >>> model.weights_.round(2)
    array([0.29, 0.  , 0.  , 0.  , 0.96, 0.  , 0.  ])
    >>> scores = cross_val_score(make_pipeline(StandardScaler(), KernelLearningClassifier(C=10)), X, y)
    >>> print(f"{scores.mean():.2f}")
    0.97
    """

    classes_: np.ndarray
    calibration_: np.ndarray

    def __init__(
        self,
        family: KernelFamily | None = None,
        learner: str = "alignf",
        C: float = 1.0,
        *,
        predictor: str = "auto",
        learner_params: Mapping[str, Any] | None = None,
        normalise: Normalisation = "trace",
        probability: bool = False,
    ) -> None:
        self.family = family
        self.learner = learner
        self.C = C
        self.predictor = predictor
        self.learner_params = learner_params
        self.normalise = normalise
        self.probability = probability

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the kernel, then the predictor.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (m, d)
            Training rows, finite. Sparse where the base kernels allow it.
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
        C = positive("C", self.C)
        X, y = self._validated(X, y)
        check_classification_targets(y)
        weights = checked_weights(sample_weight, len(y))
        X, y, weights = without_zero_weights(X, y, weights)
        classes, codes = np.unique(y, return_inverse=True)
        require_classes(classes)
        resolve_predictor(self.predictor, "classification")
        kernel = self._learned(X, codes, "classification", C, weights)
        return self._fit_predictor(kernel, y[kernel.rows])

    def _fit_predictor(self, kernel: LearnedKernel, y: np.ndarray) -> Self:
        C = positive("C", self.C)
        y = column_or_1d(y)
        classes, codes = np.unique(y, return_inverse=True)
        require_classes(classes)
        target = Target("classification", codes, tuple(str(label) for label in classes))
        predictor = resolve_predictor(self.predictor, "classification", LEARNERS[kernel.learner].predictor)
        with blas_threads_for(len(target)):
            K = self._solve(kernel, target, predictor, C)
            self.classes_ = classes
            if self.probability:
                self.calibration_ = self._calibrated(K, target, C)
            elif hasattr(self, "calibration_"):
                del self.calibration_
        return self

    def _calibrated(self, K: np.ndarray, target: Target, C: float) -> np.ndarray:
        """Return slopes and offsets fitted on the scores of rows that the predictor did not see."""
        folds, weights = assign_calibration_folds(self.kernel_.X, target.values), self.kernel_.sample_weight
        n_classes = len(self.classes_)
        scores = np.empty((len(K), 1 if n_classes == 2 else n_classes))
        for fold in np.unique(folds):
            # Rows that no predictor can do without are scored by that of all rows.
            held_out, others = np.flatnonzero(folds == fold), np.flatnonzero((folds != fold) | (folds < 0))
            dual, intercept = fitted_coefficients(
                K[np.ix_(others, others)],
                target.take(others),
                self.predictor_,
                C,
                None if weights is None else weights[others],
            )
            linear = K[np.ix_(held_out, others)] @ dual + intercept
            scores[held_out] = class_scores(linear, n_classes, self.predictor_).reshape(len(held_out), -1)
        columns = [1] if n_classes == 2 else range(n_classes)
        return np.array(
            [fit_sigmoid(score, target.values == k, weights) for score, k in zip(scores.T, columns, strict=True)]
        )

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of new rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            New rows.

        Returns
        -------
        scores : ndarray of shape (n,) or (n, n_classes)
            For two classes above zero for the second; for more, one a class, of which `predict` takes the largest: from
            kernel ridge regression the fitted indicators, from support vector machines the number of pairs that the
            class wins, plus less than a third for how clearly it does.
        """
        return class_scores(self._scores(X), len(self.classes_), self.predictor_)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each new row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
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
        X : array-like or sparse matrix of shape (n, d)
            New rows.

        Returns
        -------
        P : ndarray of shape (n, n_classes)
            Columns as `classes_`; rows of sum one.

        Notes
        -----
        The largest one need not be what `predict` says: for two classes the sigmoid has an offset.
        """
        check_is_fitted(self, "calibration_")
        return probabilities(self.decision_function(X), self.calibration_)


class KernelLearningRegressor(RegressorMixin, SupervisedLearner):  # type: ignore[misc]
    """Kernel ridge regression on a kernel that is learned from the training rows.

    Parameters
    ----------
    family : KernelFamily or None, default None
        Base kernels; None for Gaussians of seven bandwidths around one over the median squared distance
        (`default_family`), and for a learner that finds its own (`ca`, `cr`).
    learner : str, default "alignf"
        How base kernels are combined, one of the table `LEARNERS` that serves regression; `ensemble`, which learns no
        kernel, is none.
    alpha : float, default 1.0
        The ridge, for a kernel of mean diagonal one; positive. One over the Lambda of comparisons. A one-stage learner
        uses it for its weights, too.
    learner_params : dict or None, default None
        Parameters of the learner.
    normalise : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before the learner sees them; kernels that `ca` and `cr` find are never
        scaled.

    Attributes
    ----------
    kernel_ : LearnedKernel
        The kernel.
    weights_ : ndarray of shape (p,)
        Its weights, one a base kernel.
    alignment_ : float
        Its centered alignment with the target on the training rows.
    family_ : KernelFamily
        The base kernels.
    predictor_ : {"krr"}
        The predictor.
    dual_coef_ : ndarray of shape (m, q)
        ``kernel_.cross_gram(X) @ dual_coef_ + intercept_`` are the predictions, one column an output. Rows are those of
        ``kernel_.X``.
    intercept_ : ndarray of shape (q,)
        Mean of the training targets.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, where the training rows had names.

    Notes
    -----
    O(m^2 (d + p^2)) time for the weights of a two-stage learner, then O(m^2) memory and O(m^3) time for the ridge.
    Prediction takes chunks of a fixed number of rows, O(m) time and at most 64 MiB for its matrix.

    A sample weight of w counts a row as w copies of it, for the kernel, its centering and the ridge; two-stage learners
    alone know weights. Several outputs share one kernel, and weigh on it by their size: scale them to one unit.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828.

    Examples
    --------
    >>> import numpy as np
    >>> from kernels import KernelLearningRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(200, 2))
    >>> y = np.sin(X[:, 0]) + 0.1 * X[:, 1] ** 2
    >>> model = KernelLearningRegressor(alpha=0.01).fit(X[:150], y[:150])
    >>> model.score(X[150:], y[150:]) > 0.99
    True
    """

    _vector: bool

    def __init__(
        self,
        family: KernelFamily | None = None,
        learner: str = "alignf",
        alpha: float = 1.0,
        *,
        learner_params: Mapping[str, Any] | None = None,
        normalise: Normalisation = "trace",
    ) -> None:
        self.family = family
        self.learner = learner
        self.alpha = alpha
        self.learner_params = learner_params
        self.normalise = normalise

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the kernel, then the ridge regression.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (m, d)
            Training rows, finite. Sparse where the base kernels allow it.
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
            A parameter is out of its range, the target is constant, or the kernel cannot be learned from these rows.
        """
        alpha = positive("alpha", self.alpha)
        X, y = self._validated(X, y, multi_output=True, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        weights = checked_weights(sample_weight, len(y))
        X, y, weights = without_zero_weights(X, y, weights)
        kernel = self._learned(X, y, "regression", 1.0 / alpha, weights)
        return self._fit_predictor(kernel, y[kernel.rows])

    def _fit_predictor(self, kernel: LearnedKernel, y: np.ndarray) -> Self:
        alpha, target = positive("alpha", self.alpha), Target.of(y, "regression")
        with blas_threads_for(len(target)):
            self._solve(kernel, target, "krr", 1.0 / alpha)
        self._vector = y.ndim == 1
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the prediction for each new row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            New rows.

        Returns
        -------
        values : ndarray of shape (n,) or (n, q)
            In units of `y`.
        """
        scores = self._scores(X)
        return scores[:, 0] if self._vector else scores


def without_zero_weights(
    X: Rows, y: np.ndarray, weights: np.ndarray | None
) -> tuple[Rows, np.ndarray, np.ndarray | None]:
    """Return rows, targets and weights less those of weight zero; no weights where all that are left are one.

    Raises
    ------
    ValueError
        Fewer than two rows are left.
    """
    if weights is None:
        return X, y, None
    kept = np.flatnonzero(weights)
    if len(kept) < 2:
        raise ValueError(f"sample_weight must be positive for at least 2 rows, got 1 sample of {len(y)}.")
    if len(kept) < len(y):
        X, y, weights = X[kept], y[kept], weights[kept]
    return X, y, None if (weights == 1).all() else weights


def require_classes(classes: np.ndarray) -> None:
    """Raise ValueError if there are fewer than two classes."""
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got 1 class: {classes.tolist()}.")


def class_scores(linear: np.ndarray, n_classes: int, predictor: str) -> np.ndarray:
    """Return the scores that classes are told by.

    Parameters
    ----------
    linear : ndarray of shape (n, q)
        Scores that are linear in the kernel: one for two classes, one a class, or one a pair of classes (svm).
    n_classes : int
        At least two.
    predictor : {"svm", "krr"}
        What they come from.

    Returns
    -------
    scores : ndarray of shape (n,) or (n, n_classes)
        Of pairs, the number that a class wins, and its sum f over them as ``f / (3 (1 + |f|))``.
    """
    if n_classes == 2:
        return linear[:, 0]
    if predictor != "svm":
        return linear
    votes, sums = np.zeros((2, len(linear), n_classes))
    for f, (first, second) in zip(linear.T, combinations(range(n_classes), 2), strict=True):
        votes[:, first] += f <= 0
        votes[:, second] += f > 0
        sums[:, first] -= f
        sums[:, second] += f
    return votes + sums / (3 * (1 + np.abs(sums)))
