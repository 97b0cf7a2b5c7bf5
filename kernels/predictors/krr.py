"""Kernel ridge regression: one factorisation, the whole regularisation path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from learnkernels.kernels.centering import Centering
from learnkernels.kernels.engine.operators import FeatureGrams
from learnkernels.kernels.families.base import distinct_examples
from learnkernels.kernels.families.feature import FeatureFamily
from learnkernels.kernels.predictors.base import ExactPredictor, Fitted, LinearPath
from learnkernels.kernels.predictors.rows import KernelOnRows, usable_gram
from learnkernels.kernels.solvers.factor import cholesky, ridge_factor
from learnkernels.kernels.solvers.leave_one_out import LeaveOneOut
from learnkernels.kernels.solvers.monomial_ridge import factor_of_power
from learnkernels.kernels.targets import Target

FACTORS = 8
"""Most regularisations that take a factor each: eigenvectors cost as much as nine factors of 300 rows, 13 of 1,000."""


@dataclass(frozen=True, eq=False, repr=False)
class KRR(ExactPredictor):
    """Kernel ridge regression by one factorisation; classes as one column each.

    Notes
    -----
    O(m^3) time and O(m^2) memory for m training rows; see `KernelRidgePath`. A power of rank-one kernels that has at
    most half as many monomials D as there are rows is not formed: O(m D^2) time and O(m D) memory, and the same
    predictions.
    """

    name = "krr"
    summary = "kernel ridge regression"
    loss: ClassVar[str] = "squared"

    def fit_on(self, on: KernelOnRows, target: Target, grid: Sequence[float], *, fine: bool = False) -> Fitted:
        """Fit on the matrix, or on the monomials that it is a product of."""
        factor = few_monomials(on)
        if factor is not None:
            return _on_monomials(factor, on, target, grid)
        return _leaving_out(on, target, grid[0]) if fine and len(grid) == 1 else super().fit_on(on, target, grid)

    def fit(
        self,
        K: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        fine: bool = False,
        centering: Centering = Centering.CENTER,
    ) -> KernelRidgePath:
        """Fit on a Gram matrix of mean diagonal one, centered or without intercept."""
        return KernelRidgePath(K, target, grid, sample_weight, centering)


class KernelRidgePath(LinearPath):
    r"""Kernel ridge regressions, one a regularisation.

    .. math:: \alpha_\Lambda = (\Lambda K_c + I)^{-1} \Lambda (Y - \bar Y) ,\qquad h(x) = k_c(x)^\top \alpha + \bar Y

    With sample weights w the mean is the weighted one and, where :math:`D = \operatorname{diag} \sqrt w`,

    .. math:: \alpha_\Lambda = D (D K_c D + I / \Lambda)^{-1} D (Y - \bar Y)

    On a kernel that is not centered there is no intercept: zero takes the place of the mean.

    Attributes
    ----------
    dual : ndarray of shape (L, m, q)
        Coefficients, one set a regularisation.
    intercept : ndarray of shape (q,)
        Mean of the training targets: the best intercept for a centered kernel. Zero for one that is not.
    """

    def __init__(
        self,
        K: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
    ) -> None:
        """Fit.

        Parameters
        ----------
        K : ndarray of shape (m, m)
            Gram matrix of the training rows. Not modified.
        target : Target
            Of the training rows.
        grid : sequence of float
            Values of Lambda, the scale of the kernel against a ridge of one: the usual lambda is 1 / Lambda.
        sample_weight : ndarray of shape (m,), optional
            Positive; a whole number counts a row as that many copies of it. Not modified.
        centering : Centering, default "center"
            Whether the matrix is centered, and there is an intercept.

        Notes
        -----
        Up to `FACTORS` regularisations take a Cholesky factor each, m^3 / 3 flops; more of them, or one so large that
        its factor fails, the eigenvectors, O(m^3) once in the time of about ten factors, and O(L m^2 q) after that.

        References
        ----------
        Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5: scaling K by Lambda is dividing the ridge by it.
        """
        root, Y = self._begun(target, sample_weight, centering)
        self._end(_solutions(K if root is None else K * root.T * root, Y, grid), root)

    @classmethod
    def on_factor(
        cls,
        F: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
    ) -> KernelRidgePath:
        r"""Fit on a matrix :math:`F F^\top` that is not formed, F of shape (m, D).

        .. math:: \alpha_\Lambda = \Lambda \big(Y - F U\big), \qquad
                  U = (F^\top F + I / \Lambda)^{-1} F^\top Y
        """
        path = cls.__new__(cls)
        root, Y = path._begun(target, sample_weight, centering)
        if root is not None:
            F = F * root
        U = _solutions(F.T @ F, F.T @ Y, grid)
        path._end(np.asarray(grid)[:, None, None] * (Y - F @ U), root)
        return path

    def _begun(
        self, target: Target, sample_weight: np.ndarray | None, centering: Centering
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Take the intercept; return the roots of the weights, shape (m, 1), and the targets less it, times these."""
        self._target = target
        self.intercept = centering.target_mean(target.Y, sample_weight)
        Y = target.Y - self.intercept
        if sample_weight is None:
            return None, Y
        root = np.sqrt(sample_weight)[:, None]
        return root, Y * root

    def _end(self, dual: np.ndarray, root: np.ndarray | None) -> None:
        """Keep coefficients of weighted rows as those of the rows themselves."""
        self.dual = dual if root is None else dual * root


