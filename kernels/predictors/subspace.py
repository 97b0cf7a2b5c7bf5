"""The features that landmarks give all rows, and sums of them over rows that are streamed through."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from learnkernels.kernels.centering import Centering, subtract_means
from learnkernels.kernels.engine.combination import MOST_TOGETHER, Combination, LaidOut
from learnkernels.kernels.engine.combined_gram import Pieces
from learnkernels.kernels.engine.workers import RowSource, Threads
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.predictors.rows import KernelOnRows
from learnkernels.kernels.solvers.factor import eigenvectors

DEPENDENT = 10 * np.finfo(np.float64).eps
"""Times their number and the largest eigenvalue: directions of some rows below that are rounding, and dropped."""

BLOCK = 512
"""Rows whose kernel with all landmarks is held at once, a thread."""

PRODUCT_ROWS = 2048
"""Rows whose features are multiplied at once."""


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
    Centering on the landmarks loses no digits of a nearly constant kernel, and needs no pass. Predictors then subtract
    the mean feature of all training rows, which is the centering of the learned kernel as the subspace sees it.
    Negative eigenvalues, of kernels with negative weights, are dropped: what is left is the projection onto the
    positive semi-definite ones.
    """

    kernel: LearnedKernel
    basis: np.ndarray
    theta: np.ndarray

    @classmethod
    def of(cls, kernel: LearnedKernel, Z: Rows, rows: np.ndarray, counts: np.ndarray) -> Subspace:
        """Return the subspace of landmarks.

        Parameters
        ----------
        kernel : LearnedKernel
            Its weights, scales and origin count.
        Z : ndarray or CSR matrix of shape (M, d)
            Landmarks, less the kernel's origin.
        rows : ndarray of shape (M,)
            Their positions in the data set.
        counts : ndarray of shape (M,)
            How many training rows each stands for.

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
                f"the learned kernel does not tell the {len(s)} landmarks apart; take more, or other bandwidths."
            )
        s, U = s[used], U[:, used]
        U = kernel.centering.less_mean(U)
        basis, theta = U / np.sqrt(s), s * (counts.sum() / len(counts))
        if np.ptp(counts) > 0:
            weighted = (U * np.sqrt(s)) * np.sqrt(counts)[:, None]
            theta, Q = np.linalg.eigh(weighted.T @ weighted)
            basis, theta = basis @ Q, np.maximum(theta, 0.0)
        landmarks = replace(kernel, X=Z, rows=rows, row_means=row_means, sample_weight=None)
        return cls(landmarks, basis, theta)

    @property
    def centering(self) -> Centering:
        """That of the kernel."""
        return self.kernel.centering

    @property
    def offset(self) -> np.ndarray:
        """What the features of the kernel that is not centered have too much, shape (r,)."""
        return np.asarray(self.kernel.row_means @ self.basis)


def refined(on: KernelOnRows, subspace: Subspace, n_rows: int, rng: np.random.Generator) -> Subspace:
    """Return a subspace whose `theta` are the eigenvalues of the products over more rows than the landmarks.

    Parameters
    ----------
    on : KernelOnRows
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
    m = on.n_rows
    some = np.arange(m) if n_rows >= m else np.sort(rng.choice(m, n_rows, replace=False))
    passes = SubspacePasses(on if len(some) == m else on.only(some), subspace, np.zeros((len(some), 0)))
    _, products = centered_products(subspace, passes.sums(products=True))
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
        ``Phi' D Phi`` of the features, where it is asked for.
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
    weights : ndarray of shape (m,) or None
    subspace : Subspace
    held : ndarray of shape (m, M) or None
        The kernel between rows and landmarks; None where every pass forms it anew.
    formed : set of int
        First rows of the blocks whose kernel is held by now.
    """

    combination: Combination
    landmarks: Rows
    source: RowSource
    Y: np.ndarray
    mean: np.ndarray
    weights: np.ndarray | None
    subspace: Subspace
    held: np.ndarray | None = None
    formed: set[int] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_right"}

    def block(self, rows: slice, room: np.ndarray) -> np.ndarray:
        """Return the kernel between a block of rows and the landmarks, as it is held, or formed in `room`."""
        if rows.start in self.formed and self.held is not None:
            return self.held[rows]
        block = room[: rows.stop - rows.start] if self.held is None else self.held[rows]
        self.combination.fill(self.source[rows], self.landmarks, block, right=self._right)
        if self.held is not None:
            self.formed.add(rows.start)
        return block

    def laid_out(self, n: int) -> LaidOut | None:
        """Return the landmarks for products with n vectors in which no kernel is kept; None where it is formed."""
        formed = self.held is not None or n > MOST_TOGETHER or not isinstance(self._right, LaidOut)
        return None if formed else self._right

    @cached_property
    def _right(self) -> Any:
        """What every block needs of the landmarks."""
        return self.combination.side(self.landmarks)

    def weighted(self, values: np.ndarray, rows: slice) -> np.ndarray:
        """Return values of some rows times their weights."""
        if self.weights is None:
            return values
        w = self.weights[rows]
        return values * (w if values.ndim == 1 else w[:, None])


class SubspacePasses:
    """Sums over the training rows that need one pass through them each.

    Parameters
    ----------
    on : KernelOnRows
        m training rows.
    subspace : Subspace
    Y : ndarray of shape (m, q)
        Targets.
    mean : ndarray of shape (q,), default zeros
        What is subtracted of them.
    memory : int, default 0
        Bytes that the kernel between rows and landmarks may take: where they suffice, and threads of this process do
        the passes, it is formed once.
    """

    def __init__(
        self, on: KernelOnRows, subspace: Subspace, Y: np.ndarray, mean: np.ndarray | None = None, memory: int = 0
    ) -> None:
        self._workers, kernel = on.workers, subspace.kernel
        mean = np.zeros(Y.shape[1]) if mean is None else mean
        one = RowPass(kernel.combination, kernel.X, on.source, Y, mean, on.sample_weight, subspace)
        m, M = on.n_rows, len(subspace.basis)
        if isinstance(on.workers, Threads) and 8 * m * M <= memory:
            one = replace(one, held=np.empty((m, M)))
        self._shared = on.workers.share(one)
        self._tasks = list(enumerate(on.workers.spans(on.n_rows, BLOCK)))

    def sums(self, products: bool) -> KernelSums:
        """Return the sums over all rows, with those of products of features or without."""
        sums: KernelSums = self._workers.total(_sums, self._shared, products, self._tasks)
        return sums

    def normal(self, beta: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return ``G' D (G beta - 1 means')``, shape (M, c), for beta of shape (M, c) and means of shape (c,)."""
        return np.asarray(self._workers.total(_normal, self._shared, (beta, means), self._tasks))

    def features(self) -> np.ndarray:
        """Return the features of all rows, not centered, shape (m, r)."""
        pieces: Pieces = self._workers.total(_features, self._shared, None, self._tasks)
        return pieces.joined()

    def scores(self, mean: np.ndarray, scale: np.ndarray, ridge: float) -> np.ndarray:
        """Return ridge leverage scores of all rows, shape (m,); see `leverage_landmarks`."""
        pieces: Pieces = self._workers.total(_scores, self._shared, (mean, scale, ridge), self._tasks)
        return pieces.joined()


