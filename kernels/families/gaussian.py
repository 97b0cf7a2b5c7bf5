"""Gaussian base kernels over a set of bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from kernels.families.base import KernelFamily, Rows, squared_distances


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
        self.gammas = tuple(float(gamma) for gamma in gammas)
        if not self.gammas:
            raise ValueError("gammas must name at least one bandwidth, got an empty list.")
        for gamma in self.gammas:
            if not (0.0 < gamma < np.inf):
                raise ValueError(f"gammas must be positive and finite, got {gamma:g}; leave it out or correct it.")

    def __repr__(self) -> str:
        return f"GaussianFamily(gammas={list(self.gammas)})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"gaussian(gamma={_readable(gamma)})" for gamma in self.gammas)

    @cached_property
    def _steps(self) -> tuple[tuple[int, int | None], ...]:
        """Pairs (kernel, kernel of half its bandwidth or None), each half before its double."""
        position = {gamma: k for k, gamma in enumerate(self.gammas)}
        ascending = sorted(range(len(self.gammas)), key=self.gammas.__getitem__)
        return tuple((k, position.get(self.gammas[k] / 2)) for k in ascending)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        D = squared_distances(A, B)
        E = np.empty((self.n_kernels, *D.shape))
        for k, half in self._steps:
            if half is None:
                np.multiply(D, -self.gammas[k], out=E[k])
                np.expm1(E[k], out=E[k])
            else:
                np.add(E[half], 2.0, out=E[k])
                E[k] *= E[half]
        ones = np.ones(self.n_kernels)
        E += (ones if shift is None else ones - shift)[:, None, None]
        return E

    def diag(self, A: Rows) -> np.ndarray:
        return np.ones((self.n_kernels, A.shape[0]))

    def subset(self, kernels: Sequence[int]) -> GaussianFamily:
        return GaussianFamily([self.gammas[k] for k in kernels])


def _readable(gamma: float) -> str:
    """Return a bandwidth as people write it: a power of two of some size as such."""
    mantissa, exponent = np.frexp(gamma)
    return f"2^{exponent - 1}" if mantissa == 0.5 and abs(exponent - 1) > 1 else f"{gamma:.12g}"
