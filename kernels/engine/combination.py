"""Weighted sums of base kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import local
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from ..centering import mirror
from ..compiled.distances import DistanceSide, Parts, pack_columns, pack_rows
from ..compiled.loops import empty_vectors, lanes
from ..compiled.plain import ROWS
from ..families.base import (
    ExpandedRows,
    KernelFamily,
    PlainRows,
    Rows,
    TilePlan,
    fill_seeds,
    mean_row,
    move,
)
from ..families.composed import DividedFamily, divisors_for
from ..families.distances import GaussianFamily
from ..families.feature import FeatureFamily
from ..families.products import LinearFamily
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
"""Largest number of vectors multiplied without a tile."""

SPAN = 2048
"""Number of rows on each side of one task."""

STRIP = 256
"""Number of kernel rows formed at a time."""

TILE_BYTES = 1 << 20

TASK_PAIRS = 1 << 20

LEAST_COLUMNS = 64

STORED_BYTES = 3 << 30
"""Memory limit of the stored blocks of a Gram matrix."""


@dataclass(frozen=True)
class Combination:
    r"""Weighted sum of base kernels, :math:`\sum_k c_k (K_k - s_k)`, not centered."""

    family: KernelFamily
    coefficients: np.ndarray
    shift: np.ndarray

    @cached_property
    def evaluated(self) -> tuple[KernelFamily, np.ndarray, np.ndarray]:
        """Base kernels computed for the sum, with coefficients and shifts.

        They complete a grid of powers of two between kernels with coefficients.
        """
        active = np.flatnonzero(self.coefficients)
        if not len(active):
            active = np.arange(1)
        family = self.family
        if len(active) < family.n_kernels:
            family = family.subset(active.tolist())
        family, places = family.completed_grid()
        coefficients = np.zeros(family.n_kernels)
        coefficients[places] = self.coefficients[active]
        shift = np.zeros(family.n_kernels)
        shift[places] = self.shift[active]
        divisors = divisors_for(coefficients)
        if divisors is None or isinstance(family, FeatureFamily):
            return family, coefficients, shift
        # The divisors keep values within the range of float32.
        return (
            DividedFamily(family, 1.0 / divisors),
            coefficients / divisors,
            shift * divisors,
        )

    @cached_property
    def plan(self) -> TilePlan:
        family, _, shift = self.evaluated
        return family.plan(shift)

    def operands(self, A: Rows) -> list[Any]:
        """Prepare rows A by `KernelFamily.operands` of the computed base kernels."""
        family, _, shift = self.evaluated
        return family.operands(A, shift)

    def matrix(
        self,
        A: Rows,
        B: Rows,
        symmetric: bool = False,
        dtype: DTypeLike = np.float64,
    ) -> np.ndarray:
        """Return the weighted sum of base kernels between rows A and B, (a, b), computed in `dtype`.

        If `symmetric`, A and B are the same rows.
        """
        K = np.empty((A.shape[0], B.shape[0]), dtype=dtype)
        self.fill(A, B, K, symmetric)
        return K

    def side(self, B: Rows, dtype: Any = np.float64) -> RightSide:
        family, _, shift = self.evaluated
        center = mean_row(B)
        if as_packable_sides(family.operands(B[:1], shift, center, dtype)) is None:
            return RightSide(
                self, B, family.operands(B, shift, center, dtype), center, dtype
            )
        return PackedRows(self, B, center, dtype)

    def fill(
        self,
        A: Rows,
        B: Rows,
        out: np.ndarray,
        symmetric: bool = False,
        right: RightSide | None = None,
    ) -> None:
        """Write the weighted kernel sum between rows A and B to `out`."""
        family, coefficients, _ = self.evaluated
        if isinstance(family, FeatureFamily):
            out[...] = family.combine(coefficients, A, B)
            return
        side = self.side(B, out.dtype) if right is None else right
        left = side.left(A, symmetric)

        def write(rows: slice, columns: slice) -> int:
            tile = out[rows, columns]
            side.fill(left, rows, columns, tile)
            if symmetric and rows == columns:
                mirror(tile)  # triangles may be rounded differently
            elif symmetric:
                out[columns, rows] = tile.T
            return 0

        n_columns = None if symmetric else out.shape[1]
        over_tiles(write, out.shape[0], n_columns, block_rows_for(self.plan.n_seeds))

    def diagonal(self, A: Rows) -> np.ndarray:
        family, coefficients, shift = self.evaluated
        return np.asarray(coefficients @ family.diag(A) - coefficients @ shift)


class RightSide:
    """Rows prepared as the second argument of a kernel that is a weighted sum."""

    matrices_per_tile: int

    def __init__(
        self,
        combination: Combination,
        rows: Rows,
        operands: list[Any],
        center: np.ndarray,
        dtype: DTypeLike,
    ) -> None:
        self._combination = combination
        self._rows = rows
        self._operands = operands
        self._center = center
        self._dtype = np.dtype(dtype)
        self._weights = _weights(combination, self._dtype)
        self._buffers = local()
        self.matrices_per_tile = combination.plan.n_seeds
        vector = lanes(self._dtype)
        self._most_columns = MOST_COLUMNS // vector * vector

    def _operands_of(self, A: Rows) -> list[Any]:
        family, _, shift = self._combination.evaluated
        return family.operands(A, shift, self._center, self._dtype)

    def left(self, A: Rows, same_rows: bool = False) -> Any:
        return self._operands if same_rows else self._operands_of(A)

    def fill(self, left: Any, rows: slice, columns: slice, out: np.ndarray) -> None:
        """Write the kernel between left `rows` and right `columns` into `out`."""
        seeds = self._seed_buffer(self._weights.n_seeds * out.size).reshape(
            -1, *out.shape
        )
        right_operands = [operand[columns] for operand in self._operands]
        if left is self._operands and rows == columns:
            left_operands = right_operands
        else:
            left_operands = [operand[rows] for operand in left]
        fill_seeds(left_operands, right_operands, seeds)
        work = _work_arrays(self._weights, self._most_columns, self._dtype)
        combine_tile(
            seeds, self._weights, lanes(self._dtype), self._most_columns, *work, out
        )

    def _seed_buffer(self, size: int) -> np.ndarray:
        if size > len(getattr(self._buffers, "seeds", ())):
            self._buffers.seeds = np.empty(size, dtype=self._dtype)
        return np.asarray(self._buffers.seeds[:size])

    def multiply(self, A: Rows, beta: np.ndarray) -> np.ndarray:
        """Return ``K beta``; K is the weighted kernel sum between A and these rows."""
        left = self.left(A)
        a = A.shape[0]
        b = len(beta)
        step = max(LEAST_COLUMNS, TILE_BYTES // (8 * a * self.matrices_per_tile))
        product = np.zeros((a, beta.shape[1]))
        beta = beta.astype(self._dtype, copy=False)
        buffer = np.empty(a * min(step, b), dtype=self._dtype)
        for first in range(0, b, step):
            columns = slice(first, min(first + step, b))
            tile = buffer[: a * (columns.stop - first)].reshape(a, -1)
            self.fill(left, slice(0, a), columns, tile)
            product += tile @ beta[columns]
        return product

    def products(
        self,
        A: Rows,
        beta: np.ndarray | None,
        left_vectors: np.ndarray,
        back: np.ndarray,
        w: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return ``K beta``, and add ``K' (left_vectors + w K beta)`` to `back`.

        Without `beta`, the result is empty.
        """
        a, n = left_vectors.shape
        buffer = np.empty((min(STRIP, a), len(back)), dtype=self._dtype)
        forth = np.empty((0, n))
        if beta is not None:
            forth = np.empty((a, n))
            beta = beta.astype(self._dtype, copy=False)
        for start in range(0, a, STRIP):
            rows = slice(start, min(start + STRIP, a))
            strip = buffer[: rows.stop - start]
            vectors = left_vectors[rows]
            self._combination.fill(A[rows], self._rows, strip, right=self)
            if beta is not None:
                forth[rows] = strip @ beta
                if w is not None:
                    vectors = vectors + w[rows, None] * forth[rows]
            back += strip.T @ vectors.astype(self._dtype, copy=False)
        return forth


