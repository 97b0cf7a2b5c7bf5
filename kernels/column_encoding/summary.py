"""Summaries of columns, which are added over blocks of rows."""

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
from .quantities import (
    COMMA,
    MULTIPLES,
    MULTIPLIED,
    POINT,
    Written,
    conversion_for,
)
from .units import (
    COUNT,
    FRACTION,
    HOURS_AND_MINUTES,
    MINUTES_AND_SECONDS,
    Conversion,
    canonical_unit,
    conversion_between,
    is_unit,
)

Scale: TypeAlias = Literal["none", "unit", "max", "standard", "quantile"]
"""Scaling of numbers: none, to [0, 1], by maximum, variance or ranks."""

KNOTS = 101

QUANTILES_OF_BLOCK = 128
"""Quantiles of a block that does not keep all numbers."""

MOST_EXACT = 1 << 17
"""Most rows of a table in blocks with all values kept."""

MOST_COUNTED = 4096
"""Most distinct texts of a block with all texts kept."""

MOST_KEPT_TEXTS = 1024
"""Most frequent texts to keep from a larger block."""

MOST_MERGED = 65_536
"""Most texts or quantiles of several blocks, before half are dropped."""

MOST_CODES = 4096
"""Hash codes that estimate the number of distinct values."""

NEARLY_ALL = 0.95
"""Smallest share of numbers in a column of numbers, also of dates."""

FEW_VALUES = 10
"""Most values of a column that must all be numbers or dates."""

LARGE_SHARE = 0.7
"""Smallest share of numbers next to at most two distinct texts."""

MANY_NUMBERS = 20
"""Fewest distinct numbers for `LARGE_SHARE`."""

PLACEHOLDER_SHARE = 0.05

LEAST_PLACEHOLDERS = 3


def pooled(
    n: int,
    mean: float,
    squares: float,
    other_n: int,
    other_mean: float,
    other_squares: float,
) -> tuple[int, float, float]:
    """Combine two samples' sizes, means and sums of squared deviations."""
    total = n + other_n
    difference = other_mean - mean
    share = other_n / max(total, 1)
    pooled_squares = squares + other_squares + difference * difference * (n * share)
    return total, mean + difference * share, pooled_squares


def smallest(codes: np.ndarray) -> np.ndarray:
    """Return the `MOST_CODES` smallest distinct hash codes."""
    return np.unique(codes)[:MOST_CODES]


def estimated_n_distinct(codes: np.ndarray) -> int:
    """Estimate the number of distinct values from the smallest hash codes."""
    if len(codes) < MOST_CODES:
        return len(codes)
    return round((MOST_CODES - 1) / max(float(codes[-1]), 2.0**-53))


