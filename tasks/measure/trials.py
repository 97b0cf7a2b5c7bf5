"""One trial of one learner: weights from stored statistics, predictor and test error, here or on a worker."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from learnkernels.conf.errors import input_errors
from learnkernels.conf.schema import CompareConfig, LearnerConfig, grid_values
from learnkernels.kernels.engine.workers import Threads, Workers
from learnkernels.kernels.estimators import KernelLearningClassifier, KernelLearningRegressor
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.families.base import Rows
from learnkernels.kernels.learned import LearnedKernel
from learnkernels.kernels.learners import LearningProblem, learn_path
from learnkernels.kernels.learners.ensemble import KernelEnsemble
from learnkernels.kernels.predictors import as_predictor
from learnkernels.kernels.predictors.base import DEFAULTS
from learnkernels.kernels.protocol.evaluation import Evaluation, FoldResult, KernelPredictors, PredictorPath, Selection
from learnkernels.kernels.protocol.folds import Trial, inner_trials, rows_of
from learnkernels.kernels.protocol.metrics import metric_for
from learnkernels.kernels.solvers.conjugate_gradients import Progress
from learnkernels.kernels.statistics.gram import AlignmentStatistics, FeatureStatistics, GramStatistics
from learnkernels.kernels.statistics.sampled import SampledStatistics, statistics_from_arrays
from learnkernels.kernels.tables import shares_by_column
from learnkernels.kernels.targets import Task

from ..data.dataset import Dataset, DatasetRef, load_dataset
from ..data.row_files import RowFiles
from ..own import as_learner, learner_class
from ..store import checked, keep
from .families import build_family
from .held_out import evenly_spaced, predict_held_out, sampled_test_rows

ARRAYS = "statistics.npz"
"""What holds the statistics, in their entry of the store."""

PASS_SECONDS = "pass_seconds"
"""Name of the time of a pass among them."""


@dataclass(frozen=True)
class StatisticsRef:
    """Where the statistics of one data set, one set of base kernels and one drawing of the folds lie.

    Where each trial scales the features by its own training rows, they are those of one trial alone, `trial`, over its
    own data set, `rows`.
    """

    key: str
    path: str
    repeat: int
    trial: int | None = None
    rows: DatasetRef | None = None


def save_statistics(ref: StatisticsRef, statistics: AlignmentStatistics, folds: np.ndarray, seconds: float) -> None:
    """Write statistics, the fold of each row, and the seconds that the pass took."""
    with keep(Path(ref.path)) as folder:
        arrays = {"folds": folds, PASS_SECONDS: np.asarray(seconds), **statistics.to_arrays()}
        np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]


def share_of_pass(seconds: float, whole: AlignmentStatistics, training: AlignmentStatistics) -> float:
    """Return what of a pass a user pays who needs some training rows alone.

    That of their pairs, where statistics are of pairs; of rank-one features that of the rows, and a sample whole.
    """
    power = {GramStatistics: 2, FeatureStatistics: 1}.get(type(whole), 0)
    return seconds * (training.n_rows / whole.n_rows) ** power


class StoredStatistics(NamedTuple):
    """Statistics of a data set, the fold of each row, and the seconds that the pass over the rows took."""

    statistics: AlignmentStatistics
    folds: np.ndarray
    seconds: float


def load_statistics(ref: StatisticsRef) -> StoredStatistics:
    """Return the statistics of a reference.

    Raises
    ------
    InputError
        The store has lost or damaged them since the run began.
    """
    with np.load(checked(Path(ref.path)) / ARRAYS, allow_pickle=False) as arrays:
        return StoredStatistics(statistics_from_arrays(arrays), arrays["folds"], float(arrays[PASS_SECONDS]))


def load_folds(ref: StatisticsRef) -> np.ndarray:
    """Return the fold of each row of a reference, and nothing else."""
    with np.load(checked(Path(ref.path)) / ARRAYS, allow_pickle=False) as arrays:
        return np.asarray(arrays["folds"])


ALIGNED_ROWS = 1000
"""Most test rows that an alignment is measured on; their matrix is formed."""

HELD_OUT = "held_out"
"""Key of the predictions for test rows in the row of a trial; the fold table has no column of it."""


@dataclass(frozen=True)
class TrialJob:
    """Data of a trial, small enough to travel: what learners and baselines both need.

    Attributes
    ----------
    ref : DatasetRef
    statistics : StatisticsRef
        Of the trial's repeat; it holds the fold of each row.
    trial : Trial
    config : CompareConfig
        Of the data set: base kernels, normalization, centering, metric and the values of C.
    """

    ref: DatasetRef
    statistics: StatisticsRef
    trial: Trial
    config: CompareConfig


@dataclass(frozen=True)
class Held:
    """Data sets and statistics of some trials, for workers that do not see the store.

    Attributes
    ----------
    datasets : dict of str to Dataset
        By their places in the store.
    statistics : dict of str to StoredStatistics
        By theirs.
    """

    datasets: dict[str, Dataset]
    statistics: dict[str, StoredStatistics]

    @classmethod
    def of(cls, jobs: Sequence[TrialJob], folder: str = "") -> Held:
        """Return the data of some trials; files of tables in parts are in a folder that goes with the run."""
        datasets: dict[str, Dataset] = {}
        statistics: dict[str, StoredStatistics] = {}
        for ref in {job.ref.path: job.ref for job in jobs}.values():
            dataset = load_dataset(ref)
            if isinstance(dataset.X, RowFiles):
                dataset = replace(dataset, X=cast(Any, replace(dataset.X, folder=folder)))
            datasets[ref.path] = dataset
        for stored in {job.statistics.path: job.statistics for job in jobs}.values():
            statistics[stored.path] = load_statistics(stored)
        return cls(datasets, statistics)


@cache
def _warmed(predictor: str, task: Task) -> None:
    """Have this process import and compile what an exact predictor uses, so that no trial's seconds pay for it."""
    if predictor not in DEFAULTS.values():
        return
    X, y = np.linspace(-1, 1, 24)[:, None] ** np.arange(1, 4), np.arange(24) % 2
    of = KernelLearningClassifier if task == "classification" else KernelLearningRegressor
    of(learner="alignf", predictor=predictor).fit(X, y).predict(X)


