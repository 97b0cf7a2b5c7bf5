"""rfm: the recursive feature machine, base kernels in metrics learned from the gradients of a regression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np

from ..families.base import KernelFamily, Rows, distinct_examples, drawn_rows
from ..families.composed import NormalScoresFamily, normal_scores, scores_beside
from ..parameters import require_one_of, whole_number
from ..search.metric import (
    COMBINED_KERNELS,
    COMPONENTS,
    KINDS,
    UNSUPERVISED,
    Examples,
    FeatureColumns,
    KernelChoice,
    Round,
    SplitHalf,
    components_of,
    learned_metrics,
    metric_of,
    spread_of,
)
from ..statistics.gram import AlignmentStatistics, NormalizedProducts, gram_statistics
from ..targets import Target
from .alignf import Alignf
from .base import AlignmentLearner, FoundKernels, KernelSearchLearner
from .closed_form import Unif

WEIGHTS: dict[str, AlignmentLearner] = {learner.name: learner for learner in (Unif(), Alignf())}
"""How base kernels in all metrics are weighted."""

LAST = 3
"""Most rounds of "auto"."""

GAIN = 0.01
"""Share of the squared error of halves that a second round must save for a third to be learned."""

LEAST_ROWS = 20
"""Distinct rows from which on two-fold cross-fitting selects the base kernels."""

SEARCH_ROWS = 1500
"""Rows that metrics are learned on where there are more; weights and alignments always use all."""


@dataclass(frozen=True, eq=False, repr=False)
class RFM(KernelSearchLearner):
    r"""Recursive feature machine: base kernels in metrics learned from gradients of the prediction.

    A recursive feature machine that keeps several metrics and several kernels: Gaussians and Laplacians around the
    median distance, in the metric in which every feature has a standard deviation of one, and in metrics that are
    learned from it. Each round fits a ridge regression in the metric of the round before, and takes the average outer
    product of its gradients for the next one (`learned_metrics`). Base kernels of unit trace in all metrics at once are
    then weighted together.

    Parameters
    ----------
    metric : {"both", "diagonal", "full"}, default "both"
        Whether features are weighted, mapped by a matrix, or the base kernels are taken in metrics of both kinds.
    rounds : int or "auto", default "auto"
        After how many rounds metrics are taken; 0 for no learned metric. With "auto" none, those of round 1, those of
        the last round or both are taken, whichever predicts best. The last round is the second, or the third where the
        second is worth `GAIN`. Of more than `COMPONENTS` features there is one metric more to choose, that of their
        principal components, unless it is to be diagonal.
    kernels : {"auto", "both", "gaussian", "laplacian", "wide"}, default "auto"
        Which base kernels are taken: Gaussians and Laplacians, either of them, or Gaussians of larger width; with
        "auto" those that predict best.
    weights : {"unif", "alignf"}, default "unif"
        How base kernels are weighted.
    rank : int, default 100
        Most new features of a full metric.
    search_rows : int, default 1500
        Most rows that metrics are learned and choices made on; a random subset beyond. Metrics of two rounds must then
        save `GAIN`, as each base kernel costs time on all rows. The scales of base kernels, and their alignments where
        no metric is learned, are those of all rows.
    seed : int, default 0
        Of that subset, and of its halves.
    scaled : bool, default False
        Whether features are in comparable units already, and are taken as they are in place of those of their spread.
    codes : tuple of int, default ()
        Columns of X that hold codes of levels, as tables have for categories of many levels. They have no part in the
        metrics: next to the other base kernels stands one for each, which is one where two rows have the same level.
    code_names : tuple of str, default ()
        Names of these columns; by default their positions.
    scores : bool or "auto", default "auto"
        Whether each feature of more than two values stands next to its normal score, which is a function of its rank,
        as another one (`NormalScoresFamily`). With "auto" where there are no more than `COMPONENTS` of these.

    Notes
    -----
    Leave-one-out residuals of the rows that trained a metric are too small, and choose learned metrics where these do
    harm. Two halves of the search rows therefore choose: each learns metrics, fits ridge
    regressions (the ridge by leave-one-out, in closed form) and predicts the other. ``alignf``, too, takes alignments
    on each half of base kernels in the metrics of the other, and the mean of the weights that follow and of equal ones.
    `FoundKernels.alignments` are those of each round on the test half.

    Copies of a row with one target are treated as one row of their weights. Features need no scaling. A round costs
    ``O(m^3 + m^2 d q)`` time on the search rows, and on the halves a quarter of that; a choice an eigenproblem of half
    of the rows. sigma of a found base kernel is, for each feature, the difference by which it falls to 1 / e where two
    rows differ in that feature alone.

    References
    ----------
    Radhakrishnan, Beaglehole, Pandit, Belkin (2024), Science 383:1461-1467, for the metric; Cortes, Mohri,
    Rostamizadeh (2012), JMLR 13:795-828, for the weights.
    """

    name = "rfm"
    takes_weights = sampled_by_default = True
    suited = "krr"
    summary = "Gaussian and Laplacian kernels in metrics learned from gradients (AGOP)"
    source = "Radhakrishnan et al. 2024, with JMLR 2012"

    metric: Literal["both", "diagonal", "full"] = "both"
    rounds: int | Literal["auto"] = "auto"
    kernels: Literal["auto", "both", "gaussian", "laplacian", "wide"] = "auto"
    weights: Literal["unif", "alignf"] = "unif"
    rank: int = 100
    search_rows: int = SEARCH_ROWS
    seed: int = 0
    scaled: bool = False
    codes: tuple[int, ...] = ()
    code_names: tuple[str, ...] = ()
    scores: bool | Literal["auto"] = "auto"

    def find(self, X: Rows, target: Target, C: float = 1.0, sample_weight: np.ndarray | None = None) -> FoundKernels:
        """Return base kernels and weights; see `KernelSearchLearner.find`."""
        m = X.shape[0]
        rows = drawn_rows(m, self.search_rows, self.seed)
        given = None if sample_weight is None else sample_weight[rows]
        some, _, Y, w = distinct_examples(X[rows], target.Y[rows], given)
        searched, columns = Examples(X[rows[some]], Y, w), FeatureColumns.of(X.shape[1], self.codes, self.code_names)
        if self.scores in (True, "auto"):
            knots = normal_scores(searched.X, searched.w)
            knots = tuple(None if j in self.codes else one for j, one in enumerate(knots))
            if self.scores is True or 0 < sum(one is not None for one in knots) <= COMPONENTS:
                d, scored = X.shape[1], np.array([j for j, one in enumerate(knots) if one is not None], dtype=np.intp)
                found = replace(self, scores=False).find(scores_beside(X, knots), target, C, sample_weight)
                # Where rows differ in one feature alone, by a deviation, its score does by about one.
                by_value, by_score = 1.0 / found.parameters[:, :d], 1.0 / found.parameters[:, d:]
                spread = spread_of(searched.X[:, scored], searched.w).map
                by_value[:, scored] = np.hypot(by_value[:, scored], by_score * spread)
                with np.errstate(divide="ignore"):  # a feature that does not count
                    return replace(found, family=NormalScoresFamily(found.family, knots), parameters=1.0 / by_value)
        halves = self._halves(searched, columns)
        choice = self._chosen(halves, GAIN if X.shape[0] > self.search_rows else 0.0)
        near = halves[0].rounds[1].ridge if halves and 1 in halves[0].rounds else None
        metrics = choice.metrics(self._rounds(searched, columns, choice.rounds, near))
        family, sigmas = columns.union(metrics, searched, choice.kind)
        statistics = gram_statistics(family, searched.X, searched.Y, sample_weight=searched.w)
        weights = _weigh(self.weights, statistics, halves, choice)
        carried = weights > 0
        return FoundKernels(
            family.subset(np.flatnonzero(carried).tolist()),
            weights[carried],
            sigmas[carried],
            tuple(np.mean([half.alignments for half in halves], axis=0).tolist()) if halves else (),
        )

    def _halves(self, examples: Examples, columns: FeatureColumns) -> list[SplitHalf]:
        """Return how each of two halves predicts the other; none where rows are too few, or half of them too alike."""
        if len(examples.X) < LEAST_ROWS:
            return []
        last = LAST if self.rounds == "auto" else self.rounds
        wide = self.rounds == "auto" and self.metric != "diagonal" and len(columns.others) > COMPONENTS
        every = (*range(last + 1), *[UNSUPERVISED] * wide)
        try:
            one, other = examples.halves(self.seed)
            pairs = (one, other), (other, one)
            halves = [SplitHalf(train, test, columns, self._rounds(train, columns, every)) for train, test in pairs]
            for half in halves:
                half.learn(2 if self.rounds == "auto" else last)
        except ValueError:  # no metric can be learned of one of them
            return []
        return halves

    def _chosen(self, halves: Sequence[SplitHalf], gain: float) -> KernelChoice:
        """Return what predicts best: metrics by the first kind of base kernels, and then the kind in these metrics.

        Of equals the first is taken. Metrics of round 1 and the last must save a share `gain` over those of the last.
        """
        kinds = COMBINED_KERNELS if self.kernels == "auto" else (self.kernels,)

        def best(rounds: Sequence[tuple[int, ...]], kinds: Sequence[str]) -> tuple[KernelChoice, float]:
            choices = [KernelChoice(*one) for one in product(rounds, kinds)]
            errors = np.sum([half.errors(choices) for half in halves], axis=0)
            return choices[int(np.argmin(errors))], float(errors.min())

        if self.rounds != "auto":
            first = KernelChoice(tuple(sorted({0, self.rounds})), kinds[0])
            return best([first.rounds], kinds)[0] if halves and len(kinds) > 1 else first
        if not halves:
            return KernelChoice((0,), kinds[0])
        wide = [(UNSUPERVISED,)] * (UNSUPERVISED in halves[0].rounds)
        choice, error = best([(0,), (0, 1), *wide], kinds[:1])
        for last in range(2, LAST + 1):
            try:
                for half in halves:
                    half.learn(last)
            except ValueError:  # its prediction is constant
                break
            further, its_error = best([(0, last)], kinds[:1])
            both, error_of_both = best([(0, 1, last)], kinds[:1])
            if error_of_both < (1.0 - gain) * its_error:
                further, its_error = both, error_of_both
            enough = its_error > (1.0 - GAIN) * error
            if its_error < error:
                choice, error = further, its_error
            if enough:
                break
        return best([choice.rounds], kinds)[0] if len(kinds) > 1 else choice

    def _rounds(
        self, examples: Examples, columns: FeatureColumns, numbers: Sequence[int], near: float | None = None
    ) -> Iterator[Round]:
        """Give the rounds of some numbers, and learn no further ones; the first ridge is near a given one."""
        kinds = [kind for kind in ("diagonal", "full") if self.metric in (kind, "both")]
        X = examples.X[:, columns.others]
        if UNSUPERVISED in numbers:
            yield Round(UNSUPERVISED, (components_of(X, examples.w),))
        start = metric_of(X, examples.w, self.scaled)
        learned = learned_metrics(X, examples.Y, kinds, max(numbers), self.rank, examples.w, start, near)
        yield from (one for one in learned if one.number in numbers)

    def for_features(self, features: Any) -> RFM:
        """Return the learner for the features of a table: whether in one unit, and which are codes."""
        names = tuple(features.owners[code] for code in features.codes)
        return replace(self, codes=features.codes, code_names=names, scaled=features.scaled)

    def searches_sample(self, statistics: AlignmentStatistics) -> bool:
        """Return whether there are more rows than are searched; equal weights follow from these alone."""
        return statistics.n_rows > self.search_rows and self.weights == "unif" and statistics.sample_weight is None

    def takes_sparse(self, family: KernelFamily | None) -> bool:
        """Return whether sparse rows will do: gradients are dense."""
        return False

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        for name, low in (("rank", 1), ("search_rows", 10), *([("rounds", 0)] if self.rounds != "auto" else [])):
            whole_number(name, getattr(self, name), low)
        if self.scores not in (True, False, "auto"):
            raise ValueError(f"scores must be true, false or auto, got {self.scores!r}.")
        known_values = {"metric": ("both", "diagonal", "full"), "kernels": ("auto", *KINDS), "weights": tuple(WEIGHTS)}
        for name, known in known_values.items():
            require_one_of(name, getattr(self, name), known)


def _weigh(rule: str, statistics: AlignmentStatistics, halves: Sequence[SplitHalf], choice: KernelChoice) -> np.ndarray:
    """Return weights of the centered base kernels as they are, from those of the same of unit trace."""
    scales = statistics.traces()
    if rule == "unif" or not halves or not choice.supervised:
        M = NormalizedProducts(statistics, np.arange(statistics.n_kernels), scales)
        return np.asarray(WEIGHTS[rule].fit_weights(M, M.target).weights / scales)
    products = [half.products(choice) for half in halves]
    M, a = (np.sum(parts, axis=0) for parts in zip(*products, strict=True))
    varying = np.flatnonzero(M.diagonal() > 0)
    weights = np.full(statistics.n_kernels, 1.0 / statistics.n_kernels)
    found = WEIGHTS[rule].fit_weights(M[np.ix_(varying, varying)], a[varying]).weights
    weights[varying] += found / found.sum()
    return np.asarray(weights / scales)
