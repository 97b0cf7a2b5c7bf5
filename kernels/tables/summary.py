"""What is known of the columns of a table: a summary of each block of rows, and these add up.

The summary of a table in memory is that of one block. Of few rows, or few different values, all numbers are kept with
their counts, and what follows from them is the same bit for bit however rows are divided into blocks. Of more, each
block keeps quantiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np

from . import dates, quantities, reading
from .dates import FIRSTS, First
from .quantities import COMMA, POINT, Written
from .units import Conversion, canonical_unit, conversion_between, is_unit

Scale: TypeAlias = Literal["none", "unit", "max", "standard", "quantile"]
"""Units of numbers: their own; from 0 to 1; mean zero and deviation one; or those of a normal distribution's ranks."""

KNOTS = 101
"""Quantiles that a scale of quantiles is made of."""

POINTS = 128
"""Numbers of a block that tell of its quantiles, where not all are kept."""

MOST_EXACT = 1 << 17
"""Rows of a table in blocks up to which all numbers and texts are kept."""

MOST_COUNTED = 4096
"""Levels of a block of which all are counted."""

KEPT = 1024
"""Levels of a block that is counted no further: the most frequent ones."""

MOST_HELD = 65_536
"""Levels, or quantiles, of several blocks, of which half as many are held if there are more."""

SMALLEST = 4096
"""Hash codes kept to estimate the number of distinct values."""

NEARLY_ALL = 0.95
"""Share of the values that must be numbers, or dates, for the column to hold these; the others are missing then."""

FEW_VALUES = 10
"""Values up to which all must be numbers, or dates."""

MOSTLY = 0.7
"""The same share where the others are one or two texts, such as "unknown", among many different numbers."""

MANY_NUMBERS = 20
"""Different numbers that are many there."""

REPEATED = 0.05
"""Share of the rows from which on a text is repeated, as placeholders are."""

LEAST_REPEATED = 3
"""Least number of rows of such a text."""


def pooled(
    n: int, mean: float, squares: float, other_n: int, other_mean: float, other_squares: float
) -> tuple[int, float, float]:
    """Return number, mean and sum of squared differences from it, of two sets of numbers together."""
    both, apart = n + other_n, other_mean - mean
    share = other_n / max(both, 1)
    return both, mean + apart * share, squares + other_squares + apart * apart * (n * share)


def smallest(codes: np.ndarray) -> np.ndarray:
    """Return the smallest different codes, ascending, by which `different` values are counted; two sets join."""
    return np.unique(codes)[:SMALLEST]


def different(codes: np.ndarray) -> int:
    """Return how many values have these smallest codes, which are even in [0, 1); of very many to about 2 %."""
    if len(codes) < SMALLEST:
        return len(codes)
    return round((SMALLEST - 1) / max(float(codes[-1]), 2.0**-53))


