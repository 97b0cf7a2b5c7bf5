"""Exponentials of distances: Gaussian, Laplacian and categorical kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse

from ..compiled import Metric
from ..validation import positive_numbers
from .base import ExpandedRows, KernelFamily, Rows, TilePlan, readable, seeded_tile

DOUBLINGS = 4
"""Most doublings that are faster than an exponential."""

FEW_FEATURES = 64
"""Most features for which sums of differences are faster than products."""


class ExponentialFamily(KernelFamily):
    r"""Base class of kernels ``exp(-gamma D(x, x'))`` with a distance D.

    Seeds are :math:`E_\gamma = e^{-\gamma D} - 1` for each gamma without its half in
    the family. The others follow by stable doubling:

    .. math:: E(2 \gamma) = E(\gamma) \, (E(\gamma) + 2)
    """

    distance: Metric
    translation_invariant = True

    def __init__(self, gammas: Sequence[float]) -> None:
        self.gammas = positive_numbers("gammas", gammas)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.kind}(gamma={readable(gamma)})" for gamma in self.gammas)

    @property
    def n_kernels(self) -> int:
        return len(self.gammas)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return seeded_tile(ExponentialFamily, self, A, B, shift)

    @cached_property
    def _doubling(self) -> tuple[np.ndarray, np.ndarray, tuple[float, ...]]:
        position_of_gamma = {gamma: k for k, gamma in enumerate(self.gammas)}
        half = np.array([position_of_gamma.get(gamma / 2, -1) for gamma in self.gammas])
        ascending = sorted(range(self.n_kernels), key=self.gammas.__getitem__)
        order = []
        seed_gammas: list[float] = []
        for k in ascending:
            if half[k] >= 0:
                order.append((k, -1))
            else:
                order.append((k, len(seed_gammas)))
                seed_gammas.append(self.gammas[k])
        return np.array(order), half, tuple(seed_gammas)

    def plan(self, shift: np.ndarray) -> TilePlan:
        order, half, _ = self._doubling
        return TilePlan(order, half, 1.0 - shift)

    def operands(
        self,
        A: Rows,
        shift: np.ndarray,
        center: np.ndarray | None = None,
        dtype: Any = None,
    ) -> list[Any]:
        # Families work without the compiler
        from ..compiled.distances import (
            DistanceSide,
        )

        if sparse.issparse(A) and self.distance == "differing":
            raise ValueError(
                f"{type(self).__name__} needs dense rows, got sparse ones; use X.toarray()."
            )
        if dtype is None:
            dtype = A.dtype
        _, _, gammas = self._doubling
        weights = self._weights_of(A)
        by_products = (
            self.distance in ("squared", "euclidean") and A.shape[1] > FEW_FEATURES
        )
        if by_products or sparse.issparse(A):
            return [ExpandedRows.of(A, center, self.distance, gammas, dtype)]
        if A.dtype != dtype and center is not None and self.distance != "differing":
            A = A - center  # before rounding to a lower precision
        return [
            DistanceSide(np.asarray(A, dtype=dtype), self.distance, gammas, weights)
        ]

    def _weights_of(self, A: Rows) -> np.ndarray | None:
        return None

    def completed_grid(self) -> tuple[Self, np.ndarray]:
        """Return the kernels with gammas doubled in between: 1, 2, 4 and 8 for 1 and 8."""
        positions = np.arange(self.n_kernels)
        if type(self).subset is not ExponentialFamily.subset:
            return self, positions
        between: set[float] = set()
        for gamma in self.gammas:
            halves = [gamma / 2**n for n in range(1, DOUBLINGS + 1)]
            n_between = next(
                (n for n, half in enumerate(halves) if half in self.gammas), 0
            )
            between.update(halves[:n_between])
        if not between:
            return self, positions
        return self._with(gammas=[*self.gammas, *sorted(between)]), positions

    def diag(self, A: Rows) -> np.ndarray:
        return np.ones((self.n_kernels, A.shape[0]))

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(gammas=[self.gammas[k] for k in kernels])


class GaussianFamily(ExponentialFamily):
    r"""Gaussian (RBF) kernels with several bandwidths.

    .. math:: K_\gamma(x, x') = \exp(-\gamma \lVert x - x' \rVert^2)

    Parameters
    ----------
    gammas : sequence of float
        Values of gamma, positive, per squared distance.

    Raises
    ------
    ValueError
        `gammas` is empty, or a value is not positive and finite.

    Notes
    -----
    A grid of powers of two takes one exponential per pair. Values near one keep their
    relative precision.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.1.
    """

    kind = "gaussian"
    distance = "squared"


class LaplacianFamily(ExponentialFamily):
    r"""Laplacian kernels with several bandwidths, less smooth than Gaussians.

    .. math:: K_\gamma(x, x') = \exp(-\gamma \lVert x - x' \rVert_p), \qquad p \in \{1, 2\}

    Parameters
    ----------
    gammas : sequence of float
        Values of gamma, positive, per distance.
    norm : {1, 2}, default 1
        Norm of the distance. With 1, the kernel is a product over features; with 2, it
        is invariant to rotations (Matern kernel of smoothness 1/2).

    Raises
    ------
    ValueError
        `gammas` is empty, or a parameter is out of its range.

    Notes
    -----
    Norm 1 takes ``3 d`` flops per pair and norm 2 a matrix product. A grid of powers of
    two takes one exponential per pair.

    References
    ----------
    Rahimi, Recht (2007), NIPS 20, Figure 1.
    """

    kind = "laplacian"

    def __init__(self, gammas: Sequence[float], norm: Literal[1, 2] = 1) -> None:
        super().__init__(gammas)
        if norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {norm!r}.")
        self.norm = norm
        self.distance = "cityblock"
        if norm == 2:
            self.distance = "euclidean"

    @property
    def names(self) -> tuple[str, ...]:
        names = super().names
        if self.norm == 1:
            return names
        return tuple(name.replace(")", ", norm=2)") for name in names)


class CategoricalFamily(ExponentialFamily):
    r"""Categorical kernels: exponentials of minus the number of columns with different values.

    .. math:: K_\gamma(x, x') = \exp \Bigl( -\gamma \sum_j w_j \, [x_j \neq x'_j] \Bigr)

    Parameters
    ----------
    gammas : sequence of float
        Values of gamma, positive; with 64, the kernel is one for equal rows and zero
        otherwise.
    weights : sequence of float, optional
        Positive weight w of each column; by default one.

    Raises
    ------
    ValueError
        `gammas` is empty, a value is not positive, or the number of columns is wrong.

    Notes
    -----
    Columns hold one number per category. The kernel equals a Gaussian with half the
    gamma on one-hot encoded columns.
    """

    kind = "categorical"
    distance = "differing"
    takes_sparse = False

    def __init__(
        self, gammas: Sequence[float], weights: Sequence[float] | None = None
    ) -> None:
        super().__init__(gammas)
        self.weights = None
        if weights is not None:
            self.weights = positive_numbers("weights", weights)

    def _weights_of(self, A: Rows) -> np.ndarray | None:
        if self.weights is None:
            return None
        if len(self.weights) != A.shape[1]:
            raise ValueError(
                f"X must have the {len(self.weights)} columns that have a weight, got {A.shape[1]}."
            )
        return np.asarray(self.weights)
