"""Rank-one base kernels, one per feature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy import sparse

from ..validation import entries_of
from .base import KernelFamily, Rows, distinct, subtract_shift

CONSTANT = -1
"""Position of the constant feature in `columns`."""

COMBINED_ROWS = 512
"""Number of sparse rows that `combine` computes at once."""


class FeatureFamily(KernelFamily):
    r"""Rank-one kernels, one per feature, to learn weights of features.

    .. math:: K_k(x, x') = x_k \, x'_k, \qquad K_k = v_k v_k^\top

    with :math:`v_k` the k-th column of the data.

    Parameters
    ----------
    features : int or sequence of str
        Number of features, or their names.
    columns : sequence of int, optional
        Column of the data for each feature, by default in order; -1 is a feature of
        ones.

    Raises
    ------
    ValueError
        There are no features, a name is repeated, or `columns` has a different length.

    Notes
    -----
    Statistics are computed without tiles, and a learned kernel is one product. In a
    union, the cost is quadratic in the number of features. A constant feature gets
    weight zero.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.2.
    """

    kind = "feature"

    def __init__(
        self,
        features: int | Sequence[str],
        columns: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        self._names = _names_of(features)
        if columns is None:
            self.columns = np.arange(len(self._names))
        else:
            self.columns = np.asarray(columns, dtype=np.intp)
        if not self._names:
            raise ValueError("features must name at least one feature, got none.")
        if len(set(self._names)) < len(self._names):
            repeated_name, _ = Counter(self._names).most_common(1)[0]
            raise ValueError(
                f"features must have distinct names, got {repeated_name!r} more than once."
            )
        if len(self.columns) != len(self._names):
            raise ValueError(
                f"columns must have one entry per feature, got {len(self.columns)} for {len(self._names)} features."
            )

    def _parameters(self) -> dict[str, Any]:
        p = self.n_kernels
        return {
            "features": p if self._names == _numbered(p) else self._names,
            "columns": None
            if np.array_equal(self.columns, np.arange(p))
            else self.columns.tolist(),
        }

    @classmethod
    def with_constant(
        cls,
        features: int | Sequence[str],
        columns: Sequence[int] | np.ndarray | None = None,
    ) -> Self:
        """Return a family of the features and a last, constant feature 1."""
        family = cls(features, columns)
        return cls(
            distinct([*family.names, "constant"]), [*family.columns.tolist(), CONSTANT]
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def origins(self, origin: np.ndarray) -> np.ndarray:
        """Return the entry of `origin`, the point subtracted from rows, for each feature; 0 if constant."""
        return np.where(self.columns == CONSTANT, 0.0, origin[self.columns])

    def take(self, A: Rows) -> Rows:
        """Return the p columns of rows A that have a base kernel, shape (a, p)."""
        last = int(self.columns.max())
        if last >= A.shape[1] or self.columns.min() < CONSTANT:
            raise ValueError(
                f"X must have the columns of the features, up to column {last}, got {A.shape[1]} columns; "
                "give the family as many features as the data have."
            )
        if len(self.columns) == A.shape[1] and np.array_equal(
            self.columns, np.arange(A.shape[1])
        ):
            return A
        if self.columns.min() != CONSTANT:
            return A[:, self.columns]
        if sparse.issparse(A):
            with_ones = sparse.hstack(
                [A, np.ones((A.shape[0], 1), dtype=A.dtype)], format="csr"
            )
            return with_ones[
                :, np.where(self.columns == CONSTANT, A.shape[1], self.columns)
            ]
        features = A[:, self.columns]
        features[:, self.columns == CONSTANT] = 1.0
        return features

    def _dense_features(self, A: Rows) -> np.ndarray:
        features = self.take(A)
        if sparse.issparse(features):
            features = features.toarray()
        return np.asarray(features).T

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        left = self._dense_features(A)
        right = left if A is B else self._dense_features(B)
        return subtract_shift(left[:, :, None] * right[:, None, :], shift)

    def diag(self, A: Rows) -> np.ndarray:
        return self._dense_features(A) ** 2

    def subset(self, kernels: Sequence[int]) -> FeatureFamily:
        return FeatureFamily(
            [self._names[k] for k in kernels], self.columns[list(kernels)]
        )

    def combine(self, coefficients: np.ndarray, A: Rows, B: Rows) -> np.ndarray:
        """Return the weighted kernel sum between rows A and B, shape (a, b)."""
        left = self.take(A)
        right = left if A is B else self.take(B)
        if not sparse.issparse(left):
            return np.asarray((left * coefficients) @ right.T)
        K = np.empty((left.shape[0], right.shape[0]))
        weighted = left.multiply(coefficients[None, :]).tocsr()
        transposed = right.T.tocsr()
        for start in range(0, left.shape[0], COMBINED_ROWS):
            rows = slice(start, start + COMBINED_ROWS)
            K[rows] = (weighted[rows] @ transposed).toarray()
        return K


def _names_of(features: Any) -> tuple[str, ...]:
    if isinstance(features, int | np.integer):
        return _numbered(features)
    if isinstance(features, str):
        return (features,)
    if isinstance(features, Real):
        raise ValueError(
            f"features must be a number of features or a sequence of names, got {features}."
        )
    return tuple(map(str, entries_of("features", features, "names")))


def _numbered(p: int | np.integer) -> tuple[str, ...]:
    return tuple(f"feature {k}" for k in range(p))
