"""Addresses, saved views and notes for MLflow's pages."""

from __future__ import annotations

import base64
import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from .markdown import code, inline_links, plain, render
from .report import SHOWN_VERDICTS

LEVEL = "learnkernels.level"
"""Tag of a run: its level, such as comparison or result."""

RUN = "learnkernels.run"
"""Tag of a run: its flow's result. Tag of an experiment: the newest comparison."""

NOTE_CHARACTERS = 8_000

TAG_CHARACTERS = 5_000

VIEW_TAG = "mlflow.sharedViewState."

MODELS_VIEW = "learnkernels-models"

VIEW_COLUMNS = (
    "metrics.`test_error`",
    "metrics.`p`",
    "metrics.`alignment`",
    "metrics.`seconds`",
    "params.`dataset`",
    "params.`learner`",
)

MODEL_COLUMNS = (
    "metrics.`test_error`",
    "metrics.`relative_error`",
    "metrics.`alignment`",
    "params.`dataset`",
    "params.`learner`",
    "params.`C`",
)


@dataclass(frozen=True)
class SavedView:
    """Saved view of an MLflow experiment: filter, columns and charts."""

    key: str
    name: str
    state: Mapping[str, Any]

    @property
    def tag(self) -> str:
        return VIEW_TAG + self.key

    @property
    def value(self) -> str:
        """Saved view as text of the tag in which MLflow 3.17 keeps it."""
        compressed = zlib.compress(json.dumps(self.state).encode(), 9)
        state = base64.b64encode(compressed).decode()
        now = int(time.time() * 1000)
        return json.dumps(
            {
                "name": self.name,
                "createdAt": now,
                "updatedAt": now,
                "state": f"deflate;{state}",
            }
        )


def view_tag(run: str) -> str:
    return VIEW_TAG + _view_key(run)


def _view_key(run: str) -> str:
    return f"learnkernels-{run}"


def comparison_view(run: str, datasets: Sequence[str]) -> SavedView:
    """Return the MLflow view of a comparison, with charts that its tag can hold."""
    view = _view_of_comparison(run, datasets)
    while len(view.value) > TAG_CHARACTERS:
        datasets = datasets[:-1]
        view = _view_of_comparison(run, datasets)
    return view


def _view_of_comparison(run: str, charted: Sequence[str]) -> SavedView:
    errors = [metric_of_dataset(name) for name in charted]
    charts = [
        _scatter(f"scatter-{i}", error, "alignment") for i, error in enumerate(errors)
    ]
    charts += [_bars(f"bars-{i}", error, "errors") for i, error in enumerate(errors)]
    sections = [
        _section("alignment", "Alignment against test error"),
        _section("errors", "Test error"),
    ]
    state = {
        **_search_settings(
            _filter_of_runs("result", run),
            "metrics.`percent_above_best`",
            ascending=True,
        ),
        **_column_settings(VIEW_COLUMNS),
        "compareRunCharts": charts,
        "compareRunSections": [
            *sections,
            _section("other", "Other metrics", display=False),
        ],
    }
    return SavedView(_view_key(run), f"comparison {run}", state)


def models_view() -> SavedView:
    charts = [
        _bars("error", "test_error", "models"),
        _scatter("scatter", "test_error", "models"),
    ]
    state = {
        **_search_settings(
            _filter_of_runs("model"), "attributes.start_time", ascending=False
        ),
        **_column_settings(MODEL_COLUMNS),
        "compareRunCharts": charts,
        "compareRunSections": [
            _section("models", "Models"),
            _section("other", "Other metrics", display=False),
        ],
    }
    return SavedView(MODELS_VIEW, "models", state)


def metric_of_dataset(name: str) -> str:
    metric = metric_name(name)
    if metric != name:  # another name may have the same allowed characters
        metric = _with_digest(name)
    return f"test_error/{metric}"


def _with_digest(text: str) -> str:
    return f"{metric_name(text)[:90]} {zlib.crc32(text.encode()):08x}"


def metric_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_.\- ]", "_", text)[:100]
    if not name.strip(" ."):  # not a valid file name
        return "_"
    return name


def weight_metrics(kernels: Sequence[str], shares: Iterable[float]) -> dict[str, float]:
    """Return weight shares of the first 100 base kernels as MLflow metrics."""
    names = [metric_name(name) for name in kernels[:100]]
    if len(set(names)) < len(names):
        names = [f"{number} {name}"[:100] for number, name in enumerate(names)]
    return {
        f"weight/{name}": float(share)
        for name, share in zip(names, shares, strict=False)
    }


def relevance_metrics(relevance: Mapping[str, float]) -> dict[str, float]:
    """Return the relevance of features as MLflow metrics, named alike in all runs."""
    counts = Counter(map(metric_name, relevance))
    metrics = {}
    for feature, mean in relevance.items():
        name = metric_name(feature)
        if counts[name] > 1:
            name = _with_digest(feature)
        metrics[f"relevance/{name}"] = mean
    return metrics


def _filter_of_runs(level: str, run: str | None = None) -> str:
    condition = f"tags.`{LEVEL}` = '{level}'"
    if run is not None:
        condition += f" and tags.`{RUN}` = '{run}'"
    return condition


