"""
Graphs: kernels that are given as matrices
==========================================

Molecules, call graphs, road maps: some things have no columns, but a kernel between any
two of them can be computed: a precomputed matrix. Which of several graph kernels fits,
and in which mixture?
"""

from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
from learnkernels import KernelLearningClassifier, PrecomputedFamily
from sklearn.model_selection import StratifiedKFold

# %%
# 160 rings of 12 to 24 nodes with chords, which in half of them lead two nodes on and
# in the others anywhere. Counts of nodes and edges tell nothing, and degrees hardly
# anything; the neighbors of neighbors do.
rng = np.random.default_rng(0)


def draw(near: bool) -> dict[int, set[int]]:
    """Return a random graph: the neighbors of each node."""
    size = int(rng.integers(12, 25))
    graph = {i: {(i - 1) % size, (i + 1) % size} for i in range(size)}
    for i in rng.choice(size, size // 3, replace=False):
        j = (i + 2) % size if near else (i + rng.integers(2, size - 1)) % size
        graph[int(i)].add(int(j))
        graph[int(j)].add(int(i))
    return graph


is_near = np.arange(160) % 2 == 1
graphs = [draw(near) for near in is_near]


# %%
# The kernel of Weisfeiler and Lehman: every node begins with a label, here its degree;
# a round gives it a new one, made of its own and its neighbors'. The kernel of a round
# is the inner product of the counts of labels.
def counts_of_labels(graph: dict[int, set[int]], rounds: int) -> list[Counter]:
    """Return how often each label occurs, in each round."""
    labels = {i: str(len(near)) for i, near in graph.items()}
    found = [Counter(labels.values())]
    for _ in range(rounds):
        labels = {
            i: f"{labels[i]}({''.join(sorted(labels[j] for j in near))})"
            for i, near in graph.items()
        }
        found.append(Counter(labels.values()))
    return found


counted = [counts_of_labels(graph, rounds=4) for graph in graphs]
sizes = np.array([[len(graph), sum(map(len, graph.values())) / 2] for graph in graphs])
matrices = {"sizes": np.exp(-0.05 * ((sizes[:, None] - sizes[None]) ** 2).sum(axis=2))}
for step in range(5):
    words = sorted({word for one in counted for word in one[step]})
    Z = np.array([[one[step][word] for word in words] for one in counted], dtype=float)
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    matrices[f"labels, round {step}"] = Z @ Z.T

# %%
# A row of X is the position of a graph, so that folds, searches and pipelines work as
# with any rows.
family = PrecomputedFamily(np.array(list(matrices.values())), list(matrices))
X = np.arange(len(graphs), dtype=float)[:, None]
folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, is_near))
errors = {}
ways = {name: (family.subset([k]), "unif") for k, name in enumerate(matrices)}
for name, (kernels, learner) in {
    **ways,
    "equal weights": (family, "unif"),
    "alignf": (family, "alignf"),
}.items():
    model = KernelLearningClassifier(family=kernels, learner=learner, C=10.0)
    errors[name] = 1 - np.array(
        [
            model.fit(X[train], is_near[train]).score(X[test], is_near[test])
            for train, test in folds
        ]
    )
    print(f"{name:<16} {errors[name].mean():.3f} +- {errors[name].std():.3f}")

# %%
# Deep rounds know every graph by heart and align with nothing: their matrices are
# nearly the identity.
learned = (
    KernelLearningClassifier(family=family, learner="alignf", C=10.0)
    .fit(X, is_near)
    .kernel_
)
plt.barh(family.names[::-1], learned.shares[::-1])
plt.xlabel("weight of the kernel, shares of one")
plt.tight_layout()

plt.show()
