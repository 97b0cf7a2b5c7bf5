"""What the learners of continuous families find: base kernels, and their weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learnkernels.kernels.families.base import KernelFamily
from learnkernels.kernels.parameters import Value
from learnkernels.kernels.solvers.certificate import Certificate


@dataclass(frozen=True, eq=False, repr=False)
class FoundKernels(Value):
    """Base kernels that a continuous learner found, and their weights.

    Attributes
    ----------
    family : KernelFamily
        The t base kernels found.
    weights : ndarray of shape (t,)
        mu, for the centered base kernels as they are.
    parameters : ndarray of shape (t, r)
        sigma of each.
    alignments : tuple of float
        Alignment after each addition, where it never falls; of learned metrics that of each round, from round 0 on, on
        rows that did not teach it.
    certificate : Certificate or None
        Evidence of optimality, where there is any.
    """

    family: KernelFamily
    weights: np.ndarray
    parameters: np.ndarray
    alignments: tuple[float, ...]
    certificate: Certificate | None = None
