"""Configurations of data sets: their places and formats."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from ..errors import did_you_mean, short
from ..files import ARRAYS, ENDINGS, WILDCARD, ending_of
from .base import Parameter, Strict, as_text, several
from .learners import FamilyConfig

SklearnName = Literal["breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine"]
SyntheticName = Literal["three_sines", "relevance", "friedman"]


def _as_plain_text(value: Any) -> Any:
    """Return a number as text, 5.0 as 5."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return as_text(value)


def name_of_files(paths: Sequence[str]) -> str:
    """Return the default name of a data set in files."""
    if not paths:
        return "files"
    parts = paths[0].replace("\\", "/").split("/")
    for part in reversed(parts):
        before_wildcard = WILDCARD.split(part)[0]
        if before_wildcard != part:
            before_wildcard = before_wildcard.rstrip("-_. ")
        name = before_wildcard.split(".", 1)[0]
        if name:
            return name
    return "files"


def _from_to(value: Any) -> Any:
    """Return a range of two numbers; one number is both ends."""
    if not isinstance(value, list | tuple):
        return [value, value]
    if len(value) != 2:
        raise ValueError(
            f"must be one number, or two: [from, to]; got {short(list(value))}"
        )
    return value


def _one_or_several_texts(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [as_text(item) for item in value]
    return as_text(value)


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1), BeforeValidator(several)]
Values = Annotated[
    tuple[Annotated[str, BeforeValidator(_as_plain_text)], ...],
    Field(min_length=1),
    BeforeValidator(several),
]
Words = Annotated[int, Field(ge=1, le=10)]


