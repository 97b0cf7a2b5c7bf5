"""Child processes of `learnkernels`: started, watched, started again, stopped in order, and reaped where that failed.

Each child leads its own session, so that Ctrl-C in a terminal reaches this process alone; ends when its standard input
is closed, which the system does when this process ends, whatever ends it; and is marked in its environment, as all are
that it starts, so that what outlives its owner is found.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import psutil

from learnkernels.conf.errors import InputError, cut, without_passwords
from learnkernels.tasks.environment import state_dir
from learnkernels.tasks.owner import Owner
from learnkernels.tasks.stopping import last_word, requested

LOOPBACK = "127.0.0.1"

MARK = "LEARNKERNELS_STARTED_BY"
"""In the environment of children and of theirs: owner, name of the service, state folder."""

START_SECONDS = 300.0
"""Longest wait for a server; a fresh Prefect database takes most of it on a slow machine."""

PORTS_FROM, TRIES = 20_000, 100
"""The lowest port of a temporary server, and how many are looked at."""

STOP_SECONDS = 6.0
"""How long all children may take to end after they were asked to; then they are killed."""

RUNS_SHARE = 0.6
"""The part of it that is a worker's and its runs'; what became of these is told to a server that is there still."""

KILL_SECONDS = 0.5
"""How long each may take at least."""

RESTARTS, RESTART_SECONDS = 5, 600.0
"""So many times in so many seconds a child that has ended by itself is started again."""

RUN_ID = "PREFECT__FLOW_RUN_ID"
"""What tells the process of a flow run which one it is."""


@dataclass(frozen=True)
class Service:
    """What a child process does: how it is started, where its page is and how one can tell that it answers."""

    name: str
    command: list[str]
    answers: Callable[[], bool]
    port: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stopped: Callable[[set[str]], None] | None = None
    """Of a worker: called after it has ended, with the ids of the flow runs that were in progress."""
    temporary: bool = False
    """Whether it serves this process alone."""

    @property
    def url(self) -> str:
        """Address of its page."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return state_dir() / (f"tmp/prefect-{self.port}.log" if self.temporary else f"{self.name.lower()}.log")


class Child:
    """A running service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.ends: list[float] = []
        """When it has ended by itself."""
        self._mark = f"{Owner.this()} {service.name} {state_dir()}"
        self._came_up = self._stopped = False
        self._starting = threading.Lock()
        self.service.log.unlink(missing_ok=True)
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.service.log.open("ab") as sink:  # at its end, wherever that is: the log may be cut
            return subprocess.Popen(
                self.service.command,
                stdin=subprocess.PIPE,  # closed by the system when this process ends
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**_without_servers(), **self.service.env, MARK: self._mark},
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """How it ended, or None while it runs."""
        return self._process.poll()

    def wait_until_up(self) -> None:
        """Wait until it answers.

        Raises
        ------
        InputError
            It does not, or has ended; says why if it does.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.exit_code is None:
            if self.service.answers():
                self._came_up = True
                return
            time.sleep(0.1)
        last = self._last_line()
        if last.startswith("error: "):  # a service of ours says what was wrong
            raise InputError(last.removeprefix("error: "))
        where = f" on port {self.service.port}" if self.service.port else ""
        said = f" ({cut(without_passwords(last), 160)})" if last else ""
        raise InputError(f"{self.service.name} did not come up{where}{said}; its log is {self.service.log}.")

    def _last_line(self) -> str:
        """Return what it has said last."""
        with suppress(OSError):
            return self.service.log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
        return ""

    def keep_up(self) -> None:
        """Start it again whenever it ends by itself, from a thread of its own: who uses it tries for half a minute."""
        threading.Thread(target=self._keep_up, name=f"keeping {self.service.name} up", daemon=True).start()

    def _keep_up(self) -> None:
        for _ in range(RESTARTS):
            self._process.wait()
            with self._starting:
                if self._stopped or requested():
                    return
                self.start_again()

    def start_again(self) -> None:
        """Start it again after it has ended, and has left nothing behind."""
        self._end(time.monotonic() + STOP_SECONDS)
        self._process = self._started()

    def stop(self, deadline: float | None = None) -> None:
        """Ask it to end, and kill what has not by the deadline."""
        with self._starting:
            self._stopped = True
        self._end(time.monotonic() + STOP_SECONDS if deadline is None else deadline)
        if self.service.temporary and self._came_up:
            self.service.log.unlink(missing_ok=True)

    def _end(self, deadline: float) -> None:
        """End the flow runs of a worker, which would kill them without a last word, itself, and what is left."""
        runs = [] if self.service.stopped is None else self._runs()
        run_ids = _run_ids(runs)
        send(runs, psutil.Process.terminate)
        psutil.wait_procs(runs, timeout=_left(deadline) if runs else 0)
        if self.exit_code is None:
            self._process.terminate()
        try:
            self._process.wait(_left(deadline))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.kill(run_ids)

    def _runs(self) -> list[psutil.Process]:
        """Return the flow runs of a worker, and not the processes that they have started, which they end themselves."""
        others = {one.pid: one for one in self._family() if one.pid != self._process.pid}
        return [one for one in others.values() if _parent(one) not in others]

    def kill(self, run_ids: frozenset[str] = frozenset()) -> None:
        """Kill it and all that it has started; Prefect shows runs as crashed, as it does those that are given."""
        family = self._family()
        run_ids |= _run_ids(family)
        _kill(family)
        if self.service.stopped is not None:
            self.service.stopped(set(run_ids))

    def _family(self) -> list[psutil.Process]:
        """Return its process, if it lives, and those that it has started, whoever is their parent now."""
        return _marked(lambda mark: mark == self._mark)


