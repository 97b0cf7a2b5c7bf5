"""Loops compiled by Numba: how they are compiled and cached, the innermost ones, and
distances of rows.

Imports: nothing of kernels.
"""

from typing import Literal, TypeAlias

Metric: TypeAlias = Literal["squared", "euclidean", "cityblock", "differing"]
"""Distances between rows."""
