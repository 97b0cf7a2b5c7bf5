"""Primal-dual interior-point methods for SVMs and problems on rank-one kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy.linalg import cho_solve

from ..engine.operators import FeatureGrams, GramOperator
from .factor import factored, submatrix

MAX_STEPS = 120

SHORTEST_STEP = 1e-8
"""Length at which a step is dominated by rounding."""

TO_BOUNDARY = 0.995
"""Share of the distance to the nearest bound that a step may cover."""

SMALLEST_START = 1e-3
"""Smallest initial bound s, relative to the longest feature."""

SMALLEST_FORM = 1e-8
"""Smallest initial t, per row and weight."""

NEGLIGIBLE = 1e-3
"""Share of the smallest diagonal entry below which features are omitted."""


class InteriorPoint(ABC):
    """Base class of interior-point methods; subclasses implement the Newton step.

    `slacks` and `multipliers` are positive, and their products decrease to zero. See
    Mehrotra (1992), SIAM Journal on Optimization 2:575-601.
    """

    slacks: np.ndarray
    multipliers: np.ndarray
    free: np.ndarray

    @abstractmethod
    def factorize(self) -> None:
        """Factor the linear system of a Newton step."""

    @abstractmethod
    def direction(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return Newton steps of slacks s, multipliers z and free variables: ``s dz + z ds = right``."""

    def step(self) -> bool:
        """Take a predictor-corrector step; return False if rounding prevents it."""
        s = self.slacks
        z = self.multipliers
        self.factorize()
        # The predictor aims at zero; its products set the aim of the corrector.
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
        fall_of_slacks = float(np.max(-ds / self.slacks))
        fall_of_multipliers = float(np.max(-dz / self.multipliers))
        fall = max(fall_of_slacks, fall_of_multipliers)
        if fall <= 0:
            return 1.0
        return min(1.0, TO_BOUNDARY / fall)


