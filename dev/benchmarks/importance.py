"""Importances of columns against permutation importance on test rows, on ten tables.

`python -m dev.benchmarks.importance` prints for each table, with a column of noise and
a column of 300 names added, the rank correlation (Spearman) of the shares of the
learned metric and of `relevance_` with the permutation importance on test rows, and
that of the permutation importances on both halves of these rows, which bounds it. Then
come the ranks of the added columns by either importance, the largest absolute relevance
of the two, and the number of columns.

The packages of the board must be installed, see `make board`; only tables of its
development half are read.

By the metric, the correlation is 0.18 on average, and the column of names is first on
seven of ten tables. By `relevance_` it is 0.61, of at most 0.65, and no added column is
first; their relevances are at most 0.04.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.inspection import permutation_importance

from dev.benchmarks.board.raw import raw_tables
from dev.benchmarks.board.tables import Drawing
from learnkernels import KernelLearningClassifier, KernelLearningRegressor
from learnkernels.kernels.column_encoding import shares_by_column

RAW = (
    "amazon_books",
    "coffee",
    "gapminder",
    "saratoga_houses",
    "titanic",
    "wage",
    "wage_young_men",
)
"""Tables of the section `raw`, all of its development half, at 500 training rows."""

LOADERS = {
    "breast_cancer": load_breast_cancer,
    "diabetes": load_diabetes,
    "wine": load_wine,
}

N_NAMES = 300

Model = KernelLearningClassifier | KernelLearningRegressor


@dataclass(frozen=True)
class Comparison:
    """Importances of the columns of one table.

    Attributes
    ----------
    metric : ndarray of shape (d,)
        Shares of the learned metric.
    relevance : ndarray of shape (d,)
        Relevance on held-out training rows.
    permutation : ndarray of shape (d, 2)
        Permutation importance on either half of the test rows.
    fit_seconds, relevance_seconds : float
        CPU seconds.
    columns : list of str
    """

    metric: np.ndarray
    relevance: np.ndarray
    permutation: np.ndarray
    fit_seconds: float
    relevance_seconds: float
    columns: list[str]

    def correlation(self, importances: np.ndarray) -> float:
        """Return the rank correlation of importances with the permutation importance."""
        return float(spearmanr(importances, self.permutation.mean(axis=1)).statistic)

    @property
    def correlation_of_halves(self) -> float:
        """Rank correlation of the permutation importances on both halves of the test rows."""
        return float(spearmanr(*self.permutation.T).statistic)

    def rank(self, importances: np.ndarray, column: str) -> int:
        """Return the rank of a column, from 1 for the most important one."""
        place = self.columns.index(column)
        return 1 + int((importances > importances[place]).sum())


def drawings() -> Iterator[tuple[str, str, Drawing]]:
    """Yield name, task and rows of each table."""
    for table in raw_tables():
        if table.name in RAW and table.split.most <= 500:
            assert not table.apart
            yield table.name, table.task, table.drawn(0)
    for name, load in LOADERS.items():
        X, y = load(return_X_y=True, as_frame=True)
        order = np.random.default_rng(0).permutation(len(X))
        training, test = order[: 2 * len(X) // 3], order[2 * len(X) // 3 :]
        task = "regression" if name == "diabetes" else "classification"
        y = y.to_numpy(dtype=np.float64)
        yield (
            name,
            task,
            Drawing(X.iloc[training], y[training], X.iloc[test], y[test], 1.0),
        )


def with_irrelevant_columns(X: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return a table with a column of noise and a column of `N_NAMES` names."""
    rng = np.random.default_rng(seed)
    names = [f"name {number}" for number in rng.integers(0, N_NAMES, len(X))]
    return X.assign(noise=rng.normal(size=len(X)), names=names)


def skill(model: Model, X: pd.DataFrame, y: np.ndarray) -> float:
    """Return R2, or minus the mean Brier score."""
    if isinstance(model, KernelLearningRegressor):
        return float(model.score(X, y))
    is_class = y[:, None] == model.classes_
    return -float(np.square(model.predict_proba(X) - is_class).sum(axis=1).mean())


def compare(task: str, drawing: Drawing) -> Comparison:
    """Fit the default estimator, and return its importances."""
    kind = KernelLearningRegressor if task == "regression" else KernelLearningClassifier
    X = with_irrelevant_columns(drawing.X, 0)
    X_test = with_irrelevant_columns(drawing.X_test, 1)
    started = time.process_time()
    model = kind(columns={"names": "categorical"}).fit(X, drawing.y)
    fitted = time.process_time()
    relevance = model.relevance_
    measured = time.process_time()
    columns = list(model.table_.names)
    permutation = []
    for half in (slice(0, None, 2), slice(1, None, 2)):
        repeated = permutation_importance(
            model,
            X_test[columns][half],
            drawing.y_test[half],
            scoring=skill,
            n_repeats=5,
            random_state=0,
        )
        permutation.append(repeated.importances_mean)
    shares = shares_by_column(model.table_.features, model.kernel_.relevance)
    return Comparison(
        np.array([shares[name] for name in columns]),
        np.array([relevance[name] for name in columns]),
        np.column_stack(permutation),
        fitted - started,
        measured - fitted,
        columns,
    )


def main() -> None:
    """Print a line per table, and the means."""
    warnings.simplefilter("ignore")
    print(  # noqa: T201
        f"{'':<16} Spearman                  rank of noise     rank of names  largest        CPU seconds"
    )
    print(  # noqa: T201
        f"{'table':<16} metric relevance_ halves metric relevance_ metric relevance_ of both columns fit relevance_"
    )
    correlations = []
    for name, task, drawing in drawings():
        result = compare(task, drawing)
        correlation = (
            result.correlation(result.metric),
            result.correlation(result.relevance),
            result.correlation_of_halves,
        )
        correlations.append(correlation)
        ranks = [
            result.rank(importances, column)
            for column in ("noise", "names")
            for importances in (result.metric, result.relevance)
        ]
        largest = max(
            abs(result.relevance[result.columns.index(column)])
            for column in ("noise", "names")
        )
        print(  # noqa: T201
            f"{name:<16} {correlation[0]:6.2f} {correlation[1]:10.2f} {correlation[2]:6.2f} "
            f"{ranks[0]:6d} {ranks[1]:10d} {ranks[2]:6d} {ranks[3]:10d} {largest:7.3f} "
            f"{len(result.columns):7d} {result.fit_seconds:3.1f} {result.relevance_seconds:10.2f}",
            flush=True,
        )
    metric, relevance, halves = np.mean(correlations, axis=0)
    print(f"{'mean':<16} {metric:6.2f} {relevance:10.2f} {halves:6.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
