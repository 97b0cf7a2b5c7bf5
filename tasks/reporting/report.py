"""Write the report and the folder of results of a run."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
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
from learnkernels.kernels.model_selection.metrics import in_words

from ..measure.baseline import BOOSTING, CONSTANT, ESTIMATOR, GRID_SEARCH, LINEAR
from ..measure.run_learner import FoldsRef
from ..measure.t_tests import SIGNIFICANCE, critical_difference
from ..naming import file_name, step
from ..store import atomic_path, earlier_versions, versions
from . import tables
from .figures import inline, run_figures, save_figure
from .markdown import link_list, plain, render
from .places import links_of_report
from .prediction_figures import best_results, figures_folder, write_prediction_figures

SHOWN_VERDICTS = 20

REPORTED_FIGURES = {
    "errors": "errors of all methods",
    "alignment_vs_error": "alignment against error",
}


class Wording(NamedTuple):
    """Report's name of a baseline, with the advice if it is best."""

    name: str
    advice: str


WITHOUT_LEARNED_KERNEL = {
    CONSTANT: Wording(
        "the best constant", "look for features that say more about the target"
    ),
    LINEAR: Wording(
        "the linear model", "use RidgeCV or LogisticRegression of scikit-learn"
    ),
    tables.BASELINE: Wording("", "use equal weights"),
    GRID_SEARCH: Wording(
        f"{GRID_SEARCH_TITLE}'s tuned RBF kernel",
        "use SVC or KernelRidge of scikit-learn",
    ),
    BOOSTING: Wording(BASELINE_TITLES[BOOSTING], "use gradient boosting"),
    "ensemble": Wording("", "use the ensemble"),
}
"""Methods without a learned kernel, the simplest first."""

DEFAULT_LEARNER = "rfm"
"""Learner to judge if the default estimator took no part."""


def verdicts(summary: pd.DataFrame) -> list[str]:
    """Return sentences on each data set's best method and on learned kernels.

    The second compares the default estimator or best learner with the best method
    without a learned kernel.
    """
    sentences = []
    for dataset, group in summary.groupby("dataset", sort=False):
        in_order = group.reset_index(drop=True).sort_values("error_mean", kind="stable")
        ranked = [row for _, row in in_order.iterrows()]
        subject = f"{dataset}{_sample_phrase(ranked[0])}"
        sentences.append(f"{subject}: {_sentence_on_best(ranked)}.")
        learners = [
            row for row in ranked if row.algorithm not in WITHOUT_LEARNED_KERNEL
        ]
        others = [row for row in ranked if row.algorithm in WITHOUT_LEARNED_KERNEL]
        if not learners:
            continue
        advice = "Unknown: no baseline took part; add 'baseline: {}'"
        if others:
            advice = _advice(learners, others[0])
        sentences.append(f"{subject}: use the learned kernel? {advice}.")
    return sentences


def _sentence_on_best(ranked: Sequence[pd.Series]) -> str:
    best = ranked[0]
    lowest = f"{_name(best)} has the lowest {in_words(best.metric)}, {_error(best)}"
    if len(ranked) == 1:
        return lowest
    second = ranked[1]
    difference = _difference_phrase(best, second)
    lowest += f", {_relation(best, second)} that of {_name(second)}, {_error(second)} ({difference})"
    tied = [best]
    tied += [row for row in ranked[1:] if _p(best, row) >= SIGNIFICANCE]
    simplest = min(tied, key=_complexity)
    if simplest.algorithm == CONSTANT:
        return f"{lowest}; nothing beats the best constant"
    if len(tied) == 1:
        return lowest
    return (
        f"{lowest}; {len(tied)} methods tie, of which {_name(simplest)} is the simplest"
    )


def _relation(best: pd.Series, second: pd.Series) -> str:
    if best.error_mean == second.error_mean:
        return "equal to"
    p = _p(best, second)
    if np.isnan(p):
        return "lower than"
    if p < SIGNIFICANCE:
        return "significantly lower than"
    return "not significantly lower than"


def _complexity(row: pd.Series) -> int:
    simplest_first = list(WITHOUT_LEARNED_KERNEL)
    if row.algorithm in simplest_first:
        return simplest_first.index(row.algorithm)
    return len(simplest_first)


