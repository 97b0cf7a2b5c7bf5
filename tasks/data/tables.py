"""Tables of one file, or of several files of the same columns: read as a whole, in pieces or in parts, and written."""

from __future__ import annotations

import codecs
import csv
import io
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import charset_normalizer
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.fs
import pyarrow.ipc
import pyarrow.parquet

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.files import (
    chosen,
    compression_of,
    files_of,
    folder_of,
    is_pattern,
    is_remote,
    matching,
    told_by_folders,
)
from learnkernels.kernels.column_encoding.quantities import BOOLEAN, CANONICAL_INTEGER, CANONICAL_NUMBER
from learnkernels.kernels.column_encoding.reading import MISSING

from .locations import Location, explained, locate, transferring

AHEAD_BYTES = 64 << 20
"""Read ahead of a Parquet file of this machine, over all its columns."""

BLOCK_BYTES = 4 << 20
"""What is read of a CSV at a time."""

SAMPLE_BYTES = 1 << 18
"""The beginning of a CSV, in which it is looked for what separates columns, and how it is encoded."""

ENCODINGS = ["cp1251", "cp1253", "cp932", "gb18030", "big5", "euc_kr", "euc_jp"]
"""What a CSV may be written in that is not UTF-8 and has few Latin letters; any other is read as Windows-1252."""

MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf8"}
"""How a file is encoded that begins with some bytes."""

ARROW_TYPES = (
    (f"^({CANONICAL_INTEGER})$", pa.int64()),
    (f"^({CANONICAL_NUMBER})$", pa.float64()),
    (f"^({BOOLEAN})$", pa.bool_()),
)
"""Patterns of the texts of a CSV file that say no more than a value of a type."""

INTEGER_DIGITS = 20
"""Digits of the largest number of 64 bits."""

DECIMAL_DIGITS = 38
"""Digits of the largest decimal of 128 bits."""

NO_NAME = re.compile("|Unnamed: [0-9]+")
"""Names of columns without a name: none, or what pandas writes for it."""


# Places --------------------------------------------------------------------------------------------------------------


def joint_name(locations: Sequence[Location]) -> str:
    """Return what files are called in sentences."""
    first, *others = locations
    return f"{first.name} and {len(others)} more" if others else first.name


def locations_of(*addresses: str) -> tuple[Location, ...]:
    """Return the locations of paths or addresses: of one file, or of those of a folder or pattern by name.

    What names of folders tell of rows is that of folders below each of them.

    Raises
    ------
    InputError
        A folder or pattern holds no table or tables of several formats, or a server cannot be reached.
    """
    found = [(file, folder_of(address)) for address in addresses for file in _files_at(address)]
    return telling([locate(file) for file, _ in found], [told_by_folders(*one) for one in found])


