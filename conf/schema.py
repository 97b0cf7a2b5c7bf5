"""What a configuration may hold. Prefect shows the same descriptions as a form."""

from __future__ import annotations

import difflib
import re
from contextlib import suppress
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    field_validator,
    model_serializer,
    model_validator,
)

LearnerName = Literal[
    "align",
    "align-uncentered",
    "alignf",
    "alignf-linear",
    "alignf-uncentered",
    "ca",
    "cr",
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
PresetName = Literal["CA-1D", "CA-nD", "CR", "DA", "D1", "D2", "DU"]
PredictorName = Literal["auto", "krr", "krr-cg", "nystrom", "svm"]
SklearnName = Literal["breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine"]
SyntheticName = Literal["three_sines", "relevance", "friedman"]


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


Positive = Annotated[float, Field(gt=0)]


class Spaced(Strict):
    """Some positive numbers from one to another, both included: equidistant, or with one ratio."""

    start: Positive = Field(alias="from", description="The first number.")
    stop: Positive = Field(alias="to", description="The last number, included.")
    count: int = Field(ge=2, description="How many numbers.")
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


def _kind_of_grid(value: Any) -> str:
    if isinstance(value, dict):
        known = ("base", "start", "stop", "from", "to", "count", "spacing")
        meant = {name for key in value for name in difflib.get_close_matches(str(key), known, n=1)}
        return "spaced" if meant & {"count", "spacing"} else "powers"
    return "powers" if isinstance(value, Powers) else "spaced" if isinstance(value, Spaced) else "list"


Grid = Annotated[
    Annotated[list[Positive], Field(min_length=1), Tag("list")]
    | Annotated[Powers, Tag("powers")]
    | Annotated[Spaced, Tag("spaced")],
    Discriminator(_kind_of_grid),
]
"""A list of positive numbers, the powers of a base, or a number of them from one to another."""


def grid_values(grid: list[float] | Powers | Spaced) -> list[float]:
    """Return the numbers of a grid, as given."""
    return list(grid) if isinstance(grid, list) else grid.values()


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) else value


def _as_number(value: Any) -> Any:
    """Return the number that YAML takes for text, such as 1e-6, and anything else as it is."""
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value


Parameter = Annotated[Any, BeforeValidator(_as_number)]
"""Value of a parameter of a learner or of a synthetic data set."""


def _several(value: Any) -> Any:
    """Return one value as a list of one; several as they are."""
    return [value] if isinstance(value, str | int | float) else value


def _as_plain_text(value: Any) -> Any:
    """Return a number as the text that a column of numbers is compared by: 5.0 as 5."""
    return _as_text(int(value) if isinstance(value, float) and value.is_integer() else value)


def _from_to(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) != 2:
        raise ValueError(f"must be one number, or two: [from, to]; got {list(value)}")
    return value if isinstance(value, list | tuple) else [value, value]


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1), BeforeValidator(_several)]
Values = Annotated[
    tuple[Annotated[str, BeforeValidator(_as_plain_text)], ...], Field(min_length=1), BeforeValidator(_several)
]
Words = Annotated[int, Field(ge=1, le=10)]


class NgramsConfig(Strict):
    """Texts as counts of n-grams: runs of n words, one sparse feature each."""

    column: Names = Field(
        description="Column of texts, or several whose counts add up (a missing text is empty, words are lower-cased "
        "and of two letters or more); or one column of lists of tokens, in which the words of a token are joined by _."
    )
    counts: str | None = Field(
        None, min_length=1, description="Column of lists: how often each token occurs. By default each stands for one."
    )
    size: Annotated[tuple[Words, Words], BeforeValidator(_from_to)] = Field(
        (1, 1), description="Words of an n-gram: 2 takes bigrams alone, [1, 2] single words too."
    )
    most_frequent: int | None = Field(
        None,
        ge=1,
        description="Keep that many n-grams of the largest count in all rows together; all by default. Counted before "
        "rows are drawn by `subsample`; of equal counts the first in the order of the text goes first.",
    )
    constant: bool = Field(False, description="Add a feature named constant that is one in every row.")

    @model_validator(mode="after")
    def _complete(self) -> NgramsConfig:
        if self.size[1] < self.size[0]:
            raise ValueError(f"'size' must not fall, got from {self.size[0]} to {self.size[1]} words")
        if self.counts is not None and (len(self.column) > 1 or self.counts in self.column):
            raise ValueError(
                f"'counts' is a column beside the only column of tokens, got {self.counts!r} beside "
                f"{', '.join(self.column)}; leave it out, or name one 'column'"
            )
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return self.column if self.counts is None else (*self.column, self.counts)


