"""
Many rows
=========

Matrices of all pairs of rows end at some ten thousand. Beyond, weights are learned from
a sample, and the predictor takes landmarks. What does that cost in
accuracy?
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import GaussianFamily, KernelLearningRegressor
from learnkernels.kernels.predictors import Nystroem
from sklearn.datasets import make_friedman1
from sklearn.metrics import r2_score

ROWS = 20_000
X, y = make_friedman1(ROWS + 5_000, n_features=10, noise=1.0, random_state=0)
X, X_test, y, y_test = X[:ROWS], X[ROWS:], y[:ROWS], y[ROWS:]
X, X_test = X * np.sqrt(12), X_test * np.sqrt(12)  # a deviation of one
family = GaussianFamily([2.0**exponent for exponent in range(-7, -3)])

# %%
# The exact predictor on some of the rows, and landmarks on all of them: the more
# landmarks, the nearer to the predictor of all pairs. Weights are learned from a
# sample; ``sample="auto"`` would take 8,192 rows.
SIZES, SAMPLE = [ROWS // 20, ROWS // 10], ROWS // 4
found = {}
for size in SIZES:
    began = time.perf_counter()
    model = KernelLearningRegressor(
        family=family, learner="alignf", predictor="krr"
    ).fit(X[:size], y[:size])
    found[f"all pairs of {size:,} rows"] = (
        r2_score(y_test, model.predict(X_test)),
        time.perf_counter() - began,
    )
for landmarks in (100, 300, 1000):
    began = time.perf_counter()
    model = KernelLearningRegressor(
        family=family,
        learner="alignf",
        sample=SAMPLE,
        predictor=Nystroem(n_components=landmarks),
    ).fit(X, y)
    found[f"{landmarks} landmarks, {ROWS:,} rows"] = (
        r2_score(y_test, model.predict(X_test)),
        time.perf_counter() - began,
    )
for name, (score, seconds) in found.items():
    print(f"{name:<30} R2 {score:.3f}   {seconds:.1f} s")

# %%
# The weights came from a sample; the alignment is an unbiased estimate of that of all
# rows.
sampling = model.kernel_.sampling
print(f"alignment {model.alignment_:.3f}")
print(f"from {sampling.n_rows:,} of {sampling.of_rows:,} rows")
plt.barh(list(found)[::-1], [score for score, _ in found.values()][::-1])
plt.xlabel("R2 on 5,000 other rows")
plt.xlim(left=0.7)
plt.tight_layout()

plt.show()
