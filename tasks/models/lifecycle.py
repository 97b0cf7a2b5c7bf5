"""Register model versions, and record decisions on challengers and champions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig
from learnkernels.kernels.model import Model

from ..data.dataset import DatasetRef, copied_share, load_dataset
from ..data.infer_config import leaking_columns
from ..measure.run_learner import FoldsRef
from ..naming import step
from ..reporting.figures import learner_colors
from ..reporting.markdown import plain
from ..reporting.mlflow_datasets import dataset_inputs
from ..reporting.mlflow_pages import weight_metrics
from ..reporting.places import links_of_report
from ..reporting.prediction_figures import FOLDER, write_prediction_figures
from ..reporting.tables import read_folds
from ..reporting.tracking import PARENT, TrackedRun, log_run
from ..store import atomic_path, digest, file_digest
from . import promotion, registry, scoring, training
from .registry import ModelVersion


def require_model_name(name: str) -> None:
    """Raise InputError if a name is invalid for a model or its folder."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise InputError(
            f"model {name!r}: a registered model's name has up to 64 letters, digits, '.', '_' and '-', and starts "
            "with a letter or a digit; choose another."
        )


@step("register {name}")
def track_model(
    run: TrackedRun,
    config: CompareConfig,
    name: str,
    ref: DatasetRef,
    choice: training.ModelChoice,
    path: Path,
    about: Mapping[str, Any],
) -> ModelVersion:
    """Log a trained model to MLflow; register it unless equal to the newest version."""
    kernel = Model.load(path).estimator.kernel_
    measures = (
        "test_error",
        "test_error_sd",
        "relative_error",
        "validation_error",
        "alignment",
    )
    metrics = {key: about[key] for key in measures if about[key] is not None}
    metrics |= weight_metrics(kernel.family.names, kernel.shares)
    params = _params_of_training(config, ref, choice, about)
    params["n_kernels"] = kernel.family.n_kernels
    tags_of_training = {"model": name}
    if about.get("predictor_reason"):
        tags_of_training["predictor_reason"] = about["predictor_reason"]
    log_run(
        run,
        metrics,
        params,
        tags_of_training,
        dataset_inputs([ref], "training", config),
    )
    facts = _facts_of_training(config, ref)
    version = registry.newest_version(name)
    if version is not None and version.digest == file_digest(path):
        _update_tags(version, facts)
    else:
        version = _register(run, name, ref, choice, path, about, facts)
    title = choice.learner.title
    tags_of_run = {
        "model_version": str(version.version),
        "mlflow.runName": f"{name} v{version.version} {title}",
        "mlflow.runColor": learner_colors({title: choice.learner.name})[title],
    }
    log_run(run, tags=tags_of_run)
    return version


def _update_tags(version: ModelVersion, facts: Mapping[str, str]) -> None:
    changed = {
        key: fact for key, fact in facts.items() if version.tags.get(key) != fact
    }
    registry.tag_version(version.name, version.version, changed)
    get_run_logger().info(
        "%s: version %d is this very model; nothing new to register",
        version.name,
        version.version,
    )


def _register(
    run: TrackedRun,
    name: str,
    ref: DatasetRef,
    choice: training.ModelChoice,
    path: Path,
    about: Mapping[str, Any],
    facts: Mapping[str, str],
) -> ModelVersion:
    uri = registry.log_model(run.run_id, path, example=training.raw_example(ref))
    tags = {
        "dataset": ref.name,
        "dataset_digest": ref.digest,
        "learner": choice.learner.title,
        "test_error": f"{about['test_error']:.6g}",
        "alignment": f"{about['alignment']:.6g}",
        "mlflow_run": run.run_id,
        **facts,
    }
    description = plain(_summarize(choice, about))
    return registry.register(uri, name, run.run_id, tags=tags, description=description)


