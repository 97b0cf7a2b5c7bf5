"""Challenger against champion: two recipes on the same rows and folds, and the decision that follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig
from learnkernels.tasks.data.dataset import DatasetRef, load_dataset
from learnkernels.tasks.evidence.markdown import link_list, markdown_table, plain
from learnkernels.tasks.evidence.tables import read_folds
from learnkernels.tasks.measure.evaluation import FoldsRef
from learnkernels.tasks.measure.t_tests import corrected_p, paired_p, share_of_test

OF_THE_RECIPE = (
    "target", "positive", "task", "drop", "features", "columns", "scale", "scale_on", "missing", "distinct", "ngrams",
    "bytes", "weights", "class_weight",
)  # fmt: skip
"""What of a data set's configuration belongs to a recipe; `path`, `where` and `test` say which rows there are."""


@dataclass(frozen=True)
class Contender:
    """A version of the model in a challenge, with its errors on the common folds.

    Attributes
    ----------
    version : int
    learner : str
        Its name in reports.
    errors : tuple of float
        Test error of each trial.
    """

    version: int
    learner: str
    errors: tuple[float, ...] = ()

    @property
    def mean(self) -> float | None:
        """Mean of its errors, if any were measured."""
        return float(np.mean(self.errors)) if self.errors else None

    @property
    def shown(self) -> str:
        """Mean and deviation of its errors, for people."""
        if not self.errors:
            return "not measured"
        sd = f" ± {np.std(self.errors, ddof=1):.2g}" if len(self.errors) > 1 else ""
        return f"{np.mean(self.errors):.4g}{sd}"


@dataclass(frozen=True)
class Challenge:
    """What is known of two versions of a model where one challenges the other.

    Attributes
    ----------
    model : str
    challenger, defender : Contender
        With their errors on the common folds, where these were measured. The defender is None where there is no
        champion, and the challenger where that is the champion.
    level : float
        Significance that a win needs.
    refresh : bool
        Whether a version of the same recipe takes over that learned from other rows.
    same_recipe, other_rows : bool
        Whether both have one recipe, and whether they learned from other rows.
    test_share : float
        Test rows as a share of those that train.
    metric, dataset, digest : str
        What was measured, on which data.
    """

    model: str
    challenger: Contender
    defender: Contender | None
    level: float
    refresh: bool = False
    same_recipe: bool = False
    other_rows: bool = False
    test_share: float = 0.0
    metric: str = ""
    dataset: str = ""
    digest: str = ""

    def measured(self, results: tuple[FoldsRef, FoldsRef], ref: DatasetRef) -> Challenge:
        """Return the challenge with the errors of challenger and champion on common folds of a data set."""
        assert self.defender is not None
        ours, theirs = (read_folds([of]) for of in results)
        return replace(
            self,
            challenger=replace(self.challenger, errors=tuple(ours["error"].tolist())),
            defender=replace(self.defender, errors=tuple(theirs["error"].tolist())),
            test_share=share_of_test(ours["n_test"].to_numpy(), ours["n_rows"].to_numpy()),
            metric=str(ours["metric"].iloc[0]),
            dataset=ref.name,
            digest=ref.digest,
        )

    def decided(self, moved: bool, reason: str, p: float | None = None, plain_p: float | None = None) -> Decision:
        """Return the decision that the challenger is champion, or the defender stays."""
        champion = self.challenger if moved or self.defender is None else self.defender
        return Decision(**vars(self), champion=champion.version, moved=moved, reason=reason, p=p, plain_p=plain_p)


@dataclass(frozen=True, kw_only=True)
class Decision(Challenge):
    """Who is champion now, and why.

    Attributes
    ----------
    champion : int
        Version that holds the alias afterwards.
    moved : bool
        Whether the alias moved.
    reason : str
        One sentence.
    p, plain_p : float or None
        That the challenger's errors are lower: the corrected resampled t-test, which decides, and the papers' paired
        one.
    """

    champion: int
    moved: bool
    reason: str
    p: float | None
    plain_p: float | None


def first_champion(of: Challenge) -> Decision | None:
    """Decide where there is no champion yet."""
    if of.defender is not None:
        return None
    return of.decided(True, f"version {of.challenger.version} is the first champion, as there was none to beat")


def champion_already(of: Challenge) -> Decision | None:
    """Decide where the challenger is the champion."""
    if of.defender is None or of.defender.version != of.challenger.version:
        return None
    return of.decided(False, f"version {of.challenger.version} is the champion already")


def one_recipe(of: Challenge) -> Decision | None:
    """Decide between two versions that differ in their rows alone, which no common fold can compare."""
    if of.defender is None or not of.same_recipe:
        return None
    ours, theirs = of.challenger.version, of.defender.version
    both = f"versions {theirs} and {ours} have the same recipe, so no fold tells them apart"
    if of.refresh and of.other_rows:
        return of.decided(True, f"{both}; version {ours} learned from the newer rows and takes over, as asked for")
    hint = " (refresh lets newer rows take over)" if of.other_rows else ""
    return of.decided(False, f"{both}; version {theirs} stays{hint}")


