"""Items of the papers: published numbers and claims, and the study."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BeforeValidator, Discriminator, Field, TypeAdapter

from learnkernels.conf import schema
from learnkernels.conf.errors import InputError, did_you_mean
from learnkernels.conf.loading import Loader, read_yaml, set_key, validated
from learnkernels.conf.schema.base import (
    Parameter,
    Positive,
    as_mapping,
    by_default,
    several,
)
from learnkernels.conf.schema.datasets import AnyDataset

PAPERS = Path(__file__).parents[1] / "conf" / "papers"

CATALOGUE = "datasets.yaml"


class Catalogue(schema.Strict):
    """Data sets of the papers, each with keys for a file, for OpenML, or both."""

    data_dir: str = Field(
        description="Folder of the files; relative to the working directory."
    )
    sets: dict[str, dict[Literal["file", "openml"], dict[str, Any]]] = Field(
        description="Name -> keys of the data set: for the file, and for the data set on OpenML if there is one."
    )

    def dataset(self, entry: Any, openml: bool) -> Any:
        """Replace an entry ``{use: NAME, ...}`` by the catalogue's keys of that data set.

        Keys of the entry override the catalogue.
        """
        if not isinstance(entry, dict) or "use" not in entry:
            return entry
        name = str(entry["use"])
        if name not in self.sets:
            raise InputError(
                f"there is no data set {name!r} in the catalogue; {did_you_mean(name, self.sets)}known: "
                f"{', '.join(self.sets)}."
            )
        file_keys = self.sets[name].get("file", {})
        keys = file_keys
        if openml:
            keys = self.sets[name].get("openml", file_keys)
        if openml and keys.get("source") == "file":
            raise NotOnOpenML(
                f"data set {name} is not on OpenML; give the folder that has {file_keys.get('path')} as --data-dir."
            )
        overrides = {key: value for key, value in entry.items() if key != "use"}
        # In a data set, `name` is its name at the source
        if "name" in overrides:
            overrides = {"label": overrides.pop("name"), **overrides}
        return merged({"label": name, **keys}, overrides)


class NotOnOpenML(InputError):
    pass


def load_catalogue(folder: Path = PAPERS) -> Catalogue:
    path = folder / CATALOGUE
    return validated(Catalogue.model_validate, read_item(path), path)


def data_folder(data_dir: str | None, folder: Path = PAPERS) -> str | None:
    """Return the folder of data sets: `data_dir`, else the catalogue's; None if missing."""
    if data_dir is not None:
        if not Path(data_dir).is_dir():
            raise InputError(
                f"--data-dir {data_dir}: there is no such folder (seen from {Path.cwd()})."
            )
        return data_dir
    default = load_catalogue(folder).data_dir
    if Path(default).is_dir():
        return default
    return None


class _Loader(Loader):
    """YAML loader with only the Booleans true and false."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag != "tag:yaml.org,2002:bool" or first in "tTfF"
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_item(path: Path) -> dict[str, Any]:
    return read_yaml(path, "keys and values,", loader=_Loader)


def merged(shared: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the nested mapping `shared`, updated by `overrides`."""
    result = dict(shared)
    for key, value in overrides.items():
        shared_value = result.get(key)
        if isinstance(shared_value, dict) and isinstance(value, dict):
            result[key] = merged(shared_value, value)
        else:
            result[key] = value
    return result


# Studies


class TwoPointStudy(schema.Strict):
    """Study of alignment on a distribution of two points: JMLR 2012, Figure 1."""

    kind: Literal["two-point"]
    points: int = Field(
        99,
        ge=3,
        le=10_000,
        description="Number of shares alpha of the first point, equidistant inside (0, 1).",
    )


class BaseKernelsPart(schema.Strict):
    """Data sets, and base kernels to evaluate one by one on them."""

    datasets: tuple[AnyDataset, ...] = Field(min_length=1, description="Data sets.")
    kernels: tuple[schema.FamilyConfig, ...] = Field(
        min_length=1, description="The families of base kernels."
    )


