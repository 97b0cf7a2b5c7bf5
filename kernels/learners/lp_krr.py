"""lp-krr: kernel ridge regression with weights in the unit ball of any norm."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.engine.operators import GramOperator
from learnkernels.kernels.learners.one_stage import MOST_ITERATIONS, ball, solve_on_ball
from learnkernels.kernels.learners.solution import Solution
from learnkernels.kernels.solvers.certificate import TOLERANCE
from learnkernels.kernels.solvers.ridge import RidgeProblem
from learnkernels.kernels.targets import Target


def lp_krr(
    grams: GramOperator,
    target: Target,
    *,
    regularisation: float = 1.0,
    start: np.ndarray | None = None,
    norm: float = 2.0,
    tolerance: float = TOLERANCE,
    max_iterations: int = MOST_ITERATIONS,
) -> Solution:
    r"""Return the non-negative weights of unit norm that kernel ridge regression fits best with.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu \rVert_s \le 1} \; \max_\alpha \; 2 \alpha^\top y
              - \lambda \lVert \alpha \rVert^2 - \sum_k \mu_k\, \alpha^\top K_k \alpha

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
    norm : float, default 2
        The s of the norm: 1 gives sparse weights, infinity equal ones.
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
    and O(p m^2) each.
    At the solution :math:`\mu_k \propto v_k^{1/(s-1)}` with v the quadratic forms of alpha.

    References
    ----------
    Kloft, Brefeld, Sonnenburg, Zien (2011), JMLR 12:953-997, with the squared loss.
    """
    problem = RidgeProblem(grams, target, regularisation)
    return solve_on_ball("lp-krr", problem, ball(grams, norm, 0.0, 1.0), start, tolerance, max_iterations)
