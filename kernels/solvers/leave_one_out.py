"""Kernel ridge regression and what it would say of each row had it not seen it, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from learnkernels.kernels.centering import Centering
from learnkernels.kernels.solvers.factor import eigenvectors

MOST_NUMBERS = 1 << 22
"""Most coefficients, of all ridges and outputs, that are held at once."""


@dataclass(frozen=True)
class LeftOut:
    r"""A ridge regression, and its leave-one-out residuals.

    Attributes
    ----------
    ridge : float
        lambda.
    alpha : ndarray of shape (m, q)
        Dual coefficients; with an intercept they sum to zero.
    residuals : ndarray of shape (m, q)
        ``y_i - f^(-i)(x_i)``, where f^(-i) is fitted, intercept included, on all rows but row i.
    sample_weight : ndarray of shape (m,)
        w.
    """

    ridge: float
    alpha: np.ndarray
    residuals: np.ndarray
    sample_weight: np.ndarray
    _eigenvalues: np.ndarray
    _eigenvectors: np.ndarray

    @property
    def loss(self) -> float:
        """Sum of the squared leave-one-out residuals, each times the weight of its row."""
        return float(self.sample_weight @ np.square(self.residuals).sum(axis=1))

    @cached_property
    def inverse(self) -> np.ndarray:
        r"""G, shape (m, m): :math:`\alpha = G Y`, and without row i :math:`\alpha_j - G_{ji} \alpha_i / G_{ii}`."""
        rooted = np.sqrt(self.sample_weight)[:, None] * self._eigenvectors
        return np.asarray((rooted / (self._eigenvalues + self.ridge)) @ rooted.T)


class LeaveOneOut:
    r"""Kernel ridge regressions along a path of ridges, with an intercept or without, each row left out once.

    .. math:: \alpha = G Y, \qquad
              G = (K_c + \lambda W^{-1})^{-1} - \frac{w w^\top}{\lambda \, \mathbf 1^\top w}, \qquad
              y_i - f^{(-i)}(x_i) = \frac{\alpha_i}{G_{ii}}

    where W is the diagonal matrix of the rows' weights w. Without intercept G has no second term.

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Gram matrix of the training rows, centered with their weights or as it is. Not modified.
    Y : ndarray of shape (m, q)
        Targets. Not modified.
    sample_weight : ndarray of shape (m,), optional
        Weights of the rows: the squared residual of a row counts as often, and the row is left out with all its weight.
        By default each counts once. Not modified.
    centering : Centering, default "center"
        With none, K is not centered and there is no intercept. With target, K is not centered either, and the
        intercept is the mean of all targets, that of the row included.

    Notes
    -----
    G is the block of the inverse of the bordered matrix, with ones for the intercept, that belongs to the rows: leaving
    out a row takes its row and column out of that matrix, and the inverse of what is left follows by one elimination.
    With ``sqrt(W) K_c sqrt(W) = U diag(s) U^T``, G is ``sqrt(W) U diag(1 / (s + lambda)) U^T sqrt(W)`` over all
    eigenvectors but ``sqrt(w)``, so that no digits are lost in the difference above.
    O(m^3) once for the eigenvectors, then O(m^2 q) a ridge. Only the centering of K is that of all rows, which changes
    no prediction of a regression with an intercept.

    References
    ----------
    Cawley, Talbot (2003), Neural Networks 16:467-475, for the least-squares machine; the bordered inverse is derived
    in the formula above.
    """

    def __init__(
        self,
        K: np.ndarray,
        Y: np.ndarray,
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
    ) -> None:
        self._weights = np.ones(len(K)) if sample_weight is None else sample_weight
        self._roots = np.sqrt(self._weights)[:, None]
        rooted = self._roots * K
        rooted *= self._roots.T
        if centering.subtracts:
            # The roots of the weights, which the intercept fits, are made the last eigenvector, and left out of G.
            constant = self._roots @ self._roots.T
            constant /= self._weights.sum()
            constant *= 2.0 * np.trace(rooted)
            rooted += constant
            del constant  # as many numbers as K has
        eigenvalues, vectors = eigenvectors(rooted)
        if centering.subtracts:
            eigenvalues, vectors = eigenvalues[:-1], vectors[:, :-1]
        # A Gram matrix is positive semi-definite; what is below zero is rounding.
        self._eigenvalues, self._eigenvectors = np.maximum(eigenvalues, 0.0), vectors
        self._projected = self._eigenvectors.T @ (self._roots * (Y - centering.target_mean(Y, sample_weight)))
        self._squared = np.square(self._eigenvectors)

    def at(self, ridge: float) -> LeftOut:
        """Return the regression for a ridge, positive."""
        if not 0 < ridge < np.inf:
            raise ValueError(f"ridge must be positive and finite, got {ridge}.")
        damping = 1.0 / (self._eigenvalues + ridge)
        alpha = self._roots * (self._eigenvectors @ (self._projected * damping[:, None]))
        diagonal = self._weights * (self._squared @ damping)
        return LeftOut(ridge, alpha, alpha / diagonal[:, None], self._weights, self._eigenvalues, self._eigenvectors)

    def losses(self, ridges: Sequence[float]) -> np.ndarray:
        """Return `LeftOut.loss` for each ridge, shape (L,), in two products of matrices."""
        (r, q), m = self._projected.shape, len(self._weights)
        losses, step = np.empty(len(ridges)), max(1, MOST_NUMBERS // (q * m))
        for start in range(0, len(ridges), step):
            damping = 1.0 / (self._eigenvalues[:, None] + np.asarray(ridges[start : start + step]))
            projected = (self._projected[:, :, None] * damping[:, None, :]).reshape(r, -1)
            alpha = (self._roots * (self._eigenvectors @ projected)).reshape(m, q, -1)
            diagonal = self._weights[:, None] * (self._squared @ damping)
            losses[start : start + step] = self._weights @ np.square(alpha / diagonal[:, None]).sum(axis=1)
        return losses

    def best(self, ridges: Sequence[float]) -> LeftOut:
        """Return the regression whose leave-one-out residuals have the least sum of squares."""
        return self.at(ridges[int(np.argmin(self.losses(ridges)))])
