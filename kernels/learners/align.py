"""align: each weight from the kernel's own alignment."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.learners.solution import Products, Solution


def align(M: Products, a: np.ndarray) -> Solution:
    r"""Return weights proportional to each base kernel's centered alignment with the target kernel.

    .. math:: \mu_k \propto \hat\rho(K_k, K_Y) \propto \frac{a_k}{\sqrt{M_{kk}}}

    Parameters
    ----------
    M : ndarray or Products of shape (p, p)
        Frobenius products of the centered base kernels, diagonal positive. Only the diagonal is used.
    a : ndarray of shape (p,)
        Products with the target kernel, not negative.

    Returns
    -------
    solution : Solution

    Raises
    ------
    ValueError
        No base kernel has a positive alignment.

    Notes
    -----
    O(p). The weights themselves do not depend on how the base kernels are scaled, so the combined kernel does:
    the papers scale each to trace one first.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, equation (3).
    """
    # a is not negative for positive semi-definite kernels; rounding can leave it just below.
    return Solution.of_direction(np.maximum(a, 0.0) / np.sqrt(M.diagonal()))
