"""single: the one base kernel that aligns best."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.learners.solution import Products, Solution


def single(M: Products, a: np.ndarray) -> Solution:
    """Return all weight on the base kernel with the highest centered alignment; ties go to the first.

    Parameters
    ----------
    M : ndarray or Products of shape (p, p)
        Frobenius products of the centered base kernels, diagonal positive. Only the diagonal is
        used.
    a : ndarray of shape (p,)
        Products with the target kernel.

    Returns
    -------
    solution : Solution

    Notes
    -----
    The choice does not depend on how the base kernels are scaled.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828: the case q = 1 after Proposition 7.
    """
    weights = np.zeros(len(a))
    weights[np.argmax(a / np.sqrt(M.diagonal()))] = 1.0
    return Solution(weights)
