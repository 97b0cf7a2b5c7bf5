"""The servers of a working folder, and the worker that runs its schedules, as child processes on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from learnkernels.conf.errors import InputError
from learnkernels.tasks.environment import answers, servers_note, state_dir, without_passwords
from learnkernels.tasks.evidence.saved_view import NEWEST, PREFIX, view_path
from learnkernels.tasks.store import atomic_path

LOOPBACK = "127.0.0.1"
POOL = "learnkernels"
"""The work pool of all schedules."""

START_SECONDS = 120.0
"""Longest wait for a server; a fresh Prefect database takes most of it on a slow machine."""

STOP_SECONDS = 30.0
"""How long a child may take to end after it was asked to; then it is killed."""

RUN_ID = "PREFECT__FLOW_RUN_ID"
"""What tells the process of a flow run which one it is."""

Answer = Callable[[], bool]


class Watch(Protocol):
    """What Prefect knows of the worker."""

    def online(self) -> bool:
        """Return whether it has reported."""

    def stopped(self, run_ids: set[str]) -> None:
        """Take note that it ended while these flow runs were in progress."""


@dataclass(frozen=True)
class Service:
    """One child process: how it is started, where its page is and how one can tell that it answers."""

    name: str
    command: list[str]
    answers: Answer
    port: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stopped: Callable[[set[str]], None] | None = None
    """Of a worker: called after it has ended, with the ids of the flow runs that were in progress."""

    @property
    def url(self) -> str:
        """Address of its page."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return state_dir() / f"{self.name.lower()}.log"


def prefect_server(port: int) -> Service:
    """Return the Prefect server over the database of the working folder, or PREFECT_SERVER_DATABASE_CONNECTION_URL."""
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]
    # Its pages ask port 4200 unless told otherwise; behind a proxy the user tells.
    api = f"http://{LOOPBACK}:{port}/api"
    env = {"PREFECT_UI_API_URL": os.environ.get("PREFECT_UI_API_URL", api)}
    return Service("Prefect", command, lambda: answers(f"{api}/health"), port, env)


def mlflow_server(port: int) -> Service:
    """Return the MLflow server over the store of the working folder, or MLFLOW_TRACKING_URI."""
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", str(port), "--workers", "1",
        "--backend-store-uri", os.environ["MLFLOW_TRACKING_URI"],
        "--artifacts-destination", (Path.cwd() / "mlartifacts").as_uri(),
    ]  # fmt: skip
    return Service("MLflow", command, lambda: answers(f"http://{LOOPBACK}:{port}/health"), port)


def worker(api: str, watch: Watch) -> Service:
    """Return the worker that starts scheduled runs as processes of this machine."""
    command = [
        sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process",
        "--name", socket.gethostname(), "--install-policy", "never",
    ]  # fmt: skip
    return Service("Worker", command, watch.online, env={"PREFECT_API_URL": api}, stopped=watch.stopped)


def serve_ui(prefect_port: int, mlflow_port: int, say: Callable[[str], None]) -> None:
    """Start both servers, say where they are, and wait until one ends or the user interrupts.

    Raises
    ------
    InputError
        A port is taken, MLflow's store is a remote server, or a server does not come up.
    """
    if _remote_mlflow():
        raise InputError(
            f"MLFLOW_TRACKING_URI is the server {without_passwords(os.environ['MLFLOW_TRACKING_URI'])}: open that in a "
            "browser."
        )
    with _children(say) as start:
        prefect, mlflow = prefect_server(prefect_port), mlflow_server(mlflow_port)
        say("starting both dashboards ...")
        start(prefect, mlflow)
        if chart := newest_chart(mlflow.url):
            say(f"chart    {chart}")
        with _noted(prefect, mlflow):
            say("runs of this folder that are started now show up live; Ctrl-C stops both.")
            _wait_for_end(start.running)


def serve_up(
    prefect_port: int,
    mlflow_port: int,
    prepare: Callable[[str, bool, Callable[[str], None]], Watch],
    say: Callable[[str], None],
) -> None:
    """Start what runs schedules, say where it is, and wait until a part ends or the user interrupts.

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
        A port is taken, or a part does not come up.
    """
    with _children(say) as start:
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
        with _noted(prefect, mlflow):
            say("deploy with 'learnkernels deploy CONF --register NAME'; Ctrl-C stops everything, the worker first.")
            _wait_for_end(start.running)


