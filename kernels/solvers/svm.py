"""Support vector machines as the inner problem of a one-stage learner."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve

from ..centering import Centering
from ..engine.operators import GramOperator, StackedGrams
from ..targets import Target, class_pairs
from ..validation import positive
from .factor import Factor, factored, submatrix
from .interior_point import weights_by_interior_point
from .minimax import InnerSolution

MARGIN_TOLERANCE = 1e-9
"""Largest violation of a margin condition."""

AT_BOUND = 1e-8
"""Relative distance from a bound that counts as zero."""

MAX_PASSES = 12

Solution = tuple[np.ndarray, float, np.ndarray]
"""Coefficients, intercept and free rows of an SVM."""


class SupportVectorProblem:
    r"""Optimal value of support vector machines as a function of base-kernel weights.

    .. math:: J(\mu) = \max_{0 \le a \le C,\; y^\top a = 0} 2\, \mathbf 1^\top a - (y \circ a)^\top K_\mu (y \circ a)

    summed over `pairs` of classes; :math:`y^\top a = 0` only with an intercept.
    """

    def __init__(self, grams: GramOperator, target: Target, C: float) -> None:
        if target.task != "classification":
            raise ValueError(
                "a support vector machine needs a classification, got a regression; use a KRR learner."
            )
        self.grams = grams
        self._intercept = grams.centering.intercept
        self.C = positive("C", C)
        self.pairs = class_pairs(target.values)
        self._coefficients: list[np.ndarray | None] = [None] * len(self.pairs)

    def at(self, mu: np.ndarray) -> InnerSolution:
        r"""Solve for base-kernel weights mu, starting from the last solution."""
        K = self.grams.combine(mu)
        dual = np.zeros((len(K), len(self.pairs)))
        primal = 0.0
        free_blocks: list[tuple[int, np.ndarray, Factor]] = []
        for j, (rows, y) in enumerate(self.pairs):
            K_pair = submatrix(K, rows)
            a, b, free = solve_svm(
                K_pair, y, self.C, self._coefficients[j], self._intercept
            )
            self._coefficients[j] = a
            beta = y * a
            dual[rows, j] = beta
            scores = K_pair @ beta
            loss = np.maximum(0.0, 1.0 - y * (scores + b)).sum()
            primal += float(beta @ scores + 2 * self.C * loss)
            if len(free) > int(self._intercept):
                free_blocks.append((j, rows[free], _factorize(submatrix(K_pair, free))))
        products = self.grams.products(dual)

        def hessian(kernels: np.ndarray) -> np.ndarray:
            H = np.zeros((len(kernels), len(kernels)))
            for j, free, factor in free_blocks:
                g = products[kernels][:, free, j].T
                response, _ = _solve_with_sum(factor, g, 0.0, self._intercept)
                H += 2 * g.T @ response
            return H

        return InnerSolution(
            objective=primal,
            constant=float(2 * np.abs(dual).sum()),
            forms=np.einsum("kiq,iq->k", products, dual),
            dual=dual,
            hessian=hessian,
        )


def solve_svm(
    K: np.ndarray,
    y: np.ndarray,
    C: float,
    start: np.ndarray | None = None,
    intercept: bool = True,
) -> Solution:
    """Return coefficients, intercept and free support vectors of a binary SVM.

    A primal-dual active-set method, O(f^3) per pass for f free rows. If it does not
    settle, it restarts from libsvm's solution, then from an interior-point method.
    """
    if start is not None:
        solution = _active_sets(K, y, C, start, intercept)
        if solution is not None:
            return solution
    solution = _active_sets(K, y, C, _libsvm_coefficients(K, y, C), intercept)
    if solution is not None:
        return solution
    a = _interior_point_coefficients(K, y, C, intercept)
    solution = _active_sets(K, y, C, a, intercept)
    if solution is not None:
        return solution
    b = 0.0
    if intercept:
        b = best_intercept(K @ (y * a), y)
    return a, b, np.flatnonzero((a > AT_BOUND * C) & (a < (1 - AT_BOUND) * C))


def _interior_point_coefficients(
    K: np.ndarray, y: np.ndarray, C: float, intercept: bool
) -> np.ndarray:
    centering = Centering.NONE
    if intercept:
        centering = Centering.CENTER
    grams = StackedGrams(K[None], centering)
    pair = (np.arange(len(y)), y)
    _, dual, _ = weights_by_interior_point(
        grams, [pair], C, 1.0, np.zeros(1, dtype=np.intp), 1e-10
    )
    return y * dual[:, 0]


def _libsvm_coefficients(K: np.ndarray, y: np.ndarray, C: float) -> np.ndarray:
    import warnings

    from sklearn.exceptions import ConvergenceWarning  # imports pandas
    from sklearn.svm import SVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = SVC(kernel="precomputed", C=C, tol=1e-3, max_iter=50_000).fit(K, y)
    a = np.zeros(len(y))
    a[fitted.support_] = np.abs(fitted.dual_coef_[0])
    return a


def _active_sets(
    K: np.ndarray, y: np.ndarray, C: float, a: np.ndarray, intercept: bool
) -> Solution | None:
    """Return the solution from nearly correct active bounds, or None."""
    is_low = a <= AT_BOUND * C
    is_high = a >= (1 - AT_BOUND) * C
    for _ in range(MAX_PASSES):
        free = np.flatnonzero(~(is_low | is_high))
        if not len(free) and intercept:
            return _all_at_bounds(K, y, C, is_high)
        beta = np.where(is_high, y * C, 0.0)
        K_free = submatrix(K, free)
        right = y[free] - (K @ beta)[free]
        total = -float(beta.sum())
        factor = _factorize(K_free)
        x, b = _solve_with_sum(factor, right, total, intercept)
        # One step of iterative refinement removes the error of the ridge.
        dx, db = _solve_with_sum(
            factor, right - K_free @ x - b, total - float(x.sum()), intercept
        )
        beta[free] = x + dx
        b = b + db
        a = y * beta
        gain = 1.0 - y * (K @ beta + b)
        # Coefficients move to a bound they crossed; violated margins free them.
        new_low = np.where(is_low, gain <= MARGIN_TOLERANCE, a < 0) & ~is_high
        new_high = np.where(is_high, gain >= -MARGIN_TOLERANCE, a > C) & ~is_low
        if (new_low == is_low).all() and (new_high == is_high).all():
            if np.abs(gain[free]).max(initial=0.0) > MARGIN_TOLERANCE:
                return None
            return a, float(b), free
        is_low = new_low
        is_high = new_high
    return None


def _all_at_bounds(
    K: np.ndarray, y: np.ndarray, C: float, is_high: np.ndarray
) -> Solution | None:
    if y[is_high].sum() != 0:
        return None
    beta = np.where(is_high, y * C, 0.0)
    scores = K @ beta
    b = best_intercept(scores, y)
    gain = 1.0 - y * (scores + b)
    is_optimal = np.where(is_high, gain >= -MARGIN_TOLERANCE, gain <= MARGIN_TOLERANCE)
    if not is_optimal.all():
        return None
    return y * beta, b, np.zeros(0, dtype=np.intp)


def _factorize(K: np.ndarray) -> Factor:
    """Return the Cholesky factor; a ridge shares weight among dependent rows."""
    mean_diagonal = float(K.trace()) / max(len(K), 1)
    return factored(K, 1e-11, mean_diagonal or 1.0)


def _solve_with_sum(
    factor: Factor, G: np.ndarray, total: float, intercept: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Solve ``K X + 1 b' = G`` for columns of X with sum `total`."""
    X = cho_solve(factor, G, check_finite=False)
    if not intercept:
        return X, np.zeros(G.shape[1:])
    ones = cho_solve(factor, np.ones(len(G)), check_finite=False)
    b = (X.sum(axis=0) - total) / ones.sum()
    X -= np.multiply.outer(ones, b)
    return X, b


def best_intercept(scores: np.ndarray, y: np.ndarray) -> float:
    """Return the intercept to add to `scores` for the smallest hinge loss."""
    kinks = y - scores
    order = np.argsort(kinks, kind="stable")
    # Left of all kinks, the slope is minus the number of positive rows.
    slope = np.arange(1, len(y) + 1) - np.count_nonzero(y > 0)
    first = int(np.argmax(slope >= 0))
    last = first
    if (slope > 0).any():
        last = int(np.argmax(slope > 0))
    return float((kinks[order[first]] + kinks[order[last]]) / 2)
