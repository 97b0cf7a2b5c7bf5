"""Deployments of a registered model in Prefect: a `prefect.yaml` of its flows, which `prefect deploy` brings there."""

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
from typing import Any, Literal
from zoneinfo import available_timezones

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import PREFECT_API_URL
from pydantic import ValidationError

from learnkernels import conf
from learnkernels.conf.errors import InputError, cut, listed, one_line, without_passwords
from learnkernels.conf.schema import CompareConfig

from ..environment import OF_PYTHON, QUIET, scheduled_settings
from .scheduled import command
from .servers import POOL, answering

Step = Literal["compare", "train", "promote", "predict"]

FLOWS: dict[Step, str] = {
    "compare": "compare-kernel-learners",
    "train": "train-kernel-model",
    "promote": "promote-challenger",
    "predict": "score-rows",
}
"""Names of the flows, by the modules of `flows` that hold them."""

FOLLOWS: dict[Step, Literal["train", "promote"]] = {"promote": "train", "predict": "promote"}
"""What starts a step without a schedule: another one that is done."""

BUNDLED = Path(conf.__file__).parent / "operations" / "prefect.yaml"
"""Deployments of all flows for a model that is called demo."""


@dataclass(frozen=True)
class Plan:
    """What is to be done for a registered model, and when.

    Parameters
    ----------
    model : str
        Name of the registered model.
    config : CompareConfig
        What `compare` and `train` run.
    cron : str, optional
        When `compare` and `train` start, five fields; without, schedules stay as they are in Prefect.
    timezone : str
        Of the cron expression.
    dataset : str, optional
        The data set that `train` learns from.
    refresh : bool
        Whether `promote` lets a version of the same recipe on other rows take over unless it is worse.
    input, output : str, optional
        What `predict` reads and writes; without, there is no such deployment.
    id : sequence of str
        Columns that `predict` hands through.
    pool : str
        Work pool of Prefect's; that of `learnkernels up` by default.
    job_variables : mapping
        Job variables of the pool, next to those that runs need.
    """

    model: str
    config: CompareConfig
    cron: str | None = None
    timezone: str = "Etc/UTC"
    dataset: str | None = None
    refresh: bool = True
    input: str | None = None
    output: str | None = None
    id: Sequence[str] = ()
    pool: str = POOL
    job_variables: Mapping[str, Any] = field(default_factory=dict)


def check_plan(plan: Plan) -> None:
    """Refuse, before anything is changed, a plan that cannot work.

    Raises
    ------
    InputError
        The name, cron expression, time zone or data set is not valid, or half of input and output is missing.
    """
    from ..models.lifecycle import require_model_name  # brings MLflow along

    require_model_name(plan.model)
    if plan.timezone not in available_timezones():
        raise InputError(f"--timezone {plan.timezone}: is not a time zone; give one such as Etc/UTC or Europe/Berlin.")
    if plan.cron is not None:
        try:
            CronSchedule(cron=plan.cron)
            readable = len(plan.cron.split()) == 5
        except ValidationError:
            readable = False
        if not readable:
            raise InputError(
                f"--cron {plan.cron!r}: five fields are expected, minute, hour, day, month and weekday; give one such "
                "as '0 3 * * *' for every night at three."
            )
    if (plan.input is None) != (plan.output is None):
        given, missing = ("--input", "--output") if plan.output is None else ("--output", "--input")
        raise InputError(f"{given} is given and {missing} is not; give both for predictions, or neither.")
    if plan.id and plan.input is None:
        raise InputError("--id names columns of --input, which is missing; give --input and --output, or leave it out.")
    names = [dataset.label for dataset in plan.config.datasets]
    if plan.dataset is not None and plan.dataset not in names:
        raise InputError(f"--dataset {plan.dataset}: the configuration has {', '.join(names)}; choose one of them.")


def printed(plan: Plan) -> str:
    """Return the `prefect.yaml` of a plan; the server knows the type of a pool that is not this project's.

    Raises
    ------
    InputError
        As `deploy`.
    """
    check_plan(plan)
    if plan.pool == POOL:
        return _written(prefect_yaml(plan, "process"))
    with connected() as client:
        return _written(prefect_yaml(plan, _type_of_pool(client, plan.pool)))


