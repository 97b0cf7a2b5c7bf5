"""Kernel ridge regression and support vector machines with weights in a norm ball, or regularized by alignment."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ..engine.operators import FeatureGrams, GramOperator, StackedGrams, has_room
from ..parameters import positive
from ..solvers.certificate import TOLERANCE, Certificate
from ..solvers.interior_point import weights_by_interior_point
from ..solvers.lasso import ridge_weights, svm_weights
from ..solvers.minimax import (
    WORKING_SET,
    AlignedBall,
    Ball,
    Orthant,
    interpolated_iterations,
    solve_minimax,
)
from ..solvers.ridge import RidgeProblem, StreamedRidge, on_drawn_rows, ridge_problem
from ..solvers.svm import SupportVectorProblem
from ..targets import Target
from .alignf import Alignf
from .base import JointLearner, Solution, center_weights

MOST_ITERATIONS = 200
"""Solutions of the inner problem; Newton's method needs three to ten."""

NEWTON_ITERATIONS = 15
"""Inner solutions of Newton's method for an SVM with norm 1; five are the median where it converges."""

RIDGE_SAMPLE, SAMPLED_GAP = 3000, 1e-4
"""Rows that weights to begin with are learned on, of four times as many and more that no matrix of all pairs fits, and
the relative gap of these; those of all rows are further away."""

SVM_SAMPLE = 5000
"""Rows that weights of SVMs are learned on where a matrix of all pairs does not fit."""

InnerProblem = RidgeProblem | StreamedRidge | SupportVectorProblem
"""What is solved at given weights."""

ADVICE = "raise max_iterations, or use a smaller C"


@dataclass(frozen=True, eq=False, repr=False)
class BallLearner(JointLearner):
    """A learner of weights in a ball: a loss, the ball, and Newton's method over it; a subclass says which loss."""

    norm: float = 2.0
    tolerance: float = TOLERANCE
    max_iterations: int = MOST_ITERATIONS

    @abstractmethod
    def problem(self, grams: GramOperator, target: Target, C: float) -> InnerProblem:
        """Return the predictor's problem at given weights, on these rows or on a sample of them."""

    def minimize(self, problem: InnerProblem, outer: Ball, start: np.ndarray | None) -> tuple[np.ndarray, Certificate]:
        """Return the weights in a ball, and their certificate."""
        return solve_on_ball(problem, outer, start, self.tolerance, self.max_iterations)

    def ball(self, p: int) -> Ball:
        """Return the ball of weights of p base kernels, or raise ValueError where a parameter allows none."""
        if not self.norm >= 1:
            raise ValueError(f"norm must be at least 1, got {self.norm}; 1 gives few kernels, inf equal weights.")
        return Ball(np.zeros(p), 1.0, float(self.norm))

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        self.ball(1)

    def solve(self, grams: GramOperator, target: Target, C: float = 1.0, start: np.ndarray | None = None) -> Solution:
        """Return the weights; see `JointLearner.solve`."""
        outer, problem = self.ball(grams.n_kernels), self.problem(grams, target, C)
        if start is None and isinstance(problem, StreamedRidge) and grams.n_rows >= 4 * RIDGE_SAMPLE:
            equal, scale = outer.start(grams.n_kernels), grams.n_rows / RIDGE_SAMPLE
            fewer = RidgeProblem(*on_drawn_rows(grams, target, RIDGE_SAMPLE), C * scale)
            start = solve_minimax(fewer.at, outer, equal, SAMPLED_GAP, MOST_ITERATIONS)[0]
        mu, certificate = self.minimize(problem, outer, start)
        if problem.grams is not grams:
            certificate = replace(certificate, measure=f"{certificate.measure} on a sample")
        return Solution(mu, certificate.warn_unless_converged(self.name, ADVICE, grams))


