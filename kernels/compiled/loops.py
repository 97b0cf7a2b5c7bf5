"""Innermost loops: vector code for tested versions of Numba, otherwise plain loops."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np


def _implementation() -> ModuleType:
    try:
        from . import simd
    except ImportError:
        from . import plain

        return plain
    return simd


_loops = _implementation()

CHAIN_LENGTHS = _loops.CHAIN_LENGTHS
LONGEST_RUN = _loops.LONGEST_RUN
PANEL_VECTORS = _loops.PANEL_VECTORS
add_chain = _loops.add_chain
add_rectangle = _loops.add_rectangle
add_triangle = _loops.add_triangle
lanes = _loops.lanes
make_kernels = _loops.make_kernels
make_target = _loops.make_target
subtract_common = _loops.subtract_common
write_distances = _loops.write_distances
write_expm1 = _loops.write_expm1

ALIGNMENT = 64
"""Bytes of the widest vector."""


def empty_vectors(n: int, dtype: Any) -> np.ndarray:
    """Return an aligned array of n values, with space for another vector."""
    itemsize = np.dtype(dtype).itemsize
    array = np.empty(n + 2 * ALIGNMENT // itemsize, dtype=dtype)
    bytes_to_boundary = -array.ctypes.data % ALIGNMENT
    return array[bytes_to_boundary // itemsize :][: n + ALIGNMENT // itemsize]