def _codes_of_numbers(values: np.ndarray, texts: np.ndarray | None) -> np.ndarray:
    """Return a hash code in [0, 1) of each number, by SplitMix64."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # -0 is 0
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    codes = np.asarray(((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)) / 2.0**53)
    if texts is None:
        return codes
    is_large = np.abs(values) > reading.LARGEST
    if is_large.any():
        codes[is_large] = reading.codes_of(texts[is_large])
    return codes


@dataclass(frozen=True)
class NumberSummary:
    """Summary of a column's numbers; addition joins summaries of different rows."""

    n: int
    finite: int
    low: float
    high: float
    mean: float
    squares: float  # sum of squared deviations
    infinite: int
    points: np.ndarray  # distinct numbers or quantiles, ascending
    weights: np.ndarray  # counts of the points
    exact: bool  # whether points are all distinct numbers
    are_integers: bool
    codes: np.ndarray  # hash codes of integers

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        counts: np.ndarray | None = None,
        keep_all_numbers: bool = True,
        texts: np.ndarray | None = None,
    ) -> Self:
        """Summarize numbers of a column; NaN is a missing value.

        `texts` have all digits of large integers. Without `keep_all_numbers`, points
        are quantiles.
        """
        if counts is None:
            counts = np.ones(len(values), dtype=np.intp)
        is_finite = np.isfinite(values)
        numbers = values[is_finite]
        number_counts = counts[is_finite]
        finite = int(number_counts.sum())
        points, weights = _counted(numbers, number_counts)
        exact = keep_all_numbers or len(points) <= QUANTILES_OF_BLOCK
        if not exact:
            points, weights = _quantiles(points, weights, QUANTILES_OF_BLOCK)
        are_integers = bool((numbers == np.round(numbers)).all())
        codes = np.empty(0)
        if are_integers:
            if texts is not None:
                texts = texts[is_finite]
            codes = _codes_of_numbers(numbers, texts)
        # Squares of large numbers overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            mean = number_counts @ numbers / max(finite, 1)
            deviations = numbers - mean
            squares = float(number_counts @ deviations**2)
            # This corrects rounding errors.
            mean = float(mean + number_counts @ deviations / max(finite, 1))
        return cls(
            n=int(counts.sum()),
            finite=finite,
            low=float(numbers.min(initial=np.inf)),
            high=float(numbers.max(initial=-np.inf)),
            mean=mean,
            squares=squares,
            infinite=int(counts[np.isinf(values)].sum()),
            points=points,
            weights=weights,
            exact=exact,
            are_integers=are_integers,
            codes=smallest(codes),
        )

    def __add__(self, other: NumberSummary) -> NumberSummary:
        points, weights = _counted(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.weights, other.weights]),
        )
        exact = self.exact and other.exact and len(points) <= MOST_EXACT
        if not exact and len(points) > MOST_MERGED:
            points, weights = _quantiles(points, weights, MOST_MERGED // 2)
        finite, mean, squares = pooled(
            self.finite,
            self.mean,
            self.squares,
            other.finite,
            other.mean,
            other.squares,
        )
        return NumberSummary(
            n=self.n + other.n,
            finite=finite,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            mean=mean,
            squares=squares,
            infinite=self.infinite + other.infinite,
            points=points,
            weights=weights,
            exact=exact,
            are_integers=self.are_integers and other.are_integers,
            codes=smallest(np.append(self.codes, other.codes)),
        )

    def converted(self, conversion: Conversion) -> NumberSummary:
        factor, offset = conversion
        if factor == 1.0 and offset == 0.0:
            return self
        points = self.points * factor + offset
        weights = self.weights
        if factor < 0:
            points = points[::-1]
            weights = weights[::-1]
        low, high = sorted(end * factor + offset for end in (self.low, self.high))
        are_integers = bool(self.exact and (points == np.round(points)).all())
        codes = np.empty(0)
        if are_integers:
            codes = smallest(_codes_of_numbers(points, None))
        return replace(
            self,
            low=low,
            high=high,
            mean=self.mean * factor + offset,
            squares=self.squares * factor**2,
            points=points,
            weights=weights,
            are_integers=are_integers,
            codes=codes,
        )

    @property
    def n_values(self) -> int:
        return self.finite + self.infinite

    @property
    def gaps(self) -> int:
        return self.n - self.n_values

    @property
    def constant(self) -> bool:
        return self.low == self.high

    @property
    def distinct_share(self) -> float:
        """Distinct values as a share of all; zero unless all are integers."""
        if not self.are_integers:
            return 0.0
        points_are_distinct = (
            self.exact and max(abs(self.low), abs(self.high)) <= reading.LARGEST
        )
        n_distinct = (
            len(self.points)
            if points_are_distinct
            else estimated_n_distinct(self.codes)
        )
        return n_distinct / max(1, self.n_values)

    @property
    def fill(self) -> float:
        """Median, which replaces missing values."""
        n = self.finite
        ends = np.cumsum(self.weights)
        middle = np.searchsorted(ends, [(n - 1) // 2, n // 2], side="right")
        return float(self.points[np.minimum(middle, len(ends) - 1)].mean())

    def scaling(self, scale: Scale) -> tuple[float, float]:
        """Return offset and divisor by which the numbers are scaled."""
        if scale == "none":
            return 0.0, 1.0
        largest = max(abs(self.low), abs(self.high))
        if scale == "max":
            return 0.0, largest or 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            if scale == "standard":
                low, spread = self._moments
            else:
                low = self.low
                spread = self.high - self.low
        if not spread > 1e-12 * largest:
            return low, 1.0
        return low, spread

    @property
    def _moments(self) -> tuple[float, float]:
        """Mean and standard deviation with missing values filled."""
        if self.exact:  # independent of the order of the rows
            values = np.append(self.points, self.fill)
            weights = np.append(self.weights, self.gaps)
            mean = float((weights * values).sum() / self.n)
            return mean, float(np.sqrt((weights * (values - mean) ** 2).sum() / self.n))
        n, mean, squares = pooled(
            self.finite, self.mean, self.squares, self.gaps, self.fill, 0.0
        )
        return mean, float(np.sqrt(squares / n))

    def knots(self) -> tuple[float, ...]:
        """Return `KNOTS` quantiles, equally spaced in probability."""
        if self.exact:
            values = np.repeat(self.points, self.weights.astype(np.intp))
            return tuple(np.quantile(values, np.linspace(0.0, 1.0, KNOTS)).tolist())
        ends = np.cumsum(self.weights)
        half = 0.5 * self.weights.min()
        # A point is the quantile between its first and last rank.
        point_ranks = np.stack(
            [ends - self.weights + half, ends - half], axis=1
        ).ravel()
        ranks = np.r_[0.5, point_ranks, ends[-1] - 0.5]
        values = np.r_[self.low, np.repeat(self.points, 2), self.high]
        return tuple(
            np.interp(np.linspace(0.5, ends[-1] - 0.5, KNOTS), ranks, values).tolist()
        )


def _counted(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values, ascending, and their summed weights."""
    if len(weights) and weights[0] == 1 and (weights == 1).all():
        ascending = np.sort(values)
        first = _first_of_equals(ascending)
        return ascending[first] + 0.0, np.diff(np.append(first, len(values))).astype(
            np.float64
        )
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    first = _first_of_equals(ascending)
    return ascending[first] + 0.0, np.add.reduceat(weights[order], first).astype(
        np.float64
    )


def _first_of_equals(ascending: np.ndarray) -> np.ndarray:
    return np.flatnonzero(
        np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]
    )


def _quantiles(
    points: np.ndarray, weights: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum(weights)
    ranks = (np.arange(n) + 0.5) / n * ends[-1]
    return points[np.searchsorted(ends, ranks)], np.full(n, ends[-1] / n)


def added(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the union of two mappings, with values of common keys added."""
    total = dict(first)
    for key, summary in second.items():
        if key in first:
            summary = first[key] + summary
        total[key] = summary
    return total


def _dates_of_digits(
    numbers: np.ndarray, counts: np.ndarray | None, keep_all_numbers: bool
) -> dict[First, NumberSummary]:
    """Return the summary of numbers such as 20241231, or {}."""
    days = dates.days_of_digits(numbers)
    if days is None:
        return {}
    return dict.fromkeys(FIRSTS[:3], NumberSummary.of(days, counts, keep_all_numbers))


@dataclass(frozen=True)
class ColumnSummary:
    """Summary of a column's values; addition joins summaries of different rows."""

    name: str
    kind: reading.ColumnKind
    levels: tuple[str, ...]
    is_category: bool
    n: int
    gaps: int
    example: str | None = None
    texts: Mapping[str, int] = field(default_factory=dict)  # rows per text
    are_texts_complete: bool = True
    # Hash codes of texts
    codes: np.ndarray = field(default_factory=lambda: np.empty(0))
    n_spaces: int = 0
    day_places: frozenset[str] = frozenset()
    numbers: Mapping[Written, NumberSummary] = field(default_factory=dict)
    n_limits: int = 0
    n_zero_padded: int = 0
    widths: frozenset[int] = frozenset()  # digits of integers
    n_with_several_numbers: int = 0
    # In UTC, by first part of dates
    dates: Mapping[First, NumberSummary] = field(default_factory=dict)
    local_dates: Mapping[First, NumberSummary] = field(default_factory=dict)
    has_codes: bool = False  # whether integers exceed float64
    has_other_texts: bool = False  # than integers
    zone: str = ""

    @classmethod
    def of(
        cls,
        column: reading.Column,
        as_levels: bool = False,
        keep_all_numbers: bool = True,
    ) -> ColumnSummary:
        """Return the summary of a column; `as_levels` counts numbers and dates as categories."""
        if column.kind == "other":
            return cls(column.name, "other", (), False, len(column.values), 0)
        if not as_levels and not column.has_one_order:
            raise ValueError(
                f"column {column.name!r} must have its levels in one order in all files and blocks; write them so, or "
                "say what it is with 'columns'."
            )
        gaps = column.gaps
        present = column.values[~gaps]
        summary = cls(
            name=column.name,
            kind=column.kind,
            levels=() if as_levels else column.levels,
            is_category=column.is_category,
            n=len(gaps),
            gaps=int(gaps.sum()),
            example=str(present[0])[:40] if len(present) else None,
            zone=column.zone,
        )
        if column.kind == "date":
            summary = summary._with_date_values(column, keep_all_numbers)
        if column.kind == "number":
            summary = summary._with_numbers(column, keep_all_numbers)
        if column.kind != "text" and not (as_levels or summary.has_codes):
            return summary
        counts = Counter(column.as_levels().tolist())
        del counts[None]
        are_all_counted = keep_all_numbers or len(counts) <= MOST_COUNTED
        summary = replace(
            summary,
            texts=dict(
                counts if are_all_counted else counts.most_common(MOST_KEPT_TEXTS)
            ),
            are_texts_complete=are_all_counted,
            codes=smallest(reading.codes_of(list(counts))),
            n_spaces=sum(text.count(" ") * rows for text, rows in counts.items()),
        )
        if column.kind != "text":
            return summary
        return summary._with_texts_read(Counter(present.tolist()), keep_all_numbers)

    def _with_date_values(
        self, column: reading.Column, keep_all_numbers: bool
    ) -> ColumnSummary:
        moments = column.read_dates("year")
        is_date = ~column.gaps
        days = NumberSummary.of(
            dates.days_of(moments.instants)[is_date], None, keep_all_numbers
        )
        if column.local is None:
            local_days = days
        else:
            local_days = NumberSummary.of(
                dates.days_of(moments.local)[is_date], None, keep_all_numbers
            )
        return replace(self, dates={"year": days}, local_dates={"year": local_days})

    def _with_numbers(
        self, column: reading.Column, keep_all_numbers: bool
    ) -> ColumnSummary:
        numbers = NumberSummary.of(column.values, None, keep_all_numbers, column.exact)
        present = column.values[~column.gaps]
        days = _dates_of_digits(present, None, keep_all_numbers)
        return replace(
            self,
            numbers={POINT: numbers, COMMA: numbers},
            dates=days,
            local_dates=days,
            has_codes=column.exact is not None,
        )

    def _with_integers_as_texts(self) -> ColumnSummary:
        """Count integers as categories, too, as blocks with larger ones do."""
        numbers = self.numbers.get(POINT)
        if self.texts or numbers is None or not numbers.are_integers:
            return self
        points = numbers.points.astype(np.int64).tolist()
        weights = np.rint(numbers.weights).astype(np.intp).tolist()
        texts = dict(zip(map(str, points), weights, strict=True))
        return replace(
            self,
            texts=texts,
            are_texts_complete=numbers.exact,
            codes=smallest(reading.codes_of(list(texts))),
        )

    def _with_texts_read(
        self, counts: Mapping[str, int], keep_all_numbers: bool
    ) -> ColumnSummary:
        texts = list(counts)
        times = np.array(list(counts.values()), dtype=np.intp)
        summary = replace(
            self,
            has_codes=any(
                len(text) > 15 and text.isdigit() and int(text) > reading.LARGEST
                for text in texts
            ),
            n_zero_padded=sum(
                rows
                for text, rows in counts.items()
                if quantities.ZERO_PADDED.fullmatch(text)
            ),
            widths=frozenset(len(text) for text in texts if text.isdecimal()),
        )
        plain = quantities.plain_numbers(texts)
        if plain is not None and not any("." in text for text in texts):
            numbers = NumberSummary.of(
                plain, times, keep_all_numbers, np.array(texts, dtype=object)
            )
            days = _dates_of_digits(plain, times, keep_all_numbers)
            by_mark = {POINT: numbers, COMMA: numbers} if texts else {}
            return replace(summary, numbers=by_mark, dates=days, local_dates=days)
        summary = replace(summary, has_other_texts=True)
        moments = dates.iso_dates(texts)
        if moments is not None:
            by_order = dict.fromkeys(
                FIRSTS[:3],
                NumberSummary.of(dates.days_of(moments), times, keep_all_numbers),
            )
            return replace(summary, dates=by_order, local_dates=by_order)
        summary = summary._with_quantities(texts, times, keep_all_numbers)
        if plain is not None:
            return summary
        return summary._with_dates(texts, times, keep_all_numbers)

    def _with_quantities(
        self, texts: Sequence[str], times: np.ndarray, keep_all_numbers: bool
    ) -> ColumnSummary:
        digits = np.array(texts, dtype=object)
        numbers: dict[Written, NumberSummary] = {}
        limits = 0
        is_number = np.zeros(len(texts), dtype=bool)
        for mark in get_args(quantities.Mark):
            read = [quantities.quantity_in(text, mark) for text in texts]
            is_number |= np.array(
                [quantity is not None for quantity in read], dtype=bool
            )
            units = np.array(
                [None if quantity is None else quantity.unit for quantity in read],
                dtype=object,
            )
            for unit in dict.fromkeys(units.tolist()):
                if unit is None:
                    continue
                positions = np.flatnonzero(units == unit)
                values = np.array([read[position].value for position in positions])  # type: ignore[union-attr]
                numbers[Written(mark, unit)] = NumberSummary.of(
                    values, times[positions], keep_all_numbers, digits[positions]
                )
            is_limit = np.array(
                [quantity is not None and quantity.is_limit for quantity in read],
                dtype=bool,
            )
            limits = max(limits, int(times[is_limit].sum()))
        several = sum(
            int(times[position])
            for position in np.flatnonzero(~is_number).tolist()
            if quantities.SEVERAL_NUMBERS.fullmatch(texts[position])
        )
        return replace(
            self, numbers=numbers, n_limits=limits, n_with_several_numbers=several
        )

    def _with_dates(
        self, texts: Sequence[str], times: np.ndarray, keep_all_numbers: bool
    ) -> ColumnSummary:
        places = dates.day_places(texts)
        as_written = reading.Column(self.name, "text", np.array(texts, dtype=object))
        days: dict[First, NumberSummary] = {}
        local_days: dict[First, NumberSummary] = {}
        firsts: Sequence[First] = ("year", "time")
        if places:
            firsts = FIRSTS
        for first in firsts:
            column = as_written.without_placeholder_digits(first)
            moments = column.read_dates(first)
            is_date = ~np.isnat(moments.instants) | column.gaps
            if not is_date.any():
                continue
            days[first] = NumberSummary.of(
                dates.days_of(moments.instants)[is_date],
                times[is_date],
                keep_all_numbers,
            )
            local_days[first] = days[first]
            if moments.has_offset.any():
                local_days[first] = NumberSummary.of(
                    dates.days_of(moments.local)[is_date],
                    times[is_date],
                    keep_all_numbers,
                )
        if "year" in days and not places:
            days |= {"day": days["year"], "month": days["year"]}
            local_days |= {"day": local_days["year"], "month": local_days["year"]}
        return replace(self, day_places=places, dates=days, local_dates=local_days)

    def _with_integers_as_dates(self) -> ColumnSummary:
        """Read integers as dates, as blocks with dates do."""
        if self.has_other_texts or not self.are_texts_complete:
            return self
        times = np.array(list(self.texts.values()), dtype=np.intp)
        return self._with_dates(list(self.texts), times, keep_all_numbers=True)

    def __add__(self, other: ColumnSummary) -> ColumnSummary:
        # A block without values has no kind.
        typed = self if self.example is not None else other
        if other.example is not None and (typed.kind, typed.levels) != (
            other.kind,
            other.levels,
        ):
            raise ValueError(
                f"column {self.name!r} must hold one kind of values, and levels in one order, in all its parts, got "
                f"{typed.kind} such as {typed.example!r} and {other.kind} such as {other.example!r}; write it as one "
                "type, or say what it is with 'columns'."
            )
        left, right = self, other
        if self.has_codes or other.has_codes:
            left = self._with_integers_as_texts()
            right = other._with_integers_as_texts()
        if self.has_other_texts != other.has_other_texts:
            left = left._with_integers_as_dates()
            right = right._with_integers_as_dates()
        texts = Counter(left.texts) + Counter(right.texts)
        counted = left.are_texts_complete and right.are_texts_complete
        if len(texts) > (MOST_EXACT if counted else MOST_MERGED):
            texts = Counter(dict(texts.most_common(MOST_MERGED // 2)))
            counted = False
        return replace(
            typed,
            n=self.n + other.n,
            gaps=self.gaps + other.gaps,
            texts=dict(texts),
            are_texts_complete=counted,
            codes=smallest(np.append(left.codes, right.codes)),
            n_spaces=self.n_spaces + other.n_spaces,
            day_places=self.day_places | other.day_places,
            numbers=added(self.numbers, other.numbers),
            n_limits=self.n_limits + other.n_limits,
            n_zero_padded=self.n_zero_padded + other.n_zero_padded,
            widths=self.widths | other.widths,
            n_with_several_numbers=self.n_with_several_numbers
            + other.n_with_several_numbers,
            dates=added(left.dates, right.dates),
            local_dates=added(left.local_dates, right.local_dates),
            has_codes=self.has_codes or other.has_codes,
            has_other_texts=self.has_other_texts or other.has_other_texts,
        )

    @property
    def n_values(self) -> int:
        return self.n - self.gaps

    @property
    def n_distinct(self) -> int:
        """Number of distinct texts of the column, estimated to about 2 % if many."""
        return (
            len(self.texts)
            if self.are_texts_complete
            else estimated_n_distinct(self.codes)
        )

    def counts(self) -> Mapping[str | None, int]:
        """Return the number of rows with each text; None counts missing values."""
        counts: dict[str | None, int] = {}
        if self.gaps:
            counts[None] = self.gaps
        counts.update(self.texts)
        return counts

    def _suffices(self, n_read: int, share: float) -> bool:
        if n_read == 0:
            return False
        if n_read == self.n_values:
            return True
        may_have_others = self.n_values > FEW_VALUES or share < NEARLY_ALL
        return may_have_others and n_read >= min(
            share * self.n_values, self.n_values - 1
        )

    @property
    def is_zero_padded(self) -> bool:
        """Whether the column's integers are codes with leading zeros."""
        return (
            self.n_zero_padded > (1 - NEARLY_ALL) * self.n_values
            or self.padded_width > 0
        )

    @property
    def padded_width(self) -> int:
        """Number of digits of the column's zero-padded integers, or zero."""
        if not self.n_zero_padded or len(self.widths) != 1:
            return 0
        (width,) = self.widths
        if width > quantities.MOST_DIGITS:
            return 0
        return width

    @property
    def repeated_texts(self) -> dict[str, int]:
        """Number of rows per frequent text, such as a placeholder."""
        threshold = max(LEAST_PLACEHOLDERS, PLACEHOLDER_SHARE * self.n_values)
        return {text: rows for text, rows in self.texts.items() if rows >= threshold}

    def units(self) -> dict[str, int]:
        """Return the number of rows per unit; empty for columns without numbers."""
        by_mark = []
        for mark in get_args(quantities.Mark):
            rows: Counter[str] = Counter()
            for written, numbers in self.numbers.items():
                if written.mark == mark:
                    rows[_counted_unit(written.unit)] += numbers.n_values
            by_mark.append(
                dict(sorted(rows.items(), key=lambda item: (-item[1], item[0])))
            )
        units = max(by_mark, key=lambda rows: sum(rows.values()))
        if self._suffices(sum(units.values()), NEARLY_ALL):
            return units
        return {}

    @property
    def has_several_numbers(self) -> bool:
        return self._suffices(self.n_with_several_numbers, NEARLY_ALL)

    def as_numbers(
        self, share: float = NEARLY_ALL
    ) -> tuple[Written, NumberSummary] | None:
        """Read texts as numbers: return notation and summary; None if too few are numbers."""
        readings = [self.read_with(mark) for mark in get_args(quantities.Mark)]
        written, numbers = max(readings, key=lambda reading: reading[1].n_values)
        if not numbers.n_values or 2 * self.n_limits >= numbers.n_values:
            return None
        if self._suffices(numbers.n_values, share):
            return written, numbers
        n_texts = self.n_distinct - len(numbers.points)
        # These conditions do not depend on the blocks.
        is_exact = self.are_texts_complete and numbers.exact and self.n <= MOST_EXACT
        has_few_texts = (
            is_exact and n_texts <= 2 and len(numbers.points) >= MANY_NUMBERS
        )
        if has_few_texts and numbers.n_values >= LARGE_SHARE * self.n_values:
            return written, numbers
        return None

    def read_with(self, mark: quantities.Mark) -> tuple[Written, NumberSummary]:
        """Return the numbers in their most frequent unit."""
        by_unit = {
            written.unit: numbers
            for written, numbers in self.numbers.items()
            if written.mark == mark
        }
        main_unit = _main_unit(by_unit)
        parts = []
        for unit in sorted(
            by_unit, key=lambda unit: (unit != "", unit != main_unit, unit)
        ):
            conversion = conversion_for(unit, main_unit)
            if conversion is not None:
                parts.append(by_unit[unit].converted(conversion))
        total = reduce(add, parts) if parts else NumberSummary.of(np.empty(0))
        return Written(mark, main_unit), replace(total, n=self.n)

    def as_dates(
        self, share: float = NEARLY_ALL
    ) -> tuple[First | None, NumberSummary] | None:
        """Read texts as dates: return first part and summary of days; None if too few are dates.

        The first part is None if day and month are ambiguous.
        """
        first = self._first_part
        days = self.dates.get(first or "day")
        if days is not None and days.n_values and self._suffices(days.n, share):
            return first, replace(days, n=self.n)
        times = self.dates.get("time")
        if times is not None and self._suffices(times.n_values, share):
            return "time", replace(times, n=self.n)
        return None

    @property
    def _first_part(self) -> First | None:
        if not self.day_places >= {"first", "second"}:
            return dates.first_of(self.day_places)
        n_rows = {first: days.n_values for first, days in self.dates.items()}
        n_day_first = n_rows.get("day", 0)
        n_month_first = n_rows.get("month", 0)
        if n_day_first > n_month_first:
            return "day"
        if n_month_first > n_day_first:
            return "month"
        return None


def _counted_unit(unit: str) -> str:
    if unit in MULTIPLIED:
        return ""
    if unit == HOURS_AND_MINUTES:
        return "s"
    return unit


def _main_unit(by_unit: Mapping[str, NumberSummary]) -> str:
    if _are_counts(by_unit):
        return COUNT
    if _are_fractions(by_unit):
        return FRACTION
    if _are_minutes(by_unit):
        return MINUTES_AND_SECONDS
    rows_of_unit: Counter[str] = Counter()
    for unit, numbers in by_unit.items():
        rows_of_unit[_counted_unit(unit)] += numbers.n_values
    return _signed_unit(_most_frequent_unit(rows_of_unit), by_unit)


def _are_counts(by_unit: Mapping[str, NumberSummary]) -> bool:
    """Return whether m, b, G or T multiply, as in 8.7m and 623.8k."""
    others = by_unit.keys() - MULTIPLIED - MULTIPLES.keys() - {""}
    if any(map(is_unit, others)):
        return False
    multipliers = MULTIPLIED & by_unit.keys()
    large = {"G", "T"} & by_unit.keys()
    if large:
        return len(large) == 2 or bool(multipliers)
    if not {"m", "b"} & by_unit.keys() or not multipliers - {"M"}:
        return False  # meters may be M
    return "b" in by_unit or not _are_distances(by_unit["m"])


def _are_distances(numbers: NumberSummary) -> bool:
    """Return whether m is meters, as in 800m next to 5k."""
    return numbers.are_integers and numbers.low >= 50.0


def _are_fractions(by_unit: Mapping[str, NumberSummary]) -> bool:
    """Return whether 5% is 0.05."""
    if by_unit.keys() != {"", "%"}:
        return False
    bare = by_unit[""]
    percentages = by_unit["%"]
    return (
        bare.n_values > percentages.n_values
        and max(abs(bare.low), abs(bare.high)) <= 1.0
        and max(abs(percentages.low), abs(percentages.high)) > 1.0
    )


def _are_minutes(by_unit: Mapping[str, NumberSummary]) -> bool:
    """Return whether 58:30 next to 1:02:15 is in minutes."""
    if by_unit.keys() != {"s", HOURS_AND_MINUTES}:
        return False
    two_parts = by_unit[HOURS_AND_MINUTES]
    return two_parts.low >= 24 * 3600.0 and two_parts.high < 60 * 3600.0


def _signed_unit(unit: str, units: Collection[str]) -> str:
    if unit == "°S":
        return "°N"
    if unit not in ("°W", "°O"):
        return unit
    if "°O" in units and "°E" not in units:  # east in German
        return "°O"
    return "°E"


def _most_frequent_unit(rows_of_unit: Mapping[str, int]) -> str:
    """Return the main quantity's most frequent unit, or ""."""
    units = [unit for unit in rows_of_unit if unit]
    if not units:
        return ""

    def rows_of_quantity(main_unit: str) -> int:
        return sum(
            rows_of_unit[unit]
            for unit in units
            if conversion_between(unit, main_unit) is not None
        )

    def rows_of_spellings(main_unit: str) -> int:
        return sum(
            rows_of_unit[unit]
            for unit in units
            if canonical_unit(unit) == canonical_unit(main_unit)
        )

    main_unit = max(
        units,
        key=lambda unit: (
            rows_of_quantity(unit),
            rows_of_spellings(unit),
            rows_of_unit[unit],
            unit,
        ),
    )
    is_billions = main_unit == "B" and rows_of_quantity("B") == rows_of_unit["B"]
    is_rare_word = not is_unit(main_unit) and rows_of_quantity(
        main_unit
    ) < rows_of_unit.get("", 0)  # such as 5more
    if is_billions or is_rare_word:
        return ""
    return main_unit


def summarize_table(
    block: Any, as_levels: Collection[str] = (), keep_all_numbers: bool = True
) -> dict[str, ColumnSummary]:
    columns = reading.read_columns(block)
    return {
        name: ColumnSummary.of(column, name in as_levels, keep_all_numbers)
        for name, column in columns.items()
    }
