"""nkrr: a polynomial of base kernels, learned together with kernel ridge regression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import cho_solve
from scipy.optimize import minimize

from learnkernels.kernels.engine.operators import FeatureGrams, GramOperator, entrywise_power
from learnkernels.kernels.learners.base import OneStageLearner, Solution
from learnkernels.kernels.solvers.certificate import TOLERANCE, Certificate
from learnkernels.kernels.solvers.factor import factored_with_ridge
from learnkernels.kernels.solvers.monomial_ridge import MonomialRidge, has_few_monomials, not_definite
from learnkernels.kernels.solvers.projections import minimise_linear, project
from learnkernels.kernels.targets import Target

HIGHEST_DEGREE = 4
"""Of the paper's experiments; entries beyond that power leave the ridge below the rounding of the largest of them."""

MEMORY = 5
"""Number of last objectives of which a step must lower the largest only: spectral steps are not monotone."""

SUFFICIENT = 1e-4
"""Share of the decrease that the slope promises which a step must bring."""

REDUCTION = 0.8
"""Most that is kept of a step found too large, as in the paper; less where a parabola through both ends says so."""

SHORTEST_STEP = 1e-10
"""A line search that is down to this share of a step has reached the rounding of the objective."""

MANY = 256
"""Base kernels beyond which the search on a ball of norm 1 begins in the roots of the weights."""

CORRECTIONS = 20
"""Pairs of steps and changes of the gradient that the search in the roots keeps."""

STEP_RANGE = (1e-3, 1e6)
"""Gradient steps are between these many radii long before they are projected."""


class Fitted(Protocol):
    """Kernel ridge regression at some weights, as the descent needs it."""

    @property
    def mu(self) -> np.ndarray:
        """The weights, shape (p,)."""

    @property
    def value(self) -> float:
        """F(mu), in squared units of Y over those of the kernel."""


class Objective(Protocol):
    """What is minimised."""

    def at(self, mu: np.ndarray) -> Any:
        """Return the fit at the weights mu, shape (p,)."""

    def gradient(self, at: Any) -> np.ndarray:
        """Return the gradient at a fit, shape (p,), never positive."""


@dataclass(frozen=True)
class Fit:
    """Kernel ridge regression at some weights.

    Attributes
    ----------
    mu : ndarray of shape (p,)
        The weights.
    value : float
        F(mu), in squared units of Y over those of the kernel.
    K : ndarray of shape (m, m)
        The weighted sum of the base kernels plus the offset, before the power.
    alpha : ndarray of shape (m, q)
        Dual coefficients.
    factor : tuple
        Cholesky factor of the power plus lambda I.
    """

    mu: np.ndarray
    value: float
    K: np.ndarray
    alpha: np.ndarray
    factor: tuple[np.ndarray, bool]


