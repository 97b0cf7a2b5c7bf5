"""The benchmarks complete in their small form, have their columns, and all contestants agree; never a time."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dev.benchmarks import (
    alignment_statistics,
    drift,
    learners,
    predictions,
    scale,
    scaling,
)
from dev.benchmarks.contestants import CONTESTANTS
from learnkernels.tasks.workers.cluster import SUMS_PER_WORKER

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What runs a benchmark with some arguments in this process, and returns its rows."""
    output = tmp_path / "rows.parquet"

    def rows(benchmark: ModuleType, *arguments: str) -> list[dict[str, Any]]:
        monkeypatch.setattr(
            sys, "argv", ["benchmark", *arguments, "--output", str(output)]
        )
        benchmark.main()
        return pq.read_table(output).to_pylist()

    return rows


def cases(rows: list[dict[str, Any]], table: str) -> set[str]:
    return {row["case"] for row in rows if row["table"] == table}


@pytest.mark.slow(20)
def test_the_benchmark_of_statistics_completes(run: Run):
    rows = run(alignment_statistics, "--fast")
    assert list(rows[0]) == alignment_statistics.COLUMNS
    tables = {
        "speed",
        "steps",
        "kinds",
        "threads",
        "scaling",
        "folds",
        "features",
        "workers",
    }
    assert {row["table"] for row in rows} == tables
    measured = [
        row for row in rows if row["table"] == "speed" and row["seconds"] is not None
    ]
    assert {row["case"] for row in measured} >= set(CONTESTANTS) - {"mklpy"}
    assert all(
        row["note"].startswith("skipped: ") for row in rows if row["seconds"] is None
    )
    for row in measured:
        # Unshifted sums of the oracles lose digits to cancellation; far below any wrong
        # formula.
        assert row["case"] in ("mklpy", "engine, float32") or row["error"] < 1e-9


@pytest.mark.slow(10)
def test_the_benchmark_of_predictions_completes(tmp_path: Path):
    output = tmp_path / "predictions.parquet"
    command = [
        sys.executable,
        "-m",
        "dev.benchmarks.predictions",
        "--fast",
        "--before",
        ".",
        "--output",
        str(output),
    ]
    subprocess.run(
        command, cwd=Path(__file__).parents[2], check=True, capture_output=True
    )
    rows = pq.read_table(output).to_pylist()
    assert set(rows[0]) == set(predictions.COLUMNS)
    found = {row["case"]: row for row in rows}
    assert found.keys() >= {
        "svm",
        "svm, one row",
        "krr",
        "krr, one row",
        "landmarks",
        "features",
        "krr, float32",
    }
    assert all(
        row["seconds"] > 0 and row["ratio"] > 0 and row["cores"] > 0 for row in rows
    )
    for case in ("svm", "krr", "landmarks"):  # the same version on both sides
        assert found[case]["difference"] == 0
    assert 0 < found["krr, float32"]["difference"] < 1e-4


@pytest.mark.slow(5)
def test_the_benchmark_of_learners_completes(run: Run):
    rows = run(learners, "--fast", "--repeats", "1")
    assert list(rows[0]) == learners.COLUMNS
    assert cases(rows, "speed") >= {"l2-krr", "l1-svm", "KernelRidge", "SVC"}
    assert cases(rows, "iterations") >= {
        "l1-krr",
        "l2-krr",
        "lp-krr",
        "l1-svm",
        "lp-svm",
    }
    assert cases(rows, "continuous") == {
        "alignf, 20 kernels",
        "ca",
        "cr",
        "cr, not corrective",
    }
    assert cases(rows, "rank one") == {"l1-krr", "l1-svm", "l2-krr"}
    machines = {
        f"{name}, {kind}"
        for name in learners.MACHINES
        for kind in ("matrices", "sample")
    }
    assert cases(rows, "streamed") == {"l2-krr, matrices", "l2-krr, tiles", *machines}
    for row in (row for row in rows if row["table"] == "streamed"):
        assert row["residual"] <= learners.GAP
        # Weights within a gap of each other differ by about its root
        assert row["apart"] < 10 * learners.GAP**0.5
    values = {
        row["regularization"] for row in rows if row["table"] in ("speed", "iterations")
    }
    assert values == set(learners.C_VALUES)
    solved = [row for row in rows if row["table"] == "iterations"]
    for row in solved:
        assert 0 <= row["residual"] < 1e-6, row  # what every solver is asked for
        assert row["iterations"] >= 1
    assert all(
        row["seconds"] > 0 and row["ratio"] > 0
        for row in rows
        if row["table"] == "speed"
    )


@pytest.mark.slow(5)
def test_the_benchmark_of_many_rows_completes(run: Run):
    rows = run(scale, "--fast")
    assert list(rows[0]) == scale.COLUMNS
    assert {row["table"] for row in rows} == set(scale.TABLES)
    theirs, ours = (row["error"] for row in rows if row["table"] == "landmarks")
    # The same landmarks and ridge; theirs span the landmarks, ours their differences.
    assert abs(ours - theirs) < 0.01 * theirs
    solved = [row for row in rows if row["table"] == "residuals"]
    assert all(row["residual"] <= 1e-6 or row["note"] == "warned" for row in solved)
    assert all(0 <= row["ratio"] <= 1 for row in rows if row["table"] == "coverage")


@pytest.mark.slow(5)
def test_memory_of_a_case_has_no_earlier_work(run: Run):
    np.ones(2**27)  # a GiB, and freed
    (sampled,) = run(scale, "--fast", "--tables", "sampled")
    found = re.search(r"([\d.]+) GiB at most", sampled["note"])
    assert found is not None
    assert float(found[1]) < 1
    fitted = run(learners, "--fast", "--tables", "sample")
    assert max(row["gib"] for row in fitted) < 1


@pytest.mark.slow(10)
def test_the_benchmark_of_scaling_completes(run: Run):
    small = [
        "--rows",
        "20000",
        "--compute-rows",
        "2000",
        "--landmarks",
        "50",
        "--workers",
        "2",
        "--repeats",
        "1",
    ]
    rows = run(scaling, *small)
    assert list(rows[0]) == scaling.COLUMNS
    shown = [(row["table"], row["case"]) for row in rows]
    assert shown == [
        ("measured", "1 workers"),
        ("measured", "2 workers"),
        ("a pass", "2 workers"),
    ]
    assert rows[2]["tasks"] == 2 * SUMS_PER_WORKER + 1  # eight sums, and their sum
    assert all(row["seconds"] > 0 and row["efficiency"] > 0 for row in rows)


@pytest.mark.slow(10)
def test_the_benchmark_of_drift_completes():
    shares = drift.alarms(drift.LEARNERS["alignf"], models=1)
    assert list(shares) == list(drift.CASES)
    assert shares["half a deviation, another column"].tolist()[1:] == [1.0, 1.0]
    assert all(seconds > 0 for seconds in drift.cost(100, 200, repeats=1))
