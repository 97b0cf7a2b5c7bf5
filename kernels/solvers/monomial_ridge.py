r"""Ridge regression on the monomials of a few features, in place of a power of their kernels.

A power of a weighted sum of rank-one kernels is a sum of rank-one kernels itself, one a monomial of the features,

.. math:: \Big( c + \sum_k \mu_k z_k z_k^\top \Big)^{\circ d} = \Phi \operatorname{diag}(s) \Phi^\top, \qquad
          \Phi_{ia} = \prod_k z_{ik}^{a_k}, \quad s_a = \binom{d}{a} c^{a_0} \prod_k \mu_k^{a_k}, \quad |a| = d,

so that with fewer monomials than rows matrices of their number do for those of the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from math import comb, factorial

import numpy as np
from scipy.linalg import cho_solve

from ..engine.operators import FeatureGrams
from .factor import factored_with_ridge
from .projected_gradient import Iterate

FEW = 0.5
"""Monomials, as a share of the rows, up to which they take less time than the power."""


def not_definite(degree: int, ridge: float, largest: float) -> ValueError:
    """Return the refusal of a power whose entries reach `largest`: plus lambda I it is not positive definite."""
    return ValueError(
        f"the learned kernel of degree {degree} plus lambda = {ridge:.1e} is not positive definite up to rounding "
        f"(its entries reach {largest:.1e}); use a smaller C, radius, center or degree."
    )


def has_few_monomials(grams: FeatureGrams, degree: int, offset: float) -> bool:
    """Return whether the features have few monomials, of lower degrees too with an offset, for their rows."""
    return comb(grams.n_kernels + degree - (0 if offset else 1), degree) <= FEW * grams.n_rows


def factor_of_power(grams: FeatureGrams, mu: np.ndarray, degree: int, offset: float) -> np.ndarray | None:
    r"""Return F with :math:`F F^\top = (c + \sum_k \mu_k K_k)^{\circ d}`, shape (m, D); None without few monomials.

    Parameters
    ----------
    grams : FeatureGrams
        p rank-one kernels over m rows.
    mu : ndarray of shape (p,)
        Their weights, not negative.
    degree : int
        d.
    offset : float
        c, not negative.
    """
    if not has_few_monomials(grams, degree, offset):
        return None
    monomials = Monomials(grams, degree, offset)
    return np.asarray(monomials.Phi * np.sqrt(monomials.scales(mu)))


class Monomials:
    """The monomials of some features over the training rows, and what does not depend on the features' weights.

    Attributes
    ----------
    exponents : ndarray of int of shape (D, p + 1)
        a; the first column is that of the offset.
    Phi : ndarray of shape (m, D)
        Products of the features, in Fortran order.
    """

    def __init__(self, grams: FeatureGrams, degree: int, offset: float) -> None:
        """Take the features of an operator; O(m D)."""
        Z = grams.dense()
        self._degree, self._offset = degree, offset
        self._variables = np.hstack([np.ones((len(Z), 1)), Z])
        first = 0 if offset else 1
        choices = list(combinations_with_replacement(range(first, Z.shape[1] + 1), degree))
        self.Phi = np.ones((len(Z), len(choices)), order="F")
        for factor in np.array(choices, dtype=np.intp).reshape(-1, degree).T:
            self.Phi *= self._variables[:, factor]
        self.exponents, self._coefficients = _exponents(choices, Z.shape[1] + 1)
        # Each monomial of one degree less, times each feature, is one of these.
        position = {choice: a for a, choice in enumerate(choices)}
        lower = list(combinations_with_replacement(range(first, Z.shape[1] + 1), degree - 1))
        self._lower_exponents, self._lower_coefficients = _exponents(lower, Z.shape[1] + 1)
        self._raised = np.array(
            [[position[tuple(sorted((*choice, k)))] for k in range(1, Z.shape[1] + 1)] for choice in lower],
            dtype=np.intp,
        )

    def scales(self, mu: np.ndarray) -> np.ndarray:
        """Return s at the features' weights, shape (D,)."""
        return self._coefficients * _powers(self._with_offset(mu), self.exponents)

    def slopes(self, mu: np.ndarray, squares: np.ndarray) -> np.ndarray:
        r"""Return :math:`\sum_a v_a \, \partial_k s_a`, shape (p,), for v of shape (D,)."""
        lower = self._lower_coefficients * _powers(self._with_offset(mu), self._lower_exponents)
        return np.asarray(self._degree * (lower @ squares[self._raised]))

    def largest_entry(self, mu: np.ndarray) -> float:
        """Return the largest diagonal entry of the power, which no entry exceeds; O(m p)."""
        return float(((self._variables**2) @ self._with_offset(mu)).max()) ** self._degree

    def _with_offset(self, mu: np.ndarray) -> np.ndarray:
        return np.concatenate([[self._offset], mu])


def _exponents(choices: list[tuple[int, ...]], variables: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each variable is chosen, and the number of orders to choose them in."""
    counts = np.array([np.bincount(np.array(choice, dtype=np.intp), minlength=variables) for choice in choices])
    orders = [factorial(int(row.sum())) / np.prod([factorial(n) for n in row]) for row in counts]
    return counts, np.array(orders)


def _powers(values: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return the products of powers; of zero the power zero is one."""
    return np.asarray(np.prod(values[None, :] ** exponents, axis=1))


def monomial_ridge(
    grams: FeatureGrams, Y: np.ndarray, ridge: float, degree: int, offset: float
) -> Callable[[np.ndarray], Iterate]:
    r"""Return the objective of `nkrr` on rank-one kernels of few monomials.

    .. math:: F(\mu) = \operatorname{tr} Y^\top (\Phi S \Phi^\top + \lambda I)^{-1} Y
              = \min_U \tfrac1\lambda \lVert Y - \Phi S^{1/2} U \rVert^2 + \lVert U \rVert^2, \qquad
              \partial_k F(\mu) = - \sum_a \partial_k s_a \, \lVert \Phi_a^\top \alpha \rVert^2

    Parameters
    ----------
    grams : FeatureGrams
        p rank-one kernels over m rows.
    Y : ndarray of shape (m, q)
        Centered targets. Not modified.
    ridge : float
        lambda.
    degree, offset
        As of `Monomials`.

    Notes
    -----
    O(m D^2) once, then O(D^3 / 3 + m D q) an evaluation; memory O(m D + D^2). The value is that of the right side, with
    an error of second order in that of U. An evaluation raises ValueError where the power of the weighted sum plus
    lambda I is not positive definite up to rounding.
    """
    monomials = Monomials(grams, degree, offset)
    Phi = monomials.Phi
    right, gram = Phi.T @ Y, Phi.T @ Phi

    def at(mu: np.ndarray) -> Iterate:
        roots = np.sqrt(monomials.scales(mu))
        A = gram * roots[:, None]
        A *= roots
        factor = factored_with_ridge(A, ridge)
        if factor is None:
            raise not_definite(degree, ridge, monomials.largest_entry(mu))
        U = cho_solve(factor, roots[:, None] * right, check_finite=False)
        residual = Y - Phi @ (roots[:, None] * U)
        value = float(np.vdot(residual, residual)) / ridge + float(np.vdot(U, U))
        squares = ((Phi.T @ residual / ridge) ** 2).sum(axis=1)
        return Iterate(mu, value, lambda: -monomials.slopes(mu, squares))

    return at
