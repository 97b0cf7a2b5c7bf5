"""Rank-one base kernels, one per feature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy import sparse

from ..parameters import entries_of
from .base import KernelFamily, Rows, distinct, less

CONSTANT = -1
"""Column of the feature that is one on every row."""

COMBINED_ROWS = 512
"""Rows of the result that `combine` forms at once from sparse rows."""


class FeatureFamily(KernelFamily):
    r"""Rank-one kernels, one per feature, so that learning the kernel weights the features.

    .. math:: K_k(x, x') = x_k \, x'_k, \qquad K_k = v_k v_k^\top

    with :math:`v_k` the k-th column of the data: thousands of n-grams are thousands of base kernels.

    Parameters
    ----------
    features : int or sequence of str
        Number of the features, or the name of each; names are distinct.
    columns : sequence of int, optional
        Column of the data that each feature is; by default the first feature is the first column and so on. -1 is a
        feature that is one on every row, for base kernels that are not centered.

    Raises
    ------
    ValueError
        No feature is given, a name is given twice, or `columns` has another length.

    Notes
    -----
    `gram_statistics` takes the statistics of this family from the features themselves, without any tile, and a learned
    kernel is one product of weighted features. In a union with other families it is evaluated by tiles like those, at
    a cost that grows with the square of the number of features: for hundreds at most.

    A feature that is constant on the training rows gets weight zero; n-grams that only other rows hold are normal.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.2: rank-one kernels of the most frequent bigrams.
    """

    kind = "feature"

    def __init__(self, features: int | Sequence[str], columns: Sequence[int] | np.ndarray | None = None) -> None:
        self._names = _names_of(features)
        self.columns = np.arange(len(self._names)) if columns is None else np.asarray(columns, dtype=np.intp)
        if not self._names:
            raise ValueError("features must name at least one feature, got none.")
        if len(set(self._names)) < len(self._names):
            twice = Counter(self._names).most_common(1)[0][0]
            raise ValueError(f"features must have distinct names, got {twice!r} more than once.")
        if len(self.columns) != len(self._names):
            raise ValueError(
                f"columns must have one entry per feature, got {len(self.columns)} for {len(self._names)} features."
            )

    def _parameters(self) -> dict[str, Any]:
        p = self.n_kernels
        return {
            "features": p if self._names == _numbered(p) else self._names,
            "columns": None if np.array_equal(self.columns, np.arange(p)) else self.columns.tolist(),
        }

    def _resolved(self) -> dict[str, Any]:
        return {"features": self._names, "columns": self.columns}

    @classmethod
    def with_constant(cls, features: int | Sequence[str], columns: Sequence[int] | np.ndarray | None = None) -> Self:
        """Return the features, and after them one that is one on every row; see `ConstantFamily`."""
        family = cls(features, columns)
        return cls(distinct([*family.names, "constant"]), [*family.columns.tolist(), CONSTANT])

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def origins(self, origin: np.ndarray) -> np.ndarray:
        """Return what each feature is moved by where rows are moved by `origin`, shape (p,)."""
        return np.where(self.columns == CONSTANT, 0.0, origin[self.columns])

    def take(self, A: Rows) -> Rows:
        """Return the columns of the rows that the features are, shape (a, p), dense or CSR as `A` is.

        Raises
        ------
        ValueError
            A feature lies beyond the columns of `A`.
        """
        last = int(self.columns.max())
        if last >= A.shape[1] or self.columns.min() < CONSTANT:
            raise ValueError(
                f"X must have the columns of the features, up to column {last}, got {A.shape[1]} columns; "
                "give the family as many features as the data have."
            )
        if len(self.columns) == A.shape[1] and np.array_equal(self.columns, np.arange(A.shape[1])):
            return A
        if self.columns.min() != CONSTANT:
            return A[:, self.columns]
        if sparse.issparse(A):
            wide = sparse.hstack([A, np.ones((A.shape[0], 1), dtype=A.dtype)], format="csr")
            return wide[:, np.where(self.columns == CONSTANT, A.shape[1], self.columns)]
        taken = A[:, self.columns]
        taken[:, self.columns == CONSTANT] = 1.0
        return taken

    def _columns_of(self, A: Rows) -> np.ndarray:
        """Return the features of the rows as a dense array, shape (p, a)."""
        taken = self.take(A)
        return np.asarray(taken.toarray() if sparse.issparse(taken) else taken).T

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        V = self._columns_of(A)
        return less(V[:, :, None] * (V if A is B else self._columns_of(B))[:, None, :], shift)

    def diag(self, A: Rows) -> np.ndarray:
        return self._columns_of(A) ** 2

    def subset(self, kernels: Sequence[int]) -> FeatureFamily:
        return FeatureFamily([self._names[k] for k in kernels], self.columns[list(kernels)])

    def combine(self, coefficients: np.ndarray, A: Rows, B: Rows) -> np.ndarray:
        """Return ``sum_k coefficients_k K_k(A_i, B_j)``, shape (a, b), as one product of weighted features.

        Parameters
        ----------
        coefficients : ndarray of shape (p,)
            One per feature.
        A, B : ndarray or CSR matrix of shape (a, d) and (b, d)
            Rows; not modified.

        Notes
        -----
        ``2 a b p`` flops, for sparse rows only where both have the feature; memory is that of the result.
        """
        same = A is B
        A = self.take(A)
        B = A if same else self.take(B)
        if not sparse.issparse(A):
            return np.asarray((A * coefficients) @ B.T)
        K = np.empty((A.shape[0], B.shape[0]))
        weighted = A.multiply(coefficients[None, :]).tocsr()
        right = B.T.tocsr()
        for i in range(0, A.shape[0], COMBINED_ROWS):
            K[i : i + COMBINED_ROWS] = (weighted[i : i + COMBINED_ROWS] @ right).toarray()
        return K


def _names_of(features: Any) -> tuple[str, ...]:
    """Return the name of each feature, of which the number, the names or the only name is given."""
    if isinstance(features, int | np.integer):
        return _numbered(features)
    if isinstance(features, str):
        return (features,)
    if isinstance(features, Real):
        raise ValueError(f"features must be a number of features or a sequence of names, got {features}.")
    return tuple(map(str, entries_of("features", features, "names")))


def _numbered(p: int | np.integer) -> tuple[str, ...]:
    return tuple(f"feature {k}" for k in range(p))
