"""Sums over a few rows of their kernel with a new one: what predictors are, evaluated in strips that stay in cache."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from learnkernels.kernels.engine.combination import MOST_TOGETHER, Combination, LaidOut
from learnkernels.kernels.engine.workers import Threads
from learnkernels.kernels.families.base import Rows, move
from learnkernels.kernels.families.feature import FeatureFamily

STRIP = 256
"""Most new rows of a tile."""

TILE_BYTES = 1 << 20
"""Size of a tile, and of its seeds where they are held: so large that what is done once a tile counts for little."""

LEAST_COLUMNS = 64
"""Fewest columns of a tile, where there are that many."""

TASK_PAIRS = 1 << 20
"""About how many pairs of rows a thread takes at a time; with fewer in all there is one thread."""


class Expansion:
    r"""Functions :math:`f_j(x) = b_j + \sum_i V_{ij} \, C(x - o, x_i)` for a `Combination` C, not centered.

    Parameters
    ----------
    combination : Combination
    X : ndarray or CSR matrix of shape (s, d)
        The rows :math:`x_i`, less `origin`. Not modified.
    V : ndarray of shape (s, q)
    constant : ndarray of shape (q,)
        b.
    origin : ndarray of shape (d,)
        o.

    Notes
    -----
    O(n s (d + p + q)) time for n rows and O(q n) memory beside a tile a thread; the kernel between the rows is formed a
    tile at a time. What of a tile depends on X alone is formed once, and left out of pickles. Features that are kernels
    of rank one are weighed once and for all: O(n d q).
    """

    def __init__(
        self, combination: Combination, X: Rows, V: np.ndarray, constant: np.ndarray, origin: np.ndarray
    ) -> None:
        self.combination, self.X, self.V, self.constant, self.origin = combination, X, V, constant, origin
        self._sides: dict[np.dtype[Any], tuple[Any, np.ndarray]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**{name: value for name, value in vars(self).items() if name != "_weights"}, "_sides": {}}

    def values(self, A: Rows, dtype: Any = np.float64, strip: int = STRIP) -> np.ndarray:
        """Return the functions of new rows.

        Parameters
        ----------
        A : ndarray or CSR matrix of shape (n, d)
            Finite, in the order of the features. Not modified.
        dtype : dtype, default float64
            Precision of the tiles; their sums are added in float64.
        strip : int, default 256
            Most rows of a tile: the bits of a value depend on the rows of its tile, which are counted from the first.

        Returns
        -------
        values : ndarray of float64 of shape (n, q)
        """
        strip, dtype = min(strip, STRIP), np.dtype(dtype)
        n, s = A.shape[0], self.X.shape[0]
        out = np.empty((n, self.V.shape[1]))
        if not s:
            out[:] = self.constant
        elif n:
            step = strip * max(1, TASK_PAIRS // (strip * s))
            self._side(dtype)  # once, before threads ask for it
            tasks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
            Threads().total(lambda *task: self._write(A, task[2], strip, dtype, out), None, None, tasks)
        return out

    def _side(self, dtype: np.dtype[Any]) -> tuple[Any, np.ndarray]:
        """Return X as the right side of tiles, and V, in a precision; a few functions as the rows of X are laid out."""
        if dtype not in self._sides:
            right = self.combination.side(self.X, dtype)
            few = self.V.shape[1] <= MOST_TOGETHER
            V = right.stretched(self.V) if few and isinstance(right, LaidOut) else self.V.astype(dtype)
            self._sides[dtype] = right, V
        return self._sides[dtype]

    @cached_property
    def _weights(self) -> np.ndarray:
        """What features that are kernels of rank one are multiplied by, shape (p, q)."""
        family, coefficients, _ = self.combination.evaluated
        assert isinstance(family, FeatureFamily)
        return np.asarray(coefficients[:, None] * np.asarray(family.take(self.X).T @ self.V))

    def _moved(self, A: Rows) -> Rows:
        """Return new rows less the origin, in one layout, so that bits do not depend on how they came."""
        if sparse.issparse(self.X):
            return A if sparse.issparse(A) else type(self.X)(A)
        dense = A.toarray() if sparse.issparse(A) else A
        return move(np.ascontiguousarray(dense, dtype=np.float64), self.origin)

    def _write(self, A: Rows, rows: slice, strip: int, dtype: np.dtype[Any], out: np.ndarray) -> int:
        """Write the values of some rows into their places in `out`."""
        family = self.combination.evaluated[0]
        for start in range(rows.start, rows.stop, strip):
            some = slice(start, min(start + strip, rows.stop))
            part = self._moved(A[some])
            if isinstance(family, FeatureFamily):
                out[some] = family.take(part) @ self._weights + self.constant
                continue
            (right, V), a = self._side(dtype), part.shape[0]
            if isinstance(right, LaidOut) and self.V.shape[1] <= MOST_TOGETHER:
                out[some] = right.applied(part, V) + self.constant
                continue
            matrices = 1 if isinstance(right, LaidOut) else family.n_seeds
            left, b = right.left(part), max(LEAST_COLUMNS, TILE_BYTES // (8 * a * matrices))
            K, values = np.empty((a, min(b, len(V))), dtype=dtype), np.tile(self.constant, (a, 1))
            for first in range(0, len(V), b):
                columns = slice(first, min(first + b, len(V)))
                tile = K.reshape(-1)[: a * (columns.stop - first)].reshape(a, -1)
                right.fill(left, slice(0, a), columns, tile)
                values += tile @ V[columns]
            out[some] = values
        return 0
