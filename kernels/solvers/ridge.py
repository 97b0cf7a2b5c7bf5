"""Kernel ridge regression as the inner problem of a one-stage learner, with a matrix of all rows or without."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from ..centering import Centering
from ..engine.operators import FeatureGrams, GramOperator, TiledGrams, gram_operator, has_room
from ..engine.workers import one_blas_thread
from ..families.base import drawn_rows
from ..targets import Target
from ..validation import positive
from .certificate import TOLERANCE, indefinite_kernels
from .conjugate_gradients import Preconditioner, ShiftedSolutions, solve_shifted
from .factor import ridge_factor
from .minimax import InnerSolution

SKETCH, MOST_SKETCHED = 7, 1500
"""Rows whose columns of the kernel make the preconditioner: times the root of all, with which it takes as long as a
few passes, and most."""

EXCESS = 1e-4
"""Share of the requested duality gap that the residual of a solution may add to the objective."""

FIRST, LEAST = 1e-2, 1e-12
"""Residual, relative to the target, that tells the size of the objective, and the least that is requested at all."""

CURVATURE = 1e-3
"""Relative residual of the solutions that make the Hessian, whose own error is of the order of its square."""

MOST_STEPS = 400
"""Of conjugate gradients, a solution."""

MOST_REFINEMENTS = 4
"""Solutions to ever smaller residuals."""


def on_drawn_rows(grams: GramOperator, target: Target, n: int) -> tuple[GramOperator, Target]:
    """Return base kernels and target on n rows drawn at random, the same ones each time."""
    some = drawn_rows(grams.n_rows, n, 0)
    if isinstance(grams, FeatureGrams):
        Z, centering = grams.Z[some], grams.centering
        return FeatureGrams(Z if sparse.issparse(Z) else centering.less_mean(Z), centering), target.take(some)
    assert isinstance(grams, TiledGrams)
    whole = gram_operator(
        grams.family, grams.X[some], shift=grams.shift, scales=grams.scales, centering=grams.centering
    )
    return whole, target.take(some)


class RidgeProblem:
    r"""The value of kernel ridge regression as a function of the kernel's weights.

    .. math:: J(\mu) = \max_\alpha\; 2 \operatorname{tr} \alpha^\top Y - \lambda \lVert \alpha \rVert^2
              - \operatorname{tr} \alpha^\top K_\mu \alpha
              = \operatorname{tr} Y^\top (K_\mu + \lambda I)^{-1} Y, \qquad K_\mu = \sum_k \mu_k K_k

    Attributes
    ----------
    grams : GramOperator
        p base kernels over m rows.
    Y : ndarray of shape (m, q)
        Targets less their mean, which is the intercept of a centered kernel; as they are for others.
    ridge : float
        lambda.

    Notes
    -----
    Fewer rank-one kernels than rows are solved in the span of their features, where a basis of these takes the rows'
    place: matrices are p by p, and what of Y is outside adds its square over lambda to J.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI, equation (3); (2009), NIPS, equation (10).
    """

    def __init__(self, grams: GramOperator, target: Target, C: float) -> None:
        """Take the training rows; ``lambda = 1 / C``.

        Raises
        ------
        ValueError
            The regularization is not positive and finite.
        """
        C = positive("C", C)
        self.grams = grams
        self.Y = target.Y - grams.centering.target_mean(target.Y)
        self.ridge = 1.0 / C

    @cached_property
    def _inside(self) -> tuple[GramOperator, np.ndarray, np.ndarray | None]:
        """Base kernels and targets in the basis of the features' span, and that basis; or on the rows, and None."""
        grams = self.grams
        if not isinstance(grams, FeatureGrams) or grams.n_kernels >= grams.n_rows:
            return grams, self.Y, None
        basis, features = np.linalg.qr(grams.dense())
        return FeatureGrams(features, Centering.NONE), basis.T @ self.Y, basis

    def at(self, mu: np.ndarray) -> InnerSolution:
        r"""Solve at the weights mu, shape (p,).

        Raises
        ------
        ValueError
            The matrix ``K_mu + lambda I`` is not positive definite up to rounding.

        Notes
        -----
        O(p m^2 q) and a Cholesky factor, O(m^3 / 3). The Hessian, if requested, costs O(p q m^2 + p^2 q m) more:

        .. math:: H_{kl} = 2 \operatorname{tr} (K_k \alpha)^\top (K_\mu + \lambda I)^{-1} (K_l \alpha)
        """
        grams, Y, basis = self._inside
        try:
            factor = ridge_factor(grams.combine(mu), self.ridge)
        except ValueError:
            if not (indefinite := indefinite_kernels(grams)):
                raise
            raise ValueError(f"{indefinite}.") from None
        inside = cho_solve(factor, Y, check_finite=False)
        alpha = inside if basis is None else (self.Y - basis @ Y) / self.ridge + basis @ inside
        # Of features their products with all rows take memory, and are formed only where they are asked for.
        products = None if isinstance(grams, FeatureGrams) else grams.products(inside)
        forms = grams.quadratic_forms(inside) if products is None else np.einsum("kiq,iq->k", products, inside)
        constant = float(2 * np.vdot(alpha, self.Y) - self.ridge * np.vdot(alpha, alpha))

        def hessian(kernels: np.ndarray) -> np.ndarray:
            P = (grams.products(inside) if products is None else products)[kernels].transpose(1, 0, 2)
            response = cho_solve(factor, P.reshape(len(P), -1), check_finite=False).reshape(P.shape)
            return 2 * np.einsum("ikq,ilq->kl", P, response, optimize=True)

        return InnerSolution(constant - float(mu @ forms), constant, forms, alpha, hessian)


