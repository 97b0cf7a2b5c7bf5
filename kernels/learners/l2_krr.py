"""l2-krr: kernel ridge regression with weights in a ball of the 2-norm."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.engine.operators import GramOperator
from learnkernels.kernels.learners.one_stage import MOST_ITERATIONS, ball, solve_on_ball
from learnkernels.kernels.learners.solution import Solution
from learnkernels.kernels.solvers.certificate import TOLERANCE
from learnkernels.kernels.solvers.ridge import RidgeProblem
from learnkernels.kernels.targets import Target


def l2_krr(
    grams: GramOperator,
    target: Target,
    *,
    regularisation: float = 1.0,
    start: np.ndarray | None = None,
    center: float = 0.0,
    radius: float = 1.0,
    tolerance: float = TOLERANCE,
    max_iterations: int = MOST_ITERATIONS,
) -> Solution:
    r"""Return the weights in a ball of the 2-norm that kernel ridge regression fits best with.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu - \mu_0 \rVert_2 \le \Lambda} \; \max_\alpha \; 2 \alpha^\top y
              - \lambda \lVert \alpha \rVert^2 - \sum_k \mu_k\, \alpha^\top K_k \alpha

    Its solution is :math:`\mu = \mu_0 + \Lambda\, v / \lVert v \rVert` with :math:`v_k = \alpha^\top K_k \alpha` and
    :math:`\alpha = (K_\mu + \lambda I)^{-1} y`.

    Parameters
    ----------
    grams : GramOperator
        p centered base kernels over m rows, scaled so that their mean diagonals have mean one.
    target : Target
        Of those rows.
    regularisation : float, default 1
        1 / lambda.
    start : ndarray of shape (p,), optional
        Feasible weights to begin with, such as those of a neighbouring regularisation.
    center : float, default 0
        mu_0 is this times the uniform weights of unit 2-norm.
    radius : float, default 1
        Lambda, in units of the same.
    tolerance : float, default 1e-6
        Relative duality gap to reach.
    max_iterations : int, default 200
        Most solutions of the ridge regression.

    Returns
    -------
    solution : Solution
        mu, whose length matters; the certificate is a duality gap.

    Raises
    ------
    ValueError
        A parameter is out of its range.

    Warns
    -----
    ConvergenceWarning
        The gap stays above the tolerance.

    Notes
    -----
    Newton's method with an exact Hessian (`kernels.solvers.minimax`): some three to seven Cholesky factors, O(m^3 / 3)
    and O(p m^2) each. On rank-one kernels of one target the step takes no Hessian, however many there are
    (`kernels.solvers.rank_one`): some four to ten solutions, each with two factors of the smaller of m and p rows.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI: equation (3), Theorem 1; Newton's method in place of Algorithm 1.
    """
    problem = RidgeProblem(grams, target, regularisation)
    outer = ball(grams, 2.0, center, radius)
    return solve_on_ball("l2-krr", problem, outer, start, tolerance, max_iterations)
