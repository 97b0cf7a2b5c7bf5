"""SQLite databases of MLflow and Prefect, created by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path
from threading import Timer
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

import psutil
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from learnkernels.conf.errors import WAYS_OUT, InputError, short, without_passwords

from .environment import running_server, sqlite_url, state_dir
from .store import atomic_path

if TYPE_CHECKING:
    from mlflow import MlflowClient  # takes a second to import

SILENT_SECONDS = 5.0
"""Seconds to wait for another process before a message."""

LOCKED_SECONDS = 20.0

DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

SYSTEM_ERRORS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
}


def prepare_mlflow(url: str) -> None:
    """Create MLflow's SQLite database if it is missing or incomplete."""
    path = file_of(url)
    if path is None or mlflow_is_prepared(url):
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    artifacts = (path.parent / "mlartifacts").as_uri()

    def create(temporary: Path) -> None:
        store = SqlAlchemyStore(sqlite_url(temporary), artifacts)  # type: ignore[no-untyped-call]
        store.engine.dispose()

    with one_at_a_time():
        if not _is_complete(path):
            _create_database(path, create)


def mlflow_is_prepared(url: str) -> bool:
    """Return whether MLflow's SQLite database is complete; True for other stores."""
    path = file_of(url)
    return path is None or _is_complete(path)


def copy_prefect_tables(path: Path) -> bool:
    """Create a Prefect database from a cached empty one; return whether this succeeded."""

    def copy(temporary: Path) -> None:
        shutil.copyfile(_kept_prefect_tables(), temporary)
        _require_prefect_tables(temporary)

    try:
        _create_database(path, copy)
    except (OSError, sqlite3.Error, InputError):  # missing or damaged
        return False
    return True


def has_flow_runs(path: Path) -> bool:
    """Return whether a Prefect database has runs, and so all tables."""
    return "flow_run" in _tables(path) and bool(
        _rows_of(path, "SELECT 1 FROM flow_run LIMIT 1")
    )


def keep_prefect_tables(path: Path) -> None:
    """Cache the empty tables of a new Prefect database."""
    if sys.dont_write_bytecode:
        return
    with (
        suppress(OSError, sqlite3.Error, InputError),
        atomic_path(_kept_prefect_tables()) as temporary,
    ):
        with (
            closing(sqlite3.connect(path)) as database,
            closing(sqlite3.connect(temporary)) as copy,
        ):
            database.backup(copy)
        _require_prefect_tables(temporary)
        temporary.chmod(0o644)


def _kept_prefect_tables() -> Path:
    return Path(cache_from_source(__file__)).with_name(
        f"prefect-{version('prefect')}.db"
    )


def _require_prefect_tables(path: Path) -> None:
    """Raise InputError unless a database has Prefect's empty tables."""
    tables = _tables(path)
    if not {"flow_run", "alembic_version"} <= tables or _rows_of(
        path, "PRAGMA quick_check"
    ) != [("ok",)]:
        raise InputError(f"{path}: has no tables of Prefect.")
    for table in tables - {"alembic_version"}:
        if not table.startswith("sqlite_") and _rows_of(
            path, f'SELECT 1 FROM "{table}" LIMIT 1'
        ):
            raise InputError(f"{path}: has rows in {table}.")


def is_missing(url: str) -> bool:
    """Return whether a database address names a missing SQLite file."""
    path = file_of(url)
    return path is not None and not path.exists()


def require_writable(path: Path) -> None:
    """Raise InputError unless a file is a writable SQLite database."""
    if path.exists():
        _rows_of(path, "BEGIN IMMEDIATE")
        _tables(path)


def seen_from(folder: Path, url: str) -> str:
    """Return a database address as a process in another folder must write it."""
    path = file_of(url)
    if path is None:
        return url
    driver = url.partition(":")[0]
    return sqlite_url(path, driver, folder)


def file_of(url: str) -> Path | None:
    """Return the file in an SQLite address; None for other databases."""
    try:
        address = make_url(url)
    except ArgumentError:
        return None
    name = address.database or ""
    if address.get_backend_name() != "sqlite" or not name or ":memory:" in name:
        return None
    if name.startswith("file:"):
        name = unquote(name.removeprefix("file:"))
    return Path(name).absolute()


def _is_complete(path: Path) -> bool:
    """Return whether the default experiment exists, which MLflow adds last."""
    tables = {
        name for name in _tables(path) if not name.startswith(("alembic_", "sqlite_"))
    }
    if "experiments" not in tables:
        return bool(tables)  # another program may share the file
    filled_tables = tables & {"experiments", "runs", "registered_models"}
    return any(
        _rows_of(path, f"SELECT 1 FROM {table} LIMIT 1") for table in filled_tables
    )


