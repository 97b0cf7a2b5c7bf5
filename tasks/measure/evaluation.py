"""One learner on one data set: weights, predictor and test error in every trial."""

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
from ..own import as_learner, learner_class, sources
from ..store import computed_at, keep, kept, result_key, store_path
from ..workers.cluster import Advance, DaskPool, map_here
from .baseline import predictor_of, search, settings_of
from .families import build_family
from .held_out import write_predictions
from .statistics import planned_trials, sampled
from .trials import HELD_OUT, Held, StatisticsRef, TrialJob, run_trial

PARALLEL_ROWS = 4096
"""Training rows up to which trials run side by side; larger factorizations use all cores of one process."""

PARALLEL_ITERATIONS = 10_000
"""The same for predictors that factorize no matrix of all rows, and for baselines."""

TABLE = "folds.parquet"
"""What holds the fold results, in their entry of the store."""

STEPS_SECONDS = 10.0
"""Least time between two lines of the log about one iteration."""


def _columns(dtype: pa.DataType, names: str) -> list[pa.Field]:
    return [pa.field(name, dtype) for name in names.split()]


STRING, INTEGER, NUMBER = pa.string(), pa.int32(), pa.float64()

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

COLUMNS = pa.schema(_FIELDS)
"""One row per trial: a fold, or with a split, whose `fold` is 0, a repeat.

`n_rows` are those of the data set, of one in time those up to the last that tests; `weights` are mu for the base
kernels as normalized; `learner` is the name in reports and `algorithm` that of the table; `params` is JSON. `alignment`
is that of the learned kernel on the training rows, `test_alignment` on the test rows, at most a thousand of them.
`candidate_errors` are validation errors, a row a combination of `tune`, along the grid. `parameters` holds the sigma of
each base kernel that a continuous learner found. `certificate` is the relative residual of the measure next to it, null
where nothing is iterated; for a learner that is solved for each C all belong to the chosen one. Where base kernels were
measured on a sample, `n_sampled` are its rows among those that train. `predictor_reason` says why ``auto`` took that
predictor, and `notes` what the predictor has to say of its solution. `relevance` is how much each of the `features`
counts, null where base kernels have no sigma a feature. `history` holds alignments while base kernels were found: of a
continuous family after each addition, of learned metrics of each round on rows that were not used to learn it.
`seconds_pass` is what of the pass over the base kernels, which trials and learners share, one who needs this trial
alone pays for its training rows. `n_parallel` is how many steps could run at once, so that these share the seconds.
"""

FOUND = 27
"""Base kernels that a learner is reckoned to find where it finds its own: most of those of rfm, in three metrics."""


@dataclass(frozen=True)
class FoldsRef:
    """Where the fold results of one (data set, learner) lie; `stored` says since when, if an earlier run made them."""

    dataset: str
    learner: str
    algorithm: str
    predictor: str
    path: str
    stored: str | None = None


def predictor_for(
    config: schema.CompareConfig, learner: schema.LearnerConfig, ref: DatasetRef, n_rows: int | None = None
) -> PredictorChoice:
    """Return the predictor of a learner on a data set, and why it is that one where the configuration names none.

    Parameters
    ----------
    config : CompareConfig
        With the predictor that is requested.
    learner : LearnerConfig
        Whose own predictor goes before the task's.
    ref : DatasetRef
        The data set.
    n_rows : int, optional
        Training rows; those of a trial by default.

    Raises
    ------
    InputError
        The learner, the configured predictor or its loss does not serve the data set's task, the learner takes no
        sample, or something takes no weights.
    """
    row = learner_class(learner.name)
    if sentence := unserved(learner, ref):
        raise InputError(sentence)
    _require_usable(config, learner, ref)
    if not row.learns_kernel:
        # It learns hypotheses and brings its own predictor, whatever the configuration names.
        return PredictorChoice(as_predictor(row.predictor or DEFAULTS[ref.task]), "")
    stage, outputs = config.predictor, len(ref.classes) if len(ref.classes) > 2 else 1
    problem = PredictionProblem(
        ref.task,
        row.predictor,
        suited=row.suited,
        n_rows=n_rows or training_rows(config.protocol, ref.n_rows),
        n_kernels=_n_kernels(config.kernels, ref.n_features) if row.takes_family else FOUND,
        n_seeds=1 if row.takes_family else FOUND,
        n_features=ref.n_features,
        n_columns=outputs * (len(schema.grid_values(config.protocol.grid)) if n_rows is None else 1),
        power=any(getattr(as_learner(learner.name, setting), "degree", 1) != 1 for setting in learner.settings()),
        indefinite=row.signed,
    )
    asked = configured_predictor(config)
    if ref.task == "regression" and "loss" in asked.get_params():
        asked = as_predictor(asked, loss="squared")  # which counts where landmarks are chosen alone
    with input_errors(f"data set {ref.name}"):
        choice = asked.choose(problem)
    if choice.predictor.on_landmarks and ref.task == "regression" and stage.loss not in (None, "squared"):
        raise InputError(
            f"data set {ref.name}: predictor.loss {stage.loss} is for classification, and this is a regression; leave "
            "it out."
        )
    return choice


