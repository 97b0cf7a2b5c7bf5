"""Tables of a run: trials, their summary, and the report's tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from learnkernels.conf.schema import BASELINE_TITLES
from learnkernels.kernels.hypothesis_tests.dependence import holm

from ..measure.baseline import CONSTANT
from ..measure.run_learner import COLUMNS, TABLE, FoldsRef
from ..measure.t_tests import (
    SIGNIFICANCE,
    corrected_p,
    paired_p,
    share_of_test,
    two_sided_p,
)
from ..store import checked

BASELINE = "unif"
"""Learner of equal weights."""

P_VALUES = (
    "p: corrected p (Nadeau-Bengio) of the two-sided t-test that the error differs from the best; significant below "
    f"{SIGNIFICANCE}"
)

STORED = "stored"
"""Column with the time of stored results."""

SHARED_COLUMNS = (
    "dataset",
    "task",
    "learner",
    "algorithm",
    "predictor",
    "metric",
    "certificate_measure",
    "certificate_tolerance",
    "predictor_reason",
    STORED,
)

AGGREGATES = {
    "error_mean": ("error", "mean"),
    "error_sd": ("error", "std"),
    "alignment_mean": ("alignment", "mean"),
    "alignment_sd": ("alignment", "std"),
    "test_alignment_mean": ("test_alignment", "mean"),
    "seconds_weights": ("seconds_weights", "sum"),
    "seconds_fit": ("seconds_fit", "sum"),
    "n_kernels": ("n_kernels", "median"),
    "grid_edge": ("grid_edge", "sum"),
    "certificate": ("certificate", "max"),
    "iterations": ("iterations", "median"),
    "n_train": ("n_train", "mean"),
    "n_test": ("n_test", "mean"),
    "n_rows": ("n_rows", "mean"),
    "n_sampled": ("n_sampled", "mean"),
    "n_parallel": ("n_parallel", "max"),
}

SHOWN_FEATURES = 12


def read_folds(refs: Sequence[FoldsRef]) -> pd.DataFrame:
    """Read methods' results on all splits as a frame, with the time of writing."""
    tables = []
    for ref in refs:
        table = pq.read_table(checked(Path(ref.path)) / TABLE, schema=COLUMNS)
        stored_at = pa.array([ref.stored_at] * len(table), pa.string())
        tables.append(table.append_column(STORED, stored_at))
    return pa.concat_tables(tables).to_pandas()


class RunTables(NamedTuple):
    folds: pd.DataFrame
    summary: pd.DataFrame
    pairwise: pd.DataFrame
    pairwise_texts: dict[str, pd.DataFrame]
    ranks: pd.DataFrame

    @classmethod
    def of(cls, folds: pd.DataFrame) -> RunTables:
        pairs = pairwise(folds)
        return cls(folds, summarize(folds), pairs, pairwise_tables(pairs), ranks(folds))


def summarize(folds: pd.DataFrame) -> pd.DataFrame:
    """Return means over splits by data set and method; see docs/reference/results.md.

    p-values are one-sided, of `paired_p` and `corrected_p`.
    """
    p_of_pair = {}
    for pair in pairwise(folds).itertuples():
        p_of_pair[pair.dataset, pair.learner, pair.other] = pair.p
        p_of_pair[pair.dataset, pair.other, pair.learner] = pair.p
    rows = []
    for (dataset, learner), trials in folds.groupby(["dataset", "learner"], sort=False):
        same_dataset = folds[folds["dataset"] == dataset]
        row = {name: trials[name].iloc[0] for name in SHARED_COLUMNS}
        for name, (column, aggregate) in AGGREGATES.items():
            row[name] = trials[column].dropna().agg(aggregate)
        row["relative_error"] = trials["error"].mean() / trials["trivial_error"].mean()
        methods = same_dataset["learner"].unique()
        row["p_each"] = [
            p_of_pair.get((dataset, learner, method), 1.0) for method in methods
        ]
        row |= _tests_against_baselines(trials, same_dataset)
        row["has_parameters"] = not {"{}"}.issuperset(trials["params"].dropna())
        row["folds"] = len(trials)
        row["weights"] = []
        if not selects_kernels(trials):
            row["weights"] = mean_shares(trials).tolist()
        rows.append(row)
    summary = pd.DataFrame(rows).astype({"n_kernels": int, "grid_edge": int})
    summary["predictor_reason"] = [
        reason if isinstance(reason, str) else ""
        for reason in summary["predictor_reason"]
    ]
    lowest = summary.groupby("dataset")["error_mean"].transform("min")
    highest = summary.groupby("dataset")["alignment_mean"].transform("max")
    summary["best"] = summary["error_mean"] == lowest
    percent_above = 100.0 * (summary["error_mean"] - lowest) / lowest.where(lowest > 0)
    summary["percent_above_best"] = percent_above.mask(summary["best"], 0.0)
    summary["alignment_over_best"] = summary["alignment_mean"] / highest.where(
        highest > 0
    )
    return summary