class StreamedRidge:
    r"""What `RidgeProblem` is, by conjugate gradients on products of tiles.

    .. math:: J(\mu) \le \Bigl(2 \operatorname{tr} \alpha^\top Y - \lambda \lVert \alpha \rVert^2
              - \operatorname{tr} \alpha^\top K_\mu \alpha\Bigr) + \tfrac1\lambda \lVert R \rVert^2, \qquad
              R = Y - (K_\mu + \lambda I) \alpha

    for every alpha, so that a duality gap is one whatever the residual R is.

    Attributes
    ----------
    grams : TiledGrams
        p base kernels over m rows.
    Y : ndarray of shape (m, q)
        Targets less their mean, of base kernels that are centered.
    ridge : float
        lambda.

    Notes
    -----
    A step is a pass over the pairs of rows, with the base kernels combined; the right-hand sides of the Hessian, one a
    base kernel, go through the same passes. Memory O(m (p q + s)) with the s of `SKETCH`.
    """

    def __init__(self, grams: TiledGrams, target: Target, C: float, tolerance: float = TOLERANCE) -> None:
        """Take the training rows, ``lambda = 1 / C``, which is positive, and the gap that is wanted."""
        self.grams, self._excess = grams, EXCESS * tolerance
        self.Y = target.Y - grams.centering.target_mean(target.Y)
        self.ridge = 1.0 / C
        self._last: tuple[np.ndarray, np.ndarray] | None = None
        self._response: tuple[np.ndarray, np.ndarray] | None = None

    def at(self, mu: np.ndarray) -> InnerSolution:
        """Solve at the weights mu, shape (p,), from what the last solution and its derivative tell."""
        precondition = self._preconditioner(mu)
        alpha, residual = np.zeros_like(self.Y), None
        if self._last is not None:
            before, alpha = self._last
            if self._response is not None:
                kernels, response = self._response
                alpha = alpha - np.einsum("k,ikq->iq", (mu - before)[kernels], response)
        if not alpha.any():
            alpha = self._corrected(mu, alpha, None, FIRST, precondition)
        for _ in range(MOST_REFINEMENTS):
            within = np.sqrt(self._excess * self.ridge * max(float(np.vdot(alpha, self.Y)), 0.0))
            asked = max(LEAST, 0.5 * within / float(np.linalg.norm(self.Y)))
            alpha = self._corrected(mu, alpha, residual, asked, precondition)
            products = self.grams.products(alpha)
            residual = self.Y - np.einsum("k,kiq->iq", mu, products) - self.ridge * alpha
            excess = float(np.vdot(residual, residual)) / self.ridge
            if excess <= self._excess * float(np.vdot(alpha, self.Y)) or asked <= LEAST:
                break
        forms = np.einsum("kiq,iq->k", products, alpha)
        constant = float(2 * np.vdot(alpha, self.Y) - self.ridge * np.vdot(alpha, alpha))
        self._last, self._response = (mu, alpha), None

        def hessian(kernels: np.ndarray) -> np.ndarray:
            shape = (len(alpha), len(kernels), alpha.shape[1])
            P = products[kernels].transpose(1, 0, 2).reshape(len(alpha), -1)
            found = self._solved(mu, P, CURVATURE, precondition)
            Z, R = found.solutions.reshape(shape), found.remainders.reshape(shape)
            self._response = kernels, Z
            H = 2 * np.einsum("ikq,ilq->kl", P.reshape(shape) + R, Z, optimize=True)
            return np.asarray((H + H.T) / 2)

        return InnerSolution(constant - float(mu @ forms) + excess, constant, forms, alpha, hessian)

    def _corrected(
        self, mu: np.ndarray, alpha: np.ndarray, residual: np.ndarray | None, asked: float, precondition: Preconditioner
    ) -> np.ndarray:
        """Return coefficients whose residual is about what is requested, relative to the target."""
        if residual is None:
            residual = self.Y
            if alpha.any():
                residual = self.Y - self.grams.matvec(mu, alpha) - self.ridge * alpha
        norm, wanted = float(np.linalg.norm(residual)), asked * float(np.linalg.norm(self.Y))
        if norm <= wanted:
            return alpha
        return alpha + self._solved(mu, residual, wanted / norm, precondition).solutions

    def _solved(
        self, mu: np.ndarray, B: np.ndarray, tolerance: float, precondition: Preconditioner
    ) -> ShiftedSolutions:
        shifts = np.full(B.shape[1], self.ridge)
        with one_blas_thread():  # others would keep their cores for a while after a product, and a pass from them
            return solve_shifted(
                lambda V: self.grams.matvec(mu, V), B, shifts, precondition, tolerance=tolerance, most=MOST_STEPS
            )

    def _preconditioner(self, mu: np.ndarray) -> Preconditioner:
        """Return one from some columns of the kernel, less their means where it is centered."""
        m = self.grams.n_rows
        size = min(int(SKETCH * np.sqrt(m)), MOST_SKETCHED, max(1, m // 4))
        some = drawn_rows(m, size, 0)
        C = self.grams.columns(mu, some)
        centering = self.grams.centering
        C = centering.less_mean(C)
        C -= centering.mean(C, axis=1)[:, None]
        among = centering.gram((C[some] + C[some].T) / 2)
        if centering.subtracts:
            among += np.trace(among) / size**2  # along ones, where columns are zero
        return Preconditioner(np.ascontiguousarray(C), among)


def ridge_problem(
    grams: GramOperator, target: Target, C: float, tolerance: float = TOLERANCE
) -> RidgeProblem | StreamedRidge:
    """Return the regression as an inner problem: with a matrix of all pairs of rows where that fits, or without.

    Without one its solutions are as exact as a duality gap of `tolerance` needs.

    Raises
    ------
    ValueError
        The regularization is not positive and finite.
    """
    if isinstance(grams, TiledGrams) and not has_room(grams.n_rows) and 0 < C < np.inf:
        return StreamedRidge(grams, target, C, tolerance)
    return RidgeProblem(grams, target, C)
