"""
Probabilities and intervals
===========================

Are eighty of a hundred rows with a predicted probability of 0.8 in the class, and do
ninety of a hundred intervals with a coverage of 0.9 hold the target? Held-out
rows answer both.
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import KernelLearningClassifier, KernelLearningRegressor
from sklearn.calibration import CalibrationDisplay, calibration_curve
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

X, y = make_classification(
    6000, n_features=10, n_informative=5, class_sep=0.7, flip_y=0.1, random_state=0
)
X, X_test, y, y_test = train_test_split(X, y, train_size=1000, random_state=0)
models = {
    "learnkernels": KernelLearningClassifier(),
    "gradient boosting": HistGradientBoostingClassifier(random_state=0),
    "naive Bayes": GaussianNB(),
}
losses, gaps = {}, {}
for name, model in models.items():
    P = model.fit(X, y).predict_proba(X_test)[:, 1]
    share, mean = calibration_curve(y_test, P, n_bins=10, strategy="quantile")
    losses[name], gaps[name] = log_loss(y_test, P), np.abs(share - mean).mean()
    print(f"{name:<18} log loss {losses[name]:.3f}   mean gap {gaps[name]:.3f}")

# %%
# A calibrated model lies on the diagonal. The sigmoid is fitted on scores of rows that
# were left out, so it knows how sure the model may be of new ones.
fig, ax = plt.subplots()
for name, model in models.items():
    CalibrationDisplay.from_estimator(
        model, X_test, y_test, n_bins=10, strategy="quantile", name=name, ax=ax
    )

# %%
# Intervals come from leave-one-out residuals, for any coverage after one fit. They are
# wider for rows whose residuals are expected to be larger. Coverage holds on average,
# and in each region approximately.
X, y = make_friedman1(4500, n_features=10, noise=1.0, random_state=0)
model = KernelLearningRegressor().fit(X[:500], y[:500])
asked, covered = np.array([0.5, 0.8, 0.9, 0.95]), []
for coverage in asked:
    low, high = model.predict_interval(X[500:], alpha=1 - coverage).T
    covered.append(np.mean((low <= y[500:]) & (y[500:] <= high)))
    width = (high - low).mean()
    print(f"asked {coverage:.2f}   covered {covered[-1]:.3f}   mean width {width:.2f}")

plt.show()
