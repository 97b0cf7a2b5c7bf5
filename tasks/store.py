"""Store of recomputable results, named by a digest of their inputs.

An entry is a folder, ``store/KIND/KEY``, with the SHA-256 of each file in
``entry.json``. It is written to a temporary folder, renamed, and never replaced.
Damaged entries are set aside and recomputed.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from learnkernels.conf.errors import InputError
from learnkernels.kernels import NUMERICS_VERSION

from .environment import state_dir
from .processes.owner import Owner

LIBRARIES = ("learnkernels", "numpy", "scipy", "scikit-learn", "numba")

TEMPORARY = ".learnkernels~"
"""Prefix of temporary folders; the owner follows."""

DAMAGED = "damaged~"

CONTENTS = "entry.json"

Tell = Callable[[str], object]


def digest(*parts: Any) -> str:
    """Return 20 hexadecimal digits of the SHA-256 of values as JSON."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def result_key(step: str, settings: Mapping[str, Any], inputs: Iterable[str]) -> str:
    """Return the cache key of a step's result.

    `inputs` are digests of data sets and custom classes, and earlier results' keys.
    """
    return digest(step, NUMERICS_VERSION, settings, list(inputs))


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def versions() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


# Entries


def store_path(kind: str, key: str = "") -> Path:
    """Return the folder of a cached result, or of all results of a kind."""
    return state_dir() / "store" / kind / key


def is_stored(path: Path, tell: Tell) -> bool:
    """Return whether a result is cached undamaged; move a damaged one aside."""
    if not os.path.lexists(path):
        return False
    damage = harm_of(path)
    if damage is not None and not _set_aside(path, damage, tell):
        return False
    with suppress(OSError):
        os.utime(path)  # time of the last use
    return True


def computed_at(path: Path) -> str:
    """Return when a result was cached, such as ``2026-05-01 17:30``."""
    seconds = (path / CONTENTS).stat().st_mtime
    return datetime.fromtimestamp(seconds).isoformat(" ", "minutes")


def checked(path: Path) -> Path:
    """Return the folder of a cached result; InputError if damaged or missing."""
    damage = harm_of(path)
    if damage is not None:
        raise _changed_error(path, damage)
    return path


@contextmanager
def keep(path: Path, made_from: Sequence[Path] = ()) -> Iterator[Path]:
    """Yield a temporary folder that becomes the cached result `path` unless an error occurs.

    An existing entry stays. The entry records the versions of entries in `made_from`.
    """
    with atomic_path(path, replaces=False) as folder:
        folder.mkdir()
        yield folder
        contents = {
            "key": path.name,
            "files": {
                file.name: file_digest(file) for file in sorted(folder.iterdir())
            },
            "versions": [versions(), *earlier_versions(made_from)],
        }
        (folder / CONTENTS).write_bytes(_with_digest(contents))


def versions_of(path: Path) -> list[dict[str, str]]:
    """Return the library versions that computed a cached result."""
    try:
        recorded: list[dict[str, str]] = _contents(path)["versions"]
    except (ValueError, OSError):
        raise _changed_error(path, f"{CONTENTS} is damaged or gone") from None
    return recorded


def earlier_versions(paths: Iterable[Path]) -> list[dict[str, str]]:
    """Return library versions of cached results, except those installed."""
    earlier: list[dict[str, str]] = []
    for path in paths:
        for recorded in versions_of(path):
            if recorded != versions() and recorded not in earlier:
                earlier.append(recorded)
    return earlier


def _with_digest(contents: dict[str, Any]) -> bytes:
    sha256 = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
    return json.dumps({**contents, "sha256": sha256}, indent=1).encode()


def _contents(path: Path) -> dict[str, Any]:
    """Return the contents that an entry lists; ValueError if damaged."""
    text = (path / CONTENTS).read_bytes()
    try:
        contents: dict[str, Any] = json.loads(text)
        contents.pop("sha256")
        is_valid = text == _with_digest(contents) and contents["key"] == path.name
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"{CONTENTS} is damaged")
    return contents


def _changed_error(path: Path, damage: str) -> InputError:
    return InputError(
        f"{path}: {damage}, since this run began; start again, and it is made again."
    )


_VERIFIED_STATES: dict[Path, tuple[tuple[str, int, int, int], ...]] = {}
"""State of the files of verified entries."""

SETTLED_SECONDS = 0.1
"""Age of a change after which a later change has another time stamp."""


