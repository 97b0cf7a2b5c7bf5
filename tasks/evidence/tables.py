"""Tables of a run: trials, one row per (data set, learner), and what people read of them."""

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

from ..measure.baseline import CONSTANT
from ..measure.evaluation import COLUMNS, TABLE, FoldsRef
from ..measure.t_tests import SIGNIFICANCE, corrected_p, holm, paired_p, share_of_test, two_sided_p
from ..store import checked

BASELINE = "unif"

COMPARED = (BASELINE, *BASELINE_TITLES)
"""What each learner is tested against."""

P_VALUES = (
    "p: corrected p (Nadeau-Bengio) of the two-sided t-test that the error differs from the best; significant below "
    f"{SIGNIFICANCE}"
)

STORED = "stored"
"""Column that says since when results are in the store."""

OF_THE_FIRST = (
    "dataset", "task", "learner", "algorithm", "predictor", "metric", "certificate_measure", "certificate_tolerance",
    "predictor_reason", STORED,
)  # fmt: skip
"""Columns of a summary that every trial has alike."""

OVER_TRIALS = {
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
"""Column of a summary -> column of the fold table, and what is taken of it over trials."""

SHOWN_FOUND = 6
"""Base kernels listed of those that a continuous learner found."""

SHOWN_STEPS = 10
"""Steps on the way to them that are listed."""

SHOWN_FEATURES = 12
"""Features listed of those that count most."""

SHOWN_KERNELS = 24
"""Base kernels listed in the report; all are in `folds.parquet`."""


def read_folds(refs: Sequence[FoldsRef]) -> pd.DataFrame:
    """Return the fold results of references, one row per fold.

    In addition to the columns of the store, `stored` says when an earlier run computed them; null where this one has.

    Raises
    ------
    InputError
        The store has lost or damaged them since the run began.
    """
    tables = []
    for ref in refs:
        table = pq.read_table(checked(Path(ref.path)) / TABLE, schema=COLUMNS)
        tables.append(table.append_column(STORED, pa.array([ref.stored] * len(table), pa.string())))
    return pa.concat_tables(tables).to_pandas()


class RunTables(NamedTuple):
    """Trials of a run, and what report, tables and figures take from them: see `summarize`, `pairwise`, `ranks`."""

    folds: pd.DataFrame
    summary: pd.DataFrame
    pairwise: pd.DataFrame
    pairwise_texts: dict[str, pd.DataFrame]
    ranks: pd.DataFrame

    @classmethod
    def of(cls, folds: pd.DataFrame) -> RunTables:
        """Return the tables of the trials of a run."""
        pairs = pairwise(folds)
        return cls(folds, summarize(folds), pairs, pairwise_tables(pairs), ranks(folds))


def summarize(folds: pd.DataFrame) -> pd.DataFrame:
    """Return one row per (data set, learner), in the order of the run.

    Columns: `error_mean`, `error_sd` and the like over folds (n - 1 in the deviation), `relative_error` against the
    best constant, `percent_above_best` and `alignment_over_best` against the best of the data set, `best` on its data
    set. `p_each` holds the p-values of `pairwise` against each result of the data set, in the order of the rows;
    `p_better_than_unif` and the like are those against `unif` and the
    baselines, the same with `plain_` those of uncorrected paired t-tests. With a split, a repeat takes the place of a
    fold. `n_train` is the mean number of training rows, and `n_sampled` of those that base kernels were measured on.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, appendix C.
    Nadeau, Bengio (2003), Machine Learning 52:239-281, section 3.
    """
    rows, pairs = [], pairwise(folds)
    tested = {(pair.dataset, frozenset({pair.learner, pair.other})): pair.p for pair in pairs.itertuples()}
    for (dataset, learner), group in folds.groupby(["dataset", "learner"], sort=False):
        errors, share = group["error"].to_numpy(), share_of_test(group["n_test"].to_numpy(), group["n_rows"].to_numpy())
        methods = folds.loc[folds["dataset"] == dataset, "learner"].unique()
        tests: dict[str, Any] = {"p_each": [tested.get((dataset, frozenset({learner, of})), 1.0) for of in methods]}
        for name in COMPARED:
            others = folds.loc[(folds["dataset"] == dataset) & (folds["algorithm"] == name), "error"].to_numpy()
            tests[f"p_{better_than(name)}"] = corrected_p(errors, others, share)
            tests[f"plain_p_{better_than(name)}"] = paired_p(errors, others)
        rows.append(
            {name: group[name].iloc[0] for name in OF_THE_FIRST}
            | {name: group[column].agg(how) for name, (column, how) in OVER_TRIALS.items()}
            | {"relative_error": group["error"].mean() / group["trivial_error"].mean(), **tests}
            | {"folds": len(group), "weights": [] if kernels_found(group) else mean_shares(group).tolist()}
        )
    summary = pd.DataFrame(rows).astype({"n_kernels": int, "grid_edge": int})
    summary["predictor_reason"] = [reason if isinstance(reason, str) else "" for reason in summary["predictor_reason"]]
    lowest = summary.groupby("dataset")["error_mean"].transform("min")
    highest = summary.groupby("dataset")["alignment_mean"].transform("max")
    summary["best"] = summary["error_mean"] == lowest
    above = 100.0 * (summary["error_mean"] - lowest) / lowest.where(lowest > 0)
    summary["percent_above_best"] = above.mask(summary["best"], 0.0)
    summary["alignment_over_best"] = summary["alignment_mean"] / highest.where(highest > 0)
    return summary


def pairwise(folds: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each two methods on a data set: `difference` of mean errors and p-values.

    `p` is of the two-sided corrected resampled t-test, and `p_holm` is adjusted for all pairs of the data set.
    """
    tested = []
    for dataset, group in folds.groupby("dataset", sort=False):
        share = share_of_test(group["n_test"].to_numpy(), group["n_rows"].to_numpy())
        errors = {name: of["error"].to_numpy() for name, of in group.groupby("learner", sort=False)}
        pairs = list(itertools.combinations(errors, 2))
        p = [two_sided_p(errors[one], errors[other], share) for one, other in pairs]
        found = zip(pairs, p, holm(p), strict=True)
        tested += [(dataset, *pair, errors[pair[0]].mean() - errors[pair[1]].mean(), *of) for pair, *of in found]
    return pd.DataFrame(tested, columns=["dataset", "learner", "other", "difference", "p", "p_holm"])


def pairwise_tables(pairs: pd.DataFrame, p: str = "p") -> dict[str, pd.DataFrame]:
    """Return for each data set a p-value of each two methods as text, a row and a column per method."""
    both, found = pd.concat([pairs, pairs.rename(columns={"learner": "other", "other": "learner"})]), {}
    for dataset, of in both.groupby("dataset", sort=False):
        names = list(dict.fromkeys([*of["learner"], *of["other"]]))
        wide = of.pivot(index="learner", columns="other", values=p).reindex(index=names, columns=names)
        found[str(dataset)] = wide.map(short_p).rename_axis(index=None, columns=None)
    return found


def ranks(folds: pd.DataFrame, learners: Sequence[str] | None = None) -> pd.DataFrame:
    """Return ranks of learners by mean error, one row per data set, one column per learner; ties share their mean.

    By default of all methods that were measured on every data set, less the constant.
    """
    of = folds[folds["algorithm"] != CONSTANT] if learners is None else folds[folds["learner"].isin(learners)]
    errors = of.pivot_table(index="dataset", columns="learner", values="error", aggfunc="mean", sort=False)
    if learners is None:
        errors = errors.dropna(axis=1).map(lambda error: float(f"{error:.12g}"))  # equal ones may differ in rounding
    return errors.rank(axis=1)


def latex(summary: pd.DataFrame, ranked: pd.DataFrame) -> str:
    """Return errors as a LaTeX table: one row per data set, one column per method, the lowest errors in bold."""
    cells = [mean_and_sd(row.error_mean, row.error_sd).replace("±", r"$\pm$") for row in summary.itertuples()]
    cells = [rf"\textbf{{{of}}}" if best else of for of, best in zip(cells, summary["best"], strict=True)]
    table = summary.assign(cell=cells).pivot(index="dataset", columns="learner", values="cell")
    table = table.loc[summary["dataset"].unique(), summary["learner"].unique()]
    if len(ranked) > 1:
        table.loc["mean rank"] = ranked.mean().map("{:.2f}".format)
    return latex_table(table)


def latex_table(table: pd.DataFrame) -> str:
    """Return cells as a LaTeX table with the rules of booktabs, in which names stay texts."""
    table = table.rename_axis(columns=None).fillna("--")
    table.index.names = [None] * table.index.nlevels
    shown = table.style.format_index(escape="latex").format_index(escape="latex", axis=1)
    aligned = "l" * table.index.nlevels + "r" * table.shape[1]
    return str(shown.to_latex(hrules=True, column_format=aligned, multirow_align="naive"))


def better_than(algorithm: str) -> str:
    """Return what the test that a learner is better than a baseline is called in columns."""
    return f"better_than_{algorithm.replace('-', '_')}"


def mean_shares(group: pd.DataFrame) -> np.ndarray:
    """Return the mean share of each base kernel over the trials of one learner on one data set, shape (p,)."""
    weights = np.stack(group["weights"].to_list())
    sizes = np.abs(weights).sum(axis=1, keepdims=True)
    return np.asarray((weights / np.where(sizes > 0, sizes, 1.0)).mean(axis=0))


def sampled(table: pd.DataFrame) -> bool:
    """Return whether a table of trials, or of results, has some whose base kernels were measured on a sample."""
    return bool(table["n_sampled"].notna().any())


def kernels_found(folds: pd.DataFrame) -> bool:
    """Return whether base kernels were found, and not given."""
    return any(values is not None for values in folds["parameters"])


def mean_and_sd(mean: float, sd: float) -> str:
    """Return mean ± deviation, both to the second digit of the deviation; of one trial the mean alone."""
    if np.isnan(sd):
        return f"{mean:.4f}"
    digits = 4 if not sd > 1e-12 * abs(mean) else int(np.clip(1 - np.floor(np.log10(sd)), 0, 12))
    return f"{mean:.{digits}f} ± {sd:.{digits}f}"


def short_p(p: float | None) -> str:
    """Return a p-value with two digits; nothing where there is none."""
    if p is None or np.isnan(p):
        return ""
    return "< 0.01" if p < 0.01 else f"{p:.2f}"


def equals_p(p: float) -> str:
    """Return what follows the letter p in a sentence."""
    return f"{'' if p < 0.01 else '= '}{short_p(p)}"


def p_against_best(summary: pd.DataFrame) -> pd.Series:
    """Return the p-value of each row of a summary against the first best one of its data set; NaN for the best."""
    p_values = pd.Series(np.nan, summary.index, dtype=float)
    for _, group in summary.groupby("dataset", sort=False):
        ranked = group.sort_values("error_mean", kind="stable")
        p_values[group.index] = ranked["p_each"].iloc[0]
    return p_values.mask(summary["best"])


def display_table(summary: pd.DataFrame) -> list[dict[str, str]]:
    """Return the table that people see in the terminal, in Prefect and in the report: the best of a data set first.

    A column without any entry is no part of it.
    """
    rows = []
    tested = summary.assign(p=p_against_best(summary))
    for _, group in tested.groupby("dataset", sort=False):
        for row in group.sort_values("error_mean", kind="stable").itertuples():
            sample = "" if pd.isna(row.n_sampled) else f"{row.n_sampled:,.0f} of {row.n_train:,.0f} rows"
            rows.append(
                {
                    "dataset": row.dataset,
                    "method": row.learner + (" *" if row.best else ""),
                    "test error": mean_and_sd(row.error_mean, row.error_sd),
                    "p": "" if row.best else short_p(row.p),
                    "alignment": "" if pd.isna(row.alignment_mean) else f"{row.alignment_mean:.3f}",
                    "weights from": sample,
                    "seconds": _seconds(row),
                }
            )
    return [{name: cell for name, cell in row.items() if any(of[name] for of in rows)} for row in rows]


def _seconds(row: Any) -> str:
    """Return the seconds of a row of a summary, with the marks that `seconds_line` explains."""
    seconds = f"{row.seconds_weights + row.seconds_fit:.2f}"
    if isinstance(row.stored, str):
        seconds += " †"
    if row.n_parallel > 1:
        seconds += " ‡"
    return seconds


def seconds_line(summary: pd.DataFrame) -> str:
    """Return what the marks next to seconds mean; nothing where there are none."""
    lines = [stored_line(summary)]
    if (most := summary["n_parallel"].max()) > 1:
        lines.append(f"‡ measured while up to {most:.0f} steps ran at once, and not comparable with other seconds")
    return "; ".join(line for line in lines if line)


def stored_line(summary: pd.DataFrame) -> str:
    """Return what the mark next to seconds means; nothing where no results are from the store."""
    times = sorted(map(str, summary[STORED].dropna()))
    if not times:
        return ""
    between = times[0] if times[0] == times[-1] else f"between {times[0]} and {times[-1]}"
    return f"† from the store: computed, and its seconds measured, {between}"


def certificate_table(summary: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row per (data set, learner) that solves an optimization problem."""
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


def found_table(folds: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row per (data set, learner) that finds its base kernels: how many, and those of the first fold."""
    rows = []
    for (dataset, learner), group in folds.groupby(["dataset", "learner"], sort=False):
        if not kernels_found(group):
            continue
        first, counts = group.iloc[0], group["n_kernels"]
        shares, largest = np.asarray(first["weights"]) / np.sum(first["weights"]), []
        for k in np.argsort(-shares)[:SHOWN_FOUND]:
            sigma = first["parameters"][k]
            low, high = min(sigma), max(sigma)
            largest.append(f"{f'{low:.4g}' if len(sigma) == 1 else f'{low:.3g} to {high:.3g}'} ({shares[k]:.2f})")
        rows.append(
            {
                "dataset": str(dataset),
                "learner": str(learner),
                "kernels": f"{counts.min()} to {counts.max()}" if counts.nunique() > 1 else str(counts.iloc[0]),
                "sigma (share) of the largest in the first trial": ", ".join(largest),
            }
        )
    return rows


def mean_history(folds: pd.DataFrame) -> list[float]:
    """Return the mean alignment after each step of finding base kernels, over the trials of one learner that got there.

    Of a continuous family after each addition, of learned metrics after each round on rows that did not teach it.
    """
    told = [list(of) for of in folds["history"] if isinstance(of, Sequence | np.ndarray) and len(of)]
    steps = range(max(map(len, told), default=0))
    return [float(np.mean([of[i] for of in told if i < len(of)])) for i in steps]


def history_table(folds: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row per (data set, learner) with the alignment on the way to its base kernels, where it tells."""
    rows = []
    for (dataset, learner), group in folds.groupby(["dataset", "learner"], sort=False):
        if history := mean_history(group):
            shown = [f"{one:.3f}" for one in history[:SHOWN_STEPS]] + ["..."] * (len(history) > SHOWN_STEPS)
            rows.append({"dataset": str(dataset), "learner": str(learner), "alignment": ", ".join(shown)})
    return rows


def mean_relevance(folds: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Give for each data set how much its features count, over the trials of learners that tell.

    Yields
    ------
    dataset : str
    shares : DataFrame
        Columns `learner`, `feature`, `mean` and `sd`; of each learner the same features, at most `SHOWN_FEATURES`, the
        largest on average first. A trial that does not name a feature has nothing of it.
    """
    told = folds[[isinstance(values, Sequence | np.ndarray) for values in folds["relevance"]]]
    for dataset, group in told.groupby("dataset", sort=False):
        pairs = zip(group["features"], group["relevance"], strict=True)
        wide = pd.DataFrame([dict(zip(*pair, strict=True)) for pair in pairs], dtype=float).fillna(0.0)
        first = wide.mean().nlargest(SHOWN_FEATURES).index.rename("feature")
        by_learner = wide[first].groupby(group["learner"].to_numpy(), sort=False)
        long = by_learner.agg(["mean", "std"]).fillna(0.0).stack(0, future_stack=True).rename(columns={"std": "sd"})
        yield str(dataset), long.rename_axis(["learner", "feature"]).swaplevel().loc[list(first)].reset_index()


def relevance_table(folds: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row per feature, one column per learner that tells its share."""
    rows = []
    for dataset, shares in mean_relevance(folds):
        for feature, of in shares.groupby("feature", sort=False):
            told = {str(one.learner): mean_and_sd(one.mean, one.sd) for one in of.itertuples()}
            rows.append({"dataset": dataset, "feature": str(feature), **told})
    return rows


def share_tables(summary: pd.DataFrame, folds: pd.DataFrame) -> list[tuple[str, list[dict[str, str]]]]:
    """Return a table per data set: a row per base kernel, a column per learner; those of the largest weights."""
    tables = []
    weighed = summary[[len(weights) > 0 for weights in summary["weights"]]]
    for dataset, group in weighed.groupby("dataset", sort=False):
        of = folds[(folds["dataset"] == dataset) & (folds["learner"] == group["learner"].iloc[0])]
        shares, names = np.stack(group["weights"].to_list(), axis=1), of["kernels"].iloc[0]
        largest = np.sort(np.argsort(-shares.max(axis=1), kind="stable")[:SHOWN_KERNELS])
        learners = list(group["learner"])
        rows = [
            {"base kernel": names[k]} | {name: f"{w:.3f}" for name, w in zip(learners, shares[k], strict=True)}
            for k in largest
        ]
        tables.append((str(dataset), rows))
    return tables
