r"""Interior-point method: one step for any problem, and the problem of SVMs with weights on a simplex.

Active sets settle in a few passes where the free rows determine the SVM. Kernels of low rank (a few linear
features) with a large C do not let them, and the value is not differentiable in weights that are zero. A primal-dual
method on the optimality conditions of SVM and weights together does not depend on either: some twenty to forty
factors, whatever the rank and C.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy.linalg import cho_solve

from ..engine.operators import FeatureGrams, GramOperator
from .factor import factored

MOST_STEPS = 120
"""Newton steps; twenty to forty are usual."""

SHORTEST_STEP = 1e-8
"""A step this short has met the rounding of its system."""

TO_BOUNDARY = 0.995
"""Share of the way to the nearest bound that a step goes."""


SMALLEST_START = 1e-3
"""Of the bound s at the start, relative to the longest feature, where no feature is correlated with the start."""

NEGLIGIBLE = 1e-3
"""Share of the smallest entry on a system's diagonal that the features left out of it may add together."""


class InteriorPoint(ABC):
    """Iterate of a primal-dual method: positive slacks and their multipliers, whose products fall to zero.

    A subclass says what Newton's step on its optimality conditions is.

    Attributes
    ----------
    slacks, multipliers : ndarray of shape (n,)
        Positive.
    free : ndarray
        Variables without a bound.

    References
    ----------
    Mehrotra (1992), SIAM Journal on Optimization 2:575-601: predictor and corrector.
    """

    slacks: np.ndarray
    multipliers: np.ndarray
    free: np.ndarray

    @abstractmethod
    def factorize(self) -> None:
        """Prepare the linear system of a step."""

    @abstractmethod
    def direction(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the changes of slacks s, of multipliers z and of free variables, with ``s dz + z ds = right``."""

    def step(self) -> bool:
        """Take one step of predictor and corrector, and return whether rounding let it."""
        s = self.slacks
        z = self.multipliers
        self.factorize()
        # The predictor aims at products of zero; how far it gets sets the aim of the corrector.
        ds, dz, _ = self.direction(-s * z)
        length = self._longest(ds, dz)
        total = float(s @ z)
        total_of_predictor = float((s + length * ds) @ (z + length * dz))
        aim = total / len(s) * min(total_of_predictor / total, 1.0) ** 3
        ds, dz, d_free = self.direction(aim - s * z - ds * dz)
        length = self._longest(ds, dz)
        if not np.isfinite(ds).all() or not length > SHORTEST_STEP:
            return False
        self.slacks = s + length * ds
        self.multipliers = z + length * dz
        self.free = self.free + length * d_free
        return True

    def _longest(self, ds: np.ndarray, dz: np.ndarray) -> float:
        """Return the step that stays inside; quadratic terms couple both sides, so they move alike."""
        fall_of_slacks = float(np.max(-ds / self.slacks))
        fall_of_multipliers = float(np.max(-dz / self.multipliers))
        fall = max(fall_of_slacks, fall_of_multipliers)
        if fall <= 0:
            return 1.0
        return min(1.0, TO_BOUNDARY / fall)


def balanced(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x, not negative, with the larger of its sums over both signs y reduced to the smaller."""
    positive = x[y > 0].sum()
    negative = x[y < 0].sum()
    total = min(positive, negative)
    return np.where(y > 0, x * (total / positive), x * (total / negative))


class SimplexPath(InteriorPoint):
    r"""SVMs and weights on a simplex on the way to the solution of their minimax problem.

    .. math:: \min_{0 \le x \le 1,\; y^\top x = 0,\; t} \; t\, \Lambda - 2\, \mathbf 1^\top x
              \quad \text{with } C\, (y \circ x)^\top K_k (y \circ x) \le t \text{ for each } k

    The coefficients of all SVMs, as shares x of C, lie one after another, and those of an objective, the sum over
    them. The multipliers of the base kernels' bounds are the weights; b, those of balanced signs, and t are free.
    """

    def __init__(
        self,
        grams: GramOperator,
        pairs: list[tuple[np.ndarray, np.ndarray]],
        C: float,
        total: float,
        working: np.ndarray,
    ) -> None:
        self.grams = grams
        self.pairs = pairs
        self.C = C
        self.total = total
        self.working = working
        self.intercept = grams.centering.intercept
        self.signs = np.concatenate([y for _, y in pairs])
        sizes = [len(y) for _, y in pairs]
        ends = np.cumsum(sizes).tolist()
        self._svms = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self._svm_of_row = np.repeat(np.arange(len(pairs)), sizes)
        n = len(self.signs)
        n_working = len(working)
        self.slacks = np.concatenate([np.full(2 * n, 0.5), np.zeros(n_working)])
        self.multipliers = np.concatenate([np.full(2 * n, 2.0), np.full(n_working, total / n_working)])
        self.free = np.zeros(len(pairs) + 1)
        self.measure()  # with t and the slacks of the base kernels' bounds zero, of which it gives the forms
        forms = self._open
        largest = float(forms.max())
        self.free[-1] = 1.1 * largest
        self.slacks[2 * n :] = 1.2 * largest - forms

    def _parts(self, v: np.ndarray) -> list[np.ndarray]:
        """Return the entries of the lower bounds of x, of the upper bounds and of the base kernels."""
        n = len(self.signs)
        return [v[:n], v[n : 2 * n], v[2 * n :]]

    @property
    def weights(self) -> np.ndarray:
        """Weights of the working set."""
        _, _, mu = self._parts(self.multipliers)
        return mu

    def dual(self) -> np.ndarray:
        """Return feasible coefficients with their signs, shape (m, n_pairs)."""
        x, _, _ = self._parts(self.slacks)
        beta = np.zeros((self.grams.n_rows, len(self.pairs)))
        for j, ((rows, y), svm) in enumerate(zip(self.pairs, self._svms, strict=True)):
            shares = balanced(x[svm], y) if self.intercept else x[svm]
            beta[rows, j] = self.C * y * shares
        return beta

    def measure(self) -> float:
        """Compute the residuals of the optimality conditions; return the largest, relative to the problem's size."""
        x, _, slack = self._parts(self.slacks)
        lower, upper, mu = self._parts(self.multipliers)
        t = self.free[-1]
        beta = np.zeros((self.grams.n_rows, len(self.pairs)))
        for j, ((rows, y), svm) in enumerate(zip(self.pairs, self._svms, strict=True)):
            beta[rows, j] = y * x[svm]
        products = self.grams.products(beta)[self.working]
        gradients = np.concatenate([products[:, rows, j].T for j, (rows, _) in enumerate(self.pairs)])
        # The gradients of the forms, one column per base kernel.
        self._gradients = 2 * self.C * self.signs[:, None] * gradients
        slope = self._gradients @ mu - 2 + 2 * self.free[self._svm_of_row] * self.signs
        self._missing = lower - upper - slope
        self._open = self.C * np.einsum("kiq,iq->k", products, beta) + slack - t
        objective = max(abs(2 * float(x.sum()) - t * self.total), np.finfo(np.float64).tiny)
        return max(
            float(self.slacks @ self.multipliers) / objective,
            float(np.abs(self._missing).max()),
            float(np.abs(self._open).max()) * self.total / self.grams.n_rows,
        )

    def factorize(self) -> None:
        """Factorize each SVM's system, and form the remaining system of the weights, the intercepts and t."""
        x, rest, slack = self._parts(self.slacks)
        lower, upper, mu = self._parts(self.multipliers)
        barrier = lower / x + upper / rest
        n_working = len(mu)
        mu_of_all = np.zeros(self.grams.n_kernels)
        mu_of_all[self.working] = mu
        K = self.grams.combine(mu_of_all)
        self._factors = []
        self._solved = np.empty((len(x), n_working + 1))
        n_unknowns = n_working + len(self.pairs) + 1
        self._system = np.zeros((n_unknowns, n_unknowns))
        self._system[:n_working, :n_working] = np.diag(slack / mu)
        self._system[:n_working, -1] = 1.0
        self._system[-1, :n_working] = 1.0
        for j, ((rows, y), svm) in enumerate(zip(self.pairs, self._svms, strict=True)):
            K_of_pair = K if len(rows) == len(K) else K[np.ix_(rows, rows)]
            A = 2 * self.C * K_of_pair
            A *= y
            A *= y[:, None]
            A.flat[:: len(A) + 1] += barrier[svm]
            factor = factored(A)
            self._factors.append(factor)
            gradients = self._gradients[svm]
            solved = cho_solve(factor, np.column_stack([gradients, y]), check_finite=False)
            self._solved[svm] = solved
            self._system[:n_working, :n_working] += gradients.T @ solved[:, :-1]
            b = n_working + j
            if not self.intercept:
                self._system[b, b] = 1.0  # its change is zero
                continue
            cross = gradients.T @ solved[:, -1]
            self._system[:n_working, b] = 2 * cross
            self._system[b, :n_working] = cross
            self._system[b, b] = 2 * (y @ solved[:, -1])

    def direction(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the changes; see `InteriorPoint.direction`."""
        x, rest, slack = self._parts(self.slacks)
        lower, upper, mu = self._parts(self.multipliers)
        right_lower, right_upper, right_mu = self._parts(right)
        n_working = len(mu)
        dx = self._missing + right_lower / x - right_upper / rest
        known = np.zeros(len(self._system))
        for j, (factor, svm) in enumerate(zip(self._factors, self._svms, strict=True)):
            dx[svm] = cho_solve(factor, dx[svm], check_finite=False)
            if self.intercept:
                known[n_working + j] = self.signs[svm] @ (dx[svm] + x[svm])
        known[:n_working] = self._open + right_mu / mu + self._gradients.T @ dx
        known[-1] = self.total - mu.sum()
        solution = np.linalg.solve(self._system, known)
        dmu = solution[:n_working]
        db = 2 * solution[n_working:-1]
        dx -= self._solved[:, :-1] @ dmu + self._solved[:, -1] * db[self._svm_of_row]
        d_slacks = np.concatenate([dx, -dx, (right_mu - slack * dmu) / mu])
        d_lower = (right_lower - lower * dx) / x
        d_upper = (right_upper + upper * dx) / rest
        return d_slacks, np.concatenate([d_lower, d_upper, dmu]), solution[n_working:]


def weights_by_interior_point(
    grams: GramOperator,
    pairs: list[tuple[np.ndarray, np.ndarray]],
    C: float,
    total: float,
    working: np.ndarray,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray, int]:
    r"""Return the weights on a simplex and the SVMs that solve the minimax problem together.

    .. math:: \min_{\mu \ge 0,\; \sum \mu_k = \Lambda} \; \max_{0 \le a \le C,\; y^\top a = 0}
              \; 2\, \mathbf 1^\top a - \sum_k \mu_k\, (y \circ a)^\top K_k (y \circ a)

    Parameters
    ----------
    grams : GramOperator
        p base kernels over m rows.
    pairs : list of (ndarray, ndarray)
        Rows and signs of each binary SVM; the objective is their sum.
    C : float
        Bound of the coefficients.
    total : float
        Lambda.
    working : ndarray of int of shape (w,)
        Base kernels that may carry weight; the others stay at zero.
    tolerance : float
        Products of slacks and multipliers to reach, relative to the objective.

    Returns
    -------
    mu : ndarray of shape (p,)
        Weights, not negative, of the requested sum.
    dual : ndarray of shape (m, n_pairs)
        ``y * a`` of each pair.
    steps : int
        Newton steps taken.

    Notes
    -----
    A step costs one `combine`, one `products`, a Cholesky factor for each pair, and a system of size w + n_pairs + 1.

    References
    ----------
    Lanckriet et al. (2004), JMLR 5:27-72, pose the dual as a quadratically constrained program.
    """
    path = SimplexPath(grams, pairs, C, total, working)
    steps = 0
    least_residual = np.inf
    while True:
        residual = path.measure()
        if residual < least_residual or steps == 0:  # rounding may make a later step worse
            least_residual = residual
            weights = path.weights
            dual = path.dual()
        if residual <= tolerance or steps == MOST_STEPS or not path.step():
            break
        steps += 1
    mu = np.zeros(grams.n_kernels)
    mu[working] = weights * (total / weights.sum())
    return mu, dual, steps


class FeaturePath(InteriorPoint):
    r"""Iterate of a primal-dual method for a predictor's dual with a bound on all features' products at once.

    .. math:: \min_{x,\, s} \; \delta \lVert x \rVert^2 - 2 c^\top x + \kappa s^2
              \quad \text{with } |z_k^\top (y \circ x)| \le s \text{ for each } k

    and, for an SVM, :math:`0 \le x \le 1` and, where it has an intercept, :math:`y^\top x = 0`. The multipliers
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
    regularization. Where the predictor is all but free of regularization the last digits of the gap are rounding: the
    caller keeps the best iterate.

    References
    ----------
    Kim, Koh, Lustig, Boyd, Gorinevsky (2007), IEEE Journal of Selected Topics in Signal Processing 1:606-617, for
    an interior-point method for problems with a 1-norm.
    """

    def __init__(
        self, grams: FeatureGrams, linear: np.ndarray, quadratic: float, weight: float, signs: np.ndarray | None = None
    ) -> None:
        """Take rank-one kernels, c of shape (m,), delta, kappa and, for an SVM, its signs y."""
        self._grams = grams
        self._linear = linear
        self._quadratic = quadratic
        self._weight = weight
        if signs is None:
            self._boxed = 0
            self._y = np.ones(len(linear))
            self._intercept = False
        else:
            self._boxed = len(linear)  # rows between bounds
            self._y = signs
            self._intercept = grams.centering.intercept
        x = linear / 2
        products = self._products(x)
        s = max(1.1 * float(np.abs(products).max()), SMALLEST_START * float(np.sqrt(grams.squares.max())))
        self.slacks = np.concatenate([np.full(2 * self._boxed, 0.5), s - products, s + products])
        multipliers_of_features = np.full(2 * len(products), weight * s / len(products))
        self.multipliers = np.concatenate([np.full(2 * self._boxed, 2.0), multipliers_of_features])
        self.free = np.array([s, 0.0])  # s and b, then the coefficients of rows without bounds
        if not self._boxed:
            self.free = np.concatenate([self.free, x])

    def _parts(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the entries of the lower bounds of x, of the upper bounds, and of the two bounds of each feature."""
        return v[: self._boxed], v[self._boxed : 2 * self._boxed], v[2 * self._boxed :].reshape(2, -1)

    @property
    def x(self) -> np.ndarray:
        """Coefficients of the rows, of an SVM strictly inside their box; with an intercept balanced over the signs."""
        if not self._boxed:
            return self.free[2:]
        x, _, _ = self._parts(self.slacks)
        return balanced(x, self._y) if self._intercept else x

    @property
    def w(self) -> np.ndarray:
        """Coefficients of the features."""
        _, _, multipliers = self._parts(self.multipliers)
        return np.asarray(multipliers[0] - multipliers[1]) / 2

    def sparse_w(self) -> np.ndarray:
        """Return w without the features that the bounds leave out: those whose share of w is below that of their slack.

        At a solution one of the two is zero, so towards it the larger one shows which.
        """
        w = self.w
        s = self.free[0]
        _, _, slack = self._parts(self.slacks)
        is_carried = np.abs(w) * s > slack.min(axis=0) * np.abs(w).sum()
        return np.where(is_carried, w, 0.0)

    def _products(self, x: np.ndarray) -> np.ndarray:
        """Return V x, shape (p,)."""
        return self._grams.projections(self._y * x)

    def _pull(self, v: np.ndarray) -> np.ndarray:
        """Return V' v, shape (m,)."""
        return self._y * self._grams.scores(v)

    def factorize(self) -> None:
        """Compute the residuals of the optimality conditions, and factor the system of x, s and b."""
        x, rest, slack = self._parts(self.slacks)
        lower, upper, multipliers = self._parts(self.multipliers)
        s, b = self.free[:2]
        self._x = x if self._boxed else self.free[2:]
        products = self._products(self._x)
        ratios = multipliers / slack
        self._missing = -2 * (self._quadratic * self._x - self._linear + self._pull(self.w))
        diagonal = np.full(len(self._x), 2 * self._quadratic)
        if self._boxed:
            self._missing += lower - upper - 2 * b * self._y
            diagonal += lower / x + upper / rest
        self._missing_s = float(multipliers.sum()) - 2 * self._weight * s
        self._missing_slack = np.stack([s - products, s + products]) - slack
        E = ratios.sum(axis=0)
        A = self._grams.combine(self._relevant(E, float(diagonal.min())))
        A *= self._y
        A *= self._y[:, None]
        A.flat[:: len(A) + 1] += diagonal
        self._factor = factored(A)
        border = [self._pull(ratios[0] - ratios[1])]
        if self._intercept:
            border.append(-2 * self._y)
        self._border = np.column_stack(border)
        self._solved = cho_solve(self._factor, self._border, check_finite=False)
        self._small = -self._border.T @ self._solved
        # As abs(f) <= E, the elimination subtracts at most the sum of E, but for rounding.
        self._small[0, 0] = 2 * self._weight + max(self._small[0, 0] + float(E.sum()), 0.0)

    def _relevant(self, E: np.ndarray, smallest: float) -> np.ndarray:
        """Return E without the entries that together add next to nothing: the direction is as good without."""
        added = E * self._grams.squares
        order = np.argsort(added, kind="stable")
        E = E.copy()
        E[order[np.cumsum(added[order]) <= NEGLIGIBLE * smallest]] = 0.0
        return E

    def direction(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the changes; see `InteriorPoint.direction`."""
        x, rest, slack = self._parts(self.slacks)
        lower, upper, multipliers = self._parts(self.multipliers)
        right_lower, right_upper, right_features = self._parts(right)
        h = (right_features - multipliers * self._missing_slack) / slack
        missing = self._missing - self._pull(h[0] - h[1])
        if self._boxed:
            missing = missing + right_lower / x - right_upper / rest
        solved = cho_solve(self._factor, missing, check_finite=False)
        known = self._border.T @ solved
        known[0] += float(h.sum()) + self._missing_s
        known[1:] -= 2 * float(self._y @ self._x)
        solution = np.linalg.solve(self._small, known)
        ds = solution[0]
        dx = solved + self._solved @ solution
        products = self._products(dx)
        d_slack = np.stack([ds - products, ds + products]) + self._missing_slack
        d_multipliers = (right_features - multipliers * d_slack) / slack
        d_free = np.array([ds, solution[1:].sum()])
        if not self._boxed:
            d_free = np.concatenate([d_free, dx])
        dx_in_box = dx[: self._boxed]
        d_slacks = np.concatenate([dx_in_box, -dx_in_box, d_slack.ravel()])
        d_lower = (right_lower - lower * dx_in_box) / x
        d_upper = (right_upper + upper * dx_in_box) / rest
        return d_slacks, np.concatenate([d_lower, d_upper, d_multipliers.ravel()]), d_free
