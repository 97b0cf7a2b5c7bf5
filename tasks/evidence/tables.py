"""Tables of a run: trials, one row a (data set, learner), and what people read of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from learnkernels.conf.schema import BASELINE_TITLES
from learnkernels.tasks.measure.evaluation import COLUMNS, TABLE, FoldsRef
from learnkernels.tasks.measure.t_tests import corrected_p, paired_p, share_of_test
from learnkernels.tasks.store import checked

BASELINE = "unif"

COMPARED = (BASELINE, *BASELINE_TITLES)
"""What each learner is tested against."""

SHOWN_FOUND = 6
"""Base kernels listed of those that a continuous learner found."""

SHOWN_STEPS = 10
"""Steps on the way to them that are listed."""

SHOWN_FEATURES = 12
"""Features listed of those that count most."""

STORED = "stored"
"""Column that says since when results are in the store."""

SHOWN_KERNELS = 24
"""Base kernels listed in the report; all are in `folds.parquet`."""


def read_folds(refs: Sequence[FoldsRef]) -> pd.DataFrame:
    """Return the fold results of references, one row a fold.

    Beside the columns of the store, `stored` says when an earlier run computed them; null where this one has.

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


def summarise(folds: pd.DataFrame) -> pd.DataFrame:
    """Return one row a (data set, learner), in the order of the run.

    Columns: `error_mean`, `error_sd` and the like over folds (n - 1 in the deviation), `relative_error` against the
    best constant, `percent_above_best` and `alignment_over_best` against the best of the data set, on which
    learners differ more than data sets do, `p_better_than_unif` and the same for each baseline, such as
    `p_better_than_grid_search`, of corrected resampled t-tests over folds, which decide, the same with `plain_` of the
    papers' paired t-tests, `best` on its data set. With a split, a repeat takes the place of a fold. `n_train`
    is the mean number of training rows, and `n_sampled` of those that base kernels were measured on.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, appendix C.
    Nadeau, Bengio (2003), Machine Learning 52:239-281, section 3.
    """
    rows = []
    for (dataset, learner), group in folds.groupby(["dataset", "learner"], sort=False):
        first = group.iloc[0]
        others = {name: folds[(folds["dataset"] == dataset) & (folds["algorithm"] == name)] for name in COMPARED}
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
                **{key: p for name, of in others.items() for key, p in _tests(group, of, better_than(name)).items()},
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
                "n_sampled": group["n_sampled"].mean() if "n_sampled" in group else np.nan,
                "predictor_reason": _reason(group),
                STORED: first.get(STORED),
            }
        )
    summary = pd.DataFrame(rows)
    lowest = summary.groupby("dataset")["error_mean"].transform("min")
    highest = summary.groupby("dataset")["alignment_mean"].transform("max")
    summary["best"] = summary["error_mean"] == lowest
    above = 100.0 * (summary["error_mean"] - lowest) / lowest.where(lowest > 0)
    summary["percent_above_best"] = above.mask(summary["best"], 0.0)
    summary["alignment_over_best"] = summary["alignment_mean"] / highest.where(highest > 0)
    return summary


def better_than(algorithm: str) -> str:
    """Return what the test that a learner is better than a baseline is called in columns."""
    return f"better_than_{algorithm.replace('-', '_')}"


def _tests(group: pd.DataFrame, against: pd.DataFrame, name: str) -> dict[str, float | None]:
    """Return the p-values of the test that decides and of the papers' own."""
    errors, others = group["error"].to_numpy(), against["error"].to_numpy()
    share = share_of_test(group["n_test"].to_numpy(), group["n_rows"].to_numpy())
    return {f"p_{name}": corrected_p(errors, others, share), f"plain_p_{name}": paired_p(errors, others)}


def _mean_shares(group: pd.DataFrame) -> list[float]:
    """Return the mean share of each base kernel; none where each fold has found its own."""
    if kernels_found(group):
        return []
    weights = np.stack(group["weights"].to_list())
    return [float(share) for share in (weights / np.abs(weights).sum(axis=1, keepdims=True)).mean(axis=0)]


def sampled(table: pd.DataFrame) -> bool:
    """Return whether a table of trials, or of results, has some whose base kernels were measured on a sample."""
    return "n_sampled" in table and bool(table["n_sampled"].notna().any())


def _reason(group: pd.DataFrame) -> str:
    """Return why the predictor was taken; nothing where it was named."""
    first = group["predictor_reason"].iloc[0] if "predictor_reason" in group else None
    return "" if pd.isna(first) else str(first)


def kernels_found(folds: pd.DataFrame) -> bool:
    """Return whether base kernels were found, and not given."""
    return "parameters" in folds and any(values is not None for values in folds["parameters"])


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


def missing(value: float | None) -> bool:
    return value is None or bool(np.isnan(value))


