"""The first stage's one pass over the data: moments of the base kernels for every union of folds, on Dask."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
from distributed import Future, as_completed
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from conf.errors import InputError
from conf.schema import FamilyConfig, ProtocolConfig
from kernels import (
    NUMERICS_VERSION,
    GramMoments,
    KernelFamily,
    MomentsPart,
    RowBlocks,
    assign_folds,
    gram_moments,
    moments_part,
    trials,
)
from kernels.families.base import Rows
from kernels.learned import require_informative
from tasks.cluster import DaskPool
from tasks.data import DatasetRef, load_dataset
from tasks.families import build_family, require_varying
from tasks.store import atomic_path, digest, store_path

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


def require_feasible(ref: DatasetRef, kernels: Sequence[FamilyConfig], protocol: ProtocolConfig) -> None:
    """Refuse, before any long work, base kernels or folds that a data set does not allow.

    Raises
    ------
    InputError
        A family names an unknown column or sees only constant features, or the folds cannot be drawn.
    """
    where = f"data set {ref.name}"
    dataset = load_dataset(ref)
    build_family(kernels, dataset.features, where)
    require_varying(kernels, dataset.X, dataset.features, where)
    try:
        assign_folds(dataset.target, protocol.folds, protocol.seed)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


@task(task_run_name="moments {ref.name} repeat {repeat}", cache_policy=NO_CACHE, tags=["learnkernels"])
def compute_moments(
    ref: DatasetRef,
    kernels: Sequence[FamilyConfig],
    protocol: ProtocolConfig,
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
    log = get_run_logger()
    described = [config.model_dump(mode="json") for config in kernels]
    key = digest(NUMERICS_VERSION, ref.digest, described, protocol.folds, protocol.seed, repeat)
    path = store_path("moments", key, ".npz")
    if path.exists():
        log.info("%s: moments %s are in the store", ref.name, key)
        advance(1.0)
        return MomentsRef(key, str(path), repeat)
    dataset = load_dataset(ref)
    family = build_family(kernels, dataset.features)
    folds = assign_folds(dataset.target, protocol.folds, fold_seed(protocol.seed, repeat))
    started = time.perf_counter()
    moments = gram_moments(family, dataset.X, dataset.target.Y, folds, mapper=dask_mapper(pool, advance))
    try:
        for trial in trials(protocol.folds):
            require_informative(moments.restrict(trial.training))
    except ValueError as error:
        raise InputError(f"data set {ref.name}: {error}") from None
    log.info(
        "%s: moments of %d kernels over %d rows in %.2f s",
        ref.name, family.n_kernels, ref.n_rows, time.perf_counter() - started,
    )  # fmt: skip
    save_moments(MomentsRef(key, str(path), repeat), moments, folds)
    return MomentsRef(key, str(path), repeat)


def save_moments(ref: MomentsRef, moments: GramMoments, folds: np.ndarray) -> None:
    """Write moments and the fold of each row."""
    with atomic_path(Path(ref.path)) as path, path.open("wb") as file:
        np.savez(file, folds=folds, **moments.to_arrays())  # type: ignore[arg-type]


def load_moments(ref: MomentsRef) -> tuple[GramMoments, np.ndarray]:
    """Return the moments of a reference and the fold of each row."""
    with np.load(ref.path, allow_pickle=False) as arrays:
        return GramMoments.from_arrays(dict(arrays)), arrays["folds"]


def dask_mapper(
    pool: DaskPool, advance: Advance
) -> Callable[[KernelFamily, Rows, np.ndarray, RowBlocks, np.ndarray], MomentsPart]:
    """Return the function that spreads the pass of `gram_moments` over the workers of a pool."""

    def run(family: KernelFamily, X: Rows, Y: np.ndarray, blocks: RowBlocks, shift: np.ndarray) -> MomentsPart:
        work = list(blocks.super_tiles(pool.config.super_tile))
        if pool.in_process:
            parts = []
            for pairs in work:
                parts.append(moments_part(family, X, Y, blocks, shift, pairs))
                advance(1 / len(work))
            return sum_parts(*parts)
        client = pool.client
        context = client.scatter((family, X, Y, blocks, shift), broadcast=True, hash=False)
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
