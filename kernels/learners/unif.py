"""unif: the uniform combination, the baseline that is hard to beat."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.learners.solution import Products, Solution


def unif(M: Products, a: np.ndarray) -> Solution:
    """Return equal weights.

    Parameters
    ----------
    M : ndarray or Products of shape (p, p)
        Frobenius products of the centered base kernels. Not used.
    a : ndarray of shape (p,)
        Products with the target kernel. Only their number is used.

    Returns
    -------
    solution : Solution

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """
    return Solution.of_direction(np.ones(len(a)))
