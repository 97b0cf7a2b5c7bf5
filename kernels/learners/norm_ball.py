"""What the one-stage learners over a norm ball share: the ball, the start, the certificate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from learnkernels.kernels.engine.operators import FeatureGrams, GramOperator
from learnkernels.kernels.learners.base import Solution
from learnkernels.kernels.solvers.certificate import Certificate
from learnkernels.kernels.solvers.interior_point import weights_by_interior_point
from learnkernels.kernels.solvers.low_rank import LandmarkGrams
from learnkernels.kernels.solvers.minimax import WORKING_SET, Ball, InnerProblem, InnerSolution, minimise
from learnkernels.kernels.solvers.rank_one.lasso import machine_weights, ridge_weights
from learnkernels.kernels.solvers.rank_one.ridge import FeatureRidge
from learnkernels.kernels.solvers.ridge import RidgeProblem
from learnkernels.kernels.solvers.streamed_ridge import StreamedRidge
from learnkernels.kernels.solvers.svm import SupportVectorProblem

MOST_ITERATIONS = 200
"""Solutions of the inner problem; Newton's method needs three to ten."""

NEWTON_ITERATIONS = 15
"""Inner solutions of Newton's method for a machine with norm 1; five are the median where it converges."""

SAMPLED_GAP = 1e-4
"""Relative gap of weights to begin with that are learned on some rows; those of all rows are further away."""

ADVICE = "raise max_iterations, or use a smaller regularisation"


def unit_uniform(p: int, norm: float) -> np.ndarray:
    """Return equal weights of unit norm, shape (p,)."""
    return np.full(p, float(p) ** -(1 / norm))


def ball(grams: GramOperator, norm: float, center: float, radius: float) -> Ball:
    """Return the ball around `center` times the uniform weights of unit norm.

    Raises
    ------
    ValueError
        The norm is below one, the center negative, or the radius not positive and finite.
    """
    require_ball(norm, center, radius)
    return Ball(center * unit_uniform(grams.n_kernels, norm), float(radius), float(norm))


def require_ball(norm: float, center: float, radius: float) -> None:
    """Raise ValueError if there is no such ball; see `ball`."""
    if not norm >= 1:
        raise ValueError(f"norm must be at least 1, got {norm}; 1 gives few kernels, inf equal weights.")
    if not 0 <= center < np.inf:
        raise ValueError(f"center must be zero or positive, got {center}.")
    if not 0 < radius < np.inf:
        raise ValueError(f"radius must be positive and finite, got {radius}.")


def _is_simplex(outer: Ball) -> bool:
    """Return whether the ball bounds the sum of the weights, and nothing else."""
    return outer.norm == 1 and not outer.center.any()


def solve_machine_on_ball(
    name: str,
    problem: SupportVectorProblem,
    outer: Ball,
    start: np.ndarray | None,
    tolerance: float,
    max_iterations: int,
) -> Solution:
    """Return the solution of a machine's learner over a ball.

    For norm 1 the value is not differentiable in weights that are zero, and Newton's method may stall where the kernels
    have low rank; what it leaves after `NEWTON_ITERATIONS` is finished by interior points on weights and machines
    together, with base kernels taken up while one of them has a larger form than those that carry weight. A binary
    machine on more rank-one kernels than Newton's method looks at is solved as a linear one, from the beginning
    (`kernels.solvers.rank_one.lasso`).
    """
    grams = problem.grams
    rank_one = grams if isinstance(grams, FeatureGrams) and _is_simplex(outer) and len(problem.pairs) == 1 else None
    if rank_one is not None and rank_one.n_kernels > WORKING_SET:
        mu, certificate = machine_weights(
            rank_one, problem.pairs[0][1], problem.C, outer.radius, tolerance, max_iterations
        )
        return Solution(mu, certificate.warn_unless_converged(name, ADVICE))
    begin = outer.start(problem.grams.n_kernels) if start is None else start
    most = min(max_iterations, NEWTON_ITERATIONS) if outer.norm == 1 else max_iterations
    mu, certificate, inner = minimise(problem, outer, begin, tolerance, most)
    if not certificate.converged and most < max_iterations:
        mu, certificate = _finish_jointly(problem, outer, certificate, inner, max_iterations)
    if isinstance(grams, LandmarkGrams) and grams.approximate:
        certificate = replace(certificate, measure=f"{certificate.measure} on landmarks")
    return Solution(mu, certificate.warn_unless_converged(name, ADVICE))


def _finish_jointly(
    problem: SupportVectorProblem, outer: Ball, reached: Certificate, inner: InnerSolution, max_iterations: int
) -> tuple[np.ndarray, Certificate]:
    """Return weights and certificate of the joint problem, from the forms that Newton's method ended with."""
    grams, steps, objectives = problem.grams, reached.iterations, list(reached.objectives)
    working = np.sort(np.argsort(-inner.forms, kind="stable")[:WORKING_SET])
    while True:
        joint = weights_by_interior_point(
            grams, problem.pairs, problem.C, outer.radius, working, reached.tolerance / 100
        )
        steps += joint.steps
        value = problem.at(joint.mu).objective
        objectives.append(value)
        forms = grams.quadratic_forms(joint.dual)
        bound = 2 * float(np.abs(joint.dual).sum()) - outer.radius * float(forms.max())
        residual = max(value - bound, 0.0) / value
        larger = np.flatnonzero(forms > forms[working].max())
        if residual <= reached.tolerance or not len(larger) or steps >= max_iterations:
            return joint.mu, Certificate("duality gap", residual, reached.tolerance, steps, tuple(objectives))
        # None leaves: with alpha not unique, a base kernel without weight may still be what keeps a form in bounds.
        working = np.union1d(working, larger[np.argsort(-forms[larger], kind="stable")[:WORKING_SET]])


def solve_on_ball(
    name: str, problem: InnerProblem, outer: Ball, start: np.ndarray | None, tolerance: float, max_iterations: int
) -> Solution:
    """Return the solution of a one-stage learner over a ball, with a warning where its gap stays too wide.

    A ridge regression of one target on rank-one kernels with weights of bounded sum is solved as a lasso
    (`kernels.solvers.rank_one.lasso`), in a ball of another norm by Newton's method without a Hessian
    (`kernels.solvers.rank_one.ridge`). One on so many rows that no matrix of them is formed begins at the weights of
    some of the rows, unless it is told where to.
    """
    grams = problem.grams
    if isinstance(problem, RidgeProblem) and isinstance(grams, FeatureGrams) and problem.Y.shape[1] == 1:
        y = problem.Y[:, 0]
        if _is_simplex(outer):
            mu, certificate = ridge_weights(grams, y, problem.ridge, outer.radius, start, tolerance, max_iterations)
            return Solution(mu, certificate.warn_unless_converged(name, ADVICE))
        problem = FeatureRidge(grams, y, problem.ridge)
    begin = _begin(problem, outer) if start is None else start
    mu, certificate, _ = minimise(problem, outer, begin, tolerance, max_iterations)
    return Solution(mu, certificate.warn_unless_converged(name, ADVICE))


def _begin(problem: InnerProblem, outer: Ball) -> np.ndarray:
    """Return weights to begin with: equal ones, or those of some of very many rows."""
    equal = outer.start(problem.grams.n_kernels)
    fewer = problem.of_some_rows() if isinstance(problem, StreamedRidge) else None
    return equal if fewer is None else minimise(fewer, outer, equal, SAMPLED_GAP, MOST_ITERATIONS)[0]
