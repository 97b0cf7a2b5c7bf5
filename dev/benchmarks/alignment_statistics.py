"""Time the first stage's statistics: this engine against textbook, blocked and tiled
NumPy, in one run on one machine.

Every figure is the median of REPEATS runs after a warm-up, in a fresh process a
contestant; memory is what a contestant allocates at most, beyond the data and the
libraries. `share` is the part of a bound that a contestant reaches: what the
multiplications and exponentials of a pair of rows take at the rates of a large matrix
product and of exponentials in cache, measured in the same process on as many cores; see
`bound`. Answers are compared with the engine's.
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

from dev.benchmarks.history import tell

REPEATS = 5
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
COLUMNS = [
    "table",
    "case",
    "m",
    "p",
    "d",
    "seconds",
    "spread",
    "extra_mib",
    "share",
    "ratio",
    "error",
    "note",
]


def problem(
    m: int, p: int, d: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return m standard normal rows, a rough target and p bandwidths on a power-of-two grid."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    return (
        X,
        np.sign(X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=m)),
        [2.0**g for g in range(-p, 0)],
    )


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
    from dev.benchmarks.contestants import CONTESTANTS

    solve = CONTESTANTS[name].solve
    solve(*problem(60, p, d))  # loads and compiles
    X, y, gammas = problem(m, p, d)
    tracemalloc.start()
    M, a = solve(X, y, gammas)
    extra = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    times = timed(lambda: solve(X, y, gammas), repeats)
    cores = CONTESTANTS[name].cores
    return {
        "times": times,
        "extra_mib": extra,
        "M": M.tolist(),
        "a": a.tolist(),
        "bound": bound(p, d, cores),
    }


def bound(p: int, d: int, cores: int) -> float:
    """Return the seconds that a pair of rows takes at least, on so many cores, at rates
    measured here and now.

    Multiplications, each with an addition where there is one: d for the distance, p - 1
    doublings, p for the target and p (p + 1) / 2 products; and one exponential. All
    other additions (differences, doublings, shifts, sums of rows and columns, some 2 d
    + 4 p) count as free, as they are where a core adds beside it multiplies.
    """
    multiplications = d + (p - 1) + p + p * (p + 1) / 2
    return multiplications / gemm_rate() + 1 / (cores * exponential_rate())


def gemm_rate(n: int = 1200) -> float:
    """Return the multiplications a second of a product of two n by n matrices, here and now, on all BLAS threads."""
    A = np.random.default_rng(0).normal(size=(n, n))
    return float(n**3 / statistics.median(timed(lambda: A @ A, 5)))


def exponential_rate(n: int = 1024, repeats: int = 200) -> float:
    """Return the exponentials a second of one core, of values in the first-level cache."""
    from learnkernels.kernels.compiled.distances import exponentiate

    D, out = np.random.default_rng(0).random((1, n)), np.empty((1, 1, n))

    def often() -> None:
        for _ in range(repeats):
            exponentiate(D, [1.0], out)

    return repeats * n / statistics.median(timed(often, 5))


def in_fresh_process(name: str, m: int, p: int, d: int, repeats: int) -> dict[str, Any]:
    """Run `measure` in a process of its own, with a thread for each core of the contestant."""
    from dev.benchmarks.contestants import CONTESTANTS

    threads = str(CONTESTANTS[name].cores)
    arguments = [
        "--one",
        name,
        "--sizes",
        str(m),
        "-p",
        str(p),
        "-d",
        str(d),
        "--repeats",
        str(repeats),
    ]
    env = os.environ | dict.fromkeys(THREADS, threads)
    command = [sys.executable, "-m", "dev.benchmarks.alignment_statistics", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def row(
    table: str, case: str, m: int, p: int, d: int, times: list[float], **others: Any
) -> dict[str, Any]:
    """Return one row of the result, with its times as median and spread."""
    figures = (
        {"seconds": statistics.median(times), "spread": max(times) - min(times)}
        if times
        else {}
    )
    return (
        dict.fromkeys(COLUMNS)
        | {"table": table, "case": case, "m": m, "p": p, "d": d}
        | figures
        | others
    )


def speed(sizes: list[int], p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return a row a contestant and size."""
    from dev.benchmarks.contestants import CONTESTANTS, OURS

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
                    share=result["bound"] * m * (m + 1) / 2 / statistics.median(result["times"]),
                    ratio=statistics.median(result["times"]) / statistics.median(ours["times"]),
                    error=max(_difference(result[key], ours[key]) for key in ("M", "a")),
                )
            )  # fmt: skip
    return rows


def _difference(one: list[Any], other: list[Any]) -> float:
    return float(
        np.max(np.abs(np.array(one) - np.array(other)) / np.abs(np.array(other)))
    )