def _params_of_training(
    config: CompareConfig,
    ref: DatasetRef,
    choice: training.ModelChoice,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    params = {
        "dataset": ref.name,
        "task": ref.task,
        "learner": choice.learner.title,
        "algorithm": choice.learner.name,
        "predictor": about["predictor"],
        "metric": about["metric"],
        "n_rows": ref.n_rows,
        "n_features": ref.n_features,
        "C": f"{choice.C:g}",
        "normalize": config.normalize,
        "centering": config.centering,
        "seed": config.protocol.seed,
        **{f"param.{key}": value for key, value in choice.learner.params.items()},
    }
    if about.get("sampling"):
        params["sampled_rows"] = about["sampling"]["n_rows"]
    return params


def _facts_of_training(config: CompareConfig, ref: DatasetRef) -> dict[str, str]:
    """Return tags that a later challenge reads."""
    facts = {
        registry.PLACE: training.place_of(config),
        registry.RECIPE: digest(promotion.recipe(config)),
    }
    if not ref.in_parts:
        facts[registry.COPIED] = f"{copied_share(ref):.4g}"
        facts[registry.LEAKS] = json.dumps(leaking_columns(load_dataset(ref)))
    return facts


def _summarize(choice: training.ModelChoice, about: Mapping[str, Any]) -> str:
    return (
        f"{choice.learner.title} with {about['predictor']}, C = {choice.C:g}, on "
        f"{about['n_rows']:,} rows of {about['dataset']}: expected {about['metric']} {about['test_error']:.4g}, "
        f"alignment {about['alignment']:.3f}."
    )


@step("write the training of {version.name}")
def write_training(
    version: ModelVersion,
    choice: training.ModelChoice,
    path: Path,
    about: Mapping[str, Any],
    results: Sequence[FoldsRef],
    run: TrackedRun,
    run_id: str,
) -> str:
    """Write a training's results to a folder, Prefect and MLflow."""
    target = Path("results") / version.name / run_id
    title = f"{version.name} version {version.version}"
    links = {"results": str(target), "MLflow run": run.url}
    describe = partial(
        training.describe_training, choice, about, version.name, version.version
    )
    report = describe(links)
    with atomic_path(target) as folder:
        folder.mkdir()
        (folder / "about.json").write_text(
            json.dumps(about, indent=1), encoding="utf-8"
        )
        (folder / registry.MODEL).write_bytes(path.read_bytes())
        read_folds(results).to_parquet(folder / "folds.parquet", index=False)
        (chosen,) = [
            folds for folds in results if folds.learner == choice.learner.title
        ]
        write_prediction_figures(folder / FOLDER, chosen, None)
        links_of_file = links_of_report(folder, target, {"MLflow run": run.url})
        (folder / "report.md").write_text(describe(links_of_file), encoding="utf-8")
    log_run(run, note=report, artifacts=target)
    create_table_artifact(
        list(choice.candidates),
        key="training-candidates",
        description=f"**{title}**: what every learner came to; `*` lowest validation error, which was taken.",
    )
    create_markdown_artifact(
        report,
        key="training-report",
        description=f"**{title}**: what was chosen, what to expect of it, how to use it.",
    )
    for sentence in (
        _summarize(choice, about),
        f"MLflow: {run.url}",
        f"all models: {run.models_url}",
    ):
        get_run_logger().info("%s: %s", title, sentence)
    return str(target)


def rivals(
    model: str, challenger: int | None
) -> tuple[ModelVersion, ModelVersion | None, ModelVersion | None]:
    """Return challenger, champion, and the best version of its refreshes, or the champion."""
    champion = registry.alias_of(model, registry.CHAMPION)
    reference = champion
    if champion is not None and registry.REFERENCE in champion.tags:
        with suppress(InputError):  # it has been deleted
            reference = registry.find_version(
                f"{model}/{champion.tags[registry.REFERENCE]}"
            )
    return _find_challenger(model, challenger), champion, reference


def _find_challenger(model: str, number: int | None) -> ModelVersion:
    """Return the version by number, the alias `challenger`, or the newest."""
    if number is not None:
        return registry.find_version(f"{model}/{number}")
    version = registry.alias_of(model, registry.CHALLENGER) or registry.newest_version(
        model
    )
    # `find_version` raises InputError if there is no version
    return version or registry.find_version(model)


def contender(version: ModelVersion) -> tuple[promotion.Contender, CompareConfig]:
    model = registry.load_version(version)
    config = training.recipe_of(model, version)
    title = config.learners[0].title
    recipes = {
        digest(promotion.recipe(config)),
        version.tags.get(registry.RECIPE, ""),
    } - {""}
    columns, spreads = promotion.columns_of(model, config.datasets[0])
    competitor = promotion.Contender(
        version=version.version,
        learner=title,
        expected=model.about["test_error"],
        metric=model.about["metric"],
        recipes=tuple(recipes),
        digest=model.about["digest"],
        columns=columns,
        spreads=spreads,
        classes=tuple(str(label) for label in getattr(model.estimator, "classes_", ())),
        n_rows=model.about["n_rows"],
        scored=_columns_to_score(version),
    )
    if registry.COPIED in version.tags:
        competitor = replace(competitor, copied=float(version.tags[registry.COPIED]))
    if registry.LEAKS in version.tags:
        competitor = replace(
            competitor, leaks=tuple(json.loads(version.tags[registry.LEAKS]))
        )
    folds = registry.stored_folds(version, title)
    if folds is not None:
        competitor = competitor.with_errors(folds, in_training=True)
    return competitor, config


def reference_contender(
    version: ModelVersion, champion: promotion.Contender
) -> promotion.Contender:
    """Return the best refresh; the champion if unreadable."""
    try:
        return contender(version)[0]
    except InputError as error:
        get_run_logger().warning(
            "%s: the champion replaces version %d as the best refresh: %s",
            version.name,
            version.version,
            error,
        )
        return champion


def _columns_to_score(version: ModelVersion) -> tuple[str, ...] | None:
    last_input = registry.last_scored(version)
    if last_input is None:
        return None
    source, recorded_columns = last_input
    try:
        return tuple(scoring.input_columns(source))
    except InputError:  # moved, or on another machine
        return tuple(recorded_columns)


@step("record the decision on {decision.model}")
def record_decision(
    run: TrackedRun,
    decision: promotion.Challenge,
    run_id: str,
    results: tuple[FoldsRef, FoldsRef] | None,
) -> str:
    """Move the alias as decided, and record the decision; return its folder."""
    target = Path("results") / decision.model / run_id
    links = {"MLflow run": run.url}
    with atomic_path(target) as folder:
        folder.mkdir()
        (folder / "decision.json").write_text(
            json.dumps(asdict(decision), indent=1), encoding="utf-8"
        )
        if results is not None:
            for name, folds in zip(("challenger", "champion"), results, strict=True):
                read_folds([folds]).to_parquet(
                    folder / f"folds_{name}.parquet", index=False
                )
        report_of_file = promotion.describe_decision(
            decision, links_of_report(folder, target, links)
        )
        (folder / "report.md").write_text(report_of_file, encoding="utf-8")
    _tag_challenger(decision, run)
    _log_decision(decision, run, target)
    get_run_logger().info("%s: %s", decision.model, decision.reason)
    get_run_logger().info("%s: MLflow: %s", decision.model, run.url)
    return str(target)


def _tag_challenger(decision: promotion.Challenge, run: TrackedRun) -> None:
    if decision.moved:
        registry.set_alias(decision.model, registry.CHAMPION, decision.champion)
    if decision.same_version:
        return
    tags = {"decision": decision.reason, "decision_run": run.run_id}
    challenger = decision.challenger
    reference = decision.best_refresh
    if not decision.moved:
        tags[registry.REJECTED] = str(decision.champion)
    elif (
        decision.same_recipe
        and reference
        and reference.metric == challenger.metric
        and reference.expected < challenger.expected
    ):
        tags[registry.REFERENCE] = str(reference.version)
    registry.tag_version(decision.model, decision.challenger.version, tags)


def _log_decision(decision: promotion.Challenge, run: TrackedRun, target: Path) -> None:
    measures = {
        "challenger/test_error": decision.challenger.mean,
        "p": decision.p,
        "plain_p": decision.uncorrected_p,
        "level": decision.level,
        "margin": decision.margin,
    }
    params = {
        "model": decision.model,
        "challenger": decision.challenger.version,
        "champion": None,
        "moved": decision.moved,
        "test": decision.test or "none",
    }
    if decision.defender is not None:
        measures["champion/test_error"] = decision.defender.mean
        params["champion"] = decision.defender.version
    metrics = {key: value for key, value in measures.items() if value is not None}
    challenger = registry.find_version(
        f"{decision.model}/{decision.challenger.version}"
    )
    report = promotion.describe_decision(
        decision, {"results": str(target), "MLflow run": run.url}
    )
    log_run(
        run, metrics, params, {PARENT: challenger.run_id}, note=report, artifacts=target
    )
    outcome = f"**{decision.model}**: {plain(decision.reason)}."
    create_table_artifact(
        [_row_of_decision(decision)], key="promotion", description=outcome
    )
    create_markdown_artifact(report, key="promotion-report", description=outcome)


def _row_of_decision(decision: promotion.Challenge) -> dict[str, str]:
    row = {
        "model": decision.model,
        "champion now": f"version {decision.champion}",
        "moved": "no",
        "challenger": _describe_version(decision.challenger),
        "champion before": "none",
        "tested": decision.test or "nothing",
        "corrected p": promotion.shown_p(decision.p),
        "uncorrected p": promotion.shown_p(decision.uncorrected_p),
        "data": f"{decision.dataset} {decision.digest}".strip(),
    }
    if decision.moved:
        row["moved"] = "yes"
    if decision.defender is not None:
        row["champion before"] = _describe_version(decision.defender)
    return row


def _describe_version(competitor: promotion.Contender) -> str:
    return f"version {competitor.version}: {competitor.shown}"
