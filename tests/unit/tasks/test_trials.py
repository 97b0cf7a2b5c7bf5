"""What one trial learns from: the rows of a split, scaling by its training rows, class weights, baselines."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prefect.logging import disable_run_logger
from scipy import sparse
from scipy.special import expit
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KernelCenterer, StandardScaler
from sklearn.svm import SVC

from learnkernels import (
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    gram_statistics,
    learn_kernel,
)
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig, ProtocolConfig
from learnkernels.kernels.column_encoding import TableEncoding
from learnkernels.kernels.estimators.boosting import LEAST_ROWS
from learnkernels.kernels.learners import RFM
from learnkernels.kernels.model_selection.evaluation import KernelPredictors
from learnkernels.kernels.model_selection.folds import (
    Trial,
    assign_folds,
    assign_nested_split,
    nested_split_trial,
    trials,
)
from learnkernels.kernels.predictors.calibration import fit_sigmoid
from learnkernels.kernels.predictors.choice import best_on_grid
from learnkernels.kernels.targets import Target
from learnkernels.tasks.data.dataset import (
    Dataset,
    DatasetRef,
    dataset_digest,
    draw_folds,
    fold_seed,
    load_dataset,
    store_dataset,
)
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.measure import fold_statistics as measuring
from learnkernels.tasks.measure.baseline import (
    ALPHAS,
    BOOSTING,
    CONSTANT,
    ESTIMATOR,
    GRID_SEARCH,
    LINEAR,
    CenteredKernelRidge,
    run_baseline,
    serves,
)
from learnkernels.tasks.measure.families import build_family
from learnkernels.tasks.measure.fold_statistics import planned_trials
from learnkernels.tasks.measure.held_out import (
    FEWEST_PREDICTIONS,
    MOST_PREDICTIONS,
    predict_held_out,
    sampled_test_rows,
)
from learnkernels.tasks.measure.matrices import require_matrices
from learnkernels.tasks.measure.relevance import measure_relevance
from learnkernels.tasks.measure.trials import (
    HELD_OUT,
    StatisticsRef,
    TrialJob,
    load_statistics,
    run_trial,
    save_statistics,
)
from learnkernels.tasks.models.promotion import recipe
from learnkernels.tasks.store import store_path
from learnkernels.tasks.workers.cluster import DaskPool

GAMMAS, GRID = [0.05, 0.5], [0.5, 2.0, 8.0]


@pytest.fixture(autouse=True)
def folder(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with its own store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # not counted by a process
    return tmp_path


def config(data: dict[str, Any], **keys: Any) -> CompareConfig:
    dataset = {"source": "file", "path": "data.parquet", "target": "y"} | data
    given = {
        "name": "trials",
        "datasets": dataset,
        "learners": "alignf",
        "dask": {"workers": 0},
    }
    given |= {
        "kernels": {"family": "gaussian", "gammas": GAMMAS},
        "protocol": {"folds": 3, "grid": GRID},
    }
    return CompareConfig.model_validate(given | keys)


def ingested(of: CompareConfig, trial: Trial | None = None) -> DatasetRef:
    """The data set of a configuration, or of one of its trials."""
    with disable_run_logger():
        ref = ingest.fn(of.datasets[0], ".", 0)
        return (
            ref
            if trial is None
            else measuring.rows_of_trial.fn(ref, of.protocol, 0, trial)
        )


def stored_statistics(
    ref: DatasetRef,
    of: CompareConfig,
    repeat: int = 0,
    pool: Any = None,
    trial: Any = None,
) -> StatisticsRef:
    with disable_run_logger(), DaskPool(of.dask) as here:
        return measuring.compute_statistics.fn(
            ref, of, repeat, pool or here, lambda share: None, trial
        )


def measured(
    of: CompareConfig, trial: Trial, predictor: str
) -> tuple[DatasetRef, StatisticsRef, dict[str, Any]]:
    """The data set of a trial, its statistics, and its row of the fold table."""
    ref = ingested(of, trial if of.datasets[0].scale_on == "training" else None)
    statistics = stored_statistics(ref, of, trial=trial)
    return (
        ref,
        statistics,
        run_trial(TrialJob(ref, statistics, trial, of), of.learners[0], predictor),
    )


def rows_of(statistics: StatisticsRef, trial: Trial) -> list[np.ndarray]:
    """The training, validation and test rows of a trial."""
    folds = load_statistics(statistics)[1]
    return [
        np.flatnonzero(np.isin(folds, some))
        for some in (trial.training, trial.validation, trial.test)
    ]


# Splits --------------------------------------------------------------------------------------------------------------

FAMILIES: dict[str, dict[str, Any]] = {
    "gaussian": {"gammas": [0.1, 1.0]},
    "feature": {},
    "linear": {},
}


def split_config(family: str, repeats: int = 1, **split: int) -> CompareConfig:
    protocol = {
        "split": {"train": 60, "validation": 40, "test": 50, **split},
        "repeats": repeats,
    }
    return config(
        {}, kernels=[{"family": family, **FAMILIES[family]}], protocol=protocol
    )


def stored(classes: int = 2) -> tuple[Dataset, DatasetRef]:
    X = np.random.default_rng(5).normal(size=(301, 3)) + 4.0
    dataset = Dataset(
        X, Target.of((np.arange(301) % classes).astype(str)), ("a", "b", "c")
    )
    return dataset, store_dataset(dataset, "data", "here")


def require_statistics_of_training_rows(
    family: str, pool: DaskPool | None = None
) -> None:
    """Fail unless the statistics of a split are those of its training rows, in their places in the whole data set."""
    (dataset, ref), config = stored(), split_config(family)
    statistics, folds, _ = load_statistics(stored_statistics(ref, config, 1, pool))
    np.testing.assert_array_equal(folds, draw_folds(dataset, config.protocol, 1))
    training = np.flatnonzero(folds == 0)
    assert len(training) == statistics.n_rows == 60
    (trial,) = planned_trials(config.protocol)
    restricted = statistics.restrict(trial.training)
    np.testing.assert_array_equal(np.sort(restricted.rows), training)
    centered = dataset.target.Y[restricted.rows] - dataset.target.Y[training].mean()
    np.testing.assert_allclose(
        restricted.targets - restricted.targets.mean(axis=0), centered, atol=1e-12
    )
    of_all = gram_statistics(
        build_family(config.kernels, dataset.features),
        dataset.X,
        dataset.target.Y,
        folds,
    )
    expected = of_all.restrict([0])
    np.testing.assert_array_equal(restricted.rows, expected.rows)
    for name in ("products", "target_products", "traces"):
        np.testing.assert_allclose(
            getattr(restricted, name)(),
            getattr(expected, name)(),
            rtol=1e-10,
            err_msg=name,
        )


def test_statistics_of_each_repeat_of_a_split_are_those_of_its_training_rows_in_their_places():
    for family in FAMILIES:
        require_statistics_of_training_rows(family)
    _, ref = stored()
    one, other = (
        split_config("linear", repeats=2),
        split_config("linear", repeats=2, test=49),
    )
    keys = [
        stored_statistics(ref, config, repeat).key
        for config in (one, other)
        for repeat in (0, 1)
    ]
    assert len(set(keys)) == 4
    assert stored_statistics(ref, one).key == keys[0]
    assert (
        len({fold_seed(seed, repeat) for seed in range(3) for repeat in range(3)}) == 9
    )
    assert [
        len(planned_trials(protocol))
        for protocol in (one.protocol, ProtocolConfig(folds=7))
    ] == [1, 7]


@pytest.mark.parametrize("family", FAMILIES)
def test_all_of_the_statistics_are_reported_as_done(family: str):
    (_, ref), of, shares = stored(), split_config(family), []
    with disable_run_logger(), DaskPool(of.dask) as pool:
        measuring.compute_statistics.fn(ref, of, 0, pool, shares.append)
    assert sum(shares) == pytest.approx(1.0)


def test_a_split_that_a_data_set_does_not_allow_gets_one_sentence():
    dataset, of = stored()[0], split_config("linear")
    # All zeros but for the last
    one = Dataset(dataset.X, Target.of(np.eye(301)[-1], "regression"), dataset.features)
    repeat = next(r for r in range(9) if draw_folds(one, of.protocol, r)[-1] != 0)
    with pytest.raises(InputError, match="data set rare: Y must vary, got a co"):
        stored_statistics(store_dataset(one, "rare", "here"), of, repeat)
    _, ref = stored(classes=3)
    rows = r"data set data: train, validation, test must .* 301 rows there are, got 212 \+ 40 \+ 50 = 302[^\n]*"
    classes = r"data set data: each class must have at least one training row, got none of class '2'[^\n]*"
    for train, sentence in ((212, rows), (2, classes)):
        of = split_config("linear", train=train)
        with pytest.raises(InputError, match=rf"^{sentence}$"):
            measuring.require_feasible(ref, of.kernels, of.protocol)


# Scaling and missing values by the training rows ----------------------------------------------------------------------

COLUMNS = {"when": "date", "size": ["small", "large"]}


def mixed(path: str = "data.parquet", changed: Any = ()) -> pd.DataFrame:
    """Write a table of numbers, dates and categories with missing values; `changed` alters some of its rows."""
    rng, m = np.random.default_rng(0), 90
    rows = pd.DataFrame({"a": rng.lognormal(size=m), "b": rng.normal(size=m)})
    rows["color"] = rng.choice(["red", "green", "blue"], m)
    rows["when"] = pd.date_range("2024-01-01", periods=m).strftime("%Y-%m-%d")
    rows["size"] = rng.choice(["small", "large"], m)
    rows["y"] = rows["b"] + (rows["color"] == "red") + 0.1 * rng.normal(size=m)
    rows.loc[::7, "b"] = np.nan
    rows.loc[changed, ["a", "b", "color"]] = 1e6, 1e6, "mauve"
    rows.to_parquet(path)
    return rows


def own(protocol: Any = None, **data: Any) -> CompareConfig:
    """A configuration of which each trial scales by its training rows."""
    keys = {"protocol": protocol | {"grid": GRID}} if protocol else {}
    return config(
        {"scale": "standard", "scale_on": "training", "columns": COLUMNS} | data, **keys
    )


SPLIT = {"split": {"train": 40, "validation": 20, "test": 30}, "refit": True}


@pytest.mark.parametrize(
    "protocol", [{"folds": 3}, {"folds": 3, "refit": True}, SPLIT], ids=str
)
def test_a_trial_scales_and_learns_from_the_rows_of_its_last_fit_alone(
    protocol: dict[str, Any],
):
    frame, of = mixed(), own(protocol)
    ref = ingested(of)
    dataset = load_dataset(ref)
    assert (dataset.by_training, dataset.raw.column_names) == (
        "standard",
        ["a", "b", "color", "when", "size"],
    )
    assert store_dataset(dataset, ref.name, ref.source) == ref
    assert Path(ref.path, "raw.arrow").exists()
    (trial, *_) = planned_trials(of.protocol)
    scaled, statistics, row = measured(of, trial, "krr")
    folds, X, target = (
        load_statistics(statistics)[1],
        load_dataset(scaled).X,
        Target.of(frame["y"].to_numpy()),
    )
    np.testing.assert_array_equal(folds, draw_folds(dataset, of.protocol, 0))
    learning, choosing, testing = (
        np.isin(folds, rows) for rows in (trial.training, trial.validation, trial.test)
    )
    final = learning | choosing if trial.refit else learning

    b, a = frame["b"].to_numpy(), frame["a"].to_numpy()
    b = np.where(np.isnan(b), np.nanmedian(b[final]), b)
    for name, values in {"a": a, "b": b}.items():
        expected = (values - values[final].mean()) / values[final].std()
        np.testing.assert_allclose(
            X[:, dataset.features.index(name)], expected, rtol=1e-12, atol=1e-12
        )
    columns = frame.drop(columns="y")
    encoding = TableEncoding.of(columns[final], COLUMNS)
    at = [dataset.features.index(name) for name in encoding.features]
    np.testing.assert_allclose(X[:, at], encoding.encode(columns), atol=1e-12)
    assert load_dataset(scaled).features == dataset.features

    def errors(training: np.ndarray, rows: np.ndarray, grid: list[float]) -> np.ndarray:
        train = np.flatnonzero(training)
        kernel = learn_kernel(
            X[train],
            target.values[train],
            learner="alignf",
            family=GaussianFamily(GAMMAS),
        )
        told = KernelPredictors([kernel], target.take(train), "krr", grid).predict(
            X[rows]
        )
        return np.sqrt(np.square(told - target.values[rows]).mean(axis=1))

    _, position = best_on_grid(
        errors(learning, choosing, GRID)[None], smooth=trial.refit
    )
    assert row["regularization"] == GRID[position]
    assert row["error"] == pytest.approx(
        errors(final, testing, [GRID[position]])[0], rel=1e-9
    )
    assert row["n_train"] == final.sum() >= learning.sum()


@pytest.mark.parametrize("search_rows", [20, 2000])
def test_a_refit_keeps_the_kernel_that_was_found_on_a_sample(search_rows: int):
    mixed()
    learner = {"name": "rfm", "params": {"search_rows": search_rows}}
    of = config(
        {"columns": COLUMNS},
        protocol={"folds": 3, "refit": True, "grid": GRID},
        learners=[learner],
    )
    ref, statistics, row = measured(
        of, (trial := planned_trials(of.protocol)[0]), "krr"
    )
    (learning, choosing, testing), dataset = (
        rows_of(statistics, trial),
        load_dataset(ref),
    )
    X, target, final = (
        dataset.X,
        dataset.target,
        np.sort(np.concatenate([learning, choosing])),
    )
    rfm, rows = (
        RFM(search_rows=search_rows),
        learning if len(learning) > search_rows else final,
    )
    kernels = rfm.for_features(dataset.features).learn_from_rows(X, target, [1.0], rows)
    hypotheses = KernelPredictors(
        kernels, target, "krr", [row["regularization"]], X=X, training=final
    )
    errors = hypotheses.predict(X[testing])[0] - target.values[testing]
    assert row["error"] == pytest.approx(np.sqrt(np.square(errors).mean()), rel=1e-9)
    assert row["n_train"] == len(final)


@pytest.mark.parametrize("scale", ["unit", "standard", "quantile"])
def test_rows_that_do_not_train_change_nothing(scale: str):
    mixed()
    trial = trials(3)[0]
    ref, statistics, _ = measured(own(scale=scale), trial, "krr")
    folds = load_statistics(statistics)[1]
    mixed("other.parquet", np.flatnonzero(folds == trial.test))
    changed, others, _ = measured(own(scale=scale, path="other.parquet"), trial, "krr")
    np.testing.assert_array_equal(folds, load_statistics(others)[1])
    training = rows_of(statistics, trial)[0]
    ours, theirs = load_dataset(ref), load_dataset(changed)
    for j, name in enumerate(ours.features):
        np.testing.assert_array_equal(
            ours.X[training, j], theirs.X[training, theirs.features.index(name)]
        )
    # A level that no training row has is different from all, and as far from each as
    # these are from none.
    assert not theirs.X[:, theirs.features.index("color=mauve")].any()


def test_numbers_without_missing_values_are_scaled_anew_and_raw_features_stay():
    rng = np.random.default_rng(0)
    X, target, some = (
        rng.normal(3.0, 2.0, (40, 3)),
        Target.of(rng.normal(size=40)),
        np.arange(10),
    )
    low, spread = X.mean(axis=0), X.std(axis=0)
    dataset = Dataset(
        (X - low) / spread, target, ("a", "b", "c"), low, spread, by_training="standard"
    )
    scaled = dataset.learned_on(some)
    np.testing.assert_allclose(
        scaled.X, (X - X[some].mean(axis=0)) / X[some].std(axis=0), rtol=1e-11
    )
    np.testing.assert_allclose(
        scaled.X * scaled.scaling[1] + scaled.scaling[0], X, rtol=1e-12
    )
    assert dataset_digest(dataset) != dataset_digest(scaled)
    counts = sparse.random(40, 5, 0.5, "csr", random_state=0)
    unit = Dataset(
        counts, target, tuple("abcde"), np.zeros(5), np.ones(5), by_training="unit"
    ).learned_on(some)
    np.testing.assert_allclose(unit.X.toarray()[some].max(axis=0), 1.0)
    pd.DataFrame({"a": X[:, 0], "y": target.values}).to_parquet("raw.parquet")
    assert not load_dataset(
        ingested(own(path="raw.parquet", scale="none", columns=None))
    ).by_training


def test_columns_without_values_among_the_training_rows_are_flat_there():
    columns, some, empty = (
        mixed().drop(columns="y"),
        np.arange(30),
        ["a", "when", "size"],
    )
    columns.loc[some, empty] = None
    encoding = TableEncoding.of(columns, COLUMNS).learned_on(
        columns.iloc[some], "standard"
    )
    X = encoding.encode(columns)
    assert np.isfinite(X).all()
    for name in empty:
        assert not X[some, encoding.features.index(name)].any()
        assert X[some, encoding.features.index(f"{name} missing")].all()


def test_cross_validation_within_the_training_rows_takes_their_units():
    mixed()
    of = own({"split": {"train": 60, "test": 20}, "choose": {"folds": 3}})
    (trial,) = planned_trials(of.protocol)
    ref, statistics, row = measured(of, trial, "krr")
    training = rows_of(statistics, trial)[0]
    np.testing.assert_allclose(load_dataset(ref).X[training, 0].mean(), 0.0, atol=1e-12)
    assert row["n_train"] == 60


def test_a_recipe_names_the_scaling_rows_and_stored_matrices_need_all():
    mixed()
    of = own()
    assert recipe(of) != recipe(own(scale_on="all"))
    assert recipe(of) != recipe(own(columns=COLUMNS | {"a": "drop"}))
    with pytest.raises(
        InputError,
        match="data set data: with 'scale_on: training' each trial has features of its own",
    ):
        require_matrices(ingested(of), of)
    stored = of.model_dump(by_alias=True) | {
        "kernels": {"family": "precomputed", "path": "m"}
    }
    with pytest.raises(
        ValueError, match="'scale_on: all', or name the families themselves"
    ):
        CompareConfig.model_validate(stored)


# Held-out predictions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("predictor", "classes"), [("svm", 2), ("svm", 3), ("krr", 0)])
def test_kept_predictions_are_those_of_scikit_learn_on_the_centered_kernel(
    predictor: str, classes: int
):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(120, 2))
    y = X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=120)
    if classes:
        y = np.array(["a", "b", "c"])[np.argsort(np.argsort(y)) * classes // 120]
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).to_parquet("data.parquet")
    _, statistics, row = measured(
        config({}, kernels={"family": "gaussian", "gammas": [0.5]}), TRIAL, predictor
    )
    training, _, test = rows_of(statistics, TRIAL)
    centerer = KernelCenterer()
    K = centerer.fit_transform(rbf_kernel(X[training], gamma=0.5))
    K_test = centerer.transform(rbf_kernel(X[test], X[training], gamma=0.5))
    scale = np.trace(K) / len(K)
    held_out = row[HELD_OUT]
    C = row["regularization"]
    np.testing.assert_array_equal(held_out.rows, test)
    if not classes:
        ridge = KernelRidge(alpha=1 / C, kernel="precomputed").fit(
            K / scale, y[training] - y[training].mean()
        )
        np.testing.assert_array_equal(held_out.measured, y[test])
        np.testing.assert_allclose(
            held_out.predicted,
            y[training].mean() + ridge.predict(K_test / scale),
            atol=1e-9,
        )
        assert np.sqrt(np.mean((held_out.predicted - y[test]) ** 2)) == pytest.approx(
            row["error"], rel=1e-12
        )
        return
    machine = SVC(C=C, kernel="precomputed", tol=1e-8).fit(K / scale, y[training])
    names = np.array(held_out.classes)
    np.testing.assert_array_equal(names[held_out.measured], y[test])
    np.testing.assert_array_equal(
        names[held_out.predicted], machine.predict(K_test / scale)
    )
    # Both solve the same problem to a tolerance of theirs.
    np.testing.assert_allclose(
        held_out.scores, machine.decision_function(K_test / scale), atol=0.01
    )
    assert held_out.probabilities is None
    assert np.mean(held_out.predicted != held_out.measured) == row["error"]


def test_predictors_that_miss_a_class_keep_predictions_without_scores():
    target = Target.of(np.array(["a", "b", "c"])[np.arange(90) % 3])
    X, rows = np.random.default_rng(0).normal(size=(90, 2)), np.arange(60, 90)
    training = np.flatnonzero(target.values[:60] < 2)
    kernel = learn_kernel(
        X[training],
        target.given[training],
        learner="unif",
        family=GaussianFamily([0.5]),
    )
    fitted = KernelPredictors(
        (kernel,), target, "svm", [1.0, 2.0], X=X, training=training
    )
    held_out = predict_held_out(
        fitted, 1, X, target, training, rows, np.array([1.0, 0.0])
    )
    np.testing.assert_array_equal(held_out.predicted, fitted.predict(X[rows])[1])
    assert (held_out.scores, held_out.probabilities) == (None, None)


@pytest.mark.parametrize("present", [[0, 2], [0, 2, 3]])
def test_scores_of_classes_with_training_rows_are_as_if_no_other_class_existed(present):
    rng = np.random.default_rng(0)
    codes = np.arange(120) % 4
    X = rng.normal(size=(120, 2)) + codes[:, None]
    target = Target.of(np.array(["a", "b", "c", "d"])[codes])
    training = np.flatnonzero(np.isin(codes[:80], present))
    kernel = learn_kernel(
        X[training],
        target.given[training],
        learner="unif",
        family=GaussianFamily([0.5]),
    )
    scores = KernelPredictors(
        [kernel], target, "svm", [1.0], X=X, training=training
    ).scores(X[80:])[0]
    others = np.setdiff1d(range(4), present)
    assert scores.shape == (40, 4)
    assert (scores[:, others] == -1).all()
    assert (scores[:, present].min(axis=1) > -1 / 3).all()

    known = np.flatnonzero(np.isin(codes, present))
    smaller = Target.of(target.given[known])
    of_known = np.flatnonzero(np.isin(known, training))
    expected = KernelPredictors(
        [kernel], smaller, "svm", [1.0], X=X[known], training=of_known
    ).scores(X[80:])[0]
    if len(present) == 2:
        np.testing.assert_array_equal(scores[:, 2] > scores[:, 0], expected > 0)
    else:
        # The order of the kernel's rows in memory moves the last digit.
        np.testing.assert_allclose(scores[:, present], expected, atol=1e-12)


def test_few_predictions_are_kept_of_many_test_rows():
    rows = np.arange(0, 30_000, 3)
    kept = sampled_test_rows(rows, 5)
    assert (len(kept), kept[0], kept[-1]) == (MOST_PREDICTIONS // 5, 0, 29_997)
    assert np.isin(kept, rows).all()
    np.testing.assert_array_equal(sampled_test_rows(rows[:900], 5), rows[:900])
    assert len(sampled_test_rows(rows, 10_000)) == FEWEST_PREDICTIONS


# Class weights -------------------------------------------------------------------------------------------------------

TRIAL = trials(3)[0]
SEARCH = {"gammas": [0.3], "grid": [2.0], "absolute": True}


@pytest.fixture
def patients(folder: Path) -> pd.DataFrame:
    """A table of two classes, of which one counts four times by its weights."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(120, 2)), columns=["a", "b"])
    table["y"] = np.where(
        table["a"] * table["b"] + 0.5 * rng.normal(size=120) > 0.7, "ill", "well"
    )
    table["w"] = np.where(table["y"] == "ill", 4.0, 1.0)
    table.to_parquet("data.parquet")
    return table


