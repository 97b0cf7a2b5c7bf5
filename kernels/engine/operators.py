"""The base kernels of some training rows as one-stage learners need them: applied and combined.

Every operator serves the base kernels, centered or as they are, each divided by its scale, and nothing but the few
products below; an algorithm is written once, whether the matrices lie in memory, are computed again by tiles, or are
rank-one features. Sparse ones come by columns (CSC) with their rows in ascending order: their products cost the sum
over the features of the square of the number of their rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from ..centering import Centering, center_in_place, mirror
from ..compiled.cache import FAST, compiled
from ..families.base import KernelFamily, Rows
from ..families.composed import DividedFamily, divisors_for
from ..families.feature import FeatureFamily
from .combination import Combination, CombinedGram
from .passes import RowBlocks, block_rows_for, block_rows_of, pass_over_tiles
from .workers import BlockResults, Threads, over_tiles

IN_MEMORY = 2**30
"""Bytes that the p base-kernel matrices may take to be held; beyond that they are computed again, tile by tile."""

LARGEST_MATRIX = 2**30
"""Bytes of a matrix of all pairs of rows up to which learners form it; on more rows they do without."""


def has_room(n_rows: int) -> bool:
    """Return whether a matrix of all pairs of so many rows may be formed."""
    return 8 * n_rows**2 <= LARGEST_MATRIX


@dataclass(frozen=True)
class StackedGrams:
    """Base kernels held as matrices.

    Attributes
    ----------
    grams : ndarray of shape (p, m, m)
        Centered if `centering` subtracts, and scaled; each exactly symmetric.
    centering : Centering
    """

    grams: np.ndarray
    centering: Centering = Centering.CENTER

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.grams.shape[1]

    @property
    def n_kernels(self) -> int:
        """Number of base kernels."""
        return len(self.grams)

    def combine(self, mu: np.ndarray) -> np.ndarray:
        """Return the weighted sum; O(p m^2), base kernels of zero weight are not read."""
        p, m, _ = self.grams.shape
        active = np.flatnonzero(mu)
        if len(active) == p:
            # BLAS threads may round an entry and its mirror image differently.
            return mirror(np.asarray(mu @ self.grams.reshape(p, m * m)).reshape(m, m))
        K = np.zeros((m, m))
        for k in active:
            K += mu[k] * self.grams[k]
        return K

    def products(self, alpha: np.ndarray) -> np.ndarray:
        """Return each kernel times `alpha`; O(p m^2 q)."""
        p, m, _ = self.grams.shape
        return np.asarray(self.grams.reshape(p * m, m) @ alpha).reshape(p, m, -1)

    def quadratic_forms(self, alpha: np.ndarray) -> np.ndarray:
        """Return the quadratic forms; O(p m^2 q)."""
        products = self.products(alpha.reshape(self.n_rows, -1)).reshape(self.n_kernels, *alpha.shape)
        return np.einsum("ki...q,i...q->k...", products, alpha)

    def inner_products(self, W: np.ndarray) -> np.ndarray:
        """Return the Frobenius products with `W`; O(p m^2)."""
        p, m, _ = self.grams.shape
        return np.asarray(self.grams.reshape(p, m * m) @ W.ravel())

    def kernel_products(self) -> np.ndarray:
        """Return the Frobenius products; O(p^2 m^2)."""
        flat = self.grams.reshape(self.n_kernels, -1)
        return np.asarray(flat @ flat.T)


@dataclass(frozen=True)
class TiledGrams:
    """Base kernels computed again for each product, tile by tile; memory is that of the result and of one tile.

    Centering costs nothing: with H the centering matrix, ``(H K H) v = H (K (H v))`` and
    ``<H K H, W> = <K, H W H>``, so that arguments and results are centered and tiles are not.

    Attributes
    ----------
    family : KernelFamily
    X : ndarray or CSR matrix of shape (m, d)
        Training rows, less the statistics' origin.
    shift : ndarray of shape (p,)
        Subtracted from each base kernel, for its digits.
    scales : ndarray of shape (p,)
        What each base kernel is divided by, once centered.
    centering : Centering
        Other than "center" for base kernels as they are; `shift` is then zero.
    """

    family: KernelFamily
    X: Rows
    shift: np.ndarray
    scales: np.ndarray
    centering: Centering = Centering.CENTER

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return int(self.X.shape[0])

    @property
    def n_kernels(self) -> int:
        """Number of base kernels."""
        return self.family.n_kernels

    def _combination(self, mu: np.ndarray) -> Combination:
        return Combination(self.family, mu / self.scales, self.shift)

    def over_tiles(self, run: Callable[[slice, slice, np.ndarray], Any]) -> Any:
        """Return the sum of what a function returns for each tile on and above the diagonal.

        It is given rows, columns and the scaled base kernels, shape (p, a, b).
        """
        factors = (1.0 / self.scales)[:, None, None]

        def of(rows: slice, columns: slice) -> Any:
            A = self.X[rows]
            K = self.family.tile(A, A if rows == columns else self.X[columns], self.shift)
            K *= factors
            return run(rows, columns, K)

        return over_tiles(of, self.n_rows, None, block_rows_for(self.n_kernels))

    def combine(self, mu: np.ndarray) -> np.ndarray:
        """Return the weighted sum; one pass over the tiles of the base kernels that carry weight."""
        return mirror(self.centering.gram(self._combination(mu).matrix(self.X, self.X, symmetric=True)))

    def products(self, alpha: np.ndarray) -> np.ndarray:
        """Return each kernel times `alpha`; one pass over all tiles."""
        centered = self.centering.less_mean(alpha)

        def of(rows: slice, columns: slice, tile: np.ndarray) -> BlockResults:
            out = {rows.start: (tile @ centered[columns]).swapaxes(0, 1)}
            if rows != columns:
                out[columns.start] = (tile.transpose(0, 2, 1) @ centered[rows]).swapaxes(0, 1)
            return BlockResults(out)

        return self.centering.less_mean(self.over_tiles(of).joined()).swapaxes(0, 1)

    def quadratic_forms(self, alpha: np.ndarray) -> np.ndarray:
        """Return the quadratic forms; one pass over the tiles on and above the diagonal, memory of one of them."""
        centered = self.centering.less_mean(alpha)
        flat = centered.reshape(self.n_rows, -1)

        def of(rows: slice, columns: slice, tile: np.ndarray) -> np.ndarray:
            products = (tile @ flat[columns]).reshape(self.n_kernels, *centered[rows].shape)
            return (1.0 if rows == columns else 2.0) * np.einsum("ki...q,i...q->k...", products, centered[rows])

        return np.asarray(self.over_tiles(of))

    def inner_products(self, W: np.ndarray) -> np.ndarray:
        """Return the Frobenius products with `W`; one pass over all tiles."""
        W = self.centering.gram(W)

        def of(rows: slice, columns: slice, tile: np.ndarray) -> np.ndarray:
            return (1.0 if rows == columns else 2.0) * np.tensordot(tile, W[rows, columns], axes=2)

        return np.asarray(self.over_tiles(of))

    def matvec(self, mu: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return the weighted sum times `v`; one pass over the tiles of the base kernels that carry weight."""
        gram = CombinedGram(self._combination(mu), self.X, Threads())
        return self.centering.less_mean(gram.matvec(self.centering.less_mean(v)))

    def columns(self, mu: np.ndarray, some: np.ndarray) -> np.ndarray:
        """Return columns of the weighted sum before it is centered, shape (m, s); O(m s) kernels."""
        return CombinedGram(self._combination(mu), self.X, Threads()).columns(self.X[some])

    def kernel_products(self) -> np.ndarray:
        """Return the Frobenius products; one pass over all tiles, as in `GramStatistics`."""
        m = self.n_rows
        family, shift, scales = self.family, self.shift, self.scales
        if (divisors := divisors_for(scales)) is not None:
            family, shift, scales = DividedFamily(family, divisors), shift / divisors, scales / divisors
        blocks = RowBlocks.of(np.zeros(m, dtype=np.intp), block_rows_of(family, self.X))
        products, _, _, row_sums = pass_over_tiles(family, self.X, np.zeros((m, 1)), blocks, shift, Threads())
        M, r = products[0, 0], row_sums[0]
        s = r.sum(axis=1)
        if self.centering.subtracts:
            M = M - (2 / m) * (r @ r.T) + np.outer(s, s) / m**2
        return np.asarray(M / np.outer(scales, scales))


