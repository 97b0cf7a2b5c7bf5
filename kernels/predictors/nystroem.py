"""Predictors on landmarks (FALKON), a subset of the training rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, get_args

import numpy as np

from ..centering import subtract_means
from ..engine.combination import Combination, RightSide
from ..engine.workers import BlockResults, RowSource, Threads, at_most_threads
from ..families.base import Rows
from ..learned_kernel import LearnedKernel
from ..solvers.conjugate_gradients import Progress, ShiftedSolutions, solve_shifted
from ..solvers.factor import eigenvectors
from ..targets import Target, Task
from ..validation import require_one_of
from .base import Predictor, RegularizationPath, TrainingSet, held_out_scores
from .krr_cg import convergence_note

MEMORY = 3 << 30
"""Default memory limit of a fit, in bytes."""

SQUARES = 8
"""Number of M x M matrices in memory at once, for M landmarks."""

WORKER_SQUARES = 1.25

BLOCK = 512
"""Rows per block of the kernel with the landmarks."""

PRODUCT_ROWS = 2048
"""Most rows per product of features."""

REFINING_ROWS = 10
"""Rows per landmark that refine the preconditioner."""


def landmarks_for(
    n_rows: int,
    n_features: int,
    n_columns: int,
    memory: int = MEMORY,
    store_features: bool = False,
    store_kernel: bool = False,
) -> int:
    r"""Return the number of landmarks that suffice for accuracy and fit in memory.

    .. math:: M = \lceil \sqrt m \, \ln m \rceil

    At least 10 and at most m (Rudi, Camoriano, Rosasco, 2015, Theorem 1); up to 2 M
    with `store_kernel`. `n_columns` is outputs times values of C, `memory` in bytes.
    """
    n_threads = 2
    enough = int(np.ceil(np.sqrt(n_rows) * np.log(max(n_rows, 2))))
    square_bytes = 8.0 * SQUARES
    bytes_per_landmark = 8.0 * (n_threads * BLOCK + 8 * n_columns + n_features)
    if store_features:
        bytes_per_landmark += 32 * n_rows  # with the copy of liblinear
    M = min(enough, _largest_root(square_bytes, bytes_per_landmark, memory))
    if store_kernel:
        M = max(
            M,
            min(
                2 * enough,
                _largest_root(square_bytes, bytes_per_landmark + 8.0 * n_rows, memory),
            ),
        )
    return min(n_rows, max(10, M))


def _largest_root(a: float, b: float, memory: float) -> int:
    """Return the largest integer M with ``a M^2 + b M <= memory``."""
    return int((np.sqrt(b * b + 4 * a * memory) - b) / (2 * a))


@dataclass(frozen=True)
class Subspace:
    r"""Nystroem features: coordinates of rows in the span of M landmarks.

    .. math:: \varphi(x) = B^\top k_Z(x), \qquad B^\top K_{ZZ} B = I

    `kernel` is centered on the landmarks; `basis` is B, shape (M, r). `theta` estimates
    the eigenvalues of :math:`\Phi^\top \Phi` over all rows.
    """

    kernel: LearnedKernel
    basis: np.ndarray
    theta: np.ndarray

    @classmethod
    def of(
        cls, kernel: LearnedKernel, Z: Rows, rows: np.ndarray, n_rows: int
    ) -> Subspace:
        """Return the span of landmarks Z, drawn uniformly from `n_rows` rows.

        Z is minus the origin of the kernel. Negative eigenvalues are dropped.
        """
        K = kernel.combination.matrix(Z, Z, symmetric=True)
        row_means = kernel.centering.mean(K, axis=1)
        subtract_means(K, row_means, row_means, float(row_means.mean()), out=K)
        eigenvalues, U = eigenvectors(K)
        rounding = (
            10 * np.finfo(np.float64).eps * len(eigenvalues) * np.abs(eigenvalues).max()
        )
        is_positive = eigenvalues > rounding
        if not is_positive.any():
            raise ValueError(
                f"the learned kernel does not distinguish the {len(eigenvalues)} landmarks; take more, or other "
                "bandwidths."
            )
        eigenvalues = eigenvalues[is_positive]
        U = kernel.centering.less_mean(U[:, is_positive])
        landmarks = replace(
            kernel, X=Z, rows=rows, row_means=row_means, sample_weight=None
        )
        return cls(
            landmarks, U / np.sqrt(eigenvalues), eigenvalues * (n_rows / len(rows))
        )

    @property
    def offset(self) -> np.ndarray:
        """Offset to subtract from features of the uncentered kernel, (r,)."""
        return np.asarray(self.kernel.row_means @ self.basis)


def refined(
    training: TrainingSet,
    subspace: Subspace,
    n_rows: int,
    rng: np.random.Generator,
    memory: int,
) -> Subspace:
    """Return the subspace in a basis of eigenvectors, estimated on more rows."""
    m = training.n_rows
    drawn = training
    if n_rows < m:
        drawn = training.subset(np.sort(rng.choice(m, n_rows, replace=False)))
    run_pass = passes_over(drawn, subspace, np.zeros((drawn.n_rows, 0)))
    sums = _sums_with_products(run_pass, subspace, memory)
    _, products = centered_products(subspace, sums)
    products *= m / drawn.n_rows
    theta, Q = eigenvectors(products)
    return replace(subspace, basis=subspace.basis @ Q, theta=np.maximum(theta, 0.0))


@dataclass
class KernelSums:
    """Weighted sums over rows of kernel values, targets and feature products.

    ``sum w``, ``sum w K(x, x)``, ``G' w``, ``G' D Y`` and, if requested,
    ``Phi' D Phi``, where G is the uncentered kernel between rows and landmarks, and D
    the diagonal of the weights.
    """

    weight: float
    diagonal: float
    kernel: np.ndarray
    targets: np.ndarray
    products: np.ndarray | None

    def __add__(self, other: KernelSums) -> KernelSums:
        self.weight += other.weight
        self.diagonal += other.diagonal
        self.kernel += other.kernel
        self.targets += other.targets
        if self.products is not None:
            self.products += other.products
        return self


@dataclass(frozen=True)
class RowPass:
    """Landmarks, kernel and targets that workers need for sums over the training rows.

    `stored_starts` are the first rows of filled blocks of `stored`, the kernel between
    rows and landmarks, shape (m, M).
    """

    combination: Combination
    landmarks: Rows
    source: RowSource
    Y: np.ndarray
    mean: np.ndarray
    weights: np.ndarray
    subspace: Subspace
    stored: np.ndarray | None = None
    stored_starts: set[int] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "right"}

    def block(self, rows: slice, buffer: np.ndarray) -> np.ndarray:
        """Return the kernel between a block of rows and all landmarks."""
        if self.stored is None:
            block = buffer[: rows.stop - rows.start]
        else:
            block = self.stored[rows]
            if rows.start in self.stored_starts:
                return block
        self.combination.fill(
            self.source[rows], self.landmarks, block, right=self.right
        )
        if self.stored is not None:
            self.stored_starts.add(rows.start)
        return block

    @cached_property
    def right(self) -> RightSide:
        """Landmarks, prepared as the kernel's second argument."""
        return self.combination.side(self.landmarks)


