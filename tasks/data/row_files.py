"""Rows in Arrow files, here or where other machines see them: written by batches, read in runs by who needs them."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from distributed import Worker, get_worker

from learnkernels.conf.errors import InputError
from learnkernels.conf.files import is_remote
from learnkernels.kernels.engine.workers import RowSource
from learnkernels.tasks.data.locations import Location, TransferError, explained, locate, transferring, written
from learnkernels.tasks.store import atomic_path, store_path, temporary_folder

Result = TypeVar("Result")

BATCH_BYTES = 1 << 20
"""Size of a record batch: of what is read, at most so much at either end was not requested."""

PART_BYTES = 64 << 20
"""Size of a file of rows for workers on other machines: large enough for a server of objects, small enough to hold."""

PAUSES = (1, 2, 4, 8, 16, 32)
"""Seconds to wait before a request to an object store is repeated: it may be away for a minute."""


@dataclass(frozen=True)
class RowFile:
    """Dense rows in an Arrow IPC file of one column; only path, shape and type travel between processes.

    Attributes
    ----------
    path : str
    shape : tuple of int
        (m, d).
    dtype : numpy.dtype
        float64 or float32.

    Notes
    -----
    The column is a FixedSizeList of d values. Batches are read, not mapped: pages of a mapped file count as memory of
    the process, by which Dask judges its workers.
    """

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @classmethod
    def write(cls, path: Path, rows: RowSource) -> RowFile:
        """Write dense rows, whole or not at all, with one batch of them in memory."""
        m, step = rows.shape[0], _rows_of(BATCH_BYTES, rows.shape[1], rows.dtype)
        blocks = (np.asarray(rows[start : min(start + step, m)]) for start in range(0, m, step))
        return cls.of_blocks(path, blocks, rows.shape[1], rows.dtype)

    @classmethod
    def of_blocks(cls, path: Path, blocks: Iterable[np.ndarray], d: int, dtype: np.dtype[Any]) -> RowFile:
        """Write dense rows that come in blocks of any size, whole or not at all, as `write` does."""
        schema = pa.schema([pa.field("row", pa.list_(pa.from_numpy_dtype(dtype), d), nullable=False)])
        m = 0
        with atomic_path(path, lasting=False) as temporary, pa.ipc.new_file(str(temporary), schema) as writer:
            for block in _of_equal_length(blocks, _rows_of(BATCH_BYTES, d, dtype)):
                batch = np.ascontiguousarray(block, dtype=dtype)
                column = pa.FixedSizeListArray.from_arrays(pa.array(batch.reshape(-1)), d)
                writer.write_batch(pa.record_batch([column], schema=schema))
                m += len(batch)
        return cls(str(path), (m, d), dtype)

    def __getitem__(self, rows: slice | np.ndarray, /) -> np.ndarray:
        """Return a run of rows, or those at some positions, shape (a, d); the file is not kept open.

        The caller is the only owner of what is returned.
        """
        m, d = self.shape
        at = positions(rows, m)
        taken = np.empty((len(at), d), self.dtype)
        starts = np.arange(0, max(1, m), _rows_of(BATCH_BYTES, d, self.dtype))
        with pa.OSFile(self.path) as source:
            reader = pa.ipc.open_file(source)
            for b, these, within in by_chunk(at, starts):
                # Not by to_numpy, which would load pandas into every worker.
                values = reader.get_batch(b).column(0).values.buffers()[1]
                taken[these] = np.frombuffer(values, self.dtype).reshape(-1, d)[within]
        return taken


class RowsInFiles(ABC):
    """Dense rows in several `RowFile`s, one after the other.

    Attributes
    ----------
    shape : tuple of int
        (m, d).
    dtype : numpy.dtype
    """

    shape: Any
    dtype: Any

    @property
    @abstractmethod
    def starts(self) -> np.ndarray:
        """Position of the first row of each file, ascending from 0."""

    @abstractmethod
    def _file(self, part: int) -> RowFile:
        """Return a file, which is made or fetched if missing."""

    def __getitem__(self, rows: slice | np.ndarray, /) -> np.ndarray:
        """Return a run of rows, or those at some positions, shape (a, d), of which the caller is the only owner.

        Raises
        ------
        InputError
            A file cannot be made or fetched, for a minute.
        """
        at = positions(rows, self.shape[0])
        taken = np.empty((len(at), self.shape[1]), self.dtype)
        for part, these, within in by_chunk(at, self.starts):
            taken[these] = self._file(part)[within]
        return taken


@dataclass(frozen=True)
class RowParts(RowsInFiles):
    """Dense rows in files of a place that workers on other machines see, where each reads those that its tasks need.

    Attributes
    ----------
    place : str
        A folder that all see, or ``s3://bucket/prefix``, whose last two parts name the run and the rows.
    shape : tuple of int
        (m, d).
    dtype : numpy.dtype
        float64 or float32.
    part_rows : int
        Rows of every part but the last.

    Notes
    -----
    A part is a `RowFile` of at most `PART_BYTES`. An object is copied, whole and once, to the folder that Dask gives a
    worker on its own disk, and read there in runs: rows cross the network once, and take no memory.
    """

    place: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    part_rows: int

    @classmethod
    def write(cls, place: str, rows: RowSource) -> RowParts:
        """Write dense rows, with one part of them in memory.

        Raises
        ------
        InputError
            The place cannot be written to.
        """
        (m, d), size = rows.shape, _rows_of(PART_BYTES, rows.shape[1], rows.dtype)
        parts = cls(place, (m, d), rows.dtype, size)
        for part, start in enumerate(range(0, m, size)):
            with written(locate(parts._address(part))) as temporary:
                RowFile.write(temporary, np.asarray(rows[start : min(start + size, m)]))
        return parts

    def _address(self, part: int) -> str:
        return f"{self.place}/{part:05d}.arrow"

    @property
    def starts(self) -> np.ndarray:
        """Position of the first row of each part."""
        return np.arange(0, max(1, self.shape[0]), self.part_rows)

    def _file(self, part: int) -> RowFile:
        (m, d), size, address = self.shape, self.part_rows, self._address(part)
        path = str(_copied(address)) if is_remote(address) else address
        return RowFile(path, (min(size, m - part * size), d), self.dtype)

    def unseen(self) -> str:
        """Return why this process cannot read the first part, as one sentence; empty where it can."""
        location = locate(self._address(0))
        try:
            with transferring(location), location.open_input():
                return ""
        except InputError as error:
            return str(error)


def _rows_of(n_bytes: int, d: int, dtype: np.dtype[Any]) -> int:
    """Return how many rows take so many bytes, one at least."""
    return max(1, n_bytes // (d * dtype.itemsize))


def _of_equal_length(blocks: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Give the rows of blocks in blocks of one size; the last may be smaller."""
    held: list[np.ndarray] = []
    n = 0
    for block in blocks:
        held.append(block)
        n += len(block)
        if n >= size:
            rows = held[0] if len(held) == 1 else np.concatenate(held)
            whole = n - n % size
            yield from (rows[start : start + size] for start in range(0, whole, size))
            held, n = [rows[whole:]], n - whole
    if n:
        yield np.concatenate(held)


