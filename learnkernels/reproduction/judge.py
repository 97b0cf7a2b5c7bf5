"""What the papers print and say, against what was measured: pure functions of the results of an item."""

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
from learnkernels.tasks.evidence.tables import mean_shares, ranks, short_p
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE, corrected_p, paired_p, share_of_test

from .item import CellConfig, ClaimConfig, PaperItem, panel

POWER = 0.8
"""Of the test for a difference that a claim of no difference states."""

HIGHER_IS_BETTER = ("alignment", "test_alignment")
"""Measures of which more is better."""

Pair = tuple[str, str]
Word = Literal["holds", "not significant", "not reproduced", "cannot be judged"]


@dataclass(frozen=True)
class Cell:
    """A number of a paper and the same number here.

    Attributes
    ----------
    dataset, learner : str or None
        Of a comparison.
    measure : str
        error, alignment, test_alignment, rank, or the name of a number of a special study.
    paper, paper_sd : float, float or None
        As printed.
    here, here_sd : float or None
        Mean and deviation over trials; None where there is no such trial.
    apart : float or None
        ``(here - paper) / paper_sd``, or over our deviation where the paper prints none; None without either, and for
        ranks, which have no deviation.
    metric : str or None
        What errors of the data set are measured by.
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
        """Return whether the number is that many standard deviations from the paper's at most."""
        return self.apart is not None and abs(self.apart) <= deviations


@dataclass(frozen=True)
class Evidence:
    """What bears on a claim on one data set, or on all at once.

    Attributes
    ----------
    on : str
        The data set; how many for a test across them.
    better, than : float or None
        Means of the two.
    p : float or None
        One-sided, that the first is better: the corrected resampled t-test over all trials, across data sets
        Wilcoxon's signed-rank test.
    paired : float or None
        The paper's plain paired t-test on the folds of the first repeat; with a split on all repeats.
    below, repeats : int
        In how many repeats that test is below the level, and how many have one.
    detectable : float or None
        The difference that the test finds with a power of 0.8; for claims of no difference.
    word : str
        The verdict on this data set.
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
    """A check of a claim, and whether it holds here; checks that say the same are of one claim.

    Attributes
    ----------
    says : str
        The claim.
    expected : str
        In what way the paper means it; of learners alone.
    word : str
        It holds where it does on every data set.
    evidence : tuple of Evidence
    learners : str
        Those compared, where the claim compares several.
    identity : bool
        Whether it holds by construction.
    """

    says: str
    expected: str
    word: Word
    evidence: tuple[Evidence, ...]
    learners: str = ""
    identity: bool = False


def measured(folds: pd.DataFrame, dataset: str | None, learner: str | None, measure: str) -> pd.Series:
    """Return one number per trial, indexed by (repeat, fold), without those that are missing."""
    of = folds[(folds["dataset"] == dataset) & (folds["learner"] == learner)]
    of = of.assign(seconds=seconds(of)).set_index(["repeat", "fold"])
    return of[measure].astype(float).sort_index().dropna()


def seconds(folds: pd.DataFrame) -> pd.Series:
    """Return what each trial costs who runs it alone: weights, choice and predictor, and its share of the pass."""
    whole: pd.Series = folds["seconds_weights"] + folds["seconds_fit"] + folds["seconds_pass"].astype(float).fillna(0.0)
    return whole


def ranked(item: PaperItem, folds: pd.DataFrame) -> list[str]:
    """Return the learners that are ranked: those whose rank the paper prints, or else all but the search."""
    printed = [str(cell.learner) for cell in item.printed if cell.rank is not None]
    return printed or [str(learner) for learner in folds["learner"].unique() if learner != GRID_SEARCH_TITLE]


def cells(item: PaperItem, folds: pd.DataFrame | None, values: Mapping[str, float]) -> list[Cell]:
    """Return every printed cell of an item next to what was measured."""
    rank = pd.DataFrame() if folds is None else ranks(folds, ranked(item, folds))
    metrics = {} if folds is None else folds.groupby("dataset")["metric"].first().to_dict()
    rows = []
    for cell in item.printed:
        for measure, (mean, *deviation) in cell.measures().items():
            dataset, learner, sd = cell.dataset, cell.learner, deviation[0] if deviation else None
            here, here_sd = None, None
            if cell.name == measure:
                here, here_sd = values.get(measure), values.get(f"{measure} sd")
            elif measure == "rank":
                here = float(rank[learner].median()) if learner in rank else None
            elif folds is not None and len(of := measured(folds, dataset, learner, measure)):
                here = float(of.mean())
                if len(of) > 1:
                    here_sd = float(of.std())
            unit = sd or here_sd
            apart = (here - mean) / unit if measure != "rank" and here is not None and unit else None
            rows.append(Cell(dataset, learner, measure, float(mean), sd, here, here_sd, apart, metrics.get(dataset)))
    return rows


def cosines(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Return how alike the weights of the learners of a figure of weights are, as numbers that claims can name.

    ``"cosine of A and B on D"`` is that of the angle between the mean shares of two learners on a data set.
    """
    found = {}
    for dataset, of in folds[folds["learner"].isin(item.figure.learners)].groupby("dataset", sort=False):
        shares = {str(learner): mean_shares(group) for learner, group in of.groupby("learner", sort=False)}
        for one, other in itertools.permutations(shares, 2):
            a, b = shares[one], shares[other]
            found[f"cosine of {one} and {other} on {dataset}"] = float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    return found


