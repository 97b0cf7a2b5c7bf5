"""Kernel ridge regression on many rows by conjugate gradients: exact to a residual, and no matrix of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from learnkernels.kernels.centering import mean_over
from learnkernels.kernels.engine.combined_gram import CombinedGram
from learnkernels.kernels.predictors.base import RowsPredictor
from learnkernels.kernels.predictors.landmarks import uniform_landmarks
from learnkernels.kernels.predictors.nystrom import tell_of
from learnkernels.kernels.predictors.rows import KernelOnRows
from learnkernels.kernels.solvers.conjugate_gradients import Preconditioner, solve_shifted
from learnkernels.kernels.targets import Target

TOLERANCE = 1e-8
"""Relative residual at which predictions agree with those of a factorisation to six digits."""

MOST_ITERATIONS = 1000

SKETCH = 1000
"""Most columns of the Gram matrix that the preconditioner is made from."""


@dataclass(frozen=True, eq=False, repr=False)
class ConjugateGradients(RowsPredictor):
    """Kernel ridge regression by conjugate gradients: the numbers of `KRR` without its matrix.

    Parameters
    ----------
    tolerance : float or None, default None
        Largest relative residual; None for 1e-8.
    seed : int or None, default None
        Of the columns that the preconditioner is made from; None for the caller's, or 0.

    Notes
    -----
    Some tens of passes over the pairs of m training rows and O(m) memory; see `ConjugateRidgePath`.
    """

    name = "krr-cg"
    summary = "kernel ridge regression by conjugate gradients"

    tolerance: float | None = None
    seed: int | None = None

    def fit(self, on: KernelOnRows, target: Target, grid: Sequence[float], fine: bool = False) -> ConjugateRidgePath:
        """Fit on rows."""
        tolerance = TOLERANCE if self.tolerance is None else self.tolerance
        seed = 0 if self.seed is None else self.seed
        return ConjugateRidgePath(on, target, grid, seed=seed, tolerance=tolerance)


class ConjugateRidgePath:
    r"""Kernel ridge regressions with an intercept, one a regularisation, from products with the Gram matrix alone.

    .. math:: \Bigl(D K_c D + \tfrac u\Lambda I\Bigr) \, D^{-1} \alpha_\Lambda = D (Y - \bar Y), \qquad
              h(x) = k_c(x)^\top \alpha_\Lambda + \bar Y

    with D the roots of the sample weights and u the mean diagonal of the kernel, or one if it was learned for a
    regularisation: the solutions of `KernelRidgePath`, for all regularisations and outputs at once; as there without
    intercept where the kernel is not centered.

    Attributes
    ----------
    kernel : LearnedKernel
        Over all training rows: ``kernel.cross_gram(X) @ dual + intercept`` are the predictions.
    dual : ndarray of shape (L, m, q)
    intercept : ndarray of shape (q,)
    unit : float
        u.
    solutions : ShiftedSolutions
        How conjugate gradients ended, with the residuals that were reached.
    notes : tuple of str
        What was done, for a log.
    """

    def __init__(
        self,
        on: KernelOnRows,
        target: Target,
        grid: Sequence[float],
        *,
        seed: int = 0,
        tolerance: float = TOLERANCE,
    ) -> None:
        """Fit.

        Parameters
        ----------
        on : KernelOnRows
            A learned kernel, a sum of base kernels of weights that are not negative, and m training rows.
        target : Target
            Of the training rows.
        grid : sequence of float
            Values of Lambda, ascending.
        seed : int, default 0
            Of the columns that the preconditioner is made from.
        tolerance : float, default 1e-8
            Largest relative residual.

        Raises
        ------
        ValueError
            The kernel is a power or has negative weights, or the tolerance is out of its range.

        Warns
        -----
        ConvergenceWarning
            The tolerance was not reached; the residual that was is named.

        Notes
        -----
        A step is one pass over the pairs of rows, O(m^2 (d + p + L q)) time, with the base kernels combined within a
        tile. The preconditioner is a Nystroem approximation of the matrix from up to `SKETCH` of its columns, whose
        eigenvectors serve all regularisations: O(m SKETCH^2) once. Memory O(m (SKETCH + L q)).
        """
        kernel = on.kernel
        if kernel.degree != 1 or kernel.indefinite:
            what = "has negative weights" if kernel.indefinite else f"is a power of degree {kernel.degree}"
            raise ValueError(
                f"predictor krr-cg serves sums of base kernels, and this kernel {what}; use krr or nystrom."
            )
        if not 0 < tolerance < 1:
            raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}.")
        self._target, w = target, on.sample_weight
        gram = CombinedGram(kernel.combination, on.source, on.workers)
        self.kernel = on.whole_kernel()
        row_means = self.kernel.row_means
        self.unit = 1.0
        if kernel.regularisation is None:
            self.unit = float(mean_over(gram.diagonal(), w) - mean_over(row_means, w))
        self.intercept = kernel.centering.target_mean(target.Y, w)
        centered = _CenteredGram(gram, row_means, on.shares, None if w is None else np.sqrt(w)[:, None])
        right = centered.rooted(target.Y - self.intercept)
        q = right.shape[1]
        self.solutions = solve_shifted(
            centered.matvec,
            np.tile(right, len(grid)),
            np.repeat(self.unit / np.asarray(grid), q),
            _preconditioner(centered, on, seed),
            tolerance=tolerance,
            most=MOST_ITERATIONS,
            progress=on.progress,
        )
        dual = centered.rooted(self.solutions.solutions)
        self.dual = np.ascontiguousarray(dual.reshape(on.n_rows, len(grid), q).transpose(1, 0, 2))
        self.notes = tell_of(self.solutions, grid, q)

    def coefficients(self, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return dual, shape (m, q), and intercept, shape (q,), at a position of the grid."""
        return self.dual[position], self.intercept

    def predict(self, K_cross: np.ndarray) -> np.ndarray:
        """Return predictions in the terms of the target, one row a regularisation."""
        return self.decode(K_cross @ self.dual + self.intercept)

    def decode(self, scores: np.ndarray) -> np.ndarray:
        """Return predictions from scores of each regularisation, shape (L, n, q)."""
        return self._target.decode(scores)

    def __len__(self) -> int:
        return len(self.dual)


