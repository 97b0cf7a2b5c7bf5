"""Evaluate learners and baselines on a data set, in every trial."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dask.utils import parse_bytes
from distributed.system import MEMORY_LIMIT
from prefect import get_run_logger

from learnkernels.conf import schema
from learnkernels.conf.errors import InputError, input_errors
from learnkernels.kernels.engine.workers import Threads
from learnkernels.kernels.predictors import PREDICTORS, Predictor, as_predictor
from learnkernels.kernels.predictors.base import DEFAULTS, PredictorChoice
from learnkernels.kernels.predictors.choice import PredictionProblem

from ..data.dataset import DatasetRef, stored_bytes
from ..naming import from_store, step
from ..plugins import as_learner, learner_class, sources
from ..store import computed_at, is_stored, keep, result_key, store_path
from ..workers.cluster import Advance, DaskPool, Job, Result, map_here
from .baseline import ESTIMATOR, kinds_of, predictor_of, run_baseline, settings_of
from .families import build_family
from .fold_statistics import planned_trials, sampled
from .held_out import write_predictions
from .trials import (
    HELD_OUT,
    StatisticsRef,
    TrialData,
    TrialJob,
    mean_by_setting,
    run_trial,
    setting_jobs,
    validate_setting,
)

PARALLEL_ROWS = 4096
"""Most training rows for parallel trials."""

PARALLEL_ITERATIONS = 10_000
"""Most training rows for parallel trials without factorization of all rows."""

TABLE = "folds.parquet"


def _columns(dtype: pa.DataType, names: str) -> list[pa.Field]:
    return [pa.field(name, dtype) for name in names.split()]


STRING = pa.string()
INTEGER = pa.int32()
NUMBER = pa.float64()

_FIELDS = [
    *_columns(STRING, "dataset task learner predictor"),
    *_columns(INTEGER, "repeat fold"),
    *_columns(NUMBER, "alignment error"),
    *_columns(STRING, "metric"),
    *_columns(NUMBER, "seconds_weights seconds_fit"),
    *_columns(INTEGER, "n_train n_test n_rows n_kernels"),
    *_columns(pa.list_(NUMBER), "weights"),
    *_columns(NUMBER, "trivial_error validation_error"),
    *_columns(pa.list_(pa.list_(NUMBER)), "candidate_errors"),
    *_columns(NUMBER, "regularization"),
    *_columns(pa.bool_(), "grid_edge"),
    *_columns(pa.list_(STRING), "kernels"),
    *_columns(STRING, "algorithm params"),
    *_columns(NUMBER, "certificate"),
    *_columns(STRING, "certificate_measure"),
    *_columns(NUMBER, "certificate_tolerance"),
    *_columns(INTEGER, "iterations"),
    *_columns(pa.list_(NUMBER), "objectives"),
    *_columns(pa.list_(pa.list_(NUMBER)), "parameters"),
    *_columns(NUMBER, "test_alignment"),
    *_columns(INTEGER, "n_sampled"),
    *_columns(STRING, "predictor_reason"),
    *_columns(pa.list_(STRING), "notes features"),
    *_columns(pa.list_(NUMBER), "relevance history"),
    *_columns(NUMBER, "seconds_pass"),
    *_columns(INTEGER, "n_parallel"),
]

RELEVANCE = "test rows of the first trial"
"""Rows on which relevance is measured; part of the result key."""

COLUMNS = pa.schema(_FIELDS)
"""Columns of the fold table, by trial; see docs/reference/results.md."""


@dataclass(frozen=True)
class FoldsRef:
    """Reference to a method's results on disk, over all training and test splits."""

    dataset: str
    learner: str
    algorithm: str
    predictor: str
    path: str
    stored_at: str | None = None


