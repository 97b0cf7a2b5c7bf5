"""One learner on one data set: weights, predictor and test error in every trial."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dask.utils import parse_bytes
from distributed.system import MEMORY_LIMIT
from prefect import get_run_logger

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import (
    BASELINE_TITLES,
    PREDICTOR_OPTIONS,
    BaselineName,
    CompareConfig,
    DirichletConfig,
    FamilyConfig,
    FeatureConfig,
    GaussianConfig,
    LaplacianConfig,
    LearnerConfig,
    OwnConfig,
    PolynomialConfig,
    PrecomputedConfig,
    ProtocolConfig,
    grid_values,
)
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.kernels.engine.workers import Threads
from learnkernels.kernels.predictors import PREDICTORS, as_predictor
from learnkernels.kernels.predictors.base import DEFAULTS
from learnkernels.kernels.predictors.choice import ROUGH, Auto, PredictorChoice, Problem, choose_predictor
from learnkernels.kernels.protocol.metrics import METRICS
from learnkernels.tasks.data.dataset import DatasetRef, stored_bytes
from learnkernels.tasks.measure.baseline import SearchJob, predictor_of, search, settings_of
from learnkernels.tasks.measure.moments import Advance, planned_trials, sampled, unusual_refit
from learnkernels.tasks.measure.stored_moments import MomentsRef
from learnkernels.tasks.measure.trials import Held, TrialJob, run_trial
from learnkernels.tasks.naming import step
from learnkernels.tasks.own import as_learner, learner_class, own_family, sources
from learnkernels.tasks.store import computed_at, digest, keep, kept, store_path
from learnkernels.tasks.workers.cluster import DaskPool, run_all

PARALLEL_ROWS = 4096
"""Training rows up to which trials run side by side; larger factorizations use all cores of one process."""

PARALLEL_ITERATIONS = 10_000
"""The same for predictors that factorize no matrix of all rows, and for baselines."""

TABLE = "folds.parquet"
"""What holds the fold results, in their entry of the store."""

STEPS_SECONDS = 10.0
"""Least time between two lines of the log about one iteration."""

COLUMNS = pa.schema(
    [
        ("dataset", pa.string()),
        ("task", pa.string()),
        ("learner", pa.string()),
        ("predictor", pa.string()),
        ("repeat", pa.int32()),
        ("fold", pa.int32()),
        ("alignment", pa.float64()),
        ("error", pa.float64()),
        ("metric", pa.string()),
        ("seconds_weights", pa.float64()),
        ("seconds_fit", pa.float64()),
        ("n_train", pa.int32()),
        ("n_test", pa.int32()),
        ("n_rows", pa.int32()),
        ("n_kernels", pa.int32()),
        ("weights", pa.list_(pa.float64())),
        ("trivial_error", pa.float64()),
        ("validation_error", pa.float64()),
        ("candidate_errors", pa.list_(pa.list_(pa.float64()))),
        ("regularisation", pa.float64()),
        ("grid_edge", pa.bool_()),
        ("kernels", pa.list_(pa.string())),
        ("algorithm", pa.string()),
        ("params", pa.string()),
        ("certificate", pa.float64()),
        ("certificate_measure", pa.string()),
        ("certificate_tolerance", pa.float64()),
        ("iterations", pa.int32()),
        ("objectives", pa.list_(pa.float64())),
        ("parameters", pa.list_(pa.list_(pa.float64()))),
        ("test_alignment", pa.float64()),
        ("n_sampled", pa.int32()),
        ("predictor_reason", pa.string()),
        ("notes", pa.list_(pa.string())),
        ("relevance", pa.list_(pa.float64())),
        ("features", pa.list_(pa.string())),
        ("history", pa.list_(pa.float64())),
        ("seconds_pass", pa.float64()),
    ]
)
"""One row a trial: a fold, or with a split, whose `fold` is 0, a repeat.

