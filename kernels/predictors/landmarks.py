"""Landmarks: the few training rows that a predictor is a combination of, and the features that they give all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from learnkernels.kernels.centering import subtract_means
from learnkernels.kernels.engine.combination import Combination, RightSide
from learnkernels.kernels.engine.workers import BlockResults, RowSource, Threads
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.predictors.base import TrainingSet
from learnkernels.kernels.solvers.factor import eigenvectors

MEMORY = 3 << 30
"""Bytes that a fit may take where nothing is said: those of a laptop, and of the matrices of 10,000 rows."""

SQUARES = 8
"""Matrices of all pairs of landmarks that are held at once: eigenvectors and their work, basis, products a thread."""

FEATURE_BYTES = 32
"""Bytes a feature of a row takes where features are held: its value, and the copy that liblinear makes."""

DEPENDENT = 10 * np.finfo(np.float64).eps
"""Times their number and the largest eigenvalue: directions of some rows below that are rounding, and dropped."""

BLOCK, THREADS = 512, 2
"""Rows whose kernel with all landmarks is held at once, a thread, and how many threads are reckoned with."""

PRODUCT_ROWS = 2048
"""Rows whose features are multiplied at once."""


def landmarks_for(
    n_rows: int,
    n_features: int,
    n_columns: int,
    memory: int = MEMORY,
    held_features: bool = False,
    held_kernel: bool = False,
) -> int:
    r"""Return how many landmarks to take of m rows: enough for the error of all rows, and what fits the memory.

    .. math:: M = \lceil \sqrt m \, \ln m \rceil

    Parameters
    ----------
    n_rows, n_features : int
        m and d.
    n_columns : int
        Columns that are solved for at once: outputs times values of C.
    memory : int
        Bytes that the fit may take next to the data set.
    held_features : bool, default False
        Whether all m by M features are held, as scikit-learn's linear models need them.
    held_kernel : bool, default False
        Whether to take up to twice as many of which the kernel with all rows fits the memory, too: formed once, it
        leaves the time of as many for which it is formed in every step, and the error is lower.

    Returns
    -------
    M : int
        At least 10, at most m.

    References
    ----------
    Rudi, Camoriano, Rosasco (2015), Less is More: Nystroem Computational Regularization, NIPS 28, Theorem 1: as many
    landmarks reach the learning rate of all rows. Rudi, Carratino, Rosasco (2017), FALKON, NIPS 30, Theorem 3.
    """
    enough = int(np.ceil(np.sqrt(n_rows) * np.log(max(n_rows, 2))))
    a = 8.0 * SQUARES
    b = 8.0 * (THREADS * BLOCK + 8 * n_columns + n_features) + (FEATURE_BYTES * n_rows if held_features else 0)
    found = min(enough, _largest(a, b, memory))
    if held_kernel:
        found = max(found, min(2 * enough, _largest(a, b + 8.0 * n_rows, memory)))
    return min(n_rows, max(10, found))


def _largest(a: float, b: float, memory: int) -> int:
    """Return the largest whole M with ``a M^2 + b M`` of at most `memory`."""
    return int((np.sqrt(b * b + 4 * a * memory) - b) / (2 * a))


@dataclass(frozen=True)
class Subspace:
    r"""The span of M landmarks' features less their mean, in a basis in which rows have features phi.

    .. math:: \varphi(x) = B^\top k_Z(x), \qquad B^\top K_{ZZ} B = I

    where k_Z is the kernel between a row and the landmarks, centered on the landmarks, or as it is where the learned
    kernel is not centered.

    Attributes
    ----------
    kernel : LearnedKernel
        Over the landmarks, centered on them.
    basis : ndarray of shape (M, r)
        B; its columns sum to zero, where the kernel is centered.
    theta : ndarray of shape (r,)
        Estimates of the eigenvalues of the products :math:`\Phi^\top \Phi` over all training rows, in this basis.

    Notes
    -----
    Centering on the landmarks is accurate for a nearly constant kernel, and needs no pass. Predictors then subtract
    the mean feature of all training rows, which is the centering of the learned kernel as the subspace sees it.
    Negative eigenvalues, of kernels with negative weights, are dropped: what is left is the projection onto the
    positive semi-definite ones.
    """

    kernel: LearnedKernel
    basis: np.ndarray
    theta: np.ndarray

    @classmethod
    def of(cls, kernel: LearnedKernel, Z: Rows, rows: np.ndarray, n_rows: int) -> Subspace:
        """Return the subspace of landmarks.

        Parameters
        ----------
        kernel : LearnedKernel
            Its weights, scales and origin count.
        Z : ndarray or CSR matrix of shape (M, d)
            Landmarks, less the kernel's origin.
        rows : ndarray of shape (M,)
            Their positions in the data set.
        n_rows : int
            m, the number of training rows that they were drawn from, each with the same probability.

        Raises
        ------
        ValueError
            All landmarks are the same to the kernel.
        """
        K = kernel.combination.matrix(Z, Z, symmetric=True)
        row_means = kernel.centering.mean(K, axis=1)
        subtract_means(K, row_means, row_means, float(row_means.mean()), out=K)
        s, U = eigenvectors(K)
        used = s > DEPENDENT * len(s) * np.abs(s).max()
        if not used.any():
            raise ValueError(
                f"the learned kernel does not distinguish the {len(s)} landmarks; take more, or other bandwidths."
            )
        s, U = s[used], U[:, used]
        U = kernel.centering.less_mean(U)
        landmarks = replace(kernel, X=Z, rows=rows, row_means=row_means, sample_weight=None)
        return cls(landmarks, U / np.sqrt(s), s * (n_rows / len(rows)))

    @property
    def offset(self) -> np.ndarray:
        """What the features of the kernel that is not centered have too much, shape (r,)."""
        return np.asarray(self.kernel.row_means @ self.basis)


def refined(training: TrainingSet, subspace: Subspace, n_rows: int, rng: np.random.Generator) -> Subspace:
    """Return a subspace whose `theta` are the eigenvalues of the products over more rows than the landmarks.

    Parameters
    ----------
    training : TrainingSet
        m training rows.
    subspace : Subspace
        Of landmarks among them.
    n_rows : int
        How many rows are drawn; all where it is at least m.
    rng : numpy.random.Generator
        Draws them.

    Returns
    -------
    subspace : Subspace
        The same span, in the eigenvectors of those products.

    Notes
    -----
    With R rows and r features a pass over R rows, 3 R r^2 flops and an eigendecomposition. The relative error of theta
    falls like the root of r / R, and with it the steps of conjugate gradients: from 60 with the landmarks' own estimate
    to a dozen with ten rows a landmark.
    """
    m = training.n_rows
    some = np.arange(m) if n_rows >= m else np.sort(rng.choice(m, n_rows, replace=False))
    drawn = training if len(some) == m else training.subset(some)
    _, products = centered_products(subspace, passes_over(drawn, subspace, np.zeros((len(some), 0)))(kernel_sums, True))
    products *= m / len(some)
    theta, Q = eigenvectors(products)
    return replace(subspace, basis=subspace.basis @ Q, theta=np.maximum(theta, 0.0))


@dataclass
class KernelSums:
    """Sums over rows, of weights w, of the kernel G between them and the landmarks, not centered.

    Attributes
    ----------
    weight, own : float
        ``sum w`` and ``sum w K(x, x)``.
    kernel : ndarray of shape (M,)
        ``G' w``.
    targets : ndarray of shape (M, q)
        ``G' D Y``.
    products : ndarray of shape (r, r) or None
        ``Phi' D Phi`` of the features, where it is requested.
    """

    weight: float
    own: float
    kernel: np.ndarray
    targets: np.ndarray
    products: np.ndarray | None

    def __add__(self, other: KernelSums) -> KernelSums:
        self.weight += other.weight
        self.own += other.own
        self.kernel += other.kernel
        self.targets += other.targets
        if self.products is not None:
            self.products += other.products
        return self


@dataclass(frozen=True)
class RowPass:
    """What the tasks of every pass need; it is sent to the workers once.

    Attributes
    ----------
    combination : Combination
    landmarks : ndarray or CSR matrix of shape (M, d)
    source : RowSource of shape (m, d)
    Y : ndarray of shape (m, q)
        Targets.
    mean : ndarray of shape (q,)
        What is subtracted of them, as they are read: the rows may be millions.
    weights : ndarray of shape (m,)
    subspace : Subspace
    held : ndarray of shape (m, M) or None
        The kernel between rows and landmarks; None where every pass forms it again.
    formed : set of int
        First rows of the blocks whose kernel is held by now.
    """

    combination: Combination
    landmarks: Rows
    source: RowSource
    Y: np.ndarray
    mean: np.ndarray
    weights: np.ndarray
    subspace: Subspace
    held: np.ndarray | None = None
    formed: set[int] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "right"}

    def block(self, rows: slice, room: np.ndarray) -> np.ndarray:
        """Return the kernel between a block of rows and the landmarks, as it is held, or formed in `room`."""
        if rows.start in self.formed and self.held is not None:
            return self.held[rows]
        block = room[: rows.stop - rows.start] if self.held is None else self.held[rows]
        self.combination.fill(self.source[rows], self.landmarks, block, right=self.right)
        if self.held is not None:
            self.formed.add(rows.start)
        return block

    @cached_property
    def right(self) -> RightSide:
        """What every block needs of the landmarks."""
        return self.combination.side(self.landmarks)


RowTask = tuple[int, tuple[int, int]]
"""The number of a run of rows, and its first row and the one after its last."""

Step = Callable[[RowPass, Any, RowTask], Any]
"""What a pass does with some rows: `kernel_sums`, `normal_products` or `row_features`."""


def passes_over(
    training: TrainingSet, subspace: Subspace, Y: np.ndarray, mean: np.ndarray | None = None, memory: int = 0
) -> Callable[[Step, Any], Any]:
    """Return a function of a step and its argument that does a pass over the training rows and adds up the results.

    Parameters
    ----------
    training : TrainingSet
        m training rows.
    subspace : Subspace
        Of landmarks among them.
    Y : ndarray of shape (m, q)
        Targets.
    mean : ndarray of shape (q,), default zeros
        What is subtracted of them.
    memory : int, default 0
        Bytes that the kernel between rows and landmarks may take: where they suffice, and threads of this process do
        the passes, it is formed once.
    """
    workers, kernel, m, M = training.workers, subspace.kernel, training.n_rows, len(subspace.basis)
    mean = np.zeros(Y.shape[1]) if mean is None else mean
    weights = np.ones(m) if training.sample_weight is None else training.sample_weight
    one = RowPass(kernel.combination, kernel.X, training.source, Y, mean, weights, subspace)
    if isinstance(workers, Threads) and 8 * m * M <= memory:
        one = replace(one, held=np.empty((m, M)))
    shared, tasks = workers.broadcast(one), list(enumerate(workers.spans(m, BLOCK)))
    return lambda step, argument: workers.total(step, shared, argument, tasks)


def mean_feature(subspace: Subspace, sums: KernelSums) -> np.ndarray:
    """Return the mean feature over all rows, which is subtracted, shape (r,); zero without centering."""
    if not subspace.kernel.centering.subtracts:
        return np.zeros(subspace.basis.shape[1])
    return np.asarray(sums.kernel @ subspace.basis / sums.weight - subspace.offset)


def centered_products(subspace: Subspace, sums: KernelSums) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean feature, shape (r,), and the products of the features less it over all rows, shape (r, r)."""
    assert sums.products is not None
    mean = mean_feature(subspace, sums)
    return mean, sums.products - sums.weight * np.outer(mean, mean)


