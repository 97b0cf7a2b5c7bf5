"""Units and medians of all rows, or of the training rows of each trial: `scale_on: all`
against `scale_on: training`.

`python -m dev.benchmarks.units` prints, for tables that scikit-learn carries, and with
`--board` for some of the board's with categories or gaps (`make board` installs them),
the errors of both on the same folds and how sure a difference is.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from prefect.logging import disable_run_logger

from dev.benchmarks.board.raw import raw_tables
from learnkernels.conf.schema import CompareConfig
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.measure.fold_statistics import (
    compute_statistics,
    planned_trials,
    rows_of_trial,
)
from learnkernels.tasks.measure.run_learner import predictor_for
from learnkernels.tasks.measure.t_tests import corrected_p
from learnkernels.tasks.measure.trials import TrialJob, run_trial
from learnkernels.tasks.workers.cluster import DaskPool

BUNDLED = ("breast_cancer", "diabetes", "wine")
SCALES = ("standard", "quantile")
LEARNERS = ("alignf", "rfm")
MOST_ROWS, REPEATS, FOLDS = 400, 2, 5
GRID = {"base": 4, "from": -3, "to": 5}


def data_sets(folder: Path, board: bool) -> list[dict[str, Any]]:
    """Return how the tables are read; those of the board are written into a folder first."""
    found: list[dict[str, Any]] = [
        {"source": "sklearn", "name": name} for name in BUNDLED
    ]
    small_tables = [table for table in raw_tables() if table.split.most <= 500]
    for table in small_tables[::4] if board else ():
        X, y = table.read()
        X.assign(target=y).to_parquet(folder / f"{table.name}.parquet")
        found.append(
            {"source": "file", "path": f"{table.name}.parquet", "task": table.task}
        )
    return found


def errors(data: dict[str, Any], folder: Path, learner: str) -> np.ndarray:
    """Return the test error of each trial."""
    config = CompareConfig.model_validate(
        {
            "name": "units",
            "data_dir": str(folder),
            "datasets": {**data, "subsample": MOST_ROWS},
            "kernels": {
                "family": "gaussian",
                "gammas": {"base": 2, "from": -8, "to": 0},
            },
            "learners": learner,
            "protocol": {"folds": FOLDS, "repeats": REPEATS, "grid": GRID},
            "dask": {"workers": 0},
        }
    )
    protocol, found = config.protocol, []
    with disable_run_logger(), DaskPool(config.dask) as pool:
        ref = ingest.fn(config.datasets[0], config.data_dir, protocol.seed)
        predictor = predictor_for(config, config.learners[0], ref).predictor.name
        for repeat in range(REPEATS):
            whole = (
                None
                if ref.by_training
                else compute_statistics.fn(
                    ref, config, repeat, pool, lambda share: None
                )
            )
            for trial in planned_trials(protocol):
                rows, stats = ref, whole
                if stats is None:
                    rows = rows_of_trial.fn(ref, protocol, repeat, trial)
                    stats = compute_statistics.fn(
                        rows, config, repeat, pool, lambda share: None, trial
                    )
                job = TrialJob(rows, stats, trial, config)
                found.append(run_trial(job, config.learners[0], predictor)["error"])
    return np.array(found)


def main() -> None:
    """Measure both ways on the same trials."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.benchmarks.units", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--board",
        action="store_true",
        help="Also tables of the board with categories or gaps.",
    )
    asked = parser.parse_args()
    print(  # noqa: T201
        "| table | scale | learner | all | training | difference | p |\n|---|---|---|---|---|---|---|"
    )
    ratios = []
    with tempfile.TemporaryDirectory() as state:
        os.environ["LEARNKERNELS_HOME"] = state
        folder = Path(state)
        for data in data_sets(folder, asked.board):
            for scale in SCALES:
                for learner in LEARNERS:
                    ways = [
                        {**data, "scale": scale, "scale_on": of}
                        for of in ("all", "training")
                    ]
                    every, own = (errors(way, folder, learner) for way in ways)
                    p = corrected_p(every, own, 1 / (FOLDS - 1))
                    p = None if p is None or (every == own).all() else 2 * min(p, 1 - p)
                    ratios.append(own.mean() / every.mean())
                    shown = "" if p is None else f"{p:.2f}"
                    name = data.get(
                        "name", data.get("path", "").removesuffix(".parquet")
                    )
                    print(  # noqa: T201
                        f"| {name} | {scale} | {learner} | {every.mean():.4g} | {own.mean():.4g} | "
                        f"{100 * (ratios[-1] - 1):+.1f} % | {shown} |",
                        flush=True,
                    )
    print(  # noqa: T201
        f"\ngeometric mean of training over all: {np.exp(np.mean(np.log(ratios))):.4f}"
    )


if __name__ == "__main__":
    main()
