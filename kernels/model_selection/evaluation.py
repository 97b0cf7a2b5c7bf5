"""Selection of predictors by validation errors, and their test errors."""

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
from ..weights import of_mean_one, weights_of_rows
from .folds import Trial, count_rows
from .metrics import Metric


class PredictorPath(Protocol):
    """Protocol of fitted predictors, one per value of an ascending grid of C."""

    @property
    def grid(self) -> Sequence[float]: ...

    def predict(self, X_new: Rows) -> np.ndarray:
        """Return predictions, with classes as integers, one array row per value of C."""

    def scores(self, X_new: Rows) -> np.ndarray:
        """Return decision values per C, (L, n) or (L, n, n_classes).

        For two classes, positive for the second; otherwise the largest is predicted.
        """


class KernelPredictors:
    """Fitted predictors, one per value of C, on a shared kernel or one kernel each."""

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
        """Fit the predictors.

        X, all rows of `target`, is needed if the kernels were learned on some of the
        training rows.
        """
        self.kernels = kernels
        self.grid = grid
        self.paths: list[RegularizationPath] = []
        rows = kernels[0].rows if training is None else training
        target = target.take(rows)
        predictor = as_predictor(predictor)
        with blas_threads_for(len(rows)):
            for kernel in kernels:
                values = grid if kernel.C is None else [kernel.C]
                training_set = TrainingSet.of(kernel, X, rows, workers, progress)
                self.paths.append(predictor.fit(training_set, target, values))
        self.notes = tuple(
            dict.fromkeys(note for path in self.paths for note in path.notes)
        )

    def predict(self, X_new: Rows) -> np.ndarray:
        return np.concatenate([path.predict(X_new) for path in self.paths])

    def scores(self, X_new: Rows) -> np.ndarray:
        return np.array(
            [scores for path in self.paths for scores in path.class_scores(X_new)]
        )

    def validation_alignment(
        self, X_new: Rows, target_new: Target, sample_weight: np.ndarray | None = None
    ) -> float:
        """Return the mean alignment of the kernels with the target on new rows."""
        if not np.ptp(target_new.Y, axis=0).any():
            raise ValueError(
                f"the target is constant on the {len(target_new)} rows that a choice by alignment looks at; give more "
                "rows to validate, or choose by error."
            )
        return float(
            np.mean(
                [
                    kernel.alignment_with(X_new, target_new, sample_weight)
                    for kernel in self.kernels
                ]
            )
        )


def keep_one_kernel(fitted: PredictorPath, position: int) -> tuple[PredictorPath, int]:
    """Return the predictors on the kernel at `position`, and the position among them."""
    if not isinstance(fitted, KernelPredictors) or len(fitted.kernels) == 1:
        return fitted, position
    single = copy(fitted)
    single.kernels = fitted.kernels[position : position + 1]
    single.grid = fitted.grid[position : position + 1]
    single.paths = fitted.paths[position : position + 1]
    return single, 0