class PackedRows(RightSide):
    """Rows prepared, for compiled code, as the second argument of distance kernels."""

    def __init__(
        self, combination: Combination, rows: Rows, center: np.ndarray, dtype: DTypeLike
    ) -> None:
        super().__init__(combination, rows, [], center, dtype)
        self.matrices_per_tile = 1
        operands = [part.near_reference() for part in self._operands_of(rows)]
        self._references = [part.reference for part in operands]
        parts = Parts.of(operands, self._dtype)
        stride = -(-rows.shape[0] // parts.across) * parts.across
        values_per_column = 1 + self._weights.n_seeds + self._weights.n_stored
        most_panels = max(
            1, min(MOST_COLUMNS, MOST_VALUES // values_per_column) // parts.across
        )
        packed = pack_columns(operands, self._dtype)
        self._columns = PackedColumns(packed, stride, parts, self._weights, most_panels)

    def _operands_of(self, A: Rows) -> list[DistanceSide]:
        family, _, shift = self._combination.evaluated
        # Only rounding to float32 needs a translation.
        center = None if self._dtype == np.float64 else self._center
        sides = as_packable_sides(
            family.operands(
                A.astype(np.float64, copy=False), shift, center, self._dtype
            )
        )
        assert sides is not None
        return sides

    def left(self, A: Rows, same_rows: bool = False) -> tuple[np.ndarray, int]:
        parts = zip(self._operands_of(A), self._references, strict=True)
        relative = [replace(part, reference=reference) for part, reference in parts]
        return pack_rows(relative, self._dtype), A.shape[0]

    def fill(
        self, left: tuple[np.ndarray, int], rows: slice, columns: slice, out: np.ndarray
    ) -> None:
        combine_rows(
            *left, rows.start, self._columns, columns.start, *self._work_arrays(), out
        )

    def _work_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        columns = self._columns
        return _work_arrays(
            columns.weights, columns.max_panels * columns.parts.across, self._dtype
        )

    def _padded(self, beta: np.ndarray) -> np.ndarray:
        padded = np.zeros((beta.shape[1], self._columns.stride), dtype=self._dtype)
        padded[:, : len(beta)] = beta.T
        return padded

    def multiply(self, A: Rows, beta: np.ndarray) -> np.ndarray:
        if beta.shape[1] > MOST_TOGETHER:
            return super().multiply(A, beta)
        product = np.zeros((A.shape[0], beta.shape[1]))
        apply_rows(
            self.left(A)[0],
            self._columns,
            *self._work_arrays(),
            self._padded(beta),
            product,
        )
        return product

    def products(
        self,
        A: Rows,
        beta: np.ndarray | None,
        left_vectors: np.ndarray,
        back: np.ndarray,
        w: np.ndarray | None = None,
    ) -> np.ndarray:
        a, n = left_vectors.shape
        if n > MOST_TOGETHER:
            return super().products(A, beta, left_vectors, back, w)
        forth = np.empty((0 if beta is None else a, n))
        padded_beta = self._padded(np.zeros_like(back) if beta is None else beta)
        padded_back = np.zeros_like(padded_beta)
        multiply_rows(
            self.left(A)[0],
            self._columns,
            self._work_arrays()[0],
            empty_vectors(ROWS * self._columns.stride, self._dtype),
            np.ascontiguousarray(left_vectors),
            np.zeros(a) if w is None else w,
            padded_beta,
            forth,
            padded_back,
        )
        back += padded_back[:, : len(back)].T
        return forth


def as_packable_sides(operands: Sequence[Any]) -> list[DistanceSide] | None:
    """Return prepared rows as `DistanceSide`; None if compiled code cannot use them."""
    sides = []
    for operand in operands:
        if isinstance(operand, ExpandedRows) and operand.augmented is not None:
            operand = DistanceSide(operand.rows, operand.metric, operand.gammas)
        if not isinstance(operand, DistanceSide):
            return None
        sides.append(operand)
    return sides


def compile_combinations() -> None:
    """Compile the functions that combine kernels in float64, unless cached."""
    X = np.zeros((2, 1))
    combination = Combination(GaussianFamily([1.0]), np.ones(1), np.ones(1))
    packed = combination.side(X)
    unpacked = RightSide(
        combination,
        X,
        combination.family.operands(X, combination.shift),
        X[0],
        np.float64,
    )
    for side in (packed, unpacked):
        # A contiguous and a strided matrix.
        for out in (np.zeros((2, 2)), np.zeros((2, 3))[:, :2]):
            side.fill(side.left(X), slice(0, 2), slice(0, 2), out)
    packed.multiply(X, X)
    packed.products(X, X, X, np.zeros((2, 1)))


def _weights(combination: Combination, dtype: np.dtype[Any]) -> Weights:
    _, coefficients, _ = combination.evaluated
    plan = combination.plan
    kernels, groups = chains(plan)
    constant = dtype.type(coefficients @ plan.offset)
    n_stored = 1 + int(groups[:, 3].max())
    return Weights(
        groups, coefficients[kernels].astype(dtype), constant, plan.n_seeds, n_stored
    )


def _work_arrays(
    weights: Weights, n_columns: int, dtype: np.dtype[Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Return work arrays of intermediate values and of the kernel."""
    size = ROWS * n_columns
    values_per_pair = 1 + weights.n_seeds + weights.n_stored
    return empty_vectors(size * values_per_pair, dtype), empty_vectors(size, dtype)


Shared = tuple[Combination, RowSource, list[tuple[int, int]]]


class StoredBlock:
    """Block of a kernel matrix K, rounded to 16-bit integers; overwrites K."""

    formed_as = np.float32

    def __init__(self, K: np.ndarray) -> None:
        low = np.float64(K.min())
        high = np.float64(K.max())
        largest_code = np.iinfo(np.int16).max
        self._middle = (low + high) / 2
        self._step = (high - low) / (2 * largest_code) or np.float64(1.0)
        K -= np.float32(self._middle)
        K /= np.float32(self._step)
        self._codes = np.rint(K, out=K).astype(np.int16)

    def products(self, V: np.ndarray, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ``K @ V`` and ``K.T @ U`` for float32 V and U."""
        forth = np.empty_like(U)
        back = np.zeros_like(V)
        for start in range(0, len(forth), STRIP):
            rows = slice(start, start + STRIP)
            strip = self._codes[rows].astype(np.float32)
            forth[rows] = strip @ V
            back += strip.T @ U[rows]
        return self._step * forth + self._middle * V.sum(
            axis=0
        ), self._step * back + self._middle * U.sum(axis=0)


class FloatBlock:
    """Block of a kernel matrix, rounded to float32."""

    formed_as = np.float64

    def __init__(self, K: np.ndarray) -> None:
        self._K = K.astype(np.float32)

    def products(self, V: np.ndarray, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._K @ V, self._K.T @ U


STORED_BLOCKS: dict[type, type[StoredBlock | FloatBlock]] = {
    np.int16: StoredBlock,
    np.float32: FloatBlock,
}


class CombinedGram:
    """Gram matrix K of a `Combination` over m rows, not centered."""

    def __init__(
        self, combination: Combination, rows: RowSource, workers: Workers
    ) -> None:
        self._workers = workers
        self._spans = spans(rows.shape[0], SPAN)
        self._original_family = combination.family
        if isinstance(workers, Threads):  # other processes map rows when they read them
            family, _ = combination.family.mapped_once(rows[:0])
            if family is not combination.family:
                rows = np.concatenate(
                    [
                        combination.family.mapped_once(rows[slice(*run)])[1]
                        for run in self._spans
                    ]
                )
                combination = Combination(
                    family, combination.coefficients, combination.shift
                )
        self._rows_are_mapped = combination.family is not self._original_family
        self._pairs = [
            (i, j) for i in range(len(self._spans)) for j in range(i, len(self._spans))
        ]
        self._shared = workers.broadcast((combination, rows, self._spans))
        self._stored_as: type = np.float32
        self._stored: dict[tuple[int, int], StoredBlock | FloatBlock | None] = {}

    def store(self, value_type: type) -> bool:
        """Let the next float32 product keep K in memory; return whether all of K fits."""
        if not isinstance(self._workers, Threads):
            return False
        longest = max(stop - start for start, stop in self._spans)
        n_stored = STORED_BYTES // (np.dtype(value_type).itemsize * longest**2)
        self._stored_as = value_type
        self._stored = dict.fromkeys(self._pairs[:n_stored])
        return n_stored >= len(self._pairs)

    def matvec(self, V: np.ndarray, dtype: DTypeLike = np.float64) -> np.ndarray:
        """Return ``K @ V``, shape (m, c), in O(m^2 (d + p + c)) time and O(m c) memory.

        float32 takes about half the time, with six correct digits.
        """
        if self._stored and dtype == np.float32:
            pieces: BlockResults = self._workers.total(
                self._product, self._shared, V.astype(dtype), self._pairs
            )
        else:
            pieces = self._workers.total(
                _products, self._shared, (V, np.dtype(dtype)), self._pairs
            )
        return pieces.joined()

    def _product(
        self, shared: Shared, V: np.ndarray, pair: tuple[int, int]
    ) -> BlockResults:
        if pair not in self._stored:
            return _products(shared, (V.astype(np.float64), V.dtype), pair)
        combination, rows, runs = shared
        i, j = pair
        left = slice(*runs[i])
        right = slice(*runs[j])
        block = self._stored[pair]
        if block is None:
            A = rows[left]
            B = rows[right]
            block_class = STORED_BLOCKS[self._stored_as]
            K = np.empty((A.shape[0], B.shape[0]), dtype=block_class.formed_as)
            combination.fill(A, B, K, right=combination.side(B, K.dtype))
            block = block_class(K)
            self._stored[pair] = block
        forth, back = block.products(V[right], V[left])
        if i == j:
            return BlockResults({i: forth})
        return BlockResults({i: forth, j: back})

    def columns(self, B: Rows, dtype: DTypeLike = np.float64) -> np.ndarray:
        """Return the kernel between all m rows and rows B, shape (m, b)."""
        if self._rows_are_mapped:
            B = self._original_family.mapped_once(B)[1]
        pieces: BlockResults = self._workers.total(
            _columns, self._shared, (B, np.dtype(dtype)), range(len(self._spans))
        )
        return pieces.joined()

    def diagonal(self) -> np.ndarray:
        pieces: BlockResults = self._workers.total(
            _diagonal, self._shared, None, range(len(self._spans))
        )
        return pieces.joined()


def _diagonal(shared: Shared, argument: None, run: int) -> BlockResults:
    combination, rows, runs = shared
    return BlockResults({run: combination.diagonal(rows[slice(*runs[run])])})


def _products(
    shared: Shared, argument: tuple[np.ndarray, np.dtype[Any]], pair: tuple[int, int]
) -> BlockResults:
    combination, rows, runs = shared
    V, dtype = argument
    i, j = pair
    left = slice(*runs[i])
    if i == j:
        return BlockResults({i: _symmetric_product(combination, rows[left], V[left])})
    right = slice(*runs[j])
    back = np.zeros_like(V[right])
    forth = combination.side(rows[right], dtype).products(
        rows[left], V[right], V[left], back
    )
    return BlockResults({i: forth, j: back})


def _symmetric_product(combination: Combination, A: Rows, V: np.ndarray) -> np.ndarray:
    n = len(V)
    product = np.zeros_like(V)
    buffer = np.empty((min(STRIP, n), n))
    for start in range(0, n, STRIP):
        stop = min(start + STRIP, n)
        strip = buffer[: stop - start, : n - start]
        combination.fill(A[start:stop], A[start:], strip)
        product[start:stop] += strip @ V[start:]
        product[stop:] += strip[:, stop - start :].T @ V[start:stop]
    return product


def _columns(
    shared: Shared, argument: tuple[Rows, np.dtype[Any]], run: int
) -> BlockResults:
    combination, rows, runs = shared
    B, dtype = argument
    A = rows[slice(*runs[run])]
    return BlockResults({run: combination.matrix(A, B, dtype=dtype)})


def split_kernels(
    combination: Combination, X: Rows, is_selected: Callable[[Any], bool]
) -> tuple[Combination, Combination | None]:
    """Split a weighted kernel sum into kernels not selected and selected ones.

    The second is None if all or no kernels are selected.
    """
    family, coefficients, shift = combination.evaluated
    if isinstance(family, FeatureFamily):
        return combination, None
    selected_seeds = np.concatenate(
        [
            np.full(operand.n_seeds, is_selected(operand))
            for operand in combination.operands(X[:1])
        ]
    )
    selected_kernels = selected_seeds[_seeds_of_kernels(combination.plan)]
    if selected_kernels.all() or not selected_kernels.any():
        return combination, None
    parts = []
    for kernels in (
        np.flatnonzero(~selected_kernels),
        np.flatnonzero(selected_kernels),
    ):
        parts.append(
            Combination(
                family.subset(kernels.tolist()), coefficients[kernels], shift[kernels]
            )
        )
    return parts[0], parts[1]


def _is_of_one_code(operand: Any) -> bool:
    return (
        isinstance(operand, DistanceSide)
        and operand.metric == "differing"
        and operand.rows.shape[1] == 1
    )


def _is_linear(operand: Any) -> bool:
    if not isinstance(operand, PlainRows):
        return False
    return type(operand.family).tile is LinearFamily.tile


def _seeds_of_kernels(plan: TilePlan) -> np.ndarray:
    """Return the seed of each kernel, direct or by doubling."""
    seeds = np.empty(len(plan.half), dtype=np.intp)
    for kernel, seed in plan.order.tolist():
        if seed < 0:
            seed = seeds[plan.half[kernel]]
        seeds[kernel] = seed
    return seeds


class LinearSums:
    r"""Sums over training rows of weighted linear kernels, computed without a Gram matrix.

    .. math:: \sum_i V_{ij} \sum_k c_k \bigl( z_k \cdot z_{ik} - s_k \bigr)
    """

    def __init__(self, combination: Combination, X: Rows, V: np.ndarray) -> None:
        self._combination = combination
        _, coefficients, shift = combination.evaluated
        self._constant = -float(coefficients @ shift) * V.sum(axis=0)
        seeds = _seeds_of_kernels(combination.plan)
        self._weights = [
            coefficients[seeds == seed].sum() * np.asarray(operand.rows.T @ V)
            for seed, operand in enumerate(combination.operands(X))
        ]

    def of(self, A: Rows) -> np.ndarray:
        sums = np.tile(self._constant, (A.shape[0], 1))
        for operand, weights in zip(
            self._combination.operands(A), self._weights, strict=True
        ):
            sums += _row_products(operand.rows, weights)
        return sums


def _row_products(A: Rows, weights: np.ndarray) -> np.ndarray:
    """Return ``A @ weights``, rounded independently of the number of rows."""
    if sparse.issparse(A):
        return np.asarray(A @ weights)
    return np.einsum("ij,jk->ik", A, weights)


class CodeSums:
    r"""Sums over training rows of kernels on category codes, computed without a Gram matrix.

    .. math:: \sum_i V_{ij} \sum_c \bigl( a_c + b_c \, [x_c \neq x_{ic}] \bigr)
    """

    def __init__(self, combination: Combination, X: Rows, V: np.ndarray) -> None:
        self._combination = combination
        _, coefficients, _ = combination.evaluated
        self._total = V.sum(axis=0)
        self._if_equal = coefficients @ combination.plan.offset
        self._codes: list[np.ndarray] = []
        self._sums: list[np.ndarray] = []
        self._changes: list[float] = []
        first_seed = 0
        for operand in combination.operands(X):
            codes, code_of_row = np.unique(operand.rows[:, 0], return_inverse=True)
            sums = np.zeros((len(codes), V.shape[1]))
            np.add.at(sums, code_of_row, V)
            self._codes.append(codes)
            self._sums.append(sums)
            self._changes.append(self._change(operand, first_seed))
            first_seed += operand.n_seeds

    def _change(self, operand: DistanceSide, first_seed: int) -> float:
        """Return the change of the kernel sum if codes differ."""
        _, coefficients, _ = self._combination.evaluated
        plan = self._combination.plan
        weight = 1.0
        if operand.weights is not None:
            weight = operand.weights[0]
        seeds = np.zeros(plan.n_seeds)
        seeds[first_seed : first_seed + operand.n_seeds] = np.expm1(
            -weight * np.array(operand.gammas)
        )
        changes = np.empty(len(coefficients))
        for kernel, seed in plan.order.tolist():
            if seed >= 0:
                changes[kernel] = seeds[seed]
            else:
                half = changes[plan.half[kernel]]
                changes[kernel] = half * (half + 2)
        return float(coefficients @ changes)

    def of(self, A: Rows) -> np.ndarray:
        sums = np.tile(self._if_equal * self._total, (A.shape[0], 1))
        for operand, codes, sums_of_codes, change in zip(
            self._combination.operands(A),
            self._codes,
            self._sums,
            self._changes,
            strict=True,
        ):
            new_codes = operand.rows[:, 0]
            places = np.searchsorted(codes, new_codes).clip(max=len(codes) - 1)
            is_known = codes[places] == new_codes
            sums_of_equal = np.where(is_known[:, None], sums_of_codes[places], 0.0)
            sums += change * (self._total - sums_of_equal)
        return sums


class Expansion:
    r"""Kernel expansions :math:`f_j(x) = b_j + \sum_i V_{ij} \, C(x - o, x_i)`.

    C is a `Combination`, o the origin, and X the rows minus the origin.
    """

    def __init__(
        self,
        combination: Combination,
        X: Rows,
        V: np.ndarray,
        constant: np.ndarray,
        origin: np.ndarray,
    ) -> None:
        self.combination = combination
        self.X = X
        self.V = V
        self.constant = constant
        self.origin = origin
        self._sides: dict[np.dtype[Any], RightSide] = {}

    def values(
        self, A: Rows, dtype: Any = np.float64, strip: int = STRIP
    ) -> np.ndarray:
        """Return the values of all q expansions at n new rows, shape (n, q)."""
        strip = min(strip, STRIP)
        dtype = np.dtype(dtype)
        n = A.shape[0]
        s = self.X.shape[0]
        out = np.empty((n, self.V.shape[1]))
        if not s:
            out[:] = self.constant
        elif n:
            self._side(dtype)  # before threads use it
            step = strip * max(1, TASK_PAIRS // (strip * s))
            tasks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
            Threads().total(
                lambda _shared, _argument, rows: self._write(
                    A, rows, strip, dtype, out
                ),
                None,
                None,
                tasks,
            )
        return out

    def _side(self, dtype: np.dtype[Any]) -> RightSide:
        if dtype not in self._sides:
            others, _ = self._split
            self._sides[dtype] = others.side(self.X, dtype)
        return self._sides[dtype]

    @cached_property
    def _split(self) -> tuple[Combination, list[CodeSums | LinearSums]]:
        """Base kernels with tiles, and sums without tiles."""
        sums: list[CodeSums | LinearSums] = []
        others, codes = split_kernels(self.combination, self.X, _is_of_one_code)
        if codes is not None:
            sums.append(CodeSums(codes, self.X, self.V))
        others, linear = split_kernels(others, self.X, _is_linear)
        if linear is not None:
            sums.append(LinearSums(linear, self.X, self.V))
        return others, sums

    def _sums(self, A: Rows, dtype: np.dtype[Any]) -> np.ndarray:
        sums = self._side(dtype).multiply(A, self.V)
        _, sums_without_tiles = self._split
        for part in sums_without_tiles:
            sums += part.of(A)
        return sums

    @cached_property
    def _weights(self) -> np.ndarray:
        """Coefficients of rank-one features, shape (p, q)."""
        family, coefficients, _ = self.combination.evaluated
        assert isinstance(family, FeatureFamily)
        return np.asarray(
            coefficients[:, None] * np.asarray(family.take(self.X).T @ self.V)
        )

    def _moved(self, A: Rows) -> Rows:
        """Return dense or sparse rows like X, minus the origin."""
        if sparse.issparse(self.X):
            return A if sparse.issparse(A) else type(self.X)(A)
        dense = A.toarray() if sparse.issparse(A) else A
        return move(np.ascontiguousarray(dense, dtype=np.float64), self.origin)

    def _write(
        self, A: Rows, rows: slice, strip: int, dtype: np.dtype[Any], out: np.ndarray
    ) -> int:
        family = self.combination.evaluated[0]
        for start in range(rows.start, rows.stop, strip):
            strip_rows = slice(start, min(start + strip, rows.stop))
            moved = self._moved(A[strip_rows])
            if isinstance(family, FeatureFamily):
                out[strip_rows] = family.take(moved) @ self._weights + self.constant
            else:
                out[strip_rows] = self._sums(moved, dtype) + self.constant
        return 0
