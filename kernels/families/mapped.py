"""Base kernels of new features, whatever these are made by."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from learnkernels.kernels.compiled.distances import Differences
from learnkernels.kernels.families.base import KernelFamily, Rows, TilePlan


class MappedFamily(KernelFamily):
    """Base of families whose base kernels are those of another one, `base`, on new features of the rows.

    A subclass has `mapped` and `_with`, and says what moving all rows leaves as it is.
    """

    base: KernelFamily

    @abstractmethod
    def mapped(self, A: Rows) -> Rows:
        """Return the new features of rows, new and of the dtype of `A`; ValueError for other rows than these."""

    @abstractmethod
    def _with(self, base: KernelFamily) -> Self:
        """Return the same new features with other base kernels."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.base.names

    @property
    def n_kernels(self) -> int:
        return self.base.n_kernels

    @property
    def kernel_views(self) -> tuple[str | None, ...]:
        return self.base.kernel_views

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        A_mapped = self.mapped(A)
        return self.base.tile(A_mapped, A_mapped if A is B else self.mapped(B), shift)

    def plan(self, shift: np.ndarray) -> TilePlan:
        return self.base.plan(shift)

    @property
    def n_seeds(self) -> int:
        return self.base.n_seeds

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        A_mapped = self.mapped(A)
        self.base.fill_seeds(A_mapped, A_mapped if A is B else self.mapped(B), shift, out)

    def side(self, A: Rows, right: Any = None, dtype: Any = np.float64) -> Any:
        return self.base.side(self.mapped(A), right, dtype)

    def fill_between(self, left: Any, right: Any, shift: np.ndarray, out: np.ndarray) -> None:
        self.base.fill_between(left, right, shift, out)

    def filled_up(self) -> tuple[Self, np.ndarray]:
        base, at = self.base.filled_up()
        return self._with(base), at

    def mapped_once(self, X: Rows) -> tuple[KernelFamily, Rows]:
        return self.base.mapped_once(self.mapped(X))

    def differences(self, A: Rows) -> list[Differences] | None:
        return self.base.differences(self.mapped(A))

    def diag(self, A: Rows) -> np.ndarray:
        return self.base.diag(self.mapped(A))

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(self.base.subset(kernels))
