"""Metrics learned by the average gradient outer product (AGOP), and their cross-fitted errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from operator import attrgetter, methodcaller
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.linalg import cho_solve
from scipy.spatial.distance import pdist

from ..base import report_progress
from ..centering import (
    alignment_of_matrix,
    center_gram,
    grand_mean,
    mean_over,
    relative_error,
    weighted_by_roots,
)
from ..engine.combination import Combination
from ..families.base import KernelFamily, distinct_rows, squared_distances
from ..families.composed import FamilyUnion, MetricFamily
from ..families.distances import CategoricalFamily, GaussianFamily, LaplacianFamily
from ..row_groups import RowGroups
from ..solvers.factor import LeaveOneOut, LeftOut, cholesky, least_along
from ..weights import weights_of_rows

GAUSSIANS = (0.25, 1.0, 4.0)
"""Gammas of Gaussians, relative to one over the median squared distance."""

WIDE_GAUSSIANS = (0.0625, 0.25)
"""Gammas of wide Gaussians, in the same units."""

LAPLACIANS = (0.5, 1.0, 2.0)
"""Gammas of Laplacians, relative to one over the median distance."""

Factors = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""Factors of gamma: Gaussians, Laplacians of the 2-norm, and of the 1-norm."""

KINDS: dict[str, Factors] = {
    "both": (GAUSSIANS, LAPLACIANS, LAPLACIANS),
    "gaussian": (GAUSSIANS, (), ()),
    "laplacian": ((), LAPLACIANS, LAPLACIANS),
    "wide": (WIDE_GAUSSIANS, (), ()),
}
"""Kinds of base kernels by name."""

COMBINED_KERNELS = ("both", "gaussian", "laplacian", "wide")
"""Kinds of base kernels that ``kernels="auto"`` compares."""

CATEGORY_GAMMA = 64.0
"""Gamma at which the kernel of different categories is about zero."""

UNSUPERVISED = -1
"""Round number of the metric of principal components."""

RIDGES = tuple(4.0**exponent for exponent in range(-15, 1))
"""Grid of ridges, relative to the trace of the Gram matrix."""

COMPONENTS = 50
"""Largest number of principal components, and of automatic normal scores."""

MEDIAN_ROWS = 500
"""Largest number of rows for the median distance."""

UNIT_ROWS = 250
"""Largest number of rows for the traces of base kernels."""

COMPARED_ROWS = 500
"""Most rows whose leave-one-out residuals all decide on the ridge; half of more rows do."""

LEAST = 1e-6
"""Largest relative eigenvalue of an omitted direction of a metric."""


@dataclass(frozen=True)
class RfmMetric:
    """Learned metric: a linear map of features before distances are measured.

    `map` has one weight per feature, or shape (d, r).
    """

    map: np.ndarray
    label: str

    def mapped(self, X: np.ndarray) -> np.ndarray:
        """Return rows X after the metric's linear map."""
        if self.map.ndim == 1:
            return X * self.map
        return X @ self.map

    def lengths(self, norm: int = 2) -> np.ndarray:
        """Return the norm of each row of the matrix `map`, one per feature, shape (d,)."""
        if self.map.ndim == 1:
            return np.abs(self.map)
        return np.linalg.norm(self.map, norm, axis=1)

    def medians(self, X: np.ndarray, w: np.ndarray | None = None) -> MedianDistances:
        """Return the median distances between rows X in this metric."""
        return MedianDistances(self.mapped(X), w)

    def base_kernels(
        self, medians: MedianDistances, factors: Factors = KINDS["both"]
    ) -> tuple[MetricFamily, np.ndarray]:
        """Return p base kernels in this metric, and their sigmas, shape (p, d).

        Sigma is the difference in one feature at which a kernel falls to 1 / e.
        """
        gaussian_factors, euclidean_factors, manhattan_factors = factors
        families: list[KernelFamily] = []
        sigmas = []
        # Sigma is infinite for a feature without influence
        with np.errstate(divide="ignore"):
            if gaussian_factors or euclidean_factors:
                squared = medians.squared
            if gaussian_factors:
                families.append(
                    GaussianFamily([factor / squared for factor in gaussian_factors])
                )
                sigmas.append(
                    np.sqrt(squared / np.array(gaussian_factors))[:, None]
                    / self.lengths(2)
                )
            if euclidean_factors:
                families.append(
                    LaplacianFamily(
                        [factor / np.sqrt(squared) for factor in euclidean_factors], 2
                    )
                )
                sigmas.append(
                    (np.sqrt(squared) / np.array(euclidean_factors))[:, None]
                    / self.lengths(2)
                )
            if manhattan_factors:
                distance = medians.cityblock
                families.append(
                    LaplacianFamily([factor / distance for factor in manhattan_factors])
                )
                sigmas.append(
                    (distance / np.array(manhattan_factors))[:, None] / self.lengths(1)
                )
        return MetricFamily(FamilyUnion(families), self.map, self.label), np.vstack(
            sigmas
        )


