"""Views by themselves: base kernels of numbers, categories or dates alone, beside those of all features together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

import numpy as np

from learnkernels.kernels.centering import center_gram, grand_mean, mean_over, weighted_by_roots
from learnkernels.kernels.families.base import KernelFamily
from learnkernels.kernels.families.metric import MetricFamily
from learnkernels.kernels.families.union import FamilyUnion
from learnkernels.kernels.search.found import FoundKernels
from learnkernels.kernels.search.metric import best_left_out, median_distance

Views: TypeAlias = Sequence[tuple[str, Sequence[int]]]
"""Names of views, and the columns of X that each has."""

Effects: TypeAlias = Literal["auto", "joint", "additive"]
"""Base kernels of all features, whose effects are joint; of each view alone, whose effects add up; or what predicts
best."""

ADDITIVE_SHARES = (0.25, 0.5, 1.0)
"""What views by themselves may have of the trace of a kernel, besides nothing."""

Weigh: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Weights of kernels from their Frobenius products, and from those with the target."""


@dataclass(frozen=True)
class _Effect:
    """Base kernels of one view, or of all features, with weights that give their sum, once centered, a trace of one.

    Attributes
    ----------
    families : tuple of KernelFamily
    columns : tuple of (ndarray or None)
        What each of them sees; None for all.
    view : str or None
        What these columns are called.
    weights : ndarray of shape (p,)
    sigmas : ndarray of shape (p, d)
    trace : float
        What the weights were divided by.
    gram : ndarray of shape (m, m)
        The sum, centered.
    """

    families: tuple[KernelFamily, ...]
    columns: tuple[np.ndarray | None, ...]
    view: str | None
    weights: np.ndarray
    sigmas: np.ndarray
    trace: float
    gram: np.ndarray

    @classmethod
    def of(
        cls,
        parts: Sequence[tuple[KernelFamily, np.ndarray | None]],
        view: str | None,
        weights: np.ndarray | None,
        sigmas: np.ndarray,
        X: np.ndarray,
        w: np.ndarray | None,
    ) -> Self:
        """Form the sum over rows; without weights base kernels have equal traces."""
        gram, found = np.zeros((len(X), len(X))), list[float]()
        for family, columns in parts:
            seen = X if columns is None else X[:, columns]
            for K in family.tile(seen, seen):
                trace = _trace(K, w)
                # A kernel that is one or zero throughout, to rounding, tells nothing.
                equal = 1.0 / trace if trace > 1e-9 * len(X) else 0.0
                found.append(equal if weights is None else float(weights[len(found)]))
                gram += found[-1] * K
        gram = center_gram(gram, w)
        trace = _trace(gram, w)
        families, columns_of = zip(*parts, strict=True)
        return cls(families, columns_of, view, np.array(found) / trace, sigmas, trace, gram / trace)


def beside_views(
    found: FoundKernels,
    X: np.ndarray,
    Y: np.ndarray,
    w: np.ndarray | None,
    views: Views,
    effects: Effects,
    weigh: Weigh,
) -> FoundKernels:
    r"""Return found base kernels, beside the same of each view alone where that predicts better.

    .. math:: (1 - s) \, K + s \sum_v \mu_v K_v

    Parameters
    ----------
    found : FoundKernels
        Base kernels in metrics of all features, K as they are weighed, and others on columns of their own, which are
        views by themselves.
    X : ndarray of shape (m, d)
        Rows that the choice is made on. Not modified.
    Y : ndarray of shape (m, q)
        Their targets. Not modified.
    w : ndarray of shape (m,) or None
        Their weights.
    views : sequence of (str, sequence of int)
        At least two for anything to be done.
    effects : {"auto", "joint", "additive"}
        With "auto" the share s of `ADDITIVE_SHARES`, or nothing, with the least squared leave-one-out residuals; one
        with "additive".
    weigh : callable
        Gives mu, of the views' kernels among each other.

    Notes
    -----
    K_v is the sum, in equal traces, of the base kernels in each metric as it treats the features of the view, stretched
    so that the median squared distance is that of all features. Weights are for traces on these rows: with them a sum
    of a kernel of one view and one of another has effects that add up, where a Gaussian of both is their product.
    O(m^3) for each share.
    """
    parts = _parts(found.family)
    in_metrics = [isinstance(family, MetricFamily) for family, _, _ in parts]
    if effects == "joint" or len(views) < 2 or not any(in_metrics):
        return found
    runs = np.split(np.arange(found.family.n_kernels), np.cumsum([family.n_kernels for family, _, _ in parts])[:-1])

    def held(view: str | None, places: Sequence[int]) -> _Effect:
        """Return some of the families as they were found."""
        run = np.concatenate([runs[place] for place in places])
        of = [parts[place][:2] for place in places]
        return _Effect.of(of, view, found.weights[run], found.parameters[run], X, w)

    of_all = held(None, np.flatnonzero(in_metrics).tolist())
    alone = [held(parts[place][2], [place]) for place in np.flatnonzero(np.logical_not(in_metrics)).tolist()]
    as_found = np.array([effect.trace for effect in (of_all, *alone)])
    told = (_view_alone(of_all, name, np.asarray(columns, dtype=np.intp), X, w) for name, columns in views)
    alone += [effect for effect in told if effect is not None]
    as_found = np.append(as_found, np.zeros(1 + len(alone) - len(as_found))) / as_found.sum()
    added = np.append(0.0, _shares(alone, Y, w, weigh))
    mixed = {share: (1.0 - share) * as_found + share * added for share in (0.0, *ADDITIVE_SHARES)}
    of = [of_all, *alone]
    best = 1.0 if effects == "additive" else min(mixed, key=lambda share: _left_out(mixed[share], of, Y, w))
    return _joined(found, mixed[best], of) if best else found


