"""Columns of a table as arrays, whatever library made it, and the numbers and dates that their texts hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from learnkernels.kernels.parameters import listed

Mark: TypeAlias = Literal[".", ","]
"""What stands before the decimals."""

CURRENCIES = (
    r"[$€£¥₹₩₽₺₴₫฿₪₱]|(?:US|AU|CA|NZ|HK)\$|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|BRL|MXN|Rs\.?|R\$|kr"
)

PLAIN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""A number as programs write it."""

INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)

SPACES = " \u00a0\u2009\u202f"

TIMES = {"k": 3, "K": 3, "M": 6, "B": 9, "bn": 9, "thousand": 3, "million": 6, "billion": 9}
"""What may stand after digits, and how many zeros that means."""

WRITTEN = re.compile(
    rf"(?P<open>\()?(?P<limit>[<>]=?|[≤≥])?[{SPACES}]?(?P<sign>[+\-−–])?(?P<before>{CURRENCIES})?[{SPACES}]?"
    rf"(?P<inner>[+\-−–])?(?P<digits>[0-9.,][0-9.,'’{SPACES}]*?(?:[eE][+-]?[0-9]+)?)"
    rf"(?:[{SPACES}]?(?P<times>{'|'.join(TIMES)})(?![A-Za-z]))?"
    rf"(?:[{SPACES}]?(?P<after>{CURRENCIES}|[%‰°]|°?[A-Za-zµμΩ][A-Za-zµμΩ²³°/·*^%. -]{{0,14}}[23]?))?(?P<behind>-)?"
    r"(?P<close>\))?"
)
"""A number with a sign or parentheses, a limit of detection, a currency or a unit."""

GROUPED = re.compile(rf"[1-9][0-9]{{0,2}}(?:(?:,[0-9]{{3}})+|(?:['’{SPACES}][0-9]{{3}})+)(?:\.[0-9]*)?")
"""Thousands with something between them."""

INDIAN = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{2})+,[0-9]{3}(?:\.[0-9]*)?")

SWAPPED = str.maketrans(",.", ".,")

TRUTHS = {"false": 0.0, "true": 1.0}
"""Texts, in small letters, of Booleans."""

NUMERALS = re.compile("[^0-9.eE+-]")


class Written(NamedTuple):
    """How the numbers of a column are written.

    Attributes
    ----------
    mark : {".", ","}
        What stands before the decimals.
    unit : str
        Currency or unit that may stand next to a number; empty where none does.
    """

    mark: Mark = "."
    unit: str = ""


POINT, COMMA = Written("."), Written(",")


class Read(NamedTuple):
    """A number that a text holds.

    Attributes
    ----------
    value : float
    unit : str
        The currency or unit next to it.
    limit : bool
        Whether the text says that the number is below, or above, `value`.
    """

    value: float
    unit: str = ""
    limit: bool = False


def number_in(text: str, mark: Mark) -> Read | None:
    """Return the number that a text holds, None where it holds none."""
    if PLAIN.fullmatch(text) and (mark == "." or "." not in text):
        return Read(float(text))
    if (truth := TRUTHS.get(text.lower())) is not None:
        return Read(truth)
    if INFINITE.fullmatch(text):
        return Read(float(text))
    match = WRITTEN.fullmatch(text)
    if match is None or bool(match["open"]) != bool(match["close"]) or (match["before"] and match["after"]):
        return None
    signs = [sign for sign in (match["sign"], match["inner"], match["behind"], match["open"]) if sign]
    digits = match["digits"] if mark == "." else match["digits"].translate(SWAPPED)
    grouped = GROUPED.fullmatch(digits) or (mark == "." and INDIAN.fullmatch(digits))
    if len(signs) > 1 or not (PLAIN.fullmatch(digits) or grouped):
        return None
    plain = NUMERALS.sub("", digits)
    zeros = TIMES.get(match["times"], 0)
    value = float(f"{plain}e{zeros}" if zeros and "e" not in plain.lower() else plain)
    unit = (match["before"] or match["after"] or "").strip()
    return Read(-value if signs and signs[0] != "+" else value, unit, match["limit"] is not None)


def plain_numbers(texts: Sequence[str]) -> np.ndarray | None:
    """Return texts as numbers where all of them are written as programs write them, None else."""
    return np.array([float(text) for text in texts]) if all(map(PLAIN.fullmatch, texts)) else None


# Dates ---------------------------------------------------------------------------------------------------------------


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
    """Return moments with NaT where the year represents a missing date, such as 9999."""
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


def day_places(texts: Iterable[str]) -> frozenset[str]:
    """Return how some texts of `CIVIL` show where the day stands: "first", "second", by "dots", or "open"."""
    found = set[str]()
    for match in filter(None, map(CIVIL.fullmatch, texts)):
        if 12 < int(match["one"]) <= 31:
            found.add("first")
        elif 12 < int(match["two"]) <= 31:
            found.add("second")
        else:
            found.add("dots" if match["between"] == "." else "open")
    return frozenset(found)


