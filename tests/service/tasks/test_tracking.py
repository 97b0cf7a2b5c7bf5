"""Runs in MLflow: what a comparison that ends early leaves of itself."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag

from dev.tools.waiting import within
from learnkernels.conf.schema import CompareConfig, TrackingConfig
from learnkernels.tasks import signals
from learnkernels.tasks.data.dataset import store_dataset
from learnkernels.tasks.data.ingest import load_source
from learnkernels.tasks.processes.owner import Owner
from learnkernels.tasks.reporting.mlflow_datasets import dataset_inputs
from learnkernels.tasks.reporting.mlflow_pages import (
    LEVEL,
    RUN,
    VIEW_TAG,
    comparison_view,
    experiment_note,
    models_view,
    runs_path,
)
from learnkernels.tasks.reporting.tracking import (
    OWNER,
    TrackedRun,
    _find_or_create_experiment,
    log_run,
    tracked_run,
)


def test_results_that_are_being_written_end_with_their_comparison(
    working_folder, prefect_server: None
):
    client, tags = MlflowClient(), {OWNER: str(Owner.this())}

    def stopped(error: type[BaseException]) -> None:
        with tracked_run(
            error.__name__, TrackingConfig(), "comparison", "a comparison", "id"
        ) as comparison:
            client.create_run(
                comparison.experiment_id, run_name="result", tags={**tags, RUN: "id"}
            )
            client.create_run(
                comparison.experiment_id,
                run_name="of another",
                tags={**tags, RUN: "another"},
            )
            raise error

    for error, status in {
        signals.Stopped: "KILLED",
        KeyboardInterrupt: "KILLED",
        OSError: "FAILED",
    }.items():
        with pytest.raises(error):
            stopped(error)
        found = client.search_runs(
            [client.get_experiment_by_name(error.__name__).experiment_id]
        )
        runs = {run.info.run_name: run.info.status for run in found}
        assert runs == {
            "a comparison": status,
            "result": status,
            "of another": "RUNNING",
        }


def test_artifacts_of_an_experiment_stay_in_their_folder(
    working_folder, prefect_server: None
):
    client = MlflowClient()
    for number, name in enumerate(
        ("../../outside", "/outside", "..", "a/../../../outside")
    ):
        with tracked_run(
            "a", TrackingConfig(experiment=name), "model", "a run", "id"
        ) as run:
            client.log_text(run.run_id, "text", f"artifact-{number}.txt")
        (written,) = working_folder.rglob(f"artifact-{number}.txt")
        assert written.is_relative_to(working_folder / "mlartifacts")
        assert client.get_experiment_by_name(name) is not None


def test_a_run_that_was_being_made_is_ended(
    working_folder, prefect_server, monkeypatch
):
    made = MlflowClient.create_run

    def interrupted(*args: Any, **options: Any) -> None:
        made(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(MlflowClient, "create_run", interrupted)
    with (
        pytest.raises(KeyboardInterrupt),
        tracked_run("made", TrackingConfig(), "comparison", "a comparison", "id"),
    ):
        pass
    client = MlflowClient()
    experiment = client.get_experiment_by_name("made")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "KILLED"


def test_runs_that_add_one_data_set_or_make_one_experiment_at_once_all_have_it(
    working_folder,
):
    client = MlflowClient()
    experiment = client.create_experiment("at once")
    runs = [client.create_run(experiment).info.run_id for _ in range(6)]
    inputs = [
        DatasetInput(
            Dataset("iris", f"{digest:08d}", "local", "{}"),
            [InputTag("mlflow.data.context", "training")],
        )
        for digest in range(8)
    ]
    with ThreadPoolExecutor(len(runs)) as pool:
        for dataset in inputs:
            list(
                pool.map(
                    lambda run, given=dataset: log_run(
                        TrackedRun(experiment, run, ""), inputs=[given]
                    ),
                    runs,
                )
            )
        for name in (f"at-once-{number}" for number in range(4)):
            made = set(
                pool.map(
                    lambda _, name=name: _find_or_create_experiment(client, name),
                    range(6),
                )
            )
            assert made == {client.get_experiment_by_name(name).experiment_id}
    for run in runs:
        logged = client.get_run(run).inputs.dataset_inputs
        assert sorted(given.dataset.digest for given in logged) == [
            given.dataset.digest for given in inputs
        ]


def test_links_and_views_of_an_experiment_filter_its_runs_as_mlflow_does(
    working_folder,
):
    client, name = MlflowClient(), "20261121-133018-6a18"
    experiment = client.create_experiment("links")
    runs = {}
    for level, run in product(("comparison", "result", "model"), (name, "older")):
        runs[level, run] = client.create_run(
            experiment, tags={LEVEL: level, RUN: run}
        ).info.run_id

    def found(query: Mapping[str, Any]) -> set[str]:
        order = [f"{query['orderByKey']} ASC"]
        return {
            run.info.run_id
            for run in client.search_runs(
                [experiment], query["searchFilter"], order_by=order
            )
        }

    all_results = dict(
        parse_qsl(urlsplit(runs_path(experiment)).fragment.partition("?")[2])
    )
    assert found(all_results) == {runs["result", name], runs["result", "older"]}
    assert found(comparison_view(name, ["wine"]).state) == {runs["result", name]}
    assert found(models_view().state) == {runs["model", name], runs["model", "older"]}
    assert f"viewStateShareKey={comparison_view(name, []).key}" in experiment_note(
        experiment, name
    )


def test_the_views_that_links_lead_to_exist_while_a_comparison_runs(
    working_folder, prefect_server: None
):
    client = MlflowClient()
    with tracked_run(
        "views", TrackingConfig(), "comparison", "a comparison", "one", ["wine"]
    ) as run:
        tags = client.get_experiment(run.experiment_id).tags
        for path in (
            runs_path(run.experiment_id, run="one"),
            runs_path(run.experiment_id, "model"),
        ):
            query = dict(parse_qsl(urlsplit(path).fragment.partition("?")[2]))
            assert VIEW_TAG + query["viewStateShareKey"] in tags


def test_system_metrics_are_logged_if_the_configuration_asks_for_them(
    working_folder, prefect_server: None
):
    client = MlflowClient()
    with tracked_run("load", TrackingConfig(), "model", "a run", "no") as run:
        pass
    assert not client.get_run(run.run_id).data.metrics
    with tracked_run(
        "load", TrackingConfig(system_metrics=True), "model", "a run", "yes"
    ) as run:
        assert within(
            lambda: (
                "system/cpu_utilization_percentage"
                in client.get_run(run.run_id).data.metrics
            ),
            90,
        )


def test_data_sets_are_logged_with_their_columns_and_a_source_that_mlflow_reads(
    working_folder,
):
    rows = [
        f"{30 + i % 9},{'ab'[i % 2]}x,200{i % 9}-01-02,{i % 7}.5" for i in range(60)
    ]
    Path("people.csv").write_text(
        "\n".join(["age,town,born,y", *rows]), encoding="utf-8"
    )
    config = CompareConfig.model_validate(
        {
            "name": "sources",
            "datasets": [
                {
                    "source": "file",
                    "path": "people.csv",
                    "target": "y",
                    "name": "people",
                },
                {"source": "sklearn", "name": "iris"},
            ],
            "learners": ["alignf"],
            "kernels": [{"family": "gaussian", "gammas": [1]}],
        }
    )
    sources = ["people.csv", "sklearn:iris"]
    refs = [
        store_dataset(load_source(dataset), dataset.label, source, print)
        for dataset, source in zip(config.datasets, sources, strict=True)
    ]
    people, iris = (
        given.dataset for given in dataset_inputs(refs, "validation", config)
    )
    assert mlflow.data.get_source(people).load() == str(Path("people.csv").resolve())
    assert mlflow.data.get_source(iris).to_dict()["tags"] == {
        "mlflow.source.name": "sklearn:iris"
    }
    schema = {
        column["name"]: column["type"]
        for column in json.loads(people.schema)["mlflow_colspec"]
    }
    assert schema == {
        "age": "double",
        "town": "string",
        "born": "datetime",
        "y": "double",
    }
    assert json.loads(iris.schema)["mlflow_colspec"][-1]["type"] == "string"
