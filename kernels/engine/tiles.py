"""Compiled sums over blocks of base kernels, which follow from seed matrices.

A *strip* has some columns of a few rows of a tile: vectors of each kernel and of the
target kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ..compiled.cache import compiled
from ..compiled.distances import DistanceSide, Parts, make_seeds, rounded_up
from ..compiled.loops import (
    CHAIN_LENGTHS,
    LONGEST_RUN,
    add_rectangle,
    add_triangle,
    empty_vectors,
    lanes,
    make_kernels,
    make_target,
)
from ..compiled.plain import ROWS as SEED_ROWS
from ..families.base import TilePlan

STRIP_BYTES = 20 << 10
"""Memory of a strip, which fits into the first-level cache."""

ROWS = 2

LEAST_STEPS = 8
"""Smallest number of vectors of columns of a strip."""


def chains(
    plan: TilePlan, lengths: Sequence[int] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Arrange base kernels in chains, each computed from the previous one's square.

    The first array, shape (p,), has the order of computation. The second, shape (n, 4),
    has per chain its first position, length, source (a seed, or -1 - r for row r), and
    row that stores the next value. `lengths` are descending sizes of pieces.
    """
    doubles_of: dict[int, list[int]] = {}
    starts: list[tuple[int, int]] = []
    for k, seed in plan.order.tolist():
        if seed >= 0:
            starts.append((k, seed))
        else:
            doubles_of.setdefault(int(plan.half[k]), []).append(k)
    kernels: list[int] = []
    groups: list[tuple[int, int, int, int]] = []
    n_rows = 1  # the first row is for unused values
    while starts:
        k, source = starts.pop(0)
        chain = [k]
        while len(doubles_of.get(chain[-1], [])) == 1:
            chain += doubles_of[chain[-1]]
        branches = doubles_of.get(chain[-1], [])
        while chain:
            length = next((n for n in lengths if n <= len(chain)), len(chain))
            piece = chain[:length]
            chain = chain[length:]
            stored_row = 0
            if chain or branches:
                stored_row = n_rows
                n_rows += 1
            groups.append((len(kernels), length, source, stored_row))
            kernels += piece
            source = -1 - stored_row
        starts += [(k, source) for k in branches]
    return np.array(kernels), np.array(groups)


