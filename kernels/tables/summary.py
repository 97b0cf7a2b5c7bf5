"""What is known of the columns of a table that is nowhere as a whole: of each block of rows, and these add up.

Of numbers it is exact but for the median and other quantiles, and of texts but for the counts of the levels of a column
that has very many: for the median and these a second look at the rows is asked for (`TableSummary.open`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

import numpy as np

from learnkernels.kernels.tables.columns import MOST_LEVELS, CategoryColumn, ColumnEncoding, NumberColumn, codes_of
from learnkernels.kernels.tables.date_column import DateColumn
from learnkernels.kernels.tables.dates import CYCLES, FIRSTS, First, days_of, deciding, first_of
from learnkernels.kernels.tables.known import KNOTS, KnownDays, Scale, places_of, units
from learnkernels.kernels.tables.reading import Column, ColumnKind, as_texts, read_columns

POINTS = 128
"""Numbers of a block that tell of its quantiles; of so many different ones, all are kept with their counts."""

MOST_POINTS = 4096
"""Numbers of several blocks that tell of their quantiles, of which half as many are made if there are more."""

REACH = 1e-3
"""Least share of the numbers on each side of what the points say is their median, among which it is looked for."""

WIDER = 8.0
"""How many times as far it is looked for after it was not found."""

MOST_COUNTED = 4096
"""Levels of a block of which all are counted."""

KEPT = 1024
"""Levels of a block that is counted no further: the most frequent ones."""

MOST_HELD = 65_536
"""Levels of several blocks, of which the more frequent half is held if there are more; or different numbers."""

SMALLEST = 1024
"""Codes of values by which it is told how many are different."""


@dataclass(frozen=True)
class Sums:
    """What is known of some columns of numbers from one pass over their rows; two add up.

    Attributes
    ----------
    n : ndarray of int of shape (d,)
        Finite entries.
    low, high, mean, squares : ndarray of shape (d,)
        Of these: extremes, mean, and sum of squared differences from it.
    gaps : ndarray of int of shape (d,)
        Entries that are not finite.
    """

    n: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    gaps: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, counts: np.ndarray | None = None) -> Sums:
        """Return it of a block of rows, shape (m, d), each of which counts once, or as often as `counts` say."""
        there = np.isfinite(X)
        weights = np.ones(len(X), dtype=np.intp) if counts is None else counts
        gaps = weights @ ~there
        n = weights.sum() - gaps
        mean = weights @ np.where(there, X, 0.0) / np.maximum(n, 1)
        apart = np.where(there, X - mean, 0.0)
        mean = mean + weights @ apart / np.maximum(n, 1)  # of a mean far from zero, what the first sum has lost
        squares = weights @ apart**2
        low, high = X.min(axis=0, initial=np.inf, where=there), X.max(axis=0, initial=-np.inf, where=there)
        return cls(n, low, high, mean, squares, gaps)

    def __add__(self, other: Sums) -> Sums:
        n = self.n + other.n
        apart, share = other.mean - self.mean, other.n / np.maximum(n, 1)
        return Sums(
            n,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.mean + apart * share,
            self.squares + other.squares + apart**2 * (self.n * share),
            self.gaps + other.gaps,
        )


@dataclass(frozen=True)
class Different:
    """How many different values there are, from the smallest of their codes, which are even in [0, 1); two add up.

    Attributes
    ----------
    codes : ndarray of shape (at most SMALLEST,)
        Ascending.
    repeated : bool
        Whether a value was met more than once in a block, or one with such a code in two.
    """

    codes: np.ndarray
    repeated: bool

    @classmethod
    def of(cls, codes: np.ndarray) -> Different:
        """Return it of some values, one code each."""
        found = np.unique(codes)
        return cls(found[:SMALLEST], len(found) < len(codes))

    def __add__(self, other: Different) -> Different:
        both = np.concatenate([self.codes, other.codes])
        codes = np.unique(both)[:SMALLEST]
        again = len(codes) and int((both <= codes[-1]).sum()) > len(codes)
        return Different(codes, bool(self.repeated or other.repeated or again))

    @property
    def count(self) -> int:
        """How many there are; of more than `SMALLEST` to some 3 %."""
        if len(self.codes) < SMALLEST:
            return len(self.codes)
        return round((SMALLEST - 1) / max(float(self.codes[-1]), 2.0**-53))


def _codes_of_numbers(values: np.ndarray) -> np.ndarray:
    """Return a number in [0, 1) for each number, that depends on all its bits (the finalizer of SplitMix64)."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # -0 is 0
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)) / 2.0**53)


