"""Constant, linear, cosine, polynomial and Dirichlet kernels, and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement, pairwise, product
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy import sparse

from ..validation import as_numbers, numbers_of, positive, positive_numbers
from .base import (
    KernelFamily,
    Rows,
    inner_products,
    mean_row,
    require_base_kernels,
    squared_norms,
    subtract_shift,
)
from .composed import FamilyUnion

LARGEST_EXPONENT = 700.0
"""Natural logarithm of the largest kernel value."""


class SingleFamily(KernelFamily):
    """Base class of families of one kernel without parameters."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.kind,)

    def subset(self, kernels: Sequence[int]) -> Self:
        if list(kernels) != [0]:
            raise ValueError(
                f"kernels must be [0], the only kernel of a {self.kind} family, got {list(kernels)}."
            )
        return self


class ConstantFamily(SingleFamily):
    """Constant kernel: K(x, x') = 1.

    Notes
    -----
    Not centered, it acts as a penalized intercept. Centered, it is zero and raises an
    error. For thousands of features, use `FeatureFamily.with_constant`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), UAI, section 5.2; NIPS 22, section 4.2.
    """

    kind = "constant"
    translation_invariant = True

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return subtract_shift(
            np.ones((1, A.shape[0], B.shape[0]), dtype=A.dtype), shift
        )

    def diag(self, A: Rows) -> np.ndarray:
        return np.ones((1, A.shape[0]))


class LinearFamily(SingleFamily):
    r"""Linear kernel: :math:`K(x, x') = x \cdot x'`.

    Notes
    -----
    Centering it is the same as centering the features.
    """

    kind = "linear"
    translates = True

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return subtract_shift(inner_products(A, B)[None], shift)

    def diag(self, A: Rows) -> np.ndarray:
        return squared_norms(A)[None]


class CosineFamily(SingleFamily):
    r"""Cosine kernel, for rows such as word counts of texts.

    .. math:: K(x, x') = \frac{x \cdot x'}{\lVert x \rVert \, \lVert x' \rVert}

    Notes
    -----
    The linear kernel on rows of length one. Training rows must not be zero; new zero
    rows have the kernel zero.

    References
    ----------
    Shawe-Taylor, Cristianini (2004), Kernel Methods for Pattern Analysis, section 5.1.
    """

    kind = "cosine"

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        left = _unit_rows(A)
        right = left if A is B else _unit_rows(B)
        return subtract_shift(inner_products(left, right)[None], shift)

    def diag(self, A: Rows) -> np.ndarray:
        return (_sizes(A) > 0).astype(np.float64)[None]

    def check_rows(self, X: Rows) -> None:
        zero_rows = np.flatnonzero(_sizes(X) == 0)
        if not len(zero_rows):
            return
        positions = ", ".join(map(str, zero_rows[:5]))
        if len(zero_rows) > 5:
            positions += f", ... ({len(zero_rows)} rows)"
        raise ValueError(
            f"each row must have a direction for the cosine kernel, got only zeros in row {positions} of the "
            f"{X.shape[0]} given; leave such rows out or use the linear kernel."
        )


def _sizes(A: Rows) -> np.ndarray:
    if sparse.issparse(A):
        return np.asarray(abs(A).max(axis=1).toarray()).ravel()
    return np.abs(A).max(axis=1, initial=0.0)


def _unit_rows(A: Rows) -> Rows:
    """Return the rows scaled to length one; zero rows unchanged."""
    # Division by the largest value first avoids overflow
    A = _divided(A, _sizes(A))
    return _divided(A, np.sqrt(squared_norms(A)))


def _divided(A: Rows, lengths: np.ndarray) -> Rows:
    lengths = np.where(lengths > 0, lengths, 1.0)
    if not sparse.issparse(A):
        return A / lengths[:, None]
    divided = A.copy()
    divided.data = A.data / np.repeat(lengths, np.diff(A.indptr))
    return divided


