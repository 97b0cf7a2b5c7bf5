"""Laplacian base kernels over a set of bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from kernels.families.base import KernelFamily, Rows, TilePlan
from kernels.families.exponential import (
    Steps,
    checked_bandwidths,
    doubling_plan,
    doubling_steps,
    exponentials_less_one,
    readable,
)


class LaplacianFamily(KernelFamily):
    r"""Laplacian kernels, one a bandwidth.

    .. math:: K_\gamma(x, x') = \exp(-\gamma \lVert x - x' \rVert_1)

    Parameters
    ----------
    gammas : sequence of float
        Bandwidths, in units of one over the 1-norm distance; each positive and finite. Order is kept.

    Raises
    ------
    ValueError
        No bandwidth is given, or one is not positive and finite.

    Notes
    -----
    A pair costs ``3 d`` flops for its distance, more than a Gaussian's, whose distances are a matrix product, and one
    exponential for a whole power-of-two grid. Values are formed as ``K - 1``, so that a nearly constant kernel keeps
    its digits under a shift. Of sparse rows the columns that a tile uses are filled.

    References
    ----------
    Rahimi, Recht (2007), NIPS 20, Figure 1: positive definite, with a product of Cauchy densities for its transform.
    """

    def __init__(self, gammas: Sequence[float]) -> None:
        self.gammas = checked_bandwidths(gammas)

    def __repr__(self) -> str:
        return f"LaplacianFamily(gammas={list(self.gammas)})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"laplacian(gamma={readable(gamma)})" for gamma in self.gammas)

    @cached_property
    def _steps(self) -> Steps:
        return doubling_steps(self.gammas)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        E = exponentials_less_one(_absolute_distances(A, B), self.gammas, self._steps)
        plus = np.ones(self.n_kernels) if shift is None else 1.0 - shift
        E += plus.astype(E.dtype)[:, None, None]
        return E

    def plan(self, shift: np.ndarray) -> TilePlan:
        return doubling_plan(self._steps, shift)

    @property
    def n_seeds(self) -> int:
        return sum(half is None for _, half in self._steps)

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        D = _absolute_distances(A, B)
        for seed, gamma in zip(out, (self.gammas[k] for k, half in self._steps if half is None), strict=True):
            np.multiply(D, -gamma, out=seed)
        np.expm1(out, out=out)

    @property
    def translates(self) -> bool:
        return True

    def diag(self, A: Rows) -> np.ndarray:
        return np.ones((self.n_kernels, A.shape[0]))

    def subset(self, kernels: Sequence[int]) -> LaplacianFamily:
        return LaplacianFamily([self.gammas[k] for k in kernels])


def _absolute_distances(A: Rows, B: Rows) -> np.ndarray:
    """Return the 1-norm distances between two sets of rows, shape (a, b); exactly zero for equal rows."""
    if sparse.issparse(A):
        used = np.union1d(A.indices, B.indices)
        if not len(used):
            return np.zeros((A.shape[0], B.shape[0]), dtype=A.dtype)
        A, B = A[:, used].toarray(), B[:, used].toarray()
    return np.asarray(cdist(A, B, metric="cityblock"), dtype=A.dtype)
