"""What a form shows of the parameters of a flow, and what is filled in there next to a whole configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, WithJsonSchema

from learnkernels.conf.errors import InputError, did_you_mean
from learnkernels.conf.loading import validated
from learnkernels.conf.schema import CompareConfig
from learnkernels.conf.schema.base import LearnerName, MetricName


def shown(description: str, **limits: Any) -> Any:
    """Return a pydantic field whose description reaches Prefect's form, which reads the schema of a flow alone.

    Parameters
    ----------
    description : str
        What is shown.
    **limits
        Of the value, as `pydantic.Field` takes them: ``gt``, ``lt`` and the like.
    """
    return Field(json_schema_extra={"description": description}, **limits)


def _drawn_as(description: str, **schema: Any) -> WithJsonSchema:
    """Return what makes a form show a parameter by a schema of its own.

    A form asks which type a value that may be None is to have before it can be filled in; as text that is empty, it
    can be filled in at once.
    """
    return WithJsonSchema({"description": description, **schema})


WholeConfig = Annotated[
    CompareConfig,
    _drawn_as(
        "The whole configuration, with the keys of a YAML file; what is filled in above goes first.", type="object"
    ),
]
"""A configuration that a form shows as one field of JSON: its schema would be about 240 controls."""

AS_CONFIGURED: Final = "as configured"
"""The choice that changes nothing."""

BaselineChoice = Literal["as configured", "none", "one tuned kernel", "one tuned kernel and boosting"]
"""Baselines, for a form."""

BASELINES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "one tuned kernel": {},
    "one tuned kernel and boosting": {"boosting": True},
}
"""The key `baseline` of each."""

OnlyDataset = Annotated[
    str | None, _drawn_as("The data set to learn from, where the configuration has several.", type="string")
]
OnlyLearner = Annotated[str | None, _drawn_as("Restrict to this learner.", type="string")]
Table = Annotated[
    str, _drawn_as("A file, folder or pattern, here or s3://bucket/key, in place of the data set's.", type="string")
]
TargetColumn = Annotated[str, _drawn_as("The column to predict, in place of the data set's.", type="string")]
Learners = Annotated[list[LearnerName], shown("Learners to compare, instead of the configured ones.")]
Folds = Annotated[int, shown("Number of folds; 0 as configured.", ge=0, le=1000)]
MetricChoice = Annotated[
    Literal["as configured", MetricName],  # type: ignore[valid-type]
    shown("Metric for selection, reporting and testing."),
]
Baseline = Annotated[BaselineChoice, shown("Add baselines: a tuned RBF kernel, gradient boosting and others.")]


def filled_in(
    config: CompareConfig,
    dataset: str | None = "",
    table: str = "",
    target: str = "",
    learners: Sequence[str] = (),
    folds: int = 0,
    metric: str = AS_CONFIGURED,
    baseline: str = AS_CONFIGURED,
) -> CompareConfig:
    """Return a configuration with what was filled in next to it in a form; what was left empty stays.

    Parameters
    ----------
    config : CompareConfig
        The whole of it.
    dataset : str, optional
        The name in reports of the only data set.
    table, target : str, optional
        Where the data set lies, and what is predicted of it.
    learners : sequence of str, optional
        Names; one that the configuration has keeps its parameters.
    folds : int, optional
        In place of folds or split.
    metric, baseline : str, optional
        As `protocol.metric` and `BASELINES` have them.

    Raises
    ------
    InputError
        There is no such data set, several could be meant, or the whole no longer fits together.
    """
    data = config.model_dump(mode="json", by_alias=True)
    data["datasets"] = _datasets(data["datasets"], [one.label for one in config.datasets], dataset, table, target)
    if learners:
        known = {one.title: given for one, given in zip(config.learners, data["learners"], strict=True)}
        data["learners"] = [known.get(name, {"name": name}) for name in learners]
    if folds:
        data["protocol"] |= {"folds": folds, "split": None, "choose": None}
    if metric != AS_CONFIGURED:
        data["protocol"]["metric"] = metric
    if baseline != AS_CONFIGURED:
        data["baseline"] = BASELINES[baseline]
    if data == config.model_dump(mode="json", by_alias=True):
        return config
    return validated(CompareConfig.model_validate, data, "the form")


def _datasets(
    given: list[dict[str, Any]], labels: Sequence[str], only: str | None, table: str, target: str
) -> list[dict[str, Any]]:
    """Return data sets with what was filled in, of which `labels` are the names."""
    if only:
        if only not in labels:
            meant = did_you_mean(only, labels)
            raise InputError(f"dataset {only}: {meant}the configuration has {', '.join(labels)}; name one of them.")
        given = [given[labels.index(only)]]
    if not table and not target:
        return given
    if len(given) > 1:
        raise InputError(
            f"table and target are those of one data set, and the configuration has {', '.join(labels)}; name one as "
            "dataset."
        )
    place = {} if not table else {"source": "file", "path": table, "name": None, "version": None}
    return [given[0] | place | ({"target": target} if target else {})]
