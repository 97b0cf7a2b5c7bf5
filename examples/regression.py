"""Does a learned kernel spare the search for the bandwidth in regression?

The usual way to a Gaussian kernel ridge regression is a grid search over the bandwidth `gamma` and the ridge `alpha`
together. `KernelLearningRegressor` weighs a whole grid of bandwidths by their alignment with the target instead, so
that the search is over the ridge alone. Both are measured on the same outer folds of the diabetes data (442 patients,
ten measurements, progression of the disease after one year), and so is a linear model, without which no error means
much.

Run it with `.venv/bin/python examples/regression.py`; it takes some ten seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, ParameterGrid, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from learnkernels import GaussianFamily, KernelLearningRegressor

ALPHAS = np.logspace(-3, 3, 7)
GAMMAS = [2.0**exponent for exponent in range(-8, -1)]
"""Bandwidths for ten standardised columns; both ways get the same ones."""

OUTER = KFold(n_splits=5, shuffle=True, random_state=0)
INNER = KFold(n_splits=3, shuffle=True, random_state=1)


@dataclass(frozen=True)
class Contestant:
    """What was measured of one way: root mean squared error a fold, seconds a fold, and how many models were fitted."""

    errors: np.ndarray
    seconds: np.ndarray
    fits: int
    chosen: list[dict[str, float]]


def contestants() -> dict[str, GridSearchCV]:
    """Return the ways to compare, each tuned by an inner cross-validation within the training part."""
    learned = make_pipeline(StandardScaler(), KernelLearningRegressor(GaussianFamily(GAMMAS)))
    # KernelRidge has no intercept, so it gets a centered target; KernelLearningRegressor centers by itself.
    gaussian = make_pipeline(
        StandardScaler(), TransformedTargetRegressor(KernelRidge(kernel="rbf"), transformer=StandardScaler())
    )
    linear = make_pipeline(StandardScaler(), Ridge())
    last = "transformedtargetregressor__regressor__"
    return {
        "learned grid of bandwidths": search(learned, {"kernellearningregressor__alpha": ALPHAS}),
        "one tuned bandwidth": search(gaussian, {f"{last}alpha": ALPHAS, f"{last}gamma": GAMMAS}),
        "linear": search(linear, {"ridge__alpha": ALPHAS * 100}),
    }


def search(estimator: BaseEstimator, grid: dict[str, Any]) -> GridSearchCV:
    """Return a search that chooses by the mean squared error."""
    return GridSearchCV(estimator, grid, cv=INNER, scoring="neg_mean_squared_error")


def compare() -> tuple[dict[str, Contestant], dict[str, float]]:
    """Measure every way, and return what was measured and the shares of the learned bandwidths on all rows."""
    X, y = load_diabetes(return_X_y=True)
    measured = {}
    for name, searched in contestants().items():
        found = cross_validate(
            searched, X, y, cv=OUTER, scoring="neg_root_mean_squared_error", return_estimator=True, error_score="raise"
        )
        # One fit a combination and inner fold, and one more of the best on all training rows; for each outer fold.
        fits = (len(ParameterGrid(searched.param_grid)) * INNER.get_n_splits() + 1) * OUTER.get_n_splits()
        chosen = [
            {key.rpartition("__")[2]: float(value) for key, value in fold.best_params_.items()}
            for fold in found["estimator"]
        ]
        measured[name] = Contestant(-found["test_score"], found["fit_time"], fits, chosen)

    regressor = make_pipeline(StandardScaler(), KernelLearningRegressor(GaussianFamily(GAMMAS))).fit(X, y)[-1]
    shares = dict(zip(regressor.family_.names, map(float, regressor.kernel_.shares), strict=True))
    return measured, shares


def main() -> tuple[dict[str, Contestant], dict[str, float]]:
    """Print the story."""
    start = time.perf_counter()
    measured, shares = compare()
    print("Root mean squared error on 5 held-out folds; the target's own standard deviation is 77:")
    for name, way in measured.items():
        print(
            f"  {name:<27} {way.errors.mean():5.2f} +- {way.errors.std():.2f}   {way.fits:4d} fits, "
            f"{way.seconds.mean():5.2f} s a fold"
        )
    for name in ("learned grid of bandwidths", "one tuned bandwidth"):
        print(f"\nChosen by the inner folds, {name}:")
        for choice in measured[name].chosen:
            print("  " + ", ".join(f"{key}={value:g}" for key, value in choice.items()))
    print("\nWhat the learned kernel is made of (on all rows):")
    for name, share in shares.items():
        print(f"  {name:<24} {share:.2f}")
    difference = measured["learned grid of bandwidths"].errors - measured["one tuned bandwidth"].errors
    print(f"\nLearned against tuned: {difference.mean():+.2f} +- {difference.std():.2f} a fold.")
    print(f"All of it took {time.perf_counter() - start:.0f} s.")
    return measured, shares


if __name__ == "__main__":
    main()
