"""Tables that no process holds as a whole: read part by part, by whoever needs the rows of a part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DatasetConfig
from learnkernels.kernels.tables import Met, TableEncoding
from learnkernels.kernels.tables.encoding import Said, as_levels
from learnkernels.kernels.tables.summary import MOST_EXACT, Scale, Sums, TableSummary
from learnkernels.tasks.data.locations import Location, Told, locate
from learnkernels.tasks.data.readers import to_numbers
from learnkernels.tasks.data.row_files import BATCH_BYTES, RowFile, RowsInFiles, copies, patiently
from learnkernels.tasks.data.scaling import scaled
from learnkernels.tasks.data.tables import Files, Table

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

Complete: TypeAlias = Callable[[pa.Table], np.ndarray]
"""Says of each row of a piece whether it lacks nothing."""

Job = TypeVar("Job")
Result = TypeVar("Result")


class Readers(Protocol):
    """Who reads the parts of a table: this process, or workers, of this machine or of others."""

    @property
    def folder(self) -> str:
        """Folder for copies that all of them see; empty where each has its own."""

    def each(self, run: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """Return what a function returns for each of some jobs, in their order."""


class ThisProcess:
    """Reads parts here, one after the other."""

    folder = ""

    def each(self, run: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """Return what a function returns for each of some jobs, in their order."""
        return [run(job) for job in jobs]


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
    told : tuple of (str, value)
        Columns that the names of the file's folders tell.
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

    def tables(self, columns: Sequence[str], n_bytes: int) -> Iterator[pa.Table]:
        """Give some columns of all its rows, so many of them at a time as take about that many bytes as numbers.

        Raises
        ------
        InputError
            The file is damaged, or not that of before.
        TransferError
            It cannot be read for now.
        """
        location = replace(locate(self.address), told=self.told)
        if stamp_of(location) != self.stamp:
            raise self._changed
        rows = max(1, n_bytes // (8 * len(columns)))
        with Table([location], group=self.group) as table:
            for piece in table.tables(columns, rows):
                yield piece.unify_dictionaries()

    @property
    def _changed(self) -> InputError:
        return InputError(f"{self.address}: has changed since the run began; start again, and it is read anew.")

    def used_tables(
        self, columns: Sequence[str], complete: Complete | None = None, n_bytes: int = 0
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Give pieces of the rows that are used, of those that are complete if asked for, and which of the file's.

        Raises
        ------
        InputError, TransferError
            As `tables`.
        """
        mask, at = self.mask, 0
        for piece in self.tables(columns, n_bytes or BATCH_BYTES):
            if at + piece.num_rows > len(mask):
                raise self._changed
            used = mask[at : at + piece.num_rows]
            if complete is not None:
                used = used & complete(piece)
            at += piece.num_rows
            yield (piece if used.all() else piece.filter(pa.array(used))), used
        if at < len(mask):
            raise self._changed


def stamp_of(location: Location) -> tuple[int, int]:
    """Return size and time of the last change of a file or object.

    Raises
    ------
    InputError
        There is none.
    """
    info = location.info()
    return info.size or location.size(), int(info.mtime_ns or 0)


def parts_of(table: Table) -> tuple[Part, ...]:
    """Return the parts of a table that is open, in the order of its rows."""
    stamps = {location.text: stamp_of(location) for location, _, _ in table.pieces}
    return tuple(
        Part(location.text, stamps[location.text], group, n, n, told=location.told)
        for location, group, n in table.pieces
        if n
    )


