"""From a comparison to one model: what the validation folds choose, learned on all rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from prefect import get_run_logger
from scipy import sparse

from learnkernels.conf.errors import InputError, did_you_mean, input_errors, listed, option
from learnkernels.conf.schema import (
    OF_PROBABILITIES,
    CompareConfig,
    LearnerConfig,
    OwnConfig,
    PrecomputedConfig,
    grid_values,
)
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
from ..store import earlier_versions, keep, kept, result_key, store_path, versions
from ..workers.cluster import Advance, DaskPool
from .registry import MODEL, PLACE, ModelVersion

OF_THE_PLACE = {"data_dir", "dask", "parallel", "tracking", "promotion_margin", "drift"}
"""Keys that do not change the model: how and where a run computes and leaves evidence, when to warn or promote."""


@dataclass(frozen=True)
class ModelChoice:
    """What the protocol chose.

    Attributes
    ----------
    learner : LearnerConfig
        With the parameters that were chosen, and nothing left to tune.
    predictor : str
    C : float
        C.
    validation_error : float
        Mean over the trials, for this learner, these parameters and this C.
    candidates : tuple of dict
        One row per compared learner, for reports: its best setting and its errors.
    about : dict
        What the trials say of the chosen learner: `test_error`, `test_error_sd`, `metric`, `relative_error`.
    """

    learner: LearnerConfig
    predictor: str
    C: float
    validation_error: float
    candidates: tuple[dict[str, Any], ...]
    about: dict[str, Any]


def training_config(
    config: CompareConfig, dataset: str | None, learner: str | None, by_command: bool = False
) -> CompareConfig:
    """Return a configuration with one data set, and the learners among which the protocol chooses.

    Parameters
    ----------
    config : CompareConfig
        What a user has written.
    dataset, learner : str, optional
        Names in reports of the data set to learn from and of the only learner to consider; needed for the data set
        where the configuration has several.
    by_command : bool
        Whether messages name the options of a command, or the arguments of a function.

    Raises
    ------
    InputError
        There is no such data set or learner, the data set is not named, or what is left has no value for new rows:
        base kernels that are stored matrices or custom, a learner that learns no kernel.
    """
    labels, titles = [data.label for data in config.datasets], [one.title for one in config.learners]
    if dataset is None and len(labels) > 1:
        raise InputError(
            f"datasets: a model learns from one data set, got {', '.join(labels)}; name one with "
            f"{option('dataset', by_command)}."
        )
    for given, valid, what in ((dataset, labels, "dataset"), (learner, titles, "learner")):
        if given is not None and given not in valid:
            meant = did_you_mean(given, valid)
            name = option(what, by_command, given)
            raise InputError(f"{name}: {meant}the configuration has {', '.join(valid)}; name one of them.")
    data = next(data for data in config.datasets if dataset in (None, data.label))
    learners = tuple(one for one in config.learners if learner in (None, one.title))
    chosen = config.on(data).model_copy(update={"learners": learners, "baseline": None})
    if any(isinstance(family, PrecomputedConfig) for family in chosen.kernels):
        raise InputError(
            "kernels: family precomputed has no values for new rows, so no model can be trained on it; name the "
            "families that the matrices were made from."
        )
    for family in chosen.kernels:
        if isinstance(family, OwnConfig):
            raise InputError(
                f"kernels: a model holds numbers and no code, so none with family {family.family}, which is your own, "
                "can be kept; take families of this package, or fit an estimator where the class is at hand."
            )
    for one in chosen.learners:
        if not learner_class(one.name).learns_kernel:
            raise InputError(
                f"learners: {one.title} learns no kernel, so no model can be trained with it; leave it out, or name "
                f"another with {option('learner', by_command)}."
            )
    return chosen


def require_columns(ref: DatasetRef, ignore: Sequence[str]) -> None:
    """Raise InputError where `drift.ignore` names what is no column of a data set."""
    dataset = load_dataset(ref)
    known = dataset.features if dataset.table is None else (*dataset.table.names, *dataset.table.left_out)
    if unknown := [name for name in ignore if name not in known]:
        raise InputError(
            f"drift.ignore: data set {ref.name} has no column {listed(unknown)}; {did_you_mean(unknown[0], known)}"
            "correct the name, or leave it out."
        )


def choose(config: CompareConfig, results: Sequence[run_learner.FoldsRef]) -> ModelChoice:
    """Return the learner, its parameters and C of the lowest validation error, the mean over all trials.

    Parameters
    ----------
    config : CompareConfig
        With one data set.
    results : sequence of FoldsRef
        One a learner, in their order.

    Returns
    -------
    choice : Choice
        Ties go to the first learner, then to the smallest C, then to the first combination of `tune`. A learner
        with ``tune_by: alignment`` takes the combination that most trials chose by alignment.
    """
    grid = grid_values(config.protocol.grid)
    rows, found = [], []
    for learner, of in zip(config.learners, results, strict=True):
        folds = read_folds([of])
        errors = _mean_errors(folds)
        position, candidate = divmod(int(errors.T.argmin()), len(errors))
        setting, summary = learner.settings()[candidate], summarize(folds).iloc[0]
        chosen = learner.model_copy(update={"params": setting, "tune": {}, "tune_by": "error"})
        about = {
            "metric": str(summary.metric),
            "test_error": float(summary.error_mean),
            "test_error_sd": None if np.isnan(summary.error_sd) else float(summary.error_sd),
            "relative_error": float(summary.relative_error),
        }
        error = float(errors[candidate, position])
        found.append(ModelChoice(chosen, of.predictor, float(grid[position]), error, (), about))
        rows.append(
            {
                "learner": learner.title,
                "parameters": ", ".join(f"{name}={value}" for name, value in setting.items()),
                "C": f"{grid[position]:g}",
                "validation error": f"{error:.4g}",
                "test error": f"{summary.error_mean:.4g}",
                "alignment": f"{summary.alignment_mean:.3f}",
            }
        )
    best = min(range(len(found)), key=lambda i: found[i].validation_error)
    rows[best]["learner"] += " *"
    return replace(found[best], candidates=tuple(rows))


def _mean_errors(folds: pd.DataFrame) -> np.ndarray:
    """Return the mean validation error of each candidate along the grid, infinite for those seldom considered."""
    errors = np.array([[list(row) for row in table] for table in folds["candidate_errors"]])  # (trials, candidates, L)
    considered = np.isfinite(errors).all(axis=2)
    often = considered.sum(axis=0)
    mean = np.full(errors.shape[1:], np.inf)
    for candidate in np.flatnonzero(often == often.max()):
        mean[candidate] = errors[considered[:, candidate], candidate].mean(axis=0)
    return mean


@step("learn {choice.learner.title} on all rows of {ref.name}")
def fit_on_all_rows(
    ref: DatasetRef,
    statistics: StatisticsRef,
    choice: ModelChoice,
    config: CompareConfig,
    pool: DaskPool,
    advance: Advance,
) -> tuple[Path, dict[str, Any]]:
    """Learn the chosen kernel and its predictor on every row, unless the store has that model.

    Returned are the model's file, and what it says about itself. The statistics of all rows are those of all folds
    together, so a cross-validation leaves nothing more to compute. Where the predictor is ``auto``, all rows may need
    another one than those of a trial.
    """
    log, dataset = get_run_logger(), load_dataset(ref)
    found = run_learner.predictor_for(config, choice.learner, ref, ref.n_rows)
    options = run_learner.predictor_options(config, found.predictor.name)
    predictor, data = as_predictor(found.predictor.name, **options), config.datasets[0]
    if predictor.name != choice.predictor:
        log.warning("%s: %s chose C in the trials, and all rows take %s", ref.name, choice.predictor, found.reason)
    recipe = config.model_copy(update={"learners": (choice.learner,)})
    about: dict[str, Any] = {
        "name": config.name,
        "dataset": ref.name,
        "digest": ref.digest,
        "task": ref.task,
        "target": data.target,
        "drop": [*data.drop, *data.where, *data.test, *data.sample_columns.values()],
        "n_rows": ref.n_rows,
        "predictor": predictor.name,
        "predictor_options": options,
        "predictor_reason": found.reason if options else "",
        "regularization": choice.C,
        "validation_error": choice.validation_error,
        **choice.about,
        "config": recipe.model_dump(mode="json", by_alias=True, exclude=OF_THE_PLACE),
        "versions": versions(),
        "earlier_versions": earlier_versions([Path(statistics.path)]),
    }
    settings = {"about": about, "reference_rows": REFERENCE_ROWS, "file": MODEL}
    entry = store_path("models", result_key("model", settings, [statistics.key, *sources([choice.learner])]))
    path = entry / MODEL
    if kept(entry, log.warning):
        log.info("%s: the model is in the store", ref.name)
        advance(1.0)
        return from_store((path, dict(Model.load(path).about)))
    low, high = (_dense(getattr(dataset.X, extreme)(axis=0)).ravel() for extreme in ("min", "max"))
    dataset = replace(dataset, X=pool.workers.local_view(dataset.X))
    kernel = _kernel_of_all_rows(ref.name, dataset, statistics, choice, config, pool)
    about |= {"alignment": kernel.alignment, "sampling": kernel.sampling and asdict(kernel.sampling)}
    estimator = keep_support(_fitted(kernel, dataset, ref.name, choice, config, predictor, pool))
    if dataset.table is None:
        model = Model(estimator, tuple(dataset.features), *dataset.scaling, about)
    else:
        model = Model.of_table(estimator, about)
    model = model.with_reference(dataset.X, low, high, config.protocol.seed)
    with keep(entry, [Path(statistics.path)]) as folder:
        model.save(folder / MODEL)
    advance(1.0)
    return path, about


def _kernel_of_all_rows(
    name: str, dataset: Dataset, statistics: StatisticsRef, choice: ModelChoice, config: CompareConfig, pool: DaskPool
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


def _fitted(
    kernel: LearnedKernel,
    dataset: Dataset,
    name: str,
    choice: ModelChoice,
    config: CompareConfig,
    predictor: Predictor,
    pool: DaskPool,
) -> KernelLearningClassifier | KernelLearningRegressor:
    """Return the estimator of a learned kernel, with its predictor on all rows."""
    learner = as_learner(choice.learner.name, choice.learner.params, dataset.features)
    family = kernel.family if learner.takes_family else None
    estimator: KernelLearningClassifier | KernelLearningRegressor
    shared: dict[str, Any] = {"normalize": config.normalize, "predictor": predictor, "centering": config.centering}
    if dataset.target.task == "regression":
        estimator = KernelLearningRegressor(family=family, learner=learner, alpha=1 / choice.C, **shared)
    else:
        likely = config.protocol.metric in OF_PROBABILITIES
        estimator = KernelLearningClassifier(family=family, learner=learner, C=choice.C, probability=likely, **shared)
    given = dataset.target.given
    workers = pool.workers if predictor.by_rows and len(given) > run_learner.PARALLEL_ROWS else None
    steps = run_learner.Steps(f"{name}, {choice.learner.title}", get_run_logger().info)
    if len(kernel.rows) < len(given):
        fit_on_kernel(estimator, kernel, given, X=dataset.X, workers=workers, progress=steps)
    else:
        fit_on_kernel(estimator, kernel, given[kernel.rows], workers=workers, progress=steps)
    set_table(estimator, dataset.table)
    return estimator


def place_of(config: CompareConfig) -> str:
    """Return where a configuration finds its data, its workers and its evidence, as JSON."""
    return json.dumps(config.model_dump(mode="json", by_alias=True, include=OF_THE_PLACE), sort_keys=True)


def recipe_of(model: Model, version: ModelVersion) -> CompareConfig:
    """Return the configuration that a model was trained with, one data set and one learner, in its place of today."""
    try:
        return CompareConfig.model_validate({**model.about["config"], **json.loads(version.tags.get(PLACE, "{}"))})
    except (KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"model {version.uri}: its configuration cannot be read ({reason}); train it again.") from None


def raw_example(ref: DatasetRef, rows: int = 5) -> pd.DataFrame:
    """Return the first rows of a data set as a user has them: named columns, not scaled."""
    dataset = load_dataset(ref)
    if dataset.table is not None:
        return pd.DataFrame(dataset.table.decode(np.asarray(dataset.X[:rows])))
    low, spread = dataset.scaling
    return pd.DataFrame(_dense(dataset.X[:rows]) * spread + low, columns=list(dataset.features))


def _dense(X: Any) -> np.ndarray:
    """Return numbers that may be sparse as an array."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X)


def describe_training(
    choice: ModelChoice, about: Mapping[str, Any], name: str, version: int, links: Mapping[str, str]
) -> str:
    """Return the report of a training."""
    return render(
        "training.md",
        name=name,
        version=version,
        learner=choice.learner.title,
        C=choice.C,
        about=about,
        reason=as_sentence(about["predictor_reason"]) if about["predictor_reason"] else "",
        candidates=choice.candidates,
        links=links,
    )
