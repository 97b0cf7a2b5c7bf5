"""End a command in order after Ctrl-C or a signal."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType, SimpleNamespace

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AGAIN = 0.7
"""Seconds until an interrupt that a library caught is raised again."""


IMPORTING = ("_frozen_importlib", "importlib._bootstrap")
"""Modules in which an exception from another thread may leave a lock taken."""

IGNORING = ("llvmlite.binding", "weakref", "_weakrefset")
"""Modules with callbacks whose exceptions are printed and ignored."""

UNINTERRUPTED_SECONDS = 10.0

PATIENCE = 30.0
"""Seconds until a signaled process no longer waits for its threads."""


class Stopped(KeyboardInterrupt):
    """KeyboardInterrupt by a signal to end this process."""


_state = SimpleNamespace(
    handles_signals=False, received=None, since=0.0, stop_message="nothing was begun"
)
"""State of `orderly_end`; `stop_message` names the kept results."""


def stop_requested() -> bool:
    return bool(_state.received)


def set_stop_message(message: str) -> None:
    """Set the message to print if this command is stopped."""
    _state.stop_message = message


class StepStopped(BaseException):
    """Exception in a step when the run was stopped or another step failed."""

    def __init__(self) -> None:
        super().__init__("the run was stopped, or another step has failed")


@dataclass
class _Steps:
    """Threads of the running steps; `stopped` refuses new ones."""

    threads: list[int] = field(default_factory=list)
    stopped: bool = False


_steps: ContextVar[_Steps | None] = ContextVar("steps", default=None)

_entering = threading.Lock()
"""Held while steps begin, end or are stopped."""


@contextmanager
def stopping_steps() -> Iterator[None]:
    """Within the context, let an error stop the steps in other threads."""
    steps = _Steps()
    token = _steps.set(steps)
    try:
        with _own_handler_of_sigterm():
            yield
    except BaseException:
        with _entering:
            steps.stopped = True
            for thread in set(steps.threads) - {threading.get_ident()}:
                _wait_until_interruptible(thread)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(StepStopped)
                )
        raise
    finally:
        _steps.reset(token)


def _wait_until_interruptible(thread: int) -> None:
    latest = time.monotonic() + UNINTERRUPTED_SECONDS
    while not _is_interruptible(thread) and time.monotonic() < latest:
        time.sleep(0.01)


def _is_interruptible(thread: int) -> bool:
    for frame in _stack(sys._current_frames().get(thread)):
        if _module_of(frame).startswith(IMPORTING) or _is_critical(frame):
            return False
    return True


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _is_critical(frame: FrameType) -> bool:
    """Return whether an exception would be printed and ignored, or lose a thread."""
    return (
        frame.f_code.co_name == "__del__"
        or frame.f_code is ThreadPoolExecutor.submit.__code__
        or _module_of(frame).startswith(IGNORING)
    )


@contextmanager
def _own_handler_of_sigterm() -> Iterator[None]:
    """Handle SIGTERM by `orderly_end`, if active, instead of by Prefect."""
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
    """Within the context, let `stopping_steps` of another thread end this thread."""
    steps = _steps.get()
    thread = threading.get_ident()
    if steps is None:
        yield
        return
    with _entering:
        if steps.stopped:
            raise StepStopped
        steps.threads.append(thread)
    try:
        yield
    finally:
        with _entering:
            steps.threads.remove(thread)


@contextmanager
def orderly_end() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into a message and an exit code.

    `Stopped` is raised repeatedly, as libraries catch interrupts. After `PATIENCE`, the
    same signal ends the process.
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
        if not stop_requested():
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _state.handles_signals = False
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
    if stop_requested():
        _print_message()
        signal.signal(signal.SIGALRM, _end_by_signal)
        # Python waits for threads at exit
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        sys.exit(128 + _state.received)


def _print_message() -> None:
    sys.stderr.write(f"stopped; {_state.stop_message}.\n")
    sys.stderr.flush()


def _end_by_signal(number: int, frame: FrameType | None) -> None:
    signal.signal(_state.received, signal.SIG_DFL)
    os.kill(os.getpid(), _state.received)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise `Stopped` unless an interrupt already unwinds the stack."""
    if not stop_requested():
        _state.received = number
        _state.since = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
    elif time.monotonic() - _state.since > PATIENCE:
        _print_message()
        _end_by_signal(number, frame)
    if any(map(_is_critical, _stack(frame))):
        return  # the timer signals again
    error = sys.exc_info()[1]
    while error is not None:
        if not isinstance(error, Exception):
            return
        error = error.__context__
    raise Stopped(signal.Signals(_state.received).name)
