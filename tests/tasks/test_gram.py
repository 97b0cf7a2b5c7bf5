"""The pass over tiles on real Dask workers equals the pass in one process."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from scipy import sparse

from conf.errors import InputError
from conf.schema import DaskConfig
from kernels import GaussianFamily, gram_moments
from tasks.cluster import DaskPool, worker_memory
from tasks.gram import dask_mapper, fold_seed


@pytest.fixture(scope="module")
def pool() -> Iterator[DaskPool]:
    with DaskPool(DaskConfig.model_validate({"workers": 2, "memory": "1GiB", "super_tile": 64})) as pool:
        yield pool


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_moments_from_workers_equal_moments_of_one_process(pool: DaskPool, kind: str):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(301, 4))
    X = X if kind == "dense" else sparse.csr_matrix(np.where(X > 0.5, X, 0.0))
    Y, groups = rng.normal(size=(301, 2)), rng.integers(0, 5, 301)
    family = GaussianFamily([0.1, 0.2, 1.5])
    seen: list[float] = []
    here = gram_moments(family, X, Y, groups, block_rows=32)
    there = gram_moments(family, X, Y, groups, block_rows=32, mapper=dask_mapper(pool, seen.append))
    # The same tiles in another order of summation: rounding of sums of 301^2 terms.
    for name, value in here.to_arrays().items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(there.to_arrays()[name], value, rtol=1e-12, atol=1e-10, err_msg=name)
        else:
            np.testing.assert_array_equal(there.to_arrays()[name], value)
    assert sum(seen) == pytest.approx(1.0)
    assert len(seen) > 8


def test_a_worker_killed_in_mid_run_costs_its_tiles_and_nothing_else():
    rng = np.random.default_rng(2)
    X, Y, groups = rng.normal(size=(3000, 5)), rng.normal(size=3000), rng.integers(0, 5, 3000)
    family = GaussianFamily([2.0**g for g in range(-4, 4)])
    here = gram_moments(family, X, Y, groups)
    config = DaskConfig.model_validate({"workers": 2, "memory": "1GiB", "super_tile": 256})
    with DaskPool(config) as pool:
        pids = list(pool.client.run(os.getpid).values())
        killed = []

        def kill_one(share: float) -> None:
            if not killed:
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)

        with catch_logs("distributed"):
            there = gram_moments(family, X, Y, groups, mapper=dask_mapper(pool, kill_one))
        assert pids[0] not in pool.client.run(os.getpid).values()
    np.testing.assert_allclose(there.alignments, here.alignments, rtol=1e-12)
    np.testing.assert_allclose(there.frobenius, here.frobenius, rtol=1e-12)
    assert killed == pids[:1]


@contextmanager
def catch_logs(name: str) -> Iterator[None]:
    """Keep the complaints about a dead worker out of the output."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def test_the_sum_over_workers_does_not_depend_on_who_finishes_first(pool: DaskPool):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(200, 3)), rng.normal(size=200)
    family = GaussianFamily([0.5, 1.0])
    one, two = (
        gram_moments(family, X, Y, block_rows=16, mapper=dask_mapper(pool, lambda share: None)).frobenius
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


def test_a_scheduler_that_is_not_there_is_named_within_the_time_limit():
    config = DaskConfig.model_validate({"scheduler": "tcp://127.0.0.1:9", "timeout": 0.5})
    with DaskPool(config) as pool, pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        pool.require_usable()


def test_a_running_scheduler_is_used(pool: DaskPool):
    address = pool.client.scheduler.address
    with DaskPool(DaskConfig(scheduler=address)) as other:
        other.require_usable()
        assert other.client.scheduler.address == address


def test_the_local_cluster_listens_on_loopback_alone(pool: DaskPool):
    assert pool.client.scheduler.address.startswith("tcp://127.0.0.1:")
    assert "//127.0.0.1:" in pool.client.dashboard_link


def test_memory_limits():
    assert worker_memory("1GiB", 2) == "1GiB"
    assert worker_memory("auto", 2).endswith("iB")
    with pytest.raises(InputError, match=r"dask\.memory: 'lots' is not a size"):
        worker_memory("lots", 2)


def test_fold_seeds_differ_by_repeat_and_root():
    assert len({fold_seed(seed, repeat) for seed in range(3) for repeat in range(3)}) == 9