class BaseKernelsStudy(schema.Strict):
    """Study of accuracy against alignment of base kernels: JMLR 2012, Table 1, Figure 2."""

    kind: Literal["base-kernels"]
    protocol: schema.ProtocolConfig = by_default(
        schema.ProtocolConfig, "Protocol of the accuracy."
    )
    parts: tuple[BaseKernelsPart, ...] = Field(
        min_length=1, description="Data sets, each part with its own base kernels."
    )

    def _complaints(self) -> Iterator[str]:
        if self.protocol.folds is None:
            yield "the base kernels are measured by cross-validation; give 'folds' in place of a split"


class SurfaceStudy(schema.Strict):
    """Study of the convexity of learner `nkrr`'s objective: NIPS 2009, Figure 1."""

    kind: Literal["surface"]
    datasets: tuple[AnyDataset, ...] = Field(
        min_length=1, max_length=1, description="The data set."
    )
    columns: tuple[str, ...] = Field(
        min_length=2,
        max_length=2,
        description="The two features, each a rank-one kernel; they are centered.",
    )
    ridges: tuple[Positive, ...] = Field(
        (1.0, 10.0, 100.0),
        min_length=1,
        description="Values of lambda, one panel each.",
    )
    upper: Positive = Field(10.0, description="Largest value of both weights.")
    points: int = Field(
        41, ge=3, le=401, description="Points of the grid along each weight."
    )


class LocalMinimaStudy(schema.Strict):
    """Study of local minima of learner `ca`'s objective: AFK 2013, Figure 3."""

    kind: Literal["local-minima"]
    datasets: tuple[AnyDataset, ...] = Field(
        min_length=1, description="Data sets, one panel each."
    )
    rows: int = Field(300, ge=10, le=5000, description="Rows drawn from each data set.")
    draws: int = Field(2, ge=1, le=100, description="Number of draws.")
    steps: int = Field(
        4, ge=1, le=50, description="Steps of the algorithm, one objective each."
    )
    points: int = Field(
        200,
        ge=3,
        le=10_000,
        description="Number of bandwidths at which the objective is evaluated.",
    )
    seed: int = Field(0, ge=0, description="Random seed of the draws.")


class ComparisonStudy(schema.Strict):
    """Comparison of learners on data sets, in parts with own and shared settings."""

    kind: Literal["comparison"]
    shared: dict[str, Any] = Field(
        default_factory=dict, description="Keys of a comparison that all parts share."
    )
    parts: tuple[dict[str, Any], ...] = Field(
        min_length=1, description="Keys of each part, which override the shared ones."
    )


StudyConfig = Annotated[
    ComparisonStudy
    | TwoPointStudy
    | BaseKernelsStudy
    | SurfaceStudy
    | LocalMinimaStudy,
    Discriminator("kind"),
]

STUDY: TypeAdapter[dict[str, StudyConfig]] = TypeAdapter(dict[str, StudyConfig])


# Items


Paper = Literal["JMLR 2012", "ICML 2010", "NIPS 2009", "UAI 2009", "AFK 2013"]
Measure = Literal["error", "alignment", "test_alignment", "seconds", "rank"]
Printed = Annotated[list[Parameter], Field(min_length=1, max_length=2)]
"""Mean and optional standard deviation of a published number."""

Titles = Annotated[tuple[str, ...], BeforeValidator(several)]

Expected = Literal["significant", "direction", "none", "alike"]


class CellConfig(schema.Strict):
    """Published numbers of a table cell, or intervals in which measured numbers must be."""

    dataset: str | None = Field(
        None, description="The data set; left out for a rank over all data sets."
    )
    learner: str | None = Field(None, description="Title of the learner.")
    also: Titles = Field(
        (),
        description="Titles of further learners for which the paper prints this number once.",
    )
    name: str | None = Field(
        None, description="Instead of both: the name of a number of a special study."
    )
    error: Printed | None = Field(
        None,
        description="Mean and standard deviation of the test error: a rate or an RMSE.",
    )
    alignment: Printed | None = Field(
        None,
        description="Mean and standard deviation of the alignment on the training rows.",
    )
    test_alignment: Printed | None = Field(
        None,
        description="Mean and standard deviation of the alignment on the test rows.",
    )
    rank: Printed | None = Field(
        None, description="Median rank by mean error over the data sets."
    )
    value: Printed | None = Field(None, description="The number of that name.")

    def _complaints(self) -> Iterator[str]:
        if (self.value is None) != (self.name is None):
            yield "a cell needs 'name' and 'value' together, the name of a number of the study"
        if not self.measures():
            yield "a cell needs one of: error, alignment, test_alignment, rank, value"
        if self.name is None and (
            self.learner is None or (self.dataset is None and self.rank is None)
        ):
            yield "a cell needs 'dataset' and 'learner', a rank 'learner' alone"

    @property
    def learners(self) -> tuple[str | None, ...]:
        return (self.learner, *self.also)

    def measures(self) -> dict[str, list[float]]:
        """Return a table cell's published numbers by measure, such as ``error``."""
        measures = {name: getattr(self, name, None) for name in get_args(Measure)}
        if self.name is not None:
            measures[self.name] = self.value
        return {
            name: numbers for name, numbers in measures.items() if numbers is not None
        }