def scaling(m: int, p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return how the engine's time grows in m, p and d, as ratios to the first case."""
    from dev.benchmarks.contestants import engine

    cases = [
        (m, p, d),
        (2 * m, p, d),
        (m, 2 * p, d),
        (m, 4 * p, d),
        (m, p, 4 * d),
        (m, p, 16 * d),
    ]
    rows: list[dict[str, Any]] = []
    for case in cases:
        X, y, gammas = problem(*case)
        times = timed(lambda X=X, y=y, gammas=gammas: engine(X, y, gammas), repeats)  # type: ignore[misc]
        first = rows[0]["seconds"] if rows else statistics.median(times)
        rows.append(
            row(
                "scaling",
                "engine",
                *case,
                times,
                ratio=statistics.median(times) / first,
            )
        )
    return rows


def kinds(m: int, p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return what other base kernels and weights cost, in seconds of one core, as ratios to p Gaussians, in turns."""
    from learnkernels import (
        FamilyUnion,
        GaussianFamily,
        LaplacianFamily,
        gram_statistics,
    )

    X, y, gammas = problem(m, p, d)
    w, half, Gaussians = (
        np.random.default_rng(1).random(m) + 0.5,
        p // 2,
        GaussianFamily(gammas),
    )
    views = FamilyUnion(
        [GaussianFamily(gammas[:half]), GaussianFamily(gammas[half:])],
        [range(d // 2), range(d // 2, d)],
    )
    cases: dict[str, Callable[[], Any]] = {
        "Gaussians": lambda: gram_statistics(Gaussians, X, y, n_threads=1),
        "Gaussians, rows with weights": lambda: gram_statistics(
            Gaussians, X, y, sample_weight=w, n_threads=1
        ),
        "Laplacians": lambda: gram_statistics(
            LaplacianFamily(gammas), X, y, n_threads=1
        ),
        "Laplacians, Euclidean": lambda: gram_statistics(
            LaplacianFamily(gammas, 2), X, y, n_threads=1
        ),
        "Gaussians on two views": lambda: gram_statistics(views, X, y, n_threads=1),
    }
    times = in_turns(cases, repeats, time.process_time)
    base = statistics.median(times["Gaussians"])
    return [
        row("kinds", name, m, p, d, t, ratio=statistics.median(t) / base)
        for name, t in times.items()
    ]


def steps(p: int, d: int, repeats: int, n: int = 400) -> list[dict[str, Any]]:
    """Return what the parts of a tile of n by n pairs cost, in seconds of one core."""
    from learnkernels import GaussianFamily
    from learnkernels.kernels.compiled.distances import (
        DistanceSide,
        distances,
        exponentiate,
        pack_columns,
        pack_rows,
    )
    from learnkernels.kernels.compiled.loops import empty_vectors
    from learnkernels.kernels.engine.tiles import TileSums

    X, y, gammas = problem(2 * n, p, d)
    A, B, U, V = X[:n].copy(), X[n:].copy(), y[:n, None], y[n:, None]
    family, dtype = GaussianFamily(gammas), np.dtype(np.float64)
    shift = np.ones(p)
    left, right = family.operands(A, shift), family.operands(B, shift)
    sums = TileSums(family.plan(shift), dtype, left)
    rows = pack_rows(left, dtype), pack_columns(right, dtype)
    D, seeds = (
        distances(A, B, "squared"),
        empty_vectors(n * n, np.float64)[: n * n].reshape(1, n, n),
    )
    cases: dict[str, Callable[[], Any]] = {
        "distances and exponentials": lambda: DistanceSide(
            B, "squared", gammas[:1]
        ).fill(DistanceSide(A, "squared", gammas[:1]), seeds),
        "exponentials alone": lambda: exponentiate(D, gammas[:1], seeds),
        "doublings, sums, products": lambda: sums.of(seeds, U, V, None, None),
        "all of it, a few rows at a time": lambda: sums.of(rows, U, V, None, None),
    }
    times = in_turns(cases, 10 * repeats, time.process_time)
    notes = {
        name: f"{statistics.median(t) / n**2 * 1e9:.2f} ns a pair"
        for name, t in times.items()
    }
    return [
        row("steps", name, n, p, d, t, note=notes[name]) for name, t in times.items()
    ]


def threads(m: int, p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return the time of a pass on one and on two threads, in turns."""
    from learnkernels import GaussianFamily, gram_statistics

    X, y, gammas = problem(m, p, d)
    family = GaussianFamily(gammas)
    cases = {
        f"{n} threads": lambda n=n: gram_statistics(family, X, y, n_threads=n)
        for n in (1, 2)
    }  # type: ignore[misc]
    times = in_turns(cases, repeats)
    base = statistics.median(times["1 threads"])
    return [
        row("threads", name, m, p, d, t, ratio=statistics.median(t) / base)
        for name, t in times.items()
    ]


def in_turns(
    cases: dict[str, Callable[[], Any]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of each of some runs of several cases, one after the other, after a run of each to warm up."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(-1, repeats):
        for name, work in cases.items():
            started = clock()
            work()
            if repeat >= 0:
                times[name].append(clock() - started)
    return times


def folds(m: int, p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return what five training sets cost: together in one pass, or one after the other; and one pass without folds."""
    from learnkernels import GaussianFamily, gram_statistics

    X, y, gammas = problem(m, p, d)
    family, fold = GaussianFamily(gammas), np.arange(m) % 5
    sets = [np.flatnonzero((fold != t) & (fold != (t + 1) % 5)) for t in range(5)]

    def together() -> None:
        stats = gram_statistics(family, X, y, fold)
        for t in range(5):
            restricted = stats.restrict(
                [f for f in range(5) if f not in (t, (t + 1) % 5)]
            )
            assert len(restricted.products()) == len(restricted.target_products())

    cases: dict[str, Callable[[], Any]] = {
        "no folds, all rows": lambda: gram_statistics(family, X, y),
        "five training sets, one pass": together,
        "five training sets, five passes": lambda: [
            gram_statistics(family, X[rows], y[rows]) for rows in sets
        ],
        "one training set": lambda: gram_statistics(family, X[sets[0]], y[sets[0]]),
    }
    times = {name: timed(work, repeats) for name, work in cases.items()}
    base = statistics.median(times["no folds, all rows"])
    return [
        row("folds", name, m, p, d, t, ratio=statistics.median(t) / base)
        for name, t in times.items()
    ]


def workers(m: int, p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return the time of a pass on one and on two Dask workers, cluster and data in place, and their peak memory."""
    from learnkernels import GaussianFamily, gram_statistics
    from learnkernels.conf.schema import DaskConfig
    from learnkernels.tasks.workers.cluster import DaskPool

    X, y, gammas = problem(m, p, d)
    fold = np.arange(m) % 5
    rows: list[dict[str, Any]] = []
    for n_workers in (1, 2):
        with DaskPool(
            DaskConfig.model_validate({"workers": n_workers, "memory": "1.2GiB"})
        ) as pool:
            on = pool.workers
            times = timed(
                lambda: gram_statistics(GaussianFamily(gammas), X, y, fold, workers=on),  # noqa: B023
                repeats,
            )
            peaks = pool.client.run(
                lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            )
        first = rows[0]["seconds"] if rows else statistics.median(times)
        note = f"workers' peak {sum(peaks.values()):.0f} MiB"
        rows.append(row("workers", f"{n_workers} workers", m, p, d, times,
                        ratio=statistics.median(times) / first, note=note))  # fmt: skip
    return rows


def features(m: int, p: int, repeats: int) -> list[dict[str, Any]]:
    """Return the time of all weights over p rank-one kernels of sparse counts, from the rows on."""
    from scipy import sparse

    from learnkernels import FeatureFamily, learn_kernel

    rng = np.random.default_rng(0)
    X = sparse.random_array(
        (m, p),
        density=0.01,
        rng=rng,
        format="csr",
        data_sampler=lambda size: 1.0 + rng.poisson(0.2, size),
    )
    y = np.asarray(X[:, : p // 20].sum(axis=1)).ravel() + rng.normal(size=m)
    family = FeatureFamily(p)
    return [
        row(
            "features",
            name,
            m,
            p,
            p,
            timed(
                lambda name=name: learn_kernel(X, y, learner=name, family=family),
                repeats,
            ),
        )  # type: ignore[misc]
        for name in ("unif", "single", "align", "alignf")
    ]


def main() -> None:
    """Read the command line, print the table and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes",
        default="1000,2000,4000,8000",
        help="numbers of rows of the table 'speed'",
    )
    parser.add_argument("-p", type=int, default=10, help="base kernels")
    parser.add_argument("-d", type=int, default=20, help="features")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--tables",
        default="speed,steps,kinds,threads,scaling,folds,features,workers",
        help="which tables",
    )
    parser.add_argument(
        "--workers-rows", type=int, default=20_000, help="rows of the table 'workers'"
    )
    parser.add_argument(
        "--fast", action="store_true", help="tiny sizes, to see that it runs"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results/benchmarks/alignment_statistics.parquet"),
    )
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
        "steps": lambda: steps(p, d, repeats, 60 if options.fast else 400),
        "kinds": lambda: kinds(some, p, d, repeats),
        "threads": lambda: threads(many, p, d, repeats),
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
            print(  # noqa: T201
                " | ".join(
                    f"{c:.3g}" if isinstance(c, float) else str(c or "") for c in cells
                ),
                flush=True,
            )
            rows.append(line)
    tell(rows, options.output)


if __name__ == "__main__":
    main()
