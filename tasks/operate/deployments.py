"""Schedules of a registered model: deployments in Prefect that compare, train, promote and predict by themselves."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal
from uuid import UUID
from zoneinfo import available_timezones

import httpx
import yaml
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    DeploymentFilterTags,
    FlowRunFilter,
)
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.logging.loggers import flow_run_logger
from prefect.settings import PREFECT_API_URL
from prefect.utilities.callables import parameter_schema
from pydantic import ValidationError

from learnkernels.conf.errors import InputError, without_passwords
from learnkernels.conf.schema import CompareConfig
from learnkernels.tasks.environment import scheduled_settings
from learnkernels.tasks.evidence.markdown import code, code_block, link
from learnkernels.tasks.operate.notifications import find_block, set_notifications
from learnkernels.tasks.operate.scheduled import command
from learnkernels.tasks.operate.servers import POOL

TAG = "learnkernels"

Step = Literal["compare", "train", "promote", "predict"]

FOLLOWS: dict[Step, Step] = {"promote": "train", "predict": "promote"}
"""What starts a step without a schedule: the one before it has completed."""

AFTER = "after "
"""How the tag of a deployment begins that starts when a run of the flow has completed that the tag names."""

SCHEDULE_SECONDS = 30.0
"""Longest wait until Prefect's scheduler has made the next run; it looks every few seconds."""


@dataclass(frozen=True)
class Plan:
    """What is to be done for a registered model, and when.

    Parameters
    ----------
    model : str
        Name of the registered model.
    config : CompareConfig
        What `compare` and `train` run.
    conf : str
        The file it was read from, for the description.
    cron : str, optional
        When `compare` and `train` start, five fields; without, only by hand.
    timezone : str
        Of the cron expression.
    dataset, learner : str, optional
        What `train` trains, as its arguments.
    refresh : bool
        Whether `promote` lets a version of the same recipe take over if it learned from other rows.
    input, output : str, optional
        What `predict` reads and writes; without, there is no such deployment.
    id : sequence of str
        Columns that `predict` hands through.
    paused : bool, optional
        Whether nothing starts by itself; by default what was paused, here or on Prefect's pages, stays so.
    notify : sequence of str
        Blocks of Prefect's, ``TYPE/NAME``, that are told of failed runs, decided challenges and empty inputs.
    """

    model: str
    config: CompareConfig
    conf: str
    cron: str | None = None
    timezone: str = "Etc/UTC"
    dataset: str | None = None
    learner: str | None = None
    refresh: bool = False
    input: str | None = None
    output: str | None = None
    id: Sequence[str] = ()
    paused: bool | None = None
    notify: Sequence[str] = ()


@dataclass(frozen=True)
class Deployed:
    """A deployment: its name, when it runs next, and the address of its page."""

    name: str
    when: str
    url: str


def check_plan(plan: Plan) -> None:
    """Refuse, before anything is changed, a plan that cannot work.

    Raises
    ------
    InputError
        The name, cron expression, time zone, data set or learner is not valid, or half of input and output is missing.
    """
    from learnkernels.tasks.models.lifecycle import (
        require_model_name,  # brings MLflow along, which a worker's watch can do without
    )

    require_model_name(plan.model)
    if plan.timezone not in available_timezones():
        raise InputError(f"--timezone {plan.timezone}: is not a time zone; give one such as Etc/UTC or Europe/Berlin.")
    if plan.cron is not None:
        if len(plan.cron.split()) != 5:
            raise InputError(_bad_cron(plan.cron, f"it has {len(plan.cron.split())} fields"))
        try:
            _schedule(plan.cron, plan.timezone)
        except ValidationError:
            raise InputError(_bad_cron(plan.cron, "a field is out of range or unreadable")) from None
    if (plan.input is None) != (plan.output is None):
        given, missing = ("--input", "--output") if plan.output is None else ("--output", "--input")
        raise InputError(f"{given} is given and {missing} is not; give both for predictions, or neither.")
    if plan.id and plan.input is None:
        raise InputError("--id names columns of --input, which is missing; give --input and --output, or leave it out.")
    for option, value, names in (
        ("--dataset", plan.dataset, [dataset.label for dataset in plan.config.datasets]),
        ("--learner", plan.learner, [learner.title for learner in plan.config.learners]),
    ):
        if value is not None and value not in names:
            raise InputError(f"{option} {value}: {plan.conf} has {', '.join(names)}; choose one of them.")


