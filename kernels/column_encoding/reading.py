"""Columns of a table of any supported library as arrays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from ..validation import listed
from .dates import (
    PLACEHOLDER_DATE,
    PLACEHOLDER_DIGITS,
    PLACEHOLDER_NUMBERS,
    First,
    Moments,
    iso_dates,
    moment_of,
    without_placeholders,
)
from .quantities import Written, conversion_for, quantity_in

MISSING = frozenset(
    {
        "", "?", "na", "n/a", "n.a.", "#n/a", "#n/a n/a", "#na", "nan", "-nan", "null", "(null)", "#null!", "none",
        "<na>", "nat", "\\n", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan", "#div/0!", "#value!", "#ref!",
        "#num!", "#name?",
    }
)  # fmt: skip
"""Lower-case texts of missing values."""

LARGEST = 2**53
"""Largest integer up to which float64 is exact."""

ZERO_DECIMALS = re.compile(r"(-?[0-9]+)\.0*")

MIDNIGHT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]00:00:00(?:\.0+)?")

ENUM_OF_POLARS = b"_PL_ENUM_VALUES"
"""Prefix of the metadata key of polars Enums in Arrow fields."""

ColumnKind: TypeAlias = Literal["number", "date", "text", "other"]


class Numbers(NamedTuple):
    """Numbers of a column in one unit, or NaN; `is_limit` marks detection limits."""

    values: np.ndarray
    is_limit: np.ndarray
    is_converted: np.ndarray


@dataclass(frozen=True)
class Column:
    """Values of a column, as an array of one kind."""

    name: str
    kind: ColumnKind
    values: np.ndarray  # floats, datetime64[us], or texts and None
    levels: tuple[str, ...] = ()  # if ordered, lowest first
    exact: np.ndarray | None = None  # texts of integers beyond 2^53
    is_category: bool = False
    local: np.ndarray | None = None  # dates and times in the time zone
    zone: str = ""
    has_one_order: bool = True  # whether all chunks order the levels alike

    @property
    def gaps(self) -> np.ndarray:
        """Mask of the column's missing values, (n,)."""
        if self.kind == "text":
            return np.array([value is None for value in self.values], dtype=bool)
        if self.kind == "other":
            return np.zeros(len(self.values), dtype=bool)
        if self.kind == "number":
            return np.isnan(self.values)
        return np.isnat(self.values)

    def take(self, rows: np.ndarray) -> Column:
        column = replace(self, values=self.values[rows])
        if self.exact is not None:
            column = replace(column, exact=self.exact[rows])
        if self.local is not None:
            column = replace(column, local=self.local[rows])
        return column

    def texts(self) -> list[str]:
        return [
            text for text in dict.fromkeys(self.as_texts().tolist()) if text is not None
        ]

    def read_numbers(self, written: Written) -> Numbers:
        n = len(self.values)
        if self.kind != "text":
            values = np.full(n, np.nan)
            if self.kind == "number":
                values = self.values
            return Numbers(values, np.zeros(n, dtype=bool), np.zeros(n, dtype=bool))
        read: dict[str | None, tuple[float, bool, bool]] = {
            None: (np.nan, False, False)
        }
        for text in self.texts():
            read[text] = _number_as(text, written)
        texts = self.values.tolist()
        return Numbers(
            np.array([read[text][0] for text in texts], dtype=np.float64),
            np.array([read[text][1] for text in texts], dtype=bool),
            np.array([read[text][2] for text in texts], dtype=bool),
        )

    def read_dates(self, first: First) -> Moments:
        """Parse the column's values as dates, given the order of their parts."""
        if self.kind == "date":
            local = self.local
            if local is None:
                local = self.values
            return Moments(
                self.values,
                local,
                np.full(len(self.values), self.local is not None),
                self.zone,
            )
        texts = self.texts()
        iso_moments = None
        if first != "time":
            iso_moments = iso_dates(texts)
        if iso_moments is not None:
            return self._moments(
                dict(zip(texts, iso_moments, strict=True)), {}, frozenset()
            )
        instants = {}
        local_times = {}
        texts_with_offset = set()
        for text in texts:
            moment = moment_of(text, first)
            if moment is None:
                continue
            instants[text] = moment.instant
            local_times[text] = moment.local
            if moment.has_offset:
                texts_with_offset.add(text)
        return self._moments(instants, local_times, frozenset(texts_with_offset))

    def without_placeholder_digits(self, first: First) -> Column:
        if self.kind == "date" or first == "time":
            return self
        if self.kind == "number":
            is_placeholder = np.isin(self.values, PLACEHOLDER_NUMBERS)
        else:
            texts = self.as_texts().tolist()
            is_placeholder = np.array(
                [text in PLACEHOLDER_DIGITS for text in texts], dtype=bool
            )
        if not is_placeholder.any():
            return self
        missing: Any = None if self.kind == "text" else np.nan
        values = np.where(is_placeholder, missing, self.values)
        return replace(self, values=values, exact=None)

    def _moments(
        self,
        instants: Mapping[str, Any],
        local: Mapping[str, Any],
        with_offset: frozenset[str],
    ) -> Moments:
        """Return the dates of rows, from dates of distinct texts."""
        texts = self.as_texts().tolist()
        missing = np.datetime64("NaT", "us")
        row_instants = np.array(
            [instants.get(text, missing) for text in texts], dtype="datetime64[us]"
        )
        if not with_offset:
            return Moments(row_instants, row_instants, np.zeros(len(texts), dtype=bool))
        row_local = np.array(
            [local.get(text, missing) for text in texts], dtype="datetime64[us]"
        )
        has_offset = np.array([text in with_offset for text in texts], dtype=bool)
        return Moments(row_instants, row_local, has_offset)

    def as_texts(self) -> np.ndarray:
        """Return the column's values as texts; None for missing values."""
        if self.kind == "text":
            return self.values
        values = self.exact
        if values is None:
            values = self.values
        return as_texts(values.tolist())

    def as_levels(self) -> np.ndarray:
        """Return the column's values as names of categories, in which 1.0 becomes "1"."""
        texts = self.as_texts()
        shortened = {}
        for text in self.texts():
            name = level_in(text)
            if name != text:
                shortened[text] = name
        if not shortened:
            return texts
        return np.array([shortened.get(text, text) for text in texts], dtype=object)


