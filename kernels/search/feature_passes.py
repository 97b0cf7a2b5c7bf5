"""Compiled passes over all pairs of rows for kernels with one parameter a feature.

Rows come transposed, features by rows, so that the inner loops run over rows and vectorise. Pairs are those above the
diagonal, taken in blocks of `COLUMNS` rows that stay in a core's cache for all features. Memory is O(d `COLUMNS`); no
array has an entry a pair and feature.
"""

from __future__ import annotations

import math

import numpy as np

from learnkernels.kernels.compiled.compiler import FAST, compiled

COLUMNS = 128
"""Rows that are paired with one row at a time."""


@compiled(fastmath=FAST)
def laplacian_pass(Z: np.ndarray, P: np.ndarray, gradient: np.ndarray) -> float:
    """Return the sum over pairs of ``P_ij kappa_ij`` for ``kappa = exp(-sum_k |z_ki - z_kj|)``.

    Adds to `gradient`, shape (d,), the sums of ``P_ij kappa_ij |z_ki - z_kj|``. `Z` has shape (d, m).
    """
    d, m = Z.shape
    w = np.empty(COLUMNS)
    total = 0.0
    for start in range(0, m, COLUMNS):
        stop = min(start + COLUMNS, m)
        for i in range(stop - 1):
            first = max(start, i + 1)
            n = stop - first
            for j in range(n):
                w[j] = 0.0
            for k in range(d):
                z = Z[k, i]
                for j in range(n):
                    w[j] -= abs(z - Z[k, first + j])
            for j in range(n):
                w[j] = P[i, first + j] * math.exp(w[j])
            for j in range(n):
                total += w[j]
            for k in range(d):
                z, s = Z[k, i], 0.0
                for j in range(n):
                    s += w[j] * abs(z - Z[k, first + j])
                gradient[k] += s
    return total


@compiled(fastmath=FAST)
def dirichlet_pass(
    angles: np.ndarray, cosines: np.ndarray, sines: np.ndarray, P: np.ndarray, gradient: np.ndarray
) -> float:
    """Return the sum over pairs of ``P_ij kappa_ij`` for ``kappa = prod_k (1 + 2 cos(t_ki - t_kj))``.

    Adds to `gradient`, shape (d,), the sums of ``P_ij`` times the derivative of kappa by the logarithm of frequency k:
    ``-2 (t_ki - t_kj) sin(t_ki - t_kj)`` times the other factors. Those are the product of the factors before and that
    of the factors after, since a factor may be zero. `angles` has shape (d, m), and so have their cosines and sines,
    from which those of differences follow.
    """
    d, m = angles.shape
    before = np.empty((d, COLUMNS))
    run = np.empty(COLUMNS)
    total = 0.0
    for start in range(0, m, COLUMNS):
        stop = min(start + COLUMNS, m)
        for i in range(stop - 1):
            first = max(start, i + 1)
            n = stop - first
            for j in range(n):
                run[j] = 1.0
            for k in range(d):
                c, s = 2.0 * cosines[k, i], 2.0 * sines[k, i]
                for j in range(n):
                    before[k, j] = run[j]
                    run[j] *= 1.0 + (c * cosines[k, first + j] + s * sines[k, first + j])
            for j in range(n):
                total += P[i, first + j] * run[j]
                run[j] = P[i, first + j]
            for k in range(d - 1, -1, -1):
                c, s, t, g = 2.0 * cosines[k, i], 2.0 * sines[k, i], angles[k, i], 0.0
                for j in range(n):
                    sine = s * cosines[k, first + j] - c * sines[k, first + j]
                    g -= before[k, j] * run[j] * (t - angles[k, first + j]) * sine
                    run[j] *= 1.0 + (c * cosines[k, first + j] + s * sines[k, first + j])
                gradient[k] += g
    return total
