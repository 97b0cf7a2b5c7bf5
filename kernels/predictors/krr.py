"""Kernel ridge regression: one factorization, the whole regularization path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from ..centering import Centering
from ..engine.operators import FeatureGrams
from ..families.base import distinct_examples
from ..families.feature import FeatureFamily
from ..solvers.factor import LeaveOneOut, cholesky, ridge_factor
from ..solvers.monomial_ridge import factor_of_power
from ..targets import Target
from .base import ExactPredictor, RegularizationPath, TrainingSet, usable_gram

FACTORS = 8
"""Most values of C that take a factor each: eigenvectors cost as much as nine factors of 300 rows, 13 of 1,000."""


@dataclass(frozen=True, eq=False, repr=False)
class KRR(ExactPredictor):
    """Kernel ridge regression by one factorization; classes as one column each.

    Notes
    -----
    O(m^3) time and O(m^2) memory for m training rows; see `ridge_path`. A power of rank-one kernels that has at most
    half as many monomials D as there are rows is not formed: O(m D^2) time and O(m D) memory, and the same predictions.
    Scores of rows that are held out are those of leave-one-out, in closed form.
    """

    name = "krr"
    summary = "kernel ridge regression"
    loss = "squared"

    def fit(
        self, training: TrainingSet, target: Target, grid: Sequence[float], *, fine: bool = False
    ) -> RegularizationPath:
        """Fit on the matrix, or on the monomials that it is a product of."""
        kernel, weights, centering = training.kernel, training.sample_weight, training.kernel.gram_centering
        F = few_monomials(training)
        if F is not None:
            unit = 1.0
            if kernel.C is None:
                unit = float(np.average(np.square(F).sum(axis=1), weights=weights))
            F = F / np.sqrt(unit)

            def held_out() -> tuple[np.ndarray, np.ndarray]:
                first, which, Y, w = distinct_examples(training.take()[0], target.Y, weights)
                return np.arange(training.n_rows), left_out_scores(F[first], Y, 1.0 / grid[0], w, centering)[which]

            path = ridge_path(F, target, grid, weights, centering, factor=True)
            return replace(path, kernel=kernel, dual=path.dual * (1.0 / unit), held_out=held_out)
        loo = _fit_leaving_out(training, target, grid[0]) if fine and len(grid) == 1 else None
        return super().fit(training, target, grid, fine=fine) if loo is None else loo

    def fit_matrix(
        self,
        K: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
        fine: bool = False,
    ) -> RegularizationPath:
        """Fit on a Gram matrix of mean diagonal one, centered or without intercept."""
        return ridge_path(K, target, grid, sample_weight, centering)


def ridge_path(
    A: np.ndarray,
    target: Target,
    grid: Sequence[float],
    sample_weight: np.ndarray | None = None,
    centering: Centering = Centering.CENTER,
    *,
    factor: bool = False,
) -> RegularizationPath:
    r"""Return kernel ridge regressions, one per value of C.

    .. math:: \alpha_\Lambda = (\Lambda K_c + I)^{-1} \Lambda (Y - \bar Y) ,\qquad h(x) = k_c(x)^\top \alpha + \bar Y

    With sample weights w the mean is the weighted one and, where :math:`D = \operatorname{diag} \sqrt w`,

    .. math:: \alpha_\Lambda = D (D K_c D + I / \Lambda)^{-1} D (Y - \bar Y)

    On a kernel that is not centered there is no intercept: zero takes the place of the mean. For a matrix
    :math:`F F^\top`, which is not formed,

    .. math:: \alpha_\Lambda = \Lambda \big(Y - F U\big), \qquad U = (F^\top F + I / \Lambda)^{-1} F^\top Y

    Parameters
    ----------
    A : ndarray of shape (m, m) or (m, D)
        Gram matrix of the training rows, or F. Not modified.
    target : Target
        Of the training rows.
    grid : sequence of float
        Values of C, the scale of the kernel against a ridge of one: the usual lambda is 1 / C.
    sample_weight : ndarray of shape (m,), optional
        Positive; a whole number counts a row as that many copies of it. Not modified.
    centering : Centering, default "center"
        Whether the matrix is centered, and there is an intercept.
    factor : bool, default False
        Whether `A` is F.

    Notes
    -----
    Up to `FACTORS` values of C take a Cholesky factor each, m^3 / 3 flops; more of them, or one so large that its
    factor fails, the eigenvectors, O(m^3) once in the time of about ten factors, and O(L m^2 q) after that.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5: scaling K by C is dividing the ridge by it.
    """
    intercept = centering.target_mean(target.Y, sample_weight)
    Y, root = target.Y - intercept, None
    if sample_weight is not None:
        root = np.sqrt(sample_weight)[:, None]
        Y, A = Y * root, A * root if factor else A * root.T * root
    if factor:
        dual = np.asarray(grid)[:, None, None] * (Y - A @ _solutions(A.T @ A, A.T @ Y, grid))
    else:
        dual = _solutions(A, Y, grid)
    return RegularizationPath(target, dual if root is None else dual * root, intercept)


def _fit_leaving_out(training: TrainingSet, target: Target, C: float) -> RegularizationPath | None:
    """Fit by a factor that scores of leave-one-out follow from as well; None for a ridge that rounding takes away."""
    kernel, weights, centering = training.whole_kernel(), training.sample_weight, training.kernel.gram_centering
    first, which, Y, w = distinct_examples(training.take()[0], target.Y, weights)
    K, new_rows = usable_gram(kernel)
    try:
        left = LeaveOneOut(K if w is None else K[np.ix_(first, first)], Y, w, centering).at(1.0 / C)
    except ValueError:
        return None
    dual = left.alpha
    if w is not None:  # what is left of each copy, of which the ridge is a multiple
        own = np.ones(len(K)) if weights is None else weights
        dual = own[:, None] * ((dual / left.sample_weight[:, None])[which] + C * (target.Y - Y[which]))
    return RegularizationPath(
        target,
        np.dot(new_rows, dual)[None],
        centering.target_mean(target.Y, weights),
        kernel,
        held_out=lambda: (np.arange(training.n_rows), (Y - left.residuals)[which]),
    )


def few_monomials(training: TrainingSet) -> np.ndarray | None:
    """Return F with ``F F'`` the learned power of rank-one kernels on its own training rows, if F has few columns."""
    kernel = training.kernel
    if not training.own or kernel.indefinite or not isinstance(kernel.family, FeatureFamily):
        return None
    Z = kernel.family.take(kernel.X)
    if sparse.issparse(Z):
        return None
    Z = Z - kernel.centering.mean(Z, kernel.sample_weight)
    grams = FeatureGrams(Z, Centering.NONE)
    return factor_of_power(grams, kernel.combination.coefficients, kernel.degree, kernel.offset)


