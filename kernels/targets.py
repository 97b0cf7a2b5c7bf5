"""Targets: labels and numbers as matrices, and decoding of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, get_args

import numpy as np

from .base import Value
from .centering import mean_over
from .families.base import drawn_rows
from .row_groups import RowGroups
from .validation import require_one_of
from .weights import near_one

Task = Literal["classification", "regression"]

Labels = Literal["text", "integer", "boolean"]

FEW_VALUES = 20

LEAST_CLASS_ROWS = 5
"""Fewest drawn rows of a class that has these."""

_LABELS: dict[str, Labels] = {"i": "integer", "u": "integer", "b": "boolean"}
"""Kind of labels by kind of dtype; others are text."""


def task_of(y: np.ndarray) -> Task:
    """Return a target's default task, "classification" or "regression".

    It is classification for text, Booleans and one column of few whole numbers.
    """
    if y.dtype.kind not in "iuf":
        return "classification"
    if y.ndim > 1:
        return "regression"
    if all_whole(y) and len(np.unique(y)) <= FEW_VALUES:
        return "classification"
    return "regression"


def all_whole(y: np.ndarray) -> bool:
    """Return whether all numbers are integers, checked in blocks to save memory."""
    size = 1 << 16
    for start in range(0, len(y), size):
        part = y[start : start + size]
        if not (part == np.round(part)).all():
            return False
    return True


@dataclass(frozen=True, eq=False, repr=False)
class Target(Value):
    """Target values with their task, class names and row groups."""

    task: Task
    values: np.ndarray  # numbers, or positions in `classes`
    classes: tuple[str, ...] = ()  # names; empty for regression
    labels: Labels = "text"  # type of the original labels
    row_groups: RowGroups | None = None  # respected by choices

    @classmethod
    def of(cls, y: np.ndarray, task: Task | None = None) -> Target:
        """Convert labels or numbers to a target; by default, infer the task."""
        y = np.asarray(y)
        if task is not None:
            require_one_of("task", task, get_args(Task), " or None")
        if (task or task_of(y)) == "regression":
            if y.dtype.kind not in "iufb":
                raise ValueError(
                    f"y must be numeric for regression, got {y.dtype}; use task='classification'."
                )
            return cls("regression", y.astype(np.float64))
        if y.ndim != 1:
            raise ValueError(
                f"y must be one column of labels for classification, got shape {y.shape}."
            )
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y must hold at least two classes, got only {classes.tolist()}."
            )
        names = tuple(str(label) for label in classes)
        return cls("classification", codes, names, _LABELS.get(y.dtype.kind, "text"))

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: np.ndarray | Sequence[int]) -> Target:
        """Return the target of some rows, with the same classes."""
        row_groups = self.row_groups
        if row_groups is not None:
            row_groups = row_groups.take(rows)
        return replace(self, values=self.values[rows], row_groups=row_groups)

    @property
    def group_numbers(self) -> np.ndarray | None:
        if self.row_groups is None:
            return None
        return self.row_groups.numbers

    def sample(self, n_rows: int, seed: int) -> np.ndarray:
        """Draw at most `n_rows` rows, a few of each class; return ascending positions."""
        if self.row_groups is not None:
            rows = self.row_groups.sample(n_rows, seed)
        else:
            rows = drawn_rows(len(self), n_rows, seed)
        codes = self._strata(rows)
        if not _lacks_rare_rows(codes, rows):
            return rows
        shuffled = np.random.default_rng(seed).permutation(len(self))
        is_drawn = np.isin(shuffled, rows)
        order = np.concatenate([shuffled[is_drawn], shuffled[~is_drawn]])
        return np.sort(_rare_first(codes, order, len(rows))[: len(rows)])

    def rare_first(self, order: np.ndarray, n_rows: int) -> np.ndarray:
        """Return an order of the rows whose first `n_rows` have a few of each class."""
        codes = self._strata(order[:n_rows])
        if not _lacks_rare_rows(codes, order[:n_rows]):
            return order
        return _rare_first(codes, order, n_rows)

    def _strata(self, drawn: np.ndarray) -> np.ndarray:
        """Return classes; for numbers, 1 if unlike nearly all drawn rows."""
        if self.task == "classification":
            return self.values
        is_unlike = (np.median(self.Y[drawn], axis=0) != self.Y).any(axis=1)
        if is_unlike[drawn].sum() >= LEAST_CLASS_ROWS:
            return np.zeros(len(self), dtype=np.intp)
        return is_unlike.astype(np.intp)

    @property
    def Y(self) -> np.ndarray:
        """Target matrix, shape (m, q): numbers, -1 and 1, or class indicators."""
        if self.task == "regression":
            if self.values.ndim == 2:
                return self.values
            return self.values[:, None]
        if len(self.classes) == 2:
            return np.where(self.values == 1, 1.0, -1.0)[:, None]
        return np.eye(len(self.classes))[self.values]

    def decode(self, scores: np.ndarray) -> np.ndarray:
        """Convert decision values, (..., n, q), to predicted numbers or class positions."""
        if self.task == "regression" and self.values.ndim == 2:
            return scores
        if self.task == "regression":
            return scores[..., 0]
        if len(self.classes) == 2:
            return (scores[..., 0] > 0).astype(np.intp)
        return scores.argmax(axis=-1)

    @property
    def given(self) -> np.ndarray:
        """Target values as the user gave them: labels or numbers."""
        if self.task == "regression":
            return self.values
        classes = np.asarray(self.classes)
        if self.labels == "integer":
            classes = as_integers(list(map(int, self.classes)))
        elif self.labels == "boolean":
            classes = classes == "True"
        return classes[self.values]

    def error(
        self, predictions: np.ndarray, sample_weight: np.ndarray | None = None
    ) -> float:
        """Return the predictions' weighted misclassification rate; for regression, the RMSE."""
        if sample_weight is not None:
            sample_weight = near_one(sample_weight)
        if self.task == "classification":
            return float(np.average(predictions != self.values, weights=sample_weight))
        squares = (predictions - self.values) ** 2
        if sample_weight is not None:
            squares = mean_over(squares, sample_weight)
        return float(np.sqrt(np.mean(squares)))


