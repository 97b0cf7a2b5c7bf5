"""What a reproduced item leaves behind: its section in Markdown, its folder, and the report of all items."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from prefect.artifacts import create_markdown_artifact

from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.tasks.evidence.markdown import Markdown, link, render
from learnkernels.tasks.evidence.report import environment
from learnkernels.tasks.evidence.tables import equals_p, mean_and_sd, short_p
from learnkernels.tasks.measure.evaluation import COLUMNS, FoldsRef
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE
from learnkernels.tasks.naming import step
from learnkernels.tasks.store import atomic_path, digest

from . import judge
from .figures import figures, placed, png
from .item import PaperItem
from .judge import Cell, Evidence, Kept, StudyResult, Summary, Verdict

EXPECTED = {"significant": "significantly", "direction": "in the mean", "none": "no significant difference"}

WORTH = {"lower": "yes", "higher": "no, the search is better", "neither": "no difference"}

Rows = list[dict[str, Any]]

TEMPLATES = Path(__file__).parent / "templates"


def section(kept: Kept, images: Mapping[str, str], readings: Mapping[str, Kept] | None = None) -> str:
    """Return the section of an item in Markdown.

    Parameters
    ----------
    kept : Kept
        The item and its results.
    images : mapping of str to str
        File name of a figure -> its address in this document.
    readings : mapping of str to Kept, optional
        Name of another reading of the item -> its results.
    """
    folds, verdicts, compared = kept.result.folds, kept.claims(), kept.cells()
    took = f"took {minutes(kept.facts['seconds'])} min"
    if folds is not None:
        spent = float((folds["seconds_weights"] + folds["seconds_fit"]).sum())
        took += f" ({len(folds):,} trials, {minutes(spent)} min of computing)"
    return render(
        "item.md",
        TEMPLATES,
        item=kept.item,
        heading=f"{kept.item.paper}, {kept.item.where}: {kept.item.title}",
        quick=kept.facts["quick"],
        took=Markdown(took + (f"; data from {kept.facts['data']}." if kept.facts["data"] else ".")),
        tables=_tables(kept.item, kept.result, compared),
        systematic=judge.systematic(compared),
        readings=readings_table(kept, readings or {}),
        figures=[(Path(name).stem, images.get(name, name)) for name in kept.figures],
        claims=claims_table(verdicts),
        tested=any(one.p is not None for verdict in verdicts for one in verdict.evidence),
        powered=any(one.detectable is not None for verdict in verdicts for one in verdict.evidence),
        worth=[] if folds is None else judge.worth(folds),
        level=SIGNIFICANCE,
        search=GRID_SEARCH_TITLE,
    )


def minutes(seconds: float) -> str:
    """Return minutes with one digit, at least 0.1."""
    return f"{max(0.1, seconds / 60):.1f}"


def _tables(item: PaperItem, result: StudyResult, compared: Sequence[Cell]) -> list[tuple[str, Rows, str]]:
    """Return the item's tables, each with what stands before and after it: the paper's numbers next to ours."""
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
        values, alike = judge.derived(item, result.folds), []
        pairs = list(itertools.combinations(item.figure.learners, 2))
        for dataset, (one, other) in itertools.product(result.folds["dataset"].unique(), pairs):
            if (value := values.get(f"cosine of {one} and {other} on {dataset}")) is not None:
                alike.append({"data set": dataset, "learners": f"{one}, {other}", "cosine": f"{value:.3f}"})
        tables.append(("Cosine of the angle between the mean shares of two learners.", alike, ""))
    tables.append(("", cells_table([cell for cell in compared if cell.measure == "rank"]), ""))
    tables.append(("", cells_table([cell for cell in compared if cell.learner is None and cell.dataset is None]), ""))
    numbers = [{"number": name, "here": f"{value:.4g}"} for name, value in result.values.items()]
    tables.append(("Numbers of the study; sd is the standard deviation over trials.", numbers, ""))
    return tables + [(caption, rows, "") for caption, rows in result.tables]


def _curve_tables(folds: pd.DataFrame) -> list[tuple[str, Rows]]:
    """Return a table a panel: a row a place, a column per learner."""
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
    """Return one row per (data set, learner): each measure of the paper, printed and measured, and the seconds."""
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
        row["seconds a trial"] = f"{judge.seconds(group).mean():.3g}"
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
            "the paper says": Markdown(says),
            "expected": ", ".join(dict.fromkeys(EXPECTED[one.expected] for one in checks if one.expected)),
            "here": "identity" if all(one.identity for one in checks) else worded(checks),
            "evidence": "\n".join(evidence_line(of, one.learners) for one in checks for of in one.evidence),
        }
        for says, checks in judge.by_claim(verdicts).items()
    ]


def worded(checks: Sequence[Verdict]) -> str:
    """Return the verdict on a claim; of several comparisons how many hold, where not all do."""
    words = [of.word for one in checks for of in one.evidence]
    word = judge.overall(checks)
    return word + (f" ({words.count('holds')} of {len(words)})" if len(words) > 1 and word != "holds" else "")


def evidence_line(one: Evidence, learners: str = "") -> str:
    """Return what a verdict rests on, on one data set."""
    on = f"{learners}; {one.on}" if learners else one.on
    if one.better is None or one.than is None:
        return f"{on}: no numbers" if one.better is None else f"{on}: {one.better:.4g}"
    line = f"{on}: {one.better:.4g}, {one.than:.4g}"
    if one.p is not None:
        line += f"; p {equals_p(one.p)}"
    if one.paired is not None:
        counted = f"below {SIGNIFICANCE} in {one.below} of {one.repeats} repeats, in the first "
        line += f" (uncorrected: {counted if one.repeats > 1 else ''}{short_p(one.paired)})"
    return line + (f"; detectable {one.detectable:.2g}" if one.detectable is not None else "")


def readings_table(kept: Kept, readings: Mapping[str, Kept]) -> Rows:
    """Return one row a reading of the set-up that has results, after the one that was chosen; without any, nothing."""
    rows = []
    for name, one in {"chosen": kept, **readings}.items() if readings else ():
        says = "as above" if one is kept else kept.item.readings[name].says
        rows.append({"reading": name, "difference": says, **counts(one.summary())})
    return rows


# Folders and the report ----------------------------------------------------------------------------------------------


RESULTS, QUICK_RESULTS = Path("results/papers"), Path("results/papers-quick")
"""Where the folders of the items lie, of their full and of their reduced forms."""

OUT_OF_THE_NAVIGATION = "---\norphan: true\nnosearch: true\n---\n\n"
"""First lines of a page of an item: the site links to it from the summary alone."""


@step("write {item.name}")
def write_item(
    item: PaperItem, result: StudyResult, seconds: float, data: str, quick: bool, refs: Sequence[FoldsRef] = ()
) -> Kept:
    """Write the folder of an item, whole or not at all, put the section into Prefect, and return what is kept."""
    target = (QUICK_RESULTS if quick else RESULTS) / item.name
    facts = {
        "item": item.name,
        "seconds": round(seconds, 1),
        "cores": os.cpu_count(),
        "data": data,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "quick": quick,
        "study": study_digest(item, quick),
        "environment": environment(refs),
    }
    facts = _unless_from_store(item, quick, result, facts)
    drawn = dict(result.figures)
    if result.folds is not None and item.is_comparison:
        drawn = {**figures(item, result.folds), **drawn}
    with atomic_path(target) as folder:
        folder.mkdir()
        if result.folds is not None:
            result.folds.to_parquet(folder / "folds.parquet", index=False)
        for name, figure in drawn.items():
            (folder / f"{name}.png").write_bytes(png(figure))
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
    images = {
        name: f"data:image/png;base64,{base64.b64encode((target / name).read_bytes()).decode()}"
        for name in kept.figures
    }
    key = f"paper-{re.sub(r'[^a-z0-9]+', '-', item.name.lower())}"
    about = f"**{item.paper}, {item.where}**: {item.title}"
    create_markdown_artifact(section(kept, images), key=key, description=about)
    return kept


def study_digest(item: PaperItem, quick: bool) -> str:
    """Return the digest of what an item computes; results of another digest are not this item's."""
    reduced = item.quick.model_dump(mode="json", exclude={"checks"}) if quick and item.quick else None
    return digest(NUMERICS_VERSION, json.loads(json.dumps(item.study, default=str)), reduced)


