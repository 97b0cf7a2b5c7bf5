"""What the pages of MLflow say above their tables and charts: Markdown, short enough for MLflow to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from learnkernels.tasks.evidence.markdown import code, inline_links, plain
from learnkernels.tasks.evidence.saved_view import HISTORY, MODELS, NEWEST, View, run_path, view_path

NOTE_CHARACTERS = 8_000
"""MLflow cuts a tag, and so a note, after as many."""

SHOWN_VERDICTS = 20
"""Data sets whose verdict a sweep's note holds; the report has them all."""

READING = """\
**The way here.** MLflow starts as *GenAI*: choose *Model training*, top left, once. Then the chart is two clicks from \
the start page: the experiment, and the first link above. Colour = learner.

| run | holds |
|---|---|
| *data set learner* | one result: a learner on a data set, mean over trials |
| *sweep* | a whole comparison: figure, report, tables, configuration |
| *train* | a model and its registered version |
| *promote* | champion against challenger, and the decision |

| metric | meaning |
|---|---|
| `test_error` | misclassified share, root mean squared error, or what parameter `metric` says, less being better, on \
rows that nothing was learned or chosen from |
| `percent_above_best` | that above the lowest of the data set, in percent: the winner has 0, and no bar; \
`alignment_over_best` likewise, the highest alignment having 1 |
| `relative_error` | test error over the error of the best constant: 1 has learned nothing |
| `alignment` | centered alignment of the learned kernel with the target on its training rows, from 0 to 1 |
| `certificate` | how far a learner stopped from its optimum (KKT residual or duality gap, relative), the largest over \
trials; none where there is a formula |
| `weight/k000` ... | share of each base kernel |
| `fold/...` | the same, trial by trial |
| `objective`, `found/...` | objective after each iteration; sigma and share of kernels that were searched |

Learners without a bar in *percent above best* win their data set, and good ones lie to the lower right of \
*alignment against error*. Side by side: tick runs, then *Compare*. Versions \
of one model: *Model registry*, the model, tick versions, then *Compare*.
"""


def experiment_note(experiment_id: str) -> str:
    """Return the note of an experiment: where the views are, and how to read them."""

    def link(text: str, view: View = NEWEST, charts: bool = True) -> str:
        return f"[{text}]({view_path(experiment_id, view, charts)})"

    return (
        f"Alignment against error: {link('chart')} · {link('table', charts=False)} · "
        f"all comparisons: {link('chart', HISTORY)} · {link('table', HISTORY, False)} · "
        f"models: {link('side by side', MODELS)} · {link('table', MODELS, False)}\n\n{READING}"
    )


def sweep_note(experiment_id: str, run_id: str, verdicts: Sequence[str], files: Sequence[str], flow_run: str) -> str:
    """Return the note of a comparison: who wins, the figure, and where the rest is.

    Parameters
    ----------
    experiment_id, run_id : str
        Of the sweep.
    verdicts : sequence of str
        A sentence a data set.
    files : sequence of str
        Names of its artifacts.
    flow_run : str
        Address of the flow run in Prefect.
    """
    shown = [f"- {plain(sentence)}" for sentence in verdicts[:SHOWN_VERDICTS]]
    if len(verdicts) > SHOWN_VERDICTS:
        shown.append(f"- ... and {len(verdicts) - SHOWN_VERDICTS} more data sets in the report")
    links = {
        "chart": view_path(experiment_id),
        "table": view_path(experiment_id, charts=False),
        **{name: run_path(experiment_id, run_id, name) for name in sorted(files) if name.endswith((".md", ".png"))},
        "Prefect": flow_run,
    }
    figure = f"get-artifact?path=alignment_vs_error.png&run_uuid={run_id}"
    return _cut("\n".join([inline_links(links), "", *shown, "", f"![alignment against error]({figure})"]))


def result_note(experiment_id: str, what: str, sweep_run: str, sweep_name: str, flow_run: str, train: str) -> str:
    """Return the note of a result: what it measured, the comparison it belongs to, and the command that trains it."""
    links = {
        sweep_name: run_path(experiment_id, sweep_run),
        "chart": view_path(experiment_id),
        "Prefect": flow_run,
    }
    model = f"\n\nA model of it: {code(train)}" if train else ""
    return _cut(f"{plain(what)}\n\n{inline_links(links)}{model}")


def run_note(report: str, links: Mapping[str, str]) -> str:
    """Return the note of a training or a decision: where the rest is, and its report as far as MLflow keeps it."""
    return _cut(f"{inline_links(links)}\n\n{report}")


def _cut(note: str) -> str:
    """Return a note that MLflow keeps whole: cut at the end of a line, which then says so."""
    if len(note) <= NOTE_CHARACTERS:
        return note
    rest = "\n\n... the whole report is among the artifacts."
    return note[: note.rfind("\n", 0, NOTE_CHARACTERS - len(rest))] + rest
