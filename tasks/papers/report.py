"""What a reproduced item leaves behind: its folder, its figures, its section, and the report of all items."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from learnkernels.conf.papers.item import FigureConfig, PaperItem, panel
from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.tasks.evidence.figures import add_legend, alignment_figure, colors_of, panels
from learnkernels.tasks.evidence.markdown import markdown_table
from learnkernels.tasks.evidence.report import environment
from learnkernels.tasks.evidence.tables import mean_and_sd, short_p, summarise
from learnkernels.tasks.measure.evaluation import COLUMNS
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE
from learnkernels.tasks.naming import step
from learnkernels.tasks.papers.judge import (
    Cell,
    Evidence,
    Verdict,
    cells,
    claims,
    derived,
    mean_shares,
    without_unknown,
    worth,
)
from learnkernels.tasks.papers.result import StudyResult
from learnkernels.tasks.store import atomic_path, digest

RESULTS, QUICK_RESULTS = Path("results/papers"), Path("results/papers-quick")
"""Where the folders of the items lie, of their full and of their reduced forms."""

FIGURE_BYTES = 120_000
"""Most that a figure takes, so that a report can be kept under version control."""

WITH_TRIALS = 6
"""Data sets up to which the figure of alignments shows each trial, and not the means alone."""

SHOWN_PLACES = 10
"""Places of a curve that each have a tick."""

MARKERS = "oDs^vP*X"

EXPECTED = {"significant": "significantly", "direction": "in the mean", "none": "no significant difference"}

WORTH = (
    "Seconds are means over trials, for weights, choice of Lambda and predictor; learners share one pass over the base "
    "kernels that is not in them, the search has everything in its own. The best learner is the one of the lowest test "
    f"error, which favours it. Worth it: yes where its error is lower at {SIGNIFICANCE} (corrected resampled t-test)."
)
TESTS = (
    "Means are those of the two learners in the order of the claim. p: one-sided corrected resampled t-test over all "
    f"trials (Nadeau, Bengio 2003), which decides at {SIGNIFICANCE}; in brackets the plain paired t-test of the papers."
)


class Summary(TypedDict):
    """How much of an item was found again: numbers near those of the paper, claims that hold, each of how many."""

    cells_near: int
    cells: int
    claims_hold: int
    claims: int
    seconds: float


@dataclass(frozen=True)
class Kept:
    """An item with results on disk.

    Attributes
    ----------
    item : PaperItem
    result : StudyResult
        Without figures.
    figures : tuple of str
        Their file names.
    facts : dict
        seconds, cores, data, date, quick, environment and the digest of the study.
    folder : Path
    """

    item: PaperItem
    result: StudyResult
    figures: tuple[str, ...]
    facts: dict[str, Any]
    folder: Path

    @property
    def values(self) -> dict[str, float]:
        """The named numbers: those of a study, and those that follow from trials."""
        folds = self.result.folds if self.item.is_comparison else None
        return self.result.values | ({} if folds is None else derived(self.item, folds))

    def cells(self) -> list[Cell]:
        """Return the paper's numbers beside ours; of a reduced form those that it has."""
        found = cells(self.item, self.result.folds, self.values)
        return [cell for cell in found if cell.here is not None or not self.facts["quick"]]

    def claims(self) -> list[Verdict]:
        """Return the verdict on each claim; of a reduced form on what it can judge."""
        found = claims(self.item, self.result.folds, self.values)
        return (
            [one for verdict in found if (one := without_unknown(verdict)) is not None]
            if self.facts["quick"]
            else found
        )

    def summary(self) -> Summary:
        """Return how much of the paper's item was found again."""
        compared = [cell.near for cell in self.cells()]
        words = [verdict.word for verdict in self.claims()]
        return Summary(
            cells_near=sum(near is True for near in compared),
            cells=sum(near is not None for near in compared),
            claims_hold=words.count("holds"),
            claims=len(words),
            seconds=float(self.facts["seconds"]),
        )


# Figures --------------------------------------------------------------------------------------------------------------


