"""Runs in MLflow: one per comparison, with a nested run per data set and method; one per training and decision."""

from __future__ import annotations

import getpass
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal
from uuid import UUID

import mlflow
import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import DatasetInput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from prefect import get_run_logger, runtime
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_UI_URL
from prefect.states import Crashed
from sqlalchemy.exc import SQLAlchemyError

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import BASELINE_TITLES, CompareConfig, TrackingConfig, grid_values
from learnkernels.kernels.files import ENDING

from ..data.dataset import DatasetRef
from ..measure.baseline import ALPHAS, BOOSTING, GRID_SEARCH, LEAVES, RATES, kinds_of
from ..measure.evaluation import FoldsRef, predictor_options
from ..measure.statistics import planned_trials
from ..naming import file_name, step
from ..stopping import Stopped, last_word, requested
from ..store import Owner
from . import tables
from .databases import mlflow_store, mlflow_ui
from .figures import learner_colors
from .markdown import inline_links, link, plain
from .mlflow_datasets import dataset_inputs
from .mlflow_pages import (
    LEVEL,
    RUN,
    comparison_note,
    comparison_view,
    cut,
    experiment_note,
    metric_name,
    metric_of_dataset,
    models_view,
    result_note,
    run_path,
    runs_path,
    view_tag,
    weight_metrics,
)
from .prediction_figures import FOLDER, figures_folder
from .report import verdicts

NOTE = "mlflow.note.content"
"""Tag of MLflow: the description of a run or an experiment."""

PARENT = "mlflow.parentRunId"
"""Tag of MLflow: the run below which its table folds a run."""

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
    "regularization": "fold/C",
    "certificate": "fold/certificate",
    "iterations": "fold/iterations",
}
"""Column of the fold table -> metric of its run, with a step each trial."""
PARAM_CHARACTERS = 6_000
"""MLflow refuses a longer parameter."""
OWNER = "learnkernels.owner"
RESULTS = "learnkernels.results"
"""Tag of a run: its folder below `results/`, as seen from the working directory."""
DEPLOYMENT = "learnkernels.deployment"
"""Tag of a run that a deployment has started: the deployment's name."""
Level = Literal["comparison", "result", "model", "decision"]
"""A comparison, a method on a data set of it, a trained model, a challenge of the champion."""
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
    level: str = "comparison"

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
def tracked_run(
    name: str, tracking: TrackingConfig, level: Level, run_name: str, run_id: str, datasets: Sequence[str] = ()
) -> Iterator[TrackedRun]:
    """Hold the MLflow run of a flow open; it ends FINISHED, or FAILED with the reason after an error.

    `name` is the name of its experiment, if `tracking` has none. `datasets` are the names of the data sets of a
    comparison, which have charts in its saved view.

    Runs that a killed process of this machine left open in the experiment are closed first.

    Raises
    ------
    InputError
        The tracking store cannot be reached.
    """
    with mlflow_store() as client:
        experiment_id = _experiment(client, tracking.experiment or name)
        newest = run_id if level == "comparison" else None
        _describe_experiment(client, experiment_id, newest, datasets)
    _close_abandoned(client, experiment_id)
    flow_run_id, tracked = str(runtime.flow_run.id), None
    tags = _tags(tracking, level, run_id, flow_run_id)
    with last_word(lambda: _end(client, experiment_id, run_id, "KILLED")):
        try:
            run = client.create_run(experiment_id, run_name=run_name, tags=tags)
            tracked = TrackedRun(experiment_id, run.info.run_id, flow_run_id, run_id, level)
            with _system_metrics(tracked, tracking):
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


@contextmanager
def _system_metrics(run: TrackedRun, tracking: TrackingConfig) -> Iterator[None]:
    """Log CPU, memory, disk and network of this machine to a run, if the configuration enables this."""
    if not tracking.system_metrics:
        yield
        return
    monitor = SystemMetricsMonitor(run.run_id)  # type: ignore[no-untyped-call]
    monitor.start()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        monitor.finish()  # type: ignore[no-untyped-call]


def _end(client: MlflowClient, experiment_id: str, run_id: str, status: str) -> None:
    """End what a flow has left open: its own run, even one that was being made, and those of its results."""
    ours = f"attributes.status = 'RUNNING' and tags.`{RUN}` = '{run_id}' and tags.`{OWNER}` = '{Owner.this()}'"
    for run in client.search_runs([experiment_id], ours):
        client.set_terminated(run.info.run_id, status)


def find_run(name: str) -> TrackedRun | None:
    """Return the run of the flow whose results have a name, or None where the store has none."""
    with mlflow_store() as client:
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        wanted = f"tags.`{RUN}` = '{name}' and tags.`{LEVEL}` != 'result'"
        runs = client.search_runs(experiments, wanted, max_results=1)
    if not runs:
        return None
    info, tags = runs[0].info, runs[0].data.tags
    return TrackedRun(info.experiment_id, info.run_id, tags.get("prefect.flow_run_id", ""), name, tags[LEVEL])


