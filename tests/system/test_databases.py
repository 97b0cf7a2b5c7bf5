"""Databases of SQLite: made whole or not at all, found whatever their folder is called, and never trusted blindly."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from mlflow.store.db.utils import create_sqlalchemy_engine
from mlflow.store.tracking.dbmodels.initial_models import Base
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from learnkernels.conf.errors import InputError
from learnkernels.tasks.environment import sqlite_url
from learnkernels.tasks.evidence import databases
from learnkernels.tasks.evidence.databases import prepare_mlflow

TRICKY = "a b?c#d%20e'f\"g"


def experiments(path: Path) -> list[tuple[str]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT name FROM experiments").fetchall()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / TRICKY
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LEARNKERNELS_HOME", str(folder / "state"))
    return folder


def test_a_database_whose_making_was_cut_short_is_made_anew(here: Path):
    path = here / "mlflow.db"
    engine = create_sqlalchemy_engine(sqlite_url(path))
    Base.metadata.create_all(engine)  # what MLflow begins with
    engine.dispose()
    (here / "mlflow.db-journal").write_bytes(b"of the one that was killed")
    prepare_mlflow(sqlite_url(path))
    SqlAlchemyStore(sqlite_url(path), "artifacts").engine.dispose()  # accepts it
    assert experiments(path) == [("Default",)]
    assert {entry.name for entry in here.iterdir()} == {"mlflow.db", "state"}
    assert {entry.name for entry in here.parent.iterdir()} == {TRICKY}


def test_a_killed_making_leaves_no_database(here: Path):
    code = (
        "import os; from pathlib import Path; from learnkernels.tasks.evidence import databases\n"
        "databases._put(Path('mlflow.db'), lambda aside: (aside.write_bytes(b'half'), os.kill(os.getpid(), 9)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert not (here / "mlflow.db").exists()
    databases._put(here / "mlflow.db", lambda aside: aside.write_bytes(b""))
    assert {entry.name for entry in here.iterdir()} - {"state"} == {"mlflow.db"}


def test_what_is_whole_or_another_programs_stays(here: Path, empty_mlflow: Path):
    whole = here / "whole.db"
    whole.write_bytes(empty_mlflow.read_bytes())
    other = here / "other.db"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE theirs (x)")
    before = whole.read_bytes(), other.read_bytes()
    for path in (whole, other):
        prepare_mlflow(sqlite_url(path))
    for address in ("sqlite://", "postgresql://u@h/d", "http://127.0.0.1:5000", "mlruns", "file:mlruns"):
        prepare_mlflow(address)
    assert (whole.read_bytes(), other.read_bytes()) == before


@pytest.mark.parametrize("harm", ["garbage", "cut"])
def test_what_is_no_database_is_one_sentence(here: Path, empty_mlflow: Path, harm: str):
    path = here / "mlflow.db"
    path.write_bytes(b"no database " * 99 if harm == "garbage" else empty_mlflow.read_bytes()[:9000])
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"mlflow.db: is no database of SQLite's, or damaged .* move it away"):
        prepare_mlflow(sqlite_url(path))
    assert path.read_bytes() == before


def test_a_database_server_that_does_not_answer_is_one_sentence(here: Path):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken and not listening: whoever asks there is refused
        address = f"postgresql+asyncpg://me:secret@127.0.0.1:{nobody.getsockname()[1]}/prefect"
        run = subprocess.run(
            [sys.executable, "-m", "learnkernels.tasks.operate.serving", "prefect", "0"],
            env=os.environ | {"PREFECT_SERVER_DATABASE_CONNECTION_URL": address},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    last = run.stderr.splitlines()[-1]
    assert last.startswith(f"error: Prefect's database {address.replace('me:secret@', '')}: cannot be used (")
    assert last.endswith("; check PREFECT_SERVER_DATABASE_CONNECTION_URL and what is named.")
    assert "secret" not in run.stderr


def test_prefects_database_is_brought_up_to_date_once_for_each_release(here: Path):
    prepare = "from learnkernels.tasks.evidence import databases; databases.prepare_prefect()"
    path = here / "prefect.db"
    env = os.environ | {databases.PREFECT_DATABASE: sqlite_url(path, "sqlite+aiosqlite")}

    def prepared(code: str = prepare) -> tuple[int, list[str]]:
        subprocess.run([sys.executable, "-c", code], check=True, env=env)
        with closing(sqlite3.connect(path)) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE name = 'flow_run'")]
            return database.execute("PRAGMA user_version").fetchone()[0], tables

    made = prepared()
    assert made == (databases._release(), ["flow_run"])
    with closing(sqlite3.connect(path)) as database:  # as another release has left it
        newest = database.execute("SELECT version_num FROM alembic_version").fetchall()
        database.execute("PRAGMA user_version = 1")
    assert prepared() == made
    without = f"from prefect.server.database import interface; interface.PrefectDBInterface.create_db = None; {prepare}"
    assert prepared(without) == made  # it was not asked
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == newest
