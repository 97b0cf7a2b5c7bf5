"""Draw the figures of a run."""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from learnkernels.conf.schema.compare import FiguresConfig
from learnkernels.kernels.learners import LEARNERS

from ..measure.baseline import BOOSTING, CONSTANT, ESTIMATOR, GRID_SEARCH, LINEAR
from ..measure.t_tests import critical_difference
from . import tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASELINE_COLORS = {
    GRID_SEARCH: "#333333",
    LINEAR: "#666666",
    BOOSTING: "#999999",
    CONSTANT: "#cccccc",
    ESTIMATOR: "#000000",
}

MARKERS = "oDs^vP*X"

MEAN_SIZE = 90

TRIAL_SIZE = 18

MEAN_LABEL = "mean over trials"


def colors_of(table: pd.DataFrame) -> dict[str, str]:
    learners = table.drop_duplicates("learner")
    algorithms = zip(learners["learner"], learners["algorithm"], strict=True)
    return learner_colors(dict(algorithms))


def panels(datasets: Sequence[str], height: float = 4.2) -> tuple[Figure, list[Axes]]:
    """Return a figure with axes for each data set, at most three in a row."""
    from matplotlib.figure import Figure  # most commands draw nothing

    n_columns = min(len(datasets), 3)
    n_rows = math.ceil(len(datasets) / n_columns)
    size = (4.6 * n_columns + 1.6, height * n_rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False)
    axes = list(np.ravel(grid))
    for unused in axes[len(datasets) :]:
        unused.set_axis_off()
    for axis, dataset in zip(axes, datasets, strict=False):
        axis.set_title(dataset, parse_math=False)
        axis.grid(alpha=0.3)
    return figure, axes[: len(datasets)]


def add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    entries: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside right upper")


