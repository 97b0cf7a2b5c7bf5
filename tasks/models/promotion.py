"""Challenger against champion: two recipes on the same rows and folds, and the decision that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.schema import CompareConfig, DatasetConfig
from learnkernels.kernels.model import Model
from learnkernels.kernels.tables.columns import NumberColumn

from ..data.dataset import DatasetRef, load_dataset
from ..evidence.markdown import render
from ..evidence.report import as_sentence
from ..measure.t_tests import corrected_p, higher_p, paired_p, share_of_test
from .newest import NewestRows
from .registry import CHAMPION

OF_THE_RECIPE = (
    "target", "positive", "task", "drop", "features", "columns", "scale", "scale_on", "missing", "distinct", "ngrams",
    "bytes", "weights",
)  # fmt: skip
"""What of a data set's configuration belongs to a recipe; `path`, `where` and `test` say which rows there are."""


COPIES = 0.1
"""Largest rise in the share of rows that repeat others with which errors on common folds still count."""

LOST = 0.4
"""Share of the champion's rows that a refresh may lack: half of a table that grew is more than half of earlier rows."""

FEWER = 0.1
"""Share of the champion's rows that a refresh may lack without a remark."""

IMPLAUSIBLE = 0.25
"""Share of the champion's expected error below which a refresh seems to have learned from a leak."""

SURE = 0.02
"""Level at which this fall must be significant: small errors vary by more than that factor."""

UNITS = 10.0
"""Factor by which the spread of a column may change before it has other units."""

SAME_WEIGHTS = 1e-9
"""Relative difference up to which two weights of a row are equal: weights of another scale differ by rounding."""


