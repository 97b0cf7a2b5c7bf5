"""Slow and obvious oracles: one pair of rows at a time, explicit matrices, extended
precision.

Nothing here imports the package under test. Kernel values are computed in long double,
whose rounding is far below every tolerance of the suite (and, where a platform has no
wider type, about that of the code under test).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse
from sklearn.svm import SVC

Wide = np.longdouble
Kernel = Callable[[np.ndarray, np.ndarray], np.longdouble]
"""A kernel as a function of two rows."""


# Kernel values -------------------------------------------------------------------------------------------------------


def gaussian(gamma: float) -> Kernel:
    return lambda x, z: np.exp(-Wide(gamma) * ((x - z) ** 2).sum())


def gaussian_less_one(gamma: float) -> Kernel:
    return lambda x, z: np.expm1(-Wide(gamma) * ((x - z) ** 2).sum())


def polynomial(degree: int, gamma: float = 1.0, coef0: float = 1.0) -> Kernel:
    def value(x, z):
        base = Wide(gamma) * (x * z).sum() + Wide(coef0)
        product = Wide(1)
        for _ in range(degree):
            product = product * base
        return product

    return value


def linear() -> Kernel:
    return lambda x, z: (x * z).sum()


def laplacian(gamma: float) -> Kernel:
    return lambda x, z: np.exp(-Wide(gamma) * abs(x - z).sum())


def euclidean_laplacian(gamma: float) -> Kernel:
    return lambda x, z: np.exp(-Wide(gamma) * np.sqrt(((x - z) ** 2).sum()))


def laplacian_less_one(gamma: float) -> Kernel:
    return lambda x, z: np.expm1(-Wide(gamma) * abs(x - z).sum())


def cosine() -> Kernel:
    return lambda x, z: (
        (x * z).sum() / (np.sqrt((x * x).sum()) * np.sqrt((z * z).sum()))
    )


def dirichlet(frequency: float, degree: int = 1) -> Kernel:
    def value(x, z):
        product = Wide(1)
        for difference in x - z:
            product = product * (
                1
                + 2
                * sum(
                    np.cos(j * Wide(frequency) * difference)
                    for j in range(1, degree + 1)
                )
            )
        return product

    return value


def feature(column: int) -> Kernel:
    return lambda x, z: x[column] * z[column]


def on_columns(kernel: Kernel, columns: Sequence[int]) -> Kernel:
    return lambda x, z: kernel(x[list(columns)], z[list(columns)])


def on_scaled(kernel: Kernel, scales: Sequence[float]) -> Kernel:
    wide = np.asarray(scales, dtype=Wide)

    return lambda x, z: kernel(wide * x, wide * z)


def on_mapped(kernel: Kernel, matrix: np.ndarray) -> Kernel:
    wide = np.asarray(matrix, dtype=Wide)

    return lambda x, z: kernel(x @ wide, z @ wide)


def wide_rows(X) -> np.ndarray:
    """Return the rows of a dense or sparse matrix as a dense array in long double."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X).astype(Wide)


def gram(kernel: Kernel, A, B=None) -> np.ndarray:
    """Return the kernel between every row of A and every row of B (or of A), by a double loop."""
    A = wide_rows(A)
    B = A if B is None else wide_rows(B)
    K = np.empty((len(A), len(B)), dtype=Wide)
    for i in range(len(A)):
        for j in range(len(B)):
            K[i, j] = kernel(A[i], B[j])
    return K


def grams(kernels: Sequence[Kernel], A, B=None) -> list[np.ndarray]:
    return [gram(kernel, A, B) for kernel in kernels]


# Centering and alignment ---------------------------------------------------------------------------------------------


def centered(K: np.ndarray) -> np.ndarray:
    """Return H K H with an explicit H = I - 11'/m."""
    m = len(K)
    H = np.eye(m, dtype=Wide) - np.ones((m, m), dtype=Wide) / m
    return H @ K.astype(Wide) @ H