class _CenteredGram:
    """``D H K H' D`` for the weights D^2 / W of the rows' mean, from products with K."""

    def __init__(self, gram: CombinedGram, row_means: np.ndarray, shares: np.ndarray, root: np.ndarray | None) -> None:
        self._gram, self._row_means, self._shares, self._root = gram, row_means, shares[:, None], root

    def rooted(self, V: np.ndarray) -> np.ndarray:
        """Return ``D V``."""
        return V if self._root is None else V * self._root

    def matvec(self, V: np.ndarray) -> np.ndarray:
        V = self.rooted(V)
        KV = self._gram.matvec(V - self._shares * V.sum(axis=0))
        return self.rooted(KV - (self._shares * KV).sum(axis=0))

    def columns(self, positions: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return some columns, those of `positions`, whose rows are `rows`, shape (m, s)."""
        K = self._gram.columns(rows)
        K -= self._row_means[:, None]
        K -= self._row_means[positions] - float(self._shares[:, 0] @ self._row_means)
        if self._root is not None:
            K *= self._root
            K *= self._root[positions, 0]
        return K


def _preconditioner(gram: _CenteredGram, on: KernelOnRows, seed: int) -> Preconditioner:
    """Return a preconditioner from some columns of the matrix."""
    size = min(SKETCH, max(1, on.n_rows // 4))
    positions = uniform_landmarks(on.n_rows, size, np.random.default_rng(seed)).positions
    C = gram.columns(positions, on.take(positions)[0])
    return Preconditioner.of_columns(C, C[positions])
