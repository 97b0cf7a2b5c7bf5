"""Column types of a table, inferred on the training rows, and the features that columns become."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np

from ..families.base import distinct
from ..parameters import (
    Value,
    require_one_of,
)
from ..registry import did_you_mean
from ..targets import FEW_VALUES
from . import summary
from .columns import (
    MOST_LEVELS,
    CategoryColumn,
    ColumnEncoding,
    DateColumn,
    EncodingReport,
    NumberColumn,
    places_of,
    require_no_infinity,
)
from .dates import First
from .quantities import POINT, Written
from .reading import MISSING, Column, read_columns
from .units import is_unit

Kind: TypeAlias = Literal["number", "categorical", "code", "date", "drop"]
"""What a column can be said to be, in addition to a list of ordered levels."""

KINDS: tuple[str, ...] = get_args(Kind)

CONSTANT, EMPTY = "it is constant", "it is empty"

FREE_TEXT = "it is free text"

IDENTIFIERS = "nearly all of its texts differ, as those of identifiers do"

SEVERAL_NUMBERS = "it holds several numbers in one cell; write one column for each"

DROPPED_BY_USER = "as said"
"""Why a column is left out that a user has left out."""

ColumnTypes: TypeAlias = Mapping[str, Kind | Sequence[str]]
"""What columns are: by name, the kind, or the levels of an ordered category from the lowest to the highest."""

UNDECIDED = (
    "its dates may begin with the day or with the month; say that it is a date, which reads the day first, or write "
    "2024-12-31"
)
"""Why a column of dates is left out that all can be read both ways."""

FEW_ROWS = 20
"""Rows from which on values that are all different are treated as identifiers."""

DIFFERENT = 0.9
"""Share of values that must be different for them to be treated as identifiers or free text."""

PHRASE_SPACES, SENTENCE_SPACES = 3, 7
"""Least mean number of spaces of texts that are phrases, and of texts that are sentences."""

REPEATED_SENTENCES = 0.2
"""Share of the rows that different sentences must exceed to be free text. Sentences repeat, and long levels do more."""

MOST_UNITS = 8
"""Most units that a column of numbers has."""

SAID = 0.5
"""Share of the values that must be of the kind that a column is said to be; the others are missing then."""

LONGEST = 80
"""Characters that the name of a feature has at most."""

IDENTIFIER = re.compile(
    r"^\W*$|(^|[_\W])(id|uuid|guid|index|key|rowid|rownames?|row[_ ]?n(r|o|um|umber)|unnamed)([_\W]|$)"
    r"|(?<=[a-z])(Id|ID)$",
    re.IGNORECASE,
)
"""Names of columns of whole numbers that identify rows where nearly all differ; an index that was written has none."""


class TableFeatures(tuple[str, ...]):
    """Names of the features of a table, which know the columns that they come from.

    Attributes
    ----------
    owners : tuple of str
        Name of the column of each feature.
    codes : tuple of int
        Positions of the features that are codes of levels.
    scaled : bool
        Whether the features are in comparable units.
    """

    owners: tuple[str, ...]
    codes: tuple[int, ...]
    scaled: bool

    @classmethod
    def of(cls, columns: Sequence[ColumnEncoding], scaled: bool) -> Self:
        """Return the names of the features of some columns."""
        features = [feature for column in columns for feature in column.features]
        names = cls(distinct([_shortened(name) for name, _ in features]))
        names.owners = tuple(column.name for column in columns for _ in column.features)
        names.codes = tuple(position for position, (_, view) in enumerate(features) if view == "codes")
        names.scaled = scaled
        return names


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."


def shares_by_column(features: Sequence[str], shares: np.ndarray) -> dict[str, float]:
    """Return the shares of features by name, those of a table's features summed by the columns that they come from."""
    names = features.owners if isinstance(features, TableFeatures) else features
    summed = dict.fromkeys(names, 0.0)
    for name, share in zip(names, shares.tolist(), strict=True):
        summed[name] += share
    return summed


