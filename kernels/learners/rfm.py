"""rfm: base kernels in metrics that the gradients of a prediction teach, weighed equally or by alignment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

import numpy as np

from learnkernels.kernels.families.base import KernelFamily, Rows, distinct_examples, drawn_rows
from learnkernels.kernels.families.categorical import CategoricalFamily
from learnkernels.kernels.families.union import FamilyUnion
from learnkernels.kernels.learners.alignf import Alignf
from learnkernels.kernels.learners.base import SearchingLearner, Solution, TrainingRows, TwoStageLearner
from learnkernels.kernels.learners.closed_form import Align, Unif
from learnkernels.kernels.moments.base import Moments
from learnkernels.kernels.moments.gram import gram_moments
from learnkernels.kernels.moments.normalisation import NORMALISATIONS, NormalisedProducts, require_informative
from learnkernels.kernels.search.found import FoundKernels
from learnkernels.kernels.search.metric import Metric, best_left_out, learned_metrics, metric_of
from learnkernels.kernels.search.views import Effects, beside_views
from learnkernels.kernels.targets import Target

WEIGHTS: dict[str, TwoStageLearner] = {learner.name: learner for learner in (Unif(), Align(), Alignf())}
"""How base kernels in all metrics are weighed."""

KINDS = {"both": "", "gaussian": "gaussian", "laplacian": "laplacian"}
"""Kinds of base kernels, and what the names of those begin with."""

LAST = 3
"""Rounds of "auto"."""

EQUAL = 64.0
"""Bandwidth of a categorical kernel that is one where levels are equal and zero, to rounding, elsewhere."""

TINY = np.finfo(np.float64).tiny
"""Smallest sigma."""

SEARCH_ROWS = 1000
"""Rows that metrics are learned on where there are more; weights and alignments always use all."""


@dataclass(frozen=True, eq=False, repr=False)
class RFM(SearchingLearner):
    r"""Features count by how much the prediction changes along them: base kernels in learned metrics.

    A recursive feature machine that keeps several metrics and several kernels: Gaussians and Laplacians around the
    median distance, in the metric in which every feature has a standard deviation of one, and in metrics that are
    learned from it. Each round fits a ridge regression in the metric of the round before, and takes the average outer
    product of its gradients for the next one (`learned_metrics`). Base kernels of unit trace in all metrics at once are
    then weighed together.

    Parameters
    ----------
    metric : {"both", "diagonal", "full"}, default "both"
        Whether features are weighed, mapped by a matrix, or the base kernels are taken in metrics of both kinds.
    rounds : int or "auto", default "auto"
        After how many rounds metrics are taken; 0 for no learned metric. With "auto" none, those of round 1, those of
        round 3 or both are taken, whichever predicts best.
    kernels : {"auto", "both", "gaussian", "laplacian"}, default "auto"
        Which base kernels are taken; with "auto" those of one kind or both, whichever predicts best.
    weights : {"auto", "unif", "align", "alignf"}, default "unif"
        How base kernels are weighed; with "auto" whichever predicts best.
    rank : int, default 100
        Most new features of a full metric.
    search_rows : int, default 1000
        Most rows that metrics are learned and choices made on; a random subset beyond. The weights use all rows.
    seed : int, default 0
        Of that subset.
    scaled : bool, default False
        Whether features are in comparable units already, and are taken as they are in place of those of their spread.
    codes : tuple of int, default ()
        Columns of X that hold codes of levels, as tables have for categories of many levels. They have no part in the
        metrics: beside the other base kernels stands one for each, which tells whether two rows have the same level.
    views : tuple of (str, tuple of int), default ()
        Names of parts of the columns of X, as tables have numbers, categories, dates and gaps, and their positions.
    effects : {"joint", "additive", "auto"}, default "joint"
        Where there are several views: base kernels of all features, whose effects are joint, of each view alone, whose
        effects add up, weighed by alignment, or, with "auto", both in the parts that predict best (`beside_views`).

    Notes
    -----
    What predicts best is told by the leave-one-out residuals of the ridge regression with the best ridge, in closed
    form. Copies of a row with one target are taken for one row of their weights: leave-one-out would be too sure of a
    row whose copies stay. Features need no scaling. A round costs ``O(m^3 + m^2 d q)`` time on the search rows, and a
    choice an eigenproblem of them; one pass over tiles follows on all rows. sigma of a found base kernel is, for each
    feature, the difference by which it falls to 1 / e where two rows differ in that feature alone.

    References
    ----------
    Radhakrishnan, Beaglehole, Pandit, Belkin (2024), Science 383:1461-1467, for the metric; Cortes, Mohri,
    Rostamizadeh (2012), JMLR 13:795-828, for the weights.
    """

    name = "rfm"
    takes_weights = True
    summary = "Gaussians and Laplacians in metrics of average gradient outer products, in equal parts or by alignment"
    source = "Radhakrishnan et al. 2024, with JMLR 2012"

    metric: Literal["both", "diagonal", "full"] = "both"
    rounds: int | Literal["auto"] = "auto"
    kernels: Literal["auto", "both", "gaussian", "laplacian"] = "auto"
    weights: Literal["auto", "unif", "align", "alignf"] = "unif"
    rank: int = 100
    search_rows: int = SEARCH_ROWS
    seed: int = 0
    scaled: bool = False
    codes: tuple[int, ...] = ()
    views: tuple[tuple[str, tuple[int, ...]], ...] = ()
    effects: Effects = "joint"

    def find(
        self, X: Rows, target: Target, regularisation: float = 1.0, sample_weight: np.ndarray | None = None
    ) -> FoundKernels:
        """Return base kernels and weights; see `SearchingLearner.find`."""
        self.require()
        if not np.ptp(target.Y, axis=0).any():
            raise ValueError("Y must vary, got a constant target, from which no metric can be learned.")
        m = X.shape[0]
        rows = drawn_rows(m, self.search_rows, self.seed)
        some, w = distinct_examples(X[rows], target.Y[rows], None if sample_weight is None else sample_weight[rows])
        searched, Y = X[rows[some]], target.Y[rows[some]]
        codes, others = self._columns(X.shape[1])
        start = metric_of(searched[:, others], w, self.scaled)
        metrics = [start, *self._learned(searched[:, others], Y, w, start)]
        found = [metric.base_kernels(searched[:, others], w) for metric in metrics]
        sigmas = np.vstack([sigma for _, sigma in found])
        families: list[KernelFamily] = [family for family, _ in found]
        if len(codes):
            columns = [others] * len(metrics) + [[code] for code in codes]
            called = {code: name for name, of in self.views for code in of}
            names = [None] * len(metrics) + [called.get(code, f"column {code}") for code in codes.tolist()]
            union = FamilyUnion([*families, *[CategoricalFamily([EQUAL])] * len(codes)], columns, names)
            sigmas = _beside_codes(sigmas, searched, codes, others)
        else:
            union = FamilyUnion(families)
        choices = _Choices(union, searched, Y, w)
        sets = self._sets(metrics, choices.family)
        rules = list(WEIGHTS) if self.weights == "auto" else [self.weights]
        kernels, rule = choices.best(list(product(sets, rules)))
        family, moments = choices.family.subset(kernels.tolist()), choices.moments
        if len(rows) < m:
            moments = gram_moments(family, X, target.Y, sample_weight=sample_weight)
        weights = _weigh(rule, moments, kernels if len(rows) == m else np.arange(family.n_kernels))
        carried = weights > 0
        together = FoundKernels(
            family.subset(np.flatnonzero(carried).tolist()),
            weights[carried],
            sigmas[kernels][carried],
            tuple(choices.alignment(some, rule) for some in sets),
        )
        views = [(name, columns) for name, columns in self.views if not set(columns) <= set(self.codes)]
        return beside_views(together, searched, Y, w, views, self.effects, lambda M, a: Alignf().weigh(M, a).weights)

    def _learned(self, X: np.ndarray, Y: np.ndarray, w: np.ndarray | None, start: Metric) -> Iterator[Metric]:
        """Give the learned metrics, those of one round after those of the round before."""
        last = LAST if self.rounds == "auto" else self.rounds
        kinds = [full for full, name in ((False, "diagonal"), (True, "full")) if self.metric in (name, "both")]
        paths = [learned_metrics(X, Y, full, last, self.rank, w, start) for full in kinds]
        for number, of_round in enumerate(zip(*paths, strict=True), 1):
            if number == last or (self.rounds == "auto" and number == 1):
                yield from of_round

    def _sets(self, metrics: Sequence[Metric], family: KernelFamily) -> list[np.ndarray]:
        """Return the sets of base kernels to choose among, as positions: first those without a learned metric."""
        every = tuple(range(len(metrics)))
        half = (len(metrics) - 1) // 2
        of_rounds = [every[:1], every[: 1 + half], (0, *every[1 + half :]), every]
        kinds = [*KINDS.values()] if self.kernels == "auto" else [KINDS[self.kernels]]
        is_kind = [np.array([name.startswith(kind) for name in family.names]) for kind in kinds]
        n_codes = len(self.codes)
        owner = np.repeat(every, (family.n_kernels - n_codes) // len(metrics))
        coded = np.arange(len(owner), len(owner) + n_codes)
        sets = [
            np.flatnonzero(np.isin(owner, taken) & kind[: len(owner)])
            for taken in (of_rounds if self.rounds == "auto" else [every])
            for kind in is_kind
        ]
        return [np.append(some, coded) for some in sets]

    def _columns(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns that hold codes, and the others."""
        codes = np.asarray(self.codes, dtype=np.intp)
        others = np.setdiff1d(np.arange(d), codes)
        if len(codes) and not (codes.min() >= 0 and codes.max() < d and len(others)):
            raise ValueError(f"codes must be some of the {d} columns of X and not all of them, got {self.codes!r:.60}.")
        if any(not 0 <= column < d for _, columns in self.views for column in columns):
            raise ValueError(f"views must hold columns of X, which has {d}, got {self.views!r:.60}.")
        return codes, others

    def takes_sparse(self, family: KernelFamily | None) -> bool:
        """Return whether sparse rows will do: gradients are dense."""
        return False

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        for name, low in (("rank", 1), ("search_rows", 10), *([("rounds", 0)] if self.rounds != "auto" else [])):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}.")
        known_values = {
            "metric": ("both", "diagonal", "full"),
            "kernels": ("auto", *KINDS),
            "weights": ("auto", *WEIGHTS),
            "effects": get_args(Effects),
        }
        for name, known in known_values.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}.")


