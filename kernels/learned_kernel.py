"""A kernel learned from data: weights, all that is needed to apply it to new rows, and scores linear in it."""

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
from .weights import as_sample_weight, near_one

TOGETHER = "all features"
"""What base kernels that see all features are called next to those of views."""

SHOWN_WEIGHTS, SHOWN_ROWS = 3, 12
"""Largest weights that `repr` of a learned kernel shows, and those that a notebook shows."""


ROUNDING = 1e-9
"""Share of the sum of their sizes below which the sum of dual coefficients is zero, as it is for every predictor."""

POWER_ROWS = 512
"""New rows whose kernel with all training rows is held at once, of kernels that are powers."""


@dataclass(frozen=True, eq=False, repr=False)
class LearnedKernel(Savable, Value):
    r"""A weighted sum of normalized base kernels, centered or as they are, or a power of it.

    .. math:: K_\mu(x, x') = \Big( c + \sum_k \frac{\mu_k}{t_k} K_{kc}(x, x') \Big)^d

    where each base kernel is centered with the training rows' means and divided by its `scale` t_k. Where training rows
    have weights w, the mean feature is the weighted one: with W the sum of the weights,

    .. math:: K_{kc}(x, x') = K_k(x, x') - \tfrac1W \sum_i w_i K_k(x, x_i) - \tfrac1W \sum_i w_i K_k(x_i, x')
              + \tfrac1{W^2} \sum_{ij} w_i w_j K_k(x_i, x_j)

    With `centering` "none" base kernels are taken as they are, :math:`K_{kc} = K_k`, and predictors have no intercept;
    with "target" they have one, the mean of the targets.

    Attributes
    ----------
    family : KernelFamily
        The p base kernels.
    learner : str
        Name of the learner, from the table of learners.
    weights : ndarray of shape (p,)
        mu; they apply to the base kernels as normalized. Of unit 2-norm from two-stage learners; of one-stage learners,
        the solution of their problem, length included.
    normalize : {"trace", "frobenius", "none"}
        How the base kernels were normalized.
    scales : ndarray of shape (p,)
        t, computed on the training rows; a feature that is constant there has scale and weight zero. For one-stage
        learners times one number, so that the normalized base kernels' mean diagonals have mean one. Without
        normalization ones, or one power of two where base kernels have extreme values.
    alignment : float
        Centered alignment of the kernel with the target kernel on the training rows, whatever the `centering`.
    alignments : ndarray of shape (p,)
        The same for each base kernel.
    certificate : Certificate or None
        Evidence of optimality, where the learner solves an optimization problem.
    X : ndarray or CSR matrix of shape (m, d)
        The training rows, less `origin`.
    rows : ndarray of shape (m,)
        Position of each training row in the data set that the statistics were taken over.
    origin : ndarray of shape (d,)
        Subtracted from every row before a kernel sees it: the mean row where that changes no centered kernel, or zero.
    shift, row_means : ndarray of shape (p,) and (m,)
        Centering state: a constant subtracted from each base kernel, and the row means of the weighted sum of what is
        left; weighted means where rows have weights. Zeros without centering.
    degree : int
        d.
    offset : float
        c.
    C : float or None
        For one-stage learners the regularization that the weights were learned with: C, or 1 / lambda.
    parameters : ndarray of shape (p, r) or None
        The sigma that a continuous learner found for each base kernel.
    sample_weight : ndarray of shape (m,) or None
        Weight of each training row, which counts as so many copies of it; None where each counts once.
    history : tuple of float
        Of a kernel that was found, alignments on the way: after each addition, or of each round of learned metrics on
        rows that were not used to learn it.
    sampling : Sampling or None
        Where the training rows are a sample of more: how many rows. Weights, alignments and scales of a two-stage
        learner are then estimates for all rows; the centering is the sample's.
    traces : ndarray of shape (p,) or None
        Traces of the centered base kernels, before they were normalized, where some see columns of their own.
    spread : ndarray of shape (d,) or None
        Standard deviation of each feature on the training rows, where `X` holds some of these alone.
    centering : Centering
        "center", "target" or "none".
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

    def __repr__(self) -> str:
        largest = np.argsort(-np.abs(self.weights), kind="stable")[:SHOWN_WEIGHTS]
        shown = [f"{self.family.names[k]} {self.weights[k]:.3g}" for k in largest if self.weights[k]]
        shown += [f"{len(self.weights) - len(shown)} others"] * (len(shown) < len(self.weights))
        return (
            f"LearnedKernel({self.learner!r}, {len(self.weights)} kernels, {len(self.rows)} rows, "
            f"alignment={self.alignment:.3g}, weights: {', '.join(shown)})"
        )

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: base kernels, shares with bars, alignments."""
        shown = np.argsort(-np.abs(self.weights), kind="stable")[:SHOWN_ROWS]
        rows = "".join(
            f"<tr><td>{escape(self.family.names[k])}</td><td><div style='background:#9ecae1;height:.8em;"
            f"width:{100 * abs(self.shares[k]):.0f}px'></div></td>"
            f"<td>{self.shares[k]:.3f}</td><td>{self.alignments[k]:.3f}</td></tr>"
            for k in shown
        )
        others = len(self.weights) - len(shown)
        more = f"<tr><td colspan='4'>and {others} others</td></tr>" if others else ""
        return (
            f"<table style='text-align:left'><caption><b>{escape(self.learner)}</b>: {len(self.weights)} base kernels, "
            f"{len(self.rows):,} rows, alignment {self.alignment:.3f}</caption><thead><tr><th>base kernel</th><th></th>"
            f"<th>share</th><th>alignment</th></tr></thead><tbody>{rows}{more}</tbody></table>"
        )

    @property
    def shares(self) -> np.ndarray:
        """The weights as shares of the sum of their sizes, shape (p,)."""
        return self.weights / np.abs(self.weights).sum()

    @property
    def view_shares(self) -> dict[str, float]:
        r"""What the base kernels of each view have of the traces of all, those of all features as one more view.

        .. math:: r_v \propto \sum_{k \in v} \frac{|\mu_k|}{t_k} \operatorname{tr} K_{kc}
        """
        if self.traces is None:
            return {TOGETHER: 1.0}
        held = np.abs(self.combination.coefficients) * self.traces
        shares: dict[str, float] = {}
        for view, share in zip(self.family.kernel_views, (held / held.sum()).tolist(), strict=True):
            shares[view or TOGETHER] = shares.get(view or TOGETHER, 0.0) + share
        return shares

    @property
    def indefinite(self) -> bool:
        """Whether a weight is negative, so that the kernel may have negative eigenvalues."""
        return bool((self.weights < 0).any())

    @property
    def gram_centering(self) -> Centering:
        """Centering of the Gram matrix: that of base kernels, but for an offset or a power, which is not centered.

        A predictor on such a matrix takes targets less their mean, as with `Centering.TARGET`.
        """
        if self.centering.subtracts and (self.degree != 1 or self.offset != 0):
            return Centering.TARGET
        return self.centering

    @property
    def is_weighted_sum(self) -> bool:
        """Whether predictors may take the kernel as the weighted sum of its base kernels.

        It is no power, and has no offset, or one that coefficients which sum to zero cancel.
        """
        return self.degree == 1 and (self.offset == 0 or self.centering.subtracts)

    @property
    def relevance(self) -> np.ndarray | None:
        r"""How much each feature counts, shape (d,), as shares; None where base kernels have no sigma a feature.

        .. math:: r_j \propto s_j \sum_k \frac{|\mu_k|}{\sigma_{kj}}

        s is the standard deviation of the feature on the training rows: a feature counts where rows that differ in it
        as they commonly do are far from alike.
        """
        if self.parameters is None or self.parameters.shape[1] != self.X.shape[1] or sparse.issparse(self.X):
            return None
        counts = self.feature_spread * (np.abs(self.weights) @ (1.0 / self.parameters))
        return np.asarray(counts / counts.sum())

    @property
    def feature_spread(self) -> np.ndarray | None:
        """Standard deviation of each feature on the training rows, shape (d,); None of sparse ones."""
        if self.spread is not None or sparse.issparse(self.X):
            return self.spread
        return np.asarray(np.asarray(self.X).std(axis=0))

    @cached_property
    def combination(self) -> Combination:
        """The weighted sum of the base kernels less `shift`, of rows less `origin`, before it is centered."""
        used = self.weights != 0  # a feature that is constant has scale zero
        coefficients = np.divide(self.weights, self.scales, out=np.zeros(len(self.weights)), where=used)
        return Combination(self.family, coefficients, self.shift)

    @property
    def _grand_mean(self) -> float:
        return float(mean_over(self.row_means, self.sample_weight))

    def gram(self) -> np.ndarray:
        """Return the Gram matrix of the training rows, shape (m, m); centered before offset and power.

        Notes
        -----
        O(m^2) memory for the result alone; base kernels are formed by tiles and those of zero weight not at all.
        Rank-one features are not formed either: the result is one product of weighted features.
        """
        K = self.combination.matrix(self.X, self.X, symmetric=True)
        return self._power(subtract_means(K, self.row_means, self.row_means, self._grand_mean, out=K))

    def over(self, some: np.ndarray) -> LearnedKernel:
        """Return the kernel over some of the training rows, by their positions, and centered on those."""
        X = self.X[some]
        shares = self.centering.shares(len(some))[:, None]
        means = Expansion(self.combination, X, shares, np.zeros(1), 0 * self.origin)
        kept = {"X": X, "rows": self.rows[some], "row_means": means.values(X)[:, 0]}
        return replace(self, sample_weight=None, spread=self.feature_spread, **kept)

    def cross_gram(self, X_new: Rows) -> np.ndarray:
        """Return the kernel between new rows and the training rows, centered with the training rows alone.

        Parameters
        ----------
        X_new : ndarray or CSR matrix of shape (n, d)
            New rows. Not modified.

        Returns
        -------
        K_cross : ndarray of shape (n, m)

        Raises
        ------
        ValueError
            The number of features differs from that of the training rows, or a value is not finite.
        """
        K = self.combination.matrix(move(checked_rows(self.X, X_new), self.origin), self.X)
        rows = self.centering.mean(K, self.sample_weight, axis=1)
        return self._power(subtract_means(K, rows, self.row_means, self._grand_mean))

    def alignment_with(self, X_new: Rows, target: Target, sample_weight: np.ndarray | None = None) -> float:
        """Return the centered alignment of the kernel among new rows with their target kernel.

        Parameters
        ----------
        X_new : ndarray or CSR matrix of shape (n, d)
            New rows. Not modified.
        target : Target
            Of those rows.
        sample_weight : ndarray of shape (n,), optional
            Positive weights of the new rows, of which only the ratios count; by default each counts once, whatever the
            training rows weigh.

        Notes
        -----
        Centered on the new rows themselves; O(n^2) memory.
        """
        w = as_sample_weight(sample_weight, X_new.shape[0])
        w = None if w is None else near_one(w)
        return alignment_of_matrix(self.gram_among(X_new, w), target.Y - mean_over(target.Y, w), w)

    def gram_among(self, X_new: Rows, sample_weight: np.ndarray | None = None) -> np.ndarray:
        """Return the Gram matrix of new rows, shape (n, n), centered on these rows, with weights if there are some."""
        X_new = move(as_rows(X_new), self.origin)
        return self._power(self.centering.gram(self.combination.matrix(X_new, X_new, symmetric=True), sample_weight))

    def _power(self, K: np.ndarray) -> np.ndarray:
        K += self.offset
        return K if self.degree == 1 else entrywise_power(K, self.degree)

    def _require_sound(self) -> None:
        X = self.X
        if sparse.issparse(X) and X.format != "csr":
            raise ValueError(f"X must be in CSR form, got {X.format}; learn the kernel on X.tocsr().")
        if len(X.shape) != 2 or not X.shape[0]:
            raise ValueError(f"X must be a matrix of at least one training row, got shape {X.shape}; fit again.")
        values = X.data if sparse.issparse(X) else X
        require_numbers("X", values, values.shape)
        require_numbers("offset", np.array(self.offset), ())
        as_sample_weight(self.sample_weight, X.shape[0])
        self._require_arrays()
        if not (self.scales[self.weights != 0] > 0).all():
            raise ValueError("scales must be positive wherever a weight is not zero, got others; fit again.")
        if self.degree < 1:
            raise ValueError(f"degree must be a whole number of at least 1, got {self.degree}; fit again.")
        try:
            with np.errstate(all="ignore"):
                self.family.diag(X[:1])
        except (ValueError, IndexError, ArithmeticError) as error:
            raise ValueError(
                f"the family must fit training rows of {X.shape[1]} features, got {error}; fit again."
            ) from None

    def _require_arrays(self) -> None:
        """Raise ValueError if an array does not fit the base kernels, or the training rows."""
        by_kernel, by_row, by_feature = (self.family.n_kernels,), (self.X.shape[0],), (self.X.shape[1],)
        finite: dict[str, tuple[int, ...]] = {"weights": by_kernel, "scales": by_kernel, "shift": by_kernel}
        finite |= {"row_means": by_row, "origin": by_feature}
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
                    raise ValueError(f"{name} must hold numbers of float64, got {array.dtype}; fit again.")
        require_shape("rows", self.rows, by_row)
        if self.rows.dtype.kind != "i":
            raise ValueError(f"rows must hold integers, got {self.rows.dtype}; fit again.")


