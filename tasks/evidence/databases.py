"""The databases of MLflow and of Prefect: SQLite files made by one process at a time, and MLflow's store."""

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

from ..environment import running_server, sqlite_url, state_dir
from ..store import atomic_path

if TYPE_CHECKING:
    from mlflow import MlflowClient  # and within functions: servers start from here, and MLflow takes a second


SILENT_SECONDS = 5.0
"""Seconds of waiting for another process before a line names it."""

LOCKED_SECONDS = 20.0
"""Seconds of waiting for a database that another process has locked."""

DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
"""What SQLite says of a file that is no whole database, and of one that another process uses."""

OF_THE_SYSTEM = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
}
"""Errors of the operating system behind other errors of SQLite."""


def prepare_mlflow(url: str) -> None:
    """Make MLflow's database, where that is a file of SQLite which is missing, or of which the making was cut short.

    Raises
    ------
    InputError
        The file is damaged, or no database; or another process keeps it locked.
    """
    path = file_of(url)
    if path is None or mlflow_is_prepared(url):
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    def make(aside: Path) -> None:
        SqlAlchemyStore(sqlite_url(aside), (path.parent / "mlartifacts").as_uri()).engine.dispose()  # type: ignore[no-untyped-call]

    with one_at_a_time():
        if not _finished(path):
            _put(path, make)


def mlflow_is_prepared(url: str) -> bool:
    """Return whether MLflow's database is whole, or no file of SQLite.

    Raises
    ------
    InputError
        The file is damaged, or no database; or another process keeps it locked.
    """
    path = file_of(url)
    return path is None or _finished(path)


def copy_prefect_tables(path: Path) -> bool:
    """Make a Prefect database of the tables that this installation keeps, and return whether it had them.

    Prefect makes them in a hundred steps, which takes more time than all else at its start.
    """

    def copy(aside: Path) -> None:
        shutil.copyfile(_kept_prefect_tables(), aside)
        _require_prefect_tables(aside)

    try:
        _put(path, copy)
    except (OSError, sqlite3.Error, InputError):  # there are none, or they are damaged
        return False
    return True


def keep_prefect_tables(path: Path) -> None:
    """Keep the tables of a new Prefect database for others, next to compiled code and by the rules for that.

    Who could replace them could replace the code.
    """
    if sys.dont_write_bytecode:
        return
    with suppress(OSError, sqlite3.Error, InputError), atomic_path(_kept_prefect_tables()) as aside:
        with closing(sqlite3.connect(path)) as database, closing(sqlite3.connect(aside)) as copy:
            database.backup(copy)
        _require_prefect_tables(aside)
        aside.chmod(0o644)


def _kept_prefect_tables() -> Path:
    """Return where the tables of the installed version of Prefect are kept, in a database without rows."""
    return Path(cache_from_source(__file__)).with_name(f"prefect-{version('prefect')}.db")


def _require_prefect_tables(path: Path) -> None:
    """Refuse a database that is damaged, lacks Prefect's tables, or has rows of a user."""
    tables = _tables(path)
    if not {"flow_run", "alembic_version"} <= tables or _rows_of(path, "PRAGMA quick_check") != [("ok",)]:
        raise InputError(f"{path}: has no tables of Prefect.")
    for table in tables - {"alembic_version"}:
        if not table.startswith("sqlite_") and _rows_of(path, f'SELECT 1 FROM "{table}" LIMIT 1'):
            raise InputError(f"{path}: has rows in {table}.")


def is_missing(url: str) -> bool:
    """Return whether a store is a file of this machine that is not there."""
    path = file_of(url)
    return path is not None and not path.exists()


def require_writable(path: Path) -> None:
    """Refuse a file that is no database of SQLite's, damaged, locked for long or not to be written."""
    if path.exists():
        _rows_of(path, "BEGIN IMMEDIATE")
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
    known = tables & {"experiments", "runs", "registered_models"}
    return any(_rows_of(path, f"SELECT 1 FROM {table} LIMIT 1") for table in known)


def _tables(path: Path) -> set[str]:
    """Return the tables of a database; none where there is no file."""
    if not path.exists():
        return set()
    return {str(name) for (name,) in _rows_of(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}


def _rows_of(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """Return what a database answers to a statement, which may wait for another process.

    Raises
    ------
    InputError
        The file is damaged, is locked for `LOCKED_SECONDS`, or cannot be opened or written.
    """
    try:
        return _ask(path, statement, SILENT_SECONDS)
    except sqlite3.DatabaseError as error:
        if not _is_one_of(error, LOCKED):
            raise _refusal(path, error) from None
    _tell(f"waiting for {path}, which is locked by {_who_locks(path)}")
    try:
        return _ask(path, statement, LOCKED_SECONDS - SILENT_SECONDS)
    except sqlite3.DatabaseError as error:
        raise _refusal(path, error) from None


def _ask(path: Path, statement: str, seconds: float) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, timeout=seconds)) as database:
        return database.execute(statement).fetchall()


def _tell(sentence: str) -> None:
    """Write a line to the terminal, where nothing else says why nothing happens."""
    if sys.stderr is not None:
        sys.stderr.write(f"learnkernels: {sentence} ...\n")


def _is_one_of(error: sqlite3.Error, codes: Collection[int]) -> bool:
    return _code_of(error) in codes


