"""What classifier and regressor share: a predictor that is linear in the learned kernel."""

from __future__ import annotations

import time
import warnings
from copy import copy
from dataclasses import replace
from typing import Any, Literal, Self, cast, get_args

import numpy as np

from learnkernels.kernels.engine.threads import blas_threads_for
from learnkernels.kernels.engine.workers import Workers
from learnkernels.kernels.estimators.base import AUTO, KernelLearner, Precision, within_n_jobs
from learnkernels.kernels.estimators.defaults import DEFAULTS, default_family
from learnkernels.kernels.estimators.regularisation import MOST_ROWS, chosen
from learnkernels.kernels.families.base import Rows, drawn_rows
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.learners import as_learner
from learnkernels.kernels.learning import learn_kernel
from learnkernels.kernels.parameters import positive
from learnkernels.kernels.predictors import PREDICTORS, Fitted, KernelOnRows, Predictor, RowsPath, as_predictor
from learnkernels.kernels.predictors.base import ExactPredictor, RowsPredictor
from learnkernels.kernels.predictors.calibration import assign_calibration_folds
from learnkernels.kernels.predictors.choice import Problem, choose_predictor
from learnkernels.kernels.predictors.scoring import LinearScores
from learnkernels.kernels.solvers.conjugate_gradients import Progress
from learnkernels.kernels.targets import Target, Task

WORK_OF_HELD_OUT = 0.5
"""Work of conjugate gradients that begin without some rows, in units of that of all at once, in addition to it."""

MOST_FOLD_ROWS = 10_000
"""Rows beyond which one fold of them tells how a predictor does on rows that it has not seen."""

STEPS = 10
"""Steps of an iteration between two lines of `verbose`."""

FIRST_ROWS = 500
"""Rows of the first fit under a time limit."""

WORTH = 1.5
"""How many times as many rows make a further fit worth its time."""


