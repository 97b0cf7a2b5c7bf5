"""Base kernels given as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from ..centering import as_gram_matrices, as_numbers
from .base import KernelFamily, Rows

SAMPLE = 32

Positions: TypeAlias = "slice | np.ndarray"
"""A slice if contiguous, to read a mapped file in order."""


class PrecomputedFamily(KernelFamily):
    """Precomputed kernels: matrices over the n rows of a data set.

    A row of `X`, of shape (m, 1), is the position of a row of that data set.

    Parameters
    ----------
    matrices : ndarray of shape (p, n, n), or sequence of p matrices of shape (n, n)
        Matrices; arrays of float32 and float64, also memory-mapped, are not copied.
    names : sequence of str, optional
        One name per matrix; by default numbers.
    kernels : sequence of int, optional
        Positions of the matrices that are base kernels; by default all.

    Raises
    ------
    ValueError
        A matrix is not square, symmetric and finite on a sample of rows, shapes or
        labels differ between matrices, or `names` or `kernels` are invalid.

    Notes
    -----
    Symmetry is checked up to the square root of the rounding, relative to the largest
    value.
    """

    takes_sparse = False

    def __init__(
        self,
        matrices: np.ndarray | Sequence[np.ndarray] = (),
        names: Sequence[str] | None = None,
        kernels: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        self.matrices = _as_arrays(matrices)
        self._n = _common_size([matrix.shape for matrix in self.matrices])
        p = len(self.matrices)
        if names is None:
            names = [f"matrix {k}" for k in range(p)]
        self._names = tuple(names)
        if len(self._names) != p:
            raise ValueError(
                f"names must have one entry per matrix, got {len(self._names)} for {p}."
            )
        if kernels is None:
            kernels = np.arange(p)
        self.kernels = np.asarray(kernels, dtype=np.intp)
        if (
            not len(self.kernels)
            or not ((self.kernels >= 0) & (self.kernels < p)).all()
        ):
            raise ValueError(
                f"kernels must be positions from 0 to {p - 1}, at least one, got {self.kernels.tolist()}."
            )
        self._require_symmetry()

    def _require_symmetry(self) -> None:
        X = self.X[np.unique(np.linspace(0, self._n - 1, SAMPLE).astype(np.intp))]
        K = self.tile(X, X)
        tolerance = np.sqrt(max(np.finfo(matrix.dtype).eps for matrix in self.matrices))
        differences = np.abs(K - K.transpose(0, 2, 1)).max(axis=(1, 2))
        asymmetric = differences > tolerance * np.abs(K).max(axis=(1, 2))
        if asymmetric.any():
            name = self.names[int(asymmetric.argmax())]
            raise ValueError(
                f"matrix {name!r} is not symmetric; a kernel's matrix is, for example (K + K.T) / 2."
            )

    def _parameters(self) -> dict[str, Any]:
        return {
            "matrices": self.matrices,
            "names": self._names,
            "kernels": self.kernels,
        }

    def __repr__(self) -> str:
        return f"PrecomputedFamily(<{self.n_kernels} matrices of {self._n} rows>)"

    def _values(self) -> tuple[Any, ...]:
        return id(self.matrices), self.kernels.tobytes(), self.names

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._names[k] for k in self.kernels)

    @property
    def n_rows(self) -> int:
        """Number n of data-set rows over which the matrices are given."""
        return self._n

    @property
    def X(self) -> np.ndarray:
        """Positions of all rows, shape (n, 1): the input X for estimators."""
        return np.arange(self._n, dtype=np.float64)[:, None]

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        """Return the entries of each matrix at positions A and B, shape (p, a, b)."""
        rows = _as_slice(self._positions(A))
        columns = rows if A is B else _as_slice(self._positions(B))
        K = np.empty((self.n_kernels, A.shape[0], B.shape[0]))
        for k, kernel in enumerate(self.kernels):
            matrix = self.matrices[kernel]  # may be a mapped file, so slices come first
            if isinstance(rows, slice):
                K[k] = matrix[rows][:, columns]
            elif isinstance(columns, slice):
                K[k] = matrix[:, columns][rows]
            else:
                K[k] = matrix[np.ix_(rows, columns)]
        self._require_finite(K)
        if shift is not None:
            K -= shift[:, None, None]
        return K

    def check_rows(self, X: Rows) -> None:
        self._positions(X)

    def diag(self, A: Rows) -> np.ndarray:
        rows = self._positions(A)
        K = np.array(
            [self.matrices[kernel][rows, rows] for kernel in self.kernels],
            dtype=np.float64,
        )
        self._require_finite(K)
        return K

    def subset(self, kernels: Sequence[int]) -> PrecomputedFamily:
        family = copy(self)
        family.kernels = self.kernels[list(kernels)]
        return family

    def _positions(self, A: Rows) -> np.ndarray:
        if sparse.issparse(A) or A.ndim != 2 or A.shape[1] != 1:
            raise ValueError(
                f"X must be a column of row positions, shape (m, 1), as the kernels are matrices; got shape {A.shape}."
            )
        positions = np.asarray(A)[:, 0]
        # NaN and infinity fail the comparisons
        wrong = ~(
            (positions >= 0)
            & (positions < self._n)
            & (positions == np.floor(positions))
        )
        if wrong.any():
            raise ValueError(
                f"X must hold row positions, whole numbers from 0 to {self._n - 1}, got {positions[wrong][0]:g}; "
                "matrices have no values for rows outside them."
            )
        return positions.astype(np.intp)

    def _require_finite(self, K: np.ndarray) -> None:
        if not np.isfinite(K).all():
            first = next(
                k for k, values in enumerate(K) if not np.isfinite(values).all()
            )
            raise ValueError(
                f"matrix {self.names[first]!r} holds NaN or infinity; correct it or leave it out."
            )


def _as_arrays(matrices: Any) -> Any:
    """Return float32 or float64 arrays, uncopied if possible."""
    if hasattr(matrices, "shape"):
        if len(matrices.shape) != 3:
            raise ValueError(
                "matrices must be an array of shape (p, n, n) or p arrays of shape (n, n), got one of shape "
                f"{matrices.shape}; put a single matrix into a list."
            )
        return as_numbers(matrices, "matrices")
    entries = list(matrices)
    arrays = as_gram_matrices(
        (f"matrix {k}", matrix) for k, matrix in enumerate(entries)
    )
    if all(array is matrix for array, matrix in zip(arrays, entries, strict=True)):
        return matrices
    return arrays


def _common_size(shapes: Sequence[tuple[int, ...]]) -> int:
    expected = (
        "matrices must be an array of shape (p, n, n) or p arrays of shape (n, n)"
    )
    if not shapes or not all(shapes[0]):
        raise ValueError(
            f"{expected}, got none; give at least one matrix, of at least one row."
        )
    n = shapes[0][0]
    for k, shape in enumerate(shapes):
        if shape != (n, n):
            others = f" and {shapes[0]} of matrix 0" if k else ""
            raise ValueError(f"{expected}, got shape {shape} of matrix {k}{others}.")
    return n


def _as_slice(positions: np.ndarray) -> Positions:
    if len(positions) and (np.diff(positions) == 1).all():
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions
