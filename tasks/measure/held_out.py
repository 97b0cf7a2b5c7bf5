"""Predictions for the test rows of trials, which are stored with the fold results and shown in figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from learnkernels.kernels.engine.workers import blas_threads_for
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.predictors.calibration import probabilities
from learnkernels.kernels.protocol.evaluation import KernelPredictors, PredictorPath
from learnkernels.kernels.targets import Target, Task

PREDICTIONS = "predictions.parquet"
"""File of the predictions in the entry of the fold results; entries of earlier versions have none."""

MOST_PREDICTIONS = 5000
"""Most predictions that are kept of one method on one data set, over all trials together."""

FEWEST_PREDICTIONS = 20
"""Predictions of each trial that are kept in any case."""

COLUMNS = pa.schema(
    [
        pa.field("repeat", pa.int32()),
        pa.field("fold", pa.int32()),
        pa.field("row", pa.int64()),
        pa.field("measured", pa.list_(pa.float64())),
        pa.field("predicted", pa.list_(pa.float64())),
        pa.field("scores", pa.list_(pa.float64())),
        pa.field("probabilities", pa.list_(pa.float64())),
    ]
)
"""One row per test row of a trial. Classes are positions in the list of classes, which the metadata of the file has."""


@dataclass(frozen=True)
class HeldOutPredictions:
    """Predictions for test rows that did not train.

    Attributes
    ----------
    task : {"classification", "regression"}
    classes : tuple of str
        Names of the classes; empty for a regression.
    rows : ndarray of int of shape (n,)
        Positions in the data set.
    measured, predicted : ndarray of shape (n,) or (n, q)
        Numbers, or positions of classes.
    scores : ndarray of shape (n,) or (n, n_classes), optional
        Scores of the second of two classes, or of each class.
    probabilities : ndarray of shape (n, n_classes), optional
        None where the metric needs no probabilities and the method has none of its own.
    """

    task: Task
    classes: tuple[str, ...]
    rows: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray
    scores: np.ndarray | None = None
    probabilities: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def class_scores(self, k: int) -> np.ndarray | None:
        """Return the scores of a class: its probabilities, or else scores; None where there are neither."""
        if self.probabilities is not None:
            return np.asarray(self.probabilities[:, k])
        if self.scores is None:
            return None
        if self.scores.ndim == 2:
            return np.asarray(self.scores[:, k])
        return self.scores if k == 1 else -self.scores


def sampled_test_rows(rows: np.ndarray, n_trials: int) -> np.ndarray:
    """Return the test rows of one of several trials whose predictions are kept, spread evenly over all of them."""
    return evenly_spaced(rows, max(FEWEST_PREDICTIONS, MOST_PREDICTIONS // n_trials))


def evenly_spaced(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most so many rows, spread evenly over all of them."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.intp)]


def predict_held_out(
    fitted: PredictorPath,
    position: int,
    X: Rows,
    target: Target,
    training: np.ndarray,
    rows: np.ndarray,
    sigmoid: np.ndarray,
) -> HeldOutPredictions:
    """Return predictions of one value of C for some rows.

    Parameters
    ----------
    fitted : PredictorPath
        Fitted on the training rows.
    position : int
        Of the value of C.
    X, target : ndarray or CSR matrix, Target
        All rows of the data set.
    training, rows : ndarray of int
        Positions of the training rows, and of the rows to predict.
    sigmoid : ndarray of shape (2,)
        Slope and offset that turn scores into probabilities; NaN where the metric needs none.
    """
    if isinstance(fitted, KernelPredictors) and len(fitted.kernels) > 1:
        fitted, position = fitted.only(position), 0
    measured = target.take(rows).values
    with blas_threads_for(len(training)):
        predicted = fitted.predict(X[rows])[position]
        scores = None
        if has_every_class(target, training):
            scores = fitted.scores(X[rows])[position]
    likely = None
    if scores is not None and np.isfinite(sigmoid).all():
        likely = probabilities(scores, sigmoid)
    return HeldOutPredictions(target.task, target.classes, rows, measured, predicted, scores, likely)


def has_every_class(target: Target, training: np.ndarray) -> bool:
    """Return whether the training rows have every class of a classification."""
    if target.task == "regression":
        return False
    return len(np.unique(target.values[training])) == len(target.classes)


def write_predictions(folder: Path, trials: Sequence[tuple[int, int, HeldOutPredictions]]) -> None:
    """Write predictions of trials, each with its repeat and its fold, into an entry of the store."""
    tables = [_table_of(repeat, fold, held_out) for repeat, fold, held_out in trials]
    first = trials[0][2]
    about = json.dumps({"task": first.task, "classes": first.classes})
    table = pa.concat_tables(tables).replace_schema_metadata({"held_out": about})
    pq.write_table(table, folder / PREDICTIONS, compression="zstd")


def _table_of(repeat: int, fold: int, held_out: HeldOutPredictions) -> pa.Table:
    """Return the predictions of one trial as a table."""
    n = len(held_out)
    lists = [held_out.measured, held_out.predicted, held_out.scores, held_out.probabilities]
    columns = [np.full(n, repeat), np.full(n, fold), held_out.rows, *(_lists_of(values, n) for values in lists)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=COLUMNS)


def _lists_of(values: np.ndarray | None, n: int) -> list[Any]:
    """Return the values of each row as a list; None of each row where there are none."""
    if values is None:
        return [None] * n
    return list(np.asarray(values, dtype=np.float64).reshape(n, -1))


def read_predictions(folder: Path) -> list[HeldOutPredictions]:
    """Return the predictions of each trial in an entry of the store; an empty list where it has none."""
    path = folder / PREDICTIONS
    if not path.is_file():
        return []
    table = pq.read_table(path, schema=COLUMNS)
    about = json.loads(pq.read_schema(path).metadata[b"held_out"])
    return list(_trials_of(table, about["task"], tuple(about["classes"])))


def _trials_of(table: pa.Table, task: Task, classes: tuple[str, ...]) -> Iterator[HeldOutPredictions]:
    """Give the predictions of each trial of a table, in their order."""
    frame = table.to_pandas()
    for _, trial in frame.groupby(["repeat", "fold"], sort=False):
        values = {name: _stacked(trial[name].to_list()) for name in ("measured", "predicted", "scores")}
        measured, predicted = values["measured"], values["predicted"]
        assert measured is not None
        assert predicted is not None
        if task == "classification":
            measured, predicted = measured.astype(np.intp), predicted.astype(np.intp)
        likely = _stacked(trial["probabilities"].to_list())
        rows = trial["row"].to_numpy()
        yield HeldOutPredictions(task, classes, rows, measured, predicted, values["scores"], likely)


def _stacked(lists: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return lists as the rows of an array, one number each as a vector; None where there are none."""
    present = [values for values in lists if values is not None]
    if not present:
        return None
    values = np.stack(present)
    return values[:, 0] if values.shape[1] == 1 else values
