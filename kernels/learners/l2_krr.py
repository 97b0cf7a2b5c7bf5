"""l2-krr: kernel ridge regression with weights in a ball of the 2-norm."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.engine.operators import GramOperator
from learnkernels.kernels.learners.one_stage import ADVICE, MOST_ITERATIONS, ball, solve_on_ball
from learnkernels.kernels.learners.solution import Solution
from learnkernels.kernels.solvers.certificate import TOLERANCE, Certificate
from learnkernels.kernels.solvers.minimax import Ball
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
    algorithm: str = "newton",
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
    algorithm : {"newton", "interpolation"}, default "newton"
        Newton's method on that equation, or the paper's interpolated fixed-point iteration of it.
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
    The interpolated iteration, ``alpha <- eta alpha + (1 - eta) (K(alpha) + lambda I)^-1 y``, converges linearly and
    may oscillate: eta starts at 1/2 and moves half way to one whenever a step is longer than the one before.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI: equation (3), Theorem 1, Algorithm 1.
    """
    problem = RidgeProblem(grams, target, regularisation)
    outer = ball(grams, 2.0, center, radius)
    if algorithm == "newton":
        return solve_on_ball("l2-krr", problem, outer, start, tolerance, max_iterations)
    if algorithm != "interpolation":
        raise ValueError(f"algorithm must be newton or interpolation, got {algorithm!r}.")
    return _interpolate(problem, outer, start, tolerance, max_iterations)


def _interpolate(
    problem: RidgeProblem, outer: Ball, start: np.ndarray | None, tolerance: float, max_iterations: int
) -> Solution:
    """Return the solution by Algorithm 1; each factorisation counts as an iteration."""
    mu = outer.start(problem.grams.n_kernels) if start is None else start
    inner = problem.at(mu)
    alpha, eta, last, bound = inner.dual, 0.5, np.inf, outer.lower_bound(inner)
    objectives = [inner.objective]
    while inner.objective - bound > tolerance * inner.objective and len(objectives) < max_iterations:
        v = problem.grams.quadratic_forms(alpha)
        mu = outer.center + outer.radius * v / np.linalg.norm(v)
        inner = problem.at(mu)
        bound = max(bound, outer.lower_bound(inner))
        objectives.append(inner.objective)
        step = (1 - eta) * (inner.dual - alpha)
        length = float(np.linalg.norm(step))
        eta = (1 + eta) / 2 if length > last else eta
        alpha, last = alpha + step, length
    gap = max(inner.objective - bound, 0.0) / inner.objective
    certificate = Certificate("duality gap", gap, tolerance, len(objectives), tuple(objectives))
    return Solution(mu, certificate.warn_unless_converged("l2-krr", ADVICE))
