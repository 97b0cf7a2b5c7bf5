"""Alignment statistics of unions of folds, from one pass or from features."""

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
from ..engine.passes import (
    RowBlocks,
    block_rows_of,
    choose_shift,
    pass_over_tiles,
    sample_rows,
)
from ..engine.workers import Threads, Workers
from ..families.base import KernelFamily, Rows, as_rows
from ..families.composed import DividedFamily, divisors_for
from ..families.feature import FeatureFamily
from ..validation import require_one_of
from ..weights import as_sample_weight

Normalization = Literal["trace", "frobenius", "none"]

NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)

LARGEST_RATIO = 2.0**500
"""Largest ratio of sizes of base kernels that are not normalized."""

LARGEST_TRACE = 2.0**1020
"""Largest trace of a base kernel, close to overflow."""

SMALLEST_VALUE = 2.0**-1000
"""Smallest size of a base kernel, close to underflow."""


@dataclass(frozen=True, eq=False, repr=False)
class AlignmentStatistics(Value, ABC):
    r"""Traces of p base kernels, and inner products with each other and the target.

    If `centered`, base kernels and targets are centered on these rows. A weight
    w has the effect of w copies. With D the diagonal of the weights, and W their sum,

    .. math:: K_c = H K H^\top, \quad H = I - \tfrac1W \mathbf 1 \mathbf 1^\top D, \qquad
              \langle K, L \rangle_F = \operatorname{tr}(D K D L), \qquad \operatorname{tr} K = \sum_i w_i K_{ii}

    `rows` are positions in the data set, sorted by fold group, and `group` positions in
    `labels`, shape (m,). `targets`, shape (m, q), are ``Y - target_mean``, the weighted
    mean over all rows of the pass. `origin` was subtracted from every row, shape (d,),
    and `shift` from the base kernels, shape (p,). `divisors`, shape (p,), are powers of
    two that divide base kernels beyond 2^200 or below 2^-200, or None.
    """

    refuses_constant: ClassVar[bool] = True

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
        """Number of rows, m."""
        return len(self.rows)

    @property
    def total_weight(self) -> float:
        """Sum of the weights of the rows, W."""
        if self.sample_weight is None:
            return float(self.n_rows)
        return float(self.sample_weight.sum())

    @property
    def n_kernels(self) -> int:
        """Number of base kernels, p."""
        return len(self.names)

    def _weighted(self, values: Rows, power: float = 1.0) -> Rows:
        """Multiply values, shape (m, ...), by a power of the weights."""
        if self.sample_weight is None:
            return values
        factors = (self.sample_weight**power)[:, None]
        if sparse.issparse(values):
            return values.multiply(factors).tocsr()
        return values * factors

    def divided(self, values: np.ndarray) -> np.ndarray:
        """Divide values per base kernel, shape (p, ...), by its divisor (power of two)."""
        if self.divisors is None:
            return values
        return values / self.divisors.reshape(-1, *[1] * (values.ndim - 1))

    def multiplied(self, values: np.ndarray) -> np.ndarray:
        """Multiply values per base kernel, shape (p, ...), by its divisor (power of two)."""
        if self.divisors is None:
            return values
        return values * self.divisors.reshape(-1, *[1] * (values.ndim - 1))

    # Products and traces ---------------------------------------------------------------------------------------------

    def products(self, centered: bool = True) -> np.ndarray:
        """Return M, the Frobenius products of the base kernels, shape (p, p).

        If uncentered, raises ValueError if the pass moved the rows (`keep_origin`).
        """
        if centered not in self._cached_products:
            self._cached_products[centered] = self._products(centered)
        return self._cached_products[centered]

    @cached_property
    def _cached_products(self) -> dict[bool, np.ndarray]:
        return {}

    @abstractmethod
    def _products(self, centered: bool) -> np.ndarray:
        """Return M, shape (p, p)."""

    def squared_norms(self, centered: bool = True) -> np.ndarray:
        """Return the squared Frobenius norms of the base kernels, shape (p,)."""
        return np.diag(self.products(centered))

    def norms(self, centered: bool = True) -> np.ndarray:
        """Return the Frobenius norms of the base kernels, shape (p,)."""
        return np.sqrt(np.maximum(self.squared_norms(centered), 0.0))

    @abstractmethod
    def target_products(self, centered: bool = True) -> np.ndarray:
        """Return a, the Frobenius products of base kernels with the target kernel, (p,)."""

    @abstractmethod
    def traces(self, centered: bool = True) -> np.ndarray:
        """Return the trace of each base kernel, shape (p,)."""

    @property
    @abstractmethod
    def constant(self) -> np.ndarray:
        """Mask of constant base kernels, shape (p,)."""

    @abstractmethod
    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        """Return row means of ``sum_k coefficients_k (K_k - shift_k)``, shape (m,).

        Coefficients of shape (r, p) give shape (r, m).
        """

    def _squared_norm(self, mu: np.ndarray) -> float:
        """Return the squared norm of the centered ``sum_k mu_k K_k``."""
        return float(mu @ self.products() @ mu)

    # Targets and alignments ------------------------------------------------------------------------------------------

    def _targets(self, centered: bool) -> np.ndarray:
        if centered:
            return self.targets - mean_over(self.targets, self.sample_weight)
        return self.targets + self.target_mean

    def target_norm(self, centered: bool = True) -> float:
        """Return the Frobenius norm of the target kernel."""
        Y = self._weighted(self._targets(centered), 0.5)
        return float(np.linalg.norm(Y.T @ Y))

    @property
    def alignments(self) -> np.ndarray:
        """Centered alignment of each base kernel, shape (p,); zero if constant."""
        return self._alignments(True, self.constant)

    @property
    def uncentered_alignments(self) -> np.ndarray:
        """Uncentered alignment of each base kernel, shape (p,).

        See Cristianini et al. (2001), NIPS 14; A in JMLR 2012, section 2.3.
        """
        return self._alignments(False, self.norms(False) <= 0)

    def _alignments(self, centered: bool, is_zero: np.ndarray) -> np.ndarray:
        products = np.where(is_zero, 0.0, self.target_products(centered))
        norms = np.where(is_zero, 1.0, self.norms(centered))
        return products / (norms * self.target_norm(centered))

    def alignment(self, mu: np.ndarray) -> float:
        """Return the centered alignment of the kernel with weights mu."""
        mu = np.asarray(mu, dtype=np.float64)
        if self.constant[mu != 0].all():
            return 0.0
        if self.divisors is not None:
            mu = self.multiplied(mu)
            # Prevents overflow; alignments do not depend on scale.
            mu = mu / np.abs(mu).max()
        return float(
            mu
            @ self.target_products()
            / (np.sqrt(self._squared_norm(mu)) * self.target_norm())
        )

    # Scales and checks -----------------------------------------------------------------------------------------------

    def scales(self, normalize: Normalization, centered: bool = True) -> np.ndarray:
        """Return the divisor by which each base kernel is normalized, shape (p,).

        With "none", all are equal: one, or a power of two for extreme values.
        """
        if normalize == "trace":
            return np.abs(self.traces(centered))
        if normalize == "frobenius":
            return self.multiplied(self.norms(centered))
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
        """Return a mask of the base kernels that are zero, shape (p,)."""
        if centered:
            return self.constant
        return self.traces(False) <= 0

    def require_informative(self, centered: bool = True) -> None:
        """Raise ValueError if the target is constant or base kernels are zero."""
        # Without the mean over all rows, constant targets are zero up to rounding.
        magnitude = (
            self.total_weight * mean_over(self.targets**2, self.sample_weight).sum()
        )
        if not self.target_norm() > (4 * np.finfo(np.float64).eps) ** 2 * magnitude:
            raise ValueError(
                "the target is constant on the training rows, so no kernel can align with it."
            )
        vanishing = self.vanishing(centered)
        if centered and self.refuses_constant and vanishing.any():
            names = ", ".join(self.names[k] for k in np.flatnonzero(vanishing))
            raise ValueError(
                f"base kernel {names} is constant on the {self.n_rows} training rows, so it can carry no weight; "
                "leave it out or change its parameters or columns."
            )
        if vanishing.all():
            problem = "base kernel is zero"
            advice = "others, or features that are not zero"
            if centered:
                problem = "feature is constant"
                advice = "features that vary"
            raise ValueError(
                f"every {problem} on the {self.n_rows} training rows, so none can carry weight; give {advice}."
            )

    # Fold groups and files -------------------------------------------------------------------------------------------

    @abstractmethod
    def restrict(self, groups: Sequence[int]) -> Self:
        """Restrict the statistics to a union of fold groups, without reading rows again.

        Parameters
        ----------
        groups : sequence of int
            Fold groups among `labels`.
        """

    def _selected(
        self, groups: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Return positions of groups and of rows, and their attributes."""
        unknown = sorted(set(groups) - set(self.labels))
        if unknown or not len(groups):
            raise ValueError(
                f"groups must be some of {list(self.labels)}, got {list(groups)}."
            )
        selected_groups = np.flatnonzero(np.isin(self.labels, list(groups)))
        rows = np.flatnonzero(np.isin(self.group, selected_groups))
        attributes: dict[str, Any] = {
            "labels": tuple(self.labels[g] for g in selected_groups),
            "rows": self.rows[rows],
            "group": np.searchsorted(selected_groups, self.group[rows]),
            "targets": self.targets[rows],
        }
        if self.sample_weight is not None:
            attributes["sample_weight"] = self.sample_weight[rows]
        return selected_groups, rows, attributes

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the statistics as named arrays, for `from_arrays`."""
        attributes = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: np.asarray(value)
            for name, value in attributes.items()
            if value is not None
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """Return statistics from the result of `to_arrays`."""
        attributes: dict[str, Any] = {
            item.name: arrays[item.name] for item in fields(cls) if item.name in arrays
        }
        attributes["names"] = tuple(str(name) for name in attributes["names"])
        attributes["labels"] = tuple(int(label) for label in attributes["labels"])
        return cls(**attributes)


@dataclass(frozen=True)
class NormalizedProducts:
    """Frobenius products of normalized base kernels, computed by ``np.asarray``.

    `kernels` are positions, and `scales` divisors.
    """

    statistics: AlignmentStatistics
    kernels: np.ndarray
    scales: np.ndarray
    centered: bool = True

    @property
    def target(self) -> np.ndarray:
        """Products of the base kernels with the target kernel, shape (k,)."""
        return np.asarray(
            self.statistics.target_products(self.centered)[self.kernels] / self._scales
        )

    @property
    def _scales(self) -> np.ndarray:
        """Scales of base kernels already divided by `divisors`."""
        divisors = self.statistics.divisors
        if divisors is None:
            return self.scales
        return self.scales / divisors[self.kernels]

    def diagonal(self) -> np.ndarray:
        return np.asarray(
            self.statistics.squared_norms(self.centered)[self.kernels] / self._scales**2
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        M = self.statistics.products(self.centered)
        if len(self.kernels) < self.statistics.n_kernels:
            M = M[np.ix_(self.kernels, self.kernels)]
        normalized = np.outer(self._scales, self._scales)
        return np.asarray(np.divide(M, normalized, out=normalized), dtype=dtype)


def require_normalization(normalize: str) -> None:
    require_one_of("normalize", normalize, NORMALIZATIONS)


@dataclass(frozen=True, eq=False, repr=False)
class GramStatistics(AlignmentStatistics):
    r"""Exact inner products of p base kernels and the target, for unions of folds.

    With D the diagonal of the weights w, W their sum, products :math:`G_{kl} = \langle
    K_k, K_l \rangle_F`, row sums :math:`r_k = K_k w`, totals :math:`s_k = w^\top r_k`
    and :math:`\bar y = Y^\top w / W`, for shifted kernels,

    .. math:: M_{kl} = \langle K_{kc}, K_{lc} \rangle_F
              = G_{kl} - \tfrac{2}{W} r_k^\top D r_l + \tfrac{s_k s_l}{W^2}
    .. math:: a_k = \langle K_{kc}, Y Y^\top \rangle_F = \langle K_k, Y Y^\top \rangle_F
              - 2 \bar y \cdot Y^\top D r_k + \lVert \bar y \rVert^2 s_k
    .. math:: \operatorname{tr} K_{kc} = \operatorname{tr} K_k - \tfrac{s_k}{W}

    Without centering, with `shift` c,

    .. math:: \langle K_k + c_k, K_l + c_l \rangle_F = G_{kl} + c_k s_l + c_l s_k + W^2 c_k c_l

    Attributes
    ----------
    raw : bool
        Whether uncentered statistics are available.
    block_products, block_targets, block_traces, row_sums : ndarray
        Arrays of shapes (F, F, p, p), (F, F, p), (F, p) and (F, p, m), from
        `pass_over_tiles`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.2.1 and Lemma 1.
    """

    raw: bool
    block_products: np.ndarray
    block_targets: np.ndarray
    block_traces: np.ndarray
    row_sums: np.ndarray

    @property
    def _weighted_sums(self) -> np.ndarray:
        """Row sums of shifted kernels times the weights, shape (p, m)."""
        return np.asarray(self._weighted(self.row_sums.sum(axis=0).T).T)

    @property
    def row_means(self) -> np.ndarray:
        """Row means of each base kernel minus `shift`, shape (p, m)."""
        return np.asarray(
            self.multiplied(self.row_sums.sum(axis=0)) / self.total_weight
        )

    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        if self.divisors is not None:
            coefficients = coefficients * self.divisors
        sums = np.tensordot(coefficients, self.row_sums, axes=(-1, 1)).sum(axis=-2)
        return np.asarray(sums / self.total_weight)

    def _products(self, centered: bool) -> np.ndarray:
        G = self.block_products.sum(axis=(0, 1))
        W = self.total_weight
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
        Dr = self._weighted_sums
        products = self.block_targets.sum(axis=(0, 1))
        if centered:
            mean = mean_over(self.targets, self.sample_weight)
            return (
                products
                - 2 * (Dr @ self.targets) @ mean
                + (mean @ mean) * Dr.sum(axis=1)
            )
        self._require_raw()
        b = self.target_mean
        total = self._weighted(self._targets(False)).sum(axis=0)
        products_of_shifted = (
            products + 2 * (Dr @ self.targets) @ b + (b @ b) * Dr.sum(axis=1)
        )
        return products_of_shifted + self.divided(self.shift) * (total @ total)

    def traces(self, centered: bool = True) -> np.ndarray:
        if centered:
            divided = (
                self.block_traces.sum(axis=0)
                - self._weighted_sums.sum(axis=1) / self.total_weight
            )
            return self.multiplied(divided)
        self._require_raw()
        return np.asarray(
            self.multiplied(self.block_traces.sum(axis=0))
            + self.total_weight * self.shift
        )

    @cached_property
    def constant(self) -> np.ndarray:
        """Mask of base kernels that are constant up to rounding, shape (p,)."""
        centered = self.squared_norms()
        shifted = np.einsum("ghkk->k", self.block_products)
        # A constant kernel equals its shift, so its shifted norm may be zero.
        uncentered = shifted + (self.total_weight * self.divided(self.shift)) ** 2
        return (centered <= 1e-13 * shifted) | (
            centered <= (4 * np.finfo(np.float64).eps) ** 2 * uncentered
        )

    def _require_raw(self) -> None:
        if not self.raw:
            raise ValueError(
                "uncentered statistics need the base kernels of the rows as given, got those of rows moved to their "
                "mean; pass keep_origin=True to gram_statistics."
            )

    def restrict(self, groups: Sequence[int]) -> GramStatistics:
        selected, rows, attributes = self._selected(groups)
        return replace(
            self,
            **attributes,
            block_products=self.block_products[np.ix_(selected, selected)],
            block_targets=self.block_targets[np.ix_(selected, selected)],
            block_traces=self.block_traces[selected],
            row_sums=self.row_sums[selected][:, :, rows],
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
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
    """Compute the products of base kernels with each other and with the target.

    Parameters
    ----------
    family : KernelFamily
        The p base kernels.
    X : ndarray or CSR matrix of shape (m, d)
        Rows, at least two.
    Y : ndarray of shape (m,) or (m, q)
        Numeric targets; labels as plus and minus one, or one column per class.
    groups : ndarray of int of shape (m,), optional
        Fold group of each row; by default 0.
    sample_weight : ndarray of shape (m,), optional
        Positive weights; a weight has the effect of that number of copies.
    keep_origin : bool, default False
        Whether not to move rows to their mean. Required for uncentered statistics of
        kernels that a move changes.
    block_rows : int, optional
        Rows per tile; by default chosen for the cache.
    dtype : {numpy.float64, numpy.float32}, default float64
        Precision of a tile. float32 takes two thirds of the time; errors are about
        1e-6.
    n_threads : int, optional
        Number of threads; by default one per core at most.
    workers : Workers, optional
        Workers for the pass, instead of threads.

    Returns
    -------
    statistics : GramStatistics or FeatureStatistics
        Statistics; a `FeatureFamily` needs no pass.

    Notes
    -----
    O(m^2 (d + p^2)) time, O(F p m) memory.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.2.1 and Lemma 1.
    """
    X = as_rows(X)
    m = X.shape[0]
    Y, groups = checked_targets_and_groups(m, Y, groups)
    if not np.isfinite(Y).all():
        raise ValueError("Y must be finite, got NaN or infinity; drop those rows.")
    if not np.ptp(Y, axis=0).any():
        raise ValueError(
            "Y must vary, got a constant target, with which no kernel can align."
        )
    w = as_sample_weight(sample_weight, m)
    if w is not None:
        _require_moderate(w, dtype)
    of_features = isinstance(family, FeatureFamily)
    blocks = RowBlocks.of(
        groups, block_rows or (m if of_features else block_rows_of(family, X)), w
    )
    target_mean = mean_over(Y, w)
    moves = (family.translates and not keep_origin) or of_features
    origin = (
        mean_over(X, w) if moves and not sparse.issparse(X) else np.zeros(X.shape[1])
    )
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
        return FeatureStatistics(
            **attributes,
            shift=np.zeros(family.n_kernels),
            columns=family.columns,
            X=features,
        )
    X_sorted = X[blocks.order]
    if origin.any():
        X_sorted -= origin
    divisors = extreme_divisors(family, X_sorted)
    summed = family if divisors is None else DividedFamily(family, divisors)
    shift = choose_shift(summed, X_sorted)
    products, target_products, traces, row_sums = pass_over_tiles(
        summed,
        X_sorted.astype(dtype, copy=False),
        attributes["targets"],
        blocks,
        shift,
        workers or Threads(n_threads),
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
    """Return powers of two that divide extreme base kernels, or None."""
    sample = sample_rows(X)
    sizes = np.abs(family.tile(sample, sample)).max(axis=(1, 2)).astype(np.float64)
    divisors = divisors_for(sizes)
    if divisors is None:
        return None
    beyond = (divisors != 1) & (
        (sizes > LARGEST_TRACE / X.shape[0]) | (sizes < SMALLEST_VALUE)
    )
    if beyond.any():
        k = int(beyond.argmax())
        raise ValueError(
            f"base kernel {family.names[k]} has values of up to {sizes[k]:.0e}, beyond what can be summed; multiply it "
            "by a number."
        )
    return divisors


def _require_moderate(w: np.ndarray, dtype: type[np.floating[Any]]) -> None:
    limit = float(np.finfo(dtype).max) ** (1 / 4)
    with np.errstate(over="ignore"):
        mean = float(w.mean())
    if not 1 / limit <= mean <= limit:
        raise ValueError(
            f"sample_weight must have a mean between {1 / limit:.0e} and {limit:.0e}, as statistics are products of "
            f"two weights, got a mean of {mean:g}; divide the weights by their mean."
        )


def checked_targets_and_groups(
    m: int, Y: np.ndarray, groups: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Check targets and fold groups; return arrays of shapes (m, q) and (m,)."""
    Y = np.asarray(Y, dtype=np.float64)
    if groups is None:
        groups = np.zeros(m, dtype=np.intp)
    groups = np.asarray(groups)
    if m < 2:
        raise ValueError(f"X must have at least two rows, got {m}.")
    if len(Y) != m or len(groups) != m:
        raise ValueError(
            f"Y and groups must have one entry per row of X, got {len(Y)} and {len(groups)} for {m} rows."
        )
    if Y.ndim == 1:
        Y = Y[:, None]
    return Y, groups


BLOCK = 512


@dataclass(frozen=True, eq=False, repr=False)
class FeatureStatistics(AlignmentStatistics):
    r"""Exact alignment statistics of p rank-one base kernels over m rows.

    With :math:`x_{kc}` the centered feature k, and D the diagonal of the weights,

    .. math:: M_{kl} = \langle K_{kc}, K_{lc} \rangle_F = (x_{kc}^\top D x_{lc})^2, \qquad
              a_k = \lVert Y_c^\top D x_{kc} \rVert^2, \qquad
              \operatorname{tr} K_{kc} = x_{kc}^\top D x_{kc}

    `columns`, shape (p,), has -1 for the constant feature. X, shape (m, p), has its
    origin subtracted. All statistics except `products` cost O(m p), or O(nnz).
    """

    refuses_constant = False

    columns: np.ndarray
    X: Rows

    @cached_property
    def constant(self) -> np.ndarray:
        high = self.X.max(axis=0)
        low = self.X.min(axis=0)
        if sparse.issparse(self.X):
            high = high.toarray()
            low = low.toarray()
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
        """Centered features times roots of the weights, shape (m, p)."""
        X_c = self.X - self._means
        X_c[:, self.constant] = 0.0
        return np.asarray(self._weighted(X_c, 0.5))

    @property
    def _raw(self) -> Rows:
        if sparse.issparse(self.X):
            return self.X
        return self.X + FeatureFamily(self.names, self.columns).origins(self.origin)

    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        return np.asarray((self.X @ (coefficients * self._means).T).T)

    def traces(self, centered: bool = True) -> np.ndarray:
        if centered:
            return self._centered_traces
        V = self._weighted(self._raw, 0.5)
        if sparse.issparse(V):
            return np.bincount(V.indices, weights=V.data**2, minlength=self.n_kernels)
        return np.einsum("ik,ik->k", V, V)

    def norms(self, centered: bool = True) -> np.ndarray:
        return self.traces(centered)

    @cached_property
    def _centered_traces(self) -> np.ndarray:
        means = self._means
        if sparse.issparse(self.X):
            m, p = self.X.shape
            weights_of_rows = self._weighted(np.ones((m, 1))).ravel()
            w = np.repeat(weights_of_rows, np.diff(self.X.indptr))
            deviations = self.X.data - means[self.X.indices]
            zeros = self.total_weight - np.bincount(
                self.X.indices, weights=w, minlength=p
            )
            squares = (
                np.bincount(self.X.indices, weights=w * deviations**2, minlength=p)
                + zeros * means**2
            )
            sums = (
                np.bincount(self.X.indices, weights=w * deviations, minlength=p)
                - zeros * means
            )
        else:
            deviations = self.X - means
            weighted = self._weighted(deviations)
            squares = np.einsum("ik,ik->k", weighted, deviations)
            sums = weighted.sum(axis=0)
        # The mean is rounded, so the deviations do not sum to zero exactly.
        return np.where(self.constant, 0.0, squares - sums**2 / self.total_weight)

    def squared_norms(self, centered: bool = True) -> np.ndarray:
        return self.traces(centered) ** 2

    def _products(self, centered: bool) -> np.ndarray:
        if centered:
            M = self._feature_products()
        else:
            V = self._weighted(self._raw, 0.5)
            if sparse.issparse(V):
                M = _sparse_products(V, np.zeros(self.n_kernels))
            else:
                M = np.asarray(V.T @ V)
        return np.square(M, out=M)

    def target_products(self, centered: bool = True) -> np.ndarray:
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
        mu = np.where(self.constant, 0.0, mu)
        active = np.flatnonzero(mu)
        if len(active) <= self.n_rows:
            return float(mu[active] @ self._feature_products(active) ** 2 @ mu[active])
        means = self.combined_row_means(mu)
        total = 0.0
        grand = float(mean_over(means, self.sample_weight))
        roots = self._weighted(np.ones((self.n_rows, 1)), 0.5)
        for i in range(0, self.n_rows, BLOCK):
            block = slice(i, i + BLOCK)
            K = FeatureFamily(self.n_kernels).combine(mu, self.X[block], self.X)
            subtract_means(K, means[block], means, grand, out=K)
            total += float(np.square(K * roots[block] * roots.T).sum())
        return total

    def _feature_products(
        self, kernels: np.ndarray | slice = slice(None)
    ) -> np.ndarray:
        """Return weighted products of centered features, shape (k, k)."""
        if not sparse.issparse(self.X):
            X_c = self._centered[:, kernels]
            G = X_c.T @ X_c
        else:
            X = self._weighted(self.X[:, kernels], 0.5)
            # The root of W on both sides makes the correction exactly symmetric.
            G = _sparse_products(X, np.sqrt(self.total_weight) * self._means[kernels])
            constant = self.constant[kernels]
            G[constant] = 0.0
            G[:, constant] = 0.0
        np.fill_diagonal(G, self._centered_traces[kernels])
        return np.asarray(G)

    def restrict(self, groups: Sequence[int]) -> FeatureStatistics:
        _, rows, attributes = self._selected(groups)
        return replace(self, **attributes, X=self.X[rows])

    def to_arrays(self) -> dict[str, np.ndarray]:
        arrays = super().to_arrays()
        del arrays["X"]
        if not sparse.issparse(self.X):
            return {**arrays, "features": np.asarray(self.X)}
        shape = np.asarray(self.X.shape)
        return {
            **arrays,
            "data": self.X.data,
            "indices": self.X.indices,
            "indptr": self.X.indptr,
            "shape": shape,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        if "features" in arrays:
            X = arrays["features"]
        else:
            parts = (arrays["data"], arrays["indices"], arrays["indptr"])
            X = sparse.csr_matrix(parts, shape=tuple(int(n) for n in arrays["shape"]))
        return super().from_arrays({**arrays, "X": X})


def _squared_lengths(rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("kq,kq->k", rows, rows))


def _sparse_products(X: Rows, means: np.ndarray) -> np.ndarray:
    """Return ``X' X - means means'`` by blocks of columns."""
    columns = X.tocsc()
    G = np.empty((len(means), len(means)))
    for j in range(0, len(means), BLOCK):
        block = slice(j, j + BLOCK)
        G[:, block] = (columns.T @ columns[:, block]).toarray()
        G[:, block] -= np.outer(means, means[block])
    return G