def deviations_found(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Return how far the parameters that continuous learners found are from those of the item, for claims to name.

    ``"found by A on D, apart"`` is the largest relative distance, over all trials of a learner on a data set, of the
    parameters of its heaviest base kernels from those that generated the data; as many as there are of them, both
    ascending.
    """
    true = np.sort(np.asarray(item.found))
    apart = {}
    for (dataset, learner), of in folds.dropna(subset=["parameters"]).groupby(["dataset", "learner"], sort=False):
        if any(len(found) < len(true) for found in of["parameters"]):
            continue
        sigmas = [
            np.sort([found[k][0] for k in np.argsort(weights)[-len(true) :]])
            for found, weights in zip(of["parameters"], of["weights"], strict=True)
        ]
        apart[f"found by {learner} on {dataset}, apart"] = float((np.abs(np.array(sigmas) - true) / true).max())
    return apart


def derived(item: PaperItem, folds: pd.DataFrame) -> dict[str, float]:
    """Return the numbers that follow from the fold table of an item and that its claims may name.

    ``"error of A on D"`` is the mean error of a learner on a data set; further values are `cosines` and
    `deviations_found`.
    """
    means = folds.groupby(["dataset", "learner"], sort=False)["error"].mean()
    numbers = {f"error of {learner} on {dataset}": float(error) for (dataset, learner), error in means.items()}
    numbers |= cosines(item, folds) if item.figure.kind == "weights" else {}
    return numbers | (deviations_found(item, folds) if item.found else {})


def claims(item: PaperItem, folds: pd.DataFrame | None, values: Mapping[str, float]) -> list[Verdict]:
    """Return the verdict on every check of the claims of an item."""
    verdicts = []
    for claim in item.claims:
        if claim.value is not None:
            evidence = tuple(_valued(claim, values))
            verdicts.append(Verdict(claim.says, "", overall(evidence), evidence, "", claim.identity))
        for pair in claim.pairs:
            evidence = tuple(_compared(claim, pair, item, folds))
            learners = ", ".join(pair) if len(claim.pairs) > 1 else ""
            verdicts.append(Verdict(claim.says, claim.expected, overall(evidence), evidence, learners, claim.identity))
    return verdicts


def by_claim(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Return the checks of each claim, in order."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.says, []).append(verdict)
    return found


def overall(evidence: Sequence[Evidence | Verdict]) -> Word:
    """Return the verdict on a check, or on a claim: it holds where it does on every data set, or by every check."""
    words = {one.word for one in evidence}
    if not words or "cannot be judged" in words:
        return "cannot be judged"
    return "not reproduced" if "not reproduced" in words else "not significant" if len(words) > 1 else words.pop()


def _valued(claim: ClaimConfig, values: Mapping[str, float]) -> list[Evidence]:
    """Return the evidence of a claim on a number of a special study."""
    here = values.get(str(claim.value))
    rows = []
    for sign, bound in ((1, claim.above), (-1, claim.below)):
        if bound is None:
            continue
        limit = bound if isinstance(bound, float | int) else values.get(bound)
        on = f"{claim.value} {'above' if sign > 0 else 'below'} {bound if isinstance(bound, str) else f'{bound:g}'}"
        if here is None or limit is None:
            word: Word = "cannot be judged"
        else:
            word = "holds" if sign * (here - limit) > 0 else "not reproduced"
        rows.append(Evidence(on, here, limit, word=word))
    return rows


def _compared(claim: ClaimConfig, pair: Pair, item: PaperItem, folds: pd.DataFrame | None) -> list[Evidence]:
    """Return the evidence of a claim on two learners."""
    if folds is None:
        return []
    known = list(folds["dataset"].unique())
    wanted = [name for name in known if not claim.on or name in claim.on or panel(name)[0] in claim.on]
    lacking = [one for one in claim.on if not any(one in (name, panel(name)[0]) for name in known)]
    evidence = [Evidence(name) for name in lacking]
    if claim.across or claim.measure == "rank":
        return [*evidence, _across(claim, pair, item, folds, wanted)]
    has = folds.groupby("dataset")["learner"].agg(set)
    both = [name for name in wanted if claim.on or set(pair) <= has[name]]
    return [*evidence, *(_tested(claim, pair, folds, name) for name in both)]


def _tested(claim: ClaimConfig, pair: Pair, folds: pd.DataFrame, dataset: str) -> Evidence:
    """Return the paired tests of one data set."""
    table = pd.concat([measured(folds, dataset, learner, claim.measure) for learner in pair], axis=1, join="inner")
    if table.empty:
        return Evidence(dataset)
    errors = table * _sign(claim)
    trials, share = errors.to_numpy(), _share_of_test(folds, dataset)
    repeats = [group.to_numpy() for _, group in errors.groupby(level=0)]
    if all(len(group) == 1 for group in repeats):
        repeats = [trials]  # of a split, whose repeats are one trial each
    plain = [paired_p(*group.T) for group in repeats]
    known = [one for one in plain if one is not None]
    below = sum(one < SIGNIFICANCE for one in known)
    one = _judged(
        claim, dataset, table.mean(), corrected_p(trials[:, 0], trials[:, 1], share), detectable(trials, share)
    )
    return replace(one, paired=plain[0], below=below, repeats=len(known))


def detectable(trials: np.ndarray, share: float) -> float | None:
    """Return the mean difference that the corrected test finds at its level with a power of 0.8, or None.

    Parameters
    ----------
    trials : ndarray of shape (n, 2)
        Errors of both learners.
    share : float
        See `share_of_test`.
    """
    n = len(trials)
    if n < 2:
        return None
    quantiles = stats.t.ppf([1 - SIGNIFICANCE, POWER], n - 1).sum()
    return float(quantiles * np.sqrt((1 / n + share) * np.diff(trials, axis=1).var(ddof=1)))


def _sign(claim: ClaimConfig) -> float:
    """Return what turns a measure into one of which less is better."""
    return -1.0 if claim.measure in HIGHER_IS_BETTER else 1.0


def _judged(claim: ClaimConfig, on: str, both: pd.Series, p: float | None, detected: float | None) -> Evidence:
    """Return the evidence of a number of the better and of the other, and the p-value that the first is better."""
    better, than = map(float, both)
    direction = _sign(claim) * better < _sign(claim) * than
    word: Word = "not significant" if direction else "not reproduced"
    if claim.expected == "direction":
        word = "holds" if direction else "not reproduced"
    elif claim.expected == "none":
        word = "cannot be judged" if p is None else "holds" if p >= SIGNIFICANCE else "not reproduced"
    elif p is not None and p < SIGNIFICANCE:
        word = "holds"
    return Evidence(on, better, than, p, detectable=detected if claim.expected == "none" else None, word=word)


def _share_of_test(folds: pd.DataFrame, dataset: str) -> float:
    of = folds[folds["dataset"] == dataset]
    return share_of_test(of["n_test"].to_numpy(), of["n_rows"].to_numpy())


def _across(claim: ClaimConfig, pair: Pair, item: PaperItem, folds: pd.DataFrame, datasets: Sequence[str]) -> Evidence:
    """Return the signed-rank test over data sets."""
    if claim.measure == "rank":
        of = ranks(folds, ranked(item, folds))
    else:
        by = folds.assign(seconds=seconds(folds))
        of = by.pivot_table(index="dataset", columns="learner", values=claim.measure, aggfunc="mean", sort=False)
    table = of.reindex(columns=[*pair])
    table = table[table.index.isin(datasets)].dropna()
    if table.empty:
        return Evidence(f"{len(datasets)} data sets")
    values = _sign(claim) * table.to_numpy(dtype=float)
    both = table.median() if claim.measure == "rank" else table.mean()
    return _judged(claim, f"{len(table)} data sets", both, signed_rank_p(*values.T), detectable(values, 0.0))


def signed_rank_p(errors: np.ndarray, baseline: np.ndarray) -> float | None:
    """Return the p-value of Wilcoxon's one-sided signed-rank test that errors are lower than those of a baseline.

    Parameters
    ----------
    errors, baseline : ndarray of shape (n,)
        Of the same data sets. Pairs without a difference are left out.

    Returns
    -------
    p : float or None
        Exact for up to 50 pairs without ties; 1 where no pair differs, None for fewer than two pairs.
    """
    if len(errors) < 2:
        return None
    difference = np.round(errors - baseline, 12)  # so that ties are ties
    difference = difference[difference != 0]
    if len(difference) == 0:
        return 1.0
    distinct = len(np.unique(np.abs(difference))) == len(difference)
    method = "exact" if distinct and len(difference) <= 50 else "asymptotic"
    return float(stats.wilcoxon(difference, alternative="less", method=method).pvalue)


def worth(folds: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the learner of the lowest mean error next to the search over one kernel, a row per data set that has one.

    p is that of the corrected test that the learner has the lower error; seconds are means over trials, the share of
    the pass over the base kernels included.
    """
    rows = []
    for name, group in folds.groupby("dataset", sort=False):
        means, dataset = group.groupby("learner", sort=False)["error"].mean(), str(name)
        if GRID_SEARCH_TITLE not in means or len(means) < 2:
            continue
        pair = (str(means.drop(GRID_SEARCH_TITLE).idxmin()), GRID_SEARCH_TITLE)
        table = pd.concat([measured(folds, dataset, one, "error") for one in pair], axis=1, join="inner").to_numpy()
        share = _share_of_test(folds, dataset)
        p, p_search = (corrected_p(table[:, i], table[:, 1 - i], share) for i in (0, 1))
        verdict = "no difference"
        if p is not None and p < SIGNIFICANCE:
            verdict = "yes"
        elif p_search is not None and p_search < SIGNIFICANCE:
            verdict = "no, the search is better"
        row = {"data set": dataset, "best learner": pair[0]}
        for start, learner in zip(("", f"{GRID_SEARCH_TITLE}: "), pair, strict=True):
            row[f"{start}error"] = f"{means[learner]:.4g}"
            row[f"{start}seconds"] = f"{measured(folds, dataset, learner, 'seconds').mean():.3g}"
        rows.append(row | {"p, learner better": short_p(p), "worth it": verdict})
    return rows


def failing(checks: Sequence[CellConfig], folds: pd.DataFrame | None, values: Mapping[str, float]) -> list[str]:
    """Return one sentence a number that lies outside its interval, or is missing."""
    sentences = []
    for check in checks:
        for measure, (low, high) in check.measures().items():
            what, here = measure, values.get(measure)
            if check.name is None:
                what = f"{check.dataset}, {check.learner}: {measure}"
                if folds is not None and len(of := measured(folds, check.dataset, check.learner, measure)):
                    here = float(of.mean())
            if here is None:
                sentences.append(f"{what} is missing, expected {low:g} to {high:g}.")
            elif not low <= here <= high:
                sentences.append(f"{what} is {here:.4g}, expected {low:g} to {high:g}.")
    return sentences


@dataclass(frozen=True)
class StudyResult:
    """Numbers, tables and figures of one item.

    Attributes
    ----------
    folds : DataFrame or None
        The fold table, with the columns of `tasks.measure.evaluation.COLUMNS`, where learners were compared.
    values : dict of str to float
        Named numbers, such as ``"rho kinematics"``, that claims and printed cells speak of; ``"rho kinematics sd"`` is
        the deviation of that one.
    tables : list of (str, list of dict)
        Caption and rows of tables to show as they are; the columns are the keys, in order.
    figures : dict of str to Figure
        File name without its ending -> figure, drawn by `matplotlib.figure.Figure` alone.
    """

    folds: pd.DataFrame | None = None
    values: dict[str, float] = field(default_factory=dict)
    tables: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)


