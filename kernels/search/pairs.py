"""Kernels over all pairs of rows as functions of their bandwidths: one for all features, or one per feature.

Pairs are those above the diagonal, row by row: (0, 1), (0, 2), ..., (1, 2), ...
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal, get_args

import numpy as np
from scipy import sparse
from scipy.optimize import minimize, minimize_scalar
from scipy.spatial.distance import pdist, squareform

from ..families.base import KernelFamily, Rows, squared_distances
from ..families.composed import ScaledFamily, readable_range
from ..families.distances import GaussianFamily, LaplacianFamily
from ..families.products import DirichletFamily
from ..parameters import require_one_of

BINS = 1024
"""Bins of distances that candidates are compared on; their second-order error is below 1e-4 of a kernel's value."""

DECADES = 3.0
"""A bandwidth is searched this many decades below and above the median distance."""

CURVATURE_WIDTH = 1e-3
"""Of the difference quotient of a curvature, in log sigma."""

POLISHED = 3
"""Best candidates of a search that a local optimizer starts from."""

NEWTON_STEPS = 20
"""Of a search from the best point on bins; two or three are usual."""

CANDIDATES = 96
"""Bandwidths that are compared in each search."""

MOST_FREQUENCIES = 600
"""Frequencies that are compared in each search, a quarter of a main lobe apart."""


Kind = Literal["gaussian", "laplacian", "dirichlet"]


BLOCK_ROWS = 64
"""Rows whose pairs with all later rows are formed at once."""

NARROWEST, WIDEST = 1e-3, 1e4
"""Least and largest bandwidth, in standard deviations of its feature."""

ISOTROPIC = (0.25, 4.0)
"""Bandwidths of all features alike that the range of each holds, in units of the median distance."""


def require_kind(kind: str) -> None:
    """Raise ValueError if there is no such kind of base kernels."""
    require_one_of("kind", kind, get_args(Kind))


def radial_kernels(kind: Kind, U: np.ndarray) -> KernelFamily:
    """Return the base kernels of a kind at each u, U of shape (p, 1), as a finite family."""
    sigma = np.exp(U[:, 0])
    if kind == "gaussian":
        return GaussianFamily((1 / sigma**2).tolist())
    if kind == "laplacian":
        return LaplacianFamily((1 / sigma).tolist())
    return DirichletFamily(sigma.tolist())


