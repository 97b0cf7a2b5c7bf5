"""Tables of one file, or of several files of the same columns, of which columns are read as they are asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.fs
import pyarrow.ipc
import pyarrow.parquet

from learnkernels.conf.files import chosen, files_of, folder_of, matching, told_by_folders
from learnkernels.conf.loading import is_pattern, is_remote
from learnkernels.tasks.data.locations import Location, explained, locate, sound, transferring
from learnkernels.tasks.data.streams import (
    arrow_batches,
    arrow_source,
    count_arrow_rows,
    delimiter_of,
    one_schema,
    schema_with,
    told_beside,
    with_told,
)

READ_BYTES = 64 << 20
"""Read ahead of a Parquet file of this machine, over all its columns."""


@dataclass(frozen=True)
class Files:
    """The files of a data set, in the order in which their rows follow each other.

    Attributes
    ----------
    locations : tuple of Location
        At least one; of one format.
    """

    locations: tuple[Location, ...]

    @property
    def name(self) -> str:
        """What they are called in sentences."""
        first, *others = self.locations
        return f"{first.name} and {len(others)} more" if others else first.name

    @property
    def suffix(self) -> str:
        """The ending of their names."""
        return self.locations[0].suffix


def locations_of(*addresses: str) -> tuple[Location, ...]:
    """Return the places that paths or addresses stand for: of one file, or of those of a folder or pattern by name.

    What names of folders tell of rows is that of folders below each of them.

    Raises
    ------
    InputError
        A folder or pattern holds no table or tables of several formats, or a server cannot be reached.
    """
    found = [(file, folder_of(address)) for address in addresses for file in _files_at(address)]
    return telling([locate(file) for file, _ in found], [told_by_folders(*one) for one in found])


def _files_at(address: str) -> list[str]:
    """Return the paths or addresses of the files that one stands for, by name."""
    if not is_remote(address):
        return files_of(address) or [address]
    if not is_pattern(address):
        return [address]
    within = locate(f"{folder_of(address)}/x")
    folder = within.path.rpartition("/")[0]
    with explained(within):
        infos = within.filesystem.get_file_info(pyarrow.fs.FileSelector(folder, recursive=True, allow_not_found=True))
    files = [f"s3://{info.path}" for info in infos if info.type == pyarrow.fs.FileType.File]
    found = files if address.endswith("/") else matching(files, address)
    return chosen(found, address, f"s3://{folder}")


def telling(locations: Sequence[Location], told: Sequence[Mapping[str, str | None]]) -> tuple[Location, ...]:
    """Return places of files with what the names of their folders tell: whole numbers, numbers, or else text.

    Parameters
    ----------
    locations : sequence of Location
        Of files.
    told : sequence of mapping of str to str
        Of each of them; a column has numbers where they are numbers in all.
    """
    texts: dict[str, list[str]] = {}
    for one in told:
        for name, value in one.items():
            texts.setdefault(name, []).extend(() if value is None else (value,))
    kinds = {name: next(kind for kind in (int, float, str) if _all_are(kind, of)) for name, of in texts.items()}
    return tuple(
        replace(location, told=tuple((name, None if of is None else kinds[name](of)) for name, of in one.items()))
        for location, one in zip(locations, told, strict=True)
    )


def _all_are(kind: type, texts: Sequence[str]) -> bool:
    form = {int: "[+-]?[0-9]{1,18}", float: "[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?"}.get(kind, "(?s:.*)")
    return all(re.fullmatch(form, text) for text in texts)


@dataclass(frozen=True)
class OpenTable:
    """A table of which columns, or all rows one run after the other, are read when they are asked for.

    Attributes
    ----------
    schema : pyarrow.Schema
    num_rows : int
    read : callable
        Return some columns as a table.
    read_batches : callable
        Return the record batches of all columns, of at most so many rows each.
    pieces : sequence of (Location, int or None, int)
        What can be read without the rest: each file, the number of a row group of it, or None for all, and its rows;
        none for a table that is read as a whole.
    """

    schema: pa.Schema
    num_rows: int
    read: Callable[[list[str]], pa.Table]
    read_batches: Callable[[int], Iterable[pa.RecordBatch]]
    pieces: Sequence[tuple[Location, int | None, int]] = ()

    @classmethod
    def of(cls, table: pa.Table) -> OpenTable:
        """Return a table that is in memory."""
        return cls(table.schema, table.num_rows, table.select, lambda rows: table.to_batches(max_chunksize=rows))

    def select(self, names: list[str]) -> pa.Table:
        """Return some columns, checked."""
        return sound(self.read(names))

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Return the record batches of all columns, of at most so many rows each, checked; together all rows."""
        held = 0
        for batch in self.read_batches(rows):
            held += batch.num_rows
            yield sound(batch)
        if held != self.num_rows:
            raise ValueError(f"it states {self.num_rows:,} rows and holds {held:,}")

    def telling(self, location: Location) -> OpenTable:
        """Return it with the columns that the names of its folders tell, but for those that it has."""
        told = told_beside(location, self.schema)
        if not told:
            return self

        def read(names: list[str]) -> pa.Table:
            own = [name for name in names if name not in told]
            table = self.read(own or self.schema.names[:1])
            return with_told(table, {name: told[name] for name in names if name in told}).select(names)

        def batches(rows: int) -> Iterator[pa.RecordBatch]:
            return (with_told(batch, told) for batch in self.read_batches(rows))

        return replace(self, schema=schema_with(self.schema, told), read=read, read_batches=batches)


