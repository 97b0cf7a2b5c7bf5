"""What every part of a configuration is made of."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from learnkernels.conf.errors import did_you_mean


class Strict(BaseModel):
    """A frozen model that refuses unknown keys and names the valid ones."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False, ser_json_inf_nan="strings"
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            valid = [item.alias or name for name, item in cls.model_fields.items()]
            for key in data:
                if key not in valid and key not in cls.model_fields:
                    raise ValueError(f"unknown key {key!r}; {did_you_mean(key, valid)}valid keys: {', '.join(valid)}")
        return data


Positive = Annotated[float, Field(gt=0)]


def as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) else value


def _as_number(value: Any) -> Any:
    """Return the number that YAML takes for text, such as 1e-6, and anything else as it is."""
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value


Parameter = Annotated[Any, BeforeValidator(_as_number)]
"""Value of a parameter of a learner or of a synthetic data set."""
