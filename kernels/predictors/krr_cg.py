"""Kernel ridge regression on many rows by conjugate gradients, to a residual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..centering import mean_over, subtract_means
from ..engine.combination import CombinedGram
from ..families.base import distinct_rows
from ..parameters import warn_caller
from ..solvers.conjugate_gradients import Preconditioner, ShiftedSolutions, solve_shifted
from ..targets import Target
from .base import Predictor, RegularizationPath, TrainingSet

TOLERANCE = 1e-8
"""Relative residual at which predictions agree with those of a factorization to six digits."""

MOST_ITERATIONS = 1000

SKETCH = 2000
"""Most columns of the Gram matrix that the preconditioner is made from."""

SKETCH_VALUES = 48_000_000
"""Most values of these columns: 384 MB."""

SINGLE = 1e-4
"""Tolerance from which on products with the Gram matrix are taken in float32, which keeps six digits."""

COARSE = 1e-2
"""Tolerance from which on the Gram matrix is stored in 16 bits a value, as far as there is room."""

HELD_OUT = 1000
"""Most held-out rows whose scores calibrate probabilities and intervals."""


@dataclass(frozen=True, eq=False, repr=False)
class ConjugateGradients(Predictor):
    r"""Kernel ridge regression by conjugate gradients: the numbers of `KRR` without its matrix.

    .. math:: \Bigl(D K_c D + \tfrac u\Lambda I\Bigr) \, D^{-1} \alpha_\Lambda = D (Y - \bar Y), \qquad
              h(x) = k_c(x)^\top \alpha_\Lambda + \bar Y

    with D the roots of the sample weights and u the mean diagonal of the kernel, or one if it was learned for a
    regularization: for all regularizations and outputs at once. There is no intercept where the kernel is not centered.

    Parameters
    ----------
    tolerance : float or None, default None
        Largest relative residual; None for 1e-8.
    seed : int or None, default None
        Of the columns that the preconditioner is made from; None for the caller's, or 0.

    Notes
    -----
    Some tens of passes over the pairs of m training rows. A step is one pass, O(m^2 (d + p + L q)) time, with the base
    kernels combined within a tile. The preconditioner is a Nystroem approximation of the matrix from up to `SKETCH` of
    its columns: O(m SKETCH^2) once, and O(SKETCH^3) for each regularization. Memory O(m (SKETCH + L q)). For a
    tolerance of at least `COARSE` the first pass stores the matrix, in at most `STORED_BYTES`, for the others. Scores
    of rows that are held out are those of a regression without them, from which that of all rows begins.
    """

    name = "krr-cg"
    summary = "kernel ridge regression by conjugate gradients"
    by_rows = True
    loss = "squared"

    tolerance: float | None = None
    seed: int | None = None

    def fit(
        self, training: TrainingSet, target: Target, grid: Sequence[float], *, fine: bool = False
    ) -> RegularizationPath:
        """Fit on rows.

        Raises
        ------
        ValueError
            The kernel is a power or has negative weights, or the tolerance is out of its range.

        Warns
        -----
        ConvergenceWarning
            The tolerance was not reached; the residual that was is named.
        """
        self.check(target.task)
        kernel, m, q = training.kernel, training.n_rows, target.Y.shape[1]
        if kernel.indefinite or not kernel.is_weighted_sum:
            what = f"is a power of degree {kernel.degree}"
            if kernel.degree == 1:
                what = f"has an offset of {kernel.offset:g}"
            if kernel.indefinite:
                what = "has negative weights"
            raise ValueError(
                f"predictor krr-cg serves sums of base kernels, and this kernel {what}; use krr or nystrom."
            )
        tolerance, seed = TOLERANCE if self.tolerance is None else self.tolerance, self.seed or 0
        gram = CombinedGram(kernel.combination, training.source, training.workers, stored=tolerance >= COARSE)
        kernel, w, unit = training.whole_kernel(), training.sample_weight, 1.0
        if kernel.C is None:
            unit = float(mean_over(gram.diagonal(), w) - mean_over(kernel.row_means, w))
        mean = kernel.centering.target_mean(target.Y, w)
        root, shares = np.ones((m, 1)) if w is None else np.sqrt(w)[:, None], training.shares[:, None]
        dtype = np.float32 if tolerance >= SINGLE else np.float64

        def centered(V: np.ndarray) -> np.ndarray:
            """Return ``D H K H' D V``."""
            V = root * V
            KV = gram.matvec(V - shares * V.sum(axis=0), dtype)
            return np.asarray(root * (KV - (shares * KV).sum(axis=0)))

        drawn = np.sort(np.random.default_rng(seed).choice(m, n_sketched(m), replace=False))
        C = gram.columns(training.take(drawn)[0])  # of the same matrix
        subtract_means(C, kernel.row_means, kernel.row_means[drawn], float(shares[:, 0] @ kernel.row_means), out=C)
        C *= root
        C *= root[drawn, 0]
        precondition = Preconditioner(C, C[drawn])
        right, shifts = np.tile(root * (target.Y - mean), len(grid)), np.repeat(unit / np.asarray(grid), q)
        start, steps, held_out = None, 0, None
        if fine and len(grid) == 1:
            rows, kept = held_out_rows(training, seed), np.ones((m, 1))
            kept[rows] = 0.0
            of_others = precondition.without(rows)
            without = solve_shifted(
                lambda V: kept * centered(V),
                kept * right,
                shifts,
                lambda R, of: kept * of_others(R, of),
                tolerance=2.0 * tolerance,
                progress=training.progress,
                most=MOST_ITERATIONS,
            )
            steps, products = without.iterations, centered(without.solutions)
            held_out = rows, products[rows] / root[rows] + mean
            start = without.solutions, right - products - without.solutions * shifts
        progress = training.progress
        found = solve_shifted(
            centered,
            right,
            shifts,
            precondition,
            tolerance=tolerance,
            most=MOST_ITERATIONS,
            progress=None if progress is None else lambda step, worst: progress(steps + step, worst),
            start=start,
        )
        dual = (root * found.solutions).reshape(m, len(grid), q).transpose(1, 0, 2)
        return RegularizationPath(
            target,
            np.ascontiguousarray(dual),
            mean,
            kernel,
            notes=(convergence_note(found, np.repeat(grid, q)),),
            solutions=found,
            held_out=None if held_out is None else lambda: held_out,
        )


