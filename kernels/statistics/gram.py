"""Alignment statistics for every union of folds: from one pass over tiles, or from the features of rank-one kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from scipy import sparse

from ..base import Value
from ..centering import mean_over, subtract_means
from ..engine.passes import RowBlocks, block_rows_of, choose_shift, pass_over_tiles, sample_rows
from ..engine.workers import Threads, Workers
from ..families.base import KernelFamily, Rows, as_rows
from ..families.composed import DividedFamily, divisors_for
from ..families.feature import FeatureFamily
from ..validation import require_one_of
from ..weights import as_sample_weight

Normalization = Literal["trace", "frobenius", "none"]

NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)
"""What base kernels may be divided by before a learner sees them: their traces, their norms, or nothing."""

LARGEST_RATIO = 2.0**500
"""Largest ratio of sizes of base kernels that are not normalized."""

LARGEST_VALUE, LEAST_VALUE = 2.0**1020, 2.0**-1000
"""Of a kernel: the sum of its diagonal must be a number, and its values must have digits."""


@dataclass(frozen=True, eq=False, repr=False)
class AlignmentStatistics(Value, ABC):
    r"""First-stage statistics of p base kernels over m rows: products with each other and with the target, and traces.

    `GramStatistics` has them from tiles, `FeatureStatistics` from features and `SampledStatistics` from some of the
    rows. All take `centered`: whether base kernels and targets are centered on the rows held, or as given.

    A row of weight w counts as w copies of it. With D the diagonal matrix of the weights and W their sum, a kernel is
    centered by the weighted mean and products count pairs of rows by both their weights,

    .. math:: K_c = H K H^\top, \quad H = I - \tfrac1W \mathbf 1 \mathbf 1^\top D, \qquad
              \langle K, L \rangle_F = \operatorname{tr}(D K D L), \qquad \operatorname{tr} K = \sum_i w_i K_{ii}

    so that these are the products and traces of the repeated rows. Without weights D = I and W = m.

    Attributes
    ----------
    names : tuple of str
        The base kernels.
    labels : tuple of int
        The fold groups held.
    rows : ndarray of shape (m,)
        Position in the data set of each row, sorted by group; whatever is kept by row follows it.
    group : ndarray of shape (m,)
        Position in `labels` of each row's group.
    targets : ndarray of shape (m, q)
        Y, less `target_mean`.
    target_mean : ndarray of shape (q,)
        Weighted mean of Y over all rows of the pass, whatever rows are held.
    origin : ndarray of shape (d,)
        Subtracted from every row before a kernel sees it: the mean row where that changes no centered kernel, or zero.
    shift : ndarray of shape (p,)
        Constant subtracted from each base kernel.
    sample_weight : ndarray of shape (m,) or None
        w, the weight of each row; None where each counts once.
    divisors : ndarray of shape (p,) or None
        Powers of two; products and squared norms are of base kernels divided by these. None where all are one: only
        values beyond 2^200 or below 2^-200 are divided, as their products overflow or vanish.
    """

    refuses_constant: ClassVar[bool] = True  # rank-one features may be constant among others

    names: tuple[str, ...]
    labels: tuple[int, ...]
    rows: np.ndarray
    group: np.ndarray
    targets: np.ndarray
    target_mean: np.ndarray
    origin: np.ndarray
    shift: np.ndarray
    sample_weight: np.ndarray | None = field(default=None, kw_only=True)
    divisors: np.ndarray | None = field(default=None, kw_only=True)

    @property
    def n_rows(self) -> int:
        """m, the number of rows, whatever they weigh."""
        return len(self.rows)

    @property
    def total_weight(self) -> float:
        """W, the sum of the rows' weights: how many rows they count as."""
        return float(self.n_rows if self.sample_weight is None else self.sample_weight.sum())

    @property
    def n_kernels(self) -> int:
        """p, the number of base kernels."""
        return len(self.names)

    def _weighted(self, values: Rows, power: float = 1.0) -> Rows:
        """Return values of the rows, shape (m, ...), times a power of the rows' weights; the values themselves without.

        Products of values times the roots of the weights are sums over weighted rows, and symmetric to the last digit.
        """
        if self.sample_weight is None:
            return values
        factors = (self.sample_weight**power)[:, None]
        return values.multiply(factors).tocsr() if sparse.issparse(values) else values * factors

    def divided(self, values: np.ndarray) -> np.ndarray:
        """Return values of the base kernels, shape (p, ...), as they are of the kernels divided by `divisors`."""
        if self.divisors is None:
            return values
        return values / self.divisors.reshape(-1, *[1] * (values.ndim - 1))

    def multiplied(self, values: np.ndarray) -> np.ndarray:
        """Return values of the base kernels divided by `divisors`, shape (p, ...), as they are of the kernels."""
        if self.divisors is None:
            return values
        return values * self.divisors.reshape(-1, *[1] * (values.ndim - 1))

    # Products and traces ---------------------------------------------------------------------------------------------

    def products(self, centered: bool = True) -> np.ndarray:
        """Return M, the Frobenius products of the base kernels, shape (p, p); formed once, on first use.

        Raises
        ------
        ValueError
            Kernels as given are requested, but the pass moved the rows and that changes them; see `keep_origin` of
            `gram_statistics`. So do all statistics of base kernels as given.
        """
        if centered not in self._formed:
            self._formed[centered] = self._products(centered)
        return self._formed[centered]

    @cached_property
    def _formed(self) -> dict[bool, np.ndarray]:
        return {}

    @abstractmethod
    def _products(self, centered: bool) -> np.ndarray:
        """Return M, shape (p, p)."""

    def squared_norms(self, centered: bool = True) -> np.ndarray:
        """Return the squared Frobenius norms of the base kernels, shape (p,); without their products if possible."""
        return np.diag(self.products(centered))

    @abstractmethod
    def target_products(self, centered: bool = True) -> np.ndarray:
        """Return a, the Frobenius products of the base kernels with the target kernel, shape (p,)."""

    @abstractmethod
    def traces(self, centered: bool = True) -> np.ndarray:
        """Return the trace of each base kernel, shape (p,)."""

    @property
    @abstractmethod
    def constant(self) -> np.ndarray:
        """Whether each base kernel is constant on the rows held, shape (p,)."""

    @abstractmethod
    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the row means of ``sum_k coefficients_k (K_k - shift_k)`` over the rows held, shape (m,).

        Of several sums, with `coefficients` of shape (r, p), those of each, shape (r, m).
        """

    def _squared_norm(self, mu: np.ndarray) -> float:
        """Return the squared Frobenius norm of the centered ``sum_k mu_k K_k``."""
        return float(mu @ self.products() @ mu)

    # Targets and alignments ------------------------------------------------------------------------------------------

    def _targets(self, centered: bool) -> np.ndarray:
        """Return the targets, centered on the rows held or as given, shape (m, q)."""
        if centered:
            return self.targets - mean_over(self.targets, self.sample_weight)
        return self.targets + self.target_mean

    def target_norm(self, centered: bool = True) -> float:
        """Return the Frobenius norm of the target kernel, which is not formed."""
        Y = self._weighted(self._targets(centered), 0.5)
        return float(np.linalg.norm(Y.T @ Y))

    @property
    def alignments(self) -> np.ndarray:
        """Centered alignment of each base kernel with the target kernel, shape (p,); zero for a constant one."""
        return self._alignments(True, self.constant)

    @property
    def uncentered_alignments(self) -> np.ndarray:
        """Alignment of each base kernel with the target kernel, both as given, shape (p,); zero for a zero kernel.

        References
        ----------
        Cristianini, Shawe-Taylor, Elisseeff, Kandola (2001), NIPS 14; JMLR 2012, section 2.3, calls it A.
        """
        return self._alignments(False, self.squared_norms(False) <= 0)

    def _alignments(self, centered: bool, zero: np.ndarray) -> np.ndarray:
        products = np.where(zero, 0.0, self.target_products(centered))
        return products / (np.sqrt(np.where(zero, 1.0, self.squared_norms(centered))) * self.target_norm(centered))

    def alignment(self, mu: np.ndarray) -> float:
        """Return the centered alignment of ``sum_k mu_k K_k``, base kernels as given, with the target kernel.

        Zero for a sum that is constant.
        """
        mu = np.asarray(mu, dtype=np.float64)
        if self.constant[mu != 0].all():
            return 0.0
        if self.divisors is not None:  # the length of the weights does not count
            mu = self.multiplied(mu)
            mu = mu / np.abs(mu).max()
        return float(mu @ self.target_products() / (np.sqrt(self._squared_norm(mu)) * self.target_norm()))

    # What learners ask -----------------------------------------------------------------------------------------------

    def scales(self, normalize: Normalization, centered: bool = True) -> np.ndarray:
        """Return what each base kernel is divided by before a learner sees it, shape (p,).

        With "none" that is one, or one power of two for all base kernels where some have extreme values.

        Raises
        ------
        ValueError
            With "none", base kernels differ in size by so much that the products of the small ones vanish.
        """
        if normalize == "trace":
            return self.traces(centered)
        if normalize == "frobenius":
            return self.multiplied(np.sqrt(self.squared_norms(centered)))
        if self.divisors is None:
            return np.ones(self.n_kernels)
        largest, smallest = int(self.divisors.argmax()), int(self.divisors.argmin())
        if self.divisors[largest] / LARGEST_RATIO > self.divisors[smallest]:
            raise ValueError(
                f"base kernels {self.names[largest]} and {self.names[smallest]} differ in size by more than "
                f"{LARGEST_RATIO:.0e}, got normalize='none'; use 'trace' or 'frobenius'."
            )
        return np.full(self.n_kernels, self.divisors[largest])

    def vanishing(self, centered: bool = True) -> np.ndarray:
        """Return whether each base kernel is zero, so that it can carry no weight, shape (p,)."""
        return self.constant if centered else self.traces(False) <= 0

    def require_informative(self, centered: bool = True) -> None:
        """Raise ValueError if the target is constant, or base kernels that are zero leave a learner nothing to weigh.

        Base kernels that are not centered may be constant.
        """
        # Targets are kept less their mean over the whole pass, so a constant one is zero or that mean's rounding.
        magnitude = self.total_weight * mean_over(self.targets**2, self.sample_weight).sum()
        if not self.target_norm() > (4 * np.finfo(np.float64).eps) ** 2 * magnitude:
            raise ValueError("the target is constant on the training rows, so no kernel can align with it.")
        vanishing = self.vanishing(centered)
        if centered and self.refuses_constant and vanishing.any():
            names = ", ".join(self.names[k] for k in np.flatnonzero(vanishing))
            raise ValueError(
                f"base kernel {names} is constant on the {self.n_rows} training rows, so it can carry no weight; "
                "leave it out or change its parameters or columns."
            )
        if vanishing.all():
            every = "feature is constant" if centered else "base kernel is zero"
            other = "features that vary" if centered else "others, or features that are not zero"
            raise ValueError(
                f"every {every} on the {self.n_rows} training rows, so none can carry weight; give {other}."
            )

    # Fold groups and files -------------------------------------------------------------------------------------------

    @abstractmethod
    def restrict(self, groups: Sequence[int]) -> Self:
        """Return the statistics of the rows of some fold groups alone, without another pass.

        Parameters
        ----------
        groups : sequence of int
            Fold groups, each one of `labels`.

        Raises
        ------
        ValueError
            A group is not held, or none is given.
        """

    def _held(self, groups: Sequence[int]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Return positions of some fold groups and of their rows, and the attributes of this class for these alone.

        Raises
        ------
        ValueError
            A group is not held, or none is given.
        """
        unknown = sorted(set(groups) - set(self.labels))
        if unknown or not len(groups):
            raise ValueError(f"groups must be some of {list(self.labels)}, got {list(groups)}.")
        keep = np.flatnonzero(np.isin(self.labels, list(groups)))
        held = np.flatnonzero(np.isin(self.group, keep))
        attributes = {
            "labels": tuple(self.labels[g] for g in keep),
            "rows": self.rows[held],
            "group": np.searchsorted(keep, self.group[held]),
            "targets": self.targets[held],
            "sample_weight": None if self.sample_weight is None else self.sample_weight[held],
        }
        return keep, held, attributes

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays, without any object dtype, that `from_arrays` reads back."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: np.asarray(value) for name, value in given.items() if value is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """Return the statistics that `to_arrays` was called on; others' arrays are left alone."""
        given: dict[str, Any] = {name: arrays[name] for item in fields(cls) if (name := item.name) in arrays}
        given["names"] = tuple(str(name) for name in given["names"])
        given["labels"] = tuple(int(label) for label in given["labels"])
        return cls(**given)