class PolynomialFamily(KernelFamily):
    r"""Polynomial kernels with several degrees.

    .. math:: K_r(x, x') = (\gamma \, x \cdot x' + c)^r

    Parameters
    ----------
    degrees : sequence of int
        Degrees r, each at least 1.
    gamma : float, default 1
        Scale of the inner product, positive.
    coef0 : float, default 1
        Constant c, not negative.

    Raises
    ------
    ValueError
        `degrees` is empty, or a parameter is out of its range.

    Notes
    -----
    All degrees share one inner product per pair.
    """

    kind = "polynomial"

    def __init__(
        self, degrees: Sequence[int], gamma: float = 1.0, coef0: float = 1.0
    ) -> None:
        entries = numbers_of("degrees", degrees, "whole numbers of at least 1")
        if not entries:
            raise ValueError(
                "degrees must name at least one degree, got an empty list."
            )
        if not all(map(_is_degree, entries)):
            raise ValueError(
                f"degrees must be whole numbers of at least 1, got {entries}."
            )
        if not _is_number(coef0) or not 0.0 <= float(coef0) < np.inf:
            raise ValueError(f"coef0 must be finite and not negative, got {coef0!r}.")
        self.degrees = tuple(int(degree) for degree in entries)
        self.gamma = positive("gamma", gamma)
        self.coef0 = float(coef0)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(
            f"polynomial(degree={r}, gamma={self.gamma:g}, coef0={self.coef0:g})"
            for r in self.degrees
        )

    def _powers(self, inner: np.ndarray) -> np.ndarray:
        base = self.gamma * inner + self.coef0
        return np.stack([base**r for r in self.degrees])

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return subtract_shift(self._powers(inner_products(A, B)), shift)

    def diag(self, A: Rows) -> np.ndarray:
        return self._powers(squared_norms(A))

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(degrees=[self.degrees[k] for k in kernels])


def _is_number(value: Any) -> bool:
    return isinstance(value, Real)


def _is_degree(value: Any) -> bool:
    return _is_number(value) and float(value) >= 1 and float(value).is_integer()


class DirichletFamily(KernelFamily):
    r"""Dirichlet kernels, for targets that are periodic in features.

    .. math:: K_\sigma(x, x') = \prod_{c=1}^{d} \Bigl( 1 + 2 \sum_{j=1}^{n} \cos\bigl(j \sigma (x_c - x'_c)\bigr) \Bigr)

    Parameters
    ----------
    frequencies : sequence of float
        Positive frequencies, in radians per unit of the features.
    degree : int, default 1
        Number n of harmonics.

    Raises
    ------
    ValueError
        `frequencies` is empty, or a parameter is out of its range.

    Notes
    -----
    The paper uses the distance in place of differences, which is positive
    semi-definite only for one feature. A pair of rows takes ``4 n + 2`` flops per
    feature and frequency. Values reach ``(2 n + 1)^d``; too many features raise an
    error.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Machine Learning 91:305-324, section 3.1.
    """

    kind = "dirichlet"
    translation_invariant = True

    def __init__(self, frequencies: Sequence[float], degree: int = 1) -> None:
        self.frequencies = positive_numbers("frequencies", frequencies)
        if not _is_degree(degree):
            raise ValueError(
                f"degree must be a whole number of at least 1, got {degree!r}."
            )
        self.degree = int(degree)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(
            f"dirichlet(frequency={sigma:.12g}, degree={self.degree})"
            for sigma in self.frequencies
        )

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        self._require_finite_values(A.shape[1])
        dense_B = B.toarray() if sparse.issparse(B) else B
        mean = mean_row(dense_B)
        right_rows = dense_B - mean
        if A is B:
            left_rows = right_rows
        else:
            left_rows = (A.toarray() if sparse.issparse(A) else A) - mean
        K = np.ones(
            (self.n_kernels, len(left_rows), len(right_rows)), dtype=left_rows.dtype
        )
        for k, sigma in enumerate(self.frequencies):
            left = self._fourier_features(sigma * left_rows)
            right = left if A is B else self._fourier_features(sigma * right_rows)
            for feature in range(A.shape[1]):
                K[k] *= left[feature] @ right[feature].T
        return subtract_shift(K, shift)

    def _fourier_features(self, angles: np.ndarray) -> np.ndarray:
        """Return 1, scaled cosines and sines of multiples of angles, (d, a, 2 n + 1)."""
        features = [np.ones(angles.T.shape, dtype=angles.dtype)]
        for j in range(1, self.degree + 1):
            features += [
                math.sqrt(2.0) * np.cos(j * angles.T),
                math.sqrt(2.0) * np.sin(j * angles.T),
            ]
        return np.stack(features, axis=2)

    def diag(self, A: Rows) -> np.ndarray:
        self._require_finite_values(A.shape[1])
        return np.full(
            (self.n_kernels, A.shape[0]), float(2 * self.degree + 1) ** A.shape[1]
        )

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(frequencies=[self.frequencies[k] for k in kernels])

    def _require_finite_values(self, d: int) -> None:
        base = 2 * self.degree + 1
        largest_d = int(LARGEST_EXPONENT / np.log(base))
        if d > largest_d:
            raise ValueError(
                f"a Dirichlet kernel of degree {self.degree} must see at most {largest_d} features, or its values, up "
                f"to {base}^d, overflow; got {d}: give it fewer columns."
            )


