"""Families composed of others: side by side, and of features that a map makes of the rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from scipy import sparse
from scipy.special import ndtri

from ..parameters import (
    as_numbers,
    entries_of,
)
from .base import (
    KernelFamily,
    Rows,
    TilePlan,
    distinct,
    require_base_kernels,
    seeded_tile,
)

KNOTS = 129
"""Most values of a feature at which its normal scores are kept; between two they are interpolated."""

ORDINARY = 200
"""Exponents of two up to which products of kernels are formed of their values as they are."""

RowMap: TypeAlias = Callable[[Rows], Rows]
"""New features of rows, of their dtype; ValueError for other rows than these."""


class ComposedFamily(KernelFamily):
    """Base kernels of several families, one after the other, each of features that are made of the rows.

    A subclass says by `parts` what the families are and how their features are made.
    """

    maps_once: ClassVar[bool] = True
    """Whether new features of all rows are worth their memory, where there is one part."""

    @abstractmethod
    def parts(self) -> Sequence[tuple[KernelFamily, RowMap]]:
        """Return the families, each with what makes its features of rows."""

    @abstractmethod
    def _of(self, families: Sequence[KernelFamily]) -> Self:
        """Return the same features with other families."""

    def check_rows(self, X: Rows) -> None:
        for family, of in self.parts():
            family.check_rows(of(X))

    @cached_property
    def _ends(self) -> list[int]:
        """Where the kernels of each part end."""
        return list(accumulate(family.n_kernels for family, _ in self.parts()))

    def _split(self, shift: np.ndarray) -> list[tuple[KernelFamily, RowMap, np.ndarray]]:
        """Return the parts, each with its part of what there is one of a kernel."""
        both = zip(self.parts(), [0, *self._ends], self._ends, strict=False)
        return [(family, of, shift[start:end]) for (family, of), start, end in both]

    @property
    def n_kernels(self) -> int:
        return self._ends[-1]

    @property
    def kernel_views(self) -> tuple[str | None, ...]:
        return tuple(view for family, _ in self.parts() for view in family.kernel_views)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return seeded_tile(ComposedFamily, self, A, B, shift)

    def plan(self, shift: np.ndarray) -> TilePlan:
        return TilePlan.joined([family.plan(part) for family, _, part in self._split(shift)])

    def operands(self, A: Rows, shift: np.ndarray, center: np.ndarray | None = None, dtype: Any = None) -> list[Any]:
        found = []
        for family, of, part in self._split(shift):
            found += family.operands(of(A), part, None if center is None else of(center[None])[0], dtype)
        return found

    def completed_grid(self) -> tuple[Self, np.ndarray]:
        before = [family for family, _ in self.parts()]
        found = [family.completed_grid() for family in before]
        starts = accumulate((family.n_kernels for family, _ in found), initial=0)
        at = np.concatenate([start + own for start, (_, own) in zip(starts, found, strict=False)])
        changed = any(family is not one for (family, _), one in zip(found, before, strict=True))
        return self._of([family for family, _ in found]) if changed else self, at

    def mapped_once(self, X: Rows) -> tuple[KernelFamily, Rows]:
        (family, of), *others = self.parts()
        if others or not (self.maps_once or family.mapped_once(of(X[:0]))[0] is not family):
            return self, X
        return family.mapped_once(of(X))

    @property
    def translation_invariant(self) -> bool:
        return all(family.translation_invariant for family, _ in self.parts())

    @property
    def translates(self) -> bool:
        return all(family.translates for family, _ in self.parts())

    @property
    def takes_sparse(self) -> bool:
        return all(family.takes_sparse for family, _ in self.parts())

    def diag(self, A: Rows) -> np.ndarray:
        return np.concatenate([family.diag(of(A)) for family, of in self.parts()])


class FamilyUnion(ComposedFamily):
    """Several families side by side, each on all features or on columns of its own.

    Parameters
    ----------
    families : sequence of KernelFamily
        At least one.
    columns : sequence of (sequence of int or None), optional
        For each family, the feature columns that it sees (a view of the data); None means all of them.
    views : sequence of (str or None), optional
        What to call each family's columns in the names of its kernels; by default their positions.

    Raises
    ------
    ValueError
        No family is given, or `columns` and `families` differ in length.
    """

    kind = "union"
    maps_once = False

    def __init__(
        self,
        families: Sequence[KernelFamily],
        columns: Sequence[Sequence[int] | np.ndarray | None] | None = None,
        views: Sequence[str | None] | None = None,
    ) -> None:
        self.families = tuple(entries_of("families", families, "families of base kernels"))
        for position, family in enumerate(self.families):
            require_base_kernels(f"families[{position}]", family)
        given = [None] * len(self.families) if columns is None else entries_of("columns", columns, "lists of positions")
        if not self.families:
            raise ValueError("families must hold at least one kernel family, got an empty list.")
        if len(given) != len(self.families):
            raise ValueError(f"columns must have one entry per family, got {len(given)} for {len(self.families)}.")
        self.columns = tuple(_checked_columns(view) for view in given)
        self.views = (
            tuple(entries_of("views", views, "names")) if views is not None else tuple(map(_positions, self.columns))
        )
        if len(self.views) != len(self.families):
            raise ValueError(f"views must have one entry per family, got {len(self.views)} for {len(self.families)}.")

    def _parameters(self) -> dict[str, Any]:
        columns = [None if view is None else view.tolist() for view in self.columns]
        return {
            "families": self.families,
            "columns": columns if any(view is not None for view in columns) else None,
            "views": None if self.views == tuple(map(_positions, self.columns)) else self.views,
        }

    def _resolved(self) -> dict[str, Any]:
        return {"families": self.families, "columns": self.columns, "views": self.views}

    def check_rows(self, X: Rows) -> None:
        for position, columns in enumerate(self.columns):
            if columns is not None and len(columns) and columns.max() >= X.shape[1]:
                raise ValueError(
                    f"columns[{position}] must be positions of the {X.shape[1]} features of X, 0 to {X.shape[1] - 1}, "
                    f"got {columns.max()}."
                )
        super().check_rows(X)

    def parts(self) -> Sequence[tuple[KernelFamily, RowMap]]:
        return [(one, partial(_view, columns)) for one, columns in zip(self.families, self.columns, strict=True)]

    def _of(self, families: Sequence[KernelFamily]) -> Self:
        return self._with(families=families)

    @property
    def names(self) -> tuple[str, ...]:
        names = [
            name if view is None else f"{name} on {view}"
            for family, view in zip(self.families, self.views, strict=True)
            for name in family.names
        ]
        return distinct(names)

    @property
    def kernel_views(self) -> tuple[str | None, ...]:
        of_families = zip(self.families, self.views, strict=True)
        return tuple(view or inner for family, view in of_families for inner in family.kernel_views)

    def subset(self, kernels: Sequence[int]) -> FamilyUnion:
        owner = [(f, k) for f, family in enumerate(self.families) for k in range(family.n_kernels)]
        by_family = groupby((owner[position] for position in kernels), key=itemgetter(0))
        runs = [(f, [k for _, k in run]) for f, run in by_family]
        families = [self.families[f].subset(ks) for f, ks in runs]
        return FamilyUnion(families, [self.columns[f] for f, _ in runs], [self.views[f] for f, _ in runs])


def _checked_columns(view: Any) -> np.ndarray | None:
    """Return the positions of the features that a family sees; None for all of them."""
    if view is None:
        return None
    columns = np.asarray(view)
    if columns.ndim != 1 or (len(columns) and columns.dtype.kind not in "iu"):
        raise ValueError(
            f"columns must hold for each family None or positions of features, such as [0, 2], got {view!r:.60}."
        )
    return columns.astype(np.intp)


def _view(columns: np.ndarray | None, A: Rows) -> Rows:
    return A if columns is None else A[:, columns]


def _positions(columns: np.ndarray | None) -> str | None:
    if columns is None:
        return None
    shown = ", ".join(map(str, columns[:4])) + (f", ... ({len(columns)})" if len(columns) > 4 else "")
    return f"columns {shown}"


class MappedFamily(ComposedFamily):
    """Base of families whose base kernels are those of another one, `base`, of new features of the rows.

    A subclass has `mapped`, and says what moving all rows leaves as it is.
    """

    base: KernelFamily

    @abstractmethod
    def mapped(self, A: Rows) -> Rows:
        """Return the new features of rows, new and of the dtype of `A`; ValueError for other rows than these."""

    def parts(self) -> Sequence[tuple[KernelFamily, RowMap]]:
        return [(self.base, self.mapped)]

    def _of(self, families: Sequence[KernelFamily]) -> Self:
        return self._with(base=families[0])

    @property
    def names(self) -> tuple[str, ...]:
        return self.base.names

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(base=self.base.subset(kernels))


class MetricFamily(MappedFamily):
    r"""Base kernels in a metric of their own: of features that are weighted, or mapped by a matrix.

    .. math:: K_k(x, x') = K^0_k(A^\top x, \, A^\top x'), \qquad
              \lVert A^\top (x - x') \rVert^2 = (x - x')^\top A A^\top (x - x')

    Parameters
    ----------
    base : KernelFamily
        p base kernels :math:`K^0_k`.
    map : ndarray of shape (d,) or (d, r)
        A, finite: one weight per feature, zero for a feature that is left out, or what each of r new features takes of
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
        require_base_kernels("base", base)
        self.base = base
        self.map = as_numbers("map", map)
        self.label = label
        if self.map.ndim not in (1, 2) or not np.isfinite(self.map).all() or not self.map.any():
            raise ValueError(
                "map must hold one finite weight per feature, or a finite matrix of features by new features, not all "
                f"zero, got an array of shape {self.map.shape}."
            )

    @property
    def maps_once(self) -> bool:  # type: ignore[override]
        return self.map.ndim == 2

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{name} in {self.label}" for name in self.base.names)

    def mapped(self, A: Rows) -> Rows:
        """Return the rows in the metric, new and of the dtype of `A`."""
        if A.shape[1] != len(self.map):
            raise ValueError(f"X must have the {len(self.map)} features that the metric is for, got {A.shape[1]}.")
        map_ = self.map.astype(A.dtype, copy=False)
        return np.asarray(A @ map_) if map_.ndim == 2 else scaled_columns(A, map_)


class ScaledFamily(ComposedFamily):
    r"""One base kernel on rescaled features: p kernels, each with its own scale per feature.

    .. math:: K_k(x, x') = K(s_k \circ x, \, s_k \circ x')

    Parameters
    ----------
    base : KernelFamily
        A family of exactly one kernel K.
    scales : ndarray of shape (p, d)
        :math:`s_k`, what kernel k multiplies each feature with, in units of one over the feature (where K is without
        units); each positive and finite. Not modified.
    names : sequence of str, optional
        One name per kernel; names that appear again are numbered. By default the range of the scales.

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
    Machine Learning 91:305-324, section 3.1: a Gaussian with a bandwidth per feature is one on scaled features.
    """

    kind = "scaled"
    maps_once = False

    def __init__(
        self, base: KernelFamily, scales: np.ndarray | Sequence[Sequence[float]], names: Sequence[str] | None = None
    ) -> None:
        require_base_kernels("base", base)
        self.base = base
        self.scales = as_numbers("scales", scales)
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
        names = self._ranges() if names is None else entries_of("names", names, "names")
        if len(names) != len(self.scales):
            raise ValueError(f"names must have one entry per kernel, got {len(names)} for {len(self.scales)}.")
        self._names = distinct(names)

    def _parameters(self) -> dict[str, Any]:
        given = self._names != distinct(self._ranges())
        return {"base": self.base, "scales": self.scales, "names": self._names if given else None}

    def _resolved(self) -> dict[str, Any]:
        return {"base": self.base, "scales": self.scales, "names": self._names}

    def _ranges(self) -> list[str]:
        """Return the names by default."""
        return [f"{self.base.names[0]} scaled {readable_range(s)}" for s in self.scales]

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def parts(self) -> Sequence[tuple[KernelFamily, RowMap]]:
        return [(self.base, partial(self._scaled, k)) for k in range(len(self.scales))]

    def _of(self, families: Sequence[KernelFamily]) -> Self:
        return self._with(base=families[0])

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(scales=self.scales[list(kernels)], names=[self._names[k] for k in kernels])

    def _scaled(self, k: int, A: Rows) -> Rows:
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


def readable_range(values: np.ndarray) -> str:
    """Return the least and the largest of some values with three digits: ``0.3..4.1``, or one where both read alike."""
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low}..{high}"


