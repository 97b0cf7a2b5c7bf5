"""Kernel values of all pairs of rows, as functions of the bandwidths.

Pairs are ordered as above the diagonal: (0, 1), (0, 2), ..., (1, 2), ...
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
from ..validation import require_one_of

BINS = 1024
"""Number of bins of distances; kernel values have errors below 1e-4."""

CURVATURE_WIDTH = 1e-3
"""Step in log sigma of the difference quotient of a curvature."""

BLOCK_ROWS = 64

Kind = Literal["gaussian", "laplacian", "dirichlet"]


def require_kind(kind: str) -> None:
    require_one_of("kind", kind, get_args(Kind))


def radial_kernels(kind: Kind, U: np.ndarray) -> KernelFamily:
    """Return the family of p base kernels with log bandwidths U, shape (p, 1)."""
    sigma = np.exp(U[:, 0])
    if kind == "gaussian":
        return GaussianFamily((1 / sigma**2).tolist())
    if kind == "laplacian":
        return LaplacianFamily((1 / sigma).tolist())
    return DirichletFamily(sigma.tolist())


class RadialPairs:
    r"""Kernel values of all pairs of rows, as functions of the log bandwidth.

    Gaussian, Laplacian, and Dirichlet kernels (one frequency, one feature):

    .. math:: e^{-\lVert x - z \rVert_2^2 / \sigma^2}, \qquad e^{-\lVert x - z \rVert_1 / \sigma}, \qquad
              1 + 2 \cos(\sigma |x - z|)

    D has the distances above the diagonal, squared for Gaussians, `bins` their bins,
    and `centers` the mean distance in each bin.
    """

    def __init__(self, kind: Kind, X: Rows) -> None:
        self.kind = kind
        self.D = _distances(kind, X)
        largest = max(float(self.D.max(initial=0.0)), np.finfo(float).tiny) * (
            1 + 1e-12
        )
        if kind == "dirichlet":
            bins = self.D * (BINS / largest)
        else:
            # Pairs that are too close for any bandwidth share the first bin.
            smallest = largest * 1e-9
            bins_per_unit = (BINS - 1) / np.log(largest / smallest)
            with np.errstate(divide="ignore"):
                bins = 1 + np.floor(np.log(self.D / smallest) * bins_per_unit)
        self.bins = np.clip(bins, 0, BINS - 1).astype(np.int32)
        counts = np.bincount(self.bins, minlength=BINS)
        self.centers = np.bincount(self.bins, self.D, BINS) / np.maximum(counts, 1)

    @cached_property
    def candidates(self) -> np.ndarray:
        """Log bandwidths that `steepest` compares first.

        Log-spaced around the median distance, or frequencies a quarter of a main lobe
        apart.
        """
        distances = self.D[:: max(1, len(self.D) // 4096)]
        if not (distances > 0).any():
            distances = self.D
        distances = distances[distances > 0]
        if not len(distances):
            raise ValueError(
                "all rows are equal, so no bandwidth can be found; give features that vary."
            )
        if self.kind == "dirichlet":
            n_frequencies = 600
            lobe = np.pi / self.D.max()
            low = np.log(lobe / 4)
            high = np.log(n_frequencies * lobe / 4)
            return np.asarray(
                np.log(np.linspace(np.exp(low), np.exp(high), n_frequencies))
            )
        center = np.log(np.median(distances))
        if self.kind == "gaussian":
            center /= 2
        three_decades = 3.0 * np.log(10)
        return np.linspace(center - three_decades, center + three_decades, 96)

    def rate(self, u: np.ndarray | float) -> np.ndarray:
        """Return the factors gamma of distances for log bandwidths u."""
        exponents = {"gaussian": -2.0, "laplacian": -1.0, "dirichlet": 1.0}
        return np.asarray(np.exp(exponents[self.kind] * np.asarray(u)))

    def _kernel_of_scaled_distances(self, scaled: np.ndarray) -> np.ndarray:
        """Replace distances times the rate by kernel values, in place."""
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
        return 3.0 if self.kind == "dirichlet" else 1.0

    def matrix(self, u: np.ndarray) -> np.ndarray:
        K = np.asarray(
            squareform(
                self._kernel_of_scaled_distances(self.D * self.rate(u[0])), checks=False
            )
        )
        np.fill_diagonal(K, self.diagonal)
        return K

    def value_and_gradient(
        self, u: np.ndarray, P: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Return the Frobenius product <K, P> at log bandwidth u, and its derivative.

        P is symmetric.
        """
        value, slope = self._sums_over_pairs(float(u[0]), squareform(P, checks=False))
        return 2 * value + self.diagonal * float(np.trace(P)), np.array([2 * slope])

    def _sums_over_pairs(self, u: float, p: np.ndarray) -> tuple[float, float]:
        """Return sums over pairs of p times kernel and derivative."""
        scaled = self.D * self.rate(u)
        K = self._kernel_of_scaled_distances(scaled.copy())
        if self.kind == "dirichlet":
            return float(p @ K), -2 * float(p @ (scaled * np.sin(scaled)))
        scaled *= K
        degree = 2 if self.kind == "gaussian" else 1
        return float(p @ K), degree * float(p @ scaled)

    def binned(self, P: np.ndarray) -> np.ndarray:
        """Return the sum of symmetric P over the pairs of rows in each distance bin."""
        return 2 * np.bincount(self.bins, squareform(P, checks=False), BINS)

    def values_on_bins(self, u: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the weighted sum of kernel values over distance bins, for each u."""
        return np.asarray(
            self._kernel_of_scaled_distances(self.centers * self.rate(u[:, None]))
            @ weights
        )

    def steepest(self, P: np.ndarray, settled: float) -> float:
        """Return the log bandwidth that maximizes the Frobenius product <K, P>.

        P is symmetric and centered; the search ends at a step of at most `settled`.
        """
        weights = self.binned(P)
        u = self._best_on_bins(weights)
        low, high = self.candidates[0], self.candidates[-1]
        p = squareform(P, checks=False)
        curvature = self._curvature_on_bins(u, weights)
        previous_u = u
        previous_slope = 0.0
        for _ in range(20):
            slope = 2 * self._sums_over_pairs(u, p)[1]
            if u != previous_u:
                curvature = (slope - previous_slope) / (u - previous_u)
            if not curvature < 0:
                break
            previous_u = u
            previous_slope = slope
            u = float(np.clip(u - slope / curvature, low, high))
            if abs(u - previous_u) <= settled:
                break
        return u

    def _best_on_bins(self, weights: np.ndarray) -> float:
        candidates = self.candidates
        best_u = 0.0
        best_value = -np.inf
        for peak in highest_maxima(self.values_on_bins(candidates, weights)):
            left = candidates[max(peak - 1, 0)]
            right = candidates[min(peak + 1, len(candidates) - 1)]
            result = minimize_scalar(
                lambda u: -float(self.values_on_bins(np.array([u]), weights)[0]),
                bounds=(left, right),
                method="bounded",
                options={"xatol": 1e-3},
            )
            if -result.fun > best_value:
                best_u = float(result.x)
                best_value = -float(result.fun)
        return best_u

    def _curvature_on_bins(self, u: float, weights: np.ndarray) -> float:
        below, at, above = self.values_on_bins(
            u + CURVATURE_WIDTH * np.array([-1.0, 0.0, 1.0]), weights
        )
        return float(below - 2 * at + above) / CURVATURE_WIDTH**2


def _distances(kind: Kind, X: Rows) -> np.ndarray:
    if kind == "gaussian":
        return np.asarray(squareform(squared_distances(X, X), checks=False))
    if sparse.issparse(X):
        raise ValueError(
            f"a continuous {kind} family needs dense rows, got sparse ones; use kind gaussian."
        )
    if kind == "dirichlet" and X.shape[1] != 1:
        raise ValueError(
            f"a Dirichlet family of one frequency needs one feature, got {X.shape[1]}; choose another kind."
        )
    return np.asarray(pdist(X, "cityblock"))


def highest_maxima(values: np.ndarray) -> np.ndarray:
    """Return positions of the three highest local maxima, highest first."""
    padded = np.concatenate([[-np.inf], values, [-np.inf]])
    maxima = np.flatnonzero(
        (padded[1:-1] >= padded[:-2]) & (padded[1:-1] >= padded[2:])
    )
    descending = np.argsort(-values[maxima], kind="stable")
    return np.asarray(maxima[descending][:3])


class FeaturePairs:
    r"""Gaussian kernels of all pairs of rows, with one bandwidth per feature.

    .. math:: \kappa(x, z) = e^{-\sum_k (x_k - z_k)^2 / \sigma_k^2}
    """

    def __init__(self, X: Rows) -> None:
        if sparse.issparse(X):
            raise ValueError(
                "a family with one parameter per feature needs dense rows, got sparse ones; give X.toarray(), or "
                "search one Gaussian bandwidth for all features, for which sparse rows will do."
            )
        X = np.asarray(X, dtype=np.float64)
        self.X = np.ascontiguousarray(X - X.mean(axis=0))
        self.X[:, np.ptp(X, axis=0) == 0] = 0.0  # removes rounding errors of the mean

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the log bandwidth of each feature."""
        extent = np.ptp(self.X, axis=0)
        varies = extent > 0
        if not varies.any():
            raise ValueError(
                f"all {len(self.X)} rows are equal, so no kernel varies; give features that vary."
            )
        distances = pdist(self.X / extent.max(), "euclidean")
        isotropic = (
            np.array([0.25, 4.0]) * extent.max() * np.median(distances[distances > 0])
        )
        standard_deviations = extent[varies] * np.std(
            self.X[:, varies] / extent[varies], axis=0
        )
        narrowest = 1e-3 * standard_deviations
        widest = 1e4 * standard_deviations
        low = np.full(len(varies), narrowest.min())
        low[varies] = narrowest
        high = np.full(len(varies), widest.max())
        high[varies] = widest
        return np.log(np.minimum(low, isotropic[0])), np.log(
            np.maximum(high, isotropic[1])
        )

    def matrix(self, u: np.ndarray) -> np.ndarray:
        Z = self.X * np.exp(-u)
        K = np.asarray(Z @ Z.T)
        norms = np.diagonal(K).copy()
        K *= 2.0
        K -= np.add.outer(norms, norms)
        np.minimum(K, 0.0, out=K)
        np.exp(K, out=K)
        return K

    def value_and_gradient(
        self, u: np.ndarray, P: np.ndarray
    ) -> tuple[float, np.ndarray]:
        r"""Return the Frobenius product <K, P> at log bandwidths u, and its gradient.

        P is symmetric. With ``W = P o K`` and ``z = x / sigma``, feature k has the
        derivative

        .. math:: 2 \sum_{ij} W_{ij} (z_{ik} - z_{jk})^2
                  = 4 \Bigl( \sum_i z_{ik}^2 (W \mathbf{1})_i - z_{\cdot k}^\top W z_{\cdot k} \Bigr)

        A zero diagonal of W avoids cancellation.
        """
        Z = self.X * np.exp(-u)
        squares = Z * Z
        norms = squares.sum(axis=1)
        twice = 2.0 * Z
        m, d = Z.shape
        gradient = np.zeros(d)
        row_sums = np.empty(m)
        column_sums = np.zeros(m)
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

    def value_and_gradient_shrunk(
        self, u: np.ndarray, P: np.ndarray, shrinkage: float
    ) -> tuple[float, np.ndarray]:
        """Return `value_and_gradient` with a penalty on unequal bandwidths."""
        value, gradient = self.value_and_gradient(u, P)
        sigma = np.exp(u)
        deviations = sigma - sigma.mean()
        # The derivative of the mean has no effect: the deviations sum to zero.
        return value - shrinkage * float(
            deviations @ deviations
        ), gradient - 2 * shrinkage * deviations * sigma

    def steepest(
        self, P: np.ndarray, start: np.ndarray, shrinkage: float
    ) -> np.ndarray:
        """Return the local maximizer of `value_and_gradient_shrunk` near `start`."""
        low, high = self.bounds
        start = np.clip(start, low, high)
        # The tolerances of the optimizer need an objective of about one.
        unit = max(
            abs(self.value_and_gradient_shrunk(start, P, shrinkage)[0]),
            np.finfo(float).tiny,
        )
        result = minimize(
            lambda u: tuple(
                -part / unit for part in self.value_and_gradient_shrunk(u, P, shrinkage)
            ),
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options={"ftol": 1e-10, "gtol": 1e-8, "maxiter": 200},
        )
        return np.asarray(result.x)


def scaled_gaussians(U: np.ndarray) -> ScaledFamily:
    """Return p Gaussians with one log bandwidth U per feature, shape (p, d)."""
    names = [f"gaussian(sigma {readable_range(sigma)})" for sigma in np.exp(U)]
    return ScaledFamily(GaussianFamily([1.0]), np.exp(-U), names)