class SupervisedLearner(KernelLearner):
    """Base of both: a predictor on the learned kernel, linear in the kernel between new rows and training rows.

    A subclass has the parameters `predictor`, `precision`, `time_limit` and `verbose` as well.
    """

    predictor: str | Predictor
    precision: Precision
    time_limit: float | None
    verbose: bool

    dual_coef_: np.ndarray
    intercept_: np.ndarray
    predictor_: str
    predictor_reason_: str
    regularisation_: float
    n_samples_fit_: int

    @property
    def landmarks_(self) -> np.ndarray:
        """Positions of the landmarks among the training rows that have a weight, shape (M,), where there are some."""
        if not PREDICTORS[getattr(self, "predictor_", "auto")].on_landmarks:
            raise AttributeError(f"{type(self).__name__} has landmarks_ once it is fitted with predictor nystrom.")
        return self.kernel_.rows

    @within_n_jobs
    def fit_kernel(
        self,
        kernel: LearnedKernel,
        y: Any,
        X: Any = None,
        workers: Workers | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Fit the predictor alone, on a kernel that was learned elsewhere.

        Parameters
        ----------
        kernel : LearnedKernel
            Learned by this estimator's `learner`; its sample weights are those of the predictor.
        y : array-like of shape (m,) or (m, q)
            Target of the training rows: those of `X`, or else of the kernel, in the order of ``kernel.X``.
        X : ndarray or CSR matrix of shape (m, d), optional
            The training rows, as they were given to what learned the kernel from all or some of them: ``kernel.rows``
            are positions in it. Finite; may be mapped from a file. Not modified.
        workers : Workers, optional
            Who does the passes over rows of a predictor that takes such; by default threads of this process.
        progress : callable, optional
            Told, by a predictor that iterates, its steps and the largest residual.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            The kernel is of another learner or was learned for another regularisation, `y` or `X` has another shape,
            `X` is given for a kernel of some rows with weights, or as `fit`.
        """
        y = np.asarray(y)
        if X is not None:
            require_rows_of(kernel, X)
        m = kernel.X.shape[0] if X is None else X.shape[0]
        if y.ndim not in (1, 2) or len(y) != m:
            of, take = ("of the kernel", "kernel.rows") if X is None else ("in X", "X")
            raise ValueError(
                f"y must have one entry a training row {of}, {m}, got shape {y.shape}; take those of {take}, in that "
                "order."
            )
        known = DEFAULTS if self.learner == AUTO else (as_learner(self.learner).name,)
        if kernel.learner not in known:
            raise ValueError(
                f"the kernel was learned by {kernel.learner}, and the estimator has learner={self.learner!r}; give it "
                "the learner of the kernel."
            )
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = int(kernel.X.shape[1])
        self.take_table(None)
        rows, self.n_samples_fit_ = kernel.rows if X is None else np.arange(m), m
        return self._fit_predictor(KernelOnRows.of(kernel, X, rows, workers, progress), y)

    def _checked_predictor(self, task: Task) -> Predictor:
        """Return the predictor; ValueError for one that is unknown, does not serve the task, or has a wrong option."""
        predictor = as_predictor(self.predictor)
        predictor.check(task)
        return predictor

    def _fit_predictor(self, on: KernelOnRows, y: np.ndarray) -> Self:
        raise NotImplementedError

    def _problem(self, y: np.ndarray) -> tuple[np.ndarray, Task, float | Literal["auto"]]:
        """Return the targets as numbers or positions of classes, the task, and Lambda."""
        raise NotImplementedError

    def _fit_in_time(self, X: Rows, y: np.ndarray, weights: np.ndarray | None) -> Self:
        """Fit on all rows, or with a `time_limit` on growing samples of them while the next fit is expected to end.

        The seconds of a fit are taken to grow with the square of its rows, which is more than most do.
        """
        m, started = len(y), time.perf_counter()
        if self.time_limit is None:
            return self._fit_rows(X, y, weights, m)
        limit, n = positive("time_limit", self.time_limit), min(m, FIRST_ROWS)
        values, task, _ = self._problem(y)
        order = nested_samples(Target.of(values, task), self._seed)
        while n < m:
            rows, begun = np.sort(order[:n]), time.perf_counter()
            self._fit_rows(X[rows], y[rows], None if weights is None else weights[rows], m)
            ended = time.perf_counter()
            following = min(m, int(n * np.sqrt(max(0.0, started + limit - ended) / (ended - begun))))
            if following < min(WORTH * n, m):
                kernel = replace(self.kernel_, rows=rows[self.kernel_.rows])
                self.take_coefficients(kernel, self.dual_coef_, self.intercept_)
                warnings.warn(
                    f"time_limit={self.time_limit:g}: fitted on a sample of {n:,} of {m:,} rows; allow more seconds.",
                    UserWarning,
                    stacklevel=4,
                )
                return self
            n = following
        return self._fit_rows(X, y, weights, m)

    def _fit_rows(self, X: Rows, y: np.ndarray, weights: np.ndarray | None, of: int) -> Self:
        """Learn the kernel, then the predictor, on all or some `of` the rows."""
        begun, self.n_samples_fit_ = time.perf_counter(), len(y)
        self._say(f"{len(y):,} of {of:,} rows", begun)
        kernel = self._learned_for(X, *self._problem(y), weights)
        self._say(f"{kernel.learner} learned a kernel of {kernel.family.n_kernels} base kernels", begun)

        def progress(step: int, residual: float) -> None:
            if step % STEPS == 0:
                self._say(f"{step} steps to a relative residual of {residual:.1e}", begun)

        on = KernelOnRows.of(kernel, X, np.arange(len(y)), None, progress if self.verbose else None)
        self._fit_predictor(on, y)
        self._say(f"{self.predictor_} is fitted", begun)
        return self

    def _say(self, text: str, begun: float) -> None:
        if self.verbose:
            print(f"{type(self).__name__}, {time.perf_counter() - begun:.1f} s: {text}", flush=True)  # noqa: T201

    def _learned_for(
        self, X: Rows, y: np.ndarray, task: Task, value: float | Literal["auto"], weights: np.ndarray | None
    ) -> LearnedKernel:
        """Return the kernel learned for a Lambda, or one that depends on none."""
        if value == "auto":
            own = self._checked_learner(X, task).predictor
            value = 1.0 if own is None else self._suits_equal_weights(X, y, task, own)
        return self._learned(X, y, task, value, weights)

    def _suits_equal_weights(self, X: Rows, y: np.ndarray, task: Task, predictor: str) -> float:
        """Return the Lambda of a learner that learns anew for each: the one for its base kernels of equal weights."""
        some = drawn_rows(X.shape[0], MOST_ROWS, self._seed)
        family = default_family(X[some]) if self.family is None else self.family
        options: dict[str, Any] = {"normalise": self.normalise, "centering": self.centering}
        kernel = learn_kernel("unif", family, X[some], y[some], task=task, **options)
        target = Target.of(y, task).take(some)
        return chosen(KernelOnRows.of(kernel, None, np.arange(len(some))), target, as_predictor(predictor), self._seed)

    def _solve(
        self, on: KernelOnRows, target: Target, regularisation: float | Literal["auto"]
    ) -> tuple[Predictor, Fitted]:
        """Choose and fit the predictor, and its Lambda where that is left to the data."""
        kernel = on.kernel
        if regularisation == "auto" and kernel.regularisation is not None:
            regularisation = kernel.regularisation
        if kernel.regularisation is not None and not np.isclose(
            kernel.regularisation, regularisation, rtol=1e-9, atol=0
        ):
            raise ValueError(
                f"the kernel was learned for a regularisation of {kernel.regularisation:g}, and the estimator has "
                f"{regularisation:g} (C, or 1 / alpha); give it that of the kernel."
            )
        predictor = self._checked_predictor(target.task)
        if getattr(predictor, "seed", 0) is None:
            predictor = as_predictor(predictor, seed=self._seed)
        fits = 1.0 + WORK_OF_HELD_OUT * self._leaves_out
        learner = as_learner(kernel.learner)
        problem = Problem.of(on, target, 1, learner.predictor, fits, learner.suited)
        choice = choose_predictor(predictor, problem)
        self.predictor_, self.predictor_reason_ = choice.predictor.name, choice.reason
        auto = regularisation == "auto"
        with blas_threads_for(min(on.n_rows, MOST_ROWS)):
            self.regularisation_ = chosen(on, target, choice.predictor, self._seed) if auto else float(regularisation)
        fitted = choice.predictor.fit_on(on, target, [self.regularisation_], fine=True)
        self.take_coefficients(fitted.kernel, *fitted.coefficients())
        return choice.predictor, fitted

    @property
    def _leaves_out(self) -> bool:
        """Whether scores of rows that a predictor has not seen are asked for."""
        raise NotImplementedError

    def _left_out(
        self, on: KernelOnRows, predictor: Predictor, fitted: Fitted, target: Target
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return training rows, and their scores by predictors that have seen neither them nor their copies.

        As they follow from the fit, in closed form or of rows that it left out at first; else by five folds, and where
        there are more than `MOST_FOLD_ROWS` rows by the first of these. Rows that no predictor can do without have the
        score of all.
        """
        if fitted.left_out is not None:
            return fitted.left_out()
        X, weights, C = on.take(np.arange(on.n_rows))[0], on.sample_weight, [self.regularisation_]
        codes = target.values if target.task == "classification" else np.zeros(on.n_rows, dtype=np.intp)
        folds = assign_calibration_folds(X, codes)
        rows, scores = list[np.ndarray](), list[np.ndarray]()
        for fold in np.unique(folds) if on.n_rows <= MOST_FOLD_ROWS else (0,):
            held_out, others = np.flatnonzero(folds == fold), np.flatnonzero((folds != fold) | (folds < 0))
            if fitted.gram is None:
                quiet = replace(on.only(others), progress=None)
                path = cast(RowsPredictor, predictor).fit(quiet, target.take(others), C, fine=True)
                scores.append(linear_scores(path, X, held_out))
            else:
                w = None if weights is None else weights[others]
                exact = cast(ExactPredictor, predictor)
                training = fitted.gram[np.ix_(others, others)]
                own = exact.fit(training, target.take(others), C, w, True, on.kernel.centering)
                dual, intercept = own.coefficients()
                scores.append(fitted.gram[np.ix_(held_out, others)] @ dual + intercept)
            rows.append(held_out)
        return np.concatenate(rows), np.concatenate(scores)

    def take_coefficients(self, kernel: LearnedKernel, dual: np.ndarray, intercept: np.ndarray) -> None:
        """Predict by ``kernel.cross_gram(X) @ dual + intercept`` from now on."""
        self._take_kernel(kernel)
        self.dual_coef_, self.intercept_ = dual, intercept
        self._linear = LinearScores(kernel, dual, intercept)

    def on_support(self) -> Self:
        """Return this estimator with a kernel over those rows alone that have a coefficient; itself where all have.

        Its predictions are the same but for rounding: see `LinearScores.on_support`.
        """
        all_rows = self._linear_scores()
        some = all_rows.on_support()
        if some is all_rows:
            return self
        estimator = copy(self)
        estimator.take_coefficients(some.kernel, some.dual, some.intercept)
        return estimator

    def _coefficients(self) -> tuple[LearnedKernel, np.ndarray, np.ndarray]:
        return self.kernel_, self.dual_coef_, self.intercept_

    def _precision(self) -> Precision:
        return require_precision(self.precision)


def nested_samples(target: Target, seed: int) -> np.ndarray:
    """Return an order of the rows whose first n, for any n, are a random sample, with all classes in their shares."""
    m = len(target)
    codes = target.values if target.task == "classification" else np.zeros(m, dtype=np.intp)
    drawn = np.random.default_rng(seed).permutation(m)
    by_class, counts = drawn[np.argsort(codes[drawn], kind="stable")], np.bincount(codes)
    position, of_class = np.arange(m) - np.repeat(np.cumsum(counts) - counts, counts), np.repeat(counts, counts)
    return by_class[np.argsort(position / of_class, kind="stable")]


def require_precision(precision: Any) -> Precision:
    """Return the precision of predictions; ValueError for one that is none."""
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}.")
    chosen: Precision = precision
    return chosen


