"""Two-fold errors of learned metrics: each half of the rows trains, and the other tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.linalg import cho_solve

from learnkernels.kernels.centering import center_gram, grand_mean, mean_over, weighted_by_roots
from learnkernels.kernels.families.base import KernelFamily, distinct_rows
from learnkernels.kernels.families.composed import FamilyUnion
from learnkernels.kernels.families.distances import CategoricalFamily
from learnkernels.kernels.search.metric import KINDS, UNSUPERVISED, RfmMetric, Round, ridges_of, summed, unit_weights
from learnkernels.kernels.solvers.factor import cholesky
from learnkernels.kernels.solvers.leave_one_out import least_along

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
    columns : Columns
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
        self.train, self.test, self.columns = train, test, columns
        self._positions: dict[str, int] = {}  # of the ridge that was best for the choice before of a kind
        self._sums: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]] = {}  # of rounds, in many choices
        self._further, self.rounds, self.alignments = rounds, dict[int, Round](), list[float]()

    def learn(self, number: int) -> None:
        """Learn rounds up to a number."""
        while number not in self.rounds:
            of = next(self._further)
            self.rounds[of.number] = of
            if of.number != UNSUPERVISED:
                others = self.test.X[:, self.columns.others]
                self.alignments.append(of.alignment(others, self.test.Y, self.test.w))

    def errors(self, choices: Sequence[KernelChoice]) -> np.ndarray:
        """Return the weighted sums of squared test errors, of equal weights, by choice.

        Each choice has the ridge with which it errs least on these rows, searched from that of the choice before of
        its kind.
        """
        errors = []
        for choice in choices:
            sums = [self._of_round(number, choice.kind) for number in choice.rounds]
            if len(self.columns.codes):
                sums.append(self._of_codes)
            K, cross = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
            errors.append(self._least_error(K, cross, choice.kind))
        return np.array(errors)

    def _least_error(self, K: np.ndarray, cross: np.ndarray, kind: str) -> float:
        """Return the error of the ridge regression with the ridge that predicts best; a Cholesky factor a ridge."""
        w, centered = self.train.w, center_gram(K, self.train.w)
        roots = np.ones((len(K), 1)) if w is None else np.sqrt(w)[:, None]
        ridges, rooted = ridges_of(centered, w), weighted_by_roots(centered, w)
        Y = roots * (self.train.Y - mean_over(self.train.Y, w))

        @cache
        def error(position: int) -> float:
            factor = cholesky(rooted.copy(), ridges[position])
            if factor is None:
                return np.inf
            alpha = roots * cho_solve(factor, Y, check_finite=False)
            intercept = mean_over(self.train.Y - K @ alpha, w)
            squared = np.square(self.test.Y - cross @ alpha - intercept).sum(axis=1)
            return float(squared.sum() if self.test.w is None else self.test.w @ squared)

        self._positions[kind] = least_along(error, len(ridges), self._positions.get(kind))
        return error(self._positions[kind])

    def products(self, choice: KernelChoice) -> tuple[np.ndarray, np.ndarray]:
        """Return M and a of base kernels of unit trace on the rows that were not used to learn their metrics."""
        X, Y, w = self.test.X, self.test.Y, self.test.w
        family, _ = self.columns.union(choice.metrics(self.rounds.values()), self.test, choice.kind)
        rows = np.empty((family.n_kernels, len(X) ** 2))
        for k, K in enumerate(family.tile(X, X)):
            rows[k] = weighted_by_roots(center_gram(K / (1.0 - grand_mean(K, w) or 1.0), w), w).ravel()
        centered = Y - mean_over(Y, w)
        centered = centered if w is None else centered * np.sqrt(w)[:, None]
        return rows @ rows.T, rows @ (centered @ centered.T).ravel()

    def _of_round(self, number: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of base kernels of unit trace among training rows, and between test and training rows."""
        if (number, kind) not in self._sums:
            X, w = self.train.X[:, self.columns.others], self.train.w
            family = FamilyUnion([one.base_kernels(X, w, KINDS[kind])[0] for one in self.rounds[number].metrics])
            units = unit_weights(family, X, w)
            others = self.test.X[:, self.columns.others]
            self._sums[number, kind] = summed(family, units, X, X), summed(family, units, others, X)
        return self._sums[number, kind]

    @cached_property
    def _of_codes(self) -> tuple[np.ndarray, np.ndarray]:
        codes = self.columns.codes
        family = FamilyUnion([CategoricalFamily([EQUAL])] * len(codes), codes[:, None].tolist())
        units = unit_weights(family, self.train.X, self.train.w)
        return summed(family, units, self.train.X, self.train.X), summed(family, units, self.test.X, self.train.X)
