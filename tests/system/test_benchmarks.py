"""The benchmark completes, has its columns, and all contestants agree; never a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from benchmarks import history, learners, predictions, scale, scaling
from benchmarks.board.__main__ import Measurement, measured
from benchmarks.board.contestants import OURS, TUNED
from benchmarks.board.tables import Split, Table, numbers
from benchmarks.board.verdict import Board
from benchmarks.contestants import CONTESTANTS
from benchmarks.moments import COLUMNS
from learnkernels.tasks.workers.cluster import SUMS_PER_WORKER

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow(30)
def test_the_benchmark_of_moments_completes(tmp_path: Path):
    output = tmp_path / "moments.parquet"
    command = [sys.executable, "-m", "benchmarks.moments", "--fast", "--output", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    rows = pq.read_table(output).to_pylist()
    assert list(rows[0]) == COLUMNS
    assert {row["table"] for row in rows} == {
        "speed",
        "steps",
        "kinds",
        "threads",
        "scaling",
        "folds",
        "features",
        "workers",
    }
    measured = [row for row in rows if row["table"] == "speed" and row["seconds"] is not None]
    assert {row["case"] for row in measured} >= set(CONTESTANTS) - {"mklpy"}
    assert all(row["note"].startswith("skipped: ") for row in rows if row["seconds"] is None)
    for row in measured:
        # Unshifted sums of the oracles lose digits to cancellation; far below any wrong formula.
        assert row["case"] in ("mklpy", "engine, float32") or row["error"] < 1e-9


@pytest.mark.slow(30)
def test_the_benchmark_of_predictions_completes(tmp_path: Path):
    output = tmp_path / "predictions.parquet"
    command = [sys.executable, "-m", "benchmarks.predictions", "--fast", "--before", ".", "--output", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    rows = pq.read_table(output).to_pylist()
    assert set(rows[0]) == set(predictions.COLUMNS)
    found = {row["case"]: row for row in rows}
    assert found.keys() >= {"svm", "svm, one row", "krr", "krr, one row", "landmarks", "features", "krr, float32"}
    assert all(row["seconds"] > 0 for row in rows)
    assert all(row["ratio"] > 0 and row["cores"] > 0 for row in rows)
    for case in ("svm", "krr", "landmarks"):  # the same version on both sides
        assert found[case]["difference"] == 0
    assert 0 < found["krr, float32"]["difference"] < 1e-4


def test_the_history_keeps_every_run_and_tells_what_became_slower(tmp_path: Path, monkeypatch):
    output = tmp_path / "results" / "moments.parquet"
    fast, slow = (
        [{"table": "speed", "case": case, "m": 9, "p": 2, "d": None, "seconds": seconds, "note": note}]
        for case, seconds, note in (("engine", 1.0, "a"), ("engine", 1.5, "b"))
    )
    assert history.keep([*fast, {**fast[0], "case": "skipped", "seconds": None}], output) == []
    assert history.keep([{**fast[0], "seconds": 1.1}], output) == []
    assert history.keep([{**slow[0], "m": 10}], output) == []  # another problem
    (sentence,) = history.keep(slow, output)
    assert sentence == "slower: table speed, case engine, m 9, p 2: 1.5 s, 1.43 times the 1.05 s before"
    monkeypatch.setattr(history, "_processor", lambda: "another")
    assert history.keep([{**slow[0], "seconds": 9.0}], output) == []
    kept = pq.read_table(output.with_name("history.parquet")).to_pylist()
    assert [row["seconds"] for row in kept] == [1.0, 1.1, 1.5, 1.5, 9.0]
    assert pq.read_table(output).to_pylist()[0]["note"] == "b"


@pytest.mark.slow(10)
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
    without = [row for row in rows if row["table"] == "streamed"]
    machines = {f"{name}, {kind}" for name in learners.MACHINES for kind in ("matrices", "landmarks")}
    assert {row["case"] for row in without} == {"l2-krr, matrices", "l2-krr, tiles", *machines}
    for row in without:  # weights within a gap of each other differ by about its root
        assert row["residual"] <= learners.GAP
        assert row["apart"] < 10 * learners.GAP**0.5
    values = {row["regularisation"] for row in rows if row["table"] in ("speed", "iterations")}
    assert values == set(learners.REGULARISATIONS)
    solved = [row for row in rows if row["residual"] is not None and row["table"] != "streamed"]
    assert {row["case"] for row in solved} == cases["iterations"]
    for row in solved:
        assert 0 <= row["residual"] < 1e-6, row  # what every solver is asked for
        assert row["iterations"] >= 1
    assert all(row["seconds"] > 0 and row["ratio"] > 0 for row in rows if row["table"] == "speed")


@pytest.mark.slow(10)
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


@pytest.mark.slow(10)
def test_the_benchmark_of_scaling_completes(tmp_path: Path):
    output = tmp_path / "scaling.parquet"
    small = ["--rows", "40000", "--compute-rows", "4000", "--landmarks", "50", "--workers", "2", "--repeats", "1"]
    scaling.main([*small, "--output", str(output)])
    rows = pq.read_table(output).to_pylist()
    assert list(rows[0]) == scaling.COLUMNS
    assert [(row["table"], row["case"]) for row in rows] == [
        ("measured", "1 workers"),
        ("measured", "2 workers"),
        ("a pass", "2 workers"),
    ]
    assert rows[2]["tasks"] == 2 * SUMS_PER_WORKER + 1  # eight sums, and their sum
    assert all(row["seconds"] > 0 and row["efficiency"] > 0 for row in rows)


# The board -----------------------------------------------------------------------------------------------------------


def board(errors: dict[str, list[list[float]]], task: str = "regression") -> Board:
    """A board of some contestants: errors by table and drawing."""
    return Board.of(
        [
            Measurement(f"t{table}", task, True, drawing, name, error, 1.0, 500, 100, 7)
            for name, tables in errors.items()
            for table, drawings in enumerate(tables)
            for drawing, error in enumerate(drawings)
        ]
    )


def test_the_board_has_ranks_means_and_wins():
    tuned = [[1.0, 1.1, 1.05], [2.0, 2.1, 2.05], [0.5, 0.5, 0.5]]
    ours = [[0.5, 0.56, 0.52], [1.0, 1.04, 1.03], [0.6, 0.61, 0.62]]
    found = board({OURS: ours, TUNED: tuned, "LightGBM": [[1.5] * 3, [3.0] * 3, [0.4] * 3]})
    summary = found.summary("regression", True)
    assert summary["mean rank"].to_dict() == pytest.approx({OURS: 5 / 3, TUNED: 2.0, "LightGBM": 7 / 3})
    ratios = [np.mean(a) / np.mean(b) for a, b in zip(ours, tuned, strict=True)]
    assert summary.loc[OURS, "errors / tuned RBF"] == pytest.approx(np.prod(ratios) ** (1 / 3))
    assert summary.loc[TUNED, ["we win", "we lose", "surely"]].tolist() == [2, 1, "2 : 1"]
    # Demsar 2006, table 5: q of three classifiers at 5 % is 2.343.
    assert found.critical_difference("regression", True) == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 3)), rel=1e-3)
    assert found.losses("regression", True).index.tolist() == ["t2"]
    page = found.page()
    assert page.index("Where we lose most") < page.index("Mean ranks differ") < page.index("Errors:")


def test_no_wrong_row_counts_as_one():
    found = board({OURS: [[0.0, 0.0]], TUNED: [[0.02, 0.02]]}, "classification")
    ratio = found.summary("classification", True).loc[OURS, "errors / tuned RBF"]
    assert ratio == pytest.approx((1 / 200) / 0.02)


def test_tables_become_numbers_and_drawings_their_own_units():
    given = pd.DataFrame({"a": ["1", "2", "?", "4"], "b": ["x", "y", "x", "y"], "c": ["q"] * 4, "d": list("klmk")})
    np.testing.assert_array_equal(numbers(given), [[1, 1, 1, 0, 0], [2, 0, 0, 1, 0], [2, 1, 0, 0, 1], [4, 0, 1, 0, 0]])
    rng = np.random.default_rng(0)
    X, y = np.column_stack([rng.normal(5, 3, 100), np.ones(100)]), rng.normal(size=100)
    drawing = Table("t", "regression", True, lambda: (X, y)).drawn(1)
    assert drawing.X.shape == (70, 1)
    assert drawing.X_test.shape == (30, 1)
    assert (drawing.X.mean(), drawing.X.std()) == (pytest.approx(0, abs=1e-12), pytest.approx(1))
    assert drawing.test_share == pytest.approx(3 / 7)
    as_it_is = Table("t", "regression", True, lambda: (X, y), split=Split(scaled=False)).drawn(1)
    np.testing.assert_allclose((as_it_is.X - as_it_is.X.mean()) / as_it_is.X.std(), drawing.X, rtol=0, atol=1e-12)
    assert set(as_it_is.X.ravel()) < set(X.ravel())


def test_a_journal_of_the_board_goes_on_after_a_line_that_was_cut_off(tmp_path: Path):
    path = tmp_path / "journal.jsonl"
    assert list(measured(path)) == []
    line = '{"table": "t", "task": "regression", "apart": true, "drawing": 0, "contestant": "x", "error": 1.0, '
    path.write_text(line + '"seconds": 1.0, "n_train": 1, "n_test": 1, "n_features": 1}\n' + line)
    assert [one.contestant for one in measured(path)] == ["x"]
