"""Kernel logistic regression as the inner problem of a one-stage learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit, xlogy

from ..engine.operators import GramOperator
from ..targets import Target, class_pairs
from ..validation import positive
from .factor import submatrix
from .minimax import InnerSolution

MOST_STEPS = 100

CONVERGED = 1e-10
"""Relative duality gap at which Newton's method ends."""

ROUNDING = 1e-12
"""Relative increase of the objective by rounding."""

SHORTEST_STEP = 1e-8
"""Smallest share of a Newton step."""

SMALLEST_VARIANCE = 1e-12


@dataclass(frozen=True)
class LogisticFit:
    """Kernel logistic regression of one pair of classes.

    `primal` is an upper bound of the optimal value, and `dual` the constant part of a
    lower bound.
    """

    beta: np.ndarray
    intercept: float
    primal: float
    dual: float


class LogisticProblem:
    r"""Optimal value of kernel logistic regression as a function of base-kernel weights.

    .. math:: J(\mu) = \min_{\beta, b} \; \beta^\top K_\mu \beta + 2 C \sum_i \log(1 + e^{-y_i f_i}), \qquad
              f = K_\mu \beta + b

    .. math:: J(\mu) = \max_{\beta} \; 2 C \sum_i h(y_i \beta_i / C) - \beta^\top K_\mu \beta, \qquad
              h(t) = -t \log t - (1 - t) \log (1 - t)

    summed over `pairs` of classes. With an intercept, coefficients have sum zero. The
    dual is by Keerthi et al. (2005), Machine Learning 61:151-165.
    """

    def __init__(self, grams: GramOperator, target: Target, C: float) -> None:
        if target.task != "classification":
            raise ValueError(
                "logistic regression needs a classification, got a regression; use a KRR learner."
            )
        self.grams = grams
        self.C = positive("C", C)
        self.pairs = class_pairs(target.values)
        self._has_intercept = grams.centering.intercept
        self._fits: list[LogisticFit | None] = [None] * len(self.pairs)

    def zero_value(self) -> float:
        """Return the optimal objective of the zero kernel, with only an intercept."""
        total = 0.0
        for _, y in self.pairs:
            share = 0.5
            if self._has_intercept:
                share = float((y > 0).mean())
            entropy_of_share = float(_entropy(np.array(share)))
            total += len(y) * entropy_of_share
        return 2 * self.C * total

    def at(self, mu: np.ndarray) -> InnerSolution:
        r"""Solve for base-kernel weights mu, starting from the last solution."""
        K = self.grams.combine(mu)
        dual = np.zeros((len(K), len(self.pairs)))
        primal = 0.0
        constant = 0.0
        systems = []
        for j, (rows, y) in enumerate(self.pairs):
            K_pair = submatrix(K, rows)
            fit = fit_logistic(K_pair, y, self.C, self._has_intercept, self._fits[j])
            self._fits[j] = fit
            dual[rows, j] = fit.beta
            primal += fit.primal
            constant += fit.dual
            scores = K_pair @ fit.beta + fit.intercept
            variances = _variances(y, scores, self.C)
            system = NewtonSystem(K_pair, variances, self._has_intercept)
            systems.append((j, rows, system))
        products = self.grams.products(dual)

        def hessian(kernels: np.ndarray) -> np.ndarray:
            H = np.zeros((len(kernels), len(kernels)))
            for j, rows, system in systems:
                g = products[kernels][:, rows, j].T
                response, _ = system.solve(g)
                quadratic_form = g.T @ response
                H += 2 * quadratic_form
            return H

        return InnerSolution(
            objective=primal,
            constant=constant,
            forms=np.einsum("kiq,iq->k", products, dual),
            dual=dual,
            hessian=hessian,
        )


class NewtonSystem:
    r"""Linear system :math:`(K + W^{-1}) \beta + b \mathbf 1 = z` of a Newton step.

    Solved as :math:`S (I + S K S)^{-1} S` with :math:`S^2 = W`. With b, coefficients
    have sum zero.
    """

    def __init__(
        self, K: np.ndarray, variances: np.ndarray, has_intercept: bool
    ) -> None:
        self.roots = np.sqrt(variances)
        self.has_intercept = has_intercept
        matrix = self.roots[:, None] * K * self.roots
        matrix.flat[:: len(K) + 1] += 1.0
        try:
            self.factor = cho_factor(
                matrix, lower=True, overwrite_a=True, check_finite=False
            )
        except LinAlgError:
            raise ArithmeticError(
                "a kernel is far from positive semi-definite; is it finite?"
            ) from None
        self.ones = self._solve_without_intercept(np.ones(len(K)))

    def solve(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray | float]:
        """Return coefficients and intercepts for right-hand sides, (n,) or (n, q)."""
        beta = self._solve_without_intercept(z)
        if not self.has_intercept:
            return beta, 0.0
        b = beta.sum(axis=0) / self.ones.sum()
        return beta - np.multiply.outer(self.ones, b), b

    def _solve_without_intercept(self, z: np.ndarray) -> np.ndarray:
        roots = self.roots.reshape(-1, *[1] * (z.ndim - 1))
        return np.asarray(roots * cho_solve(self.factor, roots * z, check_finite=False))


