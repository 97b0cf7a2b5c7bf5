"""Factors computed in place, and leave-one-out residuals of ridge regressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from operator import attrgetter

import numpy as np
from scipy.linalg import (
    LinAlgError,
    cho_factor,
    cho_solve,
    eigh,
    get_lapack_funcs,
    solve_triangular,
)

from ..centering import Centering, mirror, weighted_by_roots
from ..row_groups import RowGroups

Factor = tuple[np.ndarray, bool]
"""Cholesky factor in the format of `scipy.linalg.cho_solve`."""

LATER_BLOCKS = 5
"""Number of later blocks, predicted from earlier rows."""

SINGLE_ROWS = 1000
"""Most rows for which factors in double precision are inverted in double precision."""


def cholesky(A: np.ndarray, ridge: float = 0.0) -> Factor | None:
    """Return the Cholesky factor of ``A + ridge I``, None if it fails; overwrites A."""
    A.flat[:: len(A) + 1] += ridge
    try:
        # LAPACK factors in place in Fortran order, the transpose of C order.
        factor: Factor = cho_factor(
            A.T, lower=True, overwrite_a=True, check_finite=False
        )
    except LinAlgError:
        return None
    return factor


def submatrix(K: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the submatrix of K at `rows`; K itself, not a copy, for all rows."""
    if len(rows) == len(K):
        return K
    return K[np.ix_(rows, rows)]


