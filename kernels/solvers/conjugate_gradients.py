"""Conjugate gradients for many right-hand sides and shifts at once, each stopped by its own residual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

RESTARTS = 4
"""Times that the residual is computed anew and the search begun again from the solution so far."""

STALLED = 40
"""Steps in which no column's least residual may fail to fall by a tenth before the search ends."""

Progress = Callable[[int, float], None]
"""Told the number of steps and the largest relative residual so far."""


DEPENDENT = 10 * np.finfo(np.float64).eps
"""Times their number and the largest eigenvalue: directions of some rows below that are rounding, and dropped."""


@dataclass(frozen=True)
class Preconditioner:
    r"""About :math:`(A + s I)^{-1}` for every shift s, from an approximation :math:`U \Theta U^\top` of A.

    .. math:: P_s = I + U \bigl( (\theta_1 + s) (\Theta + s I)^{-1} - I \bigr) U^\top

    Attributes
    ----------
    C, T : ndarray of shape (n, s) and (s, r)
        ``U = C T`` has orthonormal columns; formed it would take as long as theta.
    theta : ndarray of shape (r,)
        Ascending; the first one is :math:`\theta_1`.

    References
    ----------
    Frangella, Tropp, Udell (2023), Randomized Nystroem Preconditioning, SIAM Journal on Matrix Analysis and
    Applications 44:718-752, section 5, with columns in place of random projections.
    """

    C: np.ndarray
    T: np.ndarray
    theta: np.ndarray

    @classmethod
    def of_columns(cls, C: np.ndarray, among: np.ndarray) -> Preconditioner:
        """Return the preconditioner from some columns of A, shape (n, s), and their own rows of it, shape (s, s)."""
        s, Q = np.linalg.eigh(among)
        used = s > DEPENDENT * len(s) * s[-1]
        C = C @ (Q[:, used] / np.sqrt(s[used]))
        theta, Q = np.linalg.eigh(C.T @ C)
        used = theta > DEPENDENT * len(theta) * theta[-1]
        return cls(C, Q[:, used] / np.sqrt(theta[used]), theta[used])

    def __call__(self, R: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        """Return it times the columns of R, shape (n, c), each with its shift."""
        inside, theta = self.T.T @ (self.C.T @ R), self.theta
        inside *= (theta[0] + shifts) / (theta[:, None] + shifts) - 1
        return np.asarray(R + self.C @ (self.T @ inside))


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
        What was asked for.
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

    Returns
    -------
    solutions : ShiftedSolutions
        With the residuals that were reached, whether or not they are within the tolerance.

    Notes
    -----
    A step costs one product with the columns that are not done; columns are those of separate solves. The residual of
    the recurrence drifts from the true one by rounding: it is computed anew at the end, and the search goes on from
    there while it helps.

    References
    ----------
    Hestenes, Stiefel (1952), Journal of Research of the National Bureau of Standards 49:409-436.
    """
    X, R = np.zeros_like(B), B.copy()
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
