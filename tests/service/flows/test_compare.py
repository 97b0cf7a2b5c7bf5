"""The whole comparison: real Prefect, real Dask, real MLflow, real data."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event, Semaphore
from time import sleep
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run
from prefect import flow, tags
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Running
from sklearn.datasets import load_wine

from learnkernels.conf import errors, schema
from learnkernels.flows.compare import compare
from learnkernels.tasks import store
from learnkernels.tasks.naming import THREADS, from_store, side_by_side, step
from learnkernels.tasks.processes.owner import Owner
from learnkernels.tasks.reporting import places
from learnkernels.tasks.reporting.mlflow_pages import LEVEL
from learnkernels.tasks.reporting.tracking import OWNER
from learnkernels.tasks.signals import stopping_steps
from tests.unit.tasks.test_comparison import DIABETES, WINE, small

pytestmark = pytest.mark.usefixtures("prefect_server")
alone = pytest.mark.usefixtures("working_folder")

SEARCH = {"gammas": [0.1], "grid": [1]}
NYSTROM = {"name": "nystroem", "n_components": 50}
TWO = {"learners": ["unif", "alignf"], "protocol": {"grid": [0.125, 1, 8]}}
WAVES = [{"source": "synthetic", "name": "three_sines", "params": {"rows": 1000}}]
FINE = [{"family": "gaussian", "gammas": {"from": -2, "to": 4}}]


def flow_runs(state: str) -> list[Any]:
    with get_client(sync_client=True) as client:
        # 200 of them
        newest = client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC)
        return [run for run in newest if run.state.type.value == state]


def results_of(run: Any) -> list[Run]:
    """The MLflow runs of the results of a comparison."""
    client = MlflowClient()
    comparison = client.get_run(run["mlflow_run"]).info
    of_comparison = f"tags.`{LEVEL}` = 'result' and tags.`mlflow.parentRunId` = '{comparison.run_id}'"
    return list(client.search_runs([comparison.experiment_id], of_comparison))


def states_of_steps(mlflow_run: str) -> dict[str, str]:
    """The state that Prefect shows of each step of a comparison."""
    tags = MlflowClient().get_run(mlflow_run).data.tags
    of = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(tags["prefect.flow_run_id"])]))
    with get_client(sync_client=True) as prefect:
        return {
            run.name: run.state.name
            for run in prefect.read_task_runs(flow_run_filter=of)
        }


def inputs_of_steps(mlflow_run: str) -> dict[str, set[str]]:
    """The names of the steps that each step of a comparison waits for, as Prefect's graph shows them."""
    tags = MlflowClient().get_run(mlflow_run).data.tags
    of = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(tags["prefect.flow_run_id"])]))
    with get_client(sync_client=True) as prefect:
        runs = prefect.read_task_runs(flow_run_filter=of)
    names = {run.id: run.name for run in runs}
    waits = {}
    for run in runs:
        sources = [source for inputs in run.task_inputs.values() for source in inputs]
        waits[run.name] = {
            names[source.id] for source in sources if source.input_type == "task_run"
        }
    return waits


def compared(**keys: Any) -> tuple[pd.DataFrame, Path, dict[str, Any]]:
    """The fold table of a comparison, its folder, and the MLflow run of each learner."""
    run = compare(config=small(**keys))
    folder = Path(run["results"])
    runs = {tracked.data.params["learner"]: tracked for tracked in results_of(run)}
    return pd.read_parquet(folder / "folds.parquet"), folder, runs


@pytest.fixture(scope="module")
def finished(prefect_server: None, module_folder: Path) -> dict[str, str]:
    """One finished comparison; tests that use it share its working folder, store of results and MLflow database."""
    with tags("learnkernels", "small"):
        return dict(compare(config=small()))


