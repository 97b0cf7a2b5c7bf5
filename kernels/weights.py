"""Sample weights: validation, scaling, and removal of negligible ones."""

from __future__ import annotations

import numpy as np

from .base import warn_caller

LEAST_SHARE = float(np.finfo(np.float64).eps)
"""Share of the total weight up to which rows are dropped."""


def as_sample_weight(
    sample_weight: np.ndarray | None,
    n_rows: int,
    *,
    zero: bool = False,
    name: str = "sample_weight",
) -> np.ndarray | None:
    """Check sample weights; return a float64 array, (m,), or None without weights.

    They must be finite and positive, or with `zero` not negative.
    """
    if sample_weight is None:
        return None
    w = np.asarray(sample_weight, dtype=np.float64)
    if w.shape != (n_rows,):
        raise ValueError(
            f"{name} must have one entry per row, got shape {w.shape} for {n_rows} rows; give the weights of "
            "these rows."
        )
    if zero:
        is_valid = w >= 0
        sign = "not negative"
        advice = ""
    else:
        is_valid = w > 0
        sign = "positive"
        advice = "; drop rows of weight zero"
    is_valid &= np.isfinite(w)
    if not is_valid.all():
        row = int(is_valid.argmin())
        raise ValueError(
            f"{name} must be finite and {sign}, got {w[row]:g} for row {row}{advice}."
        )
    return w


def weights_of_rows(
    weights: np.ndarray | None, rows: np.ndarray | slice
) -> np.ndarray | None:
    if weights is None:
        return None
    return weights[rows]


def near_one(values: np.ndarray) -> np.ndarray:
    """Divide values by a power of two, so that the largest is 1/2 to 1."""
    _, exponent = np.frexp(np.abs(values).max())
    return np.asarray(np.ldexp(values, -exponent))


def of_mean_one(w: np.ndarray) -> np.ndarray:
    w = near_one(w)
    return np.asarray(w / w.mean())


def relative_weights(*factors: np.ndarray) -> np.ndarray:
    """Multiply arrays of weights, and scale the positive products to mean one.

    Products may exceed the range of floats. Shares up to `LEAST_SHARE` become zero.
    """
    mantissas = np.ones(len(factors[0]))
    exponents = np.zeros(len(factors[0]), dtype=np.int64)
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


def counting_rows(
    *factors: np.ndarray, name: str = "sample_weight"
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the rows with positive weight, and their weights divided by the mean.

    Equal weights are None. A warning counts negligible weights.
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
    if (weights == weights[0]).all():
        return rows, None
    return rows, weights


def too_small_to_count(n_too_small: int, n_rows: int) -> str:
    return (
        f"is too small to count in {n_too_small:,} of {n_rows:,} rows, at most {LEAST_SHARE:.1e} of the total, and "
        "these rows are left out"
    )
