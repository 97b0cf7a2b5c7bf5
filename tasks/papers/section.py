"""The section of an item in Markdown: its tables, the paper's numbers beside ours, and its claims."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from learnkernels.conf.papers.item import PaperItem
from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.tasks.evidence.markdown import Markdown, markdown_table
from learnkernels.tasks.evidence.tables import equals_p, mean_and_sd, short_p
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE
from learnkernels.tasks.papers.figures import placed
from learnkernels.tasks.papers.judge import (
    Cell,
    Evidence,
    Verdict,
    derived,
    seconds,
    worth,
)
from learnkernels.tasks.papers.result import Kept, StudyResult

EXPECTED = {"significant": "significantly", "direction": "in the mean", "none": "no significant difference"}

WORTH = (
    "Seconds are means over trials, for weights, choice of Lambda and predictor, and for the share of the pass over "
    "the base kernels that the training rows of a trial take; the search has no such pass. The best learner is the one "
    "of the lowest test error, which favours it. Worth it: yes where its error is lower at "
    f"{SIGNIFICANCE} (corrected resampled t-test)."
)

TESTS = (
    "Means are those of the two learners in the order of the claim. p: one-sided corrected resampled t-test over all "
    f"trials (Nadeau, Bengio 2003), which decides at {SIGNIFICANCE}; in brackets the plain paired t-test of the papers."
)


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
    table = placed(folds)
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
        without = (group["seconds_weights"] + group["seconds_fit"]).astype(float).mean()
        cell = printed.get((dataset, learner, "seconds"))
        if any(one.measure == "seconds" for one in compared):
            row["seconds, paper"] = "" if cell is None else _printed(cell)
        row["seconds a trial"] = f"{seconds(group).mean():.3g}"
        row["without the pass"] = f"{without:.3g}"
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
        counted = (
            f"below {SIGNIFICANCE} in {one.below} of {one.repeats} repeats, in the first " if one.repeats > 1 else ""
        )
        line += f" (plain: {counted}{short_p(one.paired)})"
    return line


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
