"""Compiled passes over the pairs of rows that share a sparse feature.

Features come by columns (CSC) with their rows in ascending order. The cost is the number of pairs, the sum over the
features of the square of the number of their rows: for counts of words far below that of a product of matrices.
"""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.compiled.compiler import FAST, compiled


@compiled(fastmath=FAST)
def add_outer_products(
    starts: np.ndarray, rows: np.ndarray, values: np.ndarray, weights: np.ndarray, K: np.ndarray
) -> None:
    """Add ``sum_k weights_k z_k z_k'`` to the diagonal of `K` and the part above it."""
    for k in range(len(weights)):
        if weights[k] == 0:
            continue
        for a in range(starts[k], starts[k + 1]):
            i, z = rows[a], weights[k] * values[a]
            for b in range(a, starts[k + 1]):
                K[i, rows[b]] += z * values[b]


@compiled(fastmath=FAST)
def forms(starts: np.ndarray, rows: np.ndarray, values: np.ndarray, W: np.ndarray, out: np.ndarray) -> None:
    """Write ``z_k' W z_k`` to `out`, shape (p,), for a symmetric `W`."""
    for k in range(len(out)):
        total = 0.0
        for a in range(starts[k], starts[k + 1]):
            i, s = rows[a], 0.0
            for b in range(a + 1, starts[k + 1]):
                s += W[i, rows[b]] * values[b]
            total += values[a] * (2 * s + W[i, i] * values[a])
        out[k] = total
