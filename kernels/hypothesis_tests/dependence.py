"""Measures and permutation tests of dependence, based on alignments of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from ..base import Value
from ..centering import (
    as_gram_matrices,
    center_cross_gram,
    center_gram,
    centered_diagonals,
    require_gram_matrices,
    require_varying,
)
from ..engine.operators import gram_operator
from ..engine.workers import spans
from ..families.base import KernelFamily, Rows, as_rows, move
from ..statistics.gram import AlignmentStatistics, gram_statistics
from ..targets import Target, Task
from ..weights import near_one

BLOCK_ROWS = 8192
"""Rows of representations per block."""

PERMUTED_BYTES = 2**28
"""Memory limit of the permuted targets in one pass."""

GROUP_ROWS = 4
"""Smallest group of the jackknife."""

ROUNDING = 1e-12
"""Relative difference of equal statistics."""


@dataclass(frozen=True, eq=False, repr=False)
class AlignmentTest(Value):
    """Result of `alignment_test`: alignments, intervals and p-values, shape (p,).

    Attributes
    ----------
    names : tuple of str
        Names of the base kernels.
    alignments : ndarray
        Centered alignments on these rows.
    debiased : ndarray
        Centered alignments from unbiased estimates of the products.
    low, high : ndarray
        Jackknife interval around `debiased`.
    p_values : ndarray
        Share of permutations, including the identity, with at least the observed
        alignment.
    """

    names: tuple[str, ...]
    alignments: np.ndarray
    debiased: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p_values: np.ndarray


class IndependenceTest(NamedTuple):
    """Result of `independence_test`: an estimate of dependence, and its p-value.

    Attributes
    ----------
    hsic : float
        Unbiased estimate of the Hilbert-Schmidt independence criterion.
    p_value : float
        Share of permutations, including the identity, with at least this criterion.
    """

    hsic: float
    p_value: float


def permutation_test(
    statistic: Callable[[np.ndarray], np.ndarray],
    n_rows: int,
    n_permutations: int,
    rng: np.random.Generator,
    *,
    magnitude: float | np.ndarray,
    at_once: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return a statistic and its p-value, by permutations of the rows.

    ``statistic(orders)`` has shape (..., r) for at most `at_once` orders. Rounding
    errors are relative to `magnitude`.
    """
    orders = chain(
        [np.arange(n_rows)], (rng.permutation(n_rows) for _ in range(n_permutations))
    )
    runs = [high - low for low, high in spans(n_permutations + 1, at_once)]
    values = np.concatenate(
        [statistic(np.array(list(islice(orders, run)))) for run in runs], axis=-1
    )
    observed_statistic = values[..., 0]
    rounding = ROUNDING * np.asarray(magnitude)
    threshold = np.expand_dims(observed_statistic - rounding, -1)
    return observed_statistic, np.mean(values >= threshold, axis=-1)


def holm(p: Sequence[float]) -> np.ndarray:
    """Adjust p-values for the number of tests by the method of Holm (1979)."""
    n = len(p)
    order = np.argsort(p)
    factors = np.arange(n, 0, -1)
    adjusted = np.empty(n)
    adjusted[order] = np.maximum.accumulate(np.asarray(p)[order] * factors)
    return np.minimum(adjusted, 1.0)


def unbiased_products(M: np.ndarray, diagonals: np.ndarray) -> np.ndarray:
    r"""Return unbiased estimates of the HSIC for each pair of kernels.

    .. math:: \frac{1}{m (m - 3)} \Bigl( \langle K_c, L_c \rangle_F - \tfrac{m}{m - 2} \sum_i K_c(i, i) L_c(i, i)
              + \tfrac{\operatorname{tr} K_c \, \operatorname{tr} L_c}{(m - 1)(m - 2)} \Bigr)

    Parameters
    ----------
    M : ndarray of shape (p, p)
        Frobenius products of the centered kernels.
    diagonals : ndarray of shape (p, m)
        Diagonals of the centered kernels, m >= 4.

    Returns
    -------
    hsic : ndarray of shape (p, p)
        Estimates.

    References
    ----------
    Song, Smola, Gretton, Bedo, Borgwardt (2012), JMLR 13:1393-1434, equation (5).
    Szekely, Rizzo (2014), Annals of Statistics 42:2382-2412.
    """
    m = diagonals.shape[1]
    traces = diagonals.sum(axis=1)
    if m < 4:
        raise ValueError(f"debiased alignments need at least 4 rows, got {m}.")
    corrected = (
        M
        - m / (m - 2) * (diagonals @ diagonals.T)
        + np.outer(traces, traces) / ((m - 1) * (m - 2))
    )
    return np.asarray(corrected / (m * (m - 3)))