def _unless_from_store(item: PaperItem, quick: bool, result: StudyResult, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of the run that computed these very trials, if nothing was computed since."""
    before = read_item(item, quick)
    if before is None or before.result.folds is None or result.folds is None:
        return facts
    measured = ["dataset", "learner", "repeat", "fold", "error", "seconds_weights", "seconds_fit"]
    same = before.result.folds[measured].equals(result.folds[measured].reset_index(drop=True))
    return {key: before.facts.get(key, fact) if same else fact for key, fact in facts.items()}


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


EARLIER = "page of an earlier run"
"""Status of an item that this run leaves out, and whose page is there already."""


@step("write the report")
def write_report(items: Sequence[PaperItem], reasons: Mapping[str, str], quick: bool, path: Path | None = None) -> str:
    """Write the report of all items that have results, a page for each item, and return where the summary is.

    Parameters
    ----------
    items : sequence of PaperItem
        In the order of the report.
    reasons : mapping of str to str
        Item -> why it was not run, or why it failed.
    quick : bool
        Whether of the reduced forms.
    path : Path, optional
        File of the summary; the pages and their figures go into a folder of its name. By default among the results.
    """
    kept = {item.name: found for item in items if item.name not in reasons and (found := read_item(item, quick))}
    target = path or (QUICK_RESULTS if quick else RESULTS) / "reproduction.md"
    pages = target.with_suffix("")
    pages.mkdir(parents=True, exist_ok=True)
    for name, one in kept.items():
        for old in pages.glob(f"{name}.*.png"):
            old.unlink()
        for figure in one.figures:
            shutil.copyfile(one.folder / figure, pages / f"{name}.{figure}")
        images = {figure: f"{name}.{figure}" for figure in one.figures}
        of = {reading: read_item(one.item.as_reading(reading), False) for reading in one.item.readings if not quick}
        readings = {reading: found for reading, found in of.items() if found is not None}
        with atomic_path(pages / f"{name}.md") as temporary:
            temporary.write_text(OUT_OF_THE_NAVIGATION + section(one, images, readings), encoding="utf-8")
    earlier = {item.name: EARLIER for item in items if item.name not in kept and (pages / f"{item.name}.md").exists()}
    text = report_text(items, kept, {**earlier, **reasons}, quick, pages.name)
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    create_markdown_artifact(text, key="papers-report", description=f"Results of the papers' items; file: {target}.")
    return str(target)


def report_text(
    items: Sequence[PaperItem], kept: Mapping[str, Kept], reasons: Mapping[str, str], quick: bool, pages: str
) -> str:
    """Return the summary: the numbers and claims of each item, linked to its page, and the claims that do not hold."""
    distinct = dict(zip(kept, judge.distinct([*kept.values()]), strict=True))
    found = {name: one.summary() for name, one in distinct.items()}
    overview, by_paper = [], dict[str, list[Summary]]()
    for item in items:
        of = found.get(item.name)
        status = reasons.get(item.name, "not run: no results of this configuration") if of is None else "done"
        linked = {"item": link(item.name, f"{pages}/{item.name}.md")} if of or status == EARLIER else {}
        overview.append(overview_row(item, of, status) | linked)
        by_paper.setdefault(item.paper, []).extend([of] if of else [])
    total_of = judge.total([*found.values()])
    apart, failing = [], []
    for name, one in distinct.items():
        item = kept[name].item
        place = link(f"{item.paper}, {item.where}", f"{pages}/{name}.md")
        far = [cell for cell in one.numbers if not cell.within(2)]
        words = [
            " ".join(filter(None, (cell.dataset, cell.learner, cell.measure, f"({_apart(cell)})"))) for cell in far
        ]
        apart += [(place, "; ".join(words))] if far else []
        failing += [
            (place, says, worded(checks)) for says, checks in one.claims.items() if judge.overall(checks) != "holds"
        ]
    tables = [folds for of in kept.values() if (folds := of.result.folds) is not None]
    compared = []
    for who, without in (("all learners", ()), ("learners of the papers", ("rfm",))):
        rows = [row for folds in tables for row in judge.worth(folds[~folds["learner"].isin(without)])]
        verdicts = [*{(*row.values(),)[:5]: row["worth it"] for row in rows}.values()]
        counted = {shown: verdicts.count(word) for shown, word in WORTH.items()}
        compared += [{"best of": who, **counted}] if rows else []
    return render(
        "papers.md",
        TEMPLATES,
        quick=quick,
        done=len(kept),
        items=len(items),
        total=total_of,
        minutes=minutes(total_of["seconds"]),
        machine=_machine([one.facts for one in kept.values()]) if kept else "",
        overview=overview,
        by_paper=[{"paper": paper, **counts(judge.total(of))} for paper, of in by_paper.items() if of],
        apart=apart,
        worth=compared,
        search=GRID_SEARCH_TITLE,
        not_reproduced=failing,
    )


def _machine(facts: Sequence[Mapping[str, Any]]) -> str:
    """Return what the numbers were computed on."""
    newest = max(facts, key=lambda one: str(one["date"]))
    versions = newest["environment"]
    names = ("numpy", "scipy", "scikit-learn", "learnkernels")
    own = f"{newest['cores']} cores ({versions['machine']})", f"Python {versions['python']}"
    dates = sorted({str(one["date"]) for one in facts})
    libraries = [f"{name} {versions[name]}" for name in names if name in versions]
    return ", ".join([*own, *libraries, " to ".join(dict.fromkeys((dates[0], dates[-1])))])


def counts(of: Summary) -> dict[str, str]:
    """Return how much was found again, as cells of a table; what an earlier item has is in brackets."""
    before = f" (+{of['printed_before']})" if of["printed_before"] else ""
    return {
        "numbers": f"{of['numbers']}{before}" if of["numbers"] or before else "",
        "within 1 sd": str(of["within_one"]) if of["numbers"] else "",
        "within 2 sd": str(of["within_two"]) if of["numbers"] else "",
        "claims that hold": f"{of['claims_hold']} of {of['claims']}" if of["claims"] else "",
        "checks that hold": f"{of['checks_hold']} of {of['checks']}" if of["checks"] else "",
        "identities": str(of["identities"] or ""),
    }


def overview_row(item: PaperItem, of: Summary | None, status: str) -> dict[str, str]:
    """Return how much of an item was found again, as a row of a report."""
    return {
        "item": item.name,
        "paper": f"{item.paper}, {item.where}",
        **counts(of or judge.total([])),
        "minutes": minutes(of["seconds"]) if of else "",
        "status": status,
    }


def not_holding(kept: Kept) -> list[str]:
    """Return what a paper says of an item and these runs do not bear out, a sentence a claim."""
    lines = []
    for says, checks in judge.by_claim(kept.claims()).items():
        if judge.overall(checks) != "holds":
            failing = [(of, one.learners) for one in checks for of in one.evidence if of.word != "holds"]
            because = "; ".join(evidence_line(*of) for of in failing)
            lines.append(f"{says.rstrip('.')}. Here: {worded(checks)}{f' ({because})' if because else ''}.")
    return lines
