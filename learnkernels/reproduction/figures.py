"""Figures of the papers' items: what the papers draw, and alignment against error."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.tasks.evidence.figures import MARKERS, add_legend, alignment_figure, by_learner, colors_of, panels
from learnkernels.tasks.evidence.tables import mean_shares, summarize

from .item import FigureConfig, PaperItem, panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURE_BYTES = 120_000
"""Most that a figure takes, so that a report can be kept under version control."""

WITH_TRIALS = 6
"""Data sets up to which the figure of alignments shows each trial, and not the means alone."""

SHOWN_PLACES = 10
"""Places of a curve that each have a tick."""


def figures(item: PaperItem, folds: pd.DataFrame) -> dict[str, Figure]:
    """Return the figures of a comparison: the paper's, and alignment against error."""
    drawn: dict[str, Figure | None] = {}
    kind = item.figure.kind
    if kind == "curves" and len(placed(folds)):
        drawn["curves"] = curves_figure(folds, item.figure)
    elif kind == "weights":
        drawn["weights"] = weights_figure(folds, item.figure.learners)
    elif kind == "ranks":
        drawn["ranks"] = ranks_figure(folds)
    if folds["alignment"].notna().any():
        if kind == "curves":
            drawn["alignment"] = _mean_alignment_figure(_by_panel(folds), colors_of(folds))
        elif folds["dataset"].nunique() > WITH_TRIALS:
            drawn["alignment"] = _mean_alignment_figure(folds.assign(place=0.0), colors_of(folds))
        else:
            drawn["alignment"] = alignment_figure(folds, summarize(folds))
    return {name: figure for name, figure in drawn.items() if figure is not None}


def curves_figure(folds: pd.DataFrame, config: FigureConfig) -> Figure | None:
    """Return test error ± deviation along the last word of data set names: one panel per name, one line per learner."""
    table, colors = _by_panel(folds), colors_of(folds)

    def draw(axis: Axes, trials: pd.DataFrame, style: dict[str, Any]) -> None:
        along = trials.groupby("place")["error"].agg(["mean", "std"]).sort_index()
        axis.errorbar(
            along.index.to_numpy(), along["mean"].to_numpy(), along["std"].fillna(0.0).to_numpy(),
            ls="--" if style["label"] == GRID_SEARCH_TITLE else "-", lw=1.2, ms=4, capsize=2,
            marker=_marker(style["label"], colors), **style,
        )  # fmt: skip

    figure = by_learner(table, colors, draw, xlabel=config.x or "", ylabel=_error_label(folds))
    for axis in figure.axes if figure is not None else ():
        places = sorted(table.loc[table["dataset"] == axis.get_title(), "place"].unique())
        if config.log and places:
            axis.set_xscale("log")
        if 0 < len(places) <= SHOWN_PLACES:
            axis.set_xticks(places, [f"{place:g}" for place in places])
            axis.set_xticks([], minor=True)
    return figure


def _marker(learner: str, colors: Mapping[str, str]) -> str:
    return MARKERS[list(colors).index(learner) % len(MARKERS)]


def _error_label(folds: pd.DataFrame) -> str:
    return f"test error ({', '.join(folds['metric'].unique())})"


def placed(folds: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of data sets that have a place in a panel, with columns `panel` and `place`."""
    places = {name: panel(name) for name in folds["dataset"].unique()}
    table = folds.assign(
        panel=[places[name][0] for name in folds["dataset"]], place=[places[name][1] for name in folds["dataset"]]
    )
    return table[table["place"].notna()]


def _by_panel(folds: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of data sets that have a place in a panel, whose name is that of their data set."""
    table = placed(folds)
    return table.assign(dataset=table["panel"])


def _mean_alignment_figure(table: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    """Return alignment against error, means alone, of trials with a column `place`, a point a place."""

    def draw(axis: Axes, trials: pd.DataFrame, style: dict[str, Any]) -> None:
        means = trials.groupby("place")[["alignment", "error"]].mean()
        marker = _marker(style["label"], colors)
        axis.scatter(means["alignment"], means["error"], s=40, alpha=0.8, marker=marker, **style)

    table = table[table["alignment"].notna()]
    labels = {"xlabel": "centered alignment (training rows)", "ylabel": _error_label(table)}
    return by_learner(table, colors, draw, **labels)


def weights_figure(folds: pd.DataFrame, learners: Sequence[str]) -> Figure | None:
    """Return mean shares of base kernels, learner against learner: a panel for each pair and data set."""
    pairs = []
    for dataset, of in folds.groupby("dataset", sort=False):
        known = dict([*of.groupby("learner")])
        for one, other in itertools.combinations([name for name in learners if name in known], 2):
            pairs.append((f"{dataset}: {one}, {other}", one, other, mean_shares(known[one]), mean_shares(known[other])))
    if not pairs:
        return None
    figure, axes = panels([title for title, *_ in pairs])
    colors = colors_of(folds)
    for axis, (_, one, other, x, y) in zip(axes, pairs, strict=True):
        ends = [min(x.min(), y.min(), 0.0), max(x.max(), y.max())]
        axis.plot(ends, ends, color="0.7", lw=1, zorder=0)
        axis.scatter(x, y, s=40, color=colors[other], edgecolor="black")
        axis.set(xlabel=f"share, {one}", ylabel=f"share, {other}")
    return figure


def ranks_figure(folds: pd.DataFrame) -> Figure:
    """Return test error ± deviation of each learner, a row per data set."""
    datasets, colors = list(folds["dataset"].unique()), colors_of(folds)
    figure = Figure(figsize=(9.0, 1.2 + 0.55 * len(datasets)), layout="constrained")
    axis = figure.subplots()
    for c, (learner, color) in enumerate(colors.items()):
        of = folds[folds["learner"] == learner].groupby("dataset")["error"].agg(["mean", "std"])
        of = of.reindex(datasets)
        y = np.arange(len(datasets)) + 0.6 * ((c + 0.5) / len(colors) - 0.5)
        axis.errorbar(
            of["mean"], y, xerr=of["std"].fillna(0.0), fmt=MARKERS[c % len(MARKERS)], ms=5, lw=0.8, color=color,
            label=learner,
        )  # fmt: skip
    axis.set_yticks(range(len(datasets)), datasets)
    axis.set_ylim(len(datasets) - 0.5, -0.5)
    axis.grid(alpha=0.3)
    axis.set_xlabel(_error_label(folds))
    add_legend(figure, [axis])
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as PNG, as fine as `FIGURE_BYTES` allow; the same figure gives the same bytes."""
    dpi = 100.0
    while True:
        buffer = BytesIO()
        figure.savefig(buffer, dpi=dpi, format="png", metadata={"Software": None})
        if buffer.tell() <= FIGURE_BYTES or dpi < 30:
            return buffer.getvalue()
        dpi *= min(0.9, (FIGURE_BYTES / buffer.tell()) ** 0.5)
