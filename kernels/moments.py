"""All that a two-stage learner needs of the base kernels, from one pass over tiles, for every union of folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import reduce
from multiprocessing import cpu_count
from operator import add
from typing import Any, overload

import numpy as np
from scipy import sparse

from kernels.families.base import KernelFamily, Rows, as_rows, move
from kernels.families.feature import FeatureFamily
from kernels.feature_moments import FeatureMoments
from kernels.passes import MomentsPart, RowBlocks, block_rows_for, choose_shift, moments_part

SUPER_TILE = 1024
"""Rows of the square of pairs that one thread takes at a time."""


@dataclass(frozen=True)
class GramMoments:
    r"""Exact first-stage statistics of p base kernels over m rows, kept apart by fold group.

    With :math:`G_{kl} = \langle K_k, K_l \rangle_F`, row sums :math:`r_k = K_k \mathbf 1` and totals
    :math:`s_k = \mathbf 1^\top r_k`, each of a kernel less its constant `shift`:

    .. math:: M_{kl} = \langle K_{kc}, K_{lc} \rangle_F = G_{kl} - \tfrac{2}{m} r_k \cdot r_l + \tfrac{s_k s_l}{m^2}
    .. math:: a_k = \langle K_{kc}, Y Y^\top \rangle_F = \langle K_k, Y Y^\top \rangle_F
              - 2 \bar y \cdot Y^\top r_k + \lVert \bar y \rVert^2 s_k

    `M` and `a` are those of the base kernels as given: centered, not scaled.

    Attributes
    ----------
    names : tuple of str
        The base kernels.
    labels : tuple of int
        The fold groups held.
    rows : ndarray of shape (m,)
        Position in the data set of each row, sorted by group; `group`, `targets` and `row_sums` follow it.
    group : ndarray of shape (m,)
        Position in `labels` of each row's group.
    targets : ndarray of shape (m, q)
        Y, less its mean over all rows of the pass.
    shift : ndarray of shape (p,)
        Constant subtracted from each kernel.
    origin : ndarray of shape (d,)
        Subtracted from every row before a kernel sees it: the mean row where that changes no centered kernel.
    products, target_products, traces, row_sums : ndarray
        Of shapes (F, F, p, p), (F, F, p), (F, p) and (F, p, m), as in `MomentsPart`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828: M and a of section 3.2.1, by Lemma 1.
    """

    names: tuple[str, ...]
    labels: tuple[int, ...]
    rows: np.ndarray
    group: np.ndarray
    targets: np.ndarray
    shift: np.ndarray
    origin: np.ndarray
    products: np.ndarray
    target_products: np.ndarray
    traces: np.ndarray
    row_sums: np.ndarray

    @classmethod
    def from_part(
        cls,
        family: KernelFamily,
        blocks: RowBlocks,
        Y: np.ndarray,
        shift: np.ndarray,
        origin: np.ndarray,
        part: MomentsPart,
    ) -> GramMoments:
        """Return the moments of a whole pass.

        Raises
        ------
        ValueError
            The part does not cover every row block.
        """
        keys = [(block, group) for block in range(len(blocks)) for group in range(len(blocks.labels))]
        missing = {block for block, group in keys if (block, group) not in part.row_sums}
        if missing:
            raise ValueError(f"part must cover every row block, {len(missing)} of {len(blocks)} are missing.")
        row_sums = np.empty((len(blocks.labels), family.n_kernels, len(Y)))
        for block, group in keys:
            row_sums[group, :, blocks.rows(block)] = part.row_sums[block, group]
        return cls(
            names=family.names,
            labels=blocks.labels,
            rows=blocks.order,
            group=np.repeat(blocks.group, np.diff(blocks.bounds)),
            targets=Y,
            shift=shift,
            origin=origin,
            products=part.products,
            target_products=part.target_products,
            traces=part.traces,
            row_sums=row_sums,
        )

    @property
    def n_rows(self) -> int:
        """m, the number of rows."""
        return len(self.rows)

    @property
    def n_kernels(self) -> int:
        """p, the number of base kernels."""
        return len(self.names)

    @property
    def _sums(self) -> np.ndarray:
        """Row sums of each shifted kernel over all the columns held, shape (p, m)."""
        return self.row_sums.sum(axis=0)

    @property
    def row_means(self) -> np.ndarray:
        """Mean of each row of each base kernel less `shift`, over the rows held, shape (p, m)."""
        return self._sums / self.n_rows

    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the row means of ``sum_k coefficients_k (K_k - shift_k)`` over the rows held, shape (m,)."""
        return np.asarray(np.tensordot(coefficients, self.row_sums, axes=(0, 1)).sum(axis=0) / self.n_rows)

    @property
    def frobenius(self) -> np.ndarray:
        """M, the Frobenius products of the centered base kernels, shape (p, p)."""
        r = self._sums
        s = r.sum(axis=1)
        M = self.products.sum(axis=(0, 1)) - (2 / self.n_rows) * (r @ r.T) + np.outer(s, s) / self.n_rows**2
        return (M + M.T) / 2

    @property
    def target(self) -> np.ndarray:
        """a, the Frobenius products of the centered base kernels with the target kernel, shape (p,)."""
        r = self._sums
        mean = self.targets.mean(axis=0)
        return self.target_products.sum(axis=(0, 1)) - 2 * (r @ self.targets) @ mean + (mean @ mean) * r.sum(axis=1)

    @property
    def centered_traces(self) -> np.ndarray:
        """Trace of each centered base kernel, shape (p,)."""
        return self.traces.sum(axis=0) - self._sums.sum(axis=1) / self.n_rows

    @property
    def target_norm(self) -> float:
        """Frobenius norm of the centered target kernel."""
        Y = self.targets - self.targets.mean(axis=0)
        return float(np.linalg.norm(Y.T @ Y))

    @property
    def alignments(self) -> np.ndarray:
        """Centered alignment of each base kernel with the target kernel, shape (p,)."""
        return self.target / (np.sqrt(np.diag(self.frobenius)) * self.target_norm)

    def alignment(self, mu: np.ndarray) -> float:
        """Return the centered alignment of ``sum_k mu_k K_k``, base kernels as given, with the target kernel."""
        mu = np.asarray(mu, dtype=np.float64)
        return float(mu @ self.target / (np.sqrt(mu @ self.frobenius @ mu) * self.target_norm))

    def restrict(self, groups: Sequence[int]) -> GramMoments:
        """Return the moments of the rows of some fold groups alone, exactly, without another pass.

        Parameters
        ----------
        groups : sequence of int
            Fold groups, each one of `labels`.

        Returns
        -------
        moments : GramMoments

        Raises
        ------
        ValueError
            A group is not held, or none is given.

        Notes
        -----
        O(F p m), by adding the blocks of fold pairs.
        """
        unknown = sorted(set(groups) - set(self.labels))
        if unknown or not len(groups):
            raise ValueError(f"groups must be some of {list(self.labels)}, got {list(groups)}.")
        keep = np.flatnonzero(np.isin(self.labels, list(groups)))
        held = np.isin(self.group, keep)
        return replace(
            self,
            labels=tuple(self.labels[g] for g in keep),
            rows=self.rows[held],
            group=np.searchsorted(keep, self.group[held]),
            targets=self.targets[held],
            products=self.products[np.ix_(keep, keep)],
            target_products=self.target_products[np.ix_(keep, keep)],
            traces=self.traces[keep],
            row_sums=self.row_sums[keep][:, :, held],
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays, without any object dtype, that `from_arrays` reads back."""
        return {item.name: np.asarray(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> GramMoments:
        """Return the moments that `to_arrays` was called on."""
        given: dict[str, Any] = {item.name: arrays[item.name] for item in fields(cls)}
        given["names"] = tuple(str(name) for name in given["names"])
        given["labels"] = tuple(int(label) for label in given["labels"])
        return cls(**given)


Mapper = Callable[[KernelFamily, Rows, np.ndarray, RowBlocks, np.ndarray], MomentsPart]


@overload
def gram_moments(
    family: FeatureFamily,
    X: Rows,
    Y: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    mapper: Mapper | None = None,
) -> FeatureMoments: ...
@overload
def gram_moments(
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    block_rows: int | None = None,
    dtype: type[np.float64] | type[np.float32] = np.float64,
    compiled: bool = True,
    n_threads: int | None = None,
    mapper: Mapper | None = None,
) -> GramMoments: ...
def gram_moments(
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    block_rows: int | None = None,
    dtype: type[np.float64] | type[np.float32] = np.float64,
    compiled: bool = True,
    n_threads: int | None = None,
    mapper: Mapper | None = None,
) -> GramMoments | FeatureMoments:
    """Return the first-stage statistics of a family over the rows of a data set, in one pass over tiles.

    Parameters
    ----------
    family : KernelFamily
        p base kernels.
    X : ndarray or CSR matrix of shape (m, d)
        Rows, m >= 2. Not modified.
    Y : ndarray of shape (m,) or (m, q)
        Numeric targets: one column an output, labels as plus and minus one, or one column a class. Not modified.
    groups : ndarray of int of shape (m,), optional
        Fold group of each row; None puts all rows into group 0.
    block_rows : int, optional
        Rows of a tile; by default what fits a core's cache.
    dtype : {numpy.float64, numpy.float32}, default float64
        Precision of a tile; sums are always float64. float32 takes about two thirds of the time and leaves alignments
        with a relative error of about 1e-6, unless a kernel is nearly constant.
    compiled : bool, default True
        Whether sums are formed by the compiled step, or by NumPy: slower, and the oracle.
    n_threads : int, optional
        Threads of this process that compute tiles; by default one a core.
    mapper : callable, optional
        Does the pass: ``mapper(family, X_sorted, Y_sorted, blocks, shift) -> MomentsPart`` over all block pairs.
        By default every tile is computed here, one after the other.

    Returns
    -------
    moments : GramMoments
        For a `FeatureFamily` its `FeatureMoments`, without a pass: the parameters of tiles and `mapper` are not used.

    Raises
    ------
    ValueError
        Lengths differ, fewer than two rows, `X` or `Y` is not finite, or `Y` is constant.

    Notes
    -----
    O(m^2 (d + p^2)) time, O(F p m) memory; no m by m matrix is ever formed.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.2.1 (M, a) by Lemma 1.
    """
    X = as_rows(X)
    m = X.shape[0]
    Y = np.asarray(Y, dtype=np.float64)
    Y = Y[:, None] if Y.ndim == 1 else Y
    groups = np.zeros(m, dtype=np.intp) if groups is None else np.asarray(groups)
    if m < 2:
        raise ValueError(f"X must have at least two rows, got {m}.")
    if len(Y) != m or len(groups) != m:
        raise ValueError(f"Y and groups must have one entry a row of X, got {len(Y)} and {len(groups)} for {m} rows.")
    if not np.isfinite(Y).all():
        raise ValueError("Y must be finite, got NaN or infinity; drop those rows.")
    if not np.ptp(Y, axis=0).any():
        raise ValueError("Y must vary, got a constant target, with which no kernel can align.")
    if isinstance(family, FeatureFamily):
        return FeatureMoments.of(family, X, Y, groups)
    blocks = RowBlocks.of(groups, block_rows or block_rows_for(family.n_seeds if compiled else family.n_kernels))
    X_sorted, Y_sorted = X[blocks.order], (Y - Y.mean(axis=0))[blocks.order]
    moves = family.translates and not sparse.issparse(X)
    origin = X.mean(axis=0) if moves else np.zeros(X.shape[1])
    X_sorted = move(X_sorted, origin)
    shift = choose_shift(family, X_sorted)
    X_sorted = X_sorted.astype(dtype, copy=False)
    if mapper is None:
        part = _map_here(family, X_sorted, Y_sorted, blocks, shift, compiled, n_threads or cpu_count())
    else:
        part = mapper(family, X_sorted, Y_sorted, blocks, shift)
    return GramMoments.from_part(family, blocks, Y_sorted, shift, origin, part)


def _map_here(
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    blocks: RowBlocks,
    shift: np.ndarray,
    compiled: bool,
    n_threads: int,
) -> MomentsPart:
    """Return the sums over all tiles, by threads of this process: the work is outside the interpreter's lock."""
    work = list(blocks.super_tiles(SUPER_TILE))
    with ThreadPoolExecutor(min(n_threads, len(work))) as threads:
        parts = threads.map(lambda pairs: moments_part(family, X, Y, blocks, shift, pairs, compiled), work)
        return reduce(add, parts)
