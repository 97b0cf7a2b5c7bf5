"""Fit baselines of scikit-learn in the same trials as the learners."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KernelCenterer, StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from learnkernels.conf.errors import input_errors
from learnkernels.conf.schema import (
    BASELINE_TITLES,
    BaselineConfig,
    BaselineName,
    CompareConfig,
    grid_values,
)
from learnkernels.kernels.centering import centered_alignment
from learnkernels.kernels.engine.workers import blas_threads_for
from learnkernels.kernels.estimators import (
    FeaturePredictor,
    KernelLearningClassifier,
    KernelLearningRegressor,
    fit_on_features,
)
from learnkernels.kernels.estimators.boosting import tree_features, tree_threads
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.model_selection.evaluation import FoldResult
from learnkernels.kernels.model_selection.folds import Trial, choosing_trials, rows_of
from learnkernels.kernels.model_selection.metrics import Metric, metric_for
from learnkernels.kernels.predictors.calibration import fit_calibration, probabilities
from learnkernels.kernels.predictors.choice import best_on_grid
from learnkernels.kernels.targets import Target
from learnkernels.kernels.weights import weights_of_rows

from ..data.dataset import Dataset, DatasetRef, load_dataset
from .held_out import HeldOutPredictions
from .trials import HELD_OUT, TrialJob, kept_test_rows, load_folds, trial_columns

CONSTANT: Final = "constant"
LINEAR: Final = "linear"
GRID_SEARCH: Final = "grid-search"
BOOSTING: Final = "boosting"
ESTIMATOR: Final = "estimator"

SLOW = (GRID_SEARCH, BOOSTING, ESTIMATOR)

ALPHAS = tuple(10.0**k for k in range(-3, 5))

SEARCHED_ROWS = 2000

LEAVES = (8, 31)

RATES = (0.3, 0.1, 0.03)

Parts = list[tuple[np.ndarray, np.ndarray]]
"""Training and validation rows of inner trials, as scikit-learn's `cv`."""


def kinds_of(config: CompareConfig) -> list[BaselineName]:
    """Return the baselines that a configuration includes, the slowest last."""
    if config.baseline is None:
        return []
    return config.baseline.kinds


def serves(kind: BaselineName, ref: DatasetRef) -> bool:
    """Return whether a baseline supports a data set."""
    if kind == CONSTANT:
        return True
    if not ref.n_features:
        return False
    if kind == BOOSTING:
        return ref.n_outputs == 1
    if kind == ESTIMATOR:
        return ref.n_outputs == 1 and not ref.sparse
    return True


def predictor_of(kind: BaselineName, task: str) -> str:
    """Return a baseline's predictor as named in the table of results."""
    predictors = {
        LINEAR: "ridge",
        GRID_SEARCH: "krr",
        BOOSTING: "trees",
        ESTIMATOR: "auto",
    }
    if task == "classification":
        predictors |= {LINEAR: "logistic", GRID_SEARCH: "svm"}
    return predictors.get(kind, "constant")


def settings_of(kind: BaselineName, baseline: BaselineConfig) -> str:
    if kind == GRID_SEARCH:
        settings = baseline.model_dump_json(
            exclude={"boosting", "estimator", "without"}
        )
        return f"centered, alignment on {SEARCHED_ROWS} rows, {settings}"
    if kind == LINEAR:
        return f"{ALPHAS}, alignment on {SEARCHED_ROWS} rows"
    if kind == BOOSTING:
        return repr((LEAVES, RATES))
    return ""  # NUMERICS_VERSION is in the key


def run_baseline(job: TrialJob, kind: BaselineName) -> dict[str, Any]:
    """Tune and test a baseline on one split; return its row of results."""
    started = time.perf_counter()
    dataset = load_dataset(job.ref)
    target = dataset.target
    folds = load_folds(job.statistics)
    metric = metric_for(job.config.protocol.metric, target)
    training = rows_of(folds, job.trial.final)
    test = np.flatnonzero(folds == job.trial.test)
    trivial_error = metric.trivial_error(
        target.take(test),
        target.take(training),
        weights_of_rows(dataset.weights, test),
        weights_of_rows(dataset.weights, training),
    )
    if kind == CONSTANT:
        fitted = _best_constant(job.trial, target, metric, folds, trivial_error)
    elif kind == ESTIMATOR:
        with input_errors(f"data set {job.ref.name}: {BASELINE_TITLES[kind]}"):
            fitted = _fit_default_estimator(dataset, metric, training, test)
    else:
        fitted = _fit_best_setting(job, kind, dataset, metric, folds, training, test)
    result = FoldResult(
        error=fitted.error,
        trivial_error=trivial_error,
        candidate=fitted.candidate,
        position=fitted.position,
        validation_errors=fitted.errors[fitted.candidate],
        candidate_errors=fitted.errors,
        C=fitted.C,
        edge=False,
        n_train=len(training),
        n_test=len(test),
    )
    seconds = time.perf_counter() - started
    return {
        **trial_columns(
            job.ref,
            metric.name_in_tables(target),
            job.statistics,
            folds,
            dataset.times,
            job.trial,
            result,
        ),
        "learner": BASELINE_TITLES[kind],
        "algorithm": kind,
        "predictor": predictor_of(kind, target.task),
        "params": json.dumps(fitted.params),
        "alignment": _alignment(kind, dataset, training, fitted),
        "test_alignment": None,
        "seconds_weights": 0.0,
        "seconds_fit": seconds,
        "seconds_pass": 0.0,
        **_kernel_columns(fitted.params),
        HELD_OUT: _predict_held_out(fitted, target, kept_test_rows(job, folds)),
    }


