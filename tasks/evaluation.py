"""One learner on one data set: weights, predictor and test error in every trial."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from conf.errors import InputError
from conf.schema import CompareConfig, LearnerConfig, grid_values
from kernels import LEARNERS, NUMERICS_VERSION, evaluate, learn_from_moments, resolve_predictor, trials
from tasks.data import DatasetRef, load_dataset
from tasks.families import build_family
from tasks.gram import Advance, MomentsRef, load_moments
from tasks.store import atomic_path, digest, store_path

COLUMNS = pa.schema(
    [
        ("dataset", pa.string()),
        ("task", pa.string()),
        ("learner", pa.string()),
        ("predictor", pa.string()),
        ("repeat", pa.int32()),
        ("fold", pa.int32()),
        ("alignment", pa.float64()),
        ("error", pa.float64()),
        ("metric", pa.string()),
        ("seconds_weights", pa.float64()),
        ("seconds_fit", pa.float64()),
        ("n_train", pa.int32()),
        ("n_kernels", pa.int32()),
        ("weights", pa.list_(pa.float64())),
        ("trivial_error", pa.float64()),
        ("validation_error", pa.float64()),
        ("regularisation", pa.float64()),
        ("grid_edge", pa.bool_()),
        ("kkt_residual", pa.float64()),
        ("kernels", pa.list_(pa.string())),
    ]
)
"""One row a fold. `weights` are mu of unit 2-norm, for the base kernels as normalised."""


@dataclass(frozen=True)
class FoldsRef:
    """Where the fold results of one (data set, learner) lie."""

    dataset: str
    learner: str
    predictor: str
    path: str


def require_params(learner: LearnerConfig) -> None:
    """Raise InputError if a learner is given a parameter that it does not take."""
    taken = [name for name in inspect.signature(LEARNERS[learner.name].solve).parameters if name not in ("M", "a")]
    for name in learner.params:
        if name not in taken:
            valid = f"it takes {', '.join(taken)}" if taken else "it takes none"
            raise InputError(f"learners: {learner.name} has no parameter {name!r}; {valid}.")


def predictor_for(config: CompareConfig, ref: DatasetRef) -> str:
    """Return the predictor of a data set.

    Raises
    ------
    InputError
        The configured one does not serve the data set's task.
    """
    try:
        return resolve_predictor(config.predictor, ref.task)  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"data set {ref.name}: {error}") from None


@task(task_run_name="evaluate {learner.name} on {ref.name}", cache_policy=NO_CACHE, tags=["learnkernels"])
def evaluate_learner(
    ref: DatasetRef,
    moments: Sequence[MomentsRef],
    learner: LearnerConfig,
    config: CompareConfig,
    advance: Advance,
) -> FoldsRef:
    """Learn weights and measure the test error in every trial, unless the store has the result."""
    predictor = predictor_for(config, ref)
    grid = grid_values(config.protocol.grid)
    key = digest(
        NUMERICS_VERSION, ref.name, [m.key for m in moments], learner.model_dump(), config.normalise, predictor, grid
    )
    path = store_path("folds", key, ".parquet")
    if path.exists():
        get_run_logger().info("%s, %s: fold results %s are in the store", ref.name, learner.name, key)
        advance(1.0)
        return FoldsRef(ref.name, learner.name, predictor, str(path))
    rows = []
    for moments_ref in moments:
        for row in _evaluate_trials(ref, moments_ref, learner, config, predictor, grid):
            rows.append(row)
            advance(1 / (len(moments) * config.protocol.folds))
    with atomic_path(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=COLUMNS), temporary)
    edges = sum(row["grid_edge"] for row in rows)
    log = get_run_logger()
    log.info("%s, %s: %s %.4f", ref.name, learner.name, rows[0]["metric"], np.mean([row["error"] for row in rows]))
    if edges:
        log.warning(
            "%s, %s: the best Lambda lies on the edge of the grid in %d of %d folds; widen protocol.grid",
            ref.name, learner.name, edges, len(rows),
        )  # fmt: skip
    return FoldsRef(ref.name, learner.name, predictor, str(path))


def _evaluate_trials(
    ref: DatasetRef,
    moments_ref: MomentsRef,
    learner: LearnerConfig,
    config: CompareConfig,
    predictor: str,
    grid: Sequence[float],
) -> Iterator[dict[str, Any]]:
    """Yield one row of the table a trial of one repeat."""
    dataset = load_dataset(ref)
    family = build_family(config.kernels, dataset.features)
    moments, folds = load_moments(moments_ref)
    for trial in trials(config.protocol.folds):
        started = time.perf_counter()
        kernel = learn_from_moments(
            learner.name, family, dataset.X, moments.restrict(trial.training),
            normalise=config.normalise, **learner.params,
        )  # fmt: skip
        learned = time.perf_counter()
        result = evaluate(kernel, dataset.X, dataset.target, folds, trial, predictor, grid)
        fitted = time.perf_counter()
        yield {
            "dataset": ref.name,
            "task": ref.task,
            "learner": learner.name,
            "predictor": predictor,
            "repeat": moments_ref.repeat,
            "fold": trial.index,
            "alignment": kernel.alignment,
            "error": result.error,
            "metric": dataset.target.metric,
            "seconds_weights": learned - started,
            "seconds_fit": fitted - learned,
            "n_train": result.n_train,
            "n_kernels": family.n_kernels,
            "weights": kernel.weights.tolist(),
            "trivial_error": result.trivial_error,
            "validation_error": float(result.validation_errors.min()),
            "regularisation": result.regularisation,
            "grid_edge": result.edge,
            "kkt_residual": kernel.certificate.residual if kernel.certificate else None,
            "kernels": list(family.names),
        }