def solve_on_ball(
    problem: InnerProblem, outer: Ball, start: np.ndarray | None, tolerance: float, max_iterations: int
) -> tuple[np.ndarray, Certificate]:
    """Return weights in a ball, and their certificate.

    With norm 1 and rank-one base kernels the weights can be eliminated: a ridge regression of one target is solved as a
    lasso, and a binary SVM on more base kernels than Newton's method looks at as a linear one
    (`kernels.solvers.lasso`).

    The value of an SVM is not differentiable in weights that are zero, and Newton's method may stall where the
    kernels have low rank. What it leaves after `NEWTON_ITERATIONS` with norm 1 is finished by an interior-point
    method on weights and SVMs together.
    """
    grams = problem.grams
    p, simplex = grams.n_kernels, outer.norm == 1 and not outer.center.any()
    most = max_iterations
    if simplex and isinstance(grams, FeatureGrams):
        if isinstance(problem, RidgeProblem) and problem.Y.shape[1] == 1:
            return ridge_weights(grams, problem.Y[:, 0], problem.ridge, outer.radius, start, tolerance, most)
        if isinstance(problem, SupportVectorProblem) and len(problem.pairs) == 1 and p > WORKING_SET:
            return svm_weights(grams, problem.pairs[0][1], problem.C, outer.radius, tolerance, most)
    svm = isinstance(problem, SupportVectorProblem) and outer.norm == 1
    most = min(most, NEWTON_ITERATIONS) if svm else most
    mu, reached, inner = solve_minimax(problem.at, outer, outer.start(p) if start is None else start, tolerance, most)
    if reached.converged or most == max_iterations or not isinstance(problem, SupportVectorProblem):
        return mu, reached
    steps, objectives = reached.iterations, list(reached.objectives)
    working = np.sort(np.argsort(-inner.forms, kind="stable")[:WORKING_SET])
    while True:
        mu, dual, taken = weights_by_interior_point(
            grams, problem.pairs, problem.C, outer.radius, working, tolerance / 100
        )
        steps += taken
        value, forms = problem.at(mu).objective, grams.quadratic_forms(dual)
        objectives.append(value)
        bound = 2 * float(np.abs(dual).sum()) - outer.radius * float(forms.max())
        residual = max(value - bound, 0.0) / value
        larger = np.flatnonzero(forms > forms[working].max())
        if residual <= tolerance or not len(larger) or steps >= max_iterations:
            return mu, Certificate("duality gap", residual, tolerance, steps, tuple(objectives))
        # None leaves: with alpha not unique, a base kernel without weight may still be what keeps a form in bounds.
        working = np.union1d(working, larger[np.argsort(-forms[larger], kind="stable")[:WORKING_SET]])


@dataclass(frozen=True, eq=False, repr=False)
class LpKRR(BallLearner):
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
    summary = "kernel ridge regression, weights with an lp-norm constraint"
    source = "Kloft et al. 2011, with the squared loss"
    predictor = "krr"

    def problem(self, grams: GramOperator, target: Target, C: float) -> InnerProblem:
        """Return the ridge regression."""
        return ridge_problem(grams, target, C, self.tolerance)


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
    and O(p m^2) each. The weights are sparse. For kernels of like trace the bound on the sum is one on the trace of the
    learned kernel.

    On rank-one kernels of one target the problem is a lasso (`kernels.solvers.lasso`): O(a^3) a pass for a features
    that carry weight, some ten passes; where a comes near m or C is large, some twenty factors of size m. The gap
    is then that of rounding, and `iterations` counts passes and factors.

    References
    ----------
    The L1 counterpart of Cortes, Mohri, Rostamizadeh (2009), UAI, equation (3), compared with there in section 5; with
    the constraint of Lanckriet et al. (2004), JMLR 5:27-72.
    """

    name = "l1-krr"
    summary = "kernel ridge regression, weights with an l1-norm (trace) constraint"
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
    center : float or sequence of float of length p, default 0
        mu_0, such as prior weights; a number represents as many times the uniform weights of unit 2-norm.
    radius : float, default 1
        Lambda.
    algorithm : {"newton", "as-printed"}, default "newton"
        Newton's method, or the paper's Algorithm 1 with eta of one half, for comparisons of iterations.
    tolerance : float, default 1e-6
        Relative duality gap to reach.
    max_iterations : int, default 200
        Most solutions of the ridge regression.

    Notes
    -----
    Newton's method with an exact Hessian (`kernels.solvers.minimax`): some three to seven Cholesky factors, O(m^3 / 3)
    and O(p m^2) each, where Algorithm 1 takes four to eight; of fewer rank-one kernels than rows O(p^3 / 3). More than
    256 base kernels take a fixed-point step in place of Newton's, and some fifteen factors.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI: equation (3), Theorem 1, Algorithm 1.
    """

    name = "l2-krr"
    summary = "kernel ridge regression, weights with an l2-norm constraint"
    source = "UAI 2009, equation (3), Theorem 1"

    norm: float = field(default=2.0, init=False)
    center: float | Sequence[float] = 0.0
    radius: float = 1.0
    algorithm: Literal["newton", "as-printed"] = "newton"

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        if self.algorithm not in ("newton", "as-printed"):
            raise ValueError(f"algorithm must be newton or as-printed, got {self.algorithm!r}.")
        self.ball(np.size(self.center))

    def ball(self, p: int) -> Ball:
        """Return the ball; see `BallLearner.ball`."""
        return Ball(center_weights(self.center, p, 2.0), positive("radius", self.radius), 2.0)

    def minimize(self, problem: InnerProblem, outer: Ball, start: np.ndarray | None) -> tuple[np.ndarray, Certificate]:
        """Return the weights in a ball, and their certificate."""
        if self.algorithm == "newton":
            return super().minimize(problem, outer, start)
        forms = problem.grams.quadratic_forms
        return interpolated_iterations(problem.at, forms, outer, self.tolerance, self.max_iterations)


