r"""Descent on the non-negative part of a ball around non-negative weights; projections and linear minima there.

.. math:: \{\mu \ge 0 : \lVert \mu - \mu_0 \rVert_s \le \Lambda\}, \qquad s \in \{1, 2\}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.optimize import minimize

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
class Descent:
    """Where the descent from one start ended."""

    mu: np.ndarray
    value: float
    gap: float
    evaluations: int
    values: tuple[float, ...]
    first_gradient: np.ndarray


@dataclass(frozen=True)
class ProjectedGradient:
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

    def run(self, start: np.ndarray) -> Descent:
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
        return Descent(point.mu, point.value, gap, evaluations, tuple(values), first_gradient)

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


def project(z: np.ndarray, mu_0: np.ndarray, radius: float, norm: int) -> np.ndarray:
    r"""Return the point of the set nearest to `z`, in the Euclidean norm whatever the norm of the ball.

    Parameters
    ----------
    z : ndarray of shape (p,)
        Any finite numbers. Not modified.
    mu_0 : ndarray of shape (p,)
        Centre of the ball, not negative. Not modified.
    radius : float
        Lambda, positive, in the units of `z`.
    norm : {1, 2}
        The norm that bounds the distance from the centre.

    Returns
    -------
    mu : ndarray of shape (p,)
        Not negative, at most `radius` from `mu_0` up to the rounding of the norm.

    Raises
    ------
    ValueError
        `norm` is neither 1 nor 2.

    Notes
    -----
    O(p log p): the one multiplier is found on its piece of a piecewise monotone function, exactly up to rounding.
    Setting what is negative to zero and then scaling the distance from the centre to the radius gives another point,
    except where no entry of `z` is below its entry of `mu_0`, which a gradient that is never positive never leaves.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), NIPS 22, equations (7) and (8): the sets; Algorithm 1 thresholds and scales.
    """
    if norm == 2:
        return _project_2(z, mu_0, radius)
    if norm == 1:
        return _project_1(z, mu_0, radius)
    raise ValueError(f"norm must be 1 or 2, got {norm!r}.")


def minimise_linear(g: np.ndarray, mu_0: np.ndarray, radius: float, norm: int) -> np.ndarray:
    r"""Return the point of the set where :math:`g^\top \mu` is least, for `g` without a positive entry.

    .. math:: \mu_0 + \Lambda \, {-g} / \lVert g \rVert_2 \quad (s = 2), \qquad
              \mu_0 + \Lambda \, e_k, \; k \in \arg\min_l g_l \quad (s = 1)

    Parameters
    ----------
    g : ndarray of shape (p,)
        A gradient, every entry zero or less. Not modified.
    mu_0, radius, norm
        As of `project`.

    Returns
    -------
    mu : ndarray of shape (p,)
        Of several for norm 1 the first; the centre where `g` is zero.

    Raises
    ------
    ValueError
        `norm` is neither 1 nor 2.

    Notes
    -----
    O(p). The bound on the sign is not used: moving away from the centre against `g` keeps to the set.
    """
    mu = np.array(mu_0, dtype=np.float64)
    size = float(-g.min())
    if norm not in (1, 2):
        raise ValueError(f"norm must be 1 or 2, got {norm!r}.")
    if not size > 0:
        return mu
    if norm == 1:
        mu[g.argmin()] += radius
        return mu
    v = -g / size
    return mu + radius * (v / np.linalg.norm(v))


def _project_2(z: np.ndarray, mu_0: np.ndarray, radius: float) -> np.ndarray:
    """Return ``max(0, mu_0 + r (z - mu_0))`` with the one r in (0, 1] that meets the radius, or 1 where none need be.

    In the multiplier t of the ball r is ``1 / (1 + t)``. The squared distance from the centre, as a function of r, is
    the sum of ``mu_0^2`` over the entries that reached zero and of ``r^2 (z - mu_0)^2`` over the others: it never
    falls, and is quadratic between the r where an entry reaches zero.
    """
    inside = np.maximum(z, 0.0)
    if np.linalg.norm(inside - mu_0) <= radius:
        return inside
    w = z - mu_0
    unit = np.abs(w).max()
    w = w / unit  # no square overflows; r is relative to this from here on
    reach = np.full(len(w), np.inf)
    falls = w < 0
    reach[falls] = mu_0[falls] / -w[falls]
    order = np.argsort(reach, kind="stable")
    steps = reach[order]
    zeroed = np.concatenate([[0.0], np.cumsum(mu_0[order] ** 2)])
    moving = np.concatenate([np.cumsum((w[order] ** 2)[::-1])[::-1], [0.0]])
    # Entry j of `steps` reaches zero last of those up to j; the first piece that ends beyond the radius holds r.
    finite = np.isfinite(steps)
    ends = np.full(len(steps), np.inf)
    ends[finite] = zeroed[1:][finite] + steps[finite] ** 2 * moving[1:][finite]
    j = int(np.searchsorted(np.maximum.accumulate(ends), radius**2))
    if not moving[j] > 0:  # beyond the radius by rounding alone
        return inside
    r = min(np.sqrt(max(radius**2 - zeroed[j], 0.0) / moving[j]), unit)
    return np.maximum(mu_0 + r * w, 0.0)


def _project_1(z: np.ndarray, mu_0: np.ndarray, radius: float) -> np.ndarray:
    """Return ``max(0, mu_0 + soft(z - mu_0, t))`` with the one t >= 0 that meets the radius, or 0 where none need be.

    Entry k moves from its centre by ``|z_k - mu_0k| - t``, but by zero at least and, downwards, by ``mu_0k`` at most.
    The sum of these falls in t, and is linear between the t where an entry starts or stops to move.
    """
    inside = np.maximum(z, 0.0)
    if np.abs(inside - mu_0).sum() <= radius:
        return inside
    w = z - mu_0
    size = np.abs(w)
    falls = w < 0
    at = np.concatenate([size, size[falls] - mu_0[falls]])
    slope = np.concatenate([np.ones(len(w)), np.full(int(falls.sum()), -1.0)])
    order = np.argsort(-at, kind="stable")
    at, slope = at[order], np.cumsum(slope[order])
    distance = np.concatenate([[0.0], np.cumsum(slope[:-1] * -np.diff(at))])
    # Between at[j] and at[j + 1] the distance grows from distance[j] at the rate slope[j]; t is at[j] less `beyond`.
    j = max(int(np.searchsorted(distance, radius)) - 1, 0)
    beyond = min((radius - distance[j]) / max(slope[j], 1.0), at[j])
    step = np.clip((size - at[j]) + beyond, 0.0, np.where(falls, mu_0, np.inf))
    # Far from the ball these differences carry the rounding of z; the distance does not.
    step *= min(radius / step.sum(), 1.0)
    return np.maximum(mu_0 + np.copysign(step, w), 0.0)