@dataclass(frozen=True)
class FoldResult:
    """Test error and selected settings in one training and test split.

    `validation_errors`, (L,), belong to the selected candidate; `edge` means that C is
    at an end of the grid where the error falls.
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
    """Selected candidate and C, and all validation errors, (n_candidates, L).

    `sigmoid` has slope and offset, or NaN.
    """

    errors: np.ndarray
    candidate: int
    position: int
    C: float
    sigmoid: np.ndarray

    @classmethod
    def of(
        cls,
        errors: np.ndarray,
        grid: Sequence[float],
        sigmoids: np.ndarray | None = None,
        smooth: bool = False,
    ) -> Selection:
        candidate, position = best_on_grid(errors, smooth)
        sigmoid = np.full(2, np.nan)
        if sigmoids is not None:
            sigmoid = sigmoids[candidate, position]
        return cls(errors, candidate, position, float(grid[position]), sigmoid)

    @property
    def edge(self) -> bool:
        """Whether C is at an end of the grid where the error falls."""
        errors = self.errors[self.candidate]
        if len(errors) < 2 or 0 < self.position < len(errors) - 1:
            return False
        neighbor = errors[1 if self.position == 0 else -2]
        return bool(neighbor - errors[self.position] > 1e-3 * neighbor)


@dataclass(frozen=True)
class Evaluation:
    """Data set with folds and a metric, for selecting and testing predictors."""

    X: Rows
    target: Target
    folds: np.ndarray
    metric: Metric
    sample_weight: np.ndarray | None = None

    def result(
        self,
        candidates: Sequence[PredictorPath],
        training: np.ndarray,
        trial: Trial,
        by: Literal["error", "alignment"] = "error",
    ) -> FoldResult:
        """Select a candidate on the validation fold of one split, and return its test result."""
        selection = self.select(candidates, trial, by)
        return self.outcome(
            candidates[selection.candidate],
            selection.position,
            selection,
            training,
            trial,
        )

    def select(
        self,
        candidates: Sequence[PredictorPath],
        trial: Trial,
        by: Literal["error", "alignment"] = "error",
    ) -> Selection:
        """Select the candidate and C with the lowest error on the validation fold.

        C is always selected by error. Ties go to the smallest C, then to the first
        candidate.
        """
        with blas_threads_for(count_rows(self.folds, trial.training)):
            rows = np.flatnonzero(self.folds == trial.validation)
            compared = list(range(len(candidates)))
            if by == "alignment":
                compared = [self._most_aligned(candidates, rows)]
            errors = np.full((len(candidates), len(candidates[0].grid)), np.nan)
            sigmoids = np.full((*errors.shape, 2), np.nan)
            for c in compared:
                responses = [self._responses(candidates[c], rows)]
                sigmoids[c] = self._fit_sigmoids(responses, [rows])
                errors[c] = self._mean_errors(responses, [rows], sigmoids[c])
        return Selection.of(errors, candidates[0].grid, sigmoids, smooth=trial.refit)

    def validation_errors(self, fitted: PredictorPath, trial: Trial) -> np.ndarray:
        """Return the error on the validation fold for each C, (L,)."""
        return np.asarray(self.select([fitted], trial).errors[0])

    def select_by_cross_validation(
        self, fits: Iterable[tuple[Trial, Sequence[PredictorPath]]]
    ) -> Selection:
        """Select the candidate and C with the lowest cross-validation error."""
        responses: list[list[np.ndarray]] = []
        parts = []
        grid: Sequence[float] = []
        for trial, candidates in fits:
            rows = np.flatnonzero(self.folds == trial.validation)
            with blas_threads_for(count_rows(self.folds, trial.training)):
                responses.append(
                    [self._responses(candidate, rows) for candidate in candidates]
                )
            parts.append(rows)
            grid = list(candidates[0].grid)
        errors = []
        sigmoids = []
        for responses_of_candidate in zip(*responses, strict=True):
            sigmoids.append(self._fit_sigmoids(responses_of_candidate, parts))
            errors.append(
                self._mean_errors(responses_of_candidate, parts, sigmoids[-1])
            )
        return Selection.of(np.array(errors), grid, np.array(sigmoids))

    def outcome(
        self,
        fitted: PredictorPath,
        position: int,
        selection: Selection,
        training: np.ndarray,
        trial: Trial,
    ) -> FoldResult:
        """Return the test result of the selected candidate."""
        rows = np.flatnonzero(self.folds == trial.test)
        fitted, position = keep_one_kernel(fitted, position)
        with blas_threads_for(len(training)):
            responses = self._responses(fitted, rows)[[position]]
        (error,) = self._mean_errors([responses], [rows], selection.sigmoid[None])
        trivial_error = self.metric.trivial_error(
            self.target.take(rows),
            self.target.take(training),
            weights_of_rows(self._weights, rows),
            weights_of_rows(self._weights, training),
        )
        return FoldResult(
            error=float(error),
            trivial_error=trivial_error,
            candidate=selection.candidate,
            position=selection.position,
            validation_errors=selection.errors[selection.candidate],
            candidate_errors=selection.errors,
            C=selection.C,
            edge=selection.edge,
            n_train=len(training),
            n_test=len(rows),
        )

    @cached_property
    def _weights(self) -> np.ndarray | None:
        if self.sample_weight is None:
            return None
        return of_mean_one(self.sample_weight)

    def _responses(self, predictors: PredictorPath, rows: np.ndarray) -> np.ndarray:
        """Return scores or predictions for the metric, one row per C."""
        batch_size = 1 << 16
        respond = (
            predictors.predict
            if self.metric.response == "predictions"
            else predictors.scores
        )
        batches = np.split(rows, range(batch_size, len(rows), batch_size))
        return np.concatenate([respond(self.X[batch]) for batch in batches], axis=1)

    def _fit_sigmoids(
        self, responses: Sequence[np.ndarray], parts: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return a sigmoid per C, (L, 2); NaN if not needed."""
        sigmoids = np.full((len(responses[0]), 2), np.nan)
        if self.metric.response == "probabilities":
            rows = np.concatenate(parts)
            codes = self.target.values[rows]
            weights = weights_of_rows(self._weights, rows)
            for i, scores in enumerate(zip(*responses, strict=True)):
                sigmoids[i] = fit_calibration(np.concatenate(scores), codes, weights)
        return sigmoids

    def _mean_errors(
        self,
        responses: Sequence[np.ndarray],
        parts: Sequence[np.ndarray],
        sigmoids: np.ndarray,
    ) -> np.ndarray:
        """Return the mean error over parts of the rows per C."""
        metric = self.metric
        errors = np.empty((len(parts), len(sigmoids)))
        for i, rows in enumerate(parts):
            target = self.target.take(rows)
            weights = weights_of_rows(self._weights, rows)
            for j, (response, sigmoid) in enumerate(
                zip(responses[i], sigmoids, strict=True)
            ):
                if metric.response == "probabilities":
                    response = probabilities(response, sigmoid)
                errors[i, j] = metric.measure(target, response, weights)
        return np.asarray(errors.mean(axis=0))

    def _most_aligned(
        self, candidates: Sequence[PredictorPath], rows: np.ndarray
    ) -> int:
        """Return the position of the candidate with the highest alignment."""
        X = self.X[rows]
        target = self.target.take(rows)
        weights = weights_of_rows(self._weights, rows)
        alignments = []
        for position, candidate in enumerate(candidates):
            if not hasattr(candidate, "validation_alignment"):
                raise ValueError(
                    f"a choice by alignment needs candidates with a kernel, got {type(candidate).__name__} at "
                    f"{position}; choose by error."
                )
            alignments.append(candidate.validation_alignment(X, target, weights))
        return int(np.nan_to_num(alignments, nan=-np.inf).argmax())
