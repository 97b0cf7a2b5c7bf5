"""Conjugate gradients for many right-hand sides and shifts at once."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, cho_solve

from .factor import Factor, factored

MAX_RESTARTS = 4
"""Largest number of searches, each from a recomputed residual."""

STALLED_STEPS = 40

STALLED_WORK = 200_000

Progress = Callable[[int, float], None]
"""Function of the number of steps and the largest relative residual."""


class Preconditioner:
    r"""Approximation of :math:`(A + s I)^{-1}` for every s, from r columns C of A.

    By the Woodbury identity (Frangella, Tropp, Udell, 2023). W holds the rows of C at
    the same positions; overwrites C, in C order. O(2 n r^2), and O(r^3 / 3) per shift.
    """

    def __init__(self, C: np.ndarray, W: np.ndarray) -> None:
        lower, _ = factored(W, 1e-10)
        self._F = blas.dtrsm(1.0, lower, C.T, lower=1, overwrite_b=1).T
        self._products = self._F.T @ self._F
        self._factors: dict[float, Factor] = {}

    def without(self, rows: np.ndarray) -> Preconditioner:
        """Return the preconditioner for vectors that are zero in `rows`."""
        other = copy(self)
        omitted = self._F[rows]
        other._products = self._products - omitted.T @ omitted
        other._factors = {}
        return other

    def __call__(self, R: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        """Apply the preconditioner to the columns of R, each with its shift."""
        projections = self._F.T @ R
        for shift in np.unique(shifts):
            if shift not in self._factors:
                self._factors[shift] = factored(
                    self._products, shift / float(self._products.diagonal().max())
                )
            columns = shifts == shift
            projections[:, columns] = cho_solve(
                self._factors[shift], projections[:, columns], check_finite=False
            )
        return np.asarray((R - self._F @ projections) / shifts)


@dataclass(frozen=True)
class ShiftedSolutions:
    """Solutions of shifted systems, their residuals ``b - (A + shift I) x``, and relative norms."""

    solutions: np.ndarray
    remainders: np.ndarray
    residuals: np.ndarray
    iterations: int
    tolerance: float

    @property
    def converged(self) -> bool:
        return bool((self.residuals <= self.tolerance).all())


def solve_shifted(
    apply: Callable[[np.ndarray], np.ndarray],
    B: np.ndarray,
    shifts: np.ndarray,
    precondition: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    tolerance: float,
    max_iter: int,
    progress: Progress | None = None,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> ShiftedSolutions:
    """Solve the systems :math:`(A + s_j I) x_j = b_j` by conjugate gradients.

    ``apply(V)`` is ``A @ V`` for positive semi-definite A, and `precondition` an
    approximate solution. `start` has solutions and residuals. A search restarts while
    its true residual improves.
    """
    if start is None:
        X = np.zeros_like(B)
        R = B.copy()
    else:
        X = start[0].copy()
        R = start[1].copy()
    norms = np.linalg.norm(B, axis=0)
    norms[norms == 0] = 1.0
    residuals = np.linalg.norm(R, axis=0) / norms
    steps = 0
    for _ in range(MAX_RESTARTS):
        columns = np.flatnonzero(residuals > tolerance)
        if not len(columns) or steps >= max_iter:
            break
        previous = residuals[columns]
        steps, X[:, columns] = _search(
            apply,
            X[:, columns],
            R[:, columns],
            shifts[columns],
            precondition,
            norms[columns],
            tolerance,
            steps,
            max_iter,
            progress,
        )
        R[:, columns] = (
            B[:, columns] - apply(X[:, columns]) - X[:, columns] * shifts[columns]
        )
        residuals[columns] = np.linalg.norm(R[:, columns], axis=0) / norms[columns]
        if (residuals[columns] > 0.5 * previous).all():
            break
    return ShiftedSolutions(X, R, residuals, steps, tolerance)


def _search(
    apply: Callable[[np.ndarray], np.ndarray],
    X: np.ndarray,
    R: np.ndarray,
    shifts: np.ndarray,
    precondition: Callable[[np.ndarray, np.ndarray], np.ndarray],
    norms: np.ndarray,
    tolerance: float,
    step: int,
    max_steps: int,
    progress: Progress | None,
) -> tuple[int, np.ndarray]:
    """Return the number of steps and the best solutions."""
    best = X.copy()
    best_residuals = np.linalg.norm(R, axis=0) / norms
    columns = np.arange(X.shape[1])  # positions of the columns of X, R and P
    stalled_steps = 0
    # Few rows may need a step each.
    most_stalled_steps = max(STALLED_STEPS, min(len(R), STALLED_WORK // len(R)))
    Z = precondition(R, shifts)
    P = Z.copy()
    rho = np.einsum("ij,ij->j", R, Z)
    while step < max_steps and len(columns) and stalled_steps < most_stalled_steps:
        step += 1
        Q = apply(P) + P * shifts[columns]
        curvature = np.einsum("ij,ij->j", P, Q)
        is_positive = (curvature > 0) & (rho > 0)
        alpha = np.divide(rho, curvature, out=np.zeros_like(rho), where=is_positive)
        X = X + alpha * P
        R = R - alpha * Q
        residuals = np.linalg.norm(R, axis=0) / norms[columns]
        is_better = residuals < best_residuals[columns]
        stalled_steps += 1
        if (residuals < 0.9 * best_residuals[columns]).any():
            stalled_steps = 0
        best[:, columns[is_better]] = X[:, is_better]
        best_residuals[columns[is_better]] = residuals[is_better]
        if progress is not None:
            progress(step, float(best_residuals.max()))
        is_open = is_positive & (residuals > 0.5 * tolerance)
        columns = columns[is_open]
        X = X[:, is_open]
        R = R[:, is_open]
        P = P[:, is_open]
        previous_rho = rho[is_open]
        if len(columns):
            Z = precondition(R, shifts[columns])
            rho = np.einsum("ij,ij->j", R, Z)
            P = Z + P * (rho / previous_rho)
    return step, best
