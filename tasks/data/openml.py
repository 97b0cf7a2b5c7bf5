"""OpenML data sets: fetched once by scikit-learn, kept below the store, and checked whenever they are read."""

from __future__ import annotations

import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from sklearn.datasets import fetch_openml

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DatasetConfig

from ..store import keep, kept, store_path
from .locations import TransferError

DEFAULT_TARGET = DatasetConfig.model_fields["target"].default
"""A configuration that leaves the target at this takes the one that OpenML names."""

SILENT_SECONDS = 30
"""How long OpenML may stay silent during a request."""

RETRIES = 1
"""How often scikit-learn sends a request again; tasks try again after that."""

TABLE = "data.parquet"

TARGETS = b"learnkernels.targets"
"""Entry of the metadata of the table: the columns that OpenML names as targets, one a line."""

AS_TABLES_ARE_READ = {"dtype": None, "low_memory": False}
"""For pandas: categories that are numbers are numbers, as in a file. By default scikit-learn 1.9 fails at such
categories with pandas 3.1."""

_FETCHING = threading.Lock()


def read_openml(config: DatasetConfig, where: str, tell: Callable[[str], None]) -> tuple[pa.Table, str, str]:
    """Return an OpenML data set, from what is kept of an earlier use where there is that, its name, and its target.

    Parameters
    ----------
    config : DatasetConfig
        With the name and the version of the set.
    where : str
        The data set, for sentences.
    tell : callable
        Is given a sentence where what is kept is damaged, and what OpenML itself warns about.

    Raises
    ------
    TransferError
        The set is not kept whole, and OpenML cannot be reached or sends something else.
    InputError
        OpenML has no such set, or the set does not suit the configuration.

    Notes
    -----
    Where the target is left at its default, the target of the set is called ``target``, also in `where`, unless another
    column is. The table lies in ``store/openml/<name>-<version>/data.parquet``.
    """
    wanted, version = str(config.name), int(config.version or 0)
    folder = store_path("openml", f"{wanted.lower()}-{version}")
    lack = "is damaged" if folder.exists() else "is missing"
    if kept(folder, tell):
        table = pyarrow.parquet.read_table(folder / TABLE)
    else:
        lacking = f"{where}: the copy of set {wanted!r}, version {version}, in {folder} {lack}"
        table = _fetch(wanted, version, where, lacking, tell)
        with keep(folder) as aside:
            pyarrow.parquet.write_table(table, aside / TABLE, compression="zstd")
    targets = table.schema.metadata[TARGETS].decode().splitlines()
    name, target = f"set {config.name!r} of OpenML", config.target
    if target == DEFAULT_TARGET:
        if len(targets) != 1:
            held = f"the targets {', '.join(targets)}" if targets else "no target of its own"
            raise InputError(f"{where}: {name} has {held}; name one column with 'target'.")
        if target in table.column_names:
            (target,) = targets
        else:
            table = table.rename_columns([target if held in targets else held for held in table.column_names])
    return table, name, target


def _fetch(name: str, version: int, where: str, lacking: str, tell: Callable[[str], None]) -> pa.Table:
    with (
        _patience(),
        warnings.catch_warnings(record=True) as caught,
        tempfile.TemporaryDirectory(prefix="learnkernels-openml-") as downloads,
    ):
        warnings.simplefilter("always")
        try:
            bunch = fetch_openml(
                name,
                version=version,
                data_home=downloads,
                as_frame=True,
                parser="pandas",
                read_csv_kwargs=AS_TABLES_ARE_READ,
                n_retries=RETRIES,
            )
        except (OSError, EOFError, HTTPException) as error:
            raise TransferError(
                f"{lacking}, and OpenML cannot be reached ({_reason(error)}); start again with a network, or give "
                "the set as a file with 'source: file'."
            ) from None
        except (ValueError, KeyError) as error:
            raise _explanation(error, name, version, where) from None
    for warning in caught:
        if "network error" not in str(warning.message) and "Invalid cache" not in str(warning.message):
            tell(f"{where}: {str(warning.message).splitlines()[0]}")
    table = pa.Table.from_pandas(bunch.frame, preserve_index=False)
    for i, field in enumerate(table.schema):  # single quotes around texts are no part of a category
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            table = table.set_column(i, field.name, pc.replace_substring_regex(table.column(i), "^'(.*)'$", "\\1"))
    return table.replace_schema_metadata({TARGETS: "\n".join(bunch.target_names)})


@contextmanager
def _patience() -> Iterator[None]:
    """Let no request of scikit-learn, which sets no limit itself, wait forever; one fetch at a time."""
    with _FETCHING:
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(SILENT_SECONDS if before is None else before)
        try:
            yield
        finally:
            socket.setdefaulttimeout(before)


def _explanation(error: Exception, name: str, version: int, where: str) -> InputError:
    reason = str(error).splitlines()[0][:200].rstrip(".") if str(error) else type(error).__name__
    if "not found" in reason:
        return InputError(f"{where}: OpenML has no set {name!r} of version {version}; correct 'name' or 'version'.")
    if "Sparse ARFF" in reason:
        return InputError(
            f"{where}: set {name!r} of OpenML is sparse, which is not supported; give it as a LIBSVM file with "
            "'source: file'."
        )
    if "checksum" in reason:
        return TransferError(
            f"{where}: what arrived of set {name!r} does not have the checksum that OpenML states; start again, or "
            "give the set as a file with 'source: file'."
        )
    return InputError(
        f"{where}: set {name!r}, version {version}, of OpenML cannot be used ({reason}); give it as a file with "
        "'source: file'."
    )


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"it answers with status {error.code}"
    reason: Any = getattr(error, "reason", None) or error
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return str(text).splitlines()[0].rstrip(".")
