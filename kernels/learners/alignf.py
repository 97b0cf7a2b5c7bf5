"""alignf: highest alignment, with non-negative or unconstrained weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dpstrf

from ..solvers.active_set import minimize_nonnegative
from ..solvers.certificate import Certificate
from .base import AlignmentLearner, Products, Solution

TOLERANCE = 1e-8
"""Residual at which a solution counts as optimal."""

DEPENDENT = 1e-10
"""Largest squared distance of a dependent unit kernel from the span of others."""


@dataclass(frozen=True, eq=False, repr=False)
class Alignf(AlignmentLearner):
    r"""Learn the non-negative weights that maximize the centered alignment.

    .. math:: \min_{v \ge 0} \; v^\top M v - 2 v^\top a, \qquad \mu = v / \lVert v \rVert

    M holds the products of the centered and normalized base kernels, and a their
    products with the target kernel.

    Notes
    -----
    Solved by active sets on M scaled to unit diagonal. With dependent kernels, the
    weights are not unique, but the combined kernel is.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Proposition 9 and equation (7).
    """

    name = "alignf"
    summary = "the nonnegative combination with the highest alignment"
    source = "JMLR 2012, Proposition 9, equation (7)"

    def fit_weights(self, M: Products, a: np.ndarray) -> Solution:
        M = np.asarray(M)
        scale = 1.0 / np.sqrt(np.diag(M))
        scaled = scale[:, None] * M
        scaled *= scale
        v = minimize_nonnegative(scaled, scale * a) * scale
        return Solution.of_direction(v, kkt_certificate(M, a, v))


def kkt_certificate(M: np.ndarray, a: np.ndarray, v: np.ndarray) -> Certificate:
    r"""Return a certificate of how closely weights `v` meet the KKT conditions.

    With :math:`u_k = v_k \sqrt{M_{kk}}` and :math:`g_k = (M v - a)_k / \sqrt{M_{kk}}`,
    it is the largest of the most negative weight relative to ``max |u|``, the most
    negative gradient relative to ``max |a_k| / sqrt(M_kk)``, and ``max |u_k g_k|``
    relative to both.

    Parameters
    ----------
    M : ndarray of shape (p, p)
        Frobenius products of the centered base kernels.
    a : ndarray of shape (p,)
        Products with the target kernel.
    v : ndarray of shape (p,)
        Solution, not normalized.

    Returns
    -------
    certificate : Certificate
        Zero at the optimum, whatever the scale of kernels and targets.
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


@dataclass(frozen=True, eq=False, repr=False)
class AlignfUncentered(Alignf):
    """Learn the non-negative weights that maximize the uncentered alignment.

    References
    ----------
    Cristianini, Shawe-Taylor, Elisseeff, Kandola (2001), NIPS 14; Kandola,
    Shawe-Taylor, Cristianini (2002); JMLR 2012, section 3.2.
    """

    name = "alignf-uncentered"
    summary = (
        "the nonnegative combination with the highest alignment, without centering"
    )
    source = "Cristianini et al. 2001; Kandola et al. 2002; JMLR 2012, section 3.2"
    needs = "uncentered alignments"
    centered = False


@dataclass(frozen=True, eq=False, repr=False)
class AlignfLinear(AlignmentLearner):
    r"""Learn the weights of any sign that maximize the centered alignment.

    .. math:: \mu = \frac{M^{-1} a}{\lVert M^{-1} a \rVert}

    Parameters
    ----------
    dependent : {"error", "subset"}, default "error"
        Whether linearly dependent kernels raise an error or get weight zero.

    Notes
    -----
    O(p^3), by a pivoted Cholesky factor. A kernel is dependent if its squared distance
    from the span of others is below 1e-10 of its squared norm. The combined kernel need
    not be positive semi-definite.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Proposition 8 and section
    3.2.1.
    """

    name = "alignf-linear"
    summary = "the combination with the highest alignment, weights sign-unconstrained"
    source = "JMLR 2012, Proposition 8"

    signed = True

    dependent: Literal["error", "subset"] = "error"

    def require(self) -> None:
        if self.dependent not in ("error", "subset"):
            raise ValueError(
                f"dependent must be error or subset, got {self.dependent!r}."
            )

    def fit_weights(self, M: Products, a: np.ndarray) -> Solution:
        M = np.asarray(M)
        scale = 1.0 / np.sqrt(np.diag(M))
        scaled = scale[:, None] * M * scale
        # Exact, as otherwise rounding would select the first pivot
        np.fill_diagonal(scaled, 1.0)
        products = scale * a
        factor, pivots, rank, _ = dpstrf(scaled, tol=DEPENDENT)
        independent = pivots[:rank] - 1
        dependent = np.sort(pivots[rank:] - 1)
        if len(dependent) and self.dependent == "error":
            positions = ", ".join(map(str, dependent[:10]))
            if len(dependent) > 10:
                positions += ", ..."
            raise ValueError(
                f"base kernels must be independent for alignf-linear, got {len(dependent)} of {len(a)} in the span of "
                f"the others (at {positions}, counted from 0); pass dependent='subset' to leave them out, or use "
                "alignf."
            )
        u = np.zeros(len(a))
        u[independent] = cho_solve((factor[:rank, :rank], False), products[independent])
        error = np.abs(scaled[independent] @ u - products[independent]).max()
        largest_product = np.abs(products[independent]).max() or 1.0
        return Solution.of_direction(
            u * scale,
            Certificate("KKT residual", float(error / largest_product), TOLERANCE),
        )
