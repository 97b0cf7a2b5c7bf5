"""Benchmark of the estimators with default settings: public data sets, the same rows for all methods."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """Test metrics of a method on one random split.

    Attributes
    ----------
    size : int
        Largest number of training rows; `n_train` is the actual one.
    error : float
        Misclassification rate, or RMSE divided by the standard deviation of the
        training targets.
    log_loss : float
        NaN without predicted probabilities.
    auc : float
        Area under the ROC curve for two classes, else NaN.
    seconds : float
        CPU time of the fit, which other processes disturb less than the time that
        passes.
    coverage, hard_coverage : float
        Share of test rows in their prediction intervals of level 0.8, of all rows and
        of the hardest fifth.
    interval_score : float
        Mean interval score of these, divided by the standard deviation of the training
        targets.
    calibration_error : float
        Expected calibration error of the predicted probabilities.
    predict_seconds : float
        CPU time of a prediction per 1,000 rows.
    version : str
        Of its package.

    Fields with a default have it where they do not apply, and in older journals.
    """

    section: str
    table: str
    task: str
    apart: bool
    size: int
    drawing: int
    contestant: str
    error: float
    log_loss: float
    auc: float
    seconds: float
    n_train: int
    n_test: int
    n_features: int
    coverage: float = float("nan")
    hard_coverage: float = float("nan")
    interval_score: float = float("nan")
    calibration_error: float = float("nan")
    predict_seconds: float = float("nan")
    version: str = ""
