"""Prefect flows that reproduce tables and figures of the papers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from prefect import flow, get_run_logger

from learnkernels.conf.errors import InputError
from learnkernels.conf.forms import form_field
from learnkernels.conf.schema import CompareConfig, DaskConfig
from learnkernels.tasks.measure.comparison import (
    Prepared,
    measure_errors,
    prepare,
    steps,
)
from learnkernels.tasks.measure.progress import RunProgress
from learnkernels.tasks.measure.run_learner import FoldsRef
from learnkernels.tasks.naming import THREADS, new_run_id, run_name
from learnkernels.tasks.reporting import tables
from learnkernels.tasks.reporting.mlflow_datasets import dataset_inputs
from learnkernels.tasks.reporting.tracking import (
    TrackedRun,
    complete_results,
    log_run,
    track_result,
    tracked_run,
)
from learnkernels.tasks.signals import stopping_steps
from learnkernels.tasks.workers.cluster import DaskPool

from .counts import Summary, summarize
from .item import (
    BaseKernelsStudy,
    NotOnOpenML,
    PaperItem,
    StudyConfig,
    choose_items,
)
from .judge import ReproducedItem, StudyResult, failing_checks
from .report import claims_not_reproduced, item_section, write_item, write_report
from .studies import STUDIES


class Outcome(TypedDict):
    item: str
    status: str
    reason: str
    summary: Summary | None
    not_holding: list[str]
    failing: list[str]


PoolOf = Callable[[DaskConfig], DaskPool]

_SHARED_POOLS: ContextVar[PoolOf | None] = ContextVar("pools", default=None)


@contextmanager
def shared_pools() -> Iterator[PoolOf]:
    """Yield a function that returns Dask workers, shared by all steps of a run."""
    outer = _SHARED_POOLS.get()
    if outer is not None:
        yield outer
        return
    pools: dict[str, DaskPool] = {}
    with ExitStack() as stack:

        def pool_of(config: DaskConfig) -> DaskPool:
            key = config.model_dump_json()
            if key not in pools:
                pools[key] = stack.enter_context(DaskPool(config))
            return pools[key]

        token = _SHARED_POOLS.set(pool_of)
        try:
            yield pool_of
        finally:
            _SHARED_POOLS.reset(token)


@flow(
    name="papers",
    flow_run_name=run_name("papers"),
    persist_result=True,
    result_serializer="json",
)
def papers(
    names: Annotated[list[str], form_field("The items; none for all.")],
    folder: Annotated[
        str, form_field("Folder of the items and of the catalogue of their data sets.")
    ],
    data_dir: Annotated[
        str | None,
        form_field("Folder of the data files; without it sets come from OpenML."),
    ] = None,
    quick: Annotated[bool, form_field("The reduced forms, with their checks.")] = False,
    report: Annotated[
        str | None,
        form_field("File of the report; its figures go into a folder of that name."),
    ] = None,
) -> dict[str, Any]:
    """Reproduce tables and figures of papers, and write a report of all results.

    1. Skip items whose data are neither in the folder nor on OpenML.
    2. Run each other item as a subflow; a failure does not stop the next items.
    3. Judge published numbers and claims; for reduced forms, also their checks.
    4. Write the report, also of earlier results.
    """
    all_items = choose_items([], Path(folder))
    with shared_pools():
        outcomes = [
            _attempt(item, folder, data_dir, quick)
            for item in choose_items(names, Path(folder), quick)
        ]
    reasons = {}
    for outcome in outcomes:
        if outcome["status"] != "done":
            # Reports are read elsewhere: drop the working directory
            reason = re.sub(r" \(seen from [^)]*\)", "", outcome["reason"])
            reasons[outcome["item"]] = f"{outcome['status']}: {reason}"
    path = write_report(all_items, reasons, quick, report)
    return {"outcomes": outcomes, "report": path}


def _attempt(
    item: PaperItem, folder: str, data_dir: str | None, quick: bool
) -> Outcome:
    status = "failed"
    try:
        item.study_config(data_dir, quick, Path(folder))
        outcome: Outcome = reproduce(item, folder, data_dir, quick)
        return outcome
    except NotOnOpenML as error:
        status = "not run"
        reason = str(error)
    except InputError as error:
        reason = str(error)
    reason = reason.removeprefix(f"{item.name}: ")
    get_run_logger().error("%s: %s: %s", item.name, status, reason)
    return Outcome(
        item=item.name,
        status=status,
        reason=reason,
        summary=None,
        not_holding=[],
        failing=[],
    )


@flow(
    name="reproduce-item",
    flow_run_name=run_name("{item}"),
    task_runner=THREADS,
    persist_result=True,
    result_serializer="json",
)
def reproduce(
    item: PaperItem, folder: str, data_dir: str | None = None, quick: bool = False
) -> Outcome:
    """Reproduce one table or figure; record it in files, Prefect and MLflow.

    The parts of a comparison share one run in MLflow. A killed run resumes from stored
    results.
    """
    started = time.perf_counter()
    run_id = new_run_id()
    configs = item.comparisons(data_dir, quick, Path(folder))
    study = item.study_config(data_dir, quick, Path(folder))
    datasets = list(
        dict.fromkeys(
            dataset.label for config in configs for dataset in config.datasets
        )
    )
    n_computing_steps = sum(steps(config) for config in configs) or 1
    with (
        tracked_run(
            item.name,
            item.tracking(quick),
            "comparison",
            f"{item.name} {run_id}",
            run_id,
            datasets,
        ) as comparison,
        RunProgress(n_computing_steps + 1, "paper-progress", item.name) as progress,
        shared_pools() as pool_of,
        stopping_steps(),
    ):
        prepared: list[Prepared] = []
        results: list[FoldsRef] = []
        if item.is_comparison:
            prepared = [
                prepare(config, pool_of(config.dask), progress) for config in configs
            ]
            record = partial(track_result, comparison)
            for part in prepared:
                results += measure_errors(
                    part, record, pool_of(part.config.dask), progress
                )
            result = StudyResult(folds=tables.read_folds(results))
        else:
            progress.start(f"{item.where}: {item.title}")
            result = STUDIES[study.kind](study, data_dir, progress.advance)
        progress.start("judging")
        seconds = time.perf_counter() - started
        reproduced = write_item(
            item, result, seconds, _data_sources(configs, study), quick, results
        )
        summary = summarize(reproduced)
        _log_reproduced(comparison, reproduced, summary, prepared)
        progress.advance()
    return Outcome(
        item=item.name,
        status="done",
        reason="",
        summary=summary,
        not_holding=claims_not_reproduced(reproduced),
        failing=_failing_quick_checks(reproduced),
    )


def _log_reproduced(
    comparison: TrackedRun,
    reproduced: ReproducedItem,
    summary: Summary,
    prepared: Sequence[Prepared],
) -> None:
    item = reproduced.item
    counts = {
        key: float(str(count)) for key, count in summary.items() if key != "seconds"
    }
    images = {
        name: f"get-artifact?path={name}&run_uuid={comparison.run_id}"
        for name in reproduced.figures
    }
    folds = reproduced.result.folds
    if folds is not None and item.is_comparison:
        complete_results(comparison, tables.summarize(folds), reproduced.folder)
    log_run(
        comparison,
        metrics=counts,
        params={"item": item.name, "paper": item.paper, "where": item.where},
        inputs=_mlflow_inputs(prepared),
        note=item_section(reproduced, images),
        artifacts=reproduced.folder,
    )


def _failing_quick_checks(reproduced: ReproducedItem) -> list[str]:
    item = reproduced.item
    if not reproduced.facts["quick"] or item.quick is None:
        return []
    sentences = failing_checks(
        item.quick.checks, reproduced.result.folds, reproduced.values
    )
    return [f"{item.name}: {sentence}" for sentence in sentences]


def _mlflow_inputs(prepared: Sequence[Prepared]) -> list[Any]:
    inputs: dict[str, Any] = {}
    for part in prepared:
        for ref, dataset_input in zip(
            part.refs, dataset_inputs(part.refs, "validation", part.config), strict=True
        ):
            inputs[ref.digest] = dataset_input
    return list(inputs.values())


def _data_sources(configs: Sequence[CompareConfig], study: StudyConfig) -> str:
    titles = {
        "file": "files",
        "openml": "OpenML",
        "sklearn": "scikit-learn",
        "synthetic": "a known distribution",
    }
    datasets = [dataset for config in configs for dataset in config.datasets]
    if isinstance(study, BaseKernelsStudy):
        datasets += [dataset for part in study.parts for dataset in part.datasets]
    else:
        datasets += getattr(study, "datasets", ())
    return " and ".join(dict.fromkeys(titles[dataset.source] for dataset in datasets))


@flow(
    name="report-papers",
    flow_run_name=run_name("report"),
    persist_result=True,
    result_serializer="json",
)
def report_papers(
    folder: str, quick: bool = False, report: str | None = None
) -> dict[str, Any]:
    """Write the report of all stored reproductions, without running anything."""
    all_items = choose_items([], Path(folder))
    path = write_report(all_items, {}, quick, report)
    return {"outcomes": [], "report": path}
