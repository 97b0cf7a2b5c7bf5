"""What a run leaves behind for people: its report, and the folder that holds it with tables and figures."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from learnkernels.conf.schema import BASELINE_TITLES, GRID_SEARCH_TITLE, CompareConfig, ProtocolConfig
from learnkernels.kernels import NUMERICS_VERSION
from learnkernels.kernels.protocol.metrics import in_words
from learnkernels.tasks.evidence.figures import (
    alignment_figure,
    colors_of,
    convergence_figure,
    found_figure,
    history_figure,
    inline,
    parts_figure,
)
from learnkernels.tasks.evidence.markdown import link_list, markdown_table, plain
from learnkernels.tasks.evidence.tables import (
    BASELINE,
    RELEVANCE,
    STORED,
    better_than,
    certificate_table,
    display_table,
    equals_p,
    found_table,
    history_table,
    mean_and_sd,
    missing,
    parts_table,
    read_folds,
    sampled,
    share_table,
    stored_line,
    summarise,
)
from learnkernels.tasks.measure.baseline import BOOSTING, CONSTANT, GRID_SEARCH, LINEAR
from learnkernels.tasks.measure.evaluation import FoldsRef
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE
from learnkernels.tasks.naming import step
from learnkernels.tasks.store import atomic_path, earlier_versions, versions

CERTIFICATES = (
    "Largest over {trials}, at the chosen Lambda; iterations are the median. A duality gap bounds from above what the "
    "objective can still fall; a stationarity gap is that of the linear model, where the problem is not convex."
)

MLFLOW_HINT = (
    "A result a (data set, learner): tick some and press *Compare* to see parameters and metrics side by side. The "
    "links lead to `learnkernels ui`, or to the server of MLFLOW_TRACKING_URI."
)

HISTORY = (
    "Means over {trials}: after each base kernel that was added, on the rows that train; of learned metrics after each "
    "round, from none on, on the half of these rows that did not teach it. Where it falls, more rounds do harm."
)

COUNTED = (
    "Shares of what all features count, means ± deviations over {trials}: how fast the learned kernel falls where rows "
    "differ in a feature as they commonly do. Features that tell the same share what they count."
)

SAMPLED = "Weights and alignments are estimates from a sample of the training rows; predictors learn from all of them."

TESTS = (
    f"p: one-sided t-test over {{0}}, corrected for rows that these share; it decides at {SIGNIFICANCE}. Plain p: the "
    "papers' paired t-test, which takes {0} for independent and finds too much."
)

SHOWN_NOTES = 2
"""Sentences of a predictor in the report: one that is fitted for each Lambda has some for each."""

LIBRARIES = ("pyarrow", "dask", "prefect", "mlflow")
"""Whose versions are told beside those that numbers depend on."""


WHAT = {
    CONSTANT: "the best constant",
    LINEAR: "the linear model",
    GRID_SEARCH: f"one tuned Gaussian kernel ({GRID_SEARCH_TITLE})",
    BOOSTING: f"gradient boosting ({BASELINE_TITLES[BOOSTING]})",
}
"""Baselines in sentences."""

INSTEAD = {
    CONSTANT: "look for features that say more about the target, or for more rows, before you train a model",
    LINEAR: "use RidgeCV or LogisticRegression of scikit-learn, which are simpler",
    GRID_SEARCH: "use SVC or KernelRidge of scikit-learn with one tuned Gaussian kernel",
    BOOSTING: "use HistGradientBoosting of scikit-learn",
}
"""What to do next where a baseline has the lowest error."""


def winners(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the row of the lowest error of each data set; of equal ones the first, so that learners precede."""
    return summary.loc[summary.groupby("dataset", sort=False)["error_mean"].idxmin()]


