"""Choose learner, parameters and C, and fit a model on all rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from prefect import get_run_logger
from scipy import sparse

from learnkernels.conf.errors import (
    InputError,
    did_you_mean,
    input_errors,
    listed,
    option,
    require_configured,
)
from learnkernels.conf.schema import (
    OF_PROBABILITIES,
    CompareConfig,
    LearnerConfig,
    OwnConfig,
    PrecomputedConfig,
    grid_values,
)
from learnkernels.kernels.base import progress_to
from learnkernels.kernels.estimators import (
    KernelLearningClassifier,
    KernelLearningRegressor,
    fit_on_kernel,
    keep_support,
    set_table,
)
from learnkernels.kernels.hypothesis_tests.drift import REFERENCE_ROWS
from learnkernels.kernels.learned_kernel import LearnedKernel
from learnkernels.kernels.learners import learn_path
from learnkernels.kernels.model import Model
from learnkernels.kernels.predictors import Predictor, as_predictor
from learnkernels.kernels.statistics.gram import AlignmentStatistics

from ..data.dataset import Dataset, DatasetRef, fold_seed, load_dataset
from ..measure import run_learner
from ..measure.families import build_family
from ..measure.fold_statistics import measure_statistics
from ..measure.trials import StatisticsRef, load_statistics
from ..naming import from_store, step
from ..plugins import as_learner, learner_class, sources
from ..reporting.markdown import render
from ..reporting.report import as_sentence
from ..reporting.tables import read_folds, summarize
from ..store import earlier_versions, is_stored, keep, result_key, store_path, versions
from ..workers.cluster import Advance, DaskPool
from .registry import MODEL, PLACE, ModelVersion

PLACE_KEYS = {"data_dir", "dask", "parallel", "tracking", "promotion_margin", "drift"}
"""Keys for computing, tracking, promotion and drift, without effect on models."""


@dataclass(frozen=True)
class ModelChoice:
    """Selected learner, parameters and C: with the lowest validation error.

    `validation_error` is a mean over trials. `candidates` have a row per compared
    learner, for reports; `about` has the test results.
    """

    learner: LearnerConfig
    predictor: str
    C: float
    validation_error: float
    candidates: tuple[dict[str, Any], ...]
    about: dict[str, Any]


def training_config(
    config: CompareConfig,
    dataset: str | None,
    learner: str | None,
    by_command: bool = False,
) -> CompareConfig:
    """Return the configuration for training a model on one data set.

    The label `dataset` is required if there are several data sets; `learner` is the
    title of the only learner to consider.
    """
    labels = [data.label for data in config.datasets]
    if dataset is None and len(labels) > 1:
        raise InputError(
            f"datasets: a model learns from one data set, got {', '.join(labels)}; name one with "
            f"{option('dataset', by_command)}."
        )
    if dataset is not None:
        require_configured(dataset, labels, option("dataset", by_command, dataset))
    if learner is not None:
        titles = [candidate.title for candidate in config.learners]
        require_configured(learner, titles, option("learner", by_command, learner))
    data = next(data for data in config.datasets if dataset in (None, data.label))
    learners = tuple(
        candidate for candidate in config.learners if learner in (None, candidate.title)
    )
    training = config.on(data).model_copy(
        update={"learners": learners, "baseline": None}
    )
    for family in training.kernels:
        if isinstance(family, PrecomputedConfig):
            raise InputError(
                "kernels: family precomputed has no values for new rows, so no model can be trained on it; name the "
                "families that the matrices were made from."
            )
        if isinstance(family, OwnConfig):
            raise InputError(
                f"kernels: a model holds numbers and no code, so none with family {family.family}, which is your own, "
                "can be kept; take families of this package, or fit an estimator where the class is at hand."
            )
    for candidate in training.learners:
        if not learner_class(candidate.name).learns_kernel:
            raise InputError(
                f"learners: {candidate.title} learns no kernel, so no model can be trained with it; leave it out, or "
                f"name another with {option('learner', by_command)}."
            )
    return training


def require_columns(ref: DatasetRef, ignore: Sequence[str]) -> None:
    dataset = load_dataset(ref)
    columns = list(dataset.features)
    if dataset.table is not None:
        columns = [*dataset.table.names, *dataset.table.left_out]
    unknown = [name for name in ignore if name not in columns]
    if unknown:
        raise InputError(
            f"drift.ignore: data set {ref.name} has no column {listed(unknown)}; {did_you_mean(unknown[0], columns)}"
            "correct the name, or leave it out."
        )


def choose(
    config: CompareConfig, results: Sequence[run_learner.FoldsRef]
) -> ModelChoice:
    """Select the learner, parameters and C with the lowest mean validation error.

    Ties go to the first learner, then the smallest C, then the first combination of
    `tune`.
    """
    choices = []
    rows = []
    for learner, result in zip(config.learners, results, strict=True):
        folds = read_folds([result])
        choice = _best_setting(config, learner, result, folds)
        summary = summarize(folds).iloc[0]
        choice.about.update(
            metric=str(summary.metric),
            test_error=float(summary.error_mean),
            test_error_sd=None
            if np.isnan(summary.error_sd)
            else float(summary.error_sd),
            relative_error=float(summary.relative_error),
        )
        choices.append(choice)
        rows.append(
            {
                "learner": learner.title,
                "parameters": ", ".join(
                    f"{name}={value}" for name, value in choice.learner.params.items()
                ),
                "C": f"{choice.C:g}",
                "validation error": f"{choice.validation_error:.4g}",
                "test error": f"{summary.error_mean:.4g}",
                "alignment": f"{summary.alignment_mean:.3f}",
            }
        )
    best = min(
        range(len(choices)), key=lambda position: choices[position].validation_error
    )
    rows[best]["learner"] += " *"
    return replace(choices[best], candidates=tuple(rows))


def _best_setting(
    config: CompareConfig,
    learner: LearnerConfig,
    result: run_learner.FoldsRef,
    folds: pd.DataFrame,
) -> ModelChoice:
    grid = grid_values(config.protocol.grid)
    errors = _mean_errors(folds)
    position, candidate = divmod(int(errors.T.argmin()), len(errors))
    params = learner.settings()[candidate]
    learner = learner.model_copy(
        update={"params": params, "tune": {}, "tune_by": "error"}
    )
    return ModelChoice(
        learner=learner,
        predictor=result.predictor,
        C=float(grid[position]),
        validation_error=float(errors[candidate, position]),
        candidates=(),
        about={},
    )


def _mean_errors(folds: pd.DataFrame) -> np.ndarray:
    """Return mean validation errors; infinite for candidates that some trials omit."""
    # (trials, candidates, L)
    errors = np.array(
        [[list(row) for row in table] for table in folds["candidate_errors"]]
    )
    is_considered = np.isfinite(errors).all(axis=2)
    n_trials = is_considered.sum(axis=0)
    means = np.full(errors.shape[1:], np.inf)
    for candidate in np.flatnonzero(n_trials == n_trials.max()):
        means[candidate] = errors[is_considered[:, candidate], candidate].mean(axis=0)
    return means


@step("learn {choice.learner.title} on all rows of {ref.name}")
def fit_on_all_rows(
    ref: DatasetRef,
    statistics: StatisticsRef,
    choice: ModelChoice,
    config: CompareConfig,
    pool: DaskPool,
    advance: Advance,
) -> tuple[Path, dict[str, Any]]:
    """Fit a model on all rows, and write its file; return file and facts."""
    log = get_run_logger()
    dataset = load_dataset(ref)
    selected = run_learner.predictor_for(config, choice.learner, ref, ref.n_rows)
    options = run_learner.predictor_options(config, selected.predictor.name)
    predictor = as_predictor(selected.predictor.name, **options)
    if predictor.name != choice.predictor:
        log.warning(
            "%s: %s chose C in the trials, and all rows take %s",
            ref.name,
            choice.predictor,
            selected.reason,
        )
    predictor_facts = {
        "predictor": predictor.name,
        "predictor_options": options,
        "predictor_reason": selected.reason if options else "",
    }
    about = _facts_of_model(ref, config, choice, predictor_facts, statistics)
    settings = {"about": about, "reference_rows": REFERENCE_ROWS, "file": MODEL}
    entry = store_path(
        "models",
        result_key("model", settings, [statistics.key, *sources([choice.learner])]),
    )
    path = entry / MODEL
    if is_stored(entry, log.warning):
        log.info("%s: the model is in the store", ref.name)
        advance(1.0)
        return from_store((path, dict(Model.load(path).about)))
    low = _dense(dataset.X.min(axis=0)).ravel()
    high = _dense(dataset.X.max(axis=0)).ravel()
    dataset = replace(dataset, X=pool.workers.local_view(dataset.X))
    kernel = _kernel_of_all_rows(ref.name, dataset, statistics, choice, config, pool)
    about |= {
        "alignment": kernel.alignment,
        "sampling": kernel.sampling and asdict(kernel.sampling),
    }
    estimator = keep_support(
        _fitted_estimator(kernel, dataset, ref.name, choice, config, predictor, pool)
    )
    if dataset.table is None:
        model = Model(estimator, tuple(dataset.features), *dataset.scaling, about)
    else:
        model = Model.of_table(estimator, about)
    model = model.with_reference(dataset.X, low, high, config.protocol.seed)
    with keep(entry, [Path(statistics.path)]) as folder:
        model.save(folder / MODEL)
    advance(1.0)
    return path, about


def _facts_of_model(
    ref: DatasetRef,
    config: CompareConfig,
    choice: ModelChoice,
    predictor_facts: Mapping[str, Any],
    statistics: StatisticsRef,
) -> dict[str, Any]:
    data = config.datasets[0]
    recipe = config.model_copy(update={"learners": (choice.learner,)})
    return {
        "name": config.name,
        "dataset": ref.name,
        "digest": ref.digest,
        "task": ref.task,
        "target": data.target,
        "classes": list(ref.classes),
        "drop": [*data.drop, *data.where, *data.test, *data.sample_columns.values()],
        "n_rows": ref.n_rows,
        **predictor_facts,
        "regularization": choice.C,
        "validation_error": choice.validation_error,
        **choice.about,
        "config": recipe.model_dump(mode="json", by_alias=True, exclude=PLACE_KEYS),
        "versions": versions(),
        "earlier_versions": earlier_versions([Path(statistics.path)]),
    }


def _kernel_of_all_rows(
    name: str,
    dataset: Dataset,
    statistics: StatisticsRef,
    choice: ModelChoice,
    config: CompareConfig,
    pool: DaskPool,
) -> LearnedKernel:
    family = build_family(config.kernels, dataset.features)
    with input_errors(f"data set {name}: learner {choice.learner.title}"):
        if config.protocol.split is None and statistics.trial is None:
            measured: AlignmentStatistics = load_statistics(statistics).statistics
        else:
            measured = measure_statistics(
                family,
                dataset.X,
                dataset.target.Y,
                None,
                config,
                fold_seed(config.protocol.seed, statistics.repeat),
                pool,
                lambda share: None,
                sample_weight=dataset.weights,
            )
        (kernel,) = learn_path(
            as_learner(choice.learner.name, choice.learner.params, dataset.features),
            family,
            dataset.X,
            measured,
            dataset.target,
            [choice.C],
            normalize=config.normalize,
            centering=config.centering,
        )
    return kernel


def _fitted_estimator(
    kernel: LearnedKernel,
    dataset: Dataset,
    name: str,
    choice: ModelChoice,
    config: CompareConfig,
    predictor: Predictor,
    pool: DaskPool,
) -> KernelLearningClassifier | KernelLearningRegressor:
    learner = as_learner(choice.learner.name, choice.learner.params, dataset.features)
    family = kernel.family if learner.takes_family else None
    estimator: KernelLearningClassifier | KernelLearningRegressor
    shared: dict[str, Any] = {
        "normalize": config.normalize,
        "predictor": predictor,
        "centering": config.centering,
    }
    if dataset.target.task == "regression":
        estimator = KernelLearningRegressor(
            family=family, learner=learner, alpha=1 / choice.C, **shared
        )
    else:
        likely = config.protocol.metric in OF_PROBABILITIES
        estimator = KernelLearningClassifier(
            family=family, learner=learner, C=choice.C, probability=likely, **shared
        )
    y = dataset.target.given
    workers = None
    if predictor.by_rows and len(y) > run_learner.PARALLEL_ROWS:
        workers = pool.workers
    log = get_run_logger()
    title = f"{name}, {choice.learner.title}"
    steps = run_learner.Steps(title, log.info)
    X = dataset.X
    if len(kernel.rows) == len(y):
        X = None  # the kernel has these rows
        y = y[kernel.rows]
    with progress_to(partial(log.info, "%s: %s", title)):
        fit_on_kernel(estimator, kernel, y, X=X, workers=workers, progress=steps)
    set_table(estimator, dataset.table)
    return estimator


def place_of(config: CompareConfig) -> str:
    """Return the configuration of data folder, workers and tracking as JSON."""
    return json.dumps(
        config.model_dump(mode="json", by_alias=True, include=PLACE_KEYS),
        sort_keys=True,
    )


def recipe_of(model: Model, version: ModelVersion) -> CompareConfig:
    try:
        return CompareConfig.model_validate(
            {**model.about["config"], **json.loads(version.tags.get(PLACE, "{}"))}
        )
    except (KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"model {version.uri}: its configuration cannot be read ({reason}); train it again."
        ) from None


def raw_example(ref: DatasetRef, rows: int = 5) -> pd.DataFrame:
    """Return a data set's first rows as a frame, unscaled, as an input example."""
    dataset = load_dataset(ref)
    if dataset.table is not None:
        return pd.DataFrame(dataset.table.decode(np.asarray(dataset.X[:rows])))
    low, spread = dataset.scaling
    return pd.DataFrame(
        _dense(dataset.X[:rows]) * spread + low, columns=list(dataset.features)
    )


def _dense(X: Any) -> np.ndarray:
    if sparse.issparse(X):
        return np.asarray(X.toarray())
    return np.asarray(X)


def describe_training(
    choice: ModelChoice,
    about: Mapping[str, Any],
    name: str,
    version: int,
    links: Mapping[str, str],
) -> str:
    return render(
        "training.md",
        name=name,
        version=version,
        learner=choice.learner.title,
        C=choice.C,
        about=about,
        reason=as_sentence(about["predictor_reason"])
        if about["predictor_reason"]
        else "",
        candidates=choice.candidates,
        links=links,
    )
