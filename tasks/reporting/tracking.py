"""Track runs in MLflow: comparisons with nested results, trainings and decisions."""

from __future__ import annotations

import getpass
import shlex
import socket
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
from learnkernels.conf.schema import (
    BASELINE_TITLES,
    CompareConfig,
    ProtocolConfig,
    TrackingConfig,
    grid_values,
)
from learnkernels.kernels.files import ENDING

from ..data.dataset import DatasetRef
from ..databases import mlflow_store, mlflow_ui
from ..measure.baseline import (
    ALPHAS,
    BOOSTING,
    ESTIMATOR,
    GRID_SEARCH,
    LEAVES,
    RATES,
    kinds_of,
)
from ..measure.fold_statistics import planned_trials
from ..measure.run_learner import FoldsRef, predictor_options
from ..naming import file_name, step
from ..processes.owner import Owner
from ..signals import Stopped, stop_requested
from . import tables
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
    metric_of_dataset,
    models_view,
    relevance_metrics,
    result_note,
    run_path,
    runs_path,
    view_tag,
    weight_metrics,
)
from .prediction_figures import FOLDER, figures_folder
from .report import verdicts

NOTE = "mlflow.note.content"

PARENT = "mlflow.parentRunId"

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
"""Metric of a run for each column of a summary."""

EACH_TRIAL = {
    "error": "fold/test_error",
    "alignment": "fold/alignment",
    "regularization": "fold/C",
    "certificate": "fold/certificate",
    "iterations": "fold/iterations",
}

OWNER = "learnkernels.owner"

RESULTS = "learnkernels.results"

DEPLOYMENT = "learnkernels.deployment"

WORKING_FOLDER = "learnkernels.folder"

Level = Literal["comparison", "result", "model", "decision"]


@dataclass(frozen=True)
class TrackedRun:
    """MLflow run of a Prefect flow, named like the folder of results."""

    experiment_id: str
    run_id: str
    flow_run_id: str
    name: str = ""
    level: str = "comparison"

    @property
    def url(self) -> str:
        return f"{mlflow_ui()}/{run_path(self.experiment_id, self.run_id)}"

    @property
    def chart_url(self) -> str:
        return f"{mlflow_ui()}/{runs_path(self.experiment_id, run=self.name)}"

    @property
    def models_url(self) -> str:
        return f"{mlflow_ui()}/{runs_path(self.experiment_id, 'model', charts=False)}"

    @property
    def flow_run_url(self) -> str:
        """Address of Prefect's page with the flow run's artifacts."""
        # Default of `learnkernels ui`
        server = PREFECT_UI_URL.value() or "http://127.0.0.1:4200"
        version = "" if "prefect.cloud" in server else "/v2"
        return f"{server.rstrip('/')}{version}/runs/flow-run/{self.flow_run_id}?tab=Artifacts"


@contextmanager
def tracked_run(
    name: str,
    tracking: TrackingConfig,
    level: Level,
    run_name: str,
    run_id: str,
    datasets: Sequence[str] = (),
) -> Iterator[TrackedRun]:
    """Start the MLflow run of a flow; end it as FINISHED, FAILED or KILLED.

    Open runs of killed processes are closed first.
    """
    with mlflow_store() as client:
        experiment_id = _find_or_create_experiment(client, tracking.experiment or name)
        newest = run_id if level == "comparison" else None
        _describe_experiment(client, experiment_id, newest, datasets)
    _close_abandoned(client, experiment_id)
    flow_run_id = str(runtime.flow_run.id)
    tracked = None
    tags = _tags_of_run(tracking, level, run_id, flow_run_id)
    try:
        run = client.create_run(experiment_id, run_name=run_name, tags=tags)
        tracked = TrackedRun(experiment_id, run.info.run_id, flow_run_id, run_id, level)
        with _system_metrics(tracked, tracking):
            yield tracked
    except BaseException as error:
        status = "KILLED"
        reason = "Stopped by the user."
        # Libraries turn signals into other errors
        if isinstance(error, Exception) and not stop_requested():
            status = "FAILED"
            reason = f"Failed: {error}"
        with mlflow_store():
            if tracked is not None:
                note = f"{plain(reason)}\n\n{link('Prefect', tracked.flow_run_url)}"
                client.set_tag(tracked.run_id, NOTE, note)
            _end_open_runs(client, experiment_id, run_id, status)
            if isinstance(error, MlflowException | SQLAlchemyError):
                raise
        if stop_requested():
            raise Stopped from error
        raise
    client.set_terminated(tracked.run_id, "FINISHED")