def classes(
    learner: str = "alignf", baseline: Any = None, **data: Any
) -> CompareConfig:
    protocol = {"folds": 3, "grid": [1.0]}
    return config(
        {"features": ["a", "b"]} | data,
        learners=learner,
        baseline=baseline,
        protocol=protocol,
    )


def test_a_baseline_has_the_errors_and_probabilities_of_scikit_learn(
    patients: pd.DataFrame,
):
    X, y = patients[["a", "b"]].to_numpy(), patients["y"].to_numpy()
    ref, statistics, _ = measured(classes(), TRIAL, "svm")
    training, choosing, test = rows_of(statistics, TRIAL)
    machine = SVC(gamma=0.3, C=2.0).fit(X[training], y[training])
    slope, offset = fit_sigmoid(
        machine.decision_function(X[choosing]), y[choosing] == "well", None
    )
    p = expit(slope * machine.decision_function(X[test]) + offset)
    expected = {"misclassification": np.mean(machine.predict(X[test]) != y[test])}
    expected |= {
        "neg_log_loss": log_loss(y[test], p),
        "roc_auc_ovr": 1 - roc_auc_score(y[test], p),
    }
    for metric, error in expected.items():
        job = TrialJob(
            ref,
            statistics,
            TRIAL,
            baselines(SEARCH, None if metric == "misclassification" else metric),
        )
        found, trees = (run_baseline(job, kind) for kind in (GRID_SEARCH, BOOSTING))
        assert found["error"] == pytest.approx(error)
        assert found["metric"] == trees["metric"]
        assert 0 < trees["error"] < 2
        held_out = found[HELD_OUT]
        np.testing.assert_array_equal(held_out.rows, test)
        np.testing.assert_array_equal(
            held_out.predicted, machine.predict(X[test]) == "well"
        )
        np.testing.assert_allclose(held_out.scores, machine.decision_function(X[test]))
        if metric == "neg_log_loss":
            np.testing.assert_allclose(held_out.probabilities[:, 1], p)
        assert (held_out.probabilities is not None) == (metric != "misclassification")
        assert trees[HELD_OUT].probabilities.shape == (len(test), 2)


