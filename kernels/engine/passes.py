"""One pass over tiles: how rows are cut, and what each tile adds to the sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from threading import local
from typing import Any

import numpy as np
from scipy import sparse

from ..compiled.distances import Differences, as_differences, pack_columns, pack_rows
from ..compiled.loops import empty_vectors
from ..families.base import KernelFamily, Rows, fill_seeds, sides_of_tile
from .tiles import TileSums, compile_tiles
from .workers import BlockResults, RowSource, Workers

TILE_BYTES, MOST_ROWS = 2 << 20, 400
"""Size of the matrices of one tile, and its rows, at most: about a second-level cache, and more than a tile costs."""

FEWEST_ROWS, FEWEST_BLOCKS = 128, 4
"""Rows of a block of few rows, at least, and blocks of more."""

LARGEST, LAID_BYTES, MANY_BLOCKS = 1600, 16 << 20, 10
"""Rows of a tile of which no matrix is held, at most, and their bytes as they are laid out, and how many blocks of such
tiles keep some threads busy to the end."""

SHIFT_SAMPLE = 64
"""Rows of the sample that chooses the constant to subtract from each kernel."""

SHIFT_LOSS = 1e4
"""How many times its spread the mean square of a kernel may be: two digits of rounding, of which there are fifteen."""

Pair = tuple[int, int]
"""Positions of two blocks."""


@dataclass(frozen=True)
class RowBlocks:
    """The rows of a data set sorted by fold group and cut into blocks; no block straddles two groups.

    Attributes
    ----------
    order : ndarray of shape (m,)
        Position in the data set of each sorted row; stable, so a group keeps its rows' order.
    bounds : ndarray of shape (n_blocks + 1,)
        Block b holds the sorted rows ``bounds[b]:bounds[b + 1]``.
    group : ndarray of shape (n_blocks,)
        Position in `labels` of the group of each block.
    labels : tuple of int
        The distinct fold groups, ascending.
    sample_weight : ndarray of shape (m,) or None
        Weight of each sorted row; None where each counts once.
    """

    order: np.ndarray
    bounds: np.ndarray
    group: np.ndarray
    labels: tuple[int, ...]
    sample_weight: np.ndarray | None = None

    @classmethod
    def of(cls, groups: np.ndarray, block_rows: int, sample_weight: np.ndarray | None = None) -> RowBlocks:
        """Return the blocks of at most `block_rows` rows for the fold group, and the weight, of each row."""
        labels, codes = np.unique(groups, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        bounds, group = [0], []
        for g, size in enumerate(np.bincount(codes, minlength=len(labels))):
            pieces = -(-int(size) // block_rows)
            start = bounds[-1]
            bounds += [start + size * (i + 1) // pieces for i in range(pieces)]
            group += [g] * pieces
        return cls(
            order,
            np.asarray(bounds),
            np.asarray(group),
            tuple(int(label) for label in labels),
            None if sample_weight is None else sample_weight[order],
        )

    def __len__(self) -> int:
        return len(self.group)

    def rows(self, block: int) -> slice:
        """Return the sorted rows of a block."""
        return slice(int(self.bounds[block]), int(self.bounds[block + 1]))

    def read(self, X: RowSource, span: set[int]) -> dict[int, Rows]:
        """Return the rows of each block of a run, which are read at once."""
        start = int(self.bounds[min(span)])
        held = X[start : int(self.bounds[max(span) + 1])]
        return {b: held[self.bounds[b] - start : self.bounds[b + 1] - start] for b in span}

    def super_tiles(self, rows: int) -> Iterator[list[Pair]]:
        """Yield lists of block pairs (i <= j); together they hold every unordered pair once.

        A list covers about `rows` by `rows` pairs of rows: the unit of work of one distributed task.
        """
        cuts = [0]
        for b in range(1, len(self)):
            if self.bounds[b + 1] - self.bounds[cuts[-1]] > rows:
                cuts.append(b)
        spans = [range(start, stop) for start, stop in zip(cuts, [*cuts[1:], len(self)], strict=True)]
        for s, first in enumerate(spans):
            for second in spans[s:]:
                yield [(i, j) for i in first for j in second if i <= j]


def sample_rows(X: Rows) -> Rows:
    """Return a few rows spread over `X`, whose kernels show the size of all."""
    return X[np.unique(np.linspace(0, X.shape[0] - 1, SHIFT_SAMPLE).astype(np.intp))]


def choose_shift(family: KernelFamily, X: Rows) -> np.ndarray:
    """Return the constant to subtract from each base kernel, from its values over a few rows spread over `X`.

    Nothing that is centered depends on it. It is the value of zero or one around which a kernel varies least, and the
    kernel's mean where that is much better: where a nearly constant kernel would lose its digits to the cancellations
    of the centering identities. Around one, Gaussians are formed without any rounding of their own.
    """
    sample = sample_rows(X)
    less_one = family.tile(sample, sample, np.ones(family.n_kernels)).astype(np.float64)
    mean = less_one.mean(axis=(1, 2))
    spread = less_one.var(axis=(1, 2))
    around_one, around_zero = spread + mean**2, spread + (mean + 1) ** 2
    shift = np.where(around_one <= around_zero, 1.0, 0.0)
    return np.where(np.minimum(around_one, around_zero) > SHIFT_LOSS * spread, 1.0 + mean, shift)


def block_rows_for(n_matrices: int) -> int:
    """Return the number of rows of a block for which that many matrices of a tile fit a core's cache."""
    return int(np.clip(np.sqrt(TILE_BYTES / (8 * n_matrices)), 128, MOST_ROWS))


