"""What follows from the data alone: base kernels, and how many new rows are taken at once."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from learnkernels.kernels.families.base import KernelFamily, Rows, as_rows, distinct_rows, squared_distances
from learnkernels.kernels.families.distances import GaussianFamily

DEFAULTS = ("alignf", "rfm")
"""Learners that `default_learner` chooses among."""

CHUNK_BYTES = 1 << 26
"""Most bytes of a matrix between new rows and training rows."""

MOST_CHUNK_ROWS = 1 << 13
"""Most new rows taken at once."""

SAMPLE_ROWS = 1024
"""Most distinct rows whose distances give the default bandwidths."""

MOST_SORTED = 1 << 14
"""Most rows that are told apart by sorting them for the default bandwidths."""

OCTAVES = 3
"""Default bandwidths go this many powers of two below and above the middle one."""


def chunk_rows_for(m: int) -> int:
    """Return how many new rows are predicted at once by an estimator of m training rows.

    Parameters
    ----------
    m : int
        Number of training rows.

    Returns
    -------
    rows : int
        A power of two that depends on m alone. The matrix between so many new rows and the training rows takes at most
        `CHUNK_BYTES`.

    Notes
    -----
    The bits of a product depend on its shape. Chunks start at the first row, so rows that are given in batches of a
    multiple of this number are predicted with the bits of all rows at once.
    """
    return int(np.clip(1 << (max(CHUNK_BYTES // (8 * m), 1).bit_length() - 1), 1, MOST_CHUNK_ROWS))


def default_family(X: Rows) -> GaussianFamily:
    r"""Return Gaussian base kernels of seven bandwidths around one over the median squared distance of rows.

    .. math:: \gamma \in \{ 2^{e - 3}, \dots, 2^{e + 3} \}, \qquad
              e = \operatorname{round} \log_2 \bigl( 1 / \operatorname{median} \lVert x - x' \rVert^2 \bigr)

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (m, d)
        Rows; features that are not in one unit are best scaled before. Not modified.

    Returns
    -------
    family : GaussianFamily
        A grid of powers of two, which costs one exponential a pair of rows. It depends on the set of distinct rows:
        not on their order, and not on how often one is repeated.

    Raises
    ------
    ValueError
        All rows are equal, or so far apart or so near that no bandwidth suits them; X is not finite.

    Notes
    -----
    The median is that of all pairs among at most `SAMPLE_ROWS` distinct rows, drawn with a fixed seed. Of more than
    `MOST_SORTED` distinct rows that many are drawn beforehand, in the order of one random sum of the features of each.
    O(m d + m log m), of sparse rows as many flops as there are values.

    Examples
    --------
    >>> import numpy as np
    >>> from learnkernels.kernels.estimators import default_family
    >>> default_family(np.random.default_rng(0).normal(size=(200, 8)))
    GaussianFamily([2**-7, 2**-6, 2**-5, 2**-4, 2**-3, 2**-2, 0.5])
    """
    X = as_rows(X)
    m = X.shape[0]
    if m > MOST_SORTED:  # each distinct row at least once, or so many of more, whatever their order and repetitions
        d = X.shape[1]
        _, first = np.unique(X @ (np.random.default_rng(0).random(d) / d), return_index=True)
        if len(first) > MOST_SORTED:
            first = first[np.random.default_rng(0).choice(len(first), MOST_SORTED, replace=False)]
        X = X[first]
    first, _ = distinct_rows(X)
    if len(first) < 2:
        raise ValueError(
            f"X must hold at least two different rows to choose bandwidths by, got {m} equal ones; give "
            "features that vary, or a family."
        )
    if len(first) > SAMPLE_ROWS:
        first = first[np.sort(np.random.default_rng(0).choice(len(first), SAMPLE_ROWS, replace=False))]
    with np.errstate(over="ignore", invalid="ignore"):
        D = squared_distances(X[first], X[first])[np.triu_indices(len(first), 1)]
    D = D[D > 0]
    median = float(np.median(D)) if len(D) else 0.0
    lowest, highest = np.finfo(np.float64).minexp + 2 * OCTAVES, np.finfo(np.float64).maxexp - 2 * OCTAVES
    exponent = round(-np.log2(median)) if 0 < median < np.inf else highest + 1
    if not lowest < exponent < highest:
        raise ValueError(
            f"X must have rows at distances whose squares are ordinary numbers, got a median of {median:g}; scale the "
            "features, or give a family."
        )
    return GaussianFamily([2.0 ** (exponent + step) for step in range(-OCTAVES, OCTAVES + 1)])


def default_learner(family: KernelFamily | None, X: Rows) -> tuple[str, str]:
    """Return the name of the learner that suits what is given, and why it is that one.

    Parameters
    ----------
    family : KernelFamily or None
        Base kernels, if they are given.
    X : ndarray or CSR matrix of shape (m, d)
        Training rows. Not modified.

    Returns
    -------
    learner : str
        alignf, which weighs base kernels, or rfm, which finds them.
    why : str
    """
    if family is not None:
        return "alignf", "base kernels are given, and alignf weighs them"
    if sparse.issparse(X):
        return "alignf", "rows are sparse, and gradients, from which rfm learns metrics, are dense"
    return "rfm", "no base kernels are given, and rfm finds them in metrics that it learns"