def _files_at(address: str) -> list[str]:
    """Return the paths or addresses of the files that one refers to, by name."""
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
        Of each of them, None for a missing value; a column has numbers where all that are there are numbers.
    """
    names = dict.fromkeys(name for values in told for name in values)
    columns = {name: _typed_by_folders([values.get(name) for values in told]) for name in names}
    placed = []
    for position, (location, values) in enumerate(zip(locations, told, strict=True)):
        of_file = tuple((name, columns[name][position].as_py(), str(columns[name].type)) for name in values)
        placed.append(replace(location, told=of_file))
    return tuple(placed)


def _typed_by_folders(texts: Sequence[str | None]) -> pa.Array:
    """Return the values in names of folders as whole numbers, numbers or else text."""
    column = pa.array(texts)
    for kind in (pa.int64(), pa.float64()) if column.null_count < len(column) else ():
        with suppress(pa.ArrowInvalid):
            return column.cast(kind)
    return column


# Files ---------------------------------------------------------------------------------------------------------------


class TableFile:
    """A table in one file, of which columns are read batch by batch.

    Parameters
    ----------
    location : Location
    group : int, optional
        Of which row group of Parquet the rows are read; of all by default.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the columns in the file, of plain types, and of those that the names of its folders tell. Columns of a CSV
        are text.
    share_read : float
        How much of it was read, from 0 to 1.
    encoding : str
        Encoding of texts.
    """

    schema: Any
    encoding = "utf8"
    _source: Any

    def __init__(self, location: Location, group: int | None = None) -> None:
        self.location, self._group = location, group
        self.share_read = 0.0
        self._open()
        names = list(self.schema.names)  # decoded here, where what is not UTF-8 is refused
        for i, field in enumerate(self.schema):
            self.schema = self.schema.set(i, field.with_type(plain_type(field.type)))
        self._told: dict[str, pa.Scalar] = {}
        for name, value, type_name in location.told:
            if name in names:
                continue
            scalar = pa.scalar(value, pa.type_for_alias(type_name))
            self._told[name] = scalar.cast(pa.string()) if location.suffix == ".csv" else scalar
            self.schema = self.schema.append(pa.field(name, self._told[name].type))

    def _open(self) -> None:
        """Find the schema."""
        raise NotImplementedError

    def count_rows(self) -> int:
        """Return the number of its rows."""
        raise NotImplementedError

    def _read(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Give record batches of about so many rows that hold these columns of the file."""
        raise NotImplementedError

    @property
    def pieces(self) -> list[tuple[Location, int | None, int]]:
        """What can be read without the rest: the file, the number of a row group or None for all, and its rows."""
        return [(self.location, None, self.count_rows())]

    def batches(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Give record batches of about so many rows that hold these columns, in their order."""
        own = [name for name in names if name not in self._told] or self.schema.names[:1]
        fields = {field.name: field for field in self.schema}
        schema = pa.schema([fields[name] for name in names])
        for batch in self._read(own, rows):
            batch.validate(full=True)  # what it states may lead out of the memory of a column
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns |= {name: pa.repeat(value, batch.num_rows) for name, value in self._told.items()}
            yield pa.record_batch([as_plain(columns[name], fields[name].type) for name in names], schema=schema)

    def close(self) -> None:
        """Close the file."""
        self._source.close()


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column is read as: one that all functions take, with the same values.

    Views become texts, bytes and lists, runs of equal values become these values, extensions of Arrow become the values
    that they store, UUIDs become texts, and decimals get one width. Other types stay.
    """
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(kind, pa.ExtensionType):  # of a library, such as periods of pandas, whose values read as texts
            return kind
        names = {"arrow.bool8": pa.bool_(), "arrow.uuid": pa.string()}
        return names.get(kind.extension_name) or plain_type(kind.storage_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, plain_type(kind.value_type), kind.ordered)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind) or pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_item(kind.value_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_item(kind.value_type)))
    return kind


def _plain_item(kind: pa.DataType) -> pa.DataType:
    """Return what the items of a list are read as: of views their `plain_type`, others as they are."""
    return plain_type(kind) if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) else kind


