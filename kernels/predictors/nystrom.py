"""Predictors on a few landmarks out of many training rows, which are streamed through: the scheme of FALKON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from ..centering import subtract_means
from ..engine.combination import Combination, RightSide
from ..engine.workers import BlockResults, RowSource, Threads
from ..families.base import Rows
from ..learned_kernel import LearnedKernel
from ..parameters import require_one_of
from ..solvers.conjugate_gradients import solve_shifted
from ..solvers.factor import eigenvectors
from ..targets import Target, Task
from .base import Predictor, RegularizationPath, TrainingSet, held_out_scores
from .krr_cg import convergence_note

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


Loss = Literal["squared", "hinge", "logistic"]

LOSSES: tuple[Loss, ...] = ("squared", "hinge", "logistic")

TOLERANCE = 1e-6
"""Relative residual of the normal equations; predictions then agree to about as many digits as errors are read."""

FINE_TOLERANCE = 1e-9
"""The same of predictors whose scores are shown."""

MOST_ITERATIONS = 400
"""Of conjugate gradients; well-conditioned problems take ten to sixty."""

REFINING_ROWS = 10
"""Rows a landmark whose products make the preconditioner, where that costs less than the steps it saves."""

SAVED_ITERATIONS = 30
"""Steps that these products save, or more."""

ABSENT = -1e9
"""Score of a class that no training row has, in one-vs-rest classification."""

LINEAR_ITERATIONS = 2000
"""Most iterations of scikit-learn's linear models, whose default of 100 ends early on features of many scales."""


