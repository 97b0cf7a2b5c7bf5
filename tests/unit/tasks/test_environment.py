"""Which servers a folder has."""

import errno
import io
import json
import os
import signal
import sqlite3
import stat
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from urllib.request import proxy_bypass_environment

import httpx
import pytest
import typer
from prefect.states import Completed, Failed

from dev.tools.mutations import is_sentence
from learnkernels.conf.errors import InputError
from learnkernels.flows.cli import BAD_INPUT, user_errors
from learnkernels.tasks import databases, environment, signals
from learnkernels.tasks.data.locations import TransferError, failed_in_transfer
from learnkernels.tasks.environment import folder_key, key_file, servers_note, show_key
from learnkernels.tasks.operate.scheduled import command
from learnkernels.tasks.processes.owner import Owner


def test_a_damaged_note_of_servers_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path))
    for note in ("", "{", "[]", '{"mlflow": 5}', '{"mlflow": "no address"}'):
        environment.servers_note().write_text(note)
        assert environment.running_server("mlflow") is None, note


def test_the_state_folder_is_made_for_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "work" / "state"))
    assert stat.S_IMODE(environment.prepare_environment().stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "work").stat().st_mode) != 0o700
    (tmp_path / "work" / "state").chmod(0o750)  # as its user has set it since
    assert stat.S_IMODE(environment.prepare_environment().stat().st_mode) == 0o750


