"""
Adding a learner
================

A learner that nobody has written yet: what does it take? One class with one method. It
is then used wherever a built-in one is: in searches, in configurations and on samples.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import GaussianFamily, KernelLearningClassifier, learn_kernel
from learnkernels.kernels.learners import AlignmentLearner, Solution
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler


# %%
# It is given the products ``M`` of the centered base kernels with each other and ``a``
# with the target. This one takes the few kernels that align best, in equal parts. Its
# fields are its parameters.
@dataclass(frozen=True, eq=False, repr=False)
class BestFew(AlignmentLearner):
    """Equal weights for the kernels that align best."""

    count: int = 2

    def fit_weights(self, M, a):
        alignments = a / np.sqrt(M.diagonal())
        weights = np.zeros(len(a))
        weights[np.argsort(-alignments)[: self.count]] = 1.0
        return Solution.of_direction(weights)


# %%
# Beside built-in learners, on the same base kernels.
X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
family = GaussianFamily([2.0**exponent for exponent in range(-10, 0)])
kernels = {
    "unif": learn_kernel(X, y, learner="unif", family=family),
    "BestFew(3)": learn_kernel(X, y, learner=BestFew(count=3), family=family),
    "alignf": learn_kernel(X, y, learner="alignf", family=family),
}
for name, kernel in kernels.items():
    print(f"{name:<12} alignment {kernel.alignment:.4f}")

# %%
# A search reaches its parameter by name.
search = GridSearchCV(
    KernelLearningClassifier(family=family, learner=BestFew(), C=10.0),
    {"learner__count": [1, 2, 3, 5]},
    cv=3,
)
search.fit(X, y)
print(f"chosen: {search.best_params_}, error {1 - search.best_score_:.3f}")

fig, ax = plt.subplots()
for position, (name, kernel) in enumerate(kernels.items()):
    ax.bar(np.arange(10) + 0.27 * (position - 1), kernel.shares, width=0.27, label=name)
ax.set_xticks(range(10), family.names, rotation=60)
ax.set_ylabel("weight, shares of one")
ax.legend()
fig.tight_layout()

plt.show()
