"""What a run leaves behind for people: tables, a figure, a report, and the folder that holds them."""

from __future__ import annotations

import base64
import json
import platform
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from learnkernels.conf.schema import CompareConfig, ProtocolConfig
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.tasks.evidence.saved_view import GRID_SEARCH, learner_colors
from learnkernels.tasks.measure.evaluation import COLUMNS, FoldsRef
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE, paired_p
from learnkernels.tasks.store import atomic_path

BASELINE = "unif"

CERTIFICATES = (
    "Largest over {trials}, at the chosen Lambda; iterations are the median. A duality gap bounds from above what the "
    "objective can still fall; a stationarity gap is that of the linear model, where the problem is not convex."
)

MLFLOW_HINT = (
    "A result a (data set, learner): tick some and press *Compare* to see parameters and metrics side by side. The "
    "links lead to `learnkernels ui`, or to the server of MLFLOW_TRACKING_URI."
)

OF_A_SAMPLE = ("n_sampled", "confidence", "alignment_error", "alignment_bound")
"""Columns of a fold table that say how far numbers from a sample can be off."""

BARS: dict[str, Any] = {"fmt": "none", "elinewidth": 1.2, "zorder": 1}
"""How intervals are drawn: behind the dots."""

PANELS_A_ROW = 3
"""Data sets side by side in a figure."""

INLINE_BYTES = 400_000
"""Largest figure that is put into a Prefect artifact; a larger one is in MLflow and in the results folder alone."""

SAMPLED = (
    "Base kernels were measured on a sample of the training rows; predictors learn from all of these. *Sampling error* "
    "is half the width of the interval in which the alignment on all training rows lies with that confidence, and "
    "*largest of a share* that of a weight, over the sum of all: means over {trials}. The ± beside an alignment is "
    "something else, its deviation over {trials}. *Theorem 12* is the bound of JMLR 2012 in place of the sampling "
    "error, for any distribution; above one it says nothing. A learner without a sampling error has solved for its "
    "weights on the rows of the sample alone."
)

SHOWN_FOUND = 6
"""Base kernels listed of those that a continuous learner found."""

ROUNDING = 1e-9
"""Half width that is none."""

SHOWN_NOTES = 2
"""Sentences of a predictor in the report: one that is fitted for each Lambda has some for each."""

SHOWN_KERNELS = 24
"""Base kernels listed in the report; all are in `folds.parquet`."""

LIBRARIES = ("numpy", "scipy", "scikit-learn", "pyarrow", "dask", "prefect", "mlflow")


