"""Centering and alignment of Gram matrices."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import numpy as np

from .validation import require_one_of
from .weights import as_sample_weight, near_one


class Centering(StrEnum):
    """Centering of kernels and targets: both, only targets, or neither.

    With "none", predictors have no intercept.
    """

    CENTER = "center"
    TARGET = "target"
    NONE = "none"

    @classmethod
    def of(cls, value: str) -> Centering:
        """Return the centering with the given name; ValueError if unknown."""
        require_one_of("centering", value, cls)
        return cls(value)

    @property
    def subtracts(self) -> bool:
        return self is Centering.CENTER

    @property
    def intercept(self) -> bool:
        return self is not Centering.NONE

    def target_mean(self, Y: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
        """Return the mean that is subtracted from targets, shape (q,); zero with "none"."""
        if not self.intercept:
            return np.zeros(Y.shape[1])
        return mean_over(Y, w)

    def mean(
        self, values: np.ndarray, w: np.ndarray | None = None, axis: int = 0
    ) -> np.ndarray:
        """Return the mean that is subtracted from kernel values along `axis`; zero unless "center"."""
        if not self.subtracts:
            return np.zeros(np.delete(values.shape, axis))
        return mean_over(values, w, axis)

    def less_mean(self, values: np.ndarray) -> np.ndarray:
        """Return values minus their mean over rows; unchanged unless kernels are centered."""
        if not self.subtracts:
            return values
        return values - values.mean(axis=0)

    def shares(self, m: int, w: np.ndarray | None = None) -> np.ndarray:
        """Return each row's weight in the mean that is subtracted from kernels, shape (m,)."""
        if not self.subtracts:
            return np.zeros(m)
        if w is None:
            return np.full(m, 1.0 / m)
        return w / w.sum()

    def gram(self, K: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
        if not self.subtracts:
            return K
        return center_gram(K, w)


def as_numbers(matrix: Any, name: str) -> np.ndarray:
    """Return a matrix, such as a DataFrame, as an array of floats.

    Arrays of float32 and float64 are unchanged.
    """
    if hasattr(matrix, "toarray"):  # sparse
        matrix = matrix.toarray()
    if isinstance(matrix, np.ma.MaskedArray):
        matrix = np.ma.filled(matrix.astype(np.float64), np.nan)
    if not isinstance(matrix, np.ndarray) or isinstance(matrix, np.matrix):
        try:
            matrix = np.asarray(matrix)
        except ValueError:
            raise ValueError(
                f"{name} must have rows of one length; give a square matrix."
            ) from None
    if matrix.dtype in (np.float32, np.float64):
        return np.asanyarray(matrix)
    try:
        if matrix.dtype.kind not in "biufO":
            raise TypeError
        return np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must hold real numbers, got {matrix.dtype}; correct what is no number or is missing."
        ) from None


def as_gram_matrices(
    matrices: Iterable[tuple[str, Any]], dtype: Any = None
) -> list[np.ndarray]:
    """Convert named Gram matrices over the same rows to arrays of floats.

    Labels of DataFrames in another order raise ValueError.
    """
    arrays: list[np.ndarray] = []
    first_name = ""
    first_labels = None
    for name, matrix in matrices:
        labels = _labels_of(matrix, name)
        if first_labels is None:
            first_name = name
            first_labels = labels
        elif labels is not None and labels != first_labels:
            raise ValueError(
                f"{name} must have the labels of {first_name} in the same order; reorder its rows and columns."
            )
        arrays.append(np.asanyarray(as_numbers(matrix, name), dtype=dtype))
    return arrays


def _labels_of(matrix: Any, name: str) -> list[str] | None:
    """Return the labels of a DataFrame; None for default labels."""
    if not hasattr(matrix, "iloc"):
        return None
    rows = list(map(str, matrix.index))
    columns = list(map(str, matrix.columns))
    default_labels = list(map(str, range(len(rows))))
    if rows == columns:
        if rows == default_labels:
            return None
        return rows
    if sorted(rows) != sorted(columns) and default_labels in (rows, columns):
        return None
    if len(rows) != len(columns):
        return None  # the shape is checked later
    for position, (row, column) in enumerate(zip(rows, columns, strict=True)):
        if row != column:
            raise ValueError(
                f"{name} must have one order of rows and columns, got row {row!r} and column {column!r} at "
                f"position {position}; reorder it, for example K.loc[K.columns]."
            )
    return None


