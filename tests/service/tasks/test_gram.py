"""The pass over tiles on real Dask workers equals the pass in one process."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from prefect.logging import disable_run_logger
from scipy import sparse

from learnkernels import GaussianFamily, gram_moments
from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig, DaskConfig, ProtocolConfig
from learnkernels.kernels.targets import Target
from learnkernels.tasks.data.dataset import Dataset, DatasetRef, store_dataset
from learnkernels.tasks.measure.families import build_family
from learnkernels.tasks.measure.moments import compute_moments, draw_folds, fold_seed, planned_trials, require_feasible
from learnkernels.tasks.measure.stored_moments import MomentsRef, load_moments
from learnkernels.tasks.workers.cluster import DaskPool, worker_memory


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
    there = gram_moments(family, X, Y, groups, block_rows=32, workers=pool.workers_telling(seen.append))
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
            there = gram_moments(family, X, Y, groups, workers=pool.workers_telling(kill_one))
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
    one, two = (gram_moments(family, X, Y, block_rows=16, workers=pool.workers).frobenius for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_a_scheduler_that_is_not_there_is_named_within_the_time_limit():
    config = DaskConfig.model_validate({"scheduler": "tcp://127.0.0.1:9", "timeout": 0.5})
    with DaskPool(config) as pool, pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        pool.require_usable()


def test_a_running_scheduler_is_used(scheduler_elsewhere: str):
    with DaskPool(DaskConfig(scheduler=scheduler_elsewhere)) as other:
        other.require_usable()
        assert other.client.scheduler.address == scheduler_elsewhere


def test_memory_limits():
    assert worker_memory("1GiB", 2) == "1GiB"
    assert worker_memory("auto", 2).endswith("iB")


def test_fold_seeds_differ_by_repeat_and_root():
    assert len({fold_seed(seed, repeat) for seed in range(3) for repeat in range(3)}) == 9


# A split -------------------------------------------------------------------------------------------------------------

FAMILIES = {"gaussian": {"gammas": [0.1, 1.0]}, "feature": {}, "linear": {}}


def split_config(family: str, repeats: int = 1, **split: int) -> CompareConfig:
    return CompareConfig.model_validate(
        {
            "name": "split",
            "datasets": [{"source": "sklearn", "name": "iris"}],
            "kernels": [{"family": family, **FAMILIES[family]}],
            "learners": ["unif"],
            "protocol": {"split": {"train": 60, "validation": 40, "test": 50, **split}, "repeats": repeats},
        }
    )


def stored(classes: int = 2, rows: int = 301) -> tuple[Dataset, DatasetRef]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(rows, 3)) + 4.0
    dataset = Dataset(X, Target.of((np.arange(rows) % classes).astype(str)), ("a", "b", "c"))
    return dataset, store_dataset(dataset, "data", "here")


def moments_of(ref: DatasetRef, config: CompareConfig, repeat: int, pool: DaskPool) -> MomentsRef:
    with disable_run_logger():
        return compute_moments.fn(ref, config, repeat, pool, lambda share: None)


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("where", ["here", "workers"])
def test_moments_of_a_split_are_those_of_its_training_rows_in_their_places(
    working_folder: Path, pool: DaskPool, family: str, where: str
):
    dataset, ref = stored()
    config = split_config(family)
    with DaskPool(DaskConfig(workers=0)) as in_process:
        done = moments_of(ref, config, 1, in_process if where == "here" else pool)
    moments, folds = load_moments(done)
    np.testing.assert_array_equal(folds, draw_folds(dataset, config.protocol, fold_seed(0, 1)))
    training = np.flatnonzero(folds == 0)
    assert len(training) == moments.n_rows == 60
    (trial,) = planned_trials(config.protocol)
    restricted = moments.restrict(trial.training)
    np.testing.assert_array_equal(np.sort(restricted.rows), training)
    # Each row's target is the one at its place in the whole data set.
    centered = dataset.target.Y[restricted.rows] - dataset.target.Y[training].mean()
    np.testing.assert_allclose(restricted.targets - restricted.targets.mean(axis=0), centered, atol=1e-12)
    of_all = gram_moments(build_family(config.kernels, dataset.features), dataset.X, dataset.target.Y, folds)
    expected = of_all.restrict([0])
    np.testing.assert_array_equal(restricted.rows, expected.rows)
    for name in ("frobenius", "target", "centered_traces"):
        np.testing.assert_allclose(getattr(restricted, name), getattr(expected, name), rtol=1e-10, err_msg=name)


def test_a_split_and_each_of_its_repeats_have_moments_of_their_own(working_folder: Path):
    _, ref = stored()
    with DaskPool(DaskConfig(workers=0)) as pool:
        one = split_config("linear", repeats=2)
        other = split_config("linear", repeats=2, test=49)
        keys = [moments_of(ref, config, repeat, pool).key for config in (one, other) for repeat in (0, 1)]
        again = moments_of(ref, one, 0, pool).key
    assert len(set(keys)) == 4
    assert again == keys[0]


def test_a_training_set_on_which_the_target_is_constant_gets_one_sentence(working_folder: Path):
    y = np.zeros(301)
    y[-1] = 1.0
    target = Target.of(y, "regression")
    dataset = Dataset(np.random.default_rng(6).normal(size=(301, 2)), target, ("a", "b"))
    ref = store_dataset(dataset, "rare", "here")
    config = split_config("linear")
    repeat = next(r for r in range(9) if draw_folds(dataset, config.protocol, fold_seed(0, r))[-1] != 0)
    with (
        DaskPool(DaskConfig(workers=0)) as pool,
        pytest.raises(InputError, match="data set rare: Y must vary, got a co"),
    ):
        moments_of(ref, config, repeat, pool)


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        (
            {"train": 212},
            r"data set data: train, validation and test must .* 301 rows there are, got 212 \+ 40 \+ 50 = 302",
        ),
        ({"train": 2}, "data set data: each class must have at least one training row, got none of class '2'"),
    ],
)
def test_a_split_that_a_data_set_does_not_allow_is_refused_before_any_work(
    working_folder: Path, split: dict[str, int], sentence: str
):
    _, ref = stored(classes=3)
    config = split_config("linear", **split)
    with pytest.raises(InputError, match=sentence) as caught:
        require_feasible(ref, config.kernels, config.protocol)
    assert "\n" not in str(caught.value)


def test_folds_have_a_trial_each_and_a_split_has_one():
    assert len(planned_trials(ProtocolConfig(folds=7))) == 7
    assert len(planned_trials(split_config("linear").protocol)) == 1
