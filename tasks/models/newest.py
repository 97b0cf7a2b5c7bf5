"""A champion, as it is in use, and its challenger on rows that the champion has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import KFold

from learnkernels.kernels.model import Model
from learnkernels.kernels.targets import Target

from ..data.dataset import Dataset, DatasetRef, load_dataset
from ..naming import step
from ..store import store_path
from .registry import ModelVersion, load_version

LEAST_ROWS = 10
"""New rows from which on errors on them are measured."""

LEAST_OVERLAP = 20
"""Rows at the end of the champion's that the challenger's table must begin with, so that the rest is new."""

PARTS = 5
"""Parts of the new rows, each of which is predicted by the challenger's recipe without it."""


@dataclass(frozen=True)
class NewestRows:
    """Errors of two versions on rows that the earlier one has not seen.

    Attributes
    ----------
    n_rows : int
    measure : str
        Name of the error.
    challenger : float
        Error of the challenger, learned without the rows that it predicts.
    champion : float
        Error of the champion as it is in use.
    p : float or None
        Two-sided paired t-test of the losses of rows; None where all losses are equal.
    """

    n_rows: int
    measure: str
    challenger: float
    champion: float
    p: float | None


@step("score the newest rows of {ref.name}")
def score_newest_rows(ours: ModelVersion, theirs: ModelVersion, ref: DatasetRef) -> NewestRows | None:
    """Return the errors of challenger and champion on the rows that were appended since the champion learned.

    None where fewer than `LEAST_ROWS` rows were appended, the store has lost the champion's rows, or rows are no
    independent ones in memory: those of groups, of times, in parts, or with an encoding for each trial.
    """
    if ref.in_parts or ref.by_training:
        return None
    challenger, champion = load_version(ours), load_version(theirs)
    dataset, earlier = load_dataset(ref), store_path("datasets", champion.about["digest"]) / "y.npy"
    if dataset.groups is not None or dataset.times is not None or not earlier.exists():
        return None
    rows = appended_rows(np.load(earlier, allow_pickle=False), champion, dataset.target)
    if len(rows) < LEAST_ROWS:
        return None
    predictions = predict_without(challenger, dataset, rows)
    columns = champion.columns(_raw_rows(dataset, rows, champion))
    in_use = champion.scores_in(columns) if champion.task == "regression" else columns["prediction"]
    return compare_losses(dataset.target.given[rows], predictions, in_use, dataset.target.task)


def appended_rows(earlier: np.ndarray, champion: Model, target: Target) -> np.ndarray:
    """Return the positions of the rows after those that the champion learned from; none where the tables differ.

    The champion's table may have lost rows at its beginning.
    """
    today = target.values
    if target.task == "classification":
        names = [str(name) for name in champion.estimator.classes_]
        earlier = np.array(names)[earlier]
        today = np.array(target.classes)[today]
    for lost in range(len(earlier) - LEAST_OVERLAP + 1):
        remaining = earlier[lost:]
        if len(remaining) <= len(today) and np.array_equal(remaining, today[: len(remaining)]):
            return np.arange(len(remaining), len(today))
    return np.arange(0)


def predict_without(model: Model, dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """Return predictions of some rows by the estimator of a model that has learned without them, part by part."""
    y, everything = dataset.target.given, np.arange(len(dataset.target))
    predictions: np.ndarray = np.empty_like(y[rows])
    for _, part in KFold(PARTS).split(rows):
        training = np.setdiff1d(everything, rows[part])
        weights = {} if dataset.weights is None else {"sample_weight": dataset.weights[training]}
        estimator = clone(model.estimator).fit(dataset.X[training], y[training], **weights)
        predictions[part] = estimator.predict(dataset.X[rows[part]])
    return predictions


def compare_losses(y: np.ndarray, challenger: np.ndarray, champion: np.ndarray, task: str) -> NewestRows:
    """Return the errors of two predictions of the same rows, and the test of their losses."""
    n = len(y)
    if task == "regression":
        losses = [((values.reshape(n, -1) - y.reshape(n, -1)) ** 2).mean(axis=1) for values in (challenger, champion)]
        ours, theirs = (float(np.sqrt(loss.mean())) for loss in losses)
        measure = "root mean squared error"
    else:
        losses = [(values.astype(str) != y.astype(str)).astype(float) for values in (challenger, champion)]
        ours, theirs = (float(loss.mean()) for loss in losses)
        measure = "misclassification rate"
    p = None
    if np.ptp(losses[0] - losses[1]) > 0:
        p = float(stats.ttest_rel(*losses).pvalue)
    return NewestRows(n, measure, ours, theirs, p)


def _raw_rows(dataset: Dataset, rows: np.ndarray, champion: Model) -> Any:
    """Return rows as the champion reads them: its columns, not scaled; missing values are imputed as of today."""
    X = dataset.X[rows]
    if dataset.table is not None:
        return pd.DataFrame(dataset.table.decode(np.asarray(X)))[list(champion.features)]
    low, spread = dataset.scaling
    X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    return pd.DataFrame(X * spread + low, columns=list(dataset.features))[list(champion.features)].to_numpy()
