"""Error metrics, computed by functions of ``sklearn.metrics``."""

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
"""Function from target, predictions or scores, and weights to an error."""


@dataclass(frozen=True)
class Metric:
    """Error metric, such as the misclassification rate.

    `error` is its name in tables, `words` in reports. `positive` means that it measures
    the second of two classes; `needs` is a requirement on rows, such as "both classes".
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
        """Type of the metric's input: "predictions", "scores" or "probabilities"."""
        return registry.METRICS[self.name]

    @property
    def is_binary(self) -> bool:
        return self.needs == BOTH

    def name_in_tables(self, target: Target) -> str:
        """Return the metric's name in tables, with the positive class, if any."""
        if self.positive:
            return f"{self.error} of {target.classes[1]}"
        return self.error

    def check(self, target: Target, weighted: bool = False) -> None:
        """Raise ValueError if the metric does not support the target or sample weights."""
        if target.task != self.task:
            others = ", ".join(
                name for name, metric in METRICS.items() if metric.task == target.task
            )
            raise ValueError(
                f"metric {self.name} is for {self.task}, and this is a {target.task}; take {others}."
            )
        if self.is_binary and len(target.classes) != 2:
            others = ", ".join(
                m.name
                for m in METRICS.values()
                if m.task == self.task and not m.is_binary
            )
            raise ValueError(
                f"metric {self.name} is for two classes, got {len(target.classes)}; take {others}, or name one class "
                "with 'positive'."
            )
        if weighted and not self.weighable:
            raise ValueError(
                f"metric {self.name} counts each row once, and these have weights; take another metric."
            )

    def check_rows(self, target: Target, purpose: str) -> None:
        """Raise ValueError if the metric is undefined on these rows."""
        if not self.needs:
            return
        values = target.values
        if self.task == "classification":
            is_undefined = len(np.unique(values)) < len(target.classes)
        else:
            is_undefined = bool((np.ptp(values, axis=0) == 0).any())
        if is_undefined:
            raise ValueError(
                f"metric {self.name} needs {self.needs} among the rows that {purpose}, and {len(target)} of one trial "
                "do not have them; use fewer folds or more rows, or another metric."
            )

    def trivial_error(
        self,
        test: Target,
        training: Target,
        test_weight: np.ndarray | None = None,
        training_weight: np.ndarray | None = None,
    ) -> float:
        """Return the test error of the constant prediction that is best on the training rows."""
        if self.task == "regression":
            constant = self.constant(training.values, training_weight)
            return self.measure(
                test, np.broadcast_to(constant, test.values.shape), test_weight
            )
        if self.response == "scores":
            return self.measure(test, np.zeros(len(test)), test_weight)
        if self.response == "probabilities":
            counts = np.bincount(
                training.values, training_weight, len(training.classes)
            )
            return self.measure(
                test, np.tile(counts / counts.sum(), (len(test), 1)), test_weight
            )
        classes = range(len(training.classes))
        errors = [
            self.measure(training, np.full(len(training), k), training_weight)
            for k in classes
        ]
        return self.measure(test, np.full(len(test), np.argmin(errors)), test_weight)


def metric_for(name: str | None, target: Target, weighted: bool = False) -> Metric:
    """Return the named metric, or the default metric of the target's task."""
    if name is None:
        name = DEFAULT[target.task]
    require_one_of("metric", name, METRICS)
    METRICS[name].check(target, weighted)
    return METRICS[name]


# scikit-learn is imported in functions because it imports pandas.


def _sklearn_error(
    test: Target,
    response: np.ndarray,
    w: np.ndarray | None,
    function: str,
    **options: Any,
) -> float:
    import sklearn.metrics

    return float(
        getattr(sklearn.metrics, function)(
            test.values, response, sample_weight=w, **options
        )
    )


def _one_minus_score(
    test: Target,
    response: np.ndarray,
    w: np.ndarray | None,
    function: str,
    **options: Any,
) -> float:
    return 1 - _sklearn_error(test, response, w, function, **options)


def _roc_auc_of_classes(
    test: Target, P: np.ndarray, w: np.ndarray | None, **options: Any
) -> float:
    if len(test.classes) == 2:
        return _one_minus_score(test, P[:, 1], w, "roc_auc_score")
    return _one_minus_score(
        test, P, w, "roc_auc_score", labels=np.arange(len(test.classes)), **options
    )


def _balanced_accuracy(
    test: Target, predicted: np.ndarray, w: np.ndarray | None
) -> float:
    options = {
        "labels": np.unique(test.values),
        "average": "macro",
        "zero_division": 0.0,
    }
    return _one_minus_score(test, predicted, w, "recall_score", **options)


def _log_loss(test: Target, P: np.ndarray, w: np.ndarray | None) -> float:
    return _sklearn_error(test, P, w, "log_loss", labels=np.arange(len(test.classes)))


def _brier_score(test: Target, P: np.ndarray, w: np.ndarray | None) -> float:
    n_classes = len(test.classes)
    squares = ((P - np.eye(n_classes)[test.values]) ** 2).sum(axis=1)
    score = float(mean_over(squares, w))
    return score / 2 if n_classes == 2 else score


def _max_error(test: Target, predicted: np.ndarray, w: np.ndarray | None) -> float:
    return float(np.abs(predicted - test.values).max())