`n_rows` are those of the data set, of one in time those up to the last that tests; `weights` are mu for the base
kernels as normalised; `learner` is the name in reports and `algorithm` that of the table; `params` is JSON. `alignment`
is that of the learned kernel on the training rows, `test_alignment` on the test rows, at most a thousand of them.
`candidate_errors` are validation errors, a row a combination of `tune`, along the grid. `parameters` holds the sigma of
each base kernel that a continuous learner found. `certificate` is the relative residual of the measure beside it, null
where nothing is iterated; for a learner that is solved for each Lambda all belong to the chosen one. Where base kernels
were measured on a sample, `n_sampled` are its rows among those that train. `predictor_reason` says why ``auto`` took
that predictor, and `notes` what the predictor has to say of its solution. `relevance` is how much each of the
`features` counts, null where base kernels have no sigma a feature. `history` holds alignments while base kernels were
found: of a continuous family after each addition, of learned metrics of each round on rows that did not teach it.
`seconds_pass` is what of the pass over the base kernels, which trials and learners share, one who asks for this trial
alone pays for its training rows.
"""

LATER = (
    "n_sampled", "predictor_reason", "notes", "relevance", "features", "history", "seconds_pass",
)  # fmt: skip
"""Columns that tables in the store may lack: they are null there, and no part of the store's keys."""


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
    config: CompareConfig, learner: LearnerConfig, ref: DatasetRef, n_rows: int | None = None
) -> PredictorChoice:
    """Return the predictor of a learner on a data set, and why it is that one where the configuration names none.

    Parameters
    ----------
    config : CompareConfig
        With the predictor that is asked for.
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
    if config.centering != "center" and not row.takes_uncentered:
        raise InputError(
            f"learners: {learner.title} is defined by base kernels that are centered, and 'centering' is "
            f"{config.centering}; leave "
            "one of them out, or set takes_uncentered in its class, where it asks its operator for the centering."
        )
    if ref.weighted or ref.class_weighted:
        _require_weighable(config, learner, ref)
    if ref.in_parts and config.baseline is not None:
        raise InputError(
            f"data set {ref.name}: is read in parts, and the search of 'baseline' needs all its rows at once; leave it "
            "out."
        )
    if ref.task not in row.tasks:
        raise InputError(
            f"data set {ref.name}: learner {learner.title} serves {' and '.join(row.tasks)}, and this is a {ref.task}; "
            "leave it out, or set the data set's task."
        )
    if not row.learns_kernel:
        if config.moments.sample != "none":
            raise InputError(
                f"learners: {learner.title} learns from all rows and not from a sample; leave it out, or set "
                "'moments.sample: none'."
            )
        # It learns hypotheses and brings its own predictor, whatever the configuration names.
        return PredictorChoice(as_predictor(row.predictor or DEFAULTS[ref.task]), "")
    stage, outputs = config.second_stage, len(ref.classes) if len(ref.classes) > 2 else 1
    problem = Problem(
        ref.task,
        row.predictor,
        suited=row.suited,
        n_rows=n_rows or training_rows(config.protocol, ref.n_rows),
        n_kernels=_n_kernels(config.kernels, ref.n_features) if row.takes_family else FOUND,
        n_seeds=1 if row.takes_family else FOUND,
        n_features=ref.n_features,
        n_columns=outputs * (len(grid_values(config.protocol.grid)) if n_rows is None else 1),
        power=any(getattr(as_learner(learner.name, **setting), "degree", 1) != 1 for setting in learner.settings()),
        indefinite=row.signed,
    )
    auto = Auto(memory=predictor_memory(stage.memory))
    try:
        choice = choose_predictor(auto if stage.name == "auto" else as_predictor(stage.name), problem)
    except ValueError as error:
        raise InputError(f"data set {ref.name}: {error}") from None
    if choice.predictor.name == "nystrom" and ref.task == "regression" and stage.loss not in (None, "squared"):
        raise InputError(
            f"data set {ref.name}: predictor.loss {stage.loss} is for classification, and this is a regression; leave "
            "it out."
        )
    return choice


def _require_weighable(config: CompareConfig, learner: LearnerConfig, ref: DatasetRef) -> None:
    """Raise InputError if a learner, a sample or the baseline takes no weights of rows."""
    key = "weights" if ref.weighted else "class_weight"
    where = f"data set {ref.name}: {key!r} gives rows weights, and"
    if not learner_class(learner.name).takes_weights:
        raise InputError(
            f"{where} learner {learner.title} learns from rows that count once each; leave one of them out, or take a "
            "learner of alignments, such as alignf, or rfm."
        )
    if sampled(config):
        raise InputError(f"{where} a sample counts each row once; leave {key!r} out, or set 'moments.sample: none'.")
    if config.baseline is not None and ref.weighted:
        raise InputError(f"{where} the grid search of 'baseline' counts each row once; leave one of them out.")


def predictor_options(config: CompareConfig, predictor: str) -> dict[str, Any]:
    """Return the options that the configuration has for a predictor, with the budget and the seed it needs."""
    stage = config.second_stage
    options = {key: value for key, value in stage.options().items() if predictor in PREDICTOR_OPTIONS[key]}
    if stage.name == "auto" and predictor == "krr-cg":
        options.setdefault("tolerance", ROUGH)
    if "landmarks" in options:
        options.pop("memory", None)
    elif predictor == "nystrom":
        options["memory"] = predictor_memory(stage.memory)
    return options | ({"seed": config.protocol.seed} if PREDICTORS[predictor].by_rows else {})


def _n_kernels(configs: Sequence[FamilyConfig], n_features: int) -> int:
    """Return the number of base kernels; one for matrices on disk, which are looked up."""
    n = 0
    for config in configs:
        if isinstance(config, GaussianConfig | LaplacianConfig):
            n += len(config.bandwidths())
        elif isinstance(config, PolynomialConfig):
            n += len(config.degrees)
        elif isinstance(config, DirichletConfig):
            n += len(grid_values(config.frequencies))
        elif isinstance(config, FeatureConfig):
            n += (n_features if config.columns is None else len(config.columns)) + config.constant
        elif isinstance(config, OwnConfig):
            n += own_family(config).n_kernels
        else:
            n += 1
    return n


def predictor_memory(setting: str | None) -> int:
    """Return how many bytes a predictor may take: as set, or half of what the machine or its container has.

    Not of what is free: which predictor suits, and with it a result and its place in the store, would follow from what
    else is running. Rounded down to a power of two.
    """
    if setting is None:
        return 1 << int(MEMORY_LIMIT // 2).bit_length() - 1
    return int(parse_bytes(setting))


def training_rows(protocol: ProtocolConfig, n_rows: int) -> int:
    """Return how many rows train in a trial."""
    if protocol.split is not None:
        return protocol.split.train + (protocol.split.validation or 0 if protocol.refit else 0)
    assert protocol.folds is not None  # the schema has one of both
    return n_rows * (protocol.folds - 2 + protocol.refit) // protocol.folds


@step("evaluate {learner.title} on {ref.name}")
def evaluate_learner(
    ref: DatasetRef,
    moments: Sequence[MomentsRef],
    learner: LearnerConfig,
    config: CompareConfig,
    pool: DaskPool,
    advance: Advance,
) -> FoldsRef:
    """Learn weights and measure the test error in every trial, unless the store has the result.

    Trials run side by side on the workers of this machine, where they are small enough to leave each one core. Larger
    ones run here one after the other, and those of predictors that go over the rows again and again have the workers do
    the passes.
    """
    choice, protocol = predictor_for(config, learner, ref), config.protocol
    predictor = choice.predictor.name
    options = predictor_options(config, predictor)
    grid = grid_values(protocol.grid)
    key = _key(ref, moments, learner, config, predictor, options)
    path = store_path("folds", key)
    result = FoldsRef(ref.name, learner.title, learner.name, predictor, str(path))
    log = get_run_logger()
    if choice.reason:
        log.info("%s, %s: %s", ref.name, learner.title, choice.reason)
    if kept(path, log.warning):
        log.info("%s, %s: fold results %s are in the store", ref.name, learner.title, key)
        advance(1.0)
        return replace(result, stored=computed_at(path))
    jobs = [
        TrialJob(
            of.rows or ref,
            of,
            trial,
            config.kernels,
            learner,
            config.normalise,
            config.centering,
            predictor,
            tuple(grid),
            options=options,
            metric=protocol.metric,
        )
        for of in moments
        for trial in planned_trials(protocol, ref.ordered)
        if of.serves(trial)
    ]
    run, n_train, by_rows = run_trial, training_rows(protocol, ref.n_rows), PREDICTORS[predictor].by_rows
    apart = n_train <= (PARALLEL_ITERATIONS if by_rows else PARALLEL_ROWS)
    if by_rows and apart:
        run = partial(run_trial, workers=Threads(1) if pool.local else None)
    elif by_rows:
        run = partial(run_trial, workers=pool.workers, progress=Steps(f"{ref.name}, {learner.title}", log.info))
    elif ref.in_parts and not apart:
        run = partial(run_trial, workers=pool.workers)
    files = sources([learner]) or any(isinstance(of, OwnConfig | PrecomputedConfig) for of in config.kernels)
    # Learners and matrices that lie in files of this machine stay here.
    given = None if files else lambda: {"held": Held.of(jobs, pool.folder)}
    rows = []
    if protocol.choose is not None and protocol.choose.once:
        rows = run_jobs(run, jobs[:1], ref, pool, apart, lambda share: advance(share / len(jobs)), given)
        chosen = tuple(tuple(errors) for errors in rows[0]["candidate_errors"])
        jobs = [replace(job, chosen=chosen) for job in jobs]
    left = len(jobs) - len(rows)
    rows += run_jobs(run, jobs[len(rows) :], ref, pool, apart, lambda share: advance(share * left / len(jobs)), given)
    write_fold_table(path, [row | {"predictor_reason": choice.reason or None} for row in rows], moments)
    for note in dict.fromkeys(note for row in rows for note in row["notes"] or ()):
        log.info("%s, %s: %s", ref.name, learner.title, note)
    edges = sum(row["grid_edge"] for row in rows)
    log.info("%s, %s: %s %.4f", ref.name, learner.title, rows[0]["metric"], np.mean([row["error"] for row in rows]))
    if edges:
        log.warning(
            "%s, %s: the best Lambda lies on the edge of the grid in %d of %d %s; widen protocol.grid",
            ref.name, learner.title, edges, len(rows), "folds" if protocol.split is None else "repeats",
        )  # fmt: skip
    return result


@step("{kind} on {ref.name}")
def evaluate_baseline(
    ref: DatasetRef,
    moments: Sequence[MomentsRef],
    config: CompareConfig,
    pool: DaskPool,
    advance: Advance,
    kind: BaselineName,
) -> FoldsRef:
    """Measure a baseline in every trial, unless the store has the result."""
    assert config.baseline is not None
    key = digest(
        NUMERICS_VERSION, kind, ref.name, ref.digest, [m.key for m in moments], settings_of(kind, config.baseline),
        *unusual_metric(config.protocol), *unusual_refit(config.protocol),
    )  # fmt: skip
    path, log = store_path("folds", key), get_run_logger()
    result = FoldsRef(ref.name, BASELINE_TITLES[kind], kind, predictor_of(kind, ref.task), str(path))
    if kept(path, log.warning):
        log.info("%s, %s: fold results %s are in the store", ref.name, result.learner, key)
        advance(1.0)
        return replace(result, stored=computed_at(path))
    planned, metric = planned_trials(config.protocol, ref.ordered), config.protocol.metric
    jobs = [
        SearchJob(of.rows or ref, of, trial, config.baseline, kind, metric)
        for of in moments
        for trial in planned
        if of.serves(trial)
    ]
    apart = training_rows(config.protocol, ref.n_rows) <= PARALLEL_ITERATIONS
    write_fold_table(path, run_jobs(search, jobs, ref, pool, apart, advance), moments)
    return result


def _key(
    ref: DatasetRef,
    moments: Sequence[MomentsRef],
    learner: LearnerConfig,
    config: CompareConfig,
    predictor: str,
    options: Mapping[str, Any],
) -> str:
    """Return what a fold table is stored under: a digest of all that its numbers depend on."""
    protocol = config.protocol
    once = [protocol.choose.once] if protocol.choose is not None else []
    return digest(
        NUMERICS_VERSION, [name for name in COLUMNS.names if name not in LATER], ref.name, [m.key for m in moments],
        learner.model_dump_json(), config.normalise, predictor, grid_values(protocol.grid), *once,
        *([options] if options else []), *sources([learner]), *unusual_metric(protocol), *unusual_refit(protocol),
        *([] if config.centering == "center" else ["centering", config.centering]),
    )  # fmt: skip


def unusual_metric(protocol: ProtocolConfig) -> list[str]:
    """Return what of the metric is part of the store's keys: nothing for the metric of a task."""
    return [] if protocol.metric is None or METRICS[protocol.metric].default else [f"metric {protocol.metric}"]


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


Job = TypeVar("Job")


def run_jobs(
    run: Callable[[Job], dict[str, Any]],
    jobs: Sequence[Job],
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
    return run_all(run, jobs, advance, pool if apart and pool.has_room_for(stored_bytes(ref)) else None, given)


def write_fold_table(path: Path, rows: list[dict[str, Any]], moments: Sequence[MomentsRef]) -> None:
    """Keep rows of the fold table, which come from these moments."""
    with keep(path, [Path(of.path) for of in moments]) as folder:
        pq.write_table(pa.Table.from_pylist(rows, schema=COLUMNS), folder / TABLE)