class TileSums:
    """Sums over the entries of base-kernel blocks, computed in reusable work arrays.

    Without `sides`, tiles have seeds in place of rows.
    """

    def __init__(
        self, plan: TilePlan, dtype: np.dtype, sides: Sequence[DistanceSide] = ()
    ) -> None:
        self.dtype = dtype
        self.width = lanes(dtype)
        self.p = len(plan.half)
        kernels, groups = chains(plan, CHAIN_LENGTHS)
        self._order = np.argsort(kernels)
        self._sums = np.empty(0)
        parts = Parts.of(sides, dtype)
        bytes_of_vector = ROWS * (self.p + 2) * self.width * dtype.itemsize
        panel = parts.across // self.width
        vectors = max(LEAST_STEPS, STRIP_BYTES // bytes_of_vector) // panel * panel
        self._layout = KernelLayout(
            parts, groups, plan.offset[kernels].astype(dtype), runs(self.p), vectors
        )
        self._seeds = empty_vectors(
            SEED_ROWS * vectors * self.width * (1 + plan.n_seeds), dtype
        )
        self._strip = empty_vectors(vectors * ROWS * (self.p + 2) * self.width, dtype)
        self._stored = empty_vectors(
            (1 + groups[:, 3].max()) * vectors * self.width, dtype
        )

    def of(
        self,
        seeds: np.ndarray | tuple[np.ndarray, np.ndarray],
        U: np.ndarray,
        V: np.ndarray,
        row_weights: np.ndarray | None,
        column_weights: np.ndarray | None,
        mirrored: bool = False,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return a block's inner products (with kernels, target), row sums and column sums.

        `seeds` has shape (n_seeds, a, b) and a spare vector, or is a pair of packed
        rows. With `mirrored`, columns are rows. Results have shapes (p, p), (p,), (p,
        a), (p, b).
        """
        a = len(U)
        b, n_outputs = V.shape
        p = self.p
        width = self.width
        layout = self._layout
        if isinstance(seeds, tuple):
            left, right = seeds
            flat_seeds = self._seeds
        else:
            left = right = np.empty(0, dtype=self.dtype)
            flat_seeds = seeds.reshape(-1)
            layout = layout._replace(parts=Parts.of((), self.dtype))
        padded = rounded_up(b, width)
        padded_V = np.zeros((n_outputs, padded), dtype=self.dtype)
        padded_V[:, :b] = V.T
        row_roots = np.ones(a, dtype=self.dtype)
        column_roots = np.ones(padded + width, dtype=self.dtype)
        if row_weights is not None and column_weights is not None:
            row_roots = np.sqrt(row_weights).astype(self.dtype)
            column_roots[:b] = np.sqrt(column_weights)
        G, T, rows, columns = self._zeros(
            p * p * width, p * width, a * p * width, padded * p
        )
        tile = Tile(
            a=a,
            b=b,
            seeds=flat_seeds,
            A=left,
            B=right,
            U=U.astype(self.dtype).reshape(-1),
            V=padded_V.reshape(-1),
            n_outputs=n_outputs,
            weighted=int(row_weights is not None),
            row_roots=row_roots,
            column_roots=column_roots,
            strip=self._strip,
            stored=self._stored,
            G=G,
            T=T,
            rows=rows,
        )
        if mirrored:
            self._add_mirrored_tile(tile, layout, columns)
        else:
            firsts = range(0, b, layout.vectors * width)
            add_tile(
                np.array([(first, 0, a, first * p) for first in firsts]),
                tile,
                layout,
                columns,
            )
        products, target_products, row_sums, column_sums = self._reduced(tile, columns)
        if row_weights is not None:
            row_sums = row_sums / row_roots
            column_sums = column_sums / column_roots[:b]
        if mirrored:
            row_sums = column_sums = row_sums + column_sums
        return products, target_products, row_sums, column_sums

    def _add_mirrored_tile(
        self, tile: Tile, layout: KernelLayout, columns: np.ndarray
    ) -> None:
        strip_columns = layout.vectors * self.width
        firsts = range(0, tile.b, strip_columns)
        add_tile(
            np.array([(first, 0, first, first * self.p) for first in firsts]),
            tile,
            layout,
            columns,
        )
        tile.G[:] *= 2
        tile.T[:] *= 2
        on_diagonal = np.array(
            [(first, first, min(first + strip_columns, tile.a), 0) for first in firsts]
        )
        add_tile(on_diagonal, tile, layout, np.zeros(strip_columns * self.p))

    def _reduced(
        self, tile: Tile, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return sums over vectors, in the order of the family."""
        p = self.p
        width = self.width
        order = self._order
        ones = np.ones(width)
        lower = (tile.G.reshape(-1, width) @ ones).reshape(p, p)
        products = np.where(np.tri(p, dtype=bool), lower, lower.T)[np.ix_(order, order)]
        target_products = (tile.T.reshape(p, width) @ ones)[order]
        row_sums = (tile.rows.reshape(-1, width) @ ones).reshape(tile.a, p).T[order]
        column_sums = (
            columns.reshape(-1, p, width)
            .transpose(1, 0, 2)[order]
            .reshape(p, -1)[:, : tile.b]
        )
        return products, target_products, row_sums, column_sums

    def _zeros(self, *sizes: int) -> list[np.ndarray]:
        ends = list(accumulate(sizes))
        if ends[-1] > len(self._sums):
            self._sums = np.empty(ends[-1])
        self._sums[: ends[-1]] = 0
        return [
            self._sums[end - size : end] for end, size in zip(ends, sizes, strict=True)
        ]


def compile_tiles(dtype: np.dtype) -> None:
    """Compile the loops over Gram-matrix blocks for a dtype, unless cached on disk."""
    targets = np.ones((1, 1), dtype=dtype)
    seeds = empty_vectors(1, dtype)[:1].reshape(1, 1, 1)
    TileSums(TilePlan.identity(1), dtype).of(seeds, targets, targets, None, None)


class KernelLayout(NamedTuple):
    """Plan by which compiled code computes blocks of kernels and inner products.

    `groups` are chains, and `offsets` in their order.
    """

    parts: Parts
    groups: np.ndarray
    offsets: np.ndarray
    cuts: np.ndarray
    vectors: int


class Tile(NamedTuple):
    """Flat arrays for one Gram-matrix block: rows, columns, work arrays, and sums.

    A and B are packed rows; targets U are by rows, V by outputs. Sums G, shape (p, p,
    width), are below the diagonal; T is (p, width), `rows` (a, p, width).
    """

    a: int
    b: int
    seeds: np.ndarray
    A: np.ndarray
    B: np.ndarray
    U: np.ndarray
    V: np.ndarray
    n_outputs: int
    weighted: int
    row_roots: np.ndarray
    column_roots: np.ndarray
    strip: np.ndarray
    stored: np.ndarray
    G: np.ndarray
    T: np.ndarray
    rows: np.ndarray


@compiled()
def add_tile(
    strips: np.ndarray, tile: Tile, layout: KernelLayout, columns: np.ndarray
) -> None:
    """Add inner products and row sums of kernels to `tile`, and column sums to `columns`.

    A strip is its first column, first and last row, and the start of its column sums;
    `columns` has shape (b / width, p, width), flat.
    """
    (
        a,
        b,
        seeds,
        A,
        B,
        U,
        V,
        n_outputs,
        weighted,
        row_roots,
        column_roots,
        strip,
        stored,
        G,
        T,
        rows,
    ) = tile
    parts, groups, offsets, cuts, vectors = layout
    width = parts.width
    panel_rows = parts.across
    p = len(offsets)
    n_runs = len(cuts) - 1
    padded = -(-b // width) * width
    stride = (p + 1 + weighted) * width  # distance between rows of the strip
    makes_seeds = len(parts.d) > 0
    n_seeded = 0
    right = -(-b // panel_rows) * panel_rows
    for s in range(len(strips)):
        column, start, stop, columns_at = strips[s]
        n = min(vectors, (padded - column) // width)
        n_columns = min(n * width, b - column)
        panel = column // panel_rows
        panels = -(-n * width // panel_rows)
        seed_stride = panels * panel_rows
        for top in range(start, stop, ROWS):
            height = min(ROWS, stop - top)
            step = height * stride
            seeded_row = (top - start) % SEED_ROWS
            if makes_seeds and seeded_row == 0:
                n_seeded = min(SEED_ROWS, stop - top)
                make_seeds(A, a, top, n_seeded, B, right, panel, panels, parts, seeds)
            for r in range(height):
                i = top + r
                for g in range(len(groups)):
                    slot, length, source, stored_row = groups[g]
                    if source >= 0 and makes_seeds:
                        first_kernel = (
                            seeds,
                            ((1 + source) * n_seeded + seeded_row + r) * seed_stride,
                        )
                    elif source >= 0:
                        first_kernel = (seeds, (source * a + i) * b + column)
                    else:
                        first_kernel = (stored, (-1 - source) * vectors * width)
                    make_kernels(
                        length, weighted, first_kernel, (strip, r * stride + slot * width), step, n_columns,
                        (offsets, slot), (column_roots, column), row_roots[i], (rows, (i * p + slot) * width),
                        (stored, stored_row * vectors * width),
                    )  # fmt: skip
                make_target(
                    weighted, (U, i * n_outputs), (V, column), padded, n_outputs,
                    (strip, r * stride + p * width), step, n, (column_roots, column), row_roots[i],
                )  # fmt: skip
            for run in range(n_runs):
                k = cuts[run]
                size = cuts[run + 1] - k
                for run_before in range(run):
                    l = cuts[run_before]
                    size_before = cuts[run_before + 1] - l
                    add_rectangle(
                        size, size_before, (strip, k * width), (strip, l * width), stride, n * height,
                        (G, (k * p + l) * width), p,
                    )  # fmt: skip
                add_triangle(
                    size, weighted, (strip, k * width), (strip, p * width), stride, height, n,
                    (G, (k * p + k) * width), p, (T, k * width), (columns, columns_at + k * width),
                )  # fmt: skip


def runs(p: int) -> np.ndarray:
    """Divide p kernels into nearly equal runs of at most `LONGEST_RUN`; return the bounds."""
    n_runs = -(-p // LONGEST_RUN)
    size, n_longer = divmod(p, n_runs)
    return np.array([size * run + min(run, n_longer) for run in range(n_runs + 1)])
