"""Base kernels as a learner sees them: centered, scaled against each other, without those that are constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from learnkernels.kernels.centering import mean_over
from learnkernels.kernels.moments.base import Moments

Normalisation = Literal["trace", "frobenius", "none"]

NORMALISATIONS: dict[Normalisation, Callable[[Moments], np.ndarray]] = {
    "trace": lambda moments: moments.centered_traces,
    "frobenius": lambda moments: np.sqrt(moments.frobenius_diagonal),
    "none": lambda moments: np.ones(moments.n_kernels),
}
"""What each centered base kernel is divided by before a learner sees it, shape (p,)."""


def require_normalisation(normalise: str) -> None:
    """Raise ValueError for a normalisation that there is not."""
    if normalise not in NORMALISATIONS:
        raise ValueError(f"normalise must be one of {', '.join(NORMALISATIONS)}, got {normalise!r}.")


@dataclass(frozen=True)
class NormalisedProducts:
    """M of some normalised base kernels, formed when its entries are asked for.

    Attributes
    ----------
    moments : GramMoments or FeatureMoments
    kernels : ndarray of int of shape (k,)
        Positions of the base kernels.
    scales : ndarray of shape (k,)
        What each is divided by.
    centered : bool
        Whether the products are those of the centered base kernels, or of the base kernels as they are.
    """

    moments: Moments
    kernels: np.ndarray
    scales: np.ndarray
    centered: bool = True

    @property
    def target(self) -> np.ndarray:
        """The products with the target kernel, shape (k,)."""
        a = self.moments.target if self.centered else self.moments.uncentered_target
        return np.asarray(a[self.kernels] / self.scales)

    def diagonal(self) -> np.ndarray:
        """Return the diagonal, shape (k,)."""
        moments = self.moments
        diagonal = moments.frobenius_diagonal if self.centered else moments.uncentered_frobenius_diagonal
        return np.asarray(diagonal[self.kernels] / self.scales**2)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        M = self.moments.frobenius if self.centered else self.moments.uncentered_frobenius
        if len(self.kernels) < self.moments.n_kernels:
            M = M[np.ix_(self.kernels, self.kernels)]
        normalised = np.outer(self.scales, self.scales)
        return np.asarray(np.divide(M, normalised, out=normalised), dtype=dtype)


def require_informative(moments: Moments) -> None:
    """Raise ValueError if the target or a base kernel is constant on the rows of `moments`; of features, if all are."""
    # Targets are kept less their mean over the whole pass, so a constant one is zero or that mean's rounding.
    magnitude = moments.total_weight * mean_over(moments.targets**2, moments.sample_weight).sum()
    if not moments.target_norm > (4 * np.finfo(np.float64).eps) ** 2 * magnitude:
        raise ValueError("the target is constant on the training rows, so no kernel can align with it.")
    moments.refuse_constants()
