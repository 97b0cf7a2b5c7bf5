"""What classifier and regressor share: a predictor that is linear in the learned kernel."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from kernels.estimators.base import KernelLearner
from kernels.families.base import Rows
from kernels.learned import LearnedKernel
from kernels.predictors import PREDICTORS
from kernels.protocol import usable_gram
from kernels.targets import Target


class SupervisedLearner(KernelLearner):
    """Base of both: a predictor on the learned kernel, linear in the kernel between new rows and training rows."""

    dual_coef_: np.ndarray
    intercept_: np.ndarray
    predictor_: str

    def fit_kernel(self, kernel: LearnedKernel, y: Any) -> Self:
        """Fit the predictor alone, on a kernel that was learned elsewhere.

        Parameters
        ----------
        kernel : LearnedKernel
            Learned by this estimator's `learner`; its sample weights are those of the predictor.
        y : array-like of shape (m,) or (m, q)
            Target of the kernel's training rows, in the order of ``kernel.X``.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            The kernel is of another learner or was learned for another regularisation, `y` has another length, or as
            `fit`.
        """
        y = np.asarray(y)
        if y.ndim not in (1, 2) or len(y) != kernel.X.shape[0]:
            raise ValueError(
                f"y must have one entry a training row of the kernel, {kernel.X.shape[0]}, got shape {y.shape}; take "
                "those of kernel.rows, in that order."
            )
        if kernel.learner != self.learner:
            raise ValueError(
                f"the kernel was learned by {kernel.learner}, and the estimator has learner={self.learner!r}; give it "
                "the learner of the kernel."
            )
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = int(kernel.X.shape[1])
        return self._fit_predictor(kernel, y)

    def _fit_predictor(self, kernel: LearnedKernel, y: np.ndarray) -> Self:
        raise NotImplementedError

    def _solve(self, kernel: LearnedKernel, target: Target, predictor: str, regularisation: float) -> np.ndarray:
        """Fit the predictor, and return the Gram matrix that it was fitted on."""
        if kernel.regularisation is not None and not np.isclose(
            kernel.regularisation, regularisation, rtol=1e-9, atol=0
        ):
            raise ValueError(
                f"the kernel was learned for a regularisation of {kernel.regularisation:g}, and the estimator has "
                f"{regularisation:g} (C, or 1 / alpha); give it that of the kernel."
            )
        self._take_kernel(kernel)
        K, new_rows = usable_gram(kernel)
        dual, intercept = fitted_coefficients(K, target, predictor, regularisation, kernel.sample_weight)
        self.dual_coef_ = new_rows @ dual if isinstance(new_rows, np.ndarray) else new_rows * dual
        self.intercept_, self.predictor_ = intercept, predictor
        return K

    def _scores(self, X: Any) -> np.ndarray:
        """Return ``cross_gram(X) @ dual_coef_ + intercept_``, shape (n, q), by chunks."""
        return self._by_chunks(X, lambda K_cross: K_cross @ self.dual_coef_ + self.intercept_)


def fitted_coefficients(
    K: np.ndarray, target: Target, predictor: str, regularisation: float, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return dual and intercept of a predictor, fitted to all digits that are read."""
    row = PREDICTORS[predictor]
    weighted = {} if weights is None else {"sample_weight": weights}
    return row.fit(K, target, [regularisation], **weighted, **row.fine).coefficients()


def without_zero_weights(
    X: Rows, y: np.ndarray, weights: np.ndarray | None
) -> tuple[Rows, np.ndarray, np.ndarray | None]:
    """Return rows, targets and weights less those of weight zero; no weights where all that are left are one.

    Raises
    ------
    ValueError
        Fewer than two rows are left.
    """
    if weights is None:
        return X, y, None
    kept = np.flatnonzero(weights)
    if len(kept) < 2:
        raise ValueError(f"sample_weight must be positive for at least 2 rows, got 1 sample of {len(y)}.")
    if len(kept) < len(y):
        X, y, weights = X[kept], y[kept], weights[kept]
    return X, y, None if (weights == 1).all() else weights