class MedianDistances:
    """Median distances between rows Z with weights w."""

    def __init__(self, Z: np.ndarray, w: np.ndarray | None) -> None:
        self.Z = Z
        self.w = w

    @cached_property
    def squared(self) -> float:
        """Median squared Euclidean distance."""
        return median_distance(self.Z, "sqeuclidean", self.w)

    @cached_property
    def cityblock(self) -> float:
        """Median distance in the 1-norm."""
        return median_distance(self.Z, "cityblock", self.w)


@dataclass(frozen=True)
class Round:
    """Metrics of one round of `RFM`, and the ridges of its regressions.

    `ridges` has one entry per metric of the previous round.
    """

    number: int
    metrics: tuple[RfmMetric, ...]
    ridges: tuple[float, ...] = ()

    def alignment(
        self, X: np.ndarray, Y: np.ndarray, w: np.ndarray | None = None
    ) -> float:
        """Return the centered alignment of a kernel in these metrics with targets Y."""
        K = np.zeros((len(X), len(X)))
        for metric in self.metrics:
            Z = metric.mapped(X)
            K += summed(*_radial_family(Z, w), Z, Z)
        return alignment_of_matrix(K, Y - mean_over(Y, w), w)


def median_distance(
    Z: np.ndarray,
    metric: Literal["sqeuclidean", "cityblock"],
    sample_weight: np.ndarray | None = None,
) -> float:
    """Return the weighted median of positive distances; ValueError for equal rows.

    Compares at most `MEDIAN_ROWS` rows, unless these are equal.
    """
    step = -(-len(Z) // MEDIAN_ROWS)
    if step > 1 and np.ptp(Z[::step], axis=0).any():
        weights_of_some = weights_of_rows(sample_weight, slice(None, None, step))
        return median_distance(Z[::step], metric, weights_of_some)
    distances = pdist(Z, metric)
    positive = distances > 0
    distances = distances[positive]
    if not len(distances):
        raise ValueError(
            "all rows are equal, so no bandwidth can be found; give features that vary."
        )
    if sample_weight is None:
        return float(np.median(distances))
    first, second = np.triu_indices(len(Z), 1)
    pair_weights = (sample_weight[first] * sample_weight[second])[positive]
    order = np.argsort(distances)
    cumulative = np.cumsum(pair_weights[order])
    lower = np.searchsorted(cumulative, cumulative[-1] / 2, "left")
    upper = np.searchsorted(cumulative, cumulative[-1] / 2, "right")
    return float(distances[order[[lower, upper]]].mean())


def spread_of(X: np.ndarray, w: np.ndarray | None = None) -> RfmMetric:
    """Return the metric that standardizes features; constant ones get weight zero."""
    largest = np.abs(X).max(axis=0, initial=0.0)
    # Avoids overflow and underflow of squares
    unit = np.where(largest > 0, largest, 1.0)
    spread = unit * np.sqrt(mean_over(np.square((X - mean_over(X, w)) / unit), w))
    varies = spread > 1e-12 * largest
    return RfmMetric(
        np.divide(1.0, spread, out=np.zeros(len(spread)), where=varies), "spread"
    )


def components_of(X: np.ndarray, w: np.ndarray | None = None) -> RfmMetric:
    """Return the metric of the first principal components."""
    unit = np.abs(X).max(initial=0.0) or 1.0
    Z = (X - mean_over(X, w)) / unit
    if w is not None:
        Z = Z * np.sqrt(w)[:, None]
    _, singular_values, directions = np.linalg.svd(Z, full_matrices=False)
    relevant = np.square(singular_values) > LEAST * np.square(singular_values[0])
    components = directions[relevant][:COMPONENTS]
    return RfmMetric(components.T / unit, "principal components")


def metric_of(X: np.ndarray, w: np.ndarray | None, scaled: bool) -> RfmMetric:
    """Return the initial metric: `spread_of`, or factors 1 if features are scaled."""
    spread = spread_of(X, w)
    if not scaled:
        return spread
    return RfmMetric((spread.map > 0).astype(np.float64), "units")


def learned_metrics(
    X: np.ndarray,
    Y: np.ndarray,
    kinds: Sequence[str],
    rounds: int,
    rank: int,
    sample_weight: np.ndarray | None = None,
    start: RfmMetric | None = None,
    near: Mapping[int, Sequence[float] | np.ndarray] | None = None,
    row_groups: RowGroups | None = None,
    precision: type[np.floating[Any]] = np.float64,
) -> Iterator[Round]:
    r"""Yield the metrics of each round, learned from gradients of ridge regressions.

    .. math:: A_t A_t^\top \propto \frac 1 m \sum_i \nabla f_t^{(-i)}(x_i) \, \nabla f_t^{(-i)}(x_i)^\top

    or its diagonal, scaled to the trace of the initial metric `start`. Regressions
    leave out row i and its group. `near` has ridges close to the best ones, by round. A
    round takes O(m^3 + m^2 d + m^2 q min(m, d)) per kind.
    """
    if start is None:
        start = spread_of(X, sample_weight)
    yield Round(0, (start,))
    varying = start.map > 0
    Z = X[:, varying] * start.map[varying]
    maps = [np.ones(Z.shape[1])]
    if near is None:
        near = {}
    ridge: float | None = None
    for number in range(1, rounds + 1):
        outer_products = []
        ridges = []
        for position, A in enumerate(maps):
            if number in near:
                ridge = near[number][position]
            B, M, ridge = _factored_outer_product(
                Z, A, Y, sample_weight, ridge, row_groups, precision
            )
            outer_products.append((B, M))
            ridges.append(ridge)
        if number == 1:
            outer_products = outer_products * len(kinds)
        maps = []
        metrics = []
        for kind, (B, M) in zip(kinds, outer_products, strict=True):
            A = _root(B, M, rank) if kind == "full" else np.sqrt(_diagonal(B, M))
            A *= np.sqrt(len(A) / np.square(A).sum())
            maps.append(A)
            map_of_all_features = np.zeros((len(start.map), *A.shape[1:]))
            map_of_all_features[varying] = (start.map[varying] * A.T).T
            metrics.append(RfmMetric(map_of_all_features, f"{kind} metric {number}"))
        report_progress(f"metrics of round {number} on {len(Z):,} rows")
        yield Round(number, tuple(metrics), tuple(ridges))


def _factored_outer_product(
    Z: np.ndarray,
    A: np.ndarray,
    Y: np.ndarray,
    sample_weight: np.ndarray | None,
    near: float | None,
    row_groups: RowGroups | None,
    precision: type[np.floating[Any]],
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return factors B and M of the outer product ``B M B^T``, and the ridge."""
    mapped = Z * A if A.ndim == 1 else Z @ A
    if mapped.shape[1] <= len(Z):
        M, ridge = gradient_outer_product(
            mapped, Y, sample_weight, near, row_groups, precision
        )
        return A, M, ridge
    # With more features than rows, M is in a basis of the span of the rows.
    basis, coordinates = np.linalg.qr(mapped.T)
    M, ridge = gradient_outer_product(
        coordinates.T, Y, sample_weight, near, row_groups, precision
    )
    B = A[:, None] * basis if A.ndim == 1 else A @ basis
    return B, M, ridge


def _root(B: np.ndarray, M: np.ndarray, rank: int) -> np.ndarray:
    """Return A with ``A A^T`` about equal to ``B M B^T``, shape (d, r)."""
    if B.ndim == 1:
        return _root_of_matrix(B[:, None] * M * B, rank)
    basis, R = np.linalg.qr(B)
    return np.asarray(basis @ _root_of_matrix(R @ M @ R.T, rank))


def _root_of_matrix(M: np.ndarray, rank: int) -> np.ndarray:
    """Return A with ``A A^T`` about equal to M, of at most `rank` columns."""
    eigenvalues, directions = np.linalg.eigh(M)
    relevant = np.flatnonzero(eigenvalues > LEAST * eigenvalues[-1])[-rank:]
    return np.asarray(directions[:, relevant] * eigenvalues[relevant] ** 0.5)


def _diagonal(B: np.ndarray, M: np.ndarray) -> np.ndarray:
    diagonal = B * np.diag(M) * B if B.ndim == 1 else np.einsum("jk,jk->j", B @ M, B)
    return np.asarray(np.maximum(diagonal, 0.0))  # rounding may make it negative


def gradient_outer_product(
    Z: np.ndarray,
    Y: np.ndarray,
    sample_weight: np.ndarray | None = None,
    near: float | None = None,
    row_groups: RowGroups | None = None,
    precision: type[np.floating[Any]] = np.float64,
) -> tuple[np.ndarray, float]:
    """Return the mean outer product of gradients of a ridge fit, and the best ridge.

    It has trace one; regressions leave out the row and its group. Equal rows or a
    constant prediction raise ValueError.
    """
    Z = Z - Z.mean(axis=0)  # sums of differences then lose no digits
    loss: Callable[[LeftOut], float] = attrgetter("loss")
    if row_groups is None and len(Z) > COMPARED_ROWS:
        # Residuals of the last rows take less time.
        by_target = np.lexsort(Y.T)
        order = np.concatenate([by_target[::2], by_target[1::2]])
        Z = Z[order]
        Y = Y[order]
        sample_weight = weights_of_rows(sample_weight, order)
        loss = methodcaller("loss_from", len(by_target[::2]))
    K, slopes = radial_kernel(Z, sample_weight, precision)
    fit = LeaveOneOut(K, Y, sample_weight, row_groups=row_groups).best(
        ridges_of(K, sample_weight), near, loss
    )
    del K  # frees a matrix of all pairs of rows
    M = np.zeros((Z.shape[1], Z.shape[1]))
    for gradients in left_out_gradients(Z, slopes, fit):
        gradients *= np.sqrt(fit.sample_weight)[:, None]
        M += gradients.T @ gradients
    trace = np.trace(M)
    if not trace > 0:
        raise ValueError(
            "the prediction does not depend on any feature, so no metric can be learned; take alignf."
        )
    return M / trace, fit.ridge


def ridges_of(K: np.ndarray, w: np.ndarray | None = None) -> list[float]:
    """Return the ridges to compare, for a centered Gram matrix K."""
    trace = float(np.trace(K) if w is None else np.diag(K) @ w)
    return [ridge * trace for ridge in RIDGES]


def radial_kernel(
    Z: np.ndarray,
    w: np.ndarray | None = None,
    precision: type[np.floating[Any]] = np.float64,
) -> tuple[np.ndarray, np.ndarray]:
    """Return a radial kernel and its derivative by squared distance, shapes (m, m).

    The kernel is centered, with a mean diagonal of about one.
    """
    family, units = _radial_family(Z, w)
    gaussians, laplacians = family.families
    assert isinstance(gaussians, GaussianFamily)
    assert isinstance(laplacians, LaplacianFamily)
    D = squared_distances(Z, Z)
    np.sqrt(D, out=D)
    is_apart = D > 0
    n = gaussians.n_kernels
    slopes = summed(
        laplacians, units[n:] * laplacians.gammas, Z, Z, 0.0, precision=precision
    )
    # Slope of the distance itself
    slopes *= np.divide(-0.5, D, out=np.zeros_like(D), where=is_apart)
    slopes_of_gaussians = summed(
        gaussians, units[:n] * gaussians.gammas, Z, Z, 0.0, precision=precision
    )
    slopes_of_gaussians *= is_apart
    slopes -= slopes_of_gaussians
    K = summed(family, units, Z, Z, precision=precision)
    return center_gram(K, w).astype(precision, copy=False), slopes


def _radial_family(
    Z: np.ndarray, w: np.ndarray | None
) -> tuple[FamilyUnion, np.ndarray]:
    """Return the base kernels of `radial_kernel` and their weights."""
    median = median_distance(Z, "sqeuclidean", w)
    gaussians = GaussianFamily([factor / median for factor in GAUSSIANS])
    laplacians = LaplacianFamily([factor / np.sqrt(median) for factor in LAPLACIANS], 2)
    family = FamilyUnion([gaussians, laplacians])
    units = unit_weights(family, Z, w)
    return family, units / len(units)


def unit_weights(
    family: KernelFamily, X: np.ndarray, w: np.ndarray | None
) -> np.ndarray:
    """Return weights that scale centered base kernels to a mean diagonal of one.

    Diagonals must be one; a constant kernel has weight one.
    """
    step = -(-len(X) // UNIT_ROWS)
    rows = X[::step]
    row_weights = weights_of_rows(w, slice(None, None, step))
    mean_diagonals = np.array(
        [1.0 - grand_mean(K, row_weights) for K in family.tile(rows, rows)]
    )
    return np.divide(
        1.0, mean_diagonals, out=np.ones(len(mean_diagonals)), where=mean_diagonals > 0
    )


def summed(
    family: KernelFamily,
    weights: np.ndarray,
    A: np.ndarray,
    B: np.ndarray,
    shift: float = 1.0,
    precision: type[np.floating[Any]] = np.float64,
) -> np.ndarray:
    """Return the weighted sum of base kernels minus `shift`, shape (a, b).

    A shift of one preserves the precision of kernels near one.
    """
    combination = Combination(family, weights, np.full(len(weights), shift))
    return combination.matrix(A, B, symmetric=A is B, dtype=precision)


def left_out_gradients(
    Z: np.ndarray, slopes: np.ndarray, fit: LeftOut
) -> Iterator[np.ndarray]:
    r"""Yield per output the gradient at each row of the fit without this row.

    .. math:: \nabla f^{(-i)}(z_i) = 2 \sum_j s_{ij} \alpha_j (z_i - z_j) - 2 \, r_i \sum_j s_{ij} G_{ij} (z_i - z_j)

    where s are the `slopes`, r the leave-one-out residuals and G is `LeftOut.inverse`.
    Without the group g of row i, the coefficient of row j is ``alpha_j - G_jg r_g``.
    """
    with_ones = np.column_stack([Z, np.ones(len(Z))]).astype(slopes.dtype)
    if fit.row_groups is not None and fit.row_groups.n_groups < len(Z):
        for alpha, residuals in zip(
            fit.alpha.T, fit.residuals_of_groups.T, strict=True
        ):
            changes = _changes_without_groups(
                fit.inverse, residuals, fit.row_groups.numbers
            )
            coefficients = slopes * (alpha - changes)
            yield 2.0 * _sums_of_differences(coefficients @ with_ones, Z)
        return
    corrections = _sums_of_differences((slopes * fit.inverse) @ with_ones, Z)
    for alpha, residuals in zip(fit.alpha.T, fit.residuals_of_groups.T, strict=True):
        terms = (alpha[:, None] * with_ones).astype(slopes.dtype, copy=False)
        of_regression = _sums_of_differences(slopes @ terms, Z)
        yield 2.0 * (of_regression - residuals[:, None] * corrections)


def _changes_without_groups(
    G: np.ndarray, residuals: np.ndarray, numbers: np.ndarray
) -> np.ndarray:
    """Return the changes of coefficients without each row's group, shape (m, m)."""
    of_group = np.zeros((numbers.max() + 1, len(numbers)))
    of_group[numbers, np.arange(len(numbers))] = residuals
    return np.asarray((of_group @ G)[numbers])


def _sums_of_differences(products: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return ``sum_j w_ij (z_i - z_j)`` from w times Z and ones."""
    return np.asarray(products[:, -1:] * Z - products[:, :-1])


@dataclass(frozen=True)
class KernelChoice:
    """Choice of base kernels: `RFM` rounds with their metrics, and the kernels' kind."""

    rounds: tuple[int, ...]
    kind: str

    @property
    def supervised(self) -> bool:
        """Whether the metrics depend on the target."""
        return max(self.rounds) > 0

    def metrics(self, rounds: Iterable[Round]) -> list[RfmMetric]:
        metrics: list[RfmMetric] = []
        for candidate in rounds:
            if candidate.number in self.rounds:
                metrics.extend(candidate.metrics)
        return metrics


@dataclass(frozen=True)
class Examples:
    """Data set: distinct rows X, targets Y, and optional weights w and groups."""

    X: np.ndarray
    Y: np.ndarray
    w: np.ndarray | None
    row_groups: RowGroups | None = None

    def splits(self, seed: int) -> list[tuple[Examples, Examples]]:
        """Split the data in training and test examples: halves, or parts by time."""
        if self.row_groups is None:
            first, second = self.halves(seed)
            return [(first, second), (second, first)]
        splits = self.row_groups.splits(2, seed, _strata(self.Y))
        return [(self._take(training), self._take(test)) for training, test in splits]

    def halves(self, seed: int) -> list[Examples]:
        """Return random halves with similar targets, for any order of rows."""
        in_fixed_order, _ = distinct_rows(np.column_stack([self.X, self.Y]))
        shuffled = in_fixed_order[
            np.random.default_rng(seed).permutation(len(in_fixed_order))
        ]
        by_target = shuffled[np.lexsort(self.Y[shuffled].T)]
        return [self._take(by_target[::2]), self._take(by_target[1::2])]

    def every(self, step: int) -> Examples:
        """Return the examples at every `step`-th row."""
        if step <= 1:
            return self
        return self._take(np.arange(0, len(self.X), step))

    def _take(self, rows: np.ndarray) -> Examples:
        row_groups = self.row_groups
        if row_groups is not None:
            row_groups = row_groups.take(rows)
        return Examples(
            self.X[rows], self.Y[rows], weights_of_rows(self.w, rows), row_groups
        )


def _strata(Y: np.ndarray) -> np.ndarray:
    """Return strata of the rows: classes, or quarters of the values."""
    if Y.shape[1] > 1:
        return Y.argmax(axis=1)
    return np.searchsorted(np.quantile(Y, [0.25, 0.5, 0.75]), Y[:, 0])


@dataclass(frozen=True)
class FeatureColumns:
    """Division of columns into category codes, with their names, and others."""

    codes: np.ndarray
    others: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, d: int, code_positions: Sequence[int], names: Sequence[str] = ()
    ) -> FeatureColumns:
        """Divide d features into columns of codes and others; ValueError if invalid."""
        codes = np.asarray(code_positions, dtype=np.intp)
        others = np.setdiff1d(np.arange(d), codes)
        if len(codes) and not (codes.min() >= 0 and codes.max() < d and len(others)):
            raise ValueError(
                f"codes must be some of the {d} columns of X and not all of them, got {code_positions!r:.60}."
            )
        if names and len(names) != len(codes):
            raise ValueError(
                f"code_names must have one entry per code, got {len(names)} for {len(codes)}."
            )
        if not names:
            names = [f"column {code}" for code in codes.tolist()]
        return cls(codes, others, tuple(names))

    def union(
        self, metrics: Sequence[RfmMetric], examples: Examples, kind: str
    ) -> tuple[FamilyUnion, np.ndarray]:
        """Return base kernels in the metrics and on code columns, and their sigmas."""
        X = examples.X
        families: list[KernelFamily] = []
        sigmas_of_metrics = []
        for metric in metrics:
            family, sigma = metric.base_kernels(
                metric.medians(X[:, self.others], examples.w), KINDS[kind]
            )
            families.append(family)
            sigmas_of_metrics.append(sigma)
        sigmas = np.vstack(sigmas_of_metrics)
        if not len(self.codes):
            return FamilyUnion(families), sigmas
        n_codes = len(self.codes)
        columns = [self.others] * len(metrics) + [
            np.array([code]) for code in self.codes
        ]
        names = [*[None] * len(metrics), *self.names]
        union = FamilyUnion(
            [*families, *[CategoricalFamily([CATEGORY_GAMMA])] * n_codes],
            columns,
            names,
        )
        sigmas_of_columns = np.full((len(sigmas) + n_codes, X.shape[1]), np.inf)
        sigmas_of_columns[: len(sigmas), self.others] = sigmas
        # Codes have no scale; any positive number will do.
        spread = np.maximum(X[:, self.codes].std(axis=0), np.finfo(np.float64).tiny)
        sigmas_of_columns[
            np.arange(len(sigmas), len(sigmas_of_columns)), self.codes
        ] = spread
        return union, sigmas_of_columns


class SplitHalf:
    """Split in training rows of metrics and regressions, and test rows for errors.

    `best_ridges`, positions by kind, may be shared by both halves. `alignments` has one
    entry per round, on the test rows.
    """

    def __init__(
        self,
        train: Examples,
        test: Examples,
        columns: FeatureColumns,
        rounds: Iterator[Round],
        best_ridges: dict[str, int] | None = None,
        precision: type[np.floating[Any]] = np.float64,
    ) -> None:
        self.train = train
        self.test = test
        self.columns = columns
        self.rounds: dict[int, Round] = {}
        self.alignments: list[float] = []
        self._next_rounds = rounds
        self._precision = precision
        self._best_ridges = {} if best_ridges is None else best_ridges
        self._medians: dict[int, list[MedianDistances]] = {}
        self._kernels_of_rounds: dict[tuple[int, str], _SplitKernel] = {}

    @property
    def ridges(self) -> dict[int, tuple[float, ...]]:
        """Ridges of the regressions of each learned round, by number."""
        return {
            number: learned.ridges
            for number, learned in self.rounds.items()
            if learned.ridges
        }

    def learn(self, number: int) -> None:
        """Learn and store the metrics of all rounds up to `number`."""
        while number not in self.rounds:
            learned = next(self._next_rounds)
            self.rounds[learned.number] = learned
            if learned.number != UNSUPERVISED:
                X = self.test.X[:, self.columns.others]
                self.alignments.append(learned.alignment(X, self.test.Y, self.test.w))

    def errors(self, choices: Sequence[KernelChoice]) -> np.ndarray:
        """Return the weighted squared test error of each choice with its best ridge."""
        return np.array([self._lowest_error(choice) for choice in choices])

    def _lowest_error(self, choice: KernelChoice) -> float:
        """Return the test error with the best ridge."""
        kernel = self._kernel_of(choice)
        error_at = cache(_RidgeErrors(kernel, self.train, self.test).at)
        start = self._best_ridges.get(choice.kind)
        position = least_along(error_at, len(RIDGES), start)
        self._best_ridges[choice.kind] = position
        return error_at(position)

    def relative_errors(self, choice: KernelChoice) -> tuple[float, float]:
        """Return test and leave-one-out errors, relative to the mean's, with the best ridge of leave-one-out."""
        train = self.train
        kernel = self._kernel_of(choice)
        errors = _RidgeErrors(kernel, train, self.test)
        start = None
        if choice.kind in self._best_ridges:
            start = errors.ridges[self._best_ridges[choice.kind]]
        left_out = LeaveOneOut(
            center_gram(kernel.among_train, train.w),
            train.Y,
            train.w,
            row_groups=train.row_groups,
        ).best(errors.ridges, start)
        residuals = errors.residuals(errors.ridges.index(left_out.ridge))
        has_residual = left_out.is_held_out
        return (
            relative_error(residuals, self.test.Y, self.test.w),
            relative_error(
                left_out.residuals[has_residual],
                train.Y[has_residual],
                weights_of_rows(train.w, has_residual),
            ),
        )

    def _kernel_of(self, choice: KernelChoice) -> _SplitKernel:
        kernels = [
            self._kernel_of_round(number, choice.kind) for number in choice.rounds
        ]
        if len(self.columns.codes):
            kernels.append(self._kernel_of_codes)
        return reduce(_SplitKernel.plus, kernels)

    def products(self, choice: KernelChoice) -> tuple[np.ndarray, np.ndarray]:
        """Return M and a, products of base kernels of unit trace, on test rows."""
        X = self.test.X
        w = self.test.w
        family, _ = self.columns.union(
            choice.metrics(self.rounds.values()), self.test, choice.kind
        )
        rows = np.empty((family.n_kernels, len(X) ** 2))
        for k, K in enumerate(family.tile(X, X)):
            of_unit_trace = K / (1.0 - grand_mean(K, w) or 1.0)
            rows[k] = weighted_by_roots(center_gram(of_unit_trace, w), w).ravel()
        Y = self.test.Y - mean_over(self.test.Y, w)
        if w is not None:
            Y = Y * np.sqrt(w)[:, None]
        return rows @ rows.T, rows @ (Y @ Y.T).ravel()

    def _kernel_of_round(self, number: int, kind: str) -> _SplitKernel:
        """Return the sum of a round's base kernels of unit trace."""
        if kind == "both":
            gaussians = self._kernel_of_round(number, "gaussian")
            laplacians = self._kernel_of_round(number, "laplacian")
            return gaussians.plus(laplacians)
        if (number, kind) not in self._kernels_of_rounds:
            metrics = self.rounds[number].metrics
            if number not in self._medians:
                X = self.train.X[:, self.columns.others]
                self._medians[number] = [
                    metric.medians(X, self.train.w) for metric in metrics
                ]
            pairs = zip(metrics, self._medians[number], strict=True)
            families = [
                metric.base_kernels(medians, KINDS[kind])[0]
                for metric, medians in pairs
            ]
            kernel = self._summed(FamilyUnion(families), self.columns.others)
            self._kernels_of_rounds[number, kind] = kernel
        return self._kernels_of_rounds[number, kind]

    @cached_property
    def _kernel_of_codes(self) -> _SplitKernel:
        codes = self.columns.codes
        family = FamilyUnion(
            [CategoricalFamily([CATEGORY_GAMMA])] * len(codes), codes[:, None].tolist()
        )
        return self._summed(family, None)

    def _summed(self, family: FamilyUnion, columns: np.ndarray | None) -> _SplitKernel:
        """Return the sum of base kernels scaled to unit trace."""
        X = self.train.X
        X_test = self.test.X
        if columns is not None:
            X = X[:, columns]
            X_test = X_test[:, columns]
        weights = unit_weights(family, X, self.train.w)
        return _SplitKernel(
            summed(family, weights, X, X, precision=self._precision),
            summed(family, weights, X_test, X, precision=self._precision),
        )


class _SplitKernel(NamedTuple):
    """Kernel of training rows, and of test and training rows."""

    among_train: np.ndarray
    test_to_train: np.ndarray

    def plus(self, other: _SplitKernel) -> _SplitKernel:
        return _SplitKernel(
            self.among_train + other.among_train,
            self.test_to_train + other.test_to_train,
        )


class _RidgeErrors:
    """Test errors of ridge regressions with each ridge of the grid."""

    def __init__(self, kernel: _SplitKernel, train: Examples, test: Examples) -> None:
        self.K = kernel.among_train
        self.cross = kernel.test_to_train
        self.train = train
        self.test = test
        K = self.K
        w = train.w
        centered = center_gram(K, w).astype(K.dtype, copy=False)
        self.ridges = ridges_of(centered, w)
        self.weighted_gram = weighted_by_roots(centered, w)
        self.roots = np.ones((len(K), 1)) if w is None else np.sqrt(w)[:, None]
        self.Y = (self.roots * (train.Y - mean_over(train.Y, w))).astype(K.dtype)

    def at(self, position: int) -> float:
        """Return the weighted squared test error with one ridge."""
        squared = np.square(self.residuals(position)).sum(axis=1)
        if self.test.w is None:
            return float(squared.sum())
        return float(self.test.w @ squared)

    def residuals(self, position: int) -> np.ndarray:
        """Return the test residuals with one ridge; infinite if it is too small."""
        factor = cholesky(self.weighted_gram.copy(), self.ridges[position])
        if factor is None:
            return np.full_like(self.test.Y, np.inf)
        alpha = self.roots * cho_solve(factor, self.Y, check_finite=False)
        alpha = alpha.astype(self.K.dtype, copy=False)
        intercept = mean_over(self.train.Y - self.K @ alpha, self.train.w)
        return np.asarray(self.test.Y - self.cross @ alpha - intercept)
