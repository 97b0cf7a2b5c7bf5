"""What `learnkernels up` sets up in Prefect: runs without a sign of life are marked, missed ones made up for once."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import WorkPoolFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled

from learnkernels.tasks.operate.deployments import TAG, connected, in_state
from learnkernels.tasks.operate.servers import POOL

SILENCE = timedelta(minutes=3)
"""After how long without a heartbeat, sent twice a minute, a run counts as crashed; one that is taken up, unstarted."""

WITHOUT_LIFE = "learnkernels: run without a sign of life"

ABANDONED = "The process of this run ended without a word, as in a power cut; start the deployment again."
MISSED = "Nothing ran at that time; the latest missed run of this deployment is made up for, earlier ones are not."

PAGE = 200
"""Runs that a server gives at once."""


def set_up(api: str, own: bool) -> None:
    """Set up what schedules need in Prefect.

    Parameters
    ----------
    api : str
        Address of Prefect's API.
    own : bool
        Whether the server has just been started here, so that nothing was there to run what has become late.

    Raises
    ------
    InputError
        The server does not answer, or refuses.
    """
    with temporary_settings({PREFECT_API_URL: api}), connected() as client:
        crash_silent_runs(client)
        if own:
            cancel_missed(client)


def crash_silent_runs(client: SyncPrefectClient) -> None:
    """Make the automation by which Prefect marks runs crashed whose process is gone, unless there is one.

    Such runs would hold their queue for ever. Whoever pauses or changes the automation in Prefect has the last word.
    """
    if client.read_automations_by_name(WITHOUT_LIFE):
        return
    trigger = EventTrigger(
        match={"prefect.resource.id": "prefect.flow-run.*"},
        match_related={"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"},
        for_each={"prefect.resource.id"},
        after={"prefect.flow-run.Pending", "prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.*"},
        posture=Posture.Proactive,
        threshold=1,
        within=SILENCE,
    )
    automation = AutomationCore(
        name=WITHOUT_LIFE,
        description="Marks a run crashed whose process has ended without a word. Made by `learnkernels up`.",
        tags=[TAG],
        trigger=trigger,
        # Not forced: Prefect leaves a run as it is that has ended, should the event of that be lost.
        actions=[ChangeFlowRunState(name="Crashed", state=StateType.CRASHED, message=ABANDONED, force=False)],
    )
    client.create_automation(automation)


def cancel_missed(client: SyncPrefectClient) -> list[UUID]:
    """Cancel scheduled runs whose time has passed, but for the latest of each deployment, and return them."""
    cancelled, seen = [], set()
    late = datetime.now().astimezone() - timedelta(seconds=1)
    runs: list[FlowRun] = []
    while len(runs) % PAGE == 0:
        page = client.read_flow_runs(
            work_pool_filter=WorkPoolFilter(name={"any_": [POOL]}),  # type: ignore[arg-type]
            flow_run_filter=in_state("SCHEDULED"),
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
            limit=PAGE,
            offset=len(runs),
        )
        runs += page
        if not page:
            break
    for run in runs:  # the latest first
        if run.auto_scheduled and run.expected_start_time is not None and run.expected_start_time < late:
            if run.deployment_id in seen:
                client.set_flow_run_state(run.id, Cancelled(message=MISSED), force=True)
                cancelled.append(run.id)
            seen.add(run.deployment_id)
    return cancelled
