"""Automatic choice of the predictor and of C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..centering import Centering, mean_over, subtract_means
from ..families.base import distinct_examples, n_mapped
from ..row_groups import RowGroups, Split
from ..solvers.factor import LeaveOneOut, LeftOut
from ..targets import Target, Task
from ..validation import positive
from ..weights import weights_of_rows
from .base import (
    DEFAULTS,
    Predictor,
    PredictorChoice,
    RegularizationPath,
    TrainingSet,
    usable_gram,
)
from .calibration import calibrated_log_loss, held_out_splits
from .krr import KRR
from .krr_cg import ConjugateGradients, n_sketched
from .nystroem import MEMORY, Loss, Nystroem
from .svm import SVM

EXACT_ROWS = 10_000
"""Most training rows of an SVM with a grid of C."""

SINGLE_ROWS = 20_000
"""Most training rows of an SVM with a single C."""

RIDGE_ROWS = 5000
"""Most training rows of an exact ridge regression with a single C."""

RIDGES_ROWS = 3000
"""Most training rows of an exact ridge regression with a grid of C."""

CONJUGATE_FLOPS = 8e12
"""Most floating-point operations of conjugate gradients: minutes on two cores."""

ROUGH = 0.01
"""Relative residual of conjugate gradients; smaller ones hardly improve predictions."""

SELECTION_ROWS = 1500

RIDGES = tuple(2.0**exponent for exponent in range(-26, 11))
"""Ridges to compare, for a kernel with unit mean diagonal."""

GROWTH = 0.5
"""Exponent by which the best ridge falls with the number of rows."""

LEAST_ITERATIVE = 2.0**-12
"""Smallest ridge for iterative predictors; smaller ones take hundreds of steps."""

LEAST_DECIDED = 2.0**-3
"""Smallest ridge for classification with a residual of `ROUGH`."""

GRID = tuple(4.0**exponent for exponent in range(-3, 8))


def best_on_grid(errors: np.ndarray, smooth: bool = False) -> tuple[int, int]:
    """Return the positions, in `errors`, of the setting and C with the lowest error.

    Errors have shape (n_settings, L); NaN is ignored. Ties go to the smallest C. With
    `smooth`, errors are averaged with their neighbors, and ties go to the middle C.
    """
    compared = np.where(np.isnan(errors), np.inf, errors)
    if not smooth:
        position, setting = divmod(int(compared.T.argmin()), len(errors))
        return setting, position
    padded = np.pad(compared, ((0, 0), (1, 1)), mode="edge")
    smoothed = (compared / 2 + (padded[:, :-2] + padded[:, 2:]) / 4).T
    rounding = 1e-9 * np.nanmax(np.abs(errors))
    ties = np.flatnonzero(smoothed <= smoothed.min() + rounding)
    position, setting = divmod(int(ties[len(ties) // 2]), len(errors))
    return setting, position


@dataclass(frozen=True)
class PredictionProblem:
    """Properties of kernel and target by which `Auto` selects a predictor.

    `n_columns` is outputs times values of C; `n_seeds` counts base kernels with their
    own exponential; `suited` is the exact predictor for learners without their own.
    """

    task: Task
    learner_predictor: str | None
    n_rows: int
    n_kernels: int
    n_features: int
    n_columns: int
    n_seeds: int = 1
    single: bool = False
    fits: float = 1.0
    power: bool = False
    indefinite: bool = False
    suited: str | None = None

    @classmethod
    def of(
        cls,
        training: TrainingSet,
        target: Target,
        n_C: int,
        learner_predictor: str | None = None,
        fits: float = 1.0,
        suited: str | None = None,
    ) -> PredictionProblem:
        """Return the properties of a training set and its target."""
        family = training.kernel.combination.evaluated[0]
        return cls(
            target.task,
            learner_predictor,
            n_rows=training.n_rows,
            n_kernels=family.n_kernels,
            n_features=n_mapped(family, training.n_features),
            n_columns=target.Y.shape[1] * n_C,
            n_seeds=family.n_seeds,
            single=n_C == 1,
            fits=fits,
            power=not training.kernel.is_weighted_sum,
            indefinite=training.kernel.indefinite,
            suited=suited,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Auto(Predictor):
    """Select the predictor by the number of training rows and the memory.

    Parameters
    ----------
    n_components, loss
        As for `Nystroem`.
    memory : int
        Memory limit of a fit, without the data set, in bytes.
    tol : float or None, default None
        Tolerance of the iterative predictors.
    random_state : int or None, default None
        Random seed; None uses the estimator's `random_state`.

    Notes
    -----
    The first of these that fits in memory:

    1. The learner's own predictor, or else `SVM` for classification and `KRR` for
    regression. Limits: 5,000 rows for ridge regression with a single C, 3,000 with a
    grid; 20,000 for an SVM with a single C, 10,000 with a grid.
    2. `ConjugateGradients` to a relative residual of 0.01, for at most 8e12
    floating-point operations; also for classification with more than 20,000 rows and a
    single C.
    3. `Nystroem`; also for classification with `n_components` or another loss.
    """

    name = "auto"
    summary = "what suits the number of rows"

    n_components: int | None = None
    memory: int = MEMORY
    loss: Loss = "squared"
    tol: float | None = None
    random_state: int | None = None

    def candidates(self) -> dict[str, Predictor]:
        tolerance = ROUGH if self.tol is None else self.tol
        predictors = (
            KRR(),
            SVM(),
            ConjugateGradients(tolerance, self.random_state),
            Nystroem(**self.get_params()),
        )
        return {predictor.name: predictor for predictor in predictors}

    def check(self, task: Task) -> None:
        Nystroem(**self.get_params()).check(task)

    def fit(
        self,
        training: TrainingSet,
        target: Target,
        grid: Sequence[float],
        *,
        fine: bool = False,
    ) -> RegularizationPath:
        predictor = self.choose(
            PredictionProblem.of(training, target, len(grid))
        ).predictor
        return predictor.fit(training, target, grid, fine=fine)

    def choose(self, problem: PredictionProblem) -> PredictorChoice:
        self.check(problem.task)
        exact = self._exact_predictor(problem)
        m = problem.n_rows
        is_single_svm = exact.one_vs_one and problem.single
        reads_in_place = is_single_svm and not problem.indefinite and m > EXACT_ROWS
        fits_indicators = (
            is_single_svm and problem.learner_predictor is None and m > SINGLE_ROWS
        )
        supports_conjugate_gradients = self._supports_conjugate_gradients(
            problem, exact, fits_indicators
        )
        matrix_bytes = (1.25 if reads_in_place else 4) * 8 * m**2
        most_rows = EXACT_ROWS
        if reads_in_place or fits_indicators:
            most_rows = SINGLE_ROWS
        elif supports_conjugate_gradients:
            most_rows = RIDGE_ROWS if problem.single else RIDGES_ROWS

        rows = f"{m:,} training rows"
        memory = f"the {_format_bytes(self.memory)} there are"
        if m <= most_rows and matrix_bytes <= self.memory:
            reason = f"exact: the matrices of {rows} take {_format_bytes(matrix_bytes)} of {memory}"
            return PredictorChoice(exact, f"{exact.name}, {reason}")
        if problem.power:
            return PredictorChoice(
                exact,
                f"{exact.name}, exact: the kernel is a power, which landmarks do not serve",
            )
        too_large = f"{rows} are more than the {most_rows:,} up to which their matrix is factorized"
        if matrix_bytes > self.memory:
            too_large = f"the matrices of {rows} would take {_format_bytes(matrix_bytes)}, with {memory}"
        candidates = self.candidates()
        if supports_conjugate_gradients:
            if _conjugate_gradient_flops(problem) <= CONJUGATE_FLOPS:
                reason = f"conjugate gradients on all pairs of rows: {too_large}"
                return PredictorChoice(
                    candidates[ConjugateGradients.name],
                    f"{ConjugateGradients.name}, {reason}",
                )
            too_large += ", and passes over all pairs of rows too long"
        reason = f"landmarks in place of all rows: {too_large}"
        return PredictorChoice(candidates[Nystroem.name], f"{Nystroem.name}, {reason}")

    def _exact_predictor(self, problem: PredictionProblem) -> Predictor:
        name = problem.learner_predictor or problem.suited or DEFAULTS[problem.task]
        exact = {
            candidate.name: candidate
            for candidate in self.candidates().values()
            if not candidate.by_rows and problem.task in candidate.tasks
        }
        if name not in exact:
            raise ValueError(
                f"the learner's own predictor must be {' or '.join(exact)} for a {problem.task}, got {name!r}; "
                "correct the predictor, or the tasks, of its class, or name another predictor than auto."
            )
        return exact[name]

    def _supports_conjugate_gradients(
        self, problem: PredictionProblem, exact: Predictor, fits_indicators: bool
    ) -> bool:
        if problem.indefinite or problem.power:
            return False
        requests_landmarks = self.n_components is not None or self.loss != "squared"
        if (
            requests_landmarks
            and problem.task == "classification"
            and problem.learner_predictor is None
        ):
            return False
        if exact.loss != "squared" and not fits_indicators:
            return False
        m = problem.n_rows
        return 8 * m * (2 * n_sketched(m) + 6 * problem.n_columns) <= self.memory


def _conjugate_gradient_flops(problem: PredictionProblem) -> float:
    flops_of_pair = (
        2.0 * problem.n_features + 6.0 * problem.n_kernels + 2.0 * problem.n_columns
    )
    flops_of_pair += 30.0 * (problem.n_seeds - 1)
    return 8 * problem.n_rows**2 * problem.fits * flops_of_pair


def _format_bytes(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} GB"


def as_regularization(name: str, value: Any) -> float | Literal["auto"]:
    """Check C or alpha: a positive number or "auto"."""
    if isinstance(value, str):
        if value == "auto":
            return "auto"
        raise ValueError(
            f"{name} must be a positive, finite number or 'auto', got {value!r}."
        )
    return positive(name, value)


def best_C(
    training: TrainingSet, target: Target, predictor: Predictor, seed: int
) -> float:
    """Return the C (SVM) or 1 / alpha (ridge) with the lowest held-out error.

    SVMs are compared by the smoothed five-fold error, ridges by the leave-one-out error
    on at most `SELECTION_ROWS` rows; the best ridge is scaled to all rows.
    """
    n_all = training.n_rows
    if training.n_rows > SELECTION_ROWS:
        sample = target.sample(SELECTION_ROWS, seed)
        training = training.subset(sample)
        target = target.take(sample)
    kernel = training.whole_kernel()
    K, _ = usable_gram(kernel)
    X, _ = training.take()
    weights = kernel.sample_weight
    if target.task == "classification" and predictor.loss != "squared":
        errors = _svm_errors(
            K, target, weights, held_out_splits(X, target), kernel.centering
        )
        _, position = best_on_grid(errors[None], smooth=True)
        return GRID[position]
    least_ridge = _least_ridge(predictor, target.task)
    ridges = [ridge for ridge in reversed(RIDGES) if ridge >= least_ridge]
    first, _, Y, weights = distinct_examples(X, target.Y, weights, target.group_numbers)
    K = K[np.ix_(first, first)]
    row_groups = target.take(first).row_groups
    ridge = _best_ridge(
        K, Y, weights, target.task, kernel.gram_centering, ridges, row_groups
    )
    return max(1.0, n_all / SELECTION_ROWS) ** GROWTH / ridge


def _least_ridge(predictor: Predictor, task: Task) -> float:
    if not predictor.by_rows:
        return 0.0
    tolerance = getattr(predictor, "tol", None)
    if task == "classification" and tolerance is not None and tolerance >= ROUGH:
        return LEAST_DECIDED
    return LEAST_ITERATIVE


def _best_ridge(
    K: np.ndarray,
    Y: np.ndarray,
    weights: np.ndarray | None,
    task: Task,
    centering: Centering,
    ridges: Sequence[float],
    row_groups: RowGroups | None,
) -> float:
    """Return the ridge with the lowest leave-one-out error or log loss."""
    start = None
    step = len(K) // 500
    if step > 1:
        sample = np.arange(0, len(K), step)
        sample_weights = weights_of_rows(weights, sample)
        K_sample = K[::step, ::step]
        sample_groups = None
        if row_groups is not None:
            sample_groups = row_groups.take(sample)
        start = _best_ridge(
            K_sample, Y[sample], sample_weights, task, centering, ridges, sample_groups
        )
        start *= step**-GROWTH
    path = LeaveOneOut(centering.gram(K, weights), Y, weights, centering, row_groups)
    if task == "regression":
        return path.best(ridges, start).ridge
    shares = Y
    if Y.shape[1] == 1:
        shares = np.column_stack([1.0 - Y, 1.0 + Y]) / 2.0

    def log_loss(fit: LeftOut) -> float:
        rows = fit.is_held_out
        scores = (Y - fit.residuals)[rows]
        return calibrated_log_loss(scores, shares[rows], weights_of_rows(weights, rows))

    return path.best(ridges, start, log_loss).ridge


def _svm_errors(
    K: np.ndarray,
    target: Target,
    weights: np.ndarray | None,
    splits: Sequence[Split],
    centering: Centering,
) -> np.ndarray:
    """Return the total weight of misclassified held-out rows per C."""
    row_weights = np.ones(len(K)) if weights is None else weights
    errors = np.zeros(len(GRID))
    for training, held_out in splits:
        w = weights_of_rows(weights, training)
        K_training = K[np.ix_(training, training)]
        K_cross = K[np.ix_(held_out, training)]
        row_means = centering.mean(K_training, w, axis=1)
        cross_means = centering.mean(K_cross, w, axis=1)
        K_cross = subtract_means(
            K_cross, cross_means, row_means, float(mean_over(row_means, w))
        )
        path = SVM().fit_matrix(
            centering.gram(K_training, w), target.take(training), GRID, w, centering
        )
        errors += (path.predict_from(K_cross) != target.values[held_out]) @ row_weights[
            held_out
        ]
    return errors
