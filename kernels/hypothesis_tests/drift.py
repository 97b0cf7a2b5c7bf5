r"""Tests whether new rows have the distribution of the training rows, by the learned
kernel and by column.

The kernel test detects changed interactions, but may miss columns that are irrelevant
to the target. The Kolmogorov-Smirnov tests of the columns detect these, but no
interactions. Each of the two has half of the level.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import sparse

from ..base import Value
from ..families.base import Rows
from ..learned_kernel import LearnedKernel
from .dependence import permutation_test

REFERENCE_ROWS = 500
"""Largest number of training rows in a model's reference, and of new rows that are compared with them."""

FEWEST_ROWS = 20
"""Smallest number of new rows that are tested."""


@dataclass(frozen=True, eq=False, repr=False)
class Reference(Value):
    """Statistics of the training rows, with which new rows are compared.

    Attributes
    ----------
    rows : ndarray of shape (r, d)
        Features of r random training rows.
    scores : ndarray of shape (r, q)
        Predicted numbers or decision values of these rows.
    low, high : ndarray of shape (d,)
        Smallest and largest values of the features in all training rows.
    shares : ndarray of shape (d,)
        Fraction of training rows in which a feature is not zero.
    """

    rows: np.ndarray
    scores: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(
        cls,
        X: Rows,
        low: np.ndarray,
        high: np.ndarray,
        scores_of: Callable[[np.ndarray], np.ndarray],
        seed: int,
    ) -> Self:
        """Return the statistics of training rows that new rows are compared with.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (m, d), or rows in files
            Features. Not modified.
        low, high : ndarray of shape (d,)
            Smallest and largest values of the features.
        scores_of : callable
            Returns the scores of rows, shape (r, q).
        seed : int
            Seed of the random rows.

        Notes
        -----
        For many rows, `shares` is estimated from a random sample of about 4 million
        values.
        """
        m, d = X.shape
        sample_size = max(REFERENCE_ROWS, (1 << 22) // max(1, d))
        order = np.random.default_rng(seed).permutation(m)[:sample_size]
        sorted_rows = np.sort(order)
        sample = X[sorted_rows]
        if sparse.issparse(sample):
            sample = sample.toarray()
        sample = np.asarray(sample)
        positions = np.searchsorted(sorted_rows, order[:REFERENCE_ROWS])
        rows = np.array(sample[np.sort(positions)])
        shares = np.asarray((sample != 0).mean(axis=0))
        return cls(rows, scores_of(rows), low, high, shares)


@dataclass(frozen=True)
class NewRows:
    """Statistics of new rows, computed by blocks and added.

    Attributes
    ----------
    n : int
        Number of rows.
    outside : ndarray of int of shape (d,)
        Number of rows in which a feature is outside of the range of the training rows.
    keys : ndarray of shape (s,)
        Random number per sampled row; the sample has the rows with the smallest
        numbers.
    rows, scores : ndarray of shape (s, d) and (s, q)
        Features and scores of the sample, at most `REFERENCE_ROWS` rows.
    """

    n: int
    outside: np.ndarray
    keys: np.ndarray
    rows: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(
        cls,
        X: np.ndarray,
        scores: np.ndarray,
        reference: Reference,
        seed: Sequence[int],
    ) -> Self:
        """Return the statistics of a block of rows, shape (n, d); the seed must differ from those of other blocks."""
        keys = np.random.default_rng(seed).random(len(X))
        sampled = np.argsort(keys)[:REFERENCE_ROWS]
        outside = ((reference.low > X) | (reference.high < X)).sum(axis=0)
        return cls(len(X), outside, keys[sampled], X[sampled], scores[sampled])

    def __add__(self, other: NewRows) -> NewRows:
        keys = np.concatenate([self.keys, other.keys])
        rows = np.vstack([self.rows, other.rows])
        scores = np.vstack([self.scores, other.scores])
        sampled = np.argsort(keys)[:REFERENCE_ROWS]
        return NewRows(
            self.n + other.n,
            self.outside + other.outside,
            keys[sampled],
            rows[sampled],
            scores[sampled],
        )


def kernel_test(
    K: np.ndarray, n: int, permutations: int = 199, seed: int = 0
) -> tuple[float, float]:
    r"""Test whether two samples have one distribution, by the squared maximum mean
    discrepancy of a kernel.

    .. math:: \widehat{\mathrm{MMD}}^2 = \frac{1}{n(n-1)} \sum_{i \ne j} K(x_i, x_j)
              + \frac{1}{m(m-1)} \sum_{i \ne j} K(y_i, y_j) - \frac{2}{nm} \sum_{i, j} K(x_i, y_j)

    Parameters
    ----------
    K : ndarray of shape (n + m, n + m)
        Symmetric Gram matrix of the rows x, followed by the rows y. An additive
        constant has no effect. Not modified.
    n : int
        Number of rows x. Each sample needs two rows.
    permutations : int
        Number of random divisions of the rows into two samples.
    seed : int
        Seed of the divisions.

    Returns
    -------
    mmd2 : float
        Unbiased estimate, which may be negative.
    p : float
        Fraction of divisions, including the observed one, whose estimate is at least as
        large.

    Notes
    -----
    O((n + m)^2 P) time and O((n + m) P) memory for P permutations. The p-value is exact
    for exchangeable rows and any symmetric kernel.

    References
    ----------
    Gretton, Borgwardt, Rasch, Schölkopf, Smola (2012), A kernel two-sample test, JMLR
    13:723-773, equation (3); the permutations replace its bootstrap of the null
    distribution, section 5.
    """
    N = len(K)
    m = N - n
    off_diagonal = np.array(K)
    np.fill_diagonal(off_diagonal, 0.0)

    def estimates(orders: np.ndarray) -> np.ndarray:
        first = np.zeros((N, len(orders)))
        first[orders[:, :n].T, np.arange(len(orders))] = 1.0
        within_first = np.einsum("ip,ip->p", first, off_diagonal @ first)
        across = off_diagonal.sum(axis=0) @ first - within_first
        within_second = off_diagonal.sum() - within_first - 2.0 * across
        return (
            within_first / (n * (n - 1))
            + within_second / (m * (m - 1))
            - 2.0 * across / (n * m)
        )

    mmd2, p = permutation_test(
        estimates,
        N,
        permutations,
        np.random.default_rng(seed),
        magnitude=float(np.abs(off_diagonal).max(initial=0.0)),
        at_once=permutations + 1,
    )
    return float(mmd2), float(p)


@dataclass(frozen=True)
class Drift:
    """Differences between new rows and training rows.

    Attributes
    ----------
    rows : int
        Number of new rows that were compared.
    p : float
        p-value of all tests together: twice the smallest of `p_kernel` and `p_columns`.
    mmd2, p_kernel : float
        Result of `kernel_test`.
    p_columns : dict of str to float
        p-value per tested column, adjusted for the number of columns (Holm 1979).
    outside : dict of str to float
        Fraction of new rows with a value outside of the range of the training rows, per
        column of numbers or dates.
    scores : list of float
        Kolmogorov-Smirnov distance between new and training rows, per score. It is not
        tested, because the model was fitted to the training rows.
    """

    rows: int
    p: float
    mmd2: float
    p_kernel: float
    p_columns: dict[str, float]
    outside: dict[str, float]
    scores: list[float]


def drift_of(
    kernel: LearnedKernel,
    columns: Sequence[tuple[str, str]],
    reference: Reference,
    new: NewRows,
    ignore: Collection[str] = (),
) -> Drift:
    """Compare new rows with training rows.

    Parameters
    ----------
    kernel : LearnedKernel
        Kernel of the model.
    columns : sequence of (str, str)
        Column and view, such as "numbers" or "dates", of each of the d features.
    reference : Reference
        Statistics of the training rows.
    new : NewRows
        Statistics of at least two new rows.
    ignore : collection of str
        Columns that are not tested. Dates are never tested, as new rows are later by
        nature.

    Notes
    -----
    O((r + s)^2 (d + p + P) + d r log r) time for samples of r and s rows, p base
    kernels and P permutations.
    """
    from scipy.stats import ks_2samp  # imported late: scipy.stats takes long to import

    is_tested = np.array(
        [view != "dates" and name not in ignore for name, view in columns], dtype=bool
    )
    rows = np.vstack([new.rows, reference.rows])
    rows[:, ~is_tested] = reference.rows[:, ~is_tested].mean(axis=0)
    n = len(new.rows)
    mmd2, p_kernel = 0.0, 1.0
    p_features = np.ones(len(columns))
    if is_tested.any():
        mmd2, p_kernel = kernel_test(kernel.gram_among(rows), n)
        p_features[is_tested] = ks_2samp(
            rows[:n, is_tested], rows[n:, is_tested], method="asymp", axis=0
        ).pvalue
    names = [name for name, _ in columns]
    p_columns = _column_p_values(names, p_features, is_tested)
    distances = ks_2samp(new.scores, reference.scores, method="asymp", axis=0).statistic
    return Drift(
        rows=n,
        p=min(1.0, 2.0 * min([p_kernel, *p_columns.values()])),
        mmd2=mmd2,
        p_kernel=p_kernel,
        p_columns=p_columns,
        outside=_shares_outside(columns, new),
        scores=np.atleast_1d(distances).tolist(),
    )


def _column_p_values(
    names: Sequence[str], p_features: np.ndarray, is_tested: np.ndarray
) -> dict[str, float]:
    """Return a p-value per column from those of its features, adjusted by Bonferroni within and Holm across columns."""
    p_by_column: dict[str, list[float]] = {}
    for position in np.flatnonzero(is_tested).tolist():
        p_by_column.setdefault(names[position], []).append(float(p_features[position]))
    return _holm(
        {name: min(1.0, len(ps) * min(ps)) for name, ps in p_by_column.items()}
    )


def _shares_outside(
    columns: Sequence[tuple[str, str]], new: NewRows
) -> dict[str, float]:
    """Return the fraction of rows outside of the training range, per column of numbers or dates."""
    shares: dict[str, float] = {}
    for (name, view), count in zip(columns, new.outside.tolist(), strict=True):
        if view in ("numbers", "dates"):
            # The first feature of a date is the date itself
            shares.setdefault(name, count / max(1, new.n))
    return shares


def _holm(p: dict[str, float]) -> dict[str, float]:
    """Return p-values adjusted for their number by Holm's step-down procedure."""
    adjusted = dict.fromkeys(p, 1.0)
    largest = 0.0
    for step, name in enumerate(sorted(p, key=lambda name: p[name])):
        largest = max(largest, min(1.0, (len(p) - step) * p[name]))
        adjusted[name] = largest
    return adjusted
