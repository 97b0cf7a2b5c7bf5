"""Support vector machines on a precomputed kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.targets import Target

MAX_ITERATIONS = 10_000_000
"""Of the solver; a fit that reaches it warns and returns what it has. Only unscaled data with a huge C does."""


class SupportVectorPath:
    """Support vector classifiers, one a regularisation; several classes one against one.

    Attributes
    ----------
    machines : list of sklearn.svm.SVC
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
        from sklearn.svm import SVC  # here, because it brings pandas and pyarrow along where they are installed

        self.machines = [
            SVC(kernel="precomputed", C=value, max_iter=MAX_ITERATIONS).fit(K, target.values) for value in grid
        ]

    def predict(self, K_cross: np.ndarray) -> np.ndarray:
        """Return predicted classes, as positions in the target's classes, shape (L, n)."""
        return np.stack([machine.predict(K_cross) for machine in self.machines])
