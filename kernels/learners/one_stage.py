"""What the one-stage learners over a norm ball share: the ball, the start, the certificate."""

from __future__ import annotations

import numpy as np

from kernels.learners.solution import Solution
from kernels.operators import GramOperator
from kernels.solvers.minimax import Ball, InnerProblem, minimise

MOST_ITERATIONS = 200
"""Solutions of the inner problem; Newton's method needs three to ten."""

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
    if not norm >= 1:
        raise ValueError(f"norm must be at least 1, got {norm}; 1 gives few kernels, inf equal weights.")
    if not 0 <= center < np.inf:
        raise ValueError(f"center must be zero or positive, got {center}.")
    if not 0 < radius < np.inf:
        raise ValueError(f"radius must be positive and finite, got {radius}.")
    return Ball(center * unit_uniform(grams.n_kernels, norm), float(radius), float(norm))


def solve_on_ball(
    name: str, problem: InnerProblem, outer: Ball, start: np.ndarray | None, tolerance: float, max_iterations: int
) -> Solution:
    """Return the solution of a one-stage learner over a ball, with a warning where its gap stays too wide."""
    begin = outer.start(problem.grams.n_kernels) if start is None else start
    mu, certificate, _ = minimise(problem, outer, begin, tolerance, max_iterations)
    return Solution(mu, certificate.warn_unless_converged(name, ADVICE))
