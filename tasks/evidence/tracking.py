"""The evidence in MLflow: flat runs that its table and charts compare, and one of the comparison with the report."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote, urlencode, urlsplit
from uuid import UUID

import mlflow
import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Dataset as TrackedDataset
from mlflow.entities import DatasetInput, InputTag, Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from prefect import get_run_logger, runtime
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_UI_URL
from prefect.states import Crashed
from sqlalchemy.exc import SQLAlchemyError

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import BASELINE_TITLES, CompareConfig, TrackingConfig, grid_values
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.evidence import tables
from learnkernels.tasks.evidence.databases import mlflow_store, mlflow_ui
from learnkernels.tasks.evidence.figures import learner_colors
from learnkernels.tasks.evidence.markdown import code, inline_links, link, plain, render
from learnkernels.tasks.evidence.report import SHOWN_VERDICTS, verdicts
from learnkernels.tasks.measure.baseline import ALPHAS, BOOSTING, GRID_SEARCH, LEAVES, RATES, kinds_of
from learnkernels.tasks.measure.evaluation import FoldsRef, predictor_options
from learnkernels.tasks.measure.statistics import planned_trials
from learnkernels.tasks.naming import file_name, step
from learnkernels.tasks.stopping import Stopped, last_word, requested
from learnkernels.tasks.store import Owner

LEVEL = "learnkernels.level"
"""Tag that says what a run is: a comparison, a result, a model, a decision."""

RUN = "learnkernels.run"
"""Tag of the comparison, training or decision that a run belongs to; of an experiment, of its newest comparison."""

NOTE_CHARACTERS = 8_000
"""MLflow cuts a tag, and so a note, after as many."""


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


NOTE = "mlflow.note.content"
MEANS = {
    "error_mean": "test_error",
    "error_sd": "test_error_sd",
    "relative_error": "relative_error",
    "alignment_mean": "alignment",
    "alignment_sd": "alignment_sd",
    "test_alignment_mean": "test_alignment",
    "seconds_weights": "seconds_weights",
    "seconds_fit": "seconds_fit",
    "certificate": "certificate",
    "iterations": "iterations",
}
"""Column of a summary -> metric of its run."""
EACH_TRIAL = {
    "error": "fold/test_error",
    "alignment": "fold/alignment",
    "regularisation": "fold/regularisation",
    "certificate": "fold/certificate",
    "iterations": "fold/iterations",
}
"""Column of the fold table -> metric of its run, with a step each trial."""
SHOWN_WEIGHTS = 100
"""Base kernels whose shares are metrics."""
PARAM_CHARACTERS = 6_000
"""MLflow refuses a longer parameter."""
OWNER = "learnkernels.owner"
RESULTS = "learnkernels.results"
"""Tag of a run: its folder below `results/`, as seen from the working directory."""
DEPLOYMENT = "learnkernels.deployment"
"""Tag of a run that a deployment has started: the deployment's name."""
Level = Literal["sweep", "result", "model", "decision"]
"""What an MLflow run is: a comparison, a learner on a data set in it, a trained model, a challenge of the champion."""
TRIES = 5
"""How often what two runs add at once is tried."""
ABANDONED = "The process of this run ended unexpectedly; start the same command again and it resumes from there."
PREFECT_UI = "http://127.0.0.1:4200"
"""Where `learnkernels ui` shows the flow runs of the working directory, by default."""


@dataclass(frozen=True)
class TrackedRun:
    """The MLflow run of a whole flow: a comparison, a training, a decision; `name` is that of its results."""

    experiment_id: str
    run_id: str
    flow_run_id: str
    name: str = ""

    @property
    def url(self) -> str:
        """Address of its page; for a local store, where `learnkernels ui` shows it."""
        return f"{mlflow_ui()}/{run_path(self.experiment_id, self.run_id)}"

    @property
    def chart_url(self) -> str:
        """Address of the charts of a comparison's results."""
        return f"{mlflow_ui()}/{runs_path(self.experiment_id, run=self.name)}"

    @property
    def models_url(self) -> str:
        """Address of the table of the experiment's models, side by side."""
        return f"{mlflow_ui()}/{runs_path(self.experiment_id, 'model', charts=False)}"

    @property
    def flow_run_url(self) -> str:
        """Address of the flow run in Prefect, its artifacts first."""
        server = PREFECT_UI_URL.value() or PREFECT_UI
        pages = "" if "prefect.cloud" in server else "/v2"  # where Prefect's start page leads
        return f"{server.rstrip('/')}{pages}/runs/flow-run/{self.flow_run_id}?tab=Artifacts"


