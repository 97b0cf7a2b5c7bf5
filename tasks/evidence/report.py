"""Results of a run: its report, and the folder that holds it with tables and figures."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import yaml
from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from scipy import stats

from learnkernels.conf.schema import BASELINE_TITLES, GRID_SEARCH_TITLE, CompareConfig
from learnkernels.conf.schema.compare import FiguresConfig
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.kernels.protocol.metrics import in_words

from ..measure.baseline import BOOSTING, CONSTANT, GRID_SEARCH, LINEAR
from ..measure.evaluation import FoldsRef
from ..measure.t_tests import SIGNIFICANCE, critical_difference
from ..naming import file_name, step
from ..store import atomic_path, earlier_versions, versions
from . import tables
from .figures import inline, run_figures, save_figure
from .markdown import link_list, plain, render
from .places import links_of_report
from .prediction_figures import best_results, figures_folder, write_prediction_figures

SHOWN_VERDICTS = 20
"""Sentences that the note of a comparison holds, two per data set; the report has them all."""

MLFLOW_HINT = (
    "One result per data set and learner: select some and press *Compare* for parameters and metrics side by side. The "
    "links lead to `learnkernels ui`, or to the server of MLFLOW_TRACKING_URI."
)

REPORTED_FIGURES = {"errors": "errors of all methods", "alignment_vs_error": "alignment against error"}
"""Figures that a report shows, by the names of their files, the first one on top."""

SHOWN_NOTES = 2
"""Remarks of a predictor in the report: one that is fitted for each C has some for each."""

LIBRARIES = ("pyarrow", "dask", "prefect", "mlflow")
"""Libraries whose versions are listed in addition to those that affect the numbers."""

UNLEARNED = {
    CONSTANT: ("the best constant", "look for features that say more about the target"),
    LINEAR: ("the linear model", "use RidgeCV or LogisticRegression of scikit-learn"),
    GRID_SEARCH: (f"{GRID_SEARCH_TITLE}'s tuned RBF kernel", "use SVC or KernelRidge of scikit-learn"),
    BOOSTING: (BASELINE_TITLES[BOOSTING], "use gradient boosting"),
    tables.BASELINE: ("", "use equal weights"),
    "ensemble": ("", "use the ensemble"),
}
"""Methods that learn no kernel: names in sentences, where not their labels, and what to do where one is better."""

SIMPLEST = (CONSTANT, LINEAR, tables.BASELINE, GRID_SEARCH, BOOSTING, "ensemble")
"""Methods that learn no kernel, the simplest first; all others come after them."""

DEFAULT_LEARNER = "rfm"
"""The learner of estimators without arguments, on tables."""

SAMPLE = 0.5
"""Share of a data set that a trial uses at least; where it is less, sentences say how many rows train."""


def verdicts(summary: pd.DataFrame) -> list[str]:
    """Return two sentences per data set: which method has the lowest error, and whether to use the learned kernel.

    The first compares the best method with the second, and names the simplest of those that tie. The second compares
    the default estimator, or the best learner where that took no part, with the best method that learns no kernel.
    """
    sentences = []
    for dataset, group in summary.groupby("dataset", sort=False):
        ranked = [row for _, row in group.reset_index(drop=True).sort_values("error_mean", kind="stable").iterrows()]
        where = f"{dataset}{_sample(ranked[0])}"
        sentences.append(f"{where}: {_winner(ranked)}.")
        learners = [row for row in ranked if row.algorithm not in UNLEARNED]
        others = [row for row in ranked if row.algorithm in UNLEARNED]
        if learners:
            advice = "Unknown: no baseline took part; add 'baseline: {}'"
            if others:
                advice = _advice(learners, others[0])
            sentences.append(f"{where}: use the learned kernel? {advice}.")
    return sentences


def _winner(ranked: Sequence[pd.Series]) -> str:
    """Return which of several methods, the best first, has the lowest error, and which tie with it."""
    best = ranked[0]
    lowest = f"{_named(best)} has the lowest {in_words(best.metric)}, {_error(best)}"
    if len(ranked) == 1:
        return lowest
    second = ranked[1]
    p = _p(best, second)
    how = "not significantly lower than"
    if np.isnan(p):
        how = "lower than"
    elif p < SIGNIFICANCE:
        how = "significantly lower than"
    if best.error_mean == second.error_mean:
        how = "equal to"
    lowest += f", {how} that of {_named(second)}, {_error(second)} ({_compared(best, second)})"
    tied = [row for row in ranked if row is best or _p(best, row) >= SIGNIFICANCE]
    simplest = min(tied, key=_complexity)
    if simplest.algorithm == CONSTANT:
        return f"{lowest}; nothing beats the best constant"
    if len(tied) == 1:
        return lowest
    return f"{lowest}; {len(tied)} methods tie, of which {_named(simplest)} is the simplest"


def _complexity(row: pd.Series) -> int:
    """Return the place of a method in the order from the simplest on."""
    return SIMPLEST.index(row.algorithm) if row.algorithm in SIMPLEST else len(SIMPLEST)


def _advice(learners: Sequence[pd.Series], other: pd.Series) -> str:
    """Return whether to use the default estimator rather than the best method that learns no kernel."""
    best = learners[0]
    learned = next((row for row in learners if row.algorithm == DEFAULT_LEARNER), best)
    ahead = learned.error_mean <= other.error_mean
    significant = _p(learned, other) < SIGNIFICANCE
    compared = f"{_named(other)} ({_compared(learned, other)})"
    if significant and ahead:
        answer = f"Yes: {learned.learner} is significantly better than {compared}"
    elif significant:
        answer = f"No: {learned.learner} is significantly worse than {compared}"
    elif ahead:
        answer = f"Optional: {learned.learner} is not significantly better than {compared}"
    else:
        answer = f"Not needed: {learned.learner} is not better than {compared}"
    if not ahead:
        answer += f"; {UNLEARNED[other.algorithm][1]}"
    if ahead:
        answer += f"; in Python: {_estimator(learned)}"
    if best is not learned:
        answer += f"; {_estimator(best)} has {_error(best)} ({_compared(best, learned)})"
    return answer


def _estimator(row: pd.Series) -> str:
    """Return the call that makes the estimator of a learner."""
    kind = "Regressor" if row.task == "regression" else "Classifier"
    argument = "" if row.algorithm == DEFAULT_LEARNER else f"learner={row.algorithm!r}"
    return f"KernelLearning{kind}({argument})"


def _sample(row: pd.Series) -> str:
    """Return how many rows of a data set train, in words, where trials use a sample of it; else nothing."""
    if row.n_train + 2 * row.n_test >= SAMPLE * row.n_rows:
        return ""
    return f", on {row.n_train:,.0f} of {row.n_rows:,.0f} rows"


def _p(row: pd.Series, other: pd.Series) -> float:
    p = row.p_each[other.name]
    return np.nan if p is None else float(p)  # Parquet files hold null for NaN


def _compared(row: pd.Series, other: pd.Series) -> str:
    """Return by how much the error of a method differs from that of another, and p."""
    p = _p(row, other)
    tested = "one trial, no test" if np.isnan(p) else f"p {tables.equals_p(p)}"
    if not other.error_mean:
        return tested
    return f"{100 * (row.error_mean / other.error_mean - 1):+.2g} %, {tested}"


def _named(row: pd.Series) -> str:
    return UNLEARNED.get(row.algorithm, ("", ""))[0] or str(row.learner)


def _error(row: pd.Series) -> str:
    return tables.mean_and_sd(row.error_mean, row.error_sd)


def as_sentence(text: str) -> str:
    """Return words as a sentence."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def measures(summary: pd.DataFrame) -> str:
    """Return which error is measured on which data set."""
    groups = summary.groupby("metric", sort=False)["dataset"].unique()
    return "; ".join(f"{in_words(str(metric))} ({', '.join(datasets)})" for metric, datasets in groups.items())


