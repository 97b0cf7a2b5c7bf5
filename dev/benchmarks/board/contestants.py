"""Methods compared: default settings or a standard grid search, on one thread.

The estimators of this package use as many threads as OMP_NUM_THREADS allows.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
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
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from learnkernels import KernelLearningClassifier, KernelLearningRegressor
from learnkernels.kernels import NUMERICS_VERSION

TUNED = "tuned RBF"

OURS = "learnkernels"

MOST = 255
"""Largest number of categories per feature in scikit-learn's trees."""

MOST_LENGTHS = 32
"""Largest number of features for a Gaussian process with one length scale per feature."""


@dataclass(frozen=True)
class Contestant:
    """A method; `make` takes the task, the number of features and a seed, and returns an estimator."""

    make: Callable[[str, int, int], Any]
    needs: str | None = None
    tasks: tuple[str, ...] = ("classification", "regression")
    most_features: int = 10**6
    most_rows: int = 10**9

    def reason_to_skip(self, task: str, n: int, d: int) -> str | None:
        """Return why the method is skipped, None if it is not."""
        if self.needs is not None and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        if task not in self.tasks:
            return f"supports {self.tasks[0]} only"
        if n > self.most_rows:
            return f"takes minutes with more than {self.most_rows} rows"
        if d > self.most_features:
            return f"takes minutes with more than {self.most_features} features"
        return None

    @cached_property
    def version(self) -> str:
        """Version of its package, empty if it is not installed."""
        try:
            installed = importlib.metadata.version(self.needs or "scikit-learn")
        except importlib.metadata.PackageNotFoundError:
            return ""
        if self.needs == OURS:
            return f"{installed}, numerics {NUMERICS_VERSION}"
        return installed


def tuned_rbf(task: str, d: int, seed: int) -> Any:
    """Search seven values of C or alpha and six bandwidths with three-fold cross-validation."""
    gammas = [2.0**exponent / d for exponent in range(-4, 2)]
    if task == "classification":
        return GridSearchCV(
            SVC(),
            {"C": [10.0**exponent for exponent in range(-1, 6)], "gamma": gammas},
            cv=3,
        )
    grid = {
        "regressor__alpha": [10.0**exponent for exponent in range(-5, 2)],
        "regressor__gamma": gammas,
    }
    return GridSearchCV(
        TransformedTargetRegressor(
            KernelRidge(kernel="rbf"), transformer=StandardScaler()
        ),
        grid,
        cv=3,
    )


def forest(task: str, d: int, seed: int) -> Any:
    """Return a random forest of 300 trees."""
    kind = RandomForestClassifier if task == "classification" else RandomForestRegressor
    return kind(300, random_state=seed, n_jobs=1)


def boosting(task: str, d: int, seed: int) -> Any:
    """Return histogram-based gradient boosting of scikit-learn."""
    kind = (
        HistGradientBoostingClassifier
        if task == "classification"
        else HistGradientBoostingRegressor
    )
    return kind(random_state=seed)


def lightgbm(task: str, d: int, seed: int) -> Any:
    """Return LightGBM."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    kind = LGBMClassifier if task == "classification" else LGBMRegressor
    return kind(random_state=seed, n_jobs=1, verbose=-1)


def catboost(task: str, d: int, seed: int) -> Any:
    """Return CatBoost."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    kind = CatBoostClassifier if task == "classification" else CatBoostRegressor
    return kind(random_seed=seed, thread_count=1, verbose=0, allow_writing_files=False)


