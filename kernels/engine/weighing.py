"""The compiled step that adds up the kernels of a tile by their weights, without forming them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learnkernels.kernels.compiled.compiler import FAST, compiled
from learnkernels.kernels.compiled.distances import ROWS, exponentials, fill_strip

TOGETHER = 4
"""Most kernels in a chain of doublings that are made of one another in registers."""


def compile_weighing(dtype: np.dtype) -> None:
    """Compile the step for tiles of a precision, unless it is compiled already, here or on disk."""
    order, half = np.zeros((1, 2), dtype=np.intp), np.full(1, -1)
    for out in np.zeros((1, 1), dtype=dtype), np.zeros((2, 2), dtype=dtype)[:, :1]:  # a matrix, and part of one
        combine_tile(np.ones((1, 1, 1), dtype=dtype), order, half, np.zeros(1), np.ones(1), out)


@compiled(fastmath=FAST)
def combine_tile(
    seeds: np.ndarray,
    order: np.ndarray,
    half: np.ndarray,
    offset: np.ndarray,
    coefficients: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write the weighted sum of the kernels of one tile, row by row.

    Parameters
    ----------
    seeds, order, half, offset
        As in `add_tile`.
    coefficients : ndarray of float64 of shape (p,)
        Weight of each kernel.
    out : ndarray of shape (a, b), of the dtype of the seeds
        Written to.

    Notes
    -----
    Of kernels that are each made of the one before by doubling only the last of a few is kept, and that for the next
    few: the others stay in registers.
    """
    p, a, b = len(order), seeds.shape[1], seeds.shape[2]
    S, total = np.empty((p, b), dtype=seeds.dtype), np.empty(b, dtype=seeds.dtype)
    seed_of, uses = _origins(order, half)
    constant = seeds.dtype.type(np.sum(coefficients * offset))
    for i in range(a):
        total[:] = constant
        _add_kernels(seeds[:, i], order, half, seed_of, uses, coefficients, S, total)
        out[i, :] = total


