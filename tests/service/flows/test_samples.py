"""Predictors without a matrix and first stages from a sample, from the configuration to the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from sklearn.datasets import load_diabetes

from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from learnkernels.flows.predict import predict
from learnkernels.flows.promote import promote
from learnkernels.flows.train import train
from learnkernels.kernels.persistence.model import load_model
from learnkernels.tasks.evidence.tracking import LEVEL

pytestmark = pytest.mark.usefixtures("prefect_server", "module_folder")

DIABETES = [{"source": "sklearn", "name": "diabetes", "scale": "standard"}]
WAVES = [{"source": "synthetic", "name": "three_sines", "params": {"rows": 1000}}]
FINE = [{"family": "gaussian", "gammas": {"from": -2, "to": 4}}]
NYSTROM = {"name": "nystrom", "landmarks": 50}


def small(**keys: Any) -> CompareConfig:
    data = {
        "name": "small",
        "datasets": DIABETES,
        "kernels": [{"family": "gaussian", "gammas": {"from": -8, "to": -2, "base": 2}}],
        "learners": ["unif", "alignf"],
        "protocol": {"grid": [0.125, 1, 8]},
        "dask": {"workers": 0},
    }
    return CompareConfig.model_validate(data | keys)


def compared(**keys: Any) -> tuple[pd.DataFrame, Path, dict[str, Any]]:
    """The fold table of a comparison, its folder, and the MLflow run of each learner."""
    done = compare(small(**keys))
    client = MlflowClient()
    sweep = client.get_run(done["mlflow_run"])
    of_sweep = f"tags.`{LEVEL}` = 'result' and tags.`learnkernels.sweep` = '{sweep.info.run_id}'"
    runs = {run.data.params["learner"]: run for run in client.search_runs([sweep.info.experiment_id], of_sweep)}
    folder = Path(done["results"])
    return pd.read_parquet(folder / "folds.parquet"), folder, runs


def test_conjugate_gradients_give_the_errors_of_the_matrix_and_say_how_they_ended():
    exact, folder, runs = compared()
    assert exact["notes"].isna().all()
    assert exact["predictor_reason"].str.startswith("krr, exact").all()
    assert runs["alignf"].data.tags["predictor_reason"] == exact["predictor_reason"].iloc[0]
    assert "## Predictors" not in (folder / "report.md").read_text()
    folds, folder, runs = compared(predictor={"name": "krr-cg", "tolerance": 1e-9})
    # A residual of 1e-9 leaves errors as they are to about as many digits.
    np.testing.assert_allclose(folds["error"], exact["error"], rtol=1e-6)
    np.testing.assert_array_equal(folds["alignment"], exact["alignment"])
    assert folds["predictor_reason"].isna().all()
    assert "diabetes, alignf: krr-cg. Conjugate gradients: " in (folder / "report.md").read_text()
    params = runs["alignf"].data.params
    assert (params["predictor"], params["predictor.tolerance"]) == ("krr-cg", "1e-09")
    assert "predictor_reason" not in runs["alignf"].data.tags


def test_landmarks_are_taken_as_configured_and_stand_in_the_report():
    folds, folder, runs = compared(predictor=NYSTROM)
    assert set(folds["predictor"]) == {"nystrom"}
    assert (folds["error"] < 0.8 * folds["trivial_error"]).all()
    assert all(notes[0].startswith("50 landmarks of ") for notes in folds["notes"])
    assert "diabetes, unif: nystrom. 50 landmarks of 26" in (folder / "report.md").read_text()
    assert runs["unif"].data.params["predictor.landmarks"] == "50"
    fewer, _, _ = compared(predictor=NYSTROM | {"landmarks": 10})
    assert not np.isin(fewer["error"], folds["error"]).any()  # another result, and not the one in the store


@pytest.mark.slow(25)
def test_workers_change_no_error(monkeypatch: pytest.MonkeyPatch):
    both = [*DIABETES, {"source": "sklearn", "name": "breast_cancer", "scale": "standard"}]
    here, _, _ = compared(predictor=NYSTROM, learners=["align"], datasets=both)
    # 265 training rows go side by side, 341 do not.
    monkeypatch.setattr("learnkernels.tasks.measure.evaluation.PARALLEL_ROWS", 300)
    label = {"name": "align", "label": "on workers"}  # so that the store has no result of it
    there, _, _ = compared(predictor=NYSTROM, learners=[label], datasets=both, dask={"workers": 2})
    # Sums over rows are added in another order.
    np.testing.assert_allclose(there["error"], here["error"], rtol=1e-6)


@pytest.mark.slow(15)
def test_a_sample_leaves_error_bars_in_all_places():
    waves = {"datasets": WAVES, "kernels": FINE, "predictor": "krr"}
    exact, _, exact_runs = compared(**waves)
    folds, folder, runs = compared(**waves, learners=["unif", "alignf", "l2-krr"], moments={"sample": 400})
    two, one_stage = folds[folds["learner"] != "l2-krr"], folds[folds["learner"] == "l2-krr"]
    assert (folds["n_train"] == 600).all()
    assert folds["n_sampled"].between(235, 245).all()
    assert (two["confidence"] == 0.95).all()
    assert (two["alignment_bound"] > two["alignment_error"]).all()
    # 95 % of intervals hold what all rows give; those of one data set share rows, so count them generously.
    off = np.abs(two["alignment"].to_numpy() - exact["alignment"].to_numpy())
    assert np.mean(off <= two["alignment_error"]) >= 0.7
    assert (off <= 3 * two["alignment_error"]).all()
    assert all(np.shape(of) == (7,) for of in two["weights_error"])
    assert max(of.max() for of in two[two["learner"] == "unif"]["weights_error"]) < 1e-12  # rounding
    assert one_stage["alignment_error"].isna().all()
    # Predictors learn from all training rows, whatever weights learn from.
    assert max(two["error"].mean(), one_stage["error"].mean()) < 1.2 * exact["error"].mean()

    report = (folder / "report.md").read_text()
    assert (folder / "kernel_shares.png").is_file()
    assert "## What the sample leaves open" in report
    assert "(95 %, 240 of 600 rows)" in report
    data = runs["alignf"].data
    assert data.params["sampled_rows"] == "240"
    mean = two[two["learner"] == "alignf"]["alignment_error"].mean()
    assert data.metrics["alignment_error"] == pytest.approx(mean, rel=1e-5)
    assert "weight_error/k000" in data.metrics
    assert "sampling error ± " in data.tags["mlflow.note.content"]
    assert "sampled_rows" not in exact_runs["alignf"].data.params
    assert "alignment_error" not in exact_runs["alignf"].data.metrics


def test_rank_one_kernels_are_measured_on_all_rows_all_the_same():
    folds, folder, _ = compared(kernels=[{"family": "feature"}], moments={"sample": 300}, learners=["alignf"])
    assert folds["n_sampled"].isna().all()
    assert "## What the sample" not in (folder / "report.md").read_text()


@pytest.mark.slow(15)
def test_a_model_on_landmarks_from_a_sample_is_trained_used_and_challenged(tmp_path: Path):
    split = {"split": {"train": 320, "validation": 60, "test": 60}, "repeats": 2, "grid": [1, 8]}
    config = small(predictor=NYSTROM, moments={"sample": 300}, learners=["alignf"], protocol=split)
    done = train(config, "scaled")
    model = load_model(Path(done["results"]) / "model.npz")
    assert model.estimator.dual_coef_.shape[0] == 50
    assert model.about["predictor"] == "nystrom"
    assert model.about["predictor_options"]["landmarks"] == 50
    assert model.about["sampling"]["n_rows"] == 300
    assert model.about["sampling"]["of_rows"] == 442
    folds = pd.read_parquet(Path(done["results"]) / "folds.parquet")
    assert folds[["n_sampled", "n_train"]].to_numpy().tolist() == [[300, 320]] * 2
    report = (Path(done["results"]) / "report.md").read_text()
    assert "with `nystrom`" in report
    assert "from 300 of 442 rows" in report
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X.to_parquet(tmp_path / "new.parquet")
    predict("scaled", str(tmp_path / "new.parquet"), str(tmp_path / "scored.parquet"))
    scored = pq.read_table(tmp_path / "scored.parquet")["prediction"].to_numpy()
    np.testing.assert_array_equal(scored, model.columns(X.to_numpy())["prediction"])
    assert np.sqrt(np.mean((scored - y) ** 2)) < 0.75 * y.std()
    assert promote("scaled")["champion"] == 1
    train(small(predictor="krr", learners=["alignf"], protocol=split), "scaled")
    decision = promote("scaled")
    assert (decision["challenger"], decision["p"] is None) == (2, False)  # two recipes, learned anew
