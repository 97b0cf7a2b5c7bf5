"""Distances between rows and their exponentials, from differences: exact zeros for equal rows, no digits lost.

The rows of one side are laid side by side, a few vectors of them; against those go a few rows of the other side at a
time, so that every number that is read serves several pairs, whose sums stay in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from learnkernels.kernels.compiled.compiler import compiled, emitted
from learnkernels.kernels.compiled.vectors import Value, Vectors, lanes, room, simd_registers

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
