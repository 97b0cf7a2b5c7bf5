"""Start and stop servers of Prefect and MLflow, and Prefect's worker."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import psutil

from learnkernels.conf.errors import InputError, cut, listed, without_passwords

from .. import databases, environment
from ..databases import (
    copy_prefect_tables,
    file_of,
    has_flow_runs,
    keep_prefect_tables,
    one_at_a_time,
    require_writable,
    seen_from,
)
from ..processes.owner import Owner
from ..store import atomic_path
from . import server_module
from .child_process import call_in_child_process

LOOPBACK = "127.0.0.1"

POOL = "learnkernels"

START_SECONDS = 300.0
"""Longest wait for a server; creating Prefect's database is slow."""

RUN_SECONDS = 5.0

STOP_SECONDS = 6.5

PORTS_FROM = 20_000

TRIES = 100

END_WITH_PARENT = 1
"""Linux's PR_SET_PDEATHSIG: signal a process when its parent ends."""

MLFLOW_USERS = (
    "[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///mlflow-users.db\n"
)
MLFLOW_USERS += "auth_cache_ttl_seconds = 600\n"


@dataclass
class Service:
    """Server or Prefect worker in a child process."""

    name: str
    command: Sequence[str]
    port: int | None = None
    health: str = ""
    env: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    """Working directory, and source of modules: not the user's."""
    log_name: str = ""
    process: subprocess.Popen[bytes] = field(init=False, repr=False, compare=False)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        return environment.state_dir() / (self.log_name or f"{self.name.lower()}.log")

    def start(self) -> None:
        self.log.unlink(missing_ok=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name != "PREFECT_API_URL"
        }
        with self.log.open("ab") as sink:  # appending, as the log may be rotated
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**inherited, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C does not reach the child
                preexec_fn=_end_with_parent(),
            )

    def wait_until_up(self) -> None:
        """Wait until the server answers; without a port, do not wait."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.port is None or environment.answers(f"{self.url}{self.health}"):
                return
            time.sleep(0.1)
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.split("\n") if line.strip()]
        errors = [
            line
            for line in lines
            if re.match(r"[\w.]+(Error|Exception|Refused)\b", line)
        ]
        if errors:
            trace = "\n".join(lines[lines.index(errors[-1]) :])
            wrong_setting = environment.of_the_environment(RuntimeError(trace))
            if wrong_setting:
                raise InputError(wrong_setting)
        last_line = (errors or lines or ["its log is empty"])[-1]
        reason = cut(without_passwords(last_line), 160)
        place = ""
        if self.port is not None:
            place = f" on port {self.port}"
        raise InputError(
            f"{self.name} did not come up{place} ({reason}); its log is {self.log}."
        )


def _end_with_parent() -> Callable[[], object] | None:
    """Return a function that ends a child process with this one (Linux)."""
    if sys.platform != "linux":
        return None
    return partial(ctypes.CDLL(None).prctl, END_WITH_PARENT, signal.SIGTERM)


def prefect_server(port: int) -> Service:
    """Return the service that runs this folder's Prefect server."""
    url = f"http://{LOOPBACK}:{port}"
    defaults = {
        "PREFECT_UI_API_URL": f"{url}/api",
        "PREFECT_UI_URL": url,  # for links in notifications
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{url},http://localhost:{port}",
        "PREFECT_SERVER_API_AUTH_STRING": environment.folder_key(),
    }
    env = {name: os.environ.get(name, value) for name, value in defaults.items()}
    database = os.environ.get(environment.PREFECT_DATABASE)
    if database:
        env[environment.PREFECT_DATABASE] = seen_from(environment.state_dir(), database)
    command = [
        sys.executable,
        "-m",
        "prefect",
        "server",
        "start",
        "--host",
        LOOPBACK,
        "--port",
        str(port),
    ]
    return Service(
        "Prefect", command, port, "/api/health", env, environment.state_dir()
    )


