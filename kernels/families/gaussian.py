"""Gaussian base kernels over a set of bandwidths."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from learnkernels.kernels.compiled.distances import distances, fill_exponentials
from learnkernels.kernels.families.base import FEW_FEATURES, Rows, squared_distances
from learnkernels.kernels.families.exponential import ExponentialFamily


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
        else:
            super().fill_seeds(A, B, shift, out)


def _few(A: Rows) -> bool:
    """Return whether distances are those of differences, feature by feature."""
    return not sparse.issparse(A) and A.shape[1] <= FEW_FEATURES