class PolynomialRidge:
    r"""The objective of `nkrr`, its gradient and its Hessian.

    .. math:: F(\mu) = \operatorname{tr} Y^\top (K_\mu^{\circ d} + \lambda I)^{-1} Y

    where K_mu is the weighted sum of the base kernels plus the offset.

    Attributes
    ----------
    grams : GramOperator
        p base kernels over m rows.
    Y : ndarray of shape (m, q)
        Targets less their column means.
    ridge : float
        lambda.
    degree : int
        d.
    offset : float
        Added to the weighted sum.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*, NIPS 22, equation (10).
    """

    def __init__(
        self, grams: GramOperator, target: Target, regularisation: float, degree: int, offset: float = 0.0
    ) -> None:
        """Take the training rows; ``lambda = 1 / regularisation``.

        Raises
        ------
        ValueError
            The regularisation is not positive and finite, the degree is not one of 1 to 4, the offset is negative, or
            the target is constant.
        """
        if not 0 < regularisation < np.inf:
            raise ValueError(f"regularisation must be positive and finite, got {regularisation}; it is 1 / lambda.")
        if degree not in range(1, HIGHEST_DEGREE + 1):
            raise ValueError(f"degree must be a whole number from 1 to {HIGHEST_DEGREE}, got {degree}.")
        if not 0 <= offset < np.inf:
            raise ValueError(f"offset must be zero or positive, got {offset}.")
        self.grams = grams
        self.Y = target.Y - target.Y.mean(axis=0)
        if not self.Y.any():
            raise ValueError("the target is constant on the training rows, so no kernel can be learned from it.")
        self.ridge = 1.0 / regularisation
        self.degree = int(degree)
        self.offset = float(offset)

    def at(self, mu: np.ndarray) -> Fit:
        """Return the fit at the weights mu, shape (p,): one combination and one Cholesky factor, O(m^3 / 3).

        Raises
        ------
        ValueError
            The power of the weighted sum plus lambda I is not positive definite up to rounding.
        """
        K = self.grams.combine(mu)
        K += self.offset
        A = entrywise_power(K, self.degree)
        factor = factored_with_ridge(A, self.ridge)
        if factor is None:
            raise not_definite(self.degree, self.ridge, float(np.abs(K).max()) ** self.degree)
        alpha = cho_solve(factor, self.Y, check_finite=False)
        return Fit(mu, float(np.vdot(alpha, self.Y)), K, alpha, factor)

    def in_few_monomials(self) -> Objective:
        """Return the same objective on the monomials of rank-one kernels where these are few; itself otherwise."""
        if isinstance(self.grams, FeatureGrams) and has_few_monomials(self.grams, self.degree, self.offset):
            return MonomialRidge(self.grams, self.Y, self.ridge, self.degree, self.offset)
        return self

    def gradient(self, at: Fit) -> np.ndarray:
        r"""Return the gradient, shape (p,), never positive: rounding that would make it so is removed.

        .. math:: \partial_k F(\mu) = -d \, \langle K_k, K_\mu^{\circ (d-1)} \circ \alpha \alpha^\top \rangle_F

        One `inner_products` of the operator, for degree 1 one `quadratic_forms`.
        """
        if self.degree == 1:
            forms = self.grams.quadratic_forms(at.alpha)
        else:
            W = at.alpha @ at.alpha.T
            W *= entrywise_power(at.K, self.degree - 1)
            forms = self.grams.inner_products(W)
        return -self.degree * np.maximum(forms, 0.0)

    def hessian(self, at: Fit) -> np.ndarray:
        r"""Return the Hessian for degree 2, shape (p, p).

        .. math:: \partial_k \partial_l F(\mu) =
                  8 \operatorname{tr} \alpha^\top (K_\mu \circ K_k) V (K_\mu \circ K_l) \alpha
                  - 2 \operatorname{tr} \alpha^\top (K_k \circ K_l) \alpha

        with V the inverse of :math:`K_\mu \circ K_\mu + \lambda I`; p times `combine` and `inner_products`.
        """
        p, (m, q) = self.grams.n_kernels, at.alpha.shape
        products, curvature = np.empty((m, p, q)), np.empty((p, p))
        W = at.alpha @ at.alpha.T
        for k, unit in enumerate(np.eye(p)):
            K_k = self.grams.combine(unit)
            products[:, k] = (at.K * K_k) @ at.alpha
            curvature[k] = self.grams.inner_products(K_k * W)
        flat = products.reshape(m, p * q)
        solved = cho_solve(at.factor, flat, check_finite=False).reshape(m, p, q)
        H = 8 * np.einsum("ikq,ilq->kl", products, solved, optimize=True) - 2 * curvature
        return (H + H.T) / 2


@dataclass(frozen=True)
class _Run:
    """Where the descent from one start ended."""

    mu: np.ndarray
    value: float
    gap: float
    evaluations: int
    values: tuple[float, ...]
    first_gradient: np.ndarray