class Summary(TypedDict):
    """How much of an item was found again, and how much of it an earlier item has as well, which counts there alone.

    A claim holds where all its checks do. Identities are no checks.
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
class Kept:
    """An item with results on disk.

    Attributes
    ----------
    item : PaperItem
    result : StudyResult
        Without figures.
    figures : tuple of str
        Their file names.
    facts : dict
        seconds, cores, data, date, quick, environment and the digest of the study.
    folder : Path
    """

    item: PaperItem
    result: StudyResult
    figures: tuple[str, ...]
    facts: dict[str, Any]
    folder: Path

    @property
    def values(self) -> dict[str, float]:
        """The named numbers: those of a study, and those that follow from trials."""
        folds = self.result.folds if self.item.is_comparison else None
        return self.result.values | ({} if folds is None else derived(self.item, folds))

    @property
    def partial(self) -> bool:
        """Whether it is a reduced form or another reading, which may lack data sets and learners."""
        return bool(self.facts["quick"]) or self.item.name.startswith(f"{self.item.same_as}.")

    def cells(self) -> list[Cell]:
        """Return the paper's numbers next to ours; of a part those that it has."""
        found = cells(self.item, self.result.folds, self.values)
        return [cell for cell in found if cell.here is not None or not self.partial]

    def claims(self) -> list[Verdict]:
        """Return the verdict on each check of the claims; of a part on what it can judge."""
        verdicts = claims(self.item, self.result.folds, self.values)
        if not self.partial:
            return verdicts
        known = [(one, tuple(of for of in one.evidence if of.word != "cannot be judged")) for one in verdicts]
        return [replace(one, word=overall(of), evidence=of) for one, of in known if of]

    def summary(self) -> Summary:
        """Return how much of it is as published."""
        (found,) = distinct([self])
        return found.summary()


