"""The compiled step that adds up the kernels of a tile by their weights, without forming them.

A few rows and some columns are taken at a time: their distances, the seeds made of these and the chains of kernels made
of the seeds stay in the first-level cache, and the kernels of a chain in registers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..compiled.cache import FAST, compiled
from ..compiled.distances import Parts, make_seeds
from ..compiled.loops import add_chain
from ..compiled.plain import ROWS

MOST_COLUMNS = 256
"""Columns that are added up at a time."""

MOST_VALUES = 1024
"""Values of a row that are at hand at a time: distances, seeds and what is kept; of `ROWS` rows a first-level cache."""


class Weights(NamedTuple):
    """What is added up: chains of kernels, in which each is made of the one before by doubling its bandwidth.

    Attributes
    ----------
    groups : ndarray of int of shape (n_chains, 4)
        See `learnkernels.kernels.engine.tiles.chains`; of any length.
    coefficients : ndarray of shape (p,)
        Weights of the kernels, in the order in which they are made, of the dtype of the seeds.
    constant : float
        The sum of all offsets by their weights.
    n_seeds, n_kept : int
        Values given for a pair, and values kept of it between chains.
    """

    groups: np.ndarray
    coefficients: np.ndarray
    constant: float
    n_seeds: int
    n_kept: int


class PackedColumns(NamedTuple):
    """The rows of the right side as they are read, and what is made of their distances to others.

    Attributes
    ----------
    rows : ndarray
        `pack_columns`.
    stride : int
        How many there are, with what fills the last panel.
    parts : Parts
        Their seeds.
    weights : Weights
        What is made of the seeds.
    most : int
        Panels at a time.
    """

    rows: np.ndarray
    stride: int
    parts: Parts
    weights: Weights
    most: int


@compiled()
def add_seeds(weights: Weights, size: int, width: int, room: np.ndarray, K: np.ndarray) -> None:
    """Write the weighted sum of kernels made of seeds, which stand in a room behind its first `size` values, into K.

    All of them are of `size` values, whole vectors; what is kept between chains comes behind the seeds.
    """
    K[:size] = weights.constant
    behind = size * (1 + weights.n_seeds)
    for g in range(len(weights.groups)):
        first, length, source, keep = weights.groups[g]
        at = size * (1 + source) if source >= 0 else behind + size * (-1 - source)
        add_chain(
            length,
            (room, at),
            size // width,
            (weights.coefficients, first),
            (K, 0),
            (room, behind + size * keep),
        )


@compiled()
def combine_rows(
    A: np.ndarray, a: int, start: int, B: PackedColumns, column: int, room: np.ndarray, K: np.ndarray, out: np.ndarray
) -> None:
    """Write the kernel between some rows, from `start` on, and some columns, from `column` on, into `out`.

    Parameters
    ----------
    A, a
        See `make_seeds`.
    start, column : int
        The first row of A, and the first one of B.
    B : Columns
        The other side.
    room, K : ndarray
        Places to work at: for the distances, seeds and what is kept of `ROWS` rows of them, and for their kernel.
    out : ndarray of shape (n_rows, n_columns)
        Written to; what is in a row stands side by side.
    """
    n_rows, n_columns = out.shape
    right, stride, parts, weights, most = B  # taken out of the record once, as each time counts a reference
    across, width, last = parts.across, parts.width, column + n_columns
    end = -(-last // across)
    for panel in range(column // across, end, most):
        panels = min(most, end - panel)
        first, stop = max(column, panel * across), min(last, (panel + panels) * across)
        for i in range(0, n_rows, ROWS):
            rows = min(ROWS, n_rows - i)
            make_seeds(A, a, start + i, rows, right, stride, panel, panels, parts, room)
            add_seeds(weights, rows * panels * across, width, room, K)
            for r in range(rows):
                at = (r * panels - panel) * across + first
                for j in range(stop - first):
                    out[i + r, first - column + j] = K[at + j]


@compiled()
def combine_tile(
    seeds: np.ndarray, weights: Weights, width: int, most: int, room: np.ndarray, K: np.ndarray, out: np.ndarray
) -> None:
    """Write the weighted sum of the kernels of one tile, whose seeds are given, into `out`.

    Parameters
    ----------
    seeds : ndarray of shape (n_seeds, a, b)
        Not modified.
    weights, width, room, K
        As for `combine_rows`.
    most : int
        Columns at a time, whole vectors.
    out : ndarray of shape (a, b), of the dtype of the seeds
        Written to; what is in a row stands side by side.
    """
    a, b = out.shape
    for i in range(a):
        for first in range(0, b, most):
            n = min(most, b - first)
            size = -(-n // width) * width
            for s in range(len(seeds)):
                for j in range(n):
                    room[size * (1 + s) + j] = seeds[s, i, first + j]
                for j in range(n, size):
                    room[size * (1 + s) + j] = 0
            add_seeds(weights, size, width, room, K)
            for j in range(n):
                out[i, first + j] = K[j]


@compiled()
def apply_rows(
    A: np.ndarray, B: PackedColumns, room: np.ndarray, K: np.ndarray, beta: np.ndarray, forth: np.ndarray
) -> None:
    """Add ``K beta`` to `forth`, of shape (a, n), a few rows and columns of the kernel K at a time, which are not kept.

    `beta` is as for `multiply_rows`, of the dtype of the kernel, all else as for `combine_rows`.
    """
    (a, n), (right, stride, parts, weights, most) = forth.shape, B
    across, width = parts.across, parts.width
    end = stride // across
    for panel in range(0, end, most):
        panels = min(most, end - panel)
        first, size = panel * across, panels * across
        for i in range(0, a, ROWS):
            rows = min(ROWS, a - i)
            make_seeds(A, a, i, rows, right, stride, panel, panels, parts, room)
            add_seeds(weights, rows * size, width, room, K)
            for r in range(rows):
                for c in range(n):
                    forth[i + r, c] += _product(K[r * size : (r + 1) * size], beta[c, first : first + size])


@compiled()
def multiply_rows(
    A: np.ndarray,
    B: PackedColumns,
    room: np.ndarray,
    K: np.ndarray,
    given: np.ndarray,
    w: np.ndarray,
    beta: np.ndarray,
    forth: np.ndarray,
    back: np.ndarray,
) -> None:
    """Multiply ``K beta``, and add ``K' (given + w K beta)``, a few rows of the kernel K at a time, which are not kept.

    Parameters
    ----------
    A, B, room
        As for `combine_rows`; of A there are a rows.
    K : ndarray
        Place to work at, for `ROWS` rows of all columns.
    given : ndarray of shape (a, n)
        What the transposed kernel is multiplied by, next to products of the kernel.
    w : ndarray of shape (a,)
        Weights of the rows.
    beta : ndarray of shape (n, stride)
        A row a vector, b rounded up to whole panels, with zeros.
    forth : ndarray of shape (a, n), or of shape (0, n) where it is not requested
        Written to: K beta.
    back : ndarray of shape (n, stride)
        Added to; what is beyond b has no meaning.
    """
    n, a, (right, stride, parts, weights, most) = len(back), len(given), B
    across, width = parts.across, parts.width
    end = stride // across
    for i in range(0, a, ROWS):
        rows = min(ROWS, a - i)
        for panel in range(0, end, most):
            panels = min(most, end - panel)
            make_seeds(A, a, i, rows, right, stride, panel, panels, parts, room)
            add_seeds(weights, rows * panels * across, width, room, K[panel * across * ROWS :])
        for r in range(rows):
            for c in range(n):
                x = given[i + r, c]
                if len(forth):
                    forth[i + r, c] = 0.0
                    for panel in range(0, end, most):
                        at, size = panel * across, min(most, end - panel) * across
                        row = K[at * ROWS + r * size : at * ROWS + (r + 1) * size]
                        forth[i + r, c] += _product(row, beta[c, at : at + size])
                    x += w[i + r] * forth[i + r, c]
                for panel in range(0, end, most):
                    at, size = panel * across, min(most, end - panel) * across
                    row = K[at * ROWS + r * size : at * ROWS + (r + 1) * size]
                    _add(row, x, back[c, at : at + size])


@compiled(fastmath=FAST)
def _product(x: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@compiled(fastmath=FAST)
def _add(e: np.ndarray, c: float, total: np.ndarray) -> None:
    for j in range(len(total)):
        total[j] += c * e[j]
