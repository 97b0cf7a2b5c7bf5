"""What errors are measured by: scikit-learn's scores by their names, turned so that less is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from learnkernels.kernels import registry
from learnkernels.kernels.centering import mean_over
from learnkernels.kernels.registry import Measured
from learnkernels.kernels.targets import Target, Task

Measure = Callable[[Target, np.ndarray, np.ndarray | None], float]
"""The error of what is told, from the target of the same rows and their weights, where they have some."""


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
    positive : bool
        Whether one class, the second, is what is looked for.
    constant : callable
        Return the best constant of a regression from training targets and their weights.
    two : bool
        Whether it is for two classes alone.
    needs : str
        What rows it is defined on must hold; empty for all rows.
    weighable : bool
        Whether rows may have weights.
    """

    name: str
    task: Task
    error: str
    words: str
    measure: Measure
    positive: bool = False
    constant: Callable[[np.ndarray, np.ndarray | None], np.ndarray] = mean_over
    two: bool = False
    needs: str = ""
    weighable: bool = True

    @property
    def told(self) -> Measured:
        """What it is measured on."""
        return registry.METRICS[self.name]

    @property
    def default(self) -> bool:
        """Whether it is what a task is measured by where nobody says so."""
        return self.name == DEFAULT[self.task]

    def shown(self, target: Target) -> str:
        """Return what tables call the error on a data set; of a metric that looks for one class with its name."""
        return f"{self.error} of {target.classes[1]}" if self.positive else self.error

    def check(self, target: Target, weighted: bool = False) -> None:
        """Raise ValueError for a target, or rows with weights, that it does not serve."""
        if target.task != self.task:
            others = ", ".join(name for name, metric in METRICS.items() if metric.task == target.task)
            raise ValueError(f"metric {self.name} is for {self.task}, and this is a {target.task}; take {others}.")
        if self.two and len(target.classes) != 2:
            others = ", ".join(m.name for m in METRICS.values() if m.task == self.task and not m.two)
            raise ValueError(
                f"metric {self.name} is for two classes, got {len(target.classes)}; take {others}, or name one class "
                "with 'positive'."
            )
        if weighted and not self.weighable:
            raise ValueError(f"metric {self.name} counts each row once, and these have weights; take another metric.")

    def check_rows(self, target: Target, what: str) -> None:
        """Raise ValueError if it is not defined on some rows, which `what` names."""
        if not self.needs:
            return
        by_class = self.task == "classification"
        values = target.values
        lacking = len(np.unique(values)) < len(target.classes) if by_class else (np.ptp(values, axis=0) == 0).any()
        if lacking:
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

        Of several classes it is the constant of the lowest error on `training`; scores are all alike, and probabilities
        the shares of the classes.
        """
        if self.task == "regression":
            best = self.constant(training.values, training_weight)
            return self.measure(test, np.broadcast_to(best, test.values.shape), test_weight)
        if self.told == "scores":
            return self.measure(test, np.zeros(len(test)), test_weight)
        if self.told == "probabilities":
            counts = np.bincount(training.values, training_weight, len(training.classes))
            return self.measure(test, np.tile(counts / counts.sum(), (len(test), 1)), test_weight)
        constants = [np.full(len(training), k) for k in range(len(training.classes))]
        errors = [self.measure(training, constant, training_weight) for constant in constants]
        return self.measure(test, np.full(len(test), np.argmin(errors)), test_weight)


def metric_for(name: str | None, target: Target, weighted: bool = False) -> Metric:
    """Return a metric by its name, or that of the task where it is None.

    Raises
    ------
    ValueError
        There is no such metric, or it does not serve the target or, where rows are `weighted`, these.
    """
    chosen = DEFAULT[target.task] if name is None else name
    if chosen not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {name!r}.")
    METRICS[chosen].check(target, weighted)
    return METRICS[chosen]


# scikit-learn is imported where it is used, because it brings pandas along.


def _lacking(test: Target, told: np.ndarray, w: np.ndarray | None, of: str, **options: Any) -> float:
    """Return what a score of scikit-learn lacks to one."""
    import sklearn.metrics

    return 1 - float(getattr(sklearn.metrics, of)(test.values, told, sample_weight=w, **options))


def _share(name: str, words: str, of: str, average: str = "", **keys: Any) -> Metric:
    """Return a measure of shares of the rows, of one class or averaged over them."""
    options: dict[str, Any] = {"zero_division": 0.0, **({"average": average} if average else {})}
    one = not average
    needs = BOTH if one else ""
    measure = partial(_lacking, of=of, **options)
    return Metric(
        name, "classification", f"1 - {name}", f"one minus {words}", measure, positive=one, two=one, needs=needs, **keys
    )


def _curve(name: str, words: str, **options: Any) -> Metric:
    """Return a measure of areas under ROC curves of several classes, on probabilities."""

    def measure(test: Target, told: np.ndarray, w: np.ndarray | None) -> float:
        labels = np.arange(len(test.classes))
        ranks = told[:, 1] if len(labels) == 2 else told
        known: dict[str, Any] = {} if len(labels) == 2 else {"labels": labels, **options}
        return _lacking(test, ranks, w, "roc_auc_score", **known)

    return Metric(
        name,
        "classification",
        f"1 - {name}",
        f"one minus {words}",
        measure,
        needs=EVERY,
        weighable=options["multi_class"] == "ovr",
    )


def _balanced(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    options = {"labels": np.unique(test.values), "average": "macro", "zero_division": 0.0}
    return _lacking(test, predicted, w, "recall_score", **options)


def _correlation(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    return _lacking(test, predicted, w, "matthews_corrcoef")


def _log_loss(test: Target, told: np.ndarray, w: np.ndarray | None) -> float:
    from sklearn.metrics import log_loss

    return float(log_loss(test.values, told, sample_weight=w, labels=np.arange(len(test.classes))))


def _brier(test: Target, told: np.ndarray, w: np.ndarray | None) -> float:
    squares = ((told - np.eye(len(test.classes))[test.values]) ** 2).sum(axis=1)
    return float(mean_over(squares, w)) / (2 if len(test.classes) == 2 else 1)


def _absolute(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    return float(np.mean(mean_over(np.abs(predicted - test.values), w)))


def _relative(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    return float(np.mean(mean_over(np.abs(predicted - test.values) / _sizes(test.values), w)))


def _sizes(values: np.ndarray) -> np.ndarray:
    """Return sizes of numbers that something can be divided by."""
    return np.asarray(np.maximum(np.abs(values), np.finfo(np.float64).eps))


def _typical(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    from sklearn.metrics import median_absolute_error

    return float(median_absolute_error(test.values, predicted, sample_weight=w))


def _largest(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    return float(np.abs(predicted - test.values).max())


def _squared(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    return float(np.mean(mean_over((predicted - test.values) ** 2, w)))


def _median(values: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return the median of each column; with weights the first value that half of them does not exceed."""
    if w is None:
        return np.median(values, axis=0)
    return np.quantile(values, 0.5, axis=0, weights=w, method="inverted_cdf")


