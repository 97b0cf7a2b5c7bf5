"""Support vector machines on a precomputed kernel."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from kernels.solvers.svm import solve_machine
from kernels.targets import Target

MAX_ITERATIONS = 200_000
"""Of scikit-learn's solver; kernels of low rank with a large C need more, and are solved by interior points instead."""


class ExactMachine:
    """A support vector classifier solved by active sets and interior points; several classes one against one.

    Attributes
    ----------
    dual : ndarray of shape (m, n_pairs)
        Signed coefficients of each pair of classes.
    intercepts : ndarray of shape (n_pairs,)
    """

    def __init__(self, K: np.ndarray, labels: np.ndarray, C: float) -> None:
        """Fit on a Gram matrix and the labels of its rows."""
        self._pairs = list(combinations(np.unique(labels).tolist(), 2))
        self.dual, self.intercepts = np.zeros((len(K), len(self._pairs))), np.zeros(len(self._pairs))
        for j, (first, second) in enumerate(self._pairs):
            rows = np.flatnonzero((labels == first) | (labels == second))
            y = np.where(labels[rows] == second, 1.0, -1.0)
            machine = solve_machine(K[np.ix_(rows, rows)], y, C)
            self.dual[rows, j], self.intercepts[j] = y * machine.coefficients, machine.intercept

    def predict(self, K_cross: np.ndarray) -> np.ndarray:
        """Return the class that wins most pairs, the first of equals, shape (n,)."""
        scores = K_cross @ self.dual + self.intercepts
        classes = sorted({c for pair in self._pairs for c in pair})
        votes = np.zeros((len(K_cross), len(classes)))
        for j, (first, second) in enumerate(self._pairs):
            votes[:, classes.index(first)] += scores[:, j] <= 0
            votes[:, classes.index(second)] += scores[:, j] > 0
        return np.asarray(classes)[votes.argmax(axis=1)]


class SupportVectorPath:
    """Support vector classifiers, one a regularisation; several classes one against one.

    Attributes
    ----------
    machines : list of sklearn.svm.SVC or ExactMachine
        One fitted machine a regularisation.
    """

    def __init__(self, K: np.ndarray, target: Target, grid: Sequence[float]) -> None:
        """Fit.

        Parameters
        ----------
        K : ndarray of shape (m, m)
            Centered Gram matrix of the training rows. Not modified.
        target : Target
            Of the training rows; a classification with at least two classes among them.
        grid : sequence of float
            Values of Lambda, the scale of the kernel for C = 1, which is C for a kernel of scale one.

        References
        ----------
        Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.svm import SVC  # here, because it brings pandas and pyarrow along where they are installed

        self.machines: list[SVC | ExactMachine] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for value in grid:
                machine = SVC(kernel="precomputed", C=value, max_iter=MAX_ITERATIONS).fit(K, target.values)
                stopped = np.max(machine.n_iter_) >= MAX_ITERATIONS
                self.machines.append(ExactMachine(K, target.values, value) if stopped else machine)

    def predict(self, K_cross: np.ndarray) -> np.ndarray:
        """Return predicted classes, as positions in the target's classes, shape (L, n)."""
        return np.stack([machine.predict(K_cross) for machine in self.machines])