class _Starter:
    """Starts services, waits until each answers, and knows those that run, in the order of their start."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.running: list[tuple[Service, subprocess.Popen[bytes]]] = []

    def __call__(self, *services: Service) -> None:
        for service in services:
            _require_free(service)
        started = len(self.running)
        for service in services:
            with service.log.open("wb") as sink:
                process = subprocess.Popen(
                    service.command,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env={**_child_environment(), **service.env},
                    start_new_session=True,  # Ctrl-C reaches this process alone, which stops its children in order
                )
            self.running.append((service, process))
        for service, process in self.running[started:]:
            _wait_for(service, process)
            self.say(f"{service.name:8} {service.url if service.port else f'takes runs of the work pool {POOL}'}")


@contextmanager
def _children(say: Callable[[str], None]) -> Iterator[_Starter]:
    """Give a starter of services; in the end, and after Ctrl-C, SIGTERM and SIGHUP, stop them, the last one first."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background commands without
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    starter = _Starter(say)
    try:
        yield starter
    except KeyboardInterrupt:
        say("stopping")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C would leave children behind
        for service, process in reversed(starter.running):
            _stop(service, process)


@contextmanager
def _noted(prefect: Service | None, mlflow: Service | None) -> Iterator[None]:
    """Let runs of this folder find its servers."""
    prefect_api = {} if prefect is None else {"prefect_api": f"{prefect.url}/api"}
    with atomic_path(servers_note()) as note:
        note.write_text(json.dumps(prefect_api | ({} if mlflow is None else {"mlflow": mlflow.url})), encoding="utf-8")
    try:
        yield
    finally:
        servers_note().unlink(missing_ok=True)


def newest_chart(mlflow_url: str) -> str | None:
    """Return the address of the chart of the experiment that changed last, if the server answers and has one."""
    wanted = {
        "max_results": 1,
        "order_by": ["last_update_time DESC"],
        "filter": f"tags.`{PREFIX}{NEWEST.key}` LIKE '%'",
    }
    request = urllib.request.Request(
        f"{mlflow_url}/api/2.0/mlflow/experiments/search",
        json.dumps(wanted).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            found = json.load(response).get("experiments", [])
    except OSError:
        return None
    return f"{mlflow_url}/{view_path(found[0]['experiment_id'])}" if found else None


def _wait_for_end(running: list[tuple[Service, subprocess.Popen[bytes]]]) -> None:
    """Wait until a child ends by itself, which is an error: an interrupt is how this ends well.

    Raises
    ------
    InputError
        Says which one, and where its log is.
    """
    while all(process.poll() is None for _, process in running):
        time.sleep(0.5)
    (service, process), *_ = [(service, process) for service, process in running if process.poll() is not None]
    raise InputError(
        f"{service.name} has stopped by itself (exit code {process.returncode}); its log is {service.log}."
    )


def _remote_mlflow() -> bool:
    return os.environ["MLFLOW_TRACKING_URI"].startswith("http")


def _child_environment() -> dict[str, str]:
    """Return the environment of the servers: each its own store, no other server's address."""
    return {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"}


def _require_free(service: Service) -> None:
    if service.port is None:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, service.port))
        except OSError:
            option = f"--{service.name.lower()}-port"
            raise InputError(
                f"port {service.port} for {service.name} is taken; stop what runs there or choose another with "
                f"{option}."
            ) from None


def _wait_for(service: Service, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        if service.answers():
            return
        time.sleep(0.3)
    where = f" on port {service.port}" if service.port else ""
    raise InputError(f"{service.name} did not come up{where}; its log is {service.log}.")


def _stop(service: Service, process: subprocess.Popen[bytes]) -> None:
    """Ask a child to end, and then what it has left behind; kill what does not.

    A worker waits for the runs that it has started, so these are asked as well: Prefect shows them as crashed.
    """
    family = _family(process.pid)
    runs = [] if service.stopped is None else _family(process.pid, recursive=False)
    run_ids = {run_id for run in runs if (run_id := _run_id(run)) is not None}
    if process.poll() is None:
        process.terminate()
    _signal(runs, psutil.Process.terminate)
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for send in (psutil.Process.terminate, psutil.Process.kill):
        _, family = psutil.wait_procs(family, timeout=STOP_SECONDS / 6)
        _signal(family, send)
    psutil.wait_procs(family, timeout=STOP_SECONDS / 6)
    if service.stopped is not None and run_ids:
        service.stopped(run_ids)


def _run_id(process: psutil.Process) -> str | None:
    try:
        found: str | None = process.environ().get(RUN_ID)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    return found


def _signal(processes: list[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            send(process)


def _family(pid: int, recursive: bool = True) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=recursive))
    except psutil.NoSuchProcess:
        return []
