"""A weighted sum of base kernels, evaluated without the base kernels: a tile at a time, in one compiled step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import local
from typing import Any

import numpy as np

from learnkernels.kernels.centering import mirror
from learnkernels.kernels.compiled.distances import (
    ROWS,
    Differences,
    Parts,
    all_side_by_side,
    as_differences,
    one_after_another,
)
from learnkernels.kernels.compiled.vectors import lanes, room
from learnkernels.kernels.engine.passes import block_rows_for
from learnkernels.kernels.engine.tiles import Chains
from learnkernels.kernels.engine.weighing import (
    MOST_COLUMNS,
    MOST_VALUES,
    Columns,
    Weights,
    apply_rows,
    combine_rows,
    combine_tile,
    multiply_rows,
)
from learnkernels.kernels.engine.workers import over_tiles
from learnkernels.kernels.families.base import KernelFamily, Rows, TilePlan, fill_seeds, mean_row
from learnkernels.kernels.families.feature import FeatureFamily

MOST_TOGETHER = 16
"""Vectors up to which their products are taken while a row of the kernel is at hand; of more a matrix product is."""


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

        On a grid of powers of two a base kernel in between costs a product a pair, a new start an exponential.
        """
        active = np.flatnonzero(self.coefficients)
        if not len(active):
            active = np.arange(1)
        family, at = self.family.subset(active.tolist()).completed_grid()
        coefficients, shift = np.zeros(family.n_kernels), np.zeros(family.n_kernels)
        coefficients[at], shift[at] = self.coefficients[active], self.shift[active]
        return family, coefficients, shift

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

    def side(self, B: Rows, dtype: Any = np.float64) -> BySeeds | LaidOut:
        """Return rows as the right side of many fills, in a precision; laid out, where all follows from distances."""
        family, _, shift = self.evaluated
        centre = mean_row(B)
        operands = family.operands(B, shift, centre, dtype)
        of = as_differences(operands)
        return BySeeds(self, operands, centre, dtype) if of is None else LaidOut(self, of, centre, dtype)

    def fill(self, A: Rows, B: Rows, out: np.ndarray, symmetric: bool = False, right: Any = None) -> None:
        """Write what `matrix` returns into `out`, an array of shape (a, b); `right` is the `side` of B, if there is."""
        family, coefficients, _ = self.evaluated
        if isinstance(family, FeatureFamily):
            out[...] = family.combine(coefficients, A, B)
            return
        if out.size and out.strides[1] != out.itemsize:  # what is compiled writes along rows
            out[...] = self.matrix(A, B, symmetric)
            return
        right = self.side(B) if right is None else right
        left = right.left(A, symmetric)

        def write(rows: slice, columns: slice) -> int:
            tile = out[rows, columns]
            if symmetric and rows == columns:
                right.fill(left, rows, columns, tile)
                mirror(tile)  # the product of two rows may round otherwise than that of the same two turned
            else:
                right.fill(left, rows, columns, tile)
                if symmetric:
                    out[columns, rows] = tile.T
            return 0

        over_tiles(write, out.shape[0], None if symmetric else out.shape[1], block_rows_for(self.plan.n_seeds))

    def diagonal(self, A: Rows) -> np.ndarray:
        """Return the kernel of each row with itself, shape (a,)."""
        family, coefficients, shift = self.evaluated
        return np.asarray(coefficients @ family.diag(A) - coefficients @ shift)


class BySeeds:
    """The rows of one side, for tiles of a kernel whose seeds a family fills.

    Parameters
    ----------
    of : Combination
    operands : list of Operand
        Rows as its family takes them.
    centre : ndarray of shape (d,)
        What they may be moved by.
    dtype : dtype
        float64 or float32, of the seeds.
    """

    def __init__(self, of: Combination, operands: list[Any], centre: np.ndarray, dtype: Any) -> None:
        self._family, _, self._shift = of.evaluated
        self._right, self._centre, self._dtype, self._own = operands, centre, np.dtype(dtype), local()
        self._weights = _weights(of, self._dtype)
        self._most = MOST_COLUMNS // lanes(self._dtype) * lanes(self._dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_own"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _own=local())

    def left(self, A: Rows, own: bool = False) -> list[Any]:
        """Return the rows of the other side, for many fills; `own` ones are those of this side."""
        return self._right if own else self._family.operands(A, self._shift, self._centre, self._dtype)

    def fill(self, left: list[Any], rows: slice, columns: slice, out: np.ndarray) -> None:
        """Write the kernel between some rows of the other side and some of this one into `out`."""
        size = self._weights.n_seeds * out.size
        if size > len(getattr(self._own, "seeds", ())):  # kept by each thread, as fresh memory costs as much as a tile
            self._own.seeds = np.empty(size, dtype=self._dtype)
        seeds = self._own.seeds[:size].reshape(-1, *out.shape)
        some = [one[columns] for one in self._right]
        same = left is self._right and rows == columns
        fill_seeds(some if same else [one[rows] for one in left], some, seeds)
        places = _places(self._weights, self._most, self._dtype)
        combine_tile(seeds, self._weights, lanes(self._dtype), self._most, *places, out)


