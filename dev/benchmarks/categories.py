"""A category of few and of many levels: as indicators through Gaussians, dense and
sparse, and as a code.

`one grid` are Gaussians over the number and all indicators together, as one has them
without views; in the other ways Gaussians of the number stand beside one kernel of
equal levels.

`python -m dev.benchmarks.categories` prints, for 10, 1,000 and 50,000 levels, the
error, the median seconds of processors for fit and prediction, and the peak memory of a
process that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from scipy import sparse

from learnkernels import (
    CategoricalFamily,
    FamilyUnion,
    GaussianFamily,
    KernelLearningRegressor,
)
from learnkernels.kernels.families.base import Rows

LEVELS = (10, 1_000, 50_000)
WAYS = ("one grid", "indicators", "sparse indicators", "code")
TRAINING, TEST, REPEATS = 4_000, 1_000, 5
GAMMAS = tuple(2.0**exponent for exponent in range(-4, 3))


def rows(levels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a number, the level and the target of each row: an effect of the level, and a wave."""
    rng = np.random.default_rng(0)
    n = TRAINING + TEST
    x, level = rng.normal(size=n), rng.integers(0, levels, n)
    y = rng.normal(size=levels)[level] + np.sin(2 * x) + 0.3 * rng.normal(size=n)
    return x, level, y


def features(
    way: str, x: np.ndarray, level: np.ndarray, levels: int
) -> tuple[Rows, Any]:
    """Return features and base kernels: on the number, and on both."""
    if way == "code":
        X: Rows = np.column_stack([x, level / levels])
        equal = CategoricalFamily([64.0])
        return X, FamilyUnion([GaussianFamily(GAMMAS), equal], [[0], [1]])
    # Rows of one level are at distance zero, those of two at a squared distance of 2:
    # far apart for the steepest.
    ones = sparse.csr_matrix(
        (np.ones(len(level)), (np.arange(len(level)), level)), (len(level), levels)
    )
    X = sparse.csr_matrix(sparse.hstack([x[:, None], ones]))
    if way == "one grid":
        return X, GaussianFamily(GAMMAS)
    family = FamilyUnion(
        [GaussianFamily(GAMMAS), GaussianFamily([32.0])],
        [[0], list(range(1, levels + 1))],
    )
    return (X.toarray() if way == "indicators" else X), family


def measure(way: str, levels: int) -> dict[str, float]:
    """Fit and predict some times in this process."""
    x, level, y = rows(levels)
    X, family = features(way, x, level, levels)
    # compiled
    KernelLearningRegressor(family=GaussianFamily([1.0]), learner="alignf").fit(
        np.eye(20), np.arange(20.0)
    )
    seconds = []
    for _ in range(REPEATS):
        begun = time.process_time()
        model = KernelLearningRegressor(family=family, learner="alignf").fit(
            X[:TRAINING], y[:TRAINING]
        )
        predicted = model.predict(X[TRAINING:])
        seconds.append(time.process_time() - begun)
    error = float(
        np.sqrt(np.mean((predicted - y[TRAINING:]) ** 2)) / y[TRAINING:].std()
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"error": error, "seconds": statistics.median(seconds), "GiB": peak}


def main() -> None:
    """Measure each way in a process of its own."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.benchmarks.categories", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one[0], int(asked.one[1]))))  # noqa: T201
        return
    print("| levels | way | RMSE / sd | seconds | GiB |\n|---|---|---|---|---|")  # noqa: T201
    for levels in LEVELS:
        for way in WAYS:
            if way == "indicators" and levels > 10_000:
                held = 8 * levels * (TRAINING + TEST) / 2**30
                print(  # noqa: T201
                    f"| {levels:,} | {way} | | | more than {held:.1f}, of rows alone |"
                )
                continue
            done = subprocess.run(
                [sys.executable, "-m", "dev.benchmarks.categories", "--one", way, str(levels)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            one = json.loads(done.stdout)
            print(  # noqa: T201
                f"| {levels:,} | {way} | {one['error']:.3f} | {one['seconds']:.2f} | {one['GiB']:.2f} |"
            )


if __name__ == "__main__":
    main()