def _kernel_columns(params: dict[str, float]) -> dict[str, Any]:
    if "gamma" not in params:
        return {"n_kernels": 0, "weights": [], "kernels": []}
    gamma = params["gamma"]
    return {
        "n_kernels": 1,
        "weights": [1.0],
        "kernels": [f"gaussian gamma={gamma:.4g}"],
        "parameters": [[gamma**-0.5]],
    }


@dataclass(frozen=True)
class FittedBaseline:
    """Baseline with its best parameters, fitted to a split's training rows.

    `errors`, shape (n_candidates, L), and C are NaN without a search.
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


def _best_constant(
    trial: Trial,
    target: Target,
    metric: Metric,
    folds: np.ndarray,
    trivial_error: float,
) -> FittedBaseline:
    rows = _choosing_rows(trial, folds)
    errors = [
        metric.trivial_error(target.take(rows[validation]), target.take(rows[training]))
        for training, validation in _inner_parts(trial, folds, rows)
    ]
    return FittedBaseline(trivial_error, np.array([[np.mean(errors)]]))


def _predict_held_out(
    fitted: FittedBaseline, target: Target, rows: np.ndarray
) -> HeldOutPredictions | None:
    estimator = fitted.estimator
    if estimator is None or fitted.X is None:
        return None
    X = fitted.X[rows]
    scores = None
    class_probabilities = None
    with threadpool_limits(1, user_api="openmp"):  # few rows
        predicted = np.asarray(estimator.predict(X))
        if target.task == "classification" and len(estimator.classes_) == len(
            target.classes
        ):
            if hasattr(estimator, "predict_proba"):
                class_probabilities = np.asarray(estimator.predict_proba(X))
            else:
                scores = np.asarray(estimator.decision_function(X))
    if scores is not None and fitted.sigmoid is not None:
        class_probabilities = probabilities(scores, fitted.sigmoid)
    measured = target.take(rows).values
    return HeldOutPredictions(
        target.task,
        target.classes,
        rows,
        measured,
        predicted,
        scores,
        class_probabilities,
    )


def _subsample(values: np.ndarray) -> np.ndarray:
    by_target = np.argsort(values, kind="stable")
    step = -(-len(by_target) // SEARCHED_ROWS)
    return by_target[::step]


def _alignment(
    kind: BaselineName, dataset: Dataset, training: np.ndarray, fitted: FittedBaseline
) -> float | None:
    """Return the alignment of a baseline's kernel on training rows."""
    target = dataset.target
    if kind == ESTIMATOR:
        estimator = fitted.estimator.estimator
        if estimator.sampling_.kernel < len(training):
            return None
        return float(estimator.alignment_)
    if kind not in (LINEAR, GRID_SEARCH) or target.values.ndim > 1:
        return None
    rows = np.sort(training[_subsample(target.values[training])])
    X = dataset.X[rows]
    Y = target.Y[rows]
    if kind == LINEAR:
        features = StandardScaler(with_mean=not sparse.issparse(X)).fit_transform(X)
        K = linear_kernel(features)
    else:
        K = rbf_kernel(X, gamma=fitted.params["gamma"])
    weights = weights_of_rows(dataset.weights, rows)
    try:
        return centered_alignment(K, Y @ Y.T, weights)
    except ValueError:  # features or targets of these rows are constant
        return None


