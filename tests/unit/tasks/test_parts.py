"""Tables in parts: the rows of the whole table, read where they are needed."""

import os
import pickle
import re
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from dask.utils import parse_bytes

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.engine.workers import SelectedRows, Threads
from learnkernels.tasks.data import parts as in_parts
from learnkernels.tasks.data import readers, row_files
from learnkernels.tasks.data.dataset import Dataset, load_dataset, store_dataset
from learnkernels.tasks.data.row_files import RowFiles, content_digest
from learnkernels.tasks.processes import memory
from learnkernels.tasks.workers.cluster import (
    LIBRARY_BYTES,
    DaskPool,
    worker_memory,
)
from tests.refusals import require_refusals
from tests.sources import load as load_any
from tests.sources import require_equal, write

M = 700


def table(gaps: bool = True) -> pa.Table:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(M, 4)) * [1, 10, 0.1, 1] + [0, 100, 0, 0]
    y = X[:, 0] + rng.normal(size=M)
    if gaps:
        X[rng.random(X.shape) < 0.02] = np.nan
        y[rng.random(M) < 0.02] = np.nan
    sites = [f"site {i % 9}" for i in range(M)]
    columns = {f"x{j}": X[:, j] for j in range(3)} | {
        "whole": rng.integers(0, 5, M),
        "y": y,
        "site": sites,
    }
    return pa.table(columns | {"day": rng.permutation(M), "w": rng.integers(0, 3, M)})


