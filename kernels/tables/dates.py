"""Moments in time from texts: ISO 8601, or day, month and year in the order that a column decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import numpy as np

First: TypeAlias = Literal["year", "day", "month"]
"""What dates begin with: those of ISO 8601 with the year."""

FIRSTS: tuple[First, ...] = ("year", "day", "month")

CIVIL = re.compile(
    r"(?P<one>\d{1,2})(?P<between>[/.-])(?P<two>\d{1,2})(?P=between)(?P<year>\d{4})"
    r"(?:[ T,]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.\d+)?)?(?:\s?(?P<half>[AaPp])\.?[Mm]\.?)?)?"
)
"""Dates such as 31/12/2024, 31.12.2024 or 12-31-2024, with or without a time of day."""

MONTH = re.compile(r"(\d{4})(?:-(\d{2}))?")
"""A month or a year of ISO 8601."""


DAY = 86_400.0
"""Seconds."""

CYCLES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": lambda days: days / 365.2425 % 1.0,
    "week": lambda days: np.floor(days) % 7.0 / 7.0,
    "day": lambda days: days % 1.0,
}
"""Where in a cycle, from 0 to 1, some days since 1970 are."""

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

CALENDAR: dict[str, tuple[str, tuple[str, ...], Callable[[np.ndarray], np.ndarray]]] = {
    "month": ("year", MONTHS, lambda days: _whole(days).astype("datetime64[M]").astype(np.intp) % 12),
    "weekday": ("week", WEEKDAYS, lambda days: (_whole(days).astype(np.intp) + 3) % 7),
}
"""Names of months and weekdays, the cycle that they divide, and which of them some days since 1970 are in."""


def _whole(days: np.ndarray) -> np.ndarray:
    return np.floor(days).astype("datetime64[D]")


def days_of(dates: np.ndarray) -> np.ndarray:
    """Return moments in time as days since 1970, NaN for gaps."""
    days = dates.astype("datetime64[us]").astype(np.int64) / (1e6 * DAY)
    return np.asarray(np.where(np.isnat(dates), np.nan, days))


def first_of(texts: Iterable[str]) -> First | None:
    """Return what the dates of a column begin with; None where day and month cannot be told apart.

    A number above 12 is a day; between dots the day stands first, unless the second number is one. Where no date
    is written so, it is the year.
    """
    found = [match for text in texts if (match := CIVIL.fullmatch(text))]
    if not found:
        return "year"
    if any(int(match["one"]) > 12 for match in found):
        return "day"
    if any(int(match["two"]) > 12 for match in found):
        return "month"
    return "day" if all(match["between"] == "." for match in found) else None


def deciding(texts: Iterable[str]) -> tuple[str, ...]:
    """Return at most four of some texts, of which `first_of` says what it says of all of them."""
    found: dict[str, str] = {}
    for text in texts:
        if match := CIVIL.fullmatch(text):
            kind = "day" if int(match["one"]) > 12 else "month" if int(match["two"]) > 12 else match["between"]
            found.setdefault(kind if kind in ("day", "month", ".") else "open", text)
    return tuple(found.values())


def moment_of(text: str, first: First) -> np.datetime64 | None:
    """Return the moment that a text tells, in UTC where it names a zone; None where it is no date.

    Texts of ISO 8601 are read whatever dates begin with; of a month or a year its first day is taken.
    """
    try:
        if match := MONTH.fullmatch(text):
            moment = datetime(int(match[1]), int(match[2] or 1), 1)
        elif match := CIVIL.fullmatch(text) if first != "year" else None:
            moment = _civil(match, first)
        elif len(text) >= len("20000101"):
            moment = datetime.fromisoformat(text)
        else:
            return None
    except ValueError:
        return None
    return np.datetime64(moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment, "us")


def _civil(match: re.Match[str], first: First) -> datetime:
    """Return the moment of a date with day and month in an order; ValueError where there is no such day or time."""
    day, month = (match["one"], match["two"]) if first == "day" else (match["two"], match["one"])
    hour = int(match["hour"] or 0)
    if match["half"]:
        if not 1 <= hour <= 12:
            raise ValueError("no hour of half a day")
        hour = hour % 12 + 12 * (match["half"] in "pP")
    return datetime(
        int(match["year"]), int(month), int(day), hour, int(match["minute"] or 0), int(match["second"] or 0)
    )