def _median(values: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    if w is None:
        return np.median(values, axis=0)
    return np.quantile(values, 0.5, axis=0, weights=w, method="inverted_cdf")


def _relative_median(values: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return the median weighted by inverse values."""
    weights = 1 / np.maximum(np.abs(values), np.finfo(np.float64).eps)
    if w is not None:
        weights = (weights.T * w).T
    return np.quantile(values, 0.5, axis=0, weights=weights, method="inverted_cdf")


def _midrange(values: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    return np.asarray((values.min(axis=0) + values.max(axis=0)) / 2)


BOTH = "both classes"

DEFAULT: dict[Task, str] = {
    "classification": "accuracy",
    "regression": "neg_root_mean_squared_error",
}


def _score(
    name: str,
    words: str,
    measure: str | Measure,
    task: Task = "classification",
    **attributes: Any,
) -> Metric:
    if isinstance(measure, str):
        measure = partial(_one_minus_score, function=measure)
    return Metric(
        name, task, f"1 - {name}", f"one minus {words}", measure, **attributes
    )


def _binary_score(name: str, words: str, function: str) -> Metric:
    """Return the metric 1 - score for the second of two classes."""
    measure = partial(_one_minus_score, function=function, zero_division=0.0)
    return _score(name, words, measure, positive=True, needs=BOTH)


def _averaged_score(name: str, words: str, function: str, average: str) -> Metric:
    """Return the metric 1 - score, averaged over the classes."""
    measure = partial(
        _one_minus_score, function=function, zero_division=0.0, average=average
    )
    return _score(name, words, measure)


def _multiclass_roc_auc(
    name: str, words: str, multi_class: str, average: str = "macro"
) -> Metric:
    """Return 1 - area under the ROC curves of several classes."""
    measure = partial(_roc_auc_of_classes, multi_class=multi_class, average=average)
    words = f"the mean area under the ROC curves of each {words}"
    return _score(
        name, words, measure, needs="every class", weighable=multi_class == "ovr"
    )


def _regression_error(
    name: str, error: str, words: str, measure: str | Measure, constant: Any = mean_over
) -> Metric:
    if isinstance(measure, str):
        measure = partial(_sklearn_error, function=measure)
    return Metric(name, "regression", error, words, measure, constant=constant)


_ALL = (
    Metric(
        "accuracy",
        "classification",
        "misclassification",
        "misclassification rate",
        Target.error,
    ),
    _score("balanced_accuracy", "the mean recall of the classes", _balanced_accuracy),
    _score("roc_auc", "the area under the ROC curve", "roc_auc_score", needs=BOTH),
    _multiclass_roc_auc("roc_auc_ovr", "class", "ovr"),
    _multiclass_roc_auc("roc_auc_ovr_weighted", "class by its rows", "ovr", "weighted"),
    _multiclass_roc_auc("roc_auc_ovo", "pair of classes", "ovo"),
    _multiclass_roc_auc(
        "roc_auc_ovo_weighted", "pair of classes by its rows", "ovo", "weighted"
    ),
    _score(
        "average_precision",
        "the average precision",
        "average_precision_score",
        needs=BOTH,
        positive=True,
    ),
    _binary_score("f1", "the F1 score", "f1_score"),
    _averaged_score(
        "f1_macro", "the mean F1 score of the classes", "f1_score", "macro"
    ),
    _averaged_score(
        "f1_weighted",
        "the mean F1 score of the classes by their rows",
        "f1_score",
        "weighted",
    ),
    _binary_score("precision", "the precision", "precision_score"),
    _averaged_score(
        "precision_macro",
        "the mean precision of the classes",
        "precision_score",
        "macro",
    ),
    _averaged_score(
        "precision_weighted",
        "the mean precision of the classes by their rows",
        "precision_score",
        "weighted",
    ),
    _binary_score("recall", "the recall", "recall_score"),
    _averaged_score(
        "recall_macro",
        "the mean recall of classes that are there or predicted",
        "recall_score",
        "macro",
    ),
    _binary_score("jaccard", "the Jaccard index", "jaccard_score"),
    _averaged_score(
        "jaccard_macro",
        "the mean Jaccard index of the classes",
        "jaccard_score",
        "macro",
    ),
    _averaged_score(
        "jaccard_weighted",
        "the mean Jaccard index of the classes by their rows",
        "jaccard_score",
        "weighted",
    ),
    _score(
        "matthews_corrcoef",
        "the correlation of classes and predictions",
        "matthews_corrcoef",
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
        _brier_score,
    ),
    _regression_error(
        "neg_root_mean_squared_error", "rmse", "root mean squared error", Target.error
    ),
    _regression_error(
        "neg_mean_absolute_error",
        "mae",
        "mean absolute error",
        "mean_absolute_error",
        _median,
    ),
    _regression_error(
        "neg_median_absolute_error",
        "median_ae",
        "median absolute error",
        "median_absolute_error",
        _median,
    ),
    _regression_error(
        "neg_mean_absolute_percentage_error",
        "mape",
        "mean absolute error as a share of the target",
        "mean_absolute_percentage_error",
        _relative_median,
    ),
    _regression_error(
        "neg_max_error", "max_error", "largest absolute error", _max_error, _midrange
    ),
    _regression_error(
        "neg_mean_squared_error", "mse", "mean squared error", "mean_squared_error"
    ),
    _score(
        "r2",
        "R2, the squared error over that of the mean of the test rows",
        "r2_score",
        "regression",
        needs="different values of the target",
    ),
    _score(
        "explained_variance",
        "the explained share of the variance",
        "explained_variance_score",
        "regression",
        needs="different values of the target",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}


def in_words(error_in_table: str) -> str:
    """Convert an error's name in tables to its name in reports."""
    error, _, positive = error_in_table.partition(" of ")
    words = next(
        (metric.words for metric in METRICS.values() if metric.error == error), error
    )
    if positive:
        return f"{words} of {positive}"
    return words