def without_zero_decimals(text: str) -> str:
    match = ZERO_DECIMALS.fullmatch(text)
    if match is None:
        return text
    return match[1]


def level_in(text: str) -> str:
    match = MIDNIGHT.fullmatch(text)
    if match is None:
        return without_zero_decimals(text)
    return match[1]


def distinct_levels(levels: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(level_in, levels)))


def _number_as(text: str, written: Written) -> tuple[float, bool, bool]:
    """Return the number or NaN, is_limit and is_converted."""
    quantity = quantity_in(text, written.mark)
    if quantity is None:
        return np.nan, False, False
    if quantity.unit in ("", written.unit):
        return quantity.value, quantity.is_limit, False
    conversion = conversion_for(quantity.unit, written.unit)
    if conversion is None:
        return np.nan, False, False
    value = quantity.value * conversion.factor + conversion.offset
    return value, quantity.is_limit, value != quantity.value


def is_table(X: Any) -> bool:
    """Return whether X is a table, such as of pandas, polars or Arrow."""
    if isinstance(X, np.ndarray | list | tuple) or sparse.issparse(X):
        return False
    import narwhals.stable.v2 as nw

    return isinstance(
        nw.from_native(X, pass_through=True, eager_only=True), nw.DataFrame
    )


def read_columns(table: Any, names: Iterable[str] | None = None) -> dict[str, Column]:
    """Return the named columns of a table, by default all.

    ValueError for a missing column, a repeated name, or no table.
    """
    if isinstance(table, Mapping) and all(
        isinstance(column, Column) for column in table.values()
    ):
        columns: Mapping[str, Any] = table
    elif is_table(table):
        columns = _series_by_name(table)
    else:
        raise ValueError(
            f"X must be a table with the columns that the model was fitted on, {listed(list(names or ()))}, got "
            f"{type(table).__name__}; give a DataFrame."
        )
    if names is None:
        names = columns
    selected_names = list(names)
    absent = [name for name in selected_names if name not in columns]
    if len(absent) == 1:
        raise ValueError(
            f"X lacks column {absent[0]!r}, which the model was fitted on. Add it; its cells may be empty."
        )
    if absent:
        raise ValueError(
            f"X lacks columns {listed(absent)}, which the model was fitted on. Add them; their cells may be empty."
        )
    unordered = _enums_of_polars(table)
    selected = {}
    for name in selected_names:
        column = columns[name]
        if not isinstance(column, Column):
            column = column_of(name, column, name not in unordered)
        selected[name] = column
    return selected


