"""
Do two models see the same?
===========================

Do two networks that were trained from different starts represent the same rows alike?
Centered kernel alignment (CKA) compares their activations layer by layer. It needs no
matching of the neurons, and no matrix of all pairs of rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import LinearFamily, alignment_test, linear_cka
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

X, y = load_digits(return_X_y=True)
X = StandardScaler().fit_transform(X)
LAYERS = (64, 32, 16)


def activations(seed):
    """Return what each hidden layer of a trained network makes of the rows."""
    network = MLPClassifier(LAYERS, max_iter=60, tol=1e-2, random_state=seed).fit(X, y)
    layers, values = [], X
    for weights, offset in zip(
        network.coefs_[:-1], network.intercepts_[:-1], strict=True
    ):
        values = np.maximum(values @ weights + offset, 0.0)
        layers.append(values)
    return layers


first, second = activations(0), activations(1)
table = np.array([[linear_cka(a, b, debiased=True) for b in second] for a in first])

fig, ax = plt.subplots()
image = ax.imshow(table, vmin=0, vmax=1)
ax.set(xlabel="layer of the second network", ylabel="layer of the first network")
ax.set(xticks=range(3), yticks=range(3), title="debiased linear CKA")
fig.colorbar(image)

# %%
# Few rows of many features look alike by chance. The debiased estimate does not: these
# two representations of 50 rows are random.
noise = np.random.default_rng(0)
A, B = noise.normal(size=(50, 500)), noise.normal(size=(50, 500))
print(f"CKA {linear_cka(A, B):.2f}, debiased {linear_cka(A, B, debiased=True):.2f}")

# %%
# Which layer says most of the digits? The alignment with the classes has an interval
# and a p-value.
for layer, values in enumerate(first):
    test = alignment_test(
        LinearFamily(), values, y, task="classification", n_permutations=99
    )
    print(
        f"layer {layer}: {test.debiased[0]:.3f} "
        f"[{test.low[0]:.3f}, {test.high[0]:.3f}], p = {test.p_values[0]:.2f}"
    )

plt.show()
