"""Transformer to features whose inner products approximate the learned kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from ..base import explain_unknown_arguments
from ..engine.workers import blas_threads_for
from ..learned_kernel import LearnedKernel, LinearScores
from ..learners import Learner
from ..targets import Target, Task
from ..validation import positive, require_numbers, require_one_of, whole_number
from .base import KernelLearner, within_n_jobs

Method = Literal["nystroem", "eigen"]


@explain_unknown_arguments
@dataclass(eq=False, repr=False, kw_only=True)
class LearnedKernelTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    KernelLearner,
):
    r"""Feature map of a kernel that is learned from the training data.

    Inner products of the features approximate the learned kernel,
    :math:`Z Z^\top \approx K_\mu`.

    Parameters
    ----------
    learner : str or Learner, default "alignf"
        Method that learns the kernel, see ``learnkernels learners``; not `ensemble`.
    family : KernelFamily or None, default None
        Base kernels. None: found by the learner (`rfm`, `ca`, `cr`), or Gaussian
        kernels with seven bandwidths, see `default_family`.
    n_components : int, default 100
        Largest number of features.
    columns : mapping of str to str or sequence of str, or None, default None
        Column types that override inferred ones: "number", "categorical", "date",
        "text", "code" (hash code of a category), "drop", or ordered levels, lowest
        first.
    normalize : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before learning; ignored by `ca` and `cr`.
    centering : {"center", "target", "none"}, default "center"
        Whether to center the base kernels in feature space. "target" and "none" do not,
        for one-stage learners, unif and align.
    sample : "auto", "all", int or None, default None
        Number of training rows drawn to learn the kernel and as landmarks. "auto":
        8,192, or 5,000 for learners that find base kernels. None: all up to 20,000,
        otherwise as "auto".
    random_state : int, RandomState or None, default 0
        Seed of samples and landmarks.
    n_jobs : int or None, default None
        Largest number of threads. None and -1: all available cores.
    method : {"nystroem", "eigen"}, default "nystroem"
        "nystroem": features from landmarks, a random subset of the training rows.
        "eigen": leading eigenvectors of the Gram matrix, as in kernel PCA.
    task : {"classification", "regression"} or None, default None
        Type of the target. None: strings, Booleans and at most 20 distinct integers are
        classes.
    C : float, default 1.0
        Inverse regularization strength (or 1 / alpha) of one-stage learners.

    Attributes
    ----------
    kernel_ : LearnedKernel
        The learned kernel; for two-stage learners, with unit mean diagonal.
    weights_ : ndarray of shape (p,)
        Weights of the base kernels.
    alignment_ : float
        Centered alignment of the kernel with the target.
    family_ : KernelFamily
        The base kernels.
    relevance_, feature_importances_, interactions_
        Importances of columns for kernel ridge regression, as in
        `KernelLearningRegressor`.
    landmarks_ : ndarray of int of shape (l,)
        Positions of the landmarks among the rows of ``kernel_.X``; all for "eigen".
    landmark_kernel_ : LearnedKernel
        `kernel_` restricted to the landmarks and centered on them.
    components_ : ndarray of shape (l, q)
        Coefficients of the landmarks:
        ``landmark_kernel_.cross_gram(X) @ components_ - mean_`` are the features; for a
        polynomial combination, with the columns `landmarks_`.
    mean_ : ndarray of shape (q,)
        Mean feature of the training rows before centering.
    table_ : TableEncoding or None
        Column types and features of a table.
    n_features_in_ : int
        Number of features in `fit`.
    feature_names_in_ : ndarray of shape (d,)
        Names of features in `fit`, if X has feature names.

    Notes
    -----
    With landmarks L, the features are :math:`Z = K(X, L) \, K_{LL}^{-1/2}`, minus their
    mean over the training rows. With all rows as landmarks, or all eigenvectors,
    :math:`Z Z^\top` is the Gram matrix. Negative eigenvalues are dropped, so there are
    at most as many features as the rank of the kernel.

    Features take O(m l + l^3) time, or O(m^3) for "eigen"; new rows O(l) or O(m) each.

    References
    ----------
    Williams, Seeger (2001), NIPS 13. Schoelkopf, Smola, Mueller (1998), Neural
    Computation 10:1299-1319.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from learnkernels import LearnedKernelTransformer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> features = LearnedKernelTransformer(n_components=50, random_state=0)
    >>> model = make_pipeline(StandardScaler(), features, LogisticRegression(C=10))
    >>> print(f"{cross_val_score(model, X, y).mean():.2f}")
    0.98
    """

    learner: str | Learner = "alignf"
    n_components: int = 100
    method: Method = "nystroem"
    task: Task | None = None
    C: float = 1.0

    landmarks_: np.ndarray = field(init=False)
    landmark_kernel_: LearnedKernel = field(init=False)
    mean_: np.ndarray = field(init=False)
    components_: np.ndarray = field(init=False)

    _saved = (
        *KernelLearner._saved,
        "landmark_kernel_",
        "landmarks_",
        "mean_",
        "components_",
    )

    def _fitted(self) -> dict[str, Any]:
        fitted = super()._fitted()
        if self.landmark_kernel_ is self.kernel_:
            del fitted["landmark_kernel_"]
        return fitted

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        super()._restore({"landmark_kernel_": fitted["kernel_"], **fitted})
        dual = self._dual_coefficients(self.landmark_kernel_)
        self._linear = LinearScores(self.landmark_kernel_, dual, -self.mean_)

    def _require_sound(self) -> None:
        super()._require_sound()
        n_features = self.components_.shape[-1]
        require_numbers(
            "components_", self.components_, (len(self.landmarks_), n_features)
        )
        require_numbers("mean_", self.mean_, (n_features,))

    @within_n_jobs
    def fit(self, X: Any, y: Any) -> Self:
        """Learn the kernel and its feature map.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (m, d)
            Training rows; sparse if the base kernels support it. Tables are of pandas,
            polars or Arrow.
        y : array-like of shape (m,) or (m, q)
            Class labels or target values.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            A parameter is invalid, or `y` is constant or has the wrong type.
        """
        n_components = whole_number("n_components", self.n_components, 1)
        require_one_of("method", self.method, get_args(Method))
        seed = self._draw_seed()
        X, y = self._validate_training(X, y, multi_output=True)
        target = self._encode_target(np.asarray(y))
        kernel = self._learn(X, target, positive("C", self.C), seed)
        n_rows = kernel.X.shape[0]
        n_components = min(n_components, n_rows)
        with blas_threads_for(n_rows):
            if kernel.C is None:
                kernel = with_unit_diagonal(kernel)
            self._set_kernel(kernel)
            if self.method == "eigen":
                self._fit_eigenvectors(n_components)
            else:
                self._fit_landmarks(n_components, seed)
        self._keep_importance_rows(np.arange(len(target)), target)
        return self

    def _fit_eigenvectors(self, n_components: int) -> None:
        """Fit leading eigenvectors with positive largest entries."""
        n_rows = self.kernel_.X.shape[0]
        eigenvalues, U = positive_part(self.kernel_.gram())
        eigenvalues = eigenvalues[::-1][:n_components]
        U = U[:, ::-1][:, :n_components]
        signs = np.sign(U[np.abs(U).argmax(axis=0), np.arange(len(eigenvalues))])
        self.landmarks_ = np.arange(n_rows)
        self.components_ = U * (signs / np.sqrt(eigenvalues))
        self._set_feature_map(self.kernel_)

    def _fit_landmarks(self, n_landmarks: int, seed: int) -> None:
        kernel = self.kernel_
        n_rows = kernel.X.shape[0]
        landmarks = np.arange(n_rows)
        if n_landmarks < n_rows:
            landmarks = np.sort(
                check_random_state(seed).permutation(n_rows)[:n_landmarks]
            )
            if kernel.degree == 1:
                kernel = kernel.over(landmarks)
        K = kernel.gram()
        if kernel is self.kernel_:
            K = K[np.ix_(landmarks, landmarks)]
        eigenvalues, U = positive_part(K)
        self.landmarks_ = landmarks
        self.components_ = (U / np.sqrt(eigenvalues)) @ U.T
        self._set_feature_map(kernel)

    def _set_feature_map(self, kernel: LearnedKernel) -> None:
        dual = self._dual_coefficients(kernel)
        mean = np.zeros(self.components_.shape[1])
        if kernel is not self.kernel_:
            X = self.kernel_.X
            scores_of_moved_rows = LinearScores(
                replace(kernel, origin=np.zeros(X.shape[1])), dual, mean
            )
            mean = kernel.centering.mean(scores_of_moved_rows.of(X))
        self.landmark_kernel_ = kernel
        self.mean_ = mean
        self._linear = LinearScores(kernel, dual, -mean)

    def _dual_coefficients(self, kernel: LearnedKernel) -> np.ndarray:
        """Return coefficients of all rows, zero except for landmarks."""
        if len(kernel.rows) == len(self.landmarks_):
            return self.components_
        dual = np.zeros((len(kernel.rows), self.components_.shape[1]))
        dual[self.landmarks_] = self.components_
        return dual

    def _encode_target(self, y: np.ndarray) -> Target:
        type_of_target(y, input_name="y", raise_unknown=True)
        if self.task == "classification":
            check_classification_targets(y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        return Target.of(y, self.task)

    def transform(self, X: Any) -> np.ndarray:
        """Return features Z of new rows; ``Z Z'`` approximates the learned kernel.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, d)
            New rows.

        Returns
        -------
        Z : ndarray of shape (n, q)
        """
        return self._scores(self._validate_new(X))

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[1])


def with_unit_diagonal(kernel: LearnedKernel) -> LearnedKernel:
    """Scale a kernel so that its positive part has unit mean diagonal."""
    if kernel.indefinite:
        eigenvalues = np.linalg.eigvalsh(kernel.gram())
        mean_diagonal = float(eigenvalues[eigenvalues > 0].sum()) / len(eigenvalues)
    else:
        active = np.flatnonzero(kernel.weights)
        coefficients = kernel.weights[active] / kernel.scales[active]
        diagonal = coefficients @ (
            kernel.family.subset(active.tolist()).diag(kernel.X)
            - kernel.shift[active, None]
        )
        mean_diagonal = float(diagonal.mean() - kernel.row_means.mean())
    return replace(
        kernel,
        scales=kernel.scales * mean_diagonal,
        row_means=kernel.row_means / mean_diagonal,
    )


def positive_part(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive eigenvalues of K, ascending, and their eigenvectors."""
    eigenvalues, U = np.linalg.eigh(K)
    rounding = (
        10 * len(eigenvalues) * np.finfo(np.float64).eps * np.abs(eigenvalues).max()
    )
    is_positive = eigenvalues > rounding
    return eigenvalues[is_positive], U[:, is_positive]
