"""Run a trial of a learner, in any process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from learnkernels.conf.errors import input_errors
from learnkernels.conf.schema import CompareConfig, LearnerConfig, grid_values
from learnkernels.kernels.engine.workers import Threads, Workers
from learnkernels.kernels.estimators import (
    KernelLearningClassifier,
    KernelLearningRegressor,
)
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.learned_kernel import LearnedKernel
from learnkernels.kernels.learners import LearningProblem, learn_path
from learnkernels.kernels.learners.ensemble import KernelEnsemble
from learnkernels.kernels.model_selection.evaluation import (
    Evaluation,
    FoldResult,
    KernelPredictors,
    PredictorPath,
    Selection,
)
from learnkernels.kernels.model_selection.folds import Trial, inner_trials, rows_of
from learnkernels.kernels.model_selection.metrics import metric_for
from learnkernels.kernels.predictors import as_predictor
from learnkernels.kernels.predictors.base import DEFAULTS
from learnkernels.kernels.solvers.conjugate_gradients import Progress
from learnkernels.kernels.statistics.gram import (
    AlignmentStatistics,
    FeatureStatistics,
    GramStatistics,
)
from learnkernels.kernels.statistics.sampled import (
    SampledStatistics,
    statistics_from_arrays,
)
from learnkernels.kernels.targets import Task
from learnkernels.kernels.weights import weights_of_rows

from ..data.dataset import Dataset, DatasetRef, load_dataset
from ..data.row_files import RowFiles
from ..plugins import as_learner, learner_class
from ..store import checked, keep
from .families import build_family
from .held_out import evenly_spaced, predict_held_out, sampled_test_rows
from .relevance import measure_relevance

ARRAYS = "statistics.npz"
"""File name of stored statistics."""

PASS_SECONDS = "pass_seconds"

HELD_OUT = "held_out"
"""Key of predictions in the row of a trial; not a column."""


@dataclass(frozen=True)
class StatisticsRef:
    """Reference to alignment statistics of base kernels on disk, for one repeat.

    If trials scale the features, they serve only `trial`, on its data set `rows`.
    """

    key: str
    path: str
    repeat: int
    trial: int | None = None
    rows: DatasetRef | None = None


def save_statistics(
    ref: StatisticsRef,
    statistics: AlignmentStatistics,
    folds: np.ndarray,
    seconds: float,
) -> None:
    """Write alignment statistics, folds and the computing time to disk."""
    with keep(Path(ref.path)) as folder:
        arrays = {
            "folds": folds,
            PASS_SECONDS: np.asarray(seconds),
            **statistics.to_arrays(),
        }
        np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]


def share_of_pass(
    seconds: float, all_rows: AlignmentStatistics, training: AlignmentStatistics
) -> float:
    """Estimate the seconds for alignment statistics of only the training rows.

    Time is quadratic in rows, linear for rank-one kernels, constant for a sample.
    """
    power = {GramStatistics: 2, FeatureStatistics: 1}.get(type(all_rows), 0)
    return seconds * (training.n_rows / all_rows.n_rows) ** power


class StoredStatistics(NamedTuple):
    """Alignment statistics of base kernels, each row's fold, and computing time."""

    statistics: AlignmentStatistics
    folds: np.ndarray
    seconds: float


def load_statistics(ref: StatisticsRef) -> StoredStatistics:
    """Return alignment statistics from disk; InputError if lost or damaged."""
    with np.load(checked(Path(ref.path)) / ARRAYS, allow_pickle=False) as arrays:
        return StoredStatistics(
            statistics_from_arrays(arrays), arrays["folds"], float(arrays[PASS_SECONDS])
        )


def load_folds(ref: StatisticsRef) -> np.ndarray:
    """Return each row's fold from disk, without the alignment statistics."""
    with np.load(checked(Path(ref.path)) / ARRAYS, allow_pickle=False) as arrays:
        return np.asarray(arrays["folds"])


@dataclass(frozen=True)
class TrialJob:
    """References to the data of one split, small enough to send to a worker."""

    ref: DatasetRef
    statistics: StatisticsRef
    trial: Trial
    config: CompareConfig