def mlflow_server(port: int) -> Service:
    """Describe this folder's MLflow server, with its command and address."""
    hosts = [f"{LOOPBACK}:{port}", f"localhost:{port}"]
    user, _, password = environment.folder_key().partition(":")
    settings = environment.state_dir() / "mlflow-auth.ini"
    with atomic_path(settings) as aside:
        aside.write_text(MLFLOW_USERS, encoding="ascii")
    defaults = {
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(hosts),
        # Browsers send no credentials to a wildcard origin; the default trusts ports
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": "*",
        "MLFLOW_AUTH_CONFIG_PATH": str(settings),
        "MLFLOW_AUTH_ADMIN_USERNAME": user,
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
    }
    env = {name: os.environ.get(name, value) for name, value in defaults.items()}
    env["MLFLOW_BACKEND_STORE_URI"] = seen_from(
        environment.state_dir(), os.environ["MLFLOW_TRACKING_URI"]
    )
    env["MLFLOW_ARTIFACTS_DESTINATION"] = (Path.cwd() / "mlartifacts").as_uri()
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--app-name",
        "basic-auth",
        "--workers",
        "1",
    ]
    command += ["--host", LOOPBACK, "--port", str(port)]
    return Service("MLflow", command, port, "/health", env, environment.state_dir())


def worker(api: str) -> Service:
    command = [
        sys.executable,
        "-m",
        "prefect",
        "worker",
        "start",
        "--pool",
        POOL,
        "--type",
        "process",
    ]
    return Service(
        "Worker", [*command, "--install-policy", "never"], env={"PREFECT_API_URL": api}
    )


def stop(children: Sequence[Service]) -> None:
    """Stop runs in progress, then services; kill processes that do not stop."""
    began = time.monotonic()
    runs = [
        run
        for child in children
        if child.port is None
        for run in _runs_of_worker(child)
    ]
    family = [
        process
        for child in reversed(children)
        for process in _session_with_descendants(child)
    ]
    # Sent twice: a signal during garbage collection is lost
    for share in (
        0.6,
        0.4,
    ):
        runs = _signal_and_wait(runs, psutil.Process.terminate, share * RUN_SECONDS)
    remaining = _signal_and_wait(
        family,
        psutil.Process.terminate,
        max(0.5, began + STOP_SECONDS - time.monotonic()),
    )
    _signal_and_wait(remaining, psutil.Process.kill, 1.0)
    for child in children:
        child.process.wait()


def _session_with_descendants(child: Service) -> list[psutil.Process]:
    family = {process.pid: process for process in _session(child)}
    for member in list(family.values()):
        with suppress(psutil.NoSuchProcess):
            family |= {
                process.pid: process for process in member.children(recursive=True)
            }
    return list(family.values())


def _runs_of_worker(worker: Service) -> list[psutil.Process]:
    """Return the runs of a worker, even after its end."""
    started = [
        process for process in _session(worker) if process.pid != worker.process.pid
    ]
    pids = {process.pid for process in started}
    runs = []
    for process in started:
        with suppress(psutil.NoSuchProcess):
            if process.ppid() not in pids:
                runs.append(process)
    return runs


def _session(child: Service) -> list[psutil.Process]:
    session = []
    for process in psutil.process_iter():
        with suppress(OSError):  # it has just ended
            if os.getsid(process.pid) == child.process.pid:
                session.append(process)
    return session


def _signal_and_wait(
    processes: Sequence[psutil.Process],
    signal_: Callable[[psutil.Process], None],
    seconds: float,
) -> list[psutil.Process]:
    """Send a signal; return the processes that outlast the time limit."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            signal_(process)
    left: list[psutil.Process] = psutil.wait_procs(processes, timeout=seconds)[1]
    return left


class Children(AbstractContextManager["Children"]):
    """Services in child processes, stopped when the context ends."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.running: list[Service] = []

    def __call__(self, *services: Service) -> None:
        """Start services, wait for their answers, and print their addresses."""
        for service in services:
            service.start()
            self.running.append(service)
        for service in services:
            service.wait_until_up()
            self._say(_address_line(service))

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._say("stopping")
        stop(self.running)

    def watch(self) -> NoReturn:
        """Wait for Ctrl-C; raise InputError if a service ends by itself."""
        while True:
            time.sleep(0.5)
            for child in self.running:
                code = child.process.poll()
                if code is not None:
                    raise InputError(
                        f"{child.name} has stopped by itself (exit code {code}), and the others are stopped; its log "
                        f"is {child.log}."
                    )


TEMPORARY = {
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",  # else `ui` would skip it
}

_temporary: dict[Path, Service] = {}