def block_rows_of(family: KernelFamily, X: Rows) -> int:
    """Return the number of rows of a block of a pass; it follows from the rows, and not from the threads."""
    m = X.shape[0]
    rows = min(block_rows_for(family.n_seeds), max(FEWEST_ROWS, -(-m // FEWEST_BLOCKS)))
    if not (laid_bytes := _laid_bytes(family, X)):
        return rows
    return max(rows, min(LARGEST, m // MANY_BLOCKS, LAID_BYTES // (8 + laid_bytes)))


def _laid_bytes(family: KernelFamily, X: Rows) -> int:
    """Return what a row takes where it is laid out as both sides of tiles, once for each part of a family."""
    of = as_differences(family.operands(X[:1], np.zeros(family.n_kernels))) or ()
    return 2 * X.dtype.itemsize * sum(one.rows.shape[1] for one in of)


def pass_over_tiles(
    family: KernelFamily, X: Rows, Y: np.ndarray, blocks: RowBlocks, shift: np.ndarray, workers: Workers
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the sums over all tiles.

    Where rows have weights, a row of weight w counts as w copies in all sums over it: sums over pairs count each by the
    weights of both rows, row sums each column by its own.

    Parameters
    ----------
    family : KernelFamily
        p base kernels.
    X : ndarray or CSR matrix of shape (m, d)
        Rows sorted as ``X[blocks.order]``, float64 or float32: tiles have that precision, sums are float64. Not
        modified.
    Y : ndarray of shape (m, q)
        Targets in the same order. Not modified.
    blocks : RowBlocks
        The cut of the rows.
    shift : ndarray of shape (p,)
        Constants to subtract.
    workers : Workers
        Who does it.

    Returns
    -------
    products : ndarray of shape (F, F, p, p)
        ``<K_k, K_l>`` over the rows of one fold group and the columns of another.
    target_products : ndarray of shape (F, F, p)
        ``sum_ij K_k(i, j) y_i . y_j`` over the same blocks.
    traces : ndarray of shape (F, p)
    row_sums : ndarray of shape (F, p, m)
        Sums of each kernel's rows over the columns of a fold group.

    Notes
    -----
    A pair of rows costs about ``3 d + p (p + 1) + 8 p`` flops and, for Gaussians on a power-of-two grid, one
    exponential. Memory is that of the seeds of one tile, or of a run of rows for each part of the family, a worker.
    """
    compile_tiles(X.dtype)  # once here: workers in other processes find it on disk
    family, X = family.mapped_once(X)
    m = X.shape[0]
    row_bytes = _laid_bytes(family, X)
    if not sparse.issparse(X):
        row_bytes += X.shape[1] * X.dtype.itemsize
    scattered = workers.scatter_rows(X, None, np.zeros(X.shape[1]))
    shared = workers.broadcast(TilePass(family, scattered, Y, blocks, shift))
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
    """What every task of a pass needs, see `pass_over_tiles`."""

    family: KernelFamily
    X: RowSource
    Y: np.ndarray
    blocks: RowBlocks
    shift: np.ndarray

    @cached_property
    def _places(self) -> local:
        """Places that each thread works at, for all its tasks: fresh memory for each would cost as much as the sums."""
        return local()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_places"}

    def part(self, _: object, pairs: Sequence[Pair]) -> BlockResults:
        """Return the sums over the tiles of some block pairs, the first not above the second.

        A pair off the diagonal also represents its transpose. The firsts and the seconds are a run of rows each, which
        is read once. Row sums are those of the blocks and fold groups that the tiles touch alone, so that the result
        stays small.
        """
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
                seeds_of(i, j), self.Y[rows_i], self.Y[rows_j], weights_i, weights_j, mirrored=i == j
            )
            g = int(blocks.group[i])
            h = int(blocks.group[j])
            products[g, h] += G
            target_products[g, h] += T
            row_sums[i, h] = row_sums.get((i, h), 0.0) + sums_of_rows
            if i == j:
                counts = np.ones(rows_i.stop - rows_i.start) if weights_i is None else weights_i
                traces[g] += self.family.diag(rows[i]) @ counts - self.shift * counts.sum()
            else:
                products[h, g] += G
                target_products[h, g] += T
                row_sums[j, g] = row_sums.get((j, g), 0.0) + sums_of_columns
        return BlockResults({"products": products, "target products": target_products, "traces": traces, **row_sums})

    def _tile_sums(self) -> TileSums:
        """Return what sums up tiles in this thread, with its places."""
        places = self._places
        if not hasattr(places, "tile_sums"):
            dtype = self.X.dtype
            # None if seeds are not made of distances.
            places.differences = as_differences(self.family.operands(self.X[:1], self.shift))
            places.tile_sums = TileSums(self.family.plan(self.shift), dtype, places.differences or ())
            most_pairs = int(np.diff(self.blocks.bounds).max()) ** 2
            n_seeds = 0 if places.differences else self.family.n_seeds * most_pairs
            places.seeds = empty_vectors(n_seeds, dtype)
        return places.tile_sums

    def _read(self, pairs: Sequence[Pair]) -> tuple[dict[int, Rows], Callable[[int, int], Any]]:
        """Return the rows of each block, and a function that returns the seeds of a pair, for `TileSums.of`."""
        blocks = self.blocks
        dtype = self.X.dtype
        firsts = {i for i, _ in pairs}
        seconds = {j for _, j in pairs}
        rows = blocks.read(self.X, firsts)
        if seconds - firsts:
            rows |= blocks.read(self.X, seconds - firsts)
        if not self._places.differences:
            return rows, lambda i, j: self._filled_seeds(rows[i], rows[j])

        def differences(block: int) -> Sequence[Differences]:
            return as_differences(self.family.operands(rows[block], self.shift)) or ()

        left = {block: pack_rows(differences(block), dtype) for block in firsts}
        right = {block: pack_columns(differences(block), dtype) for block in seconds}
        return rows, lambda i, j: (left[i], right[j])

    def _filled_seeds(self, A: Rows, B: Rows) -> np.ndarray:
        """Return the seeds of a tile that a family fills, in the place of this thread."""
        shape = (self.family.n_seeds, A.shape[0], B.shape[0])
        seeds = np.asarray(self._places.seeds[: prod(shape)]).reshape(shape)
        fill_seeds(*sides_of_tile(self.family.operands, A, B, self.shift), seeds)
        return seeds
