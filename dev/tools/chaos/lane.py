"""A lane: a folder in which one try after the other is made, and the processes of these
tries.

A lane has imported what the commands need: most tries are forked from it, which saves
the seconds of the imports; the others start Python as a user does. The folder that
commands work in is always at the same place, since MLflow keeps absolute paths, and is
replaced by a copy of a prepared one before each try.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from dev.tools.chaos.commands import (
    COMMANDS,
    FROM_NOTHING,
    PREPARATION,
    SERVERS,
    numbers,
    write_inputs,
)
from dev.tools.forked import die_with, fork, load
from dev.tools.mutations import is_sentence
from dev.tools.waiting import within
from learnkernels.tasks.operate.servers import free_port

ROOT = Path(__file__).resolve().parents[3]
MARKER = "LEARNKERNELS_CHAOS"
"""Variable that the processes of a try inherit, by which those are found that it left behind."""

HANG = 60.0
"""Seconds after which a command hangs, or ten times as long as it takes undisturbed."""

LONGEST = 600
"""Characters of a sentence, with the paths of a deep folder in it."""

UP = "Ctrl-C"
"""What a command prints when its servers are up."""

UNEXPECTED = "unexpected internal error"
"""What the sentence about an error says that no part of the program has a sentence for; its traceback is in a log."""

NOISE = (
    "Traceback (most recent call last)",
    "Exception ignored",
    "| ERROR ",
    "| CRITICAL ",
    "Fatal Python error",
)
"""What no command may print."""

SILENT = {"papers": (0, 1)}  # where an item fails, a line says so


@dataclass
class Ended:
    """How a command ended.

    Attributes
    ----------
    code : int or None
        Exit code, less than zero for a signal; None where it hung and was killed.
    out, err : str
    seconds : float
    """

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def said(self) -> str:
        """The end of what it printed."""
        return (self.out[-1500:] + "\n" + self.err[-3000:]).strip()

    @property
    def last(self) -> str:
        """The last line on stderr."""
        return (self.err.strip().splitlines() or [""])[-1]

    def fault(self, command: str) -> str:
        """Return what is wrong with it: a crash, a traceback, no sentence; "" if nothing is."""
        if self.code is None:
            return "hangs"
        if found := [text for text in NOISE if text in self.out or text in self.err]:
            return "traceback" if found[0] == NOISE[0] else "noise"
        if self.code < 0:
            return f"died of {signal.Signals(-self.code).name}"
        lines = [line.rpartition("\r")[2] for line in self.err.splitlines()]
        sentences = [
            line.removeprefix("error: ") for line in lines if line.startswith("error: ")
        ]
        if not sentences and self.code in SILENT.get(command, (0,)):
            return ""
        if any(UNEXPECTED in sentence for sentence in sentences):
            return "an unexpected internal error"
        if self.code not in (1, 2) or len(sentences) != 1:
            return "no sentence"
        return "" if is_sentence(sentences[0], LONGEST) else "not one sentence"


@dataclass
class Running:
    """A command in progress: a process of its own session."""

    pid: int
    out: Path
    err: Path
    marker: str
    popen: subprocess.Popen[bytes] | None
    started: float = field(default_factory=time.monotonic)
    code: int | None = None

    def ended(self) -> bool:
        """Return whether it has ended."""
        if self.code is not None:
            return True
        if self.popen is not None:
            self.code = self.popen.poll()
        else:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def wait(self, seconds: float) -> Ended:
        """Wait for its end; kill it if that takes too long."""
        deadline = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < deadline:
            time.sleep(0.02)
        code, took = self.code, time.monotonic() - self.started
        if not self.ended():
            self.kill()
        return Ended(
            code,
            *(path.read_text(errors="replace") for path in (self.out, self.err)),
            took,
        )

    def kill(self) -> None:
        """Kill the process alone, not what it has started."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
        while not self.ended():
            time.sleep(0.01)

    def signal_group(self, number: int) -> None:
        """Send a signal to the process group, as a terminal does."""
        if not self.ended():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def printed(self) -> str:
        """Return what it has printed so far."""
        return self.out.read_text(errors="replace") + self.err.read_text(
            errors="replace"
        )


