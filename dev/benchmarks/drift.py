"""False alarms, power and cost of the comparison of new rows with training rows that
`predict` makes.

`python -m dev.benchmarks.drift` prints, for two learners on 1,000 rows of ten columns
of which five matter (Friedman 1991), how often the test by the kernel, those of the
columns and both together say that a batch of 500 rows has drifted: of 400 clean
batches, and of 100 batches that have drifted in one way each, with 20 models. Then it
prints what the comparison takes relative to scoring.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from learnkernels import GaussianFamily
from learnkernels.conf.schema.compare import DriftConfig
from learnkernels.kernels.estimators import KernelLearningRegressor
from learnkernels.kernels.hypothesis_tests.drift import NewRows, drift_of
from learnkernels.kernels.model import Model
from learnkernels.tasks.models.scoring import Tally, drift_report

TRAINING, BATCH, COLUMNS, MATTER = 1000, 500, 10, 5
MODELS, CLEAN, DRIFTED = 20, 20, 5
LEVEL = DriftConfig.model_validate({}).level
LEARNERS: dict[str, dict[str, Any]] = {
    "rfm (default)": {},
    "alignf": {
        "family": GaussianFamily([0.02, 0.05, 0.1, 0.2, 0.5]),
        "learner": "alignf",
    },
}
Rng = np.random.Generator


def friedman(X: np.ndarray, rng: Rng) -> np.ndarray:
    """Return targets of rows, of which the first five columns matter."""
    U = 0.5 + X / 4
    signal = (
        10 * np.sin(np.pi * U[:, 0] * U[:, 1])
        + 20 * (U[:, 2] - 0.5) ** 2
        + 10 * U[:, 3]
        + 5 * U[:, 4]
    )
    return signal + rng.normal(size=len(X))


def shifted(columns: range) -> Callable[[np.ndarray, Rng], None]:
    """Return what moves one of some columns, at random, by half a standard deviation."""

    def shift(X: np.ndarray, rng: Rng) -> None:
        X[:, rng.choice(columns)] += 0.5

    return shift


def scaled(X: np.ndarray, rng: Rng) -> None:
    """Make the standard deviation of one column half as large again."""
    X[:, rng.integers(COLUMNS)] *= 1.5


def together(X: np.ndarray, rng: Rng) -> None:
    """Move every column by .15 of a standard deviation."""
    X += 0.15


def correlated(X: np.ndarray, rng: Rng) -> None:
    """Correlate two columns that matter, by .7; the distribution of each alone stays."""
    one, other = rng.choice(MATTER, 2, replace=False)
    X[:, one] = 0.7 * X[:, other] + np.sqrt(1 - 0.7**2) * X[:, one]


CASES: dict[str, Callable[[np.ndarray, Rng], None]] = {
    "clean": lambda X, rng: None,
    "half a deviation, a column that matters": shifted(range(MATTER)),
    "half a deviation, another column": shifted(range(MATTER, COLUMNS)),
    "deviation 1.5 times as large": scaled,
    "0.15 of a deviation, all columns": together,
    "correlation .7 of two columns that matter": correlated,
}


def trained(params: dict[str, Any], rows: int, rng: Rng) -> Model:
    """Return a model with what it keeps of its training rows."""
    X = rng.normal(size=(rows, COLUMNS))
    estimator = KernelLearningRegressor(**params).fit(X, friedman(X, rng))
    model = Model(
        estimator,
        tuple(f"x{j}" for j in range(COLUMNS)),
        np.zeros(COLUMNS),
        np.ones(COLUMNS),
        {},
    )
    return model.with_reference(
        X, X.min(axis=0), X.max(axis=0), int(rng.integers(1 << 30))
    )


def kept(model: Model, X: np.ndarray) -> NewRows:
    """Return what is kept of new rows."""
    assert model.reference is not None
    return NewRows.of(
        X, model.scores_in(model.columns_of(X)), model.reference, [len(X)]
    )


def alarms(params: dict[str, Any], models: int) -> dict[str, np.ndarray]:
    """Return the share of alarms of each case: by the kernel, by the columns, and by `predict`, thresholds included."""
    found = {case: np.zeros(3) for case in CASES}
    batches = {case: DRIFTED if number else CLEAN for number, case in enumerate(CASES)}
    for number in range(models):
        rng = np.random.default_rng(number)
        model = trained(params, TRAINING, rng)
        for case, change in CASES.items():
            for _ in range(batches[case]):
                X = rng.normal(size=(BATCH, COLUMNS))
                change(X, rng)
                new, config = kept(model, X), DriftConfig.model_validate({})
                drift = drift_of(
                    model.estimator.kernel_, model.feature_columns, model.reference, new
                )
                decided = bool(
                    drift_report(model, Tally({}, new, BATCH), config).warnings
                )
                columns = min(drift.p_columns.values())
                found[case] += (
                    drift.p_kernel <= LEVEL / 2,
                    columns <= LEVEL / 2,
                    decided,
                )
    return {case: counts / (models * batches[case]) for case, counts in found.items()}


def cost(training: int, rows: int, repeats: int) -> tuple[float, float]:
    """Return the median seconds of scoring some rows, and of the comparison."""
    rng = np.random.default_rng(0)
    model, X, taken = trained({}, training, rng), rng.normal(size=(rows, COLUMNS)), []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        scores = model.scores_in(model.columns_of(X))
        scored = time.perf_counter()
        assert model.reference is not None
        new = NewRows.of(X, scores, model.reference, [0])
        drift_report(model, Tally({}, new, rows), DriftConfig.model_validate({}))
        taken.append((scored - started, time.perf_counter() - scored))
    scoring, comparing = np.median(taken[1:], axis=0).tolist()  # the first one compiles
    return scoring, comparing


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.benchmarks.drift", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--models", type=int, default=MODELS, help="Of each learner.")
    models = parser.parse_args().models
    print(  # noqa: T201
        f"| learner | {BATCH} rows | kernel | columns | together |\n|---|---|---|---|---|"
    )
    for learner, params in LEARNERS.items():
        for case, shares in alarms(params, models).items():
            print(  # noqa: T201
                f"| {learner} | {case} | {' | '.join(f'{share:.1%}' for share in shares)} |",
                flush=True,
            )
    print(  # noqa: T201
        "\n| training rows | new rows | scoring, s | comparison, s | ratio |\n|---|---|---|---|---|"
    )
    for training in (1000, 5000):
        for rows in (500, 10_000, 100_000):
            scoring, comparing = cost(training, rows, 5 if models == MODELS else 1)
            cells = f"{scoring:.3f} | {comparing:.3f} | {comparing / scoring:.2f}"
            print(f"| {training:,} | {rows:,} | {cells} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