@dataclass(frozen=True)
class NormalizedProducts:
    """M of some normalized base kernels, formed when its entries are requested.

    Attributes
    ----------
    statistics : AlignmentStatistics
    kernels : ndarray of int of shape (k,)
        Positions of the base kernels.
    scales : ndarray of shape (k,)
        What each is divided by.
    centered : bool
        Whether M is that of centered base kernels.
    """

    statistics: AlignmentStatistics
    kernels: np.ndarray
    scales: np.ndarray
    centered: bool = True

    @property
    def target(self) -> np.ndarray:
        """The products with the target kernel, shape (k,)."""
        return np.asarray(self.statistics.target_products(self.centered)[self.kernels] / self._scales)

    @property
    def _scales(self) -> np.ndarray:
        """What each base kernel, divided by its divisor, is divided by."""
        divisors = self.statistics.divisors
        return self.scales if divisors is None else self.scales / divisors[self.kernels]

    def diagonal(self) -> np.ndarray:
        """Return the diagonal, shape (k,)."""
        return np.asarray(self.statistics.squared_norms(self.centered)[self.kernels] / self._scales**2)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        M = self.statistics.products(self.centered)
        if len(self.kernels) < self.statistics.n_kernels:
            M = M[np.ix_(self.kernels, self.kernels)]
        normalized = np.outer(self._scales, self._scales)
        return np.asarray(np.divide(M, normalized, out=normalized), dtype=dtype)


