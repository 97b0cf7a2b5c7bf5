"""The worker of this machine and what it left open: runs whose process is gone, runs that were missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import httpx
import psutil
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, WorkerFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import TagsContext
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled, Crashed

from learnkernels.conf.errors import InputError, without_passwords
from learnkernels.tasks.operate.children import RUN_ID
from learnkernels.tasks.operate.deployments import connected, ensure_pool, in_state, move_old_deployments, start_missed
from learnkernels.tasks.operate.servers import POOL, worker_name
from learnkernels.tasks.owner import Owner
from learnkernels.tasks.stopping import last_word

P = ParamSpec("P")
R = TypeVar("R")

STOPPED = "The worker was stopped during this run; start the deployment again and it goes on from what is stored."
ABANDONED = "The process of this run ended without a word, as in a power cut; start the deployment again."
INTERRUPTED = "This run was stopped by a signal; start the same command again and it goes on from there."
MADE_BY = "process~"
"""What the tag of a run begins with that has no process yet; its owner follows."""

STARTING = timedelta(minutes=2)
"""How long a worker may take from taking a run to noting its process."""

SILENT = timedelta(hours=1)
"""After how long without a word another host's worker counts as gone."""

PAGE = 200
"""Runs that a server gives at once."""

IN_POOL = WorkPoolFilter(name={"any_": [POOL]})  # type: ignore[arg-type]

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
        Whether the server has just been started here, so that nothing was there to run what has become late.
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
            close_abandoned(client)
            if own:
                cancel_missed(client)

    def online(self) -> bool:
        """Return whether the worker of this host has reported since."""
        with self._client() as client:
            workers = client.read_workers_for_work_pool(POOL, WorkerFilter())
        return any(
            one.name == worker_name() and one.last_heartbeat_time is not None and one.last_heartbeat_time >= self.began
            for one in workers
        )

    def stopped(self, run_ids: set[str]) -> None:
        """Mark runs crashed that were in progress when the worker was stopped, unless they have ended by themselves."""
        with suppress(InputError), self._client() as client:
            for run_id in run_ids:
                _crash(client, UUID(run_id), STOPPED)

    def mend(self) -> None:
        """Close what was left open since, and start what follows runs whose own hook could not."""
        with self._client() as client:
            close_abandoned(client)
            start_missed(client)

    @contextmanager
    def _client(self) -> Iterator[SyncPrefectClient]:
        with temporary_settings({PREFECT_API_URL: self.api}), connected() as client:
            yield client


def _crash(client: SyncPrefectClient, run_id: UUID, message: str) -> bool:
    """Mark a run crashed, unless it has ended by itself; return whether it was."""
    state = client.read_flow_run(run_id).state
    if state is None or state.is_final():
        return False
    client.set_flow_run_state(run_id, Crashed(message=message), force=True)
    return True


def close_abandoned(client: SyncPrefectClient) -> list[UUID]:
    """Mark runs crashed whose process is gone, so that they do not hold their queue for ever, and return them.

    Of runs that a worker of this host has started, their processes tell. Those of another host cannot be seen: its runs
    count as gone when its worker has said nothing for an hour.
    """
    heard = {one.name: one.last_heartbeat_time for one in client.read_workers_for_work_pool(POOL, WorkerFilter())}
    return [
        run.id
        for run in _flow_runs(client, in_state("PENDING", "RUNNING", "CANCELLING"), IN_POOL)
        if _abandoned(run, heard) and _crash(client, run.id, ABANDONED)
    ]


def _abandoned(run: FlowRun, heard: Mapping[str, datetime | None]) -> bool:
    changed = None if run.state is None else run.state.timestamp
    worker = run.labels.get("prefect.worker.name")
    if worker in (None, worker_name()):  # none: its worker has just taken it, or ended then
        return not _runs_here(run) and (run.infrastructure_pid is not None or _before(changed, STARTING))
    return _before(heard.get(str(worker)), SILENT) and _before(changed, SILENT)


def _before(time: datetime | None, ago: timedelta) -> bool:
    return time is None or time < datetime.now().astimezone() - ago


