"""Base class of families of base kernels, and the operands of their tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from scipy import sparse

from ..compiled.distances import Metric, distances, exponentiate
from ..parameters import Parameterized, content

Rows: TypeAlias = Any
"""Rows of a data set: an ndarray or a CSR matrix of float64, which share no type to name here."""


@dataclass(frozen=True)
class TilePlan:
    """How the kernels of a tile follow from its seeds.

    Attributes
    ----------
    order : ndarray of int of shape (p, 2)
        Pairs (kernel, seed), in an order in which `half` comes first; the seed is -1 for a kernel made by doubling.
    half : ndarray of int of shape (p,)
        For a kernel made by doubling, the kernel E it comes from, as ``E (E + 2)``.
    offset : ndarray of shape (p,)
        Constant added to each kernel at the end.
    """

    order: np.ndarray
    half: np.ndarray
    offset: np.ndarray

    @classmethod
    def identity(cls, p: int) -> TilePlan:
        """Return the plan in which every kernel is its own seed."""
        return cls(np.repeat(np.arange(p), 2).reshape(p, 2), np.full(p, -1), np.zeros(p))

    @property
    def n_seeds(self) -> int:
        """Number of seeds."""
        return int(self.order[:, 1].max()) + 1

    @classmethod
    def joined(cls, plans: Sequence[TilePlan]) -> TilePlan:
        """Return the plan of several families side by side, their seeds one after the other."""
        orders, halves, kernels, seeds = [], [], 0, 0
        for plan in plans:
            orders.append(np.where(plan.order < 0, -1, plan.order + np.array([kernels, seeds])))
            halves.append(np.where(plan.half < 0, -1, plan.half + kernels))
            kernels += len(plan.half)
            seeds += plan.n_seeds
        return cls(np.concatenate(orders), np.concatenate(halves), np.concatenate([plan.offset for plan in plans]))


FINITE_BLOCK = 1 << 20
"""Values that are checked at once."""

FAR = 2.0**22
"""Largest squared norm of a row, times gamma, whose distances are taken in expanded form: it loses 1e-9 there."""

ROUNDING = 8
"""Share of two rows' squared lengths, in units of rounding, that their squared distance may be wrong by."""

KINDS: dict[str, type[KernelFamily]] = {}
"""Families that files can name, by kind."""


@dataclass(frozen=True)
class PlainRows:
    """Rows of a family whose seeds are the values of its `tile`.

    Attributes
    ----------
    rows : ndarray or CSR matrix of shape (a, d)
    family : KernelFamily
    shift : ndarray of shape (p,)
    """

    rows: Rows
    family: KernelFamily
    shift: np.ndarray

    @property
    def n_seeds(self) -> int:
        return self.family.n_kernels

    def __getitem__(self, some: slice) -> PlainRows:
        return PlainRows(self.rows[some], self.family, self.shift)

    def fill(self, left: PlainRows, out: np.ndarray) -> None:
        out[...] = self.family.tile(left.rows, self.rows, self.shift)


@dataclass(frozen=True)
class ExpandedRows:
    """Rows whose distances follow from their inner products.

    Attributes
    ----------
    rows : ndarray or CSR matrix of shape (a, d)
        Dense ones less a row that those of both sides are moved by, which changes no distance and shortens them.
    norms : ndarray of shape (a,)
        Squared.
    augmented : ndarray of shape (a, d + 2) or None
        Dense rows with a one and their norm, so that one matrix product gives distances.
    metric : {"squared", "euclidean", "cityblock"}
        The last one of sparse rows alone.
    gammas : tuple of float
        Of the exponentials that are taken of distances.
    """

    rows: Rows
    norms: np.ndarray
    augmented: np.ndarray | None
    metric: Metric
    gammas: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, A: Rows, center: np.ndarray | None, metric: Metric, gammas: Sequence[float] = (), dtype: Any = None
    ) -> Self:
        """Return rows in a precision; sparse ones are not moved."""
        rows = A if center is None or sparse.issparse(A) else A - center
        rows = rows.astype(rows.dtype if dtype is None else dtype, copy=False)
        norms = squared_norms(rows)
        augmented = None if sparse.issparse(A) else np.column_stack([rows, np.ones_like(norms), norms])
        return cls(rows, norms, augmented, metric, tuple(gammas))

    @property
    def n_seeds(self) -> int:
        return len(self.gammas)

    def __getitem__(self, some: slice) -> ExpandedRows:
        augmented = None if self.augmented is None else self.augmented[some]
        return ExpandedRows(self.rows[some], self.norms[some], augmented, self.metric, self.gammas)

    def fill(self, left: ExpandedRows, out: np.ndarray) -> None:
        exponentiate(self.distances(left), self.gammas, out)

    def distances(self, left: ExpandedRows) -> np.ndarray:
        """Return the distances of other rows from these, shape (a, b): exact zeros where ``left is self``."""
        A, B, steepest = left.rows, self.rows, max(self.gammas, default=0.0) if self.metric == "squared" else 0.0
        far = max(left.norms.max(initial=0.0), self.norms.max(initial=0.0)) * steepest > FAR
        if far or self.metric == "cityblock":
            if sparse.issparse(A):  # from differences of the features that there are: exact zeros for equal rows
                used = np.union1d(A.indices, B.indices)
                A, B = A[:, used].toarray(), B[:, used].toarray()
            return distances(A, B, self.metric)
        if self.augmented is None:
            D = np.asarray(inner_products(A, B) * -2.0, dtype=B.dtype)
            D += left.norms[:, None]
            D += self.norms
        else:
            D = np.column_stack([-2.0 * A, left.norms, np.ones_like(left.norms)]) @ self.augmented.T
        if D.min(initial=0.0) < 0:  # rare, and a sixth of the cost of clipping
            np.maximum(D, 0.0, out=D)
        if left is self:
            np.fill_diagonal(D, 0.0)
        if self.metric == "euclidean":
            rounding = D.dtype.type(ROUNDING * np.finfo(D.dtype).eps)
            D[np.add.outer(rounding * left.norms, rounding * self.norms) > D] = 0.0
            np.sqrt(D, out=D)
        return D


