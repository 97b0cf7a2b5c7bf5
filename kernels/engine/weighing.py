"""The compiled step that adds up the kernels of a tile by their weights, without forming them."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.compiled.compiler import FAST, compiled

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
    number = seeds.dtype.type
    S, total = np.empty((p, b), dtype=seeds.dtype), np.empty(b, dtype=seeds.dtype)
    constant = 0.0
    seed_of, uses = np.full(p, -1), np.zeros(p, dtype=np.intp)
    for step in range(p):
        k, seed = order[step]
        constant += coefficients[k] * offset[k]
        seed_of[k] = seed
        if seed < 0:
            uses[half[k]] += 1
    for i in range(a):
        total[:] = number(constant)
        step = 0
        while step < p:
            k, seed = order[step]
            c0 = number(coefficients[k])
            step += 1
            if seed >= 0:
                _add(seeds[seed, i], c0, total)
                continue
            source = half[k]
            n, last, c1, c2, c3 = 1, k, number(0), number(0), number(0)
            while n < TOGETHER and step < p and order[step, 1] < 0 and half[order[step, 0]] == last and uses[last] == 1:
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
                _double(seeds[seed_of[source], i], n, c0, c1, c2, c3, S[last], total)
            else:
                _double(S[source], n, c0, c1, c2, c3, S[last], total)
        out[i, :] = total


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
