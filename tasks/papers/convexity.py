"""How the objective of polynomial kernel ridge regression bends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from learnkernels.kernels.learners.nkrr import PolynomialRidge
from learnkernels.kernels.solvers.factor import factored_with_ridge
from learnkernels.kernels.solvers.projected_gradient import Fit


class Bend(NamedTuple):
    """Extreme eigenvalues of the Hessian at some weights, in units of F per squared weight.

    F is convex on a convex set where and only where the smallest is not negative at each of its points.
    """

    smallest: float
    largest: float

    @property
    def convex(self) -> bool:
        """Whether the Hessian is positive semi-definite, up to the rounding of its largest eigenvalue."""
        size = max(abs(self.smallest), abs(self.largest))
        return self.smallest >= -float(np.sqrt(np.finfo(np.float64).eps)) * size


def bend(objective: PolynomialRidge, at: Fit) -> Bend:
    r"""Return how the objective of `nkrr` for degree 2, without an offset, bends at some weights.

    .. math:: \partial_k \partial_l F(\mu) =
              8 \operatorname{tr} \alpha^\top (K_\mu \circ K_k) V (K_\mu \circ K_l) \alpha
              - 2 \operatorname{tr} \alpha^\top (K_k \circ K_l) \alpha, \qquad V = (K_\mu \circ K_\mu + \lambda I)^{-1}

    Parameters
    ----------
    objective : PolynomialRidge
        Of p base kernels over m rows.
    at : Fit
        ``objective.at(mu)``.

    Returns
    -------
    bend : Bend

    Notes
    -----
    O(p^2 m^2 + m^3) time, O(p m q + m^2) memory: p times the operator's `combine` and `inner_products`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*, NIPS 22, Proposition 4 and
    equations (19) and (23). The right side of (19) is half the quadratic form on its left; in (20) the last two factors
    are meant to be :math:`[K_\mu]_{lj} [K_u]_{lj}`; the 4 of N is missing below (21); and V before (22) is meant to be
    that of (19), with the square of the kernel, without which the threshold :math:`\sqrt{\lambda / 3}` for diagonal
    base kernels does not follow from (23).
    """
    grams = objective.grams
    K, p, (m, q) = grams.combine(at.mu), grams.n_kernels, objective.Y.shape
    factor = factored_with_ridge(K**2, objective.ridge)
    assert factor is not None, "the fit has factored the same matrix"
    alpha = cho_solve(factor, objective.Y, check_finite=False)
    products, curvature = np.empty((m, p, q)), np.empty((p, p))
    W = alpha @ alpha.T
    for k, unit in enumerate(np.eye(p)):
        K_k = grams.combine(unit)
        products[:, k] = (K * K_k) @ alpha
        curvature[k] = grams.inner_products(K_k * W)
    flat = products.reshape(m, p * q)
    solved = cho_solve(factor, flat, check_finite=False).reshape(m, p, q)
    H = 8 * np.einsum("ikq,ilq->kl", products, solved, optimize=True) - 2 * curvature
    eigenvalues = np.linalg.eigvalsh((H + H.T) / 2)
    return Bend(float(eigenvalues[0]), float(eigenvalues[-1]))
