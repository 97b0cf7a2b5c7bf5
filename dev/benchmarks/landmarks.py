"""Compare landmarks drawn uniformly with landmarks by randomly pivoted Cholesky.

`python -m dev.benchmarks.landmarks` learns a kernel by `alignf` on the training rows of
development tables, and fits ridge regressions on landmarks: the default number and a
quarter of it, drawn uniformly or as pivots of the learned kernel, and a quarter more
drawn uniformly, which take about the time of pivots. C is chosen on a fifth of the
training rows. A row of the output has the error on test rows, as a rate or in standard
deviations of the target: its mean over the draws, and its standard error; the mean
difference to uniform landmarks, and its standard error; the median CPU seconds of a fit
with the chosen C.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.datasets import load_digits

from dev.benchmarks.board.tables import Drawing, Split, Table, medium_tables
from learnkernels import learn_kernel
from learnkernels.kernels.estimators import default_family
from learnkernels.kernels.learned_kernel import LearnedKernel
from learnkernels.kernels.predictors import Nystroem
from learnkernels.kernels.predictors.base import TrainingSet
from learnkernels.kernels.predictors.nystroem import landmarks_for
from learnkernels.kernels.targets import Target

DIGITS = Table(
    "digits",
    "classification",
    False,
    partial(load_digits, return_X_y=True),
    split=Split(0.7, None, 4000, 4000),
)
TABLES = (
    *("electrical_grid", "puma32h", "spotify"),
    *("digits", "optdigits", "phoneme", "satimage"),
)
GRID = [10.0**exponent for exponent in range(-1, 6)]
PROPOSALS = 128
"""Rows that are proposed as pivots at once."""

COLUMNS = (
    *("data", "landmarks", "drawn", "error", "standard error"),
    *("difference", "its standard error", "CPU s"),
)

Rng = np.random.Generator


def random_pivots(
    kernel: LearnedKernel, X: np.ndarray, n_pivots: int, rng: Rng
) -> np.ndarray:
    """Return positions of pivots, each drawn with a probability proportional to the
    diagonal of the kernel that the earlier ones leave.

    Proposals are drawn in blocks from the diagonal before the block, and rejected so
    that the distribution is that of single steps (Epperly, Tropp, Webber 2024). The
    kernel is not centered.
    """
    combination = kernel.combination
    constant = float(combination.coefficients @ combination.shift)
    diagonal = combination.diagonal(X) + constant
    total = diagonal.sum()
    factor = np.empty((len(X), n_pivots))
    pivots: list[int] = []
    while len(pivots) < n_pivots and diagonal.sum() > 1e-13 * total:
        proposed = rng.choice(len(X), PROPOSALS, p=diagonal / diagonal.sum())
        known = factor[:, : len(pivots)]
        block = combination.matrix(X[proposed], X[proposed], symmetric=True) + constant
        block -= known[proposed] @ known[proposed].T
        accepted, lower = accepted_proposals(block, diagonal[proposed], rng)
        if not len(accepted):
            continue
        accepted = accepted[: n_pivots - len(pivots)]
        lower = lower[: len(accepted), : len(accepted)]
        new = proposed[accepted]
        columns = combination.matrix(X, X[new]) + constant
        columns -= known @ known[new].T
        added = solve_triangular(lower, columns.T, lower=True).T
        factor[:, len(pivots) : len(pivots) + len(new)] = added
        diagonal -= (added**2).sum(axis=1)
        np.maximum(diagonal, 0.0, out=diagonal)
        pivots += new.tolist()
        diagonal[pivots] = 0.0
    return np.array(pivots)


def accepted_proposals(
    block: np.ndarray, bounds: np.ndarray, rng: Rng
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of accepted proposals, and the Cholesky factor of their kernel."""
    block = block.copy()
    thresholds = rng.random(len(block)) * bounds
    accepted = []
    columns = []
    for position in range(len(block)):
        pivot = block[position, position]
        if pivot <= max(thresholds[position], 1e-12 * bounds[position]):
            continue
        column = block[:, position] / np.sqrt(pivot)
        block -= np.outer(column, column)
        accepted.append(position)
        columns.append(column)
    lower = np.array(columns).reshape(-1, len(block)).T[accepted]
    return np.array(accepted, dtype=np.intp), np.tril(lower)


