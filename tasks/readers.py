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
from tasks.locations import Location

Columns = tuple[Any, Any, tuple[str, ...]]
"""X (n, d) dense or CSR float64, y (an Arrow column or an array), feature names."""


def read_bundled(name: str) -> Columns:
    """Return one of the data sets that come with scikit-learn."""
    loader = getattr(bundled, f"load_{name}")
    raw = loader()
    labels = getattr(raw, "target_names", None)
    y = raw.target
    if labels is not None and y.ndim == 1 and y.dtype.kind in "iu" and len(labels) == len(np.unique(y)):
        y = np.asarray([str(label) for label in labels])[y]
    return np.asarray(raw.data, dtype=np.float64), y, tuple(str(feature) for feature in raw.feature_names)


def read_table(location: Location, target: str, drop: tuple[str, ...], where: str) -> Columns:
    """Return a table that Arrow reads: Parquet, CSV, Arrow IPC or Feather.

    Raises
    ------
    InputError
        The file is damaged, lacks the target or a dropped column, or has a feature that is not a number.
    """
    try:
        table = _TABLES[location.suffix](location.open_input() if location.remote else location.path)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0][:160]
        raise InputError(f"{where}: {location.name} cannot be read as {location.suffix[1:]} ({reason}).") from None
    for column, key in ((target, "target"), *((name, "drop") for name in drop)):
        if column not in table.column_names:
            shown = ", ".join(table.column_names[:12]) + (", ..." if len(table.column_names) > 12 else "")
            raise InputError(f"{where}: {key} {column!r} is not a column of {location.name}; it has {shown}.")
    y = table[target]
    features = table.drop_columns([target, *(name for name in drop if name != target)])
    if not features.num_columns or not features.num_rows:
        raise InputError(
            f"{where}: {location.name} leaves {features.num_rows} rows and {features.num_columns} feature columns; "
            "at least two rows and one column are needed."
        )
    X = np.empty((features.num_rows, features.num_columns))
    for c, name in enumerate(features.column_names):
        X[:, c] = _numbers(features[name], name, where, drop)
    return X, y.combine_chunks(), tuple(features.column_names)


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column of this type can be a feature."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def to_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of numbers as float64, shape (m,); what is missing becomes NaN."""
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _numbers(column: pa.ChunkedArray, name: str, where: str, drop: tuple[str, ...]) -> np.ndarray:
    if not is_number(column.type):
        example = next((value for value in column.to_pylist() if value is not None), None)
        raise InputError(
            f"{where}: column {name!r} is not numeric ({column.type}, such as {str(example)[:40]!r}); encode it as "
            f"numbers or leave it out with 'drop: [{', '.join([*drop, name])}]'."
        )
    return to_numbers(column)


def read_libsvm(location: Location, target: str, drop: tuple[str, ...], where: str) -> Columns:
    """Return a LIBSVM / SVMlight text: sparse rows, the target first on each line."""
    if drop:
        raise InputError(f"{where}: 'drop' does not go with {location.name}, whose columns have no names.")
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

READERS: dict[str, Callable[[Location, str, tuple[str, ...], str], Columns]] = {
    **dict.fromkeys(_TABLES, read_table),
    ".libsvm": read_libsvm,
    ".svm": read_libsvm,
    ".svmlight": read_libsvm,
}
"""Endings of files and the reader of each."""
