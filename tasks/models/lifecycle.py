"""A model's life in the registry: a new version, who challenges whom, and who is champion."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig
from learnkernels.kernels.persistence.model import load_model
from learnkernels.tasks.data.dataset import DatasetRef
from learnkernels.tasks.evidence.figures import learner_colors
from learnkernels.tasks.evidence.markdown import plain
from learnkernels.tasks.evidence.tables import read_folds
from learnkernels.tasks.evidence.tracking import TrackedRun, log_run
from learnkernels.tasks.measure.evaluation import FoldsRef
from learnkernels.tasks.models.promotion import Decision, describe_decision, shown_p
from learnkernels.tasks.models.registry import (
    CHALLENGER,
    CHAMPION,
    PLACE,
    ModelVersion,
    alias_of,
    find_version,
    log_model,
    newest_version,
    register,
    set_alias,
    tag_version,
)
from learnkernels.tasks.models.training import Choice, ModelRef, describe_training, place_of, raw_example
from learnkernels.tasks.naming import step
from learnkernels.tasks.store import atomic_path, file_digest

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
    run: TrackedRun, config: CompareConfig, name: str, ref: DatasetRef, choice: Choice, model: ModelRef
) -> ModelVersion:
    """Log a trained model to its run and register a version of it, unless the newest one is this very model."""
    about, path = model.about, Path(model.path)
    kernel = load_model(path).estimator.kernel_
    measured = ("test_error", "test_error_sd", "relative_error", "validation_error", "alignment", "regularisation")
    metrics = {key: about[key] for key in measured if about[key] is not None}
    metrics |= {f"weight/k{k:03d}": float(share) for k, share in enumerate(kernel.shares[:100])}
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
        "normalise": config.normalise,
        "centering": config.centering,
        "seed": config.protocol.seed,
        **{f"param.{key}": value for key, value in choice.learner.params.items()},
    }
    if "sampling" in about:
        params["sampled_rows"] = about["sampling"]["n_rows"]
    reason = {"predictor_reason": about["predictor_reason"]} if "predictor_reason" in about else {}
    log_run(run, metrics, params, {"model": name, **reason}, [ref])
    newest = newest_version(name)
    if newest is not None and newest.digest == file_digest(path):
        version = newest
        if version.place != place_of(config):
            tag_version(name, version.version, {PLACE: place_of(config)})
        get_run_logger().info("%s: version %d is this very model; nothing new to register", name, version.version)
    else:
        uri = log_model(run.run_id, path, example=raw_example(ref))
        tags = {
            "dataset": ref.name,
            "dataset_digest": ref.digest,
            "learner": choice.learner.title,
            "test_error": f"{about['test_error']:.6g}",
            "alignment": f"{about['alignment']:.6g}",
            "mlflow_run": run.run_id,
            PLACE: place_of(config),
        }
        version = register(uri, name, run.run_id, tags=tags, description=plain(_in_one_line(choice, about)))
    colour = learner_colors({choice.learner.title: choice.learner.name})[choice.learner.title]
    shown = {"mlflow.runName": f"{name} v{version.version} {choice.learner.title}", "mlflow.runColor": colour}
    log_run(run, tags={"model_version": str(version.version), **shown})
    return version


def _in_one_line(choice: Choice, about: dict[str, object]) -> str:
    return (
        f"{choice.learner.title} with {about['predictor']}, Lambda = {choice.regularisation:g}, on "
        f"{about['n_rows']:,} rows of {about['dataset']}: expected {about['metric']} {about['test_error']:.4g}, "
        f"alignment {about['alignment']:.3f}."
    )


@step("write the training of {version.name}")
def write_training(
    version: ModelVersion,
    choice: Choice,
    model: ModelRef,
    results: Sequence[FoldsRef],
    run: TrackedRun,
    run_id: str,
) -> str:
    """Write report, model and fold tables to `results/`, whole or not at all, and put the report into Prefect."""
    target = Path("results") / version.name / run_id
    title = f"{version.name} version {version.version}"
    report = describe_training(
        choice, model, version.name, version.version, {"results": str(target), "MLflow run": run.url}
    )
    with atomic_path(target) as folder:
        folder.mkdir()
        (folder / "report.md").write_text(report, encoding="utf-8")
        (folder / "about.json").write_text(json.dumps(model.about, indent=1), encoding="utf-8")
        (folder / "model.npz").write_bytes(Path(model.path).read_bytes())
        read_folds(results).to_parquet(folder / "folds.parquet", index=False)
    log_run(run, note=report, artifacts=target)
    create_table_artifact(
        list(choice.candidates),
        key="training-candidates",
        description=f"**{title}**: what every learner came to; `*` lowest validation error, which was taken.",
    )
    create_markdown_artifact(
        report, key="training-report", description=f"**{title}**: what was chosen, what to expect of it, how to use it."
    )
    for sentence in (_in_one_line(choice, model.about), f"MLflow: {run.url}", f"all models: {run.models_url}"):
        get_run_logger().info("%s: %s", title, sentence)
    return str(target)


def rivals(model: str, challenger: int | None) -> tuple[ModelVersion, ModelVersion | None]:
    """Return the version that challenges, and the champion where there is one.

    Raises
    ------
    InputError
        There is no such model or version.
    """
    if challenger is not None:
        ours = find_version(f"{model}/{challenger}")
    else:
        ours = alias_of(model, CHALLENGER) or newest_version(model) or find_version(model)
    return ours, alias_of(model, CHAMPION)


@step("record the decision on {decision.model}")
def record_decision(run: TrackedRun, decision: Decision, run_id: str, results: tuple[FoldsRef, FoldsRef] | None) -> str:
    """Move the alias where the challenger wins, and leave the evidence in MLflow, Prefect and the folder returned."""
    target, links = Path("results") / decision.model / run_id, {"MLflow run": run.url}
    with atomic_path(target) as folder:
        folder.mkdir()
        (folder / "report.md").write_text(describe_decision(decision, links), encoding="utf-8")
        (folder / "decision.json").write_text(json.dumps(asdict(decision), indent=1), encoding="utf-8")
        for name, of in zip(("challenger", "champion"), results or (), strict=False):
            read_folds([of]).to_parquet(folder / f"folds_{name}.parquet", index=False)
    measured = {
        "challenger/test_error": decision.challenger.mean,
        "champion/test_error": None if decision.defender is None else decision.defender.mean,
        "p": decision.p,
        "plain_p": decision.plain_p,
        "level": decision.level,
    }
    params = {
        "model": decision.model,
        "challenger": decision.challenger.version,
        "champion": None if decision.defender is None else decision.defender.version,
        "moved": decision.moved,
    }
    if decision.moved:
        set_alias(decision.model, CHAMPION, decision.champion)
    tag_version(decision.model, decision.challenger.version, {"decision": decision.reason, "decision_run": run.run_id})
    report = describe_decision(decision, {"results": str(target), **links})
    metrics = {key: value for key, value in measured.items() if value is not None}
    log_run(run, metrics, params, note=report, artifacts=target)
    outcome = f"**{decision.model}**: {decision.reason}."
    create_table_artifact([_row(decision)], key="promotion", description=outcome)
    create_markdown_artifact(report, key="promotion-report", description=outcome)
    get_run_logger().info("%s: %s", decision.model, decision.reason)
    get_run_logger().info("%s: MLflow: %s", decision.model, run.url)
    return str(target)


def _row(decision: Decision) -> dict[str, str]:
    """Return the decision as a row of a table, for people."""
    defender = decision.defender
    return {
        "model": decision.model,
        "champion now": f"version {decision.champion}",
        "moved": "yes" if decision.moved else "no",
        "challenger": f"version {decision.challenger.version}: {decision.challenger.shown}",
        "champion before": "none" if defender is None else f"version {defender.version}: {defender.shown}",
        "p": shown_p(decision.p),
        "plain p": shown_p(decision.plain_p),
        "data": f"{decision.dataset} {decision.digest}".strip(),
    }
