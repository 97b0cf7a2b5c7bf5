"""Dirichlet base kernels over a set of frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy import sparse

from learnkernels.kernels.families.base import KernelFamily, Rows
from learnkernels.kernels.fields import Fields, list_of, number, whole

LARGEST_EXPONENT = 700.0
"""Natural logarithm of the largest kernel value; that of the largest double is 709."""


class DirichletFamily(KernelFamily):
    r"""Dirichlet (periodic) kernels, one a frequency: for targets that repeat along a feature.

    .. math:: K_\sigma(x, x') = \prod_{c=1}^{d} \Bigl( 1 + 2 \sum_{j=1}^{n} \cos\bigl(j \sigma (x_c - x'_c)\bigr) \Bigr)

    Parameters
    ----------
    frequencies : sequence of float
        Frequencies, in radians a unit of the features; each positive and finite. Order is kept.
    degree : int, default 1
        n, the number of harmonics, at least 1.

    Raises
    ------
    ValueError
        No frequency is given, or a parameter is outside its range.

    Notes
    -----
    The paper writes :math:`1 + 2 \cos(\sigma \lVert x - x' \rVert)` and uses it on one feature, where this is the
    same. As a function of the distance it is positive semi-definite in one dimension only: the cosine of a distance
    in the plane has a Fourier transform of both signs. One factor a feature is positive semi-definite (a sum of cosines
    with positive coefficients), and so is the product of the factors.

    A factor is a product of the rows' sines and cosines, ``4 n + 2`` flops a pair, feature and frequency; no cosine of
    a pair is formed. Values lie within ``(2 n + 1)^d``, and `tile` refuses rows of so many features that this is not
    finite. Rows are first moved by a mean, which changes no difference; the angle still loses ``eps * sigma * |x_c|``.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Alignment based kernel learning with a continuous set of base kernels,
    Machine Learning 91:305-324, section 3.1.
    """

    kind = "dirichlet"

    def __init__(self, frequencies: Sequence[float], degree: int = 1) -> None:
        self.frequencies = tuple(float(frequency) for frequency in frequencies)
        self.degree = int(degree)
        if not self.frequencies:
            raise ValueError("frequencies must name at least one frequency, got an empty list.")
        for frequency in self.frequencies:
            if not (0.0 < frequency < np.inf):
                raise ValueError(f"frequencies must be positive and finite, got {frequency:g}; leave it out.")
        if self.degree < 1 or self.degree != degree:
            raise ValueError(f"degree must be a whole number of at least 1, got {degree}.")

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        return cls(fields.get("frequencies", list_of(number)), fields.get("degree", whole))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"dirichlet(frequency={sigma:.12g}, degree={self.degree})" for sigma in self.frequencies)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        same = A is B
        self._require_finite_values(A.shape[1])
        B = B.toarray() if sparse.issparse(B) else B
        mean = B.mean(axis=0) if len(B) else np.zeros(B.shape[1])
        B = B - mean
        A = B if same else (A.toarray() if sparse.issparse(A) else A) - mean
        K = np.ones((self.n_kernels, len(A), len(B)), dtype=A.dtype)
        for k, sigma in enumerate(self.frequencies):
            left = self._waves(sigma * A)
            right = left if same else self._waves(sigma * B)
            for c in range(A.shape[1]):
                K[k] *= left[c] @ right[c].T
        if shift is not None:
            K -= shift[:, None, None]
        return K

    def _waves(self, angles: np.ndarray) -> np.ndarray:
        """Return the features whose inner products are the factors, shape (d, a, 2 n + 1)."""
        waves = [np.ones(angles.T.shape, dtype=angles.dtype)]
        for j in range(1, self.degree + 1):
            waves += [math.sqrt(2.0) * np.cos(j * angles.T), math.sqrt(2.0) * np.sin(j * angles.T)]
        return np.stack(waves, axis=2)

    @property
    def translation_invariant(self) -> bool:
        return True

    def diag(self, A: Rows) -> np.ndarray:
        self._require_finite_values(A.shape[1])
        return np.full((self.n_kernels, A.shape[0]), float(2 * self.degree + 1) ** A.shape[1])

    def subset(self, kernels: Sequence[int]) -> DirichletFamily:
        return DirichletFamily([self.frequencies[k] for k in kernels], self.degree)

    def _require_finite_values(self, d: int) -> None:
        base = 2 * self.degree + 1
        most = int(LARGEST_EXPONENT / np.log(base))
        if d > most:
            raise ValueError(
                f"a Dirichlet kernel of degree {self.degree} must see at most {most} features, or its values, up to "
                f"{base}^d, overflow; got {d}: give it fewer columns."
            )
