"""Predictors that are compared, and their errors: one fold chooses candidate and regularization, another one tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from ..engine.workers import Workers, blas_threads_for
from ..families.base import Rows
from ..learned_kernel import LearnedKernel
from ..predictors import Predictor, RegularizationPath, TrainingSet, as_predictor
from ..predictors.calibration import fit_calibration, probabilities
from ..predictors.choice import best_on_grid
from ..solvers.conjugate_gradients import Progress
from ..targets import Target
from ..weights import of_mean_one
from .folds import Trial, count_rows
from .metrics import Metric, metric_for

RUN = 1 << 16
"""Rows that are predicted at a time, and of a data set in files are read at a time."""

EDGE_GAIN = 1e-3
"""Relative gain over the next value from which a choice at the edge of the grid needs a wider one."""


class PredictorPath(Protocol):
    """Predictors of one learner, one per value of C; `KernelPredictors` and `KernelEnsemble` are such.

    Attributes
    ----------
    grid : sequence of float
        Values of C, ascending.
    """

    @property
    def grid(self) -> Sequence[float]: ...

    def predict(self, X_new: Rows) -> np.ndarray:
        """Return predictions for new rows in the terms of the target, one row per value of C."""

    def scores(self, X_new: Rows) -> np.ndarray:
        """Return scores of classes for new rows, one row per value of C, shape (L, n) or (L, n, n_classes).

        Of two classes above zero for the second; of more one a class, of which the largest is predicted.
        """


class KernelPredictors:
    """Predictors on learned kernels, one per value of C.

    Attributes
    ----------
    kernels : sequence of LearnedKernel
        One for the whole grid, or one a value of it, as `learn_path` gives them.
    grid : sequence of float
        Values of C.
    paths : list of RegularizationPath
        The predictors of each kernel.
    notes : tuple of str
        What a predictor that is fitted on rows says of its fit: landmarks, residuals.
    """

    def __init__(
        self,
        kernels: Sequence[LearnedKernel],
        target: Target,
        predictor: str | Predictor,
        grid: Sequence[float],
        *,
        X: Rows | None = None,
        training: np.ndarray | None = None,
        workers: Workers | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fit.

        Parameters
        ----------
        kernels : sequence of LearnedKernel
            All over the same training rows. A kernel that was learned for no regularization in particular is first
            scaled to mean diagonal one, so that one grid suits all learners; one that was, has its own scale.
        target : Target
            Of all rows of the data set.
        predictor : str or Predictor
            One that serves the task.
        grid : sequence of float
            Values of C, ascending.
        X : ndarray or CSR matrix of shape (n, d), optional
            All rows of the data set, which may be mapped from a file: needed where the kernels were learned on some of
            the training rows. Not modified.
        training : ndarray of int, optional
            Positions of the training rows; by default those the kernels were learned on.
        workers : Workers, optional
            Who does the passes of a predictor that is fitted on rows; by default threads of this process.
        progress : callable, optional
            Told, by a predictor that is fitted on rows, the steps of its iterations and the largest residual.

        Notes
        -----
        Of exact predictors O(m^2) memory and, for kernel ridge regression, O(m^3) time in the number m of training
        rows, a kernel; of those fitted on rows see their own cost. A kernel with negative weights is replaced by its
        projection onto the positive semi-definite ones, new rows alike.
        """
        self.kernels, self.grid = kernels, grid
        rows = kernels[0].rows if training is None else training
        of_rows, chosen = target.take(rows), as_predictor(predictor)
        self.paths: list[RegularizationPath] = []
        with blas_threads_for(len(rows)):
            for kernel in kernels:
                values = grid if kernel.C is None else [kernel.C]
                training_set = TrainingSet.of(kernel, X, rows, workers, progress)
                self.paths.append(chosen.fit(training_set, of_rows, values))
        self.notes = tuple(dict.fromkeys(note for path in self.paths for note in path.notes))

    def predict(self, X_new: Rows) -> np.ndarray:
        """Return predictions for new rows in the terms of the target, one row per value of C."""
        return np.concatenate([path.predict(X_new) for path in self.paths])

    def scores(self, X_new: Rows) -> np.ndarray:
        """Return scores of classes for new rows, one row per value of C, shape (L, n) or (L, n, n_classes).

        Of two classes above zero for the second; of more one a class, of which the largest is predicted.
        """
        return np.array([scores for path in self.paths for scores in path.class_scores(X_new)])

    def only(self, position: int) -> KernelPredictors:
        """Return the predictor of one value of C alone; of many kernels one, so that new rows cost one's."""
        if len(self.kernels) == 1:
            return self
        one = copy(self)
        one.kernels, one.grid = self.kernels[position : position + 1], self.grid[position : position + 1]
        one.paths = self.paths[position : position + 1]
        return one

    def validation_alignment(self, X_new: Rows, target_new: Target, sample_weight: np.ndarray | None = None) -> float:
        """Return the centered alignment of the kernels among new rows with the target, their mean where they are many.

        Parameters
        ----------
        X_new : ndarray or CSR matrix of shape (n, d)
            New rows. Not modified.
        target_new : Target
            Of these rows.
        sample_weight : ndarray of shape (n,), optional
            Of these rows; each counts once by default.

        Returns
        -------
        alignment : float
            Centered on the new rows.

        Raises
        ------
        ValueError
            The target is constant on the new rows.
        """
        if not np.ptp(target_new.Y, axis=0).any():
            raise ValueError(
                f"the target is constant on the {len(target_new)} rows that a choice by alignment looks at; give more "
                "rows to validate, or choose by error."
            )
        return float(np.mean([kernel.alignment_with(X_new, target_new, sample_weight) for kernel in self.kernels]))