class RadialPairs:
    r"""Kernels over all pairs of m rows that are a function of one distance, and of :math:`u = \log \sigma`.

    Gaussian or Laplacian kernels of one bandwidth, or Dirichlet kernels of one frequency on one feature:

    .. math:: e^{-\lVert x - z \rVert_2^2 / \sigma^2}, \qquad e^{-\lVert x - z \rVert_1 / \sigma}, \qquad
              1 + 2 \cos(\sigma |x - z|)

    Parameters
    ----------
    kind : {"gaussian", "laplacian", "dirichlet"}
    X : ndarray or CSR matrix of shape (m, d)
        Rows; sparse ones for Gaussians alone. Not modified.

    Attributes
    ----------
    D : ndarray of shape (m (m - 1) / 2,)
        Distances above the diagonal, squared for Gaussians.
    bins, centers : ndarray
        The bin of each pair, and the mean distance of each bin: of equal ratio, of equal width for frequencies.

    Notes
    -----
    O(m^2 d) time for the distances, O(m^2) memory.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning, section 3.1.
    """

    def __init__(self, kind: Kind, X: Rows) -> None:
        self.kind, self.D = kind, _distances(kind, X)
        largest = max(float(self.D.max(initial=0.0)), np.finfo(float).tiny) * (1 + 1e-12)
        linear = kind == "dirichlet"
        # What is closer than any bandwidth resolves shares the first bin.
        least = largest * 1e-9
        scale = BINS / largest if linear else (BINS - 1) / np.log(largest / least)
        with np.errstate(divide="ignore"):
            bins = self.D * scale if linear else 1 + np.floor(np.log(self.D / least) * scale)
        self.bins = np.clip(bins, 0, BINS - 1).astype(np.int32)
        counts = np.bincount(self.bins, minlength=BINS)
        self.centers = np.bincount(self.bins, self.D, BINS) / np.maximum(counts, 1)

    @cached_property
    def candidates(self) -> np.ndarray:
        """Points u over the range that is searched: log-spaced bandwidths, or equally spaced frequencies, shape (n,).

        Bandwidths are around the median distance of about 1,000 pairs.

        Raises
        ------
        ValueError
            All distances are zero.
        """
        some = self.D[:: max(1, len(self.D) // 4096)]
        some = some[some > 0] if (some > 0).any() else self.D[self.D > 0]
        if not len(some):
            raise ValueError("all rows are equal, so no bandwidth can be found; give features that vary.")
        if self.kind == "dirichlet":
            lobe = np.pi / self.D.max()
            low, high = np.log(lobe / 4), np.log(MOST_FREQUENCIES * lobe / 4)
            return np.asarray(np.log(np.linspace(np.exp(low), np.exp(high), MOST_FREQUENCIES)))
        center, width = np.log(np.median(some)) / (2 if self.kind == "gaussian" else 1), DECADES * np.log(10)
        return np.linspace(center - width, center + width, CANDIDATES)

    def rate(self, u: np.ndarray | float) -> np.ndarray:
        """Return sigma^-2, 1 / sigma or sigma."""
        return np.asarray(np.exp({"gaussian": -2.0, "laplacian": -1.0, "dirichlet": 1.0}[self.kind] * np.asarray(u)))

    def _of_scaled(self, scaled: np.ndarray) -> np.ndarray:
        """Return the kernel for distances times the rate, written over them."""
        if self.kind == "dirichlet":
            np.cos(scaled, out=scaled)
            scaled *= 2
            scaled += 1
        else:
            np.negative(scaled, out=scaled)
            np.exp(scaled, out=scaled)
        return scaled

    @property
    def diagonal(self) -> float:
        """The kernel of a row with itself."""
        return 3.0 if self.kind == "dirichlet" else 1.0

    def matrix(self, u: np.ndarray) -> np.ndarray:
        """Return the kernel matrix; one exponential or cosine a pair."""
        K = np.asarray(squareform(self._of_scaled(self.D * self.rate(u[0])), checks=False))
        np.fill_diagonal(K, self.diagonal)
        return K

    def value_and_gradient(self, u: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the product with P, symmetric, and its derivative; one exponential per pair."""
        value, slope = self._sums(float(u[0]), squareform(P, checks=False))
        return 2 * value + self.diagonal * float(np.trace(P)), np.array([2 * slope])

    def _sums(self, u: float, p: np.ndarray) -> tuple[float, float]:
        """Return the sums over pairs of p times the kernel and times its derivative by u."""
        scaled = self.D * self.rate(u)
        K = self._of_scaled(scaled.copy())
        if self.kind == "dirichlet":
            return float(p @ K), -2 * float(p @ (scaled * np.sin(scaled)))
        scaled *= K
        return float(p @ K), (2 if self.kind == "gaussian" else 1) * float(p @ scaled)

    def binned(self, P: np.ndarray) -> np.ndarray:
        """Return the sum of P over the pairs of each bin, both triangles, shape (BINS,)."""
        return 2 * np.bincount(self.bins, squareform(P, checks=False), BINS)

    def values_on_bins(self, u: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return ``sum_b weights_b kappa_u(D_b)`` for each u."""
        return np.asarray(self._of_scaled(self.centers * self.rate(u[:, None])) @ weights)

    def steepest(self, P: np.ndarray, settled: float) -> float:
        """Return the u of the largest product with P, symmetric and centered, up to about the square of `settled`.

        The best of the candidates on bins, and what they lead to there, begin a search by Newton's method with exact
        slopes. Its first curvature is that on bins, later ones follow from two slopes.
        """
        weights, starts, best = self.binned(P), self.candidates, (0.0, -np.inf)
        for peak in peaks(self.values_on_bins(starts, weights)):
            ends = starts[max(peak - 1, 0)], starts[min(peak + 1, len(starts) - 1)]
            found = minimize_scalar(
                lambda u: -float(self.values_on_bins(np.array([u]), weights)[0]),
                bounds=ends,
                method="bounded",
                options={"xatol": 1e-3},
            )
            if -found.fun > best[1]:
                best = (float(found.x), -float(found.fun))
        u, p, before = best[0], squareform(P, checks=False), (best[0], 0.0)
        around = self.values_on_bins(u + CURVATURE_WIDTH * np.array([-1.0, 0.0, 1.0]), weights)
        curvature = float(around[0] - 2 * around[1] + around[2]) / CURVATURE_WIDTH**2
        for _ in range(NEWTON_STEPS):
            slope = 2 * self._sums(u, p)[1]
            if u != before[0]:
                curvature = (slope - before[1]) / (u - before[0])
            if not curvature < 0:
                break
            before, u = (u, slope), float(np.clip(u - slope / curvature, starts[0], starts[-1]))
            if abs(u - before[0]) <= settled:
                break
        return u


def _distances(kind: Kind, X: Rows) -> np.ndarray:
    """Return the distance of each pair above the diagonal, squared for Gaussians."""
    if kind == "gaussian":
        return np.asarray(squareform(squared_distances(X, X), checks=False))
    if sparse.issparse(X):
        raise ValueError(f"a continuous {kind} family needs dense rows, got sparse ones; use kind gaussian.")
    if kind == "dirichlet" and X.shape[1] != 1:
        raise ValueError(
            f"a Dirichlet family of one frequency needs one feature, got {X.shape[1]}; choose another kind."
        )
    return np.asarray(pdist(X, "cityblock"))


def peaks(values: np.ndarray) -> np.ndarray:
    """Return the positions of the highest local maxima along a line of candidates, the highest first."""
    padded = np.concatenate([[-np.inf], values, [-np.inf]])
    found = np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] >= padded[2:]))
    return np.asarray(found[np.argsort(-values[found], kind="stable")][:POLISHED])