@contextmanager
def tracked_run(name: str, tracking: TrackingConfig, level: Level, run_name: str, run_id: str) -> Iterator[TrackedRun]:
    """Hold the MLflow run of a flow open; it ends FINISHED, or FAILED with the reason after an error.

    `name` is that of its experiment, where `tracking` names none.

    Runs that a killed process of this machine left open in the experiment are closed first.

    Raises
    ------
    InputError
        The tracking store cannot be reached.
    """
    with mlflow_store() as client:
        experiment_id = _experiment(client, tracking.experiment or name, run_id if level == "sweep" else None)
    _close_abandoned(client, experiment_id)
    flow_run_id, tracked = str(runtime.flow_run.id), None
    tags = _tags(tracking, level, run_id, flow_run_id)
    with last_word(lambda: _end(client, experiment_id, run_id, "KILLED")):
        try:
            run = client.create_run(experiment_id, run_name=run_name, tags=tags)
            tracked = TrackedRun(experiment_id, run.info.run_id, flow_run_id, run_id)
            yield tracked
        except BaseException as error:
            failed = isinstance(error, Exception) and not requested()  # libraries turn a signal into errors of theirs
            reason = f"Failed: {error}" if failed else "Stopped by the user."
            with mlflow_store():
                if tracked is not None:
                    client.set_tag(tracked.run_id, NOTE, f"{plain(reason)}\n\n{link('Prefect', tracked.flow_run_url)}")
                _end(client, experiment_id, run_id, "FAILED" if failed else "KILLED")
                if isinstance(error, MlflowException | SQLAlchemyError):
                    raise
            if requested():
                raise Stopped from error
            raise
        client.set_terminated(tracked.run_id, "FINISHED")


def _end(client: MlflowClient, experiment_id: str, run_id: str, status: str) -> None:
    """End what a flow has left open: its own run, even one that was being made, and those of its results."""
    ours = f"attributes.status = 'RUNNING' and tags.`{RUN}` = '{run_id}' and tags.`{OWNER}` = '{Owner.this()}'"
    for run in client.search_runs([experiment_id], ours):
        client.set_terminated(run.info.run_id, status)


def _tags(tracking: TrackingConfig, level: Level, run_id: str, flow_run_id: str) -> dict[str, str]:
    """Return the tags of a run, those of the configuration last."""
    deployment = {} if runtime.deployment.name is None else {DEPLOYMENT: str(runtime.deployment.name)}
    of_run = {LEVEL: level, OWNER: str(Owner.this()), RUN: run_id, "prefect.flow_run_id": flow_run_id}
    return {**of_run, **deployment, **tracking.tags}


def _experiment(client: MlflowClient, name: str, comparison: str | None) -> str:
    """Return the experiment of a name, made if missing, with its note, which leads to the comparison."""
    found = client.get_experiment_by_name(name)
    if found is not None and found.lifecycle_stage == "deleted":
        raise InputError(f"MLflow experiment {name!r} is deleted; restore it, or choose another tracking.experiment.")
    local = not mlflow.get_tracking_uri().startswith("http")
    artifacts = (Path.cwd() / "mlartifacts" / file_name(name)).as_uri() if local else None
    if found is None:
        try:
            experiment_id = str(client.create_experiment(name, artifact_location=artifacts))
        except MlflowException as error:
            made = client.get_experiment_by_name(name)  # by another process, just now
            if error.error_code != "RESOURCE_ALREADY_EXISTS" or made is None:
                raise
            experiment_id = str(made.experiment_id)
    else:
        experiment_id = str(found.experiment_id)
    newest = comparison or (found.tags.get(RUN) if found else None)
    tags = {NOTE: experiment_note(experiment_id, newest)} | ({RUN: newest} if newest else {})
    for key, value in tags.items():
        _add(partial(client.set_experiment_tag, experiment_id, key, value))
    return experiment_id


