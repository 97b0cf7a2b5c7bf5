"""What a predictor of the second stage is: an object with its options, fitted on a learned kernel and training rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar, Protocol

import numpy as np

from learnkernels.kernels.centering import Centering
from learnkernels.kernels.learned import LearnedKernel, checked_rows
from learnkernels.kernels.parameters import Parameterised, positive
from learnkernels.kernels.predictors.rows import KernelOnRows, usable_gram
from learnkernels.kernels.predictors.scoring import LinearScores
from learnkernels.kernels.targets import Target, Task


class RegularisationPath(Protocol):
    """Predictors fitted on one kernel, one a regularisation."""

    def __len__(self) -> int:
        """Return L, the number of regularisations."""
        ...

    def predict(self, K_cross: np.ndarray) -> np.ndarray:
        """Return predictions in the terms of the target, one row a regularisation."""
        ...

    def decode(self, scores: np.ndarray) -> np.ndarray:
        """Return predictions from scores of each regularisation, shape (L, n, r)."""
        ...

    def coefficients(self, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return dual, shape (m, r), and intercept, shape (r,), at a position of the grid: scores are linear in them.

        One column an output, a class, or a pair of classes; a single one for two classes, above zero for the second.
        """
        ...


class RowsPath(RegularisationPath, Protocol):
    """Predictors fitted on rows and never on their Gram matrix.

    Attributes
    ----------
    kernel : LearnedKernel
        Whose `cross_gram` they take: over all training rows, or over a few that stand for them.
    notes : tuple of str
        What was done, for a log.
    """

    kernel: LearnedKernel
    notes: tuple[str, ...]


class LinearPath:
    """Predictors that are linear in a kernel, one a regularisation.

    Parameters
    ----------
    target : Target
        What the target is like, for predictions.
    dual : ndarray of shape (L, m, q)
        Coefficients, one set a regularisation.
    intercept : ndarray of shape (q,) or (L, q)
    """

    def __init__(self, target: Target, dual: np.ndarray, intercept: np.ndarray) -> None:
        self._target, self.dual, self.intercept = target, dual, intercept

    def coefficients(self, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return dual, shape (m, q), and intercept, shape (q,), at a position of the grid."""
        return self.dual[position], self.intercept if self.intercept.ndim == 1 else self.intercept[position]

    def predict(self, K_cross: np.ndarray) -> np.ndarray:
        """Return predictions in the terms of the target, one row a regularisation, shape (L, n) or (L, n, q)."""
        return self.decode(K_cross @ self.dual + np.atleast_2d(self.intercept)[:, None])

    def decode(self, scores: np.ndarray) -> np.ndarray:
        """Return predictions from scores of each regularisation, shape (L, n, q)."""
        return self._target.decode(scores)

    def __len__(self) -> int:
        return len(self.dual)


@dataclass(frozen=True)
class Fitted:
    """Predictors of one kernel, one a regularisation, and the kernel that they see new rows by.

    Attributes
    ----------
    kernel : LearnedKernel
        Over all training rows, or over a few that stand for them.
    new_rows : ndarray of shape (m, m) or float
        ``kernel.cross_gram(X) @ new_rows``, or times it, is what `path` predicts from.
    path : RegularisationPath
    gram : ndarray of shape (m, m) or None
        The matrix that `path` was fitted on, where it was on one.
    notes : tuple of str
        What was done, for a log.
    left_out : callable or None
        Returns positions of training rows, and their scores by predictors that have seen neither them nor their copies,
        shape (n, q); where they follow from the fit of one regularisation.
    """

    kernel: LearnedKernel
    new_rows: np.ndarray | float
    path: RegularisationPath
    gram: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    left_out: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None

    def predict(self, X_new: Any) -> np.ndarray:
        """Return predictions for new rows in the terms of the target, one row a regularisation."""
        return self.path.decode(self.scores(X_new))

    def scores(self, X_new: Any) -> np.ndarray:
        """Return scores of new rows, one set a regularisation, shape (L, n, r)."""
        scores = self._scores.of(checked_rows(self.kernel, X_new))
        return scores.reshape(len(scores), len(self.path), -1).transpose(1, 0, 2)

    @cached_property
    def _scores(self) -> LinearScores:
        """Those of all regularisations side by side."""
        duals, intercepts = zip(*map(self.coefficients, range(len(self.path))), strict=True)
        return LinearScores(self.kernel, np.concatenate(duals, axis=1), np.concatenate(intercepts))

    def coefficients(self, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return dual and intercept of a regularisation, for ``kernel.cross_gram(X) @ dual + intercept``."""
        dual, intercept = self.path.coefficients(position)
        return np.dot(self.new_rows, dual), intercept


class Predictor(Parameterised, ABC):
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
        Whether it has one score a pair of classes, where they are more than two.
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

    @abstractmethod
    def fit_on(self, on: KernelOnRows, target: Target, grid: Sequence[float], *, fine: bool = False) -> Fitted:
        """Fit on training rows, once a regularisation.

        Parameters
        ----------
        on : KernelOnRows
            A learned kernel and m training rows.
        target : Target
            Of the training rows.
        grid : sequence of float
            Values of Lambda, ascending: C, or one over the ridge, for a kernel of mean diagonal one.
        fine : bool, default False
            Whether scores are to have all digits that are read; a comparison asks for errors alone.
        """

    def check(self, task: Task) -> None:
        """Raise ValueError for a task that is not served, or an option that is out of its range."""
        if task not in self.tasks:
            raise ValueError(f"predictor {self.name} does not serve {task}; use auto or {DEFAULTS[task]}.")
        for name, least in (("landmarks", 2), ("seed", 0)):
            value = getattr(self, name, None)
            if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value < least):
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
        if hasattr(self, "memory"):
            positive("memory", self.memory)
        if (tolerance := getattr(self, "tolerance", None)) is not None:
            positive("tolerance", tolerance)


DEFAULTS: dict[Task, str] = {"classification": "svm", "regression": "krr"}
"""What ``auto`` stands for, on few rows and for a learner without a predictor of its own."""


class ExactPredictor(Predictor):
    """A predictor on the Gram matrix of all training rows, which is formed: O(m^2) memory."""

    @abstractmethod
    def fit(
        self,
        K: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        fine: bool = False,
        centering: Centering = Centering.CENTER,
    ) -> RegularisationPath:
        """Fit on a Gram matrix of mean diagonal one, centered, or else without intercept."""

    def fit_on(self, on: KernelOnRows, target: Target, grid: Sequence[float], *, fine: bool = False) -> Fitted:
        """Fit on the matrix; a kernel with negative weights is replaced by its positive semi-definite part."""
        kernel = on.whole_kernel()
        K, new_rows = usable_gram(kernel)
        return Fitted(kernel, new_rows, self.fit(K, target, grid, kernel.sample_weight, fine, kernel.centering), K)


class RowsPredictor(Predictor):
    """A predictor that passes over the training rows and never forms the matrix of all of them."""

    by_rows = True

    @abstractmethod
    def fit(self, on: KernelOnRows, target: Target, grid: Sequence[float], fine: bool = False) -> RowsPath:
        """Fit on rows."""

    def fit_on(self, on: KernelOnRows, target: Target, grid: Sequence[float], *, fine: bool = False) -> Fitted:
        """Fit on rows."""
        path = self.fit(on, target, grid, fine)
        return Fitted(path.kernel, 1.0, path, None, path.notes)