def predictor_for(
    config: schema.CompareConfig,
    learner: schema.LearnerConfig,
    ref: DatasetRef,
    n_rows: int | None = None,
) -> PredictorChoice:
    """Return the predictor for a learner, chosen by the number of training rows.

    InputError if learner, predictor or loss do not support the task, samples or
    weights.
    """
    learner_type = learner_class(learner.name)
    reason = unserved(learner, ref)
    if reason:
        raise InputError(reason)
    _require_usable(config, learner, ref)
    if not learner_type.learns_kernel:
        # An ensemble has its own predictor
        return PredictorChoice(
            as_predictor(learner_type.predictor or DEFAULTS[ref.task]), ""
        )
    problem = _prediction_problem(config, learner, ref, n_rows)
    requested = configured_predictor(config)
    if ref.task == "regression" and "loss" in requested.get_params():
        requested = as_predictor(requested, loss="squared")
    with input_errors(f"data set {ref.name}"):
        choice = requested.choose(problem)
    loss = config.predictor.loss
    if (
        choice.predictor.on_landmarks
        and ref.task == "regression"
        and loss not in (None, "squared")
    ):
        raise InputError(
            f"data set {ref.name}: predictor.loss {loss} is for classification, and this is a regression; leave it out."
        )
    return choice


def _prediction_problem(
    config: schema.CompareConfig,
    learner: schema.LearnerConfig,
    ref: DatasetRef,
    n_rows: int | None,
) -> PredictionProblem:
    learner_type = learner_class(learner.name)
    n_outputs = 1
    if len(ref.classes) > 2:
        n_outputs = len(ref.classes)
    n_values = 1
    if n_rows is None:
        n_values = len(schema.grid_values(config.protocol.grid))
    # `rfm` learns at most 27 base kernels, in three metrics
    n_kernels = 27
    n_seeds = 27
    if learner_type.takes_family:
        n_kernels = _n_kernels(config.kernels, ref.n_features)
        n_seeds = 1
    return PredictionProblem(
        ref.task,
        learner_type.predictor,
        suited=learner_type.suited,
        n_rows=n_rows or training_rows(config.protocol, ref.n_rows),
        n_kernels=n_kernels,
        n_seeds=n_seeds,
        n_features=ref.n_features,
        n_columns=n_outputs * n_values,
        power=any(
            getattr(as_learner(learner.name, setting), "degree", 1) != 1
            for setting in learner.settings()
        ),
        indefinite=learner_type.signed,
    )


def unserved(learner: schema.LearnerConfig, ref: DatasetRef) -> str:
    """Return why a learner does not support a data set; empty if it does."""
    learner_type = learner_class(learner.name)
    title = learner.title
    if ref.task not in learner_type.tasks:
        tasks = " and ".join(learner_type.tasks)
        return (
            f"data set {ref.name}: learner {title} serves {tasks}, and this is a {ref.task}; leave it out, or set the "
            "data set's task."
        )
    if ref.weighted and not learner_type.takes_weights:
        return (
            f"data set {ref.name}: 'weights' gives rows weights, and learner {title} learns from rows that count once "
            "each; leave one of them out, or take a learner of alignments, such as alignf, or rfm."
        )
    return ""


def _require_usable(
    config: schema.CompareConfig, learner: schema.LearnerConfig, ref: DatasetRef
) -> None:
    learner_type = learner_class(learner.name)
    title = learner.title
    where = f"data set {ref.name}:"
    if config.centering != "center" and not learner_type.takes_uncentered:
        raise InputError(
            f"learners: {title} is defined by base kernels that are centered, and 'centering' is {config.centering}; "
            "leave one of them out, or set takes_uncentered in its class, where it asks its operator for the "
            "centering."
        )
    if ref.weighted and sampled(config):
        raise InputError(
            f"{where} 'weights' gives rows weights, and a sample counts each row once; leave 'weights' out, or set "
            "'statistics.sample: none'."
        )
    if ref.weighted and set(kinds_of(config)) - {ESTIMATOR}:
        raise InputError(
            f"{where} 'weights' gives rows weights, and the grid search of 'baseline' counts each row once; leave one "
            "of them out, or all baselines but 'estimator'."
        )
    if ref.in_parts and config.baseline is not None:
        raise InputError(
            f"{where} is read in parts, and the search of 'baseline' needs all its rows at once; leave it out."
        )
    if not learner_type.learns_kernel and config.statistics.sample != "none":
        raise InputError(
            f"learners: {title} learns from all rows and not from a sample; leave it out, or set "
            "'statistics.sample: none'."
        )