def verdicts(summary: pd.DataFrame) -> list[str]:
    """Return one text a data set: who wins, against what, whether that is significant; after a baseline, what to do."""
    texts = []
    for winner in winners(summary).itertuples():
        group = summary[summary["dataset"] == winner.dataset]
        learned, others = group[~group["algorithm"].isin(WHAT)], group[group["algorithm"].isin(WHAT)]
        best = learned.loc[learned["error_mean"].idxmin()]
        who = WHAT.get(winner.algorithm, winner.learner)
        said = [f"{who} has the lowest {winner.metric}, {_error(winner)}"]
        if winner.algorithm in WHAT:
            said[0] += _is_better(best, winner)
            said.append(f"of the learners, {best.learner} has the lowest, {_error(best)}")
        baseline = group[group["algorithm"] == BASELINE]
        if best.algorithm == BASELINE:
            said[-1] += "; no learner beats the uniform combination"
        elif len(baseline):
            p, first = best.p_better_than_unif, baseline.iloc[0]
            than = f"{first.learner}'s {_error(first)}"
            if missing(p):
                said[-1] += f", against {than}; no test without pairs of at least two trials"
            else:
                clear = "significantly better" if p < SIGNIFICANCE else "not significantly better"
                said[-1] += f", {clear} than {than} ({_both(p, best.plain_p_better_than_unif)})"
        for row in others[others["algorithm"] != winner.algorithm].itertuples():
            said.append(f"{WHAT[row.algorithm]} has {_error(row)}{_is_better(best, row)}")
        if winner.algorithm in WHAT:
            said.append(f"next: {INSTEAD[winner.algorithm]}")
        texts.append(" ".join([f"{winner.dataset}: {said[0]}.", *map(as_sentence, said[1:])]))
    return texts


def _error(row: Any) -> str:
    return mean_and_sd(row.error_mean, row.error_sd)


def _is_better(best: pd.Series, baseline: Any) -> str:
    """Return the test that the best learner is better than a baseline; nothing where there is none."""
    test = better_than(baseline.algorithm)
    if missing(p := best[f"p_{test}"]):
        return ""
    return f" (that {best.learner} is better: {_both(p, best[f'plain_p_{test}'])})"


def left_out(config: CompareConfig) -> list[str]:
    """Return the sentence that says which baselines were dropped; none where none was."""
    dropped = [] if config.baseline is None else [BASELINE_TITLES[name] for name in config.baseline.without]
    return [f"Baselines left out as asked: {', '.join(dropped)}."] if dropped else []


def _both(p: float, plain: float) -> str:
    """Return the p-value that decides, and that of the papers' own test."""
    return f"p {equals_p(p)}; plain p {equals_p(plain)}"


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
) -> str:
    """Return the report of a run.

    `figure` is the address of the figure *alignment against error*, to be shown; `earlier` are versions of libraries,
    other than today's, that results in the store were computed with.
    """
    table, trials = display_table(summary), "folds" if config.protocol.split is None else "repeats"
    lines = [
        f"# {config.name}: which way of learning the kernel wins?",
        "",
        *(f"- {plain(v)}" for v in verdicts(summary)),
        "",
    ]
    if figure is not None:
        lines += [f"![alignment against error]({figure})", ""]
    lines += [
        *markdown_table(table),
        "",
        f"`*` lowest mean error of the data set. Test error: {plain(measures(summary))}. {_reading(config)}",
        "",
        *([f"{said}.", ""] if (said := stored_line(summary)) else []),
        *(line for said in left_out(config) for line in (said, "")),
    ]
    if summary["grid_edge"].any():
        lines += [
            "The best Lambda lies on the edge of the grid, with the error still falling, in "
            f"{int(summary['grid_edge'].sum())} of {int(summary['folds'].sum())} {trials}: widen `protocol.grid`.", "",
        ]  # fmt: skip
    lines += _section("Evidence of optimality", certificate_table(summary), CERTIFICATES.format(trials=trials))
    lines += [SAMPLED, ""] if sampled(summary) else []
    if chosen := _predictor_lines(summary, folds):
        lines += [
            "## Predictors",
            "",
            "What they say of the first trial; all of it is in `folds.parquet`.",
            "",
            *chosen,
            "",
        ]
    lines += _section("Base kernels found", found_table(folds))
    lines += _section("Alignment while they were found", history_table(folds), HISTORY.format(trials=trials))
    features = parts_table(folds, RELEVANCE, "feature")
    lines += _section("How much features count", features, COUNTED.format(trials=trials))
    lines += [*_share_lines(summary, folds), *_computed_before(earlier)]
    return "\n".join([*lines, "## Where the evidence lies", "", *link_list(links), ""])


