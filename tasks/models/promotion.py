"""Compare a challenger with the champion on the same folds, and decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from learnkernels.conf.errors import InputError, listed
from learnkernels.conf.schema import CompareConfig, DatasetConfig
from learnkernels.kernels.column_encoding.columns import NumberColumn
from learnkernels.kernels.model import Model

from ..data.dataset import Dataset, DatasetRef, load_dataset
from ..measure.t_tests import corrected_p, higher_p, paired_p, share_of_test
from ..reporting.markdown import render
from ..reporting.report import as_sentence
from .newest import NewestRows
from .registry import CHAMPION

RECIPE_KEYS = (
    "target", "positive", "task", "drop", "features", "columns", "scale", "scale_on", "missing", "distinct", "ngrams",
    "bytes", "weights",
)  # fmt: skip
"""Keys of a data set in the recipe; the others select its rows."""


@dataclass(frozen=True)
class Contender:
    """Model version in a challenge for champion, with test errors.

    `expected` is the test error at training. `recipes` are digests of the recipe,
    chosen and with all candidates. `stored` and `errors` are errors of trials, at
    training and on common folds. `leaks` each determine the target.
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

    def with_errors(self, folds: pd.DataFrame, in_training: bool = False) -> Contender:
        """Return a copy with errors from `folds`: shared ones, or of its training."""
        errors = tuple(folds["error"].tolist())
        test_share = share_of_test(
            folds["n_test"].to_numpy(), folds["n_rows"].to_numpy()
        )
        if in_training:
            return replace(self, stored=errors, test_share=test_share)
        return replace(self, errors=errors, test_share=test_share)

    @property
    def mean(self) -> float:
        """Mean error of the version on shared folds, else the error at its training."""
        if not self.errors:
            return self.expected
        return float(np.mean(self.errors))

    @property
    def shown(self) -> str:
        """Mean and standard deviation of the version's errors, as text."""
        errors = self.errors or self.stored
        if len(errors) < 2:
            return f"{self.mean:.4g}"
        return f"{self.mean:.4g} ± {np.std(errors, ddof=1):.2g}"

    def additional_columns(self, other: Contender) -> list[str]:
        """Return this version's columns that another version lacks."""
        return [name for name in self.columns if name not in other.columns]

    def differences(self, other: Contender) -> list[str]:
        """Return phrases on differences of columns from another version."""
        phrases = []
        removed = other.additional_columns(self)
        if removed:
            phrases.append(f"without {listed(removed)}")
        added = self.additional_columns(other)
        if added:
            phrases.append(f"with {listed(added)}")
        return phrases + self._changed_kinds(other)

    def _changed_kinds(self, other: Contender) -> list[str]:
        return [
            f"{name!r} as {kind} in place of {other.columns[name]}"
            for name, kind in self.columns.items()
            if name in other.columns and kind != other.columns[name]
        ]

    def faults(self, other: Contender) -> list[str]:
        """Return phrases on defects of this version's training, relative to another's."""
        phrases = []
        lost_or_changed = []
        removed = other.additional_columns(self)
        if removed:
            lost_or_changed.append(f"without {listed(removed)}")
        lost_or_changed += self._changed_kinds(other)
        lost_or_changed += self._changed_units(other)
        if lost_or_changed:
            phrases.append(f"learned {', '.join(lost_or_changed)}")
        if self._task != other._task:
            phrases.append(f"learned {self._task} in place of {other._task}")
        missing_classes = [
            label for label in other.classes if label not in self.classes
        ]
        if missing_classes and self.classes:
            phrases.append(f"has no rows of class {listed(missing_classes)}")
        if self._has_more_copies(other):
            phrases.append(
                f"learned from rows of which {self.copied:.0%} repeat others"
            )
        # Half of a table that has grown since has over 60 % of the earlier rows
        if 0 < self.n_rows < 0.6 * other.n_rows:
            phrases.append(f"learned {self.fewer_rows(other)}")
        if self._is_implausible(other):
            phrases.append(
                "has less than 25% of its error, as if a column held the target"
            )
        return phrases

    @property
    def _task(self) -> str:
        return "a classification" if self.classes else "a regression"

    def _changed_units(self, other: Contender) -> list[str]:
        """Return phrases for columns whose spread changed over tenfold."""
        phrases = []
        for name, spread in self.spreads.items():
            earlier_spread = other.spreads.get(name, spread)
            if max(spread / earlier_spread, earlier_spread / spread) > 10.0:
                phrases.append(
                    f"{name!r} with a spread of {spread:.3g} in place of {earlier_spread:.3g}"
                )
        return phrases

    def _has_more_copies(self, other: Contender) -> bool:
        """Whether 10 % more rows are duplicates, so errors are incomparable."""
        if self.copied is None or other.copied is None:
            return False
        return self.copied > other.copied + 0.1

    def fewer_rows(self, other: Contender) -> str:
        """Return a phrase if training used below 90 % of another version's rows."""
        if not self.n_rows or self.n_rows >= 0.9 * other.n_rows:
            return ""
        return f"from {self.n_rows:,} rows in place of {other.n_rows:,}"

    def _is_implausible(self, other: Contender) -> bool:
        """Whether the error is below a quarter of the other's, at level 0.02."""
        if self.metric != other.metric or self.expected >= 0.25 * other.expected:
            return False
        p = higher_p(np.array(other.stored), np.array(self.stored), self.test_share)
        return p is None or p < 0.02

    def dangers(self, champion: Contender) -> list[str]:
        """Return phrases for new columns that leak the target or will be missing."""
        phrases = []
        known_leaks = champion.columns if champion.leaks is None else champion.leaks
        leaks = [name for name in self.leaks or () if name not in known_leaks]
        if leaks:
            verb = "determines" if len(leaks) == 1 else "each determine"
            phrases.append(f"reads {listed(leaks)}, which alone {verb} the target")
        if champion.scored is not None:
            absent = [name for name in self.columns if name not in champion.scored]
            if absent:
                phrases.append(f"reads {listed(absent)}, which the rows to score lack")
        return phrases