def _codes_of_numbers(values: np.ndarray, texts: np.ndarray | None) -> np.ndarray:
    """Return a number in [0, 1) for each number, by its bits (the finalizer of SplitMix64), or by its digits."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # -0 is 0
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    codes = np.asarray(((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)) / 2.0**53)
    if texts is not None and (large := np.abs(values) > reading.LARGEST).any():
        codes[large] = reading.codes_of(texts[large])
    return codes


@dataclass(frozen=True)
class NumberSummary:
    """What is known of numbers of which blocks were looked at; two add up.

    Attributes
    ----------
    n : int
        How many rows there are, of which some may lack a number.
    finite : int
        How many numbers are finite.
    low, high, mean, squares : float
        Of these: extremes, mean, and sum of squared differences from it.
    infinite : int
    points, weights : ndarray
        Numbers that represent all, and how many each represents.
    exact : bool
        Whether they are all numbers, with their counts.
    whole : bool
        Whether all are whole.
    codes : ndarray
        The `smallest` ones of whole numbers.
    """

    n: int
    finite: int
    low: float
    high: float
    mean: float
    squares: float
    infinite: int
    points: np.ndarray
    weights: np.ndarray
    exact: bool
    whole: bool
    codes: np.ndarray

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        counts: np.ndarray | None = None,
        all_kept: bool = True,
        texts: np.ndarray | None = None,
    ) -> Self:
        """Return the summary of numbers, NaN for missing ones, each of which occurs once, or as often as `counts` say.

        Quantiles alone are kept of more than `POINTS` different ones unless `all_kept`. `texts` have all their digits.
        """
        counts = np.ones(len(values), dtype=np.intp) if counts is None else counts
        there = np.isfinite(values)
        held, times = values[there], counts[there]
        points, weights = _counted(held, times)
        whole = bool((held == np.round(held)).all())
        codes = _codes_of_numbers(held, None if texts is None else texts[there]) if whole else np.empty(0)
        exact = all_kept or len(points) <= POINTS
        if not exact:
            points, weights = _fewer(points, weights, POINTS)
        n, finite, infinite = (int(of.sum()) for of in (counts, times, counts[np.isinf(values)]))
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers as large as 1e200, which no scale takes
            mean = times @ held / max(finite, 1)
            apart = held - mean
            squares = float(times @ apart**2)
            mean = float(mean + times @ apart / max(finite, 1))  # of one far from zero, what the first sum has lost
        low, high = float(held.min(initial=np.inf)), float(held.max(initial=-np.inf))
        return cls(n, finite, low, high, mean, squares, infinite, points, weights, exact, whole, smallest(codes))

    def __add__(self, other: NumberSummary) -> NumberSummary:
        points, weights = _counted(
            np.concatenate([self.points, other.points]), np.concatenate([self.weights, other.weights])
        )
        exact = self.exact and other.exact and len(points) <= MOST_EXACT
        if not exact and len(points) > MOST_HELD:
            points, weights = _fewer(points, weights, MOST_HELD // 2)
        low, high = min(self.low, other.low), max(self.high, other.high)
        moments = pooled(self.finite, self.mean, self.squares, other.finite, other.mean, other.squares)
        n, infinite, whole = self.n + other.n, self.infinite + other.infinite, self.whole and other.whole
        codes, (finite, mean, squares) = smallest(np.append(self.codes, other.codes)), moments
        return NumberSummary(n, finite, low, high, mean, squares, infinite, points, weights, exact, whole, codes)

    def converted(self, conversion: Conversion) -> NumberSummary:
        """Return the summary of the same numbers in another unit."""
        factor, offset = conversion
        if factor == 1.0 and offset == 0.0:
            return self
        values, weights = self.points * factor + offset, self.weights
        if factor < 0:
            values, weights = values[::-1], weights[::-1]
        ends = sorted(end * factor + offset for end in (self.low, self.high))
        is_whole = bool(self.exact and (values == np.round(values)).all())
        return replace(
            self,
            low=ends[0],
            high=ends[1],
            mean=self.mean * factor + offset,
            squares=self.squares * factor**2,
            points=values,
            weights=weights,
            whole=is_whole,
            codes=smallest(_codes_of_numbers(values, None)) if is_whole else np.empty(0),
        )

    @property
    def held(self) -> int:
        """How many numbers there are."""
        return self.finite + self.infinite

    @property
    def gaps(self) -> int:
        """How many rows lack one."""
        return self.n - self.held

    @property
    def constant(self) -> bool:
        """Whether all that are there are equal."""
        return self.low == self.high

    @property
    def different(self) -> float:
        """Share of whole numbers that are different; zero where some are not whole."""
        known = self.exact and max(abs(self.low), abs(self.high)) <= reading.LARGEST
        return (len(self.points) if known else different(self.codes)) / max(1, self.held) if self.whole else 0.0

    @property
    def fill(self) -> float:
        """Their median, which replaces a missing value; where not all are kept, close to it."""
        n, ends = self.finite, np.cumsum(self.weights)
        middle = np.searchsorted(ends, [(n - 1) // 2, n // 2], side="right")
        return float(self.points[np.minimum(middle, len(ends) - 1)].mean())

    def scaling(self, scale: Scale) -> tuple[float, float]:
        """Return what to subtract from them, gaps filled, and then to divide them by; by one where all are equal."""
        if scale == "none":
            return 0.0, 1.0
        largest = max(abs(self.low), abs(self.high))
        if scale == "max":
            return 0.0, largest or 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            first, spread = self._moments if scale == "standard" else (self.low, self.high - self.low)
        return first, spread if spread > 1e-12 * largest else 1.0

    @property
    def _moments(self) -> tuple[float, float]:
        """Mean and standard deviation with the gaps filled."""
        if self.exact:  # in an order that does not depend on that of the rows
            values, weights = np.append(self.points, self.fill), np.append(self.weights, self.gaps)
            mean = float((weights * values).sum() / self.n)
            return mean, float(np.sqrt((weights * (values - mean) ** 2).sum() / self.n))
        n, mean, squares = pooled(self.finite, self.mean, self.squares, self.gaps, self.fill, 0.0)
        return mean, float(np.sqrt(squares / n))

    def knots(self) -> tuple[float, ...]:
        """Return their quantiles at `KNOTS` even steps, those between the extremes to what the points tell."""
        if self.exact:
            values = np.repeat(self.points, self.weights.astype(np.intp))
            return tuple(np.quantile(values, np.linspace(0.0, 1.0, KNOTS)).tolist())
        ends = np.cumsum(self.weights)
        half = 0.5 * self.weights.min()  # of a single point
        within = np.stack([ends - self.weights + half, ends - half], axis=1).ravel()  # more of a value is level
        ranks, values = np.r_[0.5, within, ends[-1] - 0.5], np.r_[self.low, np.repeat(self.points, 2), self.high]
        return tuple(np.interp(np.linspace(0.5, ends[-1] - 0.5, KNOTS), ranks, values).tolist())


def _counted(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different values, ascending, and the sum of the weights of each."""
    even = len(weights) > 0 and weights[0] == 1 and (weights == 1).all()
    order = None if even else np.argsort(values, kind="stable")
    ascending = np.sort(values) if order is None else values[order]
    first = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1])[: len(values)])
    if order is None:
        return ascending[first] + 0.0, np.diff(np.append(first, len(values))).astype(np.float64)
    return ascending[first] + 0.0, np.add.reduceat(weights[order], first).astype(np.float64)


