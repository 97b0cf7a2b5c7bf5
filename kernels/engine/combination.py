"""A weighted sum of base kernels, evaluated without the base kernels: a tile at a time, in one compiled step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import local
from typing import Any

import numpy as np

from learnkernels.kernels.centering import mirror
from learnkernels.kernels.engine.passes import block_rows_for
from learnkernels.kernels.engine.weighing import combine_tile
from learnkernels.kernels.engine.workers import over_tiles
from learnkernels.kernels.families.base import KernelFamily, Rows, TilePlan
from learnkernels.kernels.families.feature import FeatureFamily


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
        """Base kernels to go through, with coefficients and shifts: those of weight, or a run of a grid that has them.

        On a grid of powers of two a base kernel in between costs a product a pair, a new start an exponential.
        """
        active = np.flatnonzero(self.coefficients)
        if not len(active):
            active = np.arange(1)
        family, kernels, run = self.family.subset(active.tolist()), active, np.arange(active[0], active[-1] + 1)
        if len(run) > len(active) and family.n_seeds > 1:
            whole = self.family.subset(run.tolist())
            if whole.n_seeds < family.n_seeds:
                family, kernels = whole, run
        return family, self.coefficients[kernels], self.shift[kernels]

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

    def diagonal(self, A: Rows) -> np.ndarray:
        """Return the kernel of each row with itself, shape (a,)."""
        family, coefficients, shift = self.evaluated
        return np.asarray(coefficients @ family.diag(A) - coefficients @ shift)