def _series_by_name(table: Any) -> dict[str, Any]:
    """Return narwhals series; ValueError if a name is repeated."""
    import narwhals.stable.v2 as nw

    named_series = [
        (str(series.name), series)
        for series in nw.from_native(table, eager_only=True).iter_columns()
    ]
    series_by_name = dict(named_series)
    if len(series_by_name) < len(named_series):
        occurrences = Counter(name for name, _ in named_series)
        repeated = next(name for name, count in occurrences.items() if count > 1)
        raise ValueError(
            f"X must have each column once, got {repeated!r} more than once; rename one."
        )
    return series_by_name


def _enums_of_polars(table: Any) -> frozenset[str]:
    schema = getattr(table, "schema", None)
    if schema is None or not hasattr(schema, "metadata"):  # not an Arrow table
        return frozenset()
    return frozenset(
        field.name
        for field in schema
        if any(key.startswith(ENUM_OF_POLARS) for key in field.metadata or ())
    )


def column_of(name: str, series: Any, is_ordered: bool = True) -> Column:
    """Convert a series to a `Column`; `is_ordered` means that the order of levels matters."""
    import narwhals.stable.v2 as nw

    series = nw.from_native(series, series_only=True, pass_through=False)
    dtype = series.dtype
    native = series.to_native()
    if dtype == nw.Categorical and hasattr(
        getattr(native, "dtype", None), "pyarrow_dtype"
    ):
        # pandas has no accessor of the levels
        series = nw.from_arrow(native.to_frame("x"), backend="pyarrow")["x"]
    if (dtype.is_integer() or dtype.is_decimal()) and _has_large_integers(series):
        return _column_of_objects(name, series.to_list())
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Column(
            name,
            "number",
            np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64),
        )
    if dtype in (nw.Datetime, nw.Date) or _zone_of(series):
        return _date_column(name, series)
    if dtype == nw.Duration:
        microseconds = series.dt.total_microseconds().cast(nw.Float64).to_numpy()
        return Column(name, "number", np.array(microseconds, dtype=np.float64) / 1e6)
    if dtype.is_nested() or dtype == nw.Binary:
        return Column(name, "other", np.full(len(series), np.nan))
    is_category = dtype in (nw.Categorical, nw.Enum)
    values = series.to_list()
    if dtype == nw.Object and all(
        _is_missing(value) or isinstance(value, int | float) for value in values
    ):
        return _column_of_objects(name, values)
    if dtype in (nw.Object, nw.Unknown) and any(map(is_container, values)):
        return Column(name, "other", np.full(len(values), np.nan))
    levels: tuple[str, ...] = ()
    if is_category and is_ordered:
        levels = _ordered_levels(series)
    return Column(
        name,
        "text",
        as_texts(values),
        levels,
        is_category=is_category,
        has_one_order=not levels or has_one_order(series.to_native()),
    )


