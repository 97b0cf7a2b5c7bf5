"""A category of few and of many levels: as indicators through Gaussians, dense and sparse, and as a code.

`one grid` are Gaussians over the number and all indicators together, as one has them without views; in the other ways
Gaussians of the number stand beside one kernel of equal levels.

`python -m benchmarks.categories` prints, for 10, 1,000 and 50,000 levels, the error, the median seconds of processors
for fit and prediction, and the peak memory of a process that does nothing else; `--views` what base kernels of each
view of a table alone are worth in `rfm`, where effects of numbers and categories add up, and where they do not.
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
import pandas as pd
from scipy import sparse

from learnkernels import CategoricalFamily, FamilyUnion, GaussianFamily, KernelLearningRegressor
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.learners import RFM

LEVELS = (10, 1_000, 50_000)
WAYS = ("one grid", "indicators", "sparse indicators", "code")
TRAINING, TEST, REPEATS = 4_000, 1_000, 5
FEW = 300
EFFECTS = ("joint", "additive", "auto")
GAMMAS = tuple(2.0**exponent for exponent in range(-4, 3))


def rows(levels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a number, the level and the target of each row: an effect of the level, and a wave."""
    rng = np.random.default_rng(0)
    n = TRAINING + TEST
    x, level = rng.normal(size=n), rng.integers(0, levels, n)
    y = rng.normal(size=levels)[level] + np.sin(2 * x) + 0.3 * rng.normal(size=n)
    return x, level, y


def features(way: str, x: np.ndarray, level: np.ndarray, levels: int) -> tuple[Rows, Any]:
    """Return features and base kernels: on the number, and on both."""
    if way == "code":
        X: Rows = np.column_stack([x, level / levels])
        equal = CategoricalFamily([64.0])
        return X, FamilyUnion([GaussianFamily(GAMMAS), equal], [[0], [1]])
    # Rows of one level are at distance zero, those of two at a squared distance of 2: far apart for the steepest.
    ones = sparse.csr_matrix((np.ones(len(level)), (np.arange(len(level)), level)), (len(level), levels))
    X = sparse.csr_matrix(sparse.hstack([x[:, None], ones]))
    if way == "one grid":
        return X, GaussianFamily(GAMMAS)
    family = FamilyUnion([GaussianFamily(GAMMAS), GaussianFamily([32.0])], [[0], list(range(1, levels + 1))])
    return (X.toarray() if way == "indicators" else X), family


def measure(way: str, levels: int) -> dict[str, float]:
    """Fit and predict some times in this process."""
    x, level, y = rows(levels)
    X, family = features(way, x, level, levels)
    KernelLearningRegressor(GaussianFamily([1.0]), "alignf").fit(np.eye(20), np.arange(20.0))  # compiled
    seconds = []
    for _ in range(REPEATS):
        begun = time.process_time()
        model = KernelLearningRegressor(family, "alignf").fit(X[:TRAINING], y[:TRAINING])
        predicted = model.predict(X[TRAINING:])
        seconds.append(time.process_time() - begun)
    error = float(np.sqrt(np.mean((predicted - y[TRAINING:]) ** 2)) / y[TRAINING:].std())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"error": error, "seconds": statistics.median(seconds), "GiB": peak}


def views() -> None:
    """Print mean errors of `rfm` with joint effects, with additive ones, and with what leave-one-out chooses."""
    print("| effects | joint | additive | auto |\n|---|---|---|---|")  # noqa: T201
    for adds in (True, False):
        errors = [[error_of(effects, adds, seed) for effects in EFFECTS] for seed in range(REPEATS)]
        means = " | ".join(f"{mean:.3f}" for mean in np.mean(errors, axis=0))
        print(f"| that {'add up' if adds else 'multiply'} | {means} |")  # noqa: T201


def error_of(effects: str, adds: bool, seed: int) -> float:
    """Return the RMSE over the deviation on 1,000 rows: a wave of a number and the effect of one of 15 levels."""
    rng = np.random.default_rng(seed)
    m, n = FEW, FEW + TEST
    x, shop, kind = rng.normal(size=(n, 3)), rng.integers(0, 15, n), rng.integers(0, 4, n)
    wave, effect = np.sin(2 * x[:, 0]), rng.normal(size=15)[shop]
    y = (wave + effect if adds else wave * effect) + 0.5 * x[:, 1] + 0.3 * rng.normal(size=n)
    numbers = {name: x[:, j] for j, name in enumerate("abc")}
    table = pd.DataFrame({**numbers, "shop": shop.astype(str), "kind": kind.astype(str)})
    said = {"shop": "categorical", "kind": "categorical"}
    model = KernelLearningRegressor(learner=RFM(effects=effects), columns=said).fit(table[:m], y[:m])
    return float(np.sqrt(np.mean((model.predict(table[m:]) - y[m:]) ** 2)) / y[m:].std())


def main() -> None:
    """Measure each way in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.categories", description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--views", action="store_true", help="in place of levels: effects of views")
    asked = parser.parse_args()
    if asked.views:
        views()
        return
    if asked.one:
        print(json.dumps(measure(asked.one[0], int(asked.one[1]))))  # noqa: T201
        return
    print("| levels | way | RMSE / sd | seconds | GiB |\n|---|---|---|---|---|")  # noqa: T201
    for levels in LEVELS:
        for way in WAYS:
            if way == "indicators" and levels > 10_000:
                held = 8 * levels * (TRAINING + TEST) / 2**30
                print(f"| {levels:,} | {way} | | | more than {held:.1f}, of rows alone |")  # noqa: T201
                continue
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.categories", "--one", way, str(levels)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            one = json.loads(done.stdout)
            print(f"| {levels:,} | {way} | {one['error']:.3f} | {one['seconds']:.2f} | {one['GiB']:.2f} |")  # noqa: T201


if __name__ == "__main__":
    main()