def cancel_missed(client: SyncPrefectClient) -> list[UUID]:
    """Cancel scheduled runs whose time has passed, but for the latest of each deployment, and return them."""
    cancelled, seen = [], set()
    late = datetime.now().astimezone() - timedelta(seconds=1)
    for run in _flow_runs(client, in_state("SCHEDULED"), IN_POOL):  # the latest first
        if run.auto_scheduled and run.expected_start_time is not None and run.expected_start_time < late:
            if run.deployment_id in seen:
                client.set_flow_run_state(run.id, Cancelled(message=MISSED), force=True)
                cancelled.append(run.id)
            seen.add(run.deployment_id)
    return cancelled


def _flow_runs(client: SyncPrefectClient, wanted: FlowRunFilter, within: WorkPoolFilter | None = None) -> list[FlowRun]:
    """Return all runs, the one that is due last first, a page at a time."""
    runs: list[FlowRun] = []
    while True:
        page = client.read_flow_runs(
            work_pool_filter=within,
            flow_run_filter=wanted,
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
            limit=PAGE,
            offset=len(runs),
        )
        runs += page
        if len(page) < PAGE:
            return runs


def _runs_here(run: FlowRun) -> bool:
    """Return whether the process of a run, as its worker has noted it, lives on this machine."""
    try:
        process = psutil.Process(int(run.infrastructure_pid or ""))
        return bool(process.environ().get(RUN_ID) == str(run.id))
    except (ValueError, psutil.NoSuchProcess, psutil.AccessDenied):
        return False


# Runs that a command starts in its own process ------------------------------------------------------------------------


def claimed(flow: Flow[P, R]) -> Flow[P, R]:
    """Return a flow whose runs tell Prefect that this process is theirs.

    A run is made with a tag that says so, as it can have no process yet; once it has, the tag goes. Its tasks take over
    no tag: each would ask the server whether tags limit how many of them run, a twentieth of a second a task.
    """
    TagsContext.get().current_tags.add(_mark())
    return flow.with_options(on_running=[*flow.on_running_hooks, _claim])


def _claim(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    TagsContext.get().current_tags.clear()
    tags = set(flow_run.tags) - {_mark()}
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run.id, tags=tags, infrastructure_pid=str(Owner.this()))


def _mark() -> str:
    return f"{MADE_BY}{Owner.this()}"


def _owner(run: FlowRun) -> Owner | None:
    """Return the process of a run that a command has started in its own, if it is one."""
    tags = [tag for tag in run.tags if tag.startswith(MADE_BY)]
    return Owner.read(run.infrastructure_pid or "".join(tags[:1]))


@contextmanager
def own_runs() -> Iterator[None]:
    """Run flows in this process, once the runs of processes are closed that are gone.

    Raises
    ------
    InputError
        Prefect does not answer, or no longer.
    """
    address = without_passwords(str(PREFECT_API_URL.value()))
    try:
        close_gone()
        with last_word(_close_own):
            yield
    except httpx.HTTPStatusError as error:
        raise InputError(
            f"the Prefect server at {address} answers with {error.response.status_code} "
            f"({error.response.reason_phrase}); its log says why, and what was computed is kept."
        ) from None
    except httpx.TransportError as error:
        raise InputError(_no_answer(address, type(error).__name__)) from None
    except RuntimeError as error:
        if not str(error).startswith("Failed to reach API"):  # as Prefect says
            raise
        raise InputError(_no_answer(address, "unreachable")) from None


def _no_answer(address: str, why: str) -> str:
    return (
        f"no Prefect server answers at {address} ({why}); what was computed is kept: start it, or correct "
        "PREFECT_API_URL, and try again."
    )


def close_gone() -> None:
    """Mark runs crashed that a command had started in its own process, which is gone."""
    with get_client(sync_client=True) as client:
        _close(client, ABANDONED, lambda owner: owner.gone)


def _close_own() -> None:
    with get_client(sync_client=True) as client:
        _close(client, INTERRUPTED, lambda owner: owner == Owner.this())


def _close(client: SyncPrefectClient, message: str, of: Callable[[Owner], bool]) -> None:
    """Mark the open runs of some processes crashed, and the runs that these have started."""
    for run in _flow_runs(client, in_state("PENDING", "RUNNING", "CANCELLING")):
        owner = _owner(run)
        if owner is not None and of(owner):
            started = FlowRunFilter(parent_flow_run_id={"any_": [run.id]})  # type: ignore[arg-type]
            for one in (*_flow_runs(client, started), run):
                _crash(client, one.id, message)
