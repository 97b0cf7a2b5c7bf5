"""Importances and interactions of columns, measured on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from ..base import Value
from ..column_encoding import TableEncoding
from ..families.base import Rows, distinct_rows, positions_of
from ..learned_kernel import LearnedKernel
from ..learners import KernelSearchLearner, learn_from_rows
from ..predictors import PREDICTORS, Predictor, TrainingSet, as_predictor
from ..predictors.base import ExactPredictor
from ..predictors.calibration import (
    N_FOLDS,
    fit_calibration,
    held_out_splits,
    probabilities,
)
from ..predictors.choice import best_C
from ..row_groups import RowGroups, Split
from ..targets import Target
from ..validation import require_numbers, require_shape
from ..weights import weights_of_rows
from .boosting import BoostingProblem, tree_features, tree_predictions

MOST_ROWS = 2500
"""Most training rows of the models that measure importances."""

MOST_SEARCHED = 1500
"""Most training rows if base kernels are learned again."""

SEARCH_FOLDS = 3
"""Number of folds if base kernels are learned again."""

MOST_TESTED = 500

LEAST_TESTED = 100
"""Fewest tested rows, for many columns."""

MOST_PREDICTIONS = 30_000
"""Number of predictions that limits tested rows and donors."""

MOST_DONORS = 5

BATCH_ROWS = 4096

INTERACTING_COLUMNS = 8
"""Number of most important columns whose pairs are measured."""

MOST_INTERACTIONS = 10


@dataclass(frozen=True, eq=False, repr=False)
class ImportanceRows(Value):
    """Training rows and targets on which importances are measured."""

    positions: np.ndarray  # among the rows of the learned kernel
    values: np.ndarray  # numbers, or positions of classes
    groups: np.ndarray | None = None
    ordered: bool = False
    n_classes: int = 0  # 0 for regression

    @classmethod
    def of(
        cls, kernel: LearnedKernel, rows: np.ndarray, target: Target
    ) -> ImportanceRows:
        """Draw at most `MOST_ROWS` training rows, with their targets."""
        places = positions_of(kernel.rows, rows)
        positions = target.take(places).sample(MOST_ROWS, seed=0)
        drawn = target.take(places[positions])
        row_groups = drawn.row_groups
        n_classes = len(target.classes)
        if row_groups is None:
            return cls(positions, drawn.values, n_classes=n_classes)
        return cls(
            positions, drawn.values, row_groups.numbers, row_groups.ordered, n_classes
        )

    @property
    def target(self) -> Target:
        row_groups = None
        if self.groups is not None:
            row_groups = RowGroups(self.groups, self.ordered)
        if not self.n_classes:
            return Target("regression", self.values, row_groups=row_groups)
        classes = tuple(str(code) for code in range(self.n_classes))
        return Target("classification", self.values, classes, row_groups=row_groups)

    def require_sound(self, n_rows: int) -> None:
        """Raise ValueError for wrong shapes or positions out of range."""
        n = len(self.values)
        require_positions("positions for importances", self.positions, (n,), n_rows)
        if self.groups is not None:
            require_positions("groups for importances", self.groups, (n,))
        if self.n_classes:
            require_positions(
                "classes for importances", self.values, (n,), self.n_classes
            )
        else:
            require_numbers("targets for importances", self.values, self.values.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Importance(Value):
    """Importances of columns, and the largest interactions in descending order.

    `pairs`, (k, 2), are positions of columns.
    """

    relevance: np.ndarray
    pairs: np.ndarray
    interactions: np.ndarray

    def require_sound(self, n_columns: int) -> None:
        """Raise ValueError for wrong shapes or columns out of range."""
        k = len(self.interactions)
        require_numbers("relevance of columns", self.relevance, (n_columns,))
        require_numbers("interactions", self.interactions, (k,))
        require_positions("pairs of interacting columns", self.pairs, (k, 2), n_columns)


def require_positions(
    name: str, positions: np.ndarray, shape: tuple[int, ...], end: int | None = None
) -> None:
    """Raise ValueError unless an array holds integers from 0 to ``end - 1``."""
    require_shape(name, positions, shape)
    is_valid = positions.dtype.kind == "i" and (positions >= 0).all()
    if not is_valid or (end is not None and (positions >= end).any()):
        raise ValueError(
            f"{name} must hold whole numbers from 0 to {end}, got others; fit again."
        )


@dataclass(frozen=True, eq=False)
class ImportanceProblem:
    """Fitted model, and settings to measure importances of its columns."""

    kernel: LearnedKernel
    target: Target  # of the rows at `positions` of the kernel
    positions: np.ndarray
    predictor: str
    C: float | None  # None to select it
    columns: Sequence[np.ndarray]  # features of each column
    table: TableEncoding | None = None
    trees: Any = None
    share: float = 0.0  # weight of the trees
    learner: KernelSearchLearner | None = None  # None to keep the kernel

    def measure(self) -> Importance:
        """Measure importances and interactions of the columns; zero without held-out rows."""
        tested = self._tested_rows()
        if tested is None or tested.constant_loss <= 0:
            n_columns = len(self.columns)
            return Importance(
                np.zeros(n_columns), np.empty((0, 2), dtype=np.intp), np.empty(0)
            )
        affordable = MOST_PREDICTIONS // (len(tested) * len(self.columns))
        n_donors = int(np.clip(affordable, 1, min(MOST_DONORS, len(tested) - 1)))
        relevance = relevance_of(tested, self.columns, n_donors)
        return Importance(relevance, *self._interactions(tested, relevance))

    def _interactions(
        self, tested: TestedRows, relevance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        r"""Return the pairs of columns with the largest interactions, and their values.

        .. math:: s_{jk} = \frac{\sum_i \lVert f(x_i) - f(x_i^{(j)}) - f(x_i^{(k)}) + f(x_i^{(jk)}) \rVert^2}
                  {4 \sum_i \lVert y_i - \bar y \rVert^2}
        """
        top = np.sort(np.argsort(-relevance, kind="stable")[:INTERACTING_COLUMNS])
        pairs = np.array(list(combinations(top.tolist(), 2)), dtype=np.intp)
        pairs = pairs.reshape(-1, 2)  # keeps the shape without pairs
        strengths = np.zeros(len(pairs))
        single_exchanges = tested.exchanges([[self.columns[j]] for j in top], 1)
        alone = dict(zip(top.tolist(), single_exchanges, strict=True))
        jointly = tested.exchanges(
            [[self.columns[j], self.columns[k]] for j, k in pairs], 1
        )
        for p, exchange in enumerate(jointly):
            j, k = pairs[p].tolist()
            changes = (
                tested.changes(exchange)
                - tested.changes(alone[j])
                - tested.changes(alone[k])
            )
            strengths[p] = tested.weighted_sum(changes) / (4.0 * tested.constant_loss)
        largest = np.argsort(-strengths, kind="stable")[:MOST_INTERACTIONS]
        return pairs[largest], strengths[largest]

    def _tested_rows(self) -> TestedRows | None:
        """Return tested rows with held-out models; None without splits."""
        rows = self.target.sample(
            MOST_ROWS if self.learner is None else MOST_SEARCHED, seed=0
        )
        given_target = self.target.take(rows)
        training = TrainingSet.of(self.kernel, None, self.kernel.rows).subset(
            self.positions[rows]
        )
        X = restored_features(training.take()[0], self.kernel.origin)
        target = with_groups(given_target, X)
        splits = self._splits(X, target)
        if not splits:
            return None
        C = self.C
        predictor = self._exact_predictor()
        if C is None:
            C = best_C(training, target, predictor, seed=0)
        models = []
        for others, _ in splits:
            training_of_others = training.subset(others)
            if self.learner is not None:
                training_of_others = self._searched_again(
                    training_of_others, X[others], given_target.take(others)
                )
            models.append(predictor.fit(training_of_others, target.take(others), [C]))
        trees = None
        if self.trees is not None:
            trees = self._held_out_trees(X, target, training.sample_weight, splits)
        tested = np.concatenate([test for _, test in splits])
        split_of_row = np.repeat(
            np.arange(len(splits)), [len(test) for _, test in splits]
        )
        weights = weights_of_rows(training.sample_weight, tested)
        return TestedRows(
            X[tested], target.take(tested), split_of_row, weights, models, trees
        )

    def _searched_again(
        self, training: TrainingSet, X: Rows, target: Target
    ) -> TrainingSet:
        assert self.learner is not None
        options: dict[str, Any] = {
            "normalize": self.kernel.normalize,
            "centering": self.kernel.centering,
        }
        try:
            kernel = learn_from_rows(
                self.learner,
                None,
                X,
                target,
                training.sample_weight,
                C=self.kernel.C or 1.0,
                **options,
            )
        except ValueError:  # such as for a constant target
            return training
        return TrainingSet.of(kernel, None, kernel.rows)

    def _exact_predictor(self) -> Predictor:
        """Return the predictor if exact, else kernel ridge regression."""
        if issubclass(PREDICTORS[self.predictor], ExactPredictor):
            return as_predictor(self.predictor)
        return as_predictor("krr")

    def _splits(self, X: Rows, target: Target) -> list[Split]:
        """Return splits with enough tested rows, the latest first."""
        n_tested = int(
            np.clip(MOST_PREDICTIONS // len(self.columns), LEAST_TESTED, MOST_TESTED)
        )
        splits: list[Split] = []
        n_folds = N_FOLDS if self.learner is None else SEARCH_FOLDS
        for others, test in reversed(held_out_splits(X, target, n_folds)):
            missing = n_tested - sum(len(rows) for _, rows in splits)
            if missing <= 0:
                break
            if len(distinct_rows(X[others])[0]) < 2:
                continue
            drawn = np.random.default_rng(0).permutation(len(test))[:missing]
            splits.append((others, test[np.sort(drawn)]))
        return splits

    def _held_out_trees(
        self,
        X: Rows,
        target: Target,
        weights: np.ndarray | None,
        splits: Sequence[Split],
    ) -> HeldOutTrees:
        """Return trees per split, fitted without its tested rows."""
        X_trees, _ = tree_features(self.table, np.asarray(X))
        problem = BoostingProblem(self.trees, np.asarray(X), X_trees, target, weights)
        trees = [problem.fit(others) for others, _ in splits]
        return HeldOutTrees(trees, self.share, self.table)


def with_groups(target: Target, X: Rows) -> Target:
    """Return the target with row groups; without its own, equal rows form groups."""
    if target.task == "classification" and np.bincount(target.values).max() < N_FOLDS:
        # Groups with few rows per class cannot be divided.
        return replace(target, row_groups=None)
    if target.row_groups is not None:
        return target
    _, which = distinct_rows(X)
    _, first, copies = np.unique(which, return_index=True, return_inverse=True)
    by_appearance = np.argsort(np.argsort(first))
    return replace(target, row_groups=RowGroups(by_appearance[copies]))


def restored_features(X: Rows, origin: np.ndarray) -> Rows:
    """Add the origin to features, and set rounding errors to zero."""
    if sparse.issparse(X) or not origin.any():
        return X
    features = np.asarray(X) + origin
    features[np.abs(features) <= 1e-12 * np.abs(origin)] = 0.0
    return features


@dataclass(frozen=True, eq=False)
class HeldOutTrees:
    """Boosted trees, one model per split, and their weight in predictions."""

    trees: Sequence[Any]
    share: float
    table: TableEncoding | None

    def predict(self, split: int, X: Rows, n_classes: int | None) -> np.ndarray:
        X_trees, _ = tree_features(self.table, np.asarray(X))
        return tree_predictions(self.trees[split], X_trees, n_classes)


@dataclass(frozen=True, eq=False)
class Exchange:
    """Held-out rows with some columns from other rows, and the new predictions."""

    rows: np.ndarray
    predictions: np.ndarray


class ScoringModel(Protocol):
    """Interface of fitted models that score rows, such as `RegularizationPath`."""

    def scores(self, X_new: Rows) -> np.ndarray:
        """Return a regression's predictions, shape (1, n, q)."""

    def class_scores(self, X_new: Rows) -> list[np.ndarray]:
        """Return a list of decision values, (n,) or (n, n_classes)."""