@compiled()
def _origins(order: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the seed of each kernel, -1 of one that is made by doubling, and how many are made of it."""
    seed_of, uses = np.full(len(half), -1), np.zeros(len(half), dtype=np.intp)
    for k, seed in order:
        seed_of[k] = seed
        if seed < 0:
            uses[half[k]] += 1
    return seed_of, uses


@compiled(fastmath=FAST)
def _add_kernels(
    seeds: np.ndarray,
    order: np.ndarray,
    half: np.ndarray,
    seed_of: np.ndarray,
    uses: np.ndarray,
    coefficients: np.ndarray,
    S: np.ndarray,
    total: np.ndarray,
) -> None:
    """Add the kernels of one row by their weights, without their offsets; those that others are made of stay in S."""
    number, step = total.dtype.type, 0
    while step < len(order):
        k, seed = order[step]
        c0 = number(coefficients[k])
        step += 1
        if seed >= 0:
            _add(seeds[seed], c0, total)
            continue
        source = half[k]
        n, last, c1, c2, c3 = 1, k, number(0), number(0), number(0)
        while (
            n < TOGETHER
            and step < len(order)
            and order[step, 1] < 0
            and half[order[step, 0]] == last
            and uses[last] == 1
        ):
            last = order[step, 0]
            c = number(coefficients[last])
            if n == 1:
                c1 = c
            elif n == 2:
                c2 = c
            else:
                c3 = c
            n += 1
            step += 1
        if seed_of[source] >= 0:
            _double(seeds[seed_of[source]], n, c0, c1, c2, c3, S[last], total)
        else:
            _double(S[source], n, c0, c1, c2, c3, S[last], total)


class Parts(NamedTuple):
    """Rows in the form in which families take their distances, all of them one after the other in flat arrays.

    Each part has its seeds, and of the order of the kernels the run that follows from these; positions have one entry
    more than there are parts.

    Attributes
    ----------
    d, code : ndarray of int of shape (n_parts,)
        Features, and what is added for each, see `distances`.
    rooted : ndarray of bool of shape (n_parts,)
        Whether the root of a distance is meant.
    left, right, of_weights : ndarray of int of shape (n_parts + 1,)
        Where rows of either side, those of the right one `side_by_side`, and weights of features begin.
    seeds, kernels : ndarray of int of shape (n_parts + 1,)
        Where bandwidths, and steps of the order, begin.
    gammas, weights : ndarray
        Of all seeds, and of all features.
    """

    d: np.ndarray
    code: np.ndarray
    rooted: np.ndarray
    left: np.ndarray
    right: np.ndarray
    of_weights: np.ndarray
    seeds: np.ndarray
    kernels: np.ndarray
    gammas: np.ndarray
    weights: np.ndarray


@compiled()
def multiply_rows(
    A: np.ndarray,
    B: np.ndarray,
    parts: Parts,
    order: np.ndarray,
    half: np.ndarray,
    coefficients: np.ndarray,
    constant: float,
    width: int,
    across: int,
    room: np.ndarray,
    given: np.ndarray,
    w: np.ndarray,
    beta: np.ndarray,
    forth: np.ndarray,
    back: np.ndarray,
) -> None:
    """Multiply ``K beta``, and add ``K' (given + w K beta)``, a few rows of the kernel K at a time, which are not kept.

    Parameters
    ----------
    A, B : ndarray
        Rows of all `parts`: a of the left side, b of the right one, these laid out in vectors.
    parts : Parts
        Where these are, and what follows from their distances.
    order, half, coefficients, constant
        As in `add_tile`, and the sum of all offsets by their weights.
    width, across : int
        Values of a vector, and rows of B side by side.
    room : ndarray
        Place to work at: for `ROWS` rows of distances and as many of the kernel, then one of each kernel and seed.
    given : ndarray of shape (a, n)
        What the transposed kernel is multiplied by, beside products of the kernel.
    w : ndarray of shape (a,)
        Weights of the rows.
    beta : ndarray of shape (n, stride)
        A row a vector, b rounded up to whole panels, with zeros.
    forth : ndarray of shape (a, n), or of shape (0, n) where it is not asked for
        Written to: K beta.
    back : ndarray of shape (n, stride)
        Added to; what is beyond b has no meaning.
    """
    n, stride = back.shape
    a, p = len(given), len(half)
    strip = room[: ROWS * stride]
    K = room[ROWS * stride : 2 * ROWS * stride].reshape(ROWS, stride)
    S = room[2 * ROWS * stride : (2 * ROWS + p) * stride].reshape(p, stride)
    seeds = room[(2 * ROWS + p) * stride :]
    every = seeds[: len(parts.gammas) * stride].reshape(len(parts.gammas), stride)
    seed_of, uses = _origins(order, half)
    for i in range(0, a, ROWS):
        rows = min(ROWS, a - i)
        K[:] = constant
        for f in range(len(parts.d)):
            d, at, first = parts.d[f], parts.left[f] + i * parts.d[f], parts.right[f]
            weights = parts.weights[parts.of_weights[f] : parts.of_weights[f + 1]]
            code, rooted = parts.code[f], parts.rooted[f]
            fill_strip(A, at, rows, B, first, d, weights, code, rooted, width, across, stride, strip)
            steps = order[parts.kernels[f] : parts.kernels[f + 1]]
            for r in range(rows):
                for s in range(parts.seeds[f], parts.seeds[f + 1]):
                    exponentials(strip, r * stride, -parts.gammas[s], seeds, s * stride, stride // width)
                _add_kernels(every, steps, half, seed_of, uses, coefficients, S, K[r])
        for r in range(rows):
            for c in range(n):
                x = given[i + r, c]
                if len(forth):
                    forth[i + r, c] = _product(K[r], beta[c])
                    x += w[i + r] * forth[i + r, c]
                _add(K[r], x, back[c])


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


@compiled(fastmath=FAST)
def _double(
    e: np.ndarray, n: int, c0: float, c1: float, c2: float, c3: float, z: np.ndarray, total: np.ndarray
) -> None:
    """Double the bandwidth of a kernel n times, keep the last kernel in z, and add all by their weights."""
    two = e.dtype.type(2)
    if n == 1:
        for j in range(len(total)):
            x0 = e[j] * (e[j] + two)
            z[j] = x0
            total[j] += c0 * x0
    elif n == 2:
        for j in range(len(total)):
            x0 = e[j] * (e[j] + two)
            x1 = x0 * (x0 + two)
            z[j] = x1
            total[j] += c0 * x0 + c1 * x1
    elif n == 3:
        for j in range(len(total)):
            x0 = e[j] * (e[j] + two)
            x1 = x0 * (x0 + two)
            x2 = x1 * (x1 + two)
            z[j] = x2
            total[j] += c0 * x0 + c1 * x1 + c2 * x2
    else:
        for j in range(len(total)):
            x0 = e[j] * (e[j] + two)
            x1 = x0 * (x0 + two)
            x2 = x1 * (x1 + two)
            x3 = x2 * (x2 + two)
            z[j] = x3
            total[j] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
