"""Kernels of low rank and a diagonal, for machines on more rows than a matrix of theirs fits, from landmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from learnkernels.kernels.centering import Centering, mirror
from learnkernels.kernels.engine.operators import LARGEST_MATRIX, FeatureGrams, GramOperator, TiledGrams
from learnkernels.kernels.solvers.factor import eigenvectors, factored

SMALLEST = 1e-5
"""Least eigenvalue of the kernel between landmarks, relative to its largest, whose direction becomes a feature."""

MOST_FEATURES, LEAST_LANDMARKS = 2000, 30
"""Of all base kernels together, whose square takes time for each row; and of each, however many there are."""

LARGEST_FEATURES = 4 * LARGEST_MATRIX
"""Most bytes of features; of so many rows that the least landmarks take more a sample is learned from."""

BLOCK = 2048
"""Rows whose kernels with the landmarks, or whose scaled features, are formed at once."""

REFINEMENTS = 2
"""Of solutions by features, which lose digits where a diagonal spans many orders of magnitude."""

LARGEST_EXCESS = 1e6
"""How many times its part of the diagonal a row's product with itself may be, where others are eliminated before it: as
many digits are lost."""

Solve: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""What solves a system for right-hand sides, of shape (n,) or (n, q)."""


@dataclass(frozen=True)
class LowRankGram:
    r"""A kernel matrix :math:`\Phi \operatorname{diag}(w) \Phi^\top + \operatorname{diag}(\delta)` on some of m rows.

    Nothing of size n by n is formed.

    Attributes
    ----------
    features : ndarray of shape (m, r)
        Phi, of all rows.
    weights : ndarray of shape (r,)
        w, not negative.
    own : ndarray of shape (m,)
        delta, not negative.
    rows : ndarray of int of shape (n,) or None
        The rows of this matrix; None for all.
    """

    features: np.ndarray
    weights: np.ndarray
    own: np.ndarray
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.features) if self.rows is None else len(self.rows)

    def __matmul__(self, v: np.ndarray) -> np.ndarray:
        return self._expanded((self._projected(v).T * self.weights).T) + (v.T * self._own).T

    def among(self, some: np.ndarray) -> Gram:
        """Return the matrix on some of its rows: its entries, where these are fewer than its features."""
        rows = some if self.rows is None else self.rows[some]
        if len(rows) > len(self._used):
            return LowRankGram(self.features, self.weights, self.own, rows)
        used = self._used
        return LowRankGram(self.features[np.ix_(rows, used)], self.weights[used], self.own[rows]).entries()

    def entries(self) -> np.ndarray:
        """Return all entries of a matrix on all rows, exactly symmetric; O(m^2 r)."""
        K = mirror((self.features * self.weights) @ self.features.T)
        K.flat[:: len(K) + 1] += self.own
        return K

    def trace(self) -> float:
        """Return the sum of the entries of rows with themselves."""
        return float(sum(np.vdot(F, F) for _, F in self._blocks())) + float(self._own.sum())

    def shifted(self, scale: float, d: np.ndarray) -> Solve:
        r"""Return what solves with :math:`s K + \operatorname{diag} d`, d positive.

        Notes
        -----
        O(n r^2 + r^3), then O(n r) a column. With D the whole diagonal, d and s delta, and F the features times the
        roots of s w,

        .. math:: (D + F F^\top)^{-1} = D^{-1} - D^{-1} F \, (I + F^\top D^{-1} F)^{-1} F^\top D^{-1}

        The difference loses digits in rows whose own products exceed their part of D by orders of magnitude, such as
        those between the bounds at the end of an interior point's path. At most r of them, the worst, are therefore
        eliminated last, as :math:`D_S + F_S (I + F_R^\top D_R^{-1} F_R)^{-1} F_S^\top`, where R are all others.
        """
        D, root = d + scale * self._own, np.sqrt(scale * self.weights[self._used])
        if not len(root):
            return lambda B: np.asarray((B.T / D).T)
        excess = np.concatenate([scale * np.einsum("ij,ij->i", F, F) for _, F in self._blocks()]) / D
        last = np.argsort(-excess, kind="stable")[: len(root)]
        last = last[excess[last] > LARGEST_EXCESS]
        over = 1.0 / D
        over[last] = 0.0
        inner = np.eye(len(root))
        for block, F in self._blocks():
            F *= np.sqrt(scale * over[block])[:, None]
            inner += F.T @ F
        factor = factored(mirror(inner))
        F_last = self.features[np.ix_(last if self.rows is None else self.rows[last], self._used)] * root
        among_last = mirror(F_last @ cho_solve(factor, F_last.T, check_finite=False))
        among_last.flat[:: len(last) + 1] += D[last]
        factor_last = factored(among_last) if len(last) else None

        def solved(B: np.ndarray) -> np.ndarray:
            within = (self._projected((B.T * over).T)[self._used].T * root).T
            if factor_last is not None:
                right = B[last] - F_last @ cho_solve(factor, within, check_finite=False)
                of_last = cho_solve(factor_last, right, check_finite=False)
                within += F_last.T @ of_last
            within = cho_solve(factor, within, check_finite=False)
            spread = np.zeros((len(self.weights), *B.shape[1:]))
            spread[self._used] = (within.T * root).T
            X = ((B - self._expanded(spread)).T * over).T
            if factor_last is not None:
                X[last] = of_last
            return X

        def refined(B: np.ndarray) -> np.ndarray:
            X = solved(B)
            for _ in range(REFINEMENTS):
                X = X + solved(B - (X.T * d).T - scale * (self @ X))
            return X

        return refined

    @cached_property
    def _used(self) -> np.ndarray:
        """Features that have a weight: sparse weights leave few."""
        return np.flatnonzero(self.weights)

    @cached_property
    def _own(self) -> np.ndarray:
        return self.own if self.rows is None else self.own[self.rows]

    def _blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield rows, and copies of their features that are used, times the roots of the weights."""
        root = np.sqrt(self.weights[self._used])
        for start in range(0, len(self), BLOCK):
            rows = slice(start, min(start + BLOCK, len(self)))
            yield rows, self.features[rows if self.rows is None else self.rows[rows]][:, self._used] * root

    def _projected(self, v: np.ndarray) -> np.ndarray:
        if self.rows is None:
            return np.asarray(self.features.T @ v)
        spread = np.zeros((len(self.features), *v.shape[1:]))
        spread[self.rows] = v
        return np.asarray(self.features.T @ spread)

    def _expanded(self, w: np.ndarray) -> np.ndarray:
        of = np.asarray(self.features @ w)
        return of if self.rows is None else of[self.rows]


Gram: TypeAlias = np.ndarray | LowRankGram
"""A kernel matrix as machines are solved on: its entries, or its features."""


def among(K: Gram, rows: np.ndarray) -> Gram:
    """Return a matrix on some of its rows, ascending."""
    if len(rows) == len(K):
        return K
    return K.among(rows) if isinstance(K, LowRankGram) else K[np.ix_(rows, rows)]


def solver(K: Gram, ridge: float) -> Solve:
    """Return what solves with a matrix, and a ridge relative to its mean diagonal, by one factor."""
    size = float(K.trace()) / max(len(K), 1) or 1.0  # a kernel of something rare may be zero on some rows
    if isinstance(K, LowRankGram):
        return K.shifted(1.0, np.full(len(K), ridge * size))
    factor = factored(K, ridge, size)
    return lambda B: np.asarray(cho_solve(factor, B, check_finite=False))


def signed_solver(K: Gram, scale: float, y: np.ndarray, d: np.ndarray) -> Solve:
    """Return what solves with ``s (y y') * K + diag(d)``, for signs y and d positive, by one factor."""
    if isinstance(K, LowRankGram):
        solve = K.shifted(scale, d)
        return lambda B: (solve((B.T * y).T).T * y).T  # signs are their own inverses
    A = scale * (K * y) * y[:, None]
    A.flat[:: len(y) + 1] += d
    factor = factored(A)
    return lambda B: np.asarray(cho_solve(factor, B, check_finite=False))


@dataclass(frozen=True)
class LandmarkGrams:
    r"""Base kernels through landmarks, a few of the rows, and exact between a row and itself.

    .. math:: K_k \approx \Phi_k \Phi_k^\top + \operatorname{diag}(\delta_k), \qquad
              \Phi_k = K_{k,XZ} U_k \Theta_k^{-1/2}, \quad K_{k,ZZ} = U_k \Theta_k U_k^\top

    Attributes
    ----------
    features : ndarray of shape (m, r)
        Phi of all base kernels side by side; less their means where base kernels are centered.
    starts : ndarray of int of shape (p,)
        Where the features of each begin.
    own : ndarray of shape (p, m)
        delta: what the landmarks leave of each row's product with itself. Not centered, which a machine with an
        intercept does not see.
    centering : Centering
    approximate : bool
        Whether they stand for base kernels of another form.

    Notes
    -----
    A narrow kernel is mostly its diagonal, which no few landmarks span: without delta it would seem to be of less use
    than it is, and weights would go to wide ones. Each base kernel is replaced by one that is positive semi-definite,
    so that problems stay convex, and duality gaps are those of the kernels so replaced. Memory O(m (r + p)).

    References
    ----------
    Williams, Seeger (2000), Using the Nystroem method to speed up kernel machines, NIPS 13. Snelson, Ghahramani (2005),
    Sparse Gaussian processes using pseudo-inputs, NIPS 18: the diagonal.
    """

    features: np.ndarray
    starts: np.ndarray
    own: np.ndarray
    centering: Centering = Centering.CENTER
    approximate: bool = True

    @classmethod
    def of_features(cls, grams: FeatureGrams) -> LandmarkGrams:
        """Return rank-one base kernels by their features, which they are: exactly, and without a diagonal.

        Raises
        ------
        ValueError
            The features take more than `LARGEST_FEATURES`.
        """
        m, p = grams.Z.shape
        _require_features(m, p, p)
        Z = grams.centering.less_mean(grams.Z.toarray()) if sparse.issparse(grams.Z) else grams.Z
        return cls(Z, np.arange(p), np.zeros((p, m)), grams.centering, approximate=False)

    @classmethod
    def of(cls, grams: TiledGrams, n_landmarks: int | None = None) -> LandmarkGrams:
        """Return base kernels on landmarks drawn uniformly; one pass over m rows and these, O(p m l^2).

        Parameters
        ----------
        grams : TiledGrams
            p base kernels over m rows.
        n_landmarks : int, optional
            l, at most m; by default as many as make `MOST_FEATURES`, or what fits into `LARGEST_MATRIX`.

        Raises
        ------
        ValueError
            The features of even the least landmarks take more than `LARGEST_FEATURES`.
        """
        family, centering, m = grams.family, grams.centering, grams.n_rows
        if n_landmarks is None:
            n_features = min(MOST_FEATURES, LARGEST_MATRIX // (8 * m))
            n_landmarks = min(max(n_features // grams.n_kernels, LEAST_LANDMARKS), m)
        _require_features(m, grams.n_kernels, n_landmarks * grams.n_kernels)
        some = np.sort(np.random.default_rng(0).choice(m, n_landmarks, replace=False))
        Z, factors = grams.X[some], (1.0 / grams.scales)[:, None, None]
        between = family.tile(Z, Z, grams.shift) * factors
        # Features are taken from the landmarks' mean, and later from that of all rows: of columns of sum zero what a
        # row adds to all of them falls out.
        means = [centering.mean(K) for K in between]
        bases = []
        for K in between:
            values, vectors = eigenvectors(mirror(centering.gram(K)))
            kept = values > SMALLEST * values[-1]
            bases.append(centering.less_mean(vectors[:, kept] / np.sqrt(values[kept])))
        ends = np.cumsum([B.shape[1] for B in bases])
        starts = np.concatenate([[0], ends[:-1]])
        features, own = np.empty((m, ends[-1])), np.empty((len(bases), m))
        for first in range(0, m, BLOCK):
            rows = slice(first, min(first + BLOCK, m))
            cross = family.tile(grams.X[rows], Z, grams.shift) * factors
            diagonal = (family.diag(grams.X[rows]) - grams.shift[:, None]) / grams.scales[:, None]
            for k, B in enumerate(bases):
                F = features[rows, starts[k] : ends[k]]
                F[...] = (cross[k] - means[k]) @ B
                full = diagonal[k] - 2 * centering.mean(cross[k], axis=1) + centering.mean(means[k])
                own[k, rows] = np.maximum(full - np.einsum("ij,ij->i", F, F), 0.0)
        if centering.subtracts:
            features -= features.mean(axis=0)
        return cls(features, starts, own, centering)

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return len(self.features)

    @property
    def n_kernels(self) -> int:
        """Number of base kernels."""
        return len(self.own)

    def _by_feature(self, mu: np.ndarray) -> np.ndarray:
        """Return the weight of each feature, shape (r,)."""
        return np.repeat(mu, np.diff(self.starts, append=self.features.shape[1]))

    def combination(self, mu: np.ndarray) -> LowRankGram:
        """Return ``sum_k mu_k K_k`` by its features."""
        return LowRankGram(self.features, self._by_feature(mu), mu @ self.own)

    def combine(self, mu: np.ndarray) -> np.ndarray:
        """Return the weighted sum, m by m: for few rows."""
        return self.combination(mu).entries()

    def products(self, alpha: np.ndarray) -> np.ndarray:
        """Return each kernel times `alpha`; O(m r q), and O(p m q) memory."""
        projected, out = self.features.T @ alpha, self.own[:, :, None] * alpha
        for k, of in enumerate(self._each()):
            out[k] += self.features[:, of] @ projected[of]
        return out

    def quadratic_forms(self, alpha: np.ndarray) -> np.ndarray:
        """Return the quadratic forms; O(m r q)."""
        squares = ((self.features.T @ alpha) ** 2).sum(axis=1)
        return self._by_kernel(squares) + self.own @ (alpha**2).sum(axis=1)

    def inner_products(self, W: np.ndarray) -> np.ndarray:
        """Return the Frobenius products with `W`; O(m^2 r)."""
        forms = np.einsum("ij,ij->j", self.features, W @ self.features)
        return self._by_kernel(forms) + self.own @ W.diagonal()

    def matvec(self, mu: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return the weighted sum times `v`; O(m r q)."""
        return self.combination(mu) @ v

    def frobenius(self) -> np.ndarray:
        """Return the Frobenius products; O(m r^2)."""
        squares = (self.features.T @ self.features) ** 2
        diagonals = np.stack([np.einsum("ij,ij->i", self.features[:, of], self.features[:, of]) for of in self._each()])
        mixed = diagonals @ self.own.T
        low_rank = self._by_kernel(self._by_kernel(squares).T)
        return np.asarray(low_rank + mixed + mixed.T + self.own @ self.own.T)

    def _by_kernel(self, of_features: np.ndarray) -> np.ndarray:
        """Return the sum over the features of each base kernel, of which one of something rare may have none."""
        return np.stack([of_features[of].sum(axis=0) for of in self._each()])

    def _each(self) -> Iterator[slice]:
        ends = np.append(self.starts[1:], self.features.shape[1])
        return (slice(start, end) for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True))


def _require_features(m: int, p: int, n_features: int) -> None:
    if 8 * m * n_features > LARGEST_FEATURES:
        raise ValueError(
            f"{n_features:,} features of {p:,} base kernels of {m:,} rows take {8e-9 * m * n_features:.1f} GB, and "
            f"{1e-9 * LARGEST_FEATURES:.1f} may be taken; give fewer base kernels, or learn from a sample of the rows."
        )


def combination(grams: GramOperator, mu: np.ndarray) -> Gram:
    """Return the weighted sum of base kernels: its features where these are what there is, its entries otherwise."""
    return grams.combination(mu) if isinstance(grams, LandmarkGrams) else grams.combine(mu)
