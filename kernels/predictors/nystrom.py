"""Predictors on a few landmarks out of many training rows, which are streamed through: the scheme of FALKON."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.predictors.base import LinearPath, RowsPredictor
from learnkernels.kernels.predictors.landmarks import (
    MEMORY,
    SAMPLINGS,
    SQUARES,
    Landmarks,
    Sampling,
    landmarks_for,
    leverage_landmarks,
    uniform_landmarks,
)
from learnkernels.kernels.predictors.rows import KernelOnRows
from learnkernels.kernels.predictors.subspace import (
    KernelSums,
    Subspace,
    SubspacePasses,
    centered_products,
    mean_feature,
    refined,
)
from learnkernels.kernels.solvers.conjugate_gradients import Progress, ShiftedSolutions, solve_shifted
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
"""Score of a class that no training row has, where one class is told from the rest."""

LINEAR_ITERATIONS = 2000
"""Most iterations of scikit-learn's linear models, whose default of 100 ends early on features of many scales."""


@dataclass(frozen=True, eq=False, repr=False)
class Nystrom(RowsPredictor):
    """Kernel ridge regression, or a linear classifier, on landmarks: a few of the training rows.

    Parameters
    ----------
    landmarks : int or None, default None
        Their number M; None for as many as the memory allows, and no more than help.
    memory : int
        Bytes that the fit may take beside the data set.
    sampling : {"uniform", "leverage"}, default "uniform"
        How landmarks are drawn: all rows alike, or by their ridge leverage scores.
    loss : {"squared", "hinge", "logistic"}, default "squared"
        Of a classification: ridge regression on one column a class, scikit-learn's `LinearSVC`, or its
        `LogisticRegression`.
    tolerance : float or None, default None
        Largest relative residual; None for 1e-6 where predictors are compared, and 1e-9 where their scores are shown.
    seed : int or None, default None
        Of the drawing; None for the caller's, or 0.

    Notes
    -----
    O(m M) time a pass over m training rows, or O(m M^2) in all, and O(M^2) memory; see `NystromPath`.
    """

    name = "nystrom"
    summary = "kernel ridge regression, or a linear classifier, on landmarks"
    on_landmarks = True

    landmarks: int | None = None
    memory: int = MEMORY
    sampling: Sampling = "uniform"
    loss: Loss = "squared"
    tolerance: float | None = None
    seed: int | None = None

    def check(self, task: Task) -> None:
        """Raise ValueError for an option that is out of its range, or a loss that does not serve the task."""
        super().check(task)
        _require_options(task, self.landmarks, self.sampling, self.loss, self.tolerance or TOLERANCE)

    def fit(self, on: KernelOnRows, target: Target, grid: Sequence[float], fine: bool = False) -> NystromPath:
        """Fit on rows."""
        default = FINE_TOLERANCE if fine else TOLERANCE
        tolerance = default if self.tolerance is None else self.tolerance
        seed = 0 if self.seed is None else self.seed
        given = {**self.get_params(), "memory": int(self.memory), "tolerance": tolerance, "seed": seed}
        return NystromPath(on, target, grid, **given)


