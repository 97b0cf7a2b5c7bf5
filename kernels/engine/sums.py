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
    v: Vectors, case: Value, seeds: Value, strip: Value, step: Value, columns: Value, offsets: Value, roots: Value,
    root: Value, sums: Value, kept: Value,
) -> None:  # fmt: skip
    """Write a chain of kernels of some columns of one row into a strip, and add their row sums.

    The first is a seed plus its offset, each other E (E + 2) of the one before, plus its own; `kept` gets what would
    follow the last. Beyond the last of the `columns` are zeros. With weights a kernel is multiplied by the roots of
    both weights, and its row sums by that of the column once more. The `case` is twice the length, plus one with
    weights.
    """
    b = v.builder

    def chain(n: int, weighted: bool) -> None:
        total = [v.variable(v.constant(0)) for _ in range(n)]
        plus = [v.spread(offsets, v.place(k)) for k in range(n)]
        two, none, own = v.constant(2), v.constant(0), v.splat(root)

        def make(i: Value, there: Value | None) -> None:
            on = b.mul(i, v.place(v.lanes))
            e, to = v.load(seeds, on), b.mul(i, step)
            beside = v.load(roots, on) if weighted else None
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
            v.store(e, kept, on)

        full, left = b.sdiv(columns, v.place(v.lanes)), b.srem(columns, v.place(v.lanes))
        with v.loop(full) as i:
            make(i, None)
        with v.loop(b.sdiv(b.add(left, v.place(v.lanes - 1)), v.place(v.lanes))):  # once, or not at all
            make(full, v.within(b.mul(full, v.place(v.lanes)), columns))
        for k in range(n):
            v.add_to_sums(total[k], sums, v.place(0), k)

    v.cases(case, {2 * n + w: partial(chain, n, bool(w)) for n in lengths() for w in (0, 1)})


@emitted
def make_target(
    v: Vectors, weighted: Value, U: Value, V: Value, v_step: Value, q: Value, strip: Value, step: Value,
    vectors: Value, roots: Value, root: Value,
) -> None:  # fmt: skip
    """Write the target kernel of some columns of one row into a strip, and with weights the row's root."""
    b, own = v.builder, v.splat(root)

    def target(weighted: bool) -> None:
        with v.loop(vectors) as i:
            on, to = b.mul(i, v.place(v.lanes)), b.mul(i, step)
            total = v.variable(v.constant(0))
            with v.loop(q) as c:
                v.add_product(total, v.spread(U, c), v.load(V, b.add(on, b.mul(c, v_step))))
            w = b.load(total)
            if weighted:
                w = b.fmul(w, b.fmul(own, v.load(roots, on)))
                v.store(own, strip, to, 1)
            v.store(w, strip, to)

    v.cases(weighted, {w: partial(target, bool(w)) for w in (0, 1)})


@emitted
def add_triangle(
    v: Vectors, case: Value, strip: Value, target: Value, step: Value, rows: Value, vectors: Value, products: Value,
    p: Value, targets: Value, columns: Value,
) -> None:  # fmt: skip
    """Add the products of a few kernels with each other and with the target kernel, and their column sums.

    The `case` is twice the number of kernels, plus one with weights.
    """
    b = v.builder

    def triangle(n: int, weighted: bool) -> None:
        pairs = {(k, l): v.variable(v.constant(0)) for k in range(n) for l in range(k + 1)}
        with_target = [v.variable(v.constant(0)) for _ in range(n)]
        place = v.variable(v.place(0))
        with v.loop(vectors) as i:
            sums = [v.variable(v.constant(0)) for _ in range(n)]
            with v.loop(rows):
                here = b.load(place)
                w = v.load(target, here)
                own = v.load(target, here, 1) if weighted else None
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
                v.add_to_sums(sums[k], columns, b.mul(i, b.mul(p, v.place(v.lanes))), k)
        _add_products(v, pairs, products, p)
        for k in range(n):
            v.add_to_sums(with_target[k], targets, v.place(0), k)

    sizes = range(1, side() + 1)
    v.cases(case, {2 * n + w: partial(triangle, n, bool(w)) for n in sizes for w in (0, 1)})


@emitted
def add_rectangle(
    v: Vectors, shape: Value, these: Value, others: Value, step: Value, count: Value, products: Value, p: Value,
) -> None:  # fmt: skip
    """Add the products of a few kernels with a few others; a shape ``(m, n)`` is given as ``m LONGEST + n``."""
    b = v.builder

    def rectangle(m: int, n: int) -> None:
        pairs = {(k, l): v.variable(v.constant(0)) for k in range(m) for l in range(n)}
        with v.loop(count) as i:
            on = b.mul(i, step)
            values = [v.load(others, on, l) for l in range(n)]
            for k in range(m):
                x = v.load(these, on, k)
                for l in range(n):
                    v.add_product(pairs[k, l], x, values[l])
        _add_products(v, pairs, products, p)

    v.cases(shape, {m * LONGEST + n: partial(rectangle, m, n) for m, n in shapes()})


def _add_products(v: Vectors, pairs: dict[tuple[int, int], Value], products: Value, p: Value) -> None:
    """Add variables, by row and column, to products of p kernels."""
    b = v.builder
    for (k, l), kept in pairs.items():
        row = b.mul(b.mul(v.place(k), p), v.place(v.lanes))
        v.add_to_sums(kept, products, row, l)
