"""Kernel ridge regression as the inner problem of a one-stage learner."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kernels.operators import GramOperator
from kernels.solvers.minimax import Inner
from kernels.targets import Target


class RidgeProblem:
    r"""The value of kernel ridge regression as a function of the kernel's weights.

    .. math:: J(\mu) = \max_\alpha\; 2 \operatorname{tr} \alpha^\top Y - \lambda \lVert \alpha \rVert^2
              - \operatorname{tr} \alpha^\top K_\mu \alpha
              = \operatorname{tr} Y^\top (K_\mu + \lambda I)^{-1} Y, \qquad K_\mu = \sum_k \mu_k K_k

    Attributes
    ----------
    grams : GramOperator
        p centered base kernels over m rows.
    Y : ndarray of shape (m, q)
        Targets less their mean, which is the intercept of a centered kernel.
    ridge : float
        lambda.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI, equation (3); (2009), NIPS, equation (10).
    """

    def __init__(self, grams: GramOperator, target: Target, regularisation: float) -> None:
        """Take the training rows; ``lambda = 1 / regularisation``.

        Raises
        ------
        ValueError
            The regularisation is not positive and finite.
        """
        if not 0 < regularisation < np.inf:
            raise ValueError(f"regularisation must be positive and finite, got {regularisation}; it is 1 / lambda.")
        self._grams = grams
        self.Y = target.Y - target.Y.mean(axis=0)
        self.ridge = 1.0 / regularisation

    @property
    def grams(self) -> GramOperator:
        """The base kernels."""
        return self._grams

    def at(self, mu: np.ndarray) -> Inner:
        """Solve at the weights mu, shape (p,).

        Raises
        ------
        ValueError
            The matrix ``K_mu + lambda I`` is not positive definite up to rounding.

        Notes
        -----
        One Cholesky factor, O(m^3 / 3), and O(p m^2 q). The Hessian costs O(p q m^2 + p^2 q m) more, when asked for:

        .. math:: H_{kl} = 2 \\operatorname{tr} (K_k \\alpha)^\\top (K_\\mu + \\lambda I)^{-1} (K_l \\alpha)
        """
        K = self._grams.combine(mu)
        K.flat[:: len(K) + 1] += self.ridge
        try:
            # The transpose of a symmetric matrix in C order is one in Fortran order, which LAPACK factors in place.
            factor = cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            raise ValueError(
                f"the learned kernel plus lambda = {self.ridge:.1e} is not positive definite up to rounding; use a "
                "smaller regularisation (a larger lambda)."
            ) from None
        alpha = cho_solve(factor, self.Y, check_finite=False)
        products = self._grams.products(alpha)
        forms = np.einsum("kiq,iq->k", products, alpha)

        def hessian(kernels: np.ndarray) -> np.ndarray:
            P = products[kernels].transpose(1, 0, 2).reshape(len(alpha), -1)
            solved = cho_solve(factor, P, check_finite=False)
            shape = (len(alpha), len(kernels), -1)
            return 2 * np.einsum("ikq,ilq->kl", P.reshape(shape), solved.reshape(shape), optimize=True)

        return Inner(
            objective=float(np.vdot(alpha, self.Y)),
            constant=float(2 * np.vdot(alpha, self.Y) - self.ridge * np.vdot(alpha, alpha)),
            forms=forms,
            dual=alpha,
            hessian=hessian,
        )