class FeaturePairs:
    r"""Gaussians over all pairs of m rows with one bandwidth per feature, as functions of :math:`u = \log \sigma`.

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
                "a family with one parameter per feature needs dense rows, got sparse ones; give X.toarray(), or "
                "search one Gaussian bandwidth for all features, for which sparse rows will do."
            )
        X = np.asarray(X, dtype=np.float64)
        self.X = np.ascontiguousarray(X - X.mean(axis=0))
        self.X[:, np.ptp(X, axis=0) == 0] = 0.0  # the mean of equal values may differ from them by rounding

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The range of u for each feature, from its spread; a constant feature has the widest of the others."""
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
        """Return the kernel matrix, freshly allocated; one product of m^2 d flops and one exponential per pair."""
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

    def shrunk(self, u: np.ndarray, P: np.ndarray, shrinkage: float) -> tuple[float, np.ndarray]:
        """Return what `value_and_gradient` does, less shrinkage times the squared deviations of sigma from its mean."""
        value, gradient = self.value_and_gradient(u, P)
        sigma = np.exp(u)
        away = sigma - sigma.mean()
        # The mean moves too, but its part of the derivative sums to zero.
        return value - shrinkage * float(away @ away), gradient - 2 * shrinkage * away * sigma

    def steepest(self, P: np.ndarray, start: np.ndarray, shrinkage: float) -> np.ndarray:
        """Return the u of the largest `shrunk` product with P that an ascent from `start` leads to."""
        low, high = self.bounds
        start = np.clip(start, low, high)
        # The unit of the objective does not matter to where it is largest, but it does to when an optimizer stops.
        unit = max(abs(self.shrunk(start, P, shrinkage)[0]), np.finfo(float).tiny)
        found = minimize(
            lambda u: tuple(-part / unit for part in self.shrunk(u, P, shrinkage)),
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options={"ftol": 1e-10, "gtol": 1e-8, "maxiter": 200},
        )
        return np.asarray(found.x)


def scaled_gaussians(U: np.ndarray) -> ScaledFamily:
    """Return the base kernels at each row u of U, shape (p, d), each named after the range of its bandwidths."""
    names = [f"gaussian(sigma {readable_range(sigma)})" for sigma in np.exp(U)]
    return ScaledFamily(GaussianFamily([1.0]), np.exp(-U), names)