def balance_classes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x >= 0 with equal sums over both classes, by scaling one class down."""
    positive = x[y > 0].sum()
    negative = x[y < 0].sum()
    total = min(positive, negative)
    return np.where(y > 0, x * (total / positive), x * (total / negative))


class SimplexPath(InteriorPoint):
    r"""Interior-point method for SVMs and the weights of base kernels on a simplex.

    .. math:: \min_{0 \le x \le 1,\; y^\top x = 0,\; t} \; t\, \Lambda - 2\, \mathbf 1^\top x
              \quad \text{with } C\, (y \circ x)^\top K_k (y \circ x) \le t \text{ for each } k

    The shares x of C of all SVMs are concatenated. Weights are the multipliers of the
    base kernels' bounds.
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
        self._svms = [
            slice(end - size, end) for end, size in zip(ends, sizes, strict=True)
        ]
        self._svm_of_row = np.repeat(np.arange(len(pairs)), sizes)
        n = len(self.signs)
        n_working = len(working)
        self.slacks = np.concatenate([np.full(2 * n, 0.5), np.zeros(n_working)])
        self.multipliers = np.concatenate(
            [np.full(2 * n, 2.0), np.full(n_working, total / n_working)]
        )
        self.free = np.zeros(len(pairs) + 1)
        self.measure()  # for t and slacks of zero, the residuals are the forms
        forms = self._residual_forms
        largest = max(float(forms.max()), SMALLEST_FORM * n / total)
        self.free[-1] = 1.1 * largest
        self.slacks[2 * n :] = 1.2 * largest - forms

    def _parts(self, v: np.ndarray) -> list[np.ndarray]:
        n = len(self.signs)
        return [v[:n], v[n : 2 * n], v[2 * n :]]

    @property
    def weights(self) -> np.ndarray:
        _, _, mu = self._parts(self.multipliers)
        return mu

    def dual(self) -> np.ndarray:
        """Return feasible dual coefficients, shape (m, n_pairs)."""
        x, _, _ = self._parts(self.slacks)
        beta = np.zeros((self.grams.n_rows, len(self.pairs)))
        for j, ((rows, y), svm) in enumerate(zip(self.pairs, self._svms, strict=True)):
            shares = x[svm]
            if self.intercept:
                shares = balance_classes(shares, y)
            beta[rows, j] = self.C * y * shares
        return beta

    def measure(self) -> float:
        """Update the residuals of the optimality conditions; return the largest relative one."""
        x, _, slack = self._parts(self.slacks)
        lower, upper, mu = self._parts(self.multipliers)
        t = self.free[-1]
        beta = np.zeros((self.grams.n_rows, len(self.pairs)))
        for j, ((rows, y), svm) in enumerate(zip(self.pairs, self._svms, strict=True)):
            beta[rows, j] = y * x[svm]
        products = self.grams.products(beta)[self.working]
        gradients = np.concatenate(
            [products[:, rows, j].T for j, (rows, _) in enumerate(self.pairs)]
        )
        # Gradients of the forms, one column per base kernel
        self._gradients = 2 * self.C * self.signs[:, None] * gradients
        slope = self._gradients @ mu - 2 + 2 * self.free[self._svm_of_row] * self.signs
        self._residual = lower - upper - slope
        self._residual_forms = (
            self.C * np.einsum("kiq,iq->k", products, beta) + slack - t
        )
        objective = max(
            abs(2 * float(x.sum()) - t * self.total), np.finfo(np.float64).tiny
        )
        return max(
            float(self.slacks @ self.multipliers) / objective,
            float(np.abs(self._residual).max()),
            float(np.abs(self._residual_forms).max()) * self.total / self.grams.n_rows,
        )

    def factorize(self) -> None:
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
            A = 2 * self.C * submatrix(K, rows)
            A *= y
            A *= y[:, None]
            A.flat[:: len(A) + 1] += barrier[svm]
            factor = factored(A)
            self._factors.append(factor)
            gradients = self._gradients[svm]
            solved = cho_solve(
                factor, np.column_stack([gradients, y]), check_finite=False
            )
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
        x, rest, slack = self._parts(self.slacks)
        lower, upper, mu = self._parts(self.multipliers)
        right_lower, right_upper, right_mu = self._parts(right)
        n_working = len(mu)
        dx = self._residual + right_lower / x - right_upper / rest
        rhs = np.zeros(len(self._system))
        for j, (factor, svm) in enumerate(zip(self._factors, self._svms, strict=True)):
            dx[svm] = cho_solve(factor, dx[svm], check_finite=False)
            if self.intercept:
                rhs[n_working + j] = self.signs[svm] @ (dx[svm] + x[svm])
        rhs[:n_working] = self._residual_forms + right_mu / mu + self._gradients.T @ dx
        rhs[-1] = self.total - mu.sum()
        solution = np.linalg.solve(self._system, rhs)
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
    r"""Return weights with sum `total`, SVM coefficients, and the number of steps.

    .. math:: \min_{\mu \ge 0,\; \sum \mu_k = \Lambda} \; \max_{0 \le a \le C,\; y^\top a = 0}
              \; 2\, \mathbf 1^\top a - \sum_k \mu_k\, (y \circ a)^\top K_k (y \circ a)

    summed over pairs of classes (rows and signs). Only base kernels in `working` may
    have weight. See Lanckriet et al. (2004).
    """
    path = SimplexPath(grams, pairs, C, total, working)
    steps = 0
    least_residual = np.inf
    while True:
        residual = path.measure()
        # Rounding may make a later step worse.
        if residual < least_residual or steps == 0:
            least_residual = residual
            weights = path.weights
            dual = path.dual()
        if residual <= tolerance or steps == MAX_STEPS or not path.step():
            break
        steps += 1
    mu = np.zeros(grams.n_kernels)
    mu[working] = weights * (total / weights.sum())
    return mu, dual, steps