def temporary_prefect() -> Service:
    """Start a Prefect server without web pages for the runs of this process.

    Call before Prefect is imported; wait for it before the first flow.
    """
    child = _temporary.get(environment.state_dir())
    if child is None or child.process.poll() is not None:
        child = prefect_server(free_port())
        python, _, *module_and_options = child.command
        child.command = [python, "-m", server_module.__name__, *module_and_options]
        child.env |= TEMPORARY
        child.log_name = f"tmp/prefect-{child.port}.log"
        _start_temporary(child)
    os.environ["PREFECT_API_URL"] = f"{child.url}/api"
    os.environ["PREFECT_API_AUTH_STRING"] = child.env["PREFECT_SERVER_API_AUTH_STRING"]
    return child


def _start_temporary(child: Service) -> None:
    database = _prefect_database()
    with one_at_a_time():
        has_tables = _provide_tables(database)
        child.start()
        _temporary[environment.state_dir()] = child
        atexit.register(_end_temporary, child)
        if database is not None and not has_tables:
            child.wait_until_up()
            keep_prefect_tables(database)


def _prefect_database() -> Path | None:
    """Return the writable file of Prefect's database; None unless SQLite."""
    address = os.environ.get(environment.PREFECT_DATABASE)
    database: Path | None = Path(os.environ["PREFECT_HOME"], "prefect.db")
    if address:
        database = file_of(address)
    if database is not None:
        require_writable(database)
    return database


def _provide_tables(database: Path | None) -> bool:
    """Copy missing tables; return whether all certainly exist."""
    if database is None:
        return True
    if database.exists():
        return has_flow_runs(database)
    return copy_prefect_tables(database)


def _end_temporary(child: Service) -> None:
    if child.process.poll() is None:
        stop([child])
        child.log.unlink(missing_ok=True)


def serve(
    prefect_port: int,
    mlflow_port: int,
    say: Callable[[str], None],
    schedules: bool = False,
) -> None:
    """Run the servers of Prefect and MLflow until the user interrupts."""
    tracking = os.environ["MLFLOW_TRACKING_URI"]
    mlflow_is_remote = tracking.startswith("http")
    if mlflow_is_remote and not schedules:
        raise InputError(
            f"MLFLOW_TRACKING_URI is the server {without_passwords(tracking)}: open that in a browser."
        )
    prefect_api = f"http://{LOOPBACK}:{prefect_port}/api"
    prefect_is_remote = schedules and bool(os.environ.get("PREFECT_API_URL"))
    if prefect_is_remote:
        prefect_api = os.environ["PREFECT_API_URL"]
    servers: dict[str, Service] = {}
    addresses: dict[str, str] = {}
    if not prefect_is_remote:
        servers["prefect_api"] = prefect_server(prefect_port)
        addresses["prefect_api"] = prefect_api
    if not mlflow_is_remote:
        servers["mlflow"] = mlflow_server(mlflow_port)
        addresses["mlflow"] = servers["mlflow"].url
    if not schedules and _are_running(addresses):
        for server in servers.values():
            say(_address_line(server))
        say("both run already, from another terminal.")
        say(_about_key())
        return
    _require_no_other_servers(addresses)
    with Children(say) as start:
        say("starting ...")
        _start_servers(start, servers, tracking)
        if prefect_is_remote:
            say(f"Prefect  {without_passwords(prefect_api)} (not started here)")
        if mlflow_is_remote:
            say(f"MLflow   {without_passwords(tracking)} (not started here)")
        hint = (
            "runs of this folder that are started now show up live; Ctrl-C stops both."
        )
        if schedules:
            _start_worker(start, prefect_api, prefect_is_remote)
            hint = "deploy with 'learnkernels deploy CONF --model NAME'; Ctrl-C stops everything, the worker first."
        say(_about_login(servers))
        with _noting_addresses(addresses):
            say(hint)
            start.watch()


def _about_login(servers: Mapping[str, Service]) -> str:
    if "mlflow" in servers and _refuses_its_password(servers["mlflow"]):
        users = environment.state_dir() / "mlflow-users.db"
        return (
            f"MLflow refuses its password, as {users} has an earlier one; stop this, remove that file, and start "
            f"again. Prefect's page takes USER:PASSWORD of {environment.key_file()}."
        )
    return _about_key()


def _about_key() -> str:
    key_file = environment.key_file()
    return f"log in with what {key_file} holds: USER:PASSWORD on Prefect's page, USER and PASSWORD on MLflow's."


