"""Columns of a table as arrays, whatever library made it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from ..parameters import listed
from .dates import (
    NO_DATE,
    First,
    Moments,
    iso_dates,
    moment_of,
    without_placeholders,
)
from .quantities import Written, quantity_in
from .units import convert

MISSING = frozenset(
    {
        "", "?", "na", "n/a", "n.a.", "#n/a", "#n/a n/a", "#na", "nan", "-nan", "null", "(null)", "#null!", "none",
        "<na>", "nat", "\\n", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan", "#div/0!", "#value!", "#ref!",
        "#num!", "#name?",
    }
)  # fmt: skip
"""Texts, in lower case, that represent a missing value: those of pandas, of databases and of Excel's errors."""

LARGEST = 2**53
"""Whole numbers up to which each has a float64 of its own."""

WHOLE = re.compile(r"(-?[0-9]+)\.0*")

ENUM_OF_POLARS = b"_PL_ENUM_VALUES"
"""Beginning of the key that polars writes into the metadata of an Arrow field of its type Enum."""

ColumnKind: TypeAlias = Literal["number", "date", "text", "other"]
"""Kind of the values of a column, as they are stored."""


class Numbers(NamedTuple):
    """Numbers of the rows of a column in one unit, each an array of shape (n,).

    Attributes
    ----------
    values : ndarray of float64
        NaN if a row has no number in a unit of the same quantity.
    is_limit : ndarray of bool
        Whether the number is a limit of detection.
    is_converted : ndarray of bool
        Whether the number was converted from another unit.
    """

    values: np.ndarray
    is_limit: np.ndarray
    is_converted: np.ndarray


@dataclass(frozen=True)
class Column:
    """The values of one column.

    Attributes
    ----------
    name : str
    kind : {"number", "date", "text", "other"}
        Kind of the values, as they are stored.
    values : ndarray of shape (n,)
        float64 with NaN for missing values, datetime64[us] with NaT, or texts with None; of another kind no values.
    levels : tuple of str
        Of an ordered category, from the lowest to the highest.
    exact : ndarray of shape (n,) or None
        Whole numbers, None for missing values, of which float64 does not hold all digits.
    is_category : bool
        Whether the table says that the column is categorical.
    local : ndarray of datetime64[us] of shape (n,) or None
        Date and time of day of moments in their time zone; None if the column has no time zone.
    zone : str
        Name of the time zone; empty if the column has none.
    """

    name: str
    kind: ColumnKind
    values: np.ndarray
    levels: tuple[str, ...] = ()
    exact: np.ndarray | None = None
    is_category: bool = False
    local: np.ndarray | None = None
    zone: str = ""

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

    def read_numbers(self, written: Written) -> Numbers:
        """Return the values as numbers in one unit."""
        n = len(self.values)
        if self.kind != "text":
            values = self.values if self.kind == "number" else np.full(n, np.nan)
            return Numbers(values, np.zeros(n, dtype=bool), np.zeros(n, dtype=bool))
        read: dict[str | None, tuple[float, bool, bool]] = {None: (np.nan, False, False)}
        for text in self.texts():
            read[text] = _number_as(text, written)
        texts = self.values.tolist()
        return Numbers(
            np.array([read[text][0] for text in texts], dtype=np.float64),
            np.array([read[text][1] for text in texts], dtype=bool),
            np.array([read[text][2] for text in texts], dtype=bool),
        )

    def read_dates(self, first: First) -> Moments:
        """Return the values as moments; texts begin with `first`."""
        if self.kind == "date":
            local = self.values if self.local is None else self.local
            return Moments(self.values, local, np.full(len(self.values), self.local is not None), self.zone)
        texts = self.texts()
        iso_moments = None if first == "time" else iso_dates(texts)
        if iso_moments is not None:
            return self._moments(dict(zip(texts, iso_moments, strict=True)), {}, frozenset())
        moments = {text: moment for text in texts if (moment := moment_of(text, first)) is not None}
        return self._moments(
            {text: moment.instant for text, moment in moments.items()},
            {text: moment.local for text, moment in moments.items()},
            frozenset(text for text, moment in moments.items() if moment.has_offset),
        )

    def _moments(self, instants: Mapping[str, Any], local: Mapping[str, Any], with_offset: frozenset[str]) -> Moments:
        """Return the moments of the rows from those of the different texts; `local` may hold the texts with offset."""
        texts = self.as_texts().tolist()
        nothing = np.datetime64("NaT", "us")
        moments = np.array([instants.get(text, nothing) for text in texts], dtype="datetime64[us]")
        if not with_offset:
            return Moments(moments, moments, np.zeros(len(texts), dtype=bool))
        wall_clock = np.array([local.get(text, nothing) for text in texts], dtype="datetime64[us]")
        return Moments(moments, wall_clock, np.array([text in with_offset for text in texts], dtype=bool))

    def as_texts(self) -> np.ndarray:
        """Return the values as texts, whole numbers without a point, None for gaps; shape (n,) of objects."""
        if self.kind == "text":
            return self.values
        return as_texts((self.values if self.exact is None else self.exact).tolist())

    def as_levels(self) -> np.ndarray:
        """Return the values as levels of a category: texts, of whole numbers without the decimals that float64 adds."""
        texts = self.as_texts()
        whole = {text: match[1] for text in self.texts() if (match := WHOLE.fullmatch(text))}
        return np.array([whole.get(text, text) for text in texts], dtype=object) if whole else texts


