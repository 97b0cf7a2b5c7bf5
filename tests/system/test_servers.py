"""Children of `learnkernels ui` and `up`: started, watched and stopped in order, with nothing left behind."""

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from dev.tools.forked import Commands, Started
from dev.tools.waiting import within
from learnkernels.conf.errors import InputError
from learnkernels.tasks import databases
from learnkernels.tasks.environment import servers_note
from learnkernels.tasks.operate import servers
from learnkernels.tasks.operate.child_process import call_in_child_process
from learnkernels.tasks.processes.owner import Owner
from tests.system.test_journeys import up
from tests.user import ROOT, User, key_of, open_to_others

CHILD = """
import os, signal, subprocess, sys, time
name, folder = sys.argv[1:3]
def end(*_):
    with open(f"{folder}/ended", "a") as ended:
        ended.write(f"{name}\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
if "parent" in sys.argv:  # what it starts ignores a polite request
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE).stdout.readline()
open(f"{folder}/{name}", "w").close()
if "dies" in sys.argv:
    sys.exit("ValueError: of no use")
time.sleep(600)
"""

PARENT = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell, and nohup, may have had ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from learnkernels.conf.errors import InputError
from learnkernels.tasks.operate.servers import Children, Service
from learnkernels.tasks.signals import orderly_end
folder = sys.argv[1]
def service(name, *more):
    return Service(name, [sys.executable, f"{folder}/child.py", name, folder, *more])
def say(line):
    print(line, flush=True)
with orderly_end():
    try:
        with Children(say) as start:
            start(service("first"), service("second"))
            start(service("last", *sys.argv[2:]))
            while not all(Path(folder, name).exists() for name in ("first", "second", "last")):
                time.sleep(.02)
            say("up")
            start.watch()
    except InputError as error:
        say(f"error: {error}")
        sys.exit(2)
"""


def started(folder: Path, *arguments: str, **options: bool) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    (folder / "child.py").write_text(CHILD)
    env = os.environ | {"PYTHONPATH": str(ROOT), "LEARNKERNELS_HOME": str(folder)}
    command = [sys.executable, "-c", PARENT, str(folder), *arguments]
    return subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def ended(folder: Path) -> set[str]:
    """The children that have ended by a signal that they could answer."""
    return set((folder / "ended").read_text().split())


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def read_until(process: subprocess.Popen[str], line: str) -> None:
    assert any(said.strip() == line for said in process.stdout), (
        f"it never said {line!r}"
    )


def test_children_stop_and_leave_no_process(tmp_path: Path):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    parents = [
        started(tmp_path / number.name, "parent", start_new_session=True)
        for number in numbers
    ]
    for process, number in zip(parents, numbers, strict=True):
        with process:
            read_until(process, "up")
            children = family(process)
            assert len(children) == 4
            # A terminal sends Ctrl-C to all processes of its session; children have
            # sessions of their own.
            (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        assert said.splitlines() == ["stopping", "stopped; nothing was begun."]
        assert ended(tmp_path / number.name) == {"last", "second", "first"}
        assert psutil.wait_procs(children, timeout=5)[1] == []


def test_a_run_that_loses_the_first_signal_gets_another_while_servers_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    (tmp_path / "child.py").write_text(CHILD)
    run = """
import signal, sys, time
from pathlib import Path
folder, received = Path(sys.argv[1]), []
def lose_one(number, frame):  # as one that is raised in a callback of the garbage collector
    received.append(number)
    if len(received) == 2:
        time.sleep(0.5)
        with (folder / "ended").open("a") as ended:
            ended.write("run\\n")
        sys.exit(1)