class DatasetConfig(Strict):
    """One data set: where it lies and how it is read."""

    source: Literal["sklearn", "file", "synthetic", "openml"] = Field(
        description="A set bundled with scikit-learn, a file, rows drawn from a known distribution, or a set of "
        "OpenML, which is fetched once and kept."
    )
    name: str | None = Field(
        None,
        description="Name in reports; for `sklearn`, `synthetic` and `openml` the name of the set.",
    )
    title: str | None = Field(
        None,
        alias="label",
        min_length=1,
        description="Name in reports, whatever the source; the set's, or the file's without its ending, by default.",
    )
    version: int | None = Field(
        None, ge=1, description="For `openml` only, and needed there: the version of the set of that name."
    )
    path: str | None = Field(
        None, description="Parquet, CSV, Arrow/Feather or LIBSVM file; relative to `data_dir`. For `file` only."
    )
    params: dict[str, Parameter] = Field(
        default_factory=dict,
        description="For `synthetic` only: rows; of relevance also gamma, how unequal the features are, and features; "
        "of friedman also irrelevant, how many features do not matter.",
    )
    seed: int = Field(
        0, ge=0, description="For `synthetic` only: what the rows are drawn with, whatever the protocol's seed."
    )
    target: str = Field(
        "target",
        description="Column to predict. A LIBSVM file, the sklearn and the synthetic sets have their own; a set of "
        "OpenML has one by default.",
    )
    positive: Annotated[str | None, BeforeValidator(_as_text)] = Field(
        None,
        description="Value of the target that becomes +1 while all others become -1: one class against the rest, or "
        "labels used as numbers in a regression.",
    )
    drop: tuple[str, ...] = Field((), description="Columns that are not features.")
    where: dict[str, Values] = Field(
        default_factory=dict,
        description="Column to its value, or to a list of values: rows with another value are left out. Compared as "
        "text. These columns are no features.",
    )
    test: dict[str, Values] = Field(
        default_factory=dict,
        description="For `file` only. Column to its value, or to a list of values, as in `where`: rows that have them "
        "test and do nothing else; `protocol.split` draws the others among the rest. These columns are no features.",
    )
    distinct: bool = Field(
        False, description="Keep the first of rows that are equal in every feature and in the target."
    )
    ngrams: NgramsConfig | None = Field(
        None, description="Count n-grams of a column of texts or tokens; they are the only features then."
    )
    bytes: str | None = Field(
        None,
        min_length=1,
        description="Column of binary values of one length, such as the pixels of images: each byte is a feature.",
    )
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
        if self.source != "file" and self.path is not None:
            raise ValueError(f"'path' goes with source 'file'; for source {self.source!r} give 'name'")
        if self.source in ("sklearn", "synthetic"):
            names = SklearnName if self.source == "sklearn" else SyntheticName
            valid = names.__args__  # type: ignore[attr-defined]
            if self.name not in valid:
                raise ValueError(f"source {self.source!r} needs 'name', one of: {', '.join(valid)}; got {self.name!r}")
        if self.source == "openml":
            if self.name is None or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.(),+-]*", self.name):
                raise ValueError(f"source 'openml' needs 'name', a set's as OpenML writes it; got {self.name!r}")
            if self.version is None:
                raise ValueError("source 'openml' needs 'version', a whole number from 1: a set is told by both")
        return self

    @model_validator(mode="after")
    def _keys_of_the_source(self) -> DatasetConfig:
        owners = {
            "params": ("synthetic",),
            "seed": ("synthetic",),
            "version": ("openml",),
            "where": ("file", "openml"),
            "test": ("file",),
            "ngrams": ("file", "openml"),
            "bytes": ("file", "openml"),
        }
        for key, sources in owners.items():
            if getattr(self, key) and self.source not in sources:
                named = f"source {sources[0]!r}" if len(sources) == 1 else f"sources {' and '.join(map(repr, sources))}"
                raise ValueError(f"{key!r} goes with {named}, got source {self.source!r}; leave it out")
        return self

    @model_validator(mode="after")
    def _columns_once(self) -> DatasetConfig:
        if self.ngrams is not None and self.bytes is not None:
            raise ValueError("'ngrams' are the only features, so 'bytes' adds none; leave one of them out")
        if self.ngrams is not None:
            key, wanted = "ngrams", self.ngrams.columns
        else:
            key, wanted = "bytes", () if self.bytes is None else (self.bytes,)
        for column in wanted:
            taken = (("target", (self.target,)), ("where", self.where), ("test", self.test), ("drop", self.drop))
            for other, columns in taken:
                if column in columns:
                    raise ValueError(f"column {column!r} of {key!r} is in {other!r} as well; name it in one of them")
        return self

    @model_serializer(mode="wrap")
    def _without_empty_test(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `test` out where it is empty: what depends on a configuration is stored under its dump."""
        data: dict[str, Any] = dump(self)
        if not self.test:
            data.pop("test", None)
        return data

    @property
    def label(self) -> str:
        """Name in reports: as given, or the set's or file's own; of a synthetic set its parameters too."""
        if self.title is not None:
            return self.title
        if self.source == "synthetic":
            settings = self.params | ({"seed": self.seed} if self.seed else {})
            return " ".join([str(self.name), *(f"{key}={value}" for key, value in settings.items())])
        return self.name or (self.path or "").replace("\\", "/").rsplit("/", 1)[-1].split(".", 1)[0]


SMALLEST_SIGMA = 1e-150
GRID_FORMS = "a list, {base, from, to}, or {from, to, count, spacing}"


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


PRESETS: dict[str, dict[str, Any]] = {
    "CA-1D": {"name": "ca"},
    "CA-nD": {"name": "ca", "params": {"per_feature": True}},
    "CR": {"name": "cr"},
    "DA": {"name": "alignf"},
    "D1": {"name": "lp-svm", "params": {"norm": 1}},
    "D2": {"name": "lp-svm", "params": {"norm": 2}},
    "DU": {"name": "unif"},
}
"""The methods of AFK 2013, Table 1: names that stand for a learner, its label and its parameters."""


class LearnerConfig(Strict):
    """A way of learning the kernel's weights."""

    name: Literal[LearnerName, PresetName] = Field(
        description="The algorithm; `learnkernels learners` lists them. CA-1D, CA-nD, CR, DA, D1, D2 and DU stand for "
        "an algorithm with the parameters and the label of AFK 2013, Table 1; what is given beside goes first."
    )
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
    tune_by: Literal["error", "alignment"] = Field(
        "error",
        description="How it chooses among the combinations: by the predictor's error, together with Lambda, or by the "
        "centered alignment of the learned kernel with the target there, and Lambda then by the error.",
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


class SplitConfig(Strict):
    """How many rows are drawn, without replacement, for each purpose; the others are not used."""

    train: int = Field(ge=2, description="Rows that kernel and predictor are learned on.")
    validation: int | None = Field(
        None, ge=2, description="Rows that choose Lambda, and parameters that are tuned; null where `choose` is given."
    )
    test: int | None = Field(
        None,
        ge=2,
        description="Rows that the error is measured on; needed but where data sets say with `test` which rows test: "
        "then by default all of these.",
    )


class ChooseConfig(Strict):
    """A cross-validation within the training rows, in place of rows that are kept aside for validation."""

    folds: int = Field(10, ge=3, le=100, description="Folds of the training rows that validate each other.")
    once: bool = Field(
        False,
        description="Choose on the training rows of the first repeat alone and keep that for all repeats, as some "
        "papers do; rows that have chosen then test in other repeats, which favours every learner that is tuned.",
    )


class ProtocolConfig(Strict):
    """How errors are measured: in each trial one fold tests, the next validates, the others train.

    With `split`, each repeat is one trial on rows drawn anew.
    """

    folds: int | None = Field(5, ge=3, le=100, description="Number of folds; null where there is a split.")
    split: SplitConfig | None = Field(
        None, description="In place of folds: the rows that train, validate and test, drawn anew in each repeat."
    )
    choose: ChooseConfig | None = Field(
        None,
        description="With a `split` that has no validation rows: Lambda, and parameters that are tuned, are chosen by "
        "cross-validation within the training rows, and all of these then train.",
    )
    repeats: int = Field(1, ge=1, le=1000, description="Times the folds, or the split, are drawn anew.")
    seed: int = Field(0, ge=0, description="Root of every random choice.")
    grid: Grid = Field(
        default_factory=lambda: Powers.model_validate({"base": 2, "from": -6, "to": 14}),
        description="Lambda, the scale of the learned kernel; C of the SVM, 1 / lambda of the ridge.",
    )

    @model_validator(mode="before")
    @classmethod
    def _folds_or_split(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        folds, split = data.get("folds"), data.get("split")
        if folds is not None and split is not None:
            raise ValueError("'folds' and 'split' exclude each other; give one of them, and null for the other")
        if "folds" in data and folds is None and split is None:
            raise ValueError("'folds' is null and there is no 'split'; give one of them")
        return data if split is None else {**data, "folds": None}

    @model_validator(mode="after")
    def _something_chooses(self) -> ProtocolConfig:
        if self.choose is not None and self.split is None:
            raise ValueError(
                "'choose' goes with 'split', of which it divides the training rows; with folds, one validates"
            )
        if self.split is not None and (self.split.validation is None) == (self.choose is None):
            got = "neither" if self.choose is None else "both"
            raise ValueError(
                "a split needs either 'validation' rows or 'choose', a cross-validation of its training rows, got "
                f"{got}; give one of them"
            )
        return self

    @field_validator("grid")
    @classmethod
    def _ascending(cls, grid: list[float] | Powers | Spaced) -> list[float] | Powers | Spaced:
        values = grid_values(grid)
        if values != sorted(set(values)):
            raise ValueError(f"the grid must ascend without repetition, got {values}")
        return grid


APPROXIMATE: tuple[str, ...] = ("auto", "nystrom")
PREDICTOR_OPTIONS: dict[str, tuple[str, ...]] = {
    "landmarks": APPROXIMATE,
    "memory": APPROXIMATE,
    "sampling": APPROXIMATE,
    "loss": APPROXIMATE,
    "tolerance": ("auto", "krr-cg", "nystrom"),
}
"""Which predictors take an option; with auto it counts where one of the others is what it takes."""


def _size(value: Any) -> Any:
    text = _as_text(value)
    if (
        not isinstance(text, str)
        or not re.fullmatch(r"\d*\.?\d+\s*([kKMGTP]i?)?B?", text)
        or not re.search("[1-9]", text)
    ):
        raise ValueError(f"must be a size such as 2GB or 512MiB, got {value!r}")
    return text


Size = Annotated[str, BeforeValidator(_size)]
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
        "from it. Half of what is free, by default.",
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
        for key, owners in PREDICTOR_OPTIONS.items():
            if getattr(self, key) is not None and self.name not in owners:
                raise ValueError(f"{key!r} goes with predictor {' or '.join(owners)}, got {self.name}; leave it out")
        if self.landmarks is not None and self.memory is not None and self.name == "nystrom":
            raise ValueError(
                "'landmarks' and 'memory', from which their number follows, exclude each other; give one of them"
            )
        return self

    def options(self) -> dict[str, Any]:
        """Return the options that are given."""
        return {key: value for key in PREDICTOR_OPTIONS if (value := getattr(self, key)) is not None}


def _kind_of_predictor(value: Any) -> str:
    return "options" if isinstance(value, dict | PredictorConfig) else "plain"


PredictorSetting = Annotated[
    Annotated[PredictorName, Tag("plain")] | Annotated[PredictorConfig, Tag("options")],
    Discriminator(_kind_of_predictor),
]
"""The name of a predictor, or its name with options."""


SMALLEST_SAMPLE = 256
"""Rows that say anything of an alignment and of its error."""


class MomentsConfig(Strict):
    """How many rows the statistics of the base kernels are taken over."""

    sample: Literal["none", "auto"] | int = Field(
        "none",
        description="none: all rows, exactly. auto: a growing sample, until alignments are known to 'tolerance'. A "
        "number: a sample of that many rows. Alignments and weights then have error bars.",
    )
    tolerance: float = Field(
        0.01, gt=0, lt=1, description="Half width of the confidence interval of alignments at which auto stops."
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Of each interval, so that at 0.95 one in twenty may miss.")

    @field_validator("sample", mode="before")
    @classmethod
    def _rows_or_a_word(cls, value: Any) -> Any:
        number = isinstance(value, int) and not isinstance(value, bool)
        if value not in ("none", "auto") and not (number and value >= SMALLEST_SAMPLE):
            raise ValueError(f"must be none, auto, or a whole number of rows from {SMALLEST_SAMPLE}, got {value!r}")
        return value


class BaselineConfig(Strict):
    """What most would use instead: scikit-learn's GridSearchCV over one Gaussian kernel, on the same trials."""

    gammas: Grid = Field(
        default_factory=lambda: Powers.model_validate({"base": 4, "from": -3, "to": 3}),
        description="Bandwidths to try, as multiples of 1 / (features x variance), scikit-learn's 'scale': "
        f"{GRID_FORMS}.",
    )
    grid: Grid = Field(
        default_factory=lambda: Powers.model_validate({"base": 8, "from": -1, "to": 4}),
        description=f"C of SVC, and 1 / alpha of KernelRidge, to try: {GRID_FORMS}.",
    )
    absolute: bool = Field(False, description="The bandwidths are gamma itself, and not multiples.")


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
        min_length=1, description="The ways of learning the weights; a name, or {name, params, tune, tune_by, label}."
    )
    normalise: Literal["trace", "frobenius", "none"] = Field(
        "trace", description="What each centered base kernel is scaled by before a learner sees it."
    )
    precision: Literal["float64", "float32"] = Field(
        "float64",
        description="Of a tile's values; sums are always float64. float32 takes 0.6 of the time and gives about five "
        "digits of an alignment, fewer where a kernel is nearly constant.",
    )
    predictor: PredictorSetting = Field(
        "auto",
        description="Second stage: a name, or {name, landmarks, memory, sampling, loss, tolerance}. auto is the "
        "learner's own, or svm for classification and krr for regression, and one that needs no matrix of all pairs of "
        "training rows where that has no room.",
    )
    moments: MomentsConfig = Field(
        default_factory=lambda: MomentsConfig.model_validate({}),
        description="First stage: {sample, tolerance, confidence}; all rows by default.",
    )
    baseline: BaselineConfig | None = Field(
        None,
        description="Also measure what most would use instead: scikit-learn's GridSearchCV over one Gaussian kernel; "
        "{} for its defaults.",
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

    @model_serializer(mode="wrap")
    def _without_exact_moments(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `moments` out where it is the default: what depends on a configuration is stored under its dump."""
        data: dict[str, Any] = dump(self)
        if self.moments == MomentsConfig.model_validate({}):
            data.pop("moments", None)
        return data

    @property
    def second_stage(self) -> PredictorConfig:
        """The predictor with its options."""
        if isinstance(self.predictor, PredictorConfig):
            return self.predictor
        return PredictorConfig.model_validate({"name": self.predictor})

    @field_validator("predictor")
    @classmethod
    def _plain_where_it_can_be(cls, predictor: PredictorName | PredictorConfig) -> PredictorName | PredictorConfig:
        return predictor.name if isinstance(predictor, PredictorConfig) and not predictor.options() else predictor

    @field_validator("kernels")
    @classmethod
    def _matrices_alone(cls, kernels: tuple[FamilyConfig, ...]) -> tuple[FamilyConfig, ...]:
        if len(kernels) > 1 and any(isinstance(family, PrecomputedConfig) for family in kernels):
            raise ValueError(
                "family precomputed must be the only one, as its rows are positions and not features; put all families "
                "into the configuration that 'learnkernels gram' makes the matrices from"
            )
        return kernels

    @model_validator(mode="after")
    def _chosen_by_error(self) -> CompareConfig:
        for learner in self.learners:
            if self.protocol.choose is not None and learner.tune and learner.tune_by == "alignment":
                raise ValueError(
                    f"learner {learner.title}: 'tune_by: alignment' needs validation rows, and 'protocol.choose' has "
                    "none; give the split 'validation' rows, or set 'tune_by: error'"
                )
        if self.baseline is not None and "GridSearchCV" in [learner.title for learner in self.learners]:
            raise ValueError(
                "a learner is labelled GridSearchCV, the name of the baseline in reports; label it otherwise"
            )
        return self

    @model_validator(mode="after")
    def _something_tests(self) -> CompareConfig:
        split = self.protocol.split
        for dataset in self.datasets:
            if dataset.test and split is None:
                raise ValueError(
                    f"data set {dataset.label}: 'test' says which rows test, and goes with 'protocol.split'; give the "
                    "rows that train and validate there"
                )
            if not dataset.test and split is not None and split.test is None:
                raise ValueError(
                    f"protocol.split needs 'test', a number of rows, for data set {dataset.label}, which does not say "
                    "with 'test' which rows test; give it in one of them"
                )
        return self

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
