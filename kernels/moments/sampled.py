"""First-stage statistics of all rows from a random sample of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from learnkernels.kernels.moments.base import Moments
from learnkernels.kernels.moments.gram import GramMoments


@dataclass(frozen=True, eq=False, repr=False)
class SampledMoments(Moments):
    r"""Estimates of the first-stage statistics of m rows from n of them; see `Moments`.

    Of kernels centered on the sample, the products :math:`M_{kl}`, those of their diagonals
    :math:`D_{kl} = \sum_i K_{kc}(i, i) K_{lc}(i, i)` and their traces t give

    .. math:: \hat M = \alpha M + \beta D + \gamma \, t t^\top, \qquad
              \hat t = \tfrac{m - 1}{n - 1} \, t

    with the three numbers that make the mean of :math:`\hat M` over all samples of n rows the M of all m rows, whatever
    these are: that of a U-statistic. The target kernel is one more kernel. For n much smaller than m, pairs of two rows
    count about :math:`m^2 / n^2` times, each row with itself :math:`m / n` times: the alignment of a narrow kernel,
    about :math:`1 / \sqrt m` on m rows, is not taken for the :math:`1 / \sqrt n` of the sample. Whatever is kept by row
    is of the n sampled rows, which count once each.

    Attributes
    ----------
    sample : GramMoments
        Exact statistics of the sampled rows, kept apart by the parts of folds.
    fold : ndarray of shape (G,)
        Fold group of each of the parts that `sample` holds.
    diagonals : ndarray of shape (p, n)
        ``K_k(i, i)`` less `shift`.
    population : ndarray of shape (F,)
        Rows of the data set in each of `labels`.
    confidence : float
        Of the intervals.

    Notes
    -----
    Both estimates are exact at n = m. Neither alpha, beta, gamma nor any of the matrices they multiply need be positive
    for :math:`\hat M` to be positive semi-definite, which it is: it is a combination with positive coefficients of D,
    of :math:`t t^\top`, and of :math:`M - D - t t^\top / (n (n - 1))`, the products of entries off the diagonal less
    their mean.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828: M and a of section 3.2.1. Hoeffding (1948), Annals of
    Mathematical Statistics 19:293-325 (U-statistics).
    """

    sample: GramMoments
    fold: np.ndarray
    diagonals: np.ndarray
    population: np.ndarray
    confidence: float

    @property
    def total_rows(self) -> int:
        """m, the rows that the sampled ones stand for."""
        return int(self.population.sum())

    @property
    def total_weight(self) -> float:
        """m, as a float."""
        return float(self.total_rows)

    @property
    def exact(self) -> bool:
        """Whether every row is in the sample."""
        return self.n_rows == self.total_rows

    # Estimates -------------------------------------------------------------------------------------------------------

    @cached_property
    def _factors(self) -> tuple[float, float, float]:
        """Alpha, beta and gamma."""
        if self.exact:
            return 1.0, 0.0, 0.0
        alpha, beta, gamma = np.linalg.solve(expectations(self.n_rows).T, expectations(self.total_rows)[0])
        return float(alpha), float(beta), float(gamma)

    @cached_property
    def centered_diagonals(self) -> np.ndarray:
        """Diagonal of each base kernel centered on the sample, shape (p, n)."""
        means = self.sample.row_means
        return np.asarray(self.diagonals - 2 * means + means.mean(axis=1, keepdims=True))

    @cached_property
    def target_diagonal(self) -> np.ndarray:
        """Diagonal of the centered target kernel, shape (n,)."""
        return np.einsum("iq,iq->i", self._centered_targets, self._centered_targets)

    @cached_property
    def frobenius(self) -> np.ndarray:
        """Estimate of M, shape (p, p); formed once, on first use."""
        if self.exact:
            return self.sample.frobenius
        (alpha, beta, gamma), D = self._factors, self.centered_diagonals
        t = D.sum(axis=1)
        return np.asarray(alpha * self.sample.frobenius + beta * (D @ D.T) + gamma * np.outer(t, t))

    @property
    def frobenius_diagonal(self) -> np.ndarray:
        """Diagonal of the estimate of M, shape (p,)."""
        return np.diag(self.frobenius)

    @cached_property
    def target(self) -> np.ndarray:
        """Estimate of a, shape (p,); unbiased, so that one of a kernel without any alignment may be negative."""
        if self.exact:
            return self.sample.target
        (alpha, beta, gamma), D, y = self._factors, self.centered_diagonals, self.target_diagonal
        return np.asarray(alpha * self.sample.target + beta * (D @ y) + gamma * D.sum(axis=1) * y.sum())

    @cached_property
    def target_norm(self) -> float:
        """Frobenius norm of the centered target kernel: the root of the estimate of its square."""
        (alpha, beta, gamma), y = self._factors, self.target_diagonal
        return float(np.sqrt(alpha * self.sample.target_norm**2 + beta * (y @ y) + gamma * y.sum() ** 2))

    @cached_property
    def centered_traces(self) -> np.ndarray:
        """Estimate of the trace of each centered base kernel, shape (p,)."""
        return self.sample.centered_traces * ((self.total_rows - 1) / (self.n_rows - 1))

    @property
    def constant(self) -> np.ndarray:
        """Whether each base kernel is constant on the sampled rows, up to rounding, shape (p,)."""
        return self.sample.constant

    def refuse_constants(self) -> None:
        """Raise ValueError if any base kernel is constant on the sampled rows."""
        self.sample.refuse_constants()

    def _squared_norm(self, mu: np.ndarray) -> float:
        return float(mu @ self.frobenius @ mu)

    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the row means of ``sum_k coefficients_k (K_k - shift_k)`` over the sampled rows held, shape (n,)."""
        return self.sample.combined_row_means(coefficients)

    @property
    def _uncentered_factors(self) -> tuple[float, float]:
        """What products of pairs of two rows, and of rows with themselves, are multiplied by."""
        n, m = self.n_rows, self.total_rows
        return m * (m - 1) / (n * (n - 1)), m / n

    @property
    def uncentered_traces(self) -> np.ndarray:
        """Estimate of the trace of each base kernel as given, shape (p,); ValueError as `GramMoments`."""
        return self.sample.uncentered_traces * (self.total_rows / self.n_rows)

    @property
    def uncentered_frobenius(self) -> np.ndarray:
        """Estimate of the products of the base kernels as given, shape (p, p); ValueError as `GramMoments`."""
        (pairs, alone), D = self._uncentered_factors, self.diagonals + self.shift[:, None]
        return pairs * self.sample.uncentered_frobenius + (alone - pairs) * (D @ D.T)

    @property
    def uncentered_frobenius_diagonal(self) -> np.ndarray:
        """Diagonal of `uncentered_frobenius`, shape (p,)."""
        return np.diag(self.uncentered_frobenius)

    @property
    def uncentered_target(self) -> np.ndarray:
        """Estimate of their products with the target kernel as given, shape (p,); ValueError as `GramMoments`."""
        (pairs, alone), D = self._uncentered_factors, self.diagonals + self.shift[:, None]
        return np.asarray(pairs * self.sample.uncentered_target + (alone - pairs) * (D @ self._raw_squares))

    @property
    def uncentered_target_norm(self) -> float:
        """Frobenius norm of the target kernel as given: the root of the estimate of its square."""
        (pairs, alone), y = self._uncentered_factors, self._raw_squares
        return float(np.sqrt(pairs * self.sample.uncentered_target_norm**2 + (alone - pairs) * (y @ y)))

    @property
    def _raw_squares(self) -> np.ndarray:
        return np.einsum("iq,iq->i", self._raw_targets, self._raw_targets)

    # Parts -----------------------------------------------------------------------------------------------------------

    def replicates(self) -> Iterator[SampledMoments]:
        """Yield the estimates for the same m rows from the sample without each of its parts.

        They hold one fold group and one part, so they cannot be restricted or replicated.
        """
        for g, rest in enumerate(_without_each(self.sample)):
            yield self._of_part(self.sample.group != g, rest)

    def _of_part(self, held: np.ndarray, rest: GramMoments) -> SampledMoments:
        """Return the estimates from some of the sampled rows, as one fold group."""
        return replace(
            self,
            labels=(0,),
            rows=self.rows[held],
            group=rest.group,
            targets=rest.targets,
            sample=rest,
            fold=np.zeros(1, dtype=np.intp),
            diagonals=self.diagonals[:, held],
            population=self.population.sum(keepdims=True),
        )

    # Fold groups -----------------------------------------------------------------------------------------------------

    def restrict(self, groups: Sequence[int]) -> SampledMoments:
        """Return the estimates for the rows of some fold groups, from the sampled ones among them; O(G p n)."""
        keep, held, attributes = self._held(groups)
        parts = np.isin(self.fold, list(groups))
        return replace(
            self,
            **attributes,
            sample=self.sample.restrict([self.sample.labels[g] for g in np.flatnonzero(parts)]),
            fold=self.fold[parts],
            diagonals=self.diagonals[:, held],
            population=self.population[keep],
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays, without any object dtype, that `from_arrays` reads back."""
        of = self.sample.to_arrays()
        return {
            **{name: of[name] for name in of if name not in {"labels", "rows", "group"}},
            "parts": of["labels"],
            "part": of["group"],
            "labels": np.asarray(self.labels),
            "rows": self.rows,
            "group": self.group,
            **{name: np.asarray(getattr(self, name)) for name in ("fold", "diagonals", "population", "confidence")},
        }

    @staticmethod
    def wrote(arrays: Mapping[str, np.ndarray]) -> bool:
        """Return whether arrays are those of `to_arrays`, not those of other moments."""
        return "population" in arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> SampledMoments:
        """Return the moments that `to_arrays` was called on."""
        sample = GramMoments.from_arrays({**arrays, "labels": arrays["parts"], "group": arrays["part"]})
        return cls(
            names=sample.names,
            labels=tuple(int(label) for label in arrays["labels"]),
            rows=arrays["rows"],
            group=arrays["group"],
            targets=sample.targets,
            target_mean=sample.target_mean,
            origin=sample.origin,
            shift=sample.shift,
            sample=sample,
            fold=arrays["fold"],
            diagonals=arrays["diagonals"],
            population=arrays["population"],
            confidence=float(arrays["confidence"]),
        )


def _without_each(of: GramMoments) -> Iterator[GramMoments]:
    """Yield exact statistics of the rows without each fold group, the others as one: O(p^2 + p m) each."""
    G, T = of.products, of.target_products
    products, target_products, r = G.sum(axis=(0, 1)), T.sum(axis=(0, 1)), of.row_sums.sum(axis=0)
    for g in range(len(of.labels)):
        held = of.group != g
        yield replace(
            of,
            labels=(0,),
            rows=of.rows[held],
            group=np.zeros(held.sum(), dtype=np.intp),
            targets=of.targets[held],
            products=(products - G[g].sum(axis=0) - G[:, g].sum(axis=0) + G[g, g])[None, None],
            target_products=(target_products - T[g].sum(axis=0) - T[:, g].sum(axis=0) + T[g, g])[None, None],
            traces=of.traces.sum(axis=0, keepdims=True) - of.traces[g],
            row_sums=(r - of.row_sums[g])[:, held][None],
        )


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
