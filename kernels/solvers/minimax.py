r"""Convex minimax problems of one-stage learners.

.. math:: \min_{\mu \in \mathcal M} \max_{\alpha \in \mathcal A} \; \ell(\alpha) - \mu^\top v(\alpha) + R(\mu),
          \qquad v_k(\alpha) = \operatorname{tr} \alpha^\top K_k \alpha

The inner maximum J(mu) is convex with gradient -v.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from .active_set import minimize_nonnegative, minimize_on_simplex
from .certificate import Certificate

WORKING_SET = 256
"""Number of base kernels in the Hessian, plus those with weight."""

ROUNDING = 1e-13
"""Relative rounding error of an objective."""

SHORTEST_STEP = 1e-2
"""Share of a direction below which a line search ends."""

DEPTH = 3
"""Number of differences in an extrapolation."""

SMALLEST_SINGULAR = 1e-8
"""Smallest relative singular value in an extrapolation."""

RELATIVE_RIDGE = 1e-9
"""Ridge of a Hessian, relative to its largest entry."""


@dataclass(frozen=True)
class InnerSolution:
    """Optimal predictor for fixed weights of base kernels.

    `dual`, shape (m, q), is alpha, `objective` J(mu) or an upper bound, and `forms` are
    v. ``constant - mu . forms`` bounds J(mu) from below for every mu. ``hessian`` is
    that of J for some base kernels.
    """

    objective: float
    constant: float
    forms: np.ndarray
    dual: np.ndarray
    hessian: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Ball:
    r"""Feasible weights: the part of a norm ball above its center mu_0 >= 0.

    .. math:: \mu = \mu_0 + \nu, \qquad \nu \ge 0, \qquad \lVert \nu \rVert_s \le \Lambda

    The minimum is :math:`\nu = \Lambda\, T(v)` with :math:`T_k \propto v_k^{1/(s-1)}`
    of unit norm.
    """

    center: np.ndarray
    radius: float = 1.0
    norm: float = 1.0

    def start(self, p: int) -> np.ndarray:
        """Return boundary weights, as a start, that exceed the center equally."""
        return self.center + np.full(p, self.radius * float(p) ** -(1 / self.norm))

    @property
    def extrapolates(self) -> bool:
        many = len(self.center) > WORKING_SET
        return many and bool(self.center.any()) and 1 < self.norm < np.inf

    def onto_boundary(self, mu: np.ndarray) -> np.ndarray | None:
        """Return weights moved to the boundary; None if none exceeds the center."""
        nu = np.maximum(mu - self.center, 0.0)
        if not nu.any():
            return None
        return self.center + self._scaled(nu)

    def penalty(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.0, np.zeros_like(mu)

    def lower_bound(self, inner: InnerSolution) -> float:
        """Return the minimum of ``constant - mu . v`` over the ball, for v >= 0."""
        if self.norm == 1:
            dual_norm = np.inf
        elif np.isinf(self.norm):
            dual_norm = 1.0
        else:
            dual_norm = self.norm / (self.norm - 1)
        v = inner.forms
        return float(
            inner.constant
            - self.center @ v
            - self.radius * np.linalg.norm(v, dual_norm)
        )

    def candidates(self, mu: np.ndarray, inner: InnerSolution) -> Iterator[np.ndarray]:
        """Yield candidate weights, from a Newton step to the linear model's minimizer."""
        v = np.maximum(inner.forms, 0.0)
        nu = mu - self.center
        if self.norm == 1:
            yield self.center + self._simplex_newton(nu, v, inner)
            vertex = np.zeros_like(v)
            vertex[v.argmax()] = self.radius
            yield self.center + vertex
            return
        powers = np.ones_like(v)
        if v.any():
            powers = (v / v.max()) ** (1 / (self.norm - 1))
        T = np.asarray(powers / np.linalg.norm(powers, self.norm))
        if not np.isinf(self.norm):
            if len(mu) <= WORKING_SET:
                yield self.center + self._newton(nu, v, T, inner)
            if not self.center.any():
                yield self._scaled((nu**2 * v) ** (1 / (self.norm + 1)))
        yield self.center + self.radius * T

    def _scaled(self, nu: np.ndarray) -> np.ndarray:
        return nu * (self.radius / np.linalg.norm(nu, self.norm))

    def _newton(
        self, nu: np.ndarray, v: np.ndarray, T: np.ndarray, inner: InnerSolution
    ) -> np.ndarray:
        positive = np.flatnonzero((T > 0) & (nu > 0))
        t = T[positive]
        r = 1 / (self.norm - 1)
        # Powers of the largest entry neither overflow nor underflow.
        top = T.argmax()
        dual_norm = float(v[top] / T[top] ** (self.norm - 1))
        derivative = r * (np.diag(t / v[positive]) - np.outer(t, t) / dual_norm)
        H = inner.hessian(positive)
        # Newton's method in log nu does not leave the orthant.
        jacobian = np.eye(len(t)) + (derivative @ H) / t[:, None] * nu[positive]
        change = np.linalg.solve(jacobian, np.log(self.radius * t / nu[positive]))
        new = np.zeros_like(nu)
        new[positive] = nu[positive] * np.exp(np.clip(change, -20.0, 20.0))
        return self._scaled(new)

    def _simplex_newton(
        self, nu: np.ndarray, v: np.ndarray, inner: InnerSolution
    ) -> np.ndarray:
        largest = np.argsort(-v, kind="stable")[:WORKING_SET]
        carried = np.flatnonzero(nu)
        if len(carried) > 2 * WORKING_SET:  # the solution is among the largest forms
            carried = largest
            nu = np.zeros_like(nu)
            nu[largest] = self.radius / len(largest)
        kernels = np.union1d(carried, largest)
        H = inner.hessian(kernels)
        ridge = RELATIVE_RIDGE * max(
            float(H.diagonal().max()), float(v.max()) / self.radius
        )
        H.flat[:: len(H) + 1] += ridge
        eigenvalues, Q = np.linalg.eigh(H)
        if eigenvalues[0] <= 0:  # inaccurate for SVMs on kernels of low rank
            H = (Q * np.maximum(eigenvalues, ridge)) @ Q.T
        new = np.zeros_like(nu)
        new[kernels] = minimize_on_simplex(
            H, -v[kernels] - H @ nu[kernels], self.radius, nu[kernels]
        )
        return new