@dataclass(frozen=True, eq=False)
class TestedRows:
    """Held-out rows, and the models that were fitted without them."""

    X: Rows
    target: Target
    split_of_row: np.ndarray  # position of each row's model
    weights: np.ndarray | None
    models: Sequence[ScoringModel]  # each with a single C
    trees: HeldOutTrees | None

    def __len__(self) -> int:
        return len(self.target)

    @cached_property
    def predictions(self) -> np.ndarray:
        """Predictions for the held-out rows before any exchange, (n, q)."""
        return self._predict(np.arange(len(self)), self.X)

    @cached_property
    def target_columns(self) -> np.ndarray:
        """Target values, or one indicator column per class, (n, q)."""
        if self.target.task == "classification":
            return np.eye(len(self.target.classes))[self.target.values]
        return self.target.Y

    @cached_property
    def constant_loss(self) -> float:
        """Total loss of predicting the mean target."""
        mean = np.average(self.target_columns, axis=0, weights=self.weights)
        everyone = np.arange(len(self))
        return float(
            self.losses(
                everyone, np.broadcast_to(mean, self.target_columns.shape)
            ).sum()
        )

    def losses(self, rows: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        """Return the weighted loss of each row: squared error, or Brier score."""
        losses = np.square(self.target_columns[rows] - predictions).sum(axis=1)
        if self.weights is not None:
            losses = losses * self.weights[rows]
        return np.asarray(losses)

    def changes(self, exchange: Exchange) -> np.ndarray:
        """Return how an exchange of column values changes predictions, (n, q)."""
        changes = np.zeros_like(self.predictions)
        changes[exchange.rows] = exchange.predictions - self.predictions[exchange.rows]
        return changes

    def weighted_sum(self, changes: np.ndarray) -> float:
        """Return the sum, weighted by sample, of squared changes of predictions."""
        squares = np.square(changes).sum(axis=1)
        if self.weights is not None:
            squares = squares * self.weights
        return float(squares.sum())

    def exchanges(
        self, columns: Sequence[Sequence[np.ndarray]], n_donors: int
    ) -> Iterator[Exchange]:
        """Yield an exchange of values per group of features in `columns`."""
        donors = self._donors(n_donors)
        batch: list[tuple[np.ndarray, Rows]] = []
        for features in columns:
            batch.append(self._exchanged(np.concatenate(features), donors))
            if sum(len(rows) for rows, _ in batch) >= BATCH_ROWS:
                yield from self._predicted(batch)
                batch = []
        yield from self._predicted(batch)

    def _donors(self, n_donors: int) -> np.ndarray:
        n = len(self)
        order = np.random.default_rng(0).permutation(n)
        donors = np.empty((n_donors, n), dtype=np.intp)
        for shift in range(n_donors):
            donors[shift, order] = np.roll(order, shift + 1)
        return donors

    def _exchanged(
        self, features: np.ndarray, donors: np.ndarray
    ) -> tuple[np.ndarray, Rows]:
        """Return rows that change with donors' features, and changed rows."""
        rows = np.tile(np.arange(len(self)), len(donors))
        values = self.X[:, features]
        new_values = values[donors.ravel()]
        differs = new_values != values[rows]
        has_changed = np.flatnonzero(np.asarray(differs.sum(axis=1)).ravel())
        rows = rows[has_changed]
        if not sparse.issparse(self.X):
            X = self.X[rows]
            X[:, features] = new_values[has_changed]
            return rows, X
        is_exchanged = np.zeros(self.X.shape[1])
        is_exchanged[features] = 1.0
        unchanged = self.X[rows].multiply(1.0 - is_exchanged)
        exchanged = self.X[donors.ravel()[has_changed]].multiply(is_exchanged)
        return rows, type(self.X)(unchanged + exchanged)

    def _predicted(
        self, batch: Sequence[tuple[np.ndarray, Rows]]
    ) -> Iterator[Exchange]:
        if not batch:
            return
        parts = [X for _, X in batch]
        if sparse.issparse(self.X):
            X = sparse.vstack(parts, format="csr")
        else:
            X = np.concatenate(parts)
        predictions = self._predict(np.concatenate([rows for rows, _ in batch]), X)
        start = 0
        for rows, _ in batch:
            stop = start + len(rows)
            yield Exchange(rows, predictions[start:stop])
            start = stop

    def _predict(self, rows: np.ndarray, X: Rows) -> np.ndarray:
        """Return predictions for changed rows X by held-out models."""
        by_kernel = self._scores(rows, X)
        n_classes = None
        if self.target.task == "classification":
            n_classes = len(self.target.classes)
            by_kernel = probabilities(by_kernel, self._calibration)
        if self.trees is None:
            return by_kernel
        by_trees = np.empty_like(by_kernel)
        for split, selected in self._by_split(rows):
            by_trees[selected] = self.trees.predict(split, X[selected], n_classes)
        return (1.0 - self.trees.share) * by_kernel + self.trees.share * by_trees

    @cached_property
    def _calibration(self) -> np.ndarray:
        scores = self._scores(np.arange(len(self)), self.X)
        return fit_calibration(scores, self.target.values, self.weights)

    def _scores(self, rows: np.ndarray, X: Rows) -> np.ndarray:
        """Return scores of changed rows, (n, q), or (n,) for two classes."""
        n_classes = len(self.target.classes)
        shape: tuple[int, ...] = (len(rows),)
        if n_classes != 2:
            shape = (len(rows), self.target_columns.shape[1])
        scores = np.empty(shape)
        for split, selected in self._by_split(rows):
            model = self.models[split]
            if n_classes:
                scores[selected] = model.class_scores(X[selected])[0]
            else:
                scores[selected] = model.scores(X[selected])[0]
        return scores

    def _by_split(self, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield splits of the rows, with positions among the rows."""
        splits = self.split_of_row[rows]
        for split in np.unique(splits).tolist():
            yield split, np.flatnonzero(splits == split)


def relevance_of(
    tested: TestedRows, columns: Sequence[np.ndarray], n_donors: int
) -> np.ndarray:
    r"""Return the relative increase of the error for each column with exchanged values.

    .. math:: r_j = \frac{\sum_i \lVert y_i - f(x_i^{(j)}) \rVert^2 - \lVert y_i - f(x_i) \rVert^2}
              {\sum_i \lVert y_i - \bar y \rVert^2}

    f was fitted without row i, and :math:`x_i^{(j)}` has column j of another row.
    """
    rises = np.zeros(len(columns))
    loss = tested.losses(np.arange(len(tested)), tested.predictions)
    exchanges = tested.exchanges([[features] for features in columns], n_donors)
    for j, exchange in enumerate(exchanges):
        rises[j] = (
            tested.losses(exchange.rows, exchange.predictions) - loss[exchange.rows]
        ).sum() / n_donors
    return rises / tested.constant_loss