@dataclass(frozen=True, eq=False, repr=False)
class Nystrom(Predictor):
    r"""Kernel ridge regression, or a linear classifier, on landmarks: a few of the training rows.

    .. math:: f = \bar Y + (k_Z(x) - \bar k_Z)^\top \beta, \qquad
              \beta_\Lambda = \arg\min_\beta \sum_i w_i \lVert y_i - f(x_i) \rVert^2
              + \tfrac u\Lambda \, \beta^\top K_{ZZ} \beta

    where k_Z(x) is the learned kernel between x and the landmarks, :math:`\bar k_Z` its mean over all training rows, a
    streamed sum, and u the mean diagonal of the kernel, or one if it was learned for a regularization. With all rows as
    landmarks this is kernel ridge regression on the centered kernel. Of a kernel that is not centered both means are
    zero: there is no intercept, and scikit-learn's linear models are fitted without one.

    Parameters
    ----------
    landmarks : int or None, default None
        Their number M; more than there are rows means all rows. None for as many as help and fit the memory, up to
        twice as many of one regularization as of a path of them.
    memory : int
        Bytes that the fit may take next to the data set.
    loss : {"squared", "hinge", "logistic"}, default "squared"
        Of a classification: ridge regression on one column per class, or scikit-learn's `LinearSVC` (squared hinge, one
        class against the rest) or `LogisticRegression` on the landmarks' features, all of which are then held.
    tolerance : float or None, default None
        Largest relative residual of the normal equations in an orthonormal basis of the subspace; None for 1e-6 where
        predictors are compared, and 1e-9 where their scores are shown.
    seed : int or None, default None
        Of the drawing; None for the caller's, or 0.

    Notes
    -----
    O(m M (d + p)) time for a pass through the m training rows, one for sums, then one a step of conjugate gradients for
    all regularizations and outputs. O(M^3) for the eigenvectors that are the preconditioner, and as much again to make
    it from ten rows a landmark, where that saves more steps than it costs. Memory O(M^2) and blocks of rows, and m M
    for the losses of scikit-learn. Scores of rows that are held out take five more fits, or one for more than 10,000
    rows.

    References
    ----------
    Rudi, Carratino, Rosasco (2017), FALKON: An Optimal Large Scale Kernel Method, NIPS 30, sections 3 and 4: the
    preconditioner from the landmarks alone; here in their eigenvectors, where it is diagonal and one serves the whole
    grid. Williams, Seeger (2001), NIPS 13, for the features.
    """

    name = "nystrom"
    summary = "kernel ridge regression, or a linear classifier, on landmarks"
    by_rows = True
    on_landmarks = True

    landmarks: int | None = None
    memory: int = MEMORY
    loss: Loss = "squared"
    tolerance: float | None = None
    seed: int | None = None

    def check(self, task: Task) -> None:
        """Raise ValueError for an option that is out of its range, or a loss that does not serve the task."""
        super().check(task)
        require_one_of("loss", self.loss, LOSSES)
        if self.loss != "squared" and task != "classification":
            raise ValueError(f"loss {self.loss} serves classification, and this is a {task}; use loss squared.")

    def fit(
        self, training: TrainingSet, target: Target, grid: Sequence[float], *, fine: bool = False
    ) -> RegularizationPath:
        """Fit on rows.

        Raises
        ------
        ValueError
            An option is out of its range, the kernel is a power, or the loss does not serve the task.

        Warns
        -----
        ConvergenceWarning
            The tolerance was not reached; the residual that was is named.
        """
        self.check(target.task)
        tolerance = (FINE_TOLERANCE if fine else TOLERANCE) if self.tolerance is None else self.tolerance
        path = self._fit(training, target, grid, tolerance)
        if not fine or len(grid) > 1:
            return path

        def scores(held_out: np.ndarray, others: np.ndarray) -> np.ndarray:
            quiet = replace(training.subset(others), progress=None)
            part = self._fit(quiet, target.take(others), grid, tolerance)
            assert part.kernel is not None
            kernel = replace(part.kernel, origin=np.zeros_like(part.kernel.origin))
            return replace(part, kernel=kernel).scores(training.take(held_out)[0])[0]

        return replace(path, held_out=partial(held_out_scores, training, target, scores))

    def _fit(
        self, training: TrainingSet, target: Target, grid: Sequence[float], tolerance: float
    ) -> RegularizationPath:
        kernel, Y, memory, seed = training.kernel, target.Y, int(self.memory), self.seed or 0
        if not kernel.is_weighted_sum:
            raise ValueError(
                f"predictor nystrom serves sums of base kernels, got a kernel of degree {kernel.degree} and offset "
                f"{kernel.offset:g}; use predictor krr."
            )
        (m, q), rng, M = Y.shape, np.random.default_rng(seed), self.landmarks
        if M is None:
            held = self.loss == "squared" and len(grid) == 1
            M = landmarks_for(m, training.n_features, q * len(grid), memory, self.loss != "squared", held_kernel=held)
        drawn = np.sort(rng.choice(m, min(M, m), replace=False))
        subspace = Subspace.of(kernel, *training.take(drawn), m)
        mean_target = kernel.centering.target_mean(Y, training.sample_weight)
        if self.loss == "squared" and _refining_pays(training, subspace, q * len(grid)):
            subspace = refined(training, subspace, REFINING_ROWS * len(drawn), rng)
        left = memory - 8 * SQUARES * len(drawn) ** 2
        over_rows = passes_over(training, subspace, Y, mean_target, left if self.loss == "squared" else 0)
        sums: KernelSums = over_rows(kernel_sums, kernel.indefinite)
        mean, solutions = mean_feature(subspace, sums), None
        unit, rank = _unit(kernel, subspace, sums, mean), subspace.basis.shape[1]
        notes: tuple[str, ...] = (f"{len(drawn):,} landmarks of {m:,} training rows",)
        if len(drawn) < m:
            notes = (f"{notes[0]}, drawn uniformly",)
        if rank < len(drawn) - 1:
            notes = (f"{notes[0]}, of which {rank} are independent directions",)
        if self.loss == "squared":
            means = mean + subspace.offset
            solutions = solve_shifted(
                lambda V: np.asarray(subspace.basis.T @ over_rows(normal_products, (subspace.basis @ V, means @ V))),
                np.tile(subspace.basis.T @ sums.targets, len(grid)),
                np.repeat(unit / np.asarray(grid), q),
                lambda R, shifts: R / (subspace.theta[:, None] + shifts),
                tolerance=tolerance,
                most=MOST_ITERATIONS,
                progress=training.progress,
            )
            weights = solutions.solutions.reshape(-1, len(grid), q).transpose(1, 0, 2)
            intercepts = np.broadcast_to(mean_target, (len(grid), q))
            notes = (*notes, convergence_note(solutions, np.repeat(grid, q)))
        else:
            features = over_rows(row_features, None).joined() - mean
            weights, intercepts = _linear_models(features, training, target, grid, self.loss, unit, seed)
        dual = np.ascontiguousarray(subspace.basis @ weights)
        intercepts = intercepts - (mean @ weights)
        return RegularizationPath(target, dual, intercepts, subspace.kernel, notes=notes, solutions=solutions)


