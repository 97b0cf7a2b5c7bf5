"""Errors of what was learned: one fold chooses candidate and regularisation, another one tests the choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from learnkernels.kernels.engine.threads import blas_threads_for
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.predictors.calibration import fit_calibration, probabilities
from learnkernels.kernels.predictors.choice import best_on_grid
from learnkernels.kernels.protocol.folds import Trial, count_rows
from learnkernels.kernels.protocol.hypotheses import AlignedHypotheses, Hypotheses, KernelPredictors
from learnkernels.kernels.protocol.metrics import Metric, metric_for
from learnkernels.kernels.targets import Target

RUN = 1 << 16
"""Rows that are predicted at a time, and of a data set in files are read at a time."""

EDGE_GAIN = 1e-3
"""Relative gain over the next value from which a choice at the edge of the grid asks for a wider one."""


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
        Position of the chosen Lambda on the grid.
    validation_errors : ndarray of shape (L,)
        Of the chosen candidate, along the grid.
    candidate_errors : ndarray of shape (n_candidates, L)
        Validation errors of all candidates; NaN for those that were not compared by error.
    regularisation : float
        The chosen Lambda.
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
    regularisation: float
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
    regularisation : float
        Lambda at that position.
    sigmoid : ndarray of shape (2,)
        Slope and offset of the sigmoid that turns scores there into probabilities; NaN where none is needed.
    """

    errors: np.ndarray
    candidate: int
    position: int
    regularisation: float
    sigmoid: np.ndarray

    @classmethod
    def of(
        cls, errors: np.ndarray, grid: Sequence[float], sigmoids: np.ndarray | None = None, smooth: bool = False
    ) -> Selection:
        """Return what a table of errors chooses, and the sigmoid there of a table of these."""
        candidate, position = best_on_grid(errors, smooth)
        sigmoid = np.full(2, np.nan) if sigmoids is None else sigmoids[candidate, position]
        return cls(errors, candidate, position, float(grid[position]), sigmoid)

    @property
    def edge(self) -> bool:
        """Whether it lies on the grid's edge and the error was still falling there."""
        return _still_falling(self.errors[self.candidate], self.position)


def evaluate(
    candidates: Sequence[Hypotheses],
    X: Rows,
    target: Target,
    training: np.ndarray,
    folds: np.ndarray,
    trial: Trial,
    by: Literal["error", "alignment"] = "error",
    metric: Metric | None = None,
    sample_weight: np.ndarray | None = None,
) -> FoldResult:
    """Return the test error in one trial, with candidate and regularisation chosen on the validation fold.

    Parameters
    ----------
    candidates, X, target, folds, trial, by, metric, sample_weight
        As for `select_by_validation`.
    training : ndarray of int
        Positions of the training rows.

    Returns
    -------
    result : FoldResult

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """
    selection = select_by_validation(candidates, X, target, folds, trial, by, metric, sample_weight)
    of = candidates[selection.candidate]
    return outcome(of, selection.position, selection, X, target, training, folds, trial, metric, sample_weight)


