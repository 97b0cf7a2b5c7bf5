"""Figures of a run: alignment against error, convergence, shares, base kernels that were found, what features
count.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from learnkernels.conf.schema.compare import FiguresConfig
from learnkernels.kernels.learners import LEARNERS
from learnkernels.tasks.evidence import tables
from learnkernels.tasks.measure.baseline import BOOSTING, CONSTANT, GRID_SEARCH, LINEAR
from learnkernels.tasks.measure.t_tests import critical_difference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASELINE_COLORS = {GRID_SEARCH: "#333333", LINEAR: "#666666", BOOSTING: "#999999", CONSTANT: "#cccccc"}

MARKERS = "oDs^vP*X"

PANELS_A_ROW = 3
"""Data sets side by side in a figure."""

INLINE_BYTES = 400_000
"""Largest figure that is put into a Prefect artifact; a larger one is in MLflow and in the results folder alone."""


def colors_of(table: pd.DataFrame) -> dict[str, str]:
    """Return the color of each learner of a table with columns `learner` and `algorithm`."""
    first = table.drop_duplicates("learner")
    return learner_colors(dict(zip(first["learner"], first["algorithm"], strict=True)))


def panels(datasets: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure of one panel per data set, a few side by side."""
    from matplotlib.figure import Figure  # here: most commands draw nothing

    columns = min(len(datasets), PANELS_A_ROW)
    rows = -(-len(datasets) // columns)
    figure = Figure(figsize=(4.6 * columns + 1.6, 4.2 * rows), layout="constrained")
    axes = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
    for unused in axes[len(datasets) :]:
        unused.set_axis_off()
    for axis, dataset in zip(axes, datasets, strict=False):
        axis.set_title(dataset)
        axis.grid(alpha=0.3)
    return figure, axes[: len(datasets)]


def add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend next to the panels, with each learner once, in the order of the run."""
    entries = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(list(entries.values()), list(entries), loc="outside right upper")


def run_figures(run: tables.RunTables) -> dict[str, Figure]:
    """Return the figures of a run by the names of their files, *alignment against error* first."""
    folds, colors = run.folds, colors_of(run.summary)
    drawn = {
        "alignment_vs_error": alignment_figure(folds, run.summary),
        "convergence": convergence_figure(folds, colors),
        "history": history_figure(folds, colors),
        "found_kernels": found_figure(folds, colors),
        "relevance": relevance_figure(folds, colors),
        "ranks": ranks_figure(run.ranks),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def save_figure(figure: Figure, path: Path, wanted: FiguresConfig | None) -> None:
    """Write a figure as PNG, and as a configuration wants it for a paper; `path` lacks the ending."""
    from matplotlib import rc_context  # here, as in `panels`

    figure.savefig(path.with_suffix(".png"), dpi=100)  # two panels fit on a page of MLflow
    if wanted is not None:
        width, height = figure.get_size_inches()
        figure.set_size_inches(wanted.width or width, wanted.height or height)
        with rc_context({"pdf.fonttype": 42}):  # publishers refuse other fonts
            figure.savefig(path.with_suffix(f".{wanted.format}"), dpi=300)


def alignment_figure(folds: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    """Return the figure *alignment against error*: a panel per data set, a color per learner, each trial and the mean.

    The title of a panel names the learner of the lowest mean error, and a ring marks it, if it has a kernel.
    """
    datasets = list(summary["dataset"].unique())
    figure, axes = panels(datasets)
    for axis, dataset in zip(axes, datasets, strict=True):
        for c, (learner, color) in enumerate(colors_of(summary).items()):
            of = folds[(folds["dataset"] == dataset) & (folds["learner"] == learner)]
            means = summary[(summary["dataset"] == dataset) & (summary["learner"] == learner)]
            if means.empty or pd.isna(means.iloc[0].alignment_mean):
                continue  # it combines hypotheses and has no kernel
            mean = means.iloc[0]
            style: dict[str, Any] = {"color": color, "marker": MARKERS[c % len(MARKERS)]}
            axis.scatter(of["alignment"], of["error"], s=18, alpha=0.35, **style)
            axis.scatter(mean.alignment_mean, mean.error_mean, s=90, edgecolor="black", label=learner, **style)
            if mean.best:
                ring: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.5}
                axis.scatter(mean.alignment_mean, mean.error_mean, s=360, marker="o", **ring)
            axis.set(xlabel="centered alignment (training rows)", ylabel=f"test error ({mean.metric})")
            axis.locator_params(axis="x", nbins=6)
        won = summary[(summary["dataset"] == dataset) & summary["best"]]
        names = [f"{one.learner}{' (no kernel)' * pd.isna(one.alignment_mean)}" for one in won.itertuples()]
        axis.set_title(f"{dataset}\nlowest error: {', '.join(names)}", parse_math=False)
    add_legend(figure, axes)
    return figure


def by_learner(
    table: pd.DataFrame,
    colors: Mapping[str, str],
    draw: Callable[[Axes, pd.DataFrame, dict[str, Any]], None],
    **labels: Any,
) -> Figure | None:
    """Return a figure of a panel per data set, in which `draw` shows the trials of each learner; None of no trials.

    `draw` is given the axes, the trials, and color and label of the learner; `labels` are properties of the axes.
    """
    if table.empty:
        return None
    datasets = list(table["dataset"].unique())
    figure, axes = panels(datasets)
    for axis, dataset in zip(axes, datasets, strict=True):
        trials = table[table["dataset"] == dataset]
        for learner, color in colors.items():
            if len(of := trials[trials["learner"] == learner]):
                draw(axis, of, {"color": color, "label": learner})
        axis.set(**labels)
    add_legend(figure, axes)
    return figure


def convergence_figure(folds: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    """Return the figure of iterative learners: what is left of the objective after each iteration, a line per trial.

    None where no learner iterates.
    """

    def draw(axis: Axes, trials: pd.DataFrame, style: dict[str, Any]) -> None:
        for values in trials["objectives"]:
            left = (values - np.min(values)) / max(abs(values[0]), np.finfo(float).tiny)
            axis.semilogy(np.arange(1, len(left)), left[:-1], "o-", ms=3, lw=1, alpha=0.6, **style)
            style = style | {"label": None}

    iterated = folds[folds["objectives"].map(lambda values: values is not None and len(values) > 1)]
    return by_learner(iterated, colors, draw, xlabel="step", ylabel="objective above its last value, relative")


def history_figure(folds: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    """Return the figure of alignments on the way to base kernels, a line per learner; None where no learner tells."""

    def draw(axis: Axes, trials: pd.DataFrame, style: dict[str, Any]) -> None:
        history = tables.mean_history(trials)
        axis.plot(np.arange(1, len(history) + 1), history, "o-", ms=3, **style)
        axis.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]

    told = folds.groupby(["dataset", "learner"], sort=False).filter(lambda of: len(tables.mean_history(of)) > 0)
    return by_learner(told, colors, draw, xlabel="base kernels added, or rounds", ylabel="mean alignment")


def found_figure(folds: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    """Return the figure of found base kernels: sigma against share, a color per learner; None where none was found.

    A kernel with a sigma per feature is a line of dots at its share.
    """

    def draw(axis: Axes, trials: pd.DataFrame, style: dict[str, Any]) -> None:
        sigma = [np.stack(values) for values in trials["parameters"]]
        shares = [
            np.repeat(np.asarray(weights) / np.sum(weights), values.shape[1])
            for weights, values in zip(trials["weights"], sigma, strict=True)
        ]
        found = np.concatenate([values.ravel() for values in sigma])
        axis.scatter(found, np.concatenate(shares), s=18, alpha=0.5, **style)

    found = folds[[values is not None for values in folds["parameters"]]]
    labels = {"xlabel": "sigma (bandwidth or frequency)", "ylabel": "share of the weight", "xscale": "log"}
    return by_learner(found, colors, draw, **labels)


def relevance_figure(folds: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    """Return the figure of the features that count most, a color per learner; None where no learner tells."""
    told = list(tables.mean_relevance(folds))
    if not told:
        return None
    figure, axes = panels([dataset for dataset, _ in told])
    for axis, (_, shares) in zip(axes, told, strict=True):
        features = list(dict.fromkeys(shares["feature"]))
        for learner, of in shares.groupby("learner", sort=False):
            at, color = [features.index(name) for name in of["feature"]], colors[str(learner)]
            axis.errorbar(of["mean"], at, xerr=of["sd"], color=color, fmt="none", elinewidth=1.2, zorder=1)
            axis.plot(of["mean"], at, "o", color=color, label=learner)
        axis.set(xlabel="share of what all features count")
        axis.set_yticks(range(len(features)), features, parse_math=False)
        axis.invert_yaxis()
    add_legend(figure, axes)
    return figure


def ranks_figure(ranks: pd.DataFrame) -> Figure | None:
    """Return the critical-difference diagram: mean ranks over data sets, and bars over what does not differ.

    None of fewer than two data sets or three methods.

    References
    ----------
    Demsar (2006), JMLR 7:1-30, figure 1.
    """
    (n, k), mean = ranks.shape, ranks.mean().sort_values()
    if n < 2 or k < 3:
        return None
    from matplotlib.figure import Figure  # here, as in `panels`

    values, apart, half = mean.to_numpy(), critical_difference(n, k), (k + 1) // 2
    figure = Figure(figsize=(6.4, 1.2 + 0.3 * half))
    axis = figure.add_axes((0.28, 0.04, 0.44, 0.84))  # names need room on both sides, which no layout finds
    axis.set_axis_off()
    axis.set_xlim(0.8, max(k, 1 + apart) + 0.2)
    axis.hlines([0.0, 2.2], [1.0, 1.0], [k, 1 + apart], color="black", lw=1)
    axis.text(1 + apart / 2, 2.3, f"critical difference {apart:.2f}", ha="center", va="bottom")
    for rank in range(1, k + 1):
        axis.vlines(rank, 0.0, 0.3, color="black", lw=1)
        axis.text(rank, 0.4, str(rank), ha="center", va="bottom")
    for place, (name, rank) in enumerate(mean.items()):
        left = place < half
        y, end = -1.5 - (place if left else k - 1 - place), 0.8 if left else k + 0.2
        axis.plot([rank, rank, end], [0.0, y, y], color="black", lw=0.8)
        side: dict[str, Any] = {"ha": "right" if left else "left", "va": "center", "parse_math": False}
        axis.text(end, y, f" {name} ({rank:.2f}) ", **side)
    reach = np.searchsorted(values, values + apart, side="right") - 1
    bars = [(i, j) for i, j in enumerate(reach) if j > i and (i == 0 or j > reach[i - 1])]
    for row, (i, j) in enumerate(bars):
        axis.hlines(-0.35 - row / len(bars), values[i] - 0.04, values[j] + 0.04, color="black", lw=3)
    return figure


def inline(figure: Figure) -> str | None:
    """Return a figure as an address that holds it, or None where it is large."""
    buffer = BytesIO()
    figure.savefig(buffer, dpi=100, format="png")
    image = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/png;base64,{image}" if len(image) <= INLINE_BYTES else None


def learner_colors(learners: Mapping[str, str]) -> dict[str, str]:
    """Return the color of each learner, the same in MLflow's charts, in the figures and from run to run.

    Parameters
    ----------
    learners : mapping of str to str
        Name in reports -> name in the table of learners, in the order of the run. An algorithm has its own color;
        where it stands in a run more than once, the later ones take the colors that no algorithm of the run has.
    """
    from matplotlib import colormaps  # here, as in `panels`
    from matplotlib.colors import to_hex

    palette = [to_hex(color) for name in ("tab10", "Set2", "Dark2") for color in colormaps[name].colors]  # type: ignore[attr-defined]
    own = {**dict(zip(LEARNERS, palette, strict=False)), **BASELINE_COLORS}
    free = [color for color in palette if color not in {own.get(algorithm) for algorithm in learners.values()}]
    colors: dict[str, str] = {}
    for title, algorithm in learners.items():
        color = own.get(algorithm)
        if color is None or color in colors.values():
            color = free.pop(0) if free else palette[len(colors) % len(palette)]
        colors[title] = color
    return colors