@dataclass(frozen=True)
class FoldResult:
    """Outcome of one learner and predictor in one trial.

    Attributes
    ----------
    error, trivial_error : float
        Test error of the predictor, and of the best constant.
    candidate : int
        Position of the chosen candidate among those given.
    position : int
        Position of the chosen C on the grid.
    validation_errors : ndarray of shape (L,)
        Of the chosen candidate, along the grid.
    candidate_errors : ndarray of shape (n_candidates, L)
        Validation errors of all candidates; NaN for those that were not compared by error.
    C : float
        The chosen C.
    edge : bool
        The choice lies on the grid's edge and the error was still falling there.
    n_train, n_test : int
    """

    error: float
    trivial_error: float
    candidate: int
    position: int
    validation_errors: np.ndarray
    candidate_errors: np.ndarray
    C: float
    edge: bool
    n_train: int
    n_test: int


@dataclass(frozen=True)
class Selection:
    """What validation errors choose.

    Attributes
    ----------
    errors : ndarray of shape (n_candidates, L)
        Of each candidate along the grid; NaN for those that were not compared by error.
    candidate, position : int
        Of the lowest one, see `best_on_grid`.
    C : float
        C at that position.
    sigmoid : ndarray of shape (2,)
        Slope and offset of the sigmoid that turns scores there into probabilities; NaN where none is needed.
    """

    errors: np.ndarray
    candidate: int
    position: int
    C: float
    sigmoid: np.ndarray

    @classmethod
    def of(
        cls, errors: np.ndarray, grid: Sequence[float], sigmoids: np.ndarray | None = None, smooth: bool = False
    ) -> Selection:
        """Return the selection of least error, with its sigmoid."""
        candidate, position = best_on_grid(errors, smooth)
        sigmoid = np.full(2, np.nan) if sigmoids is None else sigmoids[candidate, position]
        return cls(errors, candidate, position, float(grid[position]), sigmoid)

    @property
    def edge(self) -> bool:
        """Whether it lies on the grid's edge and the error was still falling there."""
        errors, at = self.errors[self.candidate], self.position
        if len(errors) < 2 or 0 < at < len(errors) - 1:
            return False
        neighbor = errors[1 if at == 0 else -2]
        return bool(neighbor - errors[at] > EDGE_GAIN * neighbor)


