"""Test whether differences between methods are significant."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

SIGNIFICANCE = 0.1
"""Level of the one-sided t-tests."""

RANKS_LEVEL = 0.05
"""Level of the Nemenyi test."""

ROUNDING = 1e-12
"""Differences below this share of the largest error are rounding errors."""


def paired_p(errors: np.ndarray, baseline: np.ndarray) -> float | None:
    """Return the p-value of a paired t-test that errors are below the baseline's.

    Trials that share training rows violate the assumption of independence. See Cortes,
    Mohri, Rostamizadeh (2012), appendix C.
    """
    return corrected_p(errors, baseline, 0.0)


def corrected_p(
    errors: np.ndarray, baseline: np.ndarray, test_share: float
) -> float | None:
    """Return the p-value of a corrected resampled t-test that errors are below the baseline's.

    The variance is corrected for training rows that trials share (Nadeau, Bengio, 2003,
    section 3). None for fewer than two pairs; 0 or 1 if all differences are equal.
    """
    n = len(errors)
    if len(baseline) != n or n < 2:
        return None
    differences = errors - baseline
    rounding = ROUNDING * max(np.abs(errors).max(), np.abs(baseline).max())
    if np.ptp(differences) <= rounding:
        if differences.mean() < -rounding:
            return 0.0
        return 1.0
    variance = (1 / n + test_share) * differences.var(ddof=1)
    t = differences.mean() / np.sqrt(variance)
    return float(stats.t.cdf(t, n - 1))


def two_sided_p(errors: np.ndarray, others: np.ndarray, test_share: float) -> float:
    """Return the two-sided p-value of the corrected t-test; NaN below two pairs."""
    p_lower = corrected_p(errors, others, test_share)
    p_higher = corrected_p(others, errors, test_share)
    if p_lower is None or p_higher is None:
        return math.nan
    return min(1.0, 2 * p_lower, 2 * p_higher)


def critical_difference(n_datasets: int, n_methods: int) -> float:
    """Return the smallest significant difference of mean ranks, by Nemenyi's test.

    See Demsar (2006), section 3.2.2.
    """
    q = stats.studentized_range.ppf(1 - RANKS_LEVEL, n_methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_datasets)))


def higher_p(errors: np.ndarray, others: np.ndarray, test_share: float) -> float | None:
    """Return the p-value of Welch's test that errors exceed those on other rows.

    Corrected as in `corrected_p`. None for fewer than two trials on a data set; 0 or 1
    if no error varies.
    """
    n = len(errors)
    m = len(others)
    if min(n, m) < 2:
        return None
    variances = np.array(
        [
            (1 / n + test_share) * errors.var(ddof=1),
            (1 / m + test_share) * others.var(ddof=1),
        ]
    )
    variance = variances.sum()
    difference = errors.mean() - others.mean()
    rounding = ROUNDING * max(errors.max(), others.max())
    if np.sqrt(variance) <= rounding:
        if difference > rounding:
            return 0.0
        return 1.0
    degrees_of_freedom = variance**2 / (variances**2 / (n - 1, m - 1)).sum()
    return float(stats.t.sf(difference / np.sqrt(variance), degrees_of_freedom))


def share_of_test(n_test: np.ndarray, n_rows: np.ndarray) -> float:
    """Return the mean ratio of test rows to other rows, for `corrected_p`.

    Unlike in Nadeau and Bengio, validation and unused rows count as training rows.
    """
    return float(np.mean(n_test / (n_rows - n_test)))
