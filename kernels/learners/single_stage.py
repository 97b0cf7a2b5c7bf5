"""single-stage: kernel ridge regression with alignment as the regularisation of the weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learnkernels.kernels.engine.operators import GramOperator
from learnkernels.kernels.learners.base import OneStageLearner, Solution
from learnkernels.kernels.learners.norm_ball import ADVICE, MOST_ITERATIONS
from learnkernels.kernels.solvers.certificate import TOLERANCE
from learnkernels.kernels.solvers.minimax import Orthant, minimise
from learnkernels.kernels.solvers.ridge import ridge_problem
from learnkernels.kernels.targets import Target


@dataclass(frozen=True, eq=False, repr=False)
class SingleStage(OneStageLearner):
    r"""The weights that trade the fit of kernel ridge regression against the alignment of the kernel.

    .. math:: \min_{\mu \ge 0} \; \frac{\lambda}{\lVert Y \rVert^2} \operatorname{tr} Y^\top (K_\mu + \lambda I)^{-1} Y
              - \gamma\, \mu^\top \hat a + \mu^\top (\gamma'' \hat M + \gamma' I)\, \mu

    The first term is one for the zero kernel and zero for a perfect fit. :math:`\hat a_k = \langle K_k, Y Y^\top
    \rangle / (m \lVert Y \rVert^2)` and :math:`\hat M_{kl} = \langle K_k, K_l \rangle / m^2` have no units and do not
    grow with m, so neither do the parameters.

    Parameters
    ----------
    gamma, gamma1, gamma2 : float, default 1, 0, 1
        gamma rewards alignment; gamma' and gamma'' bound the weights and the norm of the kernel. Not negative; gamma'
        or gamma'' positive. With gamma and gamma'' large the direction is that of alignf; all three are worth tuning.
    tolerance : float, default 1e-6
        Relative duality gap to reach.
    max_iterations : int, default 200
        Most solutions of the ridge regression.

    Notes
    -----
    Newton's method with an exact Hessian; each step is a non-negative quadratic program of size p, and so is the lower
    bound. O(p^2 m^2) for M, then O(m^3 / 3 + p m^2) an iteration.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.4, equation (9). There lambda is subsumed in the
    other three parameters; here it is kept, so that one grid of it serves all learners.
    """

    name = "single-stage"
    summary = "kernel ridge regression and alignment in one objective"
    source = "JMLR 2012, section 3.4, equation (9)"
    predictor = "krr"

    gamma: float = 1.0
    gamma1: float = 0.0
    gamma2: float = 1.0
    tolerance: float = TOLERANCE
    max_iterations: int = MOST_ITERATIONS

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        if (
            min(self.gamma, self.gamma1, self.gamma2) < 0
            or not np.isfinite([self.gamma, self.gamma1, self.gamma2]).all()
        ):
            raise ValueError(
                f"gamma, gamma1 and gamma2 must not be negative, got {self.gamma}, {self.gamma1}, {self.gamma2}."
            )
        if self.gamma1 == self.gamma2 == 0:
            raise ValueError("gamma1 or gamma2 must be positive, or the weights have no bound; set gamma2 to 1.")

    def solve(
        self, grams: GramOperator, target: Target, regularisation: float = 1.0, start: np.ndarray | None = None
    ) -> Solution:
        """Return the weights; see `OneStageLearner.solve`."""
        self.require()
        problem = ridge_problem(grams, target, regularisation, self.tolerance)
        m = grams.n_rows
        squared = float(np.vdot(problem.Y, problem.Y))
        a = np.maximum(grams.quadratic_forms(problem.Y), 0.0) / (m * squared)
        M = grams.frobenius() / m**2
        # The common factor of the first term is taken to the other two.
        outer = Orthant(
            squared / problem.ridge * (self.gamma2 * M + self.gamma1 * np.eye(len(a))),
            squared / problem.ridge * self.gamma * a,
        )
        begin = outer.start(grams.n_kernels) if start is None else start
        mu, certificate, _ = minimise(problem, outer, begin, self.tolerance, self.max_iterations)
        return Solution(mu, certificate.warn_unless_converged("single-stage", ADVICE, grams))
