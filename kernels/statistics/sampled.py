"""Alignment statistics estimated from a uniform sample of rows."""

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
    checked_targets_and_groups,
    gram_statistics,
)

SAMPLE_ROWS = 8192
"""Sample size of "auto"."""

MIN_ROWS = 256

MIN_ROWS_PER_FOLD = 4


@dataclass(frozen=True)
class Sampling:
    """Numbers of sampled rows and of all rows."""

    n_rows: int
    of_rows: int


@dataclass(frozen=True, eq=False, repr=False)
class SampledStatistics(AlignmentStatistics):
    r"""Alignment statistics of m rows, estimated from a sample of n rows.

    With M, :math:`D_{kl} = \sum_i K_{kc}(i, i) K_{lc}(i, i)` and traces t of kernels
    centered on the sample,

    .. math:: \hat M = \alpha M + \beta D + \gamma \, t t^\top, \qquad
              \hat t = \tfrac{m - 1}{n - 1} \, t

    where :math:`\hat M` is a U-statistic (Hoeffding, 1948). Without centering, pairs of
    different rows count :math:`m (m - 1) / (n (n - 1))` times, equal ones :math:`m / n`
    times. `diagonals`, shape (p, n), are ``K_k(i, i) - shift_k``, and `population` rows
    per fold group.
    """

    sample: GramStatistics
    diagonals: np.ndarray
    population: np.ndarray

    @classmethod
    def of(
        cls, sample: GramStatistics, diagonals: np.ndarray, population: np.ndarray
    ) -> SampledStatistics:
        shared = {
            item.name: getattr(sample, item.name)
            for item in fields(AlignmentStatistics)
        }
        return cls(**shared, sample=sample, diagonals=diagonals, population=population)

    @property
    def total_rows(self) -> int:
        """Number m of rows that the sample represents."""
        return int(self.population.sum())

    @property
    def total_weight(self) -> float:
        return float(self.total_rows)

    # Estimates -------------------------------------------------------------------------------------------------------

    def _factors(self, centered: bool) -> tuple[float, float, float]:
        n = self.n_rows
        m = self.total_rows
        if n == m:
            return 1.0, 0.0, 0.0
        if not centered:
            pairs = m * (m - 1) / (n * (n - 1))
            return pairs, m / n - pairs, 0.0
        alpha, beta, gamma = np.linalg.solve(
            factors_of_moments(n).T, factors_of_moments(m)[0]
        )
        return float(alpha), float(beta), float(gamma)

    def _diagonals(self, centered: bool) -> np.ndarray:
        """Return the diagonals of divided base kernels, shape (p, n)."""
        if not centered:
            return self.divided(self.diagonals + self.shift[:, None])
        return self.divided(centered_diagonals(self.diagonals, self.sample.row_means))

    def _target_diagonal(self, centered: bool) -> np.ndarray:
        Y = self._targets(centered)
        return np.einsum("iq,iq->i", Y, Y)

    def _products(self, centered: bool) -> np.ndarray:
        alpha, beta, gamma = self._factors(centered)
        D = self._diagonals(centered)
        t = D.sum(axis=1)
        return np.asarray(
            alpha * self.sample.products(centered)
            + beta * (D @ D.T)
            + gamma * np.outer(t, t)
        )

    def target_products(self, centered: bool = True) -> np.ndarray:
        """Return estimated Frobenius products with the target kernel, possibly negative."""
        alpha, beta, gamma = self._factors(centered)
        D = self._diagonals(centered)
        y = self._target_diagonal(centered)
        products = self.sample.target_products(centered)
        return np.asarray(
            alpha * products + beta * (D @ y) + gamma * D.sum(axis=1) * y.sum()
        )

    def target_norm(self, centered: bool = True) -> float:
        alpha, beta, gamma = self._factors(centered)
        y = self._target_diagonal(centered)
        return float(
            np.sqrt(
                alpha * self.sample.target_norm(centered) ** 2
                + beta * (y @ y)
                + gamma * y.sum() ** 2
            )
        )

    def traces(self, centered: bool = True) -> np.ndarray:
        n = self.n_rows
        m = self.total_rows
        factor = m / n
        if centered:
            factor = (m - 1) / (n - 1)
        return self.sample.traces(centered) * factor

    @property
    def constant(self) -> np.ndarray:
        return self.sample.constant

    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        return self.sample.combined_row_means(coefficients)

    # Fold groups -----------------------------------------------------------------------------------------------------

    def restrict(self, groups: Sequence[int]) -> SampledStatistics:
        selected, rows, _ = self._selected(groups)
        return SampledStatistics.of(
            self.sample.restrict(groups),
            self.diagonals[:, rows],
            self.population[selected],
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            **self.sample.to_arrays(),
            "diagonals": self.diagonals,
            "population": self.population,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> SampledStatistics:
        return cls.of(
            GramStatistics.from_arrays(arrays),
            arrays["diagonals"],
            arrays["population"],
        )


def statistics_from_arrays(arrays: Mapping[str, Any]) -> AlignmentStatistics:
    if "population" in arrays:
        return SampledStatistics.from_arrays(arrays)
    if "columns" in arrays:
        return FeatureStatistics.from_arrays(arrays)
    return GramStatistics.from_arrays(arrays)


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
    """Estimate the alignment statistics of all rows from a uniform sample.

    Returns `GramStatistics` if the sample has all rows. Samples are stratified by
    `groups`, and nested for one seed; "auto" has 8,192 rows.
    """
    if isinstance(family, FeatureFamily):
        raise ValueError(
            "family must not be of rank-one features to be sampled; gram_statistics takes all rows in O(m p)."
        )
    require_sample(sample)
    m = X.shape[0]
    Y, groups = checked_targets_and_groups(m, Y, groups)
    n_sampled = SAMPLE_ROWS
    if sample != "auto":
        n_sampled = int(sample)
    rows = _draw_rows(groups, n_sampled, seed)
    if not np.ptp(Y[rows], axis=0).any():
        raise ValueError(
            f"the target is constant on the {len(rows)} sampled rows; take a larger sample, or all rows."
        )
    X_sample = X[rows]
    statistics = gram_statistics(family, X_sample, Y[rows], groups[rows], **options)
    assert isinstance(statistics, GramStatistics)
    X_sample = X_sample[statistics.rows]
    statistics = replace(statistics, rows=rows[statistics.rows])
    if len(rows) == m:
        return statistics
    diagonals = (
        family.diag(move(X_sample, statistics.origin)) - statistics.shift[:, None]
    )
    _, population = np.unique(groups, return_counts=True)
    return SampledStatistics.of(statistics, diagonals, population)


def require_sample(sample: object) -> None:
    if sample != "auto" and (
        isinstance(sample, bool)
        or not isinstance(sample, int | np.integer)
        or sample < MIN_ROWS
    ):
        raise ValueError(
            f"sample must be 'auto' or a number of rows of at least {MIN_ROWS}, got {sample!r}."
        )


def _draw_rows(groups: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Return about n row positions, stratified by fold group."""
    labels, sizes = np.unique(groups, return_counts=True)
    if labels[0] < 0:
        raise ValueError(
            f"groups must not be negative, got {labels[0]}; leave those rows out."
        )
    shares = np.diff(
        np.rint(np.cumsum(sizes) * min(1.0, n / len(groups))).astype(np.intp), prepend=0
    )
    dtype: type[np.signedinteger[Any]] = np.intp
    if len(groups) <= np.iinfo(np.int32).max:
        dtype = np.int32  # halves the memory
    sampled = []
    for label, share in zip(labels, shares, strict=True):
        positions = np.flatnonzero(groups == label).astype(dtype)
        shuffled = np.random.default_rng([seed, label]).permutation(positions)
        sampled.append(shuffled[: max(MIN_ROWS_PER_FOLD, share)])
    return np.sort(np.concatenate(sampled)).astype(np.intp)


def factors_of_moments(n: int) -> np.ndarray:
    r"""Return the matrix that maps kernel moments to expected statistics of n rows.

    The statistics are M, D and t t' of `SampledStatistics`. Moments of kernels,
    centered on the distribution, are :math:`E[K(x, x') L(x, x')]`, :math:`E[K(x, x)
    L(x, x)]` and :math:`E[K(x, x)] \, E[L(x, x)]`.
    """
    of_M = [(n - 1) * (n - 2 + 2 / n), (n - 1) ** 2 / n, (n - 1) / n]
    of_D = [
        (n - 1) / n * (4 - 6 / n),
        n - 4 + 6 / n - 3 / n**2,
        (n - 1) / n * (2 - 3 / n),
    ]
    of_traces = [2 * (n - 1) / n, (n - 1) ** 2 / n, (n - 1) ** 3 / n]
    return np.array([of_M, of_D, of_traces])
