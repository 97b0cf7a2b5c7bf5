"""Evidence that weights are optimal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..engine.operators import GramOperator, has_room
from ..parameters import Value, warn_caller

TOLERANCE = 1e-6
"""Relative residual that iterative learners reach by default."""

LOOKED_AT, NEGATIVE = 1000, 1e-8
"""Rows on which eigenvalues of base kernels are looked at, and the share of the largest that is not rounding."""


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
        Value of what is minimized after each iteration, in the units of its own problem.
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

    def warn_unless_converged(self, learner: str, advice: str, grams: GramOperator | None = None) -> Certificate:
        """Return the certificate; with a `ConvergenceWarning` that says the residual reached if that is too large.

        Of base kernels that are not positive semi-definite, on which problems are not convex, it says which.
        """
        if not self.converged:
            from sklearn.exceptions import ConvergenceWarning  # here, because it brings pandas along

            advice = (indefinite_kernels(grams) if grams is not None else "") or advice
            warn_caller(
                f"{learner} stopped after {self.iterations} iterations at a relative {self.measure} of "
                f"{self.residual:.1e}, above the tolerance of {self.tolerance:.0e}; {advice}.",
                ConvergenceWarning,
            )
        return self


def indefinite_kernels(grams: GramOperator) -> str:
    """Return which base kernels have a negative eigenvalue on the first 1,000 rows, as a sentence, or nothing.

    O(p n^3) for n such rows, and a matrix of all pairs a kernel; of more rows than that fits for, none are looked at.
    """
    found = []
    for k, indicator in enumerate(np.eye(grams.n_kernels) if has_room(grams.n_rows) else ()):
        values = np.linalg.eigvalsh(grams.combine(indicator)[:LOOKED_AT, :LOOKED_AT])
        if values[0] < -NEGATIVE * np.abs(values).max():
            found.append(k)
    if not found:
        return ""
    others = f", nor are {len(found) - 1} others" if len(found) > 1 else ""
    return f"base kernel {found[0] + 1} of {grams.n_kernels} is not positive semi-definite{others}; leave it out"
