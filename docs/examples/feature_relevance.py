"""
Regression with relevance: which features matter?
=================================================

Three answers can be read off a fit: the learned metric of ``rfm``, the weights of one
kernel a feature, and bandwidths that ``ca`` finds, one a feature. Beside them stands
permutation importance, which costs many predictions. In Friedman's function features 0
to 4 matter and 5 to 9 are noise, so the answers can be checked.
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import FamilyUnion, GaussianFamily, KernelLearningRegressor
from learnkernels.kernels.learners import CA
from sklearn.datasets import make_friedman1
from sklearn.inspection import permutation_importance
from sklearn.model_selection import train_test_split

X, y = make_friedman1(500, n_features=10, noise=1.0, random_state=0)
X = (X - X.mean(axis=0)) / X.std(axis=0)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
names = [f"x{k}" for k in range(10)]

# %%
# A sum of kernels of one feature each is an additive model: it sees what a feature does
# alone. A metric, and bandwidths, see features that act together. The search of ``ca``
# ends where a kernel adds no more than a threshold to the alignment.
each = FamilyUnion(
    [GaussianFamily([0.5])] * 10, columns=[[k] for k in range(10)], views=names
)
models = {
    "metric": KernelLearningRegressor().fit(X, y),
    "weights": KernelLearningRegressor(family=each, learner="alignf").fit(X, y),
    "bandwidths": KernelLearningRegressor(
        learner=CA(per_feature=True, threshold=1e-4)
    ).fit(X, y),
}
bandwidths = models["bandwidths"].kernel_
found = bandwidths.shares @ (1 / bandwidths.parameters**2)
shuffled = permutation_importance(
    models["metric"], X_test, y_test, n_repeats=5, random_state=0
).importances_mean
relevance = {
    "metric": models["metric"].kernel_.relevance,
    "weights": models["weights"].kernel_.shares,
    "bandwidths": found / found.sum(),
    "metric, shuffled": np.maximum(shuffled, 0) / np.maximum(shuffled, 0).sum(),
}
scores = {name: model.score(X_test, y_test) for name, model in models.items()}
for name, score in scores.items():
    print(f"{name:<12} R2 on other rows: {score:.2f}")

# %%
# Every answer puts the five features that matter first. None is a proof: relevance says
# what a model uses, not what it missed, so look at R2 as well.
fig, axes = plt.subplots(1, 4, sharey=True, figsize=(9, 3))
for ax, (name, shares) in zip(axes, relevance.items(), strict=True):
    ax.barh(names[::-1], shares[::-1], color=["tab:gray"] * 5 + ["tab:red"] * 5)
    ax.set_title(name)
fig.supxlabel("relevance, shares of one; red features matter")
fig.tight_layout()

plt.show()
