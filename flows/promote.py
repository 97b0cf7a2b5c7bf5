"""Is the new model better than the one in use?"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, TypedDict

from prefect import flow, runtime

from learnkernels.conf.forms import shown
from learnkernels.conf.schema import CompareConfig
from learnkernels.kernels.persistence.model import load_model
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.evidence.comparison import measure_kernels, measure_learners
from learnkernels.tasks.evidence.progress import RunProgress
from learnkernels.tasks.evidence.tracking import tracked_run
from learnkernels.tasks.measure.evaluation import FoldsRef, predictor_for
from learnkernels.tasks.measure.moments import require_feasible
from learnkernels.tasks.measure.t_tests import SIGNIFICANCE
from learnkernels.tasks.models.lifecycle import record_decision, require_model_name, rivals
from learnkernels.tasks.models.promotion import (
    Challenge,
    Contender,
    decide,
    on_the_same_folds,
    recipe,
    require_same_rows,
)
from learnkernels.tasks.models.registry import fetch
from learnkernels.tasks.models.training import recipe_of
from learnkernels.tasks.naming import new_run_id, run_name
from learnkernels.tasks.operate.events import announce
from learnkernels.tasks.workers.cluster import DaskPool


class Promotion(TypedDict):
    """What a challenge returns: who is champion now, and why."""

    model: str
    champion: int
    challenger: int
    moved: bool
    reason: str
    p: float | None
    results: str
    mlflow_run: str
    mlflow_url: str


@flow(
    name="promote-challenger",
    flow_run_name=run_name("promote-{model}"),
    persist_result=True,
    result_serializer="json",
)
def promote(
    model: Annotated[str, shown("Name of the registered model.")],
    challenger: Annotated[int | None, shown("Version that challenges; the one of alias challenger by default.")] = None,
    level: Annotated[
        float, shown("Significance that a win needs, of a corrected resampled t-test.", gt=0, lt=1)
    ] = SIGNIFICANCE,
    refresh: Annotated[
        bool, shown("Let a version of the same recipe take over if it learned from other rows.")
    ] = False,
) -> Promotion:
    """Challenge the champion: its alias moves only on a significant win.

    1. Find challenger and champion; the first version of a model is champion unopposed.
    2. Take the *recipes* of both (base kernels, learner, parameters, scaling) to the challenger's data, as they are
       today: the same rows, the same folds.
    3. Learn both anew on the training folds of every trial, and compare their test errors by a t-test that
       allows for training rows which trials share.
    4. Move the alias `champion` on a win, and leave the decision with its evidence in MLflow, Prefect and `results/`.

    Two versions of one recipe cannot be told apart by folds: the champion stays, unless *refresh* says otherwise.
    """
    require_model_name(model)
    ours, theirs = rivals(model, challenger)
    trained = load_model(fetch(ours))
    config = recipe_of(trained, ours)
    run_id = new_run_id()
    with (
        tracked_run(config, "decision", f"promote {model} {run_id}", run_id, str(runtime.flow_run.id)) as run,
        RunProgress(2 * (1 + config.protocol.repeats), "promotion-progress", "the challenge") as progress,
    ):
        contender = Contender(ours.version, config.learners[0].title)
        challenge = Challenge(model, contender, None if theirs is None else contender, level, refresh)
        results: tuple[FoldsRef, FoldsRef] | None = None
        if theirs is not None and theirs.version != ours.version:
            held = load_model(fetch(theirs))
            against = recipe_of(held, theirs)
            challenge = replace(
                challenge,
                defender=Contender(theirs.version, against.learners[0].title),
                same_recipe=recipe(config) == recipe(against),
                other_rows=trained.about["digest"] != held.about["digest"],
            )
            if not challenge.same_recipe:
                results, ref = _measure(model, config, on_the_same_folds(config, against), progress)
                challenge = challenge.measured(results, ref)
        decision = decide(challenge)
        folder = record_decision(run, decision, run_id, results)
    if theirs is None or theirs.version != ours.version:
        announce("promoted" if decision.moved else "rejected", model, f"{model}: {decision.reason}.")
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


def _measure(
    model: str, challenger: CompareConfig, champion: CompareConfig, progress: RunProgress
) -> tuple[tuple[FoldsRef, FoldsRef], DatasetRef]:
    """Return the fold results of both recipes, and the challenger's data."""
    with DaskPool(challenger.dask) as pool:
        pool.require_usable()
        ours, theirs = (ingest(of.datasets[0], of.data_dir, of.protocol.seed, pool) for of in (challenger, champion))
        require_same_rows(model, ours, theirs)
        results: list[FoldsRef] = []
        for config, ref in ((challenger, ours), (champion, theirs)):
            predictor_for(config, config.learners[0], ref)
            require_feasible(ref, config.kernels, config.protocol)
            results += measure_learners(ref, measure_kernels(ref, config, pool, progress), config, pool, progress)
    return (results[0], results[1]), ours