def test_boosting_has_categories_and_gaps_as_such():
    rng = np.random.default_rng(4)
    levels, b = (
        rng.integers(0, 9, 240),
        np.where(rng.random(240) < 0.3, np.nan, rng.normal(size=240)),
    )
    y = rng.permutation(9)[levels] + 3.0 * np.isnan(b) + 0.1 * rng.normal(size=240)
    pd.DataFrame({"level": [f"l{i}" for i in levels], "b": b, "y": y}).to_parquet(
        "data.parquet"
    )
    of = config({}, baseline={"boosting": True}, protocol={"folds": 3, "grid": [1.0]})
    ref, statistics, _ = measured(of, TRIAL, "krr")
    found = run_baseline(TrialJob(ref, statistics, TRIAL, of), BOOSTING)
    training, _, test = rows_of(statistics, TRIAL)
    chosen = json.loads(found["params"])
    assert {*chosen} == {"max_leaf_nodes", "learning_rate"}
    assert np.isnan(found["regularization"])  # trees have no C
    trees = HistGradientBoostingRegressor(
        categorical_features=[0], random_state=0, **chosen
    )
    X = np.column_stack([levels, b])
    predicted = trees.fit(X[training], y[training]).predict(X[test])
    assert found["error"] == pytest.approx(
        np.sqrt(np.mean((predicted - y[test]) ** 2)), rel=1e-6
    )


