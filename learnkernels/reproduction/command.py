"""The command `learnkernels papers`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from learnkernels.flows.cli import (
    GOES_ON,
    Verbose,
    app,
    err,
    say,
    show_table,
    user_errors,
)
from learnkernels.flows.functions import Caller, prefect_runs, set_up

if TYPE_CHECKING:
    from .item import PaperItem


@app.command()
def papers(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Items, e.g. jmlr2012-table2; all by default.", metavar="ITEM"
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the items.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run reduced versions.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of data files; by default ../shared/data or OpenML.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Summary to write; pages of items go to a folder of that name.",
        ),
    ] = None,
    only_report: Annotated[
        bool, typer.Option("--only-report", help="Write the report of earlier results.")
    ] = False,
    items: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of items; the five papers by default."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Reproduce tables and figures of the papers.

    Write results/papers/ITEM and a report (with --quick: results/papers-quick). The
    exit code is 1 if an item or a check fails.
    """
    from .item import PAPERS, choose_items, data_folder

    folder = items or PAPERS
    with user_errors(f"what was computed is kept, {GOES_ON}"):
        chosen = choose_items(names or [], folder, quick)
        if listed:
            _list_items(chosen)
            return
        source = None
        if not only_report:
            source = data_folder(str(data_dir) if data_dir else None, folder)
        caller = Caller(by_command=True, verbose=verbose)
        set_up(caller)
        # `--list` and errors of the user need no server
        from .flow import papers as papers_flow
        from .flow import report_papers

        report_path = None
        if report:
            report_path = str(report)
        with prefect_runs("papers", caller):
            if only_report:
                result = report_papers(str(folder), quick, report_path)
            else:
                if source is None:
                    err.print(
                        "there is no folder of data files; sets are fetched from OpenML, where it has them."
                    )
                result = papers_flow(
                    names or [], str(folder), source, quick, report_path
                )
    _print_result(result, {item.name: item for item in chosen})


def _list_items(items: list[PaperItem]) -> None:
    rows = [
        {
            "item": item.name,
            "paper": item.paper,
            "where": item.where,
            "title": item.title,
        }
        for item in items
    ]
    show_table(rows, folded=("where", "title"))


def _print_result(result: Mapping[str, Any], items: Mapping[str, PaperItem]) -> None:
    from .counts import count_rows, sum_summaries
    from .report import overview_row

    outcomes = result["outcomes"]
    if outcomes:
        rows = [
            overview_row(items[outcome["item"]], outcome["summary"], outcome["status"])
            for outcome in outcomes
        ]
        show_table(rows, "the papers, reproduced", [*rows[0]][2:])
        total = sum_summaries(
            [outcome["summary"] for outcome in outcomes if outcome["summary"]]
        )
        counts = count_rows(total)
        if counts:
            show_table(counts, "counts", folded=("count", "rule"))
    lines = []
    for outcome in outcomes:
        lines += [
            f"not reproduced: {outcome['item']}: {sentence}"
            for sentence in outcome["not_holding"]
        ]
    for outcome in outcomes:
        lines += [f"check fails: {sentence}" for sentence in outcome["failing"]]
    for outcome in outcomes:
        if outcome["status"] != "done":
            lines.append(f"{outcome['status']}: {outcome['item']}: {outcome['reason']}")
    say(*lines, f"report: {result['report']}")
    if outcomes and not _succeeded(outcomes):
        raise typer.Exit(1)


def _succeeded(outcomes: list[Mapping[str, Any]]) -> bool:
    if any(outcome["status"] == "failed" or outcome["failing"] for outcome in outcomes):
        return False
    return any(outcome["status"] == "done" for outcome in outcomes)
