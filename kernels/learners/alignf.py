"""alignf: the combination of highest alignment, with non-negative or unconstrained weights."""

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
"""Residual of the optimality conditions that a solution must reach; active sets and Cholesky factors leave rounding."""

DEPENDENT = 1e-10
"""What a kernel of norm one must have left, squared, outside the span of others to count as independent of them."""

SHOWN = 10
"""Positions of dependent kernels that a message names."""


@dataclass(frozen=True, eq=False, repr=False)
class Alignf(AlignmentLearner):
    r"""The non-negative weights whose combined kernel aligns best with the target kernel.

    .. math:: \min_{v \ge 0} \; v^\top M v - 2 v^\top a, \qquad \mu = v / \lVert v \rVert

    M has the products of the centered base kernels, normalized, and a their products with the target kernel.

    Notes
    -----
    Solved by active sets on M scaled to unit diagonal, from some hundred kernels on after a warm start. (Non-negative
    least squares on M and a themselves minimizes another function, ``||M v - a||``.) With dependent kernels the weights
    are not unique, the combined kernel is.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Proposition 9 and equation (7).
    """

    name = "alignf"
    summary = "the nonnegative combination with the highest alignment"
    source = "JMLR 2012, Proposition 9, equation (7)"

    def fit_weights(self, M: Products, a: np.ndarray) -> Solution:
        """Return the weights; see `AlignmentLearner.fit_weights`."""
        M = np.asarray(M)
        scale = 1.0 / np.sqrt(np.diag(M))
        scaled = scale[:, None] * M
        scaled *= scale
        v = minimize_nonnegative(scaled, scale * a) * scale
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
        Of the length that solves the problem, not normalized.

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


@dataclass(frozen=True, eq=False, repr=False)
class AlignfUncentered(Alignf):
    """The non-negative weights whose combined kernel aligns best with the target kernel, without centering.

    References
    ----------
    Cristianini, Shawe-Taylor, Elisseeff, Kandola (2001), NIPS 14; Kandola, Shawe-Taylor, Cristianini (2002); JMLR 2012,
    section 3.2.
    """

    name = "alignf-uncentered"
    summary = "the nonnegative combination with the highest alignment, without centering"
    source = "Cristianini et al. 2001; Kandola et al. 2002; JMLR 2012, section 3.2"
    needs = "uncentered alignments"
    centered = False


@dataclass(frozen=True, eq=False, repr=False)
class AlignfLinear(AlignmentLearner):
    r"""The sign-unconstrained weights whose combined kernel aligns best with the target kernel.

    .. math:: \mu = \frac{M^{-1} a}{\lVert M^{-1} a \rVert}

    Parameters
    ----------
    dependent : {"error", "subset"}, default "error"
        What to do where a kernel is a combination of others, so that M has no inverse: refuse, or give weight zero to
        what depends on the rest. The first kernel stays, then each time the one with most left outside the span of
        those that stay.

    Notes
    -----
    O(p^3), by a pivoted Cholesky factor of M scaled to unit diagonal. A kernel counts as dependent where the square of
    its distance from the span of others is below 1e-10 of its squared norm: rounding of M reaches the weights
    multiplied by the inverse of that share, so a smaller one would leave them fewer than five digits. Statistics of
    float32 tiles are off by 1e-6 or so and call for kernels that lie further apart.

    `alignf` searches among fewer weights, so it never aligns better on the rows that M and a are of.

    Weights may be negative, and then the combined kernel need not be positive semi-definite; ``mu'a`` never is. The
    certificate is the largest residual of ``M v = a`` over the kernels kept, relative to the largest entry of a, all in
    units of base kernels of norm one.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Proposition 8; section 3.2.1 takes an independent subset of
    dependent kernels.
    """

    name = "alignf-linear"
    summary = "the combination with the highest alignment, weights sign-unconstrained"
    source = "JMLR 2012, Proposition 8"

    signed = True

    dependent: Literal["error", "subset"] = "error"

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        if self.dependent not in ("error", "subset"):
            raise ValueError(f"dependent must be error or subset, got {self.dependent!r}.")

    def fit_weights(self, M: Products, a: np.ndarray) -> Solution:
        """Return the weights; see `AlignmentLearner.fit_weights`."""
        M = np.asarray(M)
        scale = 1.0 / np.sqrt(np.diag(M))
        scaled, products = scale[:, None] * M * scale, scale * a
        np.fill_diagonal(scaled, 1.0)  # to the last digit, or rounding would choose the first pivot
        factor, pivots, rank, _ = dpstrf(scaled, tol=DEPENDENT)
        kept, dropped = pivots[:rank] - 1, np.sort(pivots[rank:] - 1)
        if len(dropped) and self.dependent == "error":
            shown = ", ".join(map(str, dropped[:SHOWN])) + (", ..." if len(dropped) > SHOWN else "")
            raise ValueError(
                f"base kernels must be independent for alignf-linear, got {len(dropped)} of {len(a)} in the span of "
                f"the others (at {shown}, counted from 0); pass dependent='subset' to leave them out, or use alignf."
            )
        u = np.zeros(len(a))
        u[kept] = cho_solve((factor[:rank, :rank], False), products[kept])
        residual = np.abs(scaled[kept] @ u - products[kept]).max() / (np.abs(products[kept]).max() or 1.0)
        return Solution.of_direction(u * scale, Certificate("KKT residual", float(residual), TOLERANCE))
