"""What every part of a configuration is made of."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from learnkernels.conf.errors import did_you_mean, short
from learnkernels.kernels import registry

if TYPE_CHECKING:
    LearnerName = str
    MetricName = str
    PredictorName = str
else:
    LearnerName = Literal[tuple(sorted(registry.LEARNERS))]
    MetricName = Literal[tuple(registry.METRICS)]
    PredictorName = Literal[tuple(registry.PREDICTORS)]


class Strict(BaseModel):
    """A frozen model that refuses unknown keys, and says which are valid or where a key belongs."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False, ser_json_inf_nan="strings"
    )
    later: ClassVar[tuple[str, ...]] = ()
    """Keys that came later: left out of a dump where they are as by default, as results are stored under it."""

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = dump(self)
        fields = type(self).model_fields
        for key in self.later:
            if getattr(self, key) == fields[key].get_default(call_default_factory=True):
                data.pop(key, None)
        return data

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, cls):
            return data
        valid = [item.alias or name for name, item in cls.model_fields.items()]
        if not isinstance(data, dict):
            raise ValueError(f"must be a mapping, with keys of {', '.join(valid)}; got {short(data)}")
        for key in data:
            if key not in valid and key not in cls.model_fields:
                hint = cls._place_of(key) or did_you_mean(key, valid)
                raise ValueError(f"unknown key {short(key)}; {hint}valid keys: {', '.join(valid)}")
        return data

    @classmethod
    def _place_of(cls, key: Any) -> str:
        """Return words that say which part of this one has a key, and a space; nothing where none has."""
        for name, item in cls.model_fields.items():
            part = item.annotation
            if isinstance(part, type) and issubclass(part, Strict) and key in part.model_fields:
                return f"it belongs under {name!r}; "
        return ""


Positive = Annotated[float, Field(gt=0)]


def as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) else value


def several(value: Any) -> Any:
    """Return one value, or one mapping, as a list of one; several as they are."""
    return [value] if isinstance(value, str | int | float | dict) else value


def as_number(value: Any) -> Any:
    """Return the number that YAML takes for text, such as 1e-6, also in lists, and anything else as it is."""
    if isinstance(value, list):
        return [as_number(one) for one in value]
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value


Parameter = Annotated[Any, BeforeValidator(as_number)]
"""Value of a parameter of a learner, a family of one's own or a synthetic data set."""

OWN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


def _module_and_class(name: str) -> str:
    if not re.match(OWN, name):
        raise ValueError(f"must be module:Class for one of your own, such as my_file:MyClass, got {short(name)}")
    return name


OwnName = Annotated[str, AfterValidator(_module_and_class), Field(json_schema_extra={"pattern": OWN})]
"""A class of a user's own: ``module:Class``, from a file in the working folder or from what is installed."""