def _advice(learners: Sequence[pd.Series], other: pd.Series) -> str:
    best = learners[0]
    learned = _learner_to_judge(learners)
    name = _name(learned)
    is_better = learned.error_mean <= other.error_mean
    is_significant = _p(learned, other) < SIGNIFICANCE
    compared = f"{_name(other)} ({_difference_phrase(learned, other)})"
    if is_significant and is_better:
        answer = f"Yes: {name} is significantly better than {compared}"
    elif is_significant:
        answer = f"No: {name} is significantly worse than {compared}"
    elif is_better:
        answer = f"Optional: {name} is not significantly better than {compared}"
    else:
        answer = f"Not needed: {name} is not better than {compared}"
    if is_better and learned.has_parameters:
        answer += "; as a model: learnkernels train"
    elif is_better:
        is_default = learned.algorithm in (ESTIMATOR, DEFAULT_LEARNER)
        answer += f"; in Python: {_python_call(learned, is_default)}"
    else:
        answer += f"; {WITHOUT_LEARNED_KERNEL[other.algorithm].advice}"
    if best is not learned:
        other_call = str(best.learner)
        if not best.has_parameters:
            other_call = _python_call(best)
        answer += (
            f"; {other_call} has {_error(best)} ({_difference_phrase(best, learned)})"
        )
    return answer


def _learner_to_judge(learners: Sequence[pd.Series]) -> pd.Series:
    for algorithm in (ESTIMATOR, DEFAULT_LEARNER):
        matching = [row for row in learners if row.algorithm == algorithm]
        if matching:
            return matching[0]
    return learners[0]


def _python_call(row: pd.Series, is_default: bool = False) -> str:
    kind = "Classifier"
    if row.task == "regression":
        kind = "Regressor"
    argument = f"learner={row.algorithm!r}"
    if is_default:
        argument = ""
    return f"KernelLearning{kind}({argument})"


def _sample_phrase(row: pd.Series) -> str:
    if row.n_train + 2 * row.n_test >= 0.5 * row.n_rows:
        return ""
    return f", on {row.n_train:,.0f} of {row.n_rows:,.0f} rows"


def _p(row: pd.Series, other: pd.Series) -> float:
    p = row.p_each[other.name]
    return np.nan if p is None else float(p)  # Parquet stores NaN as null


def _difference_phrase(row: pd.Series, other: pd.Series) -> str:
    p = _p(row, other)
    test = "one trial, no test"
    if not np.isnan(p):
        test = f"p {tables.equals_p(p)}"
    if not other.error_mean:
        return test
    percent = 100 * (row.error_mean / other.error_mean - 1)
    digits = f"{percent:+.2g}"
    if abs(percent) >= 10:
        digits = f"{percent:+.0f}"
    return f"{digits} %, {test}"


def _name(row: pd.Series) -> str:
    if row.algorithm in WITHOUT_LEARNED_KERNEL:
        return WITHOUT_LEARNED_KERNEL[row.algorithm].name or str(row.learner)
    if row.algorithm == ESTIMATOR:
        return f"the {row.learner}"
    return str(row.learner)


def _error(row: pd.Series) -> str:
    return tables.mean_and_sd(row.error_mean, row.error_sd)


def as_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def measures(summary: pd.DataFrame) -> str:
    groups = summary.groupby("metric", sort=False)["dataset"].unique()
    return "; ".join(
        f"{in_words(str(metric))} ({', '.join(datasets)})"
        for metric, datasets in groups.items()
    )