class ClaimConfig(schema.Strict):
    """Check of a paper's claim; checks with equal text are one claim."""

    says: str = Field(description="The claim, as one sentence.")
    better: Titles = Field(
        (), description="Titles of the better learners; each is a check."
    )
    than: Titles = Field(
        (),
        description="Titles of the learners they are compared with; each is a check.",
    )
    on: tuple[str, ...] = Field(
        (), description="Data sets, or panels of a figure; all by default."
    )
    measure: Measure = Field(
        "error",
        description="Measure that is compared. Higher alignments are better; of other measures, lower values.",
    )
    expected: Expected = Field(
        "significant",
        description="none: the first learner is not significantly better. alike: neither of the two is.",
    )
    identity: bool = Field(
        False,
        description="Whether it holds by construction: it is no evidence and listed separately.",
    )
    across: bool = Field(
        False,
        description="Whether one signed-rank test over data sets replaces the t-test on each.",
    )
    value: str | None = Field(None, description="Name of a number of a special study.")
    above: float | str | None = Field(
        None, description="Lower bound of that number: a number or the name of one."
    )
    below: float | str | None = Field(None, description="Upper bound of that number.")

    def _complaints(self) -> Iterator[str]:
        has_bound = self.above is not None or self.below is not None
        if self.value is None:
            if not self.better or not self.than or has_bound:
                yield "a claim needs 'better' and 'than', or 'value' with 'above' or 'below'"
        elif self.better or self.than or not has_bound:
            yield "a claim on a 'value' needs 'above' or 'below', and neither 'better' nor 'than'"

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of learners to compare, the better one first."""
        pairs: list[tuple[str, str]] = []
        for better, than in itertools.product(self.better, self.than):
            is_reversed = self.expected == "alike" and (than, better) in pairs
            if better != than and not is_reversed:
                pairs.append((better, than))
        return pairs


class FigureConfig(schema.Strict):
    """Configuration of a figure next to the reproduced table."""

    kind: Literal["scatter", "curves", "weights", "ranks", "none"] = Field(
        "scatter",
        description="scatter: alignment against error. curves: error along the last word of the data sets' names. "
        "weights: shares of the base kernels, learner against learner. ranks: errors, a row per data set.",
    )
    x: str | None = Field(
        None,
        description="For curves: label of the axis of the last word of data set names.",
    )
    log: bool = Field(
        False, description="For curves: whether this axis is logarithmic."
    )
    learners: tuple[str, ...] = Field(
        (), description="For weights: learners that are compared."
    )


class ChangeConfig(schema.Strict):
    """Changes to a study's configuration: data sets, learners and other keys."""

    datasets: tuple[str, ...] | None = Field(
        None, description="Data sets to keep; all by default."
    )
    learners: tuple[str, ...] | None = Field(
        None, description="Titles of the learners to keep; all by default."
    )
    set: dict[str, Any] = Field(
        default_factory=dict,
        description="Dotted keys of the study that change, such as shared.protocol.repeats.",
    )

    def applied_to(self, study: dict[str, Any], where: str) -> dict[str, Any]:
        """Return a study's changed configuration, without empty parts."""
        study = copy.deepcopy(study)
        for key, value in self.set.items():
            set_key(study, key, value, f"{where}.set: {key}")
        if "parts" not in study:
            return study
        shared = study.get("shared", {})
        parts = []
        for part in study["parts"]:
            reduced_part = self._reduced(part, shared)
            if study["kind"] == "comparison" and self._drops_baseline():
                reduced_part["baseline"] = None
            if [] not in reduced_part.values():
                parts.append(reduced_part)
        return {**study, "parts": parts}

    def _reduced(self, part: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
        reduced_part = dict(part)
        for key, titles in (("datasets", self.datasets), ("learners", self.learners)):
            entries = part.get(key, shared.get(key))
            if titles is not None and entries is not None:
                reduced_part[key] = [
                    entry for entry in entries if _title(entry) in titles
                ]
        return reduced_part

    def _drops_baseline(self) -> bool:
        return (
            self.learners is not None and schema.GRID_SEARCH_TITLE not in self.learners
        )


def _title(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    for key in ("label", "name", "use"):
        if key in entry:
            return entry[key]
    return None


class QuickConfig(ChangeConfig):
    """Changes for a quick run of a study, and expected intervals of its numbers."""

    checks: tuple[CellConfig, ...] = Field(
        default=(), description="Expected intervals of numbers."
    )

    def _complaints(self) -> Iterator[str]:
        for check in self.checks:
            for name, interval in check.measures().items():
                if len(interval) != 2 or interval[0] > interval[1]:
                    yield f"{name} must be [low, high], got {interval}"


class ReadingConfig(ChangeConfig):
    """Changes to a study for another interpretation of the paper's setup."""

    says: str = Field(description="The difference, as one sentence.")


ReadingName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,29}$")]


class PaperItem(schema.Strict):
    """Table or figure of a paper: published numbers, claims and study."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$",
        description="Name of the file without extension.",
    )
    paper: Paper = Field(description="The paper.")
    where: str = Field(description="The table, figure or section.")
    title: str = Field(description="Contents of the table or figure.")
    setup: str = Field(description="Setup according to the paper.")
    choices: tuple[str, ...] = Field(
        (), description="Choices made where the paper is silent."
    )
    study: dict[str, Any] = Field(description="Computations.")
    figure: Annotated[FigureConfig, BeforeValidator(partial(as_mapping, "kind"))] = (
        by_default(FigureConfig, "The figure.")
    )
    printed: tuple[CellConfig, ...] = Field((), description="Published cells.")
    trials: int | None = Field(
        None,
        ge=1,
        description="Number of trials of each published mean, if it is known.",
    )
    test_rows: int | None = Field(
        None,
        ge=1,
        description="Test rows of a paper that tests once; its rates have binomial standard deviations.",
    )
    significant: dict[str, dict[str, Titles]] = Field(
        default_factory=dict,
        description="Published tests: data set -> learner -> the learners that it improves on significantly. All other "
        "pairs of learners with a published error are not significant.",
    )
    claims: tuple[ClaimConfig, ...] = Field((), description="Published claims.")
    found: tuple[float, ...] = Field(
        (),
        description="True parameters of the data, which continuous learners should find; for use in claims.",
    )
    tried: str | None = Field(
        None, description="Possible causes of claims that do not hold."
    )
    readings: dict[ReadingName, ReadingConfig] = Field(
        default_factory=dict,
        description="Other readings of the setup, run as ITEM.READING.",
    )
    quick: QuickConfig | None = Field(
        None, description="Reduced form, if the item has one."
    )
    same_as: str | None = Field(
        None, description="Item that supplies study, figure, choices and quick."
    )

    @property
    def is_comparison(self) -> bool:
        return bool(self.study.get("kind") == "comparison")

    def as_reading(self, name: str) -> PaperItem:
        """Return the table or figure with another interpretation of the paper's setup."""
        if name not in self.readings:
            hint = did_you_mean(name, self.readings)
            readings = ", ".join(self.readings) or "none"
            raise InputError(
                f"{self.name} has no reading {name!r}; {hint}it has {readings}."
            )
        reading = self.readings[name]
        changes = {
            "name": f"{self.name}.{name}",
            "same_as": self.name,
            "setup": f"Another reading of {self.name}: {reading.says}",
            "study": reading.applied_to(self.study, f"{self.name}: readings.{name}"),
            "choices": (),
            "tried": None,
            "quick": None,
            "readings": {},
        }
        return self.model_copy(update=changes)

    def tracking(self, quick: bool) -> schema.TrackingConfig:
        experiment = f"papers: {self.paper}"
        if quick:
            experiment += " (quick)"
        return schema.TrackingConfig(
            experiment=experiment, tags={"paper": self.paper, "item": self.name}
        )

    def comparisons(
        self, data_dir: str | None, quick: bool, folder: Path = PAPERS
    ) -> list[schema.CompareConfig]:
        """Return the configurations of the study's comparisons of learners.

        Without `data_dir`, data sets come from OpenML.
        """
        study = self.study_config(data_dir, quick, folder)
        if not isinstance(study, ComparisonStudy):
            return []
        fixed = {
            "name": self.name,
            "data_dir": data_dir or ".",
            "tracking": self.tracking(quick).model_dump(),
        }
        configs = []
        for i, part in enumerate(study.parts):
            data = merged(study.shared, part) | fixed
            if isinstance(data.get("baseline"), dict):
                # No table of a paper has these baselines
                data["baseline"] = {
                    "without": ("constant", "linear"),
                    **data["baseline"],
                }
            configs.append(
                validated(
                    schema.CompareConfig.model_validate,
                    data,
                    f"{self.name}: study.parts.{i}",
                )
            )
        return configs

    def study_config(
        self, data_dir: str | None, quick: bool, folder: Path = PAPERS
    ) -> StudyConfig:
        """Return the study's configuration with its data sets filled in."""
        study = copy.deepcopy(self.study)
        if quick:
            if self.quick is None:
                raise InputError(
                    f"{self.name}: has no reduced form; leave --quick out."
                )
            study = self.quick.applied_to(study, f"{self.name}: quick")
            if study.get("parts") == []:
                raise InputError(
                    f"{self.name}: quick keeps no data set or no learner; correct its names."
                )
        try:
            _fill_in_datasets(study, load_catalogue(folder), openml=data_dir is None)
        except InputError as error:
            raise type(error)(f"{self.name}: {error}") from None
        return validated(STUDY.validate_python, {"study": study}, self.name)["study"]


def _fill_in_datasets(
    study: dict[str, Any], catalogue: Catalogue, openml: bool
) -> None:
    holders = [study, study.get("shared")]
    if isinstance(study.get("parts"), list):
        holders += study["parts"]
    for holder in holders:
        if isinstance(holder, dict) and isinstance(holder.get("datasets"), list):
            holder["datasets"] = [
                catalogue.dataset(entry, openml) for entry in holder["datasets"]
            ]


def panel_and_place(dataset: str) -> tuple[str, float | None]:
    """Split a data set name such as ``kitchen 1000`` into words and a number."""
    first_words, _, last_word = dataset.rpartition(" ")
    if not first_words:
        return dataset, None
    try:
        return first_words, float(last_word)
    except ValueError:
        return dataset, None


# Reading


def item_names(folder: Path = PAPERS) -> list[str]:
    """Return the names of all tables and figures, in the order of the papers."""
    if not folder.is_dir():
        raise InputError(
            f"{folder}: there is no such folder of items (seen from {Path.cwd()})."
        )
    papers = [paper.replace(" ", "").lower() for paper in get_args(Paper)]

    def place(name: str) -> tuple[int, str]:
        paper = name.partition("-")[0]
        if paper not in papers:
            return len(papers), name
        return papers.index(paper), name

    return sorted(
        (path.stem for path in folder.glob("*.yaml") if path.name != CATALOGUE),
        key=place,
    )


def choose_items(
    names: Sequence[str], folder: Path = PAPERS, quick: bool = False
) -> list[PaperItem]:
    """Return the named tables and figures, or all; other interpretations come last.

    `quick` leaves out items without a reduced form.
    """
    all_names = item_names(folder)
    readings = [
        name
        for name in names
        if name not in all_names and name.rpartition(".")[0] in all_names
    ]
    for name in names:
        _require_known(name, [*all_names, *readings])
    items = [load_item(name, folder) for name in all_names]
    if names:
        items = [item for item in items if item.name in names]
    for name in readings:
        item_name, _, reading = name.rpartition(".")
        items.append(load_item(item_name, folder).as_reading(reading))
    if not quick:
        return items
    if names:
        for item in items:
            if item.quick is None:
                raise InputError(f"{item.name} has no reduced form; leave --quick out.")
    return [item for item in items if item.quick is not None]


def _require_known(name: str, all_names: Sequence[str]) -> None:
    if name not in all_names:
        hint = did_you_mean(name, all_names)
        raise InputError(
            f"there is no item {name!r}; {hint}learnkernels papers --list shows them all."
        )


def load_item(name: str, folder: Path = PAPERS) -> PaperItem:
    """Return a table or figure from its YAML file; check it without its data."""
    _require_known(name, item_names(folder))
    path = folder / f"{name}.yaml"
    data = _with_inherited_keys(read_item(path), name, folder)
    item = validated(PaperItem.model_validate, data, path)
    if item.name != name:
        raise InputError(
            f"{path}: name must be that of the file, {name!r}, got {item.name!r}."
        )
    parts = item.comparisons(".", False, folder)
    for reading in item.readings:
        item.as_reading(reading).comparisons(".", False, folder)
    if item.quick is not None:
        item.comparisons(".", True, folder)
    _require_distinct(parts, path)
    if parts:
        _require_titles(item, parts, path)
    return item


def _with_inherited_keys(
    data: dict[str, Any], name: str, folder: Path
) -> dict[str, Any]:
    origin_name = data.get("same_as")
    if origin_name is None:
        return data
    _require_known(str(origin_name), item_names(folder))
    origin = read_item(folder / f"{origin_name}.yaml")
    if origin_name == name or "same_as" in origin:
        path = folder / f"{name}.yaml"
        raise InputError(
            f"{path}: same_as must name an item without same_as, got {origin_name!r}."
        )
    inherited: dict[str, Any] = {
        key: origin[key]
        for key in ("study", "figure", "choices", "quick")
        if key in origin
    }
    return {**inherited, **data}


def _require_distinct(parts: Sequence[schema.CompareConfig], path: Path) -> None:
    """Reject equal learners on equal data sets in two parts."""
    seen: set[tuple[str, str]] = set()
    for part in parts:
        titles = [learner.title for learner in part.learners]
        if part.baseline:
            titles.append(schema.GRID_SEARCH_TITLE)
        for dataset, title in itertools.product(part.datasets, titles):
            if (dataset.label, title) in seen:
                raise InputError(
                    f"{path}: study.parts: {title} on {dataset.label} is in two parts; give one a 'label'."
                )
            seen.add((dataset.label, title))


def _require_titles(
    item: PaperItem, parts: Sequence[schema.CompareConfig], path: Path
) -> None:
    learners = {schema.GRID_SEARCH_TITLE}
    datasets: set[str] = set()
    for part in parts:
        learners.update(learner.title for learner in part.learners)
        datasets.update(dataset.label for dataset in part.datasets)
    datasets_and_panels = datasets | {
        panel_and_place(dataset)[0] for dataset in datasets
    }

    def require(
        names: Sequence[str | None] | None, valid_names: set[str], where: str
    ) -> None:
        for name in names or ():
            if name is not None and name not in valid_names:
                listed = sorted(valid_names)
                hint = did_you_mean(name, listed)
                raise InputError(
                    f"{path}: {where}: {name!r} is not in the study; {hint}it has {', '.join(listed)}."
                )

    cells = {f"printed.{i}": cell for i, cell in enumerate(item.printed)}
    if item.quick:
        cells |= {
            f"quick.checks.{i}": check for i, check in enumerate(item.quick.checks)
        }
    for place, cell in cells.items():
        require(cell.learners, learners, f"{place}.learner")
        require([cell.dataset], datasets, f"{place}.dataset")
    for i, claim in enumerate(item.claims):
        if claim.value is None:
            require(claim.better, learners, f"claims.{i}.better")
            require(claim.than, learners, f"claims.{i}.than")
            require(claim.on, datasets_and_panels, f"claims.{i}.on")
    require([*item.significant], datasets, "significant")
    for dataset, worse in item.significant.items():
        require(
            [*worse, *itertools.chain(*worse.values())],
            learners,
            f"significant.{dataset}",
        )
    require(item.figure.learners, learners, "figure.learners")
    if item.quick:
        require(item.quick.learners, learners, "quick.learners")
        require(item.quick.datasets, datasets, "quick.datasets")
