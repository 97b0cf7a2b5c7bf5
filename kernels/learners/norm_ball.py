"""One-stage learners with weights in a norm ball, or regularized by alignment."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ..engine.operators import (
    FeatureGrams,
    GramOperator,
    StackedGrams,
    gram_fits_in_memory,
)
from ..solvers.certificate import TOLERANCE, Certificate
from ..solvers.interior_point import weights_by_interior_point
from ..solvers.lasso import ridge_weights, svm_weights
from ..solvers.logistic import LogisticProblem
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
from ..validation import positive
from .alignf import Alignf
from .base import JointLearner, Solution, center_weights

MOST_ITERATIONS = 200
"""Default number of solved problems; Newton's method needs three to ten."""

NEWTON_ITERATIONS = 15
"""Largest number of Newton iterations for an SVM with norm 1; the median is five."""

RIDGE_SAMPLE = 3000
"""Number of rows for initial weights of large ridge regressions."""

SVM_SAMPLE = 5000
"""Number of rows for the weights of large SVMs."""

InnerProblem = RidgeProblem | StreamedRidge | SupportVectorProblem | LogisticProblem
"""Problem of the predictor with fixed weights."""

ADVICE = "raise max_iter, or use a smaller C"


@dataclass(frozen=True, eq=False, repr=False)
class BallLearner(JointLearner):
    """Base class of learners that minimize an objective over weights in a norm ball."""

    norm: float = 2.0
    tol: float = TOLERANCE
    max_iter: int = MOST_ITERATIONS

    @abstractmethod
    def problem(self, grams: GramOperator, target: Target, C: float) -> InnerProblem:
        """Return the optimization problem of the predictor, on all rows or a sample."""

    def minimize(
        self, problem: InnerProblem, ball: Ball, start: np.ndarray | None
    ) -> tuple[np.ndarray, Certificate]:
        """Return the optimal weights in the ball and their certificate."""
        return solve_on_ball(problem, ball, start, self.tol, self.max_iter)

    def ball(self, p: int) -> Ball:
        """Return the ball that bounds p weights; ValueError for invalid parameters."""
        if not self.norm >= 1:
            raise ValueError(
                f"norm must be at least 1, got {self.norm}; 1 gives few kernels, inf equal weights."
            )
        return Ball(np.zeros(p), 1.0, float(self.norm))

    def require(self) -> None:
        self.ball(1)

    def solve(
        self,
        grams: GramOperator,
        target: Target,
        C: float = 1.0,
        start: np.ndarray | None = None,
    ) -> Solution:
        ball = self.ball(grams.n_kernels)
        problem = self.problem(grams, target, C)
        if (
            start is None
            and isinstance(problem, StreamedRidge)
            and grams.n_rows >= 4 * RIDGE_SAMPLE
        ):
            sample = RidgeProblem(
                *on_drawn_rows(grams, target, RIDGE_SAMPLE),
                C * (grams.n_rows / RIDGE_SAMPLE),
            )
            start, _, _ = solve_minimax(
                sample.at, ball, ball.start(grams.n_kernels), 1e-4, MOST_ITERATIONS
            )
        mu, certificate = self.minimize(problem, ball, start)
        if problem.grams is not grams:
            certificate = replace(
                certificate, measure=f"{certificate.measure} on a sample"
            )
        return Solution(mu, certificate.warn_unless_converged(self.name, ADVICE, grams))


def solve_on_ball(
    problem: InnerProblem,
    ball: Ball,
    start: np.ndarray | None,
    tolerance: float,
    max_iter: int,
) -> tuple[np.ndarray, Certificate]:
    """Return the optimal weights in a ball, and their certificate.

    With norm 1, Newton's method for SVMs may stall at zero weights; an interior-point
    method then continues.
    """
    grams = problem.grams
    if ball.norm == 1 and not ball.center.any() and isinstance(grams, FeatureGrams):
        if isinstance(problem, RidgeProblem) and problem.Y.shape[1] == 1:
            y = problem.Y[:, 0]
            return ridge_weights(
                grams, y, problem.ridge, ball.radius, start, tolerance, max_iter
            )
        if (
            isinstance(problem, SupportVectorProblem)
            and len(problem.pairs) == 1
            and grams.n_kernels > WORKING_SET
        ):
            _, y = problem.pairs[0]
            return svm_weights(grams, y, problem.C, ball.radius, tolerance, max_iter)
    if start is None:
        start = ball.start(grams.n_kernels)
    if not (isinstance(problem, SupportVectorProblem) and ball.norm == 1):
        mu, certificate, _ = solve_minimax(problem.at, ball, start, tolerance, max_iter)
        return mu, certificate
    newton_iterations = min(max_iter, NEWTON_ITERATIONS)
    mu, certificate, solved = solve_minimax(
        problem.at, ball, start, tolerance, newton_iterations
    )
    if certificate.converged or newton_iterations == max_iter:
        return mu, certificate
    return _continue_by_interior_point(
        problem, ball.radius, certificate, solved.forms, tolerance, max_iter
    )


