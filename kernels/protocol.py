"""The protocol of the papers: folds to train on, one to choose the regularisation, one to test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.families.base import Rows
from kernels.learned import LearnedKernel
from kernels.predictors import PREDICTORS
from kernels.targets import Target

EDGE_GAIN = 1e-3
"""Relative gain over the next value from which a choice at the edge of the grid asks for a wider one."""


@dataclass(frozen=True)
class Trial:
    """One trial of a cross-validation: which folds train, validate and test.

    Attributes
    ----------
    index : int
        Position among the trials.
    training : tuple of int
    validation, test : int
        Folds; disjoint, together all of them.
    """

    index: int
    training: tuple[int, ...]
    validation: int
    test: int


@dataclass(frozen=True)
class FoldResult:
    """Outcome of one learner and predictor in one trial.

    Attributes
    ----------
    error, trivial_error : float
        Test error of the predictor, and of the best constant; a share, or in units of y.
    validation_errors : ndarray of shape (L,)
        Along the grid.
    regularisation : float
        The chosen Lambda.
    edge : bool
        The choice lies on the grid's edge and the error was still falling there.
    n_train, n_test : int
    """

    error: float
    trivial_error: float
    validation_errors: np.ndarray
    regularisation: float
    edge: bool
    n_train: int
    n_test: int


def assign_folds(target: Target, n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each row, drawn at random; for classification each class is spread evenly.

    Parameters
    ----------
    target : Target
        Of all m rows.
    n_folds : int
        At least 3: one to test, one to validate, the others to train.
    seed : int
        Of the shuffle.

    Returns
    -------
    folds : ndarray of int of shape (m,)

    Raises
    ------
    ValueError
        Fewer than 3 folds, fewer rows than folds, or a class with fewer rows than folds.
    """
    from sklearn.model_selection import KFold, StratifiedKFold  # here, because it brings pandas along

    if n_folds < 3:
        raise ValueError(f"folds must be at least 3 (one tests, one validates, the others train), got {n_folds}.")
    if len(target) < n_folds:
        raise ValueError(f"there must be at least one row a fold, got {len(target)} rows for {n_folds} folds.")
    splitter = KFold(n_folds, shuffle=True, random_state=seed)
    if target.task == "classification":
        counts = np.bincount(target.values, minlength=len(target.classes))
        rare = int(counts.argmin())
        if counts[rare] < n_folds:
            raise ValueError(
                f"each class must have at least one row a fold, got {counts[rare]} of class "
                f"{target.classes[rare]!r} for {n_folds} folds; use fewer folds or leave that class out."
            )
        splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    folds = np.empty(len(target), dtype=np.intp)
    rows = np.zeros((len(target), 1))
    for fold, (_, test) in enumerate(splitter.split(rows, target.values if target.task == "classification" else None)):
        folds[test] = fold
    return folds


def trials(n_folds: int) -> list[Trial]:
    """Return one trial a fold: fold t tests, the next one validates, the others train.

    Parameters
    ----------
    n_folds : int
        At least 3.

    Returns
    -------
    trials : list of Trial

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2010), ICML, section 5; (2012), JMLR 13:795-828, section 5.
    """
    return [
        Trial(
            index=t,
            training=tuple(f for f in range(n_folds) if f not in (t, (t + 1) % n_folds)),
            validation=(t + 1) % n_folds,
            test=t,
        )
        for t in range(n_folds)
    ]


def evaluate(
    kernel: LearnedKernel,
    X: Rows,
    target: Target,
    folds: np.ndarray,
    trial: Trial,
    predictor: str,
    grid: Sequence[float],
) -> FoldResult:
    """Return the test error of a learned kernel in one trial, its regularisation chosen on the validation fold.

    Parameters
    ----------
    kernel : LearnedKernel
        Learned on the trial's training folds.
    X : ndarray or CSR matrix of shape (m, d)
        All rows. Not modified.
    target : Target
        Of all rows.
    folds : ndarray of shape (m,)
        Fold of each row.
    trial : Trial
        Which folds train, validate and test.
    predictor : str
        A predictor of the table that serves the task.
    grid : sequence of float
        Values of Lambda, ascending. The kernel is first scaled to mean diagonal one on the training rows, so one
        grid suits all learners. Ties go to the smallest Lambda, the strongest regularisation.

    Returns
    -------
    result : FoldResult

    Notes
    -----
    O(m^2) memory and, for kernel ridge regression, O(m^3) time in the number of training rows.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """
    K = kernel.gram()
    unit = np.trace(K) / len(K)
    training = target.take(kernel.rows)
    path = PREDICTORS[predictor].fit(K / unit, training, grid)
    errors = {}
    for fold in (trial.validation, trial.test):
        rows = np.flatnonzero(folds == fold)
        held_out = target.take(rows)
        predictions = path.predict(kernel.cross_gram(X[rows]) / unit)
        errors[fold] = np.array([held_out.error(prediction) for prediction in predictions])
    validation = errors[trial.validation]
    best = int(validation.argmin())
    test = target.take(np.flatnonzero(folds == trial.test))
    return FoldResult(
        error=float(errors[trial.test][best]),
        trivial_error=test.trivial_error(training),
        validation_errors=validation,
        regularisation=float(grid[best]),
        edge=_still_falling(validation, best),
        n_train=len(K),
        n_test=len(test),
    )


def _still_falling(errors: np.ndarray, best: int) -> bool:
    """Return whether the best is at an edge of the grid and clearly better than its neighbour."""
    if len(errors) < 2 or 0 < best < len(errors) - 1:
        return False
    neighbour = errors[1 if best == 0 else -2]
    return bool(neighbour - errors[best] > EDGE_GAIN * neighbour)
