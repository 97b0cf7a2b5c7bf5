"""One learner on one data set: weights, predictor and test error in every trial."""

from __future__ import annotations

import json
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
from kernels import (
    LEARNERS,
    NUMERICS_VERSION,
    KernelEnsemble,
    KernelFamily,
    KernelPredictors,
    LearnedKernel,
    Moments,
    Target,
    evaluate,
    learn_path,
    resolve_predictor,
)
from kernels.families.base import Rows
from kernels.normalisation import Normalisation
from tasks.data import DatasetRef, load_dataset
from tasks.families import build_family
from tasks.gram import Advance, MomentsRef, load_moments, planned_trials
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
        ("n_test", pa.int32()),
        ("n_kernels", pa.int32()),
        ("weights", pa.list_(pa.float64())),
        ("trivial_error", pa.float64()),
        ("validation_error", pa.float64()),
        ("candidate_errors", pa.list_(pa.list_(pa.float64()))),
        ("regularisation", pa.float64()),
        ("grid_edge", pa.bool_()),
        ("kernels", pa.list_(pa.string())),
        ("algorithm", pa.string()),
        ("params", pa.string()),
        ("certificate", pa.float64()),
        ("certificate_measure", pa.string()),
        ("certificate_tolerance", pa.float64()),
        ("iterations", pa.int32()),
        ("objectives", pa.list_(pa.float64())),
        ("parameters", pa.list_(pa.list_(pa.float64()))),
    ]
)
"""One row a trial: a fold, or with a split, whose `fold` is 0, a repeat.

`weights` are mu for the base kernels as normalised; `learner` is the name in reports and `algorithm` that of the table;
`params` is JSON. `candidate_errors` are validation errors, a row a combination of `tune`, along the grid. `parameters`
holds the sigma of each base kernel that a continuous learner found. `certificate` is the relative residual of the
measure beside it, null where nothing is iterated; for a learner that is solved for each Lambda all belong to the chosen
one.
"""


@dataclass(frozen=True)
class FoldsRef:
    """Where the fold results of one (data set, learner) lie."""

    dataset: str
    learner: str
    algorithm: str
    predictor: str
    path: str


def require_params(learner: LearnerConfig) -> None:
    """Raise InputError if a learner does not take a parameter, or one of that type, or cannot be tuned as asked."""
    if learner.tune_by == "alignment" and LEARNERS[learner.name].needs == "rows":
        raise InputError(
            f"learners: {learner.title} learns no kernel that 'tune_by: alignment' could compare; set 'tune_by: error'."
        )
    taken = LEARNERS[learner.name].params
    for name, values in [*((name, [value]) for name, value in learner.params.items()), *learner.tune.items()]:
        if name not in taken:
            valid = f"it takes {', '.join(taken)}" if taken else "it takes none"
            raise InputError(f"learners: {learner.title} has no parameter {name!r}; {valid}.")
        kinds, expected = _KINDS[type(taken[name])]
        for value in values:
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise InputError(f"learners: {learner.title}: {name} must be {expected}, got {value!r}.")


_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    str: ((str,), "text"),
}
"""Types that a parameter may have for that of its default, and what a user calls them."""


def predictor_for(config: CompareConfig, learner: LearnerConfig, ref: DatasetRef) -> str:
    """Return the predictor of a learner on a data set.

    Raises
    ------
    InputError
        The learner or the configured predictor does not serve the data set's task.
    """
    row = LEARNERS[learner.name]
    if ref.task not in row.tasks:
        raise InputError(
            f"data set {ref.name}: learner {learner.title} serves {' and '.join(row.tasks)}, and this is a {ref.task}; "
            "leave it out, or set the data set's task."
        )
    # One that learns hypotheses brings its own predictor, whatever the configuration names.
    named = "auto" if row.needs == "rows" else config.predictor
    try:
        return resolve_predictor(named, ref.task, row.predictor)
    except ValueError as error:
        raise InputError(f"data set {ref.name}: {error}") from None


