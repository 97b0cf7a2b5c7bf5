"""Deploy the flows of a registered model by `prefect deploy`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args
from zoneinfo import available_timezones

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import PREFECT_API_URL, get_current_settings
from pydantic import ValidationError

from learnkernels import conf
from learnkernels.conf.errors import (
    InputError,
    cut,
    listed,
    one_line,
    without_passwords,
)
from learnkernels.conf.schema import CompareConfig

from ..data.locations import locate
from ..environment import OF_PYTHON, QUIET, scheduled_settings
from .scheduled import command
from .servers import POOL, answering

Step = Literal["compare", "train", "promote", "predict"]

STEPS: tuple[Step, ...] = get_args(Step)
"""Names of flows, modules and commands, in order of the chain."""

FOLLOWS: dict[Step, Literal["train", "promote"]] = {
    "promote": "train",
    "predict": "promote",
}

BUNDLED = Path(conf.__file__).parent / "operations" / "prefect.yaml"
"""Deployments for a model named demo."""


@dataclass(frozen=True)
class Plan:
    """Plan of the Prefect deployments for one registered model."""

    model: str
    config: CompareConfig
    cron: str | None = None
    timezone: str | None = None
    dataset: str | None = None
    refresh: bool = True
    input: str | None = None
    output: str | None = None
    id: Sequence[str] = ()
    pool: str = POOL
    job_variables: Mapping[str, Any] = field(default_factory=dict)


def check_plan(plan: Plan) -> None:
    from ..models.lifecycle import require_model_name  # imports MLflow

    require_model_name(plan.model)
    if plan.timezone is not None and plan.cron is None:
        raise InputError(
            "--timezone is that of --cron, which is missing; give both, or leave it out."
        )
    if plan.timezone is not None and plan.timezone not in available_timezones():
        raise InputError(
            f"--timezone {plan.timezone}: is not a time zone; give one such as Etc/UTC or Europe/Berlin."
        )
    if plan.cron is not None and not _is_cron(plan.cron):
        raise InputError(
            f"--cron {plan.cron!r}: five fields are expected, minute, hour, day, month and weekday; give one such "
            "as '0 3 * * *' for every night at three."
        )
    if plan.input is not None and plan.output is None:
        raise InputError(
            "--input is given and --output is not; give both for predictions, or neither."
        )
    if plan.output is not None and plan.input is None:
        raise InputError(
            "--output is given and --input is not; give both for predictions, or neither."
        )
    if plan.id and plan.input is None:
        raise InputError(
            "--id names columns of --input, which is missing; give --input and --output, or leave it out."
        )
    names = [dataset.label for dataset in plan.config.datasets]
    if plan.dataset is not None and plan.dataset not in names:
        raise InputError(
            f"--dataset {plan.dataset}: the configuration has {', '.join(names)}; choose one of them."
        )
    _check_steps(plan)


def _check_steps(plan: Plan) -> None:
    from ..models import scoring
    from ..models.training import training_config

    may_choose_dataset = plan.dataset is None and plan.cron is None
    if len(plan.config.datasets) == 1 or not may_choose_dataset:
        training_config(plan.config, plan.dataset, None, by_command=True)
    if plan.input is None or plan.output is None or plan.output.endswith("/"):
        return
    scoring.output_apart_from(plan.output, [locate(plan.input)])


def _is_cron(text: str) -> bool:
    try:
        CronSchedule(cron=text)
    except ValidationError:
        return False
    return len(text.split()) == 5


def printed(plan: Plan) -> str:
    """Return the `prefect.yaml` of planned deployments without deploying."""
    check_plan(plan)
    if plan.pool == POOL:
        return _as_yaml(prefect_yaml(plan, "process"))
    with connected() as client:
        return _as_yaml(prefect_yaml(plan, _type_of_pool(client, plan.pool)))


def deploy(plan: Plan) -> list[dict[str, str]]:
    """Create or update a model's planned Prefect deployments; return their table.

    A plan without input deletes the deployment of `predict`.
    """
    check_plan(plan)
    with connected() as client:
        content = prefect_yaml(plan, _type_of_pool(client, plan.pool))
        steps = STEPS[: len(content["deployments"])]
        for step, deployment in zip(steps, content["deployments"], strict=True):
            existing = deployment_of(client, step, plan.model)
            deployment["paused"] = existing is not None and existing.paused
            for trigger in deployment.get("triggers", ()):
                automations = client.read_automations_by_name(trigger["name"])
                trigger["enabled"] = all(
                    automation.enabled for automation in automations
                )
        _one_run_at_a_time(client, plan)
        _run_prefect_deploy(_as_yaml(content))
        if plan.input is None:
            _delete_deployment(client, "predict", plan.model)
        return [_row_of_deployment(client, step, plan.model) for step in steps]


def _delete_deployment(client: SyncPrefectClient, step: Step, model: str) -> None:
    deployment = deployment_of(client, step, model)
    if deployment is not None:
        client.delete_deployment(deployment.id)


def _row_of_deployment(
    client: SyncPrefectClient, step: Step, model: str
) -> dict[str, str]:
    name = f"{step}/{model}"
    deployment = client.read_deployment_by_name(name)
    address = without_passwords(str(PREFECT_API_URL.value())).removesuffix("/api")
    return {
        "deployment": name,
        "starts": _start_of_deployment(deployment, step),
        "page": f"{address}/deployments/deployment/{deployment.id}",
    }


def _start_of_deployment(deployment: DeploymentResponse, step: Step) -> str:
    if deployment.paused:
        return "paused"
    if step in FOLLOWS:
        return f"after {FOLLOWS[step]}"
    if not deployment.schedules:
        return "by hand"
    times = [
        _schedule_as_text(schedule.schedule)
        for schedule in deployment.schedules
        if schedule.active
    ]
    return ", ".join(times) or "paused"


def _schedule_as_text(schedule: Any) -> str:
    if isinstance(schedule, CronSchedule):
        return f"{schedule.cron} {schedule.timezone or 'UTC'}"
    return str(schedule)


def prefect_yaml(plan: Plan, pool_type: str) -> dict[str, Any]:
    runs_in_processes = pool_type == "process"
    if not runs_in_processes and "image" not in plan.job_variables:
        raise InputError(
            f"--pool {plan.pool}: runs of a pool of type {pool_type} need an image with learnkernels; build one from "
            "packaging/Containerfile, and give --job-variable image=NAME."
        )
    bundled = yaml.safe_load(BUNDLED.read_text(encoding="utf-8"))["deployments"]
    bundled_steps = {
        deployment["entrypoint"].rpartition(".")[2]: deployment
        for deployment in bundled
    }
    deployments: list[dict[str, Any]] = []
    for step, parameters in _parameters(plan).items():
        variables = _variables_of_runs(plan, runs_in_processes)
        if runs_in_processes:
            variables["command"] = shlex.join(command(f"learnkernels.flows.{step}"))
        deployment = _for_model(bundled_steps[step], plan.model)
        deployment["version"] = version("learnkernels")
        deployment["parameters"] = parameters
        deployment["work_pool"] = {
            "name": plan.pool,
            "work_queue_name": plan.model,
            "job_variables": variables,
        }
        deployment.pop("schedules", None)
        if plan.cron is not None and step not in FOLLOWS:
            deployment["schedules"] = [
                {
                    "cron": plan.cron,
                    "timezone": plan.timezone or "Etc/UTC",
                    "slug": step,
                }
            ]
        deployments.append(deployment)
    return {"name": "learnkernels", "deployments": deployments}


def _parameters(plan: Plan) -> dict[Step, dict[str, Any]]:
    config = plan.config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if "kernels" in plan.config.model_fields_set:
        config |= plan.config.model_dump(
            mode="json", by_alias=True, include={"kernels"}
        )
    parameters: dict[Step, dict[str, Any]] = {
        "compare": {"config": config},
        "train": {"config": config, "model": plan.model},
        "promote": {"model": plan.model, "refresh": plan.refresh},
    }
    if plan.dataset:
        parameters["train"]["dataset"] = plan.dataset
    if plan.input is not None:
        parameters["predict"] = {
            "model": f"{plan.model}@champion",
            "input": plan.input,
            "output": plan.output,
            "id": list(plan.id),
        }
    return parameters


def _variables_of_runs(plan: Plan, runs_in_processes: bool) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    environment = {**OF_PYTHON, **QUIET}
    if runs_in_processes:
        variables["working_dir"] = str(Path.cwd())
        environment = {
            **scheduled_settings(),
            "PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES": "false",
        }
    variables |= plan.job_variables
    variables["env"] = environment | plan.job_variables.get("env", {})
    return variables


def _for_model(value: Any, model: str) -> Any:
    if isinstance(value, list):
        return [_for_model(item, model) for item in value]
    if isinstance(value, dict):
        return {key: _for_model(item, model) for key, item in value.items()}
    if isinstance(value, str):
        return value.replace("demo", model)
    return value


def _as_yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)


def _run_prefect_deploy(text: str) -> None:
    """Run `prefect deploy` in a folder without the user's modules."""
    # Settings may be from the user's folder
    settings = get_current_settings().to_environment_variables(exclude_unset=True)
    env = os.environ | settings | {"COLUMNS": "1000"}
    with tempfile.TemporaryDirectory() as aside:
        Path(aside, "prefect.yaml").write_text(text, encoding="utf-8")
        deploying = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
        done = subprocess.run(
            deploying, cwd=aside, env=env, capture_output=True, text=True
        )
    if done.returncode != 0:
        lines = [
            line for line in (done.stdout + done.stderr).splitlines() if line.strip()
        ]
        reason = ["it failed", *lines][-1]
        raise InputError(
            f"prefect deploy: {cut(one_line(without_passwords(reason)), 300)}; correct it, or write the file by "
            "--print-yaml, and deploy that."
        )


