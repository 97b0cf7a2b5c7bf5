"""The command `learnkernels papers`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from learnkernels.flows.cli import GOES_ON, Verbose, app, err, say, show_table, user_errors
from learnkernels.flows.functions import prefect_runs, set_up

if TYPE_CHECKING:
    from .item import PaperItem


@app.command()
def papers(
    names: Annotated[
        list[str] | None, typer.Argument(help="Items, e.g. jmlr2012-table2; all by default.", metavar="ITEM")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the items.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Run reduced versions.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the data files; OpenML by default.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Summary to write; pages of items go to a folder of that name.")
    ] = None,
    only_report: Annotated[bool, typer.Option("--only-report", help="Write the report of earlier results.")] = False,
    items: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of items; the five papers by default.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Reproduce tables and figures of the papers.

    Write results/papers/ITEM and a report (with --quick: results/papers-quick). The exit code is 1 if an item or a
    check fails.
    """
    from .item import PAPERS, choose_items, data_folder

    folder = items or PAPERS
    with user_errors(f"what was computed is kept, {GOES_ON}"):
        chosen = choose_items(names or [], folder, quick)
        if listed:
            shown = [{"item": one.name, "paper": one.paper, "where": one.where, "title": one.title} for one in chosen]
            show_table(shown, folded=("where", "title"))
            return
        source = None if only_report else data_folder(str(data_dir) if data_dir else None, folder)
        set_up(verbose)
        from .flow import papers as flow
        from .flow import report_papers

        with prefect_runs("papers"):
            if only_report:
                result = report_papers(str(folder), quick, str(report) if report else None)
            else:
                if source is None:
                    err.print("there is no folder of data files; sets are fetched from OpenML, where it has them.")
                result = flow(names or [], str(folder), source, quick, str(report) if report else None)
    _show_papers(result, {one.name: one for one in chosen})


def _show_papers(result: Mapping[str, Any], items: Mapping[str, PaperItem]) -> None:
    """Print what became of each item, what does not hold, and what failed; the report comes last."""
    from .judge import total
    from .report import overview_row

    outcomes = result["outcomes"]
    if outcomes:
        rows = [overview_row(items[one["item"]], one["summary"], one["status"]) for one in outcomes]
        show_table(rows, "the papers, reproduced", [*rows[0]][2:])
        of = total([one["summary"] for one in outcomes if one["summary"]])
        numbers = f"numbers {of['within_two']} of {of['numbers']} within 2 sd; " if of["numbers"] else ""
        say(f"{numbers}claims {of['claims_hold']} of {of['claims']} hold")
    say(
        *(f"not reproduced: {one['item']}: {sentence}" for one in outcomes for sentence in one["not_holding"]),
        *(f"check fails: {sentence}" for one in outcomes for sentence in one["failing"]),
        *(f"{one['status']}: {one['item']}: {one['reason']}" for one in outcomes if one["status"] != "done"),
        f"report: {result['report']}",
    )
    ran = any(one["status"] == "done" for one in outcomes)
    if any(one["status"] == "failed" or one["failing"] for one in outcomes) or (outcomes and not ran):
        raise typer.Exit(1)
