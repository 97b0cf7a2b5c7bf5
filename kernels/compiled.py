"""Inner loops that Numba compiles when they are first called: vectors, the cache of compiled code, and distances.

Left to itself the compiler uses half the width of many CPUs' vectors, keeps too few sums in registers, and vectorizes
no loop across kernels. So the innermost loops are emitted in LLVM's language, the same for every CPU: vectors that one
lacks become several of those that it has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from hashlib import sha256
from inspect import getsource, signature
from math import factorial, log, sqrt
from threading import RLock
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

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
    """Return the settings of Numba, which is loaded; ValueError where loops cannot be compiled with those."""
    try:
        from numba import config
    except ValueError as error:
        raise ValueError(
            "NUMBA_NUM_THREADS must be a whole number above 0; correct it in the environment, or unset it."
        ) from error
    if config.DISABLE_JIT:
        raise ValueError(
            "NUMBA_DISABLE_JIT must be 0 or unset, got 1; loops that write their own code need a compiler."
        )
    return config


@cache
def simd_registers() -> tuple[int, int]:
    """Return the bytes of a vector on the machine that code is compiled for, and how many vectors registers hold."""
    features = numba_settings().CPU_FEATURES
    from llvmlite.binding import get_process_triple
    from numba.core.codegen import get_host_cpu_features

    if features is None:
        features = get_host_cpu_features()
    triple = get_process_triple()
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


# Functions that are compiled when they are first called, and kept on disk ---------------------------------------------

FAST = {"reassoc", "contract", "nsz"}
"""Sums may be reordered and fused; infinities, NaN and everything else stay as written."""

NOTICE = "learnkernels: compiling inner loops, which takes some seconds and is done once.\n"
"""Said on standard error by a process that finds nothing compiled."""

Function = TypeVar("Function", bound=Callable[..., Any])

_waiting: dict[str, dict[str, Callable[[], Any]]] = {}
"""By module and name, what makes each function of the modules of which none has been called."""

_lock, _said = RLock(), False


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator for a function of a module, to be compiled with these options of Numba and without its lock.

    Notes
    -----
    Nothing is loaded before the first call of a function of the module, which makes all of them, and those of other
    modules that it names.
    """

    def of(function: Function) -> Function:
        return _awaiting(function, lambda: _kept({"nogil": True, **options}, function))

    return of


def emitted(write: Callable[..., None]) -> Callable[..., None]:
    """Return a function of arrays and numbers, for those that are compiled, whose code the one given writes itself.

    That is given `Vectors` of the type of the first array, then each argument: of an array the place of its first
    value, of an array and a position in it the place of that value, of a number its value, and a literal as it is where
    ``int`` is declared.

    Notes
    -----
    Its loops are a function of their own in what is compiled: the registers are theirs alone.
    """

    def make() -> Any:
        from numba.extending import intrinsic

        def define(_: Any, *kinds: Any) -> Any:
            return written(write, kinds)

        define.__name__, define.__signature__ = write.__name__, signature(write)  # type: ignore[attr-defined]
        return intrinsic(prefer_literal=True)(define)

    return _awaiting(write, make)


def _awaiting(function: Function, make: Callable[[], Any]) -> Function:
    """Return a stub of a function, compiled when one of its module is called."""
    _waiting.setdefault(function.__module__, {})[function.__name__] = make
    made: Any = None

    @wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal made
        if made is None:
            made = _made(function.__globals__)[function.__name__]
        return made(*arguments)

    call.awaits = function.__globals__  # type: ignore[attr-defined]
    return cast(Function, call)


def _made(names: dict[str, Any]) -> dict[str, Any]:
    """Put what is compiled in the place of what waits in a module, as they call each other, and return its names.

    Functions are compiled for the types of their arguments when they are called.
    """
    with _lock:
        for name, make in _waiting.pop(names["__name__"], {}).items():
            names[name] = make()
        for name, waits in list(names.items()):
            if hasattr(waits, "awaits"):  # that of another module
                names[name] = _made(waits.awaits)[waits.__name__]
        return names


