"""Kernel ridge regression on many rows by conjugate gradients: exact to a residual, and no matrix of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from learnkernels.kernels.centering import mean_over
from learnkernels.kernels.engine.combined_gram import CombinedGram
from learnkernels.kernels.families.base import distinct_rows
from learnkernels.kernels.predictors.base import Fitted, LinearPath, RowsPredictor
from learnkernels.kernels.predictors.landmarks import uniform_landmarks
from learnkernels.kernels.predictors.nystrom import tell_of
from learnkernels.kernels.predictors.rows import KernelOnRows
from learnkernels.kernels.solvers.conjugate_gradients import Preconditioner, solve_shifted
from learnkernels.kernels.targets import Target

TOLERANCE = 1e-8
"""Relative residual at which predictions agree with those of a factorisation to six digits."""

MOST_ITERATIONS = 1000

SKETCH = 2000
"""Most columns of the Gram matrix that the preconditioner is made from."""

SKETCH_VALUES = 48_000_000
"""Most values of these columns: 384 MB."""

SINGLE = 1e-4
"""Tolerance from which on products with the Gram matrix are taken in float32, which keeps six digits."""

HELD_OUT = 1000
"""Most rows that tell how scores of new rows err, of a regression that was not yet told their targets."""


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
    loss: ClassVar[str] = "squared"

    tolerance: float | None = None
    seed: int | None = None

    def fit(self, on: KernelOnRows, target: Target, grid: Sequence[float], fine: bool = False) -> ConjugateRidgePath:
        """Fit on rows."""
        return self._path(on, target, grid)

    def fit_on(self, on: KernelOnRows, target: Target, grid: Sequence[float], *, fine: bool = False) -> Fitted:
        """Fit on rows; one regularisation whose scores are shown first without some rows, which tell how they err."""
        if not fine or len(grid) > 1:
            return super().fit_on(on, target, grid, fine=fine)
        held_out = held_out_rows(on, self.seed or 0)
        path = self._path(on, target, grid, held_out)
        return Fitted(path.kernel, 1.0, path, None, path.notes, lambda: (held_out, path.held_out_scores))

    def _path(
        self, on: KernelOnRows, target: Target, grid: Sequence[float], held_out: np.ndarray | None = None
    ) -> ConjugateRidgePath:
        tolerance = TOLERANCE if self.tolerance is None else self.tolerance
        return ConjugateRidgePath(on, target, grid, seed=self.seed or 0, tolerance=tolerance, held_out=held_out)


def held_out_rows(on: KernelOnRows, seed: int) -> np.ndarray:
    """Return positions of training rows, a fifth of all and at most about `HELD_OUT`, with all their copies."""
    first, which = distinct_rows(on.take(np.arange(on.n_rows))[0])
    n = min(HELD_OUT, -(-len(first) // 5))
    some = np.random.default_rng(seed).choice(len(first), n, replace=False)
    return np.flatnonzero(np.isin(which, some))


class ConjugateRidgePath(LinearPath):
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
    held_out_scores : ndarray of shape (n, L q)
        Of the rows that were held out, by the regression without them.
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
        held_out: np.ndarray | None = None,
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
        held_out : ndarray of int, optional
            Positions of rows that have no part in a first regression, from which the one of all rows begins.

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
        tile. The preconditioner is a Nystroem approximation of the matrix from up to `SKETCH` of its columns:
        O(m SKETCH^2) once, and O(SKETCH^3) for each regularisation. Memory O(m (SKETCH + L q)).
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
        dtype = np.float32 if tolerance >= SINGLE else np.float64
        centered = _CenteredGram(gram, row_means, on.shares, None if w is None else np.sqrt(w)[:, None], dtype)
        q, shifts = target.Y.shape[1], np.repeat(self.unit / np.asarray(grid), target.Y.shape[1])
        precondition = _preconditioner(centered, on, seed)
        right, start, steps = np.tile(centered.rooted(target.Y - self.intercept), len(grid)), None, 0
        if held_out is not None:
            kept = np.ones((on.n_rows, 1))
            kept[held_out] = 0.0
            of_others = precondition.without(held_out)
            without = solve_shifted(
                lambda V: kept * centered.matvec(V),
                kept * right,
                shifts,
                lambda R, of: kept * of_others(R, of),
                tolerance=2.0 * tolerance,
                progress=on.progress,
                most=MOST_ITERATIONS,
            )
            steps, products = without.iterations, centered.matvec(without.solutions)
            roots = 1.0 if centered.root is None else centered.root[held_out]
            self.held_out_scores = products[held_out] / roots + self.intercept
            start = without.solutions, right - products - without.solutions * shifts
        progress = on.progress
        self.solutions = solve_shifted(
            centered.matvec,
            right,
            shifts,
            precondition,
            tolerance=tolerance,
            most=MOST_ITERATIONS,
            progress=None if progress is None else lambda step, worst: progress(steps + step, worst),
            start=start,
        )
        dual = centered.rooted(self.solutions.solutions)
        self.dual = np.ascontiguousarray(dual.reshape(on.n_rows, len(grid), q).transpose(1, 0, 2))
        self.notes = tell_of(self.solutions, grid, q)


class _CenteredGram:
    """``D H K H' D`` for the weights D^2 / W of the rows' mean, from products with K in a precision."""

    def __init__(
        self, gram: CombinedGram, row_means: np.ndarray, shares: np.ndarray, root: np.ndarray | None, dtype: Any
    ) -> None:
        self._gram, self._row_means, self._shares = gram, row_means, shares[:, None]
        self.root, self._dtype = root, dtype

    def rooted(self, V: np.ndarray) -> np.ndarray:
        """Return ``D V``."""
        return V if self.root is None else V * self.root

    def matvec(self, V: np.ndarray) -> np.ndarray:
        V = self.rooted(V)
        KV = self._gram.matvec(V - self._shares * V.sum(axis=0), self._dtype)
        return self.rooted(KV - (self._shares * KV).sum(axis=0))

    def columns(self, positions: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return some columns, those of `positions`, whose rows are `rows`, shape (m, s)."""
        K = self._gram.columns(rows)
        K -= self._row_means[:, None]
        K -= self._row_means[positions] - float(self._shares[:, 0] @ self._row_means)
        if self.root is not None:
            K *= self.root
            K *= self.root[positions, 0]
        return K


def sketched(m: int) -> int:
    """Return how many columns of the matrix of m rows the preconditioner is made from."""
    return max(1, min(SKETCH, m // 4, SKETCH_VALUES // m))


def _preconditioner(gram: _CenteredGram, on: KernelOnRows, seed: int) -> Preconditioner:
    """Return a preconditioner from some columns of the matrix."""
    positions = uniform_landmarks(on.n_rows, sketched(on.n_rows), np.random.default_rng(seed)).positions
    C = gram.columns(positions, on.take(positions)[0])
    return Preconditioner(C, C[positions])