def configured_predictor(config: schema.CompareConfig) -> Predictor:
    stage = config.predictor
    options = {
        "memory": predictor_memory(stage.memory),
        "random_state": config.protocol.seed,
    }
    options |= {
        name: value for name, value in stage.options().items() if name != "memory"
    }
    predictor = as_predictor(stage.name)
    return as_predictor(
        predictor,
        **{name: options[name] for name in predictor.get_params() if name in options},
    )


def predictor_options(config: schema.CompareConfig, predictor: str) -> dict[str, Any]:
    candidate = configured_predictor(config).candidates().get(predictor)
    if candidate is None:  # the learner has its own predictor
        return {}
    defaults = type(candidate)
    options = {
        name: value
        for name, value in candidate.get_params().items()
        if value != getattr(defaults, name)
    }
    if "n_components" in options:  # else memory determines the number
        options.pop("memory", None)
    return options


def _n_kernels(configs: Sequence[schema.FamilyConfig], n_features: int) -> int:
    """Return the number of base kernels, one for matrices on disk."""
    n_kernels = 0
    for config in configs:
        if isinstance(config, schema.FeatureConfig):
            n_kernels += n_features if config.columns is None else len(config.columns)
            n_kernels += int(config.constant)
        elif isinstance(config, schema.PrecomputedConfig):
            n_kernels += 1
        else:
            n_kernels += build_family(
                [config.model_copy(update={"columns": None})], ["any"]
            ).n_kernels
    return n_kernels