@dataclass(frozen=True)
class _Descent:
    """Spectral projected gradient on the part of the ball above its centre."""

    objective: Objective
    mu_0: np.ndarray
    radius: float
    norm: int
    tolerance: float
    max_evaluations: int

    def to_boundary(self, mu: np.ndarray) -> np.ndarray:
        """Return weights raised to the centre, their distance from it scaled to the radius; neither raises F."""
        nu = np.maximum(mu - self.mu_0, 0.0)
        if not nu.any():
            nu = np.ones_like(nu)
        return self.mu_0 + nu * (self.radius / np.linalg.norm(nu, self.norm))

    def gap(self, at: Fitted, g: np.ndarray) -> float:
        """Return how far the linear model at a point falls within the ball, relative to the value there."""
        return max(float(g @ (at.mu - minimise_linear(g, self.mu_0, self.radius, self.norm))), 0.0) / at.value

    def run(self, start: np.ndarray) -> _Run:
        """Descend from weights on the boundary."""
        point = self.objective.at(start)
        first_gradient = g = self.objective.gradient(point)
        values, evaluations = [point.value], 1
        if self.norm == 1 and len(start) > MANY and self.gap(point, g) > self.tolerance:
            point, g, more, evaluations = self._in_roots(point)
            values += more
        step = self._step(1.0, g)
        while True:
            gap = self.gap(point, g)
            if gap <= self.tolerance or evaluations >= self.max_evaluations:
                break
            new, tried = self._search(point, g, step, values, self.max_evaluations - evaluations)
            evaluations += tried
            if new is None:
                break
            g_new = self.objective.gradient(new)
            step = self._spectral_step(new.mu - point.mu, g_new - g, g_new, long=len(values) % 2 == 1)
            point, g = new, g_new
            values.append(point.value)
        return _Run(point.mu, point.value, gap, evaluations, tuple(values), first_gradient)

    def _in_roots(self, first: Fitted) -> tuple[Fitted, np.ndarray, list[float], int]:
        """Return the lowest point of a quasi-Newton search, its gradient, the values below the first, and evaluations.

        With ``nu = Lambda u^2 / |u|^2`` the simplex is gone, and its thousands of corners with it; where u is zero it
        stays so, and what is left to gain there is for the projected steps that follow.
        """
        best, best_gradient, values, evaluations = first, self.objective.gradient(first), [], 1

        def at(u: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best, best_gradient, evaluations
            share = u**2 / float(u @ u)
            point = self.objective.at(self.mu_0 + self.radius * share)
            g = self.objective.gradient(point)
            evaluations += 1
            if point.value < best.value:
                best, best_gradient = point, g
                values.append(point.value)
            slope = 2 * self.radius * u / float(u @ u) * (g - float(g @ share))
            return float(np.log(point.value)), slope / point.value

        def stop(_: np.ndarray) -> None:
            if self.gap(best, best_gradient) <= self.tolerance:
                raise StopIteration

        start = np.sqrt((first.mu - self.mu_0) / self.radius)
        options = {"maxcor": CORRECTIONS, "maxfun": self.max_evaluations - 1, "maxiter": self.max_evaluations}
        if self.max_evaluations > 1:
            minimize(
                at, start, jac=True, method="L-BFGS-B", callback=stop, options={**options, "ftol": 0.0, "gtol": 0.0}
            )
        return best, best_gradient, values, evaluations

    def _search(
        self, at: Fitted, g: np.ndarray, step: float, values: list[float], most: int
    ) -> tuple[Fitted | None, int]:
        """Return the first point towards the projected step that is low enough, or None, and how many were tried."""
        towards = project(at.mu - step * g, self.mu_0, self.radius, self.norm) - at.mu
        slope, share = float(g @ towards), 1.0
        for tried in range(1, most + 1):
            new: Fitted = self.objective.at(self.to_boundary(at.mu + share * towards))
            if new.value <= max(values[-MEMORY:]) + SUFFICIENT * share * slope:
                return new, tried
            above = new.value - at.value - share * slope
            parabola = -share * slope / (2 * above) if above > 0 else 1.0
            share *= min(max(parabola, 0.1), REDUCTION)
            if share < SHORTEST_STEP:
                return None, tried
        return None, most

    def _step(self, radii: float, g: np.ndarray) -> float:
        """Return the step along -g that is some radii long."""
        length = float(np.linalg.norm(g))
        return radii * self.radius / length if length > 0 else 1.0

    def _spectral_step(self, s: np.ndarray, y: np.ndarray, g: np.ndarray, long: bool) -> float:
        """Return a step of Barzilai and Borwein, long and short in turn; the longest one where F is not convex."""
        shortest, longest = (self._step(radii, g) for radii in STEP_RANGE)
        bend = float(s @ y)
        if not bend > 0:
            return longest
        return min(max(float(s @ s) / bend if long else bend / float(y @ y), shortest), longest)


@dataclass(frozen=True, eq=False, repr=False)
class NKRR(OneStageLearner):
    r"""The weights whose polynomial kernel gives kernel ridge regression the least objective.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu - \mu_0 \rVert_s \le \Lambda}
              F(\mu) = \operatorname{tr} Y^\top \big( K_\mu^{\circ d} + \lambda I \big)^{-1} Y,
              \qquad K_\mu = c + \sum_k \mu_k K_k, \quad \lambda = 1 / \texttt{regularisation}

    where the power is taken entry by entry.

    Parameters
    ----------
    degree : {1, 2, 3, 4}, default 2
        d.
    norm : {1, 2}, default 2
        s, the norm of the ball.
    center : float, default 1.0
        Length of mu_0, which is `center` times the uniform vector of unit norm: all its entries are
        ``center / sqrt(p)`` for norm 2 and ``center / p`` for norm 1. Zero is the ball around the origin.
    radius : float, default 1.0
        Lambda, not negative, in the same units. Zero is the polynomial of the equal weights mu_0: nothing is learned.
    offset : float, default 0.0
        c, not negative. Zero is the paper's homogeneous polynomial: of centered kernels an even power cannot tell x
        from its mirror image. With an offset, in units of the mean diagonal, the lower powers are part of the kernel.
    starts : int, default 3
        Points that the descent begins from: the uniform weights of the boundary (or `start`), the boundary point
        against the gradient there, then random ones. For degree 1 the first is enough.
    seed : int, default 0
        Of the random starts.
    tolerance : float, default 1e-6
        Stationarity gap to reach, dimensionless.
    max_iterations : int, default 500
        Most kernel ridge regressions from one start.

    Notes
    -----
    The gradient is :math:`-d \langle K_k, K_\mu^{\circ (d-1)} \circ \alpha \alpha^\top \rangle` with
    :math:`\alpha = (K_\mu^{\circ d} + \lambda I)^{-1} Y`, never positive. So F falls when weights below those of mu_0
    are raised to them, and when a point of the ball is moved outwards to its boundary: the search is over the boundary
    above mu_0, no weight is ever thresholded, and the linear model's minimum over the ball has a closed form.

    F is convex for degree 1, where F less the gap (times F) bounds the minimum from below. For higher degrees it need
    not be, the gap is zero at any stationary point, and several starts guard against poor ones; `convexity_margin` says
    how F bends at a solution.

    Algorithm 1 of the paper moves along the gradient with a step of one, reduced by 0.8 where that is too large, which
    depends on the units of the target. Here the first step is one radius long, later ones are Barzilai and Borwein's,
    and a step that does not lower the largest of the last few objectives is reduced by 0.8 or more. Some 5 to 10
    regressions a start are usual for norm 2, and 10 to 130 for norm 1, where the kernels that carry weight have to be
    found. Among thousands of kernels a quasi-Newton search in the roots of the weights comes first: within 1e-4
    of the lowest objective after some ten regressions.

    Each regression costs O(m^3) for one Cholesky factor and the operator's `combine`, each step one `inner_products`
    (`quadratic_forms` for degree 1) besides; O(m^2) memory beyond the operator's. The power of rank-one kernels has D =
    C(p + d - 1, d) monomials, C(p + d, d) with an offset: where they are at most half as many as the rows, a regression
    costs O(D^3 / 3 + m D) after O(m D^2) once (`kernels.solvers.monomial_ridge`), and the results are the same.

    The weights are those of the start that ended lowest, of the first of those that are equal within `tolerance`; their
    length is part of the solution. The measure of the certificate is the stationarity gap

    .. math:: \max_{\mu'} \nabla F(\mu)^\top (\mu - \mu') / F(\mu)

    over the ball, its iterations are the kernel ridge regressions of that start, and its objectives F after each of its
    steps. There is none for radius zero.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*, NIPS 22, equation (10),
    Propositions 1 to 3, Algorithm 1. Equation (13) there lacks the factor -2 of the gradient, and the kernel used is
    the power of the sum, as in (4), not the sum over exponents of (3). Birgin, Martinez, Raydan (2000), SIAM Journal on
    Optimization 10:1196-1211: the spectral projected gradient.
    """

    name = "nkrr"
    summary = "kernel ridge regression with a polynomial of the base kernels"
    source = "NIPS 2009, equation (10), Algorithm 1"
    predictor = "krr"

    degree: int = 2
    norm: int = 2
    center: float = 1.0
    radius: float = 1.0
    offset: float = 0.0
    starts: int = 3
    seed: int = 0
    tolerance: float = TOLERANCE
    max_iterations: int = 500

    def solve(
        self, grams: GramOperator, target: Target, regularisation: float = 1.0, start: np.ndarray | None = None
    ) -> Solution:
        """Return the weights; see `OneStageLearner.solve`."""
        objective = PolynomialRidge(grams, target, regularisation, self.degree, self.offset)
        if self.norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {self.norm!r}.")
        if not 0 <= self.center < np.inf:
            raise ValueError(f"center must be zero or positive and finite, got {self.center}.")
        if not 0 <= self.radius < np.inf:
            raise ValueError(
                f"radius must be zero or positive and finite, got {self.radius}; with zero nothing is learned."
            )
        if not self.radius and not self.center:
            raise ValueError("radius and center must not both be zero: no base kernel would have weight.")
        if self.starts < 1:
            raise ValueError(f"starts must be at least 1, got {self.starts}.")
        p = grams.n_kernels
        if start is not None and (
            np.shape(start) != (p,) or not np.all(np.isfinite(start)) or np.any(np.less(start, 0))
        ):
            raise ValueError(f"start must be {p} finite weights, one a base kernel, none of them negative.")
        mu_0 = np.full(p, self.center * float(p) ** (-1 / self.norm))
        if not self.radius:
            return Solution(mu_0, None, objective.degree, objective.offset)
        descent = _Descent(
            objective.in_few_monomials(), mu_0, self.radius, int(self.norm), self.tolerance, self.max_iterations
        )
        first = descent.to_boundary(mu_0 if start is None else np.asarray(start, dtype=np.float64))
        best = descent.run(first)
        for other in _other_starts(descent, best.first_gradient, 1 if self.degree == 1 else self.starts, self.seed):
            run = descent.run(other)
            if run.value < best.value * (1 - self.tolerance):
                best = run
        certificate = Certificate("stationarity gap", best.gap, self.tolerance, best.evaluations, best.values)
        certificate.warn_unless_converged(
            "nkrr", "raise max_iterations, or use a smaller regularisation, radius or degree"
        )
        return Solution(best.mu, certificate, objective.degree, objective.offset)


def _other_starts(descent: _Descent, g: np.ndarray, starts: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the starts after the first, on the boundary above the centre; `g` is the gradient at the first."""
    if starts > 1:
        yield descent.to_boundary(minimise_linear(g, descent.mu_0, descent.radius, descent.norm))
    rng = np.random.default_rng(seed)
    for _ in range(2, starts):
        # Uniform over the directions above the centre, for either norm.
        direction = np.abs(rng.normal(size=len(g))) if descent.norm == 2 else rng.exponential(size=len(g))
        yield descent.to_boundary(descent.mu_0 + direction)


@dataclass(frozen=True)
class ConvexityMargin:
    r"""How the objective of degree 2 bends at some weights.

    Attributes
    ----------
    smallest, largest : float
        Extreme eigenvalues of the p by p Hessian of F, in units of F per squared weight. F is convex on a convex set
        where and only where the smallest is not negative at each of its points.
    diagonal : float
        The least diagonal entry of :math:`K_\mu = \sum_k \mu_k K_k`.
    threshold : float
        :math:`\sqrt{\lambda / 3}`: for base kernels that are diagonal matrices the Hessian is positive semi-definite
        where `diagonal` reaches it. Of other kernels, centered ones among them, it says nothing certain.
    """

    smallest: float
    largest: float
    diagonal: float
    threshold: float

    @property
    def convex(self) -> bool:
        """Whether the Hessian is positive semi-definite, up to the rounding of its largest eigenvalue."""
        size = max(abs(self.smallest), abs(self.largest))
        return self.smallest >= -float(np.sqrt(np.finfo(np.float64).eps)) * size

    @property
    def diagonal_case(self) -> bool:
        """Whether the condition that suffices for diagonal base kernels holds."""
        return self.diagonal >= self.threshold


def convexity_margin(
    grams: GramOperator, target: Target, mu: np.ndarray, *, regularisation: float = 1.0
) -> ConvexityMargin:
    r"""Return whether the objective of `nkrr` for degree 2 is convex around some weights.

    .. math:: \tfrac12 \, u^\top \nabla^2 F(\mu) \, u = \operatorname{tr} \Big[
              4\, \alpha^\top (K_\mu \circ K_u) V (K_\mu \circ K_u) \alpha - \alpha^\top (K_u \circ K_u) \alpha \Big],
              \quad V = (K_\mu \circ K_\mu + \lambda I)^{-1}, \; \alpha = V Y

    Parameters
    ----------
    grams : GramOperator
        p base kernels over m rows.
    target : Target
        Of the m rows.
    mu : ndarray of shape (p,)
        Weights, not negative; those of a solution of degree 2 for example.
    regularisation : float, default 1.0
        ``1 / lambda``, positive.

    Returns
    -------
    margin : ConvexityMargin

    Raises
    ------
    ValueError
        The regularisation is not positive, the target is constant, `mu` is not p non-negative numbers, or
        :math:`K_\mu \circ K_\mu + \lambda I` is not positive definite up to rounding.

    Notes
    -----
    The whole Hessian is formed: p times the operator's `combine` and `inner_products`, so O(p^2 m^2), and O(m^3);
    O(p m q + m^2) memory. A diagnostic for hundreds of kernels.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*, NIPS 22, Proposition 4 and
    equations (19) and (23). The right side of (19) is half the quadratic form on its left; in (20) the last two factors
    are meant to be :math:`[K_\mu]_{lj} [K_u]_{lj}`; the 4 of N is missing below (21); and V before (22) is meant to be
    that of (19), with the square of the kernel, without which :math:`\sqrt{\lambda / 3}` does not follow from (23).
    """
    objective = PolynomialRidge(grams, target, regularisation, degree=2)
    mu = np.asarray(mu, dtype=np.float64)
    p = grams.n_kernels
    if mu.shape != (p,) or not (np.isfinite(mu) & (mu >= 0)).all():
        raise ValueError(f"mu must be {p} finite weights, one a base kernel, none of them negative.")
    at = objective.at(mu)
    eigenvalues = np.linalg.eigvalsh(objective.hessian(at))
    threshold = float(np.sqrt(objective.ridge / 3))
    return ConvexityMargin(float(eigenvalues[0]), float(eigenvalues[-1]), float(at.K.diagonal().min()), threshold)
