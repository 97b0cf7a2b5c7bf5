"""Compare a new model with the one in use."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from prefect import flow
from pydantic import Field

from learnkernels.conf.forms import form_field
from learnkernels.conf.schema import CompareConfig
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.measure.comparison import (
    config_on,
    measure_kernels,
    measure_learners,
)
from learnkernels.tasks.measure.fold_statistics import require_feasible
from learnkernels.tasks.measure.progress import RunProgress
from learnkernels.tasks.measure.run_learner import FoldsRef, predictor_for
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE
from learnkernels.tasks.models.lifecycle import (
    contender,
    record_decision,
    reference_contender,
    require_model_name,
    rivals,
)
from learnkernels.tasks.models.newest import score_newest_rows
from learnkernels.tasks.models.promotion import (
    Challenge,
    decide,
    on_the_same_folds,
    require_same_rows,
)
from learnkernels.tasks.models.registry import REJECTED
from learnkernels.tasks.naming import THREADS, new_run_id, run_name
from learnkernels.tasks.operate.events import Event, announce
from learnkernels.tasks.reporting.tables import read_folds
from learnkernels.tasks.reporting.tracking import tracked_run
from learnkernels.tasks.signals import stopping_steps
from learnkernels.tasks.workers.cluster import DaskPool


@flow(
    name="promote",
    flow_run_name=run_name("promote-{model}"),
    task_runner=THREADS,
    persist_result=True,
    result_serializer="json",
)
def promote(
    model: Annotated[str, form_field("Name of the registered model.")],
    challenger: Annotated[
        Annotated[int, Field(ge=1)] | None,
        form_field("Version that challenges; by default that of alias challenger."),
    ] = None,
    level: Annotated[
        float,
        form_field(
            "Significance that a win needs, of a corrected resampled t-test.",
            gt=0,
            lt=1,
        ),
    ] = SIGNIFICANCE,
    refresh: Annotated[
        bool,
        form_field(
            "Let a version of the same recipe on other rows take over unless it is worse by the margin."
        ),
    ] = True,
) -> dict[str, Any]:
    """Promote the challenger if it is significantly better than the champion.

    A *refresh*, the same recipe on other rows, must only not be worse by more than
    `promotion_margin`.

    1. Find challenger and champion; the first version of a model becomes champion.
    2. Refuse a refresh that lacks columns, classes or many rows of the champion, or
       whose expected error is too high or implausibly low. Refuse new columns that
       determine the target, and columns that the rows to score lack.
    3. Apply both *recipes* (base kernels, learner, parameters, columns, scaling) to the
       challenger's data in every trial.
    4. Compare the test errors by a corrected resampled t-test. Score the champion on
       rows that it has not seen.
    5. Move the alias `champion`, or not; record the decision in MLflow, Prefect and
       `results/`.
    """
    require_model_name(model)
    ours, theirs, reference = rivals(model, challenger)
    challenging, config = contender(ours)
    run_id = new_run_id()
    with (
        tracked_run(
            config.name,
            config.tracking,
            "decision",
            f"promote {model} {run_id}",
            run_id,
        ) as run,
        RunProgress(4, "promotion-progress", "the challenge") as progress,
    ):
        challenge = Challenge(
            model, challenging, None, None, level, config.promotion_margin, refresh
        )
        results: tuple[FoldsRef, FoldsRef] | None = None
        if theirs is not None and reference is not None:
            defender, against = contender(theirs)
            challenge = replace(
                challenge,
                defender=defender,
                reference=reference_contender(reference, defender),
            )
            if challenge.measurable:
                challenge, results, data = _measured(
                    challenge, config, against, progress
                )
                newest = score_newest_rows(ours, theirs, *data)
                challenge = replace(challenge, newest=newest)
        decision = decide(challenge)
        folder = record_decision(run, decision, run_id, results)
    again = theirs is not None and ours.tags.get(REJECTED) == str(theirs.version)
    if decision.moved or not (decision.same_version or again):
        outcome: Event = "rejected"
        if decision.moved:
            outcome = "promoted"
        announce(outcome, model, f"{model}: {decision.reason}.")
    announce("challenged", model, f"{model}: {decision.reason}.")
    return {
        "model": model,
        "champion": decision.champion,
        "challenger": ours.version,
        "moved": decision.moved,
        "reason": decision.reason,
        "p": decision.p,
        "results": folder,
        "mlflow_run": run.run_id,
        "mlflow_url": run.url,
    }


def _measured(
    challenge: Challenge,
    config: CompareConfig,
    against: CompareConfig,
    progress: RunProgress,
) -> tuple[Challenge, tuple[FoldsRef, FoldsRef], tuple[DatasetRef, DatasetRef]]:
    """Return the measured challenge, its results and data sets."""
    ours = challenge.challenger
    theirs = challenge.defender
    assert theirs is not None
    added: list[str] = []
    if theirs.columns:
        added = ours.additional_columns(theirs)
    champion = on_the_same_folds(config, against, added)
    results: list[FoldsRef] = []
    with DaskPool(config.dask) as pool, stopping_steps():
        pool.require_usable()
        recipes = (config, champion)
        data = [
            ingest(recipe.datasets[0], recipe.data_dir, recipe.protocol.seed, pool)
            for recipe in recipes
        ]
        require_same_rows(challenge.model, data[0], data[1])
        for recipe, ref in zip(recipes, data, strict=True):
            local = config_on(recipe, recipe.datasets[0], ref)
            predictor_for(local, local.learners[0], ref)
            require_feasible(ref, local.kernels, local.protocol)
            statistics = measure_kernels(ref, local, pool, progress)
            results += measure_learners(ref, statistics, local, pool, progress)
    measured = replace(
        challenge,
        challenger=ours.with_errors(read_folds(results[:1])),
        defender=theirs.with_errors(read_folds(results[1:])),
        dataset=data[0].name,
        digest=data[0].digest,
    )
    return measured, (results[0], results[1]), (data[0], data[1])
