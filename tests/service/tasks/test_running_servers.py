"""Running servers of a folder: which addresses count, who gets the key, and one start at a time."""

import fcntl
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from learnkernels.conf.errors import InputError
from learnkernels.tasks import databases, environment
from learnkernels.tasks.environment import servers_note
from learnkernels.tasks.operate import servers

NOTED = [{"prefect_api": f"http://127.0.0.1:{port}/api"} for port in (4200, 4201)]

PASSWORDS = ("PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the state of this test alone."""
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    return tmp_path


@contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """Give the address of a server that sends the same bytes to everyone."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_once() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(answer)

        thread = Thread(target=answer_once, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)


@pytest.mark.parametrize(
    ("answer", "is_up"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\ntrue", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (b"220 no web server\r\n", False),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", False),
        (b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n", False),
        (b"", False),
    ],
    ids=["up", "busy", "other protocol", "many headers", "long line", "nothing"],
)
def test_a_port_of_another_program_is_no_running_server(answer: bytes, is_up: bool):
    with saying(answer) as address:
        assert environment.answers(f"{address}/health") is is_up


def test_a_command_that_ends_removes_its_own_note_alone(state: Path):
    earlier, later = NOTED
    with ExitStack() as until_later_ends:
        with servers._noting_addresses(earlier):
            until_later_ends.enter_context(servers._noting_addresses(later))
            noted = servers_note().read_bytes()
        assert servers_note().read_bytes() == noted
    assert not servers_note().exists()


def test_a_second_command_leaves_the_servers_of_the_first(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    with servers._noting_addresses(NOTED[0]):
        noted = servers_note().read_bytes()
        with pytest.raises(InputError, match="another 'ui' or 'up' of this folder"):
            servers.serve(4201, 5001, str)
        assert servers_note().read_bytes() == noted


def test_servers_of_a_command_that_was_killed_are_not_running(state: Path):
    noting = """
import os, signal, sys
from learnkernels.tasks.operate import servers
with servers._noting_addresses({"prefect_api": sys.argv[1]}):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    # Another program answers at the address, and must not get the key
    with saying(b"HTTP/1.1 200 OK\r\n\r\ntrue") as address:
        subprocess.run([sys.executable, "-c", noting, address], timeout=60)
        assert address in servers_note().read_text()
        assert environment.running_server("prefect_api") is None
        with servers._noting_addresses({"prefect_api": address}):
            assert environment.running_server("prefect_api") == address


@pytest.mark.parametrize("content", [None, b"", b"\xff"])
def test_a_command_ends_without_error_where_its_note_is_gone_or_damaged(
    state: Path, content: bytes | None
):
    with servers._noting_addresses(NOTED[0]):
        servers_note().unlink()
        if content is not None:
            servers_note().write_bytes(content)
    assert servers_note().exists() == (content is not None)


def test_the_running_prefect_server_of_a_folder_is_used_with_its_key(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("PREFECT_API_URL", *PASSWORDS):
        # And back to what it was, whatever is set meanwhile
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    with saying(b"HTTP/1.1 200 OK\r\n\r\ntrue") as address:
        environment.use_running_prefect()
        assert "PREFECT_API_URL" not in os.environ
        with servers._noting_addresses({"prefect_api": address}):
            environment.use_running_prefect()
    assert os.environ["PREFECT_API_URL"] == address
    assert os.environ["PREFECT_API_AUTH_STRING"] == environment.folder_key()


def test_a_server_of_prefects_own_settings_gets_its_password_and_not_the_key(
    state: Path,
):
    (state / "prefect.toml").write_text(
        '[api]\nurl = "http://me:secret@prefect.example/api"\nauth_string = "me:right"\n'
    )
    deploying = """
from learnkernels.flows import cli
from learnkernels.flows.functions import Caller, set_up
set_up(Caller(by_command=True), deploy=True)
from prefect.settings import PREFECT_API_AUTH_STRING
print(PREFECT_API_AUTH_STRING.value())
print(cli._access())
"""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PREFECT_")
    }
    done = subprocess.run(
        [sys.executable, "-c", deploying],
        cwd=state,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == [
        "me:right",
        "PREFECT_API_URL=http://prefect.example/api",
    ], done.stderr


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n3.6.0", "log in with what {state}/key holds"),
        (
            b"HTTP/1.1 401 Unauthorized\r\n\r\n",
            "MLflow refuses its password, as {state}/mlflow-users.db has an earlier one; stop this, remove that file",
        ),
        (b"", "log in with what {state}/key holds"),
    ],
    ids=["current", "earlier", "busy"],
)
def test_a_password_that_mlflow_refuses_is_said(
    state: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, said: str
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    with saying(answer) as address:
        mlflow = servers.mlflow_server(int(address.rpartition(":")[2]))
        line = servers._about_login({"mlflow": mlflow})
    assert line.startswith(said.format(state=state))
    assert f"{state}/key" in line


@pytest.fixture
def first_command(state: Path, monkeypatch: pytest.MonkeyPatch) -> Event:
    """A command of a folder without running servers; the event is the start of one."""
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
        monkeypatch.setenv(name, "")  # and back to what it was
    monkeypatch.setenv("PREFECT_HOME", str(state))
    monkeypatch.delenv(environment.PREFECT_DATABASE, raising=False)
    started = Event()
    monkeypatch.setattr(servers.Service, "start", lambda _: started.set())
    monkeypatch.setattr(servers.Service, "wait_until_up", lambda _: None)
    monkeypatch.setattr(servers.atexit, "register", lambda *_: None)
    monkeypatch.setattr(servers, "_temporary", {})
    return started


def test_a_server_starts_after_another_command_has_made_the_database(
    state: Path, first_command: Event
):
    with ThreadPoolExecutor(1) as later:
        with databases.one_at_a_time():
            (state / "prefect.db").touch()  # the first migration has begun
            starting = later.submit(servers.temporary_prefect)
            assert not first_command.wait(0.5)
        starting.result(30)
    assert first_command.is_set()


@pytest.mark.parametrize(("runs", "waits"), [(0, True), (1, False)])
def test_no_other_command_starts_a_server_on_tables_that_may_be_unfinished(
    state: Path,
    first_command: Event,
    monkeypatch: pytest.MonkeyPatch,
    runs: int,
    waits: bool,
):
    with closing(sqlite3.connect(state / "prefect.db")) as database, database:
        database.execute("CREATE TABLE flow_run (id)")  # by a migration cut short
        database.executemany("INSERT INTO flow_run VALUES (?)", [(1,)] * runs)
    waited = Event()

    def wait_until_up(_: servers.Service) -> None:
        with (
            (state / "databases.lock").open() as lock,
            pytest.raises(BlockingIOError),
        ):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        waited.set()

    monkeypatch.setattr(servers.Service, "wait_until_up", wait_until_up)
    servers.temporary_prefect()
    assert first_command.is_set()
    assert waited.is_set() == waits