def _number_as(text: str, written: Written) -> tuple[float, bool, bool]:
    """Return the number of a text in the unit of a column, and whether it is a limit, and was converted.

    The number is NaN if there is none in a unit of the same quantity.
    """
    quantity = quantity_in(text, written.mark)
    if quantity is None:
        return np.nan, False, False
    if quantity.unit in ("", written.unit):
        return quantity.value, quantity.is_limit, False
    value = convert(quantity.value, quantity.unit, written.unit)
    if value is None:
        return np.nan, False, False
    return value, quantity.is_limit, value != quantity.value


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
    if isinstance(table, Mapping) and all(isinstance(column, Column) for column in table.values()):
        columns: Mapping[str, Any] = table
    elif is_table(table):
        columns = _series_by_name(table)
    else:
        raise ValueError(
            f"X must be a table with the columns that the model was fitted on, {listed(list(names or ()))}, got "
            f"{type(table).__name__}; give a DataFrame."
        )
    wanted = list(columns) if names is None else list(names)
    if absent := [name for name in wanted if name not in columns]:
        if len(absent) == 1:
            raise ValueError(
                f"X lacks column {absent[0]!r}, which the model was fitted on. Add it; its cells may be empty."
            )
        raise ValueError(
            f"X lacks columns {listed(absent)}, which the model was fitted on. Add them; their cells may be empty."
        )
    unordered = _enums_of_polars(table)
    return {
        name: column if isinstance(column := columns[name], Column) else column_of(name, column, name not in unordered)
        for name in wanted
    }


def _series_by_name(table: Any) -> dict[str, Any]:
    """Return the columns of a table as series of narwhals; ValueError if two have one name."""
    import narwhals.stable.v2 as nw

    named_series = [(str(series.name), series) for series in nw.from_native(table, eager_only=True).iter_columns()]
    series_by_name = dict(named_series)
    if len(series_by_name) < len(named_series):
        repeated = next(name for name, times in Counter(name for name, _ in named_series).items() if times > 1)
        raise ValueError(f"X must have each column once, got {repeated!r} more than once; rename one.")
    return series_by_name


def _enums_of_polars(table: Any) -> frozenset[str]:
    """Return the columns of an Arrow table that polars wrote from its type Enum."""
    schema = getattr(table, "schema", None)
    if schema is None or not hasattr(schema, "metadata"):  # not of Arrow
        return frozenset()
    return frozenset(
        field.name for field in schema if any(key.startswith(ENUM_OF_POLARS) for key in field.metadata or ())
    )


