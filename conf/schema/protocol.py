"""How errors are measured."""

from __future__ import annotations

import re
from typing import Any

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from learnkernels.conf.errors import short
from learnkernels.conf.schema.base import Grid, MetricName, Powers, Spaced, Strict, grid_values
from learnkernels.kernels import registry

OF_PROBABILITIES = [name for name, measured in registry.METRICS.items() if measured == "probabilities"]
"""Metrics that are measured on a probability a class."""

NO_METRIC = {
    r"neg_mean_(gamma|poisson)_deviance|neg_(root_)?mean_squared_log_error": "is for predictions that are positive, "
    "which those of a kernel need not be; learn the logarithm of the target",
    r"\w*(mutual_info|rand|completeness|mallows|homogeneity|v_measure)_score": "compares groupings, not predictions "
    "and classes; take balanced_accuracy or matthews_corrcoef",
    r"\w+_samples": "is for several classes a row, and here each row has one; take the one that ends in _macro instead",
    r"(f1|precision|recall)_micro|recall_weighted": "is the accuracy where each row has one class; take accuracy",
    r"jaccard_micro": "orders learners as the accuracy does where each row has one class; take accuracy",
    r"top_k_accuracy": "needs a number of classes that its name does not say; take accuracy or neg_log_loss",
    r"(neg_negative|positive)_likelihood_ratio": "is not defined where all rows are predicted as one class; take "
    "precision or recall",
    r"d2_\w+": "orders learners as the loss itself does; take neg_mean_absolute_error, neg_brier_score or neg_log_loss",
}
"""Patterns of scikit-learn's scores that are none here, and why."""


class SplitConfig(Strict):
    """How many rows are drawn, without replacement, for each purpose; the others are not used."""

    train: int = Field(ge=2, description="Rows that kernel and predictor are learned on.")
    validation: int | None = Field(
        None, ge=2, description="Rows that choose Lambda, and parameters that are tuned; null where `choose` is given."
    )
    test: int | None = Field(
        None,
        ge=2,
        description="Rows that test; by default all that the `test` of a data set names.",
    )


class ChooseConfig(Strict):
    """A cross-validation within the training rows, in place of rows that are kept aside for validation."""

    folds: int = Field(10, ge=3, le=100, description="Folds of the training rows that validate each other.")
    once: bool = Field(
        False,
        description="Choose in the first repeat alone, as some papers do; this favors tuned learners, as rows that "
        "chose test later.",
    )


class ProtocolConfig(Strict):
    """How errors are measured: in each trial one fold tests, the next validates, the others train.

    With `split`, each repeat is one trial on rows drawn anew. Data sets with `groups` or `time` are divided by these.
    """

    later = ("metric", "refit")

    folds: int | None = Field(5, ge=3, le=100, description="Number of folds; null where there is a split.")
    split: SplitConfig | None = Field(
        None, description="In place of folds: the rows that train, validate and test, drawn anew in each repeat."
    )
    choose: ChooseConfig | None = Field(
        None,
        description="With a `split` without validation rows: cross-validation within the training rows chooses Lambda "
        "and tuned parameters.",
    )
    refit: bool = Field(
        False,
        description="Refit the choice on training and validation rows before it is tested, as a grid search does.",
    )
    repeats: int = Field(1, ge=1, le=1000, description="Times the folds, or the split, are drawn anew.")
    seed: int = Field(0, ge=0, description="Root of every random choice.")
    metric: MetricName | None = Field(
        None,
        description="scikit-learn's name of a score, turned into an error; by default accuracy or "
        "neg_root_mean_squared_error. average_precision, f1, precision, recall and jaccard are of the class "
        "`positive`, or the last. Probabilities are calibrated by a sigmoid on the validation rows.",
    )
    grid: Grid = Field(
        default_factory=lambda: Powers.model_validate({"base": 2, "from": -6, "to": 14}),
        description="Lambda, the scale of the learned kernel; C of the SVM, 1 / lambda of the ridge.",
    )

    @field_validator("metric", mode="before")
    @classmethod
    def _a_score_that_serves(cls, value: Any) -> Any:
        for pattern, why in NO_METRIC.items():
            if isinstance(value, str) and re.fullmatch(pattern, value):
                raise ValueError(f"{value} {why}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _folds_or_split(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        folds, split = data.get("folds"), data.get("split")
        if folds is not None and split is not None:
            raise ValueError("'folds' and 'split' exclude each other; give one of them, and null for the other")
        if "folds" in data and folds is None and split is None:
            raise ValueError("'folds' is null and there is no 'split'; give one of them")
        return data if split is None else {**data, "folds": None}

    @model_validator(mode="after")
    def _something_chooses(self) -> ProtocolConfig:
        if self.choose is not None and self.split is None:
            raise ValueError(
                "'choose' goes with 'split', of which it divides the training rows; with folds, one validates"
            )
        if self.choose is not None and self.refit:
            raise ValueError(
                "'refit' goes with validation rows, and with 'choose' there are none: all training rows train in any "
                "case; leave 'refit' out"
            )
        if self.choose is not None and self.choose.once and self.metric in OF_PROBABILITIES:
            raise ValueError(
                f"metric {self.metric} is of probabilities, whose sigmoid is fitted by the rows that choose, and with "
                "'choose.once' none do after the first repeat; leave 'once' out, or take another metric"
            )
        if self.split is not None and (self.split.validation is None) == (self.choose is None):
            got = "neither" if self.choose is None else "both"
            raise ValueError(
                "a split needs either 'validation' rows or 'choose', a cross-validation of its training rows, got "
                f"{got}; give one of them"
            )
        return self

    @field_validator("grid")
    @classmethod
    def _ascending(cls, grid: list[float] | Powers | Spaced) -> list[float] | Powers | Spaced:
        values = grid_values(grid)
        if values != sorted(set(values)):
            raise ValueError(f"the grid must ascend without repetition, got {short(values)}")
        return grid
