"""What errors are measured by: scikit-learn's scores by their names, turned so that less is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .. import registry
from ..centering import mean_over
from ..registry import Measured
from ..targets import Target, Task
from ..validation import require_one_of

Measure = Callable[[Target, np.ndarray, np.ndarray | None], float]
"""The error of a response, from the target of the same rows and their weights, where they have some."""


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
        The same in reports.
    measure : callable
        Return the error; see `Measure`.
    positive : bool
        Whether one class, the second, is what is looked for.
    constant : callable
        Return the best constant of a regression from training targets and their weights.
    needs : str
        What rows it is defined on must hold; empty for all rows. Of two classes alone if it is both of them.
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
    needs: str = ""
    weighable: bool = True

    @property
    def response(self) -> Measured:
        """What it is measured on."""
        return registry.METRICS[self.name]

    @property
    def default(self) -> bool:
        """Whether it is the default metric of a task."""
        return self.name == DEFAULT[self.task]

    @property
    def two(self) -> bool:
        """Whether it is for two classes alone."""
        return self.needs == BOTH

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
        if self.response == "scores":
            return self.measure(test, np.zeros(len(test)), test_weight)
        if self.response == "probabilities":
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
    require_one_of("metric", chosen, METRICS)
    METRICS[chosen].check(target, weighted)
    return METRICS[chosen]


# scikit-learn is imported where it is used, because it brings pandas along.


def _error(test: Target, response: np.ndarray, w: np.ndarray | None, of: str, **options: Any) -> float:
    """Return an error as a function of scikit-learn has it."""
    import sklearn.metrics

    return float(getattr(sklearn.metrics, of)(test.values, response, sample_weight=w, **options))


def _lacking(test: Target, response: np.ndarray, w: np.ndarray | None, of: str, **options: Any) -> float:
    """Return what a score of scikit-learn lacks to one."""
    return 1 - _error(test, response, w, of, **options)


def _area(test: Target, response: np.ndarray, w: np.ndarray | None, **options: Any) -> float:
    if len(test.classes) == 2:
        return _lacking(test, response[:, 1], w, "roc_auc_score")
    return _lacking(test, response, w, "roc_auc_score", labels=np.arange(len(test.classes)), **options)


def _balanced(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    options = {"labels": np.unique(test.values), "average": "macro", "zero_division": 0.0}
    return _lacking(test, predicted, w, "recall_score", **options)


def _log_loss(test: Target, response: np.ndarray, w: np.ndarray | None) -> float:
    return _error(test, response, w, "log_loss", labels=np.arange(len(test.classes)))


def _brier(test: Target, response: np.ndarray, w: np.ndarray | None) -> float:
    squares = ((response - np.eye(len(test.classes))[test.values]) ** 2).sum(axis=1)
    return float(mean_over(squares, w)) / (2 if len(test.classes) == 2 else 1)


def _largest(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    return float(np.abs(predicted - test.values).max())


def _median(values: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return the median of each column; with weights the first value that half of them does not exceed."""
    if w is None:
        return np.median(values, axis=0)
    return np.quantile(values, 0.5, axis=0, weights=w, method="inverted_cdf")


def _relative_median(values: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return the constant of the least mean relative error: a median whose weights fall as numbers grow."""
    weights = 1 / np.maximum(np.abs(values), np.finfo(np.float64).eps)
    if w is not None:
        weights = (weights.T * w).T
    return np.quantile(values, 0.5, axis=0, weights=weights, method="inverted_cdf")


def _middle(values: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return the middle between the smallest and the largest number of each column."""
    return np.asarray((values.min(axis=0) + values.max(axis=0)) / 2)


BOTH, EVERY, VARYING = "both classes", "every class", "different values of the target"

DEFAULT: dict[Task, str] = {"classification": "accuracy", "regression": "neg_root_mean_squared_error"}


def _score(name: str, words: str, measure: str | Measure, task: Task = "classification", **keys: Any) -> Metric:
    """Return what a score, or a function of scikit-learn by name, lacks to one."""
    measure = partial(_lacking, of=measure) if isinstance(measure, str) else measure
    return Metric(name, task, f"1 - {name}", f"one minus {words}", measure, **keys)


def _share(name: str, words: str, of: str, average: str | None = None) -> Metric:
    """Return a measure of shares of the rows: of the second of two classes, or averaged over classes."""
    options: dict[str, Any] = {"zero_division": 0.0, **({"average": average} if average else {})}
    return _score(name, words, partial(_lacking, of=of, **options), positive=not average, needs="" if average else BOTH)


def _areas(name: str, words: str, multi_class: str, average: str = "macro") -> Metric:
    """Return a measure of areas under ROC curves of several classes, on probabilities."""
    measure = partial(_area, multi_class=multi_class, average=average)
    words = f"the mean area under the ROC curves of each {words}"
    return _score(name, words, measure, needs=EVERY, weighable=multi_class == "ovr")


def _number(name: str, error: str, words: str, measure: str | Measure, constant: Any = mean_over) -> Metric:
    """Return an error of a regression, or a function of scikit-learn by name."""
    measure = partial(_error, of=measure) if isinstance(measure, str) else measure
    return Metric(name, "regression", error, words, measure, constant=constant)


_LOG_LOSS = "mean negative logarithm of the probability of the right class"

_BRIER = "mean squared error of the probabilities"

_RELATIVE = "mean absolute error as a share of the target"

_R2 = "R2, the squared error over that of the mean of the test rows"

_ALL = (
    Metric("accuracy", "classification", "misclassification", "misclassification rate", Target.error),
    _score("balanced_accuracy", "the mean recall of the classes", _balanced),
    _score("roc_auc", "the area under the ROC curve", "roc_auc_score", needs=BOTH),
    _areas("roc_auc_ovr", "class", "ovr"),
    _areas("roc_auc_ovr_weighted", "class by its rows", "ovr", "weighted"),
    _areas("roc_auc_ovo", "pair of classes", "ovo"),
    _areas("roc_auc_ovo_weighted", "pair of classes by its rows", "ovo", "weighted"),
    _score("average_precision", "the average precision", "average_precision_score", needs=BOTH, positive=True),
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
    _score("matthews_corrcoef", "the correlation of classes and predictions", "matthews_corrcoef"),
    Metric("neg_log_loss", "classification", "log_loss", _LOG_LOSS, _log_loss),
    Metric("neg_brier_score", "classification", "brier_score", _BRIER, _brier),
    _number("neg_root_mean_squared_error", "rmse", "root mean squared error", Target.error),
    _number("neg_mean_absolute_error", "mae", "mean absolute error", "mean_absolute_error", _median),
    _number("neg_median_absolute_error", "median_ae", "median absolute error", "median_absolute_error", _median),
    _number(
        "neg_mean_absolute_percentage_error", "mape", _RELATIVE, "mean_absolute_percentage_error", _relative_median
    ),
    _number("neg_max_error", "max_error", "largest absolute error", _largest, _middle),
    _number("neg_mean_squared_error", "mse", "mean squared error", "mean_squared_error"),
    _score("r2", _R2, "r2_score", "regression", needs=VARYING),
    _score(
        "explained_variance",
        "the explained share of the variance",
        "explained_variance_score",
        "regression",
        needs=VARYING,
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
"""By scikit-learn's names of the scores. Each error is smaller where the score is larger."""


def in_words(shown: str) -> str:
    """Return the name of an error in reports."""
    error, _, positive = shown.partition(" of ")
    words = next((metric.words for metric in METRICS.values() if metric.error == error), error)
    return f"{words} of {positive}" if positive else words
