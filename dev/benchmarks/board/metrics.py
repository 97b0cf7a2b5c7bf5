"""Test metrics of a fitted model."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, cross_val_predict

from dev.benchmarks.board.contestants import boosting, raw_boosting
from dev.benchmarks.board.tables import Drawing

SMALLEST_PROBABILITY = 1e-6
"""Smallest predicted probability that the log loss counts."""

LEVEL = 0.8
"""Nominal coverage of the prediction intervals."""

N_BINS = 15
"""Bins of the expected calibration error."""


def metrics(model: Any, task: str, drawing: Drawing) -> dict[str, float]:
    """Return the test metrics of a fitted model by the names of `Measurement`; those that do not apply are missing."""
    begin = time.process_time()
    predicted = np.asarray(model.predict(drawing.X_test)).ravel()
    seconds = time.process_time() - begin
    values = {
        "predict_seconds": 1000 * seconds / len(predicted),
        "log_loss": float("nan"),
        "auc": float("nan"),
    }
    if task == "classification":
        return values | _classification_metrics(model, predicted, drawing)
    return values | _regression_metrics(model, predicted, drawing)


def _regression_metrics(
    model: Any, predicted: np.ndarray, drawing: Drawing
) -> dict[str, float]:
    root_mean_square = np.sqrt(np.mean((predicted - drawing.y_test) ** 2))
    values = {"error": float(root_mean_square / drawing.unit)}
    if hasattr(model, "predict_interval"):
        lower, upper = model.predict_interval(drawing.X_test, alpha=1 - LEVEL).T
        values |= interval_metrics(lower, upper, drawing)
    return values


def _classification_metrics(
    model: Any, predicted: np.ndarray, drawing: Drawing
) -> dict[str, float]:
    y, y_test = drawing.y, drawing.y_test
    values = {"error": float(np.mean(predicted != y_test))}
    scores = None
    if hasattr(model, "predict_proba"):
        n_classes = 1 + int(max(y.max(), y_test.max()))
        probabilities = np.zeros((len(y_test), n_classes))
        probabilities[:, np.asarray(model.classes_, dtype=int)] = model.predict_proba(
            drawing.X_test
        )
        of_true_class = probabilities[np.arange(len(y_test)), y_test]
        values["log_loss"] = float(
            -np.log(of_true_class.clip(SMALLEST_PROBABILITY, 1)).mean()
        )
        values["calibration_error"] = expected_calibration_error(probabilities, y_test)
        scores = probabilities[:, -1]
    elif hasattr(model, "decision_function"):
        scores = model.decision_function(drawing.X_test)
    has_two_classes = np.array_equal(np.unique(y_test), [0, 1]) and y.max() == 1
    if scores is not None and has_two_classes:
        values["auc"] = float(roc_auc_score(y_test, scores))
    return values


def expected_calibration_error(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Return the mean gap between confidence and accuracy over bins of equal width (Guo et al. 2017, ICML, eq. 3)."""
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == y
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    gaps = np.bincount(bins, correct - confidence)
    return float(np.abs(gaps).sum() / len(y))


def interval_metrics(
    lower: np.ndarray, upper: np.ndarray, drawing: Drawing
) -> dict[str, float]:
    """Return coverage, in all rows and the hardest fifth, and the interval score in
    units of the targets.

    The score is the width plus penalties for rows outside (Gneiting and Raftery 2007,
    JASA 102, eq. 43).
    """
    y = drawing.y_test
    is_covered = (lower <= y) & (y <= upper)
    outside = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    scores = upper - lower + 2 / (1 - LEVEL) * outside
    hardest = np.argsort(expected_errors(drawing.X_test, y), kind="stable")[
        -max(len(y) // 5, 1) :
    ]
    return {
        "coverage": float(is_covered.mean()),
        "hard_coverage": float(is_covered[hardest].mean()),
        "interval_score": float(scores.mean() / drawing.unit),
    }


def expected_errors(X: Any, y: np.ndarray) -> np.ndarray:
    """Return how difficult rows are: the absolute error of a boosted model in five folds, smoothed by a second one."""
    folds = KFold(5, shuffle=True, random_state=0)
    make = boosting if isinstance(X, np.ndarray) else raw_boosting
    predicted = cross_val_predict(make("regression", X.shape[1], 0), X, y, cv=folds)
    return np.asarray(
        cross_val_predict(
            make("regression", X.shape[1], 0), X, np.abs(y - predicted), cv=folds
        )
    )