class Lane:
    """A folder for tries, prepared when it is new.

    Parameters
    ----------
    folder : Path
        Its own.

    Attributes
    ----------
    work : Path
        Where commands work.
    expected : dict of str to dict of str to str
        Numbers of each command undisturbed.
    seconds : dict of str to float
        How long each takes, forked from here or started as a user does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work, self.home, self.logs = (
            folder / "work",
            folder / "home",
            folder / "logs",
        )
        for path in (self.work, self.home, self.logs):
            path.mkdir(parents=True, exist_ok=True)
        self.expected: dict[str, dict[str, str]] = {}
        self.seconds: dict[str, float] = {}
        self.count = 0
        self.said: set[str] = set()
        self.api = ""

    # Preparation

    @contextmanager
    def open(self) -> Iterator[Lane]:
        """Start a Prefect server for most tries, import what commands need, and prepare the folder if it is new."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield from self._opened()

    def _opened(self) -> Iterator[Lane]:
        self.sweep()
        server = self._prefect_server()
        try:
            os.environ.update(self.environment())
            os.environ["PREFECT_API_URL"] = self.api
            self.empty()
            os.chdir(self.work)
            load()
            self._prepare()
            yield self
        finally:
            os.chdir(self.folder)
            server.kill()
            server.wait()
            self.sweep()

    def environment(self) -> dict[str, str]:
        """Return the environment of a new user, on whose machine OpenBLAS works as on this one."""
        kept = {"PATH", "LANG", "LC_ALL", "CI"} | {
            key for key in os.environ if key.startswith("OPENBLAS_")
        }
        return {key: os.environ[key] for key in sorted(kept) if key in os.environ} | {
            "HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def _prefect_server(self) -> subprocess.Popen[bytes]:
        port = free_port()
        self.api = f"http://127.0.0.1:{port}/api"
        env = self.environment() | {
            "PREFECT_HOME": str(self.folder / "server"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "true",
            MARKER: f"{self.folder}#server",
        }
        command = [
            sys.executable,
            "-m",
            "prefect",
            "server",
            "start",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        with (self.logs / "server.log").open("wb") as log:
            server = subprocess.Popen(
                command,
                cwd=self.folder,
                env=env,
                stdout=log,
                stderr=log,
                preexec_fn=die_with,
            )
        import httpx

        alive = lambda: (  # noqa: E731
            server.poll() is not None
            or httpx.get(f"{self.api}/health").status_code == 200
        )
        if not within(alive, 400) or server.poll() is not None:
            server.kill()
            raise RuntimeError(f"no Prefect server; see {self.logs / 'server.log'}")
        return server

    def _prepare(self) -> None:
        """Make the folders that are copied."""
        note = self.folder / "expected.json"
        if note.exists():
            self.expected, self.seconds = json.loads(note.read_text(encoding="utf-8"))
            return
        for state in ("fresh", "prepared"):
            shutil.rmtree(self.folder / state, ignore_errors=True)
        self.empty()
        write_inputs(self.work)
        shutil.copytree(self.work, self.folder / "fresh")
        # Makes Prefect's tables here, too
        first = self.start(COMMANDS["compare"], forked=False, shared=False)
        self._require(first.wait(600))
        for arguments in PREPARATION:
            self._require(self.start(arguments).wait(600))
        shutil.copytree(self.work, self.folder / "prepared", symlinks=True)
        note.write_text(json.dumps([{}, {}]), encoding="utf-8")

    def know(self, *commands: str) -> None:
        """Run commands undisturbed of which numbers and seconds are not known yet; before the try itself."""
        for command in commands:
            if command in SERVERS or command in self.expected:
                continue
            self.reset("unstored")
            ended = self._require(self.start(COMMANDS[command]).wait(600))
            self.expected[command] = numbers(command, self.work, ended.out)
            self.seconds[command] = ended.seconds
            note = json.dumps([self.expected, self.seconds])
            (self.folder / "expected.json").write_text(note, encoding="utf-8")

    def _require(self, ended: Ended) -> Ended:
        if ended.code != 0:
            raise RuntimeError(
                f"the preparation failed with {ended.code}: {ended.said}"
            )
        return ended

    # Folders

    def empty(self) -> None:
        """Remove all that is in the folder of the commands."""
        for path in self.work.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def reset(self, state: str) -> None:
        """Put a copy in place: fresh (data and configurations), prepared, or unstored (with an empty store)."""
        self.empty()
        fill(self.folder, state, self.work)

    def outside(self) -> list[str]:
        """Return what lies beside the folder of the commands and was not put there by a lane."""
        ours = {
            "work",
            "home",
            "logs",
            "fresh",
            "prepared",
            "server",
            "expected.json",
            "journal.jsonl",
            "failures",
            "lock",
        }
        beside = {path.name for path in self.folder.iterdir()} - ours
        return sorted(beside | {f"home/{path.name}" for path in self.home.iterdir()})

    # Processes

    def start(
        self,
        arguments: Sequence[str],
        *,
        forked: bool = True,
        shared: bool = True,
        before: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> Running:
        """Start a command.

        Parameters
        ----------
        arguments : sequence of str
        forked : bool
            From here, which saves the imports, instead of starting Python.
        shared : bool
            With the lane's Prefect server; otherwise with a temporary one, which a
            forked command cannot have.
        before : sequence of str
            Program and arguments that start Python.
        env : mapping of str to str, optional
            Further variables of a command that is not forked.
        """
        self.count += 1
        marker = f"{self.folder}#{os.getpid()}.{self.count}"
        out, err = (
            self.logs / f"{os.getpid()}.{name}"
            for name in (f"{self.count}.out", f"{self.count}.err")
        )
        if forked:
            return Running(
                fork(arguments, self.work, out, err, {MARKER: marker}),
                out,
                err,
                marker,
                None,
            )
        env = {
            **self.environment(),
            MARKER: marker,
            **(env or {}),
            **({"PREFECT_API_URL": self.api} if shared else {}),
        }
        command = [*before, sys.executable, "-m", "learnkernels", *arguments]
        with out.open("wb") as stdout, err.open("wb") as stderr:
            popen = subprocess.Popen(
                command, cwd=self.work, env=env, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        return Running(popen.pid, out, err, marker, popen)

    def left(self, marker: str, seconds: float = 5.0) -> list[str]:
        """Return the processes of a try that go on after it, and kill them; they have some seconds to end."""
        deadline = time.monotonic() + seconds
        while (found := marked(marker)) and time.monotonic() < deadline:
            time.sleep(0.1)
        shown = []
        for process in found:
            with suppress(psutil.Error):
                shown.append(" ".join(process.cmdline())[:160])
                process.kill()
        return shown

    def sweep(self) -> None:
        """Kill what earlier tries in this folder have left behind."""
        for process in marked(f"{self.folder}#"):
            with suppress(psutil.Error):
                process.kill()

    def limit(self, command: str) -> float:
        """Return the seconds after which a command hangs."""
        return max(HANG, 10 * self.seconds.get(command, 0.0))

    def running_in_mlflow(self) -> list[str]:
        """Return the runs that MLflow believes to be in progress."""
        return _select(
            self.work / "mlflow.db", "select name from runs where status = 'RUNNING'"
        )

    def running_in_prefect(self) -> list[str]:
        """Return the flow runs that Prefect believes to be in progress, each once."""
        found = []
        for path in (
            self.folder / "server" / "prefect.db",
            self.work / ".learnkernels" / "prefect" / "prefect.db",
        ):
            found += _select(
                path,
                "select id || ' ' || name from flow_run where state_type = 'RUNNING'",
            )
        new = [run for run in found if run not in self.said]
        return new

    def forget_running(self) -> None:
        """Take no further note of the flow runs that are in progress now."""
        self.said.update(self.running_in_prefect())


def fill(folder: Path, state: str, work: Path) -> None:
    """Copy a state of a lane into an empty folder."""
    source = folder / ("fresh" if state == "fresh" else "prepared")
    shutil.copytree(source, work, symlinks=True, dirs_exist_ok=True)
    if state == "unstored":
        shutil.rmtree(work / ".learnkernels" / "store", ignore_errors=True)


def states(command: str) -> list[str]:
    """Return the states that a command can start from."""
    return [
        "unstored",
        "unstored",
        "unstored",
        "prepared",
        *(["fresh"] if command in FROM_NOTHING else []),
    ]


def marked(marker: str) -> list[psutil.Process]:
    """Return the processes whose environment has the marker, or one that begins so."""
    wanted, found = f"{MARKER}={marker}".encode(), []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError, psutil.Error):
            variables = (folder / "environ").read_bytes().split(b"\0")
            if any(
                one == wanted or (marker.endswith("#") and one.startswith(wanted))
                for one in variables
            ):
                process = psutil.Process(int(folder.name))
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def _select(path: Path, query: str) -> list[str]:
    if not path.exists():
        return []
    with (
        suppress(sqlite3.Error),
        closing(
            sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        ) as database,
    ):
        return [str(row[0]) for row in database.execute(query)]
    return []
