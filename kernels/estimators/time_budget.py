"""Sizes of growing samples under a time limit."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

FIRST_ROWS = 250

LEAST_GROWTH = 1.25
"""Least growth of the number of rows for another fit."""

FIRST_GROWTH = 2.0
"""Largest growth after the first fit."""

MOST_GROWTH = 3.0
"""Largest growth after later fits."""

EXPONENTS = (1.5, 3.0)
"""Range of the exponent of the time of a fit."""

EXPONENT_OF_ONE_FIT = 2.0


@dataclass(frozen=True)
class MeasuredFits:
    """Rows and seconds of fits on growing samples, to predict the next fit's time."""

    rows: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()

    def plus(self, n_rows: int, seconds: float) -> MeasuredFits:
        """Return the measured fits with another fit added."""
        return MeasuredFits((*self.rows, n_rows), (*self.seconds, seconds))

    @property
    def exponent(self) -> float:
        """Exponent with which the time of a fit grows with its rows."""
        if len(self.rows) < 2:
            return EXPONENT_OF_ONE_FIT
        growth_of_time = self.seconds[-1] / self.seconds[-2]
        growth_of_rows = self.rows[-1] / self.rows[-2]
        exponent = log(growth_of_time) / log(growth_of_rows)
        smallest, largest = EXPONENTS
        return min(max(exponent, smallest), largest)

    def expected_seconds(self, n_rows: int) -> float:
        """Return the expected time of a fit."""
        return self.seconds[-1] * (n_rows / self.rows[-1]) ** self.exponent

    def next_rows(self, time_left: float, n_all: int) -> int | None:
        """Return the number of rows of the next fit; None if time is short."""
        growth = (max(time_left, 0.0) / self.seconds[-1]) ** (1.0 / self.exponent)
        most_growth = MOST_GROWTH
        if len(self.rows) < 2:
            most_growth = FIRST_GROWTH
        n_next = min(n_all, int(self.rows[-1] * min(growth, most_growth)))
        if n_next < min(LEAST_GROWTH * self.rows[-1], n_all):
            return None
        return n_next
