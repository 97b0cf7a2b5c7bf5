"""Comparison of measured results with the numbers and claims of the papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE, corrected_p
from learnkernels.tasks.reporting.tables import ranks, short_p

from .cells import Cell, compare_cells
from .derived import derived_values
from .item import CellConfig, ClaimConfig, PaperItem, panel_and_place
from .published_tests import PublishedTest, repeat_tests
from .trials import (
    ranked_learners,
    seconds_by_trial,
    share_of_test_rows,
    values_by_trial,
)

Pair = tuple[str, str]
Word = Literal["holds", "not significant", "not reproduced", "cannot be judged"]


@dataclass(frozen=True)
class Evidence:
    """Test of a paper's claim on one data set or over all, with its result.

    `better` and `than` are means of two learners. `p` is one-sided: of the corrected
    resampled t-test, or, if `signed_rank`, of Wilcoxon's test across data sets. `paired`
    is that of the papers' t-test on the first repeat, significant in `below` of
    `repeats`. The t-test detects the difference `detectable` with a power of 0.8.
    """

    on: str
    better: float | None = None
    than: float | None = None
    p: float | None = None
    paired: float | None = None
    below: int = 0
    repeats: int = 0
    detectable: float | None = None
    word: Word = "cannot be judged"
    signed_rank: bool = False


@dataclass(frozen=True)
class Verdict:
    """Verdict on one check of a paper's claim, such as on one pair of learners.

    `expected` is empty for a claim on a number. `identity` means that the claim holds
    by construction.
    """

    says: str
    expected: str
    word: Word
    evidence: tuple[Evidence, ...]
    pair: Pair | None = None
    learners: str = ""
    identity: bool = False
    of_seconds: bool = False


def judge_claims(
    item: PaperItem, folds: pd.DataFrame | None, values: Mapping[str, float]
) -> list[Verdict]:
    verdicts = []
    for claim in item.claims:
        if claim.value is not None:
            evidence = _number_evidence(claim, values)
            verdicts.append(
                Verdict(
                    claim.says,
                    "",
                    overall_word(evidence),
                    evidence,
                    identity=claim.identity,
                )
            )
        for pair in claim.pairs:
            evidence = _pair_evidence(claim, pair, item, folds)
            verdict = Verdict(
                claim.says,
                claim.expected,
                overall_word(evidence),
                evidence,
                pair,
                identity=claim.identity,
                of_seconds=claim.measure == "seconds",
            )
            if len(claim.pairs) > 1:
                verdict = replace(verdict, learners=", ".join(pair))
            verdicts.append(verdict)
    return verdicts


def group_by_claim(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    checks: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        checks.setdefault(verdict.says, []).append(verdict)
    return checks


def overall_word(parts: Sequence[Evidence | Verdict]) -> Word:
    """Return the worst verdict of all checks or tests; for none, "cannot be judged"."""
    words = {part.word for part in parts}
    if not words or "cannot be judged" in words:
        return "cannot be judged"
    if "not reproduced" in words:
        return "not reproduced"
    if "not significant" in words:
        return "not significant"
    return "holds"


def _number_evidence(
    claim: ClaimConfig, values: Mapping[str, float]
) -> tuple[Evidence, ...]:
    name = str(claim.value)
    evidence = []
    if claim.above is not None:
        evidence.append(_compare_with_bound(name, "above", claim.above, values))
    if claim.below is not None:
        evidence.append(_compare_with_bound(name, "below", claim.below, values))
    return tuple(evidence)


def _compare_with_bound(
    name: str,
    side: Literal["above", "below"],
    bound: float | str,
    values: Mapping[str, float],
) -> Evidence:
    value = values.get(name)
    if isinstance(bound, str):
        limit = values.get(bound)
        description = f"{name} {side} {bound}"
    else:
        limit = bound
        description = f"{name} {side} {bound:g}"
    if value is None or limit is None:
        return Evidence(description, value, limit)
    difference = value - limit
    if side == "below":
        difference = -difference
    if difference > 0:
        return Evidence(description, value, limit, word="holds")
    return Evidence(description, value, limit, word="not reproduced")


def _pair_evidence(
    claim: ClaimConfig, pair: Pair, item: PaperItem, folds: pd.DataFrame | None
) -> tuple[Evidence, ...]:
    if folds is None:
        return ()
    datasets = list(folds["dataset"].unique())
    names = {dataset: {dataset, panel_and_place(dataset)[0]} for dataset in datasets}
    measured_names = set().union(*names.values())
    missing = [Evidence(name) for name in claim.on if name not in measured_names]
    if claim.on:
        datasets = [
            dataset for dataset in datasets if not names[dataset].isdisjoint(claim.on)
        ]
    if claim.across or claim.measure == "rank":
        return (*missing, _test_across_datasets(claim, pair, item, folds, datasets))
    if not claim.on:
        learners = folds.groupby("dataset")["learner"].agg(set)
        datasets = [
            dataset for dataset in datasets if learners[dataset].issuperset(pair)
        ]
    return (
        *missing,
        *(_test_on_dataset(claim, pair, folds, dataset) for dataset in datasets),
    )


def _test_on_dataset(
    claim: ClaimConfig, pair: Pair, folds: pd.DataFrame, dataset: str
) -> Evidence:
    columns = [
        values_by_trial(folds, dataset, learner, claim.measure) for learner in pair
    ]
    table = pd.concat(columns, axis=1, join="inner")
    if table.empty:
        return Evidence(dataset)
    losses = table * _loss_sign(claim)
    trials = losses.to_numpy()
    repeats = [group.to_numpy() for _, group in losses.groupby(level="repeat")]
    if all(len(repeat) == 1 for repeat in repeats):
        repeats = [trials]  # each repeat of a split is a single trial
    uncorrected = [_p_of_claim(claim, repeat, 0.0) for repeat in repeats]
    computed = [p for p in uncorrected if p is not None]
    share = share_of_test_rows(folds, dataset)
    p = _p_of_claim(claim, trials, share)
    evidence = _evidence_of_means(
        claim, dataset, table.mean(), p, detectable_difference(trials, share)
    )
    return replace(
        evidence,
        paired=uncorrected[0],
        below=sum(p < SIGNIFICANCE for p in computed),
        repeats=len(computed),
    )


def _p_of_claim(claim: ClaimConfig, losses: np.ndarray, share: float) -> float | None:
    """Return the p-value that the first column is lower, or either if alike."""
    p_first = corrected_p(losses[:, 0], losses[:, 1], share)
    if claim.expected != "alike" or p_first is None:
        return p_first
    p_second = corrected_p(losses[:, 1], losses[:, 0], share)
    assert p_second is not None, "the same trials"
    return min(p_first, p_second)


def detectable_difference(trials: np.ndarray, share: float) -> float | None:
    """Return the difference of errors that the corrected t-test detects with power 0.8."""
    n = len(trials)
    if n < 2:
        return None
    power = 0.8
    quantiles = stats.t.ppf([1 - SIGNIFICANCE, power], n - 1).sum()
    variance = np.diff(trials, axis=1).var(ddof=1)
    return float(quantiles * np.sqrt((1 / n + share) * variance))


def _loss_sign(claim: ClaimConfig) -> float:
    """Return the factor that makes lower values of the measure better."""
    if claim.measure in ("alignment", "test_alignment"):
        return -1.0
    return 1.0


def _evidence_of_means(
    claim: ClaimConfig,
    on: str,
    means: pd.Series,
    p: float | None,
    detectable: float | None,
) -> Evidence:
    better = float(means.iloc[0])
    than = float(means.iloc[1])
    word = _pair_word(claim, better, than, p)
    if claim.expected not in ("none", "alike"):
        detectable = None
    return Evidence(on, better, than, p, detectable=detectable, word=word)


def _pair_word(claim: ClaimConfig, better: float, than: float, p: float | None) -> Word:
    if claim.expected in ("none", "alike"):
        if p is None:
            return "cannot be judged"
        if p < SIGNIFICANCE:
            return "not reproduced"
        return "holds"
    if claim.expected == "significant" and p is not None and p < SIGNIFICANCE:
        return "holds"
    sign = _loss_sign(claim)
    has_direction = sign * better < sign * than
    if not has_direction:
        return "not reproduced"
    if claim.expected == "direction":
        return "holds"
    return "not significant"


def _test_across_datasets(
    claim: ClaimConfig,
    pair: Pair,
    item: PaperItem,
    folds: pd.DataFrame,
    datasets: Sequence[str],
) -> Evidence:
    if claim.measure == "rank":
        table = ranks(folds, ranked_learners(item, folds))
    else:
        table = folds.assign(seconds=seconds_by_trial(folds)).pivot_table(
            index="dataset",
            columns="learner",
            values=claim.measure,
            aggfunc="mean",
            sort=False,
        )
    table = table.reindex(columns=[*pair])
    table = table[table.index.isin(datasets)].dropna()
    if table.empty:
        return Evidence(f"{len(datasets)} data sets")
    centers = table.mean()
    if claim.measure == "rank":
        centers = table.median()
    losses = _loss_sign(claim) * table.to_numpy(dtype=float)
    p = signed_rank_p(losses[:, 0], losses[:, 1])
    p_reversed = signed_rank_p(losses[:, 1], losses[:, 0])
    if claim.expected == "alike" and p is not None and p_reversed is not None:
        p = min(p, p_reversed)
    evidence = _evidence_of_means(claim, f"{len(table)} data sets", centers, p, None)
    return replace(evidence, signed_rank=True)


def signed_rank_p(errors: np.ndarray, baseline: np.ndarray) -> float | None:
    """Return the p-value of Wilcoxon's test that errors are below the baseline's.

    p is 1 if no pair differs, and None for fewer than two pairs.
    """
    if len(errors) < 2:
        return None
    # Equal differences stay ties despite rounding errors
    differences = np.round(errors - baseline, 12)
    differences = differences[differences != 0]
    if len(differences) == 0:
        return 1.0
    has_ties = len(np.unique(np.abs(differences))) < len(differences)
    method = "exact"
    if has_ties or len(differences) > 50:
        method = "asymptotic"
    return float(stats.wilcoxon(differences, alternative="less", method=method).pvalue)


def compare_with_search(folds: pd.DataFrame) -> list[dict[str, Any]]:
    """Compare each data set's best learner with grid search, in table rows."""
    rows = []
    for name, group in folds.groupby("dataset", sort=False):
        dataset = str(name)
        means = group.groupby("learner", sort=False)["error"].mean()
        if GRID_SEARCH_TITLE not in means or len(means) < 2:
            continue
        best = str(means.drop(GRID_SEARCH_TITLE).idxmin())
        columns = [
            values_by_trial(folds, dataset, learner, "error")
            for learner in (best, GRID_SEARCH_TITLE)
        ]
        errors = pd.concat(columns, axis=1, join="inner").to_numpy()
        share = share_of_test_rows(folds, dataset)
        p_best = corrected_p(errors[:, 0], errors[:, 1], share)
        p_search = corrected_p(errors[:, 1], errors[:, 0], share)
        verdict = "no difference"
        if p_best is not None and p_best < SIGNIFICANCE:
            verdict = "yes"
        elif p_search is not None and p_search < SIGNIFICANCE:
            verdict = "no, the search is better"
        rows.append(
            {
                "data set": dataset,
                "best learner": best,
                "error": f"{means[best]:.4g}",
                "seconds": _mean_seconds(folds, dataset, best),
                f"{GRID_SEARCH_TITLE}: error": f"{means[GRID_SEARCH_TITLE]:.4g}",
                f"{GRID_SEARCH_TITLE}: seconds": _mean_seconds(
                    folds, dataset, GRID_SEARCH_TITLE
                ),
                "p, learner better": short_p(p_best),
                "worth it": verdict,
            }
        )
    return rows


