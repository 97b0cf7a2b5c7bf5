"""Cholesky factors of matrices that are positive definite but for their rounding."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor

SMALLEST_RIDGE = 1e-13
"""Added to a diagonal, relative to its largest entry, where rounding leaves a matrix indefinite."""

LARGEST_RIDGE = 1e-3
"""Relative to the same; a matrix that asks for more is not positive semi-definite, or not finite."""


def factored(A: np.ndarray, ridge: float = 0.0, size: float | None = None) -> tuple[np.ndarray, bool]:
    """Return the Cholesky factor of a symmetric matrix, with a ridge as small as its rounding allows.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Positive semi-definite but for rounding, in C order. Not modified.
    ridge : float, default 0
        Added to the diagonal, relative to `size`; ten times as much after every failure.
    size : float, optional
        The largest diagonal entry by default.

    Returns
    -------
    factor : tuple of ndarray and bool
        As `scipy.linalg.cho_solve` takes it.

    Raises
    ------
    ArithmeticError
        The matrix is far from positive semi-definite.
    """
    size = float(A.diagonal().max()) if size is None else size
    while True:
        regular = A.copy()
        regular.flat[:: len(A) + 1] += ridge * size
        try:
            # The transpose of a symmetric matrix in C order is one in Fortran order, which LAPACK factors in place.
            return cho_factor(regular.T, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            if ridge > LARGEST_RIDGE:
                raise ArithmeticError("a kernel is far from positive semi-definite; is it finite?") from None
            ridge = max(10 * ridge, SMALLEST_RIDGE)


def factored_with_ridge(A: np.ndarray, ridge: float) -> tuple[np.ndarray, bool] | None:
    """Return the Cholesky factor of ``A + ridge I``, or None where that is not positive definite up to rounding.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Positive semi-definite, in C order. Overwritten.
    ridge : float
        Positive; no pivot of the exact factor is below it.

    Returns
    -------
    factor : tuple of ndarray and bool, or None
        As `scipy.linalg.cho_solve` takes it.
    """
    A.flat[:: len(A) + 1] += ridge
    rounding = len(A) * np.finfo(np.float64).eps * float(A.diagonal().max())
    try:
        # The transpose of a symmetric matrix in C order is one in Fortran order, which LAPACK factors in place.
        factor: tuple[np.ndarray, bool] = cho_factor(A.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    return factor if factor[0].diagonal().min() ** 2 > rounding else None
