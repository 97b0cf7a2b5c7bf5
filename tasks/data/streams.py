"""Tables that are read and written piece by piece: Parquet, CSV and Arrow files of any length in bounded memory."""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet

from learnkernels.conf.errors import InputError, listed
from learnkernels.tasks.data.locations import Location, sound, transferring

READ_BYTES = 2**20
"""What is asked of a Parquet file or a CSV at a time."""

FIRST_LINE = 2**16
"""Bytes in which the first line of a CSV is looked for."""

GROUP_ROWS = 2**17
"""Rows that are collected before they are written; a row group of Parquet, a batch of Arrow."""


class TableInput(ABC):
    """A table that is read once, from its first row to its last.

    Attributes
    ----------
    location : Location
    schema : pyarrow.Schema
        Of all its columns; types of a CSV are what its first block looks like.
    names : list of str
        Of its columns.
    share_read : float
        How much of it was read, from 0 to 1.
    """

    schema: Any
    _source: Any

    def __init__(self, location: Location) -> None:
        self.location = location
        self.share_read = 0.0
        with transferring(location):
            self._open()
            self._told = told_beside(location, self.schema)
            self.schema = schema_with(self.schema, self._told)
            self.names = list(self.schema.names)  # decoded here, where what is not UTF-8 is refused

    @abstractmethod
    def _open(self) -> None:
        """Find the schema."""

    @abstractmethod
    def count_rows(self) -> int:
        """Return the number of its rows; of a CSV, which does not say it, by reading it."""

    @abstractmethod
    def _batches(self, features: Sequence[str], others: Sequence[str], rows: int) -> Iterator[Any]:
        """Give record batches of any size that hold these columns, in any order, as they come from the file."""

    def _all_batches(self, features: Sequence[str], others: Sequence[str], rows: int) -> Iterator[Any]:
        """Give record batches of these columns, of which folders may tell some."""
        told = {name: value for name, value in self._told.items() if name in {*features, *others}}
        if self.location.suffix == ".csv":
            if both := set(features) & set(others):
                raise InputError(
                    f"{self.location.text}: {sorted(both)[0]!r} is a feature and cannot be an id too, as ids of a CSV "
                    "are text; copy another column."
                )
            told = {name: value if name in features else value.cast(pa.string()) for name, value in told.items()}
        numbers, rest = ([name for name in names if name not in told] for names in (features, others))
        for batch in self._batches(numbers, rest if numbers or rest else self.names[:1], rows):
            yield with_told(batch, told)

    def tables(self, features: Sequence[str], others: Sequence[str], rows: int) -> Iterator[Any]:
        """Give the table in pieces.

        Parameters
        ----------
        features : sequence of str
            Columns of numbers.
        others : sequence of str
            Columns that keep their types. Those of a CSV, which has none, are text.
        rows : int
            How many rows every piece but the last has.

        Yields
        ------
        piece : pyarrow.Table
            With at least these columns.

        Raises
        ------
        InputError
            The content is damaged, or a number of a CSV is none.
        TransferError
            It cannot be read for now.
        """
        batches, held, n = self._all_batches(features, others, rows), [], 0
        while True:
            with transferring(self.location):
                batch = next(batches, None)
                if batch is not None:
                    sound(batch)
            if batch is None:
                break
            held.append(batch)
            n += batch.num_rows
            if n >= rows:
                table = pa.Table.from_batches(held)
                whole = n - n % rows
                for start in range(0, whole, rows):
                    yield table.slice(start, rows)
                held, n = table.slice(whole).to_batches(), n - whole
        self.share_read = 1.0
        if n:
            yield pa.Table.from_batches(held)

    def close(self) -> None:
        """Let go of the file."""
        self._source.close()


