"""Results of reproduced items on disk: folders, pages and a summary."""

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

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from prefect.artifacts import create_markdown_artifact

from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.tasks.measure.run_learner import COLUMNS, FoldsRef
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE
from learnkernels.tasks.naming import step
from learnkernels.tasks.reporting.markdown import Markdown, link, render
from learnkernels.tasks.reporting.report import environment
from learnkernels.tasks.reporting.tables import equals_p, mean_and_sd, short_p
from learnkernels.tasks.store import atomic_path, digest

from . import judge
from .cells import Cell, systematic_deviations
from .counts import (
    Findings,
    Summary,
    count_rows,
    distinct_findings,
    is_within,
    sum_summaries,
    summarize,
)
from .derived import (
    INTERVAL,
    AlignmentCorrelation,
    alignment_correlations,
    correlation_values,
    weight_cosines,
)
from .figures import item_figures, png, trials_on_curves
from .item import PaperItem
from .judge import Evidence, ReproducedItem, StudyResult, Verdict
from .published_tests import PublishedTest
from .trials import seconds_by_trial

Rows = list[dict[str, Any]]
Table = tuple[str, Rows, str]
"""Text before a table, its rows, and the text after it."""

TEMPLATES = Path(__file__).parent / "templates"


# Page of an item


def item_section(
    reproduced: ReproducedItem,
    images: Mapping[str, str],
    readings: Mapping[str, ReproducedItem] | None = None,
) -> str:
    """Return the report's page on a paper's table or figure as Markdown."""
    item = reproduced.item
    folds = reproduced.result.folds
    cells = reproduced.cells()
    verdicts = reproduced.claims()
    evidence = [part for verdict in verdicts for part in verdict.evidence]
    search_rows: Rows = []
    if folds is not None:
        search_rows = judge.compare_with_search(folds)
    return render(
        "item.md",
        TEMPLATES,
        item=item,
        heading=f"{item.paper}, {item.where}: {item.title}",
        quick=reproduced.facts["quick"],
        took=Markdown(_duration_and_source(reproduced)),
        tables=_tables(item, reproduced.result, cells),
        systematic=systematic_deviations(cells),
        readings=readings_table(reproduced, readings or {}),
        figures=[
            (Path(name).stem, images.get(name, name)) for name in reproduced.figures
        ],
        tests=tests_table(reproduced.tests()),
        tests_agree=_count_agreeing(reproduced.tests()),
        claims=claims_table(verdicts),
        tested=any(part.p is not None and not part.signed_rank for part in evidence),
        ranked=any(part.p is not None and part.signed_rank for part in evidence),
        alike=any(verdict.expected == "alike" for verdict in verdicts),
        powered=any(part.detectable is not None for part in evidence),
        worth=search_rows,
        level=SIGNIFICANCE,
        search=GRID_SEARCH_TITLE,
    )


def _duration_and_source(reproduced: ReproducedItem) -> str:
    text = f"took {minutes(reproduced.facts['seconds'])} min"
    folds = reproduced.result.folds
    if folds is not None:
        seconds = float((folds["seconds_weights"] + folds["seconds_fit"]).sum())
        text += f" ({len(folds):,} trials, {minutes(seconds)} min of computing)"
    if reproduced.facts["data"]:
        text += f"; data from {reproduced.facts['data']}"
    return text + "."


def minutes(seconds: float) -> str:
    """Return seconds as minutes with one decimal, at least 0.1."""
    return f"{max(0.1, seconds / 60):.1f}"


def _tables(item: PaperItem, result: StudyResult, cells: Sequence[Cell]) -> list[Table]:
    dataset_cells = [cell for cell in cells if cell.dataset is not None]
    rank_cells = [cell for cell in cells if cell.measure == "rank"]
    study_cells = [
        cell for cell in cells if cell.dataset is None and cell.learner is None
    ]
    tables: list[Table] = []
    if result.folds is not None:
        if item.figure.kind == "curves":
            tables += _curve_tables(item, result.folds)
            tables.append(("", cells_table(dataset_cells), ""))
        else:
            tables.append(_results_table(result.folds, cells))
        if item.figure.kind == "weights":
            tables.append(_cosine_table(item, result.folds))
        correlations = alignment_correlations(item, result.folds)
        if correlations:
            tables.append(_correlation_table(correlations))
    tables.append(("", cells_table(rank_cells), ""))
    tables.append(("", cells_table(study_cells), ""))
    numbers = [
        {"number": name, "here": f"{value:.4g}"}
        for name, value in result.values.items()
    ]
    tables.append(
        ("Numbers of the study; sd is the standard deviation over trials.", numbers, "")
    )
    tables += [(caption, rows, "") for caption, rows in result.tables]
    return tables


