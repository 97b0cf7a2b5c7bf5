"""Features whose inner products are the learned kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from ..engine.workers import blas_threads_for
from ..learned_kernel import LearnedKernel, LinearScores
from ..learners import Learner
from ..parameters import explain_unknown_arguments, positive, require_numbers, require_one_of, whole_number
from ..targets import Target, Task
from .base import KernelLearner, within_n_jobs

Method = Literal["nystroem", "eigen"]


@explain_unknown_arguments
@dataclass(eq=False, repr=False)
class LearnedKernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelLearner):  # type: ignore[misc]
    r"""Features for linear models, made from a kernel that is learned from the training rows.

    Their inner products are about that kernel, :math:`Z Z^\top \approx K_\mu`.

    Parameters
    ----------
    family : KernelFamily or None, default None
        Base kernels; None for Gaussians of seven bandwidths around one over the median squared distance
        (`default_family`), and for a learner that finds its own (`ca`, `cr`).
    learner : str or Learner, default "alignf"
        How base kernels are combined: a name, see `learnkernels learners`, or a learner with its parameters, such as
        ``LpKRR(norm=1.5)`` of `learnkernels.kernels.learners`, which a search reaches as ``learner__norm``. Start with
        "alignf", "unif" and "l2-krr"; "ensemble" learns no kernel and is not accepted.
    n_components : int, default 100
        Most features.
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
        Training rows, drawn at random, that the kernel is learned from: so many, or 8,192 of "auto", or all of them.
        None takes all rows up to 20,000; beyond, it acts as "auto" and warns. Landmarks are drawn from the same rows.
    random_state : int, RandomState or None, default 0
        Draws samples and landmarks.
    n_jobs : int or None, default None
        Largest number of threads; -1 and None for all cores that this process may use, or its share of them within
        joblib's workers.
    method : {"nystroem", "eigen"}, default "nystroem"
        From the kernel with landmarks, training rows drawn at random; or along its largest eigenvectors on all training
        rows, as kernel principal components.
    task : {"classification", "regression"} or None, default None
        What the target is; None for text, booleans and at most 20 distinct whole numbers as classes, and other numbers,
        or several columns of numbers, as such. Give it where `y` holds counts or grades.
    C : float, default 1.0
        C, or one over the ridge, of the predictor that a one-stage learner learns its weights with; positive. Two-stage
        learners use none.

    Attributes
    ----------
    kernel_ : LearnedKernel
        The kernel; of a two-stage learner, which finds no scale, scaled to a mean diagonal of one, so that features are
        of mean squared length one whatever the learner and the data are.
    weights_ : ndarray of shape (p,)
        Its weights, one per base kernel.
    alignment_ : float
        Its centered alignment with the target on the training rows.
    family_ : KernelFamily
        The base kernels.
    landmarks_ : ndarray of int of shape (l,)
        Positions among ``kernel_.X`` of the training rows that features are made from; all of these for ``eigen``.
    landmark_kernel_ : LearnedKernel
        `kernel_` over the landmarks, and centered on them; of a power, `kernel_` itself.
    components_ : ndarray of shape (l, q)
        ``landmark_kernel_.cross_gram(X) @ components_ - mean_`` are the features; of a power, the columns `landmarks_`
        of that matrix are multiplied.
    mean_ : ndarray of shape (q,)
        The mean over the training rows before it is subtracted: features are centered on all of these. Zero where
        nothing is centered.
    table_ : TableEncoding or None
        Inferred column types of a table, with the features that they became; None for rows of numbers.
    n_features_in_ : int
        Number of features of the rows.
    feature_names_in_ : ndarray of shape (d,)
        Their names, where the training rows had names.

    Notes
    -----
    With L the landmarks, :math:`Z = K(X, L) \, K_{LL}^{-1/2}` by the eigenvalues above rounding, for a kernel that is
    centered on the landmarks, and less the mean over the training rows: with all training rows
    for landmarks it gives their Gram matrix to rounding, and so do all eigenvectors. A kernel of negative weights is
    replaced by its positive semi-definite part. Each method gives at most as many features as there are training rows,
    and ``eigen`` no more than the rank of the kernel.

    Learning costs what `KernelLearningClassifier` says; the features O(m l + l^3) time, or O(m^3) for ``eigen``. New
    rows take O(l) time each, or O(m) for ``eigen``, and memory that next to the features does not depend on their
    number.

    References
    ----------
    Williams, Seeger (2001), NIPS 13, for landmarks; Schoelkopf, Smola, Mueller (1998), Neural Computation 10:1299-1319.

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
    _: KW_ONLY
    method: Method = "nystroem"
    task: Task | None = None
    C: float = 1.0

    landmarks_: np.ndarray = field(init=False)
    landmark_kernel_: LearnedKernel = field(init=False)
    mean_: np.ndarray = field(init=False)
    components_: np.ndarray = field(init=False)

    _saved = (*KernelLearner._saved, "landmark_kernel_", "landmarks_", "mean_", "components_")

    def _fitted(self) -> dict[str, Any]:
        fitted = super()._fitted()
        if self.landmark_kernel_ is self.kernel_:
            del fitted["landmark_kernel_"]
        return fitted

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        super()._restore({"landmark_kernel_": fitted["kernel_"], **fitted})
        self._linear = LinearScores(self.landmark_kernel_, self._coefficients(self.landmark_kernel_), -self.mean_)

    def _require_sound(self) -> None:
        super()._require_sound()
        n_landmarks, n_features = len(self.landmarks_), self.components_.shape[-1]
        require_numbers("components_", self.components_, (n_landmarks, n_features))
        require_numbers("mean_", self.mean_, (n_features,))

    @within_n_jobs
    def fit(self, X: Any, y: Any) -> Self:
        """Learn the kernel, then its features.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (m, d)
            Training rows, finite; sparse where the base kernels allow it. A DataFrame of pandas or polars, or an Arrow
            table, may hold categories, dates and missing values: `TableEncoding` has the rules.
        y : array-like of shape (m,) or (m, q)
            Labels or numbers; the kernel is learned for them.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            A parameter is out of its range, `y` is no such target or constant, or the kernel cannot be learned from
            these rows.
        """
        n = whole_number("n_components", self.n_components, 1)
        require_one_of("method", self.method, get_args(Method))
        seed = self._draw_seed()
        X, y = self._validated(X, y, multi_output=True)
        kernel = self._learn(X, self._target(np.asarray(y)), positive("C", self.C), seed)
        m = kernel.X.shape[0]
        most = min(n, m)
        with blas_threads_for(m):
            self._take_kernel(kernel if kernel.C is not None else with_unit_diagonal(kernel))
            kernel = self.kernel_
            if self.method == "eigen":
                values, U = positive_part(kernel.gram())
                values, U = values[::-1][:most], U[:, ::-1][:, :most]
                signs = np.sign(U[np.abs(U).argmax(axis=0), np.arange(len(values))])  # the largest entry is positive
                self.landmarks_, self.components_ = np.arange(m), U * (signs / np.sqrt(values))
                self._take_landmarks(kernel)
            else:
                drawn = check_random_state(seed).permutation(m)[:most] if most < m else np.arange(m)
                self.landmarks_ = np.sort(drawn)
                some = np.ix_(self.landmarks_, self.landmarks_)
                on = kernel.over(self.landmarks_) if kernel.degree == 1 and most < m else kernel
                values, U = positive_part(kernel.gram()[some] if on is kernel else on.gram())
                self.components_ = (U / np.sqrt(values)) @ U.T
                self._take_landmarks(on)
        return self

    def _take_landmarks(self, kernel: LearnedKernel) -> None:
        """Make features from a kernel over the landmarks, or over all training rows, from now on."""
        self.landmark_kernel_, dual = kernel, self._coefficients(kernel)
        self.mean_ = np.zeros(self.components_.shape[1])
        if kernel is not self.kernel_:
            X = self.kernel_.X
            here = LinearScores(replace(kernel, origin=np.zeros(X.shape[1])), dual, self.mean_)
            self.mean_ = kernel.centering.mean(here.of(X))
        self._linear = LinearScores(kernel, dual, -self.mean_)

    def _coefficients(self, kernel: LearnedKernel) -> np.ndarray:
        """Return the coefficients of the features on all rows of a kernel, zero except for the landmarks."""
        if len(kernel.rows) == len(self.landmarks_):
            return self.components_
        dual = np.zeros((len(kernel.rows), self.components_.shape[1]))
        dual[self.landmarks_] = self.components_
        return dual

    def _target(self, y: np.ndarray) -> Target:
        type_of_target(y, input_name="y", raise_unknown=True)
        if self.task == "classification":
            check_classification_targets(y)
        return Target.of(column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y, self.task)

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of new rows.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, d)
            New rows.

        Returns
        -------
        Z : ndarray of shape (n, q)
        """
        return self._scores(X)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[1])


def with_unit_diagonal(kernel: LearnedKernel) -> LearnedKernel:
    """Return a kernel of degree one scaled so that its positive semi-definite part has a mean diagonal of one."""
    if kernel.indefinite:
        eigenvalues = np.linalg.eigvalsh(kernel.gram())
        unit = float(eigenvalues[eigenvalues > 0].sum()) / len(eigenvalues)
    else:
        active = np.flatnonzero(kernel.weights)
        coefficients = kernel.weights[active] / kernel.scales[active]
        diagonal = coefficients @ (kernel.family.subset(active.tolist()).diag(kernel.X) - kernel.shift[active, None])
        unit = float(diagonal.mean() - kernel.row_means.mean())
    return replace(kernel, scales=kernel.scales * unit, row_means=kernel.row_means / unit)


def positive_part(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues of a symmetric matrix above rounding, ascending, and their eigenvectors."""
    eigenvalues, U = np.linalg.eigh(K)
    kept = eigenvalues > 10 * len(eigenvalues) * np.finfo(np.float64).eps * np.abs(eigenvalues).max()
    return eigenvalues[kept], U[:, kept]
