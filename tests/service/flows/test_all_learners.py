"""Every learner of the table in one comparison of three classes, read from each place where it leaves evidence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from learnkernels.conf import loading, schema
from learnkernels.flows.compare import compare
from learnkernels.kernels.learners import LEARNERS, JointLearner
from learnkernels.tasks.reporting.mlflow_pages import LEVEL, metric_name
from learnkernels.tasks.reporting.tables import SHOWN_FEATURES

GAMMAS = [2.0**-6, 2.0**-4, 2.0**-2]
GRID = [0.25, 1.0, 4.0]
FOLDS = 3
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "lq": [{"name": "lq", "tune": {"q": [1.25, 2, float("inf")]}}],
    "lp-svm": [
        {"name": "lp-svm", "label": f"lp-svm-{norm}", "params": {"norm": norm}}
        for norm in (1, 2)
    ],
    "nkrr": [{"name": "nkrr", "params": {"starts": 1}}],
    "rfm": [
        {"name": "rfm", "params": {"rounds": 1, "weights": "alignf"}}
    ],  # of rounds the default is no number
}
"""Of the learners that are not run by their bare name."""

CONFIG = schema.CompareConfig.model_validate(
    {
        "name": "all",
        "datasets": [
            {"source": "sklearn", "name": "wine", "scale": "standard", "subsample": 120}
        ],
        "kernels": [{"family": "gaussian", "gammas": GAMMAS}, {"family": "linear"}],
        "learners": [
            entry for name in LEARNERS for entry in SETTINGS.get(name, [name])
        ],
        "protocol": {"folds": FOLDS, "grid": GRID},
        "dask": {"workers": 0},
    }
)
TITLES = [learner.title for learner in CONFIG.learners]
ITERATIVE = (
    {"alignf", "alignf-linear", "alignf-uncentered", "lp-svm-1", "lp-svm-2"}
    | {
        name
        for name, learner in LEARNERS.items()
        if issubclass(learner, JointLearner) and name != "lp-svm"
    }
    | {"cr"}
)
"""Titles of the learners that solve a problem and so have a certificate."""


@pytest.fixture(scope="module")
def finished(prefect_server: None, module_folder: Path) -> dict[str, str]:
    return compare(config=CONFIG)


@pytest.fixture(scope="module")
def folder(finished: dict[str, str]) -> Path:
    return Path(finished["results"]).absolute()


@pytest.fixture(scope="module")
def folds(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "folds.parquet")


@pytest.fixture(scope="module")
def report(folder: Path) -> str:
    return (folder / "report.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def runs(finished: dict[str, str]) -> dict[str, Run]:
    client = MlflowClient()
    experiment = client.get_run(finished["mlflow_run"]).info.experiment_id
    return {
        run.data.params["learner"]: run
        for run in client.search_runs([experiment], f"tags.`{LEVEL}` = 'result'")
    }


@pytest.mark.slow(15)
def test_every_learner_has_a_row_a_fold_with_its_own_name_algorithm_and_predictor(
    folds: pd.DataFrame,
):
    assert {learner.name for learner in CONFIG.learners} == set(LEARNERS)
    assert list(folds["learner"].unique()) == TITLES
    assert folds.groupby("learner")["fold"].apply(list).map(sorted).map(
        tuple
    ).unique().tolist() == [(0, 1, 2)]
    algorithms = folds.groupby("learner")["algorithm"].first().to_dict()
    assert algorithms == {learner.title: learner.name for learner in CONFIG.learners}
    assert (
        folds["error"] < 0.5 * folds["trivial_error"]
    ).all()  # three well separated classes: all of them learn
    assert set(folds["regularization"]) <= set(GRID)
    predictors = folds.groupby("learner")["predictor"].first()
    for learner in CONFIG.learners:
        of = LEARNERS[learner.name]
        assert predictors[learner.title] == (of.predictor or of.suited or "svm")
    assert [predictors[name] for name in ("l2-krr", "l1-svm", "unif", "rfm")] == [
        "krr",
        "svm",
        "svm",
        "krr",
    ]


def test_mlflow_has_the_relevance_of_each_column_for_every_learner(
    folds: pd.DataFrame, runs: dict[str, Run]
):
    measured = folds.dropna(subset=["relevance"]).set_index("learner")
    assert list(measured.index) == TITLES  # once per learner
    assert set(measured["fold"]) == {0}
    for learner, trial in measured.iterrows():
        names = [f"relevance/{metric_name(name)}" for name in trial["features"]]
        largest = pd.Series(trial["relevance"], names).nlargest(SHOWN_FEATURES)
        metrics = runs[str(learner)].data.metrics
        logged = {
            key: value for key, value in metrics.items() if key.startswith("relevance/")
        }
        # Logged with seven digits
        assert logged == pytest.approx(largest.to_dict(), rel=1e-6, abs=1e-9)


def test_what_is_solved_has_a_certificate_below_its_tolerance(folds: pd.DataFrame):
    solved = folds[folds["certificate"].notna()]
    assert set(solved["learner"]) == ITERATIVE
    assert (solved["certificate"] <= solved["certificate_tolerance"]).all()
    assert (
        solved["certificate_tolerance"]
        <= np.where(solved["learner"] == "cr", 1e-4, 1e-6)
    ).all()
    assert set(solved["certificate_measure"]) == {
        "KKT residual",
        "duality gap",
        "stationarity gap",
    }
    stepwise = [title for title in ITERATIVE if not title.startswith("alignf")]
    assert (solved.groupby("learner")["iterations"].min()[stepwise] >= 1).all()


def test_the_parameters_of_a_row_are_those_that_were_chosen(folds: pd.DataFrame):
    chosen = {
        title: [json.loads(text) for text in group]
        for title, group in folds.groupby("learner")["params"]
    }
    assert (chosen["lp-svm-1"], chosen["lp-svm-2"]) == (
        [{"norm": 1}] * FOLDS,
        [{"norm": 2}] * FOLDS,
    )
    assert chosen["unif"] == [{}] * FOLDS
    assert {setting["q"] for setting in chosen["lq"]} <= {1.25, 2, float("inf")}
    # The chosen q is the one whose weights the row holds: those of q = infinity are
    # equal.
    for setting, weights in zip(
        chosen["lq"], folds[folds["learner"] == "lq"]["weights"], strict=True
    ):
        assert (np.ptp(weights) < 1e-12) == (setting["q"] == float("inf"))
    one, two = (
        np.stack(folds[folds["learner"] == title]["weights"])
        for title in ("lp-svm-1", "lp-svm-2")
    )
    assert not np.allclose(one, two, atol=1e-2)


def test_the_report_holds_every_learner_and_its_evidence(folder: Path, report: str):
    for name in ("alignment_vs_error.png", "convergence.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    evidence = report.split("## Convergence")[1].split("\n## ")[0]
    listed = [
        line.split(" | ")[1]
        for line in evidence.splitlines()
        if line.startswith("| wine")
    ]
    assert listed == [title for title in TITLES if title in ITERATIVE]
    table = report.split("| dataset | method |")[1].split("\n\n")[0]
    assert all(f"| wine | {title} " in table for title in TITLES)
    assert "nan" not in report.lower()
    assert loading.load_config(folder / "config.yaml") == CONFIG


def test_a_learner_without_a_kernel_has_no_alignment_and_everything_still_shows_it(
    folds, folder, report, runs
):
    without = folds[folds["alignment"].isna()]
    assert set(without["learner"]) == {"ensemble"}
    summary = pd.read_parquet(folder / "summary.parquet").set_index("learner")
    assert np.isnan(summary.loc["ensemble", "alignment_mean"])
    (row,) = [
        line
        for line in report.splitlines()
        if line.startswith("| wine | ensemble") and "±" in line
    ]
    assert row.split("|")[5].strip() == ""
    metrics = runs["ensemble"].data.metrics
    assert not {"alignment", "alignment_sd", "fold/alignment"} & set(metrics)


def test_mlflow_holds_one_run_a_learner_with_its_settings_and_its_evidence(
    folder, finished, runs
):
    client = MlflowClient()
    summary = pd.read_parquet(folder / "summary.parquet").set_index("learner")
    assert {path.path for path in client.list_artifacts(finished["mlflow_run"])} == {
        p.name for p in folder.iterdir()
    }
    assert set(runs) == set(TITLES)
    assert len({run.data.tags["mlflow.runColor"] for run in runs.values()}) == len(
        TITLES
    )
    for learner in CONFIG.learners:
        run, row = runs[learner.title], summary.loc[learner.title]
        assert (run.info.run_name, run.data.params["algorithm"]) == (
            f"wine {learner.title}",
            learner.name,
        )
        settings = {
            key: value
            for key, value in run.data.params.items()
            if key.startswith("param.")
        }
        assert set(settings) == {
            f"param.{name}" for name in (*learner.params, *learner.tune)
        }
        evidence = {"certificate", "iterations", "fold/certificate", "fold/iterations"}
        assert evidence & set(run.data.metrics) == (
            evidence if learner.title in ITERATIVE else set()
        )
        if learner.title in ITERATIVE:
            assert run.data.metrics["certificate"] == pytest.approx(row.certificate)
            assert run.data.metrics["iterations"] == row.iterations
            history = client.get_metric_history(run.info.run_id, "fold/certificate")
            assert [point.step for point in history] == list(range(FOLDS))
    assert runs["lp-svm-1"].data.params["param.norm"] == "1"
    assert runs["lq"].data.params["param.q"] == "one of [1.25, 2, inf]"


def test_mlflow_draws_a_falling_objective(folds: pd.DataFrame, runs: dict[str, Run]):
    client = MlflowClient()
    drawn = {}
    for title, run in runs.items():
        points = sorted(
            client.get_metric_history(run.info.run_id, "objective"),
            key=lambda point: point.step,
        )
        if points:
            assert [point.step for point in points] == list(range(len(points)))
            drawn[title] = np.array([point.value for point in points])
    histories = folds[
        folds["objectives"].map(lambda values: values is not None and len(values) > 0)
    ]
    assert set(drawn) == set(histories["learner"])
    assert {
        "l1-krr",
        "l2-krr",
        "lp-krr",
        "l1-svm",
        "lp-svm-1",
        "nkrr",
        "single-stage",
    } <= set(drawn)
    for title, values in drawn.items():
        assert (
            len(values)
            == histories[histories["learner"] == title]["objectives"].map(len).max()
        )
        assert values[-1] <= values[0]
        # Whose line search looks back over several steps, so that one may rise
        if title != "nkrr":
            # At the optimum a step is only as good as the inner solution's relative
            # tolerance.
            assert (np.diff(values) <= 1e-6 * np.abs(values[:-1])).all(), title
    assert any(
        values[-1] < values[0] * (1 - 1e-3)
        for values in drawn.values()
        if values[0] > 0
    )