def eigenvectors(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues and eigenvectors of symmetric A; overwrites A.

    Uses half the memory of `numpy.linalg.eigh`.
    """
    values, vectors = eigh(A.T, overwrite_a=True, check_finite=False, driver="evd")
    return values, vectors


def factored(A: np.ndarray, ridge: float = 0.0, size: float | None = None) -> Factor:
    """Return the Cholesky factor of A plus the smallest ridge that rounding allows.

    Ridges are relative to `size`, by default the largest diagonal entry.
    """
    if size is None:
        size = float(A.diagonal().max())
    while True:
        factor = cholesky(A.copy(), ridge * size)
        if factor is not None:
            return factor
        if ridge > 1e-3:
            raise ArithmeticError(
                "a kernel is far from positive semi-definite; is it finite?"
            )
        ridge = max(10 * ridge, 1e-13)


def factored_with_ridge(A: np.ndarray, ridge: float) -> Factor | None:
    """Return the Cholesky factor of ``A + ridge I``; None if A's rounding error exceeds ridge.

    Overwrites A, in C order.
    """
    rounding = len(A) * np.finfo(np.float64).eps * (float(A.diagonal().max()) + ridge)
    factor = cholesky(A, ridge)
    if factor is None or factor[0].diagonal().min() ** 2 <= rounding:
        return None
    return factor


def ridge_factor(K: np.ndarray, ridge: float) -> Factor:
    """Return the Cholesky factor of ``K + ridge I``; ValueError if it fails; overwrites K."""
    factor = cholesky(K, ridge)
    if factor is None:
        raise ValueError(
            f"the learned kernel plus lambda = {ridge:.1e} is not positive definite up to rounding; use a smaller C."
        )
    return factor


@dataclass(frozen=True)
class LeftOut:
    """Kernel ridge regression with leave-one-out or leave-one-group-out residuals.

    `alpha`, shape (m, q), are the dual coefficients.
    """

    ridge: float
    alpha: np.ndarray
    sample_weight: np.ndarray
    row_groups: RowGroups | None
    _regressions: LeaveOneOut
    _factor: Factor
    _constant: float
    _alpha_around_others: np.ndarray

    @cached_property
    def _inverse(self) -> np.ndarray:
        lower, _ = self._factor
        return _inverse_of_lower(lower)

    @cached_property
    def residuals(self) -> np.ndarray:
        """Held-out residual of each row, from a fit without it or its group, (m, q).

        For ordered groups, the fit uses earlier blocks; NaN for the first block.
        """
        if self.row_groups is None:
            return self._residuals_from(0)
        if self.row_groups.ordered:
            return self._regressions.residuals_of_later(self.ridge)
        return self.residuals_of_groups

    def _residuals_from(self, start: int) -> np.ndarray:
        """Return leave-one-out residuals of the rows from `start` on."""
        weights = self.sample_weight[start:]
        diagonal = self._diagonal_from(start) - self._constant * weights
        return np.asarray(
            self._alpha_around_others[start:] / (weights * diagonal)[:, None]
        )

    def _diagonal_from(self, start: int) -> np.ndarray:
        """Return the diagonal of the inverse matrix from row `start` on."""
        if "_inverse" in self.__dict__:
            return _column_norms(self._inverse[start:, start:])
        lower = self._factor[0]
        is_large = lower.dtype == np.float64 and len(lower) - start > SINGLE_ROWS
        if is_large and _is_well_conditioned(lower):
            largest = float(lower.diagonal().max())
            scaled = np.empty_like(lower[start:, start:], dtype=np.float32)
            # The upper triangle holds the matrix, whose range is larger.
            with np.errstate(over="ignore"):
                np.divide(
                    lower[start:, start:], largest, out=scaled, casting="same_kind"
                )
            return _column_norms(_inverse_of_lower(scaled)) / largest**2
        if start > 0:
            return _column_norms(_inverse_of_lower(lower[start:, start:]))
        return _column_norms(self._inverse)

    @cached_property
    def residuals_of_groups(self) -> np.ndarray:
        """Held-out residual of each row, from a fit without its group, (m, q)."""
        if self.row_groups is None:
            return self.residuals
        L = np.tril(self._inverse)
        roots = np.sqrt(self.sample_weight)
        residuals = np.empty_like(self.alpha)
        for rows in rows_by_group(self.row_groups.numbers):
            columns = L[rows.min() :, rows]
            G = columns.T @ columns - self._constant * np.outer(
                roots[rows], roots[rows]
            )
            scaled = np.linalg.solve(
                G, self._alpha_around_others[rows] / roots[rows, None]
            )
            residuals[rows] = scaled / roots[rows, None]
        return residuals

    @property
    def is_held_out(self) -> np.ndarray:
        """Mask of the rows that have a held-out residual, shape (m,)."""
        return np.asarray(~np.isnan(self.residuals[:, 0]))

    @property
    def loss(self) -> float:
        """Weighted sum of squared held-out residuals."""
        squares = np.square(self.residuals).sum(axis=1)
        if self.row_groups is None or not self.row_groups.ordered:
            return float(self.sample_weight @ squares)
        return float(np.nansum(self.sample_weight * squares))

    def loss_from(self, start: int) -> float:
        """Return the weighted sum of squared leave-one-out residuals from row `start` on.

        Rows have no groups.
        """
        squares = np.square(self._residuals_from(start)).sum(axis=1)
        return float(self.sample_weight[start:] @ squares)

    @cached_property
    def inverse(self) -> np.ndarray:
        """Matrix G that maps targets to coefficients, ``alpha = G Y``."""
        (multiply,) = get_lapack_funcs(("lauum",), (self._inverse,))
        lower, _ = multiply(self._inverse, lower=1)
        G = mirror(lower.T)
        if (self.sample_weight == 1.0).all():
            G -= self._constant
            return G
        roots = np.sqrt(np.outer(self.sample_weight, self.sample_weight))
        G -= self._constant * roots
        G *= roots
        return G


def _is_well_conditioned(lower: np.ndarray) -> bool:
    """Return whether single precision suffices for the inverse of a Cholesky factor."""
    diagonal = lower.diagonal()
    return bool(diagonal.min() > 1e-3 * diagonal.max())


def _column_norms(lower: np.ndarray) -> np.ndarray:
    return np.array(
        [np.vdot(lower[j:, j], lower[j:, j]) for j in range(len(lower))],
        dtype=np.float64,
    )


def _inverse_of_lower(lower: np.ndarray) -> np.ndarray:
    (invert,) = get_lapack_funcs(("trtri",), (lower,))
    inverse, _ = invert(lower, lower=1)
    return np.asarray(inverse)


def rows_by_group(numbers: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order])) + 1
    return np.split(order, starts)


class LeaveOneOut:
    r"""Kernel ridge regressions for several ridges, with leave-one-out residuals.

    .. math:: \alpha = G Y, \qquad
              G = (K_c + \lambda W^{-1})^{-1} - \frac{w w^\top}{\lambda \, \mathbf 1^\top w}, \qquad
              y_i - f^{(-i)}(x_i) = \frac{\alpha_i}{G_{ii}}

    where W is the diagonal of the weights w. Without centering, the second term is
    absent; with the mean :math:`\bar y` as intercept, :math:`\alpha = G (Y - \bar y)`,
    and the residual has the additional term

    .. math:: \frac{w_i (y_i - \bar y)}{\mathbf 1^\top w - w_i} \, \frac{(G \mathbf 1)_i}{G_{ii}}

    Residuals of groups are :math:`G_{gg}^{-1} \alpha_g`; of ordered blocks b, with the
    factor :math:`L L^\top`, :math:`L_{bb} (L^{-1} y)_b`. Factors have the dtype of K. Of
    a single group, each row is left out.
    See Cawley, Talbot (2003), Neural Networks 16:467-475.
    """

    def __init__(
        self,
        K: np.ndarray,
        Y: np.ndarray,
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
        row_groups: RowGroups | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        if row_groups is not None and row_groups.n_groups < 2:
            row_groups = None
        self._row_groups = row_groups
        self._centering = centering
        if sample_weight is None:
            self._weights = np.ones(len(K))
        else:
            self._weights = sample_weight
        roots = np.sqrt(self._weights)
        precision = np.float32 if K.dtype == np.float32 else np.float64
        is_ordered = row_groups is not None and row_groups.ordered
        self._overwrite = overwrite and not is_ordered  # later blocks need the matrix
        copy = None if overwrite else True
        matrix = np.array(K, dtype=precision, order="C", copy=copy)
        self._matrix = weighted_by_roots(matrix, sample_weight)
        self._eigenvalue: float | None = None
        if centering.subtracts:
            self._eigenvalue = 2.0 * float(np.trace(self._matrix))
            share = self._eigenvalue / float(self._weights.sum())
            if sample_weight is None:
                self._matrix += share
            else:
                self._matrix += np.outer(roots * share, roots)
        self._roots = roots[:, None].astype(precision)
        targets = self._roots * (Y - centering.target_mean(Y, sample_weight))
        self._targets = targets.astype(precision)
        self._mean_of_others = centering.intercept and not centering.subtracts

    def at(self, ridge: float) -> LeftOut:
        """Return the regression for a ridge; ValueError if the ridge is too small.

        With `overwrite`, it is the only one, as its factor replaces the matrix.
        """
        if not 0 < ridge < np.inf:
            raise ValueError(f"ridge must be positive and finite, got {ridge}.")
        matrix = self._matrix if self._overwrite else self._matrix.copy()
        factor = cholesky(matrix, ridge)
        if factor is None:
            raise ValueError(
                f"the kernel plus a ridge of {ridge:.1e} is not positive definite; use a larger ridge."
            )
        alpha = self._roots * cho_solve(factor, self._targets, check_finite=False)
        constant = 0.0
        if self._eigenvalue is not None:
            constant = 1.0 / (self._weights.sum() * (self._eigenvalue + ridge))
        alpha_around_others = alpha
        if self._mean_of_others:
            alpha_of_ones = self._roots * cho_solve(
                factor, self._roots, check_finite=False
            )
            weight_of_others = self._weights.sum() - self._sum_by_group(
                self._weights[:, None]
            )
            alpha_around_others = (
                alpha
                + alpha_of_ones
                * self._sum_by_group(self._roots * self._targets)
                / weight_of_others
            )
        return LeftOut(
            ridge,
            alpha,
            self._weights,
            self._row_groups,
            self,
            factor,
            constant,
            alpha_around_others,
        )

    def _sum_by_group(self, values: np.ndarray) -> np.ndarray:
        if self._row_groups is None:
            return values
        numbers = self._row_groups.numbers
        sums = np.column_stack([np.bincount(numbers, column) for column in values.T])
        return np.asarray(sums[numbers])

    def residuals_of_later(self, ridge: float) -> np.ndarray:
        """Return residuals of each block of time, predicted from earlier blocks; NaN in the first."""
        assert self._row_groups is not None
        blocks = self._row_groups.blocks(1 + LATER_BLOCKS)
        order = np.argsort(blocks, kind="stable")
        factor = cholesky(self._matrix[np.ix_(order, order)], ridge)
        if factor is None:
            raise ValueError(
                f"the kernel plus a ridge of {ridge:.1e} is not positive definite; use a larger ridge."
            )
        L = np.tril(factor[0])
        z, ones = (
            solve_triangular(L, values[order], lower=True)
            for values in (self._targets, self._roots)
        )
        residuals = np.full_like(self._targets, np.nan)
        for block in range(1, blocks.max() + 1):
            start, stop = np.searchsorted(blocks[order], [block, block + 1])
            intercept = np.zeros(self._targets.shape[1])
            if self._centering.subtracts:
                intercept = ones[:start].T @ z[:start] / np.square(ones[:start]).sum()
            elif self._centering.intercept:
                earlier = order[:start]
                intercept = (
                    self._roots[earlier].T @ self._targets[earlier]
                ) / self._weights[earlier].sum()
            rows = order[start:stop]
            residuals[rows] = L[start:stop, start:stop] @ (
                z[start:stop] - ones[start:stop] * intercept
            )
        return np.asarray(residuals / self._roots)

    def best(
        self,
        ridges: Sequence[float],
        near: float | None = None,
        loss: Callable[[LeftOut], float] = attrgetter("loss"),
    ) -> LeftOut:
        """Return the regression whose ridge has the smallest held-out loss."""
        start = None
        if near is not None:
            start = int(np.argmin(np.abs(np.log(ridges) - np.log(near))))
        path = _LossAlongPath(self, ridges, loss)
        least_along(path, len(ridges), start)
        if path.best is None:
            return self.at(max(ridges))
        return path.best


class _LossAlongPath:
    """Loss as a function of the position, and the best regression."""

    def __init__(
        self,
        regressions: LeaveOneOut,
        ridges: Sequence[float],
        loss: Callable[[LeftOut], float],
    ) -> None:
        self._regressions = regressions
        self._ridges = ridges
        self._loss = loss
        self._best_loss = np.inf
        self.best: LeftOut | None = None

    def __call__(self, position: int) -> float:
        try:
            fit = self._regressions.at(self._ridges[position])
        except ValueError:
            return np.inf
        loss = self._loss(fit)
        if self.best is None or loss < self._best_loss:
            self._best_loss = loss
            self.best = fit
        return loss


def least_along(value: Callable[[int], float], n: int, start: int | None = None) -> int:
    """Return the integer from 0 to n - 1 at which a unimodal function is smallest.

    The smallest integers may have infinite values.
    """
    cached_value = cache(value)
    step = 1
    if start is None:
        start = min(range(min(2, n - 1), n, 4), key=cached_value)
        step = 2
    position = start
    while position < n - 1 and np.isinf(cached_value(position)):
        position += 1
    n_moves = 0
    while True:
        neighbors = (position, max(position - step, 0), min(position + step, n - 1))
        best = min(neighbors, key=cached_value)
        if best != position:
            position = best
            n_moves += 1
            if n_moves % 2 == 0:
                step *= 2
        elif step > 1:
            step //= 2
            n_moves = 0
        else:
            return position