@dataclass(frozen=True)
class TrialData:
    """Data sets and statistics of splits, for workers without access to the disk."""

    datasets: dict[str, Dataset]
    statistics: dict[str, StoredStatistics]

    @classmethod
    def load(cls, jobs: Sequence[TrialJob], folder: str = "") -> TrialData:
        """Load the data of splits; workers copy rows below `folder`."""
        datasets = {}
        statistics = {}
        for job in jobs:
            if job.ref.path not in datasets:
                dataset = replace(load_dataset(job.ref), raw=None)
                datasets[job.ref.path] = _with_folder(dataset, folder)
            if job.statistics.path not in statistics:
                statistics[job.statistics.path] = load_statistics(job.statistics)
        return cls(datasets, statistics)


def _with_folder(dataset: Dataset, folder: str) -> Dataset:
    if isinstance(dataset.X, RowFiles):
        return replace(dataset, X=cast(Any, replace(dataset.X, folder=folder)))
    return dataset


@cache
def _warm_up(predictor: str, task: Task) -> None:
    """Import and compile an exact predictor before time is measured."""
    if predictor not in DEFAULTS.values():
        return
    X = np.linspace(-1, 1, 24)[:, None] ** np.arange(1, 4)
    y = np.arange(24) % 2
    if task == "classification":
        KernelLearningClassifier(learner="alignf", predictor=predictor).fit(
            X, y
        ).predict(X)
    else:
        KernelLearningRegressor(learner="alignf", predictor=predictor).fit(
            X, y
        ).predict(X)


Learned = tuple[LearnedKernel, ...] | KernelEnsemble
"""One kernel for all values of C or for each, or an ensemble."""


class LearnerFit(NamedTuple):
    """Learned kernels or ensemble, with a predictor for each C."""

    learned: Learned
    predictors: PredictorPath


class Training(NamedTuple):
    """Positions of training rows, and the alignment statistics of their folds."""

    statistics: AlignmentStatistics
    rows: np.ndarray


@dataclass
class TrialFitter:
    """Fits the learner and predictor of one split to rows."""

    learner: LearnerConfig
    config: CompareConfig
    predictor: str
    options: dict[str, Any]
    family: KernelFamily
    dataset: Dataset
    X: Rows
    workers: Workers | None
    progress: Progress | None
    seconds_weights: float = 0.0

    @property
    def grid(self) -> tuple[float, ...]:
        """Values of the regularization C to compare."""
        return tuple(grid_values(self.config.protocol.grid))

    def fit(
        self,
        training: Training,
        settings: Sequence[dict[str, Any]],
        grid: Sequence[float],
    ) -> list[LearnerFit]:
        """Fit the learner and its predictors for each setting of parameters."""
        started = time.perf_counter()
        learned = [
            self._learn(training.statistics, setting, grid) for setting in settings
        ]
        self.seconds_weights += time.perf_counter() - started
        fits = []
        for result in learned:
            if isinstance(result, KernelEnsemble):
                fits.append(LearnerFit(result, result))
            else:
                fits.append(
                    LearnerFit(result, self.fit_predictors(result, training.rows, grid))
                )
        return fits

    def _learn(
        self,
        statistics: AlignmentStatistics,
        setting: dict[str, Any],
        grid: Sequence[float],
    ) -> Learned:
        learner = as_learner(self.learner.name, setting, self.dataset.features)
        target = self.dataset.target
        normalize = self.config.normalize
        if not learner.learns_kernel:
            ensemble: KernelEnsemble = learner.learn(
                LearningProblem(
                    self.family, self.X, statistics, target, grid, normalize
                )
            )
            return ensemble
        return learn_path(
            learner,
            self.family,
            self.X,
            statistics,
            target,
            grid,
            normalize=normalize,
            centering=self.config.centering,
        )

    def fit_predictors(
        self,
        kernels: tuple[LearnedKernel, ...],
        rows: np.ndarray,
        grid: Sequence[float],
    ) -> KernelPredictors:
        """Train predictors with learned kernels, for each C in `grid`."""
        return KernelPredictors(
            kernels,
            self.dataset.target,
            as_predictor(self.predictor, **self.options),
            grid,
            X=self.X,
            training=rows,
            workers=self.workers,
            progress=self.progress,
        )


