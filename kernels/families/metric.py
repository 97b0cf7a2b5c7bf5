"""Base kernels in another metric: on linear maps of the features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from learnkernels.kernels.families.base import KernelFamily, Rows, family_from_dict
from learnkernels.kernels.families.mapped import MappedFamily
from learnkernels.kernels.families.scaled import scaled_columns
from learnkernels.kernels.fields import Fields, list_of, number, text


class MetricFamily(MappedFamily):
    r"""Base kernels in a metric of their own: of features that are weighed, or mapped by a matrix.

    .. math:: K_k(x, x') = K^0_k(A^\top x, \, A^\top x'), \qquad
              \lVert A^\top (x - x') \rVert^2 = (x - x')^\top A A^\top (x - x')

    Parameters
    ----------
    base : KernelFamily
        p base kernels :math:`K^0_k`.
    map : ndarray of shape (d,) or (d, r)
        A, finite: one weight a feature, zero for a feature that is left out, or what each of r new features takes of
        the d given ones. Not modified.
    label : str, default "metric"
        What the metric is called in the names of the kernels.

    Raises
    ------
    ValueError
        `map` is not such an array, or zero; in use, rows do not have d features.

    Notes
    -----
    A tile costs that of the base kernels, and ``(a + b) d r`` products. Sparse rows stay sparse under weights, and
    become dense under a matrix.
    """

    kind = "metric"

    def __init__(self, base: KernelFamily, map: np.ndarray | Sequence[Any], label: str = "metric") -> None:
        self.base = base
        self.map = np.array(map, dtype=np.float64)
        self.label = label
        if self.map.ndim not in (1, 2) or not np.isfinite(self.map).all() or not self.map.any():
            raise ValueError(
                "map must hold one finite weight a feature, or a finite matrix of features by new features, not all "
                f"zero, got an array of shape {self.map.shape}."
            )

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        flat, shape = fields.get("map", list_of(number)), fields.get("shape", list_of(number))
        given = tuple(int(size) for size in shape)
        if np.prod(given) != len(flat):
            fields.refuse("map", f"{np.prod(given):.0f} numbers", flat)
        return cls(fields.get("base", family_from_dict), np.reshape(flat, given), fields.get("label", text))

    def to_dict(self) -> dict[str, Any]:
        """Return the family as plain data; the map row by row, and its shape."""
        data = super().to_dict()
        return {**data, "map": self.map.ravel().tolist(), "shape": list(self.map.shape)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{name} in {self.label}" for name in self.base.names)

    def mapped_once(self, X: Rows) -> tuple[KernelFamily, Rows]:
        return super().mapped_once(X) if self.map.ndim == 2 else (self, X)

    def n_mapped(self, d: int) -> int:
        return self.base.n_mapped(self.map.shape[1] if self.map.ndim == 2 else d)

    @property
    def translation_invariant(self) -> bool:
        return self.base.translation_invariant

    @property
    def translates(self) -> bool:
        return self.base.translates

    @property
    def takes_sparse(self) -> bool:
        return self.base.takes_sparse

    def mapped(self, A: Rows) -> Rows:
        """Return the rows in the metric, new and of the dtype of `A`."""
        if A.shape[1] != len(self.map):
            raise ValueError(f"X must have the {len(self.map)} features that the metric is for, got {A.shape[1]}.")
        map_ = self.map.astype(A.dtype, copy=False)
        return np.asarray(A @ map_) if map_.ndim == 2 else scaled_columns(A, map_)

    def _with(self, base: KernelFamily) -> MetricFamily:
        return MetricFamily(base, self.map, self.label)
