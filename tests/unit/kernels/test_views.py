"""What base kernels of some columns have of a learned kernel."""

import io

import numpy as np
import pandas as pd
import pytest

from learnkernels import FamilyUnion, GaussianFamily, KernelLearningRegressor, center_gram, learn_kernel
from learnkernels.kernels import learned, learners, targets
from learnkernels.kernels.persistence.kernel import kernel_from_arrays, kernel_to_arrays, load_kernel, save_kernel

X = np.random.default_rng(0).normal(size=(160, 5))
Y = np.sin(2 * X[:, 0]) + X[:, 3]
FAMILY = FamilyUnion([GaussianFamily([0.1, 1.0]), GaussianFamily([0.3])], [[0, 1], [2, 3, 4]], ["numbers", "levels"])


def test_shares_of_views_are_those_of_weights_and_traces_for_every_learner():
    for normalize in ("trace", "frobenius", "none"):
        kernel = learn_kernel("unif", FAMILY, X, Y, normalize=normalize)
        grams = [center_gram(K) for K in FAMILY.tile(X, X)]
        held = np.abs(kernel.weights / kernel.scales) * [np.trace(K) for K in grams]
        oracle = {"numbers": held[:2].sum() / held.sum(), "levels": held[2] / held.sum()}
        assert kernel.view_shares == pytest.approx(oracle, rel=1e-9)
    assert learn_kernel("unif", GaussianFamily([0.1, 1.0]), X, Y).view_shares == {learned.TOGETHER: 1.0}


def test_shares_of_views_are_kept_in_files_and_older_files_are_read():
    kernel, file = learn_kernel("unif", FAMILY, X, Y), io.BytesIO()
    save_kernel(kernel, file)
    file.seek(0)
    assert load_kernel(file).view_shares == kernel.view_shares
    arrays = kernel_to_arrays(kernel)
    del arrays["traces"]
    older = kernel_from_arrays(arrays)
    assert older.traces is None
    np.testing.assert_array_equal(older.gram(), kernel.gram())
    with pytest.raises(ValueError, match="traces must have shape"):
        kernel_from_arrays({**arrays, "traces": kernel.traces[:1]})


def test_kernels_of_codes_are_called_by_their_columns():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": np.where(rng.random(90) < 0.2, np.nan, rng.normal(size=90))})
    table["color"] = rng.choice(["red", "blue"], 90)
    table["day"] = pd.date_range("2024-01-01", periods=90, freq="D")
    table["shop"] = [f"shop {i}" for i in rng.integers(0, 40, 90)]
    y = table["size"].fillna(0) + (table["color"] == "red") + 0.02 * np.arange(90)
    model = KernelLearningRegressor().fit(table, y)
    assert set(model.kernel_.view_shares) == {learned.TOGETHER, "shop"}
    assert sum(model.relevance_.values()) == pytest.approx(1.0, rel=1e-12)
    assert model.score(table, y) > 0.9
    with pytest.raises(ValueError, match="code_names must have one entry per code, got 2 for 1"):
        learners.RFM(codes=(1,), code_names=("shop", "color")).find(X, targets.Target.of(Y))
