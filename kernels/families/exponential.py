"""What the exponential families share: bandwidths, their names, and one exponential for a power-of-two grid."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Self

import numpy as np

from learnkernels.kernels.compiled.distances import exponentiate
from learnkernels.kernels.families.base import KernelFamily, Rows, TilePlan, readable
from learnkernels.kernels.fields import Fields, list_of, number

DOUBLINGS = 4
"""Most doublings that take less time than an exponential."""

Steps = tuple[tuple[int, int | None], ...]
"""Pairs (kernel, kernel of half its bandwidth or None), each half before its double."""


class ExponentialFamily(KernelFamily):
    """Kernels ``exp(-gamma D(x, x'))`` over bandwidths gamma, for a distance D that shifting all rows does not change.

    Notes
    -----
    A subclass gives the distance; names, order, tiles and plans follow.
    """

    def __init__(self, gammas: Sequence[float]) -> None:
        self.gammas = checked_bandwidths(gammas)

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        return cls(fields.get("gammas", list_of(number)))

    @abstractmethod
    def distances(self, A: Rows, B: Rows) -> np.ndarray:
        """Return the distances of two sets of rows, shape (a, b): not negative, exactly zero where ``A is B``."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.kind}(gamma={readable(gamma)})" for gamma in self.gammas)

    @cached_property
    def _steps(self) -> Steps:
        return doubling_steps(self.gammas)

    @cached_property
    def _seed_gammas(self) -> tuple[float, ...]:
        """Bandwidths that need an exponential of their own, ascending."""
        return tuple(self.gammas[k] for k, half in self._steps if half is None)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        E = exponentials_less_one(self.distances(A, B), self.gammas, self._steps)
        plus = np.ones(self.n_kernels) if shift is None else 1.0 - shift
        E += plus.astype(E.dtype)[:, None, None]
        return E

    def plan(self, shift: np.ndarray) -> TilePlan:
        return doubling_plan(self._steps, shift)

    def filled_up(self) -> tuple[Self, np.ndarray]:
        """Return a grid in which bandwidths that are a few doublings apart have those between them.

        A class with a `subset` of its own, whose making may take more than bandwidths, stays as it is.
        """
        others: set[float] = set()
        for gamma in self.gammas:
            halves = [gamma / 2**n for n in range(1, DOUBLINGS + 1)]
            apart = next((n for n, other in enumerate(halves) if other in self.gammas), 0)
            others |= set(halves[:apart])
        known = type(self).subset is ExponentialFamily.subset
        return self._of([*self.gammas, *sorted(others)]) if others and known else self, np.arange(self.n_kernels)

    @property
    def n_seeds(self) -> int:
        return len(self._seed_gammas)

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        self._fill_from(self.distances(A, B), out)

    def _fill_from(self, D: np.ndarray, out: np.ndarray) -> None:
        """Write the seeds of some distances."""
        exponentiate(D, self._seed_gammas, out)

    @property
    def translation_invariant(self) -> bool:
        return True

    def diag(self, A: Rows) -> np.ndarray:
        return np.ones((self.n_kernels, A.shape[0]))

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._of([self.gammas[k] for k in kernels])

    def _of(self, gammas: Sequence[float]) -> Self:
        """Return the family of other bandwidths that is like this one otherwise."""
        return type(self)(gammas)


def checked_bandwidths(gammas: Sequence[float]) -> tuple[float, ...]:
    """Return bandwidths as floats, in the order given.

    Raises
    ------
    ValueError
        No bandwidth is given, or one is not positive and finite.
    """
    checked = tuple(float(gamma) for gamma in gammas)
    if not checked:
        raise ValueError("gammas must name at least one bandwidth, got an empty list.")
    for gamma in checked:
        if not (0.0 < gamma < np.inf):
            raise ValueError(f"gammas must be positive and finite, got {gamma:g}; leave it out or correct it.")
    return checked


def doubling_steps(gammas: Sequence[float]) -> Steps:
    """Return the order in which `exponentials_less_one` forms its values."""
    position = {gamma: k for k, gamma in enumerate(gammas)}
    ascending = sorted(range(len(gammas)), key=gammas.__getitem__)
    return tuple((k, position.get(gammas[k] / 2)) for k in ascending)


def exponentials_less_one(D: np.ndarray, gammas: Sequence[float], steps: Steps) -> np.ndarray:
    r"""Return :math:`E_k = e^{-\gamma_k D} - 1` for all bandwidths.

    .. math:: E(2 \gamma) = E(\gamma) \, (E(\gamma) + 2)

    Parameters
    ----------
    D : ndarray
        Non-negative. Not modified.
    gammas : sequence of float
        p bandwidths.
    steps : tuple
        ``doubling_steps(gammas)``.

    Returns
    -------
    E : ndarray of shape (p, *D.shape)

    Notes
    -----
    One `expm1` for each bandwidth whose half is not among them, two flops a value for the others. Stable: the error
    of one step is multiplied by ``2 K <= 2`` while E itself doubles where K is near one.
    """
    E = np.empty((len(gammas), *D.shape), dtype=D.dtype)
    for k, half in steps:
        if half is None:
            np.multiply(D, -gammas[k], out=E[k])
            np.expm1(E[k], out=E[k])
        else:
            np.add(E[half], 2.0, out=E[k])
            E[k] *= E[half]
    return E


def doubling_plan(steps: Steps, shift: np.ndarray) -> TilePlan:
    """Return the plan of a tile whose seeds are E for each bandwidth, in the order of `steps`, without its half."""
    order, half, seeds = [], np.full(len(steps), -1), 0
    for k, parent in steps:
        order.append((k, seeds if parent is None else -1))
        seeds += parent is None
        half[k] = -1 if parent is None else parent
    return TilePlan(np.array(order), half, 1.0 - shift)
