"""Weights and predictions equal those of other libraries, as docs/coming-from.md states; skipped without them."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.kernel_ridge import KernelRidge

from learnkernels import (
    GaussianFamily,
    KernelLearningRegressor,
    PrecomputedFamily,
    learn_kernel,
)
from learnkernels.kernels.learners import EasyMKL

GAMMAS = (0.001, 0.01, 0.1)


def standardized(X: np.ndarray, n_rows: int) -> np.ndarray:
    return ((X - X.mean(axis=0)) / X.std(axis=0))[:n_rows]


def gaussian_matrices(X: np.ndarray) -> np.ndarray:
    squared_distances = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return np.array([np.exp(-gamma * squared_distances) for gamma in GAMMAS])


def test_ridge_regression_is_that_of_scikit_learn():
    X, y = load_diabetes(return_X_y=True)
    X = standardized(X, 300)
    y = y[:300]
    H = np.eye(300) - 1 / 300
    K = H @ gaussian_matrices(X)[1] @ H
    centered = KernelLearningRegressor(
        family=GaussianFamily([0.01]), learner="unif", alpha=1.0
    ).fit(X, y)
    ridge = KernelRidge(kernel="precomputed", alpha=np.trace(K) / 300).fit(
        K, y - y.mean()
    )
    np.testing.assert_allclose(
        centered.predict(X), ridge.predict(K) + y.mean(), rtol=1e-9
    )

    uncentered = KernelLearningRegressor(
        family=GaussianFamily([0.01]), learner="unif", alpha=1.0, centering="none"
    ).fit(X, y)
    rbf = KernelRidge(kernel="rbf", gamma=0.01, alpha=1.0).fit(X, y)
    np.testing.assert_allclose(uncentered.predict(X), rbf.predict(X), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:The use of `x.T` on tensors:UserWarning")
def test_weights_are_those_of_mklpy():
    reason = "MKLpy, which weights are compared with, is not installed"
    torch = pytest.importorskip("torch", reason=reason)
    algorithms = pytest.importorskip("MKLpy.algorithms", reason=reason)
    preprocessing = pytest.importorskip("MKLpy.preprocessing", reason=reason)
    X, y = load_breast_cancer(return_X_y=True)
    y = y[:300]
    rows = np.arange(300.0)[:, None]
    matrices = gaussian_matrices(standardized(X, 300))
    family = PrecomputedFamily(matrices)
    tensors = [torch.tensor(K) for K in matrices]
    scaled = [
        preprocessing.tracenorm(preprocessing.kernel_centering(K)) for K in tensors
    ]

    def weights(learner: Any, **settings: str) -> np.ndarray:
        return learn_kernel(rows, y, learner=learner, family=family, **settings).weights

    def shares(learner: Any, **settings: str) -> np.ndarray:
        return learn_kernel(rows, y, learner=learner, family=family, **settings).shares

    pairs = [
        (algorithms.AverageMKL().fit(tensors, y), shares("unif")),
        (algorithms.EasyMKL(lam=0.1).fit(scaled, y), shares(EasyMKL(tradeoff=0.1))),
        (
            algorithms.FHeuristic().fit(tensors, y),
            shares("align-uncentered", normalize="none", centering="none"),
        ),
        (algorithms.CKA().fit(tensors, y), weights("alignf-linear", normalize="none")),
    ]
    for theirs, ours in pairs:  # MKLpy has some numbers in single precision
        np.testing.assert_allclose(ours, theirs.solution.weights.numpy(), atol=5e-8)


def predictions_of_sum(
    matrices: np.ndarray, alpha: float, targets: np.ndarray
) -> np.ndarray:
    """Return the predictions of kernel ridge regression on the sum of matrices, without intercept."""
    rows = np.arange(float(len(targets)))[:, None]
    relative = alpha / np.trace(matrices.sum(axis=0)) * len(rows)
    model = KernelLearningRegressor(
        family=PrecomputedFamily(matrices),
        learner="unif",
        alpha=relative,
        normalize="none",
        centering="none",
    )
    return model.fit(rows, targets).predict(rows)


def test_predictions_with_weights_of_himalaya_are_its_own():
    kernel_ridge = pytest.importorskip(
        "himalaya.kernel_ridge",
        reason="himalaya, which predictions are compared with, is not installed",
    )
    X, y = load_diabetes(return_X_y=True)
    X = standardized(X, 200)
    y = y[:200] - y[:200].mean()
    Y = np.column_stack([y, 50 * X[:, 2] * X[:, 8]])
    matrices = gaussian_matrices(X)
    ridge = kernel_ridge.KernelRidge(alpha=0.5, kernel="precomputed").fit(
        matrices[1], y
    )
    np.testing.assert_allclose(
        predictions_of_sum(matrices[1:2], 0.5, y), ridge.predict(matrices[1]), atol=5e-8
    )

    weights = np.array([0.2, 0.5, 0.3])
    precise = {"max_iter": 500, "tol": 1e-12}
    weighted = kernel_ridge.WeightedKernelRidge(
        1.0, np.log(weights), kernels="precomputed", solver_params=precise
    )
    expected = weighted.fit(matrices, y).predict(matrices)
    ours = predictions_of_sum(weights[:, None, None] * matrices, 1.0, y)
    np.testing.assert_allclose(ours, expected, atol=5e-8)

    search = {"n_iter": 20, "alphas": np.logspace(-3, 3, 7), "progress_bar": False}
    model = kernel_ridge.MultipleKernelRidgeCV(
        "precomputed", solver_params=search, random_state=0
    ).fit(matrices, Y)
    learned = np.exp(model.deltas_)[:, :, None, None] * matrices[:, None]
    of_targets = [
        predictions_of_sum(learned[:, target], 1.0, Y[:, target]) for target in range(2)
    ]
    np.testing.assert_allclose(
        np.column_stack(of_targets), model.predict(matrices), atol=5e-8
    )
