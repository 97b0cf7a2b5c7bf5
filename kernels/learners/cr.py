"""cr: greedy search for base kernels that decrease the ridge regression risk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve
from scipy.optimize import brentq

from ..centering import center_gram
from ..engine.operators import (
    GramOperator,
    StackedGrams,
    gram_fits_in_memory,
    gram_operator,
)
from ..families.base import KernelFamily, Rows, drawn_rows, move
from ..solvers.certificate import Certificate
from ..solvers.factor import ridge_factor
from ..solvers.ridge import ridge_problem
from ..targets import Target
from ..validation import positive, whole_number
from .base import FoundKernels, KernelSearchLearner
from .continuous import Kind, RadialPairs, radial_kernels, require_kind
from .norm_ball import L1KRR

SETTLED = 1e-7
"""Length of a step of log sigma at which its search ends."""

SEARCH_ROWS = 2000
"""Number of rows for the search of bandwidths if a Gram matrix does not fit."""


@dataclass(frozen=True, eq=False, repr=False)
class CR(KernelSearchLearner):
    r"""Greedily add base kernels that reduce the risk of kernel ridge regression.

    .. math:: \min_{K \in \operatorname{conv} \{ K_\sigma \}} \; \operatorname{tr} Y^\top (K + \lambda I)^{-1} Y

    Parameters
    ----------
    kind : {"gaussian", "laplacian", "dirichlet"}, default "gaussian"
        Kind of the base kernels, with one bandwidth for all features.
    corrective : bool, default True
        Whether l1-krr updates all weights after each addition; the search then needs
        few. False takes the step of the papers towards the new kernel.
    tol : float, default 1e-4
        Relative duality gap at convergence.
    max_iter : int, default 200
        Largest number of additions.

    Notes
    -----
    With :math:`\alpha = (K + \lambda I)^{-1} Y`, each addition is the kernel with the
    largest :math:`\alpha^\top K_\sigma \alpha`, in about eight Cholesky factors, O(m^3)
    each. With more than about 11,600 rows, bandwidths are searched on 2,000 random
    rows.

    References
    ----------
    Argyriou, Micchelli, Pontil (2005), COLT; CR of Afkanpour, Szepesvari, Bowling
    (2013), Machine Learning.
    """

    name = "cr"
    summary = (
        "kernels of a continuous family, added greedily by the ridge regression risk"
    )
    source = "Argyriou et al. 2005; CR of AFK 2013"
    predictor = "krr"

    kind: Kind = "gaussian"
    corrective: bool = True
    tol: float = 1e-4
    max_iter: int = 200

    def takes_sparse(self, family: KernelFamily | None) -> bool:
        return self.kind == "gaussian"

    def require(self) -> None:
        require_kind(self.kind)
        positive("tol", self.tol)
        whole_number("max_iter", self.max_iter, 1)

    def find(self, X: Rows, target: Target, C: float = 1.0) -> FoundKernels:
        C = positive("C", C)
        Y = target.Y - target.Y.mean(axis=0)
        m = X.shape[0]
        if not (self.corrective or gram_fits_in_memory(m)):
            raise ValueError(
                f"cr without corrective forms matrices of all pairs of rows, and {m:,} rows are too many for them; "
                "leave corrective out."
            )
        if not sparse.issparse(X):
            X = move(X, X.mean(axis=0))
        search_rows = (
            np.arange(m) if gram_fits_in_memory(m) else drawn_rows(m, SEARCH_ROWS, 0)
        )
        pairs = RadialPairs(self.kind, X[search_rows])
        inner_tolerance = max(self.tol / 10, 1e-8)
        log_sigmas = np.array([_find_log_sigma(pairs, Y, search_rows)])
        weights = np.ones(1)
        # A step of the papers replaces the base kernels by their sum; `mu` is then [1].
        grams = self._grams(log_sigmas, X)
        mu = weights
        objectives: list[float] = []
        while True:
            inner = ridge_problem(grams, target, C, inner_tolerance).at(mu)
            objectives.append(inner.objective)
            alpha = inner.dual
            current_form = float(mu @ inner.forms)
            del inner  # frees a matrix
            log_sigma = _find_log_sigma(pairs, alpha, search_rows)
            new_grams = self._grams(np.array([log_sigma]), X)
            new_form = float(new_grams.quadratic_forms(alpha)[0])
            gap = max(new_form - current_form, 0.0) / objectives[-1]
            same_kernel = np.flatnonzero(np.abs(log_sigmas - log_sigma) < 1e-6)
            if gap <= self.tol or len(objectives) >= self.max_iter:
                break
            if self.corrective and len(same_kernel):
                break
            if not len(same_kernel):
                log_sigmas = np.append(log_sigmas, log_sigma)
                weights = np.append(weights, 0.0)
            if self.corrective:
                start = 0.9 * weights
                start[-1] = 0.1
                del grams, new_grams  # frees their matrices
                grams = self._grams(log_sigmas, X)
                mu = weights = (
                    L1KRR(tol=inner_tolerance).solve(grams, target, C, start).weights
                )
            else:
                K = grams.combine(mu)
                change = new_grams.combine(np.ones(1))
                step = _best_step(K, change, 1.0 / C, Y)
                weights *= 1 - step
                weights[same_kernel[0] if len(same_kernel) else -1] += step
                change -= K
                change *= step
                K += change
                grams = StackedGrams(K[None])
                mu = np.ones(1)
        measure = "duality gap" if gram_fits_in_memory(m) else "duality gap on a sample"
        certificate = Certificate(
            measure, gap, self.tol, len(objectives), tuple(objectives)
        )
        has_weight = weights > 1e-9
        parameters = log_sigmas[has_weight, None]
        return FoundKernels(
            radial_kernels(self.kind, parameters),
            weights[has_weight] / weights[has_weight].sum(),
            np.exp(parameters),
            (),
            certificate.warn_unless_converged(
                "cr", "raise max_iter, or use a smaller C"
            ),
        )

    def _grams(self, log_sigmas: np.ndarray, X: Rows) -> GramOperator:
        """Return base kernels, neither shifted nor scaled."""
        zeros = np.zeros(len(log_sigmas))
        family = radial_kernels(self.kind, log_sigmas[:, None])
        return gram_operator(family, X, shift=zeros, scales=zeros + 1.0)


def _find_log_sigma(
    pairs: RadialPairs, V: np.ndarray, search_rows: np.ndarray
) -> float:
    """Return the log sigma of the largest product with ``V V^T``."""
    return pairs.steepest(center_gram(V[search_rows] @ V[search_rows].T), SETTLED)


def _best_step(K: np.ndarray, new: np.ndarray, ridge: float, Y: np.ndarray) -> float:
    """Return the optimal share of the new kernel, in [0, 1]."""
    # No closure: SciPy would keep its matrices until the next garbage collection.
    args = (K, new - K, ridge, Y)
    if _slope(1.0, *args) <= 0:
        return 1.0
    return float(brentq(_slope, 0.0, 1.0, args=args, xtol=1e-4))


def _slope(
    step: float, K: np.ndarray, change: np.ndarray, ridge: float, Y: np.ndarray
) -> float:
    """Return the derivative of the objective by the step."""
    alpha = cho_solve(ridge_factor(K + step * change, ridge), Y)
    return -float(np.vdot(alpha, change @ alpha))
