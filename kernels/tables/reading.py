"""Columns of a table as arrays, whatever library made it: numbers, moments in time, or texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from learnkernels.kernels.fields import listed
from learnkernels.kernels.tables.dates import NO_DATE, First, iso_dates, moment_of, without_placeholders
from learnkernels.kernels.tables.numbers import Read, Written, number_in, plain_numbers

MISSING = frozenset(
    {
        "", "?", "na", "n/a", "n.a.", "#n/a", "#n/a n/a", "#na", "nan", "-nan", "null", "(null)", "#null!", "none",
        "<na>", "nat", "\\n", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan", "#div/0!", "#value!", "#ref!",
        "#num!", "#name?",
    }
)  # fmt: skip
"""Texts, in small letters, that stand for a missing value: those of pandas, of databases and of Excel's errors."""

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
        held = [value for value in self.values.tolist() if value is not None]
        if written.mark == "." and (plain := plain_numbers(held)) is not None:
            numbers = np.full(len(self.values), np.nan)
            numbers[~self.gaps] = plain
            return numbers, np.zeros(len(numbers), dtype=bool)
        nothing = Read(np.nan)
        found: dict[str | None, Read] = {None: nothing}
        for text in dict.fromkeys(held):
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


class Columns(Mapping[str, Column]):
    """Columns of a table by name, each read when it is asked for; of texts, which take longest, what was read is kept.

    Parameters
    ----------
    series : mapping of str to (series of narwhals, or Column)
    """

    def __init__(self, series: Mapping[str, Any]) -> None:
        self._series = series
        self._texts: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name in self._texts:
            return self._texts[name]
        series = self._series[name]
        column = series if isinstance(series, Column) else column_of(name, series)
        if column.kind == "text":
            self._texts[name] = column
        return column

    def __contains__(self, name: object) -> bool:
        return name in self._series

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def only(self, names: Iterable[str]) -> Columns:
        """Return some of them."""
        some = Columns({name: self._series[name] for name in names})
        some._texts = self._texts
        return some


def read_columns(table: Any, names: Iterable[str] | None = None) -> Columns:
    """Return columns of a table by name, which may have been read before; all of them by default, in their order.

    Raises
    ------
    ValueError
        It is no table, a column is not there, or two have one name.
    """
    import narwhals.stable.v2 as nw

    if isinstance(table, Columns):
        held = table
    elif isinstance(table, Mapping) and all(isinstance(column, Column) for column in table.values()):
        held = Columns(table)
    elif is_table(table):
        series = [(str(one.name), one) for one in nw.from_native(table, eager_only=True).iter_columns()]
        held = Columns(dict(series))
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
    return held.only(wanted)


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
        return Column(name, "number", np.array(series.cast(nw.Float64).to_numpy(), dtype=np.float64))
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
