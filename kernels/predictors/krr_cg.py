"""Kernel ridge regression by conjugate gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base import report_progress, warn_caller
from ..centering import mean_over, subtract_means
from ..engine.combination import CombinedGram
from ..families.base import distinct_rows
from ..learned_kernel import LearnedKernel
from ..solvers.conjugate_gradients import (
    Preconditioner,
    Progress,
    ShiftedSolutions,
    solve_shifted,
)
from ..targets import Target
from .base import Predictor, RegularizationPath, TrainingSet

MOST_ITERATIONS = 1000

STORED_TOLERANCE = 1e-2
"""Smallest tolerance for which the Gram matrix is stored."""

CODED = 2.0**-16
"""Relative error of kernel values stored in 16 bits."""

ROUNDED = 2.0**-23
"""Relative error of kernel values stored in float32."""

SINGLE = 2.0**-20
"""Relative error of kernel values computed in float32."""

SINGLE_TOLERANCE = 1e-4
"""Smallest tolerance for matrix products in float32."""


@dataclass(frozen=True, eq=False, repr=False)
class ConjugateGradients(Predictor):
    r"""Kernel ridge regression by conjugate gradients, without the Gram matrix.

    .. math:: \Bigl(D K_c D + \tfrac u C I\Bigr) \, D^{-1} \alpha_C = D (Y - \bar Y), \qquad
              h(x) = k_c(x)^\top \alpha_C + \bar Y

    where D are the roots of the sample weights and u is the mean diagonal of the
    kernel, or one if the kernel was learned with a C. Without centering there is no
    intercept.

    Parameters
    ----------
    tol : float or None, default None
        Largest relative residual; None for 1e-8.
    random_state : int or None, default None
        Random seed of the preconditioner; None uses the estimator's `random_state`.

    Notes
    -----
    Each step is a pass over all pairs of m training rows, O(m^2 (d + p + L q)) for L
    values of C and q outputs. The preconditioner is a Nystroem approximation from at
    most 1,000 columns. With a tolerance of 0.01 or more, the matrix is stored, up to 3
    GB, in 16 bits per value or, for small ridges, in float32.
    """

    name = "krr-cg"
    summary = "kernel ridge regression by conjugate gradients"
    by_rows = True
    loss = "squared"

    tol: float | None = None
    random_state: int | None = None

    def fit(
        self,
        training: TrainingSet,
        target: Target,
        grid: Sequence[float],
        *,
        fine: bool = False,
    ) -> RegularizationPath:
        self.check(target.task)
        _require_positive_sum(training.kernel)
        tolerance = 1e-8 if self.tol is None else self.tol
        seed = self.random_state or 0
        system = _RidgeSystem(training, target, grid, tolerance)
        report_progress(f"means of the kernel over {training.n_rows:,} rows")
        precondition = system.preconditioner(seed)
        start = None
        steps_before = 0
        held_out = None
        if fine and len(grid) == 1:
            rows = held_out_rows(training, target, seed)
            others = system.solve_without(rows, precondition)
            products = system.matvec(others.solutions)
            held_out = rows, system.scores_without(rows, products)
            start = (
                others.solutions,
                system.right - products - others.solutions * system.shifts,
            )
            steps_before = others.iterations
        solutions = solve_shifted(
            system.matvec,
            system.right,
            system.shifts,
            precondition,
            tolerance=tolerance,
            max_iter=MOST_ITERATIONS,
            progress=_continued(training.progress, steps_before),
            start=start,
        )
        m, q = target.Y.shape
        dual = (
            (system.root * solutions.solutions)
            .reshape(m, len(grid), q)
            .transpose(1, 0, 2)
        )
        return RegularizationPath(
            target,
            np.ascontiguousarray(dual),
            system.mean,
            system.kernel,
            notes=(convergence_note(solutions, np.repeat(grid, q)),),
            solutions=solutions,
            held_out=None if held_out is None else lambda: held_out,
        )


def _require_positive_sum(kernel: LearnedKernel) -> None:
    if kernel.indefinite:
        obstacle = "has negative weights"
    elif kernel.is_weighted_sum:
        return
    elif kernel.degree == 1:
        obstacle = f"has an offset of {kernel.offset:g}"
    else:
        obstacle = f"is a power of degree {kernel.degree}"
    raise ValueError(
        f"predictor krr-cg serves sums of base kernels, and this kernel {obstacle}; use krr or nystroem."
    )


def _continued(progress: Progress | None, steps_before: int) -> Progress | None:
    """Return a progress function that counts earlier steps."""
    if progress is None:
        return None
    return lambda step, residual: progress(steps_before + step, residual)


class _RidgeSystem:
    """Systems ``(D K_c D + s I) x = D (Y - mean)``, one column per C and output."""

    def __init__(
        self,
        training: TrainingSet,
        target: Target,
        grid: Sequence[float],
        tolerance: float,
    ) -> None:
        weights = training.sample_weight
        self.training = training
        self.tol = tolerance
        self.gram = CombinedGram(
            training.kernel.combination, training.source, training.workers
        )
        self.shares = training.shares[:, None]
        self.root = np.ones((training.n_rows, 1))
        if weights is not None:
            self.root = np.sqrt(weights)[:, None]
        kernel = training.kernel
        self.mean = kernel.centering.target_mean(target.Y, weights)
        # Rows on which the kernel was learned suffice for the precision.
        mean_diagonal = self._mean_diagonal(kernel)
        self.dtype = self._choose_precision(mean_diagonal / max(grid))
        if not training.own:
            # This product also stores blocks.
            row_means = self.gram.matvec(self.shares, self.dtype)[:, 0]
            kernel = training.kernel_with_means(row_means)
            mean_diagonal = self._mean_diagonal(kernel)
        self.kernel = kernel
        self.right = np.tile(self.root * (target.Y - self.mean), len(grid))
        self.shifts = np.repeat(mean_diagonal / np.asarray(grid), target.Y.shape[1])

    def _mean_diagonal(self, kernel: LearnedKernel) -> float:
        """Return the mean diagonal; one if learned with a C."""
        if kernel.C is not None:
            return 1.0
        diagonal = mean_over(self.gram.diagonal(), self.training.sample_weight)
        return float(diagonal - mean_over(kernel.row_means, kernel.sample_weight))

    def _choose_precision(self, least_ridge: float) -> type:
        """Return the type for products; store blocks if precise enough."""
        if self.tol < SINGLE_TOLERANCE:
            return np.float64
        stores = self.tol >= STORED_TOLERANCE
        if self._tolerates(CODED, least_ridge):
            if stores:
                self.gram.store(np.int16)
            return np.float32
        if (
            stores
            and self._tolerates(ROUNDED, least_ridge)
            and self.gram.store(np.float32)
        ):
            return np.float32
        return np.float32 if self._tolerates(SINGLE, least_ridge) else np.float64

    def _tolerates(self, precision: float, ridge: float) -> bool:
        """Return whether the system stays definite with these relative errors."""
        # Errors up to h / 2 are a random matrix of spectral norm h sqrt(m / 3).
        step = precision * float(
            np.abs(self.training.kernel.combination.coefficients).sum()
        )
        return ridge >= 2.0 * step * np.sqrt(self.training.n_rows / 3.0)

    def matvec(self, V: np.ndarray) -> np.ndarray:
        """Return ``D H K H' D V``; H subtracts the mean."""
        V = self.root * V
        KV = self.gram.matvec(V - self.shares * V.sum(axis=0), self.dtype)
        return np.asarray(self.root * (KV - (self.shares * KV).sum(axis=0)))

    def preconditioner(self, seed: int) -> Preconditioner:
        m = len(self.root)
        drawn = np.sort(
            np.random.default_rng(seed).choice(m, n_sketched(m), replace=False)
        )
        row_means = self.kernel.row_means
        columns = self.gram.columns(self.training.take(drawn)[0], self.dtype)
        C = columns.astype(np.float64, copy=False)
        report_progress(f"{len(drawn):,} columns of the matrix")
        subtract_means(
            C, row_means, row_means[drawn], float(self.shares[:, 0] @ row_means), out=C
        )
        C *= self.root
        C *= self.root[drawn, 0]
        preconditioner = Preconditioner(C, C[drawn])
        report_progress("preconditioner of these columns")
        return preconditioner

    def solve_without(
        self, rows: np.ndarray, precondition: Preconditioner
    ) -> ShiftedSolutions:
        """Return solutions without some rows, zero for these."""
        is_included = np.ones_like(self.root)
        is_included[rows] = 0.0
        precondition_others = precondition.without(rows)
        intercept = self._intercept_without(rows, self.right)
        return solve_shifted(
            lambda V: is_included * self._center_without(rows, self.matvec(V)),
            is_included * (self.right - self.root * intercept),
            self.shifts,
            lambda R, shifts: (
                is_included * self._center_without(rows, precondition_others(R, shifts))
            ),
            tolerance=2.0 * self.tol,
            progress=self.training.progress,
            max_iter=MOST_ITERATIONS,
        )

    def scores_without(self, rows: np.ndarray, products: np.ndarray) -> np.ndarray:
        residuals = self.right
        if self.kernel.centering.subtracts:
            residuals = residuals - products
        intercept = self._intercept_without(rows, residuals) + self.mean
        return np.asarray(products[rows] / self.root[rows] + intercept)

    def _center_without(self, rows: np.ndarray, V: np.ndarray) -> np.ndarray:
        if not self.kernel.centering.subtracts:
            return V
        return V - self.root * self._intercept_without(rows, V)

    def _intercept_without(self, rows: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Return the mean of ``V / root``."""
        if not self.kernel.centering.intercept:
            return np.zeros(V.shape[1])
        root = self.root[:, 0].copy()
        root[rows] = 0.0
        return np.asarray(root @ V / np.square(root).sum())


def n_sketched(m: int) -> int:
    """Return the preconditioner's number of columns: at most 1,000, or 384 MB."""
    return max(1, min(1000, m // 4, 48_000_000 // m))


def held_out_rows(training: TrainingSet, target: Target, seed: int) -> np.ndarray:
    """Return validation rows: a random fifth or 1,000, or the last by time.

    If enough rows remain, two groups or times and all classes are held out.
    """
    row_groups = target.row_groups
    classes = None
    if target.task == "classification":
        classes = target.values
    if row_groups is not None and row_groups.ordered:
        return _latest_rows(row_groups.numbers, classes)
    rng = np.random.default_rng(seed)
    if row_groups is None:
        _, unit_of_row = distinct_rows(training.take()[0])
        n_units = int(unit_of_row.max()) + 1
        is_drawn = np.zeros(n_units, dtype=bool)
        n_drawn = min(1000, -(-n_units // 5))
        is_drawn[rng.choice(n_units, n_drawn, replace=False)] = True
        _draw_missing_classes(is_drawn, unit_of_row, classes, rng)
        return np.flatnonzero(is_drawn[unit_of_row])
    _, group_of_row = np.unique(row_groups.numbers, return_inverse=True)
    return _drawn_groups(group_of_row, classes, rng)


def _latest_rows(times: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    """Return the last 1,000 rows or fifth, or up to half for two times and all classes."""
    in_order = np.sort(times)
    n_held_out = min(1000, -(-len(times) // 5))
    earliest = max(in_order[-n_held_out], in_order[0] + 1)
    earliest_times = [np.unique(times)[-2]]
    if classes is not None:
        earliest_times += [
            times[classes == label].max() for label in np.unique(classes)
        ]
    for time in sorted(earliest_times, reverse=True):
        if time > in_order[0] and (times >= time).sum() <= len(times) / 2:
            earliest = min(earliest, time)
    return np.flatnonzero(times >= earliest)


def _drawn_groups(
    group_of_row: np.ndarray, classes: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    """Draw rows of a fifth of the groups, of four at least two."""
    n_groups = int(group_of_row.max()) + 1
    n_drawn = min(1000, -(-n_groups // 5), max(1, 1000 * n_groups // len(group_of_row)))
    if n_groups >= 4:
        n_drawn = max(2, n_drawn)
    is_drawn = np.zeros(n_groups, dtype=bool)
    is_drawn[rng.choice(n_groups, n_drawn, replace=False)] = True
    _draw_missing_classes(is_drawn, group_of_row, classes, rng)
    return np.flatnonzero(is_drawn[group_of_row])


def _draw_missing_classes(
    is_drawn: np.ndarray,
    group_of_row: np.ndarray,
    classes: np.ndarray | None,
    rng: np.random.Generator,
) -> None:
    if classes is None:
        return
    for label in np.unique(classes):
        groups = np.unique(group_of_row[classes == label])
        if len(groups) > 1 and not is_drawn[groups].any():
            is_drawn[rng.choice(groups)] = True


def convergence_note(solutions: ShiftedSolutions, values: np.ndarray) -> str:
    """Return a note on convergence; warn if above the tolerance."""
    worst = int(solutions.residuals.argmax())
    residual = float(solutions.residuals[worst])
    if solutions.converged:
        steps = (
            "1 step" if solutions.iterations == 1 else f"{solutions.iterations} steps"
        )
        return f"conjugate gradients: {steps} to a relative residual of {residual:.1e}"
    # Imported here because it imports pandas.
    from sklearn.exceptions import ConvergenceWarning

    text = (
        f"conjugate gradients ended after {solutions.iterations} steps at a relative residual of {residual:.1e}, for "
        f"C = {values[worst]:g}, above the tolerance of {solutions.tolerance:g}; use a smaller C, or a "
        "larger tolerance."
    )
    warn_caller(text, ConvergenceWarning)
    return text
