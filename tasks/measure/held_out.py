"""Store and read predictions for test rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from learnkernels.kernels.engine.workers import blas_threads_for
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.model_selection.evaluation import (
    PredictorPath,
    keep_one_kernel,
)
from learnkernels.kernels.predictors.calibration import probabilities
from learnkernels.kernels.targets import Target, Task

if TYPE_CHECKING:
    import pandas as pd

PREDICTIONS = "predictions.parquet"

MOST_PREDICTIONS = 5000

FEWEST_PREDICTIONS = 20

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


@dataclass(frozen=True)
class HeldOutPredictions:
    """Targets and predictions of the test rows of one training and test split.

    `measured` and `predicted` are numbers, or positions of classes. `scores` are
    decision values of the second of two classes, or of each class.
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
        """Return class k's probabilities, else its decision function, else None."""
        if self.probabilities is not None:
            return np.asarray(self.probabilities[:, k])
        if self.scores is None:
            return None
        if self.scores.ndim == 2:
            return np.asarray(self.scores[:, k])
        if k == 1:
            return self.scores
        return -self.scores


def sampled_test_rows(rows: np.ndarray, n_trials: int) -> np.ndarray:
    return evenly_spaced(rows, max(FEWEST_PREDICTIONS, MOST_PREDICTIONS // n_trials))


def evenly_spaced(rows: np.ndarray, limit: int) -> np.ndarray:
    """Return at most `limit` row numbers, evenly spaced."""
    if len(rows) <= limit:
        return rows
    positions = np.linspace(0, len(rows) - 1, limit).astype(np.intp)
    return rows[positions]


def predict_held_out(
    fitted: PredictorPath,
    position: int,
    X: Rows,
    target: Target,
    training: np.ndarray,
    rows: np.ndarray,
    sigmoid: np.ndarray,
) -> HeldOutPredictions:
    """Return predictions for held-out rows at one regularization, with probabilities if calibrated."""
    fitted, position = keep_one_kernel(fitted, position)
    measured = target.take(rows).values
    with blas_threads_for(len(training)):
        predicted = fitted.predict(X[rows])[position]
        scores = None
        if has_every_class(target, training):
            scores = fitted.scores(X[rows])[position]
    class_probabilities = None
    if scores is not None and np.isfinite(sigmoid).all():
        class_probabilities = probabilities(scores, sigmoid)
    return HeldOutPredictions(
        target.task,
        target.classes,
        rows,
        measured,
        predicted,
        scores,
        class_probabilities,
    )


def has_every_class(target: Target, training: np.ndarray) -> bool:
    if target.task == "regression":
        return False
    return len(np.unique(target.values[training])) == len(target.classes)


def write_predictions(
    folder: Path, trials: Sequence[tuple[int, int, HeldOutPredictions]]
) -> None:
    table = pa.concat_tables(
        [_table_of_trial(repeat, fold, held_out) for repeat, fold, held_out in trials]
    )
    _, _, first = trials[0]
    metadata = json.dumps({"task": first.task, "classes": first.classes})
    table = table.replace_schema_metadata({"held_out": metadata})
    pq.write_table(table, folder / PREDICTIONS, compression="zstd")


def _table_of_trial(repeat: int, fold: int, held_out: HeldOutPredictions) -> pa.Table:
    n_rows = len(held_out)
    columns = {
        "repeat": np.full(n_rows, repeat),
        "fold": np.full(n_rows, fold),
        "row": held_out.rows,
        "measured": _as_lists(held_out.measured, n_rows),
        "predicted": _as_lists(held_out.predicted, n_rows),
        "scores": _as_lists(held_out.scores, n_rows),
        "probabilities": _as_lists(held_out.probabilities, n_rows),
    }
    return pa.table(columns, schema=COLUMNS)


def _as_lists(values: np.ndarray | None, n_rows: int) -> list[Any]:
    if values is None:
        return [None] * n_rows
    return list(np.asarray(values, dtype=np.float64).reshape(n_rows, -1))


def read_predictions(folder: Path) -> list[HeldOutPredictions]:
    path = folder / PREDICTIONS
    if not path.is_file():
        return []
    metadata = json.loads(pq.read_schema(path).metadata[b"held_out"])
    frame = pq.read_table(path, schema=COLUMNS).to_pandas()
    trials = frame.groupby(["repeat", "fold"], sort=False)
    return [
        _predictions_of(trial, metadata["task"], tuple(metadata["classes"]))
        for _, trial in trials
    ]


def _predictions_of(
    trial: pd.DataFrame, task: Task, classes: tuple[str, ...]
) -> HeldOutPredictions:
    measured = _stacked(trial["measured"])
    predicted = _stacked(trial["predicted"])
    assert measured is not None
    assert predicted is not None
    if task == "classification":
        measured = measured.astype(np.intp)
        predicted = predicted.astype(np.intp)
    return HeldOutPredictions(
        task,
        classes,
        trial["row"].to_numpy(),
        measured,
        predicted,
        _stacked(trial["scores"]),
        _stacked(trial["probabilities"]),
    )


def _stacked(column: pd.Series) -> np.ndarray | None:
    """Return a column of lists as an array; None for nulls."""
    lists = [values for values in column if values is not None]
    if not lists:
        return None
    array = np.stack(lists)
    if array.shape[1] == 1:
        return array[:, 0]
    return array
