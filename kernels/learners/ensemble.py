"""ensemble: one ridge regression per base kernel, combined linearly; a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from ..base import Value
from ..engine.operators import TiledGrams
from ..engine.passes import block_rows_for
from ..engine.workers import BlockResults, over_tiles
from ..families.base import KernelFamily, Rows, as_rows, move
from ..families.feature import FeatureFamily
from ..learned_kernel import checked_rows
from ..statistics.gram import AlignmentStatistics, Normalization, require_normalization
from ..targets import Target
from .base import Learner, LearningProblem

DEPENDENT = 1e-8
"""Relative singular value at which a combination of hypotheses gets no weight."""


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble(Learner):
    """Linear combination of one ridge regression per base kernel; no kernel is learned.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.3.
    """

    name = "ensemble"
    summary = "one ridge regression per base kernel, combined linearly"
    source = "JMLR 2012, section 3.3"
    predictor = "krr"
    needs = "base kernels, one by one"
    learns_kernel = False

    def learn(self, problem: LearningProblem) -> KernelEnsemble:
        """Return one fitted ensemble for all values of C."""
        self.check(problem.family, centering=problem.centering)
        if problem.target is None:
            raise ValueError(
                f"{self.name} learns hypotheses and needs the target; give target."
            )
        return KernelEnsemble.fit(
            problem.family,
            problem.X,
            problem.statistics,
            problem.target,
            problem.grid,
            problem.normalize,
        )


@dataclass(frozen=True, eq=False, repr=False)
class KernelEnsemble(Value):
    r"""Linear combination of kernel ridge regressions, one per base kernel.

    .. math:: h = \bar Y + \sum_k \mu_k f_k, \qquad \mu = \arg\min \sum_i
              \Big\lVert Y_i - \bar Y^{(-i)} - \sum_k \mu_k f_k^{(-i)}(x_i) \Big\rVert^2

    where :math:`\bar Y + f_k` is the kernel ridge regression with base kernel k, and
    :math:`(-i)` marks quantities computed without row i.

    Attributes
    ----------
    family : KernelFamily
        The p base kernels.
    grid : tuple of float
        The L values of C.
    weights : ndarray of shape (L, p)
        Weights mu, possibly negative.
    errors : ndarray of shape (L,)
        Leave-one-out root mean squared error; optimistic, as the weights minimize it.
    single_errors : ndarray of shape (L, p)
        Leave-one-out error of each regression.
    target : Target
        Targets of the training rows.
    X : ndarray or CSR matrix of shape (m, d)
        Training rows with `origin` subtracted.
    origin, shift : ndarray of shape (d,) and (p,)
        Constants subtracted from every row, and from each base kernel.
    coefficients : ndarray of shape (p, m, L, q), or (p, L, q) for a `FeatureFamily`
        Coefficients of the training rows, or of the features.
    intercept : ndarray of shape (L, q)
        Intercept per value of C.

    Notes
    -----
    Regressions are combined without their means: the mean of the other rows reveals the
    left-out target, and least squares would use it.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.3; (2011), UAI.
    Breiman (1996), Stacked regressions, Machine Learning 24:49-64.
    """

    family: KernelFamily
    grid: tuple[float, ...]
    weights: np.ndarray
    errors: np.ndarray
    single_errors: np.ndarray
    target: Target
    X: Rows
    origin: np.ndarray
    shift: np.ndarray
    coefficients: np.ndarray
    intercept: np.ndarray

    @classmethod
    def fit(
        cls,
        family: KernelFamily,
        X: Rows,
        statistics: AlignmentStatistics,
        target: Target,
        grid: Sequence[float],
        normalize: Normalization = "trace",
    ) -> KernelEnsemble:
        """Return the ensemble fitted to the rows ``statistics.rows`` of X.

        Rows have no weights. O(m^3 + L m^2 q) time per kernel.
        """
        require_normalization(normalize)
        C = np.asarray(grid, dtype=np.float64)
        if not (C.ndim == 1 and len(C) and (C > 0).all() and np.isfinite(C).all()):
            raise ValueError(f"grid must hold positive values of C, got {list(grid)}.")
        X = as_rows(X)
        if len(target) != X.shape[0]:
            raise ValueError(
                f"target must have one entry per row of X, got {len(target)} for {X.shape[0]} rows."
            )
        Ensemble().check(family, statistics.sample_weight)
        statistics.require_informative()
        training = target.take(statistics.rows)
        Y = training.Y
        m = len(Y)
        rows = move(X[statistics.rows], statistics.origin)
        traces = statistics.traces()
        varying = traces > 0
        scales = np.where(varying, statistics.scales(normalize), 1.0)
        scales *= np.mean(traces[varying] / scales[varying]) / m
        if isinstance(family, FeatureFamily):
            regressions = _regressions_on_features(family, rows, Y, C, scales, traces)
        else:
            grams = TiledGrams(family, rows, statistics.shift, scales)
            regressions = _regressions_on_kernels(grams, statistics, Y, C, scales)
        weights, errors, single_errors = _combine_by_least_squares(
            regressions.left_out, (Y - Y.mean(axis=0)) / (1 - 1 / m)
        )
        coefficients = regressions.coefficients
        if coefficients.ndim == 3:
            weights_by_kernel = weights.T[..., None]
        else:
            weights_by_kernel = weights.T[:, None, :, None]
        return cls(
            family=family,
            grid=tuple(C.tolist()),
            weights=weights,
            errors=errors,
            single_errors=single_errors,
            target=training,
            X=rows,
            origin=statistics.origin,
            shift=statistics.shift,
            coefficients=coefficients * weights_by_kernel,
            intercept=Y.mean(axis=0)
            - np.einsum("lqk,lk->lq", regressions.means, weights),
        )

    def predict(self, X_new: Rows) -> np.ndarray:
        """Return predictions for each of the L values of regularization C, shape (L, n) or (L, n, q)."""
        return self.target.decode(self._scores(X_new))

    def scores(self, X_new: Rows) -> np.ndarray:
        """Return decision values for L values of C, shape (L, n) or (L, n, n_classes)."""
        scores = self._scores(X_new)
        return scores[..., 0] if scores.shape[2] == 1 else scores

    def _scores(self, X_new: Rows) -> np.ndarray:
        """Return the predicted columns of Y, shape (L, n, q)."""
        A = move(checked_rows(self.X, X_new), self.origin)
        L, q = self.intercept.shape
        if isinstance(self.family, FeatureFamily):
            scores = np.asarray(
                self.family.take(A) @ self.coefficients.reshape(-1, L * q)
            )
        else:
            p, m = self.coefficients.shape[:2]
            coefficients = self.coefficients.reshape(p, m, -1)

            def scores_of_tile(rows: slice, columns: slice) -> BlockResults:
                tile = self.family.tile(A[rows], self.X[columns], self.shift)
                return BlockResults(
                    {
                        rows.start: np.tensordot(
                            tile, coefficients[:, columns], axes=([0, 2], [0, 1])
                        )
                    }
                )

            scores = over_tiles(
                scores_of_tile, A.shape[0], m, block_rows_for(p)
            ).joined()
        return np.asarray(
            scores.reshape(-1, L, q).transpose(1, 0, 2) + self.intercept[:, None]
        )


class _Regressions(NamedTuple):
    """Ridge regressions with each of p base kernels and L values of C.

    `left_out`, shape (L, m, q, p), are leave-one-out predictions minus the mean of the
    other targets.
    """

    left_out: np.ndarray
    coefficients: np.ndarray
    means: np.ndarray


def _regressions_on_features(
    family: FeatureFamily,
    X: Rows,
    Y: np.ndarray,
    C: np.ndarray,
    scales: np.ndarray,
    traces: np.ndarray,
) -> _Regressions:
    p = family.n_kernels
    m, q = Y.shape
    left_out = np.empty((len(C), m, q, p))
    coefficients = np.empty((p, len(C), q))
    means = np.empty((len(C), q, p))
    Z = family.take(X)
    Z = np.asarray(Z.toarray() if sparse.issparse(Z) else Z)
    feature_means = Z.mean(axis=0)
    varying = traces > 0
    Z = np.where(varying, Z - feature_means, 0.0)
    norms = np.sqrt(np.where(varying, traces, 1.0))
    for k in range(p):
        eigenvalue = traces[k : k + 1] / scales[k]
        left_out[..., k], dual = leave_one_out(eigenvalue, Z[:, [k]] / norms[k], Y, C)
        coefficients[k] = np.tensordot(Z[:, k], dual, axes=(0, 1)) / scales[k]
        means[..., k] = feature_means[k] * coefficients[k]
    return _Regressions(left_out, coefficients, means)


def _regressions_on_kernels(
    grams: TiledGrams,
    statistics: AlignmentStatistics,
    Y: np.ndarray,
    C: np.ndarray,
    scales: np.ndarray,
) -> _Regressions:
    p = grams.n_kernels
    m, q = Y.shape
    left_out = np.empty((len(C), m, q, p))
    coefficients = np.empty((p, m, len(C), q))
    means = np.empty((len(C), q, p))
    for k, unit in enumerate(np.eye(p)):
        eigenvalues, eigenvectors = np.linalg.eigh(grams.combine(unit))
        left_out[..., k], dual = leave_one_out(eigenvalues, eigenvectors, Y, C)
        coefficients[k] = dual.swapaxes(0, 1) / scales[k]
        means[..., k] = np.tensordot(
            statistics.combined_row_means(unit), coefficients[k], axes=1
        )
    return _Regressions(left_out, coefficients, means)


def _combine_by_least_squares(
    left_out: np.ndarray, Y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights, errors of combinations, and of single regressions."""
    L, _, _, p = left_out.shape
    t = Y.ravel()
    weights = np.empty((L, p))
    errors = np.empty(L)
    single_errors = np.empty((L, p))
    for step in range(L):
        G = left_out[step].reshape(-1, p)
        weights[step] = np.linalg.lstsq(G, t, rcond=DEPENDENT)[0]
        errors[step] = np.sqrt(np.mean((t - G @ weights[step]) ** 2))
        single_errors[step] = np.sqrt(np.mean((t[:, None] - G) ** 2, axis=0))
    return weights, errors, single_errors


def leave_one_out(
    eigenvalues: np.ndarray, Q: np.ndarray, Y: np.ndarray, grid: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return leave-one-out predictions, and coefficients of full fits, for each ridge.

    With :math:`S = K (K + \lambda I)^{-1}`, :math:`a = 1 - 1/m`, centered targets
    :math:`\tilde y` and :math:`t = \tilde y / a`,

    .. math:: f^{(-i)}(x_i) = \frac{(S \tilde y)_i - S_{ii} \, t_i}{a - S_{ii}}

    K is centered and given by its eigenvalues and eigenvectors Q. Predictions, minus
    the mean of the other targets, and coefficients have shape (L, m, q).
    """
    Y_c = Y - Y.mean(axis=0)
    a = 1 - 1 / len(Y)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    projected = Q.T @ Y_c
    damped = 1 / (eigenvalues + 1 / grid[:, None])
    dual = Q @ (damped[:, :, None] * projected)
    fitted = Q @ ((damped * eigenvalues)[:, :, None] * projected)
    diagonal = ((damped * eigenvalues) @ (Q**2).T)[:, :, None]
    left_out = (fitted - diagonal * (Y_c / a)) / np.maximum(
        a - diagonal, np.finfo(np.float64).eps
    )
    return left_out, dual
