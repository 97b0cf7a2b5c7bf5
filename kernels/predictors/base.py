"""What a predictor of the second stage is fitted on, what it is, and what comes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from ..centering import Centering
from ..engine.combination import CombinedGram
from ..engine.workers import RowSource, Threads, Workers
from ..families.base import Rows, move
from ..learned_kernel import LearnedKernel, LinearScores, checked_rows
from ..parameters import Parameterized, positive, whole_number
from ..registry import CLASSIFIERS, PREDICTORS
from ..solvers.conjugate_gradients import Progress, ShiftedSolutions
from ..targets import Target, Task
from .calibration import assign_calibration_folds, class_scores, pair_votes, votes_with_sums

MOST_FOLD_ROWS = 10_000
"""Rows beyond which one fold of them is held out, and not each of five in turn."""

DEFAULTS: dict[Task, str] = {"classification": "svm", "regression": "krr"}
"""What ``auto`` selects on few rows and for a learner without a predictor of its own."""


@dataclass(frozen=True)
class TrainingSet:
    """What predictors are fitted on: a learned kernel, and training rows with their weights.

    Attributes
    ----------
    kernel : LearnedKernel
        Its weights and scales count; it may have been learned on some of the rows.
    X : ndarray or CSR matrix of shape (n, d)
        Rows among which the training rows are; may be mapped from a file.
    positions : ndarray of int of shape (m,)
        Of the training rows in `X`.
    origin : ndarray of shape (d,)
        What rows of `X` are to be moved by.
    rows : ndarray of int of shape (m,)
        Positions of the training rows in the data set.
    sample_weight : ndarray of shape (m,) or None
        Their weights.
    own : bool
        Whether these are the rows that the kernel was learned on, in their order.
    workers : Workers
        Who does the passes.
    progress : callable or None
        Told, by a predictor that iterates, its steps and the largest residual.
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
        """Return a kernel on the training rows of a predictor.

        Parameters
        ----------
        kernel : LearnedKernel
            One with sample weights must have been learned on these rows.
        X : ndarray or CSR matrix of shape (n, d) or None
            The data set; None where the training rows are those that the kernel was learned on.
        rows : ndarray of int of shape (m,)
            Positions of the training rows in it.
        workers : Workers, optional
            By default threads of this process.
        progress : callable, optional
            Told of the steps of predictors that iterate.

        Raises
        ------
        ValueError
            The kernel was learned on other rows, and there is no data set to take the training rows from, or rows have
            weights.
        """
        own = len(rows) == len(kernel.rows) and bool((rows == kernel.rows).all())
        workers, weights = workers or Threads(), kernel.sample_weight
        if own:
            still = np.zeros(kernel.X.shape[1])
            return cls(kernel, kernel.X, np.arange(len(rows)), still, rows, weights, True, workers, progress)
        if X is None or weights is not None:
            raise ValueError(
                f"the kernel was learned on {len(kernel.rows)} rows, and {len(rows)} others train the predictor; give "
                "X, of rows without weights."
            )
        return cls(kernel, X, rows, kernel.origin, rows, None, False, workers, progress)

    @property
    def n_rows(self) -> int:
        """m, the number of training rows."""
        return len(self.rows)

    @property
    def n_features(self) -> int:
        """d, the number of features."""
        return int(self.X.shape[1])

    @cached_property
    def source(self) -> RowSource:
        """The training rows, moved, where the workers find them."""
        return self.workers.scatter_rows(self.X, None if self.own else self.positions, self.origin)

    def take(self, some: np.ndarray | None = None) -> tuple[Rows, np.ndarray]:
        """Return some or all training rows, moved, and their positions in the data set."""
        some = np.arange(self.n_rows) if some is None else some
        return move(self.X[self.positions[some]], self.origin), self.rows[some]

    def subset(self, some: np.ndarray) -> TrainingSet:
        """Return the training set of some of these rows."""
        weights = None if self.sample_weight is None else self.sample_weight[some]
        return replace(
            self, positions=self.positions[some], rows=self.rows[some], sample_weight=weights, own=False
        )  # fmt: skip

    @property
    def shares(self) -> np.ndarray:
        """What each training row counts in the mean that is subtracted of all, shape (m,)."""
        return self.kernel.centering.shares(self.n_rows, self.sample_weight)

    def whole_kernel(self) -> LearnedKernel:
        """Return the kernel over all training rows; one pass over their pairs where it was learned on others."""
        if self.own:
            return self.kernel
        gram = CombinedGram(self.kernel.combination, self.source, self.workers)
        row_means = gram.matvec(self.shares[:, None])[:, 0]
        X, rows = self.take()
        return replace(self.kernel, X=X, rows=rows, row_means=row_means, sample_weight=self.sample_weight)


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Predictors whose scores are linear in one kernel, one per value of C.

    Attributes
    ----------
    target : Target
        What the target is like, for predictions; without rows.
    dual : ndarray of shape (L, m, q)
        Coefficients: one column an output, a class, or a pair of classes; a single one for two classes, above zero for
        the second.
    intercept : ndarray of shape (L, q)
    kernel : LearnedKernel or None
        Over all training rows, or over a few that represent them: ``kernel.cross_gram(X) @ dual + intercept`` are the
        scores. None where predictors are fitted on a matrix alone.
    pairs_of : ndarray of int or None
        Positions of the classes whose pairs have a column each; None where columns are those of the target.
    notes : tuple of str
        What was done, for a log.
    solutions : ShiftedSolutions or None
        How conjugate gradients ended, with the residuals that were reached.
    held_out : callable or None
        Returns positions of training rows, and their scores by predictors that have seen neither them nor their copies,
        shape (n, q); of a single regularization that is fitted for its scores.
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
        object.__setattr__(self, "intercept", np.broadcast_to(self.intercept, (len(self), self.dual.shape[2])))

    def __len__(self) -> int:
        return len(self.dual)

    def coefficients(self, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return dual, shape (m, q), and intercept, shape (q,), at a position of the grid."""
        return self.dual[position], self.intercept[position]

    def scores(self, X_new: Any) -> np.ndarray:
        """Return scores of new rows, one set per value of C, shape (L, n, q)."""
        assert self.kernel is not None
        scores = self._scores.of(checked_rows(self.kernel.X, X_new))
        return scores.reshape(len(scores), len(self), -1).transpose(1, 0, 2)

    @cached_property
    def _scores(self) -> LinearScores:
        """Coefficients for all values of C side by side."""
        assert self.kernel is not None
        return LinearScores(self.kernel, np.concatenate(self.dual, axis=1), np.concatenate(self.intercept))

    def predict(self, X_new: Any) -> np.ndarray:
        """Return predictions for new rows in the terms of the target, one row per value of C."""
        return self.decode(self.scores(X_new))

    def predict_from(self, K_cross: np.ndarray) -> np.ndarray:
        """Return predictions from the kernel between new rows and those of `dual`, one row per value of C."""
        return self.decode(K_cross @ self.dual + self.intercept[:, None])

    def decode(self, scores: np.ndarray) -> np.ndarray:
        """Return predictions from scores of shape (L, n, q); of pairs the class that wins most, the first of equals."""
        classes = self.pairs_of
        if classes is None:
            return self.target.decode(scores)
        if len(classes) == 2:
            return classes[(scores[..., 0] > 0).astype(np.intp)]
        return classes[pair_votes(scores, len(classes))[0].argmax(axis=-1)]

    def class_scores(self, X_new: Any) -> list[np.ndarray]:
        """Return the scores that classes are compared by, one array of shape (n,) or (n, n_classes) per value.

        For two classes, above zero for the second. For more, one column per class, of which the largest is predicted;
        a class without a training row has the score -1, below every other one of a support vector machine.
        """
        n_classes = len(self.target.classes)
        path_scores = self.scores(X_new)
        if self.pairs_of is None or len(self.pairs_of) == n_classes:
            return [class_scores(scores, n_classes, self.pairs_of is not None) for scores in path_scores]
        return [self._scores_of_all_classes(scores, n_classes) for scores in path_scores]

    def _scores_of_all_classes(self, pair_scores: np.ndarray, n_classes: int) -> np.ndarray:
        """Return one column per class from scores of the pairs of those with training rows."""
        assert self.pairs_of is not None
        scores = np.full((len(pair_scores), n_classes), -1.0)
        scores[:, self.pairs_of] = votes_with_sums(pair_scores, len(self.pairs_of))
        return scores


class Predictor(Parameterized, ABC):
    """A predictor on a learned kernel; its parameters are its fields.

    Attributes
    ----------
    name : str
        As tables, reports and configurations call it.
    summary : str
        What it is, for help pages.
    tasks : tuple of str
        The tasks it serves.
    by_rows : bool
        Whether the matrix of all training rows is never formed.
    one_vs_one : bool
        Whether it has one score per pair of classes, where they are more than two.
    on_landmarks : bool
        Whether it expresses predictions in some of the training rows.
    loss : str
        What it minimizes over the training rows, a parameter of some: squared errors, of classes as of numbers, or
        another loss of classes.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression")
    by_rows: ClassVar[bool] = False
    one_vs_one: ClassVar[bool] = False
    on_landmarks: ClassVar[bool] = False
    loss: str

    def candidates(self) -> dict[str, Predictor]:
        """Return the predictors that it may select, with their options, by name."""
        return {self.name: self}

    def choose(self, problem: Any) -> PredictorChoice:
        """Return the predictor for a `choice.PredictionProblem`, and why; `check` is called first.

        By default this one, for no reason.
        """
        self.check(problem.task)
        return PredictorChoice(self, "")

    @abstractmethod
    def fit(
        self, training: TrainingSet, target: Target, grid: Sequence[float], *, fine: bool = False
    ) -> RegularizationPath:
        """Fit on training rows, once per value of C.

        Parameters
        ----------
        training : TrainingSet
            A learned kernel and m training rows.
        target : Target
            Of the training rows.
        grid : sequence of float
            Values of C, ascending: C, or one over the ridge, for a kernel of mean diagonal one.
        fine : bool, default False
            Whether scores are to have all digits that are read, and those of rows that are held out are wanted of a
            single regularization; a comparison needs errors alone.
        """

    def check(self, task: Task) -> None:
        """Raise ValueError for a task that is not served, or an option that is out of its range."""
        if task not in self.tasks:
            fitting = [name for name in PREDICTORS if name not in CLASSIFIERS or task == "classification"]
            raise ValueError(f"predictor {self.name!r} does not support {task}. Use one of {', '.join(fitting)}.")
        for name, least in (("landmarks", 2), ("seed", 0)):
            if (value := getattr(self, name, None)) is not None:
                whole_number(name, value, least)
        if hasattr(self, "memory"):
            positive("memory", self.memory)
        if (tolerance := getattr(self, "tolerance", None)) is not None and not 0 < tolerance < 1:
            raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}.")


