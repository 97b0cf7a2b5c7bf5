"""What first-stage statistics have in common, whether they came from tiles, from features or from a sample."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from scipy import sparse

from learnkernels.kernels.centering import mean_over
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.parameters import Value
from learnkernels.kernels.registry import require_one_of

Normalization = Literal["trace", "frobenius", "none"]

NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)
"""What base kernels may be divided by before a learner sees them: their traces, their norms, or nothing."""

RENAMED = {
    "frobenius": ("products", True),
    "target": ("target_products", True),
    "centered_traces": ("traces", True),
    "uncentered_frobenius": ("products", False),
    "uncentered_target": ("target_products", False),
    "uncentered_traces": ("traces", False),
}
"""Attributes up to version 0.2, and the methods that took their place."""


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

    def __getattr__(self, name: str) -> Any:
        if name not in RENAMED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        method, centered = RENAMED[name]
        call = f"{method}({'' if centered else 'centered=False'})"
        warnings.warn(f"{name} is {call} since 0.3, and goes in 0.4.", FutureWarning, stacklevel=2)
        return getattr(self, method)(centered)

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
        return float(mu @ self.target_products() / (np.sqrt(self._squared_norm(mu)) * self.target_norm()))

    # What learners ask -----------------------------------------------------------------------------------------------

    def scales(self, normalize: Normalization, centered: bool = True) -> np.ndarray:
        """Return what each base kernel is divided by before a learner sees it, shape (p,)."""
        if normalize == "none":
            return np.ones(self.n_kernels)
        return self.traces(centered) if normalize == "trace" else np.sqrt(self.squared_norms(centered))

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
        return np.asarray(self.statistics.target_products(self.centered)[self.kernels] / self.scales)

    def diagonal(self) -> np.ndarray:
        """Return the diagonal, shape (k,)."""
        return np.asarray(self.statistics.squared_norms(self.centered)[self.kernels] / self.scales**2)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        M = self.statistics.products(self.centered)
        if len(self.kernels) < self.statistics.n_kernels:
            M = M[np.ix_(self.kernels, self.kernels)]
        normalized = np.outer(self.scales, self.scales)
        return np.asarray(np.divide(M, normalized, out=normalized), dtype=dtype)


def require_normalization(normalize: str) -> None:
    """Raise ValueError for a normalization that there is not."""
    require_one_of("normalize", normalize, NORMALIZATIONS)