def first_of(places: frozenset[str]) -> First | None:
    """Return what the dates of a column begin with, by `day_places`; None where it may be the day or the month.

    A number above 12 is a day; between dots the day stands first, unless the second number is one. Where no date
    is written so, it is the year.
    """
    if not places:
        return "year"
    if "first" in places:
        return "day"
    if "second" in places:
        return "month"
    return None if "open" in places else "day"


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


# Columns -------------------------------------------------------------------------------------------------------------


MISSING = frozenset(
    {
        "", "?", "na", "n/a", "n.a.", "#n/a", "#n/a n/a", "#na", "nan", "-nan", "null", "(null)", "#null!", "none",
        "<na>", "nat", "\\n", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan", "#div/0!", "#value!", "#ref!",
        "#num!", "#name?",
    }
)  # fmt: skip
"""Texts, in small letters, that represent a missing value: those of pandas, of databases and of Excel's errors."""

LARGEST = 2**53
"""Whole numbers up to which each has a float64 of its own."""

WHOLE = re.compile(r"(-?[0-9]+)\.0*")

ColumnKind: TypeAlias = Literal["number", "date", "text", "other"]
"""What the values of a column are, as they are stored."""


@dataclass(frozen=True)
class Column:
    """The values of one column.

    Attributes
    ----------
    name : str
    kind : {"number", "date", "text", "other"}
        What the values are, as they are stored.
    values : ndarray of shape (n,)
        float64 with NaN for missing values, datetime64[us] with NaT, or texts with None; of another kind no values.
    levels : tuple of str
        Of an ordered category, from the lowest to the highest.
    exact : ndarray of shape (n,) or None
        Whole numbers, None for missing values, of which float64 does not hold all digits.
    is_category : bool
        Whether the table says that the column is categorical.
    """

    name: str
    kind: ColumnKind
    values: np.ndarray
    levels: tuple[str, ...] = ()
    exact: np.ndarray | None = None
    is_category: bool = False

    @property
    def gaps(self) -> np.ndarray:
        """Return whether each value is missing, shape (n,)."""
        if self.kind == "text":
            return np.array([value is None for value in self.values], dtype=bool)
        if self.kind == "other":
            return np.zeros(len(self.values), dtype=bool)
        return np.isnan(self.values) if self.kind == "number" else np.isnat(self.values)

    def texts(self) -> list[str]:
        """Return the different texts of the column, in the order in which they appear."""
        return [text for text in dict.fromkeys(self.as_texts().tolist()) if text is not None]

    def read_numbers(self, written: Written) -> tuple[np.ndarray, np.ndarray]:
        """Return the values as numbers, NaN where there is none, and which are limits of detection, each shape (n,)."""
        if self.kind != "text":
            values = self.values if self.kind == "number" else np.full(len(self.values), np.nan)
            return values, np.zeros(len(values), dtype=bool)
        nothing = Read(np.nan)
        found: dict[str | None, Read] = {None: nothing}
        for text in self.texts():
            read = number_in(text, written.mark)
            found[text] = read if read is not None and read.unit in ("", written.unit) else nothing
        reads = [found[text] for text in self.values.tolist()]
        return np.array([read.value for read in reads], dtype=np.float64), np.array([read.limit for read in reads])

    def read_dates(self, first: First) -> np.ndarray:
        """Return the values as moments in time that begin so, NaT where there is none, shape (n,)."""
        if self.kind == "date":
            return self.values
        texts = self.texts()
        iso = None if first == "time" else iso_dates(texts)
        moments = (moment_of(text, first) for text in texts) if iso is None else iso
        found: dict[str | None, Any] = dict(zip(texts, moments, strict=True))
        nothing = np.datetime64("NaT", "us")
        dates = [nothing if (moment := found.get(text)) is None else moment for text in self.as_texts().tolist()]
        return np.array(dates, dtype="datetime64[us]")

    def as_texts(self) -> np.ndarray:
        """Return the values as texts, whole numbers without a point, None for gaps; shape (n,) of objects."""
        return (
            self.values
            if self.kind == "text"
            else as_texts((self.values if self.exact is None else self.exact).tolist())
        )

    def as_levels(self) -> np.ndarray:
        """Return the values as levels of a category: texts, of whole numbers without the decimals that float64 adds."""
        texts = self.as_texts()
        whole = {text: match[1] for text in self.texts() if (match := WHOLE.fullmatch(text))}
        return np.array([whole.get(text, text) for text in texts], dtype=object) if whole else texts


def is_table(X: Any) -> bool:
    """Return whether rows come as a table of named columns, of pandas, polars, Arrow or what else narwhals knows."""
    if isinstance(X, np.ndarray | list | tuple) or sparse.issparse(X):
        return False
    import narwhals.stable.v2 as nw

    return isinstance(nw.from_native(X, pass_through=True, eager_only=True), nw.DataFrame)


