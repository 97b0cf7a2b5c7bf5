"""All learners of a configuration on all its data sets: what flows that measure have in common."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import pandas as pd
from prefect.futures import PrefectFuture

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import BASELINE_TITLES, CompareConfig, DatasetConfig, PrecomputedConfig
from learnkernels.kernels.learners import as_learner

from ..data.dataset import Dataset, DatasetRef, draw_folds, load_dataset, store_dataset
from ..data.ingest import ingest, warn
from ..data.tables import columns_remembered
from ..measure.baseline import CONSTANT, SEARCHED, kinds_of
from ..measure.evaluation import (
    FoldsRef,
    evaluate_baseline,
    evaluate_learner,
    predictor_for,
    training_rows,
    unserved,
)
from ..measure.matrices import StoredMatrices, matrix_folder, own_matrices
from ..measure.statistics import (
    compute_statistics,
    planned_trials,
    require_feasible,
    rows_of_trial,
)
from ..measure.trials import StatisticsRef
from ..naming import side_by_side
from ..own import require_params
from ..workers.cluster import DaskPool
from .progress import RunProgress, StepProgress
from .tracking import TrackedRun, track_result

WORTH_WORKERS = 20.0
"""Work from which on worker processes are worth the five seconds or so that they take to start and to end."""

LISTED_ROWS = 1_000_000
"""Rows of a data set up to which results say in which fold each tests."""

SEARCHES = 10.0
"""Paths that learners of one stage, those that search base kernels, and searched baselines take about as long as."""


@dataclass(frozen=True)
class Prepared:
    """A configuration whose data sets are read and whose requests are checked.

    Attributes
    ----------
    config : CompareConfig
    jobs : tuple of (DatasetRef, DatasetRef, CompareConfig)
        One a data set: as a user knows it, as the pass sees it (matrices on disk have positions for rows), and the
        configuration for that: its kernels, its folds, and the learners that serve it.
    skipped : tuple of str
        A sentence for each learner that does not serve a data set.
    """

    config: CompareConfig
    jobs: tuple[tuple[DatasetRef, DatasetRef, CompareConfig], ...]
    skipped: tuple[str, ...] = ()

    @property
    def refs(self) -> list[DatasetRef]:
        """The data sets, as a user knows them."""
        return [ref for ref, _, _ in self.jobs]


def steps(config: CompareConfig) -> int:
    """Return how many steps `prepare` and `measure` take."""
    measured = len(config.learners) + len(kinds_of(config))
    return len(config.datasets) * (2 + measured)


def timed_steps(config: CompareConfig) -> int:
    """Return how many of these have trials that take time."""
    return len(config.datasets) * (len(config.learners) + len({*SEARCHED} & {*kinds_of(config)}))


def work(config: CompareConfig, ref: DatasetRef) -> float:
    """Return what there is to do on a data set, in units of a predictor's path on a thousand training rows."""
    protocol = config.protocol
    settings = 0.0
    for learner in config.learners:
        two_stage = as_learner(learner.name, **learner.params).two_stage
        settings += prod(map(len, learner.tune.values())) * (1.0 if two_stage else SEARCHES)
    settings += SEARCHES * len({*SEARCHED} & {*kinds_of(config)})
    trials = _trials(config, ref) * (protocol.choose.folds if protocol.choose is not None else 1)
    return trials * settings * (training_rows(protocol, ref.n_rows) / 1000) ** 3


def _trials(config: CompareConfig, ref: DatasetRef) -> int:
    """Return how many trials a learner has on a data set."""
    return config.protocol.repeats * len(planned_trials(config.protocol, ref.ordered))


def prepare(config: CompareConfig, pool: DaskPool, progress: RunProgress) -> Prepared:
    """Read every data set, and refuse what cannot work before any long work.

    Raises
    ------
    InputError
        A source is missing, no learner serves a data set, the folds cannot be drawn, no scheduler answers.
    """
    pool.require_usable()
    for learner in config.learners:
        require_params(learner)
    jobs: dict[int, tuple[DatasetRef, DatasetRef, CompareConfig]] = {}
    skipped = list[str]()
    with columns_remembered():
        for (index, started), ref in side_by_side(_submit_datasets(config, pool, progress), config.parallel):
            local, left_out = _served(config, config.datasets[index], ref)
            for sentence in left_out:
                warn(f"skipped: {sentence}")
            rows, local = rows_for(local, ref)
            require_feasible(rows, local.kernels, local.protocol)
            jobs[index] = (ref, rows, local)
            started.advance(1 + len(left_out))
            skipped += left_out
    ordered = tuple(jobs[index] for index in range(len(jobs)))
    if sum(work(local, ref) for ref, _, local in ordered) < WORTH_WORKERS:
        pool.spare()
    return Prepared(config, ordered, tuple(skipped))


