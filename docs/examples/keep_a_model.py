"""
Keeping a model without pickle
==============================

How does a fitted model go to another machine? A pickle runs whatever code is in it;
this file holds arrays and a JSON text under a checksum, and is refused if a byte
has changed.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from learnkernels import KernelLearningClassifier, load
from learnkernels.kernels.estimators import keep_support
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

table, y = load_breast_cancer(return_X_y=True, as_frame=True)
table["site"] = np.random.default_rng(0).choice(["north", "south"], len(table))
train, test, y_train, y_test = train_test_split(table, y, random_state=0)
estimator = KernelLearningClassifier(predictor="svm").fit(train, y_train)

# %%
# Every estimator has ``save``. ``keep_support`` keeps only the support vectors, which
# give the same scores.
folder = Path(tempfile.mkdtemp())
estimator.save(folder / "all.safetensors")
keep_support(estimator).save(folder / "support.safetensors")
sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
for name, size in sizes.items():
    print(f"{name:<20} {size / 1000:.0f} kB")
plt.figure(figsize=(6, 2))
plt.barh(list(sizes), [size / 1000 for size in sizes.values()])
plt.xlabel("kB")
plt.tight_layout()

# %%
# The loaded estimator reads tables with their columns in any order.
model = load(folder / "support.safetensors")
shuffled = test[sorted(test.columns)]
predictions = model.predict(shuffled)
likely = pd.DataFrame(model.predict_proba(shuffled), columns=model.classes_)
print(likely.head(3).to_string(index=False))
same = np.mean(predictions == estimator.predict(test))
wrong = np.mean(predictions != y_test)
print(f"the same predictions on {same:.0%} of the rows; error {wrong:.3f}")

# %%
# One byte changed, and the file is refused in one sentence.
content = bytearray((folder / "support.safetensors").read_bytes())
content[len(content) // 2] ^= 1
(folder / "changed.safetensors").write_bytes(content)
try:
    load(folder / "changed.safetensors")
    refused = ""
except ValueError as error:
    refused = str(error)
print(refused.replace(str(folder), "..."))

plt.show()
