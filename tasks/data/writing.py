"""Tables that are written piece by piece: Parquet, CSV and Arrow files of any length in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from learnkernels.tasks.data.locations import Location, transferring

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
