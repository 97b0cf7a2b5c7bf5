"""Independent jobs on the workers of a pool: order, warnings, errors."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator

import dask
import pytest

from conf.errors import InputError
from conf.schema import DaskConfig
from tasks.cluster import DaskPool


@pytest.fixture(scope="module")
def pool() -> Iterator[DaskPool]:
    with DaskPool(DaskConfig(workers=2)) as pool:
        yield pool


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def grumble(number: int) -> int:
    if number == 2:
        warnings.warn("two is odd here", RuntimeWarning, stacklevel=1)
    return number


def refuse(number: int) -> int:
    if number == 3:
        raise InputError("three is refused; leave it out.")
    return number


def die(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order_from_other_processes(pool: DaskPool):
    shares: list[float] = []
    results = pool.map(square, list(range(10)), shares.append)
    assert [number for number, _ in results] == [n * n for n in range(10)]
    assert os.getpid() not in {process for _, process in results}
    assert sum(shares) == pytest.approx(1)


def test_warnings_of_a_worker_are_heard_here(pool: DaskPool):
    with pytest.warns(RuntimeWarning, match="two is odd here"):
        assert pool.map(grumble, [1, 2, 3], lambda share: None) == [1, 2, 3]


def test_an_error_of_a_worker_is_raised_here_as_it_was(pool: DaskPool):
    with pytest.raises(InputError, match=r"^three is refused; leave it out\.$"):
        pool.map(refuse, [1, 2, 3, 4], lambda share: None)


def test_a_job_that_ends_its_worker_is_one_sentence():
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),  # three by default, and seconds each
        DaskPool(DaskConfig(workers=1)) as pool,
        pytest.raises(InputError, match=r"ended its worker process .* set dask\.memory higher"),
    ):
        pool.map(die, [0, 1], lambda share: None)


def test_which_pools_have_workers_that_see_our_files():
    assert DaskPool(DaskConfig()).local
    assert not DaskPool(DaskConfig(workers=0)).local
    assert not DaskPool(DaskConfig(scheduler="tcp://127.0.0.1:1")).local
