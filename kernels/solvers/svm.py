"""The support vector machine as the inner problem of a one-stage learner, solved to rounding."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve

from ..centering import Centering
from ..engine.operators import GramOperator, StackedGrams
from ..targets import Target, class_pairs
from ..validation import positive
from .factor import Factor, factored
from .interior_point import weights_by_interior_point
from .minimax import InnerSolution

FEASIBLE = 1e-9
"""How far, in units of the margin, a point may lie on the wrong side of its condition."""

AT_BOUND = 1e-8
"""Coefficients within this share of C from a bound count as at it when a solution of scikit-learn is taken over."""

MOST_PASSES = 12
"""Passes of the active-set method from one starting point."""

START_TOLERANCE, START_ITERATIONS = 1e-3, 50_000
"""Of scikit-learn's solver, which gives the first guess of the bounds."""

FINE_TOLERANCE = 1e-10
"""Of the interior-point method, for where the active sets do not settle."""

RIDGE = 1e-11
"""Added to the diagonal of the free block, relative to its mean, so that dependent rows share their coefficients."""


Solution = tuple[np.ndarray, float, np.ndarray]
"""Coefficients, intercept and free rows of an SVM, see `solve_svm`."""


class SupportVectorProblem:
    r"""The value of a support vector machine as a function of the kernel's weights.

    .. math:: J(\mu) = \max_{0 \le a \le C,\; y^\top a = 0} 2\, \mathbf 1^\top a - (y \circ a)^\top K_\mu (y \circ a)

    Several classes are handled one-vs-one; J is then the sum over their pairs. On base kernels that are not centered
    SVMs have no intercept, and coefficients need not be in balance.

    Attributes
    ----------
    grams : GramOperator
        p base kernels over m rows.
    pairs : list of (ndarray, ndarray)
        Rows and signs of each binary problem.
    C : float

    References
    ----------
    Lanckriet et al. (2004), JMLR 5:27-72; as stated in Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """

    def __init__(self, grams: GramOperator, target: Target, C: float) -> None:
        """Take the training rows; ``C``.

        Raises
        ------
        ValueError
            The regularization is not positive and finite, or the target is not of classes.
        """
        if target.task != "classification":
            raise ValueError("a support vector machine needs a classification, got a regression; use a KRR learner.")
        self.grams, self._intercept = grams, grams.centering.intercept
        self.C = positive("C", C)
        self.pairs = class_pairs(target.values)
        self._coefficients: list[np.ndarray | None] = [None] * len(self.pairs)

    def at(self, mu: np.ndarray) -> InnerSolution:
        """Solve at the weights mu, shape (p,), from the last solution.

        Notes
        -----
        `objective` is the primal value, an upper bound of J also where the solver stopped short; `constant` belongs to
        the dual solution, so that the gap between both shows it. The Hessian holds while the free rows stay the same:
        J is once differentiable everywhere and twice between such changes.

        .. math:: H_{kl} = 2\\, g_k^\\top Z g_l, \\qquad g_k = (K_k \\beta)_{free}

        with Z the inverse of the free block of K_mu, with an intercept on coefficients that sum to zero.
        """
        K = self.grams.combine(mu)
        dual, primal = np.zeros((len(K), len(self.pairs))), 0.0
        solved: list[tuple[int, np.ndarray, Factor]] = []
        for j, (rows, y) in enumerate(self.pairs):
            K_pair = _among(K, rows)
            a, b, free = solve_svm(K_pair, y, self.C, self._coefficients[j], self._intercept)
            self._coefficients[j] = a
            beta = y * a
            dual[rows, j] = beta
            scores = K_pair @ beta
            loss = np.maximum(0.0, 1.0 - y * (scores + b)).sum()
            primal += float(beta @ scores + 2 * self.C * loss)
            if len(free) > int(self._intercept):
                solved.append((j, rows[free], _factored(_among(K_pair, free))))
        products = self.grams.products(dual)

        def hessian(kernels: np.ndarray) -> np.ndarray:
            H = np.zeros((len(kernels), len(kernels)))
            for j, free, factor in solved:
                g = products[kernels][:, free, j].T
                H += 2 * g.T @ _solved(factor, g, 0.0, self._intercept)[0]
            return H

        return InnerSolution(
            objective=primal,
            constant=float(2 * np.abs(dual).sum()),
            forms=np.einsum("kiq,iq->k", products, dual),
            dual=dual,
            hessian=hessian,
        )


