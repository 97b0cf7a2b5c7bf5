"""Dates and times in texts, and the cycles of the calendar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

First: TypeAlias = Literal["year", "day", "month", "time"]
"""First part of dates, or "time" for times of day."""

FIRSTS: tuple[First, ...] = ("year", "day", "month", "time")

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

WEEKDAYS = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)

MONTH_NUMBERS = {name[:3].lower(): place for place, name in enumerate(MONTHS, 1)}

MONTH_NAME = (
    "(?P<named>" + "|".join(f"{name[:3]}(?:{name[3:]})?" for name in MONTHS) + "|Sept)"
)

CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
    r"(?:\s?(?P<half>[AaPp])\.?[Mm]\.?)?"
)

ZONE = r"(?:\s?(?P<zone>Z|UTC|GMT|(?:UTC|GMT)?[+-]\d{2}:?(?:\d{2})?))?"

TIME_SUFFIX = r"(?:[ T,]+" + CLOCK + ZONE + ")?"

WEEKDAY_PREFIX = (
    "(?:(?:"
    + "|".join(f"{name[:3]}(?:{name[3:]})?" for name in WEEKDAYS)
    + r")\.?,? )?"
)

FORMS = [
    re.compile(WEEKDAY_PREFIX + form + TIME_SUFFIX, re.IGNORECASE | re.ASCII)
    for form in (
        r"(?P<year>\d{4})(?P<between>[/.-])(?P<month>\d{1,2})(?P=between)(?P<day>\d{1,2})",
        r"(?P<one>\d{1,2})(?P<between>[/.-])(?P<two>\d{1,2})(?P=between)(?P<year>\d{4}|\d{2})",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\.?[ /-]?{MONTH_NAME}\.?,?[ /-]?(?P<year>\d{{4}}|\d{{2}})",
        rf"{MONTH_NAME}\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<year>\d{{4}})",
        rf"(?P<year>\d{{4}})[ /-]{MONTH_NAME}[ /-](?P<day>\d{{1,2}})",
    )
]
"""Dates with the year first, with two numbers first, or with month names."""

NUMERIC_DATE = FORMS[1]

ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)?", re.ASCII
)

COMPACT = re.compile(
    r"(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})(?:T(?P<hour>\d{2})(?P<minute>\d{2})(?P<second>\d{2})?Z?)?",
    re.ASCII,
)

MONTH = re.compile(
    rf"(?P<year>1[6-9]\d\d|2[0-3]\d\d)(?:-(?P<month>\d{{2}}))?|{MONTH_NAME}[ -](?P<later>\d{{4}})",
    re.IGNORECASE | re.ASCII,
)

TIME = re.compile(CLOCK, re.ASCII)

CENTURY_PIVOT = 69
"""Smallest two-digit year of the twentieth century, as in POSIX."""

PLACEHOLDER_YEARS = (1, 9999)

PLACEHOLDER_DATE = re.compile(
    r"(?:0000-00-00|0001-01-01|9999-12-31|(?:00/00/0000)|(?:31[./-]12|12[./-]31)[./-]9999)(?:[ T][0-9:.]+Z?)?",
    re.ASCII,
)
"""Dates that databases write for missing values."""

PLACEHOLDER_DIGITS = frozenset({"00000000", "0", "00010101", "10101", "99991231"})

PLACEHOLDER_NUMBERS = sorted({float(digits) for digits in PLACEHOLDER_DIGITS})

SECONDS_PER_DAY = 86_400.0

CYCLES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": lambda days: days / 365.2425 % 1.0,
    "week": lambda days: np.floor(days) % 7.0 / 7.0,
    "day": lambda days: days % 1.0,
}
"""Functions from days since 1970 to a position in [0, 1)."""

CALENDAR: dict[str, tuple[str, tuple[str, ...], Callable[[np.ndarray], np.ndarray]]] = {
    "month": (
        "year",
        MONTHS,
        lambda days: _whole(days).astype("datetime64[M]").astype(np.intp) % 12,
    ),
    "weekday": ("week", WEEKDAYS, lambda days: (_whole(days).astype(np.intp) + 3) % 7),
}
"""Cycle, levels, and function from days since 1970 to a level."""

ENCODED_CYCLES = ("year", "month", "weekday", "day")


def _whole(days: np.ndarray) -> np.ndarray:
    return np.floor(days).astype("datetime64[D]")


class Moment(NamedTuple):
    """A date and time, in UTC and as written."""

    instant: np.datetime64
    local: np.datetime64
    has_offset: bool


class Moments(NamedTuple):
    """Arrays of dates and times, in UTC and as written; NaT if missing."""

    instants: np.ndarray  # in UTC
    local: np.ndarray
    has_offset: np.ndarray
    zone: str = ""

    def in_zone(self, zone: str) -> Moments:
        """Convert the dates and times to a time zone, assumed if without offset."""
        if not zone or zone == self.zone:
            return self
        instants = np.where(
            self.has_offset, self.instants, instants_of(self.local, zone)
        )
        return Moments(
            instants,
            local_times(instants, zone),
            np.ones(len(instants), dtype=bool),
            zone,
        )


FIXED_OFFSET = re.compile(
    r"(?:UTC|GMT)?(?P<sign>[+-])(?P<hours>\d{2}):?(?P<minutes>\d{2})?", re.ASCII
)

OFFSET_MINUTES = 15
"""Offsets from UTC change at multiples of this number of minutes."""


def tzinfo_of(zone: str) -> tzinfo:
    """Return the time zone from its name or its offset from UTC."""
    match = FIXED_OFFSET.fullmatch(zone)
    if match is not None:
        offset = timedelta(
            hours=int(match["hours"]), minutes=int(match["minutes"] or 0)
        )
        if match["sign"] == "-":
            offset = -offset
        return timezone(offset)
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"the time zone {zone!r} is not known on this computer; install the package tzdata, or convert the column "
            "to UTC."
        ) from None


def local_times(instants: np.ndarray, zone: str) -> np.ndarray:
    """Convert moments in UTC to dates and times in a time zone, (n,)."""
    place = tzinfo_of(zone)
    return instants + _offsets(
        instants, lambda moment: moment.replace(tzinfo=UTC).astimezone(place)
    )


def instants_of(local: np.ndarray, zone: str) -> np.ndarray:
    """Convert dates and times in a time zone to moments in UTC, (n,)."""
    place = tzinfo_of(zone)
    return local - _offsets(local, lambda moment: moment.replace(tzinfo=place))


def _offsets(
    moments: np.ndarray, in_zone: Callable[[datetime], datetime]
) -> np.ndarray:
    minutes = np.where(
        np.isnat(moments), 0, moments.astype("datetime64[m]").astype(np.int64)
    )
    quarters, quarter_of_row = np.unique(minutes // OFFSET_MINUTES, return_inverse=True)
    offsets = np.zeros(len(quarters), dtype="timedelta64[us]")
    for position, quarter in enumerate(quarters.tolist()):
        moment = np.datetime64(quarter * OFFSET_MINUTES, "m").astype(object)
        if isinstance(moment, datetime):  # only years of datetime
            offsets[position] = in_zone(moment).utcoffset()
    return offsets[quarter_of_row]


def days_of(moments: np.ndarray) -> np.ndarray:
    days = moments.astype("datetime64[us]").astype(np.int64) / (1e6 * SECONDS_PER_DAY)
    return np.asarray(np.where(np.isnat(moments), np.nan, days))


def without_placeholders(dates: np.ndarray) -> np.ndarray:
    """Replace dates in years such as 9999 by NaT."""
    years = dates.astype("datetime64[Y]").astype(np.int64) + 1970
    return np.where(
        np.isin(years, PLACEHOLDER_YEARS), np.datetime64("NaT", "us"), dates
    )


def iso_dates(texts: Sequence[str]) -> np.ndarray | None:
    if not texts or not all(map(ISO.fullmatch, texts)):
        return None
    try:
        return np.array(texts, dtype="datetime64[us]")
    except ValueError:  # no such day
        return None


def days_of_digits(numbers: np.ndarray) -> np.ndarray | None:
    """Convert numbers such as 20241231 to days since 1970, or return None."""
    is_there = ~np.isnan(numbers)
    is_date = is_there & ~np.isin(numbers, PLACEHOLDER_NUMBERS)
    digits = numbers[is_date]
    if (
        not is_there.any()
        or not (
            (digits >= 1900_01_01)
            & (digits <= 2100_12_31)
            & (digits == np.round(digits))
        ).all()
    ):
        return None
    year = (digits // 1e4 - 1970).astype(np.intp)
    month = (digits // 100 % 100).astype(np.intp)
    day = digits % 100
    if not ((month >= 1) & (month <= 12) & (day >= 1)).all():
        return None
    months = (12 * year + month - 1).astype("datetime64[M]")
    dates = months.astype("datetime64[D]") + (day - 1).astype(np.intp)
    if not (dates.astype("datetime64[M]") == months).all():
        return None
    days = np.full(len(numbers), np.nan)
    days[is_date] = dates.astype(np.int64)
    return days


def day_places(texts: Iterable[str]) -> frozenset[str]:
    """Return hints in numeric dates on the order of day and month."""
    places: set[str] = set()
    for text in texts:
        match = NUMERIC_DATE.fullmatch(text)
        if match is None:
            continue
        if 12 < int(match["one"]) <= 31:
            places.add("first")
        elif 12 < int(match["two"]) <= 31:
            places.add("second")
        elif match["between"] == ".":
            places.add("dots")
        else:
            places.add("open")
    return frozenset(places)


def first_of(places: frozenset[str]) -> First | None:
    """Return the first part of numeric dates from hints; None if ambiguous."""
    if not places:
        return "year"
    if "first" in places:
        return "day"
    if "second" in places:
        return "month"
    if "open" in places:
        return None
    return "day"


def moment_of(text: str, first: First) -> Moment | None:
    """Parse the date and time in a text; None if it has none.

    A month or a year is its first day; times of day are on January 1, 1970.
    """
    if not text[:1].isalnum() or not any(map(str.isdigit, text)):
        return None
    forms = [*FORMS, COMPACT, MONTH]
    if first == "time":
        forms = [TIME]
    matches = (form.fullmatch(text) for form in forms)
    match = next(filter(None, matches), None)
    if match is None or (match.re is NUMERIC_DATE and first == "year"):
        return None
    parts = match.groupdict()
    offset = _offset(parts)
    try:
        local = datetime(*_date(parts, first), *_time_of_day(parts))
        instant = local - (offset or timedelta(0))
    except (ValueError, OverflowError):
        return None
    return Moment(
        np.datetime64(instant, "us"), np.datetime64(local, "us"), offset is not None
    )


def _date(parts: dict[str, str | None], first: First) -> tuple[int, int, int]:
    if first == "time":
        return 1970, 1, 1
    year = _year(str(parts["year"] or parts.get("later")))
    if parts.get("one"):
        first_number = int(str(parts["one"]))
        second_number = int(str(parts["two"]))
        if first == "day":
            return year, second_number, first_number
        return year, first_number, second_number
    if parts.get("named"):
        month = MONTH_NUMBERS[str(parts["named"])[:3].lower()]
    else:
        month = int(parts.get("month") or 1)
    return year, month, int(parts.get("day") or 1)


def _time_of_day(parts: dict[str, str | None]) -> tuple[int, int, int, int]:
    """Return hour, minute, second and microsecond."""
    hour = int(parts.get("hour") or 0)
    half = parts.get("half")
    if half:
        if not 1 <= hour <= 12:
            raise ValueError("no hour of half a day")
        hour = hour % 12 + 12 * (half in "pP")
    microsecond = int(((parts.get("part") or "") + "000000")[:6])
    return (
        hour,
        int(parts.get("minute") or 0),
        int(parts.get("second") or 0),
        microsecond,
    )


def _offset(parts: dict[str, str | None]) -> timedelta | None:
    zone = parts.get("zone")
    if not zone:
        return None
    digits = re.sub("UTC|GMT|Z|:", "", zone, flags=re.IGNORECASE)
    if not digits:
        return timedelta(0)
    ahead = timedelta(hours=int(digits[1:3]), minutes=int(digits[3:] or 0))
    if digits[0] == "-":
        return -ahead
    return ahead


def _year(digits: str) -> int:
    year = int(digits)
    if len(digits) == 4:
        return year
    if year >= CENTURY_PIVOT:
        return 1900 + year
    return 2000 + year
