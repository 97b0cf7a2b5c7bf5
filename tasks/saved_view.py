"""A saved view of the MLflow UI: it opens on the chart alignment against error, with the columns that matter.

MLflow keeps a shared view as an experiment tag. The tag is not documented, so treat the view as best effort: where a
later version does not know it, the link opens MLflow's own default.
"""

from __future__ import annotations

import base64
import json
import zlib

from matplotlib import colormaps
from matplotlib.colors import to_hex

KEY = "learnkernels"
NAME = "alignment against error"
SCATTER = ("alignment", "relative_error")
BARS = ("test_error", "alignment", "relative_error")
COLUMNS = (
    "params.dataset",
    "params.learner",
    "params.predictor",
    "metrics.test_error",
    "metrics.test_error_sd",
    "metrics.relative_error",
    "metrics.alignment",
    "metrics.alignment_sd",
)
FILTER = "tags.`learnkernels.level` = 'result'"


def view_tag() -> tuple[str, str]:
    """Return key and value of the experiment tag that holds the view."""
    x, y = ({"key": metric, "type": "METRIC"} for metric in SCATTER)
    charts: list[dict[str, object]] = [{"type": "SCATTER", "xaxis": x, "yaxis": y}]
    charts += [{"type": "BAR", "metricKey": metric} for metric in BARS]
    # The UI draws every other metric too; their sections follow ours, folded.
    sections = {KEY: NAME, "fold": "fold", "weight": "weight", "other": "Model metrics"}
    columns = ["{}.`{}`".format(*column.split(".", 1)) for column in COLUMNS]
    state = {
        "searchFilter": FILTER,
        "orderByAsc": True,
        "selectedColumns": columns,
        "columnOrder": columns,
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": [chart | {"uuid": f"{KEY}-{i}", "metricSectionId": KEY} for i, chart in enumerate(charts)],
        "compareRunSections": [
            {"uuid": uuid, "name": title, "display": uuid == KEY} for uuid, title in sections.items()
        ],
        "isAccordionReordered": True,
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    view = {"name": NAME, "createdAt": 0, "state": f"deflate;{packed}"}
    return f"mlflow.sharedViewState.{KEY}", json.dumps(view)


def view_path(experiment_id: str, charts: bool = True) -> str:
    """Return the place of the view below the address of the UI, as charts or as a table."""
    mode = "CHART" if charts else "TABLE"
    return (
        f"#/experiments/{experiment_id}/runs?viewStateShareKey={KEY}&compareRunsMode={mode}"
        "&workflowType=machine_learning"
    )


def run_path(experiment_id: str, run_id: str) -> str:
    """Return the place of a run's page below the address of the UI."""
    return f"#/experiments/{experiment_id}/runs/{run_id}?workflowType=machine_learning"


def run_color(position: int) -> str:
    """Return the colour of the learner at a position of the run, the same in MLflow's charts and in the figures."""
    palette = [color for name in ("tab10", "Set2", "Dark2") for color in colormaps[name].colors]  # type: ignore[attr-defined]
    return to_hex(palette[position % len(palette)])
