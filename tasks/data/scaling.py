"""Features in common units: what is subtracted from each, and what each is divided by."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy import sparse

from learnkernels.conf.errors import InputError

BLOCK_BYTES = 16 << 20
"""Size of the blocks in which checks and statistics go through dense rows."""


def scaling_of(X: Any, scale: str, where: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return what to subtract from each feature, and to divide it by; nothing for raw features."""
    if scale == "none":
        return None, None
    if sparse.issparse(X):
        if scale != "max" and (scale != "unit" or X.data.min(initial=0.0) < 0):
            raise InputError(
                f"{where}: scale {scale!r} would fill this sparse data set's zeros; use 'scale: none', 'max', or "
                "'unit' with features that are not negative."
            )
        low, spread = np.zeros(X.shape[1]), np.asarray(abs(X).max(axis=0).todense()).ravel()
    elif scale == "max":
        low, spread = np.zeros(X.shape[1]), np.maximum(X.max(axis=0), -X.min(axis=0))
    elif scale == "unit":
        low, spread = X.min(axis=0), np.ptp(X, axis=0)
    else:
        low, spread = X.mean(axis=0), _deviations(X)
    # A constant column has no spread; it becomes zero, of its largest size one.
    return low, np.where(spread > 0, spread, 1.0)


def _deviations(X: np.ndarray) -> np.ndarray:
    """Return ``X.std(axis=0)``, to the last bit, without a second matrix of its size."""
    d = X.shape[1]
    pieces = min(max(1, d // 2), -(-X.nbytes // BLOCK_BYTES))  # two columns at least: of one, NumPy adds in pairs
    cuts = [d * i // pieces for i in range(pieces + 1)]
    return np.concatenate([X[:, start:stop].std(axis=0) for start, stop in itertools.pairwise(cuts)])


def scaled(X: Any, low: np.ndarray | None, spread: np.ndarray | None) -> Any:
    """Return scaled features; dense ones are scaled where they are."""
    if low is None or spread is None:
        return X
    if not sparse.issparse(X):
        X -= low
        X /= spread
        return X
    return sparse.csr_matrix((X.data / spread[X.indices], X.indices, X.indptr), shape=X.shape)