def _section(title: str, table: Sequence[Mapping[str, object]], said: str = "") -> list[str]:
    """Return a heading, a table and what it says; nothing where the table has no row."""
    if not table:
        return []
    return [f"## {title}", "", *markdown_table(table), "", *([said, ""] if said else [])]


def _share_lines(summary: pd.DataFrame, folds: pd.DataFrame) -> list[str]:
    lines = []
    for dataset, group in summary.groupby("dataset", sort=False):
        group = group[[len(weights) > 0 for weights in group["weights"]]]
        if group.empty:
            continue
        of = folds[(folds["dataset"] == dataset) & (folds["learner"] == group["learner"].iloc[0])]
        shares = share_table(group, of["kernels"].iloc[0])
        lines += [f"## {plain(dataset)}: mean share of each base kernel", "", *markdown_table(shares), ""]
    return lines


def _reading(config: CompareConfig) -> str:
    protocol, split = config.protocol, config.protocol.split
    alignment = " Alignment is that of the learned kernel on its training rows." + _divided(config)
    if split is not None:
        times = "Means ± standard deviations over" if protocol.repeats > 1 else "Of"
        test = "all that their data set holds out" if split.test is None else f"{split.test}"
        return (
            f"{times} {protocol.repeats} {'repeats' if protocol.repeats > 1 else 'draw'} (seed {protocol.seed}); each "
            f"draws {split.train} rows to train, {_chosen_by(protocol)} and {test} to test"
            f"{_refitted(protocol)}. {TESTS.format('repeats')}{alignment}"
        )
    if all(of.time is not None for of in config.datasets):
        over = f"the {_tested(protocol)} of {protocol.folds} blocks of time that test. "
    else:
        repeated = f" x {protocol.repeats} repeats" if protocol.repeats > 1 else ""
        over = (
            f"{protocol.folds} folds{repeated} (seed {protocol.seed}); in each trial one fold tests, one chooses "
            f"Lambda, the others train{_refitted(protocol)}. "
        )
    return f"Means ± standard deviations over {over}{TESTS.format('folds')}{alignment}"


def _refitted(protocol: ProtocolConfig) -> str:
    """Return what becomes of the rows that have chosen, where they do not only choose."""
    return ", and what is chosen is fitted anew on the rows that train and those that chose" if protocol.refit else ""


def _tested(protocol: ProtocolConfig) -> int:
    """Return how many blocks of time test: all but the first two."""
    return (protocol.folds or 2) - 2


def _divided(config: CompareConfig) -> str:
    """Return how data sets with groups, or in time, are divided, and what weighs rows; nothing where there are none."""
    split, said = config.protocol.split, ""
    for of in config.datasets:
        if of.groups is not None:
            near = "" if split is None else ", so that parts are only nearly of the sizes asked for"
            said += f" {plain(of.label)}: no group of {plain(of.groups)} is divided{near}."
        elif of.time is not None:
            how = "the last rows test, those before them choose Lambda, those before these train"
            if split is None:
                how = (
                    f"in {_tested(config.protocol)} trials earlier blocks train, the next one chooses Lambda, the one "
                    "after tests"
                )
            how += _refitted(config.protocol)
            said += f" {plain(of.label)}, in the order of {plain(of.time)}: {how}; nothing later ever trains."
        if of.weights is not None:
            said += f" {plain(of.label)}: rows count by {plain(of.weights)}, in learning and in errors."
    return said


def _chosen_by(protocol: ProtocolConfig) -> str:
    """Return what chooses Lambda where rows are drawn."""
    if protocol.choose is None:
        return f"{protocol.split.validation if protocol.split else 0} to choose Lambda"
    on = ", in the first repeat for all of them" if protocol.choose.once else ""
    return f"which choose Lambda by {protocol.choose.folds}-fold cross-validation{on},"


