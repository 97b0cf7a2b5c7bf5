"""A kernel learned from data: weights, and all that is needed to apply it to new rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from kernels.centering import subtract_means
from kernels.families.base import KernelFamily, Rows, as_rows, move
from kernels.families.cosine import require_directions
from kernels.families.feature import FeatureFamily
from kernels.feature_moments import FeatureMoments
from kernels.learners import LEARNERS, Certificate
from kernels.moments import GramMoments, gram_moments
from kernels.moments_protocol import Moments
from kernels.passes import block_rows_for
from kernels.targets import Target, Task
from kernels.threads import one_blas_thread

Normalisation = Literal["trace", "frobenius", "none"]

NORMALISATIONS: dict[Normalisation, Callable[[Moments], np.ndarray]] = {
    "trace": lambda moments: moments.centered_traces,
    "frobenius": lambda moments: np.sqrt(_squared_norms(moments)),
    "none": lambda moments: np.ones(moments.n_kernels),
}
"""What each centered base kernel is divided by before a learner sees it, shape (p,)."""

CONSTANT = 1e-13
"""A kernel whose centered norm is below this share of its spread around the shift is constant up to rounding."""


@dataclass(frozen=True)
class LearnedKernel:
    r"""A weighted sum of centered, normalised base kernels.

    .. math:: K_\mu(x, x') = \sum_k \frac{\mu_k}{t_k} K_{kc}(x, x')

    where each base kernel is centered with the training rows' means and divided by its `scale` t_k.

    Attributes
    ----------
    family : KernelFamily
        The p base kernels.
    learner : str
        Name of the learner, from the table of learners.
    weights : ndarray of shape (p,)
        mu, of unit 2-norm; they apply to the base kernels as normalised.
    normalise : {"trace", "frobenius", "none"}
        How the base kernels were normalised.
    scales : ndarray of shape (p,)
        t, computed on the training rows; a feature that is constant there has scale and weight zero.
    alignment : float
        Centered alignment of the kernel with the target kernel on the training rows.
    alignments : ndarray of shape (p,)
        The same for each base kernel.
    certificate : Certificate or None
        Evidence of optimality, where the learner solves an optimisation problem.
    X : ndarray or CSR matrix of shape (m, d)
        The training rows, less `origin`.
    rows : ndarray of shape (m,)
        Position of each training row in the data set that the moments were taken over.
    origin : ndarray of shape (d,)
        Subtracted from every row before a kernel sees it: the mean row where that changes no centered kernel, or zero.
    shift, row_means : ndarray of shape (p,) and (m,)
        Centering state: a constant subtracted from each base kernel, and the row means of the weighted sum of what is
        left.
    """

    family: KernelFamily
    learner: str
    weights: np.ndarray
    normalise: Normalisation
    scales: np.ndarray
    alignment: float
    alignments: np.ndarray
    certificate: Certificate | None
    X: Rows
    rows: np.ndarray
    origin: np.ndarray
    shift: np.ndarray
    row_means: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """The weights as shares of one, shape (p,)."""
        return self.weights / self.weights.sum()

    @cached_property
    def _active(self) -> np.ndarray:
        return np.flatnonzero(self.weights)

    @cached_property
    def _coefficients(self) -> np.ndarray:
        return self.weights[self._active] / self.scales[self._active]

    def gram(self) -> np.ndarray:
        """Return the centered Gram matrix of the training rows, shape (m, m).

        Notes
        -----
        O(m^2) memory for the result alone; base kernels are formed by tiles and those of zero weight not at all.
        Rank-one features are not formed either: the result is one product of weighted features.
        """
        K = self._combine(self.X, self.X, symmetric=True)
        return subtract_means(K, self.row_means, self.row_means, self.row_means.mean())

    def cross_gram(self, X_new: Rows) -> np.ndarray:
        """Return the kernel between new rows and the training rows, centered with the training rows alone.

        Parameters
        ----------
        X_new : ndarray or CSR matrix of shape (n, d)
            New rows. Not modified.

        Returns
        -------
        K_cross : ndarray of shape (n, m)

        Raises
        ------
        ValueError
            The number of features differs from that of the training rows, or a value is not finite.
        """
        X_new = as_rows(X_new)
        if X_new.shape[1] != self.X.shape[1]:
            raise ValueError(
                f"X_new must have the {self.X.shape[1]} features of the training rows, got {X_new.shape[1]}; "
                "give the same columns in the same order."
            )
        K = self._combine(move(X_new, self.origin), self.X)
        return subtract_means(K, K.mean(axis=1), self.row_means, self.row_means.mean())

    def _combine(self, A: Rows, B: Rows, symmetric: bool = False) -> np.ndarray:
        """Return the weighted sum of the shifted base kernels, shape (a, b), by tiles."""
        active, shift = self.family.subset(self._active.tolist()), self.shift[self._active]
        if isinstance(active, FeatureFamily):
            return active.combine(self._coefficients, A, B)
        step = block_rows_for(active.n_kernels)
        K = np.empty((A.shape[0], B.shape[0]))
        with one_blas_thread():
            for i in range(0, A.shape[0], step):
                A_i = A[i : i + step]
                for j in range(i if symmetric else 0, B.shape[0], step):
                    B_j = A_i if symmetric and i == j else B[j : j + step]
                    tile = np.tensordot(self._coefficients, active.tile(A_i, B_j, shift), axes=1)
                    K[i : i + step, j : j + step] = tile
                    if symmetric and i != j:
                        K[j : j + step, i : i + step] = tile.T
        return K


def learn_from_moments(
    name: str,
    family: KernelFamily,
    X: Rows,
    moments: Moments,
    *,
    normalise: Normalisation = "trace",
    **params: Any,
) -> LearnedKernel:
    """Return the kernel that a learner finds for some rows, from their moments alone.

    Parameters
    ----------
    name : str
        A learner of the table.
    family : KernelFamily
        The base kernels of the moments.
    X : ndarray or CSR matrix of shape (n, d)
        The data set that ``moments.rows`` counts in. Not modified.
    moments : GramMoments or FeatureMoments
        Statistics of the training rows, for example ``moments.restrict(training_folds)``.
    normalise : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before the learner sees them.
    **params
        Parameters of the learner.

    Returns
    -------
    kernel : LearnedKernel

    Raises
    ------
    ValueError
        The learner or the normalisation is unknown, a base kernel or the target is constant on these rows, or no
        base kernel aligns with the target.

    Notes
    -----
    O(p^3 + p m): no tile is computed. M is formed for a learner that asks for more of it than its diagonal. A rank-one
    feature that is constant on these rows gets weight zero, without a word: n-grams that no training text holds are
    normal. Any other base kernel that is constant is refused.
    """
    if name not in LEARNERS:
        raise ValueError(f"learner must be one of {', '.join(sorted(LEARNERS))}, got {name!r}.")
    if normalise not in NORMALISATIONS:
        raise ValueError(f"normalise must be one of {', '.join(NORMALISATIONS)}, got {normalise!r}.")
    require_informative(moments)
    varying = _varying(moments)
    scales = NORMALISATIONS[normalise](moments)
    M = NormalisedProducts(moments, varying, scales[varying])
    solution = LEARNERS[name].solve(M, moments.target[varying] / scales[varying], **params)
    weights, coefficients = np.zeros(moments.n_kernels), np.zeros(moments.n_kernels)
    weights[varying] = solution.weights
    coefficients[varying] = solution.weights / scales[varying]
    return LearnedKernel(
        family=family,
        learner=name,
        weights=weights,
        normalise=normalise,
        scales=scales,
        alignment=moments.alignment(coefficients),
        alignments=moments.alignments,
        certificate=solution.certificate,
        X=move(as_rows(X)[moments.rows], moments.origin),
        origin=moments.origin,
        rows=moments.rows,
        shift=moments.shift,
        row_means=moments.combined_row_means(coefficients),
    )


@dataclass(frozen=True)
class NormalisedProducts:
    """M of some normalised base kernels, formed when its entries are asked for.

    Attributes
    ----------
    moments : GramMoments or FeatureMoments
    kernels : ndarray of int of shape (k,)
        Positions of the base kernels.
    scales : ndarray of shape (k,)
        What each is divided by.
    """

    moments: Moments
    kernels: np.ndarray
    scales: np.ndarray

    def diagonal(self) -> np.ndarray:
        """Return the diagonal, shape (k,)."""
        return _squared_norms(self.moments)[self.kernels] / self.scales**2

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = len(self.kernels) == self.moments.n_kernels
        M = self.moments.frobenius if whole else self.moments.frobenius[np.ix_(self.kernels, self.kernels)]
        normalised = np.outer(self.scales, self.scales)
        return np.asarray(np.divide(M, normalised, out=normalised), dtype=dtype)


def _squared_norms(moments: Moments) -> np.ndarray:
    """Return the diagonal of M, without the rest of it where that is possible, shape (p,)."""
    return moments.frobenius_diagonal if isinstance(moments, FeatureMoments) else np.diag(moments.frobenius)


def _varying(moments: Moments) -> np.ndarray:
    """Return the positions of the base kernels that may carry weight."""
    constant = moments.constant if isinstance(moments, FeatureMoments) else np.zeros(moments.n_kernels, dtype=bool)
    return np.flatnonzero(~constant)


def require_informative(moments: Moments) -> None:
    """Raise ValueError if the target or a base kernel is constant on the rows of `moments`; of features, if all are."""
    # Targets are kept less their mean over the whole pass, so a constant one is zero or that mean's rounding.
    magnitude = float(np.linalg.norm(moments.targets)) ** 2
    if not moments.target_norm > (4 * np.finfo(np.float64).eps) ** 2 * magnitude:
        raise ValueError("the target is constant on the training rows, so no kernel can align with it.")
    if not isinstance(moments, GramMoments):
        if not len(_varying(moments)):
            raise ValueError(
                f"every feature is constant on the {moments.n_rows} training rows, so none can carry weight; give "
                "features that vary."
            )
        return
    centered = np.diag(moments.frobenius)
    raw = np.einsum("ghkk->k", moments.products)
    # A kernel that is constant equals its shift up to rounding, and both norms are zero or rounding.
    whole = raw + (moments.n_rows * moments.shift) ** 2
    constant = (centered <= CONSTANT * raw) | (centered <= (4 * np.finfo(np.float64).eps) ** 2 * whole)
    if constant.any():
        names = ", ".join(moments.names[k] for k in np.flatnonzero(constant))
        raise ValueError(
            f"base kernel {names} is constant on the {moments.n_rows} training rows, so it can carry no weight; "
            "leave it out or change its parameters or columns."
        )


def learn_kernel(
    name: str,
    family: KernelFamily,
    X: Rows,
    y: np.ndarray,
    *,
    task: Task | None = None,
    normalise: Normalisation = "trace",
    **params: Any,
) -> LearnedKernel:
    """Return the kernel that a learner finds for a data set.

    Parameters
    ----------
    name : str
        A learner of the table: ``unif``, ``single``, ``align``, ``alignf``.
    family : KernelFamily
        p base kernels.
    X : ndarray or CSR matrix of shape (m, d)
        Training rows, finite. Not modified.
    y : ndarray of shape (m,) or (m, q)
        Labels or numbers. Not modified.
    task : {"classification", "regression"}, optional
        By default numbers are a regression (their values are used as they are) and everything else a classification.
    normalise : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before the learner sees them.
    **params
        Parameters of the learner.

    Returns
    -------
    kernel : LearnedKernel
        With `weights`, `alignment` and `certificate`.

    Raises
    ------
    ValueError
        As `gram_moments`, `Target.of` and `learn_from_moments`.

    Notes
    -----
    O(m^2 (d + p^2)) time in one pass over tiles, O(p m) memory; for a `FeatureFamily` the cost of its features alone.

    Examples
    --------
    >>> import numpy as np
    >>> from kernels import GaussianFamily, learn_kernel
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 5))
    >>> y = np.sign(X[:, 0] * X[:, 1] + 0.5 * X[:, 2])
    >>> learn_kernel("alignf", GaussianFamily([0.01, 0.1, 1.0]), X, y).shares.round(2)
    array([0.  , 0.28, 0.72])
    """
    X = as_rows(X)
    require_directions(family, X)
    moments = gram_moments(family, X, Target.of(y, task).Y)
    return learn_from_moments(name, family, X, moments, normalise=normalise, **params)
