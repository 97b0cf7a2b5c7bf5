"""Base classes of predictors, their training sets, and predictors fitted for several C."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from ..base import Parameterized, report_progress
from ..centering import Centering
from ..engine.combination import CombinedGram
from ..engine.workers import RowSource, Threads, Workers
from ..families.base import Rows, move
from ..learned_kernel import LearnedKernel, LinearScores, checked_rows
from ..registry import CLASSIFIERS, PREDICTORS
from ..solvers.conjugate_gradients import Progress, ShiftedSolutions
from ..targets import Target, Task
from ..validation import positive, whole_number
from ..weights import weights_of_rows
from .calibration import class_scores, held_out_splits, pair_votes, votes_with_sums

MOST_FOLD_ROWS = 10_000
"""Most rows for which all folds are held out, not only one."""

DEFAULTS: dict[Task, str] = {"classification": "svm", "regression": "krr"}
"""Exact predictors of ``auto`` for learners without their own."""


@dataclass(frozen=True)
class TrainingSet:
    """Input of a predictor's fit: learned kernel, training rows and sample weights.

    Attributes
    ----------
    kernel : LearnedKernel
        Learned kernel, possibly learned on other rows.
    X : ndarray or CSR matrix of shape (n, d)
        All rows.
    positions : ndarray of int of shape (m,)
        Positions of the rows in `X`.
    origin : ndarray of shape (d,)
        Row to subtract from rows of `X`.
    rows : ndarray of int of shape (m,)
        Positions of the rows in the data set.
    sample_weight : ndarray of shape (m,) or None
        Weights of the rows.
    own : bool
        Whether the kernel was learned on exactly these rows.
    workers : Workers
        Backend that executes passes over the rows.
    progress : callable or None
        Function of the step and the largest residual.
    """

    kernel: LearnedKernel
    X: Rows
    positions: np.ndarray
    origin: np.ndarray
    rows: np.ndarray
    sample_weight: np.ndarray | None
    own: bool
    workers: Workers
    progress: Progress | None = None

    @classmethod
    def of(
        cls,
        kernel: LearnedKernel,
        X: Rows | None,
        rows: np.ndarray,
        workers: Workers | None = None,
        progress: Progress | None = None,
    ) -> TrainingSet:
        """Return the training set of `rows`; X may be None if the kernel was learned on them."""
        if workers is None:
            workers = Threads()
        weights = kernel.sample_weight
        if len(rows) == len(kernel.rows) and bool((rows == kernel.rows).all()):
            origin = np.zeros(kernel.X.shape[1])
            return cls(
                kernel,
                kernel.X,
                np.arange(len(rows)),
                origin,
                rows,
                weights,
                True,
                workers,
                progress,
            )
        if X is None or weights is not None:
            raise ValueError(
                f"the kernel was learned on {len(kernel.rows)} rows, and {len(rows)} others train the predictor; give "
                "X, of rows without weights."
            )
        return cls(kernel, X, rows, kernel.origin, rows, None, False, workers, progress)

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @cached_property
    def source(self) -> RowSource:
        """Training rows minus the origin, as the workers read them."""
        return self.workers.scatter_rows(
            self.X, None if self.own else self.positions, self.origin
        )

    def take(self, selected: np.ndarray | None = None) -> tuple[Rows, np.ndarray]:
        """Return selected training rows minus the origin, and data-set positions."""
        if selected is None:
            selected = np.arange(self.n_rows)
        return move(self.X[self.positions[selected]], self.origin), self.rows[selected]

    def subset(self, selected: np.ndarray) -> TrainingSet:
        return replace(
            self,
            positions=self.positions[selected],
            rows=self.rows[selected],
            sample_weight=weights_of_rows(self.sample_weight, selected),
            own=False,
        )

    @property
    def shares(self) -> np.ndarray:
        """Weight of each training row in the mean that centering subtracts, (m,)."""
        return self.kernel.centering.shares(self.n_rows, self.sample_weight)

    def whole_kernel(self) -> LearnedKernel:
        """Return the learned kernel, expanded and centered on all training rows."""
        if self.own:
            return self.kernel
        gram = CombinedGram(self.kernel.combination, self.source, self.workers)
        return self.kernel_with_means(gram.matvec(self.shares[:, None])[:, 0])

    def kernel_with_means(self, row_means: np.ndarray) -> LearnedKernel:
        """Return the learned kernel over all training rows, given its row means, (m,)."""
        X, rows = self.take()
        return replace(
            self.kernel,
            X=X,
            rows=rows,
            row_means=row_means,
            sample_weight=self.sample_weight,
        )


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Predictors fitted on one kernel, one per value of C.

    Attributes
    ----------
    target : Target
        Type and classes of the target, without rows.
    dual : ndarray of shape (L, m, q)
        Dual coefficients, one column per output, class, or pair of classes; a single
        column for two classes.
    intercept : ndarray of shape (L, q)
        Intercepts of the scores.
    kernel : LearnedKernel or None
        Kernel over the training rows or landmarks;
        ``kernel.cross_gram(X) @ dual + intercept`` are the scores.
    pairs_of : ndarray of int or None
        Classes with one column per pair, as integers.
    notes : tuple of str
        Messages about the fit, for a log.
    solutions : ShiftedSolutions or None
        Solutions of conjugate gradients, with their residuals.
    held_out : callable or None
        For a single C, function that returns the positions of held-out training rows
        and their scores, shape (n, q).
    """

    target: Target
    dual: np.ndarray
    intercept: np.ndarray
    kernel: LearnedKernel | None = None
    pairs_of: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    solutions: ShiftedSolutions | None = None
    held_out: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", self.target.take([]))
        object.__setattr__(
            self,
            "intercept",
            np.broadcast_to(self.intercept, (len(self), self.dual.shape[2])),
        )

    def __len__(self) -> int:
        return len(self.dual)

    def coefficients(self, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients, (m, q), and intercepts, (q,), for one value of C."""
        return self.dual[position], self.intercept[position]

    def scores(self, X_new: Any) -> np.ndarray:
        """Return decision values for each value of C, shape (L, n, q)."""
        assert self.kernel is not None
        scores = self._scores.of(checked_rows(self.kernel.X, X_new))
        return scores.reshape(len(scores), len(self), -1).transpose(1, 0, 2)

    @cached_property
    def _scores(self) -> LinearScores:
        assert self.kernel is not None
        return LinearScores(
            self.kernel,
            np.concatenate(self.dual, axis=1),
            np.concatenate(self.intercept),
        )

    def predict(self, X_new: Any) -> np.ndarray:
        """Return predictions, with classes as integers, one array row per value of C."""
        return self.decode(self.scores(X_new))

    def predict_from(self, K_cross: np.ndarray) -> np.ndarray:
        """Return predictions from a cross-Gram matrix, one array row per value of C."""
        return self.decode(K_cross @ self.dual + self.intercept[:, None])

    def decode(self, scores: np.ndarray) -> np.ndarray:
        """Convert decision values, shape (L, n, q), to predictions."""
        classes = self.pairs_of
        if classes is None:
            return self.target.decode(scores)
        if len(classes) == 2:
            return classes[(scores[..., 0] > 0).astype(np.intp)]
        votes, _ = pair_votes(scores, len(classes))
        return classes[votes.argmax(axis=-1)]

    def class_scores(self, X_new: Any) -> list[np.ndarray]:
        """Return decision values per class, (n,) or (n, n_classes), for each value of C.

        Classes without a training row have the score -1.
        """
        n_classes = len(self.target.classes)
        path_scores = self.scores(X_new)
        if self.pairs_of is None or len(self.pairs_of) == n_classes:
            return [
                class_scores(scores, n_classes, self.pairs_of is not None)
                for scores in path_scores
            ]
        return [
            self._scores_of_all_classes(scores, n_classes) for scores in path_scores
        ]

    def _scores_of_all_classes(
        self, pair_scores: np.ndarray, n_classes: int
    ) -> np.ndarray:
        assert self.pairs_of is not None
        scores = np.full((len(pair_scores), n_classes), -1.0)
        scores[:, self.pairs_of] = votes_with_sums(pair_scores, len(self.pairs_of))
        return scores


class Predictor(Parameterized, ABC):
    """Base class of predictors that are fitted on a learned kernel.

    Attributes
    ----------
    name : str
        Name in tables, reports and configurations.
    summary : str
        Description for help pages.
    tasks : tuple of str
        Supported tasks.
    by_rows : bool
        Whether the predictor never forms the Gram matrix of all training rows.
    one_vs_one : bool
        Whether more than two classes are handled one-vs-one.
    on_landmarks : bool
        Whether predictions use landmarks, a subset of the training rows.
    loss : str
        Loss on the training rows, such as "squared".
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression")
    by_rows: ClassVar[bool] = False
    one_vs_one: ClassVar[bool] = False
    on_landmarks: ClassVar[bool] = False
    loss: str

    def candidates(self) -> dict[str, Predictor]:
        """Return the predictors that may be selected, with their options, by name."""
        return {self.name: self}

    def choose(self, problem: Any) -> PredictorChoice:
        """Return the predictor to use for a `PredictionProblem`, and the reason."""
        self.check(problem.task)
        return PredictorChoice(self, "")

    @abstractmethod
    def fit(
        self,
        training: TrainingSet,
        target: Target,
        grid: Sequence[float],
        *,
        fine: bool = False,
    ) -> RegularizationPath:
        """Return predictors fitted on the training rows, one per value of C.

        Parameters
        ----------
        training : TrainingSet
            Learned kernel and m training rows.
        target : Target
            Target of the training rows.
        grid : sequence of float
            Values of C (or 1 / alpha) for a kernel with unit mean diagonal, ascending.
        fine : bool, default False
            Whether to fit to high precision and, for a single C, provide held-out
            scores.

        Returns
        -------
        path : RegularizationPath
            Fitted predictors.
        """

    def check(self, task: Task) -> None:
        """Raise ValueError for an unsupported task or an invalid option."""
        if task not in self.tasks:
            suitable = [
                name
                for name in PREDICTORS
                if name not in CLASSIFIERS or task == "classification"
            ]
            raise ValueError(
                f"predictor {self.name!r} does not support {task}. Use one of {', '.join(suitable)}."
            )
        for name, minimum in (("n_components", 2), ("random_state", 0)):
            value = getattr(self, name, None)
            if value is not None:
                whole_number(name, value, minimum)
        if hasattr(self, "memory"):
            positive("memory", self.memory)
        tol = getattr(self, "tol", None)
        if tol is not None and not 0 < tol < 1:
            raise ValueError(f"tol must be between 0 and 1, got {tol}.")


@dataclass(frozen=True)
class PredictorChoice:
    """A predictor and the reason for its choice.

    Attributes
    ----------
    predictor : Predictor
        The chosen predictor.
    reason : str
        One sentence; empty if the user named the predictor.
    """

    predictor: Predictor
    reason: str


class ExactPredictor(Predictor):
    """Base class of predictors that form the Gram matrix of all training rows."""

    @abstractmethod
    def fit_matrix(
        self,
        K: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
        fine: bool = False,
    ) -> RegularizationPath:
        """Return predictors fitted on a Gram matrix with unit mean diagonal."""

    def fit(
        self,
        training: TrainingSet,
        target: Target,
        grid: Sequence[float],
        *,
        fine: bool = False,
    ) -> RegularizationPath:
        """Return predictors fitted on the Gram matrix, made positive semi-definite."""
        kernel = training.whole_kernel()
        K, cross_gram_factor = usable_gram(kernel)
        weights = kernel.sample_weight
        centering = kernel.centering
        path = self.fit_matrix(K, target, grid, weights, centering, fine)

        def scores(held_out: np.ndarray, others: np.ndarray) -> np.ndarray:
            K_others = K[np.ix_(others, others)]
            path_of_others = self.fit_matrix(
                K_others,
                target.take(others),
                grid,
                weights_of_rows(weights, others),
                centering,
                fine,
            )
            dual, intercept = path_of_others.coefficients()
            return np.asarray(K[np.ix_(held_out, others)] @ dual + intercept)

        held_out = None
        if fine and len(grid) == 1:
            held_out = partial(held_out_scores, training, target, scores)
        duals = np.stack([np.dot(cross_gram_factor, dual) for dual in path.dual])
        return replace(path, kernel=kernel, dual=duals, held_out=held_out)


def usable_gram(kernel: LearnedKernel) -> tuple[np.ndarray, np.ndarray | float]:
    """Return the positive semi-definite Gram matrix to fit on, and a factor of cross-Gram matrices.

    The mean diagonal is one unless the kernel was learned with a C.
    ``np.dot(kernel.cross_gram(X), factor)`` is the cross-Gram matrix of rows X.
    """
    K = kernel.gram()
    weights = kernel.sample_weight
    projection = None
    if kernel.indefinite:
        K, projection = _positive_part(K, weights)
    mean_diagonal = 1.0
    if kernel.C is None:
        if weights is None:
            mean_diagonal = float(np.trace(K) / len(K))
        else:
            mean_diagonal = float(np.average(K.diagonal(), weights=weights))
    K /= mean_diagonal
    if projection is None:
        return K, 1.0 / mean_diagonal
    return K, projection / mean_diagonal


def _positive_part(
    K: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive semi-definite part, and the projection of rows."""
    root = np.ones(len(K))
    if weights is not None:
        root = np.sqrt(weights)
        K = K * root * root[:, None]
    eigenvalues, Q = np.linalg.eigh(K)
    is_positive = eigenvalues > 0
    Q = Q[:, is_positive]
    projection = (Q * root[:, None]) @ (Q / root[:, None]).T
    Q /= root[:, None]
    return (Q * eigenvalues[is_positive]) @ Q.T, projection


def held_out_scores(
    training: TrainingSet,
    target: Target,
    scores: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return held-out rows, and their decision values by predictors fitted on the others.

    ``scores(held_out, others)`` fits a predictor on the other rows.
    """
    splits = held_out_splits(training.take()[0], target)
    if not splits:
        raise ValueError(
            "X must hold different rows of a class, of which some are held out for probabilities, got only equal ones; "
            "set probability or intervals to False."
        )
    if len(target) > MOST_FOLD_ROWS:
        is_ordered = target.row_groups is not None and target.row_groups.ordered
        splits = splits[-1:] if is_ordered else splits[:1]
    scores_of_splits = []
    for others, held_out in splits:
        report_progress(
            f"fitting {len(others):,} rows for scores of {len(held_out):,} held-out rows"
        )
        scores_of_splits.append(scores(held_out, others))
    return np.concatenate([held_out for _, held_out in splits]), np.concatenate(
        scores_of_splits
    )
