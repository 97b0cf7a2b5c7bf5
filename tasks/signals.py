"""Orderly end of a command by Ctrl-C or a signal: the stack is unwound, and a message names the kept results."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType, SimpleNamespace

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AGAIN = 0.7
"""Seconds until an interrupt that a library has caught is raised again."""


IMPORT_SECONDS = 10.0
"""Longest wait for the imports of a step that is to be stopped."""

PATIENCE = 30.0
"""Seconds after which a process that has received a signal ends without waiting for its threads."""


class Stopped(KeyboardInterrupt):
    """A signal has asked this process to end."""


_state = SimpleNamespace(
    handles_signals=False, received=None, since=0.0, kept="nothing was begun"
)
"""Whether `orderly_end` is active, the signal that this process has received, its time, and what is kept."""


def requested() -> bool:
    """Return whether a signal has asked this process to end."""
    return bool(_state.received)


def keep(what: str) -> None:
    """Set the sentence about what this command keeps when it is stopped."""
    _state.kept = what


class StepStopped(BaseException):
    """A step ends early, as its run was stopped or another step of the run has failed."""

    def __init__(self) -> None:
        super().__init__("the run was stopped, or another step has failed")


_steps: ContextVar[list[int] | None] = ContextVar("steps", default=None)
"""Threads that run steps of this run."""

_entering = threading.Lock()
"""Lock of stopping, beginning and ending steps: a thread whose step has ended is not stopped."""


@contextmanager
def stopping_steps() -> Iterator[None]:
    """Within the context, steps in other threads end at their next instruction when an error ends this thread."""
    threads: list[int] = []
    token = _steps.set(threads)
    try:
        with _own_handler_of_sigterm():
            yield
    except BaseException:
        with _entering:
            for thread in set(threads) - {threading.get_ident()}:
                _wait_for_imports(thread)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(StepStopped)
                )
        raise
    finally:
        _steps.reset(token)


def _wait_for_imports(thread: int) -> None:
    """Wait until a thread imports no module: an error within an import may leave Python's import lock taken."""
    latest = time.monotonic() + IMPORT_SECONDS
    while _is_importing(thread) and time.monotonic() < latest:
        time.sleep(0.01)


def _is_importing(thread: int) -> bool:
    """Return whether a thread is importing a module."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def _own_handler_of_sigterm() -> Iterator[None]:
    """Within the context, the handler of `orderly_end`, if it is active, takes the
    place of Prefect's.

    Prefect's handler raises once. If Python ignores that error, in a destructor for
    example, the flow run goes on.
    """
    if (
        not _state.handles_signals
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the context, `stopping_steps` of the run can stop this thread."""
    threads = _steps.get()
    thread = threading.get_ident()
    if threads is None:
        yield
        return
    with _entering:
        threads.append(thread)
    try:
        yield
    finally:
        with _entering:
            threads.remove(thread)


@contextmanager
def orderly_end() -> Iterator[None]:
    """Run a command so that SIGINT, SIGTERM and SIGHUP end it with a message and 128
    plus the signal as exit code.

    A signal raises `Stopped` in the main thread. As libraries catch interrupts, a timer
    raises it again until the stack is unwound. A process that still runs `PATIENCE`
    later, because a thread or a child never ends, is ended by the same signal. After
    the context, a signal ends the process immediately.
    """
    handled = list(SIGNALS)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as under nohup
        handled.remove(signal.SIGHUP)
    for number in handled:
        signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt)
    _state.handles_signals = True
    try:
        yield
    except BaseException:
        if not requested():
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _state.handles_signals = False
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
    if requested():
        _print_message()
        signal.signal(signal.SIGALRM, _end_by_signal)
        # The exit of Python waits for threads
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        sys.exit(128 + _state.received)


def _print_message() -> None:
    """Print the sentence about what is kept."""
    sys.stderr.write(f"stopped; {_state.kept}.\n")
    sys.stderr.flush()


def _end_by_signal(number: int, frame: FrameType | None) -> None:
    """End this process by the signal that it has received, without waiting for threads."""
    signal.signal(_state.received, signal.SIG_DFL)
    os.kill(os.getpid(), _state.received)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise `Stopped`, unless an interrupt already unwinds the stack, and end the process if that takes too long."""
    if not requested():
        _state.received = number
        _state.since = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
    elif time.monotonic() - _state.since > PATIENCE:
        _print_message()
        _end_by_signal(number, frame)
    error = sys.exc_info()[1]
    while error is not None:
        if not isinstance(error, Exception):
            return
        error = error.__context__
    raise Stopped(signal.Signals(_state.received).name)
