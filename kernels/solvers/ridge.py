"""Kernel ridge regression as the inner problem of a one-stage learner."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from ..engine.operators import (
    FeatureGrams,
    GramOperator,
    TiledGrams,
    gram_fits_in_memory,
    gram_operator,
)
from ..engine.workers import one_blas_thread
from ..families.base import drawn_rows
from ..targets import Target
from ..validation import positive
from .certificate import TOLERANCE, indefinite_kernels
from .conjugate_gradients import Preconditioner, ShiftedSolutions, solve_shifted
from .factor import ridge_factor
from .minimax import InnerSolution

EXCESS = 1e-4
"""Share of the duality gap that the residual may add."""

SMALLEST_TOLERANCE = 1e-12
"""Smallest requested residual, relative to the target."""

MAX_REFINEMENTS = 4


def on_drawn_rows(
    grams: GramOperator, target: Target, n: int
) -> tuple[GramOperator, Target]:
    """Restrict base kernels and target to n random rows."""
    rows = drawn_rows(grams.n_rows, n, 0)
    if isinstance(grams, FeatureGrams):
        Z = grams.Z[rows]
        if not sparse.issparse(Z):
            Z = grams.centering.less_mean(Z)
        return FeatureGrams(Z, grams.centering), target.take(rows)
    assert isinstance(grams, TiledGrams)
    sampled_grams = gram_operator(
        grams.family,
        grams.X[rows],
        shift=grams.shift,
        scales=grams.scales,
        centering=grams.centering,
    )
    return sampled_grams, target.take(rows)


class RidgeProblem:
    r"""Optimal value of kernel ridge regression as a function of base-kernel weights.

    .. math:: J(\mu) = \max_\alpha\; 2 \operatorname{tr} \alpha^\top Y - \lambda \lVert \alpha \rVert^2
              - \operatorname{tr} \alpha^\top K_\mu \alpha
              = \operatorname{tr} Y^\top (K_\mu + \lambda I)^{-1} Y, \qquad K_\mu = \sum_k \mu_k K_k

    With an intercept, Y is centered. Fewer rank-one kernels than rows are solved in a
    basis of their span.
    """

    def __init__(self, grams: GramOperator, target: Target, C: float) -> None:
        self.grams = grams
        self.Y = target.Y - grams.centering.target_mean(target.Y)
        self.ridge = 1.0 / positive("C", C)

    @cached_property
    def _reduced(self) -> tuple[GramOperator, np.ndarray, np.ndarray | None]:
        """Base kernels and targets in a basis, and the basis."""
        grams = self.grams
        if not isinstance(grams, FeatureGrams) or grams.n_kernels >= grams.n_rows:
            return grams, self.Y, None
        reduced, basis = grams.in_basis
        return reduced, basis.T @ self.Y, basis

    def at(self, mu: np.ndarray) -> InnerSolution:
        """Solve for base-kernel weights mu; ValueError if the kernel is indefinite.

        O(p m^2 q) and a Cholesky factor; the Hessian takes O(p q m^2 + p^2 q m).
        """
        grams, Y, basis = self._reduced
        try:
            factor = ridge_factor(grams.combine(mu), self.ridge)
        except ValueError:
            indefinite = indefinite_kernels(grams)
            if not indefinite:
                raise
            raise ValueError(f"{indefinite}.") from None
        solution = cho_solve(factor, Y, check_finite=False)
        alpha = solution
        if basis is not None:
            alpha = (self.Y - basis @ Y) / self.ridge + basis @ solution
        # Products of features take memory; only the Hessian needs them.
        products = None
        if isinstance(grams, FeatureGrams):
            forms = grams.quadratic_forms(solution)
        else:
            products = grams.products(solution)
            forms = np.einsum("kiq,iq->k", products, solution)
        constant = float(
            2 * np.vdot(alpha, self.Y) - self.ridge * np.vdot(alpha, alpha)
        )

        def hessian(kernels: np.ndarray) -> np.ndarray:
            all_products = products
            if all_products is None:
                all_products = grams.products(solution)
            P = all_products[kernels].transpose(1, 0, 2)
            response = cho_solve(
                factor, P.reshape(len(P), -1), check_finite=False
            ).reshape(P.shape)
            return 2 * np.einsum("ikq,ilq->kl", P, response, optimize=True)

        return InnerSolution(
            constant - float(mu @ forms), constant, forms, alpha, hessian
        )


class StreamedRidge:
    """`RidgeProblem` without an m by m matrix, by conjugate gradients.

    J exceeds the dual value by at most the squared residual over lambda.
    """

    def __init__(
        self, grams: TiledGrams, target: Target, C: float, tolerance: float = TOLERANCE
    ) -> None:
        self.grams = grams
        self.Y = target.Y - grams.centering.target_mean(target.Y)
        self.ridge = 1.0 / C
        self._excess = EXCESS * tolerance
        self._last: tuple[np.ndarray, np.ndarray] | None = None
        self._response: tuple[np.ndarray, np.ndarray] | None = None

    def at(self, mu: np.ndarray) -> InnerSolution:
        """Solve for base-kernel weights mu, starting from the last solution."""
        precondition = self._preconditioner(mu)
        alpha = self._start(mu)
        if not alpha.any():
            alpha = self._refine(mu, alpha, None, 1e-2, precondition)
        residual = None
        for _ in range(MAX_REFINEMENTS):
            largest_norm = np.sqrt(
                self._excess * self.ridge * max(float(np.vdot(alpha, self.Y)), 0.0)
            )
            tolerance = max(
                SMALLEST_TOLERANCE, 0.5 * largest_norm / float(np.linalg.norm(self.Y))
            )
            alpha = self._refine(mu, alpha, residual, tolerance, precondition)
            products = self.grams.products(alpha)
            residual = (
                self.Y - np.einsum("k,kiq->iq", mu, products) - self.ridge * alpha
            )
            excess = float(np.vdot(residual, residual)) / self.ridge
            if (
                excess <= self._excess * float(np.vdot(alpha, self.Y))
                or tolerance <= SMALLEST_TOLERANCE
            ):
                break
        forms = np.einsum("kiq,iq->k", products, alpha)
        constant = float(
            2 * np.vdot(alpha, self.Y) - self.ridge * np.vdot(alpha, alpha)
        )
        self._last = mu, alpha
        self._response = None

        def hessian(kernels: np.ndarray) -> np.ndarray:
            shape = (len(alpha), len(kernels), alpha.shape[1])
            P = products[kernels].transpose(1, 0, 2).reshape(len(alpha), -1)
            # The error of the Hessian is about the squared tolerance.
            solved = self._solve(mu, P, 1e-3, precondition)
            Z = solved.solutions.reshape(shape)
            R = solved.remainders.reshape(shape)
            self._response = kernels, Z
            H = 2 * np.einsum("ikq,ilq->kl", P.reshape(shape) + R, Z, optimize=True)
            return np.asarray((H + H.T) / 2)

        return InnerSolution(
            constant - float(mu @ forms) + excess, constant, forms, alpha, hessian
        )

    def _start(self, mu: np.ndarray) -> np.ndarray:
        """Return the last coefficients, extrapolated to mu."""
        if self._last is None:
            return np.zeros_like(self.Y)
        last_mu, alpha = self._last
        if self._response is None:
            return alpha
        kernels, response = self._response
        return alpha - np.einsum("k,ikq->iq", (mu - last_mu)[kernels], response)

    def _refine(
        self,
        mu: np.ndarray,
        alpha: np.ndarray,
        residual: np.ndarray | None,
        tolerance: float,
        precondition: Preconditioner,
    ) -> np.ndarray:
        """Return coefficients with about this relative residual."""
        if residual is None:
            residual = self.Y
            if alpha.any():
                residual = self.Y - self.grams.matvec(mu, alpha) - self.ridge * alpha
        norm = float(np.linalg.norm(residual))
        largest_norm = tolerance * float(np.linalg.norm(self.Y))
        if norm <= largest_norm:
            return alpha
        return (
            alpha
            + self._solve(mu, residual, largest_norm / norm, precondition).solutions
        )

    def _solve(
        self,
        mu: np.ndarray,
        B: np.ndarray,
        tolerance: float,
        precondition: Preconditioner,
    ) -> ShiftedSolutions:
        shifts = np.full(B.shape[1], self.ridge)
        with one_blas_thread():  # waiting BLAS threads would slow down the passes
            return solve_shifted(
                lambda V: self.grams.matvec(mu, V),
                B,
                shifts,
                precondition,
                tolerance=tolerance,
                max_iter=400,
            )

    def _preconditioner(self, mu: np.ndarray) -> Preconditioner:
        """Return a preconditioner from 7 sqrt(m) random columns."""
        m = self.grams.n_rows
        size = min(int(7 * np.sqrt(m)), 1500, max(1, m // 4))
        rows = drawn_rows(m, size, 0)
        C = self.grams.columns(mu, rows)
        centering = self.grams.centering
        C = centering.less_mean(C)
        C -= centering.mean(C, axis=1)[:, None]
        block = centering.gram((C[rows] + C[rows].T) / 2)
        if centering.subtracts:
            # Centered columns are orthogonal to ones.
            block += np.trace(block) / size**2
        return Preconditioner(np.ascontiguousarray(C), block)


def ridge_problem(
    grams: GramOperator, target: Target, C: float, tolerance: float = TOLERANCE
) -> RidgeProblem | StreamedRidge:
    """Return a `RidgeProblem`, or a `StreamedRidge` if a Gram matrix does not fit."""
    if (
        isinstance(grams, TiledGrams)
        and not gram_fits_in_memory(grams.n_rows)
        and 0 < C < np.inf
    ):
        return StreamedRidge(grams, target, C, tolerance)
    return RidgeProblem(grams, target, C)
