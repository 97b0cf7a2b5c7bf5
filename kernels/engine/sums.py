"""What the engine's inner step is made of: kernels from seeds, and their sums and products, all in registers.

A *strip* holds some columns of a few rows of a tile: for each vector of columns and each row one vector a kernel, side
by side, then one of the target kernel and, where rows have weights, one of the row's root. *Sums* are kept by vectors,
whose values are added at the end.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from learnkernels.kernels.compiled.compiler import emitted
from learnkernels.kernels.compiled.vectors import Value, Vectors, machine

LONGEST = 5
"""Most kernels of a run."""


def lengths() -> tuple[int, ...]:
    """Return how many kernels in a chain of doublings are made at a time: their sums stay in registers."""
    return (10, 5, 2, 1) if machine()[1] == 32 else (5, 3, 2, 1)


def side() -> int:
    """Return the side of the blocks of products whose sums the registers hold."""
    return LONGEST if machine()[1] == 32 else 3


def runs(p: int) -> np.ndarray:
    """Return where p kernels are cut into runs of at most `side`, the longer ones first, shape (n_runs + 1,)."""
    size, longer = divmod(p, n := -(-p // side()))
    return np.array([size * run + min(run, longer) for run in range(n + 1)])


def shapes() -> list[tuple[int, int]]:
    """Return the sizes of a run and of one before it that there can be."""
    longest = side()
    return [(m, n) for n in range(longest // 2 + 1, longest + 1) for m in (n - 1, n) if m > longest // 2]


@emitted
def make_kernels(
    v: Vectors, weighted: Value, length: Value, seeds: Value, seed_at: Value, strip: Value, at: Value, step: Value,
    columns: Value, offsets: Value, offset_at: Value, roots: Value, roots_at: Value, root: Value, sums: Value,
    sums_at: Value, kept: Value, kept_at: Value,
) -> None:  # fmt: skip
    """Write a chain of kernels of some columns of one row into a strip, and add their row sums.

    The first is a seed plus its offset, each other E (E + 2) of the one before, plus its own; `kept` gets what would
    follow the last. Beyond the last of the `columns` are zeros. With weights a kernel is multiplied by the roots of
    both weights, and its row sums by that of the column once more.
    """
    b = v.builder

    def chain(n: int, weighted: bool) -> None:
        total = [v.variable(v.constant(0)) for _ in range(n)]
        plus = [v.spread(offsets, b.add(offset_at, v.place(k))) for k in range(n)]
        two, none, own = v.constant(2), v.constant(0), v.splat(root)

        def make(i: Value, there: Value | None) -> None:
            on = b.mul(i, v.place(v.lanes))
            e, to = v.load(seeds, b.add(seed_at, on)), b.add(at, b.mul(i, step))
            beside = v.load(roots, b.add(roots_at, on)) if weighted else None
            both = b.fmul(own, beside) if weighted else None
            for k in range(n):
                z = b.fadd(e, plus[k])
                if weighted:
                    z = b.fmul(z, both)
                if there is not None:
                    z = b.select(there, z, none)
                v.store(z, strip, to, k)
                if weighted:
                    v.add_product(total[k], z, beside)
                else:
                    v.add(total[k], z)
                e = b.fmul(e, b.fadd(e, two))
            v.store(e, kept, b.add(kept_at, on))

        full, left = b.sdiv(columns, v.place(v.lanes)), b.srem(columns, v.place(v.lanes))
        with v.loop(full) as i:
            make(i, None)
        with v.loop(b.sdiv(b.add(left, v.place(v.lanes - 1)), v.place(v.lanes))):  # once, or not at all
            make(full, v.within(b.mul(full, v.place(v.lanes)), columns))
        for k in range(n):
            v.add_to_sums(total[k], sums, sums_at, k)

    v.cases(_either(v, length, weighted), {2 * n + w: partial(chain, n, bool(w)) for n in lengths() for w in (0, 1)})


@emitted
def make_target(
    v: Vectors, weighted: Value, U: Value, u_at: Value, V: Value, v_at: Value, v_step: Value, q: Value, strip: Value,
    at: Value, step: Value, vectors: Value, roots: Value, roots_at: Value, root: Value,
) -> None:  # fmt: skip
    """Write the target kernel of some columns of one row into a strip, and with weights the row's root."""
    b, own = v.builder, v.splat(root)

    def target(weighted: bool) -> None:
        with v.loop(vectors) as i:
            on, to = b.mul(i, v.place(v.lanes)), b.add(at, b.mul(i, step))
            total = v.variable(v.constant(0))
            with v.loop(q) as c:
                column = v.load(V, b.add(v_at, b.add(on, b.mul(c, v_step))))
                v.add_product(total, v.spread(U, b.add(u_at, c)), column)
            w = b.load(total)
            if weighted:
                w = b.fmul(w, b.fmul(own, v.load(roots, b.add(roots_at, on))))
                v.store(own, strip, to, 1)
            v.store(w, strip, to)

    v.cases(weighted, {w: partial(target, bool(w)) for w in (0, 1)})