def written(folder: Path, of: pa.Table, ending: str = ".parquet") -> str:
    """Write a table into four files, those of Parquet of several row groups."""
    for i in range(4):
        write(of.slice(i * M // 4, M // 4), folder / f"{i}{ending}", 60)
    return f"{folder}/"


def load(path: str, asked: bool | None = None, **keys: Any) -> Dataset:
    drop = [name for name in ("site", "day", "w") if name not in str(keys)]
    given = {
        "target": "y",
        "missing": "drop",
        "in_parts": asked,
        "drop": drop,
        "tell": str,
    }
    return load_any(Path(), path, **(given | keys))


def mixed() -> pa.Table:
    """Return a table as people have them: gaps, many levels, dates of several kinds, numbers as text, identifiers."""
    rng, of = np.random.default_rng(5), table()
    days = (np.datetime64("2020-01-01") + rng.integers(0, 2000, M)).tolist()
    more: dict[str, Any] = {
        "id": np.arange(M) + 10_000,
        "grade": rng.choice(["low", "middle", "high"], M),
        "many": [f"level {j}" for j in rng.geometric(0.03, M)],
        "as text": [f"{value:.3f}" for value in rng.exponential(size=M)],
        "date": days,
        "day first": [f"{day:%d/%m/%Y}" for day in days],
        "iso": [f"{day}T10:{i % 60:02d}:00" for i, day in enumerate(days)],
        "comment": [f"a b c d {i}" for i in range(M)],
        "nothing": pa.nulls(M, pa.string()),
        "same": ["x"] * M,
        "flag": rng.random(M) < 0.3,
        "pairs": [[i, i] for i in range(M)],
        "coded": pa.array([f"c{i}" for i in rng.integers(0, 4, M)]).dictionary_encode(),
        "sometimes": ["x"] * M,  # of complete rows alone it is constant
    }
    for name in ("grade", "many", "date", "flag", "sometimes"):
        more[name] = pa.array(more[name], mask=rng.random(M) < 0.1)
    return pa.table(dict(zip(of.column_names, of.columns, strict=True)) | more)


ORDERED = {
    "grade": ["low", "middle", "high"],
    "whole": "categorical",
    "many": "code",
    "same": "drop",
}
LEVELS = {"whole": ["0", "1", "2", "3", "4", "5", "6"]}
IMPUTED = {"missing": "impute", "drop": ["w"]}
SITES = {"site": ["site 1", "site 2", "site 5"]}


MADE = [
    (table, ".parquet", {}),
    (table, ".feather", {"scale": "unit", "groups": "site", "weights": "w"}),
    (table, ".parquet", {"scale": "standard", "where": SITES, "time": "day"}),
    (
        table,
        ".feather",
        {"scale": "max", "features": ["x1", "whole"], "test": {"site": "site 3"}},
    ),
    (table, ".feather", {"scale": "quantile", "missing": "impute"}),
    (
        table,
        ".parquet",
        {"scale": "quantile", "features": ["x1", "x2"], "weights": "w"},
    ),
    (table, ".parquet", {"task": "classification", "target": "whole"}),
    (mixed, ".parquet", IMPUTED | {"scale": "standard"}),
    (
        mixed,
        ".feather",
        IMPUTED
        | {"scale": "unit", "where": {"whole": ["1", "2", "3"]}, "weights": "w"},
    ),
    (
        mixed,
        ".parquet",
        {"scale": "max", "drop": ["many", "w"], "columns": {"x1": "number"}},
    ),
    (
        mixed,
        ".feather",
        IMPUTED | {"scale": "none", "columns": ORDERED, "groups": "site"},
    ),
    (mixed, ".feather", IMPUTED | {"features": ["x1", "whole"]}),
    (mixed, ".parquet", IMPUTED | {"features": ["x1", "whole"], "columns": LEVELS}),
]


@pytest.mark.parametrize(("make", "ending", "keys"), MADE)
def test_rows_in_parts_are_those_of_the_table(
    tmp_path, monkeypatch, make, ending, keys
):
    sizes = (
        {"READ_BYTES": 4 * 8 * 7}
        if make is table
        else {"READ_BYTES": 17 * 8 * 90, "SUMMARY_BYTES": 17 * 8 * 40}
    )
    for name, value in (sizes | {"HELD_RESULTS": 3}).items():
        monkeypatch.setattr(in_parts, name, value)
    monkeypatch.setattr(row_files, "READ_BYTES", 5 * 8 * 7)
    path = written(tmp_path / "table", make(), ending)
    parts, whole = [], []  # what is told
    ours, theirs = (
        load(path, True, tell=parts.append, **keys),
        load(path, tell=whole.append, **keys),
    )
    rows, some = ours.X[:], np.random.default_rng(1).permutation(len(ours.X))[:40]
    np.testing.assert_array_equal(rows, np.asarray(theirs.X))
    for of in (some, slice(5, 9)):
        np.testing.assert_array_equal(ours.X[of], rows[of])
    np.testing.assert_array_equal(
        [ours.X.min(axis=0), ours.X.max(axis=0)], [rows.min(axis=0), rows.max(axis=0)]
    )
    require_equal(ours, theirs)
    assert len(ours.X.blocks) == (12 if ending == ".parquet" else 4)
    assert sorted(parts) == sorted(whole)
    for attribute in ("owners", "codes", "scaled"):
        assert getattr(ours.features, attribute, None) == getattr(
            theirs.features, attribute, None
        )
    assert ours.table == theirs.table


def test_blocks_without_readable_cells_are_read_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(in_parts, "READ_BYTES", 50 * 8)
    amounts = [f"{i % 97}.5" for i in range(M - 100)] + [None] * 99 + ["unknown"]
    path = written(tmp_path / "table", table().append_column("amount", [amounts]))
    parts: list[str] = []
    whole: list[str] = []
    keys = {"features": ["amount", "x1"], "missing": "impute"}
    ours = load(path, True, tell=parts.append, **keys)
    theirs = load(path, tell=whole.append, **keys)
    np.testing.assert_array_equal(ours.X[:], np.asarray(theirs.X))
    assert sorted(parts) == sorted(whole)
    assert "'unknown'" in "".join(parts)


def test_unreadable_cells_are_counted_as_in_memory(tmp_path: Path):
    amounts = [f"{i % 97}.5 kg" for i in range(M)]
    amounts[7] = "unknown"
    amounts[8] = "1500.5 g"
    days = [f"2024-01-{1 + i % 28:02d}" for i in range(M)]
    days[400:402] = ["soon", "later"]
    columns = pa.table({"amount": amounts, "day": days, "y": np.arange(M) / 7})
    path = written(tmp_path / "table", columns)
    said = r"missing values in column amount \(1\), day \(2\) of 700 rows"
    keys = {"features": ["amount", "day"], "missing": "refuse", "drop": []}
    refused = [(partial(load, path, asked, **keys), said) for asked in (None, True)]
    require_refusals(refused, error=InputError)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return written(tmp_path / "table", table())


def test_the_store_has_all_of_it_but_its_rows(path: str):
    keys = {"scale": "standard", "weights": "w"}
    dataset = load(path, True, **keys)
    ref = store_dataset(dataset, "table", path)
    assert ref.in_parts
    again = load_dataset(ref)
    assert isinstance(again.X, RowFiles)
    np.testing.assert_array_equal(again.X[:], dataset.X[:])
    np.testing.assert_array_equal(again.weights, dataset.weights)
    assert store_dataset(load(path, True, **keys), "table", path) == ref
    assert (
        store_dataset(load(path, True, scale="unit", weights="w"), "table", path).digest
        != ref.digest
    )
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(again.X))[3:5], dataset.X[3:5]
    )
    assert sum(file.stat().st_size for file in Path(ref.path).iterdir()) < 40_000


