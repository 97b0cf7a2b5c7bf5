"""Unit tests start no process and use no network; an audit hook refuses both."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import matplotlib.font_manager  # noqa: F401  (starts a process where it makes its list of fonts)
import pytest

REFUSED = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "socket.bind", "socket.connect"}
_unit = threading.local()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in REFUSED and getattr(_unit, "running", False):
        raise AssertionError(f"a unit test must start no process and use no network: {event} {arguments}")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def no_process_and_no_network() -> Iterator[None]:
    """Refuse processes and network connections of this thread during a unit test."""
    _unit.running = True
    yield
    _unit.running = False
