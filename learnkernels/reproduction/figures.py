"""Figures of items: the published figures, and alignment against error."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from learnkernels.conf.schema import GRID_SEARCH_TITLE
from learnkernels.tasks.reporting.figures import (
    MARKERS,
    add_legend,
    alignment_figure,
    by_learner,
    colors_of,
    panels,
)
from learnkernels.tasks.reporting.tables import mean_shares, summarize

from .item import FigureConfig, PaperItem, panel_and_place

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURE_BYTES = 120_000

MAX_DATASETS_WITH_TRIALS = 6

MAX_TICKS = 10


def item_figures(item: PaperItem, folds: pd.DataFrame) -> dict[str, Figure]:
    figures: dict[str, Figure | None] = {}
    kind = item.figure.kind
    if kind == "curves" and not trials_on_curves(folds).empty:
        figures["curves"] = curves_figure(folds, item.figure)
    elif kind == "weights":
        figures["weights"] = weights_figure(folds, item.figure.learners)
    elif kind == "ranks":
        figures["ranks"] = ranks_figure(folds)
    if folds["alignment"].notna().any():
        figures["alignment"] = _alignment_against_error(item, folds)
    return {name: figure for name, figure in figures.items() if figure is not None}


def _alignment_against_error(item: PaperItem, folds: pd.DataFrame) -> Figure | None:
    if item.figure.kind == "curves":
        return _mean_alignment_figure(_trials_by_panel(folds), colors_of(folds))
    if folds["dataset"].nunique() > MAX_DATASETS_WITH_TRIALS:
        return _mean_alignment_figure(folds.assign(place=0.0), colors_of(folds))
    return alignment_figure(folds, summarize(folds))


def curves_figure(folds: pd.DataFrame, config: FigureConfig) -> Figure | None:
    """Draw test errors against the number that ends data set names; None without one."""
    trials = _trials_by_panel(folds)
    colors = colors_of(folds)

    def draw_curve(
        axis: Axes, learner_trials: pd.DataFrame, style: dict[str, Any]
    ) -> None:
        errors = (
            learner_trials.groupby("place")["error"].agg(["mean", "std"]).sort_index()
        )
        line_style = "-"
        if style["label"] == GRID_SEARCH_TITLE:
            line_style = "--"
        axis.errorbar(
            errors.index.to_numpy(),
            errors["mean"].to_numpy(),
            errors["std"].fillna(0.0).to_numpy(),
            ls=line_style,
            lw=1.2,
            ms=4,
            capsize=2,
            marker=_marker(style["label"], colors),
            **style,
        )

    figure = by_learner(
        trials, colors, draw_curve, xlabel=config.x or "", ylabel=_error_label(folds)
    )
    if figure is None:
        return None
    for axis in figure.axes:
        places = sorted(
            trials.loc[trials["dataset"] == axis.get_title(), "place"].unique()
        )
        if config.log and places:
            axis.set_xscale("log")
        if 0 < len(places) <= MAX_TICKS:
            axis.set_xticks(places, [f"{place:g}" for place in places])
            axis.set_xticks([], minor=True)
    return figure


def _marker(learner: str, colors: Mapping[str, str]) -> str:
    return MARKERS[list(colors).index(learner) % len(MARKERS)]


def _error_label(folds: pd.DataFrame) -> str:
    return f"test error ({', '.join(folds['metric'].unique())})"


def trials_on_curves(folds: pd.DataFrame) -> pd.DataFrame:
    """Return the results on data sets whose names end with a number."""
    panels_and_places = [panel_and_place(name) for name in folds["dataset"]]
    trials = folds.assign(
        panel=[name for name, _ in panels_and_places],
        place=[place for _, place in panels_and_places],
    )
    return trials[trials["place"].notna()]


def _trials_by_panel(folds: pd.DataFrame) -> pd.DataFrame:
    trials = trials_on_curves(folds)
    return trials.assign(dataset=trials["panel"])


def _mean_alignment_figure(
    trials: pd.DataFrame, colors: Mapping[str, str]
) -> Figure | None:

    def draw_means(
        axis: Axes, learner_trials: pd.DataFrame, style: dict[str, Any]
    ) -> None:
        means = learner_trials.groupby("place")[["alignment", "error"]].mean()
        marker = _marker(style["label"], colors)
        axis.scatter(
            means["alignment"], means["error"], s=40, alpha=0.8, marker=marker, **style
        )

    aligned = trials[trials["alignment"].notna()]
    return by_learner(
        aligned,
        colors,
        draw_means,
        xlabel="centered alignment (training rows)",
        ylabel=_error_label(aligned),
    )


def weights_figure(folds: pd.DataFrame, learners: Sequence[str]) -> Figure | None:
    """Draw mean kernel weights of one learner against another's; None without pairs."""
    pairs = []
    for dataset, trials in folds.groupby("dataset", sort=False):
        shares = {
            learner: mean_shares(learner_trials)
            for learner, learner_trials in trials.groupby("learner")
            if learner in learners
        }
        measured = [learner for learner in learners if learner in shares]
        for first, second in itertools.combinations(measured, 2):
            pairs.append(
                (
                    f"{dataset}: {first}, {second}",
                    first,
                    second,
                    shares[first],
                    shares[second],
                )
            )
    if not pairs:
        return None
    figure, axes = panels([title for title, *_ in pairs])
    colors = colors_of(folds)
    for axis, (_, first, second, x, y) in zip(axes, pairs, strict=True):
        diagonal = [min(x.min(), y.min(), 0.0), max(x.max(), y.max())]
        axis.plot(diagonal, diagonal, color="0.7", lw=1, zorder=0)
        axis.scatter(x, y, s=40, color=colors[second], edgecolor="black")
        axis.set(xlabel=f"share, {first}", ylabel=f"share, {second}")
    return figure


def ranks_figure(folds: pd.DataFrame) -> Figure:
    """Draw each learner's mean test error and standard deviation, by data set."""
    datasets = list(folds["dataset"].unique())
    colors = colors_of(folds)
    figure = Figure(figsize=(9.0, 1.2 + 0.55 * len(datasets)), layout="constrained")
    axis = figure.subplots()
    for position, (learner, color) in enumerate(colors.items()):
        trials = folds[folds["learner"] == learner]
        errors = (
            trials.groupby("dataset")["error"].agg(["mean", "std"]).reindex(datasets)
        )
        offset = 0.6 * ((position + 0.5) / len(colors) - 0.5)
        axis.errorbar(
            errors["mean"],
            np.arange(len(datasets)) + offset,
            xerr=errors["std"].fillna(0.0),
            fmt=_marker(learner, colors),
            ms=5,
            lw=0.8,
            color=color,
            label=learner,
        )
    axis.set_yticks(range(len(datasets)), datasets)
    axis.set_ylim(len(datasets) - 0.5, -0.5)
    axis.grid(alpha=0.3)
    axis.set_xlabel(_error_label(folds))
    add_legend(figure, [axis])
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as a small, reproducible PNG file."""
    dpi = 100.0
    while True:
        buffer = BytesIO()
        figure.savefig(buffer, dpi=dpi, format="png", metadata={"Software": None})
        size = buffer.tell()
        if size <= FIGURE_BYTES or dpi < 30:
            return buffer.getvalue()
        dpi *= min(0.9, (FIGURE_BYTES / size) ** 0.5)
