r"""Convex minimax problems of one-stage learners: weights outside, a predictor inside.

.. math:: \min_{\mu \in \mathcal M} \max_{\alpha \in \mathcal A} \; \ell(\alpha) - \mu^\top v(\alpha) + R(\mu),
          \qquad v_k(\alpha) = \operatorname{tr} \alpha^\top K_k \alpha

The inner problem is kernel ridge regression (`RidgeProblem`) or a support vector machine (`SupportVectorProblem`). Its
value J(mu) is convex with gradient -v; the outer set is a norm ball (`Ball`) or the orthant with a quadratic R
(`Orthant`). Both know their dual: every inner solution gives a lower bound of the minimum, and the difference to the
value reached is the duality gap that a learner reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from .active_set import minimize_nonnegative, minimize_on_simplex
from .certificate import Certificate

WORKING_SET = 256
"""Base kernels of the largest forms whose Hessian is formed, next to those that carry weight."""

SUFFICIENT = 1e-4
"""Share of the decrease that the slope promises which a step must bring."""

LARGEST_CHANGE = 20.0
"""Of the logarithm of a weight in one step."""

ROUNDING = 1e-13
"""Of an objective, relative to its size."""

SHORTEST_STEP = 1e-8
"""A line search that is down to this share of a direction has reached the rounding of the objective."""

RELATIVE_RIDGE = 1e-9
"""Added to the Hessian's diagonal, relative to its largest entry, so that dependent kernels share their weight."""


