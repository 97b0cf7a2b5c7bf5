"""Ways to get M and a of p Gaussian kernels: each returns (M, a) of centered kernels for rows X and targets y."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels import GaussianFamily, gram_moments

Contestant = Callable[[np.ndarray, np.ndarray, list[float]], tuple[np.ndarray, np.ndarray]]


def textbook(X: np.ndarray, y: np.ndarray, gammas: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Hold p centered m by m matrices, as the formulas are written."""
    D = _squared_distances(X, X)
    Ks = []
    for gamma in gammas:
        K = np.exp(-gamma * D)
        K -= K.mean(axis=0)
        K -= K.mean(axis=1)[:, None]
        Ks.append(K)
    flat = np.stack([K.ravel() for K in Ks])
    return flat @ flat.T, np.array([y @ K @ y for K in Ks])


def blocked(X: np.ndarray, y: np.ndarray, gammas: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Go over blocks of rows with p exponentials a pair, and center by the identities."""
    m, p, step = len(X), len(gammas), 256
    G, T, r = np.zeros((p, p)), np.zeros(p), np.zeros((p, m))
    for start in range(0, m, step):
        rows = slice(start, start + step)
        D = _squared_distances(X[rows], X)
        K = np.stack([np.exp(-gamma * D) for gamma in gammas])
        flat = K.reshape(p, -1)
        G += flat @ flat.T
        T += (K @ y) @ y[rows]
        r[:, rows] = K.sum(axis=2)
    s, total = r.sum(axis=1), y.sum()
    M = G - (2 / m) * r @ r.T + np.outer(s, s) / m**2
    return M, T - (2 / m) * total * (r @ y) + (total / m) ** 2 * s


def learnkernels(X: np.ndarray, y: np.ndarray, gammas: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Run the engine of this project in one process, for five folds at once."""
    moments = gram_moments(GaussianFamily(gammas), X, y, np.arange(len(X)) % 5)
    return moments.frobenius, moments.target


def _squared_distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    D = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1) - 2 * A @ B.T
    return np.maximum(D, 0.0)


CONTESTANTS: dict[str, Contestant] = {"textbook": textbook, "blocked": blocked, "learnkernels": learnkernels}
