"""Conjugate gradients for many right-hand sides and shifts at once, each stopped by its own residual."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, cho_solve

from .factor import Factor, factored

RESTARTS = 4
"""Times that the residual is computed again and the search begun again from the solution so far."""

STALLED = 40
"""Steps in which no column's least residual may fail to fall by a tenth before the search ends."""

Progress = Callable[[int, float], None]
"""Told the number of steps and the largest relative residual so far."""


JITTER = 1e-10
"""Added to the diagonal of columns' own rows, relative to its largest entry."""


class Preconditioner:
    r"""About :math:`(A + s I)^{-1}` for every shift s, from some columns C of A, and W of their own rows.

    .. math:: (F F^\top + s I)^{-1} = \frac 1 s \left( I - F (F^\top F + s I)^{-1} F^\top \right), \qquad
              F = C L^{-\top}, \qquad L L^\top = W

    Parameters
    ----------
    C : ndarray of shape (n, r)
        In C order. Overwritten.
    W : ndarray of shape (r, r)
        Positive semi-definite. Not modified.

    Notes
    -----
    2 n r^2 flops, and r^3 / 3 for each shift when it is first met.

    References
    ----------
    Frangella, Tropp, Udell (2023), Randomized Nystroem Preconditioning, SIAM Journal on Matrix Analysis and
    Applications 44:718-752, with columns in place of random projections.
    """

    def __init__(self, C: np.ndarray, W: np.ndarray) -> None:
        lower, _ = factored(W, JITTER)
        self._F = blas.dtrsm(1.0, lower, C.T, lower=1, overwrite_b=1).T
        self._products = self._F.T @ self._F
        self._factors: dict[float, Factor] = {}

    def without(self, rows: np.ndarray) -> Preconditioner:
        """Return the same of A without some rows and columns, for vectors that are zero there."""
        other, part = copy(self), self._F[rows]
        other._products, other._factors = self._products - part.T @ part, {}
        return other

    def __call__(self, R: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        """Return the product with the columns of R, shape (n, c), each with its shift."""
        inside = self._F.T @ R
        for shift in np.unique(shifts):
            if shift not in self._factors:
                self._factors[shift] = factored(self._products, shift / float(self._products.diagonal().max()))
            own = shifts == shift
            inside[:, own] = cho_solve(self._factors[shift], inside[:, own], check_finite=False)
        return np.asarray((R - self._F @ inside) / shifts)


@dataclass(frozen=True)
class ShiftedSolutions:
    """Solutions of ``(A + shift_j I) x_j = b_j``.

    Attributes
    ----------
    solutions : ndarray of shape (n, c)
    remainders : ndarray of shape (n, c)
        ``b - (A + shift I) x``, computed from the solution.
    residuals : ndarray of shape (c,)
        Their 2-norms over those of the right-hand sides; zero for a zero right-hand side.
    iterations : int
        Products with A, without those for residuals.
    tolerance : float
        What was requested.
    """

    solutions: np.ndarray
    remainders: np.ndarray
    residuals: np.ndarray
    iterations: int
    tolerance: float

    @property
    def converged(self) -> bool:
        """Whether every residual is within the tolerance."""
        return bool((self.residuals <= self.tolerance).all())


def solve_shifted(
    apply: Callable[[np.ndarray], np.ndarray],
    B: np.ndarray,
    shifts: np.ndarray,
    precondition: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    tolerance: float,
    most: int,
    progress: Progress | None = None,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> ShiftedSolutions:
    r"""Return the solutions of :math:`(A + s_j I) x_j = b_j`, a column j each, for one product with A a step.

    Parameters
    ----------
    apply : callable
        ``apply(V)`` is ``A @ V`` for V of shape (n, k); A symmetric and positive semi-definite.
    B : ndarray of shape (n, c)
        Right-hand sides. Not modified.
    shifts : ndarray of shape (c,)
        s, positive.
    precondition : callable
        ``precondition(R, shifts)`` is an approximation of ``(A + shift_j I)^-1 r_j`` for each column of R, shape
        (n, k), by a symmetric and positive definite matrix.
    tolerance : float
        Largest relative residual; the 2-norm of ``b - (A + s I) x`` over that of b.
    most : int
        Most steps.
    progress : callable, optional
        Told the number of steps and the largest relative residual after each.
    start : pair of ndarray of shape (n, c), optional
        Where to begin, and the residuals there; by default at zero. Not modified.

    Returns
    -------
    solutions : ShiftedSolutions
        With the residuals that were reached, whether or not they are within the tolerance.

    Notes
    -----
    A step costs one product with the columns that are not done; columns are those of separate solves. The residual of
    the recurrence drifts from the true one by rounding: it is computed again at the end, and the search resumes from
    there while it helps.

    References
    ----------
    Hestenes, Stiefel (1952), Journal of Research of the National Bureau of Standards 49:409-436.
    """
    X, R = (np.zeros_like(B), B.copy()) if start is None else (start[0].copy(), start[1].copy())
    norms = np.linalg.norm(B, axis=0)
    norms[norms == 0] = 1.0
    residuals, steps = np.linalg.norm(R, axis=0) / norms, 0
    for _ in range(RESTARTS):
        open_ = np.flatnonzero(residuals > tolerance)
        if not len(open_) or steps >= most:
            break
        before = residuals[open_]
        done, X[:, open_] = _search(
            apply, X[:, open_], R[:, open_], shifts[open_], precondition, norms[open_], tolerance, most - steps,
            None if progress is None else lambda k, worst, steps=steps: progress(steps + k, worst),  # type: ignore[misc]
        )  # fmt: skip
        steps += done
        R[:, open_] = B[:, open_] - apply(X[:, open_]) - X[:, open_] * shifts[open_]
        residuals[open_] = np.linalg.norm(R[:, open_], axis=0) / norms[open_]
        if (residuals[open_] > 0.5 * before).all():
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
    most: int,
    progress: Progress | None,
) -> tuple[int, np.ndarray]:
    """Return the number of steps from solutions X with residuals R, and for each column the best solution met."""
    best, least = X.copy(), np.linalg.norm(R, axis=0) / norms
    held, since = np.arange(X.shape[1]), 0
    Z = precondition(R, shifts)
    P, rho, step = Z.copy(), np.einsum("ij,ij->j", R, Z), 0
    while step < most and len(held) and since < STALLED:
        step += 1
        Q = apply(P) + P * shifts[held]
        curvature = np.einsum("ij,ij->j", P, Q)
        sound = (curvature > 0) & (rho > 0)
        alpha = np.divide(rho, curvature, out=np.zeros_like(rho), where=sound)
        X, R = X + alpha * P, R - alpha * Q
        residuals = np.linalg.norm(R, axis=0) / norms[held]
        better = residuals < least[held]
        since = 0 if (residuals < 0.9 * least[held]).any() else since + 1
        best[:, held[better]] = X[:, better]
        least[held[better]] = residuals[better]
        if progress is not None:
            progress(step, float(least.max()))
        going = sound & (residuals > 0.5 * tolerance)
        held, X, R, P, rho = held[going], X[:, going], R[:, going], P[:, going], rho[going]
        if len(held):
            Z = precondition(R, shifts[held])
            rho, before = np.einsum("ij,ij->j", R, Z), rho
            P = Z + P * (rho / before)
    return step, best
