"""Tables in files of every format, data sets read from them, and tables of what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data.dataset import Dataset
from learnkernels.tasks.data.ingest import load_source

ENDINGS = (".parquet", ".csv", ".feather", ".arrow")


def config(path: Any, **keys: Any) -> DatasetConfig:
    return DatasetConfig.model_validate({"source": "file", "path": path, **keys})


def load(folder: Path, path: Any, seed: int = 0, tell: Callable[[str], object] | None = None, **keys: Any) -> Dataset:
    """Read a data set from a folder; a warning is an error unless `tell` takes it."""
    return load_source(config(path, **keys), str(folder), seed, **({} if tell is None else {"tell": tell}))


def write(table: pd.DataFrame | pa.Table, path: Path, rows: int = 1000) -> str:
    """Write a table in pieces of so many rows, in the format that the ending names, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        table.to_csv(path, index=False) if isinstance(table, pd.DataFrame) else pa.csv.write_csv(table, path)
        return str(path)
    content = pa.Table.from_pandas(table) if isinstance(table, pd.DataFrame) else table
    if path.suffix == ".parquet":
        pa.parquet.write_table(content, path, row_group_size=rows)
    else:
        compression = "lz4" if path.suffix == ".feather" else "uncompressed"
        pa.feather.write_feather(content, str(path), compression, chunksize=rows)
    return str(path)


def require_equal(one: Dataset, other: Dataset) -> None:
    """Fail unless two data sets have the same features, target, groups, times and weights."""
    assert one.features == other.features
    assert one.class_weight == other.class_weight
    assert (one.target.task, one.target.classes) == (other.target.task, other.target.classes)
    np.testing.assert_array_equal(one.target.values, other.target.values)
    assert one.beside.keys() == other.beside.keys()
    for name, values in other.beside.items():
        np.testing.assert_array_equal(one.beside[name], values, err_msg=name)


def require_refusals(table: Iterable[tuple[Callable[[], object], str]]) -> list[str]:
    """Fail with every row of a table whose call is not refused by one line that matches its pattern; return the lines.

    Only an `InputError` itself refuses, and none of its kinds.
    """
    told, failures = [], []
    for act, pattern in table:
        try:
            act()
        except InputError as error:
            told.append(str(error))
            if type(error) is not InputError or "\n" in told[-1] or not re.search(pattern, told[-1]):
                failures.append(f"{pattern!r}: {error!r}")
        else:
            failures.append(f"{pattern!r}: nothing was refused")
    assert told or failures, "the table has no rows"
    assert not failures, "\n".join(failures)
    return told