class KernelFamily(Parameterized, ABC):
    """A set of p base kernels that are computed together, one tile of pairs of rows at a time.

    Notes
    -----
    A family is a value: nothing here changes one, its deep copy is the family itself, and two of one class with the
    same parameters are equal. Its class keeps what `__init__` takes under the same names; `get_params` and
    `set_params`, and with them a search over ``family__gammas``, follow. Models with a class
    that has a `kind` of its own can be saved, and loaded once the class is imported.

    A tile holds the values of all p kernels for every pair of a row of `A` and a row of `B`. Centered
    quantities do not change when a constant is added to a kernel, so a caller may request ``K - shift``:
    a family that knows how to form that difference without cancellation (Gaussians, by ``expm1``) does.

    A class needs `names`, `tile`, `diag` and `subset`. The engine takes tiles from `operands` and `plan`, which by
    default call `tile`; where a class has a `tile` and no `operands`, those of the classes above do not count.
    """

    kind: ClassVar[str]
    """Name of the class in files."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls) and KINDS.setdefault(cls.kind, cls).__module__ == cls.__module__:
            KINDS[cls.kind] = cls  # also where a class is defined again
        first = {
            name: next(n for n, one in enumerate(cls.__mro__) if name in vars(one)) for name in ("tile", "operands")
        }
        if first["tile"] < first["operands"]:
            cls.plan, cls.operands = KernelFamily.plan, KernelFamily.operands  # type: ignore[method-assign]

    def _resolved(self) -> dict[str, Any]:
        """Return the parameters with what was left to defaults filled in."""
        return self._parameters()

    def _with(self, **changes: Any) -> Self:
        """Return the family with some parameters replaced."""
        return type(self)(**{**self._parameters(), **changes})

    def _values(self) -> Hashable:
        return content(self._resolved())

    def _brief(self, value: Any) -> str:
        if isinstance(value, float) and "^" in (power := readable(value)):
            return power.replace("^", "**")
        return super()._brief(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Readable name of each base kernel, in order."""

    @property
    def n_kernels(self) -> int:
        """p, the number of base kernels."""
        return len(self.names)

    @property
    def n_seeds(self) -> int:
        """Number of matrices that a tile is made of."""
        return self.plan(np.zeros(self.n_kernels)).n_seeds

    @property
    def kernel_views(self) -> tuple[str | None, ...]:
        """What the columns are called that each base kernel sees; None where it sees all."""
        return (None,) * self.n_kernels

    @abstractmethod
    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        """Return the p kernels between the rows of `A` and of `B`.

        Parameters
        ----------
        A, B : ndarray or CSR matrix of shape (a, d) and (b, d)
            Rows; not modified. Passing the same object twice marks a diagonal tile.
        shift : ndarray of shape (p,), optional
            Constant to subtract from each kernel; None subtracts nothing.

        Returns
        -------
        K : ndarray of shape (p, a, b)
            ``K_k(A_i, B_j) - shift_k``, freshly allocated.
        """

    def plan(self, shift: np.ndarray) -> TilePlan:
        """Return how the p kernels, less `shift`, follow from the seeds; by default each is its own seed."""
        return TilePlan.identity(self.n_kernels)

    def operands(self, A: Rows, shift: np.ndarray, center: np.ndarray | None = None, dtype: Any = None) -> list[Any]:
        """Return rows as one side of tiles, whose seeds the operands of the other side fill.

        Parameters
        ----------
        A : ndarray or CSR matrix of shape (a, d)
            Not modified.
        shift : ndarray of shape (p,)
            Constant that is subtracted from each kernel.
        center : ndarray of shape (d,), optional
            A row that both sides may be moved by where that changes no kernel.
        dtype : dtype, optional
            Precision of the seeds; by default that of the rows.

        Returns
        -------
        operands : list
            In the order of the seeds in `plan`. Each has `n_seeds`; a slice of it is that of some rows; and
            ``right.fill(left, out)`` writes the seeds between two of them into `out`, shape (n_seeds, a, b).
        """
        return [PlainRows(A.astype(A.dtype if dtype is None else dtype, copy=False), self, shift)]

    def completed_grid(self) -> tuple[KernelFamily, np.ndarray]:
        """Return these base kernels among others, with which they take fewer exponentials, and where they stand.

        By default there are no others.
        """
        return self, np.arange(self.n_kernels)

    def mapped_once(self, X: Rows) -> tuple[KernelFamily, Rows]:
        """Return the same base kernels as ones of new features, and these of some rows, so that tiles map none again.

        By default the features are the same.
        """
        return self, X

    @property
    def translation_invariant(self) -> bool:
        """Whether moving all rows alike leaves the kernels as they are."""
        return False

    @property
    def translates(self) -> bool:
        """Whether moving all rows alike leaves the centered kernels as they are."""
        return self.translation_invariant

    @property
    def takes_sparse(self) -> bool:
        """Whether rows may be sparse."""
        return True

    @abstractmethod
    def diag(self, A: Rows) -> np.ndarray:
        """Return ``K_k(A_i, A_i)``, shape (p, a)."""

    def check_rows(self, X: Rows) -> None:
        """Raise ValueError if the base kernels cannot be learned from some of the training rows `X`."""
        return

    @abstractmethod
    def subset(self, kernels: Sequence[int]) -> KernelFamily:
        """Return the family of the base kernels at the given positions, in that order."""