def logistic(task: str, d: int, seed: int) -> Any:
    """Return logistic regression with standardized features."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))


def pytabkit(name: str) -> Callable[[str, int, int], Any]:
    """Return the maker of a method of pytabkit with its tuned defaults."""

    def make(task: str, d: int, seed: int) -> Any:
        import pytabkit

        kind = getattr(
            pytabkit,
            f"{name}_{'Classifier' if task == 'classification' else 'Regressor'}",
        )
        return kind(device="cpu", random_state=seed, n_threads=1)

    return make


class XRFM(BaseEstimator):  # type: ignore[misc]
    """xRFM, with a fifth of the training rows as its validation set."""

    def __init__(self, task: str, seed: int) -> None:
        self.task, self.seed = task, seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> XRFM:
        """Fit."""
        import torch
        from xrfm import xRFM

        torch.set_num_threads(1)
        torch.manual_seed(self.seed)
        is_classification = self.task == "classification"
        strata = None
        if is_classification and np.bincount(y).min() > 1:
            strata = y
        parts = train_test_split(
            X, y, test_size=0.2, random_state=self.seed, stratify=strata
        )
        X_train, X_valid = (
            torch.tensor(part, dtype=torch.float32) for part in parts[:2]
        )
        if is_classification:
            y_train, y_valid = (
                torch.tensor(part, dtype=torch.int64) for part in parts[2:]
            )
        else:
            y_train, y_valid = (
                torch.tensor(part, dtype=torch.float32)[:, None] for part in parts[2:]
            )
        self.model_ = xRFM(
            device="cpu", random_state=self.seed, n_threads=1, verbose=False
        )
        self.model_.fit(X_train, y_train, X_valid, y_valid)
        if is_classification:
            # It has a column for each index, seen or not
            self.classes_ = np.arange(1 + y.max())
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Predict."""
        import torch

        return np.asarray(
            self.model_.predict(torch.tensor(X, dtype=torch.float32))
        ).ravel()

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Predict probabilities."""
        import torch

        return np.asarray(
            self.model_.predict_proba(torch.tensor(X, dtype=torch.float32))
        )


def xrfm(task: str, d: int, seed: int) -> Any:
    """Return xRFM, for regression with standardized targets."""
    model = XRFM(task, seed)
    if task == "classification":
        return model
    return TransformedTargetRegressor(model, transformer=StandardScaler())


def gaussian_process(task: str, d: int, seed: int) -> Any:
    """Return a Gaussian process with one length scale per feature, fitted by marginal likelihood."""
    kernel = ConstantKernel() * RBF(np.ones(d), (1e-2, 1e4)) + WhiteKernel(
        0.1, (1e-6, 10)
    )
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)


def ours(learner: str) -> Callable[[str, int, int], Any]:
    """Return the maker of the estimators of this package with default settings, except for the learner."""

    def make(task: str, d: int, seed: int) -> Any:
        kind = (
            KernelLearningClassifier
            if task == "classification"
            else KernelLearningRegressor
        )
        return kind(
            learner=learner,
            random_state=seed,
            n_jobs=int(os.environ.get("OMP_NUM_THREADS", "1")),
        )

    return make


class Categories(BaseEstimator):  # type: ignore[misc]
    """Tree ensemble with text columns as categories, or as ordinal codes above a number of levels."""

    def __init__(self, trees: Any, most_levels: float = np.inf) -> None:
        self.trees = trees
        self.most_levels = most_levels

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Categories:
        """Fit."""
        X = dates_as_numbers(X)
        self.levels_ = {
            name: pd.CategoricalDtype(X[name].dropna().unique())
            for name in text_columns(X)
        }
        self.trees_ = self.trees.fit(self._typed(X), y)
        self.classes_ = getattr(self.trees_, "classes_", None)
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Predict."""
        return np.asarray(self.trees_.predict(self._typed(dates_as_numbers(X))))

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Predict probabilities."""
        return np.asarray(self.trees_.predict_proba(self._typed(dates_as_numbers(X))))

    def _typed(self, X: pd.DataFrame) -> pd.DataFrame:
        known = {
            name: X[name].where(X[name].isin(levels.categories), None)
            for name, levels in self.levels_.items()
        }
        typed = X.assign(**known).astype(self.levels_)
        many_levels = [
            name
            for name, levels in self.levels_.items()
            if len(levels.categories) > self.most_levels
        ]
        typed = typed.assign(**{name: typed[name].cat.codes for name in many_levels})
        # LightGBM rejects names with characters of JSON.
        return typed.set_axis([f"x{place}" for place in range(typed.shape[1])], axis=1)


class CatBoostCategories(BaseEstimator):  # type: ignore[misc]
    """CatBoost with its own treatment of categories; a missing category is a category."""

    def __init__(self, trees: Any) -> None:
        self.trees = trees

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> CatBoostCategories:
        """Fit."""
        X = dates_as_numbers(X)
        self.texts_ = text_columns(X)
        self.trees_ = self.trees.fit(self._filled(X), y, cat_features=self.texts_)
        self.classes_ = getattr(self.trees_, "classes_", None)
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Predict."""
        return np.asarray(self.trees_.predict(self._filled(dates_as_numbers(X))))

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Predict probabilities."""
        return np.asarray(self.trees_.predict_proba(self._filled(dates_as_numbers(X))))

    def _filled(self, X: pd.DataFrame) -> pd.DataFrame:
        return X.assign(
            **{name: X[name].fillna("missing").astype(str) for name in self.texts_}
        )


def text_columns(X: pd.DataFrame) -> list[str]:
    """Return the names of the columns of text."""
    return [name for name in X if X[name].dtype == object]


def dates_as_numbers(X: pd.DataFrame) -> pd.DataFrame:
    """Replace dates by day, month, weekday and hour."""
    columns = {}
    for name in X:
        if not is_datetime64_any_dtype(X[name]):
            columns[name] = X[name]
            continue
        dates = X[name]
        columns[name] = (
            dates.astype("datetime64[s]") - pd.Timestamp("1970-01-01").as_unit("s")
        ) / pd.Timedelta(days=1)
        columns[f"{name}, month"] = dates.dt.month
        columns[f"{name}, weekday"] = dates.dt.day_of_week
        columns[f"{name}, hour"] = dates.dt.hour
    return pd.DataFrame(columns)


def raw_rbf(task: str, d: int, seed: int) -> Any:
    """Search one kernel over indicators and standardized numbers, with medians for missing values."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    texts = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing", missing_values=None),
        OneHotEncoder(handle_unknown="ignore", max_categories=20, sparse_output=False),
        StandardScaler(),
    )
    columns = make_column_transformer((texts, text_columns), remainder=numbers)
    return make_pipeline(
        FunctionTransformer(dates_as_numbers), columns, tuned_rbf(task, d, seed)
    )