def _beside_codes(sigmas: np.ndarray, X: np.ndarray, codes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return sigma of base kernels of the other columns, then of one a code, for all columns."""
    found = np.full((len(sigmas) + len(codes), X.shape[1]), np.inf)
    found[: len(sigmas), others] = sigmas
    found[np.arange(len(sigmas), len(found)), codes] = np.maximum(X[:, codes].std(axis=0), TINY)  # any difference
    return found


class _Choices:
    """Sets of base kernels and ways of weighing them, and how well each predicts rows that it has not seen."""

    def __init__(self, family: FamilyUnion, X: np.ndarray, Y: np.ndarray, w: np.ndarray | None) -> None:
        self.family = family
        self.moments = gram_moments(family, X, Y, sample_weight=w)
        require_informative(self.moments)
        self._rows = TrainingRows.of("", family, X, self.moments, "none")

    def best(self, candidates: Sequence[tuple[np.ndarray, str]]) -> tuple[np.ndarray, str]:
        """Return the base kernels, as positions, and the rule with the least squared leave-one-out residuals."""
        return candidates[0] if len(candidates) == 1 else min(candidates, key=lambda one: self._left_out(*one))

    def alignment(self, kernels: np.ndarray, rule: str) -> float:
        """Return the centered alignment of a candidate with the target."""
        return float(self.moments.alignment(self._coefficients(kernels, rule)))

    def _left_out(self, kernels: np.ndarray, rule: str) -> float:
        coefficients = self._coefficients(kernels, rule)
        K = self._rows.kernel(Solution(coefficients[self._rows.varying])).gram()
        return best_left_out(K, self.moments.targets, self.moments.sample_weight).loss

    def _coefficients(self, kernels: np.ndarray, rule: str) -> np.ndarray:
        """Return what each base kernel as it is is multiplied with."""
        coefficients = np.zeros(self.moments.n_kernels)
        coefficients[kernels] = _weigh(rule, self.moments, kernels)
        return coefficients


def _weigh(rule: str, moments: Moments, kernels: np.ndarray) -> np.ndarray:
    """Return weights of some centered base kernels as they are, from those of the same of unit trace."""
    scales = NORMALISATIONS["trace"](moments)[kernels]
    M = NormalisedProducts(moments, kernels, scales)
    return np.asarray(WEIGHTS[rule].weigh(M, M.target).weights / scales)