def _bad_cron(cron: str, what: str) -> str:
    return (
        f"--cron {cron!r}: {what}; five are expected, minute, hour, day, month and weekday, such as '0 3 * * *' for "
        "every night at three."
    )


def deploy(flows: Mapping[Step, Flow[..., Any]], plan: Plan) -> list[Deployed]:
    """Create the deployments of a model, or bring those that exist up to date, and return them in their order.

    `compare` and `train` run on the schedule; `promote` when a run of `train` has completed, `predict` when one of
    `promote` has, by the hook `start_following` of those flows. All share a work queue that lets one run through at a
    time. A deployment that the plan no longer asks for is removed, and so are notifications.

    Parameters
    ----------
    flows : mapping
        The flow of each step; importable by its module on the worker.
    plan : Plan
        What for, and when.

    Returns
    -------
    deployed : list of Deployed

    Raises
    ------
    InputError
        As `check_plan`, no Prefect server answers, or it lacks a block that is to be told.
    """
    check_plan(plan)
    with connected() as client:
        blocks = [find_block(client, name) for name in plan.notify]
        _ensure_queue(client, plan.model)
        ids: dict[Step, UUID] = {}
        for step in _parameters(plan):
            ids[step] = _apply(client, flows, step, plan)
        for step in flows.keys() - ids.keys():
            if there := _deployment(client, flows[step], plan.model):
                client.delete_deployment(there.id)
        set_notifications(client, plan.model, list(ids.values()), blocks, _pages())
        return [_deployed(client, flows[step], plan, ids[step], step) for step in ids]