def _submit_datasets(
    config: CompareConfig, pool: DaskPool, progress: RunProgress
) -> Iterator[tuple[tuple[int, StepProgress], PrefectFuture[DatasetRef]]]:
    """Submit the ingestion of each data set when the next one is requested, and give its position and future."""
    for index, dataset in enumerate(config.datasets):
        started = progress.start(f"reading {dataset.label}")
        yield (index, started), ingest.submit(dataset, config.data_dir, config.protocol.seed, pool)


def _served(config: CompareConfig, dataset: DatasetConfig, ref: DatasetRef) -> tuple[CompareConfig, list[str]]:
    """Return the configuration of a data set with the learners that serve it, and a sentence for each other one.

    Raises
    ------
    InputError
        None serves it, or a predictor does not.
    """
    sentences = [unserved(learner, ref) for learner in config.learners]
    learners = [learner for learner, sentence in zip(config.learners, sentences, strict=True) if not sentence]
    if not learners:
        learners, sentences = list(config.learners), []
    local = config_on(config, dataset, ref).model_copy(update={"learners": tuple(learners)})
    for learner in learners:
        predictor_for(local, learner, ref)
    return local, [sentence for sentence in sentences if sentence]


def config_on(config: CompareConfig, dataset: DatasetConfig, ref: DatasetRef) -> CompareConfig:
    """Return the configuration of one data set alone, with the kernels and the folds that are its own."""
    folds, repeats = ref.folds or (config.protocol.folds, config.protocol.repeats)
    protocol = config.protocol.model_copy(update={"folds": folds, "repeats": repeats})
    return config.on(dataset).model_copy(update={"protocol": protocol})


def measure(prepared: Prepared, comparison: TrackedRun, pool: DaskPool, progress: RunProgress) -> Sequence[FoldsRef]:
    """Compute statistics per data set and repeat, measure every learner in every trial, and log each as an MLflow run.

    Baselines follow the learners of all data sets, the slowest last. What the store has is not computed again. Results
    are in the order of the data sets.
    """
    results: dict[int, FoldsRef] = {}
    submissions = _submit_results(prepared, pool, progress)
    for (index, ref, local), folds in side_by_side(submissions, prepared.config.parallel):
        results[index] = folds
        track_result(comparison, local, ref, folds)
    in_order = [results[index] for index in sorted(results)]
    names = [ref.name for ref in prepared.refs]
    return sorted(in_order, key=lambda folds: names.index(folds.dataset))


Result = tuple[int, DatasetRef, CompareConfig]
"""What a result is of: its position, the data set as a user knows it, and the configuration for that."""


def _submit_results(
    prepared: Prepared, pool: DaskPool, progress: RunProgress
) -> Iterator[tuple[Result, PrefectFuture[FoldsRef]]]:
    """Submit the measurement of each learner and baseline when the next one is requested, and give its future."""
    statistics: list[list[StatisticsRef]] = []
    position = itertools.count()
    for ref, rows, local in prepared.jobs:
        statistics.append(measure_kernels(rows, local, pool, progress))
        for future in _submit_learners(rows, statistics[-1], local, pool, progress):
            yield (next(position), ref, local), future
    for kind in kinds_of(prepared.config):
        for (ref, _, local), measured in zip(prepared.jobs, statistics, strict=True):
            if not ref.n_features and kind != CONSTANT:
                progress.skip()  # there are matrices alone
                continue
            started = progress.start(f"{ref.name}: {BASELINE_TITLES[kind]}", _trials(local, ref) * (kind in SEARCHED))
            yield (
                (next(position), ref, local),
                evaluate_baseline.submit(ref, measured, local, pool, started.advance, kind),
            )


