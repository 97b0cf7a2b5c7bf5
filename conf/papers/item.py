"""What an item of the papers is: what a paper prints and says, and how it is made again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from learnkernels.conf.errors import InputError, did_you_mean
from learnkernels.conf.loading import describe, set_key
from learnkernels.conf.papers.catalogue import PAPERS, Catalogue, load_catalogue, merged
from learnkernels.conf.papers.studies import ComparisonStudy, StudyConfig
from learnkernels.conf.schema import GRID_SEARCH_TITLE, CompareConfig, Strict, TrackingConfig
from learnkernels.conf.schema.base import Parameter

Paper = Literal["JMLR 2012", "ICML 2010", "NIPS 2009", "UAI 2009", "AFK 2013"]
Measure = Literal["error", "alignment", "test_alignment", "seconds", "rank"]
Printed = Annotated[list[Parameter], Field(min_length=1, max_length=2)]
"""A number of a paper: its mean and, where the paper prints one, its standard deviation."""

NOT_OF_PAPERS = ("constant", "linear")
"""Baselines that no table of a paper has."""


class CellConfig(Strict):
    """A cell of a table as the paper prints it."""

    dataset: str | None = Field(None, description="The data set; none for a rank over all of them.")
    learner: str | None = Field(None, description="Title of the learner.")
    name: str | None = Field(None, description="In place of both: the name of a number that a special study gives.")
    error: Printed | None = Field(None, description="Mean and deviation of the test error, as a share or an RMSE.")
    alignment: Printed | None = Field(None, description="Mean and deviation of the alignment on the training rows.")
    test_alignment: Printed | None = Field(None, description="The same on the test rows.")
    seconds: Printed | None = Field(None, description="Seconds of a trial; on another machine, so it is only shown.")
    rank: Printed | None = Field(None, description="Median over the data sets of the rank by mean error.")
    value: Printed | None = Field(None, description="The number of that name.")

    @model_validator(mode="after")
    def _of_something(self) -> CellConfig:
        if self.value is not None and self.named is None:
            raise ValueError("a cell with 'value' needs 'name', the name of a number of the study")
        if self.value is None and not self.measures():
            raise ValueError("a cell needs one of: error, alignment, test_alignment, seconds, rank, value")
        if self.measures() and (self.learner is None or (self.dataset is None and self.rank is None)):
            raise ValueError("a cell needs 'dataset' and 'learner', a rank 'learner' alone")
        return self

    @property
    def named(self) -> str | None:
        """Name of the number: as given, or that of learner and data set."""
        words = [word for word in (self.learner, self.dataset) if word]
        return self.name or " ".join(words) or None

    def measures(self) -> dict[str, list[float]]:
        """Return what the paper prints, measure by measure."""
        printed = {name: getattr(self, name) for name in get_args(Measure)}
        return {name: value for name, value in printed.items() if value is not None}


class ClaimConfig(Strict):
    """What a paper says, in a form that numbers can bear out."""

    says: str = Field(description="The claim, in one sentence.")
    better: str | None = Field(None, description="Title of the learner that the paper finds better.")
    than: str | None = Field(None, description="Title of the one it is compared with.")
    on: tuple[str, ...] = Field((), description="Data sets, or panels of a figure; all by default.")
    measure: Measure = Field("error", description="What is compared; alignments are better when higher, others lower.")
    expected: Literal["significant", "direction", "none"] = Field(
        "significant", description="none: the paper finds no significant difference."
    )
    across: bool = Field(False, description="One signed-rank test over data sets in place of a t-test on each.")
    value: str | None = Field(None, description="Of a special study: the name of a number,")
    above: float | str | None = Field(None, description="what it lies above, a number or the name of one,")
    below: float | str | None = Field(None, description="what it lies below.")

    @model_validator(mode="after")
    def _one_kind(self) -> ClaimConfig:
        compared, valued = (self.better, self.than), (self.above, self.below)
        if self.value is None:
            if None in compared or valued != (None, None):
                raise ValueError("a claim needs 'better' and 'than', or 'value' with 'above' or 'below'")
        elif compared != (None, None) or valued == (None, None):
            raise ValueError("a claim on a 'value' needs 'above' or 'below', and neither 'better' nor 'than'")
        return self


class FigureConfig(Strict):
    """The figure beside the table."""

    kind: Literal["scatter", "curves", "weights", "ranks", "none"] = Field(
        "scatter",
        description="scatter: alignment against error. curves: error along the last word of the data sets' names. "
        "weights: shares of the base kernels, learner against learner. ranks: errors, a row a data set.",
    )
    x: str | None = Field(None, description="For curves: what the last word of a data set's name counts.")
    log: bool = Field(False, description="For curves: whether that axis is logarithmic.")
    learners: tuple[str, ...] = Field((), description="For weights: the learners that are compared.")

    @model_validator(mode="after")
    def _complete(self) -> FigureConfig:
        if self.kind == "weights" and len(self.learners) < 2:
            raise ValueError("figure weights needs 'learners', at least two titles")
        return self


class CheckConfig(Strict):
    """An interval that a number of the reduced form lies in."""

    dataset: str | None = None
    learner: str | None = None
    name: str | None = Field(None, description="In place of both: the name of a number of a special study.")
    error: tuple[float, float] | None = None
    alignment: tuple[float, float] | None = None
    test_alignment: tuple[float, float] | None = None
    value: tuple[float, float] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> CheckConfig:
        intervals = self.intervals()
        if not intervals:
            raise ValueError("a check needs an interval [low, high] of one of: error, alignment, test_alignment, value")
        for name, (low, high) in intervals.items():
            if low > high:
                raise ValueError(f"{name} must be [low, high], got [{low:g}, {high:g}]")
        if (self.value is None) == (self.dataset is None or self.learner is None):
            raise ValueError("a check needs 'dataset' and 'learner', or 'name' and 'value'")
        return self

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Return the intervals by measure."""
        given = {name: getattr(self, name) for name in ("error", "alignment", "test_alignment", "value")}
        return {name: interval for name, interval in given.items() if interval is not None}