class Children:
    """Services that run together, in the order of their start; `where` is what is said of each once it runs."""

    def __init__(self, say: Callable[[str], None], where: Callable[[Service], str]) -> None:
        self._say, self._where = say, where
        self.running: list[Child] = []

    def __call__(self, *services: Service) -> None:
        """Start services at once, wait until each answers, and say where it is."""
        for service in services:
            _require_free(service)
        children = [Child(service) for service in services]
        self.running += children
        for child in children:
            child.wait_until_up()
            self._say(self._where(child.service))

    def watch(self) -> NoReturn:
        """Start a child again when it ends by itself; an interrupt is how this ends well.

        Raises
        ------
        InputError
            One has ended too often, or does not come up again; says which one, and where its log is.
        """
        while True:
            time.sleep(0.5)
            for child in self.running:
                if child.exit_code is not None:
                    self._start_again(child)

    def _start_again(self, child: Child) -> None:
        name, now = child.service.name, time.monotonic()
        stopped = f"{name} has stopped by itself (exit code {child.exit_code})"
        child.ends = [end for end in child.ends if now - end < RESTART_SECONDS] + [now]
        if len(child.ends) > RESTARTS:
            raise InputError(
                f"{stopped}, {len(child.ends)} times within {RESTART_SECONDS / 60:g} minutes; its log is "
                f"{child.service.log}."
            )
        self._say(f"{stopped} and is started again; its log is {child.service.log}.")
        child.start_again()
        child.wait_until_up()
        self._say(self._where(child.service))

    def stop(self) -> None:
        """Stop all, the last one first."""
        began = time.monotonic()
        for child in reversed(self.running):
            share = 1.0 if child.service.stopped is None else RUNS_SHARE
            child.stop(began + share * STOP_SECONDS)

    def kill(self) -> None:
        """Kill all, and what they have started."""
        for child in reversed(self.running):
            child.kill()


@contextmanager
def children(say: Callable[[str], None], where: Callable[[Service], str]) -> Iterator[Children]:
    """Give a starter of services; in the end, whatever ends it, stop them."""
    started = Children(say, where)
    with last_word(started.kill):
        try:
            yield started
        except KeyboardInterrupt:
            say("stopping")
            raise
        finally:
            started.stop()


def reap() -> None:
    """Kill what processes of this folder have left behind that are gone themselves."""
    _kill(_marked(_is_left_behind))


def _is_left_behind(mark: str) -> bool:
    owner, _, rest = mark.partition(" ")
    found = Owner.read(owner)
    return found is not None and rest.partition(" ")[2] == str(state_dir()) and found.gone


def _marked(wanted: Callable[[str], bool]) -> list[psutil.Process]:
    """Return the processes of this user whose mark is wanted."""
    found = []
    for process in psutil.process_iter():
        mark = _environment(process).get(MARK)
        if mark is not None and process.pid != os.getpid() and wanted(mark):
            found.append(process)
    return found


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ())
    except (psutil.Error, OSError):
        return {}  # it has ended, or is another user's


def _run_ids(processes: Sequence[psutil.Process]) -> frozenset[str]:
    found = (_environment(process).get(RUN_ID) for process in processes)
    return frozenset(run_id for run_id in found if run_id is not None)


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None


def _kill(processes: Sequence[psutil.Process]) -> None:
    send(processes, psutil.Process.kill)
    psutil.wait_procs(processes, timeout=KILL_SECONDS)


def send(processes: Sequence[psutil.Process], signal: Callable[[psutil.Process], None]) -> None:
    """Give processes a signal, those that are there still."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            signal(process)


def _left(deadline: float) -> float:
    return max(KILL_SECONDS, deadline - time.monotonic())


def _without_servers() -> dict[str, str]:
    """Return the environment of children: each its own store, no other server's address."""
    return {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"}


def free_port() -> int:
    """Return a port that is free now, and not among those that the system gives to connections meanwhile."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = 0  # unknown: as the system chooses
    for port in random.SystemRandom().sample(range(PORTS_FROM, first), TRIES) if first - PORTS_FROM >= TRIES else ():
        if _free(port):
            return port
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind((LOOPBACK, port))
        return True
    return False


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
