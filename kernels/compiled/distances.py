"""Distances between rows and their exponentials, computed without cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import NamedTuple

import numpy as np

from . import Metric
from .cache import compiled
from .loops import (
    PANEL_VECTORS,
    empty_vectors,
    lanes,
    subtract_common,
    write_distances,
    write_expm1,
)
from .plain import CITYBLOCK, DIFFERING, ROWS, SQUARED, Place

CODES = {
    "squared": SQUARED,
    "euclidean": SQUARED,
    "cityblock": CITYBLOCK,
    "differing": DIFFERING,
}

LEAST_FEATURES = 16
"""Smallest number of features for which a reference row saves time."""

MOST_DIFFERING = 0.5
"""Largest share of values that differ from a reference row."""

FAR = 500.0
"""Gamma times distance from a reference beyond which rounding affects kernels."""

SMALL = 1e-3
"""Share of that distance below which all features are summed."""

LARGEST = 1e9
"""Largest absolute value of rows with a reference; products may overflow."""

SAMPLE_ROWS = 256


@dataclass(frozen=True)
class DistanceSide:
    """Rows prepared as one argument of kernels ``exp(-gamma D)``, with metric and gammas.

    `weights` are for the metric "differing". With a row `reference`, distances read
    only the values that differ from it.
    """

    rows: np.ndarray
    metric: Metric
    gammas: tuple[float, ...]
    weights: np.ndarray | None = None
    reference: np.ndarray | None = None

    @property
    def n_seeds(self) -> int:
        return len(self.gammas)

    def __getitem__(self, rows: slice) -> DistanceSide:
        return replace(self, rows=self.rows[rows])

    def fill(self, left: DistanceSide, out: np.ndarray) -> None:
        """Write ``exp(-gamma D) - 1`` into `out`, of distances D from `left` to these rows.

        Without gammas, write D, shape (1, a, b).
        """
        dtype = out.dtype
        parts = Parts.of([self], dtype)
        strip = empty_vectors(ROWS * rounded_up(len(self.rows), parts.across), dtype)
        write_seeds(
            pack_rows([left], dtype), pack_columns([self], dtype), parts, strip, out
        )

    def near_reference(self) -> DistanceSide:
        """Set a reference row to subtract, if it equals most values of the rows."""
        n, d = self.rows.shape
        if not n or d < LEAST_FEATURES or self.metric == "differing":
            return self
        sample = self.rows[:: -(-n // SAMPLE_ROWS)]
        middle = len(sample) // 2
        # Value of more than half of the rows, if any.
        reference = np.partition(sample, middle, axis=0)[middle]
        if (sample != reference).mean() > MOST_DIFFERING or np.abs(
            self.rows
        ).max() > LARGEST:
            return self
        return replace(self, reference=reference)

    def relative_rows(self) -> np.ndarray:
        """Return the rows, minus the reference row if there is one."""
        if self.reference is None:
            return self.rows
        return np.asarray(self.rows - self.reference)

    def distances_from_reference(self) -> np.ndarray:
        """Return the rows' distances from the reference row, squared if Euclidean."""
        if self.reference is None:
            return np.zeros(len(self.rows))
        difference = self.relative_rows().astype(np.float64)
        if CODES[self.metric] == CITYBLOCK:
            return np.asarray(np.abs(difference).sum(axis=1))
        return np.asarray(np.square(difference).sum(axis=1))


def as_distance_sides(operands: Sequence[object]) -> list[DistanceSide] | None:
    """Return the prepared rows if each is a `DistanceSide`, otherwise None."""
    sides = [operand for operand in operands if isinstance(operand, DistanceSide)]
    return sides if len(sides) == len(operands) else None


