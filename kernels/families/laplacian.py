"""Laplacian base kernels over a set of bandwidths."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.families.base import Rows, direct_distances
from learnkernels.kernels.families.exponential import ExponentialFamily


class LaplacianFamily(ExponentialFamily):
    r"""Laplacian kernels: like Gaussians, but of the sum of absolute differences, for kinks and outliers.

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

    kind = "laplacian"

    def distances(self, A: Rows, B: Rows) -> np.ndarray:
        return direct_distances(A, B, "cityblock")
