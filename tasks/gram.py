"""The first stage's one pass over the data: moments of the base kernels for every union of folds, on Dask."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
from distributed import Future, as_completed
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from conf.errors import InputError
from conf.schema import CompareConfig, FamilyConfig, ProtocolConfig
from kernels import (
    LEARNERS,
    NUMERICS_VERSION,
    FeatureMoments,
    GramMoments,
    KernelFamily,
    Moments,
    MomentsPart,
    RowBlocks,
    Target,
    Trial,
    assign_folds,
    gram_moments,
    moments_part,
    trials,
)
from kernels.families.base import Rows
from kernels.normalisation import require_informative
from kernels.protocol import assign_nested_split, assign_split, inner_trials, nested_split_trial, split_trial
from kernels.tiles import compile_tiles
from tasks.cluster import DaskPool
from tasks.data import DatasetRef, load_dataset
from tasks.families import build_family, require_varying
from tasks.store import atomic_path, digest, store_path

PRECISIONS: dict[str, type[np.float64] | type[np.float32]] = {"float64": np.float64, "float32": np.float32}

FAN_IN = 8
"""Parts added by one task of the reduction."""

Advance = Callable[[float], None]


@dataclass(frozen=True)
class MomentsRef:
    """Where the moments of one data set, one set of base kernels and one drawing of the folds lie."""

    key: str
    path: str
    repeat: int


def fold_seed(seed: int, repeat: int) -> int:
    """Return the seed of the folds of one repeat, spawned from the run's root seed."""
    return int(np.random.SeedSequence([seed, repeat]).generate_state(1)[0])


def draw_folds(target: Target, protocol: ProtocolConfig, seed: int) -> np.ndarray:
    """Return the fold of each row, or of a split what each row is drawn for; -1 for rows that are not used.

    Raises
    ------
    ValueError
        The data set does not allow these folds or this split.
    """
    if protocol.split is not None:
        split = protocol.split
        if split.validation is None:
            assert protocol.choose is not None  # the schema has one of both
            return assign_nested_split(target, split.train, split.test, protocol.choose.folds, seed)
        return assign_split(target, split.train, split.validation, split.test, seed)
    return assign_folds(target, _n_folds(protocol), seed)


def planned_trials(protocol: ProtocolConfig) -> list[Trial]:
    """Return the trials of each repeat."""
    if protocol.choose is not None:
        return [nested_split_trial(protocol.choose.folds)]
    return [split_trial()] if protocol.split is not None else trials(_n_folds(protocol))


def _n_folds(protocol: ProtocolConfig) -> int:
    assert protocol.folds is not None  # the schema has one of both
    return protocol.folds


def require_feasible(ref: DatasetRef, kernels: Sequence[FamilyConfig], protocol: ProtocolConfig) -> None:
    """Refuse, before any long work, base kernels, folds or a split that a data set does not allow.

    Raises
    ------
    InputError
        A family names an unknown column or sees only constant features, or the folds or the split cannot be drawn.
    """
    where = f"data set {ref.name}"
    dataset = load_dataset(ref)
    build_family(kernels, dataset.features, where)
    require_varying(kernels, dataset.X, dataset.features, where)
    try:
        draw_folds(dataset.target, protocol, protocol.seed)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


