"""Who wins: geometric means against one tuned kernel, mean ranks and their critical difference, wins by the t-test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.board.contestants import CONTESTANTS, OURS, TUNED
from benchmarks.board.tables import PRINTED
from learnkernels.tasks.measure.t_tests import corrected_p

if TYPE_CHECKING:
    from benchmarks.board.__main__ import Measurement

LEVEL = 0.05
"""Of the critical difference, and of each one-sided test."""

MEASURES = ("mean rank", "errors / tuned RBF", "seconds")
"""Of the summary, which MLflow has."""

TASKS = ("classification", "regression")

HALVES = {True: "tables that chose nothing", False: "tables that defaults were chosen on"}


class Board:
    """All measurements of the tables on which every contestant's drawings are complete.

    Parameters
    ----------
    rows : DataFrame
        One measurement each.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows

    @classmethod
    def of(cls, measurements: Sequence[Measurement]) -> Board:
        """Return the board of a journal; the last measurement of a kind counts."""
        rows = pd.DataFrame([asdict(one) for one in measurements])
        return cls(rows.drop_duplicates(["task", "table", "drawing", "contestant"], keep="last"))

    def errors(self, task: str, apart: bool, value: str = "error") -> pd.DataFrame:
        """Return means over drawings, a row a table and a column a contestant; NaN where one did not take part."""
        part = self.rows[(self.rows["task"] == task) & (self.rows["apart"] == apart)]
        means = part.pivot_table(index="table", columns="contestant", values=value, aggfunc="mean")
        return means.reindex(columns=[name for name in CONTESTANTS if name in means])

    def summary(self, task: str, apart: bool) -> pd.DataFrame:
        """Return what is said of each contestant, the lowest mean rank first.

        The geometric mean is over tables that both have; no wrong row counts as one. Ranks are over the tables that all
        have who have more than half of them.
        """
        errors = self.errors(task, apart)
        part = self.rows[(self.rows["task"] == task) & (self.rows["apart"] == apart)]
        floored = errors.clip(lower=self._least(task, part, errors), axis=0)
        ratio = np.exp(np.log(floored.div(floored[TUNED], axis=0)).mean())
        usual = [name for name in errors if errors[name].notna().mean() > 0.5]
        ranks = errors[usual].dropna().rank(axis=1)
        seconds = self.errors(task, apart, "seconds")
        table = pd.DataFrame(
            {
                "mean rank": ranks.mean(),
                "errors / tuned RBF": ratio,
                "seconds": seconds.median(),
                "tables": errors.notna().sum(),
            }
        )
        against = {name: self._against(name, part, errors) for name in errors}
        table = table.join(pd.DataFrame.from_dict(against, orient="index", columns=["we win", "we lose", "surely"]))
        return table.sort_values("mean rank").rename_axis("contestant")

    def _least(self, task: str, part: pd.DataFrame, errors: pd.DataFrame) -> pd.Series:
        """Return what an error of each table counts as at least: one wrong row."""
        tested = part.drop_duplicates(["table", "drawing"]).groupby("table")["n_test"].sum().reindex(errors.index)
        return 1.0 / tested if task == "classification" else 0.0 * tested

    def _against(self, other: str, part: pd.DataFrame, errors: pd.DataFrame) -> list[object]:
        """Return how many tables we win and lose against another, and how many of each significantly."""
        if other == OURS or OURS not in errors:
            return ["", "", ""]
        both = errors[[OURS, other]].dropna()
        won, lost = int((both[OURS] < both[other]).sum()), int((both[OURS] > both[other]).sum())
        surely = [0, 0]
        for name in both.index:
            drawn = part[part["table"] == name].pivot_table(index="drawing", columns="contestant", values="error")
            ours, theirs = drawn[[OURS, other]].dropna().to_numpy().T
            rows = part[part["table"] == name].iloc[0]
            for place, (one, two) in enumerate(((ours, theirs), (theirs, ours))):
                p = corrected_p(one, two, rows["n_test"] / rows["n_train"])
                surely[place] += p is not None and p < LEVEL
        return [won, lost, f"{surely[0]} : {surely[1]}"]

    def critical_difference(self, task: str, apart: bool) -> float:
        """Return the difference of mean ranks above which two differ (Nemenyi; Demsar 2006, JMLR 7:1-30)."""
        errors = self.errors(task, apart)
        usual = errors[[name for name in errors if errors[name].notna().mean() > 0.5]].dropna()
        n, k = usual.shape
        if n < 2 or k < 2:
            return float("nan")
        q = stats.studentized_range.ppf(1 - LEVEL, k, np.inf) / np.sqrt(2)
        return float(q * np.sqrt(k * (k + 1) / (6 * n)))

    def losses(self, task: str, apart: bool) -> pd.DataFrame:
        """Return the tables by how far the best other is ahead of us, the worst first."""
        errors = self.errors(task, apart)
        others = errors.drop(columns=[name for name in errors if name.startswith(OURS)]).dropna(how="all")
        errors = errors.loc[others.index]
        table = pd.DataFrame({"ours": errors[OURS], "best other": others.min(axis=1), "who": others.idxmin(axis=1)})
        table["ratio"] = table["ours"] / table["best other"].clip(lower=1e-3)
        return table[table["ratio"] > 1].sort_values("ratio", ascending=False)

    # What is shown

    def overall(self) -> pd.DataFrame:
        """Return the geometric means of our errors over another's, of each half and of all tables of both tasks."""
        rows = {}
        for what, halves in (*((half, [apart]) for apart, half in HALVES.items()), ("all tables", [True, False])):
            ratios = []
            for task, apart in ((task, apart) for task in TASKS for apart in halves):
                if OURS in (errors := self.errors(task, apart)):
                    part = self.rows[(self.rows["task"] == task) & (self.rows["apart"] == apart)]
                    floored = errors.clip(lower=self._least(task, part, errors), axis=0)
                    ratios.append(floored.rdiv(floored[OURS], axis=0))
            if ratios:
                together = pd.concat(ratios)
                rows[what] = {"tables": float(len(together)), **np.exp(np.log(together).mean())}
        table = pd.DataFrame(rows).T.drop(columns=OURS, errors="ignore").rename_axis("ours over")
        return table.astype({"tables": int})

    def page(self) -> str:
        """Return the tables in Markdown: of each half and task the losses, the summary and all errors."""
        drawings = self.rows["drawing"].nunique()
        lines = [f"{drawings} drawings a table, {self.rows['table'].nunique()} tables."]
        lines += ["\nGeometric means of our errors over those of others:\n", _markdown(self.overall(), 3)]
        for apart, half in HALVES.items():
            for task in TASKS:
                if OURS not in (errors := self.errors(task, apart)) or TUNED not in errors:
                    continue
                summary, lost = self.summary(task, apart), self.losses(task, apart)
                lines += [f"\n### {task.capitalize()}: {len(errors)} {half}\n"]
                lines += [f"Where we lose most, of {len(lost)} tables where anyone is ahead of us:\n"]
                lines += [_markdown(lost.head(8), 3)]
                critical = self.critical_difference(task, apart)
                lines += [f"\nMean ranks differ at the 5 % level from {critical:.2f} on.\n", _markdown(summary, 3)]
                lines += ["\nErrors:\n", _markdown(errors, 3)]
        return "\n".join(lines) + "\n"

    def anchors(self) -> str:
        """Return errors, tests, seconds and memory of tables of their own splits in Markdown, printed errors beside."""
        lines = []
        for task in TASKS:
            if OURS not in (errors := self.errors(task, True)):
                continue
            part = self.rows[self.rows["task"] == task]
            drawings = part.groupby("table")["drawing"].nunique()
            told = pd.DataFrame(PRINTED).T.add_suffix(", printed").reindex(errors.index).dropna(axis=1, how="all")
            shown = errors.join(told).assign(drawings=drawings, rows=part.groupby("table")["n_train"].max())
            lines += [f"\n### {task.capitalize()}\n", _markdown(shown, 4)]
            others = {name: self._against(name, part, errors) for name in errors if name != OURS}
            if others:
                against = pd.DataFrame.from_dict(others, orient="index", columns=["we win", "we lose", "surely"])
                lines += ["", _markdown(against.rename_axis("contestant"), 3)]
            for value, what in (("seconds", "Seconds"), ("cpu", "Processor seconds"), ("megabytes", "Megabytes")):
                if value in part and part[value].notna().any():
                    lines += [f"\n{what}:\n", _markdown(self.errors(task, True, value), 1)]
        return "\n".join(lines) + "\n"

    def picture(self, path: Path) -> None:
        """Draw mean ranks on tables that chose nothing, with the critical difference as a bar from the best."""
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), sharex=False)
        for axis, task in zip(axes, TASKS, strict=True):
            if TUNED not in self.errors(task, True):
                continue
            ranks = self.summary(task, True)["mean rank"].dropna().iloc[::-1]
            axis.plot(ranks, range(len(ranks)), "o", color="0.4")
            if OURS in ranks:
                axis.plot(ranks[OURS], ranks.index.get_loc(OURS), "o", color="C3")
            critical = self.critical_difference(task, True)
            if np.isfinite(critical):
                axis.axvspan(ranks.min(), ranks.min() + critical, color="0.92", zorder=0)
            axis.set(yticks=range(len(ranks)), yticklabels=ranks.index, xlabel="mean rank, lower is better", title=task)
        figure.tight_layout()
        figure.savefig(path, dpi=120)
        plt.close(figure)

    def track(self) -> None:
        """Log a run a contestant in the MLflow experiment board."""
        import mlflow

        mlflow.set_experiment("board")
        for name in CONTESTANTS:
            with mlflow.start_run(run_name=name):
                for task in TASKS:
                    for apart, half in ((True, "apart"), (False, "chosen_on")):
                        said = self.summary(task, apart) if TUNED in self.errors(task, apart) else pd.DataFrame()
                        for measure in MEASURES if name in said.index else ():
                            key = f"{task}.{half}.{measure.replace(' / ', ' over ')}"
                            mlflow.log_metric(key, float(said.loc[name, measure]))


def _markdown(table: pd.DataFrame, digits: int) -> str:
    shown = table.reset_index().map(lambda one: f"{one:.{digits}f}" if isinstance(one, float) else str(one))
    shown = shown.replace("nan", "")
    lines = ["| " + " | ".join(map(str, shown.columns)) + " |", "|" + "---|" * shown.shape[1]]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in shown.to_numpy())])
