"""The section of an item in Markdown: its tables, the paper's numbers beside ours, and its claims."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from learnkernels.conf.papers.item import PaperItem
from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.tasks.evidence.markdown import Markdown, render
from learnkernels.tasks.evidence.tables import equals_p, mean_and_sd, short_p
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE
from learnkernels.tasks.papers.figures import placed
from learnkernels.tasks.papers.judge import Cell, Evidence, Verdict, derived, seconds, worth
from learnkernels.tasks.papers.result import Kept, StudyResult

EXPECTED = {"significant": "significantly", "direction": "in the mean", "none": "no significant difference"}

Rows = list[dict[str, Any]]


def section(kept: Kept, images: Mapping[str, str]) -> str:
    """Return the section of an item in Markdown.

    Parameters
    ----------
    kept : Kept
        The item and its results.
    images : mapping of str to str
        File name of a figure -> its address in this document.
    """
    folds, verdicts = kept.result.folds, kept.claims()
    took = f"took {minutes(kept.facts['seconds'])} min"
    if folds is not None:
        spent = float((folds["seconds_weights"] + folds["seconds_fit"]).sum())
        took += f" ({len(folds):,} trials, {minutes(spent)} min of computing)"
    return render(
        "item.md",
        item=kept.item,
        heading=kept.heading,
        quick=kept.facts["quick"],
        took=Markdown(took + (f"; data from {kept.facts['data']}." if kept.facts["data"] else ".")),
        tables=_tables(kept.item, kept.result, kept.cells()),
        figures=[(Path(name).stem, images.get(name, name)) for name in kept.figures],
        claims=claims_table(verdicts),
        tested=any(one.p is not None for verdict in verdicts for one in verdict.evidence),
        worth=[] if folds is None else worth_table(folds),
        level=SIGNIFICANCE,
        search=GRID_SEARCH_TITLE,
    )


def minutes(seconds: float) -> str:
    """Return minutes with one digit, at least 0.1."""
    return f"{max(0.1, seconds / 60):.1f}"


def _tables(item: PaperItem, result: StudyResult, compared: Sequence[Cell]) -> list[tuple[str, Rows, str]]:
    """Return the item's tables, each with what stands before and after it: the paper's numbers beside ours."""
    tables: list[tuple[str, Rows, str]] = []
    if result.folds is not None and item.figure.kind == "curves":
        along = f"test error along {item.figure.x or 'the data sets'}"
        tables += [(f"{name}: {along}", rows, "") for name, rows in _curve_tables(result.folds)]
        tables.append(("", cells_table([cell for cell in compared if cell.dataset is not None]), ""))
    elif result.folds is not None:
        said = "Means ± standard deviations over trials."
        if any(cell.apart is not None for cell in compared):
            said += " Apart: our mean less the paper's, in its standard deviations, or in ours where it prints none."
        tables.append(("", _full_table(result.folds, compared), said))
    if result.folds is not None and item.figure.kind == "weights":
        values, alike = derived(item, result.folds), []
        pairs = list(itertools.combinations(item.figure.learners, 2))
        for dataset, (one, other) in itertools.product(result.folds["dataset"].unique(), pairs):
            if (value := values.get(f"cosine of {one} and {other} on {dataset}")) is not None:
                alike.append({"data set": dataset, "learners": f"{one}, {other}", "cosine": f"{value:.3f}"})
        tables.append(("Cosine of the angle between the mean shares of two learners.", alike, ""))
    tables.append(("", cells_table([cell for cell in compared if cell.measure == "rank"]), ""))
    tables.append(("", cells_table([cell for cell in compared if cell.learner is None and cell.dataset is None]), ""))
    return tables + [(caption, rows, "") for caption, rows in result.tables]


def _curve_tables(folds: pd.DataFrame) -> list[tuple[str, Rows]]:
    """Return a table a panel: a row a place, a column a learner."""
    tables = []
    for name, group in placed(folds).groupby("panel", sort=False):
        rows = []
        for place, of in sorted(group.groupby("place"), key=lambda one: float(one[0])):
            by = of.groupby("learner", sort=False)["error"].agg(["mean", "std"])
            errors = {str(one.Index): mean_and_sd(one.mean, one.std) for one in by.itertuples()}
            rows.append({"": f"{place:g}", **errors})
        tables.append((str(name), rows))
    return tables


def _full_table(folds: pd.DataFrame, compared: Sequence[Cell]) -> Rows:
    """Return one row a (data set, learner): each measure of the paper, printed and measured, and the seconds."""
    cells = {(cell.dataset, cell.learner, cell.measure): cell for cell in compared}
    printed = {cell.measure for cell in compared}
    apart = {cell.measure for cell in compared if cell.apart is not None}
    shown = ["error", *(name for name in ("alignment", "test_alignment") if folds[name].notna().any())]
    rows = []
    for (dataset, learner), group in folds.groupby(["dataset", "learner"], sort=False):
        row: dict[str, Any] = {"data set": dataset, "learner": learner}
        for measure in shown:
            cell, values = cells.get((dataset, learner, measure)), group[measure]
            if measure in printed:
                row[f"{measure}, paper"] = _printed(cell)
            row[f"{measure}, here"] = "" if values.isna().all() else mean_and_sd(values.mean(), values.std())
            if measure in apart:
                row[f"{measure}, apart"] = _apart(cell)
        if "seconds" in printed:
            row["seconds, paper"] = _printed(cells.get((dataset, learner, "seconds")))
        row["seconds a trial"] = f"{seconds(group).mean():.3g}"
        row["without the pass"] = f"{(group['seconds_weights'] + group['seconds_fit']).astype(float).mean():.3g}"
        rows.append(row)
    return rows


def _printed(cell: Cell | None) -> str:
    return "" if cell is None else f"{cell.paper:g}" + ("" if cell.paper_sd is None else f" ± {cell.paper_sd:g}")


def _apart(cell: Cell | None) -> str:
    if cell is None or cell.apart is None:
        return ""
    return f"{round(cell.apart, 1) + 0.0:+.1f}{'' if cell.paper_sd else ' of ours'}"


def cells_table(compared: Sequence[Cell]) -> Rows:
    """Return one row a printed cell, as people read it, without columns that are empty."""
    rows = []
    for cell in compared:
        here = "missing" if cell.here is None else f"{cell.here:.4g}"
        if cell.here is not None and cell.here_sd is not None:
            here = mean_and_sd(cell.here, cell.here_sd)
        where = {"data set": cell.dataset or "", "learner": cell.learner or "", "measure": cell.measure}
        rows.append(where | {"paper": _printed(cell), "here": here, "apart": _apart(cell)})
    empty = {column for column in ("data set", "learner", "apart") if not any(row[column] for row in rows)}
    return [{column: value for column, value in row.items() if column not in empty} for row in rows]


def claims_table(verdicts: Sequence[Verdict]) -> Rows:
    """Return one row a claim: what the paper says, the verdict, and what it rests on."""
    return [
        {
            "the paper says": Markdown(verdict.says),
            "expected": EXPECTED.get(verdict.expected, ""),
            "here": worded(verdict),
            "evidence": "\n".join(evidence_line(one) for one in verdict.evidence),
        }
        for verdict in verdicts
    ]


def worded(verdict: Verdict) -> str:
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
        line += f"; p {equals_p(one.p)}"
    if one.paired is not None:
        counted = f"below {SIGNIFICANCE} in {one.below} of {one.repeats} repeats, in the first "
        line += f" (plain: {counted if one.repeats > 1 else ''}{short_p(one.paired)})"
    return line


def worth_table(folds: pd.DataFrame) -> Rows:
    """Return one row a data set with the search over one Gaussian kernel."""
    return [
        {
            "data set": one["dataset"],
            "best learner": one["learner"],
            "error": f"{one['error']:.4g}",
            "seconds": f"{one['seconds']:.3g}",
            f"{GRID_SEARCH_TITLE}: error": f"{one['search_error']:.4g}",
            f"{GRID_SEARCH_TITLE}: seconds": f"{one['search_seconds']:.3g}",
            "p, learner better": short_p(one["p"]),
            "worth it": one["verdict"],
        }
        for one in worth(folds)
    ]