@dataclass(frozen=True)
class Challenge:
    """Challenge of a champion by a newer model version, and the decision.

    `reference` is the best version in the chain of refreshes, `margin` the tolerated
    relative increase of the error. `champion` is the version with the alias afterwards,
    0 before the decision.
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
        """Whether the challenger already is the champion."""
        return (
            self.defender is not None
            and self.defender.version == self.challenger.version
        )

    @property
    def same_recipe(self) -> bool:
        """Whether both versions have equal configurations, apart from rows."""
        return self.defender is not None and not set(
            self.challenger.recipes
        ).isdisjoint(self.defender.recipes)

    @property
    def best_refresh(self) -> Contender | None:
        """Reference with the challenger's metric, else the champion."""
        reference = self.reference
        if reference is None or reference.metric != self.challenger.metric:
            return self.defender
        return reference

    @property
    def refusals(self) -> list[str]:
        """Phrases on reasons to keep the champion, whatever the errors."""
        if self.defender is None:
            return []
        dangers = self.challenger.dangers(self.defender)
        if not self.same_recipe:
            return dangers
        return self.challenger.faults(self.defender) + dangers

    @property
    def measurable(self) -> bool:
        """Whether errors of both versions on shared folds decide."""
        if self.defender is None or self.same_version or self.refusals:
            return False
        if not self.same_recipe:
            return True
        return self.refresh and self.challenger.digest != self.defender.digest

    def with_decision(self, moved: bool, reason: str, **test_results: Any) -> Challenge:
        """Return a copy with the decision: whether the champion is replaced."""
        champion = self.challenger if moved or self.defender is None else self.defender
        return replace(
            self, champion=champion.version, moved=moved, reason=reason, **test_results
        )


def decide(challenge: Challenge) -> Challenge:
    """Decide whether the challenger becomes champion."""
    challenger = challenge.challenger
    champion = challenge.defender
    if champion is None:
        checks = (
            [f"check: {listed(challenger.leaks)} alone determines the target"]
            if challenger.leaks
            else []
        )
        reason = f"version {challenger.version} is the first champion, as there was none to beat{_in_brackets(checks)}"
        return challenge.with_decision(True, reason)
    if challenge.same_version:
        return challenge.with_decision(
            False, f"version {challenger.version} is the champion already"
        )
    if not challenge.same_recipe:
        return _decide_between_recipes(challenge, challenger, champion)
    same_recipe = (
        f"versions {champion.version} and {challenger.version} have the same recipe"
    )
    stays = f"version {champion.version} stays"
    if challenger.digest == champion.digest:
        return challenge.with_decision(
            False, f"{same_recipe} and learned from the same rows; {stays}"
        )
    if not challenge.refresh:
        return challenge.with_decision(
            False, f"{same_recipe}; {stays} (refresh lets newer rows take over)"
        )
    return _decide_refresh(challenge, challenger, champion)


