"""Threads: a fit leaves BLAS as it was, starts no more threads than there are cores, and adds up in one order."""

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier, Event, local

import joblib
import numpy as np
import pytest
from numba import config
from threadpoolctl import threadpool_info, threadpool_limits

from learnkernels import (
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    gram_statistics,
)
from learnkernels.kernels.engine import passes, workers
from learnkernels.kernels.engine.passes import RowBlocks, TilePass
from learnkernels.kernels.engine.workers import (
    available_threads,
    one_blas_thread,
    threads_of_a_pass,
)


def blas_threads() -> set[int]:
    return {
        library["num_threads"]
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }


@pytest.fixture(autouse=True)
def _three_blas_threads():
    # By a thread that ends, as one that goes on and has set BLAS once keeps all others
    # from it.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(threadpool_limits, limits=3, user_api="blas").result()
    yield
    assert blas_threads() == {3}


def rows(m: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(m, 3))
    return X, np.sign(X[:, 0] + 0.1)


# BLAS ----------------------------------------------------------------------------------------------------------------


def test_fits_leave_blas_as_the_user_set_it():
    X, y = rows(1200)  # more than one task of a pass
    KernelLearningClassifier(family=GaussianFamily([0.5, 1.0]), learner="align").fit(
        X, y
    ).predict(X)
    assert blas_threads() == {3}
    models = [
        KernelLearningRegressor(family=GaussianFamily([0.5 * k]), learner="unif")
        for k in range(1, 9)
    ]
    with joblib.parallel_config("threading"):
        joblib.Parallel(n_jobs=4)(
            joblib.delayed(model.fit)(X[k:300], y[k:300])
            for k, model in enumerate(models)
        )


def test_contexts_that_overlap_restore_what_was_set_when_the_last_one_is_left():
    first_in, first_out = Event(), Event()

    def first() -> None:
        with one_blas_thread():
            first_in.set()
            first_out.wait(60)

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(first)
        first_in.wait(60)
        with workers.blas_threads_for(10):
            first_out.set()
            done.result()
            assert blas_threads() == {1}


def test_what_a_thread_of_the_user_keeps_blas_at_stays():
    with threadpool_limits(limits=2, user_api="blas"):
        with ThreadPoolExecutor(1) as thread:
            model = KernelLearningRegressor(
                family=GaussianFamily([0.5]), learner="unif"
            )
            thread.submit(model.fit, *rows(60)).result()
            assert blas_threads() == {2}
        model.fit(*rows(60))
        assert blas_threads() == {2}


def test_a_pass_that_fails_leaves_blas_and_the_cores_as_they_were():
    def step(shared: object, argument: object, task: int) -> int:
        assert blas_threads() == {1}
        if task == argument:
            raise ValueError("no")
        return task

    before = available_threads()
    for n_threads in (1, 3):
        with pytest.raises(ValueError, match="no"):
            workers.Threads(n_threads).total(step, None, 5, range(20))
        assert blas_threads() == {3}
        assert available_threads() == before
        assert workers.Threads(n_threads).total(step, None, 20, range(20)) == 190


# Threads -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    monkeypatch.setattr(config, "NUMBA_NUM_THREADS", 8)


def test_passes_at_the_same_time_share_the_cores(eight_cores: None):
    barrier = Barrier(2)

    def a_pass(order: int, given: tuple[int | None, int]) -> int:
        with ExitStack() as stack:
            if order:
                barrier.wait(60)
            n = stack.enter_context(threads_of_a_pass(*given))
            if not order:
                barrier.wait(60)
            barrier.wait(60)  # both are under way
        return n

    with ThreadPoolExecutor(2) as pool:
        passes = [
            ((None, 100), (None, 100), [8, 1]),
            ((None, 3), (None, 100), [3, 5]),
            ((2, 100), (None, 1), [2, 1]),
        ]
        for first, second, shares in passes:
            assert list(pool.map(a_pass, range(2), (first, second))) == shares
            assert available_threads() == 8


def test_a_limit_holds_for_all_passes_within_it(eight_cores: None):
    for n_jobs, most in ((3, 3), (None, 8), (-1, 8), (-3, 6), (100, 8)):
        with workers.at_most_threads(n_jobs), threads_of_a_pass(None, 100) as n:
            assert n == most
    with (
        workers.at_most_threads(2),
        workers.at_most_threads(None),
        workers.at_most_threads(5),
    ):
        assert available_threads() == 2
        assert KernelLearningRegressor(
            family=GaussianFamily([0.5]), learner="unif", n_jobs=-1
        ).fit(*rows(60))
    assert available_threads() == 8


def test_a_pass_within_a_pass_is_done_by_the_thread_that_asks(eight_cores: None):
    def outer(shared: object, argument: object, task: int) -> int:
        barrier.wait(60)  # all eight at once
        with threads_of_a_pass(None, 100) as n:
            return n

    barrier = Barrier(8)
    assert workers.Threads().total(outer, None, None, range(8)) == 8


def test_a_sum_does_not_depend_on_the_number_of_threads():
    (X, Y), family = rows(2500), GaussianFamily([0.5, 1.0])
    one, three = (gram_statistics(family, X, Y, n_threads=n).products() for n in (1, 3))
    np.testing.assert_array_equal(one, three)


def slow_local() -> local:
    time.sleep(0.1)
    return local()


def buffers_of(tile_pass: TilePass, barrier: Barrier) -> local:
    barrier.wait(60)
    return tile_pass._buffers


def test_threads_that_start_a_pass_at_the_same_time_have_one_place_for_buffers(
    monkeypatch: pytest.MonkeyPatch,
):
    # By Python 3.12 and later, two threads may compute a cached attribute
    monkeypatch.setattr(passes, "local", slow_local)
    X, y = rows(40)
    blocks = RowBlocks.of(np.zeros(40), 20)
    whole = TilePass(GaussianFamily([0.5]), X, y[:, None], blocks, np.zeros(1))
    for tile_pass in (whole, pickle.loads(pickle.dumps(whole))):
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(buffers_of, [tile_pass] * 2, [Barrier(2)] * 2)
        assert first is second
        assert tile_pass.part(None, [(0, 1)]).arrays["products"].all()
