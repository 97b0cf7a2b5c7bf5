"""ca: continuous alignment, base kernels found one by one and weighed by how much each adds to the alignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from learnkernels.kernels.families.base import KernelFamily, Rows, drawn_rows
from learnkernels.kernels.learners.alignf import Alignf
from learnkernels.kernels.learners.base import FoundKernels, SearchingLearner
from learnkernels.kernels.search.ascent import Ascent, DenseAscent, RadialAscent, best_step
from learnkernels.kernels.search.pairs import (
    FeaturePairs,
    Kind,
    RadialPairs,
    radial_kernels,
    require_kind,
    scaled_gaussians,
)
from learnkernels.kernels.statistics.gram import gram_moments
from learnkernels.kernels.targets import Target

Finite = Callable[[np.ndarray], KernelFamily]
"""What makes base kernels of the logarithms of their parameters."""

NEGLIGIBLE = 1e-6
"""Share of the largest weight up to which a kernel that was added is not reported as found."""

SEARCH_ROWS = 2000
"""Rows that parameters are searched on where there are more; weights and alignments always use all."""


@dataclass(frozen=True, eq=False, repr=False)
class CA(SearchingLearner):
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
        One bandwidth a feature (CA-nD) in place of one for all (CA-1D), of Gaussians. The search then starts from the
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
    corrective : bool, default False
        Weigh all kernels found so far anew after each addition, by alignf: a step beyond the paper.
    search_rows : int, default 2000
        Most rows that sigma is searched on; a random subset beyond. The weights use all rows.
    seed : int, default 0
        Of that subset.

    Notes
    -----
    The gradient F' is centered because K and K^* are, by corrections of rank one. For one sigma the candidates of a
    search are compared on bins of distances, in one pass over the pairs; a local optimiser with the exact derivative
    then polishes the best. O(m^2) time for each of its evaluations and O(m^2) memory on the search rows; on more rows
    than those one pass over tiles an addition.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning: Algorithm 1, Propositions 1 and 2, equation (4), B.2.
    """

    name = "ca"
    summary = "kernels of a continuous family, added one by one along the steepest ascent of the alignment"
    source = "AFK 2013, Algorithm 1"

    kind: Kind = "gaussian"
    per_feature: bool = False
    shrinkage: float = 0.0
    max_kernels: int = 50
    threshold: float = 1e-3
    largest_step: float = 1.0
    eps: float = 1e-10
    corrective: bool = False
    search_rows: int = SEARCH_ROWS
    seed: int = 0

    def find(self, X: Rows, target: Target, regularisation: float = 1.0) -> FoundKernels:
        """Return base kernels and weights; see `SearchingLearner.find`."""
        self.require()
        Y = target.Y - target.Y.mean(axis=0)
        if not np.abs(Y).max() > 0:
            raise ValueError("the target is constant on the training rows, so no kernel can align with it.")
        m = X.shape[0]
        rows = drawn_rows(m, self.search_rows, self.seed)
        searched = Y[rows] - Y[rows].mean(axis=0)
        ascent: Ascent
        finite: Finite
        if self.per_feature:
            pairs, finite = FeaturePairs(X[rows]), scaled_gaussians
            one = replace(self, per_feature=False, shrinkage=0.0, corrective=False).find(X, target)
            start = np.full(X.shape[1], np.log(one.weights @ one.parameters[:, 0] / one.weights.sum()))
            ascent = DenseAscent(pairs, start, searched, self.eps, self.shrinkage)
        else:
            ascent, finite = RadialAscent(RadialPairs(self.kind, X[rows]), searched, self.eps), self._radial
        every_row = _Rows(finite, X, Y) if len(rows) < m or self.corrective else None
        return self._ascend(finite, ascent, every_row)

    def _radial(self, U: np.ndarray) -> KernelFamily:
        return radial_kernels(self.kind, U)

    def _ascend(self, finite: Finite, ascent: Ascent, every_row: _Rows | None) -> FoundKernels:
        """Add base kernels until the alignment grows no further; the last addition, which adds little, stays."""
        U: np.ndarray | None = None
        weights, alignments, reached = np.empty(0), list[float](), ascent.alignment
        while len(weights) < self.max_kernels:
            u = ascent.steepest()
            candidates = u[None] if U is None else np.vstack([U, u])
            eta = ascent.add(u, self.largest_step)
            new_weights, alignment = np.append(weights, eta), ascent.alignment
            if every_row is not None:
                new_weights, alignment = self._weigh(*every_row.products(candidates, self.eps), weights)
                if self.corrective:
                    ascent.reset(candidates, new_weights)
            if not new_weights[-1] > 0:
                break
            U, weights = candidates, new_weights
            alignments.append(alignment)
            if alignment <= reached + self.threshold and len(weights) > 1:
                break
            reached = alignment
        if U is None:
            raise ValueError(
                "no base kernel of the family aligns with the target; try another family or other features."
            )
        carried = weights > NEGLIGIBLE * weights.max()
        return FoundKernels(finite(U[carried]), weights[carried], np.exp(U[carried]), tuple(alignments))

    def _weigh(self, M: np.ndarray, a: np.ndarray, target_norm: float, weights: np.ndarray) -> tuple[np.ndarray, float]:
        """Return weights and alignment after an addition, of the last kernel alone or of all, on all rows.

        M and a begin with the identity kernel K_0, which the corrective weights leave out.
        """
        if self.corrective:
            mu = np.append(0.0, Alignf().weigh(M[1:, 1:], a[1:]).weights)
        else:
            mu = np.concatenate([[1.0], weights, [0.0]])
            before = M @ mu
            products = float(mu @ a), float(a[-1]), float(mu @ before), float(before[-1]), float(M[-1, -1])
            mu[-1] = best_step(*products, self.largest_step)
        return mu[1:], float(mu @ a / (np.sqrt(mu @ M @ mu) * target_norm))

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
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}.")


@dataclass
class _Rows:
    """Exact statistics of the kernels found, on all training rows."""

    finite: Finite
    X: Rows
    Y: np.ndarray

    def products(self, U: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Return M, a and the norm of the target kernel, by one pass over tiles.

        M and a are those of K_0 = eps I, whose products with centered kernels are eps times their traces, and of the
        base kernels at each u.
        """
        moments, n = gram_moments(self.finite(U), self.X, self.Y), 1 + len(U)
        M, a = np.empty((n, n)), np.empty(n)
        M[0, 0], M[0, 1:], M[1:, 1:] = eps**2 * (len(self.Y) - 1), eps * moments.traces(), moments.products()
        M[1:, 0] = M[0, 1:]
        a[0], a[1:] = eps * np.vdot(self.Y, self.Y), moments.target_products()
        return M, a, moments.target_norm()