@task(task_run_name="moments {ref.name} repeat {repeat}", cache_policy=NO_CACHE, tags=["learnkernels"])
def compute_moments(
    ref: DatasetRef,
    config: CompareConfig,
    repeat: int,
    pool: DaskPool,
    advance: Advance,
) -> MomentsRef:
    """Compute the moments of a data set, unless the store has them, and return a reference.

    Raises
    ------
    InputError
        A base kernel is constant on some training folds, or no scheduler answers.
    """
    log, protocol = get_run_logger(), config.protocol
    described = [family.model_dump(mode="json") for family in config.kernels]
    uncentered = any(LEARNERS[learner.name].needs == "uncentered moments" for learner in config.learners)
    drawn = protocol.folds if protocol.split is None else protocol.split.model_dump(mode="json")
    nested = [] if protocol.choose is None else [protocol.choose.folds]
    key = digest(
        NUMERICS_VERSION, ref.digest, described, config.precision, drawn, protocol.seed, repeat, uncentered, *nested
    )
    path = store_path("moments", key, ".npz")
    if path.exists():
        log.info("%s: moments %s are in the store", ref.name, key)
        advance(1.0)
        return MomentsRef(key, str(path), repeat)
    dataset = load_dataset(ref)
    family = build_family(config.kernels, dataset.features)
    folds = draw_folds(dataset.target, protocol, fold_seed(protocol.seed, repeat))
    started = time.perf_counter()
    mapper = dask_mapper(pool, advance)
    X, Y, groups, training = dataset.X, dataset.target.Y, folds, None
    if protocol.split is not None:
        # Of the one trial, nothing but the training rows is ever asked for.
        training = np.flatnonzero(np.isin(folds, planned_trials(protocol)[0].training))
        X, Y, groups = X[training], Y[training], folds[training]
    try:
        moments = gram_moments(
            family, X, Y, groups, dtype=PRECISIONS[config.precision], keep_origin=uncentered, mapper=mapper
        )
        if mapper is None:
            advance(1.0)
        for trial in planned_trials(protocol):
            for of in [trial] if trial.validation is not None else [trial, *inner_trials(trial)]:
                require_informative(moments.restrict(of.training))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"data set {ref.name}: {error}") from None
    if training is not None:
        moments = replace(moments, rows=training[moments.rows])
    log.info(
        "%s: moments of %d kernels over %d rows in %.2f s",
        ref.name, family.n_kernels, len(Y), time.perf_counter() - started,
    )  # fmt: skip
    save_moments(MomentsRef(key, str(path), repeat), moments, folds)
    return MomentsRef(key, str(path), repeat)


def save_moments(ref: MomentsRef, moments: Moments, folds: np.ndarray) -> None:
    """Write moments and the fold of each row."""
    with atomic_path(Path(ref.path)) as path, path.open("wb") as file:
        np.savez(file, folds=folds, **moments.to_arrays())  # type: ignore[arg-type]


def load_moments(ref: MomentsRef) -> tuple[Moments, np.ndarray]:
    """Return the moments of a reference, of tiles or of rank-one features, and the fold of each row."""
    with np.load(ref.path, allow_pickle=False) as arrays:
        if FeatureMoments.wrote(arrays):
            return FeatureMoments.from_arrays(dict(arrays)), arrays["folds"]
        return GramMoments.from_arrays(dict(arrays)), arrays["folds"]


def load_folds(ref: MomentsRef) -> np.ndarray:
    """Return the fold of each row of a reference, and nothing else."""
    with np.load(ref.path, allow_pickle=False) as arrays:
        return np.asarray(arrays["folds"])


Mapper = Callable[[KernelFamily, Rows, np.ndarray, RowBlocks, np.ndarray], MomentsPart]


def dask_mapper(pool: DaskPool, advance: Advance) -> Mapper | None:
    """Return what spreads the pass of `gram_moments` over the workers of a pool, None where it has none."""
    if pool.in_process:
        return None

    def run(family: KernelFamily, X: Rows, Y: np.ndarray, blocks: RowBlocks, shift: np.ndarray) -> MomentsPart:
        compile_tiles(X.dtype)  # once here: the workers find it on disk
        client = pool.client
        context = client.scatter((family, X, Y, blocks, shift), broadcast=True, hash=False)
        work = list(blocks.super_tiles(pool.super_tile(X.shape[0])))
        leaves = [client.submit(_part_of, context, pairs, pure=False) for pairs in work]
        total = _reduce_on(leaves, lambda group: client.submit(sum_parts, *group, pure=False))
        for _ in as_completed(leaves, loop=client.loop):
            advance(1 / len(work))
        part: MomentsPart = total.result()
        return part

    return run


def _reduce_on(futures: list[Future], join: Callable[[list[Future]], Future]) -> Future:
    """Return the sum of futures over a tree whose shape depends on their number alone."""
    while len(futures) > 1:
        futures = [join(futures[i : i + FAN_IN]) for i in range(0, len(futures), FAN_IN)]
    return futures[0]


def _part_of(
    context: tuple[KernelFamily, Rows, np.ndarray, RowBlocks, np.ndarray], pairs: list[tuple[int, int]]
) -> MomentsPart:
    return moments_part(*context, pairs)


def sum_parts(*parts: MomentsPart) -> MomentsPart:
    """Return the sum of parts over disjoint tiles."""
    return reduce(add, parts)