def figures(item: PaperItem, folds: pd.DataFrame) -> dict[str, Figure]:
    """Return the figures of a comparison: the paper's, and alignment against error."""
    drawn: dict[str, Figure | None] = {}
    kind = item.figure.kind
    if kind == "curves" and len(_placed(folds)):
        drawn["curves"] = curves_figure(folds, item.figure)
    elif kind == "weights":
        drawn["weights"] = weights_figure(folds, item.figure.learners)
    elif kind == "ranks":
        drawn["ranks"] = ranks_figure(folds)
    if folds["alignment"].notna().any():
        if kind == "curves":
            drawn["alignment"] = _mean_alignment_figure(_placed(folds), colors_of(folds))
        elif folds["dataset"].nunique() > WITH_TRIALS:
            drawn["alignment"] = _mean_alignment_figure(
                folds.assign(panel=folds["dataset"], place=0.0), colors_of(folds)
            )
        else:
            drawn["alignment"] = alignment_figure(folds, summarise(folds))
    return {name: figure for name, figure in drawn.items() if figure is not None}


def curves_figure(folds: pd.DataFrame, config: FigureConfig) -> Figure:
    """Return test error ± deviation along the last word of the data sets' names: a panel a panel, a line a learner."""
    table, colors = _placed(folds), colors_of(folds)
    names = list(table["panel"].unique())
    figure, axes = panels(names)
    for axis, name in zip(axes, names, strict=True):
        for c, (learner, color) in enumerate(colors.items()):
            of = table[(table["panel"] == name) & (table["learner"] == learner)]
            along = of.groupby("place")["error"].agg(["mean", "std"]).sort_index()
            if along.empty:
                continue
            axis.errorbar(
                along.index.to_numpy(), along["mean"].to_numpy(), along["std"].fillna(0.0).to_numpy(),
                label=learner, color=color, marker=MARKERS[c % len(MARKERS)],
                ls="--" if learner == GRID_SEARCH_TITLE else "-", lw=1.2, ms=4, capsize=2,
            )  # fmt: skip
        axis.set(xlabel=config.x or "", ylabel=_error_label(folds))
        places = sorted(table.loc[table["panel"] == name, "place"].unique())
        if config.log:
            axis.set_xscale("log")
        if len(places) <= SHOWN_PLACES:
            axis.set_xticks(places, [f"{place:g}" for place in places])
            axis.set_xticks([], minor=True)
    add_legend(figure, axes)
    return figure


def _error_label(folds: pd.DataFrame) -> str:
    return f"test error ({', '.join(folds['metric'].unique())})"