def centered_cross(K_cross: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Return the kernel of new rows against training rows, less the training rows' mean feature, entry by entry."""
    n, m = K_cross.shape
    centered_values = np.empty((n, m), dtype=Wide)
    grand = sum(K[k, j] for k in range(m) for j in range(m)) / Wide(m * m)
    column = [sum(K[k, j] for k in range(m)) / Wide(m) for j in range(m)]
    for i in range(n):
        row = sum(K_cross[i, k] for k in range(m)) / Wide(m)
        for j in range(m):
            centered_values[i, j] = K_cross[i, j] - row - column[j] + grand
    return centered_values


def centered_linear_features(X_new: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the linear kernel of new rows against training rows after moving both by the training rows' mean."""
    X_new, X = wide_rows(X_new), wide_rows(X)
    mean = X.sum(axis=0) / len(X)
    return np.array([[((x - mean) * (z - mean)).sum() for z in X] for x in X_new])


def frobenius_product(K: np.ndarray, L: np.ndarray) -> np.longdouble:
    return (K.astype(Wide) * L.astype(Wide)).sum()


def uncentered_alignment(K: np.ndarray, L: np.ndarray) -> float:
    return float(
        frobenius_product(K, L)
        / np.sqrt(frobenius_product(K, K) * frobenius_product(L, L))
    )


def alignment(K: np.ndarray, L: np.ndarray) -> float:
    """Return the centered alignment, by explicitly centered matrices."""
    return uncentered_alignment(centered(K), centered(L))


# First-stage statistics ----------------------------------------------------------------------------------------------


def target_kernel(Y: np.ndarray) -> np.ndarray:
    Y = np.asarray(Y, dtype=Wide).reshape(len(Y), -1)
    return np.array([[(y * z).sum() for z in Y] for y in Y])


def summed_by_numpy(statistics, family, X: np.ndarray):
    """Return first-stage statistics with their sums formed anew, in double, from whole matrices of a family's tiles."""
    R = X[statistics.rows] - statistics.origin
    E, L = (
        family.tile(R, R, statistics.shift),
        statistics.targets @ statistics.targets.T,
    )
    w = (
        np.ones(len(R))
        if statistics.sample_weight is None
        else statistics.sample_weight
    )
    of = np.eye(len(statistics.labels))[statistics.group]
    EW, LW = (np.sqrt(np.outer(w, w)) * matrix for matrix in (E, L))
    products, target_products = (
        np.stack(
            [
                [
                    np.tensordot(EW * np.outer(g, h), other, axes=([1, 2], axes))
                    for h in of.T
                ]
                for g in of.T
            ]
        )
        for other, axes in ((EW, [1, 2]), (LW, [0, 1]))
    )
    return replace(
        statistics,
        block_products=products,
        block_targets=target_products,
        block_traces=(np.einsum("kii->ki", E) * w @ of).T,
        row_sums=np.moveaxis(E @ (w[:, None] * of), 2, 0),
    )


def normalizers(Ks: Sequence[np.ndarray], normalize: str) -> list[np.longdouble]:
    """Return what each centered base kernel is divided by."""
    if normalize == "trace":
        return [np.trace(centered(K)) for K in Ks]
    if normalize == "frobenius":
        return [np.sqrt(frobenius_product(centered(K), centered(K))) for K in Ks]
    return [Wide(1) for _ in Ks]


def combined(
    Ks: Sequence[np.ndarray], weights: np.ndarray, normalize: str
) -> np.ndarray:
    """Return the weighted sum of centered, normalized matrices."""
    scaled = zip(Ks, weights, normalizers(Ks, normalize), strict=True)
    return sum(weight * centered(K) / scale for K, weight, scale in scaled)


def combined_cross(K_crosses, Ks, weights: np.ndarray, normalize: str) -> np.ndarray:
    """Return the same combination between new rows and the training rows."""
    scaled = zip(K_crosses, Ks, weights, normalizers(Ks, normalize), strict=True)
    return sum(
        weight * centered_cross(K_cross, K) / scale
        for K_cross, K, weight, scale in scaled
    )


# Weights -------------------------------------------------------------------------------------------------------------


def alignment_of_weights(M: np.ndarray, a: np.ndarray, mu: np.ndarray) -> float:
    """Return the alignment of a combination, up to the norm of the target kernel."""
    return float(mu @ a / np.sqrt(mu @ M @ mu))


def kkt_residual(M: np.ndarray, a: np.ndarray, mu: np.ndarray) -> float:
    """Return how far a direction is from solving min v'Mv - 2v'a over v >= 0, relative
    to the data's size.

    The direction is first given the best length. Every base kernel then counts as if it
    had norm one, so that the residual means the same for kernels of any scale.
    """
    norms = np.sqrt(np.diag(M))
    M, a, u = M / np.outer(norms, norms), a / norms, mu * norms
    u = u * (u @ a) / (u @ M @ u)
    gradient = M @ u - a
    negative_weight = max(0.0, *(-u)) / max(abs(u))
    negative_gradient = max(0.0, *(-gradient)) / max(abs(a))
    slack = max(abs(u * gradient)) / (max(abs(u)) * max(abs(a)))
    return float(max(negative_weight, negative_gradient, slack))


# Prediction ----------------------------------------------------------------------------------------------------------


def ridge_predictions(
    K: np.ndarray, Y: np.ndarray, value: float, K_cross: np.ndarray
) -> np.ndarray:
    """Return kernel ridge predictions for one C, by solving (K + I / C) alpha = Y - mean."""
    mean = Y.mean(axis=0)
    alpha = np.linalg.solve(K + np.eye(len(K)) / value, Y - mean)
    return K_cross @ alpha + mean


def bordered(
    K: np.ndarray, Y: np.ndarray, ridge: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients and intercepts of a ridge regression on any Gram matrix: a system with a border of ones."""
    m = len(K)
    system = np.zeros((m + 1, m + 1))
    system[:m, :m] = K + ridge * np.eye(m)
    system[m, :m] = system[:m, m] = 1.0
    solution = np.linalg.solve(system, np.vstack([Y, np.zeros(Y.shape[1])]))
    return solution[:m], solution[m]


def support_vector_predictions(
    K: np.ndarray, labels: np.ndarray, value: float, K_cross: np.ndarray
) -> np.ndarray:
    return SVC(kernel="precomputed", C=value).fit(K, labels).predict(K_cross)
