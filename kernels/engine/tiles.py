"""The compiled inner step of the engine: from seeds of a tile to its sums, without forming the tile."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.engine.compiler import FAST, compiled
from learnkernels.kernels.engine.weighing import compile_weighing


def register_block(p: int) -> int:
    """Return the side, four or five, of the blocks of products kept in registers: what wastes fewest of them for p."""
    return min((5, 4), key=lambda side: side**2 * (-(-p // side)) * (-(-p // side) + 1))


def compile_tiles(dtype: np.dtype) -> None:
    """Compile the steps for tiles of a precision, some seconds, unless they are compiled already, here or on disk."""
    ones, sums = np.ones((1, 1), dtype=dtype), np.zeros((1, 1))
    order, half = np.zeros((1, 2), dtype=np.intp), np.full(1, -1)
    weights, G, T = np.empty(0, dtype=dtype), np.zeros((4, 4)), np.zeros(1)
    add_tile(ones[None], order, half, np.zeros(1), ones, ones, weights, weights, 4, G, T, sums, sums)
    compile_weighing(np.dtype(np.float64))


@compiled(fastmath=FAST)
def add_tile(  # noqa: C901  (one loop over rows, its body in four short loops)
    seeds: np.ndarray,
    order: np.ndarray,
    half: np.ndarray,
    offset: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    above: np.ndarray,
    beside: np.ndarray,
    block: int,
    G: np.ndarray,
    T: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
) -> None:
    """Add the sums of one tile, row by row; a row of all p kernels stays in the first-level cache.

    Parameters
    ----------
    seeds : ndarray of shape (n_seeds, a, b), float64 or float32
        Values that are given; not modified.
    order : ndarray of int of shape (p, 2)
        Pairs (kernel, seed), in an order in which `half` comes first; the seed is -1 for a kernel made by doubling.
    half : ndarray of int of shape (p,)
        For a kernel made by doubling, the kernel E it comes from, as E (E + 2).
    offset : ndarray of shape (p,)
        Constant added to each kernel at the end.
    U, V : ndarray of shape (a, q) and (q, b)
        Targets of the rows and of the columns, of the dtype of the seeds.
    above, beside : ndarray of shape (a,) and (b,)
        Weights of the rows and of the columns, of the same dtype; empty where each counts once.
    block : int
        Side of the blocks of products, `register_block(p)`.
    G, T : ndarray of float64 of shape (P, P) and (p,)
        Products of the kernels (below the diagonal; P is p rounded up to a multiple of `block`) and with the target
        kernel U V; added to.
    rows, columns : ndarray of float64 of shape (p, a) and (p, b)
        Row and column sums; added to.

    Notes
    -----
    Sums along one row have the precision of the seeds, all others float64.
    """
    p, a, b = len(order), seeds.shape[1], seeds.shape[2]
    S = np.zeros((len(G), b), dtype=seeds.dtype)
    w = np.zeros(b, dtype=seeds.dtype)
    roots = np.sqrt(beside)
    two = seeds.dtype.type(2)
    for i in range(a):
        for step in range(p):
            k, seed = order[step]
            z = S[k]
            if seed >= 0:
                given = seeds[seed, i]
                for n in range(b):
                    z[n] = given[n]
            else:
                e = S[half[k]]
                for n in range(b):
                    z[n] = e[n] * (e[n] + two)
        w[:] = 0
        for q in range(U.shape[1]):
            u, v = U[i, q], V[q]
            for n in range(b):
                w[n] += u * v[n]
        for k in range(p):
            z, c = S[k], columns[k]
            plus = seeds.dtype.type(offset[k])
            s = t = seeds.dtype.type(0)
            if len(above) == 0:
                for n in range(b):
                    z[n] += plus
                    s += z[n]
                    t += z[n] * w[n]
                    c[n] += z[n]
            else:
                # From here on z is each value times the root of both weights, whose products count pairs by both.
                own, root = above[i], np.sqrt(above[i])
                for n in range(b):
                    value = z[n] + plus
                    weighted = value * beside[n]
                    s += weighted
                    t += own * weighted * w[n]
                    c[n] += own * value
                    z[n] = value * root * roots[n]
            rows[k, i] += s
            T[k] += t
        for l in range(0, len(G), block):
            for k in range(l, len(G), block):
                if block == 5:
                    _add_products_5(S, k, l, b, G)
                else:
                    _add_products_4(S, k, l, b, G)


@compiled(fastmath=FAST)
def _add_products_4(S: np.ndarray, k: int, l: int, b: int, G: np.ndarray) -> None:
    """Add the products of 4 rows from k with 4 rows from l: 16 sums that stay in registers."""
    zero = S.dtype.type(0)
    s00 = s01 = s02 = s03 = zero
    s10 = s11 = s12 = s13 = zero
    s20 = s21 = s22 = s23 = zero
    s30 = s31 = s32 = s33 = zero
    x0, x1, x2, x3 = S[k], S[k + 1], S[k + 2], S[k + 3]
    y0, y1, y2, y3 = S[l], S[l + 1], S[l + 2], S[l + 3]
    for n in range(b):
        v0, v1, v2, v3 = y0[n], y1[n], y2[n], y3[n]
        u = x0[n]
        s00 += u * v0
        s01 += u * v1
        s02 += u * v2
        s03 += u * v3
        u = x1[n]
        s10 += u * v0
        s11 += u * v1
        s12 += u * v2
        s13 += u * v3
        u = x2[n]
        s20 += u * v0
        s21 += u * v1
        s22 += u * v2
        s23 += u * v3
        u = x3[n]
        s30 += u * v0
        s31 += u * v1
        s32 += u * v2
        s33 += u * v3
    G[k, l] += s00
    G[k, l + 1] += s01
    G[k, l + 2] += s02
    G[k, l + 3] += s03
    G[k + 1, l] += s10
    G[k + 1, l + 1] += s11
    G[k + 1, l + 2] += s12
    G[k + 1, l + 3] += s13
    G[k + 2, l] += s20
    G[k + 2, l + 1] += s21
    G[k + 2, l + 2] += s22
    G[k + 2, l + 3] += s23
    G[k + 3, l] += s30
    G[k + 3, l + 1] += s31
    G[k + 3, l + 2] += s32
    G[k + 3, l + 3] += s33


@compiled(fastmath=FAST)
def _add_products_5(S: np.ndarray, k: int, l: int, b: int, G: np.ndarray) -> None:
    """Add the products of 5 rows from k with 5 rows from l: 25 sums that stay in registers."""
    zero = S.dtype.type(0)
    s00 = s01 = s02 = s03 = s04 = zero
    s10 = s11 = s12 = s13 = s14 = zero
    s20 = s21 = s22 = s23 = s24 = zero
    s30 = s31 = s32 = s33 = s34 = zero
    s40 = s41 = s42 = s43 = s44 = zero
    x0, x1, x2, x3, x4 = S[k], S[k + 1], S[k + 2], S[k + 3], S[k + 4]
    y0, y1, y2, y3, y4 = S[l], S[l + 1], S[l + 2], S[l + 3], S[l + 4]
    for n in range(b):
        v0, v1, v2, v3, v4 = y0[n], y1[n], y2[n], y3[n], y4[n]
        u = x0[n]
        s00 += u * v0
        s01 += u * v1
        s02 += u * v2
        s03 += u * v3
        s04 += u * v4
        u = x1[n]
        s10 += u * v0
        s11 += u * v1
        s12 += u * v2
        s13 += u * v3
        s14 += u * v4
        u = x2[n]
        s20 += u * v0
        s21 += u * v1
        s22 += u * v2
        s23 += u * v3
        s24 += u * v4
        u = x3[n]
        s30 += u * v0
        s31 += u * v1
        s32 += u * v2
        s33 += u * v3
        s34 += u * v4
        u = x4[n]
        s40 += u * v0
        s41 += u * v1
        s42 += u * v2
        s43 += u * v3
        s44 += u * v4
    G[k, l] += s00
    G[k, l + 1] += s01
    G[k, l + 2] += s02
    G[k, l + 3] += s03
    G[k, l + 4] += s04
    G[k + 1, l] += s10
    G[k + 1, l + 1] += s11
    G[k + 1, l + 2] += s12
    G[k + 1, l + 3] += s13
    G[k + 1, l + 4] += s14
    G[k + 2, l] += s20
    G[k + 2, l + 1] += s21
    G[k + 2, l + 2] += s22
    G[k + 2, l + 3] += s23
    G[k + 2, l + 4] += s24
    G[k + 3, l] += s30
    G[k + 3, l + 1] += s31
    G[k + 3, l + 2] += s32
    G[k + 3, l + 3] += s33
    G[k + 3, l + 4] += s34
    G[k + 4, l] += s40
    G[k + 4, l + 1] += s41
    G[k + 4, l + 2] += s42
    G[k + 4, l + 3] += s43
    G[k + 4, l + 4] += s44
