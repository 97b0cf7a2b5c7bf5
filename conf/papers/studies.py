"""What an item of the papers computes: learners compared, or studies of alignment and of objectives themselves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, model_validator

from learnkernels.conf.schema import FamilyConfig, ProtocolConfig, Strict
from learnkernels.conf.schema.base import Positive
from learnkernels.conf.schema.datasets import AnyDataset


class TwoPointStudy(Strict):
    """Alignment with and without centering, where the labels are two points: JMLR 2012, Figure 1."""

    kind: Literal["two-point"]
    points: int = Field(99, ge=3, le=10_000, description="Shares alpha of the first point, equidistant inside (0, 1).")


class BaseKernelsPart(Strict):
    """Data sets, and the base kernels that are measured one by one on them."""

    datasets: tuple[AnyDataset, ...] = Field(min_length=1, description="What to learn from.")
    kernels: tuple[FamilyConfig, ...] = Field(min_length=1, description="The families of base kernels.")


class BaseKernelsStudy(Strict):
    """How alignment and accuracy of base kernels, each alone, go together: JMLR 2012, Table 1 and Figure 2."""

    kind: Literal["base-kernels"]
    protocol: ProtocolConfig = Field(
        default_factory=lambda: ProtocolConfig.model_validate({}), description="How accuracy is measured."
    )
    parts: tuple[BaseKernelsPart, ...] = Field(min_length=1, description="Data sets with base kernels of their own.")

    @model_validator(mode="after")
    def _distinct(self) -> BaseKernelsStudy:
        names = [dataset.label for part in self.parts for dataset in part.datasets]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"data set {', '.join(twice)} appears more than once; give each its own 'label'")
        return self

    @model_validator(mode="after")
    def _folds(self) -> BaseKernelsStudy:
        if self.protocol.folds is None:
            raise ValueError("the base kernels are measured by cross-validation; give 'folds' in place of a split")
        return self


class SurfaceStudy(Strict):
    """The objective of `nkrr` of degree two over the weights of two features: NIPS 2009, Figure 1."""

    kind: Literal["surface"]
    datasets: tuple[AnyDataset, ...] = Field(min_length=1, max_length=1, description="The data set.")
    columns: Annotated[tuple[str, ...], Field(min_length=2, max_length=2)] = Field(
        description="The two features, each a rank-one kernel; they are centered."
    )
    ridges: Annotated[tuple[Positive, ...], Field(min_length=1)] = Field(
        (1.0, 10.0, 100.0), description="Values of lambda, a panel each."
    )
    upper: Positive = Field(10.0, description="Both weights go from zero to this.")
    points: int = Field(41, ge=3, le=401, description="Points of the grid along each weight.")


class ComparisonStudy(Strict):
    """Learners compared on data sets, in one or more parts with settings of their own."""

    kind: Literal["comparison"]
    shared: dict[str, Any] = Field(default_factory=dict, description="Keys of a comparison that all parts have.")
    parts: tuple[dict[str, Any], ...] = Field(
        min_length=1, description="Keys of each comparison; they go before the shared ones."
    )


StudyConfig = Annotated[
    ComparisonStudy | TwoPointStudy | BaseKernelsStudy | SurfaceStudy,
    Discriminator("kind"),
]
