"""Gaussians with one bandwidth a feature, which tell features apart: values, derivatives, and where a search ends."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist

from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.families.composed import ScaledFamily, readable_range
from learnkernels.kernels.families.distances import GaussianFamily

BLOCK_ROWS = 64
"""Rows whose pairs with all later rows are formed at once."""

NARROWEST, WIDEST = 1e-3, 1e4
"""Least and largest bandwidth, in standard deviations of its feature."""

ISOTROPIC = (0.25, 4.0)
"""Bandwidths of all features alike that the range of each holds, in units of the median distance."""


class FeaturePairs:
    r"""Gaussians over all pairs of m rows with one bandwidth a feature, as functions of :math:`u = \log \sigma`.

    .. math:: \kappa(x, z) = e^{-\sum_k (x_k - z_k)^2 / \sigma_k^2}

    Parameters
    ----------
    X : ndarray of shape (m, d)
        Dense rows. Not modified; a copy less its mean is kept, in which a constant feature is zero.

    Raises
    ------
    ValueError
        X is sparse; in `bounds`, all rows are equal.

    Notes
    -----
    Moving all rows alike changes nothing, and a constant feature has derivative zero.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Alignment based kernel learning with a continuous set of base kernels,
    Machine Learning 91:305-324, section 3.1.
    """

    def __init__(self, X: Rows) -> None:
        if sparse.issparse(X):
            raise ValueError(
                "a family with one parameter a feature needs dense rows, got sparse ones; give X.toarray(), or search "
                "one Gaussian bandwidth for all features, for which sparse rows will do."
            )
        X = np.asarray(X, dtype=np.float64)
        self.X = np.ascontiguousarray(X - X.mean(axis=0))
        self.X[:, np.ptp(X, axis=0) == 0] = 0.0  # the mean of equal values may differ from them by rounding

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the range of u for each feature, from its spread; a constant feature has the widest of the others."""
        extent = np.ptp(self.X, axis=0)
        varies = extent > 0
        if not varies.any():
            raise ValueError(f"all {len(self.X)} rows are equal, so no kernel varies; give features that vary.")
        D = pdist(self.X / extent.max(), "euclidean")
        narrow, wide = np.array(ISOTROPIC) * extent.max() * np.median(D[D > 0])
        extent = extent[varies]
        spread = extent * np.std(self.X[:, varies] / extent, axis=0)
        low, high = NARROWEST * spread, WIDEST * spread
        lows, highs = np.full(len(varies), low.min()), np.full(len(varies), high.max())
        lows[varies], highs[varies] = low, high
        return np.log(np.minimum(lows, narrow)), np.log(np.maximum(highs, wide))

    def matrix(self, u: np.ndarray) -> np.ndarray:
        """Return the kernel matrix, freshly allocated; one product of m^2 d flops and one exponential a pair."""
        Z = self.X * np.exp(-u)
        K = np.asarray(Z @ Z.T)
        norms = np.diagonal(K).copy()
        K *= 2.0
        K -= np.add.outer(norms, norms)
        np.minimum(K, 0.0, out=K)
        np.exp(K, out=K)
        return K

    def value_and_gradient(self, u: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray]:
        r"""Return ``<P, K(u)>_F`` and its derivative by u, shape (d,), for a symmetric P of shape (m, m).

        Notes
        -----
        With ``W = P o K`` and ``z = x / sigma``, feature k has the derivative

        .. math:: 2 \sum_{ij} W_{ij} (z_{ik} - z_{jk})^2
                  = 4 \Bigl( \sum_i z_{ik}^2 (W \mathbf{1})_i - z_{\cdot k}^\top W z_{\cdot k} \Bigr)

        two matrix products for all features. A row with itself is left out of W: both terms would hold it, and at small
        bandwidths little else. The upper triangle is formed in blocks of rows, in O(`BLOCK_ROWS` m) memory.
        """
        Z = self.X * np.exp(-u)
        squares = Z * Z
        norms = squares.sum(axis=1)
        twice = 2.0 * Z
        m, d = Z.shape
        gradient, row_sums, column_sums = np.zeros(d), np.empty(m), np.zeros(m)
        for start in range(0, m, BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, m)
            n = stop - start
            W = twice[start:stop] @ Z[start:].T
            W -= norms[start:stop, None]
            W -= norms[start:]
            np.minimum(W, 0.0, out=W)
            np.exp(W, out=W)
            W *= P[start:stop, start:]
            W[:, :n] = np.triu(W[:, :n], 1)
            row_sums[start:stop] = W.sum(axis=1)
            column_sums[start:] += W.sum(axis=0)
            gradient -= 2.0 * np.einsum("ik,ik->k", Z[start:stop], W @ Z[start:])
        gradient += (row_sums + column_sums) @ squares
        return 2.0 * float(row_sums.sum()) + float(np.trace(P)), 4.0 * gradient


def scaled_gaussians(U: np.ndarray) -> ScaledFamily:
    """Return the base kernels at each row u of U, shape (p, d), each named after the range of its bandwidths."""
    names = [f"gaussian(sigma {readable_range(sigma)})" for sigma in np.exp(U)]
    return ScaledFamily(GaussianFamily([1.0]), np.exp(-U), names)