def new_run_id() -> str:
    """Return a name for a run that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def read_folds(refs: Sequence[FoldsRef]) -> pd.DataFrame:
    """Return the fold results of references, one row a fold."""
    return pa.concat_tables([pq.read_table(ref.path, schema=COLUMNS) for ref in refs]).to_pandas()


def summarise(folds: pd.DataFrame) -> pd.DataFrame:
    """Return one row a (data set, learner), in the order of the run.

    Columns: `error_mean`, `error_sd` and the like over folds (n - 1 in the deviation), `relative_error` against the
    best constant, `p_better_than_unif` and `p_better_than_grid_search` of paired one-sided t-tests over folds, `best`
    on its data set. With a split, a repeat takes the place of a fold. Where base kernels were measured on a sample,
    `alignment_error` and `shares_error` are mean half widths of the intervals at `confidence`, `alignment_bound` is the
    mean of Theorem 12, and `n_sampled` and `n_train` are mean numbers of rows.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, appendix C.
    """
    rows = []
    for (dataset, learner), group in folds.groupby(["dataset", "learner"], sort=False):
        first = group.iloc[0]
        baseline = folds[(folds["dataset"] == dataset) & (folds["algorithm"] == BASELINE)]
        searched = folds[(folds["dataset"] == dataset) & (folds["algorithm"] == GRID_SEARCH)]
        rows.append(
            {
                "dataset": dataset,
                "task": first["task"],
                "learner": learner,
                "algorithm": first["algorithm"],
                "predictor": first["predictor"],
                "metric": first["metric"],
                "error_mean": group["error"].mean(),
                "error_sd": group["error"].std(),
                "relative_error": group["error"].mean() / group["trivial_error"].mean(),
                "alignment_mean": group["alignment"].mean(),
                "alignment_sd": group["alignment"].std(),
                "test_alignment_mean": group["test_alignment"].mean(),
                "p_better_than_unif": paired_p(group["error"].to_numpy(), baseline["error"].to_numpy()),
                "p_better_than_grid_search": paired_p(group["error"].to_numpy(), searched["error"].to_numpy()),
                "seconds_weights": group["seconds_weights"].sum(),
                "seconds_fit": group["seconds_fit"].sum(),
                "n_kernels": int(group["n_kernels"].median()),
                "folds": len(group),
                "grid_edge": int(group["grid_edge"].sum()),
                "certificate": group["certificate"].max(),
                "certificate_measure": first["certificate_measure"],
                "certificate_tolerance": first["certificate_tolerance"],
                "iterations": group["iterations"].median(),
                "weights": _mean_shares(group),
                "n_train": group["n_train"].mean(),
                **{key: group[key].mean() if key in group else np.nan for key in OF_A_SAMPLE},
                "shares_error": _mean_share_errors(group),
                "predictor_reason": _reason(group),
            }
        )
    summary = pd.DataFrame(rows)
    summary["best"] = summary["error_mean"] == summary.groupby("dataset")["error_mean"].transform("min")
    return summary


def _mean_shares(group: pd.DataFrame) -> list[float]:
    """Return the mean share of each base kernel; none where each fold has found its own."""
    if _found(group):
        return []
    weights = np.stack(group["weights"].to_list())
    return [float(share) for share in (weights / np.abs(weights).sum(axis=1, keepdims=True)).mean(axis=0)]


def _mean_share_errors(group: pd.DataFrame) -> list[float]:
    """Return the mean half width of each weight over the sum of their sizes; none where every row counts."""
    if not _sampled(group) or group["weights_error"].isna().any():
        return []
    each = [errors / np.abs(w).sum() for w, errors in zip(group["weights"], group["weights_error"], strict=True)]
    return [float(error) for error in np.minimum(np.mean(each, axis=0), 1.0)]


def _sampled(table: pd.DataFrame) -> bool:
    """Return whether a table of trials, or of results, has some whose base kernels were measured on a sample."""
    return "n_sampled" in table and bool(table["n_sampled"].notna().any())


def _reason(group: pd.DataFrame) -> str:
    """Return why the predictor was taken; nothing where it was named."""
    first = group["predictor_reason"].iloc[0] if "predictor_reason" in group else None
    return "" if pd.isna(first) else str(first)


def verdicts(summary: pd.DataFrame) -> list[str]:
    """Return one sentence a data set: which learner wins, against what, and whether that is significant."""
    sentences = []
    for dataset, group in summary.groupby("dataset", sort=False):
        learned, searched = group[group["algorithm"] != GRID_SEARCH], group[group["algorithm"] == GRID_SEARCH]
        best = learned.loc[learned["error_mean"].idxmin()]
        text = f"{dataset}: {best.learner} has the lowest {best.metric}, {mean_and_sd(best.error_mean, best.error_sd)}"
        baseline = group[group["algorithm"] == BASELINE]
        if best.algorithm == BASELINE:
            text += "; no learner beats the uniform combination"
        elif len(baseline):
            p, first = best.p_better_than_unif, baseline.iloc[0]
            than = f"{first.learner}'s {mean_and_sd(first.error_mean, first.error_sd)}"
            if _missing(p):
                text += f", against {than}; no test without pairs of at least two trials"
            else:
                clear = "significantly better" if p < SIGNIFICANCE else "not significantly better"
                text += f", {clear} than {than} (p {'' if p < 0.01 else '= '}{short_p(p)})"
        for row in searched.itertuples():
            text += f". One tuned Gaussian kernel ({row.learner}) has {mean_and_sd(row.error_mean, row.error_sd)}"
            if not _missing(p := best.p_better_than_grid_search):
                text += f" (p that {best.learner} is better {'' if p < 0.01 else '= '}{short_p(p)})"
        sentences.append(text + ".")
    return sentences


def measures(summary: pd.DataFrame) -> str:
    """Return which error is measured on which data set."""
    words = {"misclassification": "misclassified share", "rmse": "root mean squared error"}
    groups = summary.groupby("metric", sort=False)["dataset"].unique()
    return "; ".join(f"{words[str(metric)]} ({', '.join(datasets)})" for metric, datasets in groups.items())


def mean_and_sd(mean: float, sd: float) -> str:
    """Return mean ± deviation, both to the second digit of the deviation; of one trial the mean alone."""
    if np.isnan(sd):
        return f"{mean:.4f}"
    digits = 4 if not sd > 1e-12 * abs(mean) else int(np.clip(1 - np.floor(np.log10(sd)), 0, 12))
    return f"{mean:.{digits}f} ± {sd:.{digits}f}"


def short_p(p: float) -> str:
    return "< 0.01" if p < 0.01 else f"{p:.2f}"


def display_table(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the table that people see in the terminal, in Prefect and in the report."""
    of_a_sample = _sampled(summary)
    return [
        {
            "dataset": row.dataset,
            "learner": row.learner + (" *" if row.best else ""),
            "test error": mean_and_sd(row.error_mean, row.error_sd),
            "alignment": "" if _missing(row.alignment_mean) else f"{row.alignment_mean:.3f}"
            + ("" if _missing(row.alignment_sd) else f" ± {row.alignment_sd:.3f}"),
            **({"sampling error": sampling_error(row)} if of_a_sample else {}),
            "p vs unif": "" if _missing(row.p_better_than_unif) or row.algorithm == BASELINE
            else short_p(row.p_better_than_unif),
            "seconds": f"{row.seconds_weights + row.seconds_fit:.2f}",
        }
        for row in summary.itertuples()
    ]  # fmt: skip