def _column_of_objects(name: str, values: Sequence[Any]) -> Column:
    numbers = np.array(
        [np.nan if _is_missing(value) else float(value) for value in values],
        dtype=np.float64,
    )
    exact = None
    if (np.abs(numbers) >= LARGEST).any():
        exact = as_texts(values)
    return Column(name, "number", numbers, exact=exact)


def _has_large_integers(series: Any) -> bool:
    extremes = [
        abs(extreme)
        for extreme in (series.min(), series.max())
        if not _is_missing(extreme)
    ]
    return bool(max(extremes, default=0) > LARGEST)


def _zone_of(series: Any) -> str:
    native_type = getattr(series.to_native(), "dtype", None)
    zone = getattr(series.dtype, "time_zone", None) or getattr(native_type, "tz", None)
    return str(zone or "")


def _date_column(name: str, series: Any) -> Column:
    """Return dates in UTC and, with a time zone, in local time."""
    import narwhals.stable.v2 as nw

    zone = _zone_of(series)
    if series.dtype == nw.Date:
        series = series.cast(nw.Datetime("us"))
    if not zone:
        return Column(name, "date", _as_moments(series.to_numpy()))
    if series.dtype == nw.Datetime:
        instants = (
            series.dt.convert_time_zone("UTC").dt.replace_time_zone(None).to_numpy()
        )
        local = series.dt.replace_time_zone(None).to_numpy()
    else:
        moments = series.to_native().dt
        instants = moments.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        local = moments.tz_localize(None).to_numpy()
    return Column(
        name, "date", _as_moments(instants), local=_as_moments(local), zone=zone
    )


def _as_moments(values: np.ndarray) -> np.ndarray:
    return without_placeholders(np.array(values, dtype="datetime64[us]"))


def _ordered_levels(series: Any) -> tuple[str, ...]:
    """Return the levels of an ordered category, lowest first."""
    # The order of a polars Enum has no meaning.
    import narwhals.stable.v2 as nw

    if series.implementation.is_polars() or not nw.is_ordered_categorical(series):
        return ()
    levels = as_texts(series.cat.get_categories().to_list())
    return distinct_levels(level for level in levels if level is not None)


def has_one_order(column: Any) -> bool:
    """Return whether all chunks of a column have one dictionary; True if not of Arrow."""
    dictionaries = {
        tuple(chunk.dictionary.to_pylist())
        for chunk in getattr(column, "chunks", ())
        if len(chunk.dictionary)
    }
    return len(dictionaries) < 2


def is_container(value: Any) -> bool:
    return isinstance(value, Sized) and not isinstance(value, str)


def as_texts(values: Sequence[Any]) -> np.ndarray:
    """Return values as texts: 1.0 as "1", and missing values as None."""
    texts = np.empty(len(values), dtype=object)
    try:
        text_of_value = {value: _text(value) for value in dict.fromkeys(values)}
    except TypeError:  # not hashable
        texts[:] = list(map(_text, values))
        return texts
    texts[:] = list(map(text_of_value.__getitem__, values))
    return texts


def _is_missing(value: Any) -> bool:
    if is_container(value):
        return False
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA of pandas
        return True


def _text(value: Any) -> str | None:
    if not isinstance(value, str) and _is_missing(value):
        return None
    if (
        isinstance(value, float | Decimal)
        and np.isfinite(float(value))
        and value == int(value)
    ):
        value = int(value)
    text = str(value).strip()
    if text.lower() in MISSING or PLACEHOLDER_DATE.fullmatch(text):
        return None
    return text


def codes_of(texts: Sequence[str | None] | np.ndarray) -> np.ndarray:
    codes: dict[str | None, float] = {}
    for level in set(texts):
        message = (
            b"\0" if level is None else b"\1" + level.encode("utf-8", "surrogatepass")
        )
        digest = blake2b(message, digest_size=8).digest()
        codes[level] = (int.from_bytes(digest) >> 11) / 2.0**53
    return np.array([codes[level] for level in texts], dtype=np.float64)
