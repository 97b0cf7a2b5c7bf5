"""Encodings of one column of a table: numbers, categories and dates."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from scipy.special import ndtr, ndtri

from ..base import Value
from . import dates, reading
from .quantities import MOST_DIGITS, POINT, Written
from .reading import LARGEST, Column
from .summary import ColumnSummary, NumberSummary, Scale

MOST_LEVELS = 32
"""Most features of a category; rarer levels share a code."""

NUMBER_OF_BOOLEAN = {"true": "1", "false": "0"}


class Cells(NamedTuple):
    """Count of cells in a column with the same fault, and an example."""

    kinds: str  # kind or unit of the other values
    rows: int
    row: int  # of the first cell, from 0
    value: str  # start of the first cell's text


@dataclass
class EncodingReport:
    """Counts and examples, by column, of missing and unusual values."""

    gaps: Counter[str] = field(default_factory=Counter)  # missing values
    levels: Counter[str] = field(default_factory=Counter)  # new levels
    outside: Counter[str] = field(default_factory=Counter)  # beyond quantiles
    unread: dict[str, Cells] = field(default_factory=dict)  # of the wrong kind
    limits: dict[str, Cells] = field(default_factory=dict)
    converted: dict[str, Cells] = field(default_factory=dict)  # from other units
    # Readable values
    n_read: Counter[str] = field(default_factory=Counter, compare=False)
    first: int = 0  # number of the next row
    is_of_blocks: bool = False  # whether only all blocks must have readable values

    def __add__(self, other: EncodingReport) -> EncodingReport:
        return EncodingReport(
            self.gaps + other.gaps,
            self.levels + other.levels,
            self.outside + other.outside,
            _joined(self.unread, other.unread),
            _joined(self.limits, other.limits),
            _joined(self.converted, other.converted),
            self.n_read + other.n_read,
        )

    def moved(self, n_rows: int) -> EncodingReport:
        """Return the report for rows that follow `n_rows` others."""
        return replace(
            self,
            unread=_moved(self.unread, n_rows),
            limits=_moved(self.limits, n_rows),
            converted=_moved(self.converted, n_rows),
        )

    def add(self, name: str, gaps: int, levels: int) -> None:
        if gaps:
            self.gaps[name] += gaps
        if levels:
            self.levels[name] += levels

    def note_unread(self, column: reading.Column, kinds: str, rows: np.ndarray) -> None:
        """Record the column's values of the wrong kind, in the rows of a mask."""
        self._note(self.unread, column, kinds, rows)

    def note_numbers(
        self, column: reading.Column, written: Written, numbers: reading.Numbers
    ) -> None:
        """Record a column's unreadable cells, detection limits and converted numbers."""
        self._note(
            self.unread, column, "numbers", np.isnan(numbers.values) & ~column.gaps
        )
        self._note(self.limits, column, "the limit", numbers.is_limit)
        if written.unit:
            self._note(self.converted, column, written.unit, numbers.is_converted)

    def require_read(self) -> None:
        """Raise ValueError for a text column without readable values."""
        for name, cells in self.unread.items():
            if not self.n_read[name]:
                values = f"text such as {cells.value!r} in row {cells.row:,} (the first is row 0)"
                raise _unlike_training(name, cells.kinds, values)

    def _note(
        self,
        notes: dict[str, Cells],
        column: reading.Column,
        kinds: str,
        rows: np.ndarray,
    ) -> None:
        if not rows.any():
            return
        row = int(rows.argmax())
        cells = Cells(
            kinds, int(rows.sum()), self.first + row, str(column.values[row])[:40]
        )
        notes.update(_joined(notes, {column.name: cells}))

    def sentences(self) -> list[str]:
        """Return warnings: a sentence per column and kind of unusual values."""
        sentences = []
        for name, cells in self.unread.items():
            sentences.append(
                f"column {name!r} holds {cells.kinds}, but {_example(cells)}; taken as missing"
            )
        for name, cells in self.limits.items():
            sentences.append(
                f"column {name!r} holds the limit {_example(cells)}; taken as the number"
            )
        for name, cells in self.converted.items():
            sentences.append(
                f"column {name!r} holds {_example(cells)}; converted to {cells.kinds}"
            )
        return sentences


