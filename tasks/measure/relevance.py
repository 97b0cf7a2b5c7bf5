"""Measure the relevance of columns on test rows of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from learnkernels.kernels.column_encoding import TableFeatures
from learnkernels.kernels.engine.workers import blas_threads_for
from learnkernels.kernels.estimators.importance import TestedRows, relevance_of
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.model_selection.evaluation import (
    PredictorPath,
    keep_one_kernel,
)
from learnkernels.kernels.weights import weights_of_rows

from ..data.dataset import Dataset
from .families import positions_by_name
from .held_out import evenly_spaced, has_every_class

MOST_COLUMNS = 300

MOST_ROWS = 500
"""Largest number of test rows with exchanged values."""

LEAST_ROWS = 100
"""Smallest number of test rows, for many columns."""

MOST_PREDICTIONS = 5000
"""Columns times rows above which fewer rows are tested."""


@dataclass(frozen=True)
class FittedPredictor:
    """Predictor fitted with one C, with the interface of `TestedRows`."""

    path: PredictorPath
    position: int

    def scores(self, X_new: Rows) -> np.ndarray:
        """Return predicted numbers as a single output, shape (1, n_rows, n_targets)."""
        numbers = self.path.predict(X_new)[self.position]
        return np.reshape(numbers, (1, X_new.shape[0], -1))

    def class_scores(self, X_new: Rows) -> list[np.ndarray]:
        """Return the decision function, in a list of one array."""
        return [self.path.scores(X_new)[self.position]]


def features_by_column(features: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the positions of features by column of the table."""
    names = features.owners if isinstance(features, TableFeatures) else features
    positions = positions_by_name(names)
    return {name: np.array(of_name) for name, of_name in positions.items()}


def measure_relevance(
    fitted: PredictorPath,
    position: int,
    X: Rows,
    dataset: Dataset,
    training: np.ndarray,
    test_rows: np.ndarray,
) -> dict[str, float] | None:
    """Return the relevance of each column, measured on the test rows of a split.

    None if it cannot be measured.
    """
    columns = features_by_column(dataset.features)
    if not 1 < len(columns) <= MOST_COLUMNS:
        return None
    n_tested = int(np.clip(MOST_PREDICTIONS // len(columns), LEAST_ROWS, MOST_ROWS))
    rows = evenly_spaced(test_rows, n_tested)
    target = dataset.target.take(rows)
    if len(rows) < 2 or not np.ptp(target.Y, axis=0).any():
        return None
    if target.task == "classification" and not (
        has_every_class(dataset.target, training)
        and has_every_class(dataset.target, rows)
    ):
        return None
    fitted, position = keep_one_kernel(fitted, position)
    weights = weights_of_rows(dataset.weights, rows)
    tested = TestedRows(
        X=X[rows],
        target=target,
        split_of_row=np.zeros(len(rows), dtype=np.intp),
        weights=weights,
        models=[FittedPredictor(fitted, position)],
        trees=None,
    )
    with blas_threads_for(len(training)):
        relevance = relevance_of(tested, list(columns.values()), n_donors=1)
    return dict(zip(columns, relevance.tolist(), strict=True))
