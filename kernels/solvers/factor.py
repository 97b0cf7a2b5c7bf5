"""Factors in place: of Cholesky for matrices that are positive definite but for their rounding, and eigenvectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, lapack

from ..centering import Centering, weighted_by_roots

SMALLEST_RIDGE = 1e-13
"""Added to a diagonal, relative to its largest entry, where rounding leaves a matrix indefinite."""

LARGEST_RIDGE = 1e-3
"""Relative to the same; a matrix that needs more is not positive semi-definite, or not finite."""


Factor = tuple[np.ndarray, bool]
"""A Cholesky factor as `scipy.linalg.cho_solve` takes it."""


def cholesky(A: np.ndarray, ridge: float = 0.0) -> Factor | None:
    """Return the Cholesky factor of ``A + ridge I``, or None where a pivot is not positive.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Symmetric, in C order. Overwritten.
    ridge : float, default 0
        Added to the diagonal.
    """
    A.flat[:: len(A) + 1] += ridge
    try:
        # The transpose of a symmetric matrix in C order is one in Fortran order, which LAPACK factors in place.
        factor: Factor = cho_factor(A.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    return factor


def eigenvectors(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues, ascending, and eigenvectors of a symmetric matrix in C order, which is overwritten.

    Memory is that of two more such matrices, where NumPy's takes four.
    """
    values, vectors = eigh(A.T, overwrite_a=True, check_finite=False, driver="evd")
    return values, vectors


def factored(A: np.ndarray, ridge: float = 0.0, size: float | None = None) -> Factor:
    """Return the Cholesky factor of a symmetric matrix, with a ridge as small as its rounding allows.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Positive semi-definite but for rounding, in C order. Not modified.
    ridge : float, default 0
        Added to the diagonal, relative to `size`; ten times as much after every failure.
    size : float, optional
        The largest diagonal entry by default.

    Raises
    ------
    ArithmeticError
        The matrix is far from positive semi-definite.
    """
    size = float(A.diagonal().max()) if size is None else size
    while (factor := cholesky(A.copy(), ridge * size)) is None:
        if ridge > LARGEST_RIDGE:
            raise ArithmeticError("a kernel is far from positive semi-definite; is it finite?")
        ridge = max(10 * ridge, SMALLEST_RIDGE)
    return factor


def factored_with_ridge(A: np.ndarray, ridge: float) -> Factor | None:
    """Return the Cholesky factor of ``A + ridge I``, or None where that is not positive definite up to rounding.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Positive semi-definite, in C order. Overwritten.
    ridge : float
        Positive; no pivot of the exact factor is below it.
    """
    rounding = len(A) * np.finfo(np.float64).eps * (float(A.diagonal().max()) + ridge)
    factor = cholesky(A, ridge)
    return factor if factor is not None and factor[0].diagonal().min() ** 2 > rounding else None


def ridge_factor(K: np.ndarray, ridge: float) -> Factor:
    """Return the Cholesky factor of a learned kernel plus lambda, ``K + ridge I``; K, in C order, is overwritten.

    Raises
    ------
    ValueError
        The sum is not positive definite up to rounding.
    """
    factor = cholesky(K, ridge)
    if factor is None:
        raise ValueError(
            f"the learned kernel plus lambda = {ridge:.1e} is not positive definite up to rounding; use a smaller C."
        )
    return factor


STEPS = (4, 2, 1)
"""Positions of a grid between the values that a search compares, from first to last."""


@dataclass(frozen=True)
class LeftOut:
    r"""A ridge regression, and its leave-one-out residuals.

    Attributes
    ----------
    ridge : float
        lambda.
    alpha : ndarray of shape (m, q)
        Dual coefficients; of a centered kernel they sum to zero.
    sample_weight : ndarray of shape (m,)
        w.
    """

    ridge: float
    alpha: np.ndarray
    sample_weight: np.ndarray
    _factor: Factor
    _constant: float
    _alpha_around_others: np.ndarray

    @cached_property
    def _inverse(self) -> np.ndarray:
        """Inverse of the factor, of which one triangle counts."""
        inverse, _ = lapack.dtrtri(self._factor[0], lower=1)
        return np.asarray(inverse)

    @cached_property
    def residuals(self) -> np.ndarray:
        """``y_i - f^(-i)(x_i)``, where f^(-i) is fitted, intercept included, on all rows but row i, shape (m, q)."""
        inverse = self._inverse  # the other triangle holds what the matrix had there
        diagonal = np.array([np.vdot(inverse[j:, j], inverse[j:, j]) for j in range(len(inverse))])
        diagonal -= self._constant * self.sample_weight
        return np.asarray(self._alpha_around_others / (self.sample_weight * diagonal)[:, None])

    @property
    def loss(self) -> float:
        """Sum of the squared leave-one-out residuals, each times the weight of its row."""
        return float(self.sample_weight @ np.square(self.residuals).sum(axis=1))

    @cached_property
    def inverse(self) -> np.ndarray:
        r"""G, shape (m, m): :math:`\alpha = G Y`, and without row i :math:`\alpha_j - G_{ji} \alpha_i / G_{ii}`."""
        lower, _ = lapack.dlauum(self._inverse, lower=1)
        G, roots = np.tril(lower), np.sqrt(np.outer(self.sample_weight, self.sample_weight))
        G += np.tril(lower, -1).T
        G -= self._constant * roots
        G *= roots
        return G


