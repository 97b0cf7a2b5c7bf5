"""Delete old files and runs, once a day or by hand."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from learnkernels.conf.errors import InputError

from ..environment import state_dir
from ..processes.owner import Owner
from ..store import DAMAGED, TEMPORARY, atomic_path
from .child_process import call_in_child_process

DAY = 86_400

LOG_BYTES = 8 << 20
"""Size from which a log is rotated; one earlier log is kept."""

LASTING_LEASES = {
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"
}
"""Setting without which runs fail when the Prefect server restarts."""

EVENT_DAYS = 1
"""Days for which Prefect keeps events, most of its rows."""

PERIOD = 60.0

FIRST_CLEANING = 600.0


OF_WORKER = "runner_storage"
"""Temporary folder of Prefect's running worker."""

DEPLOYED = "run of a deployment"


@dataclass(frozen=True)
class Old:
    """File or folder that may be deleted, with its size and the reason."""

    path: Path
    why: str
    bytes: int


def retention(keep_days: float) -> dict[str, str]:
    """Return Prefect's settings for deletion of old runs; 0 days keep all."""
    if not keep_days:
        return {}
    # Prefect requires more than an hour
    return {
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(
            max(int(keep_days * DAY), 3601)
        ),
        "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": f"PT{int(min(keep_days, EVENT_DAYS) * DAY)}S",
    }


def old_files(keep_days: float) -> list[Old]:
    """Return unused, damaged and abandoned files of the state folder."""
    state = state_dir()
    temporary_folders = [
        state / "dask" / "spill" / "dask-scratch-space",
        state / "tmp",
        state / "prefect" / "storage",
    ]
    entries = [path for kind in _children(state / "store") for path in _children(kind)]
    entries += [
        path
        for folder in temporary_folders
        for path in _children(folder)
        if path.name != OF_WORKER
    ]
    entries += [
        path
        for path in _children(state)
        if Owner.read(path.name) or path.name.endswith(".log.1")
    ]
    old_entries = []
    for path in entries:
        last_use, size = _last_use_and_size(path)
        reason = _reason(path, last_use, keep_days)
        if reason:
            old_entries.append(Old(path, reason, size))
    return old_entries


def _reason(path: Path, last_use: float, keep_days: float) -> str:
    """Return why to delete an entry; empty if it stays."""
    owner = Owner.read(path.name)
    if owner is not None and owner.here:
        return "left by a process that has ended" * owner.gone
    if path.name.startswith(DAMAGED):
        return "damaged, set aside"
    if last_use < time.time() - keep_days * DAY:
        return f"not used for {keep_days:g} days"
    return ""


def _children(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _last_use_and_size(path: Path) -> tuple[float, int]:
    paths = [str(path)]
    for folder, folders, files in os.walk(path):
        paths += [os.path.join(folder, name) for name in (*folders, *files)]
    last_use = 0.0
    size = 0
    for entry in paths:
        with suppress(OSError):  # it has just gone
            status = os.lstat(entry)
            last_use = max(last_use, status.st_mtime)
            size += status.st_size
    return last_use, size


class NotRemoved(InputError):
    """Entries that cannot be removed; `removed` are the others."""

    def __init__(self, left: Sequence[Path], removed: list[Old]) -> None:
        entries = "1 entry"
        if len(left) > 1:
            entries = f"{len(left)} entries"
        names = ", ".join(str(path) for path in left)
        super().__init__(f"cannot remove {entries}; as their owner, delete {names}")
        self.removed = removed


def remove(old: Old) -> Path | None:
    """Remove a file or folder; return the path that is left if it cannot be."""
    path = old.path
    try:
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            return None
        if not path.name.startswith(TEMPORARY):
            path = path.rename(
                path.with_name(f"{TEMPORARY}{Owner.this()}~{uuid4().hex}")
            )
        shutil.rmtree(path, ignore_errors=True)
    except FileNotFoundError:
        return None
    except OSError:
        return path
    if path.exists():
        return path
    return None


def _results(name: str) -> list[Old]:
    """Return a folder of results, if below `results/` here."""
    path = Path(name)
    ours = (
        len(path.parts) == 3 and path.parts[0] == "results" and ".." not in path.parts
    )
    if not ours or path.parent.is_symlink() or path.is_symlink() or not path.is_dir():
        return []
    return [Old(path, DEPLOYED, _last_use_and_size(path)[1])]


def clean(keep_days: float, keep_runs: float, yes: bool) -> list[Old]:
    """List old files and runs, and delete them if `yes`; 0 days keep all.

    `keep_runs` applies to results and MLflow runs of deployments. Raises NotRemoved at
    the end.
    """
    old_entries: list[Old] = []
    if keep_days:
        old_entries = old_files(keep_days)
    runs: dict[str, str] = {}
    if keep_runs:
        # Imports MLflow
        from ..reporting.tracking import (
            forget_runs,
            forgettable_runs,
        )

        runs = forgettable_runs(keep_runs)
        old_entries += [old for name in runs.values() for old in _results(name)]
    if not yes:
        return old_entries + _entries_of_runs(runs)
    left = {old.path: path for old in old_entries if (path := remove(old)) is not None}
    removed = [old for old in old_entries if old.path not in left]
    # Only the run of results leads to them
    runs = {run_id: name for run_id, name in runs.items() if Path(name) not in left}
    if runs:
        forget_runs(list(runs))
    removed += _entries_of_runs(runs)
    if left:
        raise NotRemoved(list(left.values()), removed)
    return removed


def _entries_of_runs(run_ids: Iterable[str]) -> list[Old]:
    return [Old(Path("MLflow", run_id), DEPLOYED, 0) for run_id in run_ids]


def cut_logs() -> None:
    """Rotate long log files in place, as servers keep the files open."""
    for log in state_dir().glob("*.log"):
        with suppress(OSError):
            if log.stat().st_size > LOG_BYTES:
                with atomic_path(log.with_suffix(".log.1")) as before:
                    shutil.copyfile(log, before)
                os.truncate(log, 0)


def tend(
    keep_days: float, keep_runs: float, say: Callable[[str], None]
) -> threading.Event:
    """Start a thread that rotates logs and deletes old files; the returned event stops it."""
    stop = threading.Event()

    def loop() -> None:
        cleaning = time.monotonic() + FIRST_CLEANING
        reported = ""
        while not stop.wait(PERIOD):
            try:
                cut_logs()
                if time.monotonic() > cleaning:
                    cleaning = time.monotonic() + DAY
                    if keep_runs:
                        call_in_child_process(
                            __name__, "clean", keep_days, keep_runs, True
                        )
                    else:
                        clean(keep_days, 0, yes=True)
                reported = ""
            except Exception as error:
                sentence = (str(error) or type(error).__name__).splitlines()[0][:300]
                if sentence != reported:
                    say(f"upkeep: {sentence}")
                reported = sentence

    threading.Thread(target=loop, name="upkeep", daemon=True).start()
    return stop
