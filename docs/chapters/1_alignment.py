r"""
1. Alignment
============

A kernel says how alike two rows are. A support vector machine or a kernel ridge
regression does the rest, and does it well if rows that are alike have targets that are
alike. *Alignment* measures just that, before any predictor is fitted. This chapter
builds it in three lines of NumPy, shows why it is centered, and what it is good for.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.preprocessing import StandardScaler

from learnkernels import (
    GaussianFamily,
    center_gram,
    centered_alignment,
    gram_statistics,
)

# %%
# Two matrices over the same rows
# -------------------------------
# Two half moons: rows of one moon have the target -1, of the other +1. The target has a
# kernel of its own, :math:`Y Y^\top`, which is +1 for two rows of one moon and -1 for
# two of different ones. It is the kernel one would like to have. Beside it stand
# Gaussian kernels :math:`\exp(-\gamma \lVert x - x' \rVert^2)` of three bandwidths, the
# rows sorted by moon.
X, label = make_moons(100, noise=0.15, random_state=0)
order = np.argsort(label, kind="stable")
X, y = X[order], 2.0 * label[order] - 1
squared_distances = ((X[:, None] - X[None]) ** 2).sum(axis=2)
target_kernel = np.outer(y, y)
gammas = [0.05, 2.0, 200.0]
kernels = [np.exp(-gamma * squared_distances) for gamma in gammas]

fig, axes = plt.subplots(1, 4, figsize=(10, 3))
for ax, K, title in zip(
    axes,
    [*kernels, target_kernel],
    [*(f"gamma = {g:g}" for g in gammas), "target"],
    strict=True,
):
    ax.imshow(K, cmap="RdBu", vmin=-1, vmax=1)
    ax.set_title(title)
    ax.set_axis_off()
fig.tight_layout()

# %%
# A wide kernel takes all rows to be alike, a narrow one none, and one between shows the
# two moons.
#
# The angle between them
# ----------------------
# Matrices are vectors of numbers, and so have inner products: :math:`\langle K, L
# \rangle_F = \sum_{ij} K_{ij} L_{ij}`. Alignment is the cosine of the angle between the
# kernel and the target's kernel, *both centered*: every row's mean, and every column's,
# is taken out first.
#
# .. math:: \rho(K, Y Y^\top) = \frac{\langle K_c, Y_c Y_c^\top \rangle_F}
#           {\lVert K_c \rVert_F \, \lVert Y_c Y_c^\top \rVert_F}, \qquad
#           K_c = H K H, \quad H = I - \tfrac1m 1 1^\top
H = np.eye(len(y)) - 1 / len(y)
by_hand = []
for K in kernels:
    Kc, Tc = H @ K @ H, H @ target_kernel @ H
    by_hand.append((Kc * Tc).sum() / np.linalg.norm(Kc) / np.linalg.norm(Tc))
by_function = [centered_alignment(K, target_kernel) for K in kernels]
for gamma, one, other in zip(gammas, by_hand, by_function, strict=True):
    print(f"gamma = {gamma:<6g} by hand {one:.4f}, by learnkernels {other:.4f}")

# %%
# Once centered, the wide kernel is no longer constant: it is nearly the linear one,
# which does not do badly on these moons. What the eye sees in the first picture is what
# centering takes away.
#
# Why centered?
# -------------
# Add a constant to all entries of a kernel. No predictor with an intercept notices: the
# features have only moved away from the origin. The cosine without centering does, and
# tells less and less apart.
shifts = np.linspace(0, 5, 30)
plain = [
    [
        (K + s).ravel() @ target_kernel.ravel() / np.linalg.norm(K + s) / len(y)
        for s in shifts
    ]
    for K in kernels
]
centered = [[centered_alignment(K + s, target_kernel) for s in shifts] for K in kernels]
fig, axes = plt.subplots(1, 2, sharey=True, figsize=(9, 3.2))
for lines, ax, title in zip(
    (plain, centered), axes, ("without centering", "centered"), strict=True
):
    for gamma, line in zip(gammas, lines, strict=True):
        ax.plot(shifts, line, label=f"gamma = {gamma:g}")
    ax.set_title(title)
    ax.set_xlabel("constant added to the kernel")
axes[0].set_ylabel("alignment")
axes[1].legend()
fig.tight_layout()

# %%
# New rows are centered by the means of the *training* rows, never by their own; a
# learned kernel does so by itself, and ``center_gram`` is there for matrices of yours.
means = center_gram(kernels[1]).mean(axis=1)
print(f"largest mean of a row after centering: {abs(means).max():.0e}")

# %%
# What it is good for
# -------------------
# Alignment needs no predictor, no regularization and no validation rows: one number a
# kernel, from one pass over the pairs of rows. ``gram_statistics`` takes that pass for
# many kernels at once and forms no matrix of all pairs. Here are the alignments of 19
# bandwidths with the classes of a real table.
X, y = load_breast_cancer(return_X_y=True)
family = GaussianFamily([2.0**exponent for exponent in range(-14, 5)])
statistics = gram_statistics(family, StandardScaler().fit_transform(X), y)
best = int(np.argmax(statistics.alignments))
fig, ax = plt.subplots(figsize=(7, 3.2))
ax.semilogx(family.gammas, statistics.alignments, "o-", base=2)
ax.set_xlabel("gamma")
ax.set_ylabel("centered alignment")
print(f"the best of them: {family.names[best]}, {statistics.alignments[best]:.3f}")

# %%
# The theory behind: if a kernel has alignment :math:`\rho` with the target, there is a
# predictor in its span with a squared error of at most :math:`1 - \rho` of the
# variance, and the alignment of a sample is near to that of all data (:doc:`/bounds`).
# In practice the ranks of alignments and of errors agree
# (:doc:`/gallery/alignment_and_error`), and single decimals do not.
#
# What to remember: *alignment is the cosine between a centered kernel and the
# target's*; *centering is no detail*; *it is cheap, so it can be taken for thousands of
# kernels*. :doc:`The next chapter </guide/2_combination>` mixes them.

plt.show()
