"""Who takes part: each makes an estimator for a table's task, on one thread, as it comes or with a usual search.

Our estimators have as many threads as OMP_NUM_THREADS says.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor, make_column_selector, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from learnkernels import KernelLearningClassifier, KernelLearningRegressor
from learnkernels.kernels.learners import RFM

TUNED = "tuned RBF"
"""What the others are measured against."""

OURS = "learnkernels"

MOST = 255
"""Levels that a category of scikit-learn's trees may have."""

MOST_LENGTHS = 32
"""Features up to which a Gaussian process with one length each is worth waiting for."""


@dataclass(frozen=True)
class Contestant:
    """One way; `make` takes the task, the number of features and a seed."""

    make: Callable[[str, int, int], Any]
    needs: str | None = None
    tasks: tuple[str, ...] = ("classification", "regression")
    most_features: int = 10**6

    def reason_to_skip(self, task: str, d: int) -> str | None:
        """Return why it does not take part, None if it does."""
        if self.needs is not None and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        if task not in self.tasks:
            return f"serves {self.tasks[0]} alone"
        return f"more than {self.most_features} features take minutes" if d > self.most_features else None


def tuned_rbf(task: str, d: int, seed: int) -> Any:
    """Search seven C or ridges and six bandwidths by three folds."""
    gammas = [2.0**exponent / d for exponent in range(-4, 2)]
    if task == "classification":
        return GridSearchCV(SVC(), {"C": [10.0**exponent for exponent in range(-1, 6)], "gamma": gammas}, cv=3)
    grid = {"regressor__alpha": [10.0**exponent for exponent in range(-5, 2)], "regressor__gamma": gammas}
    return GridSearchCV(TransformedTargetRegressor(KernelRidge(kernel="rbf"), transformer=StandardScaler()), grid, cv=3)


def forest(task: str, d: int, seed: int) -> Any:
    """Take 300 trees."""
    kind = RandomForestClassifier if task == "classification" else RandomForestRegressor
    return kind(300, random_state=seed, n_jobs=1)


def boosting(task: str, d: int, seed: int) -> Any:
    """Take scikit-learn's histograms."""
    kind = HistGradientBoostingClassifier if task == "classification" else HistGradientBoostingRegressor
    return kind(random_state=seed)


def lightgbm(task: str, d: int, seed: int) -> Any:
    """Take LightGBM."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    kind = LGBMClassifier if task == "classification" else LGBMRegressor
    return kind(random_state=seed, n_jobs=1, verbose=-1)


def catboost(task: str, d: int, seed: int) -> Any:
    """Take CatBoost."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    kind = CatBoostClassifier if task == "classification" else CatBoostRegressor
    return kind(random_seed=seed, thread_count=1, verbose=0, allow_writing_files=False)


class XRFM(BaseEstimator):  # type: ignore[misc]
    """xRFM, with a fifth of the rows to validate on, as its fit asks for."""

    def __init__(self, task: str, seed: int) -> None:
        self.task, self.seed = task, seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> XRFM:
        """Fit."""
        import torch
        from xrfm import xRFM

        torch.set_num_threads(1)
        torch.manual_seed(self.seed)
        classes = self.task == "classification"
        stratified = y if classes and np.bincount(y).min() > 1 else None
        split = train_test_split(X, y, test_size=0.2, random_state=self.seed, stratify=stratified)
        rows, held = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
        kind = torch.int64 if classes else torch.float32
        target, held_target = (torch.tensor(part, dtype=kind) for part in split[2:])
        if not classes:
            target, held_target = target[:, None], held_target[:, None]
        self.model_ = xRFM(device="cpu", random_state=self.seed, n_threads=1, verbose=False)
        self.model_.fit(rows, target, held, held_target)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Predict."""
        import torch

        return np.asarray(self.model_.predict(torch.tensor(X, dtype=torch.float32))).ravel()


def gaussian_process(task: str, d: int, seed: int) -> Any:
    """Take one length a feature, by the marginal likelihood."""
    kernel = ConstantKernel() * RBF(np.ones(d), (1e-2, 1e4)) + WhiteKernel(0.1, (1e-6, 10))
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)


def ours(learner: str | RFM) -> Callable[[str, int, int], Any]:
    """Return what makes the estimators of this package as they come, but for a learner."""

    def make(task: str, d: int, seed: int) -> Any:
        kind = KernelLearningClassifier if task == "classification" else KernelLearningRegressor
        return kind(learner=learner, random_state=seed, n_jobs=int(os.environ.get("OMP_NUM_THREADS", "1")))

    return make


class Categories(BaseEstimator):  # type: ignore[misc]
    """An estimator of trees that takes columns of text as categories, or as numbers where levels abound."""

    def __init__(self, trees: Any) -> None:
        self.trees = trees

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Categories:
        """Fit."""
        self.levels_ = {name: pd.CategoricalDtype(X[name].dropna().unique()) for name in X if X[name].dtype == object}
        self.trees_ = self.trees.fit(self._typed(X), y)
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Predict."""
        return np.asarray(self.trees_.predict(self._typed(X)))

    def _typed(self, X: pd.DataFrame) -> pd.DataFrame:
        X = X.astype(self.levels_)
        return X.assign(**{name: X[name].cat.codes for name, of in self.levels_.items() if len(of.categories) > MOST})


def raw_rbf(task: str, d: int, seed: int) -> Any:
    """Search one kernel over columns of ones and zeros and standardised numbers, gaps filled with medians."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    texts = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing", missing_values=None),
        OneHotEncoder(handle_unknown="ignore", max_categories=20, sparse_output=False),
        StandardScaler(),
    )
    columns = make_column_transformer(
        (texts, make_column_selector(dtype_include=object)), (numbers, make_column_selector(dtype_exclude=object))
    )
    return make_pipeline(columns, tuned_rbf(task, d, seed))


def raw_boosting(task: str, d: int, seed: int) -> Any:
    """Take scikit-learn's histograms, with categories as such."""
    return Categories(boosting(task, d, seed).set_params(categorical_features="from_dtype"))


RAW_CONTESTANTS = {
    OURS: Contestant(ours("auto")),
    "learnkernels, views": Contestant(ours(RFM(effects="auto"))),
    TUNED: Contestant(raw_rbf),
    "HistGradientBoosting": Contestant(raw_boosting),
    "LightGBM": Contestant(lambda task, d, seed: Categories(lightgbm(task, d, seed)), "lightgbm"),
}
"""Of tables as they are."""

CONTESTANTS = {
    OURS: Contestant(ours("auto")),
    "learnkernels, alignf": Contestant(ours("alignf")),
    TUNED: Contestant(tuned_rbf),
    "Gaussian process": Contestant(gaussian_process, tasks=("regression",), most_features=MOST_LENGTHS),
    "random forest": Contestant(forest),
    "HistGradientBoosting": Contestant(boosting),
    "LightGBM": Contestant(lightgbm, "lightgbm"),
    "CatBoost": Contestant(catboost, "catboost"),
    "xRFM": Contestant(lambda task, d, seed: XRFM(task, seed), "xrfm"),
}
"""By the names of tables and pictures."""