def mean_feature(subspace: Subspace, sums: KernelSums) -> np.ndarray:
    """Return the mean feature over all rows, which is subtracted, shape (r,); zero without centering."""
    if not subspace.centering.subtracts:
        return np.zeros(subspace.basis.shape[1])
    return np.asarray(sums.kernel @ subspace.basis / sums.weight - subspace.offset)


def centered_products(subspace: Subspace, sums: KernelSums) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean feature, shape (r,), and the products of the features less it over all rows, shape (r, r)."""
    assert sums.products is not None
    mean = mean_feature(subspace, sums)
    return mean, sums.products - sums.weight * np.outer(mean, mean)


Task = tuple[int, tuple[int, int]]


def _blocks(span: tuple[int, int], size: int) -> list[slice]:
    return [slice(start, min(start + size, span[1])) for start in range(span[0], span[1], size)]


def _sums(of: RowPass, products: bool, task: Task) -> KernelSums:
    M, r = of.subspace.basis.shape
    q, G, Phi = of.Y.shape[1], np.empty((BLOCK, M)), np.empty((PRODUCT_ROWS if products else 0, r))
    laid_out = None if products else of.laid_out(1 + q)
    part, held, turned = np.empty((r, r) if products else (0, 0)), 0, np.zeros((M, 1 + q))
    sums = KernelSums(0.0, 0.0, turned[:, 0], turned[:, 1:], np.zeros((r, r)) if products else None)
    for rows in _blocks(task[1], BLOCK):
        A, w = of.source[rows], of.weighted(np.ones(rows.stop - rows.start), rows)
        sums.weight += float(w.sum())
        sums.own += float(w @ of.combination.diagonal(A))
        given = np.column_stack([w, of.weighted(of.Y[rows] - of.mean, rows)])
        if laid_out is not None:
            laid_out.products(A, None, given, turned)
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


def _normal(of: RowPass, argument: tuple[np.ndarray, np.ndarray], task: Task) -> np.ndarray:
    beta, means = argument
    G, total, laid_out = np.empty((BLOCK, len(beta))), np.zeros_like(beta), of.laid_out(beta.shape[1])
    for rows in _blocks(task[1], BLOCK):
        if laid_out is not None:
            w = of.weighted(np.ones(rows.stop - rows.start), rows)
            laid_out.products(of.source[rows], beta, np.outer(w, -means), total, w)
        else:
            block = of.block(rows, G)
            total += block.T @ of.weighted(block @ beta - means, rows)
    return total


def _features(of: RowPass, argument: None, task: Task) -> Pieces:
    run, span = task
    Phi = np.empty((span[1] - span[0], of.subspace.basis.shape[1]))
    for rows in _blocks(span, BLOCK):
        G = of.combination.matrix(of.source[rows], of.landmarks)
        np.matmul(G, of.subspace.basis, out=Phi[rows.start - span[0] : rows.stop - span[0]])
    Phi -= of.subspace.offset
    return Pieces({run: Phi})


def _scores(of: RowPass, argument: tuple[np.ndarray, np.ndarray, float], task: Task) -> Pieces:
    (mean, scale, ridge), (run, span) = argument, task
    scores = []
    for rows in _blocks(span, BLOCK):
        A = of.source[rows]
        G = of.combination.matrix(A, of.landmarks)
        Phi = G @ of.subspace.basis - of.subspace.offset
        # The kernel of a row with itself, centered on the landmarks, and what of it the subspace leaves out.
        means = of.subspace.centering.mean(G, axis=1)
        own = of.combination.diagonal(A) - 2 * means + of.subspace.kernel.row_means.mean()
        left = np.maximum(own - np.einsum("ij,ij->i", Phi, Phi), 0.0)
        scores.append((((Phi - mean) @ scale) ** 2).sum(axis=1) + left / ridge)
    return Pieces({run: np.concatenate(scores)})
