"""Parameters of flows as Prefect's form shows them, which reads the schema of a flow and no docstring."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from .schema import CompareConfig


def form_field(description: str, **limits: Any) -> Any:
    """Return a pydantic field whose description the form shows.

    Parameters
    ----------
    description : str
        The text.
    **limits
        Limits of the value, as `pydantic.Field` takes them: ``gt``, ``lt`` and the like.
    """
    return Field(json_schema_extra={"description": description}, **limits)


def drawn_as(description: str, **schema: Any) -> WithJsonSchema:
    """Return the schema by which the form shows a parameter, with limits that Prefect's server checks, too.

    A form requires a choice of type before a value that may be None can be filled in. An empty text can be filled in
    at once.
    """
    return WithJsonSchema({"description": description, **schema})


WholeConfig = Annotated[
    CompareConfig, drawn_as("The whole configuration, with the keys of a YAML file.", type="object")
]
"""A configuration that the form shows as one field of JSON: its schema would be about 240 controls."""

OnlyDataset = Annotated[
    str | None, drawn_as("The data set to learn from, if the configuration has several.", type="string")
]
OnlyLearner = Annotated[str | None, drawn_as("Restrict to this learner.", type="string")]
NewModel = Annotated[
    str,
    drawn_as(
        "Name of the registered model that gets a new version.",
        type="string",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    ),
]