class NystromPath(LinearPath):
    r"""Predictors in the span of M landmarks, one a regularisation.

    .. math:: f = \bar Y + (k_Z(x) - \bar k_Z)^\top \beta, \qquad
              \beta_\Lambda = \arg\min_\beta \sum_i w_i \lVert y_i - f(x_i) \rVert^2
              + \tfrac u\Lambda \, \beta^\top K_{ZZ} \beta

    where k_Z(x) is the learned kernel between x and the landmarks, :math:`\bar k_Z` its mean over all training rows, a
    streamed sum, and u the mean diagonal of the kernel, or one if it was learned for a regularisation. With all rows as
    landmarks this is kernel ridge regression on the centered kernel. Of a kernel that is not centered both means are
    zero: there is no intercept, and scikit-learn's linear models are fitted without one.

    Attributes
    ----------
    kernel : LearnedKernel
        Over the landmarks and centered on them: ``kernel.cross_gram(X) @ dual + intercept`` are the scores.
    dual : ndarray of shape (L, M, q)
        Coefficients, one set a regularisation.
    intercept : ndarray of shape (L, q)
    unit : float
        u.
    solutions : ShiftedSolutions or None
        How conjugate gradients ended, with the residuals; None for other losses than the squared one.
    notes : tuple of str
        What was done, for a log.
    """

    def __init__(
        self,
        on: KernelOnRows,
        target: Target,
        grid: Sequence[float],
        *,
        landmarks: int | None = None,
        memory: int = MEMORY,
        sampling: Sampling = "uniform",
        loss: Loss = "squared",
        seed: int = 0,
        tolerance: float = TOLERANCE,
    ) -> None:
        """Fit.

        Parameters
        ----------
        on : KernelOnRows
            A learned kernel, a sum of base kernels and no power, and m training rows.
        target : Target
            Of the training rows.
        grid : sequence of float
            Values of Lambda, ascending.
        landmarks : int, optional
            M; more than there are rows means all rows. By default `landmarks_for` the memory, up to twice as many of
            one regularisation as of a path of them.
        memory : int
            Bytes that the fit may take beside the data set.
        sampling : {"uniform", "leverage"}, default "uniform"
            How landmarks are drawn.
        loss : {"squared", "hinge", "logistic"}, default "squared"
            Of a classification: ridge regression on one column a class, or scikit-learn's `LinearSVC` (squared hinge,
            one class against the rest) or `LogisticRegression` on the landmarks' features, all of which are then held.
        seed : int, default 0
            Of the drawing.
        tolerance : float, default 1e-6
            Largest relative residual of the normal equations in an orthonormal basis of the subspace.

        Raises
        ------
        ValueError
            An option is out of its range, the kernel is a power, or the loss does not serve the task.

        Warns
        -----
        ConvergenceWarning
            The tolerance was not reached; the residual that was is named.

        Notes
        -----
        O(m M (d + p)) time for a pass through the rows, one for sums, then one a step of conjugate gradients for all
        regularisations and outputs. O(M^3) for the eigenvectors that are the preconditioner, and as much again to make
        it from ten rows a landmark, where that saves more steps than it costs. Memory O(M^2) and blocks of rows, and
        m M for the losses of scikit-learn.

        References
        ----------
        Rudi, Carratino, Rosasco (2017), FALKON: An Optimal Large Scale Kernel Method, NIPS 30, sections 3 and 4: the
        preconditioner from the landmarks alone; here in their eigenvectors, where it is diagonal and one serves
        the whole grid. Williams, Seeger (2001), NIPS 13, for the features.
        """
        if on.kernel.degree != 1:
            raise ValueError(
                f"predictor nystrom serves sums of base kernels, got a kernel of degree {on.kernel.degree}; use "
                "predictor krr."
            )
        _require_options(target.task, landmarks, sampling, loss, tolerance)
        self._target, rng = target.take([]), np.random.default_rng(seed)  # what it is like, for predictions
        Y, q = target.Y, target.Y.shape[1]
        M = landmarks if landmarks is not None else landmarks_for(
            on.n_rows, on.n_features, q * len(grid), memory, loss != "squared",
            held_kernel=loss == "squared" and len(grid) == 1,
        )  # fmt: skip
        drawn = _drawn(on, min(M, on.n_rows), sampling, rng)
        subspace = Subspace.of(on.kernel, *on.take(drawn.positions), drawn.counts)
        mean_target = on.kernel.centering.target_mean(Y, on.sample_weight)
        if loss == "squared" and _refining_pays(on, subspace, q * len(grid)):
            subspace = refined(on, subspace, REFINING_ROWS * len(drawn), rng)
        left = memory - 8 * SQUARES * len(drawn) ** 2
        passes = SubspacePasses(on, subspace, Y, mean_target, left if loss == "squared" else 0)
        sums = passes.sums(products=on.kernel.indefinite)
        self.kernel, self.solutions = subspace.kernel, None
        mean = mean_feature(subspace, sums)
        self.unit = _unit(on.kernel, subspace, sums, mean)
        if loss == "squared":
            self.solutions = _solve(passes, subspace, sums, mean, self.unit / np.asarray(grid), tolerance, on.progress)
            weights = self.solutions.solutions.reshape(-1, len(grid), q).transpose(1, 0, 2)
            intercepts = np.broadcast_to(mean_target, (len(grid), q))
        else:
            weights, intercepts = _linear_models(passes.features() - mean, on, target, grid, loss, self.unit, seed)
        self.dual = np.ascontiguousarray(subspace.basis @ weights)
        self.intercept = intercepts - (mean @ weights)
        ended = () if self.solutions is None else tell_of(self.solutions, grid, q)
        self.notes = (_describe(drawn, on, subspace, sampling), *ended)


def tell_of(solutions: ShiftedSolutions, grid: Sequence[float], n_outputs: int) -> tuple[str, ...]:
    """Return a sentence about how conjugate gradients ended, and warn where the tolerance was not reached."""
    worst = int(solutions.residuals.argmax())
    reached = float(solutions.residuals[worst])
    if solutions.converged:
        steps = "1 step" if solutions.iterations == 1 else f"{solutions.iterations} steps"
        return (f"conjugate gradients: {steps} to a relative residual of {reached:.1e}",)
    from sklearn.exceptions import ConvergenceWarning  # here, because it brings pandas along

    text = (
        f"conjugate gradients ended after {solutions.iterations} steps at a relative residual of {reached:.1e}, for "
        f"Lambda = {grid[worst // n_outputs]:g}, above the tolerance of {solutions.tolerance:g}; use a smaller Lambda, "
        "or a larger tolerance."
    )
    warnings.warn(text, ConvergenceWarning, stacklevel=4)
    return (text,)


