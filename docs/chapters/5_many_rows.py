r"""
5. Many rows
============

A kernel matrix of 100,000 rows has ten billion entries. This chapter shows what of the
work needs pairs of rows at all, how few of them determine the weights, and how
predictors do without the matrix.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

from learnkernels import GaussianFamily, KernelLearningRegressor, gram_statistics
from learnkernels.kernels.predictors import Nystroem

ROWS = 16_000
SAMPLE = ROWS // 8
X, y = make_friedman1(ROWS + 2_000, n_features=10, noise=1.0, random_state=0)
X *= np.sqrt(12)
X, X_test, y, y_test = X[:ROWS], X[ROWS:], y[:ROWS], y[ROWS:]
family = GaussianFamily([2.0**exponent for exponent in range(-8, -2)])

# %%
# The first stage: one pass, no matrix
# ------------------------------------
# Alignments are sums over pairs of rows. They are taken tile by tile, all kernels of a
# tile at once, and a tile is forgotten when it is summed: time grows with the square of
# the rows, memory hardly at all.
sizes, seconds = [ROWS // 8, ROWS // 4, ROWS // 2], []
for size in sizes:
    began = time.perf_counter()
    gram_statistics(family, X[:size], y[:size])
    seconds.append(time.perf_counter() - began)
for size, second in zip(sizes, seconds, strict=True):
    matrices = f"{6 * 8 * size**2 / 2**30:.2f} GiB for six matrices of all pairs"
    print(f"{size:>6,} rows: {second:5.2f} s in place of {matrices}")

# %%
# How few rows determine the weights
# ----------------------------------
# A sum over pairs is a mean, and a mean is known from a sample. ``sample=2_000`` draws
# so many rows, and ``sample="auto"`` 8,192 where there are more. Other samples of the
# same size show how well they know what all rows would give. The predictor still learns
# from all rows.
models = [
    KernelLearningRegressor(
        family=family,
        learner="alignf",
        sample=SAMPLE,
        predictor=Nystroem(n_components=400),
        random_state=seed,
    ).fit(X, y)
    for seed in range(3)
]
model = models[0]
found = [round(one.alignment_, 3) for one in models]
print(f"alignments {found} from {SAMPLE:,} of {ROWS:,} rows")
fig, ax = plt.subplots(figsize=(7, 3.2))
for seed, one in enumerate(models):
    ax.plot(one.weights_, "o-", label=f"sample {seed}")
ax.set_xticks(range(family.n_kernels), family.names, rotation=20)
ax.set_ylabel("weights")
ax.legend()
fig.tight_layout()

# %%
# The alignment is known far better than single weights: ``alignf`` moves weight between
# neighboring bandwidths, which are nearly the same kernel, and it matters little how.
#
# The second stage: landmarks
# ---------------------------
# Kernel ridge regression wants coefficients for all rows. In the span of M *landmarks*,
# some of the rows, it wants M, and passes over blocks of rows replace the matrix. With
# all rows as landmarks it is the exact predictor; how many are needed depends on how
# rough the kernel is.
landmarks, scores = [25, 100, 400], []
for count in landmarks:
    one = KernelLearningRegressor(
        family=family,
        learner="alignf",
        sample=2_000,
        predictor=Nystroem(n_components=count),
    ).fit(X, y)
    scores.append(one.score(X_test, y_test))
exact = KernelLearningRegressor(family=family, learner="alignf", predictor="krr").fit(
    X[: ROWS // 8], y[: ROWS // 8]
)
exact_score = exact.score(X_test, y_test)
fig, ax = plt.subplots(figsize=(7, 3.2))
ax.semilogx(landmarks, scores, "o-", label=f"landmarks, {ROWS:,} rows")
ax.axhline(
    exact_score, color="gray", linestyle="--", label=f"all pairs of {ROWS // 8:,} rows"
)
ax.set_xlabel("landmarks")
ax.set_ylabel("R2 on other rows")
ax.legend()
fig.tight_layout()

# %%
# Between the two stands ``krr-cg``: kernel ridge regression on all rows by conjugate
# gradients over tiles, to a residual of 0.01, for up to about 50,000 rows.
# ``predictor="auto"`` chooses by rows and memory, and reports the reason:
print(f"exact: {exact.predictor_}, {len(exact.kernel_.X):,} rows are kept")
print(f"on landmarks: {model.predictor_}, {len(model.landmarks_):,} rows are kept")

# %%
# On a cluster, and larger than memory
# ------------------------------------
# In a configuration ``statistics: {sample: auto}`` and ``predictor: auto`` do the same;
# tiles go to Dask workers, here or on a cluster, which read rows from disk as needed
# (:doc:`/configurations`, :doc:`/stack`). :doc:`/performance` has
# what 100,000 and a million rows take.
#
# What to remember: *the first stage is one pass and may be a sample*; *other samples
# say whether it was large enough*; *landmarks trade accuracy for memory, and can be
# judged by adding more*. That was the hour: :doc:`/gallery/index` goes on.

plt.show()
