"""What a run leaves behind for people: its report, and the folder that holds it with tables and figures."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from scipy import stats

from learnkernels.conf.schema import BASELINE_TITLES, GRID_SEARCH_TITLE, CompareConfig
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.kernels.protocol.metrics import in_words
from learnkernels.tasks.evidence import tables
from learnkernels.tasks.evidence.figures import (
    alignment_figure,
    colors_of,
    convergence_figure,
    found_figure,
    history_figure,
    inline,
    ranks_figure,
    relevance_figure,
)
from learnkernels.tasks.evidence.markdown import link_list, plain, render
from learnkernels.tasks.measure.baseline import BOOSTING, CONSTANT, GRID_SEARCH, LINEAR
from learnkernels.tasks.measure.evaluation import FoldsRef
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE, critical_difference
from learnkernels.tasks.naming import file_name, step
from learnkernels.tasks.store import atomic_path, earlier_versions, versions

MLFLOW_HINT = (
    "A result a (data set, learner): tick some and press *Compare* to see parameters and metrics side by side. The "
    "links lead to `learnkernels ui`, or to the server of MLFLOW_TRACKING_URI."
)

SHOWN_NOTES = 2
"""Sentences of a predictor in the report: one that is fitted for each C has some for each."""

LIBRARIES = ("pyarrow", "dask", "prefect", "mlflow")
"""Whose versions are told next to those that numbers depend on."""

BASELINES = {
    CONSTANT: (
        "the best constant",
        "look for features that say more about the target, or for more rows, before you train a model",
    ),
    LINEAR: ("the linear model", "use RidgeCV or LogisticRegression of scikit-learn, which are simpler"),
    GRID_SEARCH: (
        f"one tuned Gaussian kernel ({GRID_SEARCH_TITLE})",
        "use SVC or KernelRidge of scikit-learn with one tuned Gaussian kernel",
    ),
    BOOSTING: (f"gradient boosting ({BASELINE_TITLES[BOOSTING]})", "use HistGradientBoosting of scikit-learn"),
}
"""Baselines in sentences, and what to do next where one has the lowest error."""


def winners(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the row of the lowest error of each data set; of equal ones the first, so that learners precede."""
    return summary.loc[summary.groupby("dataset", sort=False)["error_mean"].idxmin()]


def verdicts(summary: pd.DataFrame) -> list[str]:
    """Return one text a data set: who wins, against what, whether that is significant; after a baseline, what to do."""
    texts = []
    for winner in winners(summary).itertuples():
        group = summary[summary["dataset"] == winner.dataset]
        learned, others = group[~group["algorithm"].isin(BASELINES)], group[group["algorithm"].isin(BASELINES)]
        best = learned.loc[learned["error_mean"].idxmin()]
        who = BASELINES.get(winner.algorithm, (winner.learner,))[0]
        said = [f"{who} has the lowest {winner.metric}, {_error(winner)}"]
        if winner.algorithm in BASELINES:
            said[0] += _is_better(best, winner)
            said.append(f"of the learners, {best.learner} has the lowest, {_error(best)}")
        baseline = group[group["algorithm"] == tables.BASELINE]
        if best.algorithm == tables.BASELINE:
            said[-1] += "; no learner beats the uniform combination"
        elif len(baseline):
            p, first = best.p_better_than_unif, baseline.iloc[0]
            than = f"{first.learner}'s {_error(first)}"
            if pd.isna(p):
                said[-1] += f", against {than}; no test without pairs of at least two trials"
            else:
                clear = "significantly better" if p < SIGNIFICANCE else "not significantly better"
                said[-1] += f", {clear} than {than} ({_both(best, tables.BASELINE)})"
        for row in others[others["algorithm"] != winner.algorithm].itertuples():
            said.append(f"{BASELINES[row.algorithm][0]} has {_error(row)}{_is_better(best, row)}")
        if winner.algorithm in BASELINES:
            said.append(f"next: {BASELINES[winner.algorithm][1]}")
        texts.append(" ".join([f"{winner.dataset}: {said[0]}.", *map(as_sentence, said[1:])]))
    return texts


def _error(row: Any) -> str:
    return tables.mean_and_sd(row.error_mean, row.error_sd)


def _is_better(best: pd.Series, baseline: Any) -> str:
    """Return the test that the best learner is better than a baseline; nothing where there is none."""
    if pd.isna(best[f"p_{tables.better_than(baseline.algorithm)}"]):
        return ""
    return f" (that {best.learner} is better: {_both(best, baseline.algorithm)})"


def _both(best: pd.Series, algorithm: str) -> str:
    """Return the p-value that decides, and that of the papers' own test."""
    test = tables.better_than(algorithm)
    return f"p {tables.equals_p(best[f'p_{test}'])}; plain p {tables.equals_p(best[f'plain_p_{test}'])}"


