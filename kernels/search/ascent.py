"""The kernel so far of a stagewise search, on the rows that are searched: where its alignment grows fastest."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from learnkernels.kernels.centering import center_in_place
from learnkernels.kernels.search.pairs import (
    FeaturePairs,
    RadialPairs,
    gradient_pass,
    products_pass,
    settle,
    target_pass,
)

NEWTON_STEPS = 8
"""Of the search for one bandwidth; two or three are usual from the best point on bins."""

SETTLED = 1e-3
"""A step of log sigma this short is the last: Newton's leaves its square, times the curvature's error on bins."""


def best_step(a: float, b: float, c: float, d: float, e: float, largest: float) -> float:
    r"""Return the step in [0, `largest`] that aligns best.

    .. math:: \max_\eta \; (a + b\eta) / \sqrt{c + 2d\eta + e\eta^2}

    Parameters
    ----------
    a, b : float
        Products of the kernel and of the one added with the target kernel.
    c, d, e : float
        Products of the kernel with itself, of both, and of the one added with itself.
    largest : float
        eta_max.

    Notes
    -----
    The only stationary point is ``(ad - bc) / (bd - ae)``; comparing it with the ends tells whether it is a maximum.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning, Proposition 2.
    """

    def alignment(eta: float) -> float:
        return (a + b * eta) / np.sqrt(c + 2 * d * eta + e * eta**2)

    stationary = (a * d - b * c) / (b * d - a * e) if b * d != a * e else 0.0
    return max((0.0, min(max(stationary, 0.0), largest), largest), key=alignment)


class DenseAscent:
    """The sum as a matrix, for base kernels of any number of parameters.

    Attributes
    ----------
    pairs : FeaturePairs
    start : ndarray of shape (r,)
        Where each search begins.
    shrinkage : float
    """

    def __init__(self, pairs: FeaturePairs, start: np.ndarray, Y: np.ndarray, eps: float, shrinkage: float) -> None:
        """Start from epsilon I; `Y` is centered, shape (m, q)."""
        self.pairs, self.Y, self.shrinkage, m = pairs, Y, shrinkage, len(Y)
        self.low, self.high = pairs.bounds()
        self.start = np.clip(start, self.low, self.high)
        self.target_norm = float(np.linalg.norm(Y.T @ Y))
        self.K = np.full((m, m), -eps / m)
        self.K.flat[:: m + 1] += eps
        self.a, self.c = eps * float(np.vdot(Y, Y)), eps**2 * (m - 1)

    @property
    def alignment(self) -> float:
        """Centered alignment with the target kernel."""
        return float(self.a / (np.sqrt(self.c) * self.target_norm))

    def gradient(self) -> np.ndarray:
        """Return F', shape (m, m); centered, as both its terms are."""
        P = self.Y @ self.Y.T
        P -= (self.a / self.c) * self.K
        P /= np.sqrt(self.c) * self.target_norm
        return P

    def steepest(self) -> np.ndarray:
        """Return the u along whose base kernel the alignment, less the shrinkage, grows fastest from the start."""
        P = self.gradient()
        # The unit of the objective does not matter to where it is largest, but it does to when an optimiser stops.
        unit = max(abs(self._objective(self.start, P)[0]), np.finfo(float).tiny)
        found = minimize(
            lambda u: tuple(-part / unit for part in self._objective(u, P)),
            self.start,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(self.low, self.high, strict=True)),
            options={"ftol": 1e-10, "gtol": 1e-8, "maxiter": 200},
        )
        return np.asarray(found.x)

    def _objective(self, u: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.pairs.value_and_gradient(u, P)
        if self.shrinkage and len(u) > 1:
            sigma = np.exp(u)
            away = sigma - sigma.mean()
            value -= self.shrinkage * float(away @ away)
            # The mean moves too, but its part sums to zero.
            gradient = gradient - 2 * self.shrinkage * away * sigma
        return value, gradient

    def add(self, u: np.ndarray, largest: float) -> float:
        """Add the base kernel at u with its best weight; O(m^2)."""
        K_new = center_in_place(self.pairs.matrix(u))
        b, d = float(np.vdot(self.Y, K_new @ self.Y)), float(np.vdot(K_new, self.K))
        e = float(np.vdot(K_new, K_new))
        eta = best_step(self.a, b, self.c, d, e, largest)
        K_new *= eta
        self.K += K_new
        self.a, self.c = self.a + eta * b, self.c + 2 * eta * d + eta**2 * e
        return eta

    def reset(self, U: np.ndarray, weights: np.ndarray) -> None:
        """Become a sum of base kernels."""
        self.K[:] = 0.0
        for u, weight in zip(U, weights, strict=True):
            if weight > 0:
                self.K += weight * self.pairs.matrix(u)
        center_in_place(self.K)
        self.a, self.c = float(np.vdot(self.Y, self.K @ self.Y)), float(np.vdot(self.K, self.K))


class RadialAscent:
    """The sum as its values above the diagonal, in compiled passes, for base kernels of one distance a pair.

    Attributes
    ----------
    pairs : RadialPairs
    """

    def __init__(self, pairs: RadialPairs, Y: np.ndarray, eps: float) -> None:
        """Start from epsilon I; `Y` is centered, shape (m, q)."""
        self.pairs, m = pairs, len(Y)
        self.target_norm, self.target_trace = float(np.linalg.norm(Y.T @ Y)), float(np.vdot(Y, Y))
        self.target = np.empty(len(pairs.D))
        target_pass(Y, self.target)
        # Values above the diagonal, the diagonal, and the mean of each row, of the sum before it is centered.
        self.K, self.diagonal, self.means = np.zeros(len(pairs.D)), eps, np.full(m, eps / m)
        self.a, self.c = eps * self.target_trace, eps**2 * (m - 1)
        self._p, self._new = np.empty(len(pairs.D)), np.empty(len(pairs.D))

    @property
    def alignment(self) -> float:
        """Centered alignment with the target kernel."""
        return float(self.a / (np.sqrt(self.c) * self.target_norm))

    def steepest(self) -> np.ndarray:
        """Return the u along which the alignment grows fastest: the best on bins, settled by Newton's method."""
        norm = np.sqrt(self.c) * self.target_norm
        weights = gradient_pass(
            self.K, self.target, self.means, self.pairs.bins, len(self.pairs.centers),
            1 / norm, self.a / (self.c * norm), self._p,
        )  # fmt: skip
        u, curvature = self.pairs.best_on_bins(weights)

        def slope_at(u: float) -> float:
            return self.pairs.sums(u, self._p, self._new)[1]

        ends = (float(self.pairs.candidates[0]), float(self.pairs.candidates[-1]))
        return np.array([settle(slope_at, u, curvature, ends, SETTLED, NEWTON_STEPS)])

    def add(self, u: np.ndarray, largest: float) -> float:
        """Add the base kernel at u with its best weight; one exponential a pair."""
        means, b, d, e = self._products(u)
        eta = best_step(self.a, b, self.c, d, e, largest)
        self._take(eta, means, b, d, e)
        return eta

    def reset(self, U: np.ndarray, weights: np.ndarray) -> None:
        """Become a sum of base kernels."""
        self.K[:], self.means[:], self.diagonal, self.a, self.c = 0.0, 0.0, 0.0, 0.0, 0.0
        for u, weight in zip(U, weights, strict=True):
            self._take(float(weight), *self._products(u))

    def _products(self, u: np.ndarray) -> tuple[np.ndarray, float, float, float]:
        """Fill `_new` with the base kernel at u; return its row means, and b, d and e of `best_step`."""
        m, pairs = len(self.means), self.pairs
        pairs.fill(float(u[0]), self._new)
        rows, with_target, with_sum, with_itself = products_pass(self._new, pairs.diagonal, self.K, self.target, m)
        means = rows / m
        b = 2 * with_target + pairs.diagonal * self.target_trace
        d = 2 * with_sum + m * pairs.diagonal * self.diagonal
        e = 2 * with_itself + m * pairs.diagonal**2
        d += -2 * m * float(means @ self.means) + m**2 * means.mean() * self.means.mean()
        e += -2 * m * float(means @ means) + (m * means.mean()) ** 2
        return means, b, d, e

    def _take(self, weight: float, means: np.ndarray, b: float, d: float, e: float) -> None:
        """Add `_new` with a weight."""
        self._new *= weight
        self.K += self._new
        self.means += weight * means
        self.diagonal += weight * self.pairs.diagonal
        self.a, self.c = self.a + weight * b, self.c + 2 * weight * d + weight**2 * e


Ascent = DenseAscent | RadialAscent
"""K_0 = epsilon I, and the base kernels added to it so far; all centered."""
