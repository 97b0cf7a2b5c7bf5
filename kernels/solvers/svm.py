"""The support vector machine as the inner problem of a one-stage learner, solved to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from learnkernels.kernels.engine.operators import FeatureGrams, GramOperator, TiledGrams, has_room
from learnkernels.kernels.solvers.interior_point import machine_by_interior_point
from learnkernels.kernels.solvers.low_rank import Gram, LandmarkGrams, Solve, among, combination, solver
from learnkernels.kernels.solvers.minimax import InnerSolution
from learnkernels.kernels.targets import Target

FEASIBLE = 1e-9
"""How far, in units of the margin, a point may lie on the wrong side of its condition."""

AT_BOUND = 1e-8
"""Coefficients within this share of C from a bound count as at it when a solution of scikit-learn is taken over."""

MOST_PASSES = 12
"""Passes of the active-set method from one starting point."""

START_TOLERANCE, START_ITERATIONS = 1e-3, 50_000
"""Of scikit-learn's solver, which gives the first guess of the bounds."""

FINE_TOLERANCE = 1e-10
"""Of the interior points, which are asked where the active sets do not settle."""

SWEEPS = 20
"""Times that each coefficient is moved for the first guess of a machine without intercept."""

RIDGE = 1e-11
"""Added to the diagonal of the free block, relative to its mean, so that dependent rows share their coefficients."""


@dataclass(frozen=True)
class Machine:
    r"""Solution of a binary support vector machine.

    .. math:: \max_{0 \le a \le C,\; y^\top a = 0} 2\, \mathbf 1^\top a - (y \circ a)^\top K (y \circ a)

    One without intercept does without the condition :math:`y^\top a = 0`.

    Attributes
    ----------
    coefficients : ndarray of shape (n,)
        a.
    intercept : float
        b, that of least loss; zero for a machine without.
    free : ndarray of int of shape (f,)
        Positions strictly between the bounds.
    solve : callable or None
        What solves with K on the free rows, where it was left over.
    """

    coefficients: np.ndarray
    intercept: float
    free: np.ndarray
    solve: Solve | None = None


class SupportVectorProblem:
    r"""The value of a support vector machine as a function of the kernel's weights.

    .. math:: J(\mu) = \max_{0 \le a \le C,\; y^\top a = 0} 2\, \mathbf 1^\top a - (y \circ a)^\top K_\mu (y \circ a)

    Several classes are set one against one; J is then the sum over their pairs. On base kernels that are not centered
    machines have no intercept, and coefficients need not be in balance.

    Attributes
    ----------
    grams : GramOperator
        p base kernels over m rows.
    pairs : list of (ndarray, ndarray)
        Rows and signs of each binary problem.
    C : float

    References
    ----------
    Lanckriet et al. (2004), JMLR 5:27-72; as stated in Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """

    def __init__(self, grams: GramOperator, target: Target, regularisation: float) -> None:
        """Take the training rows; ``C = regularisation``.

        Raises
        ------
        ValueError
            The regularisation is not positive and finite, or the target is not of classes.
        """
        if not 0 < regularisation < np.inf:
            raise ValueError(f"regularisation must be positive and finite, got {regularisation}; it is C.")
        if target.task != "classification":
            raise ValueError("a support vector machine needs a classification, got a regression; use a KRR learner.")
        self._grams, self._intercept = grams, grams.centering.intercept
        self.C = float(regularisation)
        self.pairs = []
        for first, second in combinations(np.unique(target.values).tolist(), 2):
            rows = np.flatnonzero((target.values == first) | (target.values == second))
            self.pairs.append((rows, np.where(target.values[rows] == second, 1.0, -1.0)))
        self._machines: list[Machine | None] = [None] * len(self.pairs)

    @property
    def grams(self) -> GramOperator:
        """The base kernels."""
        return self._grams

    def at(self, mu: np.ndarray) -> InnerSolution:
        """Solve at the weights mu, shape (p,), from the last solution.

        Notes
        -----
        `objective` is the primal value, an upper bound of J also where the solver stopped short; `constant` belongs to
        the dual solution, so that the gap between both shows it. The Hessian holds while the free rows stay the same:
        J is once differentiable everywhere and twice between such changes.

        .. math:: H_{kl} = 2\\, g_k^\\top Z g_l, \\qquad g_k = (K_k \\beta)_{free}

        with Z the inverse of the free block of K_mu, with an intercept on coefficients that sum to zero.
        """
        K = combination(self._grams, mu)
        dual = np.zeros((len(K), len(self.pairs)))
        solved: list[tuple[np.ndarray, Solve]] = []
        primal = 0.0
        for j, (rows, y) in enumerate(self.pairs):
            K_pair = among(K, rows)
            machine = solve_machine(K_pair, y, self.C, self._machines[j], self._intercept)
            self._machines[j] = replace(machine, solve=None)
            beta = y * machine.coefficients
            dual[rows, j] = beta
            scores = K_pair @ beta
            loss = np.maximum(0.0, 1.0 - y * (scores + machine.intercept)).sum()
            primal += float(beta @ scores + 2 * self.C * loss)
            solved.append((rows[machine.free], machine.solve or solver(among(K_pair, machine.free), RIDGE)))
        products = self._grams.products(dual)
        # The matrices end here; what the Hessian needs of them are p columns a pair.
        respond = _on_plane if self._intercept else _in_space
        columns = [(g, respond(solve, g)) for g, solve in _free_columns(products, solved, int(self._intercept))]

        def hessian(kernels: np.ndarray) -> np.ndarray:
            H = np.zeros((len(kernels), len(kernels)))
            for g, Zg in columns:
                H += 2 * g[:, kernels].T @ Zg[:, kernels]
            return H

        return InnerSolution(
            objective=primal,
            constant=float(2 * np.abs(dual).sum()),
            forms=np.einsum("kiq,iq->k", products, dual),
            dual=dual,
            hessian=hessian,
        )


