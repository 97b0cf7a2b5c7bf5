"""Sums over all entries of the base kernels' Gram matrices, by blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from threading import local
from typing import Any

import numpy as np
from scipy import sparse

from ..compiled.distances import (
    DistanceSide,
    as_distance_sides,
    pack_columns,
    pack_rows,
)
from ..compiled.loops import empty_vectors
from ..families.base import KernelFamily, Rows, fill_seeds, mean_row
from .tiles import TileSums, compile_tiles
from .workers import BlockResults, RowSource, Workers

TILE_BYTES = 2 << 20
"""Memory of one tile's matrices, about a second-level cache."""

MOST_ROWS = 400
"""Largest number of rows of a block if tiles are formed."""

SHIFT_SAMPLE = 64

Pair = tuple[int, int]
"""Positions of two blocks."""


@dataclass(frozen=True)
class RowBlocks:
    """Rows of a data set sorted by fold group and divided into blocks.

    `order` has positions in the data set. Block b has sorted rows
    ``bounds[b]:bounds[b + 1]``, of fold group ``labels[group[b]]``.
    """

    order: np.ndarray
    bounds: np.ndarray
    group: np.ndarray
    labels: tuple[int, ...]
    sample_weight: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        groups: np.ndarray,
        block_rows: int,
        sample_weight: np.ndarray | None = None,
    ) -> RowBlocks:
        """Divide rows into blocks of at most `block_rows`, each from one fold group."""
        labels, codes = np.unique(groups, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        if sample_weight is not None:
            sample_weight = sample_weight[order]
        bounds = [0]
        group_of_block: list[int] = []
        for g, size in enumerate(np.bincount(codes)):
            n_blocks = -(-int(size) // block_rows)
            start = bounds[-1]
            bounds += [start + size * (i + 1) // n_blocks for i in range(n_blocks)]
            group_of_block += [g] * n_blocks
        return cls(
            order,
            np.asarray(bounds),
            np.asarray(group_of_block),
            tuple(labels.tolist()),
            sample_weight,
        )

    def __len__(self) -> int:
        return len(self.group)

    def rows(self, block: int) -> slice:
        return slice(int(self.bounds[block]), int(self.bounds[block + 1]))

    def read(self, X: RowSource, blocks: set[int]) -> dict[int, Rows]:
        """Return the rows of each block; adjacent blocks are read together."""
        start = int(self.bounds[min(blocks)])
        rows = X[start : int(self.bounds[max(blocks) + 1])]
        return {
            b: rows[self.bounds[b] - start : self.bounds[b + 1] - start] for b in blocks
        }

    def super_tiles(self, rows: int) -> Iterator[list[Pair]]:
        """Yield tasks, each a list of pairs i <= j of adjacent row blocks."""
        cuts = [0]
        for b in range(1, len(self)):
            if self.bounds[b + 1] - self.bounds[cuts[-1]] > rows:
                cuts.append(b)
        spans = [
            range(start, stop)
            for start, stop in zip(cuts, [*cuts[1:], len(self)], strict=True)
        ]
        for s, first in enumerate(spans):
            for second in spans[s:]:
                yield [(i, j) for i in first for j in second if i <= j]


def sample_rows(X: Rows) -> Rows:
    return X[np.unique(np.linspace(0, X.shape[0] - 1, SHIFT_SAMPLE).astype(np.intp))]


def choose_shift(family: KernelFamily, X: Rows) -> np.ndarray:
    """Return a constant per base kernel, whose subtraction before centering keeps digits."""
    sample = sample_rows(X)
    less_one = family.tile(sample, sample, np.ones(family.n_kernels)).astype(np.float64)
    mean = less_one.mean(axis=(1, 2))
    spread = less_one.var(axis=(1, 2))
    around_one = spread + mean**2
    around_zero = spread + (mean + 1) ** 2
    shift = np.where(around_one <= around_zero, 1.0, 0.0)
    # Centering would lose two of fifteen digits.
    is_nearly_constant = np.minimum(around_one, around_zero) > 1e4 * spread
    return np.where(is_nearly_constant, 1.0 + mean, shift)


def block_rows_for(n_matrices: int) -> int:
    """Return the number of rows such that `n_matrices` square blocks fit into the cache."""
    return int(np.clip(np.sqrt(TILE_BYTES / (8 * n_matrices)), 128, MOST_ROWS))


def block_rows_of(family: KernelFamily, X: Rows) -> int:
    """Return the number of rows per block, equal for any number of threads."""
    m = X.shape[0]
    rows = min(block_rows_for(family.n_seeds), max(128, -(-m // 4)))
    packed_bytes = _packed_bytes(family, X)
    if not packed_bytes:
        return rows
    # Without tiles, larger blocks are faster, if ten keep all threads busy.
    most_rows_in_memory = (16 << 20) // (8 + packed_bytes)
    return max(rows, min(1600, m // 10, most_rows_in_memory))


def _packed_bytes(family: KernelFamily, X: Rows) -> int:
    """Return the bytes of a packed row; zero without distances."""
    sides = as_distance_sides(family.operands(X[:1], np.zeros(family.n_kernels))) or ()
    return 2 * X.dtype.itemsize * sum(part.rows.shape[1] for part in sides)


def pass_over_tiles(
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    blocks: RowBlocks,
    shift: np.ndarray,
    workers: Workers,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return inner products, traces and row sums of base kernels, in one pass.

    X and Y are sorted by `blocks`. Shapes for F fold groups: products of kernels
    (F, F, p, p), products with the target (F, F, p), traces (F, p), row sums (F, p, m).
    """
    compile_tiles(X.dtype)  # the workers read the compiled code from disk
    family, X = family.mapped_once(X)
    m = X.shape[0]
    row_bytes = _packed_bytes(family, X)
    if not sparse.issparse(X):
        row_bytes += X.shape[1] * X.dtype.itemsize
    scattered = workers.scatter_rows(X, None, np.zeros(X.shape[1]))
    shared = workers.broadcast(
        TilePass(family, scattered, Y, blocks, shift, mean_row(X))
    )
    tasks = list(blocks.super_tiles(workers.super_tile(m, row_bytes)))
    sums: BlockResults = workers.total(TilePass.part, shared, None, tasks)
    products = sums.arrays.pop("products")
    target_products = sums.arrays.pop("target products")
    traces = sums.arrays.pop("traces")
    row_sums = np.empty((len(blocks.labels), family.n_kernels, m))
    for (block, group), sums_of_block in sums.arrays.items():
        row_sums[group, :, blocks.rows(block)] = sums_of_block
    return products, target_products, traces, row_sums


@dataclass(frozen=True)
class TilePass:
    """Data that workers need for a pass over all pairs of rows."""

    family: KernelFamily
    X: RowSource
    Y: np.ndarray
    blocks: RowBlocks
    shift: np.ndarray
    center: np.ndarray | None = None
    _buffers: local = field(default_factory=local, init=False, repr=False)
    """Work arrays per thread, as new memory takes long."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_buffers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _buffers=local())

    def part(self, _: object, pairs: Sequence[Pair]) -> BlockResults:
        """Return sums over the Gram-matrix blocks of `pairs` and their transposes."""
        blocks = self.blocks
        n_groups = len(blocks.labels)
        p = len(self.shift)
        products = np.zeros((n_groups, n_groups, p, p))
        target_products = np.zeros((n_groups, n_groups, p))
        traces = np.zeros((n_groups, p))
        row_sums: dict[Pair, np.ndarray] = {}
        tile_sums = self._tile_sums()
        rows, seeds_of = self._read(pairs)
        for i, j in pairs:
            rows_i = blocks.rows(i)
            rows_j = blocks.rows(j)
            weights_i = weights_j = None
            if blocks.sample_weight is not None:
                weights_i = blocks.sample_weight[rows_i]
                weights_j = blocks.sample_weight[rows_j]
            G, T, sums_of_rows, sums_of_columns = tile_sums.of(
                seeds_of(i, j),
                self.Y[rows_i],
                self.Y[rows_j],
                weights_i,
                weights_j,
                mirrored=i == j,
            )
            g = int(blocks.group[i])
            h = int(blocks.group[j])
            products[g, h] += G
            target_products[g, h] += T
            row_sums[i, h] = row_sums.get((i, h), 0.0) + sums_of_rows
            if i == j:
                counts = (
                    np.ones(rows_i.stop - rows_i.start)
                    if weights_i is None
                    else weights_i
                )
                traces[g] += (
                    self.family.diag(rows[i]) @ counts - self.shift * counts.sum()
                )
            else:
                products[h, g] += G
                target_products[h, g] += T
                row_sums[j, g] = row_sums.get((j, g), 0.0) + sums_of_columns
        return BlockResults(
            {
                "products": products,
                "target products": target_products,
                "traces": traces,
                **row_sums,
            }
        )

    def _tile_sums(self) -> TileSums:
        buffers = self._buffers
        if not hasattr(buffers, "tile_sums"):
            dtype = self.X.dtype
            # None if seeds are not made of distances.
            buffers.sides = as_distance_sides(
                self.family.operands(self.X[:1], self.shift)
            )
            buffers.tile_sums = TileSums(
                self.family.plan(self.shift), dtype, buffers.sides or ()
            )
            if not buffers.sides:
                most_pairs = int(np.diff(self.blocks.bounds).max()) ** 2
                buffers.seeds = empty_vectors(self.family.n_seeds * most_pairs, dtype)
        return buffers.tile_sums

    def _read(
        self, pairs: Sequence[Pair]
    ) -> tuple[dict[int, Rows], Callable[[int, int], Any]]:
        blocks = self.blocks
        dtype = self.X.dtype
        firsts = {i for i, _ in pairs}
        seconds = {j for _, j in pairs}
        rows = blocks.read(self.X, firsts)
        if seconds - firsts:
            rows |= blocks.read(self.X, seconds - firsts)
        if not self._buffers.sides:
            operands = {
                block: self.family.operands(rows_of_block, self.shift, self.center)
                for block, rows_of_block in rows.items()
            }
            return rows, lambda i, j: self._filled_seeds(
                operands[i], operands[j], rows[i].shape[0], rows[j].shape[0]
            )

        def sides(block: int) -> Sequence[DistanceSide]:
            return (
                as_distance_sides(self.family.operands(rows[block], self.shift)) or ()
            )

        left = {block: pack_rows(sides(block), dtype) for block in firsts}
        right = {block: pack_columns(sides(block), dtype) for block in seconds}
        return rows, lambda i, j: (left[i], right[j])

    def _filled_seeds(
        self, left: list[Any], right: list[Any], n_rows: int, n_columns: int
    ) -> np.ndarray:
        shape = (self.family.n_seeds, n_rows, n_columns)
        seeds = np.asarray(self._buffers.seeds[: prod(shape)]).reshape(shape)
        fill_seeds(left, right, seeds)
        return seeds