class NormalScoresFamily(MappedFamily):
    r"""Base kernels of features next to their normal scores, so that rows are apart by value and by rank.

    .. math:: K_k(x, x') = K^0_k \bigl( (x, s(x)), \, (x', s(x')) \bigr), \qquad
              s_j(x) = \Phi^{-1} \bigl( \hat F_j(x_j) \bigr)

    with :math:`\hat F_j` the distribution of the feature, half of those that are equal counted, and :math:`\Phi` the
    normal one.

    Parameters
    ----------
    base : KernelFamily
        p base kernels :math:`K^0_k` of the d features, followed by the scores of those that have some.
    knots : sequence of (ndarray of shape (n, 2) or None)
        For each feature values, ascending, and their scores, n of at least 2, as `normal_scores` returns them; None for
        one without.

    Raises
    ------
    ValueError
        Knots are not such arrays; in use, rows do not have d features.

    Notes
    -----
    Beyond the first and the last knot a score stays as it is: values further out are distinguished by the
    feature itself. A tile costs that of the base kernels, and an interpolation per score and row. Rows must be dense.

    References
    ----------
    van der Waerden (1952), Order tests for the two-sample problem and their power, Indagationes Mathematicae 14.
    """

    kind = "normal-scores"
    translation_invariant = False
    translates = False
    takes_sparse = False

    def __init__(self, base: KernelFamily, knots: Sequence[Any]) -> None:
        require_base_kernels("base", base)
        self.base = base
        pairs = entries_of("knots", knots, "arrays of values and their scores, or None")
        self.knots = tuple(None if one is None else as_numbers("knots", one) for one in pairs)
        for j, one in enumerate(self.knots):
            fits = one is None or (one.ndim == 2 and one.shape[1] == 2 and len(one) > 1 and np.isfinite(one).all())
            if not fits or (one is not None and not (np.diff(one[:, 0]) > 0).all()):
                raise ValueError(
                    "knots must hold for each feature None, or two and more ascending values with their scores, not so "
                    f"for feature {j}; take those of normal_scores."
                )

    def mapped(self, A: Rows) -> Rows:
        """Return the features, and then the scores of those that have some."""
        if A.shape[1] != len(self.knots):
            raise ValueError(f"X must have the {len(self.knots)} features that there are knots for, got {A.shape[1]}.")
        return scores_beside(A, self.knots)


