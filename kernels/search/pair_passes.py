"""Compiled passes over all pairs of rows for kernels that are a function of one distance a pair.

Pairs are those above the diagonal, row by row: (0, 1), (0, 2), ..., (1, 2), ... The kernel of a row with itself is
`diagonal`. NumPy computes the exponentials, several at once; the sums over them are made here in one pass.
"""

from __future__ import annotations

import math

import numpy as np

from learnkernels.kernels.compiled.compiler import FAST, compiled


@compiled()
def gradient_pass(
    K: np.ndarray,
    target: np.ndarray,
    means: np.ndarray,
    bins: np.ndarray,
    n_bins: int,
    weight_target: float,
    weight_kernel: float,
    p: np.ndarray,
) -> np.ndarray:
    """Write ``weight_target * target - weight_kernel * K_c`` for each pair into `p`, and return its sums by bin.

    K_c is K centered: less the row means of both rows, plus their mean.
    """
    m = len(means)
    grand = 0.0
    for i in range(m):
        grand += means[i]
    grand /= m
    sums = np.zeros(n_bins)
    k = 0
    for i in range(m):
        for j in range(i + 1, m):
            value = weight_target * target[k] - weight_kernel * (K[k] - means[i] - means[j] + grand)
            p[k] = value
            sums[bins[k]] += value
            k += 1
    return sums


@compiled(fastmath=FAST)
def value_pass(p: np.ndarray, K: np.ndarray, slopes: np.ndarray) -> tuple[float, float]:
    """Return the sums over pairs of p times the kernel, and of p times its derivative."""
    value = slope = 0.0
    for k in range(len(p)):
        value += p[k] * K[k]
        slope += p[k] * slopes[k]
    return value, slope


@compiled(fastmath=FAST)
def scaled_value_pass(p: np.ndarray, K: np.ndarray, D: np.ndarray) -> tuple[float, float]:
    """Return the sums over pairs of p times the kernel, and of p times kernel times distance."""
    value = slope = 0.0
    for k in range(len(p)):
        term = p[k] * K[k]
        value += term
        slope += term * D[k]
    return value, slope


@compiled(fastmath=FAST)
def products_pass(
    new: np.ndarray, diagonal: float, K: np.ndarray, target: np.ndarray, m: int
) -> tuple[np.ndarray, float, float, float]:
    """Return the row sums of a kernel given for each pair, and over pairs the sums of its products.

    The products are those with the target kernel, with K, and with itself.
    """
    rows = np.full(m, diagonal)
    with_target = with_kernel = with_itself = 0.0
    k = 0
    for i in range(m):
        row = 0.0
        for j in range(i + 1, m):
            value = new[k]
            row += value
            rows[j] += value
            with_target += value * target[k]
            with_kernel += value * K[k]
            with_itself += value * value
            k += 1
        rows[i] += row
    return rows, with_target, with_kernel, with_itself


@compiled()
def squared_distances_pass(G: np.ndarray, norms: np.ndarray, D: np.ndarray) -> None:
    """Write the squared distance of each pair, from inner products and squared norms."""
    m, k = len(norms), 0
    for i in range(m):
        for j in range(i + 1, m):
            value = norms[i] + norms[j] - 2.0 * G[i, j]
            D[k] = value if value > 0.0 else 0.0
            k += 1


@compiled()
def bin_pass(D: np.ndarray, linear: bool, least: float, scale: float, n_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the bin of each pair, and the mean distance of each bin."""
    bins = np.empty(len(D), dtype=np.int32)
    counts, sums = np.zeros(n_bins), np.zeros(n_bins)
    for k in range(len(D)):
        if linear:
            b = int(D[k] * scale)
        elif D[k] > least:
            b = 1 + int(math.log(D[k] / least) * scale)
        else:
            b = 0
        b = min(b, n_bins - 1)
        bins[k] = b
        counts[b] += 1.0
        sums[b] += D[k]
    for b in range(n_bins):
        if counts[b] > 0.0:
            sums[b] /= counts[b]
    return bins, sums


@compiled()
def target_pass(Y: np.ndarray, target: np.ndarray) -> None:
    """Write the inner product of the targets of each pair."""
    m, q = Y.shape
    k = 0
    for i in range(m):
        for j in range(i + 1, m):
            value = 0.0
            for c in range(q):
                value += Y[i, c] * Y[j, c]
            target[k] = value
            k += 1
