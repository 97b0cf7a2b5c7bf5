"""What is known of the columns of a table: a summary of each block of rows, and these add up.

The summary of a table in memory is that of one block. Of few rows, or few different values, all numbers are kept with
their counts, and what follows from them is the same bit for bit however rows are divided into blocks. Of more, each
block keeps quantiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np

from learnkernels.kernels.tables import reading

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


def _dates_of_digits(
    numbers: np.ndarray, counts: np.ndarray | None, all_kept: bool
) -> dict[reading.First, NumberSummary]:
    """Return the summary of numbers such as 20241231 as dates, whatever these begin with; nothing where one is none."""
    days = reading.days_of_digits(numbers)
    return {} if days is None else dict.fromkeys(reading.FIRSTS[:3], NumberSummary.of(days, counts, all_kept))


@dataclass(frozen=True)
class ColumnSummary:
    """What is known of a column of which blocks were looked at; two add up.

    Attributes
    ----------
    name, kind, levels, is_category
        As of `Column`.
    n, gaps : int
        How many rows it has, and how many of them have no value.
    example : str or None
        The beginning of one of its values.
    texts : mapping of str to int
        How many rows have each level, as a text; of very many, the most frequent.
    counted : bool
        Whether these are all, and their counts exact.
    codes : ndarray
        The `smallest` ones of texts.
    words : int
        Spaces in all texts.
    day_places : frozenset of str
        Where the day stands in its dates of two numbers and a year.
    numbers : mapping of Written to NumberSummary
        Of the values that are numbers with this unit next to them.
    limits : int
        How many of these are limits of detection.
    dates : mapping of str to NumberSummary
        By what dates begin with, of the values that are such dates, in days since 1970.
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
    numbers: Mapping[reading.Written, NumberSummary] = field(default_factory=dict)
    limits: int = 0
    dates: Mapping[reading.First, NumberSummary] = field(default_factory=dict)
    has_codes: bool = False

    @classmethod
    def of(cls, column: reading.Column, as_levels: bool = False, all_kept: bool = True) -> ColumnSummary:
        """Return the summary of a block of rows; with `as_levels` numbers are levels of a category, and counted."""
        if column.kind == "other":
            return cls(column.name, "other", (), False, len(column.values), 0)
        gaps = column.gaps
        held = column.values[~gaps]
        example = str(held[0])[:40] if len(held) else None
        about = column.name, column.kind, column.levels, column.is_category
        found = cls(*about, len(gaps), int(gaps.sum()), example)
        if column.kind == "date":
            return replace(found, dates={"year": NumberSummary.of(reading.days_of(column.values), None, all_kept)})
        if column.kind == "number":
            numbers = NumberSummary.of(column.values, None, all_kept, column.exact)
            found = replace(
                found,
                numbers={reading.POINT: numbers, reading.COMMA: numbers},
                dates=_dates_of_digits(column.values, None, all_kept),
                has_codes=column.exact is not None,
            )
            if not as_levels and not found.has_codes:
                return found
        counts = Counter(column.as_levels().tolist())
        del counts[None]
        few = all_kept or len(counts) <= MOST_COUNTED
        found = replace(
            found,
            texts=dict(counts if few else counts.most_common(KEPT)),
            counted=few,
            codes=smallest(reading.codes_of(list(counts))),
            words=sum(text.count(" ") * n for text, n in counts.items()),
        )
        return found if column.kind == "number" else found._as_other_kinds(Counter(held.tolist()), all_kept)

    def _as_other_kinds(self, counts: Mapping[str, int], all_kept: bool) -> ColumnSummary:
        """Return the summary with the texts of a block parsed as numbers and as dates."""
        texts = list(counts)
        self = replace(
            self, has_codes=any(len(text) > 15 and text.isdigit() and int(text) > reading.LARGEST for text in texts)
        )
        times, digits = np.array(list(counts.values()), dtype=np.intp), np.array(texts, dtype=object)
        if (plain := reading.plain_numbers(texts)) is not None and not any("." in text for text in texts):
            one = NumberSummary.of(plain, times, all_kept, digits)
            dates = _dates_of_digits(plain, times, all_kept)
            return replace(self, numbers={reading.POINT: one, reading.COMMA: one} if texts else {}, dates=dates)
        if (iso := reading.iso_dates(texts)) is not None:
            day = NumberSummary.of(reading.days_of(iso), times, all_kept)
            return replace(self, dates=dict.fromkeys(reading.FIRSTS[:3], day))
        numbers, limits = dict[reading.Written, NumberSummary](), 0
        for mark in get_args(reading.Mark):
            reads = [reading.number_in(text, mark) for text in texts]
            units = np.array([None if read is None else read.unit for read in reads], dtype=object)
            for unit in dict.fromkeys(units.tolist()):
                if unit is not None:
                    these = np.flatnonzero(units == unit)
                    values = np.array([reads[i].value for i in these])  # type: ignore[union-attr]
                    numbers[reading.Written(mark, unit)] = NumberSummary.of(
                        values, times[these], all_kept, digits[these]
                    )
            limits = max(limits, sum(int(n) for read, n in zip(reads, times, strict=True) if read and read.limit))
        if plain is not None:
            return replace(self, numbers=numbers, limits=limits)
        places = reading.day_places(texts)
        column = reading.Column(self.name, "text", digits)
        orders: tuple[reading.First, ...] = reading.FIRSTS if places else ("year", "time")
        by_order = {first: reading.days_of(column.read_dates(first)) for first in orders}
        found = {
            first: NumberSummary.of(of[there], times[there], all_kept)
            for first, of in by_order.items()
            if (there := ~np.isnan(of)).any()
        }
        if "year" in found and not places:  # which alone are read in more than one way
            found |= {"day": found["year"], "month": found["year"]}
        return replace(self, numbers=numbers, limits=limits, day_places=places, dates=found)

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
            dates=added(self.dates, other.dates),
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

    def as_numbers(self, least: float = NEARLY_ALL) -> tuple[reading.Written, NumberSummary] | None:
        """Return how its values are written as numbers, and what is known of these; None where too many are none."""
        found: list[tuple[int, reading.Written, NumberSummary]] = []
        for mark in get_args(reading.Mark):
            of = {written.unit: numbers for written, numbers in self.numbers.items() if written.mark == mark}
            unit = max((unit for unit in of if unit), key=lambda one: (of[one].held, one), default="")
            if "" in of and unit and of[unit].held < of[""].held:
                unit = ""  # such as "5more" among other numbers
            parts = [of[one] for one in dict.fromkeys(("", unit)) if one in of]
            if parts:
                total = parts[0] if len(parts) == 1 else parts[0] + parts[1]
                found.append((total.held, reading.Written(mark, unit), replace(total, n=self.n)))
        if not found:
            return None
        read, written, numbers = max(found, key=lambda one: one[0])
        texts = self.different - len(numbers.points)
        words = (
            self.counted and numbers.exact and self.n <= MOST_EXACT and texts <= 2
        )  # the same however blocks are cut
        words = words and len(numbers.points) >= MANY_NUMBERS and read >= MOSTLY * self.held
        enough = (words or self._suffices(read, least)) and 2 * self.limits < max(1, read)
        return (written, numbers) if enough else None

    def as_dates(self, least: float = NEARLY_ALL) -> tuple[reading.First | None, NumberSummary] | None:
        """Return what its dates begin with, None where day and month are ambiguous, and a summary of their days.

        None where too many values are no dates.
        """
        first = reading.first_of(self.day_places)
        for begin in (first or "day", "time"):
            days = self.dates.get(begin)
            if days is not None and self._suffices(days.held, least):
                return (first if begin != "time" else "time"), replace(days, n=self.n)
        return None


def summarize_table(block: Any, as_levels: Collection[str] = (), all_kept: bool = True) -> dict[str, ColumnSummary]:
    """Return the summary of each column of a block of rows; numbers in the columns of `as_levels` are levels."""
    held = reading.read_columns(block)
    return {name: ColumnSummary.of(column, name in as_levels, all_kept) for name, column in held.items()}
