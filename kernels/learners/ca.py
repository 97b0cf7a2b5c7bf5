"""ca: continuous alignment, base kernels found one by one and weighed by how much each adds to the alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.learners.alignf import alignf
from learnkernels.kernels.moments.gram import gram_moments
from learnkernels.kernels.search.ascent import Ascent, DenseAscent, RadialAscent, best_step
from learnkernels.kernels.search.continuous import ContinuousFamily, Kind
from learnkernels.kernels.search.found import FoundKernels, continuous_family
from learnkernels.kernels.search.radial import RadialFamily
from learnkernels.kernels.targets import Target

SEARCH_ROWS = 2000
"""Rows that parameters are searched on where there are more; weights and alignments always use all."""


def ca(
    X: Rows,
    target: Target,
    *,
    kind: Kind = "gaussian",
    per_feature: bool = False,
    shrinkage: float = 0.0,
    max_kernels: int = 50,
    threshold: float = 1e-3,
    largest_step: float = 1.0,
    eps: float = 1e-10,
    corrective: bool = False,
    search_rows: int = SEARCH_ROWS,
    seed: int = 0,
) -> FoundKernels:
    r"""Return base kernels of a continuous family and weights, found by forward stagewise ascent of the alignment.

    From :math:`K_0 = \varepsilon I`, each step adds the base kernel along which the centered alignment F grows fastest,

    .. math:: \sigma_t = \arg\max_\sigma \langle K_\sigma, F'(K_{t-1,c}) \rangle_F - \lambda \lVert \sigma - \bar\sigma
              \rVert^2, \qquad F'(K) = \frac{K^*_c - \lVert K \rVert^{-2} \langle K, K^*_c \rangle K}
              {\lVert K \rVert \lVert K^*_c \rVert}

    with the weight in :math:`[0, \eta_{max}]` that aligns best, in closed form.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (m, d)
        Training rows. Not modified.
    target : Target
        Of those rows; its target kernel is :math:`K^* = Y Y^\top`.
    kind : {"gaussian", "laplacian", "dirichlet"}, default "gaussian"
        Of the base kernels.
    per_feature : bool, default False
        One bandwidth or frequency a feature (CA-nD) in place of one for all (CA-1D). The search then starts from the
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

    Returns
    -------
    found : FoundKernels

    Raises
    ------
    ValueError
        A parameter is out of its range, the target is constant, or no base kernel aligns with it.

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
    _require(shrinkage, max_kernels, threshold, largest_step, eps, search_rows)
    Y = target.Y - target.Y.mean(axis=0)
    if not np.abs(Y).max() > 0:
        raise ValueError("the target is constant on the training rows, so no kernel can align with it.")
    m = X.shape[0]
    rows = np.arange(m)
    if m > search_rows:
        rows = np.sort(np.random.default_rng(seed).choice(m, search_rows, replace=False))
    continuous = continuous_family(kind, per_feature, X.shape[1])
    options: dict[str, Any] = {"max_kernels": max_kernels, "threshold": threshold, "largest_step": largest_step}
    searched = Y[rows] - Y[rows].mean(axis=0)
    ascent: Ascent
    if isinstance(continuous, RadialFamily):
        pairs = continuous.objective(X[rows])
        ascent = RadialAscent(pairs, continuous.starts_of(*continuous.bounds_of(pairs.D)), searched, eps)
    else:
        starts = continuous.starts(X[rows])
        if kind != "dirichlet" or X.shape[1] == 1:
            one = ca(X, target, kind=kind, eps=eps, **options, search_rows=search_rows, seed=seed)
            starts = np.full((1, X.shape[1]), np.log(one.weights @ one.parameters[:, 0] / one.weights.sum()))
        ascent = DenseAscent(
            continuous.objective(X[rows]), starts, continuous.bounds(X[rows]), searched, eps, shrinkage
        )
    every_row = _Rows(continuous, X, Y) if len(rows) < m or corrective else None
    return _ascend(continuous, ascent, every_row, corrective, **options)


def _require(
    shrinkage: float, max_kernels: int, threshold: float, largest_step: float, eps: float, search_rows: int
) -> None:
    for name, value, low in (
        ("shrinkage", shrinkage, 0.0),
        ("threshold", threshold, 0.0),
        ("max_kernels", max_kernels, 1),
        ("search_rows", search_rows, 10),
    ):
        if not low <= value < np.inf:
            raise ValueError(f"{name} must be at least {low:g} and finite, got {value}.")
    for name, value in (("largest_step", largest_step), ("eps", eps)):
        if not 0 < value < np.inf:
            raise ValueError(f"{name} must be positive and finite, got {value}.")


@dataclass
class _Rows:
    """Exact statistics of the kernels found, on all training rows."""

    continuous: ContinuousFamily
    X: Rows
    Y: np.ndarray

    def products(self, U: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Return M, a and the norm of the target kernel for the base kernels at each u, by one pass over tiles."""
        moments = gram_moments(self.continuous.finite(U), self.X, self.Y)
        return moments.frobenius, moments.target, moments.target_norm


def _ascend(
    continuous: ContinuousFamily,
    ascent: Ascent,
    every_row: _Rows | None,
    corrective: bool,
    *,
    max_kernels: int,
    threshold: float,
    largest_step: float,
) -> FoundKernels:
    """Add base kernels until the alignment grows no further; the last addition, which adds little, stays."""
    U: np.ndarray | None = None
    weights, alignments, reached = np.empty(0), list[float](), ascent.alignment
    while len(weights) < max_kernels:
        u = ascent.steepest()
        candidates = u[None] if U is None else np.vstack([U, u])
        eta = ascent.add(u, largest_step)
        new_weights, alignment = np.append(weights, eta), ascent.alignment
        if every_row is not None:
            M, a, target_norm = every_row.products(candidates)
            new_weights = _weigh(M, a, weights, largest_step, corrective)
            alignment = float(new_weights @ a / (np.sqrt(new_weights @ M @ new_weights) * target_norm))
            if corrective:
                ascent.reset(candidates, new_weights)
        if not new_weights[-1] > 0:
            break
        U, weights = candidates, new_weights
        alignments.append(alignment)
        if alignment <= reached + threshold and len(weights) > 1:
            break
        reached = alignment
    if U is None:
        raise ValueError("no base kernel of the family aligns with the target; try another family or other features.")
    carried = weights > 0
    return FoundKernels(continuous.finite(U[carried]), weights[carried], np.exp(U[carried]), tuple(alignments))


def _weigh(M: np.ndarray, a: np.ndarray, weights: np.ndarray, largest: float, corrective: bool) -> np.ndarray:
    """Return the weights after an addition: of the last kernel alone, or of all anew."""
    if corrective:
        return alignf(M, a).weights
    if not len(weights):
        return np.ones(1)
    before = M[:-1, :-1] @ weights
    eta = best_step(
        float(weights @ a[:-1]), float(a[-1]), float(weights @ before), float(weights @ M[:-1, -1]), float(M[-1, -1]),
        largest,
    )  # fmt: skip
    return np.append(weights, eta)
