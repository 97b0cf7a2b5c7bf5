"""Certificate of optimality of a learner's weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base import Value, warn_caller
from ..engine.operators import GramOperator, gram_fits_in_memory

TOLERANCE = 1e-6
"""Default tolerance of iterative learners."""

CHECKED_ROWS = 1000


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Value):
    """Evidence of how close weights are to the optimum.

    Attributes
    ----------
    measure : str
        Kind of `residual`: ``duality gap`` (bound on the possible decrease of the
        objective), ``KKT residual`` (largest violation of the optimality conditions) or
        ``stationarity gap`` (decrease of the linearized objective), possibly ``on a
        sample``.
    residual : float
        Relative residual, zero at the optimum.
    tolerance : float
        Residual at which the learner stops.
    iterations : int
        Number of inner solutions or passes.
    objectives : tuple of float
        Objective after each iteration.
    """

    measure: str
    residual: float
    tolerance: float
    iterations: int = 0
    objectives: tuple[float, ...] = ()

    @property
    def converged(self) -> bool:
        """Whether the residual is within the tolerance."""
        return self.residual <= self.tolerance

    def warn_unless_converged(
        self, learner: str, advice: str, grams: GramOperator | None = None
    ) -> Certificate:
        """Return the certificate; warn unless it converged."""
        if self.converged:
            return self
        from sklearn.exceptions import ConvergenceWarning  # imports pandas

        if grams is not None:
            advice = indefinite_kernels(grams) or advice
        warn_caller(
            f"{learner} stopped after {self.iterations} iterations at a relative {self.measure} of "
            f"{self.residual:.1e}, above the tolerance of {self.tolerance:.0e}; {advice}.",
            ConvergenceWarning,
        )
        return self


def indefinite_kernels(grams: GramOperator) -> str:
    """Return a phrase that names indefinite base kernels; empty if none."""
    if not gram_fits_in_memory(grams.n_rows):
        return ""
    indefinite = []
    for k, unit_weights in enumerate(np.eye(grams.n_kernels)):
        eigenvalues = np.linalg.eigvalsh(
            grams.combine(unit_weights)[:CHECKED_ROWS, :CHECKED_ROWS]
        )
        if eigenvalues[0] < -1e-8 * np.abs(eigenvalues).max():
            indefinite.append(k)
    if not indefinite:
        return ""
    others = ""
    if len(indefinite) > 1:
        others = f", nor are {len(indefinite) - 1} others"
    return f"base kernel {indefinite[0] + 1} of {grams.n_kernels} is not positive semi-definite{others}; leave it out"