@contextmanager
def answering() -> Iterator[None]:
    """Turn into one sentence what Prefect's client raises where its server is away, or refuses.

    Raises
    ------
    InputError
    """
    address = without_passwords(str(PREFECT_API_URL.value()))
    try:
        yield
    except httpx.HTTPStatusError as error:
        if error.response.status_code in (401, 403):
            raise InputError(
                f"the Prefect server at {address} wants credentials; set PREFECT_API_AUTH_STRING to USER:PASSWORD."
            ) from None
        raise InputError(
            f"the Prefect server at {address} answers with {error.response.status_code} "
            f"({error.response.reason_phrase}); its log says why, and what was computed is kept."
        ) from None
    except (httpx.TransportError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith("Failed to reach API"):  # as Prefect says
            raise
        why = "unreachable" if isinstance(error, RuntimeError) else type(error).__name__
        raise InputError(
            f"no Prefect server answers at {address} ({why}); what was computed is kept: start it, as 'learnkernels "
            "up' does, or correct PREFECT_API_URL, and try again."
        ) from None


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


def _ensure_queue(client: SyncPrefectClient, model: str) -> None:
    """Make the work queue of a model, and the pool of all schedules, or set its limit: one run at a time."""
    with suppress(ObjectAlreadyExists):
        client.create_work_pool(
            WorkPoolCreate(name=POOL, type="process", description="Scheduled runs of learnkernels.")
        )
    try:
        queue = client.read_work_queue_by_name(model, work_pool_name=POOL)
    except ObjectNotFound:
        queue = client.create_work_queue(model, work_pool_name=POOL, description=f"Runs for {model}, one at a time.")
    if queue.concurrency_limit != 1:
        client.update_work_queue(queue.id, concurrency_limit=1)


def _parameters(plan: Plan) -> dict[Step, dict[str, Any]]:
    """Return the steps that the plan asks for, in their order, with the arguments of their flows as JSON."""
    config = plan.config.model_dump(mode="json", by_alias=True)
    train = {"config": config, "model": plan.model, "dataset": plan.dataset or "", "learner": plan.learner or ""}
    steps: dict[Step, dict[str, Any]] = {
        "compare": {"config": config},
        "train": train,
        "promote": {"model": plan.model, "refresh": plan.refresh},
    }
    if plan.input is not None:
        files = {"input": plan.input, "output": plan.output, "id": list(plan.id)}
        steps["predict"] = {"model": f"{plan.model}@champion", **files}
    return steps


def _apply(client: SyncPrefectClient, flows: Mapping[Step, Flow[..., Any]], step: Step, plan: Plan) -> UUID:
    """Create or update one deployment; Prefect's own call does either."""
    flow = flows[step]
    folder = str(Path.cwd())
    chain = [f"{AFTER}{flows[FOLLOWS[step]].name}"] if step in FOLLOWS else []
    there = _deployment(client, flow, plan.model)
    paused = plan.paused if plan.paused is not None else there is not None and there.paused
    schedules = []
    if plan.cron is not None and step not in FOLLOWS:
        stopped = there is not None and plan.paused is None and any(not one.active for one in there.schedules)
        schedule = _schedule(plan.cron, plan.timezone)
        schedules.append(DeploymentScheduleCreate(schedule=schedule, active=not stopped, slug=step))
    return client.create_deployment(
        client.create_flow_from_name(flow.name),
        plan.model,
        version=version("learnkernels"),
        schedules=schedules,
        parameters=_parameters(plan)[step],
        description=_description(step, plan),
        work_queue_name=plan.model,
        work_pool_name=POOL,
        tags=[TAG, plan.model, *chain],
        entrypoint=f"{flow.fn.__module__}.{flow.fn.__name__}",
        parameter_openapi_schema=_form(flow),
        paused=paused,
        pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": folder}}],
        enforce_parameter_schema=True,
        job_variables={
            "working_dir": folder,
            "env": scheduled_settings() | {"PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES": "false"},
            "command": shlex.join(command(flow.fn.__module__)),
        },
    )


def _form(flow: Flow[..., Any]) -> dict[str, Any]:
    """Return the schema of what a flow takes, by which Prefect makes a form: the whole configuration comes last."""
    schema = parameter_schema(flow).model_dump(exclude_unset=True)
    if "config" in schema["properties"]:
        schema["properties"]["config"]["position"] = len(schema["properties"])
    return schema


def _schedule(cron: str, timezone: str) -> CronSchedule:
    return CronSchedule(cron=cron, timezone=timezone)


def start_following(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Start the steps that follow a completed one; the `on_completion` hook of the flows that `deploy` chains.

    What follows are the deployments of the same name with the tag ``after FLOW`` that are not paused. A run by hand
    has no deployment and starts nothing. (An automation of Prefect's would start them too, but comes up to 15 minutes
    late after a run that its scheduler made less than five minutes ahead, and is forgotten if the server stops then.)

    Parameters
    ----------
    flow : Flow
        The flow that has completed.
    flow_run : FlowRun
        Its run.
    state : State
        How it ended; not looked at, as the hook is called after success alone.
    """
    if flow_run.deployment_id is None:
        return
    try:
        with get_client(sync_client=True) as client, suppress(ObjectNotFound):  # removed meanwhile: nothing follows
            model = client.read_deployment(UUID(str(flow_run.deployment_id))).name
            following = DeploymentFilter(
                name=DeploymentFilterName(any_=[model]), tags=DeploymentFilterTags(all_=[TAG, f"{AFTER}{flow.name}"])
            )
            for deployment in client.read_deployments(deployment_filter=following):
                if not deployment.paused:
                    client.create_flow_run_from_deployment(deployment.id, idempotency_key=f"after {flow_run.id}")
    except httpx.HTTPError as error:  # the client has tried for a minute
        flow_run_logger(flow_run, flow).error(
            "what follows this run could not be started (%s): Prefect did not answer; start it by hand.",
            type(error).__name__,
        )


def _deployment(client: SyncPrefectClient, flow: Flow[..., Any], model: str) -> DeploymentResponse | None:
    """Return the deployment of a flow for a model, if there is one."""
    with suppress(ObjectNotFound):
        return client.read_deployment_by_name(f"{flow.name}/{model}")
    return None


def _deployed(client: SyncPrefectClient, flow: Flow[..., Any], plan: Plan, id: UUID, step: Step) -> Deployed:
    deployed = Deployed(f"{flow.name}/{plan.model}", "", f"{_pages()}/deployments/deployment/{id}")
    made = client.read_deployment(id)
    if made.paused or any(not schedule.active for schedule in made.schedules):
        return replace(deployed, when="paused")
    if step in FOLLOWS:
        return replace(deployed, when=f"after each completed '{FOLLOWS[step]}'")
    if plan.cron is None:
        return replace(deployed, when="by hand")
    following = _next_run(client, id)
    if following is None:
        raise InputError(
            f"{deployed.name}: Prefect has made no run for its schedule within {SCHEDULE_SECONDS:g} s, so nothing will "
            "start by itself; look for errors of the scheduler in .learnkernels/prefect.log, or install the packages "
            "of constraints.txt."
        )
    return replace(deployed, when=f"{following.astimezone():%Y-%m-%d %H:%M %Z}")


def _pages() -> str:
    return str(PREFECT_API_URL.value() or "").removesuffix("/api")


def _next_run(client: SyncPrefectClient, id: UUID) -> datetime | None:
    """Return when the next run is due, once Prefect's scheduler has made it."""
    deadline = time.monotonic() + SCHEDULE_SECONDS
    while time.monotonic() < deadline:
        runs = client.read_flow_runs(
            deployment_filter=DeploymentFilter(id={"any_": [id]}),  # type: ignore[arg-type]
            flow_run_filter=in_state("SCHEDULED"),
            sort=FlowRunSort.EXPECTED_START_TIME_ASC,
            limit=1,
        )
        if runs and runs[0].expected_start_time is not None:
            return runs[0].expected_start_time
        time.sleep(0.5)
    return None


def in_state(*types: str) -> FlowRunFilter:
    """Return the filter of flow runs in one of some types of states."""
    return FlowRunFilter(state={"type": {"any_": list(types)}})  # type: ignore[arg-type]


def _description(step: Step, plan: Plan) -> str:
    """Return what the page of a deployment says, in Markdown."""
    model = plan.model
    does = {
        "compare": f"Compares the learners of {code(plan.conf)} and leaves a report.",
        "train": f"Trains the model of {code(plan.conf)} and registers it as a new version of **{model}**, alias "
        "`challenger`.",
        "promote": f"Compares the newest version of **{model}** with the champion on the same folds, and makes it the "
        "champion if it is significantly better. Starts when a run of *train* has completed.",
        "predict": f"Predicts {code(plan.input)} with **{model}@champion** and writes {code(plan.output)}. Starts when "
        "a run of *promote* has completed.",
    }[step]
    leaves = {
        "compare": "`results/`, one MLflow run a data set and learner, artifacts of the flow run.",
        "train": "an MLflow run, a registered model version.",
        "promote": "the aliases and tags of the registered model.",
        "predict": "the output file.",
    }[step]
    lines = [
        does,
        f"**Leaves behind** {leaves}",
        f"Runs in {code(Path.cwd())}, one at a time for {model}. Made by `learnkernels deploy`; change it there.",
    ]
    tracking = os.environ.get("MLFLOW_TRACKING_URI", "")
    if tracking.startswith("http") and "@" not in tracking:
        lines.insert(2, link(f"{model} in MLflow", f"{tracking.rstrip('/')}/#/models/{model}"))
    if step in ("compare", "train"):
        text = yaml.safe_dump(
            plan.config.model_dump(mode="json", by_alias=True, exclude_defaults=True), sort_keys=False
        )
        lines.append(code_block(text, "yaml"))
    return "\n\n".join(lines)
