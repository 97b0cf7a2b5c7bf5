"""The Gram matrix of a weighted sum of base kernels over many rows, applied and never formed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from learnkernels.kernels.engine.combination import MOST_TOGETHER, Combination, LaidOut
from learnkernels.kernels.engine.workers import RowSource, Threads, Workers, spans
from learnkernels.kernels.families.base import Rows

SPAN = 2048
"""Rows of the square of pairs that one task takes."""

STRIP = 256
"""Rows of such a square whose kernel is held at once."""


@dataclass
class Pieces:
    """Values of some runs of rows; adding two adds what is of the same run.

    Attributes
    ----------
    of : dict of int to ndarray of shape (rows of the run, c)
        By the position of the run.
    """

    of: dict[int, np.ndarray]

    def __add__(self, other: Pieces) -> Pieces:
        for run, values in other.of.items():
            self.of[run] = self.of[run] + values if run in self.of else values
        return self

    def joined(self) -> np.ndarray:
        """Return the values of all runs, in their order."""
        return np.concatenate([self.of[run] for run in sorted(self.of)])


class CombinedGram:
    """The symmetric matrix K of a `Combination` over m rows, not centered.

    Parameters
    ----------
    combination : Combination
    rows : RowSource of shape (m, d)
        As `Workers.hold` gives them.
    workers : Workers
    """

    def __init__(self, combination: Combination, rows: RowSource, workers: Workers) -> None:
        self._workers = workers
        self._spans = spans(rows.shape[0], SPAN)
        self._given = combination.family
        if isinstance(workers, Threads):  # others read rows where they find them
            combination, rows = _mapped_once(combination, rows, self._spans)
        self._taken = combination.family
        self._pairs = [(i, j) for i in range(len(self._spans)) for j in range(i, len(self._spans))]
        self._shared = workers.share((combination, rows, self._spans))

    def matvec(self, V: np.ndarray, dtype: DTypeLike = np.float64) -> np.ndarray:
        """Return ``K @ V``, shape (m, c); O(m^2 (d + p + c)) time, half of all kernels, O(m c) memory.

        In float32 it takes about half the time, and six digits are right.
        """
        pieces: Pieces = self._workers.total(_products, self._shared, (V, np.dtype(dtype)), self._pairs)
        return pieces.joined()

    def columns(self, B: Rows) -> np.ndarray:
        """Return the kernel between all rows and a few others, shape (m, b)."""
        B = B if self._taken is self._given else self._given.mapped_once(B)[1]
        pieces: Pieces = self._workers.total(_columns, self._shared, B, range(len(self._spans)))
        return pieces.joined()

    def diagonal(self) -> np.ndarray:
        """Return the kernel of each row with itself, shape (m,)."""
        pieces: Pieces = self._workers.total(_diagonal, self._shared, None, range(len(self._spans)))
        return pieces.joined()


def _mapped_once(
    combination: Combination, rows: RowSource, runs: Sequence[tuple[int, int]]
) -> tuple[Combination, RowSource]:
    """Return the combination as one of new features, and these of all rows, where it maps them."""
    family = combination.family.mapped_once(rows[:0])[0]
    if family is combination.family:
        return combination, rows
    mapped = [combination.family.mapped_once(rows[slice(*run)])[1] for run in runs]
    return Combination(family, combination.coefficients, combination.shift), np.concatenate(mapped)


Shared = tuple[Combination, RowSource, list[tuple[int, int]]]


def _diagonal(shared: Shared, argument: None, span: int) -> Pieces:
    combination, rows, all_spans = shared
    return Pieces({span: combination.diagonal(rows[slice(*all_spans[span])])})


def _products(shared: Shared, argument: tuple[np.ndarray, np.dtype[Any]], pair: tuple[int, int]) -> Pieces:
    """Return what the pairs of rows of two runs add to the product."""
    (combination, rows, runs), (V, dtype), (i, j) = shared, argument, pair
    own, other = slice(*runs[i]), slice(*runs[j])
    A = rows[own]
    B = A if i == j else rows[other]
    V_i, V_j = V[own], V[other]
    out = {i: np.zeros_like(V_i), j: np.zeros_like(V_j)}
    right = None if i == j else combination.side(B, dtype)
    if isinstance(right, LaidOut) and V.shape[1] <= MOST_TOGETHER:
        out[i] += right.products(A, V_j, V_i, out[j])
        return Pieces(out)
    K = np.empty((min(STRIP, A.shape[0]), B.shape[0]), dtype=np.float64 if right is None else dtype)
    V_i, V_j = V_i.astype(K.dtype, copy=False), V_j.astype(K.dtype, copy=False)
    for start in range(0, A.shape[0], STRIP):
        stop = min(start + STRIP, A.shape[0])
        # Within one run, a strip begins at its own rows: what is left of them are mirror images.
        first = start if i == j else 0
        strip = K[: stop - start, : B.shape[0] - first]
        combination.fill(A[start:stop], B[first:], strip, right=right)
        out[i][start:stop] += strip @ V_j[first:]
        mirrored = stop if i == j else 0
        out[j][mirrored:] += strip[:, mirrored - first :].T @ V_i[start:stop]
    return Pieces(out)


def _columns(shared: Shared, B: Rows, run: int) -> Pieces:
    combination, rows, runs = shared
    return Pieces({run: combination.matrix(rows[slice(*runs[run])], B)})
