"""Data sets: where they lie, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from learnkernels.conf.errors import did_you_mean, short
from learnkernels.conf.files import ENDINGS, WILDCARD
from learnkernels.conf.schema.base import Parameter, Positive, Strict, as_text, several

SklearnName = Literal["breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine"]
SyntheticName = Literal["three_sines", "relevance", "friedman"]


def _as_plain_text(value: Any) -> Any:
    """Return a number as the text that a column of numbers is compared by: 5.0 as 5."""
    return as_text(int(value) if isinstance(value, float) and value.is_integer() else value)


def name_of_files(paths: Sequence[str]) -> str:
    """Return what files are called by default: the first one's name without its ending, a pattern's without the rest.

    A pattern that begins a name stands for the folder around it.
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
                f"'counts' is a column beside the only column of tokens, got {short(self.counts)} beside "
                f"{', '.join(self.column)}; leave it out, or name one 'column'"
            )
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return self.column if self.counts is None else (*self.column, self.counts)


ColumnKind = Literal["number", "categorical", "code", "date", "drop"]
"""What a column of a table can be said to be."""


class DatasetConfig(Strict):
    """One data set: where it lies and how it is read."""

    later = ("test", "features", "groups", "time", "weights", "class_weight", "columns", "scale_on", "in_parts")

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
    path: Name | Annotated[tuple[Name, ...], Field(min_length=1)] | None = Field(
        None,
        description="Parquet, CSV, Arrow/Feather or LIBSVM file; relative to `data_dir`. For `file` only. A folder, a "
        "pattern such as data/*.parquet, or a list of these stands for several files of the same columns, one after "
        "the other: those of a folder or pattern by name.",
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
        description="Column to predict; of several, [sales, returns], each gets a data set of its own, named after it, "
        "in which the others are no features. A LIBSVM file, the sklearn and the synthetic sets have their own; a set "
        "of OpenML has one by default.",
    )
    positive: Annotated[str | Names | None, BeforeValidator(_one_or_several_texts)] = Field(
        None,
        description="Value of the target, or list of values, that becomes +1 while all others become -1: one class "
        "against the rest, odd digits against even ones, or labels used as numbers in a regression.",
    )
    drop: Annotated[tuple[str, ...], BeforeValidator(several)] = Field((), description="Columns that are not features.")
    features: Annotated[tuple[str, ...], BeforeValidator(several)] = Field(
        (), description="The only columns that are features; all others by default."
    )
    columns: dict[str, ColumnKind | tuple[str, ...]] | None = Field(
        None,
        description="For tables. What a column is, where its values do not tell: number, categorical, code (a category "
        "of which only a code becomes a feature, for kernels of family categorical), date, drop, or a list of ordered "
        "levels, the lowest first.",
    )
    where: dict[str, Values] = Field(
        default_factory=dict,
        description="Column to its value, or to a list of values: rows with another value are left out. Compared as "
        "text. These columns are no features.",
    )
    test: dict[str, Values] = Field(
        default_factory=dict,
        description="For `file` and `openml`. Column to its value, or to a list of values, as in `where`: rows that "
        "have them test and do nothing else; `protocol.split` draws the others among the rest. These columns are no "
        "features.",
    )
    groups: Name | None = Field(
        None,
        description="For `file` and `openml`. Column of groups, such as patients or sites, no feature: the rows of a "
        "group are never divided between training, validation and test. Splits are then as near to the rows asked for "
        "as whole groups allow.",
    )
    time: Name | None = Field(
        None,
        description="For `file` and `openml`. Column of numbers or dates, no feature: folds are consecutive blocks of "
        "time, and with k of them there are k - 2 trials, in which earlier blocks train, the next one validates and "
        "the one after tests. Of a split the last rows test, those before validate, those before train.",
    )
    weights: Name | None = Field(
        None,
        description="For `file` and `openml`. Column of numbers that are not negative, no feature: a row of weight w "
        "counts as w rows where kernels and predictors are learned and where errors are measured. Rows of weight zero "
        "are left out. For learners of alignments and rfm.",
    )
    class_weight: Literal["balanced"] | dict[Annotated[str, BeforeValidator(_as_plain_text)], Positive] | None = Field(
        None,
        description="For classes. What the rows of each count where kernels and predictors are learned, times their "
        "weights, and not where errors are measured: by class, those not named 1, or balanced, inversely to how "
        "frequent a class is. For learners of alignments and rfm.",
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
    missing: Literal["impute", "refuse", "drop"] = Field(
        "impute",
        description="impute fills a gap with the column's median, of a category with a level of its own, and adds a "
        "feature that says where; drop leaves such rows out; refuse says how many there are.",
    )
    scale: Literal["none", "unit", "max", "standard", "quantile"] = Field(
        "none",
        description="none: raw features. unit: each feature to [0, 1]. max: each over its largest size, so that zeros "
        "stay. standard: each to mean 0 and deviation 1. "
        "quantile: each to a normal distribution by rank. Uses the features of the rows of `scale_on`, never the "
        "target.",
    )
    scale_on: Literal["all", "training"] = Field(
        "all",
        description="Which rows scales, medians for gaps and units of categories are learned on: all, once, so that "
        "one pass serves all folds; or the training rows of each trial, in a pass a trial.",
    )
    subsample: int | None = Field(None, ge=10, description="Use that many rows, drawn at random with the seed.")
    in_parts: bool | None = Field(
        None,
        description="For files of Parquet, Arrow and Feather: read each part of the rows "
        "where it is needed, so that no process holds them all; by default from 1 GiB of numbers on.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        """Return the keys that a name, or a path, alone stands for."""
        if isinstance(data, dict) and data.get("source") is None:
            raise ValueError("needs 'source': sklearn, file, synthetic or openml")
        if not isinstance(data, str):
            return data
        sets = {"sklearn": SklearnName.__args__, "synthetic": SyntheticName.__args__}  # type: ignore[attr-defined]
        for source, names in sets.items():
            if data in names:
                return {"source": source, "name": data}
        if data.lower().endswith((*ENDINGS, "/")) or "*" in data:
            return {"source": "file", "path": data}
        names = [name for of in sets.values() for name in of]
        raise ValueError(
            f"got {short(data)}; {did_you_mean(data, names)}give the name of a set ({', '.join(names)}), a file "
            f"({', '.join(ENDINGS)}), or a mapping such as {{source: openml, name: kin8nm, version: 1}}"
        )

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
                raise ValueError(
                    f"source {self.source!r} needs 'name', one of: {', '.join(valid)}; got {short(self.name)}"
                )
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
            "test": ("file", "openml"),
            "features": ("file", "openml"),
            "columns": ("file", "openml"),
            "groups": ("file", "openml"),
            "time": ("file", "openml"),
            "weights": ("file", "openml"),
            "ngrams": ("file", "openml"),
            "bytes": ("file", "openml"),
            "in_parts": ("file",),
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
            for other, columns in (*taken, *((role, (name,)) for role, name in self.beside.items())):
                if column in columns:
                    raise ValueError(f"column {column!r} of {key!r} is in {other!r} as well; name it in one of them")
        return self

    @field_validator("class_weight", mode="before")
    @classmethod
    def _by_class(cls, value: Any) -> Any:
        numbers = list(value.values()) if isinstance(value, dict) else []
        if value not in (None, "balanced") and not (
            numbers and all(isinstance(one, int | float) and one > 0 for one in numbers)
        ):
            raise ValueError(
                f"must be balanced, or a number above zero by class, as in {{ill: 5, well: 1}}, got {short(value)}"
            )
        return value

    @model_validator(mode="after")
    def _divided_one_way(self) -> DatasetConfig:
        for key, column in self.beside.items():
            if column == self.target:
                raise ValueError(f"column {column!r} of {key!r} is the target; name another one, or leave {key!r} out")
        if self.class_weight is not None and self.task == "regression":
            raise ValueError("'class_weight' goes with a classification, and 'task' is regression; leave it out")
        if self.groups is not None and self.time is not None:
            raise ValueError(
                "'groups' and 'time' exclude each other, as a group may reach over blocks of time; leave one out"
            )
        if self.time is not None and self.test:
            raise ValueError("with 'time' the last rows test, and 'test' names others; leave one of them out")
        return self

    @property
    def beside(self) -> dict[str, str]:
        """The key and the column of what is known of rows beside features and target."""
        named = {"groups": self.groups, "time": self.time, "weights": self.weights}
        return {key: column for key, column in named.items() if column is not None}

    @property
    def label(self) -> str:
        """Name in reports: as given, or the set's or file's own; of a synthetic set its parameters too."""
        if self.title is not None:
            return self.title
        if self.source == "synthetic":
            settings = self.params | ({"seed": self.seed} if self.seed else {})
            return " ".join([str(self.name), *(f"{key}={value}" for key, value in settings.items())])
        return self.name or name_of_files(self.paths)

    @property
    def paths(self) -> tuple[str, ...]:
        """What `path` names: files, folders and patterns."""
        return (self.path,) if isinstance(self.path, str) else self.path or ()


def each_target(given: Any) -> list[Any]:
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
    label = DatasetConfig.model_validate({**given, "target": target[0]}).label
    plain = {key: value for key, value in given.items() if key not in ("label", "title")}
    dropped = several(given.get("drop") or [])
    return [
        {**plain, "target": one, "label": f"{label} {one}", "drop": [*dropped, *(t for t in target if t != one)]}
        for one in target
    ]
