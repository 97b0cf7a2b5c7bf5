"""Unit tests start no process and use no network; an audit hook refuses both."""

import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import matplotlib.font_manager  # noqa: F401  (starts a process where it makes its list of fonts)
import pytest

from learnkernels.kernels.engine.workers import at_most_threads

REFUSED = {
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.bind",
    "socket.connect",
}
_unit = threading.local()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and arguments[0] == "/sbin/ldconfig":
        return  # threadpoolctl 3.5 looks for the C library
    if event in REFUSED and getattr(_unit, "running", False):
        raise AssertionError(
            f"a unit test must start no process and use no network: {event} {arguments}"
        )


# Starts a process once, and scikit-learn's boosting asks for the number
joblib.cpu_count(only_physical_cores=True)
sys.addaudithook(_refuse)


def peak_of(
    act: Callable[..., object], *args: object, before: tuple[object, ...] | None = None
) -> int:
    """Return how many bytes an act takes at most.

    In one thread: with more, the number of blocks that are held at once varies from run
    to run. It is done before (with other arguments, where it is done only once with
    these), as what is imported and compiled is no part of it.
    """
    with at_most_threads(1):
        act(*(args if before is None else before))
        tracemalloc.start()
        try:
            act(*args)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the state of this test alone."""
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(autouse=True)
def no_process_and_no_network() -> Iterator[None]:
    """Refuse processes and network connections of this thread during a unit test."""
    _unit.running = True
    yield
    _unit.running = False