def unserved(learner: schema.LearnerConfig, ref: DatasetRef) -> str:
    """Return why a learner does not serve a data set, which others may serve; nothing where it does."""
    row, title = learner_class(learner.name), learner.title
    if ref.task not in row.tasks:
        return (
            f"data set {ref.name}: learner {title} serves {' and '.join(row.tasks)}, and this is a {ref.task}; "
            "leave it out, or set the data set's task."
        )
    if ref.weighted and not row.takes_weights:
        return (
            f"data set {ref.name}: 'weights' gives rows weights, and learner {title} learns from rows that count once "
            "each; leave one of them out, or take a learner of alignments, such as alignf, or rfm."
        )
    return ""


def _require_usable(config: schema.CompareConfig, learner: schema.LearnerConfig, ref: DatasetRef) -> None:
    """Raise InputError if a learner, a sample or the baseline does not serve what is configured."""
    row, title, where = learner_class(learner.name), learner.title, f"data set {ref.name}:"
    weighs, searched = f"{where} 'weights' gives rows weights, and", config.baseline is not None
    for refused, sentence in (
        (
            config.centering != "center" and not row.takes_uncentered,
            f"learners: {title} is defined by base kernels that are centered, and 'centering' is {config.centering}; "
            "leave one of them out, or set takes_uncentered in its class, where it asks its operator for the "
            "centering.",
        ),
        (
            ref.weighted and sampled(config),
            f"{weighs} a sample counts each row once; leave 'weights' out, or set 'statistics.sample: none'.",
        ),
        (
            searched and ref.weighted,
            f"{weighs} the grid search of 'baseline' counts each row once; leave one of them out.",
        ),
        (
            searched and ref.in_parts,
            f"{where} is read in parts, and the search of 'baseline' needs all its rows at once; leave it out.",
        ),
        (
            not row.learns_kernel and config.statistics.sample != "none",
            f"learners: {title} learns from all rows and not from a sample; leave it out, or set "
            "'statistics.sample: none'.",
        ),
    ):
        if refused:
            raise InputError(sentence)


def configured_predictor(config: schema.CompareConfig) -> Predictor:
    """Return the predictor that the configuration needs, with the budget and the seed it needs."""
    stage = config.predictor
    options = {"memory": predictor_memory(stage.memory), "seed": config.protocol.seed}
    options |= {name: value for name, value in stage.options().items() if name != "memory"}
    asked = as_predictor(stage.name)
    return as_predictor(asked, **{name: options[name] for name in asked.get_params() if name in options})


def predictor_options(config: schema.CompareConfig, predictor: str) -> dict[str, Any]:
    """Return the options, less those as by default, of a predictor that the configuration needs or chooses."""
    one = configured_predictor(config).candidates().get(predictor)
    params = {} if one is None else one.get_params()  # none of a learner that brings its own predictor
    options = {name: value for name, value in params.items() if value != getattr(type(one), name)}
    if "landmarks" in options:  # whose number follows from the memory otherwise
        options.pop("memory", None)
    return options


def _n_kernels(configs: Sequence[schema.FamilyConfig], n_features: int) -> int:
    """Return the number of base kernels; one for matrices on disk, which are looked up."""
    n = 0
    for config in configs:
        if isinstance(config, schema.FeatureConfig):
            n += (n_features if config.columns is None else len(config.columns)) + config.constant
        elif isinstance(config, schema.PrecomputedConfig):
            n += 1
        else:
            n += build_family([config.model_copy(update={"columns": None})], ["any"]).n_kernels
    return n


