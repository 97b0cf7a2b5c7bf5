"""Landmarks: the few training rows that a predictor of many rows is a combination of, and how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from learnkernels.kernels.predictors.rows import KernelOnRows
from learnkernels.kernels.predictors.subspace import BLOCK, Subspace, SubspacePasses, centered_products

Sampling = Literal["uniform", "leverage"]

SAMPLINGS: tuple[Sampling, ...] = ("uniform", "leverage")

MEMORY = 3 << 30
"""Bytes that a fit may take where nothing is said: those of a laptop, and of the matrices of 10,000 rows."""

PILOTS = 1000
"""Most landmarks that leverage scores are estimated from."""

SQUARES = 8
"""Matrices of all pairs of landmarks that are held at once: eigenvectors and their work, basis, products a thread."""

FEATURE_BYTES = 32
"""Bytes a feature of a row takes where features are held: its value, and the copy that liblinear makes."""


@dataclass(frozen=True)
class Landmarks:
    """Rows out of the training rows.

    Attributes
    ----------
    positions : ndarray of int of shape (M,)
        Among the training rows, ascending.
    counts : ndarray of shape (M,)
        How many training rows each stands for; they sum to about m.
    """

    positions: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)


def landmarks_for(
    n_rows: int,
    n_features: int,
    n_columns: int,
    memory: int = MEMORY,
    held_features: bool = False,
    n_threads: int = 2,
    held_kernel: bool = False,
) -> int:
    r"""Return how many landmarks to take of m rows: enough for the error of all rows, and what fits the memory.

    .. math:: M = \lceil \sqrt m \, \ln m \rceil

    Parameters
    ----------
    n_rows, n_features : int
        m and d.
    n_columns : int
        Columns that are solved for at once: outputs times regularisations.
    memory : int
        Bytes that the fit may take beside the data set.
    held_features : bool, default False
        Whether all m by M features are held, as scikit-learn's linear models need them.
    n_threads : int, default 2
        Threads, each of which holds a block of its own.
    held_kernel : bool, default False
        Whether to take up to twice as many of which the kernel with all rows fits the memory, too: formed once, it
        leaves the time of as many for which it is formed in every step, and the error is lower.

    Returns
    -------
    M : int
        At least 10, at most m.

    References
    ----------
    Rudi, Camoriano, Rosasco (2015), Less is More: Nystroem Computational Regularization, NIPS 28, Theorem 1: as many
    landmarks reach the learning rate of all rows. Rudi, Carratino, Rosasco (2017), FALKON, NIPS 30, Theorem 3.
    """
    enough = int(np.ceil(np.sqrt(n_rows) * np.log(max(n_rows, 2))))
    a = 8.0 * SQUARES
    b = 8.0 * (n_threads * BLOCK + 8 * n_columns + n_features) + (FEATURE_BYTES * n_rows if held_features else 0)
    found = min(enough, _largest(a, b, memory))
    if held_kernel:
        found = max(found, min(2 * enough, _largest(a, b + 8.0 * n_rows, memory)))
    return min(n_rows, max(10, found))


def _largest(a: float, b: float, memory: int) -> int:
    """Return the largest whole M with ``a M^2 + b M`` of at most `memory`."""
    return int((np.sqrt(b * b + 4 * a * memory) - b) / (2 * a))


def uniform_landmarks(n_rows: int, n_landmarks: int, rng: np.random.Generator) -> Landmarks:
    """Return landmarks drawn without replacement, each row with the same probability."""
    positions = np.sort(rng.choice(n_rows, n_landmarks, replace=False))
    return Landmarks(positions, np.full(n_landmarks, n_rows / n_landmarks))


def leverage_landmarks(on: KernelOnRows, n_landmarks: int, rng: np.random.Generator) -> Landmarks:
    r"""Return landmarks drawn without replacement, by estimates of the rows' ridge leverage scores.

    .. math:: \ell_i(\lambda) = \bigl( K_c (K_c + \lambda I)^{-1} \bigr)_{ii} \approx
              \varphi_i^\top (\Phi^\top \Phi + \lambda I)^{-1} \varphi_i
              + \tfrac1\lambda \bigl( K_c(x_i, x_i) - \lVert \varphi_i \rVert^2 \bigr)

    Parameters
    ----------
    on : KernelOnRows
        m training rows.
    n_landmarks : int
        M.
    rng : numpy.random.Generator
        Draws them.

    Returns
    -------
    landmarks : Landmarks
        A row's count is one over the probability that it was drawn with.

    Notes
    -----
    phi are the features of up to `PILOTS` landmarks drawn uniformly; the ridge is the one at which the scores of their
    subspace sum to half their number. Two passes over m by `PILOTS` kernels. Rows that few others resemble get more of
    the landmarks than their share.

    References
    ----------
    Alaoui, Mahoney (2015), Fast Randomized Kernel Ridge Regression with Statistical Guarantees, NIPS 28, Definition 1.
    Rudi, Calandriello, Carratino, Rosasco (2018), On Fast Leverage Score Sampling, NeurIPS 31.
    """
    m = on.n_rows
    pilots = uniform_landmarks(m, min(n_landmarks, PILOTS), rng)
    subspace = Subspace.of(on.kernel, *on.take(pilots.positions), pilots.counts)
    passes = SubspacePasses(on, subspace, np.zeros((m, 0)))
    sums = passes.sums(products=True)
    mean, products = centered_products(subspace, sums)
    theta, Q = np.linalg.eigh(products)
    theta = np.maximum(theta, 0.0)
    ridge = _ridge_of_dimension(theta, len(theta) / 2)
    scores = np.maximum(passes.scores(mean, Q / np.sqrt(theta + ridge), ridge), np.finfo(np.float64).tiny)
    # Exponential races: the first M to arrive are drawn without replacement in proportion to their scores.
    positions = np.sort(np.argpartition(rng.exponential(size=m) / scores, n_landmarks - 1)[:n_landmarks])
    counts = 1.0 / np.minimum(1.0, scores[positions] * (n_landmarks / scores.sum()))
    return Landmarks(positions, counts * (m / counts.sum()))


def _ridge_of_dimension(theta: np.ndarray, dimension: float) -> float:
    """Return lambda at which ``sum theta / (theta + lambda)`` is the dimension, by bisection of its logarithm."""
    low, high = np.log(theta.max()) - 60.0, np.log(theta.max()) + 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (theta / (theta + np.exp(middle))).sum() > dimension else (low, middle)
    return float(np.exp(high))
