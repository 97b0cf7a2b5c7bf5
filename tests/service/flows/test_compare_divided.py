"""Groups, time and metrics through the whole comparison: nothing leaks, and what is measured is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from learnkernels.flows.promote import promote
from learnkernels.flows.train import train
from learnkernels.kernels.persistence.model import load_model

pytestmark = pytest.mark.usefixtures("prefect_server", "working_folder")


def write_patients() -> None:
    """Sixty patients of five near-copies each, whose diagnosis follows from nothing but who they are."""
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(60), 5)
    X = rng.normal(size=(60, 4))[patient] + 0.01 * rng.normal(size=(300, 4))
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["patient"] = [f"p{number}" for number in patient]
    frame["target"] = np.where(rng.permutation(60) < 30, "ill", "well")[patient]
    frame.sample(frac=1, random_state=0).to_csv("patients.csv", index=False)


def write_weeks() -> None:
    """Thirty weeks of ten near-copies each, whose level follows from nothing but which week it is."""
    rng = np.random.default_rng(1)
    week = np.repeat(np.arange(30), 10)
    X = rng.normal(size=(30, 4))[week] + 0.01 * rng.normal(size=(300, 4))
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["day"] = (pd.Timestamp("2024-01-01") + pd.to_timedelta(7 * week, unit="D")).astype(str)
    frame["target"] = rng.normal(size=30)[week]
    frame.sample(frac=1, random_state=0).to_csv("weeks.csv", index=False)


def config(dataset: dict[str, Any], **keys: Any) -> CompareConfig:
    data = {
        "name": "divided",
        "datasets": [{"source": "file", **dataset}],
        "kernels": [{"family": "gaussian", "gammas": [0.1, 1]}],
        "learners": ["unif"],
        "protocol": {"grid": [1, 16, 256]},
        "dask": {"workers": 0},
    }
    return CompareConfig.model_validate(data | keys)


def folds_of(run: Any) -> pd.DataFrame:
    return pd.read_parquet(Path(run["results"]) / "folds.parquet")


def test_patients_whose_rows_are_divided_leak_and_whole_ones_do_not():
    write_patients()
    protocol = {"metric": "roc_auc", "grid": [1, 16, 256]}
    leaking = folds_of(compare(config({"path": "patients.csv", "drop": ["patient"]}, protocol=protocol)))
    assert leaking["error"].max() < 0.01
    run = compare(config({"path": "patients.csv", "groups": "patient"}, protocol=protocol, baseline={}))
    honest = folds_of(run)
    assert set(honest["metric"]) == {"1 - roc_auc"}
    assert set(honest["n_train"]) == {180}
    assert set(honest["trivial_error"]) == {0.5}
    for learner in ("unif", "GridSearchCV"):
        assert 0.3 < honest[honest["learner"] == learner]["error"].mean() < 0.7
    report = (Path(run["results"]) / "report.md").read_text(encoding="utf-8")
    assert "has the lowest 1 - roc_auc" in report
    assert "one minus the area under the ROC curve (patients)" in report
    assert "patients: no group of patient is divided." in report
    client = MlflowClient()
    sweep = client.get_run(run["mlflow_run"])
    results = client.search_runs([sweep.info.experiment_id], "params.learner = 'unif' and params.groups = 'patient'")
    (of,) = results
    assert of.data.params["metric"] == "1 - roc_auc"
    assert of.data.metrics["test_error"] == pytest.approx(honest[honest["learner"] == "unif"]["error"].mean())


def test_a_split_of_whole_patients_that_choose_among_themselves_does_not_leak():
    write_patients()
    protocol = {
        "metric": "balanced_accuracy",
        "split": {"train": 180, "test": 100},
        "choose": {"folds": 3},
        "repeats": 3,
        "grid": [1, 16],
    }
    honest = folds_of(compare(config({"path": "patients.csv", "groups": "patient"}, protocol=protocol, baseline={})))
    assert set(zip(honest["n_train"], honest["n_test"], strict=True)) == {(180, 100)}
    assert set(honest["metric"]) == {"1 - balanced_accuracy"}
    for column in ("error", "validation_error"):
        assert 0.3 < honest[column].mean() < 0.7


def test_weeks_that_are_mixed_leak_and_those_in_order_do_not():
    write_weeks()
    protocol = {"metric": "r2", "grid": [1, 16, 256]}
    leaking = folds_of(compare(config({"path": "weeks.csv", "drop": ["day"]}, protocol=protocol)))
    assert leaking["error"].max() < 0.05
    run = compare(config({"path": "weeks.csv", "time": "day"}, protocol=protocol, baseline={}))
    honest = folds_of(run)
    unif = honest[honest["learner"] == "unif"]
    assert unif[["fold", "n_train", "n_test", "n_rows"]].to_numpy().tolist() == [
        [0, 60, 60, 180], [1, 120, 60, 240], [2, 180, 60, 300],
    ]  # fmt: skip
    assert set(honest["metric"]) == {"1 - r2"}
    assert honest["error"].min() > 0.7
    report = (Path(run["results"]) / "report.md").read_text(encoding="utf-8")
    assert "Means ± standard deviations over the 3 of 5 blocks of time that test." in report
    assert "weeks, in the order of day: in 3 trials earlier blocks train, the next one chooses Lambda" in report


@pytest.mark.parametrize("choose", [{}, {"choose": {"folds": 3}}])
def test_the_last_weeks_of_a_split_test(choose: dict[str, Any]):
    write_weeks()
    sizes = {"train": 150, "test": 50} | ({} if choose else {"validation": 50})
    protocol = {"split": sizes, "grid": [1, 16], **choose}
    honest = folds_of(compare(config({"path": "weeks.csv", "time": "day"}, protocol=protocol, baseline={})))
    assert set(zip(honest["n_train"], honest["n_test"], strict=True)) == {(150, 50)}
    level = pd.read_csv("weeks.csv").groupby("day")["target"].first()
    last, training = level.iloc[-5:], level.iloc[-20:-5] if choose else level.iloc[-25:-10]
    trivial = np.sqrt(np.mean((last - training.mean()) ** 2))
    np.testing.assert_allclose(honest["trivial_error"], trivial)
    assert (honest["error"] > 0.7 * trivial).all()


def test_a_model_is_chosen_and_challenged_by_the_metric():
    write_patients()
    frame = pd.read_csv("patients.csv")
    frame["target"] = np.where(frame["a"] + frame["b"] > 0.5, "ill", "well")
    frame.to_csv("patients.csv", index=False)
    protocol = {"metric": "average_precision", "folds": 3, "grid": [1, 16]}
    given = config({"path": "patients.csv", "groups": "patient"}, protocol=protocol)
    first = train(given, "patients")
    about = load_model(Path(first["results"]) / "model.npz").about
    assert about["metric"] == "1 - average_precision of well"
    assert about["drop"] == ["patient"]
    assert about["test_error"] < 0.1
    promote("patients")
    linear = [{"family": "linear"}]
    train(config({"path": "patients.csv", "groups": "patient"}, protocol=protocol, kernels=linear), "patients")
    decided = promote("patients")
    report = (Path(decided["results"]) / "report.md").read_text(encoding="utf-8")
    assert "Test error (1 - average_precision of well) on patients" in report


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_row_of_weight_three_counts_as_three_rows(task: str):
    """Two rows a day, one of weight three: blocks of time are then the same days, whether it is weighed or repeated."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.normal(size=(120, 3)), columns=list("abc"))
    frame["day"], frame["w"] = np.arange(120) // 2, np.where(np.arange(120) % 2, 3.0, 1.0)
    level = frame["a"] * frame["b"] + frame["c"] + 0.5 * rng.normal(size=120)
    frame["target"] = level if task == "regression" else np.where(level > 0, "up", "down")
    nothing = frame.iloc[:10].assign(w=0.0, target=frame["target"].iloc[-1])
    pd.concat([frame, nothing]).to_csv("weighed.csv", index=False)
    frame.loc[frame.index.repeat(frame["w"].astype(int))].to_csv("repeated.csv", index=False)
    learners = ["unif", "alignf", "rfm"]
    keys = {"learners": learners, "predictor": "krr", "protocol": {"folds": 4, "grid": [1, 4]}}
    weighed = folds_of(compare(config({"path": "weighed.csv", "time": "day", "weights": "w"}, **keys)))
    repeated = folds_of(compare(config({"path": "repeated.csv", "time": "day", "drop": ["w"]}, **keys)))
    assert list(weighed["n_train"]) == [30, 60] * 3
    assert list(repeated["n_train"]) == [60, 120] * 3
    for column in ("error", "trivial_error", "validation_error", "regularisation"):
        np.testing.assert_allclose(weighed[column], repeated[column], rtol=1e-6)
    for column in ("alignment", "test_alignment"):
        given = weighed["learner"] != "rfm"
        np.testing.assert_allclose(weighed[column][given], repeated[column][given], rtol=1e-9)


def test_a_model_of_weighed_rows_is_kept_and_challenged_by_such_ones_alone():
    write_patients()
    frame = pd.read_csv("patients.csv")
    frame["w"], frame["target"] = 1.0 + np.arange(300) % 3, frame["a"] + frame["b"] * frame["c"]
    frame.to_csv("patients.csv", index=False)
    protocol = {"folds": 3, "grid": [1, 16], "metric": "neg_mean_absolute_error"}
    weighed = {"path": "patients.csv", "groups": "patient", "weights": "w"}
    first = train(config(weighed, protocol=protocol), "weighed")
    model = load_model(Path(first["results"]) / "model.npz")
    assert model.about["drop"] == ["patient", "w"]
    assert model.about["metric"] == "mae"
    assert sorted(set(model.estimator.kernel_.sample_weight)) == [1.0, 2.0, 3.0]
    promote("weighed")
    train(config({**weighed, "weights": None, "drop": ["w"]}, protocol=protocol), "weighed")
    with pytest.raises(InputError, match="model weighed: the recipes of champion and challenger weigh the rows of pat"):
        promote("weighed")
