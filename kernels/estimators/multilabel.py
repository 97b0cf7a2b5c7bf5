"""Multilabel classification: checks, target and probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit

from ..learners import Learner, as_learner
from ..predictors import Predictor, as_predictor
from ..predictors.calibration import fit_sigmoid
from ..targets import Target


def has_labels(y: np.ndarray) -> bool:
    return y.ndim == 2 and y.shape[1] > 1


def dense_indicators(y: Any) -> np.ndarray:
    if sparse.issparse(y):
        return np.asarray(y.toarray())
    return np.asarray(y)


def require_no_columns_of_classes(y: Any) -> None:
    """Raise ValueError if y has several columns of classes."""
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[1] > 1:
        raise ValueError(
            f"y must be one column of classes, or 0 and 1 in a column per label, got shape {shape}; for several "
            "classes per column, use sklearn.multioutput.MultiOutputClassifier."
        )


def labels_target(y: np.ndarray) -> Target:
    """Return 0/1 labels as a regression target of -1 and 1; ValueError for others."""
    is_indicator = np.isin(y, (0, 1))
    if not is_indicator.all():
        wrong = np.unique(y[~is_indicator]).tolist()[0]
        raise ValueError(
            f"y must hold only 0 and 1 in its {y.shape[1]} columns, one per label, got {wrong!r}; for several classes "
            "per column, use sklearn.multioutput.MultiOutputClassifier."
        )
    return Target("regression", np.where(y == 1, 1.0, -1.0))


def require_label_options(
    learner: str | Learner, predictor: str | Predictor, class_weight: Any
) -> None:
    """Raise ValueError for an option that does not support several labels."""
    several = "for several labels per row"
    if class_weight is not None:
        raise ValueError(
            f"class_weight must be None {several}, got {class_weight!r:.60}; give sample_weight."
        )
    checked_predictor = as_predictor(predictor)
    if checked_predictor.loss != "squared":
        raise ValueError(
            f"predictor must have the squared loss {several}, got {checked_predictor!r:.60}; use krr, krr-cg or "
            "nystroem."
        )
    if learner != "auto" and "regression" not in as_learner(learner).tasks:
        raise ValueError(
            f"learner must support regression {several}, got {as_learner(learner).name!r}; use rfm, alignf or l2-krr."
        )


def fit_label_calibration(
    scores: np.ndarray, has_label: np.ndarray, weights: np.ndarray | None
) -> np.ndarray:
    """Return slopes and offsets of a sigmoid per label, (n_labels, 2)."""
    columns = zip(scores.T, has_label.T, strict=True)
    return np.array(
        [
            fit_sigmoid(label_scores, positive, weights)
            for label_scores, positive in columns
        ]
    )


def shift_to_even_odds(calibration: np.ndarray) -> np.ndarray:
    """Return shifts of scores so that a score of zero has probability one half.

    The shift is zero for labels whose probability does not increase with the score.
    """
    slope, offset = calibration.T
    increases = slope > 0
    shift = np.zeros(len(calibration))
    shift[increases] = offset[increases] / slope[increases]
    return shift


def label_probabilities(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    slope, offset = calibration.T
    return np.asarray(expit(slope * scores + offset))
