"""Centering of Gram matrices in feature space, or none, and the alignment of two matrices."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import numpy as np

from .validation import require_one_of
from .weights import as_sample_weight, near_one

MIRROR_BLOCK = 64
"""Side of the squares in which a matrix is mirrored: two of them fit a core's first cache."""


class Centering(StrEnum):
    """Whether kernels are taken less the mean feature of the training rows, or as they are.

    Code that subtracts a mean of training rows (of features, columns of a kernel or targets) takes it from here, and
    gets zeros where nothing is centered. With "none" predictors have no intercept either: the constant part is then
    that of a constant base kernel, and penalized like the rest. With "target" kernels are as they are, and targets are
    taken less their mean, which predictions get back.
    """

    CENTER = "center"
    TARGET = "target"
    NONE = "none"

    @classmethod
    def of(cls, value: str) -> Centering:
        """Return the one of a name, or raise ValueError."""
        require_one_of("centering", value, cls)
        return cls(value)

    @property
    def subtracts(self) -> bool:
        """Whether kernels are centered."""
        return self is Centering.CENTER

    @property
    def intercept(self) -> bool:
        """Whether predictors have one: in a ridge regression the mean of the targets."""
        return self is not Centering.NONE

    def target_mean(self, Y: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
        """Return the mean that is subtracted of targets of shape (m, q), shape (q,)."""
        return mean_over(Y, w) if self.intercept else np.zeros(Y.shape[1])

    def mean(self, values: np.ndarray, w: np.ndarray | None = None, axis: int = 0) -> np.ndarray:
        """Return the mean that is subtracted of values along an axis of samples of weights w, or zeros like it."""
        return mean_over(values, w, axis) if self.subtracts else np.zeros(np.delete(values.shape, axis))

    def less_mean(self, values: np.ndarray) -> np.ndarray:
        """Return values of shape (m, ...) less their mean over the samples, or as they are."""
        return values - values.mean(axis=0) if self.subtracts else values

    def shares(self, m: int, w: np.ndarray | None = None) -> np.ndarray:
        """Return what each of m samples of weights w counts in the mean that is subtracted, shape (m,)."""
        if not self.subtracts:
            return np.zeros(m)
        return np.full(m, 1.0 / m) if w is None else w / w.sum()

    def gram(self, K: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
        """Return what `center_gram` does, or the matrix itself."""
        return center_gram(K, w) if self.subtracts else K


def as_numbers(matrix: Any, name: str) -> np.ndarray:
    """Return a matrix of any container as an array of floating-point numbers.

    Parameters
    ----------
    matrix : array, sparse matrix, DataFrame of any library or list of lists
        Arrays of float32 and float64, mapped files among them, are returned as they are.
    name : str
        What the matrix is called in sentences.

    Raises
    ------
    ValueError
        Rows have different lengths, or entries are no real numbers.
    """
    if hasattr(matrix, "toarray"):  # a sparse matrix or array of SciPy, which is not imported for this
        matrix = matrix.toarray()
    if isinstance(matrix, np.ma.MaskedArray):
        matrix = np.ma.filled(matrix.astype(np.float64), np.nan)
    if not isinstance(matrix, np.ndarray) or isinstance(matrix, np.matrix):
        try:
            matrix = np.asarray(matrix)
        except ValueError:
            raise ValueError(f"{name} must have rows of one length; give a square matrix.") from None
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


def as_gram_matrices(matrices: Iterable[tuple[str, Any]]) -> list[np.ndarray]:
    """Return matrices over pairs of the same rows as arrays of floating-point numbers.

    Parameters
    ----------
    matrices : iterable of (str, matrix)
        What each is called in sentences, and the matrix: see `as_numbers`.

    Raises
    ------
    ValueError
        As `as_numbers`; the rows and columns of a DataFrame, or the rows of two, have labels in another order.
    """
    arrays, first, labels = list[np.ndarray](), "", None
    for name, matrix in matrices:
        own = _labels_of(matrix, name)
        if labels is None:
            first, labels = name, own
        elif own is not None and own != labels:
            raise ValueError(f"{name} must have the labels of {first} in the same order; reorder its rows and columns.")
        arrays.append(as_numbers(matrix, name))
    return arrays


def _labels_of(matrix: Any, name: str) -> list[str] | None:
    """Return the labels of the rows of a DataFrame of pandas; None for numbers from 0 on, and for other containers."""
    if not hasattr(matrix, "iloc"):
        return None
    rows, columns = list(map(str, matrix.index)), list(map(str, matrix.columns))
    numbers = list(map(str, range(len(rows))))
    if rows == columns:
        return None if rows == numbers else rows
    if sorted(rows) != sorted(columns) and numbers in (rows, columns):
        return None
    different = [place for place, pair in enumerate(zip(rows, columns, strict=False)) if len(set(pair)) == 2]
    if len(rows) != len(columns) or not different:
        return None  # the shape is refused
    place = different[0]
    raise ValueError(
        f"{name} must have one order of rows and columns, got row {rows[place]!r} and column {columns[place]!r} at "
        f"position {place}; reorder it, for example K.loc[K.columns]."
    )


def center_gram(K: np.ndarray, sample_weight: np.ndarray | None = None) -> np.ndarray:
    r"""Return the Gram matrix of the centered features.

    .. math:: K_c = H K H^\top, \qquad H = I_m - \tfrac{1}{m} \mathbf{1} \mathbf{1}^\top, \quad \text{with weights }
              H = I_m - \mathbf{1} w^\top / (\mathbf{1}^\top w)

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Gram matrix over m samples. Not modified.
    sample_weight : ndarray of shape (m,), optional
        w, positive weights of the samples: their mean feature is the weighted one. By default each counts once.

    Returns
    -------
    K_c : ndarray of shape (m, m)
        Rows and columns of it sum to zero, with weights their weighted sums are zero.

    Raises
    ------
    ValueError
        K is not square, or there is not one positive weight a sample.

    Notes
    -----
    O(m^2), by row and column means; H is never formed. Idempotent, linear, and blind to ``K + c 1 1'``.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, equation (1) and Lemma 1.
    """
    (K,) = as_gram_matrices([("K", K)])
    _require_square("K", K)
    w = _scaled_weights(sample_weight, K.shape[0])
    return subtract_means(K, mean_over(K, w, axis=1), mean_over(K, w), grand_mean(K, w))


def center_cross_gram(K_cross: np.ndarray, K: np.ndarray, sample_weight: np.ndarray | None = None) -> np.ndarray:
    r"""Return the cross-Gram matrix of new rows, centered with the training rows' mean feature alone.

    .. math:: [K_c]_{ij} = K(x_i, x_j) - \tfrac1m \sum_l K(x_i, x_l)
              - \tfrac1m \sum_l K(x_l, x_j) + \tfrac1{m^2} \sum_{l, l'} K(x_l, x_{l'})

    With weights each mean over training rows is the weighted one.

    Parameters
    ----------
    K_cross : ndarray of shape (n, m)
        Kernel between n new rows and the m training rows, not centered. Not modified.
    K : ndarray of shape (m, m)
        Gram matrix of the training rows, not centered. Not modified.
    sample_weight : ndarray of shape (m,), optional
        Positive weights of the training rows; by default each counts once.

    Returns
    -------
    K_c : ndarray of shape (n, m)

    Raises
    ------
    ValueError
        K is not square, the second axis of K_cross is not the training rows, or there is not one positive weight a
        training row.

    Notes
    -----
    O(n m + m^2). A new row's centered kernel does not depend on which other new rows come with it.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, section 2.1, with the empirical mean of the sample.
    """
    (K,) = as_gram_matrices([("K", K)])
    K_cross = as_numbers(K_cross, "K_cross")
    _require_square("K", K)
    if K_cross.ndim != 2 or K_cross.shape[1] != K.shape[0]:
        raise ValueError(
            f"K_cross must have one column a training row, got shape {K_cross.shape} for {K.shape[0]} training "
            "rows; its rows are the new samples."
        )
    w = _scaled_weights(sample_weight, K.shape[0])
    return subtract_means(K_cross, mean_over(K_cross, w, axis=1), mean_over(K, w), grand_mean(K, w))


def center_in_place(K: np.ndarray) -> np.ndarray:
    """Center a symmetric matrix of shape (m, m) in place, and return the matrix; as `center_gram`, without its copy."""
    means = K.mean(axis=1)
    return subtract_means(K, means, means, float(means.mean()), out=K)


def centered_diagonals(diagonals: np.ndarray, row_means: np.ndarray) -> np.ndarray:
    """Return the diagonals of centered kernels, of those and the row means of kernels as they are, shape (p, m)."""
    return np.asarray(diagonals - 2 * row_means + row_means.mean(axis=1, keepdims=True))


def mirror(K: np.ndarray) -> np.ndarray:
    """Write the part of a square matrix above its diagonal below it, in place, and return the matrix.

    For matrices that are symmetric up to rounding; O(m^2), by squares, as a whole transpose reads against the rows.
    """
    for i in range(0, len(K), MIRROR_BLOCK):
        j = min(i + MIRROR_BLOCK, len(K))
        square = np.triu(K[i:j, i:j])
        K[i:j, i:j] = square + np.triu(square, 1).T
        K[j:, i:j] = K[i:j, j:].T
    return K


def subtract_means(
    K: np.ndarray, rows: np.ndarray, columns: np.ndarray, grand: float, out: np.ndarray | None = None
) -> np.ndarray:
    """Return ``K - rows - columns + grand``, with `rows` down the first axis and `columns` along the second.

    It is written to `out`, which may be `K`, or to a matrix of its own.
    """
    centered: np.ndarray = np.subtract(K, rows[:, None], out=out)
    centered -= columns - grand
    return centered


def centered_alignment(
    K: np.ndarray, L: np.ndarray, sample_weight: np.ndarray | None = None, *, debiased: bool = False
) -> float:
    r"""Return the centered alignment of two Gram matrices.

    .. math:: \hat\rho(K, L) = \frac{\langle K_c, L_c \rangle_F}{\lVert K_c \rVert_F \lVert L_c \rVert_F}

    Parameters
    ----------
    K, L : ndarray of shape (m, m)
        Gram matrices over the same samples in the same order, m >= 2. Need not be centered. Not modified.
    sample_weight : ndarray of shape (m,), optional
        Positive weights of the samples, of which only the ratios count: one of weight 2 counts as two of weight 1. By
        default each counts once.
    debiased : bool, default False
        Take U-centered matrices in place of centered ones, m >= 4 and without weights: the products are then unbiased
        estimates, and independent samples align by zero on average, not by some :math:`1 / \sqrt m`.

    Returns
    -------
    rho : float
        Dimensionless, in [-1, 1]; in [0, 1] if both are positive semi-definite and not debiased.

    Raises
    ------
    ValueError
        Shapes differ or are not square; an entry is not finite; a matrix is constant after centering,
        where the ratio is undefined; there is not one positive weight a sample.

    Notes
    -----
    O(m^2) time, two temporaries of the input's size. Unchanged by ``K -> s K + c 1 1'`` with s > 0, and by
    one permutation of the samples of both.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828, Definition 4. Debiased: Song, Smola, Gretton, Bedo, Borgwardt
    (2012), JMLR 13:1393-1434, equation (5); Szekely, Rizzo (2014), Annals of Statistics 42:2382-2412.
    """
    K, L = as_gram_matrices([("K", K), ("L", L)])
    require_gram_matrices(K, L)
    w = _scaled_weights(sample_weight, len(K))
    if debiased and (w is not None or len(K) < 4):
        raise ValueError(f"debiased alignment takes at least 4 samples without weights, got {len(K)} samples.")
    total = len(K) if w is None else w.sum()
    centered = []
    for name, matrix in (("K", K), ("L", L)):
        matrix = near_one(matrix)
        matrix_c = u_center_gram(matrix) if debiased else weighted_by_roots(center_gram(matrix, w), w)
        norm = np.linalg.norm(matrix_c)
        # Rounding leaves about eps * |K| an entry of a matrix that is constant; m of them in norm.
        if norm <= 4 * np.finfo(np.float64).eps * total * np.abs(matrix).max():
            raise ValueError(f"{name} is constant after centering, so its alignment is undefined; leave it out.")
        centered.append(matrix_c / norm)
    return float(np.clip(np.vdot(centered[0], centered[1]), -1.0, 1.0))


def alignment(K: np.ndarray, L: np.ndarray) -> float:
    r"""Return the alignment of two Gram matrices as they are, without centering.

    .. math:: \hat A(K, L) = \frac{\langle K, L \rangle_F}{\lVert K \rVert_F \lVert L \rVert_F}

    Parameters
    ----------
    K, L : ndarray of shape (m, m)
        Gram matrices over the same samples in the same order. Not modified.

    Returns
    -------
    A : float
        Dimensionless, in [-1, 1].

    Raises
    ------
    ValueError
        Shapes differ or are not square; an entry is not finite; a matrix is zero.

    Notes
    -----
    O(m^2). It depends on the origin of the features; `centered_alignment` does not, and follows the accuracy of a
    predictor better.

    References
    ----------
    Cristianini, Shawe-Taylor, Elisseeff, Kandola (2001), NIPS 14; A of Cortes, Mohri, Rostamizadeh (2012), JMLR
    13:795-828, section 2.3.
    """
    K, L = as_gram_matrices([("K", K), ("L", L)])
    require_gram_matrices(K, L)
    K, L = near_one(K), near_one(L)
    norms = np.linalg.norm(K) * np.linalg.norm(L)
    if not norms > 0:
        raise ValueError("a matrix is zero, so its alignment is undefined; leave it out.")
    return float(np.clip(np.vdot(K, L) / norms, -1.0, 1.0))


def u_center_gram(K: np.ndarray) -> np.ndarray:
    """Return the U-centered Gram matrix, whose rows sum to zero and whose diagonal is zero; m >= 3, O(m^2)."""
    m = len(K)
    K = K - np.diag(np.diag(K))
    rows = K.sum(axis=1) / (m - 2)
    centered = subtract_means(K, rows, rows, float(K.sum()) / ((m - 1) * (m - 2)))
    np.fill_diagonal(centered, 0.0)
    return centered


def require_gram_matrices(K: np.ndarray, L: np.ndarray) -> None:
    """Raise ValueError unless two matrices are square, of one size and finite."""
    _require_square("K", K)
    _require_square("L", L)
    if K.shape != L.shape:
        raise ValueError(f"K and L must be over the same samples, got shapes {K.shape} and {L.shape}.")
    for name, matrix in (("K", K), ("L", L)):
        if not np.isfinite(matrix).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity; look for missing values in the data.")


def alignment_of_matrix(K: np.ndarray, Y: np.ndarray, w: np.ndarray | None) -> float:
    """Return the centered alignment of a kernel with ``Y Y'``, of targets less their mean, over rows of weights w.

    Zero for a kernel that is constant up to rounding.
    """
    rounding = 4 * np.finfo(np.float64).eps * len(K) * float(np.abs(K).max())
    K = weighted_by_roots(center_gram(K, w), w)
    Y = Y if w is None else Y * np.sqrt(w)[:, None]
    norm = float(np.linalg.norm(K))
    return float(np.vdot(Y, K @ Y) / (norm * np.linalg.norm(Y.T @ Y))) if norm > rounding else 0.0


def mean_over(values: np.ndarray, w: np.ndarray | None, axis: int = 0) -> np.ndarray:
    """Return the means of values along an axis of samples of weights w; the plain ones without weights."""
    return np.asarray(values.mean(axis=axis) if w is None else np.moveaxis(values, axis, -1) @ w / w.sum())


def weighted_by_roots(K: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return a matrix over weighted samples times the roots of both their weights, in place; without weights as it is.

    Frobenius products of such matrices count each pair of samples by both weights.
    """
    if w is not None:
        K *= np.sqrt(w)[:, None]
        K *= np.sqrt(w)
    return K


def grand_mean(K: np.ndarray, w: np.ndarray | None) -> float:
    """Return the mean of all entries of a matrix over pairs of samples of weights w; the plain one without weights."""
    return float(K.mean() if w is None else mean_over(mean_over(K, w), w))


def _scaled_weights(sample_weight: np.ndarray | None, n_rows: int) -> np.ndarray | None:
    """Return checked weights for a result that does not depend on their scale, of which no sum overflows."""
    w = as_sample_weight(sample_weight, n_rows)
    return None if w is None else near_one(w)


def _require_square(name: str, K: np.ndarray) -> None:
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(f"{name} must be square, got shape {K.shape}; for test rows use center_cross_gram.")
