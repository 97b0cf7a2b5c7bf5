"""Probabilities from scores: one sigmoid per score, fitted on scores of rows that the predictor did not see."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.special import expit, log_expit, softmax

from ..families.base import Rows, distinct_rows

FOLDS = 5
"""Parts of the training rows, each scored by a predictor of the others."""

NEWTON_STEPS = 100
"""Most steps of Newton's method for a sigmoid; ten are usual."""

HALVINGS = 40
"""Most halvings of such a step."""

SETTLED = 1e-13
"""Gradient, relative to the sum of the weights, at which it ends."""

ROUGHLY = 1e-5
"""The same where losses are compared, which are flat at the solution."""


def assign_calibration_folds(X: Rows, codes: np.ndarray) -> np.ndarray:
    """Return the fold of each training row: classes spread evenly, copies of a row together.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (m, d)
        Training rows. Not modified.
    codes : ndarray of int of shape (m,)
        Position of each row's class.

    Returns
    -------
    folds : ndarray of int of shape (m,)
        From 0 to `FOLDS` - 1, and -1 for rows that no predictor can do without, the only ones of a class. Folds depend
        on the set of distinct rows and on their classes: not on the order of rows, nor on how often one is repeated.
    """
    first, which = distinct_rows(X)
    # A row that is in several classes is spread with the first of them.
    own = np.full(len(first), codes.max())
    np.minimum.at(own, which, codes)
    shuffled = np.random.default_rng(0).permutation(len(first))
    ordered = shuffled[np.argsort(own[shuffled], kind="stable")]
    fold_of = np.empty(len(first), dtype=np.intp)
    fold_of[ordered] = np.arange(len(first)) % FOLDS
    for k in range(codes.max() + 1):
        rows = which[codes == k]
        if np.ptp(fold_of[rows]) == 0:
            fold_of[rows] = -1
    return fold_of[which]


def fit_sigmoid(
    scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None, settled: float = SETTLED
) -> tuple[float, float]:
    r"""Return slope and offset of the sigmoid that turns scores into probabilities.

    .. math:: p(f) = \frac{1}{1 + e^{-(a f + b)}}, \qquad
              \min_{a \ge 0, b} \; - \sum_i w_i \bigl( t_i \log p_i + (1 - t_i) \log (1 - p_i) \bigr)

    with targets :math:`t = (N_+ + 1) / (N_+ + 2)` for positive rows and :math:`1 / (N_- + 2)` for the others.

    Parameters
    ----------
    scores : ndarray of shape (m,)
        f, of rows that the predictor was not fitted on.
    positive : ndarray of bool or float of shape (m,)
        Rows of the class that the score speaks for, or the share of it among the copies of each row.
    weights : ndarray of shape (m,) or None
        w, by default ones; N are sums of them.
    settled : float
        Gradient, relative to the sum of the weights, at which the iteration ends.

    Returns
    -------
    slope, offset : float
        a and b. Where scores fall as the class becomes more frequent, a is zero and p its share: probabilities never
        contradict the order of the scores.

    Notes
    -----
    Newton's method with halved steps; convex. O(m) a step.

    References
    ----------
    Platt (1999), Advances in Large Margin Classifiers; Lin, Lin, Weng (2007), Machine Learning 68:267-276, for the
    method and how logarithms are formed.
    """
    w = np.ones(len(scores)) if weights is None else weights
    total, positives = float(w.sum()), float(w @ positive)
    t = positive * ((positives + 1) / (positives + 2)) + (1.0 - positive) / (total - positives + 2)
    scale = float(np.abs(scores).max()) or 1.0
    F = np.column_stack([scores / scale, np.ones(len(scores))])
    theta = np.array([0.0, np.log((positives + 1) / (total - positives + 1))])

    def loss(theta: np.ndarray) -> float:
        z = F @ theta
        return float(w @ (np.logaddexp(0.0, z) - t * z))

    value = loss(theta)
    for _ in range(NEWTON_STEPS):
        p = expit(F @ theta)
        gradient = F.T @ (w * (p - t))
        if np.abs(gradient).max() <= settled * total:
            break
        H = (F * (w * p * (1 - p))[:, None]).T @ F
        H[np.diag_indices(2)] += np.finfo(np.float64).eps * total
        step = -np.linalg.solve(H, gradient)
        for _ in range(HALVINGS):
            candidate = loss(theta + step)
            if candidate <= value + 1e-4 * float(gradient @ step):
                break
            step = step / 2
        else:
            break
        theta, value = theta + step, candidate
    if theta[0] > 0:
        return float(theta[0] / scale), float(theta[1])
    share = float(w @ t) / total
    return 0.0, float(np.log(share / (1 - share)))