class Parts(NamedTuple):
    """Metrics, gammas and reference distances of several `DistanceSide`, in flat arrays.

    The n padded rows of part f begin at ``n before[f]``. `repeated` marks distances
    equal to the previous part, and `seeds` counts previous seeds. `from_reference` and
    `small`, shape (n_parts, n_rows), are distances from the reference, and limits below
    which digits cancel.
    """

    d: np.ndarray
    code: np.ndarray
    rooted: np.ndarray
    repeated: np.ndarray
    before: np.ndarray
    seeds: np.ndarray
    gammas: np.ndarray
    weights: np.ndarray
    has_reference: np.ndarray
    from_reference: np.ndarray
    small: np.ndarray
    width: int
    across: int

    @classmethod
    def of(cls, sides: Sequence[DistanceSide], dtype: np.dtype) -> Parts:
        gammas = [gamma for part in sides for gamma in part.gammas]
        distinct, places = _distinct_rows(sides)
        weights = [
            np.ones(part.rows.shape[1]) if part.weights is None else part.weights
            for part in distinct
        ]
        starts = _starts([part.rows.shape[1] for part in distinct])
        codes = [CODES[part.metric] for part in sides]
        sources = list(zip(places, codes, strict=True))
        repeated = [f > 0 and sources[f] == sources[f - 1] for f in range(len(sources))]
        from_reference = _distances_from_references(sides, dtype)
        return cls(
            d=np.array([part.rows.shape[1] for part in sides], dtype=np.intp),
            code=np.array(codes, dtype=np.intp),
            rooted=np.array([part.metric == "euclidean" for part in sides], dtype=bool),
            repeated=np.array(repeated, dtype=bool),
            before=starts[places],
            seeds=_starts([len(part.gammas) for part in sides]),
            gammas=np.array(gammas, dtype=dtype),
            weights=np.concatenate([*weights, np.zeros(0)]).astype(dtype),
            has_reference=np.array(
                [part.reference is not None for part in sides], dtype=bool
            ),
            from_reference=from_reference,
            small=_small_distances(sides, from_reference),
            width=lanes(dtype),
            across=panel_rows(dtype),
        )


def _distances_from_references(
    sides: Sequence[DistanceSide], dtype: np.dtype
) -> np.ndarray:
    """Return distances from reference rows, padded to whole panels."""
    if all(part.reference is None for part in sides):
        return np.zeros((len(sides), 0), dtype=dtype)
    n = len(sides[0].rows)
    padded = np.zeros((len(sides), rounded_up(n, panel_rows(dtype))), dtype=dtype)
    for f, part in enumerate(sides):
        padded[f, :n] = part.distances_from_reference()
    return padded


def _small_distances(
    sides: Sequence[DistanceSide], from_reference: np.ndarray
) -> np.ndarray:
    """Return the limits below which digits cancel."""
    eps = np.finfo(from_reference.dtype).eps
    # Roots then have three quarters of the digits.
    small = np.sqrt(eps) * from_reference
    for f, part in enumerate(sides):
        is_far = max(part.gammas, default=0.0) * from_reference[f] > FAR
        small[f, is_far] = SMALL * from_reference[f, is_far]
    return small


def _distinct_rows(
    sides: Sequence[DistanceSide],
) -> tuple[list[DistanceSide], list[int]]:
    """Return parts with distinct rows, and each part's position among them."""
    distinct: list[DistanceSide] = []
    places = []
    for part in sides:
        place = len(distinct)
        for earlier, other in enumerate(distinct):
            if _are_same(part, other):
                place = earlier
        if place == len(distinct):
            distinct.append(part)
        places.append(place)
    return distinct, places


def _are_same(part: DistanceSide, other: DistanceSide) -> bool:
    return (
        part.weights is other.weights
        and (part.reference is None) == (other.reference is None)
        and _in_same_memory(part.rows, other.rows)
    )


def _in_same_memory(A: np.ndarray, B: np.ndarray) -> bool:
    return (
        A.ctypes.data == B.ctypes.data and A.shape == B.shape and A.strides == B.strides
    )


