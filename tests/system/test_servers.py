"""Children of `learnkernels ui` and `up`: started, watched and stopped in order, with nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.tasks.environment import servers_note
from learnkernels.tasks.operate.children import PORTS_FROM, RESTARTS, Service, _require_free, free_port, reap
from learnkernels.tasks.operate.servers import _noted, prefect_server
from learnkernels.tasks.owner import Owner
from tests.user import ROOT
from tools.waiting import within

CHILD = """
import os, signal, subprocess, sys, threading, time
name, folder = sys.argv[1:3]
def end(*_):
    with open(f"{folder}/ended", "a") as ended:
        ended.write(f"{name}\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
def wait():
    while os.read(0, 1):
        pass
    os._exit(3)
threading.Thread(target=wait, daemon=True).start()
if "parent" in sys.argv:  # what it leaves behind ignores a polite request
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE).stdout.readline()
open(f"{folder}/{name}", "w").close()
if "dies" in sys.argv:
    sys.exit(7)
time.sleep(600)
"""

PARENT = """
import os, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell, and nohup, may have had ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from learnkernels.conf.errors import InputError
from learnkernels.tasks.operate.children import Service, children
from learnkernels.tasks.stopping import orderly_end
folder = sys.argv[1]
def service(name, *more):
    command = [sys.executable, f"{folder}/child.py", name, folder, *more]
    return Service(name, command, lambda: Path(folder, name).exists())
def say(line):
    print(line, flush=True)
with orderly_end():
    try:
        with children(say, lambda service: service.name) as start:
            start(service("first"), service("second"))
            start(service("last", *sys.argv[2:]))
            say("up")
            start.watch()
    except InputError as error:
        say(f"error: {error}")
        sys.exit(2)
"""


def started(folder: Path, *arguments: str, program: str = PARENT, **options: bool) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    (folder / "child.py").write_text(CHILD)
    env = os.environ | {"PYTHONPATH": str(ROOT), "LEARNKERNELS_HOME": str(folder)}
    command = [sys.executable, "-c", program, str(folder), *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def ended(folder: Path) -> list[str]:
    """The children that have ended by a signal that they could answer, the first one first."""
    return (folder / "ended").read_text().split()


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def last_of(process: subprocess.Popen[str]) -> psutil.Process:
    (last,) = [child for child in family(process) if "last" in child.cmdline()]
    return last


def read_until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert any(said.strip() == line for said in process.stdout), f"it never said {line!r}"


def test_children_stop_last_first_and_leave_no_process(tmp_path: Path):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    parents = [started(tmp_path / number.name, "parent", start_new_session=True) for number in numbers]
    for process, number in zip(parents, numbers, strict=True):
        with process:
            read_until(process, "up")
            children = family(process)
            assert len(children) == 4
            # A terminal sends Ctrl-C to all processes of its session; children have sessions of their own.
            (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        assert said.splitlines() == ["stopping", "stopped; nothing was begun."]
        assert ended(tmp_path / number.name) == ["last", "second", "first"]
        assert psutil.wait_procs(children, timeout=5)[1] == []


def test_a_child_that_dies_is_started_again_and_leaves_nothing(tmp_path: Path):
    log = f"its log is {tmp_path / 'last.log'}."
    with started(tmp_path, "parent") as process:
        read_until(process, "up")
        for _ in range(RESTARTS):
            last = last_of(process)
            left = last.children()
            assert left
            (tmp_path / "last").unlink()
            last.kill()
            read_until(process, f"last has stopped by itself (exit code -9) and is started again; {log}")
            read_until(process, "last")
            assert psutil.wait_procs(left, timeout=5)[1] == []
        last_of(process).kill()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"error: last has stopped by itself (exit code -9), 6 times within 10 minutes; {log}" in said
    assert ended(tmp_path) == ["second", "first"]


def test_children_end_with_a_parent_that_is_killed_and_what_is_left_is_reaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    with started(tmp_path, "parent") as process, started(tmp_path / "another") as another:
        read_until(process, "up")
        read_until(another, "up")
        children = family(process)
        (stubborn,) = [child for child in children if "child.py" not in " ".join(child.cmdline())]
        process.kill()
        process.wait()
        assert psutil.wait_procs([child for child in children if child != stubborn], timeout=30)[1] == []
        assert stubborn.is_running()
        reap()
        assert psutil.wait_procs([stubborn], timeout=5)[1] == []
        assert len(family(another)) == 3
        another.terminate()


def test_a_child_that_does_not_come_up_is_reported_and_the_others_stop(tmp_path: Path):
    there = "Path(folder, name).exists()"
    with started(tmp_path, "dies", program=PARENT.replace(there, f"name != 'last' and {there}")) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"error: last did not come up; its log is {tmp_path / 'last.log'}." in said
    assert ended(tmp_path) == ["second", "first"]


def test_a_process_that_has_ended_is_gone():
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        owner = Owner.of(process.pid)
        assert not owner.gone
        process.stdin.close()
        assert within(lambda: owner.gone, 30, 0.01)  # its parent has not asked for its exit code yet
    assert owner.gone


def test_a_free_port_is_none_that_a_connection_gets_and_a_taken_one_is_one_sentence():
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) > 15  # drawn anew by each process
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(PORTS_FROM <= port < first for port in ports)
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"port {port} for MLflow is taken; .* with --mlflow-port\."):
            _require_free(Service("MLflow", [], lambda: False, port))
    _require_free(Service("MLflow", [], lambda: False, port))


def test_a_worker_of_another_machine_leaves_the_note_of_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    with _noted(prefect_server(free_port()), None):
        noted = servers_note().read_text()
        with _noted(None, None):
            assert servers_note().read_text() == noted
        assert servers_note().read_text() == noted
    assert not servers_note().exists()
