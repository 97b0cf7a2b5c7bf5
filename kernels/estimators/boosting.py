"""Boosted trees, averaged with the kernel's predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from threadpoolctl import threadpool_limits

from ..base import report_progress
from ..column_encoding import TableEncoding
from ..predictors.calibration import held_out_splits
from ..row_groups import Split
from ..targets import Target
from ..weights import weights_of_rows

LEAST_ROWS = 1000
"""Fewest training rows for trees by ``boost="auto"``; fewer gain little."""

MOST_CLASSES = 20
"""Most classes for ``boost="auto"``."""

L2_OF_CLASSES = 1.0
"""L2 penalty of leaves for three or more classes, as rare ones may diverge."""

LEAST_CLASS_ROWS = 5
"""Fewest rows of a class for trees, except for the two largest classes."""

SHARE_ROWS = 1500
"""Held-out rows that suffice to choose the share of the trees."""

LEAST_SHARE = 0.05
"""Smallest weight with which trees are kept."""

SERIAL_ROWS = 5000
"""Most training rows for which one thread is fastest."""


@dataclass(frozen=True, eq=False)
class BoostingProblem:
    """Boosted trees to fit, and training features for kernel and trees."""

    trees: Any
    X: np.ndarray
    X_trees: np.ndarray
    target: Target
    weights: np.ndarray | None

    @classmethod
    def of(
        cls,
        boost: Any,
        table: TableEncoding | None,
        X: np.ndarray,
        target: Target,
        weights: np.ndarray | None,
        seed: int,
    ) -> BoostingProblem:
        """Return trees and training rows for an estimator's parameter `boost`."""
        X_trees, categories = tree_features(table, X)
        if boost != "auto":
            trees = clone(boost)
        elif target.task == "classification":
            trees = HistGradientBoostingClassifier(
                categorical_features=categories, random_state=seed
            )
            if np.sum(np.bincount(target.values) >= LEAST_CLASS_ROWS) > 2:
                trees.set_params(l2_regularization=L2_OF_CLASSES)
        else:
            trees = HistGradientBoostingRegressor(
                categorical_features=categories, random_state=seed
            )
        return cls(trees, X, X_trees, target, weights)

    def fit(self, rows: np.ndarray | None = None) -> Any:
        """Fit a copy of the trees on training rows, by default all."""
        if rows is None:
            rows = np.arange(len(self.X))
        rows = self._rows_of_frequent_classes(rows)
        fitted = clone(self.trees)
        stops_by_default = getattr(fitted, "early_stopping", None) == "auto"
        if stops_by_default and not self._may_hold_out_random_rows(rows):
            fitted.set_params(early_stopping=False)
        options = {}
        if self.weights is not None:
            options["sample_weight"] = self.weights[rows]
        report_progress(f"fitting boosted trees on {len(rows):,} rows")
        with tree_threads(len(rows)):
            y = np.ravel(self.target.values[rows])
            return fitted.fit(self.X_trees[rows], y, **options)

    def _rows_of_frequent_classes(self, rows: np.ndarray) -> np.ndarray:
        if not isinstance(self.trees, HistGradientBoostingClassifier):
            return rows
        codes = self.target.values[rows]
        counts = np.bincount(codes)
        second_largest = np.sort(np.append(counts, 0))[-2]
        is_frequent = counts >= min(LEAST_CLASS_ROWS, second_largest)
        return rows[is_frequent[codes]]

    def _may_hold_out_random_rows(self, rows: np.ndarray) -> bool:
        if self.target.row_groups is not None:
            return False
        if self.target.task == "regression":
            return True
        return not (np.bincount(self.target.values[rows]) == 1).any()

    def held_out_predictions(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return held-out rows, and predictions by trees fitted on the others."""
        n_classes = None
        if self.target.task == "classification":
            n_classes = len(self.target.classes)
        rows_of_splits = [np.empty(0, dtype=np.intp)]
        predictions = [np.empty((0, n_classes or 1))]
        for training, test in self._splits(rows):
            predictions.append(
                tree_predictions(self.fit(training), self.X_trees[test], n_classes)
            )
            rows_of_splits.append(test)
            if sum(map(len, rows_of_splits)) >= SHARE_ROWS:
                break
        return np.concatenate(rows_of_splits), np.concatenate(predictions)

    def _splits(self, rows: np.ndarray) -> list[Split]:
        """Return splits whose test rows are among `rows`, the latest first."""
        splits = held_out_splits(self.X, self.target)
        if self._is_single_split(rows, splits):
            splits = [(np.setdiff1d(np.arange(len(self.X)), rows), rows)]
        tested = [
            (training, np.intersect1d(test, rows))
            for training, test in reversed(splits)
            if self._may_train_on(training)
        ]
        return [(training, test) for training, test in tested if len(test)]

    def _may_train_on(self, rows: np.ndarray) -> bool:
        if self.target.task == "regression":
            return True
        return len(np.unique(self.target.values[rows])) > 1

    def _is_single_split(self, rows: np.ndarray, splits: Sequence[Split]) -> bool:
        row_groups = self.target.row_groups
        is_ordered = row_groups is not None and row_groups.ordered
        if is_ordered or len(rows) == len(self.X):
            return False
        # Splits leave out rows of rare classes.
        is_held_out = np.zeros(len(self.X), dtype=bool)
        for _, test in splits:
            is_held_out[test] = True
        return not np.array_equal(np.flatnonzero(is_held_out), np.sort(rows))

    def best_share(
        self, rows: np.ndarray, by_kernel: np.ndarray, by_trees: np.ndarray
    ) -> float:
        """Return the trees' weight with the lowest held-out loss."""
        weights = weights_of_rows(self.weights, rows)
        if self.target.task == "classification":
            return share_of_classes(
                self.target.values[rows], by_kernel, by_trees, weights
            )
        return share_of_numbers(self.target.Y[rows], by_kernel, by_trees, weights)


def is_boosted_by_default(target: Target) -> bool:
    """Return whether ``boost="auto"`` fits trees, by numbers of rows and classes."""
    if len(target) < LEAST_ROWS:
        return False
    return target.task == "regression" or len(target.classes) <= MOST_CLASSES


def tree_features(
    table: TableEncoding | None, X: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return features for trees, and a mask of categorical ones; None without a table."""
    if table is None:
        return X, None
    X_trees, is_level = table.for_trees(np.asarray(X))
    return X_trees, is_level


def tree_predictions(
    trees: Any, X_trees: np.ndarray, n_classes: int | None
) -> np.ndarray:
    """Return the trees' predictions, (n, 1), or class probabilities, (n, n_classes)."""
    if not len(X_trees):
        return np.empty((0, n_classes or 1))
    if n_classes is None:
        return np.asarray(trees.predict(X_trees)).reshape(-1, 1)
    P = np.zeros((len(X_trees), n_classes))
    P[:, trees.classes_] = trees.predict_proba(X_trees)
    return P


def share_of_numbers(
    measured: np.ndarray,
    by_kernel: np.ndarray,
    by_trees: np.ndarray,
    weights: np.ndarray | None,
) -> float:
    """Return the trees' weight, in [0, 1], with the lowest squared error of the average."""
    difference = by_trees - by_kernel
    if weights is not None:
        difference = difference * weights[:, None]
    denominator = float((difference * (by_trees - by_kernel)).sum())
    if denominator <= 0:
        return 0.0
    share = float((difference * (measured - by_kernel)).sum()) / denominator
    return min(max(share, 0.0), 1.0)


def share_of_classes(
    codes: np.ndarray,
    by_kernel: np.ndarray,
    by_trees: np.ndarray,
    weights: np.ndarray | None,
) -> float:
    """Return the trees' weight, in [0, 1], with the lowest log loss of the average."""
    rows = np.arange(len(codes))
    p_kernel = by_kernel[rows, codes]
    p_trees = by_trees[rows, codes]
    tiny = np.finfo(np.float64).tiny

    def loss(share: float) -> float:
        mixed = np.maximum((1.0 - share) * p_kernel + share * p_trees, tiny)
        return -float(np.average(np.log(mixed), weights=weights))

    return float(
        minimize_scalar(
            loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-3}
        ).x
    )


def require_trees(boost: Any, task: str) -> None:
    """Raise ValueError for an invalid parameter `boost`."""
    if boost is False or (isinstance(boost, str) and boost == "auto"):
        return
    method = "predict_proba" if task == "classification" else "predict"
    if (
        isinstance(boost, type)
        or not hasattr(boost, "fit")
        or not hasattr(boost, method)
    ):
        raise ValueError(
            f"boost must be 'auto', False or an estimator with the methods fit and {method}, got {boost!r:.60}."
        )


@contextmanager
def tree_threads(n_rows: int) -> Iterator[None]:
    """Enter a context with one OpenMP thread if rows are few."""
    if n_rows > SERIAL_ROWS:
        yield
        return
    with threadpool_limits(1, user_api="openmp"):
        yield