@dataclass(frozen=True)
class NumberSummary:
    """What is known of numbers of which blocks were looked at; two add up. It tells what `KnownNumbers` do.

    Attributes
    ----------
    sums : Sums
        Of one column.
    infinite : int
    points, weights, ages : ndarray
        Numbers that stand for all, how many each stands for, and how often these were made fewer.
    moved : float
        Sum of the squares of what a point stood for, each time that points were made fewer: ranks then move by half a
        point at most.
    exact : bool
        Whether they are all numbers, with their counts.
    whole : bool
        Whether all are whole.
    codes : Different
        Of whole numbers.
    wider : float
        How many times as far as at first the median is looked for.
    median : float or None
        Once it was found.
    """

    sums: Sums
    infinite: int
    points: np.ndarray
    weights: np.ndarray
    ages: np.ndarray
    moved: float
    exact: bool
    whole: bool
    codes: Different
    wider: float = 1.0
    median: float | None = None

    @classmethod
    def of(cls, values: np.ndarray, counts: np.ndarray | None = None, most: int | None = None) -> Self:
        """Return it of numbers, NaN for gaps, each of which is there once, or as often as `counts` say.

        Of more than `most` different ones, by default `POINTS`, quantiles are kept.
        """
        counts = np.ones(len(values), dtype=np.intp) if counts is None else counts
        infinite = int(counts[np.isinf(values)].sum())
        there = np.isfinite(values)
        held, times = values[there], counts[there]
        points, place = np.unique(held, return_inverse=True)
        weights = np.bincount(place, times, len(points))
        whole = bool((held == np.round(held)).all())
        codes = Different.of(_codes_of_numbers(held) if whole else np.empty(0))
        codes = replace(codes, repeated=codes.repeated or bool((times > 1).any()))
        exact, moved = len(points) <= (POINTS if most is None else most), 0.0
        if not exact:
            points, weights = _fewer(points, weights, POINTS)
            moved = weights[0] ** 2
        sums, ages = Sums.of(values[:, None], counts), np.zeros(len(points), dtype=np.intp)
        return cls(sums, infinite, points, weights, ages, moved, exact, whole, codes)

    def __add__(self, other: NumberSummary) -> NumberSummary:
        def both(of: str) -> np.ndarray:
            return np.concatenate([getattr(self, of), getattr(other, of)])

        points, weights, ages = _merged(both("points"), both("weights"), both("ages"))
        moved = self.moved + other.moved
        exact = self.exact and other.exact and len(points) <= MOST_HELD
        # Points of one age alone, as if blocks were added in pairs, and these in pairs: each number is moved as often
        # as blocks can be halved, and of many blocks in ascending order no quantile drifts.
        while not exact and (many := np.flatnonzero(np.bincount(ages) > MOST_POINTS)).size:
            these = ages == many[0]
            made, stand = _fewer(points[these], weights[these], MOST_POINTS // 2)
            moved += stand[0] ** 2
            points, weights, ages = _merged(
                np.concatenate([points[~these], made]),
                np.concatenate([weights[~these], stand]),
                np.concatenate([ages[~these], np.full(len(made), many[0] + 1)]),
            )
        whole, infinite, codes = self.whole and other.whole, self.infinite + other.infinite, self.codes + other.codes
        return NumberSummary(self.sums + other.sums, infinite, points, weights, ages, moved, exact, whole, codes)

    @property
    def n(self) -> int:
        """How many there are."""
        return int(self.sums.n[0]) + self.gaps

    @property
    def gaps(self) -> int:
        """How many of them are missing."""
        return int(self.sums.gaps[0])

    @property
    def low(self) -> float:
        """The least."""
        return float(self.sums.low[0])

    @property
    def high(self) -> float:
        """The greatest."""
        return float(self.sums.high[0])

    @property
    def constant(self) -> bool:
        """Whether all that are there are equal."""
        return self.low == self.high

    @property
    def whole_and_different(self) -> bool:
        """Whether they are whole numbers that are all different, as far as their codes tell."""
        return self.whole and not self.codes.repeated

    def _at(self, *ranks: float) -> np.ndarray:
        """Return the points at some ranks, from 0 for the least number to their number less one."""
        ends = np.cumsum(self.weights)
        return np.asarray(self.points[np.minimum(np.searchsorted(ends, ranks, side="right"), len(ends) - 1)])

    @property
    def fill(self) -> float:
        """Their median, which stands for a gap; close to it until it was looked for."""
        n = self.n - self.gaps
        return float(self._at((n - 1) // 2, n // 2).mean()) if self.median is None else self.median

    def scaling(self, scale: Scale) -> tuple[float, float]:
        """Return what to subtract from them, gaps filled, and then to divide them by; by one where all are equal."""
        median, zero = np.array([self.fill]), np.zeros(1)
        filled = self.sums + Sums(self.sums.gaps, median, median, median, zero, zero)
        deviation = float(np.sqrt(filled.squares[0] / filled.n[0]))
        return units(scale, self.low, self.high, float(filled.mean[0]), deviation)

    def knots(self) -> tuple[float, ...]:
        """Return their quantiles at `KNOTS` even steps, those between the extremes to what the points tell."""
        ends = np.cumsum(self.weights)
        half = 0.5 * (1.0 if self.exact else self.weights.min())  # of a single number, or a single point
        within = np.stack([ends - self.weights + half, ends - half], axis=1).ravel()  # more of a value is level
        ranks, values = np.r_[0.5, within, ends[-1] - 0.5], np.r_[self.low, np.repeat(self.points, 2), self.high]
        return tuple(np.interp(np.linspace(0.5, ends[-1] - 0.5, KNOTS), ranks, values).tolist())

    @property
    def bracket(self) -> tuple[float, float]:
        """Between which numbers the median is looked for."""
        n = self.n - self.gaps
        error = 2.0 * np.sqrt(self.moved) / n  # seven deviations, if what moved numbers up and down evens out
        reach = self.wider * max(REACH, error)
        low, high = self._at(n * (0.5 - reach), n * (0.5 + reach))
        return (float(low), float(high)) if reach < 0.5 else (-np.inf, np.inf)

    def answered(self, found: Within) -> NumberSummary:
        """Return it with the median, if that was among the numbers that were looked at, or else looking wider."""
        n, ends = self.n - self.gaps, found.below + np.cumsum(found.counts)
        if len(ends) and found.below <= (n - 1) // 2 and n // 2 < ends[-1]:
            middle = found.values[np.searchsorted(ends, [(n - 1) // 2, n // 2], side="right")]
            return replace(self, median=float(middle.mean()))
        return replace(self, wider=self.wider * WIDER)


def _fewer(points: np.ndarray, weights: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n quantiles of points, ascending, at even steps, and what each stands for: all of them the same."""
    ends = np.cumsum(weights)
    even = (np.arange(n) + 0.5) / n * ends[-1]
    return points[np.searchsorted(ends, even)], np.full(n, ends[-1] / n)


def _merged(points: np.ndarray, weights: np.ndarray, ages: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points ascending, what each stands for, and its age: of equal ones all of it, and the highest."""
    order = np.argsort(points, kind="stable")  # of two runs that ascend it takes one pass
    points, weights, ages = points[order], weights[order], ages[order]
    first = np.flatnonzero(np.append(True, points[1:] != points[:-1])[: len(points)])
    return points[first], np.add.reduceat(weights, first), np.maximum.reduceat(ages, first)


@dataclass(frozen=True)
class Within:
    """The numbers of some rows that are between two, and how many are below them; two add up.

    Attributes
    ----------
    below : int
    values, counts : ndarray
        Ascending, and how often each is there.
    """

    below: int
    values: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray, low: float, high: float) -> Within:
        """Return it of numbers, NaN for gaps."""
        values, counts = np.unique(numbers[(numbers >= low) & (numbers <= high)], return_counts=True)
        return cls(int((numbers < low).sum()), values, counts)

    def __add__(self, other: Within) -> Within:
        values, place = np.unique(np.concatenate([self.values, other.values]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([self.counts, other.counts]), len(values)).astype(np.intp)
        return Within(self.below + other.below, values, counts)


@dataclass(frozen=True)
class DaySummary:
    """What is known of moments in time of which blocks were looked at; two add up.

    Attributes
    ----------
    days : NumberSummary
        Since 1970.
    low, high : ndarray of shape (3,)
        The least and the greatest of each cycle.
    """

    days: NumberSummary
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, days: np.ndarray, counts: np.ndarray | None = None) -> DaySummary:
        """Return it of days since 1970, NaN for gaps."""
        held = days[~np.isnan(days)]
        within = [of(held) for of in CYCLES.values()]
        low, high = [one.min(initial=np.inf) for one in within], [one.max(initial=-np.inf) for one in within]
        return cls(NumberSummary.of(days, counts), np.array(low), np.array(high))

    def __add__(self, other: DaySummary) -> DaySummary:
        return DaySummary(self.days + other.days, np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    @property
    def known(self) -> KnownDays:
        """What it tells."""
        return KnownDays(self.days, dict(zip(CYCLES, (self.high - self.low).tolist(), strict=True)))


@dataclass(frozen=True)
class ColumnSummary:
    """What is known of a column of which blocks were looked at; two add up. It tells what `KnownColumn` do.

    Attributes
    ----------
    name, kind, levels
        As of `Column`.
    n, gaps : int
        How many rows it has, and how many of them have no value.
    held : str or None
        The beginning of one of its values.
    texts : mapping of str to int
        How many rows have each text; of very many texts, the most frequent.
    counted : bool
        Whether these are all, and their counts exact.
    codes : Different
        Of texts.
    words : int
        Spaces in all texts.
    civil : tuple of str
        Dates that decide what all of them begin with.
    as_numbers : NumberSummary or None
        None where a value is no number.
    as_days : mapping of str to DaySummary
        By what dates begin with, where all values are dates.
    """

    name: str
    kind: ColumnKind
    levels: tuple[str, ...]
    n: int
    gaps: int
    held: str | None = None
    texts: Mapping[str, int] = field(default_factory=dict)
    counted: bool = True
    codes: Different = Different(np.empty(0), False)
    words: int = 0
    civil: tuple[str, ...] = ()
    as_numbers: NumberSummary | None = None
    as_days: Mapping[First, DaySummary] = field(default_factory=dict)

    @classmethod
    def of(cls, column: Column, as_levels: bool = False) -> ColumnSummary:
        """Return it of a block of rows; `as_levels` says that numbers are levels of a category, and counted."""
        if column.kind == "other":
            return cls(column.name, "other", (), len(column.values), 0)
        gaps = column.gaps
        held = column.values[~gaps]
        found = cls(
            column.name,
            column.kind,
            column.levels,
            len(gaps),
            int(gaps.sum()),
            str(held[0])[:40] if len(held) else None,
        )
        if column.kind == "date":
            return replace(found, as_days={"year": DaySummary.of(days_of(column.values))})
        if column.kind == "number":
            found = replace(found, as_numbers=NumberSummary.of(column.values))
            if not as_levels:
                return found
            values, times = np.unique(held, return_counts=True)
            return found._with_texts(dict(zip(as_texts(values.tolist()), times.tolist(), strict=True)))
        counts = Counter(column.values.tolist())
        texts = {text: times for text, times in counts.items() if text is not None}
        return found._with_texts(texts)._as_other_kinds(counts)

    def _with_texts(self, counts: Mapping[str, int]) -> ColumnSummary:
        """Return it with the texts of all rows of a block that have one."""
        codes, words = Different.of(codes_of(list(counts))), sum(text.count(" ") * n for text, n in counts.items())
        kept = dict(Counter(counts).most_common(KEPT)) if len(counts) > MOST_COUNTED else counts
        return replace(self, texts=dict(kept), counted=kept is counts, codes=codes, words=words, civil=deciding(counts))

    def _as_other_kinds(self, counts: Mapping[str | None, int]) -> ColumnSummary:
        """Return it with what the texts of a block are as numbers and as dates, if they are."""
        texts = Column(self.name, "text", np.array(list(counts), dtype=object))
        times = np.array(list(counts.values()), dtype=np.intp)
        numbers = texts.as_numbers()
        as_numbers = None if numbers is None else NumberSummary.of(numbers, times)
        dates = {first: texts.as_dates(first) for first in (FIRSTS if self.civil else FIRSTS[:1])}
        found = {first: DaySummary.of(days_of(of), times) for first, of in dates.items() if of is not None}
        if found and not self.civil:  # which alone are read in more than one way
            found = dict.fromkeys(FIRSTS, found["year"])
        return replace(self, as_numbers=as_numbers, as_days=found)

    def __add__(self, other: ColumnSummary) -> ColumnSummary:
        said = self if self.held is not None else other  # of a block of gaps alone the kind says nothing
        if other.held is not None and (said.kind, said.levels) != (other.kind, other.levels):
            raise ValueError(
                f"column {self.name!r} must hold one kind of values, and levels in one order, in all its parts, got "
                f"{said.kind} such as {said.held!r} and {other.kind} such as {other.held!r}; write it as one type, or "
                "say what it is with 'columns'."
            )
        texts, counted = Counter(self.texts) + Counter(other.texts), self.counted and other.counted
        if len(texts) > MOST_HELD:
            texts, counted = Counter(dict(texts.most_common(MOST_HELD // 2))), False
        as_numbers = None
        if self.as_numbers is not None and other.as_numbers is not None:
            as_numbers = self.as_numbers + other.as_numbers
        return ColumnSummary(
            self.name,
            said.kind,
            said.levels,
            self.n + other.n,
            self.gaps + other.gaps,
            said.held,
            dict(texts),
            counted,
            self.codes + other.codes,
            self.words + other.words,
            deciding([*self.civil, *other.civil]),
            as_numbers,
            {first: of + other.as_days[first] for first, of in self.as_days.items() if first in other.as_days},
        )

    @property
    def example(self) -> str:
        """The beginning of one of its values."""
        return str(self.held)

    @property
    def constant(self) -> bool:
        """Whether all its values are equal, gaps aside."""
        if self.kind == "text":
            return self.different == 1
        numbers = self.as_days["year"].days if self.kind == "date" else self.as_numbers
        return numbers is not None and numbers.constant

    @property
    def different(self) -> int:
        """How many different texts it has; of more than 4,096 to some 3 %."""
        return len(self.texts) if self.counted else self.codes.count

    @property
    def spaces(self) -> float:
        """How many spaces a text has on average."""
        return self.words / (self.n - self.gaps)

    def counts(self) -> Mapping[str | None, int]:
        """Return how many rows have each level, None for gaps; of very many levels, each of the most frequent."""
        counts: dict[str | None, int] = {None: self.gaps} if self.gaps else {}
        counts.update(self.texts)
        return counts

    def numbers(self) -> NumberSummary | None:
        """Return what is known of its values as numbers; None where one is none."""
        return self.as_numbers

    def places(self, levels: Sequence[str]) -> NumberSummary:
        """Return what is known of the places of its values among some levels."""
        counts = self.counts()
        times = np.array(list(counts.values()), dtype=np.intp)
        return NumberSummary.of(places_of(list(counts), levels), times, most=len(counts))

    def first_of_dates(self) -> First | None:
        """Return what its dates begin with; None where day and month cannot be told apart."""
        return first_of(self.civil)

    def dates(self, first: First) -> KnownDays | None:
        """Return what is known of its values as moments in time; None where one is none that begins so."""
        if self.kind not in ("date", "text") or first not in self.as_days:
            return None
        return self.as_days[first].known


Question: TypeAlias = tuple[float, float] | frozenset[str]
"""Between which numbers a median is looked for, or which levels are to be counted."""

Answer: TypeAlias = Within | Counter[str]
"""What was found; two of one question add up."""


@dataclass(frozen=True)
class TableSummary:
    """What is known of the columns of a table of which blocks of rows were looked at; two add up.

    Attributes
    ----------
    columns : mapping of str to ColumnSummary
    """

    columns: Mapping[str, ColumnSummary]

    @classmethod
    def of(cls, block: Any, as_levels: Collection[str] = ()) -> TableSummary:
        """Return it of a block of rows; numbers in the columns that `as_levels` names are levels of categories."""
        held = read_columns(block)
        return cls({name: ColumnSummary.of(column, name in as_levels) for name, column in held.items()})

    def __add__(self, other: TableSummary) -> TableSummary:
        return TableSummary({name: of + other.columns[name] for name, of in self.columns.items()})

    def open(self, columns: Sequence[ColumnEncoding]) -> dict[str, Question]:
        """Return what is to be looked for in the rows before the encodings of some columns are exact, by column."""
        questions: dict[str, Question] = {}
        for column in columns:
            known = self.columns[column.name]
            numbers = _numbers_of(column, known)
            if numbers is not None and not numbers.exact and numbers.median is None:
                questions[column.name] = numbers.bracket
            elif isinstance(column, NumberColumn) and column.levels and not known.counted:
                questions[column.name] = frozenset(column.levels)
            elif isinstance(column, CategoryColumn) and not known.counted:
                questions[column.name] = frozenset(dict(Counter(known.texts).most_common(4 * MOST_LEVELS)))
        return questions

    def answered(self, columns: Sequence[ColumnEncoding], answers: Mapping[str, Answer]) -> TableSummary:
        """Return it with what was found in all rows."""
        found = dict(self.columns)
        for column in columns:
            known, answer = found[column.name], answers.get(column.name)
            if isinstance(answer, Counter):
                found[column.name] = replace(known, texts=dict(+answer), counted=True)  # of levels that are there
            elif answer is not None:
                numbers = _numbers_of(column, known)
                assert numbers is not None
                found[column.name] = _with_numbers(column, known, numbers.answered(answer))
        return TableSummary(found)


def _numbers_of(column: ColumnEncoding, known: ColumnSummary) -> NumberSummary | None:
    """Return what is known of the numbers whose median an encoding needs; None of a category or of ordered levels."""
    if isinstance(column, DateColumn):
        return known.as_days[column.first].days
    return known.as_numbers if isinstance(column, NumberColumn) and not column.levels else None


def _with_numbers(column: ColumnEncoding, known: ColumnSummary, numbers: NumberSummary) -> ColumnSummary:
    if isinstance(column, DateColumn):
        days = replace(known.as_days[column.first], days=numbers)
        return replace(known, as_days={**known.as_days, column.first: days})
    return replace(known, as_numbers=numbers)


def answers_of(columns: Sequence[ColumnEncoding], questions: Mapping[str, Question], block: Any) -> dict[str, Answer]:
    """Return what a block of rows answers to what `TableSummary.open` asks of some columns."""
    found: dict[str, Answer] = {}
    for column in columns:
        if (question := questions.get(column.name)) is None:
            continue
        values = read_columns(block, [column.name])[column.name]
        if isinstance(question, frozenset):
            counts = Counter(values.as_texts().tolist())
            found[column.name] = Counter({level: counts[level] for level in question})
        else:
            found[column.name] = Within.of(column.magnitudes(values), *question)
    return found
