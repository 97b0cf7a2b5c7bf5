"""Intervals and probabilities of a metric learned from few rows of many columns.

`python -m dev.benchmarks.few_rows` prints, for Friedman's function, the coverage of
intervals of new rows at level 0.9 and the log loss of probabilities. Held-out residuals
are scaled by the errors of halves, or stay as they are. Numbers are means over seeds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.metrics import log_loss

from learnkernels import KernelLearningClassifier, KernelLearningRegressor
from learnkernels.kernels.estimators import fit_on_kernel
from learnkernels.kernels.learned_kernel import LearnedKernel

SIZES = ((100, 200), (300, 100), (500, 50), (300, 10))
NEW_ROWS = 1_000
SEEDS = range(5)
LEVEL = 0.9


def main() -> None:
    print(f"{'rows':>5} {'columns':>7}   {'coverage':>16}   {'log loss':>16}")  # noqa: T201
    print(f"{'':13}   {'as is':>8}{'scaled':>8}   {'as is':>8}{'scaled':>8}")  # noqa: T201
    for n_rows, n_columns in SIZES:
        results = [measure(n_rows, n_columns, seed) for seed in SEEDS]
        coverage, loss = np.mean(results, axis=0)
        print(  # noqa: T201
            f"{n_rows:5} {n_columns:7}   {coverage[0]:8.2f}{coverage[1]:8.2f}   {loss[0]:8.2f}{loss[1]:8.2f}",
            flush=True,
        )


def measure(n_rows: int, n_columns: int, seed: int) -> np.ndarray:
    """Return coverage and log loss, without and with the errors of halves, (2, 2)."""
    X, y = make_friedman1(
        n_rows + NEW_ROWS, n_features=n_columns, noise=1.0, random_state=seed
    )
    X_new = X[n_rows:]
    y_new = y[n_rows:]
    X = X[:n_rows]
    y = y[:n_rows]
    median = np.median(y)
    regressor = KernelLearningRegressor(boost=False).fit(X, y)
    classifier = KernelLearningClassifier(boost=False).fit(X, y > median)
    coverage = []
    for kernel in variants(regressor.kernel_):
        fit_on_kernel(regressor, kernel, y)
        low, high = regressor.predict_interval(X_new, alpha=1.0 - LEVEL).T
        coverage.append(np.mean((low <= y_new) & (y_new <= high)))
    losses = []
    for kernel in variants(classifier.kernel_):
        fit_on_kernel(classifier, kernel, y > median)
        losses.append(log_loss(y_new > median, classifier.predict_proba(X_new)))
    return np.array([coverage, losses])


def variants(kernel: LearnedKernel) -> tuple[LearnedKernel, LearnedKernel]:
    """Return the kernel without and with the errors of halves."""
    return replace(kernel, errors_of_halves=None), kernel


if __name__ == "__main__":
    main()