@contextmanager
def _system_metrics(run: TrackedRun, tracking: TrackingConfig) -> Iterator[None]:
    if not tracking.system_metrics:
        yield
        return
    monitor = SystemMetricsMonitor(run.run_id)  # type: ignore[no-untyped-call]
    monitor.start()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        monitor.finish()  # type: ignore[no-untyped-call]


def _end_open_runs(
    client: MlflowClient, experiment_id: str, run_id: str, status: str
) -> None:
    """End this process's open runs of a flow, also in creation."""
    conditions = [
        "attributes.status = 'RUNNING'",
        f"tags.`{RUN}` = '{run_id}'",
        f"tags.`{OWNER}` = '{Owner.this()}'",
    ]
    for run in client.search_runs([experiment_id], " and ".join(conditions)):
        client.set_terminated(run.info.run_id, status)


def find_run(name: str) -> TrackedRun | None:
    with mlflow_store() as client:
        experiments = [
            experiment.experiment_id for experiment in client.search_experiments()
        ]
        conditions = f"tags.`{RUN}` = '{name}' and tags.`{LEVEL}` != 'result'"
        runs = client.search_runs(experiments, conditions, max_results=1)
    if not runs:
        return None
    info = runs[0].info
    tags = runs[0].data.tags
    return TrackedRun(
        info.experiment_id,
        info.run_id,
        tags.get("prefect.flow_run_id", ""),
        name,
        tags[LEVEL],
    )


def _tags_of_run(
    tracking: TrackingConfig, level: Level, run_id: str, flow_run_id: str
) -> dict[str, str]:
    tags = {
        LEVEL: level,
        OWNER: str(Owner.this()),
        WORKING_FOLDER: _this_folder(),
        RUN: run_id,
        "prefect.flow_run_id": flow_run_id,
        "mlflow.user": _user_name(),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": str(runtime.flow_run.flow_name),
    }
    if runtime.deployment.name is not None:
        deployment = str(runtime.deployment.name)
        tags[DEPLOYMENT] = deployment
        tags["mlflow.source.type"] = "JOB"
        tags["mlflow.source.name"] = deployment
    return {**tags, **tracking.tags}


def _this_folder() -> str:
    return f"{socket.gethostname()}:{Path.cwd()}"


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return "unknown"


def _find_or_create_experiment(client: MlflowClient, name: str) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        if experiment.lifecycle_stage == "deleted":
            raise InputError(
                f"MLflow experiment {name!r} is deleted; restore it, or choose another tracking.experiment."
            )
        return str(experiment.experiment_id)
    artifacts = None
    if not mlflow.get_tracking_uri().startswith("http"):
        artifacts = (Path.cwd() / "mlartifacts" / file_name(name)).as_uri()
    try:
        return str(client.create_experiment(name, artifact_location=artifacts))
    except MlflowException as error:
        experiment = client.get_experiment_by_name(name)
        if error.error_code != "RESOURCE_ALREADY_EXISTS" or experiment is None:
            raise
        return str(experiment.experiment_id)  # another process has just created it


def _describe_experiment(
    client: MlflowClient,
    experiment_id: str,
    comparison: str | None,
    datasets: Sequence[str],
) -> None:
    views = [models_view()]
    if comparison is None:
        newest = client.get_experiment(experiment_id).tags.get(RUN)
    else:
        newest = comparison
        views.append(comparison_view(comparison, datasets))
    tags = {view.tag: view.value for view in views}
    tags[NOTE] = experiment_note(experiment_id, newest)
    if newest is not None:
        tags[RUN] = newest
    for key, value in tags.items():
        _retry(partial(client.set_experiment_tag, experiment_id, key, value))


