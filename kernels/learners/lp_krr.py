"""Kernel ridge regression with weights in a ball: of any norm, of norm one, of norm two around a centre."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from learnkernels.kernels.engine.operators import GramOperator
from learnkernels.kernels.learners.base import OneStageLearner, Solution
from learnkernels.kernels.learners.norm_ball import MOST_ITERATIONS, ball, require_ball, solve_on_ball
from learnkernels.kernels.solvers.certificate import TOLERANCE
from learnkernels.kernels.solvers.minimax import Ball
from learnkernels.kernels.solvers.streamed_ridge import ridge_problem
from learnkernels.kernels.targets import Target


@dataclass(frozen=True, eq=False, repr=False)
class LpKRR(OneStageLearner):
    r"""The non-negative weights of unit norm that kernel ridge regression fits best with.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu \rVert_s \le 1} \; \max_\alpha \; 2 \alpha^\top y
              - \lambda \lVert \alpha \rVert^2 - \sum_k \mu_k\, \alpha^\top K_k \alpha

    Parameters
    ----------
    norm : float, default 2
        The s of the norm: 1 gives sparse weights, infinity equal ones.
    tolerance : float, default 1e-6
        Relative duality gap to reach.
    max_iterations : int, default 200
        Most solutions of the ridge regression.

    Notes
    -----
    Newton's method with an exact Hessian (`kernels.solvers.minimax`): some three to seven Cholesky factors, O(m^3 / 3)
    and O(p m^2) each.
    At the solution :math:`\mu_k \propto v_k^{1/(s-1)}` with v the quadratic forms of alpha.

    References
    ----------
    Kloft, Brefeld, Sonnenburg, Zien (2011), JMLR 12:953-997, with the squared loss.
    """

    name = "lp-krr"
    summary = "kernel ridge regression with weights in the unit ball of any norm"
    source = "Kloft et al. 2011, with the squared loss"
    predictor = "krr"

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
        problem = ridge_problem(grams, target, regularisation, self.tolerance)
        return solve_on_ball(self.name, problem, self._ball(grams), start, self.tolerance, self.max_iterations)

    def _ball(self, grams: GramOperator) -> Ball:
        return ball(grams, self.norm, 0.0, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class L1KRR(LpKRR):
    r"""The non-negative weights of sum one that kernel ridge regression fits best with.

    .. math:: \min_{\mu \ge 0,\; \sum \mu_k \le 1} \; \max_\alpha \; 2 \alpha^\top y - \lambda \lVert \alpha \rVert^2
              - \sum_k \mu_k\, \alpha^\top K_k \alpha

    Parameters
    ----------
    tolerance : float, default 1e-6
        Relative duality gap to reach.
    max_iterations : int, default 200
        Most solutions of the ridge regression.

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

    name = "l1-krr"
    summary = "kernel ridge regression with weights of bounded sum (trace)"
    source = "UAI 2009, section 5; Lanckriet et al. 2004"

    norm: float = field(default=1.0, init=False)


@dataclass(frozen=True, eq=False, repr=False)
class L2KRR(LpKRR):
    r"""The weights in a ball of the 2-norm that kernel ridge regression fits best with.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu - \mu_0 \rVert_2 \le \Lambda} \; \max_\alpha \; 2 \alpha^\top y
              - \lambda \lVert \alpha \rVert^2 - \sum_k \mu_k\, \alpha^\top K_k \alpha

    Its solution is :math:`\mu = \mu_0 + \Lambda\, v / \lVert v \rVert` with :math:`v_k = \alpha^\top K_k \alpha` and
    :math:`\alpha = (K_\mu + \lambda I)^{-1} y`.

    Parameters
    ----------
    center : float, default 0
        mu_0 is this times the uniform weights of unit 2-norm.
    radius : float, default 1
        Lambda, in units of the same.
    tolerance : float, default 1e-6
        Relative duality gap to reach.
    max_iterations : int, default 200
        Most solutions of the ridge regression.

    Notes
    -----
    Newton's method with an exact Hessian (`kernels.solvers.minimax`): some three to seven Cholesky factors, O(m^3 / 3)
    and O(p m^2) each. On rank-one kernels of one target the step takes no Hessian, however many there are
    (`kernels.solvers.rank_one`): some four to ten solutions, each with two factors of the smaller of m and p rows.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI: equation (3), Theorem 1; Newton's method in place of Algorithm 1.
    """

    name = "l2-krr"
    summary = "kernel ridge regression with weights in a 2-norm ball"
    source = "UAI 2009, equation (3), Theorem 1"

    norm: float = field(default=2.0, init=False)
    center: float = 0.0
    radius: float = 1.0

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        require_ball(self.norm, self.center, self.radius)

    def _ball(self, grams: GramOperator) -> Ball:
        return ball(grams, self.norm, self.center, self.radius)
