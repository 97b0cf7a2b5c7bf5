"""Figures of a run: errors of all methods, alignment against error, convergence, selected kernels, relevance, ranks."""

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

from ..measure.baseline import BOOSTING, CONSTANT, GRID_SEARCH, LINEAR
from ..measure.t_tests import critical_difference
from . import tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASELINE_COLORS = {GRID_SEARCH: "#333333", LINEAR: "#666666", BOOSTING: "#999999", CONSTANT: "#cccccc"}

MARKERS = "oDs^vP*X"

PANELS_A_ROW = 3
"""Data sets side by side in a figure."""

MEAN_SIZE, TRIAL_SIZE = 90, 18
"""Areas of the marks of means and of trials, in square points."""

MEAN_LABEL = "mean over trials"

INLINE_BYTES = 400_000
"""Largest figure that is put into a Prefect artifact; a larger one is in MLflow and in the results folder alone."""


def colors_of(table: pd.DataFrame) -> dict[str, str]:
    """Return the color of each learner of a table with columns `learner` and `algorithm`."""
    first = table.drop_duplicates("learner")
    return learner_colors(dict(zip(first["learner"], first["algorithm"], strict=True)))


def panels(datasets: Sequence[str], height: float = 4.2) -> tuple[Figure, list[Axes]]:
    """Return a figure of one panel per data set, a few side by side, each as high as given in inches."""
    from matplotlib.figure import Figure  # here: most commands draw nothing

    columns = min(len(datasets), PANELS_A_ROW)
    rows = -(-len(datasets) // columns)
    figure = Figure(figsize=(4.6 * columns + 1.6, height * rows), layout="constrained")
    axes = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
    for unused in axes[len(datasets) :]:
        unused.set_axis_off()
    for axis, dataset in zip(axes, datasets, strict=False):
        axis.set_title(dataset, parse_math=False)
        axis.grid(alpha=0.3)
    return figure, axes[: len(datasets)]


def add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend next to the panels, with each learner once, in the order of the run."""
    entries = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(list(entries.values()), list(entries), loc="outside right upper")


def run_figures(run: tables.RunTables) -> dict[str, Figure]:
    """Return the figures of a run by the names of their files, *errors of all methods* first."""
    folds, colors = run.folds, colors_of(run.summary)
    drawn = {
        "errors": errors_figure(folds, run.summary),
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


def errors_figure(folds: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    """Return the figure *errors of all methods*: a panel per data set, a row per method, the lowest mean error on top.

    Small marks are trials, large marks are means, and a dashed line is the mean error of the best constant.
    """
    methods = summary[summary["algorithm"] != CONSTANT]
    datasets = list(methods["dataset"].unique())
    most_methods = int(methods.groupby("dataset").size().max())
    figure, axes = panels(datasets, height=1.6 + 0.3 * most_methods)
    colors = colors_of(summary)
    for axis, dataset in zip(axes, datasets, strict=True):
        ranked = methods[methods["dataset"] == dataset].sort_values("error_mean", kind="stable")
        trials = folds[(folds["dataset"] == dataset) & (folds["algorithm"] != CONSTANT)]
        for place, row in enumerate(ranked.itertuples()):
            errors = trials.loc[trials["learner"] == row.learner, "error"]
            color = colors[str(row.learner)]
            axis.scatter(errors, np.full(len(errors), place), s=TRIAL_SIZE, color=color, alpha=0.5, linewidth=0)
            axis.scatter(row.error_mean, place, s=MEAN_SIZE, color=color, edgecolor="black", zorder=3)
        axis.set_yticks(range(len(ranked)), ranked["learner"], parse_math=False)
        axis.set_ylim(len(ranked) - 0.5, -0.5)
        _draw_constant(axis, trials)
        axis.locator_params(axis="x", nbins=5)
    figure.legend(handles=_errors_legend(), loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _draw_constant(axis: Axes, trials: pd.DataFrame) -> None:
    """Draw the error of the best constant as a line; if it is far away, the label of the axis has the number."""
    constant = mean_constant_error(trials)
    low, high = limits_within_reach(trials["error"], [constant])
    axis.axvline(constant, color="black", linestyle="--", linewidth=1)
    axis.set_xlim(low, high)
    label = f"test error ({trials['metric'].iloc[0]})"
    if constant > high:
        label += f"\nbest constant: {constant:.3g} →"
    elif constant < low:
        label += f"\n← best constant: {constant:.3g}"
    axis.set_xlabel(label, parse_math=False)


def _errors_legend() -> list[Any]:
    """Return handles that name the marks of *errors of all methods*."""
    from matplotlib.lines import Line2D  # here, as in `panels`

    mark: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": "gray"}
    return [
        Line2D([], [], markersize=MEAN_SIZE**0.5, markeredgecolor="black", label=MEAN_LABEL, **mark),
        Line2D([], [], markersize=TRIAL_SIZE**0.5, alpha=0.5, label="one trial (fold or repeat)", **mark),
        Line2D([], [], color="black", linestyle="--", linewidth=1, label="best constant"),
    ]


def mean_constant_error(trials: pd.DataFrame) -> float:
    """Return the mean test error of the best constant over the trials of a data set, which all methods share."""
    return float(trials.drop_duplicates(["repeat", "fold"])["trivial_error"].mean())


def limits_within_reach(errors: Any, lines: Sequence[float]) -> tuple[float, float]:
    """Return limits of an axis around errors, and around those lines that lie no farther out than the errors spread."""
    values = np.asarray(errors, dtype=np.float64)
    values = values[np.isfinite(values)]
    finite = [line for line in lines if np.isfinite(line)]
    if not len(values):
        values = np.array(finite or [0.0])
    low, high = values.min(), values.max()
    spread = high - low
    shown = [line for line in finite if spread == 0 or low - spread <= line <= high + spread]
    low, high = min([low, *shown]), max([high, *shown])
    margin = 0.06 * (high - low) or 0.06 * abs(high) or 0.06
    return float(low - margin), float(high + margin)


def alignment_figure(folds: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    """Return the figure *alignment against error*: a panel per data set, a color per learner, means over trials.

    Trials are not drawn: folds that are harder for all learners would look like a trend. Bars are standard errors
    without the difference between folds, see `errors_without_trial_effect`. Methods without an alignment are horizontal
    lines. The title of a panel names the method of the lowest mean error, and a ring marks it, if it has a kernel.
    """
    datasets = list(summary["dataset"].unique())
    figure, axes = panels(datasets, height=4.6)
    colors = colors_of(summary)
    markers = {learner: MARKERS[place % len(MARKERS)] for place, learner in enumerate(colors)}
    for axis, dataset in zip(axes, datasets, strict=True):
        methods = summary[summary["dataset"] == dataset]
        aligned = methods[methods["alignment_mean"].notna()]
        trials = folds[(folds["dataset"] == dataset) & folds["learner"].isin(aligned["learner"])]
        standard_errors = errors_without_trial_effect(trials).groupby(trials["learner"]).sem().fillna(0.0)
        for row in aligned.itertuples():
            style: dict[str, Any] = {"color": colors[str(row.learner)], "marker": markers[str(row.learner)]}
            bar: dict[str, Any] = {"color": style["color"], "elinewidth": 1.5, "capsize": 3, "fmt": "none", "zorder": 2}
            axis.errorbar(row.alignment_mean, row.error_mean, yerr=standard_errors[row.learner], **bar)
            mean: dict[str, Any] = {"s": MEAN_SIZE, "edgecolor": "black", "zorder": 3, "label": row.learner}
            axis.scatter(row.alignment_mean, row.error_mean, **mean, **style)
            if row.best:
                ring: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.5, "zorder": 3}
                axis.scatter(row.alignment_mean, row.error_mean, s=4 * MEAN_SIZE, marker="o", **ring)
        spread = standard_errors.reindex(aligned["learner"]).to_numpy(dtype=np.float64)
        means = aligned["error_mean"].to_numpy()
        reach = [*(means - spread), *(means + spread)]
        _draw_unaligned(axis, reach, methods[methods["alignment_mean"].isna()], colors)
        axis.set_xlabel("centered alignment\n(training rows)")
        axis.set_ylabel(f"test error ({methods['metric'].iloc[0]})", parse_math=False)
        axis.locator_params(axis="x", nbins=5)
        axis.margins(x=0.12)
        won = methods[methods["best"]]
        names = [f"{row.learner}{' (no kernel)' * pd.isna(row.alignment_mean)}" for row in won.itertuples()]
        axis.set_title(f"{dataset}\nlowest error: {', '.join(names)}", parse_math=False)
    add_legend(figure, axes)
    figure.legend(handles=_alignment_legend(), loc="outside lower center", ncols=2, fontsize="small")
    return figure


def errors_without_trial_effect(trials: pd.DataFrame) -> pd.Series:
    """Return errors less the mean of each trial over the learners, plus the mean of all trials.

    The mean of each learner stays the same, since all learners of a data set have the same trials.
    """
    of_trial = trials.groupby(["repeat", "fold"])["error"].transform("mean")
    return trials["error"] - of_trial + trials["error"].mean()


def _draw_unaligned(axis: Axes, errors: Sequence[float], methods: pd.DataFrame, colors: Mapping[str, str]) -> None:
    """Draw mean errors of methods without an alignment as horizontal lines, named at the right edge of the panel.

    A method far above or below the errors of the others has an arrow in place of a line.
    """
    low, high = limits_within_reach(errors, list(methods["error_mean"]))
    axis.set_ylim(low, high)
    ranked = methods[np.isfinite(methods["error_mean"])].sort_values("error_mean", kind="stable")
    heights = [float(np.clip((error - low) / (high - low), 0.0, 1.0)) for error in ranked["error_mean"]]
    for row, height, at in zip(ranked.itertuples(), heights, spread_apart(heights, 0.055), strict=True):
        text = str(row.learner)
        color = colors[text]
        if row.error_mean > high:
            text += f" {row.error_mean:.3g} ↑"
        elif row.error_mean < low:
            text += f" {row.error_mean:.3g} ↓"
        axis.axhline(row.error_mean, color=color, linestyle="--", linewidth=1.2, zorder=1)
        axis.annotate(
            text,
            (1.0, height),
            (1.04, at),
            xycoords="axes fraction",
            va="center",
            fontsize="small",
            annotation_clip=False,
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0},
        )


def spread_apart(positions: Sequence[float], gap: float) -> list[float]:
    """Return ascending positions of labels, moved as little as needed for a gap between each two neighbors."""
    places = list(positions)
    for _ in range(100):
        close = [k for k in range(1, len(places)) if places[k] - places[k - 1] < gap - 1e-9]
        if not close:
            break
        for k in close:
            push = max(0.0, gap - (places[k] - places[k - 1])) / 2
            places[k - 1] -= push
            places[k] += push
    return places


def _alignment_legend() -> list[Any]:
    """Return handles that name the marks of *alignment against error*."""
    from matplotlib.lines import Line2D  # here, as in `panels`

    mark: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": "gray"}
    ring: dict[str, Any] = mark | {"markerfacecolor": "none", "markeredgecolor": "black"}
    bar: dict[str, Any] = {"linestyle": "none", "marker": "|", "color": "gray", "markeredgewidth": 1.5}
    return [
        Line2D([], [], markersize=MEAN_SIZE**0.5, markeredgecolor="black", label=MEAN_LABEL, **mark),
        Line2D([], [], markersize=16, label="± standard error without fold effects", **bar),
        Line2D([], [], markersize=1.6 * MEAN_SIZE**0.5, label="lowest mean error", **ring),
        Line2D([], [], color="gray", linestyle="--", linewidth=1.2, label="method without an alignment"),
    ]


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