def read_columns(table: Any, names: Iterable[str] | None = None) -> dict[str, Column]:
    """Return columns of a table by name, which may have been read before; all of them by default, in their order.

    Raises
    ------
    ValueError
        It is no table, a column is not there, or two have one name.
    """
    import narwhals.stable.v2 as nw

    if isinstance(table, Mapping) and all(isinstance(column, Column) for column in table.values()):
        held: Mapping[str, Any] = table
    elif is_table(table):
        series = [(str(one.name), one) for one in nw.from_native(table, eager_only=True).iter_columns()]
        held = dict(series)
        if len(held) < len(series):
            twice = next(name for name, times in Counter(name for name, _ in series).items() if times > 1)
            raise ValueError(f"X must have each column once, got {twice!r} more than once; rename one.")
    else:
        raise ValueError(
            f"X must be a table with the columns that the model was fitted on, {listed(list(names or ()))}, got "
            f"{type(table).__name__}; give a DataFrame."
        )
    wanted = list(held) if names is None else list(names)
    if absent := [name for name in wanted if name not in held]:
        raise ValueError(
            f"X must have the columns that the model was fitted on, got none named {listed(absent)}; add what is "
            "missing, as empty if need be."
        )
    return {name: one if isinstance(one := held[name], Column) else column_of(name, one) for name in wanted}


def column_of(name: str, series: Any) -> Column:
    """Return a column of narwhals, or of a library that it knows, as arrays."""
    import narwhals.stable.v2 as nw

    series = nw.from_native(series, series_only=True, pass_through=False)
    dtype = series.dtype
    if dtype.is_integer() or dtype.is_decimal():
        ends = [abs(end) for end in (series.min(), series.max()) if not _is_missing(end)]
        if ends and max(ends) > LARGEST:
            exact = as_texts(series.to_list())
            values = [np.nan if text is None else float(text) for text in exact.tolist()]
            return Column(name, "number", np.array(values, dtype=np.float64), exact=exact)
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Column(name, "number", np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64))
    if dtype in (nw.Datetime, nw.Date):
        if dtype == nw.Date:
            series = series.cast(nw.Datetime("us"))
        elif dtype.time_zone is not None:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return Column(name, "date", without_placeholders(np.array(series.to_numpy(), dtype="datetime64[us]")))
    if dtype == nw.Duration:
        seconds = series.dt.total_microseconds().cast(nw.Float64).to_numpy()
        return Column(name, "number", np.array(seconds, dtype=np.float64) / 1e6)
    if dtype.is_nested() or dtype == nw.Binary:
        return Column(name, "other", np.empty(len(series)))
    category, levels = dtype in (nw.Categorical, nw.Enum), ()
    if category and nw.is_ordered_categorical(series):
        levels = tuple(level for level in as_texts(series.cat.get_categories().to_list()) if level is not None)
    values = series.to_list()
    if dtype == nw.Object and all(_is_missing(value) or isinstance(value, int | float) for value in values):
        texts = as_texts(values)
        numbers = np.array([np.nan if _is_missing(value) else float(value) for value in values], dtype=np.float64)
        return Column(name, "number", numbers, exact=texts if (np.abs(numbers) > LARGEST).any() else None)
    if dtype == nw.Object and any(
        isinstance(value, bytes | list | dict | set | tuple | np.ndarray) for value in values
    ):
        return Column(name, "other", np.empty(len(values)))
    return Column(name, "text", as_texts(values), levels, is_category=category)


def as_texts(values: Sequence[Any]) -> np.ndarray:
    """Return values as texts, whole numbers without a point and gaps as None, shape (n,) of objects."""
    said: dict[Any, str | None] = {}
    found = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        try:
            found[i] = said[value]
        except KeyError:
            found[i] = said[value] = _text(value)
        except TypeError:  # not hashable
            found[i] = _text(value)
    return found


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA of pandas
        return True


def _text(value: Any) -> str | None:
    if _is_missing(value):
        return None
    if isinstance(value, float | Decimal) and np.isfinite(float(value)) and value == int(value):
        value = int(value)
    text = str(value).strip()
    return None if text.lower() in MISSING or NO_DATE.fullmatch(text) else text


def codes_of(texts: Sequence[str | None] | np.ndarray) -> np.ndarray:
    """Return for each text a number in [0, 1) that no other text has, but by an accident of one in 2^53 a pair."""
    codes: dict[str | None, float] = {}
    for level in set(texts):
        held = b"\0" if level is None else b"\1" + level.encode("utf-8", "surrogatepass")
        codes[level] = (int.from_bytes(blake2b(held, digest_size=8).digest()) >> 11) / 2.0**53
    return np.array([codes[level] for level in texts], dtype=np.float64)