def left_out_scores(
    F: np.ndarray, Y: np.ndarray, ridge: float, sample_weight: np.ndarray | None, centering: Centering
) -> np.ndarray:
    r"""Return the scores of ridge regressions on features F, shape (m, D), each of the row that it is fitted without.

    .. math:: y_i - f^{(-i)}(x_i) = \frac{y_i - f(x_i)}{1 - h_i}, \qquad
              h = \operatorname{diag} F (F^\top F + \lambda I)^{-1} F^\top + \tfrac 1 m

    for features that are centered, with weights as `ridge_path`; without an intercept the last term is missing. It is
    missing as well for features that are not centered, and the residual of a row is then taken around the mean of the
    other targets: see `LeaveOneOut`. O(m D^2).
    """
    w = np.ones(len(F)) if sample_weight is None else sample_weight
    root = np.sqrt(w)[:, None]
    Z, deviations = root * F, Y - centering.target_mean(Y, sample_weight)
    factor = ridge_factor(Z.T @ Z, ridge)

    def residuals_of(targets: np.ndarray) -> np.ndarray:
        return np.asarray(targets - F @ cho_solve(factor, Z.T @ (root * targets)))

    leverage = np.einsum("ij,ji->i", Z, cho_solve(factor, Z.T))
    residuals = residuals_of(deviations)
    if centering.subtracts:
        leverage += w / w.sum()
    elif centering.intercept:
        others = w.sum() - w
        residuals += residuals_of(np.ones((len(F), 1))) * deviations * (w / others)[:, None]
    return np.asarray(Y - residuals / (1.0 - leverage)[:, None])


def _solutions(K: np.ndarray, Y: np.ndarray, grid: Sequence[float]) -> np.ndarray:
    """Return ``(K + I / C)^-1 Y`` for each C, shape (L, m, q)."""
    if len(grid) <= FACTORS:
        solutions = np.empty((len(grid), *Y.shape))
        for position in np.argsort([1.0 / value for value in grid], kind="stable"):  # the largest C fails first
            factor = cholesky(K.copy(), 1.0 / grid[position])
            if factor is None:
                break
            solutions[position] = cho_solve(factor, Y, check_finite=False)
        else:
            return solutions
    eigenvalues, Q = np.linalg.eigh(K)
    projected = Q.T @ Y
    # A Gram matrix is positive semi-definite; what is below zero is rounding.
    damped = np.stack([projected / (np.maximum(eigenvalues, 0.0) + 1.0 / value)[:, None] for value in grid])
    return np.asarray(Q @ damped)
