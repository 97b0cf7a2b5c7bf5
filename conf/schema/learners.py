"""Learners, and predictors on what they learn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

import learnkernels.conf.schema.base as base
from learnkernels.conf.errors import short
from learnkernels.kernels import registry

PresetName = Literal["CA-1D", "CA-nD", "CR", "DA", "D1", "D2", "DU"]

SEARCHING = sorted(registry.SEARCHING)
"""Learners that find their own base kernels."""

UNCENTERED = sorted(registry.UNCENTERED)
"""Learners that can do with base kernels that are not centered."""

PRESETS: dict[str, dict[str, Any]] = {
    "CA-1D": {"name": "ca"},
    "CA-nD": {"name": "ca", "params": {"per_feature": True}},
    "CR": {"name": "cr"},
    "DA": {"name": "alignf"},
    "D1": {"name": "lp-svm", "params": {"norm": 1}},
    "D2": {"name": "lp-svm", "params": {"norm": 2}},
    "DU": {"name": "unif"},
}
"""The methods of AFK 2013, Table 1: names that represent a learner, its label and its parameters."""


MOST_TUNED = 10_000
"""Combinations of parameters that are tried."""


def _kind_of_name(name: Any) -> str:
    return "own" if isinstance(name, str) and ":" in name else "listed"


class LearnerConfig(base.Strict):
    """A way of learning the kernel's weights."""

    name: Annotated[
        Annotated[Literal[base.LearnerName, PresetName], Tag("listed")] | Annotated[base.OwnName, Tag("own")],  # type: ignore[valid-type]
        Discriminator(_kind_of_name),
    ] = Field(
        description="The algorithm, see `learnkernels learners`; CA-1D, CA-nD, CR, DA, D1, D2 or DU for one with the "
        "parameters of AFK 2013, Table 1; or module:Class for your own."
    )
    label: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._=-]{0,47}$",
        description="Name in reports, for one algorithm with several settings; by default that of the algorithm or "
        "class.",
    )
    params: dict[str, base.Parameter] = Field(default_factory=dict, description="Its parameters.")
    tune: dict[str, Annotated[list[base.Parameter], Field(min_length=1), BeforeValidator(base.several)]] = Field(
        default_factory=dict,
        description="Lists of values of parameters; every combination is tried, and the validation fold chooses.",
    )
    tune_by: Literal["error", "alignment"] = Field(
        "error",
        description="Whether the validation error chooses among combinations, together with C, or the centered "
        "alignment there.",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, data: Any) -> Any:
        name = data.get("name") if isinstance(data, dict) else None
        if not isinstance(name, str) or name not in PRESETS:
            return data
        given, preset = {key: value for key, value in data.items() if value is not None}, PRESETS[name]
        params, tune = given.get("params", {}), given.get("tune", {})
        if isinstance(params, dict):
            chosen = tune if isinstance(tune, dict) else {}
            kept = {key: value for key, value in preset.get("params", {}).items() if key not in chosen}
            params = {**kept, **params}
        return {"label": name, **given, "name": preset["name"], "params": params}

    def _complaints(self) -> Iterator[str]:
        if twice := sorted(set(self.params) & set(self.tune)):
            yield f"parameter {', '.join(twice)} is in both 'params' and 'tune'; give it in one of them"
        if (tried := math.prod(map(len, self.tune.values()))) > MOST_TUNED:
            yield f"'tune' has {short(tried)} combinations, of at most {MOST_TUNED:,}; give shorter lists"

    @property
    def title(self) -> str:
        """Name in reports: the label, or that of the algorithm or class."""
        return self.label or self.name.rpartition(":")[2]

    def settings(self) -> list[dict[str, Any]]:
        """Return the parameters of each combination to try, the first values first."""
        return [{**self.params, **dict(zip(self.tune, values, strict=True))} for values in product(*self.tune.values())]


NamedLearner = Annotated[LearnerConfig, BeforeValidator(partial(base.as_mapping, "name"))]
"""A learner, or its name alone."""


SIZE = r"(?=[\d.]*[1-9])\d{0,18}(\.\d{1,18})?(e1?\d)?\s*([kmgtp]i?)?b?"
"""A number of bytes as it is written, in either case of letters; not zero."""


def as_size(value: Any, expected: str = "a size such as 2GB or 512MiB") -> Any:
    text = base.as_text(value)
    if not isinstance(text, str) or not re.fullmatch(SIZE, text, re.IGNORECASE):
        raise ValueError(f"must be {expected}, got {short(value)}")
    return text


Size = Annotated[str, BeforeValidator(as_size)]
"""A number of bytes."""


class PredictorConfig(base.Strict):
    """The second stage, with options."""

    name: base.PredictorName = Field(
        "auto", description="svm, krr: exact. krr-cg: exact, without a matrix. nystrom: on landmarks. auto: by size."
    )
    landmarks: int | None = Field(
        None, ge=10, description="Rows that nystrom expresses the predictor in; by default as many as 'memory' allows."
    )
    memory: Size | None = Field(
        None,
        description="Memory budget, such as 2GB, by which auto chooses and nystrom sets landmarks; by default half of "
        "the machine's.",
    )
    loss: Literal["squared", "hinge", "logistic"] | None = Field(
        None, description="What nystrom minimizes: squared by default; hinge and logistic are for classification."
    )
    tolerance: float | None = Field(
        None, gt=0, lt=1, description="Relative residual at which the iterations of krr-cg and nystrom stop."
    )

    def _complaints(self) -> Iterator[str]:
        for key in self.options():
            owners = [name for name, options in registry.PREDICTORS.items() if key in options]
            if self.name not in owners:
                yield f"{key!r} goes with predictor {' or '.join(owners)}, got {self.name}; leave it out"
        if self.landmarks is not None and self.memory is not None and self.name == "nystrom":
            yield ("'landmarks' and 'memory', from which their number follows, exclude each other; give one of them")

    @classmethod
    def _place_of(cls, key: Any) -> str:
        return "landmarks are drawn uniformly; " if key == "sampling" else super()._place_of(key)

    def options(self) -> dict[str, Any]:
        """Return the options that are given."""
        return {key: value for key in registry.PREDICTORS["auto"] if (value := getattr(self, key)) is not None}


NamedPredictor = Annotated[PredictorConfig, BeforeValidator(partial(base.as_mapping, "name"))]
"""A predictor with its options, or its name alone."""