def _code_of(error: sqlite3.Error) -> int:
    """Return SQLite's code of an error, without the byte that tells variants apart; zero where there is none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _refusal(path: Path, error: sqlite3.Error) -> InputError:
    """Return what is wrong with a database as one sentence, and what to do."""
    code = _code_of(error)
    if code in DAMAGED:
        return InputError(
            f"{path}: is no database of SQLite's, or damaged ({error}); restore it from a backup, or move it away and "
            "begin a new one."
        )
    if code in LOCKED:
        return InputError(
            f"{path}: is locked by {_who_locks(path)}; wait for it, or end it, and start again. Nothing is damaged."
        )
    way_out = WAYS_OUT[OF_THE_SYSTEM[code]] if code in OF_THE_SYSTEM else "check that file"
    return InputError(f"{path}: cannot be used ({error}); {way_out}.")


def _who_locks(path: Path) -> str:
    """Return the processes that may hold a lock of a database, for a sentence.

    Those that write are meant, where the system tells; else all that have one of its files open.
    """
    files = _files_of(path)
    opened: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and files & {file.path for file in process.open_files()}:
                opened[process.pid] = process
    writers = _pids_that_write(files)
    writing = {pid: process for pid, process in opened.items() if pid in writers}
    shown = []
    for pid, process in sorted((writing or opened).items()):
        command = [""]
        with suppress(psutil.Error):
            command = process.cmdline() or command
        called = short(" ".join([Path(command[0]).name, *command[1:]]), str)
        shown.append(f"pid {pid}, '{called}'")
    return f"another process ({'; '.join(shown[:3])})" if shown else "another process"


def _files_of(path: Path) -> set[str]:
    """Return the files of a database, of which some need not exist."""
    return {os.path.realpath(f"{path}{ending}") for ending in ("", "-wal", "-shm", "-journal")}


def _pids_that_write(files: Collection[str]) -> set[int]:
    """Return the processes with a lock for writing on one of some files, as far as Linux tells."""
    inodes = set()
    for file in files:
        with suppress(OSError):
            inodes.add(str(os.stat(file).st_ino))
    pids = set()
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
            fields = line.replace("->", "").split()  # number, kind, mode, WRITE or READ, pid, device and inode, range
            if len(fields) > 5 and fields[3] == "WRITE" and fields[5].rpartition(":")[2] in inodes:
                pids.add(int(fields[4]))
    return pids


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
        if not _locks_soon(lock):
            _tell(f"waiting for another process that makes a database of {path.parent}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _locks_soon(lock: IO[str]) -> bool:
    """Lock a file, and return whether it was free within `SILENT_SECONDS`."""
    ends = time.monotonic() + SILENT_SECONDS
    while time.monotonic() < ends:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


UI = "http://127.0.0.1:5000"
"""Where `learnkernels ui` shows the store of the working directory, by default."""


def mlflow_ui() -> str:
    """Return where the pages of MLflow are; for a local store, where `learnkernels ui` shows it."""
    import mlflow

    if mlflow_is_served():
        return without_passwords(mlflow.get_tracking_uri()).rstrip("/")
    return running_server("mlflow") or UI


def mlflow_is_served() -> bool:
    """Return whether the store is a server, whose pages keep their address."""
    import mlflow

    return mlflow.get_tracking_uri().startswith("http")


@contextmanager
def mlflow_store() -> Iterator[MlflowClient]:
    """Give a client of MLflow's store; what that refuses becomes one sentence, an `InputError`."""
    import mlflow

    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints what it raises, too
    prepare_mlflow(mlflow.get_tracking_uri())
    path = file_of(mlflow.get_tracking_uri())
    watch = Timer(SILENT_SECONDS, _tell_who_writes, [path])  # MLflow itself waits in silence
    watch.daemon = True
    watch.start()
    try:
        yield mlflow.MlflowClient()
    except (mlflow.MlflowException, SQLAlchemyError, OSError) as error:
        cause = _error_of_sqlite(error)
        if path is not None and cause is not None and _is_one_of(cause, {*LOCKED, *DAMAGED, *OF_THE_SYSTEM}):
            raise _refusal(path, cause) from None
        raise InputError(
            f"MLflow store {mlflow_address()}: cannot be used ({first_line(error)}); check MLFLOW_TRACKING_URI and "
            "what is named."
        ) from None
    finally:
        watch.cancel()


def _tell_who_writes(path: Path | None) -> None:
    """Write a line to the terminal if another process has locked a database for writing."""
    if path is not None and _pids_that_write(_files_of(path)) - {os.getpid()}:
        _tell(f"waiting for {path}, which is locked by {_who_locks(path)}")


def _error_of_sqlite(error: BaseException | None) -> sqlite3.Error | None:
    """Return the error of SQLite that an error of MLflow's store comes from."""
    while error is not None and not isinstance(error, sqlite3.Error):
        error = getattr(error, "orig", None) or error.__cause__ or error.__context__
    return error


def mlflow_address() -> str:
    """Return the address of MLflow's store, to be shown."""
    import mlflow

    return without_passwords(mlflow.get_registry_uri())


def first_line(error: Exception) -> str:
    """Return what an error says first, to be shown."""
    return without_passwords(str(error).splitlines()[0])[:200]
