"""Time the first stage's statistics: this engine against textbook and blocked NumPy, in one run on one machine.

Each contestant runs in a fresh process, once to warm up and then REPEATS times; the table shows medians, the spread,
the peak memory of the process and the ratio to this engine. Every contestant's answer is compared with the engine's.
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
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

REPEATS = 5
COLUMNS = ["contestant", "m", "p", "d", "seconds", "spread", "peak_mib", "ratio", "error"]


def problem(m: int, p: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return m standard normal rows, a rough target and p bandwidths on a power-of-two grid."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    return X, np.sign(X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=m)), [2.0**g for g in range(-p, 0)]


def measure(name: str, m: int, p: int, d: int, repeats: int) -> dict[str, Any]:
    """Run one contestant in this process and return its times, peak memory and answer."""
    from benchmarks.contestants import CONTESTANTS

    X, y, gammas = problem(m, p, d)
    contestant = CONTESTANTS[name]
    M, a = contestant(X, y, gammas)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        contestant(X, y, gammas)
        times.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"times": times, "peak_mib": peak, "M": M.tolist(), "a": a.tolist()}


def run(sizes: list[int], p: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """Return one row a contestant and size."""
    from benchmarks.contestants import CONTESTANTS

    rows = []
    for m in sizes:
        results = {name: _in_fresh_process(name, m, p, d, repeats) for name in CONTESTANTS}
        ours = results["learnkernels"]
        for name, result in results.items():
            times = result["times"]
            rows.append(
                {
                    "contestant": name,
                    "m": m,
                    "p": p,
                    "d": d,
                    "seconds": statistics.median(times),
                    "spread": max(times) - min(times),
                    "peak_mib": result["peak_mib"],
                    "ratio": statistics.median(times) / statistics.median(ours["times"]),
                    "error": max(_difference(result[key], ours[key]) for key in ("M", "a")),
                }
            )
    return rows


def _difference(one: list[Any], other: list[Any]) -> float:
    return float(np.max(np.abs(np.array(one) - np.array(other)) / np.abs(np.array(other))))


def _in_fresh_process(name: str, m: int, p: int, d: int, repeats: int) -> dict[str, Any]:
    arguments = ["--one", name, "--sizes", str(m), "-p", str(p), "-d", str(d), "--repeats", str(repeats)]
    command = [sys.executable, "-m", "benchmarks.moments", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    """Read the command line, print the table and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,2000,4000,8000", help="numbers of rows")
    parser.add_argument("-p", type=int, default=10, help="base kernels")
    parser.add_argument("-d", type=int, default=20, help="features")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--fast", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/moments.parquet"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    if options.one:
        print(json.dumps(measure(options.one, sizes[0], options.p, options.d, options.repeats)))  # noqa: T201
        return
    rows = run([200, 400] if options.fast else sizes, options.p, options.d, 2 if options.fast else options.repeats)
    print(" | ".join(COLUMNS))  # noqa: T201
    for row in rows:
        cells = [f"{row[key]:.3g}" if isinstance(row[key], float) else str(row[key]) for key in COLUMNS]
        print(" | ".join(cells))  # noqa: T201
    options.output.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), options.output)


if __name__ == "__main__":
    main()
