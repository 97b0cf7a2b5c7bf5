"""The search over one Gaussian kernel, against scikit-learn called by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_diabetes, load_wine
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from learnkernels import GaussianFamily, gram_moments
from learnkernels.conf.schema import BaselineConfig
from learnkernels.kernels.predictors.choice import best_on_grid
from learnkernels.kernels.protocol.folds import Trial, assign_folds, assign_nested_split, nested_split_trial, trials
from learnkernels.kernels.targets import Target
from learnkernels.tasks.data.dataset import Dataset, store_dataset
from learnkernels.tasks.measure.baseline import GRID_SEARCH, SearchJob, search
from learnkernels.tasks.measure.stored_moments import MomentsRef, save_moments
from learnkernels.tasks.store import store_path

pytestmark = pytest.mark.usefixtures("working_folder")
NUMBERS = itertools.count()
BASELINE = BaselineConfig.model_validate({"gammas": [0.01, 0.1, 1.0], "grid": [0.5, 5.0], "absolute": True})


def job(X, target: Target, folds: np.ndarray, trial: Trial, baseline: BaselineConfig = BASELINE) -> SearchJob:
    ref = store_dataset(Dataset(X, target, tuple(f"f{c}" for c in range(X.shape[1]))), "set", "test")
    moments = MomentsRef("key", str(store_path("moments", f"key-{next(NUMBERS)}")), 4)
    dense = X.toarray() if sparse.issparse(X) else X
    save_moments(moments, gram_moments(GaussianFamily([0.1]), dense, target.Y), folds, 1.0)
    return SearchJob(ref, moments, trial, baseline, GRID_SEARCH)


def wine() -> tuple[np.ndarray, Target]:
    X, y = load_wine(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), Target.of(np.array([f"class_{label}" for label in y]))


def diabetes() -> tuple[np.ndarray, Target]:
    X, y = load_diabetes(return_X_y=True)
    return (X / X.std(axis=0))[:150], Target.of(y[:150])


def error_by_hand(X, target: Target, training, rows, gamma: float, C: float) -> float:
    """Of a machine or a ridge on training rows, where they are told apart."""
    y = target.values
    if target.task == "classification":
        return float(np.mean(SVC(gamma=gamma, C=C).fit(X[training], y[training]).predict(X[rows]) != y[rows]))
    mean = y[training].mean()
    ridge = KernelRidge(kernel="rbf", gamma=gamma, alpha=1 / C).fit(X[training], y[training] - mean)
    return float(np.sqrt(np.mean((ridge.predict(X[rows]) + mean - y[rows]) ** 2)))


@pytest.mark.parametrize("data", [wine, diabetes])
@pytest.mark.parametrize("chosen_by", ["one fold", "one fold, refit", "all"])
def test_every_setting_is_tried_on_the_rows_of_the_trial(data, chosen_by: str):
    X, target = data()
    nested, refit = chosen_by == "all", chosen_by == "one fold, refit"
    if nested:
        folds, trial = assign_nested_split(target, 90, 40, 4, seed=3), nested_split_trial(4)
    else:
        folds, trial = assign_folds(target, 5, seed=3), replace(trials(5)[2], refit=refit)
    row = search(job(X, target, folds, trial))
    training, test = np.flatnonzero((folds != trial.test) & (folds >= 0)), np.flatnonzero(folds == trial.test)
    if not nested and not refit:
        training = np.flatnonzero(np.isin(folds, trial.training))
    expected = np.zeros((3, 2))
    for g, gamma in enumerate([0.01, 0.1, 1.0]):
        for c, C in enumerate([0.5, 5.0]):
            validating = trial.training if nested else [trial.validation]
            for fold in validating:
                held_out = folds == fold
                learning = np.flatnonzero(np.isin(folds, trial.training) & ~held_out)
                rows = np.flatnonzero(held_out)
                expected[g, c] += error_by_hand(X, target, learning, rows, gamma, C) / len(validating)
    np.testing.assert_allclose(row["candidate_errors"], expected, rtol=1e-9, atol=1e-12)
    g, c = best_on_grid(np.array(row["candidate_errors"]), smooth=refit)
    assert row["error"] == pytest.approx(error_by_hand(X, target, training, test, [0.01, 0.1, 1.0][g], [0.5, 5.0][c]))
    assert (row["repeat"], row["n_train"], row["n_test"]) == (4, len(training), len(test))
    assert (row["learner"], row["algorithm"], row["alignment"]) == ("GridSearchCV", "grid-search", None)
    assert row["regularisation"] == [0.5, 5.0][c]


def test_relative_bandwidths_are_multiples_of_the_scale_of_scikit_learn_sparse_or_dense():
    X, target = diabetes()
    folds, trial = assign_folds(target, 3, seed=0), trials(3)[0]
    relative = BaselineConfig.model_validate({"gammas": [0.5], "grid": [1.0]})
    training = X[np.isin(folds, trial.training)]
    gamma = 0.5 / (training.shape[1] * training.var())
    absolute = BaselineConfig.model_validate({"gammas": [gamma], "grid": [1.0], "absolute": True})
    dense, by_hand, in_csr = (
        search(job(of, target, folds, trial, baseline))["error"]
        for of, baseline in ((X, relative), (X, absolute), (sparse.csr_matrix(X), relative))
    )
    assert dense == pytest.approx(by_hand, rel=1e-12)
    assert in_csr == pytest.approx(by_hand, rel=1e-9)  # distances of sparse rows are summed in another order
