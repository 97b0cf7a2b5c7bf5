"""How a column of dates becomes features: the time, cycles of year and day, and indicators of month and weekday."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from learnkernels.kernels.tables.columns import ColumnEncoding, Met, View, gap_feature, indicator_scales
from learnkernels.kernels.tables.dates import CALENDAR, CYCLES, DAY, First, days_of
from learnkernels.kernels.tables.reading import Column
from learnkernels.kernels.tables.summary import DaySummary, Scale


@dataclass(frozen=True, eq=False, repr=False)
class DateColumn(ColumnEncoding):
    """A moment in time: the time itself, sine and cosine of year and day, and indicators of month and weekday.

    Features that do not vary on the training rows are left out.

    Attributes
    ----------
    fill : float
        What stands for a gap, the median of the training rows; in days since 1970.
    gaps : bool
        Whether training rows had gaps, so that a feature says where.
    low, spread : float
        The first feature is (days - low) / spread.
    cycles : tuple of {"year", "month", "week", "weekday", "day"}
        Of "month" and "weekday" there is an indicator a level, of the others sine and cosine. Files of older versions
        have "week" in place of "weekday".
    first : {"year", "day", "month", "time"}
        What texts begin with; those with the year first are read in any case. Or "time" of times of day alone.
    scaled : bool
        Whether indicators are in the units of those of categories, whose variances are comparable with one.
    """

    fill: float
    gaps: bool
    low: float
    spread: float
    cycles: tuple[str, ...]
    first: First = "year"
    scaled: bool = False

    kind = "date"

    @classmethod
    def of(cls, name: str, dates: DaySummary, scale: Scale, first: First = "year") -> Self:
        """Return the encoding of moments in time of which some are there; texts begin with `first`."""
        days = dates.days
        varies = {name for name in CYCLES if dates.spans[name] > (0.25 if name == "year" else 1e-6)}
        varies |= {name for name, (cycle, *_) in CALENDAR.items() if cycle in varies}
        cycles = tuple(name for name in ("year", "month", "weekday", "day") if name in varies)
        scaling = days.scaling("standard" if scale == "quantile" else scale)
        return cls(name, days.fill, days.gaps > 0, *scaling, cycles, first, scale in ("standard", "quantile"))

    def learned_on(self, column: Column, scale: Scale) -> Self:
        days = self._days(column, Met())
        if np.isnan(days).all():
            return replace(self, fill=0.0, low=0.0, spread=1.0)
        learned = type(self).of(self.name, DaySummary.of(days), scale, self.first)
        return replace(learned, gaps=self.gaps, cycles=self.cycles, scaled=self.scaled)

    @property
    def features(self) -> tuple[tuple[str, View], ...]:
        parts = [self.name]
        for cycle in self.cycles:
            if cycle in CALENDAR:
                parts += [f"{self.name}={level}" for level in CALENDAR[cycle][1]]
            else:
                parts += [f"{self.name} {wave} of {cycle}" for wave in ("sine", "cosine")]
        return (*((part, "dates") for part in parts), *gap_feature(self.name, self.gaps))

    @property
    def kinds(self) -> str:
        return "times of day" if self.first == "time" else "dates"

    @property
    def said(self) -> str | tuple[str, ...]:
        return "date"

    @property
    def has_gaps(self) -> bool:
        return self.gaps

    def encode(self, column: Column, out: np.ndarray, met: Met) -> None:
        days = self._days(column, met)
        gaps = np.isnan(days)
        days = np.where(gaps, self.fill, days)
        out[:, 0] = (days - self.low) / self.spread
        for cycle, columns in self._columns.items():
            if cycle in CALENDAR:
                _, levels, level_of = CALENDAR[cycle]
                out[:, columns] = 0.0
                even: dict[str | None, int] = dict.fromkeys(levels, 1)  # as the calendar has them
                scale = indicator_scales(even, len(levels), levels, "standard" if self.scaled else "none")[0]
                out[np.arange(len(days)), columns.start + level_of(days)] = scale
            else:
                angle = 2.0 * np.pi * CYCLES[cycle](days)
                out[:, columns] = np.column_stack([np.sin(angle), np.cos(angle)])
        if self.gaps:
            out[:, -1] = gaps
        met.add(self.name, int(gaps.sum()), 0)

    @property
    def _columns(self) -> dict[str, slice]:
        """Positions of the features of each cycle."""
        found, start = dict[str, slice](), 1
        for cycle in self.cycles:
            found[cycle] = slice(start, start + (len(CALENDAR[cycle][1]) if cycle in CALENDAR else 2))
            start = found[cycle].stop
        return found

    def for_trees(self, Z: np.ndarray) -> np.ndarray:
        """Return features as trees take them: month and weekday as one number each."""
        parts = [Z[:, :1]]
        for cycle, columns in self._columns.items():
            of = Z[:, columns]
            parts.append(of.argmax(axis=1)[:, None].astype(np.float64) if cycle in CALENDAR else of)
        values = np.hstack(parts)
        if self.gaps:
            values[Z[:, -1] > 0] = np.nan
        return values

    def _days(self, column: Column, met: Met) -> np.ndarray:
        """Return the moments of a column as days since 1970, NaN for gaps."""
        days = days_of(column.read_dates(self.first))
        expected = {"year": "dates", "time": "times of day"}.get(self.first, f"dates with the {self.first} first")
        self._take_note(column, expected, np.isnan(days), met)
        return days

    def lacks(self, column: Column) -> np.ndarray:
        return np.isnat(column.read_dates(self.first))

    def decode(self, Z: np.ndarray) -> list[Any]:
        seconds = np.round((Z[:, 0] * self.spread + self.low) * DAY)
        return [str(moment)[11 * (self.first == "time") :] for moment in seconds.astype("datetime64[s]")]

    def describe(self) -> str:
        if self.first == "time":
            return f"time of day ({', '.join(('time', *self.cycles))})"
        order = "" if self.first == "year" else f"{self.first} first; "
        return f"date ({order}{', '.join(('time', *self.cycles))})"