@dataclass(frozen=True)
class Evaluation:
    """Rows with their folds, and how errors on them are measured.

    Probabilities come from scores by one sigmoid, which is fitted on the rows that choose: these train no predictor.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        All rows. Not modified.
    target : Target
        Of all rows.
    folds : ndarray of shape (n,)
        Fold of each row.
    metric : Metric or None
        What errors are measured by; the task's own by default.
    sample_weight : ndarray of shape (n,) or None
        Positive weights of all rows, for errors and for the choice by alignment, of which only the ratios count; each
        counts once by default.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """

    X: Rows
    target: Target
    folds: np.ndarray
    metric: Metric | None = None
    sample_weight: np.ndarray | None = None

    def result(
        self,
        candidates: Sequence[PredictorPath],
        training: np.ndarray,
        trial: Trial,
        by: Literal["error", "alignment"] = "error",
    ) -> FoldResult:
        """Return the test error in one trial, with candidate and regularization chosen on the validation fold.

        Parameters
        ----------
        candidates, trial, by
            As for `select`.
        training : ndarray of int
            Positions of the training rows.
        """
        selection = self.select(candidates, trial, by)
        return self.outcome(candidates[selection.candidate], selection.position, selection, training, trial)

    def select(
        self, candidates: Sequence[PredictorPath], trial: Trial, by: Literal["error", "alignment"] = "error"
    ) -> Selection:
        """Return candidate and regularization of the lowest error on a trial's validation fold.

        Parameters
        ----------
        candidates : sequence of PredictorPath
            Fitted on the trial's training folds; one for each setting of the learner's parameters that is tried.
        trial : Trial
            Which folds train, validate and test; one with a validation fold.
        by : {"error", "alignment"}, default "error"
            What chooses the candidate on the validation fold: its error, together with the regularization, or
            its `validation_alignment`, and the regularization then by the error. The latter needs candidates with
            kernels.

        Returns
        -------
        selection : Selection
            Smoothed where what is chosen is fitted again, see `best_on_grid`: elsewhere ties go to the smallest C,
            the strongest regularization, and among those to the first candidate. Ties of the alignment go to the first
            one.

        Raises
        ------
        ValueError
            `by` needs the alignment of candidates that have none.

        References
        ----------
        Afkanpour, Szepesvari, Bowling (2013), Machine Learning 91:305-324, appendix B.2, for the choice by alignment.
        """
        with blas_threads_for(count_rows(self.folds, trial.training)):
            rows = np.flatnonzero(self.folds == trial.validation)
            considered = list(range(len(candidates)))
            if by == "alignment":
                considered = [self._most_aligned(candidates, rows)]
            errors = np.full((len(candidates), len(candidates[0].grid)), np.nan)
            sigmoids = np.full((*errors.shape, 2), np.nan)
            for c in considered:
                errors[c], sigmoids[c] = self._errors([self._responses(candidates[c], rows)], [rows])
        return Selection.of(errors, candidates[0].grid, sigmoids, smooth=trial.refit)

    def select_by_cross_validation(self, fits: Iterable[tuple[Trial, Sequence[PredictorPath]]]) -> Selection:
        """Return candidate and regularization of the lowest mean error over the folds that validate each other.

        Parameters
        ----------
        fits : iterable of (Trial, sequence of PredictorPath)
            Each of `inner_trials` with the candidates that were fitted on its training folds, the same ones in the same
            order. Consumed one at a time, so that no more than one set of predictors need be alive.

        Returns
        -------
        selection : Selection
            Of the means over the folds.
        """
        responses, parts, grid = [], [], []
        for trial, candidates in fits:
            parts.append(np.flatnonzero(self.folds == trial.validation))
            grid = list(candidates[0].grid)
            with blas_threads_for(count_rows(self.folds, trial.training)):
                responses.append([self._responses(of, parts[-1]) for of in candidates])
        errors, sigmoids = zip(*(self._errors(of, parts) for of in zip(*responses, strict=True)), strict=True)
        return Selection.of(np.array(errors), grid, np.array(sigmoids))

    def outcome(
        self, fitted: PredictorPath, position: int, selection: Selection, training: np.ndarray, trial: Trial
    ) -> FoldResult:
        """Return the test error of what was chosen.

        Parameters
        ----------
        fitted : PredictorPath
            The chosen candidate, fitted on the training rows.
        position : int
            Of the chosen regularization on the grid of `fitted`.
        selection : Selection
            What was chosen, and by which errors.
        training : ndarray of int
            Positions of the training rows.
        trial : Trial
            Whose test fold is measured on.
        """
        rows = np.flatnonzero(self.folds == trial.test)
        if isinstance(fitted, KernelPredictors) and len(fitted.kernels) > 1:
            fitted, position = fitted.only(position), 0
        with blas_threads_for(len(training)):
            responses = [self._responses(fitted, rows)[[position]]]
        (error,), _ = self._errors(responses, [rows], selection.sigmoid[None])
        return FoldResult(
            error=float(error),
            trivial_error=self._metric.trivial_error(
                self.target.take(rows), self.target.take(training), self._weights(rows), self._weights(training)
            ),
            candidate=selection.candidate,
            position=selection.position,
            validation_errors=selection.errors[selection.candidate],
            candidate_errors=selection.errors,
            C=selection.C,
            edge=selection.edge,
            n_train=len(training),
            n_test=len(rows),
        )

    @property
    def _metric(self) -> Metric:
        return self.metric or metric_for(None, self.target)

    @cached_property
    def _relative_weights(self) -> np.ndarray | None:
        return None if self.sample_weight is None else of_mean_one(self.sample_weight)

    def _weights(self, rows: np.ndarray) -> np.ndarray | None:
        return None if self._relative_weights is None else self._relative_weights[rows]

    def _responses(self, of: PredictorPath, rows: np.ndarray) -> np.ndarray:
        """Return scores or predictions of some rows, one row per value of C."""
        respond = of.predict if self._metric.response == "predictions" else of.scores
        runs = np.split(rows, range(RUN, len(rows), RUN))
        return np.concatenate([respond(self.X[run]) for run in runs], axis=1)

    def _errors(
        self, responses: Sequence[np.ndarray], parts: Sequence[np.ndarray], sigmoids: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean error over some parts of the rows, shape (L,), and the sigmoids of probabilities, (L, 2).

        Sigmoids that are not given are fitted on these parts; NaN where none is used.
        """
        metric, likely = self._metric, self._metric.response == "probabilities"
        if sigmoids is None:
            sigmoids = np.full((len(responses[0]), 2), np.nan)
            if likely:
                rows = np.concatenate(parts)
                codes, w = self.target.values[rows], self._weights(rows)
                for i in range(len(sigmoids)):
                    sigmoids[i] = fit_calibration(np.concatenate([one[i] for one in responses]), codes, w)
        errors = np.empty((len(parts), len(sigmoids)))
        for i, (of_part, rows) in enumerate(zip(responses, parts, strict=True)):
            held_out, w = self.target.take(rows), self._weights(rows)
            for j, (one, sigmoid) in enumerate(zip(of_part, sigmoids, strict=True)):
                errors[i, j] = metric.measure(held_out, probabilities(one, sigmoid) if likely else one, w)
        return np.asarray(errors.mean(axis=0)), sigmoids

    def _most_aligned(self, candidates: Sequence[PredictorPath], rows: np.ndarray) -> int:
        """Return the position of the first candidate of highest alignment on the rows; one without a number is last."""
        alignments = []
        for position, of in enumerate(candidates):
            if not hasattr(of, "validation_alignment"):
                raise ValueError(
                    f"a choice by alignment needs candidates with a kernel, got {type(of).__name__} at {position}; "
                    "choose by error."
                )
            alignments.append(of.validation_alignment(self.X[rows], self.target.take(rows), self._weights(rows)))
        return int(np.nan_to_num(alignments, nan=-np.inf).argmax())
