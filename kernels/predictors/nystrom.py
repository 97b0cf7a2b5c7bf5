"""Predictors on a few landmarks out of many training rows, which are streamed through: the scheme of FALKON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.parameters import require_one_of
from learnkernels.kernels.predictors.base import Predictor, RegularizationPath, TrainingSet, held_out_scores
from learnkernels.kernels.predictors.krr_cg import convergence_note
from learnkernels.kernels.predictors.landmarks import (
    MEMORY,
    SQUARES,
    KernelSums,
    Subspace,
    centered_products,
    kernel_sums,
    landmarks_for,
    mean_feature,
    normal_products,
    passes_over,
    refined,
    row_features,
)
from learnkernels.kernels.solvers.conjugate_gradients import solve_shifted
from learnkernels.kernels.targets import Target, Task

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
        if kernel.degree != 1:
            raise ValueError(
                f"predictor nystrom serves sums of base kernels, got a kernel of degree {kernel.degree}; use "
                "predictor krr."
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
