"""Kernels of inner products: linear, cosine, polynomial and Dirichlet ones, the constant, and products of kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement, pairwise, product
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy import sparse

from ..parameters import as_numbers, numbers_of, positive, positive_numbers
from .base import (
    KernelFamily,
    Rows,
    inner_products,
    less,
    mean_row,
    require_base_kernels,
    squared_norms,
)
from .composed import FamilyUnion

LARGEST_EXPONENT = 700.0
"""Natural logarithm of the largest kernel value; that of the largest double is 709."""


class SingleFamily(KernelFamily):
    """A family of one kernel, which has no parameters."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.kind,)

    def subset(self, kernels: Sequence[int]) -> Self:
        if list(kernels) != [0]:
            raise ValueError(f"kernels must be [0], the only kernel of a {self.kind} family, got {list(kernels)}.")
        return self


class ConstantFamily(SingleFamily):
    """The kernel that is one for every pair of rows, a family of one: K(x, x') = 1.

    Notes
    -----
    Among base kernels that are not centered it acts as an intercept, but is penalized and weighted like any other base
    kernel. Once centered it is zero, and refused. Of rank one, next to thousands of features, it is
    one more of them: `FeatureFamily.with_constant`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *L2 regularization for learning kernels*, UAI, section 5.2; (2009), *Learning
    non-linear combinations of kernels*, NIPS 22, section 4.2: a constant feature as offset.
    """

    kind = "constant"
    translation_invariant = True

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return less(np.ones((1, A.shape[0], B.shape[0]), dtype=A.dtype), shift)

    def diag(self, A: Rows) -> np.ndarray:
        return np.ones((1, A.shape[0]))


class LinearFamily(SingleFamily):
    r"""The linear kernel, a family of one, for what is a weighted sum of the features: :math:`K(x, x') = x \cdot x'`.

    Notes
    -----
    Centering this kernel is the same as centering the features.
    """

    kind = "linear"
    translates = True

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return less(inner_products(A, B)[None], shift)

    def diag(self, A: Rows) -> np.ndarray:
        return squared_norms(A)[None]


class CosineFamily(SingleFamily):
    r"""The cosine of the angle between two rows, a family of one: what counts is direction, not length, as of texts.

    .. math:: K(x, x') = \frac{x \cdot x'}{\lVert x \rVert \, \lVert x' \rVert}

    Notes
    -----
    The linear kernel of rows of length one, at its cost. A zero row has no direction: its kernel with every row is
    zero, with itself too. Training rows must have a direction.

    References
    ----------
    Shawe-Taylor, Cristianini (2004), Kernel Methods for Pattern Analysis, section 5.1: the normalized kernel.
    """

    kind = "cosine"

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        unit = _unit_rows(A)
        return less(inner_products(unit, unit if A is B else _unit_rows(B))[None], shift)

    def diag(self, A: Rows) -> np.ndarray:
        return (_sizes(A) > 0).astype(np.float64)[None]

    def check_rows(self, X: Rows) -> None:
        if len(zero := np.flatnonzero(_sizes(X) == 0)):
            shown = ", ".join(map(str, zero[:5])) + (f", ... ({len(zero)} rows)" if len(zero) > 5 else "")
            raise ValueError(
                f"each row must have a direction for the cosine kernel, got only zeros in row {shown} of the "
                f"{X.shape[0]} given; leave such rows out or use the linear kernel."
            )


def _sizes(A: Rows) -> np.ndarray:
    """Return the largest absolute value of each row, shape (a,)."""
    if sparse.issparse(A):
        return np.asarray(abs(A).max(axis=1).toarray()).ravel()
    return np.abs(A).max(axis=1, initial=0.0)


