"""Tests whether new rows have the distribution of the training rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import sparse

from ..base import Value
from ..families.base import Rows
from ..learned_kernel import LearnedKernel
from .dependence import holm, permutation_test

REFERENCE_ROWS = 500
"""Most training rows, and most new rows, to compare."""

FEWEST_ROWS = 20

PERMUTATIONS = 199


@dataclass(frozen=True, eq=False, repr=False)
class Reference(Value):
    """Ranges, sample and decision values of training rows, for comparison with new rows.

    `rows`, (r, d), are a random sample with `scores`, (r, q). `shares` are fractions of
    nonzero values per feature.
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
        """Sample training rows, whose features are in [low, high], with decision values."""
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
    """Sample and decision values of new rows; the sum of two joins their rows.

    `outside` counts rows outside of the training range per feature. Rows with the
    smallest random `keys` are kept.
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
        """Sample a block of new rows; the random seed must differ by block."""
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


def kernel_test(K: np.ndarray, n: int) -> tuple[float, float]:
    r"""Test equality of two distributions by the squared MMD of a kernel.

    .. math:: \widehat{\mathrm{MMD}}^2 = \frac{1}{n(n-1)} \sum_{i \ne j} K(x_i, x_j)
              + \frac{1}{m(m-1)} \sum_{i \ne j} K(y_i, y_j) - \frac{2}{nm} \sum_{i, j} K(x_i, y_j)

    K has the n rows x, then the rows y. Returns the estimate, possibly negative, and
    its p-value by permutations (Gretton et al., 2012, equation 3).
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
        PERMUTATIONS,
        np.random.default_rng(0),
        magnitude=float(np.abs(off_diagonal).max(initial=0.0)),
        at_once=PERMUTATIONS + 1,
    )
    return float(mmd2), float(p)


@dataclass(frozen=True)
class Drift:
    """Tests of new rows against training rows, the result of `drift_of`.

    The kernel test detects changed interactions, Kolmogorov-Smirnov tests changes of
    columns. `p` is twice the smallest of `p_kernel` and `p_columns`; Holm's method
    adjusts `p_columns`. `outside` are fractions of rows; `scores` are
    Kolmogorov-Smirnov distances, only descriptive.
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
    """Test whether new rows differ from training rows.

    `columns` has name and view of each feature. Dates and `ignore` are not tested.
    """
    from scipy.stats import ks_2samp  # imported here because it is slow to import

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
    """Adjust p-values by Bonferroni within and Holm across columns."""
    p_by_column: dict[str, list[float]] = {}
    for position in np.flatnonzero(is_tested).tolist():
        p_by_column.setdefault(names[position], []).append(float(p_features[position]))
    p_values = [min(1.0, len(ps) * min(ps)) for ps in p_by_column.values()]
    return dict(zip(p_by_column, holm(p_values).tolist(), strict=True))


def _shares_outside(
    columns: Sequence[tuple[str, str]], new: NewRows
) -> dict[str, float]:
    """Return the fraction of rows outside the training range."""
    shares: dict[str, float] = {}
    for (name, view), count in zip(columns, new.outside.tolist(), strict=True):
        if view in ("numbers", "dates"):
            # The first feature of a date is the date itself.
            shares.setdefault(name, count / max(1, new.n))
    return shares
