"""Databases of MLflow and Prefect: made whole or not at all, never trusted blindly, and kept small."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.store.db.utils import create_sqlalchemy_engine
from mlflow.store.tracking.dbmodels.initial_models import Base
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from prefect.server.database import interface
from prefect.server.database.configurations import (
    AioSqliteConfiguration,
    AsyncPostgresConfiguration,
    BaseDatabaseConfiguration,
)
from prefect.server.database.dependencies import temporary_database_config
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, temporary_settings
from sqlalchemy import text

from learnkernels.conf.errors import InputError
from learnkernels.tasks.environment import sqlite_url
from learnkernels.tasks.evidence import databases
from learnkernels.tasks.evidence.databases import prepare_mlflow, prepare_prefect
from learnkernels.tasks.evidence.tracking import DEPLOYMENT, RESULTS, forget_runs, forgettable_runs
from learnkernels.tasks.operate.serving import write_in_turn
from learnkernels.tasks.operate.upkeep import clean
from tests.unit.tasks.test_upkeep import DAY, put
from tests.user import ROOT

TRICKY = "a b?c#d%20e'f\"g"


def answer(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


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
        databases._put(path, lambda aside: (aside.write_bytes(b"half"), os.kill(os.getpid(), 9)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    assert not path.exists()
    engine = create_sqlalchemy_engine(sqlite_url(path))
    Base.metadata.create_all(engine)  # what MLflow begins with
    engine.dispose()
    (here / "mlflow.db-journal").write_bytes(b"of the one that was killed")
    prepare_mlflow(sqlite_url(path))
    SqlAlchemyStore(sqlite_url(path), "artifacts").engine.dispose()  # accepts it
    assert answer(path, "SELECT name FROM experiments") == [("Default",)]
    assert {entry.name for entry in here.iterdir()} == {"mlflow.db", "state"}
    assert {entry.name for entry in here.parent.iterdir()} == {TRICKY}


def test_only_an_unfinished_database_is_touched(here: Path, empty_mlflow: Path):
    whole, other, harmed, cut = paths = [here / f"{name}.db" for name in ("whole", "other", "harmed", "cut")]
    whole.write_bytes(empty_mlflow.read_bytes())
    answer(other, "CREATE TABLE theirs (x)")
    harmed.write_bytes(b"no database " * 99)
    cut.write_bytes(empty_mlflow.read_bytes()[:9000])
    before = [path.read_bytes() for path in paths]
    elsewhere = ("sqlite://", "postgresql://u@h/d", "http://127.0.0.1:5000", "mlruns", "file:mlruns")
    for address in (sqlite_url(whole), sqlite_url(other), *elsewhere):
        prepare_mlflow(address)
    for path in (harmed, cut):
        with pytest.raises(InputError, match=rf"{path.name}: is no database of SQLite's, or damaged .* move it away"):
            prepare_mlflow(sqlite_url(path))
    assert [path.read_bytes() for path in paths] == before


def prepare(url: str, configuration: type[BaseDatabaseConfiguration]) -> None:
    """Prepare a database of Prefect's of which the settings of this process know nothing else."""
    config = configuration(connection_url=url)
    with temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: url}), temporary_database_config(config):
        prepare_prefect()


def test_a_database_server_that_does_not_answer_is_one_sentence(here: Path):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken and not listening: whoever asks there is refused
        at = f"127.0.0.1:{nobody.getsockname()[1]}/prefect"
        pid = os.fork()  # the first kind of database in a process is the one that Prefect knows there
        if not pid:
            with suppress(BaseException):
                try:
                    prepare(f"postgresql+asyncpg://me:secret@{at}", AsyncPostgresConfiguration)
                except InputError as error:
                    Path("said").write_text(str(error))
            os._exit(0)
        os.waitpid(pid, 0)
    said, named = Path("said").read_text(), f"Prefect's database postgresql+asyncpg://{at}: cannot be used ("
    end = "; check PREFECT_SERVER_DATABASE_CONNECTION_URL and what is named."
    assert (said.startswith(named), said.endswith(end), "secret" in said) == (True, True, False), said