def _unlike_training(name: str, expected: str, values: str) -> ValueError:
    return ValueError(
        f"column {name!r} must hold {expected}, as the training rows did, got {values}; convert it, or leave it empty."
    )


def _example(cells: Cells) -> str:
    first = f"{cells.value!r} in row {cells.row:,} (from 0)"
    if cells.rows == 1:
        return first
    return f"{first} and {cells.rows - 1:,} more rows"


def _moved(notes: Mapping[str, Cells], n_rows: int) -> dict[str, Cells]:
    return {
        name: cells._replace(row=cells.row + n_rows) for name, cells in notes.items()
    }


def _joined(
    earlier_block: Mapping[str, Cells], later_block: Mapping[str, Cells]
) -> dict[str, Cells]:
    joined = dict(earlier_block)
    for name, cells in later_block.items():
        first = joined.get(name, cells._replace(rows=0))
        joined[name] = first._replace(rows=first.rows + cells.rows)
    return joined


View: TypeAlias = Literal["numbers", "categories", "dates", "texts", "gaps", "codes"]
"""Kinds of features; "gaps" are indicators of missing values."""


@dataclass(frozen=True, eq=False, repr=False)
class ColumnEncoding(Value):
    """Base class of encodings of a column, fitted to training rows."""

    name: str

    kind: ClassVar[str]
    """Name in files and messages."""

    @property
    @abstractmethod
    def features(self) -> tuple[tuple[str, View], ...]:
        """Name and view of each feature."""

    @property
    def is_number(self) -> bool:
        """Whether values are plain numbers, without units or decimal commas."""
        return False

    @property
    def gap_place(self) -> int | None:
        """Position of the feature that indicates missing values; None without one."""
        for position, (_, view) in enumerate(self.features):
            if view == "gaps":
                return position
        return None

    @property
    def has_gaps(self) -> bool:
        return self.gap_place is not None

    @property
    def depends_on_rows(self) -> bool:
        """Whether the encoding, except for its scaling, depends on the training rows."""
        return self.has_gaps

    @property
    @abstractmethod
    def assumed(self) -> str:
        """Description of the value that replaces missing values."""

    @property
    def is_coded(self) -> bool:
        return any(view == "codes" for _, view in self.features)

    @property
    def is_decodable(self) -> bool:
        """Whether `decode` returns all values."""
        return not (self.has_gaps or self.is_coded)

    @abstractmethod
    def learned_on(self, column: reading.Column, scale: Scale) -> Self:
        """Return an encoding of the same features, fitted to another column."""

    @abstractmethod
    def encode(
        self, column: reading.Column, out: np.ndarray, report: EncodingReport
    ) -> None:
        """Write features into `out`; record unusual values in `report`."""

    def lacks(self, column: reading.Column) -> np.ndarray:
        """Return a mask of missing values and values of the wrong kind."""
        return column.gaps

    def count_lacking(self, summary: ColumnSummary) -> int:
        """Return the number of values that `lacks` marks."""
        return summary.gaps

    @abstractmethod
    def decode(self, Z: np.ndarray) -> list[Any]:
        """Return the column's values from their features Z; missing values stay imputed."""

    def for_trees(self, Z: np.ndarray) -> np.ndarray:
        """Convert features for trees: NaN if missing, one number per category."""
        if not self.has_gaps:
            return np.array(Z)
        values = np.array(Z[:, :-1])
        values[Z[:, -1] > 0] = np.nan
        return values

    @abstractmethod
    def describe(self) -> str:
        """Return a description of the column's type."""

    def _require_some(
        self,
        column: reading.Column,
        expected: str,
        missing: np.ndarray,
        report: EncodingReport,
        accepted: Sequence[str] = (),
    ) -> None:
        """Raise ValueError if no value is of the expected kind."""
        present = ~column.gaps
        unread = missing & present
        n_read = int((present & ~missing).sum())
        if accepted and unread.any():
            n_read += int((unread & is_among(column, accepted)).sum())
        report.n_read[self.name] += n_read
        if n_read or not unread.any():
            return
        if report.is_of_blocks and column.kind == "text":
            return
        row = int(unread.argmax())
        if column.kind == "other":
            values = "lists, records or bytes"
        else:
            example = str(column.values[row])[:40]
            values = f"{column.kind} such as {example!r} in row {report.first + row:,} (the first is row 0)"
        raise _unlike_training(self.name, expected, values)

    def _require_plain(
        self, column: reading.Column, expected: str, report: EncodingReport
    ) -> None:
        if column.kind != "other":
            return
        is_other = np.ones(len(column.values), dtype=bool)
        self._require_some(column, expected, is_other, report)