@dataclass(frozen=True, eq=False, repr=False)
class LpSVM(BallLearner):
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
    Newton's method over the weights (`kernels.solvers.minimax`), each SVM solved to rounding by active sets from its
    neighbor (`kernels.solvers.svm`). Several classes are handled one-vs-one; the objective sums over the pairs. On more
    rows than a matrix of their pairs fits into 1 GiB, about 11,600, it learns on 5,000 of them, drawn at random, with C
    larger by the ratio of both numbers; the certificate reports it.

    References
    ----------
    Kloft, Brefeld, Sonnenburg, Zien (2011), JMLR 12:953-997; norms 1 and 2 are D1 and D2 of Afkanpour, Szepesvari,
    Bowling (2013), Machine Learning.
    """

    name = "lp-svm"
    summary = "support vector machine, weights with an lp-norm constraint"
    source = "Kloft et al. 2011; D1 and D2 of AFK 2013"
    tasks = ("classification",)
    predictor = "svm"

    def problem(self, grams: GramOperator, target: Target, C: float) -> InnerProblem:
        """Return the SVMs, of more rows than a matrix of all pairs fits on a sample, with C times as many."""
        m = grams.n_rows
        if not has_room(m) and not isinstance(grams, StackedGrams):
            grams, target = on_drawn_rows(grams, target, SVM_SAMPLE)
            C *= m / grams.n_rows
        return SupportVectorProblem(grams, target, C)


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
    Newton's method over the weights (`kernels.solvers.minimax`), each SVM solved to rounding by active sets from
    its neighbor (`kernels.solvers.svm`). Several classes are handled one-vs-one; the objective sums over the pairs.
    The weights are sparse. For kernels of like trace the bound on the sum is one on the trace of the learned kernel.
    On more than about 11,600 rows it learns on a sample, as `LpSVM` does.

    Two classes on more rank-one kernels than Newton's method looks at are a linear SVM with the squared 1-norm as
    penalty, solved by an interior-point method (`kernels.solvers.lasso`): twenty to forty factors of size m for any C.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui, Jordan (2004), JMLR 5:27-72, as stated in Cortes, Mohri, Rostamizadeh
    (2012), JMLR 13:795-828, section 5.
    """

    name = "l1-svm"
    summary = "support vector machine, weights with an l1-norm (trace) constraint"
    source = "Lanckriet et al. 2004; JMLR 2012, section 5"

    norm: float = field(default=1.0, init=False)