class ParquetInput(TableInput):
    """Parquet, without a row group as a whole in memory; but some row groups of a server, which are read at once.

    Parameters
    ----------
    location : Location
    groups : sequence of int, optional
        Of which row groups the rows are read; of all by default.
    """

    def __init__(self, location: Location, groups: Sequence[int] | None = None) -> None:
        self._groups = groups
        super().__init__(location)

    def _open(self) -> None:
        self._source = self.location.open_input()
        ahead = self.location.remote and self._groups is not None  # of a server, whose every answer takes its time
        self._file = pa.parquet.ParquetFile(self._source, pre_buffer=ahead, buffer_size=0 if ahead else READ_BYTES)
        self.schema = self._file.schema_arrow

    def count_rows(self) -> int:
        """Return the number of rows of those groups."""
        about, groups = self._file.metadata, self._groups
        return int(about.num_rows if groups is None else sum(about.row_group(g).num_rows for g in groups))

    def _batches(self, features: Sequence[str], others: Sequence[str], rows: int) -> Iterator[Any]:
        total, read, groups = self.count_rows(), 0, self._groups
        for batch in self._file.iter_batches(batch_size=rows, row_groups=groups, columns=[*features, *others]):
            read += batch.num_rows
            self.share_read = read / max(total, read)
            yield batch
        if read != total:
            raise ValueError(f"it states {total:,} rows and holds {read:,}")


class ArrowInput(TableInput):
    """Arrow IPC file, Feather: mapped into memory where it lies on this machine."""

    def _open(self) -> None:
        self._source = arrow_source(self.location)
        self.schema = pa.ipc.open_file(self._source).schema

    def count_rows(self) -> int:
        """Return the number of rows of all record batches."""
        return count_arrow_rows(self._source)

    def _batches(self, features: Sequence[str], others: Sequence[str], rows: int) -> Iterator[Any]:
        fields = sorted({self.schema.get_field_index(name) for name in (*features, *others)})
        for i, n, batch in arrow_batches(self._source, fields):
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)
                self.share_read = (i + min(start + rows, batch.num_rows) / batch.num_rows) / n  # rows are evenly worth


def arrow_source(location: Location) -> Any:
    """Return an Arrow file, mapped into memory where it lies on this machine."""
    location.size()
    return location.open_input() if location.remote else pa.memory_map(location.path)


def arrow_batches(source: Any, fields: Sequence[int] | None = None) -> Iterator[tuple[int, int, Any]]:
    """Give the record batches of an Arrow file, each with its position and how many there are.

    Parameters
    ----------
    source : pyarrow.NativeFile
        What `arrow_source` returned.
    fields : sequence of int, optional
        Positions of the columns to read, ascending; all by default.
    """
    reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
    for i in range(reader.num_record_batches):
        yield i, reader.num_record_batches, reader.get_batch(i)


def count_arrow_rows(source: Any) -> int:
    """Return the rows of all record batches of an Arrow file, of which the first column is read."""
    return sum(batch.num_rows for _, _, batch in arrow_batches(source, [0]))


def delimiter_of(location: Location) -> str:
    """Return what stands between the names in the first line of a CSV: a comma, a semicolon, a tab or a bar.

    The most frequent of them outside of quotes; a comma where there is none.
    """
    with location.filesystem.open_input_stream(location.path) as stream:
        line = bytes(stream.read(FIRST_LINE)).partition(b"\n")[0]
    bare = re.sub(rb'"[^"]*"', b"", line).decode("utf-8", "replace")
    return max(",;\t|", key=bare.count)


class CsvInput(TableInput):
    """CSV, in blocks; progress is counted in bytes."""

    def _open(self) -> None:
        self._size = self.location.size()
        with closing(self._reader(pa.csv.ConvertOptions())) as reader:
            self.schema = reader.schema

    def _reader(self, convert: Any) -> Any:
        self._source = self._bytes = _CountedBytes(self.location.filesystem.open_input_stream(self.location.path))
        return pa.csv.open_csv(
            pa.PythonFile(self._bytes, mode="r"),
            read_options=pa.csv.ReadOptions(block_size=READ_BYTES),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter_of(self.location), newlines_in_values=True),
            convert_options=convert,
        )

    def count_rows(self) -> int:
        """Return the number of its rows, all of which are read."""
        with transferring(self.location), closing(self._reader(pa.csv.ConvertOptions())) as reader:
            return sum(batch.num_rows for batch in reader)

    def _batches(self, features: Sequence[str], others: Sequence[str], rows: int) -> Iterator[Any]:
        types = {name: pa.string() for name in others}
        for name in features:
            types[name] = pa.bool_() if pa.types.is_boolean(self.schema.field(name).type) else pa.float64()
        with closing(self._reader(pa.csv.ConvertOptions(column_types=types, include_columns=list(types)))) as reader:
            for batch in reader:
                self.share_read = min(1.0, self._bytes.count / self._size)
                yield batch