def as_integers(values: Sequence[int]) -> np.ndarray:
    """Return integers as int64, or as uint64 if one needs it."""
    largest_signed = np.iinfo(np.int64).max
    if max(values) > largest_signed:
        return np.array(values, dtype=np.uint64)
    return np.array(values, dtype=np.int64)


def class_pairs(codes: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the rows and signs of each pair of classes.

    The sign is 1 for the second class, otherwise -1.
    """
    pairs = []
    for first, second in combinations(np.unique(codes).tolist(), 2):
        rows = np.flatnonzero((codes == first) | (codes == second))
        pairs.append((rows, np.where(codes[rows] == second, 1.0, -1.0)))
    return pairs


def _lacks_rare_rows(codes: np.ndarray, drawn: np.ndarray) -> bool:
    counts = np.bincount(codes)
    fewest = _fewest_rows(len(drawn), len(counts))
    n_drawn = np.bincount(codes[drawn], minlength=len(counts))
    return bool((n_drawn < np.minimum(counts, fewest)).any())


def _rare_first(codes: np.ndarray, order: np.ndarray, n_rows: int) -> np.ndarray:
    codes = codes[order]
    n_classes = codes.max() + 1
    fewest = _fewest_rows(n_rows, n_classes)
    required = np.concatenate(
        [order[codes == code][:fewest] for code in range(n_classes)]
    )
    return np.concatenate([required, order[~np.isin(order, required)]])


def _fewest_rows(n_drawn: int, n_classes: int) -> int:
    return min(LEAST_CLASS_ROWS, n_drawn // (2 * n_classes))