class FeaturePath(InteriorPoint):
    r"""Interior-point method for the dual of a predictor on rank-one kernels.

    .. math:: \min_{x,\, s} \; \delta \lVert x \rVert^2 - 2 c^\top x + \kappa s^2
              \quad \text{with } |z_k^\top (y \circ x)| \le s \text{ for each } k

    and, for an SVM, :math:`0 \le x \le 1` and, with an intercept, :math:`y^\top x = 0`.
    The multipliers :math:`\pi_k, \nu_k \ge 0` give :math:`w = (\pi - \nu) / 2`. Each
    step eliminates the 2 p bounds, as in Kim et al. (2007), IEEE Journal of Selected
    Topics in Signal Processing 1:606-617.
    """

    def __init__(
        self,
        grams: FeatureGrams,
        linear: np.ndarray,
        quadratic: float,
        weight: float,
        signs: np.ndarray | None = None,
    ) -> None:
        """Set c, delta, kappa, and signs y for an SVM."""
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
        s = max(
            1.1 * float(np.abs(products).max()),
            SMALLEST_START * float(np.sqrt(grams.squares.max())),
        )
        self.slacks = np.concatenate(
            [np.full(2 * self._boxed, 0.5), s - products, s + products]
        )
        multipliers_of_features = np.full(2 * len(products), weight * s / len(products))
        self.multipliers = np.concatenate(
            [np.full(2 * self._boxed, 2.0), multipliers_of_features]
        )
        # s and b, then the coefficients of rows without bounds.
        self.free = np.array([s, 0.0])
        if not self._boxed:
            self.free = np.concatenate([self.free, x])

    def _parts(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return (
            v[: self._boxed],
            v[self._boxed : 2 * self._boxed],
            v[2 * self._boxed :].reshape(2, -1),
        )

    @property
    def x(self) -> np.ndarray:
        """Dual coefficients, shape (m,); feasible for an SVM."""
        if not self._boxed:
            return self.free[2:]
        x, _, _ = self._parts(self.slacks)
        if self._intercept:
            return balance_classes(x, self._y)
        return x

    @property
    def w(self) -> np.ndarray:
        _, _, multipliers = self._parts(self.multipliers)
        return np.asarray(multipliers[0] - multipliers[1]) / 2

    def sparse_w(self) -> np.ndarray:
        """Return w with negligible coefficients set to zero."""
        w = self.w
        s = self.free[0]
        _, _, slack = self._parts(self.slacks)
        is_carried = np.abs(w) * s > slack.min(axis=0) * np.abs(w).sum()
        return np.where(is_carried, w, 0.0)

    def _products(self, x: np.ndarray) -> np.ndarray:
        """Return V x, shape (p,)."""
        return self._grams.projections(self._y * x)

    def _transposed_products(self, v: np.ndarray) -> np.ndarray:
        """Return V' v, shape (m,)."""
        return self._y * self._grams.scores(v)

    def factorize(self) -> None:
        x, rest, slack = self._parts(self.slacks)
        lower, upper, multipliers = self._parts(self.multipliers)
        s, b = self.free[:2]
        self._x = self.free[2:]
        if self._boxed:
            self._x = x
        products = self._products(self._x)
        ratios = multipliers / slack
        self._residual = -2 * (
            self._quadratic * self._x - self._linear + self._transposed_products(self.w)
        )
        diagonal = np.full(len(self._x), 2 * self._quadratic)
        if self._boxed:
            self._residual += lower - upper - 2 * b * self._y
            diagonal += lower / x + upper / rest
        self._residual_s = float(multipliers.sum()) - 2 * self._weight * s
        self._residual_slack = np.stack([s - products, s + products]) - slack
        E = ratios.sum(axis=0)
        A = self._grams.combine(self._omit_negligible(E, float(diagonal.min())))
        A *= self._y
        A *= self._y[:, None]
        A.flat[:: len(A) + 1] += diagonal
        self._factor = factored(A)
        border = [self._transposed_products(ratios[0] - ratios[1])]
        if self._intercept:
            border.append(-2 * self._y)
        self._border = np.column_stack(border)
        self._solved = cho_solve(self._factor, self._border, check_finite=False)
        self._small = -self._border.T @ self._solved
        # As abs(f) <= E, the difference is only negative by rounding.
        self._small[0, 0] = 2 * self._weight + max(
            self._small[0, 0] + float(E.sum()), 0.0
        )

    def _omit_negligible(self, E: np.ndarray, smallest: float) -> np.ndarray:
        added = E * self._grams.squares
        order = np.argsort(added, kind="stable")
        E = E.copy()
        E[order[np.cumsum(added[order]) <= NEGLIGIBLE * smallest]] = 0.0
        return E

    def direction(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, rest, slack = self._parts(self.slacks)
        lower, upper, multipliers = self._parts(self.multipliers)
        right_lower, right_upper, right_features = self._parts(right)
        h = (right_features - multipliers * self._residual_slack) / slack
        residual = self._residual - self._transposed_products(h[0] - h[1])
        if self._boxed:
            residual = residual + right_lower / x - right_upper / rest
        solved = cho_solve(self._factor, residual, check_finite=False)
        rhs = self._border.T @ solved
        rhs[0] += float(h.sum()) + self._residual_s
        rhs[1:] -= 2 * float(self._y @ self._x)
        solution = np.linalg.solve(self._small, rhs)
        ds = solution[0]
        dx = solved + self._solved @ solution
        products = self._products(dx)
        d_slack = np.stack([ds - products, ds + products]) + self._residual_slack
        d_multipliers = (right_features - multipliers * d_slack) / slack
        d_free = np.array([ds, solution[1:].sum()])
        if not self._boxed:
            d_free = np.concatenate([d_free, dx])
        dx_in_box = dx[: self._boxed]
        d_slacks = np.concatenate([dx_in_box, -dx_in_box, d_slack.ravel()])
        d_lower = (right_lower - lower * dx_in_box) / x
        d_upper = (right_upper + upper * dx_in_box) / rest
        return (
            d_slacks,
            np.concatenate([d_lower, d_upper, d_multipliers.ravel()]),
            d_free,
        )
