"""Evidence that weights are optimal."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from learnkernels.kernels.parameters import Value

TOLERANCE = 1e-6
"""Relative residual that iterative learners must reach, unless told otherwise."""


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Value):
    """Evidence that weights are optimal, or how far from it they are.

    Attributes
    ----------
    measure : str
        What `residual` is: ``duality gap`` (an upper bound of what the objective can still fall), ``KKT residual`` (the
        largest violation of the optimality conditions) or ``stationarity gap`` (of a problem that is not convex: how
        far the objective's linear model can still fall); with ``on a sample`` where weights were learned, or base
        kernels searched, on some of the rows.
    residual : float
        Zero at the optimum. Relative, so dimensionless: to the objective, or to the problem's own size.
    tolerance : float
        What the residual had to fall below.
    iterations : int
        Number of solutions of the inner problem, or of passes.
    objectives : tuple of float
        Value of what is minimised after each iteration, in the units of its own problem.
    """

    measure: str
    residual: float
    tolerance: float
    iterations: int = 0
    objectives: tuple[float, ...] = ()

    @property
    def converged(self) -> bool:
        """Whether the residual fell below the tolerance."""
        return self.residual <= self.tolerance

    def warn_unless_converged(self, learner: str, advice: str) -> Certificate:
        """Return the certificate; with a `ConvergenceWarning` that says the residual reached if that is too large."""
        if not self.converged:
            from sklearn.exceptions import ConvergenceWarning  # here, because it brings pandas along

            warnings.warn(
                f"{learner} stopped after {self.iterations} iterations at a relative {self.measure} of "
                f"{self.residual:.1e}, above the tolerance of {self.tolerance:.0e}; {advice}.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self
