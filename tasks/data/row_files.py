"""Dense rows in files of blocks, read as needed."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from distributed import Worker, get_worker

from learnkernels.conf.errors import InputError
from learnkernels.conf.files import is_remote
from learnkernels.kernels.engine.workers import RowSource

from ..store import atomic_path, store_path, temporary_folder
from .locations import TransferError, explained, locate, transferring, written

BLOCK_BYTES = 64 << 20

READ_BYTES = 1 << 20

PAUSES = (1, 2, 4, 8, 16, 32)

Job = TypeVar("Job")
Result = TypeVar("Result")


class Readers(Protocol):
    @property
    def folder(self) -> str:
        """Folder to which workers write encoded rows; relative if each has its own."""

    def map(
        self, run: Callable[..., Result], jobs: Sequence[Any], **shared: Any
    ) -> list[Result]:
        """Call `run` on workers for each job; send the arguments `shared` only once."""


class Block(Protocol):
    """Block of consecutive rows that can be written to a local file."""

    @property
    def n_rows(self) -> int:
        pass

    def write_to(self, path: Path) -> None:
        """Write the block's rows to a file atomically, in C order."""


@dataclass(frozen=True)
class StoredBlock:
    address: str
    n_rows: int

    def write_to(self, path: Path) -> None:
        location = locate(self.address)
        with (
            transferring(location),
            location.open_input() as source,  # first: it may be missing
            atomic_path(path, lasting=False) as temporary,
            temporary.open("wb") as copy,
        ):
            shutil.copyfileobj(source, copy, READ_BYTES)


@dataclass(frozen=True)
class RowFiles:
    """Dense matrix of rows in files on disk, each with a block of consecutive rows.

    A relative `name` is below `folder`. `readers` read rows for a process without
    files.
    """

    blocks: tuple[Block, ...]
    n_features: int
    dtype: np.dtype[Any]
    name: str
    folder: str = ""
    extremes: np.ndarray | None = None
    readers: Readers | None = None

    ndim = 2

    @classmethod
    def write(cls, place: str, rows: RowSource) -> RowFiles:
        """Write a matrix to a folder in blocks of rows, piece by piece.

        The last two parts of `place`, a folder or ``s3://bucket/prefix``, name run and
        rows.
        """
        n_rows, n_features = rows.shape
        block_rows = rows_in(BLOCK_BYTES, n_features, rows.dtype)
        blocks: list[Block] = []
        for start in range(0, n_rows, block_rows):
            stop = min(start + block_rows, n_rows)
            block = StoredBlock(f"{place}/{len(blocks):05d}.rows", stop - start)
            with written(locate(block.address), lasting=False) as path:
                write_rows(path, runs_of(rows, start, stop))
            blocks.append(block)
        name = str(Path(place).absolute())
        if is_remote(place):
            name = "/".join(place.split("/")[-2:])
        return cls(tuple(blocks), n_features, rows.dtype, name)

    @cached_property
    def ends(self) -> np.ndarray:
        """Row numbers at which blocks end, after a leading zero."""
        return np.cumsum([0, *(block.n_rows for block in self.blocks)])

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.ends[-1]), self.n_features

    def __len__(self) -> int:
        return self.shape[0]

    def min(self, axis: int) -> np.ndarray:
        assert self.extremes is not None
        return np.array(self.extremes[0])

    def max(self, axis: int) -> np.ndarray:
        assert self.extremes is not None
        return np.array(self.extremes[1])

    def __getitem__(self, rows: slice | np.ndarray, /) -> np.ndarray:
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        positions = np.asarray(rows)
        result = np.empty((len(positions), self.n_features), self.dtype)
        by_block = list(grouped(positions, self.ends[:-1]))
        jobs = [(block, within) for block, _, within in by_block]
        for (_, places, _), values in zip(
            by_block, self._read_blocks(jobs), strict=True
        ):
            result[places] = values
        return result

    def _read_blocks(
        self, jobs: Sequence[tuple[int, np.ndarray]]
    ) -> Iterable[np.ndarray]:
        if self.readers is not None:
            return self.readers.map(_read_block, jobs, rows=replace(self, readers=None))
        return map(partial(_read_block, rows=self), jobs)

    def file_of(self, block: int) -> Path:
        """Return the local file of a block of rows; write it if missing."""
        path = folder_of_copies() / self.folder / self.name / f"{block:05d}.rows"
        if not path.exists():
            patiently(partial(self.blocks[block].write_to, path))
        return path

    def sentence_if_unseen(self) -> str:
        """Return why this process cannot read the row files; empty if it can."""
        block = self.blocks[0]
        assert isinstance(block, StoredBlock)
        location = locate(block.address)
        try:
            with transferring(location), location.open_input():
                return ""
        except InputError as error:
            return str(error)