@dataclass(frozen=True, eq=False, repr=False)
class NumberColumn(ColumnEncoding):
    """Encoding of numbers, or ranks of ordered levels, as ``(number - low) / spread``."""

    fill: float  # median, for missing values
    gaps: bool  # whether missing values have an indicator
    low: float = 0.0
    spread: float = 1.0
    levels: tuple[str, ...] = ()  # lowest first
    knots: tuple[float, ...] = ()  # quantiles, for ranks
    written: Written = POINT
    unreadable: tuple[str, ...] = ()  # texts of training rows

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
        """Return the encoding of a numerical column, from its summary."""
        gaps = numbers.gaps > 0
        if scale == "quantile" and not numbers.constant:
            return cls(
                name, numbers.fill, gaps, 0.0, 1.0, levels, numbers.knots(), written
            )
        low, spread = numbers.scaling(scale)
        if not np.isfinite(spread):
            largest = max(numbers.low, numbers.high, key=abs)
            raise ValueError(
                f"column {name!r} holds {largest:g}, too large for scale {scale!r}; correct it."
            )
        return cls(name, numbers.fill, gaps, low, spread, levels, (), written)

    def learned_on(self, column: reading.Column, scale: Scale) -> Self:
        numbers = NumberSummary.of(self._magnitudes(column, EncodingReport()))
        if not numbers.n_values:
            return replace(self, fill=0.0, low=0.0, spread=1.0, knots=())
        return replace(
            type(self).of(self.name, numbers, scale, self.levels, self.written),
            gaps=self.gaps,
            unreadable=self.unreadable,
        )

    @property
    def features(self) -> tuple[tuple[str, View], ...]:
        return ((self.name, "numbers"), *gap_feature(self.name, self.gaps))

    @property
    def assumed(self) -> str:
        if self.levels:
            return f"{self.levels[int(self.fill)]}, the median"
        return f"{self.fill:.6g}, the median"

    def _magnitudes(self, column: reading.Column, report: EncodingReport) -> np.ndarray:
        """Return numbers or positions of levels, else NaN."""
        if self.levels:
            self._require_plain(column, "ordered levels", report)
            return places_of(column.as_levels(), self.levels)
        numbers = column.read_numbers(self.written)
        missing = np.isnan(numbers.values)
        self._require_some(column, "numbers", missing, report, self.unreadable)
        report.note_numbers(column, self.written, numbers)
        infinite = np.flatnonzero(np.isinf(numbers.values))
        if len(infinite):
            first = report.first + int(infinite[0])
            require_no_infinity(self.name, len(infinite), len(numbers.values), first)
        return numbers.values

    def encode(
        self, column: reading.Column, out: np.ndarray, report: EncodingReport
    ) -> None:
        numbers = self._magnitudes(column, report)
        gaps = np.isnan(numbers)
        filled = np.where(gaps, self.fill, numbers)
        if self.knots:
            out[:, 0] = _normal_scores(filled, self.knots)
            is_outside = (numbers < self.knots[0]) | (numbers > self.knots[-1])
            report.outside[self.name] += int(is_outside.sum())
        else:
            out[:, 0] = (filled - self.low) / self.spread
        if self.gaps:
            out[:, 1] = gaps
        n_new = 0
        if self.levels:
            n_new = int((gaps & ~column.gaps).sum())
        report.add(self.name, int(gaps.sum()) - n_new, n_new)

    def lacks(self, column: reading.Column) -> np.ndarray:
        if self.levels:
            return column.gaps
        return np.isnan(column.read_numbers(self.written).values)

    def count_lacking(self, summary: ColumnSummary) -> int:
        if self.levels:
            return summary.gaps
        _, numbers = summary.read_with(self.written.mark)
        return numbers.gaps

    @property
    def is_number(self) -> bool:
        return not self.levels and self.written == POINT

    def decode(self, Z: np.ndarray) -> list[Any]:
        if self.knots:
            numbers = np.interp(
                ndtr(Z[:, 0]), np.linspace(0.0, 1.0, len(self.knots)), self.knots
            )
        else:
            numbers = Z[:, 0] * self.spread + self.low
        if self.is_number:
            return list(numbers.tolist())
        if not self.levels:
            mark, unit = self.written
            return [
                f"{number:.12g} {unit}".replace(".", mark).strip() for number in numbers
            ]
        positions = np.clip(np.round(numbers), 0, len(self.levels) - 1).astype(int)
        return [self.levels[position] for position in positions]

    def describe(self) -> str:
        if self.levels:
            return f"order of {len(self.levels)} levels"
        details = []
        if self.written.mark == ",":
            details.append("decimal comma")
        if self.written.unit:
            details.append(self.written.unit)
        if not details:
            return "number"
        return f"number ({', '.join(details)})"


