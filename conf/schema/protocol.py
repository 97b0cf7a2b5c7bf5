"""How errors are measured."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from learnkernels.conf.errors import short
from learnkernels.conf.schema.base import Strict
from learnkernels.conf.schema.grids import Grid, Powers, Spaced, grid_values

MetricName = Literal[
    "accuracy",
    "balanced_accuracy",
    "roc_auc",
    "average_precision",
    "f1",
    "f1_macro",
    "neg_root_mean_squared_error",
    "neg_mean_absolute_error",
    "neg_mean_squared_error",
    "r2",
]


class SplitConfig(Strict):
    """How many rows are drawn, without replacement, for each purpose; the others are not used."""

    train: int = Field(ge=2, description="Rows that kernel and predictor are learned on.")
    validation: int | None = Field(
        None, ge=2, description="Rows that choose Lambda, and parameters that are tuned; null where `choose` is given."
    )
    test: int | None = Field(
        None,
        ge=2,
        description="Rows that the error is measured on; needed but where data sets say with `test` which rows test: "
        "then by default all of these.",
    )

    @field_validator("train", "validation", "test", mode="before")
    @classmethod
    def _whole_rows(cls, value: Any) -> Any:
        with suppress(TypeError, ValueError, OverflowError):
            if value is None or float(value).is_integer():
                return value
        raise ValueError(
            "must be a whole number of rows, and no share of them; write numbers as in split: {train: 600, validation: "
            f"200, test: 200}}, got {short(value)}"
        )


class ChooseConfig(Strict):
    """A cross-validation within the training rows, in place of rows that are kept aside for validation."""

    folds: int = Field(10, ge=3, le=100, description="Folds of the training rows that validate each other.")
    once: bool = Field(
        False,
        description="Choose on the training rows of the first repeat alone and keep that for all repeats, as some "
        "papers do; rows that have chosen then test in other repeats, which favours every learner that is tuned.",
    )


LEAST: dict[str | None, tuple[int, str]] = {
    "folds": (3, "as one fold tests, one validates and the others train"),
    "repeats": (1, "as one draws the folds, or the split, once"),
    "seed": (0, "as no random numbers follow from a negative one"),
}
"""Least values of the protocol, and why."""


class ProtocolConfig(Strict):
    """How errors are measured: in each trial one fold tests, the next validates, the others train.

    With `split`, each repeat is one trial on rows drawn anew. Data sets with `groups` or `time` are divided by these.
    """

    folds: int | None = Field(5, ge=3, le=100, description="Number of folds; null where there is a split.")
    split: SplitConfig | None = Field(
        None, description="In place of folds: the rows that train, validate and test, drawn anew in each repeat."
    )
    choose: ChooseConfig | None = Field(
        None,
        description="With a `split` that has no validation rows: Lambda, and parameters that are tuned, are chosen by "
        "cross-validation within the training rows, and all of these then train.",
    )
    repeats: int = Field(1, ge=1, le=1000, description="Times the folds, or the split, are drawn anew.")
    seed: int = Field(0, ge=0, description="Root of every random choice.")
    metric: MetricName | None = Field(
        None,
        description="What errors are measured by, that choose, that are shown and that are tested: a score by "
        "scikit-learn's name, as an error of which less is better, such as 1 - roc_auc. By default accuracy, shown as "
        "misclassification, and neg_root_mean_squared_error, shown as rmse. roc_auc, average_precision and f1 are for "
        "two classes; the positive one of the latter two is that of `positive`, or else the last in order.",
    )
    grid: Grid = Field(
        default_factory=lambda: Powers.model_validate({"base": 2, "from": -6, "to": 14}),
        description="Lambda, the scale of the learned kernel; C of the SVM, 1 / lambda of the ridge.",
    )

    @field_validator("folds", "repeats", "seed", mode="before")
    @classmethod
    def _enough(cls, value: Any, info: ValidationInfo) -> Any:
        least, why = LEAST[info.field_name]
        if isinstance(value, int | float) and value < least:
            raise ValueError(f"must be at least {least}, {why}, got {short(value)}")
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
        if self.split is not None and (self.split.validation is None) == (self.choose is None):
            got = "neither" if self.choose is None else "both"
            raise ValueError(
                "a split needs either 'validation' rows or 'choose', a cross-validation of its training rows, got "
                f"{got}; give one of them"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_usual_metric(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `metric` out where it is not given: what depends on a configuration is stored under its dump."""
        data: dict[str, Any] = dump(self)
        if self.metric is None:
            data.pop("metric", None)
        return data

    @field_validator("grid")
    @classmethod
    def _ascending(cls, grid: list[float] | Powers | Spaced) -> list[float] | Powers | Spaced:
        values = grid_values(grid)
        if values != sorted(set(values)):
            raise ValueError(f"the grid must ascend without repetition, got {short(values)}")
        return grid
