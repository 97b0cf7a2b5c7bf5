"""A model's life in the registry: a new version, who challenges whom, and who is champion."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
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

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def require_model_name(name: str) -> None:
    """Raise InputError unless a name can be that of a registered model and of a folder of results."""
    if not MODEL_NAME.fullmatch(name):
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
    """Log a trained model to its run and register a version of it, unless the newest one is this very model."""
    kernel = Model.load(path).estimator.kernel_
    measured = ("test_error", "test_error_sd", "relative_error", "validation_error", "alignment")
    metrics = {key: about[key] for key in measured if about[key] is not None}
    metrics |= weight_metrics(kernel.family.names, kernel.shares)
    params = {
        "dataset": ref.name,
        "task": ref.task,
        "learner": choice.learner.title,
        "algorithm": choice.learner.name,
        "predictor": about["predictor"],
        "metric": about["metric"],
        "n_kernels": kernel.family.n_kernels,
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
    reason = {"predictor_reason": about["predictor_reason"]} if about.get("predictor_reason") else {}
    log_run(run, metrics, params, {"model": name, **reason}, dataset_inputs([ref], "training", config))
    newest = registry.newest_version(name)
    facts = {registry.PLACE: training.place_of(config), registry.RECIPE: digest(promotion.recipe(config))}
    if not ref.in_parts:
        facts[registry.COPIED] = f"{copied_share(ref):.4g}"
        facts[registry.LEAKS] = json.dumps(leaking_columns(load_dataset(ref)))
    if newest is not None and newest.digest == file_digest(path):
        version = newest
        changed = {key: of for key, of in facts.items() if version.tags.get(key) != of}
        registry.tag_version(name, version.version, changed)
        get_run_logger().info("%s: version %d is this very model; nothing new to register", name, version.version)
    else:
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
        version = registry.register(uri, name, run.run_id, tags=tags, description=plain(_in_one_line(choice, about)))
    color = learner_colors({choice.learner.title: choice.learner.name})[choice.learner.title]
    shown = {"mlflow.runName": f"{name} v{version.version} {choice.learner.title}", "mlflow.runColor": color}
    log_run(run, tags={"model_version": str(version.version), **shown})
    return version


def _in_one_line(choice: training.ModelChoice, about: Mapping[str, Any]) -> str:
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
    """Write report, model and fold tables to `results/`, whole or not at all, and put the report into Prefect."""
    target = Path("results") / version.name / run_id
    title = f"{version.name} version {version.version}"
    links = {"results": str(target), "MLflow run": run.url}
    describe = partial(training.describe_training, choice, about, version.name, version.version)
    report = describe(links)
    with atomic_path(target) as folder:
        folder.mkdir()
        (folder / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
        (folder / registry.MODEL).write_bytes(path.read_bytes())
        read_folds(results).to_parquet(folder / "folds.parquet", index=False)
        (chosen,) = [folds for folds in results if folds.learner == choice.learner.title]
        write_prediction_figures(folder / FOLDER, chosen, None)
        lasting = links_of_report(folder, target, {"MLflow run": run.url})
        (folder / "report.md").write_text(describe(lasting), encoding="utf-8")
    log_run(run, note=report, artifacts=target)
    create_table_artifact(
        list(choice.candidates),
        key="training-candidates",
        description=f"**{title}**: what every learner came to; `*` lowest validation error, which was taken.",
    )
    create_markdown_artifact(
        report, key="training-report", description=f"**{title}**: what was chosen, what to expect of it, how to use it."
    )
    for sentence in (_in_one_line(choice, about), f"MLflow: {run.url}", f"all models: {run.models_url}"):
        get_run_logger().info("%s: %s", title, sentence)
    return str(target)


def rivals(model: str, challenger: int | None) -> tuple[ModelVersion, ModelVersion | None, ModelVersion | None]:
    """Return the version that challenges, the champion, and the one whose error a refresh is held to, if there are.

    Raises
    ------
    InputError
        There is no such model or version.
    """
    if challenger is not None:
        ours = registry.find_version(f"{model}/{challenger}")
    else:
        newest = registry.alias_of(model, registry.CHALLENGER) or registry.newest_version(model)
        ours = newest or registry.find_version(model)  # which says that there is none
    theirs = registry.alias_of(model, registry.CHAMPION)
    if theirs is None or registry.REFERENCE not in theirs.tags:
        return ours, theirs, theirs
    with suppress(InputError):  # it has been deleted
        return ours, theirs, registry.find_version(f"{model}/{theirs.tags[registry.REFERENCE]}")
    return ours, theirs, theirs


def contender(version: ModelVersion) -> tuple[promotion.Contender, CompareConfig]:
    """Return a version as its training left it, and its configuration.

    Raises
    ------
    InputError
        Its file cannot be fetched, or its configuration cannot be read.
    """
    model = registry.load_version(version)
    config, about = training.recipe_of(model, version), model.about
    title = config.learners[0].title
    leaks = version.tags.get(registry.LEAKS)
    columns, spreads = promotion.columns_of(model, config.datasets[0])
    found = promotion.Contender(
        version=version.version,
        learner=title,
        expected=about["test_error"],
        metric=about["metric"],
        recipes=tuple({digest(promotion.recipe(config)), version.tags.get(registry.RECIPE, "")} - {""}),
        digest=about["digest"],
        columns=columns,
        spreads=spreads,
        classes=tuple(str(label) for label in getattr(model.estimator, "classes_", ())),
        copied=float(version.tags[registry.COPIED]) if registry.COPIED in version.tags else None,
        n_rows=about["n_rows"],
        leaks=None if leaks is None else tuple(json.loads(leaks)),
        scored=_columns_to_score(version, columns),
    )
    folds = registry.stored_folds(version, title)
    return (found if folds is None else found.measured(folds, in_training=True)), config


def _columns_to_score(version: ModelVersion, columns: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the columns of the input that a version scored last, as it is today; None where it has scored none."""
    last = registry.last_scored(version)
    if last is None:
        return None
    source, columns_then = last
    try:
        return tuple(scoring.input_columns(source, set(columns)))
    except InputError:  # it was moved, or lies on another machine
        return tuple(columns_then)


