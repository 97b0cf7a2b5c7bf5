"""Train and register a model."""

from __future__ import annotations

from typing import Any

from prefect import flow

from learnkernels.conf.forms import NewModel, OnlyDataset, OnlyLearner, WholeConfig
from learnkernels.tasks.measure.comparison import (
    measure_kernels,
    measure_learners,
    prepare,
    steps,
)
from learnkernels.tasks.measure.progress import RunProgress
from learnkernels.tasks.models.lifecycle import (
    require_model_name,
    track_model,
    write_training,
)
from learnkernels.tasks.models.training import (
    choose,
    fit_on_all_rows,
    require_columns,
    training_config,
)
from learnkernels.tasks.naming import THREADS, new_run_id, run_name
from learnkernels.tasks.operate.events import announce
from learnkernels.tasks.reporting.tracking import tracked_run
from learnkernels.tasks.signals import stopping_steps
from learnkernels.tasks.workers.cluster import DaskPool


@flow(
    name="train",
    flow_run_name=run_name("train-{model}"),
    task_runner=THREADS,
    persist_result=True,
    result_serializer="json",
)
def train(
    *,
    model: NewModel,
    dataset: OnlyDataset = "",
    learner: OnlyLearner = "",
    config: WholeConfig,
) -> dict[str, Any]:
    """Train a model on all rows, and register it as *challenger*.

    1. Open the run in MLflow; later errors mark it failed.
    2. Ingest the data set; refuse an invalid configuration before long work.
    3. Run the protocol: statistics of the base kernels on Dask, then all trials.
    4. Select the learner, parameters and C with the lowest mean *validation* error; the
       test errors of the trials are the expected error of the model.
    5. Learn kernel and predictor on all rows.
    6. Log the model in MLflow, and register a version unless the newest one is equal.

    Stored results are not recomputed.
    """
    require_model_name(model)
    config = training_config(config, dataset or None, learner or None)
    run_id = new_run_id()
    with (
        tracked_run(
            config.name, config.tracking, "model", f"train {model} {run_id}", run_id
        ) as run,
        RunProgress(steps(config) + 2, "training-progress", "the training") as progress,
        DaskPool(config.dask) as pool,
        stopping_steps(),
    ):
        ((ref, _, config),) = prepare(config, pool, progress).jobs
        require_columns(ref, config.drift.ignore)
        statistics = measure_kernels(ref, config, pool, progress)
        results = measure_learners(ref, statistics, config, pool, progress)
        choice = choose(config, results)
        progress.start(f"{ref.name}: {choice.learner.title} on all rows")
        path, about = fit_on_all_rows(
            ref, statistics[0], choice, config, pool, progress.advance, wait_for=results
        )
        progress.start(f"registering {model}")
        tracked = track_model(run, config, model, ref, choice, path, about)
        folder = write_training(tracked, choice, path, about, results, run, run_id)
        progress.advance()
    announce("trained", model, f"{model}: version {tracked.version} is registered.")
    return {
        "model": tracked.name,
        "version": tracked.version,
        "uri": tracked.uri,
        "digest": tracked.digest,
        "new": tracked.run_id == run.run_id,
        "learner": choice.learner.title,
        "C": choice.C,
        "test_error": about["test_error"],
        "alignment": about["alignment"],
        "results": folder,
        "mlflow_run": run.run_id,
        "mlflow_url": run.url,
    }