def linear_cka(X: np.ndarray, Y: np.ndarray, *, debiased: bool = False) -> float:
    r"""Return the centered alignment of linear kernels of two representations.

    .. math:: \frac{\lVert X_c^\top Y_c \rVert_F^2}{\lVert X_c^\top X_c \rVert_F \lVert Y_c^\top Y_c \rVert_F}

    Parameters
    ----------
    X, Y : ndarray of shape (m, d) and (m, e)
        Activations of two models, or features, for the same rows.
    debiased : bool, default False
        Whether to use unbiased estimates of the products.

    Returns
    -------
    cka : float
        Alignment in [0, 1]; debiased in [-1, 1].

    Notes
    -----
    O(m (d + e)^2) time and O(m + (d + e)^2) memory.

    References
    ----------
    Kornblith, Norouzi, Lee, Hinton (2019), ICML; Cortes, Mohri, Rostamizadeh (2012),
    JMLR 13:795-828, Definition 4.
    """
    representations = []
    for name, values in (("X", X), ("Y", Y)):
        values = np.asarray(values)
        if values.ndim != 2 or len(values) != len(X):
            raise ValueError(
                f"X and Y must have one row a sample, got shapes {np.shape(X)} and {np.shape(Y)}."
            )
        if not np.isfinite(values).all():
            raise ValueError(
                f"{name} must be finite, got NaN or infinity; look for missing values in the data."
            )
        representations.append(values)
    m = len(X)
    start = representations[0].shape[1]
    n_columns = start + representations[1].shape[1]
    means = [values.mean(axis=0, dtype=np.float64) for values in representations]
    largest = [
        max(float(values.max()), -float(values.min())) for values in representations
    ]
    sizes, exponents = np.frexp(largest)
    products = np.zeros((n_columns, n_columns))
    diagonals = np.empty((2, m))
    for low, high in spans(m, BLOCK_ROWS):
        block = np.hstack(
            [
                np.ldexp(values[low:high] - mean, -exponent)
                for values, mean, exponent in zip(
                    representations, means, exponents, strict=True
                )
            ]
        )
        products += block.T @ block
        squares = block**2
        diagonals[0, low:high] = squares[:, :start].sum(axis=1)
        diagonals[1, low:high] = squares[:, start:].sum(axis=1)
    across = float((products[:start, start:] ** 2).sum())
    M = np.array(
        [
            [(products[:start, :start] ** 2).sum(), across],
            [across, (products[start:, start:] ** 2).sum()],
        ]
    )
    for name, values, size, norm in zip(
        "XY", representations, sizes, np.sqrt(np.diag(M)), strict=True
    ):
        if norm <= m * values.shape[1] * (4 * np.finfo(np.float64).eps * size) ** 2:
            raise ValueError(
                f"{name} is the same in all rows, so its alignment is undefined; leave it out."
            )
    if debiased:
        M = unbiased_products(M, diagonals)
    if not np.diag(M).min() > 0:
        raise ValueError(
            "a representation is the same in all rows but for one, so its alignment is undefined."
        )
    return float(np.clip(M[0, 1] / np.sqrt(M[0, 0] * M[1, 1]), -1.0, 1.0))