def deploy(plan: Plan) -> list[dict[str, str]]:
    """Have `prefect deploy` create or update the deployments of a plan, and return them as rows of a table.

    What was paused in Prefect stays paused: schedules because Prefect leaves them so, deployments and automations
    because they are deployed so. The deployment of `predict` goes where the plan has no input.

    Raises
    ------
    InputError
        As `check_plan`, no Prefect server answers, it lacks the pool, or refuses.
    """
    check_plan(plan)
    with connected() as client:
        content = prefect_yaml(plan, _type_of_pool(client, plan.pool))
        steps = list(FLOWS)[: len(content["deployments"])]
        for step, one in zip(steps, content["deployments"], strict=True):
            there = deployment_of(client, step, plan.model)
            one["paused"] = there is not None and there.paused
            for trigger in one.get("triggers", ()):
                automations = client.read_automations_by_name(trigger["name"])
                trigger["enabled"] = all(automation.enabled for automation in automations)
        _one_run_at_a_time(client, plan)
        _run_prefect_deploy(_written(content))
        if plan.input is None and (there := deployment_of(client, "predict", plan.model)) is not None:
            client.delete_deployment(there.id)
        return [_row(client, step, plan.model) for step in steps]


def _row(client: SyncPrefectClient, step: Step, model: str) -> dict[str, str]:
    """Return a deployment for a table: what it is called, what starts it, and where its page is."""
    made = client.read_deployment_by_name(f"{FLOWS[step]}/{model}")
    if step in FOLLOWS:
        starts = f"after {FOLLOWS[step]}"
    elif made.schedules:
        starts = ", ".join(_times(one.schedule) for one in made.schedules if one.active) or "paused"
    else:
        starts = "by hand"
    page = f"{str(PREFECT_API_URL.value()).removesuffix('/api')}/deployments/deployment/{made.id}"
    return {"deployment": f"{FLOWS[step]}/{model}", "starts": "paused" if made.paused else starts, "page": page}


def _times(schedule: Any) -> str:
    """Return when a schedule starts runs: a cron expression with its time zone, or what Prefect calls another one."""
    if isinstance(schedule, CronSchedule):
        return f"{schedule.cron} {schedule.timezone or 'UTC'}"
    return str(schedule)


def prefect_yaml(plan: Plan, pool_type: str) -> dict[str, Any]:
    """Return the deployments of a plan as `prefect.yaml` has them.

    Runs in a pool of processes work in this folder. Those of other pools work in their image, which needs no code
    from elsewhere.

    Raises
    ------
    InputError
        Runs of the pool need an image that no job variable names.
    """
    variables: dict[str, Any] = {"env": {**OF_PYTHON, **QUIET}}
    if pool_type == "process":
        no_packages = {"PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES": "false"}
        variables = {"working_dir": str(Path.cwd()), "env": scheduled_settings() | no_packages}
    elif "image" not in plan.job_variables:
        raise InputError(
            f"--pool {plan.pool}: runs of a pool of type {pool_type} need an image with learnkernels; build one from "
            "packaging/Containerfile, and give --job-variable image=NAME."
        )
    variables |= {**plan.job_variables, "env": variables["env"] | plan.job_variables.get("env", {})}
    config = plan.config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    parameters: dict[Step, dict[str, Any]] = {
        "compare": {"config": config},
        "train": {"config": config, "model": plan.model} | ({"dataset": plan.dataset} if plan.dataset else {}),
        "promote": {"model": plan.model, "refresh": plan.refresh},
    }
    if plan.input is not None:
        files = {"input": plan.input, "output": plan.output, "id": list(plan.id)}
        parameters["predict"] = {"model": f"{plan.model}@champion", **files}
    bundled = yaml.safe_load(BUNDLED.read_text(encoding="utf-8"))["deployments"]
    of_demo = {one["entrypoint"].rpartition(".")[2]: one for one in bundled}
    deployments: list[dict[str, Any]] = []
    for step, values in parameters.items():
        of_step = {"command": shlex.join(command(f"learnkernels.flows.{step}"))} if pool_type == "process" else {}
        pool = {"name": plan.pool, "work_queue_name": plan.model, "job_variables": of_step | variables}
        own = {"version": version("learnkernels"), "parameters": values, "work_pool": pool}
        one = _for_model(of_demo[step], plan.model) | own
        one.pop("schedules", None)
        if plan.cron is not None and step not in FOLLOWS:
            one["schedules"] = [{"cron": plan.cron, "timezone": plan.timezone, "slug": step}]
        deployments.append(one)
    return {"name": "learnkernels", "deployments": deployments}


