"""Moments in time from texts: dates in common forms, in the order that a column decides, and times of day."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Literal, TypeAlias

import numpy as np

First: TypeAlias = Literal["year", "day", "month", "time"]
"""What dates begin with, those of ISO 8601 with the year; or "time" of times of day without a date."""

FIRSTS: tuple[First, ...] = ("year", "day", "month", "time")

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

ABBREVIATED = {name[:3].lower(): place for place, name in enumerate(MONTHS, 1)}

NAMED = "(?P<named>" + "|".join(f"{name[:3]}(?:{name[3:]})?" for name in MONTHS) + "|Sept)"

CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
    r"(?:\s?(?P<half>[AaPp])\.?[Mm]\.?)?"
)

ZONE = r"(?:\s?(?P<zone>Z|UTC|GMT|(?:UTC|GMT)?[+-]\d{2}:?(?:\d{2})?))?"

SEVERAL = r"(?:[ T,]+" + CLOCK + ZONE + ")?"

BEFORE = "(?:(?:" + "|".join(f"{name[:3]}(?:{name[3:]})?" for name in WEEKDAYS) + r")\.?,? )?"

FORMS = [
    re.compile(BEFORE + form + SEVERAL, re.IGNORECASE | re.ASCII)
    for form in (
        r"(?P<year>\d{4})(?P<between>[/.-])(?P<month>\d{1,2})(?P=between)(?P<day>\d{1,2})",
        r"(?P<one>\d{1,2})(?P<between>[/.-])(?P<two>\d{1,2})(?P=between)(?P<year>\d{4}|\d{2})",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\.?[ /-]?{NAMED}\.?,?[ /-]?(?P<year>\d{{4}}|\d{{2}})",
        rf"{NAMED}\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<year>\d{{4}})",
        rf"(?P<year>\d{{4}})[ /-]{NAMED}[ /-](?P<day>\d{{1,2}})",
    )
]
"""Dates with or without a time of day: the year first; two numbers first, whose order a column decides; month names."""

CIVIL = FORMS[1]

ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)?", re.ASCII)

COMPACT = re.compile(
    r"(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})(?:T(?P<hour>\d{2})(?P<minute>\d{2})(?P<second>\d{2})?Z?)?", re.ASCII
)

MONTH = re.compile(
    rf"(?P<year>1[6-9]\d\d|2[0-3]\d\d)(?:-(?P<month>\d{{2}}))?|{NAMED}[ -](?P<later>\d{{4}})", re.IGNORECASE | re.ASCII
)
"""A month, or a year."""

TIME = re.compile(CLOCK, re.ASCII)

PIVOT = 69
"""The least of two digits that is a year of the twentieth century, as POSIX has it."""

NO_YEARS = (1, 9999)

NO_DATE = re.compile(
    r"(?:0000-00-00|0001-01-01|9999-12-31|(?:00/00/0000)|(?:31[./-]12|12[./-]31)[./-]9999)(?:[ T][0-9:.]+Z?)?", re.ASCII
)
"""What databases write in place of a missing date."""

DAY = 86_400.0
"""Seconds."""

CYCLES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": lambda days: days / 365.2425 % 1.0,
    "week": lambda days: np.floor(days) % 7.0 / 7.0,
    "day": lambda days: days % 1.0,
}
"""Where in a cycle, from 0 to 1, some days since 1970 are."""

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


def without_placeholders(dates: np.ndarray) -> np.ndarray:
    """Return moments with NaT where the year stands for a missing date, such as 9999."""
    years = dates.astype("datetime64[Y]").astype(np.int64) + 1970
    return np.where(np.isin(years, NO_YEARS), np.datetime64("NaT", "us"), dates)


def iso_dates(texts: Sequence[str]) -> np.ndarray | None:
    """Return texts as moments where all are written as ISO 8601 says, without a zone, None else."""
    try:
        return np.array(texts, dtype="datetime64[us]") if texts and all(map(ISO.fullmatch, texts)) else None
    except ValueError:  # no such day
        return None


def days_of_digits(numbers: np.ndarray) -> np.ndarray | None:
    """Return numbers such as 20241231 as days since 1970, NaN for gaps; None where one is no such date."""
    held = numbers[~np.isnan(numbers)]
    if not len(held) or not ((held >= 1900_01_01) & (held <= 2100_12_31) & (held == np.round(held))).all():
        return None
    year, month, day = (held // 1e4 - 1970).astype(np.intp), (held // 100 % 100).astype(np.intp), held % 100
    if not ((month >= 1) & (month <= 12) & (day >= 1)).all():
        return None
    months = (12 * year + month - 1).astype("datetime64[M]")
    dates = months.astype("datetime64[D]") + (day - 1).astype(np.intp)
    if not (dates.astype("datetime64[M]") == months).all():
        return None
    days = np.full(len(numbers), np.nan)
    days[~np.isnan(numbers)] = dates.astype(np.int64)
    return days


def first_of(texts: Iterable[str]) -> First | None:
    """Return what the dates of a column begin with; None where day and month cannot be told apart.

    A number above 12 is a day; between dots the day stands first, unless the second number is one. Where no date
    is written so, it is the year.
    """
    found = [match for text in texts if (match := CIVIL.fullmatch(text))]
    if not found:
        return "year"
    if any(12 < int(match["one"]) <= 31 for match in found):
        return "day"
    if any(12 < int(match["two"]) <= 31 for match in found):
        return "month"
    return "day" if all(match["between"] == "." for match in found) else None


def deciding(texts: Iterable[str]) -> tuple[str, ...]:
    """Return at most four of some texts, of which `first_of` says what it says of all of them."""
    found: dict[str, str] = {}
    for text in texts:
        if match := CIVIL.fullmatch(text):
            one, two = int(match["one"]), int(match["two"])
            kind = "day" if 12 < one <= 31 else "month" if 12 < two <= 31 else match["between"]
            found.setdefault(kind if kind in ("day", "month", ".") else "open", text)
    return tuple(found.values())


def moment_of(text: str, first: First) -> np.datetime64 | None:
    """Return the moment that a text tells, in UTC where it names a zone; None where it is no date.

    Texts with the year first, or with the name of a month, are read whatever dates begin with; of a month or a year its
    first day is taken, and times of day are those of the first day of 1970.
    """
    if not text[:1].isalnum() or not any(map(str.isdigit, text)):
        return None
    forms = [TIME] if first == "time" else [*FORMS, COMPACT, MONTH]
    match = next((found for form in forms if (found := form.fullmatch(text))), None)
    if match is None or (match.re is CIVIL and first == "year"):
        return None
    try:
        return np.datetime64(_moment(match.groupdict(), first), "us")
    except (ValueError, OverflowError):
        return None


def _moment(found: dict[str, str | None], first: First) -> datetime:
    """Return the moment of the parts of a date; ValueError where there is no such day or time."""
    if first == "time":
        date = 1970, 1, 1
    else:
        day, month = found.get("day"), found.get("month")
        if found.get("one"):
            day, month = (found["one"], found["two"]) if first == "day" else (found["two"], found["one"])
        number = ABBREVIATED[str(found["named"])[:3].lower()] if found.get("named") else int(month or 1)
        date = _year(str(found["year"] or found.get("later"))), number, int(day or 1)
    hour = int(found.get("hour") or 0)
    if half := found.get("half"):
        if not 1 <= hour <= 12:
            raise ValueError("no hour of half a day")
        hour = hour % 12 + 12 * (half in "pP")
    part = int(((found.get("part") or "") + "000000")[:6])
    moment = datetime(*date, hour, int(found.get("minute") or 0), int(found.get("second") or 0), part)
    ahead = re.sub("UTC|GMT|Z|:", "", found.get("zone") or "", flags=re.IGNORECASE)
    if not ahead:
        return moment
    offset = timedelta(hours=int(ahead[1:3]), minutes=int(ahead[3:] or 0)) * (-1 if ahead[0] == "-" else 1)
    return moment.replace(tzinfo=timezone(offset)).astimezone(UTC).replace(tzinfo=None)


def _year(digits: str) -> int:
    return int(digits) if len(digits) == 4 else int(digits) + (1900 if int(digits) >= PIVOT else 2000)
