"""The benchmark completes, has its columns, and all contestants agree; never a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import learners, scale
from benchmarks.contestants import CONTESTANTS
from benchmarks.moments import COLUMNS

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_benchmark_of_moments_completes(tmp_path: Path):
    output = tmp_path / "moments.parquet"
    command = [sys.executable, "-m", "benchmarks.moments", "--fast", "--output", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    rows = pq.read_table(output).to_pylist()
    assert list(rows[0]) == COLUMNS
    assert {row["table"] for row in rows} == {"speed", "scaling", "folds", "features", "workers"}
    measured = [row for row in rows if row["table"] == "speed" and row["seconds"] is not None]
    assert {row["case"] for row in measured} >= set(CONTESTANTS) - {"mklpy"}
    assert all(row["note"].startswith("skipped: ") for row in rows if row["seconds"] is None)
    for row in measured:
        # Unshifted sums of the oracles lose digits to cancellation; far below any wrong formula.
        assert row["case"] in ("mklpy", "engine, float32") or row["error"] < 1e-9


def test_the_benchmark_of_learners_completes(tmp_path: Path):
    output = tmp_path / "learners.parquet"
    command = [sys.executable, "-m", "benchmarks.learners", "--fast", "--output", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    rows = pq.read_table(output).to_pylist()
    assert list(rows[0]) == learners.COLUMNS
    cases = {table: {row["case"] for row in rows if row["table"] == table} for table in ("speed", "iterations")}
    assert cases["speed"] >= {"l2-krr", "l1-svm", "KernelRidge", "SVC"}
    assert cases["iterations"] >= {"l1-krr", "l2-krr", "lp-krr", "l1-svm", "lp-svm"}
    searched = {row["case"] for row in rows if row["table"] == "continuous"}
    assert searched == {"alignf, 20 kernels", "ca", "cr", "cr, not corrective"}
    assert {row["case"] for row in rows if row["table"] == "rank one"} == {"l1-krr", "l1-svm", "l2-krr"}
    values = {row["regularisation"] for row in rows if row["table"] in ("speed", "iterations")}
    assert values == set(learners.REGULARISATIONS)
    solved = [row for row in rows if row["residual"] is not None]
    assert {row["case"] for row in solved} == cases["iterations"]
    for row in solved:
        assert 0 <= row["residual"] < 1e-6, row  # what every solver is asked for
        assert row["iterations"] >= 1
    assert all(row["seconds"] > 0 and row["ratio"] > 0 for row in rows if row["table"] == "speed")


def test_the_benchmark_of_many_rows_completes(tmp_path: Path):
    output = tmp_path / "scale.parquet"
    command = [sys.executable, "-m", "benchmarks.scale", "--fast", "--output", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    rows = pq.read_table(output).to_pylist()
    assert list(rows[0]) == scale.COLUMNS
    assert {row["table"] for row in rows} == set(scale.TABLES)
    theirs, ours = (row["error"] for row in rows if row["table"] == "landmarks")
    # The same landmarks and ridge; theirs span the landmarks, ours their differences.
    assert abs(ours - theirs) < 0.01 * theirs
    solved = [row for row in rows if row["table"] == "residuals"]
    assert all(row["residual"] <= 1e-6 or row["note"] == "warned" for row in solved)
    assert all(0 <= row["ratio"] <= 1 for row in rows if row["table"] == "coverage")