def machine_problem(grams: GramOperator, target: Target, regularisation: float) -> SupportVectorProblem:
    """Return the machine as an inner problem: on all pairs of rows where a matrix of theirs fits, or on features.

    These are of landmarks, but for rank-one base kernels, which have their own.

    Raises
    ------
    ValueError
        As `SupportVectorProblem`, or the features take too much memory.
    """
    if not has_room(grams.n_rows):
        if isinstance(grams, FeatureGrams):
            grams = LandmarkGrams.of_features(grams)
        elif isinstance(grams, TiledGrams):
            grams = LandmarkGrams.of(grams)
    return SupportVectorProblem(grams, target, regularisation)


def solve_machine(K: Gram, y: np.ndarray, C: float, start: Machine | None = None, intercept: bool = True) -> Machine:
    """Return the solution of a binary machine, from a neighbouring one where it is given.

    Parameters
    ----------
    K : ndarray of shape (n, n) or LowRankGram
        Positive semi-definite. Not modified.
    y : ndarray of shape (n,)
        Plus and minus one, both present.
    C : float
        Bound of the coefficients.
    start : Machine, optional
        Solution of a like problem over the same rows.
    intercept : bool, default True
        Whether the machine has one.

    Notes
    -----
    Newton's method on the optimality conditions, which is a primal-dual active-set method: O(f^3) a pass for f rows
    strictly between the bounds, a handful of passes from a neighbouring solution, and then exact to rounding. Where it
    does not settle, scikit-learn's solver gives a better start, and then a method of interior points, whose solution
    holds in any case; of features these come first. Without intercept coefficients are moved one by one for the first
    guess.
    """
    if start is not None:
        machine = _active_sets(K, y, C, start.coefficients, intercept)
        if machine is not None:
            return machine
    if isinstance(K, np.ndarray):
        guess = (_by_decomposition if intercept else _by_coordinates)(K, y, C)
        machine = _active_sets(K, y, C, guess, intercept)
        if machine is not None:
            return machine
    a = machine_by_interior_point(K, y, C, FINE_TOLERANCE, intercept)
    machine = _active_sets(K, y, C, a, intercept)
    if machine is not None:
        return machine
    b = best_intercept(K @ (y * a), y) if intercept else 0.0
    return Machine(a, b, np.flatnonzero((a > AT_BOUND * C) & (a < (1 - AT_BOUND) * C)))


