"""Results that can be computed again, named by the digest of all inputs: kept whole, and checked when they are read.

An entry is a folder, ``store/KIND/KEY``. Its ``entry.json`` has the SHA-256 of each file and the versions
of the libraries that they were computed with. It is written aside, synced and renamed, and never replaced: of two
writers the second discards its own. An entry that is not what was written is set aside, and made again. An `Owner`
names the process that writes, so that others can tell whether it is gone.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from learnkernels.conf.errors import InputError
from learnkernels.kernels import NUMERICS_VERSION

from .environment import state_dir

_WRITTEN = re.compile(r"(?:^|~)(?P<host>[\w.-]+)~(?P<pid>\d+)~(?P<started>\d+)(?=$|[~.])")


@dataclass(frozen=True)
class Owner:
    """A process.

    Attributes
    ----------
    host : str
        Name of its machine with a few digits of what tells machines of one name apart and, on Linux, the number of its
        namespace of processes: containers may share a name and a folder, and do not see each other's processes.
    pid : int
    started : int
        Hundredths of a second after the machine's start, which no setting of the clock changes: a number of a process
        is given again, after a restart even soon.
    """

    host: str
    pid: int
    started: int

    @classmethod
    def this(cls) -> Owner:
        """Return the owner that this process is."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Owner:
        """Return the owner that a process of this host is.

        Raises
        ------
        psutil.NoSuchProcess
            There is none.
        """
        return cls(_host(), pid, _started(psutil.Process(pid)))

    @classmethod
    def read(cls, text: str) -> Owner | None:
        """Return the owner that a name such as ``run~OWNER~x7`` names, or None where it names none."""
        found = _WRITTEN.search(text)
        return None if found is None else cls(found["host"], int(found["pid"]), int(found["started"]))

    def __str__(self) -> str:
        """Return ``host~pid~started``, which a file may be named by."""
        return f"{self.host}~{self.pid}~{self.started}"

    @property
    def here(self) -> bool:
        """Whether its processes can be seen from here."""
        return self.host == _host()

    @property
    def gone(self) -> bool:
        """Whether it is known to have ended; of another host that is never known."""
        if not self.here:
            return False
        try:
            process = psutil.Process(self.pid)
            return process.status() == psutil.STATUS_ZOMBIE or abs(_started(process) - self.started) > 1
        except psutil.NoSuchProcess:
            return not psutil.pid_exists(self.pid)  # it does where the system hides the processes of others


def _started(process: psutil.Process) -> int:
    since: float = process.create_time() - psutil.boot_time()
    return round(100 * since)


@cache
def _host() -> str:
    parts = [re.sub(r"[^\w.-]", "-", socket.gethostname()) or "host"]
    with suppress(OSError):  # another system than Linux has neither
        parts.append(hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:6])
    with suppress(OSError):
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return ".".join(parts)


LIBRARIES = ("learnkernels", "numpy", "scipy", "scikit-learn", "numba")
"""Whose versions computed numbers depend on."""

TEMPORARY = ".learnkernels~"
"""What the name of everything unfinished begins with; that of its writer follows."""

DAMAGED = "damaged~"
"""What the name of an entry that was set aside begins with."""

CONTENTS = "entry.json"
"""What says the contents of an entry, and lies in it."""

THERE_ALREADY = (errno.ENOTEMPTY, errno.EEXIST)
"""What a folder is answered that is to get the name of another."""

Tell = Callable[[str], object]


