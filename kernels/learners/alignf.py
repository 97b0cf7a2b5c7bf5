"""alignf: the non-negative combination of highest alignment."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kernels.learners.solution import Certificate, Solution

ROUNDING = 8 * np.finfo(np.float64).eps
"""Gradients below this share a kernel of the largest product with the target are rounding."""

MOST_PASSES = 20
"""Passes a variable; problems of thousands of kernels need about one, so more means that M is not what it should be."""


def alignf(M: np.ndarray, a: np.ndarray) -> Solution:
    r"""Return the non-negative weights whose combined kernel aligns best with the target kernel.

    .. math:: \min_{v \ge 0} \; v^\top M v - 2 v^\top a, \qquad \mu = v / \lVert v \rVert

    Parameters
    ----------
    M : ndarray of shape (p, p)
        Frobenius products of the centered base kernels: symmetric, positive semi-definite, diagonal positive.
    a : ndarray of shape (p,)
        Products with the target kernel.

    Returns
    -------
    solution : Solution
        With the certificate of `kkt_certificate`.

    Raises
    ------
    ValueError
        No base kernel has a positive product with the target.

    Notes
    -----
    Solved by active sets on M scaled to unit diagonal. (Non-negative least squares on M and a themselves minimises
    another function, ``||M v - a||``.) With dependent kernels the weights are not unique, the combined kernel is.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Proposition 9 and equation (7).
    """
    scale = 1.0 / np.sqrt(np.diag(M))
    v = minimise_nonnegative(scale[:, None] * M * scale, scale * a) * scale
    return Solution.of_direction(v, kkt_certificate(M, a, v))


def minimise_nonnegative(M: np.ndarray, a: np.ndarray) -> np.ndarray:
    r"""Return the minimiser of :math:`v^\top M v - 2 v^\top a` over :math:`v \ge 0`.

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
    """
    p = len(a)
    v = np.zeros(p)
    free = np.zeros(p, dtype=bool)
    barred = np.zeros(p, dtype=bool)
    tolerance = ROUNDING * p * np.abs(a).max(initial=0.0)
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
        while (target[free] <= 0).any():
            blocking = free & (target <= 0)
            step = np.min(v[blocking] / (v[blocking] - target[blocking]))
            v += step * (target - v)
            free &= ~(blocking & (v <= tolerance))
            v[~free] = 0.0
            target = _solve_free(M, a, free)
        v = target
    raise ArithmeticError(f"the active-set method did not end within {MOST_PASSES * p} passes; is M finite and PSD?")


def _solve_free(M: np.ndarray, a: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return the unconstrained minimiser over the free variables, zero elsewhere."""
    solution = np.zeros_like(a)
    M_free = M[np.ix_(free, free)]
    try:
        solution[free] = cho_solve(cho_factor(M_free), a[free])
    except LinAlgError:
        solution[free] = np.linalg.lstsq(M_free, a[free])[0]
    return solution


def kkt_certificate(M: np.ndarray, a: np.ndarray, v: np.ndarray) -> Certificate:
    r"""Return the optimality residuals of `v` for :math:`\min_{v \ge 0} v^\top M v - 2 v^\top a`.

    In the units of unit-norm base kernels, :math:`u_k = v_k \sqrt{M_{kk}}` and
    :math:`g_k = (M v - a)_k / \sqrt{M_{kk}}`: the most negative weight relative to ``max |u|``, the most
    negative gradient relative to ``max |a_k| / sqrt(M_kk)``, and ``max |u_k g_k|`` relative to both.

    Parameters
    ----------
    M : ndarray of shape (p, p)
        Frobenius products of the centered base kernels.
    a : ndarray of shape (p,)
        Products with the target kernel.
    v : ndarray of shape (p,)
        Of the length that solves the problem, not normalised.

    Returns
    -------
    certificate : Certificate
        Zero at the optimum; dimensionless, the same for any scaling of the base kernels or the targets.
    """
    norms = np.sqrt(np.diag(M))
    u = v * norms
    g = (M @ v - a) / norms
    u_unit = np.abs(u).max() or 1.0
    g_unit = np.abs(a / norms).max() or 1.0
    return Certificate(
        primal=float(max(0.0, -u.min()) / u_unit),
        dual=float(max(0.0, -g.min()) / g_unit),
        complementarity=float(np.abs(u * g).max() / (u_unit * g_unit)),
    )