def _predictor_lines(summary: pd.DataFrame, folds: pd.DataFrame) -> list[str]:
    """Return a line a (data set, learner) whose predictor has something to say: why it was taken, how it was solved."""
    lines = []
    for row in summary.itertuples() if "notes" in folds else ():
        of = folds[(folds["dataset"] == row.dataset) & (folds["learner"] == row.learner)]
        notes = of["notes"].iloc[0]
        if notes is not None and len(notes):
            said = f"{row.predictor_reason or row.predictor}. {' '.join(map(as_sentence, notes[:SHOWN_NOTES]))}"
            lines.append(f"- {plain(f'{row.dataset}, {row.learner}: {said}')}")
    return lines


def as_sentence(text: str) -> str:
    """Return words as a sentence."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


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


def _computed_before(earlier: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a line that says with what other versions results in the store were computed; none if there are none."""
    others = [[f"{name} {of}" for name, of in one.items() if of != versions()[name]] for one in earlier]
    if not others:
        return []
    now = [f"{name} {of}" for name, of in versions().items() if any(one[name] != of for one in earlier)]
    said = "; others with ".join(", ".join(one) for one in others)
    return [f"Numbers from the store were computed with {said}; today's are {', '.join(now)}.", ""]


@step("write results {run_id}")
def write_results(config: CompareConfig, run_id: str, refs: Sequence[FoldsRef], links: dict[str, str]) -> str:
    """Write the results folder, whole or not at all, put table and report into Prefect, and return the folder."""
    folds = read_folds(refs)
    summary, about = summarise(folds), environment(refs)
    target = Path("results") / config.name / run_id
    links, earlier = {"results": str(target), **links}, about.get("earlier", [])
    with atomic_path(target) as folder:
        folder.mkdir()
        for name, frame in (("folds", folds.drop(columns=STORED)), ("summary", summary)):
            frame.to_parquet(folder / f"{name}.parquet", index=False)
        (folder / "report.md").write_text(
            markdown_report(config, folds, summary, links, earlier=earlier), encoding="utf-8"
        )
        (folder / "config.yaml").write_text(_yaml(config), encoding="utf-8")
        (folder / "environment.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
        figures = {
            "alignment_vs_error": alignment_figure(folds, summary),
            "convergence": convergence_figure(folds, colors_of(summary)),
            "history": history_figure(folds, colors_of(summary)),
            "found_kernels": found_figure(folds, colors_of(summary)),
            "relevance": parts_figure(folds, colors_of(summary), RELEVANCE, "share of what all features count"),
        }
        for name, figure in figures.items():
            if figure is not None:
                figure.savefig(folder / f"{name}.png", dpi=100)  # two panels fit on a page of MLflow
    _publish(config, folds, summary, links, earlier)
    return str(target)


def _publish(
    config: CompareConfig,
    folds: pd.DataFrame,
    summary: pd.DataFrame,
    links: Mapping[str, str],
    earlier: Sequence[Mapping[str, str]],
) -> None:
    """Put table, report and the ways to MLflow into Prefect, and who won into the log of the flow run."""
    who = verdicts(summary)
    over = f"{', '.join(summary['learner'].unique())} on {', '.join(summary['dataset'].unique())}"
    create_table_artifact(
        display_table(summary),
        key="comparison",
        description=f"**{config.name}**: test error and alignment, mean ± standard deviation; `*` lowest error of the "
        f"data set. Test error: {plain(measures(summary))}." + (f" {said}." if (said := stored_line(summary)) else ""),
    )
    create_markdown_artifact(
        markdown_report(config, folds, summary, links, inline(alignment_figure(folds, summary)), earlier),
        key="comparison-report",
        description=f"**{config.name}**: who wins, the figure *alignment against error*, evidence, shares. "
        f"{plain(over)}.",
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


def _yaml(config: CompareConfig) -> str:
    return yaml.safe_dump(config.model_dump(mode="json", by_alias=True), sort_keys=False)
