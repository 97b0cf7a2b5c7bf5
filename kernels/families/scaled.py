"""One base kernel on features in several units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse

from learnkernels.kernels.compiled.distances import Differences, joined_differences
from learnkernels.kernels.families.base import KernelFamily, Rows, TilePlan, distinct, family_from_dict
from learnkernels.kernels.families.sides import Sides, part_of
from learnkernels.kernels.fields import Fields, list_of, number, text


class ScaledFamily(KernelFamily):
    r"""One base kernel on rescaled features: p kernels, each with its own scale a feature.

    .. math:: K_k(x, x') = K(s_k \circ x, \, s_k \circ x')

    Parameters
    ----------
    base : KernelFamily
        A family of exactly one kernel K.
    scales : ndarray of shape (p, d)
        :math:`s_k`, what kernel k multiplies each feature with, in units of one over the feature (where K is without
        units); each positive and finite. Not modified.
    names : sequence of str, optional
        One name a kernel; names that appear again are numbered. By default the range of the scales.

    Raises
    ------
    ValueError
        `base` holds another number of kernels, `scales` is not such a matrix, or `names` has another length; in use,
        rows do not have d features.

    Notes
    -----
    A tile costs p times that of the base kernel, and ``p (a + b) d`` products. Sparse rows stay sparse.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Alignment based kernel learning with a continuous set of base kernels,
    Machine Learning 91:305-324, section 3.1: a Gaussian with a bandwidth a feature is one on scaled features.
    """

    kind = "scaled"

    def __init__(
        self, base: KernelFamily, scales: np.ndarray | Sequence[Sequence[float]], names: Sequence[str] | None = None
    ) -> None:
        self.base = base
        self.scales = np.array(scales, dtype=np.float64)
        if base.n_kernels != 1:
            raise ValueError(f"base must hold exactly one kernel, got {base.n_kernels}; give one family for each.")
        if self.scales.ndim != 2 or not self.scales.size:
            raise ValueError(f"scales must be a matrix, kernels by features, got shape {self.scales.shape}.")
        wrong = ~((self.scales > 0) & np.isfinite(self.scales))
        if wrong.any():
            k, c = np.argwhere(wrong)[0]
            raise ValueError(
                f"scales must be positive and finite, got {self.scales[k, c]:g} for feature {c} of kernel {k}; leave a "
                "feature out by choosing columns."
            )
        names = self._ranges() if names is None else names
        if len(names) != len(self.scales):
            raise ValueError(f"names must have one entry a kernel, got {len(names)} for {len(self.scales)}.")
        self._names = distinct(names)

    def _parameters(self) -> dict[str, Any]:
        given = self._names != distinct(self._ranges())
        return {"base": self.base, "scales": self.scales, "names": self._names if given else None}

    def _resolved(self) -> dict[str, Any]:
        return {"base": self.base, "scales": self.scales, "names": self._names}

    def _ranges(self) -> list[str]:
        """Return the names by default."""
        return [f"{self.base.names[0]} scaled {readable_range(s)}" for s in self.scales]

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        scales = fields.get("scales", list_of(list_of(number)))
        if len({len(row) for row in scales}) > 1:
            fields.refuse("scales", "rows of one length", scales)
        return cls(fields.get("base", family_from_dict), scales, fields.get("names", list_of(text)))

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        K = np.empty((self.n_kernels, A.shape[0], B.shape[0]), dtype=A.dtype)
        for k in range(self.n_kernels):
            A_k = self._scaled(A, k)
            K[k] = self.base.tile(A_k, A_k if A is B else self._scaled(B, k), _part(shift, k))[0]
        return K

    def plan(self, shift: np.ndarray) -> TilePlan:
        return TilePlan.joined([self.base.plan(shift[k : k + 1]) for k in range(self.n_kernels)])

    @property
    def n_seeds(self) -> int:
        return self.n_kernels * self.base.n_seeds

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        n = self.base.n_seeds
        for k in range(self.n_kernels):
            A_k = self._scaled(A, k)
            B_k = A_k if A is B else self._scaled(B, k)
            self.base.fill_seeds(A_k, B_k, shift[k : k + 1], out[n * k : n * (k + 1)])

    def side(self, A: Rows, right: Any = None, dtype: Any = np.float64) -> Sides:
        kernels = range(self.n_kernels)
        return Sides(tuple(self.base.side(self._scaled(A, k), part_of(right, k), dtype) for k in kernels))

    def fill_between(self, left: Sides, right: Sides, shift: np.ndarray, out: np.ndarray) -> None:
        n = self.base.n_seeds
        for k, (A, B) in enumerate(zip(left.of, right.of, strict=True)):
            self.base.fill_between(A, B, shift[k : k + 1], out[n * k : n * (k + 1)])

    def differences(self, A: Rows) -> list[Differences] | None:
        return joined_differences(self.base.differences(self._scaled(A, k)) for k in range(self.n_kernels))

    @property
    def translation_invariant(self) -> bool:
        return self.base.translation_invariant

    @property
    def translates(self) -> bool:
        return self.base.translates

    def diag(self, A: Rows) -> np.ndarray:
        return np.concatenate([self.base.diag(self._scaled(A, k)) for k in range(self.n_kernels)])

    def subset(self, kernels: Sequence[int]) -> ScaledFamily:
        return ScaledFamily(self.base, self.scales[list(kernels)], [self._names[k] for k in kernels])

    def _scaled(self, A: Rows, k: int) -> Rows:
        """Return the rows as kernel k sees them, new and of the dtype of `A`."""
        d = self.scales.shape[1]
        if A.shape[1] != d:
            raise ValueError(f"X must have the {d} features that the kernels have scales for, got {A.shape[1]}.")
        return scaled_columns(A, self.scales[k].astype(A.dtype, copy=False))


def scaled_columns(A: Rows, scale: np.ndarray) -> Rows:
    """Return new rows whose columns are multiplied by `scale`; sparse ones stay so, with the same entries."""
    if not sparse.issparse(A):
        return A * scale
    scaled = A.copy()
    scaled.data *= scale[A.indices]
    return scaled


def _part(shift: np.ndarray | None, k: int) -> np.ndarray | None:
    return None if shift is None else shift[k : k + 1]


def readable_range(values: np.ndarray) -> str:
    """Return the least and the largest of some values with three digits: ``0.3..4.1``, or one where both read alike."""
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low}..{high}"
