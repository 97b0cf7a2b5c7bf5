"""Readers of data sources, one function a format; each gives rows, the target and the names of the features."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from sklearn import datasets as bundled

from learnkernels.conf.errors import InputError, cut, listed, one_line
from learnkernels.conf.schema import DatasetConfig
from learnkernels.kernels.tables import Met, TableEncoding
from learnkernels.kernels.tables.dates import moment_of
from learnkernels.kernels.tables.reading import Column, as_texts, read_columns
from learnkernels.tasks.data.locations import LIBSVM, Location, sound, transferring
from learnkernels.tasks.data.streams import arrow_batches, arrow_source, delimiter_of
from learnkernels.tasks.data.text import count_ngrams


class Columns(NamedTuple):
    """What a source holds.

    Attributes
    ----------
    X : ndarray or CSR matrix of float64 of shape (n, d)
        NaN where a number is missing.
    y : Arrow column or ndarray of n entries
    features : sequence of str
    table : TableEncoding, optional
        How columns that are not all numbers became features.
    """

    X: Any
    y: Any
    features: Sequence[str]
    table: TableEncoding | None = None


BATCH_BYTES = 16 << 20
"""What is taken from a table at a time, as numbers of eight bytes."""

READ_BYTES = 64 << 20
"""Read ahead of a Parquet file of this machine, over all its columns."""

MOST_FEATURES = 1 << 24
"""Features of a LIBSVM text: arrays of one number a feature stay small, and an index that was mistyped shows."""


def read_bundled(name: str) -> Columns:
    """Return one of the data sets that come with scikit-learn."""
    loader = getattr(bundled, f"load_{name}")
    raw = loader()
    labels = getattr(raw, "target_names", None)
    y = raw.target
    if labels is not None and y.ndim == 1 and y.dtype.kind in "iu" and len(labels) == len(np.unique(y)):
        y = np.asarray([str(label) for label in labels])[y]
    return Columns(np.asarray(raw.data, dtype=np.float64), y, tuple(str(feature) for feature in raw.feature_names))


def read_table(location: Location, config: DatasetConfig, where: str) -> Columns:
    """Return a table that Arrow reads: Parquet, CSV, Arrow IPC or Feather.

    Raises
    ------
    InputError
        The file is damaged, lacks a column that the configuration names, or has a feature that is not a number.
    """
    with transferring(location, called=f"{where}: {location.name}"), _TABLES[location.suffix](location) as table:
        return _columns_of(table, config, config.target, location.name, where)


@dataclass(frozen=True)
class _Table:
    """A table of which columns, or all rows one run after the other, are read when they are asked for.

    Attributes
    ----------
    schema : pyarrow.Schema
    num_rows : int
    read : callable
        Return some columns as a table.
    read_batches : callable
        Return the record batches of all columns, of at most so many rows each.
    """

    schema: pa.Schema
    num_rows: int
    read: Callable[[list[str]], pa.Table]
    read_batches: Callable[[int], Iterable[pa.RecordBatch]]

    @classmethod
    def of(cls, table: pa.Table) -> _Table:
        """Return a table that is in memory."""
        return cls(table.schema, table.num_rows, table.select, lambda rows: table.to_batches(max_chunksize=rows))

    def select(self, names: list[str]) -> pa.Table:
        """Return some columns, checked."""
        return sound(self.read(names))

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Return the record batches of all columns, of at most so many rows each, checked; together all rows."""
        held = 0
        for batch in self.read_batches(rows):
            held += batch.num_rows
            yield sound(batch)
        if held != self.num_rows:
            raise ValueError(f"it states {self.num_rows:,} rows and holds {held:,}")