class OpenTrial(NamedTuple):
    fitter: TrialFitter
    evaluation: Evaluation
    statistics: AlignmentStatistics
    seconds_pass: float


def _open_trial(
    job: TrialJob,
    learner: LearnerConfig,
    predictor: str,
    options: dict[str, Any] | None,
    workers: Workers | None,
    progress: Progress | None,
    data: TrialData | None,
) -> OpenTrial:
    data = data or TrialData.load([job])
    dataset = data.datasets[job.ref.path]
    statistics, folds, seconds_pass = data.statistics[job.statistics.path]
    config = job.config
    target = dataset.target
    family = build_family(config.kernels, dataset.features)
    _warm_up(predictor, target.task)
    X = (workers or Threads()).local_view(dataset.X)
    fitter = TrialFitter(
        learner,
        config,
        predictor,
        options or {},
        family,
        dataset,
        X,
        workers,
        progress,
    )
    metric = metric_for(config.protocol.metric, target)
    evaluation = Evaluation(X, target, folds, metric, dataset.weights)
    return OpenTrial(fitter, evaluation, statistics, seconds_pass)


def run_trial(
    job: TrialJob,
    learner: LearnerConfig,
    predictor: str,
    options: dict[str, Any] | None = None,
    validation_errors: Sequence[Sequence[float]] | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
    data: TrialData | None = None,
) -> dict[str, Any]:
    """Fit, select and test a learner on one split; return its row of results.

    `validation_errors` choose the setting. InputError if the learner rejects the rows.
    """
    with input_errors(f"data set {job.ref.name}: learner {learner.title}"):
        fitter, evaluation, statistics, seconds_pass = _open_trial(
            job, learner, predictor, options, workers, progress, data
        )
        started = time.perf_counter()
        trial = job.trial
        family = fitter.family
        dataset = fitter.dataset
        X = fitter.X
        target = evaluation.target
        folds = evaluation.folds
        training = _training(statistics, folds, trial.final)
        if trial.validation is None:
            selected = _fit_by_cross_validation(
                fitter, evaluation, statistics, trial, training, validation_errors
            )
        else:
            selected = _fit_by_validation_fold(
                fitter, evaluation, statistics, trial, training
            )
        fit = selected.fit
        position = selected.position
        result = evaluation.outcome(
            fit.predictors, position, selected.selection, training.rows, trial
        )
        test_rows = np.flatnonzero(folds == trial.test)
        seconds_share = 0.0
        if learner_class(learner.name).takes_family:
            seconds_share = share_of_pass(seconds_pass, statistics, training.statistics)
        columns_of_trial = trial_columns(
            job.ref,
            metric_for(job.config.protocol.metric, target).name_in_tables(target),
            job.statistics,
            folds,
            dataset.times,
            trial,
            result,
        )
        seconds_fit = time.perf_counter() - started - fitter.seconds_weights
        return {
            **columns_of_trial,
            "learner": learner.title,
            "algorithm": learner.name,
            "predictor": predictor,
            "params": json.dumps(learner.settings()[result.candidate]),
            "seconds_weights": fitter.seconds_weights,
            "seconds_fit": seconds_fit,
            "seconds_pass": seconds_share,
            **_learned_columns(fit.learned, family, position),
            **_relevance_columns(
                job, fit.predictors, position, X, dataset, training.rows, test_rows
            ),
            "notes": _notes(fit.predictors),
            "test_alignment": _test_alignment(
                fit.learned, position, X, dataset, test_rows
            ),
            HELD_OUT: predict_held_out(
                fit.predictors,
                position,
                X,
                target,
                training.rows,
                kept_test_rows(job, folds),
                selected.selection.sigmoid,
            ),
        }


@dataclass(frozen=True)
class SettingJob:
    """Setting of a learner, in an inner trial of a split."""

    split: TrialJob
    inner: Trial
    setting: int


class SettingErrors(NamedTuple):
    """Validation error of a setting for each C, and seconds."""

    errors: np.ndarray
    seconds_weights: float
    seconds_fit: float


def setting_jobs(split: TrialJob, learner: LearnerConfig) -> list[SettingJob]:
    """Return a job per inner trial and setting."""
    return [
        SettingJob(split, inner, setting)
        for inner in inner_trials(split.trial)
        for setting in range(len(learner.settings()))
    ]


