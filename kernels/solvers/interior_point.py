r"""Interior points for support vector machines: with the kernel given, and with its weights on a simplex to be found.

Active sets settle in a few passes where the free rows determine the machine. Kernels of low rank (a few linear
features) with a large C do not let them, and the value is not differentiable in weights that are zero. A primal-dual
method on the optimality conditions of machine and weights together does not depend on either: some twenty to forty
factors, whatever the rank and C.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learnkernels.kernels.engine.operators import GramOperator
from learnkernels.kernels.solvers.low_rank import Gram, among, combination, signed_solver

MOST_STEPS = 120
"""Newton steps; twenty to forty are usual."""

SHORTEST_STEP = 1e-8
"""A step this short has met the rounding of its system."""

TO_BOUNDARY = 0.995
"""Share of the way to the nearest bound that a step goes."""


@dataclass
class Block:
    r"""Coefficients of one binary machine between their bounds, as shares x of C, with the bounds' multipliers.

    .. math:: \min_{0 \le x \le 1,\; y^\top x = 0} \; C\, x^\top Q x - 2\, \mathbf 1^\top x,
              \qquad Q = (y y^\top) \circ K

    Attributes
    ----------
    y : ndarray of shape (n,)
        Signs.
    x, rest : ndarray of shape (n,)
        Shares, and one less them; positive.
    b : float
        Multiplier of the constraint that signed shares sum to zero.
    lower, upper : ndarray of shape (n,)
        Multipliers of the bounds; positive.
    """

    y: np.ndarray
    x: np.ndarray
    rest: np.ndarray
    b: float
    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def start(cls, y: np.ndarray) -> Block:
        """Return the middle of the box; multipliers of the size of the objective's linear part."""
        return cls(y, np.full(len(y), 0.5), np.full(len(y), 0.5), 0.0, np.full(len(y), 2.0), np.full(len(y), 2.0))

    def complementarity(self) -> float:
        """Return the sum of the products of slacks and multipliers."""
        return float(self.x @ self.lower + self.rest @ self.upper)

    def barrier(self) -> np.ndarray:
        """Return the diagonal that the bounds add to the system."""
        return np.asarray(self.lower / self.x + self.upper / self.rest)

    def residual(self, gradient: np.ndarray) -> np.ndarray:
        """Return what is missing in the stationarity, for the gradient of the objective."""
        return -(gradient + 2 * self.b * self.y - self.lower + self.upper)

    def centering(self, target: float, dx: np.ndarray, dl: np.ndarray, du: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what the products of slacks and multipliers are short of `target`, corrected to second order."""
        return target - self.x * self.lower - dx * dl, target - self.rest * self.upper + dx * du

    def multipliers(self, dx: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the change of the multipliers that goes with a change of x."""
        return (low - self.lower * dx) / self.x, (high + self.upper * dx) / self.rest

    def longest(self, dx: np.ndarray, dl: np.ndarray, du: np.ndarray) -> tuple[float, float]:
        """Return the longest steps of coefficients and of multipliers that stay inside."""
        return (
            min(longest_step(self.x, dx), longest_step(self.rest, -dx)),
            min(longest_step(self.lower, dl), longest_step(self.upper, du)),
        )

    def feasible(self, intercept: bool) -> np.ndarray:
        """Return coefficients in the box, which of a machine with an intercept meet ``y . x = 0`` exactly."""
        if not intercept:
            return self.x
        positive, negative = self.x[self.y > 0].sum(), self.x[self.y < 0].sum()
        total = min(positive, negative)
        return np.where(self.y > 0, self.x * (total / positive), self.x * (total / negative))

    def left(self, dx: np.ndarray, dl: np.ndarray, du: np.ndarray, primal: float, dual: float) -> float:
        """Return the sum of the products of slacks and multipliers after a step of two lengths."""
        x, rest = self.x + primal * dx, self.rest - primal * dx
        return float(x @ (self.lower + dual * dl) + rest @ (self.upper + dual * du))

    def move(self, dx: np.ndarray, db: float, dl: np.ndarray, du: np.ndarray, primal: float, dual: float) -> None:
        """Take a step of two lengths."""
        # Both slacks are kept: the difference to one would lose the digits of the smaller.
        self.x, self.rest = self.x + primal * dx, self.rest - primal * dx
        self.b += dual * db
        self.lower, self.upper = self.lower + dual * dl, self.upper + dual * du


def longest_step(value: np.ndarray, change: np.ndarray) -> float:
    """Return the longest step along a change for which positive values stay so."""
    falling = change < 0
    return float(np.min(-value[falling] / change[falling])) if falling.any() else np.inf


def machine_by_interior_point(K: Gram, y: np.ndarray, C: float, tolerance: float, intercept: bool = True) -> np.ndarray:
    """Return the coefficients of a binary support vector machine, shape (n,).

    Parameters
    ----------
    K : ndarray of shape (n, n) or LowRankGram
        Positive semi-definite. Not modified.
    y : ndarray of shape (n,)
        Plus and minus one, both present.
    C : float
        Bound of the coefficients.
    tolerance : float
        Products of slacks and multipliers to reach, relative to the objective.
    intercept : bool, default True
        Whether the machine has one, so that signed coefficients sum to zero.

    Notes
    -----
    Mehrotra's predictor and corrector, one Cholesky factor a step, O(n^3 / 3), of r features O(n r^2).
    """
    block = Block.start(y)
    least, best = np.inf, block.x
    for _ in range(MOST_STEPS):
        gradient = (2 * C) * y * (K @ (y * block.x)) - 2
        objective = abs(float(block.x @ (gradient - 2))) / 2
        mean = block.complementarity() / (2 * len(y))
        missing = block.residual(gradient)
        short = max(_relative(2 * len(y) * mean, objective), float(np.abs(missing).max()))
        if short < least:  # a later step may lose to rounding what was reached
            least, best = short, block.feasible(intercept)
        if short <= tolerance:
            break
        solve = signed_solver(K, 2 * C, y, block.barrier())
        solved_y = solve(y)
        dx = dl = du = np.zeros(len(y))
        target, db = 0.0, 0.0
        for corrector in (False, True):
            low, high = block.centering(target, dx, dl, du)
            right = missing + low / block.x - high / block.rest
            solved = solve(right)
            db = (y @ solved + y @ block.x) / (2 * (y @ solved_y)) if intercept else 0.0
            dx = solved - 2 * db * solved_y
            dl, du = block.multipliers(dx, low, high)
            if not corrector:
                target = _target(mean, [(block, dx, dl, du)], len(y))
        primal, dual = (min(1.0, TO_BOUNDARY * length) for length in block.longest(dx, dl, du))
        if not (np.isfinite(dx).all() and primal > SHORTEST_STEP):
            break
        block.move(dx, db, dl, du, primal, dual)
    return C * best


def _relative(products: float, objective: float) -> float:
    return products / max(objective, np.finfo(np.float64).tiny)


def _target(mean: float, steps: list[tuple[Block, np.ndarray, np.ndarray, np.ndarray]], n: int) -> float:
    """Return the products of slacks and multipliers to aim for, from what the affine step would leave."""
    left = 0.0
    primal = min(1.0, *(block.longest(*step)[0] for block, *step in steps))
    dual = min(1.0, *(block.longest(*step)[1] for block, *step in steps))
    for block, dx, dl, du in steps:
        left += block.left(dx, dl, du, primal, dual)
    return mean * (left / (2 * n * mean)) ** 3


@dataclass(frozen=True)
class Joint:
    """Machines and weights that solve their problem together.

    Attributes
    ----------
    mu : ndarray of shape (p,)
        Weights, not negative, of the sum asked for.
    dual : ndarray of shape (m, n_pairs)
        ``y * a`` of each pair.
    steps : int
        Newton steps taken.
    """

    mu: np.ndarray
    dual: np.ndarray
    steps: int


def weights_by_interior_point(
    grams: GramOperator,
    pairs: list[tuple[np.ndarray, np.ndarray]],
    C: float,
    total: float,
    working: np.ndarray,
    tolerance: float,
) -> Joint:
    r"""Return the weights on a simplex and the machines that solve the minimax problem together.

    .. math:: \min_{\mu \ge 0,\; \sum \mu_k = \Lambda} \; \max_{0 \le a \le C,\; y^\top a = 0}
              \; 2\, \mathbf 1^\top a - \sum_k \mu_k\, (y \circ a)^\top K_k (y \circ a)

    Parameters
    ----------
    grams : GramOperator
        p base kernels over m rows.
    pairs : list of (ndarray, ndarray)
        Rows and signs of each binary machine; the objective is their sum.
    C : float
        Bound of the coefficients.
    total : float
        Lambda.
    working : ndarray of int of shape (w,)
        Base kernels that may carry weight; the others stay at zero.
    tolerance : float
        Products of slacks and multipliers to reach, relative to the objective.

    Notes
    -----
    Mehrotra's predictor and corrector on the optimality conditions of both sides. A step costs one `combine`, one
    `products`, a Cholesky factor for each pair, and a system of size w + n_pairs + 1.

    References
    ----------
    Lanckriet et al. (2004), JMLR 5:27-72, pose the dual as a quadratically constrained program; Mehrotra (1992), SIAM
    Journal on Optimization 2:575-601.
    """
    path, steps, least = _JointPath(grams, pairs, C, total, working), 0, np.inf
    while True:
        short = path.measure().short()
        if short < least or not steps:  # a later step may lose to rounding what was reached
            least, weights = short, path.mu
            shares = [block.feasible(path.intercept) for block in path.blocks]
        if short <= tolerance or steps == MOST_STEPS or not path.step():
            break
        steps += 1
    mu = np.zeros(grams.n_kernels)
    mu[working] = weights * (total / weights.sum())
    dual = np.zeros((grams.n_rows, len(pairs)))
    for j, (x, (rows, y)) in enumerate(zip(shares, pairs, strict=True)):
        dual[rows, j] = C * y * x
    return Joint(mu, dual, steps)


Step = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Changes of a block's coefficients and of the multipliers of its bounds."""


class _JointPath:
    """The iterate of `weights_by_interior_point`: blocks of coefficients, weights mu, slacks of the forms below t."""

    def __init__(
        self,
        grams: GramOperator,
        pairs: list[tuple[np.ndarray, np.ndarray]],
        C: float,
        total: float,
        working: np.ndarray,
    ) -> None:
        self.grams, self.pairs, self.C, self.total, self.working = grams, pairs, C, total, working
        self.blocks = [Block.start(y) for _, y in pairs]
        self.mu, self.slack, self.t = np.full(len(working), total / len(working)), np.empty(0), 0.0
        self.count = sum(len(y) for _, y in pairs) + len(working) / 2
        self.intercept = grams.centering.intercept

    def measure(self) -> _JointPath:
        """Compute what the optimality conditions are short of; returns itself."""
        beta = np.zeros((self.grams.n_rows, len(self.pairs)))
        for j, (block, (rows, y)) in enumerate(zip(self.blocks, self.pairs, strict=True)):
            beta[rows, j] = y * block.x
        products = self.grams.products(beta)[self.working]
        forms = self.C * np.einsum("kiq,iq->k", products, beta)
        if not len(self.slack):
            largest = float(forms.max())
            self.t, self.slack = 1.1 * largest, 1.2 * largest - forms
        mixed = np.tensordot(self.mu, products, axes=1)
        # The gradients of the forms, a column each.
        self.gradients = [2 * self.C * (y[:, None] * products[:, rows, j].T) for j, (rows, y) in enumerate(self.pairs)]
        self.missing = [
            block.residual(2 * self.C * y * mixed[rows, j] - 2)
            for j, (block, (rows, y)) in enumerate(zip(self.blocks, self.pairs, strict=True))
        ]
        self.open_forms = forms + self.slack - self.t
        products_left = sum(block.complementarity() for block in self.blocks) + float(self.mu @ self.slack)
        self.mean = products_left / (2 * self.count)
        return self

    def short(self) -> float:
        """Return what the condition that is met worst is short of."""
        objective = abs(2 * sum(float(block.x.sum()) for block in self.blocks) - self.t * self.total)
        stationary = max(float(np.abs(missing).max()) for missing in self.missing)
        forms = float(np.abs(self.open_forms).max()) * self.total / self.grams.n_rows
        return max(_relative(2 * self.count * self.mean, objective), stationary, forms)

    def step(self) -> bool:
        """Take one step and return whether it could."""
        self._factorise()
        nothing = [(np.zeros(len(y)),) * 3 for _, y in self.pairs]
        steps, small, dslack = self._direction(0.0, nothing, np.zeros(len(self.mu)))
        length = self._length(steps, small, dslack)
        left = float((self.mu + length * small[: len(self.mu)]) @ (self.slack + length * dslack))
        left += sum(block.left(*step, length, length) for block, step in zip(self.blocks, steps, strict=True))
        aim = self.mean * min(left / (2 * self.count * self.mean), 1.0) ** 3
        steps, small, dslack = self._direction(aim, steps, small[: len(self.mu)] * dslack)
        length = self._length(steps, small, dslack)
        if not (np.isfinite(small).all() and length > SHORTEST_STEP):
            return False
        w = len(self.mu)
        for block, step, db in zip(self.blocks, steps, small[w:-1], strict=True):
            block.move(step[0], float(db), step[1], step[2], length, length)
        self.mu, self.slack = self.mu + length * small[:w], self.slack + length * dslack
        self.t += length * float(small[-1])
        return True

    def _factorise(self) -> None:
        """Factorise each pair's system, and form the system of the weights, the intercepts and t that is left."""
        mu = np.zeros(self.grams.n_kernels)
        mu[self.working] = self.mu
        K, w, n_pairs = combination(self.grams, mu), len(self.mu), len(self.pairs)
        self.solves = []
        self.system = np.zeros((w + n_pairs + 1, w + n_pairs + 1))
        self.system[:w, :w] = np.diag(self.slack / self.mu)
        self.system[:w, -1] = self.system[-1, :w] = 1.0
        for j, (block, (rows, y)) in enumerate(zip(self.blocks, self.pairs, strict=True)):
            solve = signed_solver(among(K, rows), 2 * self.C, y, block.barrier())
            solved = solve(np.column_stack([self.gradients[j], y]))
            self.solves.append(solve)
            self.system[:w, :w] += self.gradients[j].T @ solved[:, :-1]
            if not self.intercept:
                self.system[w + j, w + j] = 1.0  # its change is zero
                continue
            cross = self.gradients[j].T @ solved[:, -1]
            self.system[:w, w + j], self.system[w + j, :w] = 2 * cross, cross
            self.system[w + j, w + j] = 2 * (y @ solved[:, -1])

    def _direction(
        self, aim: float, second: list[Step], second_mu: np.ndarray
    ) -> tuple[list[Step], np.ndarray, np.ndarray]:
        """Return the steps of the blocks, of weights, intercepts and t, and of the slacks, towards products `aim`."""
        w = len(self.mu)
        bounds = [block.centering(aim, *step) for block, step in zip(self.blocks, second, strict=True)]
        centered = [
            solve(missing + low / block.x - high / block.rest)
            for solve, missing, (low, high), block in zip(self.solves, self.missing, bounds, self.blocks, strict=True)
        ]
        short = aim - self.mu * self.slack - second_mu
        right = np.zeros(len(self.system))
        right[:w] = self.open_forms + short / self.mu
        for j, (block, (_, y)) in enumerate(zip(self.blocks, self.pairs, strict=True)):
            right[:w] += self.gradients[j].T @ centered[j]
            right[w + j] = y @ centered[j] + y @ block.x if self.intercept else 0.0
        right[-1] = self.total - self.mu.sum()
        small = np.linalg.solve(self.system, right)
        steps: list[Step] = []
        for j, (block, (_, y)) in enumerate(zip(self.blocks, self.pairs, strict=True)):
            pull = self.gradients[j] @ small[:w] + 2 * small[w + j] * y
            dx = centered[j] - self.solves[j](pull)
            steps.append((dx, *block.multipliers(dx, *bounds[j])))
        return steps, small, (short - self.slack * small[:w]) / self.mu

    def _length(self, steps: list[Step], small: np.ndarray, dslack: np.ndarray) -> float:
        """Return the step that stays inside; the forms couple both sides, so they move alike."""
        longest = min(longest_step(self.slack, dslack), longest_step(self.mu, small[: len(self.mu)]))
        for block, step in zip(self.blocks, steps, strict=True):
            longest = min(longest, *block.longest(*step))
        return min(1.0, TO_BOUNDARY * longest)