def _relative_median(values: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return the constant of the least mean relative error: a median whose weights fall as numbers grow."""
    weights = 1 / _sizes(values)
    if w is not None:
        weights = (weights.T * w).T
    return np.quantile(values, 0.5, axis=0, weights=weights, method="inverted_cdf")


def _middle(values: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return the middle between the smallest and the largest number of each column."""
    return np.asarray((values.min(axis=0) + values.max(axis=0)) / 2)


BOTH, EVERY, VARYING = "both classes", "every class", "different values of the target"

DEFAULT: dict[Task, str] = {"classification": "accuracy", "regression": "neg_root_mean_squared_error"}

_OF_CLASSES = (
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
        partial(_lacking, of="roc_auc_score"),
        two=True,
        needs=BOTH,
    ),
    _curve("roc_auc_ovr", "the mean area under the ROC curves of each class", multi_class="ovr"),
    _curve(
        "roc_auc_ovr_weighted",
        "the mean area under the ROC curves of each class by its rows",
        multi_class="ovr",
        average="weighted",
    ),
    _curve("roc_auc_ovo", "the mean area under the ROC curves of each pair of classes", multi_class="ovo"),
    _curve(
        "roc_auc_ovo_weighted",
        "the mean area under the ROC curves of each pair of classes by its rows",
        multi_class="ovo",
        average="weighted",
    ),
    Metric(
        "average_precision",
        "classification",
        "1 - average_precision",
        "one minus the average precision",
        partial(_lacking, of="average_precision_score"),
        positive=True,
        two=True,
        needs=BOTH,
    ),
    _share("f1", "the F1 score", "f1_score"),
    _share("f1_macro", "the mean F1 score of the classes", "f1_score", "macro"),
    _share("f1_weighted", "the mean F1 score of the classes by their rows", "f1_score", "weighted"),
    _share("precision", "the precision", "precision_score"),
    _share("precision_macro", "the mean precision of the classes", "precision_score", "macro"),
    _share("precision_weighted", "the mean precision of the classes by their rows", "precision_score", "weighted"),
    _share("recall", "the recall", "recall_score"),
    _share("recall_macro", "the mean recall of classes that are there or predicted", "recall_score", "macro"),
    _share("jaccard", "the Jaccard index", "jaccard_score"),
    _share("jaccard_macro", "the mean Jaccard index of the classes", "jaccard_score", "macro"),
    _share("jaccard_weighted", "the mean Jaccard index of the classes by their rows", "jaccard_score", "weighted"),
    Metric(
        "matthews_corrcoef",
        "classification",
        "1 - matthews_corrcoef",
        "one minus the correlation of classes and predictions",
        _correlation,
    ),
    Metric(
        "neg_log_loss",
        "classification",
        "log_loss",
        "mean negative logarithm of the probability of the right class",
        _log_loss,
    ),
    Metric(
        "neg_brier_score",
        "classification",
        "brier_score",
        "mean squared error of the probabilities",
        _brier,
    ),
)

