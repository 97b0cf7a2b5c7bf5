"""More rows do not make predictions worse."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_friedman1

from learnkernels import KernelLearningRegressor

ROUNDING = 1.01
"""Ratio of errors that two drawings of 4,000 test rows cannot tell apart."""


def test_conjugate_gradients_on_many_rows_are_not_worse_than_the_exact_solution_on_few():
    X, y = make_friedman1(20_000, n_features=10, noise=0.2, random_state=0)
    models = [
        KernelLearningRegressor(learner="rfm").fit(X[:m], y[:m])
        for m in (4_000, 16_000)
    ]
    assert [model.predictor_ for model in models] == ["krr", "krr-cg"]
    few, many = (
        np.sqrt(np.mean((model.predict(X[16_000:]) - y[16_000:]) ** 2))
        for model in models
    )
    assert many < ROUNDING * few
