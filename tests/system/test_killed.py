"""A run that was killed and started again finishes, redoes nothing that was done, and finds the same numbers."""

import json
import os
import signal
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from prefect.settings import PREFECT_API_URL

from dev.tools.waiting import within
from learnkernels.flows.compare import compare
from learnkernels.flows.train import train
from learnkernels.tasks.models.registry import MODEL
from tests.service.flows.test_train import small
from tests.user import environment

CONFIG = small(learners=["unif", "alignf", "nkrr"])


def files(store: Path) -> dict[Path, int]:
    """What is whole in the store: path and time of writing; temporary folders begin with a dot."""
    found = [
        path for path in store.rglob("*") if path.is_file() and ".." not in path.parts
    ]
    hidden = [
        path for path in found if any(part.startswith(".") for part in path.parts[-3:])
    ]
    return {path: path.stat().st_mtime_ns for path in found if path not in hidden}


@pytest.mark.slow(30)
@pytest.mark.parametrize("command", ["compare", "train"])
def test_a_run_killed_and_started_again(
    command, prefect_server, commands, working_folder, monkeypatch
):
    (working_folder / "conf.yaml").write_text(
        json.dumps(CONFIG.model_dump(mode="json", by_alias=True))
    )
    words = [
        "learnkernels",
        command,
        "conf.yaml",
        *(["--model", "wine"] if command == "train" else []),
    ]
    kept = {
        key: os.environ[key] for key in ("LEARNKERNELS_HOME", "MLFLOW_TRACKING_URI")
    }
    env = (
        environment(working_folder)
        | kept
        | {"PREFECT_API_URL": str(PREFECT_API_URL.value())}
    )
    store = Path(kept["LEARNKERNELS_HOME"]) / "store"

    started = commands.start(words, working_folder, env)
    assert within(lambda: any(store.glob("folds/*/folds.parquet")), 120, 0.01), (
        started.err.read_text()
    )
    os.kill(started.pid, signal.SIGKILL)
    assert started.wait().returncode == -signal.SIGKILL
    done = files(store)
    evaluated = [path for path in done if path.name == "folds.parquet"]
    assert 0 < len(evaluated) < len(CONFIG.learners), started.err.read_text()
    assert not any(path.name == MODEL for path in done)

    again = commands.run(words, working_folder, env)
    assert again.returncode == 0, again.stderr
    after = files(store)
    assert {path: after.get(path) for path in done} == done
    assert {run.info.status for run in MlflowClient().search_runs(["1"])} == {
        "KILLED",
        "FINISHED",
    }

    ours = working_folder / again.stdout.splitlines()[-1].removeprefix("results: ")
    monkeypatch.setenv("LEARNKERNELS_HOME", str(working_folder / "another"))
    uninterrupted = (
        compare(config=CONFIG)
        if command == "compare"
        else train(config=CONFIG, model="elsewhere")
    )
    theirs = Path(uninterrupted["results"])
    folds = [pd.read_parquet(of / "folds.parquet") for of in (ours, theirs)]
    about = ["seconds_weights", "seconds_fit", "seconds_pass"]
    if command == "train":
        about.append("stored")  # what was taken from the run that was killed
        (model,) = [path for path in after if path.name == MODEL]
        assert (
            (ours / MODEL).read_bytes()
            == model.read_bytes()
            == (theirs / MODEL).read_bytes()
        )
    pd.testing.assert_frame_equal(*(one.drop(columns=about) for one in folds))
