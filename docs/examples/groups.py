"""
Rows that belong together
=========================

Thirty patients, twenty visits each. How well will the model do on a new patient? Folds
that divide a patient's visits between training and test tell how well it recognizes
patients it knows.
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import KernelLearningClassifier
from sklearn.model_selection import GroupKFold, KFold, cross_val_score

# %%
# Every patient has habits of her own, in six measurements, and an outcome that belongs
# to her more than to the visit.
rng = np.random.default_rng(0)
patient = np.repeat(np.arange(30), 20)
X = rng.normal(size=(30, 6))[patient] + 0.3 * rng.normal(size=(600, 6))
leaning = rng.normal(size=30)
outcome = leaning[patient] + 0.7 * X[:, 0] + 0.3 * rng.normal(size=600) > 0

# %%
# The same model, the same rows, two ways of dividing them.
model = KernelLearningClassifier(learner="alignf")
folds = {
    "any rows": KFold(5, shuffle=True, random_state=0).split(X),
    "whole patients": GroupKFold(5).split(X, groups=patient),
}
errors = {
    name: 1 - cross_val_score(model, X, outcome, cv=fold)
    for name, fold in folds.items()
}
guess = min(outcome.mean(), 1 - outcome.mean())
for name, error in errors.items():
    print(f"{name:<16} {error.mean():.3f} +- {error.std():.3f}")
print(f"most frequent class: {guess:.3f}")

# %%
# In a configuration it is one key, ``groups: patient``, and on the command line
# ``--group patient``; folds, splits and the choice of the regularization then keep
# patients whole. In Python, ``model.fit(X, outcome, groups=patient)`` does the same for
# the choices within one fit.
plt.boxplot(errors.values(), tick_labels=list(errors))
plt.axhline(guess, color="gray", linestyle="--", label="most frequent class")
plt.ylabel("error")
plt.legend()

plt.show()
