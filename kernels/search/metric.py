"""Metrics learned by the average gradient outer product (AGOP), and two-fold errors of base kernels in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.linalg import cho_solve
from scipy.spatial.distance import pdist

from ..centering import alignment_of_matrix, center_gram, grand_mean, mean_over, weighted_by_roots
from ..engine.combination import Combination
from ..families.base import KernelFamily, distinct_rows, squared_distances
from ..families.composed import FamilyUnion, MetricFamily
from ..families.distances import CategoricalFamily, GaussianFamily, LaplacianFamily
from ..solvers.factor import LeaveOneOut, LeftOut, cholesky, least_along

GAUSSIANS = (0.25, 1.0, 4.0)
"""Bandwidths of Gaussians, in units of one over the median squared distance."""

WIDE = (0.0625, 0.25)
"""The same for targets that are smoother than the distances between rows tell."""

LAPLACIANS = (0.5, 1.0, 2.0)
"""Bandwidths of Laplacians, in units of one over the median distance."""

Factors = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""Bandwidths of Gaussians, of Laplacians of the Euclidean distance, and of those of the sum of absolute differences."""

KINDS: dict[str, Factors] = {
    "both": (GAUSSIANS, LAPLACIANS, LAPLACIANS),
    "gaussian": (GAUSSIANS, (), ()),
    "laplacian": ((), LAPLACIANS, LAPLACIANS),
    "wide": (WIDE, (), ()),
}
"""Kinds of base kernels."""

UNSUPERVISED = -1
"""Number of the round whose metric is that of principal components."""

RIDGES = tuple(4.0**exponent for exponent in range(-15, 1))
"""Ridges that leave-one-out chooses among, in units of the sum of the eigenvalues."""

COMPONENTS = 50
"""Most principal components that base kernels are taken of: of no more features there are none to leave out, and normal
scores stand next to these."""

MEDIAN_ROWS = 500
"""Rows whose distances give the median where there are more."""

UNIT_ROWS = 250
"""Rows whose kernels give their mean, where they are summed with about equal traces."""

LEAST = 1e-6
"""Share of the largest eigenvalue below which a direction of a metric is left out."""


@dataclass(frozen=True)
class RfmMetric:
    """A linear map of the features, and what it is called.

    Attributes
    ----------
    map : ndarray of shape (d,) or (d, r)
        See `MetricFamily`.
    label : str
    """

    map: np.ndarray
    label: str

    def mapped(self, X: np.ndarray) -> np.ndarray:
        """Return rows in the metric."""
        return X * self.map if self.map.ndim == 1 else X @ self.map

    def lengths(self, norm: int = 2) -> np.ndarray:
        """Return how far apart two rows are for each unit by which they differ in one feature alone, shape (d,)."""
        return np.abs(self.map) if self.map.ndim == 1 else np.linalg.norm(self.map, norm, axis=1)

    def base_kernels(
        self, X: np.ndarray, w: np.ndarray | None = None, factors: Factors = KINDS["both"]
    ) -> tuple[MetricFamily, np.ndarray]:
        """Return Gaussians and Laplacians around the median distance of weighted rows in the metric, and their sigma.

        Parameters
        ----------
        X : ndarray of shape (m, d)
            Rows. Not modified.
        w : ndarray of shape (m,), optional
            Their weights. Not modified.
        factors : triple of sequence of float
            Which of each, as those of `KINDS`.

        Returns
        -------
        family : MetricFamily
        sigma : ndarray of shape (p, d)
            For each feature the difference by which a base kernel falls to 1 / e where rows differ in it alone; inf
            where it never does.
        """
        Z, (smooth, euclidean, cityblock) = self.mapped(X), factors
        families: list[KernelFamily] = []
        sigma = []
        with np.errstate(divide="ignore"):  # a feature that does not count
            if smooth or euclidean:
                squared = median_distance(Z, "sqeuclidean", w)
            if smooth:
                families.append(GaussianFamily([factor / squared for factor in smooth]))
                sigma.append(np.sqrt(squared / np.array(smooth))[:, None] / self.lengths(2))
            if euclidean:
                families.append(LaplacianFamily([factor / np.sqrt(squared) for factor in euclidean], 2))
                sigma.append((np.sqrt(squared) / np.array(euclidean))[:, None] / self.lengths(2))
            if cityblock:
                absolute = median_distance(Z, "cityblock", w)
                families.append(LaplacianFamily([factor / absolute for factor in cityblock]))
                sigma.append((absolute / np.array(cityblock))[:, None] / self.lengths(1))
        return MetricFamily(FamilyUnion(families), self.map, self.label), np.vstack(sigma)


