"""Support vector machines on a precomputed kernel."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..centering import Centering
from ..parameters import warn_caller
from ..solvers.svm import AT_BOUND, solve_svm
from ..targets import Target, class_pairs
from .base import ExactPredictor, RegularizationPath

MAX_ITERATIONS = 200_000
"""Of scikit-learn's solver; an interior-point method solves kernels of low rank with a large C, which need more."""

MAX_WEIGHTED_ITERATIONS = 10 * MAX_ITERATIONS
"""The same with sample weights, which the interior-point method does not support."""

TOLERANCE = 1e-3
"""Of a comparison's SVMs, scikit-learn's own."""

FINE_TOLERANCE = 1e-9
"""Of SVMs whose scores are shown: then they do not depend on the order of the rows in any digit that is read."""


@dataclass(frozen=True, eq=False, repr=False)
class SVM(ExactPredictor):
    """Support vector machine; several classes one-vs-one.

    Parameters
    ----------
    tolerance : float or None, default None
        Of the conditions of optimality, in units of the margin; None for 1e-3 where SVMs are compared, and 1e-9
        where their scores are shown.

    Notes
    -----
    O(m^2) to O(m^3) time and O(m^2) memory for m training rows. An SVM none of whose coefficients is at its bound is
    that of every larger C as well, and is not fitted again. One that scikit-learn's solver does not end for is the
    start of the next, which does without that solver. So do SVMs without intercept, which it does not support.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 5.
    """

    name = "svm"
    summary = "support vector machine"
    tasks = ("classification",)
    one_vs_one = True
    loss = "hinge"

    tolerance: float | None = None

    def fit_matrix(
        self,
        K: np.ndarray,
        target: Target,
        grid: Sequence[float],
        sample_weight: np.ndarray | None = None,
        centering: Centering = Centering.CENTER,
        fine: bool = False,
    ) -> RegularizationPath:
        """Fit on a Gram matrix of mean diagonal one, centered or without intercept.

        Parameters
        ----------
        K : ndarray of shape (m, m)
            Not modified.
        target : Target
            Of the training rows; a classification with at least two classes among them.
        grid : sequence of float
            Values of C, the scale of the kernel for C = 1, which is C for a kernel of scale one.
        sample_weight : ndarray of shape (m,), optional
            Positive; C of a row is multiplied by it. Not modified.
        centering : Centering, default "center"
            Whether the matrix is centered, and SVMs have an intercept.
        fine : bool, default False
            Whether scores are to have all digits that are read.

        Raises
        ------
        ValueError
            Rows of SVMs without intercept have weights.

        Warns
        -----
        ConvergenceWarning
            The solver ended before the tolerance, with sample weights; without them another solver takes over.
        """
        intercept, labels = centering.intercept, target.values
        if not intercept and sample_weight is not None:
            raise ValueError(
                "SVMs without intercept do not support sample weights, got sample_weight or class_weight "
                "with centering='none'; leave one of them out, or take predictor krr."
            )
        tolerance = (FINE_TOLERANCE if fine else TOLERANCE) if self.tolerance is None else self.tolerance
        fits: list[_PairwiseSVM] = []
        for C in grid:
            before = fits[-1] if fits else None
            if before is not None and C >= before.C and before.is_free(sample_weight):
                fits.append(before)
            elif not intercept or (before is not None and before.exact and C >= before.C):
                start = before if before is not None and before.exact else None
                fits.append(_fit_exactly(K, labels, C, start, intercept))
            else:
                fits.append(_fit(K, labels, C, sample_weight, tolerance))
        duals, intercepts = (np.stack([getattr(one, name) for one in fits]) for name in ("dual", "intercept"))
        return RegularizationPath(target, duals, intercepts, pairs_of=np.unique(labels))


@dataclass(frozen=True)
class _PairwiseSVM:
    """Support vector classifiers of all pairs of classes, with the signed coefficients of one pair per column."""

    C: float
    dual: np.ndarray
    intercept: np.ndarray
    exact: bool

    def is_free(self, sample_weight: np.ndarray | None) -> bool:
        """Return whether no coefficient is at its upper bound."""
        bounds = np.asarray(self.C if sample_weight is None else self.C * sample_weight[:, None])
        return bool((np.abs(self.dual) < (1 - AT_BOUND) * bounds).all())


def _fit_exactly(
    K: np.ndarray, labels: np.ndarray, C: float, start: _PairwiseSVM | None = None, intercept: bool = True
) -> _PairwiseSVM:
    """Return SVMs by active sets and an interior-point method, from those of another C."""
    pairs = class_pairs(labels)
    dual, intercepts = np.zeros((len(K), len(pairs))), np.zeros(len(pairs))
    for j, (rows, y) in enumerate(pairs):
        # What counts of a start is which rows are at a bound, and that moves with C.
        guess = None if start is None else np.abs(start.dual[rows, j]) * (C / start.C)
        among = K if len(rows) == len(K) else K[np.ix_(rows, rows)]
        a, intercepts[j], _ = solve_svm(among, y, C, guess, intercept)
        dual[rows, j] = y * a
    return _PairwiseSVM(C, dual, intercepts, exact=True)


def _fit(
    K: np.ndarray, labels: np.ndarray, C: float, sample_weight: np.ndarray | None, tolerance: float
) -> _PairwiseSVM:
    """Return SVMs by scikit-learn's solver, or by an interior-point method where it takes too long."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC  # here, because it brings pandas and pyarrow along where they are installed

    most = MAX_ITERATIONS if sample_weight is None else MAX_WEIGHTED_ITERATIONS
    pairs = class_pairs(labels)
    dual, intercepts = np.zeros((len(K), len(pairs))), np.zeros(len(pairs))
    for j, (rows, y) in enumerate(pairs):
        svm = SVC(kernel="precomputed", C=C, tol=tolerance, max_iter=most)
        among = K if len(rows) == len(K) else K[np.ix_(rows, rows)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            svm.fit(among, y, sample_weight=None if sample_weight is None else sample_weight[rows])
        if svm.n_iter_[0] >= most:
            if sample_weight is None:
                return _fit_exactly(K, labels, C)
            warn_caller(
                f"the support vector machine with sample weights ended after {most} iterations, before its tolerance "
                f"of {tolerance:g}; use a smaller C, or predictor krr.",
                ConvergenceWarning,
            )
        dual[rows[svm.support_], j], intercepts[j] = svm.dual_coef_[0], svm.intercept_[0]
    return _PairwiseSVM(C, dual, intercepts, exact=False)