def test_a_file_that_has_changed_since_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    X: Any = load(path, True).X
    os.utime(f"{path}2.parquet")
    np.testing.assert_array_equal(X[:], X[:])  # of copies
    monkeypatch.setattr(row_files, "folder_of_copies", lambda: tmp_path / "others")
    assert len(X[:100]) == 100
    with pytest.raises(
        InputError, match=r"2\.parquet: has changed since the run began; start again"
    ):
        X[:]


def test_what_needs_the_whole_table_is_said(path: str):
    at_once = "which needs all rows"
    refused: list[tuple[dict[str, Any], str]] = [
        (
            {"missing": "refuse"},
            r"missing values in column x0 \(\d+\), .* of \d+ rows; set 'missing: impute' or",
        ),
        (
            {"missing": "refuse", "drop": []},
            r"missing values in column x0 \(\d+\), .* of 700 rows; set 'missing: imp",
        ),
        (
            {"columns": {"site": "number"}, "drop": []},
            "'site' is said to be a number, but holds 'site 0'; correct it",
        ),
        (
            {"drop": [*table().column_names[:4], "site", "day", "w"]},
            "0.parquet and 3 more leaves 700 rows and 0 f",
        ),
        (
            {"scale": "unit", "scale_on": "training"},
            f"does not go with 'scale_on: training', {at_once}",
        ),
        (
            {"subsample": 100},
            f"'in_parts' does not go with 'subsample', {at_once} at once; leave it out, or",
        ),
        (
            {"features": ["x0", "z"]},
            "features 'z' is not a column of 0.parquet and 3 more",
        ),
    ]
    require_refusals(
        ((partial(load, path, True, **keys), said) for keys, said in refused),
        error=InputError,
    )


def test_a_large_table_is_read_in_parts_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path / "table", table(gaps=False))
    n_columns_read = 5  # without site, day and w
    monkeypatch.setattr(in_parts, "BYTES_AS_NUMBERS", 8 * M * n_columns_read)
    assert isinstance(load(path).X, RowFiles)
    assert isinstance(load(path, False).X, np.ndarray)
    assert isinstance(load(path, subsample=100).X, np.ndarray)
    monkeypatch.setattr(in_parts, "BYTES_AS_NUMBERS", 8 * M * n_columns_read + 1)
    assert isinstance(load(path).X, np.ndarray)


