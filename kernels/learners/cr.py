"""cr: continuous risk, the convex combination of a continuous family's kernels that ridge regression fits best with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve
from scipy.optimize import brentq

from ..centering import center_gram
from ..engine.operators import GramOperator, StackedGrams, gram_operator, has_room
from ..families.base import KernelFamily, Rows, drawn_rows, move
from ..parameters import positive, whole_number
from ..search.pairs import Kind, RadialPairs, radial_kernels, require_kind
from ..solvers.certificate import Certificate
from ..solvers.factor import ridge_factor
from ..solvers.ridge import ridge_problem
from ..targets import Target
from .base import FoundKernels, KernelSearchLearner
from .norm_ball import L1KRR

SETTLED = 1e-7
"""Change of log sigma at which that search ends."""

SEARCH_ROWS = 2000
"""Rows that bandwidths are searched on where a matrix of all pairs does not fit; weights and the gap always use all."""

SAME = 1e-6
"""Difference of log sigma below which two kernels are one."""


@dataclass(frozen=True, eq=False, repr=False)
class CR(KernelSearchLearner):
    r"""The convex combination of a continuous family's kernels that kernel ridge regression fits best with.

    .. math:: \min_{K \in \operatorname{conv} \{ K_\sigma \}} \; \operatorname{tr} Y^\top (K + \lambda I)^{-1} Y

    Parameters
    ----------
    kind : {"gaussian", "laplacian", "dirichlet"}, default "gaussian"
        Of the base kernels; one bandwidth for all features.
    corrective : bool, default True
        Update the weights of all kernels found so far after each addition, by l1-krr; a few additions are then enough.
        False is the papers' step towards the new kernel alone, whose gap falls like one over the number of additions.
    tolerance : float, default 1e-4
        What the objective may still fall by, relative to it, when the search ends.
    max_iterations : int, default 200
        Most additions.

    Notes
    -----
    With :math:`\alpha = (K + \lambda I)^{-1} Y` the objective falls fastest towards the kernel of the largest
    :math:`\alpha^\top K_\sigma \alpha`; how much that exceeds :math:`\alpha^\top K \alpha` bounds what is left. The
    step towards it minimizes the objective on the segment. O(m^3) a Cholesky factor, some eight an addition. Memory for
    one m by m matrix a kernel found, up to 1 GiB, where all are weighted again, and for some eight others.

    On more rows than a matrix of their pairs fits into 1 GiB, about 11,600, bandwidths are searched on 2,000 rows drawn
    at random, and kernels weighted on all of them by conjugate gradients over tiles, in memory that grows with the
    rows. What a new kernel would gain is computed on all rows, too; the certificate says that it was searched on a
    sample.

    References
    ----------
    Argyriou, Micchelli, Pontil (2005), COLT; CR of Afkanpour, Szepesvari, Bowling (2013), Machine Learning.
    """

    name = "cr"
    summary = "kernels of a continuous family, added greedily by the ridge regression risk"
    source = "Argyriou et al. 2005, 2006; CR of AFK 2013"
    predictor = "krr"

    kind: Kind = "gaussian"
    corrective: bool = True
    tolerance: float = 1e-4
    max_iterations: int = 200

    def takes_sparse(self, family: KernelFamily | None) -> bool:
        """Return whether sparse rows will do."""
        return self.kind == "gaussian"

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        require_kind(self.kind)
        positive("tolerance", self.tolerance)
        whole_number("max_iterations", self.max_iterations, 1)

    def find(self, X: Rows, target: Target, C: float = 1.0) -> FoundKernels:
        """Return base kernels and weights; see `KernelSearchLearner.find`."""
        C = positive("C", C)
        Y = target.Y - target.Y.mean(axis=0)
        m = X.shape[0]
        if not (self.corrective or has_room(m)):
            raise ValueError(
                f"cr without corrective forms matrices of all pairs of rows, and {m:,} rows are too many for them; "
                "leave corrective out."
            )
        X, rows = X if sparse.issparse(X) else move(X, X.mean(axis=0)), drawn_rows(m, SEARCH_ROWS, 0)
        rows = np.arange(m) if has_room(m) else rows
        pairs, inner_tolerance = RadialPairs(self.kind, X[rows]), max(self.tolerance / 10, 1e-8)

        def kernels(U: np.ndarray) -> GramOperator:
            zeros = np.zeros(len(U))
            return gram_operator(radial_kernels(self.kind, U[:, None]), X, shift=zeros, scales=zeros + 1.0)

        U, weights = np.array([pairs.steepest(center_gram(Y[rows] @ Y[rows].T), SETTLED)]), np.ones(1)
        # What is learned so far: base kernels and weights, or their sum alone.
        grams, mu = kernels(U), weights
        objectives: list[float] = []
        while True:
            inner = ridge_problem(grams, target, C, inner_tolerance).at(mu)
            objectives.append(inner.objective)
            alpha, form = inner.dual, float(mu @ inner.forms)
            del inner  # what it may still be asked holds a matrix
            u = pairs.steepest(center_gram(alpha[rows] @ alpha[rows].T), SETTLED)
            new = kernels(np.array([u]))
            gap = max(float(new.quadratic_forms(alpha)[0]) - form, 0.0) / objectives[-1]
            known = np.flatnonzero(np.abs(U - u) < SAME)
            if gap <= self.tolerance or len(objectives) >= self.max_iterations or (self.corrective and len(known)):
                break
            if not len(known):
                U, weights = np.append(U, u), np.append(weights, 0.0)
            if self.corrective:
                start = 0.9 * weights
                start[-1] = 0.1
                del grams, new
                grams = kernels(U)
                mu = weights = L1KRR(tolerance=inner_tolerance).solve(grams, target, C, start).weights
            else:
                K, K_new = grams.combine(mu), new.combine(np.ones(1))
                step = _step(K, K_new, 1.0 / C, Y)
                weights *= 1 - step
                weights[known[0] if len(known) else -1] += step
                K_new -= K
                K_new *= step
                K += K_new
                grams, mu = StackedGrams(K[None]), np.ones(1)
        measure = "duality gap" if has_room(m) else "duality gap on a sample"
        certificate = Certificate(measure, gap, self.tolerance, len(objectives), tuple(objectives))
        carried = weights > 1e-9
        parameters = U[carried, None]
        return FoundKernels(
            radial_kernels(self.kind, parameters),
            weights[carried] / weights[carried].sum(),
            np.exp(parameters),
            (),
            certificate.warn_unless_converged("cr", "raise max_iterations, or use a smaller C"),
        )


def _step(K: np.ndarray, new: np.ndarray, ridge: float, Y: np.ndarray) -> float:
    """Return the share of the new kernel that minimizes the objective on the segment, in [0, 1]."""
    of = (K, new - K, ridge, Y)
    # SciPy keeps the function, and matrices that it closed over, until the next collection of garbage.
    return 1.0 if _slope(1.0, *of) <= 0 else float(brentq(_slope, 0.0, 1.0, args=of, xtol=1e-4))


def _slope(step: float, K: np.ndarray, change: np.ndarray, ridge: float, Y: np.ndarray) -> float:
    alpha = cho_solve(ridge_factor(K + step * change, ridge), Y)
    return -float(np.vdot(alpha, change @ alpha))
