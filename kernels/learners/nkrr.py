"""nkrr: a polynomial combination of base kernels, learned jointly with kernel ridge regression."""

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
"""Highest degree, as in the experiments of the paper; rounding errors of higher powers exceed the ridge."""


class PolynomialRidge:
    r"""Objective of `nkrr` and its gradient.

    .. math:: F(\mu) = \operatorname{tr} Y^\top (K_\mu^{\circ d} + \lambda I)^{-1} Y

    where K_mu is the weighted sum of the base kernels plus the offset, and the power is
    taken entry by entry.

    Attributes
    ----------
    grams : GramOperator
        The p base kernels over m rows.
    Y : ndarray of shape (m, q)
        Targets, centered if the base kernels are.
    ridge : float
        Regularization lambda.
    degree : int
        Degree d of the polynomial.
    offset : float
        Constant added to the weighted sum.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*,
    NIPS 22, equation (10).
    """

    def __init__(
        self,
        grams: GramOperator,
        target: Target,
        C: float,
        degree: int,
        offset: float = 0.0,
    ) -> None:
        """Store the training rows and ``lambda = 1 / C``.

        Raises
        ------
        ValueError
            The regularization is not positive and finite.
        """
        self.grams = grams
        self.Y = target.Y - grams.centering.target_mean(target.Y)
        self.ridge = 1.0 / positive("C", C)
        self.degree = int(degree)
        self.offset = float(offset)

    def at(self, mu: np.ndarray) -> Iterate:
        r"""Return objective and gradient at the weights mu, shape (p,), by one Cholesky
        factor, O(m^3 / 3).

        .. math:: \partial_k F(\mu) = -d \, \langle K_k, K_\mu^{\circ (d-1)} \circ \alpha \alpha^\top \rangle_F

        The gradient takes one `inner_products` of the operator, or one
        `quadratic_forms` for degree 1. It is clipped at zero, as rounding could make it
        positive.

        Raises
        ------
        ValueError
            The power of the weighted sum plus lambda I is not positive definite.
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
        """Return the function that computes objective and gradient: on monomials if rank-one kernels have few."""
        if isinstance(self.grams, FeatureGrams) and has_few_monomials(
            self.grams, self.degree, self.offset
        ):
            return monomial_ridge(
                self.grams, self.Y, self.ridge, self.degree, self.offset
            )
        return self.at


@dataclass(frozen=True, eq=False, repr=False)
class NKRR(JointLearner):
    r"""Learn a polynomial combination of base kernels jointly with kernel ridge
    regression.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu - \mu_0 \rVert_s \le \Lambda}
              F(\mu) = \operatorname{tr} Y^\top \big( K_\mu^{\circ d} + \lambda I \big)^{-1} Y,
              \qquad K_\mu = c + \sum_k \mu_k K_k, \quad \lambda = 1 / \texttt{C}

    where the power is taken entry by entry.

    Parameters
    ----------
    degree : {1, 2, 3, 4}, default 2
        Degree d of the polynomial.
    norm : {1, 2}, default 2
        Order s of the norm of the ball.
    center : float or sequence of float of length p, default 1.0
        Center mu_0 of the ball, such as prior weights. A number is a multiple of the
        uniform weights of unit norm, whose entries are ``1 / sqrt(p)`` for norm 2 and
        ``1 / p`` for norm 1.
    radius : float, default 1.0
        Radius Lambda of the ball, not negative. With zero, nothing is learned: the
        weights are mu_0.
    offset : float, default 0.0
        Constant c, not negative, in units of the mean diagonal. With an offset, the
        kernel contains lower powers. Zero is the homogeneous polynomial of the paper.
        An even power of a centered kernel without offset cannot distinguish x from its
        mirror image.
    starts : int, default 3
        Number of starting points of the descent: the uniform weights on the boundary
        (or `start`), the boundary point against the gradient there, then random points.
        Degree 1 uses only the first.
    random_state : int, default 0
        Random seed of the starting points.
    tol : float, default 1e-6
        Stationarity gap at which the descent ends.
    max_iter : int, default 500
        Largest number of kernel ridge regressions from one starting point.
    algorithm : {"spectral", "as-printed"}, default "spectral"
        Spectral projected gradient, or Algorithm 1 of the paper to compare iterations.
        Algorithm 1 takes steps of size one along the gradient, multiplied by 0.8 while
        the objective would increase.

    Notes
    -----
    Equation (2) adds monomials with free coefficients (the set J) to those with
    products of weights (the set I). Here, I has all monomials of degree d and J is
    empty. For free coefficients alone, equation (1), give `ProductFamily.monomials` to
    `l2-krr`; both sums in one kernel are not implemented.

    The gradient is
    :math:`-d \langle K_k, K_\mu^{\circ (d-1)} \circ \alpha \alpha^\top \rangle` with
    :math:`\alpha = (K_\mu^{\circ d} + \lambda I)^{-1} Y`, never positive. F therefore
    decreases towards the boundary of the ball, and the search is over the boundary
    above mu_0. No weight is thresholded, and the minimum of the linear model over the
    ball has a closed form.

    F is convex for degree 1, and the gap then bounds the distance from the minimum. For
    higher degrees, F may not be convex. The gap is then zero at any stationary point,
    and several starts guard against poor ones.

    The step of Algorithm 1 depends on the units of the target. Here the first step has
    the length of the radius, and later ones are Barzilai-Borwein steps. A step that
    does not decrease the largest of the last few objectives is multiplied by at most
    0.8. A start usually takes 5 to 10 regressions for norm 2, and 10 to 130 for norm 1.

    Each regression takes one Cholesky factor, O(m^3), and one `combine` of the
    operator. Each step takes one more `inner_products` (`quadratic_forms` for degree
    1). The power of rank-one kernels has D = C(p + d - 1, d) monomials, C(p + d, d)
    with an offset. If D is at most half the number of rows, a regression takes O(D^3 /
    3 + m D) after O(m D^2) once (`kernels.solvers.monomial_ridge`).

    The weights are those of the first start whose objective is the lowest within `tol`;
    their length is part of the solution. The certificate holds the stationarity gap
    over the ball,

    .. math:: \max_{\mu'} \nabla F(\mu)^\top (\mu - \mu') / F(\mu)

    the number of kernel ridge regressions of that start, and F after each of its steps.
    Radius zero has no certificate.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*,
    NIPS 22, equation (10), Propositions 1 to 3, Algorithm 1. Its equation (13) lacks
    the factor -2 of the gradient. The kernel is the power of the sum, as in (4), not
    the sum over exponents of (3). Birgin, Martinez, Raydan (2000), SIAM Journal on
    Optimization 10:1196-1211: the spectral projected gradient.
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
        """Raise ValueError if a parameter is out of its range."""
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
        """Return the weights of the base kernels; see `JointLearner.solve`."""
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
            elif (
                self.norm == 2
            ):  # both distributions are uniform over the directions above the center
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