def _close_abandoned(client: MlflowClient, experiment_id: str) -> None:
    """Close the open runs, here and in Prefect, whose process no longer lives; only this machine's can be told."""
    for run in client.search_runs([experiment_id], "attributes.status = 'RUNNING'"):
        owner = Owner.read(run.data.tags.get(OWNER, ""))
        if owner is not None and owner.gone:
            client.set_tag(run.info.run_id, NOTE, ABANDONED)
            client.set_terminated(run.info.run_id, "KILLED")
            with get_client(sync_client=True) as prefect, suppress(ObjectNotFound, ValueError):  # of another Prefect
                flow_run = prefect.read_flow_run(UUID(run.data.tags.get("prefect.flow_run_id", "")))
                if flow_run.state is not None and not flow_run.state.is_final():
                    prefect.set_flow_run_state(flow_run.id, Crashed(message=ABANDONED), force=True)


@step("track {folds.learner} on {ref.name}")
def track_result(sweep: TrackedRun, config: CompareConfig, ref: DatasetRef, folds: FoldsRef) -> str:
    """Log one (data set, learner) as one flat MLflow run and return its id."""
    client = MlflowClient()
    table = tables.read_folds([folds])
    summary = tables.summarize(table)
    row, (shown,) = summary.iloc[0], tables.display_table(summary)
    aligned = "".join(f", {name} {shown[name]}" for name in ("alignment", "weights from") if name in shown)
    what = f"{folds.learner} with {folds.predictor} on {ref.name}: {row.metric} {shown['test error']}{aligned}."
    settings = ["results", config.name, sweep.name, "config.yaml"]
    train = ["learnkernels", "train", "/".join(settings), "--dataset", ref.name, "--learner", folds.learner]
    train += ["--register", config.name]
    links = {
        f"comparison {sweep.name}": run_path(sweep.experiment_id, sweep.run_id),
        "chart": runs_path(sweep.experiment_id, run=sweep.name),
        "Prefect": sweep.flow_run_url,
    }
    own = {learner.title: learner.name for learner in config.learners}
    colors = learner_colors(own | {BASELINE_TITLES[kind]: kind for kind in kinds_of(config)})
    own_tags = {
        "learnkernels.sweep": sweep.run_id,
        "dataset_digest": ref.digest,
        "mlflow.runColor": colors[folds.learner],
        NOTE: result_note(what, links, shlex.join(train) if folds.learner in own else ""),
    } | ({"predictor_reason": row.predictor_reason} if row.predictor_reason else {})
    run = client.create_run(
        sweep.experiment_id,
        run_name=f"{ref.name} {folds.learner}",
        tags=own_tags | _tags(config.tracking, "result", sweep.name, sweep.flow_run_id),
    )
    _log_inputs(client, run.info.run_id, [ref])
    client.log_batch(
        run.info.run_id,
        metrics=_metrics(row, table, len(planned_trials(config.protocol, ref.ordered))),
        params=[Param(key, str(value)) for key, value in _params(config, ref, row, folds).items()],
    )
    client.set_terminated(run.info.run_id)
    return str(run.info.run_id)


def _params(config: CompareConfig, ref: DatasetRef, row: pd.Series, folds: FoldsRef) -> dict[str, object]:
    """Return the parameters of a result: of the data set, the protocol, the learner or baseline, and its predictor."""
    protocol, baseline = config.protocol, config.baseline
    params: dict[str, object] = {
        "dataset": ref.name, "task": ref.task,
        **{name: row[name] for name in ("learner", "algorithm", "predictor", "metric", "n_kernels")},
        "n_rows": ref.n_rows, "n_features": ref.n_features,
        "normalise": config.normalize, "centering": config.centering,
        **({"folds": protocol.folds} if protocol.split is None else {}),
        **{f"split.{key}": rows for key, rows in protocol.split or () if rows is not None},
        **{f"choose.{key}": value for key, value in protocol.choose or ()},
        **({"refit": True} if protocol.refit else {}),
        **next(of.sample_columns for of in config.datasets if of.label == ref.name),
        "repeats": protocol.repeats, "seed": protocol.seed,
    }  # fmt: skip
    if not np.isnan(row.n_sampled):
        params |= {"sampled_rows": round(row.n_sampled), "sampled_of": round(row.n_train)}
        params["sample"] = config.statistics.sample
    settings: dict[str, object] = {}
    learner = next((learner for learner in config.learners if learner.title == folds.learner), None)
    if learner is not None:
        options = predictor_options(config, row.predictor)
        params |= {f"predictor.{key}": value for key, value in options.items()}
        params |= {"tune_by": learner.tune_by} if learner.tune else {}
        settings = learner.params | {name: f"one of {values}" for name, values in learner.tune.items()}
    elif row.algorithm == BOOSTING:
        settings = {"max_leaf_nodes": f"one of {LEAVES}", "learning_rate": f"one of {RATES}"}
    elif row.predictor == "ridge":
        settings = {"alpha": f"one of {ALPHAS}"}
    elif row.algorithm == GRID_SEARCH and baseline is not None:
        settings = {"gamma": f"one of {grid_values(baseline.gammas)}{'' if baseline.absolute else ' x scale'}"}
    return params | {f"param.{name}": value for name, value in settings.items()}


