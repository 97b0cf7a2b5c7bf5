"""What benchmarks compare and where they measure, without running them."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from dev.benchmarks import alignment_statistics, cluster, scale
from dev.benchmarks.contestants import CONTESTANTS
from learnkernels.tasks.data import locations


def scored(ids: list[float], predictions: list[float]) -> pa.Table:
    return pa.table({cluster.ID: ids, "prediction": predictions})


def test_runs_on_a_cluster_differ_if_predictions_are_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "scored.parquet"
    place = SimpleNamespace(path=str(path), filesystem=LocalFileSystem())
    monkeypatch.setattr(locations, "locate", lambda url: place)

    def numbers_with(table: pa.Table) -> dict[str, float | str]:
        pq.write_table(table, path)
        return cluster.numbers_of(tmp_path, ["predict"])

    first = numbers_with(scored([1.0, 2.0], [0.5, 0.25]))
    (tmp_path / "cluster.json").write_text(json.dumps({"numbers": first}))
    cluster.require_same(numbers_with(scored([2.0, 1.0], [0.25, 0.5])), tmp_path)
    exchanged = numbers_with(scored([1.0, 2.0], [0.25, 0.5]))
    with pytest.raises(SystemExit, match=r"Not as in .*: digest of predictions"):
        cluster.require_same(exchanged, tmp_path)


def test_numbers_of_a_cluster_are_those_of_its_newest_run(tmp_path: Path):
    for time, error in (("20260101-000000", 0.1), ("20260102-000000", 0.2)):
        folder = tmp_path / "results" / "cluster" / time
        folder.mkdir(parents=True)
        folds = pa.table({"learner": ["alignf"], "error": [error]})
        pq.write_table(folds, folder / "folds.parquet")
    assert cluster.numbers_of(tmp_path, ["compare"]) == {"error of alignf": 0.2}


def test_contestants_have_as_many_threads_of_the_engine_as_cores(
    monkeypatch: pytest.MonkeyPatch,
):
    environments = []

    def run(command: list[str], **options: Any) -> SimpleNamespace:
        environments.append(options["env"])
        return SimpleNamespace(stdout="{}")

    monkeypatch.setattr(subprocess, "run", run)
    alignment_statistics.in_fresh_process("engine", 60, 2, 2, 1)
    cores = str(CONTESTANTS["engine"].cores)
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
    assert [environments[0].get(name) for name in names] == [cores] * 3


def test_seconds_of_a_fit_have_no_predictions(monkeypatch: pytest.MonkeyPatch):
    now = 0.0

    def predict_slowly(*_: object) -> float:
        nonlocal now
        now += 100.0
        return 0.5

    monkeypatch.setattr(scale, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(scale, "_test_error", predict_slowly)
    rows = {row["case"]: row for row in scale.pipeline(200, 20, 3, -4)}
    fit = rows["grid to 2^-4: alignf, nystroem"]
    assert (fit["seconds"], fit["error"]) == (0.0, 0.5)
    assert rows["grid to 2^-4: all of the above"]["seconds"] == 200.0
