"""Describe parameters of flows for Prefect's forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, WithJsonSchema

from .errors import InputError, require_configured
from .loading import validated
from .schema import (
    FEWEST_FOLDS,
    MOST_FOLDS,
    CompareConfig,
    DatasetConfig,
    LearnerConfig,
)
from .schema.base import LearnerName, MetricName

AS_CONFIGURED: Final = "as configured"
"""Choice of a list that changes nothing."""


def form_field(description: str, **limits: Any) -> Any:
    """Return a pydantic field with limits, and a description for Prefect's run form."""
    return Field(json_schema_extra={"description": description}, **limits)


def drawn_as(description: str, **schema: Any) -> WithJsonSchema:
    """Return the JSON schema with which Prefect's run form shows a parameter.

    A form fills in an empty text at once, but None only after a choice of type.
    """
    return WithJsonSchema({"description": description, **schema})


WholeConfig = Annotated[
    CompareConfig,
    drawn_as("The whole configuration, with the keys of a YAML file.", type="object"),
]
"""Configuration as one field of the form, instead of 240 controls."""

OnlyDataset = Annotated[
    str | None,
    drawn_as(
        "The data set to learn from, if the configuration has several.", type="string"
    ),
]
OnlyLearner = Annotated[
    str | None, drawn_as("Restrict to this learner.", type="string")
]
NewModel = Annotated[
    str,
    drawn_as(
        "Name of the registered model that gets a new version.",
        type="string",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    ),
]

Table = Annotated[
    str,
    drawn_as(
        "A file, folder or pattern, or s3://bucket/key, in place of that of the data set.",
        type="string",
    ),
]
TargetColumn = Annotated[
    str,
    drawn_as("The column to predict, in place of that of the data set.", type="string"),
]
Learners = Annotated[
    list[LearnerName],
    form_field("Learners to compare, in place of the configured ones."),
]
Folds = Annotated[
    int,
    drawn_as(
        f"Number of folds, from {FEWEST_FOLDS} to {MOST_FOLDS}; 0 for the configured number.",
        type="integer",
        minimum=0,
        maximum=MOST_FOLDS,
        **{"not": {"enum": list(range(1, FEWEST_FOLDS))}},
    ),
]
MetricChoice = Annotated[
    Literal["as configured", MetricName],  # type: ignore[valid-type]
    form_field("Metric of selection, reports and tests."),
]
BaselineChoice = Annotated[
    Literal[
        "as configured",
        "none",
        "one tuned kernel",
        "one tuned kernel and boosting",
        "all",
    ],
    form_field(
        "Models to compare with: a constant, a linear model, a tuned RBF kernel, gradient boosting, and the default "
        "estimator."
    ),
]

BASELINES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "one tuned kernel": {},
    "one tuned kernel and boosting": {"boosting": True},
    "all": {"boosting": True, "estimator": True},
}
"""Key `baseline` of a configuration, by the choice in the form."""


def with_form_fields(
    config: CompareConfig,
    *,
    dataset: str | None = "",
    table: str = "",
    target: str = "",
    learners: Sequence[str] = (),
    folds: int = 0,
    metric: str = AS_CONFIGURED,
    baseline: str = AS_CONFIGURED,
) -> CompareConfig:
    """Return a configuration changed by the filled-in fields of Prefect's run form.

    `dataset` is the label of the only data set to use. Configured learners keep their
    parameters. `folds` replace a split, too. InputError for an unknown data set.
    """
    changes: dict[str, Any] = {}
    datasets: Sequence[DatasetConfig] = config.datasets
    if dataset:
        changes["datasets"] = datasets = [_dataset_named(dataset, datasets)]
    if table or target:
        changes["datasets"] = [_changed_dataset(datasets, table, target)]
    if learners:
        changes["learners"] = [
            learner
            for name in learners
            for learner in _learners_named(name, config.learners)
        ]
    protocol: dict[str, Any] = {}
    if folds:
        protocol = {"folds": folds, "split": None, "choose": None}
    if metric != AS_CONFIGURED:
        protocol["metric"] = metric
    if protocol:
        changes["protocol"] = (
            config.protocol.model_dump(exclude_defaults=True) | protocol
        )
    if baseline != AS_CONFIGURED:
        changes["baseline"] = BASELINES[baseline]
    if not changes:
        return config
    data = {key: getattr(config, key) for key in config.model_fields_set}
    return validated(CompareConfig.model_validate, data | changes, "the form")


def _learners_named(
    name: str, configured: Sequence[LearnerConfig]
) -> list[LearnerConfig | dict[str, Any]]:
    same = [learner for learner in configured if name in (learner.title, learner.name)]
    return [*same] or [{"name": name}]


def _dataset_named(name: str, datasets: Sequence[DatasetConfig]) -> DatasetConfig:
    by_label = {dataset.label: dataset for dataset in datasets}
    require_configured(name, list(by_label), f"dataset {name}")
    return by_label[name]


def _changed_dataset(
    datasets: Sequence[DatasetConfig], table: str, target: str
) -> dict[str, Any]:
    if len(datasets) > 1:
        labels = ", ".join(dataset.label for dataset in datasets)
        raise InputError(
            f"table and target belong to one data set, and the configuration has {labels}; name one as dataset."
        )
    keys = datasets[0].model_dump(by_alias=True, exclude_unset=True)
    if table:
        for key in ("name", "version"):
            keys.pop(key, None)
        keys |= {"source": "file", "path": table}
    if target:
        keys["target"] = target
    return keys
