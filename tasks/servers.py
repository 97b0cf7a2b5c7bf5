"""The two dashboards of a working folder, as child processes on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

from conf.errors import InputError
from tasks.environment import state_dir

LOOPBACK = "127.0.0.1"
START_SECONDS = 120.0
"""Longest wait for a server; a fresh Prefect database takes most of it on a slow machine."""


@dataclass(frozen=True)
class Server:
    """One dashboard: how it is started and how one can tell that it answers."""

    name: str
    port: int
    command: list[str]
    health: str

    @property
    def url(self) -> str:
        """Address of its page."""
        return f"http://{LOOPBACK}:{self.port}"


def servers(prefect_port: int, mlflow_port: int) -> list[Server]:
    """Return the Prefect and MLflow servers over the stores of the working folder."""
    python = sys.executable
    prefect = [python, "-m", "prefect", "server", "start", "--host", LOOPBACK, "--port", str(prefect_port)]
    mlflow = [
        python, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", str(mlflow_port), "--workers", "1",
        "--backend-store-uri", os.environ["MLFLOW_TRACKING_URI"],
        "--artifacts-destination", (Path.cwd() / "mlartifacts").as_uri(),
    ]  # fmt: skip
    return [
        Server("Prefect", prefect_port, prefect, "/api/health"),
        Server("MLflow", mlflow_port, mlflow, "/health"),
    ]


def serve_ui(prefect_port: int, mlflow_port: int, say: Callable[[str], None]) -> None:
    """Start both servers, say where they are, and wait until one ends or the user interrupts.

    Raises
    ------
    InputError
        A port is taken, MLflow's store is a remote server, or a server does not come up.
    """
    if os.environ["MLFLOW_TRACKING_URI"].startswith("http"):
        raise InputError(
            f"MLFLOW_TRACKING_URI is the server {os.environ['MLFLOW_TRACKING_URI']}: open that in a browser."
        )
    wanted = servers(prefect_port, mlflow_port)
    for server in wanted:
        _require_free(server)
    processes: list[subprocess.Popen[bytes]] = []
    note = state_dir() / "ui.json"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for server in wanted:
            log = state_dir() / f"{server.name.lower()}.log"
            with log.open("wb") as sink:
                processes.append(
                    subprocess.Popen(server.command, stdout=sink, stderr=subprocess.STDOUT, env=_child_environment())
                )
        say("starting both dashboards ...")
        for server, process in zip(wanted, processes, strict=True):
            _wait_for(server, process)
            say(f"{server.name:8} {server.url}")
        note.write_text(json.dumps({"prefect_api": f"{wanted[0].url}/api"}), encoding="utf-8")
        say("runs of this folder that are started now show up live; Ctrl-C stops both.")
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
        say("a dashboard has stopped; its log is in " + str(state_dir()))
    except KeyboardInterrupt:
        say("stopping")
    finally:
        note.unlink(missing_ok=True)
        _stop(processes)


def running_prefect_api() -> str | None:
    """Return the address of the Prefect API of this folder's `learnkernels ui`, if one answers."""
    note = state_dir() / "ui.json"
    if not note.exists():
        return None
    address = str(json.loads(note.read_text(encoding="utf-8"))["prefect_api"])
    return address if _answers(f"{address}/health") else None


def _child_environment() -> dict[str, str]:
    """Return the environment of the servers: each its own store, no other server's address."""
    return {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"}


def _require_free(server: Server) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, server.port))
        except OSError:
            option = f"--{server.name.lower()}-port"
            raise InputError(
                f"port {server.port} for {server.name} is taken; stop what runs there or choose another with {option}."
            ) from None


def _wait_for(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        if _answers(server.url + server.health):
            return
        time.sleep(0.3)
    log = state_dir() / f"{server.name.lower()}.log"
    raise InputError(f"{server.name} did not come up on port {server.port}; its log is {log}.")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