def _fit_default_estimator(
    dataset: Dataset, metric: Metric, training: np.ndarray, test: np.ndarray
) -> FittedBaseline:
    target = dataset.target
    estimator: KernelLearningClassifier | KernelLearningRegressor = (
        KernelLearningRegressor()
    )
    if target.task == "classification":
        estimator = KernelLearningClassifier()
    fit = partial(
        fit_on_features,
        estimator,
        dataset.X[training],
        target.values[training],
        table=dataset.table,
        sample_weight=weights_of_rows(dataset.weights, training),
    )
    divisions = {"groups": dataset.groups, "time": dataset.times}
    row_divisions = {
        name: values[training]
        for name, values in divisions.items()
        if values is not None
    }
    with blas_threads_for(len(training)):
        try:
            fit(**row_divisions)
        except ValueError:
            if not row_divisions:
                raise
            # Rows may have one group or time, or early rows lack a class
            fit()
        predictor = FeaturePredictor(estimator)
        response = _response(predictor, dataset.X[test], metric, None)
    error = metric.measure(
        target.take(test), response, weights_of_rows(dataset.weights, test)
    )
    return FittedBaseline(
        error=error,
        errors=np.array([[np.nan]]),
        C=estimator.C_,
        estimator=predictor,
        X=dataset.X,
    )


def _fit_best_setting(
    job: TrialJob,
    kind: BaselineName,
    dataset: Dataset,
    metric: Metric,
    folds: np.ndarray,
    training: np.ndarray,
    test: np.ndarray,
) -> FittedBaseline:
    target = dataset.target
    space = _search_space(kind, job.config.baseline, dataset, training)
    rows = _choosing_rows(job.trial, folds)
    if kind == GRID_SEARCH and len(rows) > SEARCHED_ROWS:
        rows = rows[_subsample(target.values[rows])]
    parts = _inner_parts(job.trial, folds, rows)
    X = space.X[rows]
    y = target.values[rows]
    with blas_threads_for(len(rows)), tree_threads(len(rows)):
        errors = _validation_errors(space, X, y, parts, _scorer(metric, target))
        # Learning rates are too few for smoothing
        candidate, position = best_on_grid(
            errors, smooth=job.trial.refit and kind == GRID_SEARCH
        )
        setting = space.setting(candidate, position)
        estimator = space.estimator.set_params(**setting)
        sigmoid = None
        if metric.response == "probabilities" and not hasattr(
            estimator, "predict_proba"
        ):
            sigmoid = _fit_sigmoid(estimator, X, y, parts)
        estimator.fit(space.X[training], target.values[training])
        response = _response(estimator, space.X[test], metric, sigmoid)
        error = metric.measure(target.take(test), response, None)
    C = space.grid[position]
    params = dict([*setting.items()][:1])
    if kind == BOOSTING:  # its grid has learning rates
        C = np.nan
        params = setting
    return FittedBaseline(
        error=error,
        errors=errors,
        candidate=candidate,
        position=position,
        C=C,
        params=params,
        estimator=estimator,
        X=space.X,
        sigmoid=sigmoid,
    )


@dataclass(frozen=True)
class SearchSpace:
    """Estimator of a baseline, with parameter values to select from."""

    X: Rows
    estimator: Any
    values: dict[str, Sequence[float]]
    grid: Sequence[float]

    def setting(self, candidate: int, position: int) -> dict[str, float]:
        if not self.values:
            return {}
        (name, candidates), (name_along_grid, values_along_grid) = self.values.items()
        return {
            name: candidates[candidate],
            name_along_grid: values_along_grid[position],
        }


def _validation_errors(
    space: SearchSpace, X: Rows, y: np.ndarray, parts: Parts, scorer: Any
) -> np.ndarray:
    """Return mean validation errors, with an axis per parameter, of shape (1, L) for one."""
    search = GridSearchCV(
        space.estimator,
        {name: list(values) for name, values in space.values.items()},
        scoring=scorer,
        cv=parts,
        refit=False,
    )
    results = search.fit(X, y).cv_results_
    errors = np.empty([len(values) for values in space.values.values()])
    for setting, score in zip(
        results["params"], results["mean_test_score"], strict=True
    ):
        position = tuple(
            values.index(setting[name]) for name, values in space.values.items()
        )
        errors[position] = -score
    return np.atleast_2d(errors)


def _fit_sigmoid(estimator: Any, X: Rows, y: np.ndarray, parts: Parts) -> np.ndarray:
    scores = [
        estimator.fit(X[training], y[training]).decision_function(X[held_out])
        for training, held_out in parts
    ]
    labels = [y[held_out] for _, held_out in parts]
    return fit_calibration(np.concatenate(scores), np.concatenate(labels), None)