def _continue_by_interior_point(
    problem: SupportVectorProblem,
    radius: float,
    certificate: Certificate,
    forms: np.ndarray,
    tolerance: float,
    max_iter: int,
) -> tuple[np.ndarray, Certificate]:
    """Minimize over the simplex by an interior-point method."""
    grams = problem.grams
    iterations = certificate.iterations
    objectives = list(certificate.objectives)
    working_set = np.sort(np.argsort(-forms, kind="stable")[:WORKING_SET])
    while True:
        mu, dual, steps = weights_by_interior_point(
            grams, problem.pairs, problem.C, radius, working_set, tolerance / 100
        )
        iterations += steps
        objective = problem.at(mu).objective
        objectives.append(objective)
        forms = grams.quadratic_forms(dual)
        lower_bound = 2 * float(np.abs(dual).sum()) - radius * float(forms.max())
        gap = max(objective - lower_bound, 0.0) / objective
        violating = np.flatnonzero(forms > forms[working_set].max())
        if gap <= tolerance or not len(violating) or iterations >= max_iter:
            return mu, Certificate(
                "duality gap", gap, tolerance, iterations, tuple(objectives)
            )
        # Keep all kernels: if alpha is not unique, one of weight zero may still bound a
        # form.
        most_violating = violating[
            np.argsort(-forms[violating], kind="stable")[:WORKING_SET]
        ]
        working_set = np.union1d(working_set, most_violating)


@dataclass(frozen=True, eq=False, repr=False)
class LpKRR(BallLearner):
    r"""Learn weights jointly with kernel ridge regression, under an lp-norm constraint.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu \rVert_s \le 1} \; \max_\alpha \; 2 \alpha^\top y
              - \lambda \lVert \alpha \rVert^2 - \sum_k \mu_k\, \alpha^\top K_k \alpha

    Parameters
    ----------
    norm : float, default 2
        Order s of the norm: 1 gives sparse weights, infinity equal ones.
    tol : float, default 1e-6
        Relative duality gap at convergence.
    max_iter : int, default 200
        Largest number of ridge regressions.

    Notes
    -----
    Newton's method (`kernels.solvers.minimax`): three to seven Cholesky factors,
    O(m^3 / 3) and O(p m^2) each. At the solution :math:`\mu_k \propto v_k^{1/(s-1)}`
    with :math:`v_k = \alpha^\top K_k \alpha`.

    References
    ----------
    Kloft, Brefeld, Sonnenburg, Zien (2011), JMLR 12:953-997, with the squared loss.
    """

    name = "lp-krr"
    summary = "kernel ridge regression, weights with an lp-norm constraint"
    source = "Kloft et al. 2011, with the squared loss"
    predictor = "krr"

    def problem(self, grams: GramOperator, target: Target, C: float) -> InnerProblem:
        return ridge_problem(grams, target, C, self.tol)


@dataclass(frozen=True, eq=False, repr=False)
class L1KRR(LpKRR):
    r"""Learn weights jointly with kernel ridge regression, under an l1-norm constraint.

    Parameters
    ----------
    tol, max_iter
        As in `LpKRR`.

    Notes
    -----
    As `LpKRR` with s = 1; the weights are sparse. With rank-one kernels and one target,
    the problem is a lasso (`kernels.solvers.lasso`).

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI, section 5. Lanckriet et al. (2004), JMLR
    5:27-72.
    """

    name = "l1-krr"
    summary = "kernel ridge regression, weights with an l1-norm (trace) constraint"
    source = "UAI 2009, section 5; Lanckriet et al. 2004"

    norm: float = field(default=1.0, init=False)