def column_of(name: str, series: Any, is_ordered: bool = True) -> Column:
    """Return a column of narwhals, or of a library that it knows, as arrays.

    Parameters
    ----------
    name : str
        Of the column.
    series : Series or Arrow array of shape (n,)
        Not modified.
    is_ordered : bool, default True
        Whether a type of ordered categories says that the order means something.
    """
    import narwhals.stable.v2 as nw

    series = nw.from_native(series, series_only=True, pass_through=False)
    dtype = series.dtype
    if (dtype.is_integer() or dtype.is_decimal()) and (exact := _large_integers(series)) is not None:
        values = [np.nan if text is None else float(text) for text in exact.tolist()]
        return Column(name, "number", np.array(values, dtype=np.float64), exact=exact)
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Column(name, "number", np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64))
    if dtype in (nw.Datetime, nw.Date) or _zone_of(series):
        return _date_column(name, series)
    if dtype == nw.Duration:
        microseconds = series.dt.total_microseconds().cast(nw.Float64).to_numpy()
        return Column(name, "number", np.array(microseconds, dtype=np.float64) / 1e6)
    if dtype.is_nested() or dtype == nw.Binary:
        return Column(name, "other", np.empty(len(series)))
    is_category = dtype in (nw.Categorical, nw.Enum)
    values = series.to_list()
    if dtype == nw.Object and all(_is_missing(value) or isinstance(value, int | float) for value in values):
        texts = as_texts(values)
        numbers = np.array([np.nan if _is_missing(value) else float(value) for value in values], dtype=np.float64)
        return Column(name, "number", numbers, exact=texts if (np.abs(numbers) > LARGEST).any() else None)
    if dtype in (nw.Object, nw.Unknown) and any(map(_is_container, values)):
        return Column(name, "other", np.empty(len(values)))
    levels = _ordered_levels(series) if is_category and is_ordered else ()
    return Column(name, "text", as_texts(values), levels, is_category=is_category)


def _large_integers(series: Any) -> np.ndarray | None:
    """Return whole numbers as texts if float64 does not hold all digits of one of them, else None."""
    ends = [abs(end) for end in (series.min(), series.max()) if not _is_missing(end)]
    return as_texts(series.to_list()) if ends and max(ends) > LARGEST else None


def _zone_of(series: Any) -> str:
    """Return the time zone of moments, empty if there is none; of pandas also zones that narwhals does not name."""
    native_type = getattr(series.to_native(), "dtype", None)
    zone = getattr(series.dtype, "time_zone", None) or getattr(native_type, "tz", None)
    return "" if zone is None else str(zone)


def _date_column(name: str, series: Any) -> Column:
    """Return a column of moments: in UTC, with their local date and time of day if there is a time zone."""
    import narwhals.stable.v2 as nw

    zone = _zone_of(series)
    if series.dtype == nw.Date:
        series = series.cast(nw.Datetime("us"))
    if not zone:
        return Column(name, "date", _as_moments(series.to_numpy()))
    if series.dtype == nw.Datetime:
        instants = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None).to_numpy()
        local = series.dt.replace_time_zone(None).to_numpy()
    else:
        moments = series.to_native().dt
        instants = moments.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        local = moments.tz_localize(None).to_numpy()
    return Column(name, "date", _as_moments(instants), local=_as_moments(local), zone=zone)


def _as_moments(values: np.ndarray) -> np.ndarray:
    return without_placeholders(np.array(values, dtype="datetime64[us]"))


def _ordered_levels(series: Any) -> tuple[str, ...]:
    """Return the levels of an ordered category from the lowest to the highest; none of another category.

    The type Enum of polars lists the texts that are allowed, in an order that means nothing.
    """
    import narwhals.stable.v2 as nw

    if series.implementation.is_polars() or not nw.is_ordered_categorical(series):
        return ()
    return tuple(level for level in as_texts(series.cat.get_categories().to_list()) if level is not None)


def _is_container(value: Any) -> bool:
    """Return whether a cell holds several values: bytes, a list, a record or an array."""
    return isinstance(value, Sized) and not isinstance(value, str)


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
    if _is_container(value):
        return False
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
