"""Products with scaled base kernels: stored, recomputed by blocks, or rank-one of features."""

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
"""Memory limit of stored base-kernel matrices, in bytes."""

LARGEST_MATRIX = 2**30
"""Memory limit of a Gram matrix that learners form, in bytes."""


def gram_fits_in_memory(n_rows: int) -> bool:
    """Return whether the Gram matrix of `n_rows` rows is small enough to be formed."""
    return 8 * n_rows**2 <= LARGEST_MATRIX


@dataclass(frozen=True)
class StackedGrams:
    """Products with stored Gram matrices of the base kernels, symmetric, shape (p, m, m)."""

    grams: np.ndarray
    centering: Centering = Centering.CENTER

    @property
    def n_rows(self) -> int:
        return self.grams.shape[1]

    @property
    def n_kernels(self) -> int:
        return len(self.grams)

    def combine(self, mu: np.ndarray) -> np.ndarray:
        """Return the sum of the kernels with weights mu; O(p m^2)."""
        p, m, _ = self.grams.shape
        active = np.flatnonzero(mu)
        if len(active) == p:
            # BLAS may round mirrored entries differently.
            return mirror(np.asarray(mu @ self.grams.reshape(p, m * m)).reshape(m, m))
        K = np.zeros((m, m))
        for k in active:
            K += mu[k] * self.grams[k]
        return K

    def products(self, alpha: np.ndarray) -> np.ndarray:
        """Return the product of each kernel with `alpha`, shape (p, m, q)."""
        p, m, _ = self.grams.shape
        return np.asarray(self.grams.reshape(p * m, m) @ alpha).reshape(p, m, -1)

    def quadratic_forms(self, alpha: np.ndarray) -> np.ndarray:
        """Return ``alpha' K_k alpha`` for each kernel, shape (p, ...)."""
        products = self.products(alpha.reshape(self.n_rows, -1)).reshape(
            self.n_kernels, *alpha.shape
        )
        return np.einsum("ki...q,i...q->k...", products, alpha)

    def inner_products(self, W: np.ndarray) -> np.ndarray:
        """Return the Frobenius products of the kernels with `W`, shape (p,)."""
        p, m, _ = self.grams.shape
        return np.asarray(self.grams.reshape(p, m * m) @ W.ravel())

    def kernel_products(self) -> np.ndarray:
        """Return the Frobenius products of all pairs of kernels, shape (p, p)."""
        flat = self.grams.reshape(self.n_kernels, -1)
        return np.asarray(flat @ flat.T)