class ManyInput(TableInput):
    """Several files of the same columns, one after the other.

    Parameters
    ----------
    locations : sequence of Location
        Of one format.
    """

    def __init__(self, locations: Sequence[Location]) -> None:
        self._parts = [INPUTS[location.suffix](location) for location in locations]
        super().__init__(locations[0])

    def _open(self) -> None:
        named = [(part.location.text, part.schema) for part in self._parts]
        self._csv = self.location.suffix == ".csv"
        self.schema = one_schema(named, f"{self.location.text} and {len(named) - 1} more", texts=self._csv)

    def _batches(self, features: Sequence[str], others: Sequence[str], rows: int) -> Iterator[Any]:
        names = list(dict.fromkeys([*features, *others]))
        kinds = pa.schema([self.schema.field(name) for name in names])
        for i, part in enumerate(self._parts):
            with transferring(part.location):
                for batch in part._all_batches(features, others, rows):
                    held = sound(batch).select(names)
                    yield held if self._csv else held.cast(kinds)  # those of a CSV are read as they are asked for
                    self.share_read = (i + part.share_read) / len(self._parts)

    def count_rows(self) -> int:
        """Return the number of rows of all files."""
        return sum(part.count_rows() for part in self._parts)

    def close(self) -> None:
        """Let go of the files."""
        for part in self._parts:
            part.close()


def told_beside(location: Location, schema: Any) -> dict[str, Any]:
    """Return what the names of a file's folders tell, as scalars, but for columns that it has itself."""
    return {name: pa.scalar(value) for name, value in location.told if name not in schema.names}


def schema_with(schema: Any, told: Mapping[str, Any]) -> Any:
    """Return a schema with columns of one value each."""
    for name, value in told.items():
        schema = schema.append(pa.field(name, value.type))
    return schema


def with_told(rows: Any, told: Mapping[str, Any]) -> Any:
    """Return a table or batch with columns of one value each."""
    for name, value in told.items():
        rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def one_schema(named: Sequence[tuple[str, Any]], where: str, texts: bool = False) -> Any:
    """Return the columns of several files, in the order of the first, and the types that hold all their values.

    Parameters
    ----------
    named : sequence of (str, pyarrow.Schema)
        What each file is called, and its columns.
    where : str
        Begins sentences.
    texts : bool
        Whether columns of different types are text, as those of CSV files are.

    Raises
    ------
    InputError
        A file has other columns than the first, or a column of a type that does not go with the others.
    """
    first, schema = named[0]
    for name, other in named[1:]:
        ours, theirs = list(schema.names), list(other.names)
        lacking, beyond = [one for one in ours if one not in theirs], [one for one in theirs if one not in ours]
        if lacking or beyond:
            said = f"has no column {listed(lacking)}" if lacking else f"has the column {listed(beyond)}"
            of_first = "has" if lacking else "does not have"
            raise InputError(
                f"{where}: {name} {said}, which {first} {of_first}; give files of the same columns, or leave it out."
            )
        if sorted(ours) != sorted(theirs):
            raise InputError(f"{where}: {name} has a column more than once; rename one.")
    fields = []
    for field in schema:
        kinds = {name: other.field(field.name).type for name, other in named if schema.names.count(field.name) == 1}
        kind = _common(list(kinds.values()) or [field.type], texts)
        if kind is None:
            against, differs = next((one, kind) for one, kind in kinds.items() if kind != field.type)
            raise InputError(
                f"{where}: column {field.name!r} is {differs} in {against} and {field.type} in {first}; write it as "
                "one type, or leave it out."
            )
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def _common(kinds: Sequence[Any], texts: bool) -> Any:
    """Return the type that holds the values of several; None where there is none."""
    kinds = [kind for kind in dict.fromkeys(kinds) if not pa.types.is_null(kind)] or [pa.null()]
    if len(kinds) == 1:
        return kinds[0]
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        return pa.int64() if all(pa.types.is_signed_integer(kind) for kind in kinds) else pa.float64()
    zones = {getattr(kind, "tz", None) for kind in kinds}
    if all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in kinds) and len(zones) == 1:
        return pa.timestamp("us", zones.pop())
    held = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    if texts or all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in held):
        return pa.string()
    return None