def as_sentence(text: str) -> str:
    """Return words as a sentence."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def left_out(config: CompareConfig) -> list[str]:
    """Return the sentence that says which baselines were dropped; none where none was."""
    dropped = [] if config.baseline is None else [BASELINE_TITLES[name] for name in config.baseline.without]
    return [f"Baselines left out as asked: {', '.join(dropped)}."] if dropped else []


def measures(summary: pd.DataFrame) -> str:
    """Return which error is measured on which data set."""
    groups = summary.groupby("metric", sort=False)["dataset"].unique()
    return "; ".join(f"{in_words(str(metric))} ({', '.join(datasets)})" for metric, datasets in groups.items())


def markdown_report(
    config: CompareConfig,
    folds: pd.DataFrame,
    summary: pd.DataFrame,
    links: Mapping[str, str],
    figure: str | None = None,
    earlier: Sequence[Mapping[str, str]] = (),
    skipped: Sequence[str] = (),
) -> str:
    """Return the report of a run.

    `figure` is the address of the figure *alignment against error*, to be shown; `earlier` are versions of libraries,
    other than today's, that results in the store were computed with; `skipped` says which learners do not serve a
    data set.
    """
    ranked = tables.ranks(folds)
    (n_ranked, k), mean = ranked.shape, ranked.mean().sort_values()
    across = n_ranked > 1 and k > 2
    with np.errstate(all="ignore"):  # of ranks that are all tied
        friedman = stats.friedmanchisquare(*ranked.to_numpy().T).pvalue if across else np.nan
    others = [", ".join(f"{name} {of}" for name, of in one.items() if of != versions()[name]) for one in earlier]
    return render(
        "comparison.md",
        config=config,
        verdicts=verdicts(summary),
        figure=figure,
        results=tables.display_table(summary),
        measures=measures(summary),
        trials="folds" if config.protocol.split is None else "repeats",
        in_time=all(of.time is not None for of in config.datasets),
        level=SIGNIFICANCE,
        stored=tables.stored_line(summary),
        left_out=[*left_out(config), *(f"Skipped: {sentence}" for sentence in skipped)],
        own_folds=all(of.folds is not None for of in config.datasets),
        pairs=[
            (name, of.rename_axis(index="p").reset_index().to_dict("records"))
            for name, of in tables.pairwise_tables(tables.pairwise(folds)).items()
            if (of != "").any(axis=None)
        ],
        ranks=[{"method": name, "mean rank": f"{rank:.2f}"} for name, rank in mean.items()] if across else [],
        friedman=tables.equals_p(friedman),
        apart=f"{critical_difference(n_ranked, k):.2f}" if across else "",
        edges=int(summary["grid_edge"].sum()),
        n_trials=int(summary["folds"].sum()),
        certificates=tables.certificate_table(summary),
        sampled=tables.sampled(summary),
        predictors=_predictor_lines(summary, folds),
        found=tables.found_table(folds),
        history=tables.history_table(folds),
        relevance=tables.relevance_table(folds),
        shares=tables.share_tables(summary, folds),
        others=[one for one in others if one],
        now=[f"{name} {of}" for name, of in versions().items() if any(one[name] != of for one in earlier)],
        links=links,
    )


def _predictor_lines(summary: pd.DataFrame, folds: pd.DataFrame) -> list[str]:
    """Return a line a (data set, learner) whose predictor has something to say: why it was taken, how it was solved."""
    lines = []
    for row in summary.itertuples() if "notes" in folds else ():
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
    folds = tables.read_folds(refs)
    summary, about = tables.summarise(folds), environment(refs)
    ranked, pairs = tables.ranks(folds), tables.pairwise(folds)
    target = Path("results") / config.name / run_id
    links, earlier = {"results": str(target), **links}, about.get("earlier", [])
    with atomic_path(target) as folder:
        folder.mkdir()
        frames = {"folds": folds.drop(columns=tables.STORED), "summary": summary, "pairwise": pairs}
        frames |= {f"rows/{file_name(name)}": of for name, of in rows.items()}
        (folder / "rows").mkdir()
        for name, frame in frames.items():
            frame.to_parquet(folder / f"{name}.parquet", index=False)
        texts = {
            "results.tex": tables.latex(summary, ranked),
            **({"pairwise.tex": tables.latex_table(pd.concat(tables.pairwise_tables(pairs)))} if len(pairs) else {}),
            "report.md": markdown_report(config, folds, summary, links, None, earlier, skipped),
            "config.yaml": yaml.safe_dump(config.model_dump(mode="json", by_alias=True), sort_keys=False),
            "environment.json": json.dumps(about, indent=1),
        }
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        colors, first = colors_of(summary), alignment_figure(folds, summary)
        figures = {
            "alignment_vs_error": first,
            "convergence": convergence_figure(folds, colors),
            "history": history_figure(folds, colors),
            "found_kernels": found_figure(folds, colors),
            "relevance": relevance_figure(folds, colors),
            "ranks": ranks_figure(ranked),
        }
        from matplotlib import rc_context  # here, as in `panels`

        shown, wanted = inline(first), config.figures
        for name, figure in figures.items():
            if figure is None:
                continue
            figure.savefig(folder / f"{name}.png", dpi=100)  # two panels fit on a page of MLflow
            if wanted is not None:
                width, height = figure.get_size_inches()
                figure.set_size_inches(wanted.width or width, wanted.height or height)
                with rc_context({"pdf.fonttype": 42}):  # publishers refuse other fonts
                    figure.savefig(folder / f"{name}.{wanted.format}", dpi=300)
    create_table_artifact(
        tables.display_table(summary),
        key="comparison",
        description=f"**{config.name}**: test error and alignment, mean ± standard deviation; `*` lowest error of the "
        f"data set. Test error: {plain(measures(summary))}."
        + (f" {said}." if (said := tables.stored_line(summary)) else ""),
    )
    over = f"{', '.join(summary['learner'].unique())} on {', '.join(summary['dataset'].unique())}"
    create_markdown_artifact(
        markdown_report(config, folds, summary, links, shown, earlier, skipped),
        key="comparison-report",
        description=f"**{config.name}**: who wins, the figure *alignment against error*, convergence, shares. "
        f"{plain(over)}.",
    )
    create_markdown_artifact(
        "\n".join(["# This comparison in MLflow", "", *link_list(links), "", MLFLOW_HINT]),
        key="mlflow-chart",
        description=f"**{config.name}**: the charts of this comparison and all runs in MLflow.",
    )
    for sentence in verdicts(summary):
        get_run_logger().info("%s", sentence)
    for name, place in links.items():
        get_run_logger().info("%s: %s", name, place)
    return str(target)
