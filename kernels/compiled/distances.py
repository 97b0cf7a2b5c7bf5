"""Distances of rows and their exponentials, from differences: exact zeros for equal
rows, no digits lost.

The rows of one side are laid out as *panels*, a few vectors of rows side by side. A few
rows of the other side at a time go against a panel: each number that is read serves
several pairs, whose sums stay in registers.
"""

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
    write_differences,
    write_exponentials,
)
from .plain import CITYBLOCK, DIFFERING, ROWS, SQUARED, Place

CODES = {
    "squared": SQUARED,
    "euclidean": SQUARED,
    "cityblock": CITYBLOCK,
    "differing": DIFFERING,
}
"""What is added for each feature, by the name of a metric."""

LEAST_FEATURES = 16
"""Smallest number of features for which a reference saves time."""

MOST_DIFFERING = 0.5
"""Largest share of features that differ from a reference, as a step with a reference takes longer."""

FAR = 500.0
"""Distance from a reference, times gamma, beyond which rounding of it shows in kernels of near rows."""

SMALL = 1e-3
"""Share of such a distance below which distances are summed over all features."""

LARGEST = 1e9
"""Largest absolute value of rows with a reference, as products of larger ones may overflow."""

SAMPLE_ROWS = 256
"""Number of rows that a reference is found from."""