def checked_rows(X: Rows, X_new: Rows) -> Rows:
    """Return new rows for a kernel as float64, without a copy where they are.

    Raises
    ------
    ValueError
        The number of features differs from that of the training rows, or a value is not finite.
    """
    X_new, d = as_rows(X_new), X.shape[1]
    if X_new.shape[1] != d:
        raise ValueError(
            f"X_new must have the {d} features of the training rows, got {X_new.shape[1]}; give the same columns in "
            "the same order."
        )
    return X_new


class LinearScores:
    r"""Scores ``kernel.cross_gram(X) @ dual + intercept``.

    Parameters
    ----------
    kernel : LearnedKernel
    dual : ndarray of shape (m, q)
        Not modified.
    intercept : ndarray of shape (q,)

    Notes
    -----
    Of a kernel of degree one the centering is moved to the coefficients. With weights w of the training rows that sum
    to one, row means r and the kernel C that is not centered,

    .. math:: K_c(x, x_i) = C(x, x_i) - \sum_l w_l C(x, x_l) - r_i + \bar r, \qquad
              \sum_i \alpha_i K_c(x, x_i) = \sum_i (\alpha_i - w_i \sigma) \, C(x, x_i) - \sum_i \alpha_i r_i
              + \sigma \bar r, \qquad \sigma = \sum_i \alpha_i

    Predictors with an intercept have :math:`\sigma = 0`, but for rounding, which is left out: then rows whose
    coefficients are zero, those that are no support vectors, take no part. New rows take O(s) time each for s rows that
    do, in place of O(m). Of a kernel that is not centered, w and r are zero, and the same holds whatever sigma is.
    """

    def __init__(self, kernel: LearnedKernel, dual: np.ndarray, intercept: np.ndarray) -> None:
        self.kernel, self.dual, self.intercept = kernel, dual, intercept

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("kernel", "dual", "intercept")}

    @cached_property
    def _sums(self) -> np.ndarray:
        """The sums of the coefficients, zero where they are rounding, shape (q,)."""
        sums = self.dual.sum(axis=0)
        return np.where(np.abs(sums) <= ROUNDING * np.abs(self.dual).sum(axis=0), 0.0, sums)

    @cached_property
    def support(self) -> np.ndarray:
        """Positions of the training rows that scores depend on, shape (s,)."""
        if self.kernel.degree != 1 or (self._sums.any() and self.kernel.centering.subtracts):
            return np.arange(len(self.dual))
        return np.flatnonzero(self.dual.any(axis=1))

    @cached_property
    def _expansion(self) -> Expansion:
        kernel, some, sums = self.kernel, self.support, self._sums
        V = self.dual[some]
        constant = self.intercept - kernel.row_means[some] @ V
        if sums.any():
            w = None if kernel.sample_weight is None else kernel.sample_weight[some]
            V = V - np.outer(kernel.centering.shares(len(V), w), sums)
            constant = constant + sums * (kernel.offset + float(mean_over(kernel.row_means, kernel.sample_weight)))
        X = kernel.X if len(some) == len(self.dual) else kernel.X[some]
        return Expansion(kernel.combination, X, V, constant, kernel.origin)

    def of(self, X: Rows, dtype: Any = np.float64, strip: int = STRIP) -> np.ndarray:
        """Return the scores of new rows.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n, d)
            Finite, with the features of the training rows. Not modified.
        dtype : dtype, default float64
            Of the kernel's values; scores are float64. Powers of kernels are always of float64.
        strip : int, default 128
            Most rows that are taken at once; the bits of scores depend on it, counted from the first row.

        Returns
        -------
        scores : ndarray of shape (n, q)
        """
        if self.kernel.degree == 1:
            return self._expansion.values(X, dtype, strip)
        strip = min(strip, POWER_ROWS)
        starts = range(0, X.shape[0], strip)
        if not starts:
            return np.empty((0, self.dual.shape[1]))

        def made(start: int) -> BlockResults:
            K = self.kernel.cross_gram(X[start : start + strip])
            return BlockResults({start: K @ self.dual + self.intercept})

        pieces: BlockResults = Threads().total(lambda _, __, start: made(start), None, None, starts)
        return pieces.joined()

    def on_support(self) -> LinearScores:
        """Return the same scores from the rows that they depend on alone; these where they are all of them.

        The kernel is then centered on those rows, and the intercept another one.
        """
        kernel, some = self.kernel, self.support
        if len(some) == len(self.dual) or not len(some):
            return self
        centered, dual = kernel.over(some), self.dual[some]
        return LinearScores(centered, dual, self.intercept + (centered.row_means - kernel.row_means[some]) @ dual)
