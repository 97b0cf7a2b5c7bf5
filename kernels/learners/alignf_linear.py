"""alignf-linear: the combination of highest alignment, with weights of either sign."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dpstrf

from learnkernels.kernels.learners.solution import Products, Solution
from learnkernels.kernels.solvers.certificate import Certificate

TOLERANCE = 1e-8
"""Residual that a solution must reach; a Cholesky factor leaves rounding, times the size of the weights."""

DEPENDENT = 1e-10
"""What a kernel of norm one must have left, squared, outside the span of others to count as independent of them."""

SHOWN = 10
"""Positions of dependent kernels that a message names."""


def alignf_linear(M: Products, a: np.ndarray, *, dependent: Literal["error", "subset"] = "error") -> Solution:
    r"""Return the weights, of either sign, whose combined kernel aligns best with the target kernel.

    .. math:: \mu = \frac{M^{-1} a}{\lVert M^{-1} a \rVert}

    Parameters
    ----------
    M : ndarray or Products of shape (p, p)
        Frobenius products of the centered base kernels: symmetric, positive semi-definite, diagonal positive.
    a : ndarray of shape (p,)
        Products with the target kernel.
    dependent : {"error", "subset"}, default "error"
        What to do where a kernel is a combination of others, so that M has no inverse: refuse, or give weight zero to
        what depends on the rest. The first kernel stays, then each time the one with most left outside the span of
        those that stay.

    Returns
    -------
    solution : Solution
        Weights may be negative, and then the combined kernel need not be positive semi-definite; ``mu'a`` never is. The
        certificate is the largest residual of ``M v = a`` over the kernels kept, relative to the largest entry of a,
        all in units of base kernels of norm one.

    Raises
    ------
    ValueError
        Kernels are dependent and `dependent` is ``error``, `dependent` is neither of its values, or a is zero.

    Notes
    -----
    O(p^3), by a pivoted Cholesky factor of M scaled to unit diagonal. A kernel counts as dependent where the square of
    its distance from the span of others is below 1e-10 of its squared norm: rounding of M reaches the weights
    multiplied by the inverse of that share, so a smaller one would leave them fewer than five digits. Moments of
    float32 tiles are off by 1e-6 or so and call for kernels that lie further apart.

    `alignf` searches among fewer weights, so it never aligns better on the rows that M and a are of.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Proposition 8; section 3.2.1 takes an independent subset of
    dependent kernels.
    """
    if dependent not in ("error", "subset"):
        raise ValueError(f"dependent must be error or subset, got {dependent!r}.")
    M = np.asarray(M)
    scale = 1.0 / np.sqrt(np.diag(M))
    scaled, products = scale[:, None] * M * scale, scale * a
    np.fill_diagonal(scaled, 1.0)  # to the last digit, or rounding would choose the first pivot
    factor, pivots, rank, _ = dpstrf(scaled, tol=DEPENDENT)
    kept, left_out = pivots[:rank] - 1, np.sort(pivots[rank:] - 1)
    if len(left_out) and dependent == "error":
        shown = ", ".join(map(str, left_out[:SHOWN])) + (", ..." if len(left_out) > SHOWN else "")
        raise ValueError(
            f"base kernels must be independent for alignf-linear, got {len(left_out)} of {len(a)} in the span of the "
            f"others (at {shown}, counted from 0); pass dependent='subset' to leave them out, or use alignf."
        )
    u = np.zeros(len(a))
    u[kept] = cho_solve((factor[:rank, :rank], False), products[kept])
    residual = np.abs(scaled[kept] @ u - products[kept]).max() / (np.abs(products[kept]).max() or 1.0)
    return Solution.of_direction(u * scale, Certificate("KKT residual", float(residual), TOLERANCE))