RowTask = tuple[int, tuple[int, int]]
"""Number, start and stop of a range of rows."""

Step = Callable[[RowPass, Any, RowTask], Any]
"""Computation on a range of rows, such as `kernel_sums`."""


def passes_over(
    training: TrainingSet,
    subspace: Subspace,
    Y: np.ndarray,
    mean: np.ndarray | None = None,
    memory: int = 0,
) -> Callable[[Step, Any], Any]:
    """Return ``run_pass(step, argument)``, which sums a step over all training rows.

    Threads store the kernel if it takes at most `memory` bytes.
    """
    workers = training.workers
    kernel = subspace.kernel
    m = training.n_rows
    M = len(subspace.basis)
    if mean is None:
        mean = np.zeros(Y.shape[1])
    weights = training.sample_weight
    if weights is None:
        weights = np.ones(m)
    stored = None
    if isinstance(workers, Threads) and 8 * m * M <= memory:
        stored = np.empty((m, M))
    row_pass = RowPass(
        kernel.combination,
        kernel.X,
        training.source,
        Y,
        mean,
        weights,
        subspace,
        stored,
    )
    shared = workers.broadcast(row_pass)
    tasks = list(enumerate(workers.spans(m, BLOCK)))
    return lambda step, argument: workers.total(step, shared, argument, tasks)


