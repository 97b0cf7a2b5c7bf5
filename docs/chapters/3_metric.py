r"""
3. Metric
=========

A Gaussian takes all directions of the data to be equally important. They are not, and
views that tell them apart are seldom known. This chapter learns a *metric*: how far a
step along each feature takes one, judged by how much the target changes along it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor

from learnkernels import GaussianFamily, KernelLearningRegressor

# %%
# Gradients tell
# --------------
# Fit a kernel ridge regression, and look at the gradient of what it predicts at every
# training row. Along features that do not matter it is nearly zero. The mean of the
# outer products of all gradients is the *average gradient outer product*:
#
# .. math:: G = \frac1m \sum_i \nabla f(x_i) \, \nabla f(x_i)^\top
#
# Its diagonal says how much each feature counts, its eigenvectors which combinations of
# them do. Here it is by hand, for a Gaussian of one bandwidth, on Friedman's function:
# features 0 to 4 matter, 5 to 9 are noise.
X, y = make_friedman1(500, n_features=10, noise=1.0, random_state=0)
X = (X - X.mean(axis=0)) / X.std(axis=0)
X, X_test, y, y_test = X[:250], X[250:], y[:250], y[250:]
gamma, ridge = 0.03, 0.1
K = np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2))
alpha = np.linalg.solve(K + ridge * np.eye(len(y)), y - y.mean())
gradients = np.array([-2 * gamma * (alpha * K[i]) @ (X[i] - X) for i in range(len(y))])
G = gradients.T @ gradients / len(y)
fig, axes = plt.subplots(1, 2, figsize=(8, 3.2))
axes[0].imshow(np.abs(G))
axes[0].set_title("average gradient outer product")
axes[1].bar(
    range(10), G.diagonal() / np.trace(G), color=["tab:red"] * 5 + ["tab:gray"] * 5
)
axes[1].set_title("its diagonal, shares of one")
axes[1].set_xlabel("feature; red ones matter")
fig.tight_layout()

# %%
# Measure, fit, measure again
# ---------------------------
# Distances in the metric :math:`(x - x')^\top G \, (x - x')` stretch what matters. A
# regression with them is better, so are its gradients, and a few rounds of this are
# *recursive feature machines*. The learner ``rfm`` does so with care: the gradient at a
# row is that of the regression without this row, in closed form, as a row flatters the
# metric that it shaped; Gaussians and Laplacians are combined; and two halves of the
# rows, each predicting the other, tell how many rounds and which kernels to use. It is
# what the estimators do when nothing is said.
model = KernelLearningRegressor().fit(X, y)
print(f"{model.learner_}: {model.learner_reason_}")
print("relevance:", model.kernel_.relevance.round(2))

# %%
# Beside kernels that take all features alike, and beside trees.
others = {
    "as it comes (rfm)": model,
    "Gaussians, alignf": KernelLearningRegressor(learner="alignf"),
    "Gaussians, equal weights": KernelLearningRegressor(
        family=GaussianFamily([2.0**e for e in range(-9, -3)]), learner="unif"
    ),
    "gradient boosting": HistGradientBoostingRegressor(random_state=0),
}
scores = {name: other.fit(X, y).score(X_test, y_test) for name, other in others.items()}
for name, score in scores.items():
    print(f"{name:<26} R2 {score:.3f}")

# %%
# When it does not help
# ---------------------
# Where all features matter alike, or rows are too few to tell, a metric has nothing to
# learn, and the choice by halves takes no round: the model falls back to kernels of
# standardized features. Below, the target depends on the length of the row alone.
rng = np.random.default_rng(0)
Z = rng.normal(size=(400, 6))
z = np.sqrt((Z**2).sum(axis=1)) + 0.1 * rng.normal(size=400)
alike = KernelLearningRegressor().fit(Z[:200], z[:200])
score_alike = alike.score(Z[200:], z[200:])
print(f"R2 {score_alike:.3f}; relevance {alike.kernel_.relevance.round(2)}")

# %%
# What relevance is not
# ---------------------
# Relevance says what the model uses, not what causes the target. Of two columns that
# say the same, each gets a part. And a metric comes from the target: within a
# cross-validation it must be learned anew in each fold, as the estimators do by
# themselves inside pipelines and searches. Details, and the other learners that find
# their own kernels: :doc:`/learners`.
#
# What to remember: *gradients of a fit say which directions matter*; *rfm measures with
# them and chooses by halves of the rows*; *nothing needs to be scaled before*. How the
# errors above would have to be measured to be believed is :doc:`the next chapter
# </guide/4_protocol>`.

plt.show()