def select_by_validation(
    candidates: Sequence[Hypotheses],
    X: Rows,
    target: Target,
    folds: np.ndarray,
    trial: Trial,
    by: Literal["error", "alignment"] = "error",
    metric: Metric | None = None,
    sample_weight: np.ndarray | None = None,
) -> Selection:
    """Return candidate and regularisation of the lowest error on a trial's validation fold.

    Parameters
    ----------
    candidates : sequence of Hypotheses
        Fitted on the trial's training folds; one for each setting of the learner's parameters that is tried.
    X : ndarray or CSR matrix of shape (n, d)
        All rows. Not modified.
    target : Target
        Of all rows.
    folds : ndarray of shape (n,)
        Fold of each row.
    trial : Trial
        Which folds train, validate and test.
    by : {"error", "alignment"}, default "error"
        What chooses the candidate on the validation fold: its error, together with the regularisation, or
        its `validation_alignment`, and the regularisation then by the error. The latter needs `AlignedHypotheses`.
    metric : Metric, optional
        What errors are measured by; the task's own by default.
    sample_weight : ndarray of shape (n,), optional
        Weights of all rows, for errors and for the choice by alignment; each counts once by default.

    Returns
    -------
    selection : Selection
        Smoothed where what is chosen is fitted anew, see `best_on_grid`: elsewhere ties go to the smallest Lambda, the
        strongest regularisation, and among those to the first candidate. Ties of the alignment go to the first one.

    Raises
    ------
    ValueError
        `by` is unknown, or asks for the alignment of candidates that have none.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5. Afkanpour, Szepesvari, Bowling (2013), Machine
    Learning 91:305-324, appendix B.2, for the choice by alignment.
    """
    if by not in ("error", "alignment"):
        raise ValueError(f"by must be error or alignment, got {by!r}.")
    if trial.validation is None:
        raise ValueError("a trial without a validation fold has nothing to choose by; use select_by_cross_validation.")
    with blas_threads_for(count_rows(folds, trial.training)):
        validation = np.flatnonzero(folds == trial.validation)
        considered = list(range(len(candidates)))
        if by == "alignment":
            considered = [_most_aligned(candidates, X, target, validation, sample_weight)]
        errors = np.full((len(candidates), len(candidates[0].grid)), np.nan)
        sigmoids = np.full((*errors.shape, 2), np.nan)
        measured = _Measured.of(target, metric, sample_weight)
        for c in considered:
            told = [measured.told(candidates[c], X, validation)]
            sigmoids[c] = measured.sigmoids(told, [validation])
            errors[c] = measured.errors(told, [validation], sigmoids[c])
    return Selection.of(errors, candidates[0].grid, sigmoids, smooth=trial.refit)


def select_by_cross_validation(
    fits: Iterable[tuple[Trial, Sequence[Hypotheses]]],
    X: Rows,
    target: Target,
    folds: np.ndarray,
    metric: Metric | None = None,
    sample_weight: np.ndarray | None = None,
) -> Selection:
    """Return candidate and regularisation of the lowest mean error over the folds that validate each other.

    Parameters
    ----------
    fits : iterable of (Trial, sequence of Hypotheses)
        Each of `inner_trials` with the candidates that were fitted on its training folds, the same ones in the same
        order. Consumed one at a time, so that no more than one set of predictors need be alive.
    X : ndarray or CSR matrix of shape (n, d)
        All rows. Not modified.
    target : Target
        Of all rows.
    folds : ndarray of shape (n,)
        Fold of each row.
    metric, sample_weight
        As for `evaluate`.

    Returns
    -------
    selection : Selection
        Of the means over the folds.
    """
    told, parts, grid = [], [], []
    measured = _Measured.of(target, metric, sample_weight)
    for trial, candidates in fits:
        parts.append(np.flatnonzero(folds == trial.validation))
        grid = list(candidates[0].grid)
        with blas_threads_for(count_rows(folds, trial.training)):
            told.append([measured.told(of, X, parts[-1]) for of in candidates])
    of_candidates = list(zip(*told, strict=True))
    sigmoids = np.array([measured.sigmoids(one, parts) for one in of_candidates])
    errors = [measured.errors(one, parts, own) for one, own in zip(of_candidates, sigmoids, strict=True)]
    return Selection.of(np.array(errors), grid, sigmoids)


def outcome(
    fitted: Hypotheses,
    position: int,
    selection: Selection,
    X: Rows,
    target: Target,
    training: np.ndarray,
    folds: np.ndarray,
    trial: Trial,
    metric: Metric | None = None,
    sample_weight: np.ndarray | None = None,
) -> FoldResult:
    """Return the test error of what was chosen.

    Parameters
    ----------
    fitted : Hypotheses
        The chosen candidate, fitted on the trial's training folds.
    position : int
        Of the chosen regularisation on the grid of `fitted`.
    selection : Selection
        What was chosen, and by which errors.
    X, target, training, folds, trial, metric, sample_weight
        As for `evaluate`.
    """
    rows = np.flatnonzero(folds == trial.test)
    test = target.take(rows)
    if isinstance(fitted, KernelPredictors) and len(fitted.kernels) > 1:
        fitted, position = fitted.only(position), 0
    measured = _Measured.of(target, metric, sample_weight)
    with blas_threads_for(len(training)):
        told = [measured.told(fitted, X, rows)[[position]]]
    return FoldResult(
        error=float(measured.errors(told, [rows], selection.sigmoid[None])[0]),
        trivial_error=measured.metric.trivial_error(
            test, target.take(training), _of(sample_weight, rows), _of(sample_weight, training)
        ),
        candidate=selection.candidate,
        position=selection.position,
        validation_errors=selection.errors[selection.candidate],
        candidate_errors=selection.errors,
        regularisation=selection.regularisation,
        edge=selection.edge,
        n_train=len(training),
        n_test=len(test),
    )