def _read_block(job: tuple[int, np.ndarray], rows: RowFiles) -> np.ndarray:
    block, positions = job
    path = rows.file_of(block)
    values = np.empty((len(positions), rows.n_features), rows.dtype)
    run_rows = rows_in(READ_BYTES, rows.n_features, rows.dtype)
    run_values = run_rows * rows.n_features
    starts = np.arange(0, rows.blocks[block].n_rows, run_rows)
    for run, places, within in grouped(positions, starts):
        run_of_file = np.fromfile(
            path, rows.dtype, run_values, offset=run * run_values * rows.dtype.itemsize
        )
        values[places] = run_of_file.reshape(-1, rows.n_features)[within]
    return values


def rows_in(n_bytes: int, n_features: int, dtype: np.dtype[Any]) -> int:
    """Return the number of matrix rows that fit into `n_bytes`, at least one."""
    return max(1, n_bytes // (n_features * dtype.itemsize))


def runs_of(rows: RowSource, start: int, stop: int) -> Iterator[np.ndarray]:
    """Yield consecutive rows from `start` to `stop` in arrays of about `READ_BYTES`."""
    step = rows_in(READ_BYTES, rows.shape[1], rows.dtype)
    for first in range(start, stop, step):
        yield np.ascontiguousarray(
            rows[first : min(first + step, stop)], dtype=rows.dtype
        )


def write_rows(path: Path, runs: Iterable[np.ndarray]) -> None:
    with path.open("wb") as file:
        for run in runs:
            file.write(run.data)


def grouped(
    positions: np.ndarray, starts: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Group row numbers by the block that contains them.

    Yields the number of a block, indices into `positions`, and positions in the block.
    """
    block_of_position = np.searchsorted(starts, positions, side="right") - 1
    order = np.argsort(block_of_position, kind="stable")
    blocks, firsts = np.unique(block_of_position[order], return_index=True)
    # No positions: no blocks
    for block, places in zip(
        blocks.tolist(), np.split(order, firsts[1:]), strict=False
    ):
        yield block, places, positions[places] - starts[block]


def content_digest(rows: RowSource) -> str:
    """Return a digest of dense rows, read in small pieces."""
    sha = hashlib.sha256(f"{rows.shape} {rows.dtype}".encode())
    for run in runs_of(rows, 0, rows.shape[0]):
        sha.update(run.data)
    return sha.hexdigest()[:20]


def patiently(fetch: Callable[[], Result]) -> Result:
    """Call a function, and repeat it after each TransferError for a minute."""
    for pause in PAUSES:
        try:
            return fetch()
        except TransferError:
            time.sleep(pause)
    return fetch()


def folder_of_copies() -> Path:
    """Return this process's folder for local copies of row files."""
    try:
        return Path(get_worker().local_directory)
    except ValueError:
        return Path(_folder_of_process().name)


@cache
def _folder_of_process() -> tempfile.TemporaryDirectory[str]:
    parent = store_path("rows")
    parent.mkdir(parents=True, exist_ok=True)
    return temporary_folder(parent)


def forget_copies(run: str, dask_worker: Worker) -> None:
    shutil.rmtree(Path(dask_worker.local_directory) / run, ignore_errors=True)


def remove(place: str) -> None:
    if not is_remote(place):
        shutil.rmtree(place)
        return
    location = locate(place)
    with explained(location):
        location.filesystem.delete_dir(location.path)
