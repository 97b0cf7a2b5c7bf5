"""Data sets: where they lie, and how they are read."""

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
    """Return a number as the text that a column of numbers is compared by: 5.0 as 5."""
    return as_text(int(value) if isinstance(value, float) and value.is_integer() else value)


def name_of_files(paths: Sequence[str]) -> str:
    """Return what files are called by default: the first one's name without its ending, a pattern's without the rest.

    A pattern that begins a name refers to the folder around it.
    """
    for part in reversed(
        [part for part in (*paths, "")[0].replace("\\", "/").split("/") if part not in ("", ".", "..")]
    ):
        plain = WILDCARD.split(part)[0]
        if named := (plain if plain == part else plain.rstrip("-_. ")).split(".", 1)[0]:
            return named
    return "files"


def _from_to(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) != 2:
        raise ValueError(f"must be one number, or two: [from, to]; got {short(list(value))}")
    return value if isinstance(value, list | tuple) else [value, value]


def _one_or_several_texts(value: Any) -> Any:
    return [as_text(one) for one in value] if isinstance(value, list | tuple) else as_text(value)


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1), BeforeValidator(several)]
Values = Annotated[
    tuple[Annotated[str, BeforeValidator(_as_plain_text)], ...], Field(min_length=1), BeforeValidator(several)
]
Words = Annotated[int, Field(ge=1, le=10)]