def _curve_tables(item: PaperItem, folds: pd.DataFrame) -> list[Table]:
    """Return a table for each panel: points are rows, learners columns."""
    tables = []
    axis = item.figure.x or "the data sets"
    for panel, group in trials_on_curves(folds).groupby("panel", sort=False):
        rows = []
        for place, trials in group.groupby("place"):
            errors = trials.groupby("learner", sort=False)["error"].agg(["mean", "std"])
            row = {"": f"{place:g}"}
            for learner, mean, sd in errors.itertuples():
                row[str(learner)] = mean_and_sd(mean, sd)
            rows.append(row)
        tables.append((f"{panel}: test error along {axis}", rows, ""))
    return tables


def _results_table(folds: pd.DataFrame, cells: Sequence[Cell]) -> Table:
    cell_of = {(cell.dataset, cell.learner, cell.measure): cell for cell in cells}
    published = {cell.measure for cell in cells}
    comparable = {cell.measure for cell in cells if cell.apart is not None}
    measures = ["error"]
    measures += [
        name for name in ("alignment", "test_alignment") if folds[name].notna().any()
    ]
    rows = []
    for (dataset, learner), trials in folds.groupby(["dataset", "learner"], sort=False):
        row: dict[str, Any] = {"data set": dataset, "learner": learner}
        for measure in measures:
            cell = cell_of.get((dataset, learner, measure))
            values = trials[measure]
            if measure in published:
                row[f"{measure}, paper"] = _published_number(cell)
            row[f"{measure}, here"] = ""
            if values.notna().any():
                row[f"{measure}, here"] = mean_and_sd(values.mean(), values.std())
            if measure in comparable:
                row[f"{measure}, apart"] = _distance(cell)
        seconds_without_pass = (
            trials["seconds_weights"] + trials["seconds_fit"]
        ).astype(float)
        row["seconds a trial"] = f"{seconds_by_trial(trials).mean():.3g}"
        row["without the pass"] = f"{seconds_without_pass.mean():.3g}"
        rows.append(row)
    legend = "Means ± standard deviations over trials."
    if comparable:
        legend += f" Apart: our mean less the paper's, {APART_RULE}"
    return "", rows, legend


def _cosine_table(item: PaperItem, folds: pd.DataFrame) -> Table:
    cosines = weight_cosines(item, folds)
    rows = []
    for dataset in folds["dataset"].unique():
        for first, second in itertools.combinations(item.figure.learners, 2):
            cosine = cosines.get(f"cosine of {first} and {second} on {dataset}")
            if cosine is not None:
                rows.append(
                    {
                        "data set": dataset,
                        "learners": f"{first}, {second}",
                        "cosine": f"{cosine:.3f}",
                    }
                )
    return "Cosine of the angle between the mean shares of two learners.", rows, ""


def _correlation_table(correlations: Sequence[AlignmentCorrelation]) -> Table:
    rows = []
    for correlation in correlations:
        low, high = np.quantile(correlation.resampled, INTERVAL)
        rows.append(
            {
                "data set": correlation.dataset,
                "learners": str(correlation.n_learners),
                "paper": f"{correlation.paper:.2f}",
                "here": f"{correlation.reproduced:.2f}",
                "interval": f"{low:.2f} to {high:.2f}",
            }
        )
    values = correlation_values(correlations)
    rows.append(
        {
            "data set": "mean",
            "learners": "",
            "paper": f"{np.mean([correlation.paper for correlation in correlations]):.2f}",
            "here": f"{values['correlation, mean']:.2f}",
            "interval": f"{values['correlation, mean, lower end']:.2f} to {values['correlation, mean, upper end']:.2f}",
        }
    )
    return (
        "Correlation of accuracy and alignment over the learners, of the published means and of ours.",
        rows,
        "The interval has 90 % of the correlations of means over trials that are drawn with replacement.",
    )


