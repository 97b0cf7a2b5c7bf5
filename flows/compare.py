"""Compare learners on data sets."""

from __future__ import annotations

from functools import partial

from prefect import flow

from learnkernels.conf.forms import (
    AS_CONFIGURED,
    BaselineChoice,
    Folds,
    Learners,
    MetricChoice,
    OnlyDataset,
    Table,
    TargetColumn,
    WholeConfig,
    with_form_fields,
)
from learnkernels.tasks.measure.comparison import (
    folds_of_rows,
    measure_errors,
    prepare,
    steps,
    timed_steps,
)
from learnkernels.tasks.measure.progress import RunProgress
from learnkernels.tasks.naming import THREADS, new_run_id, run_name
from learnkernels.tasks.reporting.report import write_results
from learnkernels.tasks.reporting.tracking import (
    track_comparison,
    track_result,
    tracked_run,
)
from learnkernels.tasks.signals import stopping_steps
from learnkernels.tasks.workers.cluster import DaskPool


@flow(
    name="compare",
    flow_run_name=run_name("{config}"),
    task_runner=THREADS,
    persist_result=True,
    result_serializer="json",
)
def compare(
    *,
    dataset: OnlyDataset = "",
    table: Table = "",
    target: TargetColumn = "",
    learners: Learners = [],  # noqa: B006  (Prefect's form shows it)
    folds: Folds = 0,
    metric: MetricChoice = AS_CONFIGURED,
    baseline: BaselineChoice = AS_CONFIGURED,
    config: WholeConfig,
) -> dict[str, str]:
    """Compare kernel learners on data sets, and write a report.

    The fields before ``config`` replace parts of it.

    1. Open the run in MLflow; later errors mark it failed.
    2. Ingest every data set; refuse an invalid configuration before long work.
    3. Compute the statistics of the base kernels once per data set and repeat, on Dask.
    4. Learn weights, fit the predictor and measure the test error in every trial of
       every learner; baselines follow.
    5. Log each result as one MLflow run.
    6. Write tables, figures and report to `results/`, Prefect and MLflow.
    """
    config = with_form_fields(
        config,
        dataset=dataset,
        table=table,
        target=target,
        learners=learners,
        folds=folds,
        metric=metric,
        baseline=baseline,
    )
    run_id = new_run_id()
    datasets = [dataset.label for dataset in config.datasets]
    with (
        tracked_run(
            config.name,
            config.tracking,
            "comparison",
            f"comparison {run_id}",
            run_id,
            datasets,
        ) as comparison,
        RunProgress(
            steps(config) + 1, timed=timed_steps(config), at_once=config.parallel
        ) as progress,
        DaskPool(config.dask) as pool,
        stopping_steps(),
    ):
        prepared = prepare(config, pool, progress)
        record = partial(
            track_result,
            comparison,
            config_file=f"results/{config.name}/{run_id}/config.yaml",
        )
        results = measure_errors(prepared, record, pool, progress)
        progress.start("writing the report")
        links = {
            "MLflow comparison": comparison.url,
            "MLflow chart": comparison.chart_url,
        }
        written = write_results.submit(
            config, run_id, results, links, folds_of_rows(prepared), prepared.skipped
        )
        folder = written.result()
        track_comparison(comparison, config, folder, prepared.refs, wait_for=[written])
        progress.advance()
    return {
        "run": run_id,
        "results": folder,
        "mlflow_run": comparison.run_id,
        "mlflow_chart": comparison.chart_url,
    }