class LaidOut:
    """The rows of one side, for tiles of a kernel that follows from distances, and for its products with vectors.

    Parameters
    ----------
    of : Combination
    differences : list of Differences
        What the seeds follow from, of these rows.
    centre : ndarray of shape (d,)
        What they may be moved by.
    dtype : dtype
        float64 or float32, of all that is formed.
    """

    def __init__(self, of: Combination, differences: Sequence[Differences], centre: np.ndarray, dtype: Any) -> None:
        self._family, _, self._shift = of.evaluated
        self._centre, self._dtype = centre, np.dtype(dtype)
        parts, weights = Parts.of(differences, self._dtype), _weights(of, self._dtype)
        self.n_rows = len(differences[0].rows)
        stride = -(-self.n_rows // parts.across) * parts.across
        most = max(1, min(MOST_COLUMNS, MOST_VALUES // (1 + weights.n_seeds + weights.n_kept)) // parts.across)
        self._columns = Columns(all_side_by_side(differences, self._dtype), stride, parts, weights, most)

    def left(self, A: Rows, own: bool = False) -> tuple[np.ndarray, int]:
        """Return the rows of the other side, for many fills, and their number."""
        of = self._family.operands(A, self._shift, self._centre, self._dtype)
        return one_after_another(of, self._dtype), A.shape[0]

    def fill(self, left: tuple[np.ndarray, int], rows: slice, columns: slice, out: np.ndarray) -> None:
        """Write the kernel between some rows of the other side and some of this one into `out`."""
        combine_rows(*left, rows.start, self._columns, columns.start, *self._places(), out)

    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        of = self._columns
        return _places(of.weights, of.most * of.parts.across, self._dtype)

    def stretched(self, beta: np.ndarray) -> np.ndarray:
        """Return vectors of shape (b, n) as rows of whole panels, with zeros, shape (n, stride)."""
        wide = np.zeros((beta.shape[1], self._columns.stride), dtype=self._dtype)
        wide[:, : self.n_rows] = beta.T
        return wide

    def applied(self, A: Rows, stretched: np.ndarray) -> np.ndarray:
        """Return ``K beta`` for the kernel K between rows and those laid out, shape (a, n), of `stretched` vectors.

        Notes
        -----
        O(a b (d + p + n)); sums over the columns that are at hand at a time are added in float64.
        """
        forth = np.zeros((A.shape[0], len(stretched)))
        apply_rows(self.left(A)[0], self._columns, *self._places(), stretched, forth)
        return forth

    def products(
        self, A: Rows, beta: np.ndarray | None, given: np.ndarray, back: np.ndarray, w: np.ndarray | None = None
    ) -> np.ndarray:
        """Return ``K beta``, and add ``K' (given + w K beta)``, for the kernel K between rows and those laid out.

        Parameters
        ----------
        A : ndarray of shape (a, d)
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
        O(a b (d + p + n)); four rows of the kernel are at hand at a time, and stay in the cache.
        """
        n = given.shape[1]
        wide = self.stretched(np.zeros((self.n_rows, n)) if beta is None else beta)
        turned = np.zeros_like(wide)
        forth = np.empty((0 if beta is None else len(given), n))
        multiply_rows(
            self.left(A)[0],
            self._columns,
            self._places()[0],
            room(ROWS * self._columns.stride, self._dtype),
            np.ascontiguousarray(given),
            np.zeros(len(given)) if w is None else w,
            wide,
            forth,
            turned,
        )
        back += turned[:, : self.n_rows].T
        return forth


def _weights(of: Combination, dtype: np.dtype[Any]) -> Weights:
    """Return how the kernels of a combination are made and weighed, in a precision."""
    coefficients, plan = of.evaluated[1], of.plan
    chains = Chains.of(plan, ())
    constant = dtype.type(coefficients @ plan.offset)
    return Weights(chains.groups, coefficients[chains.kernels].astype(dtype), constant, plan.n_seeds, chains.n_kept)


def _places(weights: Weights, columns: int, dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return places to work at, for so many columns of `ROWS` rows: for what their kernel is made of, and for it."""
    size = ROWS * columns
    return room(size * (1 + weights.n_seeds + weights.n_kept), dtype), room(size, dtype)