def solve_svm(
    K: np.ndarray, y: np.ndarray, C: float, start: np.ndarray | None = None, intercept: bool = True
) -> Solution:
    r"""Return the solution of a binary SVM, from the coefficients of a neighboring one where they are given.

    .. math:: \max_{0 \le a \le C,\; y^\top a = 0} 2\, \mathbf 1^\top a - (y \circ a)^\top K (y \circ a)

    One without intercept does without the condition :math:`y^\top a = 0`.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Positive semi-definite. Not modified.
    y : ndarray of shape (n,)
        Plus and minus one, both present.
    C : float
        Bound of the coefficients.
    start : ndarray of shape (n,), optional
        Coefficients of a like problem over the same rows.
    intercept : bool, default True
        Whether the SVM has one.

    Returns
    -------
    a : ndarray of shape (n,)
        Coefficients.
    b : float
        Intercept, that of least loss; zero for an SVM without.
    free : ndarray of int of shape (f,)
        Positions strictly between the bounds.

    Notes
    -----
    Newton's method on the optimality conditions, which is a primal-dual active-set method: O(f^3) a pass for f rows
    strictly between the bounds, a few passes from a neighboring solution, and then exact to rounding. Where it
    does not settle, scikit-learn's solver gives a better start, though its SVM always has an intercept, and then an
    interior-point method, whose solution holds in any case.
    """
    solution = None if start is None else _active_sets(K, y, C, start, intercept)
    if solution is None:
        solution = _active_sets(K, y, C, _by_decomposition(K, y, C), intercept)
    if solution is None:
        one = StackedGrams(K[None], Centering.CENTER if intercept else Centering.NONE)
        rows, kernel = np.arange(len(y)), np.zeros(1, dtype=np.intp)
        a = y * weights_by_interior_point(one, [(rows, y)], C, 1.0, kernel, FINE_TOLERANCE)[1][:, 0]
        solution = _active_sets(K, y, C, a, intercept)
    if solution is None:
        b = best_intercept(K @ (y * a), y) if intercept else 0.0
        solution = a, b, np.flatnonzero((a > AT_BOUND * C) & (a < (1 - AT_BOUND) * C))
    return solution


def _by_decomposition(K: np.ndarray, y: np.ndarray, C: float) -> np.ndarray:
    """Return about the coefficients, from scikit-learn's solver, shape (n,)."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning  # here, because it brings pandas along
    from sklearn.svm import SVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a first guess is enough
        fitted = SVC(kernel="precomputed", C=C, tol=START_TOLERANCE, max_iter=START_ITERATIONS).fit(K, y)
    a = np.zeros(len(y))
    a[fitted.support_] = np.abs(fitted.dual_coef_[0])
    return a


def _active_sets(K: np.ndarray, y: np.ndarray, C: float, a: np.ndarray, intercept: bool) -> Solution | None:
    """Return the solution, from coefficients whose bounds are a guess of its bounds, or None."""
    low, high = a <= AT_BOUND * C, a >= (1 - AT_BOUND) * C
    for _ in range(MOST_PASSES):
        f = np.flatnonzero(~(low | high))
        if not len(f) and intercept:
            return None
        beta = np.where(high, y * C, 0.0)
        K_free, right, total = _among(K, f), y[f] - (K @ beta)[f], -float(beta.sum())
        factor = _factored(K_free)
        x, b = _solved(factor, right, total, intercept)
        # A second time, to take the ridge's error off.
        change, more = _solved(factor, right - K_free @ x - b, total - float(x.sum()), intercept)
        beta[f], b = x + change, b + more
        a = y * beta
        gain = 1.0 - y * (K @ beta + b)
        # Free rows that left the box go to the bound they crossed; bound rows on the margin's wrong side come free.
        now_low = np.where(low, gain <= FEASIBLE, a < 0) & ~high
        now_high = np.where(high, gain >= -FEASIBLE, a > C) & ~low
        if (now_low == low).all() and (now_high == high).all():
            return (a, float(b), f) if np.abs(gain[f]).max(initial=0.0) <= FEASIBLE else None
        low, high = now_low, now_high
    return None


def _among(K: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return a matrix on some of its rows, ascending."""
    return K if len(rows) == len(K) else K[np.ix_(rows, rows)]


def _factored(K: np.ndarray) -> Factor:
    """Return the Cholesky factor of the block of free rows, with a ridge."""
    size = float(K.trace()) / max(len(K), 1) or 1.0  # a kernel of something rare may be zero on some rows
    return factored(K, RIDGE, size)


def _solved(factor: Factor, G: np.ndarray, total: float, intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return X and b with ``K X + 1 b' = G`` and columns of X that sum to `total`; without intercept b is zero."""
    X, b = cho_solve(factor, G, check_finite=False), np.zeros(G.shape[1:])
    if intercept:
        ones = cho_solve(factor, np.ones(len(G)), check_finite=False)
        b = (X.sum(axis=0) - total) / ones.sum()
        X -= np.multiply.outer(ones, b)
    return X, b


def best_intercept(scores: np.ndarray, y: np.ndarray) -> float:
    """Return the b that minimizes the sum of ``max(0, 1 - y (scores + b))``, a piecewise linear function."""
    kinks = y - scores
    order = np.argsort(kinks, kind="stable")
    # Left of all kinks every positive row loses: the slope is minus their number, and each kink adds one.
    slope = np.arange(1, len(y) + 1) - np.count_nonzero(y > 0)
    first = int(np.argmax(slope >= 0))
    last = int(np.argmax(slope > 0)) if (slope > 0).any() else first
    return float((kinks[order[first]] + kinks[order[last]]) / 2)
