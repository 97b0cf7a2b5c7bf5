"""First-stage statistics of all rows from a random sample of them, with error bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from learnkernels.kernels.bounds import alignment_concentration
from learnkernels.kernels.families.base import KernelFamily, Rows, move
from learnkernels.kernels.families.feature import FeatureFamily
from learnkernels.kernels.learners import LEARNERS
from learnkernels.kernels.moments.base import FoldMoments
from learnkernels.kernels.moments.gram import GramMoments, Mapper, gram_moments
from learnkernels.kernels.moments.normalisation import NORMALISATIONS, Normalisation, NormalisedProducts
from learnkernels.kernels.parameters import Value

START = 2048
"""Rows of the first sample of ``sample="auto"``."""

FEWEST = 256
"""Rows that a sample has at least."""

PARTS = 32
"""Parts of the smallest union of folds, each left out once for its error bars."""

CAUTION = 1.15
"""What error bars are multiplied by, for two reasons to be too small: alignments are skewed, and a sample stops growing
when they come out small. Without it about 94 in 100 intervals of 95% hold, 92 where the tolerance is just reached."""

FEWEST_PARTS = 4
"""Parts of a fold at least."""

ROWS_OF_PART = 4
"""Sampled rows of a part, on average over a union, at least."""

PRODUCTS_BYTES = 1 << 30
"""Most memory that products of base kernels, kept apart by pairs of parts, may take; more kernels get fewer parts."""

MARGIN = 1.1
"""How many times the rows at which widths are predicted to reach the tolerance the next sample has."""

GROWTH = (1.4, 4.0)
"""Bounds of how many times the rows of a sample the next one has."""

Statistic = Callable[["SampledMoments"], np.ndarray]
"""What has error bars: numbers that follow from first-stage statistics."""


@dataclass(frozen=True, eq=False, repr=False)
class Sampling(Value):
    r"""What a kernel learned from a sample of rows is known by: half widths of intervals around what it tells.

    Attributes
    ----------
    n_rows, of_rows : int
        Sampled rows, and the rows they stand for.
    confidence : float
        Probability that an interval contains what all rows would give, each on its own.
    alignment : float or None
        Half width of the alignment of the learned kernel. None where the weights do not come from statistics alone.
    alignments : ndarray of shape (p,) or None
        The same of each base kernel; None where the learner finds its base kernels itself.
    weights : ndarray of shape (p,) or None
        The same of each weight.
    bound : float or None
        What a theorem promises in place of `alignment`, for any distribution: `alignment_concentration` at the sample's
        size and ``delta = 1 - confidence``. None for kernels that it does not cover, those with negative weights.

    Notes
    -----
    Intervals are from the sample's own parts, see `SampledMoments.half_width`; infinite ones say that it is too small
    to tell. Those of weights that a learner moves in and out of zero, or between kernels that are nearly equal, hold
    less often than the others: for `alignf` on Gaussians of neighbouring widths half the time, at worst.

    The bound is of an independent sample of a distribution, for a kernel fixed beforehand, with upper bounds
    R^2 of K(x, x) of the kernel before centering. To move all features by one vector changes no alignment, so the R^2
    here is that of features less their mean, and the largest over the sample stands for the largest of all. It
    is far wider than the interval, and says nothing above one.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Theorem 12 (the bound).
    """

    n_rows: int
    of_rows: int
    confidence: float
    alignment: float | None = None
    alignments: np.ndarray | None = None
    weights: np.ndarray | None = None
    bound: float | None = None

    @classmethod
    def of(cls, moments: SampledMoments, learner: str, normalise: Normalisation = "trace", **params: Any) -> Sampling:
        """Return the error bars of what a learner, a name of the table, finds from sampled moments.

        A learner that needs more than moments has error bars of the base kernels' alignments alone; one that finds its
        own base kernels has none.
        """
        only = cls(moments.n_rows, moments.total_rows, moments.confidence)
        if LEARNERS[learner].needs == "continuous":
            return only
        if not learns_from_moments(learner):
            return replace(only, alignments=moments.half_width(lambda part: part.alignments))

        def found(part: SampledMoments) -> np.ndarray:
            weights, coefficients = find_weights(learner, part, normalise, **params)
            return np.concatenate([[alignment_of(part, coefficients)], part.alignments, weights])

        p, widths = moments.n_kernels, moments.half_width(found)
        _, coefficients = find_weights(learner, moments, normalise, **params)
        return replace(
            only,
            alignment=float(widths[0]),
            alignments=widths[1 : p + 1],
            weights=widths[p + 1 :],
            bound=moments.concentration(coefficients),
        )


@dataclass(frozen=True, eq=False, repr=False)
class SampledMoments(FoldMoments):
    r"""Estimates of the first-stage statistics of m rows from n of them; the interface of `GramMoments`.

    Of kernels centered on the sample, the products :math:`M_{kl}`, those of their diagonals
    :math:`D_{kl} = \sum_i K_{kc}(i, i) K_{lc}(i, i)` and their traces t give

    .. math:: \hat M = \alpha M + \beta D + \gamma \, t t^\top, \qquad
              \hat t = \tfrac{m - 1}{n - 1} \, t

    with the three numbers that make the mean of :math:`\hat M` over all samples of n rows the M of all m rows, whatever
    these are: that of a U-statistic. The target kernel is one more kernel. For n much smaller than m, pairs of two rows
    count about :math:`m^2 / n^2` times, each row with itself :math:`m / n` times: the alignment of a narrow kernel,
    about :math:`1 / \sqrt m` on m rows, is not taken for the :math:`1 / \sqrt n` of the sample.

    Attributes
    ----------
    names : tuple of str
        The base kernels.
    labels : tuple of int
        The fold groups held.
    rows : ndarray of shape (n,)
        Position in the data set of each sampled row, sorted by group; `group`, `targets` and `diagonals` follow it.
    group : ndarray of shape (n,)
        Position in `labels` of each sampled row's group.
    targets : ndarray of shape (n, q)
        Y of the sampled rows, less `target_mean`.
    target_mean : ndarray of shape (q,)
        Mean of Y over the whole sample, whatever rows are held.
    origin : ndarray of shape (d,)
        Subtracted from every row before a kernel sees it.
    sample_weight : None
        Rows count once each.
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
    def shift(self) -> np.ndarray:
        """Constant subtracted from each base kernel, shape (p,)."""
        return self.sample.shift

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
    def _centered_diagonals(self) -> np.ndarray:
        """Diagonal of each base kernel centered on the sample, shape (p, n)."""
        means = self.sample.row_means
        return np.asarray(self.diagonals - 2 * means + means.mean(axis=1, keepdims=True))

    @cached_property
    def _target_diagonal(self) -> np.ndarray:
        return np.einsum("iq,iq->i", self._centered_targets, self._centered_targets)

    @cached_property
    def frobenius(self) -> np.ndarray:
        """Estimate of M, shape (p, p); formed once, on first use."""
        if self.exact:
            return self.sample.frobenius
        (alpha, beta, gamma), D = self._factors, self._centered_diagonals
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
        (alpha, beta, gamma), D, y = self._factors, self._centered_diagonals, self._target_diagonal
        return np.asarray(alpha * self.sample.target + beta * (D @ y) + gamma * D.sum(axis=1) * y.sum())

    @cached_property
    def target_norm(self) -> float:
        """Frobenius norm of the centered target kernel: the root of the estimate of its square."""
        (alpha, beta, gamma), y = self._factors, self._target_diagonal
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

    # Error bars ------------------------------------------------------------------------------------------------------

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

    def half_width(self, statistic: Statistic) -> np.ndarray:
        r"""Return the half width of the interval around a statistic that is to contain its value of all rows.

        With the statistic :math:`\theta`, that without part g :math:`\theta_g`, n_g rows of that part and
        :math:`h_g = n / n_g`, the jackknife's mean and variance and the half width are

        .. math:: \theta_J = G \theta - \sum_g \big(1 - \tfrac{1}{h_g}\big) \theta_g, \qquad
                  v = \frac1G \sum_g \frac{(h_g \theta - (h_g - 1) \theta_g - \theta_J)^2}{h_g - 1}
        .. math:: c \, t_{G-1} \sqrt{(1 - n / m) \, v} + (1 - n / m) \, | \theta - \theta_J |

        where :math:`t_{G-1}` is the quantile of Student's distribution, c is `CAUTION` and the last term the bias of a
        ratio, which for very narrow kernels is larger than its spread.

        Parameters
        ----------
        statistic : callable
            ``statistic(moments)`` returns a number or an array.

        Returns
        -------
        widths : ndarray
            Of the shape of the statistic. Zero where the sample holds all rows, infinite where the target is constant
            without some part of it.

        Notes
        -----
        G times the cost of the statistic, and O(G p n).

        References
        ----------
        Busing, Meijer, van der Leeden (1999), Statistics and Computing 9:3-8 (the jackknife with parts of unequal
        size). Cochran (1977), Sampling Techniques, section 2.6 (the factor 1 - n / m).
        """
        theta = np.asarray(statistic(self), dtype=np.float64)
        if self.exact:
            return np.zeros_like(theta)
        values, G = [], len(self.sample.labels)
        for part in self.replicates() if G > 1 else ():
            if not np.ptp(part.targets, axis=0).any():
                return np.full_like(theta, np.inf)
            values.append(np.asarray(statistic(part), dtype=np.float64))
        if not values:
            return np.full_like(theta, np.inf)
        without = np.stack(values)
        h = (self.n_rows / np.bincount(self.sample.group)).reshape(G, *[1] * theta.ndim)
        centre = G * theta - ((1 - 1 / h) * without).sum(axis=0)
        variance = ((h * theta - (h - 1) * without - centre) ** 2 / (h - 1)).mean(axis=0)
        left_out = 1 - self.n_rows / self.total_rows
        spread = CAUTION * _t_quantile(self.confidence, G - 1) * np.sqrt(left_out * variance)
        return np.asarray(spread + left_out * np.abs(theta - centre))

    def concentration(self, coefficients: np.ndarray) -> float | None:
        """Return Theorem 12's bound for ``sum_k coefficients_k K_k``, see `Sampling`; None if one is negative."""
        if self.exact:
            return 0.0
        squared_norm = self._squared_norm(coefficients)
        if (coefficients < 0).any() or not squared_norm > 0:
            return None
        radius = float((coefficients @ self._centered_diagonals).max())
        other = float(self._target_diagonal.max())
        m = self.total_rows
        # No kernel within R^2 has a mean square above R^4; its estimate may have, by its error.
        squares = min(squared_norm / m**2, radius**2), min((self.target_norm / m) ** 2, other**2)
        return alignment_concentration(self.n_rows, 1 - self.confidence, radius, other, *squares)

    # Fold groups -----------------------------------------------------------------------------------------------------

    def restrict(self, groups: Sequence[int]) -> SampledMoments:
        """Return the estimates for the rows of some fold groups alone, from the sampled ones among them.

        Parameters
        ----------
        groups : sequence of int
            Fold groups, each one of `labels`.

        Returns
        -------
        moments : SampledMoments

        Raises
        ------
        ValueError
            A group is not held, or none is given.

        Notes
        -----
        O(G p n), without another pass.
        """
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


