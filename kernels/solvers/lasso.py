r"""Rank-one base kernels with an l1-norm constraint on the weights, solved as a lasso.

For :math:`K_k = z_k z_k^\top` the function that a predictor learns is linear in the centered features,
:math:`f = Z w`, and base kernel k charges :math:`w_k^2 / \mu_k` for it. By the inequality of Cauchy and Schwarz the
weights can be eliminated,

.. math:: \min_{\mu \ge 0,\; \sum \mu_k \le \Lambda} \sum_k \frac{w_k^2}{\mu_k} = \frac{\lVert w \rVert_1^2}{\Lambda}
          \quad \text{at} \quad \mu_k = \Lambda \frac{|w_k|}{\lVert w \rVert_1},

and a loss with the squared 1-norm as penalty is left, convex in p numbers:

.. math:: \min_\mu J(\mu) = \min_w P(w), \qquad J(\mu) \le P(w) \text{ for that } \mu.

Kernel ridge regression gives :math:`P(w) = \lVert y - Z w \rVert^2 / \lambda + \lVert w \rVert_1^2 / \Lambda`
(`SquaredLasso`), the support vector machine :math:`P(w) = 2 C \sum_i \max(0, 1 - y_i (f_i + b)) + \lVert w \rVert_1^2 /
\Lambda` (`svm_weights`). Their duals are those of the learners, so that any w and any dual point give the learner's
duality gap, in O(nnz).

Weights outside and the predictor inside (`kernels.solvers.minimax`) need a matrix a solution. With hundreds of features
that carry weight, the value has kinks in thousands that do not, and Newton's method there creeps.

References
----------
Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.2, for rank-one kernels; Lanckriet, Cristianini,
Bartlett, El Ghaoui, Jordan (2004), JMLR 5:27-72, for the problem; Micchelli, Pontil (2005), JMLR 6:1099-1125, for the
elimination of the weights.
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
"""Passes of active sets before the central path takes over; from a neighboring solution some ten are enough."""

FEW_ACTIVE = 0.75
"""Share of the rows; beyond it products of active features are near singular, and the central path takes over."""

MOST_ENTERING = 16
"""Features that join the active ones in a pass; as many as are active already where that is more."""

EXACT = 1e-13
"""Duality gap, relative to the objective, at which it is down to rounding."""

NEARLY = 1e-10
"""Duality gap at which active sets take over from the central path, or it ends, at the usual tolerance."""

PATIENCE, FAR = 8, 1e-3
"""Steps of the central path without a smaller gap after which rounding has the rest, unless the gap is so far open."""

ROUNDING = 1e-13
"""Of an objective, relative to its size."""

RELATIVE_RIDGE = 1e-12
"""Added to the Hessian's diagonal, relative to its largest entry, so that dependent features share their step."""

SUFFICIENT = 1e-4
"""Share of the decrease that the slope promises which a step must bring."""

PROJECTED_STEPS = (1.0, 0.5, 0.25, 0.125)
"""Lengths of steps that are projected on the signs; then one is taken that stays inside them."""


@dataclass(frozen=True)
class LassoFit:
    r"""Coefficients of the features, and what proves how good they are.

    Attributes
    ----------
    w : ndarray of shape (p,)
    descent : ndarray of shape (p,)
        :math:`Z^\top (y - Z w) / \lambda`: half the negative gradient of the loss.
    threshold : float
        :math:`\lVert w \rVert_1 / \Lambda`, half the slope of the penalty. At the solution no `descent` is larger, and
        that of a feature with weight is the threshold times the sign of its coefficient.
    value, bound : float
        P(w), and what the objective cannot fall below.
    """

    w: np.ndarray
    descent: np.ndarray
    threshold: float
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """How far the value may still fall, relative to it."""
        return max(self.value - self.bound, 0.0) / self.value if self.value > 0 else 0.0