def display_table(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the table that people see in the terminal, in Prefect and in the report."""
    of_a_sample = sampled(summary)
    return [
        {
            "dataset": row.dataset,
            "learner": row.learner + (" *" if row.best else ""),
            "test error": mean_and_sd(row.error_mean, row.error_sd),
            "alignment": "" if missing(row.alignment_mean) else f"{row.alignment_mean:.3f}"
            + ("" if missing(row.alignment_sd) else f" ± {row.alignment_sd:.3f}"),
            **({"weights from": sampled_rows(row)} if of_a_sample else {}),
            "p vs unif": "" if row.algorithm == BASELINE else short_p(row.p_better_than_unif),
            "plain p": "" if row.algorithm == BASELINE else short_p(row.plain_p_better_than_unif),
            "seconds": f"{row.seconds_weights + row.seconds_fit:.2f}" + (" †" if stored_before(row) else ""),
        }
        for row in summary.itertuples()
    ]  # fmt: skip


def stored_before(row: Any) -> bool:
    """Return whether an earlier run computed the results of a row of the summary."""
    return isinstance(getattr(row, STORED, None), str)


def stored_line(summary: pd.DataFrame) -> str:
    """Return what the mark beside seconds means; nothing where no results are from the store."""
    times = sorted(str(getattr(row, STORED)) for row in summary.itertuples() if stored_before(row))
    if not times:
        return ""
    between = times[0] if times[0] == times[-1] else f"between {times[0]} and {times[-1]}"
    return f"† from the store: computed, and its seconds measured, {between}"


def sampled_rows(row: Any) -> str:
    """Return the sample that base kernels were measured on; nothing where every row counts."""
    return "" if missing(row.n_sampled) else f"{row.n_sampled:,.0f} of {row.n_train:,.0f} rows"


def certificate_table(summary: pd.DataFrame) -> list[dict[str, str]]:
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
        if not missing(row.certificate)
    ]


def found_table(folds: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row a (data set, learner) that finds its base kernels: how many, and those of the first fold."""
    rows = []
    for (dataset, learner), group in folds.groupby(["dataset", "learner"], sort=False):
        if not kernels_found(group):
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


def mean_history(folds: pd.DataFrame) -> list[float]:
    """Return the mean alignment after each step of finding base kernels, over the trials of one learner that got there.

    Of a continuous family after each addition, of learned metrics after each round on rows that did not teach it.
    """
    told = [list(of) for of in folds.get("history", ()) if isinstance(of, Sequence | np.ndarray) and len(of)]
    steps = range(max(map(len, told), default=0))
    return [float(np.mean([of[i] for of in told if i < len(of)])) for i in steps]


def history_table(folds: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row a (data set, learner) with the alignment on the way to its base kernels, where it tells."""
    rows = []
    for (dataset, learner), group in folds.groupby(["dataset", "learner"], sort=False):
        if history := mean_history(group):
            shown = [f"{one:.3f}" for one in history[:SHOWN_STEPS]] + ["..."] * (len(history) > SHOWN_STEPS)
            rows.append({"dataset": str(dataset), "learner": str(learner), "alignment": ", ".join(shown)})
    return rows


RELEVANCE = ("relevance", "features")
"""Columns of the fold table that tell how much features count, and their names."""


def parts_of(folds: pd.DataFrame, columns: tuple[str, str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Give for each data set the shares of its parts, over the trials of learners that tell.

    Parameters
    ----------
    folds : DataFrame
        One row a trial.
    columns : (str, str)
        Those of the shares, and of the names of what has them: `RELEVANCE`.

    Yields
    ------
    dataset : str
    shares : DataFrame
        Columns `learner`, `part`, `mean` and `sd`; of each learner the same parts, at most `SHOWN_FEATURES`, the
        largest on average first. A trial that does not name a part has nothing of it.
    """
    of, named = columns
    if of not in folds:
        return
    told = folds[[isinstance(values, Sequence | np.ndarray) for values in folds[of]]]
    for dataset, group in told.groupby("dataset", sort=False):
        trials = [dict(zip(names, shares, strict=True)) for names, shares in zip(group[named], group[of], strict=True)]
        wide = pd.DataFrame(trials, dtype=float).fillna(0.0)
        first = wide.mean().nlargest(SHOWN_FEATURES).index.rename("part")
        by_learner = wide[first].groupby(group["learner"].to_numpy(), sort=False)
        long = by_learner.agg(["mean", "std"]).fillna(0.0).stack(0, future_stack=True).rename(columns={"std": "sd"})
        yield str(dataset), long.rename_axis(["learner", "part"]).swaplevel().loc[list(first)].reset_index()


def parts_table(folds: pd.DataFrame, columns: tuple[str, str], called: str) -> list[dict[str, str]]:
    """Return one row a part, one column a learner that tells its share."""
    rows = []
    for dataset, shares in parts_of(folds, columns):
        for part, of in shares.groupby("part", sort=False):
            told = {str(one.learner): mean_and_sd(one.mean, one.sd) for one in of.itertuples()}
            rows.append({"dataset": dataset, called: str(part), **told})
    return rows


def _sigma(values: Sequence[float]) -> str:
    """Return a base kernel's sigma, or their range where there is one a feature."""
    low, high = min(values), max(values)
    return f"{low:.4g}" if len(values) == 1 else f"{low:.3g} to {high:.3g}"


def share_table(group: pd.DataFrame, names: Sequence[str]) -> list[dict[str, str]]:
    """Return one row a base kernel, one column a learner; of many kernels those with the largest share."""
    return [
        {"base kernel": names[k]} | {row.learner: f"{row.weights[k]:.3f}" for row in group.itertuples()}
        for k in largest_shares(group)
    ]


def largest_shares(group: pd.DataFrame) -> np.ndarray:
    """Return the positions, ascending, of the base kernels that are shown."""
    shares = np.stack(group["weights"].to_list(), axis=1)
    return np.sort(np.argsort(-shares.max(axis=1), kind="stable")[:SHOWN_KERNELS])
