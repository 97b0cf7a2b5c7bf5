"""Baselines on the trials of the learners, of scikit-learn.

The best constant, a linear model, a search over one Gaussian kernel, and gradient boosting.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KernelCenterer, StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from learnkernels.conf.schema import BASELINE_TITLES, BaselineConfig, BaselineName, CompareConfig, grid_values
from learnkernels.kernels.centering import centered_alignment
from learnkernels.kernels.engine.workers import blas_threads_for
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.predictors.calibration import fit_calibration, probabilities
from learnkernels.kernels.predictors.choice import best_on_grid
from learnkernels.kernels.protocol.evaluation import FoldResult
from learnkernels.kernels.protocol.folds import Trial, inner_trials, rows_of
from learnkernels.kernels.protocol.metrics import Metric, metric_for
from learnkernels.kernels.targets import Target

from ..data.dataset import Dataset, load_dataset
from .held_out import HeldOutPredictions
from .trials import HELD_OUT, TrialJob, kept_test_rows, load_folds, trial_columns

CONSTANT: Final = "constant"
LINEAR: Final = "linear"
GRID_SEARCH: Final = "grid-search"
BOOSTING: Final = "boosting"

SEARCHED = (GRID_SEARCH, BOOSTING)
"""Baselines whose settings are searched; the others take next to no time."""

ALPHAS = tuple(10.0**k for k in range(-3, 5))
"""Penalties of ridge regression on standardized features, which leave-one-out errors choose among."""

SEARCHED_ROWS = 2000
"""Most rows that choose the bandwidth and regularization of one Gaussian kernel; the best are fitted on all rows."""

LEAVES, RATES = (8, 31), (0.3, 0.1, 0.03)
"""Most leaves of a tree, and learning rates, that the validation rows choose among; 31 and 0.1 are the defaults."""

ONE_THREAD = 5000
"""Most rows that gradient boosting has one thread for; its predictions do not depend on threads."""

Choosing = tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]
"""Rows that choose a setting, and which of them learn and which are held out each time."""


def kinds_of(config: CompareConfig) -> list[BaselineName]:
    """Return which baselines a configuration needs, the slowest last."""
    return [] if config.baseline is None else config.baseline.kinds


def predictor_of(kind: BaselineName, task: str) -> str:
    """Return what stands in the fold table in place of a predictor."""
    named = {LINEAR: ("logistic", "ridge"), GRID_SEARCH: ("svm", "krr"), BOOSTING: ("trees", "trees")}
    of_classes, of_numbers = named.get(kind, ("constant", "constant"))
    return of_classes if task == "classification" else of_numbers


def settings_of(kind: BaselineName, baseline: BaselineConfig) -> str:
    """Return the settings of a baseline, for the keys of the store."""
    if kind == GRID_SEARCH:
        searched = baseline.model_dump_json(exclude={"boosting", "without"})
        return f"centered, alignment on {SEARCHED_ROWS} rows, {searched}"
    if kind == LINEAR:
        return f"{ALPHAS}, alignment on {SEARCHED_ROWS} rows"
    return repr((LEAVES, RATES)) if kind == BOOSTING else ""


def search(job: TrialJob, kind: BaselineName) -> dict[str, Any]:
    """Return the row of the fold table of one trial.

    The rows that choose and the rows that train are those of every learner: with a validation fold the best setting is
    fitted on the training folds alone, or with `refit` on both, without one on all folds that validated each other.
    """
    started = time.perf_counter()
    dataset, folds = load_dataset(job.ref), load_folds(job.statistics)
    trial, target = job.trial, dataset.target
    metric = metric_for(job.config.protocol.metric, target)
    training, test = rows_of(folds, trial.final), np.flatnonzero(folds == trial.test)
    rows, parts = _choosing(trial, folds)
    if kind == GRID_SEARCH and len(rows) > SEARCHED_ROWS:
        some = _every_kth(target.values[rows])
        rows, parts = rows[some], [(learning[some], held_out[some]) for learning, held_out in parts]
    trivial = metric.trivial_error(target.take(test), target.take(training))
    if kind == CONSTANT:  # it depends on the metric alone
        constant = [metric.trivial_error(target.take(rows[held]), target.take(rows[of])) for of, held in parts]
        fitted = FittedBaseline(trivial, np.array([[np.mean(constant)]]))
    else:
        fitted = _fitted(job, kind, dataset, metric, (rows, parts), training, test)
    result = FoldResult(
        error=fitted.error,
        trivial_error=trivial,
        candidate=fitted.candidate,
        position=fitted.position,
        validation_errors=fitted.errors[fitted.candidate],
        candidate_errors=fitted.errors,
        C=fitted.C,
        edge=False,
        n_train=len(training),
        n_test=len(test),
    )
    kernel: dict[str, Any] = {"n_kernels": 0, "weights": [], "kernels": []}
    if (gamma := fitted.params.get("gamma")) is not None:
        kernel = {"n_kernels": 1, "weights": [1.0], "kernels": [f"gaussian gamma={gamma:.4g}"]}
        kernel["parameters"] = [[gamma**-0.5]]
    seconds = time.perf_counter() - started
    return {
        **trial_columns(job.ref, metric.shown(target), job.statistics, folds, trial, result),
        "learner": BASELINE_TITLES[kind],
        "algorithm": kind,
        "predictor": predictor_of(kind, target.task),
        "params": json.dumps(fitted.params),
        "alignment": _alignment(kind, dataset, training, fitted.params),
        "test_alignment": None,
        "seconds_weights": 0.0,
        "seconds_fit": seconds,
        "seconds_pass": 0.0,
        **kernel,
        HELD_OUT: _predict_held_out(fitted, target, kept_test_rows(job, folds)),
    }


@dataclass(frozen=True)
class FittedBaseline:
    """What the validation rows chose, fitted on the training rows.

    Attributes
    ----------
    error : float
        On the test rows.
    errors : ndarray of shape (n_candidates, L)
        On the validation rows.
    candidate, position : int
        Place of the chosen setting among the errors.
    C : float
        The chosen value along the grid; NaN where there is none.
    params : dict of str to float
        The chosen setting.
    estimator : estimator of scikit-learn, optional
        Fitted on `X`; None of the best constant.
    X : ndarray or CSR matrix, optional
        All rows as the estimator reads them.
    sigmoid : ndarray of shape (2,), optional
        Slope and offset that turn scores into probabilities, where the metric needs them.
    """

    error: float
    errors: np.ndarray
    candidate: int = 0
    position: int = 0
    C: float = np.nan
    params: dict[str, float] = field(default_factory=dict)
    estimator: Any = None
    X: Rows | None = None
    sigmoid: np.ndarray | None = None


def _predict_held_out(fitted: FittedBaseline, target: Target, rows: np.ndarray) -> HeldOutPredictions | None:
    """Return predictions for some rows; None of the best constant."""
    estimator = fitted.estimator
    if estimator is None or fitted.X is None:
        return None
    X = fitted.X[rows]
    scores = likely = None
    with threadpool_limits(1, user_api="openmp"):  # few rows
        predicted = np.asarray(estimator.predict(X))
        if target.task == "classification" and len(estimator.classes_) == len(target.classes):
            if hasattr(estimator, "predict_proba"):
                likely = np.asarray(estimator.predict_proba(X))
            else:
                scores = np.asarray(estimator.decision_function(X))
    if scores is not None and fitted.sigmoid is not None:
        likely = probabilities(scores, fitted.sigmoid)
    measured = target.take(rows).values
    return HeldOutPredictions(target.task, target.classes, rows, measured, predicted, scores, likely)


def _every_kth(values: np.ndarray) -> np.ndarray:
    """Return positions of at most `SEARCHED_ROWS` rows, evenly spaced in the order of their targets."""
    ordered = np.argsort(values, kind="stable")
    return ordered[:: -(-len(ordered) // SEARCHED_ROWS)]


def _alignment(kind: BaselineName, dataset: Dataset, training: np.ndarray, params: dict[str, float]) -> float | None:
    """Return the centered alignment of the kernel of a baseline with the target; None of a baseline without kernel.

    It is measured on at most `SEARCHED_ROWS` training rows.
    """
    target = dataset.target
    if kind not in (LINEAR, GRID_SEARCH) or target.values.ndim > 1:
        return None
    rows = np.sort(training[_every_kth(target.values[training])])
    X, Y = dataset.X[rows], target.Y[rows]
    if kind == LINEAR:
        features = StandardScaler(with_mean=not sparse.issparse(X)).fit_transform(X)
        K = linear_kernel(features)
    else:
        K = rbf_kernel(X, gamma=params["gamma"])
    weights = None if dataset.weights is None else dataset.weights[rows]
    try:
        return centered_alignment(K, Y @ Y.T, weights)
    except ValueError:  # features or targets of these rows are constant
        return None


def _fitted(
    job: TrialJob,
    kind: BaselineName,
    dataset: Dataset,
    metric: Metric,
    choosing: Choosing,
    training: np.ndarray,
    test: np.ndarray,
) -> FittedBaseline:
    """Return the best setting, fitted on the training rows, with its test error and all validation errors."""
    target, (rows, parts) = dataset.target, choosing
    X, estimator, values, grid = _tried(kind, job.config.baseline, dataset, training)
    chosen_from, y = X[rows], target.values[rows]
    # Threads of boosting that wait for each other cost more than a fit of few rows, on busy cores a hundred times.
    with blas_threads_for(len(rows)), threadpool_limits(1 if len(rows) <= ONE_THREAD else None, user_api="openmp"):
        found = GridSearchCV(
            estimator,
            {name: list(of) for name, of in values.items()},
            scoring=_scoring(metric, target),
            cv=[(np.flatnonzero(learning), np.flatnonzero(held_out)) for learning, held_out in parts],
            refit=False,
        ).fit(chosen_from, y)
        errors = np.empty([len(of) for of in values.values()])
        for at, score in zip(found.cv_results_["params"], found.cv_results_["mean_test_score"], strict=True):
            errors[tuple(of.index(at[name]) for name, of in values.items())] = -score
        errors = np.atleast_2d(errors)
        # As for the learners; of a few rates no one is like its neighbors.
        candidate, position = best_on_grid(errors, smooth=job.trial.refit and kind == GRID_SEARCH)
        chosen = {name: of[at] for (name, of), at in zip(values.items(), (candidate, position), strict=False)}
        best, sigmoid = estimator.set_params(**chosen), None
        if metric.response == "probabilities" and not hasattr(best, "predict_proba"):
            scores = [best.fit(chosen_from[of], y[of]).decision_function(chosen_from[held]) for of, held in parts]
            sigmoid = fit_calibration(np.concatenate(scores), np.concatenate([y[held] for _, held in parts]), None)
        best.fit(X[training], target.values[training])
        error = metric.measure(target.take(test), _told(best, X[test], metric, sigmoid), None)
    params = {name.rpartition("__")[2]: value for name, value in [*chosen.items()][:1]}
    return FittedBaseline(error, errors, candidate, position, grid[position], params, best, X, sigmoid)


def _tried(
    kind: BaselineName, baseline: BaselineConfig | None, dataset: Dataset, training: np.ndarray
) -> tuple[Rows, Any, dict[str, Sequence[float]], Sequence[float]]:
    """Return the rows and the estimator of a baseline, and what the validation rows choose among.

    Values of a setting and of a parameter along a grid, and the grid in the terms of the fold table.
    """
    X, of_classes = dataset.X, dataset.target.task == "classification"
    if kind == LINEAR:  # features of sparse rows are scaled and not centered
        model: Any = LogisticRegression(max_iter=1000) if of_classes else RidgeCV(ALPHAS)
        return X, make_pipeline(StandardScaler(with_mean=not sparse.issparse(X)), model), {}, [np.nan]
    if kind == BOOSTING:  # categories and gaps as such
        categories = None
        if dataset.table is not None:
            X, categories = dataset.table.for_trees(np.asarray(X))
        elif sparse.issparse(X):
            X = X.toarray()
        options = {"categorical_features": categories, "random_state": 0}
        trees: Any = HistGradientBoostingRegressor(**options)
        if of_classes:
            trees = HistGradientBoostingClassifier(**options)
        return X, trees, {"max_leaf_nodes": LEAVES, "learning_rate": RATES}, RATES
    assert baseline is not None
    gammas, grid, scale = grid_values(baseline.gammas), grid_values(baseline.grid), 1.0
    if not baseline.absolute:
        of = X[training]
        mean = of.mean()
        variance = (of.multiply(of) if sparse.issparse(of) else of * of).mean() - mean * mean
        scale = 1 / (of.shape[1] * float(variance)) if variance > 0 else 1.0
    gammas = [gamma * scale for gamma in gammas]
    if of_classes:
        return X, SVC(kernel="rbf"), {"gamma": gammas, "C": grid}, grid
    alphas = [1 / C for C in grid]
    return X, CenteredKernelRidge(), {"gamma": gammas, "alpha": alphas}, grid


class CenteredKernelRidge(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """`KernelRidge` with a Gaussian kernel and an intercept that is not penalized: kernel and target are centered."""

    def __init__(self, gamma: float = 1.0, alpha: float = 1.0) -> None:
        self.gamma, self.alpha = gamma, alpha

    def fit(self, X: Rows, y: np.ndarray) -> CenteredKernelRidge:
        """Fit on training rows."""
        K = rbf_kernel(X, gamma=self.gamma)
        self.X_fit_, self.centerer_, self.intercept_ = X, KernelCenterer().fit(K), y.mean()
        self.ridge_ = KernelRidge(alpha=self.alpha, kernel="precomputed")
        self.ridge_.fit(self.centerer_.transform(K, copy=False), y - self.intercept_)
        return self

    def predict(self, X: Rows) -> np.ndarray:
        """Return the predictions for new rows."""
        K = self.centerer_.transform(rbf_kernel(X, self.X_fit_, gamma=self.gamma), copy=False)
        return np.asarray(self.ridge_.predict(K) + self.intercept_)


def _choosing(trial: Trial, folds: np.ndarray) -> Choosing:
    """Return the rows that choose the setting of a trial, and which of them learn and which are held out each time."""
    choosing = inner_trials(trial) if trial.validation is None else [trial]
    validating = [of.validation for of in choosing if of.validation is not None]
    rows = rows_of(folds, [*trial.training, *validating])
    return rows, [(np.isin(folds[rows], of.training), folds[rows] == of.validation) for of in choosing]


def _told(estimator: Any, X: Rows, metric: Metric, sigmoid: np.ndarray | None) -> np.ndarray:
    """Return what an estimator says of rows: predictions, scores, or probabilities, its own where it has some."""
    if metric.response == "predictions":
        return np.asarray(estimator.predict(X))
    if metric.response == "probabilities" and sigmoid is None:
        return np.asarray(estimator.predict_proba(X))
    scores = np.asarray(estimator.decision_function(X))
    return scores if sigmoid is None else probabilities(scores, sigmoid)


def _scoring(metric: Metric, target: Target) -> Any:
    """Return a scorer: less a metric's error; a sigmoid is fitted on the rows that choose, as for the learners."""

    def score(estimator: Any, X: Rows, y: np.ndarray) -> float:
        sigmoid = None
        if metric.response == "probabilities" and not hasattr(estimator, "predict_proba"):
            sigmoid = fit_calibration(np.asarray(estimator.decision_function(X)), y, None)
        return -metric.measure(replace(target, values=y), _told(estimator, X, metric, sigmoid), None)

    return score
