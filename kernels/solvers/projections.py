r"""Projections onto the non-negative part of a ball around non-negative weights, and linear functions' minima there.

.. math:: \{\mu \ge 0 : \lVert \mu - \mu_0 \rVert_s \le \Lambda\}, \qquad s \in \{1, 2\}
"""

from __future__ import annotations

import numpy as np


def project(z: np.ndarray, mu_0: np.ndarray, radius: float, norm: int) -> np.ndarray:
    r"""Return the point of the set nearest to `z`, in the Euclidean norm whatever the norm of the ball.

    Parameters
    ----------
    z : ndarray of shape (p,)
        Any finite numbers. Not modified.
    mu_0 : ndarray of shape (p,)
        Centre of the ball, not negative. Not modified.
    radius : float
        Lambda, positive, in the units of `z`.
    norm : {1, 2}
        The norm that bounds the distance from the centre.

    Returns
    -------
    mu : ndarray of shape (p,)
        Not negative, at most `radius` from `mu_0` up to the rounding of the norm.

    Raises
    ------
    ValueError
        `norm` is neither 1 nor 2.

    Notes
    -----
    O(p log p): the one multiplier is found on its piece of a piecewise monotone function, exactly up to rounding.
    Setting what is negative to zero and then scaling the distance from the centre to the radius gives another point,
    except where no entry of `z` is below its entry of `mu_0`, which a gradient that is never positive never leaves.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), NIPS 22, equations (7) and (8): the sets; Algorithm 1 thresholds and scales.
    """
    if norm == 2:
        return _project_2(z, mu_0, radius)
    if norm == 1:
        return _project_1(z, mu_0, radius)
    raise ValueError(f"norm must be 1 or 2, got {norm!r}.")


def minimise_linear(g: np.ndarray, mu_0: np.ndarray, radius: float, norm: int) -> np.ndarray:
    r"""Return the point of the set where :math:`g^\top \mu` is least, for `g` without a positive entry.

    .. math:: \mu_0 + \Lambda \, {-g} / \lVert g \rVert_2 \quad (s = 2), \qquad
              \mu_0 + \Lambda \, e_k, \; k \in \arg\min_l g_l \quad (s = 1)

    Parameters
    ----------
    g : ndarray of shape (p,)
        A gradient, every entry zero or less. Not modified.
    mu_0, radius, norm
        As of `project`.

    Returns
    -------
    mu : ndarray of shape (p,)
        Of several for norm 1 the first; the centre where `g` is zero.

    Raises
    ------
    ValueError
        `norm` is neither 1 nor 2.

    Notes
    -----
    O(p). The bound on the sign is not used: moving away from the centre against `g` keeps to the set.
    """
    mu = np.array(mu_0, dtype=np.float64)
    size = float(-g.min())
    if norm not in (1, 2):
        raise ValueError(f"norm must be 1 or 2, got {norm!r}.")
    if not size > 0:
        return mu
    if norm == 1:
        mu[g.argmin()] += radius
        return mu
    v = -g / size
    return mu + radius * (v / np.linalg.norm(v))


def _project_2(z: np.ndarray, mu_0: np.ndarray, radius: float) -> np.ndarray:
    """Return ``max(0, mu_0 + r (z - mu_0))`` with the one r in (0, 1] that meets the radius, or 1 where none need be.

    In the multiplier t of the ball r is ``1 / (1 + t)``. The squared distance from the centre, as a function of r, is
    the sum of ``mu_0^2`` over the entries that reached zero and of ``r^2 (z - mu_0)^2`` over the others: it never
    falls, and is quadratic between the r where an entry reaches zero.
    """
    inside = np.maximum(z, 0.0)
    if np.linalg.norm(inside - mu_0) <= radius:
        return inside
    w = z - mu_0
    unit = np.abs(w).max()
    w = w / unit  # no square overflows; r is relative to this from here on
    reach = np.full(len(w), np.inf)
    falls = w < 0
    reach[falls] = mu_0[falls] / -w[falls]
    order = np.argsort(reach, kind="stable")
    steps = reach[order]
    zeroed = np.concatenate([[0.0], np.cumsum(mu_0[order] ** 2)])
    moving = np.concatenate([np.cumsum((w[order] ** 2)[::-1])[::-1], [0.0]])
    # Entry j of `steps` reaches zero last of those up to j; the first piece that ends beyond the radius holds r.
    finite = np.isfinite(steps)
    ends = np.full(len(steps), np.inf)
    ends[finite] = zeroed[1:][finite] + steps[finite] ** 2 * moving[1:][finite]
    j = int(np.searchsorted(np.maximum.accumulate(ends), radius**2))
    if not moving[j] > 0:  # beyond the radius by rounding alone
        return inside
    r = min(np.sqrt(max(radius**2 - zeroed[j], 0.0) / moving[j]), unit)
    return np.maximum(mu_0 + r * w, 0.0)


def _project_1(z: np.ndarray, mu_0: np.ndarray, radius: float) -> np.ndarray:
    """Return ``max(0, mu_0 + soft(z - mu_0, t))`` with the one t >= 0 that meets the radius, or 0 where none need be.

    Entry k moves from its centre by ``|z_k - mu_0k| - t``, but by zero at least and, downwards, by ``mu_0k`` at most.
    The sum of these falls in t, and is linear between the t where an entry starts or stops to move.
    """
    inside = np.maximum(z, 0.0)
    if np.abs(inside - mu_0).sum() <= radius:
        return inside
    w = z - mu_0
    size = np.abs(w)
    falls = w < 0
    at = np.concatenate([size, size[falls] - mu_0[falls]])
    slope = np.concatenate([np.ones(len(w)), np.full(int(falls.sum()), -1.0)])
    order = np.argsort(-at, kind="stable")
    at, slope = at[order], np.cumsum(slope[order])
    distance = np.concatenate([[0.0], np.cumsum(slope[:-1] * -np.diff(at))])
    # Between at[j] and at[j + 1] the distance grows from distance[j] at the rate slope[j]; t is at[j] less `beyond`.
    j = max(int(np.searchsorted(distance, radius)) - 1, 0)
    beyond = min((radius - distance[j]) / max(slope[j], 1.0), at[j])
    step = np.clip((size - at[j]) + beyond, 0.0, np.where(falls, mu_0, np.inf))
    # Far from the ball these differences carry the rounding of z; the distance does not.
    step *= min(radius / step.sum(), 1.0)
    return np.maximum(mu_0 + np.copysign(step, w), 0.0)
