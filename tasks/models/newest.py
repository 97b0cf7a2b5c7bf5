"""Compare champion and challenger on rows new to the champion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.model_selection import KFold

from learnkernels.kernels.model import Model
from learnkernels.kernels.targets import Target
from learnkernels.kernels.weights import weights_of_rows

from ..data.dataset import Dataset, DatasetRef, load_dataset, load_target
from ..naming import step
from ..store import store_path
from .registry import ModelVersion, load_version

LEAST_ROWS = 10


@dataclass(frozen=True)
class NewestRows:
    """Errors of two model versions on rows added since the champion's training.

    `challenger` is the error of the challenger's recipe, fitted without the rows that
    it predicts; `p` is two-sided, None if all differences are equal.
    """

    n_rows: int
    measure: str
    challenger: float
    champion: float
    p: float | None


@step("score the newest rows of {challenger_ref.name}")
def score_newest_rows(
    ours: ModelVersion,
    theirs: ModelVersion,
    challenger_ref: DatasetRef,
    champion_ref: DatasetRef,
) -> NewestRows | None:
    """Return two registered versions' errors on rows new to the champion."""
    return errors_on_newest_rows(
        load_version(ours), load_version(theirs), challenger_ref, champion_ref
    )


def errors_on_newest_rows(
    challenger: Model,
    champion: Model,
    challenger_ref: DatasetRef,
    champion_ref: DatasetRef,
) -> NewestRows | None:
    """Return two models' errors on rows added since the champion's training.

    None for few rows, rows with groups or times, or rows in parts.
    """
    if challenger_ref.in_parts or champion_ref.in_parts:
        return None
    dataset = load_dataset(challenger_ref)
    earlier = store_path("datasets", champion.about["digest"])
    is_divided = dataset.groups is not None or dataset.times is not None
    if is_divided or not (earlier / "y.npy").exists():
        return None
    rows = appended_rows(load_target(earlier), dataset.target)
    if len(rows) < LEAST_ROWS:
        return None
    raw_rows = _raw_rows(load_dataset(champion_ref), rows, champion)
    if raw_rows is None:
        return None
    columns = champion.columns(raw_rows)
    champion_predictions = columns["prediction"]
    if champion.task == "regression":
        champion_predictions = champion.scores_in(columns)
    challenger_predictions = predict_without(challenger, dataset, rows)
    y = dataset.target.given[rows]
    return compare_losses(
        y, challenger_predictions, champion_predictions, dataset.target.task
    )


def appended_rows(earlier: Target, target: Target) -> np.ndarray:
    """Return positions of rows after the champion's training rows.

    Empty unless the table begins with the targets of the champion's last rows, at least
    20 and half of all.
    """
    earlier_values = _names_or_numbers(earlier)
    current = _names_or_numbers(target)
    if earlier_values.shape[1:] != current.shape[1:]:
        return np.arange(0)
    n_kept = _overlap(earlier_values, current)
    if n_kept < max(20, len(earlier) / 2):
        return np.arange(0)
    return np.arange(n_kept, len(current))


def _names_or_numbers(target: Target) -> np.ndarray:
    if target.task == "regression":
        return target.values
    return np.take(target.classes, target.values)


def _overlap(earlier: np.ndarray, current: np.ndarray) -> int:
    """Count last rows that begin the current ones (Knuth-Morris-Pratt)."""
    rows = np.concatenate([current, earlier])
    axis = 0 if rows.ndim == 2 else None
    codes = np.unique(rows, axis=axis, return_inverse=True)[1].ravel()
    separator = -1
    joined = np.insert(codes, len(current), separator).tolist()
    lengths = [0]
    for code in joined[1:]:
        length = lengths[-1]
        while length and joined[length] != code:
            length = lengths[length - 1]
        lengths.append(length + (joined[length] == code))
    return lengths[-1]


def predict_without(model: Model, dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """Predict rows in five folds, each by a model trained without that fold."""
    y = dataset.target.given
    all_rows = np.arange(len(y))
    predictions: np.ndarray = np.empty_like(y[rows])
    for _, fold in KFold(5).split(rows):
        training = np.setdiff1d(all_rows, rows[fold])
        X = dataset.X
        if dataset.by_training:
            X = dataset.learned_on(training).X
        weights = weights_of_rows(dataset.weights, training)
        estimator = clone(model.estimator).fit(X[training], y[training], weights)
        predictions[fold] = estimator.predict(X[rows[fold]])
    return predictions


def compare_losses(
    y: np.ndarray, challenger: np.ndarray, champion: np.ndarray, task: str
) -> NewestRows:
    """Return the errors of two versions' predictions, with a paired t-test."""
    losses = np.array([_losses(y, challenger, task), _losses(y, champion, task)])
    errors = losses.mean(axis=1)
    measure = "misclassification rate"
    if task == "regression":
        errors = np.sqrt(errors)
        measure = "root mean squared error"
    p = None
    if np.ptp(losses[0] - losses[1]) > 0:
        p = float(stats.ttest_rel(*losses).pvalue)
    return NewestRows(len(y), measure, float(errors[0]), float(errors[1]), p)


def _losses(y: np.ndarray, predictions: np.ndarray, task: str) -> np.ndarray:
    if task == "regression":
        n = len(y)
        return np.asarray(
            ((predictions.reshape(n, -1) - y.reshape(n, -1)) ** 2).mean(axis=1)
        )
    return np.asarray(predictions.astype(str) != y.astype(str), dtype=float)


def _raw_rows(dataset: Dataset, rows: np.ndarray, champion: Model) -> Any:
    columns = list(champion.features)
    names = dataset.features if dataset.table is None else dataset.table.names
    if not set(columns) <= set(names):
        return None
    if dataset.raw is not None:
        return champion.raw_rows(dataset.raw.take(rows))
    X = dataset.X[rows]
    if dataset.table is not None:
        if not dataset.table.is_decodable:  # an earlier release stored only features
            return None
        return pd.DataFrame(dataset.table.decode(np.asarray(X)))[columns]
    if issparse(X):
        X = X.toarray()
    low, spread = dataset.scaling
    frame = pd.DataFrame(np.asarray(X) * spread + low, columns=list(dataset.features))
    return frame[columns].to_numpy()