@contextmanager
def connected() -> Iterator[SyncPrefectClient]:
    """Yield a client of Prefect's server; InputError if there is no server."""
    if not PREFECT_API_URL.value():
        raise InputError(
            "there is no Prefect server to deploy to: start 'learnkernels up' in this folder in another terminal, or "
            "set PREFECT_API_URL."
        )
    with answering(), get_client(sync_client=True) as client:
        yield client


def job_variables(settings: Sequence[str]) -> dict[str, Any]:
    variables = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if not (name and value):
            raise InputError(
                f"--job-variable {setting}: is not KEY=VALUE; give one such as image=learnkernels:0.3.0."
            )
        variables[name] = yaml.safe_load(value)
    return variables


def _type_of_pool(client: SyncPrefectClient, pool: str) -> str:
    """Return the type of a work pool; create a missing default pool."""
    if pool == POOL:
        with suppress(ObjectAlreadyExists):
            client.create_work_pool(
                WorkPoolCreate(
                    name=POOL, type="process", description="Runs of learnkernels."
                )
            )
    try:
        return client.read_work_pool(pool).type
    except ObjectNotFound:
        names = [work_pool.name for work_pool in client.read_work_pools()]
        others = ""
        if names:
            others = f"; there are {listed(names)}"
        raise InputError(
            f"--pool {pool}: Prefect has no such work pool{others}; make it with 'prefect work-pool create {pool} "
            "--type process', or docker, or kubernetes."
        ) from None


def _one_run_at_a_time(client: SyncPrefectClient, plan: Plan) -> None:
    try:
        queue = client.read_work_queue_by_name(plan.model, work_pool_name=plan.pool)
    except ObjectNotFound:
        queue = client.create_work_queue(plan.model, work_pool_name=plan.pool)
    if queue.concurrency_limit != 1:
        client.update_work_queue(queue.id, concurrency_limit=1)


def deployment_of(
    client: SyncPrefectClient, step: Step, model: str
) -> DeploymentResponse | None:
    with suppress(ObjectNotFound):
        return client.read_deployment_by_name(f"{step}/{model}")
    return None
