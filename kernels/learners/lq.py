"""lq: the highest unnormalised alignment for weights of a given q-norm."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.learners.solution import Products, Solution


def lq(M: Products, a: np.ndarray, *, q: float = 2.0) -> Solution:
    r"""Return the weights of highest unnormalised alignment among those of one q-norm.

    .. math:: \max_{\lVert \mu \rVert_q \le 1} \; \mu^\top a, \qquad \mu_k \propto a_k^{1 / (q - 1)}

    Parameters
    ----------
    M : ndarray or Products of shape (p, p)
        Frobenius products of the centered base kernels. Not used.
    a : ndarray of shape (p,)
        Products with the target kernel, not negative.
    q : float, default 2
        Order of the norm, from 1 to infinity. With 1 all weight is on the largest product, the first of equals; with
        infinity every kernel with a positive product has the same weight, which is the limit of large q.

    Returns
    -------
    solution : Solution
        Scaled to unit 2-norm, like that of any learner; a kernel without a positive product has weight zero.

    Raises
    ------
    ValueError
        q is below 1 or not a number, or no product is positive.

    Notes
    -----
    O(p). The alignment maximised here is not divided by the norm of the combined kernel, so the weights depend on how
    the base kernels are scaled: one that is multiplied by c counts c^(1 / (q - 1)) times as much, and once more in the
    sum. For base kernels of Frobenius norm one and q = 2 this is `align`. Close to q = 1 the weight gathers on the
    largest product; those that equal it exactly share it, for any q above 1.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, equation (4) and Proposition 7.
    """
    if not q >= 1:
        raise ValueError(f"q must be a number from 1 to infinity, got {q}.")
    # a is not negative for positive semi-definite kernels; rounding can leave it just below.
    products = np.maximum(a, 0.0)
    largest = products.max()
    if not largest > 0:
        return Solution.of_direction(products)
    if q == 1:
        v = np.zeros(len(a))
        v[products.argmax()] = 1.0
        return Solution.of_direction(v)
    # Relative to the largest, so that a high power vanishes instead of overflowing.
    return Solution.of_direction(np.where(products > 0, (products / largest) ** (1.0 / (q - 1.0)), 0.0))