def _tags(tracking: TrackingConfig, level: Level, run_id: str, flow_run_id: str) -> dict[str, str]:
    """Return the tags of a run; those of the configuration take precedence."""
    tags = {
        LEVEL: level,
        OWNER: str(Owner.this()),
        RUN: run_id,
        "prefect.flow_run_id": flow_run_id,
        "mlflow.user": _user(),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": str(runtime.flow_run.flow_name),
    }
    if runtime.deployment.name is not None:
        deployment = str(runtime.deployment.name)
        tags |= {DEPLOYMENT: deployment, "mlflow.source.type": "JOB", "mlflow.source.name": deployment}
    return {**tags, **tracking.tags}


def _user() -> str:
    """Return the name of the user, or of the user's number where the machine has no name for it."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return "unknown"


def _experiment(client: MlflowClient, name: str) -> str:
    """Return the experiment of a name, made if missing."""
    found = client.get_experiment_by_name(name)
    if found is not None and found.lifecycle_stage == "deleted":
        raise InputError(f"MLflow experiment {name!r} is deleted; restore it, or choose another tracking.experiment.")
    local = not mlflow.get_tracking_uri().startswith("http")
    artifacts = (Path.cwd() / "mlartifacts" / file_name(name)).as_uri() if local else None
    if found is not None:
        return str(found.experiment_id)
    try:
        return str(client.create_experiment(name, artifact_location=artifacts))
    except MlflowException as error:
        made = client.get_experiment_by_name(name)  # by another process, just now
        if error.error_code != "RESOURCE_ALREADY_EXISTS" or made is None:
            raise
        return str(made.experiment_id)


def _describe_experiment(
    client: MlflowClient, experiment_id: str, comparison: str | None, datasets: Sequence[str]
) -> None:
    """Give an experiment its note, which leads to its newest comparison, and the saved views that the note links to."""
    views = [models_view()]
    newest = comparison
    if comparison is None:
        newest = client.get_experiment(experiment_id).tags.get(RUN)
    else:
        views.append(comparison_view(comparison, datasets))
    tags = {view.tag: view.value for view in views}
    tags[NOTE] = experiment_note(experiment_id, newest)
    if newest is not None:
        tags[RUN] = newest
    for key, value in tags.items():
        _add(partial(client.set_experiment_tag, experiment_id, key, value))


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
def track_result(comparison: TrackedRun, config: CompareConfig, ref: DatasetRef, folds: FoldsRef) -> str:
    """Log one (data set, learner) as one flat MLflow run and return its id."""
    client = MlflowClient()
    table = tables.read_folds([folds])
    summary = tables.summarize(table)
    row, (shown,) = summary.iloc[0], tables.display_table(summary)
    aligned = "".join(f", {name} {shown[name]}" for name in ("alignment", "weights from") if name in shown)
    what = f"{folds.learner} with {folds.predictor} on {ref.name}: {row.metric} {shown['test error']}{aligned}."
    settings = ["results", config.name, comparison.name, "config.yaml"]
    train = ["learnkernels", "train", "/".join(settings), "--dataset", ref.name, "--learner", folds.learner]
    train += ["--register", config.name]
    links = {
        f"comparison {comparison.name}": run_path(comparison.experiment_id, comparison.run_id),
        "chart": runs_path(comparison.experiment_id, run=comparison.name),
        "Prefect": comparison.flow_run_url,
    }
    own = {learner.title: learner.name for learner in config.learners}
    colors = learner_colors(own | {BASELINE_TITLES[kind]: kind for kind in kinds_of(config)})
    own_tags = {
        PARENT: comparison.run_id,
        "dataset_digest": ref.digest,
        "mlflow.runColor": colors[folds.learner],
        NOTE: result_note(what, links, shlex.join(train) if folds.learner in own else ""),
    } | ({"predictor_reason": row.predictor_reason} if row.predictor_reason else {})
    run = client.create_run(
        comparison.experiment_id,
        run_name=f"{ref.name} {folds.learner}",
        tags=own_tags | _tags(config.tracking, "result", comparison.name, comparison.flow_run_id),
    )
    _log_inputs(client, run.info.run_id, dataset_inputs([ref], "validation", config))
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
        "normalize": config.normalize, "centering": config.centering,
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
    once = {
        "test_error": row.error_mean,
        "alignment": row.alignment_mean,
        "seconds": row.seconds_weights + row.seconds_fit,
        "C": float(table["regularization"].median()),
    }  # first, as the page of a run shows metrics in this order
    once |= {name: getattr(row, column) for column, name in MEANS.items()}
    once[metric_of_dataset(row.dataset)] = row.error_mean
    once |= weight_metrics(table["kernels"].iloc[0], row.weights)
    for _, shares in tables.mean_relevance(table):
        once |= {f"relevance/{metric_name(share.feature)}": share.mean for share in shares.itertuples()}
    found = [(name, value, 0) for name, value in rounded(once)]
    trials = table["repeat"] * n_trials + table["fold"]
    for column, name in EACH_TRIAL.items():
        found += [(name, value, at) for at, value in zip(trials, table[column].astype(float), strict=True)]
    first = table.iloc[0]
    if first["parameters"] is not None and len(first["parameters"][0]) == 1:
        shares = np.asarray(first["weights"]) / np.sum(first["weights"])
        for i, k in enumerate(np.argsort(-shares)):
            found += [("search/sigma", first["parameters"][k][0], i), ("search/share", shares[k], i)]
    longest: Sequence[float] = max((of for of in table["objectives"] if of is not None), key=len, default=[])
    found += [("search/alignment", value, i) for i, value in enumerate(tables.mean_history(table))]
    found += [("objective", value, i) for i, value in enumerate(longest)]
    now = int(time.time() * 1000)
    return [Metric(name, float(value), now, int(at)) for name, value, at in found if np.isfinite(value)]


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


def _log_inputs(client: MlflowClient, run_id: str, inputs: Sequence[DatasetInput]) -> None:
    _add(lambda: client.log_inputs(run_id, inputs))


def rounded(metrics: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Give metrics with as many digits as a column of MLflow's table shows."""
    return ((name, float(f"{value:.7g}")) for name, value in metrics.items())


