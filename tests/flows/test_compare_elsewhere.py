"""A comparison on workers of another machine: the numbers of this one, and nothing left there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from tests.elsewhere import another_machine, hideable

pytestmark = pytest.mark.usefixtures("prefect_server", "working_folder")

RUNS: dict[str, dict[str, Any]] = {
    "exact": {"learners": ["alignf"], "predictor": "krr"},
    "sampled": {"learners": ["align"], "moments": {"sample": 400}, "predictor": {"name": "nystrom", "landmarks": 30}},
    "iterated": {"learners": ["unif"], "predictor": "krr-cg"},
}


def folds_of(keys: dict[str, Any], dask: dict[str, Any], monkeypatch: pytest.MonkeyPatch, state: Path) -> pd.DataFrame:
    monkeypatch.setenv("LEARNKERNELS_HOME", str(state))
    config = {
        "name": "elsewhere",
        "datasets": [{"source": "sklearn", "name": "diabetes"}],
        "kernels": [{"family": "gaussian", "gammas": [0.1, 1, 10]}],
        "protocol": {"folds": 3, "grid": [0.1]},
    }
    run = compare(CompareConfig.model_validate(config | keys | {"dask": dask}))
    return pd.read_parquet(Path(run["results"]) / "folds.parquet")


def test_workers_that_do_not_see_our_files_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hidden, rows = hideable(tmp_path / "hidden"), tmp_path / "rows"
    with another_machine(tmp_path / "machine", hidden=hidden) as address:
        for name, keys in RUNS.items():
            small = 4096 if name == "exact" else 100  # whole trials there, or passes over rows
            monkeypatch.setattr("learnkernels.tasks.measure.evaluation.PARALLEL_ROWS", small)
            there = {"scheduler": address, "rows": str(rows)}
            ours = folds_of(keys, {"workers": 0}, monkeypatch, tmp_path / "here" / name)
            theirs = folds_of(keys, there, monkeypatch, (hidden or tmp_path / "hidden") / name)
            for column in ("error", "alignment", "validation_error"):
                np.testing.assert_allclose(theirs[column], ours[column], rtol=1e-12, err_msg=f"{name} {column}")
            for one, other in zip(theirs["weights"], ours["weights"], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)  # of a quadratic programme
    assert not list(rows.rglob("*"))