def normal_scores(X: np.ndarray, sample_weight: np.ndarray | None = None) -> tuple[np.ndarray | None, ...]:
    """Return the values of each feature with their normal scores, at most `KNOTS` of equal distance in rank.

    Parameters
    ----------
    X : ndarray of shape (m, d)
        Rows. Not modified.
    sample_weight : ndarray of shape (m,), optional
        Weights of the rows; by default each counts once. Not modified.

    Returns
    -------
    knots : tuple of (ndarray of shape (n, 2) or None)
        One per feature; None for one of at most two values, whose scores tell nothing more.
    """
    w = np.ones(len(X)) if sample_weight is None else sample_weight
    return tuple(_knots(column, w) for column in X.T)


def scores_beside(A: np.ndarray, knots: Sequence[np.ndarray | None]) -> np.ndarray:
    """Return rows of features, followed by the scores of those that have knots; new, of the dtype of `A`."""
    d, held = len(knots), [(j, one) for j, one in enumerate(knots) if one is not None]
    mapped = np.empty((A.shape[0], d + len(held)), dtype=A.dtype)
    mapped[:, :d] = A
    for place, (j, one) in enumerate(held, start=d):
        mapped[:, place] = np.interp(A[:, j], one[:, 0], one[:, 1])
    return mapped


