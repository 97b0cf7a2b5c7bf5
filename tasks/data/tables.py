"""Read and write tables of one or several files."""

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
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.fs
import pyarrow.ipc
import pyarrow.parquet

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.files import (
    chosen,
    columns_in_folders,
    compression_of,
    files_of,
    folder_of,
    is_pattern,
    is_remote,
    matching,
)
from learnkernels.kernels.column_encoding.quantities import (
    BOOLEAN,
    CANONICAL_INTEGER,
    CANONICAL_NUMBER,
)
from learnkernels.kernels.column_encoding.reading import (
    MISSING,
    as_texts,
    has_one_order,
    without_zero_decimals,
)

from .locations import Location, explained, locate, transferring

BLOCK_BYTES = 4 << 20

SAMPLE_BYTES = 1 << 18
"""Bytes of a CSV file that show delimiter and encoding."""


NO_NAME = re.compile("|Unnamed: [0-9]+")
"""Names of unnamed columns: empty, or as pandas writes them."""

NUMBERS = ((CANONICAL_INTEGER, pa.int64()), (CANONICAL_NUMBER, pa.float64()))

TYPES_OF_CELLS = (*NUMBERS, (BOOLEAN, pa.bool_()))

PLAIN_EXTENSIONS = {"arrow.bool8": pa.bool_(), "arrow.uuid": pa.string()}
EXTENSIONS_OF_PANDAS = ("pandas.period", "pandas.interval")
"""Types that pyarrow has only after pandas has written a file."""


# Locations


def joint_name(locations: Sequence[Location]) -> str:
    first, *others = locations
    if not others:
        return first.name
    return f"{first.name} and {len(others)} more"


def first_of(names: Sequence[str], limit: int = 12) -> str:
    """Join the first `limit` names by commas."""
    text = ", ".join(names[:limit])
    if len(names) > limit:
        text += ", ..."
    return text


def locations_of(*addresses: str) -> tuple[Location, ...]:
    """Return the locations of files named by paths, addresses, folders or patterns."""
    locations = []
    values = []
    for address in addresses:
        for file in _files_at(address):
            locations.append(locate(file))
            values.append(columns_in_folders(file, folder_of(address)))
    return with_folder_columns(locations, values)


def _files_at(address: str) -> list[str]:
    if not is_remote(address):
        return files_of(address) or [address]
    if not is_pattern(address):
        return [address]
    location = locate(f"{folder_of(address)}/x")
    folder = location.path.rpartition("/")[0]
    selector = pyarrow.fs.FileSelector(folder, recursive=True, allow_not_found=True)
    with explained(location):
        infos = location.filesystem.get_file_info(selector)
    files = [
        f"s3://{info.path}" for info in infos if info.type == pyarrow.fs.FileType.File
    ]
    if not address.endswith("/"):
        files = matching(files, address)
    return chosen(files, address, f"s3://{folder}")


def with_folder_columns(
    locations: Sequence[Location], values: Sequence[Mapping[str, str | None]]
) -> tuple[Location, ...]:
    """Return file locations with columns from folder names such as ``year=2024``."""
    names = dict.fromkeys(name for values_of_file in values for name in values_of_file)
    columns = {
        name: _typed_by_folders([values_of_file.get(name) for values_of_file in values])
        for name in names
    }
    located = []
    for position, location in enumerate(locations):
        folder_columns = tuple(
            (name, columns[name][position].as_py(), str(columns[name].type))
            for name in values[position]
        )
        located.append(replace(location, folder_columns=folder_columns))
    return tuple(located)


def _typed_by_folders(texts: Sequence[str | None]) -> pa.Array:
    column = pa.array(texts)
    if column.null_count == len(column):
        return column
    return _if_as_written(column, _typed(column, NUMBERS))


# Files