def test_a_database_without_its_driver_is_one_sentence(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@db/mlflow")
    environment.prepare_environment()  # it is here
    without = [one for one in sys.path if not (Path(one) / "psycopg2").is_dir()]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", without)
        patch.delitem(sys.modules, "psycopg2", raising=False)
        with pytest.raises(
            InputError,
            match=r"^MLFLOW_TRACKING_URI is .*: pip install 'psycopg2-binary>=2\.9,<3'\.$",
        ):
            environment.prepare_environment()
    for begin in ("postgresql", "postgres", "postgresql+psycopg2"):
        monkeypatch.setenv(
            "PREFECT_SERVER_DATABASE_CONNECTION_URL", f"{begin}://me:secret@db/prefect"
        )
        with pytest.raises(
            InputError, match=r"begin it with postgresql\+asyncpg://\.$"
        ) as refused:
            environment.prepare_environment()
        assert "secret" not in str(refused.value)


def test_proxies_are_not_asked_for_servers_of_this_machine(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in (
        "no_proxy",
        "NO_PROXY",
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    environment.prepare_environment()
    assert "no_proxy" not in os.environ
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "example.org, 127.0.0.1")
    environment.prepare_environment()
    assert (
        os.environ["no_proxy"]
        == os.environ["NO_PROXY"]
        == "example.org,127.0.0.1,localhost,::1"
    )
    assert all(
        proxy_bypass_environment(host)
        for host in ("localhost", "127.0.0.1", "example.org")
    )
    assert not proxy_bypass_environment("example.com")
    monkeypatch.setenv("no_proxy", "*")
    environment.prepare_environment()
    assert proxy_bypass_environment("example.com")


def test_proxies_that_no_client_speaks_to_are_forgotten(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    spoken = {
        "http_proxy": "proxy.example:3128",
        "HTTPS_PROXY": "http://proxy.example:3128",
    }
    for name, value in {
        **spoken,
        "all_proxy": "socks5://proxy.example",
        "FTP_PROXY": "nonsense://x",
    }.items():
        monkeypatch.setenv(name, value)
    environment.prepare_environment()
    # Which refuses to be made for a proxy that it does not speak to
    with httpx.Client():
        left = {
            name: os.environ.get(name) for name in (*spoken, "all_proxy", "FTP_PROXY")
        }
        assert left == spoken | {"all_proxy": None, "FTP_PROXY": None}


@pytest.mark.parametrize("name", ["mlflow.db", "a folder/mlflow.db", "50% ?#.db"])
def test_the_address_of_an_sqlite_file_leads_back_to_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    address = environment.sqlite_url(tmp_path / name)
    assert databases.file_of(address) == tmp_path / name
    for other in ("postgresql://localhost/mlflow", "sqlite://", "sqlite:///:memory:"):
        assert databases.file_of(other) is None


def test_the_command_of_a_scheduled_run_names_modules_that_exist():
    python, *options, runner, step = command("learnkernels.flows.compare")
    assert (python, options) == (sys.executable, ["-P", "-m"])
    assert find_spec(runner) is not None
    assert find_spec(step) is not None


def test_a_folder_for_what_is_temporary_is_there(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    environment.prepare_environment()
    assert os.environ["TMPDIR"] == str(state / "tmp")


SHOWN = [
    ("ascii", b"0.1 +- 0.2, Grosse, Cafe? -> ?? ... ?"),
    ("cp1252", "0.1 ± 0.2, Größe, Café? -> ?? … ?".encode("cp1252")),
    ("utf-8", "0.1 ± 0.2, Größe, Café\u0300 → 价格 … ?".encode()),
]


@pytest.mark.parametrize(("encoding", "shown"), SHOWN)
def test_output_replaces_characters_that_its_encoding_lacks(
    encoding, shown, monkeypatch
):
    written = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(written, encoding=encoding))
    for name in ("PYTHONSAFEPATH", "PYTHONUTF8", "PYTHONWARNINGS"):
        monkeypatch.setenv(name, "error")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        environment.prepare_python()
        with pytest.warns(UserWarning, match="of a library"):
            warnings.warn("of a library", stacklevel=1)
    assert "PYTHONWARNINGS" not in os.environ
    # Of its processes, too
    assert environment.scheduled_settings()["PYTHONSAFEPATH"] == "1"
    for stream in (sys.stdout, sys.stderr):
        stream.write("0.1 ± 0.2, Größe, Café\u0300 → 价格 … \udcff")
        stream.flush()
    assert written.getvalue() == 2 * shown


@pytest.mark.parametrize(
    "name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PREFECT_HOME", "LEARNKERNELS_HOME"]
)
def test_a_place_that_cannot_be_is_one_sentence(
    name: str, state: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(name, "/proc/missing")
    with pytest.raises(
        InputError,
        match=r"/proc/missing.* cannot be \w+ \(No such file or directory\); ",
    ) as refused:
        environment.prepare_environment()
    assert name in str(refused.value)


def test_an_error_that_speaks_of_a_setting_of_a_library_names_it(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PREFECT_LOGGING_LEVEL", "nonsense")
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "http://me:secret@elsewhere")
    monkeypatch.setenv("DASK_LOGS", "file:/nowhere/log")
    for error, name, value in (
        (
            FileNotFoundError(errno.ENOENT, "No such file", "/nowhere"),
            "DASK_LOGS",
            "'file:/nowhere/log'",
        ),
        (
            ValueError("input_value='NONSENSE', input_type=str"),
            "PREFECT_LOGGING_LEVEL",
            "'nonsense'",
        ),
        (
            KeyError("MLFLOW_S3_ENDPOINT_URL"),
            "MLFLOW_S3_ENDPOINT_URL",
            "'http://elsewhere'",
        ),
    ):
        blamed, sentence = environment.explain(error)
        assert blamed
        assert sentence.startswith(
            f"{name} is {value} in the environment ({type(error).__name__}: "
        )
        assert sentence.endswith("); correct it, or unset it.")
    blamed, sentence = environment.explain(ValueError("a fault of ours"))
    assert not blamed
    assert sentence.startswith("unexpected internal error: ")


# The key that the servers of a folder ask for, and to whom programs show it ------------------------------------------


def test_the_key_is_made_once_and_refused_where_it_is_damaged_or_others_have_a_hand_in_it(
    state, tmp_path
):
    with ThreadPoolExecutor(16) as threads:
        keys = set(threads.map(lambda _: folder_key(), range(64)))
    assert keys == {key_file().read_text()}
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert [path.name for path in state.iterdir()] == ["key"]
    whole = folder_key()
    for damage in (
        "",
        "short",
        "no colon at all",
        "a:b",
        "learnkernels:" + "x" * 32 + "\n\n",
    ):
        key_file().write_text(damage)
        with pytest.raises(
            InputError,
            match=r"^\S+/key: is no key [^\n]*this user alone[^\n]*remove it[^\n]*\.$",
        ):
            folder_key()
    key_file().write_text(whole)
    assert folder_key() == whole
    key_file().chmod(0o644)
    with pytest.raises(InputError, match="this user alone"):
        folder_key()
    key_file().chmod(0o600)
    key_file().rename(tmp_path / "planted")
    key_file().symlink_to(tmp_path / "planted")
    with pytest.raises(InputError, match="this user alone"):
        folder_key()


KEY_SETTINGS = (
    "PREFECT_API_AUTH_STRING",
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
)


def note_servers(**details: str) -> None:
    """Note the servers of a folder as commands do, with details such as the owner."""
    addresses = {
        "prefect_api": "http://127.0.0.1:1/api",
        "mlflow": "http://127.0.0.1:2",
    }
    servers_note().write_text(json.dumps(addresses | details))


SERVERS = [
    # Prefect's own settings may name any server
    (None, "sqlite:///mlflow.db", set()),
    ("http://127.0.0.1:1/api", "http://127.0.0.1:2", {*KEY_SETTINGS}),
    ("http://prefect.example/api", "http://mlflow.example", set()),
    ("http://127.0.0.1:3/api", "http://127.0.0.1:1", set()),
]


@pytest.mark.parametrize(("prefect", "mlflow", "shown"), SERVERS)
def test_the_key_is_shown_to_servers_of_this_folder_alone(
    state, monkeypatch, prefect, mlflow, shown
):
    folder_key()
    note_servers(owner=str(Owner.this()))
    for name in (
        *KEY_SETTINGS,
        "MLFLOW_TRACKING_TOKEN",
        "PREFECT_SERVER_API_AUTH_STRING",
        "PREFECT_API_URL",
    ):
        # And back to what it was, whatever is set meanwhile
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    if prefect:
        monkeypatch.setenv("PREFECT_API_URL", prefect)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow)
    show_key()
    assert {name for name in KEY_SETTINGS if name in os.environ} == shown
    assert os.environ.get("PREFECT_API_AUTH_STRING") in (folder_key(), None)


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"owner": "nobody"},
        {"owner": str(replace(Owner.this(), started=1))},
        {"owner": str(replace(Owner.this(), host="elsewhere"))},
    ],
    ids=["none", "unreadable", "ended", "of another machine"],
)
def test_no_key_is_shown_to_servers_whose_command_does_not_run_here(
    state, monkeypatch, details
):
    folder_key()
    note_servers(**details)
    for name in (*KEY_SETTINGS, "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:2")
    show_key()
    assert not {name for name in KEY_SETTINGS if name in os.environ}
    assert environment.running_server("mlflow") is None


