"""Quadratic programs of learned kernels by active sets: over the non-negative orthant and over a simplex."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpstrf

ROUNDING = 8 * np.finfo(np.float64).eps
"""Gradients below this share a kernel of the largest product with the target are rounding."""

WARM_START = 256
"""Number of kernels from which the active-set passes start from an approximate solution instead of zero."""

MOST_SWEEPS = 100
"""Sweeps of coordinate descent; it ends sooner once it settles, and later ones gain little on dependent kernels."""

SETTLED = 1e-6
"""Change in one sweep, as a share of the largest weight, below which coordinate descent has settled."""

DEPENDENT = 1e-10
"""What a kernel of norm one must have left, squared, outside the span of others to be taken into the first free set."""

MOST_PASSES = 20
"""Passes a variable; problems of thousands of kernels need about one, so more means that M is not what it should be."""


def minimize_nonnegative(M: np.ndarray, a: np.ndarray) -> np.ndarray:
    r"""Return the minimizer of :math:`v^\top M v - 2 v^\top a` over :math:`v \ge 0`.

    Parameters
    ----------
    M : ndarray of shape (p, p)
        Symmetric, positive semi-definite, unit diagonal, no negative entry.
    a : ndarray of shape (p,)
        Any real numbers.

    Returns
    -------
    v : ndarray of shape (p,)

    Raises
    ------
    ArithmeticError
        The method does not end, because M is not finite or far from positive semi-definite.

    Notes
    -----
    The active-set method of Lawson and Hanson on the normal equations. From v = 0 the variable of steepest descent
    joins the free set, the problem is solved on the free set without constraint, and on the way there variables that
    reach zero leave it. Each pass lowers the objective, so no free set comes back and the method ends. One pass costs
    O(f^3) for f free variables and O(p f) for the gradient. As M has no negative entry, ``||v|| <= ||a||``: the
    solution stays small and its gradient exact to rounding, also where M is nearly singular.

    A pass a free variable is too many where hundreds are free. From `WARM_START` variables on, the passes start from
    the free set that coordinate descent (O(p f) a sweep) settles on, less what depends on the rest of it; where kernels
    are not alike that is the final set but for a few. The passes then end as before, at the same conditions.

    References
    ----------
    Lawson, Hanson (1974), Solving Least Squares Problems, chapter 23.
    """
    p = len(a)
    tolerance = ROUNDING * p * np.abs(a).max(initial=0.0)
    v = np.zeros(p)
    free = np.zeros(p, dtype=bool)
    if p >= WARM_START:
        # From the independent of the kernels that descent leaves weights: up to rounding, by a pivoted factor of M.
        v = coordinate_descent(M, a)
        support = np.flatnonzero(v > 0)
        if len(support):
            _, pivots, rank, _ = dpstrf(M[np.ix_(support, support)], tol=DEPENDENT)
            v[support[pivots[rank:] - 1]] = 0.0
        free = v > 0
        v, free = _settle(M, a, v, free, _solve_free(M, a, free), tolerance)
    barred = np.zeros(p, dtype=bool)
    for _ in range(MOST_PASSES * p):
        descent = np.where(free | barred, -np.inf, a - M @ v)
        entering = int(descent.argmax())
        if not descent[entering] > tolerance:
            return v
        free[entering] = True
        target = _solve_free(M, a, free)
        if target[entering] <= 0:
            # The descent was rounding: this variable depends on the free ones.
            free[entering], barred[entering] = False, True
            continue
        barred[:] = False
        v, free = _settle(M, a, v, free, target, tolerance)
    raise ArithmeticError(f"the active-set method did not end within {MOST_PASSES * p} passes; is M finite and PSD?")


def _settle(
    M: np.ndarray, a: np.ndarray, v: np.ndarray, free: np.ndarray, target: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimizer over a free set and that set, less the variables that reach zero on the way from `v`.

    `target` is the minimizer over the whole free set without the constraint; where it is positive it is returned.
    """
    v, free = v.copy(), free.copy()
    while (target[free] <= 0).any():
        blocking = free & (target <= 0)
        step = np.min(v[blocking] / (v[blocking] - target[blocking]))
        v += step * (target - v)
        free &= ~(blocking & (v <= tolerance))
        v[~free] = 0.0
        target = _solve_free(M, a, free)
    return target, free


