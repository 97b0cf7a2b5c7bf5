"""Contributions of columns to predictions: interventional Shapley values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import factorial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..column_encoding import TableEncoding, is_table
from ..column_encoding.reading import Column, read_columns
from .product_kernels import ProductScores

BACKGROUND_ROWS = 50

MOST_SUBSETS = 8
"""Most subsets of columns that are always evaluated."""

SINGLE_PRECISION_ERROR = 1e-3
"""Largest error of single precision, in standard deviations of predictions."""

Predict: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Function from features of rows to predictions, (n, q)."""

CHUNK_VALUES = 1 << 22
"""Most values of composite rows in memory at once."""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Contributions of columns to predictions, the result of `explain`.

    A row's contributions and base value add up to its prediction.

    Attributes
    ----------
    contributions : ndarray of shape (n, d) or (n, d, q)
        Contribution of each column to each prediction.
    base_values : ndarray of shape (n,) or (n, q)
        Mean prediction of the background rows.
    predictions : ndarray of shape (n,) or (n, q)
        Explained predictions.
    data : ndarray of shape (n, d)
        Values of the columns.
    columns : tuple of str
        Names of the columns.
    outputs : tuple of str
        Names of the classes or outputs; empty for one number per row.
    n_background : int
        Number of background rows.
    standard_errors : ndarray of shape (n, d) or (n, d, q), or None
        Standard errors from the draws of background rows and orders; None if exact.

    Examples
    --------
    For figures of the package shap::

        shap.Explanation(e.contributions, e.base_values, e.data,
        feature_names=list(e.columns))
    """

    contributions: np.ndarray
    base_values: np.ndarray
    predictions: np.ndarray
    data: np.ndarray
    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    n_background: int
    standard_errors: np.ndarray | None

    def __repr__(self) -> str:
        n, d = self.data.shape
        parts = [f"{n:,} rows", f"{d} columns"]
        if self.outputs:
            parts.append(f"{len(self.outputs)} outputs")
        parts.append(f"{self.n_background} background rows")
        if self.standard_errors is None:
            parts.append("exact")
        return f"Explanation({', '.join(parts)})"

    def of_first_output(self) -> Explanation:
        errors = self.standard_errors
        if errors is not None:
            errors = errors[..., 0]
        return replace(
            self,
            contributions=self.contributions[..., 0],
            base_values=self.base_values[..., 0],
            predictions=self.predictions[..., 0],
            standard_errors=errors,
        )


class Contributions(NamedTuple):
    """Contributions of columns, and predictions for new and for background rows."""

    values: np.ndarray
    errors: np.ndarray | None
    by_row: np.ndarray
    by_background: np.ndarray

    def of_other_class(self) -> Contributions:
        """Exchange two outputs, whose errors are equal, or negate one."""
        exchanged: Callable[[np.ndarray], Any] = np.negative
        if self.by_row.shape[1] > 1:
            exchanged = partial(np.flip, axis=-1)
        return Contributions(
            exchanged(self.values),
            self.errors,
            exchanged(self.by_row),
            exchanged(self.by_background),
        )

    def explanation(
        self, data: np.ndarray, columns: tuple[str, ...], outputs: tuple[str, ...]
    ) -> Explanation:
        """Convert to an `Explanation`, without an output axis if `outputs` is empty."""
        base_values = np.broadcast_to(
            self.by_background.mean(axis=0), self.by_row.shape
        ).copy()
        explanation = Explanation(
            contributions=self.values,
            base_values=base_values,
            predictions=self.by_row,
            data=data,
            columns=columns,
            outputs=outputs,
            n_background=len(self.by_background),
            standard_errors=self.errors,
        )
        if outputs:
            return explanation
        return explanation.of_first_output()


@dataclass(frozen=True, eq=False)
class CompositeRows:
    """Rows that mix columns of an explained row and of a background row.

    `groups` are the positions of each column's features.
    """

    background: np.ndarray
    groups: Sequence[slice]

    @property
    def n_columns(self) -> int:
        return len(self.groups)

    def of_features(self, of_columns: np.ndarray) -> np.ndarray:
        """Repeat the value of each column for its features, (..., f)."""
        widths = [group.stop - group.start for group in self.groups]
        return np.repeat(of_columns, widths, axis=-1)

    def differing(self, X: np.ndarray) -> np.ndarray:
        """Return a mask of columns in which X and background differ, (n, B, d)."""
        differs = np.empty((len(X), len(self.background), self.n_columns), dtype=bool)
        for column, group in enumerate(self.groups):
            differs[:, :, column] = (
                X[:, None, group] != self.background[:, group]
            ).any(axis=2)
        return differs

    def chunks(self, n_rows: int, n_outputs: int, n_subsets: int) -> list[slice]:
        """Divide the explained rows into slices whose composite rows fit in memory."""
        values_per_row = (
            len(self.background) * n_subsets * max(self.background.shape[1], n_outputs)
        )
        step = max(1, CHUNK_VALUES // values_per_row)
        return [
            slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)
        ]


def column_slices(table: TableEncoding | None, n_features: int) -> list[slice]:
    """Return the positions of each column's features."""
    if table is not None:
        return [features for _, features in table.places]
    return [slice(feature, feature + 1) for feature in range(n_features)]


