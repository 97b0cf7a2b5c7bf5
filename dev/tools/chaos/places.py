"""Tries of hostile places: a full disk, a limit of file sizes, read-only folders, two hosts, a schedule."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pickle
import resource
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psutil

from dev.tools.chaos.commands import COMMANDS
from dev.tools.chaos.journal import Attempt
from dev.tools.chaos.lane import UP, Lane, Running, fill, marked
from dev.tools.chaos.running import QUICK, _afterwards, _end, judge
from dev.tools.forked import as_command, become, die_with
from dev.tools.waiting import within
from learnkernels.tasks.operate.servers import free_port

NEW_MOUNTS = 0x00020000
"""CLONE_NEWNS of unshare(2)."""

HOSTS = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Starts a program that sees no process but its own, as on another host."""

SIZE = 24 << 20
"""Bytes that a prepared folder takes on a small disk, and some more."""

SHORT = ("--keep-days", "0.01")
"""A quarter of an hour, so that what is kept levels off within an hour."""

FORGETFUL = {"PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS": "60"}
"""Of `up` under a schedule: Prefect forgets every minute and not every hour."""

SIZES = {
    "Prefect's database, MiB": ".learnkernels/prefect/prefect.db",
    "MLflow's, MiB": "mlflow.db",
}
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

MOST_GROWTH = 1.3
"""From half-way to the end: SQLite uses again what was freed, and gives none back.

Its write-ahead log is as large as the largest change was, and is none of it.
"""

MOST_GROWTH_OF = {"memory, MiB": 1.5}

CLEANED = 600.0
"""Seconds between two starts of `clean` beside it."""


