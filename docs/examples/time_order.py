"""
Rows in time
============

The demand for electricity follows the hour and the weather, and it grows. How large is
the error on days to come? Folds that mix past and future interpolate between
neighboring hours, which nobody can do tomorrow.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from learnkernels import KernelLearningRegressor
from sklearn.model_selection import KFold, TimeSeriesSplit, cross_val_score

# %%
# A date column becomes days, and the place in the year, the week and the day, as far as
# rows differ there.
rng = np.random.default_rng(0)
hours = pd.date_range("2024-01-01", periods=600, freq="3h")
t = np.arange(600)
warmth = 10 + 8 * np.sin(2 * np.pi * t / 2920) + np.cumsum(rng.normal(size=600)) / 5
demand = (
    50
    + 10 * np.cos(2 * np.pi * (t % 8 - 5) / 8)
    - 0.8 * warmth
    + 0.03 * t
    + 2 * rng.normal(size=600)
)
table = pd.DataFrame({"hour": hours, "warmth": warmth})

# %%
# The same model, by mixed folds and by the order of time.
model = KernelLearningRegressor(learner="alignf")
ways = {
    "mixed": KFold(5, shuffle=True, random_state=0),
    "later rows test": TimeSeriesSplit(5),
}
errors = {
    name: -cross_val_score(
        model, table, demand, cv=way, scoring="neg_root_mean_squared_error"
    )
    for name, way in ways.items()
}
for name, error in errors.items():
    print(
        f"{name:<16} RMSE {error.mean():.2f}; folds {error.round(2)}; the noise has 2"
    )

# %%
# A kernel machine falls back to the mean where it has seen nothing: it does not carry a
# trend on. A linear kernel beside Gaussians, or the growth taken out before, mends
# that. In a configuration ``time: hour`` divides rows so, and ``--time hour`` on the
# command line.
train, test = slice(0, 480), slice(480, 600)
model.fit(table[train], demand[train])
plt.plot(hours[400:], demand[400:], ".", color="gray", label="measured")
plt.plot(
    hours[test], model.predict(table[test]), label="predicted from the rows before"
)
plt.axvline(hours[480], color="black", linewidth=0.8)
plt.ylabel("demand")
plt.xticks(rotation=30)
plt.legend()
plt.tight_layout()

plt.show()