def _kept(options: dict[str, Any], function: Callable[..., Any]) -> Any:
    """Return a compiled function, whose code is kept on disk if Numba finds a folder that it may write to."""
    numba_settings()
    from numba import njit

    try:
        dispatcher = njit(cache=True, **options)(function)
    except RuntimeError:  # there is no such folder, and NUMBA_CACHE_DIR names none
        _tell(None)
        return njit(**options)(function)
    names = function.__globals__
    modules = {waiting.awaits["__name__"] for waiting in names.values() if hasattr(waiting, "awaits")}
    digest = sha256()
    for module in sorted(modules | {names["__name__"], written.__module__}):
        digest.update(getsource(sys.modules[module]).encode())
    # Code is not read from disk where a module has changed whose names or code the function has.
    index = dispatcher._cache._cache_file
    index._version = f"{index._version} {digest.hexdigest()}"  # compared before the rest is unpickled
    _tell(dispatcher.stats.cache_path)
    return dispatcher


def _tell(folder: str | None) -> None:
    """Say once why the first call takes so long, where nothing compiled is in the folder."""
    global _said
    kept = folder is not None and os.path.isdir(folder) and any(name.endswith(".nbi") for name in os.listdir(folder))
    if not (_said or kept or sys.stderr is None):
        sys.stderr.write(NOTICE)
    _said = True


# Distances and their exponentials -------------------------------------------------------------------------------------

# From differences: exact zeros for equal rows, no digits lost. The rows of one side are laid side by side, a few
# vectors of them. A few rows of the other side at a time go against those: every number that is read serves several
# pairs, whose sums stay in registers.

Metric: TypeAlias = Literal["squared", "euclidean", "cityblock", "differing"]

CODES: dict[str, int] = {"squared": 0, "euclidean": 0, "cityblock": 1, "differing": 2}
"""What is added for each feature: the square of a difference, its absolute value, or a weight where there is one."""

TOGETHER = 4
"""Vectors whose exponentials are taken side by side."""

ROWS = 4
"""Rows that go against the vectors of the other side at a time."""


