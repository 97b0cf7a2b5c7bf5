"""More rows do not make predictions worse."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_friedman1

from learnkernels import KernelLearningRegressor

ROUNDING = 1.01
"""Ratio of errors that two drawings of 4,000 test rows cannot tell apart."""


def test_conjugate_gradients_are_as_good_as_the_exact_solution_and_not_worse_on_more_rows():
    X, y = make_friedman1(20_000, n_features=10, noise=0.2, random_state=0)
    settings = [("auto", 4_000), ("krr-cg", 4_000), ("auto", 16_000)]
    models = [
        KernelLearningRegressor(learner="rfm", predictor=predictor).fit(X[:m], y[:m])
        for predictor, m in settings
    ]
    assert [model.predictor_ for model in models] == ["krr", "krr-cg", "krr-cg"]
    exact, few, many = (
        np.sqrt(np.mean((model.predict(X[16_000:]) - y[16_000:]) ** 2))
        for model in models
    )
    assert exact / ROUNDING < few < ROUNDING * exact
    assert many < ROUNDING * exact