def validate_setting(
    job: SettingJob,
    learner: LearnerConfig,
    predictor: str,
    options: dict[str, Any] | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
    data: TrialData | None = None,
) -> SettingErrors:
    """Fit a learner with a setting, and measure it on the validation fold."""
    with input_errors(f"data set {job.split.ref.name}: learner {learner.title}"):
        fitter, evaluation, statistics, _ = _open_trial(
            job.split, learner, predictor, options, workers, progress, data
        )
        started = time.perf_counter()
        training = _training(statistics, evaluation.folds, job.inner.training)
        setting = learner.settings()[job.setting]
        (fit,) = fitter.fit(training, [setting], fitter.grid)
        errors = evaluation.validation_errors(fit.predictors, job.inner)
        seconds_fit = time.perf_counter() - started - fitter.seconds_weights
        return SettingErrors(errors, fitter.seconds_weights, seconds_fit)


def mean_by_setting(
    jobs: Sequence[SettingJob], results: Sequence[SettingErrors]
) -> np.ndarray:
    """Return mean errors over the inner trials, (n_settings, L)."""
    errors: dict[int, list[np.ndarray]] = {}
    for job, result in zip(jobs, results, strict=True):
        errors.setdefault(job.setting, []).append(result.errors)
    return np.array([np.mean(errors[setting], axis=0) for setting in sorted(errors)])


class SelectedFit(NamedTuple):
    """Fit with the selected parameters, the position of C in the grid, and the selection."""

    fit: LearnerFit
    position: int
    selection: Selection


def _fit_by_cross_validation(
    fitter: TrialFitter,
    evaluation: Evaluation,
    statistics: AlignmentStatistics,
    trial: Trial,
    training: Training,
    validation_errors: Sequence[Sequence[float]] | None,
) -> SelectedFit:
    settings = fitter.learner.settings()
    if validation_errors is None:
        fits = _inner_fits(fitter, statistics, evaluation.folds, trial)
        selection = evaluation.select_by_cross_validation(fits)
    else:
        selection = Selection.of(np.array(validation_errors), fitter.grid)
    (fit,) = fitter.fit(training, [settings[selection.candidate]], [selection.C])
    return SelectedFit(fit, 0, selection)


def _fit_by_validation_fold(
    fitter: TrialFitter,
    evaluation: Evaluation,
    statistics: AlignmentStatistics,
    trial: Trial,
    training: Training,
) -> SelectedFit:
    """Select parameters on the validation fold, and fit again with it if `trial.refit`."""
    settings = fitter.learner.settings()
    inner_training = training
    if trial.refit:
        inner_training = _training(statistics, evaluation.folds, trial.training)
    candidates = fitter.fit(inner_training, settings, fitter.grid)
    selection = evaluation.select(
        [fit.predictors for fit in candidates], trial, fitter.learner.tune_by
    )
    best = candidates[selection.candidate]
    if not trial.refit:
        return SelectedFit(best, selection.position, selection)
    del candidates  # frees memory
    setting = settings[selection.candidate]
    refitted = _refit(fitter, best, inner_training, training, setting, selection.C)
    return SelectedFit(refitted, 0, selection)


def _training(
    statistics: AlignmentStatistics, folds: np.ndarray, training_folds: tuple[int, ...]
) -> Training:
    restricted = statistics.restrict(training_folds)
    if isinstance(restricted, SampledStatistics):
        return Training(restricted, rows_of(folds, training_folds))
    return Training(restricted, restricted.rows)


def _inner_fits(
    fitter: TrialFitter,
    statistics: AlignmentStatistics,
    folds: np.ndarray,
    trial: Trial,
) -> Iterator[tuple[Trial, list[PredictorPath]]]:
    """Yield inner trials and their predictors, one at a time."""
    settings = fitter.learner.settings()
    for inner in inner_trials(trial):
        training = _training(statistics, folds, inner.training)
        fits = fitter.fit(training, settings, fitter.grid)
        yield inner, [fit.predictors for fit in fits]