class NgramsConfig(Strict):
    """Conversion of texts to counts of n-grams: runs of n words, each a sparse feature."""

    column: Names = Field(
        description="Text column, or several whose counts are added (lower-cased words of two letters or more); or "
        "one column of lists of tokens."
    )
    counts: str | None = Field(
        None,
        min_length=1,
        description="Column of lists: how often each token occurs. By default each counts once.",
    )
    size: Annotated[tuple[Words, Words], BeforeValidator(_from_to)] = Field(
        (1, 1),
        description="Words of an n-gram: 2 takes bigrams alone, [1, 2] single words too.",
    )
    most_frequent: int | None = Field(
        None,
        ge=1,
        description="Keep the n-grams that are most frequent in all rows, before `subsample`; all by default.",
    )
    constant: bool = Field(
        False, description="Add a feature named constant that is one in every row."
    )

    def _complaints(self) -> Iterator[str]:
        if self.size[1] < self.size[0]:
            yield f"'size' must not fall, got from {self.size[0]} to {self.size[1]} words"
        if self.counts is not None and (
            len(self.column) > 1 or self.counts in self.column
        ):
            yield (
                f"'counts' is a column next to the only column of tokens, got {short(self.counts)} for "
                f"{', '.join(self.column)}; leave it out, or name one 'column'"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        if self.counts is None:
            return self.column
        return (*self.column, self.counts)


ColumnKind = Literal["number", "categorical", "code", "date", "text", "drop"]


ABSENT: dict[str, Any] = {
    **dict.fromkeys(
        (
            "name",
            "path",
            "version",
            "columns",
            "groups",
            "time",
            "weights",
            "ngrams",
            "bytes",
            "in_parts",
        )
    ),
    **{key: {} for key in ("params", "where", "test")},
    "seed": 0,
    "features": (),
}
"""Values of keys that a source lacks."""


class DatasetConfig(Strict):
    """Configuration keys that data sets of all sources share."""

    source: str
    if TYPE_CHECKING:
        path: str | tuple[str, ...] | None
        name: str | None

    title: str | None = Field(
        None,
        alias="label",
        min_length=1,
        description="Name in reports, whatever the source; the set's, or the file's without its ending, by default.",
    )
    target: str = Field(
        "target",
        description="Column to predict. A list such as [sales, returns] makes one data set per target. LIBSVM files "
        "and bundled and synthetic sets have their own; OpenML has a default.",
    )
    positive: Annotated[str | Names | None, BeforeValidator(_one_or_several_texts)] = (
        Field(
            None,
            description="Target value, or list of values, that becomes +1 while all others become -1.",
        )
    )
    drop: Annotated[tuple[str, ...], BeforeValidator(several)] = Field(
        (), description="Columns that are not features."
    )
    distinct: bool = Field(
        False,
        description="Keep the first of rows that are equal in every feature and in the target.",
    )
    task: Literal["classification", "regression"] | None = Field(
        None,
        description="By default a target of text or whole numbers with few values is a classification.",
    )
    missing: Literal["impute", "refuse", "drop"] = Field(
        "impute",
        description="impute: median, or a level of its own for categories, plus a missing-value indicator. drop: "
        "leave rows out. refuse: stop.",
    )
    scale: Literal["none", "unit", "max", "standard", "quantile"] = Field(
        "none",
        description="none; unit: to [0, 1]; max: by the largest absolute value; standard: zero mean, unit variance; "
        "quantile: to a normal distribution by rank.",
    )
    scale_on: Literal["all", "training"] = Field(
        "all",
        description="Rows that scaling and imputation are fitted on: all, once, or the training rows of each trial.",
    )
    subsample: int | None = Field(
        None, ge=10, description="Use that many rows, drawn at random with the seed."
    )
    folds: Name | None = Field(
        None,
        description="File with the fold of each row, one column per repeat (CSV, Parquet, Arrow, Feather or .npy), "
        "relative to `data_dir`; in place of `protocol.folds` and `protocol.repeats`.",
    )
    kernels: Annotated[tuple[FamilyConfig, ...] | None, BeforeValidator(several)] = (
        Field(
            None,
            min_length=1,
            description="Base kernels of this data set, in place of those of the run.",
        )
    )

    def __getattr__(self, key: str) -> Any:
        if key in ABSENT:
            return ABSENT[key]
        return super().__getattr__(key)  # type: ignore[misc]

    @classmethod
    def of(cls, data: Any) -> DatasetConfig:
        """Return a data set's configuration, as an instance of its source's class."""
        return _DATASET.validate_python(data)

    @model_validator(mode="before")
    @classmethod
    def _without_absent_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {
            key: value for key, value in data.items() if not cls._is_absent(key, value)
        }

    @classmethod
    def _is_absent(cls, key: Any, value: Any) -> bool:
        return key not in cls.model_fields and key in ABSENT and value == ABSENT[key]

    @classmethod
    def _place_of(cls, key: Any) -> str:
        if key == "class_weight":
            return (
                "use a column 'weights', or class_weight of KernelLearningClassifier; "
            )
        owners = [
            repr(source)
            for source, config in SOURCES.items()
            if key in config.model_fields
        ]
        if not owners:
            return ""
        if len(owners) == 1:
            return f"it goes with source {owners[0]}; "
        return f"it goes with sources {' and '.join(owners)}; "

    def _complaints(self) -> Iterator[str]:
        divided = [key for key in ("groups", "time", "test") if getattr(self, key)]
        if self.folds is not None and divided:
            yield f"'folds' says which rows test, and {divided[0]!r} does so, too; leave one of them out"

    @property
    def sample_columns(self) -> dict[str, str]:
        """Column names of groups, time and sample weights, by configuration key."""
        columns = {key: getattr(self, key) for key in ("groups", "time", "weights")}
        return {key: column for key, column in columns.items() if column is not None}

    @property
    def paths(self) -> tuple[str, ...]:
        """Files, folders and patterns in the key `path`, as a tuple."""
        if isinstance(self.path, str):
            return (self.path,)
        return self.path or ()

    @property
    def label(self) -> str:
        """Data set's name in reports: the label, else its own name or the file's."""
        return self.title or self.name or name_of_files(self.paths)


class SklearnConfig(DatasetConfig):
    """Configuration of a data set that comes with scikit-learn."""

    source: Literal["sklearn"]
    name: SklearnName = Field(description="Name of the set.")


class SyntheticConfig(DatasetConfig):
    """Configuration of a data set that is drawn from a known distribution."""

    source: Literal["synthetic"]
    name: SyntheticName = Field(description="Name of the distribution.")
    params: dict[str, Parameter] = Field(
        default_factory=dict,
        description="rows; for relevance also gamma and features; for friedman also irrelevant, the number of noise "
        "features.",
    )
    seed: int = Field(
        0,
        ge=0,
        description="What the rows are drawn with, whatever the protocol's seed.",
    )

    @property
    def label(self) -> str:
        """Data set's name in reports: the label, else the distribution with parameters."""
        if self.title:
            return self.title
        settings = dict(self.params)
        if self.seed:
            settings["seed"] = self.seed
        return " ".join(
            [self.name, *(f"{key}={value}" for key, value in settings.items())]
        )


class TableConfig(DatasetConfig):
    """Configuration keys of data sets in tables with named columns."""

    features: Annotated[tuple[str, ...], BeforeValidator(several)] = Field(
        (), description="The only columns that are features; all others by default."
    )
    columns: dict[str, ColumnKind | tuple[str, ...]] | None = Field(
        None,
        description="Column types that the values do not tell: number, categorical, code (one code per level, for "
        "family categorical), date, text (the words of free text), drop, or a list of ordered levels.",
    )
    where: dict[str, Values] = Field(
        default_factory=dict,
        description="Column to its value, or list of values, as text: other rows are left out. Not features.",
    )
    test: dict[str, Values] = Field(
        default_factory=dict,
        description="Column to its value, or list of values, of the test rows; `protocol.split` draws the others from "
        "the rest. Not features.",
    )
    groups: Name | None = Field(
        None,
        description="Column of groups, such as patients, not a feature. No group is divided between training, "
        "validation and test rows.",
    )
    time: Name | None = Field(
        None,
        description="Column of numbers or dates, not a feature. Folds are consecutive blocks of time: earlier blocks "
        "train, the next validates, the one after tests.",
    )
    weights: Name | None = Field(
        None,
        description="Column of sample weights, not negative, not a feature. Only their ratios count. For alignment "
        "learners and rfm.",
    )
    ngrams: NgramsConfig | None = Field(
        None,
        description="Count n-grams of a column of texts or tokens; they are the only features then.",
    )
    bytes: str | None = Field(
        None,
        min_length=1,
        description="Column of binary values of one length, such as the pixels of images: each byte is a feature.",
    )

    def _complaints(self) -> Iterator[str]:
        yield from super()._complaints()
        if self.ngrams is not None and self.bytes is not None:
            yield "'ngrams' are the only features, so 'bytes' adds none; leave one of them out"
        key = "bytes"
        feature_columns: tuple[str | None, ...] = (self.bytes,)
        if self.ngrams is not None:
            key = "ngrams"
            feature_columns = self.ngrams.columns
        other_columns: dict[str, Collection[str]] = {
            "target": (self.target,),
            "where": self.where,
            "test": self.test,
        }
        other_columns["drop"] = self.drop
        for role, name in self.sample_columns.items():
            other_columns[role] = (name,)
        for column, (other_key, columns) in product(
            feature_columns, other_columns.items()
        ):
            if column in columns:
                yield f"column {column!r} of {key!r} is in {other_key!r} as well; name it in one of them"
        for key, column in self.sample_columns.items():
            if column == self.target:
                yield f"column {column!r} of {key!r} is the target; name another one, or leave {key!r} out"
        if self.groups is not None and self.time is not None:
            yield (
                "'groups' and 'time' exclude each other, as a group may reach over blocks of time; leave one out"
            )
        if self.time is not None and self.test:
            yield "with 'time' the last rows test, and 'test' names others; leave one of them out"


class FileConfig(TableConfig):
    """Configuration of a data set in files: tables, or LIBSVM's format."""

    source: Literal["file"]
    name: str | None = Field(None, description="Name in reports, as `label`.")
    path: Name | Annotated[tuple[Name, ...], Field(min_length=1)] = Field(
        description="Parquet, CSV, Arrow, Feather or LIBSVM file, relative to `data_dir`; or a folder, a pattern such "
        "as data/*.parquet, or a list of these, with the same columns; or an .npz file of kernel matrices and a target."
    )
    in_parts: bool | None = Field(
        None,
        description="Read Parquet, Arrow and Feather out of core; by default from 1 GiB of numbers on.",
    )

    @model_validator(mode="before")
    @classmethod
    def _matrices_of_arrays(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("kernels"):
            return data
        path = data.get("path")
        if not isinstance(path, str) or not path.lower().endswith(ARRAYS[0]):
            return data
        return {**data, "kernels": [{"family": "precomputed", "path": path}]}


class OpenmlConfig(TableConfig):
    """Configuration of an OpenML data set, which is downloaded once and cached."""

    source: Literal["openml"]
    name: str = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.(),+-]*$",
        description="Name of the set, as OpenML writes it.",
    )
    version: int = Field(ge=1, description="The version of the set of that name.")


