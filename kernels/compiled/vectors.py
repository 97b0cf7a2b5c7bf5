"""Vectors as wide as the machine has them, for loops whose code is written here and not left to the compiler.

Left to itself the compiler takes half of what many machines have, keeps too few sums in registers, and uses no vectors
across kernels. What is emitted here is LLVM's own language, the same for every machine: vectors that one does not have
become several of those that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from inspect import signature
from math import factorial, log
from typing import Any

import numpy as np

Value = Any
"""A value, or the place of one, in code that is being written."""

WIDEST = 64
"""Most bytes of a vector."""

LEAST_EXPONENT = -40.0
"""Where the exponential less one is minus one up to rounding."""

LOG_2 = {
    digits: (float.fromhex(high), float.fromhex(low))
    for digits, high, low in (
        (52, "0x1.62e42fefa3800p-1", "0x1.ef35793c76730p-45"),
        (23, "0x1.62e4p-1", "0x1.7f7d1cf79abcap-20"),
    )
}
"""The logarithm of two in two parts, by the digits of a value: whole multiples of the first have no rounding."""


def numba_settings() -> Any:
    """Return the settings of Numba, which is loaded; ValueError where it refuses those of the environment.

    NUMBA_DISABLE_JIT ends with that: loops that write their own code have no form that Python runs.
    """
    try:
        from numba import config
    except ValueError as error:
        raise ValueError(
            "NUMBA_NUM_THREADS must be a whole number above 0; correct it in the environment, or unset it."
        ) from error
    config.DISABLE_JIT = 0
    return config


@cache
def simd_registers() -> tuple[int, int]:
    """Return the bytes of a vector on the machine that code is compiled for, and how many vectors registers hold."""
    numba_settings()
    from numba.core.registry import cpu_target

    triple, _, features = cpu_target.target_context.codegen().magic_tuple()[:3]
    if "+avx512f" in features:
        return WIDEST, 32
    if triple.startswith(("aarch64", "arm64")):
        return 16, 32
    return (32 if "+avx2" in features else 16), 16


def lanes(dtype: np.dtype[Any]) -> int:
    """Return how many values a vector holds."""
    return simd_registers()[0] // dtype.itemsize


def room(n: int, dtype: Any) -> np.ndarray:
    """Return a flat array of n values, not set, that begins where a vector does and has one to spare behind it."""
    size = np.dtype(dtype).itemsize
    held = np.empty(n + 2 * WIDEST // size, dtype=dtype)
    return held[(-held.ctypes.data % WIDEST) // size :][: n + WIDEST // size]


def written(write: Callable[..., None], kinds: Sequence[Any]) -> tuple[Any, Callable[..., Any]]:
    """Return the signature of a function of arguments of these types of Numba, and what calls it in code.

    See `emitted` for what writes it.
    """
    from llvmlite import ir
    from numba.core import types
    from numba.core.types.containers import Tuple

    declared = [parameter.annotation for parameter in signature(write).parameters.values()][1:]
    literals = [kind.literal_value if kind_of == "int" else None for kind, kind_of in zip(kinds, declared, strict=True)]
    arrays = [kind[0] if isinstance(kind, Tuple) else kind for kind in kinds]
    vectors_of = next(kind.dtype for kind in arrays if isinstance(kind, types.Array))

    def call(context: Any, builder: Any, of: Any, arguments: Sequence[Value]) -> Value:
        def handed(kind: Any, value: Value) -> Value:
            if isinstance(kind, Tuple):
                start = handed(kind[0], builder.extract_value(value, 0))
                return builder.gep(start, [builder.extract_value(value, 1)])
            return context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value

        given = [handed(kind, value) for kind, value in zip(of.args, arguments, strict=True)]
        name = ".".join([write.__name__, str(vectors_of), *(str(n) for n in literals if n is not None)])
        function = builder.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
            function = ir.Function(builder.module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            own = ir.IRBuilder(function.append_basic_block("entry"))
            values = [value if n is None else n for value, n in zip(function.args, literals, strict=True)]
            write(Vectors(context, own, vectors_of), *values)
            own.ret_void()
        builder.call(function, given)
        return context.get_dummy_value()

    return types.void(*kinds), call


class Vectors:
    """Writes code on vectors of float64 or float32 at places in flat arrays.

    Parameters
    ----------
    context, builder
        Of Numba, as a function that is emitted gets them.
    dtype
        Numba's type of the values.
    """

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        from llvmlite import ir

        self.ir, self.context, self.builder = ir, context, builder
        self.lanes = simd_registers()[0] * 8 // dtype.bitwidth
        self.number = ir.DoubleType() if dtype.bitwidth == 64 else ir.FloatType()
        self.vector, self.double = ir.VectorType(self.number, self.lanes), ir.VectorType(ir.DoubleType(), self.lanes)
        self.bits = ir.VectorType(ir.IntType(dtype.bitwidth), self.lanes)
        self.is_double = dtype.bitwidth == 64
        self.digits = 52 if self.is_double else 23

    def constant(self, value: float) -> Value:
        """Return a vector of one number."""
        return self.ir.Constant(self.vector, [self.ir.Constant(self.number, float(value))] * self.lanes)

    def whole(self, value: int) -> Value:
        """Return a vector of one whole number, of the bits of a value."""
        return self.ir.Constant(self.bits, [self.bits.element(value)] * self.lanes)

    @contextmanager
    def loop(self, n: Value) -> Iterator[Value]:
        """Write a loop over n steps; gives the step."""
        from numba.core import cgutils

        with cgutils.for_range(self.builder, n) as loop:
            yield loop.index

    def in_groups(self, n: Value, together: int, write: Callable[[Value, int], None]) -> None:
        """Write loops over n vectors: so many at a time, then the rest one by one; `write` takes place and number."""
        b, full = self.builder, self.builder.sdiv(n, self.place(together))
        with self.loop(full) as step:
            write(b.mul(step, self.place(together * self.lanes)), together)
        done = b.mul(full, self.place(together))
        with self.loop(b.sub(n, done)) as step:
            write(b.mul(b.add(done, step), self.place(self.lanes)), 1)

    def cases(self, value: Value, of: dict[int, Callable[[], None]]) -> None:
        """Write code for some values of a number; none for others."""
        end = self.builder.append_basic_block("end")
        choice = self.builder.switch(value, end)
        for number, write in of.items():
            block = self.builder.append_basic_block("case")
            choice.add_case(self.place(number), block)
            self.builder.position_at_end(block)
            write()
            self.builder.branch(end)
        self.builder.position_at_end(end)

    def place(self, n: int) -> Value:
        """Return a number of values or vectors."""
        return self.ir.IntType(64)(n)

    def plus(self, place: Value, n: int) -> Value:
        """Return a place so many vectors on."""
        return self.builder.add(place, self.place(n * self.lanes)) if n else place

    def _at(self, base: Value, place: Value, kind: Any) -> Value:
        return self.builder.bitcast(self.builder.gep(base, [place]), kind.as_pointer())

    def load(self, base: Value, place: Value, n: int = 0) -> Value:
        """Return the vector at a place, or so many vectors on."""
        value = self.builder.load(self._at(base, self.plus(place, n), self.vector))
        value.align = 8 if self.is_double else 4
        return value

    def store(self, value: Value, base: Value, place: Value, n: int = 0) -> None:
        """Write a vector."""
        pointer = self._at(base, self.plus(place, n), value.type)
        self.builder.store(value, pointer, align=8 if value.type.element == self.ir.DoubleType() else 4)

    def spread(self, base: Value, place: Value) -> Value:
        """Return a vector of the one value at a place."""
        return self.splat(self.builder.load(self.builder.gep(base, [place])))

    def splat(self, value: Value) -> Value:
        """Return a vector of one value."""
        ir, none = self.ir, self.ir.Constant(self.ir.VectorType(value.type, self.lanes), self.ir.Undefined)
        first = self.builder.insert_element(none, value, ir.IntType(32)(0))
        return self.builder.shuffle_vector(
            first, none, ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        )

    def variable(self, value: Value) -> Value:
        """Return a place of its own for a value, in a register where there is one."""
        from numba.core import cgutils

        kept = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, kept)
        return kept

    def add(self, kept: Value, value: Value) -> None:
        """Add a vector to a variable."""
        self.builder.store(self.builder.fadd(self.builder.load(kept), value), kept)

    def add_product(self, kept: Value, x: Value, y: Value) -> None:
        """Add the product of two vectors to a variable."""
        self.builder.store(self.fused(x, y, self.builder.load(kept)), kept)

    def fused(self, x: Value, y: Value, z: Value) -> Value:
        """Return ``x y + z``, in one step where the machine has it."""
        return self.builder.fadd(self.builder.fmul(x, y, flags=("contract",)), z, flags=("contract",))

    def add_to_sums(self, kept: Value, sums: Value, place: Value, n: int) -> None:
        """Add a variable to the sums at a place, of float64."""
        value = self.builder.load(kept)
        value = value if self.is_double else self.builder.fpext(value, self.double)
        before = self.builder.load(self._at(sums, self.plus(place, n), self.double))
        before.align = 8
        self.store(self.builder.fadd(before, value), sums, place, n)

    def within(self, first: Value, n: Value) -> Value:
        """Return which values of a vector are among the first n, where `first` come before the vector."""
        ir, kind = self.ir, self.ir.VectorType(self.ir.IntType(64), self.lanes)
        positions = ir.Constant(kind, [ir.IntType(64)(lane) for lane in range(self.lanes)])
        return self.builder.icmp_signed("<", positions, self.splat(self.builder.sub(n, first)))

    def absolute(self, x: Value) -> Value:
        """Return absolute values."""
        size = self.digits + (11 if self.is_double else 8)
        bits = self.builder.and_(self.builder.bitcast(x, self.bits), self.whole(2**size - 1))
        return self.builder.bitcast(bits, self.vector)

    def exponentials_less_one(self, xs: Sequence[Value]) -> list[Value]:
        r"""Return :math:`e^x - 1` of some vectors of values that are not positive, to a unit of rounding of its own.

        With :math:`x = k \log 2 + r` it is :math:`2^k (e^r - 1) + (2^k - 1)`, and the first bracket a polynomial. Each
        step is written for all vectors before the next one, as each waits for the last.
        """
        b, least, digits = self.builder, self.constant(LEAST_EXPONENT), self.digits
        xs = [b.select(b.fcmp_ordered("<", x, least), least, x) for x in xs]  # and NaN as it is
        aside = self.constant(1.5 * 2.0**digits)  # added to a number it leaves the nearest whole one, in the last bits
        high, low = LOG_2[digits]
        moved = [self.fused(x, self.constant(1 / log(2)), aside) for x in xs]
        k = [b.fsub(m, aside) for m in moved]
        r = [self.fused(n, self.constant(-high), x) for n, x in zip(k, xs, strict=True)]
        r = [self.fused(n, self.constant(-low), x) for n, x in zip(k, r, strict=True)]
        one = self.whole((1023 if self.is_double else 127) << digits)
        power = [b.bitcast(b.add(b.shl(b.bitcast(m, self.bits), self.whole(digits)), one), self.vector) for m in moved]
        found = self._polynomials(r)
        return [self.fused(q, p, b.fsub(q, self.constant(1))) for q, p in zip(power, found, strict=True)]

    def _polynomials(self, rs: Sequence[Value]) -> list[Value]:
        """Return ``e^r - 1`` for r within half of log 2 of zero: even and odd powers side by side, which wait less."""
        squares = [self.builder.fmul(r, r) for r in rs]
        last, halves = (13 if self.is_double else 7), []
        for top in last, last - 1:
            halves.append([self.constant(1 / factorial(top))] * len(rs))
        for down in range(2, last - 1, 2):
            for half, top in zip(halves, (last, last - 1), strict=True):
                c = self.constant(1 / factorial(top - down))
                if top - down > 1:
                    half[:] = [self.fused(p, square, c) for p, square in zip(half, squares, strict=True)]
        odd, even = halves
        p = [self.fused(o, r, e) for o, r, e in zip(odd, rs, even, strict=True)]
        return [self.fused(square, q, r) for square, q, r in zip(squares, p, rs, strict=True)]