@dataclass(frozen=True)
class _Measured:
    """How errors are measured on some of the rows.

    Probabilities come from scores by one sigmoid, which is fitted on the rows that choose: these train no predictor.
    """

    target: Target
    metric: Metric
    sample_weight: np.ndarray | None

    @classmethod
    def of(cls, target: Target, metric: Metric | None, sample_weight: np.ndarray | None) -> _Measured:
        return cls(target, metric or metric_for(None, target), sample_weight)

    def told(self, of: Hypotheses, X: Rows, rows: np.ndarray) -> np.ndarray:
        """Return what hypotheses say of some rows, scores or predictions, one row a regularisation."""
        tell = of.predict if self.metric.told == "predictions" else of.scores
        if len(rows) <= RUN:
            return tell(X[rows])
        return np.concatenate([tell(X[run]) for run in np.split(rows, range(RUN, len(rows), RUN))], axis=1)

    def sigmoids(self, told: Sequence[np.ndarray], parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return slope and offset of the sigmoid over some parts of the rows, shape (L, 2); NaN where none is used."""
        length = len(told[0])
        if self.metric.told != "probabilities":
            return np.full((length, 2), np.nan)
        rows = np.concatenate(parts)
        codes, w = self.target.values[rows], _of(self.sample_weight, rows)
        return np.array([fit_calibration(np.concatenate([one[i] for one in told]), codes, w) for i in range(length)])

    def errors(self, told: Sequence[np.ndarray], parts: Sequence[np.ndarray], sigmoids: np.ndarray) -> np.ndarray:
        """Return the mean error over some parts of the rows, along the grid, shape (L,)."""
        errors = np.empty((len(parts), len(sigmoids)))
        for i, (of_part, rows) in enumerate(zip(told, parts, strict=True)):
            held_out, w = self.target.take(rows), _of(self.sample_weight, rows)
            for j, (one, sigmoid) in enumerate(zip(of_part, sigmoids, strict=True)):
                said = probabilities(one, sigmoid) if self.metric.told == "probabilities" else one
                errors[i, j] = self.metric.measure(held_out, said, w)
        return np.asarray(errors.mean(axis=0))


def _of(sample_weight: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    """Return the weights of some rows, where there are weights."""
    return None if sample_weight is None else sample_weight[rows]


def _most_aligned(
    candidates: Sequence[Hypotheses], X: Rows, target: Target, rows: np.ndarray, sample_weight: np.ndarray | None
) -> int:
    """Return the position of the first candidate of highest alignment on the rows; one without a number comes last."""
    alignments = []
    for position, of in enumerate(candidates):
        if not isinstance(of, AlignedHypotheses):
            raise ValueError(
                f"a choice by alignment needs candidates with a kernel, got {type(of).__name__} at {position}; "
                "choose by error."
            )
        alignments.append(of.validation_alignment(X[rows], target.take(rows), _of(sample_weight, rows)))
    return int(np.nan_to_num(alignments, nan=-np.inf).argmax())


def _still_falling(errors: np.ndarray, best: int) -> bool:
    """Return whether the best is at an edge of the grid and clearly better than its neighbour."""
    if len(errors) < 2 or 0 < best < len(errors) - 1:
        return False
    neighbour = errors[1 if best == 0 else -2]
    return bool(neighbour - errors[best] > EDGE_GAIN * neighbour)