@dataclass(frozen=True)
class FeatureGrams:
    """Rank-one base kernels ``K_k = z_k z_k'``: z_k is a feature, centered or not, over the root of its scale.

    Attributes
    ----------
    Z : ndarray or CSR matrix of shape (m, p)
        Features over the roots of their scales; dense ones centered, sparse ones as they are: arguments are centered.
    centering : Centering
        Other than "center" for features as they are.
    """

    Z: Rows
    centering: Centering = Centering.CENTER

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return int(self.Z.shape[0])

    @property
    def n_kernels(self) -> int:
        """Number of base kernels."""
        return int(self.Z.shape[1])

    @cached_property
    def columns(self) -> Rows:
        """The features, sparse ones by columns with ascending rows (CSC), shape (m, p)."""
        if not sparse.issparse(self.Z):
            return self.Z
        Z = self.Z.tocsc(copy=True)
        Z.sum_duplicates()  # also sorts the rows
        return Z

    @cached_property
    def means(self) -> np.ndarray:
        """What centering subtracts of each feature as it is held, shape (p,)."""
        return self.centering.mean(self.columns).ravel()

    @cached_property
    def squares(self) -> np.ndarray:
        """Squared lengths of the features, shape (p,)."""
        Z = self.columns
        squares = Z.multiply(Z).sum(axis=0) if sparse.issparse(Z) else np.einsum("ik,ik->k", Z, Z)
        return np.maximum(np.asarray(squares).ravel() - self.n_rows * self.means**2, 0.0)

    def dense(self) -> np.ndarray:
        """Return the features, centered, as a dense array, shape (m, p)."""
        return self.centering.less_mean(self.Z.toarray() if sparse.issparse(self.Z) else self.Z)

    def scores(self, w: np.ndarray) -> np.ndarray:
        """Return ``Z w``, shape (m,), for w of shape (p,); O(nnz)."""
        return np.asarray(self.columns @ w) - self.means @ w

    def projections(self, alpha: np.ndarray) -> np.ndarray:
        """Return ``z_k . alpha``, shape (p,) or (p, q); O(nnz q)."""
        return np.asarray(self.columns.T @ self.centering.less_mean(alpha))

    def feature_products(self, kernels: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the products of some features with each other, shape (a, a); O(m a^2), less for sparse ones."""
        part, means = self.columns[:, kernels], self.means[kernels]
        products = part.T @ part
        products = products.toarray() if sparse.issparse(products) else products
        return np.asarray(products) - self.n_rows * np.outer(means, means)

    def combine(self, mu: np.ndarray) -> np.ndarray:
        """Return ``Z diag(mu) Z'``, centered; O(m^2 p), for sparse features where both rows have the feature."""
        if not sparse.issparse(self.Z):
            return mirror(self.centering.gram((self.Z * mu) @ self.Z.T))
        K = np.zeros((self.n_rows, self.n_rows))
        Z = self.columns
        add_outer_products(Z.indptr, Z.indices, Z.data, np.asarray(mu, dtype=np.float64), K)
        return mirror(self.centering.gram(mirror(K)))

    def products(self, alpha: np.ndarray) -> np.ndarray:
        """Return each kernel times `alpha`; O(p m q), which is also its memory."""
        return np.einsum("ik,kq->kiq", self.dense(), self.projections(alpha))

    def quadratic_forms(self, alpha: np.ndarray) -> np.ndarray:
        """Return the quadratic forms; O(p m q), for sparse features O(nnz q)."""
        projections = self.projections(alpha.reshape(self.n_rows, -1)).reshape(self.n_kernels, *alpha.shape[1:])
        return np.asarray((projections**2).sum(axis=-1))

    def inner_products(self, W: np.ndarray) -> np.ndarray:
        """Return ``z_k' W z_k``; O(m^2 p), for sparse features over the rows that have them."""
        W = self.centering.gram(W)
        if not sparse.issparse(self.Z):
            return np.einsum("ik,ik->k", self.Z, W @ self.Z)
        out = np.empty(self.n_kernels)
        forms(self.columns.indptr, self.columns.indices, self.columns.data, W, out)
        return out

    def kernel_products(self) -> np.ndarray:
        """Return ``(z_k . z_l)^2``; O(m p^2)."""
        return self.feature_products() ** 2


GramOperator = StackedGrams | TiledGrams | FeatureGrams
"""p scaled base kernels over m training rows, centered or not: all of these have the same properties and methods."""


def gram_operator(
    family: KernelFamily,
    X: Rows,
    *,
    shift: np.ndarray,
    scales: np.ndarray,
    in_memory: int = IN_MEMORY,
    centering: Centering = Centering.CENTER,
) -> GramOperator:
    """Return the scaled base kernels of some rows, centered or not, in the form that suits their kind and number.

    Parameters
    ----------
    family : KernelFamily
        p base kernels.
    X : ndarray or CSR matrix of shape (m, d)
        Training rows, less the statistics' origin. Not modified.
    shift, scales : ndarray of shape (p,)
        Subtracted from each base kernel before it is centered, and what it is divided by after.
    in_memory : int
        Bytes that the matrices may take to be held.
    centering : Centering
        Other than "center", `shift` must be zero, and rows must not have been moved unless no base kernel sees that.

    Returns
    -------
    grams : FeatureGrams, StackedGrams or TiledGrams
        Features for a `FeatureFamily`; matrices where all p fit into `in_memory`; tiles otherwise.

    Notes
    -----
    Matrices are written into their place tile by tile: p of them and nothing more are held.
    """
    if isinstance(family, FeatureFamily):
        Z = family.take(X)
        if sparse.issparse(Z):
            return FeatureGrams(Z.multiply(1 / np.sqrt(scales)[None, :]).tocsr(), centering)
        return FeatureGrams(centering.less_mean(Z) / np.sqrt(scales), centering)
    tiled = TiledGrams(family, X, shift, scales, centering)
    m, p = tiled.n_rows, tiled.n_kernels
    if 8 * p * m * m > in_memory:
        return tiled
    grams = np.empty((p, m, m))

    def write(rows: slice, columns: slice, tile: np.ndarray) -> int:
        grams[:, rows, columns] = tile
        if rows != columns:
            grams[:, columns, rows] = tile.transpose(0, 2, 1)
        return 0

    tiled.over_tiles(write)
    for K in grams:
        if centering.subtracts:
            center_in_place(K)
        mirror(K)
    return StackedGrams(grams, centering)


def entrywise_power(K: np.ndarray, degree: int) -> np.ndarray:
    """Return the power of a matrix entry by entry, freshly allocated; products take a tenth of NumPy's power."""
    P = K.copy()
    for _ in range(degree - 1):
        P *= K
    return P


@compiled(fastmath=FAST)
def add_outer_products(
    starts: np.ndarray, rows: np.ndarray, values: np.ndarray, weights: np.ndarray, K: np.ndarray
) -> None:
    """Add ``sum_k weights_k z_k z_k'`` to the diagonal of `K` and the part above it."""
    for k in range(len(weights)):
        if weights[k] == 0:
            continue
        for a in range(starts[k], starts[k + 1]):
            i, z = rows[a], weights[k] * values[a]
            for b in range(a, starts[k + 1]):
                K[i, rows[b]] += z * values[b]


@compiled(fastmath=FAST)
def forms(starts: np.ndarray, rows: np.ndarray, values: np.ndarray, W: np.ndarray, out: np.ndarray) -> None:
    """Write ``z_k' W z_k`` to `out`, shape (p,), for a symmetric `W`."""
    for k in range(len(out)):
        total = 0.0
        for a in range(starts[k], starts[k + 1]):
            i, s = rows[a], 0.0
            for b in range(a + 1, starts[k + 1]):
                s += W[i, rows[b]] * values[b]
            total += values[a] * (2 * s + W[i, i] * values[a])
        out[k] = total