def _decide_between_recipes(
    challenge: Challenge, challenger: Contender, champion: Contender
) -> Challenge:
    if challenge.refusals:
        reason = (
            f"version {challenger.version} {' and '.join(challenge.refusals)}, so version {champion.version} stays; "
            f"{_remedy(challenge)}"
        )
        return challenge.with_decision(False, reason)
    errors = np.array(challenger.errors)
    baseline = np.array(champion.errors)
    p = corrected_p(errors, baseline, challenger.test_share)
    is_better = p is not None and p < challenge.level
    outcome = "is not significantly better than"
    if is_better:
        outcome = "is significantly better and takes over from"
    reason = (
        f"version {challenger.version}{_remarks(challenger, champion)} {outcome} version {champion.version}: "
        f"{_on_same_folds(challenger, champion)} ({_change(challenger.mean, champion.mean)}{_p_text(p)}, level "
        f"{challenge.level:g}){_on_newest_rows(challenge)}"
    )
    return challenge.with_decision(
        is_better, reason, test="better", p=p, uncorrected_p=paired_p(errors, baseline)
    )


def _decide_refresh(
    challenge: Challenge, challenger: Contender, champion: Contender
) -> Challenge:
    reference = challenge.best_refresh or champion
    comparable = challenger.metric == reference.metric
    factor = 1 + challenge.margin
    p = None
    if comparable:
        limits = factor * np.array(reference.stored)
        p = higher_p(np.array(challenger.stored), limits, challenger.test_share)
    if p is None:
        is_above = challenger.expected > factor * reference.expected
    else:
        is_above = p < challenge.level
    expected = (
        f"expected error {challenger.expected:.4g} against {reference.expected:.4g} of version {reference.version} "
        f"({_change(challenger.expected, reference.expected)}{_p_text(p, ' that it is higher')}"
    )
    criteria = f"margin {100 * challenge.margin:g} %, level {challenge.level:g}"
    if challenge.refusals or (comparable and is_above):
        fault = " and ".join(challenge.refusals) or "is worse"
        reason = (
            f"version {challenger.version} {fault}, so version {champion.version} stays: {expected}, {criteria}); "
            f"{_remedy(challenge)}"
        )
        return challenge.with_decision(False, reason, test="worse than before", p=p)
    subject = f"version {challenger.version}, of the same recipe on other rows{_remarks(challenger, champion)},"
    errors = np.array(challenger.errors)
    baseline = np.array(champion.errors)
    # The same recipe has the same errors on common folds
    if np.array_equal(errors, baseline):
        reason = (
            f"{subject} is not worse and takes over from version {champion.version}: {expected}, {criteria})"
            f"{_on_newest_rows(challenge)}"
        )
        return challenge.with_decision(True, reason, test="worse than before", p=p)
    if len(errors) == len(baseline) and (errors <= baseline).all():
        p = 0.0
    else:
        p = corrected_p(
            errors - challenge.margin * baseline.mean(), baseline, challenger.test_share
        )
    is_not_worse = p is not None and p < challenge.level
    outcome = (
        "is not worse and takes over from" if is_not_worse else "may be worse than"
    )
    reason = (
        f"{subject} {outcome} version {champion.version}: {_on_same_folds(challenger, champion)} "
        f"({_change(challenger.mean, champion.mean)}{_p_text(p)}, {criteria}); {expected}){_on_newest_rows(challenge)}"
    )
    return challenge.with_decision(
        is_not_worse,
        reason,
        test="not worse",
        p=p,
        uncorrected_p=paired_p(errors, baseline),
    )


def _remedy(challenge: Challenge) -> str:
    assert challenge.defender is not None
    correction = (
        "drop such columns"
        if challenge.challenger.dangers(challenge.defender)
        else "correct the rows"
    )
    return f"{correction}, or set the alias {CHAMPION} in MLflow"


def _remarks(challenger: Contender, champion: Contender) -> str:
    remarks = challenger.differences(champion)
    fewer_rows = challenger.fewer_rows(champion)
    if fewer_rows:
        remarks.append(fewer_rows)
    return _in_brackets(remarks)


def _in_brackets(phrases: Sequence[str]) -> str:
    return f" ({', '.join(phrases)})" if phrases else ""


def _on_same_folds(challenger: Contender, champion: Contender) -> str:
    return f"{challenger.shown} against {champion.shown} on the same folds"


def _change(error: float, other: float) -> str:
    if not other:
        return ""
    return f"{100 * (error / other - 1):+.2g} %, "


def _on_newest_rows(challenge: Challenge) -> str:
    newest = challenge.newest
    champion = challenge.defender
    if newest is None or champion is None:
        return ""
    p_text = "no row tells them apart" if newest.p is None else f"p = {newest.p:.3g}"
    return (
        f"; on {newest.n_rows:,} rows that version {champion.version} has not seen, {newest.measure} "
        f"{newest.challenger:.4g} against {newest.champion:.4g} of version {champion.version} as it is in use "
        f"({_change(newest.challenger, newest.champion)}{p_text})"
    )


