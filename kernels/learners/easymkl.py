"""EasyMKL: weights from the widest margin between distributions over the classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..engine.operators import GramOperator
from ..solvers.certificate import TOLERANCE, Certificate
from ..solvers.svm import solve_svm
from ..targets import Target, class_pairs
from .base import JointLearner, Solution

LEAST_RIDGE = 1e-8
"""Least ridge, as a share of the mean diagonal of the kernel: with a tradeoff of zero the solution is unique too."""

FIRST_COST = 100.0
"""Cost of slack, in units of the largest coefficient of classes as far apart as their means."""

DEARER = 100.0
"""Factor from one cost to the next."""

MOST_COSTS = 5
"""Costs of slack that are tried."""


@dataclass(frozen=True, eq=False, repr=False)
class EasyMKL(JointLearner):
    r"""Weights from each kernel's part in the widest margin between the classes.

    .. math:: \gamma = \arg\min_{\gamma \in \Gamma} \; (1 - L) \, \gamma^\top Y \Big(\sum_k K_k\Big) Y \gamma
              + L \lVert \gamma \rVert^2, \qquad \mu_k \propto \gamma^\top Y K_k Y \gamma

    where :math:`\gamma \ge 0` sums to one over the rows of each class, Y is the diagonal of the labels plus and minus
    one, and L is the `tradeoff`.

    Parameters
    ----------
    tradeoff : float, default 0.5
        L, from 0 (gamma spans the shortest line between the convex hulls of the classes) to 1 (gamma is uniform, and
        the squared distance is that of the classes' means). Dimensionless; it weighs against the *sum* of the base
        kernels, so the same L regularizes many base kernels less than few.
    tolerance : float
        Relative duality gap up to which the weights count as converged.

    Notes
    -----
    The minimum is the squared distance of the classes' convex hulls in the feature space of ``(1 - L) K + L I``, with
    K the sum of the base kernels, and its gamma the coefficients of the hard-margin SVM on that
    kernel, each class scaled to sum one. The ridge L is kept above `LEAST_RIDGE`, which matters to a tradeoff of nearly
    zero alone: where K itself does not separate the classes, about the solution of least norm is then taken; that can
    take long and end in the warning. As gamma sums to the same over both classes, centering on all rows is as good as
    on those of a pair.

    One combination of all kernels, O(p m^2); for each pair of n rows one SVM, O(n^2 s) to O(n^3) with s support
    vectors; at the end one product of all kernels with as many columns as there are pairs. Memory is a few m by m
    matrices.

    Weights have sum one, so that base kernels of mean diagonal one make a kernel of mean diagonal one; they are the
    same for each regularization, as this stage has none, and `start` is not used. The certificate holds the largest
    relative duality gap of a pair of classes; several classes are taken one-vs-one, each pair on its own rows.

    References
    ----------
    Aiolli, Donini (2015), EasyMKL: a scalable multiple kernel learning algorithm, Neurocomputing 169:215-224.
    Bennett, Bredensteiner (2000), Duality and geometry in SVM classifiers, ICML: distances of convex hulls.
    """

    name = "easymkl"
    summary = "the combination with the maximum margin between the classes"
    source = "Aiolli, Donini (2015), Neurocomputing 169:215-224"
    tasks = ("classification",)
    predictor = "svm"

    tradeoff: float = 0.5
    tolerance: float = TOLERANCE

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        if not 0 <= self.tradeoff <= 1:
            raise ValueError(f"tradeoff must be between 0 and 1, got {self.tradeoff}.")

    def solve(self, grams: GramOperator, target: Target, C: float = 1.0, start: np.ndarray | None = None) -> Solution:
        """Return the weights; see `JointLearner.solve`."""
        if target.task != "classification":
            raise ValueError("easymkl learns from classes, got a regression target; use another learner.")
        pairs = class_pairs(target.values)
        if not pairs:
            raise ValueError("target must hold rows of at least two classes, got 1.")
        Q = grams.combine(np.ones(grams.n_kernels))
        Q *= 1 - self.tradeoff
        Q[np.diag_indices_from(Q)] += max(self.tradeoff, LEAST_RIDGE * float(np.trace(Q)) / len(Q))
        signed = np.zeros((grams.n_rows, len(pairs)))
        residual, svms, values = 0.0, 0, 0.0
        for pair, (rows, y) in enumerate(pairs):
            Q_pair = Q if len(rows) == len(Q) else Q[np.ix_(rows, rows)]
            gamma, solved = _closest_points(Q_pair, y)
            gap, value = _duality_gap(Q_pair, y, gamma)
            signed[rows, pair] = y * gamma
            residual, svms, values = max(residual, gap), svms + solved, values + value
        squared_distances = np.maximum(grams.quadratic_forms(signed), 0.0)
        if not squared_distances.sum() > 0:
            raise ValueError("no base kernel separates the classes (all distances are zero); try other base kernels.")
        certificate = Certificate("duality gap", residual, self.tolerance, svms, (values,))
        certificate.warn_unless_converged("easymkl", "use a larger tradeoff", grams)
        return Solution(squared_distances / squared_distances.sum(), certificate)


def _duality_gap(Q: np.ndarray, y: np.ndarray, gamma: np.ndarray) -> tuple[float, float]:
    """Return how far the linear model of ``gamma' Y Q Y gamma`` can fall over both simplices, relative to its value.

    The value, which comes second, exceeds the minimum by at most that share.
    """
    gradient = y * (Q @ (y * gamma))
    value = float(gamma @ gradient)
    gap = 2 * (value - gradient[y > 0].min() - gradient[y < 0].min())
    return max(0.0, float(gap)) / value, value


def _closest_points(Q: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the minimizer of ``gamma' Y Q Y gamma`` over the simplices of two classes, by a hard-margin SVM.

    Parameters
    ----------
    Q : ndarray of shape (n, n)
        Symmetric and positive definite.
    y : ndarray of shape (n,)
        Plus and minus one, both present.

    Returns
    -------
    gamma : ndarray of shape (n,)
    svms : int
        Number of SVMs solved.

    Raises
    ------
    ArithmeticError
        Q is far from positive semi-definite.

    Notes
    -----
    The coefficients of a hard-margin SVM are gamma times two over the minimum. Uniform gamma bounds the minimum
    from above, so an SVM whose slack is cheaper than `FIRST_COST` times that mostly has none; where it has some,
    slack is made more expensive.
    """
    uniform = np.where(y > 0, 1 / np.count_nonzero(y > 0), 1 / np.count_nonzero(y < 0))
    squared_distance = _duality_gap(Q, y, uniform)[1]
    if not squared_distance > 0:
        raise ArithmeticError("a squared distance between the means of classes is not positive.")
    cost = FIRST_COST * 2 / squared_distance
    a, svms = solve_svm(Q, y, cost)[0], 1
    while a.max() >= cost and svms < MOST_COSTS:
        cost *= DEARER
        a, svms = solve_svm(Q, y, cost, a)[0], svms + 1
    gamma = np.maximum(a, 0.0)
    gamma[y > 0] /= gamma[y > 0].sum()
    gamma[y < 0] /= gamma[y < 0].sum()
    return gamma, svms