def run_trial(
    job: TrialJob,
    learner: LearnerConfig,
    predictor: str,
    options: dict[str, Any] | None = None,
    chosen: Sequence[Sequence[float]] | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
    held: Held | None = None,
) -> dict[str, Any]:
    """Return the row of the fold table of one trial, and under `HELD_OUT` predictions for test rows.

    Parameters
    ----------
    job : TrialJob
        The trial.
    learner : LearnerConfig
        What learns the kernel.
    predictor, options : str, dict
        What is fitted on the kernel, and its options.
    chosen : sequence of sequence of float, optional
        Validation errors that have chosen already, in another repeat; a row a combination of `tune`, along the grid.
    workers : Workers, optional
        Who does the predictor's passes over the training rows; threads of this process by default.
    progress : callable, optional
        Is given the steps of a predictor's iterations and the largest residual.
    held : Held, optional
        What it would read; by default that is read from the store.

    Raises
    ------
    InputError
        The learner cannot be used on these rows, in the words of the data set and the learner.
    """
    with input_errors(f"data set {job.ref.name}: learner {learner.title}"):
        held = Held.of([job]) if held is None else held
        dataset, (statistics, folds, seconds) = held.datasets[job.ref.path], held.statistics[job.statistics.path]
        config, whole_grid = job.config, tuple(grid_values(job.config.protocol.grid))
        family = build_family(config.kernels, dataset.features)
        _warmed(predictor, dataset.target.task)
        settings, begun, weighing = learner.settings(), time.perf_counter(), 0.0
        X, target, trial = (workers or Threads()).local_view(dataset.X), dataset.target, job.trial
        measured, training = _measured_on(statistics, folds, trial.final)
        metric, row = metric_for(config.protocol.metric, target), learner_class(learner.name)
        evaluation = Evaluation(X, target, folds, metric, dataset.weights)

        def predictors(kernels: tuple[LearnedKernel, ...], rows: np.ndarray, grid: Sequence[float]) -> KernelPredictors:
            one = as_predictor(predictor, **(options or {}))
            return KernelPredictors(kernels, target, one, grid, X=X, training=rows, workers=workers, progress=progress)

        def fitted(
            of: AlignmentStatistics, rows: np.ndarray, settings: Sequence[dict[str, Any]], grid: Sequence[float]
        ) -> list[tuple[tuple[LearnedKernel, ...] | KernelEnsemble, PredictorPath]]:
            nonlocal weighing
            started = time.perf_counter()
            learners = [as_learner(learner.name, setting, dataset.features) for setting in settings]
            learned: list[tuple[LearnedKernel, ...] | KernelEnsemble] = [
                learn_path(one, family, X, of, target, grid, normalize=config.normalize, centering=config.centering)
                if one.learns_kernel
                else one.learn(LearningProblem(family, X, of, target, grid, config.normalize))
                for one in learners
            ]
            weighing += time.perf_counter() - started
            return [(one, one if isinstance(one, KernelEnsemble) else predictors(one, rows, grid)) for one in learned]

        if trial.validation is None and chosen is not None:
            selection = Selection.of(np.array(chosen), whole_grid)
        elif trial.validation is None:
            inner_rows = ((inner, _measured_on(statistics, folds, inner.training)) for inner in inner_trials(trial))
            fits = ((inner, [of for _, of in fitted(*rows, settings, whole_grid)]) for inner, rows in inner_rows)
            selection = evaluation.select_by_cross_validation(fits)
        else:
            choosing = _measured_on(statistics, folds, trial.training) if trial.refit else (measured, training)
            candidates = fitted(*choosing, settings, whole_grid)
            selection = evaluation.select([of for _, of in candidates], trial, learner.tune_by)
            (learned, hypotheses), position = candidates[selection.candidate], selection.position
            del candidates  # of the rows that trained, before others are fitted
        if trial.validation is None or trial.refit:
            setting, value, position = settings[selection.candidate], [selection.C], 0
            one = as_learner(learner.name, setting)
            if trial.refit and not isinstance(learned, KernelEnsemble) and one.searches_sample(choosing[0]):
                hypotheses = predictors(learned, training, value)
            else:
                ((learned, hypotheses),) = fitted(measured, training, [setting], value)
        result = evaluation.outcome(hypotheses, position, selection, training, trial)
        return {
            **trial_columns(job.ref, metric.shown(target), job.statistics, folds, trial, result),
            "learner": learner.title,
            "algorithm": learner.name,
            "predictor": predictor,
            "params": json.dumps(settings[result.candidate]),
            "seconds_weights": weighing,
            "seconds_fit": time.perf_counter() - begun - weighing,
            "seconds_pass": share_of_pass(seconds, statistics, measured) if row.takes_family else 0.0,
            **_learned_columns(learned, family, position, dataset.features),
            "notes": list(hypotheses.notes) if isinstance(hypotheses, KernelPredictors) and hypotheses.notes else None,
            "test_alignment": _test_alignment(learned, position, X, dataset, np.flatnonzero(folds == trial.test)),
            HELD_OUT: predict_held_out(
                hypotheses, position, X, target, training, kept_test_rows(job, folds), selection.sigmoid
            ),
        }


