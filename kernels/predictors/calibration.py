"""Class probabilities and prediction intervals from decision values of held-out rows."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.special import expit, log_expit, softmax

from ..families.base import Rows, distinct_rows
from ..row_groups import Split
from ..targets import Target

N_FOLDS = 5

CONVERGED = 1e-13
"""Largest gradient of a fitted sigmoid, relative to the total weight."""

ROUGHLY_CONVERGED = 1e-5
"""Largest relative gradient for comparing losses."""

MOST_RESIDUALS = 999
"""Most stored residuals, for levels to a thousandth."""

RANK_ROUNDING = 1e-9


def assign_calibration_folds(
    X: Rows, codes: np.ndarray, n_folds: int = N_FOLDS
) -> np.ndarray:
    """Assign a stratified fold to each row; copies of a row share a fold.

    Rows of a class that lies in a single fold have fold -1.
    """
    first, distinct_row = distinct_rows(X)
    # Copies of a row in several classes count for the first class.
    class_of_distinct = np.full(len(first), codes.max())
    np.minimum.at(class_of_distinct, distinct_row, codes)
    shuffled = np.random.default_rng(0).permutation(len(first))
    by_class = shuffled[np.argsort(class_of_distinct[shuffled], kind="stable")]
    folds = np.empty(len(first), dtype=np.intp)
    folds[by_class] = np.arange(len(first)) % n_folds
    for code in range(codes.max() + 1):
        distinct_of_class = distinct_row[codes == code]
        in_one_fold = np.ptp(folds[distinct_of_class]) == 0
        if in_one_fold:
            folds[distinct_of_class] = -1
    return folds[distinct_row]


def held_out_splits(X: Rows, target: Target, n_folds: int = N_FOLDS) -> list[Split]:
    """Return pairs of training and held-out rows; a row is held out at most once.

    Training rows have all classes of the held-out rows.
    """
    codes = np.zeros(len(target), dtype=np.intp)
    classes = None
    if target.task == "classification":
        codes = classes = target.values
    if target.row_groups is None:
        folds = assign_calibration_folds(X, codes, n_folds)
        return [
            (np.flatnonzero(folds != fold), np.flatnonzero(folds == fold))
            for fold in np.unique(folds[folds >= 0])
        ]
    splits = []
    for training, test in target.row_groups.splits(n_folds, classes=classes):
        is_missing = ~np.isin(codes[test], codes[training])
        if target.row_groups.ordered and len(np.unique(codes[training])) < len(
            np.unique(codes)
        ):
            continue
        splits.append((np.concatenate([training, test[is_missing]]), test[~is_missing]))
    return [(training, test) for training, test in splits if len(test)]


def fit_sigmoid(
    scores: np.ndarray,
    positive: np.ndarray,
    weights: np.ndarray | None,
    tolerance: float = CONVERGED,
) -> tuple[float, float]:
    r"""Return slope and offset of the sigmoid (Platt) from decision values to probabilities.

    .. math:: p(f) = \frac{1}{1 + e^{-(a f + b)}}, \qquad
              \min_{a \ge 0, b} \; - \sum_i w_i \bigl( t_i \log p_i + (1 - t_i) \log (1 - p_i) \bigr)

    with targets :math:`t = (N_+ + 1) / (N_+ + 2)` for positive rows and :math:`1 / (N_-
    + 2)` for others, N sums of weights (Platt, 1999). For copies of a row, `positive`
    may be their share in the positive class.
    """
    if weights is None:
        weights = np.ones(len(scores))
    total = float(weights.sum())
    n_positive = float(weights @ positive)
    t = positive * ((n_positive + 1) / (n_positive + 2)) + (1.0 - positive) / (
        total - n_positive + 2
    )
    scale = float(np.abs(scores).max()) or 1.0
    F = np.column_stack([scores / scale, np.ones(len(scores))])
    start = np.array([0.0, np.log((n_positive + 1) / (total - n_positive + 1))])
    slope, offset = _minimize_log_loss(F, t, weights, start, tolerance)
    if slope > 0:
        return float(slope / scale), float(offset)
    share = float(weights @ t) / total
    return 0.0, float(np.log(share / (1 - share)))


def _minimize_log_loss(
    F: np.ndarray,
    t: np.ndarray,
    weights: np.ndarray,
    theta: np.ndarray,
    tolerance: float,
) -> np.ndarray:
    """Minimize the log loss of ``expit(F @ theta)`` by Newton's method."""
    max_steps = 100
    max_halvings = 40
    total = float(weights.sum())
    loss = _log_loss(F, t, weights, theta)
    for _ in range(max_steps):
        p = expit(F @ theta)
        gradient = F.T @ (weights * (p - t))
        if np.abs(gradient).max() <= tolerance * total:
            return theta
        H = (F * (weights * p * (1 - p))[:, None]).T @ F
        H[np.diag_indices(2)] += np.finfo(np.float64).eps * total
        step = -np.linalg.solve(H, gradient)
        for _ in range(max_halvings):
            next_loss = _log_loss(F, t, weights, theta + step)
            if next_loss <= loss + 1e-4 * float(gradient @ step):
                break
            step = step / 2
        else:
            return theta
        theta = theta + step
        loss = next_loss
    return theta


