"""Names that become files and folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient

from learnkernels.conf.schema import CompareConfig
from learnkernels.tasks.evidence.tracking import tracked_run
from learnkernels.tasks.naming import file_name


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("quickstart", "quickstart"),
        ("my experiment-1.0", "my experiment-1.0"),
        ("été", "été"),
        ("..", "%2E%2E"),
        ("../../x", "..%2F..%2Fx"),
        ("/etc/x", "%2Fetc%2Fx"),
        ("a\\b\n", "a%5Cb%0A"),
    ],
)
def test_a_name_leads_nowhere_else(name: str, file: str):
    assert file_name(name) == file


@given(st.text(min_size=1))
def test_any_name_is_one_of_a_file_in_the_folder(name: str):
    folder = Path("/folder")
    path = (folder / file_name(name)).resolve()
    assert path.parent == folder
    assert "\0" not in path.name


@pytest.mark.parametrize("name", ["../../outside", "/outside", "..", "a/../../../outside"])
def test_artifacts_of_an_experiment_stay_in_their_folder(working_folder: Path, name: str, prefect_server: None):
    config = CompareConfig.model_validate(
        {
            "name": "small",
            "datasets": [{"source": "sklearn", "name": "iris"}],
            "kernels": [{"family": "linear"}],
            "learners": ["unif"],
            "tracking": {"experiment": name},
        }
    )
    with tracked_run(config, "train", "a run", "id", "") as run:
        MlflowClient().log_text(run.run_id, "text", "artifact.txt")
    (written,) = working_folder.rglob("artifact.txt")
    assert written.is_relative_to(working_folder / "mlartifacts")
    assert MlflowClient().get_experiment_by_name(name) is not None
