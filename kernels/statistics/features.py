"""Alignment statistics of rank-one base kernels, from the features themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse

from learnkernels.kernels.centering import mean_over, subtract_means
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.families.feature import FeatureFamily
from learnkernels.kernels.statistics.base import AlignmentStatistics

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
        return super().from_arrays({"shift": np.zeros(len(arrays["names"])), **arrays, "X": X})


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
