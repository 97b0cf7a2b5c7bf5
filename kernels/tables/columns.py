"""How one column of a table becomes features: a number, an indicator a level, or the parts of a date."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from scipy.special import ndtr, ndtri

from ..parameters import Value
from . import dates, reading
from .quantities import MOST_DIGITS, POINT, Written
from .summary import ColumnSummary, NumberSummary, Scale

MOST_LEVELS = 32
"""Levels of a category that have a feature each, the most frequent ones; all levels of one with more share a code."""


class Cells(NamedTuple):
    """Some cells of a column.

    Attributes
    ----------
    kinds : str
        What the others hold.
    rows : int
    row : int
        Of the first of them; the first row is row 0.
    value : str
        The text of that cell.
    """

    kinds: str
    rows: int
    row: int
    value: str


@dataclass
class EncodingReport:
    """What was met in the columns of some rows.

    Attributes
    ----------
    gaps, levels : Counter
        Rows with a missing value, and with a level that no training row had, by column; only columns with some.
    unread : dict of str to Cells
        Values that are taken as missing, as they are none of the kind that the column holds.
    limits : dict of str to Cells
        Limits of detection, which are treated as the number that they name.
    converted : dict of str to Cells
        Numbers in other units than most of the column, which are converted.
    first : int
        Number of the first row of the next block.
    """

    gaps: Counter[str] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)
    unread: dict[str, Cells] = field(default_factory=dict)
    limits: dict[str, Cells] = field(default_factory=dict)
    converted: dict[str, Cells] = field(default_factory=dict)
    first: int = 0

    def __add__(self, other: EncodingReport) -> EncodingReport:
        return EncodingReport(
            self.gaps + other.gaps,
            self.levels + other.levels,
            _joined(self.unread, other.unread),
            _joined(self.limits, other.limits),
            _joined(self.converted, other.converted),
        )

    def add(self, name: str, gaps: int, levels: int) -> None:
        """Count what one column of some rows holds."""
        self.gaps += Counter({name: gaps})
        self.levels += Counter({name: levels})

    def note_unread(self, column: reading.Column, kinds: str, rows: np.ndarray) -> None:
        """Take note of values of a column that are not of its kind; `rows` says which, shape (n,)."""
        self._note(self.unread, column, kinds, rows)

    def note_numbers(self, column: reading.Column, written: Written, numbers: reading.Numbers) -> None:
        """Take note of values of a column that are no numbers, limits of detection, or numbers in other units."""
        self._note(self.unread, column, "numbers", np.isnan(numbers.values) & ~column.gaps)
        self._note(self.limits, column, "the limit", numbers.is_limit)
        if written.unit:
            self._note(self.converted, column, written.unit, numbers.is_converted)

    def _note(self, notes: dict[str, Cells], column: reading.Column, kinds: str, rows: np.ndarray) -> None:
        if not rows.any():
            return
        row = int(rows.argmax())
        cells = Cells(kinds, int(rows.sum()), self.first + row, str(column.values[row])[:40])
        notes.update(_joined(notes, {column.name: cells}))

    def sentences(self) -> list[str]:
        """Return a sentence per column about its unreadable cells, detection limits and converted numbers."""
        unread = [_sentence(name, f"{cells.kinds}, but", cells, "missing") for name, cells in self.unread.items()]
        limits = [_sentence(name, "the limit", cells, "the number") for name, cells in self.limits.items()]
        converted = [
            f"column {name!r} holds {_shown(cells)}; converted to {cells.kinds}"
            for name, cells in self.converted.items()
        ]
        return [*unread, *limits, *converted]


def _sentence(name: str, holds: str, cells: Cells, taken: str) -> str:
    return f"column {name!r} holds {holds} {_shown(cells)}; taken as {taken}"


def _shown(cells: Cells) -> str:
    """Return the value and the row of the first of some cells, and the number of the others."""
    others = f" and {cells.rows - 1:,} more rows" if cells.rows > 1 else ""
    return f"{cells.value!r} in row {cells.row:,} (from 0){others}"


def _joined(earlier: Mapping[str, Cells], later: Mapping[str, Cells]) -> dict[str, Cells]:
    """Return the cells of two blocks by column, of which the first one is shown."""
    joined = dict(earlier)
    for name, cells in later.items():
        first = joined.get(name)
        joined[name] = cells if first is None else first._replace(rows=first.rows + cells.rows)
    return joined


View: TypeAlias = Literal["numbers", "categories", "dates", "gaps", "codes"]
"""Kinds of features: magnitudes, indicators of levels, dates, of missing values, codes of many levels."""


@dataclass(frozen=True, eq=False, repr=False)
class ColumnEncoding(Value):
    """What was found out about a column on the training rows, and how its values become features.

    Attributes
    ----------
    name : str
        Of the column.
    """

    name: str

    kind: ClassVar[str]
    """Name of the class, in files and in messages."""

    @property
    @abstractmethod
    def features(self) -> tuple[tuple[str, View], ...]:
        """Name and view of each feature."""

    @property
    def is_number(self) -> bool:
        """Whether values are numbers, and not texts."""
        return False

    @property
    def gap_place(self) -> int | None:
        """Position of the feature that says where values are missing; None where no training row had gaps."""
        return next((place for place, (_, view) in enumerate(self.features) if view == "gaps"), None)

    @property
    def has_gaps(self) -> bool:
        """Whether training rows had gaps."""
        return self.gap_place is not None

    @property
    @abstractmethod
    def assumed(self) -> str:
        """How missing values are imputed, in a few words."""

    @property
    def is_coded(self) -> bool:
        """Whether levels are encoded by a code, alone or next to indicators."""
        return any(view == "codes" for _, view in self.features)

    @abstractmethod
    def learned_on(self, column: reading.Column, scale: Scale) -> Self:
        """Return the same features with what fills gaps, and their units, from the values of some rows alone."""

    @abstractmethod
    def encode(self, column: reading.Column, out: np.ndarray, report: EncodingReport) -> None:
        """Write the features of a column into `out`, shape (n, features), and take note of what was met.

        Raises
        ------
        ValueError
            No value is of this kind, or a number is infinite.
        """

    def lacks(self, column: reading.Column) -> np.ndarray:
        """Return whether each value is missing, or none of this kind, shape (n,)."""
        return column.gaps

    @abstractmethod
    def decode(self, Z: np.ndarray) -> list[Any]:
        """Return values that become some features, shape (n, features); missing values are imputed."""

    def for_trees(self, Z: np.ndarray) -> np.ndarray:
        """Return features as trees take them, which need no indicators: a gap is NaN, and a level a number."""
        values = np.array(Z[:, :-1] if self.features[-1][1] == "gaps" else Z)
        if values.shape[1] < Z.shape[1]:
            values[Z[:, -1] > 0] = np.nan
        return values

    @abstractmethod
    def describe(self) -> str:
        """Return the column type in a few words."""

    def _require_some(self, column: reading.Column, expected: str, missing: np.ndarray, report: EncodingReport) -> None:
        """Raise ValueError if a column has values, and none of them is of this kind."""
        present = ~column.gaps
        unread = missing & present
        if not unread.any() or unread.sum() < present.sum():
            return
        row = int(unread.argmax())
        found = "lists, records or bytes"
        if column.kind != "other":
            value = str(column.values[row])[:40]
            found = f"{column.kind} such as {value!r} in row {report.first + row:,} (the first is row 0)"
        raise ValueError(
            f"column {self.name!r} must hold {expected}, as the training rows did, got {found}; convert it."
        )


@dataclass(frozen=True, eq=False, repr=False)
class NumberColumn(ColumnEncoding):
    """A number, or the place of an ordered level, and whether it is missing.

    Attributes
    ----------
    fill : float
        What replaces a missing value: the median of the training rows.
    gaps : bool
        Whether training rows had gaps, so that a feature says where.
    low, spread : float
        A feature is (number - low) / spread.
    levels : tuple of str
        Of an ordered category, from the lowest to the highest.
    knots : tuple of float
        Quantiles of the training rows, at even steps, where the scale is one of quantiles.
    written : Written
        How texts are read.
    """

    fill: float
    gaps: bool
    low: float = 0.0
    spread: float = 1.0
    levels: tuple[str, ...] = ()
    knots: tuple[float, ...] = ()
    written: Written = POINT

    kind = "number"

    def __post_init__(self) -> None:
        require_scaling(self)

    @classmethod
    def of(
        cls,
        name: str,
        numbers: NumberSummary,
        scale: Scale,
        levels: tuple[str, ...] = (),
        written: Written = POINT,
    ) -> Self:
        """Return the encoding of numbers of which some are there."""
        gaps = numbers.gaps > 0
        if scale == "quantile" and not numbers.constant:
            return cls(name, numbers.fill, gaps, 0.0, 1.0, levels, numbers.knots(), written)
        low, spread = numbers.scaling(scale)
        if not np.isfinite(spread):
            largest = max(numbers.low, numbers.high, key=abs)
            raise ValueError(f"column {name!r} holds {largest:g}, too large for scale {scale!r}; correct it.")
        return cls(name, numbers.fill, gaps, low, spread, levels, (), written)

    def learned_on(self, column: reading.Column, scale: Scale) -> Self:
        numbers = NumberSummary.of(self._magnitudes(column, EncodingReport()))
        if not numbers.held:
            return replace(self, fill=0.0, low=0.0, spread=1.0, knots=())
        return replace(type(self).of(self.name, numbers, scale, self.levels, self.written), gaps=self.gaps)

    @property
    def features(self) -> tuple[tuple[str, View], ...]:
        return ((self.name, "numbers"), *gap_feature(self.name, self.gaps))

    @property
    def assumed(self) -> str:
        return f"{self.levels[int(self.fill)] if self.levels else format(self.fill, '.6g')}, the median"

    def _magnitudes(self, column: reading.Column, report: EncodingReport) -> np.ndarray:
        """Return the numbers, or the places of the levels, of a column, NaN for gaps and new levels."""
        if self.levels:
            return places_of(column.as_texts(), self.levels)
        numbers = column.read_numbers(self.written)
        self._require_some(column, "numbers", np.isnan(numbers.values), report)
        report.note_numbers(column, self.written, numbers)
        infinite = np.isinf(numbers.values)
        first = report.first + int(infinite.argmax()) if infinite.any() else None
        require_no_infinity(self.name, int(infinite.sum()), len(infinite), first)
        return numbers.values

    def encode(self, column: reading.Column, out: np.ndarray, report: EncodingReport) -> None:
        numbers = self._magnitudes(column, report)
        new = sum(one is not None and one not in self.levels for one in column.as_texts()) if self.levels else 0
        gaps = np.isnan(numbers)
        filled = np.where(gaps, self.fill, numbers)
        out[:, 0] = _normal_ranks(filled, self.knots) if self.knots else (filled - self.low) / self.spread
        if self.gaps:
            out[:, 1] = gaps
        report.add(self.name, int(gaps.sum()) - new, new)

    def lacks(self, column: reading.Column) -> np.ndarray:
        return column.gaps if self.levels else np.isnan(column.read_numbers(self.written).values)

    @property
    def is_number(self) -> bool:
        return not self.levels and self.written == POINT

    def decode(self, Z: np.ndarray) -> list[Any]:
        if self.knots:
            numbers = np.interp(ndtr(Z[:, 0]), np.linspace(0.0, 1.0, len(self.knots)), self.knots)
        else:
            numbers = Z[:, 0] * self.spread + self.low
        if self.is_number:
            return list(numbers.tolist())
        if not self.levels:
            mark, unit = self.written
            return [f"{number:.12g} {unit}".replace(".", mark).strip() for number in numbers]
        return [self.levels[place] for place in np.clip(np.round(numbers), 0, len(self.levels) - 1).astype(int)]

    def describe(self) -> str:
        if self.levels:
            return f"order of {len(self.levels)} levels"
        how = [*(["decimal comma"] if self.written.mark == "," else []), *filter(None, [self.written.unit])]
        return f"number ({', '.join(how)})" if how else "number"


@dataclass(frozen=True, eq=False, repr=False)
class CategoryColumn(ColumnEncoding):
    """An indicator for each of the frequent levels, and a code that distinguishes all levels where there are many.

    A gap is a level of its own; a level that the training rows did not have is different from all.

    Attributes
    ----------
    levels : tuple of (str or None)
        That have an indicator, the most frequent first; None for a gap.
    many : bool
        Whether there are more, so that a code distinguishes all levels.
    scales : tuple of float
        What the indicator of each level is where it holds; zero for a level that no training row had.
    numeric : bool
        Whether levels are numbers, so that texts of new rows are read as such.
    width : int
        Number of digits of codes with leading zeros, to which numbers of new rows are padded; zero for other levels.
    """

    levels: tuple[str | None, ...]
    many: bool
    scales: tuple[float, ...]
    numeric: bool = False
    width: int = 0

    kind = "category"

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.levels) or not all(0 <= scale < np.inf for scale in self.scales):
            raise ValueError(f"column {self.name!r} must have a scale for each level, not negative.")
        if not 0 <= self.width <= MOST_DIGITS:
            raise ValueError(f"column {self.name!r} must have a width from 0 to {MOST_DIGITS}, got {self.width}.")

    @classmethod
    def of(cls, column: ColumnSummary, scale: Scale, most: int = MOST_LEVELS) -> Self:
        """Return the encoding of a column.

        Of standard scale an indicator is the geometric mean of what makes the variances of all indicators add up to
        one, and of what makes its own one: rare levels tell rows further apart, and count less than in units of their
        own.
        """
        counts = column.counts()
        frequent = sorted(counts, key=lambda level: (-counts[level], level is None, level or ""))
        many = len(frequent) > most
        levels = tuple(frequent[: max(0, most - 1)] if many else frequent)
        scales = indicator_scales(counts, column.n, levels, scale)
        is_numeric = column.kind == "number" and not column.has_codes
        return cls(column.name, levels, many, scales, is_numeric, column.padded_width)

    def learned_on(self, column: reading.Column, scale: Scale) -> Self:
        """Return the same features in units of some rows; the indicator of a level that none of them has is zero."""
        texts = self._texts(column).tolist()
        return replace(self, scales=indicator_scales(Counter(texts), len(texts), self.levels, scale))

    @property
    def features(self) -> tuple[tuple[str, View], ...]:
        found: list[tuple[str, View]] = []
        for level in self.levels:
            found.append((f"{self.name}={'missing' if level is None else level}", "categories"))
        if self.many:
            found.append((f"{self.name} code", "codes"))
        return tuple(found)

    @property
    def gap_place(self) -> int | None:
        return self.levels.index(None) if None in self.levels else None

    @property
    def assumed(self) -> str:
        return "the category 'missing'" if self.has_gaps or self.many else "none of its categories"

    def encode(self, column: reading.Column, out: np.ndarray, report: EncodingReport) -> None:
        texts = self._texts(column)
        place = {level: j for j, level in enumerate(self.levels)}
        places = np.array([place.get(level, -1) for level in texts], dtype=np.intp)
        out[:] = 0.0
        held = np.flatnonzero(places >= 0)
        out[held, places[held]] = np.asarray(self.scales)[places[held]]
        if self.many:
            out[:, -1] = reading.codes_of(texts)
        gaps = sum(level is None for level in texts)
        new = 0 if self.many else int((places < 0).sum()) - (0 if None in place else gaps)
        report.add(self.name, gaps, new)

    def for_trees(self, Z: np.ndarray) -> np.ndarray:
        if self.many:
            return Z
        held = Z.max(axis=1, initial=0.0) > 0
        return np.where(held, Z.argmax(axis=1), np.nan)[:, None]

    @property
    def is_number(self) -> bool:
        return self.numeric

    def decode(self, Z: np.ndarray) -> list[Any]:
        levels = [level for level in self.levels if level is not None] or ["other"]
        held = [level for level in self.levels if level is not None]
        places = Z[:, [self.levels.index(level) for level in held]].argmax(axis=1) if held else np.zeros(len(Z), int)
        return [float(levels[place]) if self.numeric and held else levels[place] for place in places]

    def _texts(self, column: reading.Column) -> np.ndarray:
        texts = column.as_levels()
        if not self.numeric and column.kind == "number":  # other programs read 007 as a number
            texts = np.array([text if text is None else text.zfill(self.width) for text in texts], dtype=object)
            written = {str(int(level)): level for level in self.levels if level is not None and level.isdecimal()}
            return np.array([text if text in self.levels else written.get(text, text) for text in texts], dtype=object)
        if not self.numeric or column.kind != "text":
            return texts
        numbers = column.read_numbers(POINT).values
        return np.where(
            np.isnan(numbers) | (np.abs(numbers) > reading.LARGEST), texts, reading.as_texts(numbers.tolist())
        )

    def describe(self) -> str:
        if not self.levels:
            return "code of a category"
        return f"category of {len(self.levels)}{' and more' if self.many else ''} levels"


def require_scaling(column: NumberColumn | DateColumn) -> None:
    """Raise ValueError unless a column fills gaps with a finite number, and has a positive unit."""
    if not np.isfinite([column.fill, column.low, column.spread]).all() or not column.spread > 0:
        raise ValueError(
            f"column {column.name!r} must have finite numbers fill and low and a positive spread, got {column.fill}, "
            f"{column.low} and {column.spread}."
        )


def gap_feature(name: str, gaps: bool) -> tuple[tuple[str, View], ...]:
    """Return the feature that says where values are missing, if some are."""
    return ((f"{name} missing", "gaps"),) if gaps else ()


def indicator_scales(
    counts: Mapping[str | None, int], n: int, levels: Sequence[str | None], scale: Scale
) -> tuple[float, ...]:
    """Return what the indicator of each level is where it holds, from how many of n rows have a level."""
    held = np.array([counts.get(level, 0) for level in levels])
    variances = held / n * (1.0 - held / n)
    scales = np.ones(len(levels))
    if scale in ("standard", "quantile") and variances.sum() > 0:
        scales = (variances.sum() * np.maximum(variances, 1.0 / n**2)) ** -0.25
    return tuple(np.where(held > 0, scales, 0.0).tolist())


def places_of(texts: Sequence[str | None] | np.ndarray, levels: Sequence[str]) -> np.ndarray:
    """Return where each text stands among some levels, NaN for gaps and for others."""
    place = {level: float(i) for i, level in enumerate(levels)}
    return np.array([np.nan if one is None else place.get(one, np.nan) for one in texts], dtype=np.float64)


def require_no_infinity(name: str, infinite: int, n: int, first: int | None = None) -> None:
    """Raise ValueError if some of n numbers are infinite, the first of them in row `first`."""
    if infinite:
        where = "" if first is None else f", at first in row {first} (the first is row 0)"
        raise ValueError(
            f"column {name!r} must hold finite numbers or gaps, got infinity in {infinite} of {n} rows{where}; "
            "correct these, or leave them empty."
        )


def _normal_ranks(values: np.ndarray, knots: Sequence[float]) -> np.ndarray:
    """Return the quantiles of a normal distribution at the ranks of values among the knots, ties in the middle."""
    shares, held = np.linspace(0.0, 1.0, len(knots)), np.asarray(knots)
    rank = 0.5 * (np.interp(values, held, shares) + 1.0 - np.interp(-values, -held[::-1], shares))
    edge = 0.5 / len(knots)
    return np.asarray(ndtri(np.clip(rank, edge, 1.0 - edge)))


@dataclass(frozen=True, eq=False, repr=False)
class DateColumn(ColumnEncoding):
    """A moment in time: the time itself, sine and cosine of year and day, and indicators of month and weekday.

    The time itself is in UTC. Hour, weekday, month and the day of the year are those of the column's time zone, or of
    the offset of each text. Features that do not vary on the training rows are left out.

    Attributes
    ----------
    fill : float
        What replaces a missing value, the median of the training rows; in days since 1970.
    gaps : bool
        Whether training rows had gaps, so that a feature says where.
    low, spread : float
        The first feature is (days - low) / spread.
    cycles : tuple of {"year", "month", "weekday", "day"}
        Of "month" and "weekday" there is an indicator a level, of the others sine and cosine.
    first : {"year", "day", "month", "time"}
        What texts begin with; those with the year first are read in any case. Or "time" of times of day alone.
    scaled : bool
        Whether indicators are in the units of those of categories, whose variances are comparable with one.
    zone : str
        Time zone of the training rows, to which new rows are converted; empty if the column has none.
    """

    fill: float
    gaps: bool
    low: float
    spread: float
    cycles: tuple[str, ...]
    first: dates.First = "year"
    scaled: bool = False
    zone: str = ""

    kind = "date"

    def __post_init__(self) -> None:
        require_scaling(self)
        if not set(self.cycles) <= set(dates.ENCODED_CYCLES):
            raise ValueError(f"column {self.name!r} must have some of the cycles {', '.join(dates.ENCODED_CYCLES)}.")

    @classmethod
    def of(
        cls,
        name: str,
        days: NumberSummary,
        local_days: NumberSummary,
        scale: Scale,
        first: dates.First = "year",
        zone: str = "",
    ) -> Self:
        """Return the encoding of days since 1970, in UTC and in the column's time zone; texts begin with `first`."""
        spans = {cycle: np.ptp(place_in(local_days.points)) for cycle, place_in in dates.CYCLES.items()}
        varying = {cycle for cycle, span in spans.items() if span > (0.25 if cycle == "year" else 1e-6)}
        varying |= {name for name, (cycle, *_) in dates.CALENDAR.items() if cycle in varying}
        low, spread = days.scaling("standard" if scale == "quantile" else scale)
        return cls(
            name=name,
            fill=days.fill,
            gaps=days.gaps > 0,
            low=low,
            spread=spread,
            cycles=tuple(cycle for cycle in dates.ENCODED_CYCLES if cycle in varying),
            first=first,
            scaled=scale in ("standard", "quantile"),
            zone=zone,
        )

    def learned_on(self, column: reading.Column, scale: Scale) -> Self:
        days, local_days = self._days(column, EncodingReport())
        if np.isnan(days).all():
            return replace(self, fill=0.0, low=0.0, spread=1.0)
        summaries = NumberSummary.of(days), NumberSummary.of(local_days)
        learned = type(self).of(self.name, *summaries, scale, self.first, self.zone)
        return replace(learned, gaps=self.gaps, cycles=self.cycles, scaled=self.scaled)

    @property
    def features(self) -> tuple[tuple[str, View], ...]:
        parts = [self.name]
        for cycle in self.cycles:
            if cycle in dates.CALENDAR:
                parts += [f"{self.name}={level}" for level in dates.CALENDAR[cycle][1]]
            else:
                parts += [f"{self.name} {wave} of {cycle}" for wave in ("sine", "cosine")]
        return (*((part, "dates") for part in parts), *gap_feature(self.name, self.gaps))

    @property
    def assumed(self) -> str:
        (moment,) = self.decode(np.array([[(self.fill - self.low) / self.spread]]))
        return f"{moment}, the median"

    def encode(self, column: reading.Column, out: np.ndarray, report: EncodingReport) -> None:
        days, local_days = self._days(column, report)
        gaps = np.isnan(days)
        out[:, 0] = (np.where(gaps, self.fill, days) - self.low) / self.spread
        local_days = np.where(gaps, self.fill, local_days)
        for cycle, columns in self._columns.items():
            if cycle in dates.CALENDAR:
                _, levels, level_of = dates.CALENDAR[cycle]
                out[:, columns] = 0.0
                even: dict[str | None, int] = dict.fromkeys(levels, 1)  # as the calendar has them
                scale = indicator_scales(even, len(levels), levels, "standard" if self.scaled else "none")[0]
                out[np.arange(len(days)), columns.start + level_of(local_days)] = scale
            else:
                angle = 2.0 * np.pi * dates.CYCLES[cycle](local_days)
                out[:, columns] = np.column_stack([np.sin(angle), np.cos(angle)])
        if self.gaps:
            out[:, -1] = gaps
        report.add(self.name, int(gaps.sum()), 0)

    @property
    def _columns(self) -> dict[str, slice]:
        """Positions of the features of each cycle."""
        found, start = dict[str, slice](), 1
        for cycle in self.cycles:
            found[cycle] = slice(start, start + (len(dates.CALENDAR[cycle][1]) if cycle in dates.CALENDAR else 2))
            start = found[cycle].stop
        return found

    def for_trees(self, Z: np.ndarray) -> np.ndarray:
        """Return features as trees take them: month and weekday as one number each."""
        parts = [Z[:, :1]]
        for cycle, columns in self._columns.items():
            of = Z[:, columns]
            parts.append(of.argmax(axis=1)[:, None].astype(np.float64) if cycle in dates.CALENDAR else of)
        values = np.hstack(parts)
        if self.gaps:
            values[Z[:, -1] > 0] = np.nan
        return values

    def _days(self, column: reading.Column, report: EncodingReport) -> tuple[np.ndarray, np.ndarray]:
        """Return the moments of a column as days since 1970, NaN for gaps: in UTC, and in the column's time zone."""
        moments = column.read_dates(self.first).in_zone(self.zone)
        expected = {"year": "dates", "time": "times of day"}.get(self.first, f"dates with the {self.first} first")
        missing = np.isnat(moments.instants)
        self._require_some(column, expected, missing, report)
        report.note_unread(column, expected, missing & ~column.gaps)
        return dates.days_of(moments.instants), dates.days_of(moments.local)

    def lacks(self, column: reading.Column) -> np.ndarray:
        return np.isnat(column.read_dates(self.first).instants)

    def decode(self, Z: np.ndarray) -> list[Any]:
        seconds = np.round((Z[:, 0] * self.spread + self.low) * dates.DAY)
        begin = 11 if self.first == "time" else 0
        offset = "Z" if self.zone else ""
        return [str(moment)[begin:] + offset for moment in seconds.astype("datetime64[s]")]

    def describe(self) -> str:
        parts = ", ".join(("time", *self.cycles))
        if self.first == "time":
            return f"time of day ({parts})"
        order = "" if self.first == "year" else f"{self.first} first; "
        zone = f"{self.zone}; " if self.zone else ""
        return f"date ({order}{zone}{parts})"
