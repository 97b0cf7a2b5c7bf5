"""
Views of one data set
=====================

Which view of the data carries the weight, and is it worth telling views apart? Every
row of the breast cancer data describes the cell nuclei of one image by ten quantities,
and each quantity by three numbers: the mean over the nuclei, the standard error of that
mean, and the mean of the three worst. These are three views of the same image.
"""

import matplotlib.pyplot as plt
from learnkernels import FamilyUnion, GaussianFamily, KernelLearningClassifier
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

X, y = load_breast_cancer(return_X_y=True)
VIEWS = {"mean": range(0, 10), "standard error": range(10, 20), "worst": range(20, 30)}
GAUSSIANS = GaussianFamily([2.0**exponent for exponent in (-9, -7, -5, -3)])

# %%
# One view alone, all columns in one, or kernels of each view, which ``alignf`` weighs.
# C may be the same for all, as every learned kernel has a mean diagonal of one.
families = {
    f"view '{name}' alone": FamilyUnion([GAUSSIANS], columns=[view])
    for name, view in VIEWS.items()
}
families["all columns in one"] = GAUSSIANS
families["three views"] = FamilyUnion(
    [GAUSSIANS] * 3, columns=list(VIEWS.values()), views=list(VIEWS)
)
models = {
    name: make_pipeline(
        StandardScaler(),
        KernelLearningClassifier(family=family, learner="alignf", C=10.0),
    )
    for name, family in families.items()
}
folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=0)
errors = {
    name: 1 - cross_val_score(model, X, y, cv=folds) for name, model in models.items()
}
for name, error in errors.items():
    print(f"{name:<30} {error.mean():.3f} +- {error.std():.3f}")

# %%
# What each view has of the learned kernel. The standard errors tell least alone and
# weigh least; telling views apart changes the error by less than folds differ, and says
# where the information is.
kernel = models["three views"].fit(X, y)[-1].kernel_
shares = kernel.view_shares
plt.bar(shares.keys(), shares.values())
plt.ylabel("share of the learned kernel")

plt.show()
