"""Inference of column types, and encoding of tables as features."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np

from ..base import Value
from ..families.base import distinct
from ..registry import did_you_mean
from ..targets import FEW_VALUES
from ..validation import require_one_of
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
from .quantities import Written
from .reading import MISSING, Column, distinct_levels, read_columns
from .text import TextColumn
from .units import is_unit

Kind: TypeAlias = Literal["number", "categorical", "code", "date", "text", "drop"]
"""Column types; another type is a list of ordered levels."""

KINDS: tuple[str, ...] = get_args(Kind)

CONSTANT = "it is constant"
EMPTY = "it is empty"

FREE_TEXT = "it is free text"

DROPPED_BY_USER = "as said"

ColumnTypes: TypeAlias = Mapping[str, Kind | Sequence[str]]
"""Kinds, or ordered levels (lowest first), by column name."""

UNDECIDED = (
    "its dates may begin with the day or with the month; say that it is a date, which reads the day first, or write "
    "2024-12-31"
)
"""Reason for dropping dates with ambiguous day and month."""

FEW_ROWS = 20
"""Fewest rows to recognize identifiers and free text."""

DIFFERENT = 0.9
"""Smallest share of distinct values in identifiers and free text."""

PHRASE_SPACES = 3

SENTENCE_SPACES = 7

REPEATED_SENTENCES = 0.2
"""Smallest share of distinct sentences in free text."""

MOST_UNITS = 8

MOST_UNREADABLE = 32

LEAST_SHARE_OF_SET_TYPE = 0.5
"""Smallest share of values of a type set by the user."""

MOST_CHARACTERS_OF_NAME = 80

IDENTIFIER = re.compile(
    r"(?i:^\W*$|(^|[_\W])(id|uuid|guid|index|key|rowid|rownames?|row[_ ]?n(r|o|um|umber)|unnamed)([_\W]|$))"
    r"|(?<=[a-z])(Id|ID)$"
)
"""Names of row identifiers; a saved index has an empty name."""


class TableFeatures(tuple[str, ...]):
    """Names of the features that encode a table, with each feature's column."""

    owners: tuple[str, ...]  # column of each feature
    codes: tuple[int, ...]  # positions of hash codes
    scaled: bool

    @classmethod
    def of(cls, columns: Sequence[ColumnEncoding], scaled: bool) -> Self:
        names: list[str] = []
        owners: list[str] = []
        codes: list[int] = []
        for column in columns:
            for name, view in column.features:
                if view == "codes":
                    codes.append(len(names))
                names.append(_shortened(name))
                owners.append(column.name)
        features = cls(distinct(names))
        features.owners = tuple(owners)
        features.codes = tuple(codes)
        features.scaled = scaled
        return features


def _shortened(name: str) -> str:
    if len(name) <= MOST_CHARACTERS_OF_NAME:
        return name
    return f"{name[: MOST_CHARACTERS_OF_NAME - 3]}..."


def shares_by_column(features: Sequence[str], shares: np.ndarray) -> dict[str, float]:
    """Return shares by feature; if these encode a table, sum by column."""
    names = features
    if isinstance(features, TableFeatures):
        names = features.owners
    summed = dict.fromkeys(names, 0.0)
    for name, share in zip(names, shares.tolist(), strict=True):
        summed[name] += share
    return summed


