"""How a pass over many rows scales with machines: the real graph on the real scheduler, with tasks that sleep.

Workers are threads of this process that sleep, so that fifty of them need no fifty machines; what is measured is what
scheduling, sending and adding up cost beside. A pass of conjugate gradients over m rows and M landmarks by W workers has

    max(16, 8 W) spans of rows, gathered by each worker into four sums, added up eight at a time;
    m M t / W seconds of kernels, with t seconds a pair of row and landmark;
    8 M q bytes to each worker and from each sum, for q outputs; and no rows after the first pass.

    python -m benchmarks.scaling [--pair-ns 7] [--output results/benchmarks/scaling.parquet]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from distributed import LocalCluster

from benchmarks.history import tell
from learnkernels.conf.schema import DaskConfig
from learnkernels.kernels.predictors.subspace import BLOCK
from learnkernels.tasks.workers.cluster import SUMS_PER_WORKER, DaskPool

COLUMNS = ["table", "case", "m", "landmarks", "tasks", "seconds", "ideal", "efficiency", "tasks a second", "MB"]


PRIVATE: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tcp"}


def asleep(seconds_a_row: float, V: np.ndarray, span: tuple[int, int]) -> np.ndarray:
    """Return what a task of a pass returns, after as long as it would take."""
    time.sleep(seconds_a_row * (span[1] - span[0]))
    return V


def measure(workers: int, m: int, M: int, pair_ns: float, repeats: int) -> dict[str, Any]:
    """Return the seconds of a pass by some workers, beside those that kernels alone would take."""
    with (
        LocalCluster(
            workers, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", protocol="tcp"
        ) as cluster,
        DaskPool(DaskConfig.model_validate({"scheduler": cluster.scheduler_address})) as pool,
    ):
        pool.client.wait_for_workers(workers)
        spans, V, seconds = pool.workers.spans(m, BLOCK), np.ones((M, 1)), []
        for cost in [0.0] * 3 + [M * pair_ns * 1e-9] * repeats:
            shared, started = pool.workers.share(cost), time.perf_counter()
            pool.workers.total(asleep, shared, V, spans)
            seconds.append(time.perf_counter() - started)
        empty, found = statistics.median(seconds[1:3]), statistics.median(seconds[3:])
        sums = min(len(spans), SUMS_PER_WORKER * workers)
        ideal = m * M * pair_ns * 1e-9 / workers
        return dict.fromkeys(COLUMNS) | {
            "table": "a pass",
            "case": f"{workers} workers",
            "m": m,
            "landmarks": M,
            "tasks": sums + -(-sums // 7),
            "seconds": found,
            "ideal": ideal,
            "efficiency": ideal / found,
            "tasks a second": sums / empty,
            "MB": V.nbytes * (workers + sums) / 1e6,
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure for several numbers of workers, and say what became slower."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=9_000_000)
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument("--pair-ns", type=float, default=7.0, help="nanoseconds a pair of row and landmark")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 10, 50])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/scaling.parquet"))
    asked = parser.parse_args(arguments)
    tell([measure(n, asked.rows, asked.landmarks, asked.pair_ns, asked.repeats) for n in asked.workers], asked.output)


if __name__ == "__main__":
    main()