def _mean_seconds(folds: pd.DataFrame, dataset: str, learner: str) -> str:
    return f"{values_by_trial(folds, dataset, learner, 'seconds').mean():.3g}"


def failing_checks(
    checks: Sequence[CellConfig],
    folds: pd.DataFrame | None,
    values: Mapping[str, float],
) -> list[str]:
    """Return a sentence for each measured number outside its expected interval."""
    sentences = []
    for check in checks:
        for measure, (low, high) in check.measures().items():
            if check.name is None:
                description = f"{check.dataset}, {check.learner}: {measure}"
            else:
                description = measure
            value = values.get(measure)
            if check.name is None and folds is not None:
                numbers = values_by_trial(folds, check.dataset, check.learner, measure)
                if len(numbers):
                    value = float(numbers.mean())
            if value is None:
                sentences.append(
                    f"{description} is missing, expected {low:g} to {high:g}."
                )
            elif not low <= value <= high:
                sentences.append(
                    f"{description} is {value:.4g}, expected {low:g} to {high:g}."
                )
    return sentences


@dataclass(frozen=True)
class StudyResult:
    """Result of a study: errors by split, numbers by name, tables and figures.

    `values` has standard deviations under names with the suffix ``" sd"``. `tables` are
    captions with rows.
    """

    folds: pd.DataFrame | None = None
    values: dict[str, float] = field(default_factory=dict)
    tables: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True)
