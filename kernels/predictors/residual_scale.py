"""Estimated absolute residuals, by ridge regression on the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from ..base import Value
from ..families.base import Rows, distinct_examples, drawn_rows
from ..learned_kernel import LearnedKernel, LinearScores
from ..row_groups import RowGroups, Split
from ..solvers.factor import eigenvectors
from ..validation import require_numbers, require_shape
from .calibration import order_statistics

FEWEST_ROWS = 40

MOST_ROWS = 10_000

LANDMARKS = 300

N_SPLITS = 5

RIDGES = np.logspace(-3, 5, 17)
"""Ridges to compare, relative to the features' mean square."""

SMALLEST_SHARE = 0.3
"""Smallest estimate, relative to the median estimate."""


@dataclass(frozen=True, eq=False, repr=False)
class ResidualScale(Value):
    r"""Model of a regression's expected absolute residual at each row.

    .. math:: s(x) = \min\bigl(\max(k(x)^\top \beta + b, s_{\min}), s_{\max}\bigr)

    with coefficients `dual` of at most 300 landmarks. The bounds are 0.3 times the
    median, and the maximum. `ratios` are absolute residuals of held-out rows divided by
    s, ascending (Lei et al., 2018, section 5.2).
    """

    kernel: LearnedKernel
    dual: np.ndarray
    intercept: np.ndarray
    smallest: np.ndarray
    largest: np.ndarray
    ratios: np.ndarray
    signed_ratios: np.ndarray

    @classmethod
    def fit(
        cls,
        kernel: LearnedKernel,
        X: Rows,
        residuals: np.ndarray,
        row_groups: RowGroups | None = None,
    ) -> Self | None:
        """Return a model of residuals (target minus prediction) of held-out rows.

        X is minus the origin. None for a constant kernel, or too few distinct rows or
        groups.
        """
        absolute = np.abs(residuals)
        unit = absolute.max(axis=0)
        unit[unit == 0] = 1.0
        group_numbers = None if row_groups is None else row_groups.numbers
        first, distinct_row, targets, weights = distinct_examples(
            X, absolute / unit, None, group_numbers
        )
        if len(first) < FEWEST_ROWS:
            return None
        if row_groups is not None and row_groups.take(first).n_groups < 2:
            return None
        landmarks = kernel.over(drawn_rows(kernel.X.shape[0], LANDMARKS, seed=0))
        basis = feature_basis(landmarks)
        if basis is None:
            return None
        kernel_without_origin = replace(
            landmarks, origin=np.zeros_like(landmarks.origin)
        )
        F = kernel_without_origin.cross_gram(X[first]) @ basis
        if weights is None:
            weights = np.ones(len(first))
        if row_groups is None:
            left_out, coefficients, intercept = ridge_leaving_out(F, targets, weights)
        else:
            splits = row_groups.take(first).splits(N_SPLITS)
            left_out, coefficients, intercept = ridge_over_splits(
                F, targets, weights, splits
            )
        left_out = left_out[distinct_row]
        # With splits by time, the first rows have no prediction.
        is_predicted = np.isfinite(left_out).all(axis=1)
        left_out = left_out[is_predicted]
        residuals = residuals[is_predicted]

        typical = np.median(np.maximum(left_out, 0.0), axis=0)
        smallest = SMALLEST_SHARE * typical
        largest = left_out.max(axis=0)
        is_zero = typical == 0  # then all sizes are equal
        smallest[is_zero] = 1.0
        largest[is_zero] = 1.0
        sizes = np.clip(left_out, smallest, largest) * unit
        ratios = residuals / sizes
        return cls(
            kernel=landmarks,
            dual=basis @ coefficients * unit,
            intercept=intercept * unit,
            smallest=smallest * unit,
            largest=largest * unit,
            ratios=order_statistics(np.abs(ratios)),
            signed_ratios=order_statistics(ratios),
        )

    def sizes(self, scores: np.ndarray) -> np.ndarray:
        """Return expected absolute residuals: `scores`, clipped, (n, q)."""
        return np.clip(scores, self.smallest, self.largest)

    @cached_property
    def scores(self) -> LinearScores:
        """Estimates of absolute residuals, linear in the kernel."""
        return LinearScores(self.kernel, self.dual, self.intercept)

    def require_sound(self, n_features: int, n_outputs: int) -> None:
        self.kernel._require_sound()
        by_output = (n_outputs,)
        require_shape(
            "X of residual_scale_", self.kernel.X, (len(self.dual), n_features)
        )
        require_numbers(
            "dual of residual_scale_", self.dual, (len(self.dual), n_outputs)
        )
        for name in ("ratios", "signed_ratios"):
            require_numbers(
                f"{name} of residual_scale_",
                getattr(self, name),
                (len(self.ratios), n_outputs),
            )
        for name in ("intercept", "smallest", "largest"):
            require_numbers(
                f"{name} of residual_scale_", getattr(self, name), by_output
            )
        if not (self.smallest > 0).all() or not (self.smallest <= self.largest).all():
            raise ValueError(
                "residual_scale_ must have bounds with 0 < smallest <= largest, got others; fit again."
            )