@dataclass(frozen=True)
class Differences:
    """Rows of one side whose distances, feature by feature, some base kernels start from.

    Attributes
    ----------
    rows : ndarray of shape (a, d)
    metric : {"squared", "euclidean", "cityblock", "differing"}
    gammas : tuple of float
        Of the exponentials that are taken of them.
    weights : ndarray of shape (d,) or None
        See `distances`.
    """

    rows: np.ndarray
    metric: Metric
    gammas: tuple[float, ...]
    weights: np.ndarray | None = None

    @property
    def n_seeds(self) -> int:
        """Number of exponentials."""
        return len(self.gammas)

    def __getitem__(self, some: slice) -> Differences:
        return replace(self, rows=self.rows[some])

    def fill(self, left: Differences, out: np.ndarray) -> None:
        """Write ``exp(-gamma D) - 1`` of the `distances` D of other rows from these, shape (n, a, b), in C order.

        There is one matrix a gamma; without gammas the distances themselves are written, shape (1, a, b).
        """
        dtype, b = out.dtype, len(self.rows)
        parts = Parts.of([self], dtype)
        strip = room(ROWS * -(-b // parts.across) * parts.across, dtype)
        write_seeds(pack_rows([left], dtype), pack_columns([self], dtype), parts, strip, out)


def as_differences(operands: Sequence[object]) -> list[Differences] | None:
    """Return the operands of families that all start from differences; None where one does not."""
    of = [one for one in operands if isinstance(one, Differences)]
    return of if len(of) == len(operands) else None


class Parts(NamedTuple):
    """What seeds are made of: the distances of a few parts of rows, which stand one after the other in flat arrays.

    Of n rows in all, panels included, part f begins at ``n before[f]``. Positions have one entry more than there are
    parts; without any, seeds are made of something else.

    Attributes
    ----------
    d, code : ndarray of int of shape (n_parts,)
        Features, and what is added for each, see `CODES`.
    rooted : ndarray of bool of shape (n_parts,)
        Whether the root of a distance is meant.
    before, seeds : ndarray of int of shape (n_parts + 1,)
        Features of the parts before, and their seeds.
    gammas, weights : ndarray
        Of all seeds, and of all features, of the dtype of the rows.
    width, across : int
        Values of a vector, and rows of a panel, see `panel_rows`.
    """

    d: np.ndarray
    code: np.ndarray
    rooted: np.ndarray
    before: np.ndarray
    seeds: np.ndarray
    gammas: np.ndarray
    weights: np.ndarray
    width: int
    across: int

    @classmethod
    def of(cls, differences: Sequence[Differences], dtype: np.dtype) -> Parts:
        """Return what seeds are made of, in a precision."""
        d = [one.rows.shape[1] for one in differences]
        gammas = [gamma for one in differences for gamma in one.gammas]
        weights = [np.ones(n) if one.weights is None else one.weights for one, n in zip(differences, d, strict=True)]
        return cls(
            np.array(d, dtype=np.intp),
            np.array([CODES[one.metric] for one in differences], dtype=np.intp),
            np.array([one.metric == "euclidean" for one in differences], dtype=bool),
            _ends(d),
            _ends([len(one.gammas) for one in differences]),
            np.array(gammas, dtype=dtype),
            np.concatenate([*weights, np.zeros(0)]).astype(dtype),
            lanes(dtype),
            panel_rows(dtype),
        )


def pack_rows(differences: Sequence[Differences], dtype: np.dtype) -> np.ndarray:
    """Return the rows of all parts as those of the left side are read."""
    return np.concatenate([np.asarray(one.rows, dtype=dtype).ravel() for one in differences])


def pack_columns(differences: Sequence[Differences], dtype: np.dtype) -> np.ndarray:
    """Return the rows of all parts as those of the right side are read.

    That is as panels of `panel_rows`, feature by feature, one after the other; zeros replace missing rows.
    """
    across, laid = panel_rows(dtype), []
    for one in differences:
        b, d = one.rows.shape
        panels = np.zeros((-(-b // across) * across, d), dtype=dtype)
        panels[:b] = one.rows
        laid.append(panels.reshape(len(panels) // across, across, d).transpose(0, 2, 1).ravel())
    return np.concatenate(laid)


def _ends(sizes: Sequence[int]) -> np.ndarray:
    """Return where parts of these sizes begin, one after the other, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)


def panel_rows(dtype: np.dtype) -> int:
    """Return how many rows are laid side by side: those of a few vectors."""
    return (4 if simd_registers()[1] == 32 else 2) * lanes(dtype)


def distances(A: np.ndarray, B: np.ndarray, metric: Metric, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the distances between the rows of two matrices, shape (a, b).

    Parameters
    ----------
    A, B : ndarray of shape (a, d) and (b, d)
        Of float64 or float32. Not modified.
    metric : {"squared", "euclidean", "cityblock", "differing"}
        Squared Euclidean distances, their roots, sums of absolute differences, or of the weights of the features that
        differ.
    weights : ndarray of shape (d,), optional
        For "differing"; by default one each.

    Notes
    -----
    O(a b d).
    """
    out = np.empty((A.shape[0], B.shape[0]), dtype=A.dtype)
    Differences(B, metric, (), weights).fill(Differences(A, metric, (), weights), out[None])
    return out


def exponentiate(D: np.ndarray, gammas: Sequence[float], out: np.ndarray) -> None:
    """Write ``exp(-gamma D) - 1`` into `out`, shape (n, a, b), in C order; `D`, not negative, is kept."""
    given, width = np.ascontiguousarray(D, dtype=out.dtype).ravel(), lanes(out.dtype)
    exponentiate_values(given, np.asarray(gammas, dtype=out.dtype), width, room(2 * width, out.dtype), out)


@compiled()
def write_seeds(A: np.ndarray, B: np.ndarray, parts: Parts, strip: np.ndarray, out: np.ndarray) -> None:
    """Write the seeds of all pairs of rows, or without seeds the distances, into `out`, shape (n, a, b).

    A, B and parts are as for `make_seeds`, of one part; `strip` is a place for `ROWS` rows of distances.
    """
    (_, a, b), flat, d, width = out.shape, out.reshape(-1), parts.d[0], parts.width
    panels, whole = -(-b // parts.across), b // width * width
    stride = panels * parts.across
    for i in range(0, a, ROWS):
        rows = min(ROWS, a - i)
        fill_strip(A, i * d, rows, B, 0, panels, 0, parts, strip)
        for r in range(rows):
            at, to = r * stride, (i + r) * b
            if len(parts.gammas) == 0:
                for j in range(b):
                    flat[to + j] = strip[at + j]
            for k in range(len(parts.gammas)):
                exponentials((strip, at), -parts.gammas[k], (flat, k * a * b + to), whole // width)
                if whole < b:  # beyond the last value there may be another row
                    exponentials((strip, at + whole), -parts.gammas[k], (strip, rows * stride), 1)
                    for j in range(b - whole):
                        flat[k * a * b + to + whole + j] = strip[rows * stride + j]


@compiled()
def fill_strip(
    A: np.ndarray, at: int, rows: int, B: np.ndarray, first: int, panels: int, f: int, parts: Parts, strip: np.ndarray
) -> None:
    """Write the distances of up to `ROWS` rows, which begin at a place, from those of some panels into a strip.

    The panels begin at `first`, and both are of part `f`; else as `make_seeds`.
    """
    d, code, stride = parts.d[f], parts.code[f], panels * parts.across
    weights = parts.weights[parts.before[f] : parts.before[f] + d]
    for p in range(panels):
        right, to = (B, first + p * parts.across * d), p * parts.across
        if rows == ROWS:
            add_differences(ROWS, code, (A, at), right, d, weights, (strip, to), stride)
        else:
            for r in range(rows):
                add_differences(1, code, (A, at + r * d), right, d, weights, (strip, r * stride + to), stride)
    if parts.rooted[f]:
        for j in range(rows * stride):
            strip[j] = sqrt(strip[j])


@compiled()
def make_seeds(
    A: np.ndarray,
    a: int,
    i: int,
    rows: int,
    B: np.ndarray,
    b: int,
    panel: int,
    panels: int,
    parts: Parts,
    room: np.ndarray,
) -> None:
    """Write the seeds of up to `ROWS` rows with those of some panels into a room, behind as many distances.

    Parameters
    ----------
    A, B : ndarray
        Rows of all parts, of the left side `pack_rows`, of the right one `pack_columns`.
    a, b : int
        How many there are on either side, on the right one with what fills the last panel.
    i, rows : int
        The first of the rows, and how many there are.
    panel, panels : int
        The first of the panels, and how many there are.
    parts : Parts
        What is made of them.
    room : ndarray of shape (1 + n_seeds, rows, panels across), flat
        Written to.
    """
    size = rows * panels * parts.across
    for f in range(len(parts.d)):
        d, before = parts.d[f], parts.before[f]
        fill_strip(A, a * before + i * d, rows, B, b * before + panel * parts.across * d, panels, f, parts, room)
        for s in range(parts.seeds[f], parts.seeds[f + 1]):
            exponentials(room, -parts.gammas[s], (room, size * (1 + s)), size // parts.width)


@compiled()
def exponentiate_values(D: np.ndarray, gammas: np.ndarray, width: int, aside: np.ndarray, out: np.ndarray) -> None:
    """Write the exponentials of some values, shape (n,), into `out`, of as many values a gamma."""
    flat, size = out.reshape(-1), len(D)
    full = size // width * width
    for n in range(size - full):
        aside[n] = D[full + n]
    for k in range(len(gammas)):
        exponentials(D, -gammas[k], (flat, k * size), size // width)
        exponentials(aside, -gammas[k], (aside, width), 1)
        for n in range(size - full):
            flat[k * size + full + n] = aside[width + n]


@emitted
def add_differences(
    v: Vectors, rows: int, code: Value, A: Value, B: Value, d: Value, weights: Value, out: Value, stride: Value
) -> None:
    """Write the distances of one or a few rows from those of a panel: `ROWS` or one, of a `code`."""
    build, across = v.builder, 4 if simd_registers()[1] == 32 else 2

    def loops(kind: int) -> None:
        sums = {(r, q): v.variable(v.constant(0)) for r in range(rows) for q in range(across)}
        with v.loop(d) as c:
            at = build.mul(c, v.place(across * v.lanes))
            ys = [v.load(B, at, q) for q in range(across)]
            weight = v.spread(weights, c) if kind == CODES["differing"] else None
            for r in range(rows):
                x = v.spread(A, build.add(build.mul(v.place(r), d), c))
                for q in range(across):
                    if kind == CODES["differing"]:
                        apart = build.fcmp_unordered("!=", x, ys[q])
                        v.add(sums[r, q], build.select(apart, weight, v.constant(0)))
                        continue
                    z = build.fsub(x, ys[q])
                    if kind == CODES["squared"]:
                        v.add_product(sums[r, q], z, z)
                    else:
                        v.add(sums[r, q], v.absolute(z))
        for (r, q), kept in sums.items():
            v.store(build.load(kept), out, build.mul(v.place(r), stride), q)

    v.cases(code, {kind: partial(loops, kind) for kind in set(CODES.values())})


@emitted
def exponentials(v: Vectors, D: Value, factor: Value, out: Value, n: Value) -> None:
    """Write ``exp(factor D) - 1`` of n vectors."""
    b, scale = v.builder, v.splat(factor)

    def some(on: Value, together: int) -> None:
        xs = [b.fmul(scale, v.load(D, on, q)) for q in range(together)]
        for q, value in enumerate(v.exponentials_less_one(xs)):
            v.store(value, out, on, q)

    v.in_groups(n, TOGETHER, some)
