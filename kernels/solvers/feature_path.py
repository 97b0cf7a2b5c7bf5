"""Interior points for predictors on rank-one base kernels, whatever the number of features that carry weight."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from learnkernels.kernels.engine.operators import FeatureGrams
from learnkernels.kernels.solvers.factor import factored
from learnkernels.kernels.solvers.interior_point import InteriorPoint, balanced

SMALLEST_START = 1e-3
"""Of the bound s at the start, relative to the longest feature, where no feature is correlated with the start."""

NEGLIGIBLE = 1e-3
"""Share of the smallest entry on a system's diagonal that the features left out of it may add together."""


class Features:
    """The features of rank-one kernels, centered as their operator says; sparse ones stay as they are.

    Attributes
    ----------
    grams : FeatureGrams
        The operator they are taken from.
    Z : ndarray or CSC matrix of shape (m, p)
        Features over the roots of their scales, as the operator has them; a copy by columns where they are sparse.
    means, squares : ndarray of shape (p,)
        Mean of each column, and its squared length once it is centered.
    """

    def __init__(self, grams: FeatureGrams) -> None:
        """Take the features of an operator; O(nnz)."""
        self.grams = grams
        Z: Any = grams.Z
        self.sparse = bool(sparse.issparse(Z))
        self.Z = Z.tocsc() if self.sparse else Z
        self.means = grams.centering.mean(self.Z).ravel()
        squares = self.Z.multiply(self.Z).sum(axis=0) if self.sparse else np.einsum("ik,ik->k", self.Z, self.Z)
        self.squares = np.maximum(np.asarray(squares).ravel() - self.Z.shape[0] * self.means**2, 0.0)

    def scores(self, w: np.ndarray) -> np.ndarray:
        """Return ``Z w`` of the centered features, shape (m,), for w of shape (p,); O(nnz)."""
        return np.asarray(self.Z @ w) - self.means @ w

    def products(self, r: np.ndarray) -> np.ndarray:
        """Return ``z_k . r`` of the centered features, shape (p,), for any r of shape (m,); O(nnz)."""
        return np.asarray(self.Z.T @ self.grams.centering.less_mean(r))

    def gram(self, kernels: np.ndarray) -> np.ndarray:
        """Return the products of a centered features with each other, shape (a, a); O(m a^2), less for sparse ones."""
        part, means = self.Z[:, kernels], self.means[kernels]
        products = part.T @ part
        return np.asarray(products.toarray() if self.sparse else products) - self.Z.shape[0] * np.outer(means, means)


