"""What is known of the rows on one side of a tile before the other side is: moved, with their norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learnkernels.kernels.families.base import squared_norms, widened

ROWS_TO_PACK = 16
"""Fewest rows of a left side for which compiled steps lay the right one out anew, which costs what a few of them do."""


@dataclass(frozen=True)
class MovedRows:
    """Dense rows less a row that those of both sides of a tile are moved by, which changes no distance.

    Attributes
    ----------
    rows : ndarray of shape (a, d)
    norms : ndarray of shape (a,)
        Squared.
    mean : ndarray of shape (d,)
        The row, of float64: the mean of those on the right side.
    wide : ndarray of shape (a, d + 2) or None
        `widened` rows, of the right side.
    """

    rows: np.ndarray
    norms: np.ndarray
    mean: np.ndarray
    wide: np.ndarray | None

    @classmethod
    def of(cls, A: np.ndarray, right: MovedRows | None, dtype: Any) -> MovedRows:
        """Return rows of the right side, or of the left one of a right side that is given, in some precision."""
        mean = A.mean(axis=0) if right is None else right.mean
        rows = (A - mean).astype(dtype, copy=False)
        norms = squared_norms(rows)
        return cls(rows, norms, mean, widened(rows, norms) if right is None else None)

    def __getitem__(self, some: slice) -> MovedRows:
        wide = None if self.wide is None else self.wide[some]
        return MovedRows(self.rows[some], self.norms[some], self.mean, wide)


@dataclass(frozen=True)
class Sides:
    """Sides of a tile for several families, one each."""

    of: tuple[Any, ...]

    def __getitem__(self, some: slice) -> Sides:
        return Sides(tuple(side[some] for side in self.of))


def part_of(right: Any, position: int) -> Any:
    """Return the right side of one of several families; None where there is no right side yet."""
    return None if right is None else right.of[position]
