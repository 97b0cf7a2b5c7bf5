"""Columns of a table as arrays, whatever library made it: numbers, moments in time, or texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from learnkernels.kernels.fields import listed
from learnkernels.kernels.tables.dates import First, first_of, moment_of

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none", "<na>", "nat"})
"""Texts, in small letters, that stand for nothing."""

TRUTHS = {"false": 0.0, "true": 1.0}
"""Texts, in small letters, of truth values."""


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
        float64 with NaN for gaps, datetime64[us] with NaT, or texts with None; of another kind no values.
    levels : tuple of str
        Of an ordered category, from the lowest to the highest.
    """

    name: str
    kind: ColumnKind
    values: np.ndarray
    levels: tuple[str, ...] = ()

    @property
    def gaps(self) -> np.ndarray:
        """Return whether each value is missing, shape (n,)."""
        if self.kind == "text":
            return np.array([value is None for value in self.values], dtype=bool)
        return np.isnan(self.values) if self.kind == "number" else np.isnat(self.values)

    def as_numbers(self) -> np.ndarray | None:
        """Return the values as numbers, NaN for gaps; None where a text is no finite number."""
        if self.kind == "number":
            return self.values
        of_text: dict[str | None, float] = {None: np.nan}
        for value in set(self.values.tolist()) - {None}:
            try:
                of_text[value] = TRUTHS[value.lower()] if value.lower() in TRUTHS else float(value)
            except ValueError:
                return None
            if not np.isfinite(of_text[value]):
                return None
        return np.array([of_text[value] for value in self.values], dtype=np.float64)

    def first_of_dates(self) -> First | None:
        """Return what the dates of the column begin with; None where day and month cannot be told apart."""
        return "year" if self.kind == "date" else first_of(set(self.values.tolist()) - {None})

    def as_dates(self, first: First) -> np.ndarray | None:
        """Return the values as moments in time, NaT for gaps; None where a text is no date that begins so."""
        if self.kind == "date":
            return self.values
        of_text: dict[str | None, np.datetime64] = {None: np.datetime64("NaT", "us")}
        for value in set(self.values.tolist()) - {None}:
            if (moment := moment_of(value, first)) is None:
                return None
            of_text[value] = moment
        return np.array([of_text[value] for value in self.values], dtype="datetime64[us]")

    def as_texts(self) -> np.ndarray:
        """Return the values as texts, whole numbers without a point, None for gaps; shape (n,) of objects."""
        return self.values if self.kind == "text" else as_texts(self.values.tolist())


def is_table(X: Any) -> bool:
    """Return whether rows come as a table of named columns, of pandas, polars, Arrow or what else narwhals knows."""
    if isinstance(X, np.ndarray | list | tuple) or sparse.issparse(X):
        return False
    import narwhals.stable.v2 as nw

    return isinstance(nw.from_native(X, pass_through=True, eager_only=True), nw.DataFrame)


def numbers_alone(table: Any) -> bool:
    """Return whether all columns of a table hold numbers, without gaps: rows that need no encoding."""
    import narwhals.stable.v2 as nw

    frame = nw.from_native(table, eager_only=True)
    kinds = frame.schema.values()
    if not all(kind.is_numeric() or kind == nw.Boolean for kind in kinds):
        return False
    return not any(np.isnan(column.values).any() for column in read_columns(table).values())


def read_columns(table: Any, names: Iterable[str] | None = None) -> Mapping[str, Column]:
    """Return columns of a table by name, which may have been read before; all of them by default, in their order.

    Raises
    ------
    ValueError
        It is no table, a column is not there, or two have one name.
    """
    import narwhals.stable.v2 as nw

    read = isinstance(table, Mapping) and all(isinstance(column, Column) for column in table.values())
    if not read and not is_table(table):
        raise ValueError(
            f"X must be a table with the columns that the model was fitted on, {listed(list(names or ()))}, got "
            f"{type(table).__name__}; give a DataFrame."
        )
    frame = None if read else nw.from_native(table, eager_only=True)
    held = list(table) if frame is None else [str(name) for name in frame.columns]
    position = {name: j for j, name in enumerate(held)}
    if len(position) < len(held):
        twice = [name for name in position if held.count(name) > 1]
        raise ValueError(f"X must have each column once, got {twice[0]!r} more than once; rename one.")
    wanted = held if names is None else list(names)
    if absent := [name for name in wanted if name not in position]:
        raise ValueError(
            f"X must have the columns that the model was fitted on, got none named {listed(absent)}; add what is "
            "missing, as empty if need be."
        )
    if frame is None:
        return {name: table[name] for name in wanted}
    return {name: _column(name, frame[:, position[name]], nw) for name in wanted}


def _column(name: str, series: Any, nw: Any) -> Column:
    """Return a column of narwhals' as arrays."""
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        values = series.cast(nw.Float64).to_numpy()
        return Column(name, "number", np.array(values, dtype=np.float64))
    if dtype in (nw.Datetime, nw.Date):
        if dtype == nw.Date:
            series = series.cast(nw.Datetime("us"))
        elif dtype.time_zone is not None:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return Column(name, "date", np.array(series.to_numpy(), dtype="datetime64[us]"))
    if dtype == nw.Duration:
        seconds = series.dt.total_microseconds().cast(nw.Float64).to_numpy()
        return Column(name, "number", np.array(seconds, dtype=np.float64) / 1e6)
    if dtype.is_nested() or dtype == nw.Binary:
        return Column(name, "other", np.empty(0))
    levels: tuple[str, ...] = ()
    if dtype in (nw.Categorical, nw.Enum) and nw.is_ordered_categorical(series):
        levels = tuple(level for level in as_texts(series.cat.get_categories().to_list()) if level is not None)
    values = series.to_list()
    if dtype == nw.Object and all(value is None or isinstance(value, int | float) for value in values):
        return Column(name, "number", np.array([np.nan if value is None else float(value) for value in values]))
    return Column(name, "text", as_texts(values), levels)


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


def _text(value: Any) -> str | None:
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    return None if text.lower() in MISSING else text
