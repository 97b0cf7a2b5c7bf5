"""
A table as it comes
===================

Who will leave? A table of customers has numbers, categories, dates and gaps. The
classifier takes the DataFrame as it is, says what it took each column for, and how much
each of them counts.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from learnkernels import KernelLearningClassifier, RelevanceDisplay
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

# %%
# Customers, drawn at random: who pays by the month and calls often leaves, who has
# stayed long stays on.
rng = np.random.default_rng(0)
n = 800
table = pd.DataFrame(
    {
        "contract": rng.choice(["month", "year", "two years"], n, p=[0.5, 0.3, 0.2]),
        "region": rng.choice(["north", "south", "east", "west"], n),
        "since": pd.Timestamp("2025-01-01")
        - pd.to_timedelta(rng.integers(0, 2000, n), "D"),
        "calls": rng.poisson(2, n).astype(float),
        "spent": rng.gamma(3.0, 20.0, n),
    }
)
days = (pd.Timestamp("2025-01-01") - table["since"]).dt.days
leaning = (
    1.6 * (table["contract"] == "month")
    + 0.8 * (table["calls"] - 2)
    - days / 600
    + 0.5 * rng.normal(size=n)
)
churn = np.where(leaning > 0, "leaves", "stays")
table.loc[rng.random(n) < 0.1, "spent"] = np.nan
table.loc[rng.random(n) < 0.05, "region"] = None
table.head()

# %%
# Nothing is encoded, filled or scaled by hand.
train, test, y_train, y_test = train_test_split(table, churn, random_state=0)
model = KernelLearningClassifier().fit(train, y_train)
print("\n".join(model.table_.describe()))

# %%
# Gradient boosting needs its columns as numbers or categories; it stands beside as a
# yardstick.
boosting = HistGradientBoostingClassifier(categorical_features=[0, 1], random_state=0)
coded = table.assign(
    contract=table["contract"].astype("category").cat.codes,
    region=table["region"].astype("category").cat.codes,
    since=days,
)
coded_train, coded_test = coded.loc[train.index], coded.loc[test.index]
errors = {
    "learnkernels": 1 - model.score(test, y_test),
    "gradient boosting": 1
    - boosting.fit(coded_train, y_train).score(coded_test, y_test),
    "most frequent class": 1
    - max(np.mean(y_test == label) for label in model.classes_),
}
for name, error in errors.items():
    print(f"{name:<20} {error:.3f}")
print(f"one standard error of such a share: {np.sqrt(0.15 * 0.85 / len(y_test)):.3f}")

# %%
# What counts: how much the error on held-out rows rises without each column's values.
fig, ax = plt.subplots(figsize=(6, 3))
RelevanceDisplay.from_estimator(model, ax=ax)
fig.tight_layout()

plt.show()
