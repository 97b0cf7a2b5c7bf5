"""The items of the papers, a YAML file each: what a paper prints and says, and how to reproduce it."""

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
from learnkernels.conf.schema.base import Parameter, Positive, as_mapping, by_default, several
from learnkernels.conf.schema.datasets import AnyDataset

PAPERS = Path(__file__).parents[1] / "conf" / "papers"
"""Where the items lie."""

CATALOGUE = "datasets.yaml"


class Catalogue(schema.Strict):
    """The data sets of the papers: as files, and on OpenML where it has them."""

    data_dir: str = Field(description="Folder of the files; relative to the working directory.")
    sets: dict[str, dict[Literal["file", "openml"], dict[str, Any]]] = Field(
        description="Name -> keys of the data set where it is read from a file, and where it is fetched from OpenML."
    )

    def dataset(self, entry: Any, openml: bool) -> Any:
        """Return the keys of a data set for an entry ``{use: NAME, ...}``, whose other keys go first; others as given.

        Raises
        ------
        InputError
            There is no such set in the catalogue, or none of it on OpenML.
        """
        if not isinstance(entry, dict) or "use" not in entry:
            return entry
        name = str(entry["use"])
        if name not in self.sets:
            raise InputError(
                f"there is no data set {name!r} in the catalogue; {did_you_mean(name, self.sets)}known: "
                f"{', '.join(self.sets)}."
            )
        file = self.sets[name].get("file", {})
        keys = self.sets[name].get("openml", file) if openml else file
        if openml and keys.get("source") == "file":
            raise NotOnOpenML(
                f"data set {name} is not on OpenML; give the folder that has {file.get('path')} as --data-dir."
            )
        given = {key: value for key, value in entry.items() if key != "use"}
        if "name" in given:
            given = {"label": given.pop("name"), **given}  # `name` is that of the source
        return merged({"label": name, **keys}, given)


class NotOnOpenML(InputError):
    """A data set is needed from OpenML, which has not got it."""


def load_catalogue(folder: Path = PAPERS) -> Catalogue:
    """Return the catalogue of a folder of items.

    Raises
    ------
    InputError
        The file cannot be read, or the schema refuses it.
    """
    path = folder / CATALOGUE
    return validated(Catalogue.model_validate, read_item(path), path)


def data_folder(given: str | None, folder: Path = PAPERS) -> str | None:
    """Return the folder of the data files: the given one, that of the catalogue, or None where that does not exist.

    Raises
    ------
    InputError
        The given folder does not exist.
    """
    if given is not None and not Path(given).is_dir():
        raise InputError(f"--data-dir {given}: there is no such folder (seen from {Path.cwd()}).")
    usual = given or load_catalogue(folder).data_dir
    return usual if Path(usual).is_dir() else None