def folds_of_rows(prepared: Prepared) -> dict[str, pd.DataFrame]:
    """Return, by data set, the fold in which each row tests, a column per repeat; -1 where it tests in none.

    Not of data sets of more than `LISTED_ROWS` rows.
    """
    found = {}
    for ref, _, local in prepared.jobs:
        if ref.n_rows > LISTED_ROWS:
            continue
        dataset, protocol = load_dataset(ref), local.protocol
        tests = {trial.test: trial.index for trial in planned_trials(protocol, ref.ordered)}
        drawn = {f"repeat_{repeat}": draw_folds(dataset, protocol, repeat) for repeat in range(protocol.repeats)}
        found[ref.name] = pd.DataFrame(drawn).map(lambda fold, tests=tests: tests.get(fold, -1)).astype("int16")
    return found


def measure_kernels(
    rows: DatasetRef, config: CompareConfig, pool: DaskPool, progress: RunProgress
) -> list[StatisticsRef]:
    """Return the statistics of the base kernels, one of each repeat; together a step of the progress.

    Where each trial scales the features by its own training rows, one of each trial.
    """
    statistics, repeats = [], config.protocol.repeats
    trials = planned_trials(config.protocol, rows.ordered) if rows.by_training else []
    started = progress.start(f"{rows.name}: alignment statistics of the base kernels")
    share = lambda done: started.advance(done / repeats / max(1, len(trials)))  # noqa: E731
    for repeat in range(repeats):
        for trial in trials:
            own = rows_of_trial(rows, config.protocol, repeat, trial)
            statistics.append(compute_statistics.submit(own, config, repeat, pool, share, trial).result())
        if not trials:
            statistics.append(compute_statistics.submit(rows, config, repeat, pool, share).result())
    return statistics


def measure_learners(
    rows: DatasetRef, statistics: Sequence[StatisticsRef], config: CompareConfig, pool: DaskPool, progress: RunProgress
) -> list[FoldsRef]:
    """Return the fold results of each learner; a step of the progress each."""
    submissions = enumerate(_submit_learners(rows, statistics, config, pool, progress))
    results = dict(side_by_side(submissions, config.parallel))
    return [results[index] for index in range(len(results))]


def _submit_learners(
    rows: DatasetRef, statistics: Sequence[StatisticsRef], config: CompareConfig, pool: DaskPool, progress: RunProgress
) -> Iterator[PrefectFuture[FoldsRef]]:
    """Submit the measurement of each learner when the next one is requested, and give its future."""
    for learner in config.learners:
        started = progress.start(f"{rows.name}: {learner.title}", _trials(config, rows))
        yield evaluate_learner.submit(rows, statistics, learner, config, pool, started.advance)


def rows_for(config: CompareConfig, ref: DatasetRef) -> tuple[DatasetRef, CompareConfig]:
    """Return the rows that the base kernels of a configuration are functions of, and the configuration for them.

    For families that are computed these are the data set and the configuration as given. Matrices are functions of row
    positions: the rows are then a data set with the same target whose only feature is the position, and whose digest
    holds that of the matrices; the configuration names the data set's own folder.

    Raises
    ------
    InputError
        There are no whole matrices of this data set's name, or they were made from other data.

    Notes
    -----
    Reads the matrices once, for their checksums.
    """
    (first, *_) = config.kernels
    if not isinstance(first, PrecomputedConfig):
        return ref, config
    own = own_matrices(Path(config.data_dir, first.path), ref) if first.own else None
    stored = StoredMatrices(own or matrix_folder(first.path, ref.name))
    stored.require_whole()
    index = stored.about
    if index.data_digest != ref.digest:
        raise InputError(
            f"data set {ref.name}: the matrices in {stored.folder} were made from other data, {index.dataset} with "
            f"{index.n_rows:,} rows and digest {index.data_digest}, not {ref.n_rows:,} rows and {ref.digest}; "
            "make them again with 'learnkernels gram', or correct 'path' or the data set."
        )
    positions = np.arange(ref.n_rows, dtype=np.float64)[:, None]
    given = load_dataset(ref)
    rows = Dataset(positions, given.target, (f"row in matrices {index.id}",), **given.sample_columns)
    local = PrecomputedConfig(family="precomputed", path=str(stored.folder))
    return store_dataset(rows, ref.name, ref.source, warn), config.model_copy(update={"kernels": (local,)})
