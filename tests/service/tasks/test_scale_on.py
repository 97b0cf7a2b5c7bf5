"""Units and gaps by the training rows of each trial: what other rows hold changes nothing of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prefect.logging import disable_run_logger
from scipy import sparse

from learnkernels import GaussianFamily, gram_moments, learn_kernel
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig
from learnkernels.kernels.learners import as_learner
from learnkernels.kernels.learning import learn_from_moments
from learnkernels.kernels.predictors.choice import best_on_grid
from learnkernels.kernels.protocol.evaluation import evaluate
from learnkernels.kernels.protocol.folds import trials
from learnkernels.kernels.protocol.hypotheses import KernelPredictors
from learnkernels.kernels.tables import TableEncoding
from learnkernels.kernels.targets import Target
from learnkernels.tasks.data.dataset import Dataset, DatasetRef, dataset_digest, load_dataset, store_dataset
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.measure.moments import compute_moments, draw_folds, fold_seed, planned_trials, rows_of_trial
from learnkernels.tasks.measure.positions import plan_matrices
from learnkernels.tasks.measure.stored_moments import load_moments
from learnkernels.tasks.measure.trials import TrialJob, run_trial
from learnkernels.tasks.models.promotion import recipe
from learnkernels.tasks.workers.cluster import DaskPool

pytestmark = pytest.mark.usefixtures("working_folder")
RNG = np.random.default_rng(0)
M = 90
COLUMNS = {"when": "date", "size": ["small", "large"]}


def table() -> pd.DataFrame:
    rows = pd.DataFrame(
        {
            "a": RNG.lognormal(size=M),
            "b": RNG.normal(size=M),
            "color": RNG.choice(["red", "green", "blue"], M),
            "when": pd.date_range("2024-01-01", periods=M).strftime("%Y-%m-%d"),
            "size": RNG.choice(["small", "large"], M),
        }
    )
    rows["y"] = rows["b"] + (rows["color"] == "red") + 0.1 * RNG.normal(size=M)
    rows.loc[::7, "b"] = np.nan
    return rows


def config(path: str = "data.parquet", protocol: Any = None, **keys: Any) -> CompareConfig:
    data = {"source": "file", "path": path, "target": "y", "scale": "standard", "scale_on": "training", **keys}
    return CompareConfig.model_validate(
        {
            "name": "own",
            "datasets": data,
            "kernels": {"family": "gaussian", "gammas": [0.05, 0.5]},
            "learners": "alignf",
            "protocol": protocol or {"folds": 3, "grid": [0.5, 2.0, 8.0]},
            "dask": {"workers": 0},
        }
    )


def measured(of: CompareConfig, trial: Any, ref: DatasetRef) -> tuple[DatasetRef, dict[str, Any], np.ndarray]:
    """The data set of a trial, the row of its fold table, and the fold of each row."""
    with disable_run_logger(), DaskPool(of.dask) as pool:
        own = rows_of_trial.fn(ref, of.protocol, 0, trial)
        moments = compute_moments.fn(own, of, 0, pool, lambda share: None, trial)
    row = run_trial(
        TrialJob(own, moments, trial, of.kernels, of.learners[0], "trace", "center", "krr", (0.5, 2.0, 8.0))
    )
    return own, row, load_moments(moments)[1]


def ingested(of: CompareConfig) -> DatasetRef:
    with disable_run_logger():
        return ingest.fn(of.datasets[0], ".", 0)


def test_a_trial_sees_what_its_training_rows_alone_suggest():
    frame = table()
    frame.to_parquet("data.parquet")
    of, trial = config(columns=COLUMNS), trials(3)[1]
    ref = ingested(of)
    own, row, folds = measured(of, trial, ref)
    training = np.flatnonzero(np.isin(folds, trial.training))
    whole, X = load_dataset(ref), load_dataset(own).X
    np.testing.assert_array_equal(folds, draw_folds(whole, of.protocol, fold_seed(0, 0)))

    b, a = frame["b"].to_numpy(), frame["a"].to_numpy()
    b = np.where(np.isnan(b), np.nanmedian(b[training]), b)
    for name, values in {"a": a, "b": b}.items():
        expected = (values - values[training].mean()) / values[training].std()
        np.testing.assert_allclose(X[:, whole.features.index(name)], expected, rtol=1e-12, atol=1e-12)
    encoding = TableEncoding.of(frame.drop(columns="y").iloc[training], COLUMNS)
    np.testing.assert_allclose(
        np.sort(X, axis=1), np.sort(encoding.encode(frame.drop(columns="y")), axis=1), atol=1e-12
    )
    assert load_dataset(own).features == whole.features

    family, target = GaussianFamily([0.05, 0.5]), Target.of(frame["y"].to_numpy())
    moments = gram_moments(family, X, target.Y, folds).restrict(trial.training)
    predictors = KernelPredictors(
        [learn_from_moments(as_learner("alignf"), family, X, moments)], target, "krr", [0.5, 2.0, 8.0]
    )
    expected = evaluate([predictors], X, target, moments.rows, folds, trial)
    assert row["error"] == pytest.approx(expected.error, rel=1e-9)
    assert row["n_train"] == len(training)


@pytest.mark.parametrize("drawn", [{"folds": 3}, {"split": {"train": 40, "validation": 20, "test": 30}}])
def test_what_was_chosen_is_fitted_on_the_rows_that_chose_too(drawn: dict[str, Any]):
    frame = table()
    frame.to_parquet("data.parquet")
    of = config(protocol={**drawn, "refit": True, "grid": [0.5, 2.0, 8.0]}, columns=COLUMNS)
    (trial, *_) = planned_trials(of.protocol)
    own, row, folds = measured(of, trial, ingested(of))
    X, target = load_dataset(own).X, Target.of(frame["y"].to_numpy())
    learning, choosing, testing = (np.isin(folds, of) for of in (trial.training, trial.validation, trial.test))
    a, final = frame["a"].to_numpy(), learning | choosing
    units = X[:, load_dataset(own).features.index("a")]
    np.testing.assert_allclose(units, (a - a[final].mean()) / a[final].std(), rtol=1e-12, atol=1e-12)

    def errors(training: np.ndarray, rows: np.ndarray, grid: list[float]) -> np.ndarray:
        train = np.flatnonzero(training)
        kernel = learn_kernel("alignf", GaussianFamily([0.05, 0.5]), X[train], target.values[train])
        told = KernelPredictors([kernel], target.take(train), "krr", grid).predict(X[rows])
        return np.sqrt(np.square(told - target.values[rows]).mean(axis=1))

    grid = [0.5, 2.0, 8.0]
    _, position = best_on_grid(errors(learning, choosing, grid)[None], smooth=True)
    assert row["regularisation"] == grid[position]
    assert row["error"] == pytest.approx(errors(final, testing, [grid[position]])[0], rel=1e-9)
    assert row["n_train"] == final.sum() > learning.sum()


@pytest.mark.parametrize("scale", ["unit", "standard", "quantile"])
def test_rows_that_do_not_train_change_nothing(scale: str):
    frame, trial = table(), trials(3)[0]
    frame.to_parquet("data.parquet")
    of = config(columns=COLUMNS, scale=scale)
    own, _, folds = measured(of, trial, ingested(of))
    frame.loc[np.flatnonzero(folds == trial.test), ["a", "b"]] = 1e6
    frame.loc[np.flatnonzero(folds == trial.test), "color"] = "mauve"
    frame.to_parquet("other.parquet")
    other = config("other.parquet", columns=COLUMNS, scale=scale)
    changed, _, others = measured(other, trial, ingested(other))
    np.testing.assert_array_equal(folds, others)
    training = np.flatnonzero(np.isin(folds, trial.training))
    ours, theirs = load_dataset(own), load_dataset(changed)
    for j, name in enumerate(ours.features):
        np.testing.assert_array_equal(ours.X[training, j], theirs.X[training, theirs.features.index(name)])
    # A level that no training row has is different from all, and as far from each as these are from none.
    assert not theirs.X[:, theirs.features.index("color=mauve")].any()


def test_numbers_without_gaps_are_scaled_anew_and_raw_features_stay():
    X, target = RNG.normal(3.0, 2.0, (40, 3)), Target.of(RNG.normal(size=40))
    low, spread = X.mean(axis=0), X.std(axis=0)
    dataset = Dataset((X - low) / spread, target, ("a", "b", "c"), low, spread, by_training="standard")
    some = np.arange(10)
    own = dataset.learned_on(some)
    np.testing.assert_allclose(own.X, (X - X[some].mean(axis=0)) / X[some].std(axis=0), rtol=1e-11)
    np.testing.assert_allclose(own.X * own.scaling[1] + own.scaling[0], X, rtol=1e-12)
    assert dataset_digest(dataset) != dataset_digest(own)
    counts = sparse.random(40, 5, 0.5, "csr", random_state=0)
    unit = Dataset(counts, target, tuple("abcde"), np.zeros(5), np.ones(5), by_training="unit").learned_on(some)
    np.testing.assert_allclose(unit.X.toarray()[some].max(axis=0), 1.0)
    pd.DataFrame({"a": X[:, 0], "y": target.values}).to_parquet("raw.parquet")
    assert not ingested(config("raw.parquet", scale="none")).by_training


@pytest.mark.parametrize("what", ["a", "when", "size"])
def test_a_column_without_values_among_the_training_rows_is_flat_there(what: str):
    frame = table()
    some = np.arange(30)
    frame.loc[some, what] = None
    columns = frame.drop(columns="y")
    own = TableEncoding.of(columns, COLUMNS).learned_on(columns.iloc[some], "standard")
    X = own.encode(columns)
    assert np.isfinite(X).all()
    assert not X[some, own.features.index(what)].any()
    assert X[some, own.features.index(f"{what} missing")].all()


def test_cross_validation_within_the_training_rows_takes_their_units():
    table().to_parquet("data.parquet")
    protocol = {"split": {"train": 60, "test": 20}, "choose": {"folds": 3}, "grid": [0.5, 2.0, 8.0]}
    of = config(columns=COLUMNS, protocol=protocol)
    (trial,) = planned_trials(of.protocol)
    own, row, folds = measured(of, trial, ingested(of))
    training = np.flatnonzero(np.isin(folds, trial.training))
    np.testing.assert_allclose(load_dataset(own).X[training, 0].mean(), 0.0, atol=1e-12)
    assert row["n_train"] == 60


def test_a_recipe_and_stored_matrices():
    table().to_parquet("data.parquet")
    of = config(columns=COLUMNS)
    assert recipe(of)["data"] | {"scale_on": "all"} != recipe(of)["data"]
    assert "scale_on" not in recipe(config(scale_on="all"))["data"]
    assert recipe(config(columns=COLUMNS)) != recipe(config(columns=COLUMNS | {"a": "drop"}))
    with pytest.raises(InputError, match="data set data: with 'scale_on: training' each trial has features of its own"):
        plan_matrices(ingested(of), of.kernels, "matrices", "float64")
    with pytest.raises(ValueError, match="'scale_on: all', or name the families themselves"):
        CompareConfig.model_validate(
            {**of.model_dump(by_alias=True), "kernels": {"family": "precomputed", "path": "m"}}
        )


def test_a_stored_data_set_keeps_its_columns():
    frame = table()
    frame.to_parquet("data.parquet")
    ref = ingested(config(columns=COLUMNS))
    again = load_dataset(ref)
    assert again.by_training == "standard"
    assert again.raw.column_names == ["a", "b", "color", "when", "size"]
    assert store_dataset(again, ref.name, ref.source) == ref
    assert Path(ref.path, "raw.arrow").exists()