def _close_abandoned(client: MlflowClient, experiment_id: str) -> None:
    """Close open runs of this machine's ended processes, also in Prefect."""
    reason = "The process of this run ended unexpectedly; start the same command again and it resumes from there."
    for run in client.search_runs([experiment_id], "attributes.status = 'RUNNING'"):
        owner = Owner.read(run.data.tags.get(OWNER, ""))
        if owner is None or not owner.gone:
            continue
        client.set_tag(run.info.run_id, NOTE, reason)
        client.set_terminated(run.info.run_id, "KILLED")
        # The flow run may be on another Prefect server
        with (
            get_client(sync_client=True) as prefect,
            suppress(ObjectNotFound, ValueError),
        ):
            flow_run = prefect.read_flow_run(
                UUID(run.data.tags.get("prefect.flow_run_id", ""))
            )
            if flow_run.state is not None and not flow_run.state.is_final():
                prefect.set_flow_run_state(
                    flow_run.id, Crashed(message=reason), force=True
                )


@step("track {folds.learner} on {ref.name}")
def track_result(
    comparison: TrackedRun,
    config: CompareConfig,
    ref: DatasetRef,
    folds: FoldsRef,
    config_file: str = "",
) -> str:
    """Log a method's results as an MLflow run nested in the comparison's."""
    client = MlflowClient()
    table = tables.read_folds([folds])
    summary = tables.summarize(table)
    row = summary.iloc[0]
    titles = {learner.title: learner.name for learner in config.learners}
    titles |= {BASELINE_TITLES[kind]: kind for kind in kinds_of(config)}
    tags = {
        PARENT: comparison.run_id,
        "dataset_digest": ref.digest,
        "mlflow.runColor": learner_colors(titles)[folds.learner],
        NOTE: _result_note(comparison, config, ref, folds, summary, config_file),
    }
    if row.predictor_reason:
        tags["predictor_reason"] = row.predictor_reason
    run = client.create_run(
        comparison.experiment_id,
        run_name=f"{ref.name} {folds.learner}",
        tags=tags
        | _tags_of_run(
            config.tracking, "result", comparison.name, comparison.flow_run_id
        ),
    )
    run_id = str(run.info.run_id)
    _log_inputs(client, run_id, dataset_inputs([ref], "validation", config))
    n_trials = len(planned_trials(config.protocol, ref.ordered))
    client.log_batch(
        run_id,
        metrics=_metrics_of_result(row, table, n_trials),
        params=[
            Param(key, str(value))
            for key, value in _params_of_result(config, ref, row, folds).items()
        ],
    )
    client.set_terminated(run_id)
    return run_id


def _result_note(
    comparison: TrackedRun,
    config: CompareConfig,
    ref: DatasetRef,
    folds: FoldsRef,
    summary: pd.DataFrame,
    config_file: str,
) -> str:
    cells = tables.display_table(summary)[0]
    metric = summary["metric"].iloc[0]
    sentence = f"{folds.learner} with {folds.predictor} on {ref.name}: {metric} {cells['test error']}"
    for name in ("alignment", "weights from"):
        if name in cells:
            sentence += f", {name} {cells[name]}"
    links = {
        f"comparison {comparison.name}": run_path(
            comparison.experiment_id, comparison.run_id
        ),
        "chart": runs_path(comparison.experiment_id, run=comparison.name),
        "Prefect": comparison.flow_run_url,
    }
    command = ""
    titles = {learner.title for learner in config.learners}
    if config_file and folds.learner in titles:
        options = [
            "--dataset",
            ref.name,
            "--learner",
            folds.learner,
            "--model",
            config.name,
        ]
        command = shlex.join(["learnkernels", "train", config_file, *options])
    return result_note(f"{sentence}.", links, command)


def _params_of_result(
    config: CompareConfig, ref: DatasetRef, row: pd.Series, folds: FoldsRef
) -> dict[str, object]:
    params: dict[str, object] = {"dataset": ref.name, "task": ref.task}
    for name in ("learner", "algorithm", "predictor", "metric", "n_kernels"):
        params[name] = row[name]
    params |= {
        "n_rows": ref.n_rows,
        "n_features": ref.n_features,
        "normalize": config.normalize,
        "centering": config.centering,
    }
    params |= _protocol_params(config.protocol)
    dataset = next(dataset for dataset in config.datasets if dataset.label == ref.name)
    params |= dataset.sample_columns
    params |= {"repeats": config.protocol.repeats, "seed": config.protocol.seed}
    if not np.isnan(row.n_sampled):
        params["sampled_rows"] = round(row.n_sampled)
        params["sampled_of"] = round(row.n_train)
        params["sample"] = config.statistics.sample
    learner = next(
        (learner for learner in config.learners if learner.title == folds.learner), None
    )
    if learner is None:
        settings = _baseline_settings(config, row)
    else:
        for name, value in predictor_options(config, row.predictor).items():
            params[f"predictor.{name}"] = value
        if learner.tune:
            params["tune_by"] = learner.tune_by
        settings = dict(learner.params)
        for name, values in learner.tune.items():
            settings[name] = f"one of {values}"
    for name, value in settings.items():
        params[f"param.{name}"] = value
    return params