@task(task_run_name="evaluate {learner.title} on {ref.name}", cache_policy=NO_CACHE, tags=["learnkernels"])
def evaluate_learner(
    ref: DatasetRef,
    moments: Sequence[MomentsRef],
    learner: LearnerConfig,
    config: CompareConfig,
    advance: Advance,
) -> FoldsRef:
    """Learn weights and measure the test error in every trial, unless the store has the result."""
    predictor = predictor_for(config, learner, ref)
    grid = grid_values(config.protocol.grid)
    key = digest(
        NUMERICS_VERSION, COLUMNS.names, ref.name, [m.key for m in moments], learner.model_dump_json(),
        config.normalise, predictor, grid,
    )  # fmt: skip
    path = store_path("folds", key, ".parquet")
    if path.exists():
        get_run_logger().info("%s, %s: fold results %s are in the store", ref.name, learner.title, key)
        advance(1.0)
        return FoldsRef(ref.name, learner.title, learner.name, predictor, str(path))
    rows = []
    for moments_ref in moments:
        for row in _evaluate_trials(ref, moments_ref, learner, config, predictor, grid):
            rows.append(row)
            advance(1 / (len(moments) * len(planned_trials(config.protocol))))
    with atomic_path(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=COLUMNS), temporary)
    edges = sum(row["grid_edge"] for row in rows)
    log = get_run_logger()
    log.info("%s, %s: %s %.4f", ref.name, learner.title, rows[0]["metric"], np.mean([row["error"] for row in rows]))
    if edges:
        log.warning(
            "%s, %s: the best Lambda lies on the edge of the grid in %d of %d %s; widen protocol.grid",
            ref.name, learner.title, edges, len(rows), "folds" if config.protocol.split is None else "repeats",
        )  # fmt: skip
    return FoldsRef(ref.name, learner.title, learner.name, predictor, str(path))


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
    for trial in planned_trials(config.protocol):
        restricted = moments.restrict(trial.training)
        settings = learner.settings()
        started = time.perf_counter()
        try:
            learned = [
                learn(learner.name, family, dataset.X, restricted, dataset.target, grid, config.normalise, setting)
                for setting in settings
            ]
        except ValueError as error:
            raise InputError(f"data set {ref.name}: learner {learner.title}: {error}") from None
        weighed = time.perf_counter()
        candidates = [
            of if isinstance(of, KernelEnsemble) else KernelPredictors(of, dataset.target, predictor, grid)
            for of in learned
        ]
        try:
            result = evaluate(candidates, dataset.X, dataset.target, restricted.rows, folds, trial, by=learner.tune_by)
        except ValueError as error:
            raise InputError(f"data set {ref.name}: learner {learner.title}: {error}") from None
        fitted = time.perf_counter()
        yield {
            "dataset": ref.name,
            "task": ref.task,
            "learner": learner.title,
            "algorithm": learner.name,
            "predictor": predictor,
            "params": json.dumps(settings[result.candidate]),
            "repeat": moments_ref.repeat,
            "fold": trial.index,
            "error": result.error,
            "metric": dataset.target.metric,
            "seconds_weights": weighed - started,
            "seconds_fit": fitted - weighed,
            "n_train": result.n_train,
            "n_test": result.n_test,
            "trivial_error": result.trivial_error,
            "validation_error": float(result.validation_errors.min()),
            "candidate_errors": result.candidate_errors.tolist(),
            "regularisation": result.regularisation,
            "grid_edge": result.edge,
            **_learned_columns(learned[result.candidate], family, result.position),
        }


def learn(
    name: str,
    family: KernelFamily,
    X: Rows,
    moments: Moments,
    target: Target,
    grid: Sequence[float],
    normalise: Normalisation,
    params: dict[str, Any],
) -> tuple[LearnedKernel, ...] | KernelEnsemble:
    """Return the kernels of a learner along the grid, or the hypotheses of one that learns no kernel."""
    if LEARNERS[name].needs == "rows":
        return KernelEnsemble.fit(family, X, moments, target, grid, normalise=normalise, **params)
    return learn_path(name, family, X, moments, target, grid, normalise=normalise, **params)


def _learned_columns(
    learned: tuple[LearnedKernel, ...] | KernelEnsemble, family: KernelFamily, position: int
) -> dict[str, Any]:
    """Return what a row says of the weights that were chosen."""
    if isinstance(learned, KernelEnsemble):
        weights = learned.weights[position].tolist()
        return {"weights": weights, "alignment": None, "kernels": list(family.names), "n_kernels": len(weights)}
    kernel = learned[position if len(learned) > 1 else 0]
    columns: dict[str, Any] = {
        "weights": kernel.weights.tolist(),
        "alignment": kernel.alignment,
        "kernels": list(kernel.family.names),
        "n_kernels": kernel.family.n_kernels,
    }
    if kernel.parameters is not None:
        columns["parameters"] = kernel.parameters.tolist()
    if kernel.certificate is not None:
        columns |= {
            "certificate": kernel.certificate.residual,
            "certificate_measure": kernel.certificate.measure,
            "certificate_tolerance": kernel.certificate.tolerance,
            "iterations": kernel.certificate.iterations,
            "objectives": list(kernel.certificate.objectives),
        }
    return columns
