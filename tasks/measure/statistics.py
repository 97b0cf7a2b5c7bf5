"""The first stage's one pass over the data: statistics of the base kernels for every union of folds, on Dask."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from prefect import get_run_logger

from learnkernels.conf.errors import InputError, input_errors
from learnkernels.conf.schema import CompareConfig, FamilyConfig, FeatureConfig, ProtocolConfig
from learnkernels.kernels.centering import Centering
from learnkernels.kernels.engine.workers import SelectedRows
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.protocol.folds import (
    Trial,
    inner_trials,
    nested_split_trial,
    rows_of,
    split_trial,
    trials,
    trials_in_time,
)
from learnkernels.kernels.protocol.metrics import Metric, metric_for
from learnkernels.kernels.statistics.gram import FeatureStatistics, GramStatistics, gram_statistics
from learnkernels.kernels.statistics.sampled import SampledStatistics, sample_statistics
from learnkernels.kernels.targets import Target

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
from ..own import described, learner_class
from ..store import kept, result_key, store_path
from ..workers.cluster import Advance, DaskPool
from .families import build_family, require_varying
from .trials import StatisticsRef, save_statistics


def planned_trials(protocol: ProtocolConfig, ordered: bool = False) -> list[Trial]:
    """Return the trials of each repeat; `ordered` says that folds are blocks of time."""
    if protocol.choose is not None:
        return [nested_split_trial(protocol.choose.folds, ordered)]
    if protocol.split is not None:
        planned = [split_trial()]
    else:
        assert protocol.folds is not None
        planned = trials_in_time(protocol.folds) if ordered else trials(protocol.folds)
    return [replace(trial, refit=protocol.refit) for trial in planned]


def require_feasible(ref: DatasetRef, kernels: Sequence[FamilyConfig], protocol: ProtocolConfig) -> None:
    """Refuse, before any long work, base kernels, folds or a split that a data set does not allow.

    Raises
    ------
    InputError
        A family names an unknown column or sees only constant features, the folds or the split cannot be drawn, the
        metric does not serve the data set or some of its folds, or groups allow fewer different drawings than repeats.
    """
    where = f"data set {ref.name}"
    dataset = load_dataset(ref)
    build_family(kernels, dataset.features, where)
    require_varying(kernels, dataset.X, dataset.features, where)
    drawn = set()
    with input_errors(where):
        metric = metric_for(protocol.metric, dataset.target, dataset.weights is not None)
        # What these allow differs between repeats.
        all_of_them = dataset.groups is not None or dataset.folds is not None or metric.needs
        for repeat in range(protocol.repeats if all_of_them else 1):
            folds = draw_folds(dataset, protocol, repeat)
            drawn.add(hash(folds.tobytes()))
            _require_measurable(metric, dataset.target, folds, planned_trials(protocol, ref.ordered))
    if dataset.groups is not None and len(drawn) < protocol.repeats:
        raise InputError(
            f"{where}: {protocol.repeats} repeats divide its groups in {len(drawn)} different ways, so that some would "
            "be the same; lower 'protocol.repeats'."
        )


def _require_measurable(metric: Metric, target: Target, folds: np.ndarray, planned: Sequence[Trial]) -> None:
    """Raise ValueError if a metric is not defined on the rows that validate or test in some trial."""
    inner = [of for trial in planned if trial.validation is None for of in inner_trials(trial)]
    for fold in {of.validation for of in (*planned, *inner)} - {None}:
        metric.check_rows(target.take(np.flatnonzero(folds == fold)), "validate")
    for trial in planned:
        metric.check_rows(target.take(np.flatnonzero(folds == trial.test)), "test")


@step("units of {ref.name} repeat {repeat} trial {trial.index}")
def rows_of_trial(ref: DatasetRef, protocol: ProtocolConfig, repeat: int, trial: Trial) -> DatasetRef:
    """Scale a data set, and fill its gaps, by the training rows of one trial, and store it as such."""
    dataset = load_dataset(ref)
    training = rows_of(draw_folds(dataset, protocol, repeat), trial.final)
    return store_dataset(dataset.learned_on(training), ref.name, ref.source, get_run_logger().warning)


@step("statistics {ref.name} repeat {repeat}")
def compute_statistics(
    ref: DatasetRef, config: CompareConfig, repeat: int, pool: DaskPool, advance: Advance, trial: Trial | None = None
) -> StatisticsRef:
    """Compute the statistics of a data set, unless the store has them, and return a reference.

    Where the configuration needs a sample, they are estimates from one; rank-one kernels are measured on all rows
    all the same. Of a data set that is scaled by the training rows of one trial, only that trial is served.

    Raises
    ------
    InputError
        A base kernel or a sampled target is constant on some training folds, or no scheduler answers.
    """
    log, protocol = get_run_logger(), config.protocol
    key = _key(ref, config, repeat, trial)
    path = store_path("statistics", key)
    result = StatisticsRef(key, str(path), repeat, *(() if trial is None else (trial.index, ref)))
    if kept(path, log.warning):
        log.info("%s: statistics %s are in the store", ref.name, key)
        advance(1.0)
        return from_store(result)
    dataset = load_dataset(ref)
    family = build_family(config.kernels, dataset.features)
    folds = draw_folds(dataset, protocol, repeat)
    if dataset.groups is not None:
        log.info("%s: whole groups; rows of each part: %s", ref.name, np.bincount(folds[folds >= 0]).tolist())
    started = time.perf_counter()
    served = planned_trials(protocol, ref.ordered) if trial is None else [trial]
    X, Y, groups, training = _readable(dataset, ref, config, pool), dataset.target.Y, folds, None
    weights = dataset.weights
    if protocol.split is not None or trial is not None:
        # Of the one trial, nothing but the training rows is ever asked for.
        training = rows_of(folds, served[0].final)
        X = SelectedRows(X, training, np.zeros(ref.n_features)) if ref.in_parts and sampled(config) else X[training]
        Y, groups = Y[training], folds[training]
        weights = None if weights is None else weights[training]
    if config.statistics.sample != "none" and not sampled(config):
        log.info("%s: statistics over all rows, as those of rank-one kernels cost less than a sample", ref.name)
    with input_errors(f"data set {ref.name}"):
        seed = fold_seed(protocol.seed, repeat)
        statistics = measure_statistics(family, X, Y, groups, config, seed, pool, advance, weights)
        trained = [one.final for one in served]  # rows that train together, inner ones included
        for one in served:
            trained += [inner.training for inner in (inner_trials(one) if one.validation is None else [one])]
        for union in dict.fromkeys(trained):
            statistics.restrict(union).require_informative(Centering(config.centering).subtracts)
    if training is not None:
        statistics = replace(statistics, rows=training[statistics.rows])
    seconds = time.perf_counter() - started
    log.info(
        "%s: statistics of %d kernels over %d rows in %.2f s", ref.name, family.n_kernels, statistics.n_rows, seconds
    )
    save_statistics(result, statistics, folds, seconds)
    return result


def _key(ref: DatasetRef, config: CompareConfig, repeat: int, trial: Trial | None) -> str:
    """Return the key of statistics in the store."""
    protocol: dict[str, Any] = {"folds": True, "split": True, "choose": {"folds"}, "refit": True, "seed": True}
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


def _readable(dataset: Dataset, ref: DatasetRef, config: CompareConfig, pool: DaskPool) -> Any:
    """Return the rows of a data set, of which a sample or all are taken; all where the pass needs them all here.

    Raises
    ------
    InputError
        They are in parts, as they are too many for that.
    """
    X = pool.workers.local_view(dataset.X)
    if not ref.in_parts or sampled(config):
        return X
    if stored_bytes(ref) > BYTES_AS_NUMBERS:
        raise InputError(
            f"data set {ref.name}: the exact statistics of its {ref.n_rows:,} rows need them all at once, and they are "
            "read in parts; set 'statistics: {sample: auto}'."
        )
    return X[:]


def sampled(config: CompareConfig) -> bool:
    """Return whether statistics come from a sample; those of rank-one kernels alone never do."""
    alone = len(config.kernels) == 1 and isinstance(config.kernels[0], FeatureConfig)
    return config.statistics.sample != "none" and not alone


def _uncentered(config: CompareConfig) -> bool:
    """Return whether some learner needs statistics that are not centered."""
    return config.centering != "center" or any(not learner_class(learner.name).centered for learner in config.learners)


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
) -> GramStatistics | FeatureStatistics | SampledStatistics:
    """Return the statistics of some rows, of all of them or of a sample, as the configuration says.

    Parameters
    ----------
    family, X, Y, groups
        As `gram_statistics` takes them; without groups, statistics are of all rows.
    config : CompareConfig
        With learners, of which some may need statistics that are not centered.
    seed : int
        Of the sample.
    pool : DaskPool
        Who does the pass.
    advance : callable
        Is given shares of the pass that add up to one.
    sample_weight : ndarray of shape (m,), optional
        Weights of the rows; not of those of a sample.

    Raises
    ------
    ValueError
        As `gram_statistics` and `sample_statistics`.
    """
    options: dict[str, Any] = {"dtype": np.dtype(config.precision).type, "keep_origin": _uncentered(config)}
    if not sampled(config):
        workers = pool.workers_telling(advance)
        return gram_statistics(family, X, Y, groups, sample_weight=sample_weight, workers=workers, **options)
    options |= {"sample": config.statistics.sample, "seed": seed, "workers": pool.workers}
    of_sample = sample_statistics(family, X, Y, groups, **options)
    advance(1.0)
    return of_sample