@dataclass(frozen=True, eq=False, repr=False)
class TableEncoding(Value):
    """Encoding of a table as features; `left_out` maps dropped columns to reasons."""

    columns: tuple[ColumnEncoding, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    scaled: bool = False

    @classmethod
    def of(
        cls,
        table: Any,
        column_types: ColumnTypes | None = None,
        scale: summary.Scale = "standard",
    ) -> Self:
        """Infer the column types of a table, its columns, or its summaries by name.

        ValueError for an unknown column, a wrong type or infinite numbers.
        """
        overrides = _with_names_of_text(column_types)
        encodings: list[ColumnEncoding] = []
        left_out: dict[str, str] = {}
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
            reasons = "; ".join(
                f"{name!r}: {reason}" for name, reason in list(left_out.items())[:5]
            )
            raise ValueError(
                f"the table leaves no column to learn from ({reasons}); add one, or say what they are."
            )
        return cls(tuple(encodings), left_out, scale in ("standard", "quantile"))

    def learned_on(self, table: Any, scale: summary.Scale) -> Self:
        """Return an encoding of the same features, fitted to another table."""
        table_columns = read_columns(table, self.names)
        columns = tuple(
            column.learned_on(table_columns[column.name], scale)
            for column in self.columns
        )
        return type(self)(columns, self.left_out, self.scaled)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def of_numbers(self) -> bool:
        return all(column.is_number for column in self.columns)

    @property
    def is_decodable(self) -> bool:
        return all(column.is_decodable for column in self.columns)

    @cached_property
    def features(self) -> TableFeatures:
        return TableFeatures.of(self.columns, self.scaled)

    def encode(self, table: Any, report: EncodingReport | None = None) -> np.ndarray:
        """Return the features, (n, features), of a table or an array of numbers.

        ValueError for a missing column or values of another kind.
        """
        if (
            isinstance(table, np.ndarray)
            and table.shape[1:] == (len(self.names),)
            and self.of_numbers
        ):
            numbers = zip(self.names, table.T, strict=True)
            table = {
                name: Column(name, "number", np.array(values, dtype=np.float64))
                for name, values in numbers
            }
        if report is None:
            report = EncodingReport()
        columns = read_columns(table, self.names)
        n_rows = len(columns[self.names[0]].values)
        X = np.empty((n_rows, len(self.features)))
        for encoding, features in self.places:
            encoding.encode(columns[encoding.name], X[:, features], report)
        return X

    @cached_property
    def places(self) -> list[tuple[ColumnEncoding, slice]]:
        """Encoding of each column, with the positions of its features."""
        places = []
        start = 0
        for column in self.columns:
            stop = start + len(column.features)
            places.append((column, slice(start, stop)))
            start = stop
        return places

    def for_trees(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return features for trees (NaN if missing), and a mask of categorical features."""
        parts: list[np.ndarray] = []
        is_level: list[bool] = []
        for column, features in self.places:
            part = column.for_trees(X[:, features])
            parts.append(part)
            is_level += [
                isinstance(column, CategoryColumn) and not column.many
            ] * part.shape[1]
        return np.hstack(parts), np.array(is_level)

    def decode(self, X: np.ndarray) -> dict[str, list[Any]]:
        """Return a table's columns from its features X; missing values stay imputed."""
        return {
            column.name: column.decode(X[:, features])
            for column, features in self.places
        }

    def gaps(self, table: Any) -> np.ndarray:
        """Return a mask of rows with a missing or unreadable value, (n,)."""
        columns = read_columns(table, self.names)
        return np.asarray(
            np.any(
                [encoding.lacks(columns[encoding.name]) for encoding in self.columns],
                axis=0,
            )
        )

    def sentences(
        self, but: Collection[str] = (DROPPED_BY_USER, CONSTANT, EMPTY)
    ) -> list[str]:
        """Return a sentence per dropped column, unless the reason is in `but`."""
        sentences = []
        for name, reason in self.left_out.items():
            if reason in but:
                continue
            remedy = "say what it is with 'columns' to keep it"
            if reason == FREE_TEXT:
                remedy = f"set {setting_of_text(name)} to learn from it"
            sentences.append(f"column {name!r} is left out, as {reason}; {remedy}")
        return sentences

    def describe(self) -> list[str]:
        """Return a description: a line per column type and per dropped column."""
        names_by_type: dict[str, list[str]] = {}
        for column in self.columns:
            names_by_type.setdefault(column.describe(), []).append(column.name)
        lines = [
            f"{column_type}: {', '.join(names)}"
            for column_type, names in names_by_type.items()
        ]
        lines += [
            f"left out: {name} ({reason})" for name, reason in self.left_out.items()
        ]
        return lines


def setting_of_text(name: str) -> str:
    """Return the setting that makes a column a text column, as Python or YAML."""
    return f"columns={json.dumps({name: 'text'}, ensure_ascii=False)}"


def _summaries(
    table: Any, overrides: Mapping[str, Any]
) -> Iterator[tuple[str, summary.ColumnSummary]]:
    """Yield summaries one at a time, to save memory."""
    is_summarized = isinstance(table, Mapping) and all(
        isinstance(column, summary.ColumnSummary) for column in table.values()
    )
    columns: Mapping[str, Any] = table
    if not is_summarized:
        columns = read_columns(table)
    unknown = [name for name in overrides if name not in columns]
    if unknown:
        suggestion = did_you_mean(unknown[0], map(str, columns))
        names = ", ".join(list(columns)[:12])
        if len(columns) > 12:
            names += ", ..."
        raise ValueError(
            f"columns: {unknown[0]!r} is not a column of the table; {suggestion}it has {names}."
        )
    for name, column in columns.items():
        if is_summarized:
            yield name, column
        else:
            if overrides.get(name) == "drop":
                column = replace(column, has_one_order=True)
            yield name, summary.ColumnSummary.of(column, as_levels(overrides.get(name)))


def _with_names_of_text(column_types: Any) -> dict[str, str | tuple[Any, ...]]:
    if column_types is None:
        return {}
    if not isinstance(column_types, Mapping):
        raise ValueError(
            f"columns must map names to types, such as {{'size': 'number'}}, got {column_types!r:.60}."
        )
    types = {}
    for name, column_type in column_types.items():
        is_listed = isinstance(column_type, Iterable) and not isinstance(
            column_type, str
        )
        if is_listed:
            column_type = tuple(column_type)
        types[str(name)] = column_type
    return types


def as_levels(column_type: str | Sequence[str] | None) -> bool:
    return column_type not in (None, "number", "date", "drop")


def _of_type(
    column: summary.ColumnSummary,
    column_type: str | Sequence[str],
    scale: summary.Scale,
) -> ColumnEncoding | str:
    """Return the encoding of a type, or a reason for dropping."""
    if column_type == "drop":
        return DROPPED_BY_USER
    if column.kind == "other" or not column.n_values:
        return "it holds no values that could be used"
    if column_type == "categorical":
        return CategoryColumn.of(column, scale)
    if column_type == "code":
        return CategoryColumn.of(column, scale, 0)
    if column_type == "text":
        return TextColumn.of(column, scale)
    if column_type == "date":
        dates = column.as_dates(LEAST_SHARE_OF_SET_TYPE)
        if dates is not None:
            first, days = dates
            return _as_date(column, first or "day", days, scale)
    if column_type == "number":
        numbers = column.as_numbers(LEAST_SHARE_OF_SET_TYPE)
        if numbers is not None:
            return _as_number(column, numbers, scale)
    if column_type in ("number", "date"):
        raise ValueError(
            f"columns: {column.name!r} is said to be a {column_type}, but holds {column.example!r}; correct it."
        )
    _require_levels(column.name, column_type)
    return _ordered(column, _checked_levels(column.name, column_type), scale)


def _require_levels(name: str, column_type: Any) -> None:
    invalid_type = column_type
    if isinstance(column_type, tuple):
        if len(set(column_type)) > 1:
            return
        invalid_type = list(column_type)
    alternative = " or a list of at least two ordered levels"
    require_one_of(f"columns: {name!r}", invalid_type, KINDS, alternative)


def _checked_levels(name: str, levels: Sequence[str]) -> tuple[str, ...]:
    """Return levels as texts; ValueError for missing values."""
    texts = tuple(map(str, levels))
    for level in texts:
        if level.strip().lower() in MISSING:
            raise ValueError(
                f"columns: {name!r} has the level {level!r}, which denotes a missing value; rename it in the data."
            )
    return distinct_levels(texts)


def _ordered(
    column: summary.ColumnSummary, levels: tuple[str, ...], scale: summary.Scale
) -> ColumnEncoding:
    counts = column.counts()
    unknown = sorted(
        level for level in counts if level is not None and level not in levels
    )
    if unknown:
        raise ValueError(
            f"columns: {column.name!r} holds {unknown[0]!r:.40}, which is none of its levels; add it."
        )
    rows = np.array(list(counts.values()), dtype=np.intp)
    positions = summary.NumberSummary.of(places_of(list(counts), levels), rows)
    return NumberColumn.of(column.name, positions, scale, levels)


def _as_number(
    column: summary.ColumnSummary,
    read: tuple[Written, summary.NumberSummary],
    scale: summary.Scale,
) -> ColumnEncoding:
    written, numbers = read
    # Otherwise, the error of `encode` names the row.
    if numbers.infinite == numbers.n_values:
        require_no_infinity(column.name, numbers.infinite, numbers.n)
    encoding = NumberColumn.of(column.name, numbers, scale, (), written)
    return replace(encoding, unreadable=_unreadable(encoding, column))


def _as_date(
    column: summary.ColumnSummary,
    first: First,
    days: summary.NumberSummary,
    scale: summary.Scale,
) -> ColumnEncoding:
    local_days = replace(column.local_dates[first], n=days.n)
    encoding = DateColumn.of(column.name, days, local_days, scale, first, column.zone)
    return replace(encoding, unreadable=_unreadable(encoding, column))


def _unreadable(
    encoding: ColumnEncoding, column: summary.ColumnSummary
) -> tuple[str, ...]:
    if column.kind != "text" or encoding.count_lacking(column) == column.gaps:
        return ()
    rows = column.texts
    texts = np.array(sorted(rows, key=lambda text: (-rows[text], text)), dtype=object)
    is_lacking = encoding.lacks(Column(column.name, "text", texts))
    return tuple(texts[is_lacking][:MOST_UNREADABLE].tolist())


def _inferred(
    column: summary.ColumnSummary, scale: summary.Scale
) -> ColumnEncoding | str:
    """Return the encoding of the inferred type, or a reason for dropping."""
    if column.kind == "other":
        return "it holds lists, records or bytes"
    if not column.n_values:
        return EMPTY
    if column.levels:
        return _ordered(column, column.levels, scale)
    if column.is_category:
        return _category(column, scale)
    numbers = None
    if not column.is_zero_padded:
        numbers = column.as_numbers()
    dates = column.as_dates()
    if numbers is not None and (
        dates is None or not _are_dates(column, numbers, dates)
    ):
        return _number(column, numbers, scale)
    if dates is None:
        return _category(column, scale)
    first, days = dates
    if days.constant and not days.gaps:
        return CONSTANT
    if first is None:
        return UNDECIDED
    return _as_date(column, first, days, scale)


def _are_dates(
    column: summary.ColumnSummary,
    numbers: tuple[Written, summary.NumberSummary],
    dates: tuple[First | None, summary.NumberSummary],
) -> bool:
    """Return whether numbers that can be dates are dates."""
    first, days = dates
    if first == "time":  # durations may exceed a day
        return days.n_values == numbers[1].n_values
    return column.dates[first or "day"].n == column.n_values >= FEW_ROWS


def _category(
    column: summary.ColumnSummary, scale: summary.Scale
) -> ColumnEncoding | str:
    """Return the encoding of levels, or a reason for dropping."""
    if column.kind == "text" and column.n_distinct == 1 and not column.gaps:
        return CONSTANT
    if column.is_category or column.n_values < FEW_ROWS:
        return CategoryColumn.of(column, scale)
    all_differ = column.n_distinct > DIFFERENT * column.n_values
    has_many_levels = all_differ or column.n_distinct > MOST_LEVELS
    if has_many_levels and column.has_several_numbers:
        return "it holds several numbers in one cell; write one column for each"
    if _is_free_text(column):
        return FREE_TEXT
    if has_many_levels:
        units = column.units()
        if _are_units(units, all_differ):
            return _several_units(units)
    if all_differ:
        return "nearly all of its texts differ, as those of identifiers do"
    return CategoryColumn.of(column, scale)


def _is_free_text(column: summary.ColumnSummary) -> bool:
    """Return whether texts other than placeholders are prose."""
    repeated = column.repeated_texts
    rows = column.n_values - sum(repeated.values())
    if rows < FEW_ROWS / 2:
        return False
    spaces = column.n_spaces - sum(
        text.count(" ") * count for text, count in repeated.items()
    )
    different = column.n_distinct - len(repeated)
    are_phrases = spaces >= PHRASE_SPACES * rows and different > DIFFERENT * rows
    are_sentences = spaces >= SENTENCE_SPACES * rows and different > max(
        MOST_LEVELS, REPEATED_SENTENCES * rows
    )
    return are_phrases or are_sentences


def _are_units(units: Mapping[str, int], all_differ: bool) -> bool:
    """Return whether the texts next to numbers are units."""
    if len(units) < 2:
        return False
    if all_differ:
        return len(units) <= MOST_UNITS
    return all(not unit or is_unit(unit) for unit in units)


def _several_units(units: Mapping[str, int]) -> str:
    counts = ", ".join(
        f"{unit or 'none'} in {rows:,} rows"
        for unit, rows in list(units.items())[:MOST_UNITS]
    )
    return f"it holds numbers in several units ({counts}); write one unit, or the unit as a column of its own"


def _number(
    column: summary.ColumnSummary,
    read: tuple[Written, summary.NumberSummary],
    scale: summary.Scale,
) -> ColumnEncoding | str:
    """Return the encoding of numbers, or a reason for dropping."""
    encoding = _as_number(column, read, scale)
    _, numbers = read
    if numbers.constant and not numbers.gaps and not column.has_codes:
        return CONSTANT
    nearly_all_differ = numbers.n >= FEW_ROWS and numbers.distinct_share >= DIFFERENT
    if column.has_codes and numbers.are_integers:
        if nearly_all_differ:
            return "its whole numbers have more digits than a number keeps"
        return CategoryColumn.of(column, scale)
    least_share = DIFFERENT
    if numbers.exact:
        least_share = 1.0
    all_differ = not numbers.gaps and numbers.distinct_share >= least_share
    counts_rows = (
        all_differ
        and numbers.low in (0, 1)
        and numbers.high - numbers.low == numbers.n - 1
    )
    if nearly_all_differ and (counts_rows or IDENTIFIER.search(column.name)):
        return "it is a row index"
    return encoding


def target_of(
    column: Column, task: str | None, report: EncodingReport, is_typed: bool = True
) -> np.ndarray:
    """Return a column's target values; missing values are NaN or None.

    With `is_typed`, the source has column types, so that texts are labels. ValueError
    for dates, except as classes.
    """
    target_summary = summary.ColumnSummary.of(column, as_levels=True)
    numbers = _numbers_of_target(target_summary, task, is_typed)
    if numbers is not None:
        written, _ = numbers
        read = column.read_numbers(written)
        report.note_numbers(column, written, read)
        return read.values
    may_be_dates = task is None and not column.is_category
    has_dates = (column.kind == "date" and task != "classification") or (
        may_be_dates and target_summary.as_dates() is not None
    )
    if has_dates and target_summary.n_distinct > FEW_ROWS:
        raise ValueError(
            f"target {column.name!r} holds dates such as {target_summary.example!r}; predict a number, such as days."
        )
    return column.as_texts()


def _numbers_of_target(
    target: summary.ColumnSummary, task: str | None, is_typed: bool
) -> tuple[Written, summary.NumberSummary] | None:
    """Return notation and summary of numbers, or None for labels."""
    if task == "regression":
        return target.as_numbers(LEAST_SHARE_OF_SET_TYPE)
    if target.kind == "number":
        if target.has_codes:
            return None
        return target.as_numbers()
    if (
        task == "classification"
        or is_typed
        or target.is_category
        or target.has_codes
        or target.is_zero_padded
    ):
        return None
    numbers = target.as_numbers()
    if numbers is None or target.n_distinct > FEW_VALUES:
        return numbers
    written, values = numbers
    if values.are_integers or written.unit:
        return None
    return numbers
