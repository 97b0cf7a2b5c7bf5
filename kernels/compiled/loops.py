"""The innermost loops: vector code where this Numba and this CPU allow it, and plain loops elsewhere.

Both compute the same numbers up to rounding: exponentials to two units in the last place, and sums in another order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from .simd import (
        CHAIN_LENGTHS,
        LONGEST_RUN,
        PANEL_VECTORS,
        add_chain,
        add_rectangle,
        add_triangle,
        lanes,
        make_kernels,
        make_target,
        write_differences,
        write_exponentials,
    )
except ImportError:
    from .plain import (
        CHAIN_LENGTHS,
        LONGEST_RUN,
        PANEL_VECTORS,
        add_chain,
        add_rectangle,
        add_triangle,
        lanes,
        make_kernels,
        make_target,
        write_differences,
        write_exponentials,
    )

ALIGNMENT = 64
"""Bytes of the widest vector."""


def empty_vectors(n: int, dtype: Any) -> np.ndarray:
    """Return a flat array of n values, not set, that begins where a vector does and has a vector to spare behind it."""
    itemsize = np.dtype(dtype).itemsize
    array = np.empty(n + 2 * ALIGNMENT // itemsize, dtype=dtype)
    bytes_to_boundary = -array.ctypes.data % ALIGNMENT
    return array[bytes_to_boundary // itemsize :][: n + ALIGNMENT // itemsize]


__all__ = [
    "CHAIN_LENGTHS",
    "LONGEST_RUN",
    "PANEL_VECTORS",
    "add_chain",
    "add_rectangle",
    "add_triangle",
    "empty_vectors",
    "lanes",
    "make_kernels",
    "make_target",
    "write_differences",
    "write_exponentials",
]
