"""The databases of MLflow and of Prefect: SQLite files made by one process at a time, and MLflow's store."""

from __future__ import annotations

import fcntl
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from learnkernels.conf.errors import InputError, without_passwords
from learnkernels.tasks.environment import running_server, sqlite_url, state_dir
from learnkernels.tasks.store import atomic_path

if TYPE_CHECKING:
    from mlflow import MlflowClient  # and within functions: servers start from here, and MLflow takes a second


def prepare_mlflow(url: str) -> None:
    """Make MLflow's database, where that is a file of SQLite which is missing, or of which the making was cut short.

    Raises
    ------
    InputError
        The file is damaged, or no database.
    """
    path = file_of(url)
    if path is None or _finished(path):
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    def make(aside: Path) -> None:
        SqlAlchemyStore(sqlite_url(aside), (path.parent / "mlartifacts").as_uri()).engine.dispose()  # type: ignore[no-untyped-call]

    with one_at_a_time():
        if not _finished(path):
            _put(path, make)


def is_missing(url: str) -> bool:
    """Return whether a store is a file of this machine that is not there."""
    path = file_of(url)
    return path is not None and not path.exists()


def require_whole(path: Path) -> None:
    """Refuse a file that is no database of SQLite's, or damaged."""
    _tables(path)


def seen_from(folder: Path, url: str) -> str:
    """Return the address of a database as a process needs it that runs in another folder."""
    path = file_of(url)
    return url if path is None else sqlite_url(path, url.partition(":")[0], folder)


def file_of(url: str) -> Path | None:
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
def one_at_a_time() -> Iterator[None]:
    """Wait until no other process makes a database of this folder; the system opens the lock of one that has ended."""
    path = state_dir() / "databases.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


UI = "http://127.0.0.1:5000"
"""Where `learnkernels ui` shows the store of the working directory, by default."""


def mlflow_ui() -> str:
    """Return where the pages of MLflow are; for a local store, where `learnkernels ui` shows it."""
    import mlflow

    uri = mlflow.get_tracking_uri()
    return without_passwords(uri).rstrip("/") if uri.startswith("http") else running_server("mlflow") or UI


@contextmanager
def mlflow_store() -> Iterator[MlflowClient]:
    """Give a client of MLflow's store; what that refuses becomes one sentence, an `InputError`."""
    import mlflow

    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints what it raises, too
    prepare_mlflow(mlflow.get_tracking_uri())
    try:
        yield mlflow.MlflowClient()
    except (mlflow.MlflowException, SQLAlchemyError, OSError) as error:
        raise InputError(
            f"MLflow store {mlflow_address()}: cannot be used ({first_line(error)}); check MLFLOW_TRACKING_URI and "
            "what is named."
        ) from None


def mlflow_address() -> str:
    """Return the address of MLflow's store, to be shown."""
    import mlflow

    return without_passwords(mlflow.get_registry_uri())


def first_line(error: Exception) -> str:
    """Return what an error says first, to be shown."""
    return without_passwords(str(error).splitlines()[0])[:200]
