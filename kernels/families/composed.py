"""Unions of families, and kernels of mapped features."""

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

from ..validation import as_numbers, entries_of
from .base import (
    KernelFamily,
    Rows,
    TilePlan,
    distinct,
    require_base_kernels,
    seeded_tile,
)

KNOTS = 129
"""Most stored normal scores per feature; others are interpolated."""

ORDINARY = 200
"""Largest binary exponent of values that need no scaling."""

RowMap: TypeAlias = Callable[[Rows], Rows]
"""Function that maps rows to features."""


class ComposedFamily(KernelFamily):
    """Base class of families composed of other families, each with its own feature map."""

    maps_once: ClassVar[bool] = True
    """Whether to store mapped rows if there is one part."""

    @abstractmethod
    def parts(self) -> Sequence[tuple[KernelFamily, RowMap]]:
        """Return each joined family with the feature map that is applied to its input rows."""

    @abstractmethod
    def _of(self, families: Sequence[KernelFamily]) -> Self:
        """Return the same maps with other families."""

    def check_rows(self, X: Rows) -> None:
        for family, map_rows in self.parts():
            family.check_rows(map_rows(X))

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(family.n_kernels for family, _ in self.parts()))

    def _split(
        self, shift: np.ndarray
    ) -> list[tuple[KernelFamily, RowMap, np.ndarray]]:
        split = []
        start = 0
        for (family, map_rows), end in zip(self.parts(), self._ends, strict=True):
            split.append((family, map_rows, shift[start:end]))
            start = end
        return split

    @property
    def n_kernels(self) -> int:
        return self._ends[-1]

    @property
    def kernel_views(self) -> tuple[str | None, ...]:
        return tuple(view for family, _ in self.parts() for view in family.kernel_views)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return seeded_tile(ComposedFamily, self, A, B, shift)

    def plan(self, shift: np.ndarray) -> TilePlan:
        return TilePlan.joined(
            [family.plan(part_shift) for family, _, part_shift in self._split(shift)]
        )

    def operands(
        self,
        A: Rows,
        shift: np.ndarray,
        center: np.ndarray | None = None,
        dtype: Any = None,
    ) -> list[Any]:
        operands = []
        for family, map_rows, part_shift in self._split(shift):
            mapped_center = None
            if center is not None:
                (mapped_center,) = map_rows(center[None])
            operands += family.operands(map_rows(A), part_shift, mapped_center, dtype)
        return operands

    def completed_grid(self) -> tuple[Self, np.ndarray]:
        completed_families: list[KernelFamily] = []
        positions = []
        start = 0
        changed = False
        for family, _ in self.parts():
            completed, positions_in_part = family.completed_grid()
            completed_families.append(completed)
            positions.append(start + positions_in_part)
            start += completed.n_kernels
            changed = changed or completed is not family
        all_positions = np.concatenate(positions)
        if not changed:
            return self, all_positions
        return self._of(completed_families), all_positions

    def mapped_once(self, X: Rows) -> tuple[KernelFamily, Rows]:
        parts = self.parts()
        if len(parts) > 1:
            return self, X
        family, map_rows = parts[0]
        maps_inside = family.mapped_once(map_rows(X[:0]))[0] is not family
        if self.maps_once or maps_inside:
            return family.mapped_once(map_rows(X))
        return self, X

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
        return np.concatenate(
            [family.diag(map_rows(A)) for family, map_rows in self.parts()]
        )


