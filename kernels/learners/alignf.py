"""alignf: the non-negative combination of highest alignment."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from kernels.learners.solution import Certificate, Solution


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
    M is scaled to unit diagonal and factored by its eigenvectors as ``R' R``; the problem becomes the
    non-negative least squares ``min ||R v - b||`` with ``R' b = a``, which is solved by active sets. Directions
    of M below rounding are dropped: along them, kernels are dependent and the weights are not unique, while
    the combined kernel is. (Non-negative least squares on M and a themselves minimises another function.)
    O(p^3) a pass over the active set.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Proposition 9 and equation (7).
    """
    scale = 1.0 / np.sqrt(np.diag(M))
    eigenvalues, Q = np.linalg.eigh(scale[:, None] * M * scale)
    kept = eigenvalues > len(a) * np.finfo(np.float64).eps * eigenvalues[-1]
    root = np.sqrt(eigenvalues[kept])
    R = root[:, None] * Q[:, kept].T
    b = (Q[:, kept].T @ (scale * a)) / root
    v, _ = nnls(R, b)
    v = _polish(R.T @ R, R.T @ b, v) * scale
    return Solution.of_direction(v, kkt_certificate(M, a, v))


def _polish(M: np.ndarray, a: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return `v` with its positive entries solved for once more, unless that leaves the feasible set."""
    positive = v > 0
    if not positive.any():
        return v
    refined, *_ = np.linalg.lstsq(M[np.ix_(positive, positive)], a[positive])
    if (refined <= 0).any():
        return v
    polished = np.zeros_like(v)
    polished[positive] = refined
    return polished


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