@dataclass(frozen=True, eq=False, repr=False)
class CategoryColumn(ColumnEncoding):
    """Encoding of a categorical column: an indicator per level; if many, also a hash code.

    A missing value (None) is a level. A new level has no indicator.
    """

    levels: tuple[str | None, ...]  # by frequency
    many: bool
    scales: tuple[float, ...]  # values of the indicators
    numeric: bool = False
    width: int = 0  # digits of zero-padded codes

    kind = "category"

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.levels) or not all(
            0 <= scale < np.inf for scale in self.scales
        ):
            raise ValueError(
                f"column {self.name!r} must have a scale for each level, not negative."
            )
        if not 0 <= self.width <= MOST_DIGITS:
            raise ValueError(
                f"column {self.name!r} must have a width from 0 to {MOST_DIGITS}, got {self.width}."
            )

    @classmethod
    def of(
        cls, column: ColumnSummary, scale: Scale, max_levels: int = MOST_LEVELS
    ) -> Self:
        """Return the encoding of a categorical column, from its summary."""
        counts = column.counts()
        by_frequency = sorted(
            counts, key=lambda level: (-counts[level], level is None, level or "")
        )
        many = len(by_frequency) > max_levels
        if many:
            by_frequency = by_frequency[: max(0, max_levels - 1)]
        levels = tuple(by_frequency)
        scales = indicator_scales(counts, column.n, levels, scale)
        is_numeric = column.kind == "number" and not column.has_codes
        return cls(column.name, levels, many, scales, is_numeric, column.padded_width)

    def learned_on(self, column: reading.Column, scale: Scale) -> Self:
        texts = self._texts(column).tolist()
        return replace(
            self,
            scales=indicator_scales(Counter(texts), len(texts), self.levels, scale),
        )

    @property
    def features(self) -> tuple[tuple[str, View], ...]:
        features: list[tuple[str, View]] = []
        for level in self.levels:
            features.append(
                (f"{self.name}={'missing' if level is None else level}", "categories")
            )
        if self.many:
            features.append((f"{self.name} code", "codes"))
        return tuple(features)

    @property
    def gap_place(self) -> int | None:
        if None in self.levels:
            return self.levels.index(None)
        return None

    @property
    def assumed(self) -> str:
        if self.has_gaps or self.many:
            return "the category 'missing'"
        return "none of its categories"

    def encode(
        self, column: reading.Column, out: np.ndarray, report: EncodingReport
    ) -> None:
        self._require_plain(column, "categories", report)
        if not self.numeric:
            require_all_digits(column, self.levels, report.first)
        texts = self._texts(column).tolist()
        position_of_text = dict.fromkeys(texts, -1)
        position_of_text.update((level, j) for j, level in enumerate(self.levels))
        positions = np.array(
            list(map(position_of_text.__getitem__, texts)), dtype=np.intp
        )
        out[:] = 0.0
        rows = np.flatnonzero(positions >= 0)
        out[rows, positions[rows]] = np.asarray(self.scales)[positions[rows]]
        if self.many:
            out[:, -1] = reading.codes_of(texts)
        n_gaps = texts.count(None)
        n_new = 0
        if not self.many:
            n_new = int((positions < 0).sum())
            if None not in self.levels:
                n_new -= n_gaps
        report.add(self.name, n_gaps, n_new)

    def for_trees(self, Z: np.ndarray) -> np.ndarray:
        if self.many:
            return Z
        has_level = Z.max(axis=1, initial=0.0) > 0
        return np.where(has_level, Z.argmax(axis=1), np.nan)[:, None]

    @property
    def is_number(self) -> bool:
        return self.numeric

    def decode(self, Z: np.ndarray) -> list[Any]:
        levels: list[Any] = []
        positions = []
        for position, level in enumerate(self.levels):
            if level is not None:
                levels.append(float(level) if self.numeric else level)
                positions.append(position)
        if not levels:
            return ["other"] * len(Z)
        return [levels[j] for j in Z[:, positions].argmax(axis=1)]

    def _texts(self, column: reading.Column) -> np.ndarray:
        """Return the values as written in the training rows."""
        texts = column.as_levels()
        if self.numeric and column.kind == "text":
            numbers = column.read_numbers(POINT).values
            keeps_text = np.isnan(numbers) | (np.abs(numbers) > reading.LARGEST)
            return np.where(keeps_text, texts, reading.as_texts(numbers.tolist()))
        if not self.numeric and column.kind == "number":
            return levels_of_numbers(texts, self.levels, self.width)
        return texts

    def describe(self) -> str:
        if not self.levels:
            return "code of a category"
        if self.many:
            return f"category of {len(self.levels)} and more levels"
        return f"category of {len(self.levels)} levels"


