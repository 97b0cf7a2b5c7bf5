"""What errors are measured by: scikit-learn's scores by their names, turned so that less is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from learnkernels.kernels.centering import mean_over
from learnkernels.kernels.targets import Target, Task

Measure = Callable[[Target, np.ndarray, np.ndarray | None], float]
"""The error of predictions, or of scores, from the target of the same rows and their weights, where they have some."""


@dataclass(frozen=True)
class Metric:
    """A measure of error.

    Attributes
    ----------
    name : str
        scikit-learn's name of the score.
    task : {"classification", "regression"}
        The task it serves.
    error : str
        What tables call the error.
    words : str
        The same for people.
    measure : callable
        Return the error; see `Measure`.
    ranks : bool
        Whether it is measured on scores of two classes, and not on predictions.
    positive : bool
        Whether one class, the second, is what is looked for.
    constant : callable
        Return the best constant of a regression from training targets and their weights.
    needs : str
        What rows it is defined on must hold; empty for all rows.
    """

    name: str
    task: Task
    error: str
    words: str
    measure: Measure
    ranks: bool = False
    positive: bool = False
    constant: Callable[[np.ndarray, np.ndarray | None], np.ndarray] = mean_over
    needs: str = ""

    @property
    def default(self) -> bool:
        """Whether it is what a task is measured by where nobody says so."""
        return self.name == DEFAULT[self.task]

    def shown(self, target: Target) -> str:
        """Return what tables call the error on a data set; of a metric that looks for one class with its name."""
        return f"{self.error} of {target.classes[1]}" if self.positive else self.error

    def check(self, target: Target) -> None:
        """Raise ValueError for a target that it does not serve."""
        if target.task != self.task:
            others = ", ".join(name for name, metric in METRICS.items() if metric.task == target.task)
            raise ValueError(f"metric {self.name} is for {self.task}, and this is a {target.task}; take {others}.")
        if self.needs == BOTH and len(target.classes) != 2:
            others = ", ".join(m.name for m in METRICS.values() if m.task == self.task and m.needs != BOTH)
            raise ValueError(
                f"metric {self.name} is for two classes, got {len(target.classes)}; take {others}, or name one class "
                "with 'positive'."
            )

    def check_rows(self, target: Target, what: str) -> None:
        """Raise ValueError if it is not defined on some rows, which `what` names."""
        if self.needs and (np.ptp(target.values, axis=0) == 0).any():
            raise ValueError(
                f"metric {self.name} needs {self.needs} among the rows that {what}, and {len(target)} of one trial do "
                "not have them; use fewer folds or more rows, or another metric."
            )

    def trivial_error(
        self,
        test: Target,
        training: Target,
        test_weight: np.ndarray | None = None,
        training_weight: np.ndarray | None = None,
    ) -> float:
        """Return the error on `test` of the best constant prediction that is learned on `training`.

        Of several classes it is the constant of the lowest error on `training`; scores are all alike.
        """
        if self.task == "regression":
            best = self.constant(training.values, training_weight)
            return self.measure(test, np.broadcast_to(best, test.values.shape), test_weight)
        if self.ranks:
            return self.measure(test, np.zeros(len(test)), test_weight)
        constants = [np.full(len(training), k) for k in range(len(training.classes))]
        errors = [self.measure(training, constant, training_weight) for constant in constants]
        return self.measure(test, np.full(len(test), np.argmin(errors)), test_weight)


def metric_for(name: str | None, target: Target) -> Metric:
    """Return a metric by its name, or that of the task where it is None.

    Raises
    ------
    ValueError
        There is no such metric, or it does not serve the target.
    """
    chosen = DEFAULT[target.task] if name is None else name
    if chosen not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {name!r}.")
    METRICS[chosen].check(target)
    return METRICS[chosen]


# scikit-learn is imported where it is used, because it brings pandas along.


def _balanced(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    from sklearn.metrics import recall_score

    options = {"labels": np.unique(test.values), "average": "macro", "zero_division": 0.0}
    return 1 - float(recall_score(test.values, predicted, sample_weight=w, **options))


def _f1(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    from sklearn.metrics import f1_score

    return 1 - float(f1_score(test.values, predicted, sample_weight=w, zero_division=0.0))


def _f1_macro(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    from sklearn.metrics import f1_score

    return 1 - float(f1_score(test.values, predicted, average="macro", sample_weight=w, zero_division=0.0))


def _roc_auc(test: Target, scores: np.ndarray, w: np.ndarray | None) -> float:
    from sklearn.metrics import roc_auc_score

    return 1 - float(roc_auc_score(test.values, scores, sample_weight=w))


def _average_precision(test: Target, scores: np.ndarray, w: np.ndarray | None) -> float:
    from sklearn.metrics import average_precision_score

    return 1 - float(average_precision_score(test.values, scores, sample_weight=w))


def _absolute(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    return float(np.mean(mean_over(np.abs(predicted - test.values), w)))


def _squared(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    return float(np.mean(mean_over((predicted - test.values) ** 2, w)))


def _r2(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    from sklearn.metrics import r2_score

    return 1 - float(r2_score(test.values, predicted, sample_weight=w))


def _median(values: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return the median of each column; with weights the first value that half of them does not exceed."""
    if w is None:
        return np.median(values, axis=0)
    return np.quantile(values, 0.5, axis=0, weights=w, method="inverted_cdf")


BOTH = "both classes"

DEFAULT: dict[Task, str] = {"classification": "accuracy", "regression": "neg_root_mean_squared_error"}

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "classification", "misclassification", "misclassified share", Target.error),
        Metric(
            "balanced_accuracy",
            "classification",
            "1 - balanced_accuracy",
            "one minus the mean recall of the classes",
            _balanced,
        ),
        Metric(
            "roc_auc",
            "classification",
            "1 - roc_auc",
            "one minus the area under the ROC curve",
            _roc_auc,
            ranks=True,
            needs=BOTH,
        ),
        Metric(
            "average_precision",
            "classification",
            "1 - average_precision",
            "one minus the average precision",
            _average_precision,
            ranks=True,
            positive=True,
            needs=BOTH,
        ),
        Metric("f1", "classification", "1 - f1", "one minus the F1 score", _f1, positive=True, needs=BOTH),
        Metric("f1_macro", "classification", "1 - f1_macro", "one minus the mean F1 score of the classes", _f1_macro),
        Metric("neg_root_mean_squared_error", "regression", "rmse", "root mean squared error", Target.error),
        Metric(
            "neg_mean_absolute_error",
            "regression",
            "mae",
            "mean absolute error",
            _absolute,
            constant=_median,
        ),
        Metric("neg_mean_squared_error", "regression", "mse", "mean squared error", _squared),
        Metric(
            "r2",
            "regression",
            "1 - r2",
            "one minus R2, the squared error over that of the mean of the test rows",
            _r2,
            needs="different values of the target",
        ),
    )
}
"""By scikit-learn's names of the scores. Each error is smaller where the score is larger."""


def in_words(shown: str) -> str:
    """Return the name of an error in tables for people."""
    error, _, positive = shown.partition(" of ")
    words = next((metric.words for metric in METRICS.values() if metric.error == error), error)
    return f"{words} of {positive}" if positive else words
