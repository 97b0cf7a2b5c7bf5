"""The worker of this machine and what it left open: runs whose process is gone, runs that were missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from uuid import UUID

import psutil
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, WorkerFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled, Crashed

from learnkernels.conf.errors import InputError
from learnkernels.tasks.operate.deployments import connected, ensure_pool, in_state, move_old_deployments
from learnkernels.tasks.operate.servers import POOL, RUN_ID

STOPPED = "The worker was stopped during this run; start the deployment again and it goes on from what is stored."
ABANDONED = "The process of this run ended without a word, as in a power cut; start the deployment again."
MISSED = "Nothing ran at that time; the latest missed run of this deployment is made up for, earlier ones are not."


class WorkerWatch:
    """What Prefect knows of the worker of this machine.

    Makes the work pool, moves what an older version has deployed, and closes what an earlier worker of this machine
    left open.

    Parameters
    ----------
    api : str
        Address of Prefect's API.
    own : bool
        Whether all workers of that server are on this machine; only then can be told which processes are gone.
    say : callable
        Prints a line.

    Raises
    ------
    InputError
        The server does not answer, or refuses.
    """

    def __init__(self, api: str, own: bool, say: Callable[[str], None]) -> None:
        self.api = api
        self.began = datetime.now().astimezone()
        with self._client() as client:
            ensure_pool(client)
            for sentence in move_old_deployments(client):
                say(sentence)
            if own:
                close_abandoned(client)
                cancel_missed(client)

    def online(self) -> bool:
        """Return whether a worker has reported since."""
        with self._client() as client:
            workers = client.read_workers_for_work_pool(POOL, WorkerFilter())
        return any(one.last_heartbeat_time is not None and one.last_heartbeat_time >= self.began for one in workers)

    def stopped(self, run_ids: set[str]) -> None:
        """Mark runs crashed that were in progress when the worker was stopped, unless they have ended by themselves."""
        with suppress(InputError), self._client() as client:
            for run_id in run_ids:
                _crash(client, client.read_flow_run(UUID(run_id)), STOPPED)

    @contextmanager
    def _client(self) -> Iterator[SyncPrefectClient]:
        with temporary_settings({PREFECT_API_URL: self.api}), connected() as client:
            yield client


def _crash(client: SyncPrefectClient, run: FlowRun, message: str) -> None:
    if run.state is not None and not run.state.is_final():
        client.set_flow_run_state(run.id, Crashed(message=message), force=True)


def close_abandoned(client: SyncPrefectClient) -> list[UUID]:
    """Mark runs crashed whose process is gone, so that they do not hold their queue for ever, and return them."""
    closed = []
    for run in _pool_runs(client, in_state("PENDING", "RUNNING", "CANCELLING")):
        if not _runs_here(run):
            _crash(client, run, ABANDONED)
            closed.append(run.id)
    return closed


def cancel_missed(client: SyncPrefectClient) -> list[UUID]:
    """Cancel scheduled runs whose time has passed, but for the latest of each deployment, and return them."""
    cancelled, seen = [], set()
    late = datetime.now().astimezone() - timedelta(seconds=1)
    for run in _pool_runs(client, in_state("SCHEDULED")):  # the latest first
        if run.auto_scheduled and run.expected_start_time is not None and run.expected_start_time < late:
            if run.deployment_id in seen:
                client.set_flow_run_state(run.id, Cancelled(message=MISSED), force=True)
                cancelled.append(run.id)
            seen.add(run.deployment_id)
    return cancelled


def _pool_runs(client: SyncPrefectClient, wanted: FlowRunFilter) -> list[FlowRun]:
    """Return all runs of the work pool in some states, the one that is due last first."""
    runs: list[FlowRun] = []
    while True:
        page = client.read_flow_runs(
            work_pool_filter=WorkPoolFilter(name={"any_": [POOL]}),  # type: ignore[arg-type]
            flow_run_filter=wanted,
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
            limit=200,
            offset=len(runs),
        )
        runs += page
        if len(page) < 200:
            return runs


def _runs_here(run: FlowRun) -> bool:
    """Return whether the process of a run, as its worker has noted it, lives on this machine."""
    try:
        process = psutil.Process(int(run.infrastructure_pid or ""))
        return bool(process.environ().get(RUN_ID) == str(run.id))
    except (ValueError, psutil.NoSuchProcess, psutil.AccessDenied):
        return False