def center_gram(K: np.ndarray, sample_weight: np.ndarray | None = None) -> np.ndarray:
    r"""Return the Gram matrix of the centered features.

    .. math:: K_c = H K H^\top, \qquad H = I_m - \tfrac{1}{m} \mathbf{1} \mathbf{1}^\top, \quad \text{with weights }
              H = I_m - \mathbf{1} w^\top / (\mathbf{1}^\top w)

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Gram matrix.
    sample_weight : ndarray of shape (m,), optional
        w, positive weights of the samples.

    Returns
    -------
    K_c : ndarray of shape (m, m)
        Centered matrix.

    Raises
    ------
    ValueError
        K is not square, or a weight is not positive.

    Notes
    -----
    O(m^2), by row and column means.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, equation (1) and Lemma 1.
    """
    (K,) = as_gram_matrices([("K", K)])
    _require_square("K", K)
    w = _scaled_weights(sample_weight, K.shape[0])
    return subtract_means(K, mean_over(K, w, axis=1), mean_over(K, w), grand_mean(K, w))


def center_cross_gram(
    K_cross: np.ndarray, K: np.ndarray, sample_weight: np.ndarray | None = None
) -> np.ndarray:
    """Return the cross-Gram matrix of new rows, centered by the training rows."""
    (K,) = as_gram_matrices([("K", K)])
    K_cross = as_numbers(K_cross, "K_cross")
    _require_square("K", K)
    if K_cross.ndim != 2 or K_cross.shape[1] != K.shape[0]:
        raise ValueError(
            f"K_cross must have one column a training row, got shape {K_cross.shape} for {K.shape[0]} training "
            "rows; its rows are the new samples."
        )
    w = _scaled_weights(sample_weight, K.shape[0])
    return subtract_means(
        K_cross, mean_over(K_cross, w, axis=1), mean_over(K, w), grand_mean(K, w)
    )


def center_in_place(K: np.ndarray) -> np.ndarray:
    means = K.mean(axis=1)
    return subtract_means(K, means, means, float(means.mean()), out=K)


def centered_diagonals(diagonals: np.ndarray, row_means: np.ndarray) -> np.ndarray:
    """Return the diagonals of p centered Gram matrices, shape (p, m)."""
    return np.asarray(diagonals - 2 * row_means + row_means.mean(axis=1, keepdims=True))


def mirror(K: np.ndarray) -> np.ndarray:
    block = 64  # two squares fit into the first-level cache
    for i in range(0, len(K), block):
        j = min(i + block, len(K))
        square = np.triu(K[i:j, i:j])
        K[i:j, i:j] = square + np.triu(square, 1).T
        K[j:, i:j] = K[i:j, j:].T
    return K