def require_all_digits(
    column: Column, levels: Sequence[str | None], first: int = 0
) -> None:
    if column.kind != "number" or column.exact is not None:
        return
    is_rounded = np.abs(column.values) >= LARGEST
    texts = list(filter(None, levels))
    may_be_long = not texts or any(
        text.isdecimal() and len(text) > MOST_DIGITS for text in texts
    )
    if not is_rounded.any() or not may_be_long:
        return
    row = int(is_rounded.argmax())
    raise ValueError(
        f"column {column.name!r} must hold all digits of its integers, got the float {column.values[row]:.0f} in row "
        f"{first + row:,} (the first is row 0); give texts or integers."
    )


def levels_of_numbers(
    texts: np.ndarray, levels: Sequence[str | None], width: int
) -> np.ndarray:
    """Return numbers as levels; programs may read 007 as 7, and True as 1."""
    level_of_number: dict[str, str] = {}
    for level in filter(None, levels):
        number = NUMBER_OF_BOOLEAN.get(level.lower())
        if number is not None:
            level_of_number.setdefault(number, level)
    level_of_number.update(
        (str(int(level)), level) for level in filter(None, levels) if level.isdecimal()
    )
    codes: list[str | None] = []
    for text in texts:
        if text is None:
            codes.append(None)
            continue
        code = text.zfill(width)
        if code not in levels:
            code = level_of_number.get(code, code)
        codes.append(code)
    return np.array(codes, dtype=object)


def require_scaling(column: NumberColumn | DateColumn) -> None:
    """Raise ValueError unless imputed value, center and scale are finite."""
    if (
        not np.isfinite([column.fill, column.low, column.spread]).all()
        or not column.spread > 0
    ):
        raise ValueError(
            f"column {column.name!r} must have finite numbers fill and low and a positive spread, got {column.fill}, "
            f"{column.low} and {column.spread}."
        )


def gap_feature(name: str, gaps: bool) -> tuple[tuple[str, View], ...]:
    if not gaps:
        return ()
    return ((f"{name} missing", "gaps"),)


def indicator_scales(
    counts: Mapping[str | None, int], n: int, levels: Sequence[str | None], scale: Scale
) -> tuple[float, ...]:
    """Return the scale of each level's indicator, from the level's number of rows.

    The standard scale is the geometric mean of two scales: for a total variance of one,
    and for a variance of one per indicator.
    """
    rows = np.array([counts.get(level, 0) for level in levels])
    variances = rows / n * (1.0 - rows / n)
    scales = np.ones(len(levels))
    if scale in ("standard", "quantile") and variances.sum() > 0:
        scales = (variances.sum() * np.maximum(variances, 1.0 / n**2)) ** -0.25
    return tuple(np.where(rows > 0, scales, 0.0).tolist())


