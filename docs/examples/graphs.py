"""
Graphs: kernels of subtrees
===========================

Molecules, call graphs, road maps: some things have no columns, but nodes, edges and
labels. The kernel of Weisfeiler and Lehman counts the neighborhoods that two graphs have
in common. How far should a neighborhood reach?
"""

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import KernelLearningClassifier, WeisfeilerLehmanTransformer
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

# %%
# 160 rings of 12 to 24 nodes with chords, which in half of them lead two nodes on and
# in the others anywhere. Counts of nodes and edges tell nothing, and degrees hardly
# anything; the neighbors of neighbors do. A graph is a list of edges and the labels of
# its nodes, here their degrees.
rng = np.random.default_rng(0)


def draw(near: bool) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Return a random graph."""
    size = int(rng.integers(12, 25))
    edges = {(i, (i + 1) % size) for i in range(size)}
    for i in rng.choice(size, size // 3, replace=False):
        j = (i + 2) % size if near else (i + rng.integers(2, size - 1)) % size
        edges.add((int(min(i, j)), int(max(i, j))))
    return list(edges), np.bincount(np.ravel(list(edges)))


is_near = np.arange(160) % 2 == 1
graphs = [draw(near) for near in is_near]

# %%
# Every iteration gives each node a new label, made of its own and its neighbors'. There
# is a base kernel per iteration: alone, with equal weights, and weighed by ``alignf``.
subtrees = WeisfeilerLehmanTransformer(n_iterations=4)
family = subtrees.family
kernels = {name: (family.subset([k]), "unif") for k, name in enumerate(family.names)}
kernels |= {"equal weights": (family, "unif"), "alignf": (family, "alignf")}
folds = StratifiedKFold(5, shuffle=True, random_state=0)
models, errors = {}, {}
for name, (kernel, learner) in kernels.items():
    model = KernelLearningClassifier(family=kernel, learner=learner, C=10.0)
    models[name] = make_pipeline(subtrees, model)
    errors[name] = 1 - cross_val_score(models[name], graphs, is_near, cv=folds)
    print(f"{name:<21} {errors[name].mean():.3f} +- {errors[name].std():.3f}")

# %%
# Late iterations know every graph by heart and align with nothing: their matrices are
# nearly the identity.
learned = models["alignf"].fit(graphs, is_near)[-1].kernel_
plt.barh(family.names[::-1], learned.shares[::-1])
plt.xlabel("weight of the kernel, shares of one")
plt.tight_layout()

plt.show()
