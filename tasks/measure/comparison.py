"""Compare all learners of a configuration on all its data sets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import pandas as pd
from prefect.futures import PrefectFuture

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import (
    BASELINE_TITLES,
    CompareConfig,
    DatasetConfig,
    PrecomputedConfig,
)
from learnkernels.kernels.learners import as_learner
from learnkernels.kernels.model_selection.folds import Trial

from ..data.dataset import Dataset, DatasetRef, draw_folds, load_dataset, store_dataset
from ..data.ingest import ingest, warn
from ..data.tables import columns_remembered
from ..naming import side_by_side
from ..plugins import require_params
from ..workers.cluster import DaskPool
from .baseline import SLOW, kinds_of, serves
from .fold_statistics import (
    compute_statistics,
    planned_trials,
    require_feasible,
    rows_of_trial,
)
from .matrices import StoredMatrices, import_matrices, matrix_folder
from .progress import RunProgress, StepProgress
from .run_learner import (
    FoldsRef,
    evaluate_baseline,
    evaluate_learner,
    predictor_for,
    training_rows,
    unserved,
)
from .trials import StatisticsRef

SEARCHES = 10.0
"""Cost of one-stage learners, searches and slow baselines, in predictor paths."""


@dataclass(frozen=True)
class Prepared:
    """Validated configuration of a comparison of learners, with prepared data sets on disk.

    `jobs` has the user's data set, the rows of its base kernels, and its own
    configuration; `skipped` has a sentence for each unsupported learner.
    """

    config: CompareConfig
    jobs: tuple[tuple[DatasetRef, DatasetRef, CompareConfig], ...]
    skipped: tuple[str, ...] = ()

    @property
    def refs(self) -> list[DatasetRef]:
        return [ref for ref, _, _ in self.jobs]


def steps(config: CompareConfig) -> int:
    n_methods = len(config.learners) + len(kinds_of(config))
    return len(config.datasets) * (2 + n_methods)


def timed_steps(config: CompareConfig) -> int:
    n_methods = len(config.learners) + len(_slow_baselines(config))
    return len(config.datasets) * n_methods


def _slow_baselines(config: CompareConfig) -> set[str]:
    return set(SLOW) & set(kinds_of(config))


def estimate_work(config: CompareConfig, ref: DatasetRef) -> float:
    """Estimate the work of a comparison, relative to a fit on 1,000 rows."""
    protocol = config.protocol
    paths = SEARCHES * len(_slow_baselines(config))
    for learner in config.learners:
        paths_of_learner: float = prod(map(len, learner.tune.values()))
        if not as_learner(learner.name, **learner.params).two_stage:
            paths_of_learner *= SEARCHES
        paths += paths_of_learner
    n_fits = _number_of_trials(config, ref)
    if protocol.choose is not None:
        n_fits *= protocol.choose.folds
    return n_fits * paths * (training_rows(protocol, ref.n_rows) / 1000) ** 3


def _number_of_trials(config: CompareConfig, ref: DatasetRef) -> int:
    return config.protocol.repeats * len(planned_trials(config.protocol, ref.ordered))


def prepare(config: CompareConfig, pool: DaskPool, progress: RunProgress) -> Prepared:
    """Read every data set to disk; InputError for an invalid configuration."""
    pool.require_usable()
    for learner in config.learners:
        require_params(learner)
    jobs: dict[int, tuple[DatasetRef, DatasetRef, CompareConfig]] = {}
    skipped: list[str] = []
    with columns_remembered():
        submissions = _submit_datasets(config, pool, progress)
        for (position, started), ref in side_by_side(submissions, config.parallel):
            local, sentences = _supported(config, config.datasets[position], ref)
            for sentence in sentences:
                warn(f"skipped: {sentence}")
            rows, local = rows_for(local, ref)
            require_feasible(rows, local.kernels, local.protocol)
            jobs[position] = (ref, rows, local)
            started.advance(1 + len(sentences))
            skipped += sentences
    in_order = tuple(jobs[position] for position in range(len(jobs)))
    total_work = sum(estimate_work(local, ref) for ref, _, local in in_order)
    if total_work < 20.0:  # less than starting workers takes
        pool.spare()
    return Prepared(config, in_order, tuple(skipped))


def _submit_datasets(
    config: CompareConfig, pool: DaskPool, progress: RunProgress
) -> Iterator[tuple[tuple[int, StepProgress], PrefectFuture[DatasetRef]]]:
    for position, dataset in enumerate(config.datasets):
        started = progress.start(f"reading {dataset.label}")
        yield (
            (position, started),
            ingest.submit(dataset, config.data_dir, config.protocol.seed, pool),
        )


def _supported(
    config: CompareConfig, dataset: DatasetConfig, ref: DatasetRef
) -> tuple[CompareConfig, list[str]]:
    learners = []
    sentences = []
    for learner in config.learners:
        sentence = unserved(learner, ref)
        if sentence:
            sentences.append(sentence)
        else:
            learners.append(learner)
    if not learners:  # `predictor_for` raises the error
        learners = list(config.learners)
        sentences = []
    local = config_on(config, dataset, ref).model_copy(
        update={"learners": tuple(learners)}
    )
    for learner in learners:
        predictor_for(local, learner, ref)
    return local, sentences


def config_on(
    config: CompareConfig, dataset: DatasetConfig, ref: DatasetRef
) -> CompareConfig:
    """Return the configuration restricted to a data set, with its kernels and folds."""
    folds, repeats = ref.folds or (config.protocol.folds, config.protocol.repeats)
    protocol = config.protocol.model_copy(update={"folds": folds, "repeats": repeats})
    return config.on(dataset).model_copy(update={"protocol": protocol})


def measure_errors(
    prepared: Prepared,
    record: Callable[[CompareConfig, DatasetRef, FoldsRef], object],
    pool: DaskPool,
    progress: RunProgress,
) -> Sequence[FoldsRef]:
    """Measure the errors of all learners and baselines on all data sets."""
    results: dict[int, FoldsRef] = {}
    submissions = _submit_results(prepared, pool, progress)
    for (position, ref, local), folds in side_by_side(
        submissions, prepared.config.parallel
    ):
        results[position] = folds
        record(local, ref, folds)
    in_order = [results[position] for position in sorted(results)]
    names = [ref.name for ref in prepared.refs]
    return sorted(in_order, key=lambda folds: names.index(folds.dataset))


Result = tuple[int, DatasetRef, CompareConfig]


def _submit_results(
    prepared: Prepared, pool: DaskPool, progress: RunProgress
) -> Iterator[tuple[Result, PrefectFuture[FoldsRef]]]:
    statistics: list[list[StatisticsRef]] = []
    positions = itertools.count()
    for ref, rows, local in prepared.jobs:
        statistics.append(measure_kernels(rows, local, pool, progress))
        for future in _submit_learners(rows, statistics[-1], local, pool, progress):
            yield (next(positions), ref, local), future
    for kind in kinds_of(prepared.config):
        for (ref, _, local), measured in zip(prepared.jobs, statistics, strict=True):
            if not serves(kind, ref):
                progress.skip()
                continue
            n_trials = 0
            if kind in SLOW:
                n_trials = _number_of_trials(local, ref)
            started = progress.start(f"{ref.name}: {BASELINE_TITLES[kind]}", n_trials)
            future = evaluate_baseline.submit(
                ref, measured, local, pool, started.advance, kind
            )
            yield (next(positions), ref, local), future


def folds_of_rows(prepared: Prepared) -> dict[str, pd.DataFrame]:
    """Return, for each data set, repeat and row, the fold that tests the row (-1: none)."""
    folds = {}
    for ref, _, local in prepared.jobs:
        if ref.n_rows > 1_000_000:
            continue
        dataset = load_dataset(ref)
        protocol = local.protocol
        trial_of_fold = {
            trial.test: trial.index for trial in planned_trials(protocol, ref.ordered)
        }
        columns = {}
        for repeat in range(protocol.repeats):
            drawn = draw_folds(dataset, protocol, repeat)
            columns[f"repeat_{repeat}"] = [
                trial_of_fold.get(fold, -1) for fold in drawn
            ]
        folds[ref.name] = pd.DataFrame(columns).astype("int16")
    return folds


def measure_kernels(
    rows: DatasetRef, config: CompareConfig, pool: DaskPool, progress: RunProgress
) -> list[StatisticsRef]:
    """Compute alignment statistics of base kernels, once per repeat or split."""
    repeats = config.protocol.repeats
    trials: Sequence[Trial] = []
    if rows.by_training:
        trials = planned_trials(config.protocol, rows.ordered)
    n_parts = repeats * max(1, len(trials))
    started = progress.start(f"{rows.name}: alignment statistics of the base kernels")

    def advance(share: float) -> None:
        started.advance(share / n_parts)

    statistics = []
    for repeat in range(repeats):
        for trial in trials:
            trial_rows = rows_of_trial(rows, config.protocol, repeat, trial)
            future = compute_statistics.submit(
                trial_rows, config, repeat, pool, advance, trial
            )
            statistics.append(future.result())
        if not trials:
            future = compute_statistics.submit(rows, config, repeat, pool, advance)
            statistics.append(future.result())
    return statistics


def measure_learners(
    rows: DatasetRef,
    statistics: Sequence[StatisticsRef],
    config: CompareConfig,
    pool: DaskPool,
    progress: RunProgress,
) -> list[FoldsRef]:
    submissions = enumerate(_submit_learners(rows, statistics, config, pool, progress))
    results = dict(side_by_side(submissions, config.parallel))
    return [results[position] for position in range(len(results))]


def _submit_learners(
    rows: DatasetRef,
    statistics: Sequence[StatisticsRef],
    config: CompareConfig,
    pool: DaskPool,
    progress: RunProgress,
) -> Iterator[PrefectFuture[FoldsRef]]:
    for learner in config.learners:
        started = progress.start(
            f"{rows.name}: {learner.title}", _number_of_trials(config, rows)
        )
        yield evaluate_learner.submit(
            rows, statistics, learner, config, pool, started.advance
        )


def rows_for(
    config: CompareConfig, ref: DatasetRef
) -> tuple[DatasetRef, CompareConfig]:
    """Return data set and configuration; stored kernel matrices replace the features.

    InputError if matrices are incomplete, or of other data.
    """
    family = config.kernels[0]
    if not isinstance(family, PrecomputedConfig):
        return ref, config
    folder = None
    if family.own:
        folder = import_matrices(Path(config.data_dir, family.path), ref)
    stored = StoredMatrices(folder or matrix_folder(family.path, ref.name))
    stored.require_whole()
    index = stored.about
    if index.data_digest != ref.digest:
        raise InputError(
            f"data set {ref.name}: the matrices in {stored.folder} were made from other data, {index.dataset} with "
            f"{index.n_rows:,} rows and digest {index.data_digest}, not {ref.n_rows:,} rows and {ref.digest}; "
            "make them again with 'learnkernels gram', or correct 'path' or the data set."
        )
    positions = np.arange(ref.n_rows, dtype=np.float64)[:, None]
    dataset = load_dataset(ref)
    rows = Dataset(
        positions,
        dataset.target,
        (f"row in matrices {index.id}",),
        **dataset.sample_columns,
    )
    local = PrecomputedConfig(family="precomputed", path=str(stored.folder))
    return store_dataset(rows, ref.name, ref.source, warn), config.model_copy(
        update={"kernels": (local,)}
    )
