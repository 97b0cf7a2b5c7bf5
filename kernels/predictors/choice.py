"""Which predictor suits so many rows, and how regularized: what predicts best rows that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..centering import Centering, mean_over, subtract_means
from ..families.base import distinct_examples, drawn_rows, n_mapped
from ..parameters import positive
from ..solvers.factor import LeaveOneOut
from ..targets import Target, Task
from .base import (
    DEFAULTS,
    Predictor,
    PredictorChoice,
    RegularizationPath,
    TrainingSet,
    usable_gram,
)
from .calibration import assign_calibration_folds, calibrated_log_loss
from .krr import KRR
from .krr_cg import ConjugateGradients, sketched
from .nystrom import MEMORY, Loss, Nystrom
from .svm import SVM

EXACT_ROWS = 10_000
"""Most training rows of a predictor that forms their matrix: beyond, it takes minutes."""

SINGLE_ROWS = 20_000
"""Most of them for a support vector machine with a single C: some minutes; landmarks are no faster and err more."""

RIDGE_ROWS = 5000
"""Most of them for a kernel ridge regression of one ridge, by a Cholesky factor; conjugate gradients take over."""

RIDGES_ROWS = 3000
"""Most of them where there are several ridges, by eigenvectors: 1.5 times as long as conjugate gradients at 4,000."""

EXACT_MATRICES = 4
"""Matrices of all pairs of rows that an exact predictor holds at once."""

SINGLE_MATRICES = 1.25
"""The same for a support vector machine with a single C: it reads the matrix where it lies."""

CONJUGATE_FLOPS = 8e12
"""Most work of conjugate gradients over pairs of rows: five to eight minutes on two cores."""

ROUGH = 0.1
"""Relative residual of conjugate gradients: errors on new rows then differ by a thousandth."""

EXPONENTIAL = 30.0
"""Flops whose time an exponential takes; base kernels of a grid of powers of two share one."""

STEPS = 8
"""Steps of conjugate gradients that are reckoned with: some fifteen, in float32."""

ROUNDING = 1e-9
"""Share of the largest error by which equal ones may differ."""


SELECTION_ROWS = 1500
"""Rows that the choice is made on where there are more."""

RIDGES = tuple(2.0**exponent for exponent in range(-26, 11))
"""Ridges that leave-one-out chooses among, for a kernel of mean diagonal one."""

FEW_ROWS = 500
"""Distinct rows that the search for a ridge begins on."""

GROWTH = 0.5
"""Power of the number of rows by which the best ridge falls, of a kernel of mean diagonal one."""

LEAST = 2.0**-12
"""The least of them for predictors that take steps, of which smaller ones take hundreds."""

LEAST_DECIDED = 2.0**-3
"""The same for classes predicted to a residual of `ROUGH`: smaller ridges cost steps, and change few of them."""

GRID = tuple(4.0**exponent for exponent in range(-3, 8))
"""Values of C that folds choose among."""


def best_on_grid(errors: np.ndarray, smooth: bool = False) -> tuple[int, int]:
    """Return which setting has the least error on rows that train nothing, and where along the grid of C.

    Parameters
    ----------
    errors : ndarray of shape (n_settings, L)
        A row a setting, along an ascending grid; NaN for what is not compared.
    smooth : bool, default False
        Count each error half and its neighbors along the grid a quarter each, as few rows distinguish two values, and
        take the middle one of equal ones: errors of SVMs whose every row is right go on to the end of the grid. By
        default the least error itself, and of equal ones the strongest regularization and then the first setting.

    Returns
    -------
    setting, position : int
    """
    compared = np.where(np.isnan(errors), np.inf, errors)
    if not smooth:
        position, setting = divmod(int(compared.T.argmin()), len(errors))
        return setting, position
    around = np.pad(compared, ((0, 0), (1, 1)), mode="edge")
    smoothed = (compared / 2 + (around[:, :-2] + around[:, 2:]) / 4).T
    least = np.flatnonzero(smoothed <= smoothed.min() + ROUNDING * np.nanmax(np.abs(errors)))
    position, setting = divmod(int(least[len(least) // 2]), len(errors))
    return setting, position


@dataclass(frozen=True)
class PredictionProblem:
    """Size and kind of a prediction problem, from which the predictor is chosen.

    Attributes
    ----------
    task : {"classification", "regression"}
    own : str or None
        The predictor whose problem the learner solves.
    suited : str or None, default None
        The one that suits what it learns, where it solves no such problem, on few rows.
    n_rows, n_kernels, n_features : int
        m training rows, p, and of how many features distances are taken.
    n_columns : int
        Columns that are solved for at once: outputs times values of C.
    n_seeds : int, default 1
        Base kernels that take an exponential of their own, as those of different metrics do.
    single : bool, default False
        Whether there is one regularization, and not a path of them.
    fits : float, default 1
        How often it is solved; each time on all rows, or for as much of the work as it takes on some.
    power, indefinite : bool, default False
        Whether the kernel is a power of a sum, or has an offset that counts, which exact predictors alone serve, or has
        negative weights, which conjugate gradients do not.
    """

    task: Task
    own: str | None
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
        own: str | None = None,
        fits: float = 1.0,
        suited: str | None = None,
    ) -> PredictionProblem:
        """Return the problem of a learned kernel on training rows."""
        family = training.kernel.combination.evaluated[0]
        return cls(
            target.task,
            own,
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
    """Chooses the predictor by the number of training rows and the memory; its options are those of whichever that is.

    Parameters
    ----------
    memory : int
        Bytes that a fit may take next to the data set.
    landmarks, loss
        Of `Nystrom`.
    tolerance : float or None, default None
        Of whichever is iterative.
    seed : int or None, default None
        Of whatever is drawn; None for the caller's, or 0.

    Notes
    -----
    The first of these that fits. Exact, the learner's own predictor, the one that suits it, or else the task's: up to
    `EXACT_ROWS` rows, of kernel ridge regression `RIDGE_ROWS`, or `RIDGES_ROWS` for several ridges, of a support
    vector machine of one regularization `SINGLE_ROWS`, whose matrices fit the memory. For kernel ridge regression
    conjugate gradients on all rows, which give about the same numbers, to a residual of `ROUGH`: while the
    preconditioner fits the memory and the passes over the pairs of rows stay below `CONJUGATE_FLOPS`. For classes of
    more than `SINGLE_ROWS` rows, of a learner without a predictor of its own and of one regularization, the same, of
    indicators, unless landmarks or another loss are requested. Otherwise landmarks.
    """

    name = "auto"
    summary = "what suits the number of rows"

    landmarks: int | None = None
    memory: int = MEMORY
    loss: Loss = "squared"
    tolerance: float | None = None
    seed: int | None = None

    def candidates(self) -> dict[str, Predictor]:
        """Return the predictors that it may select, with their options, by name."""
        rough = ConjugateGradients(ROUGH if self.tolerance is None else self.tolerance, self.seed)
        return {one.name: one for one in (KRR(), SVM(), rough, Nystrom(**self.get_params()))}

    def check(self, task: Task) -> None:
        """Raise ValueError for an option that is out of its range, whichever predictor is chosen."""
        Nystrom(**self.get_params()).check(task)

    def fit(
        self, training: TrainingSet, target: Target, grid: Sequence[float], *, fine: bool = False
    ) -> RegularizationPath:
        """Fit what suits these rows and this kernel; which learner learned it is not known here."""
        chosen = self.choose(PredictionProblem.of(training, target, len(grid))).predictor
        return chosen.fit(training, target, grid, fine=fine)

    def choose(self, problem: PredictionProblem) -> PredictorChoice:
        """Return the predictor for a problem, with the reason; ValueError if the learner names no exact predictor."""
        self.check(problem.task)
        exact = self._exact_predictor(problem)
        m = problem.n_rows
        is_single_svm = exact.one_vs_one and problem.single
        reads_in_place = is_single_svm and not problem.indefinite and m > EXACT_ROWS
        fits_indicators = is_single_svm and problem.own is None and m > SINGLE_ROWS
        takes_conjugate_gradients = self._takes_conjugate_gradients(problem, exact, fits_indicators)
        n_matrices = SINGLE_MATRICES if reads_in_place else EXACT_MATRICES
        matrix_bytes = n_matrices * 8 * m**2
        most_rows = EXACT_ROWS
        if reads_in_place or fits_indicators:
            most_rows = SINGLE_ROWS
        elif takes_conjugate_gradients:
            most_rows = RIDGE_ROWS if problem.single else RIDGES_ROWS

        rows = f"{m:,} training rows"
        memory = f"the {_size(self.memory)} there are"
        if m <= most_rows and matrix_bytes <= self.memory:
            reason = f"exact: the matrices of {rows} take {_size(matrix_bytes)} of {memory}"
            return PredictorChoice(exact, f"{exact.name}, {reason}")
        if problem.power:
            return PredictorChoice(exact, f"{exact.name}, exact: the kernel is a power, which landmarks do not serve")
        too_large = f"{rows} are more than the {most_rows:,} up to which their matrix is factorized"
        if matrix_bytes > self.memory:
            too_large = f"the matrices of {rows} would take {_size(matrix_bytes)}, with {memory}"
        candidates = self.candidates()
        if takes_conjugate_gradients:
            if STEPS * m**2 * _flops_of_pair(problem) <= CONJUGATE_FLOPS:
                reason = f"conjugate gradients on all pairs of rows: {too_large}"
                return PredictorChoice(candidates[ConjugateGradients.name], f"{ConjugateGradients.name}, {reason}")
            too_large += ", and passes over all pairs of rows too long"
        reason = f"landmarks in place of all rows: {too_large}"
        return PredictorChoice(candidates[Nystrom.name], f"{Nystrom.name}, {reason}")

    def _exact_predictor(self, problem: PredictionProblem) -> Predictor:
        """Return the predictor of the learner, or that of the task, which forms the matrix of all rows."""
        name = problem.own or problem.suited or DEFAULTS[problem.task]
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

    def _takes_conjugate_gradients(self, problem: PredictionProblem, exact: Predictor, fits_indicators: bool) -> bool:
        """Return whether conjugate gradients solve about the same problem, and their preconditioner fits the memory."""
        if problem.indefinite or problem.power:
            return False
        requests_landmarks = self.landmarks is not None or self.loss != "squared"
        if requests_landmarks and problem.task == "classification" and problem.own is None:
            return False
        if exact.loss != "squared" and not fits_indicators:
            return False
        m = problem.n_rows
        return 8 * m * (2 * sketched(m) + 6 * problem.n_columns) <= self.memory


def _flops_of_pair(problem: PredictionProblem) -> float:
    """Return the work of one step of conjugate gradients per pair of rows."""
    flops = 2.0 * problem.n_features + 6.0 * problem.n_kernels + 2.0 * problem.n_columns
    return problem.fits * (flops + EXPONENTIAL * (problem.n_seeds - 1))


def _size(n_bytes: float) -> str:
    """Return a number of bytes for a sentence."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} GB"