def _left_out(shares: np.ndarray, effects: Sequence[_Effect], Y: np.ndarray, w: np.ndarray | None) -> float:
    """Return the squared leave-one-out residuals of the best regression on a sum of effects."""
    gram = sum(share * effect.gram for share, effect in zip(shares, effects, strict=True) if share > 0)
    return best_left_out(np.asarray(gram), Y, w).loss


def _parts(family: KernelFamily) -> list[tuple[KernelFamily, np.ndarray | None, str | None]]:
    """Return the families of a union with the columns that they see, and what these are called."""
    if not isinstance(family, FamilyUnion):
        return [(family, None, None)]
    return list(zip(family.families, family.columns, family.views, strict=True))


def _view_alone(of_all: _Effect, name: str, columns: np.ndarray, X: np.ndarray, w: np.ndarray | None) -> _Effect | None:
    """Return the base kernels in all metrics as they treat some columns; None where rows differ in none of these."""
    d, stop = X.shape[1], 0
    parts, sigmas = list[tuple[KernelFamily, np.ndarray | None]](), list[np.ndarray]()
    for family, seen in zip(of_all.families, of_all.columns, strict=True):
        assert isinstance(family, MetricFamily)
        start, stop = stop, stop + family.n_kernels
        full = np.zeros((d, *family.map.shape[1:]))
        full[np.arange(d) if seen is None else seen] = family.map
        try:
            stretch = np.sqrt(
                median_distance(_mapped(X, full), "sqeuclidean", w)
                / median_distance(_mapped(X[:, columns], full[columns]), "sqeuclidean", w)
            )
        except ValueError:  # the metric has nothing left of the view
            continue
        parts.append((MetricFamily(family.base, stretch * full[columns], family.label), columns))
        sigma = np.full((family.n_kernels, d), np.inf)
        sigma[:, columns] = of_all.sigmas[start:stop, columns] / stretch
        sigmas.append(sigma)
    return _Effect.of(parts, name, None, np.vstack(sigmas), X, w) if parts else None


def _mapped(X: np.ndarray, map_: np.ndarray) -> np.ndarray:
    return X * map_ if map_.ndim == 1 else X @ map_


def _shares(effects: Sequence[_Effect], Y: np.ndarray, w: np.ndarray | None, weigh: Weigh) -> np.ndarray:
    """Return the weights of kernels of unit trace, which sum to one."""
    rooted = [weighted_by_roots(effect.gram, w) for effect in effects]
    Y = Y - mean_over(Y, w)
    Y = Y if w is None else Y * np.sqrt(w)[:, None]
    M = np.array([[np.vdot(K, L) for L in rooted] for K in rooted])
    weights = weigh(M, np.array([np.vdot(Y, K @ Y) for K in rooted]))
    return np.asarray(weights / weights.sum())


def _trace(K: np.ndarray, w: np.ndarray | None) -> float:
    """Return the trace of a kernel over weighted rows, once it is centered."""
    total = len(K) if w is None else w.sum()
    return float(total * (mean_over(np.diag(K), w) - grand_mean(K, w)))


def _joined(found: FoundKernels, shares: np.ndarray, effects: Sequence[_Effect]) -> FoundKernels:
    """Return the base kernels of some effects, each with its share."""
    held = [(share, effect) for share, effect in zip(shares, effects, strict=True) if share > 0]
    families = [family for _, effect in held for family in effect.families]
    columns = [seen for _, effect in held for seen in effect.columns]
    views = [effect.view for _, effect in held for _ in effect.families]
    weights = np.concatenate([share * effect.weights for share, effect in held])
    carried = np.flatnonzero(weights > 0)
    return replace(
        found,
        family=FamilyUnion(families, columns, views).subset(carried.tolist()),
        weights=weights[carried],
        parameters=np.vstack([effect.sigmas for _, effect in held])[carried],
    )
