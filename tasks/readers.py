"""Readers of data sources, one function a format; each gives rows, the target and the names of the features."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from sklearn import datasets as bundled

from conf.errors import InputError
from conf.schema import DatasetConfig
from tasks.locations import Location
from tasks.text import count_ngrams

Columns = tuple[Any, Any, tuple[str, ...]]
"""X (n, d) dense or CSR float64, y (an Arrow column or an array), feature names."""

NAMED = 5
"""How many values an error sentence names before it only counts."""


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
        table = _TABLES[location.suffix](location.open_input() if location.remote else location.path)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0][:160]
        raise InputError(f"{where}: {location.name} cannot be read as {location.suffix[1:]} ({reason}).") from None
    return table_columns(table, config, config.target, location.name, where)


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
    named = {
        "target": [target],
        "drop": config.drop,
        "where": config.where,
        "ngrams": config.ngrams.columns if config.ngrams else (),
        "bytes": [config.bytes] if config.bytes else (),
    }
    for key, columns in named.items():
        for column in columns:
            if column not in table.column_names:
                shown = ", ".join(table.column_names[:12]) + (", ..." if len(table.column_names) > 12 else "")
                raise InputError(f"{where}: {key} {column!r} is not a column of {name}; it has {shown}.")
    table = _rows_of(table, config, where)
    y = table[target].combine_chunks()
    if config.ngrams is not None and table.num_rows:
        X, ngrams = count_ngrams(table, config.ngrams, where)
        return X, y, ngrams
    features = table.drop_columns(list({target, *config.drop, *config.where}))
    if not features.num_columns or not features.num_rows:
        raise InputError(
            f"{where}: {name} leaves {features.num_rows} rows and {features.num_columns} feature columns; "
            "at least two rows and one column are needed."
        )
    X, names = _numeric(features, config, where)
    return X, y, names


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column of this type can be a feature."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def to_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of numbers as float64, shape (m,); what is missing becomes NaN."""
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _rows_of(table: pa.Table, config: DatasetConfig, where: str) -> pa.Table:
    """Return the rows whose columns hold one of the values asked for, compared as text."""
    kept = np.ones(table.num_rows, dtype=bool)
    for name, values in config.where.items():
        kind = table[name].type
        if pa.types.is_nested(kind):
            raise InputError(f"{where}: column {name!r} of 'where' is {kind}; name one of text or numbers.")
        column = table[name].combine_chunks()
        column = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
        held = [_text(value) for value in column.dictionary.to_pylist()]
        unknown = [value for value in values if value not in held]
        if unknown:
            raise InputError(
                f"{where}: no row has {_listed(unknown)} in column {name!r} of 'where'; it holds "
                f"{_listed(sorted({value for value in held if value is not None}))}."
            )
        wanted = np.array([*(value in values for value in held), False])  # the last one is that of missing values
        kept &= wanted[np.asarray(column.indices.cast(pa.int64()).fill_null(len(held)))]
    if not kept.any() and table.num_rows:
        raise InputError(f"{where}: no row has the values of 'where' in all its columns; take one of them out.")
    return table if kept.all() else table.filter(pa.array(kept))


def _text(value: Any) -> str | None:
    """Return a value as text; whole numbers without a point, as the target's are."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return None if value is None else str(value)


def _numeric(features: pa.Table, config: DatasetConfig, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the features of a table as one matrix, and their names."""
    expanded = None if config.bytes is None else _bytes(features[config.bytes], config.bytes, where)
    widths = [expanded.shape[1] if expanded is not None and c == config.bytes else 1 for c in features.column_names]
    X = np.empty((features.num_rows, sum(widths)))
    names: list[str] = []
    for name, width in zip(features.column_names, widths, strict=True):
        start = len(names)
        if expanded is not None and name == config.bytes:
            X[:, start : start + width] = expanded
            names += [f"{name}_{j}" for j in range(width)]
        else:
            X[:, start] = _numbers(features[name], name, where, config.drop)
            names.append(name)
    clash = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if expanded is not None and clash:
        raise InputError(
            f"{where}: column {sorted(clash)[0]!r} has the name of a feature that {config.bytes!r} becomes; rename it, "
            "or leave it out with 'drop'."
        )
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


def _numbers(column: pa.ChunkedArray, name: str, where: str, drop: tuple[str, ...]) -> np.ndarray:
    if not is_number(column.type):
        example = next((value.as_py() for value in column if value.is_valid), None)
        kind = column.type
        binary = pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        way = f"take each byte as a feature with 'bytes: {name}'," if binary else "encode it as numbers"
        raise InputError(
            f"{where}: column {name!r} is not numeric ({kind}, such as {str(example)[:40]!r}); {way} or leave it out "
            f"with 'drop: [{', '.join([*drop, name])}]'."
        )
    return to_numbers(column)


def _listed(values: list[str]) -> str:
    more = f", ... ({len(values)} values)" if len(values) > NAMED else ""
    return ", ".join(repr(value) for value in values[:NAMED]) + more


def read_libsvm(location: Location, config: DatasetConfig, where: str) -> Columns:
    """Return a LIBSVM / SVMlight text: sparse rows, the target first on each line."""
    for key in ("drop", "where", "ngrams", "bytes"):
        if getattr(config, key):
            raise InputError(f"{where}: {key!r} does not go with {location.name}, whose columns have no names.")
    try:
        with io.BufferedReader(location.open_input()) as lines:
            X, y = bundled.load_svmlight_file(lines, dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{where}: {location.name} cannot be read as LIBSVM text ({error}).") from None
    return X, y, tuple(f"f{c}" for c in range(X.shape[1]))


def _read_ipc(source: Any) -> pa.Table:
    return pyarrow.feather.read_table(source, memory_map=True)


_TABLES: dict[str, Callable[[Any], pa.Table]] = {
    ".parquet": pyarrow.parquet.read_table,
    ".csv": pyarrow.csv.read_csv,
    ".arrow": _read_ipc,
    ".feather": _read_ipc,
}

READERS: dict[str, Callable[[Location, DatasetConfig, str], Columns]] = {
    **dict.fromkeys(_TABLES, read_table),
    ".libsvm": read_libsvm,
    ".svm": read_libsvm,
    ".svmlight": read_libsvm,
}
"""Endings of files and the reader of each."""