def as_regularization(name: str, value: Any) -> float | Literal["auto"]:
    """Return C or alpha if it is a positive number or "auto"; ValueError otherwise."""
    if isinstance(value, str):
        if value == "auto":
            return "auto"
        raise ValueError(f"{name} must be a positive, finite number or 'auto', got {value!r}.")
    return positive(name, value)


def best_C(on: TrainingSet, target: Target, predictor: Predictor, seed: int) -> float:
    r"""Return the C (SVM) or 1 / alpha (ridge) with the least error of a predictor on held-out rows.

    Parameters
    ----------
    on : TrainingSet
        A learned kernel and m training rows.
    target : Target
        Of these rows.
    predictor : Predictor
        Of the second stage.
    seed : int
        Draws `SELECTION_ROWS` of more rows.

    Returns
    -------
    C : float

    Notes
    -----
    Ridge regressions are compared on at most `SELECTION_ROWS` rows by leave-one-out predictions in closed form: the
    squared error or, for classification, the log loss of calibrated probabilities. The best ridge is then scaled to all
    rows, see `GROWTH`. Other losses use the five-fold cross-validation error of support vector machines, smoothed along
    the grid. Both evaluate a kernel that has seen all rows, and leave out the copies of a row together.
    """
    sample_ratio = max(1.0, on.n_rows / SELECTION_ROWS)
    if on.n_rows > SELECTION_ROWS:
        sample = drawn_rows(on.n_rows, SELECTION_ROWS, seed)
        on = on.subset(sample)
        target = target.take(sample)
    kernel = on.whole_kernel()
    K, _ = usable_gram(kernel)
    X, _ = on.take()
    weights = kernel.sample_weight
    if target.task == "classification" and predictor.loss != "squared":
        errors = _errors(K, target, weights, assign_calibration_folds(X, target.values), kernel.centering)
        _, position = best_on_grid(errors[None], smooth=True)
        return GRID[position]
    least_ridge = 0.0
    if predictor.by_rows:
        least_ridge = LEAST
        tolerance = getattr(predictor, "tolerance", None)
        if target.task == "classification" and tolerance is not None and tolerance >= ROUGH:
            least_ridge = LEAST_DECIDED
    ridges = [ridge for ridge in reversed(RIDGES) if ridge >= least_ridge]
    first, _, Y, weights = distinct_examples(X, target.Y, weights)
    gram = K[np.ix_(first, first)]
    step = len(first) // FEW_ROWS
    start = None
    if step > 1:
        some = slice(None, None, step)
        some_weights = None if weights is None else weights[some]
        few = _best_ridge(gram[some, some], Y[some], some_weights, target.task, kernel.gram_centering, ridges)
        start = few * step**-GROWTH
    ridge = _best_ridge(gram, Y, weights, target.task, kernel.gram_centering, ridges, start)
    return sample_ratio**GROWTH / ridge


