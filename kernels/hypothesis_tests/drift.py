r"""Whether new rows have the distribution of the training rows: a test by the learned kernel, and one of each column.

Both compare a random sample of the new rows with a random sample of the training rows, which the model keeps. The
kernel sees interactions of columns, and weighs columns as the target does: it may be blind to a column that does not
matter for the target. The Kolmogorov-Smirnov test of each column sees that, and no interaction. Each has half of the
level, so that false alarms of the two together have at most the level.
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
"""Training rows that a model keeps, and new rows that are compared with them, at most."""

FEWEST_ROWS = 20
"""New rows from which on they are compared."""

PERMUTATIONS = 199
"""Ways of dividing the rows of both samples that the test by the kernel compares with the observed one."""

ROOM = 1 << 22
"""Numbers that are read to count levels and missing values of the training rows."""


@dataclass(frozen=True, eq=False, repr=False)
class Reference(Value):
    """What a model keeps of its training rows to compare new rows with.

    Attributes
    ----------
    rows : ndarray of shape (r, d)
        Features of r training rows, drawn at random.
    scores : ndarray of shape (r, q)
        What the model says of them: predicted numbers, or decision values.
    low, high : ndarray of shape (d,)
        Extremes of the features of all training rows.
    shares : ndarray of shape (d,)
        Share of training rows in which a feature is not zero: for an indicator, those for which it holds.
    """

    rows: np.ndarray
    scores: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(
        cls, X: Rows, low: np.ndarray, high: np.ndarray, scores_of: Callable[[np.ndarray], np.ndarray], seed: int
    ) -> Self:
        """Return what is kept of training rows.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (m, d), or rows in files
            Features. Not modified.
        low, high : ndarray of shape (d,)
            Their extremes.
        scores_of : callable
            Returns what the model says of rows, shape (r, q).
        seed : int
            Of the rows that are drawn.

        Notes
        -----
        `shares` are those of `ROOM` / d random rows where there are more. Of these at most `REFERENCE_ROWS` are kept.
        """
        m, d = X.shape
        order = np.random.default_rng(seed).permutation(m)[: max(REFERENCE_ROWS, ROOM // max(1, d))]
        read = X[np.sort(order)]
        read = np.asarray(read.toarray() if sparse.issparse(read) else read)
        rows = np.array(read[np.sort(np.searchsorted(np.sort(order), order[:REFERENCE_ROWS]))])
        return cls(rows, scores_of(rows), low, high, np.asarray((read != 0).mean(axis=0)))


@dataclass(frozen=True)
class NewRows:
    """What is kept of new rows, block by block; the sums of two blocks are those of their rows.

    Attributes
    ----------
    n : int
        How many rows there are.
    outside : ndarray of int of shape (d,)
        In how many of them a feature is outside of the range of the training rows.
    keys : ndarray of shape (s,)
        Random numbers, the smallest of all rows, that say which are kept.
    rows, scores : ndarray of shape (s, d) and (s, q)
        At most `REFERENCE_ROWS` of them: features, and what the model says.
    """

    n: int
    outside: np.ndarray
    keys: np.ndarray
    rows: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, scores: np.ndarray, reference: Reference, seed: Sequence[int]) -> Self:
        """Return the statistics of a block of rows, shape (n, d); the seed must differ from those of other blocks."""
        keys = np.random.default_rng(seed).random(len(X))
        kept = np.argsort(keys)[:REFERENCE_ROWS]
        outside = ((reference.low > X) | (reference.high < X)).sum(axis=0)
        return cls(len(X), outside, keys[kept], X[kept], scores[kept])

    def __add__(self, other: NewRows) -> NewRows:
        keys = np.concatenate([self.keys, other.keys])
        kept = np.argsort(keys)[:REFERENCE_ROWS]
        rows, scores = np.vstack([self.rows, other.rows]), np.vstack([self.scores, other.scores])
        return NewRows(self.n + other.n, self.outside + other.outside, keys[kept], rows[kept], scores[kept])


def kernel_test(K: np.ndarray, n: int, permutations: int = PERMUTATIONS, seed: int = 0) -> tuple[float, float]:
    r"""Test whether two samples have one distribution, by the squared maximum mean discrepancy of a kernel.

    .. math:: \widehat{\mathrm{MMD}}^2 = \frac{1}{n(n-1)} \sum_{i \ne j} K(x_i, x_j)
              + \frac{1}{m(m-1)} \sum_{i \ne j} K(y_i, y_j) - \frac{2}{nm} \sum_{i, j} K(x_i, y_j)

    Parameters
    ----------
    K : ndarray of shape (n + m, n + m)
        Symmetric Gram matrix of the rows x, and then the rows y. A constant that is added to all its entries changes
        nothing. Not modified.
    n : int
        Rows of the first sample; at least two, as those of the other one.
    permutations : int
        Random divisions of all rows into two samples of these sizes.
    seed : int
        Of the divisions.

    Returns
    -------
    mmd2 : float
        The estimate, in units of the kernel; without bias, so that it may be negative.
    p : float
        Share of the divisions, the observed one among them, whose estimate is at least as large.

    Notes
    -----
    All divisions share one Gram matrix: O((n + m)^2 P) time for P permutations, as one product of matrices, and
    O((n + m) P) memory. The p-value is exact for rows that are exchangeable, whatever the kernel, indefinite ones
    included.

    References
    ----------
    Gretton, Borgwardt, Rasch, Schölkopf, Smola (2012), A kernel two-sample test, JMLR 13:723-773, equation (3); the
    permutations replace its bootstrap of the null distribution, section 5.
    """
    N = len(K)
    m = N - n
    apart = np.array(K)
    np.fill_diagonal(apart, 0.0)

    def estimates(orders: np.ndarray) -> np.ndarray:
        first = np.zeros((N, len(orders)))
        first[orders[:, :n].T, np.arange(len(orders))] = 1.0
        within = np.einsum("ip,ip->p", first, apart @ first)
        across = apart.sum(axis=0) @ first - within
        other = apart.sum() - within - 2.0 * across
        return within / (n * (n - 1)) + other / (m * (m - 1)) - 2.0 * across / (n * m)

    rng, magnitude = np.random.default_rng(seed), float(np.abs(apart).max(initial=0.0))
    found, p = permutation_test(estimates, N, permutations, rng, magnitude=magnitude, at_once=permutations + 1)
    return float(found), float(p)


@dataclass(frozen=True)
class Drift:
    """How new rows differ from training rows.

    Attributes
    ----------
    rows : int
        How many new rows were compared.
    p : float
        How likely a difference as large, of the kernel or of a column, is of rows that do not differ; at most.
    mmd2, p_kernel : float
        Of the kernel: see `kernel_test`.
    p_columns : dict of str to float
        Of each column that is tested, adjusted for the number of columns (Holm 1979).
    outside : dict of str to float
        Share of all new rows in which a column of numbers or dates is outside of the range of the training rows.
    scores : list of float
        Largest difference between the distribution functions of each score now and of training rows. No test: the model
        has learned from the latter.
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
        Of the model.
    columns : sequence of (str, str)
        Of each of the d features, the column that it comes from and its view, such as "numbers" or "dates".
    reference : Reference
        Of the model.
    new : NewRows
        At least two.
    ignore : collection of str
        Columns that are not tested. Dates are not either: new rows are later by nature.

    Notes
    -----
    O((r + s)^2 (d + p + P) + d r log r) time for r and s rows of the two samples, p base kernels and P permutations,
    however many rows are new.
    """
    from scipy.stats import ks_2samp  # here: it takes as long to import as all else

    tested = np.array([view != "dates" and name not in ignore for name, view in columns], dtype=bool)
    rows = np.vstack([new.rows, reference.rows])
    rows[:, ~tested] = reference.rows[:, ~tested].mean(axis=0)
    n = len(new.rows)
    mmd2, p_kernel = kernel_test(kernel.gram_among(rows), n) if tested.any() else (0.0, 1.0)
    p_features = np.ones(len(columns))
    if tested.any():
        p_features[tested] = ks_2samp(rows[:n, tested], rows[n:, tested], method="asymp", axis=0).pvalue
    of: dict[str, list[float]] = {}
    for (name, _), p, counts in zip(columns, p_features.tolist(), tested.tolist(), strict=True):
        if counts:
            of.setdefault(name, []).append(p)
    p_columns = _holm({name: min(1.0, len(ps) * min(ps)) for name, ps in of.items()})
    outside: dict[str, float] = {}
    for (name, view), count in zip(columns, new.outside.tolist(), strict=True):
        if view in ("numbers", "dates"):  # of a date the first feature, which is followed by cycles
            outside.setdefault(name, count / max(1, new.n))
    distances = ks_2samp(new.scores, reference.scores, method="asymp", axis=0).statistic
    p = min(1.0, 2.0 * min([p_kernel, *p_columns.values()]))
    return Drift(n, p, mmd2, p_kernel, p_columns, outside, np.atleast_1d(distances).tolist())


def _holm(p: dict[str, float]) -> dict[str, float]:
    """Return p-values that are adjusted for their number, by Holm's step-down procedure."""
    found, least = dict.fromkeys(p, 1.0), 0.0
    for step, name in enumerate(sorted(p, key=lambda name: p[name])):
        least = max(least, min(1.0, (len(p) - step) * p[name]))
        found[name] = least
    return found