@dataclass(frozen=True, eq=False, repr=False)
class SingleStage(JointLearner):
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
    least_alignment : float, optional
        Omega of the constrained form: the best fit among kernels that align by at least this, with weights of 2-norm at
        most `radius`; the gammas do not count then. By default the form above.
    radius : float, default 1
        Lambda of the constrained form.
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
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.4, equation (9), and the constrained form before it.
    There lambda is subsumed in the other three parameters; here it is kept, so that one grid of it serves all learners.
    """

    name = "single-stage"
    summary = "ridge regression loss and alignment in one objective"
    source = "JMLR 2012, section 3.4, equation (9)"
    predictor = "krr"

    gamma: float = 1.0
    gamma1: float = 0.0
    gamma2: float = 1.0
    tolerance: float = TOLERANCE
    max_iterations: int = MOST_ITERATIONS
    least_alignment: float | None = None
    radius: float = 1.0

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        gammas = self.gamma, self.gamma1, self.gamma2
        if not all(0 <= gamma < np.inf for gamma in gammas):
            raise ValueError(f"gamma, gamma1 and gamma2 must not be negative, got {', '.join(map(str, gammas))}.")
        if self.gamma1 == self.gamma2 == 0:
            raise ValueError("gamma1 or gamma2 must be positive, or the weights have no bound; set gamma2 to 1.")
        if self.least_alignment is not None and not (0 <= self.least_alignment <= 1 and 0 < self.radius < np.inf):
            raise ValueError(
                "least_alignment must be from 0 to 1 and radius positive and finite, got "
                f"{self.least_alignment} and {self.radius}."
            )

    def problem(self, grams: GramOperator, target: Target, C: float) -> tuple[InnerProblem, float]:
        """Return the predictor's problem, and its value for the zero kernel, in which the other terms are counted."""
        problem = ridge_problem(grams, target, C, self.tolerance)
        return problem, float(np.vdot(problem.Y, problem.Y)) / problem.ridge

    def solve(self, grams: GramOperator, target: Target, C: float = 1.0, start: np.ndarray | None = None) -> Solution:
        """Return the weights; see `JointLearner.solve`."""
        problem, size = self.problem(grams, target, C)
        m, Y = grams.n_rows, target.Y - target.Y.mean(axis=0)
        forms, M = grams.quadratic_forms(Y), grams.kernel_products() / m**2
        outer: Orthant | AlignedBall
        if self.least_alignment is None:
            a = np.maximum(forms, 0.0) / (m * float(np.vdot(Y, Y)))
            outer = Orthant(size * (self.gamma2 * M + self.gamma1 * np.eye(len(a))), size * self.gamma * a)
        else:
            a = forms / (m * float(np.linalg.norm(Y.T @ Y)))
            best = Alignf().fit_weights(M, a).weights
            outer = AlignedBall(M, a, self.least_alignment, self.radius, best)
            if outer.slack(best) < 0:
                raise ValueError(
                    f"least_alignment must be at most {best @ a / np.sqrt(best @ M @ best):.6g}, the largest alignment "
                    f"of these base kernels, got {self.least_alignment}."
                )
        begin = outer.start(grams.n_kernels) if start is None else start
        mu, certificate, _ = solve_minimax(problem.at, outer, begin, self.tolerance, self.max_iterations)
        return Solution(mu, certificate.warn_unless_converged(self.name, ADVICE, grams))


@dataclass(frozen=True, eq=False, repr=False)
class SingleStageSVM(SingleStage):
    r"""The weights that trade the fit of a support vector machine against the alignment of the kernel.

    .. math:: \min_{\mu \ge 0} \; \frac{J(\mu)}{J(0)} - \gamma\, \mu^\top \hat a
              + \mu^\top (\gamma'' \hat M + \gamma' I)\, \mu, \qquad
              J(\mu) = \max_{0 \le a \le C,\; y^\top a = 0} 2\, \mathbf 1^\top a
              - (y \circ a)^\top K_\mu (y \circ a)

    Parameters
    ----------
    gamma, gamma1, gamma2, least_alignment, radius, tolerance, max_iterations
        As in `SingleStage`.

    Notes
    -----
    As `SingleStage`, with SVMs in place of ridge regression; several classes are handled one-vs-one. It holds matrices
    of all pairs of rows.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.4: the general form, for the SVM that it names.
    """

    name = "single-stage-svm"
    summary = "support vector machine loss and alignment in one objective"
    source = "JMLR 2012, section 3.4"
    tasks = ("classification",)
    predictor = "svm"

    def problem(self, grams: GramOperator, target: Target, C: float) -> tuple[InnerProblem, float]:
        """Return the SVMs, and their value for the zero kernel."""
        problem = SupportVectorProblem(grams, target, C)
        smaller = [min(int((y > 0).sum()), int((y < 0).sum())) for _, y in problem.pairs]
        return problem, 4.0 * problem.C * sum(smaller)
