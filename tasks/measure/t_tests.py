"""Whether one way of learning is better than another on the same trials."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

SIGNIFICANCE = 0.1
"""Level of the one-sided t-tests, as in appendix C of JMLR 2012; `corrected_p` decides."""

RANKS_LEVEL = 0.05
"""Level of the Nemenyi test of mean ranks over data sets."""

ROUNDING = 1e-12
"""Share of the largest error below which differences are those of rounding."""


def paired_p(errors: np.ndarray, baseline: np.ndarray) -> float | None:
    """Return the p-value of a paired one-sided t-test that errors are lower than those of a baseline: the papers' own.

    It takes trials for independent. Those of a cross-validation share training rows, and it calls far more differences
    significant than its level says.

    Parameters
    ----------
    errors, baseline : ndarray of shape (n,)
        Of the same trials, in the same order.

    Returns
    -------
    p : float or None
        As `corrected_p`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, appendix C.
    """
    return corrected_p(errors, baseline, 0.0)


def corrected_p(errors: np.ndarray, baseline: np.ndarray, test_share: float) -> float | None:
    """Return the p-value of the corrected resampled t-test: the variance allows for training rows that trials share.

    It decides what is called significant; `paired_p` stands next to it.

    Parameters
    ----------
    errors, baseline : ndarray of shape (n,)
        Of the same trials, in the same order.
    test_share : float
        See `share_of_test`.

    Returns
    -------
    p : float or None
        None where there are no pairs, or fewer than two. Differences that are equal but for rounding give 0 or 1.

    References
    ----------
    Nadeau, Bengio (2003), Inference for the Generalization Error, Machine Learning 52:239-281, section 3.
    """
    n = len(errors)
    if len(baseline) != n or n < 2:
        return None
    difference, rounding = errors - baseline, ROUNDING * max(np.abs(errors).max(), np.abs(baseline).max())
    if np.ptp(difference) <= rounding:
        return 0.0 if difference.mean() < -rounding else 1.0
    t = difference.mean() / np.sqrt((1 / n + test_share) * difference.var(ddof=1))
    return float(stats.t.cdf(t, n - 1))


def two_sided_p(errors: np.ndarray, others: np.ndarray, test_share: float) -> float:
    """Return the two-sided p-value of the corrected resampled t-test; NaN where there is none, see `corrected_p`."""
    lower, higher = corrected_p(errors, others, test_share), corrected_p(others, errors, test_share)
    return math.nan if lower is None or higher is None else min(1.0, 2 * lower, 2 * higher)


def holm(p: Sequence[float]) -> np.ndarray:
    """Return p-values adjusted for the number of tests by the step-down method of Holm (1979), shape (n,)."""
    order, adjusted = np.argsort(p), np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1.0)


def critical_difference(n_datasets: int, n_methods: int) -> float:
    """Return the difference of mean ranks that is significant by the Nemenyi test at `RANKS_LEVEL`.

    References
    ----------
    Demsar (2006), Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7:1-30, section 3.2.2.
    """
    q = stats.studentized_range.ppf(1 - RANKS_LEVEL, n_methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_datasets)))


def higher_p(errors: np.ndarray, others: np.ndarray, test_share: float) -> float | None:
    """Return the p-value of a one-sided test that errors are higher than those of trials on other rows.

    Welch's test with the variances of `corrected_p`: trials are no pairs.

    Parameters
    ----------
    errors, others : ndarray of shape (n,) and (m,)
        Of trials on the rows of one data set, and of another.
    test_share : float
        See `share_of_test`.

    Returns
    -------
    p : float or None
        None where one of both has fewer than two trials. Means that are equal but for rounding give 1 where no error
        varies.
    """
    if min(len(errors), len(others)) < 2:
        return None
    variances = np.array([(1 / len(of) + test_share) * of.var(ddof=1) for of in (errors, others)])
    difference, rounding = errors.mean() - others.mean(), ROUNDING * max(errors.max(), others.max())
    if np.sqrt(variances.sum()) <= rounding:
        return 0.0 if difference > rounding else 1.0
    freedom = variances.sum() ** 2 / (variances**2 / (len(errors) - 1, len(others) - 1)).sum()
    return float(stats.t.sf(difference / np.sqrt(variances.sum()), freedom))


def share_of_test(n_test: np.ndarray, n_rows: np.ndarray) -> float:
    """Return the share that corrects the variance: the rows of a trial that test over all other rows, on average.

    Parameters
    ----------
    n_test, n_rows : ndarray of shape (n,)
        Test rows of each trial, and rows of the data set.

    Returns
    -------
    test_share : float

    Notes
    -----
    Nadeau and Bengio divide by the rows that train, which are all others in their trials. Of folds, the one that
    validates learns too; of rows that are drawn from many, those that are not drawn count, since two drawings then
    share few rows and their errors are nearly independent.
    """
    return float(np.mean(n_test / (n_rows - n_test)))