def alignment_test(
    family: KernelFamily,
    X: Rows,
    y: np.ndarray,
    *,
    task: Task | None = None,
    n_permutations: int = 999,
    n_groups: int | None = None,
    level: float = 0.95,
    random_state: int = 0,
) -> AlignmentTest:
    """Test whether base kernels align with the target.

    Parameters
    ----------
    family : KernelFamily
        The p base kernels.
    X : ndarray or CSR matrix of shape (m, d)
        Rows, at least eight.
    y : ndarray of shape (m,) or (m, q)
        Targets or class labels.
    task : {"classification", "regression"}, optional
        Task; by default inferred.
    n_permutations : int, default 999
        Number of permutations of the target.
    n_groups : int, optional
        Number of groups of the jackknife, of four rows or more; by default at most 20.
    level : float, default 0.95
        Coverage of the intervals.
    random_state : int, default 0
        Random seed.

    Returns
    -------
    test : AlignmentTest
        Alignments, intervals and p-values.

    Notes
    -----
    O(m^2 (d + p^2)) for the statistics, and O(p m^2 q) per permutation. p-values are
    exact for independent rows. Correct them for the number of base kernels.

    References
    ----------
    Gretton, Fukumizu, Teo, Song, Scholkopf, Smola (2008), NIPS 20; Cortes, Mohri,
    Rostamizadeh (2012), JMLR 13:795-828, Definition 4.
    """
    X = as_rows(X)
    Y = Target.of(y, task).Y
    m = X.shape[0]
    rng = np.random.default_rng(random_state)
    if m < 2 * GROUP_ROWS:
        raise ValueError(
            f"alignment_test takes at least {2 * GROUP_ROWS} rows, got {m}; give more rows."
        )
    if n_groups is None:
        n_groups = min(20, m // GROUP_ROWS)
    if not 2 <= n_groups <= m // GROUP_ROWS:
        raise ValueError(
            f"n_groups must be from 2 to a quarter of the rows, got {n_groups} for {m} rows."
        )
    if n_permutations < 1 or not 0 < level < 1:
        raise ValueError(
            f"n_permutations must be positive and level between 0 and 1, got {n_permutations} and {level}."
        )
    statistics = gram_statistics(family, X, Y, rng.permutation(np.arange(m) % n_groups))
    statistics.require_informative()
    moved = move(X, statistics.origin)
    diagonals = np.empty((family.n_kernels, m))
    diagonals[:] = family.diag(moved) - statistics.shift[:, None]
    debiased = _debiased_alignments(statistics, diagonals)
    groups = set(range(n_groups))
    without_group = np.array(
        [
            _debiased_alignments(statistics.restrict(sorted(groups - {g})), diagonals)
            for g in range(n_groups)
        ]
    )
    deviations = without_group - without_group.mean(axis=0)
    error = np.sqrt((n_groups - 1) / n_groups * (deviations**2).sum(axis=0))
    margin = stdtrit(n_groups - 1, (1 + level) / 2) * error
    scales = statistics.multiplied(np.ones(family.n_kernels))
    grams = gram_operator(family, moved, shift=statistics.shift, scales=scales)
    Y = Y - Y.mean(axis=0)
    _, p_values = permutation_test(
        lambda orders: grams.quadratic_forms(Y[orders.T]),
        m,
        n_permutations,
        rng,
        magnitude=statistics.norms() * statistics.target_norm(),
        at_once=max(1, PERMUTED_BYTES // Y.nbytes),
    )
    return AlignmentTest(
        family.names,
        statistics.alignments,
        debiased,
        np.clip(debiased - margin, -1.0, 1.0),
        np.clip(debiased + margin, -1.0, 1.0),
        p_values,
    )


def _debiased_alignments(
    statistics: AlignmentStatistics, diagonals: np.ndarray
) -> np.ndarray:
    p = statistics.n_kernels
    means = statistics.combined_row_means(np.eye(p))
    Y = statistics.targets - statistics.targets.mean(axis=0)
    centered = statistics.divided(
        centered_diagonals(diagonals[:, statistics.rows], means)
    )
    M = np.empty((p + 1, p + 1))
    M[:p, :p] = statistics.products()
    M[p, p] = statistics.target_norm() ** 2
    M[p, :p] = M[:p, p] = statistics.target_products()
    products = unbiased_products(M, np.vstack([centered, np.einsum("iq,iq->i", Y, Y)]))
    norms = np.sqrt(np.maximum(np.diag(products), np.finfo(np.float64).tiny))
    return np.asarray(np.clip(products[:p, p] / (norms[:p] * norms[p]), -1.0, 1.0))


def independence_test(
    K: np.ndarray, L: np.ndarray, *, n_permutations: int = 999, random_state: int = 0
) -> IndependenceTest:
    """Test whether two variables are independent, from their Gram matrices.

    Parameters
    ----------
    K, L : ndarray of shape (m, m)
        Gram matrices over the same m >= 4 rows.
    n_permutations : int, default 999
        Number of permutations of one variable.
    random_state : int, default 0
        Random seed.

    Returns
    -------
    test : IndependenceTest
        Criterion and p-value.

    Notes
    -----
    O(m^2) per permutation. `alignment_test` supports more rows if one kernel is linear.

    References
    ----------
    Gretton, Fukumizu, Teo, Song, Scholkopf, Smola (2008), NIPS 20; Song et al. (2012),
    JMLR 13:1393-1434.
    """
    K, L = as_gram_matrices([("K", K), ("L", L)], np.float64)
    require_gram_matrices(K, L)
    if n_permutations < 1:
        raise ValueError(f"n_permutations must be positive, got {n_permutations}.")
    K_c = center_gram(K)
    L_c = center_gram(L)
    rng = np.random.default_rng(random_state)

    def products(orders: np.ndarray) -> np.ndarray:
        return np.array([np.vdot(K_c, L_c[np.ix_(order, order)]) for order in orders])

    K_norm = np.vdot(K_c, K_c)
    L_norm = np.vdot(L_c, L_c)
    magnitude = float(np.sqrt(K_norm) * np.sqrt(L_norm))
    observed_statistic, p = permutation_test(
        products, len(K), n_permutations, rng, magnitude=magnitude, at_once=1
    )
    M = np.array([[K_norm, observed_statistic], [observed_statistic, L_norm]])
    hsic = unbiased_products(M, np.array([np.diag(K_c), np.diag(L_c)]))[0, 1]
    return IndependenceTest(float(hsic), float(p))


def alignment_hypothesis(
    K: np.ndarray,
    y: np.ndarray,
    K_new: np.ndarray | None = None,
    *,
    normalized: bool = True,
) -> np.ndarray:
    r"""Return predictions whose mean product with the target is the alignment.

    .. math:: h_S(x) = \frac{\tfrac1m \sum_i y_i K_c(x, x_i)}{\tfrac1m \lVert K_c \rVert_F}, \qquad
              g_S(x) = \tfrac1m \sum_i y_i K_c(x, x_i), \qquad \tfrac1m \sum_i y_i h_S(x_i) = \hat\rho(K, y y^\top)

    for standardized targets.

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Gram matrix of the training rows, not centered.
    y : ndarray of shape (m,)
        Numbers, or labels of two classes; the second is positive.
    K_new : ndarray of shape (n, m), optional
        Kernel between new and training rows, not centered; by default K.
    normalized : bool, default True
        Whether to return h_S, otherwise g_S.

    Returns
    -------
    scores : ndarray of shape (n,)
        Predictions of the standardized target.

    Notes
    -----
    O(m^2 + n m). See `alignment_error_bound` for the misclassification rate.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 4.2: h_S, Theorems 13
    and 14; g_S, Theorem 15.
    """
    (K,) = as_gram_matrices([("K", K)], np.float64)
    z = _standardized(y, K)
    K_c, norm = _centered(K)
    K_rows = K_c
    if K_new is not None:
        K_rows = center_cross_gram(K_new, K)
    divisor = norm if normalized else len(z)
    return np.asarray(K_rows @ z / divisor)


def alignment_error_bound(
    K: np.ndarray, y: np.ndarray, *, normalized: bool = True
) -> float:
    r"""Return a bound on the misclassification rate of `alignment_hypothesis`.

    .. math:: 1 - \frac{\hat\rho}{\Gamma \max_i |y_i|}, \qquad
              \Gamma^2 = \max_i \frac{\tfrac1m \sum_j K_c(x_i, x_j)^2}{\tfrac{1}{m^2} \lVert K_c \rVert_F^2}

    Parameters
    ----------
    K, y, normalized
        As in `alignment_hypothesis`. For g_S, the largest :math:`K_c(x_i, x_i)`
        replaces Gamma.

    Returns
    -------
    bound : float
        Bound for the signs on the same rows; trivial at 1.

    Notes
    -----
    The theorems hold for a distribution with classes of equal size; here, it is the
    distribution of the rows. For other classes, the bound uses the largest standardized
    label.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Theorems 13 and 15.
    """
    (K,) = as_gram_matrices([("K", K)], np.float64)
    z = _standardized(y, K)
    K_c, norm = _centered(K)
    m = len(z)
    largest = float(np.abs(z).max())
    if normalized:
        gamma = float(np.sqrt((K_c**2).sum(axis=1).max() * m)) / norm
        return 1.0 - float(z @ K_c @ z) / (norm * m * gamma * largest)
    return 1.0 - float(z @ K_c @ z) / (m**2 * float(np.diag(K_c).max()) * largest)


def _centered(K: np.ndarray) -> tuple[np.ndarray, float]:
    K_c = center_gram(K)
    norm = float(np.linalg.norm(K_c))
    require_varying("K", K, norm, len(K))
    return K_c, norm


def _standardized(y: np.ndarray, K: np.ndarray) -> np.ndarray:
    require_gram_matrices(K, K)
    Y = Target.of(y).Y
    if Y.shape != (len(K), 1):
        raise ValueError(
            f"y must have one output per row of K, got shape {Y.shape} for {len(K)} rows."
        )
    if not np.ptp(Y) > 0:
        raise ValueError(
            "the target is constant on the training rows, so no kernel can align with it."
        )
    deviations = near_one(Y[:, 0] - Y[:, 0].mean())
    return np.asarray(deviations / np.sqrt((deviations**2).mean()))
