"""Innermost loops of `plain`, documented there, as vector instructions of LLVM.

Only this file uses internals of Numba and llvmlite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import signature
from math import factorial, log
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding import get_process_triple
from numba.core import cgutils, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from .cache import WITHOUT_SIMD
from .plain import CITYBLOCK, DIFFERING, ROWS, SQUARED

TESTED_NUMBA = (0, 63), (0, 69)
"""First tested release of Numba, and first untested one."""

if (
    WITHOUT_SIMD
    or numba.config.DISABLE_JIT
    or not TESTED_NUMBA[0] <= numba.version_info.short < TESTED_NUMBA[1]
):
    raise ImportError(
        f"the vector code is switched off, or not tested with Numba {numba.__version__}"
    )

Value = Any
"""Result of an LLVM instruction."""


def _vector_registers() -> tuple[int, int]:
    features = numba.config.CPU_FEATURES
    if features is None:
        features = get_host_cpu_features()
    if "+avx512f" in features:
        return 64, 32
    if get_process_triple().startswith(("aarch64", "arm64")):
        return 16, 32
    if "+avx2" in features:
        return 32, 16
    return 16, 16


VECTOR_BYTES, N_REGISTERS = _vector_registers()

if N_REGISTERS == 32:
    PANEL_VECTORS = 4
    CHAIN_LENGTHS: tuple[int, ...] = (10, 5, 2, 1)
    LONGEST_RUN = 5
else:
    PANEL_VECTORS = 2
    CHAIN_LENGTHS = (5, 3, 2, 1)
    LONGEST_RUN = 3

EXPONENTIAL_VECTORS = 4
"""Number of vectors whose exponentials are computed together."""

CHAIN_VECTORS = 6
"""Number of vectors whose kernels are computed together."""

LEAST_EXPONENT = -40.0
"""Exponent at which exp(x) - 1 is -1 up to rounding."""

LOG_2 = {
    52: (float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45")),
    23: (float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cf79abcap-20")),
}
"""Two parts of log(2); multiples of the first are exact."""


def lanes(dtype: np.dtype[Any]) -> int:
    return VECTOR_BYTES // dtype.itemsize


def emitted(write: Callable[..., None]) -> Callable[..., None]:
    """Return a function for compiled code, whose instructions `write` emits.

    `write` takes `Vectors`, then pointers for arrays and places, or numbers.
    """

    def define(_: Any, *kinds: Any) -> Any:
        return types.void(*kinds), partial(_call_emitted, write)

    define.__name__ = write.__name__
    define.__signature__ = signature(write)  # type: ignore[attr-defined]
    return intrinsic(define)


def _call_emitted(
    write: Callable[..., None],
    context: Any,
    builder: Any,
    signature: Any,
    arguments: Sequence[Value],
) -> Value:
    """Emit a call of a function, defined once per module."""
    pointers = [
        _as_pointer(context, builder, kind, value)
        for kind, value in zip(signature.args, arguments, strict=True)
    ]
    dtype = next(
        _array_type(kind).dtype
        for kind in signature.args
        if isinstance(_array_type(kind), types.Array)
    )
    name = f"{write.__name__}.{dtype}"
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in pointers])
        function = ir.Function(builder.module, kind, name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        inner_builder = ir.IRBuilder(function.append_basic_block("entry"))
        write(Vectors(inner_builder, dtype), *function.args)
        inner_builder.ret_void()
    builder.call(function, pointers)
    return context.get_dummy_value()


def _array_type(kind: Any) -> Any:
    return kind[0] if isinstance(kind, types.containers.Tuple) else kind


def _as_pointer(context: Any, builder: Any, kind: Any, value: Value) -> Value:
    """Return a pointer to an array or place, or a number."""
    if isinstance(kind, types.containers.Tuple):
        start = _as_pointer(context, builder, kind[0], builder.extract_value(value, 0))
        return builder.gep(start, [builder.extract_value(value, 1)])
    if isinstance(kind, types.Array):
        return context.make_array(kind)(context, builder, value).data
    return value


class Vectors:
    """Emitter of instructions on vectors of float64 or float32."""

    def __init__(self, builder: Any, dtype: Any) -> None:
        self.builder = builder
        self.lanes = VECTOR_BYTES * 8 // dtype.bitwidth
        self.is_double = dtype.bitwidth == 64
        self.number = ir.DoubleType() if self.is_double else ir.FloatType()
        self.digits = 52 if self.is_double else 23
        self.vector = ir.VectorType(self.number, self.lanes)
        self.double = ir.VectorType(ir.DoubleType(), self.lanes)
        self.bits = ir.VectorType(ir.IntType(dtype.bitwidth), self.lanes)

    def constant(self, value: float) -> Value:
        return ir.Constant(
            self.vector, [ir.Constant(self.number, float(value))] * self.lanes
        )

    def integer(self, value: int) -> Value:
        """Return a vector of equal integers."""
        return ir.Constant(self.bits, [self.bits.element(value)] * self.lanes)

    @contextmanager
    def loop(self, n: Value) -> Iterator[Value]:
        """Emit a loop of n steps, and yield its counter."""
        with cgutils.for_range(self.builder, n) as loop:
            yield loop.index

    def in_groups(
        self, n: Value, size: int, write: Callable[[Value, int], None]
    ) -> None:
        """Emit loops over n vectors, `size` at a time, then one by one.

        `write` takes a place and a number of vectors.
        """
        build = self.builder
        n_groups = build.sdiv(n, self.place(size))
        with self.loop(n_groups) as step:
            write(build.mul(step, self.place(size * self.lanes)), size)
        done = build.mul(n_groups, self.place(size))
        with self.loop(build.sub(n, done)) as step:
            write(build.mul(build.add(done, step), self.place(self.lanes)), 1)

    def cases(self, value: Value, writers: dict[int, Callable[[], None]]) -> None:
        """Emit a switch on a number, with one emitter of code per value."""
        end = self.builder.append_basic_block("end")
        switch = self.builder.switch(value, end)
        for number, write in writers.items():
            block = self.builder.append_basic_block("case")
            switch.add_case(self.place(number), block)
            self.builder.position_at_end(block)
            write()
            self.builder.branch(end)
        self.builder.position_at_end(end)

    def pair_of(self, first: Value, n_seconds: int, second: Value) -> Value:
        return self.builder.add(self.builder.mul(first, self.place(n_seconds)), second)

    def place(self, n: int) -> Value:
        return ir.IntType(64)(n)

    def plus(self, place: Value, n: int) -> Value:
        """Return the position n vectors after `place`."""
        if n == 0:
            return place
        return self.builder.add(place, self.place(n * self.lanes))

    def _at(self, base: Value, place: Value, kind: Any) -> Value:
        return self.builder.bitcast(self.builder.gep(base, [place]), kind.as_pointer())

    def load(self, base: Value, place: Value, n: int = 0) -> Value:
        """Return the vector stored n vectors after `place`."""
        value = self.builder.load(self._at(base, self.plus(place, n), self.vector))
        value.align = 8 if self.is_double else 4
        return value

    def store(self, value: Value, base: Value, place: Value, n: int = 0) -> None:
        """Store a vector n vectors after `place`."""
        pointer = self._at(base, self.plus(place, n), value.type)
        self.builder.store(
            value, pointer, align=8 if value.type.element == ir.DoubleType() else 4
        )

    def spread(self, base: Value, place: Value) -> Value:
        return self.splat(self.builder.load(self.builder.gep(base, [place])))

    def splat(self, value: Value) -> Value:
        """Return a vector of equal values."""
        undefined = ir.Constant(ir.VectorType(value.type, self.lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, value, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, zeros)

    def variable(self, value: Value) -> Value:
        """Return an initialized variable, in a register if possible."""
        variable = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, variable)
        return variable

    def zeros(self) -> Value:
        return self.variable(self.constant(0))

    def add(self, variable: Value, value: Value) -> None:
        self.builder.store(
            self.builder.fadd(self.builder.load(variable), value), variable
        )

    def add_product(self, variable: Value, x: Value, y: Value) -> None:
        self.builder.store(self.fused(x, y, self.builder.load(variable)), variable)

    def fused(self, x: Value, y: Value, z: Value) -> Value:
        """Return ``x y + z``, fused if the CPU supports it."""
        return self.builder.fadd(
            self.builder.fmul(x, y, flags=("contract",)), z, flags=("contract",)
        )

    def add_to_sums(self, variable: Value, sums: Value, place: Value, n: int) -> None:
        """Add a variable to float64 sums, n vectors after `place`."""
        value = self.builder.load(variable)
        if not self.is_double:
            value = self.builder.fpext(value, self.double)
        before = self.builder.load(self._at(sums, self.plus(place, n), self.double))
        before.align = 8
        self.store(self.builder.fadd(before, value), sums, place, n)

    def within(self, first: Value, n: Value) -> Value:
        """Return a mask of the positions from `first` on that are below n."""
        kind = ir.VectorType(ir.IntType(64), self.lanes)
        positions = ir.Constant(
            kind, [ir.IntType(64)(lane) for lane in range(self.lanes)]
        )
        return self.builder.icmp_signed(
            "<", positions, self.splat(self.builder.sub(n, first))
        )

    def absolute(self, x: Value) -> Value:
        bits_without_sign = self.digits + (11 if self.is_double else 8)
        bits = self.builder.and_(
            self.builder.bitcast(x, self.bits), self.integer(2**bits_without_sign - 1)
        )
        return self.builder.bitcast(bits, self.vector)

    def least(self, x: Value, y: Value) -> Value:
        return self.builder.select(self.builder.fcmp_ordered("<", x, y), x, y)

    def greatest(self, x: Value, y: Value) -> Value:
        return self.builder.select(self.builder.fcmp_ordered(">", x, y), x, y)

    def between_zero_and(self, bound: Value, x: Value) -> Value:
        """Return x, clipped between zero and a bound of any sign."""
        zero = self.constant(0)
        return self.least(
            self.greatest(x, self.least(bound, zero)), self.greatest(bound, zero)
        )

    def sign(self, x: Value) -> Value:
        is_negative = self.builder.fcmp_ordered("<", x, self.constant(0))
        return self.builder.select(is_negative, self.constant(-1), self.constant(1))

    def root(self, x: Value) -> Value:
        bits = 64 if self.is_double else 32
        kind = ir.FunctionType(self.vector, [self.vector])
        name = f"llvm.sqrt.v{self.lanes}f{bits}"
        square_root = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(square_root, [x])

    def exponentials_less_one(self, xs: Sequence[Value]) -> list[Value]:
        r"""Return :math:`e^x - 1` for x <= 0, to two units in the last place."""
        build = self.builder
        digits = self.digits
        smallest = self.constant(LEAST_EXPONENT)
        # Keeps NaN.
        xs = [
            build.select(build.fcmp_ordered("<", x, smallest), smallest, x) for x in xs
        ]
        # Adding this number moves the nearest integer into the last bits.
        rounder = self.constant(1.5 * 2.0**digits)
        high, low = LOG_2[digits]
        rounded = [self.fused(x, self.constant(1 / log(2)), rounder) for x in xs]
        k = [build.fsub(m, rounder) for m in rounded]
        r = [self.fused(n, self.constant(-high), x) for n, x in zip(k, xs, strict=True)]
        r = [self.fused(n, self.constant(-low), x) for n, x in zip(k, r, strict=True)]
        bits_of_one = self.integer((1023 if self.is_double else 127) << digits)
        exponents = [
            build.shl(build.bitcast(m, self.bits), self.integer(digits))
            for m in rounded
        ]
        powers = [
            build.bitcast(build.add(exponent, bits_of_one), self.vector)
            for exponent in exponents
        ]
        polynomials = self._polynomials(r)
        return [
            self.fused(power, polynomial, build.fsub(power, self.constant(1)))
            for power, polynomial in zip(powers, polynomials, strict=True)
        ]

    def _polynomials(self, rs: Sequence[Value]) -> list[Value]:
        """Return ``e^r - 1`` for ``|r| <= log(2) / 2``, from even and odd powers."""
        squares = [self.builder.fmul(r, r) for r in rs]
        degree = 13 if self.is_double else 7
        odd = [self.constant(1 / factorial(degree))] * len(rs)
        even = [self.constant(1 / factorial(degree - 1))] * len(rs)
        for power in range(degree - 2, 1, -2):
            for half, exponent in ((odd, power), (even, power - 1)):
                coefficient = self.constant(1 / factorial(exponent))
                half[:] = [
                    self.fused(p, square, coefficient)
                    for p, square in zip(half, squares, strict=True)
                ]
        sums = [self.fused(o, r, e) for o, r, e in zip(odd, rs, even, strict=True)]
        return [
            self.fused(square, q, r)
            for square, q, r in zip(squares, sums, rs, strict=True)
        ]


@emitted
def write_distances(
    v: Vectors,
    rows: Value,
    code: Value,
    left: Value,
    right: Value,
    d: Value,
    weights: Value,
    out: Value,
    stride: Value,
) -> None:
    build = v.builder

    def loops(n_rows: int, kind: int) -> None:
        sums = {(r, q): v.zeros() for r in range(n_rows) for q in range(PANEL_VECTORS)}
        with v.loop(d) as c:
            place = build.mul(c, v.place(PANEL_VECTORS * v.lanes))
            ys = [v.load(right, place, q) for q in range(PANEL_VECTORS)]
            weight = v.spread(weights, c) if kind == DIFFERING else None
            for r in range(n_rows):
                x = v.spread(left, build.add(build.mul(v.place(r), d), c))
                for q, y in enumerate(ys):
                    if kind == DIFFERING:
                        differs = build.fcmp_unordered("!=", x, y)
                        v.add(sums[r, q], build.select(differs, weight, v.constant(0)))
                        continue
                    difference = build.fsub(x, y)
                    if kind == SQUARED:
                        v.add_product(sums[r, q], difference, difference)
                    else:
                        v.add(sums[r, q], v.absolute(difference))
        for (r, q), total in sums.items():
            v.store(build.load(total), out, build.mul(v.place(r), stride), q)

    kinds = (SQUARED, CITYBLOCK, DIFFERING)
    shapes = [(n_rows, kind) for n_rows in (ROWS, 1) for kind in kinds]
    v.cases(
        v.pair_of(rows, len(kinds), code),
        {
            len(kinds) * n_rows + kind: partial(loops, n_rows, kind)
            for n_rows, kind in shapes
        },
    )


@emitted
def subtract_common(
    v: Vectors,
    code: Value,
    left: Value,
    right: Value,
    d: Value,
    differing: Value,
    n: Value,
    out: Value,
    panels: Value,
) -> None:
    build = v.builder
    across = v.place(PANEL_VECTORS * v.lanes)

    def loops(kind: int) -> None:
        with v.loop(panels) as p:
            to = build.mul(p, across)
            first_feature = build.mul(p, d)
            sums = [v.variable(v.load(out, to, q)) for q in range(PANEL_VECTORS)]
            with v.loop(n) as i:
                c = build.load(build.gep(differing, [i]))
                place = build.mul(build.add(first_feature, c), across)
                x = v.spread(left, c)
                factor = build.fmul(v.constant(-2), x if kind == SQUARED else v.sign(x))
                for q in range(PANEL_VECTORS):
                    common = v.load(right, place, q)
                    if kind == CITYBLOCK:
                        common = v.between_zero_and(x, common)
                    v.add_product(sums[q], factor, common)
            for q, variable in enumerate(sums):
                v.store(build.load(variable), out, to, q)

    v.cases(code, {kind: partial(loops, kind) for kind in (SQUARED, CITYBLOCK)})


@emitted
def write_expm1(
    v: Vectors, distances: Value, factor: Value, rooted: Value, out: Value, n: Value
) -> None:
    build = v.builder
    scale = v.splat(factor)

    def write(takes_roots: bool, place: Value, size: int) -> None:
        values = [v.load(distances, place, q) for q in range(size)]
        if takes_roots:
            values = [v.root(value) for value in values]
        xs = [build.fmul(scale, value) for value in values]
        for q, value in enumerate(v.exponentials_less_one(xs)):
            v.store(value, out, place, q)

    def write_all(takes_roots: bool) -> None:
        v.in_groups(n, EXPONENTIAL_VECTORS, partial(write, takes_roots))

    is_rooted = build.zext(rooted, ir.IntType(64))
    v.cases(is_rooted, {0: partial(write_all, False), 1: partial(write_all, True)})


@emitted
def add_chain(
    v: Vectors,
    length: Value,
    seeds: Value,
    n: Value,
    coefficients: Value,
    total: Value,
    following: Value,
) -> None:
    build = v.builder
    two = v.constant(2)

    def write(place: Value, size: int) -> None:
        kernels = [v.variable(v.load(seeds, place, q)) for q in range(size)]
        sums = [v.variable(v.load(total, place, q)) for q in range(size)]
        with v.loop(length) as k:
            coefficient = v.spread(coefficients, k)
            for q in range(size):
                x = build.load(kernels[q])
                v.add_product(sums[q], coefficient, x)
                build.store(build.fmul(x, build.fadd(x, two)), kernels[q])
        for q in range(size):
            v.store(build.load(sums[q]), total, place, q)
            v.store(build.load(kernels[q]), following, place, q)

    v.in_groups(n, CHAIN_VECTORS, write)


@emitted
def make_kernels(
    v: Vectors,
    length: Value,
    weighted: Value,
    seeds: Value,
    strip: Value,
    step: Value,
    columns: Value,
    offsets: Value,
    roots: Value,
    root: Value,
    row_sums: Value,
    following: Value,
) -> None:
    build = v.builder
    one_vector = v.place(v.lanes)

    def chain(n: int, has_weights: bool) -> None:
        totals = [v.zeros() for _ in range(n)]
        kernel_offsets = [v.spread(offsets, v.place(k)) for k in range(n)]
        two = v.constant(2)
        zero = v.constant(0)
        row_root = v.splat(root)

        def make(i: Value, mask: Value | None) -> None:
            place = build.mul(i, one_vector)
            kernel = v.load(seeds, place)
            to = build.mul(i, step)
            if has_weights:
                column_root = v.load(roots, place)
                both_roots = build.fmul(row_root, column_root)
            for k in range(n):
                value = build.fadd(kernel, kernel_offsets[k])
                if has_weights:
                    value = build.fmul(value, both_roots)
                if mask is not None:
                    value = build.select(mask, value, zero)
                v.store(value, strip, to, k)
                if has_weights:
                    v.add_product(totals[k], value, column_root)
                else:
                    v.add(totals[k], value)
                kernel = build.fmul(kernel, build.fadd(kernel, two))
            v.store(kernel, following, place)

        n_full = build.sdiv(columns, one_vector)
        rest = build.srem(columns, one_vector)
        with v.loop(n_full) as i:
            make(i, None)
        has_rest = build.sdiv(build.add(rest, v.place(v.lanes - 1)), one_vector)
        with v.loop(has_rest):
            make(n_full, v.within(build.mul(n_full, one_vector), columns))
        for k in range(n):
            v.add_to_sums(totals[k], row_sums, v.place(0), k)

    shapes = [(n, has_weights) for n in CHAIN_LENGTHS for has_weights in (False, True)]
    v.cases(
        v.pair_of(length, 2, weighted),
        {
            2 * n + has_weights: partial(chain, n, has_weights)
            for n, has_weights in shapes
        },
    )


@emitted
def make_target(
    v: Vectors,
    weighted: Value,
    row_targets: Value,
    column_targets: Value,
    target_step: Value,
    n_outputs: Value,
    strip: Value,
    step: Value,
    vectors: Value,
    roots: Value,
    root: Value,
) -> None:
    build = v.builder
    row_root = v.splat(root)

    def target(has_weights: bool) -> None:
        with v.loop(vectors) as i:
            place = build.mul(i, v.place(v.lanes))
            to = build.mul(i, step)
            total = v.zeros()
            with v.loop(n_outputs) as c:
                column_target = v.load(
                    column_targets, build.add(place, build.mul(c, target_step))
                )
                v.add_product(total, v.spread(row_targets, c), column_target)
            product = build.load(total)
            if has_weights:
                product = build.fmul(
                    product, build.fmul(row_root, v.load(roots, place))
                )
                v.store(row_root, strip, to, 1)
            v.store(product, strip, to)

    v.cases(weighted, {0: partial(target, False), 1: partial(target, True)})


@emitted
def add_triangle(
    v: Vectors,
    size: Value,
    weighted: Value,
    strip: Value,
    target: Value,
    step: Value,
    rows: Value,
    vectors: Value,
    products: Value,
    p: Value,
    target_products: Value,
    column_sums: Value,
) -> None:
    build = v.builder

    def triangle(n: int, has_weights: bool) -> None:
        pairs = {(k, l): v.zeros() for k in range(n) for l in range(k + 1)}
        with_target = [v.zeros() for _ in range(n)]
        place = v.variable(v.place(0))
        with v.loop(vectors) as i:
            sums = [v.zeros() for _ in range(n)]
            with v.loop(rows):
                row_place = build.load(place)
                target_kernel = v.load(target, row_place)
                if has_weights:
                    row_root = v.load(target, row_place, 1)
                kernels: list[Value] = []
                for k in range(n):
                    x = v.load(strip, row_place, k)
                    kernels.append(x)
                    if has_weights:
                        v.add_product(sums[k], x, row_root)
                    else:
                        v.add(sums[k], x)
                    v.add_product(with_target[k], x, target_kernel)
                    for l in range(k + 1):
                        v.add_product(pairs[k, l], x, kernels[l])
                build.store(build.add(row_place, step), place)
            for k in range(n):
                v.add_to_sums(
                    sums[k],
                    column_sums,
                    build.mul(i, build.mul(p, v.place(v.lanes))),
                    k,
                )
        _add_products(v, pairs, products, p)
        for k in range(n):
            v.add_to_sums(with_target[k], target_products, v.place(0), k)

    shapes = [
        (n, has_weights)
        for n in range(1, LONGEST_RUN + 1)
        for has_weights in (False, True)
    ]
    v.cases(
        v.pair_of(size, 2, weighted),
        {
            2 * n + has_weights: partial(triangle, n, has_weights)
            for n, has_weights in shapes
        },
    )


@emitted
def add_rectangle(
    v: Vectors,
    n_left: Value,
    n_right: Value,
    left: Value,
    right: Value,
    step: Value,
    count: Value,
    products: Value,
    p: Value,
) -> None:
    build = v.builder

    def rectangle(m: int, n: int) -> None:
        pairs = {(k, l): v.zeros() for k in range(m) for l in range(n)}
        with v.loop(count) as i:
            place = build.mul(i, step)
            right_kernels = [v.load(right, place, l) for l in range(n)]
            for k in range(m):
                x = v.load(left, place, k)
                for l in range(n):
                    v.add_product(pairs[k, l], x, right_kernels[l])
        _add_products(v, pairs, products, p)

    n_sizes = LONGEST_RUN + 1
    v.cases(
        v.pair_of(n_left, n_sizes, n_right),
        {n_sizes * m + n: partial(rectangle, m, n) for m, n in _sizes_of_runs()},
    )


def _sizes_of_runs() -> list[tuple[int, int]]:
    """Return the sizes of two runs, which are about equal."""
    shortest = LONGEST_RUN // 2 + 1
    return [
        (m, n)
        for n in range(shortest, LONGEST_RUN + 1)
        for m in (n - 1, n)
        if m >= shortest
    ]


def _add_products(
    v: Vectors, pairs: dict[tuple[int, int], Value], products: Value, p: Value
) -> None:
    build = v.builder
    for (k, l), total in pairs.items():
        row = build.mul(build.mul(v.place(k), p), v.place(v.lanes))
        v.add_to_sums(total, products, row, l)
