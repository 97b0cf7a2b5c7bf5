"""What a form shows beside a parameter of a flow."""

from __future__ import annotations

from typing import Any

from pydantic import Field


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
