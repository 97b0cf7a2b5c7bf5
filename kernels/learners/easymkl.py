"""EasyMKL: maximum-margin combination of base kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..engine.operators import GramOperator
from ..solvers.certificate import TOLERANCE, Certificate
from ..solvers.factor import submatrix
from ..solvers.svm import solve_svm
from ..targets import Target, class_pairs
from .base import JointLearner, Solution

LEAST_RIDGE = 1e-8
"""Smallest ridge relative to the mean diagonal, for a unique solution."""

FIRST_COST = 100.0
"""First C of the hard-margin SVM, relative to its bound for uniform gamma."""


@dataclass(frozen=True, eq=False, repr=False)
class EasyMKL(JointLearner):
    r"""Learn the combination of base kernels with the largest margin.

    .. math:: \gamma = \arg\min_{\gamma \in \Gamma} \; (1 - L) \, \gamma^\top Y \Big(\sum_k K_k\Big) Y \gamma
              + L \lVert \gamma \rVert^2, \qquad \mu_k \propto \gamma^\top Y K_k Y \gamma

    where :math:`\gamma \ge 0` sums to one over the rows of each class, Y is the
    diagonal of the labels plus and minus one, and L is the `tradeoff`.

    Parameters
    ----------
    tradeoff : float, default 0.5
        Regularization L, from 0 (closest points of the convex hulls of the classes) to
        1 (class means), relative to the sum of the base kernels.
    tol : float, default 1e-6
        Relative duality gap at convergence.

    Notes
    -----
    The gamma are scaled coefficients of the hard-margin SVM on ``(1 - L) K + L I``,
    with K the sum of the base kernels. Several classes are handled one-vs-one; each
    pair of n rows takes one SVM. The weights have sum one and do not depend on C.

    References
    ----------
    Aiolli, Donini (2015), Neurocomputing 169:215-224. Bennett, Bredensteiner (2000),
    Duality and geometry in SVM classifiers, ICML: distances of convex hulls.
    """

    name = "easymkl"
    summary = "the combination with the maximum margin between the classes"
    source = "Aiolli, Donini (2015), Neurocomputing 169:215-224"
    tasks = ("classification",)
    predictor = "svm"

    tradeoff: float = 0.5
    tol: float = TOLERANCE

    def require(self) -> None:
        if not 0 <= self.tradeoff <= 1:
            raise ValueError(f"tradeoff must be between 0 and 1, got {self.tradeoff}.")

    def solve(
        self,
        grams: GramOperator,
        target: Target,
        C: float = 1.0,
        start: np.ndarray | None = None,
    ) -> Solution:
        if target.task != "classification":
            raise ValueError(
                "easymkl learns from classes, got a regression target; use another learner."
            )
        pairs = class_pairs(target.values)
        if not pairs:
            raise ValueError("target must hold rows of at least two classes, got 1.")
        Q = grams.combine(np.ones(grams.n_kernels))
        Q *= 1 - self.tradeoff
        Q[np.diag_indices_from(Q)] += max(
            self.tradeoff, LEAST_RIDGE * float(np.trace(Q)) / len(Q)
        )
        signed_gammas = np.zeros((grams.n_rows, len(pairs)))
        largest_gap = 0.0
        n_svms = 0
        objective = 0.0
        for pair, (rows, y) in enumerate(pairs):
            Q_pair = submatrix(Q, rows)
            gamma, n_solved = _closest_points(Q_pair, y)
            gap, value = _duality_gap(Q_pair, y, gamma)
            signed_gammas[rows, pair] = y * gamma
            largest_gap = max(largest_gap, gap)
            n_svms += n_solved
            objective += value
        squared_distances = np.maximum(grams.quadratic_forms(signed_gammas), 0.0)
        if not squared_distances.sum() > 0:
            raise ValueError(
                "no base kernel separates the classes (all distances are zero); try other base kernels."
            )
        certificate = Certificate(
            "duality gap", largest_gap, self.tol, n_svms, (objective,)
        )
        certificate.warn_unless_converged("easymkl", "use a larger tradeoff", grams)
        return Solution(squared_distances / squared_distances.sum(), certificate)


def _duality_gap(
    Q: np.ndarray, y: np.ndarray, gamma: np.ndarray
) -> tuple[float, float]:
    gradient = y * (Q @ (y * gamma))
    value = float(gamma @ gradient)
    gap = 2 * (value - gradient[y > 0].min() - gradient[y < 0].min())
    return max(0.0, float(gap)) / value, value


def _closest_points(Q: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the minimizer of ``gamma' Y Q Y gamma`` and the number of SVMs."""
    uniform = np.where(y > 0, 1 / np.count_nonzero(y > 0), 1 / np.count_nonzero(y < 0))
    _, squared_distance = _duality_gap(Q, y, uniform)
    if not squared_distance > 0:
        raise ArithmeticError(
            "a squared distance between the means of classes is not positive."
        )
    C = FIRST_COST * 2 / squared_distance
    coefficients = solve_svm(Q, y, C)[0]
    n_svms = 1
    while coefficients.max() >= C and n_svms < 5:
        C *= 100.0
        coefficients = solve_svm(Q, y, C, coefficients)[0]
        n_svms += 1
    gamma = np.maximum(coefficients, 0.0)
    gamma[y > 0] /= gamma[y > 0].sum()
    gamma[y < 0] /= gamma[y < 0].sum()
    return gamma, n_svms