@dataclass(frozen=True, eq=False, repr=False)
class TableEncoding(Value):
    """Column types of a table, and the columns that were dropped.

    Attributes
    ----------
    columns : tuple of ColumnEncoding
        Columns that become features, in the table's order.
    left_out : mapping of str to str
        Columns that are dropped, with the reasons.
    scaled : bool
        Whether features are in comparable units.

    Notes
    -----
    The first matching rule applies; `column_types` take precedence. Texts such as ``?``, ``NA`` and the empty one are
    missing values.

    - A column without values, or with a single one, is dropped.
    - Strings of digits, many with leading zeros, are codes: a category.
    - Numbers, Booleans and strings that nearly all are numbers in common notations are numbers. Other strings among
      them are missing values, and units of one quantity are converted.
    - Whole numbers that nearly all differ are dropped if they count the rows or the name is that of an identifier.
    - Strings that nearly all are dates are dates, in their own time zone. If day and month cannot be distinguished, the
      day stands first between dots, and other columns are dropped.
    - Free text, also with placeholders or repeated texts, is dropped.
    - Many different numbers in several units, or several numbers in each cell, are dropped.
    - Other strings are a category, and are dropped if more than 90 % of them are different.
    """

    columns: tuple[ColumnEncoding, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    scaled: bool = False

    @classmethod
    def of(cls, table: Any, column_types: ColumnTypes | None = None, scale: summary.Scale = "standard") -> Self:
        """Infer the column types of a table of training rows.

        Parameters
        ----------
        table : DataFrame or Arrow table of m rows, or its columns, or their summaries
            Of pandas, polars, pyarrow or another library that narwhals knows, or the result of `read_columns`. Of a
            table that no process holds, a mapping of names to `ColumnSummary`. Not modified.
        column_types : mapping of str to str or sequence of str, optional
            Types that override the inferred ones: "number", "categorical", "date", "drop"; "code" for a category of
            many levels, of which only a code becomes a feature; or the levels of an ordered category from the lowest
            to the highest.
        scale : {"none", "unit", "max", "standard", "quantile"}, default "standard"
            Units of numbers: their own; from 0 to 1; a mean of zero and a standard deviation of one; or those of a
            normal distribution, by rank. With the last two features are in comparable units, those of categories too.

        Raises
        ------
        ValueError
            A column of `column_types` does not exist or has another type, a number is infinite, or no column is left.
        """
        overrides = dict(column_types or {})
        encodings, left_out = list[ColumnEncoding](), dict[str, str]()
        for name, column in _summaries(table, overrides):
            if name in overrides:
                encoding = _of_type(column, overrides[name], scale)
            else:
                encoding = _inferred(column, scale)
            if isinstance(encoding, str):
                left_out[name] = encoding
            else:
                encodings.append(encoding)
        if not encodings:
            reasons = "; ".join(f"{name!r}: {reason}" for name, reason in list(left_out.items())[:5])
            raise ValueError(f"the table leaves no column to learn from ({reasons}); add one, or say what they are.")
        return cls(tuple(encodings), left_out, scale in ("standard", "quantile"))

    def learned_on(self, table: Any, scale: summary.Scale) -> Self:
        """Return the same columns and features with what fills gaps, and all units, from some rows alone.

        Parameters
        ----------
        table : DataFrame or Arrow table of m rows, or its columns
            As `of` takes it. Not modified.
        scale : {"none", "unit", "max", "standard", "quantile"}
            The one that it was made with.

        Notes
        -----
        The type of a column, which levels have an indicator and whether there is a feature for gaps stay as they
        are, so that features have the same names whatever the rows.
        """
        held = read_columns(table, self.names)
        columns = tuple(column.learned_on(held[column.name], scale) for column in self.columns)
        return type(self)(columns, self.left_out, self.scaled)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return tuple(column.name for column in self.columns)

    @property
    def of_numbers(self) -> bool:
        """Whether all columns are numbers."""
        return all(column.is_number for column in self.columns)

    @cached_property
    def features(self) -> TableFeatures:
        """Names of the features."""
        return TableFeatures.of(self.columns, self.scaled)

    def encode(self, table: Any, report: EncodingReport | None = None) -> np.ndarray:
        """Return the features of the rows of a table, shape (n, features), as float64.

        Parameters
        ----------
        table : DataFrame or Arrow table of n rows, or its columns
            With the columns of the training rows in any order; others are not looked at. Where all columns are numbers,
            an array of shape (n, columns) may take its place, in their order. Not modified.
        report : EncodingReport, optional
            Counts gaps and levels that are new.

        Raises
        ------
        ValueError
            A column is missing, or holds something of another kind.
        """
        if isinstance(table, np.ndarray) and table.shape[1:] == (len(self.names),) and self.of_numbers:
            values = zip(self.names, table.T, strict=True)
            table = {name: Column(name, "number", np.array(of, dtype=np.float64)) for name, of in values}
        held = read_columns(table, self.names)
        X = np.empty((len(next(iter(held.values())).values), len(self.features)))
        report = EncodingReport() if report is None else report
        for column, features in self.places:
            column.encode(held[column.name], X[:, features], report)
        return X

    @cached_property
    def places(self) -> list[tuple[ColumnEncoding, slice]]:
        """Each column with the positions of its features."""
        ends = np.cumsum([0, *(len(column.features) for column in self.columns)]).tolist()
        return [(column, slice(*of)) for column, of in zip(self.columns, itertools.pairwise(ends), strict=True)]

    def for_trees(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a table's features as trees take them, NaN for gaps, and which of them hold levels as numbers."""
        parts, levels = list[np.ndarray](), list[bool]()
        for column, features in self.places:
            parts.append(column.for_trees(X[:, features]))
            levels += [isinstance(column, CategoryColumn) and not column.many] * parts[-1].shape[1]
        return np.hstack(parts), np.array(levels)

    def decode(self, X: np.ndarray) -> dict[str, list[Any]]:
        """Return columns of a table that becomes some features, but for gaps and rare levels, which leave less."""
        return {column.name: column.decode(X[:, features]) for column, features in self.places}

    def gaps(self, table: Any) -> np.ndarray:
        """Return whether each row of a table lacks a value in one of the columns, shape (n,)."""
        held = read_columns(table, self.names)
        return np.asarray(np.any([column.lacks(held[column.name]) for column in self.columns], axis=0))

    def sentences(self, but: Collection[str] = (DROPPED_BY_USER, CONSTANT, EMPTY)) -> list[str]:
        """Return a sentence for each column that is left out, but for some reasons: by default those of no surprise."""
        return [
            f"column {name!r} is left out, as {why}; say what it is with 'columns' to keep it"
            for name, why in self.left_out.items()
            if why not in but
        ]

    def describe(self) -> list[str]:
        """Return one line a kind of columns, with their names, and one about what was left out."""
        kinds: dict[str, list[str]] = {}
        for column in self.columns:
            kinds.setdefault(column.describe(), []).append(column.name)
        lines = [f"{what}: {', '.join(names)}" for what, names in kinds.items()]
        return [*lines, *(f"left out: {name} ({why})" for name, why in self.left_out.items())]


def _summaries(table: Any, overrides: Mapping[str, Any]) -> Iterator[tuple[str, summary.ColumnSummary]]:
    """Yield the summary of each column of a table; ValueError if a column of `overrides` does not exist.

    Summaries of numbers take as much memory as the column, so that one is made at a time.
    """
    is_summarized = isinstance(table, Mapping) and all(
        isinstance(column, summary.ColumnSummary) for column in table.values()
    )
    columns: Mapping[str, Any] = table if is_summarized else read_columns(table)
    unknown = [name for name in overrides if name not in columns]
    if unknown:
        meant = did_you_mean(unknown[0], map(str, columns))
        shown = ", ".join(list(columns)[:12]) + (", ..." if len(columns) > 12 else "")
        raise ValueError(f"columns: {unknown[0]!r} is not a column of the table; {meant}it has {shown}.")
    for name, column in columns.items():
        yield name, column if is_summarized else summary.ColumnSummary.of(column, as_levels(overrides.get(name)))


def as_levels(said: str | Sequence[str] | None) -> bool:
    """Return whether what is said of a column takes its numbers for levels."""
    return said not in (None, "number", "date", "drop")


def _of_type(
    column: summary.ColumnSummary, column_type: str | Sequence[str], scale: summary.Scale
) -> ColumnEncoding | str:
    """Return the encoding of a column of a type that the user has set, or why it is left out."""
    if column_type == "drop":
        return DROPPED_BY_USER
    if column.kind == "other" or not column.held:
        return "it holds no values that could be used"
    if column_type in ("categorical", "code"):
        return CategoryColumn.of(column, scale, MOST_LEVELS if column_type == "categorical" else 0)
    if column_type == "date" and (dates := column.as_dates(SAID)) is not None:
        first, days = dates
        return _as_date(column, first or "day", days, scale)
    if column_type == "number" and (read := column.as_numbers(SAID)) is not None:
        return _as_number(column, read, scale)
    if column_type in ("number", "date"):
        raise ValueError(
            f"columns: {column.name!r} is said to be a {column_type}, but holds {column.example!r}; correct it."
        )
    if isinstance(column_type, str) or len(set(column_type)) < 2:
        levels = " or a list of at least two ordered levels"
        require_one_of(
            f"columns: {column.name!r}",
            column_type if isinstance(column_type, str) else [*column_type][:2],
            KINDS,
            levels,
        )
    if gaps := [level for level in map(str, column_type) if level.strip().lower() in MISSING]:
        raise ValueError(
            f"columns: {column.name!r} has the level {gaps[0]!r}, which denotes a missing value; rename it in the data."
        )
    return _ordered(column, tuple(map(str, column_type)), scale)


def _ordered(column: summary.ColumnSummary, levels: tuple[str, ...], scale: summary.Scale) -> ColumnEncoding:
    counts = column.counts()
    if others := sorted(level for level in counts if level is not None and level not in levels):
        raise ValueError(f"columns: {column.name!r} holds {others[0]!r:.40}, which is none of its levels; add it.")
    times = np.array(list(counts.values()), dtype=np.intp)
    return NumberColumn.of(column.name, summary.NumberSummary.of(places_of(list(counts), levels), times), scale, levels)


def _as_number(
    column: summary.ColumnSummary, read: tuple[Written, summary.NumberSummary], scale: summary.Scale
) -> ColumnEncoding:
    written, numbers = read
    if numbers.infinite == numbers.held:  # of others the row is named where they become features
        require_no_infinity(column.name, numbers.infinite, numbers.n)
    return NumberColumn.of(column.name, numbers, scale, (), written)


def _as_date(
    column: summary.ColumnSummary, first: First, days: summary.NumberSummary, scale: summary.Scale
) -> ColumnEncoding:
    local_days = replace(column.local_dates[first], n=days.n)
    return DateColumn.of(column.name, days, local_days, scale, first, column.zone)


def _inferred(column: summary.ColumnSummary, scale: summary.Scale) -> ColumnEncoding | str:
    """Return the encoding that the values of a column suggest, or why it is left out."""
    if column.kind == "other":
        return "it holds lists, records or bytes"
    if not column.held:
        return EMPTY
    if column.levels:
        return _ordered(column, column.levels, scale)
    if column.is_category:
        return _category(column, scale)
    numbers = None if column.is_zero_padded else column.as_numbers()
    dates = column.as_dates()
    if numbers is not None and (dates is None or not _are_dates(column, numbers, dates)):
        return _number(column, numbers, scale)
    if dates is None:
        return _category(column, scale)
    first, days = dates
    if days.constant and not days.gaps:
        return CONSTANT
    return UNDECIDED if first is None else _as_date(column, first, days, scale)


def _are_dates(
    column: summary.ColumnSummary,
    numbers: tuple[Written, summary.NumberSummary],
    dates: tuple[First | None, summary.NumberSummary],
) -> bool:
    """Return whether values that are numbers and dates are dates: times of day, or digits that all are dates."""
    first, days = dates
    if first == "time":  # durations of a clock, some of which exceed a day, are numbers
        return days.held == numbers[1].held
    return days.held == column.held >= FEW_ROWS


def _category(column: summary.ColumnSummary, scale: summary.Scale) -> ColumnEncoding | str:
    """Return the encoding of the texts of a column as levels, or why the column is left out."""
    if column.kind == "text" and column.different == 1 and not column.gaps:
        return CONSTANT
    if column.is_category or column.held < FEW_ROWS:
        return CategoryColumn.of(column, scale)
    all_differ = column.different > DIFFERENT * column.held
    has_many_levels = all_differ or column.different > MOST_LEVELS
    if has_many_levels and column.has_several_numbers:
        return SEVERAL_NUMBERS
    if _is_free_text(column):
        return FREE_TEXT
    units = column.units() if has_many_levels else {}
    if _are_units(units, all_differ):
        return _several_units(units)
    return IDENTIFIERS if all_differ else CategoryColumn.of(column, scale)


def _is_free_text(column: summary.ColumnSummary) -> bool:
    """Return whether the texts of a column are prose, apart from placeholders, which many rows share."""
    repeated = column.repeated_texts
    rows = column.held - sum(repeated.values())
    if rows < FEW_ROWS / 2:
        return False
    spaces = column.words - sum(text.count(" ") * count for text, count in repeated.items())
    different = column.different - len(repeated)
    are_phrases = spaces >= PHRASE_SPACES * rows and different > DIFFERENT * rows
    are_sentences = spaces >= SENTENCE_SPACES * rows and different > max(MOST_LEVELS, REPEATED_SENTENCES * rows)
    return are_phrases or are_sentences


def _are_units(units: Mapping[str, int], all_differ: bool) -> bool:
    """Return whether the letters next to numbers are units: known ones, or few if nearly all texts differ."""
    if len(units) < 2:
        return False
    if all_differ:
        return len(units) <= MOST_UNITS
    return all(not unit or is_unit(unit) for unit in units)


def _several_units(units: Mapping[str, int]) -> str:
    """Return why a column of numbers in several units is left out."""
    counts = ", ".join(f"{unit or 'none'} in {rows:,} rows" for unit, rows in list(units.items())[:MOST_UNITS])
    return f"it holds numbers in several units ({counts}); write one unit, or the unit as a column of its own"


def _number(
    column: summary.ColumnSummary, read: tuple[Written, summary.NumberSummary], scale: summary.Scale
) -> ColumnEncoding | str:
    """Return the encoding of a column of numbers, or why it is left out."""
    made, (_, numbers) = _as_number(column, read, scale), read
    if numbers.constant and not numbers.gaps and not column.has_codes:
        return CONSTANT
    differ = numbers.n >= FEW_ROWS and numbers.different >= DIFFERENT
    if column.has_codes and numbers.whole:
        return "its whole numbers have more digits than a number keeps" if differ else CategoryColumn.of(column, scale)
    all_differ = not numbers.gaps and numbers.different >= (1.0 if numbers.exact else DIFFERENT)
    counts = all_differ and numbers.low in (0, 1) and numbers.high - numbers.low == numbers.n - 1
    if differ and (counts or IDENTIFIER.search(column.name)):
        return "it is a row index"
    return made


def target_of(column: Column, task: str | None, report: EncodingReport, is_typed: bool = True) -> np.ndarray:
    """Return the values of a target, and take note of cells that are not of its kind.

    Parameters
    ----------
    column : Column
        Not modified.
    task : {"classification", "regression"} or None
        Task of the target, if it is known.
    report : EncodingReport
        Counts the values that are no numbers.
    is_typed : bool, default True
        Whether the source has types of columns. Its texts are labels; those of a CSV file may be numbers.

    Returns
    -------
    values : ndarray of shape (m,)
        Numbers, NaN for missing ones, or labels as texts, None for missing ones.

    Raises
    ------
    ValueError
        It holds dates.
    """
    known = summary.ColumnSummary.of(column, as_levels=True)
    numbers = _numbers_of_target(known, task, is_typed)
    if numbers is not None:
        written, _ = numbers
        read = column.read_numbers(written)
        report.note_numbers(column, written, read)
        return read.values
    has_dates = column.kind != "text" or (task is None and not column.is_category and known.as_dates() is not None)
    if has_dates and known.different > FEW_ROWS:
        raise ValueError(
            f"target {column.name!r} holds dates such as {known.example!r}; predict a number, such as days."
        )
    return column.as_texts()


def _numbers_of_target(
    known: summary.ColumnSummary, task: str | None, is_typed: bool
) -> tuple[Written, summary.NumberSummary] | None:
    """Return how a target is read as numbers; None if its values are labels.

    Texts are labels if the source has types, unless the task is a regression. Texts of a CSV file are labels if there
    are few different ones that are not plainly numbers, or many with leading zeros.
    """
    if task == "regression":
        return known.as_numbers(SAID)
    if known.kind == "number":
        return None if known.has_codes else known.as_numbers()
    if task == "classification" or is_typed or known.is_category or known.has_codes or known.is_zero_padded:
        return None
    numbers = known.as_numbers()
    if numbers is None or known.different > FEW_VALUES:
        return numbers
    written, values = numbers
    return numbers if written == POINT and not values.whole and values.held == known.held else None