class LeaveOneOut:
    r"""Kernel ridge regressions along a path of ridges, with an intercept or without, each row left out once.

    .. math:: \alpha = G Y, \qquad
              G = (K_c + \lambda W^{-1})^{-1} - \frac{w w^\top}{\lambda \, \mathbf 1^\top w}, \qquad
              y_i - f^{(-i)}(x_i) = \frac{\alpha_i}{G_{ii}}

    where W is the diagonal matrix of the rows' weights w. Without intercept G has no second term. A matrix that is not
    centered has none either, and an intercept that is the mean :math:`\bar y` of the targets gives

    .. math:: \alpha = G (Y - \bar y), \qquad
              y_i - f^{(-i)}(x_i) = \frac{1}{G_{ii}} \Bigl( \alpha_i
              + \frac{w_i (y_i - \bar y)}{\mathbf 1^\top w - w_i} \, (G \mathbf 1)_i \Bigr)

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Gram matrix of the training rows, centered with their weights or as it is. Not modified.
    Y : ndarray of shape (m, q)
        Targets. Not modified.
    sample_weight : ndarray of shape (m,), optional
        Weights of the rows: the squared residual of a row counts as often, and the row is left out with all its weight.
        By default each counts once. Not modified.
    centering : Centering, default "center"
        That of K, not of the base kernels: see `LearnedKernel.gram_centering`. With none, K is not centered and there
        is no intercept. With target, K is not centered either, and the intercept is the mean of the targets: of a row
        that is left out the mean of the other targets.

    Notes
    -----
    G is the block of the inverse of the bordered matrix, with ones for the intercept, that belongs to the rows: leaving
    out a row takes its row and column out of that matrix, and the inverse of what is left follows by one elimination.
    With an intercept, ``sqrt(w)`` is an eigenvector of ``sqrt(W) K_c sqrt(W)``, which gets a large eigenvalue before
    the matrix is factorized, so that no digits are lost in the difference above.
    A ridge takes a Cholesky factor, m^3 / 3 flops, its residuals the inverse of this, as many, and O(m^2 q). Only the
    centering of K is that of all rows, which changes no prediction of a regression with an intercept.

    Around the mean of the other targets a left-out row has the coefficient in the large brackets, as coefficients are
    linear in the targets and that mean differs from the mean of all by the fraction there.

    References
    ----------
    Cawley, Talbot (2003), Neural Networks 16:467-475, for the least-squares SVM; the bordered inverse is derived
    in the formula above.
    """

    def __init__(
        self,
        K: np.ndarray,
        Y: np.ndarray,
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
    ) -> None:
        self._weights = np.ones(len(K)) if sample_weight is None else sample_weight
        roots = np.sqrt(self._weights)
        self._matrix = weighted_by_roots(np.array(K, dtype=np.float64, order="C"), sample_weight)
        self._eigenvalue = 2.0 * float(np.trace(self._matrix)) if centering.subtracts else None
        if self._eigenvalue is not None:
            self._matrix += np.outer(roots * (self._eigenvalue / self._weights.sum()), roots)
        self._roots = roots[:, None]
        self._targets = self._roots * (Y - centering.target_mean(Y, sample_weight))
        self._mean_of_others = centering.intercept and not centering.subtracts

    def at(self, ridge: float) -> LeftOut:
        """Return the regression for a ridge, positive; ValueError for one that rounding takes away."""
        if not 0 < ridge < np.inf:
            raise ValueError(f"ridge must be positive and finite, got {ridge}.")
        factor = cholesky(self._matrix.copy(), ridge)
        if factor is None:
            raise ValueError(f"the kernel plus a ridge of {ridge:.1e} is not positive definite; use a larger ridge.")
        solved = cho_solve(factor, self._targets, check_finite=False)
        alpha = self._roots * solved
        constant = 0.0 if self._eigenvalue is None else 1.0 / (self._weights.sum() * (self._eigenvalue + ridge))
        around_others = alpha
        if self._mean_of_others:
            of_ones = self._roots * cho_solve(factor, self._roots, check_finite=False)
            others = self._weights.sum() - self._weights
            around_others = alpha + of_ones * (self._roots * self._targets) / others[:, None]
        return LeftOut(ridge, alpha, self._weights, factor, constant, around_others)

    def best(
        self,
        ridges: Sequence[float],
        near: float | None = None,
        loss: Callable[[LeftOut], float] = lambda found: found.loss,
    ) -> LeftOut:
        """Return the regression with the least loss of rows that are left out; see `least_along`.

        Parameters
        ----------
        ridges : sequence of float
            Ascending or descending.
        near : float, optional
            A ridge that is known to be close to the best.
        loss : callable
            Of a regression; by default the sum of its squared leave-one-out residuals.
        """
        best: list[tuple[float, LeftOut]] = []

        def value(position: int) -> float:
            try:
                found = self.at(ridges[position])
            except ValueError:
                return np.inf
            one = loss(found)
            if not best or one < best[0][0]:
                best[:] = [(one, found)]  # one alone, as each holds a matrix
            return one

        least_along(value, len(ridges), None if near is None else int(np.argmin(np.abs(np.log(ridges) - np.log(near)))))
        return best[0][1] if best else self.at(max(ridges))


def least_along(value: Callable[[int], float], n: int, start: int | None = None) -> int:
    """Return where a function is least among n positions of a grid, along which it falls and then rises.

    Parameters
    ----------
    value : callable
        Of a position; called at most once for each.
    n : int
        Number of positions.
    start : int, optional
        Where to begin, close to the least value, and go on position by position; by default at the best of every
        fourth one.
    """
    known = cache(value)
    at = min(range(min(STEPS[0] // 2, n - 1), n, STEPS[0]), key=known) if start is None else start
    for step in STEPS[1:] if start is None else STEPS[-1:]:
        while (best := min((at, max(at - step, 0), min(at + step, n - 1)), key=known)) != at:
            at = best
    return at
