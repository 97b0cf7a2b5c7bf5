"""What is compared: predictors of one learner, one a regularisation."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from learnkernels.kernels.engine.threads import blas_threads_for
from learnkernels.kernels.engine.workers import Workers
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.predictors import Fitted, KernelOnRows, Predictor, SupportVectorPath, as_predictor
from learnkernels.kernels.predictors.calibration import class_scores
from learnkernels.kernels.solvers.conjugate_gradients import Progress
from learnkernels.kernels.targets import Target


class Hypotheses(Protocol):
    """Predictors of one learner, one a regularisation; `KernelPredictors` and `KernelEnsemble` are such.

    Attributes
    ----------
    grid : sequence of float
        Values of Lambda, ascending.
    """

    @property
    def grid(self) -> Sequence[float]: ...

    def predict(self, X_new: Rows) -> np.ndarray:
        """Return predictions for new rows in the terms of the target, one row a regularisation."""

    def scores(self, X_new: Rows) -> np.ndarray:
        """Return scores of classes for new rows, one row a regularisation, shape (L, n) or (L, n, n_classes).

        Of two classes above zero for the second; of more one a class, of which the largest is predicted.
        """


@runtime_checkable
class AlignedHypotheses(Protocol):
    """Hypotheses on kernels, which can be compared by alignment; `KernelPredictors` are such."""

    def validation_alignment(self, X_new: Rows, target_new: Target, sample_weight: np.ndarray | None = None) -> float:
        """Return the centered alignment of the kernel among new rows with the target kernel of these rows."""


class KernelPredictors:
    """Predictors on learned kernels, one a regularisation.

    Attributes
    ----------
    kernels : sequence of LearnedKernel
        One for the whole grid, or one a value of it, as `learn_path` gives them.
    grid : sequence of float
        Values of Lambda.
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
            All over the same training rows. A kernel that was learned for no regularisation in particular is first
            scaled to mean diagonal one, so that one grid suits all learners; one that was, has its own scale.
        target : Target
            Of all rows of the data set.
        predictor : str or Predictor
            One that serves the task.
        grid : sequence of float
            Values of Lambda, ascending.
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
        self._n_classes = len(target.classes)
        self._fitted: list[Fitted] = []
        with blas_threads_for(len(rows)):
            for kernel in kernels:
                values = grid if kernel.regularisation is None else [kernel.regularisation]
                on = KernelOnRows.of(kernel, X, rows, workers, progress)
                self._fitted.append(replace(chosen.fit_on(on, of_rows, values), gram=None))
        self.notes = tuple(dict.fromkeys(note for one in self._fitted for note in one.notes))

    def predict(self, X_new: Rows) -> np.ndarray:
        """Return predictions for new rows in the terms of the target, one row a regularisation."""
        return np.concatenate([one.predict(X_new) for one in self._fitted])

    def scores(self, X_new: Rows) -> np.ndarray:
        """Return scores of classes for new rows, one row a regularisation, shape (L, n) or (L, n, n_classes).

        Of two classes above zero for the second; of more one a class, of which the largest is predicted.
        """
        scores = []
        for one in self._fitted:
            of_pairs = isinstance(one.path, SupportVectorPath)
            scores += [class_scores(linear, self._n_classes, of_pairs) for linear in one.scores(X_new)]
        return np.array(scores)

    def only(self, position: int) -> KernelPredictors:
        """Return the predictor of one value of Lambda alone; of many kernels one, so that new rows cost one's."""
        if len(self.kernels) == 1:
            return self
        one = copy(self)
        one.kernels, one.grid = self.kernels[position : position + 1], self.grid[position : position + 1]
        one._fitted = self._fitted[position : position + 1]
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
