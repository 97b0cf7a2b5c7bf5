"""rfm: the recursive feature machine, base kernels in metrics learned from gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from ..centering import center_gram, mean_over
from ..families.base import KernelFamily, Rows, distinct_examples
from ..families.composed import (
    FamilyUnion,
    MetricFamily,
    NormalScoresFamily,
    normal_scores,
    scores_beside,
)
from ..families.products import LinearFamily
from ..solvers.factor import LeaveOneOut
from ..statistics.gram import AlignmentStatistics, NormalizedProducts, gram_statistics
from ..targets import Target
from ..validation import require_one_of, whole_number
from ..weights import weights_of_rows
from .alignf import Alignf
from .base import AlignmentLearner, FoundKernels, KernelSearchLearner
from .closed_form import Unif
from .rfm_metrics import (
    COMBINED_KERNELS,
    COMPONENTS,
    KINDS,
    MEDIAN_ROWS,
    UNIT_ROWS,
    UNSUPERVISED,
    Examples,
    FeatureColumns,
    KernelChoice,
    Round,
    SplitHalf,
    components_of,
    learned_metrics,
    metric_of,
    ridges_of,
    spread_of,
    summed,
)

WEIGHT_LEARNERS: dict[str, AlignmentLearner] = {
    learner.name: learner for learner in (Unif(), Alignf())
}
"""Learners of the kernel weights, by name."""

MOST_ROUNDS = 3
"""Largest number of rounds with ``rounds="auto"``."""

GAIN = 0.01
"""Smallest relative error reduction for a third round, and on samples for two rounds."""

LEAST_ROWS = 20
"""Smallest number of distinct rows for two-fold cross-fitting."""

SEARCH_ROWS = 1500

LINEAR_SHARES = (0.0, 0.3, 1.0, 4.0, 16.0)
"""Candidate shares of a linear kernel, relative to the other base kernels."""

LINEAR_GAIN = 0.02
"""Smallest relative error reduction of a linear kernel, which slows fits down."""

LINEAR_ROWS = 750
"""Largest number of rows to select the share of a linear kernel."""

DOUBLE_ROWS = 500
"""Largest number of rows of regressions in float64 instead of float32."""

LARGEST_SPREAD = 1000
"""Largest ratio of standard deviations of scaled features in float32."""


@dataclass(frozen=True, eq=False, repr=False)
class RFM(KernelSearchLearner):
    r"""Recursive feature machine, which learns metrics from gradients of predictions.

    Base kernels are Gaussians and Laplacians with bandwidths around the median
    distance, in the metric of standardized features and in learned metrics. Each round
    fits a ridge regression in the previous metric. The average outer product of its
    gradients is the next metric. Base kernels are scaled to unit trace, then weighted.

    Parameters
    ----------
    metric : {"both", "diagonal", "full"}, default "both"
        Learned metrics: weights of the features, a matrix that maps them, or both.
    rounds : int or "auto", default "auto"
        Number of rounds; 0 learns no metric. "auto" selects by cross-fitting: no
        learned metric, round 1, the last round, or both. A third round follows if the
        second reduces the squared error by 1 %. With more than 50 features, principal
        components are another candidate, unless `metric` is "diagonal".
    kernels : {"auto", "both", "gaussian", "laplacian", "wide"}, default "auto"
        Base kernels: Gaussians and Laplacians, only one of these, or Gaussians of
        larger bandwidth. "auto" selects by cross-fitting. For regression with equal
        weights, it adds a linear kernel if that reduces the squared leave-one-out error
        by 2 %.
    weights : {"unif", "alignf"}, default "unif"
        Learner of the kernel weights.
    rank : int, default 100
        Largest rank of a full metric.
    search_rows : int, default 1500
        Largest number of rows for metrics and selection; with more, a random subset.
        Rounds 1 and last are then combined only if this saves 1 % of the squared error.
    random_state : int, default 0
        Random seed of the subset and of the halves for cross-fitting.
    scaled : bool, default False
        Whether features have comparable units; they are then not standardized.
    codes : tuple of int, default ()
        Columns of X with category codes. They are not part of the metrics; each adds a
        base kernel that is one for rows of equal category.
    code_names : tuple of str, default ()
        Names of these columns; by default their positions.
    normal_scores : bool or "auto", default "auto"
        Whether to append the normal score of each feature with more than two values.
        "auto" appends them if there are at most 50.

    Notes
    -----
    Leave-one-out residuals on rows that trained a metric are too small to select
    metrics by. Each half of the search rows therefore learns metrics and ridge
    regressions, and predicts the other half. Groups of the target are not divided. By
    time, the first third predicts the second, and both predict the last. ``alignf``
    learns from alignments on each half in the metrics of the other, and averages its
    weights with equal ones. `FoundKernels.alignments` are those of each round on the
    test half, and `errors_of_halves` show how optimistic leave-one-out errors are.

    Copies of a row with one target are one weighted row. A round takes O(m^3 + m^2 d q)
    on the search rows, and a quarter of that on the halves; each candidate takes a few
    Cholesky factors of half of the rows. The sigma of a base kernel is, per feature,
    the difference at which the kernel falls to 1 / e.

    References
    ----------
    Radhakrishnan, Beaglehole, Pandit, Belkin (2024), Science 383:1461-1467, for the
    metric; Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, for the weights.
    """

    name = "rfm"
    takes_weights = sampled_by_default = True
    suited = "krr"
    row_limits: ClassVar = {"medians": MEDIAN_ROWS, "units": UNIT_ROWS}
    summary = "Gaussian and Laplacian kernels in metrics learned from gradients (AGOP)"
    source = "Radhakrishnan et al. 2024, with JMLR 2012"

    metric: Literal["both", "diagonal", "full"] = "both"
    rounds: int | Literal["auto"] = "auto"
    kernels: Literal["auto", "both", "gaussian", "laplacian", "wide"] = "auto"
    weights: Literal["unif", "alignf"] = "unif"
    rank: int = 100
    search_rows: int = SEARCH_ROWS
    random_state: int = 0
    scaled: bool = False
    codes: tuple[int, ...] = ()
    code_names: tuple[str, ...] = ()
    normal_scores: bool | Literal["auto"] = "auto"

    def find(
        self,
        X: Rows,
        target: Target,
        C: float = 1.0,
        sample_weight: np.ndarray | None = None,
    ) -> FoundKernels:
        examples = self._search_examples(X, target, sample_weight)
        columns = FeatureColumns.of(X.shape[1], self.codes, self.code_names)
        is_sample = X.shape[0] > self.search_rows
        knots = self._knots(examples)
        mapped_examples = examples
        if knots:
            origin = mean_over(examples.X, examples.w)
            mapped_examples = replace(
                examples, X=scores_beside(examples.X, knots, origin)
            )
        mapped_columns = FeatureColumns.of(
            mapped_examples.X.shape[1], self.codes, self.code_names
        )
        found_kernels = self._find_radial(mapped_examples, mapped_columns, is_sample)
        has_all_defaults = self.kernels == "auto" and self.weights == "unif"
        if target.task == "regression" and has_all_defaults:
            found_kernels = _with_linear(found_kernels, mapped_examples, columns)
        if not knots:
            return found_kernels
        return _with_scores(found_kernels, knots, origin, examples)

    def _find_radial(
        self, examples: Examples, columns: FeatureColumns, is_sample: bool
    ) -> FoundKernels:
        """Return weighted Gaussian and Laplacian base kernels."""
        halves = self._halves(examples, columns)
        choice = self._best_choice(halves, GAIN if is_sample else 0.0)
        ridges = _mean_ridges(halves)
        metrics = choice.metrics(self._rounds(examples, columns, choice.rounds, ridges))
        family, sigmas = columns.union(metrics, examples, choice.kind)
        statistics = gram_statistics(
            family, examples.X, examples.Y, sample_weight=examples.w
        )
        weights = _fit_weights(self.weights, statistics, halves, choice)
        alignments: list[float] = []
        if halves:
            alignments = np.mean([half.alignments for half in halves], axis=0).tolist()
        has_weight = weights > 0
        return FoundKernels(
            family.subset(np.flatnonzero(has_weight).tolist()),
            weights[has_weight],
            sigmas[has_weight],
            tuple(alignments),
            errors_of_halves=None if is_sample else _errors_of_halves(halves, choice),
        )

    def _search_examples(
        self, X: Rows, target: Target, sample_weight: np.ndarray | None
    ) -> Examples:
        rows = target.sample(self.search_rows, self.random_state)
        drawn = target.take(rows)
        weights = weights_of_rows(sample_weight, rows)
        first, _, Y, w = distinct_examples(
            X[rows], drawn.Y, weights, drawn.group_numbers
        )
        return Examples(X[rows[first]], Y, w, drawn.take(first).row_groups)

    def _knots(self, examples: Examples) -> tuple[np.ndarray | None, ...]:
        """Return the knots of each feature's normal scores, or ()."""
        if self.normal_scores not in (True, "auto"):
            return ()
        knots = list(normal_scores(examples.X, examples.w))
        for code in self.codes:
            knots[code] = None
        n_scores = sum(feature_knots is not None for feature_knots in knots)
        if self.normal_scores is True or 0 < n_scores <= COMPONENTS:
            return tuple(knots)
        return ()

    def _halves(self, examples: Examples, columns: FeatureColumns) -> list[SplitHalf]:
        """Return both halves (one for two times), or [] if too small or constant."""
        if len(examples.X) < LEAST_ROWS:
            return []
        last_round = MOST_ROUNDS if self.rounds == "auto" else self.rounds
        numbers = list(range(last_round + 1))
        if (
            self.rounds == "auto"
            and self.metric != "diagonal"
            and len(columns.others) > COMPONENTS
        ):
            numbers.append(UNSUPERVISED)
        try:
            halves: list[SplitHalf] = []
            best_ridges: dict[str, int] = {}
            ridges_of_first = None
            for train, test in examples.splits(self.random_state):
                rounds = self._rounds(train, columns, numbers, ridges_of_first)
                precision = self._precision_for(train)
                half = SplitHalf(train, test, columns, rounds, best_ridges, precision)
                half.learn(2 if self.rounds == "auto" else last_round)
                ridges_of_first = half.ridges
                halves.append(half)
        except ValueError:  # no metric can be learned on one half
            return []
        return halves

    def _best_choice(self, halves: Sequence[SplitHalf], gain: float) -> KernelChoice:
        """Select the metrics first, then the kind of base kernels."""
        kinds = COMBINED_KERNELS if self.kernels == "auto" else (self.kernels,)
        if self.rounds == "auto":
            choice = _best_metrics(halves, kinds[0], gain)
        else:
            choice = KernelChoice(tuple(sorted({0, self.rounds})), kinds[0])
        if halves and len(kinds) > 1:
            choice, _ = _lowest_error(
                halves, [KernelChoice(choice.rounds, kind) for kind in kinds]
            )
        return choice

    def _rounds(
        self,
        examples: Examples,
        columns: FeatureColumns,
        numbers: Sequence[int],
        near: Mapping[int, Sequence[float] | np.ndarray] | None = None,
    ) -> Iterator[Round]:
        """Yield the rounds in `numbers`; see `learned_metrics`."""
        X = examples.X[:, columns.others]
        if UNSUPERVISED in numbers:
            yield Round(UNSUPERVISED, (components_of(X, examples.w),))
        kinds = ["diagonal", "full"] if self.metric == "both" else [self.metric]
        start = metric_of(X, examples.w, self.scaled)
        rounds = learned_metrics(
            X,
            examples.Y,
            kinds,
            max(numbers),
            self.rank,
            examples.w,
            start,
            near=near,
            row_groups=examples.row_groups,
            precision=self._precision_for(examples),
        )
        for learned in rounds:
            if learned.number in numbers:
                yield learned

    def _precision_for(self, examples: Examples) -> type[np.floating[Any]]:
        if len(examples.X) <= DOUBLE_ROWS:
            return np.float64
        if not self.scaled:
            return np.float32
        # In float32, small features would be lost next to large ones.
        deviations = examples.X.std(axis=0)
        deviations = deviations[deviations > 0]
        if len(deviations) and deviations.max() > LARGEST_SPREAD * deviations.min():
            return np.float64
        return np.float32

    def for_features(self, features: Any) -> RFM:
        names = tuple(features.owners[code] for code in features.codes)
        return replace(
            self, codes=features.codes, code_names=names, scaled=features.scaled
        )

    def searches_sample(self, statistics: AlignmentStatistics) -> bool:
        return (
            statistics.n_rows > self.search_rows
            and self.weights == "unif"
            and statistics.sample_weight is None
        )

    def takes_sparse(self, family: KernelFamily | None) -> bool:
        """Return False, as gradients are dense."""
        return False

    def require(self) -> None:
        whole_number("rank", self.rank, 1)
        whole_number("search_rows", self.search_rows, 10)
        if self.rounds != "auto":
            whole_number("rounds", self.rounds, 0)
        if self.normal_scores not in (True, False, "auto"):
            raise ValueError(
                f"normal_scores must be true, false or auto, got {self.normal_scores!r}."
            )
        require_one_of("metric", self.metric, ("both", "diagonal", "full"))
        require_one_of("kernels", self.kernels, ("auto", *KINDS))
        require_one_of("weights", self.weights, tuple(WEIGHT_LEARNERS))


