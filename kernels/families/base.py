"""Base class of families of kernels, and rows prepared for computing kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from scipy import sparse

from ..base import Parameterized
from ..compiled import Metric

Rows: TypeAlias = Any
"""An ndarray or a CSR matrix of float64."""


@dataclass(frozen=True)
class TilePlan:
    """Recipe to compute a block of each base kernel from few matrices (seeds)."""

    order: np.ndarray  # pairs (kernel, seed), (p, 2); seed -1 for doubling
    half: np.ndarray  # kernel E in E (E + 2), for doubling
    offset: np.ndarray  # constant to add

    @classmethod
    def identity(cls, p: int) -> TilePlan:
        return cls(
            np.repeat(np.arange(p), 2).reshape(p, 2), np.full(p, -1), np.zeros(p)
        )

    @property
    def n_seeds(self) -> int:
        return int(self.order[:, 1].max()) + 1

    @classmethod
    def joined(cls, plans: Sequence[TilePlan]) -> TilePlan:
        orders = []
        halves = []
        n_kernels = 0
        n_seeds = 0
        for plan in plans:
            orders.append(
                np.where(
                    plan.order < 0, -1, plan.order + np.array([n_kernels, n_seeds])
                )
            )
            halves.append(np.where(plan.half < 0, -1, plan.half + n_kernels))
            n_kernels += len(plan.half)
            n_seeds += plan.n_seeds
        return cls(
            np.concatenate(orders),
            np.concatenate(halves),
            np.concatenate([plan.offset for plan in plans]),
        )


FINITE_BLOCK = 1 << 20

FAR = 2.0**22
"""Largest gamma times squared norm for distances by inner products (error 1e-9)."""

ROUNDING = 8
"""Error of a squared distance, in rounding units of both norms."""

KINDS: dict[str, type[KernelFamily]] = {}
"""Families that can be saved, by kind."""


@dataclass(frozen=True)
class PlainRows:
    """Input rows of a family that computes base kernels from the rows, without seed matrices."""

    rows: Rows
    family: KernelFamily
    shift: np.ndarray

    @property
    def n_seeds(self) -> int:
        return self.family.n_kernels

    def __getitem__(self, rows: slice) -> PlainRows:
        return PlainRows(self.rows[rows], self.family, self.shift)

    def fill(self, left: PlainRows, out: np.ndarray) -> None:
        out[...] = self.family.tile(left.rows, self.rows, self.shift)


@dataclass(frozen=True)
class ExpandedRows:
    """Input rows prepared to compute distances from inner products."""

    rows: Rows  # translated if dense
    norms: np.ndarray  # squared
    augmented: np.ndarray | None  # dense rows with a one and their norm
    metric: Metric
    gammas: tuple[float, ...] = ()  # of the exponentials

    @classmethod
    def of(
        cls,
        A: Rows,
        center: np.ndarray | None,
        metric: Metric,
        gammas: Sequence[float] = (),
        dtype: Any = None,
    ) -> Self:
        """Prepare rows A for distances; subtract `center` if dense."""
        rows = A
        if center is not None and not sparse.issparse(A):
            rows = A - center
        if dtype is not None:
            rows = rows.astype(dtype, copy=False)
        norms = squared_norms(rows)
        augmented = (
            None
            if sparse.issparse(A)
            else np.column_stack([rows, np.ones_like(norms), norms])
        )
        return cls(rows, norms, augmented, metric, tuple(gammas))

    @property
    def n_seeds(self) -> int:
        return len(self.gammas)

    def __getitem__(self, rows: slice) -> ExpandedRows:
        augmented = self.augmented
        if augmented is not None:
            augmented = augmented[rows]
        return ExpandedRows(
            self.rows[rows], self.norms[rows], augmented, self.metric, self.gammas
        )

    def fill(self, left: ExpandedRows, out: np.ndarray) -> None:
        # Families work without the compiler
        from ..compiled.distances import (
            exponentiate,
        )

        exponentiate(self.distances(left), self.gammas, out)

    def distances(self, left: ExpandedRows) -> np.ndarray:
        """Return the distances between the rows of `left` and these rows, shape (a, b)."""
        if self.metric == "cityblock" or self._is_far_from(left):
            return self._distances_by_differences(left)
        A = left.rows
        B = self.rows
        if self.augmented is None:
            D = np.asarray(inner_products(A, B) * -2.0, dtype=B.dtype)
            D += left.norms[:, None]
            D += self.norms
        else:
            D = (
                np.column_stack([-2.0 * A, left.norms, np.ones_like(left.norms)])
                @ self.augmented.T
            )
        if D.min(initial=0.0) < 0:  # clipping takes six times as long
            np.maximum(D, 0.0, out=D)
        if left is self:
            np.fill_diagonal(D, 0.0)
        if self.metric == "euclidean":
            rounding = D.dtype.type(ROUNDING * np.finfo(D.dtype).eps)
            D[np.add.outer(rounding * left.norms, rounding * self.norms) > D] = 0.0
            np.sqrt(D, out=D)
        return D

    def _is_far_from(self, left: ExpandedRows) -> bool:
        """Return whether norms are too large for inner products."""
        if self.metric != "squared":
            return False
        largest_norm = max(left.norms.max(initial=0.0), self.norms.max(initial=0.0))
        return bool(largest_norm * max(self.gammas, default=0.0) > FAR)

    def _distances_by_differences(self, left: ExpandedRows) -> np.ndarray:
        """Return distances from differences, exactly zero for equal rows."""
        from ..compiled.distances import (
            distances,
        )

        A = left.rows
        B = self.rows
        if sparse.issparse(A):
            used_columns = np.union1d(A.indices, B.indices)
            A = A[:, used_columns].toarray()
            B = B[:, used_columns].toarray()
        return distances(A, B, self.metric)


class KernelFamily(Parameterized, ABC):
    """Set of p base kernels that are computed together.

    Notes
    -----
    Subclasses implement `names`, `tile`, `diag` and `subset`, and may replace `tile` by
    the faster `operands` and `plan`. Attributes are named like the parameters of
    `__init__`. Families are immutable, and equal if their parameters are. A class with
    its own `kind` can be saved, and loaded once it is imported.

    Computing ``K - shift`` avoids cancellation, as by ``expm1`` for Gaussians.
    """

    kind: ClassVar[str]
    """Name of the class in saved files."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if (
            "kind" in vars(cls)
            and KINDS.setdefault(cls.kind, cls).__module__ == cls.__module__
        ):
            KINDS[cls.kind] = cls  # a module may define the class again
        if _place_of_definition(cls, "tile") < _place_of_definition(cls, "operands"):
            cls.plan = KernelFamily.plan  # type: ignore[method-assign]
            cls.operands = KernelFamily.operands  # type: ignore[method-assign]

    def _with(self, **changes: Any) -> Self:
        return type(self)(**{**self._parameters(), **changes})

    def _brief(self, value: Any) -> str:
        if isinstance(value, float) and "^" in readable(value):
            return readable(value).replace("^", "**")
        return super()._brief(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Readable name of each base kernel, in order."""

    @property
    def n_kernels(self) -> int:
        """Number p of base kernels."""
        return len(self.names)

    @property
    def n_seeds(self) -> int:
        """Number of shared exponentials or products from which all kernels are computed."""
        return self.plan(np.zeros(self.n_kernels)).n_seeds

    @property
    def kernel_views(self) -> tuple[str | None, ...]:
        """Name of each kernel's view (group of columns); None means all columns."""
        return (None,) * self.n_kernels

    @abstractmethod
    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        """Return the matrix of each base kernel between the rows of `A` and `B`.

        Parameters
        ----------
        A, B : ndarray or CSR matrix of shape (a, d) and (b, d)
            Rows; the same object twice marks a diagonal tile.
        shift : ndarray of shape (p,), optional
            Constant to subtract from each kernel.

        Returns
        -------
        K : ndarray of shape (p, a, b)
            ``K_k(A_i, B_j) - shift_k``, freshly allocated.
        """

    def plan(self, shift: np.ndarray) -> TilePlan:
        """Return the recipe to compute base kernels, minus constants, from few seed matrices."""
        return TilePlan.identity(self.n_kernels)

    def operands(
        self,
        A: Rows,
        shift: np.ndarray,
        center: np.ndarray | None = None,
        dtype: Any = None,
    ) -> list[Any]:
        """Prepare rows A to compute kernels with other rows.

        Parameters
        ----------
        A : ndarray or CSR matrix of shape (a, d)
            Rows.
        shift : ndarray of shape (p,)
            Constant to subtract from each kernel.
        center : ndarray of shape (d,), optional
            Row to subtract if the kernels are invariant to translation.
        dtype : dtype, optional
            Precision of the seeds.

        Returns
        -------
        operands : list
            Operands in the order of the seeds. They have `n_seeds`, can be sliced by
            rows, and ``right.fill(left, out)`` writes seeds of shape (n_seeds, a, b).
        """
        if dtype is not None:
            A = A.astype(dtype, copy=False)
        return [PlainRows(A, self, shift)]

    def completed_grid(self) -> tuple[KernelFamily, np.ndarray]:
        """Add bandwidths that save exponentials; return the family and the original kernels' positions.

        Powers of one kernel then replace exponentials.
        """
        return self, np.arange(self.n_kernels)

    def mapped_once(self, X: Rows) -> tuple[KernelFamily, Rows]:
        """Apply the family's feature map to rows X; return kernels without it, and the result."""
        return self, X

    @property
    def translation_invariant(self) -> bool:
        """Whether kernels are invariant to translation of all rows."""
        return False

    @property
    def translates(self) -> bool:
        """Whether centered kernels are invariant to translation of all rows."""
        return self.translation_invariant

    @property
    def takes_sparse(self) -> bool:
        """Whether the kernels accept input rows in a sparse matrix."""
        return True

    @abstractmethod
    def diag(self, A: Rows) -> np.ndarray:
        """Return the diagonal of each base kernel's Gram matrix of rows A, shape (p, a)."""

    def check_rows(self, X: Rows) -> None:
        """Raise ValueError if training rows are invalid for the kernels."""
        return

    @abstractmethod
    def subset(self, kernels: Sequence[int]) -> KernelFamily:
        """Return a family of only the base kernels at the given positions."""


def _place_of_definition(cls: type, name: str) -> int:
    return next(
        position for position, base in enumerate(cls.__mro__) if name in vars(base)
    )


def sides_of_tile(
    operands: Callable[..., list[Any]], A: Rows, B: Rows, shift: np.ndarray
) -> tuple[list[Any], list[Any]]:
    """Prepare rows A and B, minus the mean of B, for kernels between them."""
    center = mean_row(B)
    right = operands(B, shift, center)
    if A is B:
        return right, right
    return operands(A, shift, center), right


def n_mapped(family: KernelFamily, d: int) -> int:
    """Return the number of features after a family's map of d features."""
    operands = family.operands(np.zeros((1, d)), np.zeros(family.n_kernels))
    return max(int(operand.rows.shape[1]) for operand in operands)


def fill_seeds(left: Sequence[Any], right: Sequence[Any], out: np.ndarray) -> None:
    """Write the seed matrices (see `TilePlan`) between prepared rows into `out`."""
    start = 0
    for A, B in zip(left, right, strict=True):
        stop = start + B.n_seeds
        B.fill(A, out[start:stop])
        start = stop


def seeded_tile(
    kind: Any, family: KernelFamily, A: Rows, B: Rows, shift: Any
) -> np.ndarray:
    """Return base kernels between rows A and B, from the seed matrices of class `kind`."""
    if shift is None:
        shift = np.zeros(family.n_kernels)
    plan = kind.plan(family, shift)
    K = np.empty((family.n_kernels, A.shape[0], B.shape[0]), dtype=A.dtype)
    seeds = np.empty((plan.n_seeds, *K.shape[1:]), dtype=A.dtype)
    left, right = sides_of_tile(partial(kind.operands, family), A, B, shift)
    fill_seeds(left, right, seeds)
    for k, seed in plan.order:
        if seed >= 0:
            K[k] = seeds[seed]
        else:
            half = K[plan.half[k]]
            K[k] = half * (half + 2)
    K += plan.offset[:, None, None]
    return K


def subtract_shift(K: np.ndarray, shift: np.ndarray | None) -> np.ndarray:
    if shift is not None:
        K -= shift[:, None, None]
    return K


def require_base_kernels(name: str, family: object) -> None:
    if not isinstance(family, KernelFamily):
        raise ValueError(
            f"{name} must be a family of base kernels, such as GaussianFamily([0.1, 1.0]), got {family!r:.60}."
        )


def readable(value: float) -> str:
    """Return a number as text, powers of two in the form 2^k."""
    mantissa, exponent = np.frexp(value)
    if mantissa == 0.5 and abs(exponent - 1) > 1:
        return f"2^{exponent - 1}"
    return f"{value:.12g}"


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Make names distinct: append numbers to repeated names."""
    used_names = set(names)
    occurrences: dict[str, int] = {}
    distinct_names = []
    for name in names:
        occurrences[name] = occurrences.get(name, 0) + 1
        new_name = name
        if occurrences[name] > 1:
            new_name = f"{name} ({occurrences[name]})"
            while new_name in used_names:
                occurrences[name] += 1
                new_name = f"{name} ({occurrences[name]})"
            used_names.add(new_name)
        distinct_names.append(new_name)
    return tuple(distinct_names)


def as_rows(X: Rows) -> Rows:
    """Return input rows as a finite float64 array or CSR matrix."""
    if sparse.issparse(X):
        rows = X.tocsr().astype(np.float64, copy=False)
        values = rows.data
    else:
        rows = values = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(
            f"X must be two-dimensional, rows by features, got shape {rows.shape}; try X.reshape(-1, 1)."
        )
    if not all_finite(values):
        raise ValueError(
            "X must be finite, got NaN or infinity; impute or drop those rows."
        )
    return rows


def distinct_rows(X: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return first positions of distinct rows, and each row's number among them.

    The order depends only on the values of distinct rows.
    """
    if not sparse.issparse(X):
        _, first, which = np.unique(X, axis=0, return_index=True, return_inverse=True)
        return first, np.asarray(which).ravel()
    X = X.copy()
    X.sum_duplicates()
    X.eliminate_zeros()
    keys = np.empty(X.shape[0], dtype=object)
    for row, (start, stop) in enumerate(zip(X.indptr[:-1], X.indptr[1:], strict=True)):
        keys[row] = X.indices[start:stop].tolist(), X.data[start:stop].tolist()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return first, which


def distinct_examples(
    X: Rows, Y: np.ndarray, w: np.ndarray | None, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Merge equal rows; return positions of distinct rows, mean targets and total weights.

    The first two arrays are as in `distinct_rows`. Equal rows of different `groups` are
    distinct.
    """
    first, which = distinct_rows(X)
    if groups is not None:
        first, which = distinct_rows(np.column_stack([which, groups]))
    if w is None and len(first) == len(Y):
        return np.arange(len(Y)), np.arange(len(Y)), Y, None
    weights = np.bincount(which, w)
    sums = [np.bincount(which, column if w is None else w * column) for column in Y.T]
    return first, which, np.column_stack(sums) / weights[:, None], weights


def positions_of(selected_rows: np.ndarray, rows: np.ndarray) -> np.ndarray:
    ascending = np.argsort(rows)
    return np.asarray(ascending[np.searchsorted(rows, selected_rows, sorter=ascending)])


def drawn_rows(m: int, n_drawn: int, seed: int) -> np.ndarray:
    """Draw at most `n_drawn` of m rows at random; return ascending positions."""
    if m <= n_drawn:
        return np.arange(m)
    return np.sort(np.random.default_rng(seed).choice(m, n_drawn, replace=False))


def all_finite(values: Any) -> bool:
    step = max(1, FINITE_BLOCK // max(1, values[:1].size))
    return all(
        np.isfinite(values[start : start + step]).all()
        for start in range(0, len(values), step)
    )


def move(X: Rows, origin: np.ndarray) -> Rows:
    """Return the rows minus `origin`, unchanged if it is zero."""
    if not origin.any():
        return X
    return X - origin


def mean_row(X: Rows) -> np.ndarray:
    if not X.shape[0]:
        return np.zeros(X.shape[1])
    return np.asarray(X.mean(axis=0)).ravel()


def squared_distances(A: Rows, B: Rows) -> np.ndarray:
    """Return the squared Euclidean distances between rows, shape (a, b).

    ``A is B`` gives a zero diagonal. The error is about ``eps * ||x||^2``.
    """
    center = mean_row(B)
    right = ExpandedRows.of(B, center, "squared")
    if A is B:
        return right.distances(right)
    left = ExpandedRows.of(A, center, "squared")
    return right.distances(left)


def inner_products(A: Rows, B: Rows) -> np.ndarray:
    if sparse.issparse(A):
        return np.asarray((A @ B.T).toarray(), dtype=np.float64)
    return np.asarray(A @ B.T)


def squared_norms(A: Rows) -> np.ndarray:
    if sparse.issparse(A):
        return np.asarray(A.multiply(A).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", A, A)
