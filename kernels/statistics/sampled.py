"""Alignment statistics of all rows from a uniform sample of fixed size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..centering import centered_diagonals
from ..families.base import KernelFamily, Rows, move
from ..families.feature import FeatureFamily
from .gram import (
    AlignmentStatistics,
    FeatureStatistics,
    GramStatistics,
    gram_statistics,
    paired,
)

SAMPLE_ROWS = 8192
"""Rows of a sample of size "auto"."""

FEWEST = 256
"""Rows that a sample has at least."""

FEWEST_OF_FOLD = 4
"""Rows that a sample has of each fold group at least, where the group has as many: estimates need them."""


@dataclass(frozen=True)
class Sampling:
    """How many rows a kernel was learned from.

    Attributes
    ----------
    n_rows, of_rows : int
        Sampled rows, and the rows they represent.
    """

    n_rows: int
    of_rows: int


@dataclass(frozen=True, eq=False, repr=False)
class SampledStatistics(AlignmentStatistics):
    r"""Estimates of the statistics of m rows from n of them; see `AlignmentStatistics`.

    Of kernels centered on the sample, the products :math:`M_{kl}`, those of their diagonals
    :math:`D_{kl} = \sum_i K_{kc}(i, i) K_{lc}(i, i)` and their traces t give

    .. math:: \hat M = \alpha M + \beta D + \gamma \, t t^\top, \qquad
              \hat t = \tfrac{m - 1}{n - 1} \, t

    with the three numbers that make the mean of :math:`\hat M` over all samples of n rows the M of all m rows, whatever
    these are: that of a U-statistic. Of kernels as given, pairs of two rows count :math:`m (m - 1) / (n (n - 1))` times
    and each row with itself :math:`m / n` times; centered, about as often where n is much smaller than m. The target
    kernel is one more kernel. The alignment of a narrow kernel, about :math:`1 / \sqrt m` on m rows, is therefore not
    mistaken for the :math:`1 / \sqrt n` of the sample. Whatever is kept by row is of the n sampled rows, which count
    once each.

    Attributes
    ----------
    sample : GramStatistics
        Exact statistics of the sampled rows.
    diagonals : ndarray of shape (p, n)
        ``K_k(i, i)`` less `shift`.
    population : ndarray of shape (F,)
        Rows of the data set in each of `labels`.

    Notes
    -----
    Both estimates are exact at n = m, up to rounding. Neither alpha, beta, gamma nor any of the matrices they multiply
    need be positive for :math:`\hat M` to be positive semi-definite, which it is: it is a combination with positive
    coefficients of D, of :math:`t t^\top`, and of :math:`M - D - t t^\top / (n (n - 1))`, the products of entries off
    the diagonal less their mean.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828: M and a of section 3.2.1. Hoeffding (1948), Annals of
    Mathematical Statistics 19:293-325 (U-statistics).
    """

    sample: GramStatistics
    diagonals: np.ndarray
    population: np.ndarray

    @classmethod
    def of(cls, sample: GramStatistics, diagonals: np.ndarray, population: np.ndarray) -> SampledStatistics:
        """Return the estimates from exact statistics of the sampled rows."""
        shared = {item.name: getattr(sample, item.name) for item in fields(AlignmentStatistics)}
        return cls(**shared, sample=sample, diagonals=diagonals, population=population)

    @property
    def total_rows(self) -> int:
        """m, the rows that the sampled ones represent."""
        return int(self.population.sum())

    @property
    def total_weight(self) -> float:
        """m, as a float."""
        return float(self.total_rows)

    # Estimates -------------------------------------------------------------------------------------------------------

    def _factors(self, centered: bool) -> tuple[float, float, float]:
        """Return alpha, beta and gamma."""
        n, m = self.n_rows, self.total_rows
        if n == m:
            return 1.0, 0.0, 0.0
        if not centered:
            pairs = m * (m - 1) / (n * (n - 1))
            return pairs, m / n - pairs, 0.0
        alpha, beta, gamma = np.linalg.solve(expectations(n).T, expectations(m)[0])
        return float(alpha), float(beta), float(gamma)

    def _diagonals(self, centered: bool) -> np.ndarray:
        """Return diagonals of base kernels over their divisors, centered on the sample or as given, shape (p, n)."""
        if not centered:
            return self.divided(self.diagonals + self.shift[:, None])
        return self.divided(centered_diagonals(self.diagonals, self.sample.row_means))

    def _target_diagonal(self, centered: bool) -> np.ndarray:
        Y = self._targets(centered)
        return np.einsum("iq,iq->i", Y, Y)

    def _products(self, centered: bool) -> np.ndarray:
        (alpha, beta, gamma), D = self._factors(centered), self._diagonals(centered)
        t = D.sum(axis=1)
        return np.asarray(alpha * self.sample.products(centered) + beta * (D @ D.T) + gamma * np.outer(t, t))

    def target_products(self, centered: bool = True) -> np.ndarray:
        """Return the estimate of a, shape (p,); negative ones occur where a base kernel has no alignment."""
        (alpha, beta, gamma), D = self._factors(centered), self._diagonals(centered)
        y, given = self._target_diagonal(centered), self.sample.target_products(centered)
        return np.asarray(alpha * given + beta * (D @ y) + gamma * D.sum(axis=1) * y.sum())

    def target_norm(self, centered: bool = True) -> float:
        """Return the Frobenius norm of the target kernel: the root of the estimate of its square."""
        (alpha, beta, gamma), y = self._factors(centered), self._target_diagonal(centered)
        return float(np.sqrt(alpha * self.sample.target_norm(centered) ** 2 + beta * (y @ y) + gamma * y.sum() ** 2))

    def traces(self, centered: bool = True) -> np.ndarray:
        """Return the estimate of the trace of each base kernel, shape (p,)."""
        n, m = self.n_rows, self.total_rows
        return self.sample.traces(centered) * ((m - 1) / (n - 1) if centered else m / n)

    @property
    def constant(self) -> np.ndarray:
        """Whether each base kernel is constant on the sampled rows, up to rounding, shape (p,)."""
        return self.sample.constant

    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the row means of ``sum_k coefficients_k (K_k - shift_k)`` over the sampled rows held, shape (n,)."""
        return self.sample.combined_row_means(coefficients)

    # Fold groups -----------------------------------------------------------------------------------------------------

    def restrict(self, groups: Sequence[int]) -> SampledStatistics:
        """Return the estimates for the rows of some fold groups, from the sampled ones among them; O(F p n)."""
        keep, held, _ = self._held(groups)
        return SampledStatistics.of(self.sample.restrict(groups), self.diagonals[:, held], self.population[keep])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays, without any object dtype, that `from_arrays` reads back."""
        return {**self.sample.to_arrays(), "diagonals": self.diagonals, "population": self.population}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> SampledStatistics:
        """Return the statistics that `to_arrays` was called on."""
        return cls.of(GramStatistics.from_arrays(arrays), arrays["diagonals"], arrays["population"])


def statistics_from_arrays(arrays: Mapping[str, Any]) -> AlignmentStatistics:
    """Return the statistics of any kind that `to_arrays` was called on."""
    if "population" in arrays:
        return SampledStatistics.from_arrays(arrays)
    return (FeatureStatistics if "columns" in arrays else GramStatistics).from_arrays(arrays)


def sample_statistics(
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    sample: str | int = "auto",
    seed: int = 0,
    **options: Any,
) -> GramStatistics | SampledStatistics:
    """Return the first-stage statistics of a family over the rows of a data set, from a uniform sample of them.

    Parameters
    ----------
    family : KernelFamily
        p base kernels; not rank-one features, whose statistics over all rows cost less than a sample.
    X : ndarray or CSR matrix of shape (m, d)
        Rows; those of the sample alone are read. Not modified.
    Y : ndarray of shape (m,) or (m, q)
        Numeric targets. Not modified.
    groups : ndarray of int of shape (m,), optional
        Fold group of each row, not negative; None puts all rows into group 0. Each has its share of the sample.
    sample : "auto" or int, default "auto"
        Rows of the sample over all fold groups; `SAMPLE_ROWS` of "auto".
    seed : int, default 0
        Of the sample. Samples of one seed are nested.
    **options
        As `gram_statistics` takes them; no weights of rows.

    Returns
    -------
    statistics : SampledStatistics
        `GramStatistics` where the sample has all rows.

    Raises
    ------
    ValueError
        As `gram_statistics`; the family is one of rank-one features, the sample is smaller than `FEWEST`, or the target
        is constant on it.

    Notes
    -----
    O(n^2 (d + p^2)) time for n sampled rows and O(F p n) memory for F fold groups.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.2.1.
    """
    if isinstance(family, FeatureFamily):
        raise ValueError(
            "family must not be of rank-one features to be sampled; gram_statistics takes all rows in O(m p)."
        )
    require_sample(sample)
    m = X.shape[0]
    Y, groups = paired(m, Y, groups)
    rows = _drawn(groups, SAMPLE_ROWS if sample == "auto" else int(sample), seed)
    if not np.ptp(Y[rows], axis=0).any():
        raise ValueError(f"the target is constant on the {len(rows)} sampled rows; take a larger sample, or all rows.")
    X, Y = X[rows], Y[rows]
    of_sample = gram_statistics(family, X, Y, groups[rows], **options)
    assert isinstance(of_sample, GramStatistics)
    X, of_sample = X[of_sample.rows], replace(of_sample, rows=rows[of_sample.rows])
    if len(rows) == m:
        return of_sample
    diagonals = family.diag(move(X, of_sample.origin)) - of_sample.shift[:, None]
    return SampledStatistics.of(of_sample, diagonals, np.unique(groups, return_counts=True)[1])


def require_sample(sample: object) -> None:
    """Raise ValueError for what is neither "auto" nor a number of rows."""
    if sample != "auto" and (isinstance(sample, bool) or not isinstance(sample, int | np.integer) or sample < FEWEST):
        raise ValueError(f"sample must be 'auto' or a number of rows of at least {FEWEST}, got {sample!r}.")


def _drawn(groups: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Return the positions of about n rows, ascending, of each fold group its share."""
    labels, sizes = np.unique(groups, return_counts=True)
    if labels[0] < 0:
        raise ValueError(f"groups must not be negative, got {labels[0]}; leave those rows out.")
    shares = np.diff(np.rint(np.cumsum(sizes) * min(1.0, n / len(groups))).astype(np.intp), prepend=0)
    # Half the bytes of positions as numpy counts them, of which there may be tens of millions.
    short = np.int32 if len(groups) <= np.iinfo(np.int32).max else np.intp
    orders = (
        np.random.default_rng([seed, label]).permutation(np.flatnonzero(groups == label).astype(short))
        for label in labels
    )
    taken = [order[: max(FEWEST_OF_FOLD, share)] for order, share in zip(orders, shares, strict=True)]
    return np.sort(np.concatenate(taken)).astype(np.intp)


def expectations(n: int) -> np.ndarray:
    r"""Return the means of M, D and t t' of n independent rows in terms of three quantities of their distribution.

    For kernels centered by the distribution's mean feature these are :math:`E[K(x, x') L(x, x')]`,
    :math:`E[K(x, x) L(x, x)]` and :math:`E[K(x, x)] \, E[L(x, x)]`.

    Parameters
    ----------
    n : int
        At least 4.

    Returns
    -------
    factors : ndarray of shape (3, 3)
        One row each for M, D and t t'.

    Notes
    -----
    From the expansion of kernels centered on the sample, ``K - r 1'/n - 1 r'/n + s 1 1'/n^2``: products of two centered
    kernels have mean zero unless each of their rows comes twice.
    """
    return np.array(
        [
            [(n - 1) * (n - 2 + 2 / n), (n - 1) ** 2 / n, (n - 1) / n],
            [(n - 1) / n * (4 - 6 / n), n - 4 + 6 / n - 3 / n**2, (n - 1) / n * (2 - 3 / n)],
            [2 * (n - 1) / n, (n - 1) ** 2 / n, (n - 1) ** 3 / n],
        ]
    )
