"""Exponentials of distances, over a set of bandwidths: Gaussian, Laplacian and categorical kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse

from ..compiled.distances import Differences, Metric
from ..parameters import positive_numbers
from .base import ExpandedRows, KernelFamily, Rows, TilePlan, readable, seeded_tile

DOUBLINGS = 4
"""Most doublings that take less time than an exponential."""

FEW_FEATURES = 64
"""Most features whose squared differences are added pair by pair; of more, a product of matrices is faster."""


class ExponentialFamily(KernelFamily):
    r"""Kernels ``exp(-gamma D(x, x'))`` over bandwidths gamma, for a distance D that shifting all rows does not change.

    Notes
    -----
    A subclass names the distance. The seeds of a tile are :math:`E_\gamma = e^{-\gamma D} - 1` for each bandwidth whose
    half is not among the others; the rest follows by doubling, two flops a value:

    .. math:: E(2 \gamma) = E(\gamma) \, (E(\gamma) + 2)

    Stable: the error of one step is multiplied by ``2 K <= 2`` while E itself doubles where K is near one.
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
        """Order and halves of a plan, and the bandwidths that need an exponential of their own, ascending."""
        position = {gamma: k for k, gamma in enumerate(self.gammas)}
        ascending = sorted(range(self.n_kernels), key=self.gammas.__getitem__)
        half = np.array([position.get(gamma / 2, -1) for gamma in self.gammas])
        seed = {k: s for s, k in enumerate(k for k in ascending if half[k] < 0)}
        order = np.array([(k, seed.get(k, -1)) for k in ascending])
        return order, half, tuple(self.gammas[k] for k in seed)

    def plan(self, shift: np.ndarray) -> TilePlan:
        order, half, _ = self._doubling
        return TilePlan(order, half, 1.0 - shift)

    def operands(self, A: Rows, shift: np.ndarray, center: np.ndarray | None = None, dtype: Any = None) -> list[Any]:
        dtype, gammas, weights = A.dtype if dtype is None else dtype, self._doubling[2], self._weights_of(A)
        by_products = self.distance in ("squared", "euclidean") and A.shape[1] > FEW_FEATURES
        if by_products or sparse.issparse(A):
            return [ExpandedRows.of(A, center, self.distance, gammas, dtype)]
        if A.dtype != dtype and center is not None and self.distance != "differing":
            A = A - center  # which keeps the digits that a lower precision has
        return [Differences(np.asarray(A, dtype=dtype), self.distance, gammas, weights)]

    def _weights_of(self, A: Rows) -> np.ndarray | None:
        """Return the weights of the columns of some rows, if they have any."""
        return None

    def completed_grid(self) -> tuple[Self, np.ndarray]:
        """Return a grid in which bandwidths that are a few doublings apart have those between them.

        A class with a `subset` of its own, whose making may take more than bandwidths, stays as it is.
        """
        others: set[float] = set()
        for gamma in self.gammas:
            halves = [gamma / 2**n for n in range(1, DOUBLINGS + 1)]
            apart = next((n for n, other in enumerate(halves) if other in self.gammas), 0)
            others |= set(halves[:apart])
        known = type(self).subset is ExponentialFamily.subset
        grid = self._with(gammas=[*self.gammas, *sorted(others)]) if others and known else self
        return grid, np.arange(self.n_kernels)

    def diag(self, A: Rows) -> np.ndarray:
        return np.ones((self.n_kernels, A.shape[0]))

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(gammas=[self.gammas[k] for k in kernels])


class GaussianFamily(ExponentialFamily):
    r"""Gaussian (RBF) kernels: rows are similar where they are near, at one length scale per bandwidth.

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
    One product and one exponential per pair serve a whole power-of-two grid. With ``E = K - 1``, doubling the
    bandwidth squares the kernel, ``E(2 gamma) = E(gamma) (E(gamma) + 2)``; a bandwidth whose half is not in
    the set gets an exponential of its own. The recurrence starts at ``expm1`` and is stable: the error of one
    step is multiplied by ``2 K <= 2`` while E itself doubles where K is near one, so each value keeps an
    absolute error of a few units of rounding, and a relative one where the kernel is nearly constant.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.1.
    """

    kind = "gaussian"
    distance = "squared"


class LaplacianFamily(ExponentialFamily):
    r"""Laplacian kernels: like Gaussians, but of distances that are not squared, for kinks and outliers.

    .. math:: K_\gamma(x, x') = \exp(-\gamma \lVert x - x' \rVert_p), \qquad p \in \{1, 2\}

    Parameters
    ----------
    gammas : sequence of float
        Bandwidths, in units of one over the distance; each positive and finite. Order is kept.
    norm : {1, 2}, default 1
        p: the sum of absolute differences, whose kernel is a product over features, or the Euclidean distance, whose
        kernel does not change when features are rotated (the Matern kernel of smoothness one half).

    Raises
    ------
    ValueError
        No bandwidth is given, or one is not positive and finite, or the norm is another one.

    Notes
    -----
    Of the sum of absolute differences a pair costs ``3 d`` flops for its distance, more than a Gaussian's,
    whose distances are a matrix product, as those of `norm` 2 are. One exponential serves a whole power-of-two grid.
    Values are formed as ``K - 1``, so that a nearly constant kernel loses no precision under a shift. Euclidean
    distances below the rounding of that product, about 1e-8 of the rows' lengths, count as zero. Of sparse rows the
    columns that a tile uses are filled for `norm` 1.

    References
    ----------
    Rahimi, Recht (2007), NIPS 20, Figure 1: positive definite, with a product of Cauchy densities for its transform.
    """

    kind = "laplacian"

    def __init__(self, gammas: Sequence[float], norm: Literal[1, 2] = 1) -> None:
        super().__init__(gammas)
        if norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {norm!r}.")
        self.norm = norm
        self.distance = "cityblock" if norm == 1 else "euclidean"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.replace(")", ", norm=2)") if self.norm == 2 else name for name in super().names)


class CategoricalFamily(ExponentialFamily):
    r"""Categorical kernels: similarity decreases with the number of columns whose levels differ.

    .. math:: K_\gamma(x, x') = \exp \Bigl( -\gamma \sum_j w_j \, [x_j \neq x'_j] \Bigr)

    Parameters
    ----------
    gammas : sequence of float
        Bandwidths, in units of one over a differing column of weight one; each positive and finite. Order is kept. Of
        one column and a large one, such as 64, the kernel is one where levels are equal, and zero elsewhere.
    weights : sequence of float, optional
        w, one per column, positive and finite; one each by default.

    Raises
    ------
    ValueError
        No bandwidth is given, or a bandwidth or weight is not positive and finite; in use, another number of columns.

    Notes
    -----
    Columns hold codes, any number for a level: only whether two are equal counts, so a level that no
    training row had is different from all. On columns of ones and zeros, one per level, a Gaussian of half the gamma is
    the same kernel; here a pair of rows costs one comparison per column, however many levels there are. Positive
    definite as a product of ``exp(-gamma w) + (1 - exp(-gamma w)) [x_j = x'_j]``.
    """

    kind = "categorical"
    distance = "differing"
    takes_sparse = False

    def __init__(self, gammas: Sequence[float], weights: Sequence[float] | None = None) -> None:
        super().__init__(gammas)
        self.weights = None if weights is None else positive_numbers("weights", weights)

    def _weights_of(self, A: Rows) -> np.ndarray | None:
        if self.weights is not None and len(self.weights) != A.shape[1]:
            raise ValueError(f"X must have the {len(self.weights)} columns that have a weight, got {A.shape[1]}.")
        return None if self.weights is None else np.asarray(self.weights)