class FeaturePath(InteriorPoint):
    r"""Iterate of a primal-dual method for a predictor's dual with a bound on all features' products at once.

    .. math:: \min_{x,\, s} \; \delta \lVert x \rVert^2 - 2 c^\top x + \kappa s^2
              \quad \text{with } |z_k^\top (y \circ x)| \le s \text{ for each } k

    and, for a machine, :math:`0 \le x \le 1` and, where it has an intercept, :math:`y^\top x = 0`. The multipliers
    :math:`\pi_k, \nu_k \ge 0` of the two sides of each bound give the primal solution, :math:`w = (\pi - \nu) / 2`;
    that of s says :math:`\sum_k \pi_k + \nu_k = 2 \kappa s`.

    Notes
    -----
    Slacks and multipliers of the 2 p bounds are eliminated,

    .. math:: \Big(2 \delta I + D + V^\top E V\Big) dx - V^\top f \, ds + 2 y \, db = \dots, \qquad V = Z^\top
              \operatorname{diag} y, \quad E = \operatorname{diag}(\pi/\sigma^+ + \nu/\sigma^-), \quad
              f = \pi/\sigma^+ - \nu/\sigma^-

    with D the diagonal of the box, so that a step costs one Cholesky factor of size m and one `combine`, whether
    hundreds of features carry weight or all. The number of steps, twenty to forty, depends neither on p nor on the
    regularisation. Where the predictor is all but free of regularisation the last digits of the gap are rounding: the
    caller keeps the best iterate.

    References
    ----------
    Kim, Koh, Lustig, Boyd, Gorinevsky (2007), IEEE Journal of Selected Topics in Signal Processing 1:606-617, for
    interior points on problems with a 1-norm.
    """

    def __init__(
        self, features: Features, linear: np.ndarray, quadratic: float, weight: float, signs: np.ndarray | None = None
    ) -> None:
        """Take features, c of shape (m,), delta, kappa and, for a machine, its signs y."""
        self._features, self._linear, self._quadratic, self._weight = features, linear, quadratic, weight
        self._boxed = 0 if signs is None else len(linear)  # rows between bounds
        self._y = np.ones(len(linear)) if signs is None else signs
        self._intercept = signs is not None and features.grams.centering.intercept
        x = linear / 2
        products = self._products(x)
        s = max(1.1 * float(np.abs(products).max()), SMALLEST_START * float(np.sqrt(features.squares.max())))
        self.slacks = np.concatenate([np.full(2 * self._boxed, 0.5), s - products, s + products])
        of_bounds = np.full(2 * len(products), weight * s / len(products))
        self.multipliers = np.concatenate([np.full(2 * self._boxed, 2.0), of_bounds])
        # s, b, and the coefficients of rows without bounds.
        self.free = np.concatenate([[s, 0.0], [] if self._boxed else x])

    def _parts(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what belongs to the lower bounds of x, to the upper ones, and to the two bounds of each feature."""
        return v[: self._boxed], v[self._boxed : 2 * self._boxed], v[2 * self._boxed :].reshape(2, -1)

    @property
    def x(self) -> np.ndarray:
        """Coefficients of the rows, in a machine inside their box; with an intercept balanced over the signs."""
        if not self._boxed:
            return self.free[2:]
        x = self._parts(self.slacks)[0]
        return balanced(x, self._y) if self._intercept else x

    @property
    def w(self) -> np.ndarray:
        """Coefficients of the features."""
        multipliers = self._parts(self.multipliers)[2]
        return np.asarray(multipliers[0] - multipliers[1]) / 2

    def sparse_w(self) -> np.ndarray:
        """Return w without the features that the bounds leave out: those whose share of w is below that of their slack.

        At a solution one of the two is zero, so towards it the larger one tells which.
        """
        w, slack = self.w, self._parts(self.slacks)[2]
        return np.where(np.abs(w) * self.free[0] > slack.min(axis=0) * np.abs(w).sum(), w, 0.0)

    def _products(self, x: np.ndarray) -> np.ndarray:
        """Return V x, shape (p,)."""
        return self._features.products(self._y * x)

    def _pull(self, v: np.ndarray) -> np.ndarray:
        """Return V' v, shape (m,)."""
        return self._y * self._features.scores(v)

    def factorise(self) -> None:
        """Compute what the optimality conditions are short of, and factor the system of x, s and b."""
        (x, rest, slack), (lower, upper, multipliers) = self._parts(self.slacks), self._parts(self.multipliers)
        self._x, (s, b) = x if self._boxed else self.free[2:], self.free[:2]
        products, ratios = self._products(self._x), multipliers / slack
        self._missing = -2 * (self._quadratic * self._x - self._linear + self._pull(self.w))
        diagonal = np.full(len(self._x), 2 * self._quadratic)
        if self._boxed:
            self._missing += lower - upper - 2 * b * self._y
            diagonal += lower / x + upper / rest
        self._missing_s = float(multipliers.sum()) - 2 * self._weight * s
        self._missing_slack = np.stack([s - products, s + products]) - slack
        E = ratios.sum(axis=0)
        A = self._features.grams.combine(self._relevant(E, float(diagonal.min())))
        A *= self._y
        A *= self._y[:, None]
        A.flat[:: len(A) + 1] += diagonal
        self._factor = factored(A)
        border = [self._pull(ratios[0] - ratios[1])] + ([-2 * self._y] if self._intercept else [])
        self._border = np.column_stack(border)
        self._solved = cho_solve(self._factor, self._border, check_finite=False)
        self._small = -self._border.T @ self._solved
        # As abs(f) <= E, what the elimination takes off is at most the sum of E; rounding may say otherwise.
        self._small[0, 0] = 2 * self._weight + max(self._small[0, 0] + float(E.sum()), 0.0)

    def _relevant(self, E: np.ndarray, smallest: float) -> np.ndarray:
        """Return E without the entries that together add next to nothing: the direction is as good without."""
        added = E * self._features.squares
        order = np.argsort(added, kind="stable")
        E = E.copy()
        E[order[np.cumsum(added[order]) <= NEGLIGIBLE * smallest]] = 0.0
        return E

    def direction(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the changes; see `InteriorPoint.direction`."""
        (x, rest, slack), (lower, upper, multipliers) = self._parts(self.slacks), self._parts(self.multipliers)
        low, high, short = self._parts(right)
        h = (short - multipliers * self._missing_slack) / slack
        missing = self._missing - self._pull(h[0] - h[1])
        if self._boxed:
            missing = missing + low / x - high / rest
        solved = cho_solve(self._factor, missing, check_finite=False)
        known = self._border.T @ solved
        known[0] += float(h.sum()) + self._missing_s
        known[1:] -= 2 * float(self._y @ self._x)
        small = np.linalg.solve(self._small, known)
        dx = solved + self._solved @ small
        products = self._products(dx)
        dslack = np.stack([small[0] - products, small[0] + products]) + self._missing_slack
        dmultipliers = (short - multipliers * dslack) / slack
        free = np.concatenate([small[:1], [small[1:].sum()], [] if self._boxed else dx])
        box = dx[: self._boxed]
        slacks = np.concatenate([box, -box, dslack.ravel()])
        of_box = (low - lower * box) / x, (high + upper * box) / rest
        return slacks, np.concatenate([*of_box, dmultipliers.ravel()]), free