# Rows in blocks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "d"),
    [("float64", 1), ("float32", 7), ("float64", 400), ("float32", 1025)],
)
def test_every_run_of_rows_is_the_run_that_was_written(
    tmp_path, dtype: str, d: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(row_files, "READ_BYTES", 4096)
    monkeypatch.setattr(row_files, "BLOCK_BYTES", 2 * 4096)
    size = np.dtype(dtype).itemsize
    m = 3 * 4096 // (d * size) + 5  # of several blocks, the last one short
    X = np.arange(m * d, dtype=dtype).reshape(m, d)
    blocks = RowFiles.write(str(tmp_path / "rows"), X)
    assert (blocks.shape, blocks.dtype) == (X.shape, X.dtype)
    edges = sorted({0, 1, m // 2, m - 1, m})
    for step in (max(1, 4096 // (d * size)), max(1, 2 * 4096 // (d * size))):
        edges += [n for n in (step - 1, step, step + 1, 2 * step) if n <= m]
    for start, stop in product(edges, edges):
        run = blocks[start:stop]
        np.testing.assert_array_equal(run, X[start:stop])
        assert (run.dtype, run.flags.writeable, run.flags.c_contiguous) == (
            X.dtype,
            True,
            True,
        )
    np.testing.assert_array_equal(blocks[:], X)
    np.testing.assert_array_equal(blocks[-2:], X[-2:])
    np.testing.assert_array_equal(blocks[::2], X[::2])
    assert RowFiles.write(str(tmp_path / "none"), X[:0])[:].shape == (0, d)


def test_selected_rows_are_written_in_their_order_with_few_of_them_in_memory(tmp_path):
    X, origin = np.random.default_rng(0).normal(size=(50_000, 9)), np.arange(9.0)
    rows = np.random.default_rng(1).permutation(50_000)[:40_000]
    asked: list[int] = []

    class Watched(SelectedRows):
        def __getitem__(self, run: slice, /) -> np.ndarray:
            asked.append((run.stop - run.start) * 9 * 8)
            return super().__getitem__(run)

    blocks = RowFiles.write(str(tmp_path / "rows"), Watched(X, rows, origin))
    np.testing.assert_array_equal(blocks[:], X[rows] - origin)
    assert max(asked) <= row_files.READ_BYTES
    assert [path.name for path in tmp_path.glob("*/*")] == ["00000.rows"]


def test_blocks_travel_as_their_paths(tmp_path):
    X = np.random.default_rng(0).normal(size=(30_000, 5))
    sent = pickle.dumps(RowFiles.write(str(tmp_path / "rows"), X))
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent)[29_990:], X[29_990:])


# What is known of workers before any is started: memory, rows in files, and what is refused --------------------------


X = np.random.default_rng(0).normal(size=(90, 5))


def test_which_pools_have_workers_and_which_of_these_see_our_files_and_have_room():
    assert DaskPool(DaskConfig()).local
    assert not DaskPool(DaskConfig(scheduler="tcp://127.0.0.1:1")).local
    with DaskPool(DaskConfig(workers=0)) as none:
        assert not none.local
        assert isinstance(none.workers, Threads)
    pool = DaskPool(DaskConfig(workers=2, memory="800MB"))
    assert pool.has_room_for(100_000_000)
    assert not pool.has_room_for(100_000_001)
    assert worker_memory("1GiB", 2) == "1GiB"
    assert worker_memory("auto", 2).endswith("iB")


class Here:
    """Dask's client, of which each look at the workers finds other limits of memory."""

    status = "running"

    def __init__(self, *looks: list[int]) -> None:
        self.looks = list(looks)
        self.waited: list[float] = []

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        limits = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        workers = {str(i): {"memory_limit": limit} for i, limit in enumerate(limits)}
        return {"workers": workers}

    def wait_for_workers(self, n_workers: int, timeout: float) -> None:
        self.waited.append(timeout)

    def get_versions(self, packages: list[str]) -> dict[str, Any]:
        return {"client": {"packages": {"python": "3.11.0"}}, "workers": {}}


def connected_pool(*looks: list[int]) -> tuple[DaskPool, Here]:
    pool = DaskPool(DaskConfig(scheduler="tcp://127.0.0.1:1", timeout=7.0))
    client = Here(*looks)
    pool._client = client  # type: ignore[assignment]
    return pool, client


def test_the_number_of_workers_stays_if_some_are_lost():
    pool, _ = connected_pool([1 << 30] * 3, [1 << 30], [], [1 << 30] * 4)
    assert [pool.n_workers for _ in range(4)] == [3, 3, 3, 4]


def test_jobs_go_to_workers_that_are_away_for_a_moment():
    pool, client = connected_pool([], [800_000_000])
    assert pool.has_room_for(100_000_000)
    assert not pool.has_room_for(100_000_001)
    assert client.waited == [7.0]
    pool, client = connected_pool([800_000_000, 900_000_000], [])
    assert pool.has_room_for(100_000_000)
    assert not pool.has_room_for(100_000_001)
    assert client.waited == []


def test_a_scheduler_that_loses_all_workers_for_long_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
):
    def wait(self: Here, n_workers: int, timeout: float) -> None:
        raise TimeoutError

    monkeypatch.setattr(Here, "wait_for_workers", wait)
    pool, _ = connected_pool([])
    with pytest.raises(
        InputError, match=r"tcp://127\.0\.0\.1:1 has no workers after 7 s"
    ):
        pool.has_room_for(1)


def test_tasks_have_the_memory_of_the_smallest_worker_less_its_libraries():
    for limits, expected in (
        ([2 << 30, 1 << 30], (1 << 30) - LIBRARY_BYTES),
        ([1 << 20], 0),
        ([0], inf),
    ):
        pool, _ = connected_pool(limits)
        assert pool.workers.memory == expected


def test_free_memory_is_that_of_the_container(monkeypatch: pytest.MonkeyPatch):
    used = psutil.Process().memory_info().rss
    monkeypatch.setattr(memory, "MEMORY_LIMIT", used + (64 << 20))
    # While other allocations of this process come and go
    assert 0 <= memory.free_memory() <= 128 << 20
    assert parse_bytes(worker_memory("auto", 2)) <= 32 << 20
    with pytest.raises(InputError, match=r"are free on this machine"):
        readers.require_room(1 << 20, 63, "table.csv", "data")
    monkeypatch.setattr(memory, "MEMORY_LIMIT", 1)
    assert memory.free_memory() == 0


def test_rows_in_parts_are_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_files, "BLOCK_BYTES", 16 * 5 * 8)
    monkeypatch.setattr(row_files, "READ_BYTES", 4 * 5 * 8)
    parts = RowFiles.write(str(tmp_path / "run" / "rows"), X)
    assert len(list((tmp_path / "run" / "rows").iterdir())) == 6
    some = np.random.default_rng(1).permutation(90)[:70]
    for at in (slice(0, 90), slice(15, 18), slice(4, 4), some, some[:0]):
        np.testing.assert_array_equal(parts[at], X[at])
    np.testing.assert_array_equal(
        SelectedRows(parts, some, X[3])[10:20], X[some[10:20]] - X[3]
    )  # type: ignore[arg-type]
    assert content_digest(X) == content_digest(parts)
    for row in (0, 50, 89):
        changed = X.copy()
        changed[row, 2] += 1
        assert content_digest(X) != content_digest(changed)


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(row_files, "write_rows", full)
    sentence = r"00000\.rows: No space left on device; free up"
    with (
        DaskPool(DaskConfig(workers=2)) as pool,
        pytest.raises(InputError, match=sentence),
    ):
        pool.workers.scatter_rows(X, None, np.zeros(5))


def test_certificates_are_read_before_anybody_is_asked(tmp_path: Path):
    (tmp_path / "cert.pem").write_text("-----BEGIN CERTIFICATE-----")
    (tmp_path / "text.pem").write_text("not that")
    cert = str(tmp_path / "cert.pem")
    told = {"gone.pem": "cannot be read (No such file or directory)"}
    told["text.pem"] = "is no file of PEM's format; correct the path"
    for name, sentence in told.items():
        key = str(tmp_path / name)
        config = DaskConfig(
            scheduler="tls://127.0.0.1:1",
            certificates={"ca": cert, "cert": cert, "key": key},
        )
        with pytest.raises(
            InputError, match=rf"^dask\.certificates\.key: {key} {re.escape(sentence)}"
        ):
            DaskPool(config).require_usable()
