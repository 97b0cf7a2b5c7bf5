"""Comparison of measured results with the numbers and claims of the papers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE, corrected_p, paired_p, share_of_test
from learnkernels.tasks.reporting.tables import mean_shares, ranks, short_p

from .item import CellConfig, ClaimConfig, PaperItem, panel

Pair = tuple[str, str]
Word = Literal["holds", "not significant", "not reproduced", "cannot be judged"]


@dataclass(frozen=True)
class Cell:
    """A published number and the same number measured here.

    Attributes
    ----------
    measure : str
        error, alignment, test_alignment, rank, or the name of a number of a special study.
    paper, paper_sd : float, float or None
        Published mean and standard deviation.
    here, here_sd : float or None
        Mean and standard deviation over trials.
    apart : float or None
        ``(here - paper) / paper_sd``. If the paper prints no deviation, ``here_sd`` is used. None for ranks.
    """

    dataset: str | None
    learner: str | None
    measure: str
    paper: float
    paper_sd: float | None
    here: float | None
    here_sd: float | None
    apart: float | None
    metric: str | None = None

    def within(self, deviations: float) -> bool:
        """Return whether the number lies within `deviations` standard deviations of the published one."""
        return self.apart is not None and abs(self.apart) <= deviations


@dataclass(frozen=True)
class Evidence:
    """Evidence for a claim on one data set, or over all data sets.

    Attributes
    ----------
    on : str
        Data set, or the number of data sets.
    better, than : float or None
        Means of the two learners.
    p : float or None
        One-sided p-value that the first learner is better: corrected resampled t-test over all trials, or Wilcoxon's
        signed-rank test across data sets.
    paired : float or None
        p-value of the papers' uncorrected paired t-test on the folds of the first repeat; of a split, on all repeats.
    below, repeats : int
        Repeats in which that test is significant, and repeats in which it can be computed.
    detectable : float or None
        Difference that the test detects with a power of 0.8; only for claims of no difference.
    word : str
        Verdict on this data set.
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


@dataclass(frozen=True)
class Verdict:
    """Verdict on one check of a claim; a claim has a check for each pair of learners.

    Attributes
    ----------
    says : str
        The claim.
    expected : str
        Expected kind of difference; empty for a claim on a number.
    learners : str
        Pair of learners, if the claim has several pairs.
    identity : bool
        Whether the claim holds by construction.
    """

    says: str
    expected: str
    word: Word
    evidence: tuple[Evidence, ...]
    learners: str = ""
    identity: bool = False


def values_by_trial(folds: pd.DataFrame, dataset: str | None, learner: str | None, measure: str) -> pd.Series:
    """Return a measure by (repeat, fold), without missing values."""
    trials = folds[(folds["dataset"] == dataset) & (folds["learner"] == learner)]
    trials = trials.assign(seconds=seconds_by_trial(trials)).set_index(["repeat", "fold"])
    return trials[measure].astype(float).sort_index().dropna()


def seconds_by_trial(folds: pd.DataFrame) -> pd.Series:
    """Return the seconds of each trial: weights, choice of C, predictor, and its share of the pass."""
    seconds_pass = folds["seconds_pass"].astype(float).fillna(0.0)
    seconds: pd.Series = folds["seconds_weights"] + folds["seconds_fit"] + seconds_pass
    return seconds


def ranked_learners(item: PaperItem, folds: pd.DataFrame) -> list[str]:
    """Return the learners with a published rank, or else all except the grid search."""
    with_rank = [str(cell.learner) for cell in item.printed if cell.rank is not None]
    if with_rank:
        return with_rank
    return [str(learner) for learner in folds["learner"].unique() if learner != GRID_SEARCH_TITLE]


def compare_cells(item: PaperItem, folds: pd.DataFrame | None, values: Mapping[str, float]) -> list[Cell]:
    """Return every published number of an item with the measured one."""
    rank_table = pd.DataFrame()
    metrics: dict[Any, Any] = {}
    if folds is not None:
        rank_table = ranks(folds, ranked_learners(item, folds))
        metrics = folds.groupby("dataset")["metric"].first().to_dict()
    cells = []
    for cell in item.printed:
        for measure, (paper, *deviation) in cell.measures().items():
            paper_sd = None
            if deviation:
                paper_sd = deviation[0]
            here, here_sd = _measured_cell(cell, measure, folds, values, rank_table)
            apart = None
            unit = paper_sd or here_sd
            if here is not None and unit and measure != "rank":
                apart = (here - paper) / unit
            cells.append(
                Cell(
                    dataset=cell.dataset,
                    learner=cell.learner,
                    measure=measure,
                    paper=float(paper),
                    paper_sd=paper_sd,
                    here=here,
                    here_sd=here_sd,
                    apart=apart,
                    metric=metrics.get(cell.dataset),
                )
            )
    return cells


