"""The linear base kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learnkernels.kernels.families.base import KernelFamily, Rows, inner_products, squared_norms


class LinearFamily(KernelFamily):
    r"""The linear kernel, a family of one, for what is a weighted sum of the features: :math:`K(x, x') = x \cdot x'`.

    Notes
    -----
    Centering this kernel is the same as centering the features.
    """

    kind = "linear"

    @property
    def names(self) -> tuple[str, ...]:
        return ("linear",)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        K = inner_products(A, B)[None]
        if shift is not None:
            K -= shift[:, None, None]
        return K

    @property
    def translates(self) -> bool:
        return True

    def diag(self, A: Rows) -> np.ndarray:
        return squared_norms(A)[None]

    def subset(self, kernels: Sequence[int]) -> LinearFamily:
        if list(kernels) != [0]:
            raise ValueError(f"kernels must be [0], the only kernel of a linear family, got {list(kernels)}.")
        return self
