"""The innermost loops for any CPU and any Numba: what the vector code of `simd`
computes, value by value.

Arrays are flat. An argument that is written ``(array, place)`` begins at that position
of the array. Values of kernels and targets have the dtype of the rows, sums are
float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .cache import compiled

PANEL_VECTORS = 8
"""Vectors of a panel, see `distances.panel_rows`; here a vector has one value."""

CHAIN_LENGTHS = (10, 5, 2, 1)
"""Lengths of the chains of kernels that are made at a time, descending."""

LONGEST_RUN = 5
"""Most kernels whose products with each other are formed at a time."""

ROWS = 4
"""Rows that go against a panel at a time."""

SQUARED = 0
CITYBLOCK = 1
DIFFERING = 2
"""Codes of what `write_differences` adds for each feature: a squared or absolute
difference, or the weight of a feature that differs.
"""

Place = tuple[np.ndarray, int]


def lanes(dtype: np.dtype[Any]) -> int:
    """Return the number of values of a vector."""
    return 1


@compiled()
def write_differences(
    rows: int,
    code: int,
    left: Place,
    right: Place,
    d: int,
    weights: np.ndarray,
    out: Place,
    stride: int,
) -> None:
    """Write the distances of some rows from those of a panel.

    Parameters
    ----------
    rows : int
        Number of rows: `ROWS` or one.
    code : {SQUARED, CITYBLOCK, DIFFERING}
        What is added for each feature.
    left : place of shape (rows, d)
        Rows of the left side.
    right : place of shape (d, panel_rows)
        A panel of the right side.
    d : int
        Number of features.
    weights : ndarray of shape (d,)
        Weights of differing features.
    out : place of shape (rows, stride)
        Written to: of each row as many values as a panel has.
    stride : int
        Values from a row of `out` to the next.
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
    """Subtract from the sums of the lengths of a row and of the rows of some panels
    twice the length they share.

    Lengths are squared norms or sums of absolute values; the length that two rows share
    is their inner product, or the sum of the smaller absolute values of features of
    equal sign.

    Parameters
    ----------
    code : {SQUARED, CITYBLOCK}
        Distance.
    left : place of shape (d,)
        The row.
    right : place of shape (panels, d, panel_rows)
        Panels of the right side.
    d : int
        Number of features.
    differing : ndarray of int
        Features in which the row is not zero.
    n : int
        Number of these features.
    out : place of shape (panels, panel_rows)
        Sums of lengths; changed to distances.
    panels : int
        Number of panels.
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
def write_exponentials(
    distances: Place, factor: float, rooted: bool, out: Place, n: int
) -> None:
    """Write ``exp(factor D) - 1`` of n vectors of values, or of their roots; ``factor D`` is not positive."""
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
    """Add a chain of kernels by their weights to n vectors of a total.

    Parameters
    ----------
    length : int
        Number of kernels: each is ``E (E + 2)`` of the one before.
    seeds : place of n vectors
        The first kernel.
    n : int
        Number of vectors.
    coefficients : place of shape (length,)
        Weights of the kernels.
    total : place of n vectors
        Added to.
    following : place of n vectors
        Gets the kernel that would follow the last.
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
    """Write a chain of kernels of some columns of one row into a strip, and add their
    row sums.

    The first is a seed plus its offset, each other ``E (E + 2)`` of the one before,
    plus its own offset. With weights a kernel is multiplied by the roots of both
    weights, and its row sums by that of the column once more.

    Parameters
    ----------
    length : int
        Number of kernels, one of `CHAIN_LENGTHS`.
    weighted : {0, 1}
        Whether rows have weights.
    seeds : place of shape (columns,)
        The first kernel, without its offset.
    strip : place of shape (columns, step)
        Written to, a vector of columns at a time; zeros follow the last column.
    step : int
        Values from a vector of columns to the next in the strip.
    columns : int
        Number of columns.
    offsets : place of shape (length,)
        Constants that are added to the kernels.
    roots : place of shape (columns,)
        Roots of the weights of the columns.
    root : float
        Root of the weight of the row.
    row_sums : place of shape (length,)
        Added to.
    following : place of shape (columns,)
        Gets the kernel that would follow the last, without offset.
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
    """Write the target kernel of some columns of one row into a strip, and with weights
    the row's root behind it.

    Parameters
    ----------
    weighted : {0, 1}
        Whether rows have weights.
    row_targets, column_targets : place of shape (n_outputs,) and (n_outputs, target_step)
        Targets of the row and of the columns.
    target_step, n_outputs : int
        Values from an output of `column_targets` to the next, and the number of
        outputs.
    strip : place of shape (vectors, step)
        Written to.
    step, vectors : int
        Values from a vector of columns to the next in the strip, and the number of
        vectors.
    roots, root
        As for `make_kernels`.
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
    """Add the products of a few kernels with each other and with the target kernel, and
    their column sums.

    Parameters
    ----------
    size : int
        Number of kernels, at most `LONGEST_RUN`.
    weighted : {0, 1}
        Whether rows have weights.
    strip, target : place of shape (vectors, rows, step)
        The kernels, and the target kernel with the row's root.
    step, rows, vectors : int
        Values from a row to the next in the strip, and the numbers of rows and of
        vectors of columns.
    products : place of shape (size, p)
        Added to, up to the diagonal.
    p : int
        Number of all kernels.
    target_products : place of shape (size,)
        Added to.
    column_sums : place of shape (vectors, p)
        Added to.
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
    """Add the products of a few kernels with a few others.

    Parameters
    ----------
    n_left, n_right : int
        Numbers of kernels, at most `LONGEST_RUN`.
    left, right : place of shape (count, step)
        Vectors of the kernels.
    step, count : int
        Values from a vector to the next in the strip, and the number of vectors.
    products : place of shape (n_left, p)
        Added to.
    p : int
        Number of all kernels.
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