def fit_calibration(scores: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return slope and offset of one sigmoid for the scores of all classes, shape (2,).

    Parameters
    ----------
    scores : ndarray of shape (m,), (m, 1) or (m, n_classes)
        Of the second of two classes, or one a class, of rows that the predictor was not fitted on.
    codes : ndarray of int of shape (m,)
        Position of each row's class.
    weights : ndarray of shape (m,) or None
        Of the rows; ones by default.
    """
    scores = scores.reshape(len(codes), -1)
    spoken_for = np.array([1]) if scores.shape[1] == 1 else np.arange(scores.shape[1])
    repeated = None if weights is None else np.repeat(weights, len(spoken_for))
    return np.array(fit_sigmoid(scores.ravel(), (codes[:, None] == spoken_for).ravel(), repeated))


def calibrated_log_loss(scores: np.ndarray, shares: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the log loss of probabilities on the rows that their calibration is fitted on, a weighted sum.

    Parameters
    ----------
    scores : ndarray of shape (m, 1) or (m, n_classes)
        As in `fit_calibration`.
    shares : ndarray of shape (m, n_classes)
        Of the classes among the copies of each row.
    weights : ndarray of shape (m,) or None
        Of the rows; ones by default.
    """
    w, q = np.ones((len(shares), 1)) if weights is None else weights[:, None], scores.shape[1]
    repeated = None if weights is None else np.repeat(weights, q)
    sigmoid = fit_sigmoid(scores.ravel(), shares[:, -q:].ravel(), repeated, ROUGHLY)
    P = probabilities(scores[:, 0] if q == 1 else scores, np.array(sigmoid))
    return -float(np.sum(w * shares * np.log(np.maximum(P, np.finfo(np.float64).tiny))))


def probabilities(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Return the probability of each class, shape (n, n_classes), rows of sum one.

    Parameters
    ----------
    scores : ndarray of shape (n,) or (n, n_classes)
        Of the second class, or one a class.
    calibration : ndarray of shape (2,)
        Slope and offset.

    Notes
    -----
    Several classes are compared by the logarithms of their sigmoids, which keep the order of scores where the sigmoids
    themselves underflow.
    """
    slope, offset = calibration
    if scores.ndim == 1:
        second = expit(slope * scores + offset)
        return np.column_stack([1 - second, second])
    logarithms = log_expit(slope * scores + offset)
    return np.asarray(softmax(logarithms, axis=1))


def class_scores(linear: np.ndarray, n_classes: int, of_pairs: bool) -> np.ndarray:
    """Return the scores that classes are predicted from.

    Parameters
    ----------
    linear : ndarray of shape (n, q)
        Scores that are linear in the kernel: one for two classes, one a class, or one per pair of classes (svm).
    n_classes : int
        At least two.
    of_pairs : bool
        Whether there is one per pair of more than two classes, as support vector machines have them.

    Returns
    -------
    scores : ndarray of shape (n,) or (n, n_classes)
        Of pairs, the number that a class wins, and its sum f over them as ``f / (3 (1 + |f|))``.
    """
    if n_classes == 2:
        return linear[:, 0]
    if not of_pairs:
        return linear
    return votes_with_sums(linear, n_classes)


def votes_with_sums(pair_scores: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the pairs that each class wins, plus less than a third for the sum of its scores, (n, n_classes)."""
    votes, sums = pair_votes(pair_scores, n_classes)
    return votes + sums / (3 * (1 + np.abs(sums)))


def pair_votes(scores: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many pairs each class wins, and its sum of scores, of scores of pairs of shape (..., n_pairs)."""
    votes, sums = np.zeros((2, *scores.shape[:-1], n_classes))
    for j, (first, second) in enumerate(combinations(range(n_classes), 2)):
        f = scores[..., j]
        votes[..., first] += f <= 0
        votes[..., second] += f > 0
        sums[..., first] -= f
        sums[..., second] += f
    return votes, sums


def interval_half_width(residuals: np.ndarray, alpha: float) -> np.ndarray | None:
    """Return half of the width of an interval that new targets are outside of with probability `alpha`, shape (q,).

    Parameters
    ----------
    residuals : ndarray of shape (n, q)
        Absolute residuals of held-out rows, ascending in each column.
    alpha : float
        Probability, between 0 and 1.

    Returns
    -------
    half_width : ndarray of shape (q,) or None
        None where no residual is so large.
    """
    n = len(residuals)
    place = int(np.ceil((n + 1) * (1.0 - alpha))) if 0 < alpha < 1 else n + 1
    return np.asarray(residuals[place - 1]) if place <= n else None
