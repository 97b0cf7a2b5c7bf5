"""One learner on one data set: weights, predictor and test error in every trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from conf.errors import InputError
from conf.schema import CompareConfig, LearnerConfig, grid_values
from kernels import LEARNERS, NUMERICS_VERSION, resolve_predictor
from tasks.cluster import DaskPool, run_all
from tasks.data import DatasetRef
from tasks.gram import Advance, MomentsRef, planned_trials
from tasks.store import atomic_path, digest, store_path
from tasks.trials import TrialJob, run_trial

PARALLEL_ROWS = 4096
"""Training rows up to which trials run side by side; larger factorisations use all cores of one process."""

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
        ("n_rows", pa.int32()),
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
        ("test_alignment", pa.float64()),
    ]
)
"""One row a trial: a fold, or with a split, whose `fold` is 0, a repeat.

`n_rows` are those of the data set; `weights` are mu for the base kernels as normalised; `learner` is the name in
reports and `algorithm` that of the table; `params` is JSON. `alignment` is that of the learned kernel on the training
rows, `test_alignment` on the test rows, at most a thousand of them. `candidate_errors` are validation errors, a row a
combination of `tune`, along the grid. `parameters` holds the sigma of each base kernel that a continuous learner found.
`certificate` is the relative residual of the measure beside it, null where nothing is iterated; for a learner that is
solved for each Lambda all belong to the chosen one.
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
    pool: DaskPool,
    advance: Advance,
) -> FoldsRef:
    """Learn weights and measure the test error in every trial, unless the store has the result.

    Trials run side by side on the workers of this machine, where they are small enough to leave each one core.
    """
    predictor, protocol = predictor_for(config, learner, ref), config.protocol
    grid = grid_values(protocol.grid)
    once = [protocol.choose.once] if protocol.choose is not None else []
    key = digest(
        NUMERICS_VERSION, COLUMNS.names, ref.name, [m.key for m in moments], learner.model_dump_json(),
        config.normalise, predictor, grid, *once,
    )  # fmt: skip
    path = store_path("folds", key, ".parquet")
    result = FoldsRef(ref.name, learner.title, learner.name, predictor, str(path))
    log = get_run_logger()
    if path.exists():
        log.info("%s, %s: fold results %s are in the store", ref.name, learner.title, key)
        advance(1.0)
        return result
    jobs = [
        TrialJob(ref, of, trial, config.kernels, learner, config.normalise, predictor, tuple(grid))
        for of in moments
        for trial in planned_trials(protocol)
    ]
    rows = []
    if any(once):
        rows = run_jobs(run_trial, jobs[:1], ref, config, pool, lambda share: advance(share / len(jobs)))
        chosen = tuple(tuple(errors) for errors in rows[0]["candidate_errors"])
        jobs = [replace(job, chosen=chosen) for job in jobs]
    left = len(jobs) - len(rows)
    rows += run_jobs(run_trial, jobs[len(rows) :], ref, config, pool, lambda share: advance(share * left / len(jobs)))
    write_fold_table(path, rows)
    edges = sum(row["grid_edge"] for row in rows)
    log.info("%s, %s: %s %.4f", ref.name, learner.title, rows[0]["metric"], np.mean([row["error"] for row in rows]))
    if edges:
        log.warning(
            "%s, %s: the best Lambda lies on the edge of the grid in %d of %d %s; widen protocol.grid",
            ref.name, learner.title, edges, len(rows), "folds" if protocol.split is None else "repeats",
        )  # fmt: skip
    return result


Job = TypeVar("Job")


def run_jobs(
    run: Callable[[Job], dict[str, Any]],
    jobs: Sequence[Job],
    ref: DatasetRef,
    config: CompareConfig,
    pool: DaskPool,
    advance: Advance,
) -> list[dict[str, Any]]:
    """Return the rows of some trials of a data set, in their order; `advance` adds up to one."""
    protocol = config.protocol
    if protocol.split is not None:
        n_train = protocol.split.train
    else:
        n_train = ref.n_rows * (protocol.folds - 2) // protocol.folds  # type: ignore[operator]
    return run_all(run, jobs, advance, pool if n_train <= PARALLEL_ROWS else None)


def write_fold_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows of the fold table, whole or not at all."""
    with atomic_path(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=COLUMNS), temporary)