def _refit(
    fitter: TrialFitter,
    best: LearnerFit,
    inner_training: Training,
    training: Training,
    setting: dict[str, Any],
    C: float,
) -> LearnerFit:
    if not isinstance(best.learned, KernelEnsemble):
        learner = as_learner(fitter.learner.name, setting)
        if learner.searches_sample(inner_training.statistics):
            return LearnerFit(
                best.learned, fitter.fit_predictors(best.learned, training.rows, [C])
            )
    (refitted,) = fitter.fit(training, [setting], [C])
    return refitted


def _notes(predictors: PredictorPath) -> list[str] | None:
    if isinstance(predictors, KernelPredictors) and predictors.notes:
        return list(predictors.notes)
    return None


def _kernel_at(kernels: tuple[LearnedKernel, ...], position: int) -> LearnedKernel:
    if len(kernels) == 1:
        return kernels[0]
    return kernels[position]


def _test_alignment(
    learned: Learned, position: int, X: Rows, dataset: Dataset, test_rows: np.ndarray
) -> float | None:
    if isinstance(learned, KernelEnsemble):
        return None
    rows = evenly_spaced(test_rows, 1000)
    target = dataset.target.take(rows)
    if not np.ptp(target.Y, axis=0).any():
        return None
    weights = weights_of_rows(dataset.weights, rows)
    return float(_kernel_at(learned, position).alignment_with(X[rows], target, weights))


def kept_test_rows(job: TrialJob, folds: np.ndarray) -> np.ndarray:
    """Return a split's test rows whose predictions are written to disk."""
    protocol = job.config.protocol
    n_trials = protocol.repeats * (protocol.folds or 1)
    return sampled_test_rows(np.flatnonzero(folds == job.trial.test), n_trials)


def trial_columns(
    ref: DatasetRef,
    metric: str,
    statistics: StatisticsRef,
    folds: np.ndarray,
    times: np.ndarray | None,
    trial: Trial,
    result: FoldResult,
) -> dict[str, Any]:
    """Return a split's columns of results that learners and baselines share."""
    n_rows = ref.n_rows
    if times is not None:
        # Rows later than the test rows are not used
        n_rows = int(np.sum(times <= times[folds == trial.test].max()))
    validation_error = float(result.validation_errors[result.position])
    return {
        "dataset": ref.name,
        "task": ref.task,
        "metric": metric,
        "repeat": statistics.repeat,
        "fold": trial.index,
        "error": result.error,
        "n_train": result.n_train,
        "n_test": result.n_test,
        "n_rows": n_rows,
        "trivial_error": result.trivial_error,
        "validation_error": None if np.isnan(validation_error) else validation_error,
        "candidate_errors": result.candidate_errors.tolist(),
        "regularization": result.C,
        "grid_edge": result.edge,
    }


def _relevance_columns(
    job: TrialJob,
    fitted: PredictorPath,
    position: int,
    X: Rows,
    dataset: Dataset,
    training: np.ndarray,
    test_rows: np.ndarray,
) -> dict[str, Any]:
    if job.statistics.repeat or job.trial.index:
        return {}
    relevance = measure_relevance(fitted, position, X, dataset, training, test_rows)
    if relevance is None:
        return {}
    return {"relevance": list(relevance.values()), "features": list(relevance)}


def _learned_columns(
    learned: Learned, family: KernelFamily, position: int
) -> dict[str, Any]:
    if isinstance(learned, KernelEnsemble):
        weights = learned.weights[position].tolist()
        return {
            "weights": weights,
            "alignment": None,
            "kernels": list(family.names),
            "n_kernels": len(weights),
        }
    kernel = _kernel_at(learned, position)
    columns: dict[str, Any] = {
        "weights": kernel.weights.tolist(),
        "alignment": kernel.alignment,
        "kernels": list(kernel.family.names),
        "n_kernels": kernel.family.n_kernels,
        "parameters": None if kernel.parameters is None else kernel.parameters.tolist(),
        "history": list(kernel.history) or None,
        "n_sampled": None if kernel.sampling is None else kernel.sampling.n_rows,
    }
    if kernel.certificate is not None:
        columns |= {
            "certificate": kernel.certificate.residual,
            "certificate_measure": kernel.certificate.measure,
            "certificate_tolerance": kernel.certificate.tolerance,
            "iterations": kernel.certificate.iterations,
            "objectives": list(kernel.certificate.objectives),
        }
    return columns