def _t_quantile(confidence: float, freedom: int) -> float:
    from scipy.stats import t  # here, because it takes as long to import as all else

    return float(t.ppf((1 + confidence) / 2, freedom))


# Learners ------------------------------------------------------------------------------------------------------------


def learns_from_moments(name: str) -> bool:
    """Return whether a learner of the table finds weights from moments alone."""
    return "moments" in LEARNERS[name].needs


def find_weights(
    name: str, moments: SampledMoments, normalise: Normalisation, **params: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return a two-stage learner's weights, and what they make of the base kernels as given; zeros where it finds none.

    Returns
    -------
    weights, coefficients : ndarray of shape (p,)
    """
    weights, coefficients = np.zeros((2, moments.n_kernels))
    varying = np.flatnonzero(~moments.constant)
    scales = NORMALISATIONS[normalise](moments)[varying]
    M = NormalisedProducts(moments, varying, scales, LEARNERS[name].needs == "moments")
    try:
        weights[varying] = LEARNERS[name].solve(M, M.target, **params).weights
    except ValueError:  # no base kernel aligns with the target
        return weights, coefficients
    coefficients[varying] = weights[varying] / scales
    return weights, coefficients


def alignment_of(moments: SampledMoments, coefficients: np.ndarray) -> float:
    """Return the alignment of a weighted sum of base kernels; zero where all weights are, its limit."""
    return moments.alignment(coefficients) if coefficients.any() else 0.0


# The sample ----------------------------------------------------------------------------------------------------------


def sample_moments(
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    unions: Sequence[Sequence[int]] = (),
    learners: Sequence[tuple[str, Mapping[str, Any]]] = (),
    tolerance: float = 0.01,
    confidence: float = 0.95,
    seed: int = 0,
    sample: Literal["auto"] | int = "auto",
    mapper: Mapper | None = None,
    keep_origin: bool = False,
    dtype: type[np.float64] | type[np.float32] = np.float64,
    normalise: Normalisation = "trace",
    tell: Callable[[str], object] | None = None,
) -> SampledMoments:
    """Return the first-stage statistics of a family over the rows of a data set, from a random sample of them.

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
    unions : sequence of sequences of int, optional
        Fold groups whose statistics will be asked for together, training sets for example; by default all of them.
    learners : sequence of (str, dict), optional
        Learners of the table and their parameters. Those that learn from moments have the alignment of what they learn
        brought to the tolerance, besides the base kernels.
    tolerance : float, default 0.01
        Largest half width of an alignment's interval on any of `unions`, in (0, 1), for a sample of size "auto".
    confidence : float, default 0.95
        Of each interval, in (0, 1).
    seed : int, default 0
        Of the sample. Samples of one seed are nested.
    sample : "auto" or int, default "auto"
        Rows of the sample over all fold groups, or as many as the tolerance takes.
    mapper, keep_origin, dtype
        As in `gram_moments`.
    normalise : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before the learners see them.
    tell : callable, optional
        Called with one sentence a round.

    Returns
    -------
    moments : SampledMoments
        Where the sample comes to hold all rows, they are exact and their error bars zero.

    Raises
    ------
    ValueError
        As `gram_moments`; an option is out of its range, the family is one of rank-one features, or the sample is too
        small for the fold groups, or for the target to vary on it.

    Notes
    -----
    O(n^2 (d + p^2)) time for n sampled rows and O(G p n) memory, for G parts in all. Widths fall as the root of n: the
    last pass costs about as much as all before it, or more.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.2.1 and, on sample sizes, Theorem 12.
    """
    _require_options(family, tolerance, confidence, sample)
    m = X.shape[0]
    Y = np.asarray(Y, dtype=np.float64)
    groups = np.zeros(m, dtype=np.intp) if groups is None else np.asarray(groups)
    if len(Y) != m or len(groups) != m:
        raise ValueError(f"Y and groups must have one entry a row of X, got {len(Y)} and {len(groups)} for {m} rows.")
    if m < 2:
        raise ValueError(f"X must have at least two rows, got {m}.")
    plan = SamplePlan.of(groups, unions, seed, family.n_kernels)
    n = plan.fewest(START) if sample == "auto" else plan.require(sample)
    tell = tell or (lambda _: None)
    learners = [(name, params) for name, params in learners if learns_from_moments(name)]
    while True:
        moments = _of_sample(family, X, Y, plan, n, confidence, mapper=mapper, keep_origin=keep_origin, dtype=dtype)
        if moments is None and (n == m or sample != "auto"):
            raise ValueError(f"the target is constant on the {n} sampled rows; take a larger sample, or all rows.")
        width, whose = (np.inf, "the target") if moments is None else plan.widest(moments, learners, normalise)
        about = f"half widths of at most {width:.3g} at {confidence:.0%} confidence, largest of {whose}"
        tell(f"{n} of {m} rows: {'exact' if n == m else about}.")
        if moments is not None and (n == m or sample != "auto" or width <= tolerance):
            return moments
        n = plan.next_size(n, width / tolerance)


def _require_options(family: KernelFamily, tolerance: float, confidence: float, sample: object) -> None:
    if isinstance(family, FeatureFamily):
        raise ValueError(
            "family must not be of rank-one features to be sampled; gram_moments takes all rows in O(m p)."
        )
    for name, value in (("tolerance", tolerance), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}.")
    if sample != "auto" and (isinstance(sample, bool) or not isinstance(sample, int | np.integer) or sample < FEWEST):
        raise ValueError(f"sample must be 'auto' or a number of rows of at least {FEWEST}, got {sample!r}.")


@dataclass(frozen=True)
class SamplePlan:
    """Which rows a sample of any size takes, and into which parts it puts them.

    Attributes
    ----------
    labels : tuple of int
        The fold groups.
    order : tuple of ndarray
        Of each, the positions of its rows in random order: a sample takes the first ones.
    parts : int
        P: row r of that order is in part r mod P of its fold.
    unions : tuple of tuple of int
        Fold groups whose statistics are asked for together.
    """

    labels: tuple[int, ...]
    order: tuple[np.ndarray, ...]
    parts: int
    unions: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, groups: np.ndarray, unions: Sequence[Sequence[int]], seed: int, n_kernels: int) -> SamplePlan:
        """Shuffle the rows of each fold group, and choose the number of parts from the unions.

        Raises
        ------
        ValueError
            A fold group is negative, or a union is empty or holds one that no row has.
        """
        found, codes = np.unique(groups, return_inverse=True)
        labels = tuple(int(label) for label in found)
        if labels[0] < 0:
            raise ValueError(f"groups must not be negative, got {labels[0]}; leave those rows out.")
        asked = {tuple(sorted({int(label) for label in union})) for union in unions} or {labels}
        for union in sorted(asked):
            if not union or set(union) - set(labels):
                raise ValueError(f"unions must hold some of the fold groups {list(labels)}, got {list(union)}.")
        order = np.argsort(codes, kind="stable")
        folds = np.split(order, np.cumsum(np.bincount(codes))[:-1])
        shuffled = (np.random.default_rng([seed, label]).permutation(f) for label, f in zip(labels, folds, strict=True))
        wanted = max(FEWEST_PARTS, -(-PARTS // min(len(union) for union in asked)))
        room = int(np.sqrt(PRODUCTS_BYTES / 8) / (n_kernels * len(labels)))
        return cls(labels, tuple(shuffled), max(2, min(wanted, room)), tuple(sorted(asked)))

    @property
    def sizes(self) -> np.ndarray:
        """Rows of each fold group."""
        return np.array([len(rows) for rows in self.order])

    def fewest(self, at_least: int) -> int:
        """Return the rows of a sample that has `at_least` so many and enough of them in each part, or all rows."""
        sizes = dict(zip(self.labels, self.sizes, strict=True))
        m = int(self.sizes.sum())
        needed = max(len(u) * self.parts * ROWS_OF_PART * m / sum(sizes[g] for g in u) for u in self.unions)
        return min(m, max(at_least, int(np.ceil(needed))))

    def require(self, sample: int) -> int:
        """Return the rows that a sample of `sample` rows has, at most all; ValueError if parts have too few of them."""
        n = min(int(sample), int(self.sizes.sum()))
        if n < self.fewest(0):
            raise ValueError(
                f"sample must be at least {self.fewest(0)} rows for these fold groups and the parts that error bars "
                f"need of them, got {sample}."
            )
        return n

    def draw(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of n rows, ascending, and for each its fold's position times P plus its part.

        Each fold has its share, one row at least. Of all rows, each fold is one part: there is nothing to tell.
        """
        sizes = self.sizes
        m = int(sizes.sum())
        shares = np.diff(np.rint(np.cumsum(sizes) * (n / m)).astype(np.intp), prepend=0)
        rows = [order[: max(1, share)] for order, share in zip(self.order, shares, strict=True)]
        parts = self.parts if n < m else 1
        codes = [f * self.parts + np.arange(len(of)) % parts for f, of in enumerate(rows)]
        positions = np.concatenate(rows)
        ascending = np.argsort(positions)
        return positions[ascending], np.concatenate(codes)[ascending]

    def widest(
        self, moments: SampledMoments, learners: Sequence[tuple[str, Mapping[str, Any]]], normalise: Normalisation
    ) -> tuple[float, str]:
        """Return the largest half width of an alignment on any union, and whose it is."""
        names = [*(f"base kernel {name}" for name in moments.names), *(name for name, _ in learners)]

        def alignments(part: SampledMoments) -> np.ndarray:
            found = [find_weights(name, part, normalise, **params)[1] for name, params in learners]
            return np.array([*part.alignments, *(alignment_of(part, coefficients) for coefficients in found)])

        widths = np.stack([moments.restrict(union).half_width(alignments) for union in self.unions])
        union, widest = np.unravel_index(np.argmax(widths), widths.shape)
        where = "" if len(self.unions) == 1 else f" on fold groups {', '.join(map(str, self.unions[union]))}"
        return float(widths[union, widest]), names[widest] + where

    def next_size(self, n: int, excess: float) -> int:
        """Return the rows of the next sample, for half widths `excess` times as large as they may be.

        They fall as the root of 1 / n - 1 / m.
        """
        m = int(self.sizes.sum())
        predicted = MARGIN / (1 / m + (1 / n - 1 / m) / excess**2)
        least, most = (factor * n for factor in GROWTH)
        return min(m, int(np.ceil(np.clip(predicted, least, most))))


def _of_sample(
    family: KernelFamily, X: Rows, Y: np.ndarray, plan: SamplePlan, n: int, confidence: float, **options: Any
) -> SampledMoments | None:
    """Return the moments of one sample, or None where the target is constant on it."""
    rows, codes = plan.draw(n)
    X, Y = X[rows], Y[rows]
    if not np.ptp(Y, axis=0).any():
        return None
    sample = gram_moments(family, X, Y, codes, **options)
    order, codes = sample.rows, codes[sample.rows]
    sample = replace(sample, rows=rows[order])
    diagonals = family.diag(move(X[order], sample.origin)) - sample.shift[:, None]
    return SampledMoments(
        names=sample.names,
        labels=plan.labels,
        rows=sample.rows,
        group=codes // plan.parts,
        targets=sample.targets,
        target_mean=sample.target_mean,
        origin=sample.origin,
        sample=sample,
        fold=np.asarray(plan.labels)[np.asarray(sample.labels) // plan.parts],
        diagonals=diagonals,
        population=plan.sizes,
        confidence=confidence,
    )
