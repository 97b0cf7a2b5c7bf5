"""Families of base kernels."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, model_validator

from learnkernels.conf.schema.base import Positive, Strict
from learnkernels.conf.schema.grids import GRID_FORMS, Grid, Powers, Spaced, grid_values

SMALLEST_SIGMA = 1e-150


class GaussianConfig(Strict):
    """exp(-gamma ||x - x'||^2), or exp(-||x - x'||^2 / sigma^2), one kernel a bandwidth."""

    family: Literal["gaussian"]
    gammas: Grid | None = Field(None, description=f"Bandwidths: {GRID_FORMS}.")
    sigmas: Grid | None = Field(None, description=f"In place of gammas, with gamma = 1 / sigma^2: {GRID_FORMS}.")
    columns: tuple[str, ...] | None = Field(None, description="Features it sees; all by default.")

    @model_validator(mode="after")
    def _one_scale(self) -> GaussianConfig:
        _require_bandwidths(self.family, self.gammas, self.sigmas, 2)
        return self

    def bandwidths(self) -> list[float]:
        """Return gamma of each kernel, as given."""
        return _bandwidths(self.gammas, self.sigmas, 2)


class LaplacianConfig(Strict):
    """exp(-gamma ||x - x'||_1), or exp(-||x - x'||_1 / sigma), one kernel a bandwidth."""

    family: Literal["laplacian"]
    gammas: Grid | None = Field(None, description=f"Bandwidths: {GRID_FORMS}.")
    sigmas: Grid | None = Field(None, description=f"In place of gammas, with gamma = 1 / sigma: {GRID_FORMS}.")
    columns: tuple[str, ...] | None = Field(None, description="Features it sees; all by default.")

    @model_validator(mode="after")
    def _one_scale(self) -> LaplacianConfig:
        _require_bandwidths(self.family, self.gammas, self.sigmas, 1)
        return self

    def bandwidths(self) -> list[float]:
        """Return gamma of each kernel, as given."""
        return _bandwidths(self.gammas, self.sigmas, 1)


def _bandwidths(
    gammas: list[float] | Powers | Spaced | None, sigmas: list[float] | Powers | Spaced | None, power: int
) -> list[float]:
    if sigmas is None:
        return grid_values(gammas or [])
    return [(1 / sigma) ** power for sigma in grid_values(sigmas)]


def _require_bandwidths(
    family: str,
    gammas: list[float] | Powers | Spaced | None,
    sigmas: list[float] | Powers | Spaced | None,
    power: int,
) -> None:
    if (gammas is None) == (sigmas is None):
        got = "neither" if gammas is None else "both"
        raise ValueError(f"family {family} needs either 'gammas' or 'sigmas', got {got}; give one of them")
    for sigma in grid_values(sigmas or []):
        if not SMALLEST_SIGMA <= sigma <= 1 / SMALLEST_SIGMA:
            raise ValueError(
                f"'sigmas' must be from {SMALLEST_SIGMA:g} to {1 / SMALLEST_SIGMA:g}, so that gamma = 1 / sigma"
                f"{'^2' if power == 2 else ''} is a number, got {sigma:g}; leave it out"
            )


class PolynomialConfig(Strict):
    """(gamma x.x' + coef0)^degree, one kernel a degree."""

    family: Literal["polynomial"]
    degrees: list[Annotated[int, Field(ge=1)]] = Field(min_length=1, description="One kernel each.")
    gamma: Positive = Field(1.0, description="Scale of the inner product.")
    coef0: float = Field(1.0, ge=0, description="Constant added to it.")
    columns: tuple[str, ...] | None = Field(None, description="Features it sees; all by default.")


class LinearConfig(Strict):
    """x.x', one kernel."""

    family: Literal["linear"]
    columns: tuple[str, ...] | None = Field(None, description="Features it sees; all by default.")


class CosineConfig(Strict):
    """x.x' / (|x| |x'|), one kernel; no row may be zero."""

    family: Literal["cosine"]
    columns: tuple[str, ...] | None = Field(None, description="Features it sees; all by default.")


class DirichletConfig(Strict):
    """Product over the features of 1 + 2 sum_j cos(j frequency (x - x')), one kernel a frequency."""

    family: Literal["dirichlet"]
    frequencies: Grid = Field(description=f"Radians a unit of the features: {GRID_FORMS}.")
    degree: int = Field(1, ge=1, description="Number of harmonics.")
    columns: tuple[str, ...] | None = Field(None, description="Features it sees; all by default.")


class FeatureConfig(Strict):
    """x_k x'_k, one kernel a feature: thousands of n-grams, without tiles where it is the only family."""

    family: Literal["feature"]
    columns: tuple[str, ...] | None = Field(None, description="Features that become kernels; all by default.")


class PrecomputedConfig(Strict):
    """Matrices on disk, made by `learnkernels gram`, in place of families that are computed."""

    family: Literal["precomputed"]
    path: str = Field(
        min_length=1,
        description="The folder that `learnkernels gram` was given as --output, relative to the working folder; each "
        "data set's matrices lie in its sub-folder of the data set's name.",
    )

    @property
    def columns(self) -> None:
        """Matrices see rows, not features."""
        return None


FamilyConfig = Annotated[
    GaussianConfig
    | LaplacianConfig
    | PolynomialConfig
    | LinearConfig
    | CosineConfig
    | DirichletConfig
    | FeatureConfig
    | PrecomputedConfig,
    Discriminator("family"),
]