def report_values(
    config: CompareConfig,
    run: tables.RunTables,
    links: Mapping[str, str],
    earlier: Sequence[Mapping[str, str]] = (),
    skipped: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the values for the Markdown template of a comparison's report."""
    folds = run.folds
    summary = run.summary
    return {
        "config": config,
        "verdicts": verdicts(summary),
        "results": tables.display_table(summary),
        "measures": measures(summary),
        "trials": "folds" if config.protocol.split is None else "repeats",
        "in_time": all(dataset.time is not None for dataset in config.datasets),
        "p_values": tables.P_VALUES,
        "stored": tables.seconds_line(summary),
        "skipped": skipped,
        "own_folds": all(dataset.folds is not None for dataset in config.datasets),
        "pairs": _pairwise_rows(run.pairwise_texts),
        "edges": int(summary["grid_edge"].sum()),
        "n_trials": int(summary["folds"].sum()),
        "certificates": tables.certificate_table(summary),
        "sampled": tables.sampled(summary),
        "predictors": _predictor_lines(summary, folds),
        "found": tables.selected_kernels_table(folds),
        "history": tables.history_table(folds),
        "relevance": tables.relevance_table(folds),
        "shares": tables.share_tables(summary, folds),
        "links": links,
        **_rank_values(run.ranks),
        **_version_values(earlier),
    }


def _pairwise_rows(
    texts: Mapping[str, pd.DataFrame],
) -> list[tuple[str, list[dict[str, str]]]]:
    pairs = []
    for dataset, table in texts.items():
        if (table != "").any(axis=None):
            rows = table.rename_axis(index="p").reset_index().to_dict("records")
            pairs.append((dataset, rows))
    return pairs


def _rank_values(ranks: pd.DataFrame) -> dict[str, Any]:
    n_datasets, n_methods = ranks.shape
    if n_datasets < 2 or n_methods < 3:
        return {"ranks": [], "friedman": "", "critical_difference": ""}
    with np.errstate(all="ignore"):  # 0 / 0 if all ranks are tied
        friedman_p = stats.friedmanchisquare(*ranks.to_numpy().T).pvalue
    if np.isnan(friedman_p):
        friedman_p = 1.0
    mean_ranks = ranks.mean().sort_values()
    return {
        "ranks": [
            {"method": name, "mean rank": f"{rank:.2f}"}
            for name, rank in mean_ranks.items()
        ],
        "friedman": tables.equals_p(friedman_p),
        "critical_difference": f"{critical_difference(n_datasets, n_methods):.2f}",
    }


def _version_values(earlier: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return versions of stored results that differ, and today's."""
    current = versions()
    others = []
    changed: set[str] = set()
    for libraries in earlier:
        differing = {
            name: number
            for name, number in libraries.items()
            if number != current[name]
        }
        changed.update(differing)
        if differing:
            others.append(
                ", ".join(f"{name} {number}" for name, number in differing.items())
            )
    return {
        "others": others,
        "now": [
            f"{name} {number}" for name, number in current.items() if name in changed
        ],
    }


def _predictor_lines(summary: pd.DataFrame, folds: pd.DataFrame) -> list[str]:
    lines = []
    for row in summary.itertuples():
        trials = folds[
            (folds["dataset"] == row.dataset) & (folds["learner"] == row.learner)
        ]
        notes = trials["notes"].iloc[0]
        if notes is None or not len(notes):
            continue
        # There are notes for each value of C
        sentences = [as_sentence(note) for note in notes[:2]]
        remark = f"{row.predictor_reason or row.predictor}. {' '.join(sentences)}"
        lines.append(f"{row.dataset}, {row.learner}: {remark}")
    return lines


def environment(refs: Sequence[FoldsRef] = ()) -> dict[str, Any]:
    """Return versions of Python and libraries, also of earlier results on disk."""
    values: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "numerics": str(NUMERICS_VERSION),
        **versions(),
    }
    for name in ("pyarrow", "dask", "prefect", "mlflow"):
        values[name] = version(name)
    earlier = earlier_versions(Path(ref.path) for ref in refs)
    if earlier:
        values["earlier"] = earlier
    return values


@step("write results {run_id}")
def write_results(
    config: CompareConfig,
    run_id: str,
    refs: Sequence[FoldsRef],
    links: dict[str, str],
    rows: Mapping[str, pd.DataFrame],
    skipped: Sequence[str] = (),
) -> str:
    """Write a comparison's result files and Prefect artifacts; return the folder."""
    run = tables.RunTables.of(tables.read_folds(refs))
    versions_of_run = environment(refs)
    target = Path("results") / config.name / run_id
    all_links = {"results": str(target), **links}
    values = report_values(
        config, run, all_links, versions_of_run.get("earlier", []), skipped
    )
    figures = run_figures(run)
    inline_figures = _inline_figures(figures)
    with atomic_path(target) as folder:
        _write_tables(folder, run, rows)
        for name, figure in figures.items():
            save_figure(figure, folder / name, config.figures)
        predictions = _write_figures_of_best(folder, run.summary, refs, config.figures)
        settings = yaml.safe_dump(
            config.model_dump(mode="json", by_alias=True), sort_keys=False
        )
        _write_text(folder / "config.yaml", settings)
        _write_text(folder / "environment.json", json.dumps(versions_of_run, indent=1))
        lasting_values = {**values, "links": links_of_report(folder, target, links)}
        files = {title: f"{name}.png" for name, title in REPORTED_FIGURES.items()}
        report = render(
            "comparison.md", figures=files, predictions=predictions, **lasting_values
        )
        _write_text(folder / "report.md", report)
    _publish_in_prefect(
        config,
        run,
        render("comparison.md", figures=inline_figures, predictions={}, **values),
        values,
    )
    return str(target)


def _write_tables(
    folder: Path, run: tables.RunTables, rows: Mapping[str, pd.DataFrame]
) -> None:
    frames = {
        "folds": run.folds.drop(columns=tables.STORED),
        "summary": run.summary,
        "pairwise": run.pairwise,
    }
    for dataset, folds_of_dataset in rows.items():
        frames[f"rows/{file_name(dataset)}"] = folds_of_dataset
    (folder / "rows").mkdir(parents=True)
    for name, frame in frames.items():
        frame.to_parquet(folder / f"{name}.parquet", index=False)
    _write_text(folder / "results.tex", tables.latex(run.summary, run.ranks))
    if run.pairwise_texts:
        adjusted = tables.pairwise_tables(run.pairwise, "p_holm")
        _write_text(folder / "pairwise.tex", tables.latex_table(pd.concat(adjusted)))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _inline_figures(figures: Mapping[str, Any]) -> dict[str, str]:
    addresses = {}
    for name, title in REPORTED_FIGURES.items():
        address = inline(figures[name])
        if address is not None:
            addresses[title] = address
    return addresses


def _write_figures_of_best(
    folder: Path,
    summary: pd.DataFrame,
    refs: Sequence[FoldsRef],
    config: FiguresConfig | None,
) -> dict[str, dict[str, str]]:
    links: dict[str, dict[str, str]] = {}
    for ref in best_results(summary, refs):
        target = figures_folder(folder, ref.dataset, ref.learner)
        figures = {}
        for name in write_prediction_figures(target, ref, config):
            title = name.removesuffix(".png").replace("_", " ")
            figures[title] = quote((target / name).relative_to(folder).as_posix())
        if figures:
            links[f"{ref.dataset}: {ref.learner}"] = figures
    return links


def _publish_in_prefect(
    config: CompareConfig, run: tables.RunTables, report: str, values: Mapping[str, Any]
) -> None:
    sentences = values["verdicts"]
    links = values["links"]
    description = (
        f"**{config.name}**: {plain(' '.join(sentences[:SHOWN_VERDICTS]))} Test error: mean ± standard "
        f"deviation, {plain(values['measures'])}; `*` lowest of the data set. {tables.P_VALUES}."
    )
    if values["stored"]:
        description += f" {values['stored']}."
    create_table_artifact(values["results"], key="comparison", description=description)
    learners = ", ".join(run.summary["learner"].unique())
    datasets = ", ".join(run.summary["dataset"].unique())
    create_markdown_artifact(
        report,
        key="comparison-report",
        description=f"**{config.name}**: {plain(f'{learners} on {datasets}')}.",
    )
    hint = (
        "One result per data set and learner: select some and press *Compare* for parameters and metrics side by "
        "side. The links lead to `learnkernels ui`, or to the server of MLFLOW_TRACKING_URI."
    )
    create_markdown_artifact(
        "\n".join(["# This comparison in MLflow", "", *link_list(links), "", hint]),
        key="mlflow-chart",
        description=f"**{config.name}**: the charts of this comparison and all runs in MLflow.",
    )
    logger = get_run_logger()
    for sentence in sentences:
        logger.info("%s", sentence)
    for name, address in links.items():
        logger.info("%s", f"{name}: {address}")
