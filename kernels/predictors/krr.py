"""Kernel ridge regression by one factorization for all values of C."""

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
from ..weights import weights_of_rows
from .base import (
    ExactPredictor,
    RegularizationPath,
    TrainingSet,
    held_out_scores,
    usable_gram,
)

FACTORS = 8
"""Most Cholesky factorizations; an eigendecomposition costs 9 to 13 of them."""


@dataclass(frozen=True, eq=False, repr=False)
class KRR(ExactPredictor):
    """Kernel ridge regression; for classification, on class indicators.

    Notes
    -----
    O(m^3) time and O(m^2) memory for m training rows. Polynomial combinations of
    rank-one kernels with D monomials take O(m D^2) time and O(m D) memory. Held-out
    scores are leave-one-out predictions.
    """

    name = "krr"
    summary = "kernel ridge regression"
    loss = "squared"

    def fit(
        self,
        training: TrainingSet,
        target: Target,
        grid: Sequence[float],
        *,
        fine: bool = False,
    ) -> RegularizationPath:
        F = few_monomials(training)
        if F is not None:
            return _fit_monomials(F, training, target, grid)
        if fine and len(grid) == 1:
            path = _fit_leaving_out(training, target, grid[0])
            if path is not None:
                return path
        return super().fit(training, target, grid, fine=fine)

    def fit_matrix(
        self,
        K: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
        fine: bool = False,
    ) -> RegularizationPath:
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

    .. math:: \alpha_C = (C K_c + I)^{-1} C (Y - \bar Y) ,\qquad h(x) = k_c(x)^\top \alpha_C + \bar Y

    With sample weights, the mean is weighted and, for
    :math:`D = \operatorname{diag} \sqrt w`,

    .. math:: \alpha_C = D (D K_c D + I / C)^{-1} D (Y - \bar Y)

    Without centering there is no intercept, and zero replaces the mean. For a matrix
    :math:`F F^\top`, which is never formed,

    .. math:: \alpha_C = C \big(Y - F U\big), \qquad U = (F^\top F + I / C)^{-1} F^\top Y

    Parameters
    ----------
    A : ndarray of shape (m, m) or (m, D)
        Gram matrix of the training rows, or F.
    target : Target
        Target of the training rows.
    grid : sequence of float
        Values of C, the inverse of the ridge.
    sample_weight : ndarray of shape (m,), optional
        Positive weights; a row of weight w counts as w copies.
    centering : Centering, default "center"
        Whether the matrix is centered, and there is an intercept.
    factor : bool, default False
        Whether `A` is F.

    Returns
    -------
    path : RegularizationPath
        Ridge regressions.

    Notes
    -----
    Up to 8 values of C take one Cholesky factorization each, O(m^3 / 3). More values
    take one eigendecomposition, O(m^3), and O(L m^2 q).

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """
    intercept = centering.target_mean(target.Y, sample_weight)
    Y = target.Y - intercept
    root = None
    if sample_weight is not None:
        root = np.sqrt(sample_weight)[:, None]
        Y = Y * root
        A = A * root if factor else A * root.T * root
    if factor:
        dual = np.asarray(grid)[:, None, None] * (
            Y - A @ _solutions(A.T @ A, A.T @ Y, grid)
        )
    else:
        dual = _solutions(A, Y, grid)
    if root is not None:
        dual = dual * root
    return RegularizationPath(target, dual, intercept)


def _fit_monomials(
    F: np.ndarray, training: TrainingSet, target: Target, grid: Sequence[float]
) -> RegularizationPath:
    kernel = training.kernel
    weights = training.sample_weight
    centering = kernel.gram_centering
    mean_diagonal = 1.0
    if kernel.C is None:
        mean_diagonal = float(np.average(np.square(F).sum(axis=1), weights=weights))
    F = F / np.sqrt(mean_diagonal)

    def scores_of_others(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        mean = centering.mean(F[others], weights_of_rows(weights, others))
        Z = F - mean
        path = ridge_path(
            Z[others],
            target.take(others),
            grid,
            weights_of_rows(weights, others),
            centering,
            factor=True,
        )
        dual, intercept = path.coefficients()
        return np.asarray(Z[rows] @ (Z[others].T @ dual) + intercept)

    def held_out() -> tuple[np.ndarray, np.ndarray]:
        if target.row_groups is not None:
            return held_out_scores(training, target, scores_of_others)
        first, distinct_row, Y, w = distinct_examples(
            training.take()[0], target.Y, weights
        )
        scores = left_out_scores(F[first], Y, 1.0 / grid[0], w, centering)
        return np.arange(training.n_rows), scores[distinct_row]

    path = ridge_path(F, target, grid, weights, centering, factor=True)
    return replace(
        path, kernel=kernel, dual=path.dual * (1.0 / mean_diagonal), held_out=held_out
    )


def _fit_leaving_out(
    training: TrainingSet, target: Target, C: float
) -> RegularizationPath | None:
    """Fit with leave-one-out scores; None if the ridge is too small."""
    kernel = training.whole_kernel()
    weights = training.sample_weight
    centering = training.kernel.gram_centering
    K, cross_gram_factor = usable_gram(kernel)
    first, distinct_row, Y, w = distinct_examples(
        training.take()[0], target.Y, weights, target.group_numbers
    )
    K_distinct = K if w is None else K[np.ix_(first, first)]
    try:
        left_out = LeaveOneOut(
            K_distinct,
            Y,
            w,
            centering,
            target.take(first).row_groups,
            overwrite=True,
        ).at(1.0 / C)
    except ValueError:
        return None
    dual = left_out.alpha
    if w is not None:
        # A dual coefficient is C times the residual of its row.
        row_weights = np.ones(len(distinct_row)) if weights is None else weights
        dual_of_copies = (dual / left_out.sample_weight[:, None])[distinct_row] + C * (
            target.Y - Y[distinct_row]
        )
        dual = row_weights[:, None] * dual_of_copies

    def held_out() -> tuple[np.ndarray, np.ndarray]:
        rows = np.flatnonzero(left_out.is_held_out[distinct_row])
        return rows, (Y - left_out.residuals)[distinct_row[rows]]

    return RegularizationPath(
        target,
        np.dot(cross_gram_factor, dual)[None],
        centering.target_mean(target.Y, weights),
        kernel,
        held_out=held_out,
    )


def few_monomials(training: TrainingSet) -> np.ndarray | None:
    """Return features F, few monomials, with the kernel ``F F'``; None if too many."""
    kernel = training.kernel
    if (
        not training.own
        or kernel.indefinite
        or not isinstance(kernel.family, FeatureFamily)
    ):
        return None
    Z = kernel.family.take(kernel.X)
    if sparse.issparse(Z):
        return None
    Z = Z - kernel.centering.mean(Z, kernel.sample_weight)
    grams = FeatureGrams(Z, Centering.NONE)
    return factor_of_power(
        grams, kernel.combination.coefficients, kernel.degree, kernel.offset
    )