@dataclass(frozen=True)
class PredictorChoice:
    """A predictor, and why it was chosen.

    Attributes
    ----------
    predictor : Predictor
    reason : str
        One sentence; empty where a user named the predictor.
    """

    predictor: Predictor
    reason: str


class ExactPredictor(Predictor):
    """A predictor on the Gram matrix of all training rows, which is formed: O(m^2) memory."""

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
        """Fit on a Gram matrix of mean diagonal one, centered, or else without intercept."""

    def fit(
        self, training: TrainingSet, target: Target, grid: Sequence[float], *, fine: bool = False
    ) -> RegularizationPath:
        """Fit on the matrix; a kernel with negative weights is replaced by its positive semi-definite part."""
        kernel = training.whole_kernel()
        K, new_rows = usable_gram(kernel)
        weights, centering = kernel.sample_weight, kernel.centering
        path = self.fit_matrix(K, target, grid, weights, centering, fine)

        def scores(held_out: np.ndarray, others: np.ndarray) -> np.ndarray:
            w, among = None if weights is None else weights[others], K[np.ix_(others, others)]
            dual, intercept = self.fit_matrix(among, target.take(others), grid, w, centering, fine).coefficients()
            return np.asarray(K[np.ix_(held_out, others)] @ dual + intercept)

        return replace(
            path,
            kernel=kernel,
            dual=np.stack([np.dot(new_rows, one) for one in path.dual]),
            held_out=partial(held_out_scores, training, target, scores) if fine and len(grid) == 1 else None,
        )


