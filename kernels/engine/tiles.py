"""The compiled inner step of the engine: from seeds of a tile to its sums, in registers, without forming the tile.

A *strip* holds some columns of a few rows of a tile: for each vector of columns and each row one vector per kernel,
side by side, then one of the target kernel and, where rows have weights, one of the row's root. *Sums* are kept by
vectors, whose values are added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ..compiled.cache import compiled
from ..compiled.distances import Differences, Parts, make_seeds, rounded_up
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
"""Size of a strip: with column sums and seeds it stays in the first-level cache."""

ROWS = 2
"""Rows of a strip: what column sums are read and written for at a time."""

LEAST_STEPS = 8
"""Fewest vectors of columns of a strip: each ends with a write of all sums of products."""


def chains(plan: TilePlan, lengths: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Return how the kernels of a tile are made: runs of a plan in which each kernel follows from the one before.

    Parameters
    ----------
    plan : TilePlan
        Of p kernels.
    lengths : sequence of int
        Chains are cut into pieces of the first of these that fits; by default they are whole.

    Returns
    -------
    kernels : ndarray of int of shape (p,)
        The kernel that each one made is, in the order in which they are made.
    groups : ndarray of int of shape (n, 4)
        For each chain the first of its kernels in that order, their number, the seed that it begins with, or -1 - r for
        what is kept in row r, and the row in which what would follow its last is kept.
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
    n_rows = 1  # of kept values; the first row takes unused ones
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
            keep = 0
            if chain or branches:
                keep = n_rows
                n_rows += 1
            groups.append((len(kernels), length, source, keep))
            kernels += piece
            source = -1 - keep
        starts += [(k, source) for k in branches]
    return np.array(kernels), np.array(groups)


class TileSums:
    """Forms the sums of tiles of one family, with all the places that this takes.

    Parameters
    ----------
    plan : TilePlan
        How the p kernels follow from their seeds.
    dtype : dtype
        float64 or float32.
    differences : list of Differences, optional
        What the seeds are made of, for tiles whose rows are given; of any rows.
    """

    def __init__(self, plan: TilePlan, dtype: np.dtype, differences: Sequence[Differences] = ()) -> None:
        self.dtype = dtype
        self.width = lanes(dtype)
        self.p = len(plan.half)
        kernels, groups = chains(plan, CHAIN_LENGTHS)
        self._order = np.argsort(kernels)
        self._sums = np.empty(0)
        parts = Parts.of(differences, dtype)
        bytes_of_vector = ROWS * (self.p + 2) * self.width * dtype.itemsize
        panel = parts.across // self.width
        vectors = max(LEAST_STEPS, STRIP_BYTES // bytes_of_vector) // panel * panel
        self._layout = KernelLayout(parts, groups, plan.offset[kernels].astype(dtype), runs(self.p), vectors)
        self._seeds = empty_vectors(SEED_ROWS * vectors * self.width * (1 + plan.n_seeds), dtype)
        self._strip = empty_vectors(vectors * ROWS * (self.p + 2) * self.width, dtype)
        self._kept = empty_vectors((1 + groups[:, 3].max()) * vectors * self.width, dtype)

    def of(
        self,
        seeds: np.ndarray | tuple[np.ndarray, np.ndarray],
        U: np.ndarray,
        V: np.ndarray,
        row_weights: np.ndarray | None,
        column_weights: np.ndarray | None,
        mirrored: bool = False,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the sums of one tile.

        Parameters
        ----------
        seeds : ndarray of shape (n_seeds, a, b) or pair of ndarray
            Values that are given, with a vector to spare behind the last, or what they are made of: the rows of the
            left side, `pack_rows`, and of the right one, `pack_columns`. Not modified.
        U, V : ndarray of shape (a, q) and (b, q)
            Targets of the rows and of the columns.
        row_weights, column_weights : ndarray of shape (a,) and (b,), or None
            Weights of the rows and of the columns; None where each counts once.
        mirrored : bool
            Whether the columns are the rows: then most of what is below the diagonal is taken from above.

        Returns
        -------
        G : ndarray of shape (p, p)
            Products of the kernels.
        T : ndarray of shape (p,)
            Products with the target kernel ``U V'``.
        rows, columns : ndarray of shape (p, a) and (p, b)
            Row and column sums.

        Notes
        -----
        Sums of up to some dozens of values have the precision of the seeds, all others float64.
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
        has_weights = row_weights is not None and column_weights is not None
        row_roots = np.ones(a, dtype=self.dtype)
        column_roots = np.ones(padded + width, dtype=self.dtype)
        if row_weights is not None and column_weights is not None:
            row_roots = np.sqrt(row_weights).astype(self.dtype)
            column_roots[:b] = np.sqrt(column_weights)
        strip_columns = layout.vectors * width
        G, T, rows, columns, unused = self._zeros(
            p * p * width, p * width, a * p * width, padded * p, strip_columns * p
        )
        tile = Tile(
            a=a,
            b=b,
            seeds=flat_seeds,
            A=left,
            B=right,
            U=U.astype(self.dtype).reshape(-1),
            V=padded_V.reshape(-1),
            q=n_outputs,
            weighted=int(has_weights),
            own=row_roots,
            roots=column_roots,
            strip=self._strip,
            kept=self._kept,
            G=G,
            T=T,
            rows=rows,
        )
        firsts = range(0, b, strip_columns)
        if mirrored:
            above = np.array([(first, 0, first, first * p) for first in firsts])
            on_diagonal = np.array([(first, first, min(first + strip_columns, a), 0) for first in firsts])
            add_tile(above, tile, layout, columns)
            # Each value above the squares on the diagonal represents one below them, too.
            G *= 2
            T *= 2
            add_tile(on_diagonal, tile, layout, unused)
        else:
            add_tile(np.array([(first, 0, a, first * p) for first in firsts]), tile, layout, columns)

        order = self._order
        ones = np.ones(width)
        lower = (G.reshape(-1, width) @ ones).reshape(p, p)
        products = np.where(np.tri(p, dtype=bool), lower, lower.T)[np.ix_(order, order)]
        target_products = (T.reshape(p, width) @ ones)[order]
        row_sums = (rows.reshape(-1, width) @ ones).reshape(a, p).T[order]
        column_sums = columns.reshape(-1, p, width).transpose(1, 0, 2)[order].reshape(p, -1)[:, :b]
        if has_weights:
            row_sums = row_sums / row_roots
            column_sums = column_sums / column_roots[:b]
        if mirrored:
            row_sums = column_sums = row_sums + column_sums
        return products, target_products, row_sums, column_sums

    def _zeros(self, *sizes: int) -> list[np.ndarray]:
        """Return arrays of zeros that are kept for further tiles: fresh memory costs more than the sums in it."""
        ends = list(accumulate(sizes))
        if ends[-1] > len(self._sums):
            self._sums = np.empty(ends[-1])
        self._sums[: ends[-1]] = 0
        return [self._sums[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def compile_tiles(dtype: np.dtype) -> None:
    """Compile the steps for tiles of a precision, some seconds, unless they are compiled already, here or on disk."""
    one = np.ones((1, 1), dtype=dtype)
    TileSums(TilePlan.identity(1), dtype).of(empty_vectors(1, dtype)[:1].reshape(1, 1, 1), one, one, None, None)


class KernelLayout(NamedTuple):
    """How the kernels of the tiles of a family are made, and their products formed.

    Attributes
    ----------
    parts : Parts
        What seeds are made of; none where they are given.
    groups : ndarray of int of shape (n, 4)
        See `chains`.
    offsets : ndarray of shape (p,)
        Constant added to each kernel at the end, in the order in which they are made.
    cuts : ndarray of int of shape (n_runs + 1,)
        Runs of kernels whose products are formed together.
    vectors : int
        Vectors of columns of a strip.
    """

    parts: Parts
    groups: np.ndarray
    offsets: np.ndarray
    cuts: np.ndarray
    vectors: int


class Tile(NamedTuple):
    """The rows and columns of one tile, places to work at, and sums that are kept by vectors; arrays are flat.

    Attributes
    ----------
    a, b : int
        How many there are.
    seeds : ndarray of shape (n_seeds a b,)
        Values that are given and not modified, or with parts a place to make some.
    A, B : ndarray
        What seeds are made of, see `make_seeds`.
    U, V : ndarray
        Targets of the rows, a row after the other, and of the columns, an output after the other, padded with zeros.
    q, weighted : int
        Number of outputs; one where rows have weights.
    own, roots : ndarray of shape (a,) and (b,) or more
        Roots of the weights of rows and columns.
    strip, kept : ndarray
        Places to work at.
    G, T, rows : ndarray
        Added to, of shapes (p, p, width), (p, width) and (a, p, width); of G what is not above the diagonal.
    """

    a: int
    b: int
    seeds: np.ndarray
    A: np.ndarray
    B: np.ndarray
    U: np.ndarray
    V: np.ndarray
    q: int
    weighted: int
    own: np.ndarray
    roots: np.ndarray
    strip: np.ndarray
    kept: np.ndarray
    G: np.ndarray
    T: np.ndarray
    rows: np.ndarray


@compiled()
def add_tile(strips: np.ndarray, tile: Tile, layout: KernelLayout, columns: np.ndarray) -> None:
    """Add the sums of some strips of one tile, see `TileSums`.

    Parameters
    ----------
    strips : ndarray of int of shape (n, 4)
        For each the first of its columns, the rows from one to before another, and where its column sums begin.
    tile : Tile
        Its rows and columns, and sums but those of columns.
    layout : KernelLayout
        How its kernels are made.
    columns : ndarray of shape (b / width, p, width), flat
        Column sums, added to.
    """
    a, b, seeds, A, B, U, V, q, weighted, own, roots, strip, kept, G, T, rows = tile
    parts, groups, offsets, cuts, vectors = layout
    width = parts.width
    panel_rows = parts.across
    p = len(offsets)
    n_runs = len(cuts) - 1
    padded = -(-b // width) * width
    stride = (p + 1 + weighted) * width  # from a row of the strip to the next
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
                    slot, length, source, keep = groups[g]
                    if source >= 0 and makes_seeds:
                        first_kernel = (seeds, ((1 + source) * n_seeded + seeded_row + r) * seed_stride)
                    elif source >= 0:
                        first_kernel = (seeds, (source * a + i) * b + column)
                    else:
                        first_kernel = (kept, (-1 - source) * vectors * width)
                    make_kernels(
                        length, weighted, first_kernel, (strip, r * stride + slot * width), step, n_columns,
                        (offsets, slot), (roots, column), own[i], (rows, (i * p + slot) * width),
                        (kept, keep * vectors * width),
                    )  # fmt: skip
                make_target(
                    weighted, (U, i * q), (V, column), padded, q, (strip, r * stride + p * width), step, n,
                    (roots, column), own[i],
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
    """Return where p kernels are cut into runs of at most `LONGEST_RUN`, the longer ones first, shape (n_runs + 1,)."""
    n_runs = -(-p // LONGEST_RUN)
    size, n_longer = divmod(p, n_runs)
    return np.array([size * run + min(run, n_longer) for run in range(n_runs + 1)])
