"""
Wide data: many genes, few patients
===================================

Which of 2,000 genes matter, when there are 120 patients? Every gene is a base kernel of
its own. A norm of one on the weights leaves few of them, a norm of two keeps many;
which is better depends on how many genes act.
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import FeatureFamily, KernelLearningRegressor
from sklearn.linear_model import LassoCV, RidgeCV
from sklearn.metrics import r2_score

# %%
# Expression levels in modules of genes that go up and down together. In the first
# problem four genes act, in the second the 200 genes of ten modules, a little each.
rng = np.random.default_rng(0)
n, p = 120, 2000
modules = rng.normal(size=(2 * n, 100))
X = 0.4 * np.repeat(modules, p // 100, axis=1) + rng.normal(size=(2 * n, p))
effects = {"four genes act": np.zeros(p), "200 genes act": np.zeros(p)}
effects["four genes act"][[10, 410, 810, 1210]] = 1.0, -1.0, 0.8, 0.8
effects["200 genes act"][:200] = np.repeat(rng.choice([-1, 1], 10), 20) / 10

# %%
# Learners that weigh all genes at once, beside the usual linear ones; R2 on 120 other
# patients.
ways = {
    "l1-krr": KernelLearningRegressor(
        family=FeatureFamily(p), learner="l1-krr", alpha=0.1
    ),
    "l2-krr": KernelLearningRegressor(
        family=FeatureFamily(p), learner="l2-krr", alpha=0.1
    ),
    "align": KernelLearningRegressor(family=FeatureFamily(p), learner="align"),
    "equal weights": KernelLearningRegressor(family=FeatureFamily(p), learner="unif"),
    "lasso": LassoCV(cv=3, alphas=15),
    "ridge": RidgeCV(np.logspace(0, 5, 11)),
}
scores, kernels = {}, {}
for problem, effect in effects.items():
    y = X @ effect + 0.5 * rng.normal(size=2 * n)
    for name, way in ways.items():
        way.fit(X[:n], y[:n])
        scores[problem, name] = r2_score(y[n:], way.predict(X[n:]))
        kernels[problem, name] = getattr(way, "kernel_", None)
for name in ways:
    print(
        f"{name:<14} "
        + "   ".join(f"{problem}: {scores[problem, name]:5.2f}" for problem in effects)
    )

# %%
# The weights of the first problem. Of genes of one module any may stand for the others,
# so that a list of genes found is no list of causes.
fig, axes = plt.subplots(2, 1, sharex=True, figsize=(7, 4))
for ax, name in zip(axes, ("l1-krr", "align"), strict=True):
    shares = kernels["four genes act", name].shares
    ax.stem(shares, markerfmt=" ", basefmt=" ")
    ax.plot(np.flatnonzero(effects["four genes act"]), [-0.01] * 4, "r^")
    ax.set_title(f"{name}: {np.count_nonzero(shares)} genes have weight")
axes[1].set_xlabel("gene; triangles mark those that act")
fig.tight_layout()

plt.show()
