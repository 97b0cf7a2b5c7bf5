"""Kernel ridge regression as the inner problem of a one-stage learner."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve

from learnkernels.kernels.engine.operators import GramOperator
from learnkernels.kernels.solvers.factor import Factor, ridge_factor
from learnkernels.kernels.solvers.minimax import InnerSolution
from learnkernels.kernels.targets import Target

NEAR = 0.03
"""Largest change of a weight, relative to the largest weight, after which the last factor is tried again."""

MOST_REFINEMENTS = 2
"""Passes over the base kernels that a solution from the last factor may take; a new factor costs about five."""

REFINED = 1e-12
"""Share of the objective that the residual of a refined solution may add to it."""


@dataclass(frozen=True)
class _Solved:
    """A solution that others near it start from.

    Attributes
    ----------
    mu : ndarray of shape (p,)
    alpha : ndarray of shape (m, q)
    factor : tuple
        Cholesky factor of ``K + lambda I`` there, or near there.
    response : tuple or None
        Some base kernels, and minus the derivative of alpha by their weights, shape (m, k, q).
    """

    mu: np.ndarray
    alpha: np.ndarray
    factor: Factor
    response: tuple[np.ndarray, np.ndarray] | None = None


class RidgeProblem:
    r"""The value of kernel ridge regression as a function of the kernel's weights.

    .. math:: J(\mu) = \max_\alpha\; 2 \operatorname{tr} \alpha^\top Y - \lambda \lVert \alpha \rVert^2
              - \operatorname{tr} \alpha^\top K_\mu \alpha
              = \operatorname{tr} Y^\top (K_\mu + \lambda I)^{-1} Y, \qquad K_\mu = \sum_k \mu_k K_k

    Attributes
    ----------
    grams : GramOperator
        p base kernels over m rows.
    Y : ndarray of shape (m, q)
        Targets less their mean, which is the intercept of a centered kernel; as they are for others.
    ridge : float
        lambda.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI, equation (3); (2009), NIPS, equation (10).
    """

    def __init__(self, grams: GramOperator, target: Target, regularisation: float) -> None:
        """Take the training rows; ``lambda = 1 / regularisation``.

        Raises
        ------
        ValueError
            The regularisation is not positive and finite.
        """
        if not 0 < regularisation < np.inf:
            raise ValueError(f"regularisation must be positive and finite, got {regularisation}; it is 1 / lambda.")
        self._grams = grams
        self.Y = target.Y - grams.centering.target_mean(target.Y)
        self.ridge = 1.0 / regularisation
        self._last: _Solved | None = None

    @property
    def grams(self) -> GramOperator:
        """The base kernels."""
        return self._grams

    def at(self, mu: np.ndarray) -> InnerSolution:
        r"""Solve at the weights mu, shape (p,).

        Raises
        ------
        ValueError
            The matrix ``K_mu + lambda I`` is not positive definite up to rounding.

        Notes
        -----
        O(p m^2 q) and a Cholesky factor, O(m^3 / 3). Near the weights of the last factor none is taken: the change of
        alpha is predicted to first order, and what is left of the equation solved by refinement with the old factor.
        `objective` is then the primal value, above J by the squared residual over lambda. The Hessian, when asked for,
        costs O(p q m^2 + p^2 q m) more:

        .. math:: H_{kl} = 2 \operatorname{tr} (K_k \alpha)^\top (K_\mu + \lambda I)^{-1} (K_l \alpha)
        """
        if self._last is not None and np.abs(mu - self._last.mu).max() <= NEAR * self._last.mu.max():
            refined = self._refine(mu, self._last)
            if refined is not None:
                return refined
        factor = ridge_factor(self._grams.combine(mu), self.ridge)
        alpha = cho_solve(factor, self.Y, check_finite=False)
        return self._inner(mu, alpha, self._grams.products(alpha), factor, 0.0)

    def _refine(self, mu: np.ndarray, last: _Solved) -> InnerSolution | None:
        """Return the solution near the last one, from its factor, or None if that does not come close enough."""
        alpha = last.alpha
        if last.response is not None:
            kernels, response = last.response
            alpha = alpha - np.einsum("k,ikq->iq", (mu - last.mu)[kernels], response)
        for _ in range(MOST_REFINEMENTS):
            products = self._grams.products(alpha)
            residual = self.Y - np.einsum("k,kiq->iq", mu, products) - self.ridge * alpha
            excess = float(np.vdot(residual, residual)) / self.ridge
            if excess <= REFINED * float(np.vdot(alpha, self.Y)):
                return self._inner(mu, alpha, products, last.factor, excess)
            alpha = alpha + cho_solve(last.factor, residual, check_finite=False)
        return None

    def _inner(
        self, mu: np.ndarray, alpha: np.ndarray, products: np.ndarray, factor: Factor, excess: float
    ) -> InnerSolution:
        """Return the inner solution, and keep what a solution near it starts from."""
        forms = np.einsum("kiq,iq->k", products, alpha)
        constant = float(2 * np.vdot(alpha, self.Y) - self.ridge * np.vdot(alpha, alpha))
        solved = _Solved(mu, alpha, factor)

        def hessian(kernels: np.ndarray) -> np.ndarray:
            P = products[kernels].transpose(1, 0, 2).reshape(len(alpha), -1)
            shape = (len(alpha), len(kernels), -1)
            response = cho_solve(factor, P, check_finite=False).reshape(shape)
            self._last = replace(solved, response=(kernels, response))
            return 2 * np.einsum("ikq,ilq->kl", P.reshape(shape), response, optimize=True)

        self._last = solved
        return InnerSolution(constant - float(mu @ forms) + excess, constant, forms, alpha, hessian)
