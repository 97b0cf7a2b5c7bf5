"""
Alignment against error
=======================

Is a kernel that aligns better with the target one that predicts better? Alignment is
measured on the training rows, without a predictor; the error on other rows, with one.
If the two agree, kernels may be chosen by what is cheap.
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import (
    GaussianFamily,
    KernelLearningClassifier,
    LaplacianFamily,
    PolynomialFamily,
    center_gram,
    gram_statistics,
)
from scipy.stats import spearmanr
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

X, y = load_breast_cancer(return_X_y=True)
X, X_test, y, y_test = train_test_split(
    StandardScaler().fit_transform(X), y, test_size=0.5, random_state=0
)

# %%
# Twenty base kernels of three families. ``gram_statistics`` computes all alignments in
# one pass over pairs of rows.
families = {
    "gaussian": GaussianFamily([2.0**exponent for exponent in range(-10, 1)]),
    "laplacian": LaplacianFamily([2.0**exponent for exponent in range(-8, -1)]),
    "polynomial": PolynomialFamily([2, 3]),
}
points = {}
for name, family in families.items():
    alignments = gram_statistics(family, X, y).alignments
    errors = []
    for k in range(family.n_kernels):
        one = family.subset([k])
        scale = center_gram(one.tile(X, X)[0]).trace() / len(X)
        machine = SVC(kernel="precomputed", C=1.0 / scale).fit(one.tile(X, X)[0], y)
        errors.append(1 - machine.score(one.tile(X_test, X)[0], y_test))
    points[name] = alignments, np.array(errors)

# %%
# The combination that ``alignf`` learns, at the same C.
learned = KernelLearningClassifier(
    family=families["gaussian"], learner="alignf", C=1.0
).fit(X, y)
learned_error = 1 - learned.score(X_test, y_test)
for name, (alignments, errors) in points.items():
    plt.scatter(alignments, errors, label=name)
plt.scatter(
    learned.alignment_,
    learned_error,
    marker="*",
    s=150,
    color="black",
    label="alignf over Gaussians",
)
plt.xlabel("centered alignment on the training rows")
plt.ylabel("error on other rows")
plt.legend()

# %%
# The ranks agree, negatively as they should; among the best few kernels alignment no
# longer tells who is ahead, as one row more or less is an error of 0.004.
alignments, errors = map(np.concatenate, zip(*points.values(), strict=True))
rank = spearmanr(alignments, errors).statistic
print(f"rank correlation of alignment and error: {rank:.2f}")
print(f"alignf: alignment {learned.alignment_:.3f}, error {learned_error:.3f}")
print(f"best single kernel: error {errors.min():.3f}")

plt.show()