def _p_text(p: float | None, claim: str = "") -> str:
    if p is None:
        return "no test with fewer than two trials"
    return f"p = {p:.3g}{claim}"


def recipe(config: CompareConfig) -> dict[str, Any]:
    """Return the configuration keys that determine a model fitted to given rows."""
    keys = ("learners", "predictor", "statistics", "normalize", "centering", "kernels")
    return config.model_dump(
        mode="json",
        include={**dict.fromkeys(keys, True), "datasets": {0: set(RECIPE_KEYS)}},
        exclude={"learners": {"__all__": {"label"}}},
        exclude_defaults=True,
    )


def columns_of(
    model: Model, data: DatasetConfig
) -> tuple[dict[str, str], dict[str, float]]:
    """Return the kinds of a model's columns, and the spread of each scaled column.

    Features from n-grams, bytes and sparse rows are not columns.
    """
    if (
        data.ngrams is not None
        or data.bytes is not None
        or sparse.issparse(model.estimator.kernel_.X)
    ):
        return {}, {}
    spreads: dict[str, float] = {}
    if model.table is None:
        kinds = dict.fromkeys(model.features, "number")
        for name, spread in zip(model.features, model.spread, strict=True):
            spreads[name] = float(spread)
    else:
        kinds = {column.name: column.kind for column in model.table.columns}
        for column in model.table.columns:
            if isinstance(column, NumberColumn):
                spreads[column.name] = _spread(column)
    return kinds, {
        name: spread for name, spread in spreads.items() if spread not in (0.0, 1.0)
    }


def _spread(column: NumberColumn) -> float:
    """Return the knots' interquartile range; without knots, the spread."""
    upper, lower = np.quantile(column.knots or (0, 2 * column.spread), (0.75, 0.25))
    return float(upper - lower)


def on_the_same_folds(
    challenger: CompareConfig, champion: CompareConfig, without: Sequence[str] = ()
) -> CompareConfig:
    """Return the champion's configuration on the challenger's rows and folds."""
    recipe_keys = {key: getattr(champion.datasets[0], key) for key in RECIPE_KEYS}
    recipe_keys["drop"] = (*recipe_keys["drop"], *without)
    data = challenger.datasets[0].model_copy(update=recipe_keys)
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
    """Raise InputError if two configurations differ in rows or target."""
    challenger_data = load_dataset(challenger)
    champion_data = load_dataset(champion)
    challenger_weights = _weights(challenger_data)
    champion_weights = _weights(champion_data)
    # Weights on another scale differ by rounding
    if len(challenger_weights) != len(champion_weights) or not np.allclose(
        challenger_weights, champion_weights, rtol=1e-9, atol=0
    ):
        raise InputError(
            f"model {model}: the recipes of champion and challenger weigh the rows of {challenger.source} differently, "
            "so their errors cannot be compared; train a challenger with the same 'weights'."
        )
    ours = challenger_data.target
    theirs = champion_data.target
    if (
        ours.task != theirs.task
        or ours.classes != theirs.classes
        or not np.array_equal(ours.values, theirs.values)
    ):
        raise InputError(
            f"model {model}: the recipes of champion and challenger take other rows or another target from "
            f"{challenger.source} ({champion.n_rows} and {challenger.n_rows} rows), so they share no folds; train a "
            "challenger with the same target and the same 'missing'."
        )


def _weights(dataset: Dataset) -> np.ndarray:
    if dataset.weights is None:
        return np.ones(len(dataset.target))
    return dataset.weights


def describe_decision(decision: Challenge, links: dict[str, str]) -> str:
    """Return the report on a challenge and its decision as Markdown."""
    trials = []
    if decision.defender is not None and decision.defender.errors:
        trials = _trials_table(decision.defender, decision.challenger)
    return render(
        "decision.md",
        decision=decision,
        reason=as_sentence(decision.reason),
        trials=trials,
        shown_p=shown_p,
        links=links,
    )


def _trials_table(champion: Contender, challenger: Contender) -> list[dict[str, str]]:
    champion_title = f"champion, version {champion.version} ({champion.learner})"
    challenger_title = (
        f"challenger, version {challenger.version} ({challenger.learner})"
    )
    rows = []
    for i, (theirs, ours) in enumerate(
        zip(champion.errors, challenger.errors, strict=True)
    ):
        rows.append(
            {
                "trial": str(i),
                champion_title: f"{theirs:.4g}",
                challenger_title: f"{ours:.4g}",
            }
        )
    rows.append(
        {
            "trial": "mean",
            champion_title: champion.shown,
            challenger_title: challenger.shown,
        }
    )
    return rows


def shown_p(p: float | None) -> str:
    """Return a p-value as text for reports."""
    return "none" if p is None else f"{p:.3g}"