SOURCES: dict[str, type[DatasetConfig]] = {
    "sklearn": SklearnConfig,
    "file": FileConfig,
    "synthetic": SyntheticConfig,
    "openml": OpenmlConfig,
}


def _from_text(data: Any) -> Any:
    """Return the keys that a name or a path sets."""
    if isinstance(data, dict) and data.get("source") is None:
        raise ValueError(f"needs 'source', one of: {', '.join(SOURCES)}")
    if isinstance(data, dict | DatasetConfig):
        return data
    if not isinstance(data, str):
        raise ValueError(
            f"must be a mapping, with 'source' and the keys of that source; got {short(data)}"
        )
    sets = {"sklearn": get_args(SklearnName), "synthetic": get_args(SyntheticName)}
    for source, names in sets.items():
        if data in names:
            return {"source": source, "name": data}
    if ending_of(data) in (*ENDINGS, ARRAYS[0]) or data.endswith("/") or "*" in data:
        return {"source": "file", "path": data}
    set_names = [name for names in sets.values() for name in names]
    raise ValueError(
        f"got {short(data)}; {did_you_mean(data, set_names)}give the name of a set ({', '.join(set_names)}), a file "
        f"({', '.join(ENDINGS)}), or a mapping such as {{source: openml, name: kin8nm, version: 1}}"
    )


