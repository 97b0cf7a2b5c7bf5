"""nkrr: a polynomial of base kernels, learned together with kernel ridge regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import cho_solve

from ..engine.operators import FeatureGrams, GramOperator, entrywise_power
from ..parameters import positive, whole_number
from ..solvers.certificate import TOLERANCE, indefinite_kernels
from ..solvers.factor import factored_with_ridge
from ..solvers.monomial_ridge import has_few_monomials, monomial_ridge, not_definite
from ..solvers.projected_gradient import Iterate, ProjectedGradient, minimize_linear
from ..targets import Target
from .base import JointLearner, Solution, center_weights

HIGHEST_DEGREE = 4
"""Of the paper's experiments; entries beyond that power leave the ridge below the rounding of the largest of them."""


class PolynomialRidge:
    r"""The objective of `nkrr` and its gradient.

    .. math:: F(\mu) = \operatorname{tr} Y^\top (K_\mu^{\circ d} + \lambda I)^{-1} Y

    where K_mu is the weighted sum of the base kernels plus the offset.

    Attributes
    ----------
    grams : GramOperator
        p base kernels over m rows.
    Y : ndarray of shape (m, q)
        Targets less their column means, of base kernels that are centered.
    ridge : float
        lambda.
    degree : int
        d.
    offset : float
        Added to the weighted sum.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*, NIPS 22, equation (10).
    """

    def __init__(self, grams: GramOperator, target: Target, C: float, degree: int, offset: float = 0.0) -> None:
        """Take the training rows; ``lambda = 1 / C``.

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
        r"""Return the fit at the weights mu, shape (p,): one combination and one Cholesky factor, O(m^3 / 3).

        .. math:: \partial_k F(\mu) = -d \, \langle K_k, K_\mu^{\circ (d-1)} \circ \alpha \alpha^\top \rangle_F

        The gradient takes one `inner_products` of the operator, for degree 1 one `quadratic_forms`; rounding that would
        make it positive is removed.

        Raises
        ------
        ValueError
            The power of the weighted sum plus lambda I is not positive definite up to rounding.
        """
        K = self.grams.combine(mu)
        K += self.offset
        factor = factored_with_ridge(entrywise_power(K, self.degree), self.ridge)
        if factor is None:
            if indefinite := indefinite_kernels(self.grams):
                raise ValueError(f"{indefinite}.")
            raise not_definite(self.degree, self.ridge, float(np.abs(K).max()) ** self.degree)
        alpha = cho_solve(factor, self.Y, check_finite=False)

        def gradient() -> np.ndarray:
            if self.degree == 1:
                return -np.maximum(self.grams.quadratic_forms(alpha), 0.0)
            W = alpha @ alpha.T
            W *= entrywise_power(K, self.degree - 1)
            return -self.degree * np.maximum(self.grams.inner_products(W), 0.0)

        return Iterate(mu, float(np.vdot(alpha, self.Y)), gradient)

    def objective(self) -> Callable[[np.ndarray], Iterate]:
        """Return the fit as a function of the weights: on the monomials of rank-one kernels where these are few."""
        if isinstance(self.grams, FeatureGrams) and has_few_monomials(self.grams, self.degree, self.offset):
            return monomial_ridge(self.grams, self.Y, self.ridge, self.degree, self.offset)
        return self.at


@dataclass(frozen=True, eq=False, repr=False)
class NKRR(JointLearner):
    r"""The weights whose polynomial kernel gives kernel ridge regression the least objective.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu - \mu_0 \rVert_s \le \Lambda}
              F(\mu) = \operatorname{tr} Y^\top \big( K_\mu^{\circ d} + \lambda I \big)^{-1} Y,
              \qquad K_\mu = c + \sum_k \mu_k K_k, \quad \lambda = 1 / \texttt{C}

    where the power is taken entry by entry.

    Parameters
    ----------
    degree : {1, 2, 3, 4}, default 2
        d.
    norm : {1, 2}, default 2
        s, the norm of the ball.
    center : float or sequence of float of length p, default 1.0
        mu_0, such as prior weights. A number represents as many times the uniform vector of unit norm, whose entries
        are ``1 / sqrt(p)`` for norm 2 and ``1 / p`` for norm 1. Zero is the ball around the origin.
    radius : float, default 1.0
        Lambda, not negative, in the same units. Zero is the polynomial of the equal weights mu_0: nothing is learned.
    offset : float, default 0.0
        c, not negative. Zero is the paper's homogeneous polynomial: of centered kernels an even power cannot
        distinguish x from its mirror image. With an offset, in units of the mean diagonal, the lower powers are part of
        the kernel.
    starts : int, default 3
        Points that the descent begins from: the uniform weights of the boundary (or `start`), the boundary point
        against the gradient there, then random ones. For degree 1 the first is enough.
    seed : int, default 0
        Of the random starts.
    tolerance : float, default 1e-6
        Stationarity gap to reach, dimensionless.
    max_iterations : int, default 500
        Most kernel ridge regressions from one start.
    algorithm : {"spectral", "as-printed"}, default "spectral"
        Spectral projected gradient, or the paper's Algorithm 1 for comparisons of iterations: steps of size one along
        the gradient, reduced by 0.8 where the objective would rise.

    Notes
    -----
    The gradient is :math:`-d \langle K_k, K_\mu^{\circ (d-1)} \circ \alpha \alpha^\top \rangle` with
    :math:`\alpha = (K_\mu^{\circ d} + \lambda I)^{-1} Y`, never positive. So F falls when weights below those of mu_0
    are raised to them, and when a point of the ball is moved outwards to its boundary: the search is over the boundary
    above mu_0, no weight is ever thresholded, and the linear model's minimum over the ball has a closed form.

    F is convex for degree 1, where F less the gap (times F) bounds the minimum from below. For higher degrees it need
    not be, the gap is zero at any stationary point, and several starts guard against poor ones.

    Algorithm 1 of the paper moves along the gradient with a step of one, reduced by 0.8 where that is too large, which
    depends on the units of the target. Here the first step is one radius long, later ones are Barzilai and Borwein's,
    and a step that does not lower the largest of the last few objectives is reduced by 0.8 or more. About 5 to 10
    regressions a start are usual for norm 2, and 10 to 130 for norm 1, where the kernels that carry weight have to be
    found.

    Each regression costs O(m^3) for one Cholesky factor and the operator's `combine`, each step one more
    `inner_products` (`quadratic_forms` for degree 1); O(m^2) memory beyond the operator's. The power of rank-one
    kernels has D = C(p + d - 1, d) monomials, C(p + d, d) with an offset: where they are at most half as many as the
    rows, a regression costs O(D^3 / 3 + m D) after O(m D^2) once (`kernels.solvers.monomial_ridge`), and the results
    are the same.

    The weights are those of the start that ended lowest, of the first of those that are equal within `tolerance`; their
    length is part of the solution. The measure of the certificate is the stationarity gap

    .. math:: \max_{\mu'} \nabla F(\mu)^\top (\mu - \mu') / F(\mu)

    over the ball, its iterations are the kernel ridge regressions of that start, and its objectives F after each of its
    steps. There is none for radius zero.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*, NIPS 22, equation (10),
    Propositions 1 to 3, Algorithm 1. Equation (13) there lacks the factor -2 of the gradient, and the kernel used is
    the power of the sum, as in (4), not the sum over exponents of (3). Birgin, Martinez, Raydan (2000), SIAM Journal on
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
    seed: int = 0
    tolerance: float = TOLERANCE
    max_iterations: int = 500
    algorithm: Literal["spectral", "as-printed"] = "spectral"

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        if self.degree not in range(1, HIGHEST_DEGREE + 1):
            raise ValueError(f"degree must be a whole number from 1 to {HIGHEST_DEGREE}, got {self.degree}.")
        if not 0 <= self.offset < np.inf:
            raise ValueError(f"offset must be zero or positive, got {self.offset}.")
        if self.norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {self.norm!r}.")
        if not 0 <= self.radius < np.inf:
            raise ValueError(
                f"radius must be zero or positive and finite, got {self.radius}; with zero nothing is learned."
            )
        if not self.radius and not center_weights(self.center, np.size(self.center), 1.0).any():
            raise ValueError("radius and center must not both be zero: no base kernel would have weight.")
        if self.algorithm not in ("spectral", "as-printed"):
            raise ValueError(f"algorithm must be spectral or as-printed, got {self.algorithm!r}.")
        whole_number("starts", self.starts, 1)

    def solve(self, grams: GramOperator, target: Target, C: float = 1.0, start: np.ndarray | None = None) -> Solution:
        """Return the weights; see `JointLearner.solve`."""
        objective = PolynomialRidge(grams, target, C, self.degree, self.offset)
        p = grams.n_kernels
        mu_0 = center_weights(self.center, p, float(self.norm))
        if not self.radius:
            return Solution(mu_0, None, objective.degree, objective.offset)
        spectral = self.algorithm == "spectral"
        descent = ProjectedGradient(
            objective.objective(), mu_0, self.radius, int(self.norm), self.tolerance, self.max_iterations, spectral
        )
        mu, best, g = descent.run(descent.to_boundary(mu_0 if start is None else np.asarray(start, dtype=np.float64)))
        rng = np.random.default_rng(self.seed)
        for number in range(1, 1 if self.degree == 1 else self.starts):
            if number == 1:
                other = minimize_linear(g, mu_0, self.radius, descent.norm)
            else:  # uniform over the directions above the center, for either norm
                other = mu_0 + (np.abs(rng.normal(size=p)) if self.norm == 2 else rng.exponential(size=p))
            found, certificate, _ = descent.run(descent.to_boundary(other))
            if certificate.objectives[-1] < best.objectives[-1] * (1 - self.tolerance):
                mu, best = found, certificate
        best.warn_unless_converged("nkrr", "raise max_iterations, or use a smaller C, radius or degree")
        return Solution(mu, best, objective.degree, objective.offset)
