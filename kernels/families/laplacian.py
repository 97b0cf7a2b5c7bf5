"""Laplacian base kernels over a set of bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse

from learnkernels.kernels.compiled.distances import Differences, Metric, distances, fill_exponentials
from learnkernels.kernels.families.base import (
    FEW_FEATURES,
    Rows,
    direct_distances,
    fill_distances,
    squared_distances,
    squared_norms,
)
from learnkernels.kernels.families.exponential import ExponentialFamily
from learnkernels.kernels.families.sides import ROWS_TO_PACK, MovedRows
from learnkernels.kernels.fields import Fields, list_of, number, optional, whole

ROUNDING = 8
"""Share of two rows' squared lengths, in units of rounding, that their squared distance may be wrong by."""


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
    Of the sum of absolute differences a pair costs ``3 d`` flops for its distance, more than a Gaussian's, whose
    distances are a matrix product, as those of `norm` 2 are. One exponential serves a whole power-of-two grid. Values
    are formed as ``K - 1``, so that a nearly constant kernel keeps its digits under a shift. Euclidean distances below
    the rounding of that product, some 1e-8 of the rows' lengths, count as zero. Of sparse rows the columns that a tile
    uses are filled for `norm` 1.

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

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        gammas, norm = fields.get("gammas", list_of(number)), fields.get("norm", optional(whole))
        if norm not in (None, 1, 2):
            fields.refuse("norm", "1 or 2", norm)
        return cls(gammas, 2 if norm == 2 else 1)  # older files have none

    def _resolved(self) -> dict[str, Any]:
        return {"gammas": self.gammas} | ({"norm": 2} if self.norm == 2 else {})  # as ever where it is 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.replace(")", ", norm=2)") if self.norm == 2 else name for name in super().names)

    def distances(self, A: Rows, B: Rows) -> np.ndarray:
        if self.norm == 1:
            return direct_distances(A, B, "cityblock")
        if self._metric(A) is not None:
            return distances(A, B, "euclidean")
        if not sparse.issparse(B):  # moves no distance, and shortens the rows
            same, mean = A is B, B.mean(axis=0)
            A = A - mean
            B = A if same else B - mean
        D = squared_distances(A, B)
        return _roots(D, squared_norms(A), squared_norms(B))

    def side(self, A: Rows, right: Any = None, dtype: Any = np.float64) -> Any:
        if self.norm == 1 or sparse.issparse(A):
            return super().side(A, right, dtype)
        return MovedRows.of(A, right, dtype)

    def fill_between(self, left: Any, right: Any, shift: np.ndarray, out: np.ndarray) -> None:
        if not isinstance(right, MovedRows):
            self.fill_seeds(left, right, shift, out)
            return
        if len(left.rows) >= ROWS_TO_PACK and self._metric(left.rows) is not None:
            fill_exponentials(left.rows, right.rows, "euclidean", self._seed_gammas, out)
            return
        D = np.empty(out.shape[1:], dtype=out.dtype)
        fill_distances(left.rows, right.rows, left.norms, right.norms, D, b_wide=right.wide)
        self._fill_from(_roots(D, left.norms, right.norms), out)

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        metric = self._metric(A)
        if metric is None:
            super().fill_seeds(A, B, shift, out)
        else:
            fill_exponentials(A, B, metric, self._seed_gammas, out)

    def differences(self, A: Rows) -> list[Differences] | None:
        metric = self._metric(A)
        return None if metric is None else [Differences(np.asarray(A), metric, self._seed_gammas)]

    def _metric(self, A: Rows) -> Metric | None:
        """Return the distance of dense rows that is taken from differences; None where it is not."""
        if sparse.issparse(A) or (self.norm == 2 and A.shape[1] > FEW_FEATURES):
            return None
        return "cityblock" if self.norm == 1 else "euclidean"

    def _of(self, gammas: Sequence[float]) -> Self:
        return type(self)(gammas, self.norm)


def _roots(D: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return distances from squared ones, in their place, of rows of squared norms `left` and `right`."""
    rounding = D.dtype.type(ROUNDING * np.finfo(D.dtype).eps)
    D[np.add.outer(rounding * left, rounding * right) > D] = 0.0
    return np.sqrt(D, out=D)