def as_plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as its `plain_type`."""
    if column.type == kind:
        return column
    if pa.types.is_run_end_encoded(column.type):
        runs = pa.RunEndEncodedArray.from_arrays(column.run_ends, as_plain(column.values, kind))
        return pc.run_end_decode(runs.slice(column.offset, len(column)))
    if pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        ends = np.cumsum([0, *lengths.to_pylist()])
        items = as_plain(column.flatten(), kind.value_type)
        return pa.LargeListArray.from_arrays(pa.array(ends), items, type=kind, mask=column.is_null())
    if isinstance(column.type, pa.BaseExtensionType):
        if column.type.extension_name == "arrow.uuid":
            return pa.array([None if value is None else str(value) for value in column.to_pylist()], kind)
        return as_plain(column.storage, kind)
    return column.cast(kind)


class ParquetFile(TableFile):
    """Parquet, without a row group as a whole in memory; but one row group of a server, which is read at once."""

    def _open(self) -> None:
        self._source = self.location.open_input()
        at_once = self.location.remote and self._group is not None  # of a server, whose every answer takes its time
        about = pyarrow.parquet.read_metadata(self._source)
        ahead = 0 if at_once else int(np.clip(AHEAD_BYTES // max(1, about.num_columns), 1 << 16, 1 << 20))
        self._file = pyarrow.parquet.ParquetFile(self._source, metadata=about, pre_buffer=at_once, buffer_size=ahead)
        self.schema = self._file.schema_arrow

    def count_rows(self) -> int:
        about = self._file.metadata
        return int(about.num_rows if self._group is None else about.row_group(self._group).num_rows)

    @property
    def pieces(self) -> list[tuple[Location, int | None, int]]:
        about = self._file.metadata
        return [(self.location, group, about.row_group(group).num_rows) for group in range(about.num_row_groups)]

    def _read(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        total, read = self.count_rows(), 0
        groups = None if self._group is None else [self._group]
        for batch in self._file.iter_batches(batch_size=rows, row_groups=groups, columns=list(names)):
            read += batch.num_rows
            self.share_read = read / max(total, read)
            yield batch
        if read != total:
            raise ValueError(f"it states {total:,} rows and holds {read:,}")


class ArrowFile(TableFile):
    """Arrow IPC file, Feather: mapped into memory where it lies on this machine."""

    def _open(self) -> None:
        self.location.size()
        self._source = self.location.open_input() if self.location.remote else pa.memory_map(self.location.path)
        self.schema = pa.ipc.open_file(self._source).schema
        if not len(self.schema):
            raise ValueError("it has no columns")

    def _record_batches(self, fields: list[int]) -> Iterator[pa.RecordBatch]:
        reader = pa.ipc.open_file(self._source, options=pa.ipc.IpcReadOptions(included_fields=fields))
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)
            self.share_read = (i + 1) / reader.num_record_batches

    def count_rows(self) -> int:
        return sum(batch.num_rows for batch in self._record_batches([0]))

    def _read(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        for batch in self._record_batches(sorted(map(self.schema.get_field_index, names))):
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


class CsvFile(TableFile):
    """CSV, whose columns are text; progress is counted in bytes.

    Attributes
    ----------
    n_empty : int
        Columns without a name and without a value, which are left out.
    """

    def _open(self) -> None:
        self._size = self.location.size()
        self._source: Any = None
        with self._stream() as stream:
            sample = bytes(stream.read(SAMPLE_BYTES))
        self.encoding = _encoding_of(sample)
        text = sample.decode(self.encoding, "replace").removeprefix("\ufeff")
        said = re.match(r"sep=(.)\r?\n", text)  # as Excel says it
        self._delimiter = _delimiter_of(text) if said is None else said[1]
        header = self._header(0 if said is None else 1)
        self._width = len(header)
        empty = self._empty_columns([i for i, name in enumerate(header) if NO_NAME.fullmatch(name)])
        self.n_empty = len(empty)
        self._names = {i: name for i, name in enumerate(header) if i not in empty}
        nameless = [i + 1 for i, name in self._names.items() if not name]
        if len(nameless) > 1:
            raise ValueError(f"columns {listed(nameless, show=str)} have values and no name in the header; name them")
        if not self._names:
            raise ValueError("it has no column with a name or a value")
        self.schema = pa.schema([pa.field(name, pa.string()) for name in self._names.values()])

    def _header(self, skipped: int) -> list[str]:
        """Return the names of columns, as many as rows have cells, without spaces around them.

        Empty cells by which the header or the first row is longer, as of a separator at the ends of lines, are columns
        without a name in the former case, and none in the latter.
        """
        encoding = "utf-8-sig" if self.encoding == "utf8" else self.encoding
        with io.TextIOWrapper(io.BufferedReader(self._stream()), encoding, "replace", newline="") as lines:
            for _ in range(skipped):
                next(lines)
            rows = csv.reader(lines, delimiter=self._delimiter)
            header = [name.strip() for name in _next_row(rows)]
            self._lines_above = skipped + rows.line_num
            try:
                first = _next_row(rows)
            except csv.Error:  # of cells that Python's reader does not take
                first = header
        self._has_rows = bool(first)
        beyond = first[len(header) :]
        if any(cell.strip() for cell in beyond):
            raise ValueError(f"its header has {len(header)} cells, and the first row below {len(first)}")
        header += [""] * len(beyond)
        if first and not any(header[len(first) :]):
            del header[len(first) :]
        if not header:
            raise ValueError("it is empty")
        return header

    def _empty_columns(self, columns: Sequence[int]) -> set[int]:
        """Return which of some columns have no value in any row."""
        empty = set(columns)
        for batch in self._batches(columns) if columns else ():
            for i, column in zip(columns, batch.columns, strict=True):
                if stripped_texts(column).null_count < batch.num_rows:
                    empty.discard(i)
            if not empty:
                break
        return empty

    def _stream(self) -> Any:
        return self.location.open_text()

    def _batches(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Give the texts of some columns; the names are the numbers of these."""
        n_rows = 0
        try:
            for batch in self._batches_after(columns, 0) if self._has_rows else ():
                n_rows += batch.num_rows
                yield batch
        except pa.ArrowInvalid as error:
            if self.encoding != "utf8" or "invalid UTF8" not in str(error):
                raise
            self.encoding = _encoding_of_all(self._stream())
            yield from self._batches_after(columns, n_rows)

    def _batches_after(self, columns: Sequence[int], n_rows: int) -> Iterator[pa.RecordBatch]:
        """Give the texts of some columns in the rows after the first ones."""
        self._source = self.location.open_input()
        compression = compression_of(self.location.name)
        source = self._source if compression is None else pa.CompressedInputStream(self._source, compression)
        if self.encoding != "utf8":
            source = pa.transcoding_input_stream(source, self.encoding, "utf8")
        read = pyarrow.csv.ReadOptions(
            block_size=BLOCK_BYTES,
            column_names=[str(i) for i in range(self._width)],
            skip_rows=self._lines_above,
            skip_rows_after_names=n_rows,
            use_threads=False,  # as messages then say in which row something is wrong
        )
        parse = pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)
        names = [str(i) for i in columns]
        convert = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=names)
        options = {"read_options": read, "parse_options": parse, "convert_options": convert}
        with closing(pyarrow.csv.open_csv(source, **options)) as reader:
            yield from reader

    def count_rows(self) -> int:
        return sum(batch.num_rows for batch in self._read(self.schema.names[:1], 0))

    def _read(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        numbers = {name: i for i, name in self._names.items()}
        for batch in self._batches([numbers[name] for name in names]):
            self.share_read = self._source.tell() / self._size
            yield batch.rename_columns(list(names))

    def close(self) -> None:
        if self._source is not None:
            self._source.close()


def _next_row(rows: Iterator[list[str]]) -> list[str]:
    """Return the next row of a CSV that is no empty line; nothing at its end."""
    return next((row for row in rows if row), [])


def _encoding_of(sample: bytes) -> str:
    """Return the encoding of a CSV by its beginning: by a byte order mark, UTF-8 if that is possible, or a guess."""
    if mark := next((mark for mark in MARKS if sample.startswith(mark)), None):
        return MARKS[mark]
    if b"\0" in sample:  # as every second byte of Latin letters in UTF-16 is
        return "utf-16-be" if sample[::2].count(0) > sample[1::2].count(0) else "utf-16-le"
    return _encoding_of_all(io.BytesIO(sample))


def _encoding_of_all(stream: Any) -> str:
    """Return the encoding of a CSV by all its bytes: UTF-8, or a guess from the first block that is not."""
    decoder = codecs.getincrementaldecoder("utf8")()
    with stream as source:
        while block := bytes(source.read(BLOCK_BYTES)):
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                return _guessed(block[:SAMPLE_BYTES])
    return "utf8"


def _guessed(sample: bytes) -> str:
    """Return the likely encoding of bytes that are not UTF-8."""
    letters = [byte for byte in sample if byte > 127 or chr(byte).isalpha()]
    if 3 * sum(byte > 127 for byte in letters) > len(letters):
        guess = charset_normalizer.from_bytes(sample, cp_isolation=ENCODINGS).best()
        if guess is not None:
            return str(guess.encoding)
    return "latin-1" if any(byte in sample for byte in b"\x81\x8d\x8f\x90\x9d") else "cp1252"


def _delimiter_of(sample: str) -> str:
    """Return what separates the columns of a CSV: what gives most lines, and the header, the same number of columns.

    Next best is what gives all lines below the header the same number.
    """
    whole = sample[: sample.rfind("\n") + 1] or sample

    def agreement(delimiter: str) -> tuple[int, float, int]:
        rows = csv.reader(io.StringIO(whole, newline=""), delimiter=delimiter)
        try:
            lines = [len(line) for line in rows if line][:500]
        except csv.Error:
            lines = []
        ((columns, n),) = Counter(lines).most_common(1) or [(1, 0)]
        share = n / max(1, len(lines))
        if columns > 1 and lines[0] == columns:
            return 2, share, columns
        if columns > 1 and lines[0] > 1 and n == len(lines) - 1:
            return 1, share, columns
        return 0, share, columns

    return max(",;\t|", key=agreement)


FORMATS: dict[str, type[TableFile]] = {
    ".parquet": ParquetFile,
    ".csv": CsvFile,
    ".arrow": ArrowFile,
    ".feather": ArrowFile,
}
"""Endings of tables and what reads each."""


# Tables --------------------------------------------------------------------------------------------------------------


class Table(AbstractContextManager["Table"]):
    """A table of which columns, or rows piece by piece, are read when they are requested.

    Parameters
    ----------
    locations : sequence of Location
        Files of one format.
    where : str
        Begins sentences about the content.
    group : int, optional
        Of which row group of a Parquet file the rows are read; of all by default.

    Attributes
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, locations: Sequence[Location], where: str = "", group: int | None = None) -> None:
        self._where = where
        self._files: list[TableFile] = []
        try:
            for location in locations:
                with self._reading(location):
                    self._files.append(FORMATS[location.suffix](location, group))
            named = [
                (location.name if where else location.text, file.schema)
                for location, file in zip(locations, self._files, strict=True)
            ]
            about = where or f"{locations[0].text} and {len(named) - 1} more"
            self.schema = named[0][1] if len(named) == 1 else one_schema(named, about)
        except BaseException:
            self.close()
            raise

    @property
    def is_typed(self) -> bool:
        """Whether the files have types of columns. Columns of a CSV file are text."""
        return self._files[0].location.suffix != ".csv"

    def in_memory(self, as_text: Collection[str] = ()) -> Table | pa.Table:
        """Return the table with all its columns in memory if they are text, and columns of numbers as numbers.

        Columns of `as_text` stay text.
        """
        names = self.schema.names
        if self.is_typed or len(set(names)) < len(names):
            return self
        texts = self.select(names)
        columns = [texts[name] if name in as_text else _typed(texts[name]) for name in names]
        return pa.table(columns, names=names)

    def _reading(self, location: Location) -> AbstractContextManager[None]:
        return transferring(location, called=f"{self._where}: {location.name}" if self._where else "")

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def __exit__(self, *_: Any) -> None:
        self.close()

    @cached_property
    def num_rows(self) -> int:
        """How many rows there are; of a CSV, which does not say it, all are read."""
        counts = []
        for file in self._files:
            with self._reading(file.location):
                counts.append(file.count_rows())
        return sum(counts)

    @property
    def pieces(self) -> list[tuple[Location, int | None, int]]:
        """What can be read without the rest, file by file: see `TableFile`."""
        return [piece for file in self._files for piece in file.pieces]

    @property
    def notes(self) -> list[str]:
        """Remarks about the files, for reports; complete once they are read."""
        files = [file for file in self._files if isinstance(file, CsvFile)]
        notes = [
            f"{file.location.name} is not UTF-8, and is read as {file.encoding}"
            for file in files
            if not file.encoding.startswith("utf")
        ]
        if wider := [file.location for file in files if file.n_empty]:
            notes.append(f"empty columns without a name are left out of {joint_name(wider)}")
        return notes

    @property
    def share_read(self) -> float:
        """How much of it was read in the last pass, from 0 to 1."""
        return sum(file.share_read for file in self._files) / max(1, len(self._files))

    def _only(self, names: Sequence[str]) -> pa.Schema:
        """Return the schema of some columns."""
        fields, times = {field.name: field for field in self.schema}, Counter(self.schema.names)
        if wrong := [name for name in names if times[name] != 1]:
            name = self._where or self._files[0].location.text
            raise InputError(f"{name}: must have a column {wrong[0]!r} once; rename the columns.")
        return pa.schema([fields[name] for name in names])

    def select(self, names: Sequence[str]) -> pa.Table:
        """Return some columns, checked; see `remember_columns`."""
        schema = self._only(names)
        remembered = _remembered(self._files)
        known = dict(remembered.columns)  # a copy, as other threads read tables, too
        lacking = [name for name in names if name not in known]
        if lacking:
            batches = list(self.batches(lacking, 1 << 30))
            read = pa.Table.from_batches(batches, self._only(lacking)).unify_dictionaries()
            known.update(zip(lacking, read.columns, strict=True))
            if sum(column.nbytes for column in known.values()) <= MOST_REMEMBERED:
                remembered.columns.update(known)
                remembered.encodings[:] = [file.encoding for file in self._files]
        return pa.table([known[name] for name in names], schema=schema)

    def batches(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Give the record batches of some columns, of at most about so many rows each, checked; together all rows."""
        schema = self._only(names)
        for file in self._files:
            with self._reading(file.location):
                for batch in file.batches(names, rows):
                    yield batch if len(self._files) == 1 else batch.cast(schema)
            file.share_read = 1.0

    def tables(self, names: Sequence[str], rows: int) -> Iterator[pa.Table]:
        """Give some columns in pieces of so many rows each but the last.

        Raises
        ------
        InputError
            The content is damaged.
        TransferError
            It cannot be read for now.
        """
        waiting = self._only(names).empty_table()
        for batch in self.batches(names, rows):
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
            n_whole = waiting.num_rows - waiting.num_rows % rows
            for start in range(0, n_whole, rows):
                yield waiting.slice(start, rows)
            waiting = waiting.slice(n_whole)
        if waiting.num_rows:
            yield waiting


class _Remembered(NamedTuple):
    """Columns of a table by name, and the encoding of each of its files."""

    columns: dict[str, pa.ChunkedArray]
    encodings: list[str]


_REMEMBERED: dict[Any, _Remembered] = {}
"""Columns of the table that was read last, by the state of its files."""

MOST_REMEMBERED = 1 << 30
"""Bytes of columns that are remembered."""

_remembers = threading.Event()


@contextmanager
def remember_columns() -> Iterator[None]:
    """Keep the columns of the table that is read last until `forget_columns`; an error in the context forgets them."""
    _remembers.set()
    try:
        yield
    except BaseException:
        forget_columns()
        raise


def forget_columns() -> None:
    """Release the columns that are remembered, and remember no more."""
    _remembers.clear()
    _REMEMBERED.clear()


@contextmanager
def columns_remembered() -> Iterator[None]:
    """Enter a context in which the columns of the table that is read last are in memory, and are read once."""
    with remember_columns():
        yield
    forget_columns()


def _remembered(files: Sequence[TableFile]) -> _Remembered:
    """Return the columns that are remembered of files in their present state, for more to be added."""
    if not _remembers.is_set():
        return _Remembered({}, [])
    infos = [file.location.info() for file in files]
    state = tuple(
        (file.location.text, file.location.told, info.size, info.mtime_ns)
        for file, info in zip(files, infos, strict=True)
    )
    if state not in _REMEMBERED:
        _REMEMBERED.clear()
    remembered = _REMEMBERED.setdefault(state, _Remembered({}, []))
    for file, encoding in zip(files, remembered.encodings, strict=False):  # none of a table that is not read yet
        file.encoding = encoding
    return remembered


def stripped_texts(column: Any) -> Any:
    """Return texts without spaces around them, None where one denotes a missing value."""
    text = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(pc.utf8_lower(text), value_set=pa.array(sorted(MISSING), text.type)), None, text)


