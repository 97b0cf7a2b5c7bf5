"""Prediction intervals of locally varying width against those of one width and
conformalized quantile regression.

`python -m dev.benchmarks.intervals` prints, for the development tables of the sections
`medium` (4,000 training rows) and `small` (500) of the board, the coverage, its worst
table, the mean width and the interval score of three methods. The last two are relative
to intervals of one width from the same fit, as geometric means. The coverage also comes
by fifths of the test rows, from the easiest to the most difficult: by the error that a
boosted model expects, which knows none of the methods. `--held-out` takes the other
half of the tables.

The packages of the board must be installed, see `make board`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold, cross_val_predict

from dev.benchmarks.board.tables import Drawing, Table, medium_tables, tables
from learnkernels import KernelLearningRegressor

LEVELS = (0.8, 0.95)
ONE_WIDTH = "learnkernels, one width"
LOCAL_WIDTH = "learnkernels, predict_interval"
QUANTILES = "LightGBM, conformalized quantiles"
METHODS = (ONE_WIDTH, LOCAL_WIDTH, QUANTILES)


@dataclass(frozen=True)
class Quality:
    """Quality of the intervals for the test rows of one table.

    Attributes
    ----------
    coverage : float
    width : float
        Mean width.
    score : float
        Mean interval score (Winkler): the width, plus 2 / alpha times the distance of a
        target outside.
    by_fifth : ndarray of shape (5,)
        Coverage from the easiest to the most difficult fifth of the rows.
    """

    coverage: float
    width: float
    score: float
    by_fifth: np.ndarray


def quality_of(
    bounds: np.ndarray, y: np.ndarray, level: float, difficulty: np.ndarray
) -> Quality:
    """Return the quality of intervals, given their bounds, shape (n, 2)."""
    low, high = bounds.T
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    is_covered = outside == 0
    fifths = np.array_split(np.argsort(difficulty, kind="stable"), 5)
    by_fifth = np.array([is_covered[rows].mean() for rows in fifths])
    width = high - low
    score = width + 2.0 / (1.0 - level) * outside
    return Quality(
        float(is_covered.mean()), float(width.mean()), float(score.mean()), by_fifth
    )


def expected_errors(data: Drawing) -> np.ndarray:
    """Return the absolute errors that boosted models expect of one another on the test rows."""
    folds = KFold(5, shuffle=True, random_state=0)
    predicted = cross_val_predict(
        HistGradientBoostingRegressor(learning_rate=0.06), data.X, data.y, cv=folds
    )
    errors = np.abs(data.y - predicted)
    model = HistGradientBoostingRegressor(
        loss="absolute_error", max_iter=50, learning_rate=0.06
    )
    return np.asarray(model.fit(data.X, errors).predict(data.X_test))


def conformalized_quantiles(data: Drawing, level: float) -> np.ndarray:
    """Return intervals from LightGBM's quantile regressions on four fifths of the rows, widened by the last fifth."""
    from lightgbm import LGBMRegressor

    n = 4 * len(data.y) // 5
    alpha = 1.0 - level
    models = [
        LGBMRegressor(objective="quantile", alpha=share, verbose=-1, n_jobs=1).fit(
            data.X[:n], data.y[:n]
        )
        for share in (alpha / 2, 1.0 - alpha / 2)
    ]
    low, high = (model.predict(data.X[n:]) for model in models)
    outside = np.sort(np.maximum(low - data.y[n:], data.y[n:] - high))
    rank = min(int(np.ceil((len(outside) + 1) * level)), len(outside))
    low, high = (model.predict(data.X_test) for model in models)
    middle = (low + high) / 2
    half_width = np.maximum((high - low) / 2 + outside[rank - 1], 0.0)
    return np.column_stack([middle - half_width, middle + half_width])


def measure(table: Table) -> dict[tuple[str, float], Quality]:
    """Return the quality of each method and level on one table, and print the seconds of the fit."""
    data = table.drawn(0)
    difficulty = expected_errors(data)
    started = time.process_time()
    model = KernelLearningRegressor().fit(data.X, data.y)
    seconds = time.process_time() - started
    print(f"{table.name}: {len(data.y):,} rows, fit in {seconds:.1f} CPU s", flush=True)  # noqa: T201
    predicted = model.predict(data.X_test)
    qualities = {}
    for level in LEVELS:
        rank = min(
            int(np.ceil((len(model.residuals_) + 1) * level)), len(model.residuals_)
        )
        half_width = model.residuals_[rank - 1, 0]
        bounds = {
            ONE_WIDTH: np.column_stack(
                [predicted - half_width, predicted + half_width]
            ),
            LOCAL_WIDTH: model.predict_interval(data.X_test, 1.0 - level),
            QUANTILES: conformalized_quantiles(data, level),
        }
        for method in METHODS:
            qualities[method, level] = quality_of(
                bounds[method], data.y_test, level, difficulty
            )
    return qualities


def print_summary(
    measured: list[dict[tuple[str, float], Quality]], level: float
) -> None:
    """Print a table of the means over data sets."""
    print(  # noqa: T201
        f"\n| level {level:g} | coverage (worst) | width | interval score | better | by fifth |"
    )
    print("|---|---|---|---|---|---|")  # noqa: T201
    base = [qualities[ONE_WIDTH, level] for qualities in measured]
    for method in METHODS:
        results = [qualities[method, level] for qualities in measured]
        coverage = np.array([result.coverage for result in results])
        width = np.array(
            [
                result.width / reference.width
                for result, reference in zip(results, base, strict=True)
            ]
        )
        score = np.array(
            [
                result.score / reference.score
                for result, reference in zip(results, base, strict=True)
            ]
        )
        by_fifth = " ".join(
            f"{share:.3f}"
            for share in np.mean([result.by_fifth for result in results], axis=0)
        )
        print(  # noqa: T201
            f"| {method} | {coverage.mean():.3f} ({coverage.min():.3f}) | {np.exp(np.log(width).mean()):.3f} | "
            f"{np.exp(np.log(score).mean()):.3f} | {np.count_nonzero(score < 1)} of {len(score)} | {by_fifth} |"
        )


def main() -> None:
    """Measure the tables of both sections."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.benchmarks.intervals", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--held-out", action="store_true", help="take the held-out half of the tables"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # LightGBM's, of names of columns
    for section, section_tables in (("medium", medium_tables()), ("small", tables())):
        print(f"\n# {section}")  # noqa: T201
        measured = [
            measure(table)
            for table in section_tables
            if table.task == "regression" and table.apart == options.held_out
        ]
        for level in LEVELS:
            print_summary(measured, level)


if __name__ == "__main__":
    main()