def digest(*parts: Any) -> str:
    """Return a short name, stable over processes, for JSON values: 20 hexadecimal digits of their SHA-256."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def result_key(step: str, settings: Mapping[str, Any], inputs: Iterable[str]) -> str:
    """Return the key of a stored result: a digest of everything that its numbers depend on.

    Parameters
    ----------
    step : str
        Name of the step.
    settings : mapping
        The whole configuration of the step, as JSON values.
    inputs : iterable of str
        Digests of data sets and of the source of custom classes, and keys of earlier results.
    """
    return digest(step, NUMERICS_VERSION, settings, list(inputs))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def versions() -> dict[str, str]:
    """Return the versions of the libraries that computed numbers depend on."""
    return {name: version(name) for name in LIBRARIES}


# Entries -------------------------------------------------------------------------------------------------------------


def store_path(kind: str, key: str = "") -> Path:
    """Return the folder of an entry, or of all of a kind, whether or not it exists yet."""
    return state_dir() / "store" / kind / key


def kept(path: Path, tell: Tell) -> bool:
    """Return whether an entry is there and whole; one that is damaged is set aside, and `tell` is given a sentence.

    Raises
    ------
    InputError
        It is damaged and cannot be set aside.
    """
    if not os.path.lexists(path):
        return False
    harm = harm_of(path)
    if harm is not None and not _set_aside(path, harm, tell):
        return False
    with suppress(OSError):
        os.utime(path)  # when it was last used
    return True


def computed_at(path: Path) -> str:
    """Return when an entry that is there was computed, such as ``2026-05-01 17:30``, in the time of this machine."""
    return datetime.fromtimestamp((path / CONTENTS).stat().st_mtime).isoformat(" ", "minutes")


def checked(path: Path) -> Path:
    """Return the folder of an entry that is to be there and whole.

    Raises
    ------
    InputError
        It is damaged or gone, since the run made or found it.
    """
    harm = harm_of(path)
    if harm is not None:
        raise _changed(path, harm)
    return path


@contextmanager
def keep(path: Path, made_from: Sequence[Path] = ()) -> Iterator[Path]:
    """Give a temporary folder; when the block ends well, what was written there becomes the entry `path`.

    Where the entry exists by then it stays, and what was written is discarded.

    Parameters
    ----------
    path : Path
        As of `store_path`.
    made_from : sequence of Path
        Entries whose numbers went into this one; the versions that they were computed with are kept with it.
    """
    with atomic_path(path, replaces=False) as folder:
        folder.mkdir()
        yield folder
        about = {
            "key": path.name,
            "files": {file.name: file_digest(file) for file in sorted(folder.iterdir())},
            "versions": [versions(), *earlier_versions(made_from)],
        }
        (folder / CONTENTS).write_bytes(_sealed(about))


def versions_of(path: Path) -> list[dict[str, str]]:
    """Return the versions of the libraries that an entry was computed with: its own, and those of what it is made from.

    Raises
    ------
    InputError
        The file that records it is damaged or missing.
    """
    try:
        found: list[dict[str, str]] = _contents(path)["versions"]
    except (ValueError, OSError):
        raise _changed(path, f"{CONTENTS} is damaged or gone") from None
    return found


def earlier_versions(paths: Iterable[Path]) -> list[dict[str, str]]:
    """Return other versions than today's that entries were computed with."""
    found = [of for path in paths for of in versions_of(path) if of != versions()]
    return [of for i, of in enumerate(found) if of not in found[:i]]


def _sealed(about: dict[str, Any]) -> bytes:
    """Return a JSON text that says its own digest."""
    seal = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    return json.dumps({**about, "sha256": seal}, indent=1).encode()


def _contents(path: Path) -> dict[str, Any]:
    """Return what an entry says of itself; a ValueError where it is not what was written."""
    content = (path / CONTENTS).read_bytes()
    try:
        about: dict[str, Any] = json.loads(content)
        about.pop("sha256")
        whole = content == _sealed(about) and about["key"] == path.name
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise ValueError(f"{CONTENTS} is damaged")
    return about


def _changed(path: Path, harm: str) -> InputError:
    return InputError(f"{path}: {harm}, since this run began; start again, and it is made again.")


_WHOLE: dict[Path, tuple[tuple[str, int, int, int], ...]] = {}
"""Entries that this process has found whole, and the state of their files by then."""

SETTLED_SECONDS = 0.1
"""Age of a change from which on a later change is sure to have another time."""


def harm_of(path: Path) -> str | None:
    """Return how an entry differs from what was written, or None if it is whole.

    All files are hashed when a process first reads an entry, and again only after one has changed.
    """
    state = _state_of(path)
    if state is not None and _WHOLE.get(path) == state:
        return None
    harm = _harm_of_files(path)
    last_change = max((changed for _, _, changed, _ in state or ()), default=0)
    if state is not None and harm is None and time.time() - last_change / 1e9 > SETTLED_SECONDS:
        _WHOLE[path] = state
    return harm