def coordinate_descent(M: np.ndarray, a: np.ndarray) -> np.ndarray:
    r"""Return about the minimizer of :math:`v^\top M v - 2 v^\top a` over :math:`v \ge 0`, by cyclic descent.

    Parameters
    ----------
    M : ndarray of shape (p, p)
        Symmetric, positive semi-definite, unit diagonal.
    a : ndarray of shape (p,)
        Any real numbers.

    Returns
    -------
    v : ndarray of shape (p,)
        Not negative; exactly zero where the constraint holds.

    Notes
    -----
    A sweep costs O(p) for each variable that moves, at most O(p^2).
    """
    v, descent = np.zeros(len(a)), a.astype(np.float64)
    for _ in range(MOST_SWEEPS):
        most = 0.0
        for k in np.flatnonzero((descent > 0) | (v > 0)):
            change = max(descent[k], -v[k])
            if change != 0.0:
                v[k] += change
                descent -= change * M[k]
                most = max(most, abs(change))
        if most <= SETTLED * v.max(initial=0.0):
            break
    return v


def _solve_free(M: np.ndarray, a: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return the unconstrained minimizer over the free variables, zero elsewhere."""
    solution = np.zeros_like(a)
    M_free = M[np.ix_(free, free)]
    try:
        solution[free] = cho_solve(cho_factor(M_free), a[free])
    except LinAlgError:
        solution[free] = np.linalg.lstsq(M_free, a[free])[0]
    return solution


def minimize_on_simplex(H: np.ndarray, c: np.ndarray, total: float, x: np.ndarray) -> np.ndarray:
    r"""Return the minimizer of :math:`\tfrac12 x^\top H x + c^\top x` over :math:`x \ge 0`, :math:`\sum x = ` `total`.

    Parameters
    ----------
    H : ndarray of shape (p, p)
        Symmetric positive definite.
    c : ndarray of shape (p,)
        Linear part.
    total : float
        Positive.
    x : ndarray of shape (p,)
        Feasible point to start from; its support is the first free set.

    Returns
    -------
    x : ndarray of shape (p,)

    Raises
    ------
    ArithmeticError
        The method does not end, because H is not finite or not positive definite.

    Notes
    -----
    A primal active-set method; each pass solves one bordered system, O(f^3) for f free variables.
    """
    p = len(c)
    x, free = x.copy(), x > 0
    size = np.abs(c).max() + np.abs(H).max() * total
    for _ in range(MOST_PASSES * (p + 1)):
        target, multiplier = _solve_on_plane(H, c, total, free)
        blocking = free & (target < 0)
        if blocking.any():
            ratios = x[blocking] / (x[blocking] - target[blocking])
            x += ratios.min() * (target - x)
            stuck = np.flatnonzero(blocking)[ratios <= ratios.min()]
            free[stuck] = False
            x[~free] = 0.0
            continue
        x = target
        descent = np.where(free, -np.inf, -(H @ x + c + multiplier))
        entering = int(descent.argmax())
        if not descent[entering] > ROUNDING * p * size:
            return x
        free[entering] = True
    raise ArithmeticError("the active-set method on the simplex did not end; is H finite and positive definite?")


def _solve_on_plane(H: np.ndarray, c: np.ndarray, total: float, free: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the minimizer over the free variables with the given sum, zero elsewhere, and the sum's multiplier."""
    f = np.flatnonzero(free)
    unit = H[np.ix_(f, f)].diagonal().max()
    bordered = np.zeros((len(f) + 1, len(f) + 1))
    bordered[:-1, :-1] = H[np.ix_(f, f)] / unit
    bordered[-1, :-1] = bordered[:-1, -1] = 1.0
    solution = np.linalg.solve(bordered, np.append(-c[f] / unit, total))
    x = np.zeros_like(c)
    x[f] = solution[:-1]
    return x, float(solution[-1] * unit)
