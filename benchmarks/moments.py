"""Time the first stage's statistics: this engine against textbook, blocked and tiled NumPy, in one run on one machine.

Every figure is the median of REPEATS runs after a warm-up, in a fresh process a contestant; memory is what a
contestant allocates at most, beyond the data and the libraries. `share` is the part of the machine's own matrix-product
rate, measured in the same run on as many cores, that 2 d + p (p + 1) flops a pair of rows reach. Answers are compared
with the engine's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

REPEATS = 5
COLUMNS = ["table", "case", "m", "p", "d", "seconds", "spread", "extra_mib", "share", "ratio", "error", "note"]


def problem(m: int, p: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return m standard normal rows, a rough target and p bandwidths on a power-of-two grid."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    return X, np.sign(X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=m)), [2.0**g for g in range(-p, 0)]


def timed(work: Callable[[], Any], repeats: int) -> list[float]:
    """Return the seconds of each of some runs after one to warm up."""
    work()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return times


def measure(name: str, m: int, p: int, d: int, repeats: int) -> dict[str, Any]:
    """Run one contestant in this process and return its times, extra memory, answer and the rate of matrix products."""
    from benchmarks.contestants import CONTESTANTS

    solve = CONTESTANTS[name].solve
    solve(*problem(60, p, d))  # loads and compiles
    X, y, gammas = problem(m, p, d)
    tracemalloc.start()
    M, a = solve(X, y, gammas)
    extra = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    times = timed(lambda: solve(X, y, gammas), repeats)
    return {"times": times, "extra_mib": extra, "M": M.tolist(), "a": a.tolist(), "flops": gemm_rate()}


def gemm_rate(n: int = 1200) -> float:
    """Return the flops a second of a product of two n by n matrices, here and now."""
    A = np.random.default_rng(0).normal(size=(n, n))
    return 2.0 * n**3 / statistics.median(timed(lambda: A @ A, 5))


def in_fresh_process(name: str, m: int, p: int, d: int, repeats: int) -> dict[str, Any]:
    """Run `measure` in a process of its own, with as many BLAS threads as the contestant has cores."""
    from benchmarks.contestants import CONTESTANTS

    threads = str(CONTESTANTS[name].cores)
    arguments = ["--one", name, "--sizes", str(m), "-p", str(p), "-d", str(d), "--repeats", str(repeats)]
    env = os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
    command = [sys.executable, "-m", "benchmarks.moments", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def row(table: str, case: str, m: int, p: int, d: int, times: list[float], **others: Any) -> dict[str, Any]:
    """Return one row of the result, with its times as median and spread."""
    figures = {"seconds": statistics.median(times), "spread": max(times) - min(times)} if times else {}
    return dict.fromkeys(COLUMNS) | {"table": table, "case": case, "m": m, "p": p, "d": d} | figures | others


def speed(sizes: list[int], p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return a row a contestant and size."""
    from benchmarks.contestants import CONTESTANTS, OURS

    rows = []
    for m in sizes:
        ours = in_fresh_process(OURS, m, p, d, repeats)
        for name, contestant in CONTESTANTS.items():
            reason = contestant.reason_to_skip(m)
            if reason is not None:
                rows.append(row("speed", name, m, p, d, [], note=f"skipped: {reason}"))
                continue
            result = ours if name == OURS else in_fresh_process(name, m, p, d, repeats)
            rows.append(
                row(
                    "speed", name, m, p, d, result["times"],
                    extra_mib=result["extra_mib"],
                    share=_share(m, p, d, statistics.median(result["times"]), result["flops"]),
                    ratio=statistics.median(result["times"]) / statistics.median(ours["times"]),
                    error=max(_difference(result[key], ours[key]) for key in ("M", "a")),
                )
            )  # fmt: skip
    return rows


def _share(m: int, p: int, d: int, seconds: float, rate: float) -> float:
    return (2 * d + p * (p + 1)) * m * (m + 1) / 2 / seconds / rate


def _difference(one: list[Any], other: list[Any]) -> float:
    return float(np.max(np.abs(np.array(one) - np.array(other)) / np.abs(np.array(other))))