@dataclass(frozen=True)
class Point:
    """Iterate of Newton's method for logistic regression."""

    beta: np.ndarray
    scores: np.ndarray
    intercept: float
    objective: float

    @classmethod
    def at(
        cls,
        beta: np.ndarray,
        scores: np.ndarray,
        intercept: float,
        y: np.ndarray,
        C: float,
    ) -> Point:
        margins = y * (scores + intercept)
        loss = float(np.logaddexp(0.0, -margins).sum())
        return cls(beta, scores, intercept, float(beta @ scores) + 2 * C * loss)


def fit_logistic(
    K: np.ndarray,
    y: np.ndarray,
    C: float,
    has_intercept: bool,
    start: LogisticFit | None = None,
) -> LogisticFit:
    """Fit kernel logistic regression on signs y by Newton's method."""
    if start is None:
        start = LogisticFit(np.zeros(len(y)), 0.0, 0.0, 0.0)
    point = Point.at(start.beta, K @ start.beta, start.intercept, y, C)
    for _ in range(MOST_STEPS):
        f = point.scores + point.intercept
        variances = _variances(y, f, C)
        system = NewtonSystem(K, variances, has_intercept)
        beta, intercept = system.solve(f + C * y * expit(-y * f) / variances)
        target = Point.at(beta, K @ beta, float(intercept), y, C)
        point = _descend(point, target, y, C)
        if _has_converged(point, y, C):
            break
    beta = _to_feasible(point.beta, y, C)
    return LogisticFit(beta, point.intercept, point.objective, _dual_constant(beta, C))


def _descend(point: Point, target: Point, y: np.ndarray, C: float) -> Point:
    """Return a point towards the target without higher objective."""
    step = 1.0
    trial = target
    limit = point.objective * (1 + ROUNDING)
    while trial.objective > limit and step >= SHORTEST_STEP:
        step /= 2
        trial = Point.at(
            point.beta + step * (target.beta - point.beta),
            point.scores + step * (target.scores - point.scores),
            point.intercept + step * (target.intercept - point.intercept),
            y,
            C,
        )
    return trial


def _has_converged(point: Point, y: np.ndarray, C: float) -> bool:
    sizes = y * point.beta
    if sizes.min() < 0 or sizes.max() > C:
        return False
    dual_objective = _dual_constant(point.beta, C) - float(point.beta @ point.scores)
    return point.objective - dual_objective <= CONVERGED * point.objective


def _dual_constant(beta: np.ndarray, C: float) -> float:
    """Return the dual objective without the kernel's term."""
    return 2 * C * float(_entropy(np.abs(beta) / C).sum())


def _to_feasible(beta: np.ndarray, y: np.ndarray, C: float) -> np.ndarray:
    """Return coefficients with signs y, size at most C, and the same sum."""
    sizes = y * beta
    if sizes.min() >= 0 and sizes.max() <= C:
        return beta
    n_positive = int((y > 0).sum())
    n_negative = len(y) - n_positive
    n_smaller = min(n_positive, n_negative)
    center = np.where(y > 0, n_smaller / n_positive, n_smaller / n_negative)
    center *= C / 2
    excess = np.maximum(-sizes, sizes - C)
    is_outside = excess > 0
    room = np.abs(sizes - center)
    share = float((excess[is_outside] / room[is_outside]).max())
    moved = sizes + min(1.0, share * (1 + ROUNDING)) * (center - sizes)
    return np.asarray(y * np.clip(moved, 0.0, C))


def _variances(y: np.ndarray, f: np.ndarray, C: float) -> np.ndarray:
    """Return C times the variance of each label."""
    t = expit(-y * f)
    return np.asarray(C * np.maximum(t * (1 - t), SMALLEST_VARIANCE))


def _entropy(t: np.ndarray) -> np.ndarray:
    return np.asarray(-xlogy(t, t) - xlogy(1 - t, 1 - t))