@contextmanager
def _open_parquet(location: Location) -> Iterator[_Table]:
    """Give a table of which no row group is read as a whole, but from a server, where many small reads take long."""
    if location.remote:
        file = pyarrow.parquet.ParquetFile(location.open_input(), pre_buffer=True)
    else:
        width = max(1, pyarrow.parquet.read_metadata(location.path).num_columns)
        ahead = int(np.clip(READ_BYTES // width, 1 << 16, 1 << 20))
        file = pyarrow.parquet.ParquetFile(location.path, pre_buffer=False, buffer_size=ahead)
    with file:
        yield _Table(
            file.schema_arrow, file.metadata.num_rows, file.read, lambda rows: file.iter_batches(batch_size=rows)
        )


def table_columns(table: pa.Table, config: DatasetConfig, target: str, name: str, where: str) -> Columns:
    """Return rows, target and features of a table: the rows of `where`, and as features what is left of the columns.

    Parameters
    ----------
    table : pyarrow.Table
        All its columns.
    config : DatasetConfig
        Which of them to use, and how.
    target : str
        The column to predict.
    name, where : str
        What the table and the data set are called in sentences.

    Raises
    ------
    InputError
        A column is missing, a feature is not a number, or nothing is left.
    """
    return _columns_of(_Table.of(table), config, target, name, where)


def read_held_out(location: Location, config: DatasetConfig, where: str) -> np.ndarray:
    """Return whether each row that `read_table` returns is one that tests, shape (n,).

    Raises
    ------
    InputError
        A column of 'test' is none of text or numbers, or no row, or every row, has its values.
    """
    with transferring(location, called=f"{where}: {location.name}"), _TABLES[location.suffix](location) as table:
        kept = _rows_with(table.select(list(config.where)), config.where, "where", where) if config.where else None
        held_out = _rows_with(_only(table.select(list(config.test)), kept), config.test, "test", where)
    if held_out is None:
        raise InputError(f"{where}: every row has the values of 'test', so none is left to learn from; name fewer.")
    return held_out


def read_beside(location: Location, config: DatasetConfig, where: str) -> dict[str, np.ndarray]:
    """Return what a table says of each row that `read_table` returns beside features and target.

    Returns
    -------
    beside : dict of ndarray of shape (n,)
        ``groups``, the number of each row's group, ``times``, that of its time, ascending, and ``weights``: those that
        the configuration asks for. -1, or NaN for a weight, where the column is missing.

    Raises
    ------
    InputError
        A column has a type that does not serve, or lacks values that are not to be dropped.
    """
    with transferring(location, called=f"{where}: {location.name}"), _TABLES[location.suffix](location) as table:
        kept = _rows_with(table.select(list(config.where)), config.where, "where", where) if config.where else None
        beside = {}
        for key, name in config.beside.items():
            column = _only(table.select([name]), kept)[name].combine_chunks()
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if _is_text(column.type):  # in a CSV file an empty cell is an empty text
                column = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
            found = f"{where}: column {name!r} of {key!r}"
            numbers = _BESIDE[key](column, found)
            lacking = int((~(numbers >= 0)).sum())
            if lacking and config.missing != "drop":
                raise InputError(f"{found} is missing in {lacking} of {len(numbers)} rows; set 'missing: drop'.")
            beside["times" if key == "time" else key] = numbers
    return beside


def _groups(column: pa.Array, found: str) -> np.ndarray:
    """Return the number of each value in the order in which they appear, -1 where it is missing."""
    if pa.types.is_nested(column.type):
        raise InputError(f"{found} is {column.type}; name one of text or numbers.")
    return _numbered(column, lambda held: held.dictionary_encode().indices)


def _times(column: pa.Array, found: str) -> np.ndarray:
    """Return the place of each time among the different ones, -1 where it is missing."""
    if _is_text(column.type):
        column = pa.array(_moments(Column("time", "text", as_texts(column.to_pylist())), found))
    if not (pa.types.is_temporal(column.type) or is_number(column.type)) or pa.types.is_boolean(column.type):
        raise InputError(f"{found} is {column.type}; name one of numbers, or of dates.")
    return _numbered(column, lambda held: pc.subtract(pc.rank(held, tiebreaker="dense"), 1))


def _moments(column: Column, found: str) -> np.ndarray:
    """Return the moments that texts tell."""
    first = column.first_of_dates()
    if (moments := column.as_dates(first or "day")) is None:
        wrong = next(text for text in column.values if text is not None and moment_of(text, first or "day") is None)
        raise InputError(
            f"{found} has text that is no date or time, such as {cut(one_line(wrong), 40)!r}; write 2026-01-31 or "
            "2026-01-31T12:00."
        )
    if first is None:
        raise InputError(
            f"{found} has dates that may begin with the day or with the month, such as "
            f"{next(text for text in column.values if text is not None)!r}; write 2026-01-31."
        )
    return moments


def _weights(column: pa.Array, found: str) -> np.ndarray:
    """Return each weight, NaN where it is missing."""
    if not is_number(column.type) or pa.types.is_boolean(column.type):
        raise InputError(f"{found} is {column.type}; name one of numbers.")
    weights = to_numbers(column)
    wrong = np.flatnonzero((weights < 0) | np.isinf(weights))
    if len(wrong):
        raise InputError(
            f"{found} must be finite and not negative, got {weights[wrong[0]]:g} among {len(wrong)} such rows; correct "
            "them, or give them weight 0, which leaves them out."
        )
    if not (weights > 0).any():
        raise InputError(f"{found} has no weight above zero, so that no row is left; name another column.")
    return weights


_BESIDE: dict[str, Callable[[pa.Array, str], np.ndarray]] = {"groups": _groups, "time": _times, "weights": _weights}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _numbered(column: pa.Array, number: Callable[[pa.Array], pa.Array]) -> np.ndarray:
    """Return the numbers of values that are there, and -1 for those that are not."""
    there = ~column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    numbers = np.full(len(column), -1, dtype=np.int64)
    numbers[there] = number(column.filter(pa.array(there))).to_numpy(zero_copy_only=False)
    return numbers


def _columns_of(table: _Table, config: DatasetConfig, target: str, name: str, where: str) -> Columns:
    names = table.schema.names
    refuse_repeated(names, f"{where}: {name} has column {{}} more than once; rename one.")
    named = {
        "target": [target],
        "drop": config.drop,
        "features": config.features,
        "columns": config.columns or (),
        "where": config.where,
        "test": config.test,
        **{key: [column] for key, column in config.beside.items()},
        "ngrams": config.ngrams.columns if config.ngrams else (),
        "bytes": [config.bytes] if config.bytes else (),
    }
    for key, columns in named.items():
        for column in columns:
            if column not in names:
                shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
                raise InputError(f"{where}: {key} {column!r} is not a column of {name}; it has {shown}.")
    others = {target, *config.drop, *config.where, *config.test, *config.beside.values()}
    features = [column for column in config.features or names if column not in others]
    if config.ngrams is not None:
        features = list(config.ngrams.columns)
    _require_room(table.num_rows, len(features), name, where)
    kept = _rows_with(table.select(list(config.where)), config.where, "where", where) if config.where else None
    y = _only(table.select([target]), kept)[target].combine_chunks()
    kind = y.type.value_type if pa.types.is_dictionary(y.type) else y.type
    if pa.types.is_nested(kind) or is_binary(kind) or isinstance(kind, pa.BaseExtensionType):
        raise InputError(f"{where}: target {target!r} is {kind}; name a column of text or numbers.")
    if config.ngrams is not None and len(y):
        X, ngrams = count_ngrams(_only(table.select(features), kept), config.ngrams, where)
        return Columns(X, y, ngrams)
    if not features or not len(y):
        raise InputError(
            f"{where}: {name} leaves {len(y)} rows and {len(features)} feature columns; "
            "at least two rows and one column are needed."
        )
    kinds = [table.schema.field(column).type for column in features]
    if config.columns is not None or not (config.bytes or all(map(is_number, kinds))):
        for name, kind in zip(features, kinds, strict=True):
            if is_binary(kind) and (config.columns or {}).get(name) != "drop":
                _require_number(table, name, kept, config.drop, where)
        return encoded(_only(table.select(features), kept), y, config, where)
    X, expanded = _numeric(table, features, kept, config, where)
    return Columns(X, y, expanded)


def numbers_encoded(read: Columns, config: DatasetConfig, where: str) -> Columns:
    """Return rows of numbers with their gaps filled, or in units of ranks; see `encoded`."""
    numbers = pa.table(dict(zip(read.features, read.X.T, strict=True)))
    said = config.model_copy(update={"columns": dict.fromkeys(read.features, "number")})
    return encoded(numbers, read.y, said, where)


def encoded(table: pa.Table, y: Any, config: DatasetConfig, where: str) -> Columns:
    """Return a table of any columns as features; NaN in rows with a gap that are not to be used.

    Raises
    ------
    InputError
        A column is not what it is said to be, a number is infinite, a gap is refused, or nothing is left.
    """
    met = Met()
    try:
        columns = read_columns(table)
        encoding = TableEncoding.of(columns, config.columns, config.scale)
        X = encoding.encode(columns, met)
        if met.gaps and config.missing == "refuse":
            named = listed([f"{name} ({count})" for name, count in met.gaps.items()], show=str)
            raise InputError(
                f"{where}: missing values in column {named} of {table.num_rows} rows; set 'missing: impute' or "
                "'missing: drop', or leave columns out with 'drop'."
            )
        if met.gaps and config.missing == "drop":
            complete = ~encoding.gaps(columns)
            encoding = TableEncoding.of(table.filter(pa.array(complete)), config.columns, config.scale)
            X = encoding.encode(columns)
            X[~complete] = np.nan
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError(f"{where}: {error}") from None
    return Columns(X, y, encoding.features, encoding)


def _require_room(rows: int, columns: int, name: str, where: str) -> None:
    """Refuse what a file states to hold, before memory is taken for it, where there is not so much."""
    needed, free = 8 * rows * (columns + 1), psutil.virtual_memory().available
    if not 0 <= needed <= free:
        raise InputError(
            f"{where}: {name} states {rows:,} rows of {columns:,} columns, {needed / 2**30:,.0f} GiB as numbers, and "
            f"{free / 2**30:,.0f} GiB are free on this machine; take rows or columns out of the file."
        )


def refuse_repeated(names: Sequence[str], sentence: str) -> None:
    """Raise InputError, with those that repeat in the braces of a sentence, unless all names differ."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(sentence.replace("{}", listed(repeated)))


def _only(part: Any, kept: np.ndarray | None) -> Any:
    """Return the rows of a table or batch that are kept; all of them where that is None."""
    return part if kept is None else part.filter(pa.array(kept))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column of this type can be a feature."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds bytes."""
    held = (pa.types.is_fixed_size_binary, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(one(kind) for one in held)


def to_numbers(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return a column of numbers as float64, shape (m,); what is missing becomes NaN."""
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _rows_with(table: pa.Table, wanted_of: Mapping[str, Sequence[str]], key: str, where: str) -> np.ndarray | None:
    """Return whether the columns of each row hold one of the values asked for, compared as text; None if of all do."""
    kept = np.ones(table.num_rows, dtype=bool)
    for name, values in wanted_of.items():
        kind = table[name].type
        if pa.types.is_nested(kind):
            raise InputError(f"{where}: column {name!r} of {key!r} is {kind}; name one of text or numbers.")
        column = table[name].combine_chunks()
        column = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
        held = [_text(value) for value in column.dictionary.to_pylist()]
        unknown = [value for value in values if value not in held]
        if unknown:
            raise InputError(
                f"{where}: no row has {listed(unknown)} in column {name!r} of {key!r}; it holds "
                f"{listed(sorted({value for value in held if value is not None}))}."
            )
        wanted = np.array([*(value in values for value in held), False])  # the last one is that of missing values
        kept &= wanted[np.asarray(column.indices.cast(pa.int64()).fill_null(len(held)))]
    if not kept.any() and table.num_rows:
        raise InputError(f"{where}: no row has the values of {key!r} in all its columns; take one of them out.")
    return None if kept.all() else kept


def _text(value: Any) -> str | None:
    """Return a value as text; whole numbers without a point, as the target's are."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return None if value is None else str(value)


def _numeric(
    table: _Table, features: Sequence[str], kept: np.ndarray | None, config: DatasetConfig, where: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return some columns of the rows that are kept as one matrix, and their names; a run of rows at a time."""
    expanded = None
    if config.bytes is not None:
        expanded = _bytes(_only(table.select([config.bytes]), kept)[config.bytes], config.bytes, where)
    names: list[str] = []
    places: list[tuple[int, int]] = []
    for name in features:
        if expanded is not None and name == config.bytes:
            names += [f"{name}_{j}" for j in range(expanded.shape[1])]
        else:
            _require_number(table, name, kept, config.drop, where)
            places.append((table.schema.get_field_index(name), len(names)))
            names.append(name)
    clash = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if expanded is not None and clash:
        raise InputError(
            f"{where}: column {sorted(clash)[0]!r} has the name of a feature that {config.bytes!r} becomes; rename it, "
            "or leave it out with 'drop'."
        )
    X = np.empty((table.num_rows if kept is None else int(kept.sum()), len(names)))
    if expanded is not None:
        first = names.index(f"{config.bytes}_0")
        X[:, first : first + expanded.shape[1]] = expanded
    read = written = 0
    for batch in table.batches(max(1, BATCH_BYTES // (8 * len(table.schema)))):
        rows = _only(batch, None if kept is None else kept[read : read + batch.num_rows])
        for column, place in places:
            X[written : written + rows.num_rows, place] = to_numbers(rows.column(column))
        read, written = read + batch.num_rows, written + rows.num_rows
    return X, tuple(names)


def _bytes(column: pa.ChunkedArray, name: str, where: str) -> np.ndarray:
    """Return binary values of one length as a matrix of bytes, shape (m, length)."""
    kind = column.type
    if not is_binary(kind):
        raise InputError(f"{where}: column {name!r} of 'bytes' is not binary ({kind}); name a binary column.")
    if column.null_count:
        raise InputError(
            f"{where}: column {name!r} of 'bytes' is missing in {column.null_count} of {len(column)} rows; leave them "
            "out of the file."
        )
    values = column.to_pylist()
    lengths = sorted({len(value) for value in values})
    if len(lengths) > 1 or not lengths[0]:
        raise InputError(
            f"{where}: column {name!r} of 'bytes' holds values of {lengths[0]} to {lengths[-1]} bytes; all must have "
            "one length of at least one."
        )
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(len(values), lengths[0])


def _require_number(table: _Table, name: str, kept: np.ndarray | None, drop: tuple[str, ...], where: str) -> None:
    kind = table.schema.field(name).type
    if not is_number(kind):
        held = _only(table.select([name]), kept)[name].drop_null().slice(0, 1).to_pylist()
        example = f", such as {cut(one_line(str(held[0])), 40)!r}" if held else ""
        way = f"take each byte as a feature with 'bytes: {name}'," if is_binary(kind) else "encode it as numbers"
        raise InputError(
            f"{where}: column {name!r} is not numeric ({kind}{example}); {way} or leave it out with "
            f"'drop: [{', '.join([*drop, name])}]'."
        )


def read_libsvm(location: Location, config: DatasetConfig, where: str) -> Columns:
    """Return a LIBSVM / SVMlight text: sparse rows, the target first on each line."""
    for key in ("drop", "features", "columns", "where", "test", *config.beside, "ngrams", "bytes"):
        if getattr(config, key):
            raise InputError(f"{where}: {key!r} does not go with {location.name}, whose columns have no names.")
    with (
        transferring(location, called=f"{where}: {location.name}"),
        io.BufferedReader(location.open_input()) as lines,
    ):
        X, y = bundled.load_svmlight_file(lines, dtype=np.float64)
    if X.shape[1] > MOST_FEATURES:
        raise InputError(
            f"{where}: {location.name} has a feature of index {X.shape[1]:,}, where {MOST_FEATURES:,} is the largest; "
            "correct it, or hash features into fewer."
        )
    return Columns(X, y, NumberedNames(X.shape[1]))


class NumberedNames(Sequence[str]):
    """The names f0, f1, ... of features that have none; each is made when it is asked for.

    Parameters
    ----------
    size : int
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: Any) -> Any:
        found = range(self.size)[place]
        return tuple(f"f{c}" for c in found) if isinstance(place, slice) else f"f{found}"

    def __contains__(self, name: object) -> bool:
        found = re.fullmatch("f(0|[1-9][0-9]{0,8})", name) if isinstance(name, str) else None
        return found is not None and int(found[1]) < self.size

    def index(self, name: str, *_: Any) -> int:
        """Return the position of a name; raise ValueError where there is none."""
        if name not in self:
            raise ValueError(f"{name!r} is none of f0 to f{self.size - 1}")
        return int(name[1:])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumberedNames):
            return self.size == other.size
        return isinstance(other, tuple) and len(other) == self.size and all(map(str.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(("f", self.size))


def names_to_data(names: Sequence[str]) -> Any:
    """Return the names of features as JSON holds them."""
    return {"numbered": len(names)} if isinstance(names, NumberedNames) else list(names)


def names_from_data(data: Any) -> Sequence[str]:
    """Return the names that `names_to_data` was called on."""
    return NumberedNames(data["numbered"]) if isinstance(data, dict) else tuple(data)


@contextmanager
def _open_csv(location: Location) -> Iterator[_Table]:
    """Give a table of which every column has the type that all its values have.

    Arrow takes 0x10 for a whole number where it looks for types, and for none where it is told to read numbers, as
    `predict` does: such a column is text.
    """
    digits = re.compile(rb"0[xX]")
    before, found = b"", False

    def look(part: Any) -> Any:
        nonlocal before, found
        found = found or digits.search(before + bytes(part)) is not None
        before = bytes(part)[-1:]
        return part

    def read(**how: Any) -> pa.Table:
        with location.filesystem.open_input_stream(location.path) as stream:
            return pyarrow.csv.read_csv(
                pa.TransformInputStream(stream, look),
                parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
                convert_options=pyarrow.csv.ConvertOptions(**how),
            )

    location.size()
    delimiter = delimiter_of(location)
    table = read()
    whole = [field.name for field in table.schema if pa.types.is_integer(field.type)] if found else []
    if whole and len(set(table.column_names)) == table.num_columns:
        for name, text in zip(
            whole, read(include_columns=whole, column_types=dict.fromkeys(whole, pa.string())).columns, strict=True
        ):
            if pc.any(pc.match_substring_regex(text, "^\\s*[+-]?0[xX]")).as_py():
                table = table.set_column(table.schema.get_field_index(name), name, text)
    yield _Table.of(table)


@contextmanager
def _open_ipc(location: Location) -> Iterator[_Table]:
    """Give a table of which one record batch at a time is read."""
    with arrow_source(location) as source:
        schema = pa.ipc.open_file(source).schema
        if not len(schema):
            raise ValueError("it has no columns")

        def read(names: list[str]) -> pa.Table:
            fields = sorted(map(schema.get_field_index, names))
            held = [sound(batch) for _, _, batch in arrow_batches(source, fields)]
            return pa.Table.from_batches(held).select(names) if held else schema.empty_table().select(names)

        def batches(rows: int) -> Iterator[pa.RecordBatch]:
            for _, _, batch in arrow_batches(source):
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

        n = sum(batch.num_rows for _, _, batch in arrow_batches(source, [0]))
        yield _Table(schema, n, read, batches)


_TABLES: dict[str, Callable[[Location], AbstractContextManager[_Table]]] = {
    ".parquet": _open_parquet,
    ".csv": _open_csv,
    ".arrow": _open_ipc,
    ".feather": _open_ipc,
}

READERS: dict[str, Callable[[Location, DatasetConfig, str], Columns]] = {
    **dict.fromkeys(_TABLES, read_table),
    **dict.fromkeys(LIBSVM, read_libsvm),
}
"""Endings of files and the reader of each."""