class TableFile:
    """One file of a table, read batch by batch.

    `group` is a row group of a Parquet file. `share_read` is the share that was read.
    """

    schema: Any
    encoding = "utf8"
    _source: Any

    def __init__(self, location: Location, group: int | None = None) -> None:
        self.location = location
        self._group = group
        self.share_read = 0.0
        self._open()
        # Fails if names are not UTF-8
        names = list(self.schema.names)
        for position, field in enumerate(self.schema):
            self.schema = self.schema.set(
                position, field.with_type(plain_type(field.type))
            )
        self._folder_values: dict[str, pa.Scalar] = {}
        for name, value, type_name in location.folder_columns:
            if name in names:
                continue
            scalar = pa.scalar(value, pa.type_for_alias(type_name))
            if location.suffix == ".csv":
                scalar = scalar.cast(pa.string())
            self._folder_values[name] = scalar
            self.schema = self.schema.append(pa.field(name, scalar.type))

    def _open(self) -> None:
        raise NotImplementedError

    def count_rows(self) -> int:
        raise NotImplementedError

    def _read(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    @property
    def pieces(self) -> list[tuple[Location, int | None, int]]:
        """File, row group (None: whole file) and row count of each part to read."""
        return [(self.location, None, self.count_rows())]

    def batches(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of about `rows` rows with the columns `names`."""
        names_in_file = [name for name in names if name not in self._folder_values]
        fields = {field.name: field for field in self.schema}
        schema = pa.schema([fields[name] for name in names])
        for batch in self._read(names_in_file or self.schema.names[:1], rows):
            # Offsets of a damaged file may point outside of a column
            batch.validate(full=True)
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name, value in self._folder_values.items():
                columns[name] = pa.repeat(value, batch.num_rows)
            yield pa.record_batch(
                [as_plain(columns[name], fields[name].type) for name in names],
                schema=schema,
            )

    def close(self) -> None:
        self._source.close()


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return an equivalent pyarrow type that all functions of pyarrow support."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_extension(kind)
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_dictionary(kind):
        return _plain_dictionary(kind)
    if (
        pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
        or pa.types.is_large_list(kind)
    ):
        return pa.large_list(kind.value_field.with_type(_plain_item(kind.value_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_item(kind.value_type)))
    return kind


def _plain_extension(kind: pa.BaseExtensionType) -> pa.DataType:
    if kind.extension_name in PLAIN_EXTENSIONS:
        return PLAIN_EXTENSIONS[kind.extension_name]
    is_of_pandas = kind.extension_name in EXTENSIONS_OF_PANDAS
    if isinstance(kind, pa.ExtensionType) and not is_of_pandas:
        return kind
    return plain_type(kind.storage_type)


def _plain_dictionary(kind: pa.DictionaryType) -> pa.DataType:
    value_type = plain_type(kind.value_type)
    if pa.types.is_nested(value_type):
        return value_type
    index_type = kind.index_type
    if index_type.bit_width < 32:  # too few bits for the levels of several files
        index_type = pa.int32()
    return pa.dictionary(index_type, value_type, kind.ordered)


def _plain_item(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return plain_type(kind)
    return kind


def as_plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_run_end_encoded(column.type):
        runs = pa.RunEndEncodedArray.from_arrays(
            column.run_ends, as_plain(column.values, kind)
        )
        return pc.run_end_decode(runs.slice(column.offset, len(column)))
    if pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        ends = np.cumsum([0, *lengths.to_pylist()])
        items = as_plain(column.flatten(), kind.value_type)
        return pa.LargeListArray.from_arrays(
            pa.array(ends), items, type=kind, mask=column.is_null()
        )
    if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(kind):
        return as_plain(column.dictionary_decode(), kind)
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(
            column.indices.cast(kind.index_type),
            as_plain(column.dictionary, kind.value_type),
            ordered=kind.ordered,
        )
    if isinstance(column.type, pa.BaseExtensionType):
        if column.type.extension_name == "arrow.uuid":
            return pa.array(
                [None if value is None else str(value) for value in column.to_pylist()],
                kind,
            )
        return as_plain(column.storage, kind)
    return column.cast(kind)


class ParquetFile(TableFile):
    """Parquet file, read in small pieces if local, by row group if remote."""

    def _open(self) -> None:
        self._source = self.location.open_input()
        # Each request to a server takes time
        reads_at_once = self.location.remote and self._group is not None
        metadata = pyarrow.parquet.read_metadata(self._source)
        buffer_bytes = 0
        if not reads_at_once:  # 64 MiB for all columns
            buffer_bytes = int(
                np.clip((64 << 20) // max(1, metadata.num_columns), 1 << 16, 1 << 20)
            )
        self._file = pyarrow.parquet.ParquetFile(
            self._source,
            metadata=metadata,
            pre_buffer=reads_at_once,
            buffer_size=buffer_bytes,
        )
        self.schema = self._file.schema_arrow

    def count_rows(self) -> int:
        metadata = self._file.metadata
        if self._group is not None:
            metadata = metadata.row_group(self._group)
        return int(metadata.num_rows)

    @property
    def pieces(self) -> list[tuple[Location, int | None, int]]:
        metadata = self._file.metadata
        return [
            (self.location, group, metadata.row_group(group).num_rows)
            for group in range(metadata.num_row_groups)
        ]

    def _read(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        n_rows = self.count_rows()
        n_read = 0
        groups = None if self._group is None else [self._group]
        for batch in self._file.iter_batches(
            batch_size=rows, row_groups=groups, columns=list(names)
        ):
            n_read += batch.num_rows
            self.share_read = n_read / max(n_rows, n_read)
            yield batch
        if n_read != n_rows:
            raise ValueError(f"it states {n_rows:,} rows and holds {n_read:,}")


class ArrowFile(TableFile):
    """Arrow IPC or Feather file, memory-mapped if local."""

    def _open(self) -> None:
        self.location.size()
        if self.location.remote:
            self._source = self.location.open_input()
        else:
            self._source = pa.memory_map(self.location.path)
        self.schema = pa.ipc.open_file(self._source).schema
        if not len(self.schema):
            raise ValueError("it has no columns")

    def _record_batches(self, fields: list[int]) -> Iterator[pa.RecordBatch]:
        reader = pa.ipc.open_file(
            self._source, options=pa.ipc.IpcReadOptions(included_fields=fields)
        )
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
            self.share_read = (number + 1) / reader.num_record_batches

    def count_rows(self) -> int:
        return sum(batch.num_rows for batch in self._record_batches([0]))

    def _read(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        for batch in self._record_batches(
            sorted(map(self.schema.get_field_index, names))
        ):
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


class CsvFile(TableFile):
    """CSV file, whose columns are read as text; progress is measured in bytes.

    `n_empty` counts the omitted columns, without name and values.
    """

    def _open(self) -> None:
        self._size = self.location.size()
        self._source: Any = None
        with self._stream() as stream:
            sample = bytes(stream.read(SAMPLE_BYTES))
        self.encoding = _encoding_of(sample)
        text = sample.decode(self.encoding, "replace").removeprefix("\ufeff")
        declaration = re.match(r"sep=(.)\r?\n", text)  # written by Excel
        if declaration is None:
            self._delimiter = _delimiter_of(text)
            header = self._header(0)
        else:
            self._delimiter = declaration[1]
            header = self._header(1)
        self._width = len(header)
        empty = self._empty_columns(
            [i for i, name in enumerate(header) if NO_NAME.fullmatch(name)]
        )
        self.n_empty = len(empty)
        self._names = {i: name for i, name in enumerate(header) if i not in empty}
        nameless = [i + 1 for i, name in self._names.items() if not name]
        if len(nameless) > 1:
            raise ValueError(
                f"columns {listed(nameless, show=str)} have values and no name in the header; name them"
            )
        if not self._names:
            raise ValueError("it has no column with a name or a value")
        self.schema = pa.schema(
            [pa.field(name, pa.string()) for name in self._names.values()]
        )

    def _header(self, skipped: int) -> list[str]:
        """Return the column names below some skipped lines.

        Empty cells at the end of the first row are unnamed columns; at the end of only
        the header they are no columns.
        """
        encoding = "utf-8-sig" if self.encoding == "utf8" else self.encoding
        with io.TextIOWrapper(
            io.BufferedReader(self._stream()), encoding, "replace", newline=""
        ) as lines:
            for _ in range(skipped):
                next(lines)
            rows = csv.reader(lines, delimiter=self._delimiter)
            header = [name.strip() for name in _next_row(rows)]
            self._lines_above = skipped + rows.line_num
            try:
                first_row = _next_row(rows)
            except csv.Error:  # cells that only pyarrow reads
                first_row = header
        self._has_rows = bool(first_row)
        additional = first_row[len(header) :]
        if any(cell.strip() for cell in additional):
            raise ValueError(
                f"its header has {len(header)} cells, and the first row below {len(first_row)}"
            )
        header += [""] * len(additional)
        if first_row and not any(header[len(first_row) :]):
            del header[len(first_row) :]
        if not header:
            raise ValueError("it is empty")
        return header

    def _empty_columns(self, columns: Sequence[int]) -> set[int]:
        """Return the columns that have no value in any row."""
        empty = set(columns)
        if not columns:
            return empty
        for batch in self._batches(columns):
            for i, column in zip(columns, batch.columns, strict=True):
                if stripped_texts(column).null_count < batch.num_rows:
                    empty.discard(i)
            if not empty:
                break
        return empty

    def _stream(self) -> Any:
        return self.location.open_text()

    def _batches(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the texts of columns, named by position."""
        if not self._has_rows:
            return
        n_rows = 0
        try:
            for batch in self._batches_as_encoded(columns):
                n_rows += batch.num_rows
                yield batch
        except pa.ArrowInvalid as error:
            if self.encoding != "utf8" or "invalid UTF8" not in str(error):
                raise
            self.encoding = _encoding_of_all(self._stream())
            yield from _without_first_rows(self._batches_as_encoded(columns), n_rows)

    def _batches_as_encoded(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        self._source = self.location.open_input()
        source = self._source
        compression = compression_of(self.location.name)
        if compression is not None:
            source = pa.CompressedInputStream(source, compression)
        if self.encoding != "utf8":
            source = pa.transcoding_input_stream(source, self.encoding, "utf8")
        names = [str(i) for i in columns]
        reader = pyarrow.csv.open_csv(
            source,
            read_options=pyarrow.csv.ReadOptions(
                block_size=BLOCK_BYTES,
                column_names=[str(i) for i in range(self._width)],
                skip_rows=self._lines_above,
                use_threads=False,  # messages then contain the row number
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), include_columns=names
            ),
        )
        with closing(reader):
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


def _without_first_rows(
    batches: Iterator[pa.RecordBatch], n_rows: int
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        n_skipped = min(n_rows, batch.num_rows)
        n_rows -= n_skipped
        if n_skipped < batch.num_rows:
            yield batch.slice(n_skipped)


def _next_row(rows: Iterator[list[str]]) -> list[str]:
    """Return the next row that is not empty; [] at the end."""
    return next((row for row in rows if row), [])


def _encoding_of(sample: bytes) -> str:
    if sample.startswith(codecs.BOM_UTF8):
        return "utf8"
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in sample:  # in UTF-16, every second byte of Latin letters
        is_big_endian = sample[::2].count(0) > sample[1::2].count(0)
        return "utf-16-be" if is_big_endian else "utf-16-le"
    return _encoding_of_all(io.BytesIO(sample))


def _encoding_of_all(stream: Any) -> str:
    """Return UTF-8 if valid, else guess from the first invalid block."""
    decoder = codecs.getincrementaldecoder("utf8")()
    with stream as source:
        while block := bytes(source.read(BLOCK_BYTES)):
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                return _guessed_encoding(block[:SAMPLE_BYTES])
    return "utf8"


def _guessed_encoding(sample: bytes) -> str:
    letters = [byte for byte in sample if byte > 127 or chr(byte).isalpha()]
    if 3 * sum(byte > 127 for byte in letters) > len(letters):
        candidates = [
            "cp1251",
            "cp1253",
            "cp932",
            "gb18030",
            "big5",
            "euc_kr",
            "euc_jp",
        ]
        guess = charset_normalizer.from_bytes(sample, cp_isolation=candidates).best()
        if guess is not None:
            return str(guess.encoding)
    is_undefined_in_cp1252 = any(byte in sample for byte in b"\x81\x8d\x8f\x90\x9d")
    return "latin-1" if is_undefined_in_cp1252 else "cp1252"


def _delimiter_of(sample: str) -> str:
    whole_lines = sample[: sample.rfind("\n") + 1] or sample
    return max(",;\t|", key=lambda delimiter: _agreement(whole_lines, delimiter))


def _agreement(text: str, delimiter: str) -> tuple[int, float, int]:
    """Return how well a delimiter fits lines; larger tuples fit better."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        lengths = [len(row) for row in rows if row][:500]
    except csv.Error:
        lengths = []
    if not lengths:
        return 0, 0.0, 1
    ((n_cells, n_lines),) = Counter(lengths).most_common(1)
    share = n_lines / len(lengths)
    if n_cells > 1 and lengths[0] == n_cells:
        return 2, share, n_cells
    if n_cells > 1 and lengths[0] > 1 and n_lines == len(lengths) - 1:
        return 1, share, n_cells
    return 0, share, n_cells


FORMATS: dict[str, type[TableFile]] = {
    ".parquet": ParquetFile,
    ".csv": CsvFile,
    ".arrow": ArrowFile,
    ".feather": ArrowFile,
}


# Tables


class Table(AbstractContextManager["Table"]):
    """Table in one or several files, read by column on request."""

    def __init__(
        self,
        locations: Sequence[Location],
        where: str = "",
        group: int | None = None,
        joint: bytes | None = None,
        is_needed: Callable[[str], bool] | None = None,
    ) -> None:
        self._where = where
        self._files: list[TableFile] = []
        try:
            for location in locations:
                with self._reading(location):
                    self._files.append(FORMATS[location.suffix](location, group))
            named = [
                (
                    location.name if where else location.text,
                    _part(file.schema, is_needed),
                )
                for location, file in zip(locations, self._files, strict=True)
            ]
            about = where or f"{locations[0].text} and {len(named) - 1} more"
            self.schema = named[0][1] if len(named) == 1 else one_schema(named, about)
            if joint is not None:
                self._join(joint)
        except BaseException:
            self.close()
            raise

    @property
    def location(self) -> Location:
        return self._files[0].location

    @property
    def all_names(self) -> list[str]:
        """Column names of all files, needed or not."""
        first, *others = self._files
        names = list(first.schema.names)
        for file in others:
            names += [name for name in file.schema.names if name not in names]
        return names

    @property
    def is_typed(self) -> bool:
        return self.location.suffix != ".csv"

    def in_memory(
        self, as_text: Collection[str] = (), as_written: Collection[str] = ()
    ) -> Table | pa.Table:
        """Read a CSV file into memory; convert numeric columns except `as_text`.

        Columns `as_written` stay text if spelled as 3.10.
        """
        names = self.schema.names
        if self.is_typed or len(set(names)) < len(names):
            return self
        texts = self.select(names)
        typed = {name: _typed(texts[name]) for name in names if name not in as_text}
        for name in typed.keys() & set(as_written):
            typed[name] = _if_as_written(texts[name], typed[name])
        return pa.table({name: typed.get(name, texts[name]) for name in names})

    def _reading(self, location: Location) -> AbstractContextManager[None]:
        return transferring(
            location, called=f"{self._where}: {location.name}" if self._where else ""
        )

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __exit__(self, *_: Any) -> None:
        self.close()

    @cached_property
    def num_rows(self) -> int:
        """Number of rows; a CSV file is read completely to count them."""
        counts = []
        for file in self._files:
            with self._reading(file.location):
                counts.append(file.count_rows())
        return sum(counts)

    @property
    def pieces(self) -> list[tuple[Location, int | None, int]]:
        return [piece for file in self._files for piece in file.pieces]

    @property
    def joint_fields(self) -> bytes | None:
        """Fields whose type differs in a file, serialized."""
        fields = [
            field
            for field in self.schema
            if any(
                file.schema.field(field.name).type != field.type for file in self._files
            )
        ]
        if not fields:
            return None
        return bytes(pa.schema(fields).serialize())

    def _join(self, joint: bytes) -> None:
        for field in pa.ipc.read_schema(pa.py_buffer(joint)):
            position = self.schema.get_field_index(field.name)
            self.schema = self.schema.set(position, field)

    @property
    def notes(self) -> list[str]:
        """Remarks about the table's files; complete after all rows are read."""
        notes = []
        with_empty_columns = []
        for file in self._files:
            if not file.encoding.startswith("utf"):
                notes.append(
                    f"{file.location.name} is not UTF-8, and is read as {file.encoding}"
                )
            if isinstance(file, CsvFile) and file.n_empty:
                with_empty_columns.append(file.location)
        if with_empty_columns:
            notes.append(
                f"empty columns without a name are left out of {joint_name(with_empty_columns)}"
            )
        return notes

    @property
    def share_read(self) -> float:
        return sum(file.share_read for file in self._files) / max(1, len(self._files))

    def _schema_of(self, names: Sequence[str]) -> pa.Schema:
        counts = Counter(self.schema.names)
        for name in names:
            if counts[name] != 1:
                title = self._where or self._files[0].location.text
                raise InputError(
                    f"{title}: must have a column {name!r} once; rename the columns."
                )
        return pa.schema([self.schema.field(name) for name in names])

    def select(self, names: Sequence[str]) -> pa.Table:
        """Return the named columns; `remember_columns` keeps them in memory."""
        schema = self._schema_of(names)
        remembered = _remembered(self._files)
        columns = dict(remembered.columns)  # a copy, as other threads may change it
        missing = [name for name in names if name not in columns]
        if missing:
            batches = list(self.batches(missing, 1 << 30))
            table = with_joint_dictionaries(
                pa.Table.from_batches(batches, self._schema_of(missing))
            )
            columns.update(zip(missing, table.columns, strict=True))
            if sum(column.nbytes for column in columns.values()) <= MOST_REMEMBERED:
                remembered.columns.update(columns)
                remembered.encodings[:] = [file.encoding for file in self._files]
        return pa.table([columns[name] for name in names], schema=schema)

    def batches(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of the named columns, of at most about `rows` rows."""
        schema = self._schema_of(names)
        for file in self._files:
            with self._reading(file.location):
                for batch in file.batches(names, rows):
                    yield _cast(batch, schema)
            file.share_read = 1.0

    def tables(self, names: Sequence[str], rows: int) -> Iterator[pa.Table]:
        """Yield pyarrow tables of `rows` rows; the last may be shorter."""
        waiting = self._schema_of(names).empty_table()
        for batch in self.batches(names, rows):
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
            n_whole = waiting.num_rows - waiting.num_rows % rows
            for start in range(0, n_whole, rows):
                yield waiting.slice(start, rows)
            waiting = waiting.slice(n_whole)
        if waiting.num_rows:
            yield waiting


def _part(schema: pa.Schema, is_needed: Callable[[str], bool] | None) -> pa.Schema:
    if is_needed is None:
        return schema
    return pa.schema([field for field in schema if is_needed(field.name)])


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    return batch.cast(schema)


def with_joint_dictionaries(table: pa.Table) -> pa.Table:
    """Return a table with one dictionary per column, unless levels have several orders."""
    columns = []
    for column in table.columns:
        kind = column.type
        is_ordered = pa.types.is_dictionary(kind) and kind.ordered
        if not is_ordered or has_one_order(column):
            column = column.unify_dictionaries()
        columns.append(column)
    return pa.table(columns, schema=table.schema)


class _Remembered(NamedTuple):
    """Columns of a table by name, and encoding of each file."""

    columns: dict[str, pa.ChunkedArray]
    encodings: list[str]


_REMEMBERED: dict[Any, _Remembered] = {}
"""Columns of the table read last, by the state of its files."""

MOST_REMEMBERED = 1 << 30

_remembers = threading.Event()


@contextmanager
def remember_columns() -> Iterator[None]:
    """Cache columns of the latest table from this context until `forget_columns`."""
    _remembers.set()
    try:
        yield
    except BaseException:
        forget_columns()
        raise


def forget_columns() -> None:
    """Free the columns cached by `remember_columns`, and stop caching."""
    _remembers.clear()
    _REMEMBERED.clear()


@contextmanager
def columns_remembered() -> Iterator[None]:
    """Cache columns of the table read last within this context."""
    with remember_columns():
        yield
    forget_columns()


def _remembered(files: Sequence[TableFile]) -> _Remembered:
    if not _remembers.is_set():
        return _Remembered({}, [])
    state = []
    for file in files:
        info = file.location.info()
        state.append(
            (file.location.text, file.location.folder_columns, info.size, info.mtime_ns)
        )
    key = tuple(state)
    if key not in _REMEMBERED:
        _REMEMBERED.clear()
    remembered = _REMEMBERED.setdefault(key, _Remembered({}, []))
    # An unread table has no encodings
    for file, encoding in zip(files, remembered.encodings, strict=False):
        file.encoding = encoding
    return remembered


def stripped_texts(column: Any) -> Any:
    """Strip spaces from a text column; texts such as NA become missing values."""
    text = pc.utf8_trim_whitespace(column)
    return pc.if_else(
        pc.is_in(pc.utf8_lower(text), value_set=pa.array(sorted(MISSING), text.type)),
        None,
        text,
    )


def _typed(column: Any, types: Sequence[tuple[str, Any]] = TYPES_OF_CELLS) -> Any:
    """Return texts as numbers or Booleans if all are, else stripped."""
    values = stripped_texts(column)
    for pattern, kind in types:
        if pc.all(pc.match_substring_regex(values, f"^({pattern})$")).as_py():
            return values.cast(kind)
    return pc.utf8_trim_whitespace(column)


def _if_as_written(column: Any, typed: Any) -> Any:
    if not pa.types.is_floating(typed.type):
        return typed
    texts = stripped_texts(column).unique().drop_null().to_pylist()
    numbers = as_texts([float(text) for text in texts]).tolist()
    if numbers == [without_zero_decimals(text) for text in texts]:
        return typed
    return pc.utf8_trim_whitespace(column)


def one_schema(named: Sequence[tuple[str, Any]], where: str) -> Any:
    """Return the common schema of a table's files; InputError if columns differ."""
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
            other = next(
                position for position, kind in enumerate(types) if kind != field.type
            )
            raise InputError(
                f"{where}: column {field.name!r} is {types[other]} in {named[other][0]} and {field.type} in "
                f"{first_name}; write it as one type, or leave it out."
            )
        fields.append(pa.field(field.name, common_type, metadata=field.metadata))
    return pa.schema(fields)


def _require_same_columns(
    first_name: str,
    first_columns: Sequence[str],
    name: str,
    columns: Sequence[str],
    where: str,
) -> None:
    remedy = "give files of the same columns, or leave it out"
    missing = [column for column in first_columns if column not in columns]
    if missing:
        raise InputError(
            f"{where}: {name} has no column {listed(missing)}, which {first_name} has; {remedy}."
        )
    additional = [column for column in columns if column not in first_columns]
    if additional:
        raise InputError(
            f"{where}: {name} has the column {listed(additional)}, which {first_name} does not have; {remedy}."
        )
    if sorted(first_columns) != sorted(columns):
        raise InputError(f"{where}: {name} has a column more than once; rename one.")


def _common(types: Sequence[Any]) -> Any:
    different = [kind for kind in dict.fromkeys(types) if not pa.types.is_null(kind)]
    if not different:
        return pa.null()
    if len(different) == 1:
        return different[0]
    if all(map(pa.types.is_signed_integer, different)):
        return pa.int64()
    inexact = [
        kind
        for kind in different
        if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind))
    ]
    if not inexact:
        return _common_decimal(different)
    if all(map(pa.types.is_floating, inexact)):
        return pa.float64()
    if all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in different):
        zones = {getattr(kind, "tz", None) for kind in different}
        return pa.timestamp("us", zones.pop()) if len(zones) == 1 else None
    values = [
        kind.value_type if pa.types.is_dictionary(kind) else kind for kind in different
    ]
    if not all(map(is_text, values)):
        return None
    if all(map(pa.types.is_dictionary, different)):
        ordered = all(kind.ordered for kind in different)
        return pa.dictionary(pa.int32(), pa.string(), ordered)
    return pa.string()


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _common_decimal(kinds: Sequence[Any]) -> Any:
    """Return the common decimal type; float64 if it is too wide."""
    decimals = [kind for kind in kinds if pa.types.is_decimal(kind)]
    if not decimals:
        return pa.float64()
    digits_before_point = [kind.precision - kind.scale for kind in decimals]
    if len(decimals) < len(kinds):
        digits_before_point.append(20)  # digits of 64-bit integers
    scale = max(0, *(kind.scale for kind in decimals))
    digits = max(digits_before_point) + scale
    if digits > 38:  # too many for 128-bit decimals
        return pa.float64()
    return pa.decimal128(digits, scale)


# Output


def escape_formulas(table: Any) -> Any:
    """Put an apostrophe before a table's texts that spreadsheets would run as formulas."""
    names = _escaped(pa.array(table.column_names, pa.string())).to_pylist()
    return pa.table([_escaped(column) for column in table.columns], names=names)


def _escaped(values: Any) -> Any:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not is_text(values.type):
        return values
    begins_like_formula = pc.match_substring_regex(values, r"^[=+\-@\t\r]")
    is_number = pc.match_substring_regex(
        values, r"(?i)^[+-](\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity|nan)$"
    )
    apostrophe = pa.scalar("'", values.type)
    escaped = pc.binary_join_element_wise(
        apostrophe, values, pa.scalar("", values.type)
    )
    return pc.if_else(pc.and_not(begins_like_formula, is_number), escaped, values)


GROUP_ROWS = 2**17
"""Rows of a Parquet row group or an Arrow batch."""


class TableOutput(AbstractContextManager["TableOutput"]):
    """File to which a table is written in pieces, in the format of its ending.

    `location` is for messages. Parquet and Arrow files keep the metadata of `schema`.
    If `escaped`, formulas in a CSV file are escaped.
    """

    def __init__(
        self, path: Path, location: Location, schema: Any, escaped: bool = False
    ) -> None:
        self._location = location
        self._escaped = escaped and location.suffix == ".csv"
        if self._escaped:
            schema = escape_formulas(schema.empty_table()).schema
        self._waiting: list[Any] = []
        self._n_waiting = 0
        self._dictionaries: dict[str, Any] = {}
        with self._writing():
            self._writer = _WRITERS[location.suffix](str(path), schema)

    def write(self, table: Any) -> None:
        self._waiting.append(table)
        self._n_waiting += table.num_rows
        if self._n_waiting >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        with self._writing():
            table = pa.concat_tables(self._waiting).combine_chunks()
            if self._escaped:
                table = escape_formulas(table)
            if self._location.suffix in (".arrow", ".feather"):
                table = self._with_growing_dictionaries(table)
            self._writer.write_table(table)
        self._waiting = []
        self._n_waiting = 0

    def _with_growing_dictionaries(self, table: Any) -> Any:
        """Extend dictionaries written before, as Arrow files require."""
        for position, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type):
                column = table.column(position).combine_chunks()
                if isinstance(column, pa.ChunkedArray):
                    column = column.chunk(0)
                table = table.set_column(
                    position, field, self._with_growing_dictionary(field, column)
                )
        return table

    def _with_growing_dictionary(self, field: Any, column: Any) -> Any:
        written = self._dictionaries.get(field.name, column.dictionary.slice(0, 0))
        is_new = pc.invert(pc.is_in(column.dictionary, value_set=written))
        dictionary = pa.concat_arrays(
            [written, column.dictionary.filter(is_new).unique()]
        )
        self._dictionaries[field.name] = dictionary
        positions = pc.index_in(column.dictionary, value_set=dictionary).cast(
            field.type.index_type
        )
        return pa.DictionaryArray.from_arrays(
            positions.take(column.indices), dictionary, ordered=field.type.ordered
        )

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            with suppress(Exception):  # the file is discarded
                self._writer.close()
            return
        self._flush()
        with self._writing():
            self._writer.close()

    def _writing(self) -> AbstractContextManager[None]:
        return transferring(self._location, "written")


def _arrow_writer(path: str, schema: Any) -> Any:
    return pa.ipc.new_file(
        path, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    )


_WRITERS: dict[str, Callable[[str, Any], Any]] = {
    ".parquet": pa.parquet.ParquetWriter,
    ".csv": pa.csv.CSVWriter,
    ".arrow": _arrow_writer,
    ".feather": _arrow_writer,
}