def subtract_means(
    K: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    grand: float,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Subtract row and column means, and add the grand mean, into `out`."""
    centered: np.ndarray = np.subtract(K, rows[:, None], out=out)
    centered -= columns - grand
    return centered


def centered_alignment(
    K: np.ndarray,
    L: np.ndarray,
    sample_weight: np.ndarray | None = None,
    *,
    debiased: bool = False,
) -> float:
    r"""Return the centered alignment of two Gram matrices.

    .. math:: \hat\rho(K, L) = \frac{\langle K_c, L_c \rangle_F}{\lVert K_c \rVert_F \lVert L_c \rVert_F}

    Parameters
    ----------
    K, L : ndarray of shape (m, m)
        Gram matrices over the same samples, m >= 2.
    sample_weight : ndarray of shape (m,), optional
        Positive weights of the samples, of which only ratios matter.
    debiased : bool, default False
        Whether to use U-centered matrices, so that the alignment of independent samples
        is zero on average; m >= 4, without weights.

    Returns
    -------
    rho : float
        Alignment in [-1, 1]; not negative for positive semi-definite matrices, unless
        debiased.

    Raises
    ------
    ValueError
        Shapes are wrong, an entry is not finite, a matrix is constant after centering,
        or a weight is not positive.

    Notes
    -----
    O(m^2) time. The alignment does not change with ``K -> s K + c 1 1'`` for s > 0.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Definition 4. Debiased: Song,
    Smola, Gretton, Bedo, Borgwardt (2012), JMLR 13:1393-1434, equation (5).
    """
    K, L = as_gram_matrices([("K", K), ("L", L)], np.float64)
    require_gram_matrices(K, L)
    w = _scaled_weights(sample_weight, len(K))
    if debiased and (w is not None or len(K) < 4):
        raise ValueError(
            f"debiased alignment takes at least 4 samples without weights, got {len(K)} samples."
        )
    total = len(K)
    if w is not None:
        total = w.sum()
    centered = []
    for name, matrix in (("K", K), ("L", L)):
        matrix = near_one(matrix)
        if debiased:
            matrix_c = u_center_gram(matrix)
        else:
            matrix_c = weighted_by_roots(center_gram(matrix, w), w)
        norm = float(np.linalg.norm(matrix_c))
        require_varying(name, matrix, norm, total)
        centered.append(matrix_c / norm)
    return float(np.clip(np.vdot(centered[0], centered[1]), -1.0, 1.0))


def alignment(K: np.ndarray, L: np.ndarray) -> float:
    r"""Return the uncentered alignment of two Gram matrices.

    .. math:: \hat A(K, L) = \frac{\langle K, L \rangle_F}{\lVert K \rVert_F \lVert L \rVert_F}

    Parameters
    ----------
    K, L : ndarray of shape (m, m)
        Gram matrices over the same samples.

    Returns
    -------
    A : float
        Alignment in [-1, 1].

    Raises
    ------
    ValueError
        Shapes are wrong, an entry is not finite, or a matrix is zero.

    Notes
    -----
    O(m^2). Unlike `centered_alignment`, it depends on the origin of the features.

    References
    ----------
    Cristianini, Shawe-Taylor, Elisseeff, Kandola (2001), NIPS 14.
    """
    K, L = as_gram_matrices([("K", K), ("L", L)])
    require_gram_matrices(K, L)
    K = near_one(K)
    L = near_one(L)
    norms = np.linalg.norm(K) * np.linalg.norm(L)
    if not norms > 0:
        raise ValueError(
            "a matrix is zero, so its alignment is undefined; leave it out."
        )
    return float(np.clip(np.vdot(K, L) / norms, -1.0, 1.0))


def u_center_gram(K: np.ndarray) -> np.ndarray:
    """Return the U-centered Gram matrix: its diagonal and row sums are zero."""
    m = len(K)
    K = K - np.diag(np.diag(K))
    rows = K.sum(axis=1) / (m - 2)
    centered = subtract_means(K, rows, rows, float(K.sum()) / ((m - 1) * (m - 2)))
    np.fill_diagonal(centered, 0.0)
    return centered


def require_gram_matrices(K: np.ndarray, L: np.ndarray) -> None:
    """Raise ValueError unless K and L are square, finite and of one size."""
    _require_square("K", K)
    _require_square("L", L)
    if K.shape != L.shape:
        raise ValueError(
            f"K and L must be over the same samples, got shapes {K.shape} and {L.shape}."
        )
    for name, matrix in (("K", K), ("L", L)):
        if not np.isfinite(matrix).all():
            raise ValueError(
                f"{name} must be finite, got NaN or infinity; look for missing values in the data."
            )


def require_varying(name: str, K: np.ndarray, norm: float, total: float) -> None:
    """Raise ValueError if a centered matrix is only rounding."""
    # Centering a constant matrix leaves about eps m |K|
    if norm <= 4 * np.finfo(np.float64).eps * total * np.abs(K).max():
        raise ValueError(
            f"{name} is constant after centering, so its alignment is undefined; leave it out."
        )


def alignment_of_matrix(K: np.ndarray, Y: np.ndarray, w: np.ndarray | None) -> float:
    """Return the centered alignment of K with ``Y Y'``; zero if K is constant."""
    rounding = 4 * np.finfo(np.float64).eps * len(K) * float(np.abs(K).max())
    K = weighted_by_roots(center_gram(K, w), w)
    norm = float(np.linalg.norm(K))
    if norm <= rounding:
        return 0.0
    if w is not None:
        Y = Y * np.sqrt(w)[:, None]
    return float(np.vdot(Y, K @ Y) / (norm * np.linalg.norm(Y.T @ Y)))


def mean_over(values: np.ndarray, w: np.ndarray | None, axis: int = 0) -> np.ndarray:
    if w is None:
        return np.asarray(values.mean(axis=axis))
    return np.asarray(np.moveaxis(values, axis, -1) @ w / w.sum())


def relative_error(residuals: np.ndarray, Y: np.ndarray, w: np.ndarray | None) -> float:
    """Return the squared error relative to that of the mean; NaN for constant Y."""
    squares = np.square(residuals).sum(axis=1)
    squares_of_mean = np.square(Y - mean_over(Y, w)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(mean_over(squares, w) / mean_over(squares_of_mean, w))


def weighted_by_roots(K: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Multiply a matrix in place by the roots of both weights."""
    if w is not None:
        K *= np.sqrt(w)[:, None]
        K *= np.sqrt(w)
    return K


def grand_mean(K: np.ndarray, w: np.ndarray | None) -> float:
    if w is None:
        return float(K.mean())
    return float(mean_over(mean_over(K, w), w))


def _scaled_weights(sample_weight: np.ndarray | None, n_rows: int) -> np.ndarray | None:
    w = as_sample_weight(sample_weight, n_rows)
    if w is None:
        return None
    return near_one(w)


def _require_square(name: str, K: np.ndarray) -> None:
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(
            f"{name} must be square, got shape {K.shape}; for test rows use center_cross_gram."
        )