def predictor_memory(setting: str | None) -> int:
    """Return the bytes that a predictor may use, by default half of the memory.

    The default is a power of two, for reproducible keys.
    """
    if setting is not None:
        return int(parse_bytes(setting))
    half = int(MEMORY_LIMIT // 2)
    return 1 << half.bit_length() - 1


def training_rows(protocol: schema.ProtocolConfig, n_rows: int) -> int:
    if protocol.split is not None:
        n_training = protocol.split.train
        if protocol.refit:
            n_training += protocol.split.validation or 0
        return n_training
    assert protocol.folds is not None, "the schema requires folds or a split"
    return n_rows * (protocol.folds - 2 + protocol.refit) // protocol.folds


@step("evaluate {learner.title} on {ref.name}")
def evaluate_learner(
    ref: DatasetRef,
    statistics: Sequence[StatisticsRef],
    learner: schema.LearnerConfig,
    config: schema.CompareConfig,
    pool: DaskPool,
    advance: Advance,
) -> FoldsRef:
    """Measure a learner on every split, unless on disk; return a reference."""
    log = get_run_logger()
    protocol = config.protocol
    choice = predictor_for(config, learner, ref)
    predictor = choice.predictor.name
    options = predictor_options(config, predictor)
    settings = {
        "columns": COLUMNS.names,
        "dataset": ref.name,
        "learner": learner.model_dump(mode="json"),
        "normalize": config.normalize,
        "centering": config.centering,
        "relevance": RELEVANCE,
        "predictor": predictor,
        "options": options,
        "protocol": protocol.model_dump(
            mode="json", include={"choose": {"once"}, "refit": True, "metric": True}
        ),
        "grid": schema.grid_values(protocol.grid),
    }
    key = result_key(
        "learner",
        settings,
        [*(statistics_ref.key for statistics_ref in statistics), *sources([learner])],
    )
    result = FoldsRef(
        ref.name, learner.title, learner.name, predictor, str(store_path("folds", key))
    )
    if choice.reason:
        log.info("%s, %s: %s", ref.name, learner.title, choice.reason)
    stored = _stored_result(result, advance)
    if stored is not None:
        return from_store(stored)
    rows = _run_trials(
        _trial_jobs(statistics, config, ref),
        ref,
        learner,
        predictor,
        options,
        pool,
        advance,
    )
    rows = [row | {"predictor_reason": choice.reason or None} for row in rows]
    write_fold_table(Path(result.path), rows, statistics, config.parallel)
    _log_result(
        rows,
        f"{ref.name}, {learner.title}",
        "folds" if protocol.split is None else "repeats",
    )
    return result


def _log_result(rows: Sequence[dict[str, Any]], title: str, trials_name: str) -> None:
    log = get_run_logger()
    notes = [note for row in rows for note in row["notes"] or ()]
    for note in dict.fromkeys(notes):
        log.info("%s: %s", title, note)
    log.info(
        "%s: %s %.4f", title, rows[0]["metric"], np.mean([row["error"] for row in rows])
    )
    n_edges = sum(row["grid_edge"] for row in rows)
    if n_edges:
        log.warning(
            "%s: the best C is at the boundary of the grid in %d of %d %s; extend protocol.grid",
            title,
            n_edges,
            len(rows),
            trials_name,
        )


def _run_trials(
    jobs: list[TrialJob],
    ref: DatasetRef,
    learner: schema.LearnerConfig,
    predictor: str,
    options: dict[str, Any],
    pool: DaskPool,
    advance: Advance,
) -> list[dict[str, Any]]:
    config = jobs[0].config
    by_rows = PREDICTORS[predictor].by_rows
    parallel_rows = PARALLEL_ROWS
    if by_rows:
        parallel_rows = PARALLEL_ITERATIONS
    parallel = training_rows(config.protocol, ref.n_rows) <= parallel_rows
    arguments: dict[str, Any] = {
        "learner": learner,
        "predictor": predictor,
        "options": options,
    }
    if by_rows and parallel:
        arguments["workers"] = Threads(1) if pool.local else None
    elif by_rows:
        arguments["workers"] = pool.workers
        arguments["progress"] = Steps(
            f"{ref.name}, {learner.title}", get_run_logger().info
        )
    elif ref.in_parts and not parallel:
        arguments["workers"] = pool.workers
    load_data = None
    if not _needs_local_files(learner, config):
        load_data = partial(TrialData.load, jobs, pool.folder)
    choose = config.protocol.choose
    if choose is None or not choose.once:
        run = partial(run_trial, **arguments)
        return run_jobs(run, jobs, ref, pool, parallel, advance, load_data)
    return _run_trials_of_one_choice(
        jobs, arguments, ref, pool, parallel, advance, load_data
    )


def _run_trials_of_one_choice(
    jobs: list[TrialJob],
    arguments: dict[str, Any],
    ref: DatasetRef,
    pool: DaskPool,
    parallel: bool,
    advance: Advance,
    load_data: Callable[[], TrialData] | None,
) -> list[dict[str, Any]]:
    """Choose the setting for all trials in the first, whose row has the seconds."""
    searches = setting_jobs(jobs[0], arguments["learner"])
    share_of_searches = len(searches) / (len(searches) + len(jobs))
    results = run_jobs(
        partial(validate_setting, **arguments),
        searches,
        ref,
        pool,
        parallel,
        lambda share: advance(share * share_of_searches),
        load_data,
    )
    errors = mean_by_setting(searches, results).tolist()
    rows = run_jobs(
        partial(run_trial, validation_errors=errors, **arguments),
        jobs,
        ref,
        pool,
        parallel,
        lambda share: advance(share * (1.0 - share_of_searches)),
        load_data,
    )
    rows[0]["seconds_weights"] += sum(result.seconds_weights for result in results)
    rows[0]["seconds_fit"] += sum(result.seconds_fit for result in results)
    return rows


def _needs_local_files(
    learner: schema.LearnerConfig, config: schema.CompareConfig
) -> bool:
    local_families = (schema.OwnConfig, schema.PrecomputedConfig)
    return bool(sources([learner])) or any(
        isinstance(family, local_families) for family in config.kernels
    )


@step("{kind} on {ref.name}")
def evaluate_baseline(
    ref: DatasetRef,
    statistics: Sequence[StatisticsRef],
    config: schema.CompareConfig,
    pool: DaskPool,
    advance: Advance,
    kind: schema.BaselineName,
) -> FoldsRef:
    """Measure a baseline on every split, unless on disk; return a reference."""
    assert config.baseline is not None
    settings = {
        "columns": COLUMNS.names,
        "dataset": ref.name,
        "kind": kind,
        "search": settings_of(kind, config.baseline),
        "protocol": config.protocol.model_dump(
            mode="json", include={"refit", "metric"}
        ),
    }
    key = result_key(
        "baseline",
        settings,
        [ref.digest, *(statistics_ref.key for statistics_ref in statistics)],
    )
    path = store_path("folds", key)
    result = FoldsRef(
        ref.name,
        schema.BASELINE_TITLES[kind],
        kind,
        predictor_of(kind, ref.task),
        str(path),
    )
    stored = _stored_result(result, advance)
    if stored is not None:
        return from_store(stored)
    parallel = training_rows(config.protocol, ref.n_rows) <= PARALLEL_ITERATIONS
    jobs = _trial_jobs(statistics, config, ref)
    rows = run_jobs(
        partial(run_baseline, kind=kind), jobs, ref, pool, parallel, advance
    )
    write_fold_table(path, rows, statistics, config.parallel)
    return result


def _stored_result(result: FoldsRef, advance: Advance) -> FoldsRef | None:
    log = get_run_logger()
    path = Path(result.path)
    if not is_stored(path, log.warning):
        return None
    log.info(
        "%s, %s: fold results %s are in the store",
        result.dataset,
        result.learner,
        path.name,
    )
    advance(1.0)
    return replace(result, stored_at=computed_at(path))


def _trial_jobs(
    statistics: Sequence[StatisticsRef], config: schema.CompareConfig, ref: DatasetRef
) -> list[TrialJob]:
    planned = planned_trials(config.protocol, ref.ordered)
    jobs = []
    for statistics_ref in statistics:
        for trial in planned:
            if statistics_ref.trial in (None, trial.index):
                jobs.append(
                    TrialJob(statistics_ref.rows or ref, statistics_ref, trial, config)
                )
    return jobs


@dataclass
class Steps:
    """Callback that logs the iterations of a predictor's solver every ten seconds."""

    name: str
    log: Callable[..., None]
    logged_at: float = field(default_factory=time.monotonic)

    def __call__(self, step: int, residual: float) -> None:
        if time.monotonic() - self.logged_at > 10.0:
            self.logged_at = time.monotonic()
            self.log(
                "%s: conjugate gradients, step %d, relative residual %.1e",
                self.name,
                step,
                residual,
            )


def run_jobs(
    run: Callable[[Job], Result],
    jobs: Sequence[Job],
    ref: DatasetRef,
    pool: DaskPool,
    parallel: bool,
    advance: Advance,
    load_data: Callable[[], TrialData] | None = None,
) -> list[Result]:
    """Run jobs on workers or in this process; return their results in order."""
    if not parallel:
        gc.collect()  # frees rows in reference cycles
        return map_here(run, jobs, advance)
    if len(jobs) > 1 and pool.has_room_for(stored_bytes(ref)):
        if pool.local:
            return pool.map(run, jobs, advance)
        if pool.config.elsewhere and load_data is not None:
            return pool.map(run, jobs, advance, data=load_data())
    return map_here(run, jobs, advance)


def write_fold_table(
    path: Path,
    rows: list[dict[str, Any]],
    statistics: Sequence[StatisticsRef],
    n_parallel: int,
) -> None:
    held_out = [
        (row["repeat"], row["fold"], row[HELD_OUT])
        for row in rows
        if row.get(HELD_OUT) is not None
    ]
    rows = [row | {"n_parallel": n_parallel} for row in rows]
    with keep(
        path, [Path(statistics_ref.path) for statistics_ref in statistics]
    ) as folder:
        pq.write_table(pa.Table.from_pylist(rows, schema=COLUMNS), folder / TABLE)
        if held_out:
            write_predictions(folder, held_out)
