"""
Sensors: one kernel a channel
=============================

A machine is watched by four sensors. Which of them tell whether a bearing is worn, and
is it their level or their spectrum? Each channel and each way of looking at it is a
view with kernels of its own.
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import FamilyUnion, GaussianFamily, KernelLearningClassifier
from sklearn.model_selection import cross_val_score

# %%
# 240 recordings of 128 samples. Worn bearings add a faint tone of unknown phase to the
# vibration, and a little heat; the current drifts, and the microphone hears the hall.
rng = np.random.default_rng(0)
n, length = 240, 128
worn = np.arange(n) % 2
t, phase = np.arange(length), rng.uniform(0, 2 * np.pi, (n, 1))
recordings = {
    "vibration": rng.normal(size=(n, length))
    + 0.6 * worn[:, None] * np.sin(2 * np.pi * 0.2 * t + phase),
    "heat": 0.3 * rng.normal(size=(n, length))
    + rng.normal(size=(n, 1))
    + 0.8 * worn[:, None],
    "current": np.cumsum(rng.normal(size=(n, length)), axis=1) / 8,
    "microphone": rng.normal(size=(n, length)),
}

# %%
# Two views of each: mean and spread, and the spectrum, which knows no phase. Columns
# are in units of their own deviation.
views = {}
for name, signal in recordings.items():
    views[f"{name}: level"] = np.column_stack([signal.mean(axis=1), signal.std(axis=1)])
    views[f"{name}: spectrum"] = np.log(
        np.abs(np.fft.rfft(signal - signal.mean(axis=1, keepdims=True))[:, 1:])
    )
X = np.concatenate(
    [(view - view.mean(axis=0)) / view.std(axis=0) for view in views.values()], axis=1
)
ends = np.cumsum([view.shape[1] for view in views.values()])
columns = [
    range(end - view.shape[1], end)
    for end, view in zip(ends, views.values(), strict=True)
]

# %%
# One set of bandwidths for all columns, or for each view, with equal weights or learned
# ones.
gaussians = [
    GaussianFamily([scale / len(span) for scale in (0.125, 0.5)]) for span in columns
]
each = FamilyUnion(gaussians, columns=columns, views=list(views))
ways = {
    "all columns in one": KernelLearningClassifier(
        family=GaussianFamily([2.0**e for e in (-11, -9, -7)]), learner="alignf"
    ),
    "views, equal weights": KernelLearningClassifier(family=each, learner="unif"),
    "views, learned weights": KernelLearningClassifier(family=each, learner="alignf"),
}
errors = {name: 1 - cross_val_score(way, X, worn, cv=5) for name, way in ways.items()}
for name, error in errors.items():
    print(f"{name:<24} {error.mean():.3f} +- {error.std():.3f}")

# %%
# What was learned: the vibration, most of all its spectrum, and the level of the heat.
# The other sensors have nothing.
shares = ways["views, learned weights"].fit(X, worn).kernel_.view_shares
plt.barh(list(shares)[::-1], list(shares.values())[::-1])
plt.xlabel("share of the learned kernel")
plt.tight_layout()

plt.show()