def _typed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text without spaces around it; as numbers or Booleans where it holds nothing else."""
    text = pc.utf8_trim_whitespace(column)
    held = stripped_texts(column)
    if held.null_count == len(held):
        return text
    for pattern, kind in ARROW_TYPES:
        if pc.all(pc.match_substring_regex(held, pattern)).as_py():
            return held.cast(kind)
    return text


def one_schema(named: Sequence[tuple[str, Any]], where: str) -> Any:
    """Return the columns of several files, in the order of the first, and the types that hold all their values.

    Parameters
    ----------
    named : sequence of (str, pyarrow.Schema)
        Name of each file, and its columns.
    where : str
        Begins sentences.

    Raises
    ------
    InputError
        A file has other columns than the first, or a column of a type that does not go with the others.
    """
    first_name, first_schema = named[0]
    for name, schema in named[1:]:
        _require_same_columns(first_name, first_schema.names, name, schema.names, where)
    fields = []
    for field in first_schema:
        types = [field.type]
        if first_schema.names.count(field.name) == 1:
            types = [schema.field(field.name).type for _, schema in named]
        common_type = _common(types)
        if common_type is None:
            other = next(position for position, kind in enumerate(types) if kind != field.type)
            raise InputError(
                f"{where}: column {field.name!r} is {types[other]} in {named[other][0]} and {field.type} in "
                f"{first_name}; write it as one type, or leave it out."
            )
        fields.append(pa.field(field.name, common_type))
    return pa.schema(fields)


def _require_same_columns(
    first_name: str, first_columns: Sequence[str], name: str, columns: Sequence[str], where: str
) -> None:
    """Raise InputError if a file has other columns than the first, or one of them more often."""
    way_out = "give files of the same columns, or leave it out"
    if lacking := [column for column in first_columns if column not in columns]:
        raise InputError(f"{where}: {name} has no column {listed(lacking)}, which {first_name} has; {way_out}.")
    if beyond := [column for column in columns if column not in first_columns]:
        raise InputError(
            f"{where}: {name} has the column {listed(beyond)}, which {first_name} does not have; {way_out}."
        )
    if sorted(first_columns) != sorted(columns):
        raise InputError(f"{where}: {name} has a column more than once; rename one.")


def _common(types: Sequence[Any]) -> Any:
    """Return the type that holds the values of several; None if there is none."""
    different = [kind for kind in dict.fromkeys(types) if not pa.types.is_null(kind)]
    if len(different) < 2:
        return different[0] if different else pa.null()
    if all(pa.types.is_signed_integer(kind) for kind in different):
        return pa.int64()
    if all(pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in different):
        return _common_decimal(different)
    if all(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind) for kind in different):
        return pa.float64()
    if all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in different):
        zones = {getattr(kind, "tz", None) for kind in different}
        return pa.timestamp("us", zones.pop()) if len(zones) == 1 else None
    values = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in different]
    if all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in values):
        return pa.string()
    return None


def _common_decimal(kinds: Sequence[Any]) -> Any:
    """Return the type that holds the numbers of integers and decimals; float64 where no decimal has so many digits."""
    decimals = [kind for kind in kinds if pa.types.is_decimal(kind)]
    if not decimals:
        return pa.float64()
    before_point = [kind.precision - kind.scale for kind in decimals]
    if len(decimals) < len(kinds):
        before_point.append(INTEGER_DIGITS)
    scale = max(0, *(kind.scale for kind in decimals))
    digits = max(before_point) + scale
    return pa.decimal128(digits, scale) if digits <= DECIMAL_DIGITS else pa.float64()


# Output --------------------------------------------------------------------------------------------------------------


FORMULA = r"^[=+\-@\t\r]"
"""Beginnings of texts that a spreadsheet runs as formulas."""

SIGNED_NUMBER = r"(?i)^[+-](\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity|nan)$"
"""Texts with such a beginning that are numbers, and run nothing."""


def escape_formulas(table: Any) -> Any:
    """Return a table in which an apostrophe leads each text, and name of a column, that begins like a formula."""
    names = _escaped(pa.array(table.column_names, pa.string())).to_pylist()
    return pa.table([_escaped(column) for column in table.columns], names=names)


def _escaped(values: Any) -> Any:
    """Return values, of which texts that begin like a formula have an apostrophe before them."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return values
    begins = pc.match_substring_regex(values, FORMULA)
    is_formula = pc.and_not(begins, pc.match_substring_regex(values, SIGNED_NUMBER))
    apostrophe, nothing = pa.scalar("'", values.type), pa.scalar("", values.type)
    return pc.if_else(is_formula, pc.binary_join_element_wise(apostrophe, values, nothing), values)


GROUP_ROWS = 2**17
"""Rows that are collected before they are written; a row group of Parquet, a batch of Arrow."""


class TableOutput(AbstractContextManager["TableOutput"]):
    """A table that is written piece by piece, in the format of its ending.

    Parameters
    ----------
    path : Path
        Where; `location` names it in sentences.
    location : Location
    schema : pyarrow.Schema
        Its metadata is kept by Parquet and Arrow.
    escaped : bool
        Whether texts of a CSV file are escaped that a spreadsheet would run as formulas.
    """

    def __init__(self, path: Path, location: Location, schema: Any, escaped: bool = False) -> None:
        self._location = location
        self._escaped = escaped and location.suffix == ".csv"
        if self._escaped:
            schema = escape_formulas(schema.empty_table()).schema
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
                if self._escaped:
                    table = escape_formulas(table)
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
