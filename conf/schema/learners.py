"""Configurations of families of base kernels, learners and predictors."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from learnkernels.kernels import registry

from ..errors import short
from ..files import ARRAYS
from . import base

SMALLEST_SIGMA = 1e-150

Names = Annotated[tuple[str, ...], BeforeValidator(base.several)]
Columns = Annotated[
    Names | None, Field(description="Features it sees; all by default.")
]
Degrees = Annotated[
    list[Annotated[int, Field(ge=1)]],
    Field(min_length=1),
    BeforeValidator(base.several),
]


class RadialConfig(base.Strict):
    """Kernels exp(-gamma distance), one for each bandwidth gamma."""

    family: Literal["gaussian", "laplacian", "categorical"] = Field(
        description="The distance: ||x - x'||^2, ||x - x'||_p, or, for code columns, how many columns differ in level."
    )
    gammas: base.Grid | None = Field(
        None, description=f"Bandwidths: {base.GRID_FORMS}."
    )
    sigmas: base.Grid | None = Field(
        None,
        description=f"In place of gammas, with gamma = 1 / sigma^2, of the others 1 / sigma: {base.GRID_FORMS}.",
    )
    norm: Literal[1, 2] = Field(
        1,
        description="p of laplacian: the sum of absolute differences, or the Euclidean distance.",
    )
    columns: Columns = None

    @property
    def _power(self) -> int:
        if self.family == "gaussian":
            return 2
        return 1

    def _complaints(self) -> Iterator[str]:
        if (self.gammas is None) == (self.sigmas is None):
            got = "both"
            if self.gammas is None:
                got = "neither"
            yield f"family {self.family} needs either 'gammas' or 'sigmas', got {got}; give one of them"
        if self.norm != 1 and self.family != "laplacian":
            yield f"'norm' goes with family laplacian, got {self.family}; leave it out"
        gamma = {1: "1 / sigma", 2: "1 / sigma^2"}[self._power]
        for sigma in base.grid_values(self.sigmas or []):
            if not SMALLEST_SIGMA <= sigma <= 1 / SMALLEST_SIGMA:
                yield (
                    f"'sigmas' must be from {SMALLEST_SIGMA:g} to {1 / SMALLEST_SIGMA:g}, so that gamma = {gamma} is "
                    f"a number, got {sigma:g}; leave it out"
                )

    def bandwidths(self) -> list[float]:
        """Return the bandwidth gamma of each kernel, in order."""
        if self.sigmas is None:
            return base.grid_values(self.gammas or [])
        return [(1 / sigma) ** self._power for sigma in base.grid_values(self.sigmas)]


class PolynomialConfig(base.Strict):
    """Kernels (gamma x.x' + coef0)^degree of rows x and x', one for each degree."""

    family: Literal["polynomial"]
    degrees: Degrees = Field(description="One kernel each.")
    gamma: base.Positive = Field(1.0, description="Scale of the inner product.")
    coef0: float = Field(1.0, ge=0, description="Constant added to it.")
    columns: Columns = None


class LinearConfig(base.Strict):
    """Linear kernel: a single kernel of the inner products of rows."""

    family: Literal["linear", "cosine"] = Field(
        description="linear: x.x'. cosine: x.x' / (|x| |x'|), of which no row may be zero."
    )
    columns: Columns = None


class DirichletConfig(base.Strict):
    """Kernel per frequency f: product over features of 1 + 2 sum_j cos(j f (x-x'))."""

    family: Literal["dirichlet"]
    frequencies: base.Grid = Field(
        description=f"Radians a unit of the features: {base.GRID_FORMS}."
    )
    degree: int = Field(1, ge=1, description="Number of harmonics.")
    columns: Columns = None


class FeatureConfig(base.Strict):
    """Rank-one kernels x_k x'_k, one for each feature k; fast without other kernels."""

    family: Literal["feature"]
    columns: Names | None = Field(
        None, description="Features that become kernels; all by default."
    )
    constant: bool = Field(
        False,
        description="And a kernel of a feature that is one on every row, where 'centering' is none.",
    )


class ConstantConfig(base.Strict):
    """Constant kernel, 1 for every pair of rows: the intercept without centering."""

    family: Literal["constant"]
    columns: ClassVar[None] = None


class PrecomputedConfig(base.Strict):
    """Base kernels in stored matrices: your own file, or a folder of `learnkernels gram`."""

    family: Literal["precomputed"]
    path: str = Field(
        min_length=1,
        description="An .npy or .npz file of symmetric matrices, relative to `data_dir`, with a row per row of the "
        "data set; or the folder given to `learnkernels gram` as --output, with a sub-folder for each data set.",
    )
    columns: ClassVar[None] = None

    @property
    def own(self) -> bool:
        """Whether `path` is your own file, not a folder of `learnkernels gram`."""
        return self.path.lower().endswith(ARRAYS)


class OwnConfig(base.Strict):
    """Custom base kernels: a subclass of KernelFamily in a file or package."""

    family: base.OwnName = Field(description="module:Class.")
    params: dict[str, base.Parameter] = Field(
        default_factory=dict, description="What the class takes."
    )
    columns: Columns = None


OWN_TAG = "module:Class"


def _kind_of_family(config: Any) -> str:
    if isinstance(config, dict):
        family = str(config.get("family") or "")
    else:
        family = str(getattr(config, "family", ""))
    if ":" in family:
        return OWN_TAG
    return family


FamilyConfig = Annotated[
    Annotated[RadialConfig, Tag("gaussian")]
    | Annotated[RadialConfig, Tag("laplacian")]
    | Annotated[RadialConfig, Tag("categorical")]
    | Annotated[PolynomialConfig, Tag("polynomial")]
    | Annotated[LinearConfig, Tag("linear")]
    | Annotated[LinearConfig, Tag("cosine")]
    | Annotated[DirichletConfig, Tag("dirichlet")]
    | Annotated[FeatureConfig, Tag("feature")]
    | Annotated[ConstantConfig, Tag("constant")]
    | Annotated[PrecomputedConfig, Tag("precomputed")]
    | Annotated[OwnConfig, Tag(OWN_TAG)],
    Discriminator(_kind_of_family),
    BeforeValidator(partial(base.as_mapping, "family")),
]


PresetName = Literal["CA-1D", "CA-nD", "CR", "DA", "D1", "D2", "DU"]

SEARCHING = sorted(registry.SEARCHING)
"""Learners that find their own base kernels."""

UNCENTERED = sorted(registry.UNCENTERED)
"""Learners that accept uncentered base kernels."""

PRESETS: dict[str, dict[str, Any]] = {
    "CA-1D": {"name": "ca"},
    "CA-nD": {"name": "ca", "params": {"per_feature": True}},
    "CR": {"name": "cr"},
    "DA": {"name": "alignf"},
    "D1": {"name": "lp-svm", "params": {"norm": 1}},
    "D2": {"name": "lp-svm", "params": {"norm": 2}},
    "DU": {"name": "unif"},
}
"""Learners of AFK 2013, Table 1, with their parameters."""


MOST_TUNED = 10_000


def _kind_of_name(name: Any) -> str:
    if isinstance(name, str) and ":" in name:
        return "own"
    return "listed"


class LearnerConfig(base.Strict):
    """Algorithm that learns the kernel, with its parameters and grids of values."""

    name: Annotated[
        Annotated[Literal[base.LearnerName, PresetName], Tag("listed")]  # type: ignore[valid-type]
        | Annotated[base.OwnName, Tag("own")],
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
    params: dict[str, base.Parameter] = Field(
        default_factory=dict, description="Its parameters."
    )
    tune: dict[
        str,
        Annotated[
            list[base.Parameter], Field(min_length=1), BeforeValidator(base.several)
        ],
    ] = Field(
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
        if not isinstance(data, dict):
            return data
        name = data.get("name")
        if not isinstance(name, str) or name not in PRESETS:
            return data
        preset = PRESETS[name]
        config = {key: value for key, value in data.items() if value is not None}
        params = config.get("params", {})
        tune = config.get("tune", {})
        if isinstance(params, dict) and isinstance(tune, dict):
            defaults = {
                key: value
                for key, value in preset.get("params", {}).items()
                if key not in tune
            }
            params = {**defaults, **params}
        return {"label": name, **config, "name": preset["name"], "params": params}

    def _complaints(self) -> Iterator[str]:
        twice = sorted(set(self.params) & set(self.tune))
        if twice:
            yield f"parameter {', '.join(twice)} is in both 'params' and 'tune'; give it in one of them"
        n_combinations = math.prod(map(len, self.tune.values()))
        if n_combinations > MOST_TUNED:
            yield f"'tune' has {short(n_combinations)} combinations, of at most {MOST_TUNED:,}; give shorter lists"

    @property
    def title(self) -> str:
        """Learner's name in reports: the label, else the algorithm or class."""
        return self.label or self.name.rpartition(":")[2]

    def settings(self) -> list[dict[str, Any]]:
        """Return all parameters for each combination of the values in `tune`."""
        combinations = product(*self.tune.values())
        return [
            {**self.params, **dict(zip(self.tune, values, strict=True))}
            for values in combinations
        ]


NamedLearner = Annotated[
    LearnerConfig, BeforeValidator(partial(base.as_mapping, "name"))
]


SIZE = r"(?=[\d.]*[1-9])\d{0,18}(\.\d{1,18})?(e1?\d)?\s*([kmgtp]i?)?b?"


def as_size(value: Any, expected: str = "a size such as 2GB or 512MiB") -> Any:
    text = base.as_text(value)
    if not isinstance(text, str) or not re.fullmatch(SIZE, text, re.IGNORECASE):
        raise ValueError(f"must be {expected}, got {short(value)}")
    return text


Size = Annotated[str, BeforeValidator(as_size)]


class PredictorConfig(base.Strict):
    """Predictor that is trained with the learned kernel, and its options."""

    name: base.PredictorName = Field(
        "auto",
        description="svm, krr: exact. krr-cg: exact, without a matrix. nystroem: on landmarks. auto: by size.",
    )
    n_components: int | None = Field(
        None,
        ge=10,
        description="Number of landmarks of nystroem; by default sqrt(m) ln(m), or fewer that fit 'memory'.",
    )
    memory: Size | None = Field(
        None,
        description="Memory budget, such as 2GB, by which auto chooses and nystroem sets landmarks; by default half of "
        "the machine's.",
    )
    loss: Literal["squared", "hinge", "logistic"] | None = Field(
        None,
        description="What nystroem minimizes: squared by default; hinge and logistic are for classification.",
    )
    tol: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Relative residual at which the iterations of krr-cg and nystroem stop.",
    )

    def _complaints(self) -> Iterator[str]:
        for key in self.options():
            owners = [
                name for name, options in registry.PREDICTORS.items() if key in options
            ]
            if self.name not in owners:
                yield f"{key!r} goes with predictor {' or '.join(owners)}, got {self.name}; leave it out"
        if (
            self.n_components is not None
            and self.memory is not None
            and self.name == "nystroem"
        ):
            yield "'n_components' and 'memory', from which it follows, exclude each other; give one of them"

    @classmethod
    def _place_of(cls, key: Any) -> str:
        if key == "sampling":
            return "landmarks are drawn uniformly; "
        return super()._place_of(key)

    def options(self) -> dict[str, Any]:
        return {
            key: value for key, value in self if key != "name" and value is not None
        }


NamedPredictor = Annotated[
    PredictorConfig, BeforeValidator(partial(base.as_mapping, "name"))
]
