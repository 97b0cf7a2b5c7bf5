"""Interior points for predictors on rank-one base kernels, whatever the number of features that carry weight."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from learnkernels.kernels.engine.operators import FeatureGrams
from learnkernels.kernels.solvers.factor import factored
from learnkernels.kernels.solvers.interior_point import SHORTEST_STEP, TO_BOUNDARY, Block, longest_step

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


class _Move(NamedTuple):
    """A direction: changes of x and of its bounds' multipliers, of s, of b, of the slacks and of their multipliers."""

    block: tuple[np.ndarray, np.ndarray, np.ndarray]
    s: float
    b: float
    slack: np.ndarray
    multipliers: np.ndarray


class CentralPath:
    r"""Iterate of a primal-dual method for a predictor's dual with a bound on all features' products at once.

    .. math:: \min_{x,\, s} \; \delta \lVert x \rVert^2 - 2 c^\top x + \kappa s^2
              \quad \text{with } |z_k^\top (y \circ x)| \le s \text{ for each } k

    and, for a machine, :math:`0 \le x \le 1` and, where it has an intercept, :math:`y^\top x = 0`. The multipliers
    :math:`\pi_k, \nu_k \ge 0` of the two sides of each bound give the primal solution, :math:`w = (\pi - \nu) / 2`;
    that of s says :math:`\sum_k \pi_k + \nu_k = 2 \kappa s`.

    Attributes
    ----------
    x : ndarray of shape (m,)
    w : ndarray of shape (p,)
        Coefficients of the features.
    slack : ndarray of shape (2, p)
        How far each product is below s and above -s; positive.

    Notes
    -----
    Mehrotra's predictor and corrector. Slacks and multipliers of the 2 p bounds are eliminated,

    .. math:: \Big(2 \delta I + D + V^\top E V\Big) dx - V^\top f \, ds + 2 y \, db = \dots, \qquad V = Z^\top
              \operatorname{diag} y, \quad E = \operatorname{diag}(\pi/\sigma^+ + \nu/\sigma^-), \quad
              f = \pi/\sigma^+ - \nu/\sigma^-

    with D the diagonal of the box, so that a step costs one Cholesky factor of size m and one `combine`, whether
    hundreds of features carry weight or all. The number of steps, twenty to forty, depends neither on p nor on the
    regularisation. Where the predictor is all but free of regularisation the last digits of the gap are rounding: the
    caller keeps the best iterate.

    References
    ----------
    Mehrotra (1992), SIAM Journal on Optimization 2:575-601; Kim, Koh, Lustig, Boyd, Gorinevsky (2007), IEEE Journal of
    Selected Topics in Signal Processing 1:606-617, for interior points on problems with a 1-norm.
    """

    def __init__(
        self, features: Features, linear: np.ndarray, quadratic: float, weight: float, signs: np.ndarray | None = None
    ) -> None:
        """Take features, c of shape (m,), delta, kappa and, for a machine, its signs y."""
        self._features, self._linear, self._quadratic, self._weight = features, linear, quadratic, weight
        self._block = None if signs is None else Block.start(signs)
        self._y = np.ones(len(linear)) if signs is None else signs
        self._intercept = signs is not None and features.grams.centering.intercept
        self._free = linear / 2
        products = self._products(self.x)
        self.s = max(1.1 * float(np.abs(products).max()), SMALLEST_START * float(np.sqrt(features.squares.max())))
        self.slack = np.stack([self.s - products, self.s + products])
        self._multipliers = np.full(self.slack.shape, weight * self.s / len(products))
        self._count = self.slack.size + (0 if self._block is None else 2 * len(linear))

    @property
    def x(self) -> np.ndarray:
        """Coefficients of the rows, in a machine inside their box."""
        return self._free if self._block is None else self._block.x

    @property
    def w(self) -> np.ndarray:
        """Coefficients of the features."""
        return np.asarray(self._multipliers[0] - self._multipliers[1]) / 2

    def balanced(self) -> np.ndarray:
        """Return x in the box, of a machine with an intercept with ``y . x = 0`` exactly."""
        return self.x if self._block is None else self._block.feasible(self._intercept)

    def sparse_w(self) -> np.ndarray:
        """Return w without the features that the bounds leave out: those whose share of w is below that of their slack.

        At a solution one of the two is zero, so towards it the larger one tells which.
        """
        w = self.w
        return np.where(np.abs(w) * self.s > self.slack.min(axis=0) * np.abs(w).sum(), w, 0.0)

    def step(self) -> bool:
        """Take one step, and return whether rounding let it."""
        self._factorise()
        mean = self._complementarity() / self._count
        nothing = (np.zeros(len(self.x)),) * 3
        affine = self._direction(0.0, nothing, np.zeros_like(self.slack))
        length = self._length(affine)
        left = float(np.vdot(self.slack + length * affine.slack, self._multipliers + length * affine.multipliers))
        if self._block is not None:
            left += self._block.left(*affine.block, length, length)
        aim = mean * min(left / (self._count * mean), 1.0) ** 3
        move = self._direction(aim, affine.block, affine.slack * affine.multipliers)
        length = self._length(move)
        if not (np.isfinite(move.block[0]).all() and length > SHORTEST_STEP):
            return False
        if self._block is None:
            self._free = self._free + length * move.block[0]
        else:
            self._block.move(move.block[0], move.b, move.block[1], move.block[2], length, length)
        self.s += length * move.s
        self.slack = self.slack + length * move.slack
        self._multipliers = self._multipliers + length * move.multipliers
        return True

    def _products(self, x: np.ndarray) -> np.ndarray:
        """Return V x, shape (p,)."""
        return self._features.products(self._y * x)

    def _pull(self, v: np.ndarray) -> np.ndarray:
        """Return V' v, shape (m,)."""
        return self._y * self._features.scores(v)

    def _complementarity(self) -> float:
        box = 0.0 if self._block is None else self._block.complementarity()
        return box + float(np.vdot(self.slack, self._multipliers))

    def _factorise(self) -> None:
        """Compute what the optimality conditions are short of, and factor the system of x, s and b."""
        x, ratios = self.x, self._multipliers / self.slack
        gradient = 2 * (self._quadratic * x - self._linear + self._pull(self.w))
        products = self._products(x)
        self._missing = -gradient if self._block is None else self._block.residual(gradient)
        self._missing_s = float(self._multipliers.sum()) - 2 * self._weight * self.s
        self._missing_slack = np.stack([self.s - products, self.s + products]) - self.slack
        E, f = ratios.sum(axis=0), ratios[0] - ratios[1]
        diagonal = np.full(len(x), 2 * self._quadratic)
        if self._block is not None:
            diagonal += self._block.barrier()
        A = self._features.grams.combine(self._relevant(E, float(diagonal.min())))
        A *= self._y
        A *= self._y[:, None]
        A.flat[:: len(A) + 1] += diagonal
        self._factor = factored(A)
        self._border = np.column_stack([self._pull(f)] + ([-2 * self._y] if self._intercept else []))
        self._solved = cho_solve(self._factor, self._border, check_finite=False)
        self._small = -self._border.T @ self._solved
        # As abs(f) <= E, what the elimination takes off is at most the sum of E; rounding may say otherwise.
        self._small[0, 0] = 2 * self._weight + max(self._small[0, 0] + float(E.sum()), 0.0)

    def _relevant(self, E: np.ndarray, smallest: float) -> np.ndarray:
        """Return E without the entries that together add next to nothing: the direction is as good without."""
        added = E * self._features.squares
        order = np.argsort(added, kind="stable")
        out = order[np.cumsum(added[order]) <= NEGLIGIBLE * smallest]
        E = E.copy()
        E[out] = 0.0
        return E

    def _direction(
        self, aim: float, second: tuple[np.ndarray, np.ndarray, np.ndarray], second_slack: np.ndarray
    ) -> _Move:
        """Return the step towards products of slacks and multipliers of size `aim`, corrected to second order."""
        short = aim - self._multipliers * self.slack - second_slack
        h = (short - self._multipliers * self._missing_slack) / self.slack
        right = self._missing - self._pull(h[0] - h[1])
        if self._block is not None:
            low, high = self._block.centering(aim, *second)
            right = right + low / self._block.x - high / self._block.rest
        solved = cho_solve(self._factor, right, check_finite=False)
        known = self._border.T @ solved
        known[0] += float(h.sum()) + self._missing_s
        if self._block is not None and self._intercept:
            known[1] -= 2 * float(self._y @ self._block.x)
        small = np.linalg.solve(self._small, known)
        dx = solved + self._solved @ small
        ds, products = float(small[0]), self._products(dx)
        slack = np.stack([ds - products, ds + products]) + self._missing_slack
        multipliers = (short - self._multipliers * slack) / self.slack
        if self._block is None:
            return _Move((dx, np.zeros(0), np.zeros(0)), ds, 0.0, slack, multipliers)
        return _Move((dx, *self._block.multipliers(dx, low, high)), ds, float(small[1:].sum()), slack, multipliers)

    def _length(self, move: _Move) -> float:
        """Return the step that stays inside; the quadratic terms couple both sides, so they move alike."""
        longest = min(
            longest_step(self.slack.ravel(), move.slack.ravel()),
            longest_step(self._multipliers.ravel(), move.multipliers.ravel()),
        )
        if self._block is not None:
            longest = min(longest, *self._block.longest(*move.block))
        return min(1.0, TO_BOUNDARY * longest)