def _by_decomposition(K: np.ndarray, y: np.ndarray, C: float) -> np.ndarray:
    """Return about the coefficients, from scikit-learn's solver, shape (n,)."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning  # here, because it brings pandas along
    from sklearn.svm import SVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a first guess is enough
        fitted = SVC(kernel="precomputed", C=C, tol=START_TOLERANCE, max_iter=START_ITERATIONS).fit(K, y)
    a = np.zeros(len(y))
    a[fitted.support_] = np.abs(fitted.dual_coef_[0])
    return a


def _by_coordinates(K: np.ndarray, y: np.ndarray, C: float) -> np.ndarray:
    """Return about the coefficients of a machine without intercept, shape (n,): each in turn takes its best value."""
    a, gain, own = np.zeros(len(y)), np.ones(len(y)), np.maximum(K.diagonal(), np.finfo(np.float64).tiny)
    for _ in range(SWEEPS):
        for i in range(len(y)):
            step = min(max(a[i] + gain[i] / own[i], 0.0), C) - a[i]
            if step:
                a[i] += step
                gain -= (step * y[i]) * y * K[i]
    return a


def _active_sets(K: Gram, y: np.ndarray, C: float, a: np.ndarray, intercept: bool) -> Machine | None:
    """Return the solution, from coefficients whose bounds are a guess of its bounds, or None."""
    low, high = a <= AT_BOUND * C, a >= (1 - AT_BOUND) * C
    for _ in range(MOST_PASSES):
        f = np.flatnonzero(~(low | high))
        if not len(f) and intercept:
            return None
        beta = np.where(high, y * C, 0.0)
        K_free = solve = None  # of the pass before: their memory goes before this pass takes as much
        K_free = among(K, f)
        solve = solver(K_free, RIDGE)
        right, b = y[f] - (K @ beta)[f], 0.0
        if intercept:
            beta[f], b = _bordered(K_free, solve, right, -beta.sum())
        else:
            beta[f] = _refined(K_free, solve, right)
        a = y * beta
        gain = 1.0 - y * (K @ beta + b)
        # Free rows that left the box go to the bound they crossed; bound rows on the margin's wrong side come free.
        now_low = np.where(low, gain <= FEASIBLE, a < 0) & ~high
        now_high = np.where(high, gain >= -FEASIBLE, a > C) & ~low
        if (now_low == low).all() and (now_high == high).all():
            return Machine(a, b, f, solve) if np.abs(gain[f]).max(initial=0.0) <= FEASIBLE else None
        low, high = now_low, now_high
    return None


def _bordered(K: Gram, solve: Solve, g: np.ndarray, total: float) -> tuple[np.ndarray, float]:
    """Return x and b with ``K x + b 1 = g`` and ``1 . x = total``, K from what solves with K."""
    ones = solve(np.ones(len(g)))
    x, b = np.zeros(len(g)), 0.0
    for _ in range(2):  # the second round takes the ridge's error off
        solved = solve(g - K @ x - b)
        change = (solved.sum() - (total - x.sum())) / ones.sum()
        x, b = x + solved - change * ones, b + change
    return x, float(b)


def _refined(K: Gram, solve: Solve, g: np.ndarray) -> np.ndarray:
    """Return x with ``K x = g``, K from what solves with K."""
    x = np.zeros(len(g))
    for _ in range(2):  # the second round takes the ridge's error off
        x = x + solve(g - K @ x)
    return x


def _free_columns(
    products: np.ndarray, solved: list[tuple[np.ndarray, Solve]], most: int
) -> Iterator[tuple[np.ndarray, Solve]]:
    """Yield each pair's products on its free rows, shape (f, p), and what solves there, where these are more."""
    for j, (free, solve) in enumerate(solved):
        if len(free) > most:
            yield products[:, free, j].T, solve


def _on_plane(solve: Solve, g: np.ndarray) -> np.ndarray:
    """Return the x of ``K x + b 1 = g`` with columns that sum to zero, shape of g, from what solves with K."""
    solved = solve(np.column_stack([g, np.ones(len(g))]))
    ones = solved[:, -1]
    return np.asarray(solved[:, :-1] - np.outer(ones, solved[:, :-1].sum(axis=0) / ones.sum()))


def _in_space(solve: Solve, g: np.ndarray) -> np.ndarray:
    """Return the x of ``K x = g``, shape of g, from what solves with K."""
    return solve(g)


def best_intercept(scores: np.ndarray, y: np.ndarray) -> float:
    """Return the b that minimises the sum of ``max(0, 1 - y (scores + b))``, a piecewise linear function."""
    kinks = y - scores
    order = np.argsort(kinks, kind="stable")
    # Left of all kinks every positive row loses: the slope is minus their number, and each kink adds one.
    slope = np.arange(1, len(y) + 1) - np.count_nonzero(y > 0)
    first = int(np.argmax(slope >= 0))
    last = int(np.argmax(slope > 0)) if (slope > 0).any() else first
    return float((kinks[order[first]] + kinks[order[last]]) / 2)
