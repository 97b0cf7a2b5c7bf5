"""Compute statistics of base kernels for all unions of folds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from prefect import get_run_logger

from learnkernels.conf.errors import InputError, input_errors
from learnkernels.conf.schema import (
    CompareConfig,
    FamilyConfig,
    FeatureConfig,
    ProtocolConfig,
)
from learnkernels.kernels.centering import Centering
from learnkernels.kernels.engine.workers import SelectedRows
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.model_selection.folds import (
    Trial,
    choosing_trials,
    nested_split_trial,
    rows_of,
    split_trial,
    trials,
    trials_in_time,
)
from learnkernels.kernels.model_selection.metrics import Metric, metric_for
from learnkernels.kernels.statistics.gram import (
    FeatureStatistics,
    GramStatistics,
    gram_statistics,
)
from learnkernels.kernels.statistics.sampled import SampledStatistics, sample_statistics
from learnkernels.kernels.targets import Target
from learnkernels.kernels.weights import weights_of_rows

from ..data.dataset import (
    Dataset,
    DatasetRef,
    draw_folds,
    fold_seed,
    load_dataset,
    store_dataset,
    stored_bytes,
)
from ..data.parts import BYTES_AS_NUMBERS
from ..naming import from_store, step
from ..plugins import described, learner_class
from ..store import is_stored, result_key, store_path
from ..workers.cluster import Advance, DaskPool
from .families import build_family, require_varying
from .trials import StatisticsRef, save_statistics

Statistics: TypeAlias = GramStatistics | FeatureStatistics | SampledStatistics


def planned_trials(protocol: ProtocolConfig, ordered: bool = False) -> list[Trial]:
    """Return the training and test splits of one repeat; `ordered` folds are in time."""
    if protocol.choose is not None:
        return [nested_split_trial(protocol.choose.folds, ordered)]
    if protocol.split is not None:
        planned = [split_trial()]
    elif ordered:
        assert protocol.folds is not None
        planned = trials_in_time(protocol.folds)
    else:
        assert protocol.folds is not None
        planned = trials(protocol.folds)
    return [replace(trial, refit=protocol.refit) for trial in planned]


def require_feasible(
    ref: DatasetRef, kernels: Sequence[FamilyConfig], protocol: ProtocolConfig
) -> None:
    """Raise InputError if kernels, folds or metric do not fit a data set."""
    where = f"data set {ref.name}"
    dataset = load_dataset(ref)
    build_family(kernels, dataset.features, where)
    require_varying(kernels, dataset.X, dataset.features, where)
    draws = set()
    with input_errors(where):
        metric = metric_for(
            protocol.metric, dataset.target, dataset.weights is not None
        )
        # Groups and metrics may allow only some repeats
        n_repeats = 1
        if dataset.groups is not None or dataset.folds is not None or metric.needs:
            n_repeats = protocol.repeats
        for repeat in range(n_repeats):
            folds = draw_folds(dataset, protocol, repeat)
            draws.add(hash(folds.tobytes()))
            _require_measurable(
                metric, dataset.target, folds, planned_trials(protocol, ref.ordered)
            )
    if dataset.groups is not None and len(draws) < protocol.repeats:
        raise InputError(
            f"{where}: {protocol.repeats} repeats divide its groups in {len(draws)} different ways, so that some would "
            "be the same; lower 'protocol.repeats'."
        )


def _require_measurable(
    metric: Metric, target: Target, folds: np.ndarray, planned: Sequence[Trial]
) -> None:
    validation_folds = {
        inner.validation for trial in planned for inner in choosing_trials(trial)
    }
    for fold in validation_folds:
        metric.check_rows(target.take(np.flatnonzero(folds == fold)), "validate")
    for trial in planned:
        metric.check_rows(target.take(np.flatnonzero(folds == trial.test)), "test")


@step("units of {ref.name} repeat {repeat} trial {trial.index}")
def rows_of_trial(
    ref: DatasetRef, protocol: ProtocolConfig, repeat: int, trial: Trial
) -> DatasetRef:
    """Write a data set scaled and imputed by the training rows of one split."""
    dataset = load_dataset(ref)
    training = rows_of(draw_folds(dataset, protocol, repeat), trial.final)
    return store_dataset(
        dataset.learned_on(training), ref.name, ref.source, get_run_logger().warning
    )


@step("statistics {ref.name} repeat {repeat}")
def compute_statistics(
    ref: DatasetRef,
    config: CompareConfig,
    repeat: int,
    pool: DaskPool,
    advance: Advance,
    trial: Trial | None = None,
) -> StatisticsRef:
    """Write alignment statistics of base kernels to disk; return a reference."""
    log = get_run_logger()
    key = _key(ref, config, repeat, trial)
    path = store_path("statistics", key)
    result = StatisticsRef(key, str(path), repeat)
    if trial is not None:
        result = replace(result, trial=trial.index, rows=ref)
    if is_stored(path, log.warning):
        log.info("%s: statistics %s are in the store", ref.name, key)
        advance(1.0)
        return from_store(result)
    dataset = load_dataset(ref)
    family = build_family(config.kernels, dataset.features)
    folds = draw_folds(dataset, config.protocol, repeat)
    if dataset.groups is not None:
        rows_of_folds = np.bincount(folds[folds >= 0]).tolist()
        log.info("%s: whole groups; rows of each part: %s", ref.name, rows_of_folds)
    if config.statistics.sample != "none" and not sampled(config):
        log.info(
            "%s: statistics over all rows, as those of rank-one kernels cost less than a sample",
            ref.name,
        )
    started = time.perf_counter()
    served = planned_trials(config.protocol, ref.ordered)
    if trial is not None:
        served = [trial]
    seed = fold_seed(config.protocol.seed, repeat)
    measure_rows = partial(
        measure_statistics, family, config=config, seed=seed, pool=pool, advance=advance
    )
    with input_errors(f"data set {ref.name}"):
        if config.protocol.split is None and trial is None:
            X = _rows_to_measure(dataset, ref, config, pool)
            statistics = measure_rows(
                X, dataset.target.Y, folds, sample_weight=dataset.weights
            )
        else:
            training = rows_of(folds, served[0].final)
            X = _training_rows_to_measure(dataset, training, ref, config, pool)
            weights = weights_of_rows(dataset.weights, training)
            statistics = measure_rows(
                X, dataset.target.Y[training], folds[training], sample_weight=weights
            )
            statistics = replace(statistics, rows=training[statistics.rows])
        for training_folds in _training_folds(served):
            restricted = statistics.restrict(training_folds)
            restricted.require_informative(Centering(config.centering).subtracts)
    seconds = time.perf_counter() - started
    log.info(
        "%s: statistics of %d kernels over %d rows in %.2f s",
        ref.name,
        family.n_kernels,
        statistics.n_rows,
        seconds,
    )
    save_statistics(result, statistics, folds, seconds)
    return result


def _training_folds(served: Sequence[Trial]) -> list[tuple[int, ...]]:
    unions = [trial.final for trial in served]
    for trial in served:
        unions += [inner.training for inner in choosing_trials(trial)]
    return list(dict.fromkeys(unions))


def _key(
    ref: DatasetRef, config: CompareConfig, repeat: int, trial: Trial | None
) -> str:
    protocol: dict[str, Any] = {
        "folds": True,
        "split": True,
        "choose": {"folds"},
        "refit": True,
        "seed": True,
    }
    settings = {
        "kernels": described(config.kernels),
        "precision": config.precision,
        "uncentered": _uncentered(config),
        "sample": config.statistics.sample if sampled(config) else "none",
        "protocol": config.protocol.model_dump(mode="json", include=protocol),
        "repeat": repeat,
        "trial": None if trial is None else trial.index,
    }
    return result_key("statistics", settings, [ref.digest])


def _rows_to_measure(
    dataset: Dataset, ref: DatasetRef, config: CompareConfig, pool: DaskPool
) -> Any:
    X = pool.workers.local_view(dataset.X)
    if not ref.in_parts or sampled(config):
        return X
    if stored_bytes(ref) > BYTES_AS_NUMBERS:
        raise InputError(
            f"data set {ref.name}: the exact statistics of its {ref.n_rows:,} rows need them all at once, and they are "
            "read in parts; set 'statistics: {sample: auto}'."
        )
    return X[:]


def _training_rows_to_measure(
    dataset: Dataset,
    training: np.ndarray,
    ref: DatasetRef,
    config: CompareConfig,
    pool: DaskPool,
) -> Any:
    X = _rows_to_measure(dataset, ref, config, pool)
    if ref.in_parts and sampled(config):
        return SelectedRows(X, training, np.zeros(ref.n_features))
    return X[training]


def sampled(config: CompareConfig) -> bool:
    """Return whether alignment statistics are estimated from a sample of rows."""
    only_rank_one = len(config.kernels) == 1 and isinstance(
        config.kernels[0], FeatureConfig
    )
    return config.statistics.sample != "none" and not only_rank_one


def _uncentered(config: CompareConfig) -> bool:
    if config.centering != "center":
        return True
    return any(not learner_class(learner.name).centered for learner in config.learners)


@dataclass
class UnitProgress:
    """Progress that adds up to one."""

    advance: Advance
    share: float = 0.0

    def __call__(self, share: float) -> None:
        self.share += share
        self.advance(share)

    def complete(self) -> None:
        self(max(0.0, 1.0 - self.share))


def measure_statistics(
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    groups: np.ndarray | None,
    config: CompareConfig,
    seed: int,
    pool: DaskPool,
    advance: Advance,
    sample_weight: np.ndarray | None = None,
) -> Statistics:
    """Compute alignment statistics of base kernels, from all rows or a sample."""
    progress = UnitProgress(advance)
    dtype = np.dtype(config.precision).type
    keep_origin = _uncentered(config)
    statistics: Statistics
    if sampled(config):
        statistics = sample_statistics(
            family,
            X,
            Y,
            groups,
            sample=config.statistics.sample,
            seed=seed,
            workers=pool.workers,
            dtype=dtype,
            keep_origin=keep_origin,
        )
    else:
        statistics = gram_statistics(
            family,
            X,
            Y,
            groups,
            sample_weight=sample_weight,
            workers=pool.workers_telling(progress),
            dtype=dtype,
            keep_origin=keep_origin,
        )
    progress.complete()
    return statistics