def _search_space(
    kind: BaselineName,
    baseline: BaselineConfig | None,
    dataset: Dataset,
    training: np.ndarray,
) -> SearchSpace:
    if kind == LINEAR:
        return _linear_space(dataset)
    if kind == BOOSTING:
        return _boosting_space(dataset)
    assert baseline is not None
    grid = grid_values(baseline.grid)
    scale = 1.0
    if not baseline.absolute:
        scale = _gamma_scale(dataset.X[training])
    gammas = [gamma * scale for gamma in grid_values(baseline.gammas)]
    if dataset.target.task == "classification":
        return SearchSpace(
            dataset.X, SVC(kernel="rbf"), {"gamma": gammas, "C": grid}, grid
        )
    alphas = [1 / C for C in grid]
    return SearchSpace(
        dataset.X, CenteredKernelRidge(), {"gamma": gammas, "alpha": alphas}, grid
    )


def _linear_space(dataset: Dataset) -> SearchSpace:
    model: Any = RidgeCV(ALPHAS)
    if dataset.target.task == "classification":
        model = LogisticRegression(max_iter=1000)
    # Centered rows would not be sparse
    scaler = StandardScaler(with_mean=not sparse.issparse(dataset.X))
    return SearchSpace(dataset.X, make_pipeline(scaler, model), {}, [np.nan])


def _boosting_space(dataset: Dataset) -> SearchSpace:
    X = dataset.X
    if sparse.issparse(X):
        X = X.toarray()
    X, categories = tree_features(dataset.table, X)
    options = {"categorical_features": categories, "random_state": 0}
    trees: Any = HistGradientBoostingRegressor(**options)
    if dataset.target.task == "classification":
        trees = HistGradientBoostingClassifier(**options)
    return SearchSpace(
        X, trees, {"max_leaf_nodes": LEAVES, "learning_rate": RATES}, RATES
    )


def _gamma_scale(X: Rows) -> float:
    """Return ``gamma="scale"`` of scikit-learn's `SVC`."""
    mean = X.mean()
    squares = X.multiply(X) if sparse.issparse(X) else X * X
    variance = squares.mean() - mean * mean
    if not variance > 0:
        return 1.0
    scale: float = 1 / (X.shape[1] * float(variance))
    return scale


class CenteredKernelRidge(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """`KernelRidge` with a Gaussian kernel and an unpenalized intercept."""

    def __init__(self, gamma: float = 1.0, alpha: float = 1.0) -> None:
        self.gamma = gamma
        self.alpha = alpha

    def fit(self, X: Rows, y: np.ndarray) -> CenteredKernelRidge:
        K = rbf_kernel(X, gamma=self.gamma)
        self.X_fit_ = X
        self.centerer_ = KernelCenterer().fit(K)
        self.intercept_ = y.mean(axis=0)
        self.ridge_ = KernelRidge(alpha=self.alpha, kernel="precomputed")
        self.ridge_.fit(self.centerer_.transform(K, copy=False), y - self.intercept_)
        return self

    def predict(self, X: Rows) -> np.ndarray:
        K = self.centerer_.transform(
            rbf_kernel(X, self.X_fit_, gamma=self.gamma), copy=False
        )
        return np.asarray(self.ridge_.predict(K) + self.intercept_)


def _choosing_rows(trial: Trial, folds: np.ndarray) -> np.ndarray:
    validation_folds = [
        inner.validation
        for inner in choosing_trials(trial)
        if inner.validation is not None
    ]
    return rows_of(folds, [*trial.training, *validation_folds])


def _inner_parts(trial: Trial, folds: np.ndarray, rows: np.ndarray) -> Parts:
    """Return training and validation rows, as positions in `rows`."""
    folds_of_rows = folds[rows]
    return [
        (
            np.flatnonzero(np.isin(folds_of_rows, inner.training)),
            np.flatnonzero(folds_of_rows == inner.validation),
        )
        for inner in choosing_trials(trial)
    ]


def _response(
    estimator: Any, X: Rows, metric: Metric, sigmoid: np.ndarray | None
) -> np.ndarray:
    if metric.response == "predictions":
        return np.asarray(estimator.predict(X))
    if metric.response == "probabilities" and sigmoid is None:
        return np.asarray(estimator.predict_proba(X))
    scores = np.asarray(estimator.decision_function(X))
    if sigmoid is None:
        return scores
    return probabilities(scores, sigmoid)


def _scorer(metric: Metric, target: Target) -> Any:
    def score(estimator: Any, X: Rows, y: np.ndarray) -> float:
        sigmoid = None
        if metric.response == "probabilities" and not hasattr(
            estimator, "predict_proba"
        ):
            sigmoid = fit_calibration(
                np.asarray(estimator.decision_function(X)), y, None
            )
        response = _response(estimator, X, metric, sigmoid)
        return -metric.measure(replace(target, values=y), response, None)

    return score
