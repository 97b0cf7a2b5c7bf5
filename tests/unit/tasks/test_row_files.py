"""Rows in Arrow files: what is read is what was written, in runs, by whoever knows the path."""

import pickle
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from learnkernels.kernels.engine.workers import SelectedRows
from learnkernels.tasks.data import parts as in_parts
from learnkernels.tasks.data.parts import BATCH_BYTES, RowFile


@pytest.mark.parametrize(("dtype", "d"), [("float64", 1), ("float32", 7), ("float64", 400), ("float32", 1025)])
def test_every_run_of_rows_is_what_was_written(tmp_path, dtype: str, d: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(in_parts, "BATCH_BYTES", 4096)
    m = 3 * 4096 // (d * np.dtype(dtype).itemsize) + 5  # of several batches, the last one short
    X = np.arange(m * d, dtype=dtype).reshape(m, d)
    file = RowFile.write(tmp_path / "rows.arrow", X)
    assert (file.shape, file.dtype) == (X.shape, X.dtype)
    step = max(1, BATCH_BYTES // (d * X.dtype.itemsize))
    edges = sorted({0, 1, m // 2, m - 1, m} | {n for n in (step - 1, step, step + 1, 2 * step) if n <= m})
    for start, stop in product(edges, edges):
        run = file[start:stop]
        np.testing.assert_array_equal(run, X[start:stop])
        assert (run.dtype, run.flags.writeable, run.flags.c_contiguous) == (X.dtype, True, True)
    np.testing.assert_array_equal(file[:], X)
    np.testing.assert_array_equal(file[-2:], X[-2:])
    np.testing.assert_array_equal(file[::2], X[::2])
    assert RowFile.write(tmp_path / "none.arrow", X[:0])[:].shape == (0, d)


def test_selected_rows_are_written_in_their_order_with_a_batch_of_them_in_memory(tmp_path):
    X, origin = np.random.default_rng(0).normal(size=(50_000, 9)), np.arange(9.0)
    rows = np.random.default_rng(1).permutation(50_000)[:40_000]
    asked: list[int] = []

    class Watched(SelectedRows):
        def __getitem__(self, run: slice, /) -> np.ndarray:
            asked.append((run.stop - run.start) * 9 * 8)
            return super().__getitem__(run)

    file = RowFile.write(tmp_path / "rows.arrow", Watched(X, rows, origin))
    np.testing.assert_array_equal(file[:], X[rows] - origin)
    assert max(asked) <= BATCH_BYTES
    assert [path.name for path in tmp_path.iterdir()] == ["rows.arrow"]


def test_a_file_travels_as_its_path_and_is_one_that_arrow_reads(tmp_path):
    X = np.random.default_rng(0).normal(size=(30_000, 5))
    file = RowFile.write(tmp_path / "rows.arrow", X)
    sent = pickle.dumps(file)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent)[29_990:], X[29_990:])
    with pa.ipc.open_file(tmp_path / "rows.arrow") as reader:
        assert reader.num_record_batches > 1
        (column,) = reader.read_all().columns
    np.testing.assert_array_equal(np.stack(column.to_numpy()), X)