def _unit_rows(A: Rows) -> Rows:
    """Return the rows scaled to length one, zero rows as they are."""
    # By the largest value first, so that no square overflows or vanishes.
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
    r"""Polynomial kernels, one per degree: products of up to so many features.

    .. math:: K_r(x, x') = (\gamma \, x \cdot x' + c)^r

    Parameters
    ----------
    degrees : sequence of int
        Degrees r, each at least 1. Order is kept.
    gamma : float, default 1
        Scale of the inner product, positive.
    coef0 : float, default 1
        The constant c, not negative: a negative one does not give a positive semi-definite kernel.

    Raises
    ------
    ValueError
        No degree is given, or a parameter is outside its range.

    Notes
    -----
    One product per pair serves all degrees; unlike a radial kernel it does change when features are moved.
    """

    kind = "polynomial"

    def __init__(self, degrees: Sequence[int], gamma: float = 1.0, coef0: float = 1.0) -> None:
        entries = numbers_of("degrees", degrees, "whole numbers of at least 1")
        if not entries:
            raise ValueError("degrees must name at least one degree, got an empty list.")
        if not all(map(_is_degree, entries)):
            raise ValueError(f"degrees must be whole numbers of at least 1, got {entries}.")
        if not _is_number(coef0) or not 0.0 <= float(coef0) < np.inf:
            raise ValueError(f"coef0 must be finite and not negative, got {coef0!r}.")
        self.degrees = tuple(int(degree) for degree in entries)
        self.gamma = positive("gamma", gamma)
        self.coef0 = float(coef0)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"polynomial(degree={r}, gamma={self.gamma:g}, coef0={self.coef0:g})" for r in self.degrees)

    def _powers(self, inner: np.ndarray) -> np.ndarray:
        base = self.gamma * inner + self.coef0
        return np.stack([base**r for r in self.degrees])

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return less(self._powers(inner_products(A, B)), shift)

    def diag(self, A: Rows) -> np.ndarray:
        return self._powers(squared_norms(A))

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(degrees=[self.degrees[k] for k in kernels])


def _is_number(value: Any) -> bool:
    return isinstance(value, Real)


def _is_degree(value: Any) -> bool:
    return _is_number(value) and float(value) >= 1 and float(value).is_integer()


class DirichletFamily(KernelFamily):
    r"""Dirichlet (periodic) kernels, one per frequency: for targets that repeat along a feature.

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
    The paper writes :math:`1 + 2 \cos(\sigma \lVert x - x' \rVert)` and uses it on one feature, where this
    is the same. As a function of the distance it is positive semi-definite in one dimension only: the cosine of a
    distance in the plane has a Fourier transform of both signs. One factor per feature is positive semi-definite (a sum
    of cosines with positive coefficients), and so is the product of the factors.

    A factor is a product of the rows' sines and cosines, ``4 n + 2`` flops a pair, feature and frequency; no cosine of
    a pair is formed. Values lie within ``(2 n + 1)^d``, and `tile` refuses rows of so many features that this is not
    finite. Rows are first moved by a mean, which changes no difference; the angle still loses ``eps * sigma * |x_c|``.

    References
    ----------
    Afkanpour, Szepesvari, Bowling (2013), Alignment based kernel learning with a continuous set of base kernels,
    Machine Learning 91:305-324, section 3.1.
    """

    kind = "dirichlet"
    translation_invariant = True

    def __init__(self, frequencies: Sequence[float], degree: int = 1) -> None:
        self.frequencies = positive_numbers("frequencies", frequencies)
        if not _is_degree(degree):
            raise ValueError(f"degree must be a whole number of at least 1, got {degree!r}.")
        self.degree = int(degree)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"dirichlet(frequency={sigma:.12g}, degree={self.degree})" for sigma in self.frequencies)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        same = A is B
        self._require_finite_values(A.shape[1])
        B = B.toarray() if sparse.issparse(B) else B
        mean = mean_row(B)
        B = B - mean
        A = B if same else (A.toarray() if sparse.issparse(A) else A) - mean
        K = np.ones((self.n_kernels, len(A), len(B)), dtype=A.dtype)
        for k, sigma in enumerate(self.frequencies):
            left = self._waves(sigma * A)
            right = left if same else self._waves(sigma * B)
            for c in range(A.shape[1]):
                K[k] *= left[c] @ right[c].T
        return less(K, shift)

    def _waves(self, angles: np.ndarray) -> np.ndarray:
        """Return the features whose inner products are the factors, shape (d, a, 2 n + 1)."""
        waves = [np.ones(angles.T.shape, dtype=angles.dtype)]
        for j in range(1, self.degree + 1):
            waves += [math.sqrt(2.0) * np.cos(j * angles.T), math.sqrt(2.0) * np.sin(j * angles.T)]
        return np.stack(waves, axis=2)

    def diag(self, A: Rows) -> np.ndarray:
        self._require_finite_values(A.shape[1])
        return np.full((self.n_kernels, A.shape[0]), float(2 * self.degree + 1) ** A.shape[1])

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(frequencies=[self.frequencies[k] for k in kernels])

    def _require_finite_values(self, d: int) -> None:
        base = 2 * self.degree + 1
        most = int(LARGEST_EXPONENT / np.log(base))
        if d > most:
            raise ValueError(
                f"a Dirichlet kernel of degree {self.degree} must see at most {most} features, or its values, up to "
                f"{base}^d, overflow; got {d}: give it fewer columns."
            )


