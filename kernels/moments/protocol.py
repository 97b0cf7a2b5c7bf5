"""What learners and learned kernels ask of first-stage statistics, however these were computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Moments(Protocol):
    """First-stage statistics of p base kernels over m rows; `GramMoments` and `FeatureMoments` are such.

    Attributes
    ----------
    names : tuple of str
        The base kernels.
    labels : tuple of int
        The fold groups held.
    rows : ndarray of shape (m,)
        Position in the data set of each row.
    group : ndarray of shape (m,)
        Position in `labels` of each row's group.
    targets : ndarray of shape (m, q)
        Y, less `target_mean`.
    target_mean : ndarray of shape (q,)
        Weighted mean of Y over all rows of the pass, whatever rows are held.
    shift : ndarray of shape (p,)
        Constant subtracted from each base kernel.
    origin : ndarray of shape (d,)
        Subtracted from every row before a kernel sees it.
    sample_weight : ndarray of shape (m,) or None
        Weight of each row: one of weight w counts as w copies, in all that follows. None where each counts once.
    n_rows, n_kernels : int
        m, whatever the rows weigh, and p.
    total_weight : float
        W, the sum of the rows' weights; m without weights.
    frobenius : ndarray of shape (p, p)
        M, the Frobenius products of the centered base kernels.
    frobenius_diagonal : ndarray of shape (p,)
        Its diagonal, without the rest of M where that is possible.
    target : ndarray of shape (p,)
        a, their products with the target kernel.
    centered_traces : ndarray of shape (p,)
        Trace of each centered base kernel.
    constant : ndarray of bool of shape (p,)
        Whether each base kernel is constant on the rows held: zero, once centered.
    target_norm : float
        Frobenius norm of the centered target kernel.
    alignments : ndarray of shape (p,)
        Centered alignment of each base kernel with the target kernel.
    uncentered_frobenius, uncentered_frobenius_diagonal, uncentered_target, uncentered_alignments : ndarray
    uncentered_target_norm : float
        The same without centering, of base kernels and targets as given. A ValueError where the pass moved the rows
        and that changes the kernels; see `keep_origin` of `gram_moments`.
    """

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> tuple[int, ...]: ...
    @property
    def rows(self) -> np.ndarray: ...
    @property
    def group(self) -> np.ndarray: ...
    @property
    def targets(self) -> np.ndarray: ...
    @property
    def target_mean(self) -> np.ndarray: ...
    @property
    def shift(self) -> np.ndarray: ...
    @property
    def origin(self) -> np.ndarray: ...
    @property
    def sample_weight(self) -> np.ndarray | None: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def n_kernels(self) -> int: ...
    @property
    def total_weight(self) -> float: ...
    @property
    def frobenius(self) -> np.ndarray: ...
    @property
    def frobenius_diagonal(self) -> np.ndarray: ...
    @property
    def target(self) -> np.ndarray: ...
    @property
    def centered_traces(self) -> np.ndarray: ...
    @property
    def constant(self) -> np.ndarray: ...
    @property
    def target_norm(self) -> float: ...
    @property
    def alignments(self) -> np.ndarray: ...
    @property
    def uncentered_frobenius(self) -> np.ndarray: ...
    @property
    def uncentered_frobenius_diagonal(self) -> np.ndarray: ...
    @property
    def uncentered_target(self) -> np.ndarray: ...
    @property
    def uncentered_target_norm(self) -> float: ...
    @property
    def uncentered_alignments(self) -> np.ndarray: ...

    def alignment(self, mu: np.ndarray) -> float:
        """Return the centered alignment of ``sum_k mu_k K_k`` with the target kernel."""

    def combined_row_means(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the row means of ``sum_k coefficients_k (K_k - shift_k)`` over the rows held, shape (m,)."""

    def refuse_constants(self) -> None:
        """Raise ValueError if `constant` base kernels leave a learner nothing to weigh."""

    def restrict(self, groups: Sequence[int]) -> Moments:
        """Return the moments of the rows of some fold groups alone."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays, without any object dtype."""
