"""Bound on the deviation of an alignment from its expectation."""

from __future__ import annotations

import math

import numpy as np

from ..centering import (
    as_gram_matrices,
    center_gram,
    require_gram_matrices,
    require_varying,
)
from ..weights import near_one


def alignment_deviation_bound(
    K: np.ndarray, L: np.ndarray, *, delta: float = 0.05
) -> float:
    r"""Return a bound on the deviation of a sample's alignment from its expectation.

    .. math:: 18 \beta \Big( \frac{3}{m} + 4 \sqrt{\frac{\log(6 / \delta)}{2 m}} \Big), \qquad
              \beta = \max \Big( \frac{R^4}{E[K_c^2]}, \frac{R'^4}{E[L_c^2]} \Big)

    Parameters
    ----------
    K, L : ndarray of shape (m, m)
        Gram matrices of two kernels that do not depend on the sample.
    delta : float, default 0.05
        Probability that the bound fails.

    Returns
    -------
    bound : float
        Bound; trivial above 1.

    Notes
    -----
    R^2 and the expectations are estimated by the largest diagonal entry and the mean
    squared entry of the centered matrix. O(m^2).

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Theorem 12, with 4 as in its
    proof, and R^4 of each kernel.
    """
    K, L = as_gram_matrices([("K", K), ("L", L)], np.float64)
    require_gram_matrices(K, L)
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta}.")
    m = len(K)
    ratios = []
    for name, gram in (("K", near_one(K)), ("L", near_one(L))):
        gram_c = center_gram(gram)
        require_varying(name, gram, float(np.linalg.norm(gram_c)), m)
        mean_square = float((gram_c**2).mean())
        ratios.append(float(np.diag(gram).max()) ** 2 / mean_square)
    return 18 * max(ratios) * (3 / m + 4 * math.sqrt(math.log(6 / delta) / (2 * m)))