@dataclass(frozen=True, eq=False, repr=False)
class L2KRR(LpKRR):
    r"""Learn weights jointly with kernel ridge regression, under an l2-norm constraint.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu - \mu_0 \rVert_2 \le \Lambda} \; \max_\alpha \; 2 \alpha^\top y
              - \lambda \lVert \alpha \rVert^2 - \sum_k \mu_k\, \alpha^\top K_k \alpha

    The solution is :math:`\mu = \mu_0 + \Lambda\, v / \lVert v \rVert` with
    :math:`v_k = \alpha^\top K_k \alpha`.

    Parameters
    ----------
    center : float or sequence of float of length p, default 0
        Center mu_0 of the ball; a number is the norm of equal weights.
    radius : float, default 1
        Radius Lambda of the ball.
    algorithm : {"newton", "as-printed"}, default "newton"
        Newton's method, or Algorithm 1 of the paper with eta of one half.
    tol, max_iter
        As in `LpKRR`.

    Notes
    -----
    As `LpKRR`; more than 256 base kernels take extrapolated fixed-point steps.

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
        if self.algorithm not in ("newton", "as-printed"):
            raise ValueError(
                f"algorithm must be newton or as-printed, got {self.algorithm!r}."
            )
        self.ball(np.size(self.center))

    def ball(self, p: int) -> Ball:
        return Ball(
            center_weights(self.center, p, 2.0), positive("radius", self.radius), 2.0
        )

    def minimize(
        self, problem: InnerProblem, ball: Ball, start: np.ndarray | None
    ) -> tuple[np.ndarray, Certificate]:
        if self.algorithm == "newton":
            return super().minimize(problem, ball, start)
        forms = problem.grams.quadratic_forms
        return interpolated_iterations(problem.at, forms, ball, self.tol, self.max_iter)


@dataclass(frozen=True, eq=False, repr=False)
class LpSVM(BallLearner):
    r"""Learn weights jointly with an SVM, under an lp-norm constraint.

    .. math:: \min_{\mu \ge 0,\; \lVert \mu \rVert_s \le 1} \; \max_{0 \le a \le C,\; y^\top a = 0}
              \; 2\, \mathbf 1^\top a - \sum_k \mu_k\, (y \circ a)^\top K_k (y \circ a)

    Parameters
    ----------
    norm : float, default 2
        Order s of the norm: 1 gives sparse weights, infinity equal ones.
    tol : float, default 1e-6
        Relative duality gap at convergence.
    max_iter : int, default 200
        Largest number of iterations; each solves the SVMs of all pairs of classes.

    Notes
    -----
    Newton's method over the weights (`kernels.solvers.minimax`), with active-set SVMs,
    one-vs-one. With more than about 11,600 rows, the weights are learned on 5,000
    random rows.

    References
    ----------
    Kloft, Brefeld, Sonnenburg, Zien (2011), JMLR 12:953-997; D1 and D2 of Afkanpour,
    Szepesvari, Bowling (2013), Machine Learning.
    """

    name = "lp-svm"
    summary = "support vector machine, weights with an lp-norm constraint"
    source = "Kloft et al. 2011; D1 and D2 of AFK 2013"
    tasks = ("classification",)
    predictor = "svm"

    def problem(self, grams: GramOperator, target: Target, C: float) -> InnerProblem:
        m = grams.n_rows
        if not gram_fits_in_memory(m) and not isinstance(grams, StackedGrams):
            grams, target = on_drawn_rows(grams, target, SVM_SAMPLE)
            C *= m / grams.n_rows
        return SupportVectorProblem(grams, target, C)


@dataclass(frozen=True, eq=False, repr=False)
class L1SVM(LpSVM):
    r"""Learn weights jointly with an SVM, under an l1-norm constraint.

    Parameters
    ----------
    tol, max_iter
        As in `LpSVM`.

    Notes
    -----
    As `LpSVM` with s = 1; the weights are sparse. Two classes with many rank-one
    kernels are a linear SVM with the squared 1-norm as penalty, solved by an
    interior-point method (`kernels.solvers.lasso`).

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui, Jordan (2004), JMLR 5:27-72, as stated
    in Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """

    name = "l1-svm"
    summary = "support vector machine, weights with an l1-norm (trace) constraint"
    source = "Lanckriet et al. 2004; JMLR 2012, section 5"

    norm: float = field(default=1.0, init=False)


@dataclass(frozen=True, eq=False, repr=False)
class SingleStage(JointLearner):
    r"""Learn weights that balance the fit of ridge regression and the alignment.

    .. math:: \min_{\mu \ge 0} \; \frac{\lambda}{\lVert Y \rVert^2} \operatorname{tr} Y^\top (K_\mu + \lambda I)^{-1} Y
              - \gamma\, \mu^\top \hat a + \mu^\top (\gamma'' \hat M + \gamma' I)\, \mu

    where :math:`\hat a_k = \langle K_k, Y Y^\top \rangle / (m \lVert Y \rVert^2)` and
    :math:`\hat M_{kl} = \langle K_k, K_l \rangle / m^2`.

    Parameters
    ----------
    gamma : float, default 1
        Reward of alignment, not negative.
    gamma1 : float, default 0
        Penalty gamma' on the weights, not negative.
    gamma2 : float, default 1
        Penalty gamma'' on the norm of the kernel; gamma1 or gamma2 must be positive.
    tol : float, default 1e-6
        Relative duality gap at convergence.
    max_iter : int, default 200
        Largest number of ridge regressions.
    least_alignment : float, optional
        Smallest alignment in the constrained form, which ignores the gammas.
    radius : float, default 1
        Largest 2-norm of the weights in the constrained form.

    Notes
    -----
    Newton's method; each step is a non-negative quadratic program of size p. O(p^2 m^2)
    for M, then O(m^3 / 3 + p m^2) per iteration. With large gamma and gamma'', the
    direction of the weights is that of `alignf`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.4, equation (9), and
    the constrained form before it; lambda is explicit here.
    """

    name = "single-stage"
    summary = "ridge regression loss and alignment in one objective"
    source = "JMLR 2012, section 3.4, equation (9)"
    predictor = "krr"

    gamma: float = 1.0
    gamma1: float = 0.0
    gamma2: float = 1.0
    tol: float = TOLERANCE
    max_iter: int = MOST_ITERATIONS
    least_alignment: float | None = None
    radius: float = 1.0

    def require(self) -> None:
        gammas = self.gamma, self.gamma1, self.gamma2
        if not all(0 <= gamma < np.inf for gamma in gammas):
            raise ValueError(
                f"gamma, gamma1 and gamma2 must not be negative, got {', '.join(map(str, gammas))}."
            )
        if self.gamma1 == self.gamma2 == 0:
            raise ValueError(
                "gamma1 or gamma2 must be positive, or the weights have no bound; set gamma2 to 1."
            )
        if self.least_alignment is not None and not (
            0 <= self.least_alignment <= 1 and 0 < self.radius < np.inf
        ):
            raise ValueError(
                "least_alignment must be from 0 to 1 and radius positive and finite, got "
                f"{self.least_alignment} and {self.radius}."
            )

    def problem(
        self, grams: GramOperator, target: Target, C: float
    ) -> tuple[InnerProblem, float]:
        """Return the predictor's optimization problem, and its value for the zero kernel."""
        problem = ridge_problem(grams, target, C, self.tol)
        return problem, float(np.vdot(problem.Y, problem.Y)) / problem.ridge

    def solve(
        self,
        grams: GramOperator,
        target: Target,
        C: float = 1.0,
        start: np.ndarray | None = None,
    ) -> Solution:
        problem, unit = self.problem(grams, target, C)
        feasible_set = self._feasible_set(grams, target.Y - target.Y.mean(axis=0), unit)
        if start is None:
            start = feasible_set.start(grams.n_kernels)
        mu, certificate, _ = solve_minimax(
            problem.at, feasible_set, start, self.tol, self.max_iter
        )
        return Solution(mu, certificate.warn_unless_converged(self.name, ADVICE, grams))

    def _feasible_set(
        self, grams: GramOperator, Y: np.ndarray, unit: float
    ) -> Orthant | AlignedBall:
        """Return the set of weights, and the objective without the predictor."""
        m = grams.n_rows
        forms = grams.quadratic_forms(Y)
        M = grams.kernel_products() / m**2
        if self.least_alignment is None:
            a = np.maximum(forms, 0.0) / (m * float(np.vdot(Y, Y)))
            return Orthant(
                unit * (self.gamma2 * M + self.gamma1 * np.eye(len(a))),
                unit * self.gamma * a,
            )
        a = forms / (m * float(np.linalg.norm(Y.T @ Y)))
        best_aligned = Alignf().fit_weights(M, a).weights
        ball = AlignedBall(M, a, self.least_alignment, self.radius, best_aligned)
        if ball.slack(best_aligned) < 0:
            largest_alignment = (
                best_aligned @ a / np.sqrt(best_aligned @ M @ best_aligned)
            )
            raise ValueError(
                f"least_alignment must be at most {largest_alignment:.6g}, the largest alignment of these base "
                f"kernels, got {self.least_alignment}."
            )
        return ball


@dataclass(frozen=True, eq=False, repr=False)
class SingleStageSVM(SingleStage):
    r"""Learn weights that balance the fit of an SVM and the alignment.

    The loss in the objective of `SingleStage` is :math:`J(\mu) / J(0)`, with

    .. math:: J(\mu) = \max_{0 \le a \le C,\; y^\top a = 0} 2\, \mathbf 1^\top a
              - (y \circ a)^\top K_\mu (y \circ a)

    Parameters
    ----------
    gamma, gamma1, gamma2, least_alignment, radius, tol, max_iter
        As in `SingleStage`.

    Notes
    -----
    Several classes are handled one-vs-one.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.4.
    """

    name = "single-stage-svm"
    summary = "support vector machine loss and alignment in one objective"
    source = "JMLR 2012, section 3.4"
    tasks = ("classification",)
    predictor = "svm"

    def problem(
        self, grams: GramOperator, target: Target, C: float
    ) -> tuple[InnerProblem, float]:
        problem = SupportVectorProblem(grams, target, C)
        smaller_classes = [
            min(int((y > 0).sum()), int((y < 0).sum())) for _, y in problem.pairs
        ]
        return problem, 4.0 * problem.C * sum(smaller_classes)
