"""All tests run on state folders and databases that are thrown away."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

_STATE = tempfile.TemporaryDirectory(prefix="learnkernels-tests-")
os.environ["LEARNKERNELS_HOME"] = str(Path(_STATE.name) / "state")
os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{Path(_STATE.name) / 'mlflow.db'}"
os.environ.pop("PREFECT_API_URL", None)
os.environ.pop("PREFECT_HOME", None)

from tasks.environment import prepare_environment  # noqa: E402  (prefect and mlflow read it on import)

prepare_environment()

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def shared_data() -> Path:
    """The folder of the real data sets; tests that need it skip where it is missing."""
    if not SHARED.is_dir():
        pytest.skip(f"the folder of real data sets, {SHARED.parent.name}/data beside the project, is not here")
    return SHARED


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with its own state, store of results and MLflow database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    return tmp_path
