"""Which way of learning the kernel wins?"""

from __future__ import annotations

from typing import TypedDict

from prefect import flow, runtime

from conf.schema import CompareConfig
from tasks.cluster import DaskPool
from tasks.data import ingest
from tasks.evaluation import evaluate_learner, predictor_for, require_params
from tasks.gram import compute_moments, require_feasible
from tasks.matrices import rows_for
from tasks.naming import run_name
from tasks.progress import RunProgress
from tasks.report import new_run_id, write_results
from tasks.tracking import track_result, track_sweep, tracked_run


class Comparison(TypedDict):
    """What a comparison returns: where its results lie."""

    run: str
    results: str
    mlflow_run: str
    mlflow_chart: str


@flow(name="compare-kernel-learners", flow_run_name=run_name("{config}"), persist_result=True, result_serializer="json")
def compare(config: CompareConfig) -> Comparison:
    """Compare learners of the kernel on data sets, and leave the evidence.

    1. Open the sweep run in MLflow; an error from here on marks it failed.
    2. Ingest every data set: read, check, store under its digest; refuse what cannot work before any long work.
    3. Compute the base kernels' moments once a data set and repeat, on Dask, for all folds.
    4. Learn weights, fit the predictor and measure the test error in every trial of every learner.
    5. Log each (data set, learner) as one MLflow run.
    6. Write tables, figure and report to `results/`, to Prefect and to the sweep run.
    """
    run_id = new_run_id()
    protocol = config.protocol
    steps = len(config.datasets) * (1 + protocol.repeats + len(config.learners)) + 1
    with (
        tracked_run(config, "sweep", f"sweep {run_id}", run_id, str(runtime.flow_run.id)) as sweep,
        RunProgress(steps) as progress,
        DaskPool(config.dask) as pool,
    ):
        pool.require_usable()
        for learner in config.learners:
            require_params(learner)
        refs, jobs = [], []
        for dataset in config.datasets:
            progress.start(f"reading {dataset.label}")
            refs.append(ingest(dataset, config.data_dir, protocol.seed))
            for learner in config.learners:
                predictor_for(config, learner, refs[-1])
            rows, local = rows_for(config, refs[-1])
            require_feasible(rows, local.kernels, protocol)
            jobs.append((refs[-1], rows, local))
            progress.advance()
        results = []
        for ref, rows, local in jobs:
            moments = []
            for repeat in range(protocol.repeats):
                progress.start(f"{ref.name}: alignment statistics of the base kernels")
                moments.append(compute_moments(rows, local, repeat, pool, progress.advance))
            for learner in config.learners:
                progress.start(f"{ref.name}: {learner.title}")
                results.append(evaluate_learner(rows, moments, learner, local, progress.advance))
                track_result(sweep, config, run_id, ref, results[-1])
        progress.start("writing the report")
        links = {"MLflow sweep": sweep.url, "MLflow chart": sweep.chart_url}
        folder = write_results(config, run_id, results, links)
        track_sweep(sweep, run_id, folder, refs)
        progress.advance()
    return {"run": run_id, "results": folder, "mlflow_run": sweep.run_id, "mlflow_chart": sweep.chart_url}
