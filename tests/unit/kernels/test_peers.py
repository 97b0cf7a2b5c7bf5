"""Weights and predictions equal those of other libraries, as docs/coming-from.md states."""

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.kernel_ridge import KernelRidge

from learnkernels import (
    GaussianFamily,
    KernelLearningRegressor,
    PrecomputedFamily,
    learn_kernel,
)
from learnkernels.kernels.learned_kernel import LearnedKernel
from learnkernels.kernels.learners import EasyMKL

GAMMAS = (0.001, 0.01, 0.1)

AVERAGE_MKL = [1 / 3, 1 / 3, 1 / 3]
EASY_MKL = [0.106780782342, 0.158390149474, 0.734829068184]
F_HEURISTIC = [0.0394840501249, 0.297470331192, 0.66304564476]
CKA = [0.259054153154, 0.965304356252, 0.0328396944839]
"""Weights by MKLpy 0.6: AverageMKL(), EasyMKL(lam=0.1), FHeuristic() and CKA().

Matrices are those of GAMMAS on 300 rows; for EasyMKL, after kernel_centering and tracenorm.
"""

KERNEL_RIDGE = [
    50.2356026398,
    5.08540495096,
    13.9729573772,
    5.31670338558,
    -55.4521805809,
]
WEIGHTED_KERNEL_RIDGE = [
    50.9447754972,
    12.6049502019,
    10.5582009388,
    -0.170377449666,
    -52.3997854479,
]
"""Predictions of every 40th training row by himalaya 0.4.11, at alphas of 0.5 and 1."""

DELTAS = np.array(
    [
        [1.8103063945513442, 1.4557488852626144],
        [1.3578028171041654, 6.903458367211326],
        [-10.17732358273806, -24.991624017434212],
    ]
)
MULTIPLE_KERNEL_RIDGE = [
    [54.1456238794, 24.3002301398],
    [0.881475990391, -1.86213123038],
    [13.3422610838, 6.73667374157],
    [4.84260256422, -4.09524038724],
    [-56.10865272, 50.150010476],
]
"""Logarithms of weights per target, and predictions of these rows, by himalaya's MultipleKernelRidgeCV.

Its alphas are 10^-3 to 10^3, n_iter is 20 and random_state 0.
"""


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


def test_weights_are_those_of_mklpy():
    X, y = load_breast_cancer(return_X_y=True)
    y = y[:300]
    rows = np.arange(300.0)[:, None]
    family = PrecomputedFamily(gaussian_matrices(standardized(X, 300)))

    def learned(learner: Any, **settings: str) -> LearnedKernel:
        return learn_kernel(rows, y, learner=learner, family=family, **settings)

    uncentered = learned("align-uncentered", normalize="none", centering="none")
    pairs = [
        (AVERAGE_MKL, learned("unif").shares),
        (EASY_MKL, learned(EasyMKL(tradeoff=0.1)).shares),
        (F_HEURISTIC, uncentered.shares),
        (CKA, learned("alignf-linear", normalize="none").weights),
    ]
    for theirs, ours in pairs:  # MKLpy has some numbers in single precision
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=5e-8)


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
    X, y = load_diabetes(return_X_y=True)
    X = standardized(X, 200)
    y = y[:200] - y[:200].mean()
    Y = np.column_stack([y, 50 * X[:, 2] * X[:, 8]])
    matrices = gaussian_matrices(X)
    of_one = predictions_of_sum(matrices[1:2], 0.5, y)
    np.testing.assert_allclose(of_one[::40], KERNEL_RIDGE, rtol=0, atol=5e-8)

    weights = np.array([0.2, 0.5, 0.3])
    of_weighted = predictions_of_sum(weights[:, None, None] * matrices, 1.0, y)
    np.testing.assert_allclose(
        of_weighted[::40], WEIGHTED_KERNEL_RIDGE, rtol=0, atol=5e-8
    )

    learned = np.exp(DELTAS)[:, :, None, None] * matrices[:, None]
    of_targets = [
        predictions_of_sum(learned[:, target], 1.0, Y[:, target])[::40]
        for target in range(2)
    ]
    np.testing.assert_allclose(
        np.column_stack(of_targets), MULTIPLE_KERNEL_RIDGE, rtol=0, atol=5e-8
    )