def _tests_against_baselines(
    trials: pd.DataFrame, same_dataset: pd.DataFrame
) -> dict[str, float | None]:
    errors = trials["error"].to_numpy()
    share = _test_share(trials)
    p_values: dict[str, float | None] = {}
    for name in (BASELINE, *BASELINE_TITLES):
        baseline_errors = same_dataset.loc[
            same_dataset["algorithm"] == name, "error"
        ].to_numpy()
        p_values[f"p_{better_than(name)}"] = corrected_p(errors, baseline_errors, share)
        p_values[f"plain_p_{better_than(name)}"] = paired_p(errors, baseline_errors)
    return p_values


def _test_share(trials: pd.DataFrame) -> float:
    return share_of_test(trials["n_test"].to_numpy(), trials["n_rows"].to_numpy())


def pairwise(folds: pd.DataFrame) -> pd.DataFrame:
    """Return differences of mean errors and p-values for each pair of methods.

    `p` is two-sided and corrected for shared rows; `p_holm` is adjusted for all pairs.
    """
    rows = []
    for dataset, trials in folds.groupby("dataset", sort=False):
        share = _test_share(trials)
        errors = {}
        for learner, group in trials.groupby("learner", sort=False):
            errors[learner] = group["error"].to_numpy()
        pairs = list(itertools.combinations(errors, 2))
        p_values = [
            two_sided_p(errors[learner], errors[other], share)
            for learner, other in pairs
        ]
        for (learner, other), p, p_holm in zip(
            pairs, p_values, holm(p_values), strict=True
        ):
            difference = errors[learner].mean() - errors[other].mean()
            rows.append((dataset, learner, other, difference, p, p_holm))
    return pd.DataFrame(
        rows, columns=["dataset", "learner", "other", "difference", "p", "p_holm"]
    )


def pairwise_tables(pairs: pd.DataFrame, p: str = "p") -> dict[str, pd.DataFrame]:
    """Return a square table of the p-values of pairs for each data set."""
    mirrored = pairs.rename(columns={"learner": "other", "other": "learner"})
    tables = {}
    for dataset, group in pd.concat([pairs, mirrored]).groupby("dataset", sort=False):
        names = list(dict.fromkeys([*group["learner"], *group["other"]]))
        square = group.pivot(index="learner", columns="other", values=p).reindex(
            index=names, columns=names
        )
        tables[str(dataset)] = square.map(short_p).rename_axis(index=None, columns=None)
    return tables


def ranks(folds: pd.DataFrame, learners: Sequence[str] | None = None) -> pd.DataFrame:
    """Return ranks of learners by mean error, with a row per data set."""
    if learners is None:
        ranked = folds[folds["algorithm"] != CONSTANT]
    else:
        ranked = folds[folds["learner"].isin(learners)]
    errors = ranked.pivot_table(
        index="dataset", columns="learner", values="error", aggfunc="mean", sort=False
    )
    if learners is None:
        errors = errors.dropna(axis=1).map(_without_rounding)
    return errors.rank(axis=1)


def _without_rounding(error: float) -> float:
    """Round an error to 12 digits, so that equal errors tie."""
    return float(f"{error:.12g}")


def latex(summary: pd.DataFrame, ranked: pd.DataFrame) -> str:
    """Return a LaTeX table of methods' errors, the lowest bold."""
    cells = []
    for row in summary.itertuples():
        cell = mean_and_sd(row.error_mean, row.error_sd).replace("±", r"$\pm$")
        if row.best:
            cell = rf"\textbf{{{cell}}}"
        cells.append(cell)
    table = summary.assign(cell=cells).pivot(
        index="dataset", columns="learner", values="cell"
    )
    table = table.loc[summary["dataset"].unique(), summary["learner"].unique()]
    if len(ranked) > 1:
        table.loc["mean rank"] = ranked.mean().map("{:.2f}".format)
    return latex_table(table)


def latex_table(table: pd.DataFrame) -> str:
    """Return a frame of LaTeX cells as a booktabs table."""
    table = table.rename_axis(columns=None).fillna("--")
    table.index.names = [None] * table.index.nlevels
    styler = table.style.format_index(escape="latex").format_index(
        escape="latex", axis=1
    )
    column_format = "l" * table.index.nlevels + "r" * table.shape[1]
    return str(
        styler.to_latex(
            hrules=True, column_format=column_format, multirow_align="naive"
        )
    )


def better_than(algorithm: str) -> str:
    return f"better_than_{algorithm.replace('-', '_')}"