def _published_number(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.paper_sd is None:
        return f"{cell.paper:g}"
    return f"{cell.paper:g} ± {cell.paper_sd:g}"


APART_RULE = (
    "in its standard deviations (*of ours*: those of these trials; *binomial*: those of one test set of its size); "
    "*se*: in standard errors of the difference, with trials as independent."
)


def _distance(cell: Cell | None) -> str:
    if cell is None or cell.apart is None:
        return ""
    units = {"paper": "", "binomial": " binomial", "here": " of ours"}
    text = f"{_signed(cell.apart)}{units[cell.unit]}"
    if cell.standard_errors is not None:
        text += f", {_signed(cell.standard_errors)} se"
    return text


def _signed(distance: float) -> str:
    rounded = round(distance, 1) + 0.0  # no minus sign before zero
    return f"{rounded:+.1f}"


def tests_table(tests: Sequence[PublishedTest]) -> Rows:
    rows = []
    for test in tests:
        verdict = "differs"
        if test.agrees:
            verdict = "agrees"
        rows.append(
            {
                "data set": test.dataset,
                "lower error": test.better,
                "than": test.than,
                "paper": str(int(test.paper)),
                "here": str(int(test.reproduced)),
                "p": short_p(test.p),
                "uncorrected, first repeat": short_p(test.paired),
                "verdict": verdict,
            }
        )
    return rows


def _count_agreeing(tests: Sequence[PublishedTest]) -> str:
    ones = [test for test in tests if test.paper]
    zeros = [test for test in tests if not test.paper]
    return (
        f"{sum(test.agrees for test in tests)} of {len(tests)} entries agree by the corrected test over all trials: "
        f"{sum(test.agrees for test in ones)} of {len(ones)} ones and {sum(test.agrees for test in zeros)} of "
        f"{len(zeros)} zeros. By the paper's uncorrected test on the first repeat, "
        f"{sum(test.agrees_uncorrected for test in ones)} and {sum(test.agrees_uncorrected for test in zeros)} agree."
    )


def cells_table(cells: Sequence[Cell]) -> Rows:
    """Return a table row for each published number, without empty columns."""
    rows = []
    for cell in cells:
        if cell.here is None:
            reproduced_text = "missing"
        elif cell.here_sd is None:
            reproduced_text = f"{cell.here:.4g}"
        else:
            reproduced_text = mean_and_sd(cell.here, cell.here_sd)
        rows.append(
            {
                "data set": cell.dataset or "",
                "learner": cell.learner or "",
                "measure": cell.measure,
                "paper": _published_number(cell),
                "here": reproduced_text,
                "apart": _distance(cell),
            }
        )
    for column in ("data set", "learner", "apart"):
        if not any(row[column] for row in rows):
            for row in rows:
                del row[column]
    return rows


def claims_table(verdicts: Sequence[Verdict]) -> Rows:
    """Return a table row per claim of the paper, with verdict and evidence."""
    phrases = {
        "significant": "significantly",
        "direction": "in the mean",
        "none": "not significantly",
        "alike": "no significant difference",
    }
    rows = []
    for claim, checks in judge.group_by_claim(verdicts).items():
        expected = dict.fromkeys(
            phrases[check.expected] for check in checks if check.expected
        )
        outcome = verdict_text(checks)
        if all(check.identity for check in checks):
            outcome = "identity"
        evidence = [
            evidence_line(part, check.learners)
            for check in checks
            for part in check.evidence
        ]
        rows.append(
            {
                "the paper says": Markdown(claim),
                "expected": ", ".join(expected),
                "here": outcome,
                "evidence": "\n".join(evidence),
            }
        )
    return rows


def verdict_text(checks: Sequence[Verdict]) -> str:
    """Return the verdict on a claim as text, with counts if it does not hold."""
    verdict = judge.overall_word(checks)
    words = [part.word for check in checks for part in check.evidence]
    if verdict == "holds" or len(words) <= 1:
        return verdict
    return f"{verdict} ({words.count('holds')} of {len(words)})"


def evidence_line(evidence: Evidence, learners: str = "") -> str:
    line = evidence.on
    if learners:
        line = f"{learners}; {line}"
    if evidence.better is None:
        return f"{line}: no numbers"
    line += f": {evidence.better:.4g}"
    if evidence.than is None:
        return line
    line += f", {evidence.than:.4g}"
    if evidence.p is not None:
        line += f"; p {equals_p(evidence.p)}"
    if evidence.paired is not None:
        uncorrected = short_p(evidence.paired)
        if evidence.repeats > 1:
            in_repeats = f"in {evidence.below} of {evidence.repeats} repeats"
            uncorrected = (
                f"below {SIGNIFICANCE} {in_repeats}, in the first {uncorrected}"
            )
        line += f" (uncorrected: {uncorrected})"
    if evidence.detectable is not None:
        line += f"; detectable {evidence.detectable:.2g}"
    return line


def readings_table(
    reproduced: ReproducedItem, readings: Mapping[str, ReproducedItem]
) -> Rows:
    """Return a table row per interpretation of the setup with results."""
    if not readings:
        return []
    rows = [
        {
            "reading": "chosen",
            "difference": "as above",
            **count_cells(summarize(reproduced)),
        }
    ]
    for name, reading in readings.items():
        difference = reproduced.item.readings[name].says
        rows.append(
            {
                "reading": name,
                "difference": difference,
                **count_cells(summarize(reading)),
            }
        )
    return rows


# Results of items


def _results_folder(quick: bool) -> Path:
    if quick:
        return Path("results/papers-quick")
    return Path("results/papers")


@step("write {item.name}")
def write_item(
    item: PaperItem,
    result: StudyResult,
    seconds: float,
    data: str,
    quick: bool,
    refs: Sequence[FoldsRef] = (),
) -> ReproducedItem:
    """Write the results for a paper's table or figure to files and a page."""
    target = _results_folder(quick) / item.name
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
    facts = _facts_of_computation(item, quick, result, facts)
    figures = dict(result.figures)
    if result.folds is not None and item.is_comparison:
        figures = item_figures(item, result.folds) | figures
    reproduced = ReproducedItem(
        item, result, tuple(f"{name}.png" for name in figures), facts, target
    )
    with atomic_path(target) as folder:
        folder.mkdir()
        if result.folds is not None:
            result.folds.to_parquet(folder / "folds.parquet", index=False)
        for name, figure in figures.items():
            (folder / f"{name}.png").write_bytes(png(figure))
        (folder / "section.md").write_text(
            item_section(reproduced, {}), encoding="utf-8"
        )
        stored = json.dumps(_stored_result(reproduced), indent=1, default=str)
        (folder / "result.json").write_text(stored, encoding="utf-8")
    _publish_page(reproduced)
    return reproduced


def _stored_result(reproduced: ReproducedItem) -> dict[str, Any]:
    return {
        **reproduced.facts,
        "figures": reproduced.figures,
        "values": reproduced.result.values,
        "tables": reproduced.result.tables,
        "summary": summarize(reproduced),
        "cells": [asdict(cell) for cell in reproduced.cells()],
        "claims": [asdict(verdict) for verdict in reproduced.claims()],
    }


def _publish_page(reproduced: ReproducedItem) -> None:
    images = {}
    for name in reproduced.figures:
        content = base64.b64encode((reproduced.folder / name).read_bytes()).decode()
        images[name] = f"data:image/png;base64,{content}"
    item = reproduced.item
    slug = re.sub(r"[^a-z0-9]+", "-", item.name.lower())
    create_markdown_artifact(
        item_section(reproduced, images),
        key=f"paper-{slug}",
        description=f"**{item.paper}, {item.where}**: {item.title}",
    )


def study_digest(item: PaperItem, quick: bool) -> str:
    reduced = None
    if quick and item.quick:
        reduced = item.quick.model_dump(mode="json", exclude={"checks"})
    study = json.loads(json.dumps(item.study, default=str))
    return digest(NUMERICS_VERSION, study, reduced)


def _facts_of_computation(
    item: PaperItem, quick: bool, result: StudyResult, facts: dict[str, Any]
) -> dict[str, Any]:
    """Return facts of an earlier run with equal trials, else `facts`."""
    earlier = read_reproduced(item, quick)
    if earlier is None or earlier.result.folds is None or result.folds is None:
        return facts
    columns = [
        "dataset",
        "learner",
        "repeat",
        "fold",
        "error",
        "seconds_weights",
        "seconds_fit",
    ]
    if not earlier.result.folds[columns].equals(
        result.folds[columns].reset_index(drop=True)
    ):
        return facts
    return {key: earlier.facts.get(key, fact) for key, fact in facts.items()}


def read_reproduced(item: PaperItem, quick: bool) -> ReproducedItem | None:
    """Return a paper's table or figure with stored results; None if missing."""
    folder = _results_folder(quick) / item.name
    path = folder / "result.json"
    if not path.is_file():
        return None
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored["study"] != study_digest(item, quick):
        return None
    folds = None
    if (folder / "folds.parquet").is_file():
        folds = pq.read_table(folder / "folds.parquet", schema=COLUMNS).to_pandas()
    tables = [(caption, rows) for caption, rows in stored["tables"]]
    result = StudyResult(folds, stored["values"], tables)
    return ReproducedItem(item, result, tuple(stored["figures"]), stored, folder)


# Summary of all items


EARLIER = "page of an earlier run"


@step("write the report")
def write_report(
    items: Sequence[PaperItem],
    reasons: Mapping[str, str],
    quick: bool,
    path: str | None = None,
) -> str:
    """Write a page per table or figure, and a summary; return the summary's path.

    `reasons` are statuses of items that were not run or failed.
    """
    reproduced = {}
    for item in items:
        results = read_reproduced(item, quick)
        if results is not None and item.name not in reasons:
            reproduced[item.name] = results
    target = _results_folder(quick) / "reproduction.md"
    if path:
        target = Path(path)
    pages = target.with_suffix("")
    pages.mkdir(parents=True, exist_ok=True)
    for results in reproduced.values():
        _write_page(results, quick, pages)
    statuses = {
        item.name: EARLIER
        for item in items
        if item.name not in reproduced and (pages / f"{item.name}.md").exists()
    }
    text = report_text(items, reproduced, statuses | dict(reasons), quick, pages.name)
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    create_markdown_artifact(
        text,
        key="papers-report",
        description=f"Results of the papers' items; file: {target}.",
    )
    return str(target)


def _write_page(reproduced: ReproducedItem, quick: bool, pages: Path) -> None:
    item = reproduced.item
    for outdated in pages.glob(f"{item.name}.*.png"):
        outdated.unlink()
    images = {figure: f"{item.name}.{figure}" for figure in reproduced.figures}
    for figure, name in images.items():
        shutil.copyfile(reproduced.folder / figure, pages / name)
    readings = {}
    if not quick:
        for name in item.readings:
            results = read_reproduced(item.as_reading(name), False)
            if results is not None:
                readings[name] = results
    front_matter = "---\norphan: true\nnosearch: true\n---\n\n"
    with atomic_path(pages / f"{item.name}.md") as temporary:
        temporary.write_text(
            front_matter + item_section(reproduced, images, readings), encoding="utf-8"
        )


def report_text(
    items: Sequence[PaperItem],
    reproduced: Mapping[str, ReproducedItem],
    statuses: Mapping[str, str],
    quick: bool,
    pages: str,
) -> str:
    """Return the summary of all reproductions as Markdown, with results not reproduced.

    `statuses` belong to items without results; `pages` is the folder of the pages.
    """
    findings = dict(
        zip(reproduced, distinct_findings([*reproduced.values()]), strict=True)
    )
    summaries = {name: finding.summary() for name, finding in findings.items()}
    total = sum_summaries([*summaries.values()])
    places = {}
    for item in items:
        title = f"{item.paper}, {item.where}"
        places[item.name] = link(title, f"{pages}/{item.name}.md")
    machine = ""
    if reproduced:
        machine = _environment_text([results.facts for results in reproduced.values()])
    return render(
        "papers.md",
        TEMPLATES,
        quick=quick,
        done=len(reproduced),
        items=len(items),
        counts=count_rows(total),
        minutes=minutes(total["seconds"]),
        machine=machine,
        overview=_overview(items, summaries, statuses, pages),
        by_paper=_counts_by_paper(items, summaries),
        apart_rule=Markdown(APART_RULE),
        apart=[(places[name], numbers) for name, numbers in _numbers_apart(findings)],
        worth=_search_counts([results.result.folds for results in reproduced.values()]),
        search=GRID_SEARCH_TITLE,
        not_reproduced=[
            (places[name], claim, verdict_text(checks))
            for name, finding in findings.items()
            for claim, checks in finding.claims.items()
            if judge.overall_word(checks) != "holds"
        ],
    )


def _overview(
    items: Sequence[PaperItem],
    summaries: Mapping[str, Summary],
    statuses: Mapping[str, str],
    pages: str,
) -> Rows:
    rows: Rows = []
    for item in items:
        summary = summaries.get(item.name)
        status = "done"
        if summary is None:
            status = statuses.get(
                item.name, "not run: no results of this configuration"
            )
        row: dict[str, Any] = overview_row(item, summary, status)
        if summary is not None or status == EARLIER:
            row["item"] = link(item.name, f"{pages}/{item.name}.md")
        rows.append(row)
    return rows


def _counts_by_paper(
    items: Sequence[PaperItem], summaries: Mapping[str, Summary]
) -> Rows:
    by_paper: dict[str, list[Summary]] = {}
    for item in items:
        if item.name in summaries:
            by_paper.setdefault(item.paper, []).append(summaries[item.name])
    return [
        {"paper": paper, **count_cells(sum_summaries(paper_summaries))}
        for paper, paper_summaries in by_paper.items()
    ]


def _numbers_apart(findings: Mapping[str, Findings]) -> list[tuple[str, str]]:
    numbers_apart = []
    for name, finding in findings.items():
        texts = []
        for number in finding.numbers:
            if not is_within(number, 2):
                texts += [
                    _name_with_distance(cell) for cell in number if not cell.within(2)
                ]
        if texts:
            numbers_apart.append((name, "; ".join(texts)))
    return numbers_apart


def _name_with_distance(cell: Cell) -> str:
    words = (cell.dataset, cell.learner, cell.measure, f"({_distance(cell)})")
    return " ".join(word for word in words if word)


def _search_counts(fold_tables: Sequence[pd.DataFrame | None]) -> Rows:
    counts = []
    for title, excluded in (("all learners", []), ("learners of the papers", ["rfm"])):
        rows = []
        for folds in fold_tables:
            if folds is not None:
                rows += judge.compare_with_search(
                    folds[~folds["learner"].isin(excluded)]
                )
        if not rows:
            continue
        table = pd.DataFrame(rows)
        # Items can share trials, which count once
        verdicts = table.drop_duplicates([*table.columns[:5]], keep="last")[
            "worth it"
        ].value_counts()
        counts.append(
            {
                "best of": title,
                "lower": verdicts.get("yes", 0),
                "higher": verdicts.get("no, the search is better", 0),
                "neither": verdicts.get("no difference", 0),
            }
        )
    return counts


def _environment_text(facts: Sequence[Mapping[str, Any]]) -> str:
    newest = max(facts, key=lambda fact: str(fact["date"]))
    versions = newest["environment"]
    parts = [
        f"{newest['cores']} cores ({versions['machine']})",
        f"Python {versions['python']}",
    ]
    libraries = ("numpy", "scipy", "scikit-learn", "learnkernels")
    parts += [
        f"{library} {versions[library]}" for library in libraries if library in versions
    ]
    dates = sorted(str(fact["date"]) for fact in facts)
    if dates[0] == dates[-1]:
        parts.append(dates[0])
    else:
        parts.append(f"{dates[0]} to {dates[-1]}")
    return ", ".join(parts)


def count_cells(summary: Summary) -> dict[str, str]:
    """Return counts of reproduced results as table cells; earlier tables' are in parentheses."""
    numbers = ""
    within_one = ""
    within_two = ""
    within_two_errors = ""
    if summary["numbers"] or summary["printed_before"]:
        numbers = str(summary["numbers"])
    if summary["printed_before"]:
        numbers += f" (+{summary['printed_before']})"
    if summary["numbers"]:
        within_one = str(summary["within_one"])
        within_two = str(summary["within_two"])
        within_two_errors = str(summary["within_two_errors"])
    return {
        "numbers": numbers,
        "within 1 sd": within_one,
        "within 2 sd": within_two,
        "within 2 se": within_two_errors,
        "tests that agree": _part_of(summary["tests_agree"], summary["tests"]),
        "claims that hold": _part_of(summary["claims_hold"], summary["claims"]),
        "checks that hold": _part_of(summary["checks_hold"], summary["checks"]),
        "checks of seconds": _part_of(
            summary["checks_of_seconds_hold"], summary["checks_of_seconds"]
        ),
        "identities": str(summary["identities"] or ""),
    }


def _part_of(part: int, total: int) -> str:
    if not total:
        return ""
    return f"{part} of {total}"


def overview_row(
    item: PaperItem, summary: Summary | None, status: str
) -> dict[str, str]:
    duration = ""
    if summary:
        duration = minutes(summary["seconds"])
    return {
        "item": item.name,
        "paper": f"{item.paper}, {item.where}",
        **count_cells(summary or sum_summaries([])),
        "minutes": duration,
        "status": status,
    }


def claims_not_reproduced(reproduced: ReproducedItem) -> list[str]:
    """Return a sentence, with evidence, for each claim of the paper that does not hold."""
    sentences = []
    for claim, checks in judge.group_by_claim(reproduced.claims()).items():
        if judge.overall_word(checks) == "holds":
            continue
        reasons = [
            evidence_line(part, check.learners)
            for check in checks
            for part in check.evidence
            if part.word != "holds"
        ]
        sentence = f"{claim.rstrip('.')}. Here: {verdict_text(checks)}"
        if reasons:
            sentence += f" ({'; '.join(reasons)})"
        sentences.append(f"{sentence}.")
    return sentences
