"""Tables larger than memory, read in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DatasetConfig
from learnkernels.kernels.column_encoding import EncodingReport, TableEncoding
from learnkernels.kernels.column_encoding.encoding import ColumnTypes, as_levels
from learnkernels.kernels.column_encoding.reading import read_columns
from learnkernels.kernels.column_encoding.summary import (
    MOST_EXACT,
    ColumnSummary,
    Scale,
    added,
    summarize_table,
)
from learnkernels.kernels.files import from_data, to_data

from ..store import atomic_path, digest
from .locations import FolderColumns, Location, locate
from .row_files import (
    READ_BYTES,
    Job,
    Readers,
    Result,
    RowFiles,
    folder_of_copies,
    patiently,
    write_rows,
)
from .tables import Table, joint_name, with_joint_dictionaries

BYTES_AS_NUMBERS = 1 << 30
"""Smallest size, as float64, of a table read in parts by default."""

SPLITTABLE = (".parquet", ".arrow", ".feather")

WHOLE_TABLE = ("ngrams", "bytes", "distinct", "subsample")

SUMMARY_BYTES = 8 << 20

MOST_NUMBERS = 1 << 24
"""Number of values up to which summaries keep all numbers."""

HELD_RESULTS = 32

NONE_COMPLETE = (
    "no row is complete, so 'missing: drop' leaves none; leave columns out with 'drop'."
)


class TablePart(
    BaseModel, frozen=True, ser_json_bytes="base64", val_json_bytes="base64"
):
    """Rows of a table file that are read together: a row group, or a whole Arrow file.

    `stamp` is size and time of change in nanoseconds. `group` and `mask` None mean all
    rows; `mask` holds bits of the used rows. `told` are `folder_columns`, `joint`
    `joint_fields`.
    """

    address: str
    stamp: tuple[int, int]
    group: int | None
    n_file_rows: int
    n_rows: int
    mask: bytes | None = None
    told: FolderColumns = ()
    joint: bytes | None = None

    def with_rows(self, is_used: np.ndarray) -> TablePart:
        """Return the part restricted to a mask of its rows."""
        mask = None
        if not is_used.all():
            mask = np.packbits(is_used).tobytes()
        return self.model_copy(update={"n_rows": int(is_used.sum()), "mask": mask})

    @property
    def is_used(self) -> np.ndarray:
        """Mask of the part's rows in the data set."""
        if self.mask is None:
            return np.ones(self.n_file_rows, dtype=bool)
        return np.unpackbits(
            np.frombuffer(self.mask, np.uint8), count=self.n_file_rows
        ).astype(bool)

    def pieces(
        self,
        columns: Sequence[str],
        complete: TableEncoding | None = None,
        n_bytes: int | None = None,
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Yield the part in tables of about `n_bytes`, each with a mask of its rows in the file.

        Rows with missing values in columns of `complete` are left out. InputError if
        the file has changed; TransferError if it cannot be read at present.
        """
        changed = InputError(
            f"{self.address}: has changed since the run began; start again, and it is read again."
        )
        location = replace(locate(self.address), folder_columns=self.told)
        if stamp_of(location) != self.stamp:
            raise changed
        names = list(dict.fromkeys(columns))
        if complete is not None:
            names += [name for name in complete.names if name not in names]
        piece_rows = max(1, (n_bytes or READ_BYTES) // (8 * len(names)))
        is_used = self.is_used
        first = 0
        with Table([location], group=self.group, joint=self.joint) as table:
            for piece in table.tables(names, piece_rows):
                stop = first + piece.num_rows
                if stop > len(is_used):
                    raise changed
                piece = with_joint_dictionaries(piece)
                is_taken = is_used[first:stop]
                if complete is not None:
                    is_taken = is_taken & ~complete.gaps(piece)
                first = stop
                yield piece.filter(pa.array(is_taken)), is_taken
        if first < len(is_used):
            raise changed


@dataclass(frozen=True)
class EncodedPart:
    """Block of rows that are encoded from a table's part when read."""

    part: TablePart
    encoding: TableEncoding

    @property
    def n_rows(self) -> int:
        return self.part.n_rows

    def write_to(self, path: Path) -> None:
        pieces = self.part.pieces(self.encoding.names)
        report = EncodingReport(is_of_blocks=True)
        blocks = (self.encoding.encode(piece, report) for piece, _ in pieces)
        with atomic_path(path, lasting=False) as temporary:
            write_rows(temporary, blocks)


def stamp_of(location: Location) -> tuple[int, int]:
    """Return a file's size and time of last change."""
    info = location.info()
    return info.size or location.size(), int(info.mtime_ns or 0)


def parts_of(table: Table, is_used: np.ndarray) -> tuple[TablePart, ...]:
    """Divide an open table into parts, read one at a time."""
    stamps = {location.text: stamp_of(location) for location, _, _ in table.pieces}
    joint_fields = table.joint_fields
    parts = []
    first = 0
    for location, group, n in table.pieces:
        if n == 0:
            continue
        part = TablePart(
            address=location.text,
            stamp=stamps[location.text],
            group=group,
            n_file_rows=n,
            n_rows=n,
            told=location.folder_columns,
            joint=joint_fields,
        )
        parts.append(part.with_rows(is_used[first : first + n]))
        first += n
    return tuple(parts)


class TableInMemory:
    def __init__(self, table: pa.Table, is_there: np.ndarray | None = None) -> None:
        self.table = table
        self.columns = read_columns(table)
        if is_there is None:
            is_there = np.ones(table.num_rows, dtype=bool)
        self.is_there = is_there

    def complete(self, encoding: TableEncoding) -> TableInMemory:
        is_complete = ~encoding.gaps(self.columns)
        if not is_complete.any():
            raise ValueError(NONE_COMPLETE)
        if is_complete.all():
            return self
        return TableInMemory(self.table.filter(pa.array(is_complete)), is_complete)

    def learn_encoding(
        self, names: Sequence[str], column_types: ColumnTypes | None, scale: Scale
    ) -> tuple[TableEncoding, dict[str, int]]:
        columns = read_columns(self.columns, names)
        encoding = TableEncoding.of(columns, column_types, scale)
        n_missing = {}
        for column in encoding.columns:
            if column.has_gaps or columns[column.name].gaps.any():
                n_missing[column.name] = int(column.lacks(columns[column.name]).sum())
        return encoding, n_missing

    def encode(
        self, encoding: TableEncoding
    ) -> tuple[np.ndarray, np.ndarray, EncodingReport]:
        report = EncodingReport()
        return encoding.encode(self.columns, report), self.is_there, report


@dataclass(frozen=True)
class PartedTable:
    """Table read part by part, so that no process holds all rows in memory.

    Without `readers`, this process reads the parts. Rows with missing values in columns
    of `completed` are left out.
    """

    parts: Sequence[TablePart]
    readers: Readers | None = None
    completed: TableEncoding | None = None

    def _map(
        self, run: Callable[..., Result], jobs: Sequence[Job], **shared: Any
    ) -> list[Result]:
        if self.readers is not None:
            return self.readers.map(run, jobs, **shared)
        return [run(job, **shared) for job in jobs]

    def complete(self, encoding: TableEncoding) -> PartedTable:
        """Return the table without rows that lack a value to encode."""
        return replace(self, completed=encoding)

    def learn_encoding(
        self, names: Sequence[str], column_types: ColumnTypes | None, scale: Scale
    ) -> tuple[TableEncoding, dict[str, int]]:
        """Learn the encoding of columns in one pass, and count missing values by column.

        InputError if a file has changed; ValueError if nothing is left.
        """
        n_rows = sum(part.n_rows for part in self.parts)
        shared: dict[str, Any] = {
            "columns": names,
            "levels": [
                name
                for name, column_type in (column_types or {}).items()
                if as_levels(column_type)
            ],
            "complete": self.completed,
            "keep_all_numbers": n_rows <= MOST_EXACT
            and n_rows * len(names) <= MOST_NUMBERS,
        }
        summary: dict[str, ColumnSummary] = {}
        for first in range(0, len(self.parts), HELD_RESULTS):
            summaries = self._map(
                _summarize, self.parts[first : first + HELD_RESULTS], **shared
            )
            summary = reduce(added, summaries, summary)
        if not summary:
            raise ValueError(NONE_COMPLETE)
        encoding = TableEncoding.of(summary, column_types, scale)
        return encoding, {
            column.name: column.count_lacking(summary[column.name])
            for column in encoding.columns
            if column.has_gaps or summary[column.name].gaps
        }

    def encode(
        self, encoding: TableEncoding
    ) -> tuple[RowFiles, np.ndarray, EncodingReport]:
        """Encode the table in one pass; return features, a mask of rows and a report."""
        encodings = [
            to_data(table, {}, "table")
            for table in (encoding, self.completed)
            if table is not None
        ]
        name = f"parts-{digest([part.model_dump(mode='json') for part in self.parts], encodings)}"
        folder = ""
        if self.readers is not None:
            folder = self.readers.folder
        n_rows = [part.n_rows for part in self.parts]
        first_rows = np.cumsum([0, *n_rows]).tolist()
        jobs = [
            (number, part, first_rows[number]) for number, part in enumerate(self.parts)
        ]
        encoded = self._map(
            _encode,
            jobs,
            encoding=encoding,
            complete=self.completed,
            folder=Path(folder, name),
        )
        report = reduce(add, (result.report for result in encoded))
        report.require_read()
        parts = [result.part for result in encoded]
        blocks = tuple(EncodedPart(part, encoding) for part in parts)
        is_there = [
            after.is_used[before.is_used]
            for before, after in zip(self.parts, parts, strict=True)
        ]
        lowest = np.min([result.lowest for result in encoded], axis=0)
        highest = np.max([result.highest for result in encoded], axis=0)
        X = RowFiles(
            blocks,
            len(lowest),
            np.dtype(np.float64),
            name,
            folder,
            np.stack([lowest, highest]),
        )
        return X, np.concatenate(is_there), report


def _summarize(
    part: TablePart,
    columns: Sequence[str],
    levels: Sequence[str],
    complete: TableEncoding | None,
    keep_all_numbers: bool,
) -> dict[str, ColumnSummary]:
    def summarize() -> dict[str, ColumnSummary]:
        summary: dict[str, ColumnSummary] = {}
        for piece, _ in part.pieces(columns, complete, SUMMARY_BYTES):
            if piece.num_rows:
                summary = added(
                    summary,
                    summarize_table(
                        piece.select(list(columns)), levels, keep_all_numbers
                    ),
                )
        return summary

    return patiently(summarize)


@dataclass
class _Encoded:
    part: TablePart
    lowest: np.ndarray
    highest: np.ndarray
    report: EncodingReport


def _encode(
    job: tuple[int, TablePart, int],
    encoding: TableEncoding,
    complete: TableEncoding | None,
    folder: Path,
) -> _Encoded:
    """Write the features of a part; `job` is (number, part, first row)."""
    number, part, first_row = job

    def encode() -> _Encoded:
        n_features = len(encoding.features)
        result = _Encoded(
            part,
            np.full(n_features, np.inf),
            np.full(n_features, -np.inf),
            EncodingReport(first=first_row, is_of_blocks=True),
        )
        masks = []

        def runs() -> Iterator[np.ndarray]:
            for piece, is_taken in part.pieces(encoding.names, complete):
                masks.append(is_taken)
                X = encoding.encode(piece, result.report)
                result.report.first += len(X)
                result.lowest = np.minimum(result.lowest, X.min(axis=0, initial=np.inf))
                result.highest = np.maximum(
                    result.highest, X.max(axis=0, initial=-np.inf)
                )
                yield X

        with atomic_path(
            folder_of_copies() / folder / f"{number:05d}.rows", lasting=False
        ) as temporary:
            write_rows(temporary, runs())
        result.part = part.with_rows(np.concatenate(masks))
        return result

    return patiently(encode)


# Storage


class StoredParts(BaseModel):
    parts: list[TablePart]
    encoding: dict[str, Any]
    name: str
    extremes: list[list[float]]


def parts_to_json(X: RowFiles) -> str:
    """Return a table's parts and their encoding as JSON."""
    encoded = [block for block in X.blocks if isinstance(block, EncodedPart)]
    assert X.extremes is not None
    return StoredParts(
        parts=[block.part for block in encoded],
        encoding=to_data(encoded[0].encoding, {}, "table"),
        name=X.name,
        extremes=X.extremes.tolist(),
    ).model_dump_json()


def parts_from_json(text: str) -> RowFiles:
    stored = StoredParts.model_validate_json(text)
    encoding = from_data(stored.encoding, {})
    blocks = tuple(EncodedPart(part, encoding) for part in stored.parts)
    extremes = np.array(stored.extremes)
    return RowFiles(
        blocks,
        len(encoding.features),
        np.dtype(np.float64),
        stored.name,
        extremes=extremes,
    )


def wanted_in_parts(
    config: DatasetConfig, files: Sequence[Location], table: Any, where: str
) -> bool:
    """Return whether to read a table part by part; by default only if large."""
    if config.in_parts is False:
        return False
    hindrance = _hindrance_to_parts(config, files)
    if config.in_parts:
        if hindrance:
            raise InputError(
                f"{where}: 'in_parts' {hindrance}, or leave 'in_parts' out."
            )
        return True
    n_bytes: int = 8 * table.num_rows * len(table.schema)
    return n_bytes >= BYTES_AS_NUMBERS and not hindrance


def _hindrance_to_parts(config: DatasetConfig, files: Sequence[Location]) -> str:
    if files[0].suffix not in SPLITTABLE:
        return f"needs files of {', '.join(SPLITTABLE)}, and {joint_name(files)} is none; write it as Parquet"
    keys = [key for key in WHOLE_TABLE if getattr(config, key)]
    if config.scale_on == "training":
        keys.append("scale_on: training")
    if config.columns and "text" in config.columns.values():
        keys.append("columns: text")
    if keys:
        return (
            f"does not go with {keys[0]!r}, which needs all rows at once; leave it out"
        )
    return ""
