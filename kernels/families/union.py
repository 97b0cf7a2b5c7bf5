"""Several families side by side, each on all features or on its own columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from learnkernels.kernels.compiled.distances import Differences, joined_differences
from learnkernels.kernels.families.base import KernelFamily, Rows, TilePlan, distinct, family_from_dict
from learnkernels.kernels.families.sides import Sides, part_of
from learnkernels.kernels.fields import Fields, list_of, optional, text, whole


class FamilyUnion(KernelFamily):
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

    def __init__(
        self,
        families: Sequence[KernelFamily],
        columns: Sequence[Sequence[int] | np.ndarray | None] | None = None,
        views: Sequence[str | None] | None = None,
    ) -> None:
        self.families = tuple(families)
        given = [None] * len(self.families) if columns is None else list(columns)
        if not self.families:
            raise ValueError("families must hold at least one kernel family, got an empty list.")
        if len(given) != len(self.families):
            raise ValueError(f"columns must have one entry a family, got {len(given)} for {len(self.families)}.")
        self.columns = tuple(None if view is None else np.asarray(view, dtype=np.intp) for view in given)
        self.views = tuple(views) if views is not None else tuple(map(_positions, self.columns))
        if len(self.views) != len(self.families):
            raise ValueError(f"views must have one entry a family, got {len(self.views)} for {len(self.families)}.")

    def _parameters(self) -> dict[str, Any]:
        columns = [None if view is None else view.tolist() for view in self.columns]
        return {
            "families": self.families,
            "columns": columns if any(view is not None for view in columns) else None,
            "views": None if self.views == tuple(map(_positions, self.columns)) else self.views,
        }

    def _resolved(self) -> dict[str, Any]:
        return {"families": self.families, "columns": self.columns, "views": self.views}

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        columns = fields.get("columns", list_of(optional(list_of(whole))))
        views = fields.get("views", list_of(optional(text)))
        return cls(fields.get("families", list_of(family_from_dict)), columns, views)

    @property
    def names(self) -> tuple[str, ...]:
        names = [
            name if view is None else f"{name} on {view}"
            for family, view in zip(self.families, self.views, strict=True)
            for name in family.names
        ]
        return distinct(names)

    @property
    def n_kernels(self) -> int:
        return sum(family.n_kernels for family in self.families)

    @property
    def kernel_views(self) -> tuple[str | None, ...]:
        of_families = zip(self.families, self.views, strict=True)
        return tuple(view or inner for family, view in of_families for inner in family.kernel_views)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        K = np.empty((self.n_kernels, A.shape[0], B.shape[0]), dtype=A.dtype)
        stop = 0
        for family, view in zip(self.families, self.columns, strict=True):
            start, stop = stop, stop + family.n_kernels
            A_view = _view(A, view)
            B_view = A_view if A is B else _view(B, view)
            K[start:stop] = family.tile(A_view, B_view, None if shift is None else shift[start:stop])
        return K

    def plan(self, shift: np.ndarray) -> TilePlan:
        return TilePlan.joined(
            [family.plan(part) for family, part in zip(self.families, self._parts(shift), strict=True)]
        )

    @property
    def n_seeds(self) -> int:
        return sum(family.n_seeds for family in self.families)

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        stop = 0
        for family, view, part in zip(self.families, self.columns, self._parts(shift), strict=True):
            start, stop = stop, stop + family.n_seeds
            A_view = _view(A, view)
            family.fill_seeds(A_view, A_view if A is B else _view(B, view), part, out[start:stop])

    def side(self, A: Rows, right: Any = None, dtype: Any = np.float64) -> Sides:
        parts = enumerate(zip(self.families, self.columns, strict=True))
        return Sides(tuple(one.side(_view(A, view), part_of(right, i), dtype) for i, (one, view) in parts))

    def fill_between(self, left: Sides, right: Sides, shift: np.ndarray, out: np.ndarray) -> None:
        stop = 0
        for family, A, B, part in zip(self.families, left.of, right.of, self._parts(shift), strict=True):
            start, stop = stop, stop + family.n_seeds
            family.fill_between(A, B, part, out[start:stop])

    def filled_up(self) -> tuple[FamilyUnion, np.ndarray]:
        found = [family.filled_up() for family in self.families]
        before = np.cumsum([0, *(family.n_kernels for family, _ in found)])
        at = np.concatenate([first + own for first, (_, own) in zip(before, found, strict=False)])
        return FamilyUnion([family for family, _ in found], self.columns, self.views), at

    def mapped_once(self, X: Rows) -> tuple[KernelFamily, Rows]:
        if len(self.families) > 1:  # each has features of its own
            return self, X
        family, mapped = self.families[0].mapped_once(_view(X, self.columns[0]))
        return (self, X) if family is self.families[0] else (family, mapped)

    def n_mapped(self, d: int) -> int:
        parts = zip(self.families, self.columns, strict=True)
        return max(family.n_mapped(d if view is None else len(view)) for family, view in parts)

    def differences(self, A: Rows) -> list[Differences] | None:
        views = zip(self.families, self.columns, strict=True)
        return joined_differences(family.differences(_view(A, view)) for family, view in views)

    @property
    def translation_invariant(self) -> bool:
        return all(family.translation_invariant for family in self.families)

    @property
    def translates(self) -> bool:
        return all(family.translates for family in self.families)

    @property
    def takes_sparse(self) -> bool:
        return all(family.takes_sparse for family in self.families)

    def _parts(self, shift: np.ndarray) -> list[np.ndarray]:
        """Return the shift of each family."""
        return np.split(shift, np.cumsum([family.n_kernels for family in self.families])[:-1])

    def diag(self, A: Rows) -> np.ndarray:
        parts = zip(self.families, self.columns, strict=True)
        return np.concatenate([family.diag(_view(A, view)) for family, view in parts])

    def subset(self, kernels: Sequence[int]) -> FamilyUnion:
        owner = [(f, k) for f, family in enumerate(self.families) for k in range(family.n_kernels)]
        runs: list[tuple[int, list[int]]] = []
        for f, k in (owner[position] for position in kernels):
            if runs and runs[-1][0] == f:
                runs[-1][1].append(k)
            else:
                runs.append((f, [k]))
        families = [self.families[f].subset(ks) for f, ks in runs]
        return FamilyUnion(families, [self.columns[f] for f, _ in runs], [self.views[f] for f, _ in runs])


def _view(A: Rows, columns: np.ndarray | None) -> Rows:
    return A if columns is None else A[:, columns]


def _positions(columns: np.ndarray | None) -> str | None:
    if columns is None:
        return None
    shown = ", ".join(map(str, columns[:4])) + (f", ... ({len(columns)})" if len(columns) > 4 else "")
    return f"columns {shown}"
