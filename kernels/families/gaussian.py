"""Gaussian base kernels over a set of bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from kernels.families.base import KernelFamily, Rows, TilePlan, scaled_distances, squared_distances
from kernels.families.exponential import (
    Steps,
    checked_bandwidths,
    doubling_plan,
    doubling_steps,
    exponentials_less_one,
    readable,
)


class GaussianFamily(KernelFamily):
    r"""Gaussian kernels, one a bandwidth.

    .. math:: K_\gamma(x, x') = \exp(-\gamma \lVert x - x' \rVert^2)

    Parameters
    ----------
    gammas : sequence of float
        Bandwidths, in units of one over the squared distance; each positive and finite. Order is kept.

    Raises
    ------
    ValueError
        No bandwidth is given, or one is not positive and finite.

    Notes
    -----
    One product and one exponential a pair serve a whole power-of-two grid. With ``E = K - 1``, doubling the
    bandwidth squares the kernel, ``E(2 gamma) = E(gamma) (E(gamma) + 2)``; a bandwidth whose half is not in
    the set gets an exponential of its own. The recurrence starts at ``expm1`` and is stable: the error of one
    step is multiplied by ``2 K <= 2`` while E itself doubles where K is near one, so each value keeps an
    absolute error of a few units of rounding, and a relative one where the kernel is nearly constant.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.1.
    """

    def __init__(self, gammas: Sequence[float]) -> None:
        self.gammas = checked_bandwidths(gammas)

    def __repr__(self) -> str:
        return f"GaussianFamily(gammas={list(self.gammas)})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"gaussian(gamma={readable(gamma)})" for gamma in self.gammas)

    @cached_property
    def _steps(self) -> Steps:
        return doubling_steps(self.gammas)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        E = exponentials_less_one(squared_distances(A, B), self.gammas, self._steps)
        plus = np.ones(self.n_kernels) if shift is None else 1.0 - shift
        E += plus.astype(E.dtype)[:, None, None]
        return E

    def plan(self, shift: np.ndarray) -> TilePlan:
        return doubling_plan(self._steps, shift)

    @property
    def n_seeds(self) -> int:
        return sum(half is None for _, half in self._steps)

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        first, *others = (self.gammas[k] for k, half in self._steps if half is None)
        scaled_distances(A, B, -first, out[0])
        for seed, gamma in zip(out[1:], others, strict=True):
            np.multiply(out[0], gamma / first, out=seed)
        np.expm1(out, out=out)

    @property
    def translates(self) -> bool:
        return True

    def diag(self, A: Rows) -> np.ndarray:
        return np.ones((self.n_kernels, A.shape[0]))

    def subset(self, kernels: Sequence[int]) -> GaussianFamily:
        return GaussianFamily([self.gammas[k] for k in kernels])
