"""Comparison of methods: losses, mean ranks with the Nemenyi test, geometric means, wins by the corrected t-test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from dev.benchmarks.board import Measurement
from dev.benchmarks.board.contestants import OURS
from learnkernels.tasks.measure.t_tests import corrected_p

if TYPE_CHECKING:
    from dev.benchmarks.board.sections import Section

LEVEL = 0.05
"""Significance level of the Nemenyi test, and of each one-sided t-test."""

MEASURES = {"error": "error", "log_loss": "log loss", "auc_loss": "1 - AUC"}
"""Metrics by the names of their columns; lower is better."""

TASKS = ("classification", "regression")

HALVES = {True: "held-out data sets", False: "development data sets"}


class Board:
    """Measurements of a section.

    Parameters
    ----------
    rows : DataFrame
        One measurement per row.
    section : Section
        Gives the methods, the reference and the metrics.
    """

    def __init__(self, rows: pd.DataFrame, section: Section) -> None:
        self.rows, self.section = rows, section

    @classmethod
    def of(cls, measurements: Sequence[Measurement], section: Section) -> Board:
        """Return the board of a journal; of repeated measurements the last one counts."""
        rows = pd.DataFrame([asdict(one) for one in measurements]).assign(auc_loss=lambda table: 1 - table["auc"])
        return cls(rows.drop_duplicates(["task", "table", "size", "drawing", "contestant"], keep="last"), section)

    def _part(self, task: str, apart: bool) -> pd.DataFrame:
        return self.rows[(self.rows["task"] == task) & (self.rows["apart"] == apart)]

    def _sizes(self) -> list[Board]:
        """Return one board per size of the training set: sizes of one data set are not independent."""
        return [Board(part, self.section) for _, part in self.rows.groupby("size")]

    def values(self, task: str, apart: bool, measure: str = "error") -> pd.DataFrame:
        """Return means over splits, one row per data set and size, one column per method; NaN where missing."""
        part = self._part(task, apart)
        if part["size"].nunique() > 1:
            part = part.assign(table=part["table"] + part["n_train"].map(", {:,} rows".format))
        means = part.pivot_table(index="table", columns="contestant", values=measure, aggfunc="mean", sort=False)
        return means.reindex(columns=[name for name in self.section.contestants if name in means]).sort_index()

    def _floored(self, task: str, apart: bool, measure: str) -> pd.DataFrame:
        """Return `values` with at least one wrong test row, so that ratios are defined."""
        values = self.values(task, apart, measure)
        if task == "regression":
            return values
        tested = self._part(task, apart).drop_duplicates(["table", "drawing"]).groupby("table")["n_test"].sum()
        return values.clip(lower=1.0 / tested.reindex(values.index), axis=0)

    @staticmethod
    def _common(values: pd.DataFrame) -> pd.DataFrame:
        """Return the methods that have more than half of the data sets, on the data sets that they all have."""
        return values.loc[:, values.notna().mean() > 0.5].dropna()

    def summary(self, task: str, apart: bool, measure: str = "error") -> pd.DataFrame:
        """Return one row per method, the lowest mean rank first; a geometric mean is over common data sets."""
        values, floored = self.values(task, apart, measure), self._floored(task, apart, measure)
        reference = self.section.reference
        ratio = floored.div(floored[reference], axis=0) if reference in floored else floored * np.nan
        table = pd.DataFrame(
            {
                "mean rank": self._common(values).rank(axis=1).mean(),
                f"{MEASURES[measure]} / {reference}": np.exp(np.log(ratio).mean()),
                "seconds": self.values(task, apart, "seconds").median(),
                "data sets": values.notna().sum(),
            }
        ).reindex(values.columns)
        against = {name: self._against(name, task, apart, measure) for name in values}
        table = table.join(pd.DataFrame.from_dict(against, orient="index", columns=["wins", "losses", "significant"]))
        return table.sort_values("mean rank").rename_axis("method")

    def _against(self, other: str, task: str, apart: bool, measure: str) -> list[object]:
        """Return on how many data sets we are better and worse than a method, and on how many significantly."""
        values = self.values(task, apart, measure)
        if other == OURS or OURS not in values:
            return ["", "", ""]
        both, part = values[[OURS, other]].dropna(), self._part(task, apart)
        significant = [0, 0]
        for name in both.index:
            of_table = part[part["table"] == name]
            drawn = of_table.pivot_table(index="drawing", columns="contestant", values=measure)
            ours, theirs = drawn[[OURS, other]].dropna().to_numpy().T
            ratio = of_table["n_test"].iloc[0] / of_table["n_train"].iloc[0]
            for place, (one, two) in enumerate(((ours, theirs), (theirs, ours))):
                p = corrected_p(one, two, ratio)
                significant[place] += p is not None and p < LEVEL
        won, lost = int((both[OURS] < both[other]).sum()), int((both[OURS] > both[other]).sum())
        return [won, lost, f"{significant[0]} : {significant[1]}"]

    def critical_difference(self, task: str, apart: bool, measure: str = "error") -> float:
        """Return the critical difference of mean ranks (Nemenyi; Demsar 2006, JMLR 7:1-30)."""
        n, k = self._common(self.values(task, apart, measure)).shape
        if n < 2 or k < 2:
            return float("nan")
        q = stats.studentized_range.ppf(1 - LEVEL, k, np.inf) / np.sqrt(2)
        return float(q * np.sqrt(k * (k + 1) / (6 * n)))

    def losses(self, task: str, apart: bool, measure: str = "error") -> pd.DataFrame:
        """Return the data sets on which another method is better, the largest ratio first."""
        floored = self._floored(task, apart, measure)
        others = floored.drop(columns=[name for name in floored if name.startswith(OURS)]).dropna(how="all")
        if OURS not in floored or others.empty:
            return pd.DataFrame()
        ours, best = floored.loc[others.index, OURS], others.min(axis=1)
        table = pd.DataFrame({"ours": ours, "best other": best, "method": others.idxmin(axis=1), "ratio": ours / best})
        return table[table["ratio"] > 1].sort_values("ratio", ascending=False)

    def overall(self) -> pd.DataFrame:
        """Return geometric means of our errors relative to every other method, per half and for all data sets."""
        rows = {}
        for what, halves in (*((half, [apart]) for apart, half in HALVES.items()), ("all data sets", [True, False])):
            floored = [self._floored(task, apart, "error") for task in TASKS for apart in halves]
            ratios = [part.rdiv(part[OURS], axis=0) for part in floored if OURS in part]
            if ratios:
                together = pd.concat(ratios)
                rows[what] = {"number": float(len(together)), **np.exp(np.log(together).mean())}
        table = pd.DataFrame(rows).T.drop(columns=OURS, errors="ignore").rename_axis("our error relative to")
        return table.astype({"number": int}) if rows else table

    # Output

    def page(self) -> str:
        """Return the results in Markdown: losses, then summaries, for each half, task and metric; then all values."""
        drawings, number = self.rows["drawing"].nunique(), self.rows["table"].nunique()
        lines = [f"Data sets: {number}. Random splits per data set and size of the training set: {drawings}."]
        for board in self._sizes():
            size = f", at most {board.rows['size'].iloc[0]:,} training rows" if len(self._sizes()) > 1 else ""
            for apart, task, measure in self._shown():
                lines += board._verdict(task, apart, measure, size)
            if len(overall := board.overall()):
                lines += [f"\n### Geometric-mean ratios of errors{size}\n", _markdown(overall, 3)]
        for apart, task, measure in self._shown():
            values = self.values(task, apart, measure).dropna(how="all").dropna(how="all", axis=1)
            if len(values):
                lines += [f"\n### {task.capitalize()}, {HALVES[apart]}: {MEASURES[measure]}\n", _markdown(values, 4)]
        for apart in HALVES:
            for task in TASKS:
                if len(seconds := self.values(task, apart, "seconds")):
                    lines += [
                        f"\n### {task.capitalize()}, {HALVES[apart]}: CPU seconds per fit\n",
                        _markdown(seconds, 2),
                    ]
        return "\n".join(lines) + "\n"

    def _shown(self) -> list[tuple[bool, str, str]]:
        measures = {"classification": self.section.measures, "regression": ("error",)}
        return [(apart, task, measure) for apart in HALVES for task in TASKS for measure in measures[task]]

    def _verdict(self, task: str, apart: bool, measure: str, size: str) -> list[str]:
        values = self.values(task, apart, measure).dropna(how="all")
        if not len(values):
            return []
        lost = self.losses(task, apart, measure)
        lines = [f"\n### {task.capitalize()}, {len(values)} {HALVES[apart]}{size}: {MEASURES[measure]}\n"]
        if len(lost):
            lines += [f"Another method is better on {len(lost)}; largest ratios:\n", _markdown(lost.head(8), 3), ""]
        critical = self.critical_difference(task, apart, measure)
        summary = self.summary(task, apart, measure).dropna(how="all", subset=["mean rank", "data sets"])
        lines += [f"Critical difference of mean ranks (Nemenyi test, 5 % level): {critical:.2f}.\n"]
        return [*lines, _markdown(summary[summary["data sets"] > 0], 3)]

    def picture(self, path: Path) -> None:
        """Draw mean ranks on held-out data sets, with the critical difference from the best; one size per section."""
        import matplotlib.pyplot as plt

        if self.rows["size"].nunique() > 1:
            return
        measures = {"classification": self.section.measures[0], "regression": "error"}
        ranks = {task: self.summary(task, True, measures[task])["mean rank"].dropna() for task in TASKS}
        ranks = {task: of_task.iloc[::-1] for task, of_task in ranks.items() if len(of_task)}
        if not ranks:
            return
        figure, axes = plt.subplots(1, len(ranks), figsize=(5 * len(ranks), 3.2), squeeze=False)
        for axis, (task, of_task) in zip(axes[0], ranks.items(), strict=True):
            axis.plot(of_task, range(len(of_task)), "o", color="0.4")
            if OURS in of_task:
                axis.plot(of_task[OURS], of_task.index.get_loc(OURS), "o", color="C3")
            critical = self.critical_difference(task, True, measures[task])
            if np.isfinite(critical):
                axis.axvspan(of_task.min(), of_task.min() + critical, color="0.92", zorder=0)
            axis.set(
                yticks=range(len(of_task)), yticklabels=of_task.index, xlabel="mean rank, lower is better", title=task
            )
        figure.tight_layout()
        figure.savefig(path, dpi=120)
        plt.close(figure)

    def track(self, name: str) -> None:
        """Log one run per method in the MLflow experiment board, for the section of this name."""
        import mlflow

        mlflow.set_experiment("board")
        found = {}
        for board in self._sizes():
            for apart, task, measure in self._shown():
                key = f"{name}.{board.rows['size'].iloc[0]}.{task}.{'held_out' if apart else 'development'}.{measure}"
                summary = board.summary(task, apart, measure)
                for method, row in summary.iloc[:, :3].rename(columns=lambda column: column.split(" /")[0]).iterrows():
                    found.setdefault(method, {}).update(
                        {f"{key}.{what.replace(' ', '_')}": float(value) for what, value in row.dropna().items()}
                    )
        for method, values in found.items():
            with mlflow.start_run(run_name=f"{name}: {method}"):
                mlflow.log_metrics(values)


def _markdown(table: pd.DataFrame, digits: int) -> str:
    shown = table.reset_index().map(lambda one: f"{one:.{digits}f}" if isinstance(one, float) else str(one))
    shown = shown.replace("nan", "")
    lines = ["| " + " | ".join(map(str, shown.columns)) + " |", "|" + "---|" * shown.shape[1]]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in shown.to_numpy())])
