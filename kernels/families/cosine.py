"""The cosine base kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from learnkernels.kernels.families.base import KernelFamily, Rows, inner_products, squared_norms
from learnkernels.kernels.families.union import FamilyUnion


class CosineFamily(KernelFamily):
    r"""The cosine of the angle between two rows, a family of one: what counts is direction, not length, as of texts.

    .. math:: K(x, x') = \frac{x \cdot x'}{\lVert x \rVert \, \lVert x' \rVert}

    Notes
    -----
    The linear kernel of rows of length one, at its cost. A zero row has no direction: its kernel with every row is
    zero, with itself too. Among training rows `require_directions` refuses it, where a kernel is learned.

    References
    ----------
    Shawe-Taylor, Cristianini (2004), Kernel Methods for Pattern Analysis, section 5.1: the normalised kernel.
    """

    kind = "cosine"

    @property
    def names(self) -> tuple[str, ...]:
        return ("cosine",)

    def tile(self, A: Rows, B: Rows, shift: np.ndarray | None = None) -> np.ndarray:
        unit = _unit_rows(A)
        K = inner_products(unit, unit if A is B else _unit_rows(B))[None]
        if shift is not None:
            K -= shift[:, None, None]
        return K

    def diag(self, A: Rows) -> np.ndarray:
        return (_sizes(A) > 0).astype(np.float64)[None]

    def subset(self, kernels: Sequence[int]) -> CosineFamily:
        if list(kernels) != [0]:
            raise ValueError(f"kernels must be [0], the only kernel of a cosine family, got {list(kernels)}.")
        return self


def require_directions(family: KernelFamily, X: Rows) -> None:
    """Raise ValueError if a cosine kernel of `family` would see a zero row, which has no direction, in `X`."""
    if isinstance(family, CosineFamily):
        zero = np.flatnonzero(_sizes(X) == 0)
        if len(zero):
            shown = ", ".join(map(str, zero[:5])) + (f", ... ({len(zero)} rows)" if len(zero) > 5 else "")
            raise ValueError(
                f"each row must have a direction for the cosine kernel, got only zeros in row {shown} of the "
                f"{X.shape[0]} given; leave such rows out or use the linear kernel."
            )
    elif isinstance(family, FamilyUnion):
        for part, columns in zip(family.families, family.columns, strict=True):
            require_directions(part, X if columns is None else X[:, columns])


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