def mean_shares(group: pd.DataFrame) -> np.ndarray:
    """Return base kernels' shares of the total weight, averaged over splits."""
    weights = np.stack(group["weights"].to_list())
    sums = np.abs(weights).sum(axis=1, keepdims=True)
    shares = weights / np.where(sums > 0, sums, 1.0)
    return np.asarray(shares.mean(axis=0))


def sampled(table: pd.DataFrame) -> bool:
    return bool(table["n_sampled"].notna().any())


def selects_kernels(folds: pd.DataFrame) -> bool:
    """Return whether any learner selects its base kernels' parameters."""
    return any(values is not None for values in folds["parameters"])


def mean_and_sd(mean: float, sd: float) -> str:
    """Return mean ± standard deviation, rounded, as text."""
    if np.isnan(sd):
        return _four_digits(mean)
    if sd <= 1e-12 * abs(mean):
        return f"{_four_digits(mean)} ± {_four_digits(0.0)}"
    digits = int(np.clip(1 - np.floor(np.log10(sd)), 0, 12))
    return f"{mean:.{digits}f} ± {sd:.{digits}f}"


def _four_digits(value: float) -> str:
    if value == 0 or 1e-2 <= abs(value) < 1e3:
        return f"{value:.4f}"
    return f"{value:.4g}"


def short_p(p: float | None) -> str:
    """Return a p-value as text with two digits; empty for NaN."""
    if p is None or np.isnan(p):
        return ""
    if p < 0.01:
        return "< 0.01"
    return f"{p:.2f}"


def equals_p(p: float) -> str:
    """Return a p-value as text with its relation, ``= 0.03`` or ``< 0.01``."""
    if p < 0.01:
        return short_p(p)
    return f"= {short_p(p)}"


def p_against_best(summary: pd.DataFrame) -> pd.Series:
    """Return each method's p-value against the best method; NaN for the best."""
    p_values = pd.Series(np.nan, summary.index, dtype=float)
    for _, group in summary.groupby("dataset", sort=False):
        ranked = group.sort_values("error_mean", kind="stable")
        p_values[group.index] = ranked["p_each"].iloc[0]
    return p_values.mask(summary["best"])


def display_table(summary: pd.DataFrame) -> list[dict[str, str]]:
    """Return summarized results as the table in terminal, Prefect and report."""
    rows = []
    with_p = summary.assign(p=p_against_best(summary))
    for _, group in with_p.groupby("dataset", sort=False):
        ranked = group.sort_values("error_mean", kind="stable")
        rows += [_display_row(row) for row in ranked.itertuples()]
    filled_columns = {column for row in rows for column, cell in row.items() if cell}
    return [
        {column: cell for column, cell in row.items() if column in filled_columns}
        for row in rows
    ]


def _display_row(row: Any) -> dict[str, str]:
    cells = {
        "dataset": row.dataset,
        "method": row.learner,
        "test error": mean_and_sd(row.error_mean, row.error_sd),
        "p": short_p(row.p),
        "alignment": "",
        "weights from": "",
        "seconds": _seconds(row),
    }
    if row.best:
        cells["method"] += " *"
    if not pd.isna(row.alignment_mean):
        cells["alignment"] = f"{row.alignment_mean:.3f}"
    if not pd.isna(row.n_sampled):
        cells["weights from"] = f"{row.n_sampled:,.0f} of {row.n_train:,.0f} rows"
    return cells


def _seconds(row: Any) -> str:
    seconds = f"{row.seconds_weights + row.seconds_fit:.2f}"
    if isinstance(row.stored, str):
        seconds += " †"
    if row.n_parallel > 1:
        seconds += " ‡"
    return seconds


def seconds_line(summary: pd.DataFrame) -> str:
    """Return the legend of the marks † and ‡ next to computing times in seconds."""
    explanations = []
    stored = stored_line(summary)
    if stored:
        explanations.append(stored)
    n_parallel = summary["n_parallel"].max()
    if n_parallel > 1:
        steps = f"up to {n_parallel:.0f} steps"
        explanations.append(
            f"‡ measured while {steps} ran at once, and not comparable with other seconds"
        )
    return "; ".join(explanations)


def stored_line(summary: pd.DataFrame) -> str:
    """Return the legend of the mark † for results from disk; empty without any."""
    times = sorted(map(str, summary[STORED].dropna()))
    if not times:
        return ""
    period = times[0]
    if times[0] != times[-1]:
        period = f"between {times[0]} and {times[-1]}"
    return f"† from the store: computed, and its seconds measured, {period}"


def certificate_table(summary: pd.DataFrame) -> list[dict[str, str]]:
    """Return a table row per learner with its optimization accuracy."""
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
        if not pd.isna(row.certificate)
    ]


