"""ca: greedy search for base kernels that increase the alignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..centering import center_in_place
from ..families.base import KernelFamily, Rows, drawn_rows
from ..statistics.gram import AlignmentStatistics, gram_statistics
from ..targets import Target
from ..validation import positive
from .base import FoundKernels, KernelSearchLearner
from .continuous import (
    FeaturePairs,
    Kind,
    RadialPairs,
    radial_kernels,
    require_kind,
    scaled_gaussians,
)

NEGLIGIBLE = 1e-6
"""Kernels with a smaller share of the largest weight are dropped."""

SEARCH_ROWS = 2000

SETTLED = 1e-3
"""Length of a step of log sigma at which Newton's method ends."""


@dataclass(frozen=True, eq=False, repr=False)
class CA(KernelSearchLearner):
    r"""Greedily add base kernels of a continuous family to maximize the alignment.

    From :math:`K_0 = \varepsilon I`, each step adds the base kernel along which the
    centered alignment F grows fastest,

    .. math:: \sigma_t = \arg\max_\sigma \langle K_\sigma, F'(K_{t-1,c}) \rangle_F - \lambda \lVert \sigma - \bar\sigma
              \rVert^2, \qquad F'(K) = \frac{K^*_c - \lVert K \rVert^{-2} \langle K, K^*_c \rangle K}
              {\lVert K \rVert \lVert K^*_c \rVert}

    with the best weight in :math:`[0, \eta_{max}]`, in closed form.

    Parameters
    ----------
    kind : {"gaussian", "laplacian", "dirichlet"}, default "gaussian"
        Kind of the base kernels.
    per_feature : bool, default False
        Whether each feature has its own bandwidth (CA-nD); only for Gaussians.
    shrinkage : float, default 0
        Factor lambda, which shrinks sigma towards its mean over the features. Only used
        with `per_feature`.
    max_kernels : int, default 50
        Largest number of base kernels.
    threshold : float, default 1e-3
        Gain in alignment at or below which the search ends.
    largest_step : float, default 1
        Largest weight (eta_max).
    eps : float, default 1e-10
        Factor epsilon of the initial kernel.
    search_rows : int, default 2000
        Number of random rows for the search of sigma; the weights use all rows.
    random_state : int, default 0
        Random seed of these rows.

    Notes
    -----
    Each evaluation takes O(m^2) time and memory on the search rows. With more rows,
    each addition takes one pass over tiles.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning: Algorithm 1, Propositions 1
    and 2, equation (4), B.2.
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
    random_state: int = 0

    def find(self, X: Rows, target: Target, C: float = 1.0) -> FoundKernels:
        m = X.shape[0]
        rows = drawn_rows(m, self.search_rows, self.random_state)
        pairs = self._pairs(X[rows])
        find_log_sigma = self._make_search(pairs, X, target)
        Y = target.Y - target.Y.mean(axis=0)
        ascent = Ascent(pairs, Y[rows] - Y[rows].mean(axis=0), self.eps)
        log_sigmas: list[np.ndarray] = []
        weights = np.empty(0)
        alignments: list[float] = []
        # Alignment of the identity
        previous_alignment = float(
            np.vdot(Y, Y) / (np.sqrt(m - 1) * np.linalg.norm(Y.T @ Y))
        )
        while len(weights) < self.max_kernels:
            log_sigma = np.atleast_1d(find_log_sigma(ascent.gradient()))
            candidates = [*log_sigmas, log_sigma]
            new_weights = np.append(weights, ascent.add(log_sigma, self.largest_step))
            alignment = ascent.alignment
            if len(rows) < m:
                statistics = gram_statistics(
                    self._base_kernels(np.array(candidates)), X, Y
                )
                new_weights, alignment = self._weights_on_all_rows(
                    statistics, Y, weights
                )
            if not new_weights[-1] > 0:
                break
            log_sigmas = candidates
            weights = new_weights
            alignments.append(alignment)
            if alignment <= previous_alignment + self.threshold:
                break
            previous_alignment = alignment
        if not log_sigmas:
            raise ValueError(
                "no base kernel of the family aligns with the target; try another family or other features."
            )
        has_weight = weights > NEGLIGIBLE * weights.max()
        parameters = np.array(log_sigmas)[has_weight]
        return FoundKernels(
            self._base_kernels(parameters),
            weights[has_weight],
            np.exp(parameters),
            tuple(alignments),
        )

    def _pairs(self, X: Rows) -> FeaturePairs | RadialPairs:
        if self.per_feature:
            return FeaturePairs(X)
        return RadialPairs(self.kind, X)

    def _base_kernels(self, log_sigmas: np.ndarray) -> KernelFamily:
        if self.per_feature:
            return scaled_gaussians(log_sigmas)
        return radial_kernels(self.kind, log_sigmas)

    def _make_search(
        self, pairs: FeaturePairs | RadialPairs, X: Rows, target: Target
    ) -> Callable[[np.ndarray], np.ndarray | float]:
        """Return the search for log sigma, a function of the gradient."""
        if isinstance(pairs, RadialPairs):
            return partial(pairs.steepest, settled=SETTLED)
        isotropic = replace(self, per_feature=False, shrinkage=0.0).find(X, target)
        mean_sigma = (
            isotropic.weights @ isotropic.parameters[:, 0] / isotropic.weights.sum()
        )
        start = np.full(X.shape[1], np.log(mean_sigma))
        return partial(pairs.steepest, start=start, shrinkage=self.shrinkage)

    def _weights_on_all_rows(
        self, statistics: AlignmentStatistics, Y: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, float]:
        n = 1 + statistics.n_kernels
        # Products of epsilon I with centered kernels are eps times their traces.
        a = np.append(self.eps * np.vdot(Y, Y), statistics.target_products())
        M = np.empty((n, n))
        M[0, 0] = self.eps**2 * (len(Y) - 1)
        M[0, 1:] = self.eps * statistics.traces()
        M[1:, 0] = M[0, 1:]
        M[1:, 1:] = statistics.products()
        mu = np.concatenate([[1.0], weights, [0.0]])
        products = M @ mu
        mu[-1] = best_step(
            a=float(mu @ a),
            b=float(a[-1]),
            c=float(mu @ products),
            d=float(products[-1]),
            e=float(M[-1, -1]),
            largest=self.largest_step,
        )
        alignment = mu @ a / (np.sqrt(mu @ M @ mu) * statistics.target_norm())
        return mu[1:], float(alignment)

    def takes_sparse(self, family: KernelFamily | None) -> bool:
        return self.kind == "gaussian" and not self.per_feature

    def require(self) -> None:
        require_kind(self.kind)
        if self.per_feature and self.kind != "gaussian":
            raise ValueError(
                f"per_feature is for kind gaussian alone, got {self.kind}; leave one of them out."
            )
        lower_bounds = {
            "shrinkage": 0.0,
            "threshold": 0.0,
            "max_kernels": 1,
            "search_rows": 10,
        }
        for name, low in lower_bounds.items():
            value = getattr(self, name)
            if not low <= value < np.inf:
                raise ValueError(
                    f"{name} must be at least {low:g} and finite, got {value}."
                )
        positive("largest_step", self.largest_step)
        positive("eps", self.eps)


class Ascent:
    """Weighted, centered sum of the base kernels that `CA` has added."""

    def __init__(
        self, pairs: RadialPairs | FeaturePairs, Y: np.ndarray, eps: float
    ) -> None:
        m = len(Y)
        self.pairs = pairs
        self.Y = Y
        self.target_norm = float(np.linalg.norm(Y.T @ Y))
        self.K = np.full((m, m), -eps / m)
        self.K.flat[:: m + 1] += eps
        self.target_product = eps * float(np.vdot(Y, Y))
        self.squared_norm = eps**2 * (m - 1)

    @property
    def alignment(self) -> float:
        """Centered alignment of the sum of base kernels with the target kernel."""
        return float(
            self.target_product / (np.sqrt(self.squared_norm) * self.target_norm)
        )

    def gradient(self) -> np.ndarray:
        gradient = self.Y @ self.Y.T
        gradient -= (self.target_product / self.squared_norm) * self.K
        gradient /= np.sqrt(self.squared_norm) * self.target_norm
        return gradient

    def add(self, u: np.ndarray, largest: float) -> float:
        """Add the base kernel with bandwidths ``exp(u)``; return its best weight."""
        K_new = center_in_place(self.pairs.matrix(u))
        b = float(np.vdot(self.Y, K_new @ self.Y))
        d = float(np.vdot(K_new, self.K))
        e = float(np.vdot(K_new, K_new))
        eta = best_step(self.target_product, b, self.squared_norm, d, e, largest)
        K_new *= eta
        self.K += K_new
        self.target_product = self.target_product + eta * b
        self.squared_norm = self.squared_norm + 2 * eta * d + eta**2 * e
        return eta


def best_step(
    a: float, b: float, c: float, d: float, e: float, largest: float
) -> float:
    r"""Return the weight of a new kernel, in [0, `largest`], with highest alignment.

    .. math:: \max_\eta \; (a + b\eta) / \sqrt{c + 2d\eta + e\eta^2}

    a and b are products of the current and the new kernel with the target, c and e
    their squared norms, and d their product.
    """

    def alignment(eta: float) -> float:
        return (a + b * eta) / np.sqrt(c + 2 * d * eta + e * eta**2)

    stationary = 0.0
    if b * d != a * e:
        stationary = (a * d - b * c) / (b * d - a * e)
    candidates = (0.0, min(max(stationary, 0.0), largest), largest)
    return max(candidates, key=alignment)
