"""Readers of data sources, one function a format; each gives rows, the target and the names of the features."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from sklearn import datasets as bundled

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data.locations import Location
from learnkernels.tasks.data.text import count_ngrams

Columns = tuple[Any, Any, tuple[str, ...]]
"""X (n, d) dense or CSR float64, y (an Arrow column or an array), feature names."""

BATCH_BYTES = 16 << 20
"""What is taken from a table at a time, as numbers of eight bytes."""

READ_BYTES = 64 << 20
"""Read ahead of a Parquet file of this machine, over all its columns."""


def read_bundled(name: str) -> Columns:
    """Return one of the data sets that come with scikit-learn."""
    loader = getattr(bundled, f"load_{name}")
    raw = loader()
    labels = getattr(raw, "target_names", None)
    y = raw.target
    if labels is not None and y.ndim == 1 and y.dtype.kind in "iu" and len(labels) == len(np.unique(y)):
        y = np.asarray([str(label) for label in labels])[y]
    return np.asarray(raw.data, dtype=np.float64), y, tuple(str(feature) for feature in raw.feature_names)


def read_table(location: Location, config: DatasetConfig, where: str) -> Columns:
    """Return a table that Arrow reads: Parquet, CSV, Arrow IPC or Feather.

    Raises
    ------
    InputError
        The file is damaged, lacks a column that the configuration names, or has a feature that is not a number.
    """
    try:
        with _TABLES[location.suffix](location) as table:
            return _columns_of(table, config, config.target, location.name, where)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0][:160]
        raise InputError(f"{where}: {location.name} cannot be read as {location.suffix[1:]} ({reason}).") from None


@dataclass(frozen=True)
class _Table:
    """A table of which columns, or all rows one run after the other, are read when they are asked for.

    Attributes
    ----------
    schema : pyarrow.Schema
    num_rows : int
    select : callable
        Return some columns as a table.
    batches : callable
        Return the record batches of all columns, of at most so many rows each.
    """

    schema: pa.Schema
    num_rows: int
    select: Callable[[list[str]], pa.Table]
    batches: Callable[[int], Iterable[pa.RecordBatch]]

    @classmethod
    def of(cls, table: pa.Table) -> _Table:
        """Return a table that is in memory, or mapped."""
        return cls(table.schema, table.num_rows, table.select, lambda rows: table.to_batches(max_chunksize=rows))


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
    with _TABLES[location.suffix](location) as table:
        kept = _rows_with(table.select(list(config.where)), config.where, "where", where) if config.where else None
        held_out = _rows_with(_only(table.select(list(config.test)), kept), config.test, "test", where)
    if held_out is None:
        raise InputError(f"{where}: every row has the values of 'test', so none is left to learn from; name fewer.")
    return held_out


def _columns_of(table: _Table, config: DatasetConfig, target: str, name: str, where: str) -> Columns:
    names = table.schema.names
    refuse_repeated(names, f"{where}: {name} has column {{}} more than once; rename one.")
    named = {
        "target": [target],
        "drop": config.drop,
        "where": config.where,
        "test": config.test,
        "ngrams": config.ngrams.columns if config.ngrams else (),
        "bytes": [config.bytes] if config.bytes else (),
    }
    for key, columns in named.items():
        for column in columns:
            if column not in names:
                shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
                raise InputError(f"{where}: {key} {column!r} is not a column of {name}; it has {shown}.")
    kept = _rows_with(table.select(list(config.where)), config.where, "where", where) if config.where else None
    y = _only(table.select([target]), kept)[target].combine_chunks()
    if config.ngrams is not None and len(y):
        X, ngrams = count_ngrams(_only(table.select(names), kept), config.ngrams, where)
        return X, y, ngrams
    features = [column for column in names if column not in {target, *config.drop, *config.where, *config.test}]
    if not features or not len(y):
        raise InputError(
            f"{where}: {name} leaves {len(y)} rows and {len(features)} feature columns; "
            "at least two rows and one column are needed."
        )
    X, expanded = _numeric(table, features, kept, config, where)
    return X, y, expanded


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
    if not (pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
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
        column = _only(table.select([name]), kept)[name]
        example = next((value.as_py() for value in column if value.is_valid), None)
        binary = pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        way = f"take each byte as a feature with 'bytes: {name}'," if binary else "encode it as numbers"
        raise InputError(
            f"{where}: column {name!r} is not numeric ({kind}, such as {str(example)[:40]!r}); {way} or leave it out "
            f"with 'drop: [{', '.join([*drop, name])}]'."
        )


def read_libsvm(location: Location, config: DatasetConfig, where: str) -> Columns:
    """Return a LIBSVM / SVMlight text: sparse rows, the target first on each line."""
    for key in ("drop", "where", "test", "ngrams", "bytes"):
        if getattr(config, key):
            raise InputError(f"{where}: {key!r} does not go with {location.name}, whose columns have no names.")
    try:
        with io.BufferedReader(location.open_input()) as lines:
            X, y = bundled.load_svmlight_file(lines, dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{where}: {location.name} cannot be read as LIBSVM text ({error}).") from None
    return X, y, tuple(f"f{c}" for c in range(X.shape[1]))


@contextmanager
def _open_csv(location: Location) -> Iterator[_Table]:
    yield _Table.of(pyarrow.csv.read_csv(location.open_input() if location.remote else location.path))


@contextmanager
def _open_ipc(location: Location) -> Iterator[_Table]:
    source = location.open_input() if location.remote else location.path
    yield _Table.of(pyarrow.feather.read_table(source, memory_map=True))


_TABLES: dict[str, Callable[[Location], AbstractContextManager[_Table]]] = {
    ".parquet": _open_parquet,
    ".csv": _open_csv,
    ".arrow": _open_ipc,
    ".feather": _open_ipc,
}

READERS: dict[str, Callable[[Location, DatasetConfig, str], Columns]] = {
    **dict.fromkeys(_TABLES, read_table),
    ".libsvm": read_libsvm,
    ".svm": read_libsvm,
    ".svmlight": read_libsvm,
}
"""Endings of files and the reader of each."""
