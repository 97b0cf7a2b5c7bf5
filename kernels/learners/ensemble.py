"""The ensemble that kernel learning is compared with: one predictor per base kernel, and their best combination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ..engine.operators import TiledGrams
from ..engine.passes import block_rows_for
from ..engine.workers import BlockResults, over_tiles
from ..families.base import KernelFamily, Rows, as_rows, move
from ..families.feature import FeatureFamily
from ..learned import checked_rows
from ..parameters import Value
from ..statistics.gram import AlignmentStatistics, Normalization, require_normalization
from ..targets import Target
from .base import Learner, LearningProblem

DEPENDENT = 1e-8
"""Combinations of hypotheses whose left-out predictions are below this share of the largest get no weight."""

LEAST_FREEDOM = np.finfo(np.float64).eps
"""Below this, what a row's own target leaves to the others is rounding."""


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble(Learner):
    """One ridge regression per base kernel, and the best linear combination of them: no kernel is learned.

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
        """Return the hypotheses along the grid."""
        self.check(problem.family, centering=problem.centering)
        if problem.target is None:
            raise ValueError(f"{self.name} learns hypotheses and needs the target; give target.")
        return KernelEnsemble.fit(
            problem.family, problem.X, problem.statistics, problem.target, problem.grid, problem.normalize
        )


@dataclass(frozen=True, eq=False, repr=False)
class KernelEnsemble(Value):
    r"""Kernel ridge hypotheses, one per base kernel, combined by least squares on left-out rows, one per value of C.

    .. math:: h = \bar Y + \sum_k \mu_k f_k, \qquad \mu = \arg\min \sum_i
              \Big\lVert Y_i - \bar Y^{(-i)} - \sum_k \mu_k f_k^{(-i)}(x_i) \Big\rVert^2

    where :math:`\bar Y + f_k` is the kernel ridge regression of base kernel k alone, and :math:`(-i)` denotes the
    same without row i.

    Attributes
    ----------
    family : KernelFamily
        The p base kernels.
    grid : tuple of float
        Values of C, L of them; all base kernels of an ensemble have the same.
    weights : ndarray of shape (L, p)
        mu, possibly negative, one row per value of C; shared by all columns of the target.
    errors : ndarray of shape (L,)
        Root mean squared error on left-out rows, over all columns of Y and in its units. Too good, as the weights were
        chosen by it; zero where there are more base kernels than rows, of whose weights the shortest are then taken.
    single_errors : ndarray of shape (L, p)
        The same of each hypothesis alone.
    target : Target
        Of the training rows.
    X : ndarray or CSR matrix of shape (m, d)
        The training rows, less `origin`.
    origin, shift : ndarray of shape (d,) and (p,)
        Subtracted from every row, and from each base kernel.
    coefficients : ndarray of shape (p, m, L, q), or (p, L, q) for a `FeatureFamily`
        What the base kernels between a row and the training rows, or the features of the row, are multiplied by.
    intercept : ndarray of shape (L, q)

    Notes
    -----
    Hypotheses are combined without the mean that each contains. Otherwise the mean of the other rows falls as the
    left-out target rises, and least squares would find that: with strong regularization it would predict every row
    by its own target, and turn the signs of all hypotheses.

    Such ensembles search a larger space than one kernel that combines the base kernels: the coefficients of a row
    differ from kernel to kernel, and weights may be negative.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 3.3; (2011), Ensembles of kernel predictors, UAI.
    Breiman (1996), Stacked regressions, Machine Learning 24:49-64, for weights by least squares on left-out rows.
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
        """Return the ensemble of some rows of a data set.

        Parameters
        ----------
        family : KernelFamily
            The p base kernels of the statistics.
        X : ndarray or CSR matrix of shape (n, d)
            The data set that ``statistics.rows`` counts in. Not modified.
        statistics : GramStatistics or FeatureStatistics
            Statistics of the m training rows.
        target : Target
            Of the data set, as X.
        grid : sequence of float
            Values of C, the scale of a kernel of mean diagonal one against a ridge of one: lambda is 1 / C.
        normalize : {"trace", "frobenius", "none"}, default "trace"
            Scaling of the centered base kernels against each other; their mean diagonals then have mean one, with
            "trace" each of them is one.

        Returns
        -------
        ensemble : KernelEnsemble

        Raises
        ------
        ValueError
            The normalization is unknown, a value of C is not positive, X and the target differ in length, a base
            kernel or the target is constant on the training rows, or those rows have weights.

        Notes
        -----
        One kernel at a time, each O(m^3) for its eigenvectors and O(L m^2 q) for its hypotheses, then O(L m q p^2) for
        the weights; O(m^2 + L m q p) memory. Rank-one features are their own eigenvectors: O(L m p q) and no matrix,
        for which sparse ones are made dense. A feature that is constant on these rows gets weight zero, without a
        warning.
        """
        require_normalization(normalize)
        C = np.asarray(grid, dtype=np.float64)
        if not (C.ndim == 1 and len(C) and (C > 0).all() and np.isfinite(C).all()):
            raise ValueError(f"grid must hold positive values of C, got {list(grid)}.")
        X = as_rows(X)
        if len(target) != X.shape[0]:
            raise ValueError(f"target must have one entry per row of X, got {len(target)} for {X.shape[0]} rows.")
        Ensemble().check(family, statistics.sample_weight)
        statistics.require_informative()
        training, rows = target.take(statistics.rows), move(X[statistics.rows], statistics.origin)
        scales, traces = statistics.scales(normalize), statistics.traces()
        varying = traces > 0  # all but constant features
        scales = np.where(varying, scales, 1.0)
        scales *= np.mean(traces[varying] / scales[varying]) / len(training)
        Y, p, L = training.Y, family.n_kernels, len(C)
        (m, q), grams = Y.shape, TiledGrams(family, rows, statistics.shift, scales)
        loo, means = np.empty((L, m, q, p)), np.empty((L, q, p))
        if isinstance(family, FeatureFamily):
            Z = family.take(rows)
            Z = np.asarray(Z.toarray() if sparse.issparse(Z) else Z)
            of_rows = Z.mean(axis=0)
            Z = np.where(varying, Z - of_rows, 0.0)
            coefficients = np.empty((p, L, q))
            for k, norm in enumerate(np.sqrt(np.where(varying, traces, 1.0))):
                eigenvalue, basis = traces[k : k + 1] / scales[k], Z[:, [k]] / norm
                loo[..., k], dual = leave_one_out(eigenvalue, basis, Y, C)
                coefficients[k] = np.tensordot(Z[:, k], dual, axes=(0, 1)) / scales[k]
                means[..., k] = of_rows[k] * coefficients[k]
        else:
            coefficients = np.empty((p, m, L, q))
            for k, unit in enumerate(np.eye(p)):
                loo[..., k], dual = leave_one_out(*np.linalg.eigh(grams.combine(unit)), Y, C)
                coefficients[k] = dual.swapaxes(0, 1) / scales[k]
                means[..., k] = np.tensordot(statistics.combined_row_means(unit), coefficients[k], axes=1)
        weights = np.empty((L, p))
        errors, single_errors = np.empty(L), np.empty((L, p))
        ahead = (Y - Y.mean(axis=0)) / (1 - 1 / m)
        for step, of_step in enumerate(loo):
            G, t = of_step.reshape(-1, p), ahead.ravel()
            weights[step] = np.linalg.lstsq(G, t, rcond=DEPENDENT)[0]
            errors[step] = np.sqrt(np.mean((t - G @ weights[step]) ** 2))
            single_errors[step] = np.sqrt(np.mean((t[:, None] - G) ** 2, axis=0))
        by_kernel = weights.T[..., None] if coefficients.ndim == 3 else weights.T[:, None, :, None]
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
            coefficients=coefficients * by_kernel,
            intercept=Y.mean(axis=0) - np.einsum("lqk,lk->lq", means, weights),
        )

    def predict(self, X_new: Rows) -> np.ndarray:
        """Return predictions in the terms of the target, one row per value of C, shape (L, n) or (L, n, q).

        Parameters
        ----------
        X_new : ndarray or CSR matrix of shape (n, d)
            New rows. Not modified.

        Raises
        ------
        ValueError
            The number of features differs from that of the training rows, or a value is not finite.

        Notes
        -----
        O(p m n (d + L q)) by tiles; for features O(n p L q), for sparse ones what is not zero.
        """
        return self.target.decode(self._scores(X_new))

    def scores(self, X_new: Rows) -> np.ndarray:
        """Return scores of classes for new rows, one row per value of C, shape (L, n) or (L, n, n_classes).

        Of two classes above zero for the second; of more one a class, of which the largest is predicted.
        """
        scores = self._scores(X_new)
        return scores[..., 0] if scores.shape[2] == 1 else scores

    def _scores(self, X_new: Rows) -> np.ndarray:
        """Return scores in the terms of Y, shape (L, n, q)."""
        A, (L, q) = move(checked_rows(self.X, X_new), self.origin), self.intercept.shape
        if isinstance(self.family, FeatureFamily):
            scores = np.asarray(self.family.take(A) @ self.coefficients.reshape(-1, L * q))
        else:
            p, m = self.coefficients.shape[:2]
            coefficients = self.coefficients.reshape(p, m, -1)

            def of(rows: slice, columns: slice) -> BlockResults:
                tile = self.family.tile(A[rows], self.X[columns], self.shift)
                return BlockResults({rows.start: np.tensordot(tile, coefficients[:, columns], axes=([0, 2], [0, 1]))})

            scores = over_tiles(of, A.shape[0], m, block_rows_for(p)).joined()
        return np.asarray(scores.reshape(-1, L, q).transpose(1, 0, 2) + self.intercept[:, None])