def cells_of(X: Any, table: TableEncoding | None) -> np.ndarray:
    """Return the values of an array, or the cells of a table, (n, d)."""
    if table is None or not is_table(X):
        return np.asarray(X, dtype=np.float64)
    return column_cells(read_columns(X, table.names))


def column_cells(columns: Mapping[str, Column]) -> np.ndarray:
    """Return the columns as an array of numbers or objects, (n, d)."""
    if all(column.kind == "number" for column in columns.values()):
        return np.column_stack([column.values for column in columns.values()])
    return np.column_stack(
        [column.values.astype(object) for column in columns.values()]
    )


def contributions_of(
    predict: Predict,
    predict_in_single: Predict,
    X: np.ndarray,
    rows: CompositeRows,
    n_permutations: int,
    seed: int,
    products: ProductScores | None = None,
) -> Contributions:
    """Return Shapley values, exact if fast, otherwise estimated from random column orders.

    `products` are the predictions if product kernels determine them.
    """
    by_row = predict(X)
    by_background = predict(rows.background)
    if products is not None and products.is_fast(rows.n_columns):
        values = products.values_of_subsets(X, rows.background, rows.groups)
        # With predictions, contributions add up without cancellation errors.
        values[:, -1] = values[:, 0] + by_row - by_background.mean(axis=0)
        values = np.einsum(
            "js,nsq->njq", _shapley_weights(_subsets(rows.n_columns)), values
        )
        return Contributions(values, None, by_row, by_background)
    if is_enumerated(rows.n_columns, n_permutations):
        values = exact_contributions(predict, by_row, by_background, X, rows)
        return Contributions(values, None, by_row, by_background)
    errors_in_single = np.abs(predict_in_single(rows.background) - by_background).max(
        axis=0
    )
    if (errors_in_single <= SINGLE_PRECISION_ERROR * by_background.std(axis=0)).all():
        predict = predict_in_single
    values, errors = sampled_contributions(
        predict, by_row, by_background, X, rows, n_permutations, seed
    )
    return Contributions(values, errors, by_row, by_background)


def is_enumerated(d: int, n_permutations: int) -> bool:
    """Return whether Shapley values of d columns are exact, from all subsets."""
    return 2**d <= max(MOST_SUBSETS, 2 * n_permutations * (d - 1) + 2)


def exact_contributions(
    predict: Predict,
    by_row: np.ndarray,
    by_background: np.ndarray,
    X: np.ndarray,
    rows: CompositeRows,
) -> np.ndarray:
    r"""Return Shapley values from all subsets of the columns, shape (n, d, q).

    .. math:: \phi_j = \sum_{S \not\ni j} \frac{|S|! \, (d - |S| - 1)!}{d!} \, (v(S \cup j) - v(S))

    where v(S) is the mean prediction with the columns S of the explained row.
    """
    subsets = _subsets(rows.n_columns)
    weights = _shapley_weights(subsets)
    takes_row = rows.of_features(subsets)
    contributions = np.empty((len(X), rows.n_columns, by_row.shape[1]))
    n_outputs = by_row.shape[1]
    for chunk in rows.chunks(len(X), n_outputs, len(subsets)):
        n_rows = chunk.stop - chunk.start
        values = np.empty((n_rows, len(subsets), n_outputs))
        values[:, 0] = by_background.mean(axis=0)
        values[:, -1] = by_row[chunk]
        if len(subsets) > 2:
            composites = np.where(
                takes_row[1:-1], X[chunk, None, None], rows.background[:, None]
            )
            predictions = predict(composites.reshape(-1, X.shape[1]))
            by_pair = predictions.reshape(
                n_rows, len(rows.background), len(subsets) - 2, n_outputs
            )
            values[:, 1:-1] = by_pair.mean(axis=1)
        contributions[chunk] = np.einsum("js,nsq->njq", weights, values)
    return contributions


