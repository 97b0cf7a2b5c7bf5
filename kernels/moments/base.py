"""What first-stage statistics have in common, whether they came from tiles or from features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy import sparse

from learnkernels.kernels.centering import mean_over
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.parameters import Value


@dataclass(frozen=True, eq=False, repr=False)
class Moments(Value, ABC):
    r"""First-stage statistics of p base kernels over m rows: what learners and learned kernels ask for.

    `GramMoments` has them from tiles, `FeatureMoments` from features and `SampledMoments` from some of the rows. Here
    are the rows held, and all that follows from M, a and the targets.

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

    names: tuple[str, ...]
    labels: tuple[int, ...]
    rows: np.ndarray
    group: np.ndarray
    targets: np.ndarray
    target_mean: np.ndarray
    origin: np.ndarray
    shift: np.ndarray
    sample_weight: np.ndarray | None = field(default=None, kw_only=True)

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

    # Centered --------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def frobenius(self) -> np.ndarray:
        """M, the Frobenius products of the centered base kernels, shape (p, p); formed once, on first use."""

    @property
    @abstractmethod
    def frobenius_diagonal(self) -> np.ndarray:
        """Diagonal of M, the squared norms of the centered base kernels, shape (p,); without the rest if possible."""

    @property
    @abstractmethod
    def target(self) -> np.ndarray:
        """a, the Frobenius products of the centered base kernels with the target kernel, shape (p,)."""

    @property
    @abstractmethod
    def centered_traces(self) -> np.ndarray:
        """Trace of each centered base kernel, shape (p,)."""

    @property
    @abstractmethod
    def constant(self) -> np.ndarray:
        """Whether each base kernel is constant on the rows held, once centered, shape (p,)."""

    @abstractmethod
    def refuse_constants(self) -> None:
        """Raise ValueError if `constant` base kernels leave a learner nothing to weigh."""

    @abstractmethod
    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the row means of ``sum_k coefficients_k (K_k - shift_k)`` over the rows held, shape (m,)."""

    @abstractmethod
    def _squared_norm(self, mu: np.ndarray) -> float:
        """Return the squared Frobenius norm of the centered ``sum_k mu_k K_k``."""

    @property
    def _centered_targets(self) -> np.ndarray:
        return self.targets - mean_over(self.targets, self.sample_weight)

    @property
    def target_norm(self) -> float:
        """Frobenius norm of the centered target kernel."""
        return self._kernel_norm(self._centered_targets)

    @property
    def alignments(self) -> np.ndarray:
        """Centered alignment of each base kernel with the target kernel, shape (p,); zero for a constant one."""
        return _alignments(self.target, self.frobenius_diagonal, self.constant, self.target_norm)

    def alignment(self, mu: np.ndarray) -> float:
        """Return the centered alignment of ``sum_k mu_k K_k``, base kernels as given, with the target kernel.

        Zero for a sum that is constant.
        """
        mu = np.asarray(mu, dtype=np.float64)
        if self.constant[mu != 0].all():
            return 0.0
        return float(mu @ self.target / (np.sqrt(self._squared_norm(mu)) * self.target_norm))

    # Uncentered ------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def uncentered_traces(self) -> np.ndarray:
        """Trace of each base kernel as given, shape (p,)."""

    @property
    @abstractmethod
    def uncentered_frobenius(self) -> np.ndarray:
        """Frobenius products of the base kernels as given, shape (p, p).

        Raises
        ------
        ValueError
            The pass moved the rows and that changes the kernels; see `keep_origin` of `gram_moments`. So do all that
            are of base kernels as given.
        """

    @property
    @abstractmethod
    def uncentered_frobenius_diagonal(self) -> np.ndarray:
        """Squared norms of the base kernels as given, shape (p,)."""

    @property
    @abstractmethod
    def uncentered_target(self) -> np.ndarray:
        """Frobenius products of the base kernels with the target kernel, both as given, shape (p,)."""

    @property
    def _raw_targets(self) -> np.ndarray:
        return self.targets + self.target_mean

    @property
    def uncentered_target_norm(self) -> float:
        """Frobenius norm of the target kernel as given."""
        return self._kernel_norm(self._raw_targets)

    @property
    def uncentered_alignments(self) -> np.ndarray:
        """Alignment of each base kernel with the target kernel, both as given, shape (p,); zero for a zero kernel.

        References
        ----------
        Cristianini, Shawe-Taylor, Elisseeff, Kandola (2001), NIPS 14; JMLR 2012, section 2.3, calls it A.
        """
        squared_norms = self.uncentered_frobenius_diagonal
        return _alignments(self.uncentered_target, squared_norms, squared_norms <= 0, self.uncentered_target_norm)

    def _kernel_norm(self, Y: np.ndarray) -> float:
        """Return the Frobenius norm of ``Y Y'`` without forming it."""
        Y = self._weighted(Y, 0.5)
        return float(np.linalg.norm(Y.T @ Y))

    # Fold groups -----------------------------------------------------------------------------------------------------

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

    @abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays, without any object dtype, that `from_arrays` reads back."""

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


def _alignments(products: np.ndarray, squared_norms: np.ndarray, zero: np.ndarray, target_norm: float) -> np.ndarray:
    """Return products over norms, shape (p,), and zero for kernels that are `zero`."""
    return np.where(zero, 0.0, products) / (np.sqrt(np.where(zero, 1.0, squared_norms)) * target_norm)
