"""Factors in place: of Cholesky for matrices that are positive definite but for their rounding, and eigenvectors."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, eigh

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
