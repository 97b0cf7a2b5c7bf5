"""l1-svm: a support vector machine with weights of bounded sum, that is of bounded trace."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.engine.operators import GramOperator
from learnkernels.kernels.learners.one_stage import MOST_ITERATIONS, ball, solve_machine_on_ball
from learnkernels.kernels.learners.solution import Solution
from learnkernels.kernels.solvers.certificate import TOLERANCE
from learnkernels.kernels.solvers.svm import SupportVectorProblem
from learnkernels.kernels.targets import Target


def l1_svm(
    grams: GramOperator,
    target: Target,
    *,
    regularisation: float = 1.0,
    start: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
    max_iterations: int = MOST_ITERATIONS,
) -> Solution:
    r"""Return the non-negative weights of sum one that a support vector machine separates best with.

    .. math:: \min_{\mu \ge 0,\; \sum \mu_k \le 1} \; \max_{0 \le a \le C,\; y^\top a = 0}
              \; 2\, \mathbf 1^\top a - \sum_k \mu_k\, (y \circ a)^\top K_k (y \circ a)

    Parameters
    ----------
    grams : GramOperator
        p centered base kernels over m rows, scaled so that their mean diagonals have mean one.
    target : Target
        Of those rows; a classification.
    regularisation : float, default 1
        C.
    start : ndarray of shape (p,), optional
        Feasible weights to begin with, such as those of a neighbouring regularisation; not used on rank-one kernels.
    tolerance : float, default 1e-6
        Relative duality gap to reach.
    max_iterations : int, default 200
        Most solutions of the support vector machine.

    Returns
    -------
    solution : Solution
        mu, whose length matters; the certificate is a duality gap.

    Raises
    ------
    ValueError
        A parameter is out of its range, or the target is not of classes.

    Warns
    -----
    ConvergenceWarning
        The gap stays above the tolerance.

    Notes
    -----
    Newton's method over the weights (`kernels.solvers.minimax`), each machine solved to rounding by active sets from
    its neighbour (`kernels.solvers.svm`). Several classes are set one against one; the objective sums
    over the pairs. The weights are sparse. For kernels of like trace the bound on the sum is one on the trace of the
    learned kernel.

    Two classes on more rank-one kernels than Newton's method looks at are a linear machine with the squared 1-norm as
    penalty, solved by interior points (`kernels.solvers.rank_one.lasso`): twenty to forty factors of size m for any C.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui, Jordan (2004), JMLR 5:27-72, as stated in Cortes, Mohri, Rostamizadeh
    (2012), JMLR 13:795-828, section 5.
    """
    problem = SupportVectorProblem(grams, target, regularisation)
    return solve_machine_on_ball("l1-svm", problem, ball(grams, 1.0, 0.0, 1.0), start, tolerance, max_iterations)
