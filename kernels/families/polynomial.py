"""Polynomial base kernels over a set of degrees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from learnkernels.kernels.families.base import KernelFamily, Rows, inner_products, squared_norms
from learnkernels.kernels.fields import Fields, list_of, number, whole


class PolynomialFamily(KernelFamily):
    r"""Polynomial kernels, one a degree: products of up to so many features.

    .. math:: K_r(x, x') = (\gamma \, x \cdot x' + c)^r

    Parameters
    ----------
    degrees : sequence of int
        Degrees r, each at least 1. Order is kept.
    gamma : float, default 1
        Scale of the inner product, positive.
    coef0 : float, default 1
        The constant c, not negative: a negative one does not give a positive semi-definite kernel.

    Raises
    ------
    ValueError
        No degree is given, or a parameter is outside its range.

    Notes
    -----
    One product a pair serves all degrees; unlike a radial kernel it does change when features are moved.
    """

    kind = "polynomial"

    def __init__(self, degrees: Sequence[int], gamma: float = 1.0, coef0: float = 1.0) -> None:
        self.degrees = tuple(int(degree) for degree in degrees)
        self.gamma = float(gamma)
        self.coef0 = float(coef0)
        if not self.degrees:
            raise ValueError("degrees must name at least one degree, got an empty list.")
        if min(self.degrees) < 1 or any(r != given for r, given in zip(self.degrees, degrees, strict=True)):
            raise ValueError(f"degrees must be whole numbers of at least 1, got {list(degrees)}.")
        if not (0.0 < self.gamma < np.inf):
            raise ValueError(f"gamma must be positive and finite, got {gamma:g}.")
        if not (0.0 <= self.coef0 < np.inf):
            raise ValueError(f"coef0 must be finite and not negative, got {coef0:g}.")

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        return cls(fields.get("degrees", list_of(whole)), fields.get("gamma", number), fields.get("coef0", number))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"polynomial(degree={r}, gamma={self.gamma:g}, coef0={self.coef0:g})" for r in self.degrees)

    def _powers(self, inner: np.ndarray) -> np.ndarray:
        base = self.gamma * inner + self.coef0
        return np.stack([base**r for r in self.degrees])

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        K = self._powers(inner_products(A, B))
        if shift is not None:
            K -= shift[:, None, None]
        return K

    def diag(self, A: Rows) -> np.ndarray:
        return self._powers(squared_norms(A))

    def subset(self, kernels: Sequence[int]) -> PolynomialFamily:
        return PolynomialFamily([self.degrees[k] for k in kernels], self.gamma, self.coef0)
