"""Families of base kernels whose parameters are searched, not listed: one bandwidth or frequency, or one a feature."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, get_args

import numpy as np

from learnkernels.kernels.families.base import KernelFamily, Rows
from learnkernels.kernels.parameters import Parameterised

Kind = Literal["gaussian", "laplacian", "dirichlet"]


def require_kind(kind: str) -> None:
    """Raise ValueError if there is no such kind of continuous family."""
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be gaussian, laplacian or dirichlet, got {kind!r}.")


class PairObjective(ABC):
    r"""Kernels over all pairs of m rows as functions of :math:`u = \log \sigma`, shape (r,)."""

    @abstractmethod
    def matrix(self, u: np.ndarray) -> np.ndarray:
        """Return the kernel matrix, shape (m, m), freshly allocated, exactly symmetric, not centered."""

    @abstractmethod
    def value_and_gradient(self, u: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray]:
        """Return ``<P, K(u)>_F`` and its derivative by u, shape (r,), for a symmetric P of shape (m, m)."""

    def values(self, U: np.ndarray, P: np.ndarray) -> np.ndarray:
        """Return ``<P, K(u)>_F`` for each row u of U, shape (n,); may be approximate where that is much faster."""
        return np.array([self.value_and_gradient(u, P)[0] for u in U])


class ContinuousFamily(Parameterised, ABC):
    """Base kernels whose bandwidths or frequencies are found for the data: r parameters sigma, searched in their log u.

    Notes
    -----
    ``gaussian`` is ``exp(-sum_i (x_i - z_i)^2 / sigma_i^2)``, ``laplacian`` ``exp(-sum_i |x_i - z_i| / sigma_i)`` and
    ``dirichlet`` ``prod_i (1 + 2 cos(sigma_i (x_i - z_i)))``, with one sigma for all features or one for each.
    """

    @abstractmethod
    def objective(self, X: Rows) -> PairObjective:
        """Return the kernels over all pairs of some rows."""

    @abstractmethod
    def starts(self, X: Rows) -> np.ndarray:
        """Return points u to search from, shape (n, r), in an order that does not depend on that of the rows."""

    @abstractmethod
    def bounds(self, X: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest u, shape (r,) each, that make sense for some rows."""

    @abstractmethod
    def finite(self, U: np.ndarray) -> KernelFamily:
        """Return the base kernels at each row u of U, shape (p, r), as a finite family."""