def _metrics(row: pd.Series, table: pd.DataFrame, n_trials: int) -> list[Metric]:
    """Return the metrics of a result: its means, with a step each trial, and with a step each iteration."""
    once = {name: getattr(row, column) for column, name in MEANS.items()}
    once |= {f"weight/k{k:03d}": share for k, share in enumerate(row.weights[:SHOWN_WEIGHTS])}
    for _, shares in tables.mean_relevance(table):
        once |= {f"relevance/{metric_name(of.feature)}": of.mean for of in shares.itertuples()}
    found = [(name, value, 0) for name, value in rounded(once)]
    trials = table["repeat"] * n_trials + table["fold"]
    for column, name in EACH_TRIAL.items():
        found += [(name, value, at) for at, value in zip(trials, table[column].astype(float), strict=True)]
    first = table.iloc[0]
    if first["parameters"] is not None and len(first["parameters"][0]) == 1:
        shares = np.asarray(first["weights"]) / np.sum(first["weights"])
        for i, k in enumerate(np.argsort(-shares)):
            found += [("found/sigma", first["parameters"][k][0], i), ("found/share", shares[k], i)]
    longest: Sequence[float] = max((of for of in table["objectives"] if of is not None), key=len, default=[])
    found += [("found/alignment", value, i) for i, value in enumerate(tables.mean_history(table))]
    found += [("objective", value, i) for i, value in enumerate(longest)]
    now = int(time.time() * 1000)
    return [Metric(name, float(value), now, int(at)) for name, value, at in found if np.isfinite(value)]


def metric_name(text: str) -> str:
    """Return a text as a name that MLflow takes for a metric: other characters than its own as underscores."""
    name = re.sub(r"[^A-Za-z0-9_.\- ]", "_", text)[:100]
    return name if name.strip(" .") else "_"  # which a path would lose


def _add(add: Callable[[], None]) -> None:
    """Add what MLflow looks for first and then adds: data sets, or tags of an experiment.

    What another run adds in between is an error of its database: the next time it is found.
    """
    for _ in range(TRIES - 1):
        try:
            return add()
        except MlflowException as error:
            if "constraint" not in str(error).lower():
                raise
    add()


def _log_inputs(client: MlflowClient, run_id: str, refs: Sequence[DatasetRef]) -> None:
    inputs = [
        DatasetInput(
            TrackedDataset(
                name=ref.name,
                digest=ref.digest,
                source_type="local",
                source=json.dumps({"uri": ref.source}),
                profile=json.dumps({"num_rows": ref.n_rows, "num_features": ref.n_features}),
            ),
            [InputTag("mlflow.data.context", "cross-validation")],
        )
        for ref in refs
    ]
    _add(lambda: client.log_inputs(run_id, inputs))


