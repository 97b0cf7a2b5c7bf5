"""Tables in files of every format, and data sets read from them."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from sklearn.datasets import dump_svmlight_file

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data.dataset import Dataset
from learnkernels.tasks.data.ingest import load_source
from tests.refusals import require_refusals

ENDINGS = (".parquet", ".csv", ".feather", ".arrow")


def config(path: Any, **keys: Any) -> DatasetConfig:
    return DatasetConfig.of({"source": "file", "path": path, **keys})


def load(
    folder: Path,
    path: Any,
    seed: int = 0,
    tell: Callable[[str], object] | None = None,
    **keys: Any,
) -> Dataset:
    """Read a data set from a folder; a warning is an error unless `tell` takes it."""
    return load_source(
        config(path, **keys),
        str(folder),
        seed,
        **({} if tell is None else {"tell": tell}),
    )


def write(
    table: pd.DataFrame | pa.Table | str,
    path: Path,
    rows: int = 1000,
    packed: str | None = None,
) -> str:
    """Write a table in pieces of `rows` rows, in the format of the ending, or a text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_frame = isinstance(table, pd.DataFrame)
    if isinstance(table, str):
        path.write_text(table)
    elif path.suffix == ".libsvm":
        dump_svmlight_file(
            table.drop(columns="target"), table["target"], str(path), zero_based=False
        )
    elif path.suffix == ".csv":
        table.to_csv(path, index=False) if is_frame else pa.csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        content = pa.Table.from_pandas(table) if is_frame else table
        pa.parquet.write_table(content, path, rows, compression=packed or "snappy")
    else:
        compression = packed or ("lz4" if path.suffix == ".feather" else "uncompressed")
        pa.feather.write_feather(table, str(path), compression, chunksize=rows)
    return str(path)


def read(
    folder: Path,
    table: pd.DataFrame | pa.Table | str,
    name: str = "data.parquet",
    **keys: Any,
) -> Dataset:
    """Write a table, and return the data set that is read from it."""
    write(table, folder / name)
    return load(folder, name, **keys)


def require_refused(
    folder: Path, files: Iterable[tuple[str, Any, dict[str, Any], str]]
) -> list[str]:
    """Return the messages of files that must be refused; report every other file.

    A row holds the name of the file, its content or None, the keys and the pattern.
    """
    table = []
    for i, (name, content, keys, pattern) in enumerate(files):
        if content is not None:
            write(content, folder / str(i) / name)
        table.append((partial(load, folder / str(i), name, **keys), pattern))
    return require_refusals(table, error=InputError)


def require_equal(actual: Dataset, expected: Dataset) -> None:
    """Fail unless two data sets have equal features, targets and sample columns."""
    assert actual.features == expected.features
    assert actual.target.task == expected.target.task
    assert actual.target.classes == expected.target.classes
    np.testing.assert_array_equal(actual.target.values, expected.target.values)
    assert actual.sample_columns.keys() == expected.sample_columns.keys()
    for name, values in expected.sample_columns.items():
        np.testing.assert_array_equal(actual.sample_columns[name], values, err_msg=name)