@emitted
def add_triangle(
    v: Vectors, weighted: Value, size: Value, strip: Value, at: Value, target: Value, step: Value, rows: Value,
    vectors: Value, products: Value, products_at: Value, p: Value, targets: Value, targets_at: Value, columns: Value,
    columns_at: Value, columns_step: Value,
) -> None:  # fmt: skip
    """Add the products of a few kernels with each other and with the target kernel, and their column sums."""
    b = v.builder

    def triangle(n: int, weighted: bool) -> None:
        pairs = {(k, l): v.variable(v.constant(0)) for k in range(n) for l in range(k + 1)}
        with_target = [v.variable(v.constant(0)) for _ in range(n)]
        place = v.variable(at)
        with v.loop(vectors) as i:
            sums = [v.variable(v.constant(0)) for _ in range(n)]
            with v.loop(rows):
                here = b.load(place)
                w = v.load(strip, b.add(here, target))
                own = v.load(strip, b.add(here, target), 1) if weighted else None
                values = []
                for k in range(n):
                    x = v.load(strip, here, k)
                    values.append(x)
                    if weighted:
                        v.add_product(sums[k], x, own)
                    else:
                        v.add(sums[k], x)
                    v.add_product(with_target[k], x, w)
                    for l in range(k + 1):
                        v.add_product(pairs[k, l], x, values[l])
                b.store(b.add(here, step), place)
            for k in range(n):
                v.add_to_sums(sums[k], columns, b.add(columns_at, b.mul(i, columns_step)), k)
        _add_products(v, pairs, products, products_at, p)
        for k in range(n):
            v.add_to_sums(with_target[k], targets, targets_at, k)

    sizes = range(1, side() + 1)
    v.cases(_either(v, size, weighted), {2 * n + w: partial(triangle, n, bool(w)) for n in sizes for w in (0, 1)})


@emitted
def add_rectangle(
    v: Vectors, shape: Value, strip: Value, k_at: Value, l_at: Value, step: Value, count: Value, products: Value,
    products_at: Value, p: Value,
) -> None:  # fmt: skip
    """Add the products of a few kernels with a few others; a shape ``(m, n)`` is given as ``m LONGEST + n``."""
    b = v.builder

    def rectangle(m: int, n: int) -> None:
        pairs = {(k, l): v.variable(v.constant(0)) for k in range(m) for l in range(n)}
        with v.loop(count) as i:
            on = b.mul(i, step)
            first, second = b.add(k_at, on), b.add(l_at, on)
            values = [v.load(strip, second, l) for l in range(n)]
            for k in range(m):
                x = v.load(strip, first, k)
                for l in range(n):
                    v.add_product(pairs[k, l], x, values[l])
        _add_products(v, pairs, products, products_at, p)

    v.cases(shape, {m * LONGEST + n: partial(rectangle, m, n) for m, n in shapes()})


def _either(v: Vectors, number: Value, weighted: Value) -> Value:
    """Return one number for a number and whether there are weights."""
    return v.builder.add(v.builder.mul(number, v.place(2)), weighted)


def _add_products(v: Vectors, pairs: dict[tuple[int, int], Value], products: Value, at: Value, p: Value) -> None:
    """Add variables, by row and column from a place on, to products of p kernels."""
    b = v.builder
    for (k, l), kept in pairs.items():
        row = b.mul(b.mul(v.place(k), p), v.place(v.lanes))
        v.add_to_sums(kept, products, b.add(at, row), l)
