"""A weighted sum of base kernels, evaluated without the base kernels: a tile at a time, in one compiled step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import local
from typing import Any

import numpy as np

from learnkernels.kernels.centering import mirror
from learnkernels.kernels.compiled.distances import CODES, ROWS, Differences, panel_rows, side_by_side
from learnkernels.kernels.compiled.vectors import lanes, room
from learnkernels.kernels.engine.passes import block_rows_for
from learnkernels.kernels.engine.weighing import Parts, combine_tile, multiply_rows
from learnkernels.kernels.engine.workers import over_tiles
from learnkernels.kernels.families.base import KernelFamily, Rows, TilePlan
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
        family, at = self.family.subset(active.tolist()).filled_up()
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

    def side(self, B: Rows) -> Any:
        """Return what `fill` needs of the rows `B`, for many fills."""
        return self.evaluated[0].side(B)

    def fill(self, A: Rows, B: Rows, out: np.ndarray, symmetric: bool = False, right: Any = None) -> None:
        """Write what `matrix` returns into `out`, an array of shape (a, b); `right` is the `side` of B, if there is."""
        family, coefficients, shift = self.evaluated
        if isinstance(family, FeatureFamily):
            out[...] = family.combine(coefficients, A, B)
            return
        plan, (a, b), step, own = self.plan, out.shape, block_rows_for(family.n_seeds), local()
        right = family.side(B) if right is None else right
        left = family.side(A, right)

        def write(rows: slice, columns: slice) -> int:
            if not hasattr(own, "seeds"):
                own.seeds = np.empty(family.n_seeds * min(step, a) * min(step, b))
            tile = out[rows, columns]
            seeds = own.seeds[: family.n_seeds * tile.size].reshape(family.n_seeds, *tile.shape)
            if symmetric and rows == columns:
                diagonal = A[rows]
                family.fill_seeds(diagonal, diagonal, shift, seeds)
            else:
                family.fill_between(left[rows], right[columns], shift, seeds)
            combine_tile(seeds, plan.order, plan.half, plan.offset, coefficients, tile)
            if symmetric and rows == columns:
                mirror(tile)  # the product of two rows may round otherwise than that of the same two turned
            elif symmetric:
                out[columns, rows] = tile.T
            return 0

        over_tiles(write, a, None if symmetric else b, step)

    def laid_out(self, B: Rows) -> LaidOut | None:
        """Return rows for products in which no kernel is kept; None where base kernels do not follow from distances."""
        family, coefficients, _ = self.evaluated
        side = family.side(B)
        of = family.differences(side)
        return None if of is None else LaidOut(family, coefficients, self.plan, side, of)

    def diagonal(self, A: Rows) -> np.ndarray:
        """Return the kernel of each row with itself, shape (a,)."""
        family, coefficients, shift = self.evaluated
        return np.asarray(coefficients @ family.diag(A) - coefficients @ shift)


class LaidOut:
    """The rows of one side, for the products of a kernel with vectors and back again.

    Parameters
    ----------
    family, coefficients, plan
        As a `Combination` has them.
    right : object
        Rows as `family.side` makes them.
    of : list of Differences
        What the seeds follow from, of these rows.
    """

    def __init__(
        self, family: KernelFamily, coefficients: np.ndarray, plan: TilePlan, right: Any, of: Sequence[Differences]
    ) -> None:
        self._family, self._coefficients, self._plan, self._right = family, coefficients, plan, right
        self.n_rows = len(of[0].rows)
        laid = [side_by_side(np.asarray(one.rows, dtype=np.float64)) for one in of]
        self._across = panel_rows(np.dtype(np.float64))
        self._stride = -(-self.n_rows // self._across) * self._across
        weights = [np.ones(one.rows.shape[1]) if one.weights is None else one.weights for one in of]
        seeds = _ends([len(one.gammas) for one in of])
        starts = np.flatnonzero(plan.order[:, 1] >= 0)  # a kernel made by doubling follows the seed of its part
        part = np.searchsorted(seeds, plan.order[starts, 1], side="right") - 1
        self._parts = Parts(
            np.array([one.rows.shape[1] for one in of]),
            np.array([CODES[one.metric] for one in of]),
            np.array([one.metric == "euclidean" for one in of]),
            np.zeros(len(of) + 1, dtype=np.intp),
            _ends([len(one) for one in laid]),
            _ends([len(one) for one in weights]),
            seeds,
            np.append([starts[part == f].min() for f in range(len(of))], len(plan.order)),
            np.array([gamma for one in of for gamma in one.gammas]),
            np.concatenate(weights),
        )
        self._B = np.concatenate(laid)

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
        of = self._family.differences(self._family.side(A, self._right))
        assert of is not None  # as for the other side
        left = [np.ascontiguousarray(one.rows, dtype=np.float64).ravel() for one in of]
        n, p = given.shape[1], len(self._coefficients)
        wide = np.zeros((2, n, self._stride))
        if beta is not None:
            wide[0, :, : self.n_rows] = beta.T
        forth = np.empty((0 if beta is None else len(given), n))
        multiply_rows(
            np.concatenate(left), self._B, self._parts._replace(left=_ends([len(one) for one in left])),
            self._plan.order, self._plan.half, self._coefficients, float(self._coefficients @ self._plan.offset),
            lanes(np.dtype(np.float64)), self._across,
            room((2 * ROWS + p + len(self._parts.gammas)) * self._stride, np.float64),
            np.ascontiguousarray(given), np.zeros(len(given)) if w is None else w, wide[0], forth, wide[1],
        )  # fmt: skip
        back += wide[1, :, : self.n_rows].T
        return forth


def _ends(sizes: Sequence[int]) -> np.ndarray:
    """Return where parts of these sizes begin, one after the other, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