def _with_scores(
    found_kernels: FoundKernels,
    knots: tuple[np.ndarray | None, ...],
    origin: np.ndarray,
    examples: Examples,
) -> FoundKernels:
    """Return the base kernels as functions of rows without scores."""
    d = len(knots)
    has_score = np.array([feature_knots is not None for feature_knots in knots])
    rates = 1.0 / found_kernels.parameters[:, :d]
    score_rates = 1.0 / found_kernels.parameters[:, d:]
    # Along one feature, the score changes by about one per standard deviation.
    scores_per_unit = spread_of(examples.X[:, has_score], examples.w).map
    rates[:, has_score] = np.hypot(rates[:, has_score], score_rates * scores_per_unit)
    family = NormalScoresFamily(found_kernels.family, knots, origin)
    return replace(found_kernels, family=family, parameters=_inverse(rates))


def _inverse(rates: np.ndarray) -> np.ndarray:
    """Return sigmas, infinite for features without influence."""
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / rates)


def _with_linear(
    found_kernels: FoundKernels, examples: Examples, columns: FeatureColumns
) -> FoundKernels:
    """Add a linear kernel if it lowers the leave-one-out error."""
    examples = examples.every(-(-len(examples.X) // LINEAR_ROWS))
    X = examples.X
    w = examples.w
    centered = X - mean_over(X, w)
    if len(X) < LEAST_ROWS:
        return found_kernels
    scales = spread_of(X, w).map.copy()
    scales[columns.codes] = 0.0
    scales[len(columns.codes) + len(columns.others) :] = 0.0  # normal scores
    if not scales.any():
        return found_kernels
    linear = MetricFamily(LinearFamily(), scales, "spread")
    K = center_gram(summed(found_kernels.family, found_kernels.weights, X, X), w)
    K_linear = linear.tile(centered, centered)[0]
    unit = mean_over(K.diagonal(), w)
    linear_unit = mean_over(K_linear.diagonal(), w)
    K = K / unit
    K_linear = K_linear / linear_unit
    losses = []
    ridge = None
    for share in LINEAR_SHARES:
        mixture = K + share * K_linear
        path = LeaveOneOut(mixture, examples.Y, w, row_groups=examples.row_groups)
        fit = path.best(ridges_of(mixture, w), ridge)
        ridge = fit.ridge
        losses.append(fit.loss)
    best = int(np.argmin(losses))
    if losses[best] > (1.0 - LINEAR_GAIN) * losses[0]:
        return found_kernels
    share = LINEAR_SHARES[best]
    return replace(
        found_kernels,
        family=FamilyUnion([found_kernels.family, linear]),
        weights=np.append(found_kernels.weights, share * unit / linear_unit),
        parameters=np.vstack([found_kernels.parameters, _inverse(scales)]),
        errors_of_halves=None,  # without the linear kernel
    )


def _mean_ridges(halves: Sequence[SplitHalf]) -> dict[int, list[float]]:
    if not halves:
        return {}
    numbers = set.intersection(*(set(half.ridges) for half in halves))
    ridges = {}
    for number in numbers:
        products = np.prod([half.ridges[number] for half in halves], axis=0)
        ridges[number] = (products ** (1 / len(halves))).tolist()
    return ridges


def _lowest_error(
    halves: Sequence[SplitHalf], choices: Sequence[KernelChoice]
) -> tuple[KernelChoice, float]:
    errors = np.sum([half.errors(choices) for half in halves], axis=0)
    return choices[int(np.argmin(errors))], float(errors.min())


def _best_metrics(halves: Sequence[SplitHalf], kind: str, gain: float) -> KernelChoice:
    """Select rounds by error; combining two must save `gain`."""
    if not halves:
        return KernelChoice((0,), kind)
    candidates = [(0,), (0, 1)]
    if UNSUPERVISED in halves[0].rounds:
        candidates.append((UNSUPERVISED,))
    choice, error = _lowest_error(
        halves, [KernelChoice(rounds, kind) for rounds in candidates]
    )
    for number in range(2, MOST_ROUNDS + 1):
        try:
            for half in halves:
                half.learn(number)
        except ValueError:  # the prediction is constant
            break
        last, last_error = _lowest_error(halves, [KernelChoice((0, number), kind)])
        both, both_error = _lowest_error(halves, [KernelChoice((0, 1, number), kind)])
        if both_error < (1.0 - gain) * last_error:
            last = both
            last_error = both_error
        gains_little = last_error > (1.0 - GAIN) * error
        if last_error < error:
            choice = last
            error = last_error
        if gains_little:
            break
    return choice


def _errors_of_halves(
    halves: Sequence[SplitHalf], choice: KernelChoice
) -> tuple[float, float] | None:
    """Return mean test and leave-one-out errors; None without learned metrics."""
    if not halves or not choice.supervised:
        return None
    errors = np.mean([half.relative_errors(choice) for half in halves], axis=0)
    if not np.isfinite(errors).all():
        return None
    return float(errors[0]), float(errors[1])


def _fit_weights(
    weights: str,
    statistics: AlignmentStatistics,
    halves: Sequence[SplitHalf],
    choice: KernelChoice,
) -> np.ndarray:
    """Return weights, learned for base kernels of unit trace."""
    learner = WEIGHT_LEARNERS[weights]
    scales = statistics.traces()
    if weights == "unif" or not halves or not choice.supervised:
        products = NormalizedProducts(
            statistics, np.arange(statistics.n_kernels), scales
        )
        return np.asarray(
            learner.fit_weights(products, products.target).weights / scales
        )
    products_of_halves = [half.products(choice) for half in halves]
    M = np.sum([products for products, _ in products_of_halves], axis=0)
    a = np.sum([target_products for _, target_products in products_of_halves], axis=0)
    varying = np.flatnonzero(M.diagonal() > 0)
    learned = learner.fit_weights(M[np.ix_(varying, varying)], a[varying]).weights
    averaged = np.full(statistics.n_kernels, 1.0 / statistics.n_kernels)
    averaged[varying] += learned / learned.sum()
    return np.asarray(averaged / scales)
