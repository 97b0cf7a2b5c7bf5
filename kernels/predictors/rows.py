"""A learned kernel and the training rows that a predictor is fitted on, which may be more than it was learned on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from learnkernels.kernels.engine.combined_gram import CombinedGram
from learnkernels.kernels.engine.workers import RowSource, Threads, Workers
from learnkernels.kernels.families.base import Rows, move
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.solvers.conjugate_gradients import Progress


@dataclass(frozen=True)
class KernelOnRows:
    """What predictors are given that never form the matrix of all training rows.

    Attributes
    ----------
    kernel : LearnedKernel
        Its weights and scales count; it may have been learned on some of the rows.
    X : ndarray or CSR matrix of shape (n, d)
        Rows among which the training rows are; may be mapped from a file.
    positions : ndarray of int of shape (m,)
        Of the training rows in `X`.
    origin : ndarray of shape (d,)
        What rows of `X` are to be moved by.
    rows : ndarray of int of shape (m,)
        Positions of the training rows in the data set.
    sample_weight : ndarray of shape (m,) or None
        Their weights.
    own : bool
        Whether these are the rows that the kernel was learned on, in their order.
    workers : Workers
        Who does the passes.
    progress : callable or None
        Told, by a predictor that iterates, its steps and the largest residual.
    """

    kernel: LearnedKernel
    X: Rows
    positions: np.ndarray
    origin: np.ndarray
    rows: np.ndarray
    sample_weight: np.ndarray | None
    own: bool
    workers: Workers
    progress: Progress | None = None

    @classmethod
    def of(
        cls,
        kernel: LearnedKernel,
        X: Rows | None,
        rows: np.ndarray,
        workers: Workers | None = None,
        progress: Progress | None = None,
    ) -> KernelOnRows:
        """Return a kernel on the training rows of a predictor.

        Parameters
        ----------
        kernel : LearnedKernel
            One with sample weights must have been learned on these rows.
        X : ndarray or CSR matrix of shape (n, d) or None
            The data set; None where the training rows are those that the kernel was learned on.
        rows : ndarray of int of shape (m,)
            Positions of the training rows in it.
        workers : Workers, optional
            By default threads of this process.
        progress : callable, optional
            Told of the steps of predictors that iterate.

        Raises
        ------
        ValueError
            The kernel was learned on other rows, and there is no data set to take the training rows from.
        """
        own = len(rows) == len(kernel.rows) and bool((rows == kernel.rows).all())
        workers, weights = workers or Threads(), kernel.sample_weight
        if own:
            still = np.zeros(kernel.X.shape[1])
            return cls(kernel, kernel.X, np.arange(len(rows)), still, rows, weights, True, workers, progress)
        if X is None:
            raise ValueError(
                f"the kernel was learned on {len(kernel.rows)} rows, and {len(rows)} others train the predictor; give "
                "X."
            )
        return cls(kernel, X, rows, kernel.origin, rows, None, False, workers, progress)

    @property
    def n_rows(self) -> int:
        """m, the number of training rows."""
        return len(self.rows)

    @property
    def n_features(self) -> int:
        """d, the number of features."""
        return int(self.X.shape[1])

    @cached_property
    def source(self) -> RowSource:
        """The training rows, moved, where the workers find them."""
        return self.workers.hold(self.X, None if self.own else self.positions, self.origin)

    def take(self, some: np.ndarray) -> tuple[Rows, np.ndarray]:
        """Return some training rows, moved, and their positions in the data set."""
        return move(self.X[self.positions[some]], self.origin), self.rows[some]

    def only(self, some: np.ndarray) -> KernelOnRows:
        """Return the same of some training rows."""
        weights = None if self.sample_weight is None else self.sample_weight[some]
        return replace(
            self, positions=self.positions[some], rows=self.rows[some], sample_weight=weights, own=False
        )  # fmt: skip

    @property
    def shares(self) -> np.ndarray:
        """What each training row counts in the mean that is subtracted of all, shape (m,)."""
        return self.kernel.centering.shares(self.n_rows, self.sample_weight)

    def whole_kernel(self) -> LearnedKernel:
        """Return the kernel over all training rows; one pass over their pairs where it was learned on others."""
        if self.own:
            return self.kernel
        gram = CombinedGram(self.kernel.combination, self.source, self.workers)
        row_means = gram.matvec(self.shares[:, None])[:, 0]
        X, rows = self.take(np.arange(self.n_rows))
        return replace(self.kernel, X=X, rows=rows, row_means=row_means, sample_weight=self.sample_weight)


def usable_gram(kernel: LearnedKernel) -> tuple[np.ndarray, np.ndarray | float]:
    r"""Return the Gram matrix that a predictor is fitted on, and what a cross-Gram matrix is multiplied by for it.

    Parameters
    ----------
    kernel : LearnedKernel
        Not modified.

    Returns
    -------
    K : ndarray of shape (m, m)
        Positive semi-definite and, of a kernel that was learned for no regularisation in particular, of mean diagonal
        one.
    new_rows : ndarray of shape (m, m) or float
        ``kernel.cross_gram(X) @ new_rows``, or times it, is the same kernel between new rows and the training rows.

    Notes
    -----
    With sample weights w, :math:`D = \operatorname{diag} \sqrt w` and U the eigenvectors of :math:`D K D` of positive
    eigenvalues, K becomes :math:`D^{-1} (D K D)_+ D^{-1}` and the matrix for new rows :math:`D U U^\top D^{-1}`: what
    rows that are repeated w times give. The mean diagonal is weighted likewise. O(m^3) for a kernel with negative
    weights, and O(m^2) for others.
    """
    K, weights = kernel.gram(), kernel.sample_weight
    projection = None
    if kernel.indefinite:
        root = np.ones(len(K)) if weights is None else np.sqrt(weights)
        eigenvalues, Q = np.linalg.eigh(K if weights is None else K * root * root[:, None])
        Q = Q[:, eigenvalues > 0]
        projection = (Q * root[:, None]) @ (Q / root[:, None]).T
        Q /= root[:, None]
        K = (Q * eigenvalues[eigenvalues > 0]) @ Q.T
    unit = 1.0
    if kernel.regularisation is None:
        unit = float(np.trace(K) / len(K) if weights is None else np.average(K.diagonal(), weights=weights))
    K /= unit  # which nobody else has
    return K, 1.0 / unit if projection is None else projection / unit