class ProductFamily(KernelFamily):
    r"""Products of base kernels, one per row of exponents: for targets that depend on several views of a row at once.

    .. math:: K_j(x, x') = \prod_{k=1}^{p} K^0_k(x, x')^{e_{jk}}

    Parameters
    ----------
    base : KernelFamily
        p base kernels :math:`K^0_k`.
    powers : sequence of sequence of int, of shape (n, p)
        The exponents :math:`e_{jk}`, not negative; at least one of each row is positive.

    Raises
    ------
    ValueError
        `powers` are not such exponents.

    Notes
    -----
    Products of positive semi-definite kernels are positive semi-definite. A tile costs that of the base kernels, and
    one multiplication per pair, factor and product. Base kernels are multiplied as they are, without centering.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2009), *Learning non-linear combinations of kernels*, NIPS 22, equations (1) and (2):
    with a weight for each monomial, which `monomials` lists.
    """

    kind = "product"

    def __init__(self, base: KernelFamily, powers: Sequence[Sequence[int]] | np.ndarray) -> None:
        require_base_kernels("base", base)
        exponents = as_numbers("powers", powers)
        is_matrix = exponents.size > 0 and exponents.ndim == 2 and exponents.shape[1] == base.n_kernels
        whole_numbers = np.isfinite(exponents).all() and (exponents == np.floor(exponents)).all()
        if not is_matrix or not whole_numbers or exponents.min() < 0 or not exponents.any(axis=1).all():
            raise ValueError(
                f"powers must hold rows of {base.n_kernels} whole exponents, one per base kernel, not negative and not "
                f"all zero, got {exponents.tolist()}."
            )
        self.base = base
        self.powers = tuple(tuple(int(power) for power in row) for row in exponents)

    @classmethod
    def monomials(cls, base: KernelFamily, degree: int, *, lower: bool = False) -> Self:
        """Return all products of `degree` base kernels, with repetition, and with `lower` those of fewer, too."""
        counts = [
            np.bincount(chosen, minlength=base.n_kernels)
            for d in range(1 if lower else degree, degree + 1)
            for chosen in combinations_with_replacement(range(base.n_kernels), d)
        ]
        return cls(base, np.array(counts, dtype=np.intp).reshape(-1, base.n_kernels))

    @classmethod
    def of(cls, *families: KernelFamily) -> Self:
        """Return all products of one base kernel from each family."""
        starts = np.cumsum([0, *(family.n_kernels for family in families)])
        ranges = [range(start, end) for start, end in pairwise(starts)]
        chosen = [np.bincount(factors, minlength=starts[-1]) for factors in product(*ranges)]
        return cls(FamilyUnion(families), np.array(chosen))

    @property
    def names(self) -> tuple[str, ...]:
        def named(row: Sequence[int]) -> str:
            factors = zip(self.base.names, row, strict=True)
            return " * ".join(name + (f"^{power}" if power > 1 else "") for name, power in factors if power)

        return tuple(map(named, self.powers))

    @property
    def translation_invariant(self) -> bool:
        return self.base.translation_invariant

    def check_rows(self, X: Rows) -> None:
        self.base.check_rows(X)

    @property
    def takes_sparse(self) -> bool:
        return self.base.takes_sparse

    def _products(self, K: np.ndarray) -> np.ndarray:
        factors = [[K[k] for k, power in enumerate(row) for _ in range(power)] for row in self.powers]
        return np.stack([math.prod(of[1:], start=of[0]) for of in factors])

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        return less(self._products(self.base.tile(A, B)), shift)

    def diag(self, A: Rows) -> np.ndarray:
        return self._products(self.base.diag(A))

    def subset(self, kernels: Sequence[int]) -> Self:
        return self._with(powers=[self.powers[k] for k in kernels])
