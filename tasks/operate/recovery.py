"""The set-up of `learnkernels up` in Prefect: runs without a sign of life crash, missed runs are made up for once."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events import Event
from prefect.events.schemas.automations import AutomationCore
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled

from learnkernels import conf

from .deployments import connected
from .servers import POOL

CRASHED_RUNS = Path(conf.__file__).parent / "operations" / "crashed_runs.yaml"
"""An automation of Prefect that marks runs crashed whose process is gone; they would hold their queue forever."""

MISSED = "Nothing ran at that time; the latest missed run of this deployment is made up for, earlier ones are not."

PAGE = 200
"""Runs that a server gives at once."""


def set_up(api: str, started_here: bool) -> None:
    """Set up what schedules need in Prefect.

    Parameters
    ----------
    api : str
        Address of Prefect's API.
    started_here : bool
        Whether the server has just been started here, so that no worker has run the late runs.

    Raises
    ------
    InputError
        The server does not answer, or refuses.
    """
    automation = yaml.safe_load(CRASHED_RUNS.read_text(encoding="utf-8"))
    with temporary_settings({PREFECT_API_URL: api}), connected() as client:
        if not client.read_automations_by_name(automation["name"]):  # one that was paused or changed stays so
            client.create_automation(AutomationCore.model_validate(automation))
        if started_here:
            cancel_missed(client)
            watch_unfinished(client)


def watch_unfinished(client: SyncPrefectClient) -> list[UUID]:
    """Have each unfinished run marked crashed unless it shows a sign of life soon, and return these runs.

    A power cut may take the events of a run with it, so that no automation waits for its next one. It would hold its
    queue forever. The event that is sent here begins the wait; a worker on another computer sends the next one.
    """
    pool = WorkPoolFilter(name={"any_": [POOL]})  # type: ignore[arg-type]
    unfinished = FlowRunFilter(state={"type": {"any_": ["PENDING", "RUNNING"]}})  # type: ignore[arg-type]
    runs: list[FlowRun] = []
    while page := client.read_flow_runs(
        work_pool_filter=pool, flow_run_filter=unfinished, limit=PAGE, offset=len(runs)
    ):
        runs += page
    for run in runs:
        related = [{"prefect.resource.id": f"prefect.tag.{tag}", "prefect.resource.role": "tag"} for tag in run.tags]
        of_run = {"prefect.resource.id": f"prefect.flow-run.{run.id}", "prefect.resource.name": run.name}
        event = Event.model_validate({"event": "prefect.flow-run.heartbeat", "resource": of_run, "related": related})
        client.request("POST", "/events", json=[event.model_dump(mode="json")])
    return [run.id for run in runs]


def cancel_missed(client: SyncPrefectClient) -> list[UUID]:
    """Cancel scheduled runs whose time has passed, but for the latest of each deployment, and return them."""
    late = {"before_": datetime.now().astimezone() - timedelta(seconds=1)}
    due = FlowRunFilter(state={"type": {"any_": ["SCHEDULED"]}}, expected_start_time=late)  # type: ignore[arg-type]
    pool = WorkPoolFilter(name={"any_": [POOL]})  # type: ignore[arg-type]
    newest = FlowRunSort.EXPECTED_START_TIME_DESC
    runs: list[FlowRun] = []
    while page := client.read_flow_runs(
        work_pool_filter=pool, flow_run_filter=due, sort=newest, limit=PAGE, offset=len(runs)
    ):
        runs += page
    cancelled = []
    deployments = set()
    for run in runs:
        if not run.auto_scheduled:
            continue
        if run.deployment_id in deployments:
            client.set_flow_run_state(run.id, Cancelled(message=MISSED), force=True)
            cancelled.append(run.id)
        deployments.add(run.deployment_id)
    return cancelled
