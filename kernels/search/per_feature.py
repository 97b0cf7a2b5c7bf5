"""Continuous families with one parameter a feature: bandwidths or frequencies that tell features apart."""

from __future__ import annotations

from abc import abstractmethod
from typing import get_args

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from learnkernels.kernels.families.base import KernelFamily, Rows
from learnkernels.kernels.families.dirichlet import DirichletFamily
from learnkernels.kernels.families.gaussian import GaussianFamily
from learnkernels.kernels.families.laplacian import LaplacianFamily
from learnkernels.kernels.families.scaled import ScaledFamily, readable_range
from learnkernels.kernels.search.continuous import ContinuousFamily, Kind, PairObjective
from learnkernels.kernels.search.feature_passes import dirichlet_pass, laplacian_pass

BLOCK_ROWS = 64
"""Rows whose pairs with all later rows are formed at once."""

NARROWEST, WIDEST = 1e-3, 1e4
"""Least and largest bandwidth, in standard deviations of its feature."""

SLOWEST = 1e-3
"""Least frequency, in half turns over the extent of its feature: there the factor is constant up to 1e-5."""

LEAST_TURNS = 16
"""The largest frequency makes a half turn a row if rows were evenly spaced, and at least this many over the extent."""

FRACTIONS = (0.25, 1.0, 4.0)
"""Bandwidths to start from, in units of the median distance."""

TURNS = (1.0, 2.0, 4.0, 8.0)
"""Frequencies to start from, in half turns over the largest extent."""