class _Loader(Loader):
    """YAML in which `on` is a word, and true and false alone are Booleans."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, words) for tag, words in resolvers if tag != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_item(path: Path) -> dict[str, Any]:
    """Return what a YAML file of items or of their data sets holds."""
    return read_yaml(path, "keys and values,", loader=_Loader)


def merged(shared: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return shared keys under those of a part, also within mappings."""
    whole = dict(shared)
    for key, value in part.items():
        below = whole.get(key)
        whole[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return whole


# Studies -------------------------------------------------------------------------------------------------------------


class TwoPointStudy(schema.Strict):
    """Alignment with and without centering, where the labels are two points: JMLR 2012, Figure 1."""

    kind: Literal["two-point"]
    points: int = Field(99, ge=3, le=10_000, description="Shares alpha of the first point, equidistant inside (0, 1).")


class BaseKernelsPart(schema.Strict):
    """Data sets, and the base kernels that are measured one by one on them."""

    datasets: tuple[AnyDataset, ...] = Field(min_length=1, description="What to learn from.")
    kernels: tuple[schema.FamilyConfig, ...] = Field(min_length=1, description="The families of base kernels.")


class BaseKernelsStudy(schema.Strict):
    """How alignment and accuracy of base kernels, each alone, go together: JMLR 2012, Table 1 and Figure 2."""

    kind: Literal["base-kernels"]
    protocol: schema.ProtocolConfig = by_default(schema.ProtocolConfig, "How accuracy is measured.")
    parts: tuple[BaseKernelsPart, ...] = Field(min_length=1, description="Data sets with base kernels of their own.")

    def _complaints(self) -> Iterator[str]:
        if self.protocol.folds is None:
            yield "the base kernels are measured by cross-validation; give 'folds' in place of a split"


class SurfaceStudy(schema.Strict):
    """The objective of `nkrr` of degree two over the weights of two features: NIPS 2009, Figure 1."""

    kind: Literal["surface"]
    datasets: tuple[AnyDataset, ...] = Field(min_length=1, max_length=1, description="The data set.")
    columns: tuple[str, ...] = Field(
        min_length=2, max_length=2, description="The two features, each a rank-one kernel; they are centered."
    )
    ridges: tuple[Positive, ...] = Field(
        (1.0, 10.0, 100.0), min_length=1, description="Values of lambda, a panel each."
    )
    upper: Positive = Field(10.0, description="Both weights go from zero to this.")
    points: int = Field(41, ge=3, le=401, description="Points of the grid along each weight.")


class LocalMinimaStudy(schema.Strict):
    """The objective of a step of `ca` over the bandwidth, and its local minima: AFK 2013, Figure 3."""

    kind: Literal["local-minima"]
    datasets: tuple[AnyDataset, ...] = Field(min_length=1, description="What to learn from, a panel each.")
    rows: int = Field(300, ge=10, le=5000, description="Rows that are drawn of each.")
    draws: int = Field(2, ge=1, le=100, description="How often they are drawn.")
    steps: int = Field(4, ge=1, le=50, description="Steps of the algorithm, an objective each.")
    points: int = Field(200, ge=3, le=10_000, description="Bandwidths where the objective is evaluated.")
    seed: int = Field(0, ge=0, description="Of the draws.")


class ComparisonStudy(schema.Strict):
    """Learners compared on data sets, in one or more parts with settings of their own."""

    kind: Literal["comparison"]
    shared: dict[str, Any] = Field(default_factory=dict, description="Keys of a comparison that all parts have.")
    parts: tuple[dict[str, Any], ...] = Field(min_length=1, description="Keys of each, which go before those of all.")


StudyConfig = Annotated[
    ComparisonStudy | TwoPointStudy | BaseKernelsStudy | SurfaceStudy | LocalMinimaStudy, Discriminator("kind")
]

STUDY: TypeAdapter[dict[str, StudyConfig]] = TypeAdapter(dict[str, StudyConfig])


# Items ---------------------------------------------------------------------------------------------------------------


Paper = Literal["JMLR 2012", "ICML 2010", "NIPS 2009", "UAI 2009", "AFK 2013"]
Measure = Literal["error", "alignment", "test_alignment", "seconds", "rank"]
Printed = Annotated[list[Parameter], Field(min_length=1, max_length=2)]
"""A number of a paper: its mean and, where the paper prints one, its standard deviation."""

Titles = Annotated[tuple[str, ...], BeforeValidator(several)]

NOT_OF_PAPERS = ("constant", "linear")
"""Baselines that no table of a paper has."""


class CellConfig(schema.Strict):
    """A cell of a table as the paper prints it; of a reduced form the interval that a number lies in."""

    dataset: str | None = Field(None, description="The data set; none for a rank over all of them.")
    learner: str | None = Field(None, description="Title of the learner.")
    name: str | None = Field(None, description="In place of both: the name of a number that a special study gives.")
    error: Printed | None = Field(None, description="Mean and deviation of the test error, as a share or an RMSE.")
    alignment: Printed | None = Field(None, description="Mean and deviation of the alignment on the training rows.")
    test_alignment: Printed | None = Field(None, description="The same on the test rows.")
    rank: Printed | None = Field(None, description="Median over the data sets of the rank by mean error.")
    value: Printed | None = Field(None, description="The number of that name.")

    def _complaints(self) -> Iterator[str]:
        if (self.value is None) != (self.name is None):
            yield "a cell needs 'name' and 'value' together, the name of a number of the study"
        if not self.measures():
            yield "a cell needs one of: error, alignment, test_alignment, rank, value"
        if self.name is None and (self.learner is None or (self.dataset is None and self.rank is None)):
            yield "a cell needs 'dataset' and 'learner', a rank 'learner' alone"

    def measures(self) -> dict[str, list[float]]:
        """Return the numbers, measure by measure; that of a study by its name."""
        printed = {name: getattr(self, name, None) for name in get_args(Measure)} | {str(self.name): self.value}
        return {name: value for name, value in printed.items() if value is not None}


class ClaimConfig(schema.Strict):
    """What a paper says, in a form that numbers can bear out; entries that say the same are checks of one claim."""

    says: str = Field(description="The claim, as one sentence.")
    better: Titles = Field((), description="Titles of the learners that the paper finds better, each a check.")
    than: Titles = Field((), description="Titles of those they are compared with, each a check.")
    on: tuple[str, ...] = Field((), description="Data sets, or panels of a figure; all by default.")
    measure: Measure = Field("error", description="What is compared; alignments are better when higher, others lower.")
    expected: Literal["significant", "direction", "none"] = Field(
        "significant", description="none: the paper finds no significant difference."
    )
    identity: bool = Field(False, description="It holds by construction: no evidence, so it is listed apart.")
    across: bool = Field(False, description="One signed-rank test over data sets in place of a t-test on each.")
    value: str | None = Field(None, description="Of a special study: the name of a number,")
    above: float | str | None = Field(None, description="what it lies above, a number or the name of one,")
    below: float | str | None = Field(None, description="what it lies below.")

    def _complaints(self) -> Iterator[str]:
        compared, valued = (self.better, self.than), (self.above, self.below)
        if self.value is None:
            if () in compared or valued != (None, None):
                yield "a claim needs 'better' and 'than', or 'value' with 'above' or 'below'"
        elif compared != ((), ()) or valued == (None, None):
            yield "a claim on a 'value' needs 'above' or 'below', and neither 'better' nor 'than'"

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Learners that are compared, the better one first."""
        return [(better, than) for better in self.better for than in self.than if better != than]


class FigureConfig(schema.Strict):
    """The figure next to the table."""

    kind: Literal["scatter", "curves", "weights", "ranks", "none"] = Field(
        "scatter",
        description="scatter: alignment against error. curves: error along the last word of the data sets' names. "
        "weights: shares of the base kernels, learner against learner. ranks: errors, a row per data set.",
    )
    x: str | None = Field(None, description="For curves: what the last word of a data set's name counts.")
    log: bool = Field(False, description="For curves: whether that axis is logarithmic.")
    learners: tuple[str, ...] = Field((), description="For weights: the learners that are compared.")


class ChangeConfig(schema.Strict):
    """An item with some keys of its study changed, and some of its data sets and learners."""

    datasets: tuple[str, ...] | None = Field(None, description="Data sets that are kept; all by default.")
    learners: tuple[str, ...] | None = Field(None, description="Titles of the learners that are kept; all by default.")
    set: dict[str, Any] = Field(
        default_factory=dict, description="Dotted keys of the study that change, such as shared.protocol.repeats."
    )

    def applied_to(self, study: dict[str, Any], where: str) -> dict[str, Any]:
        """Return a changed copy of a study.

        Raises
        ------
        InputError
            It changes what the study has not.
        """
        study = copy.deepcopy(study)
        for key, value in self.set.items():
            set_key(study, key, value, f"{where}.set: {key}")
        shared, parts = study.get("shared", {}), []
        for part in study.get("parts", ()):
            kept = dict(part)
            for key, titles in (("datasets", self.datasets), ("learners", self.learners)):
                if titles is not None and (key in part or key in shared):
                    kept[key] = [one for one in part.get(key, shared.get(key)) if _title(one) in titles]
            if (
                self.learners is not None
                and schema.GRID_SEARCH_TITLE not in self.learners
                and study["kind"] == "comparison"
            ):
                kept["baseline"] = None
            if [] not in kept.values():
                parts.append(kept)
        return {**study, "parts": parts} if "parts" in study else study


def _title(entry: Any) -> Any:
    """Return what a data set or a learner of a study is called in tables."""
    if isinstance(entry, dict):
        return next((entry[key] for key in ("label", "name", "use") if key in entry), None)
    return entry


class QuickConfig(ChangeConfig):
    """The reduced form of an item."""

    checks: tuple[CellConfig, ...] = Field(default=(), description="Intervals that the numbers lie in.")

    def _complaints(self) -> Iterator[str]:
        for name, interval in (of for check in self.checks for of in check.measures().items()):
            if len(interval) != 2 or interval[0] > interval[1]:
                yield f"{name} must be [low, high], got {interval}"


class ReadingConfig(ChangeConfig):
    """Another reading of what a paper leaves unsaid or says otherwise: the item with some keys of its study changed."""

    says: str = Field(description="The difference, as one sentence.")


ReadingName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,29}$")]


class PaperItem(schema.Strict):
    """A table or figure of a paper, and how it is made again."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$", description="That of the file, without ending.")
    paper: Paper = Field(description="The paper.")
    where: str = Field(description="The table, figure or section.")
    title: str = Field(description="What it shows.")
    setup: str = Field(description="What the paper says of the set-up.")
    choices: tuple[str, ...] = Field((), description="What the paper leaves unsaid, and what was chosen.")
    study: dict[str, Any] = Field(description="What is computed.")
    figure: Annotated[FigureConfig, BeforeValidator(partial(as_mapping, "kind"))] = by_default(
        FigureConfig, "The figure."
    )
    printed: tuple[CellConfig, ...] = Field((), description="The paper's cells.")
    claims: tuple[ClaimConfig, ...] = Field((), description="What the paper says of them.")
    found: tuple[float, ...] = Field(
        (), description="Parameters that continuous learners should find; claims name how far those found are apart."
    )
    tried: str | None = Field(None, description="What was tried where a claim does not hold.")
    readings: dict[ReadingName, ReadingConfig] = Field(default_factory=dict, description="What ITEM.READING runs.")
    quick: QuickConfig | None = Field(None, description="The reduced form; without it the item has none.")
    same_as: str | None = Field(None, description="The item that study, figure, choices and quick come from.")

    @property
    def is_comparison(self) -> bool:
        """Whether the item compares learners, and is no special study."""
        return bool(self.study.get("kind") == "comparison")

    def as_reading(self, name: str) -> PaperItem:
        """Return another reading as an item of its own, without a reduced form.

        Raises
        ------
        InputError
            There is no such reading, or it changes what the study has not.
        """
        if name not in self.readings:
            known = f"it has {', '.join(self.readings)}" if self.readings else "it has none"
            raise InputError(f"{self.name} has no reading {name!r}; {did_you_mean(name, self.readings)}{known}.")
        reading = self.readings[name]
        changed = {
            "name": f"{self.name}.{name}",
            "same_as": self.name,
            "setup": f"Another reading of {self.name}: {reading.says}",
            "study": reading.applied_to(self.study, f"{self.name}: readings.{name}"),
            "choices": (),
            "tried": None,
            "quick": None,
            "readings": {},
        }
        return self.model_copy(update=changed)

    def tracking(self, quick: bool) -> schema.TrackingConfig:
        """Return where MLflow keeps the runs, and their tags."""
        experiment = f"papers: {self.paper}{' (quick)' if quick else ''}"
        return schema.TrackingConfig(experiment=experiment, tags={"paper": self.paper, "item": self.name})

    def comparisons(self, data_dir: str | None, quick: bool, folder: Path = PAPERS) -> list[schema.CompareConfig]:
        """Return the comparisons of the item, one per part.

        Parameters
        ----------
        data_dir : str or None
            Folder of the data files; None takes the sets from OpenML.
        quick : bool
            Whether to return the reduced form.
        folder : Path
            Where the catalogue of data sets lies.

        Raises
        ------
        InputError
            A part is no comparison, or OpenML has not a data set.
        """
        study = self.study_config(data_dir, quick, folder)
        if not isinstance(study, ComparisonStudy):
            return []
        own = {"name": self.name, "data_dir": data_dir or ".", "tracking": self.tracking(quick).model_dump()}
        configs = []
        for i, part in enumerate(study.parts):
            data = merged(study.shared, part) | own
            if isinstance(data.get("baseline"), dict):
                data["baseline"] = {"without": NOT_OF_PAPERS, **data["baseline"]}
            configs.append(validated(schema.CompareConfig.model_validate, data, f"{self.name}: study.parts.{i}"))
        return configs

    def study_config(self, data_dir: str | None, quick: bool, folder: Path = PAPERS) -> StudyConfig:
        """Return what is computed, with its data sets filled in; parameters and errors as `comparisons`."""
        study = copy.deepcopy(self.study)
        if quick:
            if self.quick is None:
                raise InputError(f"{self.name}: has no reduced form; leave --quick out.")
            study = self.quick.applied_to(study, f"{self.name}: quick")
            if study.get("parts") == []:
                raise InputError(f"{self.name}: quick keeps no data set or no learner; correct its names.")
        catalogue = load_catalogue(folder)
        parts = study.get("parts")
        places = [study, study.get("shared"), *(parts if isinstance(parts, list) else ())]
        try:
            for place in places:
                if isinstance(place, dict) and isinstance(place.get("datasets"), list):
                    place["datasets"] = [catalogue.dataset(entry, data_dir is None) for entry in place["datasets"]]
        except InputError as error:
            raise type(error)(f"{self.name}: {error}") from None
        return validated(STUDY.validate_python, {"study": study}, self.name)["study"]


