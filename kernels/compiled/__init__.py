"""Loops compiled by Numba, their cache on disk, and distances between rows.

Imports: nothing of kernels.
"""

from typing import Literal, TypeAlias

Metric: TypeAlias = Literal["squared", "euclidean", "cityblock", "differing"]