def _tables(path: Path) -> set[str]:
    if not path.exists():
        return set()
    rows = _rows_of(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    return {str(name) for (name,) in rows}


def _rows_of(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement; wait for a locked database."""
    try:
        return _execute(path, statement, SILENT_SECONDS)
    except sqlite3.DatabaseError as error:
        if _code_of(error) not in LOCKED:
            raise _as_input_error(path, error) from None
    _print_to_terminal(f"waiting for {path}, which is locked by {_lock_holders(path)}")
    try:
        return _execute(path, statement, LOCKED_SECONDS - SILENT_SECONDS)
    except sqlite3.DatabaseError as error:
        raise _as_input_error(path, error) from None


def _execute(path: Path, statement: str, seconds: float) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, timeout=seconds)) as database:
        return database.execute(statement).fetchall()


def _print_to_terminal(sentence: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"learnkernels: {sentence} ...\n")


def _code_of(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _as_input_error(path: Path, error: sqlite3.Error) -> InputError:
    code = _code_of(error)
    if code in DAMAGED:
        return InputError(
            f"{path}: is no database of SQLite's, or damaged ({error}); restore it from a backup, or move it away and "
            "begin a new one."
        )
    if code in LOCKED:
        return InputError(
            f"{path}: is locked by {_lock_holders(path)}; wait for it, or end it, and start again. Nothing is damaged."
        )
    advice = "check that file"
    if code in SYSTEM_ERRORS:
        advice = WAYS_OUT[SYSTEM_ERRORS[code]]
    return InputError(f"{path}: cannot be used ({error}); {advice}.")


def _lock_holders(path: Path) -> str:
    """Describe processes that write a database, or outside Linux have it open."""
    files = _files_of(path)
    processes: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and files & {
                file.path for file in process.open_files()
            }:
                processes[process.pid] = process
    writers = processes.keys() & _writing_pids(files)
    texts = [
        f"pid {pid}, '{_command_line(processes[pid])}'"
        for pid in sorted(writers or processes)
    ]
    if not texts:
        return "another process"
    return f"another process ({'; '.join(texts[:3])})"


def _command_line(process: psutil.Process) -> str:
    command = [""]
    with suppress(psutil.Error):
        command = process.cmdline() or command
    return short(" ".join([Path(command[0]).name, *command[1:]]), str)


def _files_of(path: Path) -> set[str]:
    return {
        os.path.realpath(f"{path}{ending}")
        for ending in ("", "-wal", "-shm", "-journal")
    }


def _writing_pids(files: Collection[str]) -> set[int]:
    """Return the processes that lock a file for writing (Linux only)."""
    inodes = set()
    for file in files:
        with suppress(OSError):
            inodes.add(str(os.stat(file).st_ino))
    pids = set()
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
            # Number, kind, mode, access, pid, device:inode
            fields = line.replace("->", "").split()
            if (
                len(fields) > 5
                and fields[3] == "WRITE"
                and fields[5].rpartition(":")[2] in inodes
            ):
                pids.add(int(fields[4]))
    return pids


def _create_database(path: Path, create: Callable[[Path], None]) -> None:
    with atomic_path(path) as temporary:
        create(temporary)
        with closing(sqlite3.connect(temporary)) as database:
            # Moves all data into one file
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        temporary.chmod(0o600)  # runs may contain private data
        for ending in ("-journal", "-wal", "-shm"):  # of the incomplete database
            path.with_name(path.name + ending).unlink(missing_ok=True)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Within the context, let only one process of a folder create databases."""
    path = state_dir() / "databases.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        if not _lock_soon(lock):
            _print_to_terminal(
                f"waiting for another process that makes a database of {path.parent}"
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _lock_soon(lock: IO[str]) -> bool:
    deadline = time.monotonic() + SILENT_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


def mlflow_ui() -> str:
    import mlflow

    if mlflow_is_served():
        return without_passwords(mlflow.get_tracking_uri()).rstrip("/")
    # Default of `learnkernels ui`
    return running_server("mlflow") or "http://127.0.0.1:5000"


def mlflow_is_served() -> bool:
    """Return whether MLflow's tracking URI is a server, not a local database."""
    import mlflow

    return mlflow.get_tracking_uri().startswith("http")


@contextmanager
def mlflow_store() -> Iterator[MlflowClient]:
    """Yield a client of MLflow's store; its errors become `InputError`."""
    import mlflow

    # MLflow also prints the errors that it raises
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    prepare_mlflow(mlflow.get_tracking_uri())
    path = file_of(mlflow.get_tracking_uri())
    # MLflow waits without a message
    timer = Timer(SILENT_SECONDS, _print_lock_holders, [path])
    timer.daemon = True
    timer.start()
    try:
        yield mlflow.MlflowClient()
    except (mlflow.MlflowException, SQLAlchemyError, OSError) as error:
        cause = _error_of_sqlite(error)
        if (
            path is not None
            and cause is not None
            and _code_of(cause) in {*LOCKED, *DAMAGED, *SYSTEM_ERRORS}
        ):
            raise _as_input_error(path, cause) from None
        raise InputError(
            f"MLflow store {mlflow_address()}: cannot be used ({first_line(error)}); check MLFLOW_TRACKING_URI and "
            "what is named."
        ) from None
    finally:
        timer.cancel()


def _print_lock_holders(path: Path | None) -> None:
    if path is not None and _writing_pids(_files_of(path)) - {os.getpid()}:
        _print_to_terminal(
            f"waiting for {path}, which is locked by {_lock_holders(path)}"
        )


def _error_of_sqlite(error: BaseException | None) -> sqlite3.Error | None:
    while error is not None and not isinstance(error, sqlite3.Error):
        error = getattr(error, "orig", None) or error.__cause__ or error.__context__
    return error


def mlflow_address() -> str:
    import mlflow

    return without_passwords(mlflow.get_registry_uri())


def first_line(error: Exception) -> str:
    """Return the first line of an error message, without passwords."""
    return without_passwords(str(error).splitlines()[0])[:200]
