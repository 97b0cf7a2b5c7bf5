"""How a column of dates becomes features: how long ago, and where in the year, the week and the day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from learnkernels.kernels.tables.columns import ColumnEncoding, Scale, View, gap_feature, scaling_of
from learnkernels.kernels.tables.dates import First
from learnkernels.kernels.tables.reading import Column

DAY = 86_400.0
"""Seconds."""


@dataclass(frozen=True, eq=False, repr=False)
class DateColumn(ColumnEncoding):
    """A moment in time: how long ago, and where in the year, the week and the day, as far as these differ.

    Attributes
    ----------
    fill : float
        What stands for a gap, the median of the training rows; in days since 1970.
    gaps : bool
        Whether training rows had gaps, so that a feature says where.
    low, spread : float
        The first feature is (days - low) / spread.
    cycles : tuple of {"year", "week", "day"}
        Of which sine and cosine are features.
    first : {"year", "day", "month"}
        What texts begin with; those of ISO 8601, with the year, are read in any case.
    """

    fill: float
    gaps: bool
    low: float
    spread: float
    cycles: tuple[str, ...]
    first: First = "year"

    kind = "date"

    @classmethod
    def of(cls, name: str, dates: np.ndarray, scale: Scale, first: First = "year") -> Self:
        """Return the encoding of moments in time, NaT for gaps, of which some are there; texts begin with `first`."""
        days = _days(dates)
        gaps = np.isnan(days)
        held = days[~gaps]
        cycles = [name for name in CYCLES if np.ptp(CYCLES[name](held)) > (0.25 if name == "year" else 1e-6)]
        fill = float(np.median(held))
        scaling = scaling_of(np.where(gaps, fill, days), "standard" if scale == "quantile" else scale)
        return cls(name, fill, bool(gaps.any()), *scaling, tuple(cycles), first)

    @property
    def features(self) -> tuple[tuple[str, View], ...]:
        parts = [self.name, *(f"{self.name} {wave} of {cycle}" for cycle in self.cycles for wave in ("sine", "cosine"))]
        return (*((part, "dates") for part in parts), *gap_feature(self.name, self.gaps))

    @property
    def kinds(self) -> str:
        return "dates"

    @property
    def said(self) -> str | tuple[str, ...]:
        return "date"

    @property
    def has_gaps(self) -> bool:
        return self.gaps

    def encode(self, column: Column, out: np.ndarray) -> tuple[int, int]:
        dates = column.as_dates(self.first) if column.kind in ("date", "text") else None
        if dates is None:
            self._refuse(column, "dates" if self.first == "year" else f"dates with the {self.first} first")
        assert dates is not None
        days = _days(dates)
        gaps = np.isnan(days)
        days = np.where(gaps, self.fill, days)
        out[:, 0] = (days - self.low) / self.spread
        for j, cycle in enumerate(self.cycles):
            angle = 2.0 * np.pi * CYCLES[cycle](days)
            out[:, 2 * j + 1], out[:, 2 * j + 2] = np.sin(angle), np.cos(angle)
        if self.gaps:
            out[:, -1] = gaps
        return int(gaps.sum()), 0

    def decode(self, Z: np.ndarray) -> list[Any]:
        seconds = np.round((Z[:, 0] * self.spread + self.low) * DAY)
        return [str(moment) for moment in seconds.astype("datetime64[s]")]

    def describe(self) -> str:
        order = "" if self.first == "year" else f"{self.first} first; "
        return f"date ({order}{', '.join(('time', *self.cycles))})"


CYCLES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": lambda days: days / 365.2425 % 1.0,
    "week": lambda days: np.floor(days) % 7.0 / 7.0,
    "day": lambda days: days % 1.0,
}
"""Where in a cycle, from 0 to 1, some days since 1970 are."""


def _days(dates: np.ndarray) -> np.ndarray:
    """Return moments in time as days since 1970, NaN for gaps."""
    days = dates.astype("datetime64[us]").astype(np.int64) / (1e6 * DAY)
    return np.asarray(np.where(np.isnat(dates), np.nan, days))
