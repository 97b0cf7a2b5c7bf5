"""
Regression with relevance: which features matter?
=================================================

``relevance_`` answers for every estimator: it is the increase of the error on held-out
training rows if a feature takes the values of other rows. ``interactions_`` names the
features that act together. In Friedman's function, features 0 to 4 matter, 0 and 1 act
together, and 5 to 9 are noise, so the answers can be checked.
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import (
    FamilyUnion,
    GaussianFamily,
    InteractionDisplay,
    KernelLearningRegressor,
)
from sklearn.datasets import make_friedman1
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance
from sklearn.model_selection import train_test_split

X, y = make_friedman1(500, n_features=10, noise=1.0, random_state=0)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
names = [f"x{k}" for k in range(10)]

# %%
# The first model learns a metric. The second one has a kernel of each feature, so that
# it is additive: it sees what a feature does alone. Its weights are importances, too.
each = FamilyUnion(
    [GaussianFamily([5.0])] * 10, columns=[[k] for k in range(10)], views=names
)
models = {
    "metric": KernelLearningRegressor().fit(X, y),
    "additive": KernelLearningRegressor(family=each, learner="alignf").fit(X, y),
}
scores = {name: model.score(X_test, y_test) for name, model in models.items()}
for name, score in scores.items():
    print(f"{name:<9} R2 on other rows: {score:.2f}")

# %%
# ``feature_importances_`` are the relevances as shares, in the order of the features.
# They need no further rows, and agree with the permutation importance on test rows.
# ``kernel_.relevance`` describes the metric: how fast the kernel falls along a feature.
# A fast fall alone does not change predictions.
shuffled = permutation_importance(
    models["metric"], X_test, y_test, n_repeats=5, random_state=0
).importances_mean
relevance = {
    "held-out rows": models["metric"].feature_importances_,
    "permutation": np.maximum(shuffled, 0) / np.maximum(shuffled, 0).sum(),
    "additive model": models["additive"].feature_importances_,
    "metric": models["metric"].kernel_.relevance,
    "weights": models["additive"].kernel_.shares,
}
fig, axes = plt.subplots(1, 5, sharey=True, figsize=(10, 3))
for ax, (name, shares) in zip(axes, relevance.items(), strict=True):
    ax.barh(names[::-1], shares[::-1], color=["tab:gray"] * 5 + ["tab:red"] * 5)
    ax.set_title(name)
fig.supxlabel("shares of one; red features matter")
fig.tight_layout()

# %%
# Relevance says what a model uses, not what it missed, so look at R2 as well. Two
# features with the same information share their relevance. scikit-learn's
# selectors read ``feature_importances_``.
selector = SelectFromModel(KernelLearningRegressor(), threshold=0.01).fit(X, y)
selected = np.array(names)[selector.get_support()]
print("selected:", *selected)

# %%
# An interaction is the part of predictions that is no sum of functions of one feature
# each: ``sin(pi x0 x1)`` is the only one here.
fig, ax = plt.subplots(figsize=(6, 3))
InteractionDisplay.from_estimator(models["metric"], largest=5, ax=ax)
fig.tight_layout()

plt.show()