class PerFeatureFamily(ContinuousFamily):
    r"""Gaussian, Laplacian or Dirichlet kernels with one parameter a feature, for dense rows.

    .. math:: e^{-\sum_k (x_k - z_k)^2 / \sigma_k^2}, \qquad e^{-\sum_k |x_k - z_k| / \sigma_k}, \qquad
              \prod_k \bigl(1 + 2 \cos(\sigma_k (x_k - z_k))\bigr)

    Parameters
    ----------
    kind : {"gaussian", "laplacian", "dirichlet"}
        Which of the three. A bandwidth is in units of its feature, a frequency in radians a unit.
    n_features : int
        d, the number of features, and of parameters.

    Raises
    ------
    ValueError
        The kind is another one, there is no feature, or there are so many that Dirichlet kernels overflow; in use,
        rows are sparse or do not have d features, or all of them are equal.

    Notes
    -----
    Moving all rows alike changes nothing, and a constant feature has derivative zero.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Alignment based kernel learning with a continuous set of base kernels,
    Machine Learning 91:305-324, section 3.1. The Dirichlet product over features is that of `DirichletFamily`.
    """

    def __init__(self, kind: Kind, n_features: int) -> None:
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}.")
        if n_features < 1 or n_features != int(n_features):
            raise ValueError(f"n_features must be a whole number of at least 1, got {n_features}.")
        self.kind: Kind = kind
        self.n_features = int(n_features)
        if kind == "dirichlet":
            DirichletFamily([1.0]).diag(np.empty((0, self.n_features)))  # refuses values that overflow

    def objective(self, X: Rows) -> FeaturePairs:
        """Return the kernels over all pairs of rows.

        Parameters
        ----------
        X : ndarray of shape (m, d)
            Not modified; a centered copy is kept.

        Returns
        -------
        pairs : FeaturePairs

        Raises
        ------
        ValueError
            X is sparse or has another number of features.
        """
        X = self._centered(X)
        if self.kind == "gaussian":
            return GaussianPairs(X)
        return LaplacianPairs(X) if self.kind == "laplacian" else DirichletPairs(X)

    def starts(self, X: Rows) -> np.ndarray:
        """Return a few isotropic points: bandwidths around the median distance, frequencies of a few half turns.

        Parameters
        ----------
        X : ndarray of shape (m, d)
            Not modified.

        Returns
        -------
        U : ndarray of shape (n, d)
            Ascending, each row of equal entries, within `bounds`.

        Raises
        ------
        ValueError
            X is sparse, has another number of features, or all its rows are equal.

        Notes
        -----
        The median is that of the distances between different rows, O(m^2 d) time and O(m^2) memory.
        """
        X = self._centered(X)
        return np.repeat(np.log(self._isotropic(X))[:, None], self.n_features, axis=1)

    def bounds(self, X: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return the range of u for each feature, from its spread or extent.

        Parameters
        ----------
        X : ndarray of shape (m, d)
            Not modified.

        Returns
        -------
        low, high : ndarray of shape (d,)
            Wide enough for all `starts`; a constant feature has the widest range of the others.

        Raises
        ------
        ValueError
            X is sparse, has another number of features, or all its rows are equal.
        """
        X = self._centered(X)
        isotropic = self._isotropic(X)
        extent = np.ptp(X, axis=0)
        varies = extent > 0
        extent = extent[varies]
        if self.kind == "dirichlet":
            low, high = SLOWEST * np.pi / extent, max(LEAST_TURNS, len(X)) * np.pi / extent
        else:
            spread = extent * np.std(X[:, varies] / extent, axis=0)
            low, high = NARROWEST * spread, WIDEST * spread
        lows, highs = np.full(self.n_features, low.min()), np.full(self.n_features, high.max())
        lows[varies], highs[varies] = low, high
        return np.log(np.minimum(lows, isotropic[0])), np.log(np.maximum(highs, isotropic[-1]))

    def finite(self, U: np.ndarray) -> ScaledFamily:
        """Return the base kernels at each u as unit kernels on scaled features.

        Parameters
        ----------
        U : ndarray of shape (p, d)
            Logarithms of the parameters.

        Returns
        -------
        family : ScaledFamily
            Of p kernels, each named after the range of its parameters.

        Raises
        ------
        ValueError
            U has another number of columns, or a parameter is not positive and finite.
        """
        U = np.asarray(U, dtype=np.float64)
        if U.ndim != 2 or U.shape[1] != self.n_features:
            raise ValueError(f"U must be a matrix, kernels by {self.n_features} features, got shape {U.shape}.")
        sigma = np.exp(U)
        word = "frequency" if self.kind == "dirichlet" else "sigma"
        names = [f"{self.kind}({word} {readable_range(one)})" for one in sigma]
        base: KernelFamily
        if self.kind == "dirichlet":
            base, scales = DirichletFamily([1.0]), sigma
        else:
            base = GaussianFamily([1.0]) if self.kind == "gaussian" else LaplacianFamily([1.0])
            scales = np.exp(-U)
        return ScaledFamily(base, scales, names)

    def _centered(self, X: Rows) -> np.ndarray:
        """Return the rows less their mean, C-contiguous, a constant feature exactly zero."""
        if sparse.issparse(X):
            raise ValueError(
                "a family with one parameter a feature needs dense rows, got sparse ones; give X.toarray(), or search "
                "one Gaussian bandwidth for all features, for which sparse rows will do."
            )
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_features or not len(X):
            raise ValueError(
                f"X must have at least one row, and the {self.n_features} features of the family, got shape {X.shape}."
            )
        centered = np.ascontiguousarray(X - X.mean(axis=0))
        centered[:, np.ptp(X, axis=0) == 0] = 0.0  # the mean of equal values may differ from them by rounding
        return centered

    def _isotropic(self, X: np.ndarray) -> np.ndarray:
        """Return the ascending sigmas of isotropic starts, for centered rows."""
        extent = float(np.ptp(X, axis=0).max())
        if not extent > 0:
            raise ValueError(f"all {len(X)} rows are equal, so no {self.kind} kernel varies; give features that vary.")
        if self.kind == "dirichlet":
            return np.array(TURNS) * np.pi / extent
        D = pdist(X / extent, "euclidean" if self.kind == "gaussian" else "cityblock")
        return np.array(FRACTIONS) * extent * np.median(D[D > 0])


class FeaturePairs(PairObjective):
    """Kernels over all pairs of m rows with one parameter a feature.

    Attributes
    ----------
    X : ndarray of shape (m, d)
        Rows less their mean, C-contiguous; a constant feature is zero.
    """

    diagonal: float = 1.0
    """The kernel of a row with itself."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = X

    def value_and_gradient(self, u: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the product with P, and its derivative by u.

        Parameters
        ----------
        u : ndarray of shape (d,)
            Logarithms of the parameters.
        P : ndarray of shape (m, m)
            Symmetric; not modified.

        Returns
        -------
        value : float
        gradient : ndarray of shape (d,)

        Notes
        -----
        O(m^2 d) time, from the pairs above the diagonal; no matrix of all pairs is formed.
        """
        value, gradient = self._above(u, np.ascontiguousarray(P, dtype=np.float64))
        return 2.0 * value + self.diagonal * float(np.trace(P)), 2.0 * gradient

    @abstractmethod
    def _above(self, u: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the sum of ``P_ij K_ij`` over the pairs above the diagonal, and its derivative by u."""


class GaussianPairs(FeaturePairs):
    r"""Gaussian kernels with one bandwidth a feature.

    Notes
    -----
    With ``W = P o K`` and ``z = x / sigma``, feature k has the derivative

    .. math:: 2 \sum_{ij} W_{ij} (z_{ik} - z_{jk})^2
              = 4 \Bigl( \sum_i z_{ik}^2 (W \mathbf{1})_i - z_{\cdot k}^\top W z_{\cdot k} \Bigr)

    two matrix products for all features. A row with itself is left out of W: both terms would hold it, and at small
    bandwidths little else. The upper triangle is formed in blocks of rows, in O(`BLOCK_ROWS` m) memory.
    """

    def matrix(self, u: np.ndarray) -> np.ndarray:
        """Return the kernel matrix; one product of m^2 d flops and one exponential a pair."""
        Z = self.X * np.exp(-u)
        K = np.asarray(Z @ Z.T)
        norms = np.diagonal(K).copy()
        K *= 2.0
        K -= np.add.outer(norms, norms)
        np.minimum(K, 0.0, out=K)
        np.exp(K, out=K)
        return K

    def _above(self, u: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray]:
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
        return float(row_sums.sum()), 2.0 * gradient


class LaplacianPairs(FeaturePairs):
    r"""Laplacian kernels with one bandwidth a feature.

    Notes
    -----
    Feature k has the derivative

    .. math:: \sum_{ij} P_{ij} K_{ij} |x_{ik} - x_{jk}| / \sigma_k
    """

    def matrix(self, u: np.ndarray) -> np.ndarray:
        """Return the kernel matrix; O(m^2 d)."""
        K = np.asarray(squareform(np.exp(-pdist(self.X * np.exp(-u), "cityblock")), checks=False))
        np.fill_diagonal(K, 1.0)
        return K

    def _above(self, u: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray]:
        gradient = np.zeros(len(u))
        return laplacian_pass(np.ascontiguousarray((self.X * np.exp(-u)).T), P, gradient), gradient


class DirichletPairs(FeaturePairs):
    r"""Dirichlet kernels of degree one with one frequency a feature.

    Notes
    -----
    Feature k has the derivative

    .. math:: -2 \sum_{ij} P_{ij} \sigma_k (x_{ik} - x_{jk}) \sin\bigl(\sigma_k (x_{ik} - x_{jk})\bigr)
              \prod_{l \ne k} \bigl(1 + 2 \cos(\sigma_l (x_{il} - x_{jl}))\bigr)
    """

    def __init__(self, X: np.ndarray) -> None:
        super().__init__(X)
        self.diagonal = 3.0 ** X.shape[1]

    def matrix(self, u: np.ndarray) -> np.ndarray:
        """Return the kernel matrix; one product of rank three a feature."""
        angles = (self.X * np.exp(u)).T
        waves = np.stack([np.ones_like(angles), np.sqrt(2.0) * np.cos(angles), np.sqrt(2.0) * np.sin(angles)], axis=2)
        K = np.ones((len(self.X), len(self.X)))
        for wave in waves:
            K *= wave @ wave.T
        return K

    def _above(self, u: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray]:
        angles = np.ascontiguousarray((self.X * np.exp(u)).T)
        gradient = np.zeros(len(u))
        return dirichlet_pass(angles, np.cos(angles), np.sin(angles), P, gradient), gradient