def sampling_error(row: Any) -> str:
    """Return how far an alignment from a sample can be off, and what sample that is; nothing where every row counts."""
    if _missing(row.n_sampled):
        return ""
    of = f"{row.n_sampled:,.0f} of {row.n_train:,.0f} rows"
    if _missing(row.alignment_error):
        return of
    return f"{half_width(row.alignment_error)} ({100 * row.confidence:g} %, {of})"


def half_width(value: float) -> str:
    """Return half the width of an interval for people, rounded up: three decimals, or two digits where it is less."""
    if not np.isfinite(value):
        return "± unknown"
    if value < ROUNDING:
        return f"± {0:.3f}"
    digits = 3 if value >= 0.001 else int(1 - np.floor(np.log10(value)))
    return f"± {np.ceil(value * 10**digits - ROUNDING) / 10**digits:.{digits}f}"


def _missing(value: float | None) -> bool:
    return value is None or bool(np.isnan(value))


def colors_of(table: pd.DataFrame) -> dict[str, str]:
    """Return the colour of each learner of a table with columns `learner` and `algorithm`."""
    first = table.drop_duplicates("learner")
    return learner_colors(dict(zip(first["learner"], first["algorithm"], strict=True)))


def panels(datasets: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure of one panel a data set, a few side by side."""
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


def alignment_figure(folds: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    """Return the figure *alignment against error*: a panel a data set, a colour a learner, each trial and the mean."""
    datasets = list(summary["dataset"].unique())
    figure, axes = panels(datasets)
    markers = "oDs^vP*X"
    for axis, dataset in zip(axes, datasets, strict=True):
        for c, (learner, color) in enumerate(colors_of(summary).items()):
            of = folds[(folds["dataset"] == dataset) & (folds["learner"] == learner)]
            means = summary[(summary["dataset"] == dataset) & (summary["learner"] == learner)]
            if means.empty or _missing(means.iloc[0].alignment_mean):
                continue  # it combines hypotheses and has no kernel
            mean = means.iloc[0]
            style: dict[str, Any] = {"color": color, "marker": markers[c % len(markers)]}
            axis.scatter(of["alignment"], of["error"], s=18, alpha=0.35, **style)
            if _sampled(of):
                axis.errorbar(of["alignment"], of["error"], xerr=of["alignment_error"], **BARS, color=color, alpha=0.35)
                axis.errorbar(
                    [mean.alignment_mean],
                    [mean.error_mean],
                    xerr=[mean.alignment_error],
                    **BARS,
                    color="black",
                    capsize=4,
                )
            axis.scatter(mean.alignment_mean, mean.error_mean, s=90, edgecolor="black", label=learner, **style)
            axis.set(xlabel="centered alignment (training rows)", ylabel=f"test error ({mean.metric})")
            axis.locator_params(axis="x", nbins=6)
    add_legend(figure, axes)
    return figure


def shares_figure(folds: pd.DataFrame, summary: pd.DataFrame) -> Figure | None:
    """Return the figure of mean shares with their sampling errors, a panel a data set, a colour a learner.

    Error bars end where a share of that sign can be no larger. None where nothing was sampled, or no learner weighs
    given base kernels.
    """
    shown = summary[[len(errors) > 0 for errors in summary["shares_error"]]]
    if shown.empty:
        return None
    figure, axes = panels(list(shown["dataset"].unique()))
    colors = colors_of(summary)
    for axis, (dataset, group) in zip(axes, shown.groupby("dataset", sort=False), strict=True):
        of = folds[(folds["dataset"] == dataset) & (folds["learner"] == group["learner"].iloc[0])]
        names, places = of["kernels"].iloc[0], _largest_shares(group)
        for i, row in enumerate(group.itertuples()):
            beside = (i - (len(group) - 1) / 2) * 0.8 / len(group)
            shares, errors = np.asarray(row.weights)[places], np.asarray(row.shares_error)[places]
            least = 0.0 if (np.asarray(row.weights) >= 0).all() else -1.0
            axis.errorbar(
                np.arange(len(places)) + beside, shares,
                yerr=[np.minimum(errors, shares - least), np.minimum(errors, 1.0 - shares)],
                fmt="o", ms=4, capsize=2, color=colors[row.learner], label=row.learner,
            )  # fmt: skip
        axis.set_xticks(np.arange(len(places)), [names[k] for k in places], rotation=60, ha="right", fontsize=8)
        axis.set_ylabel("share of the weight")
    add_legend(figure, axes)
    return figure


def add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend beside the panels, with each learner once, in the order of the run."""
    entries = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(list(entries.values()), list(entries), loc="outside right upper")


def convergence_figure(folds: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    """Return the figure of iterative learners: what is left of the objective after each iteration, a line a trial.

    None where no learner iterates.
    """
    iterated = folds[folds["objectives"].map(lambda values: values is not None and len(values) > 1)]
    if iterated.empty:
        return None
    datasets = list(iterated["dataset"].unique())
    figure, axes = panels(datasets)
    for axis, dataset in zip(axes, datasets, strict=True):
        for learner, group in iterated[iterated["dataset"] == dataset].groupby("learner", sort=False):
            for i, values in enumerate(group["objectives"]):
                left = (values - np.min(values)) / max(abs(values[0]), np.finfo(float).tiny)
                axis.semilogy(
                    np.arange(1, len(left)), left[:-1], "o-", ms=3, lw=1, alpha=0.6,
                    color=colors[str(learner)], label=learner if i == 0 else None,
                )  # fmt: skip
        axis.set(xlabel="step", ylabel="objective above its last value, relative")
    add_legend(figure, axes)
    return figure


def markdown_report(
    config: CompareConfig,
    folds: pd.DataFrame,
    summary: pd.DataFrame,
    links: Mapping[str, str],
    figure: str | None = None,
) -> str:
    """Return the report of a run; `figure` is the address of the figure *alignment against error*, to be shown."""
    table, trials = display_table(summary), "folds" if config.protocol.split is None else "repeats"
    lines = [f"# {config.name}: which way of learning the kernel wins?", "", *(f"- {v}" for v in verdicts(summary)), ""]
    if figure is not None:
        lines += [f"![alignment against error]({figure})", ""]
    lines += [
        *markdown_table(table),
        "",
        f"`*` lowest mean error of the data set. Test error: {measures(summary)}. {_reading(config)}",
        "",
    ]
    if summary["grid_edge"].any():
        lines += [
            "The best Lambda lies on the edge of the grid, with the error still falling, in "
            f"{int(summary['grid_edge'].sum())} of {int(summary['folds'].sum())} {trials}: widen `protocol.grid`.", "",
        ]  # fmt: skip
    if evidence := _certificate_table(summary):
        lines += [
            "## Evidence of optimality",
            "",
            *markdown_table(evidence),
            "",
            CERTIFICATES.format(trials=trials),
            "",
        ]
    if sampled := _sampling_table(summary):
        lines += ["## What the sample leaves open", "", *markdown_table(sampled), "", SAMPLED.format(trials=trials), ""]
    if chosen := _predictor_lines(summary, folds):
        lines += [
            "## Predictors",
            "",
            "What they say of the first trial; all of it is in `folds.parquet`.",
            "",
            *chosen,
            "",
        ]
    if found := _found_table(folds):
        lines += ["## Base kernels found", "", *markdown_table(found), ""]
    for dataset, group in summary.groupby("dataset", sort=False):
        group = group[[len(weights) > 0 for weights in group["weights"]]]
        if group.empty:
            continue
        of = folds[(folds["dataset"] == dataset) & (folds["learner"] == group["learner"].iloc[0])]
        names = of["kernels"].iloc[0]
        lines += [f"## {dataset}: mean share of each base kernel", "", *markdown_table(_share_table(group, names)), ""]
    return "\n".join([*lines, "## Where the evidence lies", "", *link_list(links), ""])


def link_list(links: Mapping[str, str]) -> list[str]:
    """Return a list of places, addresses as links and paths as they are."""
    return [
        f"- [{name}]({place})" if place.startswith("http") else f"- {name}: `{place}`" for name, place in links.items()
    ]


def _reading(config: CompareConfig) -> str:
    protocol, split = config.protocol, config.protocol.split
    alignment = " Alignment is that of the learned kernel on its training rows."
    if split is not None:
        times = "Means ± standard deviations over" if protocol.repeats > 1 else "Of"
        test = "all that their data set holds out" if split.test is None else f"{split.test}"
        return (
            f"{times} {protocol.repeats} {'repeats' if protocol.repeats > 1 else 'draw'} (seed {protocol.seed}); each "
            f"draws {split.train} rows to train, {_chosen_by(protocol)} and {test} to test. p: "
            "paired one-sided t-test over repeats; repeats draw from the same rows, so take it as a guide." + alignment
        )
    return (
        f"Means ± standard deviations over {protocol.folds} folds"
        + (f" x {protocol.repeats} repeats" if protocol.repeats > 1 else "")
        + f" (seed {protocol.seed}); in each trial one fold tests, one chooses Lambda, the others train. p: paired "
        "one-sided t-test over folds; folds share training rows, so take it as a guide." + alignment
    )


def _chosen_by(protocol: ProtocolConfig) -> str:
    """Return what chooses Lambda where rows are drawn."""
    if protocol.choose is None:
        return f"{protocol.split.validation if protocol.split else 0} to choose Lambda"
    on = ", in the first repeat for all of them" if protocol.choose.once else ""
    return f"which choose Lambda by {protocol.choose.folds}-fold cross-validation{on},"


def _certificate_table(summary: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row a (data set, learner) that solves an optimisation problem."""
    return [
        {
            "dataset": row.dataset,
            "learner": row.learner,
            "measure": row.certificate_measure,
            "largest": f"{row.certificate:.0e}",
            "tolerance": f"{row.certificate_tolerance:.0e}",
            "iterations": f"{row.iterations:.0f}",
        }
        for row in summary.itertuples()
        if not _missing(row.certificate)
    ]


def _sampling_table(summary: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row a (data set, learner) whose base kernels were measured on a sample."""
    return [
        {
            "dataset": row.dataset,
            "learner": row.learner,
            "rows": f"{row.n_sampled:,.0f} of {row.n_train:,.0f}",
            "alignment": f"{row.alignment_mean:.3f}",
            "sampling error": "" if _missing(row.alignment_error) else half_width(row.alignment_error),
            "confidence": f"{100 * row.confidence:g} %",
            "largest of a share": half_width(max(row.shares_error)) if len(row.shares_error) else "",
            "Theorem 12": "" if _missing(row.alignment_bound) else f"± {row.alignment_bound:.2g}",
        }
        for row in summary.itertuples()
        if not _missing(row.n_sampled)
    ]


def _predictor_lines(summary: pd.DataFrame, folds: pd.DataFrame) -> list[str]:
    """Return a line a (data set, learner) whose predictor has something to say: why it was taken, how it was solved."""
    lines = []
    for row in summary.itertuples() if "notes" in folds else ():
        of = folds[(folds["dataset"] == row.dataset) & (folds["learner"] == row.learner)]
        notes = of["notes"].iloc[0]
        if notes is not None and len(notes):
            said = f"{row.predictor_reason or row.predictor}. {' '.join(map(as_sentence, notes[:SHOWN_NOTES]))}"
            lines.append(f"- {row.dataset}, {row.learner}: {said}")
    return lines


def as_sentence(text: str) -> str:
    """Return words as a sentence."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def _found(folds: pd.DataFrame) -> bool:
    """Return whether base kernels were found, and not given."""
    return "parameters" in folds and any(values is not None for values in folds["parameters"])


def _found_table(folds: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row a (data set, learner) that finds its base kernels: how many, and those of the first fold."""
    rows = []
    for (dataset, learner), group in folds.groupby(["dataset", "learner"], sort=False):
        if not _found(group):
            continue
        first = group.iloc[0]
        shares = np.asarray(first["weights"]) / np.sum(first["weights"])
        order = np.argsort(-shares)[:SHOWN_FOUND]
        counts = group["n_kernels"]
        rows.append(
            {
                "dataset": str(dataset),
                "learner": str(learner),
                "kernels": f"{counts.min()} to {counts.max()}" if counts.nunique() > 1 else str(counts.iloc[0]),
                "sigma (share) of the largest in the first trial": ", ".join(
                    f"{_sigma(first['parameters'][k])} ({shares[k]:.2f})" for k in order
                ),
            }
        )
    return rows


def _sigma(values: Sequence[float]) -> str:
    """Return a base kernel's sigma, or their range where there is one a feature."""
    low, high = min(values), max(values)
    return f"{low:.4g}" if len(values) == 1 else f"{low:.3g} to {high:.3g}"


def found_figure(folds: pd.DataFrame, colors: Mapping[str, str]) -> Figure | None:
    """Return the figure of found base kernels: sigma against share, a colour a learner; None where none was found.

    A kernel with a sigma a feature is a line of dots at its share.
    """
    found = folds[[values is not None for values in folds["parameters"]]]
    if found.empty:
        return None
    datasets = list(found["dataset"].unique())
    figure, axes = panels(datasets)
    for axis, dataset in zip(axes, datasets, strict=True):
        for learner, group in found[found["dataset"] == dataset].groupby("learner", sort=False):
            sigma = [np.stack(values) for values in group["parameters"]]
            shares = [
                np.repeat(np.asarray(weights) / np.sum(weights), values.shape[1])
                for weights, values in zip(group["weights"], sigma, strict=True)
            ]
            axis.scatter(
                np.concatenate([values.ravel() for values in sigma]), np.concatenate(shares),
                s=18, alpha=0.5, color=colors[str(learner)], label=learner,
            )  # fmt: skip
        axis.set(xlabel="sigma (bandwidth or frequency)", ylabel="share of the weight", xscale="log")
    add_legend(figure, axes)
    return figure


def _share_table(group: pd.DataFrame, names: Sequence[str]) -> list[dict[str, str]]:
    """Return one row a base kernel, one column a learner; of many kernels those with the largest share."""
    return [
        {"base kernel": names[k]}
        | {
            row.learner: f"{row.weights[k]:.3f}"
            + (f" {half_width(row.shares_error[k])}" if len(row.shares_error) else "")
            for row in group.itertuples()
        }
        for k in _largest_shares(group)
    ]


def _largest_shares(group: pd.DataFrame) -> np.ndarray:
    """Return the positions, ascending, of the base kernels that are shown."""
    shares = np.stack(group["weights"].to_list(), axis=1)
    return np.sort(np.argsort(-shares.max(axis=1), kind="stable")[:SHOWN_KERNELS])


def markdown_table(rows: list[dict[str, str]]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[str(row.get(column, "")) for column in columns] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *cells)]


def environment() -> dict[str, str]:
    """Return the versions that a run's numbers depend on."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "numerics": str(NUMERICS_VERSION),
        **{name: version(name) for name in ("learnkernels", *LIBRARIES)},
    }


@task(task_run_name="write results {run_id}", cache_policy=NO_CACHE, tags=["learnkernels"])
def write_results(config: CompareConfig, run_id: str, refs: Sequence[FoldsRef], links: dict[str, str]) -> str:
    """Write the results folder, whole or not at all, put table and report into Prefect, and return the folder."""
    folds = read_folds(refs)
    summary = summarise(folds)
    target = Path("results") / config.name / run_id
    links = {"results": str(target), **links}
    with atomic_path(target) as folder:
        folder.mkdir()
        for name, frame in (("folds", folds), ("summary", summary)):
            pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / f"{name}.parquet")
        (folder / "report.md").write_text(markdown_report(config, folds, summary, links), encoding="utf-8")
        (folder / "config.yaml").write_text(_yaml(config), encoding="utf-8")
        (folder / "environment.json").write_text(json.dumps(environment(), indent=1), encoding="utf-8")
        figures = {
            "alignment_vs_error": alignment_figure(folds, summary),
            "convergence": convergence_figure(folds, colors_of(summary)),
            "kernel_shares": shares_figure(folds, summary),
            "found_kernels": found_figure(folds, colors_of(summary)),
        }
        for name, figure in figures.items():
            if figure is not None:
                figure.savefig(folder / f"{name}.png", dpi=100)  # two panels fit on a page of MLflow
    _publish(config, folds, summary, links)
    return str(target)


def _publish(config: CompareConfig, folds: pd.DataFrame, summary: pd.DataFrame, links: Mapping[str, str]) -> None:
    """Put table, report and the ways to MLflow into Prefect, and who won into the log of the flow run."""
    who = verdicts(summary)
    over = f"{', '.join(summary['learner'].unique())} on {', '.join(summary['dataset'].unique())}"
    create_table_artifact(
        display_table(summary),
        key="comparison",
        description=f"**{config.name}**: test error and alignment, mean ± standard deviation; `*` lowest error of the "
        f"data set. Test error: {measures(summary)}."
        + (" Sampling error: how far the alignment of a sample can be off." if _sampled(summary) else ""),
    )
    create_markdown_artifact(
        markdown_report(config, folds, summary, links, _inline(alignment_figure(folds, summary))),
        key="comparison-report",
        description=f"**{config.name}**: who wins, the figure *alignment against error*, evidence, shares. {over}.",
    )
    create_markdown_artifact(
        "\n".join(["# This comparison in MLflow", "", *link_list(links), "", MLFLOW_HINT]),
        key="mlflow-chart",
        description=f"**{config.name}**: the chart *alignment against error* and all runs in MLflow.",
    )
    for sentence in who:
        get_run_logger().info("%s", sentence)
    for name, place in links.items():
        get_run_logger().info("%s: %s", name, place)


def _inline(figure: Figure) -> str | None:
    """Return a figure as an address that holds it, or None where it is large."""
    buffer = BytesIO()
    figure.savefig(buffer, dpi=100, format="png")
    image = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/png;base64,{image}" if len(image) <= INLINE_BYTES else None


def _yaml(config: CompareConfig) -> str:
    return yaml.safe_dump(config.model_dump(mode="json", by_alias=True), sort_keys=False)
