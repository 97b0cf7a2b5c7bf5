"""Scores of new rows that are linear in a learned kernel, without the kernel between new rows and training rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from learnkernels.kernels.centering import mean_over
from learnkernels.kernels.engine.combined_gram import Pieces
from learnkernels.kernels.engine.expansion import STRIP, Expansion
from learnkernels.kernels.engine.workers import Threads
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.learned import LearnedKernel

ROUNDING = 1e-9
"""Share of the sum of their sizes below which the sum of dual coefficients is zero, as it is for every predictor."""

POWER_ROWS = 512
"""New rows whose kernel with all training rows is held at once, of kernels that are powers."""


class LinearScores:
    r"""Scores ``kernel.cross_gram(X) @ dual + intercept``.

    Parameters
    ----------
    kernel : LearnedKernel
    dual : ndarray of shape (m, q)
        Not modified.
    intercept : ndarray of shape (q,)

    Notes
    -----
    Of a kernel of degree one the centering is moved to the coefficients. With weights w of the training rows that sum
    to one, row means r and the kernel C that is not centered,

    .. math:: K_c(x, x_i) = C(x, x_i) - \sum_l w_l C(x, x_l) - r_i + \bar r, \qquad
              \sum_i \alpha_i K_c(x, x_i) = \sum_i (\alpha_i - w_i \sigma) \, C(x, x_i) - \sum_i \alpha_i r_i
              + \sigma \bar r, \qquad \sigma = \sum_i \alpha_i

    Predictors with an intercept have :math:`\sigma = 0`, but for rounding, which is left out: then rows whose
    coefficients are zero, those that are no support vectors, take no part. New rows take O(s) time each for s rows that
    do, in place of O(m). Of a kernel that is not centered, w and r are zero, and the same holds whatever sigma is.
    """

    def __init__(self, kernel: LearnedKernel, dual: np.ndarray, intercept: np.ndarray) -> None:
        self.kernel, self.dual, self.intercept = kernel, dual, intercept

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("kernel", "dual", "intercept")}

    @cached_property
    def _sums(self) -> np.ndarray:
        """The sums of the coefficients, zero where they are rounding, shape (q,)."""
        sums = self.dual.sum(axis=0)
        return np.where(np.abs(sums) <= ROUNDING * np.abs(self.dual).sum(axis=0), 0.0, sums)

    @cached_property
    def support(self) -> np.ndarray:
        """Positions of the training rows that scores depend on, shape (s,)."""
        if self.kernel.degree != 1 or (self._sums.any() and self.kernel.centering.subtracts):
            return np.arange(len(self.dual))
        return np.flatnonzero(self.dual.any(axis=1))

    @cached_property
    def _expansion(self) -> Expansion:
        kernel, some, sums = self.kernel, self.support, self._sums
        V = self.dual[some]
        constant = self.intercept - kernel.row_means[some] @ V
        if sums.any():
            w = None if kernel.sample_weight is None else kernel.sample_weight[some]
            V = V - np.outer(kernel.centering.shares(len(V), w), sums)
            constant = constant + sums * (kernel.offset + float(mean_over(kernel.row_means, kernel.sample_weight)))
        X = kernel.X if len(some) == len(self.dual) else kernel.X[some]
        return Expansion(kernel.combination, X, V, constant, kernel.origin)

    def of(self, X: Rows, dtype: Any = np.float64, strip: int = STRIP) -> np.ndarray:
        """Return the scores of new rows.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n, d)
            Finite, with the features of the training rows. Not modified.
        dtype : dtype, default float64
            Of the kernel's values; scores are float64. Powers of kernels are always of float64.
        strip : int, default 128
            Most rows that are taken at once; the bits of scores depend on it, counted from the first row.

        Returns
        -------
        scores : ndarray of shape (n, q)
        """
        if self.kernel.degree == 1:
            return self._expansion.values(X, dtype, strip)
        strip = min(strip, POWER_ROWS)
        starts = range(0, X.shape[0], strip)
        if not starts:
            return np.empty((0, self.dual.shape[1]))

        def made(start: int) -> Pieces:
            K = self.kernel.cross_gram(X[start : start + strip])
            return Pieces({start: K @ self.dual + self.intercept})

        pieces: Pieces = Threads().total(lambda _, __, start: made(start), None, None, starts)
        return pieces.joined()

    def on_support(self) -> LinearScores:
        """Return the same scores from the rows that they depend on alone; these where they are all of them.

        The kernel is then centered on those rows, and the intercept another one.
        """
        kernel, some = self.kernel, self.support
        if len(some) == len(self.dual) or not len(some):
            return self
        centered, dual = kernel.over(some), self.dual[some]
        return LinearScores(centered, dual, self.intercept + (centered.row_means - kernel.row_means[some]) @ dual)