def panel(dataset: str) -> tuple[str, float | None]:
    """Return panel and place of a data set in a figure of curves: ``kitchen 1000`` is 1000 in the panel kitchen."""
    before, _, last = dataset.rpartition(" ")
    try:
        return (before, float(last)) if before else (dataset, None)
    except ValueError:
        return dataset, None


# Reading -------------------------------------------------------------------------------------------------------------


INHERITED = ("study", "figure", "choices", "quick")
"""Keys that an item takes from the one it is the same as."""


def item_names(folder: Path = PAPERS) -> list[str]:
    """Return the names of all items in the order of the papers.

    Raises
    ------
    InputError
        There is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder of items (seen from {Path.cwd()}).")
    papers = [paper.replace(" ", "").lower() for paper in get_args(Paper)]
    names = {path.stem: path.stem.partition("-")[0] for path in folder.glob("*.yaml") if path.name != CATALOGUE}
    return sorted(names, key=lambda name: (papers.index(names[name]) if names[name] in papers else len(papers), name))


def choose_items(names: Sequence[str], folder: Path = PAPERS, quick: bool = False) -> list[PaperItem]:
    """Return the named items, or all, in the order of the papers; of the reduced forms all that there are.

    ``ITEM.READING`` names another reading of an item, which comes after the items.

    Raises
    ------
    InputError
        There is no item of that name, or none in reduced form, or `load_item` refuses one, named or not: a report has
        them all.
    """
    known = item_names(folder)
    others = [name for name in names if name not in known and name.rpartition(".")[0] in known]
    for name in names:
        _require_known(name, [*known, *others])
    all_of_them = [load_item(name, folder) for name in known]
    items = [item for item in all_of_them if not names or item.name in names]
    items += [load_item(name.rpartition(".")[0], folder).as_reading(name.rpartition(".")[2]) for name in others]
    for item in items:
        if quick and names and item.quick is None:
            raise InputError(f"{item.name} has no reduced form; leave --quick out.")
    return [item for item in items if not quick or item.quick is not None]


def _require_known(name: str, known: Sequence[str]) -> None:
    if name not in known:
        hint = did_you_mean(name, known)
        raise InputError(f"there is no item {name!r}; {hint}learnkernels papers --list shows them all.")


def load_item(name: str, folder: Path = PAPERS) -> PaperItem:
    """Return an item, checked as far as can be without its data.

    Parameters
    ----------
    name : str
        Of the file, without ``.yaml``.
    folder : Path
        Where items and catalogue lie.

    Raises
    ------
    InputError
        There is no such item, its file cannot be read, or the schema refuses it.
    """
    _require_known(name, item_names(folder))
    path = folder / f"{name}.yaml"
    data = read_item(path)
    other = data.get("same_as")
    if other is not None:
        _require_known(str(other), item_names(folder))
        origin = read_item(folder / f"{other}.yaml")
        if other == name or "same_as" in origin:
            raise InputError(f"{path}: same_as must name an item without same_as, got {other!r}.")
        data = {**{key: origin[key] for key in INHERITED if key in origin}, **data}
    item = validated(PaperItem.model_validate, data, path)
    if item.name != name:
        raise InputError(f"{path}: name must be that of the file, {name!r}, got {item.name!r}.")
    parts = item.comparisons(".", False, folder)
    for reading in item.readings:
        item.as_reading(reading).comparisons(".", False, folder)
    if item.quick is not None:
        item.comparisons(".", True, folder)
    _require_distinct(parts, path)
    if parts:
        _require_titles(item, parts, path)
    return item


def _require_distinct(parts: Sequence[schema.CompareConfig], path: Path) -> None:
    """Refuse two parts that measure the same learner on data sets of one name; their trials could not be told apart."""
    seen: set[tuple[str, str]] = set()
    for part in parts:
        titles = [learner.title for learner in part.learners] + ([schema.GRID_SEARCH_TITLE] if part.baseline else [])
        for pair in itertools.product((dataset.label for dataset in part.datasets), titles):
            if pair in seen:
                raise InputError(f"{path}: study.parts: {pair[1]} on {pair[0]} is in two parts; give one a 'label'.")
            seen.add(pair)


def _require_titles(item: PaperItem, parts: Sequence[schema.CompareConfig], path: Path) -> None:
    """Refuse a printed cell or a claim on a learner or data set that the study has not."""
    learners = {learner.title for part in parts for learner in part.learners} | {schema.GRID_SEARCH_TITLE}
    datasets = {dataset.label for part in parts for dataset in part.datasets}
    panels = datasets | {panel(dataset)[0] for dataset in datasets}
    named: list[tuple[str, str | None, set[str]]] = []
    cells = {f"printed.{i}": cell for i, cell in enumerate(item.printed)}
    cells |= {f"quick.checks.{i}": check for i, check in enumerate(item.quick.checks if item.quick else ())}
    for place, cell in cells.items():
        named += [(f"{place}.learner", cell.learner, learners), (f"{place}.dataset", cell.dataset, datasets)]
    for i, claim in enumerate(item.claims):
        if claim.value is None:
            named += [(f"claims.{i}.better", one, learners) for one in claim.better]
            named += [(f"claims.{i}.than", one, learners) for one in claim.than]
            named += [(f"claims.{i}.on", one, panels) for one in claim.on]
    named += [("figure.learners", one, learners) for one in item.figure.learners]
    if item.quick:
        named += [("quick.learners", one, learners) for one in item.quick.learners or ()]
        named += [("quick.datasets", one, datasets) for one in item.quick.datasets or ()]
    for where, name, known in named:
        if name is not None and name not in known:
            hint = did_you_mean(name, sorted(known))
            raise InputError(f"{path}: {where}: {name!r} is not in the study; {hint}it has {', '.join(sorted(known))}.")