def units_of(found: Sums, scale: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return what to subtract from each column, and to divide it by, as `scaling_of` does; nothing for raw ones."""
    if scale == "none":
        return None, None
    low = np.zeros_like(found.low)
    if scale == "unit":
        low, spread = found.low, found.high - found.low
    elif scale == "max":
        spread = np.maximum(found.high, -found.low)
    else:
        low, spread = found.mean, np.sqrt(found.squares / found.n)
    return low, np.where(spread > 0, spread, 1.0)


@dataclass(frozen=True)
class Features:
    """How columns become features.

    Attributes
    ----------
    columns : tuple of str
        That are read.
    table : TableEncoding or None
        What they become; None for columns that are features as they are.
    """

    columns: tuple[str, ...]
    table: TableEncoding | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features."""
        return self.columns if self.table is None else self.table.features

    def of(self, piece: pa.Table, met: Met | None = None) -> np.ndarray:
        """Return the features of some rows, shape (a, d), NaN for gaps of columns that are features."""
        if self.table is not None:
            return self.table.encode(piece, met)
        return np.stack([to_numbers(piece.column(name)) for name in self.columns], axis=1)

    def complete(self, piece: pa.Table) -> np.ndarray:
        """Return whether each row lacks nothing, shape (a,)."""
        if self.table is not None:
            return np.asarray(~self.table.gaps(piece))
        finite = [np.isfinite(to_numbers(piece.column(name))) for name in self.columns]
        return np.asarray(np.logical_and.reduce(finite))


def _asked(columns: Sequence[str], complete: Features | None) -> tuple[tuple[str, ...], Complete | None]:
    """Return which columns are read for some, of the rows that are `complete` if asked for, and what tells of these."""
    if complete is None:
        return tuple(columns), None
    return tuple(dict.fromkeys((*columns, *complete.columns))), complete.complete


@dataclass(frozen=True)
class _Reading:
    """What one task of the pass that copies does: write a part's features, and say what they hold."""

    part: Part
    features: Features
    path: str
    complete: Features | None
    stale: str | None
    first: int


def _read(job: _Reading) -> tuple[Part, Sums, Met]:
    """Return a part with the rows that are used, and what is known of their features, which are copied."""
    path, features = _own(job.path), job.features
    for copy in _own(job.stale).glob("*.arrow") if job.stale is not None else ():
        copy.unlink(missing_ok=True)  # another may be about it, where all see one folder

    def read() -> tuple[Part, Sums, Met]:
        d, met = len(features.names), Met(first=job.first)
        known, masks = [Sums.of(np.zeros((0, d)))], []

        def blocks() -> Iterator[np.ndarray]:
            for piece, used in job.part.used_tables(*_asked(features.columns, job.complete)):
                masks.append(used)
                X = features.of(piece, met)
                met.first += len(X)
                known.append(Sums.of(X))
                yield X

        RowFile.of_blocks(path, blocks(), d, np.dtype(np.float64))
        return job.part.keeping(np.concatenate(masks)), reduce(add, known), met

    return patiently(read)


@dataclass(frozen=True)
class _Looking:
    """What one task of a pass does that finds out what columns are."""

    part: Part
    columns: tuple[str, ...]
    as_levels: tuple[str, ...]
    complete: Features | None
    all_kept: bool


def _summarize(job: _Looking) -> TableSummary | None:
    """Return what is known of the columns of a part; None where no row is used."""

    def look() -> TableSummary | None:
        pieces = job.part.used_tables(*_asked(job.columns, job.complete), SUMMARY_BYTES)
        columns, how = list(job.columns), (job.as_levels, job.all_kept)
        return _summed([TableSummary.of(piece.select(columns), *how) for piece, _ in pieces if piece.num_rows])

    return patiently(look)


def _summed(known: Sequence[TableSummary | None]) -> TableSummary | None:
    there = [one for one in known if one is not None]
    return reduce(add, there) if there else None


def _gathered(
    run: Callable[[Job], Result],
    jobs: Sequence[Job],
    readers: Readers,
    gather: Callable[[Sequence[Result]], Result],
) -> Result:
    """Return what jobs find, gathered in their order, of which few results are held at a time."""
    found: list[Result] = []
    for first in range(0, len(jobs), HELD_RESULTS):
        found = [gather([*found, *readers.each(run, jobs[first : first + HELD_RESULTS])])]
    return found[0]


def encoding_of(
    parts: Sequence[Part],
    columns: tuple[str, ...],
    said: Said | None,
    scale: Scale,
    readers: Readers,
    complete: Features | None = None,
) -> tuple[TableEncoding, TableSummary]:
    """Return how columns of some parts become features, and what they hold, after one pass over the rows.

    Of at most `MOST_EXACT` rows and `MOST_NUMBERS` values it is that of the table in memory, to the last bit.

    Raises
    ------
    InputError
        A file is damaged or has changed.
    ValueError
        A column is none of what is said of it, or none is left.
    """
    levels = tuple(name for name, kind in (said or {}).items() if as_levels(kind))
    rows = sum(part.n_used for part in parts)
    all_kept = rows <= MOST_EXACT and rows * len(columns) <= MOST_NUMBERS
    jobs = [_Looking(part, columns, levels, complete, all_kept) for part in parts]
    summary = _gathered(_summarize, jobs, readers, _summed)
    if summary is None:
        raise ValueError("no row is complete; leave columns out with 'drop'")
    return TableEncoding.of(summary, said, scale), summary


def _own(path: str) -> Path:
    """Return a path, one that is relative below the folder for copies of this process or worker."""
    return copies() / path


def read_parts(
    parts: Sequence[Part],
    features: Features,
    complete: Features | None,
    config: DatasetConfig,
    readers: Readers,
    where: str,
    instead_of: TableParts | None = None,
) -> tuple[TableParts, np.ndarray, Met]:
    """Return the features of some parts after one pass over them, how many entries of each are not finite, and cells.

    Rows are in the units that the configuration asks for; those that lack a value of `complete`, where it is given, are
    left out. Whoever reads a part removes its copies of `instead_of`, an earlier reading that nobody needs.

    Raises
    ------
    InputError
        A file is damaged, or no row is left.
    """
    drop = complete is not None
    about: list[Any] = [*(asdict(part) | {"used": _short(part.used)} for part in parts), features.columns, drop]
    if features.table is not None:
        about.append(features.table.to_dict())
    if complete is not None and complete.table is not None and complete != features:
        about.append(complete.table.to_dict())
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:20]
    stale = None if instead_of is None else _copies_of(instead_of.folder, instead_of.digest)
    paths = [_copy_of(readers.folder, digest, i) for i in range(len(parts))]
    firsts = np.cumsum([0, *(part.n_used for part in parts)]).tolist()
    jobs = [
        _Reading(part, features, path, complete, stale, first)
        for part, path, first in zip(parts, paths, firsts, strict=False)
    ]
    read, known, met = zip(*readers.each(_read, jobs), strict=True)
    found: Sums = reduce(add, known)
    if (rows := sum(part.n_used for part in read)) < 2:
        raise InputError(f"{where}: {rows} complete rows are left of its parts; at least two are needed.")
    low, spread = units_of(found, config.scale) if features.table is None else (None, None)
    X = TableParts(tuple(read), features, digest, low, spread, (found.low, found.high), readers.folder)
    return X, found.gaps, reduce(add, met)