def _log_loss(
    F: np.ndarray, t: np.ndarray, weights: np.ndarray, theta: np.ndarray
) -> float:
    z = F @ theta
    return float(weights @ (np.logaddexp(0.0, z) - t * z))


def fit_calibration(
    scores: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> np.ndarray:
    """Return slope and offset of one sigmoid for the decision values of all classes."""
    scores = scores.reshape(len(codes), -1)
    n_scores = scores.shape[1]
    classes = np.array([1]) if n_scores == 1 else np.arange(n_scores)
    is_class = codes[:, None] == classes
    if weights is None:
        weights = np.ones(len(codes))
    return np.array(
        fit_sigmoid(scores.ravel(), is_class.ravel(), np.repeat(weights, n_scores))
    )


def calibrated_log_loss(
    scores: np.ndarray, shares: np.ndarray, weights: np.ndarray | None
) -> float:
    """Calibrate decision values, and return the weighted log loss on the same rows.

    `shares`, (m, n_classes), are shares of the classes among copies of each row.
    """
    if weights is None:
        weights = np.ones(len(shares))
    n_scores = scores.shape[1]
    is_class = shares[:, -n_scores:]
    sigmoid = fit_sigmoid(
        scores.ravel(),
        is_class.ravel(),
        np.repeat(weights, n_scores),
        ROUGHLY_CONVERGED,
    )
    P = probabilities(scores[:, 0] if n_scores == 1 else scores, np.array(sigmoid))
    log_P = np.log(np.maximum(P, np.finfo(np.float64).tiny))
    return -float(np.sum(weights[:, None] * shares * log_P))


def probabilities(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Return class probabilities, (n, n_classes), from decision values and a sigmoid."""
    slope, offset = calibration
    if scores.ndim == 1:
        second = expit(slope * scores + offset)
        return np.column_stack([1 - second, second])
    logarithms = log_expit(slope * scores + offset)
    return np.asarray(softmax(logarithms, axis=1))


def class_scores(linear: np.ndarray, n_classes: int, of_pairs: bool) -> np.ndarray:
    """Convert outputs to decision values: (n,) for two classes, else (n, n_classes)."""
    if n_classes == 2:
        return linear[:, 0]
    if not of_pairs:
        return linear
    return votes_with_sums(linear, n_classes)


def votes_with_sums(pair_scores: np.ndarray, n_classes: int) -> np.ndarray:
    """Return one-vs-one votes for each class; sums of decision values break ties."""
    votes, sums = pair_votes(pair_scores, n_classes)
    return votes + sums / (3 * (1 + np.abs(sums)))


def pair_votes(scores: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the one-vs-one votes for each class, and sums of decision values."""
    votes, sums = np.zeros((2, *scores.shape[:-1], n_classes))
    for j, (first, second) in enumerate(combinations(range(n_classes), 2)):
        f = scores[..., j]
        votes[..., first] += f <= 0
        votes[..., second] += f > 0
        sums[..., first] -= f
        sums[..., second] += f
    return votes, sums


def order_statistics(values: np.ndarray) -> np.ndarray:
    """Sort each column, and keep at most 999 values at evenly spaced ranks."""
    ascending = np.sort(values, axis=0)
    n = len(ascending)
    if n <= MOST_RESIDUALS:
        return ascending
    ranks = np.arange(1, MOST_RESIDUALS + 1) * (n + 1) / (MOST_RESIDUALS + 1)
    return ascending[np.ceil(ranks).astype(np.intp) - 1]


def conformal_quantile(residuals: np.ndarray, alpha: float) -> np.ndarray | None:
    """Return the conformal bound that a new residual exceeds with probability at most alpha.

    Residuals are absolute, and columns ascend. None for too few rows.
    """
    if not 0 < alpha < 1:
        return None
    n = len(residuals)
    rank = max(1, int(np.ceil((n + 1) * (1.0 - alpha) - RANK_ROUNDING)))
    if rank > n:
        return None
    return np.asarray(residuals[rank - 1])


def residual_quantiles(residuals: np.ndarray, levels: np.ndarray) -> np.ndarray | None:
    """Return quantiles of signed residuals, (n_levels, q); None for too few rows.

    Level p has rank (n + 1) p.
    """
    n = len(residuals)
    ranks = (n + 1) * levels
    if not ((ranks >= 1 - RANK_ROUNDING) & (ranks <= n + RANK_ROUNDING)).all():
        return None
    return np.quantile(residuals, levels, axis=0, method="weibull")