def _state_of(path: Path) -> tuple[tuple[str, int, int, int], ...] | None:
    """Return name, size, time of the last change and number of each file of an entry; None if one cannot be seen."""
    try:
        files = [(file.name, file.stat()) for file in sorted(path.iterdir())]
    except OSError:
        return None
    return tuple((name, about.st_size, about.st_ctime_ns, about.st_ino) for name, about in files)


def _harm_of_files(path: Path) -> str | None:
    """Return how the files of an entry differ from what was written, or None if all are whole."""
    try:
        try:
            about = _contents(path)
        except ValueError as error:
            return str(error)
        there, written = {file.name for file in path.iterdir()} - {CONTENTS}, about["files"]
        for name in sorted(there ^ set(written)):
            return f"{name} is {'missing' if name in written else 'not of it'}"
        for name, expected in written.items():
            if file_digest(path / name) != expected:
                return f"{name} is damaged"
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        return f"{Path(error.filename or path).name} cannot be read ({error.strerror})"
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return f"the disk does not give it back ({error.strerror})"
    return None


def _set_aside(path: Path, harm: str, tell: Tell) -> bool:
    """Take a damaged entry out of the store; return whether another has put a whole one in its place."""
    try:
        aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{DAMAGED}{path.name}~")) / path.name
        try:
            path.rename(aside)
        except FileNotFoundError:  # another did so
            aside.parent.rmdir()
            return False
        if harm_of(aside) is None:  # another had done so, and put a whole one there
            with suppress(OSError):
                aside.rename(path)
            shutil.rmtree(aside.parent)
            return harm_of(path) is None
    except OSError as error:
        raise InputError(
            f"{path}: {harm}, and it cannot be set aside ({error.strerror}); remove it, or make {path.parent} one that "
            "you may write to."
        ) from None
    tell(f"{path}: {harm}; it was set aside as {aside.parent.name} and is made again.")
    return False


# Unfinished files ----------------------------------------------------------------------------------------------------


@contextmanager
def atomic_path(path: Path, lasting: bool = True, replaces: bool = True) -> Iterator[Path]:
    """Give a temporary path next to `path`; when the block ends well, what was written there becomes `path`.

    Works for a file and for a folder. After an error nothing is left behind, and after a kill nothing but a temporary
    folder, which goes with the next that is made next to it.

    Parameters
    ----------
    path : Path
        Folders above it are made.
    lasting : bool
        Whether it is to outlast a power cut.
    replaces : bool
        Whether a folder replaces what is there; else it is discarded. A file always does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(path.parent) as folder:
        temporary = Path(folder) / path.name
        yield temporary
        if lasting:
            _sync(temporary)
        if temporary.is_dir():
            _put(temporary, path, replaces)
        else:
            temporary.replace(path)
        if lasting:
            _sync_one(path.parent)


def temporary_folder(parent: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a folder that goes with this process, and remove those next to it of processes that were killed."""
    for folder in leftovers(parent):
        shutil.rmtree(folder, ignore_errors=True)
    return tempfile.TemporaryDirectory(dir=parent, prefix=f"{TEMPORARY}{Owner.this()}~", ignore_cleanup_errors=True)


def leftovers(folder: Path) -> list[Path]:
    """Return what is unfinished in a folder and remains so, as the process that wrote it is known to have ended."""
    owners = ((path, Owner.read(path.name)) for path in folder.glob(f"{TEMPORARY}*"))
    return [path for path, owner in owners if owner is not None and owner.gone]


def _put(folder: Path, path: Path, replaces: bool) -> None:
    """Rename a folder; the temporary folder around it takes along what has its name already, or the folder itself."""
    for number in itertools.count():
        try:
            folder.rename(path)
            return
        except OSError as error:
            if error.errno not in THERE_ALREADY:
                raise
        if not replaces:
            return
        with suppress(FileNotFoundError):
            path.rename(folder.parent / f"replaced-{number}")


def _sync(path: Path) -> None:
    """Have the disk hold a file, or a folder with all that is in it."""
    if path.is_dir():
        for child in path.iterdir():
            _sync(child)
    _sync_one(path)


def _sync_one(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder where the system can do so."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(file)