@dataclass(frozen=True)
class Differences:
    """Rows of one side whose distances, feature by feature, some base kernels start
    from.

    Attributes
    ----------
    rows : ndarray of shape (a, d)
    metric : {"squared", "euclidean", "cityblock", "differing"}
    gammas : tuple of float
        Factors of the exponentials of the distances.
    weights : ndarray of shape (d,) or None
        See `distances`.
    reference : ndarray of shape (d,) or None
        Row that most rows share most features with, subtracted from packed rows.
        Distances then take a step for each feature that differs from it.
    """

    rows: np.ndarray
    metric: Metric
    gammas: tuple[float, ...]
    weights: np.ndarray | None = None
    reference: np.ndarray | None = None

    @property
    def n_seeds(self) -> int:
        """Number of exponentials."""
        return len(self.gammas)

    def __getitem__(self, rows: slice) -> Differences:
        return replace(self, rows=self.rows[rows])

    def fill(self, left: Differences, out: np.ndarray) -> None:
        """Write ``exp(-gamma D) - 1`` of the `distances` D of other rows from these,
        shape (n, a, b), in C order.

        There is one matrix per gamma; without gammas the distances themselves are
        written, shape (1, a, b).
        """
        dtype = out.dtype
        parts = Parts.of([self], dtype)
        strip = empty_vectors(ROWS * rounded_up(len(self.rows), parts.across), dtype)
        write_seeds(
            pack_rows([left], dtype), pack_columns([self], dtype), parts, strip, out
        )

    def near_reference(self) -> Differences:
        """Return the same rows with a reference, if a sample of them differs from it in few features."""
        n, d = self.rows.shape
        if not n or d < LEAST_FEATURES or self.metric == "differing":
            return self
        sample = self.rows[:: -(-n // SAMPLE_ROWS)]
        middle = len(sample) // 2
        # The value of more than half of the rows, if any
        reference = np.partition(sample, middle, axis=0)[middle]
        if (sample != reference).mean() > MOST_DIFFERING or np.abs(
            self.rows
        ).max() > LARGEST:
            return self
        return replace(self, reference=reference)

    def relative_rows(self) -> np.ndarray:
        """Return the rows minus the reference, if there is one."""
        if self.reference is None:
            return self.rows
        return np.asarray(self.rows - self.reference)

    def distances_from_reference(self) -> np.ndarray:
        """Return the distance of each row from the reference, without root; zeros if there is no reference."""
        if self.reference is None:
            return np.zeros(len(self.rows))
        difference = self.relative_rows().astype(np.float64)
        if CODES[self.metric] == CITYBLOCK:
            return np.asarray(np.abs(difference).sum(axis=1))
        return np.asarray(np.square(difference).sum(axis=1))


def as_differences(operands: Sequence[object]) -> list[Differences] | None:
    """Return the operands of families that all start from differences; None if any does not."""
    differences = [operand for operand in operands if isinstance(operand, Differences)]
    return differences if len(differences) == len(operands) else None


class Parts(NamedTuple):
    """How seeds are made: the distances of a few parts of rows, which stand one after
    the other in flat arrays.

    Of n rows in all, panels included, the rows of part f begin at ``n before[f]``;
    parts may share rows. Without parts, seeds are not made of distances.

    Attributes
    ----------
    d, code : ndarray of int of shape (n_parts,)
        Number of features, and a code of `CODES`.
    rooted : ndarray of bool of shape (n_parts,)
        Whether seeds are made of the roots of the distances.
    repeated : ndarray of bool of shape (n_parts,)
        Whether the distances, before roots, are those of the part before.
    before : ndarray of int of shape (n_parts,)
        Number of features of the rows before.
    seeds : ndarray of int of shape (n_parts + 1,)
        Number of seeds of the parts before.
    gammas, weights : ndarray
        Factors of all seeds, and weights of all features, of the dtype of the rows.
    has_reference : ndarray of bool of shape (n_parts,)
        Whether distances are made from those of a reference, which rows are relative
        to.
    from_reference : ndarray of shape (n_parts, n_rows)
        Distances of the rows of the right side, panels included, from the reference; no
        rows if no part has one.
    small : ndarray of shape (n_parts, n_rows)
        Distances below which they are summed over all features, as digits cancel.
    width, across : int
        Values of a vector, and rows of a panel, see `panel_rows`.
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
    def of(cls, differences: Sequence[Differences], dtype: np.dtype) -> Parts:
        """Return the parts of some operands, in a precision."""
        gammas = [gamma for part in differences for gamma in part.gammas]
        distinct, places = _distinct_rows(differences)
        weights = [
            np.ones(part.rows.shape[1]) if part.weights is None else part.weights
            for part in distinct
        ]
        starts = _starts([part.rows.shape[1] for part in distinct])
        codes = [CODES[part.metric] for part in differences]
        sources = list(zip(places, codes, strict=True))
        repeated = [f > 0 and sources[f] == sources[f - 1] for f in range(len(sources))]
        from_reference = _distances_from_references(differences, dtype)
        return cls(
            d=np.array([part.rows.shape[1] for part in differences], dtype=np.intp),
            code=np.array(codes, dtype=np.intp),
            rooted=np.array(
                [part.metric == "euclidean" for part in differences], dtype=bool
            ),
            repeated=np.array(repeated, dtype=bool),
            before=starts[places],
            seeds=_starts([len(part.gammas) for part in differences]),
            gammas=np.array(gammas, dtype=dtype),
            weights=np.concatenate([*weights, np.zeros(0)]).astype(dtype),
            has_reference=np.array(
                [part.reference is not None for part in differences], dtype=bool
            ),
            from_reference=from_reference,
            small=_small_distances(differences, from_reference),
            width=lanes(dtype),
            across=panel_rows(dtype),
        )


def _distances_from_references(
    differences: Sequence[Differences], dtype: np.dtype
) -> np.ndarray:
    """Return the distances of the rows of each part from its reference, padded to whole panels."""
    if all(part.reference is None for part in differences):
        return np.zeros((len(differences), 0), dtype=dtype)
    n = len(differences[0].rows)
    padded = np.zeros((len(differences), rounded_up(n, panel_rows(dtype))), dtype=dtype)
    for f, part in enumerate(differences):
        padded[f, :n] = part.distances_from_reference()
    return padded


def _small_distances(
    differences: Sequence[Differences], from_reference: np.ndarray
) -> np.ndarray:
    """Return distances below which digits cancel, for the distances of rows from their references."""
    eps = np.finfo(from_reference.dtype).eps
    # Then roots have three quarters of the digits
    small = np.sqrt(eps) * from_reference
    for f, part in enumerate(differences):
        is_far = max(part.gammas, default=0.0) * from_reference[f] > FAR
        small[f, is_far] = SMALL * from_reference[f, is_far]
    return small


def _distinct_rows(
    differences: Sequence[Differences],
) -> tuple[list[Differences], list[int]]:
    """Return the parts whose rows no part before has, and for each part the position of
    its rows among them.

    Families make the operands of both sides in one way, so that the parts that share
    rows are the same on both.
    """
    distinct: list[Differences] = []
    places = []
    for part in differences:
        place = len(distinct)
        for earlier, other in enumerate(distinct):
            if _in_same_memory(part.rows, other.rows) and part.weights is other.weights:
                place = earlier
        if place == len(distinct):
            distinct.append(part)
        places.append(place)
    return distinct, places


def _in_same_memory(A: np.ndarray, B: np.ndarray) -> bool:
    """Return whether two arrays are the same, or views of the same values."""
    return (
        A.ctypes.data == B.ctypes.data and A.shape == B.shape and A.strides == B.strides
    )


def pack_rows(differences: Sequence[Differences], dtype: np.dtype) -> np.ndarray:
    """Return the rows of all parts as the left side of tiles, flat; rows that parts share stand there once."""
    distinct, _ = _distinct_rows(differences)
    return np.concatenate(
        [part.relative_rows().astype(dtype, copy=False).ravel() for part in distinct]
    )


def pack_columns(differences: Sequence[Differences], dtype: np.dtype) -> np.ndarray:
    """Return the rows of all parts as the right side of tiles, flat; rows that parts
    share stand there once.

    Panels of `panel_rows` rows follow each other, each feature by feature; zeros
    replace missing rows.
    """
    across = panel_rows(dtype)
    packed = []
    distinct, _ = _distinct_rows(differences)
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
    """Return where parts of these sizes begin, one after the other, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)


def panel_rows(dtype: np.dtype) -> int:
    """Return the number of rows that are laid side by side: a few vectors."""
    return PANEL_VECTORS * lanes(dtype)


def rounded_up(n: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below n."""
    return -(-n // step) * step


def distances(
    A: np.ndarray, B: np.ndarray, metric: Metric, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the distances between the rows of two matrices, shape (a, b).

    Parameters
    ----------
    A, B : ndarray of shape (a, d) and (b, d)
        Of float64 or float32. Not modified.
    metric : {"squared", "euclidean", "cityblock", "differing"}
        Squared Euclidean distances, their roots, sums of absolute differences, or of
        the weights of the features that differ.
    weights : ndarray of shape (d,), optional
        For "differing"; ones by default.

    Notes
    -----
    O(a b d).
    """
    out = np.empty((A.shape[0], B.shape[0]), dtype=A.dtype)
    Differences(B, metric, (), weights).fill(
        Differences(A, metric, (), weights), out[None]
    )
    return out


def exponentiate(D: np.ndarray, gammas: Sequence[float], out: np.ndarray) -> None:
    """Write ``exp(-gamma D) - 1`` into `out`, shape (n, a, b), in C order; `D`, not negative, is not modified."""
    values = np.ascontiguousarray(D, dtype=out.dtype).ravel()
    width = lanes(out.dtype)
    spare = empty_vectors(2 * width, out.dtype)
    exponentiate_values(values, np.asarray(gammas, dtype=out.dtype), width, spare, out)


@compiled()
def write_seeds(
    A: np.ndarray, B: np.ndarray, parts: Parts, strip: np.ndarray, out: np.ndarray
) -> None:
    """Write the seeds of all pairs of rows, or without seeds the distances, into `out`,
    shape (n, a, b).

    A, B and parts are as for `make_seeds`, of one part; `strip` is a place for `ROWS`
    rows of distances.
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
                write_exponentials(
                    (strip, at),
                    factor,
                    rooted,
                    (flat, k * a * b + to),
                    vectorized // width,
                )
                if vectorized < b:  # beyond the last value there may be another row
                    write_exponentials(
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
    """Write distances, without roots, of up to `ROWS` rows, which begin at a place,
    from those of some panels.

    The panels begin at `first`, and both are of part `f`; else as `make_seeds`.
    """
    d = parts.d[f]
    code = parts.code[f]
    stride = panels * parts.across
    weights = parts.weights[parts.before[f] : parts.before[f] + d]
    for p in range(panels):
        right = (B, first + p * parts.across * d)
        to = p * parts.across
        if rows == ROWS:
            write_differences(
                ROWS, code, (A, at), right, d, weights, (strip, to), stride
            )
        else:
            for r in range(rows):
                write_differences(
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
    """Write distances as `fill_strip` does, from those of the reference, by the features in which a row differs."""
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
    """Return the distance of two rows; `step` is from a feature to the next on the right."""
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
    """Write the seeds of up to `ROWS` rows with some panels, behind the distances of
    one part.

    Parameters
    ----------
    A, B : ndarray
        Rows of all parts, of the left side `pack_rows`, of the right one
        `pack_columns`.
    a, b : int
        Number of rows of either side, on the right one with the rows that fill the last
        panel.
    i, rows : int
        The first of the rows, and their number.
    panel, panels : int
        The first of the panels, and their number.
    parts : Parts
        How seeds are made.
    out : ndarray of shape (1 + n_seeds, rows, panels across), flat
        Written to.
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
            write_exponentials(
                (out, 0), -parts.gammas[s], parts.rooted[f], seeds, size // parts.width
            )


@compiled()
def exponentiate_values(
    D: np.ndarray, gammas: np.ndarray, width: int, spare: np.ndarray, out: np.ndarray
) -> None:
    """Write the exponentials of some values, shape (n,), into `out`, n values per gamma; `spare` is for two vectors."""
    flat = out.reshape(-1)
    size = len(D)
    vectorized = size // width * width
    rest = size - vectorized
    for n in range(rest):
        spare[n] = D[vectorized + n]
    for k in range(len(gammas)):
        write_exponentials((D, 0), -gammas[k], False, (flat, k * size), size // width)
        write_exponentials((spare, 0), -gammas[k], False, (spare, width), 1)
        for n in range(rest):
            flat[k * size + vectorized + n] = spare[width + n]