def _on_monomials(factor: np.ndarray, on: KernelOnRows, target: Target, grid: Sequence[float]) -> Fitted:
    """Fit on the monomials that the matrix is a product of."""
    kernel, weights, centering, unit = on.kernel, on.kernel.sample_weight, on.kernel.centering, 1.0
    if kernel.regularisation is None:
        unit = float(np.average(np.square(factor).sum(axis=1), weights=weights))
    F = factor / np.sqrt(unit)

    def left_out() -> tuple[np.ndarray, np.ndarray]:
        first, which, Y, w = distinct_examples(on.take(np.arange(on.n_rows))[0], target.Y, weights)
        return np.arange(on.n_rows), left_out_scores(F[first], Y, 1.0 / grid[0], w, centering)[which]

    path = KernelRidgePath.on_factor(F, target, grid, weights, centering)
    return Fitted(kernel, 1.0 / unit, path, left_out=left_out)


def _leaving_out(on: KernelOnRows, target: Target, regularisation: float) -> Fitted:
    """Fit one regularisation by a factor that the residuals of rows that are left out follow from as well."""
    kernel, weights, centering = on.whole_kernel(), on.sample_weight, on.kernel.centering
    first, which, Y, w = distinct_examples(on.take(np.arange(on.n_rows))[0], target.Y, weights)
    K, new_rows = usable_gram(kernel)
    try:
        left = LeaveOneOut(K if w is None else K[np.ix_(first, first)], Y, w, centering).at(1.0 / regularisation)
    except ValueError:  # a ridge that rounding takes away: eigenvectors will do
        return Fitted(kernel, new_rows, KernelRidgePath(K, target, [regularisation], weights, centering), K)
    dual = left.alpha
    if w is not None:  # what is left of each copy, of which the ridge is a multiple
        own = np.ones(len(K)) if weights is None else weights
        dual = own[:, None] * ((dual / left.sample_weight[:, None])[which] + regularisation * (target.Y - Y[which]))
    path = LinearPath(target, dual[None], centering.target_mean(target.Y, weights))
    return Fitted(
        kernel, new_rows, path, left_out=lambda: (np.arange(on.n_rows), (Y - left.residuals)[which])
    )  # fmt: skip


def few_monomials(on: KernelOnRows) -> np.ndarray | None:
    """Return F with ``F F'`` the learned power of rank-one kernels on its own training rows, if F has few columns."""
    kernel = on.kernel
    if not on.own or kernel.indefinite or not isinstance(kernel.family, FeatureFamily):
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

    for features that are centered, with weights as `KernelRidgePath`; without an intercept the last term is missing.
    O(m D^2).
    """
    w = np.ones(len(F)) if sample_weight is None else sample_weight
    root = np.sqrt(w)[:, None]
    Z, y = root * F, root * (Y - centering.target_mean(Y, sample_weight))
    factor = ridge_factor(Z.T @ Z, ridge)
    leverage = np.einsum("ij,ji->i", Z, cho_solve(factor, Z.T)) + w / w.sum() * centering.subtracts
    residuals = (y - Z @ cho_solve(factor, Z.T @ y)) / root
    return np.asarray(Y - residuals / (1.0 - leverage)[:, None])


def _solutions(K: np.ndarray, Y: np.ndarray, grid: Sequence[float]) -> np.ndarray:
    """Return ``(K + I / Lambda)^-1 Y`` for each Lambda, shape (L, m, q)."""
    if len(grid) <= FACTORS and (by_factors := _by_factors(K, Y, grid)) is not None:
        return by_factors
    eigenvalues, Q = np.linalg.eigh(K)
    projected = Q.T @ Y
    # A Gram matrix is positive semi-definite; what is below zero is rounding.
    damped = np.stack([projected / (np.maximum(eigenvalues, 0.0) + 1.0 / value)[:, None] for value in grid])
    return np.asarray(Q @ damped)


def _by_factors(K: np.ndarray, Y: np.ndarray, grid: Sequence[float]) -> np.ndarray | None:
    """Return the same by a factor a Lambda, or None where one fails: the largest is tried first."""
    found: list[np.ndarray] = []
    for ridge in sorted(1.0 / value for value in grid):
        factor = cholesky(K.copy(), ridge)
        if factor is None:
            return None
        found.append(cho_solve(factor, Y, check_finite=False))
    order = np.argsort([1.0 / value for value in grid], kind="stable")
    solutions = np.empty((len(grid), *Y.shape))
    solutions[order] = found
    return solutions