def test_prefects_database_is_brought_up_to_date_once_for_each_release(here: Path, monkeypatch: pytest.MonkeyPatch):
    path = here / "prefect.db"

    def prepared() -> list[tuple[object, ...]]:
        """Prepare it, and return by which release, whether it has the table of runs, and which form it has."""
        prepare(sqlite_url(path, "sqlite+aiosqlite"), AioSqliteConfiguration)
        tables = answer(path, "SELECT name FROM sqlite_master WHERE name = 'flow_run'")
        return [*answer(path, "PRAGMA user_version"), *tables, *answer(path, "SELECT version_num FROM alembic_version")]

    made = prepared()
    assert made[:2] == [(databases._release(),), ("flow_run",)]
    answer(path, "PRAGMA user_version = 1")  # as another release has left it
    assert prepared() == made
    monkeypatch.setattr(interface.PrefectDBInterface, "create_db", None)
    assert prepared() == made  # it was not asked


def test_transactions_that_read_before_they_write_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(AioSqliteConfiguration, "begin_transaction", AioSqliteConfiguration.begin_transaction)
    write_in_turn()

    async def add(database: AioSqliteConfiguration, started: asyncio.Event, pause: float) -> None:
        session = await database.session(await database.engine())
        async with session, database.begin_transaction(session):
            (count,) = (await session.execute(text("SELECT count(*) FROM t"))).one()
            started.set()
            await asyncio.sleep(pause)  # the other comes in between
            await session.execute(text(f"INSERT INTO t VALUES ({count})"))
            beside = await database.session(await database.engine())
            async with beside:  # as Prefect does for the status of a work queue
                assert (await beside.execute(text("SELECT count(*) FROM t"))).one() == (count,)

    async def both() -> None:
        database = AioSqliteConfiguration(f"sqlite+aiosqlite:///{tmp_path / 'db'}")
        async with (await database.engine()).begin() as connection:
            await connection.execute(text("CREATE TABLE t (n INTEGER)"))
        started = asyncio.Event()
        first = asyncio.create_task(add(database, started, 0.2))
        await started.wait()
        await asyncio.gather(first, add(database, started, 0.0))
        await (await database.engine()).dispose()

    asyncio.run(both())
    assert answer(tmp_path / "db", "SELECT n FROM t ORDER BY n") == [(0,), (1,)]


def test_runs_of_deployments_go_where_that_is_wanted_but_for_what_a_version_refers_to(working_folder: Path):
    client = MlflowClient()
    experiment = client.create_experiment("nightly", artifact_location=(working_folder / "mlartifacts").as_uri())
    ago = int((time.time() - 100 * DAY) * 1000)

    def run(name: str, ended: int = ago, **tags: str) -> str:
        folder = put(working_folder / "results" / "demo" / name)
        tags = {RESULTS: str(folder.relative_to(working_folder)), **tags}
        made = client.create_run(experiment, ended, tags, name).info.run_id
        client.log_text(made, "evidence", "report.md")
        client.set_terminated(made, end_time=ended)
        return str(made)

    by_clock = {"learnkernels.deployment": "demo"}
    assert set(by_clock) == {DEPLOYMENT}
    old, trained, decided, outside = (run(name, **by_clock) for name in ("old", "trained", "decided", "outside"))
    client.set_tag(outside, RESULTS, "../precious")
    precious = put(working_folder.parent / "precious")
    by_hand, young = run("by hand"), run("young", int(time.time() * 1000), **by_clock)
    client.create_registered_model("demo")
    version = client.create_model_version("demo", "source", trained)
    client.set_model_version_tag("demo", version.version, "decision_run", decided)

    assert clean(0, 0, yes=True) == []
    assert set(forgettable_runs(30)) == {old, outside}
    assert {found.path.name for found in clean(0, 30, yes=False)} == {"old", old, outside}
    client.delete_run(old)  # as a cleaning that was killed then
    clean(0, 30, yes=True)
    left = {found.info.run_id for found in client.search_runs([experiment], run_view_type=3)}
    assert left == {trained, decided, by_hand, young}
    assert not (working_folder / "results/demo/old").exists()
    assert not (working_folder / "mlartifacts" / old).exists()
    assert (working_folder / "mlartifacts" / trained).exists()
    assert (working_folder / "results/demo/outside").exists()
    assert precious.exists()
    forget_runs([])


def test_make_clean_keeps_what_cannot_be_made_again(tmp_path: Path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    made_again = (".learnkernels/store/datasets/0123", ".learnkernels/tmp/x", "build")
    kept = (".learnkernels/prefect/prefect.db", "results/demo/run", "mlflow.db")
    paths = [put(tmp_path / name) for name in made_again + kept]
    for _ in range(2):  # also where nothing is left
        subprocess.run(["make", "-f", ROOT / "Makefile", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert [path.exists() for path in paths] == [False] * 3 + [True] * 3
