"""Which rows a sample takes, and how many: until alignments are known to a tolerance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from learnkernels.kernels.engine.workers import Workers
from learnkernels.kernels.families.base import KernelFamily, Rows, move
from learnkernels.kernels.families.feature import FeatureFamily
from learnkernels.kernels.moments.error_bars import FindWeights, alignment_of, half_width
from learnkernels.kernels.moments.gram import gram_moments
from learnkernels.kernels.moments.sampled import SampledMoments

START = 2048
"""Rows of the first sample of ``sample="auto"``."""

FEWEST = 256
"""Rows that a sample has at least."""

PARTS = 32
"""Parts of the smallest union of folds, each left out once for its error bars."""

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


def sample_moments(
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    unions: Sequence[Sequence[int]] = (),
    learners: Sequence[tuple[str, FindWeights]] = (),
    tolerance: float = 0.01,
    confidence: float = 0.95,
    seed: int = 0,
    sample: Literal["auto"] | int = "auto",
    workers: Workers | None = None,
    keep_origin: bool = False,
    dtype: type[np.float64] | type[np.float32] = np.float64,
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
    learners : sequence of (str, callable), optional
        Names of two-stage learners and what they find, see `Sampling.of`. The alignment of what they learn is brought
        to the tolerance, besides those of the base kernels.
    tolerance : float, default 0.01
        Largest half width of an alignment's interval on any of `unions`, in (0, 1), for a sample of size "auto".
    confidence : float, default 0.95
        Of each interval, in (0, 1).
    seed : int, default 0
        Of the sample. Samples of one seed are nested.
    sample : "auto" or int, default "auto"
        Rows of the sample over all fold groups, or as many as the tolerance takes.
    workers, keep_origin, dtype
        As in `gram_moments`.
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
    while True:
        moments = _of_sample(family, X, Y, plan, n, confidence, workers=workers, keep_origin=keep_origin, dtype=dtype)
        if moments is None and (n == m or sample != "auto"):
            raise ValueError(f"the target is constant on the {n} sampled rows; take a larger sample, or all rows.")
        width, whose = (np.inf, "the target") if moments is None else plan.widest(moments, learners)
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
    require_sample(sample)


def require_sample(sample: object) -> None:
    """Raise ValueError for what is neither "auto" nor a number of rows."""
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
        labels = tuple(np.unique(groups).tolist())
        if labels[0] < 0:
            raise ValueError(f"groups must not be negative, got {labels[0]}; leave those rows out.")
        asked = {tuple(sorted({int(label) for label in union})) for union in unions} or {labels}
        for union in sorted(asked):
            if not union or set(union) - set(labels):
                raise ValueError(f"unions must hold some of the fold groups {list(labels)}, got {list(union)}.")
        # Half the bytes of positions as numpy counts them, of which there may be tens of millions; drawn alike.
        short = np.int32 if len(groups) <= np.iinfo(np.int32).max else np.intp
        folds = (np.flatnonzero(groups == label).astype(short) for label in labels)
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

    def widest(self, moments: SampledMoments, learners: Sequence[tuple[str, FindWeights]]) -> tuple[float, str]:
        """Return the largest half width of an alignment on any union, and whose it is."""
        names = [*(f"base kernel {name}" for name in moments.names), *(name for name, _ in learners)]

        def alignments(part: SampledMoments) -> np.ndarray:
            return np.array([*part.alignments, *(alignment_of(part, find(part)[1]) for _, find in learners)])

        widths = np.stack([half_width(moments.restrict(union), alignments) for union in self.unions])
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
        shift=sample.shift,
        sample=sample,
        fold=np.asarray(plan.labels)[np.asarray(sample.labels) // plan.parts],
        diagonals=diagonals,
        population=plan.sizes,
        confidence=confidence,
    )