def scaling(m: int, p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return how the engine's time grows in m, p and d, as ratios to the first case."""
    from benchmarks.contestants import engine

    cases = [(m, p, d), (2 * m, p, d), (m, 2 * p, d), (m, 4 * p, d), (m, p, 4 * d), (m, p, 16 * d)]
    rows: list[dict[str, Any]] = []
    for case in cases:
        X, y, gammas = problem(*case)
        times = timed(lambda X=X, y=y, gammas=gammas: engine(X, y, gammas), repeats)  # type: ignore[misc]
        first = rows[0]["seconds"] if rows else statistics.median(times)
        rows.append(row("scaling", "engine", *case, times, ratio=statistics.median(times) / first))
    return rows


def folds(m: int, p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return what five training sets cost: together in one pass, or one after the other; and one pass without folds."""
    from learnkernels import GaussianFamily, gram_moments

    X, y, gammas = problem(m, p, d)
    family, fold = GaussianFamily(gammas), np.arange(m) % 5
    sets = [np.flatnonzero((fold != t) & (fold != (t + 1) % 5)) for t in range(5)]

    def together() -> None:
        moments = gram_moments(family, X, y, fold)
        for t in range(5):
            restricted = moments.restrict([f for f in range(5) if f not in (t, (t + 1) % 5)])
            assert len(restricted.frobenius) == len(restricted.target)

    cases: dict[str, Callable[[], Any]] = {
        "no folds, all rows": lambda: gram_moments(family, X, y),
        "five training sets, one pass": together,
        "five training sets, five passes": lambda: [gram_moments(family, X[rows], y[rows]) for rows in sets],
        "one training set": lambda: gram_moments(family, X[sets[0]], y[sets[0]]),
    }
    times = {name: timed(work, repeats) for name, work in cases.items()}
    base = statistics.median(times["no folds, all rows"])
    return [row("folds", name, m, p, d, t, ratio=statistics.median(t) / base) for name, t in times.items()]


def workers(m: int, p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return the time of a pass on one and on two Dask workers, cluster and data in place, and their peak memory."""
    from learnkernels import GaussianFamily, gram_moments
    from learnkernels.conf.schema import DaskConfig
    from learnkernels.tasks.workers.cluster import DaskPool

    X, y, gammas = problem(m, p, d)
    fold = np.arange(m) % 5
    rows: list[dict[str, Any]] = []
    for n_workers in (1, 2):
        with DaskPool(DaskConfig.model_validate({"workers": n_workers, "memory": "1.2GiB"})) as pool:
            on = pool.workers
            times = timed(lambda: gram_moments(GaussianFamily(gammas), X, y, fold, workers=on), repeats)  # noqa: B023
            peaks = pool.client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        first = rows[0]["seconds"] if rows else statistics.median(times)
        note = f"workers' peak {sum(peaks.values()):.0f} MiB, this process's {_own_peak():.0f} MiB"
        rows.append(row("workers", f"{n_workers} workers", m, p, d, times,
                        ratio=statistics.median(times) / first, note=note))  # fmt: skip
    return rows


def features(m: int, p: int, repeats: int) -> list[dict[str, Any]]:
    """Return the time of all weights over p rank-one kernels of sparse counts, from the rows on."""
    from scipy import sparse

    from learnkernels import FeatureFamily, learn_kernel

    rng = np.random.default_rng(0)
    X = sparse.random_array(
        (m, p), density=0.01, rng=rng, format="csr", data_sampler=lambda size: 1.0 + rng.poisson(0.2, size)
    )
    y = np.asarray(X[:, : p // 20].sum(axis=1)).ravel() + rng.normal(size=m)
    family = FeatureFamily(p)
    return [
        row("features", name, m, p, p, timed(lambda name=name: learn_kernel(name, family, X, y), repeats))  # type: ignore[misc]
        for name in ("unif", "single", "align", "alignf")
    ]


def _own_peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Read the command line, print the table and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,2000,4000,8000", help="numbers of rows of the table 'speed'")
    parser.add_argument("-p", type=int, default=10, help="base kernels")
    parser.add_argument("-d", type=int, default=20, help="features")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--tables", default="speed,scaling,folds,features,workers", help="which tables")
    parser.add_argument("--workers-rows", type=int, default=20_000, help="rows of the table 'workers'")
    parser.add_argument("--fast", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/moments.parquet"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes, p, d = [int(size) for size in options.sizes.split(",")], options.p, options.d
    repeats, some, many = options.repeats, 4000, options.workers_rows
    if options.fast:
        sizes, repeats, some, many = [300], 2, 300, 400
    if options.one:
        print(json.dumps(measure(options.one, sizes[0], p, d, repeats)))  # noqa: T201
        return
    tables = {
        "speed": lambda: speed(sizes, p, d, repeats),
        "scaling": lambda: scaling(some, p, d, repeats),
        "folds": lambda: folds(some, p, d, repeats),
        "features": lambda: features(min(some, 2000), 10 * min(some, 400), repeats),
        "workers": lambda: workers(many, p, d, repeats),
    }
    rows = []
    print(" | ".join(COLUMNS))  # noqa: T201
    for name in options.tables.split(","):
        for line in tables[name]():
            cells = [line[key] for key in COLUMNS]
            print(" | ".join(f"{c:.3g}" if isinstance(c, float) else str(c or "") for c in cells), flush=True)  # noqa: T201
            rows.append(line)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), options.output)


if __name__ == "__main__":
    main()
