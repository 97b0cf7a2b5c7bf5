"""Saved views of the MLflow UI: charts and columns that matter, one click below an experiment's note.

MLflow keeps a shared view as an experiment tag. The tag is not documented, so treat the views as best effort: where a
later version does not know it, the link opens MLflow's own default.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass

PREFIX = "mlflow.sharedViewState."
"""What the tags of shared views begin with."""

LEVEL = "learnkernels.level"
"""Tag that says what a run is: a sweep, a result, a model, a decision."""

RUN = "learnkernels.run"
"""Tag that names the comparison, training or decision a run belongs to."""


Chart = dict[str, object]

LAYOUT: Chart = {"columns": 2, "cardHeight": 480}
"""Of the section of ours: in three columns and 360 pixels, the bars of twenty learners are lines."""


@dataclass(frozen=True)
class View:
    """One saved view.

    Attributes
    ----------
    key : str
        Its name in addresses.
    title : str
        Its name on the page.
    level : str
        Which runs it shows.
    columns : tuple of str
        Of the table, in order: `params.x`, `metrics.x` or `tags.x`.
    charts : tuple of dict
        In order, as the UI keeps them.
    newest_first : bool
    order : str
        The metric by which runs are sorted otherwise, the lowest first; in the order of the run without one.
    """

    key: str
    title: str
    level: str
    columns: tuple[str, ...]
    charts: tuple[Chart, ...]
    newest_first: bool = False
    order: str = ""


def _scatter(x: str, y: str) -> Chart:
    return {
        "type": "SCATTER",
        "xaxis": {"key": x, "type": "METRIC"},
        "yaxis": {"key": y, "type": "METRIC"},
        "runsCountToCompare": 1000,
    }


def _bar(metric: str) -> Chart:
    return {
        "type": "BAR",
        "metricKey": metric,
        "displayName": metric.replace("_", " "),
        "runsCountToCompare": 1000,
    }


MEASURED = ("metrics.test_error", "metrics.test_error_sd", "metrics.relative_error", "metrics.alignment")
RESULT_COLUMNS = (
    "params.dataset",
    "params.learner",
    "params.predictor",
    "metrics.percent_above_best",
    *MEASURED,
    "metrics.certificate",
)
RESULT_CHARTS = (
    _bar("percent_above_best"),
    _scatter("alignment_over_best", "percent_above_best"),
    _bar("alignment"),
    _bar("test_error"),
)
NEWEST = View(
    "learnkernels", "alignment against error", "result", RESULT_COLUMNS, RESULT_CHARTS, order="percent_above_best"
)
"""The newest comparison of an experiment, the winners of its data sets first."""

HISTORY = View(
    "learnkernels-all",
    "alignment against error, all comparisons",
    "result",
    (f"tags.{RUN}", *RESULT_COLUMNS),
    RESULT_CHARTS,
    newest_first=True,
)
MODELS = View(
    "learnkernels-models",
    "models side by side",
    "model",
    ("tags.model", "tags.model_version", "params.dataset", "params.learner", *MEASURED, "metrics.regularisation"),
    (
        _bar("relative_error"),
        _bar("test_error"),
        _bar("alignment"),
        _scatter("alignment", "relative_error"),
        {
            "type": "DIFFERENCE",
            "chartName": "What differs",
            "compareGroups": ["Model metrics", "Parameters", "Tags"],
            "showChangeFromBaseline": True,
            "showDifferencesOnly": True,
            "baselineColumnUuid": "",
        },
    ),
    newest_first=True,
)


def view_tag(view: View, run_id: str | None = None) -> tuple[str, str]:
    """Return key and value of the experiment tag that holds a view, of all runs or of those of one comparison."""
    # The UI draws every other metric too; their sections follow ours, folded.
    sections = {
        view.key: view.title,
        "fold": "fold",
        "found": "found",
        "weight": "weight",
        "other": "Model metrics",
    }
    columns = ["{}.`{}`".format(*column.split(".", 1)) for column in view.columns]
    only = f" and tags.`{RUN}` = '{run_id}'" if run_id else ""
    state = {
        "searchFilter": f"tags.`{LEVEL}` = '{view.level}'{only}",
        "orderByAsc": not view.newest_first,
        **({"orderByKey": f"metrics.`{view.order}`"} if view.order else {}),
        "selectedColumns": columns,
        "columnOrder": columns,
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": [
            chart | {"uuid": f"{view.key}-{i}", "metricSectionId": view.key} for i, chart in enumerate(view.charts)
        ],
        "compareRunSections": [
            {"uuid": uuid, "name": title, "display": uuid == view.key, **(LAYOUT if uuid == view.key else {})}
            for uuid, title in sections.items()
        ],
        "isAccordionReordered": True,
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    return f"{PREFIX}{view.key}", json.dumps({"name": view.title, "createdAt": 0, "state": f"deflate;{packed}"})


def view_path(experiment_id: str, view: View = NEWEST, charts: bool = True) -> str:
    """Return the place of a view below the address of the UI, as charts or as a table."""
    mode = "CHART" if charts else "TABLE"
    return (
        f"#/experiments/{experiment_id}/runs?viewStateShareKey={view.key}&compareRunsMode={mode}"
        "&workflowType=machine_learning"
    )


def run_path(experiment_id: str, run_id: str, artifact: str | None = None) -> str:
    """Return the place of a run's page, or of one of its artifacts, below the address of the UI."""
    place = "" if artifact is None else f"/artifacts/{artifact}"
    return f"#/experiments/{experiment_id}/runs/{run_id}{place}?workflowType=machine_learning"