@step("record the decision on {decision.model}")
def record_decision(
    run: TrackedRun, decision: promotion.Challenge, run_id: str, results: tuple[FoldsRef, FoldsRef] | None
) -> str:
    """Move the alias where the challenger wins, and leave the evidence in MLflow, Prefect and the folder returned."""
    target, links = Path("results") / decision.model / run_id, {"MLflow run": run.url}
    with atomic_path(target) as folder:
        folder.mkdir()
        (folder / "decision.json").write_text(json.dumps(asdict(decision), indent=1), encoding="utf-8")
        for name, of in zip(("challenger", "champion"), results or (), strict=False):
            read_folds([of]).to_parquet(folder / f"folds_{name}.parquet", index=False)
        lasting = promotion.describe_decision(decision, links_of_report(folder, target, links))
        (folder / "report.md").write_text(lasting, encoding="utf-8")
    measured = {
        "challenger/test_error": decision.challenger.mean,
        "champion/test_error": None if decision.defender is None else decision.defender.mean,
        "p": decision.p,
        "plain_p": decision.uncorrected_p,
        "level": decision.level,
        "margin": decision.margin,
    }
    params = {
        "model": decision.model,
        "challenger": decision.challenger.version,
        "champion": None if decision.defender is None else decision.defender.version,
        "moved": decision.moved,
        "test": decision.test or "none",
    }
    if decision.moved:
        registry.set_alias(decision.model, registry.CHAMPION, decision.champion)
    challenger = registry.find_version(f"{decision.model}/{decision.challenger.version}")
    if not decision.same_version:
        tags = {"decision": decision.reason, "decision_run": run.run_id}
        if not decision.moved:
            tags[registry.REJECTED] = str(decision.champion)
        elif decision.same_recipe and decision.reference and decision.reference.expected < decision.challenger.expected:
            tags[registry.REFERENCE] = str(decision.reference.version)
        registry.tag_version(decision.model, decision.challenger.version, tags)
    report = promotion.describe_decision(decision, {"results": str(target), **links})
    metrics = {key: value for key, value in measured.items() if value is not None}
    log_run(run, metrics, params, {PARENT: challenger.run_id}, note=report, artifacts=target)
    outcome = f"**{decision.model}**: {decision.reason}."
    create_table_artifact([_row(decision)], key="promotion", description=outcome)
    create_markdown_artifact(report, key="promotion-report", description=outcome)
    get_run_logger().info("%s: %s", decision.model, decision.reason)
    get_run_logger().info("%s: MLflow: %s", decision.model, run.url)
    return str(target)


def _row(decision: promotion.Challenge) -> dict[str, str]:
    """Return the decision as a row of a report."""
    defender = decision.defender
    return {
        "model": decision.model,
        "champion now": f"version {decision.champion}",
        "moved": "yes" if decision.moved else "no",
        "challenger": f"version {decision.challenger.version}: {decision.challenger.shown}",
        "champion before": "none" if defender is None else f"version {defender.version}: {defender.shown}",
        "tested": decision.test or "nothing",
        "corrected p": promotion.shown_p(decision.p),
        "uncorrected p": promotion.shown_p(decision.uncorrected_p),
        "data": f"{decision.dataset} {decision.digest}".strip(),
    }