def _search_settings(runs: str, order: str, *, ascending: bool) -> dict[str, Any]:
    return {
        "searchFilter": runs,
        "orderByKey": order,
        "orderByAsc": ascending,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
    }


def _column_settings(columns: Sequence[str]) -> dict[str, Any]:
    name = "attributes.`Run Name`"
    return {
        "selectedColumns": list(columns),
        "columnOrder": [name, *columns, "runDateAndNestInfo", "duration"],
        "columnWidths": {name: 240},
        "runsHiddenMode": "SHOW_ALL",
        "runListHidden": False,
        "viewMaximized": False,
        "groupBy": None,
        "groupsExpanded": {},
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "isAccordionReordered": True,
        "globalLineChartConfig": {
            "xAxisKey": "step",
            "lineSmoothness": 0,
            "selectedXAxisMetricKey": "",
        },
    }


def _scatter(key: str, error: str, section: str) -> dict[str, Any]:
    axes = {
        "xaxis": {"key": "alignment", "type": "METRIC"},
        "yaxis": {"key": error, "type": "METRIC"},
    }
    return {**_chart(key, "SCATTER", section), **axes}


def _bars(key: str, metric: str, section: str) -> dict[str, Any]:
    return {**_chart(key, "BAR", section), "metricKey": metric}


def _chart(key: str, kind: str, section: str) -> dict[str, Any]:
    return {
        "uuid": key,
        "type": kind,
        "metricSectionId": section,
        "runsCountToCompare": 100,
        "deleted": False,
        "isGenerated": False,
    }


def _section(key: str, name: str, *, display: bool = True) -> dict[str, Any]:
    return {
        "uuid": key,
        "name": name,
        "display": display,
        "columns": 2,
        "cardHeight": 320,
        "isReordered": False,
        "deleted": False,
        "isGenerated": False,
    }


def runs_path(
    experiment_id: str,
    level: str = "result",
    run: str | None = None,
    charts: bool = True,
) -> str:
    """Return the path of an experiment's run list, to append to MLflow's URL.

    Comparisons and models have a saved view, which the page ignores next to a filter.
    """
    query = {
        "compareRunsMode": "CHART" if charts else "TABLE",
        "workflowType": "machine_learning",
    }
    if run is not None:
        query["viewStateShareKey"] = _view_key(run)
    elif level == "model":
        query["viewStateShareKey"] = MODELS_VIEW
    else:
        query["searchFilter"] = _filter_of_runs(level)
        query |= {"orderByKey": "metrics.`percent_above_best`", "orderByAsc": "true"}
    return f"#/experiments/{experiment_id}/runs?{urlencode(query, quote_via=quote)}"


def run_path(experiment_id: str, run_id: str, artifact: str | None = None) -> str:
    """Return the path of a run's page or artifact, to append to MLflow's URL."""
    page = f"#/experiments/{experiment_id}/runs/{run_id}"
    if artifact is not None:
        page += f"/artifacts/{artifact}"
    return f"{page}?workflowType=machine_learning"


def experiment_note(experiment_id: str, newest: str | None = None) -> str:
    links = {}
    if newest is not None:
        links["Newest comparison"] = _chart_and_table(experiment_id, "result", newest)
    links["all comparisons"] = _chart_and_table(experiment_id, "result")
    links["models"] = _chart_and_table(experiment_id, "model")
    return render("experiment.md", links=links)


def _chart_and_table(experiment_id: str, level: str, run: str | None = None) -> str:
    return inline_links(
        {
            "chart": runs_path(experiment_id, level, run, charts=True),
            "table": runs_path(experiment_id, level, run, charts=False),
        }
    )


def comparison_note(
    experiment_id: str,
    run_id: str,
    comparison: str,
    verdicts: Sequence[str],
    files: Sequence[str],
    flow_run: str,
) -> str:
    """Return MLflow's note on a comparison: verdicts, figures and links."""
    links = {
        "chart": runs_path(experiment_id, run=comparison),
        "table": runs_path(experiment_id, run=comparison, charts=False),
    }
    for name in sorted(files):
        if name.endswith((".md", ".png")):
            links[name] = run_path(experiment_id, run_id, name)
    links["Prefect"] = flow_run
    return cut(
        render(
            "comparison_note.md",
            links=links,
            verdicts=verdicts,
            shown=SHOWN_VERDICTS,
            run_id=run_id,
        )
    )


def result_note(sentence: str, links: Mapping[str, str], train: str) -> str:
    note = f"{plain(sentence)}\n\n{inline_links(links)}"
    if train:
        note += f"\n\nA model of it: {code(train)}"
    return cut(note)


def cut(note: str) -> str:
    """Shorten a note to MLflow's limit `NOTE_CHARACTERS`, at a line's end."""
    if len(note) <= NOTE_CHARACTERS:
        return note
    hint = "\n\n... the whole report is among the artifacts."
    end = note.rfind("\n", 0, NOTE_CHARACTERS - len(hint))
    return note[:end] + hint
