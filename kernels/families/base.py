"""What every family of base kernels offers to the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from scipy import sparse

from learnkernels.kernels.compiled.distances import Differences, Metric, distances
from learnkernels.kernels.fields import Fields, one_of, plain
from learnkernels.kernels.parameters import Parameterised, content

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

FEW_FEATURES = 64
"""Most features whose squared differences are added pair by pair; of more, a product of matrices is faster."""

FAR = 2.0**22
"""Largest squared norm of a row, times gamma, whose distances are taken in expanded form: it loses 1e-9 there."""

KINDS: dict[str, type[KernelFamily]] = {}
"""The families that can be written and read, by the kind that is written for them."""


class KernelFamily(Parameterised, ABC):
    """A set of p base kernels that are computed together, one tile of pairs of rows at a time.

    Notes
    -----
    A family is a value: nothing here changes one, its deep copy is the family itself, and two of one class with the
    same parameters are equal. Its class keeps what `__init__` takes under the same names; `get_params` and
    `set_params`, and with them a search over ``family__gammas``, follow. A class with a `kind` of its own can be
    written, by `to_dict`, and read by its `from_dict`; classes of your own too, once they are imported.

    A tile holds the values of all p kernels for every pair of a row of `A` and a row of `B`. Centered
    quantities do not change when a constant is added to a kernel, so a caller may ask for ``K - shift``:
    a family that knows how to form that difference without cancellation (Gaussians, by ``expm1``) does.
    """

    kind: ClassVar[str]
    """What is written for the class."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls) and KINDS.setdefault(cls.kind, cls).__module__ == cls.__module__:
            KINDS[cls.kind] = cls  # also where a class is defined again

        def owner(*names: str) -> int:
            return next(place for place, one in enumerate(cls.__mro__) if set(names) & set(vars(one)))

        filled = owner("tile", "distances", "fill_seeds")
        if filled < owner("side", "fill_between"):  # what a class above prepares is not what this one fills
            cls.side = KernelFamily.side  # type: ignore[method-assign]
            cls.fill_between = KernelFamily.fill_between  # type: ignore[method-assign]
        if filled < owner("differences"):
            cls.differences = KernelFamily.differences  # type: ignore[method-assign]

    def to_dict(self) -> dict[str, Any]:
        """Return the family as plain data, as JSON holds them, that `family_from_dict` reads back.

        Returns
        -------
        data : dict
            Its `kind` and its parameters; numbers are Python's, whose texts in JSON are exact.

        Raises
        ------
        ValueError
            The class has no kind of its own, or the base kernels are matrices.
        """
        if KINDS.get(getattr(self, "kind", "")) is not type(self):
            known = ", ".join(sorted(family.__name__ for family in KINDS.values()))
            raise ValueError(
                f"family must be one of {known} to be saved, got {type(self).__name__}, which has no kind of its own; "
                "save its parameters and the kernel's weights yourself, or give its class a kind and from_dict."
            )
        return {"kind": self.kind, **{name: plain(value) for name, value in self._resolved().items()}}

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the family of this class that `to_dict` was called on.

        Raises
        ------
        ValueError
            A parameter is missing, of another type or out of range.
        """
        return cls._from_fields(Fields(data, f"a {cls.kind} family"))

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        """Return the family with the parameters that were written; by default it has none."""
        return cls()

    def _resolved(self) -> dict[str, Any]:
        """Return the parameters with what was left to defaults filled in."""
        return self._parameters()

    def _values(self) -> Hashable:
        return content(self._resolved())

    def _brief(self, value: Any) -> str:
        return as_power(value) if isinstance(value, float) else super()._brief(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """One readable name a base kernel, in order."""

    @property
    def n_kernels(self) -> int:
        """p, the number of base kernels."""
        return len(self.names)

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
        """Return how the p kernels, less `shift`, follow from `seeds`; by default each is its own seed."""
        return TilePlan.identity(self.n_kernels)

    @property
    def n_seeds(self) -> int:
        """Number of matrices that `plan` starts from; p by default."""
        return self.n_kernels

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        """Write what `plan` starts from into `out`, shape (n_seeds, a, b); by default the tile itself.

        The caller keeps `out` from tile to tile: to ask the system for megabytes a tile costs as much as to fill them.
        """
        out[...] = self.tile(A, B, shift)

    def side(self, A: Rows, right: Any = None, dtype: Any = np.float64) -> Any:
        """Return what `fill_between` needs of some rows, which many tiles have in common; by default the rows.

        Parameters
        ----------
        A : ndarray or CSR matrix of shape (a, d)
            Rows; not modified.
        right : object, optional
            What this method made of the other side's rows; None for the right side of a tile, which is made first.
        dtype : dtype, default float64
            Of the values that are to be filled.

        Returns
        -------
        side : object
            Its slices are what this method would make of a part of the rows.
        """
        return A.astype(dtype, copy=False)

    def fill_between(self, left: Any, right: Any, shift: np.ndarray, out: np.ndarray) -> None:
        """Do what `fill_seeds` does, for two different sets of rows as `side` made them."""
        self.fill_seeds(left, right, shift, out)

    def filled_up(self) -> tuple[KernelFamily, np.ndarray]:
        """Return these base kernels among others, with which they take fewer exponentials, and where they stand.

        By default there are no others.
        """
        return self, np.arange(self.n_kernels)

    def mapped_once(self, X: Rows) -> tuple[KernelFamily, Rows]:
        """Return the same base kernels as ones of new features, and these of some rows, so that tiles map none again.

        By default the features are the same.
        """
        return self, X

    def n_mapped(self, d: int) -> int:
        """Return of how many features distances are taken, for rows of d features that are `mapped_once`."""
        return d

    def differences(self, A: Rows) -> list[Differences] | None:
        """Return what the seeds are exponentials of, of some rows; None where they are something else.

        One entry for each run of seeds, with its bandwidths, in the order of `plan`.
        """
        return None

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

    @abstractmethod
    def subset(self, kernels: Sequence[int]) -> KernelFamily:
        """Return the family of the base kernels at the given positions, in that order."""


def family_from_dict(data: object) -> KernelFamily:
    """Return the family that `KernelFamily.to_dict` was called on.

    Parameters
    ----------
    data : dict
        Plain data, as `json.loads` returns them.

    Returns
    -------
    family : KernelFamily

    Raises
    ------
    ValueError
        The kind is unknown, or a parameter is missing, of another type or out of range.
    """
    return KINDS[Fields(data, "a family").get("kind", one_of(sorted(KINDS)))].from_dict(data)


def as_power(value: float) -> str:
    """Return a number as Python reads it back bit by bit: a power of two of some size as such."""
    text = readable(value)
    return text.replace("^", "**") if "^" in text else repr(value)


def readable(value: float) -> str:
    """Return a number as people write it: a power of two of some size as such."""
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
    rows = [slice(*ends) for ends in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    keys = [(X.indices[row].tolist(), X.data[row].tolist()) for row in rows]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    new = [not position or keys[row] != keys[order[position - 1]] for position, row in enumerate(order)]
    which = np.empty(len(keys), dtype=np.intp)
    which[order] = np.cumsum(new) - 1
    return np.asarray(order, dtype=np.intp)[new], which


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


def squared_distances(
    A: Rows, B: Rows, scale: float = 1.0, steepest: float = 0.0, out: np.ndarray | None = None
) -> np.ndarray:
    r"""Return the squared Euclidean distances between two sets of rows, times a number.

    .. math:: D_{ij} = s \bigl( \lVert a_i \rVert^2 + \lVert b_j \rVert^2 - 2 a_i \cdot b_j \bigr)

    Parameters
    ----------
    A, B : ndarray or CSR matrix of shape (a, d) and (b, d)
        Rows; not modified. ``A is B`` gives an exactly zero diagonal.
    scale : float, default 1
        s, of either sign.
    steepest : float, default 0
        The largest gamma of a kernel ``exp(-gamma D)`` that the distances are for.
    out : ndarray of shape (a, b), optional
        Where to write them.

    Returns
    -------
    D : ndarray of shape (a, b)
        Not of the other sign than s.

    Notes
    -----
    ``2 a b d`` flops in one matrix product, in which the norms of dense rows ride along as two more columns. The
    expanded form loses about ``eps * ||x||^2``; dense rows are therefore first moved by the mean of `B`, which changes
    no distance and shortens the rows. Where rows are then still so far out that a kernel of width `steepest` would lose
    about 1e-9, as one row at 1e8 among others near zero makes them, differences are taken entry by entry.
    """
    same = A is B
    if not sparse.issparse(A):
        mean = B.mean(axis=0)
        A = A - mean
        B = A if same else B - mean
    left = squared_norms(A)
    right = left if same else squared_norms(B)
    out = np.empty((A.shape[0], B.shape[0]), dtype=A.dtype) if out is None else out
    fill_distances(A, B, left, right, out, scale, steepest)
    if same:
        np.fill_diagonal(out, 0.0)
    return out


def fill_distances(
    A: Rows,
    B: Rows,
    left: np.ndarray,
    right: np.ndarray,
    out: np.ndarray,
    scale: float = 1.0,
    steepest: float = 0.0,
    b_wide: np.ndarray | None = None,
) -> None:
    """Write what `squared_distances` returns of rows that are moved already, with squared norms `left` and `right`.

    The rows `b_wide`, of dense rows, are `widened` ones of `B`.
    """
    if max(left.max(initial=0.0), right.max(initial=0.0)) * steepest > FAR:
        np.multiply(direct_distances(A, B, "squared"), scale, out=out)
        return
    if sparse.issparse(A):
        np.multiply(inner_products(A, B), -2.0 * scale, out=out)
        out += scale * left[:, None]
        out += scale * right
    else:
        a_wide = np.column_stack([-2.0 * scale * A, scale * left, np.full_like(left, scale)])
        b_wide = widened(B, right) if b_wide is None else b_wide
        np.matmul(a_wide, b_wide.T, out=out)
    if (out.min(initial=0.0) if scale > 0 else -out.max(initial=0.0)) < 0:  # rare, and a sixth of the cost of clipping
        (np.maximum if scale > 0 else np.minimum)(out, 0.0, out=out)


def widened(B: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Return rows with a column of ones and one of their squared norms, as products that are distances take them."""
    return np.column_stack([B, np.ones_like(norms), norms])


def direct_distances(A: Rows, B: Rows, metric: Metric) -> np.ndarray:
    """Return the distances between two sets of rows from their differences, shape (a, b): exact zeros for equal rows.

    About ``3 a b d`` flops. Of sparse rows the columns that are used are filled.
    """
    if sparse.issparse(A):
        used = np.union1d(A.indices, B.indices)
        if not len(used):
            return np.zeros((A.shape[0], B.shape[0]), dtype=A.dtype)
        A, B = A[:, used].toarray(), B[:, used].toarray()
    return distances(A, B, metric)


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