def log_run(
    run: TrackedRun,
    metrics: Mapping[str, float] | None = None,
    params: Mapping[str, object] | None = None,
    tags: Mapping[str, str] | None = None,
    inputs: Sequence[DatasetInput] = (),
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
    if inputs:
        _log_inputs(client, run.run_id, inputs)
    if artifacts is not None:
        for path in sorted(artifacts.iterdir()):
            if path.suffix != ENDING:  # MLflow has the file of a model already, with the logged model
                client.log_artifact(run.run_id, str(path))


@step("track comparison {comparison.name}")
def track_comparison(comparison: TrackedRun, config: CompareConfig, results: str, refs: Sequence[DatasetRef]) -> None:
    """Put the results folder (figures, tables, report, configuration) on the run of the comparison."""
    client = MlflowClient()
    summary = pd.read_parquet(Path(results) / "summary.parquet")
    _complete_results(client, comparison, summary, Path(results))
    files = [path.name for path in Path(results).iterdir()]
    note = comparison_note(
        comparison.experiment_id,
        comparison.run_id,
        comparison.name,
        verdicts(summary),
        files,
        comparison.flow_run_url,
    )
    params = {"datasets": ", ".join(ref.name for ref in refs), "learners": ", ".join(summary["learner"].unique())}
    params = {key: names[:PARAM_CHARACTERS] for key, names in params.items()}
    inputs = dataset_inputs(refs, "validation", config)
    log_run(comparison, params=params, tags={NOTE: note}, inputs=inputs, artifacts=Path(results))
    get_run_logger().info("comparison %s: %s", comparison.name, comparison.url)


def _complete_results(client: MlflowClient, comparison: TrackedRun, summary: pd.DataFrame, results: Path) -> None:
    """Log to each result how far it is from the best of its data set, and to the best their figures of predictions."""
    now = int(time.time() * 1000)
    tested = summary.assign(p=tables.p_against_best(summary))
    rows = {(row.dataset, row.learner): row for row in tested.itertuples()}
    children = f"tags.`{PARENT}` = '{comparison.run_id}'"
    for run in mlflow.search_runs([comparison.experiment_id], children, output_format="list"):
        row = rows[run.data.params["dataset"], run.data.params["learner"]]
        ranks = {
            "percent_above_best": row.percent_above_best,
            "alignment_over_best": row.alignment_over_best,
            "p": row.p,
        }
        known = [Metric(key, value, now, 0) for key, value in rounded(ranks) if np.isfinite(value)]
        client.log_batch(run.info.run_id, metrics=known)
        predictions = figures_folder(results, row.dataset, row.learner)
        if predictions.is_dir():
            client.log_artifacts(run.info.run_id, str(predictions), FOLDER)


def forgettable_runs(days: float) -> dict[str, str]:
    """Return the runs that deployments have made and ended more than so many days ago, each with its results folder.

    Not those that a version of a registered model refers to, as its training run or the run that decided on it.
    """
    ended = f"attributes.end_time < {int((time.time() - days * 86_400) * 1000)}"
    with mlflow_store():
        versions = mlflow.search_model_versions()
        wanted = {of.run_id for of in versions} | {of.tags.get("decision_run") for of in versions}
        experiments = [one.experiment_id for one in mlflow.search_experiments()]
        by_clock = f"tags.`{DEPLOYMENT}` LIKE '%' and {ended}"
        runs = mlflow.search_runs(experiments, by_clock, output_format="list") if experiments else []
    return {run.info.run_id: run.data.tags.get(RESULTS, "") for run in runs if run.info.run_id not in wanted}


def forget_runs(run_ids: Sequence[str]) -> None:
    """Delete runs, and the saved views of comparisons. MLflow keeps deleted runs until ``mlflow gc``.

    That command is not called here: with the identifiers of runs, it erases all deleted experiments and models, too.
    """
    with mlflow_store() as client:
        for run_id in run_ids:
            run = client.get_run(run_id)
            client.delete_run(run_id)
            view = view_tag(run.data.tags.get(RUN, ""))
            if view in client.get_experiment(run.info.experiment_id).tags:
                client.delete_experiment_tag(run.info.experiment_id, view)