def report_values(
    config: CompareConfig,
    run: tables.RunTables,
    links: Mapping[str, str],
    earlier: Sequence[Mapping[str, str]] = (),
    skipped: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what the report of a run shows, but for the figures: the values of its template.

    `earlier` are versions of libraries, other than today's, that results in the store were computed with; `skipped`
    says which learners do not serve a data set.
    """
    folds, summary = run.folds, run.summary
    (n_ranked, k), mean = run.ranks.shape, run.ranks.mean().sort_values()
    across = n_ranked > 1 and k > 2
    with np.errstate(all="ignore"):  # of ranks that are all tied
        friedman = stats.friedmanchisquare(*run.ranks.to_numpy().T).pvalue if across else np.nan
    others = [", ".join(f"{name} {of}" for name, of in one.items() if of != versions()[name]) for one in earlier]
    return {
        "config": config,
        "verdicts": verdicts(summary),
        "results": tables.display_table(summary),
        "measures": measures(summary),
        "trials": "folds" if config.protocol.split is None else "repeats",
        "in_time": all(of.time is not None for of in config.datasets),
        "p_values": tables.P_VALUES,
        "stored": tables.seconds_line(summary),
        "skipped": skipped,
        "own_folds": all(of.folds is not None for of in config.datasets),
        "pairs": [
            (name, of.rename_axis(index="p").reset_index().to_dict("records"))
            for name, of in run.pairwise_texts.items()
            if (of != "").any(axis=None)
        ],
        "ranks": [{"method": name, "mean rank": f"{rank:.2f}"} for name, rank in mean.items()] if across else [],
        "friedman": tables.equals_p(friedman),
        "apart": f"{critical_difference(n_ranked, k):.2f}" if across else "",
        "edges": int(summary["grid_edge"].sum()),
        "n_trials": int(summary["folds"].sum()),
        "certificates": tables.certificate_table(summary),
        "sampled": tables.sampled(summary),
        "predictors": _predictor_lines(summary, folds),
        "found": tables.found_table(folds),
        "history": tables.history_table(folds),
        "relevance": tables.relevance_table(folds),
        "shares": tables.share_tables(summary, folds),
        "others": [one for one in others if one],
        "now": [f"{name} {of}" for name, of in versions().items() if any(one[name] != of for one in earlier)],
        "links": links,
    }


def _predictor_lines(summary: pd.DataFrame, folds: pd.DataFrame) -> list[str]:
    """Return a line per data set and learner with notes on the predictor: why it was selected, how it was solved."""
    lines = []
    for row in summary.itertuples():
        of = folds[(folds["dataset"] == row.dataset) & (folds["learner"] == row.learner)]
        notes = of["notes"].iloc[0]
        if notes is not None and len(notes):
            said = f"{row.predictor_reason or row.predictor}. {' '.join(map(as_sentence, notes[:SHOWN_NOTES]))}"
            lines.append(f"{row.dataset}, {row.learner}: {said}")
    return lines


def environment(refs: Sequence[FoldsRef] = ()) -> dict[str, Any]:
    """Return the versions that a run's numbers depend on: today's, and others that results were computed with before.

    The latter, a list under ``earlier``, is there only if there are some.
    """
    earlier = earlier_versions(Path(ref.path) for ref in refs)
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "numerics": str(NUMERICS_VERSION),
        **versions(),
        **{name: version(name) for name in LIBRARIES},
        **({"earlier": earlier} if earlier else {}),
    }


@step("write results {run_id}")
def write_results(
    config: CompareConfig,
    run_id: str,
    refs: Sequence[FoldsRef],
    links: dict[str, str],
    rows: Mapping[str, pd.DataFrame],
    skipped: Sequence[str] = (),
) -> str:
    """Write the results folder, whole or not at all, put table and report into Prefect, and return the folder.

    `rows` are those of `folds_of_rows`, and `skipped` says which learners do not serve a data set.
    """
    run, about = tables.RunTables.of(tables.read_folds(refs)), environment(refs)
    target = Path("results") / config.name / run_id
    shown = report_values(config, run, {"results": str(target), **links}, about.get("earlier", []), skipped)
    drawn = run_figures(run)
    files = {title: f"{name}.png" for name, title in REPORTED_FIGURES.items()}
    texts = {
        "results.tex": tables.latex(run.summary, run.ranks),
        "config.yaml": yaml.safe_dump(config.model_dump(mode="json", by_alias=True), sort_keys=False),
        "environment.json": json.dumps(about, indent=1),
    }
    if run.pairwise_texts:
        texts["pairwise.tex"] = tables.latex_table(pd.concat(tables.pairwise_tables(run.pairwise, "p_holm")))
    frames = {"folds": run.folds.drop(columns=tables.STORED), "summary": run.summary, "pairwise": run.pairwise}
    frames |= {f"rows/{file_name(name)}": of for name, of in rows.items()}
    shown_figures = {title: drawn[name] for name, title in REPORTED_FIGURES.items()}
    addresses = {title: inline(figure) for title, figure in shown_figures.items()}
    inlined = {title: address for title, address in addresses.items() if address is not None}
    with atomic_path(target) as folder:
        (folder / "rows").mkdir(parents=True)
        for name, frame in frames.items():
            frame.to_parquet(folder / f"{name}.parquet", index=False)
        for name, figure in drawn.items():
            save_figure(figure, folder / name, config.figures)
        predictions = _write_figures_of_best(folder, run.summary, refs, config.figures)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        lasting = {**shown, "links": links_of_report(folder, target, links)}
        report = render("comparison.md", figures=files, predictions=predictions, **lasting)
        (folder / "report.md").write_text(report, encoding="utf-8")
    _publish(config, run, render("comparison.md", figures=inlined, predictions={}, **shown), shown)
    return str(target)


def _write_figures_of_best(
    folder: Path, summary: pd.DataFrame, refs: Sequence[FoldsRef], wanted: FiguresConfig | None
) -> dict[str, dict[str, str]]:
    """Write figures of the predictions of the best method of each data set; return their addresses by method and title.

    Addresses are relative to the folder.
    """
    addresses: dict[str, dict[str, str]] = {}
    for ref in best_results(summary, refs):
        target = figures_folder(folder, ref.dataset, ref.learner)
        names = write_prediction_figures(target, ref, wanted)
        if names:
            place = target.relative_to(folder).as_posix()
            images = {name.removesuffix(".png").replace("_", " "): quote(f"{place}/{name}") for name in names}
            addresses[f"{ref.dataset}: {ref.learner}"] = images
    return addresses


def _publish(config: CompareConfig, run: tables.RunTables, report: str, shown: Mapping[str, Any]) -> None:
    """Put table, report and links into Prefect, and verdicts and links into its log."""
    said, links, stored = shown["verdicts"], shown["links"], shown["stored"]
    create_table_artifact(
        shown["results"],
        key="comparison",
        description=f"**{config.name}**: {plain(' '.join(said[:SHOWN_VERDICTS]))} Test error: mean ± standard "
        f"deviation, {plain(shown['measures'])}; `*` lowest of the data set. {tables.P_VALUES}."
        + (f" {stored}." if stored else ""),
    )
    over = f"{', '.join(run.summary['learner'].unique())} on {', '.join(run.summary['dataset'].unique())}"
    create_markdown_artifact(report, key="comparison-report", description=f"**{config.name}**: {plain(over)}.")
    create_markdown_artifact(
        "\n".join(["# This comparison in MLflow", "", *link_list(links), "", MLFLOW_HINT]),
        key="mlflow-chart",
        description=f"**{config.name}**: the charts of this comparison and all runs in MLflow.",
    )
    for sentence in (*said, *(f"{name}: {place}" for name, place in links.items())):
        get_run_logger().info("%s", sentence)
