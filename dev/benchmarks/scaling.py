"""How a pass over many rows scales with machines: the real graph on the real scheduler,
with tasks that sleep.

Workers are threads of this process that sleep, so that fifty of them need no fifty
machines; what is measured is what scheduling, sending and adding up cost beside, and a
busy machine shows in it. A pass of conjugate gradients over m rows and M landmarks by W
workers has

    max(16, 8 W) spans of rows, gathered by each worker into four sums, added up eight
    at a time; m M t / W seconds of kernels, with t seconds a pair of row and landmark;
    8 M q bytes to each worker and from each sum, for q outputs; and no rows after the
    first pass.

The table `measured` holds this against passes that compute, by one and by two workers
in turns: its nanoseconds a pair are those of one worker, from which the seconds of two
are foretold.

    python -m dev.benchmarks.scaling [--rows 9000000] [--output
    results/benchmarks/scaling.parquet]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from distributed import LocalCluster

from dev.benchmarks.history import tell
from learnkernels import GaussianFamily, learn_kernel
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.predictors import TrainingSet
from learnkernels.kernels.predictors.nystroem import (
    BLOCK,
    Subspace,
    normal_products,
    passes_over,
)
from learnkernels.tasks.data.synthetic import friedman
from learnkernels.tasks.workers.cluster import FAN_IN, SUMS_PER_WORKER, DaskPool

COLUMNS = [
    "table",
    "case",
    "m",
    "landmarks",
    "tasks",
    "seconds",
    "ideal",
    "efficiency",
    "tasks a second",
    "MB",
]


def asleep(seconds_a_row: float, V: np.ndarray, span: tuple[int, int]) -> np.ndarray:
    """Return what a task of a pass returns, after as long as it would take."""
    time.sleep(seconds_a_row * (span[1] - span[0]))
    return V


def measure(workers: int, m: int, M: int, pair_ns: float) -> dict[str, Any]:
    """Return the seconds of a pass by some workers, beside those that kernels alone would take."""
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            protocol="tcp",
            memory_limit=None,  # each would take this process's memory for its own, and pause
        ) as cluster,
        DaskPool(
            DaskConfig.model_validate({"scheduler": cluster.scheduler_address})
        ) as pool,
    ):
        pool.client.wait_for_workers(workers)
        spans, V, seconds = pool.workers.spans(m, BLOCK), np.ones((M, 1)), []
        for cost in [0.0] * 3 + [M * pair_ns * 1e-9]:
            shared, started = pool.workers.broadcast(cost), time.perf_counter()
            pool.workers.total(asleep, shared, V, spans)
            seconds.append(time.perf_counter() - started)
        empty, found = statistics.median(seconds[1:3]), seconds[3]
        sums = min(len(spans), SUMS_PER_WORKER * workers)
        ideal = m * M * pair_ns * 1e-9 / workers
        return dict.fromkeys(COLUMNS) | {
            "table": "a pass",
            "case": f"{workers} workers",
            "m": m,
            "landmarks": M,
            "tasks": sums + -(-(sums - 1) // (FAN_IN - 1)),
            "seconds": found,
            "ideal": ideal,
            "efficiency": ideal / found,
            "tasks a second": sums / empty,
            "MB": V.nbytes * (workers + sums) / 1e6,
        }


def compute(m: int, M: int, repeats: int) -> list[dict[str, Any]]:
    """Return the seconds of a pass by one worker and by two, in turns, beside those that are foretold from one."""
    X, y = friedman(np.random.default_rng(0), m, 15)
    kernel = learn_kernel(
        X[:M], y[:M], learner="unif", family=GaussianFamily([2.0**-6, 2.0**-5, 2.0**-4])
    )
    beta, means = np.ones((M, 1)), np.zeros(1)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with ExitStack() as stack:
        passes = {}
        for workers in seconds:
            pool = stack.enter_context(
                DaskPool(DaskConfig.model_validate({"workers": workers}))
            )
            on = TrainingSet.of(kernel, X, np.arange(m), pool.workers)
            subspace = Subspace.of(kernel, kernel.X, np.arange(M), M)
            passes[workers] = passes_over(on, subspace, np.zeros((m, 1)))
            # Rows are read, and inner loops compiled
            passes[workers](normal_products, (beta, means))
        for _ in range(repeats):
            for workers, of in passes.items():
                started = time.perf_counter()
                of(normal_products, (beta, means))
                seconds[workers].append(time.perf_counter() - started)
    one = statistics.median(seconds[1])
    ratio = statistics.median(
        a / b for a, b in zip(seconds[1], seconds[2], strict=True)
    )
    return [
        dict.fromkeys(COLUMNS)
        | {
            "table": "measured",
            "case": f"{workers} workers",
            "m": m,
            "landmarks": M,
            "ideal": one / workers,
        }
        | {
            "seconds": statistics.median(of),
            "efficiency": (1.0 if workers == 1 else ratio / workers),
        }
        for workers, of in seconds.items()
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure for several numbers of workers, and say what became slower."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=9_000_000)
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument(
        "--pair-ns",
        type=float,
        help="nanoseconds a pair of row and landmark; as measured by default",
    )
    parser.add_argument(
        "--compute-rows",
        type=int,
        default=200_000,
        help="rows of the passes that compute",
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 10, 50])
    parser.add_argument(
        "--repeats", type=int, default=5, help="of the passes that compute"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("results/benchmarks/scaling.parquet")
    )
    asked = parser.parse_args(arguments)
    computed = compute(asked.compute_rows, asked.landmarks, asked.repeats)
    one = computed[0]["seconds"] / (asked.compute_rows * asked.landmarks)
    pair_ns = 1e9 * one if asked.pair_ns is None else asked.pair_ns
    slept = [measure(n, asked.rows, asked.landmarks, pair_ns) for n in asked.workers]
    tell([*computed, *slept], asked.output)


if __name__ == "__main__":
    main()
