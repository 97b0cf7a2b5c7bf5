"""Challenger against champion: two recipes on the same rows and folds, and the decision that follows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig
from learnkernels.tasks.data.dataset import DatasetRef, load_dataset
from learnkernels.tasks.evidence.markdown import link_list, markdown_table, plain
from learnkernels.tasks.evidence.tables import read_folds
from learnkernels.tasks.measure.evaluation import FoldsRef
from learnkernels.tasks.measure.t_tests import corrected_p, paired_p, share_of_test
from learnkernels.tasks.naming import step
from learnkernels.tasks.store import atomic_path

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
class Decision:
    """Who is champion now, and why.

    Attributes
    ----------
    model : str
    champion : int
        Version that holds the alias afterwards.
    moved : bool
        Whether the alias moved.
    reason : str
        One sentence.
    challenger, defender : Contender
        The defender is None where there was no champion.
    level : float
        Significance level asked for.
    p, plain_p : float or None
        That the challenger's errors are lower: the corrected resampled t-test, which decides, and the papers' paired
        one.
    metric, dataset, digest : str
        What was measured, on which data.
    """

    model: str
    champion: int
    moved: bool
    reason: str
    challenger: Contender
    defender: Contender | None
    level: float
    p: float | None = None
    plain_p: float | None = None
    metric: str = ""
    dataset: str = ""
    digest: str = ""


def unopposed(model: str, challenger: Contender, level: float) -> Decision:
    """Return the decision where there is no champion yet."""
    reason = f"version {challenger.version} is the first champion, as there was none to beat"
    return Decision(model, challenger.version, True, reason, challenger, None, level)


def no_contest(model: str, challenger: Contender, level: float) -> Decision:
    """Return the decision where the challenger is the champion."""
    reason = f"version {challenger.version} is the champion already"
    return Decision(model, challenger.version, False, reason, challenger, challenger, level)


def same_recipe(
    model: str, challenger: Contender, defender: Contender, level: float, refresh: bool, other_rows: bool
) -> Decision:
    """Return the decision between two versions that differ in their rows alone, which no common fold can compare."""
    both = f"versions {defender.version} and {challenger.version} have the same recipe, so no fold tells them apart"
    if refresh and other_rows:
        reason = f"{both}; version {challenger.version} learned from the newer rows and takes over, as asked for"
        return Decision(model, challenger.version, True, reason, challenger, defender, level)
    reason = f"{both}; version {defender.version} stays" + (
        " (refresh lets newer rows take over)" if other_rows else ""
    )
    return Decision(model, defender.version, False, reason, challenger, defender, level)


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


def decide(
    model: str,
    challenger: Contender,
    defender: Contender,
    level: float,
    results: tuple[FoldsRef, FoldsRef],
    ref: DatasetRef,
) -> Decision:
    """Return the decision of a corrected resampled t-test over the trials of challenger and champion, in that order.

    References
    ----------
    Nadeau, Bengio (2003), Machine Learning 52:239-281, section 3.
    """
    ours, theirs = (read_folds([of]) for of in results)
    errors, baseline = ours["error"].to_numpy(), theirs["error"].to_numpy()
    p = corrected_p(errors, baseline, share_of_test(ours["n_test"].to_numpy(), ours["n_rows"].to_numpy()))
    challenger = Contender(challenger.version, challenger.learner, tuple(errors.tolist()))
    defender = Contender(defender.version, defender.learner, tuple(baseline.tolist()))
    wins = p is not None and p < level
    compared = f"{challenger.shown} against {defender.shown}"
    tested = "no test without pairs of at least two trials" if p is None else f"p = {p:.3g}"
    outcome = "is significantly better and takes over from" if wins else "is not significantly better than"
    reason = (
        f"version {challenger.version} {outcome} version {defender.version}: {compared} ({tested}, level {level:g})"
    )
    return Decision(
        model, challenger.version if wins else defender.version, wins, reason, challenger, defender, level, p,
        paired_p(errors, baseline), str(ours["metric"].iloc[0]), ref.name, ref.digest,
    )  # fmt: skip


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


@step("write the decision on {decision.model}")
def write_decision(
    decision: Decision, run_id: str, results: tuple[FoldsRef, FoldsRef] | None, links: dict[str, str]
) -> str:
    """Write report, decision and fold tables to `results/`, whole or not at all, and return the folder."""
    target = Path("results") / decision.model / run_id
    with atomic_path(target) as folder:
        folder.mkdir()
        (folder / "report.md").write_text(describe_decision(decision, links), encoding="utf-8")
        (folder / "decision.json").write_text(json.dumps(asdict(decision), indent=1), encoding="utf-8")
        for name, of in zip(("challenger", "champion"), results or (), strict=False):
            read_folds([of]).to_parquet(folder / f"folds_{name}.parquet", index=False)
    return str(target)
