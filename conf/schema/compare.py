"""Configuration of one run, with all its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from learnkernels.kernels import registry

from ..errors import short
from ..files import require_place
from .base import (
    GRID_FORMS,
    Grid,
    MetricName,
    Powers,
    Strict,
    by_default,
    grid_values,
    several,
)
from .datasets import AnyDataset, DatasetConfig, each_target
from .learners import (
    SEARCHING,
    UNCENTERED,
    ConstantConfig,
    FamilyConfig,
    LearnerConfig,
    LinearConfig,
    NamedLearner,
    NamedPredictor,
    PrecomputedConfig,
    PredictorConfig,
    as_size,
)

OF_PROBABILITIES = [
    name for name, measured in registry.METRICS.items() if measured == "probabilities"
]
"""Metrics of class probabilities."""


FEWEST_FOLDS = 3
"""One fold each for testing, validation and training."""

MOST_FOLDS = 100


class SplitConfig(Strict):
    """Numbers of training, validation and test rows, drawn without replacement."""

    train: int = Field(
        ge=2, description="Rows that kernel and predictor are learned on."
    )
    validation: int | None = Field(
        None,
        ge=2,
        description="Rows that choose C, and parameters that are tuned; null where `choose` is given.",
    )
    test: int | None = Field(
        None,
        ge=2,
        description="Rows that test; by default all that the `test` of a data set names.",
    )


class ChooseConfig(Strict):
    """Cross-validation within the training rows, in place of a validation set."""

    folds: int = Field(
        10,
        ge=3,
        le=100,
        description="Folds of the training rows that validate each other.",
    )
    once: bool = Field(
        False,
        description="Choose in the first repeat alone, as some papers do; this favors tuned learners, as rows that "
        "chose test later.",
    )


class ProtocolConfig(Strict):
    """Measurement of errors: one fold tests, the next validates, the others train.

    With `split`, each repeat is one trial on rows drawn again. Data sets with `groups`
    or `time` are divided by these.
    """

    folds: int | None = Field(
        5,
        ge=FEWEST_FOLDS,
        le=MOST_FOLDS,
        description="Number of folds; null where there is a split.",
    )
    split: SplitConfig | None = Field(
        None,
        description="In place of folds: the rows that train, validate and test, drawn again in each repeat.",
    )
    choose: ChooseConfig | None = Field(
        None,
        description="With a `split` without validation rows: cross-validation within the training rows chooses C "
        "and tuned parameters.",
    )
    refit: bool = Field(
        False,
        description="Refit the choice on training and validation rows before it is tested, as a grid search does.",
    )
    repeats: int = Field(
        1, ge=1, le=1000, description="Times the folds, or the split, are drawn again."
    )
    seed: int = Field(0, ge=0, description="Root of every random choice.")
    metric: MetricName | None = Field(
        None,
        description="scikit-learn's name of a score, turned into an error; by default accuracy or "
        "neg_root_mean_squared_error. average_precision, f1, precision, recall and jaccard are of the class "
        "`positive`, or the last. Probabilities are calibrated by a sigmoid on the validation rows.",
    )
    grid: Grid = Field(
        default_factory=lambda: Powers.model_validate(
            {"base": 2, "from": -6, "to": 14}
        ),
        description="Values of C: that of the SVM, and 1 / alpha of ridge regression.",
    )

    @model_validator(mode="before")
    @classmethod
    def _folds_or_split(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        folds = data.get("folds")
        split = data.get("split")
        if folds is not None and split is not None:
            raise ValueError(
                "'folds' and 'split' exclude each other; give one of them, and null for the other"
            )
        if "folds" in data and folds is None and split is None:
            raise ValueError(
                "'folds' is null and there is no 'split'; give one of them"
            )
        if split is None:
            return data
        return {**data, "folds": None}

    def _complaints(self) -> Iterator[str]:
        if self.choose is not None and self.split is None:
            yield (
                "'choose' goes with 'split', of which it divides the training rows; with folds, one validates"
            )
        if self.choose is not None and self.refit:
            yield (
                "'refit' goes with validation rows, and with 'choose' there are none: all training rows train in any "
                "case; leave 'refit' out"
            )
        if (
            self.choose is not None
            and self.choose.once
            and self.metric in OF_PROBABILITIES
        ):
            yield (
                f"metric {self.metric} is of probabilities, whose sigmoid is fitted by the rows that choose, and with "
                "'choose.once' none do after the first repeat; leave 'once' out, or take another metric"
            )
        if self.split is not None and (self.split.validation is None) == (
            self.choose is None
        ):
            got = "both"
            if self.choose is None:
                got = "neither"
            yield (
                "a split needs either 'validation' rows or 'choose', a cross-validation of its training rows, got "
                f"{got}; give one of them"
            )

    @field_validator("grid")
    @classmethod
    def _ascending(cls, grid: Any) -> Any:
        values = grid_values(grid)
        if values != sorted(set(values)):
            raise ValueError(
                f"the grid must ascend without repetition, got {short(values)}"
            )
        return grid


GRID_SEARCH_TITLE = "GridSearchCV"

BaselineName = Literal["constant", "linear", "grid-search", "boosting", "estimator"]

BASELINE_TITLES: dict[BaselineName, str] = {
    "constant": "best constant",
    "linear": "linear model",
    "grid-search": GRID_SEARCH_TITLE,
    "boosting": "HistGradientBoosting",
    "estimator": "default estimator",
}

COLUMNS_OF_REPORTS = ("base kernel", "dataset", "feature", "p")
"""Titles of columns next to learners."""

SCHEDULER = re.compile(r"(?:(?:tcp|tls|wss?|ucxx?)://)?[^\s/@]+/?", re.IGNORECASE)

SMALLEST_SAMPLE = 256


class StatisticsConfig(Strict):
    """Number of rows from which alignment statistics of base kernels are computed."""

    sample: Literal["none", "auto"] | int = Field(
        "none",
        description="none: all rows, exactly. auto: a uniform sample of 8,192 rows where there are more. A number: a "
        "sample of that many rows.",
    )

    @field_validator("sample", mode="before")
    @classmethod
    def _rows_or_a_word(cls, value: Any) -> Any:
        number = isinstance(value, int) and not isinstance(value, bool)
        if value not in ("none", "auto") and not (number and value >= SMALLEST_SAMPLE):
            raise ValueError(
                f"must be none, auto, or a whole number of rows from {SMALLEST_SAMPLE}, got {short(value)}"
            )
        return value


class BaselineConfig(Strict):
    """Baselines on the same splits: a constant, a linear model, a tuned RBF kernel."""

    gammas: Grid = Field(
        default_factory=lambda: Powers.model_validate({"base": 4, "from": -3, "to": 3}),
        description="Bandwidths to try, as multiples of 1 / (features x variance), scikit-learn's 'scale': "
        f"{GRID_FORMS}.",
    )
    grid: Grid = Field(
        default_factory=lambda: Powers.model_validate({"base": 8, "from": -1, "to": 4}),
        description=f"C of SVC, and 1 / alpha of KernelRidge, to try: {GRID_FORMS}.",
    )
    absolute: bool = Field(
        False, description="The bandwidths are gamma itself, and not multiples."
    )
    boosting: bool = Field(
        False,
        description="Also scikit-learn's gradient boosting of trees, whose leaves and learning rate the validation "
        "rows choose.",
    )
    estimator: bool = Field(
        False,
        description="Also KernelLearningClassifier() or KernelLearningRegressor() with its defaults, as used in "
        "Python.",
    )
    without: Annotated[tuple[BaselineName, ...], BeforeValidator(several)] = Field(
        (),
        description=f"Baselines to leave out, of {', '.join(BASELINE_TITLES)}; the last two take the longest.",
    )

    @property
    def kinds(self) -> list[BaselineName]:
        """Names of the baselines to measure, the slowest last."""
        left_out = set(self.without)
        if not self.boosting:
            left_out.add("boosting")
        if not self.estimator:
            left_out.add("estimator")
        return [name for name in BASELINE_TITLES if name not in left_out]


class CertificatesConfig(Strict):
    """PEM files for TLS connections to a Dask scheduler."""

    ca: str = Field(
        description="Certificate of the authority that signed those of all sides."
    )
    cert: str = Field(description="Certificate of this side.")
    key: str = Field(description="Its key.")


class DaskConfig(Strict):
    """Dask workers that compute base kernels: local processes, or a cluster."""

    scheduler: str | None = Field(
        None,
        description="Address of a running scheduler, such as tls://10.0.0.1:8786; by default that of a "
        "Dask client of this process or of DASK_SCHEDULER_ADDRESS, and else a local cluster.",
    )
    certificates: CertificatesConfig | None = Field(
        None,
        description="{ca, cert, key}: files for a tls:// scheduler; by default those of Dask's own configuration.",
    )
    rows: str | None = Field(
        None,
        description="For workers on other machines: a folder that all see, or s3://bucket/prefix, through which they "
        "get rows.",
    )
    workers: int | None = Field(
        None,
        ge=0,
        le=1024,
        description="Worker processes: by default one per core, or none for little work; 0 for none.",
    )
    memory: str = Field(
        "auto",
        description="Memory limit of each local worker, such as 4GiB; auto shares out half.",
    )
    super_tile: int = Field(
        4096,
        ge=64,
        description="Most rows of the square of pairs of one distributed task; a second of work, or so.",
    )
    timeout: float = Field(
        10.0,
        gt=0,
        description="Seconds to wait for a scheduler, and for its first worker.",
    )

    @property
    def elsewhere(self) -> bool:
        """Whether Dask workers may run on other machines."""
        return self.scheduler is not None

    @field_validator("memory", mode="before")
    @classmethod
    def _size_or_auto(cls, value: Any) -> Any:
        if value == "auto":
            return value
        return as_size(value, "auto, or a size such as 4GiB")

    @field_validator("scheduler")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not SCHEDULER.fullmatch(value):
            raise ValueError(
                "must be tcp://HOST:PORT or tls://HOST:PORT, got another address, or one with credentials"
            )
        return value

    @field_validator("rows")
    @classmethod
    def _place(cls, value: str | None) -> str | None:
        if value is not None:
            require_place(value)
        return value

    def _complaints(self) -> Iterator[str]:
        if self.certificates is not None and not (self.scheduler or "").startswith(
            "tls://"
        ):
            yield "'certificates' goes with a 'scheduler' at tls://HOST:PORT; correct the address"

    @classmethod
    def _place_of(cls, key: Any) -> str:
        if key in ("cluster", "options"):
            return "start workers by Dask's own tools, and give their 'scheduler', or a Client in this process; "
        return super()._place_of(key)


class TrackingConfig(Strict):
    """Tracking in MLflow, on the server or in the file of MLFLOW_TRACKING_URI."""

    experiment: str | None = Field(
        None, description="MLflow experiment; the run's name by default."
    )
    tags: dict[str, str] = Field(
        default_factory=dict, description="Tags put on every MLflow run."
    )
    system_metrics: bool = Field(
        default=False,
        description="Log CPU, memory, disk and network of this machine to the run of each flow, every 10 seconds.",
    )


class DriftConfig(Strict):
    """Limits of the drift of new rows from training rows, and the action beyond them."""

    on_drift: Literal["warn", "fail"] = Field(
        "warn",
        description="warn: say it, in Prefect and MLflow too. fail: end the run, and write no predictions.",
    )
    level: float = Field(
        0.05,
        ge=0.01,
        le=0.5,
        description="Probability of a false alarm of the tests of kernel and columns together.",
    )
    missing: float = Field(
        0.1,
        ge=0,
        le=1,
        description="By how much the share of missing values of a column may exceed that at training.",
    )
    unknown: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Largest share of rows with a category that no training row had, in a column.",
    )
    outside: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Largest share of rows outside of the range of the training rows, in a column.",
    )
    ignore: Annotated[tuple[str, ...], BeforeValidator(several)] = Field(
        (),
        description="Columns that are expected to move, and not tested; dates never are.",
    )


MOST_AT_ONCE = 64


class FiguresConfig(Strict):
    """Format and size of the additional figure files for a paper."""

    format: Literal["pdf", "svg", "png"] = Field(
        "pdf", description="Of the files; png has 300 dots per inch."
    )
    width: float | None = Field(
        None, gt=0, le=100, description="In inches; by the number of panels by default."
    )
    height: float | None = Field(
        None, gt=0, le=100, description="In inches; by the number of panels by default."
    )


class CompareConfig(Strict):
    """Configuration of a comparison of kernel learners on data sets."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the run: the results folder and, by default, the MLflow experiment.",
    )
    data_dir: str = Field(
        ".",
        description="Folder that relative paths start from; relative to the working directory.",
    )
    datasets: Annotated[tuple[AnyDataset, ...], BeforeValidator(each_target)] = Field(
        min_length=1, description="What to learn from."
    )
    kernels: Annotated[tuple[FamilyConfig, ...], BeforeValidator(several)] = Field(
        (LinearConfig(family="linear"),),
        min_length=1,
        description=f"The families of base kernels; {', '.join(SEARCHING)} find their own and need none.",
    )
    learners: Annotated[tuple[NamedLearner, ...], BeforeValidator(several)] = Field(
        (LearnerConfig.model_validate({"name": "rfm"}),),
        min_length=1,
        description="The ways of learning the weights; a name, or {name, params, tune, tune_by, label}.",
    )
    normalize: Literal["trace", "frobenius", "none"] = Field(
        "trace",
        description="What each base kernel, centered or not, is scaled by before a learner sees it.",
    )
    centering: Literal["center", "target", "none"] = Field(
        "center",
        description="center: base kernels are taken less the mean feature of the training rows. none: as they are, and "
        "predictors without intercept, for which a constant kernel stands in. target: as they are, with the mean of "
        f"the targets as intercept. The latter two for {', '.join(UNCENTERED)}.",
    )
    precision: Literal["float64", "float32"] = Field(
        "float64",
        description="Of a tile's values; sums are float64. float32 takes 0.6 of the time and keeps about five digits "
        "of an alignment.",
    )
    predictor: NamedPredictor = Field(
        PredictorConfig.model_validate({}),
        description="Second stage: a name, or {name, n_components, memory, loss, tol}. auto follows the "
        "learner, the task and the number of rows.",
    )
    statistics: StatisticsConfig = by_default(
        StatisticsConfig, "First stage: {sample}; all rows by default."
    )
    baseline: BaselineConfig | None = Field(
        None,
        description="Also measure a constant, a linear model and GridSearchCV over one Gaussian kernel; {} for its "
        "defaults.",
    )
    protocol: ProtocolConfig = by_default(ProtocolConfig, "How errors are measured.")
    dask: DaskConfig = by_default(DaskConfig, "Where tiles are computed.")
    parallel: int = Field(
        1,
        ge=1,
        le=MOST_AT_ONCE,
        description="Data sets that are read, or learners that are measured, at once. More than 1 is faster on many "
        "cores and needs memory for each; seconds of results are then not comparable.",
    )
    tracking: TrackingConfig = by_default(TrackingConfig, "Where evidence is kept.")
    figures: FiguresConfig | None = Field(
        None,
        description="Also write the figures as {format, width, height}; {} for PDF of the usual size.",
    )
    drift: DriftConfig = by_default(
        DriftConfig,
        "Of a model that is trained: when new rows differ from the training rows, and what happens then.",
    )

    promotion_margin: float = Field(
        0.05,
        ge=0,
        le=1,
        description="How much more a model of the same recipe on new rows may err and still become champion, as a "
        "share of the lowest error since its recipe changed.",
    )

    def on(self, dataset: DatasetConfig) -> CompareConfig:
        """Return the configuration restricted to one data set, with its base kernels."""
        plain = dataset.model_copy(update={"kernels": None})
        return self.model_copy(
            update={"datasets": (plain,), "kernels": dataset.kernels or self.kernels}
        )

    def _complaints(self) -> Iterator[str]:
        weighing = [
            learner.title for learner in self.learners if learner.name not in SEARCHING
        ]
        all_have_kernels = all(dataset.kernels for dataset in self.datasets)
        if weighing and "kernels" not in self.model_fields_set and not all_have_kernels:
            yield (
                f"learner {weighing[0]} weighs base kernels, and 'kernels' gives none; give families there, or take "
                f"learners that find their own ({', '.join(SEARCHING)})"
            )
        families = [
            family for dataset in self.datasets for family in self.on(dataset).kernels
        ]
        has_constant = any(
            isinstance(family, ConstantConfig) or getattr(family, "constant", False)
            for family in families
        )
        if has_constant and self.centering == "center":
            yield (
                "a constant base kernel is zero once base kernels are centered; set 'centering: none', or leave it "
                "out, as predictors on centered kernels have an intercept"
            )
        for learner in self.learners:
            if (
                self.centering != "center"
                and ":" not in learner.name
                and learner.name not in UNCENTERED
            ):
                yield (
                    f"learner {learner.title} is defined by base kernels that are centered, and 'centering' is "
                    f"{self.centering}; leave one of them out, or take one of {', '.join(UNCENTERED)}"
                )
            if (
                self.protocol.choose is not None
                and learner.tune
                and learner.tune_by == "alignment"
            ):
                yield (
                    f"learner {learner.title}: 'tune_by: alignment' needs validation rows, and 'protocol.choose' has "
                    "none; give the split 'validation' rows, or set 'tune_by: error'"
                )
        titles = {learner.title for learner in self.learners}
        columns = titles.intersection(COLUMNS_OF_REPORTS)
        if columns:
            yield f"a learner is labeled {min(columns)}, a column of reports; label it otherwise"
        conflicts = titles.intersection(BASELINE_TITLES.values())
        if self.baseline is not None and conflicts:
            yield f"a learner is labeled {min(conflicts)}, the name of a baseline in reports; label it otherwise"
        yield from self._complaints_about_data()

    def _complaints_about_data(self) -> Iterator[str]:
        split = self.protocol.split
        for dataset in self.datasets:
            kernels = self.on(dataset).kernels
            has_matrices = any(
                isinstance(family, PrecomputedConfig) for family in kernels
            )
            if has_matrices and len(kernels) > 1:
                yield (
                    "family precomputed must be the only one, as its rows are positions and not features; put all "
                    "matrices into one file, or all families into the configuration of 'learnkernels gram'"
                )
            if dataset.folds is not None and split is not None:
                yield f"data set {dataset.label}: 'folds' goes without 'protocol.split'; leave one of them out"
            if has_matrices and dataset.scale_on == "training":
                yield (
                    f"data set {dataset.label}: with 'scale_on: training' each trial has features of its own, and the "
                    "matrices of family precomputed are those of one scaling; set 'scale_on: all', or name the "
                    "families themselves"
                )
            if dataset.test and split is None:
                yield (
                    f"data set {dataset.label}: 'test' says which rows test, and goes with 'protocol.split'; give the "
                    "rows that train and validate there"
                )
            if not dataset.test and split is not None and split.test is None:
                yield (
                    f"protocol.split needs 'test', a number of rows, for data set {dataset.label}, which does not say "
                    "with 'test' which rows test; give it in one of them"
                )
            if dataset.time is not None and split is None and self.protocol.repeats > 1:
                yield (
                    f"data set {dataset.label}: with 'time' folds are not drawn, so that repeats are all the same; set "
                    f"'protocol.repeats' to 1, got {self.protocol.repeats}"
                )
        labels = [dataset.label for dataset in self.datasets]
        if _repeated(labels):
            yield f"data set {_repeated(labels)} appears more than once; give each its own 'label'"
        titles = [learner.title for learner in self.learners]
        if _repeated(titles):
            yield (
                f"learner {_repeated(titles)} appears more than once; list it once, or give each setting its own "
                "'label'"
            )


def _repeated(names: list[str]) -> str:
    return ", ".join(sorted({name for name in names if names.count(name) > 1}))
