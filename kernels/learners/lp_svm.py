"""A support vector machine with weights in a ball: of any norm, of norm one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from learnkernels.kernels.engine.operators import GramOperator
from learnkernels.kernels.learners.base import OneStageLearner, Solution
from learnkernels.kernels.learners.norm_ball import MOST_ITERATIONS, ball, require_ball, solve_machine_on_ball
from learnkernels.kernels.solvers.certificate import TOLERANCE
from learnkernels.kernels.solvers.svm import machine_problem
from learnkernels.kernels.targets import Target


@dataclass(frozen=True, eq=False, repr=False)
class LpSVM(OneStageLearner):
    r"""The non-negative weights of unit norm that a support vector machine separates best with.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu \rVert_s \le 1} \; \max_{0 \le a \le C,\; y^\top a = 0}
              \; 2\, \mathbf 1^\top a - \sum_k \mu_k\, (y \circ a)^\top K_k (y \circ a)

    Parameters
    ----------
    norm : float, default 2
        The s of the norm: 1 gives sparse weights, infinity equal ones.
    tolerance : float, default 1e-6
        Relative duality gap to reach.
    max_iterations : int, default 200
        Most solutions of the support vector machine.

    Notes
    -----
    Newton's method over the weights (`kernels.solvers.minimax`), each machine solved to rounding by active sets from
    its neighbour (`kernels.solvers.svm`). Several classes are set one against one; the objective sums over the pairs.
    On more rows than a matrix of their pairs fits into 1 GiB, some 11,600, base kernels are replaced by features of
    landmarks and a diagonal (`kernels.solvers.low_rank`); the certificate, which then says so, is for these.

    References
    ----------
    Kloft, Brefeld, Sonnenburg, Zien (2011), JMLR 12:953-997; norms 1 and 2 are D1 and D2 of Afkanpour, Szepesvari,
    Bowling (2013), Machine Learning.
    """

    name = "lp-svm"
    summary = "support vector machine with weights in the unit ball of any norm"
    source = "Kloft et al. 2011; D1 and D2 of AFK 2013"
    tasks = ("classification",)
    predictor = "svm"

    norm: float = 2.0
    tolerance: float = TOLERANCE
    max_iterations: int = MOST_ITERATIONS

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        require_ball(self.norm, 0.0, 1.0)

    def solve(
        self, grams: GramOperator, target: Target, regularisation: float = 1.0, start: np.ndarray | None = None
    ) -> Solution:
        """Return the weights; see `OneStageLearner.solve`."""
        problem = machine_problem(grams, target, regularisation)
        return solve_machine_on_ball(
            self.name, problem, ball(grams, self.norm, 0.0, 1.0), start, self.tolerance, self.max_iterations
        )


@dataclass(frozen=True, eq=False, repr=False)
class L1SVM(LpSVM):
    r"""The non-negative weights of sum one that a support vector machine separates best with.

    .. math:: \min_{\mu \ge 0,\; \sum \mu_k \le 1} \; \max_{0 \le a \le C,\; y^\top a = 0}
              \; 2\, \mathbf 1^\top a - \sum_k \mu_k\, (y \circ a)^\top K_k (y \circ a)

    Parameters
    ----------
    tolerance : float, default 1e-6
        Relative duality gap to reach.
    max_iterations : int, default 200
        Most solutions of the support vector machine.

    Notes
    -----
    Newton's method over the weights (`kernels.solvers.minimax`), each machine solved to rounding by active sets from
    its neighbour (`kernels.solvers.svm`). Several classes are set one against one; the objective sums
    over the pairs. The weights are sparse. For kernels of like trace the bound on the sum is one on the trace of the
    learned kernel. On more than some 11,600 rows it learns on landmarks, as `LpSVM` does.

    Two classes on more rank-one kernels than Newton's method looks at are a linear machine with the squared 1-norm as
    penalty, solved by interior points (`kernels.solvers.rank_one.lasso`): twenty to forty factors of size m for any C.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui, Jordan (2004), JMLR 5:27-72, as stated in Cortes, Mohri, Rostamizadeh
    (2012), JMLR 13:795-828, section 5.
    """

    name = "l1-svm"
    summary = "support vector machine with weights of bounded sum (trace)"
    source = "Lanckriet et al. 2004; JMLR 2012, section 5"

    norm: float = field(default=1.0, init=False)
