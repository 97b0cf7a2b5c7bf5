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


MOST_ROWS = 1500
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
        """Return the predictor for a problem, and why it is that one; ValueError for a learner's own that is none."""
        self.check(problem.task)
        m, own, candidates = problem.n_rows, problem.own or problem.suited or DEFAULTS[problem.task], self.candidates()
        fitting = {name: one for name, one in candidates.items() if not one.by_rows and problem.task in one.tasks}
        rough, on_landmarks = (one for one in candidates.values() if one.by_rows)
        if own not in fitting:
            raise ValueError(
                f"the learner's own predictor must be {' or '.join(fitting)} for a {problem.task}, got {own!r}; "
                "correct the predictor, or the tasks, of its class, or name another predictor than auto."
            )
        exact = fitting[own]
        ridge_rows = RIDGE_ROWS if problem.single else RIDGES_ROWS
        alone = exact.one_vs_one and problem.single and not problem.indefinite and m > EXACT_ROWS
        matrices = (SINGLE_MATRICES if alone else EXACT_MATRICES) * 8 * m**2
        rows, room = f"{m:,} training rows", f"the {_size(self.memory)} there are"
        held = 8 * m * (2 * sketched(m) + 6 * problem.n_columns)
        labeled = exact.one_vs_one and problem.own is None and problem.single and m > SINGLE_ROWS
        asked = self.landmarks is not None or self.loss != "squared"  # of landmarks
        asked = asked and problem.task == "classification" and problem.own is None
        conjugate = (exact.loss == "squared" or labeled) and held <= self.memory
        conjugate = conjugate and not (problem.indefinite or problem.power or asked)
        most = SINGLE_ROWS if alone or labeled else ridge_rows if conjugate else EXACT_ROWS
        if m <= most and matrices <= self.memory:
            return PredictorChoice(exact, f"{own}, exact: the matrices of {rows} take {_size(matrices)} of {room}")
        if problem.power:
            return PredictorChoice(exact, f"{own}, exact: the kernel is a power, which landmarks do not serve")
        too_large = (
            f"the matrices of {rows} would take {_size(matrices)}, with {room}"
            if matrices > self.memory
            else f"{rows} are more than the {most:,} up to which their matrix is factorized"
        )
        flops = 2.0 * problem.n_features + 6.0 * problem.n_kernels + 2.0 * problem.n_columns
        flops = problem.fits * (flops + EXPONENTIAL * (problem.n_seeds - 1))
        if conjugate and STEPS * m**2 * flops <= CONJUGATE_FLOPS:
            reason = f"{rough.name}, conjugate gradients on all pairs of rows: {too_large}"
            return PredictorChoice(rough, reason)
        pairs = ", and passes over all pairs of rows too long" if conjugate else ""
        reason = f"{on_landmarks.name}, landmarks in place of all rows: {too_large}{pairs}"
        return PredictorChoice(on_landmarks, reason)


def _size(n_bytes: float) -> str:
    """Return a number of bytes for a sentence."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} GB"


def given(name: str, value: Any) -> float | Literal["auto"]:
    """Return C or alpha as it was given: a positive number, or "auto"; ValueError for anything else."""
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
        Draws `MOST_ROWS` of more rows.

    Returns
    -------
    C : float

    Notes
    -----
    Ridge regressions are compared by leave-one-out predictions in closed form, on at most `MOST_ROWS` rows: by their
    squared errors, or for classes by the log loss of probabilities that are calibrated on them. The ridge of all rows
    follows by `GROWTH`. For other losses the errors of five folds of a support vector machine decide, smoothed along
    the grid. Both take one Gram matrix of a kernel that has seen all rows. Copies of a row are left out together. A
    Cholesky factor for each ridge that is tried.
    """
    more = max(1.0, on.n_rows / MOST_ROWS)
    if on.n_rows > MOST_ROWS:
        some = drawn_rows(on.n_rows, MOST_ROWS, seed)
        on, target = on.subset(some), target.take(some)
    kernel = on.whole_kernel()
    K, _ = usable_gram(kernel)
    squared = target.task == "regression" or predictor.loss == "squared"
    X, weights = on.take()[0], kernel.sample_weight
    if squared:
        first, _, Y, weights = distinct_examples(X, target.Y, weights)
        gram, centering = K[np.ix_(first, first)], kernel.gram_centering
        decided = target.task == "classification" and (getattr(predictor, "tolerance", None) or 0.0) >= ROUGH
        least = LEAST_DECIDED if decided else LEAST if predictor.by_rows else 0.0
        ridges = [ridge for ridge in RIDGES[::-1] if ridge >= least]

        def best(step: int, near: float | None) -> float:
            some = slice(None, None, step)
            w = None if weights is None else weights[some]
            path = LeaveOneOut(centering.gram(gram[some, some], w), Y[some], w, centering)
            if target.task == "regression":
                return path.best(ridges, near).ridge
            shares = Y[some] if Y.shape[1] > 1 else np.column_stack([1.0 - Y[some], 1.0 + Y[some]]) / 2.0
            return path.best(ridges, near, lambda one: calibrated_log_loss(Y[some] - one.residuals, shares, w)).ridge

        step = len(first) // FEW_ROWS
        near = best(step, None) * step**-GROWTH if step > 1 else None
        return more**GROWTH / best(1, near)
    errors = _errors(K, target, weights, assign_calibration_folds(X, target.values), kernel.centering)
    _, position = best_on_grid(errors[None], smooth=True)
    return GRID[position]


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