def predictor_memory(setting: str | None) -> int:
    """Return how many bytes a predictor may take: as set, or half of what the machine or its container has.

    Not of what is free: which predictor suits, and with it a result and its place in the store, would follow from what
    else is running. Rounded down to a power of two.
    """
    if setting is None:
        return 1 << int(MEMORY_LIMIT // 2).bit_length() - 1
    return int(parse_bytes(setting))


def training_rows(protocol: schema.ProtocolConfig, n_rows: int) -> int:
    """Return how many rows train in a trial."""
    if protocol.split is not None:
        return protocol.split.train + (protocol.split.validation or 0 if protocol.refit else 0)
    assert protocol.folds is not None  # the schema has one of both
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
    """Learn weights and measure the test error in every trial, unless the store has the result.

    Trials run side by side on the workers of this machine, where they are small enough to leave each one core. Larger
    ones run here one after the other, and those of predictors that go over the rows again and again have the workers do
    the passes.
    """
    choice, protocol, log = predictor_for(config, learner, ref), config.protocol, get_run_logger()
    predictor = choice.predictor.name
    options = predictor_options(config, predictor)
    settings = {
        "columns": COLUMNS.names,
        "dataset": ref.name,
        "learner": learner.model_dump(mode="json"),
        "normalize": config.normalize,
        "centering": config.centering,
        "predictor": predictor,
        "options": options,
        "protocol": protocol.model_dump(mode="json", include={"choose": {"once"}, "refit": True, "metric": True}),
        "grid": schema.grid_values(protocol.grid),
    }
    key = result_key("learner", settings, [*(passed.key for passed in statistics), *sources([learner])])
    result = FoldsRef(ref.name, learner.title, learner.name, predictor, str(store_path("folds", key)))
    if choice.reason:
        log.info("%s, %s: %s", ref.name, learner.title, choice.reason)
    if (stored := _from_store(result, advance)) is not None:
        return from_store(stored)
    rows = _run_trials(_jobs(statistics, config, ref), ref, learner, predictor, options, pool, advance)
    rows = [row | {"predictor_reason": choice.reason or None} for row in rows]
    write_fold_table(Path(result.path), rows, statistics, config.parallel)
    for note in dict.fromkeys(note for row in rows for note in row["notes"] or ()):
        log.info("%s, %s: %s", ref.name, learner.title, note)
    edges = sum(row["grid_edge"] for row in rows)
    log.info("%s, %s: %s %.4f", ref.name, learner.title, rows[0]["metric"], np.mean([row["error"] for row in rows]))
    if edges:
        log.warning(
            "%s, %s: the best C is at the boundary of the grid in %d of %d %s; extend protocol.grid",
            ref.name, learner.title, edges, len(rows), "folds" if protocol.split is None else "repeats",
        )  # fmt: skip
    return result


def _run_trials(
    jobs: list[TrialJob],
    ref: DatasetRef,
    learner: schema.LearnerConfig,
    predictor: str,
    options: dict[str, Any],
    pool: DaskPool,
    advance: Advance,
) -> list[dict[str, Any]]:
    """Return the rows of the trials of a learner: side by side where they are small, else one after the other."""
    config, by_rows = jobs[0].config, PREDICTORS[predictor].by_rows
    apart = training_rows(config.protocol, ref.n_rows) <= (PARALLEL_ITERATIONS if by_rows else PARALLEL_ROWS)
    run = partial(run_trial, learner=learner, predictor=predictor, options=options)
    if by_rows and apart:
        run = partial(run, workers=Threads(1) if pool.local else None)
    elif by_rows:
        steps = Steps(f"{ref.name}, {learner.title}", get_run_logger().info)
        run = partial(run, workers=pool.workers, progress=steps)
    elif ref.in_parts and not apart:
        run = partial(run, workers=pool.workers)
    files = sources([learner]) or any(
        isinstance(of, schema.OwnConfig | schema.PrecomputedConfig) for of in config.kernels
    )
    # Learners and matrices that lie in files of this machine stay here.
    given = None if files else lambda: {"held": Held.of(jobs, pool.folder)}
    rows: list[dict[str, Any]] = []
    choose, n = config.protocol.choose, len(jobs)
    if choose is not None and choose.once:
        rows = run_jobs(run, jobs[:1], ref, pool, apart, lambda share: advance(share / n), given)
        run, jobs = partial(run, chosen=rows[0]["candidate_errors"]), jobs[1:]
    return rows + run_jobs(run, jobs, ref, pool, apart, lambda share: advance(share * len(jobs) / n), given)


@step("{kind} on {ref.name}")
def evaluate_baseline(
    ref: DatasetRef,
    statistics: Sequence[StatisticsRef],
    config: schema.CompareConfig,
    pool: DaskPool,
    advance: Advance,
    kind: schema.BaselineName,
) -> FoldsRef:
    """Measure a baseline in every trial, unless the store has the result."""
    assert config.baseline is not None
    settings = {
        "columns": COLUMNS.names,
        "dataset": ref.name,
        "kind": kind,
        "search": settings_of(kind, config.baseline),
        "protocol": config.protocol.model_dump(mode="json", include={"refit", "metric"}),
    }
    key = result_key("baseline", settings, [ref.digest, *(passed.key for passed in statistics)])
    predictor, path = predictor_of(kind, ref.task), store_path("folds", key)
    result = FoldsRef(ref.name, schema.BASELINE_TITLES[kind], kind, predictor, str(path))
    if (stored := _from_store(result, advance)) is not None:
        return from_store(stored)
    apart = training_rows(config.protocol, ref.n_rows) <= PARALLEL_ITERATIONS
    jobs = _jobs(statistics, config, ref)
    rows = run_jobs(partial(search, kind=kind), jobs, ref, pool, apart, advance)
    write_fold_table(path, rows, statistics, config.parallel)
    return result


def _from_store(result: FoldsRef, advance: Advance) -> FoldsRef | None:
    """Return fold results that the store has; None where they are to be computed."""
    path, log = Path(result.path), get_run_logger()
    if not kept(path, log.warning):
        return None
    log.info("%s, %s: fold results %s are in the store", result.dataset, result.learner, path.name)
    advance(1.0)
    return replace(result, stored=computed_at(path))


def _jobs(statistics: Sequence[StatisticsRef], config: schema.CompareConfig, ref: DatasetRef) -> list[TrialJob]:
    """Return the trials of a protocol, each with the statistics that serve it."""
    planned = planned_trials(config.protocol, ref.ordered)
    served = ((of, trial) for of in statistics for trial in planned if of.trial in (None, trial.index))
    return [TrialJob(of.rows or ref, of, trial, config) for of, trial in served]


@dataclass
class Steps:
    """Says how far iterations are, every ten seconds."""

    name: str
    say: Callable[..., None]
    said: float = field(default_factory=time.monotonic)

    def __call__(self, steps: int, residual: float) -> None:
        if time.monotonic() - self.said > STEPS_SECONDS:
            self.said = time.monotonic()
            self.say("%s: conjugate gradients, step %d, relative residual %.1e", self.name, steps, residual)


def run_jobs(
    run: Callable[[TrialJob], dict[str, Any]],
    jobs: Sequence[TrialJob],
    ref: DatasetRef,
    pool: DaskPool,
    apart: bool,
    advance: Advance,
    given: Callable[[], dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of some trials of a data set, in their order; `advance` adds up to one.

    Trials that are small enough to be done `apart` run side by side on the workers, if each of these has room for the
    rows that it validates and tests on; on other machines where `given` returns all that they need.
    """
    if not apart:
        gc.collect()  # target and positions of all rows, which the step before has left in cycles
    elif len(jobs) > 1 and pool.has_room_for(stored_bytes(ref)):
        if pool.local:
            return pool.map(run, jobs, advance)
        if pool.config.elsewhere and given is not None:
            return pool.map(run, jobs, advance, **given())
    return map_here(run, jobs, advance)


def write_fold_table(
    path: Path, rows: list[dict[str, Any]], statistics: Sequence[StatisticsRef], n_parallel: int
) -> None:
    """Keep rows of the fold table, which come from these statistics, and the predictions of the trials.

    `n_parallel` is the number of steps that could run meanwhile.
    """
    held_out = [(row["repeat"], row["fold"], row[HELD_OUT]) for row in rows if row.get(HELD_OUT) is not None]
    rows = [row | {"n_parallel": n_parallel} for row in rows]
    with keep(path, [Path(of.path) for of in statistics]) as folder:
        pq.write_table(pa.Table.from_pylist(rows, schema=COLUMNS), folder / TABLE)
        if held_out:
            write_predictions(folder, held_out)