def _refining_pays(training: TrainingSet, subspace: Subspace, n_columns: int) -> bool:
    """Return whether a preconditioner from more rows costs less than the steps it saves, in flops of matrix products.

    An exponential counts as forty, a base kernel in the first-level cache as ten.
    """
    (M, r), d = subspace.basis.shape, training.n_features
    value = 40 + 2 * d + 10 * subspace.kernel.family.n_kernels
    refining = min(training.n_rows, REFINING_ROWS * M) * (value + 3 * r) * M + 15 * r**3
    return refining < SAVED_ITERATIONS * training.n_rows * M * (value + 4 * n_columns)


def _unit(kernel: LearnedKernel, subspace: Subspace, sums: KernelSums, mean: np.ndarray) -> float:
    """Return the mean diagonal of the centered kernel over the training rows; one for a kernel of its own scale.

    Of a kernel with negative weights, whose diagonal is not that of its positive part, the mean square of the features.
    """
    if kernel.C is not None:
        return 1.0
    if kernel.indefinite:
        return float(np.trace(centered_products(subspace, sums)[1])) / sums.weight
    means = float(kernel.centering.mean(sums.kernel))
    around_landmarks = (sums.own - 2 * means) / sums.weight + subspace.kernel.row_means.mean()
    return float(around_landmarks - mean @ mean)


def _linear_models(
    Phi: np.ndarray, training: TrainingSet, target: Target, grid: Sequence[float], loss: Loss, unit: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights of the features, shape (L, r, q), and intercepts, shape (L, q), by scikit-learn."""
    from sklearn.linear_model import LogisticRegression  # here, because it brings pandas along
    from sklearn.svm import LinearSVC

    Phi /= np.sqrt(unit)
    n_classes = len(target.classes)
    weights = np.zeros((len(grid), Phi.shape[1], 1 if n_classes == 2 else n_classes))
    intercepts = np.full((len(grid), weights.shape[2]), ABSENT)
    intercept = training.kernel.centering.intercept
    for step, C in enumerate(grid):
        if loss == "hinge":
            scaling: dict[str, Any] = {"intercept_scaling": 10.0} if intercept else {"fit_intercept": False}
            model = LinearSVC(C=C, max_iter=LINEAR_ITERATIONS, random_state=seed, **scaling)
        else:
            model = LogisticRegression(C=C, max_iter=LINEAR_ITERATIONS, fit_intercept=intercept)
        model.fit(Phi, target.values, sample_weight=training.sample_weight)
        columns = np.asarray(model.classes_)
        if n_classes == 2:
            columns = np.zeros(1, dtype=np.intp)
        elif len(columns) == 2:
            intercepts[step, columns[0]], columns = 0.0, columns[1:]
        weights[step][:, columns], intercepts[step, columns] = model.coef_.T / np.sqrt(unit), model.intercept_
    return weights, intercepts