@dataclass(frozen=True)
class Contender:
    """A version of the model in a challenge, and its errors.

    Attributes
    ----------
    version : int
    learner : str
        Its name in reports.
    expected : float
        Test error when it was trained, on its own rows; in the units of `metric`.
    metric : str
    recipes, digest : tuple of str, str
        Digests of its recipe, as it was chosen and with all that it was chosen from, and of the rows it learned from.
    stored : tuple of float
        The error of each trial when it was trained; empty where the evidence is gone.
    columns : mapping of str to str
        Columns that it reads, and what each is treated as; empty where features have no columns of their own.
    spreads : mapping of str to float
        Of those that are scaled.
    classes : tuple of str
        Empty for a regression.
    copied : float or None
        Share of its rows that repeat others, where that is known.
    n_rows : int
        Rows that it learned from; 0 where that is unknown.
    leaks : tuple of str or None
        Columns of which each alone determines the target, where that is known.
    scored : tuple of str or None
        Columns of the input that it scored last; None where it has scored none.
    errors : tuple of float
        Test error of its recipe in each trial on the common folds.
    test_share : float
        Test rows of a trial as a share of those that train.
    """

    version: int
    learner: str
    expected: float
    metric: str = ""
    recipes: tuple[str, ...] = ()
    digest: str = ""
    stored: tuple[float, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    copied: float | None = None
    n_rows: int = 0
    leaks: tuple[str, ...] | None = None
    scored: tuple[str, ...] | None = None
    errors: tuple[float, ...] = ()
    test_share: float = 0.0

    def measured(self, folds: pd.DataFrame, in_training: bool = False) -> Contender:
        """Return the contender with the errors of trials on common folds, or of those in its training."""
        errors, share = tuple(folds["error"].tolist()), share_of_test(*folds[["n_test", "n_rows"]].to_numpy().T)
        if in_training:
            return replace(self, stored=errors, test_share=share)
        return replace(self, errors=errors, test_share=share)

    @property
    def mean(self) -> float:
        """Mean of its errors on the common folds, or on its own where there are none in common."""
        return float(np.mean(self.errors)) if self.errors else self.expected

    @property
    def shown(self) -> str:
        """Mean and deviation of its errors, as text."""
        errors = self.errors or self.stored
        sd = f" ± {np.std(errors, ddof=1):.2g}" if len(errors) > 1 else ""
        return f"{self.mean:.4g}{sd}"

    def beyond(self, other: Contender) -> list[str]:
        """Return its columns that another version does not have."""
        return [name for name in self.columns if name not in other.columns]

    def differences(self, other: Contender) -> list[str]:
        """Return how its columns differ from those of another version, in words."""
        without, added = other.beyond(self), self.beyond(other)
        both = [(name, of, other.columns[name]) for name, of in self.columns.items() if name in other.columns]
        return [
            *([f"without {listed(without)}"] if without else []),
            *([f"with {listed(added)}"] if added else []),
            *(f"{name!r} as {ours} in place of {theirs}" for name, ours, theirs in both if ours != theirs),
        ]

    def faults(self, other: Contender) -> list[str]:
        """Return, in words, what another version has learned from and this one no longer can."""
        tasks = ["a classification" if of.classes else "a regression" for of in (self, other)]
        gone = [label for label in other.classes if label not in self.classes]
        said = [of for of in self.differences(other) if not of.startswith("with ")]
        for name, now in self.spreads.items():
            before = other.spreads.get(name, now)
            if max(now / before, before / now) > UNITS:
                said.append(f"{name!r} with a spread of {now:.3g} in place of {before:.3g}")
        copies = self.copied is not None and other.copied is not None and self.copied > other.copied + COPIES
        lost = 0 < self.n_rows < (1 - LOST) * other.n_rows
        return [
            *([f"learned {', '.join(said)}"] if said else []),
            *([f"learned {tasks[0]} in place of {tasks[1]}"] if tasks[0] != tasks[1] else []),
            *([f"has no rows of class {listed(gone)}"] if gone and self.classes else []),
            *([f"learned from rows of which {self.copied:.0%} repeat others"] if copies else []),
            *([f"learned {self.fewer_rows(other)}"] if lost else []),
            *self._implausible(other),
        ]

    def fewer_rows(self, other: Contender) -> str:
        """Return how many rows it learned from, in words, if these are clearly fewer than those of another version."""
        if not self.n_rows or self.n_rows >= (1 - FEWER) * other.n_rows:
            return ""
        return f"from {self.n_rows:,} rows in place of {other.n_rows:,}"

    def _implausible(self, other: Contender) -> list[str]:
        """Return, in words, that its expected error is lower than that of another version by more than is plausible."""
        if self.metric != other.metric or self.expected >= IMPLAUSIBLE * other.expected:
            return []
        p = higher_p(np.array(other.stored), np.array(self.stored), self.test_share)
        if p is not None and p >= SURE:
            return []
        return [f"has less than {IMPLAUSIBLE:.0%} of its error, as if a column held the target"]

    def dangers(self, champion: Contender) -> list[str]:
        """Return, in words, the new columns that leak the target or that the rows to score lack; of any recipe."""
        known = champion.columns if champion.leaks is None else champion.leaks
        leaks = [name for name in self.leaks or () if name not in known]
        absent = [] if champion.scored is None else [name for name in self.columns if name not in champion.scored]
        verb = "determines" if len(leaks) == 1 else "each determine"
        return [
            *([f"reads {listed(leaks)}, which alone {verb} the target"] if leaks else []),
            *([f"reads {listed(absent)}, which the rows to score lack"] if absent else []),
        ]


@dataclass(frozen=True)
class Challenge:
    """Two versions of a model of which one challenges the other, and who is champion then.

    Attributes
    ----------
    model : str
    challenger, defender : Contender
        The defender is None where there is no champion.
    reference : Contender or None
        The version whose expected error a refresh is held to: the best of those that refreshed each other, of which the
        champion is the last.
    level : float
        Significance that a decision needs.
    margin : float
        What a refresh may err more, as a share of the champion's error.
    refresh : bool
        Whether a version of the same recipe takes over that learned from other rows and is not worse.
    dataset, digest : str
        What both were measured on.
    champion : int
        Version that holds the alias afterwards; 0 where nothing is decided.
    moved : bool
        Whether the alias moved.
    reason : str
        One sentence.
    test : str
        What was tested: that the challenger is "better", "not worse", or "worse than before"; empty where nothing was.
    p : float or None
        Of that test, a corrected resampled t-test.
    uncorrected_p : float or None
        Of the papers' paired t-test that the challenger is better.
    newest : NewestRows or None
        Errors on rows that the champion has not seen, of which it is scored as it is in use.
    """

    model: str
    challenger: Contender
    defender: Contender | None
    reference: Contender | None
    level: float
    margin: float
    refresh: bool
    dataset: str = ""
    digest: str = ""
    champion: int = 0
    moved: bool = False
    reason: str = ""
    test: str = ""
    p: float | None = None
    uncorrected_p: float | None = None
    newest: NewestRows | None = None

    @property
    def same_version(self) -> bool:
        """Whether the challenger is the champion."""
        return self.defender is not None and self.defender.version == self.challenger.version

    @property
    def same_recipe(self) -> bool:
        """Whether both have one recipe."""
        return self.defender is not None and not set(self.challenger.recipes).isdisjoint(self.defender.recipes)

    @property
    def refusals(self) -> list[str]:
        """Why the champion stays, in words, whatever the errors are."""
        if self.defender is None:
            return []
        dangers = self.challenger.dangers(self.defender)
        return [*self.challenger.faults(self.defender), *dangers] if self.same_recipe else dangers

    @property
    def measurable(self) -> bool:
        """Whether errors on common folds can decide."""
        ours, theirs = self.challenger, self.defender
        if theirs is None or self.same_version or self.refusals:
            return False
        refreshes = self.refresh and ours.digest != theirs.digest
        return refreshes or not self.same_recipe

    def decided(self, moved: bool, reason: str, **tested: Any) -> Challenge:
        """Return the challenge with the decision that the challenger is champion, or the defender stays."""
        champion = self.challenger if moved or self.defender is None else self.defender
        return replace(self, champion=champion.version, moved=moved, reason=reason, **tested)


def decide(of: Challenge) -> Challenge:
    """Return who is champion after a challenge.

    A version of another recipe takes over where its errors are lower: by a corrected resampled t-test on common folds.
    One of the same recipe that learned from other rows, a *refresh*, takes over where it has all columns and classes of
    the champion, its error is not above the stored one by more than the margin, and on common folds it is not worse.
    None takes over that reads a new column which alone determines the target, or which the rows to score lack.

    References
    ----------
    Nadeau, Bengio (2003), Machine Learning 52:239-281, section 3.
    """
    ours, theirs = of.challenger, of.defender
    if theirs is None:
        leaks = [f"check: {listed(ours.leaks)} alone determines the target"] if ours.leaks else []
        reason = f"version {ours.version} is the first champion, as there was none to beat{_and(leaks)}"
        return of.decided(True, reason)
    if of.same_version:
        return of.decided(False, f"version {ours.version} is the champion already")
    if not of.same_recipe:
        return _if_better(of, ours, theirs)
    both = f"versions {theirs.version} and {ours.version} have the same recipe"
    if ours.digest == theirs.digest:
        return of.decided(False, f"{both} and learned from the same rows; version {theirs.version} stays")
    if not of.refresh:
        return of.decided(False, f"{both}; version {theirs.version} stays (refresh lets newer rows take over)")
    return _if_not_worse(of, ours, theirs)


def _if_better(of: Challenge, ours: Contender, theirs: Contender) -> Challenge:
    """Decide between two recipes by their errors on common folds."""
    if of.refusals:
        reason = f"version {ours.version} {' and '.join(of.refusals)}, so version {theirs.version} stays; {_remedy(of)}"
        return of.decided(False, reason)
    errors, baseline = np.array(ours.errors), np.array(theirs.errors)
    p = corrected_p(errors, baseline, ours.test_share)
    wins = p is not None and p < of.level
    outcome = "is significantly better and takes over from" if wins else "is not significantly better than"
    reason = (
        f"version {ours.version}{_remarks(ours, theirs)} {outcome} version {theirs.version}: {ours.shown} "
        f"against {theirs.shown} on the same folds ({_percent(ours.mean, theirs.mean)}{_tested(p)}, level "
        f"{of.level:g}){_on_newest_rows(of)}"
    )
    return of.decided(wins, reason, test="better", p=p, uncorrected_p=paired_p(errors, baseline))


def _if_not_worse(of: Challenge, ours: Contender, theirs: Contender) -> Challenge:
    """Decide whether a version of the same recipe, from other rows, is as good as the champion."""
    held = of.reference or theirs
    allowed, limits = 1 + of.margin, f"margin {100 * of.margin:g} %, level {of.level:g}"
    comparable = ours.metric == held.metric
    p = higher_p(np.array(ours.stored), allowed * np.array(held.stored), ours.test_share) if comparable else None
    above = ours.expected > allowed * held.expected if p is None else p < of.level
    change = _percent(ours.expected, held.expected)
    errors = (
        f"expected error {ours.expected:.4g} against {held.expected:.4g} of version {held.version} "
        f"({change}{_tested(p, ' that it is higher')}"
    )
    if of.refusals or (comparable and above):
        why = " and ".join(of.refusals) or "is worse"
        reason = f"version {ours.version} {why}, so version {theirs.version} stays: {errors}, {limits}); {_remedy(of)}"
        return of.decided(False, reason, test="worse than before", p=p)
    now, then = np.array(ours.errors), np.array(theirs.errors)
    refresh = f"version {ours.version}, of the same recipe on other rows{_remarks(ours, theirs)},"
    if np.array_equal(now, then):  # a recipe against itself
        reason = (
            f"{refresh} is not worse and takes over from version {theirs.version}: {errors}, {limits})"
            f"{_on_newest_rows(of)}"
        )
        return of.decided(True, reason, test="worse than before", p=p)
    never_above = len(now) == len(then) and bool((now <= then).all())
    p = 0.0 if never_above else corrected_p(now - of.margin * then.mean(), then, ours.test_share)
    passes = p is not None and p < of.level
    outcome = "is not worse and takes over from" if passes else "may be worse than"
    reason = (
        f"{refresh} {outcome} version {theirs.version}: {ours.shown} against {theirs.shown} on the same folds "
        f"({_percent(ours.mean, theirs.mean)}{_tested(p)}, {limits}); {errors}){_on_newest_rows(of)}"
    )
    return of.decided(passes, reason, test="not worse", p=p, uncorrected_p=paired_p(now, then))


def _remedy(of: Challenge) -> str:
    """Return what to do about a refusal, in words."""
    assert of.defender is not None
    correct = "drop such columns" if of.challenger.dangers(of.defender) else "correct the rows"
    return f"{correct}, or set the alias {CHAMPION} in MLflow"


def _remarks(ours: Contender, theirs: Contender) -> str:
    """Return, in brackets, how columns and number of rows differ from those of the champion, if they do."""
    fewer = ours.fewer_rows(theirs)
    return _and([*ours.differences(theirs), *([fewer] if fewer else [])])


def _and(differences: list[str]) -> str:
    return f" ({', '.join(differences)})" if differences else ""


def _percent(error: float, other: float) -> str:
    """Return by how much an error differs from another, and a comma; nothing where the other is zero."""
    return f"{100 * (error / other - 1):+.2g} %, " if other else ""


def _on_newest_rows(of: Challenge) -> str:
    """Return the errors on rows that the champion has not seen, in words; empty where they were not measured."""
    newest, champion = of.newest, of.defender
    if newest is None or champion is None:
        return ""
    tested = "no row tells them apart" if newest.p is None else f"p = {newest.p:.3g}"
    return (
        f"; on {newest.n_rows:,} rows that version {champion.version} has not seen, {newest.measure} "
        f"{newest.challenger:.4g} against {newest.champion:.4g} of version {champion.version} as it is in use "
        f"({_percent(newest.challenger, newest.champion)}{tested})"
    )


def _tested(p: float | None, claim: str = "") -> str:
    return "no test with fewer than two trials" if p is None else f"p = {p:.3g}{claim}"


def recipe(config: CompareConfig) -> dict[str, Any]:
    """Return what of a configuration decides which model given rows lead to."""
    keys = ("learners", "predictor", "statistics", "normalize", "centering", "kernels")
    return config.model_dump(
        mode="json",
        include={**dict.fromkeys(keys, True), "datasets": {0: set(OF_THE_RECIPE)}},
        exclude={"learners": {"__all__": {"label"}}},
        exclude_defaults=True,
    )


def columns_of(model: Model, data: DatasetConfig) -> tuple[dict[str, str], dict[str, float]]:
    """Return the columns that a model reads, what each is treated as, and the spreads of those that are scaled.

    N-grams, bytes and sparse rows have no columns of their own.
    """
    if data.ngrams is not None or data.bytes is not None or sparse.issparse(model.estimator.kernel_.X):
        return {}, {}
    if model.table is None:
        kinds, spreads = dict.fromkeys(model.features, "number"), dict(zip(model.features, model.spread, strict=True))
    else:
        kinds = {column.name: column.kind for column in model.table.columns}
        numbers = [column for column in model.table.columns if isinstance(column, NumberColumn)]
        spreads = {of.name: np.subtract(*np.quantile(of.knots or (0, 2 * of.spread), (0.75, 0.25))) for of in numbers}
    return kinds, {name: float(spread) for name, spread in spreads.items() if spread not in (0.0, 1.0)}


def on_the_same_folds(challenger: CompareConfig, champion: CompareConfig, without: Sequence[str] = ()) -> CompareConfig:
    """Return the champion's recipe on the challenger's rows and folds: kernels, learner, columns, scaling.

    Columns of the challenger's table that the champion did not have are left out by name.
    """
    own = {key: getattr(champion.datasets[0], key) for key in OF_THE_RECIPE}
    own["drop"] = (*own["drop"], *without)
    data = challenger.datasets[0].model_copy(update=own)
    return champion.model_copy(
        update={
            "name": challenger.name,
            "data_dir": challenger.data_dir,
            "datasets": (data,),
            "protocol": challenger.protocol,
            "dask": challenger.dask,
            "tracking": challenger.tracking,
        }
    )


def require_same_rows(model: str, challenger: DatasetRef, champion: DatasetRef) -> None:
    """Raise InputError if two recipes do not lead to the same rows and target, so that folds would differ."""
    rows = load_dataset(challenger), load_dataset(champion)
    our_weights, their_weights = (np.ones(len(of.target)) if of.weights is None else of.weights for of in rows)
    if len(our_weights) != len(their_weights) or not np.allclose(our_weights, their_weights, rtol=SAME_WEIGHTS, atol=0):
        raise InputError(
            f"model {model}: the recipes of champion and challenger weigh the rows of {challenger.source} differently, "
            "so their errors cannot be compared; train a challenger with the same 'weights'."
        )
    ours, theirs = (of.target for of in rows)
    if (ours.task, ours.classes) != (theirs.task, theirs.classes) or not np.array_equal(ours.values, theirs.values):
        raise InputError(
            f"model {model}: the recipes of champion and challenger take other rows or another target from "
            f"{challenger.source} ({champion.n_rows} and {challenger.n_rows} rows), so they share no folds; train a "
            "challenger with the same target and the same 'missing'."
        )


def describe_decision(decision: Challenge, links: dict[str, str]) -> str:
    """Return the report of a decision."""
    defender = decision.defender
    return render(
        "decision.md",
        decision=decision,
        reason=as_sentence(decision.reason),
        trials=_trials(defender, decision.challenger) if defender is not None and defender.errors else [],
        shown_p=shown_p,
        links=links,
    )


def _trials(defender: Contender, challenger: Contender) -> list[dict[str, str]]:
    """Return one row per trial, and one of the means."""
    sides = {
        f"{role}, version {of.version} ({of.learner})": [*(f"{error:.4g}" for error in of.errors), of.shown]
        for role, of in (("champion", defender), ("challenger", challenger))
    }
    trials = [*map(str, range(len(challenger.errors))), "mean"]
    return [dict(zip(("trial", *sides), row, strict=True)) for row in zip(trials, *sides.values(), strict=True)]


def shown_p(p: float | None) -> str:
    """Return a p-value as text."""
    return "none" if p is None else f"{p:.3g}"
