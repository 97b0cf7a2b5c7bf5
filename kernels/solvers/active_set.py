"""Active-set methods for quadratic programs over the orthant and a simplex."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpstrf

ROUNDING = 8 * np.finfo(np.float64).eps
"""Relative rounding error of a gradient per variable."""

WARM_START = 256
"""Smallest number of variables for a start by coordinate descent."""

MAX_PASSES = 20
"""Largest number of passes per variable; large problems need about one."""


def minimize_nonnegative(M: np.ndarray, a: np.ndarray) -> np.ndarray:
    r"""Return the minimizer of :math:`v^\top M v - 2 v^\top a` over :math:`v \ge 0`.

    M is positive semi-definite, with unit diagonal and no negative entry. O(f^3 + p f)
    per pass for f free variables (Lawson, Hanson, 1974, chapter 23).
    """
    p = len(a)
    tolerance = ROUNDING * p * np.abs(a).max(initial=0.0)
    v = np.zeros(p)
    free = np.zeros(p, dtype=bool)
    if p >= WARM_START:
        v = coordinate_descent(M, a)
        support = np.flatnonzero(v > 0)
        if len(support):
            # Finds linearly dependent variables.
            _, pivots, rank, _ = dpstrf(M[np.ix_(support, support)], tol=1e-10)
            v[support[pivots[rank:] - 1]] = 0.0
        free = v > 0
        v, free = _settle(M, a, v, free, _solve_free(M, a, free), tolerance)
    is_excluded = np.zeros(p, dtype=bool)
    for _ in range(MAX_PASSES * p):
        descent = np.where(free | is_excluded, -np.inf, a - M @ v)
        entering = int(descent.argmax())
        if not descent[entering] > tolerance:
            return v
        free[entering] = True
        target = _solve_free(M, a, free)
        if target[entering] <= 0:
            # The variable depends on free ones; its descent is rounding.
            free[entering] = False
            is_excluded[entering] = True
            continue
        is_excluded[:] = False
        v, free = _settle(M, a, v, free, target, tolerance)
    raise ArithmeticError(
        f"the active-set method did not end within {MAX_PASSES * p} passes; is M finite and PSD?"
    )


def _settle(
    M: np.ndarray,
    a: np.ndarray,
    v: np.ndarray,
    free: np.ndarray,
    target: np.ndarray,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Move towards target; return the minimizer and its free set."""
    v = v.copy()
    free = free.copy()
    while (target[free] <= 0).any():
        blocking = free & (target <= 0)
        step = np.min(v[blocking] / (v[blocking] - target[blocking]))
        v += step * (target - v)
        free &= ~(blocking & (v <= tolerance))
        v[~free] = 0.0
        target = _solve_free(M, a, free)
    return target, free


def coordinate_descent(M: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Approximate `minimize_nonnegative` by coordinate descent."""
    v = np.zeros(len(a))
    descent = a.astype(np.float64)
    for _ in range(100):
        largest_change = 0.0
        for k in np.flatnonzero((descent > 0) | (v > 0)):
            change = max(descent[k], -v[k])
            if change != 0.0:
                v[k] += change
                descent -= change * M[k]
                largest_change = max(largest_change, abs(change))
        if largest_change <= 1e-6 * v.max(initial=0.0):
            break
    return v


def _solve_free(M: np.ndarray, a: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return the minimizer over the free variables, zero elsewhere."""
    solution = np.zeros_like(a)
    M_free = M[np.ix_(free, free)]
    try:
        solution[free] = cho_solve(cho_factor(M_free), a[free])
    except LinAlgError:
        solution[free] = np.linalg.lstsq(M_free, a[free])[0]
    return solution


def minimize_on_simplex(
    H: np.ndarray, c: np.ndarray, total: float, x: np.ndarray
) -> np.ndarray:
    r"""Return the minimizer of :math:`\tfrac12 x^\top H x + c^\top x` on a simplex.

    H is positive definite; x >= 0 with sum `total` is the start.
    """
    p = len(c)
    x = x.copy()
    free = x > 0
    size = np.abs(c).max() + np.abs(H).max() * total
    for _ in range(MAX_PASSES * (p + 1)):
        target, multiplier = _solve_on_plane(H, c, total, free)
        blocking = free & (target < 0)
        if blocking.any():
            ratios = x[blocking] / (x[blocking] - target[blocking])
            x += ratios.min() * (target - x)
            leaving = np.flatnonzero(blocking)[ratios <= ratios.min()]
            free[leaving] = False
            x[~free] = 0.0
            continue
        x = target
        descent = np.where(free, -np.inf, -(H @ x + c + multiplier))
        entering = int(descent.argmax())
        if not descent[entering] > ROUNDING * p * size:
            return x
        free[entering] = True
    raise ArithmeticError(
        "the active-set method on the simplex did not end; is H finite and positive definite?"
    )


def _solve_on_plane(
    H: np.ndarray, c: np.ndarray, total: float, free: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the minimizer for a fixed sum, and its multiplier."""
    f = np.flatnonzero(free)
    H_free = H[np.ix_(f, f)]
    unit = H_free.diagonal().max()
    bordered = np.zeros((len(f) + 1, len(f) + 1))
    bordered[:-1, :-1] = H_free / unit
    bordered[-1, :-1] = bordered[:-1, -1] = 1.0
    solution = np.linalg.solve(bordered, np.append(-c[f] / unit, total))
    x = np.zeros_like(c)
    x[f] = solution[:-1]
    return x, float(solution[-1] * unit)
