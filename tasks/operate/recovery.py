"""Recover crashed and missed runs when `learnkernels up` starts."""

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

MISSED = "Nothing ran at that time; the latest missed run of this deployment is made up for, earlier ones are not."

PAGE = 200


def set_up(api: str, started_here: bool) -> None:
    """Create Prefect's automation for crashed runs; handle missed and unfinished runs.

    Runs may be missed if this process has just started the server (`started_here`).
    """
    automation = yaml.safe_load(CRASHED_RUNS.read_text(encoding="utf-8"))
    with temporary_settings({PREFECT_API_URL: api}), connected() as client:
        # Changes by the user stay
        if not client.read_automations_by_name(automation["name"]):
            client.create_automation(AutomationCore.model_validate(automation))
        if started_here:
            cancel_missed(client)
            watch_unfinished(client)


def watch_unfinished(client: SyncPrefectClient) -> list[UUID]:
    """Send Prefect a heartbeat for each unfinished flow run; return their ids.

    A power cut may have lost heartbeats, without which no automation starts.
    """
    pool = WorkPoolFilter(name={"any_": [POOL]})  # type: ignore[arg-type]
    unfinished = FlowRunFilter(state={"type": {"any_": ["PENDING", "RUNNING"]}})  # type: ignore[arg-type]
    runs: list[FlowRun] = []
    while page := client.read_flow_runs(
        work_pool_filter=pool, flow_run_filter=unfinished, limit=PAGE, offset=len(runs)
    ):
        runs += page
    for run in runs:
        related = [
            {
                "prefect.resource.id": f"prefect.tag.{tag}",
                "prefect.resource.role": "tag",
            }
            for tag in run.tags
        ]
        resource = {
            "prefect.resource.id": f"prefect.flow-run.{run.id}",
            "prefect.resource.name": run.name,
        }
        event = Event.model_validate(
            {
                "event": "prefect.flow-run.heartbeat",
                "resource": resource,
                "related": related,
            }
        )
        client.request("POST", "/events", json=[event.model_dump(mode="json")])
    return [run.id for run in runs]


def cancel_missed(client: SyncPrefectClient) -> list[UUID]:
    """Cancel overdue runs of each deployment except the latest; return their ids."""
    late = {"before_": datetime.now().astimezone() - timedelta(seconds=1)}
    due = FlowRunFilter(
        state={"type": {"any_": ["SCHEDULED"]}},  # type: ignore[arg-type]
        expected_start_time=late,  # type: ignore[arg-type]
    )
    pool = WorkPoolFilter(name={"any_": [POOL]})  # type: ignore[arg-type]
    newest = FlowRunSort.EXPECTED_START_TIME_DESC
    runs: list[FlowRun] = []
    while page := client.read_flow_runs(
        work_pool_filter=pool,
        flow_run_filter=due,
        sort=newest,
        limit=PAGE,
        offset=len(runs),
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