class _CountedBytes(io.RawIOBase):
    """A stream that knows how much of it was read."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        part: bytes = self._source.read(None if size < 0 else size)
        self.count += len(part)
        return part

    def close(self) -> None:
        self._source.close()
        super().close()


INPUTS: dict[str, Callable[[Location], TableInput]] = {
    ".parquet": ParquetInput,
    ".csv": CsvInput,
    ".arrow": ArrowInput,
    ".feather": ArrowInput,
}
"""Endings of tables that can be read and written piece by piece."""


# Output --------------------------------------------------------------------------------------------------------------


class TableOutput(AbstractContextManager["TableOutput"]):
    """A table that is written piece by piece, in the format of its ending.

    Parameters
    ----------
    path : Path
        Where; `location` names it in sentences.
    location : Location
    schema : pyarrow.Schema
        Its metadata is kept by Parquet and Arrow.
    """

    def __init__(self, path: Path, location: Location, schema: Any) -> None:
        self._location, self._schema = location, schema
        self._held: list[Any] = []
        self._rows = 0
        self._values: dict[str, Any] = {}
        with self._writing():
            self._writer = _WRITERS[location.suffix](str(path), schema)

    def write(self, table: Any) -> None:
        """Append rows.

        Raises
        ------
        InputError
            The format has no such type.
        TransferError
            They cannot be written for now.
        """
        self._held.append(table)
        self._rows += table.num_rows
        if self._rows >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            with self._writing():
                table = pa.concat_tables(self._held).combine_chunks()
                if self._location.suffix in (".arrow", ".feather"):
                    table = self._with_growing_dictionaries(table)
                self._writer.write_table(table)
            self._held, self._rows = [], 0

    def _with_growing_dictionaries(self, table: Any) -> Any:
        """Return the table with dictionaries that only grow, as an Arrow file needs them."""
        for c, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type):
                column = table.column(c).combine_chunks()
                column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
                known = self._values.get(field.name, column.dictionary.slice(0, 0))
                new = column.dictionary.filter(pa.compute.invert(pa.compute.is_in(column.dictionary, value_set=known)))
                known = self._values[field.name] = pa.concat_arrays([known, new.unique()])
                places = pa.compute.index_in(column.dictionary, value_set=known).cast(field.type.index_type)
                grown = pa.DictionaryArray.from_arrays(places.take(column.indices), known, ordered=field.type.ordered)
                table = table.set_column(c, field, grown)
        return table

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            with suppress(Exception):  # what is written will not be used
                self._writer.close()
            return
        self._flush()
        with self._writing():
            self._writer.close()

    def _writing(self) -> AbstractContextManager[None]:
        return transferring(self._location, "written")


def _arrow_writer(path: str, schema: Any) -> Any:
    return pa.ipc.new_file(path, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True))


_WRITERS: dict[str, Callable[[str, Any], Any]] = {
    ".parquet": pa.parquet.ParquetWriter,
    ".csv": pa.csv.CSVWriter,
    ".arrow": _arrow_writer,
    ".feather": _arrow_writer,
}
