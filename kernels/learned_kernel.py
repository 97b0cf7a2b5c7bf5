"""A learned kernel, and scores that are linear in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from scipy import sparse

from .base import Value
from .centering import Centering, alignment_of_matrix, mean_over, subtract_means
from .engine.combination import STRIP, Combination, Expansion
from .engine.operators import entrywise_power
from .engine.workers import BlockResults, Threads
from .families.base import KernelFamily, Rows, as_rows, move
from .files import Savable
from .solvers.certificate import Certificate
from .statistics.gram import Normalization
from .statistics.sampled import Sampling
from .targets import Target
from .validation import require_numbers, require_shape
from .weights import as_sample_weight, near_one, weights_of_rows

ALL_FEATURES = "all features"
"""View of base kernels on all features."""

POWER_ROWS = 512


@dataclass(frozen=True, eq=False, repr=False)
class LearnedKernel(Savable, Value):
    r"""Weighted sum of normalized base kernels, or a power of such a sum.

    .. math:: K_\mu(x, x') = \Big( c + \sum_k \frac{\mu_k}{t_k} K_{kc}(x, x') \Big)^d

    Base kernels are centered by the training rows, of weights w and total weight W, and
    divided by their scales t_k:

    .. math:: K_{kc}(x, x') = K_k(x, x') - \tfrac1W \sum_i w_i K_k(x, x_i) - \tfrac1W \sum_i w_i K_k(x_i, x')
              + \tfrac1{W^2} \sum_{ij} w_i w_j K_k(x_i, x_j)

    With `centering` "none" and "target", base kernels are not centered.

    Attributes
    ----------
    family : KernelFamily
        The p base kernels.
    learner : str
        Name of the learner.
    weights : ndarray of shape (p,)
        Weights mu; two-stage learners scale them to 2-norm one.
    normalize : {"trace", "frobenius", "none"}
        Normalization of the base kernels.
    scales : ndarray of shape (p,)
        Scales t; zero for a constant feature. One-stage learners scale the mean
        diagonal to one.
    alignment : float
        Centered alignment with the target kernel on the training rows.
    alignments : ndarray of shape (p,)
        Centered alignment of each base kernel.
    certificate : Certificate or None
        Optimality gap of the learner.
    X : ndarray or CSR matrix of shape (m, d)
        Training rows minus `origin`.
    rows : ndarray of shape (m,)
        Position of each training row in the data set.
    origin : ndarray of shape (d,)
        Row subtracted from all rows: the mean, or zero if centered kernels depend on
        it.
    shift, row_means : ndarray of shape (p,) and (m,)
        Constant subtracted from each base kernel, and row means of the weighted sum.
    degree : int
        Power d.
    offset : float
        Constant c.
    C : float or None
        C = 1 / lambda of a one-stage learner.
    parameters : ndarray of shape (p, r) or None
        Bandwidths sigma per base kernel, from continuous learners.
    sample_weight : ndarray of shape (m,) or None
        Weights of the training rows.
    history : tuple of float
        Alignments after each added base kernel, or per round of metric learning on
        held-out rows.
    sampling : Sampling or None
        Numbers of rows, if the kernel was learned on a sample.
    traces : ndarray of shape (p,) or None
        Traces of the centered base kernels, for `view_shares`.
    spread : ndarray of shape (d,) or None
        Standard deviation of each feature, if `X` lacks training rows.
    errors_of_halves : tuple of two floats or None
        Squared errors of regressions in metrics learned from half of the rows, relative
        to the mean's: on the other half, and of leave-one-out on the same half.
    centering : Centering
        Centering of base kernels and target.
    """

    family: KernelFamily
    learner: str
    weights: np.ndarray
    normalize: Normalization
    scales: np.ndarray
    alignment: float
    alignments: np.ndarray
    certificate: Certificate | None
    X: Rows
    rows: np.ndarray
    origin: np.ndarray
    shift: np.ndarray
    row_means: np.ndarray
    degree: int = 1
    offset: float = 0.0
    C: float | None = None
    parameters: np.ndarray | None = None
    sample_weight: np.ndarray | None = None
    sampling: Sampling | None = None
    history: tuple[float, ...] = ()
    traces: np.ndarray | None = None
    spread: np.ndarray | None = None
    centering: Centering = Centering.CENTER
    errors_of_halves: tuple[float, float] | None = None

    def __repr__(self) -> str:
        most_shown = 3
        largest = np.argsort(-np.abs(self.weights), kind="stable")[:most_shown]
        texts = [
            f"{self.family.names[k]} {self.weights[k]:.3g}"
            for k in largest
            if self.weights[k]
        ]
        n_others = len(self.weights) - len(texts)
        if n_others:
            texts.append(f"{n_others} others")
        return (
            f"LearnedKernel({self.learner!r}, {len(self.weights)} kernels, {len(self.rows)} rows, "
            f"alignment={self.alignment:.3g}, weights: {', '.join(texts)})"
        )

    def _repr_html_(self) -> str:
        most_shown = 12
        largest = np.argsort(-np.abs(self.weights), kind="stable")[:most_shown]
        shares = self.shares
        rows = "".join(
            f"<tr><td>{escape(self.family.names[k])}</td><td><div style='background:#9ecae1;height:.8em;"
            f"width:{100 * abs(shares[k]):.0f}px'></div></td>"
            f"<td>{shares[k]:.3f}</td><td>{self.alignments[k]:.3f}</td></tr>"
            for k in largest
        )
        n_others = len(self.weights) - len(largest)
        if n_others:
            rows += f"<tr><td colspan='4'>and {n_others} others</td></tr>"
        return (
            f"<table style='text-align:left'><caption><b>{escape(self.learner)}</b>: {len(self.weights)} base kernels, "
            f"{len(self.rows):,} rows, alignment {self.alignment:.3f}</caption><thead><tr><th>base kernel</th><th></th>"
            f"<th>share</th><th>alignment</th></tr></thead><tbody>{rows}</tbody></table>"
        )

    @property
    def shares(self) -> np.ndarray:
        """Weights divided by the sum of their absolute values, shape (p,)."""
        return self.weights / np.abs(self.weights).sum()

    @property
    def view_shares(self) -> dict[str, float]:
        r"""Share of each view (group of columns) in the trace of the learned kernel.

        .. math:: r_v \propto \sum_{k \in v} \frac{|\mu_k|}{t_k} \operatorname{tr} K_{kc}
        """
        if self.traces is None:
            return {ALL_FEATURES: 1.0}
        traces = np.abs(self.combination.coefficients) * self.traces
        shares: dict[str, float] = {}
        for view, share in zip(
            self.family.kernel_views, (traces / traces.sum()).tolist(), strict=True
        ):
            name = view or ALL_FEATURES
            shares[name] = shares.get(name, 0.0) + share
        return shares

    @property
    def indefinite(self) -> bool:
        """Whether a weight is negative, so that eigenvalues may be negative."""
        return bool((self.weights < 0).any())

    @property
    def gram_centering(self) -> Centering:
        """Centering of the learned Gram matrix; powers and offsets are not centered."""
        if self.centering.subtracts and (self.degree != 1 or self.offset != 0):
            return Centering.TARGET
        return self.centering

    @property
    def is_weighted_sum(self) -> bool:
        """Whether predictions only need the weighted sum of base kernels.

        With an intercept, coefficients sum to zero, so that an offset has no effect.
        """
        return self.degree == 1 and (self.offset == 0 or self.centering.subtracts)

    @property
    def relevance(self) -> np.ndarray | None:
        r"""Share of each feature in the learned metric, (d,); None without a metric.

        .. math:: r_j \propto s_j \sum_k \frac{|\mu_k|}{\sigma_{kj}}

        s is the standard deviation of the feature. The estimators' `relevance_`
        measures the effect on predictions instead.
        """
        if (
            self.parameters is None
            or self.parameters.shape[1] != self.X.shape[1]
            or sparse.issparse(self.X)
        ):
            return None
        relevance = self.feature_spread * (
            np.abs(self.weights) @ (1.0 / self.parameters)
        )
        return np.asarray(relevance / relevance.sum())

    @property
    def feature_spread(self) -> np.ndarray | None:
        """Standard deviation of each feature, shape (d,); None for sparse rows."""
        if self.spread is not None or sparse.issparse(self.X):
            return self.spread
        return np.asarray(np.asarray(self.X).std(axis=0))

    @cached_property
    def combination(self) -> Combination:
        """Weighted sum of the base kernels, before centering."""
        used = self.weights != 0  # constant features have weight and scale zero
        coefficients = np.divide(
            self.weights, self.scales, out=np.zeros(len(self.weights)), where=used
        )
        return Combination(self.family, coefficients, self.shift)

    @property
    def _grand_mean(self) -> float:
        return float(mean_over(self.row_means, self.sample_weight))

    def gram(self) -> np.ndarray:
        """Return the Gram matrix of the training rows, shape (m, m)."""
        K = self.combination.matrix(self.X, self.X, symmetric=True)
        return self._power(
            subtract_means(K, self.row_means, self.row_means, self._grand_mean, out=K)
        )

    def over(self, positions: np.ndarray) -> LearnedKernel:
        """Restrict the kernel to some training rows, and center it on them."""
        X = self.X[positions]
        shares = self.centering.shares(len(positions))[:, None]
        means = Expansion(self.combination, X, shares, np.zeros(1), 0 * self.origin)
        return replace(
            self,
            X=X,
            rows=self.rows[positions],
            row_means=means.values(X)[:, 0],
            sample_weight=None,
            spread=self.feature_spread,
        )

    def cross_gram(self, X_new: Rows) -> np.ndarray:
        """Return the centered kernel between new rows and the training rows.

        Parameters
        ----------
        X_new : ndarray or CSR matrix of shape (n, d)
            New rows.

        Returns
        -------
        K_cross : ndarray of shape (n, m)

        Raises
        ------
        ValueError
            The number of features is wrong, or a value is not finite.
        """
        K = self.combination.matrix(
            move(checked_rows(self.X, X_new), self.origin), self.X
        )
        rows = self.centering.mean(K, self.sample_weight, axis=1)
        return self._power(subtract_means(K, rows, self.row_means, self._grand_mean))

    def alignment_with(
        self, X_new: Rows, target: Target, sample_weight: np.ndarray | None = None
    ) -> float:
        """Return the centered alignment of the kernel with a target, on new rows.

        Parameters
        ----------
        X_new : ndarray or CSR matrix of shape (n, d)
            New rows.
        target : Target
            Target of the new rows.
        sample_weight : ndarray of shape (n,), optional
            Positive weights of the new rows.

        Notes
        -----
        The kernel is centered on the new rows and takes O(n^2) memory.
        """
        w = as_sample_weight(sample_weight, X_new.shape[0])
        if w is not None:
            w = near_one(w)
        return alignment_of_matrix(
            self.gram_among(X_new, w), target.Y - mean_over(target.Y, w), w
        )

    def gram_among(
        self, X_new: Rows, sample_weight: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the Gram matrix of new rows, (n, n), centered on the new rows."""
        X_new = move(as_rows(X_new), self.origin)
        return self._power(
            self.centering.gram(
                self.combination.matrix(X_new, X_new, symmetric=True), sample_weight
            )
        )

    def _power(self, K: np.ndarray) -> np.ndarray:
        K += self.offset
        if self.degree == 1:
            return K
        return entrywise_power(K, self.degree)

    def _require_sound(self) -> None:
        X = self.X
        if sparse.issparse(X) and X.format != "csr":
            raise ValueError(
                f"X must be in CSR form, got {X.format}; learn the kernel on X.tocsr()."
            )
        if len(X.shape) != 2 or not X.shape[0]:
            raise ValueError(
                f"X must be a matrix of at least one training row, got shape {X.shape}; fit again."
            )
        values = X.data if sparse.issparse(X) else X
        require_numbers("X", values, values.shape)
        require_numbers("offset", np.array(self.offset), ())
        as_sample_weight(self.sample_weight, X.shape[0])
        self._require_arrays()
        if not (self.scales[self.weights != 0] > 0).all():
            raise ValueError(
                "scales must be positive wherever a weight is not zero, got others; fit again."
            )
        if self.errors_of_halves is not None:
            require_numbers("errors_of_halves", np.array(self.errors_of_halves), (2,))
        if self.degree < 1:
            raise ValueError(
                f"degree must be a whole number of at least 1, got {self.degree}; fit again."
            )
        try:
            with np.errstate(all="ignore"):
                self.family.diag(X[:1])
        except (ValueError, IndexError, ArithmeticError) as error:
            raise ValueError(
                f"the family must fit training rows of {X.shape[1]} features, got {error}; fit again."
            ) from None

    def _require_arrays(self) -> None:
        by_kernel = (self.family.n_kernels,)
        by_row = (self.X.shape[0],)
        by_feature = (self.X.shape[1],)
        finite: dict[str, tuple[int, ...]] = {
            "weights": by_kernel,
            "scales": by_kernel,
            "shift": by_kernel,
            "row_means": by_row,
            "origin": by_feature,
        }
        for name, shape in finite.items():
            require_numbers(name, getattr(self, name), shape)
        others: dict[str, tuple[int, ...]] = {
            "alignments": by_kernel,
            "traces": by_kernel,
            "spread": by_feature,
            "sample_weight": by_row,
        }
        if self.parameters is not None:  # infinite for a feature without influence
            others["parameters"] = (*by_kernel, self.parameters.shape[-1])
        for name, shape in others.items():
            array = getattr(self, name)
            if array is not None:
                require_shape(name, array, shape)
                if array.dtype != np.float64:
                    raise ValueError(
                        f"{name} must hold numbers of float64, got {array.dtype}; fit again."
                    )
        require_shape("rows", self.rows, by_row)
        if self.rows.dtype.kind != "i":
            raise ValueError(
                f"rows must hold integers, got {self.rows.dtype}; fit again."
            )


def checked_rows(X: Rows, X_new: Rows) -> Rows:
    """Return new rows as float64; ValueError for a wrong number of features."""
    X_new = as_rows(X_new)
    d = X.shape[1]
    if X_new.shape[1] != d:
        raise ValueError(
            f"X_new must have the {d} features of the training rows, got {X_new.shape[1]}; give the same columns in "
            "the same order."
        )
    return X_new


class LinearScores:
    r"""Decision function, linear in a kernel: ``kernel.cross_gram(X) @ dual + intercept``.

    `dual` has shape (m, q). For degree one, centering moves to the coefficients: with
    weights w of sum one, row means r and the uncentered kernel C,

    .. math:: K_c(x, x_i) = C(x, x_i) - \sum_l w_l C(x, x_l) - r_i + \bar r, \qquad
              \sum_i \alpha_i K_c(x, x_i) = \sum_i (\alpha_i - w_i \sigma) \, C(x, x_i)
              - \sum_i \alpha_i r_i + \sigma \bar r, \qquad \sigma = \sum_i \alpha_i
    """

    def __init__(
        self, kernel: LearnedKernel, dual: np.ndarray, intercept: np.ndarray
    ) -> None:
        self.kernel = kernel
        self.dual = dual
        self.intercept = intercept

    def __getstate__(self) -> dict[str, Any]:
        # Without cached values
        return {
            "kernel": self.kernel,
            "dual": self.dual,
            "intercept": self.intercept,
        }

    @cached_property
    def _sums(self) -> np.ndarray:
        sums = self.dual.sum(axis=0)
        tolerance = 1e-9 * np.abs(self.dual).sum(axis=0)
        return np.where(np.abs(sums) <= tolerance, 0.0, sums)

    @cached_property
    def support(self) -> np.ndarray:
        """Positions of the support vectors, shape (s,)."""
        if self.kernel.degree != 1 or (
            self._sums.any() and self.kernel.centering.subtracts
        ):
            return np.arange(len(self.dual))
        return np.flatnonzero(self.dual.any(axis=1))

    @cached_property
    def expansion(self) -> Expansion:
        kernel = self.kernel
        support = self.support
        sums = self._sums
        V = self.dual[support]
        constant = self.intercept - kernel.row_means[support] @ V
        if sums.any():
            w = weights_of_rows(kernel.sample_weight, support)
            V = V - np.outer(kernel.centering.shares(len(V), w), sums)
            constant = constant + sums * (kernel.offset + kernel._grand_mean)
        X = kernel.X
        if len(support) < len(self.dual):
            X = X[support]
        return Expansion(kernel.combination, X, V, constant, kernel.origin)

    def of(self, X: Rows, dtype: Any = np.float64, strip: int = STRIP) -> np.ndarray:
        """Return the decision function at new rows, shape (n, q).

        `strip`, the most rows of a tile, affects rounding.
        """
        if self.kernel.degree == 1:
            return self.expansion.values(X, dtype, strip)
        strip = min(strip, POWER_ROWS)
        starts = range(0, X.shape[0], strip)
        if not starts:
            return np.empty((0, self.dual.shape[1]))

        def scores_of_strip(start: int) -> BlockResults:
            K = self.kernel.cross_gram(X[start : start + strip])
            return BlockResults({start: K @ self.dual + self.intercept})

        results: BlockResults = Threads().total(
            lambda _shared, _argument, start: scores_of_strip(start), None, None, starts
        )
        return results.joined()

    def on_support(self) -> LinearScores:
        """Return the same function with only the support vectors as training rows."""
        support = self.support
        if len(support) == len(self.dual) or not len(support):
            return self
        kernel = self.kernel.over(support)
        dual = self.dual[support]
        intercept = (
            self.intercept + (kernel.row_means - self.kernel.row_means[support]) @ dual
        )
        return LinearScores(kernel, dual, intercept)