@dataclass(frozen=True)
class Round:
    """What is known after a round: metrics of each kind, or the one to begin with.

    Attributes
    ----------
    number : int
        How many ridge regressions they come from; `UNSUPERVISED` for principal components.
    metrics : tuple of RfmMetric
        One a kind.
    ridge : float or None
        Of the last of these regressions.
    """

    number: int
    metrics: tuple[RfmMetric, ...]
    ridge: float | None = None

    def alignment(self, X: np.ndarray, Y: np.ndarray, w: np.ndarray | None = None) -> float:
        """Return the centered alignment of the kernel of the next regression with the target, on any rows."""
        K = np.zeros((len(X), len(X)))
        for metric in self.metrics:
            Z = metric.mapped(X)
            K += summed(*_radial_family(Z, w), Z, Z)
        return alignment_of_matrix(K, Y - mean_over(Y, w), w)


def median_distance(
    Z: np.ndarray, of: Literal["sqeuclidean", "cityblock"], sample_weight: np.ndarray | None = None
) -> float:
    """Return the median distance of different rows, by their weights; ValueError where all are equal.

    Of more than `MEDIAN_ROWS` rows so many at even steps are taken, unless these are equal.
    """
    step = -(-len(Z) // MEDIAN_ROWS)
    some = Z[::step], None if sample_weight is None else sample_weight[::step]
    if step > 1 and np.ptp(some[0], axis=0).any():
        return median_distance(some[0], of, some[1])
    D = pdist(Z, of)
    apart = D > 0
    if not apart.any():
        raise ValueError("all rows are equal, so no bandwidth can be found; give features that vary.")
    if sample_weight is None:
        return float(np.median(D[apart]))
    first, second = np.triu_indices(len(Z), 1)
    pairs = (sample_weight[first] * sample_weight[second])[apart]
    order = np.argsort(D[apart])
    below = np.cumsum(pairs[order])
    middle = np.searchsorted(below, below[-1] / 2, "left"), np.searchsorted(below, below[-1] / 2, "right")
    return float(D[apart][order[list(middle)]].mean())


def spread_of(X: np.ndarray, w: np.ndarray | None = None) -> RfmMetric:
    """Return the metric in which each feature has a standard deviation of one; features that do not vary count zero."""
    largest = np.abs(X).max(axis=0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)  # in which squares neither overflow nor vanish
    spread = unit * np.sqrt(mean_over(np.square((X - mean_over(X, w)) / unit), w))
    varies = spread > 1e-12 * largest
    return RfmMetric(np.divide(1.0, spread, out=np.zeros(len(spread)), where=varies), "spread")


def components_of(X: np.ndarray, w: np.ndarray | None = None, most: int = COMPONENTS) -> RfmMetric:
    """Return the metric of the directions in which rows vary most, features in the units that they come in."""
    unit = np.abs(X).max(initial=0.0) or 1.0  # in which squares neither overflow nor vanish
    Z = (X - mean_over(X, w)) / unit
    _, spreads, directions = np.linalg.svd(Z if w is None else Z * np.sqrt(w)[:, None], full_matrices=False)
    kept = np.square(spreads) > LEAST * np.square(spreads[0])
    return RfmMetric(directions[kept][:most].T / unit, "principal components")


def metric_of(X: np.ndarray, w: np.ndarray | None, scaled: bool) -> RfmMetric:
    """Return the metric to begin with: features as they are where they are scaled, but for those that do not vary."""
    spread = spread_of(X, w)
    return RfmMetric((spread.map > 0).astype(np.float64), "units") if scaled else spread


def learned_metrics(
    X: np.ndarray,
    Y: np.ndarray,
    kinds: Sequence[str],
    rounds: int,
    rank: int,
    sample_weight: np.ndarray | None = None,
    start: RfmMetric | None = None,
    near: float | None = None,
) -> Iterator[Round]:
    r"""Give the metrics after each round: of the gradients of a ridge regression in the metric of the round before.

    .. math:: A_t A_t^\top \propto \frac 1 m \sum_i \nabla f_t^{(-i)}(x_i) \, \nabla f_t^{(-i)}(x_i)^\top

    or its diagonal, scaled so that its trace is that of the metric to begin with.

    Parameters
    ----------
    X : ndarray of shape (m, d)
        Training rows. Not modified.
    Y : ndarray of shape (m, q)
        Targets. Not modified.
    kinds : sequence of {"diagonal", "full"}
        Whether features are weighted, or mapped by a matrix; each kind goes its own way from round to round.
    rounds : int
        How many there are after the metric to begin with, which comes first.
    rank : int
        Most new features of a full metric.
    sample_weight : ndarray of shape (m,), optional
        Weights of the rows; by default each counts once. Not modified.
    start : RfmMetric, optional
        Of weights, to begin with; by default features in units of their standard deviation.
    near : float, optional
        A ridge that is known to be close to the best of the first regression.

    Notes
    -----
    Gradients are taken where the row itself was left out of the regression, so that a row does not speak for features
    by which it tells itself apart. The first regression serves all kinds. Where features outnumber rows, outer products
    are kept in the span of the rows. A kind and round takes O(m^3 + m^2 d + m^2 q min(m, d)), a full metric that is
    learned in another one of all features a further O(min(m, d)^3).

    References
    ----------
    Radhakrishnan, Beaglehole, Pandit, Belkin (2024), Mechanism for feature learning in neural networks and
    backpropagation-free machine learning models, Science 383:1461-1467.
    """
    start = spread_of(X, sample_weight) if start is None else start
    yield Round(0, (start,))
    varying = start.map > 0
    Z = X[:, varying] * start.map[varying]
    maps, ridge = [np.ones(Z.shape[1])], near
    for number in range(1, rounds + 1):
        products = []
        for A in maps:
            in_span, basis = Z * A if A.ndim == 1 else Z @ A, None
            if in_span.shape[1] > len(Z):  # of more features than rows, in an orthonormal basis of the rows' span
                basis, coordinates = np.linalg.qr(in_span.T)
                in_span = coordinates.T
            M, ridge = gradient_outer_product(in_span, Y, sample_weight, ridge)
            products.append((A if basis is None else A[:, None] * basis if A.ndim == 1 else A @ basis, M))
        products = products * len(kinds) if number == 1 else products
        maps, metrics = [], []
        for kind, (B, M) in zip(kinds, products, strict=True):
            A = _root(B, M, rank) if kind == "full" else np.sqrt(_diagonal(B, M))
            A *= np.sqrt(len(A) / np.square(A).sum())
            mapped = np.zeros((len(start.map), *A.shape[1:]))
            mapped[varying] = (start.map[varying] * A.T).T
            maps.append(A)
            metrics.append(RfmMetric(mapped, f"{kind} metric {number}"))
        yield Round(number, tuple(metrics), ridge)


def _root(B: np.ndarray, M: np.ndarray, rank: int) -> np.ndarray:
    """Return A of shape (d, r) whose product ``A A^T`` is ``B M B^T``, but for directions that hardly count.

    B holds one weight per feature, or is a matrix; in the latter case no matrix of d by d is formed.
    """
    if B.ndim == 1:
        basis, M = None, B[:, None] * M * B
    else:
        basis, R = np.linalg.qr(B)
        M = R @ M @ R.T
    eigenvalues, directions = np.linalg.eigh(M)
    kept = np.flatnonzero(eigenvalues > LEAST * eigenvalues[-1])[-rank:]
    A = directions[:, kept] * eigenvalues[kept] ** 0.5
    return np.asarray(A if basis is None else basis @ A)


def _diagonal(B: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Return the diagonal of ``B M B^T``, B being one weight per feature or a matrix."""
    diagonal = B * np.diag(M) * B if B.ndim == 1 else np.einsum("jk,jk->j", B @ M, B)
    return np.asarray(np.maximum(diagonal, 0.0))  # rounding may leave less


def gradient_outer_product(
    Z: np.ndarray, Y: np.ndarray, sample_weight: np.ndarray | None = None, near: float | None = None
) -> tuple[np.ndarray, float]:
    """Return the average outer product of the gradients of a ridge regression on Gaussians and Euclidean Laplacians.

    The base kernels have equal weights and traces, the ridge is chosen by leave-one-out, and the gradient at each row
    is that of the regression without this row.

    Parameters
    ----------
    Z : ndarray of shape (m, r)
        Rows. Not modified.
    Y : ndarray of shape (m, q)
        Targets. Not modified.
    sample_weight : ndarray of shape (m,), optional
        Weights of the rows; by default each counts once. Not modified.
    near : float, optional
        A ridge that is known to be close to the best.

    Returns
    -------
    M : ndarray of shape (r, r)
        Symmetric, positive semi-definite, of trace one.
    ridge : float
        The one that was chosen.

    Raises
    ------
    ValueError
        All rows are equal, or the prediction is constant.
    """
    K, slopes = radial_kernel(Z, sample_weight)
    fit = LeaveOneOut(K, Y, sample_weight).best(ridges_of(K, sample_weight), near)
    del K  # as slopes and eigenvectors are, all pairs of rows
    M = np.zeros((Z.shape[1], Z.shape[1]))
    for gradients in left_out_gradients(Z, slopes, fit):
        gradients *= np.sqrt(fit.sample_weight)[:, None]
        M += gradients.T @ gradients
    trace = np.trace(M)
    if not trace > 0:
        raise ValueError("the prediction does not depend on any feature, so no metric can be learned; take alignf.")
    return M / trace, fit.ridge


def ridges_of(K: np.ndarray, w: np.ndarray | None = None) -> list[float]:
    """Return the ridges to choose among for a centered Gram matrix of weighted rows."""
    trace = float(np.trace(K) if w is None else np.diag(K) @ w)
    return [ridge * trace for ridge in RIDGES]


def radial_kernel(Z: np.ndarray, w: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return a centered sum of Gaussians and Euclidean Laplacians, and the derivative of the sum by squared distance.

    Of weighted rows, where there are weights.

    Returns
    -------
    K : ndarray of shape (m, m)
        Of about mean diagonal one.
    slopes : ndarray of shape (m, m)
        Zero where two rows are equal: there the gradient of a Gaussian is zero, and a Laplacian has none.
    """
    family, units = _radial_family(Z, w)
    gaussians, laplacians = family.families
    assert isinstance(gaussians, GaussianFamily)
    assert isinstance(laplacians, LaplacianFamily)
    D = squared_distances(Z, Z)
    np.sqrt(D, out=D)
    n = gaussians.n_kernels
    slopes = summed(laplacians, units[n:] * laplacians.gammas, Z, Z, shift=0.0)
    slopes *= np.divide(-0.5, D, out=np.zeros_like(D), where=D > 0)  # slope of the distance itself
    slopes -= np.where(D > 0, summed(gaussians, units[:n] * gaussians.gammas, Z, Z, shift=0.0), 0.0)
    return center_gram(summed(family, units, Z, Z), w), slopes


def _radial_family(Z: np.ndarray, w: np.ndarray | None) -> tuple[FamilyUnion, np.ndarray]:
    """Return the base kernels of `radial_kernel`, and what each is weighted by."""
    median = median_distance(Z, "sqeuclidean", w)
    gaussians = GaussianFamily([factor / median for factor in GAUSSIANS])
    laplacians = LaplacianFamily([factor / np.sqrt(median) for factor in LAPLACIANS], 2)
    family = FamilyUnion([gaussians, laplacians])
    units = unit_weights(family, Z, w)
    return family, units / len(units)


def unit_weights(family: KernelFamily, X: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return one over the centered mean diagonal of each base kernel, shape (p,), on at most `UNIT_ROWS` rows.

    Of kernels that are one where rows are equal; one for a kernel that is constant.
    """
    step = -(-len(X) // UNIT_ROWS)
    some, weights = X[::step], None if w is None else w[::step]
    scales = np.array([1.0 - grand_mean(K, weights) for K in family.tile(some, some)])
    return np.divide(1.0, scales, out=np.ones(len(scales)), where=scales > 0)


def summed(family: KernelFamily, weights: np.ndarray, A: np.ndarray, B: np.ndarray, shift: float = 1.0) -> np.ndarray:
    """Return a weighted sum of base kernels less a number between rows, shape (a, b).

    Less one, kernels that are nearly one keep all digits of what centering leaves of them.
    """
    return Combination(family, weights, np.full(len(weights), shift)).matrix(A, B, symmetric=A is B)


def left_out_gradients(Z: np.ndarray, slopes: np.ndarray, fit: LeftOut) -> Iterator[np.ndarray]:
    r"""Give, for each output, the gradients at the training rows of the regressions without the row.

    .. math:: \nabla f^{(-i)}(z_i) = 2 \sum_j s_{ij} \alpha_j (z_i - z_j) - 2 \, r_i \sum_j s_{ij} G_{ij} (z_i - z_j)

    where s are the `slopes` of the kernel, r the leave-one-out residuals and G is `LeftOut.inverse`.

    Parameters
    ----------
    Z : ndarray of shape (m, r)
        Rows.
    slopes : ndarray of shape (m, m)
        Derivative of the kernel by the squared distance of each pair.
    fit : LeftOut
        The regression, with what it is without each row.

    Returns
    -------
    gradients : iterator of ndarray of shape (m, r)

    Notes
    -----
    Without row i the coefficient of row j is ``alpha_j - G_ij alpha_i / G_ii``, and that quotient is the residual: one
    product of all pairs more than gradients of the whole regression take serves all outputs.
    """
    with_ones = np.column_stack([Z, np.ones(len(Z))])

    def differences(products: np.ndarray) -> np.ndarray:
        """Return the sums over j of weights_ij (z_i - z_j), of the products of the weights with Z and ones."""
        return np.asarray(products[:, -1:] * Z - products[:, :-1])

    own = differences((slopes * fit.inverse) @ with_ones)
    for alpha, residuals in zip(fit.alpha.T, fit.residuals.T, strict=True):
        yield 2.0 * (differences(slopes @ (alpha[:, None] * with_ones)) - residuals[:, None] * own)


EQUAL = 64.0
"""Bandwidth of a categorical kernel that is one where levels are equal and zero, to rounding, elsewhere."""

COMBINED_KERNELS = ("both", "gaussian", "laplacian", "wide")
"""Kinds of base kernels to choose among where they are taken in several metrics."""

TINY = np.finfo(np.float64).tiny
"""Smallest sigma."""


@dataclass(frozen=True)
class KernelChoice:
    """Base kernels to take.

    Attributes
    ----------
    rounds : tuple of int
        Whose metrics they are in; those of round 0 and `UNSUPERVISED` are not learned.
    kind : str
        One of `KINDS`.
    """

    rounds: tuple[int, ...]
    kind: str

    @property
    def supervised(self) -> bool:
        """Whether a target has shaped the metrics."""
        return max(self.rounds) > 0

    def metrics(self, rounds: Iterable[Round]) -> list[RfmMetric]:
        """Return the metrics that are taken of some rounds."""
        return [metric for one in rounds if one.number in self.rounds for metric in one.metrics]


@dataclass(frozen=True)
class Examples:
    """Distinct rows with their targets, and weights where they have any."""

    X: np.ndarray
    Y: np.ndarray
    w: np.ndarray | None

    def halves(self, seed: int) -> list[Examples]:
        """Return two halves of much the same targets, whatever the order of the rows."""
        first, _ = distinct_rows(np.column_stack([self.X, self.Y]))
        drawn = first[np.random.default_rng(seed).permutation(len(first))]
        by_target = drawn[np.lexsort(self.Y[drawn].T)]
        parts = by_target[::2], by_target[1::2]
        return [Examples(self.X[rows], self.Y[rows], None if self.w is None else self.w[rows]) for rows in parts]


@dataclass(frozen=True)
class FeatureColumns:
    """Which columns hold codes of levels, what these are called, and which others take part in metrics."""

    codes: np.ndarray
    others: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(cls, d: int, given: Sequence[int], names: Sequence[str] = ()) -> FeatureColumns:
        """Return which of d columns hold codes; ValueError where no other is left, or names are not those of codes."""
        codes = np.asarray(given, dtype=np.intp)
        others = np.setdiff1d(np.arange(d), codes)
        if len(codes) and not (codes.min() >= 0 and codes.max() < d and len(others)):
            raise ValueError(f"codes must be some of the {d} columns of X and not all of them, got {given!r:.60}.")
        if names and len(names) != len(codes):
            raise ValueError(f"code_names must have one entry per code, got {len(names)} for {len(codes)}.")
        return cls(codes, others, tuple(names or (f"column {code}" for code in codes.tolist())))

    def union(self, metrics: Sequence[RfmMetric], examples: Examples, kind: str) -> tuple[FamilyUnion, np.ndarray]:
        """Return base kernels of a kind in some metrics, then one a code, and the sigma of each for every column."""
        X = examples.X
        found = [metric.base_kernels(X[:, self.others], examples.w, KINDS[kind]) for metric in metrics]
        families: list[KernelFamily] = [family for family, _ in found]
        sigmas = np.vstack([sigma for _, sigma in found])
        if not len(self.codes):
            return FamilyUnion(families), sigmas
        columns = [self.others] * len(metrics) + [np.array([code]) for code in self.codes]
        views = [*[None] * len(metrics), *self.names]
        union = FamilyUnion([*families, *[CategoricalFamily([EQUAL])] * len(self.codes)], columns, views)
        whole = np.full((len(sigmas) + len(self.codes), X.shape[1]), np.inf)
        whole[: len(sigmas), self.others] = sigmas
        spread = np.maximum(X[:, self.codes].std(axis=0), TINY)  # any difference
        whole[np.arange(len(sigmas), len(whole)), self.codes] = spread
        return union, whole


class SplitHalf:
    """One of two splits: rows that train metrics and ridge regressions, and the others, which test them.

    Parameters
    ----------
    train, test : Examples
        Of different rows.
    columns : FeatureColumns
        Of both.
    rounds : iterator of Round
        Those that the training rows give, from round 0 on, after principal components where these are to choose.

    Attributes
    ----------
    rounds : dict of int to Round
        Those that were learned.
    alignments : list of float
        Centered alignment of the kernel of each of these with the target on the test rows.
    """

    def __init__(self, train: Examples, test: Examples, columns: FeatureColumns, rounds: Iterator[Round]) -> None:
        self.train = train
        self.test = test
        self.columns = columns
        self.rounds: dict[int, Round] = {}
        self.alignments: list[float] = []
        self._unlearned_rounds = rounds
        self._last_ridges: dict[str, int] = {}  # positions among the ridges, by kind of base kernels
        self._sums: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]] = {}  # by round and kind, of many choices

    def learn(self, number: int) -> None:
        """Learn rounds up to a number."""
        while number not in self.rounds:
            learned = next(self._unlearned_rounds)
            self.rounds[learned.number] = learned
            if learned.number != UNSUPERVISED:
                others = self.test.X[:, self.columns.others]
                self.alignments.append(learned.alignment(others, self.test.Y, self.test.w))

    def errors(self, choices: Sequence[KernelChoice]) -> np.ndarray:
        """Return the weighted sums of squared test errors, of equal weights, by choice.

        Each choice has the ridge with the least error on these rows, searched from that of the choice before of its
        kind.
        """
        errors = []
        for choice in choices:
            sums = [self._sums_of_round(number, choice.kind) for number in choice.rounds]
            if len(self.columns.codes):
                sums.append(self._sums_of_codes)
            K = np.sum([among for among, _ in sums], axis=0)
            cross = np.sum([between for _, between in sums], axis=0)
            regressions = HalfRegressions(K, cross, self.train, self.test)
            best = least_along(regressions.error, len(regressions.ridges), self._last_ridges.get(choice.kind))
            self._last_ridges[choice.kind] = best
            errors.append(regressions.error(best))
        return np.array(errors)

    def products(self, choice: KernelChoice) -> tuple[np.ndarray, np.ndarray]:
        """Return M and a of base kernels of unit trace on the rows that were not used to learn their metrics."""
        X = self.test.X
        w = self.test.w
        family, _ = self.columns.union(choice.metrics(self.rounds.values()), self.test, choice.kind)
        rows = np.empty((family.n_kernels, len(X) ** 2))
        for k, K in enumerate(family.tile(X, X)):
            trace = 1.0 - grand_mean(K, w)
            rows[k] = weighted_by_roots(center_gram(K / (trace or 1.0), w), w).ravel()
        centered = self.test.Y - mean_over(self.test.Y, w)
        if w is not None:
            centered = centered * np.sqrt(w)[:, None]
        return rows @ rows.T, rows @ (centered @ centered.T).ravel()

    def _sums_of_round(self, number: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of base kernels of unit trace among training rows, and between test and training rows."""
        if (number, kind) not in self._sums:
            X = self.train.X[:, self.columns.others]
            w = self.train.w
            metrics = self.rounds[number].metrics
            family = FamilyUnion([metric.base_kernels(X, w, KINDS[kind])[0] for metric in metrics])
            units = unit_weights(family, X, w)
            others = self.test.X[:, self.columns.others]
            self._sums[number, kind] = summed(family, units, X, X), summed(family, units, others, X)
        return self._sums[number, kind]

    @cached_property
    def _sums_of_codes(self) -> tuple[np.ndarray, np.ndarray]:
        codes = self.columns.codes
        family = FamilyUnion([CategoricalFamily([EQUAL])] * len(codes), codes[:, None].tolist())
        units = unit_weights(family, self.train.X, self.train.w)
        return summed(family, units, self.train.X, self.train.X), summed(family, units, self.test.X, self.train.X)


class HalfRegressions:
    """Ridge regressions on one kernel that are fitted on training rows and compared on test rows.

    Parameters
    ----------
    K : ndarray of shape (m, m)
        The kernel among training rows, not centered.
    cross : ndarray of shape (n, m)
        The kernel between test rows and training rows.
    train, test : Examples
        Targets and weights of the m and n rows.
    """

    def __init__(self, K: np.ndarray, cross: np.ndarray, train: Examples, test: Examples) -> None:
        self.K = K
        self.cross = cross
        self.train = train
        self.test = test
        centered = center_gram(K, train.w)
        self.ridges = ridges_of(centered, train.w)
        self._rooted = weighted_by_roots(centered, train.w)
        self._roots = np.ones((len(K), 1))
        if train.w is not None:
            self._roots = np.sqrt(train.w)[:, None]
        self._rooted_target = self._roots * (train.Y - mean_over(train.Y, train.w))
        self._errors: dict[int, float] = {}

    def error(self, position: int) -> float:
        """Return the weighted sum of squared test errors with a ridge; one Cholesky factor per ridge."""
        if position not in self._errors:
            self._errors[position] = self._error_with(self.ridges[position])
        return self._errors[position]

    def _error_with(self, ridge: float) -> float:
        factor = cholesky(self._rooted.copy(), ridge)
        if factor is None:
            return np.inf
        alpha = self._roots * cho_solve(factor, self._rooted_target, check_finite=False)
        intercept = mean_over(self.train.Y - self.K @ alpha, self.train.w)
        squared = np.square(self.test.Y - self.cross @ alpha - intercept).sum(axis=1)
        if self.test.w is None:
            return float(squared.sum())
        return float(self.test.w @ squared)
