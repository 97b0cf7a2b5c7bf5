"""What a reproduced item leaves behind: its folder, and the report of all items."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from learnkernels.conf.papers.item import PaperItem
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.tasks.evidence.markdown import link, render
from learnkernels.tasks.evidence.report import environment
from learnkernels.tasks.measure.evaluation import COLUMNS, FoldsRef
from learnkernels.tasks.naming import step
from learnkernels.tasks.papers.figures import figures, png
from learnkernels.tasks.papers.result import Kept, StudyResult, Summary, total
from learnkernels.tasks.papers.section import cells_table, evidence_line, minutes, section, worded
from learnkernels.tasks.store import atomic_path, digest

RESULTS, QUICK_RESULTS = Path("results/papers"), Path("results/papers-quick")
"""Where the folders of the items lie, of their full and of their reduced forms."""


@step("write {item.name}")
def write_item(
    item: PaperItem, result: StudyResult, seconds: float, data: str, quick: bool, refs: Sequence[FoldsRef] = ()
) -> str:
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
        "environment": environment(refs),
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
    key = f"paper-{re.sub(r'[^a-z0-9]+', '-', item.name.lower())}"
    images = {
        name: f"data:image/png;base64,{base64.b64encode((target / name).read_bytes()).decode()}"
        for name in kept.figures
    }
    place = f"**{item.paper}, {item.where}**"
    create_markdown_artifact(section(kept, images), key=key, description=f"{place}: {item.title}")
    if rows := cells_table(kept.cells()):
        create_table_artifact(rows, key=f"{key}-cells", description=f"{place}: the paper's numbers and ours.")
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


def tracking_note(kept: Kept, run_id: str) -> str:
    """Return the section as the note of an MLflow run whose artifacts hold the figures."""
    images = {name: f"get-artifact?path={name}&run_uuid={run_id}" for name in kept.figures}
    return section(kept, images)


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
    images = {name: {figure: f"{name}/{figure}" for figure in one.figures} for name, one in kept.items()}
    if path is not None:
        beside = target.with_suffix("")
        beside.mkdir(exist_ok=True)
        for name, one in kept.items():
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
    overview = []
    for item in items:
        of = summaries.get(item.name)
        status = reasons.get(item.name, "not run: no results of this configuration") if of is None else "done"
        linked = {} if of is None else {"item": link(item.name, f"#{item.name}")}
        overview.append(overview_row(item, of, status) | linked)
    wrong = [(one.item, not_holding(one)) for one in kept.values()]
    total_of = total(list(summaries.values()))
    return render(
        "papers.md",
        quick=quick,
        done=len(kept),
        items=len(items),
        total=total_of,
        minutes=minutes(total_of["seconds"]),
        machine=_machine([one.facts for one in kept.values()]) if kept else "",
        overview=overview,
        not_holding=[(of.name, f"{of.paper}, {of.where}", lines, of.tried) for of, lines in wrong if lines],
        sections=[section(one, images.get(name, {})) for name, one in kept.items()],
    )


def _machine(facts: Sequence[Mapping[str, Any]]) -> str:
    """Return what the numbers were computed on."""
    newest = max(facts, key=lambda one: str(one["date"]))
    versions = newest["environment"]
    libraries = [f"{name} {versions[name]}" for name in ("numpy", "scipy", "scikit-learn") if name in versions]
    when = " to ".join(dict.fromkeys(of({str(one["date"]) for one in facts}) for of in (min, max)))
    return ", ".join(
        [
            f"{newest['cores']} cores ({versions['machine']})",
            f"Python {versions['python']}",
            *libraries,
            f"learnkernels {versions['learnkernels']}",
            when,
        ]
    )


def overview_row(item: PaperItem, of: Summary | None, status: str) -> dict[str, str]:
    """Return how much of an item was found again, as a row of a table for people."""
    return {
        "item": item.name,
        "paper": f"{item.paper}, {item.where}",
        "within 2 sd": f"{of['cells_near']} of {of['cells']}" if of and of["cells"] else "",
        "claims that hold": f"{of['claims_hold']} of {of['claims']}" if of and of["claims"] else "",
        "minutes": minutes(of["seconds"]) if of else "",
        "status": status,
    }


def not_holding(kept: Kept) -> list[str]:
    """Return what a paper says of an item and these runs do not bear out, a sentence a claim."""
    lines = []
    for verdict in kept.claims():
        if verdict.word != "holds":
            because = "; ".join(evidence_line(of) for of in verdict.evidence if of.word != "holds")
            here = f"{worded(verdict)}{f' ({because})' if because else ''}"
            lines.append(f"{verdict.says.rstrip('.')}. Here: {here}.")
    return lines
