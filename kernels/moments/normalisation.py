"""Base kernels as a learner sees them: centered or not, scaled against each other, without those of no use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from learnkernels.kernels.centering import Centering, mean_over
from learnkernels.kernels.moments.base import Moments

Normalisation = Literal["trace", "frobenius", "none"]


@dataclass(frozen=True)
class Statistics:
    """What learners ask of the moments of some rows, for base kernels that are centered, or as they are.

    Attributes
    ----------
    moments : GramMoments, FeatureMoments or SampledMoments
    centering : Centering
    """

    moments: Moments
    centering: Centering = Centering.CENTER

    @property
    def frobenius(self) -> np.ndarray:
        """Products of the base kernels, shape (p, p)."""
        return self.moments.frobenius if self.centering.subtracts else self.moments.uncentered_frobenius

    @property
    def frobenius_diagonal(self) -> np.ndarray:
        """Their squared norms, shape (p,)."""
        of = self.moments
        return of.frobenius_diagonal if self.centering.subtracts else of.uncentered_frobenius_diagonal

    @property
    def target(self) -> np.ndarray:
        """Their products with the target kernel, shape (p,)."""
        return self.moments.target if self.centering.subtracts else self.moments.uncentered_target

    @property
    def traces(self) -> np.ndarray:
        """Their traces, shape (p,)."""
        return self.moments.centered_traces if self.centering.subtracts else self.moments.uncentered_traces

    @property
    def vanishing(self) -> np.ndarray:
        """Whether each is zero, so that it can carry no weight, shape (p,): once centered, the constant ones."""
        return self.moments.constant if self.centering.subtracts else self.moments.uncentered_traces <= 0

    def refuse_vanishing(self) -> None:
        """Raise ValueError if base kernels that are zero leave a learner nothing to weigh; of features, if all are."""
        if self.centering.subtracts:
            self.moments.refuse_constants()
        elif self.vanishing.all():
            raise ValueError(
                f"every base kernel is zero on the {self.moments.n_rows} training rows, so none can carry weight; give "
                "others, or features that are not zero."
            )


NORMALISATIONS: dict[Normalisation, Callable[[Statistics], np.ndarray]] = {
    "trace": lambda statistics: statistics.traces,
    "frobenius": lambda statistics: np.sqrt(statistics.frobenius_diagonal),
    "none": lambda statistics: np.ones(statistics.moments.n_kernels),
}
"""What each base kernel is divided by before a learner sees it, shape (p,)."""


def require_normalisation(normalise: str) -> None:
    """Raise ValueError for a normalisation that there is not."""
    if normalise not in NORMALISATIONS:
        raise ValueError(f"normalise must be one of {', '.join(NORMALISATIONS)}, got {normalise!r}.")


@dataclass(frozen=True)
class NormalisedProducts:
    """M of some normalised base kernels, formed when its entries are asked for.

    Attributes
    ----------
    statistics : Statistics
    kernels : ndarray of int of shape (k,)
        Positions of the base kernels.
    scales : ndarray of shape (k,)
        What each is divided by.
    """

    statistics: Statistics
    kernels: np.ndarray
    scales: np.ndarray

    @property
    def target(self) -> np.ndarray:
        """The products with the target kernel, shape (k,)."""
        return np.asarray(self.statistics.target[self.kernels] / self.scales)

    def diagonal(self) -> np.ndarray:
        """Return the diagonal, shape (k,)."""
        return np.asarray(self.statistics.frobenius_diagonal[self.kernels] / self.scales**2)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        M = self.statistics.frobenius
        if len(self.kernels) < self.statistics.moments.n_kernels:
            M = M[np.ix_(self.kernels, self.kernels)]
        normalised = np.outer(self.scales, self.scales)
        return np.asarray(np.divide(M, normalised, out=normalised), dtype=dtype)


def require_informative(moments: Moments, centering: Centering = Centering.CENTER) -> None:
    """Raise ValueError if the target or a base kernel is constant on the rows of `moments`; of features, if all are.

    Base kernels that are not centered may be constant.
    """
    # Targets are kept less their mean over the whole pass, so a constant one is zero or that mean's rounding.
    magnitude = moments.total_weight * mean_over(moments.targets**2, moments.sample_weight).sum()
    if not moments.target_norm > (4 * np.finfo(np.float64).eps) ** 2 * magnitude:
        raise ValueError("the target is constant on the training rows, so no kernel can align with it.")
    Statistics(moments, centering).refuse_vanishing()
