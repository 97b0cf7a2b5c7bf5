"""The SQLite databases of MLflow and of Prefect: made whole or not at all, by one process at a time."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from learnkernels.conf.errors import InputError, cut, one_line
from learnkernels.tasks.environment import PREFECT_DATABASE, sqlite_url, state_dir
from learnkernels.tasks.store import atomic_path


def prepare_mlflow(url: str) -> None:
    """Make MLflow's database, where that is a file of SQLite which is missing, or of which the making was cut short.

    Raises
    ------
    InputError
        The file is damaged, or no database.
    """
    path = _file_of(url)
    if path is None or _finished(path):
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    def make(aside: Path) -> None:
        SqlAlchemyStore(sqlite_url(aside), (path.parent / "mlartifacts").as_uri()).engine.dispose()  # type: ignore[no-untyped-call]

    with _one_at_a_time():
        if not _finished(path):
            _put(path, make)


def prepare_prefect() -> None:
    """Make Prefect's database, where that is a file of SQLite which is missing, or bring it up to date.

    Raises
    ------
    InputError
        The file is damaged, or no database, or the server that is named cannot be used.
    """
    from prefect.server.database import provide_database_interface
    from prefect.server.database.configurations import AioSqliteConfiguration
    from prefect.server.database.dependencies import temporary_database_config
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL

    async def migrate() -> None:
        database, path = provide_database_interface(), sys.path[:]
        try:
            await database.create_db()
        finally:
            sys.path[:] = path  # Alembic has put the working folder first, whose modules would go before all others
        await (await database.engine()).dispose()

    def make(aside: Path) -> None:
        with temporary_database_config(AioSqliteConfiguration(connection_url=sqlite_url(aside, "sqlite+aiosqlite"))):
            bring_up(aside)

    def bring_up(path: Path) -> None:
        asyncio.run(migrate())
        with closing(sqlite3.connect(path, timeout=60)) as database:
            database.execute(f"PRAGMA user_version = {_release()}")

    address = str(PREFECT_API_DATABASE_CONNECTION_URL.value())
    path = _file_of(address)
    with _one_at_a_time():
        if path is None:
            try:
                asyncio.run(migrate())
            except Exception as error:  # of a driver, a network or a server
                why = f"{type(error).__name__}: {cut(one_line(str(error)), 160)}"
                raise InputError(
                    f"Prefect's database {address}: cannot be used ({why}); check {PREFECT_DATABASE} and what is named."
                ) from error
        elif not _tables(path):
            _put(path, make)
        elif _brought_up(path) != _release():
            bring_up(path)


def _release() -> int:
    """Return a number that stands for the release of Prefect that is installed."""
    return zlib.crc32(version("prefect").encode()) >> 1


def _brought_up(path: Path) -> int:
    """Return the number of the release that has brought a database up to date; to ask Prefect takes half a second."""
    with closing(sqlite3.connect(path, timeout=60)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def _file_of(url: str) -> Path | None:
    """Return the file of a database of SQLite."""
    try:
        found = make_url(url)
    except ArgumentError:  # MLflow knows other stores
        return None
    name = found.database or ""
    if found.get_backend_name() != "sqlite" or not name or ":memory:" in name:
        return None
    return Path(unquote(name.removeprefix("file:")) if name.startswith("file:") else name).absolute()


def _finished(path: Path) -> bool:
    """Return whether MLflow's tables are whole: then there was an experiment from the beginning."""
    tables = {name for name in _tables(path) if not name.startswith(("alembic_", "sqlite_"))}
    if "experiments" not in tables:
        return bool(tables)  # of another program, which may share the file
    with closing(sqlite3.connect(path, timeout=60)) as database:
        return any(
            database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
            for table in tables & {"experiments", "runs", "registered_models"}
        )


def _tables(path: Path) -> set[str]:
    """Return the tables of a database; none where there is no file."""
    if not path.exists():
        return set()
    try:
        with closing(sqlite3.connect(path, timeout=60)) as database:
            return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{path}: is no database of SQLite's, or damaged ({error}); restore it from a backup, or move it away and "
            "begin a new one."
        ) from None


def _put(path: Path, make: Callable[[Path], None]) -> None:
    """Make a database aside, and put it where one is missing or unfinished."""
    with atomic_path(path) as aside:
        make(aside)
        with closing(sqlite3.connect(aside)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # all is in the one file
        aside.chmod(0o600)  # what runs tell is nobody else's business
        for left in ("-journal", "-wal", "-shm"):  # by whoever did not finish it
            path.with_name(path.name + left).unlink(missing_ok=True)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Wait until no other process makes a database of this folder; the system opens the lock of one that has ended."""
    path = state_dir() / "databases.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
