"""Databases of MLflow: made whole or not at all, never trusted blindly, and kept small."""

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, closing, contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from mlflow import MlflowClient, MlflowException
from mlflow.store.db.utils import create_sqlalchemy_engine
from mlflow.store.tracking.dbmodels.initial_models import Base
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy.exc import OperationalError

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import TrackingConfig
from learnkernels.tasks import databases
from learnkernels.tasks.environment import sqlite_url
from learnkernels.tasks.operate.retention import clean
from learnkernels.tasks.reporting.mlflow_pages import RUN, VIEW_TAG, view_tag
from learnkernels.tasks.reporting.tracking import (
    DEPLOYMENT,
    RESULTS,
    WORKING_FOLDER,
    _tags_of_run,
    forget_runs,
    forgettable_runs,
)
from tests.unit.tasks.test_store import DAY, put
from tests.user import ROOT

TRICKY = "a b?c#d%20e'f\"g"


def answer(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / TRICKY
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LEARNKERNELS_HOME", str(folder / "state"))
    return folder


def test_a_making_that_was_cut_short_leaves_none_or_one_that_is_made_anew(here: Path):
    path, pid = here / "mlflow.db", os.fork()
    if not pid:
        databases._create_database(
            path, lambda aside: (aside.write_bytes(b"half"), os.kill(os.getpid(), 9))
        )
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    assert not path.exists()
    engine = create_sqlalchemy_engine(sqlite_url(path))
    Base.metadata.create_all(engine)  # what MLflow begins with
    engine.dispose()
    (here / "mlflow.db-journal").write_bytes(b"of the one that was killed")
    databases.prepare_mlflow(sqlite_url(path))
    SqlAlchemyStore(sqlite_url(path), "artifacts").engine.dispose()  # accepts it
    assert answer(path, "SELECT name FROM experiments") == [("Default",)]
    assert {entry.name for entry in here.iterdir()} == {"mlflow.db", "state"}
    assert {entry.name for entry in here.parent.iterdir()} == {TRICKY}


@pytest.fixture
def kept_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tables of Prefect are kept, by an installation that writes compiled code."""
    kept = tmp_path / "__pycache__" / "prefect.db"
    monkeypatch.setattr(databases, "_kept_prefect_tables", lambda: kept)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return kept


def test_a_new_prefect_database_has_the_tables_that_another_one_has_left(
    here: Path, empty_prefect: Path, kept_tables: Path
):
    new = here / "prefect.db"
    assert not databases.copy_prefect_tables(new)
    databases.keep_prefect_tables(empty_prefect)
    assert databases.copy_prefect_tables(new)
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    assert answer(new, schema) == answer(empty_prefect, schema)
    version = "SELECT * FROM alembic_version"
    assert answer(new, version) == answer(empty_prefect, version) != []
    assert new.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in here.iterdir()} == {"prefect.db"}


def test_tables_with_rows_of_a_user_are_not_kept_and_none_where_code_is_not(
    here: Path, empty_prefect: Path, kept_tables: Path, monkeypatch: pytest.MonkeyPatch
):
    used = here / "used.db"
    used.write_bytes(empty_prefect.read_bytes())
    change(
        used,
        "INSERT INTO configuration (id, key, value) VALUES ('1', 'ENCRYPTION_KEY', '{}')",
    )
    databases.keep_prefect_tables(used)
    assert not kept_tables.exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    databases.keep_prefect_tables(empty_prefect)
    assert not kept_tables.exists()


@pytest.mark.parametrize("harm", ["cut", "no database", "other tables", "rows"])
def test_tables_that_are_damaged_are_not_taken(
    here: Path, empty_prefect: Path, kept_tables: Path, harm: str
):
    kept_tables.parent.mkdir()
    kept_tables.write_bytes(empty_prefect.read_bytes())
    if harm == "cut":
        kept_tables.write_bytes(empty_prefect.read_bytes()[:200_000])
    if harm == "no database":
        kept_tables.write_bytes(b"no database " * 99)
    if harm == "other tables":
        kept_tables.unlink()
        answer(kept_tables, "CREATE TABLE theirs (x)")
    if harm == "rows":
        change(
            kept_tables,
            "INSERT INTO configuration (id, key, value) VALUES ('1', 'ENCRYPTION_KEY', '{}')",
        )
    assert not databases.copy_prefect_tables(here / "prefect.db")
    assert list(here.iterdir()) == []


def test_only_an_unfinished_database_is_touched(here: Path, empty_mlflow: Path):
    whole, other, harmed, cut = paths = [
        here / f"{name}.db" for name in ("whole", "other", "harmed", "cut")
    ]
    whole.write_bytes(empty_mlflow.read_bytes())
    answer(other, "CREATE TABLE theirs (x)")
    harmed.write_bytes(b"no database " * 99)
    cut.write_bytes(empty_mlflow.read_bytes()[:9000])
    before = [path.read_bytes() for path in paths]
    elsewhere = (
        "sqlite://",
        "postgresql://u@h/d",
        "http://127.0.0.1:5000",
        "mlruns",
        "file:mlruns",
    )
    for address in (sqlite_url(whole), sqlite_url(other), *elsewhere):
        databases.prepare_mlflow(address)
    for path in (harmed, cut):
        with pytest.raises(
            InputError,
            match=rf"{path.name}: is no database of SQLite's, or damaged .* move it away",
        ):
            databases.prepare_mlflow(sqlite_url(path))
    assert [path.read_bytes() for path in paths] == before


@contextmanager
def held(path: Path, statement: str) -> Iterator[int]:
    """Keep a statement of another process open on a database; give the process's number."""
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute(sys.argv[2]); "
    code += "print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(path), statement]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(databases, "LOCKED_SECONDS", 0.4)


def prepare(path: Path) -> None:
    databases.prepare_mlflow(sqlite_url(path))


@pytest.mark.parametrize(
    ("mode", "statement", "act"),
    [
        ("delete", "BEGIN EXCLUSIVE", prepare),
        ("delete", "BEGIN IMMEDIATE", databases.require_writable),
        ("wal", "BEGIN IMMEDIATE", databases.require_writable),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_a_locked_database_is_called_locked_with_the_process(
    here: Path,
    empty_mlflow: Path,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    statement: str,
    act: Any,
):
    path = here / "mlflow.db"
    path.write_bytes(empty_mlflow.read_bytes())
    answer(path, f"PRAGMA journal_mode = {mode}")
    before = path.read_bytes()
    with (
        held(path, statement) as pid,
        pytest.raises(InputError, match="is locked by") as refused,
    ):
        act(path)
    by = f"is locked by another process (pid {pid}, '{Path(sys.executable).name} -c import sqlite3"
    assert by in str(refused.value)
    assert "wait for it, or end it, and start again. Nothing is damaged." in str(
        refused.value
    )
    assert "move it away" not in str(refused.value)
    assert f"learnkernels: waiting for {path}, which {by}" in capsys.readouterr().err
    assert path.read_bytes() == before
    act(path)


def test_a_database_that_is_locked_for_a_moment_is_waited_for(
    here: Path, empty_mlflow: Path
):
    path = here / "mlflow.db"
    path.write_bytes(empty_mlflow.read_bytes())
    with held(path, "BEGIN EXCLUSIVE") as pid:
        Timer(0.5, os.kill, [pid, 9]).start()
        databases.prepare_mlflow(sqlite_url(path))
        assert os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def write_to(path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=0.1)) as database:
        database.execute("CREATE TABLE more (x)")


def write_to_one_for_readers(path: Path) -> None:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        database.execute("CREATE TABLE more (x)")


def read_half_of(path: Path) -> None:
    half = path.with_name("half.db")
    half.write_bytes(path.read_bytes()[:9000])
    answer(half, "SELECT * FROM sqlite_master")


WRONG = {
    "locked": (
        write_to,
        r"is locked by another process \(pid .*wait for it, or end it, and start again",
    ),
    "for readers": (
        write_to_one_for_readers,
        r"cannot be used \(attempt to write a readonly .*change its permissions",
    ),
    "damaged": (
        read_half_of,
        r"is no database of SQLite's, or damaged \(database disk image is malformed\); restore",
    ),
}


def use_store(path: Path, act: Any) -> None:
    """Let a use of MLflow's store fail as SQLAlchemy and MLflow pass it on."""
    with databases.mlflow_store():
        try:
            act(path)
        except sqlite3.Error as error:
            passed = OperationalError("INSERT", {}, error)
            raise MlflowException(message=passed) from passed


@pytest.mark.parametrize(("act", "said"), WRONG.values(), ids=WRONG)
def test_what_sqlite_says_through_mlflow_has_the_same_sentences(
    working_folder: Path, act: Any, said: str
):
    path = working_folder / "mlflow.db"
    databases.prepare_mlflow(sqlite_url(path))
    statement = "BEGIN IMMEDIATE" if act is write_to else "SELECT 1"
    with (
        held(path, statement),
        pytest.raises(InputError, match=rf"{path.name}: {said}"),
    ):
        use_store(path, act)


@pytest.mark.usefixtures("impatient")
def test_a_wait_within_mlflow_is_said(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
):
    path = working_folder / "mlflow.db"
    with held(path, "BEGIN IMMEDIATE") as pid:
        Timer(2.0, os.kill, [pid, 9]).start()
        with databases.mlflow_store() as client:
            client.create_experiment("waits")
        assert (
            f"waiting for {path}, which is locked by another process (pid {pid},"
            in capsys.readouterr().err
        )


def test_an_address_of_a_database_is_the_same_from_another_folder(here: Path):
    state = here / "state"
    state.mkdir()
    answer(here / "mlflow.db", "CREATE TABLE there (x)")
    for url in (sqlite_url(here / "mlflow.db"), "sqlite:///mlflow.db"):
        seen = databases.seen_from(state, url)
        with chdir(state), create_sqlalchemy_engine(seen).connect() as connection:
            assert connection.exec_driver_sql(
                "SELECT name FROM sqlite_master"
            ).scalars().all() == ["there"], seen
    assert databases.seen_from(state, "sqlite+aiosqlite:///p.db").startswith(
        "sqlite+aiosqlite:///"
    )
    for url in ("postgresql://me@h/d", "http://127.0.0.1:5000"):
        assert databases.seen_from(state, url) == url


def test_runs_of_deployments_go_where_that_is_wanted_but_for_what_a_version_refers_to(
    working_folder: Path,
):
    client = MlflowClient()
    experiment = client.create_experiment(
        "nightly", artifact_location=(working_folder / "mlartifacts").as_uri()
    )
    ago = int((time.time() - 100 * DAY) * 1000)

    def run(name: str, ended: int = ago, **tags: str) -> str:
        folder = put(working_folder / "results" / "demo" / name)
        tags = {RESULTS: str(folder.relative_to(working_folder)), **tags}
        made = client.create_run(experiment, ended, tags, name).info.run_id
        client.log_text(made, "evidence", "report.md")
        client.set_terminated(made, end_time=ended)
        return str(made)

    by_clock = {
        "learnkernels.deployment": "demo",
        "learnkernels.folder": f"{socket.gethostname()}:{Path.cwd()}",
    }
    assert set(by_clock) == {DEPLOYMENT, WORKING_FOLDER}
    old, trained, decided, outside = (
        run(name, **by_clock) for name in ("old", "trained", "decided", "outside")
    )
    client.set_tag(outside, RESULTS, "../precious")
    client.set_tag(old, RUN, "old")
    for name in ("old", "young"):
        client.set_experiment_tag(experiment, view_tag(name), "a view")
    precious = put(working_folder.parent / "precious")
    by_hand, young = run("by hand"), run("young", int(time.time() * 1000), **by_clock)
    client.create_registered_model("demo")
    version = client.create_model_version("demo", "source", trained)
    client.set_model_version_tag("demo", version.version, "decision_run", decided)

    assert clean(0, 0, yes=True) == []
    assert set(forgettable_runs(30)) == {old, outside}
    assert {found.path.name for found in clean(0, 30, yes=False)} == {
        "old",
        old,
        outside,
    }
    clean(0, 30, yes=True)
    left = {found.info.run_id for found in client.search_runs([experiment])}
    assert left == {trained, decided, by_hand, young}
    assert forgettable_runs(30) == {}
    assert not (working_folder / "results/demo/old").exists()
    assert client.get_run(old).info.lifecycle_stage == "deleted"  # until `mlflow gc`
    views = {
        tag
        for tag in client.get_experiment(experiment).tags
        if tag.startswith(VIEW_TAG)
    }
    assert views == {view_tag("young")}
    assert (working_folder / "mlartifacts" / trained).exists()
    assert (working_folder / "results/demo/outside").exists()
    assert precious.exists()
    forget_runs([])


def test_runs_of_other_folders_stay_in_a_store_that_folders_share(
    working_folder: Path,
):
    client = MlflowClient()
    experiment = client.create_experiment("shared")
    ago = int((time.time() - 100 * DAY) * 1000)

    def run(**tags: str) -> str:
        tags = {"learnkernels.deployment": "demo", **tags}
        made = client.create_run(experiment, ago, tags).info.run_id
        client.set_terminated(made, end_time=ago)
        return str(made)

    ours = run(**_tags_of_run(TrackingConfig(), "model", "ours", "no flow run"))
    others = {
        run(),  # of an earlier version
        run(**{"learnkernels.folder": f"{socket.gethostname()}:{Path.cwd().parent}"}),
        run(**{"learnkernels.folder": f"another.host:{Path.cwd()}"}),
    }
    assert set(forgettable_runs(30)) == {ours}
    clean(0, 30, yes=True)
    assert {found.info.run_id for found in client.search_runs([experiment])} == others


def test_make_clean_keeps_what_cannot_be_made_again(tmp_path: Path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    made_again = (".learnkernels/store/datasets/0123", ".learnkernels/tmp/x", "build")
    kept = (".learnkernels/prefect/prefect.db", "results/demo/run", "mlflow.db")
    paths = [put(tmp_path / name) for name in made_again + kept]
    for _ in range(2):  # also where nothing is left
        subprocess.run(
            ["make", "-f", ROOT / "Makefile", "clean"],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )
    assert [path.exists() for path in paths] == [False] * 3 + [True] * 3
