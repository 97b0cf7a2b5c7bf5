"""ca: continuous alignment, base kernels found one by one and weighted by how much each adds to the alignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..centering import center_in_place
from ..families.base import KernelFamily, Rows, drawn_rows
from ..parameters import positive
from ..search.pairs import (
    FeaturePairs,
    Kind,
    RadialPairs,
    radial_kernels,
    require_kind,
    scaled_gaussians,
)
from ..statistics.gram import AlignmentStatistics, gram_statistics
from ..targets import Target
from .base import FoundKernels, KernelSearchLearner

NEGLIGIBLE = 1e-6
"""Share of the largest weight up to which a kernel that was added is not reported as found."""

SEARCH_ROWS = 2000
"""Rows that parameters are searched on where there are more; weights and alignments always use all."""

SETTLED = 1e-3
"""A step of log sigma this short is the last: Newton's leaves its square, times the curvature's error on bins."""


@dataclass(frozen=True, eq=False, repr=False)
class CA(KernelSearchLearner):
    r"""Base kernels found one by one, each the one that raises the alignment with the target most.

    From :math:`K_0 = \varepsilon I`, each step adds the base kernel along which the centered alignment F grows fastest,

    .. math:: \sigma_t = \arg\max_\sigma \langle K_\sigma, F'(K_{t-1,c}) \rangle_F - \lambda \lVert \sigma - \bar\sigma
              \rVert^2, \qquad F'(K) = \frac{K^*_c - \lVert K \rVert^{-2} \langle K, K^*_c \rangle K}
              {\lVert K \rVert \lVert K^*_c \rVert}

    with the weight in :math:`[0, \eta_{max}]` that aligns best, in closed form.

    Parameters
    ----------
    kind : {"gaussian", "laplacian", "dirichlet"}, default "gaussian"
        Of the base kernels.
    per_feature : bool, default False
        One bandwidth per feature (CA-nD) in place of one for all (CA-1D), of Gaussians. The search then starts from the
        weighted mean of what CA-1D finds.
    shrinkage : float, default 0
        lambda of the formula, with the mean of the sigma of all features as target; for `per_feature` alone. Worth
        tuning over many decades.
    max_kernels : int, default 50
        T, the most base kernels.
    threshold : float, default 1e-3
        theta: the search ends with the first step that adds no more than this to the alignment.
    largest_step : float, default 1
        eta_max.
    eps : float, default 1e-10
        epsilon.
    search_rows : int, default 2000
        Most rows that sigma is searched on; a random subset beyond. The weights use all rows.
    seed : int, default 0
        Of that subset.

    Notes
    -----
    The gradient F' is centered because K and K^* are, by corrections of rank one. For one sigma the candidates of a
    search are compared on bins of distances, in one pass over the pairs; a local optimizer with the exact derivative
    then polishes the best. O(m^2) time for each of its evaluations and O(m^2) memory on the search rows; on more rows
    than those one pass over tiles an addition.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning: Algorithm 1, Propositions 1 and 2, equation (4), B.2.
    """

    name = "ca"
    summary = "kernels of a continuous family, added greedily by the gain in alignment"
    source = "AFK 2013, Algorithm 1"

    kind: Kind = "gaussian"
    per_feature: bool = False
    shrinkage: float = 0.0
    max_kernels: int = 50
    threshold: float = 1e-3
    largest_step: float = 1.0
    eps: float = 1e-10
    search_rows: int = SEARCH_ROWS
    seed: int = 0

    def find(self, X: Rows, target: Target, C: float = 1.0) -> FoundKernels:
        """Return base kernels and weights; see `KernelSearchLearner.find`."""
        Y = target.Y - target.Y.mean(axis=0)
        m = X.shape[0]
        rows = drawn_rows(m, self.search_rows, self.seed)
        pairs: FeaturePairs | RadialPairs
        steepest: Callable[[np.ndarray], np.ndarray | float]
        finite: Callable[[np.ndarray], KernelFamily]
        if self.per_feature:
            pairs = FeaturePairs(X[rows])
            one = replace(self, per_feature=False, shrinkage=0.0).find(X, target)
            start = np.full(X.shape[1], np.log(one.weights @ one.parameters[:, 0] / one.weights.sum()))
            steepest, finite = partial(pairs.steepest, start=start, shrinkage=self.shrinkage), scaled_gaussians
        else:
            pairs = RadialPairs(self.kind, X[rows])
            steepest, finite = partial(pairs.steepest, settled=SETTLED), partial(radial_kernels, self.kind)
        ascent = Ascent(pairs, Y[rows] - Y[rows].mean(axis=0), self.eps)
        U, weights, alignments, reached = list[np.ndarray](), np.empty(0), list[float](), ascent.alignment
        while len(weights) < self.max_kernels:
            u = np.atleast_1d(steepest(ascent.gradient()))
            candidates, new_weights = np.array([*U, u]), np.append(weights, ascent.add(u, self.largest_step))
            alignment = ascent.alignment
            if len(rows) < m:
                new_weights, alignment = self._weigh(gram_statistics(finite(candidates), X, Y), Y, weights)
            if not new_weights[-1] > 0:
                break
            U, weights = [*U, u], new_weights
            alignments.append(alignment)
            if alignment <= reached + self.threshold and len(weights) > 1:
                break  # the last addition, which adds little, stays
            reached = alignment
        if not U:
            raise ValueError(
                "no base kernel of the family aligns with the target; try another family or other features."
            )
        carried = weights > NEGLIGIBLE * weights.max()
        parameters = np.array(U)[carried]
        return FoundKernels(finite(parameters), weights[carried], np.exp(parameters), tuple(alignments))

    def _weigh(self, statistics: AlignmentStatistics, Y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
        """Return weights and alignment after the addition of the last kernel, on all rows.

        M and a begin with K_0, whose products with centered kernels are eps times their traces.
        """
        n = 1 + statistics.n_kernels
        M, a = np.empty((n, n)), np.append(self.eps * np.vdot(Y, Y), statistics.target_products())
        M[0, 0], M[0, 1:], M[1:, 1:] = self.eps**2 * (len(Y) - 1), self.eps * statistics.traces(), statistics.products()
        M[1:, 0] = M[0, 1:]
        mu = np.concatenate([[1.0], weights, [0.0]])
        before = M @ mu
        products = float(mu @ a), float(a[-1]), float(mu @ before), float(before[-1]), float(M[-1, -1])
        mu[-1] = best_step(*products, self.largest_step)
        return mu[1:], float(mu @ a / (np.sqrt(mu @ M @ mu) * statistics.target_norm()))

    def takes_sparse(self, family: KernelFamily | None) -> bool:
        """Return whether sparse rows will do."""
        return self.kind == "gaussian" and not self.per_feature

    def require(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        require_kind(self.kind)
        if self.per_feature and self.kind != "gaussian":
            raise ValueError(f"per_feature is for kind gaussian alone, got {self.kind}; leave one of them out.")
        for name, low in (("shrinkage", 0.0), ("threshold", 0.0), ("max_kernels", 1), ("search_rows", 10)):
            if not low <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be at least {low:g} and finite, got {getattr(self, name)}.")
        for name in ("largest_step", "eps"):
            positive(name, getattr(self, name))


class Ascent:
    """The sum of epsilon I and base kernels added to it, on the rows that are searched; all centered.

    Parameters
    ----------
    pairs : RadialPairs or FeaturePairs
    Y : ndarray of shape (m, q)
        Centered targets.
    eps : float
    """

    def __init__(self, pairs: RadialPairs | FeaturePairs, Y: np.ndarray, eps: float) -> None:
        self.pairs, self.Y, m = pairs, Y, len(Y)
        self.target_norm = float(np.linalg.norm(Y.T @ Y))
        self.K = np.full((m, m), -eps / m)
        self.K.flat[:: m + 1] += eps
        self.a, self.c = eps * float(np.vdot(Y, Y)), eps**2 * (m - 1)

    @property
    def alignment(self) -> float:
        """Centered alignment with the target kernel."""
        return float(self.a / (np.sqrt(self.c) * self.target_norm))

    def gradient(self) -> np.ndarray:
        """Return F', shape (m, m); centered, as both its terms are."""
        P = self.Y @ self.Y.T
        P -= (self.a / self.c) * self.K
        P /= np.sqrt(self.c) * self.target_norm
        return P

    def add(self, u: np.ndarray, largest: float) -> float:
        """Add the base kernel at u with its best weight, which is returned; O(m^2)."""
        K_new = center_in_place(self.pairs.matrix(u))
        b, d = float(np.vdot(self.Y, K_new @ self.Y)), float(np.vdot(K_new, self.K))
        e = float(np.vdot(K_new, K_new))
        eta = best_step(self.a, b, self.c, d, e, largest)
        K_new *= eta
        self.K += K_new
        self.a, self.c = self.a + eta * b, self.c + 2 * eta * d + eta**2 * e
        return eta


def best_step(a: float, b: float, c: float, d: float, e: float, largest: float) -> float:
    r"""Return the step in [0, `largest`] that aligns best.

    .. math:: \max_\eta \; (a + b\eta) / \sqrt{c + 2d\eta + e\eta^2}

    Parameters
    ----------
    a, b : float
        Products of the kernel and of the one added with the target kernel.
    c, d, e : float
        Products of the kernel with itself, of both, and of the one added with itself.
    largest : float
        eta_max.

    Notes
    -----
    The only stationary point is ``(ad - bc) / (bd - ae)``; comparing it with the ends tells whether it is a maximum.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning, Proposition 2.
    """

    def alignment(eta: float) -> float:
        return (a + b * eta) / np.sqrt(c + 2 * d * eta + e * eta**2)

    stationary = (a * d - b * c) / (b * d - a * e) if b * d != a * e else 0.0
    return max((0.0, min(max(stationary, 0.0), largest), largest), key=alignment)
