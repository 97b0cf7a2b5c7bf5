"""Choice of growing samples of the rows under a time limit, from the seconds of the fits so far."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

FIRST_ROWS = 250
"""Rows of the first fit under a time limit."""

LEAST_GROWTH = 1.25
"""Least ratio of the numbers of rows of two fits; fewer rows more are not worth a further fit."""

FIRST_GROWTH = 2.0
"""Most growth after the first fit, so that two cheap fits give the growth of the time."""

MOST_GROWTH = 3.0
"""Most growth after later fits, as the time of much larger fits may grow faster."""

EXPONENTS = (1.5, 3.0)
"""Least and largest power of the number of rows with which the time is expected to
grow.

Small fits grow more slowly, as part of their time does not depend on the rows. The
largest is that of a factorization.
"""

EXPONENT_OF_ONE_FIT = 2.0
"""Expected power after a single fit."""


@dataclass(frozen=True)
class MeasuredFits:
    """Fits on growing samples: numbers of rows, ascending, and seconds.

    The time of larger fits is extrapolated from the last fit, as a power of the number
    of rows. The power is that between the last two fits, within `EXPONENTS`.
    """

    rows: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()

    def plus(self, n_rows: int, seconds: float) -> MeasuredFits:
        """Return these fits and a further one."""
        return MeasuredFits((*self.rows, n_rows), (*self.seconds, seconds))

    @property
    def exponent(self) -> float:
        """Power of the number of rows with which the time grows."""
        if len(self.rows) < 2:
            return EXPONENT_OF_ONE_FIT
        growth = log(self.seconds[-1] / self.seconds[-2]) / log(
            self.rows[-1] / self.rows[-2]
        )
        least, largest = EXPONENTS
        return min(max(growth, least), largest)

    def expected_seconds(self, n_rows: int) -> float:
        """Return the expected time of a fit on more rows."""
        return self.seconds[-1] * (n_rows / self.rows[-1]) ** self.exponent

    def next_rows(self, time_left: float, n_all: int) -> int | None:
        """Return the size of the next sample: the largest that fits the time left, or None if it is not worth a fit."""
        growth = (max(time_left, 0.0) / self.seconds[-1]) ** (1.0 / self.exponent)
        most_growth = FIRST_GROWTH if len(self.rows) < 2 else MOST_GROWTH
        n_next = min(n_all, int(self.rows[-1] * min(growth, most_growth)))
        if n_next < min(LEAST_GROWTH * self.rows[-1], n_all):
            return None
        return n_next