def corrected_t_test(of: Challenge) -> Decision | None:
    """Decide by a corrected resampled t-test over the trials.

    References
    ----------
    Nadeau, Bengio (2003), Machine Learning 52:239-281, section 3.
    """
    if of.defender is None:
        return None
    ours, theirs = of.challenger, of.defender
    errors, baseline = np.array(ours.errors), np.array(theirs.errors)
    p = corrected_p(errors, baseline, of.test_share)
    wins = p is not None and p < of.level
    tested = "no test without pairs of at least two trials" if p is None else f"p = {p:.3g}"
    outcome = "is significantly better and takes over from" if wins else "is not significantly better than"
    reason = (
        f"version {ours.version} {outcome} version {theirs.version}: {ours.shown} against {theirs.shown} ({tested}, "
        f"level {of.level:g})"
    )
    return of.decided(wins, reason, p, paired_p(errors, baseline))


RULES: tuple[Callable[[Challenge], Decision | None], ...] = (
    first_champion,
    champion_already,
    one_recipe,
    corrected_t_test,
)
"""What decides a challenge: the first of them that answers."""


def decide(challenge: Challenge) -> Decision:
    """Return the decision of the first of `RULES` that answers."""
    return next(decision for rule in RULES if (decision := rule(challenge)) is not None)


def recipe(config: CompareConfig) -> dict[str, Any]:
    """Return what of a configuration decides which model given rows lead to."""
    data = config.datasets[0]
    return {
        "learner": config.learners[0].model_dump(mode="json", exclude={"label"}),
        "predictor": config.predictor.model_dump(mode="json"),
        "moments": config.moments.model_dump(mode="json"),
        "normalise": config.normalise,
        **({} if config.centering == "center" else {"centering": config.centering}),
        "kernels": [family.model_dump(mode="json") for family in config.kernels],
        "data": data.model_dump(mode="json", include=set(OF_THE_RECIPE)),
    }


def on_the_same_folds(challenger: CompareConfig, champion: CompareConfig) -> CompareConfig:
    """Return the champion's recipe on the challenger's rows and folds: kernels, learner, columns, scaling."""
    own = {key: getattr(champion.datasets[0], key) for key in OF_THE_RECIPE}
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
    if not np.array_equal(our_weights, their_weights):
        raise InputError(
            f"model {model}: the recipes of champion and challenger weigh the rows of {challenger.source} differently, "
            "so their errors cannot be compared; train a challenger with the same 'weights'."
        )
    ours, theirs = (of.target for of in rows)
    same = ours.task == theirs.task and ours.classes == theirs.classes and np.array_equal(ours.values, theirs.values)
    if not same:
        raise InputError(
            f"model {model}: the recipes of champion and challenger take other rows or another target from "
            f"{challenger.source} ({champion.n_rows} and {challenger.n_rows} rows), so they share no folds; train a "
            "challenger with the same target and the same 'missing'."
        )


def describe_decision(decision: Decision, links: dict[str, str]) -> str:
    """Return the report of a decision."""
    lines = [
        f"# {decision.model}: version {decision.champion} {'becomes' if decision.moved else 'stays'} champion",
        "",
        f"{decision.reason[0].upper()}{decision.reason[1:]}.",
        "",
    ]
    if decision.defender is not None and decision.challenger.errors:
        lines += [
            *markdown_table(_trials(decision.defender, decision.challenger)),
            "",
            f"Test error ({decision.metric}) on {plain(decision.dataset)} ({decision.digest}), both learned anew on "
            "the same training folds. The corrected resampled t-test, which allows for training rows that trials "
            f"share, decides: p = {shown_p(decision.p)}, level {decision.level:g}. The papers' plain paired t-test "
            f"gives p = {shown_p(decision.plain_p)}.",
            "",
        ]
    return "\n".join([*lines, *link_list(links), ""])


def _trials(defender: Contender, challenger: Contender) -> list[dict[str, str]]:
    """Return one row a trial, and one of the means."""
    sides = {
        f"{role}, version {of.version} ({of.learner})": [*(f"{error:.4g}" for error in of.errors), of.shown]
        for role, of in (("champion", defender), ("challenger", challenger))
    }
    trials = [*map(str, range(len(challenger.errors))), "mean"]
    return [dict(zip(("trial", *sides), row, strict=True)) for row in zip(trials, *sides.values(), strict=True)]


def shown_p(p: float | None) -> str:
    """Return a p-value for people."""
    return "none" if p is None else f"{p:.3g}"