@dataclass(frozen=True)
class InnerSolution:
    """Solution of the inner problem at some weights.

    Attributes
    ----------
    objective : float
        J(mu), or an upper bound of it.
    constant : float
        l(alpha), so that ``constant - mu . forms`` bounds J(mu) from below for every mu.
    forms : ndarray of shape (p,)
        v, the quadratic forms of alpha; -v is the gradient of J.
    dual : ndarray of shape (m, q)
        alpha.
    hessian : callable
        ``hessian(kernels)`` gives the Hessian of J on some base kernels, positive semi-definite.
    """

    objective: float
    constant: float
    forms: np.ndarray
    dual: np.ndarray
    hessian: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Ball:
    r"""Weights :math:`\mu = \mu_0 + \nu` with :math:`\nu \ge 0` and :math:`\lVert \nu \rVert_s \le \Lambda`.

    J falls in every weight, so the minimum over the whole ball around mu_0 has nu >= 0 and lies on its boundary, at
    :math:`\nu = \Lambda\, T(v)` with T the gradient of the dual norm, :math:`T_k \propto v_k^{1/(s-1)}` of unit norm.

    Attributes
    ----------
    center : ndarray of shape (p,)
        mu_0, not negative.
    radius : float
        Lambda, positive.
    norm : float
        s, at least 1, may be infinite.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI, Theorem 1 (s = 2); Kloft, Brefeld, Sonnenburg, Zien (2011), JMLR
    12:953-997, section 3 (any s, mu_0 = 0). For s > 1 the step is Newton's on ``nu = Lambda T(v(nu))``, whose Jacobian
    is I plus a product of two positive semi-definite matrices, so never singular; for s = 1 a quadratic model is
    minimized on the simplex.
    """

    center: np.ndarray
    radius: float = 1.0
    norm: float = 1.0

    def start(self, p: int) -> np.ndarray:
        """Return the uniform weights of the boundary."""
        return self.center + np.full(p, self.radius * float(p) ** -(1 / self.norm))

    def penalty(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """Return zeros."""
        return 0.0, np.zeros_like(mu)

    def lower_bound(self, inner: InnerSolution) -> float:
        """Return ``constant - mu_0 . v - Lambda |v|``, in the dual norm."""
        dual_norm = np.inf if self.norm == 1 else (1.0 if np.isinf(self.norm) else self.norm / (self.norm - 1))
        v = inner.forms
        return float(inner.constant - self.center @ v - self.radius * np.linalg.norm(v, dual_norm))

    def candidates(self, mu: np.ndarray, inner: InnerSolution) -> Iterator[np.ndarray]:
        """Yield Newton's weights, those of the closed-form update that never ascends, and the linear minimizer."""
        v, nu = np.maximum(inner.forms, 0.0), mu - self.center
        if self.norm == 1:
            yield self.center + self._simplex_newton(nu, v, inner)
            vertex = np.zeros_like(v)
            vertex[v.argmax()] = self.radius
            yield self.center + vertex
            return
        powers = (v / v.max()) ** (1 / (self.norm - 1)) if v.any() else np.ones_like(v)
        T = np.asarray(powers / np.linalg.norm(powers, self.norm))  # what minimizes the linear part
        if not np.isinf(self.norm):
            if len(mu) <= WORKING_SET:
                yield self.center + self._newton(nu, v, T, inner)
            if not self.center.any():
                yield self._scaled((nu**2 * v) ** (1 / (self.norm + 1)))
        yield self.center + self.radius * T

    def _scaled(self, nu: np.ndarray) -> np.ndarray:
        return nu * (self.radius / np.linalg.norm(nu, self.norm))

    def _newton(self, nu: np.ndarray, v: np.ndarray, T: np.ndarray, inner: InnerSolution) -> np.ndarray:
        positive = np.flatnonzero((T > 0) & (nu > 0))  # a form that should be zero may round to more
        t, r = T[positive], 1 / (self.norm - 1)
        # N with N^(s-1) T = v^r, from the largest entry, whose powers neither overflow nor vanish.
        top = T.argmax()
        dual_norm = float(v[top] / T[top] ** (self.norm - 1))
        derivative = r * (np.diag(t / v[positive]) - np.outer(t, t) / dual_norm)
        H = inner.hessian(positive)
        # In u = log nu: no step leaves the orthant, and forms that fall like powers of the weights are nearly linear.
        jacobian = np.eye(len(t)) + (derivative @ H) / t[:, None] * nu[positive]
        change = np.linalg.solve(jacobian, np.log(self.radius * t / nu[positive]))
        new = np.zeros_like(nu)
        new[positive] = nu[positive] * np.exp(np.clip(change, -LARGEST_CHANGE, LARGEST_CHANGE))
        return self._scaled(new)

    def _simplex_newton(self, nu: np.ndarray, v: np.ndarray, inner: InnerSolution) -> np.ndarray:
        largest = np.argsort(-v, kind="stable")[:WORKING_SET]
        carried = np.flatnonzero(nu)
        if len(carried) > 2 * WORKING_SET:  # equal weights of thousands: the solution is among the largest forms
            carried, nu = largest, np.zeros_like(nu)
            nu[largest] = self.radius / len(largest)
        kernels = np.union1d(carried, largest)
        H = inner.hessian(kernels)
        ridge = RELATIVE_RIDGE * max(float(H.diagonal().max()), float(v.max()) / self.radius)
        H.flat[:: len(H) + 1] += ridge
        s, Q = np.linalg.eigh(H)
        if s[0] <= 0:  # of SVMs on kernels of low rank it has fewer digits than the ridge
            H = (Q * np.maximum(s, ridge)) @ Q.T
        new = np.zeros_like(nu)
        new[kernels] = minimize_on_simplex(H, -v[kernels] - H @ nu[kernels], self.radius, nu[kernels])
        return new


@dataclass(frozen=True)
class Orthant:
    r"""Weights :math:`\mu \ge 0` with :math:`R(\mu) = \mu^\top Q \mu - \mu^\top c`.

    Attributes
    ----------
    Q : ndarray of shape (p, p)
        Symmetric positive semi-definite, with positive diagonal.
    c : ndarray of shape (p,)
        Not negative.

    Notes
    -----
    The lower bound of an inner solution is itself a non-negative quadratic program, solved by active sets.
    """

    Q: np.ndarray
    c: np.ndarray

    def _minimizer(self, A: np.ndarray, b: np.ndarray) -> np.ndarray:
        scale = 1.0 / np.sqrt(A.diagonal())
        return minimize_nonnegative(scale[:, None] * A * scale, scale * b) * scale

    def start(self, p: int) -> np.ndarray:
        """Return the minimizer of R alone; uniform weights where that is zero."""
        mu = self._minimizer(self.Q, self.c / 2)
        return mu if mu.any() else np.full(p, 1 / p)

    def penalty(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """Return R(mu) and its gradient."""
        return float(mu @ self.Q @ mu - mu @ self.c), 2 * self.Q @ mu - self.c

    def lower_bound(self, inner: InnerSolution) -> float:
        """Return the minimum over mu >= 0 of ``constant + mu' Q mu - mu . (v + c)``."""
        mu = self._minimizer(self.Q, (inner.forms + self.c) / 2)
        # At the minimizer mu' Q mu = mu . (v + c) / 2; the smaller of two expressions of the value stays a bound.
        value = mu @ self.Q @ mu - mu @ (inner.forms + self.c)
        return float(inner.constant + min(value, -(mu @ self.Q @ mu)))

    def candidates(self, mu: np.ndarray, inner: InnerSolution) -> Iterator[np.ndarray]:
        """Yield the minimizer over the orthant of the quadratic model."""
        H = inner.hessian(np.arange(len(mu)))
        A = self.Q + H / 2
        A.flat[:: len(A) + 1] += RELATIVE_RIDGE * A.diagonal().max()
        yield self._minimizer(A, (self.c + inner.forms + H @ mu) / 2)


@dataclass(frozen=True)
class AlignedBall:
    r"""Weights :math:`\mu \ge 0` of 2-norm at most :math:`\Lambda` whose kernel aligns by at least :math:`\Omega`.

    .. math:: \lVert \mu \rVert_2 \le \Lambda, \qquad \Omega \sqrt{\mu^\top M \mu} \le \mu^\top a

    Attributes
    ----------
    M : ndarray of shape (p, p)
        Products of the base kernels.
    a : ndarray of shape (p,)
        Products with the target kernel over its norm, so that the alignment is their ratio.
    least : float
        Omega.
    radius : float
        Lambda.
    best : ndarray of shape (p,)
        Weights of the largest alignment, which must be at least Omega.

    Notes
    -----
    Steps are convex programs of size p, solved by SLSQP. The lower bound is that of a Lagrange multiplier, so it holds
    whatever SLSQP returns: the products of v with these weights are at most
    :math:`\Lambda \lVert (v + t g)_+ \rVert` for any t of at least zero, with g the derivative of the constraint.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.4: the set before its Lagrange form.
    """

    M: np.ndarray
    a: np.ndarray
    least: float
    radius: float
    best: np.ndarray

    def start(self, p: int) -> np.ndarray:
        """Return the weights of the largest alignment, of the largest norm."""
        return self.best * (self.radius / np.linalg.norm(self.best))

    def penalty(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """Return zeros."""
        return 0.0, np.zeros_like(mu)

    def slack(self, mu: np.ndarray) -> float:
        """Return ``mu . a - Omega |K_mu|``, which may not be negative."""
        return float(mu @ self.a - self.least * np.sqrt(mu @ self.M @ mu))

    def _derivative(self, mu: np.ndarray) -> np.ndarray:
        return np.asarray(self.a - self.least * (self.M @ mu) / np.sqrt(mu @ self.M @ mu))

    def _minimizer(self, start: np.ndarray, value: Callable[[np.ndarray], tuple[float, np.ndarray]]) -> np.ndarray:
        """Return feasible weights of a small value; `value` gives it and its gradient."""
        r = self.radius
        norm = {"type": "ineq", "fun": lambda u: 1 - u @ u, "jac": lambda u: -2 * u}
        aligned = {"type": "ineq", "fun": lambda u: self.slack(u), "jac": self._derivative}

        def scaled(u: np.ndarray) -> tuple[float, np.ndarray]:
            at, slope = value(u * r)
            return at, slope * r

        found = minimize(
            scaled, start / r, jac=True, method="SLSQP", bounds=[(0, None)] * len(start), constraints=[aligned, norm],
            options={"ftol": 1e-14, "maxiter": 200},
        )  # fmt: skip
        mu = np.maximum(found.x, 0.0) * r
        mu *= min(1.0, r / np.linalg.norm(mu))
        top, low, high = self.start(len(mu)), 0.0, 1.0
        for _ in range(60 if self.slack(mu) < 0 else 0):  # rounding: towards the largest alignment, as far as needed
            middle = (low + high) / 2
            low, high = (low, middle) if self.slack(mu + middle * (top - mu)) >= 0 else (middle, high)
            if high - low < ROUNDING:
                break
        return mu + high * (top - mu) if self.slack(mu) < 0 else mu

    def _linear_minimizer(self, v: np.ndarray) -> np.ndarray:
        unit = self.radius * float(np.abs(v).max())
        return self._minimizer(self.start(len(v)), lambda mu: (-float(v @ mu) / unit, -v / unit))

    def lower_bound(self, inner: InnerSolution) -> float:
        """Return ``constant - max mu . v`` over these weights, or less."""
        v = inner.forms
        g = self._derivative(self._linear_minimizer(v))
        scale = float(np.linalg.norm(v) / np.linalg.norm(g))

        def bound(t: float) -> float:
            return self.radius * float(np.linalg.norm(np.maximum(v + t * g, 0.0)))

        # The bound is convex in t, which may be of any size: one search over its logarithm.
        found = minimize_scalar(
            lambda size: bound(scale * np.exp(size)), bounds=(-16, 8), method="bounded", options={"xatol": 1e-9}
        )
        return float(inner.constant - min(bound(0.0), found.fun))

    def candidates(self, mu: np.ndarray, inner: InnerSolution) -> Iterator[np.ndarray]:
        """Yield the minimizers over these weights of the quadratic and of the linear model."""
        H, v = inner.hessian(np.arange(len(mu))), inner.forms
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
    max_iterations: int,
) -> tuple[np.ndarray, Certificate]:
    r"""Return weights by the paper's interpolated iterations, with eta of one half, and their certificate.

    .. math:: \mu = \mu_0 + \Lambda \frac{v(\alpha)}{\lVert v(\alpha) \rVert}, \qquad
              \alpha \leftarrow \tfrac12 \alpha + \tfrac12 (K_\mu + \lambda I)^{-1} Y

    Parameters
    ----------
    at : callable
        Returns the solution of kernel ridge regression at some weights.
    quadratic_forms : callable
        Returns v, shape (p,), of any coefficients.
    outer : Ball
        Of norm two. The first alpha is that of mu_0; of equal weights where mu_0 is zero.
    tolerance : float
        Relative duality gap to reach.
    max_iterations : int
        Most solutions of the regression after the first.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI, Algorithm 1.
    """
    p, bound, objectives, residual = len(outer.center), -np.inf, list[float](), np.inf
    mu = outer.center if outer.center.any() else outer.start(p)
    alpha = at(mu).dual
    while residual > tolerance and len(objectives) < max_iterations:
        v = quadratic_forms(alpha)
        mu = outer.center + outer.radius * v / np.linalg.norm(v)
        inner = at(mu)
        objectives.append(inner.objective)
        bound = max(bound, outer.lower_bound(inner))
        residual = max(inner.objective - bound, 0.0) / inner.objective
        alpha = (alpha + inner.dual) / 2
    return mu, Certificate("duality gap", residual, tolerance, len(objectives), tuple(objectives))


def solve_minimax(
    at: Callable[[np.ndarray], InnerSolution],
    outer: Ball | Orthant | AlignedBall,
    start: np.ndarray,
    tolerance: float,
    max_iterations: int,
) -> tuple[np.ndarray, Certificate, InnerSolution]:
    """Return the weights that minimize a convex minimax problem, with their certificate and the inner solution.

    Parameters
    ----------
    at : callable
        Returns the solution of the problem inside at some weights.
    outer : Ball, Orthant or AlignedBall
        The set of weights outside.
    start : ndarray of shape (p,)
        Feasible weights to begin with.
    tolerance : float
        Duality gap, relative to the objective's size, at which to stop.
    max_iterations : int
        Most solutions of the inner problem.

    Returns
    -------
    mu : ndarray of shape (p,)
    certificate : Certificate
        Its residual is the gap between the value at mu and the best lower bound seen: an upper bound of what the
        objective can still fall, relative to the value.
    inner : InnerSolution
        The inner solution at mu.

    Notes
    -----
    Newton's method with a line search that halves; where Newton's direction does not descend, the next candidate of
    `outer` does. Every solution of the inner problem counts as an iteration, rejected steps included.
    """
    mu = start
    inner = at(mu)
    value = inner.objective + outer.penalty(mu)[0]
    objectives, bound, iterations = [value], outer.lower_bound(inner), 1
    size = abs(inner.objective)
    while value - bound > tolerance * size and iterations < max_iterations:
        improved = False
        for target in outer.candidates(mu, inner):
            slope, step = float((outer.penalty(mu)[1] - inner.forms) @ (target - mu)), 1.0
            while slope < 0 and step > SHORTEST_STEP and iterations < max_iterations and not improved:
                trial = mu + step * (target - mu)
                found = at(trial)
                reached = found.objective + outer.penalty(trial)[0]
                iterations += 1
                nearer = outer.lower_bound(found)
                # Once the value is down to its rounding, a step counts that halves what the bound leaves open.
                settled = reached - value <= ROUNDING * size and value - nearer < (value - bound) / 2
                improved = settled or reached <= value + SUFFICIENT * step * slope
                bound = max(bound, nearer)
                # The minimum of the parabola through both values and the slope, within a tenth and a half.
                curved = reached - value - step * slope
                step *= float(np.clip(-step * slope / (2 * curved), 0.1, 0.5)) if curved > 0 else 0.5
                if not improved and step < 1e-2:
                    break
            if improved:
                mu, inner, value = trial, found, reached
                size = abs(inner.objective)
                objectives.append(value)
                break
        if not improved:
            break
    residual = max(value - bound, 0.0) / size if size > 0 else 0.0
    residual = residual if np.isfinite(value - bound) else np.inf
    return mu, Certificate("duality gap", float(residual), tolerance, iterations, tuple(objectives)), inner