@dataclass(frozen=True)
class Found:
    """What was found of an item: numbers that can be compared, and checks; without what an earlier item has as well."""

    numbers: list[Cell]
    checks: list[Verdict]
    before: int
    seconds: float

    @property
    def claims(self) -> dict[str, list[Verdict]]:
        """The checks of each claim that are no identities."""
        return by_claim([one for one in self.checks if not one.identity])

    def summary(self) -> Summary:
        """Return how much of it is as published."""
        claims = [overall(of) for of in self.claims.values()]
        checks = [one.word for of in self.claims.values() for one in of]
        return Summary(
            numbers=len(self.numbers),
            within_one=sum(of.within(1) for of in self.numbers),
            within_two=sum(of.within(2) for of in self.numbers),
            checks=len(checks),
            checks_hold=checks.count("holds"),
            claims=len(claims),
            claims_hold=claims.count("holds"),
            identities=len(self.checks) - len(checks),
            printed_before=self.before,
            seconds=self.seconds,
        )


def distinct(kept: Sequence[Kept]) -> list[Found]:
    """Return what was found of each item; the same print with the same result counts once."""
    seen: set[Any] = set()
    found = []
    for one in kept:
        of = {
            (cell.dataset, cell.learner, cell.measure, cell.paper, cell.paper_sd, cell.here): cell
            for cell in one.cells()
            if cell.apart is not None
        }
        verdicts = {(verdict.expected, verdict.evidence): verdict for verdict in one.claims()}
        numbers = [cell for key, cell in of.items() if key not in seen]
        checks = [verdict for key, verdict in verdicts.items() if key not in seen]
        found.append(Found(numbers, checks, len(of) - len(numbers), float(one.facts["seconds"])))
        seen |= of.keys() | verdicts.keys()
    return found


