"""The constant base kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learnkernels.kernels.families.base import KernelFamily, Rows


class ConstantFamily(KernelFamily):
    """The kernel that is one for every pair of rows, a family of one: K(x, x') = 1.

    Notes
    -----
    Beside base kernels that are not centered it is what an intercept is beside centered ones, but penalised and weighed
    like any other base kernel. Once centered it is zero, and refused. Of rank one, beside thousands of features, it is
    one more of them: `FeatureFamily.with_constant`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *L2 regularization for learning kernels*, UAI, section 5.2; (2009), *Learning
    non-linear combinations of kernels*, NIPS 22, section 4.2: a constant feature as offset.
    """

    kind = "constant"

    @property
    def names(self) -> tuple[str, ...]:
        return ("constant",)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return np.full((1, A.shape[0], B.shape[0]), 1.0 if shift is None else 1.0 - shift[0], dtype=A.dtype)

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        out[...] = 1.0 - shift[0]

    @property
    def translation_invariant(self) -> bool:
        return True

    def diag(self, A: Rows) -> np.ndarray:
        return np.ones((1, A.shape[0]))

    def subset(self, kernels: Sequence[int]) -> ConstantFamily:
        if list(kernels) != [0]:
            raise ValueError(f"kernels must be [0], the only kernel of a constant family, got {list(kernels)}.")
        return self
