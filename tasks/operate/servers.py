"""The servers of a working folder, and the worker that runs its schedules, as child processes on loopback."""

from __future__ import annotations

import atexit
import json
import os
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from learnkernels.conf.errors import InputError, without_passwords
from learnkernels.tasks.environment import (
    answers,
    folder_key,
    key_file,
    running_server,
    servers_note,
)
from learnkernels.tasks.evidence.notes import RUN, runs_path
from learnkernels.tasks.operate.children import LOOPBACK, Child, Service, children, free_port, reap
from learnkernels.tasks.owner import Owner
from learnkernels.tasks.store import atomic_path

POOL = "learnkernels"
"""The work pool of all schedules."""


class Watch(Protocol):
    """What Prefect knows of the worker."""

    def online(self) -> bool:
        """Return whether it has reported."""

    def stopped(self, run_ids: set[str]) -> None:
        """Take note that it ended while these flow runs were in progress."""


def prefect_server(port: int) -> Service:
    """Return the Prefect server over the database of the working folder, or PREFECT_SERVER_DATABASE_CONNECTION_URL."""
    # Its pages ask port 4200 unless told otherwise; behind a proxy the user tells.
    api = f"http://{LOOPBACK}:{port}/api"
    env = {"PREFECT_UI_API_URL": os.environ.get("PREFECT_UI_API_URL", api)}
    return Service("Prefect", _serving("prefect", str(port)), lambda: answers(f"{api}/health"), port, env)


def mlflow_server(port: int) -> Service:
    """Return the MLflow server over the store of the working folder, or MLFLOW_TRACKING_URI."""
    env = {"MLFLOW_BACKEND_STORE_URI": os.environ["MLFLOW_TRACKING_URI"]}  # may hold a password: on no command line
    health = f"http://{LOOPBACK}:{port}/health"
    return Service("MLflow", _serving("mlflow", str(port)), lambda: answers(health), port, env)


def worker_name() -> str:
    """Return what the worker of this host is called: as `Owner` names hosts, since containers may share a name."""
    return Owner.this().host


def worker(api: str, watch: Watch) -> Service:
    """Return the worker that starts scheduled runs as processes of this machine."""
    command = _serving(
        "worker", "--pool", POOL, "--type", "process", "--name", worker_name(), "--install-policy", "never"
    )
    return Service(
        "Worker",
        command,
        watch.online,
        env={"PREFECT_API_URL": api},
        stopped=watch.stopped,
    )


def _serving(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "learnkernels.tasks.operate.serving", *arguments]


def temporary_prefect() -> Child:
    """Start a Prefect server for this process alone, without pages and schedules, and name it in PREFECT_API_URL.

    Call before Prefect is imported, and wait until it is up before the first flow: both take their time. It ends at the
    end of this process, after Prefect has said its last word here.
    """
    service = prefect_server(free_port())
    env = {**service.env, "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT_UI_ENABLED": "false"}
    child = Child(replace(service, env=env, temporary=True))
    atexit.register(child.stop)
    os.environ["PREFECT_API_URL"] = f"{service.url}/api"
    os.environ["PREFECT_API_AUTH_STRING"] = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or folder_key()
    return child


def serve_ui(prefect_port: int, mlflow_port: int, say: Callable[[str], None]) -> None:
    """Start both servers, say where they are, and keep them running until the user interrupts.

    Raises
    ------
    InputError
        A port is taken, MLflow's store is a remote server, or a server does not come up, or not stay up.
    """
    if _remote_mlflow():
        raise InputError(
            f"MLFLOW_TRACKING_URI is the server {without_passwords(os.environ['MLFLOW_TRACKING_URI'])}: open that in a "
            "browser."
        )
    reap()
    prefect, mlflow = prefect_server(prefect_port), mlflow_server(mlflow_port)
    if running_server("prefect_api") == f"{prefect.url}/api" and running_server("mlflow") == mlflow.url:
        for line in (*map(_where, (prefect, mlflow)), "both run already, from another terminal.", *_about_key()):
            say(line)
        return
    with children(say, _where) as start:
        say("starting both dashboards ...")
        start(prefect, mlflow)
        if chart := newest_chart(mlflow.url):
            say(f"chart    {chart}")
        for line in _about_key():
            say(line)
        with _noted(prefect, mlflow):
            say("runs of this folder that are started now show up live; Ctrl-C stops both.")
            start.watch()