def rounded(metrics: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Give metrics with as many digits as a column of MLflow's table shows."""
    return ((name, float(f"{value:.7g}")) for name, value in metrics.items())


def log_run(
    run: TrackedRun,
    metrics: Mapping[str, float] | None = None,
    params: Mapping[str, object] | None = None,
    tags: Mapping[str, str] | None = None,
    refs: Sequence[DatasetRef] = (),
    *,
    note: str | None = None,
    artifacts: Path | None = None,
) -> None:
    """Put numbers, parameters, tags, data sets, a note in Markdown and the files of a folder on an open run."""
    client, now = MlflowClient(), int(time.time() * 1000)
    links = {"models": runs_path(run.experiment_id, "model", charts=False), "Prefect": run.flow_run_url}
    noted = {} if note is None else {NOTE: cut(f"{inline_links(links)}\n\n{note}")}
    if artifacts is not None:
        noted[RESULTS] = str(artifacts)
    client.log_batch(
        run.run_id,
        metrics=[Metric(key, value, now, 0) for key, value in rounded(metrics or {})],
        params=[Param(key, str(value)) for key, value in (params or {}).items()],
        tags=[RunTag(key, value) for key, value in {**(tags or {}), **noted}.items()],
    )
    if refs:
        _log_inputs(client, run.run_id, refs)
    if artifacts is not None:
        client.log_artifacts(run.run_id, str(artifacts))


@step("track comparison {sweep.name}")
def track_comparison(sweep: TrackedRun, results: str, refs: Sequence[DatasetRef]) -> None:
    """Put the results folder (figure, tables, report, configuration, environment) on the run of the comparison."""
    client, now = MlflowClient(), int(time.time() * 1000)
    summary = pd.read_parquet(Path(results) / "summary.parquet")
    # How far a result is from the best of its data set is known at the end.
    rows = {(row.dataset, row.learner): row for row in summary.itertuples()}
    mine = f"tags.`learnkernels.sweep` = '{sweep.run_id}'"
    for run in mlflow.search_runs([sweep.experiment_id], mine, output_format="list"):
        row = rows[run.data.params["dataset"], run.data.params["learner"]]
        compared = {key: getattr(row, key) for key in ("percent_above_best", "alignment_over_best")}
        known = [Metric(key, value, now, 0) for key, value in rounded(compared) if np.isfinite(value)]
        client.log_batch(run.info.run_id, metrics=known)
    files = [path.name for path in Path(results).iterdir()]
    note = comparison_note(sweep.experiment_id, sweep.run_id, sweep.name, verdicts(summary), files, sweep.flow_run_url)
    params = {"datasets": ", ".join(ref.name for ref in refs), "learners": ", ".join(summary["learner"].unique())}
    params = {key: names[:PARAM_CHARACTERS] for key, names in params.items()}
    log_run(sweep, params=params, tags={NOTE: note}, refs=refs, artifacts=Path(results))
    get_run_logger().info("comparison %s: %s", sweep.name, sweep.url)


def forgettable_runs(days: float) -> dict[str, str]:
    """Return the runs that deployments have made and ended more than so many days ago, each with its results folder.

    Not those that a version of a registered model refers to, as its training run or the run that decided on it.
    """
    ended = f"attributes.end_time < {int((time.time() - days * 86_400) * 1000)}"
    with mlflow_store() as client:
        # Where they can be erased, also what is deleted already: an erasing may have been killed.
        view = ViewType.ACTIVE_ONLY if _eraser(client) is None else ViewType.ALL
        versions = mlflow.search_model_versions()
        wanted = {of.run_id for of in versions} | {of.tags.get("decision_run") for of in versions}
        experiments = [one.experiment_id for one in mlflow.search_experiments()]
        by_clock = f"tags.`{DEPLOYMENT}` LIKE '%' and {ended}"
        runs = mlflow.search_runs(experiments, by_clock, view, output_format="list") if experiments else []
    return {run.info.run_id: run.data.tags.get(RESULTS, "") for run in runs if run.info.run_id not in wanted}


def forget_runs(run_ids: Sequence[str]) -> None:
    """Delete runs, and erase them with their artifacts where the store is a database that can be written to from here.

    A server keeps what was deleted until its own ``mlflow gc``. That command is not called here, as it erases all else
    that was deleted, too.
    """
    with mlflow_store() as client:
        erase = _eraser(client)
        for run_id in run_ids:
            info = client.get_run(run_id).info
            if info.lifecycle_stage == "active":
                client.delete_run(run_id)
            if erase is not None:
                artifacts: Any = get_artifact_repository(info.artifact_uri)
                artifacts.delete_artifacts()
                place = urlsplit(info.artifact_uri)
                if place.scheme in ("", "file"):
                    with suppress(OSError):
                        Path(unquote(place.path)).parent.rmdir()  # the folder around them
                erase(run_id)


def _eraser(client: MlflowClient) -> Callable[[str], None] | None:
    """Return what ``mlflow gc`` calls to erase a run that is deleted, where the store has it."""
    return getattr(client._tracking_client.store, "_hard_delete_run", None)