def places_of(
    texts: Sequence[str | None] | np.ndarray, levels: Sequence[str]
) -> np.ndarray:
    """Return each text's position among the levels; NaN for unknown texts."""
    positions: dict[str | None, float] = {
        level: float(i) for i, level in enumerate(levels)
    }
    return np.array([positions.get(text, np.nan) for text in texts], dtype=np.float64)


def is_among(column: Column, texts: Sequence[str]) -> np.ndarray:
    return ~np.isnan(places_of(column.as_levels(), texts))


def require_no_infinity(
    name: str, infinite: int, n: int, first: int | None = None
) -> None:
    """Raise ValueError if a column has infinite values."""
    if not infinite:
        return
    where = "" if first is None else f", at first in row {first} (the first is row 0)"
    raise ValueError(
        f"column {name!r} must hold finite numbers or gaps, got infinity in {infinite} of {n} rows{where}; "
        "correct these, or leave them empty."
    )


def _normal_scores(values: np.ndarray, knots: Sequence[float]) -> np.ndarray:
    return np.asarray(ndtri(ranks_among(values, knots)))


def ranks_among(values: np.ndarray, knots: Sequence[float]) -> np.ndarray:
    """Return ranks of values among training quantiles (knots), in (0, 1)."""
    ranks = np.linspace(0.0, 1.0, len(knots))
    quantiles = np.asarray(knots)
    share_up_to = np.interp(values, quantiles, ranks)
    share_from = np.interp(-values, -quantiles[::-1], ranks)
    mean_rank = 0.5 * (share_up_to + 1.0 - share_from)
    edge = 0.5 / len(knots)
    return np.clip(mean_rank, edge, 1.0 - edge)