@dataclass(frozen=True)
class TiledGrams:
    """Products with Gram matrices of base kernels that are recomputed each time.

    Arguments and results are centered instead of tiles: ``(H K H) v = H (K (H v))``. X
    are rows minus the origin; `scales` divide the centered base kernels.
    """

    family: KernelFamily
    X: Rows
    shift: np.ndarray
    scales: np.ndarray
    centering: Centering = Centering.CENTER

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_kernels(self) -> int:
        return self.family.n_kernels

    def _combination(self, mu: np.ndarray) -> Combination:
        return Combination(self.family, mu / self.scales, self.shift)

    def sum_over_tiles(
        self, function: Callable[[slice, slice, np.ndarray], Any]
    ) -> Any:
        """Return the sum of ``function(rows, columns, tile)`` over blocks of the upper triangle."""
        factors = (1.0 / self.scales)[:, None, None]

        def apply_to_tile(rows: slice, columns: slice) -> Any:
            A = self.X[rows]
            B = A if rows == columns else self.X[columns]
            tile = self.family.tile(A, B, self.shift)
            tile *= factors
            return function(rows, columns, tile)

        return over_tiles(
            apply_to_tile, self.n_rows, None, block_rows_for(self.n_kernels)
        )

    def combine(self, mu: np.ndarray) -> np.ndarray:
        K = self._combination(mu).matrix(self.X, self.X, symmetric=True)
        return mirror(self.centering.gram(K))

    def products(self, alpha: np.ndarray) -> np.ndarray:
        centered = self.centering.less_mean(alpha)

        def products_of_tile(
            rows: slice, columns: slice, tile: np.ndarray
        ) -> BlockResults:
            products = {rows.start: (tile @ centered[columns]).swapaxes(0, 1)}
            if rows != columns:
                products[columns.start] = (
                    tile.transpose(0, 2, 1) @ centered[rows]
                ).swapaxes(0, 1)
            return BlockResults(products)

        products = self.sum_over_tiles(products_of_tile).joined()
        return self.centering.less_mean(products).swapaxes(0, 1)

    def quadratic_forms(self, alpha: np.ndarray) -> np.ndarray:
        centered = self.centering.less_mean(alpha)
        flat = centered.reshape(self.n_rows, -1)

        def forms_of_tile(rows: slice, columns: slice, tile: np.ndarray) -> np.ndarray:
            products = (tile @ flat[columns]).reshape(
                self.n_kernels, *centered[rows].shape
            )
            return _multiplicity(rows, columns) * np.einsum(
                "ki...q,i...q->k...", products, centered[rows]
            )

        return np.asarray(self.sum_over_tiles(forms_of_tile))

    def inner_products(self, W: np.ndarray) -> np.ndarray:
        W = self.centering.gram(W)

        def products_of_tile(
            rows: slice, columns: slice, tile: np.ndarray
        ) -> np.ndarray:
            return _multiplicity(rows, columns) * np.tensordot(
                tile, W[rows, columns], axes=2
            )

        return np.asarray(self.sum_over_tiles(products_of_tile))

    def matvec(self, mu: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return the weighted sum of the kernels times `v`."""
        gram = CombinedGram(self._combination(mu), self.X, Threads())
        return self.centering.less_mean(gram.matvec(self.centering.less_mean(v)))

    def columns(self, mu: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return columns of the weighted sum of kernels, uncentered, shape (m, s)."""
        return CombinedGram(self._combination(mu), self.X, Threads()).columns(
            self.X[positions]
        )

    def kernel_products(self) -> np.ndarray:
        m = self.n_rows
        family = self.family
        shift = self.shift
        scales = self.scales
        divisors = divisors_for(scales)
        if divisors is not None:
            family = DividedFamily(family, divisors)
            shift = shift / divisors
            scales = scales / divisors
        blocks = RowBlocks.of(np.zeros(m, dtype=np.intp), block_rows_of(family, self.X))
        products, _, _, row_sums = pass_over_tiles(
            family, self.X, np.zeros((m, 1)), blocks, shift, Threads()
        )
        M = products[0, 0]
        r = row_sums[0]
        s = r.sum(axis=1)
        if self.centering.subtracts:
            M = M - (2 / m) * (r @ r.T) + np.outer(s, s) / m**2
        return np.asarray(M / np.outer(scales, scales))


def _multiplicity(rows: slice, columns: slice) -> float:
    return 1.0 if rows == columns else 2.0


@dataclass(frozen=True)
class FeatureGrams:
    """Products with rank-one base kernels ``K_k = z_k z_k'`` of features z_k.

    Z is divided by the roots of the scales, and centered if dense.
    """

    Z: Rows
    centering: Centering = Centering.CENTER

    @property
    def n_rows(self) -> int:
        return int(self.Z.shape[0])

    @property
    def n_kernels(self) -> int:
        return int(self.Z.shape[1])

    @cached_property
    def columns(self) -> Rows:
        """Features, in CSC format if sparse, shape (m, p)."""
        if not sparse.issparse(self.Z):
            return self.Z
        Z = self.Z.tocsc(copy=True)
        Z.sum_duplicates()  # also sorts the rows
        return Z

    @cached_property
    def _features_by_row(self) -> tuple[np.ndarray, np.ndarray]:
        """Starts of the rows of sparse Z, and the features of their entries."""
        by_row = self.columns.tocsr()
        return by_row.indptr, by_row.indices

    @cached_property
    def means(self) -> np.ndarray:
        return self.centering.mean(self.columns).ravel()

    @cached_property
    def squares(self) -> np.ndarray:
        """Squared norms of the features, shape (p,)."""
        Z = self.columns
        if sparse.issparse(Z):
            squares = Z.multiply(Z).sum(axis=0)
        else:
            squares = np.einsum("ik,ik->k", Z, Z)
        return np.maximum(
            np.asarray(squares).ravel() - self.n_rows * self.means**2, 0.0
        )

    def dense(self) -> np.ndarray:
        """Return the centered features as a dense array."""
        Z = self.Z.toarray() if sparse.issparse(self.Z) else self.Z
        return self.centering.less_mean(Z)

    @cached_property
    def in_basis(self) -> tuple[FeatureGrams, np.ndarray]:
        """Features in a basis of their span, and the orthonormal basis, shape (m, p)."""
        basis, coordinates = np.linalg.qr(self.dense())
        return FeatureGrams(coordinates, Centering.NONE), basis

    def scores(self, w: np.ndarray) -> np.ndarray:
        """Return the linear function ``Z w`` at all rows; O(nnz)."""
        return np.asarray(self.columns @ w) - self.means @ w

    def projections(self, alpha: np.ndarray) -> np.ndarray:
        """Return ``z_k . alpha`` for each feature, (p,) or (p, q); O(nnz q)."""
        return np.asarray(self.columns.T @ self.centering.less_mean(alpha))

    def feature_products(self, kernels: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return inner products of all pairs of selected features, shape (a, a)."""
        Z = self.columns[:, kernels]
        means = self.means[kernels]
        products = Z.T @ Z
        if sparse.issparse(products):
            products = products.toarray()
        return np.asarray(products) - self.n_rows * np.outer(means, means)

    def combine(self, mu: np.ndarray) -> np.ndarray:
        """Return the centered sum of kernels with weights mu, ``Z diag(mu) Z'``."""
        if not sparse.issparse(self.Z):
            return mirror(self.centering.gram((self.Z * mu) @ self.Z.T))
        K = np.zeros((self.n_rows, self.n_rows))
        Z = self.columns
        row_starts, features = self._features_by_row
        add_outer_products(
            row_starts,
            features,
            Z.indptr,
            Z.indices,
            Z.data,
            np.asarray(mu, dtype=np.float64),
            K,
        )
        K = mirror(K)
        if not self.centering.subtracts:
            return K
        return mirror(self.centering.gram(K))

    def products(self, alpha: np.ndarray) -> np.ndarray:
        return np.einsum("ik,kq->kiq", self.dense(), self.projections(alpha))

    def quadratic_forms(self, alpha: np.ndarray) -> np.ndarray:
        projections = self.projections(alpha.reshape(self.n_rows, -1))
        projections = projections.reshape(self.n_kernels, *alpha.shape[1:])
        return np.asarray((projections**2).sum(axis=-1))

    def inner_products(self, W: np.ndarray) -> np.ndarray:
        W = self.centering.gram(W)
        if not sparse.issparse(self.Z):
            return np.einsum("ik,ik->k", self.Z, W @ self.Z)
        Z = self.columns
        products = np.empty(self.n_kernels)
        write_forms(Z.indptr, Z.indices, Z.data, W, products)
        return products

    def kernel_products(self) -> np.ndarray:
        return self.feature_products() ** 2


GramOperator = StackedGrams | TiledGrams | FeatureGrams
"""An operator of p scaled base kernels; all have the same methods."""


def gram_operator(
    family: KernelFamily,
    X: Rows,
    *,
    shift: np.ndarray,
    scales: np.ndarray,
    in_memory: int = IN_MEMORY,
    centering: Centering = Centering.CENTER,
) -> GramOperator:
    """Return an object for products with the scaled base kernels over training rows.

    Matrices are stored if they fit `in_memory` bytes. X are rows minus the origin.
    """
    if isinstance(family, FeatureFamily):
        Z = family.take(X)
        if sparse.issparse(Z):
            return FeatureGrams(
                Z.multiply(1 / np.sqrt(scales)[None, :]).tocsr(), centering
            )
        return FeatureGrams(centering.less_mean(Z) / np.sqrt(scales), centering)
    tiled = TiledGrams(family, X, shift, scales, centering)
    m = tiled.n_rows
    p = tiled.n_kernels
    if 8 * p * m * m > in_memory:
        return tiled
    grams = np.empty((p, m, m))

    def write_tile(rows: slice, columns: slice, tile: np.ndarray) -> int:
        grams[:, rows, columns] = tile
        if rows != columns:
            grams[:, columns, rows] = tile.transpose(0, 2, 1)
        return 0

    tiled.sum_over_tiles(write_tile)
    for K in grams:
        if centering.subtracts:
            center_in_place(K)
        mirror(K)
    return StackedGrams(grams, centering)


def entrywise_power(K: np.ndarray, degree: int) -> np.ndarray:
    """Raise each entry to the power `degree`, ten times as fast as NumPy."""
    P = K.copy()
    for _ in range(degree - 1):
        P *= K
    return P


@compiled(fastmath=FAST)
def add_outer_products(
    row_starts: np.ndarray,
    features: np.ndarray,
    starts: np.ndarray,
    rows: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    K: np.ndarray,
) -> None:
    """Add ``sum_k weights_k z_k z_k'`` of sparse features to the upper triangle.

    `row_starts` and `features` are in CSR format; `starts`, `rows` and `values` in CSC
    format, with sorted rows.
    """
    next_entries = starts[:-1].copy()
    # A row of K stays in the cache
    for i in range(len(K)):
        for position in range(row_starts[i], row_starts[i + 1]):
            k = features[position]
            a = next_entries[k]
            next_entries[k] = a + 1
            if weights[k] == 0:
                continue
            z = weights[k] * values[a]
            for b in range(a, starts[k + 1]):
                K[i, rows[b]] += z * values[b]


@compiled(fastmath=FAST)
def write_forms(
    starts: np.ndarray,
    rows: np.ndarray,
    values: np.ndarray,
    W: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write ``z_k' W z_k``, W symmetric, of each CSC feature into `out`."""
    for k in range(len(out)):
        total = 0.0
        for a in range(starts[k], starts[k + 1]):
            i = rows[a]
            above = 0.0
            for b in range(a + 1, starts[k + 1]):
                above += W[i, rows[b]] * values[b]
            total += values[a] * (2 * above + W[i, i] * values[a])
        out[k] = total
