"""Files that can be made again, named by the digest of all that they depend on, and written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from learnkernels.tasks.environment import state_dir


def store_path(kind: str, key: str, suffix: str = "") -> Path:
    """Return where the artefact of a kind and key lies, whether or not it exists yet."""
    folder = state_dir() / "store" / kind
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{key}{suffix}"


def digest(*parts: Any) -> str:
    """Return a short name, stable over processes, for JSON values: 20 hexadecimal digits of their SHA-256."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; when the block ends well, what was written there becomes `path`.

    Works for a file and for a folder that does not exist yet. After an error nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:40]}-") as folder:
        temporary = Path(folder) / path.name
        yield temporary
        if path.is_dir() and temporary.is_dir():
            shutil.rmtree(path)
        os.replace(temporary, path)