def sides_of_tile(
    operands: Callable[..., list[Any]], A: Rows, B: Rows, shift: np.ndarray
) -> tuple[list[Any], list[Any]]:
    """Return the operands of both sides, moved by the mean of the right one; one list twice where ``A is B``."""
    center = mean_row(B)
    right = operands(B, shift, center)
    return right if A is B else operands(A, shift, center), right


def n_mapped(family: KernelFamily, d: int) -> int:
    """Return of how many features distances or products are taken, for rows of d features that are `mapped_once`."""
    operands = family.operands(np.zeros((1, d)), np.zeros(family.n_kernels))
    return max(int(one.rows.shape[1]) for one in operands)


def fill_seeds(left: Sequence[Any], right: Sequence[Any], out: np.ndarray) -> None:
    """Write the seeds of a tile into `out`, shape (n_seeds, a, b), from the operands of its sides."""
    stop = 0
    for A, B in zip(left, right, strict=True):
        start, stop = stop, stop + B.n_seeds
        B.fill(A, out[start:stop])


def seeded_tile(kind: Any, family: KernelFamily, A: Rows, B: Rows, shift: Any) -> np.ndarray:
    """Return a tile as the plan and the operands of a class make it, for a family of that class or one below."""
    shift = np.zeros(family.n_kernels) if shift is None else shift
    plan = kind.plan(family, shift)
    K = np.empty((family.n_kernels, A.shape[0], B.shape[0]), dtype=A.dtype)
    seeds = np.empty((plan.n_seeds, *K.shape[1:]), dtype=A.dtype)
    fill_seeds(*sides_of_tile(partial(kind.operands, family), A, B, shift), seeds)
    for k, seed in plan.order:
        half = K[plan.half[k]]
        K[k] = seeds[seed] if seed >= 0 else half * (half + 2)
    K += plan.offset[:, None, None]
    return K


def less(K: np.ndarray, shift: np.ndarray | None) -> np.ndarray:
    """Return a tile less a constant per kernel, in place."""
    if shift is not None:
        K -= shift[:, None, None]
    return K


def require_base_kernels(name: str, family: object) -> None:
    """Raise ValueError for a parameter that is no family of base kernels."""
    if not isinstance(family, KernelFamily):
        raise ValueError(
            f"{name} must be a family of base kernels, such as GaussianFamily([0.1, 1.0]), got {family!r:.60}."
        )


