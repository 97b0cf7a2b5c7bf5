"""What a configuration may hold. Prefect shows the same descriptions as a form."""

from __future__ import annotations

import difflib
from contextlib import suppress
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

LearnerName = Literal[
    "align",
    "align-uncentered",
    "alignf",
    "alignf-linear",
    "alignf-uncentered",
    "easymkl",
    "ensemble",
    "l1-krr",
    "l1-svm",
    "l2-krr",
    "lp-krr",
    "lp-svm",
    "lq",
    "nkrr",
    "single",
    "single-stage",
    "unif",
]
PredictorName = Literal["auto", "krr", "svm"]
SklearnName = Literal["breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine"]


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
                    close = difflib.get_close_matches(str(key), valid, n=1)
                    hint = f"did you mean {close[0]!r}? " if close else ""
                    raise ValueError(f"unknown key {key!r}; {hint}valid keys: {', '.join(valid)}")
        return data


class Powers(Strict):
    """Every whole power of a base, both ends included."""

    base: float = Field(2.0, gt=1, description="What is raised to the powers.")
    start: int = Field(alias="from", description="The first exponent.")
    stop: int = Field(alias="to", description="The last exponent, included.")

    @model_validator(mode="after")
    def _ordered(self) -> Powers:
        if self.stop < self.start:
            raise ValueError(f"'to' must not be below 'from', got from {self.start} to {self.stop}")
        return self

    def values(self) -> list[float]:
        """Return the numbers, ascending."""
        return [self.base**exponent for exponent in range(self.start, self.stop + 1)]


def _kind_of_grid(value: Any) -> str:
    return "powers" if isinstance(value, dict | Powers) else "list"


Positive = Annotated[float, Field(gt=0)]
Grid = Annotated[
    Annotated[list[Positive], Field(min_length=1), Tag("list")] | Annotated[Powers, Tag("powers")],
    Discriminator(_kind_of_grid),
]
"""A list of positive numbers, or the powers of a base."""


def grid_values(grid: list[float] | Powers) -> list[float]:
    """Return the numbers of a grid, as given."""
    return grid.values() if isinstance(grid, Powers) else list(grid)


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) else value


class DatasetConfig(Strict):
    """One data set: where it lies and how it is read."""

    source: Literal["sklearn", "file"] = Field(description="A set bundled with scikit-learn, or a file.")
    name: str | None = Field(None, description="Name in reports; for `sklearn` the name of the set.")
    path: str | None = Field(
        None, description="Parquet, CSV, Arrow/Feather or LIBSVM file; relative to `data_dir`. For `file` only."
    )
    target: str = Field("target", description="Column to predict. A LIBSVM file and the sklearn sets have their own.")
    positive: Annotated[str | None, BeforeValidator(_as_text)] = Field(
        None,
        description="Value of the target that becomes +1 while all others become -1: one class against the rest, or "
        "labels used as numbers in a regression.",
    )
    drop: tuple[str, ...] = Field((), description="Columns that are not features.")
    task: Literal["classification", "regression"] | None = Field(
        None, description="By default a target of text or whole numbers with few values is a classification."
    )
    missing: Literal["refuse", "drop"] = Field(
        "refuse", description="drop leaves rows with a missing or infinite value out; refuse says how many there are."
    )
    scale: Literal["none", "unit", "standard"] = Field(
        "none",
        description="none: raw features. unit: each feature to [0, 1]. standard: each to mean 0 and deviation 1. "
        "Uses the features of all rows, never the target.",
    )
    subsample: int | None = Field(None, ge=10, description="Use that many rows, drawn at random with the seed.")

    @model_validator(mode="after")
    def _complete(self) -> DatasetConfig:
        if self.source == "file" and self.path is None:
            raise ValueError("source 'file' needs 'path', the file to read")
        if self.source == "sklearn":
            if self.path is not None:
                raise ValueError("'path' goes with source 'file'; for source 'sklearn' give 'name'")
            valid = SklearnName.__args__  # type: ignore[attr-defined]
            if self.name not in valid:
                raise ValueError(f"source 'sklearn' needs 'name', one of: {', '.join(valid)}; got {self.name!r}")
        return self

    @property
    def label(self) -> str:
        """Name in reports: `name`, or the file's without its ending."""
        return self.name or (self.path or "").replace("\\", "/").rsplit("/", 1)[-1].split(".", 1)[0]


class GaussianConfig(Strict):
    """exp(-gamma ||x - x'||^2), one kernel a bandwidth."""

    family: Literal["gaussian"]
    gammas: Grid = Field(description="Bandwidths: a list, or {base, from, to}.")
    columns: tuple[str, ...] | None = Field(None, description="Features it sees; all by default.")


class LaplacianConfig(Strict):
    """exp(-gamma ||x - x'||_1), one kernel a bandwidth."""

    family: Literal["laplacian"]
    gammas: Grid = Field(description="Bandwidths: a list, or {base, from, to}.")
    columns: tuple[str, ...] | None = Field(None, description="Features it sees; all by default.")


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
    frequencies: Grid = Field(description="Radians a unit of the features: a list, or {base, from, to}.")
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


def _as_number(value: Any) -> Any:
    """Return the number that YAML takes for text, such as 1e-6, and anything else as it is."""
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value


Parameter = Annotated[Any, BeforeValidator(_as_number)]
"""Value of a learner's parameter."""


