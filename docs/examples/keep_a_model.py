"""
Keeping a model without pickle
==============================

How does a fitted model go to another machine? A pickle runs whatever code is in it;
this file holds arrays and a JSON text under a checksum, reads raw tables, and is
refused where a byte has changed.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from learnkernels import KernelLearningClassifier
from learnkernels.kernels.estimators import keep_support
from learnkernels.kernels.persistence.model import Model, load_model, save_model
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

table, y = load_breast_cancer(return_X_y=True, as_frame=True)
table["site"] = np.random.default_rng(0).choice(["north", "south"], len(table))
train, test, y_train, y_test = train_test_split(table, y, random_state=0)
estimator = KernelLearningClassifier(predictor="svm").fit(train, y_train)

# %%
# ``keep_support`` keeps only the support vectors, which give the same scores; ``about``
# is for what you want to know later.
folder = Path(tempfile.mkdtemp())
save_model(Model.of_table(estimator, {"rows": "all"}), folder / "all.npz")
save_model(
    Model.of_table(keep_support(estimator), {"rows": "support vectors"}),
    folder / "support.npz",
)
sizes = {file.name: file.stat().st_size for file in sorted(folder.glob("*.npz"))}
for name, size in sizes.items():
    print(f"{name:<12} {size / 1000:.0f} kB")
plt.figure(figsize=(6, 2))
plt.barh(list(sizes), [size / 1000 for size in sizes.values()])
plt.xlabel("kB")
plt.tight_layout()

# %%
# What is loaded reads tables with their columns in any order, as the estimator does.
model = load_model(folder / "support.npz")
shuffled = test[sorted(test.columns)]
told = model.columns(shuffled)
print(pd.DataFrame(told).head(3).to_string(index=False))
same = np.mean(told["prediction"] == estimator.predict(test))
wrong = np.mean(told["prediction"] != y_test)
print(f"the same predictions on {same:.0%} of the rows; error {wrong:.3f}")

# %%
# One byte changed, and the file is refused in one sentence.
content = bytearray((folder / "support.npz").read_bytes())
content[len(content) // 2] ^= 1
(folder / "changed.npz").write_bytes(content)
try:
    load_model(folder / "changed.npz")
    refused = ""
except ValueError as error:
    refused = str(error)
print(refused.replace(str(folder), "..."))

plt.show()
