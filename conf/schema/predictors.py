"""Predictors: the second stage."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from learnkernels.conf.errors import short
from learnkernels.conf.schema.base import PredictorName, Strict, as_text
from learnkernels.kernels import registry

SIZE = r"(?=[\d.]*[1-9])\d{0,18}(\.\d{1,18})?(e1?\d)?\s*([kmgtp]i?)?b?"
"""A number of bytes as it is written, in either case of letters; not zero."""


def as_size(value: Any, expected: str = "a size such as 2GB or 512MiB") -> Any:
    text = as_text(value)
    if not isinstance(text, str) or not re.fullmatch(SIZE, text, re.IGNORECASE):
        raise ValueError(f"must be {expected}, got {short(value)}")
    return text


Size = Annotated[str, BeforeValidator(as_size)]
"""A number of bytes."""


class PredictorConfig(Strict):
    """The second stage, with options."""

    name: PredictorName = Field(
        "auto", description="svm, krr: exact. krr-cg: exact, without a matrix. nystrom: on landmarks. auto: by size."
    )
    landmarks: int | None = Field(
        None, ge=10, description="Rows that nystrom expresses the predictor in; by default as many as 'memory' allows."
    )
    memory: Size | None = Field(
        None,
        description="What the predictor may take, such as 2GB: auto chooses by it, and the landmarks of nystrom follow "
        "from it. Half of what the machine has, by default.",
    )
    sampling: Literal["uniform", "leverage"] | None = Field(
        None, description="How nystrom draws landmarks: all rows alike (default), or by their ridge leverage scores."
    )
    loss: Literal["squared", "hinge", "logistic"] | None = Field(
        None, description="What nystrom minimises: squared by default; hinge and logistic are for classification."
    )
    tolerance: float | None = Field(
        None, gt=0, lt=1, description="Relative residual at which the iterations of krr-cg and nystrom stop."
    )

    @model_validator(mode="after")
    def _options_of_the_predictor(self) -> PredictorConfig:
        for key in self.options():
            owners = [name for name, options in registry.PREDICTORS.items() if key in options]
            if self.name not in owners:
                raise ValueError(f"{key!r} goes with predictor {' or '.join(owners)}, got {self.name}; leave it out")
        if self.landmarks is not None and self.memory is not None and self.name == "nystrom":
            raise ValueError(
                "'landmarks' and 'memory', from which their number follows, exclude each other; give one of them"
            )
        return self

    def options(self) -> dict[str, Any]:
        """Return the options that are given."""
        return {key: value for key in registry.PREDICTORS["auto"] if (value := getattr(self, key)) is not None}


def _kind_of_predictor(value: Any) -> str:
    return "options" if isinstance(value, dict | PredictorConfig) else "plain"


PredictorSetting = Annotated[
    Annotated[PredictorName, Tag("plain")] | Annotated[PredictorConfig, Tag("options")],
    Discriminator(_kind_of_predictor),
]
"""The name of a predictor, or its name with options."""
