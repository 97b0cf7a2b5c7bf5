"""A weighted sum of base kernels, evaluated without the base kernels: by tiles, as a product, on new rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import local
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from ..centering import mirror
from ..compiled.distances import Parts, as_differences, pack_columns, pack_rows
from ..compiled.loops import empty_vectors, lanes
from ..compiled.plain import ROWS
from ..families.base import KernelFamily, Rows, TilePlan, fill_seeds, mean_row, move
from ..families.composed import DividedFamily, divisors_for
from ..families.distances import GaussianFamily
from ..families.feature import FeatureFamily
from .passes import block_rows_for
from .tiles import chains
from .weighing import (
    MOST_COLUMNS,
    MOST_VALUES,
    PackedColumns,
    Weights,
    apply_rows,
    combine_rows,
    combine_tile,
    multiply_rows,
)
from .workers import BlockResults, RowSource, Threads, Workers, over_tiles, spans

MOST_TOGETHER = 16
"""Vectors up to which their products are taken while a row of the kernel is at hand; of more a matrix product is."""


SPAN = 2048
"""Rows of the square of pairs that one task takes."""

STRIP = 256
"""Rows whose kernel with others is held at once: of such a square, or new ones."""

TILE_BYTES = 1 << 20
"""Size of a tile, and of its seeds where they are held: so large that what is done once a tile counts for little."""

LEAST_COLUMNS = 64
"""Fewest columns of a tile, where there are that many."""

TASK_PAIRS = 1 << 20
"""About how many pairs of rows a thread takes at a time; with fewer in all there is one thread."""

STORED_BYTES = 1 << 30
"""Most that stored blocks of a Gram matrix take: all of them up to 32,000 rows."""

LARGEST_CODE = 32767
"""Of a value that is stored in 16 bits."""


@dataclass(frozen=True)
class Combination:
    r"""The kernel :math:`\sum_k c_k (K_k - s_k)` of base kernels less constants, not centered.

    Attributes
    ----------
    family : KernelFamily
        p base kernels.
    coefficients, shift : ndarray of shape (p,)
        c, where zeros cost little or nothing, and s.
    """

    family: KernelFamily
    coefficients: np.ndarray
    shift: np.ndarray

    @cached_property
    def evaluated(self) -> tuple[KernelFamily, np.ndarray, np.ndarray]:
        """Base kernels to go through, with coefficients and shifts: those of weight, and what they follow from.

        On a grid of powers of two a base kernel in between costs a product per pair, a new start an exponential.
        """
        active = np.flatnonzero(self.coefficients)
        if not len(active):
            active = np.arange(1)
        family, at = self.family.subset(active.tolist()).completed_grid()
        coefficients, shift = np.zeros(family.n_kernels), np.zeros(family.n_kernels)
        coefficients[at], shift[at] = self.coefficients[active], self.shift[active]
        divisors = divisors_for(coefficients)
        if divisors is None or isinstance(family, FeatureFamily):
            return family, coefficients, shift
        # Values as extreme as their coefficients have no room in float32.
        return DividedFamily(family, 1.0 / divisors), coefficients / divisors, shift * divisors

    @cached_property
    def plan(self) -> TilePlan:
        """How they follow from their seeds."""
        family, _, shift = self.evaluated
        return family.plan(shift)

    def matrix(self, A: Rows, B: Rows, symmetric: bool = False) -> np.ndarray:
        """Return the kernel between the rows of `A` and of `B`.

        Parameters
        ----------
        A, B : ndarray or CSR matrix of shape (a, d) and (b, d)
            Not modified.
        symmetric : bool, default False
            Whether `B` are the rows of `A`: half of the tiles are then mirror images.

        Returns
        -------
        K : ndarray of shape (a, b)

        Notes
        -----
        O(a b (d + p)) time. Memory is that of the result and of one tile; rank-one features take one product.
        """
        K = np.empty((A.shape[0], B.shape[0]))
        self.fill(A, B, K, symmetric)
        return K

    def side(self, B: Rows, dtype: Any = np.float64) -> RightSide:
        """Return rows as the right side of many tiles, in a precision; laid out, where all follows from distances."""
        family, _, shift = self.evaluated
        center = mean_row(B)
        operands = family.operands(B, shift, center, dtype)
        return (RightSide if as_differences(operands) is None else PackedRows)(self, B, operands, center, dtype)

    def fill(self, A: Rows, B: Rows, out: np.ndarray, symmetric: bool = False, right: Any = None) -> None:
        """Write what `matrix` returns into `out`, shape (a, b), in C order; `right` is the `side` of B, if there is."""
        family, coefficients, _ = self.evaluated
        if isinstance(family, FeatureFamily):
            out[...] = family.combine(coefficients, A, B)
            return
        right = self.side(B) if right is None else right
        left = right.left(A, symmetric)

        def write(rows: slice, columns: slice) -> int:
            tile = out[rows, columns]
            right.fill(left, rows, columns, tile)
            if symmetric and rows == columns:
                mirror(tile)  # the product of two rows may round otherwise than that of the same two turned
            elif symmetric:
                out[columns, rows] = tile.T
            return 0

        over_tiles(write, out.shape[0], None if symmetric else out.shape[1], block_rows_for(self.plan.n_seeds))

    def diagonal(self, A: Rows) -> np.ndarray:
        """Return the kernel of each row with itself, shape (a,)."""
        family, coefficients, shift = self.evaluated
        return np.asarray(coefficients @ family.diag(A) - coefficients @ shift)


class RightSide:
    """The rows of one side, for tiles of a kernel whose seeds a family fills, and for its products with vectors.

    Parameters
    ----------
    of : Combination
    rows : ndarray or CSR matrix of shape (b, d)
    operands : list
        The rows as its family takes them.
    center : ndarray of shape (d,)
        What they may be moved by.
    dtype : dtype
        float64 or float32, of all that is formed.
    """

    matrices: int
    """Matrices of a tile that are held at once."""

    def __init__(self, of: Combination, rows: Rows, operands: list[Any], center: np.ndarray, dtype: Any) -> None:
        self._of, self._rows, self._operands, self._center, self._dtype = of, rows, operands, center, np.dtype(dtype)
        self._weights, self._own, self.matrices = _weights(of, self._dtype), local(), of.plan.n_seeds
        self._most = MOST_COLUMNS // lanes(self._dtype) * lanes(self._dtype)

    def _operands_of(self, A: Rows) -> list[Any]:
        family, _, shift = self._of.evaluated
        return family.operands(A, shift, self._center, self._dtype)

    def left(self, A: Rows, own: bool = False) -> Any:
        """Return the rows of the other side, for many tiles; `own` ones are those of this side."""
        return self._operands if own else self._operands_of(A)

    def fill(self, left: Any, rows: slice, columns: slice, out: np.ndarray) -> None:
        """Write the kernel between some rows of the other side and some of this one into `out`."""
        size = self._weights.n_seeds * out.size
        if size > len(getattr(self._own, "seeds", ())):  # kept by each thread, as fresh memory costs as much as a tile
            self._own.seeds = np.empty(size, dtype=self._dtype)
        seeds = self._own.seeds[:size].reshape(-1, *out.shape)
        some = [one[columns] for one in self._operands]
        same = left is self._operands and rows == columns
        fill_seeds(some if same else [one[rows] for one in left], some, seeds)
        places = _places(self._weights, self._most, self._dtype)
        combine_tile(seeds, self._weights, lanes(self._dtype), self._most, *places, out)

    def applied(self, A: Rows, beta: np.ndarray) -> np.ndarray:
        """Return ``K beta`` for the kernel K between rows and these, shape (a, n); a tile of K is held at a time."""
        left, a, b = self.left(A), A.shape[0], len(beta)
        step = max(LEAST_COLUMNS, TILE_BYTES // (8 * a * self.matrices))
        forth, beta = np.zeros((a, beta.shape[1])), beta.astype(self._dtype, copy=False)
        K = np.empty(a * min(step, b), dtype=self._dtype)
        for first in range(0, b, step):
            columns = slice(first, min(first + step, b))
            tile = K[: a * (columns.stop - first)].reshape(a, -1)
            self.fill(left, slice(0, a), columns, tile)
            forth += tile @ beta[columns]
        return forth

    def products(
        self, A: Rows, beta: np.ndarray | None, given: np.ndarray, back: np.ndarray, w: np.ndarray | None = None
    ) -> np.ndarray:
        """Return ``K beta``, and add ``K' (given + w K beta)``, for the kernel K between rows and these.

        Parameters
        ----------
        A : ndarray or CSR matrix of shape (a, d)
            Rows. Not modified.
        beta : ndarray of shape (b, n) or None
            None for zero, which costs nothing.
        given : ndarray of shape (a, n)
            What the transposed kernel is multiplied by.
        back : ndarray of shape (b, n)
            Added to.
        w : ndarray of shape (a,), optional
            Zero by default.

        Returns
        -------
        forth : ndarray of shape (a, n), or of shape (0, n) without beta

        Notes
        -----
        O(a b (d + p + n)); some rows of the kernel are held at a time.
        """
        a, n = given.shape
        forth = np.empty((0 if beta is None else a, n))
        beta = None if beta is None else beta.astype(self._dtype, copy=False)
        K = np.empty((min(STRIP, a), len(back)), dtype=self._dtype)
        for start in range(0, a, STRIP):
            rows = slice(start, min(start + STRIP, a))
            strip, x = K[: rows.stop - start], given[rows]
            self._of.fill(A[rows], self._rows, strip, right=self)
            if beta is not None:
                forth[rows] = strip @ beta
                x = x if w is None else x + w[rows, None] * forth[rows]
            back += strip.T @ x.astype(self._dtype, copy=False)
        return forth


class PackedRows(RightSide):
    """The same for a kernel that follows from distances: of few vectors the products form no tile."""

    def __init__(self, of: Combination, rows: Rows, operands: list[Any], center: np.ndarray, dtype: Any) -> None:
        super().__init__(of, rows, [], center, dtype)
        parts, weights, self.matrices = Parts.of(operands, self._dtype), self._weights, 1
        stride = -(-rows.shape[0] // parts.across) * parts.across
        most = max(1, min(MOST_COLUMNS, MOST_VALUES // (1 + weights.n_seeds + weights.n_kept)) // parts.across)
        self._columns = PackedColumns(pack_columns(operands, self._dtype), stride, parts, weights, most)

    def left(self, A: Rows, own: bool = False) -> tuple[np.ndarray, int]:
        """Return the rows of the other side, for many tiles, and their number."""
        return pack_rows(self._operands_of(A), self._dtype), A.shape[0]

    def fill(self, left: tuple[np.ndarray, int], rows: slice, columns: slice, out: np.ndarray) -> None:
        """Write the kernel between some rows of the other side and some of this one into `out`."""
        combine_rows(*left, rows.start, self._columns, columns.start, *self._places(), out)

    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        of = self._columns
        return _places(of.weights, of.most * of.parts.across, self._dtype)

    def _stretched(self, beta: np.ndarray) -> np.ndarray:
        """Return vectors of shape (b, n) as rows of whole panels, with zeros, shape (n, stride)."""
        wide = np.zeros((beta.shape[1], self._columns.stride), dtype=self._dtype)
        wide[:, : len(beta)] = beta.T
        return wide

    def applied(self, A: Rows, beta: np.ndarray) -> np.ndarray:
        """Return ``K beta``; sums over the columns that are at hand at a time are added in float64."""
        if beta.shape[1] > MOST_TOGETHER:
            return super().applied(A, beta)
        forth = np.zeros((A.shape[0], beta.shape[1]))
        apply_rows(self.left(A)[0], self._columns, *self._places(), self._stretched(beta), forth)
        return forth

    def products(
        self, A: Rows, beta: np.ndarray | None, given: np.ndarray, back: np.ndarray, w: np.ndarray | None = None
    ) -> np.ndarray:
        """Return ``K beta``, and add ``K' (given + w K beta)``; four rows of the kernel stay in the cache."""
        if given.shape[1] > MOST_TOGETHER:
            return super().products(A, beta, given, back, w)
        wide = self._stretched(np.zeros_like(back) if beta is None else beta)
        turned = np.zeros_like(wide)
        forth = np.empty((0 if beta is None else len(given), given.shape[1]))
        multiply_rows(
            self.left(A)[0],
            self._columns,
            self._places()[0],
            empty_vectors(ROWS * self._columns.stride, self._dtype),
            np.ascontiguousarray(given),
            np.zeros(len(given)) if w is None else w,
            wide,
            forth,
            turned,
        )
        back += turned[:, : len(back)].T
        return forth


