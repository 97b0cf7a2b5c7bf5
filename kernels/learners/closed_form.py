"""Learners in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..learned_kernel import LearnedKernel
from .base import AlignmentLearner, LearningProblem, Products, Solution


@dataclass(frozen=True, eq=False, repr=False)
class Unif(AlignmentLearner):
    """Equal weights for all base kernels.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """

    name = "unif"
    summary = "equal weights"
    source = "JMLR 2012, section 5"

    def learn(self, problem: LearningProblem) -> tuple[LearnedKernel, ...]:
        """Return one kernel with equal weights of the usable base kernels."""
        problem.statistics.require_informative(problem.centering.subtracts)
        return (
            problem.kernel(
                self.name, Solution.of_direction(np.ones(len(problem.usable)))
            ),
        )

    def fit_weights(self, M: Products, a: np.ndarray) -> Solution:
        return Solution.of_direction(np.ones(len(a)))


@dataclass(frozen=True, eq=False, repr=False)
class Single(AlignmentLearner):
    """Select the first base kernel with the highest centered alignment.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828: the case q = 1 after
    Proposition 7.
    """

    name = "single"
    summary = "the base kernel with the highest alignment"
    source = "JMLR 2012, after Proposition 7 (q = 1)"

    def fit_weights(self, M: Products, a: np.ndarray) -> Solution:
        weights = np.zeros(len(a))
        weights[np.argmax(a / np.sqrt(M.diagonal()))] = 1.0
        return Solution(weights)


@dataclass(frozen=True, eq=False, repr=False)
class Align(AlignmentLearner):
    r"""Weights proportional to each base kernel's own alignment with the target.

    .. math:: \mu_k \propto \hat\rho(K_k, K_Y) \propto \frac{a_k}{\sqrt{M_{kk}}}

    Notes
    -----
    The weights do not depend on the scaling of the base kernels, but the combined
    kernel does; the papers scale each to trace one. Equation (3) as printed sums
    uncentered base kernels: ``centering="target"``.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, equation (3).
    """

    name = "align"
    summary = "weights from each kernel's own alignment"
    source = "JMLR 2012, equation (3)"

    def fit_weights(self, M: Products, a: np.ndarray) -> Solution:
        # Only rounding makes a product of positive semi-definite kernels negative.
        return Solution.of_direction(np.maximum(a, 0.0) / np.sqrt(M.diagonal()))


@dataclass(frozen=True, eq=False, repr=False)
class AlignUncentered(Align):
    """Weights proportional to each base kernel's own uncentered alignment.

    References
    ----------
    Cristianini, Shawe-Taylor, Elisseeff, Kandola (2001), NIPS 14; JMLR 2012, section
    2.3.
    """

    name = "align-uncentered"
    summary = "weights from each kernel's own alignment, without centering"
    source = "Cristianini et al. 2001; JMLR 2012, section 2.3"
    needs = "uncentered alignments"
    centered = False


@dataclass(frozen=True, eq=False, repr=False)
class Lq(AlignmentLearner):
    r"""Learn weights of bounded q-norm that maximize the unnormalized alignment.

    .. math:: \max_{\lVert \mu \rVert_q \le 1} \; \mu^\top a, \qquad \mu_k \propto a_k^{1 / (q - 1)}

    Parameters
    ----------
    q : float, default 2
        Order of the norm, from 1 (the largest product) to infinity (equal weights).

    Notes
    -----
    The alignment is not divided by the norm of the combined kernel: multiplying a base
    kernel by c multiplies its weight by c^(1 / (q - 1)). For q = 2 and base kernels of
    Frobenius norm one, this is `align`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, equation (4) and Proposition 7.
    """

    name = "lq"
    summary = "the highest unnormalized alignment under a q-norm constraint"
    source = "JMLR 2012, equation (4), Proposition 7"

    q: float = 2.0

    def require(self) -> None:
        if not self.q >= 1:
            raise ValueError(f"q must be a number from 1 to infinity, got {self.q}.")

    def fit_weights(self, M: Products, a: np.ndarray) -> Solution:
        # Only rounding makes a product of positive semi-definite kernels negative.
        products = np.maximum(a, 0.0)
        largest = products.max()
        if not largest > 0:
            return Solution.of_direction(products)
        if self.q == 1:
            v = np.zeros(len(a))
            v[products.argmax()] = 1.0
            return Solution.of_direction(v)
        # Relative to the largest, as a high power must not overflow.
        powers = (products / largest) ** (1.0 / (self.q - 1.0))
        return Solution.of_direction(np.where(products > 0, powers, 0.0))
