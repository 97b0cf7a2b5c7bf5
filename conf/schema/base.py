"""Parts that all configurations use: strict models, names and numbers."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from learnkernels.kernels import registry

from ..errors import did_you_mean, short

if TYPE_CHECKING:
    LearnerName = str
    MetricName = str
    PredictorName = str
else:
    LearnerName = Literal[tuple(sorted(registry.LEARNERS))]
    MetricName = Literal[tuple(registry.METRICS)]
    PredictorName = Literal[tuple(registry.PREDICTORS)]


class Strict(BaseModel):
    """Immutable pydantic model that refuses unknown keys, and suggests similar valid ones."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        allow_inf_nan=False,
        ser_json_inf_nan="strings",
    )

    def _complaints(self) -> Iterator[str]:
        """Yield a sentence per conflict between keys; the first is shown."""
        return iter(())

    @model_validator(mode="after")
    def _refuse_what_does_not_go_together(self) -> Self:
        if complaint := next(self._complaints(), None):
            raise ValueError(complaint)
        return self

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, cls):
            return data
        valid = [item.alias or name for name, item in cls.model_fields.items()]
        if not isinstance(data, dict):
            raise ValueError(
                f"must be a mapping, with keys of {', '.join(valid)}; got {short(data)}"
            )
        for key in data:
            if key not in valid and key not in cls.model_fields:
                hint = cls._place_of(key) or did_you_mean(key, valid)
                raise ValueError(
                    f"unknown key {short(key)}; {hint}valid keys: {', '.join(valid)}"
                )
        return data

    @classmethod
    def _place_of(cls, key: Any) -> str:
        """Return a phrase that names the part with the key."""
        for name, item in cls.model_fields.items():
            part = item.annotation
            if (
                isinstance(part, type)
                and issubclass(part, Strict)
                and key in part.model_fields
            ):
                return f"it belongs under {name!r}; "
        return ""


def by_default(kind: type[BaseModel], description: str) -> Any:
    """Return a pydantic field whose default is a `kind` with all its defaults."""
    return Field(
        default_factory=lambda: kind.model_validate({}), description=description
    )


Positive = Annotated[float, Field(gt=0)]


def as_text(value: Any) -> Any:
    if isinstance(value, int | float):
        return str(value)
    return value


def several(value: Any) -> Any:
    """Return a single value or mapping as a list of one; leave lists unchanged."""
    if isinstance(value, str | int | float | dict):
        return [value]
    return value


def as_mapping(key: str, value: Any) -> Any:
    """Return a text as a mapping ``{key: text}``; other values are unchanged."""
    if isinstance(value, str):
        return {key: value}
    return value


def as_number(value: Any) -> Any:
    """Return a text such as 1e-6 as a number, also within a list."""
    if isinstance(value, list):
        return [as_number(item) for item in value]
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value


Parameter = Annotated[Any, BeforeValidator(as_number)]
"""Value of a parameter of a learner, a custom family or a synthetic data set."""

OWN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


def _module_and_class(name: str) -> str:
    if not re.match(OWN, name):
        raise ValueError(
            f"must be module:Class for a custom one, such as my_file:MyClass, got {short(name)}"
        )
    return name


OwnName = Annotated[
    str, AfterValidator(_module_and_class), Field(json_schema_extra={"pattern": OWN})
]

MOST_VALUES = 1000
"""Largest number of values of a computed grid."""

GRID_FORMS = "a list, {base, from, to}, or {from, to, count, spacing}"


class Powers(Strict):
    """Grid of parameter values: all powers of a base between two exponents."""

    base: float = Field(2.0, gt=1, description="The base.")
    start: int = Field(alias="from", description="The first exponent.")
    stop: int = Field(alias="to", description="The last exponent, included.")

    def _complaints(self) -> Iterator[str]:
        if self.stop < self.start:
            yield f"'to' must not be below 'from', got from {short(self.start)} to {short(self.stop)}"
        if self.stop - self.start >= MOST_VALUES:
            yield (
                f"a grid has at most {MOST_VALUES:,} numbers, got from {short(self.start)} to {short(self.stop)}; "
                "raise the base, or take fewer powers"
            )
        for exponent in (self.start, self.stop):
            with suppress(OverflowError):
                if 0 < self.base**exponent < math.inf:
                    continue
            yield f"{self.base:g} to the power of {short(exponent)} is no positive number of a computer"

    def values(self) -> list[float]:
        return [self.base**exponent for exponent in range(self.start, self.stop + 1)]


class Spaced(Strict):
    """Grid of parameter values: positive numbers with equal steps or equal ratios."""

    start: Positive = Field(alias="from", description="The first number.")
    stop: Positive = Field(alias="to", description="The last number, included.")
    count: int = Field(ge=2, le=MOST_VALUES, description="How many numbers.")
    spacing: Literal["linear", "log"] = Field(
        "linear",
        description="linear: neighbors have one distance. log: they have one ratio.",
    )

    def _complaints(self) -> Iterator[str]:
        if self.stop <= self.start:
            yield f"'to' must be above 'from', got from {self.start:g} to {self.stop:g}"

    def values(self) -> list[float]:
        shares = [i / (self.count - 1) for i in range(self.count)]
        if self.spacing == "log":
            return [self.start ** (1 - share) * self.stop**share for share in shares]
        return [self.start * (1 - share) + self.stop * share for share in shares]


def _meant_keys(value: dict[Any, Any]) -> set[str]:
    keys = ("base", "start", "stop", "from", "to", "count", "spacing")
    return {
        name for key in value for name in difflib.get_close_matches(str(key), keys, n=1)
    }


def _of_some_form(value: Any) -> Any:
    """Return a number as a list; refuse values that are no grid."""
    number = as_number(value)
    if isinstance(number, int | float) and not isinstance(number, bool):
        return [number]
    if isinstance(value, Powers | Spaced) or (
        value and isinstance(value, list | tuple)
    ):
        return value
    if isinstance(value, dict) and _meant_keys(value):
        return value
    raise ValueError(
        "must be a list such as [0.1, 1, 10], powers such as {base: 2, from: -3, to: 3}, or spaced numbers such as "
        f"{{from: 0.1, to: 10, count: 5, spacing: log}}, got {short(value)}"
    )


def _kind_of_grid(value: Any) -> str:
    if isinstance(value, Spaced):
        return "spaced"
    if isinstance(value, Powers):
        return "powers"
    if not isinstance(value, dict):
        return "list"
    if _meant_keys(value) & {"count", "spacing"}:
        return "spaced"
    return "powers"


Grid = Annotated[
    Annotated[list[Positive], Field(min_length=1), Tag("list")]
    | Annotated[Powers, Tag("powers")]
    | Annotated[Spaced, Tag("spaced")],
    Discriminator(_kind_of_grid),
    BeforeValidator(_of_some_form),
]


def grid_values(grid: list[float] | Powers | Spaced) -> list[float]:
    if isinstance(grid, list):
        return list(grid)
    return grid.values()
