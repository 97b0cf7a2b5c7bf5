r"""Descent on the non-negative part of a ball around non-negative weights; projections and linear minima there.

.. math:: \{\mu \ge 0 : \lVert \mu - \mu_0 \rVert_s \le \Lambda\}, \qquad s \in \{1, 2\}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .certificate import Certificate

MEMORY = 5
"""Number of last objectives of which a step must lower the largest only: spectral steps are not monotone."""

SUFFICIENT = 1e-4
"""Share of the decrease that the slope promises which a step must bring."""

REDUCTION = 0.8
"""Most that is kept of a step found too large, as in the paper; less where a parabola through both ends needs it."""

SHORTEST_STEP = 1e-10
"""A line search that is down to this share of a step has reached the rounding of the objective."""

STEP_RANGE = (1e-3, 1e6)
"""Gradient steps are between these many radii long before they are projected."""


@dataclass(frozen=True)
class Iterate:
    """What is minimized, at some weights.

    Attributes
    ----------
    mu : ndarray of shape (p,)
        The weights.
    value : float
        F(mu), in squared units of Y over those of the kernel.
    gradient : callable
        Returns the gradient there, shape (p,), never positive.
    """

    mu: np.ndarray
    value: float
    gradient: Callable[[], np.ndarray]


@dataclass(frozen=True)
class ProjectedGradient:
    r"""Projected gradient on the part of the ball above its center.

    Attributes
    ----------
    objective : callable
        Returns the `Iterate` at some weights.
    mu_0, radius, norm
        The ball.
    tolerance : float
        Stationarity gap to reach.
    max_evaluations : int
        Most evaluations of the objective from one start.
    spectral : bool
        Steps of Barzilai and Borwein. Otherwise those of the paper's Algorithm 1, :math:`-\eta \nabla F`: eta is one,
        and 0.8 of itself after each step that would raise F.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), NIPS 22, Algorithm 1 and section 4.
    """

    objective: Callable[[np.ndarray], Iterate]
    mu_0: np.ndarray
    radius: float
    norm: int
    tolerance: float
    max_evaluations: int
    spectral: bool

    def to_boundary(self, mu: np.ndarray) -> np.ndarray:
        """Return weights raised to the center, their distance from it scaled to the radius; neither raises F."""
        nu = np.maximum(mu - self.mu_0, 0.0)
        if not nu.any():
            nu = np.ones_like(nu)
        return self.mu_0 + nu * (self.radius / np.linalg.norm(nu, self.norm))

    def run(self, start: np.ndarray) -> tuple[np.ndarray, Certificate, np.ndarray]:
        """Descend from weights on the boundary; return the last weights, their certificate and the first gradient."""
        point = self.objective(start)
        first_gradient = g = point.gradient()
        values, evaluations, step = [point.value], 1, self._step(1.0, g) if self.spectral else 1.0
        while (gap := self._gap(point, g)) > self.tolerance and evaluations < self.max_evaluations:
            most = self.max_evaluations - evaluations
            if self.spectral:
                new, tried = self._search(point, g, step, values, most)
            else:
                new, tried, step = self._search_as_printed(point, g, step, most)
            evaluations += tried
            if new is None:
                break
            g_new = new.gradient()
            if self.spectral:  # long and short in turn; the longest one where F is not convex
                s, y = new.mu - point.mu, g_new - g
                shortest, step = (self._step(radii, g_new) for radii in STEP_RANGE)
                bend = float(s @ y)
                if bend > 0:
                    step = min(max(float(s @ s) / bend if len(values) % 2 else bend / float(y @ y), shortest), step)
            point, g = new, g_new
            values.append(point.value)
        certificate = Certificate("stationarity gap", gap, self.tolerance, evaluations, tuple(values))
        return point.mu, certificate, first_gradient

    def _gap(self, at: Iterate, g: np.ndarray) -> float:
        """Return how far the linear model falls within the ball, relative to the value."""
        lowest = minimize_linear(g, self.mu_0, self.radius, self.norm)
        return max(float(g @ (at.mu - lowest)), 0.0) / at.value

    def _search(
        self, at: Iterate, g: np.ndarray, step: float, values: list[float], most: int
    ) -> tuple[Iterate | None, int]:
        """Return the first point towards the projected step that is low enough, or None, and how many were tried."""
        nu = at.mu - self.mu_0  # the gradient is never positive: a step along it stays above the center
        towards = project(nu - step * g, self.radius, self.norm) - nu
        slope, share = float(g @ towards), 1.0
        for tried in range(1, most + 1):
            new = self.objective(self.to_boundary(at.mu + share * towards))
            if new.value <= max(values[-MEMORY:]) + SUFFICIENT * share * slope:
                return new, tried
            above = new.value - at.value - share * slope
            parabola = -share * slope / (2 * above) if above > 0 else 1.0
            share *= min(max(parabola, 0.1), REDUCTION)
            if share < SHORTEST_STEP:
                return None, tried
        return None, most

    def _search_as_printed(
        self, at: Iterate, g: np.ndarray, eta: float, most: int
    ) -> tuple[Iterate | None, int, float]:
        """Return the first point that is not higher, or None, how many were tried, and eta."""
        for tried in range(1, most + 1):
            nu = project(at.mu - self.mu_0 - eta * g, self.radius, self.norm)
            new = self.objective(self.to_boundary(self.mu_0 + nu))
            if new.value <= at.value:
                return new, tried, eta
            eta *= REDUCTION
            if eta < SHORTEST_STEP:
                return None, tried, eta
        return None, most, eta

    def _step(self, radii: float, g: np.ndarray) -> float:
        """Return the step along -g that is some radii long."""
        length = float(np.linalg.norm(g))
        return radii * self.radius / length if length > 0 else 1.0


def project(nu: np.ndarray, radius: float, norm: int) -> np.ndarray:
    r"""Return the point nearest to `nu`, not negative, of those of a norm of at most `radius`, which stays so.

    Parameters
    ----------
    nu : ndarray of shape (p,)
        Not negative. Not modified.
    radius : float
        Positive, in the units of `nu`.
    norm : {1, 2}
        The norm that is bounded; the distance is Euclidean in any case.

    Notes
    -----
    O(p log p). The 1-norm takes the same off all entries, as far as they reach.
    """
    length = float(np.linalg.norm(nu, norm))
    if length <= radius:
        return nu
    if norm == 2:
        return nu * (radius / length)
    below = nu - nu.max()  # the same for all changes nothing, and takes no digits far from the ball
    descending = -np.sort(-below)
    excess = (np.cumsum(descending) - radius) / np.arange(1, len(nu) + 1)
    return np.maximum(below - excess[np.count_nonzero(descending > excess) - 1], 0.0)


def minimize_linear(g: np.ndarray, mu_0: np.ndarray, radius: float, norm: int) -> np.ndarray:
    r"""Return the weights of the ball where :math:`g^\top \mu` is least, for `g` without a positive entry.

    .. math:: \mu_0 + \Lambda \, {-g} / \lVert g \rVert_2 \quad (s = 2), \qquad
              \mu_0 + \Lambda \, e_k, \; k \in \arg\min_l g_l \quad (s = 1)

    Of several for norm 1 it is the first; the center where `g` is zero.
    """
    mu = np.array(mu_0, dtype=np.float64)
    size = float(-g.min())
    if not size > 0:
        return mu
    if norm == 1:
        mu[g.argmin()] += radius
        return mu
    v = -g / size
    return mu + radius * (v / np.linalg.norm(v))
