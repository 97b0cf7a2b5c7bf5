"""Gaussian base kernels over a set of bandwidths."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from learnkernels.kernels.compiled.distances import Differences, distances, fill_exponentials
from learnkernels.kernels.families.base import FEW_FEATURES, Rows, fill_distances, squared_distances
from learnkernels.kernels.families.exponential import ExponentialFamily
from learnkernels.kernels.families.sides import ROWS_TO_PACK, MovedRows


class GaussianFamily(ExponentialFamily):
    r"""Gaussian (RBF) kernels: rows are similar where they are near, at one length scale a bandwidth.

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

    kind = "gaussian"

    def distances(self, A: Rows, B: Rows) -> np.ndarray:
        return distances(A, B, "squared") if _few(A) else squared_distances(A, B, steepest=max(self.gammas))

    def fill_seeds(self, A: Rows, B: Rows, shift: np.ndarray, out: np.ndarray) -> None:
        if _few(A):
            fill_exponentials(A, B, "squared", self._seed_gammas, out)
            return
        squared_distances(A, B, -self._seed_gammas[0], max(self.gammas), out=out[0])
        self._exponentials(out)

    def side(self, A: Rows, right: Any = None, dtype: Any = np.float64) -> Any:
        return super().side(A, right, dtype) if sparse.issparse(A) else MovedRows.of(A, right, dtype)

    def fill_between(self, left: Any, right: Any, shift: np.ndarray, out: np.ndarray) -> None:
        if not isinstance(right, MovedRows):
            self.fill_seeds(left, right, shift, out)
            return
        if len(left.rows) >= ROWS_TO_PACK and _few(left.rows):
            fill_exponentials(left.rows, right.rows, "squared", self._seed_gammas, out)
            return
        scale, steepest = -self._seed_gammas[0], max(self.gammas)
        fill_distances(left.rows, right.rows, left.norms, right.norms, out[0], scale, steepest, right.wide)
        self._exponentials(out)

    def differences(self, A: Rows) -> list[Differences] | None:
        return [Differences(np.asarray(A), "squared", self._seed_gammas)] if _few(A) else None

    def _exponentials(self, out: np.ndarray) -> None:
        """Turn distances times the first bandwidth of the seeds, in ``out[0]``, into all seeds."""
        first, *others = self._seed_gammas
        for seed, gamma in zip(out[1:], others, strict=True):
            np.multiply(out[0], gamma / first, out=seed)
        np.expm1(out, out=out)


def _few(A: Rows) -> bool:
    """Return whether distances are those of differences, feature by feature."""
    return not sparse.issparse(A) and A.shape[1] <= FEW_FEATURES
