r"""Weights of rank-one base kernels with an l1-norm constraint, solved as a lasso.

For :math:`K_k = z_k z_k^\top` the learned function :math:`f = Z w` is linear, and the
weights are eliminated (Micchelli, Pontil, 2005, JMLR 6:1099-1125):

.. math:: \min_{\mu \ge 0,\; \sum \mu_k \le \Lambda} \sum_k \frac{w_k^2}{\mu_k} = \frac{\lVert w \rVert_1^2}{\Lambda}
          \quad \text{at} \quad \mu_k = \Lambda \frac{|w_k|}{\lVert w \rVert_1}.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..engine.operators import FeatureGrams
from .certificate import TOLERANCE, Certificate
from .factor import factored
from .interior_point import FeaturePath
from .svm import best_intercept

FEW_PASSES = 20
"""Largest number of active-set passes before the central path."""

FEW_ACTIVE = 0.75
"""Largest number of active features per row; more are nearly dependent."""

MIN_ENTERING = 16

EXACT_GAP = 1e-13
"""Relative duality gap of the order of rounding."""

NEARBY_GAP = 1e-10
"""Relative duality gap at which the central path ends by default."""

PATIENCE = 8
"""Largest number of path steps without a smaller gap."""

PATIENT_GAP = 1e-3

ROUNDING = 1e-13
"""Relative rounding error of an objective."""


@dataclass(frozen=True)
class LassoFit:
    """Coefficients w of a lasso, with gradient, value and duality gap.

    `descent` is half the negative gradient of the loss, `threshold` half the slope of
    the penalty, `value` P(w), and `bound` a lower bound of the minimum.
    """

    w: np.ndarray
    descent: np.ndarray
    threshold: float
    value: float
    bound: float

    @property
    def gap(self) -> float:
        if self.value <= 0:
            return 0.0
        return max(self.value - self.bound, 0.0) / self.value


@dataclass(frozen=True)
class SquaredLasso:
    r"""Least squares with the squared 1-norm as penalty, for centered y.

    .. math:: \min_w P(w) = \frac1\lambda \lVert y - Z w \rVert^2 + \frac1\Lambda \lVert w \rVert_1^2
              = \max_\alpha 2 \alpha^\top y - \lambda \lVert \alpha \rVert^2 - \Lambda \max_k (z_k^\top \alpha)^2

    Newton steps keep the signs of active features (Bertsekas, 1982, SIAM Journal on
    Control and Optimization 20:221-246).
    """

    grams: FeatureGrams
    y: np.ndarray
    ridge: float
    radius: float

    def at(self, w: np.ndarray) -> LassoFit:
        """Evaluate the lasso at coefficients w, in O(nnz) time."""
        residual = self.y - self.grams.scores(w)
        descent = self.grams.projections(residual) / self.ridge
        norm = float(np.abs(w).sum())
        loss = float(residual @ residual) / self.ridge
        # For alpha = s (y - Z w) / lambda, the dual 2 s b - s^2 c is at most b^2 / c.
        b = float(residual @ self.y) / self.ridge
        c = loss + self.radius * float(np.abs(descent).max()) ** 2
        bound = 0.0
        if c > 0 and b > 0:
            bound = b * b / c
        return LassoFit(
            w, descent, norm / self.radius, loss + norm**2 / self.radius, bound
        )

    def from_weights(self, mu: np.ndarray) -> np.ndarray:
        """Return the coefficients of ridge regression with kernel weights mu."""
        active = np.flatnonzero(mu)
        roots = np.sqrt(mu[active])
        A = self.grams.feature_products(active) * roots[:, None] * roots / self.ridge
        A.flat[:: len(A) + 1] += 1.0
        right = roots * self.grams.projections(self.y)[active] / self.ridge
        w = np.zeros(len(mu))
        w[active] = roots * cho_solve(cho_factor(A), right)
        return w

    def step(self, fit: LassoFit) -> LassoFit | None:
        """Take a descent step from a fit; None if none descends."""
        active = self._candidates(fit)
        while len(active):
            before = fit.w[active]
            signs = np.sign(np.where(before != 0, before, fit.descent[active]))
            slope = fit.descent[active] - fit.threshold * signs
            H = (
                self.grams.feature_products(active) / self.ridge
                + np.outer(signs, signs) / self.radius
            )
            # A small ridge lets dependent features share their step.
            change = np.asarray(
                cho_solve(factored(H, 1e-12), slope, check_finite=False)
            )
            for length in (1.0, 0.5, 0.25, 0.125):
                better = self._with_coefficients(
                    fit, active, _clip_to_signs(before + length * change, signs)
                )
                if better is not None:
                    return better
            has_wrong_sign = (before == 0) & (signs * change <= 0)
            if not has_wrong_sign.any():
                falling = signs * change < 0
                length = float((-before[falling] / change[falling]).min(initial=1.0))
                return self._with_coefficients(
                    fit, active, _clip_to_signs(before + length * change, signs)
                )
            active = active[~has_wrong_sign]
        return None

    def _candidates(self, fit: LassoFit) -> np.ndarray:
        """Return active features, and entering ones of largest violation."""
        active = np.flatnonzero(fit.w)
        violation = np.where(fit.w == 0, np.abs(fit.descent) - fit.threshold, -np.inf)
        # More than m features are dependent, so fewer enter near that number.
        n_entering = min(
            max(MIN_ENTERING, len(active)), (len(self.y) - len(active)) // 2
        )
        largest = np.argsort(-violation, kind="stable")[: max(1, n_entering)]
        return np.union1d(active, largest[violation[largest] > 0])

    def _with_coefficients(
        self, fit: LassoFit, active: np.ndarray, coefficients: np.ndarray
    ) -> LassoFit | None:
        w = fit.w.copy()
        w[active] = coefficients
        slope = fit.descent[active] - fit.threshold * np.sign(
            np.where(fit.w != 0, fit.w, fit.descent)[active]
        )
        expected_decrease = 2 * float(slope @ (coefficients - fit.w[active]))
        moved = self.at(w)
        if (
            expected_decrease > 0
            and moved.value <= fit.value - 1e-4 * expected_decrease
        ):
            return moved
        # At equal values up to rounding, a step counts that halves its own gap.
        is_level = moved.value <= fit.value * (1 + ROUNDING)
        if is_level and moved.value - moved.bound < (fit.value - fit.bound) / 2:
            return moved
        return None


def _clip_to_signs(coefficients: np.ndarray, signs: np.ndarray) -> np.ndarray:
    return signs * np.maximum(signs * coefficients, 0.0)


class _BestFit:
    """Best fit and bound, and nonincreasing values of iterations."""

    def __init__(self, fit: LassoFit) -> None:
        self.fit = fit
        self.bound = fit.bound
        self.objectives = [fit.value]

    @property
    def iterations(self) -> int:
        return len(self.objectives)

    @property
    def gap(self) -> float:
        return replace(self.fit, bound=self.bound).gap

    def add(self, fit: LassoFit) -> None:
        """Keep a better fit, or an equal one of smaller gap."""
        self.bound = max(self.bound, fit.bound)
        is_level = fit.value <= self.fit.value * (1 + ROUNDING)
        if fit.value < self.fit.value or (is_level and fit.gap < self.fit.gap):
            self.fit = fit
        self.objectives.append(min(fit.value, self.objectives[-1]))

    def solution(
        self, radius: float, default: np.ndarray | None, tolerance: float
    ) -> tuple[np.ndarray, Certificate]:
        """Return weights of the best fit, or default ones."""
        w = self.fit.w
        total = float(np.abs(w).sum())
        if total > 0:
            mu = np.abs(w) * (radius / total)
        elif default is not None:
            mu = default
        else:
            mu = np.full(len(w), radius / len(w))
        return mu, Certificate(
            "duality gap", self.gap, tolerance, self.iterations, tuple(self.objectives)
        )


def ridge_weights(
    grams: FeatureGrams,
    y: np.ndarray,
    ridge: float,
    radius: float,
    start: np.ndarray | None,
    tolerance: float,
    max_iter: int,
) -> tuple[np.ndarray, Certificate]:
    """Return optimal weights of rank-one kernels for ridge regression.

    The weights have sum `radius`. Active sets take O(a^3) per pass for a features; with
    many, the central path, O(m^3 / 3) per step, takes over.
    """
    problem = SquaredLasso(grams, y, ridge, radius)
    w = np.zeros(grams.n_kernels)
    if start is not None and np.count_nonzero(start) <= len(y):
        w = problem.from_weights(start)
    fit = problem.at(w)
    best = _BestFit(fit)
    target_gap = min(tolerance, EXACT_GAP)
    _active_sets(
        problem,
        fit,
        best,
        target_gap,
        min(FEW_PASSES, max_iter - 1),
        FEW_ACTIVE * len(y),
    )
    if best.gap > target_gap and best.iterations < max_iter:
        fit = _along_path(
            problem, best, NEARBY_GAP * min(tolerance / TOLERANCE, 1.0), max_iter
        )
        _active_sets(problem, fit, best, target_gap, max_iter - best.iterations, np.inf)
    return best.solution(radius, start, tolerance)


def _active_sets(
    problem: SquaredLasso,
    fit: LassoFit,
    best: _BestFit,
    target_gap: float,
    max_passes: int,
    max_active: float,
) -> None:
    """Step until the gap is reached or no step is possible."""
    for _ in range(max_passes):
        if best.gap <= target_gap or np.count_nonzero(fit.w) > max_active:
            return
        better = problem.step(fit)
        if better is None:
            return
        fit = better
        best.add(fit)


def _along_path(
    problem: SquaredLasso, best: _BestFit, target_gap: float, max_iter: int
) -> LassoFit:
    """Follow the central path; return the nearest sparse fit."""
    size = float(np.sqrt(np.mean(problem.y**2)))
    path = FeaturePath(
        problem.grams, problem.y / size, 1.0, problem.radius / problem.ridge
    )
    nearest = best.fit.w
    smallest_gap = np.inf
    n_failures = 0
    while (
        best.iterations < max_iter
        and smallest_gap > target_gap
        and n_failures < PATIENCE
        and path.step()
    ):
        fit = problem.at(size * path.w)
        best.add(fit)
        n_failures = _count_failures(n_failures, fit.gap, smallest_gap)
        if fit.gap < smallest_gap:
            smallest_gap = fit.gap
            nearest = size * path.sparse_w()
    return problem.at(nearest)


def _count_failures(n_failures: int, gap: float, smallest_gap: float) -> int:
    if gap < smallest_gap or smallest_gap > PATIENT_GAP:
        return 0
    return n_failures + 1


class _SVMLasso:
    def __init__(
        self, grams: FeatureGrams, signs: np.ndarray, C: float, radius: float
    ) -> None:
        self._grams = grams
        self._signs = signs
        self._C = C
        self._radius = radius
        self._intercept = grams.centering.intercept

    def bound(self, x: np.ndarray) -> float:
        """Return the best dual objective at a multiple of x."""
        total = float(x.sum())
        largest_product = float(np.abs(self._grams.projections(self._signs * x)).max())
        quadratic = self._radius * self._C * largest_product**2
        scale = 1 / float(x.max())
        if quadratic * scale > total:
            scale = total / quadratic
        return self._C * scale * (2 * total - scale * quadratic)

    def at(self, w: np.ndarray, bound: float) -> LassoFit:
        """Return the fit with the best intercept, scaled to margin one if better."""
        scores = self._grams.scores(w)
        norm = float(np.abs(w).sum())
        b = 0.0
        if self._intercept:
            b = best_intercept(scores, self._signs)
        hinge = np.maximum(0.0, 1.0 - self._signs * (scores + b)).sum()
        value = float(2 * self._C * hinge + norm**2 / self._radius)
        # With a large C, the rounding of the margin would dominate the value.
        margin_of_positive = float(scores[self._signs > 0].min())
        margin_of_negative = float(-scores[self._signs < 0].max())
        margin = min(margin_of_positive, margin_of_negative)
        if self._intercept:
            margin = (margin_of_positive + margin_of_negative) / 2
        if margin > 0 and (norm / margin) ** 2 / self._radius < value:
            w = w / margin
            value = (norm / margin) ** 2 / self._radius
        return LassoFit(w, np.zeros(0), norm / self._radius, value, bound)


def svm_weights(
    grams: FeatureGrams,
    signs: np.ndarray,
    C: float,
    radius: float,
    tolerance: float,
    max_iter: int,
) -> tuple[np.ndarray, Certificate]:
    r"""Return optimal weights of rank-one kernels for a binary SVM.

    .. math:: \min_{w, b} P(w, b) = 2 C \sum_i \max(0, 1 - y_i (z_i^\top w + b)) + \frac1\Lambda \lVert w \rVert_1^2
              = \max_{0 \le a \le C,\; y^\top a = 0} 2\, \mathbf 1^\top a - \Lambda \max_k \big(z_k^\top (y \circ
              a)\big)^2

    The weights have sum `radius`.
    """
    problem = _SVMLasso(grams, signs, C, radius)
    path = FeaturePath(grams, np.ones(len(signs)), 0.0, C * radius, signs)
    dense_fit = problem.at(np.zeros(grams.n_kernels), problem.bound(path.x))
    best = _BestFit(dense_fit)
    target_gap = NEARBY_GAP * min(tolerance / TOLERANCE, 1.0)
    smallest_gap = np.inf
    n_failures = 0
    while (
        best.gap > target_gap
        and best.iterations < max_iter
        and n_failures < PATIENCE
        and path.step()
    ):
        bound = problem.bound(path.x)
        fit = problem.at(path.w, bound)
        best.add(problem.at(path.sparse_w(), bound))
        if fit.value < dense_fit.value:
            dense_fit = fit
        n_failures = _count_failures(n_failures, fit.gap, smallest_gap)
        smallest_gap = min(smallest_gap, fit.gap)
    if best.gap > tolerance and dense_fit.value < best.fit.value:
        # The active features are not settled; none is removed.
        best.fit = dense_fit
        best.objectives[-1] = dense_fit.value
    return best.solution(radius, None, tolerance)
