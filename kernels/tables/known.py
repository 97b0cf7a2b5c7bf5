"""What is known of a column, by which it is told what it is: from all its values, or from a summary of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from learnkernels.kernels.tables.dates import CYCLES, First, days_of
from learnkernels.kernels.tables.reading import Column, ColumnKind

KNOTS = 101
"""Quantiles that a scale of quantiles is made of."""

Scale: TypeAlias = Literal["none", "unit", "max", "standard", "quantile"]
"""Units of numbers: their own; from 0 to 1; mean zero and deviation one; or those of a normal distribution's ranks."""


class KnownNumbers(Protocol):
    """What is known of numbers, some of which may be missing."""

    @property
    def n(self) -> int:
        """How many there are."""

    @property
    def gaps(self) -> int:
        """How many of them are missing."""

    @property
    def infinite(self) -> int:
        """How many are not finite; if some are, nothing below is to be asked."""

    @property
    def low(self) -> float:
        """The least."""

    @property
    def high(self) -> float:
        """The greatest."""

    @property
    def constant(self) -> bool:
        """Whether all that are there are equal."""

    @property
    def whole_and_different(self) -> bool:
        """Whether they are whole numbers that are all different."""

    @property
    def fill(self) -> float:
        """Their median, which stands for a gap."""

    def scaling(self, scale: Scale) -> tuple[float, float]:
        """Return what to subtract from them, gaps filled, and then to divide them by; by one where all are equal."""

    def knots(self) -> tuple[float, ...]:
        """Return their quantiles at `KNOTS` even steps."""


class KnownDays(NamedTuple):
    """What is known of moments in time.

    Attributes
    ----------
    days : KnownNumbers
        Since 1970.
    spans : mapping of str to float
        How far they spread in each cycle.
    """

    days: KnownNumbers
    spans: Mapping[str, float]


class KnownColumn(Protocol):
    """What is known of the values of a column."""

    @property
    def name(self) -> str:
        """Of the column."""

    @property
    def kind(self) -> ColumnKind:
        """What its values are, as they are stored."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Of an ordered category, from the lowest to the highest."""

    @property
    def n(self) -> int:
        """How many rows it has."""

    @property
    def gaps(self) -> int:
        """How many of them have no value."""

    @property
    def example(self) -> str:
        """The beginning of one of its values."""

    @property
    def constant(self) -> bool:
        """Whether all its values are equal, gaps aside."""

    @property
    def different(self) -> int:
        """How many different texts it has."""

    @property
    def spaces(self) -> float:
        """How many spaces a text has on average."""

    def counts(self) -> Mapping[str | None, int]:
        """Return how many rows have each level, as a text; None for gaps."""

    def numbers(self) -> KnownNumbers | None:
        """Return what is known of its values as numbers; None where one is none."""

    def places(self, levels: Sequence[str]) -> KnownNumbers:
        """Return what is known of the places of its values among some levels."""

    def first_of_dates(self) -> First | None:
        """Return what its dates begin with; None where day and month cannot be told apart."""

    def dates(self, first: First) -> KnownDays | None:
        """Return what is known of its values as moments in time; None where one is none that begins so."""


@dataclass(frozen=True)
class Numbers:
    """Numbers that are all here.

    Attributes
    ----------
    values : ndarray of shape (n,)
        NaN for gaps.
    """

    values: np.ndarray

    @cached_property
    def _held(self) -> np.ndarray:
        return np.asarray(self.values[~np.isnan(self.values)])

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def gaps(self) -> int:
        return self.n - len(self._held)

    @cached_property
    def infinite(self) -> int:
        return int(np.isinf(self._held).sum())

    @cached_property
    def low(self) -> float:
        return float(self._held.min())

    @cached_property
    def high(self) -> float:
        return float(self._held.max())

    @property
    def constant(self) -> bool:
        """Whether all that are there are equal."""
        return self.low == self.high

    @property
    def whole_and_different(self) -> bool:
        """Whether they are whole numbers that are all different."""
        held = self._held
        return bool((held == np.round(held)).all()) and bool((np.diff(np.sort(held)) > 0).all())

    @cached_property
    def fill(self) -> float:
        return float(np.median(self._held))

    def scaling(self, scale: Scale) -> tuple[float, float]:
        filled = np.where(np.isnan(self.values), self.fill, self.values)
        low, high = float(filled.min()), float(filled.max())
        moments = (filled.mean(), filled.std()) if scale == "standard" else (0.0, 0.0)
        return units(scale, low, high, *moments)

    def knots(self) -> tuple[float, ...]:
        return tuple(np.quantile(self._held, np.linspace(0.0, 1.0, KNOTS)).tolist())


def units(scale: Scale, low: float, high: float, mean: float, deviation: float) -> tuple[float, float]:
    """Return what to subtract from numbers and then to divide them by, from what is known of them."""
    if scale == "none":
        return 0.0, 1.0
    largest = max(abs(low), abs(high))
    if scale == "max":
        return 0.0, largest or 1.0
    first, spread = (float(mean), float(deviation)) if scale == "standard" else (low, high - low)
    return first, spread if spread > 1e-12 * largest else 1.0


@dataclass(frozen=True)
class WholeColumn:
    """A column whose values are all here.

    Attributes
    ----------
    column : Column
    """

    column: Column

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def kind(self) -> ColumnKind:
        return self.column.kind

    @property
    def levels(self) -> tuple[str, ...]:
        return self.column.levels

    @property
    def n(self) -> int:
        return len(self.column.values)

    @cached_property
    def gaps(self) -> int:
        return int(self.column.gaps.sum())

    @property
    def example(self) -> str:
        return str(self._held[0])[:40]

    @cached_property
    def _held(self) -> np.ndarray:
        return np.asarray(self.column.values[~self.column.gaps])

    @property
    def constant(self) -> bool:
        return bool((self._held == self._held[0]).all())

    @cached_property
    def different(self) -> int:
        return len(set(self._held.tolist()))

    @property
    def spaces(self) -> float:
        return float(np.mean([value.count(" ") for value in self._held]))

    def counts(self) -> Mapping[str | None, int]:
        return Counter(self.column.as_texts().tolist())

    def numbers(self) -> KnownNumbers | None:
        numbers = self.column.as_numbers() if self.kind in ("number", "text") else None
        return None if numbers is None else Numbers(numbers)

    def places(self, levels: Sequence[str]) -> KnownNumbers:
        return Numbers(places_of(self.column.as_texts(), levels))

    def first_of_dates(self) -> First | None:
        return self.column.first_of_dates() if self.kind in ("date", "text") else "year"

    def dates(self, first: First) -> KnownDays | None:
        dates = self.column.as_dates(first) if self.kind in ("date", "text") else None
        return None if dates is None else days_known(days_of(dates))


def days_known(days: np.ndarray) -> KnownDays:
    """Return what is known of days since 1970 that are all here, NaN for gaps, shape (n,)."""
    held = days[~np.isnan(days)]
    return KnownDays(Numbers(days), {name: float(np.ptp(of(held))) for name, of in CYCLES.items()})


def places_of(texts: Sequence[str | None] | np.ndarray, levels: Sequence[str]) -> np.ndarray:
    """Return where each text stands among some levels, NaN for gaps and for others."""
    place = {level: float(i) for i, level in enumerate(levels)}
    return np.array([np.nan if one is None else place.get(one, np.nan) for one in texts], dtype=np.float64)