def _knots(column: np.ndarray, w: np.ndarray) -> np.ndarray | None:
    values, at = np.unique(column, return_inverse=True)
    if len(values) <= 2:
        return None
    counts = np.bincount(at, w)
    below = (np.cumsum(counts) - counts / 2) / counts.sum()
    above = (np.cumsum(counts[::-1])[::-1] - counts / 2) / counts.sum()
    scores = np.where(below < above, ndtri(below), -ndtri(above))  # shares near one have lost their digits
    if len(values) > KNOTS:
        kept = np.unique(np.searchsorted(below, np.linspace(below[0], below[-1], KNOTS)).clip(max=len(values) - 1))
        values, scores = values[kept], scores[kept]
    return np.column_stack([values, scores])


class DividedFamily(KernelFamily):
    """Base kernels of extreme values divided by powers of two, so that squares of them neither overflow nor vanish.

    Parameters
    ----------
    family : KernelFamily
        p base kernels.
    divisors : ndarray of shape (p,)
        Powers of two, by which division is exact.
    """

    def __init__(self, family: KernelFamily, divisors: np.ndarray) -> None:
        self.family, self.divisors = family, divisors

    @property
    def names(self) -> tuple[str, ...]:
        return self.family.names

    @property
    def translation_invariant(self) -> bool:
        return self.family.translation_invariant

    @property
    def translates(self) -> bool:
        return self.family.translates

    @property
    def takes_sparse(self) -> bool:
        return self.family.takes_sparse

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        K = self.family.tile(A, B, None if shift is None else shift * self.divisors)
        return np.asarray(K / self.divisors[:, None, None])

    def diag(self, A: Rows) -> np.ndarray:
        return self.family.diag(A) / self.divisors[:, None]

    def mapped_once(self, X: Rows) -> tuple[KernelFamily, Rows]:
        family, mapped = self.family.mapped_once(X)
        return DividedFamily(family, self.divisors), mapped

    def subset(self, kernels: Sequence[int]) -> DividedFamily:
        return DividedFamily(self.family.subset(kernels), self.divisors[list(kernels)])


def divisors_for(sizes: np.ndarray) -> np.ndarray | None:
    """Return the power of two next to each size beyond `ORDINARY`, and one for others; None where there is none."""
    exponents = np.frexp(sizes)[1]
    exponents[np.abs(exponents) <= ORDINARY] = 0
    return np.ldexp(1.0, exponents) if exponents.any() else None
