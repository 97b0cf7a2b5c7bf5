"""Kernels over all pairs of rows as functions of their bandwidths: one for all features, or one a feature.

Pairs are those above the diagonal, row by row: (0, 1), (0, 2), ..., (1, 2), ... NumPy computes the exponentials,
several at once; the sums over them are made here in one compiled pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import pdist

from learnkernels.kernels.compiled.compiler import FAST, compiled
from learnkernels.kernels.families.base import KernelFamily, Rows, inner_products, squared_norms
from learnkernels.kernels.families.composed import ScaledFamily, readable_range
from learnkernels.kernels.families.distances import GaussianFamily, LaplacianFamily
from learnkernels.kernels.families.products import DirichletFamily

BINS = 1024
"""Bins of distances that candidates are compared on; their second-order error is below 1e-4 of a kernel's value."""

DECADES = 3.0
"""A bandwidth is searched this many decades below and above the median distance."""

CURVATURE_WIDTH = 1e-3
"""Of the difference quotient of a curvature, in log sigma."""

POLISHED = 3
"""Best candidates of a search that a local optimiser starts from."""

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
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be gaussian, laplacian or dirichlet, got {kind!r}.")


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
        self.kind, self.m = kind, X.shape[0]
        self.D = _distances(kind, X)
        largest = max(float(self.D.max(initial=0.0)), np.finfo(float).tiny) * (1 + 1e-12)
        linear = kind == "dirichlet"
        # What is closer than any bandwidth resolves shares the first bin.
        least = largest * 1e-9
        scale = BINS / largest if linear else (BINS - 1) / np.log(largest / least)
        self.bins, self.centers = bin_pass(self.D, linear, least, scale, BINS)

    @cached_property
    def candidates(self) -> np.ndarray:
        """Points u over the range that is searched: log-spaced bandwidths, or equally spaced frequencies, shape (n,).

        Bandwidths are around the median distance of some thousand pairs.

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

    @cached_property
    def _flat(self) -> np.ndarray:
        upper = np.triu_indices(self.m, 1)
        return np.asarray(upper[0] * self.m + upper[1])

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
        K = np.zeros((self.m, self.m))
        K.ravel()[self._flat] = self._of_scaled(self.D * self.rate(u[0]))
        K += K.T
        np.fill_diagonal(K, self.diagonal)
        return K

    def value_and_gradient(self, u: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the product with P and its derivative; one exponential a pair."""
        value, slope = self.sums(float(u[0]), P.ravel()[self._flat], np.empty_like(self.D))
        return 2 * value + self.diagonal * float(np.trace(P)), np.array([2 * slope])

    def fill(self, u: float, out: np.ndarray) -> None:
        """Write the kernel of each pair."""
        self._of_scaled(np.multiply(self.D, self.rate(u), out=out))

    def sums(self, u: float, p: np.ndarray, work: np.ndarray) -> tuple[float, float]:
        """Return the sums over pairs of p times the kernel and times its derivative by u; `work` is written over."""
        rate = float(self.rate(u))
        self.fill(u, work)
        if self.kind == "dirichlet":
            angle = self.D * rate
            return value_pass(p, work, -2 * angle * np.sin(angle))
        value, slope = scaled_value_pass(p, work, self.D)
        return value, slope * rate * (2 if self.kind == "gaussian" else 1)

    def binned(self, P: np.ndarray) -> np.ndarray:
        """Return the sum of P over the pairs of each bin, both triangles, shape (BINS,)."""
        return 2 * np.bincount(self.bins, weights=P.ravel()[self._flat], minlength=BINS)

    def values_on_bins(self, u: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return ``sum_b weights_b kappa_u(D_b)`` for each u."""
        return np.asarray(self._of_scaled(self.centers * self.rate(u[:, None])) @ weights)

    def best_on_bins(self, weights: np.ndarray) -> tuple[float, float]:
        """Return the u of the largest product that the candidates lead to on bins, and the curvature there."""
        starts = self.candidates
        values = self.values_on_bins(starts, weights)
        best = (0.0, -np.inf)

        def negative(u: float) -> float:
            return -float(self.values_on_bins(np.array([u]), weights)[0])

        for peak in peaks(values):
            low, high = starts[max(peak - 1, 0)], starts[min(peak + 1, len(starts) - 1)]
            found = minimize_scalar(negative, bounds=(low, high), method="bounded", options={"xatol": 1e-3})
            if -found.fun > best[1]:
                best = (float(found.x), -float(found.fun))
        around = self.values_on_bins(best[0] + CURVATURE_WIDTH * np.array([-1.0, 0.0, 1.0]), weights)
        return best[0], float(around[0] - 2 * around[1] + around[2]) / CURVATURE_WIDTH**2


def _distances(kind: Kind, X: Rows) -> np.ndarray:
    """Return the distance of each pair above the diagonal, squared for Gaussians."""
    m = X.shape[0]
    if kind == "gaussian":
        if not sparse.issparse(X):
            X = X - X.mean(axis=0)  # moves no distance, and shortens the rows
        D = np.empty(m * (m - 1) // 2)
        squared_distances_pass(inner_products(X, X), squared_norms(X), D)
        return D
    if sparse.issparse(X):
        raise ValueError(f"a continuous {kind} family needs dense rows, got sparse ones; use kind gaussian.")
    if kind == "dirichlet" and X.shape[1] != 1:
        raise ValueError(
            f"a Dirichlet family of one frequency needs one feature, got {X.shape[1]}; choose another kind."
        )
    return np.asarray(pdist(X, "cityblock"))


def settle(
    slope_at: Callable[[float], float], u: float, curvature: float, ends: tuple[float, float], settled: float, most: int
) -> float:
    """Return the maximum near u by Newton's method with an exact slope; the curvature given is that of the first step.

    Later curvatures are secants. The search ends with a step no longer than `settled`, after `most` steps, or where the
    curvature is not that of a maximum.
    """
    before: tuple[float, float] | None = None
    for _ in range(most):
        slope = slope_at(u)
        if before is not None and u != before[0]:
            curvature = (slope - before[1]) / (u - before[0])
        if not curvature < 0:
            break
        before, u = (u, slope), float(np.clip(u - slope / curvature, *ends))
        if abs(u - before[0]) <= settled:
            break
    return u


def peaks(values: np.ndarray) -> np.ndarray:
    """Return the positions of the highest local maxima along a line of candidates, the highest first."""
    padded = np.concatenate([[-np.inf], values, [-np.inf]])
    found = np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] >= padded[2:]))
    return np.asarray(found[np.argsort(-values[found], kind="stable")][:POLISHED])


@compiled()
def gradient_pass(
    K: np.ndarray,
    target: np.ndarray,
    means: np.ndarray,
    bins: np.ndarray,
    n_bins: int,
    weight_target: float,
    weight_kernel: float,
    p: np.ndarray,
) -> np.ndarray:
    """Write ``weight_target * target - weight_kernel * K_c`` for each pair into `p`, and return its sums by bin.

    K_c is K centered: less the row means of both rows, plus their mean.
    """
    m = len(means)
    grand = 0.0
    for i in range(m):
        grand += means[i]
    grand /= m
    sums = np.zeros(n_bins)
    k = 0
    for i in range(m):
        for j in range(i + 1, m):
            value = weight_target * target[k] - weight_kernel * (K[k] - means[i] - means[j] + grand)
            p[k] = value
            sums[bins[k]] += value
            k += 1
    return sums


@compiled(fastmath=FAST)
def value_pass(p: np.ndarray, K: np.ndarray, slopes: np.ndarray) -> tuple[float, float]:
    """Return the sums over pairs of p times the kernel, and of p times its derivative."""
    value = slope = 0.0
    for k in range(len(p)):
        value += p[k] * K[k]
        slope += p[k] * slopes[k]
    return value, slope


@compiled(fastmath=FAST)
def scaled_value_pass(p: np.ndarray, K: np.ndarray, D: np.ndarray) -> tuple[float, float]:
    """Return the sums over pairs of p times the kernel, and of p times kernel times distance."""
    value = slope = 0.0
    for k in range(len(p)):
        term = p[k] * K[k]
        value += term
        slope += term * D[k]
    return value, slope


@compiled(fastmath=FAST)
def products_pass(
    new: np.ndarray, diagonal: float, K: np.ndarray, target: np.ndarray, m: int
) -> tuple[np.ndarray, float, float, float]:
    """Return the row sums of a kernel given for each pair, and over pairs the sums of its products.

    The products are those with the target kernel, with K, and with itself.
    """
    rows = np.full(m, diagonal)
    with_target = with_kernel = with_itself = 0.0
    k = 0
    for i in range(m):
        row = 0.0
        for j in range(i + 1, m):
            value = new[k]
            row += value
            rows[j] += value
            with_target += value * target[k]
            with_kernel += value * K[k]
            with_itself += value * value
            k += 1
        rows[i] += row
    return rows, with_target, with_kernel, with_itself


@compiled()
def squared_distances_pass(G: np.ndarray, norms: np.ndarray, D: np.ndarray) -> None:
    """Write the squared distance of each pair, from inner products and squared norms."""
    m, k = len(norms), 0
    for i in range(m):
        for j in range(i + 1, m):
            value = norms[i] + norms[j] - 2.0 * G[i, j]
            D[k] = value if value > 0.0 else 0.0
            k += 1


@compiled()
def bin_pass(D: np.ndarray, linear: bool, least: float, scale: float, n_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the bin of each pair, and the mean distance of each bin."""
    bins = np.empty(len(D), dtype=np.int32)
    counts, sums = np.zeros(n_bins), np.zeros(n_bins)
    for k in range(len(D)):
        if linear:
            b = int(D[k] * scale)
        elif D[k] > least:
            b = 1 + int(math.log(D[k] / least) * scale)
        else:
            b = 0
        b = min(b, n_bins - 1)
        bins[k] = b
        counts[b] += 1.0
        sums[b] += D[k]
    for b in range(n_bins):
        if counts[b] > 0.0:
            sums[b] /= counts[b]
    return bins, sums


@compiled()
def target_pass(Y: np.ndarray, target: np.ndarray) -> None:
    """Write the inner product of the targets of each pair."""
    m, q = Y.shape
    k = 0
    for i in range(m):
        for j in range(i + 1, m):
            value = 0.0
            for c in range(q):
                value += Y[i, c] * Y[j, c]
            target[k] = value
            k += 1


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