def _measured_on(
    statistics: AlignmentStatistics, folds: np.ndarray, some: tuple[int, ...]
) -> tuple[AlignmentStatistics, np.ndarray]:
    """Return the statistics of some folds, and the positions of all their rows."""
    training = statistics.restrict(some)
    if isinstance(training, SampledStatistics):
        return training, rows_of(folds, some)
    return training, training.rows


def _test_alignment(
    learned: tuple[LearnedKernel, ...] | KernelEnsemble, position: int, X: Rows, dataset: Dataset, rows: np.ndarray
) -> float | None:
    """Return the alignment of the chosen kernel on test rows, centered on these; None where there is none."""
    rows = evenly_spaced(rows, ALIGNED_ROWS)
    held_out, weights = dataset.target.take(rows), None if dataset.weights is None else dataset.weights[rows]
    if isinstance(learned, KernelEnsemble) or not np.ptp(held_out.Y, axis=0).any():
        return None
    return float(learned[position if len(learned) > 1 else 0].alignment_with(X[rows], held_out, weights))


def kept_test_rows(job: TrialJob, folds: np.ndarray) -> np.ndarray:
    """Return the test rows of a trial whose predictions are kept."""
    protocol = job.config.protocol
    n_trials = protocol.repeats * (protocol.folds or 1)
    return sampled_test_rows(np.flatnonzero(folds == job.trial.test), n_trials)


def trial_columns(
    ref: DatasetRef, metric: str, statistics: StatisticsRef, folds: np.ndarray, trial: Trial, result: FoldResult
) -> dict[str, Any]:
    """Return what the row of a trial says whatever was learned."""
    later = int(np.sum(folds > trial.test)) if ref.ordered else 0
    return {
        "dataset": ref.name,
        "task": ref.task,
        "metric": metric,
        "repeat": statistics.repeat,
        "fold": trial.index,
        "error": result.error,
        "n_train": result.n_train,
        "n_test": result.n_test,
        "n_rows": ref.n_rows - later,
        "trivial_error": result.trivial_error,
        "validation_error": float(np.nanmin(result.validation_errors)),
        "candidate_errors": result.candidate_errors.tolist(),
        "regularization": result.C,
        "grid_edge": result.edge,
    }


def _learned_columns(
    learned: tuple[LearnedKernel, ...] | KernelEnsemble, family: KernelFamily, position: int, features: Sequence[str]
) -> dict[str, Any]:
    """Return what a row says of the weights that were chosen."""
    if isinstance(learned, KernelEnsemble):
        weights = learned.weights[position].tolist()
        return {"weights": weights, "alignment": None, "kernels": list(family.names), "n_kernels": len(weights)}
    kernel = learned[position if len(learned) > 1 else 0]
    relevance, sampling = kernel.relevance, kernel.sampling
    shares = {} if relevance is None else shares_by_column(features, relevance)
    columns: dict[str, Any] = {
        "weights": kernel.weights.tolist(),
        "alignment": kernel.alignment,
        "kernels": list(kernel.family.names),
        "n_kernels": kernel.family.n_kernels,
        "parameters": None if kernel.parameters is None else kernel.parameters.tolist(),
        "history": list(kernel.history) or None,
        "relevance": list(shares.values()) or None,
        "features": list(shares) or None,
        "n_sampled": None if sampling is None else sampling.n_rows,
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
