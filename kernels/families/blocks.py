"""Linear kernels on blocks of columns, such as counts of n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from ..validation import entries_of
from .base import KernelFamily, Rows, inner_products, squared_norms, subtract_shift

LARGEST_LENGTH = 1.0 + 1e-9
"""Largest length of a row's block, with rounding."""


class BlockFamily(KernelFamily):
    r"""Linear kernels, one per block of columns, with rows scaled to unit norm in each block.

    .. math:: K_k(x, x') = x_{(k)} \cdot x'_{(k)}

    with :math:`x_{(k)}` the k-th of b blocks of columns.

    Parameters
    ----------
    blocks : sequence of str
        Names of the b blocks.
    kernels : sequence of int, optional
        Block of each base kernel, as a position; by default all.

    Raises
    ------
    ValueError
        There are no blocks or kernels, a position is invalid, the columns do not divide
        into b blocks, or a block of a training row is longer than one.

    Notes
    -----
    `NGramTransformer` and `WeisfeilerLehmanTransformer` return such rows; their
    attribute `family` is this family. A tile takes one product per block, sparse if
    rows are sparse.
    """

    kind = "block"

    def __init__(
        self,
        blocks: Sequence[str],
        kernels: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        self.blocks = tuple(map(str, entries_of("blocks", blocks, "names of blocks")))
        n_blocks = len(self.blocks)
        if not n_blocks or len(set(self.blocks)) < n_blocks:
            raise ValueError(
                f"blocks must hold distinct names, at least one, got {list(self.blocks)}."
            )
        if kernels is None:
            kernels = range(n_blocks)
        self.kernels = tuple(
            int(block)
            for block in entries_of("kernels", kernels, "positions of blocks")
        )
        if not self.kernels or not set(self.kernels) <= set(range(n_blocks)):
            raise ValueError(
                f"kernels must be positions of blocks from 0 to {n_blocks - 1}, at least one, "
                f"got {list(self.kernels)}."
            )

    def _parameters(self) -> dict[str, Any]:
        has_all_blocks = self.kernels == tuple(range(len(self.blocks)))
        return {
            "blocks": self.blocks,
            "kernels": None if has_all_blocks else self.kernels,
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.blocks[block] for block in self.kernels)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        left = self._blocks_of(A)
        right = left if A is B else self._blocks_of(B)
        products = [
            inner_products(block_of_A, block_of_B)
            for block_of_A, block_of_B in zip(left, right, strict=True)
        ]
        return subtract_shift(np.stack(products), shift)

    def diag(self, A: Rows) -> np.ndarray:
        return np.stack([squared_norms(block) for block in self._blocks_of(A)])

    def check_rows(self, X: Rows) -> None:
        for name, lengths in zip(self.names, np.sqrt(self.diag(X)), strict=True):
            if lengths.max(initial=0.0) > LARGEST_LENGTH:
                raise ValueError(
                    f"rows must have length one in each block of columns, got {lengths.max():.3g} for {name!r}; "
                    "take X and family of one transformer, such as NGramTransformer."
                )

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(kernels=[self.kernels[k] for k in kernels])

    def _blocks_of(self, A: Rows) -> list[Rows]:
        n_blocks = len(self.blocks)
        width, remainder = divmod(A.shape[1], n_blocks)
        if remainder:
            raise ValueError(
                f"X must have {n_blocks} blocks of columns of equal width, got {A.shape[1]} columns; take X and family "
                "of one transformer, such as NGramTransformer."
            )
        return [A[:, block * width : (block + 1) * width] for block in self.kernels]
