"""Support vector machines on a precomputed kernel."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base import report_progress, warn_caller
from ..centering import Centering
from ..solvers.svm import AT_BOUND, solve_svm
from ..targets import Target, class_pairs
from ..weights import weights_of_rows
from .base import ExactPredictor, RegularizationPath

MAX_ITERATIONS = 200_000
"""Most iterations of libsvm before the active-set solver."""

MAX_WEIGHTED_ITERATIONS = 10 * MAX_ITERATIONS


@dataclass(frozen=True, eq=False, repr=False)
class SVM(ExactPredictor):
    """Support vector machine, one-vs-one for more than two classes.

    Parameters
    ----------
    tol : float or None, default None
        Tolerance of the optimality conditions; None for 1e-9, or 1e-3 in comparisons.

    Notes
    -----
    O(m^2) to O(m^3) time and O(m^2) memory for m training rows. If no coefficient is at
    its bound, the solution is reused for larger C. An active-set solver replaces libsvm
    if it does not converge, and for SVMs without intercept.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """

    name = "svm"
    summary = "support vector machine"
    tasks = ("classification",)
    one_vs_one = True
    loss = "hinge"

    tol: float | None = None

    def fit_matrix(
        self,
        K: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
        fine: bool = False,
    ) -> RegularizationPath:
        """Return SVMs fitted on a Gram matrix; sample weights multiply C."""
        intercept = centering.intercept
        labels = target.values
        if not intercept and sample_weight is not None:
            raise ValueError(
                "SVMs without intercept do not support sample weights, got sample_weight or class_weight "
                "with centering='none'; leave one of them out, or take predictor krr."
            )
        tolerance = self.tol
        if tolerance is None:
            tolerance = 1e-9 if fine else 1e-3
        fits: list[_PairwiseSVM] = []
        for C in grid:
            previous = fits[-1] if fits and C >= fits[-1].C else None
            if previous is not None and previous.is_inside_bounds(sample_weight):
                fits.append(previous)
            elif previous is not None and previous.exact:
                fits.append(_fit_exactly(K, labels, C, previous, intercept))
            elif not intercept:
                fits.append(_fit_exactly(K, labels, C, None, intercept))
            else:
                fits.append(_fit(K, labels, C, sample_weight, tolerance))
        duals = np.stack([fit.dual for fit in fits])
        intercepts = np.stack([fit.intercept for fit in fits])
        return RegularizationPath(target, duals, intercepts, pairs_of=np.unique(labels))


@dataclass(frozen=True)
class _PairwiseSVM:
    """Binary SVMs, one column of coefficients per pair of classes."""

    C: float
    dual: np.ndarray
    intercept: np.ndarray
    exact: bool

    def is_inside_bounds(self, sample_weight: np.ndarray | None) -> bool:
        bounds = np.asarray(self.C)
        if sample_weight is not None:
            bounds = self.C * sample_weight[:, None]
        return bool((np.abs(self.dual) < (1 - AT_BOUND) * bounds).all())


def _submatrix(K: np.ndarray, rows: np.ndarray) -> np.ndarray:
    if len(rows) == len(K):
        return K
    return K[np.ix_(rows, rows)]


def _fit_exactly(
    K: np.ndarray,
    labels: np.ndarray,
    C: float,
    start: _PairwiseSVM | None = None,
    intercept: bool = True,
) -> _PairwiseSVM:
    """Fit by the active-set solver, from SVMs for another C."""
    pairs = class_pairs(labels)
    dual = np.zeros((len(K), len(pairs)))
    intercepts = np.zeros(len(pairs))
    for j, (rows, y) in enumerate(pairs):
        guess = None
        if start is not None:
            # Only the set of coefficients at the bound matters.
            guess = np.abs(start.dual[rows, j]) * (C / start.C)
        coefficients, intercepts[j], _ = solve_svm(
            _submatrix(K, rows), y, C, guess, intercept
        )
        dual[rows, j] = y * coefficients
    return _PairwiseSVM(C, dual, intercepts, exact=True)


def _fit(
    K: np.ndarray,
    labels: np.ndarray,
    C: float,
    sample_weight: np.ndarray | None,
    tolerance: float,
) -> _PairwiseSVM:
    """Fit by libsvm, or if it fails, by the active-set solver."""
    # Imported here because it imports pandas.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC

    max_iter = MAX_ITERATIONS if sample_weight is None else MAX_WEIGHTED_ITERATIONS
    pairs = class_pairs(labels)
    dual = np.zeros((len(K), len(pairs)))
    intercepts = np.zeros(len(pairs))
    for j, (rows, y) in enumerate(pairs):
        report_progress(f"support vector machine on {len(rows):,} rows, C = {C:g}")
        svm = SVC(kernel="precomputed", C=C, tol=tolerance, max_iter=max_iter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            svm.fit(
                _submatrix(K, rows),
                y,
                sample_weight=weights_of_rows(sample_weight, rows),
            )
        if svm.n_iter_[0] >= max_iter:
            if sample_weight is None:
                return _fit_exactly(K, labels, C)
            warn_caller(
                f"the support vector machine with sample weights ended after {max_iter} iterations, before its "
                f"tolerance of {tolerance:g}; use a smaller C, or predictor krr.",
                ConvergenceWarning,
            )
        dual[rows[svm.support_], j] = svm.dual_coef_[0]
        intercepts[j] = svm.intercept_[0]
    return _PairwiseSVM(C, dual, intercepts, exact=False)