def pack_rows(sides: Sequence[DistanceSide], dtype: np.dtype) -> np.ndarray:
    """Return the distinct left rows of all sides in one flat array."""
    distinct, _ = _distinct_rows(sides)
    return np.concatenate(
        [part.relative_rows().astype(dtype, copy=False).ravel() for part in distinct]
    )


def pack_columns(sides: Sequence[DistanceSide], dtype: np.dtype) -> np.ndarray:
    """Return the distinct right rows of all sides as panels, flat."""
    across = panel_rows(dtype)
    packed = []
    distinct, _ = _distinct_rows(sides)
    for part in distinct:
        n_rows, d = part.rows.shape
        n_padded = rounded_up(n_rows, across)
        padded = np.zeros((n_padded, d), dtype=dtype)
        padded[:n_rows] = part.relative_rows()
        packed.append(
            padded.reshape(n_padded // across, across, d).transpose(0, 2, 1).ravel()
        )
    return np.concatenate(packed)


def _starts(sizes: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)


def panel_rows(dtype: np.dtype) -> int:
    return PANEL_VECTORS * lanes(dtype)


def rounded_up(n: int, step: int) -> int:
    return -(-n // step) * step


def distances(
    A: np.ndarray, B: np.ndarray, metric: Metric, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the distances between the rows of two matrices, shape (a, b)."""
    out = np.empty((A.shape[0], B.shape[0]), dtype=A.dtype)
    DistanceSide(B, metric, (), weights).fill(
        DistanceSide(A, metric, (), weights), out[None]
    )
    return out


def exponentiate(D: np.ndarray, gammas: Sequence[float], out: np.ndarray) -> None:
    """Write ``exp(-gamma D) - 1`` for each gamma into `out`, shape (n, a, b)."""
    values = np.ascontiguousarray(D, dtype=out.dtype).ravel()
    width = lanes(out.dtype)
    spare = empty_vectors(2 * width, out.dtype)
    exponentiate_values(values, np.asarray(gammas, dtype=out.dtype), width, spare, out)


@compiled()
def write_seeds(
    A: np.ndarray, B: np.ndarray, parts: Parts, strip: np.ndarray, out: np.ndarray
) -> None:
    """Write ``exp(-gamma D) - 1``, or distances D, between all rows into `out`.

    See `make_seeds` for the arguments; `strip` holds `ROWS` rows.
    """
    _, a, b = out.shape
    flat = out.reshape(-1)
    d = parts.d[0]
    rooted = parts.rooted[0]
    width = parts.width
    panels = -(-b // parts.across)
    stride = panels * parts.across
    vectorized = b // width * width
    for i in range(0, a, ROWS):
        rows = min(ROWS, a - i)
        fill_strip(A, i * d, rows, B, 0, panels, 0, parts, strip)
        for r in range(rows):
            at = r * stride
            to = (i + r) * b
            if len(parts.gammas) == 0:
                for j in range(b):
                    distance = strip[at + j]
                    flat[to + j] = sqrt(distance) if rooted else distance
            for k in range(len(parts.gammas)):
                factor = -parts.gammas[k]
                write_expm1(
                    (strip, at),
                    factor,
                    rooted,
                    (flat, k * a * b + to),
                    vectorized // width,
                )
                if vectorized < b:  # another row may follow
                    write_expm1(
                        (strip, at + vectorized),
                        factor,
                        rooted,
                        (strip, rows * stride),
                        1,
                    )
                    for j in range(b - vectorized):
                        flat[k * a * b + to + vectorized + j] = strip[rows * stride + j]


@compiled()
def fill_strip(
    A: np.ndarray,
    at: int,
    rows: int,
    B: np.ndarray,
    first: int,
    panels: int,
    f: int,
    parts: Parts,
    strip: np.ndarray,
) -> None:
    """Write distances between rows A and B, squared if Euclidean, into `strip`."""
    d = parts.d[f]
    code = parts.code[f]
    stride = panels * parts.across
    weights = parts.weights[parts.before[f] : parts.before[f] + d]
    for p in range(panels):
        right = (B, first + p * parts.across * d)
        to = p * parts.across
        if rows == ROWS:
            write_distances(ROWS, code, (A, at), right, d, weights, (strip, to), stride)
        else:
            for r in range(rows):
                write_distances(
                    1,
                    code,
                    (A, at + r * d),
                    right,
                    d,
                    weights,
                    (strip, r * stride + to),
                    stride,
                )


@compiled()
def fill_from_reference(
    A: np.ndarray,
    at: int,
    rows: int,
    B: np.ndarray,
    first: int,
    panel: int,
    panels: int,
    f: int,
    parts: Parts,
    strip: np.ndarray,
) -> None:
    """Write distances like `fill_strip`, faster if most values equal the reference."""
    d = parts.d[f]
    code = parts.code[f]
    across = parts.across
    stride = panels * across
    small = parts.small[f, panel * across : panel * across + stride]
    from_reference = parts.from_reference[f, panel * across : panel * across + stride]
    differing = np.empty(d, dtype=np.intp)
    for r in range(rows):
        start = at + r * d
        n = 0
        length = 0.0
        largest = 0.0
        for c in range(d):
            x = A[start + c]
            if x != 0:
                differing[n] = c
                n += 1
                largest = max(largest, abs(x))
                length += abs(x) if code == CITYBLOCK else x * x
        row = strip[r * stride : (r + 1) * stride]
        is_large = largest > LARGEST
        if not is_large:
            for j in range(stride):
                row[j] = from_reference[j] + length
            subtract_common(
                code, (A, start), (B, first), d, differing, n, (row, 0), panels
            )
        n_small = 0
        for j in range(stride):
            n_small += row[j] < small[j]
        if is_large or n_small > 0:
            for j in range(stride):
                if is_large or row[j] < small[j]:
                    column = first + j // across * across * d + j % across
                    row[j] = distance_of_pair(code, (A, start), (B, column), across, d)


@compiled()
def distance_of_pair(code: int, left: Place, right: Place, step: int, d: int) -> float:
    A, a = left
    B, b = right
    total = 0.0
    for c in range(d):
        difference = A[a + c] - B[b + c * step]
        total += abs(difference) if code == CITYBLOCK else difference**2
    return total


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
    out: np.ndarray,
) -> None:
    """Write distances D of up to `ROWS` rows, then ``exp(-gamma D) - 1``, to `out`.

    b includes padding. `out` has shape (1 + n_seeds, rows, panels across), flat.
    """
    size = rows * panels * parts.across
    for f in range(len(parts.d)):
        d = parts.d[f]
        before = parts.before[f]
        at = a * before + i * d
        first = b * before + panel * parts.across * d
        if parts.has_reference[f] and not parts.repeated[f]:
            fill_from_reference(A, at, rows, B, first, panel, panels, f, parts, out)
        elif not parts.repeated[f]:
            fill_strip(A, at, rows, B, first, panels, f, parts, out)
        for s in range(parts.seeds[f], parts.seeds[f + 1]):
            seeds = (out, size * (1 + s))
            write_expm1(
                (out, 0), -parts.gammas[s], parts.rooted[f], seeds, size // parts.width
            )


@compiled()
def exponentiate_values(
    D: np.ndarray, gammas: np.ndarray, width: int, spare: np.ndarray, out: np.ndarray
) -> None:
    """Write ``exp(-gamma D) - 1`` for each gamma into `out`; `spare` is workspace."""
    flat = out.reshape(-1)
    size = len(D)
    vectorized = size // width * width
    rest = size - vectorized
    for n in range(rest):
        spare[n] = D[vectorized + n]
    for k in range(len(gammas)):
        write_expm1((D, 0), -gammas[k], False, (flat, k * size), size // width)
        write_expm1((spare, 0), -gammas[k], False, (spare, width), 1)
        for n in range(rest):
            flat[k * size + vectorized + n] = spare[width + n]