def compile_combinations() -> None:
    """Compile the steps that combine kernels in float64, unless they are compiled already, here or on disk."""
    X, of = np.zeros((2, 1)), Combination(GaussianFamily([1.0]), np.ones(1), np.ones(1))
    packed = of.side(X)
    for side in packed, RightSide(of, X, of.family.operands(X, of.shift), X[0], np.float64):
        for out in np.zeros((2, 2)), np.zeros((2, 3))[:, :2]:  # a matrix, and part of one
            side.fill(side.left(X), slice(0, 2), slice(0, 2), out)
    packed.applied(X, X)
    packed.products(X, X, X, np.zeros((2, 1)))


def _weights(of: Combination, dtype: np.dtype[Any]) -> Weights:
    """Return how the kernels of a combination are made and weighted, in a precision."""
    coefficients, plan = of.evaluated[1], of.plan
    kernels, groups = chains(plan)
    constant, n_kept = dtype.type(coefficients @ plan.offset), 1 + int(groups[:, 3].max())
    return Weights(groups, coefficients[kernels].astype(dtype), constant, plan.n_seeds, n_kept)


def _places(weights: Weights, columns: int, dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return places to work at, for so many columns of `ROWS` rows: for what their kernel is made of, and for it."""
    size = ROWS * columns
    return empty_vectors(size * (1 + weights.n_seeds + weights.n_kept), dtype), empty_vectors(size, dtype)


Shared = tuple[Combination, RowSource, list[tuple[int, int]]]


class StoredBlock:
    """A block of a kernel matrix in 16 bits a value, to 2^-16 of the range of its values.

    Parameters
    ----------
    K : ndarray of float32 of shape (a, b)
        Overwritten.
    """

    def __init__(self, K: np.ndarray) -> None:
        low, high = np.float64(K.min()), np.float64(K.max())
        self._middle, self._step = (low + high) / 2, (high - low) / (2 * LARGEST_CODE) or np.float64(1.0)
        K -= np.float32(self._middle)
        K /= np.float32(self._step)
        self._codes = np.rint(K, out=K).astype(np.int16)

    def products(self, V: np.ndarray, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ``K @ V`` and ``K.T @ U`` for V of shape (b, c) and U of shape (a, c), both of float32."""
        forth, back = np.empty_like(U), np.zeros_like(V)
        for start in range(0, len(forth), STRIP):
            rows = slice(start, start + STRIP)
            strip = self._codes[rows].astype(np.float32)
            forth[rows] = strip @ V
            back += strip.T @ U[rows]
        return self._step * forth + self._middle * V.sum(axis=0), self._step * back + self._middle * U.sum(axis=0)


class CombinedGram:
    """The symmetric matrix K of a `Combination` over m rows, not centered.

    Parameters
    ----------
    combination : Combination
    rows : RowSource of shape (m, d)
        As `Workers.hold` gives them.
    workers : Workers
    stored : bool, default False
        Whether products in float32 on threads of this process store what they form, in 16 bits a value and at most
        `STORED_BYTES`; the next product reads it.
    """

    def __init__(self, combination: Combination, rows: RowSource, workers: Workers, stored: bool = False) -> None:
        self._workers = workers
        self._spans = spans(rows.shape[0], SPAN)
        self._given = combination.family
        if isinstance(workers, Threads):  # others read rows where they find them
            family = combination.family.mapped_once(rows[:0])[0]
            if family is not combination.family:
                rows = np.concatenate([combination.family.mapped_once(rows[slice(*run)])[1] for run in self._spans])
                combination = Combination(family, combination.coefficients, combination.shift)
        self._taken = combination.family
        self._pairs = [(i, j) for i in range(len(self._spans)) for j in range(i, len(self._spans))]
        self._shared = workers.broadcast((combination, rows, self._spans))
        longest = max(stop - start for start, stop in self._spans)
        most = STORED_BYTES // (2 * longest**2) if stored and isinstance(workers, Threads) else 0
        self._stored: dict[tuple[int, int], StoredBlock | None] = dict.fromkeys(self._pairs[:most])

    def matvec(self, V: np.ndarray, dtype: DTypeLike = np.float64) -> np.ndarray:
        """Return ``K @ V``, shape (m, c); O(m^2 (d + p + c)) time, half of all kernels, O(m c) memory.

        In float32 it takes about half the time, and six digits are right. Stored blocks take a twentieth.
        """
        if self._stored and dtype == np.float32:
            pieces: BlockResults = self._workers.total(self._product, self._shared, V.astype(dtype), self._pairs)
        else:
            pieces = self._workers.total(_products, self._shared, (V, np.dtype(dtype)), self._pairs)
        return pieces.joined()

    def _product(self, shared: Shared, V: np.ndarray, pair: tuple[int, int]) -> BlockResults:
        """Return what the pairs of rows of two runs add to the product, by their stored block if there is one."""
        if pair not in self._stored:
            return _products(shared, (V.astype(np.float64), V.dtype), pair)
        (combination, rows, runs), (i, j) = shared, pair
        own, other = slice(*runs[i]), slice(*runs[j])
        block = self._stored[pair]
        if block is None:
            A, B = rows[own], rows[other]
            K = np.empty((A.shape[0], B.shape[0]), dtype=V.dtype)
            combination.fill(A, B, K, right=combination.side(B, V.dtype))
            block = self._stored[pair] = StoredBlock(K)
        forth, back = block.products(V[other], V[own])
        return BlockResults({i: forth} if i == j else {i: forth, j: back})

    def columns(self, B: Rows) -> np.ndarray:
        """Return the kernel between all rows and a few others, shape (m, b)."""
        B = B if self._taken is self._given else self._given.mapped_once(B)[1]
        pieces: BlockResults = self._workers.total(_columns, self._shared, B, range(len(self._spans)))
        return pieces.joined()

    def diagonal(self) -> np.ndarray:
        """Return the kernel of each row with itself, shape (m,)."""
        pieces: BlockResults = self._workers.total(_diagonal, self._shared, None, range(len(self._spans)))
        return pieces.joined()


def _diagonal(shared: Shared, argument: None, span: int) -> BlockResults:
    combination, rows, all_spans = shared
    return BlockResults({span: combination.diagonal(rows[slice(*all_spans[span])])})


def _products(shared: Shared, argument: tuple[np.ndarray, np.dtype[Any]], pair: tuple[int, int]) -> BlockResults:
    """Return what the pairs of rows of two runs add to the product."""
    (combination, rows, runs), (V, dtype), (i, j) = shared, argument, pair
    own, other = slice(*runs[i]), slice(*runs[j])
    A = rows[own]
    if i == j:
        V, out = V[own], np.zeros_like(V[own])
        K = np.empty((min(STRIP, len(V)), len(V)))
        for start in range(0, len(V), STRIP):  # strips begin at the diagonal: what is left of it are mirror images
            stop = min(start + STRIP, len(V))
            strip = K[: stop - start, : len(V) - start]
            combination.fill(A[start:stop], A[start:], strip)
            out[start:stop] += strip @ V[start:]
            out[stop:] += strip[:, stop - start :].T @ V[start:stop]
        return BlockResults({i: out})
    back = np.zeros_like(V[other])
    forth = combination.side(rows[other], dtype).products(A, V[other], V[own], back)
    return BlockResults({i: forth, j: back})


def _columns(shared: Shared, B: Rows, run: int) -> BlockResults:
    combination, rows, runs = shared
    return BlockResults({run: combination.matrix(rows[slice(*runs[run])], B)})


class Expansion:
    r"""Functions :math:`f_j(x) = b_j + \sum_i V_{ij} \, C(x - o, x_i)` for a `Combination` C, not centered.

    Parameters
    ----------
    combination : Combination
    X : ndarray or CSR matrix of shape (s, d)
        The rows :math:`x_i`, less `origin`. Not modified.
    V : ndarray of shape (s, q)
    constant : ndarray of shape (q,)
        b.
    origin : ndarray of shape (d,)
        o.

    Notes
    -----
    O(n s (d + p + q)) time for n rows and O(q n) memory plus one tile per thread; the kernel between the
    rows is formed a tile at a time. What of a tile depends on X alone is formed once, and left out of pickles. Features
    that are kernels of rank one are weighted once and for all: O(n d q).
    """

    def __init__(
        self, combination: Combination, X: Rows, V: np.ndarray, constant: np.ndarray, origin: np.ndarray
    ) -> None:
        self.combination, self.X, self.V, self.constant, self.origin = combination, X, V, constant, origin
        self._sides: dict[np.dtype[Any], RightSide] = {}

    def values(self, A: Rows, dtype: Any = np.float64, strip: int = STRIP) -> np.ndarray:
        """Return the functions of new rows.

        Parameters
        ----------
        A : ndarray or CSR matrix of shape (n, d)
            Finite, in the order of the features. Not modified.
        dtype : dtype, default float64
            Precision of the tiles; their sums are added in float64.
        strip : int, default 256
            Most rows of a tile: the bits of a value depend on the rows of its tile, which are counted from the first.

        Returns
        -------
        values : ndarray of float64 of shape (n, q)
        """
        strip, dtype = min(strip, STRIP), np.dtype(dtype)
        n, s = A.shape[0], self.X.shape[0]
        out = np.empty((n, self.V.shape[1]))
        if not s:
            out[:] = self.constant
        elif n:
            step = strip * max(1, TASK_PAIRS // (strip * s))
            self._side(dtype)  # once, before threads ask for it
            tasks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
            Threads().total(lambda *task: self._write(A, task[2], strip, dtype, out), None, None, tasks)
        return out

    def _side(self, dtype: np.dtype[Any]) -> RightSide:
        """Return X as the right side of tiles in a precision."""
        if dtype not in self._sides:
            self._sides[dtype] = self.combination.side(self.X, dtype)
        return self._sides[dtype]

    @cached_property
    def _weights(self) -> np.ndarray:
        """What features that are kernels of rank one are multiplied by, shape (p, q)."""
        family, coefficients, _ = self.combination.evaluated
        assert isinstance(family, FeatureFamily)
        return np.asarray(coefficients[:, None] * np.asarray(family.take(self.X).T @ self.V))

    def _moved(self, A: Rows) -> Rows:
        """Return new rows less the origin, in one layout, so that bits do not depend on how they came."""
        if sparse.issparse(self.X):
            return A if sparse.issparse(A) else type(self.X)(A)
        dense = A.toarray() if sparse.issparse(A) else A
        return move(np.ascontiguousarray(dense, dtype=np.float64), self.origin)

    def _write(self, A: Rows, rows: slice, strip: int, dtype: np.dtype[Any], out: np.ndarray) -> int:
        """Write the values of some rows into their places in `out`."""
        family = self.combination.evaluated[0]
        for start in range(rows.start, rows.stop, strip):
            some = slice(start, min(start + strip, rows.stop))
            part = self._moved(A[some])
            if isinstance(family, FeatureFamily):
                out[some] = family.take(part) @ self._weights + self.constant
            else:
                out[some] = self._side(dtype).applied(part, self.V) + self.constant
        return 0
