"""How a column of dates becomes features: how long ago, and where in the year, the week and the day."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from learnkernels.kernels.tables.columns import ColumnEncoding, View, gap_feature
from learnkernels.kernels.tables.dates import CYCLES, DAY, First, days_of
from learnkernels.kernels.tables.known import KnownDays, Scale, days_known
from learnkernels.kernels.tables.reading import Column


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
    def of(cls, name: str, dates: KnownDays, scale: Scale, first: First = "year") -> Self:
        """Return the encoding of moments in time of which some are there; texts begin with `first`."""
        days = dates.days
        cycles = [name for name in CYCLES if dates.spans[name] > (0.25 if name == "year" else 1e-6)]
        scaling = days.scaling("standard" if scale == "quantile" else scale)
        return cls(name, days.fill, days.gaps > 0, *scaling, tuple(cycles), first)

    def learned_on(self, column: Column, scale: Scale) -> Self:
        dates = self._dates(column)
        if np.isnat(dates).all():
            return replace(self, fill=0.0, low=0.0, spread=1.0)
        learned = type(self).of(self.name, days_known(days_of(dates)), scale, self.first)
        return replace(learned, gaps=self.gaps, cycles=self.cycles)

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
        days = self.magnitudes(column)
        gaps = np.isnan(days)
        days = np.where(gaps, self.fill, days)
        out[:, 0] = (days - self.low) / self.spread
        for j, cycle in enumerate(self.cycles):
            angle = 2.0 * np.pi * CYCLES[cycle](days)
            out[:, 2 * j + 1], out[:, 2 * j + 2] = np.sin(angle), np.cos(angle)
        if self.gaps:
            out[:, -1] = gaps
        return int(gaps.sum()), 0

    def magnitudes(self, column: Column) -> np.ndarray:
        return days_of(self._dates(column))

    def _dates(self, column: Column) -> np.ndarray:
        """Return the moments in time of a column, NaT for gaps."""
        dates = column.as_dates(self.first) if column.kind in ("date", "text") else None
        if dates is None:
            self._refuse(column, "dates" if self.first == "year" else f"dates with the {self.first} first")
        assert dates is not None
        return dates

    def decode(self, Z: np.ndarray) -> list[Any]:
        seconds = np.round((Z[:, 0] * self.spread + self.low) * DAY)
        return [str(moment) for moment in seconds.astype("datetime64[s]")]

    def describe(self) -> str:
        order = "" if self.first == "year" else f"{self.first} first; "
        return f"date ({order}{', '.join(('time', *self.cycles))})"
