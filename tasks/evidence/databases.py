"""The SQLite databases of MLflow and of Prefect: made whole or not at all, by one process at a time."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from learnkernels.conf.errors import InputError
from learnkernels.tasks.environment import sqlite_url, state_dir
from learnkernels.tasks.store import atomic_path


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