def by_default_estimator(
    of: CompareConfig, trial: Trial
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The row of the default estimator on the rows of a trial, and these."""
    scaled_in_trial = trial if of.datasets[0].scale_on == "training" else None
    ref = ingested(of, scaled_in_trial)
    statistics = stored_statistics(ref, of, trial=scaled_in_trial)
    return run_baseline(TrialJob(ref, statistics, trial, of), ESTIMATOR), rows_of(
        statistics, trial
    )


def test_the_default_estimator_is_fitted_with_trees_as_on_the_table_in_python():
    rng = np.random.default_rng(4)
    n = 3 * LEAST_ROWS // 2
    # Levels are in one order, by frequency, in all rows and in few
    levels = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    b = np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n))
    y = rng.permutation(4)[levels] + 3.0 * (b > 0.2) + 0.1 * rng.normal(size=n)
    table = pd.DataFrame({"level": [f"l{i}" for i in levels], "b": b, "y": y})
    table.to_parquet("data.parquet")
    data = {"scale": "standard", "scale_on": "training", "missing": "impute"}
    of = config(
        data,
        baseline={"estimator": True},
        protocol={"folds": 3, "refit": True, "grid": [1.0]},
    )
    row, (training, validation, test) = by_default_estimator(
        of, replace(TRIAL, refit=True)
    )
    training = np.sort(np.append(training, validation))
    assert len(training) >= LEAST_ROWS
    model = KernelLearningRegressor().fit(
        table.loc[training, ["level", "b"]], y[training]
    )
    assert model.boost_share_ > 0
    predicted = model.predict(table.loc[test, ["level", "b"]])
    # Equal but for the order in which features are summed.
    np.testing.assert_allclose(row[HELD_OUT].predicted, predicted, rtol=1e-6)
    assert row["error"] == pytest.approx(
        np.sqrt(np.mean((predicted - y[test]) ** 2)), rel=1e-6
    )
    assert row["alignment"] == pytest.approx(model.alignment_, rel=1e-6)
    assert row["regularization"] == pytest.approx(model.C_)
    assert (row["learner"], row["algorithm"], row["predictor"]) == (
        "default estimator",
        "estimator",
        "auto",
    )
    assert (
        row["n_kernels"],
        row["weights"],
        row["kernels"],
        row["validation_error"],
    ) == (0, [], [], None)


@pytest.mark.parametrize("metric", [None, "neg_log_loss", "roc_auc"])
@pytest.mark.parametrize(
    "divided_by", [{}, {"groups": "g"}, {"time": "t"}, {"weights": "w"}]
)
def test_the_default_estimator_respects_groups_time_and_weights(
    patients: pd.DataFrame, metric: str | None, divided_by: dict[str, str]
):
    table = patients.assign(g=np.arange(120) // 4, t=np.arange(120))
    table.to_parquet("data.parquet")
    protocol = {"folds": 3, "grid": [1.0], "metric": metric}
    of = config(
        {"features": ["a", "b"]} | divided_by,
        baseline={"estimator": True},
        protocol=protocol,
    )
    trial = planned_trials(of.protocol, "time" in divided_by)[0]
    row, (training, _, test) = by_default_estimator(of, trial)
    arguments = {
        key: table[column].to_numpy()[training] for key, column in divided_by.items()
    }
    weights = None
    if "weights" in arguments:
        arguments["sample_weight"] = arguments.pop("weights")
        weights = table["w"].to_numpy()[test]
    model = KernelLearningClassifier().fit(
        table.loc[training, ["a", "b"]], table["y"][training], **arguments
    )
    new = table.loc[test, ["a", "b"]]
    is_well = table["y"][test] == "well"
    errors = {
        None: np.average(model.predict(new) != table["y"][test], weights=weights),
        "neg_log_loss": log_loss(
            is_well, model.predict_proba(new), sample_weight=weights
        ),
        "roc_auc": 1
        - roc_auc_score(is_well, model.decision_function(new), sample_weight=weights),
    }
    assert row["error"] == pytest.approx(errors[metric], rel=1e-6)
    np.testing.assert_allclose(
        row[HELD_OUT].probabilities, model.predict_proba(new), rtol=1e-6
    )


def test_the_default_estimator_ignores_times_by_which_it_cannot_choose(
    patients: pd.DataFrame,
):
    patients.assign(
        t=np.arange(120), y=np.where(np.arange(120) % 40 < 37, "ill", "well")
    ).to_parquet("data.parquet")
    of = config({"features": ["a", "b"], "time": "t"}, baseline={"estimator": True})
    row, (training, _, _) = by_default_estimator(
        of, planned_trials(of.protocol, True)[0]
    )
    labels = pd.read_parquet("data.parquet")["y"][training]
    with pytest.raises(
        ValueError, match="time must leave each class rows before the last"
    ):
        KernelLearningClassifier().fit(
            patients.loc[training, ["a", "b"]], labels, time=training
        )
    assert np.isfinite(row["error"])


def test_boosting_takes_one_target_and_the_default_estimator_dense_features():
    X, target = bundled(load_diabetes)
    names = tuple(f"f{c}" for c in range(X.shape[1]))
    several = Target.of(np.column_stack([target.values, target.values]), "regression")
    served = {}
    for name, rows, of in (
        ("dense", X, target),
        ("sparse", sparse.csr_matrix(X), target),
        ("several", X, several),
    ):
        ref = store_dataset(Dataset(rows, of, names), "set", "test")
        served[name] = [
            kind
            for kind in (CONSTANT, LINEAR, BOOSTING, ESTIMATOR)
            if serves(kind, ref)
        ]
    assert served == {
        "dense": [CONSTANT, LINEAR, BOOSTING, ESTIMATOR],
        "sparse": [CONSTANT, LINEAR, BOOSTING],
        "several": [CONSTANT, LINEAR],
    }
    of_matrices = replace(ref, n_features=0)
    assert [
        kind for kind in (CONSTANT, LINEAR, ESTIMATOR) if serves(kind, of_matrices)
    ] == [CONSTANT]


def test_probabilities_of_weighed_classes_are_shares_of_rows(patients: pd.DataFrame):
    X, y = patients[["a", "b"]].to_numpy(), patients["y"].to_numpy()
    share = np.mean(y == "ill")
    for weight in (None, "balanced", {"ill": 9.0}):
        model = KernelLearningClassifier(
            family=GaussianFamily([0.3]), C=1.0, class_weight=weight, probability=True
        ).fit(X, y)
        assert model.predict_proba(X)[:, 0].mean() == pytest.approx(share, abs=0.07), (
            weight
        )


# A baseline, against scikit-learn called by hand ---------------------------------------------------------------------

WIDTHS, COSTS = [0.01, 0.1, 1.0], [0.5, 5.0]


def baselines(keys: dict[str, Any], metric: str | None = None) -> CompareConfig:
    return config({}, baseline=keys, protocol={"metric": metric})


def searched(
    X: Any,
    target: Target,
    folds: np.ndarray,
    trial: Trial,
    kind: Any = GRID_SEARCH,
    **baseline: Any,
):
    ref = store_dataset(
        Dataset(X, target, tuple(f"f{c}" for c in range(X.shape[1]))), "set", "test"
    )
    statistics = StatisticsRef("key", str(store_path("statistics", "key")), 4)
    dense = X.toarray() if sparse.issparse(X) else X
    save_statistics(
        statistics, gram_statistics(GaussianFamily([0.1]), dense, target.Y), folds, 1.0
    )
    return run_baseline(TrialJob(ref, statistics, trial, baselines(baseline)), kind)


def bundled(load: Any) -> tuple[np.ndarray, Target]:
    X, y = load(return_X_y=True)
    return (X / X.std(axis=0))[:150], Target.of(
        (y.astype(str) if load is load_wine else y)[:150]
    )


def error_by_hand(
    X: np.ndarray, target: Target, training: Any, rows: Any, gamma: float, C: float
) -> float:
    """Of an SVM or a ridge regression on training rows."""
    y = target.values
    if target.task == "classification":
        return float(
            np.mean(
                SVC(gamma=gamma, C=C).fit(X[training], y[training]).predict(X[rows])
                != y[rows]
            )
        )
    # The intercept is not penalized: one more unknown, with the residuals' sum zero
    n = training.sum()
    K, ones = rbf_kernel(X[training], gamma=gamma), np.ones((n, 1))
    system = np.block([[K + np.eye(n) / C, ones], [ones.T, 0.0]])
    *dual, intercept = np.linalg.solve(system, np.append(y[training], 0.0))
    predicted = rbf_kernel(X[rows], X[training], gamma=gamma) @ dual + intercept
    return float(np.sqrt(np.mean((predicted - y[rows]) ** 2)))


def alignment_by_hand(K: np.ndarray, Y: np.ndarray) -> float:
    """Definition 4 of JMLR 13:795-828."""
    H = np.eye(len(K)) - 1 / len(K)
    K, L = H @ K @ H, H @ (Y @ Y.T) @ H
    return float(np.sum(K * L) / np.sqrt(np.sum(K * K) * np.sum(L * L)))


CHOSEN = [
    (load_wine, "one fold"),
    (load_wine, "all"),
    (load_diabetes, "one fold, refit"),
    (load_diabetes, "all"),
]


@pytest.mark.parametrize(("load", "chosen_by"), CHOSEN)
def test_every_setting_is_tried_on_the_rows_of_the_trial(load: Any, chosen_by: str):
    X, target = bundled(load)
    nested, refit = chosen_by == "all", chosen_by == "one fold, refit"
    if nested:
        folds, trial = (
            assign_nested_split(target, 90, 40, 4, seed=3),
            nested_split_trial(4),
        )
    else:
        folds, trial = (
            assign_folds(target, 5, seed=3),
            replace(trials(5)[2], refit=refit),
        )
    row = searched(X, target, folds, trial, gammas=WIDTHS, grid=COSTS, absolute=True)
    expected = np.zeros((3, 2))
    validating = trial.training if nested else [trial.validation]
    for (g, gamma), (c, C), fold in itertools.product(
        enumerate(WIDTHS), enumerate(COSTS), validating
    ):
        learning, rows = np.isin(folds, trial.training) & (folds != fold), folds == fold
        expected[g, c] += error_by_hand(X, target, learning, rows, gamma, C) / len(
            validating
        )
    np.testing.assert_allclose(row["candidate_errors"], expected, rtol=1e-9, atol=1e-12)
    g, c = best_on_grid(np.array(row["candidate_errors"]), smooth=refit)
    test = folds == trial.test
    training = (
        ~test & (folds >= 0) if nested or refit else np.isin(folds, trial.training)
    )
    assert row["error"] == pytest.approx(
        error_by_hand(X, target, training, test, WIDTHS[g], COSTS[c])
    )
    assert (row["repeat"], row["n_train"], row["n_test"]) == (
        4,
        training.sum(),
        test.sum(),
    )
    assert (row["learner"], row["algorithm"]) == ("GridSearchCV", "grid-search")
    K = rbf_kernel(X[training], gamma=WIDTHS[g])
    assert row["alignment"] == pytest.approx(
        alignment_by_hand(K, target.Y[training]), rel=1e-9
    )
    assert row["regularization"] == COSTS[c]


@pytest.mark.parametrize("load", [load_wine, load_diabetes])
@pytest.mark.parametrize("refit", [False, True])
def test_a_linear_model_and_the_best_constant_learn_from_the_training_rows(
    load: Any, refit: bool
):
    X, target = bundled(load)
    folds, trial = assign_folds(target, 5, seed=3), replace(trials(5)[2], refit=refit)
    few, training = np.isin(folds, trial.training), np.isin(folds, trial.final)
    test, choosing = folds == trial.test, folds == trial.validation
    model = LogisticRegression(max_iter=1000) if load is load_wine else RidgeCV(ALPHAS)

    def error(learning: np.ndarray, rows: np.ndarray) -> float:
        scaler = StandardScaler().fit(X[learning])
        fitted = model.fit(scaler.transform(X[learning]), target.values[learning])
        return target.take(np.flatnonzero(rows)).error(
            fitted.predict(scaler.transform(X[rows]))
        )

    for of in (X, sparse.csr_matrix(X)):
        row = searched(of, target, folds, trial, LINEAR)
        assert row["error"] == pytest.approx(error(training, test), rel=1e-6)
        assert row["validation_error"] == pytest.approx(error(few, choosing), rel=1e-6)
        assert (row["learner"], row["algorithm"], row["n_kernels"]) == (
            "linear model",
            "linear",
            0,
        )
        # Sparse features are scaled and not centered: the kernel differs, and its
        # centered alignment does not.
        Z = StandardScaler().fit_transform(X[training])
        assert row["alignment"] == pytest.approx(
            alignment_by_hand(Z @ Z.T, target.Y[training]), rel=1e-9
        )
    assert row["n_train"] == training.sum()

    values = target.values
    constant = (
        np.bincount(values[training]).argmax()
        if load is load_wine
        else values[training].mean()
    )
    by_hand = target.take(np.flatnonzero(test)).error(np.full(test.sum(), constant))
    row = searched(X, target, folds, trial, CONSTANT)
    assert row["alignment"] is None
    assert row["error"] == row["trivial_error"] == pytest.approx(by_hand)
    assert (row["learner"], row["algorithm"], row["predictor"]) == (
        "best constant",
        "constant",
        "constant",
    )


def test_a_linear_model_has_scores_and_probabilities(patients: pd.DataFrame):
    X, y = patients[["a", "b"]].to_numpy(), patients["y"].to_numpy()
    ref, statistics, _ = measured(classes(), TRIAL, "svm")
    training, _, test = rows_of(statistics, TRIAL)
    p = (
        make_pipeline(StandardScaler(), LogisticRegression())
        .fit(X[training], y[training])
        .predict_proba(X[test])[:, 1]
    )
    for metric, error in {
        "neg_log_loss": log_loss(y[test], p),
        "roc_auc": 1 - roc_auc_score(y[test], p),
    }.items():
        job = TrialJob(ref, statistics, TRIAL, baselines(SEARCH, metric))
        found, none = (run_baseline(job, kind) for kind in (LINEAR, CONSTANT))
        assert found["error"] == pytest.approx(error)
        assert none["error"] == none["trivial_error"]


def test_relative_bandwidths_are_multiples_of_the_scale_of_scikit_learn_sparse_or_dense():
    X, target = bundled(load_diabetes)
    folds, trial = assign_folds(target, 3, seed=0), trials(3)[0]
    training = X[np.isin(folds, trial.training)]
    gamma = 0.5 / (training.shape[1] * training.var())
    by_hand = searched(
        X, target, folds, trial, gammas=[gamma], grid=[1.0], absolute=True
    )["error"]
    rows = [
        searched(of, target, folds, trial, gammas=[0.5], grid=[1.0])
        for of in (X, sparse.csr_matrix(X))
    ]
    dense, in_csr = (row["error"] for row in rows)
    assert dense == pytest.approx(by_hand, rel=1e-12)
    # Distances of sparse rows are summed in another order
    assert in_csr == pytest.approx(by_hand, rel=1e-9)


# Relevance -----------------------------------------------------------------------------------------------------------


def named_rows(task: str) -> pd.DataFrame:
    """Rows whose target depends on two numbers, and not on one of 300 random names."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, 2)), columns=["width", "height"])
    frame["name"] = [f"name {i}" for i in rng.integers(300, size=600)]
    value = 2 * frame["width"] + frame["height"] + 0.5 * rng.normal(size=600)
    if task == "regression":
        return frame.assign(y=value)
    return frame.assign(y=np.where(value > 0, "high", "low"))


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("learner", ["rfm", "alignf"])
def test_random_names_are_not_relevant_on_test_rows(task: str, learner: str):
    named_rows(task).to_parquet("data.parquet")
    of = config({}, learners=learner)
    first, second, *_ = planned_trials(of.protocol)
    ref, _, row = measured(of, first, "krr")
    assert ref.n_rows == 600
    relevance = dict(zip(row["features"], row["relevance"], strict=True))
    assert list(relevance) == ["width", "height", "name"]
    assert relevance["width"] > relevance["height"] > 0.05
    # Chance: a column without effect changes the error by noise alone
    assert abs(relevance["name"]) < 0.05
    assert "relevance" not in measured(of, second, "krr")[2]


def test_relevance_is_the_rise_of_the_error_of_exchanged_test_rows():
    named_rows("regression")[["width", "height", "y"]].to_parquet("data.parquet")
    of = config({})
    (trial, *_) = planned_trials(of.protocol)
    ref, statistics, row = measured(of, trial, "krr")
    training, _, test = rows_of(statistics, trial)
    dataset = load_dataset(ref)
    model = KernelLearningRegressor(
        family=build_family(of.kernels, dataset.features),
        learner="alignf",
        alpha=1 / row["regularization"],
        predictor="krr",
        boost=False,
        intervals=False,
    ).fit(dataset.X[training], dataset.target.values[training])
    X, y = dataset.X[test], dataset.target.values[test]
    error = np.mean((model.predict(X) - y) ** 2)
    for position, relevance in enumerate(row["relevance"]):
        rises = []
        for seed in range(20):
            exchanged = X.copy()
            order = np.random.default_rng(seed).permutation(len(X))
            exchanged[:, position] = X[order, position]
            rises.append(np.mean((model.predict(exchanged) - y) ** 2) - error)
        expected = np.array(rises) / y.var()
        # Within the spread of exchanges with other rows
        assert abs(relevance - expected.mean()) < 4 * expected.std(ddof=1)


@pytest.mark.parametrize("case", ["one column", "many columns", "constant target"])
def test_relevance_is_not_measured_without_meaning_or_at_a_high_price(case: str):
    n_columns = {"one column": 1, "many columns": 301}.get(case, 3)
    X = np.random.default_rng(0).normal(size=(60, n_columns))
    y = X[:, 0] * (case != "constant target")
    names = tuple(f"x{j}" for j in range(n_columns))
    dataset = Dataset(X, Target.of(y, "regression"), names)
    rows = np.arange(60)
    assert measure_relevance(None, 0, X, dataset, rows[:30], rows[30:]) is None


def test_a_ridge_of_several_outputs_predicts_each_as_if_alone():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    Y = X @ rng.normal(size=(2, 3)) + [180.0, 35.0, 0.0]
    ridge = CenteredKernelRidge(gamma=0.1, alpha=1.0)
    together = ridge.fit(X[:20], Y[:20]).predict(X[20:])
    for j, y in enumerate(Y.T):
        alone = ridge.fit(X[:20], y[:20]).predict(X[20:])
        np.testing.assert_allclose(together[:, j], alone, rtol=1e-9)