@contextmanager
def opened(files: Files, where: str) -> Iterator[OpenTable]:
    """Give the table of some files; `where` begins sentences.

    Raises
    ------
    InputError
        A file is damaged, or has other columns, or columns of another type, than the first.
    """
    if len(files.locations) == 1:
        (location,) = files.locations
        with transferring(location, called=f"{where}: {location.name}"), TABLES[location.suffix](location) as table:
            yield table.telling(location)
        return
    with ExitStack() as stack:
        tables = [_entered(stack, location, where) for location in files.locations]
        named = [(location.name, table.schema) for location, table in zip(files.locations, tables, strict=True)]
        is_csv = files.suffix == ".csv"
        schema = one_schema(named, where, texts=is_csv)
        texts = [field.name for field in schema if pa.types.is_string(field.type)] if is_csv else []
        for i, location in enumerate(files.locations):
            as_text = [name for name in texts if not pa.types.is_string(tables[i].schema.field(name).type)]
            if as_text:  # of what other files have, not all are numbers
                tables[i] = _entered(stack, location, where, as_text)
        yield _joined(list(zip(files.locations, tables, strict=True)), schema, where)


def _entered(stack: ExitStack, location: Location, where: str, as_text: Sequence[str] = ()) -> OpenTable:
    """Return the table of one of several files, which is closed with the stack."""
    with transferring(location, called=f"{where}: {location.name}"):
        how = {"as_text": as_text} if as_text else {}
        return stack.enter_context(TABLES[location.suffix](location, **how)).telling(location)


def _joined(parts: Sequence[tuple[Location, OpenTable]], schema: pa.Schema, where: str) -> OpenTable:
    """Return tables, one after the other, as one of the columns and types of a schema."""

    def read(names: list[str]) -> pa.Table:
        kinds, tables = pa.schema([schema.field(name) for name in names]), []
        for location, table in parts:
            with transferring(location, called=f"{where}: {location.name}"):
                tables.append(table.select(names).cast(kinds))
        return pa.concat_tables(tables).unify_dictionaries()

    def batches(rows: int) -> Iterator[pa.RecordBatch]:
        for location, table in parts:
            with transferring(location, called=f"{where}: {location.name}"):
                for batch in table.batches(rows):
                    yield batch.select(schema.names).cast(schema)

    n_rows = sum(table.num_rows for _, table in parts)
    return OpenTable(schema, n_rows, read, batches, [piece for _, table in parts for piece in table.pieces])


@contextmanager
def _open_parquet(location: Location) -> Iterator[OpenTable]:
    """Give a table of which no row group is read as a whole, but from a server, where many small reads take long."""
    if location.remote:
        file = pyarrow.parquet.ParquetFile(location.open_input(), pre_buffer=True)
    else:
        width = max(1, pyarrow.parquet.read_metadata(location.path).num_columns)
        ahead = int(np.clip(READ_BYTES // width, 1 << 16, 1 << 20))
        file = pyarrow.parquet.ParquetFile(location.path, pre_buffer=False, buffer_size=ahead)
    with file:
        about = file.metadata
        pieces = [(location, group, about.row_group(group).num_rows) for group in range(about.num_row_groups)]
        yield OpenTable(
            file.schema_arrow, about.num_rows, file.read, lambda rows: file.iter_batches(batch_size=rows), pieces
        )


@contextmanager
def _open_csv(location: Location, as_text: Sequence[str] = ()) -> Iterator[OpenTable]:
    """Give a table of which every column has the type that all its values have, or is text as it is asked for.

    Arrow takes 0x10 for a whole number where it looks for types, and for none where it is told to read numbers, as
    `predict` does: such a column is text.
    """
    digits = re.compile(rb"0[xX]")
    before, found = b"", False

    def look(part: Any) -> Any:
        nonlocal before, found
        found = found or digits.search(before + bytes(part)) is not None
        before = bytes(part)[-1:]
        return part

    def read(**how: Any) -> pa.Table:
        with location.filesystem.open_input_stream(location.path) as stream:
            return pyarrow.csv.read_csv(
                pa.TransformInputStream(stream, look),
                parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
                convert_options=pyarrow.csv.ConvertOptions(**how),
            )

    location.size()
    delimiter = delimiter_of(location)
    table = read(column_types=dict.fromkeys(as_text, pa.string()))
    whole = [field.name for field in table.schema if pa.types.is_integer(field.type)] if found else []
    if whole and len(set(table.column_names)) == table.num_columns:
        for name, text in zip(
            whole, read(include_columns=whole, column_types=dict.fromkeys(whole, pa.string())).columns, strict=True
        ):
            if pc.any(pc.match_substring_regex(text, "^\\s*[+-]?0[xX]")).as_py():
                table = table.set_column(table.schema.get_field_index(name), name, text)
    yield OpenTable.of(table)


@contextmanager
def _open_ipc(location: Location) -> Iterator[OpenTable]:
    """Give a table of which one record batch at a time is read."""
    with arrow_source(location) as source:
        schema = pa.ipc.open_file(source).schema
        if not len(schema):
            raise ValueError("it has no columns")

        def read(names: list[str]) -> pa.Table:
            fields = sorted(map(schema.get_field_index, names))
            held = [sound(batch) for _, _, batch in arrow_batches(source, fields)]
            return pa.Table.from_batches(held).select(names) if held else schema.empty_table().select(names)

        def batches(rows: int) -> Iterator[pa.RecordBatch]:
            for _, _, batch in arrow_batches(source):
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

        n_rows = count_arrow_rows(source)
        yield OpenTable(schema, n_rows, read, batches, [(location, None, n_rows)])


TABLES: dict[str, Callable[..., AbstractContextManager[OpenTable]]] = {
    ".parquet": _open_parquet,
    ".csv": _open_csv,
    ".arrow": _open_ipc,
    ".feather": _open_ipc,
}
"""Endings of tables and what opens each."""