@dataclass(frozen=True)
class Orthant:
    r"""Feasible weights :math:`\mu \ge 0`, with a quadratic penalty.

    The penalty is ``mu' Q mu - mu . c``, with positive semi-definite Q of positive
    diagonal, and c >= 0.
    """

    Q: np.ndarray
    c: np.ndarray

    def _minimizer(self, A: np.ndarray, b: np.ndarray) -> np.ndarray:
        scale = 1.0 / np.sqrt(A.diagonal())
        return minimize_nonnegative(scale[:, None] * A * scale, scale * b) * scale

    def start(self, p: int) -> np.ndarray:
        """Return start weights: the penalty's minimizer, or equal ones if it is zero."""
        mu = self._minimizer(self.Q, self.c / 2)
        if not mu.any():
            return np.full(p, 1 / p)
        return mu

    def penalty(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the quadratic penalty of weights mu, and its gradient."""
        return float(mu @ self.Q @ mu - mu @ self.c), 2 * self.Q @ mu - self.c

    def lower_bound(self, inner: InnerSolution) -> float:
        """Return the minimum of ``constant + mu' Q mu - mu . (v + c)`` for mu >= 0."""
        mu = self._minimizer(self.Q, (inner.forms + self.c) / 2)
        # Both expressions are the value at the minimizer; the smaller one is safe.
        value = mu @ self.Q @ mu - mu @ (inner.forms + self.c)
        return float(inner.constant + min(value, -(mu @ self.Q @ mu)))

    def candidates(self, mu: np.ndarray, inner: InnerSolution) -> Iterator[np.ndarray]:
        """Yield the minimizer of the quadratic model."""
        H = inner.hessian(np.arange(len(mu)))
        A = self.Q + H / 2
        A.flat[:: len(A) + 1] += RELATIVE_RIDGE * A.diagonal().max()
        yield self._minimizer(A, (self.c + inner.forms + H @ mu) / 2)


@dataclass(frozen=True)
class AlignedBall:
    r"""Feasible kernel weights: at most a 2-norm, at least an alignment with the target.

    .. math:: \lVert \mu \rVert_2 \le \Lambda, \qquad \Omega \sqrt{\mu^\top M \mu} \le \mu^\top a

    Steps are convex programs, solved by SLSQP. By duality, :math:`\mu^\top v \le
    \Lambda \lVert (v + t g)_+ \rVert` for any t >= 0, with g the derivative of the
    constraint.
    """

    M: np.ndarray
    a: np.ndarray
    min_alignment: float
    radius: float
    best_aligned: np.ndarray

    def start(self, p: int) -> np.ndarray:
        """Return start weights: of largest alignment, and largest norm."""
        return self.best_aligned * (self.radius / np.linalg.norm(self.best_aligned))

    def penalty(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.0, np.zeros_like(mu)

    def slack(self, mu: np.ndarray) -> float:
        """Return the slack of the alignment constraint; negative if violated."""
        return float(mu @ self.a - self.min_alignment * np.sqrt(mu @ self.M @ mu))

    def _derivative(self, mu: np.ndarray) -> np.ndarray:
        return np.asarray(
            self.a - self.min_alignment * (self.M @ mu) / np.sqrt(mu @ self.M @ mu)
        )

    def _minimizer(
        self, start: np.ndarray, value: Callable[[np.ndarray], tuple[float, np.ndarray]]
    ) -> np.ndarray:
        """Return feasible weights of small value."""
        radius = self.radius
        in_ball = {"type": "ineq", "fun": lambda u: 1 - u @ u, "jac": lambda u: -2 * u}
        is_aligned = {"type": "ineq", "fun": self.slack, "jac": self._derivative}

        def scaled(u: np.ndarray) -> tuple[float, np.ndarray]:
            value_at_u, slope = value(u * radius)
            return value_at_u, slope * radius

        solution = minimize(
            scaled,
            start / radius,
            jac=True,
            method="SLSQP",
            bounds=[(0, None)] * len(start),
            constraints=[is_aligned, in_ball],
            options={"ftol": 1e-14, "maxiter": 200},
        )
        mu = np.maximum(solution.x, 0.0) * radius
        mu *= min(1.0, radius / np.linalg.norm(mu))
        return self._make_feasible(mu)

    def _make_feasible(self, mu: np.ndarray) -> np.ndarray:
        """Move infeasible weights towards the largest alignment."""
        if self.slack(mu) >= 0:
            return mu
        direction = self.start(len(mu)) - mu
        low = 0.0
        high = 1.0
        for _ in range(60):
            middle = (low + high) / 2
            if self.slack(mu + middle * direction) >= 0:
                high = middle
            else:
                low = middle
            if high - low < ROUNDING:
                break
        return mu + high * direction

    def _linear_minimizer(self, v: np.ndarray) -> np.ndarray:
        unit = self.radius * float(np.abs(v).max())
        return self._minimizer(
            self.start(len(v)), lambda mu: (-float(v @ mu) / unit, -v / unit)
        )

    def lower_bound(self, inner: InnerSolution) -> float:
        """Return a lower bound of ``constant - mu . v``."""
        v = inner.forms
        g = self._derivative(self._linear_minimizer(v))
        scale = float(np.linalg.norm(v) / np.linalg.norm(g))

        def bound(t: float) -> float:
            return self.radius * float(np.linalg.norm(np.maximum(v + t * g, 0.0)))

        # The bound is convex in t; the search is over log t.
        search = minimize_scalar(
            lambda size: bound(scale * np.exp(size)),
            bounds=(-16, 8),
            method="bounded",
            options={"xatol": 1e-9},
        )
        return float(inner.constant - min(bound(0.0), search.fun))

    def candidates(self, mu: np.ndarray, inner: InnerSolution) -> Iterator[np.ndarray]:
        """Yield the minimizers of a quadratic and of a linear model."""
        H = inner.hessian(np.arange(len(mu)))
        v = inner.forms
        unit = float(v @ mu)

        def model(other: np.ndarray) -> tuple[float, np.ndarray]:
            step = other - mu
            return float(step @ H @ step / 2 - v @ step) / unit, (H @ step - v) / unit

        yield self._minimizer(mu, model)
        yield self._linear_minimizer(v)


def interpolated_iterations(
    at: Callable[[np.ndarray], InnerSolution],
    quadratic_forms: Callable[[np.ndarray], np.ndarray],
    outer: Ball,
    tolerance: float,
    max_iter: int,
) -> tuple[np.ndarray, Certificate]:
    """Return weights and certificate by interpolated iterations with eta = 1/2.

    See Cortes, Mohri, Rostamizadeh (2009), UAI, Algorithm 1.
    """
    bound = -np.inf
    residual = np.inf
    objectives: list[float] = []
    mu = outer.center
    if not mu.any():
        mu = outer.start(len(mu))
    alpha = at(mu).dual
    while residual > tolerance and len(objectives) < max_iter:
        v = quadratic_forms(alpha)
        mu = outer.center + outer.radius * v / np.linalg.norm(v)
        inner = at(mu)
        objectives.append(inner.objective)
        bound = max(bound, outer.lower_bound(inner))
        residual = max(inner.objective - bound, 0.0) / inner.objective
        alpha = (alpha + inner.dual) / 2
    return mu, Certificate(
        "duality gap", residual, tolerance, len(objectives), tuple(objectives)
    )


def solve_minimax(
    at: Callable[[np.ndarray], InnerSolution],
    outer: Ball | Orthant | AlignedBall,
    start: np.ndarray,
    tolerance: float,
    max_iter: int,
) -> tuple[np.ndarray, Certificate, InnerSolution]:
    """Solve a convex minimax problem by Newton's method with a line search.

    `start` is feasible, `tolerance` a relative duality gap, and `max_iter` counts inner
    solutions.
    """
    descent = MinimaxDescent(at, outer, start, max_iter)
    while descent.gap() > tolerance * descent.size and descent.iterations < max_iter:
        if not descent.improve():
            break
    residual = np.inf
    if np.isfinite(descent.gap()):
        residual = 0.0
        if descent.size > 0:
            residual = max(descent.gap(), 0.0) / descent.size
    objectives = tuple(descent.objectives)
    certificate = Certificate(
        "duality gap", float(residual), tolerance, descent.iterations, objectives
    )
    return descent.mu, certificate, descent.inner


def extrapolated(steps: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the fixed point of a linear map fitted to points and their images.

    See Anderson (1965), J. ACM 12:547-560.
    """
    points, images = map(np.array, zip(*steps, strict=True))
    changes = images - points
    coefficients, *_ = np.linalg.lstsq(
        np.diff(changes, axis=0).T, changes[-1], rcond=SMALLEST_SINGULAR
    )
    return np.asarray(images[-1] - coefficients @ np.diff(images, axis=0))


class MinimaxDescent:
    """Iterate of `solve_minimax`: weights, inner solution and best lower bound."""

    def __init__(
        self,
        at: Callable[[np.ndarray], InnerSolution],
        outer: Ball | Orthant | AlignedBall,
        start: np.ndarray,
        max_iter: int,
    ) -> None:
        self._at = at
        self._outer = outer
        self._max_iterations = max_iter
        self.mu = start
        self.inner = at(start)
        self.value = self._value(start, self.inner)
        self.size = abs(self.inner.objective)
        self.bound = outer.lower_bound(self.inner)
        self.objectives = [self.value]
        self.iterations = 1
        self._steps: list[tuple[np.ndarray, np.ndarray]] = []

    def _value(self, mu: np.ndarray, inner: InnerSolution) -> float:
        return inner.objective + self._outer.penalty(mu)[0]

    def gap(self) -> float:
        return self.value - self.bound

    def improve(self) -> bool:
        """Take the first descending step; return whether there is one."""
        return any(self._move_towards(target) for target in self._targets())

    def _targets(self) -> Iterator[np.ndarray]:
        """Yield candidates, first the extrapolation of the last steps."""
        candidates = self._outer.candidates(self.mu, self.inner)
        if not isinstance(self._outer, Ball) or not self._outer.extrapolates:
            yield from candidates
            return
        image = next(candidates)
        self._steps = [*self._steps[-DEPTH:], (self.mu, image)]
        if len(self._steps) > 1:
            target = self._outer.onto_boundary(extrapolated(self._steps))
            if target is not None:
                yield target
            self._steps = self._steps[-1:]
        yield image
        yield from candidates

    def _move_towards(self, target: np.ndarray) -> bool:
        """Search along a direction; return whether it descends."""
        direction = target - self.mu
        slope = float((self._outer.penalty(self.mu)[1] - self.inner.forms) @ direction)
        step = 1.0
        while slope < 0 and self.iterations < self._max_iterations:
            mu = self.mu + step * direction
            inner = self._at(mu)
            value = self._value(mu, inner)
            bound = self._outer.lower_bound(inner)
            self.iterations += 1
            descends = value <= self.value + 1e-4 * step * slope
            # At equal values up to rounding, a step counts that halves its own gap.
            settles = (
                value - self.value <= ROUNDING * self.size
                and self.value - bound < self.gap() / 2
            )
            self.bound = max(self.bound, bound)
            if descends or settles:
                self.mu = mu
                self.inner = inner
                self.value = value
                self.size = abs(inner.objective)
                self.objectives.append(value)
                return True
            # Minimum of the parabola through both values and the slope
            shrinking = 0.5
            curvature = value - self.value - step * slope
            if curvature > 0:
                shrinking = float(np.clip(-step * slope / (2 * curvature), 0.1, 0.5))
            step *= shrinking
            if step < SHORTEST_STEP:
                return False
        return False
