"""Families of base kernels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

import learnkernels.conf.schema.base as base
from learnkernels.conf.files import ARRAYS

SMALLEST_SIGMA = 1e-150

Names = Annotated[tuple[str, ...], BeforeValidator(base.several)]
Columns = Annotated[Names | None, Field(description="Features it sees; all by default.")]
Degrees = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1), BeforeValidator(base.several)]


class RadialConfig(base.Strict):
    """exp(-gamma distance), one kernel per bandwidth."""

    family: Literal["gaussian", "laplacian", "categorical"] = Field(
        description="The distance: ||x - x'||^2, ||x - x'||_p, or, for code columns, how many columns differ in level."
    )
    gammas: base.Grid | None = Field(None, description=f"Bandwidths: {base.GRID_FORMS}.")
    sigmas: base.Grid | None = Field(
        None, description=f"In place of gammas, with gamma = 1 / sigma^2, of the others 1 / sigma: {base.GRID_FORMS}."
    )
    norm: Literal[1, 2] = Field(
        1, description="p of laplacian: the sum of absolute differences, or the Euclidean distance."
    )
    columns: Columns = None

    @property
    def _power(self) -> int:
        return 2 if self.family == "gaussian" else 1

    def _complaints(self) -> Iterator[str]:
        if (self.gammas is None) == (self.sigmas is None):
            got = "neither" if self.gammas is None else "both"
            yield f"family {self.family} needs either 'gammas' or 'sigmas', got {got}; give one of them"
        if self.norm != 1 and self.family != "laplacian":
            yield f"'norm' goes with family laplacian, got {self.family}; leave it out"
        for sigma in base.grid_values(self.sigmas or []):
            if not SMALLEST_SIGMA <= sigma <= 1 / SMALLEST_SIGMA:
                yield (
                    f"'sigmas' must be from {SMALLEST_SIGMA:g} to {1 / SMALLEST_SIGMA:g}, so that gamma = 1 / sigma"
                    f"{'^2' if self._power == 2 else ''} is a number, got {sigma:g}; leave it out"
                )

    def bandwidths(self) -> list[float]:
        """Return gamma of each kernel, as given."""
        if self.sigmas is None:
            return base.grid_values(self.gammas or [])
        return [(1 / sigma) ** self._power for sigma in base.grid_values(self.sigmas)]


class PolynomialConfig(base.Strict):
    """(gamma x.x' + coef0)^degree, one kernel per degree."""

    family: Literal["polynomial"]
    degrees: Degrees = Field(description="One kernel each.")
    gamma: base.Positive = Field(1.0, description="Scale of the inner product.")
    coef0: float = Field(1.0, ge=0, description="Constant added to it.")
    columns: Columns = None


class LinearConfig(base.Strict):
    """One kernel of inner products."""

    family: Literal["linear", "cosine"] = Field(
        description="linear: x.x'. cosine: x.x' / (|x| |x'|), of which no row may be zero."
    )
    columns: Columns = None


class DirichletConfig(base.Strict):
    """Product over the features of 1 + 2 sum_j cos(j frequency (x - x')), one kernel per frequency."""

    family: Literal["dirichlet"]
    frequencies: base.Grid = Field(description=f"Radians a unit of the features: {base.GRID_FORMS}.")
    degree: int = Field(1, ge=1, description="Number of harmonics.")
    columns: Columns = None


class FeatureConfig(base.Strict):
    """x_k x'_k, one kernel per feature: thousands of n-grams, without tiles where it is the only family."""

    family: Literal["feature"]
    columns: Names | None = Field(None, description="Features that become kernels; all by default.")
    constant: bool = Field(
        False, description="And a kernel of a feature that is one on every row, where 'centering' is none."
    )


class ConstantConfig(base.Strict):
    """1 for every pair of rows, one kernel: what an intercept is where 'centering' is none."""

    family: Literal["constant"]
    columns: ClassVar[None] = None


class PrecomputedConfig(base.Strict):
    """Matrices on disk, your own or those of `learnkernels gram`, in place of families that are computed."""

    family: Literal["precomputed"]
    path: str = Field(
        min_length=1,
        description="An .npy or .npz file of symmetric matrices, relative to `data_dir`, with a row per row of the "
        "data set; or the folder given to `learnkernels gram` as --output, with a sub-folder for each data set.",
    )
    columns: ClassVar[None] = None

    @property
    def own(self) -> bool:
        """Whether it is a file of arrays, and not a folder of `learnkernels gram`."""
        return self.path.lower().endswith(ARRAYS)


class OwnConfig(base.Strict):
    """A family of yours: a class below KernelFamily, from a file in the working directory or from what is installed."""

    family: base.OwnName = Field(description="module:Class.")
    params: dict[str, base.Parameter] = Field(default_factory=dict, description="What the class takes.")
    columns: Columns = None


OWN_TAG = "module:Class"


def _kind_of_family(config: Any) -> str:
    family = str((config.get("family") if isinstance(config, dict) else getattr(config, "family", None)) or "")
    return OWN_TAG if ":" in family else family


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