@dataclass(frozen=True)
class SquaredLasso:
    r"""Least squares with the squared 1-norm as penalty.

    .. math:: \min_w P(w) = \frac1\lambda \lVert y - Z w \rVert^2 + \frac1\Lambda \lVert w \rVert_1^2
              = \max_\alpha 2 \alpha^\top y - \lambda \lVert \alpha \rVert^2 - \Lambda \max_k (z_k^\top \alpha)^2

    Attributes
    ----------
    grams : FeatureGrams
    y : ndarray of shape (m,)
        Centered target.
    ridge : float
        lambda.
    radius : float
        Lambda, what the weights sum to.

    Notes
    -----
    The value of kernel ridge regression at given weights is that of its primal problem,

    .. math:: J(\mu) = y^\top \Big(\sum_k \mu_k z_k z_k^\top + \lambda I\Big)^{-1} y
              = \min_w \frac1\lambda \lVert y - Z w \rVert^2 + \sum_k \frac{w_k^2}{\mu_k},

    which gives P when the weights are eliminated. The solutions belong together by :math:`\alpha = (y - Z w) /
    \lambda`: a lasso whose threshold :math:`\max_k |z_k^\top \alpha| = \lVert w \rVert_1 / \Lambda` is found along with
    it. With coefficients split into signs and sizes it is a non-negative least squares problem.

    References
    ----------
    Efron, Hastie, Johnstone, Tibshirani (2004), Annals of Statistics 32:407-499, and Friedman, Hastie, Tibshirani
    (2010), Journal of Statistical Software 33(1), for the conditions and the active features; Bertsekas (1982), SIAM
    Journal on Control and Optimization 20:221-246, for Newton steps that are projected on the signs; Lawson, Hanson
    (1974), Solving Least Squares Problems, chapter 23, for those that stay inside.
    """

    grams: FeatureGrams
    y: np.ndarray
    ridge: float
    radius: float

    def at(self, w: np.ndarray) -> LassoFit:
        """Return value, gradient and bound at coefficients, shape (p,); O(nnz)."""
        residual = self.y - self.grams.scores(w)
        descent = self.grams.projections(residual) / self.ridge
        norm, squared = float(np.abs(w).sum()), float(residual @ residual) / self.ridge
        # Along alpha = s (y - Z w) / lambda the dual is 2 s b - s^2 c, at most b^2 / c.
        b = float(residual @ self.y) / self.ridge
        c = squared + self.radius * float(np.abs(descent).max()) ** 2
        bound = b * b / c if c > 0 and b > 0 else 0.0
        return LassoFit(w, descent, norm / self.radius, squared + norm**2 / self.radius, bound)

    def from_weights(self, mu: np.ndarray) -> np.ndarray:
        r"""Return the coefficients of the ridge regression at weights of a few features, shape (p,).

        With :math:`w = \mu^{1/2} \circ u` and G the products of the a features that carry weight, the solution of
        :math:`(\mu^{1/2} G \mu^{1/2} / \lambda + I) u = \mu^{1/2} \circ Z^\top y / \lambda`; O(a^3). P(w) is at most
        J(mu).
        """
        carried = np.flatnonzero(mu)
        roots = np.sqrt(mu[carried])
        A = self.grams.feature_products(carried) * roots[:, None] * roots / self.ridge
        A.flat[:: len(A) + 1] += 1.0
        right = roots * self.grams.projections(self.y)[carried] / self.ridge
        w = np.zeros(len(mu))
        w[carried] = roots * cho_solve(cho_factor(A), right)
        return w

    def step(self, fit: LassoFit) -> LassoFit | None:
        """Return a fit of smaller value, or None where rounding leaves no descent; O(a^3 + nnz).

        Newton's step over the active features and those that enter, each on its own side of zero. Projected on the
        sides it may free many features at once. Where it does not descend so, features that would enter on the wrong
        side stay out; the step then ends where the first coefficient reaches zero, which always descends.
        """
        carried = np.flatnonzero(fit.w)
        excess = np.where(fit.w == 0, np.abs(fit.descent) - fit.threshold, -np.inf)
        # More than m features depend on each other: towards that end ever fewer join.
        most = max(1, min(max(MOST_ENTERING, len(carried)), (len(self.y) - len(carried)) // 2))
        entering = np.argsort(-excess, kind="stable")[:most]
        active = np.union1d(carried, entering[excess[entering] > 0])
        while len(active):
            before = fit.w[active]
            signs = np.sign(np.where(before != 0, before, fit.descent[active]))
            slope = fit.descent[active] - fit.threshold * signs
            H = self.grams.feature_products(active) / self.ridge + np.outer(signs, signs) / self.radius
            change = np.asarray(cho_solve(factored(H, RELATIVE_RIDGE), slope, check_finite=False))
            for length in PROJECTED_STEPS:
                better = self._moved(fit, active, signs * np.maximum(signs * (before + length * change), 0.0))
                if better is not None:
                    return better
            crossing = (before == 0) & (signs * change <= 0)
            if not crossing.any():
                falling = signs * change < 0
                length = float((-before[falling] / change[falling]).min(initial=1.0))
                return self._moved(fit, active, signs * np.maximum(signs * (before + length * change), 0.0))
            active = active[~crossing]
        return None

    def _moved(self, fit: LassoFit, active: np.ndarray, coefficients: np.ndarray) -> LassoFit | None:
        """Return the fit with other coefficients of the active features, if it descends."""
        w = fit.w.copy()
        w[active] = coefficients
        slope = fit.descent[active] - fit.threshold * np.sign(np.where(fit.w != 0, fit.w, fit.descent)[active])
        promised = 2 * float(slope @ (coefficients - fit.w[active]))
        found = self.at(w)
        # Once the value is down to its rounding, a step counts that halves what the bound leaves open.
        settled = found.value <= fit.value * (1 + ROUNDING) and found.value - found.bound < (fit.value - fit.bound) / 2
        return found if settled or (promised > 0 and found.value <= fit.value - SUFFICIENT * promised) else None


class _Record:
    """The best fit so far, the best bound, and the values, which never rise, one an iteration."""

    def __init__(self, fit: LassoFit) -> None:
        self.fit, self.bound, self.objectives = fit, fit.bound, [fit.value]

    @property
    def iterations(self) -> int:
        """Number of fits."""
        return len(self.objectives)

    @property
    def gap(self) -> float:
        """How far the best value is above the best bound, relative to it."""
        return replace(self.fit, bound=self.bound).gap

    def add(self, fit: LassoFit) -> None:
        """Count an iteration, and take its fit where it is better, also within the rounding of the value."""
        self.bound = max(self.bound, fit.bound)
        settled = fit.value <= self.fit.value * (1 + ROUNDING) and fit.gap < self.fit.gap
        if fit.value < self.fit.value or settled:
            self.fit = fit
        self.objectives.append(min(fit.value, self.objectives[-1]))

    def solution(self, radius: float, otherwise: np.ndarray | None, tolerance: float) -> tuple[np.ndarray, Certificate]:
        """Return ``Lambda |w| / |w|_1``, or without any coefficient weights as good as all others, and the evidence."""
        w, equal = self.fit.w, np.full(len(self.fit.w), radius / len(self.fit.w))
        total, certificate = float(np.abs(w).sum()), ("duality gap", self.gap, tolerance, self.iterations)
        mu = np.abs(w) * (radius / total) if total > 0 else equal if otherwise is None else otherwise
        return mu, Certificate(*certificate, tuple(self.objectives))


def ridge_weights(
    grams: FeatureGrams,
    y: np.ndarray,
    ridge: float,
    radius: float,
    start: np.ndarray | None,
    tolerance: float,
    max_iterations: int,
) -> tuple[np.ndarray, Certificate]:
    """Return the weights that kernel ridge regression on rank-one kernels fits best with, and their certificate.

    Parameters
    ----------
    grams : FeatureGrams
        p rank-one kernels over m rows.
    y : ndarray of shape (m,)
        Centered target.
    ridge, radius : float
        lambda, and what the weights sum to.
    start : ndarray of shape (p,), optional
        Weights to begin with; used where at most m of them are not zero.
    tolerance : float
        Relative duality gap to reach; where rounding allows, the gap returned is far below it.
    max_iterations : int
        Most passes of active sets and steps of the central path together.

    Returns
    -------
    mu : ndarray of shape (p,)
        Exactly zero for features without weight. Equal weights, or those of `start`, where no feature is correlated
        with the target: any are optimal then.
    certificate : Certificate

    Notes
    -----
    Active sets, O(a^3) a pass for a features that carry weight, find few features in a few passes. Where they become
    about as many as rows, or passes many, the central path (`FeaturePath`), O(m^3 / 3) a step, comes close to the
    solution for any lambda, and active sets finish from there. Memory is O(nnz + m^2 + a^2), without the path
    O(nnz + a^2).
    """
    problem = SquaredLasso(grams, y, ridge, radius)
    p = grams.n_kernels
    carried = 0 if start is None else int(np.count_nonzero(start))
    w = problem.from_weights(start) if start is not None and carried <= len(y) else np.zeros(p)
    fit = problem.at(w)
    record, aim = _Record(fit), min(tolerance, EXACT)
    _active_sets(problem, fit, record, aim, min(FEW_PASSES, max_iterations - 1), FEW_ACTIVE * len(y))
    if record.gap > aim and record.iterations < max_iterations:
        fit = _along_path(problem, record, NEARLY * min(tolerance / TOLERANCE, 1.0), max_iterations)
        _active_sets(problem, fit, record, aim, max_iterations - record.iterations, np.inf)
    return record.solution(radius, start, tolerance)


def _active_sets(
    problem: SquaredLasso, fit: LassoFit, record: _Record, aim: float, most_passes: int, most_active: float
) -> None:
    """Take steps from a fit until the gap is down to `aim`, or rounding ends them."""
    for _ in range(most_passes):
        if record.gap <= aim or np.count_nonzero(fit.w) > most_active:
            return
        better = problem.step(fit)
        if better is None:
            return
        fit = better
        record.add(fit)


def _along_path(problem: SquaredLasso, record: _Record, aim: float, max_iterations: int) -> LassoFit:
    r"""Follow the central path of the dual, and return the fit of few features from which active sets finish.

    In units of the target's root mean square r and of lambda, :math:`\alpha = r x / \lambda`, the dual is
    :math:`\lVert x \rVert^2 - 2 x^\top y / r + (\Lambda / \lambda) s^2` to be minimized, and w is r times its w.
    """
    size = float(np.sqrt(np.mean(problem.y**2)))
    path = FeaturePath(problem.grams, problem.y / size, 1.0, problem.radius / problem.ridge)
    nearest, best, waited = record.fit.w, np.inf, 0
    while record.iterations < max_iterations and best > aim and waited < PATIENCE and path.step():
        fit = problem.at(size * path.w)
        record.add(fit)
        waited = 0 if fit.gap < best or best > FAR else waited + 1
        if fit.gap < best:
            best, nearest = fit.gap, size * path.sparse_w()
    return problem.at(nearest)


def svm_weights(
    grams: FeatureGrams, signs: np.ndarray, C: float, radius: float, tolerance: float, max_iterations: int
) -> tuple[np.ndarray, Certificate]:
    r"""Return the weights that a binary SVM on rank-one kernels separates best with, and their certificate.

    .. math:: \min_{w, b} P(w, b) = 2 C \sum_i \max(0, 1 - y_i (z_i^\top w + b)) + \frac1\Lambda \lVert w \rVert_1^2
              = \max_{0 \le a \le C,\; y^\top a = 0} 2\, \mathbf 1^\top a - \Lambda \max_k \big(z_k^\top (y \circ
              a)\big)^2

    Parameters
    ----------
    grams : FeatureGrams
        p rank-one kernels over m rows.
    signs : ndarray of shape (m,)
        y, plus and minus one, both present.
    C, radius : float
        Bound of the coefficients a, and what the weights sum to.
    tolerance : float
        Relative duality gap to reach; where rounding allows, the gap returned is far below it.
    max_iterations : int
        Most steps.

    Returns
    -------
    mu : ndarray of shape (p,)
        Exactly zero for features without weight.
    certificate : Certificate

    Notes
    -----
    At given weights the SVM's value is that of its primal problem, :math:`J(\mu) = \min_{w, b} 2 C \sum_i \max(0,
    1 - y_i (z_i^\top w + b)) + \sum_k w_k^2 / \mu_k`, and the weights are eliminated. The central path (`FeaturePath`)
    of the dual, with :math:`a = C x` and after division by C, minimizes :math:`C \Lambda s^2 - 2\, \mathbf 1^\top x`
    with :math:`|z_k^\top (y \circ x)| \le s`. Each step gives a w, for which the best b is found among the kinks of the
    hinge, and an x, moved into its constraints and scaled to the best bound on its ray. Memory is O(nnz + m^2).
    """
    intercept = grams.centering.intercept
    path = FeaturePath(grams, np.ones(len(signs)), 0.0, C * radius, signs)

    def bound() -> float:
        x = path.x
        total, squared = float(x.sum()), radius * C * float(np.abs(grams.projections(signs * x)).max()) ** 2
        scale = 1 / float(x.max())
        if squared * scale > total:
            scale = total / squared
        return C * scale * (2 * total - scale * squared)

    def fit(w: np.ndarray) -> LassoFit:
        scores, norm = grams.scores(w), float(np.abs(w).sum())
        b = best_intercept(scores, signs) if intercept else 0.0
        hinge = np.maximum(0.0, 1.0 - signs * (scores + b)).sum()
        value = float(2 * C * hinge + norm**2 / radius)
        # Where w separates the classes, it is made to do so with margin one: for large C its rounding costs much less.
        sides = float(scores[signs > 0].min()), float(-scores[signs < 0].max())
        margin = sum(sides) / 2 if intercept else min(sides)
        if margin > 0 and (norm / margin) ** 2 / radius < value:
            w, value = w / margin, (norm / margin) ** 2 / radius
        return LassoFit(w, np.zeros(0), norm / radius, value, bound())

    record, waited = _Record(fit(np.zeros(grams.n_kernels))), 0
    aim, whole, best = NEARLY * min(tolerance / TOLERANCE, 1.0), record.fit, np.inf
    while record.gap > aim and record.iterations < max_iterations and waited < PATIENCE and path.step():
        found, few = fit(path.w), fit(path.sparse_w())
        record.add(few)
        whole = min(whole, found, key=lambda each: each.value)
        # The path's own gap: at first it may be wider than that of no coefficients at all.
        waited = 0 if found.gap < best or best > FAR else waited + 1
        best = min(best, found.gap)
    if record.gap > tolerance and whole.value < record.fit.value:
        # Which features the bounds leave out is not settled: all keep what they have.
        record.fit, record.objectives[-1] = whole, whole.value
    return record.solution(radius, None, tolerance)