@dataclass(frozen=True, eq=False, repr=False)
class DateColumn(ColumnEncoding):
    """Encoding of dates as ``(days - low) / spread``, cycles, months and weekdays."""

    fill: float  # median in days since 1970, for missing values
    gaps: bool
    low: float
    spread: float
    cycles: tuple[str, ...]  # in the order of `ENCODED_CYCLES`
    first: dates.First = "year"
    scaled: bool = False  # whether indicators are scaled
    zone: str = ""
    unreadable: tuple[str, ...] = ()

    kind = "date"

    def __post_init__(self) -> None:
        require_scaling(self)
        if not set(self.cycles) <= set(dates.ENCODED_CYCLES):
            raise ValueError(
                f"column {self.name!r} must have some of the cycles {', '.join(dates.ENCODED_CYCLES)}."
            )

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
        """Return the encoding of a date column, from summaries of days since 1970."""
        varying = set()
        for cycle, phase_of in dates.CYCLES.items():
            smallest_span = 1e-6
            if cycle == "year":
                smallest_span = 0.25
            if np.ptp(phase_of(local_days.points)) > smallest_span:
                varying.add(cycle)
        for indicated, (cycle, *_) in dates.CALENDAR.items():
            if cycle in varying:
                varying.add(indicated)
        is_scaled = scale in ("standard", "quantile")
        if is_scaled:
            scale = "standard"
        low, spread = days.scaling(scale)
        return cls(
            name=name,
            fill=days.fill,
            gaps=days.gaps > 0,
            low=low,
            spread=spread,
            cycles=tuple(cycle for cycle in dates.ENCODED_CYCLES if cycle in varying),
            first=first,
            scaled=is_scaled,
            zone=zone,
        )

    def learned_on(self, column: reading.Column, scale: Scale) -> Self:
        days, local_days = self._days(column, EncodingReport())
        if np.isnan(days).all():
            return replace(self, fill=0.0, low=0.0, spread=1.0)
        learned = type(self).of(
            self.name,
            NumberSummary.of(days),
            NumberSummary.of(local_days),
            scale,
            self.first,
            self.zone,
        )
        return replace(
            learned,
            gaps=self.gaps,
            cycles=self.cycles,
            scaled=self.scaled,
            unreadable=self.unreadable,
        )

    @property
    def features(self) -> tuple[tuple[str, View], ...]:
        features: list[tuple[str, View]] = [(self.name, "dates")]
        for cycle in self.cycles:
            if cycle in dates.CALENDAR:
                _, levels, _ = dates.CALENDAR[cycle]
                features += [(f"{self.name}={level}", "dates") for level in levels]
            else:
                features.append((f"{self.name} sine of {cycle}", "dates"))
                features.append((f"{self.name} cosine of {cycle}", "dates"))
        return (*features, *gap_feature(self.name, self.gaps))

    @property
    def assumed(self) -> str:
        (moment,) = self.decode(np.array([[(self.fill - self.low) / self.spread]]))
        return f"{moment}, the median"

    def encode(
        self, column: reading.Column, out: np.ndarray, report: EncodingReport
    ) -> None:
        days, local_days = self._days(column, report)
        gaps = np.isnan(days)
        out[:, 0] = (np.where(gaps, self.fill, days) - self.low) / self.spread
        local_days = np.where(gaps, self.fill, local_days)
        for cycle, columns in self._columns.items():
            if cycle in dates.CALENDAR:
                _, levels, level_of = dates.CALENDAR[cycle]
                out[:, columns] = 0.0
                equal_counts: dict[str | None, int] = dict.fromkeys(levels, 1)
                kind_of_scale: Scale = "standard" if self.scaled else "none"
                scale, *_ = indicator_scales(
                    equal_counts, len(levels), levels, kind_of_scale
                )
                out[np.arange(len(days)), columns.start + level_of(local_days)] = scale
            else:
                angle = 2.0 * np.pi * dates.CYCLES[cycle](local_days)
                out[:, columns] = np.column_stack([np.sin(angle), np.cos(angle)])
        if self.gaps:
            out[:, -1] = gaps
        report.add(self.name, int(gaps.sum()), 0)

    @property
    def _columns(self) -> dict[str, slice]:
        columns: dict[str, slice] = {}
        start = 1
        for cycle in self.cycles:
            width = 2
            if cycle in dates.CALENDAR:
                _, levels, _ = dates.CALENDAR[cycle]
                width = len(levels)
            columns[cycle] = slice(start, start + width)
            start += width
        return columns

    def for_trees(self, Z: np.ndarray) -> np.ndarray:
        parts = [Z[:, :1]]
        for cycle, columns in self._columns.items():
            if cycle in dates.CALENDAR:
                level = Z[:, columns].argmax(axis=1)
                parts.append(level[:, None].astype(np.float64))
            else:
                parts.append(Z[:, columns])
        values = np.hstack(parts)
        if self.gaps:
            values[Z[:, -1] > 0] = np.nan
        return values

    def _days(
        self, column: reading.Column, report: EncodingReport
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return days since 1970, in UTC and in local time."""
        column = column.without_placeholder_digits(self.first)
        moments = column.read_dates(self.first).in_zone(self.zone)
        expected = {"year": "dates", "time": "times of day"}.get(
            self.first, f"dates with the {self.first} first"
        )
        missing = np.isnat(moments.instants)
        self._require_some(column, expected, missing, report, self.unreadable)
        report.note_unread(column, expected, missing & ~column.gaps)
        return dates.days_of(moments.instants), dates.days_of(moments.local)

    def lacks(self, column: reading.Column) -> np.ndarray:
        column = column.without_placeholder_digits(self.first)
        return np.isnat(column.read_dates(self.first).instants)

    def count_lacking(self, summary: ColumnSummary) -> int:
        return summary.n - summary.dates[self.first].n_values

    def decode(self, Z: np.ndarray) -> list[Any]:
        seconds = np.round((Z[:, 0] * self.spread + self.low) * dates.SECONDS_PER_DAY)
        texts = [str(moment) for moment in seconds.astype("datetime64[s]")]
        if self.first == "time":
            texts = [text.partition("T")[2] for text in texts]
        if self.zone:
            texts = [f"{text}Z" for text in texts]
        return texts

    def describe(self) -> str:
        parts = ", ".join(("time", *self.cycles))
        if self.first == "time":
            return f"time of day ({parts})"
        if self.zone:
            parts = f"{self.zone}; {parts}"
        if self.first != "year":
            parts = f"{self.first} first; {parts}"
        return f"date ({parts})"