def full_disk(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Run a command on a disk with little room left: its numbers, or one sentence; with room again, its numbers."""
    command = random.choice([command for command in QUICK if command != "deploy"])
    room = random.choice([0, 4 << 10, 64 << 10, random.randrange(1 << 20)])
    attempt.case = f"{command} with {room:,} bytes left"
    lane.know(command)
    _in_own_mounts(attempt, partial(_on_small_disk, lane, command, room))
    _end(attempt, "one sentence or the numbers, then the numbers")


def _on_small_disk(lane: Lane, command: str, room: int, attempt: Attempt) -> None:
    _mount("-t", "tmpfs", "-o", "size=1g", "none", str(lane.work))
    fill(lane.folder, "unstored", lane.work)
    disk = os.statvfs(lane.work)
    used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    ballast = lane.work / "ballast"
    _mount("-o", f"remount,size={used + SIZE}", str(lane.work))
    ballast.write_bytes(bytes(max(0, SIZE - room)))
    first = lane.start(COMMANDS[command])
    judge(lane, attempt, command, first.wait(lane.limit(command)))
    ballast.unlink()
    again = lane.start(COMMANDS[command])
    judge(lane, attempt, command, again.wait(lane.limit(command)), must_succeed=True)
    _afterwards(lane, attempt, first, again)


def file_sizes(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Run a command that may write no file beyond a size: its numbers, or one sentence; without, its numbers."""
    command = random.choice([command for command in QUICK if command != "deploy"])
    most = random.choice(
        [0, 1 << 10, random.randrange(64 << 10), random.randrange(4 << 20)]
    )
    attempt.case = f"{command} with files of at most {most:,} bytes"
    lane.know(command)
    lane.reset("unstored")
    log = lane.logs / "limited"
    log.write_text("")
    reading, writing = os.pipe()  # what is printed has no limit
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.set_blocking(reading, False)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setsid()
            die_with()
            become(lane.work, log, log)
            for descriptor in (1, 2):
                os.dup2(writing, descriptor)
            # Streams that began as files would seek in the pipe
            sys.stdout = os.fdopen(1, "w", closefd=False)
            sys.stderr = os.fdopen(2, "w", closefd=False)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            code = as_command(COMMANDS[command])
        finally:
            os._exit(code)
    os.close(writing)
    ended = Running(pid, log, log, f"{lane.folder}#limited", None).wait(
        lane.limit(command)
    )
    with os.fdopen(reading, "rb", buffering=0) as printed:
        ended.out = ended.err = (printed.read(1 << 20) or b"").decode(errors="replace")
    judge(lane, attempt, command, ended)
    again = lane.start(COMMANDS[command])
    judge(lane, attempt, command, again.wait(lane.limit(command)), must_succeed=True)
    _afterwards(lane, attempt, again)
    _end(attempt, "one sentence or the numbers, then the numbers")


def read_only(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Run a command where the folder, the state or the results cannot be written."""
    command = random.choice([command for command in QUICK if command != "deploy"])
    place = random.choice(
        [".", ".learnkernels", "results", "mlartifacts", ".learnkernels/store"]
    )
    attempt.case = f"{command} with {place} read-only"
    lane.know(command)
    _in_own_mounts(attempt, partial(_without_writing, lane, command, place))
    _end(attempt, "one sentence or the numbers")


def _without_writing(lane: Lane, command: str, place: str, attempt: Attempt) -> None:
    lane.reset(state := "prepared")
    path = str(lane.work / place)
    if not Path(path).exists():
        attempt.skipped = f"no {place} in the {state} folder"
        return
    _mount("--bind", path, path)
    _mount("-o", "remount,ro,bind", path)
    running = lane.start(COMMANDS[command])
    judge(lane, attempt, command, running.wait(lane.limit(command)))
    _afterwards(lane, attempt, running)


def hosts(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Run a command here and one that sees other processes, in one folder: as two hosts on a shared one."""
    chosen = [random.choice(QUICK) for _ in range(2)]
    attempt.case = f"{' and '.join(chosen)} on two hosts"
    if subprocess.run([*HOSTS, "true"], capture_output=True).returncode:
        attempt.skipped = "namespaces of processes are not permitted here"
        return
    lane.know(*chosen)
    lane.reset(random.choice(["unstored", "prepared"]))
    begun = []
    for command, before in zip(
        chosen, random.choice([((), HOSTS), (HOSTS, HOSTS)]), strict=True
    ):
        begun.append(lane.start(COMMANDS[command], forked=False, before=before))
        time.sleep(random.choice([0.0, random.uniform(0, 4)]))
    fine = [
        judge(
            lane,
            attempt,
            command,
            running.wait(2 * lane.limit(command)),
            outputs=chosen.count(command) == 1,
        )
        for command, running in zip(chosen, begun, strict=True)
    ]
    _afterwards(lane, attempt, *begun)
    _end(
        attempt,
        "both succeed"
        if all(fine)
        else "one says a sentence"
        if any(fine)
        else "each says a sentence",
    )


def cron(lane: Lane, attempt: Attempt, minutes: float) -> None:
    """Let `up` run a model every minute: memory, descriptors and databases level off,
    and no run is lost.

    Half-way, what is in Prefect's database becomes two hours older.
    """
    attempt.case = f"a model every minute, for {minutes:g} min"
    attempt.minutes = minutes
    lane.reset("prepared")
    ports = free_port(), free_port()
    arguments = (
        "up",
        "--prefect-port",
        str(ports[0]),
        "--mlflow-port",
        str(ports[1]),
        *SHORT,
    )
    up = lane.start(arguments, forked=False, shared=False, env=FORGETFUL)
    try:
        if not within(lambda: up.ended() or UP in up.printed(), 180) or up.ended():
            attempt.failed("does not come up", up.wait(0).said)
            return
        every_minute = (
            "deploy",
            "conf.yaml",
            "--model",
            "model",
            "--cron",
            "* * * * *",
        )
        deployed = lane.start(every_minute, forked=False, shared=False).wait(120)
        if deployed.code != 0:
            attempt.failed("cannot be deployed", deployed.said)
            return
        _watch_schedule(lane, attempt, up, minutes)
    finally:
        up.signal_group(signal.SIGINT)
        ended = up.wait(90)
    if ended.code is None or "Traceback" in ended.err:
        attempt.failed("hangs" if ended.code is None else "traceback", ended.said)
    _afterwards(lane, attempt, up)
    _end(attempt, "no run lost")


def _watch_schedule(lane: Lane, attempt: Attempt, up: Running, minutes: float) -> None:
    """Measure while the schedule runs; note what grows, and which runs were lost or never made."""
    begun, half, last, cleaned, forgotten = (
        time.monotonic(),
        {},
        {},
        0.0,
        Counter[str](),
    )
    while (passed := time.monotonic() - begun) < 60 * minutes and not up.ended():
        time.sleep(20)
        if passed - cleaned > CLEANED:
            cleaned = passed
            clean = lane.start(
                ("clean", "--yes", *SHORT, "--keep-runs", "0.01"),
                forked=False,
                shared=False,
            )
            if (swept := clean.wait(120)).code != 0:
                attempt.failed("cannot be cleaned", swept.said)
            url = f"sqlite:///{lane.work / 'mlflow.db'}"
            erase = [
                sys.executable,
                "-m",
                "mlflow",
                "gc",
                "--backend-store-uri",
                url,
                "--tracking-uri",
                url,
            ]
            erased = subprocess.run(
                erase,
                cwd=lane.work,
                env=lane.environment() | {"MLFLOW_DISABLE_TELEMETRY": "true"},
                capture_output=True,
                text=True,
            )
            if erased.returncode != 0:
                attempt.failed("MLflow cannot erase", erased.stderr)
        last = _measured(lane, up.marker)
        if not half and passed > 30 * minutes:
            half = last
            forgotten = Counter(
                {state: n for state, n in _flow_runs(lane).items() if state in ENDED}
            )
            _let_pass(
                lane.work / ".learnkernels" / "prefect" / "prefect.db", "-2 hours"
            )
    if up.ended():
        attempt.failed("ended by itself", up.wait(0).said)
    for name, before in half.items():
        attempt.figures |= {
            f"{name}, at half time": before,
            f"{name}, at the end": last[name],
        }
        if last[name] > MOST_GROWTH_OF.get(name, MOST_GROWTH) * before:
            attempt.failed("grows", f"{name}: {before:.2f}, then {last[name]:.2f}")
    states = forgotten + Counter(_flow_runs(lane))
    lost = {state: n for state, n in states.items() if state in ("CRASHED", "FAILED")}
    attempt.figures |= {
        f"runs {state.lower()}": float(n)
        for state, n in states.items()
        if state != "SCHEDULED"
    }
    attempt.tries = max(1, states.get("COMPLETED", 0) + sum(lost.values()))
    if lost:
        attempt.failed("runs lost", str(lost))
    if states.get("COMPLETED", 0) < minutes / 2:
        attempt.failed("runs never made", str(states))


def _let_pass(database: Path, ago: str) -> None:
    """Let what is in Prefect's database be older: it keeps runs for more than an hour, whatever it is told."""
    older = {
        "flow_run": ("end_time", "end_time is not null"),
        "events": ("occurred", "true"),
        "event_resources": ("updated", "true"),
    }
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        connection.execute("begin immediate")
        for table, (column, where) in older.items():
            then = f"strftime('%Y-%m-%d %H:%M:%f000', {column}, '{ago}')"
            connection.execute(f"update {table} set {column} = {then} where {where}")


def _measured(lane: Lane, marker: str) -> dict[str, float]:
    """Return memory and descriptors of the processes that stay, and the sizes of the databases."""
    memory = descriptors = 0
    for process in marked(marker):
        with suppress(psutil.Error):
            if "PREFECT__FLOW_RUN_ID" not in process.environ():  # runs come and go
                memory += process.memory_info().rss
                descriptors += process.num_fds()
    sizes = {
        name: (lane.work / path).stat().st_size / 2**20 for name, path in SIZES.items()
    }
    return {"memory, MiB": memory / 2**20, "descriptors": float(descriptors), **sizes}


def _flow_runs(lane: Lane) -> dict[str, int]:
    """Return how many flow runs are in which state."""
    path = lane.work / ".learnkernels" / "prefect" / "prefect.db"
    query = "select state_type, count(*) from flow_run where parent_task_run_id is null group by state_type"
    with closing(
        sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
    ) as database:
        return {str(state): int(n) for state, n in database.execute(query) if state}


def _in_own_mounts(attempt: Attempt, act: Callable[[Attempt], None]) -> None:
    """Act in a forked process with mounts of its own, which are gone with it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reading)
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(NEW_MOUNTS):
                attempt.skipped = "mounts of a process's own are not permitted here"
            else:
                _mount("--make-rprivate", "/")
                act(attempt)
        except subprocess.CalledProcessError as error:
            attempt.skipped = f"{' '.join(error.cmd[:4])} is not permitted here"
        except BaseException:
            attempt.failed("the try itself", traceback.format_exc())
        finally:
            with os.fdopen(writing, "wb") as result:
                pickle.dump(attempt, result)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as result:
        done: Any = pickle.load(result)
    os.waitpid(pid, 0)
    attempt.__dict__.update(done.__dict__)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)
