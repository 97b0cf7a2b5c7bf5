"""A learned kernel and the training rows that a predictor is fitted on, which may be more than it was learned on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kernels.families.base import Rows, move
from kernels.learned import LearnedKernel
from kernels.solvers.combined_gram import CombinedGram
from kernels.workers import RowSource, Workers


@dataclass(frozen=True)
class KernelOnRows:
    """What predictors are given that never form the matrix of all training rows.

    Attributes
    ----------
    kernel : LearnedKernel
        Its weights and scales count; it may have been learned on some of the rows.
    X : ndarray or CSR matrix of shape (n, d) or None
        The data set, which may be mapped from a file; None where the kernel holds the training rows.
    rows : ndarray of int of shape (m,)
        Positions of the training rows.
    own : bool
        Whether the kernel was learned on these very rows.
    workers : Workers
        Who does the passes.
    """

    kernel: LearnedKernel
    X: Rows | None
    rows: np.ndarray
    own: bool
    workers: Workers

    @property
    def n_rows(self) -> int:
        """m, the number of training rows."""
        return len(self.rows)

    @property
    def n_features(self) -> int:
        """d, the number of features."""
        return int(self.kernel.X.shape[1])

    @property
    def sample_weight(self) -> np.ndarray | None:
        """Weights of the training rows, shape (m,); a kernel with weights is on its own rows."""
        return self.kernel.sample_weight

    @cached_property
    def source(self) -> RowSource:
        """The training rows, less the kernel's origin, where the workers find them."""
        if self.X is None or self.own:
            return self.workers.hold(self.kernel.X, None, np.zeros(self.n_features))
        return self.workers.hold(self.X, self.rows, self.kernel.origin)

    def take(self, positions: np.ndarray) -> tuple[Rows, np.ndarray]:
        """Return some training rows, less the kernel's origin, and their positions in the data set."""
        rows = self.rows[positions]
        if self.X is None or self.own:
            return self.kernel.X[positions], rows
        return move(self.X[rows], self.kernel.origin), rows

    def over(self, row_means: np.ndarray) -> LearnedKernel:
        """Return the kernel over all training rows, given the means of its rows there, shape (m,), not centered."""
        if self.own:
            return self.kernel
        X, rows = self.take(np.arange(self.n_rows))
        return replace(self.kernel, X=X, rows=rows, row_means=row_means)

    def whole_kernel(self) -> LearnedKernel:
        """Return the kernel over all training rows; one pass over their pairs where it was learned on others."""
        if self.own:
            return self.kernel
        gram = CombinedGram(self.kernel.combination, self.source, self.workers)
        return self.over(gram.matvec(np.full((self.n_rows, 1), 1.0 / self.n_rows))[:, 0])
