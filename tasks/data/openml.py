"""OpenML data sets, downloaded and cached by scikit-learn."""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

import pyarrow as pa
import pyarrow.compute as pc
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DatasetConfig

from ..environment import state_dir
from .locations import TransferError

DEFAULT_TARGET = DatasetConfig.model_fields["target"].default
"""Default target in a configuration, which means OpenML's own target."""

SILENT_SECONDS = 30

RETRIES = 1

AS_TABLES_ARE_READ = {"dtype": None, "low_memory": False}
"""Read numeric categories as numbers: scikit-learn 1.9 fails with pandas 3.1."""

_FETCHING = threading.Lock()


def read_openml(
    config: DatasetConfig, where: str, tell: Callable[[str], None]
) -> tuple[pa.Table, str, str]:
    """Read an OpenML data set from the cache, or download it."""
    bunch = _fetch(config, where, tell)
    table = pa.Table.from_pandas(bunch.frame, preserve_index=False)
    # OpenML quotes some categories
    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            texts = pc.replace_substring_regex(
                table.column(position), "^'(.*)'$", "\\1"
            )
            table = table.set_column(position, field.name, texts)
    name = f"set {config.name!r} of OpenML"
    if config.target != DEFAULT_TARGET:
        return table, name, config.target
    targets = bunch.target_names
    if len(targets) != 1:
        description = "no target of its own"
        if targets:
            description = f"the targets {', '.join(targets)}"
        raise InputError(
            f"{where}: {name} has {description}; name one column with 'target'."
        )
    if DEFAULT_TARGET in table.column_names:
        return table, name, targets[0]
    return table.rename_columns({targets[0]: DEFAULT_TARGET}), name, DEFAULT_TARGET


def _fetch(config: DatasetConfig, where: str, tell: Callable[[str], None]) -> Bunch:
    with _limited_silence(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            bunch = fetch_openml(
                str(config.name),
                version=int(config.version or 0),
                data_home=state_dir(),
                as_frame=True,
                parser="pandas",
                read_csv_kwargs=AS_TABLES_ARE_READ,
                n_retries=RETRIES,
            )
        except (OSError, EOFError, HTTPException) as error:
            raise TransferError(
                f"{where}: {state_dir() / 'openml'} has no copy of set {config.name!r}, version {config.version}, and "
                f"OpenML cannot be reached ({_reason(error)}); start again with a network, or give the set as a file "
                "with 'source: file'."
            ) from None
        except (ValueError, KeyError) as error:
            raise _explanation(error, config, where) from None
    for warning in caught:
        if "network error" not in str(warning.message):
            tell(f"{where}: {str(warning.message).splitlines()[0]}")
    return bunch


@contextmanager
def _limited_silence() -> Iterator[None]:
    """Set a timeout for scikit-learn's requests; fetch one at a time."""
    with _FETCHING:
        before = socket.getdefaulttimeout()
        if before is None:
            socket.setdefaulttimeout(SILENT_SECONDS)
        try:
            yield
        finally:
            socket.setdefaulttimeout(before)


def _explanation(error: Exception, config: DatasetConfig, where: str) -> InputError:
    name = config.name
    lines = str(error).splitlines() or [type(error).__name__]
    reason = lines[0][:200].rstrip(".")
    if "not found" in reason:
        return InputError(
            f"{where}: OpenML has no set {name!r} of version {config.version}; correct 'name' or 'version'."
        )
    if "Sparse ARFF" in reason:
        return InputError(
            f"{where}: set {name!r} of OpenML is sparse, which is not supported; give it as a LIBSVM file with "
            "'source: file'."
        )
    if "checksum" in reason:
        return TransferError(
            f"{where}: the download of set {name!r} does not have the checksum that OpenML states; start again, or "
            "give the set as a file with 'source: file'."
        )
    return InputError(
        f"{where}: set {name!r}, version {config.version}, of OpenML cannot be used ({reason}); give it as a file with "
        "'source: file'."
    )


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"it answers with status {error.code}"
    reason: Any = getattr(error, "reason", None) or error
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return str(text).splitlines()[0].rstrip(".")
