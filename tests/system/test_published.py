"""Configurations of published experiments on the real files, and of every learner on one of them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from learnkernels.conf.loading import load_config
from learnkernels.flows.compare import compare
from learnkernels.kernels.learners import LEARNERS

pytestmark = pytest.mark.usefixtures("prefect_server", "working_folder")

CONF = Path(__file__).resolve().parents[2] / "conf"


def folds_of(name: str, *changes: str) -> pd.DataFrame:
    run = compare(load_config(CONF / name, ["dask.workers=0", *changes]))
    return pd.read_parquet(Path(run["results"]) / "folds.parquet")


@pytest.mark.slow(25)
def test_every_learner_runs_on_ionosphere(shared_data: Path):
    ionosphere = "datasets=[{source: file, path: ionosphere.parquet, target: target}]"
    short = ["protocol.folds=3", "protocol.grid=[0.25, 4, 64]"]
    folds = folds_of("all_learners.yaml", f"data_dir={shared_data}", ionosphere, *short)
    assert set(folds["learner"]) == set(LEARNERS)
    assert (folds["error"] < folds["trivial_error"]).all()
    solved = folds[folds["certificate"].notna()]
    assert (solved["certificate"] <= solved["certificate_tolerance"]).all()