def test_links_of_a_report_lead_to_the_files_beside_it_and_name_the_command_that_finds_its_pages(
    finished: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    folder = Path(finished["results"])
    report = (folder / "report.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)]+)\)", report)
    assert {"summary.parquet", "config.yaml", "alignment_vs_error.png"} <= set(linked)
    assert [name for name in linked if not (folder / name).is_file()] == []
    assert f"`learnkernels open {folder}`" in report
    # a server, whose pages stay where they are
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.example.org")
    page = "http://mlflow.example.org/#/experiments/1"
    assert (
        places.links_of_report(folder, folder, {"MLflow chart": page})["MLflow chart"]
        == page
    )


def test_the_pages_of_a_run_are_found_by_its_folder_its_report_or_its_name(
    finished: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    folder = Path(finished["results"])
    for place in (str(folder), f"{folder}/", str(folder / "report.md"), folder.name):
        with pytest.raises(
            errors.InputError,
            match=r"nothing shows .* now; start 'learnkernels ui' in another",
        ):
            places.pages_of_run(place)
        # As if one was there
        monkeypatch.setattr(places, "running_server", lambda name: "http://127.0.0.1:1")
        pages = places.pages_of_run(place)
        monkeypatch.undo()
        assert list(pages) == ["MLflow run", "MLflow chart", "Prefect"]
        assert f"/runs/{finished['mlflow_run']}" in pages["MLflow run"]
        assert pages["MLflow chart"].endswith(
            finished["mlflow_chart"].partition("#")[2]
        )
    for unknown in ("small", "results", "it's", "", "results/small"):
        with pytest.raises(
            errors.InputError,
            match=r"there is no run .* in sqlite:.*; give a folder below results/",
        ):
            places.pages_of_run(unknown)


def test_a_comparison_leaves_the_evidence_in_all_three_places(finished: dict[str, str]):
    folder = Path(finished["results"])
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "folds.parquet", "summary.parquet", "report.md", "config.yaml", "environment.json", "alignment_vs_error.png",
        "errors.png", "pairwise.parquet", "pairwise.tex", "ranks.png", "relevance.png", "results.tex", "rows",
        "predictions",
    }  # fmt: skip
    folds = pd.read_parquet(folder / "folds.parquet")
    assert (len(folds), set(folds["predictor"])) == (2 * 4 * 5, {"svm", "krr"})
    assert (
        schema.CompareConfig.model_validate(
            yaml.safe_load((folder / "config.yaml").read_text())
        )
        == small()
    )
    assert json.loads((folder / "environment.json").read_text())["learnkernels"]

    client = MlflowClient()
    comparison = client.get_run(finished["mlflow_run"])
    assert comparison.info.status == "FINISHED"
    assert {
        item.path for item in client.list_artifacts(comparison.info.run_id)
    } == names
    results = results_of(finished)
    assert len(results) == 8
    summary = pd.read_parquet(folder / "summary.parquet").set_index(
        ["dataset", "learner"]
    )
    for run in results:
        row = summary.loc[(run.data.params["dataset"], run.data.params["learner"])]
        assert run.data.metrics["test_error"] == pytest.approx(row.error_mean)
        assert run.data.metrics["alignment"] == pytest.approx(row.alignment_mean)
        assert run.data.metrics["percent_above_best"] == pytest.approx(
            row.percent_above_best
        )
        note = run.data.tags["mlflow.note.content"]
        assert f"learnkernels train {folder}/config.yaml --dataset" in note
        assert f"--learner {row.name[1]} --model small" in note
        assert [
            point.step
            for point in client.get_metric_history(run.info.run_id, "fold/test_error")
        ] == list(range(5))
        assert run.data.tags["mlflow.parentRunId"] == comparison.info.run_id
        assert (
            run.inputs.dataset_inputs[0].dataset.digest
            == run.data.tags["dataset_digest"]
        )
        drawn = folder / "predictions" / row.name[0] / row.name[1]
        logged = {
            item.path for item in client.list_artifacts(run.info.run_id, "predictions")
        }
        assert logged == {f"predictions/{path.name}" for path in drawn.glob("*")}
    best = summary[summary["best"]].groupby(level=0, sort=False).head(1)
    assert {
        path.relative_to(folder / "predictions").parts
        for path in folder.glob("predictions/*/*")
    } == {*best.index}
    curves = {"confusion_matrix.png", "precision_recall_curve.png", "roc_curve.png"}
    assert {path.name for path in folder.glob("predictions/wine/*/*")} == curves
    assert {path.name for path in folder.glob("predictions/diabetes/*/*")} == {
        "predicted_vs_measured.png", "residuals.png",
    }  # fmt: skip
    report = (folder / "report.md").read_text()
    images = [unquote(address) for address in re.findall(r"!\[.*\]\((.*)\)", report)]
    assert images[:2] == ["errors.png", "alignment_vs_error.png"]
    assert {folder / address for address in images[2:]} == {
        *folder.glob("predictions/*/*/*.png")
    }

    with get_client(sync_client=True) as prefect:
        flow_run = prefect.read_flow_run(
            UUID(comparison.data.tags["prefect.flow_run_id"])
        )
        assert flow_run.name.startswith("small-")
        of = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
        task_runs = prefect.read_task_runs(flow_run_filter=of)
        task_names = {run.name for run in task_runs}
        artifacts = {
            artifact.key: artifact.data
            for artifact in prefect.read_artifacts(flow_run_filter=of)
        }
    # Prefect asks the server for a slot per tag of a task run, and waits if SQLite is locked.
    assert {*flow_run.tags} >= {"learnkernels", "small"}
    assert not any(run.tags for run in task_runs)
    tasks = {
        "ingest wine",
        "statistics wine repeat 0",
        "evaluate alignf on diabetes",
        "track unif on wine",
    }
    assert tasks <= task_names
    assert {
        "comparison",
        "comparison-report",
        "comparison-progress",
        "mlflow-chart",
    } <= artifacts.keys()
    assert artifacts["comparison-progress"] == 100.0


def test_a_second_run_takes_everything_from_the_store(finished: dict[str, str]):
    again = dict(compare(config=small()))
    one, two = (
        pd.read_parquet(Path(run["results"]) / "folds.parquet")
        for run in (finished, again)
    )
    # The measured seconds too: nothing was computed again
    pd.testing.assert_frame_equal(one, two)
    assert again["results"] != finished["results"]
    expensive = ("statistics", "evaluate")
    for run, state in ((finished, "Completed"), (again, "Cached")):
        steps = {
            name: found
            for name, found in states_of_steps(run["mlflow_run"]).items()
            if name.startswith(expensive)
        }
        assert (len(steps), set(steps.values())) == (2 + 8, {state})


def test_a_step_gives_its_value_however_it_is_run(prefect_server: None):
    @step("half of {number}")
    def halve(number: int) -> int:
        return from_store(number // 2)

    @flow
    def halving() -> list[Any]:
        states = [halve(4, return_state=True), halve.submit(4, return_state=True)]
        assert [state.name for state in states] == ["Cached"] * 2
        return [
            halve(4),
            halve.submit(4).result(),
            halve.fn(4),
            *(state.result() for state in states),
        ]

    assert halving() == [2] * 5


@pytest.mark.parametrize("at_once", [1, 3])
def test_as_many_steps_run_at_once_as_are_wanted(prefect_server: None, at_once: int):
    together, running, most = Barrier(at_once), Semaphore(at_once), 6

    @step("number {number}")
    def take(number: int) -> int:
        assert running.acquire(blocking=False)
        together.wait(60)  # for as many others
        running.release()
        return number

    @flow(task_runner=THREADS)
    def take_all() -> list[tuple[int, int]]:
        return list(
            side_by_side(
                ((number, take.submit(number)) for number in range(most)), at_once
            )
        )

    found = take_all()
    assert sorted(found) == [(number, number) for number in range(most)]
    assert at_once > 1 or found == sorted(found)


def test_a_step_that_fails_ends_those_beside_it_and_begins_no_other(
    prefect_server: None,
):
    begun, ended = Event(), Event()

    @step("number {number}")
    def work(number: int) -> None:
        if number == 0:
            assert begun.wait(60)
            raise ValueError("no such thing")
        assert number == 1, "nothing begins after a failure"
        begun.set()
        try:
            while True:
                sleep(0.01)
        finally:
            ended.set()

    @flow(task_runner=THREADS)
    def work_on_all() -> None:
        with stopping_steps():
            list(
                side_by_side(((number, work.submit(number)) for number in range(9)), 2)
            )

    with pytest.raises(ValueError, match="no such thing"):
        work_on_all()
    assert ended.is_set()


@pytest.mark.slow(20)
def test_steps_at_once_find_the_same_numbers_and_prefect_shows_what_waits_for_what(
    finished: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "another store"))
    run = compare(config=small(parallel=3))
    one, three = (
        pd.read_parquet(Path(folder["results"]) / "folds.parquet")
        for folder in (finished, run)
    )
    timings = ["seconds_weights", "seconds_fit", "seconds_pass", "n_parallel"]
    pd.testing.assert_frame_equal(
        one.drop(columns=timings), three.drop(columns=timings)
    )
    assert (set(one["n_parallel"]), set(three["n_parallel"])) == ({1}, {3})
    said = "‡ measured while up to 3 steps ran at once, and not comparable with other seconds."
    reports = [
        Path(folder["results"], "report.md").read_text() for folder in (finished, run)
    ]
    assert [said in " ".join(report.split()) for report in reports] == [False, True]
    assert len(results_of(run)) == 8

    learners = ("unif", "single", "align", "alignf")
    for folder in (finished, run):
        inputs = inputs_of_steps(folder["mlflow_run"])
        wanted: dict[str, set[str]] = {}
        for dataset in ("wine", "diabetes"):
            ingested, measured = f"ingest {dataset}", f"statistics {dataset} repeat 0"
            wanted |= {ingested: set(), measured: {ingested}}
            for learner in learners:
                evaluated = f"evaluate {learner} on {dataset}"
                wanted |= {
                    evaluated: {ingested, measured},
                    f"track {learner} on {dataset}": {ingested, evaluated},
                }
        (written,) = [name for name in inputs if name.startswith("write results")]
        (tracked,) = [name for name in inputs if name.startswith("track comparison")]
        wanted[written] = {
            f"evaluate {learner} on {dataset}"
            for learner in learners
            for dataset in ("wine", "diabetes")
        }
        wanted[tracked] = {written, "ingest wine", "ingest diabetes"}
        assert inputs == wanted


@alone
def test_damaged_results_are_computed_again_and_come_out_the_same(
    caplog: pytest.LogCaptureFixture,
):
    config = small(datasets=WINE, learners=["unif", "alignf"], baseline=SEARCH)
    before = pd.read_parquet(Path(compare(config=config)["results"]) / "folds.parquet")
    files = [
        file
        for file in sorted(Path("state/store").rglob("*.*"))
        if file.name != "entry.json"
    ]
    for number, file in enumerate(files):
        whole = file.read_bytes()
        at = number * 7919 % len(whole)
        file.write_bytes(
            whole[:at] + bytes([whole[at] ^ 1 << number % 8]) + whole[at + 1 :]
        )
    after = pd.read_parquet(Path(compare(config=config)["results"]) / "folds.parquet")
    timings = ["seconds_weights", "seconds_fit", "seconds_pass"]
    pd.testing.assert_frame_equal(
        after.drop(columns=timings), before.drop(columns=timings)
    )
    aside = [folder.parent.name for folder in Path("state/store").glob("*/damaged~*")]
    assert sorted(aside) == ["datasets", *["folds"] * 5, "statistics"]
    told = [
        record.getMessage()
        for record in caplog.records
        if "is damaged" in record.getMessage()
    ]
    assert len(told) == len(aside)
    assert all(sentence.endswith("is made again.") for sentence in told)


@pytest.mark.slow(15)
@alone
def test_results_in_the_store_say_what_they_were_computed_with(
    monkeypatch: pytest.MonkeyPatch,
):
    config, now = (
        small(datasets=WINE, learners=["unif"], protocol={"folds": 3, "grid": [1]}),
        store.versions(),
    )
    old = {**now, "numpy": "1.0", "numba": "0.1"}
    monkeypatch.setattr(store, "versions", lambda: old)
    compare(config=config)
    monkeypatch.setattr(store, "versions", lambda: now)
    again = Path(compare(config=config)["results"])
    shutil.rmtree("state/store/folds")
    upon_old_statistics = Path(compare(config=config)["results"])
    for folder in (again, upon_old_statistics):
        environment = json.loads((folder / "environment.json").read_text())
        assert (environment["numpy"], environment["earlier"]) == (now["numpy"], [old])
        sentence = f"computed with numpy 1.0, numba 0.1; this run uses numpy {now['numpy']}, numba {now['numba']}.\n"
        assert sentence in (folder / "report.md").read_text()
    shutil.rmtree("state/store")
    anew = Path(compare(config=config)["results"])
    assert "earlier" not in json.loads((anew / "environment.json").read_text())
    assert "Stored results" not in (anew / "report.md").read_text()


def test_mlflow_has_the_sizes_of_a_split_its_metric_and_groups_and_what_tunes(
    module_folder: Path,
):
    frame = load_wine(as_frame=True).frame
    frame.assign(patient=frame.index // 2).to_csv("patients.csv", index=False)
    patients = [
        {
            "source": "file",
            "path": "patients.csv",
            "groups": "patient",
            "task": "classification",
        }
    ]
    aligned = {
        "name": "lq",
        "label": "aligned",
        "tune": {"q": [1.25, 4]},
        "tune_by": "alignment",
    }
    split = {
        "split": {"train": 40, "validation": 30, "test": 50},
        "repeats": 2,
        "grid": [1],
    }
    keys = {
        "learners": ["DU", aligned],
        "protocol": split | {"metric": "balanced_accuracy"},
    }
    folds, _, runs = compared(datasets=patients, **keys)
    for learner, tracked in runs.items():
        params = tracked.data.params
        sizes = {
            key: value for key, value in params.items() if key.startswith("split.")
        }
        assert sizes == {
            "split.train": "40",
            "split.validation": "30",
            "split.test": "50",
        }
        assert (params["metric"], params["groups"]) == (
            "1 - balanced_accuracy",
            "patient",
        )
        assert "folds" not in params
        history = MlflowClient().get_metric_history(
            tracked.info.run_id, "fold/test_error"
        )
        assert [of.step for of in history] == [0, 1]
        assert [of.value for of in history] == pytest.approx(
            folds[folds["learner"] == learner]["error"].tolist()
        )
    tuned_by = {
        learner: tracked.data.params.get("tune_by") for learner, tracked in runs.items()
    }
    assert tuned_by == {"DU": None, "aligned": "alignment"}


@pytest.mark.slow(15)
@alone
def test_a_worker_and_this_process_agree_and_the_grid_search_stands_beside(
    monkeypatch: pytest.MonkeyPatch,
):
    """Small trials as whole tasks, and passes over the rows of larger ones: in a worker process, and here."""
    # Of wine 59 train
    monkeypatch.setattr("learnkernels.tasks.measure.run_learner.PARALLEL_ROWS", 100)
    both = [
        *WINE,
        {
            "source": "sklearn",
            "name": "breast_cancer",
            "scale": "standard",
            "subsample": 330,
        },
    ]
    keys = {
        "datasets": both,
        "learners": ["alignf", "l1-svm"],
        "protocol": {"grid": [1, 8], "folds": 3},
    }
    keys |= {"predictor": NYSTROM, "baseline": SEARCH}
    tables = []
    for workers in (0, 1):
        run = compare(config=small(**keys, dask={"workers": workers}))
        tables.append(pd.read_parquet(Path(run["results"]) / "folds.parquet"))
        shutil.rmtree("state/store")
    here, there = tables
    assert list(here["learner"].unique()) == [
        "alignf",
        "l1-svm",
        "best constant",
        "linear model",
        "GridSearchCV",
    ]
    # Sums over rows are added in another order there. Weights are certified to 1e-6.
    np.testing.assert_allclose(there["error"], here["error"], rtol=1e-6)
    np.testing.assert_allclose(
        np.concatenate(here["weights"]), np.concatenate(there["weights"]), atol=1e-6
    )
    exact = [table[table["predictor"] != "nystroem"]["error"] for table in tables]
    assert list(exact[0]) == list(exact[1])
    summary = pd.read_parquet(Path(run["results"]) / "summary.parquet")
    assert summary["p_better_than_grid_search"].notna().sum() == 10
    runs = [
        of.data for of in results_of(run) if of.data.params["learner"] == "GridSearchCV"
    ]
    expected = (
        summary.query("learner == 'GridSearchCV'")
        .set_index("dataset")["error_mean"]
        .to_dict()
    )
    assert {
        of.params["dataset"]: of.metrics["test_error"] for of in runs
    } == pytest.approx(expected)


def test_conjugate_gradients_give_the_errors_of_the_matrix_and_say_how_they_ended(
    module_folder: Path,
):
    exact, _, runs = compared(datasets=DIABETES, **TWO)
    assert exact["notes"].isna().all()
    assert exact["predictor_reason"].str.startswith("krr, exact").all()
    assert (
        runs["alignf"].data.tags["predictor_reason"]
        == exact["predictor_reason"].iloc[0]
    )
    folds, folder, runs = compared(
        datasets=DIABETES, **TWO, predictor={"name": "krr-cg", "tol": 1e-9}
    )
    # A residual of 1e-9 leaves errors as they are to about as many digits.
    np.testing.assert_allclose(folds["error"], exact["error"], rtol=1e-6)
    np.testing.assert_array_equal(folds["alignment"], exact["alignment"])
    assert folds["predictor_reason"].isna().all()
    assert (
        "diabetes, alignf: krr-cg. Conjugate gradients: "
        in (folder / "report.md").read_text()
    )
    params = runs["alignf"].data.params
    assert (params["predictor"], params["predictor.tol"]) == ("krr-cg", "1e-09")
    assert "predictor_reason" not in runs["alignf"].data.tags


def test_the_default_estimator_is_tracked_as_such(module_folder: Path):
    alone = {"estimator": True, "without": ["constant", "linear", "grid-search"]}
    folds, folder, runs = compared(datasets=WINE, learners=["unif"], baseline=alone)
    assert list(folds["learner"].unique()) == ["unif", "default estimator"]
    params = runs["default estimator"].data.params
    assert (params["algorithm"], params["predictor"], params["param.settings"]) == (
        "estimator",
        "auto",
        "default",
    )
    assert "use the learned kernel? " in (folder / "report.md").read_text()
    assert "the default estimator" in (folder / "report.md").read_text()


@pytest.mark.slow(15)
def test_a_sample_is_told_in_all_places(module_folder: Path):
    waves = {"datasets": WAVES, "kernels": FINE, "predictor": "krr", **TWO}
    exact, _, exact_runs = compared(**waves)
    folds, folder, runs = compared(
        **waves | {"learners": ["unif", "alignf", "l2-krr"]}, statistics={"sample": 400}
    )
    two = folds[folds["learner"] != "l2-krr"]
    assert (folds["n_train"] == 600).all()
    assert folds["n_sampled"].between(235, 245).all()
    # Alignments are about 0.1, with error bars of some thousandths for 240 rows.
    np.testing.assert_allclose(two["alignment"], exact["alignment"], rtol=0, atol=0.01)
    assert (two["alignment"].to_numpy() != exact["alignment"].to_numpy()).all()
    # Predictors learn from all training rows, whatever weights learn from.
    assert folds.groupby("learner")["error"].mean().max() < 1.2 * exact["error"].mean()

    report = (folder / "report.md").read_text()
    assert "are estimated on a sample of the training rows" in report
    assert "240 of 600 rows" in report
    data = runs["alignf"].data
    assert data.params["sampled_rows"] == "240"
    assert "weights from 240 of 600 rows" in data.tags["mlflow.note.content"]
    assert "sampled_rows" not in exact_runs["alignf"].data.params


def test_a_failed_run_is_shown_as_failed_and_leaves_earlier_results(
    finished: dict[str, str],
):
    before = {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")}
    failed_before = len(flow_runs("FAILED"))
    pd.DataFrame({"a": [1.0, np.nan] * 10, "target": [0, 1] * 10}).to_csv(
        "bad.csv", index=False
    )
    with pytest.raises(
        errors.InputError,
        match=r"data set bad: missing values in column a \(10\) of 20",
    ):
        compare(
            config=small(
                datasets=[{"source": "file", "path": "bad.csv", "missing": "refuse"}]
            )
        )
    assert {
        path: path.stat().st_mtime_ns for path in Path("results").rglob("*")
    } == before
    assert len(flow_runs("FAILED")) == failed_before + 1
    experiment = MlflowClient().get_experiment_by_name("small").experiment_id
    (failed,) = MlflowClient().search_runs([experiment], "attributes.status = 'FAILED'")
    assert "column a (10) of 20" in failed.data.tags["mlflow.note.content"]


def test_runs_that_a_kill_left_open_are_closed(finished: dict[str, str]):
    client = MlflowClient()
    experiment = client.get_run(finished["mlflow_run"]).info.experiment_id
    with get_client(sync_client=True) as prefect:
        orphan = prefect.create_flow_run(
            compare, parameters={"config": {}}, state=Running()
        )
    gone = {
        LEVEL: "comparison",
        OWNER: str(replace(Owner.this(), pid=2**22 + 1)),
        "prefect.flow_run_id": str(orphan.id),
    }
    alive = {
        LEVEL: "comparison",
        OWNER: str(replace(Owner.this(), host="elsewhere", started=0)),
    }
    of_it = gone | {LEVEL: "result"}
    dead, part, other = (
        client.create_run(experiment, tags=tags).info.run_id
        for tags in (gone, of_it, alive)
    )
    compare(config=small(datasets=WINE, learners=["unif"]))
    assert [client.get_run(run).info.status for run in (dead, part)] == ["KILLED"] * 2
    # Another machine's: nobody here can tell
    assert client.get_run(other).info.status == "RUNNING"
    with get_client(sync_client=True) as prefect:
        assert prefect.read_flow_run(orphan.id).state.type.value == "CRASHED"
