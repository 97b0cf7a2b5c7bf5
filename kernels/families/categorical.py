"""Base kernels that only know whether levels are equal, over a set of bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from learnkernels.kernels.compiled.distances import Differences, distances, fill_exponentials
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.families.exponential import ExponentialFamily
from learnkernels.kernels.fields import Fields, list_of, number, optional


class CategoricalFamily(ExponentialFamily):
    r"""Kernels of categories: rows are alike as far as their columns hold equal levels.

    .. math:: K_\gamma(x, x') = \exp \Bigl( -\gamma \sum_j w_j \, [x_j \neq x'_j] \Bigr)

    Parameters
    ----------
    gammas : sequence of float
        Bandwidths, in units of one over a differing column of weight one; each positive and finite. Order is kept. Of
        one column and a large one, such as 64, the kernel is one where levels are equal, and zero elsewhere.
    weights : sequence of float, optional
        w, one a column, positive and finite; one each by default.

    Raises
    ------
    ValueError
        No bandwidth is given, or a bandwidth or weight is not positive and finite; in use, another number of columns.

    Notes
    -----
    Columns hold codes, any number for a level: only whether two are equal counts, so a level that no training row had
    is different from all. On columns of ones and zeros, one a level, a Gaussian of half the gamma is the same kernel;
    here a pair of rows costs one comparison a column, however many levels there are. Positive definite as a product of
    ``exp(-gamma w) + (1 - exp(-gamma w)) [x_j = x'_j]``.
    """

    kind = "categorical"

    def __init__(self, gammas: Sequence[float], weights: Sequence[float] | None = None) -> None:
        super().__init__(gammas)
        self.weights = None if weights is None else tuple(float(weight) for weight in weights)
        for weight in self.weights or ():
            if not 0.0 < weight < np.inf:
                raise ValueError(f"weights must be positive and finite, got {weight:g}; leave such a column out.")

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        return cls(fields.get("gammas", list_of(number)), fields.get("weights", optional(list_of(number))))

    def _resolved(self) -> dict[str, Any]:
        return {"gammas": self.gammas, "weights": self.weights}

    def distances(self, A: Rows, B: Rows) -> np.ndarray:
        return distances(A, B, "differing", self._weights_of(A))

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        fill_exponentials(A, B, "differing", self._seed_gammas, out, self._weights_of(A))

    def differences(self, A: Rows) -> list[Differences] | None:
        return [Differences(np.asarray(A), "differing", self._seed_gammas, self._weights_of(A))]

    def _weights_of(self, A: Rows) -> np.ndarray | None:
        if self.weights is not None and len(self.weights) != A.shape[1]:
            raise ValueError(f"X must have the {len(self.weights)} columns that have a weight, got {A.shape[1]}.")
        return None if self.weights is None else np.asarray(self.weights)

    @property
    def takes_sparse(self) -> bool:
        return False

    def _of(self, gammas: Sequence[float]) -> Self:
        return type(self)(gammas, self.weights)
