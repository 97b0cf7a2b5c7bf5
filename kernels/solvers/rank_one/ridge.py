r"""Kernel ridge regression of one target on rank-one kernels as the inner problem of a one-stage learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from learnkernels.kernels.engine.operators import FeatureGrams
from learnkernels.kernels.solvers.factor import ridge_factor
from learnkernels.kernels.solvers.minimax import Curvature, InnerSolution
from learnkernels.kernels.solvers.rank_one.path import Features


class FeatureRidge:
    r"""The value of kernel ridge regression as a function of the weights of rank-one kernels.

    .. math:: J(\mu) = y^\top (Z \operatorname{diag}(\mu) Z^\top + \lambda I)^{-1} y
              = \min_w \tfrac1\lambda \lVert y - Z w \rVert^2 + \sum_k \frac{w_k^2}{\mu_k}

    Attributes
    ----------
    features : Features
        p of them over m rows, centered.
    y : ndarray of shape (m,)
        Centered target.
    ridge : float
        lambda.

    Notes
    -----
    Every solution takes one Cholesky factor of the smaller of m and p rows, and O(nnz) besides. So does the step of
    Newton's method over the weights (`Ball`): with :math:`b = Z^\top \alpha` forms are :math:`b_k^2` and the Hessian is
    :math:`H = 2 \operatorname{diag}(b) Z^\top (K_\mu + \lambda I)^{-1} Z \operatorname{diag}(b)`, so that what the
    step multiplies it by cancels b, and leaves another weighted sum of the kernels.
    """

    def __init__(self, grams: FeatureGrams, y: np.ndarray, ridge: float) -> None:
        """Take p rank-one kernels over m rows, the centered target of shape (m,), and lambda."""
        self.features = Features(grams)
        self.y, self.ridge = y, ridge

    @property
    def grams(self) -> FeatureGrams:
        """The base kernels."""
        return self.features.grams

    @cached_property
    def _products(self) -> np.ndarray:
        return self.features.gram(np.arange(self.grams.n_kernels))

    def at(self, mu: np.ndarray) -> InnerSolution:
        """Solve at the weights mu, shape (p,), none of them negative.

        Raises
        ------
        ValueError
            The matrix ``K_mu + lambda I`` is not positive definite up to rounding.
        """
        alpha = self.factor(mu)(self.y)
        b = self.features.products(alpha)
        residual = self.y - self.features.scores(mu * b)
        constant = float(2 * alpha @ self.y - self.ridge * (alpha @ alpha))
        # The primal value of the coefficients mu * b: whatever the rounding of alpha, J is not above it.
        value = float(residual @ residual) / self.ridge + float(mu @ b**2)
        return InnerSolution(value, constant, b**2, alpha[:, None], self._hessian(mu, b), _Curvature(self, mu, b))

    def factor(self, weights: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return what solves with the weighted sum of the kernels plus lambda I, from one Cholesky factor.

        Raises
        ------
        ValueError
            The matrix is not positive definite up to rounding.
        """
        features, ridge = self.features, self.ridge
        if self.grams.n_kernels > self.grams.n_rows:
            K = ridge_factor(self.grams.combine(weights), ridge)
            return lambda x: np.asarray(cho_solve(K, x, check_finite=False))
        roots = np.sqrt(weights)
        G = ridge_factor(self._products * roots[:, None] * roots, ridge)

        def solve(x: np.ndarray) -> np.ndarray:
            u = cho_solve(G, roots * features.products(x), check_finite=False)
            return np.asarray((x - features.scores(roots * u)) / ridge)

        return solve

    def _hessian(self, mu: np.ndarray, b: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        def hessian(kernels: np.ndarray) -> np.ndarray:
            Z: Any = self.features.Z[:, kernels]
            P = (Z.toarray() if self.features.sparse else Z) - self.features.means[kernels]
            P = P * b[kernels]
            solve = self.factor(mu)
            return np.asarray(2 * P.T @ np.stack([solve(column) for column in P.T], axis=1))

        return hessian


@dataclass(frozen=True)
class _Curvature(Curvature):
    """Solves the system of Newton's step by one more factor."""

    problem: FeatureRidge
    mu: np.ndarray
    b: np.ndarray

    def newton(self, w: np.ndarray, t: np.ndarray, N: float, power: float, right: np.ndarray) -> np.ndarray:
        r"""Return x with :math:`(I + r\,(\operatorname{diag}(w/v) - w t^\top/N) H)\, x = g`.

        Notes
        -----
        By the formula of Sherman, Morrison and Woodbury, as :math:`v = b^2`,

        .. math:: x = g - 2 r \Big(\frac{w}{b} \circ a - \frac{t^\top (b \circ a)}{N} w\Big), \quad
                  a = Z^\top \Big(K_{\mu + 2 r w} + \lambda I - \frac{2 r}{N} e f^\top\Big)^{-1} Z (b \circ g)

        with :math:`e = Z (b \circ w)` and :math:`f = Z (b \circ t)`.
        """
        features, b = self.problem.features, self.b
        solve = self.problem.factor(self.mu + 2 * power * w)
        e, f = features.scores(b * w), features.scores(b * t)
        from_right, from_e = solve(features.scores(b * right)), solve(e)
        share = 2 * power / N
        a = features.products(from_right + from_e * (share * float(f @ from_right) / (1 - share * float(f @ from_e))))
        ratio = np.divide(w, b, out=np.zeros_like(b), where=w > 0)
        return np.asarray(right - 2 * power * (ratio * a - (float(t @ (b * a)) / N) * w))
