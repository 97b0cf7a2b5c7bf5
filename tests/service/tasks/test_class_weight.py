"""Class weights: rows count by them where something is learned, and once where errors are measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from prefect.logging import disable_run_logger
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.svm import SVC

from learnkernels import GaussianFamily, KernelLearningClassifier
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import BaselineConfig, CompareConfig
from learnkernels.kernels.predictors.calibration import fit_sigmoid
from learnkernels.kernels.protocol.folds import trials
from learnkernels.tasks.data.dataset import DatasetRef, load_dataset
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.measure.baseline import BOOSTING, GRID_SEARCH, SearchJob, search
from learnkernels.tasks.measure.evaluation import predictor_for
from learnkernels.tasks.measure.moments import compute_moments
from learnkernels.tasks.measure.stored_moments import MomentsRef, load_moments
from learnkernels.tasks.measure.trials import TrialJob, run_trial
from learnkernels.tasks.models.promotion import recipe
from learnkernels.tasks.workers.cluster import DaskPool

pytestmark = pytest.mark.usefixtures("working_folder")
M = 120
TRIAL = trials(3)[0]


@pytest.fixture(autouse=True)
def rows(working_folder: None) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(M, 2)), columns=["a", "b"])
    table["y"] = np.where(table["a"] * table["b"] + 0.5 * rng.normal(size=M) > 0.7, "ill", "well")
    table["w"] = np.where(table["y"] == "ill", 4.0, 1.0)
    table.to_parquet("data.parquet")
    return table


def config(learner: str = "alignf", baseline: Any = None, **keys: Any) -> CompareConfig:
    return CompareConfig.model_validate(
        {
            "name": "classes",
            "datasets": {"source": "file", "path": "data.parquet", "target": "y", "features": ["a", "b"], **keys},
            "kernels": {"family": "gaussian", "gammas": [0.1, 1.0]},
            "learners": learner,
            "protocol": {"folds": 3, "grid": [1.0]},
            "dask": {"workers": 0},
            "baseline": baseline,
        }
    )


def measured(of: CompareConfig, predictor: str) -> tuple[DatasetRef, MomentsRef, dict[str, Any]]:
    with disable_run_logger(), DaskPool(of.dask) as pool:
        ref = ingest.fn(of.datasets[0], ".", 0)
        moments = compute_moments.fn(ref, of, 0, pool, lambda share: None)
    job = TrialJob(ref, moments, TRIAL, of.kernels, of.learners[0], "trace", "center", predictor, (1.0,))
    return ref, moments, run_trial(job)


@pytest.mark.parametrize("predictor", ["svm", "krr"])
def test_classes_are_weighed_in_learning_and_not_in_errors(rows: pd.DataFrame, predictor: str):
    ref, moments, row = measured(config(class_weight={"ill": 4}), predictor)
    by_rows = measured(config(weights="w"), predictor)[2]
    plain = measured(config(), predictor)[2]
    assert row["weights"] == pytest.approx(by_rows["weights"], rel=1e-12)
    assert row["alignment"] == pytest.approx(by_rows["alignment"], rel=1e-12)
    assert row["alignment"] != pytest.approx(plain["alignment"], rel=1e-3)
    dataset, folds = load_dataset(ref), load_moments(moments)[1]
    training, test = np.flatnonzero(np.isin(folds, TRIAL.training)), np.flatnonzero(folds == TRIAL.test)
    model = KernelLearningClassifier(
        GaussianFamily([0.1, 1.0]), "alignf", 1.0, predictor=predictor, class_weight={"ill": 4.0, "well": 1.0}
    ).fit(dataset.X[training], rows["y"].to_numpy()[training])
    assert row["error"] == pytest.approx(np.mean(model.predict(dataset.X[test]) != rows["y"].to_numpy()[test]))
    assert row["error"] != pytest.approx(by_rows["error"], rel=1e-6)


def test_balanced_is_one_over_the_share_of_a_class(rows: pd.DataFrame):
    with disable_run_logger():
        dataset = load_dataset(ingest.fn(config(class_weight="balanced").datasets[0], ".", 0))
        weighted = load_dataset(ingest.fn(config(class_weight="balanced", weights="w").datasets[0], ".", 0))
    counts = rows["y"].value_counts()
    assert dataset.class_weight == pytest.approx([M / (2 * counts["ill"]), M / (2 * counts["well"])])
    assert dataset.weights is None
    of_class = [weighted.learning_weights[rows["y"] == name].sum() for name in ("ill", "well")]
    assert of_class == pytest.approx([weighted.weights.sum() / 2] * 2)


@pytest.mark.parametrize("kind", [GRID_SEARCH, BOOSTING])
def test_a_baseline_weighs_classes_as_scikit_learn_does(rows: pd.DataFrame, kind: str):
    baseline = BaselineConfig.model_validate({"gammas": [0.3], "grid": [2.0], "absolute": True})
    ref, moments, _ = measured(config(class_weight={"ill": 4}), "svm")
    row = search(SearchJob(ref, moments, TRIAL, baseline, kind))
    if kind == BOOSTING:
        other = measured(config(), "svm")
        ours, theirs = (
            search(SearchJob(*of[:2], TRIAL, baseline, kind, "neg_log_loss")) for of in ((ref, moments), other)
        )
        assert ours["error"] != theirs["error"]
        assert row["metric"] == "misclassification"
        return
    folds = load_moments(moments)[1]
    training, test = np.isin(folds, TRIAL.training), folds == TRIAL.test
    X, y = rows[["a", "b"]].to_numpy(), rows["y"].to_numpy()
    machine = SVC(gamma=0.3, C=2.0, class_weight={"ill": 4}).fit(X[training], y[training])
    assert row["error"] == pytest.approx(np.mean(machine.predict(X[test]) != y[test]))


@pytest.mark.parametrize("metric", ["neg_log_loss", "roc_auc_ovr"])
def test_a_baseline_has_probabilities(rows: pd.DataFrame, metric: str):
    ref, moments, _ = measured(config(), "svm")
    baseline = BaselineConfig.model_validate({"gammas": [0.3], "grid": [2.0], "absolute": True})
    found = search(SearchJob(ref, moments, TRIAL, baseline, GRID_SEARCH, metric))
    folds, y = load_moments(moments)[1], load_dataset(ref).target.values
    X, training, test = rows[["a", "b"]].to_numpy(), np.isin(folds, TRIAL.training), folds == TRIAL.test
    machine, choosing = SVC(gamma=0.3, C=2.0).fit(X[training], y[training]), folds == TRIAL.validation
    slope, offset = fit_sigmoid(machine.decision_function(X[choosing]), y[choosing] == 1, None)
    p = expit(slope * machine.decision_function(X[test]) + offset)
    expected = {"neg_log_loss": log_loss(y[test], p), "roc_auc_ovr": 1 - roc_auc_score(y[test], p)}[metric]
    assert found["error"] == pytest.approx(expected)
    trees = search(SearchJob(ref, moments, TRIAL, baseline, BOOSTING, metric))
    assert (trees["metric"], 0 < trees["error"] < 2) == (found["metric"], True)


def test_what_takes_no_weights_and_no_such_class_is_refused():
    with disable_run_logger():
        ref = ingest.fn(config(class_weight="balanced").datasets[0], ".", 0)
        with pytest.raises(InputError, match="'class_weight' has 'sick', and the classes are 'ill', 'well'"):
            ingest.fn(config(class_weight={"sick": 2}).datasets[0], ".", 0)
        with pytest.raises(InputError, match="'class_weight' goes with a classification, and this is a regression"):
            ingest.fn(config(target="a", features="b", class_weight="balanced").datasets[0], ".", 0)
    with pytest.raises(InputError, match="'class_weight' gives rows weights, and learner l2-krr learns from rows that"):
        predictor_for(config("l2-krr"), config("l2-krr").learners[0], ref)
    of = config(baseline={})
    assert predictor_for(of, of.learners[0], ref).predictor.name == "svm"
    assert recipe(config(class_weight="balanced")) != recipe(config())


def test_probabilities_of_weighed_classes_are_shares_of_rows(rows: pd.DataFrame):
    X, y = rows[["a", "b"]].to_numpy(), rows["y"].to_numpy()
    share = np.mean(y == "ill")
    for weight in (None, "balanced", {"ill": 9.0}):
        model = KernelLearningClassifier(GaussianFamily([0.3]), C=1.0, class_weight=weight, probability=True).fit(X, y)
        assert model.predict_proba(X)[:, 0].mean() == pytest.approx(share, abs=0.07), weight
