"""alignf: the non-negative combination of highest alignment."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.learners.solution import Products, Solution
from learnkernels.kernels.solvers.active_set import minimise_nonnegative
from learnkernels.kernels.solvers.certificate import Certificate

TOLERANCE = 1e-8
"""KKT residual that a solution must reach; active sets leave rounding."""


def alignf(M: Products, a: np.ndarray) -> Solution:
    r"""Return the non-negative weights whose combined kernel aligns best with the target kernel.

    .. math:: \min_{v \ge 0} \; v^\top M v - 2 v^\top a, \qquad \mu = v / \lVert v \rVert

    Parameters
    ----------
    M : ndarray or Products of shape (p, p)
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
    Solved by active sets on M scaled to unit diagonal, from some hundred kernels on after a warm start. (Non-negative
    least squares on M and a themselves minimises another function, ``||M v - a||``.) With dependent kernels the weights
    are not unique, the combined kernel is.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Proposition 9 and equation (7).
    """
    M = np.asarray(M)
    scale = 1.0 / np.sqrt(np.diag(M))
    scaled = scale[:, None] * M
    scaled *= scale
    v = minimise_nonnegative(scaled, scale * a) * scale
    return Solution.of_direction(v, kkt_certificate(M, a, v))


def kkt_certificate(M: np.ndarray, a: np.ndarray, v: np.ndarray) -> Certificate:
    r"""Return the optimality residual of `v` for :math:`\min_{v \ge 0} v^\top M v - 2 v^\top a`.

    In the units of unit-norm base kernels, :math:`u_k = v_k \sqrt{M_{kk}}` and
    :math:`g_k = (M v - a)_k / \sqrt{M_{kk}}`: the largest of the most negative weight relative to ``max |u|``, the most
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
    negative_weight = max(0.0, -u.min()) / u_unit
    negative_gradient = max(0.0, -g.min()) / g_unit
    complementarity = np.abs(u * g).max() / (u_unit * g_unit)
    residual = float(max(negative_weight, negative_gradient, complementarity))
    return Certificate("KKT residual", residual, TOLERANCE)
