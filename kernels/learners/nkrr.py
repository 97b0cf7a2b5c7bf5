"""nkrr: polynomial combination of base kernels, learned with ridge regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import cho_solve

from ..engine.operators import FeatureGrams, GramOperator, entrywise_power
from ..solvers.certificate import TOLERANCE, indefinite_kernels
from ..solvers.factor import factored_with_ridge
from ..solvers.monomial_ridge import has_few_monomials, monomial_ridge, not_definite
from ..solvers.projected_gradient import Iterate, ProjectedGradient, minimize_linear
from ..targets import Target
from ..validation import positive, whole_number
from .base import JointLearner, Solution, center_weights

HIGHEST_DEGREE = 4
"""Highest degree in the paper; rounding errors of higher powers exceed the ridge."""


class PolynomialRidge:
    r"""Objective of the learner `NKRR` and its gradient, as functions of the weights.

    .. math:: F(\mu) = \operatorname{tr} Y^\top (K_\mu^{\circ d} + \lambda I)^{-1} Y

    :math:`K_\mu` includes the offset. Y is centered if the base kernels are.
    """

    def __init__(
        self,
        grams: GramOperator,
        target: Target,
        C: float,
        degree: int,
        offset: float = 0.0,
    ) -> None:
        self.grams = grams
        self.Y = target.Y - grams.centering.target_mean(target.Y)
        self.ridge = 1.0 / positive("C", C)
        self.degree = int(degree)
        self.offset = float(offset)

    def at(self, mu: np.ndarray) -> Iterate:
        r"""Return objective and gradient at the weights mu, in O(m^3 / 3) time.

        .. math:: \partial_k F(\mu) = -d \, \langle K_k, K_\mu^{\circ (d-1)} \circ \alpha \alpha^\top \rangle_F

        It is clipped at zero.
        """
        K = self.grams.combine(mu)
        K += self.offset
        factor = factored_with_ridge(entrywise_power(K, self.degree), self.ridge)
        if factor is None:
            indefinite = indefinite_kernels(self.grams)
            if indefinite:
                raise ValueError(f"{indefinite}.")
            raise not_definite(
                self.degree, self.ridge, float(np.abs(K).max()) ** self.degree
            )
        alpha = cho_solve(factor, self.Y, check_finite=False)

        def gradient() -> np.ndarray:
            if self.degree == 1:
                return -np.maximum(self.grams.quadratic_forms(alpha), 0.0)
            W = alpha @ alpha.T
            W *= entrywise_power(K, self.degree - 1)
            return -self.degree * np.maximum(self.grams.inner_products(W), 0.0)

        return Iterate(mu, float(np.vdot(alpha, self.Y)), gradient)

    def objective(self) -> Callable[[np.ndarray], Iterate]:
        """Return the objective as a function of weights, on monomials if few."""
        if isinstance(self.grams, FeatureGrams) and has_few_monomials(
            self.grams, self.degree, self.offset
        ):
            return monomial_ridge(
                self.grams, self.Y, self.ridge, self.degree, self.offset
            )
        return self.at


@dataclass(frozen=True, eq=False, repr=False)
class NKRR(JointLearner):
    r"""Polynomial combination of base kernels, learned with kernel ridge regression.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu - \mu_0 \rVert_s \le \Lambda}
              F(\mu) = \operatorname{tr} Y^\top \big( K_\mu^{\circ d} + \lambda I \big)^{-1} Y,
              \qquad K_\mu = c + \sum_k \mu_k K_k, \quad \lambda = 1 / \texttt{C}

    where the power is entrywise.

    Parameters
    ----------
    degree : {1, 2, 3, 4}, default 2
        Degree d of the polynomial.
    norm : {1, 2}, default 2
        Order s of the norm of the ball.
    center : float or sequence of float of length p, default 1.0
        Center mu_0 of the ball; a number is the norm of equal weights.
    radius : float, default 1.0
        Radius Lambda of the ball; with zero, the weights are mu_0.
    offset : float, default 0.0
        Constant c, not negative, in units of the mean diagonal; zero in the paper.
    starts : int, default 3
        Number of starting points; degree 1 uses one.
    random_state : int, default 0
        Random seed of the starting points.
    tol : float, default 1e-6
        Stationarity gap at convergence.
    max_iter : int, default 500
        Largest number of ridge regressions per starting point.
    algorithm : {"spectral", "as-printed"}, default "spectral"
        Spectral projected gradient, or Algorithm 1 of the paper.

    Notes
    -----
    The gradient is never positive, so the search is over the boundary of the ball. F is
    convex only for degree 1; otherwise, several starts guard against poor stationary
    points. A start usually takes 5 to 130 regressions. The stationarity gap is

    .. math:: \max_{\mu'} \nabla F(\mu)^\top (\mu - \mu') / F(\mu)

    For free coefficients, equation (1), give `ProductFamily.monomials` to `l2-krr`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*,
    NIPS 22, equation (10), Propositions 1 to 3, Algorithm 1; equation (13) lacks the
    factor -2. Birgin, Martinez, Raydan (2000), SIAM Journal on Optimization
    10:1196-1211: spectral projected gradient.
    """

    name = "nkrr"
    summary = "kernel ridge regression with a polynomial combination of base kernels"
    source = "NIPS 2009, equation (10), Algorithm 1"
    predictor = "krr"

    degree: int = 2
    norm: int = 2
    center: float | Sequence[float] = 1.0
    radius: float = 1.0
    offset: float = 0.0
    starts: int = 3
    random_state: int = 0
    tol: float = TOLERANCE
    max_iter: int = 500
    algorithm: Literal["spectral", "as-printed"] = "spectral"

    def require(self) -> None:
        if self.degree not in range(1, HIGHEST_DEGREE + 1):
            raise ValueError(
                f"degree must be a whole number from 1 to {HIGHEST_DEGREE}, got {self.degree}."
            )
        if not 0 <= self.offset < np.inf:
            raise ValueError(f"offset must be zero or positive, got {self.offset}.")
        if self.norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {self.norm!r}.")
        if not 0 <= self.radius < np.inf:
            raise ValueError(
                f"radius must be zero or positive and finite, got {self.radius}; with zero nothing is learned."
            )
        if (
            not self.radius
            and not center_weights(self.center, np.size(self.center), 1.0).any()
        ):
            raise ValueError(
                "radius and center must not both be zero: no base kernel would have weight."
            )
        if self.algorithm not in ("spectral", "as-printed"):
            raise ValueError(
                f"algorithm must be spectral or as-printed, got {self.algorithm!r}."
            )
        whole_number("starts", self.starts, 1)

    def solve(
        self,
        grams: GramOperator,
        target: Target,
        C: float = 1.0,
        start: np.ndarray | None = None,
    ) -> Solution:
        problem = PolynomialRidge(grams, target, C, self.degree, self.offset)
        p = grams.n_kernels
        mu_0 = center_weights(self.center, p, float(self.norm))
        if not self.radius:
            return Solution(mu_0, None, problem.degree, problem.offset)
        descent = ProjectedGradient(
            problem.objective(),
            mu_0,
            self.radius,
            int(self.norm),
            self.tol,
            self.max_iter,
            self.algorithm == "spectral",
        )
        first_start = mu_0 if start is None else np.asarray(start, dtype=np.float64)
        mu, certificate, gradient = descent.run(descent.to_boundary(first_start))
        rng = np.random.default_rng(self.random_state)
        n_starts = 1 if self.degree == 1 else self.starts
        for number in range(1, n_starts):
            if number == 1:
                next_start = minimize_linear(gradient, mu_0, self.radius, descent.norm)
            elif self.norm == 2:
                next_start = mu_0 + np.abs(rng.normal(size=p))
            else:
                next_start = mu_0 + rng.exponential(size=p)
            candidate, candidate_certificate, _ = descent.run(
                descent.to_boundary(next_start)
            )
            if candidate_certificate.objectives[-1] < certificate.objectives[-1] * (
                1 - self.tol
            ):
                mu = candidate
                certificate = candidate_certificate
        certificate.warn_unless_converged(
            "nkrr", "raise max_iter, or use a smaller C, radius or degree"
        )
        return Solution(mu, certificate, problem.degree, problem.offset)