def positions(rows: slice | np.ndarray, m: int) -> np.ndarray:
    """Return the positions of a run of m rows, or those that are given."""
    return np.arange(*rows.indices(m)) if isinstance(rows, slice) else np.asarray(rows)


def by_chunk(at: np.ndarray, starts: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Give each chunk of rows, by where they start, that some positions lie in, which of them, and where within it."""
    of = np.searchsorted(starts, at, side="right") - 1
    order = np.argsort(of, kind="stable")
    chunks, firsts = np.unique(of[order], return_index=True)
    for chunk, these in zip(chunks.tolist(), np.split(order, firsts[1:]), strict=False):  # of no rows no chunk
        yield chunk, these, at[these] - starts[chunk]


def content_digest(rows: RowSource) -> str:
    """Return a short name of the values of dense rows, of which a part at a time is in memory."""
    (m, d), size = rows.shape, _rows_of(PART_BYTES, rows.shape[1], rows.dtype)
    sha = hashlib.sha256(f"{m} {d} {rows.dtype}".encode())
    for start in range(0, m, size):
        sha.update(np.ascontiguousarray(rows[start : min(start + size, m)]).data)
    return sha.hexdigest()[:20]


def _copied(address: str) -> Path:
    """Return where the copy of an object lies on this machine, made if missing."""
    path = copies() / Path(*address.split("/")[-3:])
    if not path.exists():
        patiently(lambda: _copy(locate(address), path))
    return path


def patiently(fetch: Callable[[], Result]) -> Result:
    """Return what a function returns, which is repeated for a minute where a server may be away.

    Raises
    ------
    TransferError
        Still, after that.
    """
    for pause in PAUSES:
        try:
            return fetch()
        except TransferError:
            time.sleep(pause)
    return fetch()


def _copy(location: Location, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        transferring(location),
        location.open_input() as source,
        atomic_path(path, lasting=False) as temporary,
        temporary.open("wb") as target,
    ):
        shutil.copyfileobj(source, target, BATCH_BYTES)


def copies() -> Path:
    """Return the folder for copies: of the Dask worker that runs this task, or of this process; it goes with these."""
    try:
        return Path(get_worker().local_directory)
    except ValueError:
        return Path(_of_this_process().name)


@cache
def _of_this_process() -> tempfile.TemporaryDirectory[str]:
    parent = store_path("rows")
    parent.mkdir(parents=True, exist_ok=True)
    return temporary_folder(parent)


def forget_copies(run: str, dask_worker: Worker) -> None:
    """Remove the copies that a worker has made for a run."""
    shutil.rmtree(Path(dask_worker.local_directory) / run, ignore_errors=True)


def remove(place: str) -> None:
    """Remove all parts of a run at a place.

    Raises
    ------
    InputError, OSError
        The place cannot be changed.
    """
    if is_remote(place):
        location = locate(place)
        with explained(location):
            location.filesystem.delete_dir(location.path)
    else:
        shutil.rmtree(place)
