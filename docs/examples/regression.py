"""
A grid of bandwidths against one tuned bandwidth
================================================

Does learning a combination of seven bandwidths replace the search for one? Both ways
are tuned by an inner cross-validation and judged on the same outer folds.
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import GaussianFamily, KernelLearningRegressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

X, y = load_diabetes(return_X_y=True)
GAMMAS = [2.0**exponent for exponent in range(-8, -1)]
ALPHAS = np.logspace(-3, 1, 5)
OUTER, INNER = (
    KFold(5, shuffle=True, random_state=0),
    KFold(3, shuffle=True, random_state=1),
)

# %%
# The learned combination needs no search at all: its weights come from alignments, its
# ridge from leave-one-out residuals in closed form. One bandwidth wants 35
# combinations. ``KernelRidge`` has no intercept and gets a centered target.
learned = KernelLearningRegressor(family=GaussianFamily(GAMMAS), learner="alignf")
ridge = TransformedTargetRegressor(
    KernelRidge(kernel="rbf"), transformer=StandardScaler()
)
ways = {
    "learned bandwidths": make_pipeline(StandardScaler(), learned),
    "one tuned bandwidth": make_pipeline(
        StandardScaler(),
        GridSearchCV(
            ridge, {"regressor__alpha": ALPHAS, "regressor__gamma": GAMMAS}, cv=INNER
        ),
    ),
    "as they come": KernelLearningRegressor(),
    "linear": make_pipeline(StandardScaler(), RidgeCV(ALPHAS * 1000)),
}
errors = {
    name: -cross_val_score(way, X, y, cv=OUTER, scoring="neg_root_mean_squared_error")
    for name, way in ways.items()
}
for name, error in errors.items():
    print(f"{name:<20} {error.mean():.2f} +- {error.std():.2f}")

# %%
# The differences are a small part of what folds differ by: on these 442 patients a
# linear model does as well. What is saved is the search.
plt.boxplot(errors.values(), orientation="horizontal", tick_labels=list(errors))
plt.xlabel("root mean squared error of five folds (the target's deviation is 77)")
plt.tight_layout()

# %%
# What the learned kernel is made of, on all rows: few of the seven bandwidths carry
# weight.
kernel = ways["learned bandwidths"].fit(X, y)[-1].kernel_
for name, share in zip(kernel.family.names, kernel.shares, strict=True):
    print(f"{name:<24} {share:.2f}")

plt.show()