def left_out_scores(
    F: np.ndarray,
    Y: np.ndarray,
    ridge: float,
    sample_weight: np.ndarray | None,
    centering: Centering,
) -> np.ndarray:
    r"""Return leave-one-out predictions of a ridge regression on features F.

    .. math:: y_i - f^{(-i)}(x_i) = \frac{y_i - f(x_i)}{1 - h_i}, \qquad
              h = \operatorname{diag} F (F^\top F + \lambda I)^{-1} F^\top + \tfrac 1 m

    for centered features; otherwise without the last term.
    """
    w = np.ones(len(F)) if sample_weight is None else sample_weight
    root = np.sqrt(w)[:, None]
    Z = root * F
    deviations = Y - centering.target_mean(Y, sample_weight)
    factor = ridge_factor(Z.T @ Z, ridge)

    def residuals_of(targets: np.ndarray) -> np.ndarray:
        return np.asarray(targets - F @ cho_solve(factor, Z.T @ (root * targets)))

    leverage = np.einsum("ij,ji->i", Z, cho_solve(factor, Z.T))
    residuals = residuals_of(deviations)
    if centering.subtracts:
        leverage += w / w.sum()
    elif centering.intercept:
        others = w.sum() - w
        residuals += (
            residuals_of(np.ones((len(F), 1))) * deviations * (w / others)[:, None]
        )
    return np.asarray(Y - residuals / (1.0 - leverage)[:, None])


def _solutions(K: np.ndarray, Y: np.ndarray, grid: Sequence[float]) -> np.ndarray:
    if len(grid) <= FACTORS:
        solutions = _solutions_by_cholesky(K, Y, grid)
        if solutions is not None:
            return solutions
    eigenvalues, Q = np.linalg.eigh(K)
    # Negative eigenvalues of a Gram matrix are rounding errors.
    eigenvalues = np.maximum(eigenvalues, 0.0)
    projected = Q.T @ Y
    damped = np.stack([projected / (eigenvalues + 1.0 / C)[:, None] for C in grid])
    return np.asarray(Q @ damped)


def _solutions_by_cholesky(
    K: np.ndarray, Y: np.ndarray, grid: Sequence[float]
) -> np.ndarray | None:
    solutions = np.empty((len(grid), *Y.shape))
    # The factorization of the largest C fails first.
    largest_C_first = np.argsort([1.0 / C for C in grid], kind="stable")
    for position in largest_C_first:
        factor = cholesky(K.copy(), 1.0 / grid[position])
        if factor is None:
            return None
        solutions[position] = cho_solve(factor, Y, check_finite=False)
    return solutions