class ProductFamily(KernelFamily):
    r"""Products of powers of base kernels, for interactions of groups of columns.

    .. math:: K_j(x, x') = \prod_{k=1}^{p} K^0_k(x, x')^{e_{jk}}

    Parameters
    ----------
    base : KernelFamily
        The p base kernels :math:`K^0_k`.
    powers : sequence of sequence of int, of shape (n, p)
        Exponents :math:`e_{jk}`, with a positive one in each row.

    Raises
    ------
    ValueError
        `powers` are not such exponents.

    Notes
    -----
    Base kernels are multiplied without centering.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), NIPS 22, equations (1) and (2).
    """

    kind = "product"

    def __init__(
        self, base: KernelFamily, powers: Sequence[Sequence[int]] | np.ndarray
    ) -> None:
        require_base_kernels("base", base)
        exponents = as_numbers("powers", powers)
        is_matrix = (
            exponents.size > 0
            and exponents.ndim == 2
            and exponents.shape[1] == base.n_kernels
        )
        whole_numbers = (
            np.isfinite(exponents).all() and (exponents == np.floor(exponents)).all()
        )
        if (
            not is_matrix
            or not whole_numbers
            or exponents.min() < 0
            or not exponents.any(axis=1).all()
        ):
            raise ValueError(
                f"powers must hold rows of {base.n_kernels} whole exponents, one per base kernel, not negative and not "
                f"all zero, got {exponents.tolist()}."
            )
        self.base = base
        self.powers = tuple(tuple(int(power) for power in row) for row in exponents)

    @classmethod
    def monomials(cls, base: KernelFamily, degree: int, *, lower: bool = False) -> Self:
        """Return the products of `degree` base kernels with repetition; if `lower`, also of fewer."""
        p = base.n_kernels
        lowest_degree = 1 if lower else degree
        powers = []
        for n_factors in range(lowest_degree, degree + 1):
            for factors in combinations_with_replacement(range(p), n_factors):
                powers.append(np.bincount(factors, minlength=p))
        return cls(base, np.array(powers, dtype=np.intp).reshape(-1, p))

    @classmethod
    def of(cls, *families: KernelFamily) -> Self:
        """Return every product of one base kernel from each given family."""
        starts = np.cumsum([0, *(family.n_kernels for family in families)])
        positions_by_family = [range(start, end) for start, end in pairwise(starts)]
        powers = [
            np.bincount(factors, minlength=starts[-1])
            for factors in product(*positions_by_family)
        ]
        return cls(FamilyUnion(families), np.array(powers))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._name_of_product(row) for row in self.powers)

    def _name_of_product(self, powers: Sequence[int]) -> str:
        factors = []
        for name, power in zip(self.base.names, powers, strict=True):
            if power == 1:
                factors.append(name)
            elif power > 1:
                factors.append(f"{name}^{power}")
        return " * ".join(factors)

    @property
    def translation_invariant(self) -> bool:
        return self.base.translation_invariant

    def check_rows(self, X: Rows) -> None:
        self.base.check_rows(X)

    @property
    def takes_sparse(self) -> bool:
        return self.base.takes_sparse

    def _products(self, K: np.ndarray) -> np.ndarray:
        products = []
        for row in self.powers:
            first, *others = [K[k] for k, power in enumerate(row) for _ in range(power)]
            products.append(math.prod(others, start=first))
        return np.stack(products)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return subtract_shift(self._products(self.base.tile(A, B)), shift)

    def diag(self, A: Rows) -> np.ndarray:
        return self._products(self.base.diag(A))

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(powers=[self.powers[k] for k in kernels])
