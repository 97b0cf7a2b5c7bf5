"""Kernel ridge regression and what it would say of each row had it not seen it, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class LeftOut:
    r"""A ridge regression with an intercept, and its leave-one-out residuals.

    Attributes
    ----------
    ridge : float
        lambda.
    alpha : ndarray of shape (m, q)
        Dual coefficients; they sum to zero.
    residuals : ndarray of shape (m, q)
        ``y_i - f^(-i)(x_i)``, where f^(-i) is fitted, intercept included, on all rows but row i.
    """

    ridge: float
    alpha: np.ndarray
    residuals: np.ndarray
    _eigenvalues: np.ndarray
    _eigenvectors: np.ndarray

    @cached_property
    def inverse(self) -> np.ndarray:
        r"""G, shape (m, m): :math:`\alpha = G Y`, and without row i :math:`\alpha_j - G_{ji} \alpha_i / G_{ii}`."""
        scaled = self._eigenvectors / (self._eigenvalues + self.ridge)
        inverse: np.ndarray = scaled @ self._eigenvectors.T
        inverse -= 1.0 / (self.ridge * len(inverse))
        return inverse


class LeaveOneOut:
    r"""Kernel ridge regressions with an intercept along a path of ridges, each row left out once.

    .. math:: \alpha = G Y, \qquad G = (K_c + \lambda I)^{-1} - \frac{1}{\lambda m} \mathbf 1 \mathbf 1^\top, \qquad
              y_i - f^{(-i)}(x_i) = \frac{\alpha_i}{G_{ii}}

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Centered Gram matrix of the training rows. Not modified.
    Y : ndarray of shape (m, q)
        Targets. Not modified.

    Notes
    -----
    G is the block of the inverse of the bordered matrix, with ones for the intercept, that belongs to the rows: leaving
    out a row takes its row and column out of that matrix, and the inverse of what is left follows by one elimination.
    O(m^3) once for the eigenvectors, then O(m^2 q) a ridge. Only the centering of K is that of all rows, which changes
    no prediction of a regression with an intercept.

    References
    ----------
    Cawley, Talbot (2003), Neural Networks 16:467-475, for the least-squares machine; the bordered inverse is derived
    in the formula above.
    """

    def __init__(self, K: np.ndarray, Y: np.ndarray) -> None:
        eigenvalues, self._eigenvectors = np.linalg.eigh(K)
        # A centered Gram matrix is positive semi-definite; what is below zero is rounding.
        self._eigenvalues = np.maximum(eigenvalues, 0.0)
        self._projected = self._eigenvectors.T @ (Y - Y.mean(axis=0))
        self._squared = np.square(self._eigenvectors)

    def at(self, ridge: float) -> LeftOut:
        """Return the regression for a ridge, positive."""
        if not 0 < ridge < np.inf:
            raise ValueError(f"ridge must be positive and finite, got {ridge}.")
        damping = 1.0 / (self._eigenvalues + ridge)
        alpha = self._eigenvectors @ (self._projected * damping[:, None])
        diagonal = self._squared @ damping - 1.0 / (ridge * len(alpha))
        return LeftOut(ridge, alpha, alpha / diagonal[:, None], self._eigenvalues, self._eigenvectors)

    def best(self, ridges: Sequence[float]) -> LeftOut:
        """Return the regression whose leave-one-out residuals have the least sum of squares."""
        fits = (self.at(ridge) for ridge in ridges)
        return min(fits, key=lambda fit: float(np.vdot(fit.residuals, fit.residuals)))
