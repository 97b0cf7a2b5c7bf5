"""Ways to get M and a of p Gaussian kernels: each returns (M, a) of centered kernels for rows X and targets y."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from learnkernels import GaussianFamily, gram_statistics

Answer = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Contestant:
    """One way, with the cores it may use and the most rows that are worth waiting for."""

    solve: Callable[[np.ndarray, np.ndarray, list[float]], Answer]
    cores: int = 2
    most_rows: int = 10**9
    needs: str | None = None

    def reason_to_skip(self, m: int) -> str | None:
        """Return why this contestant does not take part at m rows, None if it does."""
        if self.needs is not None and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        return (
            f"more than {self.most_rows} rows take minutes"
            if m > self.most_rows
            else None
        )


def textbook(X: np.ndarray, y: np.ndarray, gammas: list[float]) -> Answer:
    """Hold p centered m by m matrices, as the formulas are written."""
    D = _squared_distances(X, X)
    Ks = []
    for gamma in gammas:
        K = np.exp(-gamma * D)
        K -= K.mean(axis=0)
        K -= K.mean(axis=1)[:, None]
        Ks.append(K)
    M = np.zeros((len(Ks), len(Ks)))
    for k, K in enumerate(Ks):
        for l, L in enumerate(Ks[: k + 1]):
            M[k, l] = M[l, k] = np.vdot(K, L)
    return M, np.array([y @ K @ y for K in Ks])


def blocked(X: np.ndarray, y: np.ndarray, gammas: list[float]) -> Answer:
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
    return _center(G, T, r, y)


def tiled(X: np.ndarray, y: np.ndarray, gammas: list[float]) -> Answer:
    """Go over the upper tiles, square from one expm1 a pair, center by the identities: the engine's idea in NumPy."""
    m, p, step = len(X), len(gammas), 256
    G, T, r = np.zeros((p, p)), np.zeros(p), np.zeros((p, m))
    for i in range(0, m, step):
        A, rows = X[i : i + step], slice(i, i + step)
        for j in range(i, m, step):
            B, columns = X[j : j + step], slice(j, j + step)
            D = _squared_distances(A, B)
            E = np.empty((p, *D.shape))
            np.expm1(-gammas[0] * D, out=E[0])
            for k in range(1, p):
                np.add(E[k - 1], 2.0, out=E[k])
                E[k] *= E[k - 1]
            flat = E.reshape(p, -1)
            twice = 1.0 if i == j else 2.0
            G += twice * (flat @ flat.T)
            T += twice * ((E @ y[columns]) @ y[rows])
            r[:, rows] += E.sum(axis=2)
            if i != j:
                r[:, columns] += E.sum(axis=1)
    return _center(G, T, r, y)


def engine(
    X: np.ndarray, y: np.ndarray, gammas: list[float], **options: object
) -> Answer:
    """Run the engine of this project, for five folds at once."""
    stats = gram_statistics(
        GaussianFamily(gammas), X, y, np.arange(len(X)) % 5, **options
    )  # type: ignore[arg-type]
    return stats.products(), stats.target_products()


def mklpy(X: np.ndarray, y: np.ndarray, gammas: list[float]) -> Answer:
    """Let MKLpy's CKA learner weigh its list of matrices; it shows weights only, so M and a are not compared."""
    from MKLpy.algorithms import CKA

    D = _squared_distances(X, X)
    CKA().fit([np.exp(-gamma * D) for gamma in gammas], y)
    return np.full((len(gammas), len(gammas)), np.nan), np.full(len(gammas), np.nan)


def _center(G: np.ndarray, T: np.ndarray, r: np.ndarray, y: np.ndarray) -> Answer:
    m, s, mean = len(y), r.sum(axis=1), y.mean()
    return G - (2 / m) * r @ r.T + np.outer(s, s) / m**2, T - 2 * mean * (
        r @ y
    ) + mean**2 * s


def _squared_distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    D = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1) - 2 * A @ B.T
    return np.maximum(D, 0.0)


CONTESTANTS: dict[str, Contestant] = {
    "textbook": Contestant(textbook, most_rows=10_000),
    "blocked": Contestant(blocked, most_rows=20_000),
    "tiled, 1 core": Contestant(tiled, cores=1, most_rows=20_000),
    "mklpy": Contestant(mklpy, most_rows=2_000, needs="MKLpy"),
    "engine, 1 core": Contestant(
        lambda X, y, gammas: engine(X, y, gammas, n_threads=1), cores=1
    ),
    "engine, float32": Contestant(
        lambda X, y, gammas: engine(X, y, gammas, dtype=np.float32)
    ),
    "engine": Contestant(engine),
}
OURS = "engine"