def n_sketched(m: int) -> int:
    """Return how many columns of the matrix of m rows the preconditioner is made from."""
    return max(1, min(SKETCH, m // 4, SKETCH_VALUES // m))


def held_out_rows(training: TrainingSet, seed: int) -> np.ndarray:
    """Return positions of training rows, a fifth of all and at most about `HELD_OUT`, with all their copies."""
    first, which = distinct_rows(training.take()[0])
    n = min(HELD_OUT, -(-len(first) // 5))
    some = np.random.default_rng(seed).choice(len(first), n, replace=False)
    return np.flatnonzero(np.isin(which, some))


def convergence_note(solutions: ShiftedSolutions, values: np.ndarray) -> str:
    """Return a sentence about how conjugate gradients ended, and warn where the tolerance was not reached.

    Parameters
    ----------
    solutions : ShiftedSolutions
        A column for each value and output.
    values : ndarray of shape (c,)
        C of each column.
    """
    worst = int(solutions.residuals.argmax())
    reached = float(solutions.residuals[worst])
    if solutions.converged:
        steps = "1 step" if solutions.iterations == 1 else f"{solutions.iterations} steps"
        return f"conjugate gradients: {steps} to a relative residual of {reached:.1e}"
    from sklearn.exceptions import ConvergenceWarning  # here, because it brings pandas along

    text = (
        f"conjugate gradients ended after {solutions.iterations} steps at a relative residual of {reached:.1e}, for "
        f"C = {values[worst]:g}, above the tolerance of {solutions.tolerance:g}; use a smaller C, or a "
        "larger tolerance."
    )
    warn_caller(text, ConvergenceWarning)
    return text