def require_rows_of(kernel: LearnedKernel, X: Any) -> None:
    """Raise ValueError if a kernel cannot have been learned on some of these rows, or cannot be moved to all of them.

    Neither values nor memory of `X` are touched.
    """
    d = kernel.X.shape[1]
    if len(np.shape(X)) != 2 or X.shape[1] != d or X.shape[0] <= kernel.rows.max():
        raise ValueError(
            f"X must be the rows that the kernel was learned from, more than {kernel.rows.max()} of {d} features, got "
            f"shape {np.shape(X)}; give all of them, with the same columns."
        )
    if kernel.sample_weight is not None and len(kernel.rows) < X.shape[0]:
        raise ValueError(
            f"X must be left out for a kernel of {len(kernel.rows)} rows with weights, got {X.shape[0]} rows, whose "
            "weights are not known."
        )


def linear_scores(path: RowsPath, X: Rows, rows: np.ndarray) -> np.ndarray:
    """Return the scores of some rows of X, less the kernel's origin, that are linear in it, shape (n, q)."""
    dual, intercept = path.coefficients()
    kernel = replace(path.kernel, origin=np.zeros_like(path.kernel.origin))
    return LinearScores(kernel, dual, intercept).of(X[rows])


def without_zero_weights(
    X: Rows, y: np.ndarray, weights: np.ndarray | None
) -> tuple[Rows, np.ndarray, np.ndarray | None]:
    """Return rows, targets and weights less those of weight zero; no weights where all that are left are one.

    Raises
    ------
    ValueError
        Fewer than two rows are left.
    """
    if weights is None:
        return X, y, None
    kept = np.flatnonzero(weights)
    if len(kept) < 2:
        raise ValueError(
            f"sample_weight must be positive for at least 2 rows, got zero for all but {len(kept)} of {len(y)}."
        )
    if len(kept) < len(y):
        X, y, weights = X[kept], y[kept], weights[kept]
    return X, y, None if (weights == 1).all() else weights