class ReproducedItem:
    """Reproduced table or figure of a paper, with stored results and facts on the run."""

    item: PaperItem
    result: StudyResult
    figures: tuple[str, ...]
    facts: dict[str, Any]
    folder: Path

    @property
    def values(self) -> dict[str, float]:
        """Measured numbers by name: of the study, and computed from its errors."""
        if self.item.is_comparison and self.result.folds is not None:
            return self.result.values | derived_values(self.item, self.result.folds)
        return self.result.values

    @property
    def partial(self) -> bool:
        """Whether this is a quick run or another interpretation of the setup."""
        is_reading = self.item.name.startswith(f"{self.item.same_as}.")
        return is_reading or bool(self.facts["quick"])

    def cells(self) -> list[Cell]:
        """Return published with measured numbers; if `partial`, only numbers measured here."""
        cells = compare_cells(self.item, self.result.folds, self.values)
        if not self.partial:
            return cells
        return [cell for cell in cells if cell.here is not None]

    def tests(self) -> list[PublishedTest]:
        """Return the paper's significance tests; if `partial`, only tests repeated here."""
        tests = repeat_tests(self.item, self.result.folds)
        if not self.partial:
            return tests
        return [test for test in tests if test.p is not None]

    def claims(self) -> list[Verdict]:
        """Return verdicts on claims of the paper; if `partial`, skip claims without results."""
        verdicts = judge_claims(self.item, self.result.folds, self.values)
        if not self.partial:
            return verdicts
        partial_verdicts = []
        for verdict in verdicts:
            evidence = tuple(
                part for part in verdict.evidence if part.word != "cannot be judged"
            )
            if evidence:
                partial_verdicts.append(
                    replace(verdict, word=overall_word(evidence), evidence=evidence)
                )
        return partial_verdicts
