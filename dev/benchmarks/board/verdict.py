"""Comparison of methods: losses, mean ranks with the Nemenyi test, geometric means, wins by the corrected t-test."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from dev.benchmarks.board import Measurement
from dev.benchmarks.board.contestants import OURS
from dev.benchmarks.board.metrics import SMALLEST_PROBABILITY
from dev.benchmarks.board.tables import TABARENA
from learnkernels.tasks.measure.t_tests import corrected_p

if TYPE_CHECKING:
    from dev.benchmarks.board.sections import Section

LEVEL = 0.05
"""Significance level of the Nemenyi test, and of each one-sided t-test."""

FEWEST_SPLITS = 3

MEASURES = {"error": "error", "log_loss": "log loss", "auc_loss": "1 - AUC"}
"""Metrics by the names of their columns; lower is better."""

UNCERTAINTY = {
    "classification": {"calibration_error": "calibration error"},
    "regression": {
        "coverage": "coverage",
        "hard_coverage": "coverage of the hardest fifth",
        "interval_score": "interval score",
    },
}
"""Columns on probabilities and on intervals of level 0.8, by task."""

MOST_LOSSES = 8
"""Losses that a page lists per half, task and metric."""

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
    def from_measurements(
        cls, measurements: Sequence[Measurement], section: Section
    ) -> Board:
        """Return the board of a journal; of repeated measurements the last one counts."""
        rows = pd.DataFrame([asdict(measurement) for measurement in measurements])
        rows["auc_loss"] = 1 - rows["auc"]
        return cls(
            rows.drop_duplicates(
                ["task", "table", "size", "drawing", "contestant"], keep="last"
            ),
            section,
        )

    def _rows_of(self, task: str, apart: bool) -> pd.DataFrame:
        return self.rows[(self.rows["task"] == task) & (self.rows["apart"] == apart)]

    def _boards_by_size(self) -> list[Board]:
        """Return a board per size, as sizes of a data set are dependent."""
        return [Board(rows, self.section) for _, rows in self.rows.groupby("size")]

    def _common_rows(self, task: str, apart: bool, measure: str) -> pd.DataFrame:
        """Return the rows of splits that all methods have."""
        rows = self._rows_of(task, apart).dropna(subset=[measure])
        if rows["size"].nunique() > 1:
            rows = rows.assign(
                table=rows["table"] + rows["n_train"].map(", {:,} rows".format)
            )
        n_methods = rows.groupby("table")["contestant"].transform("nunique")
        of_split = rows.groupby(["table", "drawing"])["contestant"]
        return rows[of_split.transform("nunique") == n_methods]

    def values(self, task: str, apart: bool, measure: str = "error") -> pd.DataFrame:
        """Return means over common splits: a row per data set and size, a column per method."""
        means = self._common_rows(task, apart, measure).pivot_table(
            index="table",
            columns="contestant",
            values=measure,
            aggfunc="mean",
            sort=False,
        )
        methods = [name for name in self.section.contestants if name in means]
        return means.reindex(columns=methods).sort_index()

    def _positive_values(self, task: str, apart: bool, measure: str) -> pd.DataFrame:
        """Return `values`, the smallest ones increased so that ratios are defined."""
        values = self.values(task, apart, measure)
        if task == "regression":
            return values
        if measure == "log_loss":
            return values.clip(lower=SMALLEST_PROBABILITY)
        rows = self._common_rows(task, apart, measure)
        drawings = rows.drop_duplicates(["table", "drawing"])
        possible_mistakes = drawings["n_test"]
        if measure == "auc_loss":
            # Pairs of rows, of classes of equal size
            possible_mistakes = possible_mistakes**2 / 4
        most = possible_mistakes.groupby(drawings["table"]).sum()
        return values.clip(lower=1 / most.reindex(values.index), axis=0)

    def summary(self, task: str, apart: bool, measure: str = "error") -> pd.DataFrame:
        """Return one row per method, the lowest mean rank first; a geometric mean is over common data sets."""
        values = self.values(task, apart, measure)
        positive = self._positive_values(task, apart, measure)
        reference = self.section.reference
        ratios = positive * np.nan
        if reference in positive:
            ratios = positive.div(positive[reference], axis=0)
        common = _common(values)
        columns = {
            "mean rank": common.rank(axis=1).mean(),
            f"{MEASURES[measure]} / {reference}": np.exp(np.log(ratios).mean()),
            "seconds": self.values(task, apart, "seconds").median(),
            "data sets": values.notna().sum(),
            "win rate": win_rates(common),
            "improvability": improvability(_common(positive)),
            "seconds per 1,000 predictions": self.values(
                task, apart, "predict_seconds"
            ).median(),
        }
        for column, title in UNCERTAINTY[task].items():
            columns[title] = self.values(task, apart, column).mean()
        comparisons = pd.DataFrame.from_dict(
            {name: self._compare_with(name, task, apart, measure) for name in values},
            orient="index",
            columns=["wins", "losses", "significant"],
        )
        table = pd.DataFrame(columns).reindex(values.columns).join(comparisons)
        return table.sort_values("mean rank").rename_axis("method")

    def _compare_with(
        self, other: str, task: str, apart: bool, measure: str
    ) -> list[object]:
        """Return the numbers of wins, losses and significant ones against a method."""
        values = self.values(task, apart, measure)
        if other == OURS or OURS not in values:
            return ["", "", ""]
        pairs = values[[OURS, other]].dropna()
        rows = self._rows_of(task, apart)
        significant_wins = 0
        significant_losses = 0
        for name in pairs.index:
            rows_of_table = rows[rows["table"] == name]
            drawings = rows_of_table.pivot_table(
                index="drawing", columns="contestant", values=measure
            )
            ours, theirs = drawings[[OURS, other]].dropna().to_numpy().T
            test_share = (
                rows_of_table["n_test"].iloc[0] / rows_of_table["n_train"].iloc[0]
            )
            significant_wins += _is_lower(ours, theirs, test_share)
            significant_losses += _is_lower(theirs, ours, test_share)
        wins = int((pairs[OURS] < pairs[other]).sum())
        losses = int((pairs[OURS] > pairs[other]).sum())
        return [wins, losses, f"{significant_wins} : {significant_losses}"]

    def critical_difference(
        self, task: str, apart: bool, measure: str = "error"
    ) -> float:
        """Return the critical difference of mean ranks (Nemenyi; Demsar 2006, JMLR 7:1-30)."""
        n, k = _common(self.values(task, apart, measure)).shape
        if n < 2 or k < 2:
            return float("nan")
        q = stats.studentized_range.ppf(1 - LEVEL, k, np.inf) / np.sqrt(2)
        return float(q * np.sqrt(k * (k + 1) / (6 * n)))

    def losses(self, task: str, apart: bool, measure: str = "error") -> pd.DataFrame:
        """Return the data sets on which another method is better, the largest ratio first."""
        values = self._positive_values(task, apart, measure)
        our_methods = [name for name in values if name.startswith(OURS)]
        others = values.drop(columns=our_methods).dropna(how="all")
        if OURS not in values or others.empty:
            return pd.DataFrame()
        ours = values.loc[others.index, OURS]
        best = others.min(axis=1)
        table = pd.DataFrame(
            {
                "ours": ours,
                "best other": best,
                "method": others.idxmin(axis=1),
                "ratio": ours / best,
            }
        )
        return table[table["ratio"] > 1].sort_values("ratio", ascending=False)

    def overall(self) -> pd.DataFrame:
        """Return geometric means of our relative errors on common data sets, per half and for all."""
        groups = {half: [apart] for apart, half in HALVES.items()} | {
            "all data sets": list(HALVES)
        }
        rows = {}
        for title, halves in groups.items():
            ratios = _common(self._our_ratios(halves))
            if len(ratios):
                rows[title] = {
                    "number": float(len(ratios)),
                    **np.exp(np.log(ratios).mean()),
                }
        table = (
            pd.DataFrame(rows)
            .T.drop(columns=OURS, errors="ignore")
            .rename_axis("our error relative to")
        )
        if not rows:
            return table
        return table.astype({"number": int})

    def _our_ratios(self, halves: Sequence[bool]) -> pd.DataFrame:
        """Return our errors relative to those of the methods, by data set."""
        parts = []
        for task in TASKS:
            for apart in halves:
                values = self._positive_values(task, apart, "error")
                if OURS in values:
                    parts.append(values.rdiv(values[OURS], axis=0))
        if not parts:
            return pd.DataFrame()
        return pd.concat(parts)

    # Output

    def page(self) -> str:
        """Return the results in Markdown: losses, then summaries for each half, task and metric, then all values."""
        n_drawings = self.rows["drawing"].nunique()
        n_tables = self.rows["table"].nunique()
        boards = self._boards_by_size()
        lines = [
            f"Data sets: {n_tables}. Random splits per data set and size of the training set: {n_drawings}."
        ]
        sizes = [""]
        if len(boards) > 1:
            sizes = [
                f", at most {board.rows['size'].iloc[0]:,} training rows"
                for board in boards
            ]
        for board, size in zip(boards, sizes, strict=True):
            lines += board._loss_lines(size)
        for board, size in zip(boards, sizes, strict=True):
            lines += board._tabarena_lines(size)
            for apart, task, measure in self._shown():
                lines += board._summary_lines(task, apart, measure, size)
            overall = board.overall()
            if len(overall):
                lines += [
                    f"\n### Geometric-mean ratios of errors{size}\n",
                    _markdown(overall, 3),
                ]
        return "\n".join([*lines, *self._value_lines()]) + "\n"

    def _loss_lines(self, size: str) -> list[str]:
        """Return the largest losses of each half, task and metric; no lines if no other method is better."""
        tables = []
        for apart, task, measure in self._shown():
            losses = _mark_tabarena(self.losses(task, apart, measure).head(MOST_LOSSES))
            losses.insert(0, "metric", MEASURES[measure])
            losses.insert(0, "half", HALVES[apart].removesuffix(" data sets"))
            tables.append(losses)
        table = pd.concat(tables)
        if not len(table):
            return []
        title = f"\n### Losses{size}: the largest ratios to the best other method\n"
        return [title, _markdown(table.rename_axis("data set"), 3)]

    def _value_lines(self) -> list[str]:
        """Return the tables of all values, and of the seconds."""
        lines = []
        for apart, task, measure in self._shown():
            values = (
                self.values(task, apart, measure)
                .dropna(how="all")
                .dropna(how="all", axis=1)
            )
            if len(values):
                title = (
                    f"\n### {task.capitalize()}, {HALVES[apart]}: {MEASURES[measure]}\n"
                )
                lines += [title, _markdown(_mark_tabarena(values), 4)]
        for apart, half in HALVES.items():
            for task in TASKS:
                seconds = self.values(task, apart, "seconds")
                if len(seconds):
                    lines += [
                        f"\n### {task.capitalize()}, {half}: CPU seconds per fit\n",
                        _markdown(seconds, 2),
                    ]
        return lines

    def _shown(self) -> list[tuple[bool, str, str]]:
        """Return each half, task and metric of the page, in its order."""
        measures = {"classification": self.section.measures, "regression": ("error",)}
        return [
            (apart, task, measure)
            for apart in HALVES
            for task in TASKS
            for measure in measures[task]
        ]

    def _summary_lines(
        self, task: str, apart: bool, measure: str, size: str
    ) -> list[str]:
        values = self.values(task, apart, measure).dropna(how="all")
        if not len(values):
            return []
        lines = [
            f"\n### {task.capitalize()}, {len(values)} {HALVES[apart]}{size}: {MEASURES[measure]}\n"
        ]
        critical = self.critical_difference(task, apart, measure)
        lines += [
            f"Critical difference of mean ranks (Nemenyi test, 5 % level): {critical:.2f}.\n"
        ]
        summary = self.summary(task, apart, measure)
        measured = summary[summary["data sets"] > 0].dropna(how="all", axis=1)
        return [*lines, _markdown(measured, 3)]

    def _tabarena_lines(self, size: str) -> list[str]:
        """Return a line on the data sets that TabArena has, too; none without at least one."""
        ratios = self._our_ratios(list(HALVES))
        ratios = ratios[ratios.index.isin(TABARENA)].drop(columns=OURS, errors="ignore")
        if not len(ratios):
            return []
        means = np.exp(np.log(ratios).mean())
        comparisons = ", ".join(
            f"{mean:.3f} of {method}" for method, mean in means.dropna().items()
        )
        names = ", ".join(sorted(ratios.index))
        return [
            f"\nData sets of TabArena{size} ({names}): our error is {comparisons} (geometric means)."
        ]

    def picture(self, path: Path) -> None:
        """Draw mean ranks on held-out data sets, with the critical difference from the best; one size per section."""
        import matplotlib.pyplot as plt

        if self.rows["size"].nunique() > 1:
            return
        measures = {"classification": self.section.measures[0], "regression": "error"}
        ranks_by_task = {}
        for task in TASKS:
            ranks = self.summary(task, True, measures[task])["mean rank"].dropna()
            if len(ranks):
                ranks_by_task[task] = ranks.iloc[::-1]
        if not ranks_by_task:
            return
        n_tasks = len(ranks_by_task)
        figure, axes = plt.subplots(
            1, n_tasks, figsize=(5 * n_tasks, 3.2), squeeze=False
        )
        for axis, (task, ranks) in zip(axes[0], ranks_by_task.items(), strict=True):
            axis.plot(ranks, range(len(ranks)), "o", color="0.4")
            if OURS in ranks:
                axis.plot(ranks[OURS], ranks.index.get_loc(OURS), "o", color="C3")
            critical = self.critical_difference(task, True, measures[task])
            if np.isfinite(critical):
                axis.axvspan(
                    ranks.min(), ranks.min() + critical, color="0.92", zorder=0
                )
            axis.set(
                yticks=range(len(ranks)),
                yticklabels=ranks.index,
                xlabel="mean rank, lower is better",
                title=task,
            )
        figure.tight_layout()
        figure.savefig(path, dpi=120)
        plt.close(figure)

    def track(self, name: str) -> None:
        """Log one run per method in the MLflow experiment board, for the section of this name."""
        import mlflow

        mlflow.set_experiment("board")
        metrics: dict[str, dict[str, float]] = defaultdict(dict)
        for board in self._boards_by_size():
            size = board.rows["size"].iloc[0]
            for apart, task, measure in self._shown():
                half = "held_out" if apart else "development"
                key = f"{name}.{size}.{task}.{half}.{measure}"
                summary = board.summary(task, apart, measure).iloc[:, :3]
                for method, row in summary.iterrows():
                    for title, value in row.dropna().items():
                        column = title.split(" /")[0].replace(" ", "_")
                        metrics[method][f"{key}.{column}"] = float(value)
        for method, values in metrics.items():
            with mlflow.start_run(run_name=f"{name}: {method}"):
                mlflow.log_metrics(values)


def win_rates(values: pd.DataFrame) -> pd.Series:
    """Return the share of the other methods that each method beats, as a mean over data
    sets; a tie is half a win.

    As in TabArena (Erickson et al. 2025, arXiv 2506.16791).
    """
    n_others = values.shape[1] - 1
    if n_others < 1:
        return pd.Series(np.nan, index=values.columns)
    ranks = values.rank(axis=1, method="average")
    return ((values.shape[1] - ranks) / n_others).mean()


def improvability(values: pd.DataFrame) -> pd.Series:
    """Return by how many percent the best method of a data set has a lower error, as a
    mean over data sets.

    As in TabArena (Erickson et al. 2025, arXiv 2506.16791).
    """
    best = values.min(axis=1)
    return 100 * (1 - values.rdiv(best, axis=0)).mean()


def _common(values: pd.DataFrame) -> pd.DataFrame:
    """Return the methods that have more than half of the data sets, on the data sets that they all have."""
    return values.loc[:, values.notna().mean() > 0.5].dropna()


def _is_lower(errors: np.ndarray, others: np.ndarray, test_share: float) -> bool:
    p = corrected_p(errors, others, test_share)
    if p is None or len(errors) < FEWEST_SPLITS:
        return False
    return 0 < p < LEVEL  # 0 if all differences are equal


def _mark_tabarena(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose data sets that TabArena has are marked in their names."""
    return table.rename(index={name: f"{name} (TabArena)" for name in TABARENA})


def _markdown(table: pd.DataFrame, digits: int) -> str:
    cells = table.reset_index().map(lambda value: _cell(value, digits))
    lines = [
        "| " + " | ".join(map(str, cells.columns)) + " |",
        "|" + "---|" * cells.shape[1],
    ]
    return "\n".join(
        [*lines, *("| " + " | ".join(row) + " |" for row in cells.to_numpy())]
    )


def _cell(value: object, digits: int) -> str:
    if not isinstance(value, float):
        return str(value)
    if np.isnan(value):
        return ""
    return f"{value:.{digits}f}"
