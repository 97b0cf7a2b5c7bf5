"""Loops compiled by Numba, their cache, and distances of rows.

Imports: nothing of kernels.
"""

from typing import Literal, TypeAlias

Metric: TypeAlias = Literal["squared", "euclidean", "cityblock", "differing"]
