"""C and alpha that are left to the data: what predicts best rows that it has not seen, on one Gram matrix."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from learnkernels.kernels.centering import Centering, mean_over, subtract_means
from learnkernels.kernels.families.base import distinct_examples, drawn_rows
from learnkernels.kernels.parameters import positive
from learnkernels.kernels.predictors.base import Predictor, TrainingSet, usable_gram
from learnkernels.kernels.predictors.calibration import assign_calibration_folds, calibrated_log_loss
from learnkernels.kernels.predictors.choice import ROUGH, best_on_grid
from learnkernels.kernels.predictors.svm import SVM
from learnkernels.kernels.solvers.leave_one_out import LeaveOneOut
from learnkernels.kernels.targets import Target

MOST_ROWS = 1500
"""Rows that the choice is made on where there are more."""

RIDGES = tuple(2.0**exponent for exponent in range(-26, 11))
"""Ridges that leave-one-out chooses among, for a kernel of mean diagonal one."""

FEW_ROWS = 500
"""Distinct rows that the search for a ridge begins on."""

GROWTH = 0.5
"""Power of the number of rows by which the best ridge falls, of a kernel of mean diagonal one."""

LEAST = 2.0**-12
"""The least of them for predictors that take steps, of which smaller ones take hundreds."""

LEAST_DECIDED = 2.0**-3
"""The same for classes predicted to a residual of `ROUGH`: smaller ridges cost steps, and change few of them."""

GRID = tuple(4.0**exponent for exponent in range(-3, 8))
"""Values of C that folds choose among."""


def given(name: str, value: Any) -> float | Literal["auto"]:
    """Return C or alpha as it was given: a positive number, or "auto"; ValueError for anything else."""
    if isinstance(value, str):
        if value == "auto":
            return "auto"
        raise ValueError(f"{name} must be a positive, finite number or 'auto', got {value!r}.")
    return positive(name, value)


def best_regularisation(on: TrainingSet, target: Target, predictor: Predictor, seed: int) -> float:
    r"""Return the Lambda, C or one over the ridge, with which a predictor is best on rows that it has not seen.

    Parameters
    ----------
    on : TrainingSet
        A learned kernel and m training rows.
    target : Target
        Of these rows.
    predictor : Predictor
        Of the second stage.
    seed : int
        Draws `MOST_ROWS` of more rows.

    Returns
    -------
    regularisation : float

    Notes
    -----
    Ridge regressions are compared by leave-one-out predictions in closed form, on at most `MOST_ROWS` rows: by their
    squared errors, or for classes by the log loss of probabilities that are calibrated on them. The ridge of all rows
    follows by `GROWTH`. For other losses the errors of five folds of a support vector machine decide, smoothed along
    the grid. Both take one Gram matrix of a kernel that has seen all rows. Copies of a row are left out together. A
    Cholesky factor for each ridge that is tried.
    """
    more = max(1.0, on.n_rows / MOST_ROWS)
    if on.n_rows > MOST_ROWS:
        some = drawn_rows(on.n_rows, MOST_ROWS, seed)
        on, target = on.subset(some), target.take(some)
    kernel = on.whole_kernel()
    K, _ = usable_gram(kernel)
    squared = target.task == "regression" or predictor.loss == "squared"
    X, weights = on.take()[0], kernel.sample_weight
    if squared:
        first, _, Y, weights = distinct_examples(X, target.Y, weights)
        gram, centering = K[np.ix_(first, first)], kernel.centering
        decided = target.task == "classification" and (getattr(predictor, "tolerance", None) or 0.0) >= ROUGH
        least = LEAST_DECIDED if decided else LEAST if predictor.by_rows else 0.0
        ridges = [ridge for ridge in RIDGES[::-1] if ridge >= least]

        def best(step: int, near: float | None) -> float:
            some = slice(None, None, step)
            w = None if weights is None else weights[some]
            path = LeaveOneOut(centering.gram(gram[some, some], w), Y[some], w, centering)
            if target.task == "regression":
                return path.best(ridges, near).ridge
            shares = Y[some] if Y.shape[1] > 1 else np.column_stack([1.0 - Y[some], 1.0 + Y[some]]) / 2.0
            return path.best(ridges, near, lambda one: calibrated_log_loss(Y[some] - one.residuals, shares, w)).ridge

        step = len(first) // FEW_ROWS
        near = best(step, None) * step**-GROWTH if step > 1 else None
        return more**GROWTH / best(1, near)
    errors = _errors(K, target, weights, assign_calibration_folds(X, target.values), kernel.centering)
    _, position = best_on_grid(errors[None], smooth=True)
    return GRID[position]


def _errors(
    K: np.ndarray, target: Target, weights: np.ndarray | None, folds: np.ndarray, centering: Centering
) -> np.ndarray:
    """Return the weights of the rows that machines without them give a wrong class, one sum a value of C."""
    w, errors = np.ones(len(K)) if weights is None else weights, np.zeros(len(GRID))
    for fold in np.unique(folds[folds >= 0]):
        rows, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        training, part = K[np.ix_(others, others)], None if weights is None else weights[others]
        path = SVM().fit_matrix(centering.gram(training, part), target.take(others), GRID, part, centering)
        means, cross = centering.mean(training, part, axis=1), K[np.ix_(rows, others)]
        cross = subtract_means(cross, centering.mean(cross, part, axis=1), means, float(mean_over(means, part)))
        errors += (path.predict_from(cross) != target.values[rows]) @ w[rows]
    return errors
