"""What a learner returns: weights and the evidence that they are optimal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from learnkernels.kernels.solvers.certificate import Certificate


class Products(Protocol):
    """M as a learner is given it: an array, or what becomes one when its entries are asked for.

    A learner that calls `diagonal` alone costs no p by p matrix; one that needs the entries takes ``np.asarray(M)``.
    """

    def diagonal(self) -> np.ndarray:
        """Return the squared norms of the centered base kernels, shape (p,)."""

    def __array__(self, dtype: Any = None, /) -> np.ndarray:
        """Return all entries, shape (p, p)."""


@dataclass(frozen=True)
class Solution:
    """Weights of the base kernels.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        mu; they apply to the base kernels as normalised by the caller. Two-stage learners give a direction, of unit
        2-norm; of one-stage learners the length is part of the solution.
    certificate : Certificate or None
        Evidence of optimality, where the learner solves an optimisation problem.
    degree : int
        The kernel is ``offset + sum_k mu_k K_k`` raised to this power, entry by entry.
    offset : float
        Added before the power.
    """

    weights: np.ndarray
    certificate: Certificate | None = None
    degree: int = 1
    offset: float = 0.0

    @classmethod
    def of_direction(cls, v: np.ndarray, certificate: Certificate | None = None) -> Solution:
        """Return the solution along `v`; alignment does not depend on the length.

        Raises
        ------
        ValueError
            v is zero: no base kernel has a positive product with the target.
        """
        norm = np.linalg.norm(v)
        if not norm > 0:
            raise ValueError("no base kernel aligns with the target (all weights are zero); try other base kernels.")
        return cls(v / norm, certificate)
