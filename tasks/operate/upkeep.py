"""Keeping a folder small, once a day or by hand: what is old goes."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..environment import state_dir
from ..store import DAMAGED, TEMPORARY, Owner, atomic_path
from .apart import call_apart

DAY = 86_400

LOG_BYTES = 8 << 20
"""A log that has become larger is begun again; what it held is kept next to it, once."""

LASTING_LEASES = {"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"}
"""Setting by which a Prefect server still knows after a new start which runs hold the only place of their deployment.

Otherwise a run in progress fails when it renews that, and the place of one that was killed stays taken.
"""

EVENT_DAYS = 1
"""How long Prefect keeps its events, by far the most of its rows; nothing here needs them later."""

PERIOD, FIRST_CLEANING = 60.0, 600.0
"""Seconds between two looks of `tend`, and before it first cleans."""


OF_WORKER = "runner_storage"
"""What Prefect's worker makes once at its start, in the folder of temporary files."""

DEPLOYED = "run of a deployment"


@dataclass(frozen=True)
class Old:
    """What may go: a file or folder, why, and its size."""

    path: Path
    why: str
    bytes: int


def retention(keep_days: float) -> dict[str, str]:
    """Return the settings by which a Prefect server forgets runs that ended long ago, with all that belongs to them.

    Parameters
    ----------
    keep_days : float
        How long runs are kept; 0 is forever.
    """
    if not keep_days:
        return {}
    return {
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(max(int(keep_days * DAY), 3601)),  # more than an hour
        "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": f"PT{int(min(keep_days, EVENT_DAYS) * DAY)}S",
    }


def old_files(keep_days: float) -> list[Old]:
    """Return what may go of the state folder: unused for some days, left by processes that have ended, or damaged."""
    state, now = state_dir(), time.time()
    by_age = [state / "dask" / "spill" / "dask-scratch-space", state / "tmp", state / "prefect" / "storage"]
    entries = [path for kind in _children(state / "store") for path in _children(kind)]
    entries += [path for folder in by_age for path in _children(folder) if path.name != OF_WORKER]
    entries += [path for path in _children(state) if Owner.read(path.name) or path.name.endswith(".log.1")]
    found = []
    for path in entries:
        used, size = _used_and_size(path)
        owner = Owner.read(path.name)
        if owner is not None and owner.here:
            why = "left by a process that has ended" if owner.gone else ""
        elif path.name.startswith(DAMAGED):
            why = "damaged, set aside"
        else:
            why = f"not used for {keep_days:g} days" if used < now - keep_days * DAY else ""
        if why:
            found.append(Old(path, why, size))
    return found


def _children(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _used_and_size(path: Path) -> tuple[float, int]:
    """Return when something last changed in a file or folder, whose readers touch it, and its size; follows no link."""
    used, size = 0.0, 0
    paths = [str(path), *(os.path.join(at, name) for at, *names in os.walk(path) for some in names for name in some)]
    for each in paths:
        with suppress(OSError):  # it has just gone
            found = os.lstat(each)
            used, size = max(used, found.st_mtime), size + found.st_size
    return used, size


def remove(old: Old) -> None:
    """Remove a file or folder atomically: it is renamed first."""
    path = old.path
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            aside = path.rename(path.with_name(f"{TEMPORARY}{Owner.this()}~{path.name}"))
            shutil.rmtree(aside, ignore_errors=True)
        else:
            path.unlink()


def _results(name: str) -> list[Old]:
    """Return a folder of results, if it is there: below `results/` here, and in no other place."""
    path = Path(name)
    ours = len(path.parts) == 3 and path.parts[0] == "results" and ".." not in path.parts
    if not ours or path.parent.is_symlink() or path.is_symlink() or not path.is_dir():
        return []
    return [Old(path, DEPLOYED, _used_and_size(path)[1])]


def clean(keep_days: float, keep_runs: float, yes: bool) -> list[Old]:
    """Return what may go, and remove it if that is wanted.

    Parameters
    ----------
    keep_days : float
        For how many days what can be computed again is kept after its last use; 0 is forever.
    keep_runs : float
        For how many days the results and MLflow runs are kept that deployments have made; 0 is forever.
    yes : bool
        Whether to remove it.

    Raises
    ------
    InputError
        MLflow's store cannot be used.
    """
    found = old_files(keep_days) if keep_days else []
    runs: dict[str, str] = {}
    if keep_runs:
        from ..evidence.tracking import forget_runs, forgettable_runs  # brings MLflow along

        runs = forgettable_runs(keep_runs)
        found += [old for name in runs.values() for old in _results(name)]
    if yes:
        for old in found:
            remove(old)
        if runs:
            forget_runs(list(runs))
    return found + [Old(Path("MLflow", run_id), DEPLOYED, 0) for run_id in runs]


def cut_logs() -> None:
    """Begin logs again that have become too long; who writes them appends, and so goes on at the beginning."""
    for log in state_dir().glob("*.log"):
        with suppress(OSError):
            if log.stat().st_size > LOG_BYTES:
                with atomic_path(log.with_suffix(".log.1")) as before:
                    shutil.copyfile(log, before)
                os.truncate(log, 0)


def tend(keep_days: float, keep_runs: float, say: Callable[[str], None]) -> threading.Event:
    """Cut logs and, once a day, clean as `clean` does, next to the servers in a thread of its own.

    `say` is called once per failure. The event that is returned ends it when set, as the end of the process does.
    """
    stop = threading.Event()

    def loop() -> None:
        cleaning, said = time.monotonic() + FIRST_CLEANING, ""
        while not stop.wait(PERIOD):
            try:
                cut_logs()
                if time.monotonic() > cleaning:
                    cleaning = time.monotonic() + DAY
                    if keep_runs:
                        call_apart(__name__, "clean", keep_days, keep_runs, True)
                    else:
                        clean(keep_days, 0, yes=True)
                said = ""
            except Exception as error:  # whatever it is, the next look is in a minute
                sentence = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
                if sentence != said:
                    say(f"upkeep: {sentence}")
                said = sentence

    threading.Thread(target=loop, name="upkeep", daemon=True).start()
    return stop
