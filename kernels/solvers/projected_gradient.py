"""Projected gradient descent for nonnegative weights in a ball."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .certificate import Certificate

MEMORY = 5
"""Number of last objectives whose maximum a step must lower."""

REDUCTION = 0.8
"""Factor that shrinks too large steps, as in the paper."""

SHORTEST_STEP = 1e-10
"""Smallest share of a step in a line search."""

SHORTEST_GRADIENT_STEP = 1e-3
"""Length of the shortest gradient step, relative to the radius."""

LONGEST_GRADIENT_STEP = 1e6


@dataclass(frozen=True)
class Iterate:
    """Iterate of gradient descent: weights, objective, and a function for its gradient."""

    mu: np.ndarray
    value: float
    gradient: Callable[[], np.ndarray]


@dataclass(frozen=True)
class ProjectedGradient:
    r"""Projected gradient descent on the part of a ball above its center.

    The ball has 1-norm or 2-norm. Steps are Barzilai-Borwein, or :math:`-\eta \nabla F`
    unless `spectral` (Cortes, Mohri, Rostamizadeh, 2009, NIPS 22, Algorithm 1).
    """

    objective: Callable[[np.ndarray], Iterate]
    mu_0: np.ndarray
    radius: float
    norm: int
    tolerance: float
    max_evaluations: int
    spectral: bool

    def to_boundary(self, mu: np.ndarray) -> np.ndarray:
        """Return weights scaled to the boundary; the objective does not increase."""
        nu = np.maximum(mu - self.mu_0, 0.0)
        if not nu.any():
            nu = np.ones_like(nu)
        return self.mu_0 + nu * (self.radius / np.linalg.norm(nu, self.norm))

    def run(self, start: np.ndarray) -> tuple[np.ndarray, Certificate, np.ndarray]:
        """Minimize from start weights; return weights, certificate and the first gradient."""
        point = self.objective(start)
        g = point.gradient()
        first_gradient = g
        values = [point.value]
        evaluations = 1
        step = 1.0
        if self.spectral:
            step = self._step(1.0, g)
        while True:
            gap = self._gap(point, g)
            remaining = self.max_evaluations - evaluations
            if gap <= self.tolerance or remaining <= 0:
                break
            if self.spectral:
                new, n_evaluations = self._search(point, g, step, values, remaining)
            else:
                new, n_evaluations, step = self._search_as_printed(
                    point, g, step, remaining
                )
            evaluations += n_evaluations
            if new is None:
                break
            g_new = new.gradient()
            if self.spectral:
                step = self._spectral_step(
                    new.mu - point.mu, g_new - g, g_new, long=len(values) % 2 == 1
                )
            point = new
            g = g_new
            values.append(point.value)
        certificate = Certificate(
            "stationarity gap", gap, self.tolerance, evaluations, tuple(values)
        )
        return point.mu, certificate, first_gradient

    def _spectral_step(
        self, s: np.ndarray, y: np.ndarray, g: np.ndarray, long: bool
    ) -> float:
        """Return the Barzilai-Borwein step within bounds."""
        shortest = self._step(SHORTEST_GRADIENT_STEP, g)
        longest = self._step(LONGEST_GRADIENT_STEP, g)
        curvature = float(s @ y)
        if curvature <= 0:
            return longest
        if long:
            step = float(s @ s) / curvature
        else:
            step = curvature / float(y @ y)
        return min(max(step, shortest), longest)

    def _gap(self, point: Iterate, g: np.ndarray) -> float:
        """Return the relative decrease of the linear model."""
        lowest = minimize_linear(g, self.mu_0, self.radius, self.norm)
        return max(float(g @ (point.mu - lowest)), 0.0) / point.value

    def _search(
        self,
        point: Iterate,
        g: np.ndarray,
        step: float,
        values: list[float],
        max_evaluations: int,
    ) -> tuple[Iterate | None, int]:
        """Return a descending point or None, and the evaluations."""
        # The gradient is never positive: a step along it stays above the center.
        nu = point.mu - self.mu_0
        direction = project(nu - step * g, self.radius, self.norm) - nu
        slope = float(g @ direction)
        share = 1.0
        for n_evaluations in range(1, max_evaluations + 1):
            new = self.objective(self.to_boundary(point.mu + share * direction))
            if new.value <= max(values[-MEMORY:]) + 1e-4 * share * slope:
                return new, n_evaluations
            curvature = new.value - point.value - share * slope
            minimum_of_parabola = 1.0
            if curvature > 0:
                minimum_of_parabola = -share * slope / (2 * curvature)
            share *= min(max(minimum_of_parabola, 0.1), REDUCTION)
            if share < SHORTEST_STEP:
                return None, n_evaluations
        return None, max_evaluations

    def _search_as_printed(
        self, point: Iterate, g: np.ndarray, eta: float, max_evaluations: int
    ) -> tuple[Iterate | None, int, float]:
        """Return a point that is not higher, evaluations, and eta."""
        for n_evaluations in range(1, max_evaluations + 1):
            nu = project(point.mu - self.mu_0 - eta * g, self.radius, self.norm)
            new = self.objective(self.to_boundary(self.mu_0 + nu))
            if new.value <= point.value:
                return new, n_evaluations, eta
            eta *= REDUCTION
            if eta < SHORTEST_STEP:
                return None, n_evaluations, eta
        return None, max_evaluations, eta

    def _step(self, relative_length: float, g: np.ndarray) -> float:
        """Return the step along -g of a length relative to the radius."""
        norm = float(np.linalg.norm(g))
        if norm == 0:
            return 1.0
        return relative_length * self.radius / norm


def project(nu: np.ndarray, radius: float, norm: int) -> np.ndarray:
    """Return the projection of `nu` >= 0 onto the nonnegative part of a ball."""
    length = float(np.linalg.norm(nu, norm))
    if length <= radius:
        return nu
    if norm == 2:
        return nu * (radius / length)
    # Norm 1 reduces all entries by one threshold. The shift avoids cancellation.
    shifted = nu - nu.max()
    descending = -np.sort(-shifted)
    thresholds = (np.cumsum(descending) - radius) / np.arange(1, len(nu) + 1)
    n_positive = np.count_nonzero(descending > thresholds)
    return np.maximum(shifted - thresholds[n_positive - 1], 0.0)


def minimize_linear(
    g: np.ndarray, mu_0: np.ndarray, radius: float, norm: int
) -> np.ndarray:
    r"""Return the weights in the ball that minimize :math:`g^\top \mu`, for g <= 0."""
    mu = np.array(mu_0, dtype=np.float64)
    size = float(-g.min())
    if not size > 0:
        return mu
    if norm == 1:
        mu[g.argmin()] += radius
        return mu
    v = -g / size
    return mu + radius * (v / np.linalg.norm(v))
