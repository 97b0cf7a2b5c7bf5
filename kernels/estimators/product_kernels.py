"""Exact contributions for kernels with one factor per column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import cdist

from ..families.base import KernelFamily
from ..families.composed import (
    ComposedFamily,
    FamilyUnion,
    MetricFamily,
    NormalScoresFamily,
    ScaledFamily,
)
from ..families.distances import CategoricalFamily, ExponentialFamily
from ..learned_kernel import LinearScores

MOST_PRODUCTS = 1 << 10
"""Most kernels times subsets of columns to evaluate exactly."""

BLOCK_VALUES = 1 << 14
"""Most products of factors at once, which stay in the cache."""

METRICS = {"squared": "sqeuclidean", "cityblock": "cityblock"}
"""Names in SciPy of distances that are sums over features."""


@dataclass(frozen=True, eq=False)
class FeaturewiseMap:
    """Map from rows to new features, each computed from one source feature.

    `sources` are positions of original features; `maps` are applied in order.
    """

    sources: np.ndarray
    maps: tuple[Callable[[np.ndarray], np.ndarray], ...] = ()

    def then(
        self, map_rows: Callable[[np.ndarray], np.ndarray], sources: np.ndarray
    ) -> FeaturewiseMap:
        """Return this map followed by another map."""
        return replace(self, sources=sources, maps=(*self.maps, map_rows))

    def of(self, X: np.ndarray) -> np.ndarray:
        for map_rows in self.maps:
            X = map_rows(X)
        return X


@dataclass(frozen=True, eq=False)
class ProductKernels:
    r"""Exponential kernels with one factor per feature of mapped rows.

    .. math:: K(x, x') = \exp(-\gamma \sum_j D_j(x_j, x'_j))
    """

    family: ExponentialFamily
    mapped: FeaturewiseMap

    def distances(
        self, A: np.ndarray, B: np.ndarray, groups: Sequence[slice]
    ) -> np.ndarray:
        """Return distances between A and B by group of features, (n_groups, a, b)."""
        left = self.mapped.of(A)
        right = self.mapped.of(B)
        sources = self.mapped.sources
        D = np.zeros((len(groups), len(A), len(B)))
        for distance, group in zip(D, groups, strict=True):
            places = np.flatnonzero((sources >= group.start) & (sources < group.stop))
            if isinstance(self.family, CategoricalFamily):
                weights = self.family.weights or np.ones(len(sources))
                for place in places:
                    is_different = left[:, place, None] != right[:, place]
                    distance += weights[place] * is_different
            elif len(places):
                distance += cdist(
                    left[:, places], right[:, places], METRICS[self.family.distance]
                )
        return D


def product_kernels_of(
    family: KernelFamily, mapped: FeaturewiseMap
) -> Iterator[ProductKernels | None]:
    """Yield a family's kernels as `ProductKernels`; None for any that are not products."""
    if isinstance(family, ExponentialFamily) and family.distance != "euclidean":
        yield ProductKernels(family, mapped)
        return
    if not isinstance(family, ComposedFamily):
        yield None
        return
    for position, (part, map_rows) in enumerate(family.parts()):
        sources = _sources(family, position, mapped.sources)
        if sources is None:
            yield None
            return
        yield from product_kernels_of(part, mapped.then(map_rows, sources))


def _sources(
    family: ComposedFamily, position: int, sources: np.ndarray
) -> np.ndarray | None:
    """Return the source features of a part; None for mixed features."""
    if isinstance(family, FamilyUnion):
        columns = family.columns[position]
        if columns is None:
            return sources
        return sources[columns]
    if isinstance(family, NormalScoresFamily):
        has_score = [knots is not None for knots in family.knots]
        return np.concatenate([sources, sources[has_score]])
    if isinstance(family, ScaledFamily) or (
        isinstance(family, MetricFamily) and family.map.ndim == 1
    ):
        return sources
    return None


@dataclass(frozen=True, eq=False)
class ProductScores:
    """Decision function, linear in kernels with one factor per column."""

    kernels: tuple[ProductKernels, ...]
    coefficients: np.ndarray
    X: np.ndarray  # training rows minus `origin`
    V: np.ndarray
    origin: np.ndarray

    @classmethod
    def of(cls, scores: LinearScores) -> ProductScores | None:
        """Convert a decision function; None if a kernel is not a product."""
        if scores.kernel.degree != 1 or not isinstance(scores.kernel.X, np.ndarray):
            return None
        expansion = scores.expansion
        features = FeaturewiseMap(np.arange(expansion.X.shape[1]))
        kernels: list[ProductKernels] = []
        for kernel in product_kernels_of(expansion.combination.family, features):
            if kernel is None:
                return None
            kernels.append(kernel)
        coefficients = expansion.combination.coefficients
        return cls(
            tuple(kernels),
            coefficients,
            np.asarray(expansion.X),
            expansion.V,
            expansion.origin,
        )

    def is_fast(self, n_columns: int) -> bool:
        """Return whether exact Shapley values of the columns are fast."""
        return bool(
            np.count_nonzero(self.coefficients) * 2.0**n_columns <= MOST_PRODUCTS
        )

    def values_of_subsets(
        self, X: np.ndarray, background: np.ndarray, groups: Sequence[slice]
    ) -> np.ndarray:
        r"""Return mean decision values for all subsets of d feature groups, (n, 2^d, q).

        .. math:: v(S) = \sum_i V_i \prod_{j \in S} k_j(x, x_i) \, \frac1B \sum_z \prod_{j \notin S} k_j(z, x_i)

        Subsets are ordered as binary numbers; the first group is the first digit.
        """
        values = np.zeros((len(X), 2 ** len(groups), self.V.shape[1]))
        step = max(1, BLOCK_VALUES // values.shape[1])
        start = 0
        for kernels in self.kernels:
            coefficients = self.coefficients[start : start + kernels.family.n_kernels]
            start += len(coefficients)
            if not coefficients.any():
                continue
            for first in range(0, len(self.X), step):
                support = slice(first, first + step)
                by_row = kernels.distances(X - self.origin, self.X[support], groups)
                by_background = kernels.distances(
                    background - self.origin, self.X[support], groups
                )
                for gamma, coefficient in zip(
                    kernels.family.gammas, coefficients.tolist(), strict=True
                ):
                    V = coefficient * self.V[support]
                    _add_values(
                        np.exp(-gamma * by_row),
                        np.exp(-gamma * by_background),
                        V,
                        values,
                    )
        return values


def _add_values(
    by_row: np.ndarray, by_background: np.ndarray, V: np.ndarray, values: np.ndarray
) -> None:
    products = np.empty((values.shape[1], len(V)))
    without = np.zeros_like(products)
    for factors in by_background.transpose(1, 0, 2):
        without += _products_of_subsets(factors, products)[::-1]
    without /= by_background.shape[1]
    for factors, values_of_row in zip(by_row.transpose(1, 0, 2), values, strict=True):
        within = _products_of_subsets(factors, products)
        within *= without
        values_of_row += within @ V


def _products_of_subsets(factors: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write the product of each subset's factors, (2^d, b)."""
    out[0] = 1.0
    n_subsets = 1
    for factor in factors[::-1]:
        np.multiply(out[:n_subsets], factor, out=out[n_subsets : 2 * n_subsets])
        n_subsets *= 2
    return out