# An error of the machine: one sentence with its path, exit code 2, and no second try of what stays -------------------


def said(capsys: pytest.CaptureFixture[str], error: BaseException) -> tuple[int, str]:
    """Return the exit code, and what a command says that an error was raised in."""
    with pytest.raises(typer.Exit) as caught, user_errors("all is kept"):
        raise error
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert is_sentence(text.rstrip("\n").removeprefix("error: "), 500), text
    return caught.value.exit_code, text


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("the server answers with status 500\nand a second line")
    outer.__cause__ = error
    return outer


FULL = OSError(errno.ENOSPC, "No space left on device")
UNWRITTEN = OSError("128 requested and 64 written")
ERRORS = [
    (
        OSError(errno.ENOSPC, "No space left on device", "results/x"),
        "results/x: No space left on device; free up",
    ),
    (FULL, "No space left on device; free up space on that disk."),
    (UNWRITTEN, "No space left on device; free up space on that disk."),
    (
        PermissionError(errno.EACCES, "Permission denied", "/x"),
        "/x: Permission denied; change its permissions",
    ),
    (
        OSError(errno.EROFS, "Read-only file system", "/x"),
        "/x: Read-only file system; give a place",
    ),
    (
        OSError(errno.EMFILE, "Too many open files"),
        "Too many open files; raise the limit of open files",
    ),
    (
        sqlite3.OperationalError("database or disk is full"),
        "database or disk is full; free up space",
    ),
    (
        sqlite3.OperationalError("attempt to write a readonly database"),
        "readonly database; change its permissions",
    ),
    (MemoryError(), "there is not enough memory"),
]