def _placed(folds: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of data sets that have a place in a panel, with columns `panel` and `place`."""
    places = {name: panel(name) for name in folds["dataset"].unique()}
    table = folds.assign(
        panel=[places[name][0] for name in folds["dataset"]], place=[places[name][1] for name in folds["dataset"]]
    )
    return table[table["place"].notna()]


def _mean_alignment_figure(table: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    """Return alignment against error, means alone, of trials with columns `panel` and `place`, a point a place."""
    table = table[table["alignment"].notna()]
    if table.empty:
        return None
    names = list(table["panel"].unique())
    figure, axes = panels(names)
    for axis, name in zip(axes, names, strict=True):
        for c, (learner, color) in enumerate(colors.items()):
            of = table[(table["panel"] == name) & (table["learner"] == learner)]
            means = of.groupby("place")[["alignment", "error"]].mean()
            if not means.empty:
                axis.scatter(
                    means["alignment"], means["error"], s=40, alpha=0.8, color=color, label=learner,
                    marker=MARKERS[c % len(MARKERS)],
                )  # fmt: skip
        axis.set(xlabel="centered alignment (training rows)", ylabel=_error_label(table))
    add_legend(figure, axes)
    return figure


def weights_figure(folds: pd.DataFrame, learners: Sequence[str]) -> Figure | None:
    """Return mean shares of the base kernels, learner against learner: a panel a pair and data set, a dot a kernel."""
    shares = {
        (str(dataset), str(learner)): mean_shares(group)
        for (dataset, learner), group in folds[folds["learner"].isin(learners)].groupby(
            ["dataset", "learner"], sort=False
        )
    }
    pairs = [
        (dataset, one, other)
        for dataset in folds["dataset"].unique()
        for one, other in itertools.combinations(learners, 2)
        if (dataset, one) in shares and (dataset, other) in shares
    ]
    if not pairs:
        return None
    figure, axes = panels([f"{dataset}: {one}, {other}" for dataset, one, other in pairs])
    colors = colors_of(folds)
    for axis, (dataset, one, other) in zip(axes, pairs, strict=True):
        x, y = shares[dataset, one], shares[dataset, other]
        low, high = min(x.min(), y.min(), 0.0), max(x.max(), y.max())
        axis.plot([low, high], [low, high], color="0.7", lw=1, zorder=0)
        axis.scatter(x, y, s=40, color=colors[other], edgecolor="black")
        axis.set(xlabel=f"share, {one}", ylabel=f"share, {other}")
    return figure


def ranks_figure(folds: pd.DataFrame) -> Figure:
    """Return test error ± deviation of each learner, a row a data set."""
    datasets, colors = list(folds["dataset"].unique()), colors_of(folds)
    figure = Figure(figsize=(9.0, 1.2 + 0.55 * len(datasets)), layout="constrained")
    axis = figure.subplots()
    for c, (learner, color) in enumerate(colors.items()):
        of = folds[folds["learner"] == learner].groupby("dataset")["error"].agg(["mean", "std"])
        of = of.reindex(datasets)
        y = np.arange(len(datasets)) + 0.6 * ((c + 0.5) / len(colors) - 0.5)
        axis.errorbar(
            of["mean"], y, xerr=of["std"].fillna(0.0), fmt=MARKERS[c % len(MARKERS)], ms=5, lw=0.8, color=color,
            label=learner,
        )  # fmt: skip
    axis.set_yticks(range(len(datasets)), datasets)
    axis.set_ylim(len(datasets) - 0.5, -0.5)
    axis.grid(alpha=0.3)
    axis.set_xlabel(_error_label(folds))
    add_legend(figure, [axis])
    return figure


def _png(figure: Figure) -> bytes:
    """Return a figure as PNG, as fine as `FIGURE_BYTES` allow; the same figure gives the same bytes."""
    dpi = 100.0
    while True:
        buffer = BytesIO()
        figure.savefig(buffer, dpi=dpi, format="png", metadata={"Software": None})
        if buffer.tell() <= FIGURE_BYTES or dpi < 30:
            return buffer.getvalue()
        dpi *= min(0.9, (FIGURE_BYTES / buffer.tell()) ** 0.5)


# The section of an item -----------------------------------------------------------------------------------------------


def section(kept: Kept, images: Mapping[str, str]) -> str:
    """Return the section of an item in Markdown.

    Parameters
    ----------
    kept : Kept
        The item and its results.
    images : mapping of str to str
        File name of a figure -> its address in this document.
    """
    item, result = kept.item, kept.result
    compared = kept.cells()
    lines = [
        f'<a id="{item.name}"></a>',
        "",
        f"## {item.paper}, {item.where}: {item.title}",
        "",
        f"`learnkernels papers {item.name}{' --quick' if kept.facts['quick'] else ''}` {_took(kept)}",
        "",
        *([f"Same set-up as [{item.same_as}](#{item.same_as}).", ""] if item.same_as else []),
        item.setup.strip(),
        "",
    ]
    if kept.facts["quick"]:
        lines += ["This is the reduced form of the item: fewer rows, learners or repeats.", ""]
    if item.choices:
        lines += ["Left unsaid by the paper, and chosen here:", "", *(f"- {choice}" for choice in item.choices), ""]
    lines += _tables(item, result, compared)
    for name in kept.figures:
        lines += [f"![{item.where}: {Path(name).stem}]({images.get(name, name)})", ""]
    if verdicts := kept.claims():
        lines += [*markdown_table(claims_table(verdicts)), ""]
        if any(one.p is not None for verdict in verdicts for one in verdict.evidence):
            lines += [TESTS, ""]
    if item.tried:
        lines += [f"Tried: {item.tried.strip()}", ""]
    if result.folds is not None and (paying := worth_table(result.folds)):
        lines += [f"Is the learned kernel worth it, beside {GRID_SEARCH_TITLE} over one Gaussian kernel?", ""]
        lines += [*markdown_table(paying), "", WORTH, ""]
    return "\n".join(lines)


def _took(kept: Kept) -> str:
    took = f"took {minutes(kept.facts['seconds'])} min"
    folds = kept.result.folds
    if folds is not None:
        spent = float((folds["seconds_weights"] + folds["seconds_fit"]).sum())
        took += f" ({len(folds):,} trials, {minutes(spent)} min of computing)"
    return f"{took}; data from {kept.facts['data']}." if kept.facts["data"] else f"{took}."


def minutes(seconds: float) -> str:
    """Return minutes with one digit, at least 0.1."""
    return f"{max(0.1, seconds / 60):.1f}"


def _tables(item: PaperItem, result: StudyResult, compared: Sequence[Cell]) -> list[str]:
    """Return the item's tables: every data set and learner, the paper's numbers beside ours."""
    lines: list[str] = []
    ranked = [cell for cell in compared if cell.measure == "rank"]
    named = [cell for cell in compared if cell.learner is None and cell.dataset is None]
    if result.folds is not None:
        if item.figure.kind == "curves":
            for name, rows in _curve_tables(result.folds).items():
                lines += [
                    f"{name}: test error along {item.figure.x or 'the data sets'}",
                    "",
                    *markdown_table(rows),
                    "",
                ]
            beside = [cell for cell in compared if cell.dataset is not None]
            if beside:
                lines += [*markdown_table(cells_table(beside)), ""]
        else:
            lines += [*markdown_table(_full_table(result.folds, compared)), ""]
            lines += [
                "Means ± standard deviations over trials. Apart: our mean less the paper's, in its standard "
                "deviations, or in ours where it prints none."
                if any(cell.apart is not None for cell in compared)
                else "Means ± standard deviations over trials.",
                "",
            ]
    if alike := _alike(item, result):
        lines += ["Cosine of the angle between the mean shares of two learners.", "", *markdown_table(alike), ""]
    for some in (ranked, named):
        if some:
            lines += [*markdown_table(cells_table(some)), ""]
    for caption, rows in result.tables:
        lines += [caption, "", *markdown_table(rows), ""]
    return lines


def _alike(item: PaperItem, result: StudyResult) -> list[dict[str, Any]]:
    """Return how alike the weights of learners are, a row a pair and data set, where there is a figure of weights."""
    if result.folds is None or item.figure.kind != "weights":
        return []
    pairs = list(itertools.combinations(item.figure.learners, 2))
    rows, values = [], derived(item, result.folds)
    for dataset in result.folds["dataset"].unique():
        for one, other in pairs:
            value = values.get(f"cosine of {one} and {other} on {dataset}")
            if value is not None:
                rows.append({"data set": dataset, "learners": f"{one}, {other}", "cosine": f"{value:.3f}"})
    return rows


def _curve_tables(folds: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return a table a panel: a row a place, a column a learner."""
    table = _placed(folds)
    tables = {}
    for name, group in table.groupby("panel", sort=False):
        rows = []
        for place, of in sorted(group.groupby("place"), key=lambda one: float(one[0])):
            by = of.groupby("learner", sort=False)["error"].agg(["mean", "std"])
            rows.append(
                {"": f"{place:g}", **{str(one.Index): mean_and_sd(one.mean, one.std) for one in by.itertuples()}}
            )
        tables[str(name)] = rows
    return tables


def _full_table(folds: pd.DataFrame, compared: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return one row a (data set, learner): each measure of the paper, printed and measured, and the seconds."""
    printed = {(cell.dataset, cell.learner, cell.measure): cell for cell in compared}
    shown = ["error", *(name for name in ("alignment", "test_alignment") if folds[name].notna().any())]
    rows = []
    for (dataset, learner), group in folds.groupby(["dataset", "learner"], sort=False):
        row: dict[str, Any] = {"data set": dataset, "learner": learner}
        for measure in shown:
            cell = printed.get((dataset, learner, measure))
            if any(one.measure == measure for one in compared):
                row[f"{measure}, paper"] = "" if cell is None else _printed(cell)
            missing = group[measure].isna().all()
            row[f"{measure}, here"] = "" if missing else mean_and_sd(group[measure].mean(), group[measure].std())
            if any(one.measure == measure and one.apart is not None for one in compared):
                row[f"{measure}, apart"] = _apart(cell)
        seconds = (group["seconds_weights"] + group["seconds_fit"]).astype(float)
        cell = printed.get((dataset, learner, "seconds"))
        if any(one.measure == "seconds" for one in compared):
            row["seconds, paper"] = "" if cell is None else _printed(cell)
        row["seconds a trial"] = f"{seconds.mean():.3g}"
        rows.append(row)
    return rows


def _printed(cell: Cell) -> str:
    return f"{cell.paper:g}" + ("" if cell.paper_sd is None else f" ± {cell.paper_sd:g}")


def _apart(cell: Cell | None) -> str:
    if cell is None or cell.apart is None:
        return ""
    return f"{round(cell.apart, 1) + 0.0:+.1f}{'' if cell.paper_sd else ' of ours'}"


def cells_table(compared: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return one row a printed cell, as people read it, without columns that are empty."""
    rows = [
        {
            "data set": cell.dataset or "",
            "learner": cell.learner or "",
            "measure": cell.measure,
            "paper": _printed(cell),
            "here": "missing" if cell.here is None
            else f"{cell.here:.4g}" if cell.here_sd is None else mean_and_sd(cell.here, cell.here_sd),
            "apart": _apart(cell),
        }
        for cell in compared
    ]  # fmt: skip
    empty = {column for column in ("data set", "learner", "apart") if not any(row[column] for row in rows)}
    return [{column: value for column, value in row.items() if column not in empty} for row in rows]


def claims_table(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return one row a claim: what the paper says, the verdict, and what it rests on."""
    return [
        {
            "the paper says": verdict.says,
            "expected": EXPECTED.get(verdict.expected, ""),
            "here": _worded(verdict),
            "evidence": "<br>".join(evidence_line(one) for one in verdict.evidence),
        }
        for verdict in verdicts
    ]


def _worded(verdict: Verdict) -> str:
    """Return the verdict; of several data sets on how many it holds, where not on all."""
    held = sum(one.word == "holds" for one in verdict.evidence)
    on = f" (on {held} of {len(verdict.evidence)})" if len(verdict.evidence) > 1 and verdict.word != "holds" else ""
    return verdict.word + on


def evidence_line(one: Evidence) -> str:
    """Return what a verdict rests on, on one data set."""
    if one.better is None or one.than is None:
        return f"{one.on}: no numbers" if one.better is None else f"{one.on}: {one.better:.4g}"
    line = f"{one.on}: {one.better:.4g}, {one.than:.4g}"
    if one.p is not None:
        line += f"; p {_p(one.p)}"
    if one.paired is not None:
        counted = (
            f"below {SIGNIFICANCE} in {one.below} of {one.repeats} repeats, in the first " if one.repeats > 1 else ""
        )
        line += f" (plain: {counted}{short_p(one.paired)})"
    return line


def _p(p: float) -> str:
    return f"{'' if p < 0.01 else '= '}{short_p(p)}"


def worth_table(folds: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one row a data set with the search over one Gaussian kernel."""
    return [
        {
            "data set": one.dataset,
            "best learner": one.learner,
            "error": f"{one.error:.4g}",
            "seconds": f"{one.seconds:.3g}",
            f"{GRID_SEARCH_TITLE}: error": f"{one.search_error:.4g}",
            f"{GRID_SEARCH_TITLE}: seconds": f"{one.search_seconds:.3g}",
            "p, learner better": "" if one.p is None else short_p(one.p),
            "worth it": one.verdict,
        }
        for one in worth(folds)
    ]


# The folder of an item ------------------------------------------------------------------------------------------------


@step("write {item.name}")
def write_item(item: PaperItem, result: StudyResult, seconds: float, data: str, quick: bool) -> str:
    """Write the folder of an item, whole or not at all, put section and cells into Prefect, and return the folder."""
    target = (QUICK_RESULTS if quick else RESULTS) / item.name
    facts = {
        "item": item.name,
        "seconds": round(seconds, 1),
        "cores": os.cpu_count(),
        "data": data,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "quick": quick,
        "study": study_digest(item, quick),
        "environment": environment(),
    }
    facts = _unless_from_store(target, result, facts)
    drawn = dict(result.figures)
    if result.folds is not None and item.is_comparison:
        drawn = {**figures(item, result.folds), **drawn}
    with atomic_path(target) as folder:
        folder.mkdir()
        if result.folds is not None:
            result.folds.to_parquet(folder / "folds.parquet", index=False)
        for name, figure in drawn.items():
            (folder / f"{name}.png").write_bytes(_png(figure))
        kept = Kept(item, result, tuple(f"{name}.png" for name in drawn), facts, target)
        (folder / "section.md").write_text(section(kept, {}), encoding="utf-8")
        judged = {
            **facts,
            "figures": kept.figures,
            "values": result.values,
            "tables": result.tables,
            "summary": kept.summary(),
            "cells": [asdict(cell) for cell in kept.cells()],
            "claims": [asdict(verdict) for verdict in kept.claims()],
        }
        (folder / "result.json").write_text(json.dumps(judged, indent=1, default=str), encoding="utf-8")
    _publish(kept)
    return str(target)


def study_digest(item: PaperItem, quick: bool) -> str:
    """Return the digest of what an item computes; results of another digest are not this item's."""
    reduced = item.quick.model_dump(mode="json", exclude={"checks"}) if quick and item.quick else None
    return digest(NUMERICS_VERSION, json.loads(json.dumps(item.study, default=str)), reduced)


def _unless_from_store(target: Path, result: StudyResult, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of the run that computed these very trials, if nothing was computed since."""
    if result.folds is None or not (target / "result.json").is_file() or not (target / "folds.parquet").is_file():
        return facts
    before = json.loads((target / "result.json").read_text(encoding="utf-8"))
    measured = ["dataset", "learner", "repeat", "fold", "error", "seconds_weights", "seconds_fit"]
    old = pq.read_table(target / "folds.parquet", columns=measured).to_pandas()
    if before.get("study") == facts["study"] and old.equals(result.folds[measured].reset_index(drop=True)):
        return {key: before.get(key, fact) for key, fact in facts.items()}
    return facts


def read_item(item: PaperItem, quick: bool) -> Kept | None:
    """Return an item with its results, or None where there are none of this study."""
    folder = (QUICK_RESULTS if quick else RESULTS) / item.name
    path = folder / "result.json"
    if not path.is_file():
        return None
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored["study"] != study_digest(item, quick):
        return None
    folds = folder / "folds.parquet"
    table = pq.read_table(folds, schema=COLUMNS).to_pandas() if folds.is_file() else None
    tables = [(caption, rows) for caption, rows in stored["tables"]]
    return Kept(item, StudyResult(table, stored["values"], tables), tuple(stored["figures"]), stored, folder)


def _publish(kept: Kept) -> None:
    """Put section and cells of an item into Prefect."""
    item, key = kept.item, re.sub(r"[^a-z0-9]+", "-", kept.item.name.lower())
    images = {
        name: f"data:image/png;base64,{base64.b64encode((kept.folder / name).read_bytes()).decode()}"
        for name in kept.figures
    }
    create_markdown_artifact(
        section(kept, images), key=f"paper-{key}", description=f"**{item.paper}, {item.where}**: {item.title}"
    )
    if rows := cells_table(kept.cells()):
        create_table_artifact(
            rows, key=f"paper-{key}-cells", description=f"**{item.paper}, {item.where}**: the paper's numbers and ours."
        )


def tracking_note(kept: Kept, run_id: str) -> str:
    """Return the section as the note of an MLflow run whose artifacts hold the figures."""
    images = {name: f"get-artifact?path={name}&run_uuid={run_id}" for name in kept.figures}
    return section(kept, images)


# The report -----------------------------------------------------------------------------------------------------------


@step("write the report")
def write_report(items: Sequence[PaperItem], reasons: Mapping[str, str], quick: bool, path: Path | None = None) -> str:
    """Write the report of all items that have results, with the figures beside it, and return where.

    Parameters
    ----------
    items : sequence of PaperItem
        In the order of the report.
    reasons : mapping of str to str
        Item -> why it was not run, or why it failed.
    quick : bool
        Whether of the reduced forms.
    path : Path, optional
        The file; its figures go into a folder of its name. By default among the results, with the figures there.
    """
    kept = {item.name: found for item in items if item.name not in reasons and (found := read_item(item, quick))}
    target = path or (QUICK_RESULTS if quick else RESULTS) / "reproduction.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    images: dict[str, dict[str, str]] = {}
    for name, one in kept.items():
        if path is None:
            images[name] = {figure: f"{name}/{figure}" for figure in one.figures}
            continue
        beside = target.with_suffix("")
        beside.mkdir(exist_ok=True)
        for old in beside.glob(f"{name}.*.png"):
            old.unlink()
        for figure in one.figures:
            shutil.copyfile(one.folder / figure, beside / f"{name}.{figure}")
        images[name] = {figure: f"{beside.name}/{name}.{figure}" for figure in one.figures}
    text = report_text(items, kept, reasons, quick, images)
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    overview = text.split("\n<a id=", 1)[0]
    create_markdown_artifact(
        overview, key="papers-report", description=f"What was found again, and what was not; the report is {target}."
    )
    return str(target)


def report_text(
    items: Sequence[PaperItem],
    kept: Mapping[str, Kept],
    reasons: Mapping[str, str],
    quick: bool,
    images: Mapping[str, Mapping[str, str]],
) -> str:
    """Return the report: what it is, a summary, what does not hold, and a section an item."""
    summaries = {name: one.summary() for name, one in kept.items()}
    totals = total(list(summaries.values()))
    lines = [
        "# The papers, reproduced" + (" in reduced form" if quick else ""),
        "",
        "Tables and figures of five papers, computed anew. Written by `learnkernels papers"
        f"{' --quick' if quick else ''}`; `--list` names the items, `learnkernels papers NAME` runs one of them, and "
        "each is a file in `conf/papers/` with its set-up, the paper's numbers and its claims.",
        "",
        f"{len(kept)} of {len(items)} items; {'; '.join(_found(totals))}; {minutes(totals['seconds'])} minutes "
        "altogether.",
        "",
        *_machine(list(kept.values())),
        *markdown_table(_overview(items, summaries, reasons)),
        "",
        *_not_holding(list(kept.values())),
    ]
    for name, one in kept.items():
        lines.append(section(one, images.get(name, {})))
    return "\n".join(lines)


def _found(of: Summary) -> list[str]:
    """Return how many numbers and claims were found again, of what there is."""
    near = f"{of['cells_near']} of {of['cells']} printed numbers are within two standard deviations of the paper's"
    return [near] * (of["cells"] > 0) + [f"{of['claims_hold']} of {of['claims']} claims hold"]


def total(summaries: Sequence[Summary]) -> Summary:
    """Return the summary of several items."""
    return Summary(
        cells_near=sum(one["cells_near"] for one in summaries),
        cells=sum(one["cells"] for one in summaries),
        claims_hold=sum(one["claims_hold"] for one in summaries),
        claims=sum(one["claims"] for one in summaries),
        seconds=sum(one["seconds"] for one in summaries),
    )


def _machine(kept: Sequence[Kept]) -> list[str]:
    """Return what the numbers were computed on."""
    if not kept:
        return []
    newest = max(kept, key=lambda one: str(one.facts["date"])).facts
    versions = newest["environment"]
    libraries = ", ".join(f"{name} {versions[name]}" for name in ("numpy", "scipy", "scikit-learn") if name in versions)
    dates = sorted({str(one.facts["date"]) for one in kept})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return [
        f"Computed on {newest['cores']} cores ({versions['machine']}), Python {versions['python']}, {libraries}, "
        f"learnkernels {versions['learnkernels']}, {when}.",
        "",
    ]


def _overview(
    items: Sequence[PaperItem], summaries: Mapping[str, Summary], reasons: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return one row an item."""
    rows = []
    for item in items:
        of = summaries.get(item.name)
        row = {
            "item": item.name if of is None else f"[{item.name}](#{item.name})",
            "paper": f"{item.paper}, {item.where}",
            "within 2 sd": "",
            "claims that hold": "",
            "minutes": "",
            "status": reasons.get(item.name, "not run: no results of this configuration"),
        }
        if of is not None:
            row |= {
                "within 2 sd": f"{of['cells_near']} of {of['cells']}" if of["cells"] else "",
                "claims that hold": f"{of['claims_hold']} of {of['claims']}" if of["claims"] else "",
                "minutes": minutes(of["seconds"]),
                "status": "done",
            }
        rows.append(row)
    return rows


def not_holding(kept: Kept) -> list[str]:
    """Return what a paper says of an item and these runs do not bear out, a sentence a claim."""
    lines = []
    for verdict in kept.claims():
        if verdict.word != "holds":
            because = "; ".join(evidence_line(of) for of in verdict.evidence if of.word != "holds")
            here = f"{_worded(verdict)}{f' ({because})' if because else ''}"
            lines.append(f"{verdict.says.rstrip('.')}. Here: {here}.")
    return lines


def _not_holding(kept: Sequence[Kept]) -> list[str]:
    """Return what does not hold, item by item, and what was tried."""
    lines = []
    for one in kept:
        wrong = not_holding(one)
        lines += [f"- [{one.item.paper}, {one.item.where}](#{one.item.name}): {sentence}" for sentence in wrong]
        if wrong and one.item.tried:
            lines.append(f"  Tried: {one.item.tried.strip()}")
    if not kept:
        return []
    return ["## What does not hold", "", *(lines or ["Every claim holds."]), ""]
