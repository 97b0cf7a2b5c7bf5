"""
One prediction explained: which column made it?
===============================================

``relevance_`` says which columns a model uses at all. ``explain`` says what each of
them did to a single prediction, in the unit of the target. Rents that are computed by a
rule show whether the answer is right.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from learnkernels import ExplanationDisplay, KernelLearningRegressor

rng = np.random.default_rng(0)
ROWS = 600
flats = pd.DataFrame(
    {
        "area": rng.uniform(20, 120, ROWS),
        "district": rng.choice(["center", "harbor", "hills"], ROWS),
        "listed": pd.Timestamp("2024-01-01")
        + pd.to_timedelta(rng.integers(0, 720, ROWS), unit="D"),
        "floor": rng.integers(0, 8, ROWS),
        "doors": rng.integers(2, 9, ROWS),
    }
)
rent_per_area = flats["district"].map({"center": 16.0, "harbor": 12.0, "hills": 11.0})
season = np.cos(2 * np.pi * flats["listed"].dt.day_of_year / 365)
rents = rent_per_area * flats["area"] + 60 * season + 10 * flats["floor"]
rents += rng.normal(scale=20, size=ROWS)
model = KernelLearningRegressor().fit(flats[:400], rents[:400])
print(f"R2 on other rows: {model.score(flats[400:], rents[400:]):.3f}")

# %%
# A category and a date are one column each. The base value is the mean prediction for
# 50 background rows, and it and the contributions add up to the prediction.
flat = flats[400:401]
explanation = model.explain(flat)
print(flat.to_string(index=False))
print(f"base value {explanation.base_values[0]:.0f}")
pairs = zip(explanation.columns, explanation.contributions[0], strict=True)
for column, contribution in pairs:
    print(f"{column:>10} {contribution:+.0f}")
print(f"prediction {explanation.predictions[0]:.0f}")
bars = ExplanationDisplay(explanation).plot()

# %%
# Lines are standard errors: how far a contribution may change with other background
# rows and other orders of the columns. More background rows make them shorter.
more = model.explain(flat, background=200)
for name, answer in {"50 rows": explanation, "200 rows": more}.items():
    errors = ", ".join(f"{error:.1f}" for error in answer.standard_errors[0])
    print(f"standard errors with {name}: {errors}")

# %%
# For many rows, each point is a flat. Area matters most, large areas in yellow raise
# the rent, and doors do nothing, as in the rule.
everyone = model.explain(flats[400:])
fig, ax = plt.subplots(layout="constrained")
points = ExplanationDisplay(everyone).plot(ax=ax)
sizes = np.abs(everyone.contributions).mean(axis=0)
for column, size in zip(everyone.columns, sizes, strict=True):
    print(f"{column:>10} moves the rent by {size:.0f} on average")

# %%
# The rule adds 10 for each floor, whatever the other columns are. So do contributions.
floors = flats["floor"][400:].to_numpy()
slope = np.polyfit(floors, everyone.contributions[:, 3], 1)[0]
print(f"contribution of a floor: {slope:.1f}")

plt.show()