def leave_one_out(
    eigenvalues: np.ndarray, Q: np.ndarray, Y: np.ndarray, grid: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return what kernel ridge regressions predict for each row without it, and their coefficients with all rows.

    With :math:`S = K (K + \lambda I)^{-1}`, :math:`a = 1 - 1/m`, :math:`\tilde y` the targets less their mean and
    :math:`t = \tilde y / a` the targets less the means of the other rows,

    .. math:: f^{(-i)}(x_i) = \frac{(S \tilde y)_i - S_{ii} \, t_i}{a - S_{ii}}

    Parameters
    ----------
    eigenvalues : ndarray of shape (r,)
        Of the centered Gram matrix of m rows; not negative, up to rounding.
    Q : ndarray of shape (m, r)
        Its eigenvectors; none of the eigenvalue zero are needed.
    Y : ndarray of shape (m, q)
        Targets. Not modified.
    grid : ndarray of shape (L,)
        Values of C; lambda is 1 / C.

    Returns
    -------
    left_out : ndarray of shape (L, m, q)
        The prediction for each row by a regression on the others, less the mean of their targets.
    dual : ndarray of shape (L, m, q)
        Coefficients of the regressions on all rows, in the span of Q.

    Notes
    -----
    Exact: the residual of a left-out row is that of the fit over one less the row's own share in it, which is
    ``1 / m + S_ii``. The regression without a row has the kernel centered on the others and their mean for intercept,
    as a fit on them would have; only the scale of the kernel remains that of all rows. O(L m r q); relative to the
    targets, rounding is multiplied by the largest eigenvalue times C.
    """
    Y_c, a = Y - Y.mean(axis=0), 1 - 1 / len(Y)
    eigenvalues, projected = np.maximum(eigenvalues, 0.0), Q.T @ Y_c
    damped = 1 / (eigenvalues + 1 / grid[:, None])
    dual = Q @ (damped[:, :, None] * projected)
    fitted = Q @ ((damped * eigenvalues)[:, :, None] * projected)
    own = ((damped * eigenvalues) @ (Q**2).T)[:, :, None]
    return (fitted - own * (Y_c / a)) / np.maximum(a - own, LEAST_FREEDOM), dual
