"""Runs in MLflow: what a comparison that ends early leaves of itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from learnkernels.conf.schema import CompareConfig
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.evidence.saved_view import RUN
from learnkernels.tasks.evidence.tracking import OWNER, TrackedRun, _experiment, log_run, tracked_run
from learnkernels.tasks.owner import Owner
from learnkernels.tasks.stopping import Stopped


@pytest.mark.parametrize(("error", "status"), [(Stopped, "KILLED"), (KeyboardInterrupt, "KILLED"), (OSError, "FAILED")])
def test_results_that_are_being_written_end_with_their_comparison(
    working_folder: Path, prefect_server: None, error: type[BaseException], status: str
):
    config = CompareConfig.model_validate({"name": "small", "datasets": "iris"})
    client, other = MlflowClient(), None

    def stopped() -> None:
        nonlocal other
        with tracked_run(config, "sweep", "a sweep", "id", "") as sweep:
            tags = {OWNER: str(Owner.this())}
            client.create_run(sweep.experiment_id, run_name="result", tags={**tags, RUN: "id"})
            other = client.create_run(sweep.experiment_id, run_name="of another", tags={**tags, RUN: "another"})
            raise error

    with pytest.raises(error):
        stopped()
    assert other is not None
    runs = {run.info.run_name: run.info.status for run in client.search_runs([other.info.experiment_id])}
    assert runs == {"a sweep": status, "result": status, "of another": "RUNNING"}


def test_a_run_that_was_being_made_is_ended(
    working_folder: Path, prefect_server: None, monkeypatch: pytest.MonkeyPatch
):
    config = CompareConfig.model_validate({"name": "made", "datasets": "iris"})
    made = MlflowClient.create_run

    def interrupted(*args: Any, **options: Any) -> None:
        made(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(MlflowClient, "create_run", interrupted)
    with pytest.raises(KeyboardInterrupt), tracked_run(config, "sweep", "a sweep", "id", ""):
        pass
    client = MlflowClient()
    experiment = client.get_experiment_by_name("made")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "KILLED"


def test_runs_that_add_one_data_set_at_once_all_have_it(working_folder: Path):
    client = MlflowClient()
    experiment = client.create_experiment("at once")
    runs = [client.create_run(experiment).info.run_id for _ in range(6)]
    refs = [DatasetRef("iris", f"{digest:08d}", "", "classification", "sklearn", 150, 4) for digest in range(8)]
    with ThreadPoolExecutor(len(runs)) as pool:
        for ref in refs:
            list(pool.map(lambda run, ref=ref: log_run(TrackedRun(experiment, run, ""), refs=[ref]), runs))
    for run in runs:
        inputs = client.get_run(run).inputs.dataset_inputs
        assert sorted(given.dataset.digest for given in inputs) == [ref.digest for ref in refs]


def test_runs_that_make_one_experiment_at_once_all_have_it(working_folder: Path):
    client = MlflowClient()
    configs = [CompareConfig.model_validate({"name": f"at-once-{number}", "datasets": "iris"}) for number in range(8)]
    with ThreadPoolExecutor(6) as pool:
        for config in configs:
            made = set(pool.map(lambda _, config=config: _experiment(client, config, None), range(6)))
            assert made == {client.get_experiment_by_name(config.name).experiment_id}
