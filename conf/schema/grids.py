"""Lists of numbers, and the two ways to write a long one."""

from __future__ import annotations

import difflib
import math
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from learnkernels.conf.errors import short
from learnkernels.conf.schema.base import Positive, Strict, as_number

MOST_VALUES = 1000
"""Numbers that a grid stands for which is not written out."""

GRID_FORMS = "a list, {base, from, to}, or {from, to, count, spacing}"


class Powers(Strict):
    """Every whole power of a base, both ends included."""

    base: float = Field(2.0, gt=1, description="What is raised to the powers.")
    start: int = Field(alias="from", description="The first exponent.")
    stop: int = Field(alias="to", description="The last exponent, included.")

    @model_validator(mode="after")
    def _ordered(self) -> Powers:
        if self.stop < self.start:
            raise ValueError(f"'to' must not be below 'from', got from {short(self.start)} to {short(self.stop)}")
        if self.stop - self.start >= MOST_VALUES:
            raise ValueError(
                f"a grid has at most {MOST_VALUES:,} numbers, got from {short(self.start)} to {short(self.stop)}; "
                "raise the base, or take fewer powers"
            )
        for exponent in (self.start, self.stop):
            with suppress(OverflowError):
                if 0 < self.base**exponent < math.inf:
                    continue
            raise ValueError(f"{self.base:g} to the power of {short(exponent)} is no positive number of a computer")
        return self

    def values(self) -> list[float]:
        """Return the numbers, ascending."""
        return [self.base**exponent for exponent in range(self.start, self.stop + 1)]


class Spaced(Strict):
    """Some positive numbers from one to another, both included: equidistant, or with one ratio."""

    start: Positive = Field(alias="from", description="The first number.")
    stop: Positive = Field(alias="to", description="The last number, included.")
    count: int = Field(ge=2, le=MOST_VALUES, description="How many numbers.")
    spacing: Literal["linear", "log"] = Field(
        "linear", description="linear: neighbours have one distance. log: they have one ratio."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Spaced:
        if self.stop <= self.start:
            raise ValueError(f"'to' must be above 'from', got from {self.start:g} to {self.stop:g}")
        return self

    def values(self) -> list[float]:
        """Return the numbers, ascending."""
        shares = [i / (self.count - 1) for i in range(self.count)]
        if self.spacing == "log":
            return [self.start ** (1 - share) * self.stop**share for share in shares]
        return [self.start * (1 - share) + self.stop * share for share in shares]


def _meant_keys(value: dict[Any, Any]) -> set[str]:
    known = ("base", "start", "stop", "from", "to", "count", "spacing")
    return {name for key in value for name in difflib.get_close_matches(str(key), known, n=1)}


def _of_some_form(value: Any) -> Any:
    """Return one number as a list of it, and refuse what is of none of the forms."""
    number = as_number(value)
    if isinstance(number, int | float) and not isinstance(number, bool):
        return [number]
    if isinstance(value, Powers | Spaced) or (value and isinstance(value, list | tuple)):
        return value
    if isinstance(value, dict) and _meant_keys(value):
        return value
    raise ValueError(
        "must be a list such as [0.1, 1, 10], powers such as {base: 2, from: -3, to: 3}, or spaced numbers such as "
        f"{{from: 0.1, to: 10, count: 5, spacing: log}}, got {short(value)}"
    )


def _kind_of_grid(value: Any) -> str:
    if isinstance(value, dict):
        return "spaced" if _meant_keys(value) & {"count", "spacing"} else "powers"
    return "powers" if isinstance(value, Powers) else "spaced" if isinstance(value, Spaced) else "list"


Grid = Annotated[
    Annotated[list[Positive], Field(min_length=1), Tag("list")]
    | Annotated[Powers, Tag("powers")]
    | Annotated[Spaced, Tag("spaced")],
    Discriminator(_kind_of_grid),
    BeforeValidator(_of_some_form),
]
"""A list of positive numbers, the powers of a base, or a number of them from one to another."""


def grid_values(grid: list[float] | Powers | Spaced) -> list[float]:
    """Return the numbers of a grid, as given."""
    return list(grid) if isinstance(grid, list) else grid.values()
