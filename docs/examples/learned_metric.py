"""
What a learned metric sees
==========================

Which steps change the target? Of ten features, the target follows one slanted direction
of two of them. A Gaussian measures all directions alike; a metric learned from
gradients stretches the one that matters.
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import KernelLearningRegressor
from learnkernels.kernels.learners import RFM
from sklearn.metrics import r2_score

rng = np.random.default_rng(0)
X = rng.normal(size=(500, 10))
y = np.sin(2.5 * (X[:, 0] + X[:, 1]) / np.sqrt(2)) + 0.1 * rng.normal(size=500)
train, test = slice(0, 250), slice(250, 500)

# %%
# ``metric="diagonal"`` weights features, and ``"full"`` also rotates them. By default,
# there are kernels in both.
ways = {
    "Gaussians, alignf": KernelLearningRegressor(learner="alignf"),
    "weighed features": KernelLearningRegressor(learner=RFM(metric="diagonal")),
    "turned features": KernelLearningRegressor(learner=RFM(metric="full")),
    "as it comes": KernelLearningRegressor(),
}
scores = {
    name: r2_score(y[test], way.fit(X[train], y[train]).predict(X[test]))
    for name, way in ways.items()
}
for name, score in scores.items():
    print(f"{name:<18} R2 {score:.2f}")

# %%
# The kernel between the origin and points of the plane of the first two features: how
# alike the model takes them to be.
side = np.linspace(-2, 2, 41)
plane = np.zeros((side.size**2, 10))
plane[:, :2] = np.array(np.meshgrid(side, side)).reshape(2, -1).T
fig, axes = plt.subplots(1, 2, figsize=(8, 3.6))
for ax, name in zip(axes, ("Gaussians, alignf", "turned features"), strict=True):
    family, weights = ways[name].family_, ways[name].weights_
    values = np.tensordot(weights, family.tile(np.zeros((1, 10)), plane), axes=1)
    ax.contourf(side, side, values.reshape(side.size, side.size), 12)
    ax.set_title(f"{name}: likeness to the origin")
    ax.set_xlabel("feature 0")
axes[0].set_ylabel("feature 1")
fig.tight_layout()

plt.show()