def _measured_cell(
    cell: CellConfig,
    measure: str,
    folds: pd.DataFrame | None,
    values: Mapping[str, float],
    rank_table: pd.DataFrame,
) -> tuple[float | None, float | None]:
    if cell.name == measure:
        return values.get(measure), values.get(f"{measure} sd")
    if measure == "rank":
        if cell.learner not in rank_table:
            return None, None
        return float(rank_table[cell.learner].median()), None
    if folds is None:
        return None, None
    numbers = values_by_trial(folds, cell.dataset, cell.learner, measure)
    if numbers.empty:
        return None, None
    if len(numbers) == 1:
        return float(numbers.mean()), None
    return float(numbers.mean()), float(numbers.std())


def weight_cosines(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Return the cosines between mean weights of learners, named ``"cosine of A and B on D"``."""
    cosines = {}
    trials = folds[folds["learner"].isin(item.figure.learners)]
    for dataset, group in trials.groupby("dataset", sort=False):
        shares = {}
        for learner, rows in group.groupby("learner", sort=False):
            shares[str(learner)] = mean_shares(rows)
        for first, second in itertools.permutations(shares, 2):
            a = shares[first]
            b = shares[second]
            cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            cosines[f"cosine of {first} and {second} on {dataset}"] = float(cosine)
    return cosines


def parameter_deviations(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Return relative distances of learned from true parameters, named ``"found by A on D, apart"``.

    A trial compares the parameters of its heaviest base kernels, in ascending order; the largest distance counts.
    """
    true_values = np.sort(np.asarray(item.found))
    n_values = len(true_values)
    deviations = {}
    with_parameters = folds.dropna(subset=["parameters"])
    for (dataset, learner), group in with_parameters.groupby(["dataset", "learner"], sort=False):
        if group["parameters"].map(len).min() < n_values:
            continue
        learned = []
        for parameters, weights in zip(group["parameters"], group["weights"], strict=True):
            heaviest = np.argsort(weights)[-n_values:]
            learned.append(np.sort([parameters[k][0] for k in heaviest]))
        relative = np.abs(np.array(learned) - true_values) / true_values
        deviations[f"found by {learner} on {dataset}, apart"] = float(relative.max())
    return deviations


def derived_values(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Return numbers for claims: mean errors, named ``"error of A on D"``, cosines and distances of parameters."""
    means = folds.groupby(["dataset", "learner"], sort=False)["error"].mean()
    values = {}
    for (dataset, learner), error in means.items():
        values[f"error of {learner} on {dataset}"] = float(error)
    if item.figure.kind == "weights":
        values |= weight_cosines(item, folds)
    if item.found:
        values |= parameter_deviations(item, folds)
    return values


def judge_claims(item: PaperItem, folds: pd.DataFrame | None, values: Mapping[str, float]) -> list[Verdict]:
    """Return the verdict on each check of each claim of an item."""
    verdicts = []
    for claim in item.claims:
        if claim.value is not None:
            evidence = _number_evidence(claim, values)
            verdicts.append(Verdict(claim.says, "", overall_word(evidence), evidence, identity=claim.identity))
        for pair in claim.pairs:
            evidence = _pair_evidence(claim, pair, item, folds)
            verdict = Verdict(claim.says, claim.expected, overall_word(evidence), evidence, identity=claim.identity)
            if len(claim.pairs) > 1:
                verdict = replace(verdict, learners=", ".join(pair))
            verdicts.append(verdict)
    return verdicts


def group_by_claim(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Return the checks of each claim, in order."""
    checks: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        checks.setdefault(verdict.says, []).append(verdict)
    return checks


def overall_word(parts: Sequence[Evidence | Verdict]) -> Word:
    """Return the worst verdict."""
    words = {part.word for part in parts}
    if not words or "cannot be judged" in words:
        return "cannot be judged"
    if "not reproduced" in words:
        return "not reproduced"
    if "not significant" in words:
        return "not significant"
    return "holds"


def _number_evidence(claim: ClaimConfig, values: Mapping[str, float]) -> tuple[Evidence, ...]:
    name = str(claim.value)
    evidence = []
    if claim.above is not None:
        evidence.append(_compare_with_bound(name, "above", claim.above, values))
    if claim.below is not None:
        evidence.append(_compare_with_bound(name, "below", claim.below, values))
    return tuple(evidence)


def _compare_with_bound(
    name: str, side: Literal["above", "below"], bound: float | str, values: Mapping[str, float]
) -> Evidence:
    """Return the evidence on a bound, which is a number or the name of one."""
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


def _pair_evidence(claim: ClaimConfig, pair: Pair, item: PaperItem, folds: pd.DataFrame | None) -> tuple[Evidence, ...]:
    if folds is None:
        return ()
    datasets = list(folds["dataset"].unique())
    names = {dataset: {dataset, panel(dataset)[0]} for dataset in datasets}
    measured_names = set().union(*names.values())
    missing = [Evidence(name) for name in claim.on if name not in measured_names]
    if claim.on:
        datasets = [dataset for dataset in datasets if not names[dataset].isdisjoint(claim.on)]
    if claim.across or claim.measure == "rank":
        return (*missing, _test_across_datasets(claim, pair, item, folds, datasets))
    if not claim.on:
        learners = folds.groupby("dataset")["learner"].agg(set)
        datasets = [dataset for dataset in datasets if learners[dataset].issuperset(pair)]
    return (*missing, *(_test_on_dataset(claim, pair, folds, dataset) for dataset in datasets))


def _test_on_dataset(claim: ClaimConfig, pair: Pair, folds: pd.DataFrame, dataset: str) -> Evidence:
    columns = [values_by_trial(folds, dataset, learner, claim.measure) for learner in pair]
    table = pd.concat(columns, axis=1, join="inner")
    if table.empty:
        return Evidence(dataset)
    losses = table * _loss_sign(claim)
    trials = losses.to_numpy()
    repeats = [group.to_numpy() for _, group in losses.groupby(level="repeat")]
    if all(len(repeat) == 1 for repeat in repeats):
        repeats = [trials]  # each repeat of a split is a single trial
    uncorrected = [paired_p(*repeat.T) for repeat in repeats]
    computed = [p for p in uncorrected if p is not None]
    share = _mean_share_of_test(folds, dataset)
    p = corrected_p(trials[:, 0], trials[:, 1], share)
    evidence = _evidence_of_means(claim, dataset, table.mean(), p, detectable_difference(trials, share))
    return replace(
        evidence,
        paired=uncorrected[0],
        below=sum(p < SIGNIFICANCE for p in computed),
        repeats=len(computed),
    )


def detectable_difference(trials: np.ndarray, share: float) -> float | None:
    """Return the mean difference of two columns that the corrected test detects with a power of 0.8."""
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
    claim: ClaimConfig, on: str, means: pd.Series, p: float | None, detectable: float | None
) -> Evidence:
    better = float(means.iloc[0])
    than = float(means.iloc[1])
    word = _pair_word(claim, better, than, p)
    if claim.expected != "none":
        detectable = None
    return Evidence(on, better, than, p, detectable=detectable, word=word)


def _pair_word(claim: ClaimConfig, better: float, than: float, p: float | None) -> Word:
    if claim.expected == "none":
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


def _mean_share_of_test(folds: pd.DataFrame, dataset: str) -> float:
    trials = folds[folds["dataset"] == dataset]
    return share_of_test(trials["n_test"].to_numpy(), trials["n_rows"].to_numpy())


def _test_across_datasets(
    claim: ClaimConfig, pair: Pair, item: PaperItem, folds: pd.DataFrame, datasets: Sequence[str]
) -> Evidence:
    if claim.measure == "rank":
        table = ranks(folds, ranked_learners(item, folds))
    else:
        table = folds.assign(seconds=seconds_by_trial(folds)).pivot_table(
            index="dataset", columns="learner", values=claim.measure, aggfunc="mean", sort=False
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
    return _evidence_of_means(claim, f"{len(table)} data sets", centers, p, detectable_difference(losses, 0.0))


def signed_rank_p(errors: np.ndarray, baseline: np.ndarray) -> float | None:
    """Return the p-value of Wilcoxon's one-sided signed-rank test that errors are lower than the baseline's.

    It is exact for up to 50 pairs without ties. It is 1 if no pair differs, and None for fewer than two pairs.
    """
    if len(errors) < 2:
        return None
    differences = np.round(errors - baseline, 12)  # equal differences stay ties despite rounding errors
    differences = differences[differences != 0]
    if len(differences) == 0:
        return 1.0
    has_ties = len(np.unique(np.abs(differences))) < len(differences)
    method = "exact"
    if has_ties or len(differences) > 50:
        method = "asymptotic"
    return float(stats.wilcoxon(differences, alternative="less", method=method).pvalue)


def compare_with_search(folds: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the best learner and the search over one kernel for each data set, with the corrected test.

    Seconds are means over trials, and include the share of the pass over the base kernels.
    """
    rows = []
    for name, group in folds.groupby("dataset", sort=False):
        dataset = str(name)
        means = group.groupby("learner", sort=False)["error"].mean()
        if GRID_SEARCH_TITLE not in means or len(means) < 2:
            continue
        best = str(means.drop(GRID_SEARCH_TITLE).idxmin())
        columns = [values_by_trial(folds, dataset, learner, "error") for learner in (best, GRID_SEARCH_TITLE)]
        errors = pd.concat(columns, axis=1, join="inner").to_numpy()
        share = _mean_share_of_test(folds, dataset)
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
                f"{GRID_SEARCH_TITLE}: seconds": _mean_seconds(folds, dataset, GRID_SEARCH_TITLE),
                "p, learner better": short_p(p_best),
                "worth it": verdict,
            }
        )
    return rows


def _mean_seconds(folds: pd.DataFrame, dataset: str, learner: str) -> str:
    return f"{values_by_trial(folds, dataset, learner, 'seconds').mean():.3g}"


def failing_checks(checks: Sequence[CellConfig], folds: pd.DataFrame | None, values: Mapping[str, float]) -> list[str]:
    """Return a sentence for each number outside its interval."""
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
                sentences.append(f"{description} is missing, expected {low:g} to {high:g}.")
            elif not low <= value <= high:
                sentences.append(f"{description} is {value:.4g}, expected {low:g} to {high:g}.")
    return sentences


@dataclass(frozen=True)
class StudyResult:
    """Numbers, tables and figures of one item.

    Attributes
    ----------
    folds : DataFrame or None
        Fold table of a comparison.
    values : dict of str to float
        Named numbers; their standard deviations have the suffix ``" sd"``.
    tables : list of (str, list of dict)
        Caption and rows of each additional table.
    figures : dict of str to Figure
        Figures by file name without extension.
    """

    folds: pd.DataFrame | None = None
    values: dict[str, float] = field(default_factory=dict)
    tables: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)


class Summary(TypedDict):
    """Counts of reproduced numbers, checks and claims of an item.

    Identities are not checks. `printed_before` counts findings of an earlier item.
    """

    numbers: int
    within_one: int
    within_two: int
    checks: int
    checks_hold: int
    claims: int
    claims_hold: int
    identities: int
    printed_before: int
    seconds: float


@dataclass(frozen=True)
class ReproducedItem:
    """An item with its stored results: names of figures in `folder`, and facts about the run."""

    item: PaperItem
    result: StudyResult
    figures: tuple[str, ...]
    facts: dict[str, Any]
    folder: Path

    @property
    def values(self) -> dict[str, float]:
        """Named numbers of the study and those computed from its trials."""
        if self.item.is_comparison and self.result.folds is not None:
            return self.result.values | derived_values(self.item, self.result.folds)
        return self.result.values

    @property
    def partial(self) -> bool:
        """Whether this is a reduced form or another reading."""
        is_reading = self.item.name.startswith(f"{self.item.same_as}.")
        return is_reading or bool(self.facts["quick"])

    def cells(self) -> list[Cell]:
        """Return the published numbers and ours; a partial item omits missing numbers."""
        cells = compare_cells(self.item, self.result.folds, self.values)
        if not self.partial:
            return cells
        return [cell for cell in cells if cell.here is not None]

    def claims(self) -> list[Verdict]:
        """Return the verdict on each check of the claims; a partial item omits missing data sets."""
        verdicts = judge_claims(self.item, self.result.folds, self.values)
        if not self.partial:
            return verdicts
        partial_verdicts = []
        for verdict in verdicts:
            evidence = tuple(part for part in verdict.evidence if part.word != "cannot be judged")
            if evidence:
                partial_verdicts.append(replace(verdict, word=overall_word(evidence), evidence=evidence))
        return partial_verdicts

    def summary(self) -> Summary:
        """Return the counts of this item by itself."""
        (findings,) = distinct_findings([self])
        return findings.summary()


@dataclass(frozen=True)
class Findings:
    """Numbers and checks of an item that no earlier item has."""

    numbers: list[Cell]
    checks: list[Verdict]
    printed_before: int
    seconds: float

    @property
    def claims(self) -> dict[str, list[Verdict]]:
        """Checks of each claim, without identities."""
        return group_by_claim([check for check in self.checks if not check.identity])

    def summary(self) -> Summary:
        """Return the counts."""
        claim_words = [overall_word(checks) for checks in self.claims.values()]
        check_words = [check.word for check in self.checks if not check.identity]
        return Summary(
            numbers=len(self.numbers),
            within_one=sum(cell.within(1) for cell in self.numbers),
            within_two=sum(cell.within(2) for cell in self.numbers),
            checks=len(check_words),
            checks_hold=check_words.count("holds"),
            claims=len(claim_words),
            claims_hold=claim_words.count("holds"),
            identities=len(self.checks) - len(check_words),
            printed_before=self.printed_before,
            seconds=self.seconds,
        )


def distinct_findings(items: Sequence[ReproducedItem]) -> list[Findings]:
    """Return the findings of each item; equal results of two items count once."""
    seen: set[Any] = set()
    findings = []
    for reproduced in items:
        numbers = {}
        for cell in reproduced.cells():
            if cell.apart is not None:
                key = (cell.dataset, cell.learner, cell.measure, cell.paper, cell.paper_sd, cell.here)
                numbers[key] = cell
        checks = {(verdict.expected, verdict.evidence): verdict for verdict in reproduced.claims()}
        new_numbers = [cell for key, cell in numbers.items() if key not in seen]
        new_checks = [check for key, check in checks.items() if key not in seen]
        printed_before = len(numbers) - len(new_numbers)
        findings.append(Findings(new_numbers, new_checks, printed_before, float(reproduced.facts["seconds"])))
        seen.update(numbers, checks)
    return findings


def sum_summaries(summaries: Sequence[Summary]) -> Summary:
    """Return the sum of the counts of several items."""
    sums: dict[str, Any] = {}
    for key in Summary.__annotations__:
        sums[key] = sum(summary[key] for summary in summaries)  # type: ignore
    total: Summary = Summary(**sums)  # type: ignore
    return total


def systematic_deviations(cells: Sequence[Cell]) -> list[str]:
    """Return a sentence for each measure whose numbers all lie on one side of the published ones.

    A data set needs three numbers with a mean distance of one standard deviation; a metric needs eight numbers.
    """
    comparable = [cell for cell in cells if cell.apart is not None and cell.paper_sd and cell.learner]
    if not comparable:
        return []
    table = pd.DataFrame(comparable)
    sentences = []
    for (dataset, measure), group in table.groupby(["dataset", "measure"], sort=False):
        deviations = group["apart"].tolist()
        side = _common_side(deviations)
        if side and len(deviations) >= 3 and abs(np.mean(deviations)) >= 1.0:
            sentences.append(_deviation_sentence(str(dataset), str(measure), side, deviations))
    for (metric, measure), group in table.groupby(["metric", "measure"], sort=False):
        deviations = group["apart"].tolist()
        side = _common_side(deviations)
        if side and len(deviations) >= 8:
            sentences.append(_deviation_sentence(f"Data sets measured by {metric}", str(measure), side, deviations))
    return sentences


def _common_side(deviations: Sequence[float]) -> Literal["above", "below"] | None:
    """Return the common side of all deviations, rounded to one digit."""
    rounded = [round(deviation, 1) for deviation in deviations]
    if min(rounded) > 0:
        return "above"
    if max(rounded) < 0:
        return "below"
    return None


def _deviation_sentence(place: str, measure: str, side: str, deviations: Sequence[float]) -> str:
    sizes = [abs(deviation) for deviation in deviations]
    return (
        f"{place}: all {len(sizes)} values of {measure} are {side} the paper's, "
        f"by {min(sizes):.1f} to {max(sizes):.1f} deviations."
    )
