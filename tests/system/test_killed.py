"""A run that was killed and started again finishes, redoes nothing that was done, and finds the same numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from prefect.settings import PREFECT_API_URL

from learnkernels.flows.compare import compare
from learnkernels.flows.train import train
from tests.service.flows.test_train import small
from tests.user import COMMAND, environment

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.slow(40)]

CONFIG = small(learners=["unif", "alignf", "nkrr"])


def files(store: Path) -> dict[Path, int]:
    """What is whole in the store: path and time of writing; temporary folders begin with a dot."""
    found = [path for path in store.rglob("*") if path.is_file() and ".." not in path.parts]
    return {
        path: path.stat().st_mtime_ns for path in found if not any(part.startswith(".") for part in path.parts[-3:])
    }


@pytest.fixture
def user(working_folder: Path) -> dict[str, str]:
    """The environment of a user in an empty folder with a configuration, on the server of the tests."""
    (working_folder / "home").mkdir()
    (working_folder / "conf.yaml").write_text(json.dumps(CONFIG.model_dump(mode="json", by_alias=True)))
    kept = {key: os.environ[key] for key in ("LEARNKERNELS_HOME", "MLFLOW_TRACKING_URI")}
    return environment(working_folder) | kept | {"PREFECT_API_URL": str(PREFECT_API_URL.value())}


def killed_in_mid_run(command: list[str], env: dict[str, str]) -> dict[Path, int]:
    """Start a command, kill it as soon as the first learner is evaluated, and return what the store holds then."""
    store = Path(env["LEARNKERNELS_HOME"]) / "store"
    with Path("log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while not list(store.glob("folds/*/folds.parquet")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = files(store)
    evaluated = [path for path in done if path.name == "folds.parquet"]
    assert 0 < len(evaluated) < len(CONFIG.learners), Path("log").read_text()
    return done


def started_again(command: list[str], env: dict[str, str], done: dict[Path, int]) -> dict[Path, int]:
    again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    after = files(Path(env["LEARNKERNELS_HOME"]) / "store")
    assert {path: after.get(path) for path in done} == done
    assert {run.info.status for run in MlflowClient().search_runs(["1"])} == {"KILLED", "FINISHED"}
    return after


def test_a_comparison(user: dict[str, str], working_folder: Path, monkeypatch: pytest.MonkeyPatch):
    command = [*COMMAND, "compare", "conf.yaml"]
    started_again(command, user, killed_in_mid_run(command, user))
    (folder,) = (working_folder / "results" / "small").iterdir()
    monkeypatch.setenv("LEARNKERNELS_HOME", str(working_folder / "another"))
    uninterrupted = compare(CONFIG)
    ours, theirs = (pd.read_parquet(Path(of) / "folds.parquet") for of in (folder, uninterrupted["results"]))
    timings = ["seconds_weights", "seconds_fit", "seconds_pass"]
    pd.testing.assert_frame_equal(ours.drop(columns=timings), theirs.drop(columns=timings))


def test_a_training(user: dict[str, str], working_folder: Path, monkeypatch: pytest.MonkeyPatch):
    command = [*COMMAND, "train", "conf.yaml", "--register", "wine"]
    done = killed_in_mid_run(command, user)
    assert not any(path.name == "model.npz" for path in done)
    after = started_again(command, user, done)
    (model,) = [path for path in after if path.name == "model.npz"]
    (folder,) = (working_folder / "results" / "wine").iterdir()
    assert (folder / "model.npz").read_bytes() == model.read_bytes()
    monkeypatch.setenv("LEARNKERNELS_HOME", str(working_folder / "another"))
    uninterrupted = train(CONFIG, "elsewhere")
    assert (Path(uninterrupted["results"]) / "model.npz").read_bytes() == model.read_bytes()