signal.signal(signal.SIGTERM, lose_one)
(folder / "run").touch()
time.sleep(600)
"""
    worker = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    )
    children = [
        servers.Service(
            "server",
            [sys.executable, str(tmp_path / "child.py"), "server", str(tmp_path)],
            port=1,
        ),
        servers.Service("Worker", [sys.executable, "-c", worker, run, str(tmp_path)]),
    ]
    for child in children:
        child.start()
    assert within(
        lambda: (tmp_path / "run").exists() and (tmp_path / "server").exists(), 60
    )
    servers.stop(children)
    assert (tmp_path / "ended").read_text().split() == ["run", "server"]


def test_a_child_that_dies_ends_the_others_and_the_command_with_an_error(
    tmp_path: Path,
):
    with started(tmp_path) as process:
        read_until(process, "up")
        (last,) = [child for child in family(process) if "last" in child.cmdline()]
        children = family(process)
        last.kill()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert (
        f"last has stopped by itself (exit code -9), and the others are stopped; its log is {tmp_path}"
        in said
    )
    assert ended(tmp_path) == {"second", "first"}
    assert psutil.wait_procs(children, timeout=5)[1] == []


def test_what_a_killed_child_has_started_ends_with_it(tmp_path: Path):
    with started(tmp_path, "parent") as process:
        read_until(process, "up")
        children = family(process)
        (last,) = [child for child in children if "last" in child.cmdline()]
        last.kill()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert (
        "last has stopped by itself (exit code -9), and the others are stopped" in said
    )
    assert psutil.wait_procs(children, timeout=5)[1] == []


def test_runs_of_a_killed_worker_are_asked_to_end_before_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    (tmp_path / "child.py").write_text(CHILD)
    worker = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"
    command = [sys.executable, str(tmp_path / "child.py")]
    children = [
        servers.Service("server", [*command, "server", str(tmp_path)], port=1),
        servers.Service(
            "Worker", [sys.executable, "-c", worker, command[1], "run", str(tmp_path)]
        ),
    ]
    for child in children:
        child.start()
    assert within(
        lambda: (tmp_path / "run").exists() and (tmp_path / "server").exists(), 60
    )
    children[1].process.kill()
    children[1].process.wait()
    servers.stop(children)
    assert (tmp_path / "ended").read_text().split() == ["run", "server"]


def start_up(user: User, ports: tuple[int, int]) -> Started:
    """Start `learnkernels up`, and wait until it says that all is there."""
    options = ("--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1]))
    running = user.start("up", *options)
    ready = lambda: "the worker first" in running.err.read_text()  # noqa: E731
    assert within(lambda: ready() or running.poll() is not None, 240, 0.1), (
        running.err.read_text()
    )
    assert running.poll() is None, running.err.read_text()
    return running


MAIN_PROCESSES = {
    "Prefect": "prefect server start",
    "MLflow": "mlflow server",
    "Worker": "prefect worker start",
}


@pytest.mark.slow(60)
def test_a_killed_part_of_up_leaves_no_process_and_no_port_and_up_starts_again(
    used_home: Path, commands: Commands, ports: tuple[int, int]
):
    user = User(used_home, commands)
    for name, words in MAIN_PROCESSES.items():
        running = start_up(user, ports)
        children = psutil.Process(running.pid).children(recursive=True)
        (leader,) = [child for child in children if words in " ".join(child.cmdline())]
        leader.kill()
        done = running.wait()
        assert done.returncode == 2, done.stderr
        assert (
            f"{name} has stopped by itself (exit code -9), and the others are stopped"
            in done.stderr
        )
        assert psutil.wait_procs(children, timeout=5)[1] == []
    with up(used_home, ports):
        pass


@pytest.mark.slow(15)
@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process's share of memory"
)
def test_up_itself_holds_neither_prefect_nor_mlflow_in_memory(
    home: Path, ports: tuple[int, int]
):
    with up(home, ports):
        (supervisor,) = [
            child for child in psutil.Process().children() if "up" in child.cmdline()
        ]
        # With either of them, more than 90 MiB
        assert supervisor.memory_full_info().pss < 60 << 20


@pytest.mark.slow(15)
def test_files_that_servers_write_are_for_the_user_alone(
    used_home: Path, ports: tuple[int, int]
):
    work = used_home / "work"
    for path in (work / "mlflow.db", *(work / ".learnkernels").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)  # which the test has put there
    with up(used_home, ports):
        artifact = f"http://127.0.0.1:{ports[1]}/api/2.0/mlflow-artifacts/artifacts/0/some/model.safetensors"
        assert httpx.put(
            artifact, content=b"of one user", auth=key_of(work), timeout=60
        ).is_success
    assert (
        work / "mlartifacts/0/some/model.safetensors"
    ).read_bytes() == b"of one user"
    assert open_to_others(work) == []


@pytest.mark.slow(20)
def test_a_server_that_stays_registers_the_blocks_that_a_temporary_one_leaves_out(
    tmp_path: Path, empty_prefect: Path, monkeypatch: pytest.MonkeyPatch
):
    home = tmp_path / "prefect"
    home.mkdir()
    shutil.copy(empty_prefect, home / "prefect.db")
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_HOME", str(home))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    found = []
    for settings in (servers.TEMPORARY, {}):
        server = servers.prefect_server(servers.free_port())
        server.env |= settings
        server.start()
        try:
            server.wait_until_up()
        finally:
            servers.stop([server])
        with closing(sqlite3.connect(home / "prefect.db")) as database:
            found += database.execute("SELECT COUNT(*) FROM block_type").fetchone()
    assert found[0] == 0
    assert found[1] > 10


def test_a_call_in_another_process_raises_the_sentence_of_its_error(tmp_path: Path):
    damaged = tmp_path / "mlflow.db"
    damaged.write_bytes(b"no database " * 99)
    with pytest.raises(
        InputError,
        match=r"mlflow.db: is no database of SQLite's, or damaged \(.*move it away",
    ):
        call_in_child_process(
            databases.__name__, "prepare_mlflow", f"sqlite:///{damaged}"
        )
    with pytest.raises(
        InputError,
        match=r"unexpected internal error: AttributeError: .* has its traceback",
    ):
        call_in_child_process(databases.__name__, "missing")
    with pytest.raises(
        InputError, match=r"abort ended with exit code -6; start again\."
    ):
        call_in_child_process("os", "abort")
    call_in_child_process(
        databases.__name__, "prepare_mlflow", f"sqlite:///{tmp_path / 'made.db'}"
    )
    assert databases.mlflow_is_prepared(f"sqlite:///{tmp_path / 'made.db'}")


@pytest.mark.skipif(
    sys.platform != "linux",
    reason="only Linux tells a process that its parent has ended",
)
def test_children_end_with_a_parent_that_is_killed(tmp_path: Path):
    with started(tmp_path) as process:
        read_until(process, "up")
        children = family(process)
        process.kill()
        process.wait()
        assert psutil.wait_procs(children, timeout=30)[1] == []


def test_a_child_that_does_not_come_up_says_why_and_the_others_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    (tmp_path / "child.py").write_text(CHILD)
    command = [
        sys.executable,
        str(tmp_path / "child.py"),
        "last",
        str(tmp_path),
        "dies",
    ]
    port = servers.free_port()
    with (
        pytest.raises(
            InputError,
            match=rf"last did not come up on port {port} \(ValueError: of no use\); its log is",
        ),
        servers.Children(lambda line: None) as start,
    ):
        start(servers.Service("last", command, port, "/health"))
    assert [child.process.poll() for child in start.running] == [1]


def test_a_process_that_has_ended_is_gone():
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        owner = Owner.of(process.pid)
        assert not owner.gone
        process.stdin.close()
        # Its parent has not asked for its exit code yet
        assert within(lambda: owner.gone, 30, 0.01)
    assert owner.gone


def test_a_free_port_is_none_that_a_connection_gets_and_a_taken_one_is_one_sentence():
    ports = [servers.free_port() for _ in range(20)]
    assert len(set(ports)) > 15  # drawn anew by each process
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(servers.PORTS_FROM <= port < first for port in ports)
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            InputError,
            match=rf"port {port} for MLflow is taken; .* with --mlflow-port\.",
        ):
            servers.require_free(servers.Service("MLflow", [], port))
    servers.require_free(servers.Service("MLflow", [], port))


def test_a_worker_of_another_machine_leaves_the_note_of_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    with servers._noting_addresses({"mlflow": "http://127.0.0.1:5000"}):
        noted = servers_note().read_text()
        with servers._noting_addresses({}):
            assert servers_note().read_text() == noted
        assert servers_note().read_text() == noted
    assert not servers_note().exists()