def require_normalization(normalize: str) -> None:
    """Raise ValueError for a normalization that there is not."""
    require_one_of("normalize", normalize, NORMALIZATIONS)


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
        Of shapes (F, F, p, p), (F, F, p), (F, p) and (F, p, m), as `pass_over_tiles` returns them for base kernels
        divided by `divisors`.

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
        return np.asarray(self.multiplied(self.row_sums.sum(axis=0)) / self.total_weight)

    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the row means of ``sum_k coefficients_k (K_k - shift_k)`` over the rows held, shape (m,)."""
        if self.divisors is not None:
            coefficients = coefficients * self.divisors
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
        shift = self.divided(self.shift)
        shifts = np.outer(shift, self._weighted_sums.sum(axis=1) + W**2 * shift / 2)
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
        return of_shifted + self.divided(self.shift) * (total @ total)

    def traces(self, centered: bool = True) -> np.ndarray:
        """Return the trace of each base kernel, shape (p,)."""
        if centered:
            divided = self.block_traces.sum(axis=0) - self._weighted_sums.sum(axis=1) / self.total_weight
            return self.multiplied(divided)
        self._require_raw()
        return np.asarray(self.multiplied(self.block_traces.sum(axis=0)) + self.total_weight * self.shift)

    @cached_property
    def constant(self) -> np.ndarray:
        """Whether each base kernel is constant on the rows held, up to rounding, shape (p,)."""
        centered = self.squared_norms()
        around_shift = np.einsum("ghkk->k", self.block_products)
        # A kernel that is constant equals its shift up to rounding, and both norms are zero or rounding.
        whole = around_shift + (self.total_weight * self.divided(self.shift)) ** 2
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
        """Return the statistics that `to_arrays` was called on."""
        return super().from_arrays({**arrays, "raw": bool(arrays["raw"])})


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
        Weights of the rows, positive: one of weight w counts as w copies of it, so that traces grow with the weights
        and products with their squares. By default each counts once. Not modified.
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
        Lengths differ, fewer than two rows, `X` or `Y` is not finite, `Y` is constant, a weight is not positive, or
        products of weights are out of the range of numbers.

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
    if w is not None:
        _require_moderate(w, dtype)
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
    divisors = extreme_divisors(family, X_sorted)
    summed = family if divisors is None else DividedFamily(family, divisors)
    shift = choose_shift(summed, X_sorted)
    products, target_products, traces, row_sums = pass_over_tiles(
        summed, X_sorted.astype(dtype, copy=False), attributes["targets"], blocks, shift, workers or Threads(n_threads)
    )
    return GramStatistics(
        **attributes,
        divisors=divisors,
        shift=shift if divisors is None else shift * divisors,
        raw=family.translation_invariant or not origin.any(),
        block_products=products,
        block_targets=target_products,
        block_traces=traces,
        row_sums=row_sums,
    )


def extreme_divisors(family: KernelFamily, X: Rows) -> np.ndarray | None:
    """Return powers of two next to the largest values of base kernels over a few rows, where some are extreme.

    Raises
    ------
    ValueError
        Values are so large that a trace of them overflows, or so small that they have lost digits.
    """
    sample = sample_rows(X)
    sizes = np.abs(family.tile(sample, sample)).max(axis=(1, 2)).astype(np.float64)
    divisors = divisors_for(sizes)
    if divisors is None:
        return None
    beyond = (divisors != 1) & ((sizes > LARGEST_VALUE / X.shape[0]) | (sizes < LEAST_VALUE))
    if beyond.any():
        k = int(beyond.argmax())
        raise ValueError(
            f"base kernel {family.names[k]} has values of up to {sizes[k]:.0e}, beyond what can be summed; multiply it "
            "by a number."
        )
    return divisors


def _require_moderate(w: np.ndarray, dtype: type[np.floating[Any]]) -> None:
    """Raise ValueError for weights whose products with each other and with kernels may overflow or vanish."""
    most = float(np.finfo(dtype).max) ** (1 / 4)
    with np.errstate(over="ignore"):
        mean = float(w.mean())
    if not 1 / most <= mean <= most:
        raise ValueError(
            f"sample_weight must have a mean between {1 / most:.0e} and {most:.0e}, as statistics are products of "
            f"two weights, got a mean of {mean:g}; divide the weights by their mean."
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


BLOCK = 512
"""Columns or rows of a product of sparse features that are formed at once."""


@dataclass(frozen=True, eq=False, repr=False)
class FeatureStatistics(AlignmentStatistics):
    r"""Exact statistics of p rank-one base kernels over m rows; see `AlignmentStatistics`.

    With :math:`x_{kc}` the k-th feature less its weighted mean over the rows held, and D the diagonal matrix of the
    weights (the identity without),

    .. math:: M_{kl} = \langle K_{kc}, K_{lc} \rangle_F = (x_{kc}^\top D x_{lc})^2, \qquad
              a_k = \lVert Y_c^\top D x_{kc} \rVert^2, \qquad
              \operatorname{tr} K_{kc} = x_{kc}^\top D x_{kc}

    The uncentered statistics are the same of features and targets as given.

    Attributes
    ----------
    columns : ndarray of int of shape (p,)
        Column of the data that each feature is; -1 for the constant one.
    X : ndarray or CSR matrix of shape (m, p)
        The features less their origin; not yet centered on the rows held.

    Notes
    -----
    No tile is formed, and `products` only for who asks: all else costs O(m p), for sparse features O(nnz). Sparse
    features stay sparse; they are centered by a correction of rank one, norms without cancellation. What is constant
    on the rows held has exactly zero products with everything, and alignment zero.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.2; M and a of section 3.2.1, by Lemma 1.
    """

    refuses_constant = False

    columns: np.ndarray
    X: Rows

    @cached_property
    def constant(self) -> np.ndarray:
        """Whether each feature is the same on all rows held, shape (p,)."""
        high, low = self.X.max(axis=0), self.X.min(axis=0)
        if sparse.issparse(self.X):
            high, low = high.toarray(), low.toarray()
        return np.ravel(high == low)

    @cached_property
    def _means(self) -> np.ndarray:
        if sparse.issparse(self.X) and self.sample_weight is not None:
            return np.asarray(self.X.T @ self.sample_weight / self.total_weight)
        if sparse.issparse(self.X):
            return np.asarray(self.X.mean(axis=0), dtype=np.float64).ravel()
        return mean_over(self.X, self.sample_weight)

    @property
    def _centered(self) -> np.ndarray:
        """The centered features times the roots of the rows' weights, of dense rows only, shape (m, p)."""
        X_c = self.X - self._means
        X_c[:, self.constant] = 0.0
        return np.asarray(self._weighted(X_c, 0.5))

    @property
    def _raw(self) -> Rows:
        """The features as given, shape (m, p)."""
        if sparse.issparse(self.X):
            return self.X
        return self.X + FeatureFamily(self.names, self.columns).origins(self.origin)

    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the row means of ``sum_k coefficients_k K_k`` over the rows held, shape (m,)."""
        return np.asarray((self.X @ (coefficients * self._means).T).T)

    def traces(self, centered: bool = True) -> np.ndarray:
        """Return the trace of each base kernel, shape (p,)."""
        return self._centered_traces if centered else np.sqrt(self.squared_norms(False))

    @cached_property
    def _centered_traces(self) -> np.ndarray:
        means = self._means
        if sparse.issparse(self.X):
            m, p = self.X.shape
            w = np.repeat(np.ones(m) if self.sample_weight is None else self.sample_weight, np.diff(self.X.indptr))
            deviations = self.X.data - means[self.X.indices]
            zeros = self.total_weight - np.bincount(self.X.indices, weights=w, minlength=p)
            squares = np.bincount(self.X.indices, weights=w * deviations**2, minlength=p) + zeros * means**2
            sums = np.bincount(self.X.indices, weights=w * deviations, minlength=p) - zeros * means
        else:
            deviations = self.X - means
            weighted = self._weighted(deviations)
            squares, sums = np.einsum("ik,ik->k", weighted, deviations), weighted.sum(axis=0)
        # The mean is rounded: what the deviations still sum to goes too.
        return np.where(self.constant, 0.0, squares - sums**2 / self.total_weight)

    def squared_norms(self, centered: bool = True) -> np.ndarray:
        """Return the squared Frobenius norms of the base kernels, shape (p,); their products are not formed."""
        if centered:
            return self._centered_traces**2
        V = self._weighted(self._raw, 0.5)
        if sparse.issparse(V):
            return np.bincount(V.indices, weights=V.data**2, minlength=self.n_kernels) ** 2
        return np.einsum("ik,ik->k", V, V) ** 2

    def _products(self, centered: bool) -> np.ndarray:
        if centered:
            M = self._feature_products()
        else:
            V = self._weighted(self._raw, 0.5)
            M = np.asarray(_sparse_products(V, np.zeros(self.n_kernels)) if sparse.issparse(V) else V.T @ V)
        return np.square(M, out=M)

    def target_products(self, centered: bool = True) -> np.ndarray:
        """Return a, the Frobenius products of the base kernels with the target kernel, shape (p,)."""
        if centered:
            return self._centered_target_products
        return _squared_lengths(self._raw.T @ self._weighted(self._targets(False)))

    @cached_property
    def _centered_target_products(self) -> np.ndarray:
        Y = self._targets(True)
        if sparse.issparse(self.X):
            Y = self._weighted(Y)
            products = self.X.T @ Y - np.outer(self._means, Y.sum(axis=0))
        else:
            products = self._centered.T @ self._weighted(Y, 0.5)
        return np.where(self.constant, 0.0, _squared_lengths(products))

    def _squared_norm(self, mu: np.ndarray) -> float:
        """Return the squared Frobenius norm of a weighted sum of centered base kernels.

        From the sum's (m, m) values, by blocks of rows, or from the features' products with each other, whichever are
        fewer; `products` is not used.
        """
        mu = np.where(self.constant, 0.0, mu)
        active = np.flatnonzero(mu)
        if len(active) <= self.n_rows:
            return float(mu[active] @ self._feature_products(active) ** 2 @ mu[active])
        means, total = self.combined_row_means(mu), 0.0
        grand = float(mean_over(means, self.sample_weight))
        roots = self._weighted(np.ones((self.n_rows, 1)), 0.5)
        for i in range(0, self.n_rows, BLOCK):
            block = slice(i, i + BLOCK)
            K = FeatureFamily(self.n_kernels).combine(mu, self.X[block], self.X)
            subtract_means(K, means[block], means, grand, out=K)
            total += float(np.square(K * roots[block] * roots.T).sum())
        return total

    def _feature_products(self, kernels: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the weighted products of some centered features with each other, shape (k, k)."""
        if not sparse.issparse(self.X):
            X_c = self._centered[:, kernels]
            G = X_c.T @ X_c
        else:
            X = self._weighted(self.X[:, kernels], 0.5)
            # The root of W on both sides keeps the correction symmetric to the last digit.
            G = _sparse_products(X, np.sqrt(self.total_weight) * self._means[kernels])
            constant = self.constant[kernels]
            G[constant] = 0.0
            G[:, constant] = 0.0
        np.fill_diagonal(G, self._centered_traces[kernels])
        return np.asarray(G)

    def restrict(self, groups: Sequence[int]) -> FeatureStatistics:
        """Return the statistics of the rows of some fold groups alone; takes those rows of the features."""
        _, held, attributes = self._held(groups)
        return replace(self, **attributes, X=self.X[held])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays, without any object dtype, that `from_arrays` reads back."""
        arrays = super().to_arrays()
        del arrays["X"]
        if not sparse.issparse(self.X):
            return {**arrays, "features": np.asarray(self.X)}
        shape = np.asarray(self.X.shape)
        return {**arrays, "data": self.X.data, "indices": self.X.indices, "indptr": self.X.indptr, "shape": shape}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """Return the statistics that `to_arrays` was called on."""
        if "features" in arrays:
            X = arrays["features"]
        else:
            parts = (arrays["data"], arrays["indices"], arrays["indptr"])
            X = sparse.csr_matrix(parts, shape=tuple(int(n) for n in arrays["shape"]))
        return super().from_arrays({**arrays, "X": X})


def _squared_lengths(rows: np.ndarray) -> np.ndarray:
    """Return the squared length of each row."""
    return np.asarray(np.einsum("kq,kq->k", rows, rows))


def _sparse_products(X: Rows, means: np.ndarray) -> np.ndarray:
    """Return ``X' X - means means'`` of sparse columns, shape (p, p), by blocks of columns."""
    columns = X.tocsc()
    G = np.empty((len(means), len(means)))
    for j in range(0, len(means), BLOCK):
        block = slice(j, j + BLOCK)
        G[:, block] = (columns.T @ columns[:, block]).toarray()
        G[:, block] -= np.outer(means, means[block])
    return G