def _blocks(span: tuple[int, int], size: int) -> list[slice]:
    return [slice(start, min(start + size, span[1])) for start in range(span[0], span[1], size)]


def kernel_sums(of: RowPass, products: bool, task: RowTask) -> KernelSums:
    """Return the sums over some rows, with those of products of features or without."""
    M, r = of.subspace.basis.shape
    q, G, Phi = of.Y.shape[1], np.empty((BLOCK, M)), np.empty((PRODUCT_ROWS if products else 0, r))
    part, held, turned = np.empty((r, r) if products else (0, 0)), 0, np.zeros((M, 1 + q))
    sums = KernelSums(0.0, 0.0, turned[:, 0], turned[:, 1:], np.zeros((r, r)) if products else None)
    for rows in _blocks(task[1], BLOCK):
        A, w = of.source[rows], of.weights[rows]
        sums.weight += float(w.sum())
        sums.own += float(w @ of.combination.diagonal(A))
        given = np.column_stack([w, (of.Y[rows] - of.mean) * w[:, None]])
        if of.held is None and not products:
            of.right.products(A, None, given, turned)
            continue
        block = of.block(rows, G)
        turned += block.T @ given
        if sums.products is not None:
            features = Phi[held : held + len(block)]
            np.matmul(block, of.subspace.basis, out=features)
            features -= of.subspace.offset
            features *= np.sqrt(w)[:, None]
            held += len(block)
            if held + BLOCK > PRODUCT_ROWS or rows.stop == task[1][1]:
                np.matmul(Phi[:held].T, Phi[:held], out=part)
                sums.products += part
                held = 0
    return sums


def normal_products(of: RowPass, argument: tuple[np.ndarray, np.ndarray], task: RowTask) -> np.ndarray:
    """Return ``G' D (G beta - 1 means')``, shape (M, c), for beta of shape (M, c) and means of shape (c,)."""
    beta, means = argument
    G, total = np.empty((BLOCK, len(beta))), np.zeros_like(beta)
    for rows in _blocks(task[1], BLOCK):
        w = of.weights[rows]
        if of.held is None:
            of.right.products(of.source[rows], beta, np.outer(w, -means), total, w)
        else:
            block = of.block(rows, G)
            total += block.T @ ((block @ beta - means) * w[:, None])
    return total


def row_features(of: RowPass, argument: None, task: RowTask) -> BlockResults:
    """Return the features of some rows, not centered, of shape (n, r) each."""
    run, span = task
    Phi = np.empty((span[1] - span[0], of.subspace.basis.shape[1]))
    for rows in _blocks(span, BLOCK):
        G = of.combination.matrix(of.source[rows], of.landmarks)
        np.matmul(G, of.subspace.basis, out=Phi[rows.start - span[0] : rows.stop - span[0]])
    Phi -= of.subspace.offset
    return BlockResults({run: Phi})