class ChangeConfig(Strict):
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
            if self.learners is not None and GRID_SEARCH_TITLE not in self.learners and study["kind"] == "comparison":
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

    checks: tuple[CheckConfig, ...] = Field(default=(), description="Intervals that the numbers lie in.")


class ReadingConfig(ChangeConfig):
    """Another reading of what a paper leaves unsaid or says otherwise: the item with some keys of its study changed."""

    says: str = Field(description="What is different, in one sentence.")


ReadingName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,29}$")]


def _kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


class PaperItem(Strict):
    """A table or figure of a paper, and how it is made again."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$", description="That of the file, without ending.")
    paper: Paper = Field(description="The paper.")
    where: str = Field(description="The table, figure or section.")
    title: str = Field(description="What it shows.")
    setup: str = Field(description="What the paper says of the set-up.")
    choices: tuple[str, ...] = Field((), description="What the paper leaves unsaid, and what was chosen.")
    study: dict[str, Any] = Field(description="What is computed.")
    figure: Annotated[FigureConfig, BeforeValidator(_kind)] = Field(
        default_factory=lambda: FigureConfig.model_validate({}), description="The figure."
    )
    printed: tuple[CellConfig, ...] = Field((), description="The paper's cells.")
    claims: tuple[ClaimConfig, ...] = Field((), description="What the paper says of them.")
    found: tuple[float, ...] = Field(
        (), description="Parameters that continuous learners should find; claims name how far those found are apart."
    )
    tried: str | None = Field(None, description="What was tried where a claim does not hold.")
    readings: dict[ReadingName, ReadingConfig] = Field(
        default_factory=dict, description="Other readings, which ITEM.READING runs; no part of the report."
    )
    quick: QuickConfig | None = Field(None, description="The reduced form; without it the item has none.")
    same_as: str | None = Field(None, description="The item that study, figure, choices and quick come from.")

    @property
    def is_comparison(self) -> bool:
        """Whether the item compares learners, and is no special study."""
        return bool(self.study.get("kind") == "comparison")

    @property
    def experiment(self) -> str:
        """The MLflow experiment of the paper."""
        return f"papers: {self.paper}"

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
            "setup": f"Another reading of {self.name}: {reading.says}",
            "study": reading.applied_to(self.study, f"{self.name}: readings.{name}"),
            "choices": (),
            "tried": None,
            "quick": None,
            "readings": {},
        }
        return self.model_copy(update=changed)

    def tracking(self, quick: bool) -> TrackingConfig:
        """Return where MLflow keeps the runs, and their tags."""
        experiment = f"{self.experiment} (quick)" if quick else self.experiment
        return TrackingConfig(experiment=experiment, tags={"paper": self.paper, "item": self.name})

    def comparisons(self, data_dir: str | None, quick: bool, folder: Path = PAPERS) -> list[CompareConfig]:
        """Return the comparisons of the item, one a part.

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
            try:
                configs.append(CompareConfig.model_validate(data))
            except ValidationError as error:
                raise InputError(f"{self.name}: study.parts.{i}: {describe(error, data)}") from None
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
        for place in [study, study.get("shared"), *(parts if isinstance(parts, list) else ())]:
            if isinstance(place, dict) and isinstance(place.get("datasets"), list):
                place["datasets"] = [self._dataset(entry, catalogue, data_dir) for entry in place["datasets"]]
        try:
            return _Study.model_validate({"study": study}).study
        except ValidationError as error:
            raise InputError(f"{self.name}: {describe(error, {'study': study})}") from None

    def _dataset(self, entry: Any, catalogue: Catalogue, data_dir: str | None) -> Any:
        if not isinstance(entry, dict) or "use" not in entry:
            return entry
        try:
            return catalogue.dataset(entry, openml=data_dir is None)
        except InputError as error:
            raise type(error)(f"{self.name}: {error}") from None


class _Study(Strict):
    study: StudyConfig


def panel(dataset: str) -> tuple[str, float | None]:
    """Return panel and place of a data set in a figure of curves: ``kitchen 1000`` is 1000 in the panel kitchen."""
    before, _, last = dataset.rpartition(" ")
    try:
        return (before, float(last)) if before else (dataset, None)
    except ValueError:
        return dataset, None
