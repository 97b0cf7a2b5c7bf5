"""What the pages of MLflow say above their tables and charts, and where these pages are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from learnkernels.tasks.evidence.markdown import code, inline_links, plain, render

LEVEL = "learnkernels.level"
"""Tag that says what a run is: a comparison, a result, a model, a decision."""

RUN = "learnkernels.run"
"""Tag of the comparison, training or decision that a run belongs to; of an experiment, of its newest comparison."""

NOTE_CHARACTERS = 8_000
"""MLflow cuts a tag, and so a note, after as many."""

SHOWN_VERDICTS = 20
"""Sentences that the note of a comparison holds, two per data set; the report has them all."""


def runs_path(experiment_id: str, level: str = "result", run: str | None = None, charts: bool = True) -> str:
    """Return the place of an experiment's runs of a level, below the address of the UI.

    Those of one comparison are sorted by `percent_above_best`, so that the winners come first, others by time.
    """
    query = {"searchFilter": f"tags.`{LEVEL}` = '{level}'"}
    if run is not None:
        query["searchFilter"] += f" and tags.`{RUN}` = '{run}'"
        query |= {"orderByKey": "metrics.`percent_above_best`", "orderByAsc": "true"}
    query |= {"compareRunsMode": "CHART" if charts else "TABLE", "workflowType": "machine_learning"}
    return f"#/experiments/{experiment_id}/runs?{urlencode(query, quote_via=quote)}"


def run_path(experiment_id: str, run_id: str, artifact: str | None = None) -> str:
    """Return the place of a run's page, or of one of its artifacts, below the address of the UI."""
    place = "" if artifact is None else f"/artifacts/{artifact}"
    return f"#/experiments/{experiment_id}/runs/{run_id}{place}?workflowType=machine_learning"


def experiment_note(experiment_id: str, newest: str | None = None) -> str:
    """Return the note of an experiment: links to the newest comparison, to all and to models, and how to read them."""

    def links(level: str, run: str | None = None) -> str:
        chart, table = (runs_path(experiment_id, level, run, charts) for charts in (True, False))
        return inline_links({"chart": chart, "table": table})

    ways = {"all comparisons": links("result"), "models": links("model")}
    if newest is not None:
        ways = {"Newest comparison": links("result", newest), **ways}
    return render("experiment.md", ways=ways)


def comparison_note(
    experiment_id: str, run_id: str, comparison: str, verdicts: Sequence[str], files: Sequence[str], flow_run: str
) -> str:
    """Return the note of a comparison: the winners, the figure, and links to the rest.

    Parameters
    ----------
    experiment_id, run_id : str
        Of the comparison.
    comparison : str
        Its name in the tags of its results.
    verdicts : sequence of str
        Two sentences per data set.
    files : sequence of str
        Names of its artifacts.
    flow_run : str
        Address of the flow run in Prefect.
    """
    links = {
        "chart": runs_path(experiment_id, run=comparison),
        "table": runs_path(experiment_id, run=comparison, charts=False),
        **{name: run_path(experiment_id, run_id, name) for name in sorted(files) if name.endswith((".md", ".png"))},
        "Prefect": flow_run,
    }
    return cut(render("comparison_note.md", links=links, verdicts=verdicts, shown=SHOWN_VERDICTS, run_id=run_id))


def result_note(what: str, links: Mapping[str, str], train: str) -> str:
    """Return the note of a result: what it measured, the comparison it belongs to, and the command that trains it."""
    model = f"\n\nA model of it: {code(train)}" if train else ""
    return cut(f"{plain(what)}\n\n{inline_links(links)}{model}")


def cut(note: str) -> str:
    """Return a note that MLflow keeps whole: cut at the end of a line, which then reports it."""
    if len(note) <= NOTE_CHARACTERS:
        return note
    rest = "\n\n... the whole report is among the artifacts."
    return note[: note.rfind("\n", 0, NOTE_CHARACTERS - len(rest))] + rest
