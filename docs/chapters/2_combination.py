r"""
2. Combination
==============

Which kernel? A mixture of several, with weights that are learned. This chapter finds
the mixture of highest alignment, tells the learners apart, and shows what a combination
of views can do that no single bandwidth can.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from learnkernels import (
    FamilyUnion,
    GaussianFamily,
    KernelLearningClassifier,
    gram_statistics,
    learn_kernel,
)
from learnkernels.kernels.learners import LEARNERS

# %%
# All the statistics there are
# ----------------------------
# The alignment of a mixture :math:`K_\mu = \sum_k \mu_k K_k` depends on two things
# only: the products of the base kernels with each other, a matrix :math:`M_{kl} =
# \langle K_{kc}, K_{lc} \rangle_F`, and with the target, a vector :math:`a_k = \langle
# K_{kc}, Y Y^\top \rangle_F`:
#
# .. math:: \rho(K_\mu, Y Y^\top) \propto \frac{\mu^\top a}{\sqrt{\mu^\top M \mu}}
#
# So once M and a are known, the rows are needed no more, and every learner of
# alignments is a small problem in p numbers.
X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
family = GaussianFamily([2.0**exponent for exponent in range(-10, 0)])
statistics = gram_statistics(family, X, y)
M, a = statistics.products(), statistics.target_products()
cosines = M / np.sqrt(np.outer(M.diagonal(), M.diagonal()))
fig, ax = plt.subplots(figsize=(4.5, 3.6))
shown = ax.imshow(cosines, vmin=0, vmax=1)
ax.set_xticks(range(10), [f"2^{e}" for e in range(-10, 0)], rotation=60)
ax.set_title("how alike ten bandwidths are")
fig.colorbar(shown)
fig.tight_layout()

# %%
# Neighboring bandwidths are nearly the same kernel. Whoever weighs each by its own
# alignment counts them twice.
#
# Four learners
# -------------
# ``unif`` takes all alike, ``single`` the best one, ``align`` each by its own
# alignment, and ``alignf`` solves for the mixture of highest alignment with weights
# that are not negative, a quadratic program of p numbers.
kernels = {
    name: learn_kernel(X, y, learner=name, family=family)
    for name in ("unif", "single", "align", "alignf")
}
fig, ax = plt.subplots(figsize=(8, 3.2))
for position, (name, kernel) in enumerate(kernels.items()):
    ax.bar(np.arange(10) + 0.2 * (position - 1.5), kernel.shares, width=0.2, label=name)
    print(f"{name:<8} alignment {kernel.alignment:.4f}")
ax.set_xticks(range(10), [f"2^{e}" for e in range(-10, 0)])
ax.set_ylabel("weights, shares of one")
ax.legend()
fig.tight_layout()

# %%
# By construction ``alignf`` has the highest alignment of these rows. Every learner that
# solves a problem says how far from the optimum it stopped: its *certificate*.
print(kernels["alignf"].certificate)

# %%
# When it pays
# ------------
# Mixtures of bandwidths on one set of columns gain little over the best single one;
# what is saved is the search for it. Views gain: rows are described in ways that differ
# in scale and in worth. Below, five columns decide and 45 are noise.
rng = np.random.default_rng(0)
Z = rng.normal(size=(600, 50))
z = np.sign(Z[:, 0] * Z[:, 1] + Z[:, 2] ** 2 - 1 + 0.3 * rng.normal(size=600))
train, test = slice(0, 300), slice(300, 600)
views = [range(5 * k, 5 * k + 5) for k in range(10)]
each = FamilyUnion(
    [GaussianFamily([0.05, 0.2])] * 10,
    columns=views,
    views=[f"view {k}" for k in range(10)],
)
ways = {
    "one grid over all columns": KernelLearningClassifier(
        family=GaussianFamily([2.0**e for e in range(-9, -3)]), learner="alignf"
    ),
    "ten views, equal weights": KernelLearningClassifier(family=each, learner="unif"),
    "ten views, alignf": KernelLearningClassifier(family=each, learner="alignf"),
}
errors = {
    name: 1 - way.fit(Z[train], z[train]).score(Z[test], z[test])
    for name, way in ways.items()
}
for name, error in errors.items():
    print(f"{name:<26} error {error:.3f}")
shares = ways["ten views, alignf"].kernel_.view_shares
print(f"view 0, which decides, has {shares['view 0']:.2f} of the learned kernel")

# %%
# One stage or two
# ----------------
# ``alignf`` is a *two-stage* learner: weights from alignments, then any predictor.
# *One-stage* learners, such as ``l1-krr`` and ``lp-svm``, minimize the objective of
# their predictor over weights and predictor together, for each regularization.
# They take longer, know the loss, and with a norm of one leave few kernels.
# :doc:`/choose` says when to take which, and ``learnkernels learners`` lists them:
for name, learner in LEARNERS.items():
    print(f"{name:<20} {learner.summary}")

# %%
# What to remember: *M and a are all that alignment needs*; *alignf is the best mixture
# by alignment, with a certificate*; *mixtures earn most where views differ*. What if
# nobody knows the views? :doc:`The next chapter </guide/3_metric>` learns them.

plt.show()
