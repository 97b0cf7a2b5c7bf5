"""Do the papers' tables and figures come out again?"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TypedDict

from prefect import flow, get_run_logger

from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import shown
from learnkernels.conf.schema import CompareConfig, DaskConfig
from learnkernels.tasks.evidence.comparison import measure, prepare, steps
from learnkernels.tasks.evidence.mlflow_datasets import dataset_inputs
from learnkernels.tasks.evidence.progress import RunProgress
from learnkernels.tasks.evidence.tables import read_folds
from learnkernels.tasks.evidence.tracking import log_run, tracked_run
from learnkernels.tasks.measure.evaluation import FoldsRef
from learnkernels.tasks.naming import THREADS, new_run_id, run_name
from learnkernels.tasks.stopping import stopping_steps
from learnkernels.tasks.workers.cluster import DaskPool

from .item import BaseKernelsStudy, NotOnOpenML, PaperItem, StudyConfig, choose_items
from .judge import StudyResult, Summary, failing
from .report import not_holding, section, write_item, write_report
from .studies import STUDIES


class Outcome(TypedDict):
    """What became of one item."""

    item: str
    status: str
    reason: str
    summary: Summary | None
    not_holding: list[str]
    failing: list[str]


PoolOf = Callable[[DaskConfig], DaskPool]

SHARED: ContextVar[PoolOf | None] = ContextVar("pools", default=None)


@contextmanager
def shared_pools() -> Iterator[PoolOf]:
    """Give the Dask workers of a configuration, which all items of a run share, as a cluster starts slowly."""
    if (shared := SHARED.get()) is not None:
        yield shared
        return
    pools: dict[str, DaskPool] = {}
    with ExitStack() as stack:

        def pool_of(config: DaskConfig) -> DaskPool:
            key = config.model_dump_json()
            if key not in pools:
                pools[key] = stack.enter_context(DaskPool(config))
            return pools[key]

        token = SHARED.set(pool_of)
        try:
            yield pool_of
        finally:
            SHARED.reset(token)


@flow(name="reproduce-papers", flow_run_name=run_name("papers"), persist_result=True, result_serializer="json")
def papers(
    names: Annotated[list[str], shown("The items; none for all.")],
    folder: Annotated[str, shown("Folder of the items and of the catalogue of their data sets.")],
    data_dir: Annotated[str | None, shown("Folder of the data files; without it sets come from OpenML.")] = None,
    quick: Annotated[bool, shown("The reduced forms, with their checks.")] = False,
    report: Annotated[str | None, shown("File of the report; its figures go into a folder of that name.")] = None,
) -> dict[str, Any]:
    """Reproduce items of the papers one after another, and write the report of all that have results.

    1. Leave out, with the reason, what needs data that are neither here nor on OpenML.
    2. Run each item as a subflow; one that fails does not stop the others.
    3. Judge cells and claims, of reduced forms also the checks.
    4. Assemble the report, of earlier results too; return its path, and what became of each item.
    """
    known, outcomes = choose_items([], Path(folder)), []
    with shared_pools():
        for item in choose_items(names, Path(folder), quick):
            outcomes.append(_attempt(item, folder, data_dir, quick))
    # Without the folder that the command was typed in: a report is read elsewhere.
    reasons = {
        one["item"]: re.sub(r" \(seen from [^)]*\)", "", f"{one['status']}: {one['reason']}")
        for one in outcomes
        if one["status"] != "done"
    }
    path = write_report(known, reasons, quick, Path(report) if report else None)
    return {"outcomes": outcomes, "report": path}


def _attempt(item: PaperItem, folder: str, data_dir: str | None, quick: bool) -> Outcome:
    """Return what became of an item, whether or not it could be run."""
    status = "failed"
    try:
        item.study_config(data_dir, quick, Path(folder))
        outcome: Outcome = reproduce(item, folder, data_dir, quick)
        return outcome
    except NotOnOpenML as error:
        status, reason = "not run", str(error)
    except InputError as error:
        reason = str(error)
    reason = reason.removeprefix(f"{item.name}: ")
    get_run_logger().error("%s: %s: %s", item.name, status, reason)
    return Outcome(item=item.name, status=status, reason=reason, summary=None, not_holding=[], failing=[])


@flow(
    name="reproduce-item",
    flow_run_name=run_name("{item}"),
    task_runner=THREADS,
    persist_result=True,
    result_serializer="json",
)
def reproduce(item: PaperItem, folder: str, data_dir: str | None = None, quick: bool = False) -> Outcome:
    """Reproduce one item: measure or study, judge, and leave the evidence in results, Prefect and MLflow.

    The parts of a comparison share one run in the experiment of the paper. What the store has is not computed
    again, so that a run that was killed goes on.
    """
    started, run_id = time.perf_counter(), new_run_id()
    configs = item.comparisons(data_dir, quick, Path(folder))
    study = item.study_config(data_dir, quick, Path(folder))
    datasets = list(dict.fromkeys(dataset.label for config in configs for dataset in config.datasets))
    total = (sum(steps(config) for config in configs) or 1) + 1
    with (
        tracked_run(
            item.name, item.tracking(quick), "comparison", f"{item.name} {run_id}", run_id, datasets
        ) as comparison,
        RunProgress(total, "paper-progress", item.name) as progress,
        shared_pools() as pool_of,
        stopping_steps(),
    ):
        inputs: dict[str, Any] = {}
        results: list[FoldsRef] = []
        if item.is_comparison:
            prepared = [(prepare(config, pool_of(config.dask), progress), config) for config in configs]
            for one, config in prepared:
                for ref, tracked in zip(one.refs, dataset_inputs(one.refs, "validation", config), strict=True):
                    inputs[ref.digest] = tracked
                results += measure(one, comparison, pool_of(config.dask), progress)
            folds = read_folds(results)
            result = StudyResult(folds=folds)
        else:
            progress.start(f"{item.where}: {item.title}")
            result = STUDIES[study.kind](study, data_dir, progress.advance)
        progress.start("judging")
        seconds = time.perf_counter() - started
        kept = write_item(item, result, seconds, _sources(configs, study), quick, results)
        summary = kept.summary()
        images = {name: f"get-artifact?path={name}&run_uuid={comparison.run_id}" for name in kept.figures}
        log_run(
            comparison,
            metrics={key: float(str(count)) for key, count in summary.items() if key != "seconds"},
            params={"item": item.name, "paper": item.paper, "where": item.where},
            inputs=list(inputs.values()),
            note=section(kept, images),
            artifacts=kept.folder,
        )
        progress.advance()
    checks = item.quick.checks if quick and item.quick else ()
    return Outcome(
        item=item.name,
        status="done",
        reason="",
        summary=summary,
        not_holding=not_holding(kept),
        failing=[f"{item.name}: {sentence}" for sentence in failing(checks, result.folds, kept.values)],
    )


def _sources(configs: Sequence[CompareConfig], study: StudyConfig) -> str:
    """Return where the data sets of an item come from; nothing where it has none."""
    parts = study.parts if isinstance(study, BaseKernelsStudy) else (study,) if hasattr(study, "datasets") else ()
    words = {"file": "files", "openml": "OpenML", "sklearn": "scikit-learn", "synthetic": "a known distribution"}
    return " and ".join(dict.fromkeys(words[dataset.source] for of in (*configs, *parts) for dataset in of.datasets))


@flow(name="report-papers", flow_run_name=run_name("report"), persist_result=True, result_serializer="json")
def report_papers(folder: str, quick: bool = False, report: str | None = None) -> dict[str, Any]:
    """Write the report of all items that have results, and run none."""
    path = write_report(choose_items([], Path(folder)), {}, quick, Path(report) if report else None)
    return {"outcomes": [], "report": path}
