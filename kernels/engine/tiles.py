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
from ..compiled.distances import Differences, Parts, make_seeds
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
    doubles: dict[int, list[int]] = {}
    for k, seed in plan.order.tolist():
        if seed < 0:
            doubles.setdefault(int(plan.half[k]), []).append(k)
    begin = [(k, seed) for k, seed in plan.order.tolist() if seed >= 0]
    kernels, groups = list[int](), list[tuple[int, int, int, int]]()
    rows = 1  # the first one takes what is not used
    while begin:
        k, source = begin.pop(0)
        chain = [k]
        while len(doubles.get(chain[-1], [])) == 1:
            chain += doubles[chain[-1]]
        ends = doubles.get(chain[-1], [])
        while chain:
            length = next((n for n in lengths if n <= len(chain)), len(chain))
            taken, chain = chain[:length], chain[length:]
            keep = rows if chain or ends else 0
            rows += keep > 0
            groups.append((len(kernels), length, source, keep))
            kernels += taken
            source = -1 - keep
        begin += [(k, source) for k in ends]
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
        self.dtype, self.width, self.p = dtype, lanes(dtype), len(plan.half)
        kernels, groups = chains(plan, CHAIN_LENGTHS)
        self._back, self._held = np.argsort(kernels), np.empty(0)
        self._lower, self._both = np.tri(self.p, dtype=bool), np.ix_(self._back, self._back)
        bytes_of_a_step, parts = ROWS * (self.p + 2) * self.width * dtype.itemsize, Parts.of(differences, dtype)
        panel = parts.across // self.width
        vectors = max(LEAST_STEPS, STRIP_BYTES // bytes_of_a_step) // panel * panel
        self._layout = KernelLayout(parts, groups, plan.offset[kernels].astype(dtype), runs(self.p), vectors)
        self._room = empty_vectors(SEED_ROWS * vectors * self.width * (1 + plan.n_seeds), dtype)
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
        a, b, p, width, vectors = len(U), len(V), self.p, self.width, self._layout.vectors
        if isinstance(seeds, tuple):
            given, layout, sides = self._room, self._layout, seeds
        else:
            nothing, layout = np.empty(0, dtype=self.dtype), self._layout._replace(parts=Parts.of((), self.dtype))
            given, sides = seeds.reshape(-1), (nothing, nothing)
        padded, q = -(-b // width) * width, U.shape[1]
        V_padded = np.zeros((q, padded), dtype=self.dtype)
        V_padded[:, :b] = V.T
        own, roots = np.ones(a, dtype=self.dtype), np.ones(padded + width, dtype=self.dtype)
        if row_weights is not None and column_weights is not None:
            own, roots[:b] = np.sqrt(row_weights).astype(self.dtype), np.sqrt(column_weights)
        ends = [*accumulate([p * p * width, p * width, a * p * width, padded * p, vectors * p * width])]
        if ends[-1] > len(self._held):  # kept, as fresh memory costs more than the sums in it
            self._held = np.empty(ends[-1])
        self._held[: ends[-1]] = 0
        G, T, rows, columns, aside = (self._held[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True))
        targets, weighted = (U.astype(self.dtype).reshape(-1), V_padded.reshape(-1)), int(row_weights is not None)
        tile = Tile(a, b, given, *sides, *targets, q, weighted, own, roots, self._strip, self._kept, G, T, rows)

        def add(strips: list[tuple[int, int, int, int]], into: np.ndarray) -> None:
            add_tile(np.array(strips), tile, layout, into)

        across = vectors * width
        firsts = range(0, b, across)
        add([(first, 0, first if mirrored else a, first * p) for first in firsts], columns)
        if mirrored:  # what stands above the squares on the diagonal represents what is below them, too
            G *= 2
            T *= 2
            add([(first, first, min(first + across, a), 0) for first in firsts], aside)
        ones, back = np.ones(width), self._back
        lower = (G.reshape(-1, width) @ ones).reshape(p, p)
        products = np.where(self._lower, lower, lower.T)[self._both]
        of_rows = (rows.reshape(-1, width) @ ones).reshape(a, p).T[back]
        of_columns = columns.reshape(-1, p, width).transpose(1, 0, 2)[back].reshape(p, -1)[:, :b]
        if row_weights is not None:
            of_rows, of_columns = of_rows / own, of_columns / roots[:b]
        if mirrored:
            of_rows = of_columns = of_rows + of_columns
        return products, (T.reshape(p, width) @ ones)[back], of_rows, of_columns


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
    width, panel_rows = parts.width, parts.across
    p, n_runs, padded = len(offsets), len(cuts) - 1, -(-b // width) * width
    slots, made, many = (p + 1 + weighted) * width, len(parts.d) > 0, 0
    right = -(-b // panel_rows) * panel_rows
    for s in range(len(strips)):
        column, start, stop, columns_at = strips[s]
        n = min(vectors, (padded - column) // width)
        panel, panels = column // panel_rows, -(-n * width // panel_rows)
        across = panels * panel_rows  # from a row of the seeds that are made to the next
        for top in range(start, stop, ROWS):
            height = min(ROWS, stop - top)
            step, first = height * slots, (top - start) % SEED_ROWS
            if made and first == 0:
                many = min(SEED_ROWS, stop - top)
                make_seeds(A, a, top, many, B, right, panel, panels, parts, seeds)
            for r in range(height):
                i = top + r
                for g in range(len(groups)):
                    slot, length, source, keep = groups[g]
                    if source >= 0 and made:
                        given, begin = seeds, ((1 + source) * many + first + r) * across
                    elif source >= 0:
                        given, begin = seeds, (source * a + i) * b + column
                    else:
                        given, begin = kept, (-1 - source) * vectors * width
                    make_kernels(
                        length, weighted, (given, begin), (strip, r * slots + slot * width), step,
                        min(n * width, b - column), (offsets, slot), (roots, column), own[i],
                        (rows, (i * p + slot) * width), (kept, keep * vectors * width),
                    )  # fmt: skip
                make_target(
                    weighted, (U, i * q), (V, column), padded, q, (strip, r * slots + p * width), step, n,
                    (roots, column), own[i],
                )  # fmt: skip
            for run in range(n_runs):
                k, size = cuts[run], cuts[run + 1] - cuts[run]
                for before in range(run):
                    l, other = cuts[before], cuts[before + 1] - cuts[before]
                    add_rectangle(
                        size, other, (strip, k * width), (strip, l * width), slots, n * height,
                        (G, (k * p + l) * width), p,
                    )  # fmt: skip
                add_triangle(
                    size, weighted, (strip, k * width), (strip, p * width), slots, height, n,
                    (G, (k * p + k) * width), p, (T, k * width), (columns, columns_at + k * width),
                )  # fmt: skip


def runs(p: int) -> np.ndarray:
    """Return where p kernels are cut into runs of at most `LONGEST_RUN`, the longer ones first, shape (n_runs + 1,)."""
    size, longer = divmod(p, n := -(-p // LONGEST_RUN))
    return np.array([size * run + min(run, longer) for run in range(n + 1)])
