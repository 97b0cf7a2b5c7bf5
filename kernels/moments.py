"""All that a two-stage learner needs of the base kernels, from one pass over tiles, for every union of folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from kernels.families.base import KernelFamily, Rows, as_rows
from kernels.threads import one_blas_thread

TILE_BYTES = 4 << 20
"""Target size of one tile of all p kernels: small enough for a core's cache, large enough for BLAS."""

SHIFT_SAMPLE = 64
"""Rows of the sample that chooses the constant to subtract from each kernel."""

Pair = tuple[int, int]


@dataclass(frozen=True)
class RowBlocks:
    """The rows of a data set sorted by fold group and cut into blocks; no block straddles two groups.

    Attributes
    ----------
    order : ndarray of shape (m,)
        Position in the data set of each sorted row; stable, so a group keeps its rows' order.
    bounds : ndarray of shape (n_blocks + 1,)
        Block b holds the sorted rows ``bounds[b]:bounds[b + 1]``.
    group : ndarray of shape (n_blocks,)
        Position in `labels` of the group of each block.
    labels : tuple of int
        The distinct fold groups, ascending.
    """

    order: np.ndarray
    bounds: np.ndarray
    group: np.ndarray
    labels: tuple[int, ...]

    @classmethod
    def of(cls, groups: np.ndarray, block_rows: int) -> RowBlocks:
        """Return the blocks of at most `block_rows` rows for the fold group of each row."""
        labels, codes = np.unique(groups, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        bounds, group = [0], []
        for g, size in enumerate(np.bincount(codes, minlength=len(labels))):
            pieces = -(-int(size) // block_rows)
            start = bounds[-1]
            bounds += [start + size * (i + 1) // pieces for i in range(pieces)]
            group += [g] * pieces
        return cls(order, np.asarray(bounds), np.asarray(group), tuple(int(label) for label in labels))

    def __len__(self) -> int:
        return len(self.group)

    def rows(self, block: int) -> slice:
        """Return the sorted rows of a block."""
        return slice(int(self.bounds[block]), int(self.bounds[block + 1]))

    def super_tiles(self, rows: int) -> Iterator[list[Pair]]:
        """Yield lists of block pairs (i <= j); together they hold every unordered pair once.

        A list covers about `rows` by `rows` pairs of rows: the unit of work of one distributed task.
        """
        cuts = [0]
        for b in range(1, len(self)):
            if self.bounds[b + 1] - self.bounds[cuts[-1]] > rows:
                cuts.append(b)
        spans = [range(start, stop) for start, stop in zip(cuts, [*cuts[1:], len(self)], strict=True)]
        for s, first in enumerate(spans):
            for second in spans[s:]:
                yield [(i, j) for i in first for j in second if i <= j]


@dataclass
class MomentsPart:
    """Sums over some tiles; adding two parts over disjoint tiles gives the part over both.

    Addition is associative and commutative up to rounding, and a part stays small: its row sums cover only
    the row blocks that its tiles touch.

    Attributes
    ----------
    products : ndarray of shape (F, F, p, p)
        ``<K_k, K_l>`` over the rows of one fold group and the columns of another.
    target_products : ndarray of shape (F, F, p)
        ``sum_ij K_k(i, j) y_i . y_j`` over the same blocks.
    traces : ndarray of shape (F, p)
    row_sums : dict of block -> ndarray of shape (F, p, rows of the block)
        Sums of each kernel's rows, over the columns of each fold group.
    """

    products: np.ndarray
    target_products: np.ndarray
    traces: np.ndarray
    row_sums: dict[int, np.ndarray] = field(default_factory=dict)

    @classmethod
    def zero(cls, n_groups: int, n_kernels: int) -> MomentsPart:
        """Return the part over no tile."""
        F, p = n_groups, n_kernels
        return cls(np.zeros((F, F, p, p)), np.zeros((F, F, p)), np.zeros((F, p)))

    def __add__(self, other: MomentsPart) -> MomentsPart:
        row_sums = dict(self.row_sums)
        for block, sums in other.row_sums.items():
            row_sums[block] = row_sums[block] + sums if block in row_sums else sums
        return MomentsPart(
            self.products + other.products,
            self.target_products + other.target_products,
            self.traces + other.traces,
            row_sums,
        )


def choose_shift(family: KernelFamily, X: Rows) -> np.ndarray:
    """Return the constant to subtract from each base kernel: its mean over pairs of a few rows spread over `X`.

    Nothing that is centered depends on it. It keeps the digits of a nearly constant kernel, and of one whose
    values nearly all equal zero, through the cancellations of the centering identities.
    """
    sample = X[np.unique(np.linspace(0, X.shape[0] - 1, SHIFT_SAMPLE).astype(np.intp))]
    return family.tile(sample, sample).mean(axis=(1, 2))


def block_rows_for(family: KernelFamily) -> int:
    """Return the number of rows of a block for which one tile of `family` fits a core's cache."""
    return int(np.clip(np.sqrt(TILE_BYTES / (8 * family.n_kernels)), 32, 512))


def moments_part(
    family: KernelFamily, X: Rows, Y: np.ndarray, blocks: RowBlocks, shift: np.ndarray, pairs: Iterable[Pair]
) -> MomentsPart:
    """Return the sums over the tiles of some block pairs.

    Parameters
    ----------
    family : KernelFamily
        p base kernels.
    X : ndarray or CSR matrix of shape (m, d)
        Rows sorted as ``X[blocks.order]``. Not modified.
    Y : ndarray of shape (m, q)
        Targets in the same order. Not modified.
    blocks : RowBlocks
        The cut of the rows.
    shift : ndarray of shape (p,)
        Constants to subtract; the same for every part of a whole.
    pairs : iterable of (int, int)
        Block pairs, the first not above the second; a pair off the diagonal also stands for its transpose.

    Returns
    -------
    part : MomentsPart

    Notes
    -----
    A pair of rows costs about ``2 d + p (p + 1)`` flops and, for Gaussians on a power-of-two grid, one
    exponential. Memory is one tile.
    """
    part = MomentsPart.zero(len(blocks.labels), family.n_kernels)
    with one_blas_thread():
        _add_tiles(part, family, X, Y, blocks, shift, pairs)
    return part


def _add_tiles(
    part: MomentsPart,
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    blocks: RowBlocks,
    shift: np.ndarray,
    pairs: Iterable[Pair],
) -> None:
    p = family.n_kernels
    loaded: tuple[int, Rows] = (-1, X)
    for i, j in pairs:
        if loaded[0] != i:
            loaded = (i, X[blocks.rows(i)])
        A = loaded[1]
        B = A if i == j else X[blocks.rows(j)]
        E = family.tile(A, B, shift)
        g, h = blocks.group[i], blocks.group[j]
        flat = E.reshape(p, -1)
        G = flat @ flat.T
        T = np.einsum("kaq,aq->k", E @ Y[blocks.rows(j)], Y[blocks.rows(i)])
        part.products[g, h] += G
        part.target_products[g, h] += T
        _add_row_sums(part, i, h, E.sum(axis=2))
        if i == j:
            part.traces[g] += np.einsum("kaa->k", E)
        else:
            part.products[h, g] += G
            part.target_products[h, g] += T
            _add_row_sums(part, j, g, E.sum(axis=1))


def _add_row_sums(part: MomentsPart, block: int, group: int, sums: np.ndarray) -> None:
    n_groups = len(part.traces)
    if block not in part.row_sums:
        part.row_sums[block] = np.zeros((n_groups, *sums.shape))
    part.row_sums[block][group] += sums


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
    products: np.ndarray
    target_products: np.ndarray
    traces: np.ndarray
    row_sums: np.ndarray

    @classmethod
    def from_part(
        cls, family: KernelFamily, blocks: RowBlocks, Y: np.ndarray, shift: np.ndarray, part: MomentsPart
    ) -> GramMoments:
        """Return the moments of a whole pass.

        Raises
        ------
        ValueError
            The part does not cover every row block.
        """
        missing = [b for b in range(len(blocks)) if b not in part.row_sums]
        if missing:
            raise ValueError(f"part must cover every row block, {len(missing)} of {len(blocks)} are missing.")
        return cls(
            names=family.names,
            labels=blocks.labels,
            rows=blocks.order,
            group=np.repeat(blocks.group, np.diff(blocks.bounds)),
            targets=Y,
            shift=shift,
            products=part.products,
            target_products=part.target_products,
            traces=part.traces,
            row_sums=np.concatenate([part.row_sums[b] for b in range(len(blocks))], axis=2),
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


def gram_moments(
    family: KernelFamily,
    X: Rows,
    Y: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    block_rows: int | None = None,
    mapper: Mapper | None = None,
) -> GramMoments:
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
    mapper : callable, optional
        Does the pass: ``mapper(family, X_sorted, Y_sorted, blocks, shift) -> MomentsPart`` over all block pairs.
        By default every tile is computed here, one after the other.

    Returns
    -------
    moments : GramMoments

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
    blocks = RowBlocks.of(groups, block_rows or block_rows_for(family))
    X_sorted, Y_sorted = X[blocks.order], (Y - Y.mean(axis=0))[blocks.order]
    shift = choose_shift(family, X_sorted)
    part = (mapper or _map_here)(family, X_sorted, Y_sorted, blocks, shift)
    return GramMoments.from_part(family, blocks, Y_sorted, shift, part)


def _map_here(family: KernelFamily, X: Rows, Y: np.ndarray, blocks: RowBlocks, shift: np.ndarray) -> MomentsPart:
    pairs = ((i, j) for i in range(len(blocks)) for j in range(i, len(blocks)))
    return moments_part(family, X, Y, blocks, shift, pairs)
