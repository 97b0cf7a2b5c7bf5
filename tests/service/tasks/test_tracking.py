"""Runs in MLflow: what a comparison that ends early leaves of itself."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from mlflow import MlflowClient

from learnkernels.conf.schema import TrackingConfig
from learnkernels.tasks import stopping, store
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.evidence.tracking import (
    LEVEL,
    OWNER,
    RUN,
    TrackedRun,
    _experiment,
    experiment_note,
    log_run,
    runs_path,
    tracked_run,
)


def test_results_that_are_being_written_end_with_their_comparison(working_folder, prefect_server: None):
    client, tags = MlflowClient(), {OWNER: str(store.Owner.this())}

    def stopped(error: type[BaseException]) -> None:
        with tracked_run(error.__name__, TrackingConfig(), "sweep", "a sweep", "id") as sweep:
            client.create_run(sweep.experiment_id, run_name="result", tags={**tags, RUN: "id"})
            client.create_run(sweep.experiment_id, run_name="of another", tags={**tags, RUN: "another"})
            raise error

    for error, status in {stopping.Stopped: "KILLED", KeyboardInterrupt: "KILLED", OSError: "FAILED"}.items():
        with pytest.raises(error):
            stopped(error)
        found = client.search_runs([client.get_experiment_by_name(error.__name__).experiment_id])
        runs = {run.info.run_name: run.info.status for run in found}
        assert runs == {"a sweep": status, "result": status, "of another": "RUNNING"}


def test_artifacts_of_an_experiment_stay_in_their_folder(working_folder, prefect_server: None):
    client = MlflowClient()
    for number, name in enumerate(("../../outside", "/outside", "..", "a/../../../outside")):
        with tracked_run("a", TrackingConfig(experiment=name), "model", "a run", "id") as run:
            client.log_text(run.run_id, "text", f"artifact-{number}.txt")
        (written,) = working_folder.rglob(f"artifact-{number}.txt")
        assert written.is_relative_to(working_folder / "mlartifacts")
        assert client.get_experiment_by_name(name) is not None


def test_a_run_that_was_being_made_is_ended(working_folder, prefect_server, monkeypatch):
    made = MlflowClient.create_run

    def interrupted(*args: Any, **options: Any) -> None:
        made(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(MlflowClient, "create_run", interrupted)
    with pytest.raises(KeyboardInterrupt), tracked_run("made", TrackingConfig(), "sweep", "a sweep", "id"):
        pass
    client = MlflowClient()
    experiment = client.get_experiment_by_name("made")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "KILLED"


def test_runs_that_add_one_data_set_or_make_one_experiment_at_once_all_have_it(working_folder):
    client = MlflowClient()
    experiment = client.create_experiment("at once")
    runs = [client.create_run(experiment).info.run_id for _ in range(6)]
    refs = [DatasetRef("iris", f"{digest:08d}", "", "classification", "sklearn", 150, 4) for digest in range(8)]
    with ThreadPoolExecutor(len(runs)) as pool:
        for ref in refs:
            list(pool.map(lambda run, ref=ref: log_run(TrackedRun(experiment, run, ""), refs=[ref]), runs))
        for name in (f"at-once-{number}" for number in range(4)):
            made = set(pool.map(lambda _, name=name: _experiment(client, name, None), range(6)))
            assert made == {client.get_experiment_by_name(name).experiment_id}
    for run in runs:
        inputs = client.get_run(run).inputs.dataset_inputs
        assert sorted(given.dataset.digest for given in inputs) == [ref.digest for ref in refs]


def test_links_of_an_experiment_filter_its_runs_as_mlflow_does(working_folder):
    client, name = MlflowClient(), "20261121-133018-6a18"
    experiment = client.create_experiment("links")
    runs = {}
    for level, run in product(("sweep", "result", "model"), (name, "older")):
        runs[level, run] = client.create_run(experiment, tags={LEVEL: level, RUN: run}).info.run_id

    def found(address: str) -> set[str]:
        query = dict(parse_qsl(urlsplit(address).fragment.partition("?")[2]))
        order = [f"{query['orderByKey']} ASC"] if "orderByKey" in query else []
        return {run.info.run_id for run in client.search_runs([experiment], query["searchFilter"], order_by=order)}

    assert found(runs_path(experiment, run=name)) == {runs["result", name]}
    assert found(runs_path(experiment)) == {runs["result", name], runs["result", "older"]}
    assert found(runs_path(experiment, "model", charts=False)) == {runs["model", name], runs["model", "older"]}
    assert quote(f"tags.`{RUN}` = '{name}'") in experiment_note(experiment, name)