def _refuses_its_password(mlflow: Service) -> bool:
    import httpx

    user = mlflow.env["MLFLOW_AUTH_ADMIN_USERNAME"]
    password = mlflow.env["MLFLOW_AUTH_ADMIN_PASSWORD"]
    try:
        answer = httpx.get(f"{mlflow.url}/version", auth=(user, password))
    except httpx.HTTPError:
        return False
    return bool(answer.status_code == 401)


def _require_no_other_servers(addresses: Mapping[str, str]) -> None:
    noted = environment.noted_servers()
    others = [
        address for address in noted.values() if address not in addresses.values()
    ]
    if others:
        raise InputError(
            f"another 'ui' or 'up' of this folder has servers at {listed(others)}; use these, or end it first."
        )


def _are_running(addresses: Mapping[str, str]) -> bool:
    return all(
        environment.running_server(name) == address
        for name, address in addresses.items()
    )


def _start_worker(start: Children, prefect_api: str, is_remote: bool) -> None:
    if not is_remote:
        environment.show_prefect_key()
    call_in_child_process(
        "learnkernels.tasks.operate.recovery", "set_up", prefect_api, not is_remote
    )
    start(worker(prefect_api))


def _start_servers(
    start: Children, servers: Mapping[str, Service], tracking: str
) -> None:
    for server in servers.values():
        require_free(server)
    if "mlflow" in servers and not databases.mlflow_is_prepared(tracking):
        call_in_child_process(databases.__name__, "prepare_mlflow", tracking)
    with one_at_a_time():  # two servers must not create the same database
        if "prefect_api" in servers:
            _provide_tables(_prefect_database())
        start(*servers.values())


def _address_line(service: Service) -> str:
    if service.port is None:
        return f"{service.name:8} takes runs of the work pool {POOL}"
    return f"{service.name:8} {service.url}"


@contextmanager
def _noting_addresses(addresses: Mapping[str, str]) -> Iterator[None]:
    if not addresses:
        yield
        return
    note = environment.servers_note()
    content = json.dumps({**addresses, "owner": str(Owner.this())}).encode()
    with atomic_path(note) as temporary:
        temporary.write_bytes(content)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            if note.read_bytes() == content:  # not of a later command
                note.unlink()


def free_port() -> int:
    """Return a free TCP port, if possible outside the ephemeral range."""
    try:
        first = int(
            Path("/proc/sys/net/ipv4/ip_local_port_range")
            .read_text(encoding="ascii")
            .split()[0]
        )
    except (OSError, ValueError, IndexError):
        first = 0  # unknown range
    if first - PORTS_FROM >= TRIES:
        for port in random.SystemRandom().sample(range(PORTS_FROM, first), TRIES):
            with suppress(OSError), socket.create_server((LOOPBACK, port)):
                return port
    with socket.create_server((LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])


def require_free(service: Service) -> None:
    if service.port is None:
        return
    try:
        socket.create_server((LOOPBACK, service.port)).close()
    except OSError:
        raise InputError(
            f"port {service.port} for {service.name} is taken; stop what runs there or choose another with "
            f"--{service.name.lower()}-port."
        ) from None


@contextmanager
def answering() -> Iterator[None]:
    """Turn failures to reach Prefect's server within the context into InputError."""
    import httpx
    from prefect.settings import PREFECT_API_URL

    address = without_passwords(str(PREFECT_API_URL.value()))
    try:
        yield
    except httpx.HTTPStatusError as error:
        if error.response.status_code in (401, 403):
            raise InputError(
                f"the Prefect server at {address} requires authentication; set PREFECT_API_AUTH_STRING=USER:PASSWORD."
            ) from None
        raise InputError(
            f"the Prefect server at {address} answers with {error.response.status_code} "
            f"({error.response.reason_phrase}); its log says why, and what was computed is kept."
        ) from None
    except (httpx.TransportError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith(
            "Failed to reach API"
        ):
            raise
        why = type(error).__name__
        if isinstance(error, RuntimeError):
            why = "unreachable"
        raise InputError(
            f"no Prefect server answers at {address} ({why}); what was computed is kept: start it, as 'learnkernels "
            "up' does, or correct PREFECT_API_URL, and try again."
        ) from None