class FamilyUnion(ComposedFamily):
    """Union of kernel families, each on all or some of the columns.

    Parameters
    ----------
    families : sequence of KernelFamily
        Families of base kernels.
    columns : sequence of (sequence of int or None), optional
        Positions of the features of each family; None for all.
    views : sequence of (str or None), optional
        Names of the views in the names of the kernels.

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
        self.families = tuple(
            entries_of("families", families, "families of base kernels")
        )
        for position, family in enumerate(self.families):
            require_base_kernels(f"families[{position}]", family)
        if columns is None:
            column_lists = [None] * len(self.families)
        else:
            column_lists = entries_of("columns", columns, "lists of positions")
        if not self.families:
            raise ValueError(
                "families must hold at least one kernel family, got an empty list."
            )
        if len(column_lists) != len(self.families):
            raise ValueError(
                f"columns must have one entry per family, got {len(column_lists)} for {len(self.families)}."
            )
        self.columns = tuple(_checked_columns(positions) for positions in column_lists)
        if views is None:
            self.views = self._default_views()
        else:
            self.views = tuple(entries_of("views", views, "names"))
        if len(self.views) != len(self.families):
            raise ValueError(
                f"views must have one entry per family, got {len(self.views)} for {len(self.families)}."
            )

    def _parameters(self) -> dict[str, Any]:
        columns = [None if view is None else view.tolist() for view in self.columns]
        return {
            "families": self.families,
            "columns": columns if any(view is not None for view in columns) else None,
            "views": None if self.views == self._default_views() else self.views,
        }

    def _default_views(self) -> tuple[str | None, ...]:
        return tuple(_name_of_columns(columns) for columns in self.columns)

    def check_rows(self, X: Rows) -> None:
        for position, columns in enumerate(self.columns):
            if columns is not None and len(columns) and columns.max() >= X.shape[1]:
                raise ValueError(
                    f"columns[{position}] must be positions of the {X.shape[1]} features of X, 0 to {X.shape[1] - 1}, "
                    f"got {columns.max()}."
                )
        super().check_rows(X)

    def parts(self) -> Sequence[tuple[KernelFamily, RowMap]]:
        pairs = zip(self.families, self.columns, strict=True)
        return [(family, partial(_take_columns, columns)) for family, columns in pairs]

    def _of(self, families: Sequence[KernelFamily]) -> Self:
        return self._with(families=families)

    @property
    def names(self) -> tuple[str, ...]:
        names = []
        for family, view in zip(self.families, self.views, strict=True):
            if view is None:
                names += family.names
            else:
                names += [f"{name} on {view}" for name in family.names]
        return distinct(names)

    @property
    def kernel_views(self) -> tuple[str | None, ...]:
        views: list[str | None] = []
        for family, view in zip(self.families, self.views, strict=True):
            views += [view or inner_view for inner_view in family.kernel_views]
        return tuple(views)

    def subset(self, kernels: Sequence[int]) -> FamilyUnion:
        # Family and position of each kernel
        places = [
            (f, k)
            for f, family in enumerate(self.families)
            for k in range(family.n_kernels)
        ]
        families = []
        columns = []
        views = []
        for f, run in groupby(
            (places[position] for position in kernels), key=itemgetter(0)
        ):
            families.append(self.families[f].subset([k for _, k in run]))
            columns.append(self.columns[f])
            views.append(self.views[f])
        return FamilyUnion(families, columns, views)


def _checked_columns(positions: Any) -> np.ndarray | None:
    if positions is None:
        return None
    columns = np.asarray(positions)
    if columns.ndim != 1 or (len(columns) and columns.dtype.kind not in "iu"):
        raise ValueError(
            f"columns must hold for each family None or positions of features, such as [0, 2], got {positions!r:.60}."
        )
    return columns.astype(np.intp)


def _take_columns(columns: np.ndarray | None, A: Rows) -> Rows:
    if columns is None:
        return A
    return A[:, columns]


def _name_of_columns(columns: np.ndarray | None) -> str | None:
    if columns is None:
        return None
    first_positions = ", ".join(map(str, columns[:4]))
    if len(columns) > 4:
        return f"columns {first_positions}, ... ({len(columns)})"
    return f"columns {first_positions}"


class MappedFamily(ComposedFamily):
    """Base class of families that apply the `base` kernels after a feature map."""

    base: KernelFamily

    @abstractmethod
    def mapped(self, A: Rows) -> Rows:
        """Return the features of rows A after the map, in their dtype."""

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
    r"""Base kernels on features scaled by weights, or mapped by a matrix.

    .. math:: K_k(x, x') = K^0_k(A^\top x, \, A^\top x'), \qquad
              \lVert A^\top (x - x') \rVert^2 = (x - x')^\top A A^\top (x - x')

    Parameters
    ----------
    base : KernelFamily
        The p base kernels :math:`K^0_k`.
    map : ndarray of shape (d,) or (d, r)
        Weights of the features, or a matrix A that maps them to r features.
    label : str, default "metric"
        Name of the metric.

    Raises
    ------
    ValueError
        `map` is not finite or is zero, or rows do not have d features.

    Notes
    -----
    Weights keep sparse rows sparse; a matrix makes them dense.
    """

    kind = "metric"

    def __init__(
        self, base: KernelFamily, map: np.ndarray | Sequence[Any], label: str = "metric"
    ) -> None:
        require_base_kernels("base", base)
        self.base = base
        self.map = as_numbers("map", map)
        self.label = label
        if (
            self.map.ndim not in (1, 2)
            or not np.isfinite(self.map).all()
            or not self.map.any()
        ):
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
        if A.shape[1] != len(self.map):
            raise ValueError(
                f"X must have the {len(self.map)} features that the metric is for, got {A.shape[1]}."
            )
        map_ = self.map.astype(A.dtype, copy=False)
        if map_.ndim == 1:
            return scaled_columns(A, map_)
        return np.asarray(A @ map_)


class ScaledFamily(ComposedFamily):
    r"""One base kernel, on p different scalings of the features.

    .. math:: K_k(x, x') = K(s_k \circ x, \, s_k \circ x')

    Parameters
    ----------
    base : KernelFamily
        A family of one kernel K.
    scales : ndarray of shape (p, d)
        Positive factors :math:`s_k` of the features for each kernel.
    names : sequence of str, optional
        One name per kernel; by default the range of the scales.

    Raises
    ------
    ValueError
        `base` has several kernels, `scales` or `names` are invalid, or rows do not have
        d features.

    Notes
    -----
    A tile costs p times that of the base kernel. Sparse rows stay sparse.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning 91:305-324, section 3.1.
    """

    kind = "scaled"
    maps_once = False

    def __init__(
        self,
        base: KernelFamily,
        scales: np.ndarray | Sequence[Sequence[float]],
        names: Sequence[str] | None = None,
    ) -> None:
        require_base_kernels("base", base)
        self.base = base
        self.scales = as_numbers("scales", scales)
        if base.n_kernels != 1:
            raise ValueError(
                f"base must hold exactly one kernel, got {base.n_kernels}; give one family for each."
            )
        if self.scales.ndim != 2 or not self.scales.size:
            raise ValueError(
                f"scales must be a matrix, kernels by features, got shape {self.scales.shape}."
            )
        wrong = ~((self.scales > 0) & np.isfinite(self.scales))
        if wrong.any():
            kernel, feature = np.argwhere(wrong)[0]
            raise ValueError(
                f"scales must be positive and finite, got {self.scales[kernel, feature]:g} for feature {feature} of "
                f"kernel {kernel}; leave a feature out by choosing columns."
            )
        if names is None:
            names = self._default_names()
        else:
            names = entries_of("names", names, "names")
        if len(names) != len(self.scales):
            raise ValueError(
                f"names must have one entry per kernel, got {len(names)} for {len(self.scales)}."
            )
        self._names = distinct(names)

    def _parameters(self) -> dict[str, Any]:
        has_default_names = self._names == distinct(self._default_names())
        return {
            "base": self.base,
            "scales": self.scales,
            "names": None if has_default_names else self._names,
        }

    def _default_names(self) -> list[str]:
        return [
            f"{self.base.names[0]} scaled {readable_range(scale)}"
            for scale in self.scales
        ]

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def parts(self) -> Sequence[tuple[KernelFamily, RowMap]]:
        return [(self.base, partial(self._scaled, k)) for k in range(len(self.scales))]

    def _of(self, families: Sequence[KernelFamily]) -> Self:
        return self._with(base=families[0])

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(
            scales=self.scales[list(kernels)], names=[self._names[k] for k in kernels]
        )

    def _scaled(self, k: int, A: Rows) -> Rows:
        d = self.scales.shape[1]
        if A.shape[1] != d:
            raise ValueError(
                f"X must have the {d} features that the kernels have scales for, got {A.shape[1]}."
            )
        return scaled_columns(A, self.scales[k].astype(A.dtype, copy=False))


def scaled_columns(A: Rows, scale: np.ndarray) -> Rows:
    """Return the rows with columns multiplied by `scale`."""
    if not sparse.issparse(A):
        return A * scale
    scaled = A.copy()
    scaled.data *= scale[A.indices]
    return scaled


def readable_range(values: np.ndarray) -> str:
    """Return the smallest and the largest value as text, such as ``0.3..4.1``."""
    low = f"{values.min():.3g}"
    high = f"{values.max():.3g}"
    if low == high:
        return low
    return f"{low}..{high}"


class NormalScoresFamily(MappedFamily):
    r"""Base kernels on the features together with their normal scores.

    .. math:: K_k(x, x') = K^0_k \bigl( (x - o, s(x)), \, (x' - o, s(x')) \bigr), \qquad
              s_j(x) = \Phi^{-1} \bigl( \hat F_j(x_j) \bigr)

    with the distribution function :math:`\hat F_j` of the feature and the normal one,
    :math:`\Phi`.

    Parameters
    ----------
    base : KernelFamily
        The p base kernels :math:`K^0_k` of d features and their scores.
    knots : sequence of (ndarray of shape (n, 2) or None)
        Ascending values of each feature and their scores, see `normal_scores`; None for
        a feature without score.
    origin : ndarray of shape (d,) or None, default None
        Row o to subtract; None is zero.

    Raises
    ------
    ValueError
        Knots are invalid, or rows do not have d features.

    Notes
    -----
    Scores are constant beyond the first and the last knot. Rows must be dense.

    References
    ----------
    van der Waerden (1952), Indagationes Mathematicae 14.
    """

    kind = "normal-scores"
    translation_invariant = False
    translates = False
    takes_sparse = False

    def __init__(
        self, base: KernelFamily, knots: Sequence[Any], origin: Any = None
    ) -> None:
        require_base_kernels("base", base)
        self.base = base
        entries = entries_of(
            "knots", knots, "arrays of values and their scores, or None"
        )
        self.knots = tuple(
            None if entry is None else as_numbers("knots", entry) for entry in entries
        )
        for j, feature_knots in enumerate(self.knots):
            if feature_knots is not None and not _are_knots(feature_knots):
                raise ValueError(
                    "knots must hold for each feature None, or two and more ascending values with their scores, not so "
                    f"for feature {j}; take those of normal_scores."
                )
        self.origin = None if origin is None else as_numbers("origin", origin)
        if self.origin is not None and self.origin.shape != (len(self.knots),):
            raise ValueError(
                f"origin must have a number for each of the {len(self.knots)} features, got shape {self.origin.shape}."
            )

    def mapped(self, A: Rows) -> Rows:
        if A.shape[1] != len(self.knots):
            raise ValueError(
                f"X must have the {len(self.knots)} features that there are knots for, got {A.shape[1]}."
            )
        return scores_beside(A, self.knots, self.origin)


def _are_knots(array: np.ndarray) -> bool:
    if array.ndim != 2 or array.shape[1] != 2 or len(array) < 2:
        return False
    return bool(np.isfinite(array).all() and (np.diff(array[:, 0]) > 0).all())


def normal_scores(
    X: np.ndarray, sample_weight: np.ndarray | None = None
) -> tuple[np.ndarray | None, ...]:
    """Return up to `KNOTS` values of each feature, with their normal scores, for interpolation.

    Features of at most two values have None.
    """
    if sample_weight is None:
        sample_weight = np.ones(len(X))
    return tuple(_knots(column, sample_weight) for column in X.T)


def scores_beside(
    A: np.ndarray,
    knots: Sequence[np.ndarray | None],
    origin: np.ndarray | None = None,
) -> np.ndarray:
    """Return features A minus `origin`, and in further columns their normal scores."""
    d = len(knots)
    scored = [j for j, feature_knots in enumerate(knots) if feature_knots is not None]
    mapped = np.empty((A.shape[0], d + len(scored)), dtype=A.dtype)
    mapped[:, :d] = A
    if origin is not None:
        mapped[:, :d] -= origin
    for position, j in enumerate(scored, start=d):
        values, scores = np.asarray(knots[j]).T
        mapped[:, position] = np.interp(A[:, j], values, scores)
    return mapped


def _knots(column: np.ndarray, w: np.ndarray) -> np.ndarray | None:
    values, positions = np.unique(column, return_inverse=True)
    if len(values) <= 2:
        return None
    counts = np.bincount(positions, w)
    below = (np.cumsum(counts) - counts / 2) / counts.sum()
    above = (np.cumsum(counts[::-1])[::-1] - counts / 2) / counts.sum()
    # Precise in both tails
    scores = np.where(below < above, ndtri(below), -ndtri(above))
    if len(values) > KNOTS:
        nearest = np.searchsorted(below, np.linspace(below[0], below[-1], KNOTS)).clip(
            max=len(values) - 1
        )
        selected = np.unique(nearest)
        values = values[selected]
        scores = scores[selected]
    return np.column_stack([values, scores])


class DividedFamily(KernelFamily):
    """Base kernels divided by powers of two, against overflow of their products."""

    def __init__(self, family: KernelFamily, divisors: np.ndarray) -> None:
        self.family = family
        self.divisors = divisors

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
        if shift is not None:
            shift = shift * self.divisors
        K = self.family.tile(A, B, shift)
        return np.asarray(K / self.divisors[:, None, None])

    def diag(self, A: Rows) -> np.ndarray:
        return self.family.diag(A) / self.divisors[:, None]

    def mapped_once(self, X: Rows) -> tuple[KernelFamily, Rows]:
        family, mapped = self.family.mapped_once(X)
        return DividedFamily(family, self.divisors), mapped

    def subset(self, kernels: Sequence[int]) -> DividedFamily:
        return DividedFamily(self.family.subset(kernels), self.divisors[list(kernels)])


def divisors_for(sizes: np.ndarray) -> np.ndarray | None:
    """Return powers of two that divide kernels; None unless some are extreme."""
    _, exponents = np.frexp(sizes)
    exponents[np.abs(exponents) <= ORDINARY] = 0
    if not exponents.any():
        return None
    return np.ldexp(1.0, exponents)