def _fewer(points: np.ndarray, weights: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n quantiles of points, ascending, at even steps, and what each represents: all of them the same."""
    ends = np.cumsum(weights)
    even = (np.arange(n) + 0.5) / n * ends[-1]
    return points[np.searchsorted(ends, even)], np.full(n, ends[-1] / n)


def added(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return summaries by name, added up where both hold the name: of the columns of two blocks, those of both."""
    return {**one, **{key: one[key] + value if key in one else value for key, value in other.items()}}


def _dates_of_digits(numbers: np.ndarray, counts: np.ndarray | None, all_kept: bool) -> dict[First, NumberSummary]:
    """Return the summary of numbers such as 20241231 as dates, whatever these begin with; nothing if one is no date."""
    days = dates.days_of_digits(numbers)
    return {} if days is None else dict.fromkeys(FIRSTS[:3], NumberSummary.of(days, counts, all_kept))


@dataclass(frozen=True)
class ColumnSummary:
    """Summary of the blocks of a column that were read; two add up.

    Attributes
    ----------
    name, kind, levels, is_category, zone
        As of `Column`.
    n, gaps : int
        Number of rows, and of rows without a value.
    example : str or None
        The beginning of one of its values.
    texts : mapping of str to int
        Number of rows of each level, as a text; of very many, the most frequent.
    counted : bool
        Whether these are all levels, and their counts exact.
    codes : ndarray
        The `smallest` codes of texts.
    words : int
        Spaces in all texts.
    day_places : frozenset of str
        Position of the day in dates of two numbers and a year.
    numbers : mapping of Written to NumberSummary
        Of the values that are numbers with this unit next to them.
    limits : int
        Number of limits of detection among these.
    padded : int
        Number of rows with an integer that has leading zeros.
    widths : frozenset of int
        Numbers of digits of the texts that are integers.
    several : int
        Number of rows with several numbers in one cell.
    dates : mapping of str to NumberSummary
        By the first part of dates, of the values that are such dates, in days since 1970 in UTC.
    local_dates : mapping of str to NumberSummary
        The same in the time zone of each row.
    has_codes : bool
        Whether there are whole numbers of more digits than float64 keeps.
    """

    name: str
    kind: reading.ColumnKind
    levels: tuple[str, ...]
    is_category: bool
    n: int
    gaps: int
    example: str | None = None
    texts: Mapping[str, int] = field(default_factory=dict)
    counted: bool = True
    codes: np.ndarray = field(default_factory=lambda: np.empty(0))
    words: int = 0
    day_places: frozenset[str] = frozenset()
    numbers: Mapping[Written, NumberSummary] = field(default_factory=dict)
    limits: int = 0
    padded: int = 0
    widths: frozenset[int] = frozenset()
    several: int = 0
    dates: Mapping[First, NumberSummary] = field(default_factory=dict)
    local_dates: Mapping[First, NumberSummary] = field(default_factory=dict)
    has_codes: bool = False
    zone: str = ""

    @classmethod
    def of(cls, column: reading.Column, as_levels: bool = False, all_kept: bool = True) -> ColumnSummary:
        """Return the summary of a block of rows; with `as_levels` numbers are levels of a category, and counted."""
        if column.kind == "other":
            return cls(column.name, "other", (), False, len(column.values), 0)
        gaps = column.gaps
        present = column.values[~gaps]
        summary = cls(
            name=column.name,
            kind=column.kind,
            levels=column.levels,
            is_category=column.is_category,
            n=len(gaps),
            gaps=int(gaps.sum()),
            example=str(present[0])[:40] if len(present) else None,
            zone=column.zone,
        )
        if column.kind == "date":
            return summary._with_moments(column, all_kept)
        if column.kind == "number":
            summary = summary._with_numbers(column, all_kept)
            if not as_levels and not summary.has_codes:
                return summary
        counts = Counter(column.as_levels().tolist())
        del counts[None]
        are_all_counted = all_kept or len(counts) <= MOST_COUNTED
        summary = replace(
            summary,
            texts=dict(counts if are_all_counted else counts.most_common(KEPT)),
            counted=are_all_counted,
            codes=smallest(reading.codes_of(list(counts))),
            words=sum(text.count(" ") * rows for text, rows in counts.items()),
        )
        if column.kind == "number":
            return summary
        return summary._with_texts_read(Counter(present.tolist()), all_kept)

    def _with_moments(self, column: reading.Column, all_kept: bool) -> ColumnSummary:
        """Return the summary with the moments of a block."""
        moments = column.read_dates("year")
        days = NumberSummary.of(dates.days_of(moments.instants), None, all_kept)
        if column.local is None:
            local_days = days
        else:
            local_days = NumberSummary.of(dates.days_of(moments.local), None, all_kept)
        return replace(self, dates={"year": days}, local_dates={"year": local_days})

    def _with_numbers(self, column: reading.Column, all_kept: bool) -> ColumnSummary:
        """Return the summary with the numbers of a block."""
        numbers = NumberSummary.of(column.values, None, all_kept, column.exact)
        days = _dates_of_digits(column.values, None, all_kept)
        return replace(
            self,
            numbers={POINT: numbers, COMMA: numbers},
            dates=days,
            local_dates=days,
            has_codes=column.exact is not None,
        )

    def _with_texts_read(self, counts: Mapping[str, int], all_kept: bool) -> ColumnSummary:
        """Return the summary with the texts of a block read as numbers and as dates."""
        texts = list(counts)
        times = np.array(list(counts.values()), dtype=np.intp)
        summary = replace(
            self,
            has_codes=any(len(text) > 15 and text.isdigit() and int(text) > reading.LARGEST for text in texts),
            padded=sum(rows for text, rows in counts.items() if quantities.ZERO_PADDED.fullmatch(text)),
            widths=frozenset(len(text) for text in texts if text.isdecimal()),
        )
        plain = quantities.plain_numbers(texts)
        if plain is not None and not any("." in text for text in texts):
            numbers = NumberSummary.of(plain, times, all_kept, np.array(texts, dtype=object))
            days = _dates_of_digits(plain, times, all_kept)
            by_mark = {POINT: numbers, COMMA: numbers} if texts else {}
            return replace(summary, numbers=by_mark, dates=days, local_dates=days)
        if (moments := dates.iso_dates(texts)) is not None:
            by_order = dict.fromkeys(FIRSTS[:3], NumberSummary.of(dates.days_of(moments), times, all_kept))
            return replace(summary, dates=by_order, local_dates=by_order)
        summary = summary._with_quantities(texts, times, all_kept)
        return summary if plain is not None else summary._with_dates(texts, times, all_kept)

    def _with_quantities(self, texts: Sequence[str], times: np.ndarray, all_kept: bool) -> ColumnSummary:
        """Return the summary with the texts that are numbers, by decimal mark and unit."""
        digits = np.array(texts, dtype=object)
        numbers, limits = dict[Written, NumberSummary](), 0
        is_number = np.zeros(len(texts), dtype=bool)
        for mark in get_args(quantities.Mark):
            read = [quantities.quantity_in(text, mark) for text in texts]
            is_number |= np.array([quantity is not None for quantity in read], dtype=bool)
            units = np.array([None if quantity is None else quantity.unit for quantity in read], dtype=object)
            for unit in dict.fromkeys(units.tolist()):
                if unit is None:
                    continue
                positions = np.flatnonzero(units == unit)
                values = np.array([read[position].value for position in positions])  # type: ignore[union-attr]
                numbers[Written(mark, unit)] = NumberSummary.of(values, times[positions], all_kept, digits[positions])
            is_limit = np.array([quantity is not None and quantity.is_limit for quantity in read], dtype=bool)
            limits = max(limits, int(times[is_limit].sum()))
        several = sum(
            int(times[position])
            for position in np.flatnonzero(~is_number).tolist()
            if quantities.SEVERAL_NUMBERS.fullmatch(texts[position])
        )
        return replace(self, numbers=numbers, limits=limits, several=several)

    def _with_dates(self, texts: Sequence[str], times: np.ndarray, all_kept: bool) -> ColumnSummary:
        """Return the summary with the texts that are dates or times, by the first part of dates."""
        places = dates.day_places(texts)
        column = reading.Column(self.name, "text", np.array(texts, dtype=object))
        days, local_days = dict[First, NumberSummary](), dict[First, NumberSummary]()
        for first in FIRSTS if places else ("year", "time"):
            moments = column.read_dates(first)
            is_date = ~np.isnat(moments.instants)
            if not is_date.any():
                continue
            days[first] = NumberSummary.of(dates.days_of(moments.instants)[is_date], times[is_date], all_kept)
            local_days[first] = days[first]
            if moments.has_offset.any():
                local_days[first] = NumberSummary.of(dates.days_of(moments.local)[is_date], times[is_date], all_kept)
        if "year" in days and not places:  # these texts are the same dates in any order
            days |= {"day": days["year"], "month": days["year"]}
            local_days |= {"day": local_days["year"], "month": local_days["year"]}
        return replace(self, day_places=places, dates=days, local_dates=local_days)

    def __add__(self, other: ColumnSummary) -> ColumnSummary:
        said = self if self.example is not None else other  # of a block of gaps alone the kind says nothing
        if other.example is not None and (said.kind, said.levels) != (other.kind, other.levels):
            raise ValueError(
                f"column {self.name!r} must hold one kind of values, and levels in one order, in all its parts, got "
                f"{said.kind} such as {said.example!r} and {other.kind} such as {other.example!r}; write it as one "
                "type, or say what it is with 'columns'."
            )
        texts, counted = Counter(self.texts) + Counter(other.texts), self.counted and other.counted
        if len(texts) > (MOST_EXACT if counted else MOST_HELD):
            texts, counted = Counter(dict(texts.most_common(MOST_HELD // 2))), False
        return replace(
            said,
            n=self.n + other.n,
            gaps=self.gaps + other.gaps,
            texts=dict(texts),
            counted=counted,
            codes=smallest(np.append(self.codes, other.codes)),
            words=self.words + other.words,
            day_places=self.day_places | other.day_places,
            numbers=added(self.numbers, other.numbers),
            limits=self.limits + other.limits,
            padded=self.padded + other.padded,
            widths=self.widths | other.widths,
            several=self.several + other.several,
            dates=added(self.dates, other.dates),
            local_dates=added(self.local_dates, other.local_dates),
            has_codes=self.has_codes or other.has_codes,
        )

    @property
    def held(self) -> int:
        """How many rows have a value."""
        return self.n - self.gaps

    @property
    def different(self) -> int:
        """How many different texts it has; where not all are counted, to about 2 %."""
        return len(self.texts) if self.counted else different(self.codes)

    @property
    def spaces(self) -> float:
        """How many spaces a text has on average."""
        return self.words / max(1, self.held)

    def counts(self) -> Mapping[str | None, int]:
        """Return how many rows have each level, None for gaps; of very many levels, each of the most frequent."""
        counts: dict[str | None, int] = {None: self.gaps} if self.gaps else {}
        counts.update(self.texts)
        return counts

    def _suffices(self, read: int, least: float) -> bool:
        """Return whether so many of its values are enough to say that it holds such."""
        some = self.held > FEW_VALUES or least < NEARLY_ALL
        return read > 0 and (read == self.held or (some and read >= min(least * self.held, self.held - 1)))

    @property
    def is_zero_padded(self) -> bool:
        """Whether its integers are codes: many have leading zeros, or some have and all have equally many digits."""
        return self.padded > (1 - NEARLY_ALL) * self.held or self.padded_width > 0

    @property
    def padded_width(self) -> int:
        """Number of digits of all its integers, if it is the same and some have leading zeros; else zero."""
        has_one = self.padded > 0 and len(self.widths) == 1 and max(self.widths) <= quantities.MOST_DIGITS
        return max(self.widths) if has_one else 0

    @property
    def repeated_texts(self) -> dict[str, int]:
        """Texts that many rows share, such as placeholders, and the number of rows of each."""
        least = max(LEAST_REPEATED, REPEATED * self.held)
        return {text: rows for text, rows in self.texts.items() if rows >= least}

    def units(self) -> dict[str, int]:
        """Return the number of rows of each unit, the most frequent first, if nearly all values are numbers."""
        by_mark = []
        for mark in get_args(quantities.Mark):
            rows = {written.unit: numbers.held for written, numbers in self.numbers.items() if written.mark == mark}
            by_mark.append(dict(sorted(rows.items(), key=lambda item: (-item[1], item[0]))))
        units = max(by_mark, key=lambda rows: sum(rows.values()))
        return units if self._suffices(sum(units.values()), NEARLY_ALL) else {}

    @property
    def has_several_numbers(self) -> bool:
        """Whether nearly all cells hold several numbers."""
        return self._suffices(self.several, NEARLY_ALL)

    def as_numbers(self, least: float = NEARLY_ALL) -> tuple[Written, NumberSummary] | None:
        """Return the notation of its numbers, and their summary; None if too many values are no numbers."""
        readings = [self._read_with(mark) for mark in get_args(quantities.Mark)]
        written, numbers = max(readings, key=lambda candidate: candidate[1].held)
        if not numbers.held:
            return None
        texts = self.different - len(numbers.points)
        is_exact = self.counted and numbers.exact and self.n <= MOST_EXACT  # the same however blocks are cut
        has_words = is_exact and texts <= 2 and len(numbers.points) >= MANY_NUMBERS
        is_enough = (has_words and numbers.held >= MOSTLY * self.held) or self._suffices(numbers.held, least)
        return (written, numbers) if is_enough and 2 * self.limits < max(1, numbers.held) else None

    def _read_with(self, mark: quantities.Mark) -> tuple[Written, NumberSummary]:
        """Return the summary of its numbers with a decimal mark, in the unit of most of them."""
        by_unit = {written.unit: numbers for written, numbers in self.numbers.items() if written.mark == mark}
        main_unit = _main_unit({unit: numbers.held for unit, numbers in by_unit.items()})
        parts = []
        for unit in sorted(by_unit, key=lambda unit: (unit != "", unit != main_unit, unit)):
            conversion = Conversion(1.0) if unit == "" else conversion_between(unit, main_unit)
            if conversion is not None:
                parts.append(by_unit[unit].converted(conversion))
        total = reduce(add, parts) if parts else NumberSummary.of(np.empty(0))
        return Written(mark, main_unit), replace(total, n=self.n)

    def as_dates(self, least: float = NEARLY_ALL) -> tuple[First | None, NumberSummary] | None:
        """Return the first part of its dates, None if day and month are ambiguous, and a summary of their days.

        None if too many values are no dates.
        """
        first = dates.first_of(self.day_places)
        for begin in (first or "day", "time"):
            days = self.dates.get(begin)
            if days is not None and self._suffices(days.held, least):
                return (first if begin != "time" else "time"), replace(days, n=self.n)
        return None


def _main_unit(rows_of_unit: Mapping[str, int]) -> str:
    """Return the unit that the numbers of a column are converted to, empty if most have none.

    It is the most frequent unit of the quantity that most rows measure.
    """
    units = [unit for unit in rows_of_unit if unit]
    if not units:
        return ""

    def rows_of_quantity(wanted: str) -> int:
        return sum(rows_of_unit[unit] for unit in units if conversion_between(unit, wanted) is not None)

    def rows_of_spellings(wanted: str) -> int:
        return sum(rows_of_unit[unit] for unit in units if canonical_unit(unit) == canonical_unit(wanted))

    main_unit = max(units, key=lambda unit: (rows_of_quantity(unit), rows_of_spellings(unit), rows_of_unit[unit], unit))
    is_billions = main_unit == "B" and rows_of_quantity("B") == rows_of_unit["B"]
    is_rare_word = not is_unit(main_unit) and rows_of_quantity(main_unit) < rows_of_unit.get("", 0)  # such as 5more
    return "" if is_billions or is_rare_word else main_unit


def summarize_table(block: Any, as_levels: Collection[str] = (), all_kept: bool = True) -> dict[str, ColumnSummary]:
    """Return the summary of each column of a block of rows; numbers in the columns of `as_levels` are levels."""
    held = reading.read_columns(block)
    return {name: ColumnSummary.of(column, name in as_levels, all_kept) for name, column in held.items()}