def total(summaries: Sequence[Summary]) -> Summary:
    """Return the summary of several items."""
    return Summary(**{key: sum(one[key] for one in summaries) for key in Summary.__annotations__})  # type: ignore


def systematic(cells: Sequence[Cell]) -> list[str]:
    """Return a sentence for the numbers of one measure that all lie on one side of the paper's.

    Of one data set at least three, on average at least one deviation off; of all data sets of a metric at least eight.
    """
    sentences = []
    known = [cell for cell in cells if cell.apart is not None and cell.paper_sd and cell.learner]
    for what, least, off in (("dataset", 3, 1.0), ("metric", 8, 0.0)):
        groups: dict[tuple[str, str], list[float]] = {}
        for cell in known:
            groups.setdefault((str(getattr(cell, what)), cell.measure), []).append(float(cell.apart or 0.0))
        for (name, measure), apart in groups.items():
            side = {np.sign(round(one, 1)) for one in apart}
            if len(apart) >= least and side in ({1.0}, {-1.0}) and abs(np.mean(apart)) >= off:
                words = "above" if side == {1.0} else "below"
                low, high = sorted(map(abs, (min(apart), max(apart))))
                where = name if what == "dataset" else f"Data sets measured by {name}"
                sentences.append(
                    f"{where}: all {len(apart)} values of {measure} are {words} the paper's, "
                    f"by {low:.1f} to {high:.1f} deviations."
                )
    return sentences