def _require_options(task: Task, landmarks: int | None, sampling: str, loss: str, tolerance: float) -> None:
    if landmarks is not None and landmarks < 2:
        raise ValueError(f"landmarks must be at least 2, got {landmarks}.")
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling must be one of {', '.join(SAMPLINGS)}, got {sampling!r}.")
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}.")
    if loss != "squared" and task != "classification":
        raise ValueError(f"loss {loss} serves classification, and this is a {task}; use loss squared.")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}.")


def _drawn(on: KernelOnRows, n_landmarks: int, sampling: Sampling, rng: np.random.Generator) -> Landmarks:
    if sampling == "leverage" and n_landmarks < on.n_rows:
        return leverage_landmarks(on, n_landmarks, rng)
    return uniform_landmarks(on.n_rows, n_landmarks, rng)


def _refining_pays(on: KernelOnRows, subspace: Subspace, n_columns: int) -> bool:
    """Return whether a preconditioner from more rows costs less than the steps it saves, in flops of matrix products.

    An exponential counts as forty, a base kernel in the first-level cache as ten.
    """
    (M, r), d = subspace.basis.shape, on.n_features
    value = 40 + 2 * d + 10 * subspace.kernel.family.n_kernels
    refining = min(on.n_rows, REFINING_ROWS * M) * (value + 3 * r) * M + 15 * r**3
    return refining < SAVED_ITERATIONS * on.n_rows * M * (value + 4 * n_columns)


def _unit(kernel: LearnedKernel, subspace: Subspace, sums: KernelSums, mean: np.ndarray) -> float:
    """Return the mean diagonal of the centered kernel over the training rows; one for a kernel of its own scale.

    Of a kernel with negative weights, whose diagonal is not that of its positive part, the mean square of the features.
    """
    if kernel.regularisation is not None:
        return 1.0
    if kernel.indefinite:
        return float(np.trace(centered_products(subspace, sums)[1])) / sums.weight
    means = float(subspace.centering.mean(sums.kernel))
    around_landmarks = (sums.own - 2 * means) / sums.weight + subspace.kernel.row_means.mean()
    return float(around_landmarks - mean @ mean)


def _solve(
    passes: SubspacePasses,
    subspace: Subspace,
    sums: KernelSums,
    mean: np.ndarray,
    ridges: np.ndarray,
    tolerance: float,
    progress: Progress | None,
) -> ShiftedSolutions:
    """Return the weights of the features for each ridge and output, shape (r, L q), by conjugate gradients."""
    right = subspace.basis.T @ sums.targets
    B = np.tile(right, len(ridges))
    shifts = np.repeat(ridges, right.shape[1])
    means = mean + subspace.offset

    def apply(V: np.ndarray) -> np.ndarray:
        return np.asarray(subspace.basis.T @ passes.normal(subspace.basis @ V, means @ V))

    def precondition(R: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        return R / (subspace.theta[:, None] + shifts)

    return solve_shifted(
        apply, B, shifts, precondition, tolerance=tolerance, most=MOST_ITERATIONS, progress=progress
    )  # fmt: skip


def _linear_models(
    Phi: np.ndarray, on: KernelOnRows, target: Target, grid: Sequence[float], loss: Loss, unit: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights of the features, shape (L, r, q), and intercepts, shape (L, q), by scikit-learn."""
    Phi /= np.sqrt(unit)
    n_classes = len(target.classes)
    weights = np.zeros((len(grid), Phi.shape[1], 1 if n_classes == 2 else n_classes))
    intercepts = np.full((len(grid), weights.shape[2]), ABSENT)
    for step, C in enumerate(grid):
        unfitted = _linear_model(loss, C, seed, on.kernel.centering.intercept)
        model = unfitted.fit(Phi, target.values, sample_weight=on.sample_weight)
        columns = np.asarray(model.classes_)
        if n_classes == 2:
            columns = np.zeros(1, dtype=np.intp)
        elif len(columns) == 2:
            intercepts[step, columns[0]], columns = 0.0, columns[1:]
        weights[step][:, columns], intercepts[step, columns] = model.coef_.T / np.sqrt(unit), model.intercept_
    return weights, intercepts


def _linear_model(loss: Loss, C: float, seed: int, intercept: bool) -> Any:
    if loss == "hinge":
        from sklearn.svm import LinearSVC

        options: dict[str, Any] = {"intercept_scaling": 10.0} if intercept else {"fit_intercept": False}
        return LinearSVC(C=C, max_iter=LINEAR_ITERATIONS, random_state=seed, **options)
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, max_iter=LINEAR_ITERATIONS, fit_intercept=intercept)


def _describe(drawn: Landmarks, on: KernelOnRows, subspace: Subspace, sampling: Sampling) -> str:
    rank = subspace.basis.shape[1]
    independent = "" if rank >= len(drawn) - 1 else f", of which {rank} are independent directions"
    how = "" if len(drawn) == on.n_rows else f", drawn {'uniformly' if sampling == 'uniform' else 'by leverage scores'}"
    return f"{len(drawn):,} landmarks of {on.n_rows:,} training rows{how}{independent}"
