"""Weights of rows, of which only the ratios count: checked, divided by their mean, and without those too small."""

from __future__ import annotations

import numpy as np

from .base import warn_caller

LEAST_SHARE = float(np.finfo(np.float64).eps)
"""Share of the total weight up to which a row is left out: less than the rounding of any weighted sum over the rows."""


def as_sample_weight(
    sample_weight: np.ndarray | None, n_rows: int, *, zero: bool = False, name: str = "sample_weight"
) -> np.ndarray | None:
    """Return the weights of some rows as float64, shape (m,); None for no weights.

    Raises
    ------
    ValueError
        The number of weights is not that of the rows, or a weight is not finite or not positive. With `zero`, weights
        may be zero.
    """
    if sample_weight is None:
        return None
    w = np.asarray(sample_weight, dtype=np.float64)
    if w.shape != (n_rows,):
        raise ValueError(
            f"{name} must have one entry per row, got shape {w.shape} for {n_rows} rows; give the weights of "
            "these rows."
        )
    wrong = ~(np.isfinite(w) & ((w >= 0) if zero else (w > 0)))
    if wrong.any():
        row = int(wrong.argmax())
        sign, advice = ("not negative", "") if zero else ("positive", "; drop rows of weight zero")
        raise ValueError(f"{name} must be finite and {sign}, got {w[row]:g} for row {row}{advice}.")
    return w


def weights_of_rows(weights: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    """Return the weights of some rows; None if rows have no weights."""
    if weights is None:
        return None
    return weights[rows]


def near_one(values: np.ndarray) -> np.ndarray:
    """Return weights, or a matrix, times the power of two that takes the largest size to between a half and one.

    Nothing is rounded, so that means and alignments keep their bits. Sums and squares do not overflow.
    """
    _, exponent = np.frexp(np.abs(values).max())
    return np.asarray(np.ldexp(values, -exponent))


def of_mean_one(w: np.ndarray) -> np.ndarray:
    """Return positive weights divided by their mean."""
    w = near_one(w)
    return np.asarray(w / w.mean())


def relative_weights(*factors: np.ndarray) -> np.ndarray:
    """Return the products of weights, divided by their mean over the rows that count, shape (m,).

    Parameters
    ----------
    *factors : ndarray of shape (m,)
        Finite and not negative. Their products may be out of the range of numbers.

    Returns
    -------
    weights : ndarray of shape (m,)
        Zero for rows that do not count: of a product of zero, or of at most `LEAST_SHARE` of the sum of all products.
    """
    mantissas, exponents = np.ones(len(factors[0])), np.zeros(len(factors[0]), dtype=np.int64)
    for factor in factors:
        mantissa, exponent = np.frexp(factor)
        mantissas *= mantissa
        exponents += exponent
    positive = mantissas > 0
    if not positive.any():
        return mantissas
    exponents = np.where(positive, exponents - exponents[positive].max(), 0)
    weights = np.ldexp(mantissas, exponents)
    weights[weights <= LEAST_SHARE * weights.sum()] = 0.0
    return np.asarray(weights / weights[weights > 0].mean())


def counting_rows(*factors: np.ndarray, name: str = "sample_weight") -> tuple[np.ndarray, np.ndarray | None]:
    """Return which rows count, and their weights: products of weights, divided by their mean.

    Parameters
    ----------
    *factors : ndarray of shape (m,)
        As in `relative_weights`.
    name : str
        As errors and warnings call the weights.

    Returns
    -------
    rows : ndarray of int
        Positions of the rows that count, ascending.
    weights : ndarray or None
        Weights of these rows, of mean one; None if all are equal.

    Raises
    ------
    ValueError
        Fewer than two rows count.

    Warns
    -----
    UserWarning
        Rows have a positive weight that is too small to count.
    """
    weights = relative_weights(*factors)
    rows = np.flatnonzero(weights)
    is_positive = np.logical_and.reduce([factor > 0 for factor in factors])
    too_small = int(np.count_nonzero(is_positive)) - len(rows)
    if too_small:
        warn_caller(f"{name} {too_small_to_count(too_small, len(weights))}.")
    if len(rows) < 2:
        raise ValueError(
            f"{name} must be positive for at least 2 rows, got zero, or too little to count, for all but {len(rows)} "
            f"of {len(weights)}."
        )
    weights = weights[rows]
    return rows, None if (weights == weights[0]).all() else weights


def too_small_to_count(n_too_small: int, n_rows: int) -> str:
    """Return the predicate of a warning about rows whose weights are too small to count."""
    return (
        f"is too small to count in {n_too_small:,} of {n_rows:,} rows, at most {LEAST_SHARE:.1e} of the total, and "
        "these rows are left out"
    )