def run_figures(run: tables.RunTables) -> dict[str, Figure]:
    folds = run.folds
    colors = colors_of(run.summary)
    figures = {
        "errors": errors_figure(folds, run.summary),
        "alignment_vs_error": alignment_figure(folds, run.summary),
        "convergence": convergence_figure(folds, colors),
        "history": history_figure(folds, colors),
        "found_kernels": selected_kernels_figure(folds, colors),
        "relevance": relevance_figure(folds, colors),
        "ranks": ranks_figure(run.ranks),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def save_figure(figure: Figure, path: Path, config: FiguresConfig | None) -> None:
    """Write a figure as PNG and, if configured, in the format for a paper."""
    from matplotlib import rc_context

    # Two panels fit on a page of MLflow
    figure.savefig(path.with_suffix(".png"), dpi=100)
    if config is None:
        return
    width, height = figure.get_size_inches()
    figure.set_size_inches(config.width or width, config.height or height)
    with rc_context({"pdf.fonttype": 42}):  # publishers refuse Type 3 fonts
        figure.savefig(path.with_suffix(f".{config.format}"), dpi=300)


def errors_figure(folds: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    """Draw the errors of all methods: axes per data set, a row per method."""
    methods = summary[summary["algorithm"] != CONSTANT]
    datasets = list(methods["dataset"].unique())
    largest_panel = int(methods.groupby("dataset").size().max())
    figure, axes = panels(datasets, height=1.6 + 0.3 * largest_panel)
    colors = colors_of(summary)
    for axis, dataset in zip(axes, datasets, strict=True):
        ranked = methods[methods["dataset"] == dataset].sort_values(
            "error_mean", kind="stable"
        )
        trials = folds[(folds["dataset"] == dataset) & (folds["algorithm"] != CONSTANT)]
        _draw_errors(axis, ranked, trials, colors)
        _draw_constant(axis, trials)
        axis.locator_params(axis="x", nbins=5)
    figure.legend(
        handles=_errors_legend(),
        loc="outside lower center",
        ncols=3,
        fontsize="small",
    )
    return figure


def _draw_errors(
    axis: Axes, ranked: pd.DataFrame, trials: pd.DataFrame, colors: Mapping[str, str]
) -> None:
    for position, row in enumerate(ranked.itertuples()):
        color = colors[str(row.learner)]
        errors = trials.loc[trials["learner"] == row.learner, "error"]
        heights = np.full(len(errors), position)
        axis.scatter(
            errors,
            heights,
            s=TRIAL_SIZE,
            color=color,
            alpha=0.5,
            linewidth=0,
        )
        axis.scatter(
            row.error_mean,
            position,
            s=MEAN_SIZE,
            color=color,
            edgecolor="black",
            zorder=3,
        )
    axis.set_yticks(range(len(ranked)), ranked["learner"], parse_math=False)
    axis.set_ylim(len(ranked) - 0.5, -0.5)


def _draw_constant(axis: Axes, trials: pd.DataFrame) -> None:
    constant = mean_constant_error(trials)
    low, high = limits_within_reach(trials["error"], [constant])
    axis.axvline(constant, color="black", linestyle="--", linewidth=1)
    axis.set_xlim(low, high)
    metric = trials["metric"].iloc[0]
    label = f"test error ({metric})"
    if constant > high:
        label += f"\nbest constant: {constant:.3g} →"
    elif constant < low:
        label += f"\n← best constant: {constant:.3g}"
    axis.set_xlabel(label, parse_math=False)


def _legend_line(label: str, **style: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **{"color": "gray", "linestyle": "--", **style}, label=label)


def _legend_mark(label: str, marker: str = "o", **style: Any) -> Any:
    return _legend_line(label, linestyle="none", marker=marker, **style)


def _legend_mean() -> Any:
    return _legend_mark(MEAN_LABEL, markersize=MEAN_SIZE**0.5, markeredgecolor="black")


def _errors_legend() -> list[Any]:
    trial = _legend_mark(
        "one trial (fold or repeat)", markersize=TRIAL_SIZE**0.5, alpha=0.5
    )
    constant = _legend_line("best constant", color="black", linewidth=1)
    return [_legend_mean(), trial, constant]


def mean_constant_error(trials: pd.DataFrame) -> float:
    distinct_trials = trials.drop_duplicates(["repeat", "fold"])
    return float(distinct_trials["trivial_error"].mean())


def limits_within_reach(errors: Any, lines: Sequence[float]) -> tuple[float, float]:
    """Return axis limits around all errors, and reference lines near them."""
    values = np.asarray(errors, dtype=np.float64)
    values = values[np.isfinite(values)]
    finite_lines = [line for line in lines if np.isfinite(line)]
    if not len(values):
        values = np.array(finite_lines or [0.0])
    low = values.min()
    high = values.max()
    spread = high - low
    near_lines = finite_lines
    if spread:
        near_lines = [
            line for line in finite_lines if low - spread <= line <= high + spread
        ]
    low = min([low, *near_lines])
    high = max([high, *near_lines])
    margin = 0.06 * (high - low) or 0.06 * abs(high) or 0.06
    return float(low - margin), float(high + margin)


def alignment_figure(folds: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    """Draw errors against alignment: axes per data set, a color per learner.

    Bars are standard errors of `errors_without_trial_effect`. A ring marks the best
    method.
    """
    datasets = list(summary["dataset"].unique())
    figure, axes = panels(datasets, height=4.6)
    colors = colors_of(summary)
    markers = dict(zip(colors, itertools.cycle(MARKERS), strict=False))
    for axis, dataset in zip(axes, datasets, strict=True):
        methods = summary[summary["dataset"] == dataset]
        has_alignment = methods["alignment_mean"].notna()
        aligned = methods[has_alignment]
        trials = folds[
            (folds["dataset"] == dataset) & folds["learner"].isin(aligned["learner"])
        ]
        errors = errors_without_trial_effect(trials)
        standard_errors = errors.groupby(trials["learner"]).sem().fillna(0.0)
        for row in aligned.itertuples():
            _draw_mean(axis, row, standard_errors[row.learner], colors, markers)
        half_bars = standard_errors.reindex(aligned["learner"]).to_numpy(
            dtype=np.float64
        )
        means = aligned["error_mean"].to_numpy()
        ends_of_bars = [*(means - half_bars), *(means + half_bars)]
        _draw_unaligned(axis, ends_of_bars, methods[~has_alignment], colors)
        _label_alignments(axis, dataset, methods)
    add_legend(figure, axes)
    figure.legend(
        handles=_alignment_legend(),
        loc="outside lower center",
        ncols=2,
        fontsize="small",
    )
    return figure


def _draw_mean(
    axis: Axes,
    row: Any,
    standard_error: float,
    colors: Mapping[str, str],
    markers: Mapping[str, str],
) -> None:
    color = colors[str(row.learner)]
    axis.errorbar(
        row.alignment_mean,
        row.error_mean,
        yerr=standard_error,
        color=color,
        elinewidth=1.5,
        capsize=3,
        fmt="none",
        zorder=2,
    )
    axis.scatter(
        row.alignment_mean,
        row.error_mean,
        s=MEAN_SIZE,
        edgecolor="black",
        zorder=3,
        label=row.learner,
        color=color,
        marker=markers[str(row.learner)],
    )
    if row.best:
        axis.scatter(
            row.alignment_mean,
            row.error_mean,
            s=4 * MEAN_SIZE,
            marker="o",
            facecolor="none",
            edgecolor="black",
            linewidth=1.5,
            zorder=3,
        )


def _label_alignments(axis: Axes, dataset: str, methods: pd.DataFrame) -> None:
    metric = methods["metric"].iloc[0]
    axis.set_xlabel("centered alignment\n(training rows)")
    axis.set_ylabel(f"test error ({metric})", parse_math=False)
    axis.locator_params(axis="x", nbins=5)
    axis.margins(x=0.12)
    winners = []
    for row in methods[methods["best"]].itertuples():
        name = str(row.learner)
        if pd.isna(row.alignment_mean):
            name += " (no kernel)"
        winners.append(name)
    axis.set_title(f"{dataset}\nlowest error: {', '.join(winners)}", parse_math=False)


def errors_without_trial_effect(trials: pd.DataFrame) -> pd.Series:
    """Return errors shifted so that all splits have the same mean error."""
    trial_means = trials.groupby(["repeat", "fold"])["error"].transform("mean")
    return trials["error"] - trial_means + trials["error"].mean()


def _draw_unaligned(
    axis: Axes,
    errors: Sequence[float],
    methods: pd.DataFrame,
    colors: Mapping[str, str],
) -> None:
    low, high = limits_within_reach(errors, list(methods["error_mean"]))
    axis.set_ylim(low, high)
    ranked = methods[np.isfinite(methods["error_mean"])].sort_values(
        "error_mean", kind="stable"
    )
    heights = [
        float(np.clip((error - low) / (high - low), 0.0, 1.0))
        for error in ranked["error_mean"]
    ]
    label_heights = spread_apart(heights, 0.055)
    for row, height, label_height in zip(
        ranked.itertuples(), heights, label_heights, strict=True
    ):
        text = str(row.learner)
        color = colors[text]
        if row.error_mean > high:
            text += f" {row.error_mean:.3g} ↑"
        elif row.error_mean < low:
            text += f" {row.error_mean:.3g} ↓"
        axis.axhline(
            row.error_mean,
            color=color,
            linestyle="--",
            linewidth=1.2,
            zorder=1,
        )
        connector = {
            "arrowstyle": "-",
            "color": color,
            "linewidth": 0.8,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axis.annotate(
            text,
            (1.0, height),
            (1.04, label_height),
            xycoords="axes fraction",
            va="center",
            fontsize="small",
            annotation_clip=False,
            parse_math=False,
            arrowprops=connector,
        )


def spread_apart(positions: Sequence[float], gap: float) -> list[float]:
    """Move ascending label positions until neighbors are `gap` apart."""
    moved = list(positions)
    for _ in range(100):
        too_close = [
            k for k in range(1, len(moved)) if moved[k] - moved[k - 1] < gap - 1e-9
        ]
        if not too_close:
            break
        for k in too_close:
            missing = gap - (moved[k] - moved[k - 1])
            push = max(0.0, missing) / 2
            moved[k - 1] -= push
            moved[k] += push
    return moved


def _alignment_legend() -> list[Any]:
    bar = _legend_mark(
        "± standard error without fold effects", "|", markeredgewidth=1.5, markersize=16
    )
    ring = _legend_mark(
        "lowest mean error",
        markerfacecolor="none",
        markeredgecolor="black",
        markersize=1.6 * MEAN_SIZE**0.5,
    )
    line = _legend_line("method without an alignment", linewidth=1.2)
    return [_legend_mean(), bar, ring, line]


def by_learner(
    table: pd.DataFrame,
    colors: Mapping[str, str],
    draw: Callable[[Axes, pd.DataFrame, dict[str, Any]], None],
    **axis_properties: Any,
) -> Figure | None:
    """Draw axes per data set and a color per learner; None for an empty table."""
    if table.empty:
        return None
    datasets = list(table["dataset"].unique())
    figure, axes = panels(datasets)
    for axis, dataset in zip(axes, datasets, strict=True):
        for learner, color in colors.items():
            trials = table[
                (table["dataset"] == dataset) & (table["learner"] == learner)
            ]
            if len(trials):
                draw(axis, trials, {"color": color, "label": learner})
        axis.set(**axis_properties)
    add_legend(figure, axes)
    return figure


def convergence_figure(folds: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    has_iterations = [
        objectives is not None and len(objectives) > 1
        for objectives in folds["objectives"]
    ]
    return by_learner(
        folds[has_iterations],
        colors,
        _draw_objectives,
        xlabel="step",
        ylabel="objective above its last value, relative",
    )


def _draw_objectives(axis: Axes, trials: pd.DataFrame, style: dict[str, Any]) -> None:
    for objectives in trials["objectives"]:
        scale = max(abs(objectives[0]), np.finfo(float).tiny)
        excess = (objectives - np.min(objectives)) / scale
        steps = np.arange(1, len(excess))
        axis.semilogy(steps, excess[:-1], "o-", ms=3, lw=1, alpha=0.6, **style)
        style = style | {"label": None}  # one entry in the legend per learner


def history_figure(folds: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    results = folds.groupby(["dataset", "learner"], sort=False)
    with_history = results.filter(lambda trials: len(tables.mean_history(trials)) > 0)
    return by_learner(
        with_history,
        colors,
        _draw_history,
        xlabel="base kernels added, or rounds",
        ylabel="mean alignment",
    )


def _draw_history(axis: Axes, trials: pd.DataFrame, style: dict[str, Any]) -> None:
    history = tables.mean_history(trials)
    rounds = np.arange(1, len(history) + 1)
    axis.plot(rounds, history, "o-", ms=3, **style)
    axis.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]


def selected_kernels_figure(
    folds: pd.DataFrame, colors: Mapping[str, str]
) -> Figure | None:
    """Draw weight shares against selected kernel parameters; None without any."""
    has_parameters = [parameters is not None for parameters in folds["parameters"]]
    return by_learner(
        folds[has_parameters],
        colors,
        _draw_parameters,
        xlabel="sigma (bandwidth or frequency)",
        ylabel="share of the weight",
        xscale="log",
    )


def _draw_parameters(axis: Axes, trials: pd.DataFrame, style: dict[str, Any]) -> None:
    all_sigmas = []
    all_shares = []
    for parameters, weights in zip(
        trials["parameters"], trials["weights"], strict=True
    ):
        sigmas = np.stack(parameters)
        shares = np.asarray(weights) / np.sum(weights)
        all_sigmas.append(sigmas.ravel())
        all_shares.append(np.repeat(shares, sigmas.shape[1]))
    axis.scatter(
        np.concatenate(all_sigmas), np.concatenate(all_shares), s=18, alpha=0.5, **style
    )


def relevance_figure(folds: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    relevances = dict(tables.mean_relevance(folds))
    if not relevances:
        return None
    figure, axes = panels(list(relevances))
    for axis, shares in zip(axes, relevances.values(), strict=True):
        features = list(dict.fromkeys(shares["feature"]))
        for learner, group in shares.groupby("learner", sort=False):
            heights = [features.index(name) for name in group["feature"]]
            color = colors[str(learner)]
            axis.errorbar(
                group["mean"],
                heights,
                xerr=group["sd"],
                color=color,
                fmt="none",
                elinewidth=1.2,
                zorder=1,
            )
            axis.plot(group["mean"], heights, "o", color=color, label=learner)
        axis.set(xlabel="increase of the error without the column (test rows)")
        axis.set_yticks(range(len(features)), features, parse_math=False)
        axis.invert_yaxis()
    add_legend(figure, axes)
    return figure


def ranks_figure(ranks: pd.DataFrame) -> Figure | None:
    """Draw the critical-difference diagram; None for few data sets or methods.

    See Demsar (2006), figure 1.
    """
    n, k = ranks.shape
    if n < 2 or k < 3:
        return None
    from matplotlib.figure import Figure

    mean_ranks = ranks.mean().sort_values()
    difference = critical_difference(n, k)
    figure = Figure(figsize=(6.4, 1.2 + 0.3 * ((k + 1) // 2)))
    # Layouts leave no space for names on both sides
    axis = figure.add_axes((0.28, 0.04, 0.44, 0.84))
    axis.set_axis_off()
    axis.set_xlim(0.8, max(k, 1 + difference) + 0.2)
    axis.hlines(2.2, 1.0, 1 + difference, color="black", lw=1)
    axis.text(
        1 + difference / 2,
        2.3,
        f"critical difference {difference:.2f}",
        ha="center",
        va="bottom",
    )
    _draw_scale(axis, k)
    _draw_ranked_names(axis, mean_ranks)
    _draw_ties(axis, mean_ranks.to_numpy(), difference)
    return figure


def _draw_scale(axis: Axes, k: int) -> None:
    axis.hlines(0.0, 1.0, k, color="black", lw=1)
    for rank in range(1, k + 1):
        axis.vlines(rank, 0.0, 0.3, color="black", lw=1)
        axis.text(rank, 0.4, str(rank), ha="center", va="bottom")


def _draw_ranked_names(axis: Axes, mean_ranks: pd.Series) -> None:
    k = len(mean_ranks)
    for position, (name, rank) in enumerate(mean_ranks.items()):
        if position < (k + 1) // 2:
            depth = 1.5 + position
            end = 0.8
            side = "right"
        else:
            depth = 1.5 + k - 1 - position
            end = k + 0.2
            side = "left"
        axis.plot([rank, rank, end], [0.0, -depth, -depth], color="black", lw=0.8)
        axis.text(
            end,
            -depth,
            f" {name} ({rank:.2f}) ",
            ha=side,
            va="center",
            parse_math=False,
        )


def _draw_ties(axis: Axes, ranks: np.ndarray, difference: float) -> None:
    """Draw a bar over each largest group without significant differences."""
    last_ties = np.searchsorted(ranks, ranks + difference, side="right") - 1
    bars = []
    longest = 0
    for first, last in enumerate(last_ties):
        if last > max(first, longest):
            bars.append((first, last))
            longest = last
    for row, (first, last) in enumerate(bars):
        axis.hlines(
            -0.35 - row / len(bars),
            ranks[first] - 0.04,
            ranks[last] + 0.04,
            color="black",
            lw=3,
        )


def inline(figure: Figure) -> str | None:
    """Return a figure as a data URL for Prefect; None above 400,000 characters."""
    buffer = BytesIO()
    figure.savefig(buffer, dpi=100, format="png")
    image = base64.b64encode(buffer.getvalue()).decode()
    if len(image) > 400_000:
        return None
    return f"data:image/png;base64,{image}"


def learner_colors(learners: Mapping[str, str]) -> dict[str, str]:
    """Return one color per learner for all charts and figures."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    palette: list[str] = []
    for name in ("tab10", "Set2", "Dark2"):
        palette += map(to_hex, colormaps[name].colors)  # type: ignore[attr-defined]
    algorithm_colors = dict(zip(LEARNERS, palette, strict=False)) | BASELINE_COLORS
    reserved = {algorithm_colors.get(algorithm) for algorithm in learners.values()}
    free = [color for color in palette if color not in reserved]
    colors: dict[str, str] = {}
    for title, algorithm in learners.items():
        color = algorithm_colors.get(algorithm)
        if color is None or color in colors.values():
            color = free.pop(0) if free else palette[len(colors) % len(palette)]
        colors[title] = color
    return colors
