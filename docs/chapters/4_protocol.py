r"""
4. Protocol
===========

An error of 0.032 is below one of 0.035. Is the model better? This chapter shows three
ways to fool oneself, and the protocol of comparisons that avoids them: which rows
learn, which choose, which test, and which test decides.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import KFold, RepeatedStratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from learnkernels import FeatureFamily, KernelLearningClassifier
from learnkernels.tasks.measure.t_tests import corrected_p, paired_p

# %%
# Rows that learn, choose, and test
# ---------------------------------
# In a comparison five folds take turns. In each trial three folds *train*: weights and
# predictor see them alone. One *validates*: it chooses the regularization, and
# parameters that are tuned. One *tests*, and has chosen nothing.
roles = np.array(
    [
        [
            "test" if k == t else "validate" if k == (t + 1) % 5 else "train"
            for k in range(5)
        ]
        for t in range(5)
    ]
)
colors = {"train": 0.85, "validate": 0.5, "test": 0.15}
fig, ax = plt.subplots(figsize=(5, 2.6))
ax.imshow(
    [[colors[role] for role in row] for row in roles],
    cmap="gray",
    vmin=0,
    vmax=1,
    aspect="auto",
)
for t, k in np.ndindex(5, 5):
    ax.text(
        k,
        t,
        roles[t, k],
        ha="center",
        va="center",
        color="white" if colors[roles[t, k]] < 0.6 else "black",
    )
ax.set_xlabel("fold")
ax.set_ylabel("trial")
fig.tight_layout()

# %%
# The first way to fool oneself: choose on the rows that test
# ------------------------------------------------------------
# 60 rows of 500 columns of noise, and a target of coin flips: nobody can have an error
# other than 0.5. Who first takes the ten columns that align best with the target, *on
# all rows*, and then cross-validates, seems to. Weights that are learned fold by fold
# see training rows alone, and tell the truth.
rng = np.random.default_rng(0)
X, coin = rng.normal(size=(60, 500)), rng.integers(0, 2, 60)
folds = KFold(5, shuffle=True, random_state=0)
correlation = np.abs((X - X.mean(axis=0)).T @ (coin - coin.mean()))
chosen_before = X[:, np.argsort(-correlation)[:10]]
inside = KernelLearningClassifier(family=FeatureFamily(500), learner="alignf")
fooled = 1 - cross_val_score(
    make_pipeline(StandardScaler(), SVC(kernel="linear")), chosen_before, coin, cv=folds
)
honest = 1 - cross_val_score(inside, X, coin, cv=folds)
print(f"columns chosen on all rows:     error {fooled.mean():.2f}")
print(f"weights learned in each fold:   error {honest.mean():.2f}")

# %%
# The second: count folds as if they were independent
# ----------------------------------------------------
# Two models with the same mean error are compared on ten folds. The folds' differences
# scatter less than those of fresh data would, as folds share most training rows. The
# uncorrected paired t-test ignores this and calls far too many differences significant;
# the *corrected resampled t-test* widens the variance by the share of test rows. Here,
# two SVMs that differ in C alone.
X, y = load_breast_cancer(return_X_y=True)
repeated = RepeatedStratifiedKFold(n_splits=5, n_repeats=4, random_state=0)
errors = {
    C: 1
    - cross_val_score(
        make_pipeline(StandardScaler(), SVC(C=C, gamma=0.02)), X, y, cv=repeated
    )
    for C in (1.0, 3.0)
}
better, worse = sorted(errors, key=lambda C: errors[C].mean())
p_uncorrected = paired_p(errors[better], errors[worse])
p_corrected = corrected_p(errors[better], errors[worse], test_share=0.25)
for C in (better, worse):
    print(f"C = {C:g}: {errors[C].mean():.4f}")
print(f"uncorrected p = {p_uncorrected:.3f}, corrected p = {p_corrected:.3f}")

# %%
# ``compare`` reports the corrected p; a difference is significant below 0.1, two-sided.
# The uncorrected p is in ``summary.parquet``.
#
# The third: forget what the rows have in common
# -----------------------------------------------
# Visits of one patient, hours of one day: rows that belong together must not be divided
# between training and test, and rows to come must not teach those before. ``groups:
# patient`` and ``time: day`` in a configuration see to it (:doc:`/gallery/groups`,
# :doc:`/gallery/time_order`); with scikit-learn it is ``GroupKFold`` and
# ``TimeSeriesSplit``.
#
# The same protocol, as a file
# ----------------------------
# .. code-block:: yaml
#
#    # protocol.yaml
#    name: protocol
#    datasets: wine
#    kernels: {family: gaussian, gammas: {from: -9, to: -3}}
#    learners: [unif, alignf]
#    baseline: {}                       # beside what one would use otherwise
#    protocol: {folds: 5, repeats: 2, metric: balanced_accuracy}
#
# ``learnkernels compare protocol.yaml`` runs it: every trial's error, alignment and
# weights go to a table on disk and to MLflow, with the verdict in words. A run that is
# stopped goes on from what it had. :doc:`/configurations` has all keys.
#
# What to remember: *what chooses must not test*; *folds share rows, and the test must
# know it*; *divide rows as the future will*. :doc:`The last chapter
# </guide/5_many_rows>` is about size.

plt.show()
