"""l1-krr: kernel ridge regression with weights of bounded sum, that is of bounded trace."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.engine.operators import GramOperator
from learnkernels.kernels.learners.one_stage import MOST_ITERATIONS, ball, solve_on_ball
from learnkernels.kernels.learners.solution import Solution
from learnkernels.kernels.solvers.certificate import TOLERANCE
from learnkernels.kernels.solvers.ridge import RidgeProblem
from learnkernels.kernels.targets import Target


def l1_krr(
    grams: GramOperator,
    target: Target,
    *,
    regularisation: float = 1.0,
    start: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = MOST_ITERATIONS,
) -> Solution:
    r"""Return the non-negative weights of sum one that kernel ridge regression fits best with.

    .. math:: \min_{\mu \ge 0,\; \sum \mu_k \le 1} \; \max_\alpha \; 2 \alpha^\top y - \lambda \lVert \alpha \rVert^2
              - \sum_k \mu_k\, \alpha^\top K_k \alpha

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
    and O(p m^2) each. The weights are sparse. For kernels of like trace
    the bound on the sum is one on the trace of the learned kernel.

    On rank-one kernels of one target the problem is a lasso (`kernels.solvers.rank_one`): O(a^3) a pass for a features
    that carry weight, some ten passes; where a comes near m or Lambda is large, some twenty factors of size m. The gap
    is then that of rounding, and `iterations` counts passes and factors.

    References
    ----------
    The L1 counterpart of Cortes, Mohri, Rostamizadeh (2009), UAI, equation (3), compared with there in section 5; with
    the constraint of Lanckriet et al. (2004), JMLR 5:27-72.
    """
    problem = RidgeProblem(grams, target, regularisation)
    return solve_on_ball("l1-krr", problem, ball(grams, 1.0, 0.0, 1.0), start, tolerance, max_iterations)