class LearnerConfig(Strict):
    """A way of learning the kernel's weights."""

    name: LearnerName = Field(description="The algorithm; `learnkernels learners` lists them.")
    label: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._=-]{0,47}$",
        description="Name in reports; the algorithm's by default. For one algorithm with several settings.",
    )
    params: dict[str, Parameter] = Field(default_factory=dict, description="Its parameters.")
    tune: dict[str, Annotated[list[Parameter], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Lists of values of parameters; every combination is tried, and the validation fold chooses.",
    )

    @model_validator(mode="after")
    def _set_once(self) -> LearnerConfig:
        if twice := sorted(set(self.params) & set(self.tune)):
            raise ValueError(f"parameter {', '.join(twice)} is in both 'params' and 'tune'; give it in one of them")
        return self

    @property
    def title(self) -> str:
        """Name in reports."""
        return self.label or self.name

    def settings(self) -> list[dict[str, Any]]:
        """Return the parameters of each combination to try, the first values first."""
        return [{**self.params, **dict(zip(self.tune, values, strict=True))} for values in product(*self.tune.values())]


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class ProtocolConfig(Strict):
    """How errors are measured: in each trial one fold tests, the next validates, the others train."""

    folds: int = Field(5, ge=3, le=100, description="Number of folds.")
    repeats: int = Field(1, ge=1, le=1000, description="Times the whole cross-validation is drawn anew.")
    seed: int = Field(0, ge=0, description="Root of every random choice.")
    grid: Grid = Field(
        default_factory=lambda: Powers.model_validate({"base": 2, "from": -6, "to": 14}),
        description="Lambda, the scale of the learned kernel; C of the SVM, 1 / lambda of the ridge.",
    )

    @field_validator("grid")
    @classmethod
    def _ascending(cls, grid: list[float] | Powers) -> list[float] | Powers:
        values = grid_values(grid)
        if values != sorted(set(values)):
            raise ValueError(f"the grid must ascend without repetition, got {values}")
        return grid


class DaskConfig(Strict):
    """Where base-kernel tiles are computed."""

    scheduler: str | None = Field(
        None, description="Address of a running scheduler, such as tcp://127.0.0.1:8786; by default a local cluster."
    )
    workers: int | None = Field(
        None, ge=0, le=1024, description="Worker processes of the local cluster: one a core by default, 0 for none."
    )
    memory: str = Field("auto", description="Memory limit of each local worker, such as 4GiB; auto shares out half.")
    super_tile: int = Field(
        4096, ge=64, description="Most rows of the square of pairs of one distributed task; a second of work, or so."
    )
    timeout: float = Field(10.0, gt=0, description="Seconds to wait for a scheduler.")


class TrackingConfig(Strict):
    """Where MLflow keeps the evidence. MLFLOW_TRACKING_URI says where the server or the file is."""

    experiment: str | None = Field(None, description="MLflow experiment; the run's name by default.")
    tags: dict[str, str] = Field(default_factory=dict, description="Tags put on every MLflow run.")


class CompareConfig(Strict):
    """Compare learners of the kernel on data sets."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the run: the results folder and, by default, the MLflow experiment.",
    )
    data_dir: str = Field(".", description="Folder that relative paths start from; relative to the working folder.")
    datasets: tuple[DatasetConfig, ...] = Field(min_length=1, description="What to learn from.")
    kernels: tuple[FamilyConfig, ...] = Field(min_length=1, description="The families of base kernels.")
    learners: tuple[Annotated[LearnerConfig, BeforeValidator(_named)], ...] = Field(
        min_length=1, description="The ways of learning the weights; a name, or {name, params}."
    )
    normalise: Literal["trace", "frobenius", "none"] = Field(
        "trace", description="What each centered base kernel is scaled by before a learner sees it."
    )
    precision: Literal["float64", "float32"] = Field(
        "float64",
        description="Of a tile's values; sums are always float64. float32 takes 0.6 of the time and gives about five "
        "digits of an alignment, fewer where a kernel is nearly constant.",
    )
    predictor: PredictorName = Field(
        "auto", description="Second stage; auto is svm for classification and krr for regression."
    )
    protocol: ProtocolConfig = Field(
        default_factory=lambda: ProtocolConfig.model_validate({}), description="How errors are measured."
    )
    dask: DaskConfig = Field(
        default_factory=lambda: DaskConfig.model_validate({}), description="Where tiles are computed."
    )
    tracking: TrackingConfig = Field(
        default_factory=lambda: TrackingConfig.model_validate({}), description="Where evidence is kept."
    )

    @field_validator("kernels")
    @classmethod
    def _matrices_alone(cls, kernels: tuple[FamilyConfig, ...]) -> tuple[FamilyConfig, ...]:
        if len(kernels) > 1 and any(isinstance(family, PrecomputedConfig) for family in kernels):
            raise ValueError(
                "family precomputed must be the only one, as its rows are positions and not features; put all families "
                "into the configuration that 'learnkernels gram' makes the matrices from"
            )
        return kernels

    @field_validator("datasets")
    @classmethod
    def _distinct_datasets(cls, datasets: tuple[DatasetConfig, ...]) -> tuple[DatasetConfig, ...]:
        _require_distinct("data set", [dataset.label for dataset in datasets], "give each its own 'name'")
        return datasets

    @field_validator("learners")
    @classmethod
    def _distinct_learners(cls, learners: tuple[LearnerConfig, ...]) -> tuple[LearnerConfig, ...]:
        _require_distinct(
            "learner", [learner.title for learner in learners], "list it once, or give each setting its own 'label'"
        )
        return learners


def _require_distinct(what: str, names: list[str], advice: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{what} {', '.join(twice)} appears more than once; {advice}")