class NgramsConfig(Strict):
    """Texts as counts of n-grams: runs of n words, one sparse feature each."""

    column: Names = Field(
        description="Text column, or several whose counts are added (lower-cased words of two letters or more); or "
        "one column of lists of tokens."
    )
    counts: str | None = Field(
        None, min_length=1, description="Column of lists: how often each token occurs. By default each counts once."
    )
    size: Annotated[tuple[Words, Words], BeforeValidator(_from_to)] = Field(
        (1, 1), description="Words of an n-gram: 2 takes bigrams alone, [1, 2] single words too."
    )
    most_frequent: int | None = Field(
        None,
        ge=1,
        description="Keep the n-grams that are most frequent in all rows, before `subsample`; all by default.",
    )
    constant: bool = Field(False, description="Add a feature named constant that is one in every row.")

    def _complaints(self) -> Iterator[str]:
        if self.size[1] < self.size[0]:
            yield f"'size' must not fall, got from {self.size[0]} to {self.size[1]} words"
        if self.counts is not None and (len(self.column) > 1 or self.counts in self.column):
            yield (
                f"'counts' is a column next to the only column of tokens, got {short(self.counts)} for "
                f"{', '.join(self.column)}; leave it out, or name one 'column'"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return self.column if self.counts is None else (*self.column, self.counts)


ColumnKind = Literal["number", "categorical", "code", "date", "drop"]
"""What a column of a table can be said to be."""


ABSENT: dict[str, Any] = {
    **dict.fromkeys(("name", "path", "version", "columns", "groups", "time", "weights", "ngrams", "bytes", "in_parts")),
    **{key: {} for key in ("params", "where", "test")},
    "seed": 0,
    "features": (),
}
"""Keys of some sources, and what replaces them in data sets of the others."""


class DatasetConfig(Strict):
    """What data sets of all sources have; keys that a source does not have read as in `ABSENT`."""

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
    positive: Annotated[str | Names | None, BeforeValidator(_one_or_several_texts)] = Field(
        None, description="Target value, or list of values, that becomes +1 while all others become -1."
    )
    drop: Annotated[tuple[str, ...], BeforeValidator(several)] = Field((), description="Columns that are not features.")
    distinct: bool = Field(
        False, description="Keep the first of rows that are equal in every feature and in the target."
    )
    task: Literal["classification", "regression"] | None = Field(
        None, description="By default a target of text or whole numbers with few values is a classification."
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
    subsample: int | None = Field(None, ge=10, description="Use that many rows, drawn at random with the seed.")
    folds: Name | None = Field(
        None,
        description="File with the fold of each row, one column per repeat (CSV, Parquet, Arrow, Feather or .npy), "
        "relative to `data_dir`; in place of `protocol.folds` and `protocol.repeats`.",
    )
    kernels: Annotated[tuple[FamilyConfig, ...] | None, BeforeValidator(several)] = Field(
        None, min_length=1, description="Base kernels of this data set, in place of those of the run."
    )

    def __getattr__(self, key: str) -> Any:
        return ABSENT[key] if key in ABSENT else super().__getattr__(key)  # type: ignore[misc]

    @classmethod
    def of(cls, given: Any) -> DatasetConfig:
        """Return a data set of whichever source is given."""
        return _DATASET.validate_python(given)

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_absent(cls, data: Any) -> Any:
        def absent(key: Any, value: Any) -> bool:
            return key not in cls.model_fields and key in ABSENT and value == ABSENT[key]

        return {key: of for key, of in data.items() if not absent(key, of)} if isinstance(data, dict) else data

    @classmethod
    def _place_of(cls, key: Any) -> str:
        if key == "class_weight":
            return "use a column 'weights', or class_weight of KernelLearningClassifier; "
        owners = [source for source, config in SOURCES.items() if key in config.model_fields]
        named = f"source {owners[0]!r}" if len(owners) == 1 else f"sources {' and '.join(map(repr, owners))}"
        return f"it goes with {named}; " if owners else ""

    def _complaints(self) -> Iterator[str]:
        divided = [key for key in ("groups", "time", "test") if getattr(self, key)]
        if self.folds is not None and divided:
            yield f"'folds' says which rows test, and {divided[0]!r} does so, too; leave one of them out"

    @property
    def sample_columns(self) -> dict[str, str]:
        """The key and the column of what is known of rows next to features and target."""
        return {key: getattr(self, key) for key in ("groups", "time", "weights") if getattr(self, key) is not None}

    @property
    def paths(self) -> tuple[str, ...]:
        """What `path` names: files, folders and patterns."""
        return (self.path,) if isinstance(self.path, str) else self.path or ()

    @property
    def label(self) -> str:
        """Name in reports: as given, or the set's or file's own."""
        return self.title or self.name or name_of_files(self.paths)


class SklearnConfig(DatasetConfig):
    """A set that comes with scikit-learn."""

    source: Literal["sklearn"]
    name: SklearnName = Field(description="Name of the set.")


class SyntheticConfig(DatasetConfig):
    """Rows drawn from a known distribution."""

    source: Literal["synthetic"]
    name: SyntheticName = Field(description="Name of the distribution.")
    params: dict[str, Parameter] = Field(
        default_factory=dict,
        description="rows; for relevance also gamma and features; for friedman also irrelevant, the number of noise "
        "features.",
    )
    seed: int = Field(0, ge=0, description="What the rows are drawn with, whatever the protocol's seed.")

    @property
    def label(self) -> str:
        """Name in reports: as given, or that of the distribution with its parameters."""
        settings = self.params | ({"seed": self.seed} if self.seed else {})
        return self.title or " ".join([self.name, *(f"{key}={value}" for key, value in settings.items())])


class TableConfig(DatasetConfig):
    """What data sets have whose columns have names."""

    features: Annotated[tuple[str, ...], BeforeValidator(several)] = Field(
        (), description="The only columns that are features; all others by default."
    )
    columns: dict[str, ColumnKind | tuple[str, ...]] | None = Field(
        None,
        description="Column types that the values do not tell: number, categorical, code (one code per level, for "
        "family categorical), date, drop, or a list of ordered levels.",
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
        None, description="Count n-grams of a column of texts or tokens; they are the only features then."
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
        key, wanted = ("bytes", (self.bytes,)) if self.ngrams is None else ("ngrams", self.ngrams.columns)
        taken: dict[str, Collection[str]] = {
            "target": (self.target,), "where": self.where, "test": self.test, "drop": self.drop,
            **{role: (name,) for role, name in self.sample_columns.items()},
        }  # fmt: skip
        for column, (other, columns) in product(wanted, taken.items()):
            if column in columns:
                yield f"column {column!r} of {key!r} is in {other!r} as well; name it in one of them"
        for key, column in self.sample_columns.items():
            if column == self.target:
                yield f"column {column!r} of {key!r} is the target; name another one, or leave {key!r} out"
        if self.groups is not None and self.time is not None:
            yield ("'groups' and 'time' exclude each other, as a group may reach over blocks of time; leave one out")
        if self.time is not None and self.test:
            yield "with 'time' the last rows test, and 'test' names others; leave one of them out"


class FileConfig(TableConfig):
    """Files of a table, or of LIBSVM's format."""

    source: Literal["file"]
    name: str | None = Field(None, description="Name in reports, as `label`.")
    path: Name | Annotated[tuple[Name, ...], Field(min_length=1)] = Field(
        description="Parquet, CSV, Arrow, Feather or LIBSVM file, relative to `data_dir`; or a folder, a pattern such "
        "as data/*.parquet, or a list of these, with the same columns; or an .npz file of kernel matrices and a target."
    )
    in_parts: bool | None = Field(
        None, description="Read Parquet, Arrow and Feather out of core; by default from 1 GiB of numbers on."
    )

    @model_validator(mode="before")
    @classmethod
    def _matrices_of_arrays(cls, data: Any) -> Any:
        path = data.get("path") if isinstance(data, dict) else None
        if not isinstance(path, str) or not path.lower().endswith(ARRAYS[0]) or data.get("kernels"):
            return data
        return {**data, "kernels": [{"family": "precomputed", "path": path}]}


class OpenmlConfig(TableConfig):
    """An OpenML data set, which is downloaded once and cached."""

    source: Literal["openml"]
    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.(),+-]*$", description="Name of the set, as OpenML writes it.")
    version: int = Field(ge=1, description="The version of the set of that name.")


SOURCES: dict[str, type[DatasetConfig]] = {
    "sklearn": SklearnConfig,
    "file": FileConfig,
    "synthetic": SyntheticConfig,
    "openml": OpenmlConfig,
}


def _from_text(data: Any) -> Any:
    """Return the keys that a name, or a path, alone sets."""
    if isinstance(data, dict) and data.get("source") is None:
        raise ValueError(f"needs 'source', one of: {', '.join(SOURCES)}")
    if isinstance(data, dict | DatasetConfig):
        return data
    if not isinstance(data, str):
        raise ValueError(f"must be a mapping, with 'source' and the keys of that source; got {short(data)}")
    sets = {"sklearn": get_args(SklearnName), "synthetic": get_args(SyntheticName)}
    for source, names in sets.items():
        if data in names:
            return {"source": source, "name": data}
    if ending_of(data) in (*ENDINGS, ARRAYS[0]) or data.endswith("/") or "*" in data:
        return {"source": "file", "path": data}
    known = [name for of in sets.values() for name in of]
    raise ValueError(
        f"got {short(data)}; {did_you_mean(data, known)}give the name of a set ({', '.join(known)}), a file "
        f"({', '.join(ENDINGS)}), or a mapping such as {{source: openml, name: kin8nm, version: 1}}"
    )


AnyDataset = Annotated[
    SklearnConfig | FileConfig | SyntheticConfig | OpenmlConfig,
    Field(discriminator="source"),
    BeforeValidator(_from_text),
]
"""A data set of some source."""

_DATASET: TypeAdapter[DatasetConfig] = TypeAdapter(AnyDataset)


def each_target(given: Any) -> Any:
    """Return data sets, or one of them, as a list, in which one of several targets is a data set for each of them."""
    several_given = several(given)
    return [one for of in several_given for one in _each(of)] if isinstance(several_given, list) else given


def _each(given: Any) -> list[Any]:
    """Return a data set as it is given, or one for each of several targets, named after it, without the others."""
    target = given.get("target") if isinstance(given, dict) else None
    if not isinstance(target, list | tuple):
        return [given]
    if not target or not all(isinstance(one, str) and one for one in target) or len(set(target)) < len(target):
        raise ValueError(f"'target' must be a column, or a list of different ones, got {short(list(target))}")
    if len(target) == 1:
        return [{**given, "target": target[0]}]
    if given.get("source") not in ("file", "openml"):
        raise ValueError(f"several targets go with sources 'file' and 'openml', got {short(given.get('source'))}")
    label = DatasetConfig.of({**given, "target": target[0]}).label
    plain = {key: value for key, value in given.items() if key not in ("label", "title")}
    dropped = several(given.get("drop") or [])
    return [
        {**plain, "target": one, "label": f"{label} {one}", "drop": [*dropped, *(t for t in target if t != one)]}
        for one in target
    ]
