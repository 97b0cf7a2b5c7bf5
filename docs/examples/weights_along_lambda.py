"""
Weights along C
===============

One-stage learners find weights and predictor together, again for each C. How do the
weights move from strong to weak regularization, with a norm that leaves few of them and
with one that keeps many?
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import GaussianFamily, gram_statistics
from learnkernels.kernels.learners import learn_path
from learnkernels.kernels.targets import Target
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

X, y = load_diabetes(return_X_y=True)
X = StandardScaler().fit_transform(X)
family = GaussianFamily([2.0**exponent for exponent in range(-8, 0)])
GRID = [2.0**exponent for exponent in range(-6, 9)]

# %%
# ``learn_path`` solves the grid from one end to the other, each problem from the
# weights of the one before, and says for each how far from the optimum it stopped.
statistics = gram_statistics(family, X, y)
paths = {
    name: learn_path(name, family, X, statistics, Target.of(y), GRID)
    for name in ("l1-krr", "l2-krr")
}
for name, kernels in paths.items():
    gap = max(kernel.certificate.residual for kernel in kernels)
    print(f"{name}: largest duality gap {gap:.1e}")

# %%
# Weak regularization wants narrow kernels, strong regularization wide ones; the norm of
# one passes from one bandwidth to the next, the norm of two keeps all.
fig, axes = plt.subplots(1, 2, sharey=True, figsize=(9, 3.6))
for ax, (name, kernels) in zip(axes, paths.items(), strict=True):
    shares = np.array([kernel.shares for kernel in kernels])
    ax.stackplot(GRID, shares.T, labels=family.names)
    ax.set_xscale("log", base=2)
    ax.set_title(name)
    ax.set_xlabel("C, one over the ridge")
axes[0].set_ylabel("weights, shares of one")
axes[1].legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
fig.tight_layout()

plt.show()
