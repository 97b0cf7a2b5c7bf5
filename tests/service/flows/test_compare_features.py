"""Rank-one kernels of a sparse file through the whole comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from learnkernels import FeatureFamily, learn_kernel
from learnkernels.conf.schema import CompareConfig
from learnkernels.flows.compare import compare
from learnkernels.kernels.protocol.folds import assign_folds, trials
from learnkernels.kernels.targets import Target
from learnkernels.tasks.measure.moments import fold_seed

pytestmark = pytest.mark.usefixtures("prefect_server", "working_folder")


def test_a_sparse_file_is_compared_with_one_kernel_a_feature():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.2, size=(120, 40)).astype(float)
    X[:, 39] = 0.0
    X[5, 39] = 1.0  # constant on all training sets but those that hold this row
    X[:, 0] = rng.random(120)  # every row has an entry
    y = np.sign(X[:, 1] + X[:, 2] - X[:, 3] - X[:, 4] + 0.3 * rng.normal(size=120))
    dump_svmlight_file(sparse.csr_matrix(X), y, "counts.libsvm", zero_based=True)
    learners = ["unif", "single", "align", "alignf"]
    config = CompareConfig.model_validate(
        {
            "name": "features",
            "datasets": [{"source": "file", "path": "counts.libsvm"}],
            "kernels": [{"family": "feature"}],
            "learners": learners,
            "protocol": {"grid": {"from": -2, "to": 4}},
            "dask": {"workers": 0},
        }
    )
    folds = pd.read_parquet(Path(compare(config)["results"]) / "folds.parquet")
    assert len(folds) == 4 * 5
    assert set(folds["n_kernels"]) == {40}
    assert list(folds["kernels"][0]) == [f"f{c}" for c in range(40)]
    assert folds["certificate"].max() < 1e-10
    target = Target.of(np.array([str(int(value)) for value in y]))
    drawn = assign_folds(target, 5, fold_seed(0, 0))
    for trial in trials(5):
        held = np.isin(drawn, trial.training)
        for learner in learners:
            row = folds[(folds["learner"] == learner) & (folds["fold"] == trial.index)].iloc[0]
            alone = learn_kernel(learner, FeatureFamily(40), sparse.csr_matrix(X[held]), y[held])
            np.testing.assert_allclose(row["weights"], alone.weights, rtol=0, atol=1e-9)
            assert row["alignment"] == pytest.approx(alone.alignment, rel=1e-9)
