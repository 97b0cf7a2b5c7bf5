"""Rows in Arrow files: written a batch at a time, read in runs by processes that hold no more than they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from learnkernels.kernels.engine.workers import RowSource
from learnkernels.tasks.store import atomic_path

BATCH_BYTES = 1 << 20
"""Size of a record batch: of what is read, at most so much at either end was not asked for."""


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
        file = cls(str(path), (rows.shape[0], rows.shape[1]), rows.dtype)
        (m, d), step = file.shape, file._batch_rows
        schema = pa.schema([pa.field("row", pa.list_(pa.from_numpy_dtype(file.dtype), d), nullable=False)])
        with atomic_path(path, lasting=False) as temporary, pa.ipc.new_file(str(temporary), schema) as writer:
            for start in range(0, m, step):
                batch = np.ascontiguousarray(rows[start : min(start + step, m)], dtype=file.dtype)
                column = pa.FixedSizeListArray.from_arrays(pa.array(batch.reshape(-1)), d)
                writer.write_batch(pa.record_batch([column], schema=schema))
        return file

    @property
    def _batch_rows(self) -> int:
        """Rows of every batch but the last."""
        return max(1, BATCH_BYTES // (self.shape[1] * self.dtype.itemsize))

    def __getitem__(self, rows: slice, /) -> np.ndarray:
        """Return a run of rows, shape (a, d), of which the caller is the only owner; the file is not kept open.

        Raises
        ------
        IndexError
            The rows do not follow one another.
        """
        start, stop, step = rows.indices(self.shape[0])
        if step != 1:
            raise IndexError(f"rows of a file must be a run, got a step of {step}; take them one run at a time.")
        run = np.empty((max(0, stop - start), self.shape[1]), self.dtype)
        if len(run):
            self._read(start, run)
        return run

    def _read(self, start: int, run: np.ndarray) -> None:
        size, stop = self._batch_rows, start + len(run)
        with pa.OSFile(self.path) as source:
            reader = pa.ipc.open_file(source)
            for b in range(start // size, -(-stop // size)):
                # Not by to_numpy, which would load pandas into every worker.
                values = reader.get_batch(b).column(0).values.buffers()[1]
                batch = np.frombuffer(values, self.dtype).reshape(-1, self.shape[1])
                first, last = max(start, b * size), min(stop, b * size + len(batch))
                run[first - start : last - start] = batch[first - b * size : last - b * size]
