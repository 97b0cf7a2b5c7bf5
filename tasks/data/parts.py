"""Tables of numbers that no process holds as a whole: read part by part, by whoever needs the rows of a part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.schema import DatasetConfig
from learnkernels.tasks.data.locations import Location, Told, locate
from learnkernels.tasks.data.opening import Files, OpenTable
from learnkernels.tasks.data.readers import is_number, to_numbers
from learnkernels.tasks.data.row_files import BATCH_BYTES, RowFile, RowsInFiles, copies, patiently
from learnkernels.tasks.data.scaling import scaled
from learnkernels.tasks.data.streams import ArrowInput, ParquetInput, TableInput

BYTES_AS_NUMBERS = 1 << 30
"""A table of numbers that takes so much memory is read in parts, unless the configuration says otherwise."""

SPLITTABLE = (".parquet", ".arrow", ".feather")
"""Endings of files of which some columns, or some rows, are read without the others."""

WHOLE_TABLE = ("columns", "ngrams", "bytes", "distinct", "subsample")
"""Keys of a data set that need all its rows at once."""

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

    def blocks(self, columns: Sequence[str]) -> Iterator[np.ndarray]:
        """Give some columns of all its rows as numbers, a block of rows at a time.

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
        rows = max(1, BATCH_BYTES // (8 * len(columns)))
        with closing(_input(location, self.group)) as table:
            for piece in table.tables(columns, (), rows):
                yield np.stack([to_numbers(piece.column(name)) for name in columns], axis=1)

    @property
    def _changed(self) -> InputError:
        return InputError(f"{self.address}: has changed since the run began; start again, and it is read anew.")

    def used_blocks(self, columns: Sequence[str], complete: bool = False) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Give blocks of the rows that are used, without a gap if asked for, and which of the file's these are.

        Raises
        ------
        InputError, TransferError
            As `blocks`.
        """
        mask, at = self.mask, 0
        for block in self.blocks(columns):
            if at + len(block) > len(mask):
                raise self._changed
            used = mask[at : at + len(block)]
            if complete:
                used = used & np.isfinite(block).all(axis=1)
            at += len(block)
            yield (block if used.all() else block[used]), used
        if at < len(mask):
            raise self._changed


def _input(location: Location, group: int | None) -> TableInput:
    if location.suffix == ".parquet":
        return ParquetInput(location, None if group is None else (group,))
    return ArrowInput(location)


def stamp_of(location: Location) -> tuple[int, int]:
    """Return size and time of the last change of a file or object.

    Raises
    ------
    InputError
        There is none.
    """
    info = location.info()
    return info.size or location.size(), int(info.mtime_ns or 0)


def parts_of(table: OpenTable) -> tuple[Part, ...]:
    """Return the parts of a table that is open, in the order of its rows."""
    stamps = {location.text: stamp_of(location) for location, _, _ in table.pieces}
    return tuple(
        Part(location.text, stamps[location.text], group, n, n, told=location.told)
        for location, group, n in table.pieces
        if n
    )


@dataclass(frozen=True)
class Columns:
    """What is known of some columns of numbers from one pass over their rows; two add up.

    Attributes
    ----------
    n : int
        Rows.
    low, high, mean, squares : ndarray of shape (d,)
        Extremes, mean, and sum of squared differences from it.
    gaps : ndarray of int of shape (d,)
        Entries that are not finite.
    """

    n: int
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    gaps: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray) -> Columns:
        """Return it of a block of rows."""
        gaps = (~np.isfinite(X)).sum(axis=0)
        if not len(X) or gaps.any():
            nothing = np.zeros(X.shape[1])
            return cls(0, nothing + np.inf, nothing - np.inf, nothing, nothing, gaps)
        mean = X.mean(axis=0)
        return cls(len(X), X.min(axis=0), X.max(axis=0), mean, ((X - mean) ** 2).sum(axis=0), gaps)

    def __add__(self, other: Columns) -> Columns:
        n = self.n + other.n
        apart, share = other.mean - self.mean, other.n / max(n, 1)
        return Columns(
            n,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.mean + apart * share,
            self.squares + other.squares + apart**2 * (self.n * share),
            self.gaps + other.gaps,
        )

    def scaling(self, scale: str) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return what to subtract from each column, and to divide it by, as `scaling_of` does; nothing for raw ones."""
        if scale == "none":
            return None, None
        low = np.zeros_like(self.low)
        if scale == "unit":
            low, spread = self.low, self.high - self.low
        elif scale == "max":
            spread = np.maximum(self.high, -self.low)
        else:
            low, spread = self.mean, np.sqrt(self.squares / self.n)
        return low, np.where(spread > 0, spread, 1.0)


@dataclass(frozen=True)
class _Reading:
    """What one task of the first pass does: copy a part, and say what it holds."""

    part: Part
    columns: tuple[str, ...]
    path: str
    drop: bool


def _read(job: _Reading) -> tuple[Part, Columns]:
    """Return a part with the rows that are used, and what is known of their columns; its rows are copied."""
    path = _own(job.path)

    def read() -> tuple[Part, Columns]:
        known, masks = [Columns.of(np.zeros((0, len(job.columns))))], []

        def blocks() -> Iterator[np.ndarray]:
            for rows, used in job.part.used_blocks(job.columns, job.drop):
                masks.append(used)
                known.append(Columns.of(rows))
                yield rows

        RowFile.of_blocks(path, blocks(), len(job.columns), np.dtype(np.float64))
        return job.part.keeping(np.concatenate(masks)), reduce(lambda one, other: one + other, known)

    return patiently(read)


def _own(path: str) -> Path:
    """Return a path, one that is relative below the folder for copies of this process or worker."""
    return copies() / path


def read_parts(
    parts: Sequence[Part], columns: tuple[str, ...], config: DatasetConfig, readers: Readers, where: str
) -> TableParts:
    """Return the rows of some parts, in the units that the configuration asks for, after one pass over them.

    Raises
    ------
    InputError
        A file is damaged, an entry is not finite and that is not to be dropped, or no row is left.
    """
    drop = config.missing == "drop"
    about = json.dumps([*(asdict(part) | {"used": _short(part.used)} for part in parts), columns, drop])
    digest = hashlib.sha256(about.encode()).hexdigest()[:20]
    jobs = [_Reading(part, columns, _copy_of(readers.folder, digest, i), drop) for i, part in enumerate(parts)]
    read, known = zip(*readers.each(_read, jobs), strict=True)
    found: Columns = reduce(lambda one, other: one + other, known)
    if found.gaps.any():
        bad = [f"{columns[c]} ({found.gaps[c]:,})" for c in np.flatnonzero(found.gaps)]
        raise InputError(
            f"{where}: NaN, infinity or missing values in column {listed(bad, show=str)}, of a table that is read in "
            "parts; set 'missing: drop', fill them before, or leave columns out with 'drop'."
        )
    if found.n < 2:
        raise InputError(f"{where}: {found.n} complete rows are left of its parts; at least two are needed.")
    low, spread = found.scaling(config.scale)
    return TableParts(tuple(read), columns, digest, low, spread, (found.low, found.high), readers.folder)


def _short(used: bytes | None) -> str | None:
    return None if used is None else hashlib.sha256(used).hexdigest()


def _copy_of(folder: str, digest: str, part: int) -> str:
    return str(Path(folder) / f"parts-{digest}" / f"{part:05d}.arrow")


@dataclass(frozen=True)
class TableParts(RowsInFiles):
    """The rows of a table in parts, each read from its file by whoever needs it, and kept by them in a copy.

    Attributes
    ----------
    parts : tuple of Part
    columns : tuple of str
        The features.
    digest : str
        Of what was read: names, sizes and times of files, columns, and which rows are used.
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
    columns: tuple[str, ...]
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
        return int(self._ends[-1]), len(self.columns)

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
        return RowFile(str(path), (one.n_used, len(self.columns)), self.dtype)

    def _copy(self, part: Part, path: Path) -> None:
        blocks = (rows for rows, _ in part.used_blocks(self.columns))
        RowFile.of_blocks(path, blocks, len(self.columns), self.dtype)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, from which `from_dict` makes the same rows."""
        numbers = {"low": self.low, "spread": self.spread, "raw_extremes": np.stack(self.raw_extremes)}
        return {
            "parts": [asdict(part) | {"used": part.used.hex() if part.used else None} for part in self.parts],
            "columns": self.columns,
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
        return cls(tuple(parts), tuple(data["columns"]), data["digest"], low, spread, (lowest, highest))


def wanted_in_parts(config: DatasetConfig, files: Files, table: OpenTable, where: str) -> bool:
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


def _hindrance(config: DatasetConfig, files: Files, table: OpenTable) -> str:
    """Return what keeps a table from being read in parts, and what to do; nothing where it can be."""
    if files.suffix not in SPLITTABLE:
        return f"needs files of {', '.join(SPLITTABLE)}, and {files.name} is none; write it as Parquet"
    for key in WHOLE_TABLE:
        if getattr(config, key):
            return f"does not go with {key!r}, which needs all rows at once; leave it out"
    if config.scale == "quantile" or config.scale_on == "training":
        key = "scale_on: training" if config.scale_on == "training" else "scale: quantile"
        return f"does not go with '{key}', which needs all rows at once; leave it out"
    others = {config.target, *config.drop, *config.where, *config.test, *config.beside.values()}
    for name in config.features or table.schema.names:
        place = table.schema.get_field_index(name)
        if name not in others and place >= 0 and not is_number(table.schema.field(place).type):
            return (
                f"needs columns of numbers, and {name!r} is {table.schema.field(place).type}; encode it as numbers, "
                f"leave it out with 'drop: [{', '.join([*config.drop, name])}]'"
            )
    return ""