def feature_basis(kernel: LearnedKernel) -> np.ndarray | None:
    """Return the matrix B from cross-Gram matrices to features; None for a constant kernel.

    Columns of B sum to zero for a centered kernel.
    """
    smallest_share = 1e-10
    eigenvalues, U = eigenvectors(kernel.gram())
    largest = float(eigenvalues[-1])
    if largest <= 0:
        return None
    is_positive = eigenvalues > smallest_share * largest
    U = kernel.gram_centering.less_mean(U[:, is_positive])
    return U / np.sqrt(eigenvalues[is_positive])


def ridge_leaving_out(
    F: np.ndarray, Y: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit ridge regressions; return leave-one-out predictions, coefficients and intercepts.

    Each output has the ridge with the lowest error.
    """
    regression = CenteredRidge.of(F, Y, weights)
    squares = np.square(regression.Z)
    roots = np.sqrt(weights)[:, None]
    deviations = Y - regression.mean_target

    left_out = np.empty_like(Y)
    solutions = np.empty_like(regression.projected)
    best_error = np.full(Y.shape[1], np.inf)
    for ridge in RIDGES * regression.eigenvalues.sum() / weights.sum():
        shrinkage = 1.0 / (regression.eigenvalues + ridge)
        solution = shrinkage[:, None] * regression.projected
        leverage = squares @ shrinkage + weights / weights.sum()
        residuals = (deviations - regression.Z @ solution / roots) / (1.0 - leverage)[
            :, None
        ]
        error = weights @ np.square(residuals)
        is_better = error < best_error
        best_error[is_better] = error[is_better]
        left_out[:, is_better] = (Y - residuals)[:, is_better]
        solutions[:, is_better] = solution[:, is_better]
    return left_out, *regression.of_features(solutions)


def ridge_over_splits(
    F: np.ndarray, Y: np.ndarray, weights: np.ndarray, splits: Sequence[Split]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Select the ridge of each output over splits; return held-out predictions, coefficients and intercepts.

    Each output has the ridge with the lowest error.
    """
    regression = CenteredRidge.of(F, Y, weights)
    ridges = RIDGES * regression.eigenvalues.sum() / weights.sum()
    predictions = np.full((len(ridges), *Y.shape), np.nan)
    errors = np.zeros((len(ridges), Y.shape[1]))
    for training, test in splits:
        coefficients, intercepts = CenteredRidge.of(
            F[training], Y[training], weights[training]
        ).path(ridges)
        predictions[:, test] = F[test] @ coefficients + intercepts[:, None]
        errors += np.einsum(
            "n,lnq->lq", weights[test], np.square(Y[test] - predictions[:, test])
        )
    best = errors.argmin(axis=0)
    outputs = np.arange(Y.shape[1])
    coefficients, intercepts = regression.path(ridges)
    return (
        predictions[best, :, outputs].T,
        coefficients[best, :, outputs].T,
        intercepts[best, outputs],
    )


class CenteredRidge(NamedTuple):
    """Ridge regressions that share an eigendecomposition of the features."""

    mean_feature: np.ndarray
    mean_target: np.ndarray
    Z: np.ndarray
    projected: np.ndarray
    eigenvalues: np.ndarray
    V: np.ndarray

    @classmethod
    def of(cls, F: np.ndarray, Y: np.ndarray, weights: np.ndarray) -> Self:
        """Return the regressions of Y, (n, q), on features F, (n, r)."""
        shares = weights / weights.sum()
        mean_feature = shares @ F
        mean_target = shares @ Y
        roots = np.sqrt(weights)[:, None]
        Z = (F - mean_feature) * roots
        eigenvalues, V = eigenvectors(Z.T @ Z)
        eigenvalues = np.maximum(eigenvalues, 0.0)  # negative ones are rounding errors
        Z = Z @ V
        projected = Z.T @ (roots * (Y - mean_target))
        return cls(mean_feature, mean_target, Z, projected, eigenvalues, V)

    def path(self, ridges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients, (L, r, q), and intercepts, (L, q), for L ridges."""
        shrinkage = 1.0 / (self.eigenvalues + ridges[:, None])
        return self.of_features(shrinkage[:, :, None] * self.projected)

    def of_features(self, solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Convert coefficients of eigenvectors to coefficients of features and intercepts."""
        coefficients = self.V @ solutions
        return coefficients, self.mean_target - self.mean_feature @ coefficients