def harm_of(path: Path) -> str | None:
    """Return a phrase on the damage of a cached result; None if undamaged."""
    state = _state_of(path)
    if state is not None and _VERIFIED_STATES.get(path) == state:
        return None
    harm = _harm_of_files(path)
    last_change = max((changed for _, _, changed, _ in state or ()), default=0)
    if (
        state is not None
        and harm is None
        and time.time() - last_change / 1e9 > SETTLED_SECONDS
    ):
        _VERIFIED_STATES[path] = state
    return harm


def _state_of(path: Path) -> tuple[tuple[str, int, int, int], ...] | None:
    """Return name, size, time and inode of each file; None if unreadable."""
    try:
        files = [(file.name, file.stat()) for file in sorted(path.iterdir())]
    except OSError:
        return None
    return tuple(
        (name, status.st_size, status.st_ctime_ns, status.st_ino)
        for name, status in files
    )


def _harm_of_files(path: Path) -> str | None:
    try:
        try:
            expected = _contents(path)["files"]
        except ValueError as error:
            return str(error)
        names = {file.name for file in path.iterdir()} - {CONTENTS}
        missing = expected.keys() - names
        differing = sorted(missing | (names - expected.keys()))
        if differing:
            name = differing[0]
            if name in missing:
                return f"{name} is missing"
            return f"{name} is not of it"
        for name, sha256 in expected.items():
            if file_digest(path / name) != sha256:
                return f"{name} is damaged"
    except (
        FileNotFoundError,
        NotADirectoryError,
        IsADirectoryError,
        PermissionError,
    ) as error:
        return f"{Path(error.filename or path).name} cannot be read ({error.strerror})"
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return f"the disk does not give it back ({error.strerror})"
    return None


def _set_aside(path: Path, damage: str, tell: Tell) -> bool:
    """Move a damaged entry away; return whether an undamaged one exists."""
    try:
        aside = (
            Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{DAMAGED}{path.name}~"))
            / path.name
        )
        try:
            path.rename(aside)
        except FileNotFoundError:  # another process has moved it
            aside.parent.rmdir()
            return False
        # Another process has replaced it by an undamaged one
        if harm_of(aside) is None:
            with suppress(OSError):
                aside.rename(path)
            shutil.rmtree(aside.parent)
            return harm_of(path) is None
    except OSError as error:
        raise InputError(
            f"{path}: {damage}, and it cannot be set aside ({error.strerror}); remove it, or make {path.parent} one "
            "that you may write to."
        ) from None
    tell(
        f"{path}: {damage}; it was set aside as {aside.parent.name} and is made again."
    )
    return False


# Temporary files


@contextmanager
def atomic_path(
    path: Path, lasting: bool = True, replaces: bool = True
) -> Iterator[Path]:
    """Yield a temporary path, renamed to `path` unless an error occurs.

    After a kill, the next call for the same parent deletes the temporary folder.
    `lasting` files survive a power cut. `replaces` is for folders; files always
    replace.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(path.parent) as folder:
        temporary = Path(folder) / path.name
        yield temporary
        if lasting:
            _sync(temporary)
        if temporary.is_dir():
            _rename_folder(temporary, path, replaces)
        else:
            temporary.replace(path)
        if lasting:
            _fsync(path.parent)


def temporary_folder(parent: Path) -> tempfile.TemporaryDirectory[str]:
    """Create a temporary folder; delete folders that killed processes left next to it."""
    for folder in leftovers(parent):
        shutil.rmtree(folder, ignore_errors=True)
    return tempfile.TemporaryDirectory(
        dir=parent, prefix=f"{TEMPORARY}{Owner.this()}~", ignore_cleanup_errors=True
    )


def leftovers(folder: Path) -> list[Path]:
    """Return a folder's temporary files and folders whose processes have ended."""
    paths = []
    for path in folder.glob(f"{TEMPORARY}*"):
        owner = Owner.read(path.name)
        if owner is not None and owner.gone:
            paths.append(path)
    return paths


def _rename_folder(folder: Path, path: Path, replaces: bool) -> None:
    """Rename a folder; an existing one moves next to `folder`."""
    for number in itertools.count():
        try:
            folder.rename(path)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if not replaces:
            return
        with suppress(FileNotFoundError):
            path.rename(folder.parent / f"replaced-{number}")


def _sync(path: Path) -> None:
    if path.is_dir():
        for child in path.iterdir():
            _sync(child)
    _fsync(path)


def _fsync(path: Path) -> None:
    """Write a file, or if possible a folder's names, to the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(file)
