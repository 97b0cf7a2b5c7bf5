"""Some tries of each kind of `make chaos`, by a fixed seed: kills, signals, damage, hostile input, two at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.chaos.__main__ import KINDS
from tools.chaos.journal import Attempt, Failure, Journal, attempts_in, report

ROOT = Path(__file__).resolve().parents[2]
MINUTES = 1.0
"""Of tries; the folder is prepared before."""

FEW = 0.003
"""Share of the tries of `make chaos`: one of each kind of processes, some hundred files."""


@pytest.mark.slow(145)
def test_nothing_is_lost_and_everything_ends(tmp_path: Path):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MLFLOW", "LEARNKERNELS"))}
    for inherited in ("DASK_CONFIG", "DASK_TEMPORARY_DIRECTORY", "MPLCONFIGDIR", "TMPDIR"):
        env.pop(inherited, None)
    asked = ["--seed", "22", "--minutes", str(MINUTES), "--share", str(FEW), "--one-lane", "--resume", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, "-m", "tools.chaos", *asked], cwd=ROOT, env=env, capture_output=True, text=True, timeout=900
    )
    attempts = attempts_in(tmp_path)
    assert attempts, run.stderr
    assert run.returncode == 0, (tmp_path / "report.md").read_text()
    for reason in sorted({f"{one.kind}: {one.skipped}" for one in attempts if one.skipped}):
        print(reason)  # noqa: T201


def test_a_journal_goes_on_after_a_line_that_was_cut_off(tmp_path: Path):
    journal = Journal(tmp_path / "lane" / "journal.jsonl")
    first = Attempt("kills", 0, 7, case="compare", outcomes={"as if never killed": 1})
    second = Attempt("data files", 3, 7, tries=250, failures=[Failure("traceback", "x.csv", "ValueError: no")])
    journal.add(first)
    journal.add(second)
    with journal.path.open("a") as file:
        file.write('{"kind": "kills", "num')
    assert attempts_in(tmp_path) == [first, second]
    text = report([first, second], tmp_path)
    assert "| kills | 1 | 0 | as if never killed: 1 |" in text
    assert "| data files | 250 | 1 | **traceback: 1** |" in text
    assert f"`python -m tools.chaos --resume {tmp_path} --seed 7 --again data files:3`: ValueError: no" in text


def test_each_kind_is_there():
    assert all(callable(kind.function()) for kind in KINDS)