def usable_gram(kernel: LearnedKernel) -> tuple[np.ndarray, np.ndarray | float]:
    r"""Return the Gram matrix that a predictor is fitted on, and what a cross-Gram matrix is multiplied by for it.

    Parameters
    ----------
    kernel : LearnedKernel
        Not modified.

    Returns
    -------
    K : ndarray of shape (m, m)
        Positive semi-definite and, of a kernel that was learned for no regularization in particular, of mean diagonal
        one.
    new_rows : ndarray of shape (m, m) or float
        ``kernel.cross_gram(X) @ new_rows``, or times it, is the same kernel between new rows and the training rows.

    Notes
    -----
    With sample weights w, :math:`D = \operatorname{diag} \sqrt w` and U the eigenvectors of :math:`D K D` of positive
    eigenvalues, K becomes :math:`D^{-1} (D K D)_+ D^{-1}` and the matrix for new rows :math:`D U U^\top D^{-1}`: what
    rows that are repeated w times give. The mean diagonal is weighted likewise. O(m^3) for a kernel with negative
    weights, and O(m^2) for others.
    """
    K, weights = kernel.gram(), kernel.sample_weight
    projection = None
    if kernel.indefinite:
        root = np.ones(len(K)) if weights is None else np.sqrt(weights)
        eigenvalues, Q = np.linalg.eigh(K if weights is None else K * root * root[:, None])
        Q = Q[:, eigenvalues > 0]
        projection = (Q * root[:, None]) @ (Q / root[:, None]).T
        Q /= root[:, None]
        K = (Q * eigenvalues[eigenvalues > 0]) @ Q.T
    unit = 1.0
    if kernel.C is None:
        unit = float(np.trace(K) / len(K) if weights is None else np.average(K.diagonal(), weights=weights))
    K /= unit  # which nobody else has
    return K, 1.0 / unit if projection is None else projection / unit


def held_out_scores(
    training: TrainingSet, target: Target, scores: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return training rows, and their scores by predictors that are fitted without them and their copies.

    Parameters
    ----------
    training : TrainingSet
        A learned kernel and m training rows.
    target : Target
        Of these rows.
    scores : callable
        Returns the scores of some rows by a predictor that is fitted on others, both by position.

    Notes
    -----
    Each of five folds is held out in turn, and of more than `MOST_FOLD_ROWS` rows the first one alone. Rows that no
    predictor can do without have the score of one of all rows.
    """
    codes = target.values if target.task == "classification" else np.zeros(len(target), dtype=np.intp)
    folds = assign_calibration_folds(training.take()[0], codes)
    rows, found = list[np.ndarray](), list[np.ndarray]()
    for fold in np.unique(folds) if len(folds) <= MOST_FOLD_ROWS else (0,):
        rows.append(np.flatnonzero(folds == fold))
        found.append(scores(rows[-1], np.flatnonzero((folds != fold) | (folds < 0))))
    return np.concatenate(rows), np.concatenate(found)