def _short(used: bytes | None) -> str | None:
    return None if used is None else hashlib.sha256(used).hexdigest()


def _copies_of(folder: str, digest: str) -> str:
    return str(Path(folder) / f"parts-{digest}")


def _copy_of(folder: str, digest: str, part: int) -> str:
    return f"{_copies_of(folder, digest)}/{part:05d}.arrow"


@dataclass(frozen=True)
class TableParts(RowsInFiles):
    """The rows of a table in parts, each read from its file by whoever needs it, and kept by them in a copy.

    Attributes
    ----------
    parts : tuple of Part
    features : Features
        How columns of the files become its own.
    digest : str
        Of what was read: names, sizes and times of files, columns and what they become, and which rows are used.
    low, spread : ndarray of shape (d,) or None
        How rows are scaled as they are taken.
    raw_extremes : tuple of ndarray of shape (d,)
        Lowest and highest values before that.
    folder : str
        Where copies lie; empty for a folder of the Dask worker, or of the process, that asks.

    Notes
    -----
    A copy is a `RowFile` on the machine's own disk, of numbers that are not scaled: rows cross the network once, and
    take no memory but for those that were asked for.
    """

    parts: tuple[Part, ...]
    features: Features
    digest: str
    low: np.ndarray | None
    spread: np.ndarray | None
    raw_extremes: tuple[np.ndarray, np.ndarray]
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
        return int(self._ends[-1]), len(self.features.names)

    @property
    def starts(self) -> np.ndarray:
        """Position of the first row of each part."""
        return self._ends[:-1]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows as numbers."""
        return 8 * self.shape[0] * self.shape[1]

    def __getitem__(self, rows: slice | np.ndarray, /) -> np.ndarray:
        """Return a run of rows, or those at some positions, scaled, shape (a, d)."""
        taken: np.ndarray = scaled(super().__getitem__(rows), self.low, self.spread)
        return taken

    def min(self, axis: int) -> np.ndarray:
        """Return the lowest value of each feature, scaled; `axis` is 0."""
        lowest: np.ndarray = scaled(self.raw_extremes[0].copy(), self.low, self.spread)
        return lowest

    def max(self, axis: int) -> np.ndarray:
        """Return the highest value of each feature, scaled; `axis` is 0."""
        highest: np.ndarray = scaled(self.raw_extremes[1].copy(), self.low, self.spread)
        return highest

    def _file(self, part: int) -> RowFile:
        one = self.parts[part]
        path = _own(_copy_of(self.folder, self.digest, part))
        if not path.exists():
            patiently(lambda: self._copy(one, path))
        return RowFile(str(path), (one.n_used, self.shape[1]), self.dtype)

    def _copy(self, part: Part, path: Path) -> None:
        blocks = (self.features.of(piece) for piece, _ in part.used_tables(self.features.columns))
        RowFile.of_blocks(path, blocks, self.shape[1], self.dtype)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, from which `from_dict` makes the same rows."""
        numbers = {"low": self.low, "spread": self.spread, "raw_extremes": np.stack(self.raw_extremes)}
        return {
            "parts": [asdict(part) | {"used": part.used.hex() if part.used else None} for part in self.parts],
            "columns": self.features.columns,
            "table": None if self.features.table is None else self.features.table.to_dict(),
            "digest": self.digest,
            **{name: None if of is None else of.tolist() for name, of in numbers.items()},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TableParts:
        """Return what `to_dict` was called on."""
        parts = []
        for one in data["parts"]:
            used = bytes.fromhex(one["used"]) if one["used"] else None
            told = tuple(map(tuple, one["told"]))
            parts.append(Part(**{**one, "stamp": tuple(one["stamp"]), "used": used, "told": told}))
        low, spread = (None if data[name] is None else np.array(data[name]) for name in ("low", "spread"))
        lowest, highest = np.array(data["raw_extremes"])
        table = TableEncoding.from_dict(data["table"]) if data.get("table") else None  # earlier versions have none
        features = Features(tuple(data["columns"]), table)
        return cls(tuple(parts), features, data["digest"], low, spread, (lowest, highest))


def wanted_in_parts(config: DatasetConfig, files: Files, table: Table, where: str) -> bool:
    """Return whether a table is read in parts: as asked, or as it is large and can be.

    Raises
    ------
    InputError
        It is asked for, and the format, or another key, does not allow it.
    """
    if config.in_parts is False:
        return False
    why_not = _hindrance(config, files, table)
    if config.in_parts and why_not:
        raise InputError(f"{where}: 'in_parts' {why_not}, or leave 'in_parts' out.")
    large = 8 * table.num_rows * len(table.schema) >= BYTES_AS_NUMBERS
    return bool(config.in_parts or (large and not why_not))


def _hindrance(config: DatasetConfig, files: Files, table: Table) -> str:
    """Return what keeps a table from being read in parts, and what to do; nothing where it can be."""
    if files.suffix not in SPLITTABLE:
        return f"needs files of {', '.join(SPLITTABLE)}, and {files.name} is none; write it as Parquet"
    for key in WHOLE_TABLE:
        if getattr(config, key):
            return f"does not go with {key!r}, which needs all rows at once; leave it out"
    if config.scale_on == "training":
        return "does not go with 'scale_on: training', which needs all rows at once; leave it out"
    return ""