def _subsets(d: int) -> np.ndarray:
    return np.array(list(product([False, True], repeat=d)))


def _shapley_weights(subsets: np.ndarray) -> np.ndarray:
    d = subsets.shape[1]
    sizes = subsets.sum(axis=1)
    weights = np.empty((d, len(subsets)))
    for column in range(d):
        for position, size in enumerate(sizes.tolist()):
            has_column = subsets[position, column]
            n_before = size - has_column
            weight = factorial(n_before) * factorial(d - n_before - 1) / factorial(d)
            weights[column, position] = weight if has_column else -weight
    return weights


def sampled_contributions(
    predict: Predict,
    by_row: np.ndarray,
    by_background: np.ndarray,
    X: np.ndarray,
    rows: CompositeRows,
    n_permutations: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return estimated Shapley values and their standard errors, both (n, d, q).

    Every second order reverses the order before; pairs of orders are exact without
    interactions of three columns.
    """
    n_background = len(rows.background)
    orders = _orders(
        rows.n_columns, n_background * n_permutations, np.random.default_rng(seed)
    )
    orders = orders.reshape(n_background, n_permutations, rows.n_columns)
    contributions = np.empty((len(X), rows.n_columns, by_row.shape[1]))
    errors = np.full_like(contributions, np.nan)
    for chunk in rows.chunks(len(X), by_row.shape[1], rows.n_columns + 1):
        total = np.zeros(
            (chunk.stop - chunk.start, n_background, *contributions.shape[1:])
        )
        for permutation in range(n_permutations):
            total += _changes(
                predict,
                by_row[chunk],
                by_background,
                X[chunk],
                rows,
                orders[:, permutation],
            )
        changes = total / n_permutations
        contributions[chunk] = changes.mean(axis=1)
        if n_background > 1:
            errors[chunk] = changes.std(axis=1, ddof=1) / np.sqrt(n_background)
    return contributions, errors


def _orders(d: int, n_orders: int, rng: np.random.Generator) -> np.ndarray:
    """Return random orders of columns, each followed by its reverse."""
    drawn = rng.permuted(np.tile(np.arange(d), (-(-n_orders // 2), 1)), axis=1)
    return np.stack([drawn, drawn[:, ::-1]], axis=1).reshape(-1, d)[:n_orders]


def _changes(
    predict: Predict,
    by_row: np.ndarray,
    by_background: np.ndarray,
    X: np.ndarray,
    rows: CompositeRows,
    orders: np.ndarray,
) -> np.ndarray:
    """Return the change by each column, (n, B, d, q), for B orders."""
    d = rows.n_columns
    ranks = np.argsort(orders, axis=1)
    after_step = ranks[:, None, :] <= np.arange(d)[:, None]
    takes_row = rows.of_features(after_step)  # shape (B, d, f)
    differs = np.take_along_axis(rows.differing(X), orders[None], axis=2)
    n_changed = differs.cumsum(axis=2)
    is_complete = n_changed == n_changed[:, :, -1:]
    row, background, step = np.nonzero(differs & ~is_complete)
    values = np.empty((len(X), len(orders), d + 1, by_row.shape[1]))
    values[:, :, 0] = by_background
    if len(row):
        takes = takes_row[background, step]
        composites = np.where(takes, X[row], rows.background[background])
        values[row, background, step + 1] = predict(composites)
    last_evaluated = np.zeros(values.shape[:3], dtype=np.intp)
    last_evaluated[row, background, step + 1] = step + 1
    np.maximum.accumulate(last_evaluated, axis=2, out=last_evaluated)
    values = np.take_along_axis(values, last_evaluated[..., None], axis=2)
    after_steps = values[:, :, 1:]
    np.copyto(after_steps, by_row[:, None, None], where=is_complete[..., None])
    changes = np.diff(values, axis=2)
    return np.take_along_axis(changes, ranks[None, :, :, None], axis=2)