def _sums_with_products(
    run_pass: Callable[[Step, Any], Any], subspace: Subspace, memory: int
) -> KernelSums:
    M, r = subspace.basis.shape
    n_shared = M * r + 2 * r**2
    n_per_thread = 2 * r**2 + PRODUCT_ROWS * r + BLOCK * M
    n_threads = (memory // 8 - n_shared) // n_per_thread
    with at_most_threads(max(1, n_threads)):
        sums: KernelSums = run_pass(kernel_sums, True)
    return sums


def mean_feature(subspace: Subspace, sums: KernelSums) -> np.ndarray:
    """Return the mean of the rows' features, (r,); zero without centering."""
    if not subspace.kernel.centering.subtracts:
        return np.zeros(subspace.basis.shape[1])
    return np.asarray(sums.kernel @ subspace.basis / sums.weight - subspace.offset)


def centered_products(
    subspace: Subspace, sums: KernelSums
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features' mean, (r,), and the products Z'Z of centered features, (r, r)."""
    assert sums.products is not None
    mean = mean_feature(subspace, sums)
    return mean, sums.products - sums.weight * np.outer(mean, mean)


def _blocks(span: tuple[int, int]) -> list[slice]:
    start, stop = span
    return [
        slice(first, min(first + BLOCK, stop)) for first in range(start, stop, BLOCK)
    ]


def kernel_sums(row_pass: RowPass, with_products: bool, task: RowTask) -> KernelSums:
    """Return `KernelSums` over a range of rows."""
    M = len(row_pass.subspace.basis)
    q = row_pass.Y.shape[1]
    sums_of_kernel = np.zeros((M, 1 + q))
    products = _FeatureProducts(row_pass.subspace) if with_products else None
    buffer = np.empty((BLOCK, M))
    weight = 0.0
    diagonal = 0.0
    for rows in _blocks(task[1]):
        A = row_pass.source[rows]
        w = row_pass.weights[rows]
        weight += float(w.sum())
        diagonal += float(w @ row_pass.combination.diagonal(A))
        columns = np.column_stack([w, (row_pass.Y[rows] - row_pass.mean) * w[:, None]])
        if row_pass.stored is None and products is None:
            row_pass.right.products(A, None, columns, sums_of_kernel)
            continue
        block = row_pass.block(rows, buffer)
        sums_of_kernel += block.T @ columns
        if products is not None:
            products.add(block, w)
    total_products = None if products is None else products.total()
    return KernelSums(
        weight, diagonal, sums_of_kernel[:, 0], sums_of_kernel[:, 1:], total_products
    )


class _FeatureProducts:
    """Sum of ``Phi' D Phi`` over blocks of rows."""

    def __init__(self, subspace: Subspace) -> None:
        r = subspace.basis.shape[1]
        self.subspace = subspace
        self.features = np.empty((PRODUCT_ROWS, r))
        self.n_buffered = 0
        self.part = np.empty((r, r))
        self.sum = np.zeros((r, r))

    def add(self, block: np.ndarray, w: np.ndarray) -> None:
        if self.n_buffered + BLOCK > PRODUCT_ROWS:
            self._multiply()
        features = self.features[self.n_buffered : self.n_buffered + len(block)]
        np.matmul(block, self.subspace.basis, out=features)
        features -= self.subspace.offset
        features *= np.sqrt(w)[:, None]
        self.n_buffered += len(block)

    def total(self) -> np.ndarray:
        if self.n_buffered:
            self._multiply()
        return self.sum

    def _multiply(self) -> None:
        features = self.features[: self.n_buffered]
        np.matmul(features.T, features, out=self.part)
        self.sum += self.part
        self.n_buffered = 0


def normal_products(
    row_pass: RowPass, argument: tuple[np.ndarray, np.ndarray], task: RowTask
) -> np.ndarray:
    """Return ``G' D (G beta - 1 means')`` over a range of rows; see `KernelSums`."""
    beta, means = argument
    total = np.zeros_like(beta)
    buffer = np.empty((BLOCK, len(beta)))
    for rows in _blocks(task[1]):
        w = row_pass.weights[rows]
        if row_pass.stored is None:
            row_pass.right.products(
                row_pass.source[rows], beta, np.outer(w, -means), total, w
            )
        else:
            block = row_pass.block(rows, buffer)
            total += block.T @ ((block @ beta - means) * w[:, None])
    return total


def row_features(row_pass: RowPass, argument: None, task: RowTask) -> BlockResults:
    """Return uncentered features of a range of rows, (n, r)."""
    run, (start, stop) = task
    basis = row_pass.subspace.basis
    Phi = np.empty((stop - start, basis.shape[1]))
    for rows in _blocks((start, stop)):
        G = row_pass.combination.matrix(row_pass.source[rows], row_pass.landmarks)
        np.matmul(G, basis, out=Phi[rows.start - start : rows.stop - start])
    Phi -= row_pass.subspace.offset
    return BlockResults({run: Phi})


Loss = Literal["squared", "hinge", "logistic"]


@dataclass(frozen=True, eq=False, repr=False)
class Nystroem(Predictor):
    r"""Ridge regression or linear classifier on landmarks, a subset of training rows.

    .. math:: f = \bar Y + (k_Z(x) - \bar k_Z)^\top \beta, \qquad
              \beta_C = \arg\min_\beta \sum_i w_i \lVert y_i - f(x_i) \rVert^2
              + \tfrac u C \, \beta^\top K_{ZZ} \beta

    where k_Z(x) is the learned kernel between x and the landmarks, :math:`\bar k_Z` is
    its mean over all training rows, and u is the mean diagonal of the kernel, or one if
    the kernel was learned with a C. With all rows as landmarks, this is kernel ridge
    regression. Without centering, both means and the intercept are zero.

    Parameters
    ----------
    n_components : int or None, default None
        Number of landmarks. None: as many as suffice for accuracy and fit in `memory`.
    memory : int
        Memory limit of a fit, without the data set, in bytes.
    loss : {"squared", "hinge", "logistic"}, default "squared"
        Loss for classification: "squared" (ridge regression on class indicators),
        "hinge" (scikit-learn's `LinearSVC` with squared hinge loss) or "logistic"
        (`LogisticRegression`).
    tol : float or None, default None
        Largest relative residual of the normal equations; None for 1e-9, or 1e-6 in
        comparisons.
    random_state : int or None, default None
        Random seed for the landmarks; None uses the estimator's `random_state`.

    Notes
    -----
    A pass over m training rows takes O(m M (d + p)) time. There is one pass for sums,
    and one per step of conjugate gradients, for all values of C and all outputs at
    once. The preconditioner takes O(M^3) time. Memory is O(M^2), or O(m M) for "hinge"
    and "logistic". Held-out scores take five more fits, or one for more than 10,000
    rows.

    References
    ----------
    Rudi, Carratino, Rosasco (2017), FALKON: An Optimal Large Scale Kernel Method, NIPS
    30, sections 3 and 4, for the preconditioner, here in eigenvectors for all values of
    C. Williams, Seeger (2001), NIPS 13, for the features.
    """

    name = "nystroem"
    summary = "kernel ridge regression, or a linear classifier, on landmarks"
    by_rows = True
    on_landmarks = True

    n_components: int | None = None
    memory: int = MEMORY
    loss: Loss = "squared"
    tol: float | None = None
    random_state: int | None = None

    def check(self, task: Task) -> None:
        super().check(task)
        require_one_of("loss", self.loss, get_args(Loss))
        if self.loss != "squared" and task != "classification":
            raise ValueError(
                f"loss {self.loss} serves classification, and this is a {task}; use loss squared."
            )

    def fit(
        self,
        training: TrainingSet,
        target: Target,
        grid: Sequence[float],
        *,
        fine: bool = False,
    ) -> RegularizationPath:
        """Fit predictors on features of the landmarks to all rows, one per value of C.

        ValueError for a polynomial combination. Warns if the tolerance is not reached.
        """
        self.check(target.task)
        tolerance = self.tol
        if tolerance is None:
            tolerance = 1e-9 if fine else 1e-6
        path = self._fit(training, target, grid, tolerance)
        if not fine or len(grid) > 1:
            return path

        def scores(held_out: np.ndarray, others: np.ndarray) -> np.ndarray:
            path_of_others = self._fit(
                training.subset(others), target.take(others), grid, tolerance
            )
            assert path_of_others.kernel is not None
            kernel = path_of_others.kernel
            # `take` subtracts the origin.
            kernel = replace(kernel, origin=np.zeros_like(kernel.origin))
            return replace(path_of_others, kernel=kernel).scores(
                training.take(held_out)[0]
            )[0]

        return replace(
            path, held_out=partial(held_out_scores, training, target, scores)
        )

    def _fit(
        self,
        training: TrainingSet,
        target: Target,
        grid: Sequence[float],
        tolerance: float,
    ) -> RegularizationPath:
        kernel = training.kernel
        if not kernel.is_weighted_sum:
            raise ValueError(
                f"predictor nystroem serves sums of base kernels, got a kernel of degree {kernel.degree} and offset "
                f"{kernel.offset:g}; use predictor krr."
            )
        memory = int(self.memory)
        seed = self.random_state or 0
        rng = np.random.default_rng(seed)
        is_ridge = self.loss == "squared"
        m, q = target.Y.shape
        M = min(self._n_landmarks(training, q, len(grid)), m)
        drawn = self._drawn_landmarks(training, M, rng)
        subspace = Subspace.of(kernel, *training.take(drawn), m)
        if is_ridge and _refining_pays(training, subspace, q * len(grid)):
            subspace = refined(training, subspace, REFINING_ROWS * M, rng, memory)
        memory_for_kernel = memory - 8 * SQUARES * M**2 if is_ridge else 0
        mean_target = kernel.centering.target_mean(target.Y, training.sample_weight)
        run_pass = passes_over(
            training, subspace, target.Y, mean_target, memory_for_kernel
        )
        if kernel.indefinite:
            if 8 * m * M <= memory_for_kernel:
                memory -= 8 * m * M
            sums = _sums_with_products(run_pass, subspace, memory)
        else:
            sums = run_pass(kernel_sums, False)
        mean = mean_feature(subspace, sums)
        mean_diagonal = _mean_diagonal(kernel, subspace, sums, mean)
        notes: tuple[str, ...] = (_landmarks_note(subspace, m),)
        solutions = None
        if is_ridge:
            feature_targets = np.tile(subspace.basis.T @ sums.targets, len(grid))
            ridges = np.repeat(mean_diagonal / np.asarray(grid), q)
            solutions = _solve_ridges(
                run_pass,
                subspace,
                mean,
                feature_targets,
                ridges,
                tolerance,
                training.progress,
            )
            weights = solutions.solutions.reshape(-1, len(grid), q).transpose(1, 0, 2)
            intercepts = np.broadcast_to(mean_target, (len(grid), q))
            notes = (*notes, convergence_note(solutions, np.repeat(grid, q)))
        else:
            features = run_pass(row_features, None).joined() - mean
            features /= np.sqrt(mean_diagonal)
            weights, intercepts = _fit_linear_models(
                features, training, target, grid, self.loss, seed
            )
            weights = weights / np.sqrt(mean_diagonal)
        dual = np.ascontiguousarray(subspace.basis @ weights)
        intercepts = intercepts - (mean @ weights)
        return RegularizationPath(
            target, dual, intercepts, subspace.kernel, notes=notes, solutions=solutions
        )

    def _drawn_landmarks(
        self, training: TrainingSet, n_landmarks: int, rng: np.random.Generator
    ) -> np.ndarray:
        return np.sort(rng.choice(training.n_rows, n_landmarks, replace=False))

    def _n_landmarks(self, training: TrainingSet, n_outputs: int, n_C: int) -> int:
        if self.n_components is not None:
            return self.n_components
        n_landmarks = landmarks_for(
            training.n_rows,
            training.n_features,
            n_outputs * n_C,
            int(self.memory),
            store_features=self.loss != "squared",
            store_kernel=self.loss == "squared" and n_C == 1,
        )
        n_squares = SQUARES if training.kernel.indefinite else WORKER_SQUARES
        memory = min(training.workers.memory, int(self.memory))
        return min(n_landmarks, max(10, _largest_root(8.0 * n_squares, 0.0, memory)))


def _refining_pays(training: TrainingSet, subspace: Subspace, n_columns: int) -> bool:
    n_saved_steps = 30
    M, r = subspace.basis.shape
    if training.workers.memory < 8 * SQUARES * M**2:
        return False
    m = training.n_rows
    kernel_value = 40 + 2 * training.n_features + 10 * subspace.kernel.family.n_kernels
    refining = min(m, REFINING_ROWS * M) * (kernel_value + 3 * r) * M + 15 * r**3
    return bool(refining < n_saved_steps * m * M * (kernel_value + 4 * n_columns))


def _mean_diagonal(
    kernel: LearnedKernel, subspace: Subspace, sums: KernelSums, mean: np.ndarray
) -> float:
    if kernel.C is not None:
        return 1.0
    if kernel.indefinite:
        _, products = centered_products(subspace, sums)
        return float(np.trace(products)) / sums.weight
    kernel_sum = float(kernel.centering.mean(sums.kernel))
    centered_on_landmarks = (
        sums.diagonal - 2 * kernel_sum
    ) / sums.weight + subspace.kernel.row_means.mean()
    return float(centered_on_landmarks - mean @ mean)


def _landmarks_note(subspace: Subspace, n_rows: int) -> str:
    n_landmarks, rank = subspace.basis.shape
    note = f"{n_landmarks:,} landmarks of {n_rows:,} training rows"
    if n_landmarks < n_rows:
        note += ", drawn uniformly"
    if rank < n_landmarks - 1:
        note += f", of which {rank} are independent directions"
    return note


def _solve_ridges(
    run_pass: Callable[[Step, Any], Any],
    subspace: Subspace,
    mean: np.ndarray,
    feature_targets: np.ndarray,
    ridges: np.ndarray,
    tolerance: float,
    progress: Progress | None,
) -> ShiftedSolutions:
    """Return weights of the features, one column per ridge."""
    basis = subspace.basis
    means = mean + subspace.offset

    def matvec(V: np.ndarray) -> np.ndarray:
        return np.asarray(basis.T @ run_pass(normal_products, (basis @ V, means @ V)))

    def precondition(R: np.ndarray, ridges: np.ndarray) -> np.ndarray:
        return R / (subspace.theta[:, None] + ridges)

    return solve_shifted(
        matvec,
        feature_targets,
        ridges,
        precondition,
        tolerance=tolerance,
        max_iter=400,
        progress=progress,
    )


def _fit_linear_models(
    Phi: np.ndarray,
    training: TrainingSet,
    target: Target,
    grid: Sequence[float],
    loss: Loss,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights of the features, (L, r, q), and intercepts, (L, q)."""
    n_classes = len(target.classes)
    n_scores = 1 if n_classes == 2 else n_classes
    weights = np.zeros((len(grid), Phi.shape[1], n_scores))
    # The score of a class without training rows.
    intercepts = np.full((len(grid), n_scores), -1e9)
    for position, C in enumerate(grid):
        model = _linear_model(loss, C, training.kernel.centering.intercept, seed)
        model.fit(Phi, target.values, sample_weight=training.sample_weight)
        columns = np.asarray(model.classes_)
        if n_classes == 2:
            columns = np.zeros(1, dtype=np.intp)
        elif len(columns) == 2:  # a single score, of the second class
            intercepts[position, columns[0]] = 0.0
            columns = columns[1:]
        weights[position][:, columns] = model.coef_.T
        intercepts[position, columns] = model.intercept_
    return weights, intercepts


def _linear_model(loss: Loss, C: float, fit_intercept: bool, seed: int) -> Any:
    # Imported here because it imports pandas.
    from sklearn.linear_model import (
        LogisticRegression,
    )
    from sklearn.svm import LinearSVC

    max_iter = 2000  # the default of 100 is too small
    if loss == "logistic":
        return LogisticRegression(C=C, max_iter=max_iter, fit_intercept=fit_intercept)
    scaling: dict[str, Any] = (
        {"intercept_scaling": 10.0} if fit_intercept else {"fit_intercept": False}
    )
    return LinearSVC(C=C, max_iter=max_iter, random_state=seed, **scaling)
