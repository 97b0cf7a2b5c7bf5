"""What learned metrics are worth to rows that did not teach them: two halves of the rows, each predicting the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.linalg import cho_solve

from learnkernels.kernels.centering import center_gram, grand_mean, mean_over, weighted_by_roots
from learnkernels.kernels.families.base import KernelFamily, distinct_rows
from learnkernels.kernels.families.categorical import CategoricalFamily
from learnkernels.kernels.families.union import FamilyUnion
from learnkernels.kernels.search.metric import (
    GAUSSIANS,
    KINDS,
    LAPLACIANS,
    UNSUPERVISED,
    WIDE,
    Factors,
    Metric,
    Round,
    ridges_of,
)
from learnkernels.kernels.solvers.factor import cholesky
from learnkernels.kernels.solvers.leave_one_out import least_along

EQUAL = 64.0
"""Bandwidth of a categorical kernel that is one where levels are equal and zero, to rounding, elsewhere."""

TOGETHER = ("both", "gaussian", "laplacian", "wide")
"""Kinds of base kernels to choose among where they are taken in several metrics."""

ALONE = ("gaussian", "wide", "euclidean", "cityblock")
"""Kinds to choose among where there is one metric."""

EVERY: Factors = (tuple(sorted({*GAUSSIANS, *WIDE})), LAPLACIANS, LAPLACIANS)
"""The base kernels of those that are taken together."""

TINY = np.finfo(np.float64).tiny
"""Smallest sigma."""


@dataclass(frozen=True)
class Choice:
    """Base kernels to take.

    Attributes
    ----------
    rounds : tuple of int
        Whose metrics they are in; those of round 0 and `UNSUPERVISED` are not learned.
    kind : str
        One of `KINDS`.
    alone : int, optional
        Which of the metrics of a round is taken; by default all are.
    """

    rounds: tuple[int, ...]
    kind: str
    alone: int | None = None

    @property
    def taught(self) -> bool:
        """Whether a target has shaped the metrics."""
        return max(self.rounds) > 0

    def metrics(self, rounds: Iterable[Round]) -> list[Metric]:
        """Return the metrics that are taken of some rounds."""
        of = [one.metrics for one in rounds if one.number in self.rounds]
        return [metric for several in of for metric in (several if self.alone is None else [several[self.alone]])]


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
class Columns:
    """Which columns hold codes of levels, and which others take part in metrics."""

    codes: np.ndarray
    others: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(cls, d: int, given: Sequence[int], views: Sequence[tuple[str, Sequence[int]]] = ()) -> Columns:
        """Return which of d columns hold codes, and the views that name these; ValueError where no other is left."""
        codes = np.asarray(given, dtype=np.intp)
        others = np.setdiff1d(np.arange(d), codes)
        if len(codes) and not (codes.min() >= 0 and codes.max() < d and len(others)):
            raise ValueError(f"codes must be some of the {d} columns of X and not all of them, got {given!r:.60}.")
        if any(not 0 <= column < d for _, columns in views for column in columns):
            raise ValueError(f"views must hold columns of X, which has {d}, got {views!r:.60}.")
        called = {code: name for name, of in views for code in of}
        return cls(codes, others, tuple(called.get(code, f"column {code}") for code in codes.tolist()))

    def union(self, metrics: Sequence[Metric], examples: Examples, kind: str) -> tuple[FamilyUnion, np.ndarray]:
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


Sums = dict[str, tuple[np.ndarray, np.ndarray]]
"""By kind, sums of base kernels among the rows that taught, and between the others and them."""


class Half:
    """Rows that teach metrics and ridge regressions, and others that tell how good these are.

    Parameters
    ----------
    taught, told : Examples
        Of different rows.
    columns : Columns
        Of both.
    rounds : sequence of Round
        What the first have taught, from round 0 on, and principal components where these are to choose.

    Attributes
    ----------
    alignments : list of float
        Of the kernel of each round with the target of the rows that did not teach it.

    Raises
    ------
    ValueError
        The others are all equal in a metric.
    """

    def __init__(self, taught: Examples, told: Examples, columns: Columns, rounds: Sequence[Round]) -> None:
        self.taught, self.told, self.columns = taught, told, columns
        self._position: int | None = None  # of the ridge that was best for the choice before
        self._sums: dict[int, Sums] = {}  # of rounds, of which many choices are made
        self.rounds = {of.number: of for of in rounds}
        others = told.X[:, columns.others]
        self.alignments = [of.alignment(others, told.Y, told.w) for of in rounds if of.number != UNSUPERVISED]

    def errors(self, choices: Sequence[Choice]) -> np.ndarray:
        """Return the weighted sums of squared errors on the rows that did not teach, of equal weights, by choice.

        Each choice has the ridge with which it errs least on these rows, searched from that of the choice before.
        """
        return np.array([self._error(choice) for choice in choices])

    def _error(self, choice: Choice) -> float:
        if choice.alone is None:
            sums = [self._of_round(number)[choice.kind] for number in choice.rounds]
        else:  # which no other choice has a part in
            factors = KINDS[choice.kind]
            sums = [self._summed(choice.metrics(self.rounds.values()), factors, {choice.kind: factors})[choice.kind]]
        if len(self.columns.codes):
            sums.append(self._of_codes)
        K, cross = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
        return self._least_error(K, cross)

    def _least_error(self, K: np.ndarray, cross: np.ndarray) -> float:
        """Return the error of the ridge regression with the ridge that predicts best; a Cholesky factor a ridge."""
        w, centered = self.taught.w, center_gram(K, self.taught.w)
        roots = np.ones((len(K), 1)) if w is None else np.sqrt(w)[:, None]
        ridges, rooted = ridges_of(centered, w), weighted_by_roots(centered, w)
        Y = roots * (self.taught.Y - mean_over(self.taught.Y, w))

        @cache
        def error(position: int) -> float:
            factor = cholesky(rooted.copy(), ridges[position])
            if factor is None:
                return np.inf
            alpha = roots * cho_solve(factor, Y, check_finite=False)
            intercept = mean_over(self.taught.Y - K @ alpha, w)
            squared = np.square(self.told.Y - cross @ alpha - intercept).sum(axis=1)
            return float(squared.sum() if self.told.w is None else self.told.w @ squared)

        self._position = least_along(error, len(ridges), self._position)
        return error(self._position)

    def products(self, choice: Choice) -> tuple[np.ndarray, np.ndarray]:
        """Return M and a of base kernels of unit trace on the rows that did not teach their metrics."""
        X, Y, w = self.told.X, self.told.Y, self.told.w
        family, _ = self.columns.union(choice.metrics(self.rounds.values()), self.told, choice.kind)
        rows = np.empty((family.n_kernels, len(X) ** 2))
        for k, K in enumerate(_unit(family.tile(X, X), w)[0]):
            rows[k] = weighted_by_roots(center_gram(K, w), w).ravel()
        centered = Y - mean_over(Y, w)
        centered = centered if w is None else centered * np.sqrt(w)[:, None]
        return rows @ rows.T, rows @ (centered @ centered.T).ravel()

    def _of_round(self, number: int) -> Sums:
        if number not in self._sums:
            kinds = {kind: KINDS[kind] for kind in TOGETHER}
            self._sums[number] = self._summed(self.rounds[number].metrics, EVERY, kinds)
        return self._sums[number]

    def _summed(self, metrics: Sequence[Metric], every: Factors, kinds: Mapping[str, Factors]) -> Sums:
        """Return sums of the base kernels of some kinds, all of which are among `every`, over metrics."""
        X, X_told, w = self.taught.X[:, self.columns.others], self.told.X[:, self.columns.others], self.taught.w
        a, b = len(X), len(X_told)
        sums: Sums = {kind: (np.zeros((a, a)), np.zeros((b, a))) for kind in kinds}
        taken = {kind: set(_positions(factors, every).tolist()) for kind, factors in kinds.items()}
        for metric in metrics:
            family, _ = metric.base_kernels(X, w, every)
            assert isinstance(family.base, FamilyUnion)
            Z, Z_told, position = metric.mapped(X), metric.mapped(X_told), 0
            for part in family.base.families:
                own, scales = _unit(part.tile(Z, Z), w)
                cross = part.tile(Z_told, Z)
                cross /= scales[:, None, None]
                for tiles in zip(own, cross, strict=True):
                    for kind in (kind for kind in kinds if position in taken[kind]):
                        for total, tile in zip(sums[kind], tiles, strict=True):
                            np.add(total, tile, out=total)
                    position += 1
        return sums

    @cached_property
    def _of_codes(self) -> tuple[np.ndarray, np.ndarray]:
        a, b = len(self.taught.X), len(self.told.X)
        K, cross = np.zeros((a, a)), np.zeros((b, a))
        for code in self.columns.codes:
            own, other = self.taught.X[:, [code]], self.told.X[:, [code]]
            (unit,), (scale,) = _unit(CategoricalFamily([EQUAL]).tile(own, own), self.taught.w)
            K += unit
            cross += CategoricalFamily([EQUAL]).tile(other, own)[0] / scale
        return K, cross


def halves_of(
    examples: Examples, columns: Columns, seed: int, rounds: Callable[[Examples], Sequence[Round]]
) -> list[Half]:
    """Return how each of two halves predicts the other, by the metrics that `rounds` learns of its rows."""
    one, other = examples.halves(seed)
    return [Half(taught, told, columns, rounds(taught)) for taught, told in ((one, other), (other, one))]


def _positions(factors: Factors, every: Factors) -> np.ndarray:
    """Return where the base kernels of a kind stand among others."""
    firsts = np.cumsum([0, *map(len, every)])
    return np.array(
        [
            first + every_one.index(factor)
            for first, taken, every_one in zip(firsts[:-1], factors, every, strict=True)
            for factor in taken
        ]
    )


def _unit(K: np.ndarray, w: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return base kernels over their centered mean diagonals, and these, one in place of zero.

    In place.
    """
    scales = np.array([1.0 - grand_mean(one, w) for one in K])
    scales[scales <= 0] = 1.0
    K /= scales[:, None, None]
    return K, scales