_OF_NUMBERS = (
    Metric("neg_root_mean_squared_error", "regression", "rmse", "root mean squared error", Target.error),
    Metric("neg_mean_absolute_error", "regression", "mae", "mean absolute error", _absolute, constant=_median),
    Metric("neg_median_absolute_error", "regression", "median_ae", "median absolute error", _typical, constant=_median),
    Metric(
        "neg_mean_absolute_percentage_error",
        "regression",
        "mape",
        "mean absolute error as a share of the target",
        _relative,
        constant=_relative_median,
    ),
    Metric("neg_max_error", "regression", "max_error", "largest absolute error", _largest, constant=_middle),
    Metric("neg_mean_squared_error", "regression", "mse", "mean squared error", _squared),
    Metric(
        "r2",
        "regression",
        "1 - r2",
        "one minus R2, the squared error over that of the mean of the test rows",
        partial(_lacking, of="r2_score"),
        needs=VARYING,
    ),
    Metric(
        "explained_variance",
        "regression",
        "1 - explained_variance",
        "one minus the explained share of the variance",
        partial(_lacking, of="explained_variance_score"),
        needs=VARYING,
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in (*_OF_CLASSES, *_OF_NUMBERS)}
"""By scikit-learn's names of the scores. Each error is smaller where the score is larger."""


def in_words(shown: str) -> str:
    """Return the name of an error in tables for people."""
    error, _, positive = shown.partition(" of ")
    words = next((metric.words for metric in METRICS.values() if metric.error == error), error)
    return f"{words} of {positive}" if positive else words