AnyDataset = Annotated[
    SklearnConfig | FileConfig | SyntheticConfig | OpenmlConfig,
    Field(discriminator="source"),
    BeforeValidator(_from_text),
]

_DATASET: TypeAdapter[DatasetConfig] = TypeAdapter(AnyDataset)


def each_target(data: Any) -> Any:
    """Return data set entries as a list, with one entry for each target column."""
    datasets = several(data)
    if not isinstance(datasets, list):
        return data
    return [part for dataset in datasets for part in _one_per_target(dataset)]


def _one_per_target(dataset: Any) -> list[Any]:
    if not isinstance(dataset, dict) or not isinstance(
        dataset.get("target"), list | tuple
    ):
        return [dataset]
    targets = dataset["target"]
    are_names = all(isinstance(target, str) and target for target in targets)
    if not targets or not are_names or len(set(targets)) < len(targets):
        raise ValueError(
            f"'target' must be a column, or a list of different ones, got {short(list(targets))}"
        )
    first = {**dataset, "target": targets[0]}
    if len(targets) == 1:
        return [first]
    if dataset.get("source") not in ("file", "openml"):
        raise ValueError(
            f"several targets go with sources 'file' and 'openml', got {short(dataset.get('source'))}"
        )
    label = DatasetConfig.of(first).label
    shared = {
        key: value for key, value in dataset.items() if key not in ("label", "title")
    }
    dropped = several(dataset.get("drop") or [])
    parts = []
    for target in targets:
        others = [other for other in targets if other != target]
        parts.append(
            {
                **shared,
                "target": target,
                "label": f"{label} {target}",
                "drop": [*dropped, *others],
            }
        )
    return parts
