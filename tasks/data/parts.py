"""Rows in Arrow files, and larger-than-memory tables whose parts become such files where their rows are needed."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.ipc
from distributed import Worker, get_worker

from learnkernels.conf.errors import InputError
from learnkernels.conf.files import is_remote
from learnkernels.conf.schema import DatasetConfig
from learnkernels.kernels.engine.workers import RowSource
from learnkernels.kernels.tables import EncodingReport, TableEncoding
from learnkernels.kernels.tables.encoding import ColumnTypes, as_levels
from learnkernels.kernels.tables.reading import read_columns
from learnkernels.kernels.tables.summary import MOST_EXACT, ColumnSummary, Scale, added, summarize_table

from ..store import atomic_path, store_path, temporary_folder
from .locations import Location, Told, TransferError, explained, locate, transferring, written
from .tables import Table, joint_name, regrouped

BYTES_AS_NUMBERS = 1 << 30
"""A table that takes so much memory as numbers is read in parts, unless the configuration says otherwise."""

SPLITTABLE = (".parquet", ".arrow", ".feather")
"""Endings of files of which some columns, or some rows, are read without the others."""

WHOLE_TABLE = ("ngrams", "bytes", "distinct", "subsample")
"""Keys of a data set that need all its rows at once."""

SUMMARY_BYTES = 8 << 20
"""What is looked at in one go where it is found out what columns are."""

MOST_NUMBERS = 1 << 24
"""Values of a table in parts up to which all numbers are kept where it is found out what columns are."""

HELD_RESULTS = 32
"""Parts of which what was found is held at a time."""

NONE_COMPLETE = "no row is complete, so 'missing: drop' leaves none; leave columns out with 'drop'."

BATCH_BYTES = 1 << 20
"""Size of a record batch: of what is read, at most so much at either end was not requested."""

PART_BYTES = 64 << 20
"""Size of a file of rows for workers on other machines: large enough for a server of objects, small enough to hold."""

PAUSES = (1, 2, 4, 8, 16, 32)
"""Seconds to wait before a request to an object store is repeated: it may be away for a minute."""

Job = TypeVar("Job")
Result = TypeVar("Result")


# Rows in files --------------------------------------------------------------------------------------------------------


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
            for block in regrouped(blocks, _rows_of(BATCH_BYTES, d, dtype), np.concatenate):
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


def rows_in_files(
    rows: slice | np.ndarray,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    starts: np.ndarray,
    file: Callable[[int], RowFile],
) -> np.ndarray:
    """Return a run of rows, or those at some positions, of dense rows in several files, one after the other.

    Parameters
    ----------
    rows : slice or ndarray of int
        Which of them.
    shape, dtype : tuple of int, numpy.dtype
        (m, d), and the type of the values.
    starts : ndarray of int
        Position of the first row of each file, ascending from 0.
    file : callable
        Returns the file of a number, which is made or fetched if missing.

    Raises
    ------
    InputError
        A file cannot be made or fetched, for a minute.
    """
    at = positions(rows, shape[0])
    taken = np.empty((len(at), shape[1]), dtype)
    for part, these, within in by_chunk(at, starts):
        taken[these] = file(part)[within]
    return taken


@dataclass(frozen=True)
class RowParts:
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

    def __getitem__(self, rows: slice | np.ndarray, /) -> np.ndarray:
        """Return a run of rows, or those at some positions, shape (a, d), of which the caller is the only owner."""
        starts = np.arange(0, max(1, self.shape[0]), self.part_rows)
        return rows_in_files(rows, self.shape, self.dtype, starts, self._file)

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
    path, location = copies() / Path(*address.split("/")[-3:]), locate(address)

    def copy() -> None:
        with transferring(location), atomic_path(path, lasting=False) as temporary:
            pyarrow.fs.copy_files(location.path, str(temporary), source_filesystem=location.filesystem)

    if not path.exists():
        patiently(copy)
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


# Tables in parts ------------------------------------------------------------------------------------------------------


class Readers(Protocol):
    """Workers that read the parts of a table, of this machine or of others."""

    @property
    def folder(self) -> str:
        """Folder for copies that all of them see; empty where each has its own."""

    def map(self, run: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """Return what a function returns for each of some jobs, in their order."""


@dataclass(frozen=True)
class Part:
    """Some rows of a table: a row group of a Parquet file, or a whole Arrow file.

    Attributes
    ----------
    address : str
        Of the file.
    stamp : tuple of int
        Its size, and when it was last changed, in nanoseconds: by these it is known again.
    group : int or None
        Number of the row group; None for all rows.
    n_rows : int
        Of the file's.
    n_used : int
        How many of them are rows of the data set.
    used : bytes or None
        Which, a bit each; None for all.
    told : tuple of (str, value, str)
        Columns that the names of the file's folders tell: see `Location`.
    """

    address: str
    stamp: tuple[int, int]
    group: int | None
    n_rows: int
    n_used: int
    used: bytes | None = None
    told: Told = ()

    def keeping(self, used: np.ndarray) -> Part:
        """Return the same with some of its rows alone, shape (n_rows,)."""
        bits = None if used.all() else np.packbits(used).tobytes()
        return replace(self, n_used=int(used.sum()), used=bits)

    @property
    def mask(self) -> np.ndarray:
        """Whether each row of the file's is one of the data set, shape (n_rows,)."""
        if self.used is None:
            return np.ones(self.n_rows, dtype=bool)
        return np.unpackbits(np.frombuffer(self.used, np.uint8), count=self.n_rows).astype(bool)

    def used_tables(
        self, columns: Sequence[str], complete: TableEncoding | None = None, n_bytes: int = BATCH_BYTES
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Give pieces of the rows that are used, and which of the file's these are.

        Parameters
        ----------
        columns : sequence of str
            That are read.
        complete : TableEncoding, optional
            Rows that lack a value of its columns, which are read as well, are left out.
        n_bytes : int
            What a piece takes, about, as numbers.

        Raises
        ------
        InputError
            The file is damaged, or not that of before.
        TransferError
            It cannot be read for now.
        """
        changed = InputError(f"{self.address}: has changed since the run began; start again, and it is read again.")
        location = replace(locate(self.address), told=self.told)
        if stamp_of(location) != self.stamp:
            raise changed
        columns = list(dict.fromkeys((*columns, *(() if complete is None else complete.names))))
        mask, at = self.mask, 0
        with Table([location], group=self.group) as table:
            for piece in table.tables(columns, max(1, n_bytes // (8 * len(columns)))):
                if at + piece.num_rows > len(mask):
                    raise changed
                piece, used = piece.unify_dictionaries(), mask[at : at + piece.num_rows]
                if complete is not None:
                    used = used & ~complete.gaps(piece)
                at += piece.num_rows
                yield (piece if used.all() else piece.filter(pa.array(used))), used
        if at < len(mask):
            raise changed


def stamp_of(location: Location) -> tuple[int, int]:
    """Return size and time of the last change of a file or object.

    Raises
    ------
    InputError
        There is none.
    """
    info = location.info()
    return info.size or location.size(), int(info.mtime_ns or 0)


def parts_of(table: Table, used: np.ndarray) -> tuple[Part, ...]:
    """Return the parts of a table that is open, in the order of its rows, with those that are used, shape (m,)."""
    stamps = {location.text: stamp_of(location) for location, _, _ in table.pieces}
    parts, start = [], 0
    for location, group, n in table.pieces:
        if n:
            part = Part(location.text, stamps[location.text], group, n, n, told=location.told)
            parts.append(part.keeping(used[start : start + n]))
        start += n
    return tuple(parts)


def _read(
    job: tuple[int, Part, int], encoding: TableEncoding, complete: TableEncoding | None, folder: str, digest: str
) -> tuple[Part, np.ndarray, EncodingReport]:
    """Return a part with the rows that are used, extremes of their features, which are written, and what was met.

    The job is the number of the part, the part, and the number of its first row.
    """
    place, part, first = job

    def read() -> tuple[Part, np.ndarray, EncodingReport]:
        d, report, masks = len(encoding.features), EncodingReport(first=first), []
        low, high = np.full(d, np.inf), np.full(d, -np.inf)

        def blocks() -> Iterator[np.ndarray]:
            for piece, used in part.used_tables(encoding.names, complete):
                masks.append(used)
                X = encoding.encode(piece, report)
                report.first += len(X)
                np.minimum(low, X.min(axis=0, initial=np.inf), out=low)
                np.maximum(high, X.max(axis=0, initial=-np.inf), out=high)
                yield X

        RowFile.of_blocks(_copy_of(folder, digest, place), blocks(), d, np.dtype(np.float64))
        return part.keeping(np.concatenate(masks)), np.stack([low, high]), report

    return patiently(read)


def _copy_of(folder: str, digest: str, part: int) -> Path:
    """Return where the copy of a part lies, below the folder for copies of this process or worker if it is relative."""
    return copies() / folder / f"parts-{digest}" / f"{part:05d}.arrow"


def _summarize(
    part: Part, columns: Sequence[str], as_levels: Sequence[str], complete: TableEncoding | None, all_kept: bool
) -> dict[str, ColumnSummary]:
    """Return what is known of the columns of a part; nothing where no row is used."""

    def look() -> dict[str, ColumnSummary]:
        pieces = part.used_tables(columns, complete, SUMMARY_BYTES)
        held = (piece.select(list(columns)) for piece, _ in pieces if piece.num_rows)
        return reduce(added, (summarize_table(piece, as_levels, all_kept) for piece in held), {})

    return patiently(look)


class HeldRows:
    """The rows of a table in memory.

    Parameters
    ----------
    table : pyarrow.Table
    there : ndarray of bool of shape (m,), optional
        Which of the rows of a larger table they are; all by default.
    """

    def __init__(self, table: pa.Table, there: np.ndarray | None = None) -> None:
        self.table, self.columns = table, read_columns(table)
        self.there = np.ones(table.num_rows, dtype=bool) if there is None else there

    def complete(self, encoding: TableEncoding) -> HeldRows:
        """Return the rows that lack no value of the columns of an encoding."""
        there = ~encoding.gaps(self.columns)
        if not there.any():
            raise ValueError(NONE_COMPLETE)
        return self if there.all() else HeldRows(self.table.filter(pa.array(there)), there)

    def learned(
        self, columns: Sequence[str], said: ColumnTypes | None, scale: Scale
    ) -> tuple[TableEncoding, dict[str, int]]:
        """Return what columns become, see `RowsOfParts.learned`."""
        held = read_columns(self.columns, columns)
        encoding = TableEncoding.of(held, said, scale)
        return encoding, {one.name: int(one.lacks(held[one.name]).sum()) for one in encoding.columns if one.has_gaps}

    def encoded(self, encoding: TableEncoding) -> tuple[np.ndarray, np.ndarray, EncodingReport]:
        """Return features, see `RowsOfParts.encoded`."""
        report = EncodingReport()
        return encoding.encode(self.columns, report), self.there, report


@dataclass(frozen=True)
class RowsOfParts:
    """The rows of a table in parts, which no process holds as a whole.

    Attributes
    ----------
    parts : sequence of Part
    readers : Readers or None
        Who reads them; None for this process.
    whole : TableEncoding, optional
        Rows that lack a value of its columns are left out.
    """

    parts: Sequence[Part]
    readers: Readers | None = None
    whole: TableEncoding | None = None

    def _map(self, run: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        return [run(job) for job in jobs] if self.readers is None else self.readers.map(run, jobs)

    def complete(self, encoding: TableEncoding) -> RowsOfParts:
        """Return the rows that lack no value of the columns of an encoding."""
        return replace(self, whole=encoding)

    def learned(
        self, columns: Sequence[str], said: ColumnTypes | None, scale: Scale
    ) -> tuple[TableEncoding, dict[str, int]]:
        """Return what columns become, and how many values those lack that lack some, after one pass over the rows.

        Of at most `MOST_EXACT` rows and `MOST_NUMBERS` values it is that of the table in memory, bit for bit.

        Parameters
        ----------
        columns : sequence of str
            That are read.
        said : mapping or None
            What some of them are; see `TableEncoding.of`.
        scale : {"none", "unit", "max", "standard", "quantile"}
            Units of numbers.

        Raises
        ------
        InputError
            A file is damaged or has changed.
        ValueError
            No row is complete, a column is none of what is said of it, or none is left.
        """
        levels = tuple(name for name, kind in (said or {}).items() if as_levels(kind))
        rows = sum(part.n_used for part in self.parts)
        all_kept = rows <= MOST_EXACT and rows * len(columns) <= MOST_NUMBERS
        look = partial(_summarize, columns=columns, as_levels=levels, complete=self.whole, all_kept=all_kept)
        summary: dict[str, ColumnSummary] = {}
        for first in range(0, len(self.parts), HELD_RESULTS):
            summary = reduce(added, self._map(look, self.parts[first : first + HELD_RESULTS]), summary)
        if not summary:
            raise ValueError(NONE_COMPLETE)
        encoding = TableEncoding.of(summary, said, scale)
        return encoding, {one.name: summary[one.name].gaps for one in encoding.columns if one.has_gaps}

    def encoded(self, encoding: TableEncoding) -> tuple[TableParts, np.ndarray, EncodingReport]:
        """Return features after one pass over the rows.

        Parameters
        ----------
        encoding : TableEncoding
            What columns become.

        Returns
        -------
        X : TableParts of n rows
        there : ndarray of bool of shape (m,)
            Whether each row is one of these.
        report : EncodingReport
            Cells that are not of the kind of their column.

        Raises
        ------
        InputError
            A file is damaged or has changed.
        """
        about: list[Any] = []
        for part in self.parts:
            used = None if part.used is None else hashlib.sha256(part.used).hexdigest()
            about.append(asdict(part) | {"used": used})
        about += [one.to_dict() for one in (encoding, self.whole) if one is not None]
        digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:20]
        firsts = np.cumsum([0, *(part.n_used for part in self.parts)]).tolist()
        folder = "" if self.readers is None else self.readers.folder
        read = partial(_read, encoding=encoding, complete=self.whole, folder=folder, digest=digest)
        jobs = [(i, part, firsts[i]) for i, part in enumerate(self.parts)]
        parts, ends, report = zip(*self._map(read, jobs), strict=True)
        there = np.concatenate([after.mask[part.mask] for part, after in zip(self.parts, parts, strict=True)])
        extremes = np.array([np.min(ends, axis=0)[0], np.max(ends, axis=0)[1]])
        return TableParts(tuple(parts), encoding, digest, extremes, folder), there, reduce(add, report)


@dataclass(frozen=True)
class TableParts:
    """Rows of a table in parts, each read from its file and cached by the process that needs it.

    Attributes
    ----------
    parts : tuple of Part
    encoding : TableEncoding
        How columns of the files become features.
    digest : str
        Of what was read: names, sizes and times of files, columns and what they become, and which rows are used.
    extremes : ndarray of shape (2, d)
        Lowest and highest values of the features.
    folder : str
        Where copies lie; empty for a folder of the Dask worker, or of the process, that asks.

    Notes
    -----
    A copy is a `RowFile` on the machine's own disk, of features: rows cross the network once, and
    take no memory but for those that were requested.
    """

    parts: tuple[Part, ...]
    encoding: TableEncoding
    digest: str
    extremes: np.ndarray
    folder: str = ""

    ndim = 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64."""
        return np.dtype(np.float64)

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([0, *(part.n_used for part in self.parts)])

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return int(self._ends[-1]), len(self.encoding.features)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows as numbers."""
        return 8 * self.shape[0] * self.shape[1]

    def min(self, axis: int) -> np.ndarray:
        """Return the lowest value of each feature; `axis` is 0."""
        return np.array(self.extremes[0])

    def max(self, axis: int) -> np.ndarray:
        """Return the highest value of each feature; `axis` is 0."""
        return np.array(self.extremes[1])

    @property
    def starts(self) -> np.ndarray:
        """Position of the first row of each part."""
        return self._ends[:-1]

    def __getitem__(self, rows: slice | np.ndarray, /) -> np.ndarray:
        """Return a run of rows, or those at some positions, shape (a, d), of which the caller is the only owner."""
        return rows_in_files(rows, self.shape, self.dtype, self.starts, self._file)

    def _file(self, part: int) -> RowFile:
        one = self.parts[part]
        path, names, d = _copy_of(self.folder, self.digest, part), self.encoding.names, self.shape[1]

        def copy() -> RowFile:
            blocks = (self.encoding.encode(piece) for piece, _ in one.used_tables(names))
            return RowFile.of_blocks(path, blocks, d, self.dtype)

        return RowFile(str(path), (one.n_used, d), self.dtype) if path.exists() else patiently(copy)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, from which `from_dict` makes the same rows."""
        parts = [asdict(part) | {"used": part.used.hex() if part.used else None} for part in self.parts]
        about = {"digest": self.digest, "extremes": self.extremes.tolist()}
        return {"parts": parts, "table": self.encoding.to_dict(), **about}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TableParts:
        """Return what `to_dict` was called on."""
        parts = []
        for one in data["parts"]:
            used = bytes.fromhex(one["used"]) if one["used"] else None
            told = tuple(tuple(column) for column in one["told"])
            parts.append(Part(**{**one, "stamp": tuple(one["stamp"]), "used": used, "told": told}))
        extremes = np.array(data["extremes"])
        return cls(tuple(parts), TableEncoding.from_dict(data["table"]), data["digest"], extremes)


def wanted_in_parts(config: DatasetConfig, files: Sequence[Location], table: Any, where: str) -> bool:
    """Return whether a table is read in parts: as asked, or as it is large and can be.

    Raises
    ------
    InputError
        It is requested, and the format, or another key, does not allow it.
    """
    if config.in_parts is False:
        return False
    hindrance = ""
    if files[0].suffix not in SPLITTABLE:
        hindrance = f"needs files of {', '.join(SPLITTABLE)}, and {joint_name(files)} is none; write it as Parquet"
    else:
        asked = [key for key in WHOLE_TABLE if getattr(config, key)]
        asked += ["scale_on: training"] if config.scale_on == "training" else []
        if asked:
            hindrance = f"does not go with {asked[0]!r}, which needs all rows at once; leave it out"
    if config.in_parts and hindrance:
        raise InputError(f"{where}: 'in_parts' {hindrance}, or leave 'in_parts' out.")
    large = 8 * table.num_rows * len(table.schema) >= BYTES_AS_NUMBERS
    return bool(config.in_parts or (large and not hindrance))
