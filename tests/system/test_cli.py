"""The command line as a user meets it: a process in an empty folder, and what it says where it cannot go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from learnkernels.tasks.environment import COLLECT_AFTER
from tests.user import ROOT, User, environment, learnkernels

CONF = str(ROOT / "conf/quickstart.yaml")
NOBODY = "http://127.0.0.1:9/api"


def test_help_is_quick_to_import_and_names_the_commands(home: Path):
    shown = learnkernels(home, "--help")
    assert shown.returncode == 0
    assert "compare" in shown.stdout
    assert "ui" in shown.stdout
    heavy = ["prefect", "mlflow", "distributed", "sklearn", "pandas", "pyarrow", "numpy"]
    code = (
        f"import gc, learnkernels.__main__, learnkernels.flows.cli, sys; print([name for name in {heavy} if name in "
        "sys.modules], gc.get_threshold()[0])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], env=environment(home), capture_output=True, text=True)
    assert loaded.stdout.strip() == f"[] {COLLECT_AFTER[0]}"


@pytest.mark.slow(25)
def test_what_stops_a_command_is_one_sentence(user: User, prefect_server: None):
    database = user.work / ".learnkernels" / "prefect" / "prefect.db"

    def refused(sentence: str, *arguments: str, **settings: str) -> None:
        done = user.run(*arguments, **settings)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        (said,) = [line for line in done.stderr.splitlines() if "error:" in line]
        assert sentence in said
        assert not (user.work / "results").exists()

    deploy = ("deploy", CONF, "--register", "demo")
    refused("error: there is no Prefect server to deploy to: start 'learnkernels up'", *deploy)
    for command in (deploy, ("compare", CONF)):
        refused(f"error: no Prefect server answers at {NOBODY} (ConnectError);", *command, PREFECT_API_URL=NOBODY)

    dependent = "kernels=[linear, {family: polynomial, degrees: [1], coef0: 0}]"
    changes = [part for one in ("learners=alignf-linear", dependent, "dask.workers=0") for part in ("--set", one)]
    learner = "data set breast_cancer: learner alignf-linear: base kernels must be independent"
    refused(learner, "compare", CONF, *changes, PREFECT_API_URL=str(PREFECT_API_URL.value()))

    database.write_bytes(b"no database " * 99)
    refused(f"error: {database}: is no database of SQLite's", "compare", CONF)
