"""Innermost loops for any CPU and any version of Numba, value by value.

Arrays are flat; a place is an array and the first position. Kernels and targets have
the dtype of the rows, sums are float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .cache import compiled

PANEL_VECTORS = 8
"""Number of vectors per panel (block of rows); here a vector has one value."""

CHAIN_LENGTHS = (10, 5, 2, 1)

LONGEST_RUN = 5
"""Largest number of kernels whose products are formed together."""

ROWS = 4
"""Number of rows compared with a panel at a time."""

SQUARED = 0
CITYBLOCK = 1
DIFFERING = 2
"""Codes of the distances."""

Place = tuple[np.ndarray, int]


def lanes(dtype: np.dtype[Any]) -> int:
    return 1


@compiled()
def write_distances(
    rows: int,
    code: int,
    left: Place,
    right: Place,
    d: int,
    weights: np.ndarray,
    out: Place,
    stride: int,
) -> None:
    """Write the distances between a few rows and a panel of rows into `out`.

    `rows` is `ROWS` or one. Shapes: `left` (rows, d), `right` (d, panel_rows), `out`
    (rows, stride).
    """
    A, a = left
    B, b = right
    D, start = out
    for r in range(rows):
        to = start + r * stride
        D[to : to + PANEL_VECTORS] = 0
        for c in range(d):
            x = A[a + r * d + c]
            for j in range(PANEL_VECTORS):
                y = B[b + c * PANEL_VECTORS + j]
                if code == SQUARED:
                    D[to + j] += (x - y) ** 2
                elif code == CITYBLOCK:
                    D[to + j] += abs(x - y)
                elif x != y:
                    D[to + j] += weights[c]


@compiled()
def subtract_common(
    code: int,
    left: Place,
    right: Place,
    d: int,
    differing: np.ndarray,
    n: int,
    out: Place,
    panels: int,
) -> None:
    """Subtract twice the overlap of two rows from the sum of their lengths in `out`.

    The overlap is the inner product, or the sum of the smaller absolute values of
    features of equal sign. `left` is not zero in the n features `differing`. Shapes:
    `right` (panels, d, panel_rows), `out` (panels, panel_rows).
    """
    A, a = left
    B, b = right
    D, to = out
    for p in range(panels):
        for i in range(n):
            c = differing[i]
            x = A[a + c]
            for j in range(PANEL_VECTORS):
                y = B[b + (p * d + c) * PANEL_VECTORS + j]
                if code == SQUARED:
                    common = x * y
                elif x > 0:
                    common = min(max(y, 0.0), x)
                else:
                    common = -max(min(y, 0.0), x)
                D[to + p * PANEL_VECTORS + j] -= 2 * common


@compiled()
def write_expm1(
    distances: Place, factor: float, rooted: bool, out: Place, n: int
) -> None:
    """Write ``exp(factor D) - 1`` of n vectors of distances, squared if `rooted`."""
    D, start = distances
    E, to = out
    for j in range(n):
        distance = D[start + j]
        if rooted:
            distance = math.sqrt(distance)
        E[to + j] = math.expm1(factor * distance)


@compiled()
def add_chain(
    length: int,
    seeds: Place,
    n: int,
    coefficients: Place,
    total: Place,
    following: Place,
) -> None:
    """Add weighted kernels, each computed from the square of the previous one, to `total`.

    The first kernel is `seeds`, the next is ``E (E + 2)`` of a kernel E. `following`
    gets the kernel after the last.
    """
    S, s = seeds
    C, c = coefficients
    T, t = total
    F, f = following
    for j in range(n):
        E = S[s + j]
        for k in range(length):
            T[t + j] += C[c + k] * E
            E = E * (E + 2)
        F[f + j] = E


@compiled()
def make_kernels(
    length: int,
    weighted: int,
    seeds: Place,
    strip: Place,
    step: int,
    columns: int,
    offsets: Place,
    roots: Place,
    root: float,
    row_sums: Place,
    following: Place,
) -> None:
    """Write all kernels of one row, and add them to the row sums.

    Kernels are as in `add_chain`, plus offsets, but `following` has none. With weights,
    kernels are multiplied by both roots, and row sums by the column's root. `strip` has
    shape (vectors of columns, step).
    """
    S, s = seeds
    K, start = strip
    constants, o = offsets
    R, r = roots
    T, t = row_sums
    F, f = following
    for i in range(columns):
        E = S[s + i]
        for k in range(length):
            value = E + constants[o + k]
            if weighted:
                value *= root * R[r + i]
                T[t + k] += value * R[r + i]
            else:
                T[t + k] += value
            K[start + i * step + k] = value
            E = E * (E + 2)
        F[f + i] = E


@compiled()
def make_target(
    weighted: int,
    row_targets: Place,
    column_targets: Place,
    target_step: int,
    n_outputs: int,
    strip: Place,
    step: int,
    vectors: int,
    roots: Place,
    root: float,
) -> None:
    """Write the target kernel and the root of a row's weight into `strip`.

    Shapes: `column_targets` (n_outputs, target_step), `strip` (vectors, step).
    """
    U, u = row_targets
    V, v = column_targets
    K, start = strip
    R, r = roots
    for i in range(vectors):
        product = 0.0
        for c in range(n_outputs):
            product += U[u + c] * V[v + c * target_step + i]
        if weighted:
            product *= root * R[r + i]
            K[start + i * step + 1] = root
        K[start + i * step] = product


@compiled()
def add_triangle(
    size: int,
    weighted: int,
    strip: Place,
    target: Place,
    step: int,
    rows: int,
    vectors: int,
    products: Place,
    p: int,
    target_products: Place,
    column_sums: Place,
) -> None:
    """Add products of kernels, products with the target, and column sums.

    Shapes: `strip` and `target` (vectors, rows, step), `products` (size, p), up to the
    diagonal, `column_sums` (vectors, p).
    """
    K, K_place = strip
    W, W_place = target
    G, g = products
    T, t = target_products
    S, s = column_sums
    for i in range(vectors):
        for _ in range(rows):
            for k in range(size):
                x = K[K_place + k]
                if weighted:
                    S[s + i * p + k] += x * W[W_place + 1]
                else:
                    S[s + i * p + k] += x
                T[t + k] += x * W[W_place]
                for l in range(k + 1):
                    G[g + k * p + l] += x * K[K_place + l]
            K_place += step
            W_place += step


@compiled()
def add_rectangle(
    n_left: int,
    n_right: int,
    left: Place,
    right: Place,
    step: int,
    count: int,
    products: Place,
    p: int,
) -> None:
    """Add the products of left and right kernels to `products`.

    Shapes: `left` and `right` (count, step), `products` (n_left, p).
    """
    K, K_place = left
    L, L_place = right
    G, g = products
    for i in range(count):
        for k in range(n_left):
            for l in range(n_right):
                G[g + k * p + l] += (
                    K[K_place + i * step + k] * L[L_place + i * step + l]
                )