def serve_up(
    prefect_port: int,
    mlflow_port: int,
    prepare: Callable[[str, bool, Callable[[str], None]], Watch],
    say: Callable[[str], None],
) -> None:
    """Start what runs schedules, say where it is, and keep it running until the user interrupts.

    A Prefect server, an MLflow server and one worker. A server that PREFECT_API_URL or MLFLOW_TRACKING_URI already
    names is not started. The worker starts last and stops first.

    Parameters
    ----------
    prefect_port, mlflow_port : int
        Where the servers listen, on loopback.
    prepare : callable
        Called with the address of Prefect's API, whether it is a server started here, and `say`, before the worker
        starts; returns who asks and tells Prefect about the worker.
    say : callable
        Prints a line.

    Raises
    ------
    InputError
        A port is taken, or a part does not come up, or not stay up.
    """
    reap()
    with children(say, _where) as start:
        api = os.environ.get("PREFECT_API_URL")
        prefect = None if api else prefect_server(prefect_port)
        mlflow = None if _remote_mlflow() else mlflow_server(mlflow_port)
        say("starting ...")
        start(*(server for server in (prefect, mlflow) if server is not None))
        for name, server, address in (("Prefect", prefect, api), ("MLflow", mlflow, os.environ["MLFLOW_TRACKING_URI"])):
            if server is None:
                say(f"{name:8} {without_passwords(str(address))} (not started here)")
        api = api or f"{prefect_server(prefect_port).url}/api"
        start(worker(api, prepare(api, prefect is not None, say)))
        for line in _about_key():
            say(line)
        with _noted(prefect, mlflow):
            say("deploy with 'learnkernels deploy CONF --register NAME'; Ctrl-C stops everything, the worker first.")
            start.watch()


def _where(service: Service) -> str:
    """Return where a service is found: on a terminal with the key, which has no place in a journal."""
    if service.port is None:
        return f"{service.name:8} takes runs of the work pool {POOL}"
    key = f"/?key={folder_key().rpartition(':')[2]}" if sys.stderr.isatty() else ""
    return f"{service.name:8} {service.url}{key}"


def _about_key() -> list[str]:
    """Return what to do where an address was said without the key."""
    here = (
        f"pages ask for the key of this folder, once a browser: add '?key=' and what follows the colon in {key_file()}."
    )
    return [] if sys.stderr.isatty() else [here]


@contextmanager
def _noted(prefect: Service | None, mlflow: Service | None) -> Iterator[None]:
    """Let runs of this folder find its servers, if any were started here; those of another machine are noted there."""
    if prefect is None and mlflow is None:
        yield
        return
    prefect_api = {} if prefect is None else {"prefect_api": f"{prefect.url}/api"}
    with atomic_path(servers_note()) as note:
        note.write_text(json.dumps(prefect_api | ({} if mlflow is None else {"mlflow": mlflow.url})), encoding="utf-8")
    try:
        yield
    finally:
        servers_note().unlink(missing_ok=True)


def newest_chart(mlflow_url: str) -> str | None:
    """Return the address of the charts of the newest comparison, if the server answers and has one."""
    wanted = {"max_results": 1, "order_by": ["last_update_time DESC"], "filter": f"tags.`{RUN}` LIKE '%'"}
    request = urllib.request.Request(
        f"{mlflow_url}/api/2.0/mlflow/experiments/search",
        json.dumps(wanted).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {folder_key()}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            found = json.load(response).get("experiments", [])
    except OSError:
        return None
    if not found:
        return None
    newest = next(tag["value"] for tag in found[0]["tags"] if tag["key"] == RUN)
    return f"{mlflow_url}/{runs_path(found[0]['experiment_id'], run=newest)}"


def _remote_mlflow() -> bool:
    return os.environ["MLFLOW_TRACKING_URI"].startswith("http")