def _protocol_params(protocol: ProtocolConfig) -> dict[str, object]:
    params: dict[str, object] = {}
    if protocol.split is None:
        params["folds"] = protocol.folds
    for name, n_rows in protocol.split or ():
        if n_rows is not None:
            params[f"split.{name}"] = n_rows
    for name, value in protocol.choose or ():
        params[f"choose.{name}"] = value
    if protocol.refit:
        params["refit"] = True
    return params


def _baseline_settings(config: CompareConfig, row: pd.Series) -> dict[str, object]:
    if row.algorithm == ESTIMATOR:
        return {"settings": "default"}
    if row.algorithm == BOOSTING:
        return {
            "max_leaf_nodes": f"one of {LEAVES}",
            "learning_rate": f"one of {RATES}",
        }
    if row.predictor == "ridge":
        return {"alpha": f"one of {ALPHAS}"}
    if row.algorithm == GRID_SEARCH and config.baseline is not None:
        unit = " x scale"
        if config.baseline.absolute:
            unit = ""
        return {"gamma": f"one of {grid_values(config.baseline.gammas)}{unit}"}
    return {}


def _metrics_of_result(
    row: pd.Series, table: pd.DataFrame, n_trials: int
) -> list[Metric]:
    means = {
        "seconds": row.seconds_weights + row.seconds_fit,
        "C": float(table["regularization"].median()),
    }
    means |= {name: getattr(row, column) for column, name in MEANS.items()}
    means[metric_of_dataset(row.dataset)] = row.error_mean
    means |= weight_metrics(table["kernels"].iloc[0], row.weights)
    for _, shares in tables.mean_relevance(table):
        means |= relevance_metrics(shares.set_index("feature")["mean"].to_dict())
    points = [(name, value, 0) for name, value in rounded(means)]
    trials = table["repeat"] * n_trials + table["fold"]
    for column, name in EACH_TRIAL.items():
        values = table[column].astype(float)
        points += [
            (name, value, trial) for trial, value in zip(trials, values, strict=True)
        ]
    points += _search_points(table.iloc[0])
    points += [
        ("search/alignment", value, i)
        for i, value in enumerate(tables.mean_history(table))
    ]
    objectives: list[Sequence[float]] = [
        values for values in table["objectives"] if values is not None
    ]
    longest = max(objectives, key=len, default=[])
    points += [("objective", value, i) for i, value in enumerate(longest)]
    now = _milliseconds()
    return [
        Metric(name, float(value), now, int(step))
        for name, value, step in points
        if np.isfinite(value)
    ]


def _search_points(trial: pd.Series) -> list[tuple[str, float, int]]:
    parameters = trial["parameters"]
    if parameters is None or len(parameters[0]) != 1:
        return []
    shares = np.asarray(trial["weights"]) / np.sum(trial["weights"])
    points = []
    for position, k in enumerate(np.argsort(-shares)):
        points.append(("search/sigma", parameters[k][0], position))
        points.append(("search/share", shares[k], position))
    return points


def _milliseconds() -> int:
    return int(time.time() * 1000)


def _retry(add: Callable[[], None]) -> None:
    """Call a function again if another run adds the same entry."""
    for _ in range(4):
        try:
            return add()
        except MlflowException as error:
            if "constraint" not in str(error).lower():
                raise
    add()


def _log_inputs(
    client: MlflowClient, run_id: str, inputs: Sequence[DatasetInput]
) -> None:
    _retry(lambda: client.log_inputs(run_id, inputs))