def raw_boosting(task: str, d: int, seed: int) -> Any:
    """Return histogram-based gradient boosting of scikit-learn with native categories."""
    return Categories(
        boosting(task, d, seed).set_params(categorical_features="from_dtype"), MOST
    )


RAW_CONTESTANTS = {
    OURS: Contestant(ours("auto"), OURS),
    TUNED: Contestant(raw_rbf, most_rows=500),
    "HistGradientBoosting": Contestant(raw_boosting),
    "LightGBM": Contestant(
        lambda task, d, seed: Categories(lightgbm(task, d, seed)), "lightgbm"
    ),
    "CatBoost": Contestant(
        lambda task, d, seed: CatBoostCategories(catboost(task, d, seed)), "catboost"
    ),
}
"""For data sets with categories, unchanged."""

CONTESTANTS = {
    OURS: Contestant(ours("auto"), OURS),
    "learnkernels, alignf": Contestant(ours("alignf"), OURS),
    TUNED: Contestant(tuned_rbf),
    "Gaussian process": Contestant(
        gaussian_process, tasks=("regression",), most_features=MOST_LENGTHS
    ),
    "random forest": Contestant(forest),
    "HistGradientBoosting": Contestant(boosting),
    "LightGBM": Contestant(lightgbm, "lightgbm"),
    "CatBoost": Contestant(catboost, "catboost"),
    "xRFM": Contestant(xrfm, "xrfm"),
    "RealMLP_TD": Contestant(pytabkit("RealMLP_TD"), "pytabkit"),
    "CatBoost_TD": Contestant(pytabkit("CatBoost_TD"), "pytabkit"),
    "LGBM_TD": Contestant(pytabkit("LGBM_TD"), "pytabkit"),
    "XGB_TD": Contestant(pytabkit("XGB_TD"), "pytabkit"),
    "logistic regression": Contestant(logistic, tasks=("classification",)),
}
"""By name; tables and figures show them in this order."""