def _best_ridge(
    K: np.ndarray,
    Y: np.ndarray,
    weights: np.ndarray | None,
    task: Task,
    centering: Centering,
    ridges: Sequence[float],
    start: float | None = None,
) -> float:
    """Return the ridge with the least leave-one-out error, or for classes the least calibrated log loss.

    The search begins at a ridge that is close to the best, if there is one.
    """
    path = LeaveOneOut(centering.gram(K, weights), Y, weights, centering)
    if task == "regression":
        return path.best(ridges, start).ridge
    shares = Y
    if Y.shape[1] == 1:
        shares = np.column_stack([1.0 - Y, 1.0 + Y]) / 2.0
    return path.best(ridges, start, lambda fit: calibrated_log_loss(Y - fit.residuals, shares, weights)).ridge


def _errors(
    K: np.ndarray, target: Target, weights: np.ndarray | None, folds: np.ndarray, centering: Centering
) -> np.ndarray:
    """Return the weight of the rows that SVMs fitted without them misclassify, one sum per value of C."""
    w, errors = np.ones(len(K)) if weights is None else weights, np.zeros(len(GRID))
    for fold in np.unique(folds[folds >= 0]):
        rows, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        training, part = K[np.ix_(others, others)], None if weights is None else weights[others]
        path = SVM().fit_matrix(centering.gram(training, part), target.take(others), GRID, part, centering)
        means, cross = centering.mean(training, part, axis=1), K[np.ix_(rows, others)]
        cross = subtract_means(cross, centering.mean(cross, part, axis=1), means, float(mean_over(means, part)))
        errors += (path.predict_from(cross) != target.values[rows]) @ w[rows]
    return errors
