"""A try of each kind of `make chaos`, by a fixed seed: kills, signals, damage, hostile input, two at once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev.tools.chaos.__main__ import KINDS
from dev.tools.chaos.journal import attempts_in

NOT_PERMITTED = re.compile(".* (is|are) not permitted here")

FEW = 0.003
"""Share of the tries of `make chaos`: one of each kind of processes, some hundred files."""


@pytest.mark.slow(120)
def test_nothing_is_lost_and_everything_ends(tmp_path: Path):
    ours = (
        "PREFECT",
        "MLFLOW",
        "LEARNKERNELS",
        "DASK_CONFIG",
        "DASK_TEMPORARY_DIRECTORY",
        "MPLCONFIGDIR",
        "TMPDIR",
    )
    env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    asked = [
        "--seed",
        "22",
        "--minutes",
        "10",
        "--share",
        str(FEW),
        "--one-lane",
        "--resume",
        str(tmp_path),
    ]
    command = [sys.executable, "-m", "dev.tools.chaos", *asked]
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run(
        command, cwd=root, env=env, capture_output=True, text=True, timeout=900
    )
    attempts = attempts_in(tmp_path)
    assert run.returncode == 0, (tmp_path / "report.md").read_text()
    assert "ended with" not in run.stderr
    assert {one.kind for one in attempts} == {kind.name for kind in KINDS} - {"cron"}
    reasons = {one.skipped for one in attempts if one.skipped}
    assert [one for one in reasons if not NOT_PERMITTED.fullmatch(one)] == []
