r"""Ridge regression on the monomials of a few features.

A power of a weighted sum of rank-one kernels is a sum of rank-one kernels:

.. math:: \Big( c + \sum_k \mu_k z_k z_k^\top \Big)^{\circ d} = \Phi \operatorname{diag}(s) \Phi^\top, \qquad
          \Phi_{ia} = \prod_k z_{ik}^{a_k}, \quad s_a = \binom{d}{a} c^{a_0} \prod_k \mu_k^{a_k}, \quad |a| = d.
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


def not_definite(degree: int, ridge: float, largest: float) -> ValueError:
    """Return a ValueError for an indefinite kernel."""
    return ValueError(
        f"the learned kernel of degree {degree} plus lambda = {ridge:.1e} is not positive definite up to rounding "
        f"(its entries reach {largest:.1e}); use a smaller C, radius, center or degree."
    )


def has_few_monomials(grams: FeatureGrams, degree: int, offset: float) -> bool:
    """Return whether a polynomial kernel's monomials are few compared with rows."""
    n_variables = grams.n_kernels
    if offset:
        n_variables += 1
    n_monomials = comb(n_variables + degree - 1, degree)
    return n_monomials <= 0.5 * grams.n_rows


def factor_of_power(
    grams: FeatureGrams, mu: np.ndarray, degree: int, offset: float
) -> np.ndarray | None:
    """Return features F of a polynomial kernel ``F F'``; None if there are many."""
    if not has_few_monomials(grams, degree, offset):
        return None
    monomials = Monomials(grams, degree, offset)
    return np.asarray(monomials.Phi * np.sqrt(monomials.scales(mu)))


class Monomials:
    """All D monomials of one degree in p features, at m rows.

    Phi has shape (m, D), `exponents` (D, p + 1), first of the offset.
    """

    def __init__(self, grams: FeatureGrams, degree: int, offset: float) -> None:
        Z = grams.dense()
        m, p = Z.shape
        self._degree = degree
        self._offset = offset
        self._variables = np.hstack([np.ones((m, 1)), Z])
        if offset:
            variables = range(p + 1)
        else:
            variables = range(1, p + 1)
        choices = list(combinations_with_replacement(variables, degree))
        self.Phi = np.ones((m, len(choices)), order="F")
        for factor in np.array(choices, dtype=np.intp).reshape(-1, degree).T:
            self.Phi *= self._variables[:, factor]
        self.exponents, self._coefficients = _exponents(choices, p + 1)
        # Each monomial of degree d - 1 times a feature is a monomial of degree d.
        position = {choice: a for a, choice in enumerate(choices)}
        lower = list(combinations_with_replacement(variables, degree - 1))
        self._lower_exponents, self._lower_coefficients = _exponents(lower, p + 1)
        raised = [
            [position[tuple(sorted((*choice, k)))] for k in range(1, p + 1)]
            for choice in lower
        ]
        self._raised = np.array(raised, dtype=np.intp)

    def scales(self, mu: np.ndarray) -> np.ndarray:
        """Return the weights of the monomials, shape (D,)."""
        return self._coefficients * _powers(self._with_offset(mu), self.exponents)

    def slopes(self, mu: np.ndarray, squares: np.ndarray) -> np.ndarray:
        r"""Return the gradient of ``scales(mu) @ squares`` by mu, shape (p,)."""
        lower = self._lower_coefficients * _powers(
            self._with_offset(mu), self._lower_exponents
        )
        return np.asarray(self._degree * (lower @ squares[self._raised]))

    def largest_entry(self, mu: np.ndarray) -> float:
        """Return the polynomial kernel's largest entry for weights mu."""
        return (
            float(((self._variables**2) @ self._with_offset(mu)).max()) ** self._degree
        )

    def _with_offset(self, mu: np.ndarray) -> np.ndarray:
        return np.concatenate([[self._offset], mu])


def _exponents(
    choices: list[tuple[int, ...]], n_variables: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the exponents and multinomial coefficients of monomials."""
    exponents = np.array(
        [
            np.bincount(np.array(choice, dtype=np.intp), minlength=n_variables)
            for choice in choices
        ]
    )
    coefficients = [
        factorial(int(row.sum())) / np.prod([factorial(n) for n in row])
        for row in exponents
    ]
    return exponents, np.array(coefficients)


def _powers(values: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    return np.asarray(np.prod(values[None, :] ** exponents, axis=1))


def monomial_ridge(
    grams: FeatureGrams, Y: np.ndarray, ridge: float, degree: int, offset: float
) -> Callable[[np.ndarray], Iterate]:
    r"""Return a function that evaluates the objective of `NKRR` on monomials.

    O(m D^2) once, then O(D^3 / 3 + m D q) per evaluation, which raises ValueError if
    rounding exceeds lambda.
    """
    monomials = Monomials(grams, degree, offset)
    Phi = monomials.Phi
    right = Phi.T @ Y
    gram = Phi.T @ Phi

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
