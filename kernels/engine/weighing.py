"""Compiled loops that compute a weighted sum of base kernels on a Gram-matrix block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..compiled.cache import FAST, compiled
from ..compiled.distances import Parts, make_seeds
from ..compiled.loops import add_chain
from ..compiled.plain import ROWS

MOST_COLUMNS = 256

MOST_VALUES = 1024
"""Largest number of intermediate values per row."""


class Weights(NamedTuple):
    """Weights of base kernels in their order of computation.

    `groups` are chains, see `tiles.chains`. `constant` is the weighted sum of offsets.
    """

    groups: np.ndarray
    coefficients: np.ndarray
    constant: float
    n_seeds: int
    n_stored: int


class PackedColumns(NamedTuple):
    """Rows prepared as the second argument of distance kernels, with the kernels' weights."""

    rows: np.ndarray
    stride: int
    parts: Parts
    weights: Weights
    max_panels: int


@compiled()
def combine_seeds(
    weights: Weights, size: int, width: int, buffer: np.ndarray, K: np.ndarray
) -> None:
    """Write the weighted sum of kernels, made from seed matrices, into `K`.

    `buffer` has blocks of `size` values: distances, seeds, and values between chains.
    """
    K[:size] = weights.constant
    stored_start = size * (1 + weights.n_seeds)
    for g in range(len(weights.groups)):
        first, length, source, stored_row = weights.groups[g]
        if source >= 0:
            start = size * (1 + source)
        else:
            start = stored_start + size * (-1 - source)
        coefficients = (weights.coefficients, first)
        add_chain(
            length,
            (buffer, start),
            size // width,
            coefficients,
            (K, 0),
            (buffer, stored_start + size * stored_row),
        )


@compiled()
def combine_rows(
    A: np.ndarray,
    a: int,
    start: int,
    B: PackedColumns,
    column: int,
    buffer: np.ndarray,
    K: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write the weighted sum of kernels between consecutive rows of A and of B into `out`.

    `buffer` and `K` are work arrays for `ROWS` rows. Rows of `out` are contiguous.
    """
    n_rows, n_columns = out.shape
    # Unpacked once, as each access counts a reference.
    packed, stride, parts, weights, max_panels = B
    across = parts.across
    last = column + n_columns
    end = -(-last // across)
    for panel in range(column // across, end, max_panels):
        panels = min(max_panels, end - panel)
        first = max(column, panel * across)
        stop = min(last, (panel + panels) * across)
        for i in range(0, n_rows, ROWS):
            rows = min(ROWS, n_rows - i)
            make_seeds(
                A, a, start + i, rows, packed, stride, panel, panels, parts, buffer
            )
            combine_seeds(weights, rows * panels * across, parts.width, buffer, K)
            for r in range(rows):
                offset = (r * panels - panel) * across + first
                for j in range(stop - first):
                    out[i + r, first - column + j] = K[offset + j]


@compiled()
def combine_tile(
    seeds: np.ndarray,
    weights: Weights,
    width: int,
    max_panels: int,
    buffer: np.ndarray,
    K: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write a block of the weighted kernel sum, made from `seeds`, into `out`.

    `seeds` has shape (n_seeds, a, b). Rows of `out` are contiguous. `max_panels`
    columns, a multiple of `width`, are processed at a time.
    """
    a, b = out.shape
    for i in range(a):
        for first in range(0, b, max_panels):
            n = min(max_panels, b - first)
            size = -(-n // width) * width
            for s in range(len(seeds)):
                for j in range(n):
                    buffer[size * (1 + s) + j] = seeds[s, i, first + j]
                for j in range(n, size):
                    buffer[size * (1 + s) + j] = 0
            combine_seeds(weights, size, width, buffer, K)
            for j in range(n):
                out[i, first + j] = K[j]


@compiled()
def apply_rows(
    A: np.ndarray,
    B: PackedColumns,
    buffer: np.ndarray,
    K: np.ndarray,
    beta: np.ndarray,
    forth: np.ndarray,
) -> None:
    """Add ``K beta`` to `forth`, (a, n); K between A and B is computed in blocks."""
    a, n = forth.shape
    packed, stride, parts, weights, max_panels = B
    across = parts.across
    end = stride // across
    for panel in range(0, end, max_panels):
        panels = min(max_panels, end - panel)
        first = panel * across
        size = panels * across
        for i in range(0, a, ROWS):
            rows = min(ROWS, a - i)
            make_seeds(A, a, i, rows, packed, stride, panel, panels, parts, buffer)
            combine_seeds(weights, rows * size, parts.width, buffer, K)
            for r in range(rows):
                for c in range(n):
                    forth[i + r, c] += _product(
                        K[r * size : (r + 1) * size], beta[c, first : first + size]
                    )


@compiled()
def multiply_rows(
    A: np.ndarray,
    B: PackedColumns,
    buffer: np.ndarray,
    K: np.ndarray,
    left_vectors: np.ndarray,
    w: np.ndarray,
    beta: np.ndarray,
    forth: np.ndarray,
    back: np.ndarray,
) -> None:
    """Write ``K beta`` to `forth`, and add ``K' (left_vectors + w K beta)`` to `back`.

    `beta` and `back` have shape (n, stride), `left_vectors` (a, n), and `forth` (a, n),
    or (0, n) if it is not requested.
    """
    n = len(back)
    a = len(left_vectors)
    packed, stride, parts, weights, max_panels = B
    across = parts.across
    end = stride // across
    for i in range(0, a, ROWS):
        rows = min(ROWS, a - i)
        for panel in range(0, end, max_panels):
            panels = min(max_panels, end - panel)
            make_seeds(A, a, i, rows, packed, stride, panel, panels, parts, buffer)
            combine_seeds(
                weights,
                rows * panels * across,
                parts.width,
                buffer,
                K[panel * across * ROWS :],
            )
        for r in range(rows):
            for c in range(n):
                x = left_vectors[i + r, c]
                if len(forth):
                    forth[i + r, c] = 0.0
                    for panel in range(0, end, max_panels):
                        first = panel * across
                        size = min(max_panels, end - panel) * across
                        start = first * ROWS + r * size
                        forth[i + r, c] += _product(
                            K[start : start + size], beta[c, first : first + size]
                        )
                    x += w[i + r] * forth[i + r, c]
                for panel in range(0, end, max_panels):
                    first = panel * across
                    size = min(max_panels, end - panel) * across
                    start = first * ROWS + r * size
                    _add_multiple(
                        K[start : start + size], x, back[c, first : first + size]
                    )


@compiled(fastmath=FAST)
def _product(x: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@compiled(fastmath=FAST)
def _add_multiple(x: np.ndarray, factor: float, total: np.ndarray) -> None:
    for j in range(len(total)):
        total[j] += factor * x[j]