def readable(value: float) -> str:
    """Return a number as text, large and small powers of two as such."""
    mantissa, exponent = np.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 and abs(exponent - 1) > 1 else f"{value:.12g}"


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, numbered from the second on where one appears again."""
    taken, found = set(names), list[str]()
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        new = name
        if seen[name] > 1:
            while (new := f"{name} ({seen[name]})") in taken:
                seen[name] += 1
            taken.add(new)
        found.append(new)
    return tuple(found)


def as_rows(X: Rows) -> Rows:
    """Return rows as a float64 array or CSR matrix, without a copy where they are one.

    Raises
    ------
    ValueError
        X is not two-dimensional, or an entry is NaN or infinite.
    """
    rows = X.tocsr().astype(np.float64, copy=False) if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"X must be two-dimensional, rows by features, got shape {rows.shape}; try X.reshape(-1, 1).")
    if not all_finite(rows.data if sparse.issparse(rows) else rows):
        raise ValueError("X must be finite, got NaN or infinity; impute or drop those rows.")
    return rows


def distinct_rows(X: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return where each distinct row first appears, and which distinct row each row is.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (m, d)
        Not modified.

    Returns
    -------
    first : ndarray of int of shape (n,)
        In an order that depends on the values of the distinct rows alone.
    which : ndarray of int of shape (m,)
        Positions in `first`.
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
    X: Rows, Y: np.ndarray, w: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return where each different row first appears, which it is of each row, and the mean target and weight of copies.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (m, d)
        Not modified.
    Y : ndarray of shape (m, q)
        Not modified.
    w : ndarray of shape (m,) or None
        Weights of the rows; None where each counts once.

    Returns
    -------
    first : ndarray of int of shape (n,)
        All rows in their order where each counts once and none has a copy.
    which : ndarray of int of shape (m,)
        Positions in `first`.
    means : ndarray of shape (n, q)
        A squared loss of copies is that of their mean, but for a constant.
    weights : ndarray of shape (n,) or None
    """
    first, which = distinct_rows(X)
    if w is None and len(first) == len(Y):
        return np.arange(len(Y)), np.arange(len(Y)), Y, None
    weights = np.bincount(which, w)
    sums = [np.bincount(which, column if w is None else w * column) for column in Y.T]
    return first, which, np.column_stack(sums) / weights[:, None], weights


def drawn_rows(m: int, most: int, seed: int) -> np.ndarray:
    """Return the rows that a choice is made on, ascending: all m, or so many of them drawn at random."""
    return np.arange(m) if m <= most else np.sort(np.random.default_rng(seed).choice(m, most, replace=False))


def all_finite(values: Any) -> bool:
    """Return whether all values are finite; a block at a time, so that nothing of the size of `values` is formed."""
    step = max(1, FINITE_BLOCK // max(1, values[:1].size))
    return all(np.isfinite(values[start : start + step]).all() for start in range(0, len(values), step))


def move(X: Rows, origin: np.ndarray) -> Rows:
    """Return rows less `origin`; the rows themselves where it is zero, as it is for sparse rows."""
    return X - origin if origin.any() else X


def mean_row(X: Rows) -> np.ndarray:
    """Return the mean of some rows, shape (d,); zeros without any."""
    return np.asarray(X.mean(axis=0)).ravel() if X.shape[0] else np.zeros(X.shape[1])


def squared_distances(A: Rows, B: Rows) -> np.ndarray:
    r"""Return the squared Euclidean distances between two sets of rows.

    .. math:: D_{ij} = \lVert a_i \rVert^2 + \lVert b_j \rVert^2 - 2 a_i \cdot b_j

    Parameters
    ----------
    A, B : ndarray or CSR matrix of shape (a, d) and (b, d)
        Rows; not modified. ``A is B`` gives an exactly zero diagonal.

    Returns
    -------
    D : ndarray of shape (a, b)
        Not negative.

    Notes
    -----
    ``2 a b d`` flops in one matrix product, in which the norms of dense rows ride along as two more columns. The
    expanded form loses about ``eps * ||x||^2``; dense rows are therefore first moved by the mean of `B`, which changes
    no distance and shortens the rows.
    """
    center = mean_row(B)
    right = ExpandedRows.of(B, center, "squared")
    return right.distances(right if A is B else ExpandedRows.of(A, center, "squared"))


def inner_products(A: Rows, B: Rows) -> np.ndarray:
    """Return the inner products of the rows of `A` with those of `B`, a dense (a, b) array."""
    if sparse.issparse(A):
        return np.asarray((A @ B.T).toarray(), dtype=np.float64)
    return np.asarray(A @ B.T)


def squared_norms(A: Rows) -> np.ndarray:
    """Return the squared Euclidean norm of each row, shape (a,)."""
    if sparse.issparse(A):
        return np.asarray(A.multiply(A).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", A, A)