class PivotedNystroem(Nystroem):
    """Ridge regression on pivots of the learned kernel."""

    def _drawn_landmarks(
        self, training: TrainingSet, n_landmarks: int, rng: Rng
    ) -> np.ndarray:
        X, _ = training.take()
        return np.sort(random_pivots(training.kernel, X, n_landmarks, rng))


@dataclass(frozen=True)
class Problem:
    """A learned kernel, training rows and test rows."""

    table: Table
    drawing: Drawing
    training: TrainingSet
    target: Target

    @classmethod
    def of(cls, table: Table, seed: int) -> Problem:
        drawing = table.drawn(seed)
        kernel = learn_kernel(
            drawing.X,
            drawing.y,
            learner="alignf",
            family=default_family(drawing.X),
            task=table.task,
        )
        training = TrainingSet.of(kernel, drawing.X, np.arange(len(drawing.y)))
        return cls(table, drawing, training, Target.of(drawing.y, table.task))

    def error(self, predictions: np.ndarray, y: np.ndarray) -> float:
        """Return the error rate, or the root mean squared error in standard deviations."""
        if self.table.task == "classification":
            classes = np.array(self.target.classes).astype(y.dtype)
            return float(np.mean(classes[predictions] != y))
        residuals = predictions.ravel() - y
        return float(np.sqrt(np.mean(residuals**2)) / self.drawing.unit)

    def chosen_C(self, predictor: Nystroem, seed: int) -> float:
        """Return the C with the lowest error on a fifth of the training rows."""
        rows = np.random.default_rng(seed).permutation(self.training.n_rows)
        held_out, others = np.split(rows, [len(rows) // 5])
        path = predictor.fit(
            self.training.subset(others), self.target.take(others), GRID
        )
        predictions = path.predict(self.drawing.X[held_out])
        errors = [self.error(of_C, self.drawing.y[held_out]) for of_C in predictions]
        return GRID[int(np.argmin(errors))]

    def measure(self, predictor: Nystroem, seed: int) -> tuple[float, float]:
        """Return the error on test rows, and the CPU seconds of the fit with the chosen C."""
        C = self.chosen_C(predictor, seed)
        start = time.process_time()
        path = predictor.fit(self.training, self.target, [C])
        seconds = time.process_time() - start
        (predictions,) = path.predict(self.drawing.X_test)
        return self.error(predictions, self.drawing.y_test), seconds


def predictors(n_landmarks: int, seed: int) -> Mapping[str, Nystroem]:
    """Return the ways to draw landmarks, by name."""
    return {
        "uniform": Nystroem(n_components=n_landmarks, random_state=seed),
        "pivots": PivotedNystroem(n_components=n_landmarks, random_state=seed),
        "uniform, a quarter more": Nystroem(
            n_components=n_landmarks * 5 // 4, random_state=seed
        ),
    }


def rows_of(table: Table, draws: int) -> Iterator[dict[str, Any]]:
    """Yield a row per number of landmarks and way to draw them."""
    problems = [Problem.of(table, seed) for seed in range(draws)]
    m, d = problems[0].drawing.X.shape
    n_outputs = problems[0].target.Y.shape[1]
    default = landmarks_for(m, d, n_outputs, store_kernel=True)
    for n_landmarks in (default // 4, default):
        uniform_errors: np.ndarray | None = None
        for name in predictors(n_landmarks, 0):
            measured = [
                problem.measure(predictors(n_landmarks, seed)[name], seed)
                for seed, problem in enumerate(problems)
            ]
            errors = np.array([error for error, _ in measured])
            if uniform_errors is None:
                uniform_errors = errors
            differences = errors - uniform_errors
            values = (
                table.name,
                n_landmarks,
                name,
                float(errors.mean()),
                standard_error(errors),
                float(differences.mean()),
                standard_error(differences),
                statistics.median(seconds for _, seconds in measured),
            )
            yield dict(zip(COLUMNS, values, strict=True))


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def readable(value: Any) -> str:
    """Return a cell of a table."""
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    arguments = parser.parse_args()
    by_name = {table.name: table for table in [DIGITS, *medium_tables()]}
    print(f"| {' | '.join(COLUMNS)} |")  # noqa: T201
    print(f"|{'---|' * len(COLUMNS)}")  # noqa: T201
    for name in arguments.tables:
        for row in rows_of(by_name[name], arguments.draws):
            print(f"| {' | '.join(map(readable, row.values()))} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