def test_the_value_of_a_secret_variable_is_not_shown(monkeypatch: pytest.MonkeyPatch):
    for name in ("MLFLOW_AUTH_ADMIN_PASSWORD", "PREFECT_SERVER_API_AUTH_STRING"):
        monkeypatch.setenv(name, "Winter2026")
        error = RuntimeError(f"the value of {name} is too short")
        sentence = environment.of_the_environment(error)
        assert sentence is not None
        assert sentence.startswith(f"{name} is a secret in the environment")
        assert "Winter2026" not in sentence
        monkeypatch.delenv(name)


def test_an_error_of_the_machine_is_one_sentence(
    state, capsys: pytest.CaptureFixture[str]
):
    failures = []
    for (error, sentence), wrap in product(ERRORS, (False, True)):
        code, text = said(capsys, wrapped(error) if wrap else error)
        if code != BAD_INPUT or sentence not in text:
            failures.append((code, text, sentence, wrap))
    assert not failures
    assert not (state / "errors.log").exists()


def test_an_error_that_nobody_expected_is_one_sentence_and_a_traceback_in_a_file(
    state, capsys, monkeypatch
):
    code, text = said(
        capsys, wrapped(KeyError("http://me:hidden@host/x\n" + "y" * 5000))
    )
    log = state / "errors.log"
    assert code == 1
    assert (
        "unexpected internal error: RuntimeError: the server answers with status 500 and a second line"
        in text
    )
    assert str(log) in text
    assert "Traceback (most recent call last)" in log.read_text()
    assert "hidden" not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(
        environment.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000)
    )
    code, text = said(capsys, RuntimeError("timed out"))
    assert (code, "its disk is full; free up space" in text) == (BAD_INPUT, True)


def test_only_what_may_go_away_is_tried_again():
    again = {
        TransferError("it."): True,
        OSError(errno.ECONNRESET, "Connection reset"): True,
    }
    again |= {FULL: False, UNWRITTEN: False, InputError("it."): False}
    assert {
        error: failed_in_transfer(None, None, Failed(data=error)) for error in again
    } == again
    assert not failed_in_transfer(None, None, Completed(data=1))


def test_a_signal_of_which_a_library_makes_an_error_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr(signals._state, "received", 15)
    with pytest.raises(signals.Stopped), user_errors("all is kept"):
        raise ValueError("error calling a serializer: Stopped: SIGTERM")
    assert "error" not in capsys.readouterr().err


def test_a_signal_interrupts_all_but_what_an_interrupt_already_ends(monkeypatch):
    monkeypatch.setattr(signals._state, "received", None)
    monkeypatch.setattr(signals._state, "since", 0.0)
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)

    def receive_while_handled(error: BaseException) -> None:
        try:
            raise error
        except type(error):
            signals._interrupt(signal.SIGTERM, None)

    for _ in range(2):  # again, where a library has caught the first
        with pytest.raises(signals.Stopped, match="SIGTERM"):
            receive_while_handled(ValueError("of a library"))
    receive_while_handled(KeyboardInterrupt())
    while_interrupted = ValueError("of a library")
    while_interrupted.__context__ = KeyboardInterrupt()
    receive_while_handled(while_interrupted)
