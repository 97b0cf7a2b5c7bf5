"""Alignment statistics from one pass over tiles, for every union of folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse

from learnkernels.kernels.centering import as_sample_weight, mean_over
from learnkernels.kernels.engine.passes import RowBlocks, block_rows_of, choose_shift, pass_over_tiles
from learnkernels.kernels.engine.workers import Threads, Workers
from learnkernels.kernels.families.base import KernelFamily, Rows, as_rows
from learnkernels.kernels.families.feature import FeatureFamily
from learnkernels.kernels.statistics.base import AlignmentStatistics
from learnkernels.kernels.statistics.features import FeatureStatistics

CONSTANT = 1e-13
"""A kernel whose centered norm is below this share of its spread around the shift is constant up to rounding."""


@dataclass(frozen=True, eq=False, repr=False)
class GramStatistics(AlignmentStatistics):
    r"""Exact statistics of p base kernels over m rows, kept apart by fold group; see `AlignmentStatistics`.

    With D the diagonal matrix of the weights w and W their sum (D = I and W = m without weights), products
    :math:`G_{kl} = \langle K_k, K_l \rangle_F = \sum_{ij} w_i w_j K_k(i, j) K_l(i, j)`, row sums :math:`r_k = K_k w`,
    totals :math:`s_k = w^\top r_k` and the targets' mean :math:`\bar y = Y^\top w / W`, each of a kernel less its
    constant `shift`:

    .. math:: M_{kl} = \langle K_{kc}, K_{lc} \rangle_F
              = G_{kl} - \tfrac{2}{W} r_k^\top D r_l + \tfrac{s_k s_l}{W^2}
    .. math:: a_k = \langle K_{kc}, Y Y^\top \rangle_F = \langle K_k, Y Y^\top \rangle_F
              - 2 \bar y \cdot Y^\top D r_k + \lVert \bar y \rVert^2 s_k
    .. math:: \operatorname{tr} K_{kc} = \operatorname{tr} K_k - \tfrac{s_k}{W}

    `M` and `a` are those of the base kernels as given: centered, not scaled. Without centering, of kernels
    :math:`K_k + c_k` with `shift` c, and of targets as given, :math:`Y_b = Y + \mathbf 1 b^\top`,

    .. math:: \langle K_k + c_k, K_l + c_l \rangle_F = G_{kl} + c_k s_l + c_l s_k + W^2 c_k c_l
    .. math:: \langle K_k + c_k, Y_b Y_b^\top \rangle_F = \langle K_k, Y Y^\top \rangle_F + 2 b \cdot Y^\top D r_k
              + \lVert b \rVert^2 s_k + c_k \lVert Y_b^\top w \rVert^2

    Attributes
    ----------
    raw : bool
        Whether `origin` changed no kernel, so that the uncentered statistics can be had.
    block_products, block_targets, block_traces, row_sums : ndarray
        Of shapes (F, F, p, p), (F, F, p), (F, p) and (F, p, m), as `pass_over_tiles` returns them.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828: M and a of section 3.2.1, by Lemma 1.
    """

    raw: bool
    block_products: np.ndarray
    block_targets: np.ndarray
    block_traces: np.ndarray
    row_sums: np.ndarray

    @property
    def _weighted_sums(self) -> np.ndarray:
        """D r, the row sums of each shifted kernel times the weights of their rows, which sum to s, shape (p, m)."""
        return np.asarray(self._weighted(self.row_sums.sum(axis=0).T).T)

    @property
    def row_means(self) -> np.ndarray:
        """Mean of each row of each base kernel less `shift`, over the rows held, shape (p, m)."""
        return np.asarray(self.row_sums.sum(axis=0) / self.total_weight)

    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the row means of ``sum_k coefficients_k (K_k - shift_k)`` over the rows held, shape (m,)."""
        sums = np.tensordot(coefficients, self.row_sums, axes=(-1, 1)).sum(axis=-2)
        return np.asarray(sums / self.total_weight)

    def _products(self, centered: bool) -> np.ndarray:
        G, W = self.block_products.sum(axis=(0, 1)), self.total_weight
        if centered:
            r = self.row_sums.sum(axis=0)
            Dr = self._weighted(r.T).T
            s = Dr.sum(axis=1)
            M = G - (2 / W) * (r @ Dr.T) + np.outer(s, s) / W**2
            return (M + M.T) / 2
        self._require_raw()
        shifts = np.outer(self.shift, self._weighted_sums.sum(axis=1) + W**2 * self.shift / 2)
        return (G + G.T) / 2 + (shifts + shifts.T)

    def target_products(self, centered: bool = True) -> np.ndarray:
        """Return a, the Frobenius products of the base kernels with the target kernel, shape (p,)."""
        Dr, given = self._weighted_sums, self.block_targets.sum(axis=(0, 1))
        if centered:
            mean = mean_over(self.targets, self.sample_weight)
            return given - 2 * (Dr @ self.targets) @ mean + (mean @ mean) * Dr.sum(axis=1)
        self._require_raw()
        mean, total = self.target_mean, self._weighted(self._targets(False)).sum(axis=0)
        of_shifted = given + 2 * (Dr @ self.targets) @ mean + (mean @ mean) * Dr.sum(axis=1)
        return of_shifted + self.shift * (total @ total)

    def traces(self, centered: bool = True) -> np.ndarray:
        """Return the trace of each base kernel, shape (p,)."""
        if centered:
            return self.block_traces.sum(axis=0) - self._weighted_sums.sum(axis=1) / self.total_weight
        self._require_raw()
        return np.asarray(self.block_traces.sum(axis=0) + self.total_weight * self.shift)

    @cached_property
    def constant(self) -> np.ndarray:
        """Whether each base kernel is constant on the rows held, up to rounding, shape (p,)."""
        centered = self.squared_norms()
        around_shift = np.einsum("ghkk->k", self.block_products)
        # A kernel that is constant equals its shift up to rounding, and both norms are zero or rounding.
        whole = around_shift + (self.total_weight * self.shift) ** 2
        return (centered <= CONSTANT * around_shift) | (centered <= (4 * np.finfo(np.float64).eps) ** 2 * whole)

    def _require_raw(self) -> None:
        if not self.raw:
            raise ValueError(
                "uncentered statistics need the base kernels of the rows as given, got those of rows moved to their "
                "mean; pass keep_origin=True to gram_statistics."
            )

    def restrict(self, groups: Sequence[int]) -> GramStatistics:
        """Return the statistics of the rows of some fold groups alone, exactly; O(F p m), by adding blocks."""
        keep, held, attributes = self._held(groups)
        return replace(
            self,
            **attributes,
            block_products=self.block_products[np.ix_(keep, keep)],
            block_targets=self.block_targets[np.ix_(keep, keep)],
            block_traces=self.block_traces[keep],
            row_sums=self.row_sums[keep][:, :, held],
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """Return the statistics that `to_arrays` was called on, also by version 0.2."""
        older = {"block_products": "products", "block_targets": "target_products", "block_traces": "traces"}
        named = {new: arrays[old] for new, old in older.items() if old in arrays}
        return super().from_arrays({**arrays, **named, "raw": bool(arrays["raw"])})


def gram_statistics(
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    sample_weight: np.ndarray | None = None,
    keep_origin: bool = False,
    block_rows: int | None = None,
    dtype: type[np.float64] | type[np.float32] = np.float64,
    n_threads: int | None = None,
    workers: Workers | None = None,
) -> GramStatistics | FeatureStatistics:
    """Return the products of base kernels with each other and with the target, from which alignments follow.

    One pass over the rows, by tiles: the first-stage statistics of a family.

    Parameters
    ----------
    family : KernelFamily
        p base kernels.
    X : ndarray or CSR matrix of shape (m, d)
        Rows, m >= 2. Not modified.
    Y : ndarray of shape (m,) or (m, q)
        Numeric targets: one column an output, labels as plus and minus one, or one column per class. Not modified.
    groups : ndarray of int of shape (m,), optional
        Fold group of each row; None puts all rows into group 0.
    sample_weight : ndarray of shape (m,), optional
        Weights of the rows, positive: one of weight w counts as w copies of it; by default each counts once. Not
        modified.
    keep_origin : bool, default False
        Do not move the rows to their mean: needed where kernels are used uncentered and moving the rows would change
        them (the linear kernel). Rows far from the origin then lose digits of their centered kernels.
    block_rows : int, optional
        Rows of a tile; by default what fits a core's cache.
    dtype : {numpy.float64, numpy.float32}, default float64
        Precision of a tile; sums are always float64. float32 takes about two thirds of the time and leaves alignments
        with a relative error of about 1e-6, unless a kernel is nearly constant.
    n_threads : int, optional
        Threads of this process that compute tiles; by default those that are available, at most one a core.
    workers : Workers, optional
        Who does the pass, in place of threads of this process.

    Returns
    -------
    statistics : GramStatistics
        For a `FeatureFamily` its `FeatureStatistics`, without a pass: the parameters of tiles and `workers` are not
        used. These serve uncentered kernels with or without `keep_origin`.

    Raises
    ------
    ValueError
        Lengths differ, fewer than two rows, `X` or `Y` is not finite, `Y` is constant, or a weight is not positive.

    Notes
    -----
    O(m^2 (d + p^2)) time, O(F p m) memory; no m by m matrix is ever formed.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.2.1 (M, a) by Lemma 1.
    """
    X = as_rows(X)
    m = X.shape[0]
    Y, groups = paired(m, Y, groups)
    if not np.isfinite(Y).all():
        raise ValueError("Y must be finite, got NaN or infinity; drop those rows.")
    if not np.ptp(Y, axis=0).any():
        raise ValueError("Y must vary, got a constant target, with which no kernel can align.")
    w = as_sample_weight(sample_weight, m)
    of_features = isinstance(family, FeatureFamily)
    blocks = RowBlocks.of(groups, block_rows or (m if of_features else block_rows_of(family, X)), w)
    target_mean = mean_over(Y, w)
    moves = (family.translates and not keep_origin) or of_features
    origin = mean_over(X, w) if moves and not sparse.issparse(X) else np.zeros(X.shape[1])
    attributes: dict[str, Any] = {
        "names": family.names,
        "labels": blocks.labels,
        "rows": blocks.order,
        "group": np.repeat(blocks.group, np.diff(blocks.bounds)),
        "targets": (Y - target_mean)[blocks.order],
        "target_mean": target_mean,
        "origin": origin,
        "sample_weight": blocks.sample_weight,
    }
    if isinstance(family, FeatureFamily):
        features = family.take(X)[blocks.order]
        if sparse.issparse(features):
            features.sum_duplicates()
        else:
            features = features - family.origins(origin)
        return FeatureStatistics(**attributes, shift=np.zeros(family.n_kernels), columns=family.columns, X=features)
    X_sorted = X[blocks.order]
    if origin.any():
        X_sorted -= origin
    shift = choose_shift(family, X_sorted)
    products, target_products, traces, row_sums = pass_over_tiles(
        family, X_sorted.astype(dtype, copy=False), attributes["targets"], blocks, shift, workers or Threads(n_threads)
    )
    return GramStatistics(
        **attributes,
        shift=shift,
        raw=family.translation_invariant or not origin.any(),
        block_products=products,
        block_targets=target_products,
        block_traces=traces,
        row_sums=row_sums,
    )


def paired(m: int, Y: np.ndarray, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return targets, shape (m, q), and fold groups of m rows; ValueError where they are not as many, or too few."""
    Y = np.asarray(Y, dtype=np.float64)
    groups = np.zeros(m, dtype=np.intp) if groups is None else np.asarray(groups)
    if m < 2:
        raise ValueError(f"X must have at least two rows, got {m}.")
    if len(Y) != m or len(groups) != m:
        raise ValueError(f"Y and groups must have one entry per row of X, got {len(Y)} and {len(groups)} for {m} rows.")
    return Y[:, None] if Y.ndim == 1 else Y, groups
