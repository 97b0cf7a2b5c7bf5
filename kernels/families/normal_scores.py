"""Base kernels that know the ranks of features beside their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy.special import ndtri

from learnkernels.kernels.families.base import KernelFamily, Rows, family_from_dict
from learnkernels.kernels.families.mapped import MappedFamily
from learnkernels.kernels.fields import Fields, list_of, number, optional

KNOTS = 129
"""Most values of a feature at which its normal scores are kept; between two they are interpolated."""


class NormalScoresFamily(MappedFamily):
    r"""Base kernels of features beside their normal scores, so that rows are apart by value and by rank.

    .. math:: K_k(x, x') = K^0_k \bigl( (x, s(x)), \, (x', s(x')) \bigr), \qquad
              s_j(x) = \Phi^{-1} \bigl( \hat F_j(x_j) \bigr)

    with :math:`\hat F_j` the distribution of the feature, half of those that are equal counted, and :math:`\Phi` the
    normal one.

    Parameters
    ----------
    base : KernelFamily
        p base kernels :math:`K^0_k` of the d features, followed by the scores of those that have some.
    knots : sequence of (ndarray of shape (n, 2) or None)
        For each feature values, ascending, and their scores, n of at least 2, as `normal_scores` returns them; None for
        one without.

    Raises
    ------
    ValueError
        Knots are not such arrays; in use, rows do not have d features.

    Notes
    -----
    Beyond the first and the last knot a score stays as it is: values further out are told apart by the feature itself.
    A tile costs that of the base kernels, and an interpolation a score and row. Rows must be dense.

    References
    ----------
    van der Waerden (1952), Order tests for the two-sample problem and their power, Indagationes Mathematicae 14.
    """

    kind = "normal-scores"

    def __init__(self, base: KernelFamily, knots: Sequence[Any]) -> None:
        self.base = base
        self.knots = tuple(None if one is None else np.array(one, dtype=np.float64) for one in knots)
        for j, one in enumerate(self.knots):
            fits = one is None or (one.ndim == 2 and one.shape[1] == 2 and len(one) > 1 and np.isfinite(one).all())
            if not fits or (one is not None and not (np.diff(one[:, 0]) > 0).all()):
                raise ValueError(
                    "knots must hold for each feature None, or two and more ascending values with their scores, not so "
                    f"for feature {j}; take those of normal_scores."
                )

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        knots = fields.get("knots", list_of(optional(list_of(list_of(number)))))
        if any(len(pair) != 2 for one in knots if one is not None for pair in one):
            fields.refuse("knots", "pairs of a value and its score", knots)
        return cls(fields.get("base", family_from_dict), knots)

    def mapped(self, A: Rows) -> Rows:
        """Return the features, and then the scores of those that have some."""
        if A.shape[1] != len(self.knots):
            raise ValueError(f"X must have the {len(self.knots)} features that there are knots for, got {A.shape[1]}.")
        return scores_beside(A, self.knots)

    def n_mapped(self, d: int) -> int:
        return self.base.n_mapped(d + sum(one is not None for one in self.knots))

    @property
    def takes_sparse(self) -> bool:
        return False

    def _with(self, base: KernelFamily) -> Self:
        return type(self)(base, self.knots)


def normal_scores(X: np.ndarray, sample_weight: np.ndarray | None = None) -> tuple[np.ndarray | None, ...]:
    """Return the values of each feature with their normal scores, at most `KNOTS` of equal distance in rank.

    Parameters
    ----------
    X : ndarray of shape (m, d)
        Rows. Not modified.
    sample_weight : ndarray of shape (m,), optional
        Weights of the rows; by default each counts once. Not modified.

    Returns
    -------
    knots : tuple of (ndarray of shape (n, 2) or None)
        One a feature; None for one of at most two values, whose scores tell nothing more.
    """
    w = np.ones(len(X)) if sample_weight is None else sample_weight
    return tuple(_knots(column, w) for column in X.T)


def scores_beside(A: np.ndarray, knots: Sequence[np.ndarray | None]) -> np.ndarray:
    """Return rows of features, followed by the scores of those that have knots; new, of the dtype of `A`."""
    d, held = len(knots), [(j, one) for j, one in enumerate(knots) if one is not None]
    mapped = np.empty((A.shape[0], d + len(held)), dtype=A.dtype)
    mapped[:, :d] = A
    for place, (j, one) in enumerate(held, start=d):
        mapped[:, place] = np.interp(A[:, j], one[:, 0], one[:, 1])
    return mapped


def _knots(column: np.ndarray, w: np.ndarray) -> np.ndarray | None:
    values, at = np.unique(column, return_inverse=True)
    if len(values) <= 2:
        return None
    counts = np.bincount(at, w)
    ranks = (np.cumsum(counts) - counts / 2) / counts.sum()
    if len(values) > KNOTS:
        kept = np.unique(np.searchsorted(ranks, np.linspace(ranks[0], ranks[-1], KNOTS)).clip(max=len(values) - 1))
        values, ranks = values[kept], ranks[kept]
    return np.column_stack([values, ndtri(ranks)])