def selected_kernels_table(folds: pd.DataFrame) -> list[dict[str, str]]:
    """Return a table row per learner that selects its base kernels' parameters."""
    rows = []
    for (dataset, learner), trials in folds.groupby(["dataset", "learner"], sort=False):
        if not selects_kernels(trials):
            continue
        counts = trials["n_kernels"]
        n_kernels = str(counts.iloc[0])
        if counts.nunique() > 1:
            n_kernels = f"{counts.min()} to {counts.max()}"
        rows.append(
            {
                "dataset": str(dataset),
                "learner": str(learner),
                "kernels": n_kernels,
                "sigma (share) of the largest in the first trial": _largest_kernels(
                    trials.iloc[0]
                ),
            }
        )
    return rows


def _largest_kernels(trial: pd.Series) -> str:
    shares = np.asarray(trial["weights"]) / np.sum(trial["weights"])
    texts = []
    for k in np.argsort(-shares)[:6]:
        sigmas = trial["parameters"][k]
        if len(sigmas) == 1:
            text = f"{sigmas[0]:.4g}"
        else:
            text = f"{min(sigmas):.3g} to {max(sigmas):.3g}"
        texts.append(f"{text} ({shares[k]:.2f})")
    return ", ".join(texts)


def mean_history(folds: pd.DataFrame) -> list[float]:
    """Return alignments after each iteration of a learner, averaged over splits."""
    histories = [
        history for history in folds["history"] if _is_list(history) and len(history)
    ]
    means = []
    for step in range(max(map(len, histories), default=0)):
        alignments = [history[min(step, len(history) - 1)] for history in histories]
        means.append(float(np.mean(alignments)))
    return means


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray)


def history_table(folds: pd.DataFrame) -> list[dict[str, str]]:
    """Return a table row per learner with its alignments in the first iterations."""
    rows = []
    for (dataset, learner), trials in folds.groupby(["dataset", "learner"], sort=False):
        history = mean_history(trials)
        if not history:
            continue
        alignments = [f"{alignment:.3f}" for alignment in history[:10]]
        if len(history) > 10:
            alignments.append("...")
        rows.append(
            {
                "dataset": str(dataset),
                "learner": str(learner),
                "alignment": ", ".join(alignments),
            }
        )
    return rows


def mean_relevance(folds: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each data set's name with the mean relevance of its features.

    The `SHOWN_FEATURES` largest features are kept. `sd` is NaN for one trial.
    """
    with_relevance = folds[folds["relevance"].map(_is_list)]
    for dataset, trials in with_relevance.groupby("dataset", sort=False):
        shares = pd.DataFrame(
            [
                dict(zip(features, relevances, strict=True))
                for features, relevances in zip(
                    trials["features"], trials["relevance"], strict=True
                )
            ],
            dtype=float,
        ).fillna(0.0)
        largest = shares.mean().nlargest(SHOWN_FEATURES).index.rename("feature")
        of_learner = shares[largest].groupby(trials["learner"].to_numpy(), sort=False)
        moments = of_learner.agg(["mean", "std"]).stack(0, future_stack=True)
        moments = moments.rename(columns={"std": "sd"}).rename_axis(
            ["learner", "feature"]
        )
        yield str(dataset), moments.swaplevel().loc[list(largest)].reset_index()


def relevance_table(folds: pd.DataFrame) -> list[dict[str, str]]:
    """Return the relevance of features: a row per feature, a column per learner."""
    rows = []
    for dataset, shares in mean_relevance(folds):
        for feature, group in shares.groupby("feature", sort=False):
            row = {"dataset": dataset, "feature": str(feature)}
            for share in group.itertuples():
                row[str(share.learner)] = mean_and_sd(share.mean, share.sd)
            rows.append(row)
    return rows


def share_tables(
    summary: pd.DataFrame, folds: pd.DataFrame
) -> list[tuple[str, list[dict[str, str]]]]:
    """Return a table of the 24 heaviest base kernels for each data set."""
    tables = []
    with_weights = summary[summary["weights"].map(len) > 0]
    for dataset, group in with_weights.groupby("dataset", sort=False):
        learners = list(group["learner"])
        first_learner = folds[
            (folds["dataset"] == dataset) & (folds["learner"] == learners[0])
        ]
        names = first_learner["kernels"].iloc[0]
        shares = np.stack(group["weights"].to_list(), axis=1)
        order = np.argsort(-shares.max(axis=1), kind="stable")
        rows = []
        for k in np.sort(order[:24]):
            row = {"base kernel": names[k]}
            for learner, share in zip(learners, shares[k], strict=True):
                row[learner] = f"{share:.3f}"
            rows.append(row)
        tables.append((str(dataset), rows))
    return tables