def rounded(metrics: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield names and values of metrics, rounded to seven digits."""
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
    """Log metrics, parameters, tags, data sets, note and files to an MLflow run."""
    client = MlflowClient()
    now = _milliseconds()
    all_tags = dict(tags or {})
    if note is not None:
        links = {
            "models": runs_path(run.experiment_id, "model", charts=False),
            "Prefect": run.flow_run_url,
        }
        all_tags[NOTE] = cut(f"{inline_links(links)}\n\n{note}")
    if artifacts is not None:
        all_tags[RESULTS] = str(artifacts)
    client.log_batch(
        run.run_id,
        metrics=[Metric(key, value, now, 0) for key, value in rounded(metrics or {})],
        params=[Param(key, str(value)) for key, value in (params or {}).items()],
        tags=[RunTag(key, value) for key, value in all_tags.items()],
    )
    if inputs:
        _log_inputs(client, run.run_id, inputs)
    if artifacts is not None:
        for path in sorted(artifacts.iterdir()):
            # MLflow already has the model's file
            if path.suffix != ENDING:
                client.log_artifact(run.run_id, str(path))


@step("track comparison {comparison.name}")
def track_comparison(
    comparison: TrackedRun,
    config: CompareConfig,
    results: str,
    refs: Sequence[DatasetRef],
) -> None:
    folder = Path(results)
    summary = pd.read_parquet(folder / "summary.parquet")
    complete_results(comparison, summary, folder)
    note = comparison_note(
        comparison.experiment_id,
        comparison.run_id,
        comparison.name,
        verdicts(summary),
        [path.name for path in folder.iterdir()],
        comparison.flow_run_url,
    )
    longest_param = 6_000  # MLflow's limit
    datasets = ", ".join(ref.name for ref in refs)
    learners = ", ".join(summary["learner"].unique())
    log_run(
        comparison,
        params={
            "datasets": datasets[:longest_param],
            "learners": learners[:longest_param],
        },
        tags={NOTE: note},
        inputs=dataset_inputs(refs, "validation", config),
        artifacts=folder,
    )
    get_run_logger().info("comparison %s: %s", comparison.name, comparison.url)


def complete_results(
    comparison: TrackedRun, summary: pd.DataFrame, results: Path
) -> None:
    """Log measures and figures that need all results."""
    client = MlflowClient()
    now = _milliseconds()
    with_p = summary.assign(p=tables.p_against_best(summary))
    rows = {(row.dataset, row.learner): row for row in with_p.itertuples()}
    children = f"tags.`{PARENT}` = '{comparison.run_id}'"
    for run in mlflow.search_runs(
        [comparison.experiment_id], children, output_format="list"
    ):
        row = rows[run.data.params["dataset"], run.data.params["learner"]]
        distances = {
            "percent_above_best": row.percent_above_best,
            "alignment_over_best": row.alignment_over_best,
            "p": row.p,
        }
        metrics = [
            Metric(key, value, now, 0)
            for key, value in rounded(distances)
            if np.isfinite(value)
        ]
        client.log_batch(run.info.run_id, metrics=metrics)
        predictions = figures_folder(results, row.dataset, row.learner)
        if predictions.is_dir():
            client.log_artifacts(run.info.run_id, str(predictions), FOLDER)


def forgettable_runs(days: float) -> dict[str, str]:
    """Return this folder's old runs without models, with their results."""
    oldest = _milliseconds() - int(days * 86_400_000)
    with mlflow_store():
        referred = set()
        for version in mlflow.search_model_versions():
            referred |= {version.run_id, version.tags.get("decision_run")}
        experiments = [
            experiment.experiment_id for experiment in mlflow.search_experiments()
        ]
        if not experiments:
            return {}
        conditions = f"tags.`{DEPLOYMENT}` LIKE '%' and attributes.end_time < {oldest}"
        runs = mlflow.search_runs(experiments, conditions, output_format="list")
    ours = _this_folder()
    return {
        run.info.run_id: run.data.tags.get(RESULTS, "")
        for run in runs
        if run.data.tags.get(WORKING_FOLDER) == ours and run.info.run_id not in referred
    }


def forget_runs(run_ids: Sequence[str]) -> None:
    """Delete MLflow runs and their saved views."""
    with mlflow_store() as client:
        for run_id in run_ids:
            run = client.get_run(run_id)
            client.delete_run(run_id)
            view = view_tag(run.data.tags.get(RUN, ""))
            if view in client.get_experiment(run.info.experiment_id).tags:
                client.delete_experiment_tag(run.info.experiment_id, view)