def _for_model(value: Any, model: str) -> Any:
    """Return what the bundled file says of the model demo for another model."""
    if isinstance(value, list):
        return [_for_model(one, model) for one in value]
    if isinstance(value, dict):
        return {key: _for_model(one, model) for key, one in value.items()}
    return value.replace("demo", model) if isinstance(value, str) else value


def _written(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)


def _run_prefect_deploy(text: str) -> None:
    """Have Prefect's own command deploy a `prefect.yaml`, in a folder where no module of the user's lies.

    Raises
    ------
    InputError
        It refuses.
    """
    env = os.environ | {"PREFECT_API_URL": str(PREFECT_API_URL.value()), "COLUMNS": "1000"}
    with tempfile.TemporaryDirectory() as aside:
        Path(aside, "prefect.yaml").write_text(text, encoding="utf-8")
        deploying = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
        done = subprocess.run(deploying, cwd=aside, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise InputError(
            f"prefect deploy: {cut(one_line(without_passwords(said[-1] if said else 'it failed')), 300)}; correct it, "
            "or write the file by --print-yaml, and deploy that."
        )


@contextmanager
def connected() -> Iterator[SyncPrefectClient]:
    """Give a client of the Prefect server of this folder, or of PREFECT_API_URL.

    Raises
    ------
    InputError
        There is none, it does not answer, or it refuses.
    """
    if not PREFECT_API_URL.value():
        raise InputError(
            "there is no Prefect server to deploy to: start 'learnkernels up' in this folder in another terminal, or "
            "set PREFECT_API_URL."
        )
    with answering(), get_client(sync_client=True) as client:
        yield client


def job_variables(given: Sequence[str]) -> dict[str, Any]:
    """Return job variables of ``KEY=VALUE``, where a value is read as YAML.

    Raises
    ------
    InputError
        One has no name or no value.
    """
    variables = {}
    for one in given:
        name, _, value = one.partition("=")
        if not (name and value):
            raise InputError(f"--job-variable {one}: is not KEY=VALUE; give one such as image=learnkernels:0.3.0.")
        variables[name] = yaml.safe_load(value)
    return variables


def _type_of_pool(client: SyncPrefectClient, pool: str) -> str:
    """Return the type of a work pool; that of `learnkernels up` is made where it is missing."""
    if pool == POOL:
        with suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process", description="Runs of learnkernels."))
    try:
        return client.read_work_pool(pool).type
    except ObjectNotFound:
        found = f"; there are {listed(there)}" if (there := [one.name for one in client.read_work_pools()]) else ""
        raise InputError(
            f"--pool {pool}: Prefect has no such work pool{found}; make it with 'prefect work-pool create {pool} "
            "--type process', or docker, or kubernetes."
        ) from None


def _one_run_at_a_time(client: SyncPrefectClient, plan: Plan) -> None:
    """Make the work queue of a model, or set its limit."""
    try:
        queue = client.read_work_queue_by_name(plan.model, work_pool_name=plan.pool)
    except ObjectNotFound:
        queue = client.create_work_queue(plan.model, work_pool_name=plan.pool)
    if queue.concurrency_limit != 1:
        client.update_work_queue(queue.id, concurrency_limit=1)


def deployment_of(client: SyncPrefectClient, step: Step, model: str) -> DeploymentResponse | None:
    """Return the deployment of a step for a model, if there is one."""
    with suppress(ObjectNotFound):
        return client.read_deployment_by_name(f"{FLOWS[step]}/{model}")
    return None
